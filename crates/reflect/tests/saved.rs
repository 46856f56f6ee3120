//! Tests loading the saved files of `conformance/saved`, both intact and damaged.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::path::Path;

use anyfn::{Any, Array, Dict, List, Map, ObjectRef, PackedFunc};
use anyfn_core as _;
use anyfn_random::Random;
use anyfn_reflect::json::{
    LoadOptions, SaveOptions, UnknownFields, alias_field, alias_type, from_json, to_json,
};

/// Allocator that counts the bytes that the current thread has allocated.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(size: isize) {
    HELD.set(HELD.get() + size);
    PEAK.set(PEAK.get().max(HELD.get()));
}

// SAFETY: all calls are passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's guarantees are those that the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's guarantees are those that the system's allocator requires.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Maximum number of bytes that loading may allocate per byte of the file. A node of some 25 bytes may become
/// an object with several fields. If loading the nodes in the order of the file fails, all objects are
/// created a second time in another order.
const FACTOR: usize = 64;

fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/saved");
    let mut files: Vec<(String, String)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    assert!(files.len() >= 8);
    files
}

/// Defines a type at run time. Each entry of `fields` consists of the name, schema and default of a field.
fn define(key: &str, fields: &[(&str, &str, Option<f64>)]) {
    let fields = fields.iter().map(|(name, schema, default)| {
        let mut pairs = vec![
            (Any::new("name").unwrap(), Any::new(*name).unwrap()),
            (Any::new("type").unwrap(), Any::new(*schema).unwrap()),
            (Any::new("flags").unwrap(), Any::new(1).unwrap()),
        ];
        if let Some(default) = default {
            pairs.push((Any::new("default").unwrap(), Any::new(*default).unwrap()));
        }
        Map::<Any, Any>::from_vec(pairs).unwrap()
    });
    let fields = Array::<Any>::try_from_iter(fields).unwrap();
    let define = anyfn::registry::get("ffi.TypeDefine").unwrap();
    define.call((key, Any::NONE, fields, Map::<Any, Any>::new())).unwrap();
}

