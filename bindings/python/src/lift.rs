//! Conversion of native values to Python values, called *lifting*. It applies to the results of calls and to
//! the arguments of callbacks.

use anyfn::abi::{
    TVMFFIAny, TVMFFIAnyViewToOwnedAny, TVMFFIByteArray, TVMFFIObject, kTVMFFIBigInt, kTVMFFIBool,
    kTVMFFIByteArrayPtr, kTVMFFIBytes, kTVMFFIDLTensorPtr, kTVMFFIDataType, kTVMFFIDevice, kTVMFFIError,
    kTVMFFIFloat, kTVMFFIFunction, kTVMFFIInt, kTVMFFINone, kTVMFFIObjectRValueRef, kTVMFFIOpaquePtr,
    kTVMFFIOpaquePyObject, kTVMFFIRawStr, kTVMFFISmallBytes, kTVMFFISmallStr, kTVMFFIStaticObjectBegin,
    kTVMFFIStr, kTVMFFITensor,
};
use anyfn::{Any, Error, ObjectRef};

use crate::py::{self, Own, Res};
use crate::shared_bytes::{self, SHARED_MIN};
use crate::{bigint, classes, error, object, packed, tensor, words};

/// Converts an owned native value to a Python value, and takes ownership of it.
#[inline]
pub(crate) fn lift_owned(value: Any) -> Res<Own> {
    match value.type_index() {
        kTVMFFIStr | kTVMFFIBytes => lift_plain(value.as_raw()),
        index if index >= kTVMFFIStaticObjectBegin => match value.into_object() {
            Some(object) => lift_object(object),
            None => Ok(py::none()),
        },
        kTVMFFIDLTensorPtr => py::raise(
            py::exceptions::type_error(),
            "the function returned a borrowed DLTensor*, which has no owner; it must return a tensor",
        ),
        kTVMFFIObjectRValueRef => lift_moved(value.as_raw()),
        _ => lift_plain(value.as_raw()),
    }
}

/// Converts a value to a Python value. The caller keeps its ownership of the value. The value must
/// not be a tensor view (`DLTensor*`), which is valid only during a call. `Loans::lift` converts
/// such views.
#[inline(always)]
pub(crate) fn lift_borrowed(value: &TVMFFIAny) -> Res<Own> {
    match value.type_index {
        kTVMFFIInt => py::int(bits(value) as i64),
        kTVMFFINone => Ok(py::none()),
        kTVMFFIStr | kTVMFFIBytes => lift_plain(value),
        index if index >= kTVMFFIStaticObjectBegin => {
            // SAFETY: objects have their value in `v_obj`.
            let handle = unsafe { value.value.v_obj };
            // SAFETY: the view is valid, so the object is alive; the result is a new reference.
            match unsafe { ObjectRef::from_borrowed_or_null(handle.cast()) } {
                Some(object) => lift_object(object),
                None => Ok(py::none()),
            }
        }
        kTVMFFIObjectRValueRef => lift_moved(value),
        _ => lift_plain(value),
    }
}

/// Converts a native object to a Python value, and takes ownership of the reference.
#[inline]
pub(crate) fn lift_object(object: ObjectRef) -> Res<Own> {
    match object.type_index() {
        kTVMFFIFunction => packed::wrap(object, None, false),
        kTVMFFITensor => object::wrap_as(tensor::CLASS.ptr().cast(), object),
        _ => lift_rarer_object(object),
    }
}

#[inline(never)]
fn lift_rarer_object(object: ObjectRef) -> Res<Own> {
    match object.type_index() {
        kTVMFFIError => match Error::try_from_object(object) {
            Ok(error) => error::to_exception(error),
            Err(object) => classes::wrap(object),
        },
        kTVMFFIOpaquePyObject => {
            let header: *const TVMFFIObject = object.as_handle().cast();
            Ok(error::opaque_object(header).to_own())
        }
        kTVMFFIStr | kTVMFFIBytes | kTVMFFIBigInt => lift_plain(Any::from(object).as_raw()),
        _ => classes::wrap(object),
    }
}

