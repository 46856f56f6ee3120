//! Converts words of the command line to arguments of a function: JSON, tensors such as `float32[1, 2]`, files that
//! NumPy has saved, and strings. `bindings/python/anyfn/_call.py` follows the same rules.

use std::fmt;
use std::path::Path;

use anyfn::abi::{DLDataType, kDLBool, kDLComplex, kTVMFFIBool, kTVMFFIFloat};
use anyfn::{Any, Array, DType, Dict, Map, Result, String as Text, Tensor, bail, registry};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::npy;

/// Maximum nesting depth of the lists that describe a tensor.
const TENSOR_DEPTH_MAX: usize = 64;

/// Maximum nesting depth of JSON.
const JSON_DEPTH_MAX: usize = 500;

/// Converts a word to a value: JSON if it can be parsed, then a tensor or a file, and otherwise a string.
///
/// # Errors
/// Returns an error if the word is meant to be a tensor or a file and cannot be read.
pub(crate) fn value(word: &str) -> Result<Any> {
    if let Some(value) = json(word)? {
        return Ok(value);
    }
    if let Some(file) = word.strip_prefix('@') {
        if file.ends_with(".npy") {
            return Any::new(npy::read(file)?);
        }
        if Path::new(file).is_file() {
            bail!("ValueError", "`{word}`: expected a file that NumPy has saved, such as @x.npy");
        }
    }
    let Some((name, numbers)) = tensor_parts(word) else { return Any::new(word) };
    let dtype = dtype(name)?;
    match json(numbers)? {
        Some(numbers) => Any::new(tensor(numbers, dtype)?),
        None => {
            bail!("ValueError", "`{word}`: expected numbers in JSON after the data type, such as {name}[1, 2]")
        }
    }
}

/// Parses JSON, including `NaN` and `Infinity`, with integers of up to 128 bits. Returns `None` if the text is not JSON.
fn json(text: &str) -> Result<Option<Any>> {
    if let Ok(value) = serde_json::from_str::<&RawValue>(text) {
        return json_value(value, 0).map(Some);
    }
    // This parser accepts NaN, but no integers beyond 64 bits.
    match registry::get("ffi.json.Parse")?.call((text,)) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == "ValueError" => Ok(None),
        Err(error) => Err(error),
    }
}

/// Converts JSON to a value. `Value` of serde_json would round large integers and sort the keys of objects.
fn json_value(value: &RawValue, depth: usize) -> Result<Any> {
    if depth == JSON_DEPTH_MAX {
        bail!("RecursionError", "the JSON of an argument is nested more than {JSON_DEPTH_MAX} levels deep");
    }
    let text = value.get();
    if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text) {
        let items = items.into_iter().map(|item| json_value(item, depth + 1)).collect::<Result<Vec<_>>>()?;
        return Any::new(Array::<Any>::try_from_iter(items)?);
    }
    if let Ok(Pairs(pairs)) = serde_json::from_str::<Pairs<'_>>(text) {
        let mut map = Map::<Text, Any>::new();
        for (key, item) in pairs {
            map.insert(Text::from(key.as_str()), json_value(item, depth + 1)?)?;
        }
        return Any::new(map);
    }
    match text {
        "null" => return Ok(Any::NONE),
        "true" => return Any::new(true),
        "false" => return Any::new(false),
        _ => {}
    }
    if let Ok(integer) = text.parse::<i128>() {
        return Any::new(integer);
    }
    match (text.parse::<f64>(), serde_json::from_str::<String>(text)) {
        (Ok(number), _) => Any::new(number),
        (_, Ok(text)) => Any::new(text.as_str()),
        _ => bail!("ValueError", "the string {text} contains half of a surrogate pair, which is not Unicode"),
    }
}

/// Members of a JSON object in their order.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Deserialize<'a> for Pairs<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'a> Visitor<'a> for Members {
            type Value = Pairs<'a>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Pairs<'a>, M::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Splits a word such as `float32[1, 2]` into the name of the data type and the numbers. Returns `None` if the word
/// does not have this form.
fn tensor_parts(word: &str) -> Option<(&str, &str)> {
    let (name, _) = word.split_once('[')?;
    let numbers = &word[name.len()..];
    let name = name.trim_end_matches(' ');
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_name)).then_some((name, numbers))
}

/// Returns the data type with a name. Complex numbers have no name in the ABI, so they are read here.
fn dtype(name: &str) -> Result<DType> {
    let bits = match name {
        "complex32" => 32,
        "complex64" => 64,
        "complex128" => 128,
        _ => return name.parse(),
    };
    Ok(DType::from(DLDataType { code: kDLComplex, bits, lanes: 1 }))
}

