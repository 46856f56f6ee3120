//! Tests that call every C function as C code does, and check its results and its errors.

// SAFETY of all calls below: arguments are what the ABI requires, or NULL, which it checks. A test frees only what it has
// created. Blocks have no comments of their own, which would repeat this sentence a few hundred times.
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::missing_safety_doc,
    unsafe_op_in_unsafe_fn,
    reason = "see above"
)]

use anyfn_core as _;

mod env;
mod error;
mod function;
mod object;
mod once;
mod tensor;
mod types;
mod value;

use core::ffi::c_int;
use std::ptr;

use anyfn::abi::{TVMFFIAny, TVMFFIByteArray, TVMFFIErrorCell, TVMFFIObject, TVMFFIObjectHandle};
use anyfn::{Any, Error, ObjectRef};

/// Returns the kind and the message of the error that a call has raised. The call must have failed.
#[track_caller]
fn failed(code: c_int) -> (String, String) {
    assert_eq!(code, -1);
    raised()
}

fn raised() -> (String, String) {
    let error = Error::take_raised();
    (error.kind().into(), error.message().into())
}

/// Checks that a call has failed with an error of the given kind and message.
#[track_caller]
fn expect(code: c_int, kind: &str, message: &str) {
    let (got_kind, got_message) = failed(code);
    assert_eq!((&*got_kind, &*got_message), (kind, message));
}

/// Checks that a call has failed because an argument was NULL.
#[track_caller]
fn expect_null(code: c_int, function: &str, argument: &str) {
    expect(code, "ValueError", &format!("{function}: argument `{argument}` is NULL"));
}

fn bytes(text: &str) -> TVMFFIByteArray {
    TVMFFIByteArray::from_slice(text.as_bytes())
}

fn owned(handle: TVMFFIObjectHandle) -> ObjectRef {
    unsafe { ObjectRef::from_owned_or_null(handle) }.expect("a handle")
}

fn value(raw: TVMFFIAny) -> Any {
    unsafe { Any::from_raw(raw) }
}

/// Returns the address of an object's content.
fn content<T>(object: &ObjectRef) -> *mut T {
    unsafe { object.as_handle().cast::<TVMFFIObject>().add(1).cast() }
}

fn error_cell(error: &ObjectRef) -> &TVMFFIErrorCell {
    unsafe { &*content(error) }
}

/// Invalid byte array, which has a size but no data.
const BROKEN: TVMFFIByteArray = TVMFFIByteArray { data: ptr::null(), size: 3 };
