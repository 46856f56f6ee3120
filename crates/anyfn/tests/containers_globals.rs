//! Tests of the global functions `ffi.*`, on which frontends build their container classes.

use anyfn_core as _;

use anyfn::{Any, Array, Device, Dict, IntoArgs, List, Map, PackedFunc, Result, Tensor, registry};

fn call(name: &str, args: impl IntoArgs) -> Result<Any> {
    registry::get(name).unwrap().call(args)
}

fn get<T: for<'a> anyfn::FromArg<Arg<'a> = T>>(name: &str, args: impl IntoArgs) -> T {
    call(name, args).unwrap().get::<T>().unwrap()
}

#[track_caller]
fn check_error(name: &str, args: impl IntoArgs, expected: &str) {
    let error = call(name, args).unwrap_err();
    assert_eq!(format!("{}: {}", error.kind(), error.message()), expected);
}

#[test]
fn arrays() {
    let array: Array = get("ffi.Array", (1, "two", 3.5));
    assert_eq!(get::<i64>("ffi.ArraySize", (&array,)), 3);
    assert_eq!(get::<String>("ffi.ArrayGetItem", (&array, 1)), "two");
    assert!(get::<bool>("ffi.ArrayContains", (&array, 3.5)));
    assert!(!get::<bool>("ffi.ArrayContains", (&array, 3)));
    check_error("ffi.ArrayGetItem", (&array, 5), "IndexError: Index 5 out of bounds 3");
    check_error("ffi.ArrayGetItem", (&array, -1), "IndexError: Index -1 out of bounds 3");
    check_error(
        "ffi.ArrayGetItem",
        (&List::<Any>::new(), 0),
        "TypeError: Mismatched type on argument #0 when calling: `ffi.ArrayGetItem(0: Array, 1: int) -> Any`. \
         Expected `Array` but got `List`",
    );
}

#[test]
fn lists() {
    let list: List<i64> = get("ffi.List", (1, 2));
    call("ffi.ListAppend", (&list, 3)).unwrap();
    call("ffi.ListInsert", (&list, 0, 0)).unwrap();
    call("ffi.ListSetItem", (&list, 1, 10)).unwrap();
    assert_eq!(list.to_vec().unwrap(), [0, 10, 2, 3]);
    assert_eq!(get::<i64>("ffi.ListGetItem", (&list, 3)), 3);
    assert_eq!(get::<i64>("ffi.ListPop", (&list, 1)), 10);
    call("ffi.ListErase", (&list, 0)).unwrap();
    call("ffi.ListReverse", (&list,)).unwrap();
    assert_eq!(list.to_vec().unwrap(), [3, 2]);
    // The List replaces a part of itself.
    call("ffi.ListReplaceSlice", (&list, 0, 1, &list)).unwrap();
    assert_eq!(list.to_vec().unwrap(), [3, 2, 2]);
    call("ffi.ListReplaceSlice", (&list, 3, 3, &Array::<i64>::from(vec![7, 8]))).unwrap();
    call("ffi.ListEraseRange", (&list, 0, 2)).unwrap();
    assert_eq!(list.to_vec().unwrap(), [2, 7, 8]);
    assert!(get::<bool>("ffi.ListContains", (&list, 7)));
    call("ffi.ListReserve", (&list, 100)).unwrap();
    call("ffi.ListReserve", (&list, -1)).unwrap();
    assert_eq!((list.capacity(), get::<i64>("ffi.ListSize", (&list,))), (100, 3));
    assert_eq!(call("ffi.ListReserve", (&list, 1i64 << 60)).unwrap_err().kind(), "MemoryError");
    check_error("ffi.ListGetItem", (&list, 7), "IndexError: Index 7 out of bounds 3");
    check_error("ffi.ListSetItem", (&list, -1, 0), "IndexError: Index -1 out of bounds 3");
    check_error("ffi.ListPop", (&list, 9), "IndexError: Index 9 out of bounds 3");
    check_error("ffi.ListErase", (&list, -1), "IndexError: Index -1 out of bounds 3");
    check_error("ffi.ListInsert", (&list, 9, 1), "IndexError: Index 9 out of bounds [0, 3]");
    check_error("ffi.ListInsert", (&list, -1, 1), "IndexError: Index -1 out of bounds [0, 3]");
    check_error("ffi.ListEraseRange", (&list, 0, 9), "IndexError: Erase range [0, 9) out of bounds 3");
    check_error("ffi.ListEraseRange", (&list, 2, 1), "IndexError: Erase range [2, 1) out of bounds 3");
    check_error("ffi.ListEraseRange", (&list, -1, 1), "IndexError: Erase range [-1, 1) out of bounds 3");
    call("ffi.ListEraseRange", (&list, 9, 9)).unwrap();
    check_error("ffi.ListReplaceSlice", (&list, 0, 9, &list), "IndexError: Erase range [0, 9) out of bounds 3");
    check_error("ffi.ListReplaceSlice", (&list, 9, 9, &list), "IndexError: Index 9 out of bounds [0, 3]");
    call("ffi.ListClear", (&list,)).unwrap();
    assert!(list.is_empty());
}

