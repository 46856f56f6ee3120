//! `anyfn call`: calls a function of a library.

use std::path::Path;
use std::process::ExitCode;

use anyfn::{
    Any, Array, Fallback, Map, Module, PackedFunc, Param, Result, Schema, Signature, String as Text, registry,
};
use lexopt::{Parser, ValueExt};
use serde_json::Value;

use crate::inspect;
use crate::usage::argument;

/// Runs `anyfn call`. `args` are the command-line arguments after the command's name.
pub(crate) fn run(mut args: Parser) -> Result<ExitCode, lexopt::Error> {
    let Some(file) = argument(&mut args)? else {
        return Err("`call` needs a file and the name of a function, got nothing".into());
    };
    let Some(name) = argument(&mut args)? else { return Err(single_argument(&file).into()) };
    // The arguments of the function are not options, even if they begin with `-`, like negative numbers.
    let words = args.raw_args()?.map(ValueExt::string).collect::<Result<Vec<String>, lexopt::Error>>()?;
    Ok(match call(&file, &name, &words) {
        Ok(result) => crate::output::print(&format!("{result}\n")),
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
        None => {
            "this command has no arguments of some of these types: call the function from a program".to_owned()
        }
    });
    Some(lines.join("\n"))
}

/// Returns the name of a type for messages.
fn type_name(ty: &Schema) -> String {
    if ty.origin == "DLTensor*" { "Tensor".to_owned() } else { ty.to_string() }
}

/// Returns an example of an argument of a type, as it is written on a command line. Returns `None`
/// for a type whose values cannot be written there, such as a tensor.
fn example(ty: &Schema) -> Option<String> {
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
    let args = args.iter().map(|word| json_or_string(word)).collect::<Result<Vec<Any>>>()?;
    shown(&function.call_views(Any::as_views(&args))?)
}

/// Converts a command-line argument to a value: JSON if it can be parsed, otherwise a string.
fn json_or_string(word: &str) -> Result<Any> {
    match serde_json::from_str::<Value>(word) {
        Ok(value) => value_of(&value),
        Err(_) => Any::new(word),
    }
}

fn value_of(value: &Value) -> Result<Any> {
    match value {
        Value::Null => Ok(Any::NONE),
        Value::Bool(truth) => Any::new(*truth),
        Value::Number(number) => match number.as_i64() {
            Some(number) => Any::new(number),
            None => Any::new(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Any::new(text.as_str()),
        Value::Array(items) => {
            let items = items.iter().map(value_of).collect::<Result<Vec<Any>>>()?;
            Any::new(Array::<Any>::try_from_iter(items)?)
        }
        Value::Object(pairs) => {
            let mut map = Map::<Text, Any>::new();
            for (key, value) in pairs {
                map.insert(Text::from(key.as_str()), value_of(value)?)?;
            }
            Any::new(map)
        }
    }
}

/// Formats a value for the terminal, such as the result of the called function.
fn shown(value: &Any) -> Result<String> {
    if value.is_none() {
        return Ok("None".into());
    }
    if let Ok(text) = value.get::<&str>() {
        return Ok(format!("'{}'", text.escape_debug()));
    }
    if let Ok(items) = value.get::<Array<Any>>() {
        let items = items.iter().map(|item| shown(&item)).collect::<Result<Vec<_>>>()?;
        return Ok(format!("[{}]", items.join(", ")));
    }
    match value.type_index() {
        anyfn::abi::kTVMFFIBool => Ok(if value.get::<bool>()? { "True" } else { "False" }.into()),
        anyfn::abi::kTVMFFIInt => Ok(value.get::<i64>()?.to_string()),
        anyfn::abi::kTVMFFIFloat => Ok(format!("{:?}", value.get::<f64>()?)),
        index => Ok(format!("<{}>", anyfn::type_key(index))),
    }
}
