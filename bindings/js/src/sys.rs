//! Declarations of the functions of Node-API that this addon uses, in the version 8 that Node.js 18 implements.
//!
//! The process that loads the addon defines the functions, so building the addon needs neither the headers of Node.js nor a library.

use std::ffi::{c_char, c_void};

/// Declares a type whose values are only used through pointers.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])* #[repr(C)] pub(crate) struct $name { _private: [u8; 0] })*
    };
}

opaque! {
    /// An environment: an instance of the JavaScript engine in which the addon is loaded.
    Env;
    /// A JavaScript value in a handle scope.
    Value;
    /// A reference to a JavaScript value that outlives handle scopes.
    Ref;
    /// The arguments of a call from JavaScript.
    CallbackInfo;
    /// A scope whose end releases the values that were created in it.
    HandleScope;
    /// A queue that runs a function on the thread of an environment.
    ThreadsafeFunction;
    /// The functions that settle a promise.
    Deferred;
}

/// Status code of a function.
pub(crate) type Status = i32;
pub(crate) const OK: Status = 0;

/// Function that JavaScript calls.
pub(crate) type Callback = unsafe extern "C" fn(env: *mut Env, info: *mut CallbackInfo) -> *mut Value;
/// Function that runs when its data is no longer used.
pub(crate) type Finalize = unsafe extern "C" fn(env: *mut Env, data: *mut c_void, hint: *mut c_void);
/// Function that runs on the thread of an environment; `env` is NULL while the environment ends.
pub(crate) type CallJs =
    unsafe extern "C" fn(env: *mut Env, callback: *mut Value, context: *mut c_void, data: *mut c_void);

/// Types of JavaScript values.
pub(crate) mod value_type {
    pub(crate) const UNDEFINED: i32 = 0;
    pub(crate) const NULL: i32 = 1;
    pub(crate) const BOOLEAN: i32 = 2;
    pub(crate) const NUMBER: i32 = 3;
    pub(crate) const STRING: i32 = 4;
    pub(crate) const OBJECT: i32 = 6;
    pub(crate) const FUNCTION: i32 = 7;
    pub(crate) const BIGINT: i32 = 9;
}

/// Types of typed arrays.
pub(crate) mod array_type {
    pub(crate) const UINT8: i32 = 1;
    pub(crate) const UINT8_CLAMPED: i32 = 2;
}

macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        unsafe extern "C" {
            $(pub(crate) fn $name(env: *mut Env, $($arg: $ty),*) -> Status;)*
        }
    };
}

