//! Tests of functions that dereference an address from their arguments, and of the checks that decide who may
//! look up such functions.

use anyfn::{Any, OpaquePtr, PackedFunc, Signature, Unsafe, global, registry};
use anyfn_loader as _;

const OWN: [&str; 8] = [
    "anyfn.DefaultFactory",
    "anyfn.RegisterMethod",
    "ffi.FunctionFromExternC",
    "ffi.MakeFieldSetter",
    "ffi.ObserveCalls",
    "ffi.ObserverPlace",
    "ffi._PyClassRegisterTypeAttrColumns",
    "test.unsafe_functions.read",
];

/// Reads an int from an address.
///
/// # Safety
/// `place` must be the address of an int.
#[anyfn::register("test.unsafe_functions.read", unsafe)]
unsafe fn read(place: OpaquePtr) -> i64 {
    // SAFETY: the caller guarantees that `place` is the address of an int.
    unsafe { place.as_ptr().cast::<i64>().read() }
}

#[test]
fn safe_code_cannot_look_them_up() {
    for name in OWN {
        let error = registry::get(name).unwrap_err();
        assert_eq!(error.kind(), "PermissionError", "{name}");
        assert!(error.message().contains(name) && error.message().contains("registry::get_unsafe"), "{error}");
        assert!(registry::find(name).is_none(), "{name}");
        // SAFETY: the function is only inspected, not called.
        let function = unsafe { registry::get_unsafe(name) }.unwrap();
        assert!(function.is_unsafe(), "{name}");
        assert!(Signature::parse(&function.signature().unwrap()).unwrap().is_unsafe, "{name}");
        let told = registry::get("ffi.GetGlobalFuncMetadata").unwrap().call((name,)).unwrap();
        assert!(told.get::<String>().unwrap().contains("\"unsafe\":true"), "{name}");
    }
    assert_eq!(global!("test.unsafe_functions.read").unwrap_err().kind(), "PermissionError");
    assert!(!registry::get("ffi.String").unwrap().is_unsafe());
}

#[test]
fn unsafe_code_can() -> anyfn::Result<()> {
    // SAFETY: the function is called below with the address of an int.
    let read = unsafe { registry::get_unsafe("test.unsafe_functions.read") }?;
    let mut number = 11_i64;
    // SAFETY: this is the address of an int that outlives the call.
    let place = unsafe { OpaquePtr::from_ptr((&raw mut number).cast()) };
    assert_eq!(read.call((place,))?.get::<i64>()?, 11);
    assert_eq!(Any::new(OpaquePtr::NULL)?.get::<OpaquePtr>()?, OpaquePtr::default());
    // SAFETY: no function is called.
    assert_eq!(unsafe { registry::get_unsafe("test.unsafe_functions.none") }.unwrap_err().kind(), "ValueError");
    Ok(())
}

#[test]
fn the_mark_goes_with_the_function_and_not_with_the_name() -> anyfn::Result<()> {
    const NAME: &str = "test.unsafe_functions.changes";
    registry::register(NAME).set_body_typed(Unsafe(anyfn::Blocking(|place: OpaquePtr| place.is_null())))?;
    assert_eq!(registry::get(NAME).unwrap_err().kind(), "PermissionError");
    // SAFETY: the function dereferences no address.
    let function = unsafe { registry::get_unsafe(NAME) }?;
    registry::register("test.unsafe_functions.other").set(&function)?;
    assert!(registry::find("test.unsafe_functions.other").is_none());
    registry::register(NAME).overriding().set(&PackedFunc::new(|_| Any::new(1)))?;
    assert_eq!(registry::get(NAME)?.call(())?.get::<i64>()?, 1);
    Ok(())
}

/// Tests that all functions that take an address are registered as unsafe.
#[test]
fn no_function_takes_an_address_without_the_mark() -> anyfn::Result<()> {
    for name in registry::list()? {
        let Some(function) = registry::find(&name) else { continue };
        let Some(signature) = function.signature() else { continue };
        let takes = Signature::parse(&signature)?.params.unwrap_or_default();
        assert!(takes.iter().all(|param| !param.ty.to_string().contains("void*")), "{name}: {signature}");
    }
    Ok(())
}
