//! Tests that a Rust type with `#[derive(Object)]` cannot claim the key of a type that other code
//! has registered.

use std::panic::catch_unwind;

use anyfn::abi::{TVMFFIByteArray, TVMFFITypeGetOrAllocIndex, kTVMFFIObject};
use anyfn::{Any, Object, Ref, registry};
use anyfn_core as _;
use anyfn_reflect as _;

/// Type that claims the type key of visitors. Its content is a number, whereas the content of a visitor is
/// the address of a function table.
#[derive(Object)]
#[object(key = "ffi.StructuralVisitor")]
#[allow(dead_code, reason = "only made")]
struct Visitor(usize);

#[derive(Object)]
#[object(key = "ffi.VisitErrorContext")]
#[allow(dead_code, reason = "only made")]
struct Context(usize);

#[derive(Object)]
#[object(key = "tests.claims.Native")]
#[allow(dead_code, reason = "only made")]
struct Native(usize);

fn refused<T: Object>(make: fn() -> T) {
    let made = catch_unwind(|| Ref::new(make()).into_object());
    if let Ok(object) = &made {
        // With such an object, native code would call through the number.
        let visit = registry::get("ffi.StructuralVisitorVisit").unwrap();
        let visited = visit.call((object.clone(), Any::new("a value").unwrap()));
        panic!("{object:?} was made; visiting with it gave {visited:?}");
    }
    let text = made.unwrap_err().downcast::<String>().expect("a panic with a text");
    let expected = format!("type `{}` cannot be registered: its key belongs to another type", T::TYPE_KEY);
    assert!(text.starts_with(&expected), "{text}");
}

#[test]
fn keys_of_types_that_are_described_by_hand_are_taken() {
    refused(|| Context(16));
    refused(|| Visitor(16));
}

#[test]
fn a_key_that_native_code_has_allotted_is_taken() {
    let key = TVMFFIByteArray::from_slice(b"tests.claims.Native");
    let known = anyfn::type_index_of("tests.claims.Native");
    // SAFETY: the key is borrowed for the call.
    let index = unsafe { TVMFFITypeGetOrAllocIndex(&key, -1, 1, 0, 1, kTVMFFIObject) };
    assert!(index > 0);
    if known.is_none() {
        refused(|| Native(16));
    }
}
