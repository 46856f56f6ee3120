//! The layer over Node-API: an environment whose thread the code runs on, JavaScript values and references, and the exception
//! that is pending while a function returns [`Thrown`].

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use crate::sys;

/// Marker of an operation that has failed and left an exception pending in the environment. An environment that is being
/// terminated rejects all operations; they return this marker, too.
#[derive(Debug)]
pub(crate) struct Thrown;

pub(crate) type Res<T> = Result<T, Thrown>;

/// Number of bytes of a string that every engine can represent.
const STRING_SAFE: usize = (1 << 28) - 16;

/// A JavaScript value. Valid until the end of the handle scope in which it was obtained.
#[derive(Clone, Copy, PartialEq)]
#[repr(transparent)]
pub(crate) struct Value(*mut sys::Value);

impl Value {
    pub(crate) const NONE: Value = Value(ptr::null_mut());

    pub(crate) fn from_ptr(value: *mut sys::Value) -> Value {
        Value(value)
    }

    /// Returns the pointer with which a callback returns this value to Node-API. NULL is `undefined`.
    pub(crate) fn as_ptr(self) -> *mut sys::Value {
        self.0
    }
}

/// An owned reference to a JavaScript value. It must be deleted on the thread of its environment ([`Env::delete`]).
#[derive(Clone, Copy)]
pub(crate) struct Ref(*mut sys::Ref);

impl Ref {
    pub(crate) const NONE: Ref = Ref(ptr::null_mut());

    pub(crate) fn is_none(self) -> bool {
        self.0.is_null()
    }
}

/// Memory that a typed array or an `ArrayBuffer` describes.
pub(crate) struct Memory {
    /// Address of the first byte. It may change, or be unmapped, when JavaScript code runs.
    pub(crate) data: *mut c_void,
    /// Number of elements of a typed array, or of bytes of an `ArrayBuffer`.
    pub(crate) length: usize,
    /// Kind of a typed array.
    pub(crate) kind: i32,
    /// The `ArrayBuffer` of a typed array.
    pub(crate) buffer: Value,
}

/// An environment, on whose thread the holder of this value runs. Functions create it when JavaScript calls them, or after they
/// have checked the thread.
#[derive(Clone, Copy)]
pub(crate) struct Env(*mut sys::Env);

/// Calls a function of Node-API, and returns [`Thrown`] if it fails.
macro_rules! call {
    ($env:expr, $function:ident($($arg:expr),* $(,)?)) => {{
        // SAFETY: an `Env` exists only on the thread of its environment; values come from the current handle scope, and
        // pointers refer to variables of the calling function.
        let status = unsafe { sys::$function($env.0, $($arg),*) };
        if status == sys::OK { Ok(()) } else { Err(Thrown) }
    }};
}

/// Calls a function of Node-API that creates a value.
macro_rules! make {
    ($env:expr, $function:ident($($arg:expr),* $(,)?)) => {{
        let mut value = ptr::null_mut();
        call!($env, $function($($arg,)* &mut value)).map(|()| Value(value))
    }};
}

impl Env {
    /// Returns the environment at an address that Node-API has passed.
    ///
    /// # Safety
    /// `env` must be an environment, and the caller must run on its thread, in a call from JavaScript or in a handle scope.
    pub(crate) unsafe fn from_raw(env: *mut sys::Env) -> Env {
        Env(env)
    }

    pub(crate) fn as_raw(self) -> *mut sys::Env {
        self.0
    }

    pub(crate) fn undefined(self) -> Res<Value> {
        make!(self, napi_get_undefined())
    }

    pub(crate) fn null(self) -> Res<Value> {
        make!(self, napi_get_null())
    }

    pub(crate) fn boolean(self, value: bool) -> Res<Value> {
        make!(self, napi_get_boolean(value))
    }

    pub(crate) fn double(self, value: f64) -> Res<Value> {
        make!(self, napi_create_double(value))
    }

    pub(crate) fn int32(self, value: i32) -> Res<Value> {
        make!(self, napi_create_int32(value))
    }

    pub(crate) fn bigint(self, value: i64) -> Res<Value> {
        make!(self, napi_create_bigint_int64(value))
    }

    pub(crate) fn bigint_unsigned(self, value: u64) -> Res<Value> {
        make!(self, napi_create_bigint_uint64(value))
    }