/// Creates a tensor from nested arrays of numbers.
fn tensor(numbers: Any, dtype: DType) -> Result<Tensor> {
    let (numbers, shape) = flat(numbers)?;
    let is = |index: i32| move |number: &Any| number.type_index() == index;
    for number in &numbers {
        if !is(kTVMFFIBool)(number) && !is(kTVMFFIFloat)(number) && number.get::<i128>().is_err() {
            bail!("TypeError", "expected numbers but got {}", type_name(number));
        }
    }
    // The numbers are first stored in the type that represents all of them exactly, as in Python.
    let made = if numbers.is_empty() || numbers.iter().any(is(kTVMFFIFloat)) {
        let float = |number: &Any| match number.type_index() {
            kTVMFFIFloat => number.get::<f64>(),
            _ => integer(number).map(|number| number as f64),
        };
        Tensor::from_slice(&shape, &numbers.iter().map(float).collect::<Result<Vec<f64>>>()?)?
    } else if numbers.iter().all(is(kTVMFFIBool)) {
        let bytes = numbers.iter().map(|number| Ok(u8::from(number.get::<bool>()?)));
        let bool_type = DType::from(DLDataType { code: kDLBool, bits: 8, lanes: 1 });
        Tensor::from_bytes(bool_type, &shape, &bytes.collect::<Result<Vec<u8>>>()?)?
    } else {
        let numbers = numbers.iter().map(integer).collect::<Result<Vec<i128>>>()?;
        let signed: Result<Vec<i64>, _> = numbers.iter().map(|number| i64::try_from(*number)).collect();
        let unsigned: Result<Vec<u64>, _> = numbers.iter().map(|number| u64::try_from(*number)).collect();
        match (signed, unsigned) {
            (Ok(numbers), _) => Tensor::from_slice(&shape, &numbers)?,
            (_, Ok(numbers)) => Tensor::from_slice(&shape, &numbers)?,
            _ => bail!("OverflowError", "the numbers fit in neither int64 nor uint64"),
        }
    };
    if made.view().dtype() == dtype { Ok(made) } else { made.cast(dtype) }
}

fn integer(number: &Any) -> Result<i128> {
    match number.type_index() {
        kTVMFFIBool => Ok(number.get::<bool>()?.into()),
        _ => number.get::<i128>(),
    }
}

/// Returns all numbers of nested arrays in order, and the shape that the nesting describes.
fn flat(data: Any) -> Result<(Vec<Any>, Vec<i64>)> {
    let (mut numbers, mut shape) = (vec![data], Vec::new());
    loop {
        let lists: Vec<Option<Array<Any>>> = numbers.iter().map(|item| item.get::<Array<Any>>().ok()).collect();
        if lists.iter().all(Option::is_none) {
            return Ok((numbers, shape));
        }
        if let Some(at) = lists.iter().position(Option::is_none) {
            let (place, name) = (place(at, &shape), type_name(&numbers[at]));
            bail!("ValueError", "expected a list{place}, like the other items, but got {name}");
        }
        if shape.len() == TENSOR_DEPTH_MAX {
            bail!("ValueError", "the lists are nested more than {TENSOR_DEPTH_MAX} levels deep");
        }
        let lists: Vec<Array<Any>> = lists.into_iter().flatten().collect();
        let extent = lists.first().map_or(0, Array::len);
        if let Some(at) = lists.iter().position(|list| list.len() != extent) {
            let (plural, place) = (if extent == 1 { "" } else { "s" }, place(at, &shape));
            let got = lists[at].len();
            bail!(
                "ValueError",
                "expected {extent} element{plural}{place}, as in the first list, but got {got}"
            );
        }
        numbers = lists.iter().flat_map(|list| list.iter()).collect();
        shape.push(extent as i64);
        if numbers.is_empty() {
            return Ok((numbers, shape));
        }
    }
}

/// Describes the item at a position of the flattened lists for messages, such as ` at [1][0]`.
fn place(mut index: usize, shape: &[i64]) -> String {
    let mut text = String::new();
    for extent in shape.iter().rev() {
        let extent = usize::try_from(*extent).unwrap_or(1).max(1);
        text.insert_str(0, &format!("[{}]", index % extent));
        index /= extent;
    }
    if text.is_empty() { text } else { format!(" at {text}") }
}

/// Returns the name that Python gives to the type of a JSON value.
fn type_name(value: &Any) -> &'static str {
    match value.type_index() {
        kTVMFFIBool => "bool",
        kTVMFFIFloat => "float",
        _ if value.is_none() => "NoneType",
        _ if value.get::<&str>().is_ok() => "str",
        _ if value.get::<Array<Any>>().is_ok() => "list",
        _ if value.get::<Map<Any, Any>>().is_ok() || value.get::<Dict<Any, Any>>().is_ok() => "dict",
        _ => "int",
    }
}
