//! Conversion of the arguments of a call to native values, called *lowering*.
//!
//! [`lower`] fills the argument list of a call. It decides by the exact type first and only then checks what else the
//! object supports. Arrays become views on the stack that live for the call ([`crate::ndarray`]). Where a value must
//! outlive the call ([`lower_owned`]), they become tensors that keep the array alive.

use std::mem::MaybeUninit;
use std::ptr;

use anyfn::abi::{
    DLTensor, TVMFFIAny, TVMFFIAnyValue, TVMFFIByteArray, TVMFFIObject, kTVMFFIBool, kTVMFFIByteArrayPtr,
    kTVMFFIDLTensorPtr, kTVMFFIFloat, kTVMFFIInt, kTVMFFIStaticObjectBegin, kTVMFFITensor,
};
use anyfn::{Any, Tensor};
use pyo3_ffi as ffi;

use crate::at::At;
use crate::calls::Listed;
use crate::dlpack::{Environment, Exchange};
use crate::owned::{is_exact, lower_exact, lower_owned};
use crate::py::{self, Obj, Raised, Res, builtins};
use crate::scalars::{bad_text, large_i64, native_string, string, true_ptr};
use crate::scratch::{Scratch, Words};
use crate::shared_bytes::{self, SHARED_MIN};
use crate::{dlpack, gil, kept, ndarray, object, packed, tensor};

/// Arguments of a call in progress: their native values, a record of the owned values, and memory for array
/// views.
pub(crate) struct CallFrame<'a> {
    args: &'a [Obj<'a>],
    values: &'a mut [MaybeUninit<TVMFFIAny>],
    /// Number of arguments converted so far. The first `count` elements of `values` are the native
    /// values of these arguments.
    count: usize,
    /// True if at least one argument's native value is owned or is an array view, so that work remains at the
    /// end of the call.
    busy: bool,
    /// Bit mask of the owned native values: bit `i` is set if the value of argument `i` is owned.
    owned: u64,
    /// Owned native values of the arguments with an index of 64 or more.
    owned_more: Vec<Any>,
    views: Scratch<'a>,
    /// Allocator and stream of the array library that owns an argument, set for the duration of the call.
    environment: Option<Environment>,
    /// Array arguments that this call has added to the record of arrays in `calls.rs`. They stay in the
    /// record while native code may see the descriptions of the arrays.
    listed: Listed,
    /// Guard for the use of native objects that only the arguments keep alive. It exists until the end of the call.
    _use: gil::Use,
}

/// Maximum length in bytes of a string or bytes object that is stored in the value itself.
const SMALL_MAX: usize = 7;

