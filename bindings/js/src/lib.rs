//! The Node.js addon of anyfn.
//!
//! The addon is a client of the packaged runtime: when the package loads it, it opens `libanyfn.so` and calls it through the function
//! table ([`anyfn_attach`]). It contains what must be fast or needs C: calls in both directions, conversions, threads. The rest is
//! written in JavaScript, in `lib/`, over the functions that this addon exports, so that another implementation of them can take
//! the place of the addon.
//!
//! Each module uses only those above it:
//!
//! 1. [`sys`], [`env`] (the layer over Node-API)
//! 2. [`shared`] (what all threads use of an environment), [`js_function`], [`callee`], [`slots`], [`state`]
//! 3. [`lift`], [`lower`], [`error`] (conversions, methods of [`state::Js`]), [`entry`] (functions that JavaScript calls), [`pool`]
//! 4. [`tensor`], [`callback`], [`calls`], [`async_call`], [`objects`]
//!
//! Invariants: nothing unwinds into Node.js. No table is borrowed and no lock is held while JavaScript code or a deleter runs. No
//! address of a JavaScript buffer is kept after the call to which it was passed, and no callback runs while native code has the address
//! of one that can be detached.

mod async_call;
mod callback;
mod callee;
mod calls;
mod entry;
mod env;
mod error;
mod js_function;
mod lift;
mod lower;
mod objects;
mod pool;
mod shared;
mod slots;
mod state;
mod sys;
mod tensor;

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

use crate::entry::{Export, arg, entry};
use crate::env::{Env, Ref, Res, Value, Waker};
use crate::shared::Shared;
use crate::slots::Slots;
use crate::state::{Hooks, Js, State};

/// Functions that this module exports.
const EXPORTS: &[Export] = &[
    ("attach", attach),
    ("init", init),
    ("call", calls::call),
    ("callBig", calls::call_big),
    ("apply", calls::apply),
    ("callAsync", async_call::call_async),
    ("cancel", async_call::cancel),
    ("settle", callback::settle),
];

/// Version of Node-API that the addon uses. Node.js reads it before it initialises the addon.
#[unsafe(no_mangle)]
extern "C" fn node_api_module_get_api_version_v1() -> i32 {
    8
}

/// Initialises the addon in an environment.
///
/// # Safety
/// Must be called by Node.js.
#[unsafe(no_mangle)]
unsafe extern "C" fn napi_register_module_v1(env: *mut sys::Env, exports: *mut sys::Value) -> *mut sys::Value {
    js_function::init(callback::safe_call);
    let state = Box::into_raw(Box::new(State {
        shared: Arc::new(Shared::new(env)),
        hooks: Hooks::default(),
        slots: RefCell::new(Slots::default()),
        lent: RefCell::new(Vec::new()),
        pending: Cell::new(0),
        waker: Cell::new(Waker::NONE),
    }));
    // SAFETY: the state was made above, and lives until the environment ends.
    let state_of_env = unsafe { &*state };
    // SAFETY: Node.js calls this function on the thread of the environment.
    let js = Js { env: unsafe { Env::from_raw(env) }, state: state_of_env };
    // A failure leaves an exception pending, which the caller of `require` receives.
    let _ = register(js, state, Value::from_ptr(exports));
    exports
}

fn register(js: Js<'_>, state: *mut State, exports: Value) -> Res<()> {
    // SAFETY: the state lives until `free_state` frees it.
    unsafe { js.env.set_data(state.cast(), free_state) }?;
    // SAFETY: the state is freed after all hooks have run.
    unsafe { js.env.add_cleanup_hook(close, state.cast()) }?;
    // SAFETY: the state lives as long as the environment, and no thread uses the function after `close`.
    let waker = unsafe { js.env.threadsafe_function(work, state.cast()) }?;
    js.state.waker.set(waker);
    js.state.shared.set_waker(waker);
    js.state.shared.set_state(state.cast());
    state::enter_thread(state);
    for functions in [EXPORTS, objects::EXPORTS, tensor::EXPORTS] {
        entry::add(js, exports, functions)?;
    }
    Ok(())
}

/// Runs, in the event loop, the work that other threads have posted.
unsafe extern "C" fn work(
    env: *mut sys::Env,
    _callback: *mut sys::Value,
    context: *mut c_void,
    _data: *mut c_void,
) {
    if env.is_null() {
        // The environment is ending; `close` has ended all work.
        return;
    }
    // SAFETY: Node.js calls this function on the thread of the environment, in a handle scope.
    let env = unsafe { Env::from_raw(env) };
    // SAFETY: the context is the state, which lives as long as the environment.
    let js = Js { env, state: unsafe { &*context.cast::<State>() } };
    for reference in js.state.shared.take_deletions() {
        js.env.delete(reference);
    }
    while let Some(job) = js.state.shared.take_job() {
        callback::run_job(js, job, true);
    }
    async_call::settle_finished(js);
}

/// Ends the use of an environment, before Node.js takes it down.
unsafe extern "C" fn close(state: *mut c_void) {
    // SAFETY: the state is freed later.
    let state = unsafe { &*state.cast::<State>() };
    state.shared.close();
    state::leave_thread(state);
    let objects = state.slots.borrow_mut().take_all();
    drop(objects);
}

/// Frees the state of an environment.
unsafe extern "C" fn free_state(_env: *mut sys::Env, state: *mut c_void, _hint: *mut c_void) {
    // SAFETY: the state was made by `napi_register_module_v1`, and Node.js calls this function once, at the end.
    drop(unsafe { Box::from_raw(state.cast::<State>()) });
}

entry! {
    /// `attach(path)`: opens the runtime library. Further environments of the process use the same library.
    fn attach(js: Js<'_>, args: &[Value]) {
        let path = js.env.to_text(arg(js, args, 0)?)?;
        if let Err(error) = anyfn_attach::attach(Path::new(&path)) {
            return js.env.error(&error.to_string());
        }
        async_call::register_hooks();
        js.env.undefined()
    }
}

entry! {
    /// `init(hooks)`: sets the values of the package that native code uses.
    fn init(js: Js<'_>, args: &[Value]) {
        let object = arg(js, args, 0)?;
        let hooks = &js.state.hooks;
        let all: [(&std::ffi::CStr, &Cell<Option<Ref>>); 9] = [
            (c"tag", &hooks.tag),
            (c"content", &hooks.content),
            (c"wrap", &hooks.wrap),
            (c"word", &hooks.word),
            (c"bytes", &hooks.bytes),
            (c"isBytes", &hooks.is_bytes),
            (c"convert", &hooks.convert),
            (c"describe", &hooks.describe),
            (c"watch", &hooks.watch),
        ];
        for (name, hook) in all {
            let value = js.env.named(object, name)?;
            if let Some(old) = hook.replace(Some(js.env.strong(value)?)) {
                js.env.delete(old);
            }
        }
        js.env.undefined()
    }
}
