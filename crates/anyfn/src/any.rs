//! Values of any type, owned or borrowed.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use anyfn_abi::{
    TENSOR_VIEW_READ_ONLY, TVMFFIAny, TVMFFIAnyViewToOwnedAny, kTVMFFIByteArrayPtr, kTVMFFIDLTensorPtr,
    kTVMFFINone, kTVMFFIObjectRValueRef, kTVMFFIRawStr, kTVMFFIStaticObjectBegin,
};

use crate::convert::{FromArg, IntoAny};
use crate::{Error, ObjectRef, Result, object, types};

/// An owned value of any type: 16 bytes.
///
/// Numbers, short strings and the like are stored in the value itself. Everything else is a strong reference to an
/// object.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::Any;
/// let x = Any::new(42)?;
/// assert_eq!(x.get::<i64>()?, 42);
/// assert_eq!(x.type_key(), "int");
/// assert!(x.get::<anyfn::String>().is_err());
/// # Ok::<(), anyfn::Error>(())
/// ```
#[repr(transparent)]
pub struct Any(TVMFFIAny);

// SAFETY: the value is plain data or an object reference, which is `Send` (see `ObjectRef`). An opaque pointer is only
// a number here; using it as a pointer is unsafe and the user's responsibility.
unsafe impl Send for Any {}
// SAFETY: the value is plain data or an object reference, which is `Sync` (see `ObjectRef`). An opaque pointer is only
// a number here; a shared `Any` gives read access only.
unsafe impl Sync for Any {}

/// A borrowed value of any type: 16 bytes, valid for `'a`.
///
/// Views that C code passes may also hold borrowed strings and bytes, which an [`Any`] never does.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Any, AnyView};
///
/// let number = Any::new(7)?;
/// let view: AnyView<'_> = number.as_view();
/// assert_eq!(view.get::<i64>()?, 7);
/// assert_eq!(view.type_key(), "int");
/// // An owned value adds a reference if the value is an object.
/// let kept: Any = view.to_owned();
/// assert_eq!(kept, number);
/// # Ok::<(), anyfn::Error>(())
/// ```
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct AnyView<'a>(TVMFFIAny, PhantomData<&'a TVMFFIAny>);

// SAFETY: the argument for `Any` applies; the borrowed data outlives `'a` on any thread.
unsafe impl Send for AnyView<'_> {}
// SAFETY: the argument for `Any` applies; the borrowed data outlives `'a` on any thread.
unsafe impl Sync for AnyView<'_> {}

#[inline]
const fn is_object(type_index: i32) -> bool {
    type_index >= kTVMFFIStaticObjectBegin
}

impl Any {
    /// The value `None`.
    pub const NONE: Any = Any(TVMFFIAny::NONE);

    /// Converts a Rust value into an `Any`.
    ///
    /// # Errors
    /// Returns the error of [`IntoAny::into_any`].
    #[inline]
    pub fn new(value: impl IntoAny) -> Result<Any> {
        value.into_any()
    }

    /// Reads the value as a Rust type; see [`FromArg`] for the values that each type accepts.
    ///
    /// # Errors
    /// Returns `TypeError`, which names the expected and the actual type, if the value has another type. Returns
    /// `OverflowError` if an integer does not fit.
    #[inline]
    pub fn get<'a, T: FromArg>(&'a self) -> Result<T::Arg<'a>> {
        T::from_arg(self.view_ref()).map_err(Error::from)
    }

    /// Takes ownership of a value that C code created.
    ///
    /// # Safety
    /// `raw` must be a valid owned value, and the caller must transfer its reference (if it holds one).
    #[inline]
    pub const unsafe fn from_raw(raw: TVMFFIAny) -> Any {
        Any(raw)
    }

    /// Returns the value as a C struct, whose receiver must release the value.
    #[inline]
    pub const fn into_raw(self) -> TVMFFIAny {
        let raw = self.0;
        core::mem::forget(self);
        raw
    }

    /// Returns a reference to the C struct that represents the value.
    #[inline]
    pub const fn as_raw(&self) -> &TVMFFIAny {
        &self.0
    }

    /// Converts the value into an object reference; `None` if it is not an object.
    #[inline]
    pub fn into_object(self) -> Option<ObjectRef> {
        if !is_object(self.0.type_index) {
            return None;
        }
        let raw = self.into_raw();
        // SAFETY: the type index guarantees that the union holds an object pointer.
        let handle = unsafe { raw.value.v_obj };
        // SAFETY: an owned value holds one reference, which moves out here.
        unsafe { ObjectRef::from_owned_or_null(handle.cast()) }
    }

    /// Returns a view of the value.
    #[inline]
    pub fn as_view(&self) -> AnyView<'_> {
        AnyView(self.0, PhantomData)
    }

    /// Converts a slice of values to a slice of views, for example to pass the values as the arguments of a
    /// call.
    ///
    /// ```
    /// # use anyfn_core as _;
    /// use anyfn::{Any, PackedFunc};
    ///
    /// let args = vec![Any::new(40)?, Any::new(2)?];
    /// let add = PackedFunc::new(|args| Any::new(args.get::<i64>(0)? + args.get::<i64>(1)?));
    /// assert_eq!(add.call_views(Any::as_views(&args))?.get::<i64>()?, 42);
    /// # Ok::<(), anyfn::Error>(())
    /// ```
    #[inline]
    pub fn as_views(values: &[Any]) -> &[AnyView<'_>] {
        // SAFETY: both types are transparent over `TVMFFIAny`, and each bit pattern of an owned value is a valid view.
        // The views live as long as the values are borrowed.
        unsafe { core::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
    }
}