impl<'a> CallFrame<'a> {
    #[inline(always)]
    pub(crate) fn new(
        args: &'a [Obj<'a>],
        values: &'a mut [MaybeUninit<TVMFFIAny>],
        words: &'a mut Words,
    ) -> CallFrame<'a> {
        CallFrame {
            args,
            values,
            count: 0,
            busy: false,
            owned: 0,
            owned_more: Vec::new(),
            views: Scratch::new(words),
            environment: None,
            listed: Listed::NOTHING,
            _use: gil::Use::begin(),
        }
    }

    /// Appends a native value that owns nothing to the arguments of the call.
    #[inline(always)]
    fn push(&mut self, value: TVMFFIAny) {
        self.values[self.count] = MaybeUninit::new(value);
        self.count += 1;
    }

    #[inline(always)]
    fn push_bits(&mut self, type_index: i32, bits: u64) {
        self.push(TVMFFIAny::from_bits(type_index, bits));
    }

    /// Appends a borrowed reference to a native object to the arguments of the call. The
    /// corresponding Python argument keeps the object alive.
    #[inline(always)]
    fn push_handle(&mut self, handle: *mut TVMFFIObject) {
        // SAFETY: the object is valid.
        let type_index = unsafe { (*handle).type_index };
        self.push(TVMFFIAny { type_index, small_str_len: 0, value: TVMFFIAnyValue::from_obj(handle) });
    }

    /// Appends an owned value to the arguments of the call. The value is released at the end of the call.
    fn push_owned(&mut self, value: Any) {
        let index = self.count;
        if value.type_index() < kTVMFFIStaticObjectBegin {
            self.push(value.into_raw());
        } else if index < 64 {
            self.owned |= 1 << index;
            self.busy = true;
            self.push(value.into_raw());
        } else {
            self.busy = true;
            self.push(*value.as_raw());
            self.owned_more.push(value);
        }
    }

    /// Appends the address of the description (`DLTensor`) of an array to the arguments of the call.
    #[inline]
    fn push_view(&mut self, view: *mut DLTensor) {
        self.busy = true;
        self.push(TVMFFIAny {
            type_index: kTVMFFIDLTensorPtr,
            small_str_len: 0,
            value: TVMFFIAnyValue::from_ptr(view.cast()),
        });
    }

    /// Returns the finished argument list: the address and number of the values. After this call, native code may see
    /// the array views.
    #[inline(always)]
    pub(crate) fn enter(&mut self) -> (*const TVMFFIAny, i32) {
        if self.busy && self.views.is_used() {
            self.enlist();
        }
        (self.values.as_ptr().cast(), self.count as i32)
    }

    #[inline(never)]
    fn enlist(&mut self) {
        // SAFETY: the first `count` values are set.
        let values = unsafe { self.values[..self.count].assume_init_ref() };
        self.listed = Listed::begin(values, self.args);
    }

    /// Returns true if at least one argument is an array or an owned value, so that work remains at the end of
    /// the call.
    #[inline(always)]
    pub(crate) fn has_arrays(&self) -> bool {
        self.busy
    }

    /// Returns the argument that a tensor represents: the argument that is this tensor itself, or
    /// the array that the tensor keeps alive.
    #[cold]
    pub(crate) fn argument_shown_by(&self, tensor: *mut TVMFFIObject) -> Option<Obj<'a>> {
        let passed = self.values[..self.count].iter().position(|value| {
            // SAFETY: the first `count` values are set.
            let value = unsafe { value.assume_init_ref() };
            // SAFETY: the value is valid, and all of its bytes are initialised.
            value.type_index == kTVMFFITensor && unsafe { value.bits() } == tensor.addr() as u64
        });
        if let Some(index) = passed {
            return self.args.get(index).copied();
        }
        let kept = kept::object_of(tensor)?;
        self.args.iter().find(|arg| arg.is(kept.as_ptr())).copied()
    }

    /// Returns the argument whose array view is at the address `view`.
    pub(crate) fn argument_of(&self, view: *const DLTensor) -> Option<Obj<'a>> {
        let set = self.values[..self.count].iter();
        set.zip(self.args).find_map(|(value, arg)| {
            // SAFETY: the first `count` values are set.
            let value = unsafe { value.assume_init_ref() };
            // SAFETY: the value is valid, and all of its bytes are initialised.
            let same = value.type_index == kTVMFFIDLTensorPtr && unsafe { value.bits() } == view.addr() as u64;
            same.then_some(*arg)
        })
    }

    #[cold]
    #[inline(never)]
    fn end(&mut self) {
        self.listed.end(self.args);
        let mut owned = self.owned;
        // A release may run arbitrary code, which must not find the exception of this call set.
        let raised = if (owned != 0 || !self.owned_more.is_empty()) && py::is_raised() {
            py::take_error()
        } else {
            None
        };
        self.owned_more.clear();
        while owned != 0 {
            let index = owned.trailing_zeros() as usize;
            owned &= owned - 1;
            // SAFETY: owned values are set.
            let value = unsafe { self.values[index].assume_init() };
            // SAFETY: the bit shows that this value is owned; it is released once, here.
            drop(unsafe { Any::from_raw(value) });
        }
        self.environment = None;
        if let Some(raised) = raised {
            py::restore_error(raised);
        }
    }
}

