//! Tests that the crate works together with the Rust standard library: standard traits, the
//! operator `?`, and names that both define.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::convert::Infallible;
use std::error::Error as StdError;
use std::ffi::CString;
use std::fmt::Write as _;
use std::num::ParseIntError;
use std::path::Path;
use std::{fmt, io};

use anyfn::abi::{DLDataType, DLDevice, kDLCUDA, kDLCUDAHost, kDLCUDAManaged};
use anyfn::{
    Any, Array, Bytes, DType, Device, Dict, Error, FromArg, List, Map, Object, ObjectRef, PackedFunc, Ref,
    Shape, Tensor, TensorView, TypedPackedFunc, error_kind, registry,
};
use anyfn_core as _;

#[test]
fn the_source_of_an_error_is_its_cause() {
    let first = Error::new("KeyError", "port");
    let second = Error::new("ValueError", "incomplete settings").with_cause(&first);
    let third = Error::new("RuntimeError", "cannot start").with_cause(&second);
    let chain: Vec<String> =
        std::iter::successors(Some(&third as &dyn StdError), |error| StdError::source(*error))
            .map(ToString::to_string)
            .collect();
    assert_eq!(chain, ["RuntimeError: cannot start", "ValueError: incomplete settings", "KeyError: port"]);
    assert!(first.source().is_none());

    // A source is an error of this crate, with everything that it carries.
    let source = third.source().and_then(|source| source.downcast_ref::<Error>()).unwrap();
    assert!(source.as_object().ptr_eq(second.as_object()));
    assert_eq!(source.cause().unwrap().kind(), "KeyError");
    assert_eq!(second.as_object().use_count(), 2);

    // Reading the chain changes no reference count, and notes keep the cause.
    let noted = third.with_note("while starting");
    assert_eq!(noted.source().unwrap().to_string(), "ValueError: incomplete settings");
}

#[test]
fn an_error_crosses_a_boxed_error() {
    fn fails() -> Result<(), Box<dyn StdError + Send + Sync>> {
        let inner = Error::new("TypeError", "inner");
        Err(Error::new("ValueError", "outer").with_cause(&inner).into())
    }
    let error = fails().unwrap_err();
    assert_eq!(error.source().unwrap().to_string(), "TypeError: inner");
    assert_eq!(error.downcast::<Error>().unwrap().kind(), "ValueError");
}

#[test]
fn constants_name_the_kinds_that_the_runtime_raises() {
    assert_eq!(registry::get("tests.api.absent").unwrap_err().kind(), error_kind::VALUE_ERROR);
    assert_eq!(Any::NONE.get::<i64>().unwrap_err().kind(), error_kind::TYPE_ERROR);
    assert_eq!(Any::new(256).unwrap().get::<u8>().unwrap_err().kind(), error_kind::OVERFLOW_ERROR);
    let error = anyfn::error!(error_kind::KEY_ERROR, "no key {}", 1);
    assert_eq!((error.kind(), error.message()), ("KeyError", "no key 1"));
}

/// Converts the error of a result with the operator `?`.
fn convert<T, E>(result: Result<T, E>) -> anyfn::Result<T>
where
    Error: From<E>,
{
    Ok(result?)
}

/// Converts the error of a failed result with the operator `?` and returns it as a string.
fn converted<T, E>(result: Result<T, E>) -> String
where
    Error: From<E>,
{
    convert(result).err().expect("an error").to_string()
}

#[test]
fn errors_of_the_standard_library_convert() {
    assert_eq!(converted("x".parse::<i64>()), "ValueError: invalid digit found in string");
    assert_eq!(converted("".parse::<i64>()), "ValueError: cannot parse integer from empty string");
    assert!(converted("300".parse::<u8>()).starts_with("OverflowError: "));
    assert!(converted("-300".parse::<i8>()).starts_with("OverflowError: "));
    assert!(converted(u8::try_from(300_i32)).starts_with("OverflowError: "));
    assert_eq!(converted("x".parse::<f64>()), "ValueError: invalid float literal");
    assert!(converted("x".parse::<bool>()).starts_with("ValueError: "));
    let invalid = b"ab\xff".to_vec();
    assert!(converted(std::str::from_utf8(&invalid)).contains("from index 2"));
    assert!(converted(String::from_utf8(invalid)).starts_with("ValueError: invalid utf-8"));
    assert!(converted(CString::new("a\0b")).starts_with("ValueError: nul byte found"));
    assert!(converted(<[u8; 2]>::try_from(&[1_u8][..])).starts_with("ValueError: "));
    assert!(converted(Vec::<u64>::new().try_reserve(usize::MAX)).starts_with("MemoryError: "));
    let never: Result<i32, Infallible> = Ok(7);
    assert_eq!(convert(never).unwrap(), 7);
}