impl<'a> AnyView<'a> {
    /// The value `None`.
    pub const NONE: AnyView<'static> = AnyView(TVMFFIAny::NONE, PhantomData);

    /// Wraps a view that C code passes.
    ///
    /// # Safety
    /// `raw` must be valid, and everything that it borrows must stay valid for `'a`.
    #[inline]
    pub const unsafe fn from_raw(raw: TVMFFIAny) -> AnyView<'a> {
        AnyView(raw, PhantomData)
    }

    /// Wraps an array of views that C code passes.
    ///
    /// # Safety
    /// `data` must point to `len` valid views that stay valid for `'a`. It may be NULL if `len` is not positive.
    #[inline]
    pub unsafe fn slice_from_raw(data: *const TVMFFIAny, len: i32) -> &'a [AnyView<'a>] {
        match usize::try_from(len) {
            // SAFETY: the caller guarantees the array, and `AnyView` is transparent over its element type.
            Ok(len) if len > 0 && !data.is_null() => unsafe { core::slice::from_raw_parts(data.cast(), len) },
            _ => &[],
        }
    }

    /// Returns a reference to the C struct that represents the value.
    #[inline]
    pub const fn as_raw(&self) -> &TVMFFIAny {
        &self.0
    }

    /// Returns the type index of the value.
    #[inline]
    pub const fn type_index(&self) -> i32 {
        self.0.type_index
    }

    /// Returns the type key of the value, such as `int` or `ffi.Array`.
    pub fn type_key(&self) -> &'static str {
        types::type_key(self.0.type_index)
    }

    /// Returns true if the value is `None`.
    #[inline]
    pub const fn is_none(&self) -> bool {
        self.0.type_index == kTVMFFINone
    }

    /// Reads the value as a Rust type.
    ///
    /// # Errors
    /// Returns the errors of [`Any::get`].
    #[inline]
    pub fn get<T: FromArg>(&'a self) -> Result<T::Arg<'a>> {
        T::from_arg(self).map_err(Error::from)
    }

    /// Returns the value as a borrowed object reference; `None` if it is not an object.
    #[inline]
    pub fn as_object(&self) -> Option<&ObjectRef> {
        if !is_object(self.0.type_index) {
            return None;
        }
        // SAFETY: the union holds a non-NULL object pointer for these types, `ObjectRef` is a transparent pointer, and
        // the reference borrows from the view, so it does not outlive it and is not dropped.
        unsafe { (&raw const self.0.value.v_obj).cast::<Option<ObjectRef>>().as_ref() }?.as_ref()
    }

    /// Creates an owned value from the view. This adds a reference to an object, and copies borrowed strings
    /// and bytes.
    ///
    /// A borrowed tensor becomes a tensor object if the frontend that owns it can keep its memory alive, as Python can
    /// for the arrays of a call. Otherwise it becomes an opaque pointer, so an owned value never refers to a tensor
    /// that may be freed.
    #[inline]
    pub fn to_owned(&self) -> Any {
        match self.0.type_index {
            kTVMFFIRawStr | kTVMFFIByteArrayPtr | kTVMFFIObjectRValueRef | kTVMFFIDLTensorPtr => self.copied(),
            index => {
                if is_object(index) {
                    core::mem::forget(self.as_object().cloned());
                }
                Any(self.0)
            }
        }
    }

    /// Returns the payload of the value: the eight bytes of its union.
    #[doc(hidden)]
    #[inline]
    pub fn bits(&self) -> u64 {
        // SAFETY: a view is a value of the ABI, all of whose bytes are initialised.
        unsafe { self.0.bits() }
    }

    /// Returns a copy of this view with the read-only flag set. The view must hold a `DLTensor`.
    pub(crate) fn read_only_tensor(self) -> Self {
        debug_assert_eq!(self.0.type_index, kTVMFFIDLTensorPtr);
        AnyView(TVMFFIAny { small_str_len: TENSOR_VIEW_READ_ONLY, ..self.0 }, self.1)
    }

    #[cold]
    fn copied(self) -> Any {
        let mut out = TVMFFIAny::NONE;
        // SAFETY: the view is valid and `out` is writable. On failure (memory exhausted) `out` stays None.
        let code = unsafe { TVMFFIAnyViewToOwnedAny(&self.0, &mut out) };
        if code != 0 {
            drop(Error::take_raised());
        }
        debug_assert!(out.type_index != kTVMFFIDLTensorPtr);
        Any(out)
    }
}