impl Drop for CallFrame<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.busy {
            self.end();
        }
    }
}

/// Converts an argument whose native value refers to no array, and writes the value to `value`. Returns false for an argument
/// that requires more, which [`lower`] must convert.
///
/// `content` is memory for the description of a bytes object. The value is valid as long as this memory and the argument. If
/// it is a string object or bytes object, the caller must release it: see [`release_simple`]. `owned` is then set to true.
#[inline(always)]
pub(crate) fn lower_simple(
    arg: Obj<'_>,
    value: &mut MaybeUninit<TVMFFIAny>,
    content: &mut MaybeUninit<TVMFFIByteArray>,
    owned: &mut bool,
) -> bool {
    let class = arg.type_ptr();
    if class == &raw mut ffi::PyLong_Type {
        let Some(int) = builtins::small_int(arg).or_else(|| large_i64(arg)) else { return false };
        value.write(TVMFFIAny::from_bits(kTVMFFIInt, int as u64));
    } else if arg.is_none() {
        value.write(TVMFFIAny::NONE);
    } else if class == &raw mut ffi::PyFloat_Type {
        let Some(float) = builtins::float(arg) else { return false };
        value.write(TVMFFIAny::from_bits(kTVMFFIFloat, float.to_bits()));
    } else if class == &raw mut ffi::PyUnicode_Type {
        let Some(text) = builtins::ascii(arg) else { return false };
        *owned |= text.len() > SMALL_MAX;
        let text = if text.len() < SHARED_MIN { string(text) } else { shared_bytes::string(arg, text) };
        value.write(text.into_raw());
    } else if class == &raw mut ffi::PyBool_Type {
        value.write(TVMFFIAny::from_bits(kTVMFFIBool, u64::from(arg.is(true_ptr()))));
    } else if class == &raw mut ffi::PyBytes_Type {
        let Some(bytes) = builtins::bytes(arg) else { return false };
        if !(SMALL_MAX + 1..SHARED_MIN).contains(&bytes.len()) {
            return lower_bytes(arg, bytes, value, owned);
        }
        content.write(TVMFFIByteArray::from_slice(bytes));
        value.write(TVMFFIAny {
            type_index: kTVMFFIByteArrayPtr,
            small_str_len: 0,
            value: TVMFFIAnyValue::from_ptr(content.as_mut_ptr().cast()),
        });
    } else if ptr::eq(class.cast(), ndarray::CLASS.ptr()) {
        return false;
    } else {
        return lower_handle(arg, value);
    }
    true
}

/// Releases the strings and bytes among values that [`lower_simple`] has written. `args` are the arguments to which they
/// belong.
#[inline(never)]
pub(crate) fn release_simple<'a>(values: &[MaybeUninit<TVMFFIAny>], args: impl Iterator<Item = Obj<'a>>) {
    for (value, arg) in values.iter().zip(args) {
        let class = arg.type_ptr();
        if class != &raw mut ffi::PyUnicode_Type && class != &raw mut ffi::PyBytes_Type {
            continue;
        }
        // SAFETY: the caller passes as many arguments as values were written.
        let value = unsafe { value.assume_init() };
        if value.type_index == kTVMFFIByteArrayPtr {
            continue;
        }
        // SAFETY: `lower_simple` makes an owned value of any other string or bytes, which is released only here. Its
        // destructor runs no other code: it owns nothing but a reference to the argument.
        drop(unsafe { Any::from_raw(value) });
    }
}

/// Converts a bytes object with the content `bytes`, which is short or long, like [`lower_simple`].
#[inline(never)]
fn lower_bytes(arg: Obj<'_>, bytes: &[u8], value: &mut MaybeUninit<TVMFFIAny>, owned: &mut bool) -> bool {
    if bytes.len() < SHARED_MIN {
        value.write(Any::from(anyfn::Bytes::from(bytes)).into_raw());
    } else {
        *owned = true;
        value.write(shared_bytes::bytes(arg, bytes).into_raw());
    }
    true
}