    /// Makes a bigint from 64-bit words of its absolute value, least significant first.
    pub(crate) fn bigint_of_words(self, negative: bool, words: &[u64]) -> Res<Value> {
        make!(self, napi_create_bigint_words(i32::from(negative), words.len(), words.as_ptr()))
    }

    /// Makes a string. Invalid UTF-8 is replaced by U+FFFD.
    pub(crate) fn string(self, text: &[u8]) -> Res<Value> {
        let data: *const c_char = text.as_ptr().cast();
        let made = match text.is_ascii() {
            true => make!(self, napi_create_string_latin1(data, text.len())),
            false => make!(self, napi_create_string_utf8(data, text.len())),
        };
        match made {
            Err(Thrown) if text.len() > STRING_SAFE => self.string_too_long(text.len()),
            made => made,
        }
    }

    /// Throws a `RangeError` about a string, unless another exception is pending. The engine refuses such strings without one.
    #[cold]
    fn string_too_long(self, length: usize) -> Res<Value> {
        if self.is_exception_pending() {
            return Err(Thrown);
        }
        self.range_error(&format!("a string of {length} bytes is too long for this JavaScript engine"))
    }

    /// Makes an array of values.
    pub(crate) fn array(self, values: &[Value]) -> Res<Value> {
        let array = make!(self, napi_create_array_with_length(values.len()))?;
        for (index, value) in (0..).zip(values) {
            call!(self, napi_set_element(array.0, index, value.0))?;
        }
        Ok(array)
    }

    /// Makes an array of values that `make` makes one by one.
    pub(crate) fn array_of<T>(
        self,
        items: impl IntoIterator<Item = T>,
        make: impl Fn(T) -> Res<Value>,
    ) -> Res<Value> {
        let array = make!(self, napi_create_array_with_length(0))?;
        for (index, item) in (0..).zip(items) {
            let value = make(item)?;
            call!(self, napi_set_element(array.0, index, value.0))?;
        }
        Ok(array)
    }

    /// Returns the elements of an array.
    pub(crate) fn elements(self, array: Value) -> Res<Vec<Value>> {
        let mut is_array = false;
        call!(self, napi_is_array(array.0, &mut is_array))?;
        if !is_array {
            return self.type_error("expected an array");
        }
        let mut length = 0;
        call!(self, napi_get_array_length(array.0, &mut length))?;
        (0..length).map(|index| make!(self, napi_get_element(array.0, index))).collect()
    }

    /// Makes a function that calls `callback` with `data`.
    pub(crate) fn function(self, name: &str, callback: sys::Callback, data: *mut c_void) -> Res<Value> {
        make!(self, napi_create_function(name.as_ptr().cast(), name.len(), callback, data))
    }

    /// Makes an `ArrayBuffer` that contains a copy of bytes.
    pub(crate) fn array_buffer(self, bytes: &[u8]) -> Res<Value> {
        let mut data = ptr::null_mut();
        let buffer = make!(self, napi_create_arraybuffer(bytes.len(), &mut data))?;
        if !bytes.is_empty() && !data.is_null() {
            // SAFETY: the new buffer has the size of the bytes, and nothing else knows it.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), data.cast(), bytes.len()) };
        }
        Ok(buffer)
    }

    /// Makes an `ArrayBuffer` whose memory belongs to native code. `finalize` is called with `hint` when the buffer is no
    /// longer used. Returns `None` if the host does not allow such buffers; the caller then keeps the ownership of `hint`.
    ///
    /// # Safety
    /// The memory must stay valid until `finalize` runs.
    pub(crate) unsafe fn external_buffer(
        self,
        data: *mut c_void,
        length: usize,
        finalize: sys::Finalize,
        hint: *mut c_void,
    ) -> Option<Value> {
        make!(self, napi_create_external_arraybuffer(data, length, Some(finalize), hint)).ok()
    }

    /// Returns the type of a value, one of [`sys::value_type`].
    pub(crate) fn type_of(self, value: Value) -> Res<i32> {
        let mut kind = 0;
        call!(self, napi_typeof(value.0, &mut kind))?;
        Ok(kind)
    }

    pub(crate) fn is_undefined(self, value: Value) -> bool {
        value == Value::NONE || self.type_of(value).is_ok_and(|kind| kind == sys::value_type::UNDEFINED)
    }

