//! Calls from JavaScript to native functions.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::catch_unwind;
use std::ptr;

use anyfn::abi::{
    AnyfnFunctionExt, DLTensor, FUNCTION_FLAG_BLOCKING, OBJECT_FLAG_FUNCTION_EXT, TVMFFIAny,
    TVMFFIFunctionCell, TVMFFIObject, TVMFFIObjectHandle, kTVMFFIFunction, kTVMFFIRawStr,
};
use anyfn::{Any, Error, TensorView};

use crate::callee::Callee;
use crate::entry::{Data, FEW, SOME, arg, enter, entry};
use crate::env::{Res, Value};
use crate::lower::{self, Arrays, Views};
use crate::state::{BORROWED_TENSOR, Js, Lent, State};
use crate::{callback, js_function, pool, slots, state, sys, tensor};

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

/// Number of arguments that a call of a function by itself reads at once.
const DIRECT: usize = 4;

/// Error message for a call of a function that was released.
const RELEASED: &str = "this function was disposed of, or belongs to another thread";

impl Data for Callee {
    #[inline]
    fn state(&self) -> &State {
        // SAFETY: the state lives as long as the environment, which this function belongs to.
        unsafe { &*self.state.cast::<State>() }
    }
}

/// Calls the native function that a JavaScript function has as its data.
pub(crate) unsafe extern "C" fn call_direct(
    env: *mut sys::Env,
    info: *mut sys::CallbackInfo,
) -> *mut sys::Value {
    // SAFETY: Node.js calls this function; the table of slots keeps the data until no JavaScript function refers to it and no call is in
    // progress.
    unsafe { enter::<_, DIRECT>(env, info, call_callee) }
}

#[inline]
fn call_callee(js: Js<'_>, callee: &Callee, args: &[Value]) -> Res<Value> {
    let Some(function) = callee.begin() else { return js.env.error(RELEASED) };
    let mut result = TVMFFIAny::NONE;
    let called = call_object(js, function, args, &mut result);
    callee.end();
    called?;
    lift_result(js, &result, false)
}

#[inline]
fn call_slot(js: Js<'_>, args: &[Value], big: bool) -> Res<Value> {
    let Some((slot, args)) = args.split_first() else { return js.env.type_error("expected a slot") };
    let slot = js.env.number(*slot)?;
    let (index, handle) = {
        let mut slots = js.state.slots.borrow_mut();
        let Some((index, object)) = slots.get(slot) else {
            drop(slots);
            return js.env.error(RELEASED);
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
    let called = call_object(js, handle, args, &mut result);
    let released = js.state.slots.borrow_mut().unpin(index);
    if released.is_some() {
        slots::drop_released(js.env, released);
    }
    called?;
    lift_result(js, &result, big)
}

/// Converts the result of a call, an owned value that the caller does not use again.
#[inline]
fn lift_result(js: Js<'_>, result: &TVMFFIAny, big: bool) -> Res<Value> {
    if result.type_index < kTVMFFIRawStr {
        // The value owns nothing, and is not moved.
        return js.lift_result(result, big);
    }
    // SAFETY: the result is an owned value, which the caller gives away.
    js.lift_owned(unsafe { Any::from_raw(*result) }, big)
}

/// Arguments of a call, in memory of the caller. They are written there one by one: values that are moved together after parts of them
/// were written cost the processor a stall.
struct Values<'a> {
    places: &'a mut [MaybeUninit<Any>],
    /// Number of places that contain a value.
    used: usize,
}

impl Values<'_> {
    /// Adds None, and returns its address. The number of places is that of the arguments.
    #[inline]
    fn add(&mut self) -> &mut Any {
        let value = self.places[self.used].write(Any::NONE);
        self.used += 1;
        value
    }

    #[inline]
    fn as_slice(&self) -> &[Any] {
        let values: *const Any = self.places.as_ptr().cast();
        // SAFETY: the first `used` places contain values.
        unsafe { std::slice::from_raw_parts(values, self.used) }
    }
}

impl Drop for Values<'_> {
    #[inline]
    fn drop(&mut self) {
        for value in &mut self.places[..self.used] {
            // SAFETY: this place contains a value, which is not used again.
            unsafe { value.assume_init_drop() };
        }
    }
}

