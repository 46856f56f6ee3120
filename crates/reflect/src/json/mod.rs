//! Saving and loading: any graph of values as JSON, in the form of the ABI.
//!
//! A graph is a list of *nodes*, one for each value that is reached, each with the key of its type and its data; what a
//! node holds is told by indices into that list, so a value that is reached twice is saved once and is one value again
//! when it is loaded. `docs/saving.md` describes the form.
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

/// Number of the form that is written; forms up to this one are read.
const FORMAT: i64 = 1;

/// How a graph is saved.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SaveOptions {
    /// A Map from strings to JSON values, to be saved along.
    pub metadata: Option<Any>,
    /// Whether the text tells format and version, and how values stand in it, under the key `anyfn` of the metadata.
    /// Without that, fields of types that a reader does not know are lost there.
    pub tag: bool,
    /// Whether a value may be reached from itself; else that is an error, as a text of this kind cannot be read
    /// everywhere.
    pub cycles: bool,
}

impl Default for SaveOptions {
    fn default() -> SaveOptions {
        SaveOptions { metadata: None, tag: true, cycles: true }
    }
}

/// What happens to a field of a saved object that its type does not have by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnknownFields {
    /// It is kept beside the object, and saved again with it.
    #[default]
    Keep,
    /// It is left out.
    Drop,
    /// It is an error.
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

/// How a graph is loaded.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LoadOptions {
    /// What happens to fields that a type does not have by now. A type can ask for more by its attribute
    /// `__json_unknown_fields__`: `"drop"` or `"error"`.
    pub unknown_fields: UnknownFields,
}

/// Saves a value and all that it reaches as a JSON text.
///
/// # Errors
/// `TypeError` for an object that cannot be made again, such as a function; `ValueError` for metadata that is no JSON,
/// for text that is not UTF-8, and for cycles, if they are not wanted; those of types' own functions.
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

/// The metadata with what the graph tells of itself.
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

/// Text that is UTF-8, as a value.
fn text_of(bytes: &[u8]) -> Result<String> {
    tape::string(bytes)?.get::<String>()
}

/// Loads what [`to_json`] or another runtime of the ABI has saved.
///
/// The memory that a text can make this take is bounded by a multiple of its length.
///
/// # Errors
/// `ValueError` for text that is no such graph, `RuntimeError` for an unknown type, `TypeError` for a field that is
/// missing or has a value of another type; those of types' own functions. They say where in the text.
pub fn from_json(text: &str, options: &LoadOptions) -> Result<Any> {
    load::load(&parse::parse(text.as_bytes())?, options.unknown_fields)
}

/// Says that a type has another key by now; files that name the old one are read.
///
/// # Errors
/// `MemoryError` when memory is short.
pub fn alias_type(old: &str, new: &str) -> Result<()> {
    kept::alias_type(old, new)
}

/// Says that a field of a type, and of those derived from it, has another name by now; files that name the old one are
/// read.
///
/// # Errors
/// `MemoryError` when memory is short.
pub fn alias_field(type_key: &str, old: &str, new: &str) -> Result<()> {
    kept::alias_field(type_key, old, new)
}

// ---- For other languages

fn without_tag(metadata: Any) -> SaveOptions {
    SaveOptions { metadata: Some(metadata).filter(|metadata| !metadata.is_none()), tag: false, cycles: false }
}

/// A graph as a JSON value: Maps and Arrays.
#[register("ffi.ToJSONGraph")]
fn to_json_graph(value: Any, metadata: Any) -> Result<Any> {
    let mut sink = sink::Value::new()?;
    let saved = save::save(&mut sink, &value, false)?;
    sink.finish(saved.root, without_tag(metadata).metadata.as_ref())
}

/// A graph as a JSON text, with nothing added.
#[register("ffi.ToJSONGraphString")]
fn to_json_graph_string(value: Any, metadata: Any) -> Result<String> {
    to_json(&value, &without_tag(metadata))
}

/// The graph of a JSON value.
#[register("ffi.FromJSONGraph")]
fn from_json_graph(value: Any) -> Result<Any> {
    load::load(&value::to_tape(&value)?, UnknownFields::Keep)
}

/// The graph of a JSON text.
#[register("ffi.FromJSONGraphString")]
fn from_json_graph_string(text: String) -> Result<Any> {
    load::load(&parse::parse(text.as_bytes())?, UnknownFields::Keep)
}

/// The value of a JSON text: Maps and Arrays.
#[register("ffi.json.Parse")]
fn json_parse(json_str: String) -> Result<Any> {
    parse::parse(json_str.as_bytes())?.to_any(0)
}

/// A JSON value as text; with an indent on many lines.
#[register("ffi.json.Stringify")]
fn json_stringify(value: Any, indent: Option<i64>) -> Result<String> {
    let mut out = Vec::new();
    value::write(&mut out, &value, indent.unwrap_or(0))?;
    text_of(&out)
}

/// Saves a value and all that it reaches as a JSON text that tells format and version.
#[register("anyfn.save_json", blocking)]
fn save_json(value: Any, metadata: Option<Any>) -> Result<String> {
    to_json(&value, &SaveOptions { metadata, ..SaveOptions::default() })
}

/// Loads what `anyfn.save_json` has saved. `unknown_fields` says what happens to fields that a type does not have by now:
/// "keep", "drop" or "error".
#[register("anyfn.load_json", blocking)]
fn load_json(text: String, unknown_fields: &str) -> Result<Any> {
    load::load(&parse::parse(text.as_bytes())?, UnknownFields::of(unknown_fields)?)
}

/// What a saved graph tells of itself: its metadata, without loading anything.
#[register("anyfn.json_metadata")]
fn json_metadata(text: String) -> Result<Any> {
    let tape = parse::parse(text.as_bytes())?;
    match (tape.kind(0), tape.get(0, "metadata")) {
        (tape::Kind::Object, Some(metadata)) => tape.to_any(metadata),
        (tape::Kind::Object, None) => Any::new(Map::<Any, Any>::new()),
        _ => Err(Error::new("ValueError", "Invalid JSON Object Graph, expected an object")),
    }
}

/// Says that the type `old` is called `new` by now.
#[register("anyfn.alias_type")]
fn register_type_alias(old: &str, new: &str) -> Result<()> {
    alias_type(old, new)
}

/// Says that the field `old` of a type is called `new` by now.
#[register("anyfn.alias_field")]
fn register_field_alias(type_key: &str, old: &str, new: &str) -> Result<()> {
    alias_field(type_key, old, new)
}
