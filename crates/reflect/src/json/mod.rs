//! Saving and loading of graphs of values as JSON, in the format that the ABI defines.
//!
//! A graph is a list of *nodes*, one for each value in it, each with a type key and data. A node refers to other nodes
//! by their indices in the list. A value that is reached twice is therefore saved once, and is a single value again
//! after loading. `docs/saving.md` describes the format.
//!
//! ```
//! # use anyfn_core as _;
//! use anyfn::{Any, Array};
//! use anyfn_reflect::json;
//!
//! let value = Any::new(Array::<Any>::try_from_iter([1, 2])?)?;
//! let text = json::to_json(&value, &json::SaveOptions::default())?;
//! let same = json::from_json(&text, &json::LoadOptions::default())?;
//! assert_eq!(same.get::<Array<i64>>()?.to_vec()?, [1, 2]);
//! # Ok::<(), anyfn::Error>(())
//! ```

mod bigint;
mod builtin;
mod enums;
mod hook;
mod inline;
mod kept;
mod load;
mod parse;
mod save;
mod sink;
mod tape;
mod tensor;
mod text;
mod value;

use alloc::vec::Vec;

use anyfn::abi::kTVMFFIMap;
use anyfn::{Any, Error, Map, Result, String, register};

/// Version number of the file format in which graphs are saved. Files of this and all earlier
/// versions can be loaded.
const FORMAT: i64 = 1;

/// Options for saving a graph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SaveOptions {
    /// Map from strings to JSON values that is saved together with the graph.
    pub metadata: Option<Any>,
    /// True if a record is added to the metadata under the key `anyfn`: format, version of anyfn,
    /// and the fields whose values are stored inline. Without this record, a reader whose
    /// definition of a type lacks a saved field may drop the field.
    pub tag: bool,
    /// True if cycles are permitted, that is, values that contain themselves directly or
    /// indirectly. If false, a cycle is an error. Some readers reject files with cycles.
    pub cycles: bool,
}

impl Default for SaveOptions {
    fn default() -> SaveOptions {
        SaveOptions { metadata: None, tag: true, cycles: true }
    }
}

/// Treatment of unknown fields, that is, of fields in a file that the object's type does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnknownFields {
    /// The unknown field is stored beside the object's own fields, and saved again with the object.
    #[default]
    Keep,
    /// The unknown field is discarded.
    Drop,
    /// Loading fails with a `TypeError` if the file contains an unknown field.
    Refuse,
}

impl UnknownFields {
    fn of(word: &str) -> Result<UnknownFields> {
        Ok(match word {
            "keep" => UnknownFields::Keep,
            "drop" => UnknownFields::Drop,
            "error" => UnknownFields::Refuse,
            _ => anyfn::bail!("ValueError", "expected \"keep\", \"drop\" or \"error\" but got {word:?}"),
        })
    }
}

/// Options for loading a graph.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Treatment of unknown fields, that is, of fields in the file that the object's type does not
    /// have. A type can request a stricter treatment by setting its attribute
    /// `__json_unknown_fields__` to `"drop"` or `"error"`.
    pub unknown_fields: UnknownFields,
}

/// Saves a graph, that is, a value and all that it refers to, as a JSON string.
///
/// # Errors
/// Returns `TypeError` for an object that cannot be recreated, such as a function; `ValueError` for metadata that is
/// not JSON, for strings that are not UTF-8, and for cycles unless they are allowed; the error of a hook that a type
/// has registered.
pub fn to_json(value: &Any, options: &SaveOptions) -> Result<String> {
    let mut sink = sink::Text::new();
    let saved = save::save(&mut sink, value, options.cycles)?;
    let metadata = match (&options.metadata, options.tag) {
        (metadata, false) => metadata.clone(),
        (metadata, true) => Some(tagged(metadata.as_ref(), &saved)?),
    };
    let (bytes, from) = sink.finish(saved.root, metadata.as_ref(), |entry| saved.node_of(entry))?;
    text_of(&bytes[from..])
}

/// Returns `metadata` with the record about the saved graph added under the key `anyfn`.
fn tagged(metadata: Option<&Any>, saved: &save::Saved) -> Result<Any> {
    let mut pairs: Vec<(Any, Any)> = match metadata {
        None => Vec::new(),
        Some(metadata) if metadata.type_index() == kTVMFFIMap => {
            metadata.get::<Map>()?.iter_any().map(|(key, value)| (key.clone(), value.clone())).collect()
        }
        Some(other) => anyfn::bail!("TypeError", "expected a Map as metadata but got {}", other.type_key()),
    };
    pairs.push((Any::new("anyfn")?, save::tag(saved)?));
    Any::new(Map::<Any, Any>::from_vec(pairs)?)
}

/// Converts UTF-8 bytes to a string value.
fn text_of(bytes: &[u8]) -> Result<String> {
    tape::string(bytes)?.get::<String>()
}