    pub(crate) fn is_true(self, value: Value) -> bool {
        self.to_bool(value).unwrap_or(false)
    }

    /// Returns a number. Fails, without an exception, for a value that is no number.
    pub(crate) fn to_double(self, value: Value) -> Res<f64> {
        let mut number = 0.0;
        call!(self, napi_get_value_double(value.0, &mut number))?;
        Ok(number)
    }

    /// Returns a number; throws a `TypeError` for any other value.
    pub(crate) fn number(self, value: Value) -> Res<f64> {
        match self.to_double(value) {
            Ok(number) => Ok(number),
            Err(Thrown) => self.type_error("expected a number"),
        }
    }

    pub(crate) fn to_bool(self, value: Value) -> Res<bool> {
        let mut flag = false;
        call!(self, napi_get_value_bool(value.0, &mut flag))?;
        Ok(flag)
    }

    /// Returns a bigint as a signed 64-bit integer, or `None` if it is out of range.
    pub(crate) fn to_int64(self, value: Value) -> Res<Option<i64>> {
        let (mut number, mut lossless) = (0, false);
        call!(self, napi_get_value_bigint_int64(value.0, &mut number, &mut lossless))?;
        Ok(lossless.then_some(number))
    }

    /// Returns the low 64 bits of a bigint.
    pub(crate) fn to_uint64(self, value: Value) -> Res<u64> {
        let (mut number, mut lossless) = (0, false);
        call!(self, napi_get_value_bigint_uint64(value.0, &mut number, &mut lossless))?;
        Ok(number)
    }

    /// Returns the sign of a bigint, and the 64-bit words of its absolute value, least significant first.
    pub(crate) fn to_words(self, value: Value) -> Res<(bool, Vec<u64>)> {
        let mut count = 0;
        call!(self, napi_get_value_bigint_words(value.0, ptr::null_mut(), &mut count, ptr::null_mut()))?;
        let (mut words, mut negative) = (vec![0; count], 0);
        call!(self, napi_get_value_bigint_words(value.0, &mut negative, &mut count, words.as_mut_ptr()))?;
        words.truncate(count);
        Ok((negative != 0, words))
    }

    /// Copies the UTF-8 form of a string into `buffer`. Returns the number of bytes. A string that does not fit is cut off:
    /// the result is then within three bytes of the size of the buffer.
    pub(crate) fn read_string(self, value: Value, buffer: &mut [u8]) -> Res<usize> {
        let mut length = 0;
        call!(
            self,
            napi_get_value_string_utf8(value.0, buffer.as_mut_ptr().cast(), buffer.len(), &mut length)
        )?;
        Ok(length)
    }

    /// Returns a string of any length as UTF-8, in which U+FFFD replaces lone surrogates.
    pub(crate) fn to_utf8(self, value: Value) -> Res<Vec<u8>> {
        let mut length = 0;
        call!(self, napi_get_value_string_utf8(value.0, ptr::null_mut(), 0, &mut length))?;
        let mut bytes = vec![0; length + 1];
        let length = self.read_string(value, &mut bytes)?;
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Returns a string as UTF-16.
    pub(crate) fn to_utf16(self, value: Value) -> Res<Vec<u16>> {
        let mut length = 0;
        call!(self, napi_get_value_string_utf16(value.0, ptr::null_mut(), 0, &mut length))?;
        let mut units = vec![0; length + 1];
        call!(self, napi_get_value_string_utf16(value.0, units.as_mut_ptr(), units.len(), &mut length))?;
        units.truncate(length);
        Ok(units)
    }

    /// Returns a string as a Rust string, in which U+FFFD replaces lone surrogates.
    pub(crate) fn to_text(self, value: Value) -> Res<String> {
        match self.to_utf8(value) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(Thrown) if self.is_exception_pending() => Err(Thrown),
            Err(Thrown) => self.type_error("expected a string"),
        }
    }

    pub(crate) fn property(self, object: Value, key: Value) -> Res<Value> {
        make!(self, napi_get_property(object.0, key.0))
    }

    pub(crate) fn set_property(self, object: Value, key: Value, value: Value) -> Res<()> {
        call!(self, napi_set_property(object.0, key.0, value.0))
    }

    pub(crate) fn named(self, object: Value, name: &CStr) -> Res<Value> {
        make!(self, napi_get_named_property(object.0, name.as_ptr()))
    }