/// Calls a function, which the caller keeps alive. `result` receives an owned value.
#[inline]
fn call_object(js: Js<'_>, function: *mut TVMFFIObject, args: &[Value], result: &mut TVMFFIAny) -> Res<()> {
    if args.len() > FEW {
        return call_with_many(js, function, args, result);
    }
    let mut numbers = [const { MaybeUninit::uninit() }; FEW];
    let mut count = 0;
    for (number, arg) in numbers.iter_mut().zip(args) {
        let Ok(value) = js.env.to_double(*arg) else { break };
        number.write(lower::number(value));
        count += 1;
    }
    if count < args.len() || is_blocking(function) {
        return call_with_few(js, function, args, count, result);
    }
    // Nothing is owned or lent.
    let was_native = js.state.shared.set_native(true);
    // SAFETY: the caller keeps the function alive, and the loop has written as many values as there are arguments.
    let code = unsafe { call_into(function, numbers.as_ptr().cast(), count, result) };
    js.state.shared.set_native(was_native);
    if code == 0 {
        return Ok(());
    }
    Err(js.throw(Error::take_raised()))
}

/// Calls a function with at most [`FEW`] arguments, of which the first `numbers` are numbers and the next is not.
#[inline(never)]
fn call_with_few(
    js: Js<'_>,
    function: *mut TVMFFIObject,
    args: &[Value],
    numbers: usize,
    result: &mut TVMFFIAny,
) -> Res<()> {
    let mut places = [const { MaybeUninit::uninit() }; FEW];
    call_with(js, function, args, numbers, &mut places, result)
}

#[inline(never)]
fn call_with_many(js: Js<'_>, function: *mut TVMFFIObject, args: &[Value], result: &mut TVMFFIAny) -> Res<()> {
    if args.len() < SOME {
        let mut places = [const { MaybeUninit::uninit() }; SOME - 1];
        return call_with(js, function, args, usize::MAX, &mut places, result);
    }
    let mut places = Vec::new();
    places.resize_with(args.len(), MaybeUninit::uninit);
    call_with(js, function, args, usize::MAX, &mut places, result)
}

/// Calls a function with arguments, which are converted into `places` first, at least as many. The caller keeps the function alive.
/// `result` receives an owned value. `other` is the index of an argument that is known to be no number.
#[inline]
fn call_with(
    js: Js<'_>,
    function: *mut TVMFFIObject,
    args: &[Value],
    other: usize,
    places: &mut [MaybeUninit<Any>],
    result: &mut TVMFFIAny,
) -> Res<()> {
    let mut views = Views::new();
    let mut values = Values { places, used: 0 };
    for (index, arg) in args.iter().enumerate() {
        let (arrays, out) = (&mut Arrays::Lend(&mut views), values.add());
        if index == other {
            *out = js.lower(*arg, arrays)?;
        } else {
            js.lower_into(*arg, arrays, out)?;
        }
    }
    let values = values.as_slice();
    let mut before = 0;
    if !views.is_empty() {
        if args.len() > 1 {
            check_unchanged(js, &views)?;
        }
        let is_held = !is_own_function(js, function);
        before = js.state.lent.borrow().len();
        let entries =
            views.iter().map(|view| Lent { tensor: &raw const view.tensor, array: view.array, is_held });
        js.state.lent.borrow_mut().extend(entries);
    }
    let was_native = js.state.shared.set_native(true);
    let code = if is_blocking(function) {
        call_blocking(js, function, values, result)
    } else {
        // SAFETY: the caller keeps the function alive, and the values are valid views for the call.
        unsafe { call_into(function, values.as_ptr().cast(), values.len(), result) }
    };
    js.state.shared.set_native(was_native);
    if !views.is_empty() {
        js.state.lent.borrow_mut().truncate(before);
    }
    if code == 0 {
        return Ok(());
    }
    Err(js.throw(Error::take_raised()))
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
    if unsafe { call_into(function, values.as_ptr().cast(), values.len(), &mut result) } != 0 {
        return Err(Error::take_raised());
    }
    // SAFETY: on success the result is an owned value.
    Ok(unsafe { Any::from_raw(result) })
}

/// Calls a native function on this thread. On success, returns 0 and stores an owned value in `result`, which must be None before.
///
/// # Safety
/// `function` must be a live function object, and `args` the address of `count` valid values.
#[inline]
unsafe fn call_into(
    function: *mut TVMFFIObject,
    args: *const TVMFFIAny,
    count: usize,
    result: &mut TVMFFIAny,
) -> c_int {
    // SAFETY: a function object has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { function.add(1) }.cast();
    // SAFETY: the object is alive, and its cell never changes.
    let safe_call = unsafe { (*cell).safe_call };
    // SAFETY: guaranteed by the caller; the result holds no value.
    unsafe { safe_call(function.cast::<c_void>(), args, count as i32, result) }
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
fn call_blocking(js: Js<'_>, function: *mut TVMFFIObject, values: &[Any], result: &mut TVMFFIAny) -> c_int {
    match wait_for_call(js, function, values) {
        Ok(value) => {
            *result = value.into_raw();
            0
        }
        Err(error) => {
            error.raise();
            -1
        }
    }
}

fn wait_for_call(js: Js<'_>, function: *mut TVMFFIObject, values: &[Any]) -> Result<Any, Error> {
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
