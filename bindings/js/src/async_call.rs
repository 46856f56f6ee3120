//! Calls whose results JavaScript receives as promises, on threads of the pool.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyfn::abi::{TVMFFIEnvRegisterCAPI, kTVMFFIFunction};
use anyfn::{Any, Error};

use crate::entry::{arg, entry};
use crate::env::Res;
use crate::lower::Arrays;
use crate::shared::Finished;
use crate::state::Js;
use crate::{calls, pool};

thread_local! {
    /// Tokens of the asynchronous calls in progress on this thread, innermost last. A token is true if its call was cancelled.
    static CURRENT: RefCell<Vec<Arc<AtomicBool>>> = const { RefCell::new(Vec::new()) };
    /// Tokens of the calls whose promises are not settled, by number.
    static TOKENS: RefCell<(f64, HashMap<u64, Arc<AtomicBool>>)> = RefCell::new((0.0, HashMap::new()));
}

const NO_ARRAYS: &str = "callAsync cannot lend a typed array, because JavaScript goes on during the call; pass a tensor (`anyfn.tensor(array)`)";

entry! {
    /// `callAsync(slot, args, big) -> [promise, number]`: calls the function of a slot on a thread of the pool.
    fn call_async(js: Js<'_>, args: &[Value]) {
        let function = js.object_at(arg(js, args, 0)?)?;
        if function.type_index() != kTVMFFIFunction {
            return js.env.type_error("this object is not a function");
        }
        let mut values = Vec::new();
        for value in js.env.elements(arg(js, args, 1)?)? {
            values.push(js.lower(value, &mut Arrays::Refuse(NO_ARRAYS))?);
        }
        let big = js.env.is_true(arg(js, args, 2)?);
        let (deferred, promise) = js.env.promise()?;
        let token = Arc::new(AtomicBool::new(false));
        let number = TOKENS.with_borrow_mut(|(last, tokens)| {
            *last += 1.0;
            tokens.insert(*last as u64, token.clone());
            *last
        });
        let shared = js.state.shared.clone();
        let started = pool::spawn(
            move || {
                let result = run(&function, &values, token);
                drop(values);
                drop(function);
                shared.finish(Finished { deferred, number: number as u64, big, result });
            },
            pool::Urgency::Later,
        );
        if let Err(error) = started {
            return Err(js.throw(error));
        }
        js.state.pending.set(js.state.pending.get() + 1);
        if js.state.pending.get() == 1 {
            js.env.keep_alive(js.state.waker.get(), true);
        }
        let number = js.env.double(number)?;
        js.env.array(&[promise, number])
    }
}

fn run(function: &anyfn::ObjectRef, values: &[Any], token: Arc<AtomicBool>) -> Result<Any, Error> {
    if token.load(Ordering::Relaxed) {
        return Err(cancelled());
    }
    CURRENT.with_borrow_mut(|tokens| tokens.push(token));
    // SAFETY: the reference keeps the function alive, and the values are valid.
    let result = unsafe { calls::call_native(function.as_handle().cast(), values) };
    CURRENT.with_borrow_mut(Vec::pop);
    result
}

entry! {
    /// `cancel(number)`: cancels an asynchronous call. Native code notices when it checks for signals.
    fn cancel(js: Js<'_>, args: &[Value]) {
        let number = js.env.number(arg(js, args, 0)?)?;
        TOKENS.with_borrow(|(_, tokens)| {
            if let Some(token) = tokens.get(&(number as u64)) {
                token.store(true, Ordering::Relaxed);
            }
        });
        js.env.undefined()
    }
}

/// Settles the promises of calls that have ended.
pub(crate) fn settle_finished(js: Js<'_>) {
    for finished in js.state.shared.take_finished() {
        TOKENS.with_borrow_mut(|(_, tokens)| tokens.remove(&finished.number));
        js.state.pending.set(js.state.pending.get().saturating_sub(1));
        if js.state.pending.get() == 0 {
            js.env.keep_alive(js.state.waker.get(), false);
        }
        let settled: Res<()> = js.env.scoped(|| {
            let lifted = match finished.result {
                Ok(value) => js.lift_owned(value, finished.big),
                Err(error) => Err(js.throw(error)),
            };
            match lifted {
                Ok(value) => js.env.resolve(finished.deferred, value),
                Err(_) => {
                    if let Some(exception) = js.env.take_exception() {
                        js.env.reject(finished.deferred, exception);
                    }
                }
            }
        });
        // A scope cannot be opened in an environment that is being terminated.
        let _ = settled;
    }
}

fn cancelled() -> Error {
    Error::new("CancelledError", "the call was cancelled")
}

/// Registers the functions by which native code learns that its call was cancelled, and keeps borrowed tensors.
pub(crate) fn register_hooks() {
    let functions: [(&CStr, *mut c_void); 4] = [
        (c"AnyfnTensorOwner", calls::own_view as *mut _),
        (c"PyErr_CheckSignals", check_signals as *mut _),
        (c"PyGILState_Ensure", ensure as *mut _),
        (c"PyGILState_Release", release as *mut _),
    ];
    for (name, function) in functions {
        // SAFETY: the runtime copies the name and calls the function with the type that the function of this name has.
        if unsafe { TVMFFIEnvRegisterCAPI(name.as_ptr(), function) } != 0 {
            // Native loops then do not notice that their calls were cancelled; nothing else depends on it.
            drop(Error::take_raised());
        }
    }
}

extern "C" fn check_signals() -> c_int {
    let stopped =
        CURRENT.try_with(|tokens| tokens.borrow().last().is_some_and(|token| token.load(Ordering::Relaxed)));
    if stopped.unwrap_or(false) {
        cancelled().raise();
        return -1;
    }
    0
}

extern "C" fn ensure() -> c_int {
    0
}

extern "C" fn release(_: c_int) {}