    pub(crate) fn is_promise(self, value: Value) -> bool {
        let mut is = false;
        call!(self, napi_is_promise(value.0, &mut is)).is_ok() && is
    }

    pub(crate) fn is_error(self, value: Value) -> Res<bool> {
        let mut is = false;
        call!(self, napi_is_error(value.0, &mut is))?;
        Ok(is)
    }

    pub(crate) fn is_array_buffer(self, value: Value) -> Res<bool> {
        let mut is = false;
        call!(self, napi_is_arraybuffer(value.0, &mut is))?;
        Ok(is)
    }

    pub(crate) fn is_detached(self, buffer: Value) -> bool {
        let mut is = false;
        call!(self, napi_is_detached_arraybuffer(buffer.0, &mut is)).is_ok() && is
    }

    /// Returns the memory of a typed array. Fails, without an exception, for any other value.
    pub(crate) fn typed_array(self, value: Value) -> Res<Memory> {
        // Node.js leaves the kind as it is for classes of arrays that it does not know, such as Float16Array.
        let (mut kind, mut length, mut data) = (-1, 0, ptr::null_mut());
        let (mut buffer, mut offset) = (ptr::null_mut(), 0);
        call!(
            self,
            napi_get_typedarray_info(value.0, &mut kind, &mut length, &mut data, &mut buffer, &mut offset)
        )?;
        Ok(Memory { data, length, kind, buffer: Value(buffer) })
    }

    pub(crate) fn array_buffer_memory(self, buffer: Value) -> Res<Memory> {
        let (mut data, mut length) = (ptr::null_mut(), 0);
        call!(self, napi_get_arraybuffer_info(buffer.0, &mut data, &mut length))?;
        Ok(Memory { data, length, kind: -1, buffer })
    }

    /// Calls a function with `undefined` as `this`.
    pub(crate) fn call(self, function: Value, args: &[Value]) -> Res<Value> {
        let this = self.undefined()?;
        // `Value` has the layout of the pointer that it contains.
        let pointers: *const *mut sys::Value = args.as_ptr().cast();
        make!(self, napi_call_function(this.0, function.0, args.len(), pointers))
    }

    pub(crate) fn throw(self, error: Value) -> Thrown {
        let _ = call!(self, napi_throw(error.0));
        Thrown
    }

    /// Throws a `TypeError`.
    pub(crate) fn type_error<T>(self, message: &str) -> Res<T> {
        let message = self.string(message.as_bytes())?;
        let error = make!(self, napi_create_type_error(ptr::null_mut(), message.0))?;
        Err(self.throw(error))
    }

    /// Throws a `RangeError`.
    pub(crate) fn range_error<T>(self, message: &str) -> Res<T> {
        let message = self.string(message.as_bytes())?;
        let error = make!(self, napi_create_range_error(ptr::null_mut(), message.0))?;
        Err(self.throw(error))
    }

    /// Throws an `Error`.
    pub(crate) fn error<T>(self, message: &str) -> Res<T> {
        let message = self.string(message.as_bytes())?;
        let error = make!(self, napi_create_error(ptr::null_mut(), message.0))?;
        Err(self.throw(error))
    }

    pub(crate) fn is_exception_pending(self) -> bool {
        let mut is = false;
        call!(self, napi_is_exception_pending(&mut is)).is_ok() && is
    }

    /// Clears the pending exception and returns it. Returns `None` if no exception is pending, which is also the case in an
    /// environment that is being terminated.
    pub(crate) fn take_exception(self) -> Option<Value> {
        if !self.is_exception_pending() {
            return None;
        }
        make!(self, napi_get_and_clear_last_exception()).ok()
    }

    /// Makes a reference that keeps a value alive.
    pub(crate) fn strong(self, value: Value) -> Res<Ref> {
        self.reference(value, 1)
    }

    /// Makes a reference that does not keep a value alive. It has no value once the garbage collector has freed the value.
    pub(crate) fn weak(self, value: Value) -> Res<Ref> {
        self.reference(value, 0)
    }

    fn reference(self, value: Value, count: u32) -> Res<Ref> {
        let mut reference = ptr::null_mut();
        call!(self, napi_create_reference(value.0, count, &mut reference))?;
        Ok(Ref(reference))
    }