functions! {
    fn napi_get_undefined(result: *mut *mut Value);
    fn napi_get_null(result: *mut *mut Value);
    fn napi_get_boolean(value: bool, result: *mut *mut Value);
    fn napi_create_array_with_length(length: usize, result: *mut *mut Value);
    fn napi_create_double(value: f64, result: *mut *mut Value);
    fn napi_create_int32(value: i32, result: *mut *mut Value);
    fn napi_create_bigint_int64(value: i64, result: *mut *mut Value);
    fn napi_create_bigint_uint64(value: u64, result: *mut *mut Value);
    fn napi_create_bigint_words(negative: i32, count: usize, words: *const u64, result: *mut *mut Value);
    fn napi_create_string_utf8(text: *const c_char, length: usize, result: *mut *mut Value);
    fn napi_create_string_latin1(text: *const c_char, length: usize, result: *mut *mut Value);
    fn napi_create_function(
        name: *const c_char,
        length: usize,
        callback: Callback,
        data: *mut c_void,
        result: *mut *mut Value,
    );
    fn napi_create_error(code: *mut Value, message: *mut Value, result: *mut *mut Value);
    fn napi_create_type_error(code: *mut Value, message: *mut Value, result: *mut *mut Value);
    fn napi_create_range_error(code: *mut Value, message: *mut Value, result: *mut *mut Value);
    fn napi_create_arraybuffer(length: usize, data: *mut *mut c_void, result: *mut *mut Value);
    fn napi_create_external_arraybuffer(
        data: *mut c_void,
        length: usize,
        finalize: Option<Finalize>,
        hint: *mut c_void,
        result: *mut *mut Value,
    );
    fn napi_typeof(value: *mut Value, result: *mut i32);
    fn napi_get_value_double(value: *mut Value, result: *mut f64);
    fn napi_get_value_bool(value: *mut Value, result: *mut bool);
    fn napi_get_value_bigint_int64(value: *mut Value, result: *mut i64, lossless: *mut bool);
    fn napi_get_value_bigint_uint64(value: *mut Value, result: *mut u64, lossless: *mut bool);
    fn napi_get_value_bigint_words(value: *mut Value, negative: *mut i32, count: *mut usize, words: *mut u64);
    fn napi_get_value_string_utf8(value: *mut Value, buffer: *mut c_char, size: usize, result: *mut usize);
    fn napi_get_value_string_utf16(value: *mut Value, buffer: *mut u16, size: usize, result: *mut usize);
    fn napi_get_property(object: *mut Value, key: *mut Value, result: *mut *mut Value);
    fn napi_set_property(object: *mut Value, key: *mut Value, value: *mut Value);
    fn napi_set_element(object: *mut Value, index: u32, value: *mut Value);
    fn napi_get_element(object: *mut Value, index: u32, result: *mut *mut Value);
    fn napi_get_array_length(value: *mut Value, result: *mut u32);
    fn napi_get_named_property(object: *mut Value, name: *const c_char, result: *mut *mut Value);
    fn napi_is_error(value: *mut Value, result: *mut bool);
    fn napi_is_array(value: *mut Value, result: *mut bool);
    fn napi_is_promise(value: *mut Value, result: *mut bool);
    fn napi_is_arraybuffer(value: *mut Value, result: *mut bool);
    fn napi_is_detached_arraybuffer(value: *mut Value, result: *mut bool);
    fn napi_get_typedarray_info(
        value: *mut Value,
        kind: *mut i32,
        length: *mut usize,
        data: *mut *mut c_void,
        buffer: *mut *mut Value,
        offset: *mut usize,
    );
    fn napi_get_arraybuffer_info(value: *mut Value, data: *mut *mut c_void, length: *mut usize);
    fn napi_call_function(
        this: *mut Value,
        function: *mut Value,
        count: usize,
        args: *const *mut Value,
        result: *mut *mut Value,
    );
    fn napi_get_cb_info(
        info: *mut CallbackInfo,
        count: *mut usize,
        args: *mut *mut Value,
        this: *mut *mut Value,
        data: *mut *mut c_void,
    );
    fn napi_throw(error: *mut Value);
    fn napi_is_exception_pending(result: *mut bool);
    fn napi_get_and_clear_last_exception(result: *mut *mut Value);
    fn napi_create_reference(value: *mut Value, count: u32, result: *mut *mut Ref);
    fn napi_delete_reference(reference: *mut Ref);
    fn napi_get_reference_value(reference: *mut Ref, result: *mut *mut Value);
    fn napi_open_handle_scope(result: *mut *mut HandleScope);
    fn napi_close_handle_scope(scope: *mut HandleScope);
    fn napi_adjust_external_memory(change: i64, result: *mut i64);
    fn napi_set_instance_data(data: *mut c_void, finalize: Option<Finalize>, hint: *mut c_void);
    fn napi_add_env_cleanup_hook(hook: unsafe extern "C" fn(data: *mut c_void), data: *mut c_void);
    fn napi_create_promise(deferred: *mut *mut Deferred, promise: *mut *mut Value);
    fn napi_resolve_deferred(deferred: *mut Deferred, value: *mut Value);
    fn napi_reject_deferred(deferred: *mut Deferred, value: *mut Value);
    fn napi_create_threadsafe_function(
        function: *mut Value,
        resource: *mut Value,
        name: *mut Value,
        queue_size_max: usize,
        threads: usize,
        finalize_data: *mut c_void,
        finalize: Option<Finalize>,
        context: *mut c_void,
        call_js: Option<CallJs>,
        result: *mut *mut ThreadsafeFunction,
    );
    fn napi_ref_threadsafe_function(function: *mut ThreadsafeFunction);
    fn napi_unref_threadsafe_function(function: *mut ThreadsafeFunction);
}

unsafe extern "C" {
    /// Wakes the thread of the environment; may be called on any thread.
    pub(crate) fn napi_call_threadsafe_function(
        function: *mut ThreadsafeFunction,
        data: *mut c_void,
        blocking: i32,
    ) -> Status;
}
