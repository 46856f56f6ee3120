//! Equality and hash of values as Map keys.
//!
//! Every client of the ABI computes them inline on the same memory, so they are part of the ABI. All implementations
//! must agree bit for bit.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use anyfn_abi::{
    TVMFFIAny, kTVMFFIBigInt, kTVMFFIBool, kTVMFFIBytes, kTVMFFIDataType, kTVMFFIError, kTVMFFIFloat,
    kTVMFFIFunction, kTVMFFIInt, kTVMFFINone, kTVMFFIOpaquePtr, kTVMFFISmallBytes, kTVMFFISmallStr,
    kTVMFFIStaticObjectBegin, kTVMFFIStr,
};

use crate::string::{bytes_of, pack};
use crate::types::attribute;
use crate::{AnyView, PackedFunc};

/// Combines `key` and `value` into one hash.
#[inline]
pub(crate) const fn combine(key: u64, value: u64) -> u64 {
    key ^ (value.wrapping_add(0x9e37_79b9).wrapping_add(key << 6).wrapping_add(key >> 2))
}

const MODULUS: u64 = 2_147_483_647;

/// Returns the hash of the content of a string or byte string.
#[inline]
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 1_099_511_628_211;
    let mut hash = 0u64;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mut buffer = [0; 8];
        buffer.copy_from_slice(word);
        hash = hash.wrapping_mul(MULTIPLIER).wrapping_add(u64::from_le_bytes(buffer)) % MODULUS;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash = hash.wrapping_mul(MULTIPLIER).wrapping_add(pack(rest)) % MODULUS;
    }
    hash
}

/// Returns the hash that a string has as a Map key. The string must be stored inline in its value, and `bits`
/// is the payload of this value.
#[inline]
pub fn small_str_hash(bits: u64) -> u64 {
    combine(kTVMFFIStr as u64, u64::from_le(bits) % MODULUS)
}

/// Function that a type has registered to hash or compare its objects as Map keys: a C function or a packed
/// function.
enum Hook<'a> {
    Native(*mut core::ffi::c_void),
    Function(&'a PackedFunc),
}

