//! Packed functions: dynamically typed functions that any language can implement and call.

use core::ffi::{c_int, c_void};
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use alloc::format;

use anyfn_abi::{
    AnyfnFunctionExt, FUNCTION_FLAG_BLOCKING, FUNCTION_FLAG_UNSAFE, OBJECT_FLAG_FUNCTION_EXT, TVMFFIAny,
    TVMFFIFunctionCell, TVMFFISafeCallType, kTVMFFIDLTensorPtr, kTVMFFIFunction, kTVMFFIObjectRValueRef,
};

use crate::args::IntoArgs;
use crate::object::ObjectBox;
use crate::typed::{FunctionTypes, SafeCall};
use crate::{Any, AnyView, Error, IntoAny, Names, ObjectRef, PackableFn, Result, observe, panics, typed};

/// A function with dynamically typed arguments and result, which any language can implement and call.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Any, PackedFunc};
///
/// let my_add = PackedFunc::new(|args| {
///     let (a, b) = (args.get::<i64>(0)?, args.get::<i64>(1)?);
///     Any::new(a + b)
/// });
/// assert_eq!(my_add.call((1, 2))?.get::<i64>()?, 3);
/// # Ok::<(), anyfn::Error>(())
/// ```
#[derive(Clone)]
#[repr(transparent)]
pub struct PackedFunc(ObjectRef);

/// Arguments of a call, borrowed for its duration.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Any, Args, PackedFunc};
///
/// let join = PackedFunc::new(|args: Args<'_>| {
///     let mut text = String::new();
///     for index in 0..args.len() {
///         text += args.get::<&str>(index)?;
///     }
///     Any::new(text)
/// });
/// assert_eq!(join.call(("a", "b"))?.get::<&str>()?, "ab");
/// assert_eq!(join.call(("a", 1)).unwrap_err().kind(), "TypeError");
/// # Ok::<(), anyfn::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Args<'a>(&'a [AnyView<'a>]);

impl<'a> Args<'a> {
    /// Returns the number of arguments.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Converts argument `index` to the Rust type `T`.
    ///
    /// # Errors
    /// Returns `TypeError` if there is no such argument or it has another type, and `OverflowError` if an integer does
    /// not fit.
    pub fn get<T: crate::FromArg>(&self, index: usize) -> Result<T::Arg<'a>> {
        let Some(view) = self.0.get(index) else {
            let (count, s) = (self.0.len(), if self.0.len() == 1 { "" } else { "s" });
            crate::bail!("TypeError", "argument #{index} is missing: the call has {count} argument{s}");
        };
        T::from_arg(view)
            .map_err(|mismatch| mismatch.into_error(&format!("mismatched type on argument #{index}")))
    }

    /// Returns the arguments as a slice.
    pub fn as_slice(&self) -> &'a [AnyView<'a>] {
        self.0
    }
}