/// Converts a native value of a simple type, such as a number, string or data type, to a Python value. Raises
/// `TypeError` for any other type. Strings and bytes are copied.
#[inline(never)]
fn lift_plain(value: &TVMFFIAny) -> Res<Own> {
    match value.type_index {
        kTVMFFINone => Ok(py::none()),
        kTVMFFIInt => py::int(bits(value) as i64),
        kTVMFFIBool => Ok(py::boolean(bits(value) != 0)),
        kTVMFFIFloat => py::float(f64::from_bits(bits(value))),
        kTVMFFISmallStr => py::string(small_bytes(value)),
        kTVMFFISmallBytes => py::bytes(small_bytes(value)),
        kTVMFFIStr | kTVMFFIBytes => lift_heap_bytes(value),
        kTVMFFIDataType => words::make(words::DTYPE.get(), bits(value)),
        kTVMFFIDevice => words::make(words::DEVICE.get(), bits(value)),
        kTVMFFIOpaquePtr => words::void_pointer(bits(value)),
        kTVMFFIBigInt => bigint::lift(value),
        kTVMFFIByteArrayPtr => borrowed_bytes(value),
        kTVMFFIRawStr => lift_copied(value),
        index => py::raise(
            py::exceptions::type_error(),
            &format!("a value of type {} cannot be converted to a Python object", anyfn::type_key(index)),
        ),
    }
}

/// Converts a string object or bytes object to a Python value. If the native object has the content of a Python object,
/// the result is that object.
fn lift_heap_bytes(value: &TVMFFIAny) -> Res<Own> {
    let content = heap_bytes(value);
    if content.len() >= SHARED_MIN {
        // SAFETY: objects have their value in `v_obj`.
        let object = unsafe { value.value.v_obj };
        if let Some(owner) = shared_bytes::owner_of(object) {
            return Ok(owner.to_own());
        }
    }
    if value.type_index == kTVMFFIStr { py::string(content) } else { py::bytes(content) }
}

/// Returns the eight payload bytes of a value.
#[inline(always)]
fn bits(value: &TVMFFIAny) -> u64 {
    // SAFETY: callers in this file have valid values, all of whose bytes are initialised.
    unsafe { value.bits() }
}

/// Returns the bytes of a string or bytes value that is stored in the value itself because it is
/// short.
fn small_bytes(value: &TVMFFIAny) -> &[u8] {
    let data: *const u8 = (&raw const value.value).cast();
    // SAFETY: the union has 8 bytes, all initialised, which are borrowed for as long as the value.
    unsafe { std::slice::from_raw_parts(data, (value.small_str_len as usize).min(7)) }
}

/// Returns the bytes of a string object or bytes object on the heap.
fn heap_bytes(value: &TVMFFIAny) -> &[u8] {
    // SAFETY: objects have their value in `v_obj`.
    let object = unsafe { value.value.v_obj };
    // SAFETY: these objects have a byte array behind the header.
    let content: *const TVMFFIByteArray = unsafe { object.add(1) }.cast();
    // SAFETY: the content of such an object is initialised and never changes.
    let content = unsafe { &*content };
    // SAFETY: the object owns its content, and the value keeps the object alive.
    unsafe { content.as_slice() }
}

fn borrowed_bytes(value: &TVMFFIAny) -> Res<Own> {
    // SAFETY: a byte array view has its value in `v_ptr`.
    let content = unsafe { value.value.v_ptr }.cast::<TVMFFIByteArray>();
    // SAFETY: the pointer is the address of a byte array, or NULL if the caller violates the ABI.
    match unsafe { content.as_ref() } {
        // SAFETY: the view is valid, so the bytes are.
        Some(content) => py::bytes(unsafe { content.as_slice() }),
        None => Ok(py::none()),
    }
}

/// Converts a borrowed string to a Python value, via an owned value.
#[cold]
fn lift_copied(value: &TVMFFIAny) -> Res<Own> {
    let mut owned = TVMFFIAny::NONE;
    // SAFETY: the view is valid, and `owned` is writable.
    let code = unsafe { TVMFFIAnyViewToOwnedAny(value, &mut owned) };
    if code != 0 {
        return Err(error::raise_from_native(code));
    }
    // SAFETY: on success this is an owned value.
    lift_owned(unsafe { Any::from_raw(owned) })
}

/// Moves the object out of the slot to which an r-value reference refers, and converts it to a Python value.
#[cold]
fn lift_moved(value: &TVMFFIAny) -> Res<Own> {
    lift_copied(value)
}