fn resolve(entry: &'static TVMFFIAny) -> Option<Hook<'static>> {
    match entry.type_index {
        // SAFETY: the value of an opaque pointer is in `v_ptr`.
        kTVMFFIOpaquePtr => Some(Hook::Native(unsafe { entry.value.v_ptr })),
        kTVMFFIFunction => {
            let object: *const *mut anyfn_abi::TVMFFIObject = (&raw const entry.value).cast();
            // SAFETY: `PackedFunc` is a transparent object pointer, and the column keeps the function for the lifetime
            // of the process.
            Some(Hook::Function(unsafe { &*object.cast::<PackedFunc>() }))
        }
        _ => None,
    }
}

/// C function that a type has registered to hash its objects as Map keys. It returns an int, or an
/// error object if it failed. The 16-byte result is returned in two registers.
///
/// Code that was compiled with the headers of tvm-ffi 0.1.14 or older, such as that of Apache TVM 0.27, returns the bare hash
/// instead, in the first of these registers, and a `bool` from [`NativeEqual`]. See [`of_native_hash`].
type NativeHash = unsafe extern "C" fn(value: *const TVMFFIAny) -> TVMFFIAny;
type NativeEqual = unsafe extern "C" fn(left: *const TVMFFIAny, right: *const TVMFFIAny) -> TVMFFIAny;

/// Returns true if a value of this type is the same key only as a value with the same bits: a number, for example, but no
/// string and no object.
#[inline]
fn is_bits(type_index: i32) -> bool {
    type_index < kTVMFFISmallStr
}

/// Returns the hash of a value as a Map key.
#[inline]
pub(crate) fn any_hash(view: &AnyView<'_>) -> u64 {
    let index = view.type_index();
    if is_bits(index) { combine(index as u64, view.bits()) } else { hash_slow(view) }
}

fn hash_slow(view: &AnyView<'_>) -> u64 {
    match view.type_index() {
        // The content of a small string is one word.
        kTVMFFISmallStr => small_str_hash(view.bits()),
        kTVMFFIStr => combine(kTVMFFIStr as u64, hash_bytes(bytes_of(view))),
        kTVMFFISmallBytes | kTVMFFIBytes => combine(kTVMFFIBytes as u64, hash_bytes(bytes_of(view))),
        index if index >= kTVMFFIStaticObjectBegin => {
            combine(index as u64, hashed_by_hook(view).unwrap_or_else(|| view.bits()))
        }
        index => combine(index as u64, view.bits()),
    }
}

#[inline(never)]
fn hashed_by_hook(view: &AnyView<'_>) -> Option<u64> {
    let entry = attribute("__any_hash__", view.type_index())?;
    let result = match resolve(entry)? {
        Hook::Native(code) => {
            // SAFETY: by the column's definition, an opaque pointer in it is a native hash hook.
            let code = unsafe { core::mem::transmute::<*mut core::ffi::c_void, NativeHash>(code) };
            // SAFETY: the hook is called with a valid value.
            let raw = unsafe { code(view.as_raw()) };
            return of_native_hash(raw, view);
        }
        Hook::Function(function) => function.call_views(core::slice::from_ref(view)).ok()?,
    };
    result.get::<i64>().ok().map(|hash| hash as u64)
}

/// True once a hook has returned a bare hash or a bare `bool`.
static HAS_BARE_HOOKS: AtomicBool = AtomicBool::new(false);

/// Returns the first register of a result of 16 bytes.
fn first_register(raw: &TVMFFIAny) -> u64 {
    u64::from(raw.type_index as u32) | u64::from(raw.small_str_len) << 32
}

/// Returns the hash that a native hook has returned for `view`, or `None` if the hook has failed.
///
/// The first register of an int or of an error is its type index. Every other content is a bare hash. For the two bare hashes
/// that look like these type indices, the equality hook decides, whose results are never ambiguous.
fn of_native_hash(raw: TVMFFIAny, view: &AnyView<'_>) -> Option<u64> {
    let first = first_register(&raw);
    let is_bare = || {
        // SAFETY: the value is alive.
        native_equal(view).is_some_and(|equal| is_bare_equal(&unsafe { equal(view.as_raw(), view.as_raw()) }))
    };
    let is_value = match first {
        FIRST_OF_INT => !HAS_BARE_HOOKS.load(Ordering::Relaxed) || !is_bare(),
        FIRST_OF_ERROR => !is_bare(),
        _ => false,
    };
    if !is_value {
        HAS_BARE_HOOKS.store(true, Ordering::Relaxed);
        return Some(first);
    }
    // SAFETY: the hook has returned an owned value.
    unsafe { crate::Any::from_raw(raw) }.get::<i64>().ok().map(|hash| hash as u64)
}

const FIRST_OF_INT: u64 = kTVMFFIInt as u64;
const FIRST_OF_BOOL: u64 = kTVMFFIBool as u64;
const FIRST_OF_ERROR: u64 = kTVMFFIError as u64;

/// Returns the native equality hook of the type of a value, if the type has one.
fn native_equal(view: &AnyView<'_>) -> Option<NativeEqual> {
    match attribute("__any_equal__", view.type_index()).and_then(resolve)? {
        Hook::Native(code) => {
            // SAFETY: by the column's definition, an opaque pointer in it is a native equality hook.
            Some(unsafe { core::mem::transmute::<*mut core::ffi::c_void, NativeEqual>(code) })
        }
        Hook::Function(_) => None,
    }
}

/// Returns true if a native equality hook has returned a bare `bool`, which is the lowest byte of the first register. Its
/// other bytes are undefined, but no `bool` is 2 or 67, the type indices of a bool and of an error.
fn is_bare_equal(raw: &TVMFFIAny) -> bool {
    !matches!(first_register(raw), FIRST_OF_BOOL | FIRST_OF_ERROR)
}

/// Returns true if two values are the same Map key: they have the same type and bits, they are strings or bytes of
/// equal content, or the equality hook of their type reports that they are equal.
#[inline]
pub(crate) fn any_equal(left: &AnyView<'_>, right: &AnyView<'_>) -> bool {
    let (l, r) = (left.as_raw(), right.as_raw());
    let same_head = l.type_index == r.type_index && l.small_str_len == r.small_str_len;
    if same_head && left.bits() == right.bits() {
        return true;
    }
    !is_bits(l.type_index) && !is_bits(r.type_index) && equal_slow(left, right)
}

fn equal_slow(left: &AnyView<'_>, right: &AnyView<'_>) -> bool {
    let is_str = |index| matches!(index, kTVMFFISmallStr | kTVMFFIStr);
    let is_bytes = |index| matches!(index, kTVMFFISmallBytes | kTVMFFIBytes);
    let (l, r) = (left.type_index(), right.type_index());
    if l == r && matches!(l, kTVMFFISmallStr | kTVMFFISmallBytes) {
        // Small strings are padded with zeros, so equal content implies equal bits, which have already been compared.
        return false;
    }
    if (is_str(l) && is_str(r)) || (is_bytes(l) && is_bytes(r)) {
        return bytes_of(left) == bytes_of(right);
    }
    l == r && l >= kTVMFFIStaticObjectBegin && equal_by_hook(left, right)
}

#[inline(never)]
fn equal_by_hook(left: &AnyView<'_>, right: &AnyView<'_>) -> bool {
    let Some(hook) = attribute("__any_equal__", left.type_index()).and_then(resolve) else { return false };
    let result = match hook {
        Hook::Native(code) => {
            // SAFETY: by the column's definition, an opaque pointer in it is a native equality hook.
            let code = unsafe { core::mem::transmute::<*mut core::ffi::c_void, NativeEqual>(code) };
            // SAFETY: the hook is called with valid values.
            let raw = unsafe { code(left.as_raw(), right.as_raw()) };
            if is_bare_equal(&raw) {
                HAS_BARE_HOOKS.store(true, Ordering::Relaxed);
                return first_register(&raw) & 0xff != 0;
            }
            // SAFETY: a hook returns an owned value.
            Ok(unsafe { crate::Any::from_raw(raw) })
        }
        Hook::Function(function) => function.call_views(&[*left, *right]),
    };
    result.and_then(|value| value.get::<bool>()).unwrap_or(false)
}

/// Returns true if the type of a value has registered its own equality function, which is code outside this
/// crate.
pub(crate) fn has_equal_hook(view: &AnyView<'_>) -> bool {
    view.type_index() >= kTVMFFIStaticObjectBegin
        && !matches!(view.type_index(), kTVMFFIStr | kTVMFFIBytes)
        && attribute("__any_equal__", view.type_index()).is_some()
}

/// Returns true if the type of a value has registered its own hash function, which is code outside this
/// crate.
pub(crate) fn has_hash_hook(view: &AnyView<'_>) -> bool {
    view.type_index() >= kTVMFFIStaticObjectBegin
        && !matches!(view.type_index(), kTVMFFIStr | kTVMFFIBytes)
        && attribute("__any_hash__", view.type_index()).is_some()
}

/// Formats a value for debugging; objects are shown by type and address.
pub(crate) fn debug(view: &AnyView<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match view.type_index() {
        kTVMFFINone => f.write_str("None"),
        kTVMFFIInt => write!(f, "{}", view.bits() as i64),
        kTVMFFIBool => write!(f, "{}", view.bits() != 0),
        kTVMFFIFloat => write!(f, "{:?}", f64::from_bits(view.bits())),
        kTVMFFISmallStr | kTVMFFIStr => {
            write!(f, "{:?}", alloc::string::String::from_utf8_lossy(bytes_of(view)))
        }
        kTVMFFISmallBytes | kTVMFFIBytes => write!(f, "b\"{}\"", bytes_of(view).escape_ascii()),
        kTVMFFIDataType => match view.get::<crate::DType>() {
            Ok(dtype) => write!(f, "{dtype}"),
            Err(_) => f.write_str("DataType"),
        },
        kTVMFFIBigInt => crate::bigint::debug(view, f),
        _ => match view.as_object() {
            Some(object) => fmt::Debug::fmt(object, f),
            None => write!(f, "{}({:#x})", view.type_key(), view.bits()),
        },
    }
}