/// Implementation for closures that accept any arguments. The signature of such a function lists no
/// parameters.
impl<F, R: IntoAny> PackableFn<fn(Args<'static>) -> R> for F
where
    F: Fn(Args<'_>) -> R + Send + Sync + 'static,
{
    const TYPES: &'static FunctionTypes = &FunctionTypes { args: None, result: R::schema };

    #[inline]
    fn call_packed(&self, _names: &Names, args: &[AnyView<'_>], _safe_call: SafeCall<'_>) -> Result<Any> {
        self(Args(args)).into_any()
    }
}

/// Content of a function object that this crate creates. The ABI defines the fields before `body`.
#[repr(C)]
pub(crate) struct FunctionContent<F> {
    cell: TVMFFIFunctionCell,
    ext: &'static AnyfnFunctionExt,
    body: F,
}

/// Code, flags and signature of a Rust function object.
pub(crate) trait Callable: Send + Sync + 'static {
    /// Flags and signature of the function.
    const EXT: AnyfnFunctionExt;
    /// Calls the function. `safe_call` contains the function object and the C function through which this call
    /// was made.
    fn call(&self, args: &[AnyView<'_>], safe_call: SafeCall<'_>) -> Result<Any>;
}

impl<F> FunctionContent<F> {
    pub(crate) fn new(safe_call: TVMFFISafeCallType, ext: &'static AnyfnFunctionExt, body: F) -> Self {
        FunctionContent { cell: TVMFFIFunctionCell { safe_call, cpp_call: core::ptr::null_mut() }, ext, body }
    }

    pub(crate) fn body(&self) -> &F {
        &self.body
    }
}

struct Packed<F>(F);

impl<F: Fn(Args<'_>) -> Result<Any> + Send + Sync + 'static> Callable for Packed<F> {
    const EXT: AnyfnFunctionExt =
        AnyfnFunctionExt { size: size_of::<AnyfnFunctionExt>(), flags: 0, signature: None };

    #[inline]
    fn call(&self, args: &[AnyView<'_>], _safe_call: SafeCall<'_>) -> Result<Any> {
        (self.0)(Args(args))
    }
}

/// A closure that is called with packed arguments, and a second closure that returns the signature of the
/// first as JSON.
struct Described<F, D, const BLOCKING: bool> {
    body: F,
    describe: D,
}

impl<F, D, const BLOCKING: bool> Callable for Described<F, D, BLOCKING>
where
    F: Fn(Args<'_>) -> Result<Any> + Send + Sync + 'static,
    D: Fn() -> alloc::string::String + Send + Sync + 'static,
{
    const EXT: AnyfnFunctionExt = AnyfnFunctionExt {
        size: size_of::<AnyfnFunctionExt>(),
        flags: if BLOCKING { FUNCTION_FLAG_BLOCKING } else { 0 },
        signature: Some(describe::<F, D, BLOCKING>),
    };

    #[inline]
    fn call(&self, args: &[AnyView<'_>], _safe_call: SafeCall<'_>) -> Result<Any> {
        (self.body)(Args(args))
    }
}

unsafe extern "C" fn describe<F, D, const BLOCKING: bool>(func: *mut c_void, out: *mut TVMFFIAny) -> c_int
where
    F: Send + Sync + 'static,
    D: Fn() -> alloc::string::String + Send + Sync + 'static,
{
    // SAFETY: the function object is of this type, because the callback was taken from it.
    let content = unsafe { ObjectBox::<FunctionContent<Described<F, D, BLOCKING>>>::content_of(func) };
    // SAFETY: the caller passes a writable result location that holds nothing.
    unsafe { write_text(out, &content.body().describe) }
}

/// Writes the string that `text` returns to `out`. Returns 0 on success, and -1 if an error was raised.
///
/// # Safety
/// `out` must be writable and hold nothing.
pub(crate) unsafe fn write_text(out: *mut TVMFFIAny, text: impl FnOnce() -> alloc::string::String) -> c_int {
    panics::trampoline(|| {
        let value = Any::from(crate::String::from(text()));
        // SAFETY: the caller guarantees the location of the result.
        unsafe { out.write(value.into_raw()) };
        Ok(())
    })
}

/// Calls the closure of a function object that [`PackedFunc::from_callable`] created. This is the `safe_call`
/// of the object.
unsafe extern "C" fn safe_call<C: Callable>(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    panics::trampoline(|| {
        // SAFETY: `handle` is the function object, whose content is `FunctionContent<C>`, and the caller keeps it
        // alive.
        let content = unsafe { ObjectBox::<FunctionContent<C>>::content_of(handle) };
        // SAFETY: the ABI passes `num_args` valid views for the duration of the call.
        let args = unsafe { AnyView::slice_from_raw(args, num_args) };
        // SAFETY: `handle` is the object of this function, which the caller keeps alive.
        let safe_call = unsafe { SafeCall::new(safe_call::<C>, handle) };
        let value = content.body.call(args, safe_call)?;
        // SAFETY: the ABI passes a writable result location that holds nothing.
        unsafe { result.write(value.into_raw()) };
        Ok(())
    })
}

impl PackedFunc {
    /// Creates a function from a closure that takes any arguments.
    pub fn new(body: impl Fn(Args<'_>) -> Result<Any> + Send + Sync + 'static) -> PackedFunc {
        Self::from_callable(Packed(body))
    }

    /// Creates a function like [`PackedFunc::new`], with a signature. `describe` returns the signature as
    /// JSON and is called each time the signature is read.
    #[doc(hidden)]
    pub fn described(
        body: impl Fn(Args<'_>) -> Result<Any> + Send + Sync + 'static,
        describe: impl Fn() -> alloc::string::String + Send + Sync + 'static,
    ) -> PackedFunc {
        Self::from_callable(Described::<_, _, false> { body, describe })
    }

    /// Creates a function like [`PackedFunc::described`], and marks it as a function that may run for a long
    /// time or block; see [`crate::Blocking`].
    #[doc(hidden)]
    pub fn described_blocking(
        body: impl Fn(Args<'_>) -> Result<Any> + Send + Sync + 'static,
        describe: impl Fn() -> alloc::string::String + Send + Sync + 'static,
    ) -> PackedFunc {
        Self::from_callable(Described::<_, _, true> { body, describe })
    }

    pub(crate) fn from_callable<C: Callable>(body: C) -> PackedFunc {
        Self::from_content(FunctionContent::new(safe_call::<C>, const { &C::EXT }, body))
    }

    pub(crate) fn from_content<F: 'static>(content: FunctionContent<F>) -> PackedFunc {
        PackedFunc(ObjectBox::allocate(kTVMFFIFunction, OBJECT_FLAG_FUNCTION_EXT, content))
    }

    /// Calls the function. Arguments are a tuple of Rust values; see [`crate::IntoArg`] for the types that can be
    /// passed.
    ///
    /// # Errors
    /// Returns the error of the function or of the conversion of an argument.
    #[inline]
    pub fn call(&self, args: impl IntoArgs) -> Result<Any> {
        args.with_views(|views| self.call_views(views))
    }

    /// Calls the function with arguments that are already views.
    ///
    /// # Errors
    /// Returns the error of the function.
    #[inline]
    pub fn call_views(&self, args: &[AnyView<'_>]) -> Result<Any> {
        let mut result = TVMFFIAny::NONE;
        let Ok(count) = i32::try_from(args.len()) else {
            crate::bail!("ValueError", "{} arguments are too many for one call", args.len());
        };
        let (handle, values) = (self.0.as_handle(), args.as_ptr().cast());
        let code = if observe::is_on() {
            // SAFETY: the object is a function. The views live for the call, and `result` is a None that holds nothing.
            unsafe { observe::call(observe::door::RUST, handle, values, count, &mut result) }
        } else {
            // SAFETY: the object is a function, so its cell is valid. The views are transparent over the ABI's struct
            // and live for the call, and `result` is a None that holds nothing.
            unsafe { (self.cell().safe_call)(handle, values, count, &mut result) }
        };
        if code != 0 {
            return Err(Error::take_raised());
        }
        if (kTVMFFIDLTensorPtr..=kTVMFFIObjectRValueRef).contains(&result.type_index) {
            // SAFETY: a callee that returns a view violates the ABI; the content of the view is copied immediately.
            result = unsafe { AnyView::from_raw(result) }.to_owned().into_raw();
        }
        // The fields are loaded one by one, as the callee has just stored them: a processor cannot forward several
        // stores to one load of all 16 bytes, which would therefore wait.
        let TVMFFIAny { type_index, small_str_len, value } = result;
        // SAFETY: on success the result is an owned value.
        Ok(unsafe { Any::from_raw(TVMFFIAny { type_index, small_str_len, value }) })
    }

    /// Adds a Rust signature to the function. Arguments and result are converted at each call.
    ///
    /// ```
    /// # use anyfn_core as _;
    /// use anyfn::{Any, PackedFunc};
    /// let negate = PackedFunc::new(|args| Any::new(-args.get::<i64>(0)?));
    /// let negate = negate.typed::<fn(i64) -> i64>();
    /// assert_eq!(negate.call(5)?, -5);
    /// # Ok::<(), anyfn::Error>(())
    /// ```
    pub fn typed<Signature>(self) -> crate::TypedPackedFunc<Signature> {
        typed::TypedPackedFunc::from_packed(self)
    }

    /// Returns the signature as JSON; `None` if the function has none.
    pub fn signature(&self) -> Option<crate::String> {
        let ext = self.ext()?;
        let mut out = TVMFFIAny::NONE;
        // SAFETY: this is the function's own callback, called with the function and a writable None.
        let code = unsafe { ext.signature?(self.0.as_handle(), &mut out) };
        if code != 0 {
            drop(Error::take_raised());
            return None;
        }
        // SAFETY: on success the result is an owned value.
        let value = unsafe { Any::from_raw(out) };
        value.get::<crate::String>().ok()
    }

    /// Returns true if the function trusts an address that its caller passes; see [`crate::Unsafe`].
    #[inline]
    pub fn is_unsafe(&self) -> bool {
        self.ext().is_some_and(|ext| ext.flags & FUNCTION_FLAG_UNSAFE != 0)
    }

    fn ext(&self) -> Option<&'static AnyfnFunctionExt> {
        // SAFETY: the header is live.
        let flags = unsafe { &raw mut (*self.0.header()).flags };
        // SAFETY: the word is aligned and live. A frontend may change other flags of the function at the same time.
        let flags = unsafe { AtomicU32::from_ptr(flags) }.load(Ordering::Relaxed);
        if flags & OBJECT_FLAG_FUNCTION_EXT == 0 {
            return None;
        }
        // SAFETY: the flag guarantees that the pointer directly follows the cell.
        let ext: *const *const AnyfnFunctionExt = unsafe { core::ptr::from_ref(self.cell()).add(1) }.cast();
        // SAFETY: the flag guarantees that the pointer directly follows the cell.
        let ext = unsafe { *ext };
        // SAFETY: the pointer refers to static data of the library that created the function, and the function keeps
        // the library mapped.
        unsafe { ext.as_ref() }.filter(|ext| ext.size >= size_of::<AnyfnFunctionExt>())
    }

    #[inline]
    fn cell(&self) -> &TVMFFIFunctionCell {
        // SAFETY: in a function object the cell directly follows the header.
        let cell = unsafe { self.0.header().add(1) };
        // SAFETY: in a function object the cell directly follows the header; `self` keeps the object alive.
        unsafe { &*cell.cast() }
    }

    /// Converts the function into an object reference.
    pub fn into_object(self) -> ObjectRef {
        self.0
    }

    /// Returns the function as a borrowed object reference.
    #[inline]
    pub fn as_object(&self) -> &ObjectRef {
        &self.0
    }

    /// Casts an object reference to a [`PackedFunc`].
    ///
    /// # Errors
    /// Returns the object if it is not a function.
    #[inline]
    pub fn try_from_object(object: ObjectRef) -> Result<PackedFunc, ObjectRef> {
        if object.type_index() == kTVMFFIFunction { Ok(PackedFunc(object)) } else { Err(object) }
    }
}

impl fmt::Debug for PackedFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