    /// Returns the value of a reference, or `None` if it was freed.
    pub(crate) fn get(self, reference: Ref) -> Option<Value> {
        if reference.0.is_null() {
            return None;
        }
        let value = make!(self, napi_get_reference_value(reference.0)).ok()?;
        (value != Value::NONE).then_some(value)
    }

    /// Deletes a reference, which must not be used afterwards.
    pub(crate) fn delete(self, reference: Ref) {
        if !reference.0.is_null() {
            let _ = call!(self, napi_delete_reference(reference.0));
        }
    }

    /// Runs `work` in a handle scope of its own. Values that it obtains are released afterwards.
    pub(crate) fn scoped<T>(self, work: impl FnOnce() -> T) -> Res<T> {
        let mut scope = ptr::null_mut();
        call!(self, napi_open_handle_scope(&mut scope))?;
        let result = work();
        let _ = call!(self, napi_close_handle_scope(scope));
        Ok(result)
    }

    /// Tells the garbage collector how many bytes of native memory JavaScript objects have begun or ceased to keep alive.
    pub(crate) fn adjust_memory(self, change: i64) {
        let mut total = 0;
        let _ = call!(self, napi_adjust_external_memory(change, &mut total));
    }

    pub(crate) fn promise(self) -> Res<(Deferred, Value)> {
        let mut deferred = ptr::null_mut();
        let promise = make!(self, napi_create_promise(&mut deferred))?;
        Ok((Deferred(deferred), promise))
    }

    pub(crate) fn resolve(self, deferred: Deferred, value: Value) {
        let _ = call!(self, napi_resolve_deferred(deferred.0, value.0));
    }

    pub(crate) fn reject(self, deferred: Deferred, error: Value) {
        let _ = call!(self, napi_reject_deferred(deferred.0, error.0));
    }

    /// Stores a pointer in the environment; `finalize` is called with it when the environment ends.
    ///
    /// # Safety
    /// The pointer must stay valid until `finalize` runs.
    pub(crate) unsafe fn set_data(self, data: *mut c_void, finalize: sys::Finalize) -> Res<()> {
        call!(self, napi_set_instance_data(data, Some(finalize), ptr::null_mut()))
    }

    /// Registers a function that is called with `data` before the environment ends.
    ///
    /// # Safety
    /// The pointer must be valid when the hook runs.
    pub(crate) unsafe fn add_cleanup_hook(
        self,
        hook: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> Res<()> {
        call!(self, napi_add_env_cleanup_hook(hook, data))
    }

    /// Makes a function that wakes the thread of this environment and calls `call_js` there.
    ///
    /// # Safety
    /// `context` must be valid as long as the function is called.
    pub(crate) unsafe fn threadsafe_function(self, call_js: sys::CallJs, context: *mut c_void) -> Res<Waker> {
        let name = self.string(b"anyfn")?;
        let mut function = ptr::null_mut();
        call!(
            self,
            napi_create_threadsafe_function(
                ptr::null_mut(),
                ptr::null_mut(),
                name.0,
                0,
                1,
                ptr::null_mut(),
                None,
                context,
                Some(call_js),
                &mut function,
            )
        )?;
        let waker = Waker(function);
        self.keep_alive(waker, false);
        Ok(waker)
    }

    /// Decides whether a waker keeps the event loop running.
    pub(crate) fn keep_alive(self, waker: Waker, keep: bool) {
        let _ = match keep {
            true => call!(self, napi_ref_threadsafe_function(waker.0)),
            false => call!(self, napi_unref_threadsafe_function(waker.0)),
        };
    }
}

/// The functions that settle a promise.
#[derive(Clone, Copy)]
pub(crate) struct Deferred(*mut sys::Deferred);

// SAFETY: other threads only pass it on; it is used on the thread of its environment.
unsafe impl Send for Deferred {}

/// Wakes the thread of an environment.
#[derive(Clone, Copy)]
pub(crate) struct Waker(*mut sys::ThreadsafeFunction);

impl Waker {
    pub(crate) const NONE: Waker = Waker(ptr::null_mut());

    /// Wakes the thread. The environment must not have ended.
    pub(crate) fn wake(self) {
        if !self.0.is_null() {
            // SAFETY: the caller guarantees that the environment exists, so the function does.
            unsafe { sys::napi_call_threadsafe_function(self.0, ptr::null_mut(), 0) };
        }
    }
}
