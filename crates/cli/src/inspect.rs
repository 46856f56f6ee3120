//! `anyfn inspect`: shows what a library contains, what it needs, and what it was built for.

use std::process::ExitCode;

use anyfn::{Any, Array, Map, Result, String as Text, registry};
use lexopt::{Arg, Parser, ValueExt};
use serde_json::Value;

use crate::output;

/// Runs `anyfn inspect`. `args` are the command-line arguments after the command's name.
pub(crate) fn run(mut args: Parser) -> Result<ExitCode, lexopt::Error> {
    let (mut as_json, mut files) = (false, Vec::new());
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("json") => as_json = true,
            Arg::Value(file) => files.push(file.string()?),
            Arg::Short(_) | Arg::Long(_) => return Err(arg.unexpected()),
        }
    }
    if files.is_empty() {
        return Err("`inspect` needs a file".into());
    }
    let mut fine = true;
    for (index, file) in files.iter().enumerate() {
        match look(file) {
            Ok(found) => {
                fine &= found["problem"].is_null();
                let text = if as_json { format!("{found:#}\n") } else { shown(&found, index > 0) };
                if let Err(error) = output::write(&text) {
                    return Ok(output::report(&error));
                }
            }
            Err(error) => {
                fine = false;
                output::report(&error.message());
            }
        }
    }
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn look(file: &str) -> Result<Value> {
    json(&registry::get("ffi.ModuleInspectFile")?.call((file,))?)
}

/// Converts a value of a report to JSON. Supported are maps, arrays, strings, booleans, integers
/// and None.
pub(crate) fn json(value: &Any) -> Result<Value> {
    if let Ok(map) = value.get::<Map<Text, Any>>() {
        let pairs = map.iter_any().map(|(key, value)| Ok((key.get::<&str>()?.to_owned(), json(value)?)));
        return pairs.collect::<Result<_>>().map(Value::Object);
    }
    if let Ok(items) = value.get::<Array<Any>>() {
        return items.iter().map(|item| json(&item)).collect::<Result<_>>().map(Value::Array);
    }
    if value.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(text) = value.get::<&str>() {
        return Ok(text.into());
    }
    match value.get::<bool>() {
        Ok(truth) if value.type_index() == anyfn::abi::kTVMFFIBool => Ok(truth.into()),
        _ => Ok(value.get::<i64>()?.into()),
    }
}

/// Fields of the report on a file: the key and the displayed title of each, in display order.
const TITLES: &[(&str, &str)] = &[
    ("format", "format"),
    ("machine", "machine"),
    ("size", "bytes"),
    ("soname", "name"),
    ("build_id", "build"),
    ("abi", "built for ABI"),
    ("runtime", "needs runtime"),
    ("functions", "functions"),
    ("registers_functions", "registers global functions"),
    ("imports", "carries"),
    ("context_slots", "context symbols"),
    ("needed", "needs libraries"),
    ("search_path", "search path"),
    ("requires", "needs symbol versions"),
    ("runtime_symbols", "needs from the runtime"),
    ("other_symbols", "needs from other libraries"),
    ("unique_symbols", "unique symbols (never unmapped)"),
    ("traits", "traits"),
];

/// Formats the report `found` on a file as text, without empty fields. If `follows` is true, the
/// text begins with a blank line.
fn shown(found: &Value, follows: bool) -> String {
    let mut text = if follows { "\n".to_owned() } else { String::new() };
    text.push_str(found["file"].as_str().unwrap_or_default());
    text.push('\n');
    for (key, title) in TITLES {
        let items = match &found[*key] {
            Value::Null | Value::Bool(false) => continue,
            Value::Bool(true) => vec!["yes".to_owned()],
            // Symbols with a version are left out: the version shows which library they come from.
            Value::Array(items) if *key == "other_symbols" => {
                items.iter().map(item).filter(|name| !name.contains('@')).collect()
            }
            Value::Array(modules) if *key == "imports" => {
                push_lines(&mut text, title, tree(modules));
                continue;
            }
            Value::Array(items) => items.iter().map(item).collect(),
            Value::Object(pairs) => pairs.iter().map(|(key, value)| format!("{key} {}", item(value))).collect(),
            other => vec![item(other)],
        };
        push_lines(&mut text, title, lines(&items));
    }
    if let Some(problem) = found["problem"].as_str() {
        text.push_str(&format!("  does not load here: {problem}\n"));
    }
    text
}

fn push_lines(text: &mut String, title: &str, lines: Vec<String>) {
    for (index, line) in lines.into_iter().enumerate() {
        let title = if index == 0 { title } else { "" };
        text.push_str(&format!("  {title:<31} {line}\n"));
    }
}

fn item(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Formats the modules in a library as the lines of an indented tree, in which each module precedes its
/// imports. Modules that the first module does not import, directly or indirectly, come last.
fn tree(modules: &[Value]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut shown = vec![false; modules.len()];
    let mut open = vec![(0, 0)];
    while let Some((at, depth)) = open.pop() {
        let module = &modules[at];
        let kind = module["kind"].as_str().unwrap_or_default();
        let what = match (at, kind) {
            _ if shown[at] => " (shown above)".to_owned(),
            (_, "library") => " (this file)".to_owned(),
            _ => format!(" ({} bytes)", module["size"]),
        };
        lines.push(format!("{}{kind}{what}", "  ".repeat(depth)));
        if !core::mem::replace(&mut shown[at], true) {
            let imports = module["imports"].as_array().into_iter().flatten().rev();
            open.extend(imports.filter_map(Value::as_u64).map(|to| (to as usize, depth + 1)));
        }
    }
    // Modules that no module imports.
    let others = modules.iter().zip(&shown).filter(|(_, shown)| !**shown);
    lines.extend(
        others.map(|(module, _)| format!("{} ({} bytes), not imported", item(&module["kind"]), module["size"])),
    );
    lines
}

/// Joins items with commas into lines of at most 80 bytes. Only a single item that is longer
/// exceeds this limit.
fn lines(items: &[String]) -> Vec<String> {
    const WIDTH: usize = 80;
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.len() + item.len() + 2 <= WIDTH => {
                line.push_str(", ");
                line.push_str(item);
            }
            _ => lines.push(item.clone()),
        }
    }
    lines
}