impl Any {
    /// Returns the type index of the value.
    #[inline]
    pub const fn type_index(&self) -> i32 {
        self.0.type_index
    }

    /// Returns the type key of the value, such as `int` or `ffi.Array`.
    pub fn type_key(&self) -> &'static str {
        types::type_key(self.0.type_index)
    }

    /// Returns true if the value is `None`.
    #[inline]
    pub const fn is_none(&self) -> bool {
        self.0.type_index == kTVMFFINone
    }

    /// Returns the value as a borrowed object reference; `None` if it is not an object.
    #[inline]
    pub fn as_object(&self) -> Option<&ObjectRef> {
        self.view_ref().as_object()
    }

    /// Returns a reference to a view of the value. Data read through it borrows from `self` and not from a
    /// temporary view.
    #[inline]
    pub(crate) fn view_ref(&self) -> &AnyView<'_> {
        // SAFETY: both types are transparent over the same struct, and the view is borrowed as long as `self` is.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }
}

impl Clone for Any {
    #[inline]
    fn clone(&self) -> Any {
        if is_object(self.0.type_index) {
            core::mem::forget(self.as_view().as_object().cloned());
        }
        Any(self.0)
    }
}

impl Drop for Any {
    #[inline]
    fn drop(&mut self) {
        if is_object(self.0.type_index) {
            // SAFETY: the type index guarantees that the union holds an object pointer.
            let handle = unsafe { self.0.value.v_obj };
            // SAFETY: an owned value holds one reference, which is released here.
            unsafe { object::release(handle) };
        }
    }
}

impl Default for Any {
    fn default() -> Any {
        Any::NONE
    }
}

impl From<ObjectRef> for Any {
    #[inline]
    fn from(object: ObjectRef) -> Any {
        let object = ManuallyDrop::new(object);
        Any(TVMFFIAny {
            type_index: object.type_index(),
            small_str_len: 0,
            value: anyfn_abi::TVMFFIAnyValue::from_obj(object.header()),
        })
    }
}

impl<'a> From<&'a ObjectRef> for AnyView<'a> {
    #[inline]
    fn from(object: &'a ObjectRef) -> AnyView<'a> {
        let raw = TVMFFIAny {
            type_index: object.type_index(),
            small_str_len: 0,
            value: anyfn_abi::TVMFFIAnyValue::from_obj(object.header()),
        };
        AnyView(raw, PhantomData)
    }
}

impl<'a> From<&'a Any> for AnyView<'a> {
    fn from(value: &'a Any) -> AnyView<'a> {
        value.as_view()
    }
}

impl fmt::Debug for AnyView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::hash::debug(self, f)
    }
}

impl fmt::Debug for Any {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_view().fmt(f)
    }
}

/// Compares values in the same way as a Map compares keys. Values are equal if they have the same
/// type and the same bits, if they are strings or bytes with equal content, or if the equality hook
/// of their type reports that they are equal.
impl PartialEq for AnyView<'_> {
    fn eq(&self, other: &AnyView<'_>) -> bool {
        crate::hash::any_equal(self, other)
    }
}

impl PartialEq for Any {
    fn eq(&self, other: &Any) -> bool {
        crate::hash::any_equal(&self.as_view(), &other.as_view())
    }
}
