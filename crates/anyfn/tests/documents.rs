//! Rust versions of the C++ snippets in TVM's documentation of PackedFunc.

use std::sync::{Arc, Mutex};

use anyfn::{Any, Args, PackedFunc, Result, registry};
use anyfn_core as _;

fn my_add(args: Args<'_>) -> Result<Any> {
    // automatically convert arguments to desired type.
    let a = args.get::<i32>(0)?;
    let b = args.get::<i32>(1)?;
    // automatically convert the result to a value
    Any::new(a + b)
}

fn call_packed() -> Result<i32> {
    let myadd = PackedFunc::new(my_add);
    // get back 3
    myadd.call((1, 2))?.get::<i32>()
}

#[test]
fn a_packed_function_is_called_like_a_normal_one() {
    assert_eq!(call_packed().unwrap(), 3);
}

#[test]
fn a_function_is_registered_and_found_by_name() {
    // register a global packed function
    registry::register("documents.myadd").set_body(my_add).unwrap();
    let myadd = registry::get("documents.myadd").unwrap();
    assert_eq!(myadd.call((1, 2)).unwrap().get::<i32>().unwrap(), 3);
    let again = registry::register("documents.myadd").set_body(my_add).unwrap_err();
    assert_eq!(again.kind(), "RuntimeError");
    assert_eq!(again.message(), "Global Function `documents.myadd` is already registered");
    registry::register("documents.myadd").overriding().set_body_typed(|a: i32, b: i32| a * b).unwrap();
    let replaced = registry::get("documents.myadd").unwrap();
    assert_eq!(replaced.call((3, 4)).unwrap().get::<i32>().unwrap(), 12);
    // holders of the old function keep it
    assert_eq!(myadd.call((1, 2)).unwrap().get::<i32>().unwrap(), 3);
    assert!(registry::list().unwrap().iter().any(|name| name == "documents.myadd"));
    assert!(registry::remove("documents.myadd").unwrap());
    assert!(!registry::remove("documents.myadd").unwrap());
}

#[test]
fn a_function_is_passed_to_another_one() {
    registry::register("documents.callhello")
        .set_body(|args| {
            let f = args.get::<PackedFunc>(0)?;
            f.call(("hello world",))?;
            Ok(Any::NONE)
        })
        .unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let callback = PackedFunc::new({
        let heard = heard.clone();
        move |args| {
            heard.lock().unwrap().push(args.get::<&str>(0)?.to_owned());
            Ok(Any::NONE)
        }
    });
    registry::get("documents.callhello").unwrap().call((callback,)).unwrap();
    assert_eq!(*heard.lock().unwrap(), ["hello world"]);
}