#[test]
fn a_formatting_error_converts() {
    struct Fails;
    impl fmt::Display for Fails {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            Err(fmt::Error)
        }
    }
    assert!(converted(write!(String::new(), "{Fails}")).starts_with("RuntimeError: "));
}

#[test]
fn the_kind_of_an_io_error_is_that_of_python() {
    let of = |kind: io::ErrorKind| Error::from(io::Error::new(kind, "why")).to_string();
    assert_eq!(of(io::ErrorKind::NotFound), "FileNotFoundError: why");
    assert_eq!(of(io::ErrorKind::AlreadyExists), "FileExistsError: why");
    assert_eq!(of(io::ErrorKind::PermissionDenied), "PermissionError: why");
    assert_eq!(of(io::ErrorKind::BrokenPipe), "ConnectionError: why");
    assert_eq!(of(io::ErrorKind::ConnectionRefused), "ConnectionError: why");
    assert_eq!(of(io::ErrorKind::TimedOut), "TimeoutError: why");
    assert_eq!(of(io::ErrorKind::Interrupted), "InterruptedError: why");
    assert_eq!(of(io::ErrorKind::OutOfMemory), "MemoryError: why");
    assert_eq!(of(io::ErrorKind::Other), "OSError: why");
    assert_eq!(of(io::ErrorKind::UnexpectedEof), "OSError: why");
    let missing = converted(std::fs::read("tests/no such file"));
    assert!(missing.starts_with("FileNotFoundError: "), "{missing}");
}

#[test]
fn an_error_passes_through_an_io_error() {
    let own = Error::new("demo.Kind", "message").with_cause(&Error::new("KeyError", "cause"));
    let back = Error::from(io::Error::other(own.clone()));
    assert!(back.as_object().ptr_eq(own.as_object()));
}

#[test]
fn the_backtrace_begins_where_the_error_is_converted() {
    let line = line!() + 1;
    let error = Error::from("x".parse::<i64>().unwrap_err());
    assert!(error.backtrace().contains(&format!("{}\", line {line}, ", file!())), "{}", error.backtrace());
}

#[test]
fn functions_return_errors_of_the_standard_library() {
    fn parse(text: &str) -> Result<i64, ParseIntError> {
        text.parse()
    }
    let parse = TypedPackedFunc::from_fn(parse);
    assert_eq!(parse.as_packed().call(("12",)).unwrap().get::<i64>().unwrap(), 12);
    let error = parse.as_packed().call(("1x",)).unwrap_err();
    assert_eq!((error.kind(), error.message()), ("ValueError", "invalid digit found in string"));
}

#[test]
fn a_mismatch_is_an_error() {
    let mismatch: Box<dyn StdError> = <&str>::from_arg(&Any::new(1).unwrap().as_view()).unwrap_err().into();
    assert!(mismatch.to_string().starts_with("expected `"), "{mismatch}");
}

#[test]
fn strings_are_made_from_what_std_strings_are_made_from() {
    let owned = "a string that is stored in an object".to_string();
    let string = anyfn::String::from(&owned);
    assert_eq!(string, owned);
    assert_eq!(string, anyfn::String::from(Cow::Borrowed(owned.as_str())));
    assert_eq!(string, owned.parse::<anyfn::String>().unwrap());
    assert_eq!(string, owned.chars().collect::<anyfn::String>());
    assert_eq!(owned.split('t').collect::<anyfn::String>(), owned.replace('t', ""));
    assert_eq!(String::from(string), owned);
    assert_eq!(anyfn::String::from('\u{1f600}'), "\u{1f600}");
    assert_eq!(anyfn::String::default(), "");
    // Comparisons work from both sides.
    let short = anyfn::String::from("x");
    assert_eq!(short, *"x");
    assert_eq!(*"x", short);
    assert_eq!("x", short);
    assert_eq!("x".to_string(), short);
    assert_ne!(short, "y");
}

#[test]
fn strings_are_used_as_std_strings_are_used() {
    fn size(text: impl AsRef<str>) -> usize {
        text.as_ref().len()
    }
    fn sum(bytes: impl AsRef<[u8]>) -> u32 {
        bytes.as_ref().iter().copied().map(u32::from).sum()
    }
    let string = anyfn::String::from("a/b");
    assert_eq!(size(&string), 3);
    assert_eq!(sum(&string), sum("a/b"));
    let path: &Path = string.as_ref();
    assert_eq!(path.parent(), Some(Path::new("a")));

    // Keys of maps are found by `&str`.
    let map = HashMap::from([(string.clone(), 1)]);
    assert_eq!(map.get("a/b"), Some(&1));
    let set = BTreeSet::from([anyfn::String::from("b"), string]);
    assert!(set.contains("a/b") && !set.contains("a"));
}