fn define_all() {
    let (any, float, text) = (r#"{"type":"Any"}"#, r#"{"type":"float"}"#, r#"{"type":"ffi.String"}"#);
    let (int, bool) = (r#"{"type":"int"}"#, r#"{"type":"bool"}"#);
    define("saved.Point", &[("x", float, None), ("y", float, None)]);
    let line = [("start", any, None), ("end", any, None), ("label", text, None), ("width", float, Some(1.25))];
    define("saved.Line", &line);
    define("saved.Shape", &[("points", any, None), ("closed", bool, None)]);
    define("saved.Node", &[("name", text, None), ("next", any, None)]);
    define("testing.TestIntPair", &[("a", int, None), ("b", int, None)]);
    alias_type("saved.OldPoint", "saved.Point").unwrap();
    alias_field("saved.Line", "begin", "start").unwrap();
}

fn load(text: &str) -> anyfn::Result<Any> {
    from_json(text, &LoadOptions::default())
}

fn object(value: &Any) -> &ObjectRef {
    value.as_object().unwrap()
}

#[test]
fn every_file_is_loaded() {
    define_all();
    for (name, text) in files() {
        let value = load(&text).unwrap_or_else(|error| panic!("{name}: {}", error.message()));
        let saved = to_json(&value, &SaveOptions::default()).unwrap();
        let again = load(&saved).unwrap();
        assert_eq!(*saved, *to_json(&again, &SaveOptions::default()).unwrap(), "{name}");
        match name.as_str() {
            "added-field" => assert_eq!(object(&value).get_field("width").unwrap().get::<f64>().unwrap(), 1.25),
            "renamed-field" => {
                let line = value.get::<List>().unwrap().get_any(0).unwrap();
                let start = object(&line).get_field("start").unwrap();
                assert_eq!(object(&start).get_field("y").unwrap().get::<f64>().unwrap(), -2.0);
            }
            "renamed-type" => {
                let points = value.get::<Array>().unwrap();
                assert!(points.as_slice().iter().all(|point| point.type_key() == "saved.Point"));
            }
            "removed-field" => {
                assert!(saved.contains("\"color\":255") && saved.contains("\"note\":4"), "{saved}")
            }
            "cycle" => {
                let root = value.get::<Dict>().unwrap();
                let inner = root.get_any("self").unwrap().unwrap();
                assert!(object(&inner).ptr_eq(root.as_object()));
            }
            _ => {}
        }
        release(value);
        release(again);
    }
}

#[test]
fn unknown_fields_go_when_their_object_goes() {
    define_all();
    let (_, text) = files().into_iter().find(|(name, _)| name == "removed-field").unwrap();
    let before = HELD.get();
    for _ in 0..500 {
        drop(load(&text).unwrap());
    }
    // The fields of the last rounds remain, and memory that is allocated only once.
    assert!(HELD.get() - before < 200_000, "{} bytes are left", HELD.get() - before);
    let options = |unknown_fields| {
        let mut options = LoadOptions::default();
        options.unknown_fields = unknown_fields;
        options
    };
    assert!(from_json(&text, &options(UnknownFields::Drop)).is_ok());
    let error = from_json(&text, &options(UnknownFields::Refuse)).unwrap_err();
    assert!(
        error.message().starts_with("Type `saved.Shape` has no field `color`, at nodes[5].data.color: line 1")
    );
}

/// Tests that objects are saved and loaded by the hooks of their types, whether the hooks are packed
/// functions or native functions.
#[test]
fn functions_of_types() {
    define("saved.Hooked", &[("x", r#"{"type":"Any"}"#, None)]);
    let index = anyfn::type_index_of("saved.Hooked").unwrap();
    let to = PackedFunc::new(|args| {
        let value = args.get::<ObjectRef>(0)?.get_field("x")?;
        Any::new(Map::<Any, Any>::try_from_iter([("twice", 2 * value.get::<i64>()?)])?)
    });
    set_attribute("__data_to_json__", index, &Any::from(to.into_object()));
    // SAFETY: the function has the type that the attribute requires.
    let native = unsafe { anyfn::OpaquePtr::from_ptr(halved as *mut core::ffi::c_void) };
    set_attribute("__data_from_json__", index, &Any::new(native).unwrap());
    let make = anyfn::reflection::TypeInfo::from_index(index).unwrap();
    let value = make.make().unwrap();
    value.set_field("x", 21).unwrap();
    let text = to_json(&value.into(), &SaveOptions::default()).unwrap();
    assert!(text.contains(r#"{"type":"saved.Hooked","data":{"twice":42}}"#), "{text}");
    assert_eq!(object(&load(&text).unwrap()).get_field("x").unwrap().get::<i64>().unwrap(), 21);
    let error = load(&text.replace("42", "43")).unwrap_err();
    assert!(error.message().starts_with("43 is odd, at nodes[0].data: line 1 column"), "{}", error.message());
}

/// Native function that is registered as a hook for loading. It returns an error object on failure.
unsafe extern "C" fn halved(value: anyfn::abi::TVMFFIAny) -> anyfn::abi::TVMFFIAny {
    // SAFETY: the value is borrowed for the call.
    let value = unsafe { anyfn::AnyView::from_raw(value) };
    let made = || {
        let twice = value.get::<Map>()?.get_any("twice")?.unwrap().get::<i64>()?;
        if twice % 2 != 0 {
            anyfn::bail!("ValueError", "{twice} is odd");
        }
        let object = anyfn::reflection::TypeInfo::from_key("saved.Hooked").unwrap().make()?;
        object.set_field("x", twice / 2)?;
        Ok(Any::from(object))
    };
    made().unwrap_or_else(|error: anyfn::Error| error.into_object().into()).into_raw()
}

fn set_attribute(name: &str, index: i32, value: &Any) {
    let name = anyfn::abi::TVMFFIByteArray::from_slice(name.as_bytes());
    // SAFETY: all arguments are borrowed for the call.
    let code = unsafe { anyfn::abi::TVMFFITypeRegisterAttr(index, &name, value.as_raw()) };
    assert_eq!(code, 0);
}

#[test]
fn a_type_can_refuse_unknown_fields() {
    define("saved.Refusing", &[("x", r#"{"type":"Any"}"#, None)]);
    let index = anyfn::type_index_of("saved.Refusing").unwrap();
    set_attribute("__json_unknown_fields__", index, &Any::new("error").unwrap());
    let text = r#"{"root_index":1,"nodes":[{"type":"None"},{"type":"saved.Refusing","data":{"x":0,"z":1.5}}]}"#;
    let error = load(text).unwrap_err();
    assert_eq!(
        error.message(),
        "Type `saved.Refusing` has no field `z`; did you mean `x`?, at nodes[1].data.z: line 1 column 81 (char 80)"
    );
}

/// Returns a damaged copy of a JSON file: bytes, numbers or words are changed, or parts are removed or
/// duplicated.
fn damage(random: &mut Random, text: &[u8]) -> Vec<u8> {
    const WORDS: [&str; 24] = [
        "0",
        "-1",
        "1",
        "2",
        "7",
        "1e999",
        "1e3",
        "4294967296",
        "9223372036854775807",
        "-9223372036854775809",
        "null",
        "true",
        "[]",
        "{}",
        "\"\"",
        "[0,0]",
        "{\"x\":0}",
        "\"int\"",
        "\"ffi.List\"",
        "\"ffi.Dict\"",
        "\"ffi.Array\"",
        "\"ffi.Map\"",
        "\"ffi.Tensor\"",
        "\"saved.Shape\"",
    ];
    let mut text = text.to_vec();
    for _ in 0..1 + random.below(3) * random.below(2) {
        if text.is_empty() {
            return text;
        }
        let at = random.below(text.len());
        match random.below(14) {
            0 => text[at] = random.below(256) as u8,
            1 => text[at] ^= 1 << random.below(8),
            2 => drop(text.splice(at..(at + random.below(40)).min(text.len()), [])),
            3 => text.truncate(at),
            4 => {
                let end = (at + random.below(80)).min(text.len());
                let part = text[at..end].to_vec();
                let to = random.below(text.len());
                text.splice(to..to, part);
            }
            // A number or a string becomes another value.
            _ => {
                let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"\"-._".contains(byte);
                let from = text[..at].iter().rposition(|byte| !is_part(byte)).map_or(0, |before| before + 1);
                let end = text[at..].iter().position(|byte| !is_part(byte)).map_or(text.len(), |len| at + len);
                let word = WORDS[random.below(WORDS.len())].bytes();
                text.splice(from..end.max(from), word);
            }
        }
    }
    text
}

/// Breaks the cycles in a value, so that its objects are freed.
fn release(value: Any) {
    let mut left = vec![value];
    let mut steps = 0;
    while let Some(value) = left.pop() {
        steps += 1;
        if steps > 10_000 {
            return;
        }
        if let Ok(list) = value.get::<List>() {
            left.extend(list.snapshot());
            list.clear();
        } else if let Ok(dict) = value.get::<Dict>() {
            left.extend(dict.snapshot().into_iter().flat_map(|(key, value)| [key, value]));
            let _ = dict.clear();
        } else if let Ok(array) = value.get::<Array>() {
            left.extend(array.as_slice().iter().cloned());
        } else if let Ok(map) = value.get::<Map>() {
            left.extend(map.iter_any().flat_map(|(key, value)| [key.clone(), value.clone()]));
        } else if value.type_key() == "saved.Node" {
            let node = object(&value);
            left.push(node.get_field("next").unwrap());
            let _ = node.set_field("next", Any::NONE);
        } else if value.type_key().starts_with("saved.") {
            for field in anyfn::reflection::TypeInfo::of(object(&value)).fields() {
                left.push(object(&value).get_field(field.name()).unwrap());
            }
        }
    }
}

/// Returns true if an error message ends with a location in the file `text`, or concerns the file as a whole.
fn is_located(message: &str, text: &str) -> bool {
    let whole = ["Invalid JSON Object Graph, expected ", "the file has format "];
    if whole.iter().any(|start| message.starts_with(start)) {
        return true;
    }
    let number =
        message.rsplit_once(" (char ").and_then(|(_, end)| end.strip_suffix(')')?.parse::<usize>().ok());
    let Some(before) = number.and_then(|number| text.as_bytes().get(..number)) else { return false };
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
    message.ends_with(&format!(": line {line} column {column} (char {})", before.len()))
}

/// Tests that loading a damaged file returns a value or an error with a location, and that the memory
/// use is bounded by a multiple of the length of the file. An error that concerns the file as a whole
/// needs no location. Loads at least 2,000 damaged files, and continues until `ANYFN_FUZZ_SECONDS`
/// have passed. Each loaded value must survive saving and loading.
#[test]
fn reads_any_file() {
    define_all();
    let mut random = Random::from_env();
    let files = files();
    let (mut loaded, mut refused) = (0, 0);
    for _ in anyfn_random::rounds(2000, 0) {
        let whole = &files[random.below(files.len())].1;
        let text = damage(&mut random, whole.as_bytes());
        // Bytes that are not UTF-8 never reach the reader.
        let text = String::from_utf8_lossy(&text);
        PEAK.set(HELD.get());
        let before = HELD.get();
        let result = load(&text);
        let peak = (PEAK.get() - before) as usize;
        assert!(peak < FACTOR * text.len() + 100_000, "{peak} bytes for {}: {text}", text.len());
        match result {
            Err(error) => {
                refused += 1;
                assert!(!error.message().contains("is not loaded yet"), "{}: {text}", error.message());
                assert!(is_located(error.message(), &text), "{}: {text}", error.message());
                assert_ne!(error.kind(), "InternalError", "{}: {text}", error.message());
            }
            Ok(value) => {
                loaded += 1;
                let saved = to_json(&value, &SaveOptions::default()).unwrap();
                let again =
                    load(&saved).unwrap_or_else(|error| panic!("{}: {saved} of {text}", error.message()));
                assert_eq!(*to_json(&again, &SaveOptions::default()).unwrap(), *saved, "{text}");
                release(value);
                release(again);
            }
        }
    }
    eprintln!("{loaded} files loaded, {refused} refused");
    assert!(loaded > 30 && refused > 500, "{loaded} and {refused}");
}