#[test]
fn maps_and_dicts() {
    for kind in ["Map", "Dict"] {
        let name = |rest: &str| format!("ffi.{kind}{rest}");
        let map = call(&name(""), ("a", 1, "b", 2)).unwrap();
        assert_eq!(map.type_key(), name(""));
        assert_eq!(get::<i64>(&name("Size"), (&map,)), 2);
        assert_eq!(get::<i64>(&name("GetItem"), (&map, "b")), 2);
        assert_eq!((get::<i64>(&name("Count"), (&map, "a")), get::<i64>(&name("Count"), (&map, "z"))), (1, 0));
        check_error(&name("GetItem"), (&map, "z"), "KeyError: key is not in Map");
        check_error(&name(""), (1,), "RuntimeError: Check failed: args.size() % 2 == 0 (1 vs. 0) : ");
        assert_eq!(get::<i64>(&name("GetItemOrMissing"), (&map, "a")), 1);
        let missing = call(&name("GetItemOrMissing"), (&map, "z")).unwrap();
        assert_eq!(missing, call("ffi.GetInvalidObject", ()).unwrap());
        let walk: PackedFunc = get(&name("ForwardIterFunctor"), (&map,));
        let mut pairs = vec![];
        loop {
            pairs.push((get_by::<String>(&walk, 0), get_by::<i64>(&walk, 1)));
            if !get_by::<bool>(&walk, 2) {
                break;
            }
        }
        assert_eq!(pairs, [("a".to_string(), 1), ("b".to_string(), 2)]);
    }
    let dict: Dict<i64, i64> = Dict::new();
    for i in 0..10 {
        call("ffi.DictSetItem", (&dict, i, i * i)).unwrap();
    }
    call("ffi.DictSetItem", (&dict, 3, 0)).unwrap();
    call("ffi.DictErase", (&dict, 5)).unwrap();
    call("ffi.DictErase", (&dict, 5)).unwrap();
    assert_eq!(dict.keys().unwrap(), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
    call("ffi.DictClear", (&dict,)).unwrap();
    assert!(dict.is_empty());
}

fn get_by<T: for<'a> anyfn::FromArg<Arg<'a> = T>>(function: &PackedFunc, command: i64) -> T {
    function.call((command,)).unwrap().get::<T>().unwrap()
}

#[test]
fn first_device() {
    let device = |value: Any| get::<Device>("ffi.ContainerFindFirstNonCPUDevice", (value,));
    assert_eq!(device(Any::new(1).unwrap()), Device::CPU);
    let tensor = Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap();
    let list: List = List::new();
    list.push(tensor.into()).unwrap();
    list.push(list.clone().into()).unwrap();
    assert_eq!(device(Map::<Any, Any>::try_from_iter([(1, list.clone())]).unwrap().into()), Device::CPU);
    list.clear();
}