/// Converts an instance of `Object` like [`lower_simple`].
#[inline(never)]
fn lower_handle(arg: Obj<'_>, value: &mut MaybeUninit<TVMFFIAny>) -> bool {
    let class = arg.type_ptr();
    if is_exact(class) {
        return false;
    }
    let is_native = |known: &py::Global| ptr::eq(class.cast(), known.ptr());
    if !(is_native(&tensor::CLASS) || is_native(&packed::CLASS) || arg.is_instance_of(object::CLASS.ptr())) {
        return false;
    }
    let handle = object::handle_unchecked(arg);
    if handle.is_null() {
        return false;
    }
    // SAFETY: the object is valid.
    let type_index = unsafe { (*handle).type_index };
    if type_index == kTVMFFITensor && kept::is_read_only(handle) {
        return false;
    }
    value.write(TVMFFIAny { type_index, small_str_len: 0, value: TVMFFIAnyValue::from_obj(handle) });
    true
}

/// Converts an argument to a native value and appends it to the arguments of a call.
#[inline(always)]
pub(crate) fn lower(arg: Obj<'_>, frame: &mut CallFrame<'_>, at: &At<'_>) -> Res<()> {
    let class = arg.type_ptr();
    if class == &raw mut ffi::PyLong_Type {
        if let Some(value) = builtins::small_int(arg).or_else(|| large_i64(arg)) {
            frame.push_bits(kTVMFFIInt, value as u64);
            return Ok(());
        }
    } else if ptr::eq(class.cast(), ndarray::CLASS.ptr()) {
        let view = ndarray::view(arg, &mut frame.views, at)?;
        frame.push_view(view);
        return Ok(());
    } else if arg.is_none() {
        frame.push(TVMFFIAny::NONE);
        return Ok(());
    } else if class == &raw mut ffi::PyFloat_Type {
        frame.push_bits(kTVMFFIFloat, arg.float()?.to_bits());
        return Ok(());
    } else if class == &raw mut ffi::PyUnicode_Type {
        frame.push_text(arg, at)?;
        return Ok(());
    } else if class == &raw mut ffi::PyBool_Type {
        frame.push_bits(kTVMFFIBool, u64::from(arg.is(true_ptr())));
        return Ok(());
    } else if ptr::eq(class.cast(), tensor::CLASS.ptr()) {
        let handle = object::handle_unchecked(arg);
        // The handle is NULL if `__class__` was assigned on an instance of another class.
        if !handle.is_null() {
            if kept::is_read_only(handle) {
                frame.check_read_only(handle, at)?;
            }
            frame.push_handle(handle);
            return Ok(());
        }
    } else if ptr::eq(class.cast(), packed::CLASS.ptr()) {
        frame.push_handle(object::handle_unchecked(arg));
        return Ok(());
    }
    lower_rest(arg, frame, at)
}

impl CallFrame<'_> {
    #[inline]
    fn push_text(&mut self, text: Obj<'_>, at: &At<'_>) -> Res<()> {
        match native_string(text) {
            Ok(string) => {
                self.push_owned(string);
                Ok(())
            }
            Err(Raised) => bad_text(at),
        }
    }
}

