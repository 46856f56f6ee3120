//! Conversion of native values to JavaScript values, called *lifting*. It applies to the results of calls and to the arguments of
//! callbacks.

use anyfn::abi::{
    DLTensor, TVMFFIAny, TVMFFIAnyViewToOwnedAny, TVMFFIBigIntGetContentByteArray, TVMFFIByteArray,
    TVMFFIObject, kTVMFFIBigInt, kTVMFFIBool, kTVMFFIByteArrayPtr, kTVMFFIBytes, kTVMFFIDLTensorPtr,
    kTVMFFIDataType, kTVMFFIDevice, kTVMFFIError, kTVMFFIFloat, kTVMFFIFunction, kTVMFFIInt, kTVMFFINone,
    kTVMFFIOpaquePtr, kTVMFFISmallBytes, kTVMFFISmallStr, kTVMFFIStaticObjectBegin, kTVMFFIStr,
};
use anyfn::{Any, Error, Map, ObjectRef};

use crate::env::{Res, Value};
use crate::js_function;
use crate::state::Js;
use crate::sys;

/// Largest integer of which a number is an exact representation, with all smaller ones.
const SAFE_MAX: i64 = (1 << 53) - 1;

impl Js<'_> {
    /// Converts an owned value. With `big`, integers become bigints.
    pub(crate) fn lift_owned(self, value: Any, big: bool) -> Res<Value> {
        match value.type_index() {
            kTVMFFIStr | kTVMFFIBytes | kTVMFFIBigInt => self.lift(value.as_raw(), big),
            index if index >= kTVMFFIStaticObjectBegin => match value.into_object() {
                Some(object) => self.lift_object(object),
                None => self.env.null(),
            },
            kTVMFFIDLTensorPtr => self.env.type_error(
                "the function returned a borrowed DLTensor*, which has no owner; it must return a tensor",
            ),
            _ => self.lift(value.as_raw(), big),
        }
    }

    /// Converts the result of a call, of a type that owns nothing.
    #[inline]
    pub(crate) fn lift_result(self, value: &TVMFFIAny, big: bool) -> Res<Value> {
        match value.type_index {
            kTVMFFIInt => self.lift_int(bits(value) as i64, big),
            kTVMFFINone => self.env.null(),
            kTVMFFIFloat => self.env.double(f64::from_bits(bits(value))),
            kTVMFFIDLTensorPtr => self.env.type_error(
                "the function returned a borrowed DLTensor*, which has no owner; it must return a tensor",
            ),
            _ => self.lift(value, big),
        }
    }

    /// Converts a borrowed value.
    pub(crate) fn lift(self, value: &TVMFFIAny, big: bool) -> Res<Value> {
        match value.type_index {
            kTVMFFIInt => self.lift_int(bits(value) as i64, big),
            kTVMFFIFloat => self.env.double(f64::from_bits(bits(value))),
            kTVMFFINone => self.env.null(),
            kTVMFFIBool => self.env.boolean(bits(value) != 0),
            kTVMFFISmallStr => self.env.string(small_bytes(value)),
            kTVMFFISmallBytes => self.lift_bytes(small_bytes(value)),
            kTVMFFIStr => self.env.string(heap_bytes(value)),
            kTVMFFIBytes => self.lift_bytes(heap_bytes(value)),
            kTVMFFIDataType | kTVMFFIDevice | kTVMFFIOpaquePtr => {
                let args = [self.env.int32(value.type_index)?, self.env.bigint_unsigned(bits(value))?];
                self.call_hook(&self.state.hooks.word, &args)
            }
            kTVMFFIDLTensorPtr => self.lift_view(value),
            kTVMFFIByteArrayPtr => self.lift_borrowed_bytes(value),
            kTVMFFIBigInt => self.lift_bigint(value, big),
            index if index >= kTVMFFIStaticObjectBegin => {
                // SAFETY: objects have their value in `v_obj`.
                let handle = unsafe { value.value.v_obj };
                // SAFETY: the view is valid, so the object is alive; the result is a new reference.
                match unsafe { ObjectRef::from_borrowed_or_null(handle.cast()) } {
                    Some(object) => self.lift_object(object),
                    None => self.env.null(),
                }
            }
            _ => self.lift_copied(value, big),
        }
    }

    #[inline]
    fn lift_int(self, value: i64, big: bool) -> Res<Value> {
        if big {
            return self.env.bigint(value);
        }
        if let Ok(small) = i32::try_from(value) {
            return self.env.int32(small);
        }
        if (-SAFE_MAX..=SAFE_MAX).contains(&value) {
            return self.env.double(value as f64);
        }
        self.too_large(&value.to_string())
    }

    #[cold]
    fn too_large(self, value: &str) -> Res<Value> {
        self.env.range_error(&format!(
            "the integer {value} is not exact as a number; `.bigint` of a function or a container, or the option `bigint` of getField and \
             convert, gives integers as bigints"
        ))
    }

    fn lift_bigint(self, value: &TVMFFIAny, big: bool) -> Res<Value> {
        if !big {
            return self.too_large("beyond 64 bits");
        }
        // SAFETY: the value is a valid `BigInt`, from which the result borrows.
        let words = unsafe { TVMFFIBigIntGetContentByteArray(value) };
        // SAFETY: `value` keeps the words alive.
        let words = unsafe { words.as_slice() };
        let mut words: Vec<u64> =
            words.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())).collect();
        let negative = words.last().is_some_and(|word| (*word as i64) < 0);
        if negative {
            negate(&mut words);
        }
        self.env.bigint_of_words(negative, &words)
    }

    fn lift_bytes(self, bytes: &[u8]) -> Res<Value> {
        let buffer = self.env.array_buffer(bytes)?;
        self.call_hook(&self.state.hooks.bytes, &[buffer])
    }

    fn lift_borrowed_bytes(self, value: &TVMFFIAny) -> Res<Value> {
        // SAFETY: a byte array view has its value in `v_ptr`.
        let content = unsafe { value.value.v_ptr }.cast::<TVMFFIByteArray>();
        // SAFETY: the pointer is the address of a byte array, or NULL if the caller violates the ABI.
        match unsafe { content.as_ref() } {
            // SAFETY: the view is valid, so the bytes are.
            Some(content) => self.lift_bytes(unsafe { content.as_slice() }),
            None => self.env.null(),
        }
    }

    /// Converts a borrowed tensor. The result is the typed array that a call on this thread has lent. Callers copy other tensors first.
    fn lift_view(self, value: &TVMFFIAny) -> Res<Value> {
        // SAFETY: a borrowed tensor has its value in `v_ptr`.
        let tensor: *const DLTensor = unsafe { value.value.v_ptr }.cast();
        match self.lent(tensor) {
            Some(array) => Ok(array),
            None => self.env.type_error("a borrowed tensor cannot be converted"),
        }
    }

    /// Converts a borrowed string, or takes an object out of a variable, via an owned value.
    #[cold]
    fn lift_copied(self, value: &TVMFFIAny, big: bool) -> Res<Value> {
        let mut owned = TVMFFIAny::NONE;
        // SAFETY: the view is valid, and `owned` is writable.
        if unsafe { TVMFFIAnyViewToOwnedAny(value, &mut owned) } != 0 {
            let error = Error::take_raised();
            return self.env.type_error(error.message());
        }
        // SAFETY: on success this is an owned value.
        let owned = unsafe { Any::from_raw(owned) };
        if owned.type_index() == value.type_index {
            let key = anyfn::type_key(value.type_index);
            return self
                .env
                .type_error(&format!("a value of type {key} cannot be converted to a JavaScript value"));
        }
        self.lift_owned(owned, big)
    }

    /// Converts a function. See [`Js::wrap_as`] for `direct`.
    pub(crate) fn lift_function(self, object: ObjectRef, direct: Option<sys::Callback>) -> Res<Value> {
        // A function of JavaScript that is in use as a PackedFunc stays one.
        let known = self.state.slots.borrow().wrapper_of(self.env, object.as_handle().cast());
        match known.or_else(|| self.own_value(&object)) {
            Some(value) => Ok(value),
            None => self.wrap_as(object, direct),
        }
    }

    /// Converts an object.
    pub(crate) fn lift_object(self, object: ObjectRef) -> Res<Value> {
        match object.type_index() {
            kTVMFFIFunction => self.lift_function(object, None),
            kTVMFFIError => match self.exception_of(&object) {
                Some(exception) => Ok(exception),
                None => self.wrap(object),
            },
            kTVMFFIStr | kTVMFFIBytes => self.lift(Any::from(object).as_raw(), false),
            _ => self.wrap(object),
        }
    }

    /// Returns the JavaScript value to which a native object of this environment refers.
    fn own_value(self, object: &ObjectRef) -> Option<Value> {
        let handle: *mut TVMFFIObject = object.as_handle().cast();
        let function = js_function::from_handle(handle)?;
        if !std::ptr::eq(&*function.shared, &*self.state.shared) || function.big {
            return None;
        }
        self.env.get(function.value)
    }

    /// Returns the JavaScript exception from which a native error was made.
    fn exception_of(self, object: &ObjectRef) -> Option<Value> {
        let error = Error::try_from_object(object.clone()).ok()?;
        let mut context = error.context()?;
        // A walk over a graph wraps the context in an object that adds the access path.
        if context.type_key() == "ffi.VisitErrorContext" {
            context = context.get_field("prev_error_context").ok()?.into_object()?;
        }
        if let Some(value) = self.thrown_value(&context) {
            return Some(value);
        }
        // Native code that adds notes to an error puts its context into a map.
        let map = Map::<Any, Any>::try_from_object(context).ok()?;
        let context = map.get(&Any::new("exception").ok()?).ok()??.into_object()?;
        self.thrown_value(&context)
    }

    fn thrown_value(self, context: &ObjectRef) -> Option<Value> {
        if context.type_index() != kTVMFFIFunction {
            return None;
        }
        let holder = js_function::from_handle(context.as_handle().cast())?;
        if holder.is_function || !std::ptr::eq(&*holder.shared, &*self.state.shared) {
            return None;
        }
        // The value is in an array, because it may be of any type.
        let array = self.env.get(holder.value)?;
        self.env.elements(array).ok()?.first().copied()
    }
}