#[test]
fn bytes_are_made_and_used_as_vectors() {
    let bytes = Bytes::from(vec![1, 2, 3]);
    assert_eq!(bytes, Bytes::from(&[1, 2, 3]));
    assert_eq!(bytes, [1, 2, 3].into_iter().collect::<Bytes>());
    assert_eq!(bytes, [1, 2, 3]);
    assert_eq!(bytes, &[1, 2, 3]);
    assert_eq!(bytes, [1, 2, 3][..]);
    assert_eq!(bytes, &[1, 2, 3][..]);
    assert_eq!(bytes, Vec::from([1, 2, 3]));
    assert!(Bytes::default().is_empty());
    let mut sum = 0;
    for byte in &bytes {
        sum += u32::from(*byte);
    }
    assert_eq!(sum, 6);
    let set = HashSet::from([bytes.clone()]);
    assert!(set.contains(&[1_u8, 2, 3][..]));
    assert_eq!(Vec::from(bytes), [1, 2, 3]);
}

#[test]
fn shapes_are_made_and_used_as_slices() {
    let shape = Shape::from([2, 3]);
    assert_eq!(shape, Shape::from(vec![2, 3]));
    assert_eq!(shape, Shape::from(&[2, 3]));
    assert_eq!(shape, Shape::from(&[2, 3][..]));
    assert_eq!(shape, [2, 3].into_iter().collect::<Shape>());
    assert_eq!(shape, [2, 3]);
    assert_eq!(shape, &[2, 3]);
    assert_eq!(shape, [2, 3][..]);
    assert_eq!(shape, &[2, 3][..]);
    assert_eq!(shape, Vec::from([2, 3]));
    assert_ne!(shape, [2]);
    assert!(Shape::default().is_empty());
    let mut size = 1;
    for extent in &shape {
        size *= extent;
    }
    assert_eq!(size, 6);
    let set = HashSet::from([shape.clone()]);
    assert!(set.contains(&shape) && set.contains(&[2_i64, 3][..]));
    let extents: &[i64] = shape.as_ref();
    assert_eq!(extents, [2, 3]);

    let sizes: &[usize] = &[2, 3];
    assert_eq!(Shape::try_from(sizes).unwrap(), shape);
    let error = Shape::try_from(&[1, usize::MAX][..]).unwrap_err();
    assert_eq!(error.kind(), error_kind::OVERFLOW_ERROR);
}

#[test]
fn data_types_and_devices_are_parsed() {
    assert_eq!(DType::try_from("float32").unwrap(), DType::FLOAT32);
    assert_eq!(DType::try_from("float0x").unwrap_err().kind(), error_kind::VALUE_ERROR);
    assert_eq!(DType::from(DLDataType::from(DType::BOOL)), DType::BOOL);

    let device = |text: &str| text.parse::<Device>().map_err(|error| error.message().to_string());
    assert_eq!(device("cuda:1"), Ok(Device::new(kDLCUDA, 1)));
    assert_eq!(device("cuda_host"), Ok(Device::new(kDLCUDAHost, 0)));
    assert_eq!(device("cuda_managed:12"), Ok(Device::new(kDLCUDAManaged, 12)));
    assert_eq!((device("gpu"), device("host")), (device("cuda:0"), Ok(Device::CPU)));
    for device in ["cpu:0", "rocm_host:1", "ext_dev:2", "oneapi:3", "vpi:2147483647"] {
        assert_eq!(Device::try_from(device).unwrap().to_string(), device);
    }
    assert_eq!(device("cuba:1"), Err("unknown device `cuba`; did you mean `cuda`?".to_string()));
    assert!(
        device("nowhere")
            .unwrap_err()
            .starts_with("unknown device `nowhere`; known device types are cpu, cuda, ")
    );
    for text in ["cuda:", "cuda:-1", "cuda:+1", "cuda:1:2", "cuda:x", "cuda:2147483648"] {
        assert_eq!(device(text), Err(format!("expected a device such as `cuda:1`, got `{text}`")));
    }
    for text in ["", ":1", "CUDA", "cuda "] {
        assert!(device(text).unwrap_err().starts_with("unknown device `"), "{text}");
    }
    assert_eq!(Device::from(DLDevice::from(Device::CPU)), Device::CPU);
}

#[test]
fn tensors_are_made_from_slices() {
    let tensor = Tensor::try_from(&[1.0_f32, 2.0][..]).unwrap();
    assert_eq!(tensor.read::<f32>().unwrap()[..], [1.0, 2.0]);
    assert_eq!(TensorView::from(&tensor).shape(), [2]);
}