/// Converts an argument of a less common type to a native value and appends it to the arguments of a call.
#[inline(never)]
fn lower_rest(arg: Obj<'_>, frame: &mut CallFrame<'_>, at: &At<'_>) -> Res<()> {
    let class = arg.type_ptr();
    if let Some(value) = lower_exact(arg, at) {
        frame.push_owned(value?);
        return Ok(());
    }
    if let Some(handle) = object::handle_of(arg) {
        if handle.is_null() {
            return at.raise(py::exceptions::value_error(), &object::uninitialised_message(arg));
        }
        // SAFETY: the object is valid.
        if unsafe { (*handle).type_index } == kTVMFFITensor && kept::is_read_only(handle) {
            frame.check_read_only(handle, at)?;
        }
        frame.push_handle(handle);
        return Ok(());
    }
    if class == &raw mut ffi::PyBytes_Type {
        return frame.push_bytes(arg);
    }
    const CONTAINERS: u64 =
        ffi::Py_TPFLAGS_LIST_SUBCLASS | ffi::Py_TPFLAGS_TUPLE_SUBCLASS | ffi::Py_TPFLAGS_DICT_SUBCLASS;
    // While NumPy is not imported, the check whether an object is an array is slow.
    if arg.type_flags() & CONTAINERS == 0 && ndarray::is_array(arg) {
        let view = ndarray::view(arg, &mut frame.views, at)?;
        frame.push_view(view);
        return Ok(());
    }
    if let Some(table) = dlpack::known(class)
        && let Some(view) = dlpack::view(arg, table, &mut frame.views)?
    {
        frame.push_view(view);
        return frame.enter_environment(table, view);
    }
    let value = lower_owned(arg, at)?;
    if value.type_index() == kTVMFFITensor
        && let Ok(tensor) = value.get::<Tensor>()
    {
        if tensor.is_read_only() {
            frame.views.protect(&tensor.view())?;
        }
        if let Some(table) = dlpack::known(class) {
            // This is the first argument of a class that has just become known.
            frame.enter_environment(table, tensor.view().as_dl())?;
        }
    }
    frame.push_owned(value);
    Ok(())
}

impl CallFrame<'_> {
    /// Appends a bytes object. The content of a short object is stored in the value itself; native code reads
    /// the content of a longer object without a copy. A long object can also be kept by native code without a copy.
    fn push_bytes(&mut self, arg: Obj<'_>) -> Res<()> {
        const WORDS: usize = size_of::<TVMFFIByteArray>() / size_of::<u64>();
        let bytes = arg.bytes()?;
        if bytes.len() <= SMALL_MAX {
            self.push_owned(anyfn::Bytes::from(bytes).into());
            return Ok(());
        }
        if bytes.len() >= SHARED_MIN {
            self.push_owned(shared_bytes::bytes(arg, bytes));
            return Ok(());
        }
        let place: *mut TVMFFIByteArray = self.views.take(WORDS).cast();
        // SAFETY: `take` allocated enough words for the byte array.
        unsafe { place.write(TVMFFIByteArray::from_slice(bytes)) };
        let value = TVMFFIAnyValue::from_ptr(place.cast());
        self.push(TVMFFIAny { type_index: kTVMFFIByteArrayPtr, small_str_len: 0, value });
        Ok(())
    }

    /// Checks a read-only tensor that is passed as an argument. Raises an exception if the function may write
    /// to it. Otherwise prevents the callbacks of this call from writing to the tensor.
    #[cold]
    fn check_read_only(&mut self, handle: *mut TVMFFIObject, at: &At<'_>) -> Res<()> {
        if !kept::is_const(handle) || at.is_written() {
            ndarray::check_only_read(at)?;
        }
        // SAFETY: the caller has a tensor object, whose description is behind the header.
        let description: *const DLTensor = unsafe { handle.add(1) }.cast();
        // SAFETY: the argument keeps the object alive during the call.
        let tensor = unsafe { tensor::view(description) };
        self.views.protect(&tensor)
    }

    /// Sets the allocator and stream of an argument's library for the duration of the call. Does
    /// nothing if an earlier argument has already set them.
    fn enter_environment(&mut self, table: &Exchange, tensor: *const DLTensor) -> Res<()> {
        if self.environment.is_none() {
            // SAFETY: the tensor was described for this call.
            self.environment = Some(Environment::of(table, unsafe { &*tensor })?);
            self.busy = true;
        }
        Ok(())
    }
}
