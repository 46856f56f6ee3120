//! Entry points from JavaScript: arguments, panics, and the functions of the addon.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::env::{Env, Res, Value};
use crate::state::{Js, State};
use crate::sys;

/// Number of arguments that functions of the addon read at once: few, because the engine fills the places of omitted ones.
pub(crate) const FEW: usize = 5;
/// Number of arguments that are read without an allocation.
pub(crate) const SOME: usize = 17;

/// Declares a function that JavaScript calls: `(js, args) -> Res<Value>`.
macro_rules! entry {
    ($(#[$doc:meta])* fn $name:ident($js:ident: Js<'_>, $args:ident: &[Value]) $body:block) => {
        $(#[$doc])*
        pub(crate) unsafe extern "C" fn $name(
            env: *mut $crate::sys::Env,
            info: *mut $crate::sys::CallbackInfo,
        ) -> *mut $crate::sys::Value {
            #[inline]
            fn body($js: $crate::state::Js<'_>, $args: &[$crate::env::Value]) -> $crate::env::Res<$crate::env::Value> $body
            // SAFETY: Node.js calls this function, with the state of the environment as its data.
            unsafe { $crate::entry::enter::<_, { $crate::entry::FEW }>(env, info, |js, _: &$crate::state::State, args| body(js, args)) }
        }
    };
}
pub(crate) use entry;

/// The data of a function that JavaScript calls.
pub(crate) trait Data {
    /// Returns the state of the environment.
    fn state(&self) -> &State;
}

impl Data for State {
    #[inline]
    fn state(&self) -> &State {
        self
    }
}

/// Runs the body of an entry point. `N` arguments are read at once. Panics become exceptions.
///
/// # Safety
/// Must be called by Node.js. The data of the function must be the address of a `D` that lives until the body has returned.
#[inline]
pub(crate) unsafe fn enter<D: Data, const N: usize>(
    env: *mut sys::Env,
    info: *mut sys::CallbackInfo,
    body: impl FnOnce(Js<'_>, &D, &[Value]) -> Res<Value>,
) -> *mut sys::Value {
    let mut few = [Value::NONE; N];
    let (mut count, mut data) = (N, ptr::null_mut());
    // SAFETY: the array has `count` elements, and `Value` has the layout of a pointer.
    let status = unsafe {
        sys::napi_get_cb_info(env, info, &mut count, few.as_mut_ptr().cast(), ptr::null_mut(), &mut data)
    };
    if status != sys::OK || data.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: Node.js calls this function on the thread of the environment.
    let env_of_call = unsafe { Env::from_raw(env) };
    // SAFETY: guaranteed by the caller.
    let data = unsafe { &*data.cast::<D>() };
    let js = Js { env: env_of_call, state: data.state() };
    let done = catch_unwind(AssertUnwindSafe(|| {
        if count <= N {
            return body(js, data, &few[..count]);
        }
        // The longer arrays are in a function of their own, for the sake of the stack of other calls.
        // SAFETY: the caller passes the arguments of a call in progress, of which there are `count`.
        unsafe { enter_with_many(js, info, count, |args| body(js, data, args)) }
    }));
    match done {
        Ok(Ok(value)) => value.as_ptr(),
        Ok(Err(_)) => {
            // An exception is pending, the environment is being terminated, or the engine has refused an operation without an exception.
            if !env_of_call.is_exception_pending() {
                let _ = env_of_call.error::<()>("the JavaScript engine has refused to make or to read a value");
            }
            ptr::null_mut()
        }
        Err(payload) => {
            let _ = env_of_call.error::<()>(&format!("panic in the addon of anyfn: {}", panic_text(&*payload)));
            ptr::null_mut()
        }
    }
}

/// Runs the body of an entry point with more arguments than are read at once.
///
/// # Safety
/// `info` must be that of a call in progress with `count` arguments.
#[cold]
#[inline(never)]
unsafe fn enter_with_many(
    js: Js<'_>,
    info: *mut sys::CallbackInfo,
    mut count: usize,
    body: impl FnOnce(&[Value]) -> Res<Value>,
) -> Res<Value> {
    let mut some = [Value::NONE; SOME];
    let mut all = Vec::new();
    let args: &mut [Value] = match some.get_mut(..count) {
        Some(args) => args,
        None => {
            all.resize(count, Value::NONE);
            &mut all
        }
    };
    let (env, none) = (js.env.as_raw(), ptr::null_mut());
    // SAFETY: the array has `count` elements, and `Value` has the layout of a pointer.
    unsafe { sys::napi_get_cb_info(env, info, &mut count, args.as_mut_ptr().cast(), none, ptr::null_mut()) };
    body(args)
}

/// Returns the message of a panic.
pub(crate) fn panic_text(payload: &(dyn std::any::Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "unknown reason",
    }
}

/// Returns an argument; `undefined` if it is missing.
pub(crate) fn arg(js: Js<'_>, args: &[Value], index: usize) -> Res<Value> {
    match args.get(index) {
        Some(value) => Ok(*value),
        None => js.env.undefined(),
    }
}

/// A function of the addon, with its name.
pub(crate) type Export = (&'static str, sys::Callback);

/// Adds functions to the exports of the addon.
pub(crate) fn add(js: Js<'_>, exports: Value, functions: &[Export]) -> Res<()> {
    let data: *mut c_void = ptr::from_ref(js.state).cast_mut().cast();
    for (name, callback) in functions {
        let function = js.env.function(name, *callback, data)?;
        let key = js.env.string(name.as_bytes())?;
        js.env.set_property(exports, key, function)?;
    }
    Ok(())
}
