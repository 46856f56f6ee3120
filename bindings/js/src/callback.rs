//! Calls from native code to JavaScript functions.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use anyfn::abi::{DLTensor, TVMFFIAny, TVMFFIObject, kTVMFFIDLTensorPtr};
use anyfn::{Any, Error, TensorView};

use crate::entry::{arg, entry, panic_text};
use crate::env::{Env, Res, Value};
use crate::js_function::{self, JsFunction};
use crate::shared::{self, Copies, Job};
use crate::state::{Js, State};
use crate::{env, pool, state, tensor};

/// Calls the JavaScript function behind a native function. This is the `safe_call` of every [`JsFunction`].
///
/// # Safety
/// Must be called by native code according to the rules of the ABI; any thread may call it.
pub(crate) unsafe extern "C" fn safe_call(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    let called = catch_unwind(AssertUnwindSafe(|| {
        let Some(function) = js_function::from_handle(handle.cast()) else {
            return Err(Error::new("InternalError", "not a function of JavaScript"));
        };
        if !function.is_function {
            return Err(Error::new("TypeError", "a JavaScript value that is not a function was called"));
        }
        match function.shared.here() {
            // SAFETY: this is the thread of the environment, which has not ended, and the ABI passes valid arguments.
            Some((env, state)) => unsafe { call_here(env, state.cast(), function, args, num_args) },
            // A loop of JavaScript that is being terminated may call again before the engine notices.
            None if !state::is_running() => Err(shared::terminated()),
            None => {
                let mut waiting = None;
                function.shared.call(handle.cast(), args, num_args, || {
                    waiting.get_or_insert_with(pool::wait_for_javascript);
                    state::is_running()
                })
            }
        }
    }));
    let called = called.unwrap_or_else(|payload| Err(Error::new("InternalError", panic_text(&*payload))));
    match called {
        Ok(value) => {
            // SAFETY: the ABI passes a writable result that holds no value.
            unsafe { result.write(value.into_raw()) };
            0
        }
        Err(error) => {
            error.raise();
            -1
        }
    }
}

/// Calls a function on the thread of its environment.
///
/// # Safety
/// The caller must run on that thread, the environment must not have ended, and the arguments must be valid.
unsafe fn call_here(
    env: *mut crate::sys::Env,
    state: *const State,
    function: &JsFunction,
    args: *const TVMFFIAny,
    count: i32,
) -> Result<Any, Error> {
    // SAFETY: guaranteed by the caller; the scope is opened below.
    let env = unsafe { Env::from_raw(env) };
    // SAFETY: the state lives as long as the environment.
    let js = Js { env, state: unsafe { &*state } };
    // SAFETY: guaranteed by the caller.
    let args = unsafe { views(args, count) };
    let done = env.scoped(|| match invoke(js, function, args, None, false) {
        Ok(Outcome::Value(value)) => Ok(value),
        Ok(Outcome::Promise(..)) => Err(Error::new("InternalError", "unexpected promise")),
        Err(thrown) => Err(failed(js, thrown)),
    });
    done.unwrap_or_else(|thrown| Err(failed(js, thrown)))
}

fn failed(js: Js<'_>, _: env::Thrown) -> Error {
    js.take_error()
}

/// Returns the arguments of a call.
///
/// # Safety
/// `args` must be the address of `count` valid views.
unsafe fn views<'a>(args: *const TVMFFIAny, count: i32) -> &'a [TVMFFIAny] {
    let count = usize::try_from(count).unwrap_or_default();
    if count == 0 || args.is_null() {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(args, count) }
}

enum Outcome {
    Value(Any),
    Promise(Value, Copies),
}

/// Calls a JavaScript function with native arguments. With `awaits`, a promise is returned as such.
/// The arguments belong to a job, or to a caller on this thread.
fn invoke(
    js: Js<'_>,
    function: &JsFunction,
    args: &[TVMFFIAny],
    job: Option<&Job>,
    awaits: bool,
) -> Res<Outcome> {
    let big = function.big;
    check_lent(js)?;
    let Some(callee) = js.env.get(function.value) else { return js.env.error("the function is gone") };
    let mut inline = [Value::NONE; 8];
    let mut heap = Vec::new();
    let values: &mut [Value] = match inline.get_mut(..args.len()) {
        Some(values) => values,
        None => {
            heap.resize(args.len(), Value::NONE);
            &mut heap
        }
    };
    let mut copies = Copies::new();
    for (value, arg) in values.iter_mut().zip(args) {
        *value = match foreign_view(js, arg) {
            Some(view) => lift_copy(js, view, &mut copies)?,
            None => js.lift(arg, big)?,
        };
    }
    if let Some(job) = job {
        job.leave_args();
    }
    let result = js.env.call(callee, values)?;
    if job.is_some_and(|job| !job.use_args()) {
        return js.env.error("the caller of the function has ended");
    }
    let is_promise = js.env.is_promise(result);
    if is_promise && awaits {
        return Ok(Outcome::Promise(result, copies));
    }
    write_back(js, &copies)?;
    if is_promise {
        return js.env.type_error(
            "the function returned a promise, for which native code on the thread of the event loop cannot wait; call the native \
             function with callAsync, or return a value",
        );
    }
    js.lower_result(result, big).map(Outcome::Value)
}

