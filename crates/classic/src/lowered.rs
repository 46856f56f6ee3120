//! Arguments of functions that have the signature of the classic API.

use core::ffi::c_int;
use core::mem::MaybeUninit;

use std::vec::Vec;

use anyfn::abi::TVMFFIAny;
use anyfn::abi::classic::{TVMByteArray, TVMValue};
use anyfn::{Error, Result};

use crate::value;

/// Number of arguments that need no memory allocation.
pub(crate) const FEW: usize = 8;

/// Converts arguments and passes them to `body`.
///
/// # Safety
/// `args` must point to `count` valid views for the call.
#[inline]
pub(crate) unsafe fn with(
    args: *const TVMFFIAny,
    count: i32,
    body: impl FnOnce(*mut TVMValue, *mut c_int) -> Result<()>,
) -> Result<()> {
    let len = usize::try_from(count).unwrap_or(0);
    if len <= FEW {
        let mut slots = [const { MaybeUninit::<Slot>::uninit() }; FEW];
        let mut values = [const { MaybeUninit::<TVMValue>::uninit() }; FEW];
        let mut codes = [const { MaybeUninit::<c_int>::uninit() }; FEW];
        let (values, codes) = (values.as_mut_ptr().cast(), codes.as_mut_ptr().cast());
        // SAFETY: the caller guarantees the views, and there is room for as many.
        unsafe { fill(args, len, slots.as_mut_ptr().cast(), values, codes) }?;
        return body(values, codes);
    }
    let (mut slots, mut values, mut codes) = (room(len)?, room(len)?, room(len)?);
    // SAFETY: the caller guarantees the views, and there is room for as many.
    unsafe { fill(args, len, slots.as_mut_ptr(), values.as_mut_ptr(), codes.as_mut_ptr()) }?;
    body(values.as_mut_ptr(), codes.as_mut_ptr())
}

/// Place for the description of an argument that is bytes.
type Slot = TVMByteArray;

/// Converts `len` arguments to the places at `values` and `codes`.
///
/// # Safety
/// `args` must point to `len` valid views, and the other addresses to room for as many.
#[inline]
unsafe fn fill(
    args: *const TVMFFIAny,
    len: usize,
    slots: *mut Slot,
    values: *mut TVMValue,
    codes: *mut c_int,
) -> Result<()> {
    for at in 0..len {
        let (value, code) = (values.wrapping_add(at), codes.wrapping_add(at));
        // SAFETY: the caller guarantees the view.
        let arg = unsafe { &*args.wrapping_add(at) };
        if let Some(plain) = value::code_of_plain(arg.type_index) {
            // SAFETY: all eight bytes of a value are initialised.
            let bits = unsafe { arg.bits() };
            // SAFETY: the caller guarantees the place.
            unsafe { value.cast::<u64>().write(bits) };
            // SAFETY: the caller guarantees the place.
            unsafe { code.write(plain) };
            continue;
        }
        // SAFETY: the caller guarantees the view and the places.
        unsafe { fill_other(arg, at, slots.wrapping_add(at), value, code) }?;
    }
    Ok(())
}

/// Converts one argument that is neither a number nor None.
///
/// # Safety
/// `slot`, `value` and `code` must be writable, and `arg` valid for as long as the result is used.
#[inline(never)]
unsafe fn fill_other(
    arg: *const TVMFFIAny,
    at: usize,
    slot: *mut Slot,
    value: *mut TVMValue,
    code: *mut c_int,
) -> Result<()> {
    // SAFETY: the caller guarantees the argument and the place.
    let lowered = unsafe { value::lower_other(arg, slot) }.map_err(|reason| refused(at, &reason))?;
    // SAFETY: the caller guarantees the place.
    unsafe { value.write(lowered.0) };
    // SAFETY: the caller guarantees the place.
    unsafe { code.write(lowered.1) };
    Ok(())
}

#[cold]
fn refused(at: usize, reason: &str) -> Error {
    anyfn::error!("TypeError", "argument {at} cannot be passed to a function of the classic API: {reason}")
}

fn room<T>(len: usize) -> Result<Vec<T>> {
    let mut vec = Vec::new();
    match vec.try_reserve_exact(len) {
        Ok(()) => Ok(vec),
        Err(_) => Err(Error::untraced("MemoryError", "cannot allocate memory for arguments")),
    }
}
