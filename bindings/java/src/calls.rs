//! Calls from Java to native functions.

use std::ffi::{c_int, c_void};

use anyfn::abi::{
    TVMFFIAny, TVMFFIFunctionCell, TVMFFIObject, kTVMFFIDLTensorPtr, kTVMFFIError, kTVMFFIFloat, kTVMFFIInt,
};
use anyfn::{Any, Error};

use crate::entry::{Failure, Res, native, owned_handle};
use crate::place::{self, Room};
use crate::stack::{self, Stack};

/// Calls a native function on this thread. On success, returns 0 and stores an owned value in `result`, which must be None before.
///
/// # Safety
/// `function` must be the address of a live function object, and the arguments must be valid views.
#[inline]
unsafe fn call_into(function: i64, args: *const TVMFFIAny, count: i32, result: *mut TVMFFIAny) -> c_int {
    let function: *mut TVMFFIObject = std::ptr::with_exposed_provenance_mut(function as usize);
    // SAFETY: a function object has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { function.add(1) }.cast();
    // SAFETY: the object is alive, and its cell never changes.
    let safe_call = unsafe { (*cell).safe_call };
    // SAFETY: guaranteed by the caller.
    unsafe { safe_call(function.cast::<c_void>(), args, count, result) }
}

/// Number of arguments that need no allocation.
const FEW: usize = 8;

