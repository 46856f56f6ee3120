//! Map keys that are compared structurally: `ffi.StructuralKey`.

use core::ffi::c_void;
use core::mem::offset_of;

use anyfn::abi::{TVMFFIAny, kTVMFFIBool, kTVMFFIError, kTVMFFIInt, kTVMFFISEqHashKindUnsupported};
use anyfn::{Any, AnyView, Object, ObjectRef, Ref, Result, TypedPackedFunc};

use super::{Options, structural_equal, structural_hash};
use crate::define::{self, Type};
use crate::guard::Nested;

/// Content of an `ffi.StructuralKey`: a value and its structural hash.
#[derive(Default, anyfn::Object)]
#[object(key = "ffi.StructuralKey", opaque)]
#[repr(C)]
pub(crate) struct Key {
    key: Any,
    hash: i64,
}

/// Wraps a value in an object of type `ffi.StructuralKey`. Maps, Dicts and other tables hash and compare such
/// an object structurally. Its fields are `key`, the value, and `hash_i64`, its structural hash.
///
/// # Errors
/// Returns the errors of [`structural_hash`].
pub fn structural_key(value: Any) -> Result<ObjectRef> {
    make(value).map(Ref::into_object)
}

fn make(key: Any) -> Result<Ref<Key>> {
    super::ensure_defined();
    let hash = structural_hash(&key, Options::default())? as i64;
    Ok(Ref::new(Key { key, hash }))
}

fn is_equal(left: &Any, right: &Any) -> Result<bool> {
    let _nested = Nested::enter()?;
    let (left, right) = (left.get::<Ref<Key>>()?, right.get::<Ref<Key>>()?);
    if left.as_object().ptr_eq(right.as_object()) {
        return Ok(true);
    }
    Ok(left.hash == right.hash && structural_equal(&left.key, &right.key, Options::default())?)
}

/// Wraps a value in a structural key; see [`structural_key`].
#[anyfn::register("ffi.StructuralKey")]
fn make_global(key: Any) -> Result<Any> {
    structural_key(key).map(Any::from)
}

/// Returns true if two structural keys are equal.
#[anyfn::register("ffi.StructuralKeyEqual")]
fn equal_global(lhs: Any, rhs: Any) -> Result<bool> {
    is_equal(&lhs, &rhs)
}

/// Converts a result to the return value of a native hook: an error becomes an error object.
fn give(result: Result<TVMFFIAny>) -> TVMFFIAny {
    result.unwrap_or_else(|error| {
        let object = error.into_object();
        debug_assert_eq!(object.type_index(), kTVMFFIError);
        Any::from(object).into_raw()
    })
}

/// Returns an owned copy of a value that a native hook receives by address.
///
/// # Safety
/// `value` must point to a valid value.
unsafe fn owned(value: *const TVMFFIAny) -> Any {
    // SAFETY: the caller guarantees a valid value.
    let raw = unsafe { *value };
    // SAFETY: the caller guarantees a valid value.
    unsafe { AnyView::from_raw(raw) }.to_owned()
}

/// Hook `__any_hash__` of structural keys.
///
/// # Safety
/// `value` must point to a valid value.
unsafe extern "C" fn any_hash(value: *const TVMFFIAny) -> TVMFFIAny {
    give(anyfn::__private::catch(|| {
        // SAFETY: the caller passes a valid value.
        let hash = unsafe { owned(value) }.get::<Ref<Key>>()?.hash;
        Ok(TVMFFIAny::from_bits(kTVMFFIInt, hash as u64))
    }))
}

/// Hook `__any_equal__` of structural keys.
///
/// # Safety
/// `left` and `right` must point to valid values.
unsafe extern "C" fn any_equal(left: *const TVMFFIAny, right: *const TVMFFIAny) -> TVMFFIAny {
    give(anyfn::__private::catch(|| {
        // SAFETY: the caller passes a valid value.
        let left = unsafe { owned(left) };
        // SAFETY: the caller passes a valid value.
        let right = unsafe { owned(right) };
        Ok(TVMFFIAny::from_bits(kTVMFFIBool, is_equal(&left, &right)?.into()))
    }))
}

/// Registers the fields and hooks of structural keys in the type table.
pub(super) fn define() -> Result<()> {
    let key = Type(Key::type_index());
    // SAFETY: the struct has the field at this offset.
    unsafe { key.field(("key", "Value of the key."), (offset_of!(Key, key), 16), define::VALUE, define::ANY) }?;
    // SAFETY: the struct has the field at this offset.
    unsafe {
        key.field(
            ("hash_i64", "Structural hash of the value."),
            (offset_of!(Key, hash), 8),
            define::I64,
            define::INT,
        )
    }?;
    let doc = "A key that compares its value structurally.";
    key.metadata_with(doc, size_of::<Key>(), kTVMFFISEqHashKindUnsupported, Some(define::create::<Key>))?;
    key.attribute("__ffi_init__", &TypedPackedFunc::from_fn(make_global as fn(Any) -> Result<Any>).into())?;
    // SAFETY: a function with the signature that the column requires.
    unsafe { key.native("__any_hash__", any_hash as *mut c_void) }?;
    // SAFETY: a function with the signature that the column requires.
    unsafe { key.native("__any_equal__", any_equal as *mut c_void) }
}