fn negate(words: &mut [u64]) {
    let mut carry = true;
    for word in words {
        (*word, carry) = (!*word).overflowing_add(u64::from(carry));
    }
}

/// Returns the eight payload bytes of a value.
fn bits(value: &TVMFFIAny) -> u64 {
    // SAFETY: callers in this file have valid values, all of whose bytes are initialised.
    unsafe { value.bits() }
}

/// Returns the bytes of a string or bytes value that is stored in the value itself because it is short.
fn small_bytes(value: &TVMFFIAny) -> &[u8] {
    let data: *const u8 = (&raw const value.value).cast();
    // SAFETY: the union has 8 bytes, all initialised, which are borrowed for as long as the value.
    unsafe { std::slice::from_raw_parts(data, (value.small_str_len as usize).min(7)) }
}

/// Returns the bytes of a string object or bytes object on the heap.
fn heap_bytes(value: &TVMFFIAny) -> &[u8] {
    // SAFETY: objects have their value in `v_obj`.
    let object = unsafe { value.value.v_obj };
    // SAFETY: these objects have a byte array behind the header.
    let content: *const TVMFFIByteArray = unsafe { object.add(1) }.cast();
    // SAFETY: the content of such an object is initialised and never changes.
    let content = unsafe { &*content };
    // SAFETY: the object owns its content, and the value keeps the object alive.
    unsafe { content.as_slice() }
}