/// Loads a graph from a JSON string. The string may have been saved by [`to_json`] or by another
/// implementation of the stable ABI.
///
/// The memory that this allocates is bounded by a multiple of the length of `text`.
///
/// # Errors
/// Returns `ValueError` for JSON that is not a valid graph, `RuntimeError` for an unknown type, `TypeError` for a field
/// that is missing or has a value of another type; the error of a hook that a type has registered. The message contains
/// the location in the JSON.
pub fn from_json(text: &str, options: &LoadOptions) -> Result<Any> {
    load::load(&parse::parse(text.as_bytes())?, options.unknown_fields)
}

/// Declares that the type with the key `old` now has the key `new`, so that files with the old key can be loaded.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn alias_type(old: &str, new: &str) -> Result<()> {
    kept::alias_type(old, new)
}

/// Declares that the field `old` of the type `type_key` and of its derived types is now called `new`, so that files
/// with the old name can be loaded.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
pub fn alias_field(type_key: &str, old: &str, new: &str) -> Result<()> {
    kept::alias_field(type_key, old, new)
}

// ---- For other languages

fn without_tag(metadata: Any) -> SaveOptions {
    SaveOptions { metadata: Some(metadata).filter(|metadata| !metadata.is_none()), tag: false, cycles: false }
}

/// Saves a value and all that it refers to as a JSON value, which consists of Maps and Arrays. If
/// `metadata` is not None, it is saved together with the value.
#[register("ffi.ToJSONGraph")]
fn to_json_graph(value: Any, metadata: Any) -> Result<Any> {
    let mut sink = sink::Value::new()?;
    let saved = save::save(&mut sink, &value, false)?;
    sink.finish(saved.root, without_tag(metadata).metadata.as_ref())
}

/// Saves a value and all that it refers to as a JSON string. If `metadata` is not None, it is saved
/// together with the value. Unlike `anyfn.save_json`, this function adds no record of the format.
#[register("ffi.ToJSONGraphString")]
fn to_json_graph_string(value: Any, metadata: Any) -> Result<String> {
    to_json(&value, &without_tag(metadata))
}

/// Loads a graph from a JSON value that `ffi.ToJSONGraph` has returned.
#[register("ffi.FromJSONGraph")]
fn from_json_graph(value: Any) -> Result<Any> {
    load::load(&value::to_tape(&value)?, UnknownFields::Keep)
}

/// Loads a graph from a JSON string that `ffi.ToJSONGraphString` has returned.
#[register("ffi.FromJSONGraphString")]
fn from_json_graph_string(text: String) -> Result<Any> {
    load::load(&parse::parse(text.as_bytes())?, UnknownFields::Keep)
}

/// Parses JSON. Returns a JSON object as a Map and a JSON array as an Array.
#[register("ffi.json.Parse")]
fn json_parse(json_str: String) -> Result<Any> {
    parse::parse(json_str.as_bytes())?.to_any(0)
}

/// Formats a JSON value as a string. If `indent` is given and not 0, the string has several lines, indented by `indent`
/// spaces for each level of nesting.
#[register("ffi.json.Stringify")]
fn json_stringify(value: Any, indent: Option<i64>) -> Result<String> {
    let mut out = Vec::new();
    value::write(&mut out, &value, indent.unwrap_or(0))?;
    text_of(&out)
}

/// Saves a graph, that is, a value and all that it refers to, as a JSON string that also records its format
/// and version.
#[register("anyfn.save_json", blocking)]
fn save_json(value: Any, metadata: Option<Any>) -> Result<String> {
    to_json(&value, &SaveOptions { metadata, ..SaveOptions::default() })
}

/// Loads JSON that `anyfn.save_json` has saved. `unknown_fields` selects the treatment of fields in the JSON that a
/// type does not have: "keep", "drop" or "error".
#[register("anyfn.load_json", blocking)]
fn load_json(text: String, unknown_fields: &str) -> Result<Any> {
    load::load(&parse::parse(text.as_bytes())?, UnknownFields::of(unknown_fields)?)
}

/// Returns the metadata of a saved graph, without loading the graph.
#[register("anyfn.json_metadata")]
fn json_metadata(text: String) -> Result<Any> {
    let tape = parse::parse(text.as_bytes())?;
    match (tape.kind(0), tape.get(0, "metadata")) {
        (tape::TokenKind::Object, Some(metadata)) => tape.to_any(metadata),
        (tape::TokenKind::Object, None) => Any::new(Map::<Any, Any>::new()),
        _ => Err(Error::new("ValueError", "Invalid JSON Object Graph, expected an object")),
    }
}

/// Declares that the type `old` has been renamed to `new`.
#[register("anyfn.alias_type")]
fn register_type_alias(old: &str, new: &str) -> Result<()> {
    alias_type(old, new)
}

/// Declares that the field `old` of the type `type_key` and of its derived types has been renamed to `new`.
#[register("anyfn.alias_field")]
fn register_field_alias(type_key: &str, old: &str, new: &str) -> Result<()> {
    alias_field(type_key, old, new)
}