/// Returns the address of a borrowed tensor that no call on this thread has lent.
#[inline]
fn foreign_view(js: Js<'_>, arg: &TVMFFIAny) -> Option<*const DLTensor> {
    if arg.type_index != kTVMFFIDLTensorPtr {
        return None;
    }
    // SAFETY: a borrowed tensor has its value in `v_ptr`.
    let tensor: *const DLTensor = unsafe { arg.value.v_ptr }.cast();
    (!tensor.is_null() && js.lent(tensor).is_none()).then_some(tensor)
}

/// Converts a borrowed tensor, which is valid only during the call, to a tensor that JavaScript may keep: a copy, which is written back
/// after the call.
#[cold]
fn lift_copy(js: Js<'_>, view: *const DLTensor, copies: &mut Copies) -> Res<Value> {
    // SAFETY: the caller of the function passes a valid tensor.
    let dl = unsafe { &*view };
    // SAFETY: the tensor stays valid until the call has ended.
    let borrowed = unsafe { TensorView::from_dl(dl) };
    match tensor::copy_of(&borrowed) {
        Ok(copy) => {
            let value = js.wrap(copy.clone().into_object())?;
            if !borrowed.is_read_only() {
                copies.push((view, copy));
            }
            Ok(value)
        }
        Err(error) => Err(js.throw(error)),
    }
}

/// Copies what JavaScript has written back to the borrowed tensors of a call that has not ended.
fn write_back(js: Js<'_>, copies: &Copies) -> Res<()> {
    for (view, copy) in copies {
        // SAFETY: the call has not ended, so the tensor is valid.
        let dl = unsafe { &**view };
        // SAFETY: the tensor stays valid until the call has ended.
        let borrowed = unsafe { TensorView::from_dl(dl) };
        let written = (|| {
            let bytes = copy.to_bytes()?;
            if borrowed.to_bytes()? != *bytes {
                borrowed.write_bytes()?.copy_from_slice(&bytes);
            }
            Ok(())
        })();
        written.map_err(|error| js.throw(error))?;
    }
    Ok(())
}

/// Throws if native code holds the address of memory that JavaScript code could detach or resize.
fn check_lent(js: Js<'_>) -> Res<()> {
    for lent in state::lent_here() {
        // The memory of a `SharedArrayBuffer` stays where it is as long as the array lives.
        if lent.is_held && js.env.is_array_buffer(js.env.typed_array(lent.array)?.buffer)? {
            return js.env.type_error(
                "native code cannot call JavaScript while it borrows an ArrayBuffer, which the callback could detach; pass a tensor \
                 (`anyfn.tensor(array)`), or an array over a SharedArrayBuffer",
            );
        }
    }
    Ok(())
}

/// Runs a job on the thread of its environment. With `awaits`, a promise is awaited.
pub(crate) fn run_job(js: Js<'_>, job: Arc<Job>, awaits: bool) {
    let handle: *mut TVMFFIObject = job.function;
    let Some(function) = js_function::from_handle(handle) else { return };
    // SAFETY: the thread that posted the job waits, so the arguments are valid.
    let args = unsafe { views(job.args, job.count) };
    let done = js.env.scoped(|| match invoke(js, function, args, Some(&job), awaits) {
        Ok(Outcome::Value(value)) => Some(Ok(value)),
        Ok(Outcome::Promise(promise, copies)) => match watch(js, promise, job.clone(), copies) {
            Ok(()) => None,
            Err(thrown) => Some(Err(failed(js, thrown))),
        },
        Err(thrown) => Some(Err(failed(js, thrown))),
    });
    let done = done.unwrap_or_else(|thrown| Some(Err(failed(js, thrown))));
    if let Some(result) = done {
        job.end(result);
    }
}

fn watch(js: Js<'_>, promise: Value, job: Arc<Job>, copies: Copies) -> Res<()> {
    *job.copies.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = copies;
    job.leave_args();
    let number = js.state.shared.promise(job);
    let number_value = js.env.double(number as f64)?;
    let watched = js.call_hook(&js.state.hooks.watch, &[promise, number_value]);
    if watched.is_err() {
        // The caller ends the job.
        drop(js.state.shared.take_promised(number));
    }
    watched.map(drop)
}

entry! {
    /// `settle(number, isFulfilled, value)`: ends a job whose function has returned a promise.
    fn settle(js: Js<'_>, args: &[Value]) {
        let number = js.env.number(arg(js, args, 0)?)?;
        let Some(job) = js.state.shared.take_promised(number as u64) else { return js.env.undefined() };
        if !job.use_args() {
            return js.env.undefined();
        }
        let value = arg(js, args, 2)?;
        let result = if js.env.is_true(arg(js, args, 1)?) {
            let big = js_function::from_handle(job.function).is_some_and(|function| function.big);
            let copies = std::mem::take(&mut *job.copies.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
            let result = write_back(js, &copies).and_then(|()| js.lower_result(value, big));
            result.map_err(|thrown| failed(js, thrown))
        } else {
            Err(js.error_of(value, 32))
        };
        job.end(result);
        js.env.undefined()
    }
}
