//! `anyfn call`: calls a function of a library and prints the result, and the tensors that the function has changed.

use std::path::Path;
use std::process::ExitCode;

use anyfn::{Any, Fallback, Module, PackedFunc, Param, Result, Schema, Signature, Tensor, registry};
use lexopt::{Parser, ValueExt};
use serde_json::Value;

use crate::shown::shown;
use crate::usage::argument;
use crate::{inspect, word};

/// Runs `anyfn call`. `args` are the command-line arguments after the command's name.
pub(crate) fn run(mut args: Parser) -> Result<ExitCode, lexopt::Error> {
    let Some(file) = argument(&mut args)? else {
        return Err("`call` needs a file and the name of a function, got nothing".into());
    };
    let Some(name) = argument(&mut args)? else { return Err(single_argument(&file).into()) };
    // The arguments of the function are not options, even if they begin with `-`, like negative numbers.
    let words = args.raw_args()?.map(ValueExt::string).collect::<Result<Vec<String>, lexopt::Error>>()?;
    Ok(match call(&file, &name, &words) {
        Ok(text) => crate::output::print(&text),
        Err(error) => crate::output::report(&error),
    })
}

/// Returns the error message for `anyfn call` with a single argument, `word`, which is a library or
/// the name of a function. The message explains what to add.
fn single_argument(word: &str) -> String {
    let needs = format!("`call` needs a file and the name of a function, got `{word}`");
    let path = Path::new(word);
    if path.is_file() {
        return match functions_of(word) {
            Some(names) if !names.is_empty() => {
                format!("{needs}; add one of its functions: {}", names.join(", "))
            }
            _ => format!("{needs}; add a function that it registers"),
        };
    }
    if path.extension().is_some_and(|extension| extension == "so") {
        return format!("{needs}, a file that does not exist");
    }
    format!("{needs}; to call a function of that name, write `anyfn call FILE.so {word} [ARG...]`")
}

/// Returns the names of the functions that a library exports, without running its code.
fn functions_of(file: &str) -> Option<Vec<String>> {
    let found = registry::get("ffi.ModuleInspectFile").and_then(|inspect| inspect.call((file,))).ok()?;
    let found = inspect::json(&found).ok()?;
    let names = found["functions"].as_array()?.iter().filter_map(Value::as_str);
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    Some(names)
}

/// Returns the message for a call with too few or too many arguments: the arguments that the
/// function takes, and an example. Returns `None` if the number of arguments is right, or if the
/// function does not report its parameters.
fn wrong_count(file: &str, name: &str, function: &PackedFunc, given: usize) -> Option<String> {
    let signature = Signature::parse(&function.signature()?).ok()?;
    let params = signature.params.as_deref()?;
    let is_required = |param: &&Param| matches!(param.default, Fallback::Required);
    let (required, all) = (params.iter().filter(is_required).count(), params.len());
    if given >= required && (given <= all || signature.variadic) {
        return None;
    }
    let expected = if required == all { all.to_string() } else { format!("{required} to {all}") };
    let plural = if expected == "1" { "" } else { "s" };
    let mut lines = vec![format!("`{name}` takes {expected} argument{plural}, got {given}")];
    for param in params {
        let default = match &param.default {
            Fallback::Required => String::new(),
            Fallback::Value(value) => format!(" = {}", shown(value).unwrap_or_default()),
            Fallback::Unknown => " = ...".to_owned(),
        };
        lines.push(format!("  {}: {}{default}", param.name, type_name(&param.ty)));
    }
    let words: Option<Vec<String>> =
        params.iter().filter(is_required).map(|param| example(&param.ty)).collect();
    lines.push(match words {
        Some(words) => format!("example: anyfn call {file} {name} {}", words.join(" ")).trim_end().to_owned(),
        None => "a word of this command cannot denote an argument of some of these types: call the function from a program"
            .to_owned(),
    });
    Some(lines.join("\n"))
}

/// Returns the name of a type for messages.
fn type_name(ty: &Schema) -> String {
    ty.to_string().replace("DLTensor*", "Tensor")
}

/// Returns an example of an argument of a type, as it is written on a command line. Returns `None`
/// for a type whose values cannot be written there, such as a module.
fn example(ty: &Schema) -> Option<String> {
    if matches!(&*ty.origin, "DLTensor*" | "ffi.Tensor") {
        return Some("'float32[1, 2]'".to_owned());
    }
    let value = sample(ty)?;
    Some(match &value {
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => format!("'{value}'"),
        other => other.to_string(),
    })
}

/// Returns an example of a value of a type as JSON, or `None` if values of the type cannot be
/// written as JSON.
fn sample(ty: &Schema) -> Option<Value> {
    let arg = |index: usize| ty.args.get(index).map_or_else(|| Some(Value::from(1)), sample);
    Some(match &*ty.origin {
        "int" | "Any" => Value::from(1),
        "float" => Value::from(1.5),
        "bool" => Value::from(true),
        "None" | "Optional" => Value::Null,
        "ffi.String" | "ffi.SmallStr" | "const char*" => Value::from("text"),
        "DataType" => Value::from("float32"),
        "ffi.Array" | "ffi.List" => Value::Array(vec![arg(0)?]),
        "ffi.Map" | "ffi.Dict" => serde_json::json!({ "key": arg(1)? }),
        _ => return None,
    })
}

/// Calls a function and returns the text to print: the result, and a line for each tensor that the function has changed.
fn call(file: &str, name: &str, args: &[String]) -> Result<String> {
    let module = Module::load(file)?;
    let function: PackedFunc = match module.find_function_with_imports(name)? {
        Some(function) => function,
        // A name with a dot denotes a global function, possibly one of this library.
        None if name.contains('.') => registry::get(name)?,
        None => module.get_function(name)?,
    };
    if let Some(message) = wrong_count(file, name, &function, args.len()) {
        anyfn::bail!("TypeError", "{message}");
    }
    let args = args.iter().map(|word| word::value(word)).collect::<Result<Vec<Any>>>()?;
    let tensors = || args.iter().enumerate().filter_map(|(at, arg)| Some((at, arg.get::<Tensor>().ok()?)));
    let before = tensors().map(|(_, tensor)| tensor.to_bytes()).collect::<Result<Vec<_>>>()?;
    let result = function.call_views(Any::as_views(&args))?;
    let mut text = format!("{}\n", shown(&result)?);
    for ((at, tensor), old) in tensors().zip(before) {
        if tensor.to_bytes()? != old {
            text.push_str(&format!("argument {at}: {}\n", shown(&args[at])?));
        }
    }
    Ok(text)
}