#[test]
fn containers_are_made_from_arrays_and_extended() {
    let mut array = Array::from([1_i64, 2]);
    Extend::extend(&mut array, [3, 4]);
    assert_eq!(array.to_vec().unwrap(), [1, 2, 3, 4]);
    let values: &[Any] = array.as_ref();
    assert_eq!(values.len(), 4);

    let mut list = List::from([1_i64]);
    let same = list.clone();
    Extend::extend(&mut list, [2, 3]);
    assert_eq!(same.to_vec().unwrap(), [1, 2, 3]);
    assert_eq!(List::from(&[1_i64, 2, 3][..]), list);

    let mut map = Map::from([("a".to_string(), 1_i64)]);
    Extend::extend(&mut map, [("b".to_string(), 2)]);
    assert_eq!(map, Map::from([("b", 2), ("a", 1)]));

    let mut dict = Dict::from([("a".to_string(), 1_i64)]);
    let same = dict.clone();
    Extend::extend(&mut dict, [("b".to_string(), 2)]);
    assert_eq!(same, Dict::from([("b", 2), ("a", 1)]));

    let (keys, values): (Array<String>, List<i64>) =
        [("x".to_string(), 1), ("y".to_string(), 2)].into_iter().unzip();
    assert_eq!(keys.to_vec().unwrap(), ["x", "y"]);
    assert_eq!(values.to_vec().unwrap(), [1, 2]);
}

#[derive(Object)]
#[object(key = "tests.api.Point")]
struct Point {
    x: i64,
}

#[test]
fn references_are_cast_by_standard_traits() {
    let object = ObjectRef::from(Ref::new(Point { x: 7 }));
    assert_eq!(Ref::<Point>::try_from(object.clone()).unwrap().x, 7);
    let error = Shape::try_from(object).unwrap_err();
    assert_eq!(error.kind(), error_kind::TYPE_ERROR);
    assert!(error.message().contains("tests.api.Point"), "{error}");
    assert_eq!(Any::from(Ref::new(Point { x: 8 })).get::<&Point>().unwrap().x, 8);

    let array = ObjectRef::from(Array::from([1_i64, 2]));
    let same = ObjectRef::from(Array::<i64>::try_from(array.clone()).unwrap());
    assert!(same.ptr_eq(&array));
    assert!(Array::<String>::try_from(array.clone()).unwrap_err().message().contains("at [0]"));
    // A container of the other kind is copied.
    assert_eq!(List::<i64>::try_from(array).unwrap().to_vec().unwrap(), [1, 2]);

    let map = ObjectRef::from(Map::from([("a", 1)]));
    assert_eq!(Dict::<String, i64>::try_from(map).unwrap().get("a").unwrap(), Some(1));
    let function = ObjectRef::from(PackedFunc::new(|args| Any::new(args.len() as i64)));
    assert_eq!(PackedFunc::try_from(function).unwrap().call((1, 2)).unwrap().get::<i64>().unwrap(), 2);
    let error = ObjectRef::from(Error::new("KeyError", "x"));
    assert_eq!(Error::try_from(error).unwrap().kind(), "KeyError");
    let tensor = ObjectRef::from(Tensor::try_from(&[1_u8][..]).unwrap());
    assert_eq!(Tensor::try_from(tensor).unwrap().view().dtype(), DType::UINT8);
}

/// Tests that names of the standard prelude keep their meaning if the prelude of the crate is
/// imported, too.
mod with_the_prelude {
    use anyfn::prelude::*;

    #[derive(Object)]
    #[object(key = "tests.api.Named")]
    struct Named {
        name: anyfn::String,
    }

    #[register("tests.api.lengths")]
    fn lengths(names: Vec<String>) -> Result<Vec<usize>, anyfn::Error> {
        if names.is_empty() {
            bail!("ValueError", "expected names");
        }
        Ok(names.iter().map(String::len).collect())
    }

    #[test]
    fn std_names_keep_their_meaning() {
        let text: String = std::string::String::from("std");
        let result: Result<u8, std::num::ParseIntError> = "7".parse();
        assert!(text.capacity() >= text.len());
        assert_eq!(result, Ok(7));
        let named = Ref::new(Named { name: "a name".into() });
        assert_eq!(named.name, "a name");
        let lengths = global!("tests.api.lengths").unwrap();
        assert_eq!(lengths.call((vec!["a", "bc"],)).unwrap().get::<Vec<i64>>().unwrap(), [1, 2]);
        assert_eq!(lengths.call((Array::<String>::new(),)).unwrap_err().message(), "expected names");
    }
}

#[test]
fn a_list_grows_as_the_items_come_if_their_number_is_a_wrong_hint() {
    struct Endless(std::ops::Range<i64>);
    impl Iterator for Endless {
        type Item = i64;
        fn next(&mut self) -> Option<i64> {
            self.0.next()
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (usize::MAX, None)
        }
    }
    let list: List<i64> = List::try_from_iter(Endless(0..3)).unwrap();
    list.extend(Endless(3..100)).unwrap();
    list.extend([]).unwrap();
    assert_eq!(list.to_vec().unwrap(), (0..100).collect::<Vec<_>>());
}
