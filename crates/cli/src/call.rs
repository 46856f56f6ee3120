//! `anyfn call`: calls a function of a library.

use std::process::ExitCode;

use anyfn::{Any, Array, Map, Module, PackedFunc, Result, String as Text, registry};
use lexopt::{Parser, ValueExt};
use serde_json::Value;

use crate::usage::argument;

/// Runs `anyfn call`. `args` are the command-line arguments after the command's name.
pub(crate) fn run(mut args: Parser) -> Result<ExitCode, lexopt::Error> {
    let (Some(file), Some(name)) = (argument(&mut args)?, argument(&mut args)?) else {
        return Err("`call` needs a file and the name of a function".into());
    };
    // The arguments of the function are not options, even if they begin with `-`, like negative numbers.
    let words = args.raw_args()?.map(ValueExt::string).collect::<Result<Vec<String>, lexopt::Error>>()?;
    Ok(match call(&file, &name, &words) {
        Ok(result) => crate::output::print(&format!("{result}\n")),
        Err(error) => crate::output::report(&error),
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

/// Formats the result of the called function for the terminal.
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
