//! Tests of containers as arguments, results and elements of typed functions.

use std::collections::{BTreeMap, HashMap};

use anyfn_core as _;

use anyfn::{Any, Array, Dict, FromArg, IntoAny, List, Map, PackedFunc, Shape, TypedPackedFunc};

fn echo<T: FromArg + IntoAny + for<'a> FromArg<Arg<'a> = T> + 'static>() -> PackedFunc {
    TypedPackedFunc::from_fn(|value: T| value).into()
}

#[track_caller]
fn check_error<T: FromArg + IntoAny + for<'a> FromArg<Arg<'a> = T> + 'static>(value: Any, expected: &str) {
    let error = echo::<T>().call((value,)).unwrap_err();
    let text = format!("{}: {}", error.kind(), error.message());
    assert!(text.ends_with(expected), "{text}\nshould end with\n{expected}");
}

fn any(value: impl IntoAny) -> Any {
    value.into_any().unwrap()
}

#[test]
fn rust_collections_go_both_ways() {
    assert_eq!(any(vec![1, 2]).type_key(), "ffi.Array");
    assert_eq!(any(vec![1, 2]).get::<Vec<i64>>().unwrap(), [1, 2]);
    assert_eq!(any(&[1i64, 2][..]).get::<[i32; 2]>().unwrap(), [1, 2]);
    assert_eq!(any((1, "a", 2.5)).get::<(i64, String, f64)>().unwrap(), (1, "a".to_string(), 2.5));
    let map = HashMap::from([("a".to_string(), vec![1]), ("b".to_string(), vec![])]);
    assert_eq!(any(map.clone()).get::<HashMap<String, Vec<i64>>>().unwrap(), map);
    let map = BTreeMap::from([(2, "b".to_string()), (1, "a".to_string())]);
    assert_eq!(any(map.clone()).get::<Map<i64, String>>().unwrap().keys().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(any(map.clone()).get::<BTreeMap<i64, String>>().unwrap(), map);
    assert_eq!(&any(vec![2, 3]).get::<Shape>().unwrap()[..], [2, 3]);
    assert_eq!(any(vec![Some(1), None]).get::<Vec<Option<i64>>>().unwrap(), [Some(1), None]);
    assert_eq!(
        any(vec!["long enough for an object"]).get::<Array<&str>>().unwrap().get(0).unwrap(),
        "long enough for an object"
    );
}

#[test]
fn calls_take_containers_by_value_and_by_reference() {
    let sum = TypedPackedFunc::from_fn(|values: Vec<i64>| values.iter().sum::<i64>());
    let array: Array<i64> = Array::from(vec![1, 2, 3]);
    let packed = sum.as_packed();
    assert_eq!(packed.call((&array,)).unwrap().get::<i64>().unwrap(), 6);
    assert_eq!(packed.call((vec![4, 5],)).unwrap().get::<i64>().unwrap(), 9);
    assert_eq!(packed.call((&[1i64, 2][..],)).unwrap().get::<i64>().unwrap(), 3);
    assert_eq!(packed.call((List::<i64>::from(vec![7]),)).unwrap().get::<i64>().unwrap(), 7);
    assert_eq!(packed.call(([1, 1],)).unwrap().get::<i64>().unwrap(), 2);
    assert_eq!(packed.call(((1, 2),)).unwrap().get::<i64>().unwrap(), 3);
}

#[test]
fn the_other_kind_is_copied_and_the_same_kind_is_not() {
    let (array, list) = (any(vec![1, 2]), any(List::<i64>::from(vec![1, 2])));
    let same = |a: &Any, b: &Any| a.as_object().unwrap().ptr_eq(b.as_object().unwrap());
    assert!(same(&any(array.get::<Array<i64>>().unwrap()), &array));
    assert!(same(&any(list.get::<List<i64>>().unwrap()), &list));
    assert_eq!(list.get::<Array<i64>>().unwrap().as_slice(), array.get::<Array>().unwrap().as_slice());
    assert_eq!(array.get::<List<i64>>().unwrap(), list.get::<List>().unwrap());
    let (map, dict) = (Map::<i64, i64>::from_iter([(1, 2)]), Dict::<i64, i64>::from_iter([(1, 2)]));
    assert_eq!(any(dict.clone()).get::<Map<i64, i64>>().unwrap(), map);
    assert_eq!(any(map).get::<Dict<i64, i64>>().unwrap(), dict);
}

#[test]
fn errors_say_where() {
    check_error::<Array<i64>>(
        any((1, "x")),
        "Expected `Array<int>` but got `Array whose element 1 is str`, at `#0[1]`",
    );
    check_error::<Vec<i64>>(
        any((1, "x")),
        "Expected `Array<int>` but got `Array whose element 1 is str`, at `#0[1]`",
    );
    check_error::<List<i64>>(
        any(("x",)),
        "Expected `List<int>` but got `List whose element 0 is str`, at `#0[0]`",
    );
    check_error::<Array<Array<i64>>>(
        any((vec![1], ("a", 1))),
        "Expected `Array<Array<int>>` but got `Array whose element 1 is Array whose element 0 is str`, at `#0[1][0]`",
    );
    check_error::<Map<String, i64>>(
        any(Map::<Any, Any>::try_from_iter([("a", "x")]).unwrap()),
        "Expected `Map<str, int>` but got `Map with a value that is str`, at `#0[\"a\"]`",
    );
    check_error::<Map<String, i64>>(
        any(Map::<Any, Any>::try_from_iter([(1, 2)]).unwrap()),
        "Expected `Map<str, int>` but got `Map with a key that is int`, at `#0.key`",
    );
    check_error::<Array<i64>>(any(1), "Expected `Array<int>` but got `int`");
    check_error::<(i64, i64)>(any((1, 2, 3)), "Expected `Tuple<int, int>` but got `Array[size=3]`");
    check_error::<Vec<u8>>(
        any((1, 300)),
        "Expected `Array<int>` but got `Array whose element 1 is int 300`, at `#0[1]`",
    );
}

#[test]
fn errors_carry_their_detail() {
    let error = echo::<Map<String, Vec<i64>>>()
        .call((Map::<Any, Any>::try_from_iter([("key", (1, "x"))]).unwrap(),))
        .unwrap_err();
    let detail = Map::<String, String>::try_from_object(error.context().unwrap()).unwrap();
    let pairs: Vec<(String, String)> = detail.iter().collect();
    let text = |(k, v): (&str, &str)| (k.to_string(), v.to_string());
    assert_eq!(
        pairs,
        [
            ("function", ""),
            ("argument", "0"),
            ("path", "[\"key\"][1]"),
            ("expected", "Map<str, Array<int>>"),
            ("got", "Map with a value that is Array whose element 1 is str"),
        ]
        .map(text)
    );
    assert_eq!(error.backtrace(), "", "a line of the callee would say nothing");
}

#[test]
fn elements_that_others_change_are_checked_when_read() {
    let list: List<i64> = List::from(vec![1, 2]);
    let other = List::<Any>::try_from_object(list.as_object().clone()).unwrap();
    other.set(1, any("x")).unwrap();
    assert_eq!(list.get(0).unwrap(), 1);
    assert_eq!(list.get(1).unwrap_err().kind(), "TypeError");
    assert!(List::<i64>::try_from_object(list.into_object()).is_err());
}

#[test]
fn sizes_that_cannot_be_are_errors() {
    assert_eq!(Array::<Any>::with_capacity(usize::MAX / 8).unwrap_err().kind(), "MemoryError");
    assert_eq!(List::<Any>::new().reserve(1 << 60).unwrap_err().kind(), "MemoryError");
}

#[test]
fn integers_of_any_size_go_both_ways() {
    let list = List::<u64>::try_from_iter([0, 1 << 63, u64::MAX]).unwrap();
    assert_eq!(list.get(1).unwrap(), 1 << 63);
    assert_eq!(any(list).get::<Vec<u64>>().unwrap(), [0, 1 << 63, u64::MAX]);
    for value in [0, 1, -1, i128::from(i64::MAX) + 1, i128::from(i64::MIN) - 1, i128::MAX, i128::MIN] {
        assert_eq!(any(value).get::<i128>().unwrap(), value);
        assert_eq!(any(value).get::<f64>().unwrap(), value as f64);
        assert_eq!(any(value), any(value));
    }
    for value in [0, u128::from(u64::MAX), u128::MAX, 1 << 127] {
        assert_eq!(any(value).get::<u128>().unwrap(), value);
        assert_eq!(any(value).get::<f64>().unwrap(), value as f64);
    }
    // One above the middle between two floats, so the lowest bit decides how to round.
    assert_eq!(any((1u128 << 100) + (1 << 47) + 1).get::<f64>().unwrap(), ((1u128 << 100) + (1 << 48)) as f64);
    assert_eq!(any(u64::MAX).type_key(), "ffi.BigInt");
    assert_eq!(format!("{:?}", any(u64::MAX)), "int 18446744073709551615");
    check_error::<i64>(
        any(1u64 << 63),
        "Expected `i64 (-9223372036854775808 to 9223372036854775807)` but got `int 9223372036854775808`",
    );
    check_error::<u64>(any(-1i128), "Expected `u64 (0 to 18446744073709551615)` but got `int -1`");
    check_error::<i128>(any(u128::MAX), "but got `int 340282366920938463463374607431768211455`");
    check_error::<u128>(any(i128::MIN), "but got `int -170141183460469231731687303715884105728`");
    check_error::<f32>(
        any(u128::MAX),
        "Expected `float` but got `int 340282366920938463463374607431768211455`",
    );
    check_error::<String>(any(u64::MAX), "Expected `str` but got `int`");
}

#[test]
fn large_integers_are_map_keys_by_value() {
    let map: Map<i128, i64> =
        (0..100i64).map(|i| Ok((i128::MAX - i128::from(i), i))).collect::<anyfn::Result<_>>().unwrap();
    for i in 0..100i64 {
        assert_eq!(map.get(i128::MAX - i128::from(i)).unwrap(), Some(i));
    }
    assert_eq!(map.get(i128::MIN).unwrap(), None);
}
