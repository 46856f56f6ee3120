//! Tests that operations claim access to the elements of a tensor while they read the elements.

use anyfn::{Error, Result, Tensor, registry};
use anyfn_core as _;
use anyfn_reflect as _;

fn call(name: &str, tensor: &Tensor) -> Result<()> {
    let function = registry::get(name)?;
    let other = Tensor::from_slice(&[4], &[1i32, 2, 3, 4])?;
    match name {
        "ffi.StructuralEqual" => function.call((tensor, &other, false, false)),
        "ffi.StructuralHash" => function.call((tensor, false, false)),
        "ffi.RecursiveEq" => function.call((tensor, &other)),
        "ffi.ToJSONGraphString" => function.call((tensor, ())),
        _ => function.call((tensor,)),
    }
    .map(drop)
}

#[test]
fn elements_that_this_thread_writes_are_not_read() {
    let tensor = Tensor::from_slice(&[4], &[1i32, 2, 3, 4]).unwrap();
    let names = [
        "ffi.StructuralEqual",
        "ffi.StructuralHash",
        "ffi.RecursiveEq",
        "ffi.DeepCopy",
        "ffi.ToJSONGraphString",
    ];
    for name in names {
        call(name, &tensor).unwrap_or_else(|error| panic!("{name}: {error}"));
        let guard = tensor.write::<i32>().unwrap();
        let error: Error = call(name, &tensor).expect_err(name);
        assert_eq!(error.kind(), "RuntimeError", "{name}: {error}");
        assert!(
            error.message().contains("this thread holds a TensorWrite of the same memory"),
            "{name}: {error}"
        );
        drop(guard);
        let guard = tensor.read::<i32>().unwrap();
        call(name, &tensor).unwrap_or_else(|error| panic!("{name}: {error}"));
        drop(guard);
    }
}