/// Calls a function whose arguments must be converted first.
///
/// # Safety
/// As for [`call_into`], and Java must have written the places.
unsafe fn call_converted(
    function: i64,
    places: *const TVMFFIAny,
    count: i32,
    result: *mut TVMFFIAny,
) -> Result<(), Error> {
    let length = usize::try_from(count).unwrap_or_default();
    // SAFETY: guaranteed by the caller.
    let places = unsafe { std::slice::from_raw_parts(places, length) };
    let mut few = [const { Any::NONE }; FEW];
    let mut many = Vec::new();
    let values: &mut [Any] = match few.get_mut(..length) {
        Some(values) => values,
        None => {
            many.try_reserve_exact(length)?;
            many.resize_with(length, || Any::NONE);
            &mut many
        }
    };
    let mut failed = None;
    for (value, place) in values.iter_mut().zip(places) {
        // All places are converted, also after a failure, because objects that they own pass to the values.
        // SAFETY: guaranteed by the caller.
        match unsafe { place::decode(place) } {
            Ok(converted) => *value = converted,
            Err(error) => failed = Some(error),
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    // SAFETY: `Any` has the layout of its raw value; the rest is guaranteed by the caller.
    match unsafe { call_into(function, values.as_ptr().cast(), count, result) } {
        0 => Ok(()),
        _ => Err(Error::take_raised()),
    }
}

native! {
    /// `call(function, frame, room, count, isPlain, stack)`: calls a function with the arguments of a frame. Returns 0, and the frame
    /// then begins with the result, or 1, and the frame begins with the error. `room` is the size of the frame in bytes, which strings
    /// may use after the call. `isPlain` says that all places are native values.
    fn Java_org_anyfn_Native_call(env, class, function: i64, frame: i64, room: i32, count: i32, is_plain: u8, stack: i64) -> i32 {
        let result = stack::place(frame);
        // SAFETY: the frame begins with the place of the result.
        let args = unsafe { result.add(1) };
        let mut value = TVMFFIAny::NONE;
        let called = stack::with(stack::at(stack), || {
            if is_plain != 0 {
                // SAFETY: Java passes a live function, and has written the arguments.
                match unsafe { call_into(function, args, count, &mut value) } {
                    0 => Ok(()),
                    _ => Err(Error::take_raised()),
                }
            } else {
                // SAFETY: Java passes a live function, and has written the places.
                unsafe { call_converted(function, args, count, &mut value) }
            }
        });
        if called.is_ok() && value.type_index < kTVMFFIDLTensorPtr {
            // SAFETY: the frame begins with the place of the result.
            put_plain(unsafe { &mut *result }, &value);
            return Ok(0);
        }
        let mut room = Room { next: args.cast(), size: (room as usize).saturating_sub(size_of::<TVMFFIAny>()) };
        let (place, status) = match called.and_then(|()| to_place(value, &mut room)) {
            Ok(place) => (place, 0),
            Err(error) => (error_place(error), 1),
        };
        // SAFETY: the frame begins with the place of the result.
        unsafe { result.write(place) };
        Ok(status)
    }
}

/// Writes a value that owns nothing to a place. Word by word, because a processor that copies all of it at once must wait until what the
/// function has just written in parts is in the cache.
#[inline]
fn put_plain(place: &mut TVMFFIAny, value: &TVMFFIAny) {
    place.type_index = value.type_index;
    place.small_str_len = value.small_str_len;
    place.value = value.value;
}

/// Converts the result of a call, which passes to Java.
fn to_place(value: TVMFFIAny, room: &mut Room) -> Result<TVMFFIAny, Error> {
    // SAFETY: the result of a call is an owned value.
    let value = unsafe { Any::from_raw(value) };
    place::encode(value.as_raw(), room)
}

/// Returns the place of an error, which passes to Java.
#[cold]
fn error_place(error: Error) -> TVMFFIAny {
    TVMFFIAny::from_bits(kTVMFFIError, owned_handle(error.into_object()) as u64)
}

/// Result of `callNumbers` if the function fails.
const FAILED: i32 = -1;

native! {
    /// `callNumbers(function, stack, kinds, one, two, three)`: calls a function with up to three numbers. The lowest byte of `kinds` is
    /// their count, and the others are their types. The result, or the error, is written to the header of the buffer of the thread.
    /// Returns the type of the result, or `FAILED`.
    fn Java_org_anyfn_Native_callNumbers(env, class, function: i64, stack: i64, kinds: i32, one: i64, two: i64, three: i64) -> i32 {
        let number = |shift: u32, word: i64| TVMFFIAny::from_bits(kinds >> shift & 0xff, word as u64);
        let args = [number(8, one), number(16, two), number(24, three)];
        let stack = stack::at(stack);
        let mut value = TVMFFIAny::NONE;
        // SAFETY: Java passes a live function and a count of at most three, and numbers own nothing.
        let status = stack::with(stack, || unsafe { call_into(function, args.as_ptr(), kinds & 0xff, &mut value) });
        if status != 0 || value.type_index >= kTVMFFIDLTensorPtr {
            return Ok(finish_numbers(status, value, stack));
        }
        // SAFETY: the buffer belongs to this thread.
        put_plain(unsafe { &mut (*stack).result }, &value);
        Ok(value.type_index)
    }
}

/// Writes an object or an error to the header of the buffer of the thread. Returns what `callNumbers` returns.
#[inline(never)]
fn finish_numbers(status: c_int, value: TVMFFIAny, stack: *mut Stack) -> i32 {
    let called = if status == 0 { to_place(value, &mut stack::room(stack)) } else { Err(Error::take_raised()) };
    let (place, status) = match called {
        Ok(place) => (place, place.type_index),
        Err(error) => (error_place(error), FAILED),
    };
    // SAFETY: the buffer belongs to this thread.
    unsafe { (*stack).result = place };
    status
}

fn int(value: i64) -> TVMFFIAny {
    TVMFFIAny::from_bits(kTVMFFIInt, value as u64)
}

fn float(value: f64) -> TVMFFIAny {
    TVMFFIAny::from_bits(kTVMFFIFloat, value.to_bits())
}

/// Calls a function with numbers, for the typed views.
#[inline]
fn call_numbers<const N: usize>(function: i64, args: [TVMFFIAny; N]) -> Res<TVMFFIAny> {
    let mut result = TVMFFIAny::NONE;
    // SAFETY: Java passes a live function, and numbers own nothing.
    if unsafe { call_into(function, args.as_ptr(), N as i32, &mut result) } != 0 {
        return Err(Failure::Error(Error::take_raised()));
    }
    Ok(result)
}

#[inline]
fn long_result(result: TVMFFIAny) -> Res<i64> {
    if result.type_index == kTVMFFIInt {
        // SAFETY: every value is initialised.
        return Ok(unsafe { result.bits() } as i64);
    }
    // SAFETY: the result is an owned value.
    Err(unexpected(unsafe { Any::from_raw(result) }, "int"))
}

#[inline]
fn double_result(result: TVMFFIAny) -> Res<f64> {
    // SAFETY: every value is initialised.
    let bits = unsafe { result.bits() };
    match result.type_index {
        kTVMFFIFloat => Ok(f64::from_bits(bits)),
        kTVMFFIInt => Ok(bits as i64 as f64),
        // SAFETY: the result is an owned value.
        _ => Err(unexpected(unsafe { Any::from_raw(result) }, "float")),
    }
}

#[cold]
fn unexpected(result: Any, expected: &str) -> Failure {
    let message = format!("expected the function to return {expected}, got {}", result.type_key());
    Failure::Error(Error::new("TypeError", &message))
}

native! {
    /// Calls a function without arguments.
    fn Java_org_anyfn_Native_longs0(env, class, function: i64) -> i64 {
        long_result(call_numbers(function, [])?)
    }
}

native! {
    /// Calls a function with an integer.
    fn Java_org_anyfn_Native_longs1(env, class, function: i64, a: i64) -> i64 {
        long_result(call_numbers(function, [int(a)])?)
    }
}

native! {
    /// Calls a function with two integers.
    fn Java_org_anyfn_Native_longs2(env, class, function: i64, a: i64, b: i64) -> i64 {
        long_result(call_numbers(function, [int(a), int(b)])?)
    }
}

native! {
    /// Calls a function with three integers.
    fn Java_org_anyfn_Native_longs3(env, class, function: i64, a: i64, b: i64, c: i64) -> i64 {
        long_result(call_numbers(function, [int(a), int(b), int(c)])?)
    }
}

native! {
    /// Calls a function without arguments.
    fn Java_org_anyfn_Native_doubles0(env, class, function: i64) -> f64 {
        double_result(call_numbers(function, [])?)
    }
}

native! {
    /// Calls a function with a floating-point number.
    fn Java_org_anyfn_Native_doubles1(env, class, function: i64, a: f64) -> f64 {
        double_result(call_numbers(function, [float(a)])?)
    }
}

native! {
    /// Calls a function with two floating-point numbers.
    fn Java_org_anyfn_Native_doubles2(env, class, function: i64, a: f64, b: f64) -> f64 {
        double_result(call_numbers(function, [float(a), float(b)])?)
    }
}

native! {
    /// Calls a function without arguments, and drops its result.
    fn Java_org_anyfn_Native_run(env, class, function: i64) -> () {
        let result = call_numbers(function, [])?;
        // SAFETY: the result is an owned value.
        drop(unsafe { Any::from_raw(result) });
        Ok(())
    }
}
