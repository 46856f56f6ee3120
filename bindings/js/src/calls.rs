//! Calls from JavaScript to native functions.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;
use std::ptr;

use anyfn::abi::{
    AnyfnFunctionExt, DLTensor, FUNCTION_FLAG_BLOCKING, OBJECT_FLAG_FUNCTION_EXT, TVMFFIAny,
    TVMFFIFunctionCell, TVMFFIObject, TVMFFIObjectHandle, kTVMFFIFunction, kTVMFFIRawStr,
};
use anyfn::{Any, Error, TensorView};

use crate::entry::{FEW, SOME, arg, entry};
use crate::env::{Res, Value};
use crate::lower::{Arrays, Views};
use crate::state::{BORROWED_TENSOR, Js, Lent};
use crate::{callback, js_function, pool, slots, state, tensor};

entry! {
    /// `call(slot, ...args)`: calls the function of a slot.
    fn call(js: Js<'_>, args: &[Value]) { call_slot(js, args, false) }
}

entry! {
    /// `callBig(slot, ...args)`: as `call`, and returns integers as bigints.
    fn call_big(js: Js<'_>, args: &[Value]) { call_slot(js, args, true) }
}

entry! {
    /// `apply(slot, args, big)`: calls the function of a slot with the elements of an array.
    fn apply(js: Js<'_>, args: &[Value]) {
        let (slot, list) = (arg(js, args, 0)?, js.env.elements(arg(js, args, 1)?)?);
        let all: Vec<Value> = std::iter::once(slot).chain(list).collect();
        call_slot(js, &all, js.env.is_true(arg(js, args, 2)?))
    }
}

#[inline]
fn call_slot(js: Js<'_>, args: &[Value], big: bool) -> Res<Value> {
    let Some((slot, args)) = args.split_first() else { return js.env.type_error("expected a slot") };
    let slot = js.env.number(*slot)?;
    let (index, handle) = {
        let mut slots = js.state.slots.borrow_mut();
        let Some((index, object)) = slots.get(slot) else {
            drop(slots);
            return js.env.error("this function was disposed of, or belongs to another thread");
        };
        if object.type_index() != kTVMFFIFunction {
            drop(slots);
            return js.env.type_error("this object is not a function");
        }
        let handle: *mut TVMFFIObject = object.as_handle().cast();
        slots.pin(index);
        (index, handle)
    };
    let mut result = TVMFFIAny::NONE;
    let called = if args.len() < FEW {
        let mut values = [const { Any::NONE }; FEW - 1];
        call_with(js, handle, args, &mut values[..args.len()], &mut result)
    } else {
        call_with_many(js, handle, args, &mut result)
    };
    let released = js.state.slots.borrow_mut().unpin(index);
    if released.is_some() {
        slots::drop_released(js.env, released);
    }
    called?;
    if result.type_index < kTVMFFIRawStr {
        // The value owns nothing, and is not moved.
        return js.lift_result(&result, big);
    }
    // SAFETY: the result is an owned value.
    js.lift_owned(unsafe { Any::from_raw(result) }, big)
}

#[inline(never)]
fn call_with_many(js: Js<'_>, function: *mut TVMFFIObject, args: &[Value], result: &mut TVMFFIAny) -> Res<()> {
    if args.len() < SOME {
        let mut values = [const { Any::NONE }; SOME - 1];
        return call_with(js, function, args, &mut values[..args.len()], result);
    }
    let mut values = Vec::new();
    values.resize_with(args.len(), || Any::NONE);
    call_with(js, function, args, &mut values, result)
}

/// Calls a function with arguments, which are converted into `values` first. The caller keeps the function alive. `result` receives an
/// owned value.
#[inline]
fn call_with(
    js: Js<'_>,
    function: *mut TVMFFIObject,
    args: &[Value],
    values: &mut [Any],
    result: &mut TVMFFIAny,
) -> Res<()> {
    let mut views = Views::new();
    for (value, arg) in values.iter_mut().zip(args) {
        js.lower_into(*arg, &mut Arrays::Lend(&mut views), value)?;
    }
    let before = js.state.lent.borrow().len();
    if !views.is_empty() {
        if args.len() > 1 {
            check_unchanged(js, &views)?;
        }
        let is_held = !is_own_function(js, function);
        let entries =
            views.iter().map(|view| Lent { tensor: &raw const view.tensor, array: view.array, is_held });
        js.state.lent.borrow_mut().extend(entries);
    }
    let was_native = js.state.shared.set_native(true);
    let failed = if is_blocking(function) {
        call_blocking(js, function, values).map(|value| *result = value.into_raw()).err()
    } else {
        // SAFETY: the caller keeps the function alive, and the values are valid views for the call.
        let code = unsafe { call_into(function, values, result) };
        if code == 0 { None } else { Some(Error::take_raised()) }
    };
    js.state.shared.set_native(was_native);
    if !views.is_empty() {
        js.state.lent.borrow_mut().truncate(before);
    }
    match failed {
        None => Ok(()),
        Some(error) => Err(js.throw(error)),
    }
}

/// Throws if JavaScript code that ran while later arguments were converted, such as a getter, has detached or resized an array.
fn check_unchanged(js: Js<'_>, views: &Views) -> Res<()> {
    for view in views.iter() {
        let memory = js.env.typed_array(view.array)?;
        if memory.data != view.tensor.data || memory.length as i64 != view.length() {
            return js
                .env
                .type_error("a typed array was detached or resized while other arguments were converted");
        }
    }
    Ok(())
}

/// Returns true if a function is a JavaScript function of this environment. It receives the typed arrays themselves.
fn is_own_function(js: Js<'_>, function: *mut TVMFFIObject) -> bool {
    js_function::from_handle(function).is_some_and(|function| ptr::eq(&*function.shared, &*js.state.shared))
}

/// Calls a native function on this thread.
///
/// # Safety
/// `function` must be a live function object, and the values must be valid.
pub(crate) unsafe fn call_native(function: *mut TVMFFIObject, values: &[Any]) -> Result<Any, Error> {
    let mut result = TVMFFIAny::NONE;
    // SAFETY: guaranteed by the caller.
    if unsafe { call_into(function, values, &mut result) } != 0 {
        return Err(Error::take_raised());
    }
    // SAFETY: on success the result is an owned value.
    Ok(unsafe { Any::from_raw(result) })
}

/// Calls a native function on this thread. On success, returns 0 and stores an owned value in `result`, which must be None before.
///
/// # Safety
/// `function` must be a live function object, and the values must be valid.
#[inline]
unsafe fn call_into(function: *mut TVMFFIObject, values: &[Any], result: &mut TVMFFIAny) -> c_int {
    // SAFETY: a function object has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { function.add(1) }.cast();
    // SAFETY: the object is alive, and its cell never changes.
    let safe_call = unsafe { (*cell).safe_call };
    let args: *const TVMFFIAny = values.as_ptr().cast();
    // SAFETY: `Any` has the layout of its raw value; the arguments are valid, and the result holds no value.
    unsafe { safe_call(function.cast::<c_void>(), args, values.len() as i32, result) }
}

/// Returns true if a function declares that it may wait for other threads.
#[inline]
fn is_blocking(function: *mut TVMFFIObject) -> bool {
    // SAFETY: the caller keeps the function alive.
    if unsafe { (*function).flags } & OBJECT_FLAG_FUNCTION_EXT == 0 {
        return false;
    }
    // SAFETY: a function object has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { function.add(1) }.cast();
    // SAFETY: the flag shows that the address of an extension follows the cell.
    let ext: *const *const AnyfnFunctionExt = unsafe { cell.add(1) }.cast();
    // SAFETY: the address is part of the live function object.
    let ext = unsafe { *ext };
    // SAFETY: the extension lives as long as the function.
    let flags = unsafe { (*ext).flags };
    flags & FUNCTION_FLAG_BLOCKING != 0
}

/// A call whose caller waits.
struct Waiting {
    function: *mut TVMFFIObject,
    values: *const [Any],
}

// SAFETY: the caller keeps the function and the values alive until the call has ended, and does not use them meanwhile.
unsafe impl Send for Waiting {}

impl Waiting {
    fn run(&self) -> Result<Any, Error> {
        // SAFETY: the caller keeps the values alive until the call has ended.
        let values = unsafe { &*self.values };
        let views = values.iter().filter(|value| value.type_index() == BORROWED_TENSOR);
        BORROWED.with_borrow_mut(|all| all.extend(views.map(|view| view.as_view().bits() as usize)));
        // SAFETY: as for the values; the function is alive.
        let result = unsafe { call_native(self.function, values) };
        BORROWED.with_borrow_mut(Vec::clear);
        result
    }
}

/// Calls a native function on a thread of the pool. Meanwhile, this thread runs the JavaScript functions that other threads call, so
/// a function that waits for such a thread does not wait forever.
#[cold]
fn call_blocking(js: Js<'_>, function: *mut TVMFFIObject, values: &[Any]) -> Result<Any, Error> {
    let result = std::sync::Arc::new(std::sync::Mutex::new(None));
    let waiting = Waiting { function, values };
    let (shared, theirs) = (js.state.shared.clone(), result.clone());
    pool::spawn(
        move || {
            let done = waiting.run();
            *theirs.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(done);
            shared.notify();
        },
        pool::Urgency::Now,
    )?;
    let take = || result.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    let is_done = || result.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_some();
    // Other threads do not wait in vain, however long this takes.
    let was_native = js.state.shared.set_native(false);
    js.state.shared.serve_until(is_done, |job| callback::run_job(js, job, false));
    js.state.shared.set_native(was_native);
    take().unwrap_or_else(|| Err(Error::new("InternalError", "a call ended without a result")))
}

thread_local! {
    /// Addresses of the tensors that the call on this thread, which a thread of an environment waits for, has borrowed.
    static BORROWED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Makes a tensor of a typed array that native code has borrowed and is about to keep. JavaScript may detach the array later, so the
/// tensor has a copy. For any other borrowed tensor, `out` stays unchanged.
///
/// # Safety
/// Must be called by the runtime with a valid view and a writable pointer to a handle that is NULL.
pub(crate) unsafe extern "C" fn own_view(view: *mut DLTensor, out: *mut TVMFFIObjectHandle) -> c_int {
    let made = catch_unwind(|| {
        let is_lent = state::lent_here().iter().any(|lent| ptr::eq(lent.tensor, view));
        if !is_lent && !BORROWED.with_borrow(|all| all.contains(&view.addr())) {
            return Ok(None);
        }
        // SAFETY: the runtime passes a valid view.
        let dl = unsafe { &*view };
        // SAFETY: the view is valid during this call.
        tensor::copy_of(&unsafe { TensorView::from_dl(dl) }).map(Some)
    });
    match made {
        Ok(Ok(tensor)) => {
            if let Some(tensor) = tensor {
                // SAFETY: the runtime passes a writable pointer.
                unsafe { out.write(tensor.into_object().into_handle()) };
            }
            0
        }
        Ok(Err(error)) => {
            error.raise();
            -1
        }
        Err(_) => {
            Error::new("InternalError", "panic while a tensor was copied").raise();
            -1
        }
    }
}
