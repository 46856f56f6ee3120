//! Errors, represented as one object for all languages.

use core::alloc::Layout;
use core::ffi::{c_int, c_void};
use core::fmt;
use core::panic::Location;
use core::ptr;

use alloc::alloc::{alloc, dealloc, handle_alloc_error};
use alloc::boxed::Box;
use alloc::string::{String as StdString, ToString};
use alloc::vec::Vec;

use anyfn_abi::{
    OBJECT_FLAG_LOCKED, OBJECT_FLAG_TRACE_LOCKED, TVMFFIByteArray, TVMFFIErrorCell, TVMFFIErrorMoveFromRaised,
    TVMFFIErrorSetRaised, TVMFFIObject, TVMFFIObjectHandle, kTVMFFIBacktraceUpdateModeAppend,
    kTVMFFIBacktraceUpdateModeReplace, kTVMFFIError, kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG,
    kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK, kTVMFFIOpaquePyObject,
};

use crate::containers::lock::lock_bit;
use crate::live::Ended;
use crate::string::text_of;
use crate::{Any, Array, Map, ObjectRef, error_kind, live, nesting, refcount};

/// Result of an operation that may fail with an [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// An error with kind, message, backtrace, cause and context. Code in any language may raise and handle it.
///
/// The kind is a stable name such as `ValueError`, which frontends map to their own classes; [`error_kind`] has
/// constants for the usual ones. The backtrace lists the calls that the error passed through, most recent call first.
///
/// ```
/// # use anyfn_core as _;
/// let error = anyfn::Error::new("ValueError", "rank must be 2, got 3");
/// assert_eq!(error.kind(), "ValueError");
/// assert_eq!(error.message(), "rank must be 2, got 3");
/// assert!(error.backtrace().contains(file!()));
/// ```
///
/// The operator `?` converts errors of the standard library. Most have the kind `ValueError`; a number that does not fit
/// is an `OverflowError`, a failed allocation a `MemoryError`, and an I/O error is of the kind of the exception that
/// Python raises in the same situation. An `io::Error` that contains an [`Error`] becomes that error again.
///
/// ```
/// # use anyfn_core as _;
/// fn port_of(address: &str) -> anyfn::Result<u16> {
///     let (_, port) = address.split_once(':').unwrap_or((address, "80"));
///     Ok(port.parse()?)
/// }
/// assert_eq!(port_of("localhost:8080")?, 8080);
/// assert_eq!(port_of("localhost:x").unwrap_err().to_string(), "ValueError: invalid digit found in string");
/// assert_eq!(port_of("localhost:70000").unwrap_err().kind(), "OverflowError");
/// # Ok::<(), anyfn::Error>(())
/// ```
#[derive(Clone)]
#[repr(transparent)]
pub struct Error(ObjectRef);

/// Memory layout of an error that this crate creates. The strings for kind, message and backtrace follow in
/// the same allocation.
#[repr(C)]
struct ErrorObject {
    header: TVMFFIObject,
    cell: TVMFFIErrorCell,
    /// Size of the whole allocation in bytes.
    size: usize,
    /// Heap allocation that contains the backtrace once it has been changed; NULL before the first change.
    grown: *mut [u8],
}

/// Frees `grown`, the heap allocation of a changed backtrace. Does nothing if `grown` is NULL.
///
/// # Safety
/// `grown` must be NULL or an unused allocation of a `Box`.
unsafe fn free(grown: *mut [u8]) {
    if !grown.is_null() {
        // SAFETY: the caller guarantees an unused allocation of a `Box`.
        drop(unsafe { Box::from_raw(grown) });
    }
}

/// Source location where an error was raised, for the first line of its backtrace.
struct SourceLocation<'a> {
    file: &'a str,
    line: u32,
}

/// Kind, message and backtrace of an error to be created.
struct Texts<'a> {
    kind: &'a [u8],
    message: [&'a [u8]; 2],
    trace: &'a [&'a [u8]],
}

impl Texts<'_> {
    fn layout(&self) -> Option<Layout> {
        let texts = [self.kind, self.message[0], self.message[1]];
        let sum =
            |parts: &[&[u8]], start: usize| parts.iter().try_fold(start, |n, part| n.checked_add(part.len()));
        let size = sum(self.trace, sum(&texts, size_of::<ErrorObject>() + 3)?)?;
        Layout::from_size_align(size, align_of::<ErrorObject>()).ok()
    }

    /// Creates an error object with these strings, `cause` and `context`; returns `None` if memory allocation
    /// fails.
    fn try_allocate(&self, cause: Option<ObjectRef>, context: Option<ObjectRef>) -> Option<Error> {
        let layout = self.layout()?;
        // SAFETY: the layout is not empty.
        let this: *mut ErrorObject = unsafe { alloc(layout) }.cast();
        if this.is_null() {
            return None;
        }
        // SAFETY: the space for the strings follows the struct in the same allocation.
        let mut at: *mut u8 = unsafe { this.add(1) }.cast();
        let mut put = |parts: &[&[u8]]| {
            let start = at;
            for part in parts {
                // SAFETY: `layout` has room for all parts and one NUL per string.
                unsafe { ptr::copy_nonoverlapping(part.as_ptr(), at, part.len()) };
                // SAFETY: `layout` has room for all parts and one NUL per string.
                at = unsafe { at.add(part.len()) };
            }
            // SAFETY: `layout` has room for one NUL per string.
            unsafe { at.write(0) };
            let size = at.addr() - start.addr();
            // SAFETY: `layout` has room for this NUL, so the result is at most one past the end.
            at = unsafe { at.add(1) };
            TVMFFIByteArray { data: start.cast(), size }
        };
        let into_handle = |object: Option<ObjectRef>| object.map_or(ptr::null_mut(), ObjectRef::into_handle);
        let object = ErrorObject {
            header: TVMFFIObject {
                combined_ref_count: refcount::UNIQUE,
                type_index: kTVMFFIError,
                flags: 0,
                deleter: Some(ErrorObject::delete),
            },
            cell: TVMFFIErrorCell {
                kind: put(&[self.kind]),
                message: put(&self.message),
                backtrace: put(self.trace),
                update_backtrace: Some(ErrorObject::update_backtrace),
                cause_chain: into_handle(cause),
                extra_context: into_handle(context),
            },
            size: layout.size(),
            grown: ptr::slice_from_raw_parts_mut(ptr::null_mut(), 0),
        };
        // SAFETY: the memory is newly allocated, and large and aligned enough.
        unsafe { this.write(object) };
        live::created(this, kTVMFFIError);
        // SAFETY: the object is valid and has one reference, which moves to the result.
        unsafe { ObjectRef::from_owned_or_null(this.cast()) }.map(Error)
    }

    fn allocate(&self) -> Error {
        match self.try_allocate(None, None) {
            Some(error) => error,
            None => handle_alloc_error(self.layout().unwrap_or(Layout::new::<ErrorObject>())),
        }
    }
}

impl ErrorObject {
    live::deleter!(fn delete(object: *mut c_void, flags: c_int) by ErrorObject::release);

    unsafe extern "C" fn release(object: *mut c_void, flags: c_int) -> Ended {
        let this: *mut ErrorObject = object.cast();
        if flags & STRONG != 0 {
            if !nesting::enter() {
                // SAFETY: this crate created the object, and it is unused. Its content, and its memory if flagged, are
                // handed over.
                unsafe { nesting::defer(object.cast(), flags) };
                return Ended::NONE;
            }
            // SAFETY: no strong reference is left, so no other code uses the backtrace. No reference to the header is
            // created, because other threads may change its weak count.
            let grown = unsafe { (*this).grown };
            // SAFETY: this is the error's own allocation, and no other code frees it.
            unsafe { free(grown) };
            // SAFETY: the memory has not been freed yet, and the cause does not change.
            let cause = unsafe { (*this).cell.cause_chain };
            // SAFETY: the memory has not been freed yet, and the context does not change.
            let context = unsafe { (*this).cell.extra_context };
            // SAFETY: the error owns one reference to its cause.
            drop(unsafe { ObjectRef::from_owned_or_null(cause) });
            // SAFETY: the error owns one reference to its context.
            drop(unsafe { ObjectRef::from_owned_or_null(context) });
            nesting::leave();
        }
        if flags & WEAK == 0 {
            return Ended::NONE;
        }
        // SAFETY: the memory has not been freed yet.
        let size = unsafe { (*this).size };
        let Ok(layout) = Layout::from_size_align(size, align_of::<ErrorObject>()) else { return Ended::NONE };
        let ended = live::ending(this, kTVMFFIError);
        // SAFETY: the memory was allocated with this layout, and the content has been destroyed.
        unsafe { dealloc(this.cast(), layout) };
        ended
    }

    unsafe extern "C" fn update_backtrace(error: TVMFFIObjectHandle, text: *const TVMFFIByteArray, mode: i32) {
        let this: *mut ErrorObject = error.cast();
        // SAFETY: the caller passes a valid byte array or NULL.
        let Some(text) = (unsafe { text.as_ref() }) else { return };
        // SAFETY: the caller's string is valid for the call.
        let text = unsafe { text.as_slice() };
        let mut trace = Vec::new();
        // SAFETY: this crate created the error, and the caller keeps it alive.
        let _locked = unsafe { lock_bit(this.cast(), OBJECT_FLAG_LOCKED) };
        // Both fields are accessed through their addresses, because other code may hold references to the strings
        // beside them.
        // SAFETY: the error is alive.
        let shown: *mut TVMFFIByteArray = unsafe { &raw mut (*this).cell.backtrace };
        // SAFETY: the error is alive.
        let grown: *mut *mut [u8] = unsafe { &raw mut (*this).grown };
        // SAFETY: the backtrace is read and changed only under the lock.
        let old = unsafe { shown.read() };
        // SAFETY: the error owns this string, and only this function frees it, under the lock.
        let old = unsafe { old.as_slice() };
        let keep = if mode == kTVMFFIBacktraceUpdateModeAppend { old } else { &[] };
        if trace.try_reserve_exact(keep.len() + text.len() + 1).is_err() {
            return;
        }
        trace.extend_from_slice(keep);
        trace.extend_from_slice(text);
        trace.push(0);
        let size = trace.len() - 1;
        let data = Box::into_raw(trace.into_boxed_slice());
        // SAFETY: the backtrace is read and changed only under the lock.
        unsafe { shown.write(TVMFFIByteArray { data: data.cast(), size }) };
        // SAFETY: the field is read and changed only under the lock.
        let old = unsafe { grown.replace(data) };
        // SAFETY: this is the old allocation, to which nothing points any more.
        unsafe { free(old) };
    }
}

/// Formats a number in decimal without the formatting machinery of the standard library.
fn decimal(mut number: u32, buffer: &mut [u8; 10]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[at..];
        }
    }
}

impl Error {
    /// Creates an error with a kind, such as `ValueError`, and a message. Its backtrace begins with the caller's line.
    #[track_caller]
    #[cold]
    pub fn new(kind: &str, message: &str) -> Error {
        let at = Location::caller();
        Self::at(kind, [message.as_bytes(), b""], &SourceLocation { file: at.file(), line: at.line() })
    }

    /// Creates an error like [`Error::new`], with a message that is formatted here: not by each caller, which would then
    /// also have to free the string. The macros [`error!`](crate::error!) and [`bail!`](crate::bail!) expand to a call
    /// of this function.
    #[doc(hidden)]
    #[track_caller]
    #[cold]
    #[inline(never)]
    pub fn formatted(kind: &str, message: fmt::Arguments<'_>) -> Error {
        match message.as_str() {
            Some(message) => Self::new(kind, message),
            None => Self::new(kind, &alloc::fmt::format(message)),
        }
    }

    /// Creates an error without a backtrace. Use it for invalid arguments, where the source line of the
    /// callee does not help the caller.
    #[cold]
    pub fn untraced(kind: &str, message: &str) -> Error {
        Texts { kind: kind.as_bytes(), message: [message.as_bytes(), b""], trace: &[] }.allocate()
    }

    /// Creates an error like [`Error::new`], with a message that is the concatenation of two parts.
    #[track_caller]
    #[cold]
    pub fn from_parts(kind: &str, first: &str, second: &str) -> Error {
        let at = Location::caller();
        Self::at(
            kind,
            [first.as_bytes(), second.as_bytes()],
            &SourceLocation { file: at.file(), line: at.line() },
        )
    }

    /// Creates an error whose backtrace begins with the given source location.
    #[cfg(feature = "std")]
    pub(crate) fn with_place(kind: &str, message: &str, file: &str, line: u32) -> Error {
        Self::at(kind, [message.as_bytes(), b""], &SourceLocation { file, line })
    }

    fn at(kind: &str, message: [&[u8]; 2], place: &SourceLocation<'_>) -> Error {
        let mut number = [0; 10];
        let trace: [&[u8]; 5] = [
            b"  File \"",
            place.file.as_bytes(),
            b"\", line ",
            decimal(place.line, &mut number),
            b", in <rust>\n",
        ];
        Texts { kind: kind.as_bytes(), message, trace: &trace }.allocate()
    }

    /// Creates an error from its kind, message, backtrace, cause and context; returns `None` if memory allocation
    /// fails.
    pub fn try_from_texts(
        kind: &[u8],
        message: &[u8],
        backtrace: &[u8],
        cause: Option<ObjectRef>,
        context: Option<ObjectRef>,
    ) -> Option<Error> {
        Texts { kind, message: [message, b""], trace: &[backtrace] }.try_allocate(cause, context)
    }

    /// Takes the error that a failed call has raised on this thread.
    ///
    /// Returns an `InternalError` if no error is raised: a callee that fails without raising an error violates the ABI.
    #[cold]
    pub fn take_raised() -> Error {
        Error::take_raised_if_any().unwrap_or_else(|| {
            Error::new(error_kind::INTERNAL_ERROR, "a function failed without raising an error")
        })
    }

    /// Takes the error that is raised on this thread; `None` if no error is raised.
    pub(crate) fn take_raised_if_any() -> Option<Error> {
        let mut handle: TVMFFIObjectHandle = ptr::null_mut();
        // SAFETY: `handle` is writable.
        unsafe { TVMFFIErrorMoveFromRaised(&mut handle) };
        // SAFETY: the slot returns an owned error or NULL.
        unsafe { ObjectRef::from_owned_or_null(handle) }.map(Error)
    }

    /// Sets the error as the current error of this thread. A function that C code calls does this before it
    /// returns -1.
    #[cold]
    pub fn raise(&self) {
        // SAFETY: the handle is a valid error, and the slot takes its own reference.
        unsafe { TVMFFIErrorSetRaised(self.0.as_handle()) };
    }

    /// Returns the kind of the error, such as `ValueError`; see [`error_kind`].
    pub fn kind(&self) -> &str {
        // SAFETY: the error keeps the cell alive, and this part of it never changes.
        let kind = unsafe { &(*self.cell()).kind };
        // SAFETY: the error owns the string.
        unsafe { text_of(kind) }
    }

    /// Returns the message of the error.
    pub fn message(&self) -> &str {
        // SAFETY: the error keeps the cell alive, and this part of it never changes.
        let message = unsafe { &(*self.cell()).message };
        // SAFETY: the error owns the string.
        unsafe { text_of(message) }
    }

    /// Returns the backtrace. Each line has the form `  File "<file>", line <n>, in <function>`, most recent
    /// call first.
    pub fn backtrace(&self) -> StdString {
        // SAFETY: the closure only copies the string.
        self.with_backtrace(|trace| unsafe { text_of(trace) }.to_string())
    }

    /// Returns the backtrace as bytes, without checking that they are UTF-8.
    #[doc(hidden)]
    pub fn backtrace_bytes(&self) -> Vec<u8> {
        // SAFETY: the closure only copies the bytes.
        self.with_backtrace(|trace| unsafe { trace.as_slice() }.to_vec())
    }

    /// Locks the backtrace against changes and passes it to `read`.
    fn with_backtrace<T>(&self, read: impl FnOnce(&TVMFFIByteArray) -> T) -> T {
        // SAFETY: `self` keeps the error alive.
        let _others = unsafe { lock_bit(self.0.header(), OBJECT_FLAG_TRACE_LOCKED) };
        // SAFETY: `self` keeps the error alive.
        let _own = unsafe { lock_bit(self.0.header(), OBJECT_FLAG_LOCKED) };
        // SAFETY: in an error the cell follows the header, and the backtrace changes only under the locks.
        let trace = unsafe { (*self.cell()).backtrace };
        read(&trace)
    }

    /// Appends `lines` to the backtrace.
    pub fn append_backtrace(&self, lines: &str) {
        self.update_backtrace(lines, kTVMFFIBacktraceUpdateModeAppend);
    }

    /// Replaces the whole backtrace with `lines`.
    pub fn replace_backtrace(&self, lines: &str) {
        self.update_backtrace(lines, kTVMFFIBacktraceUpdateModeReplace);
    }

    fn update_backtrace(&self, lines: &str, mode: i32) {
        let text = TVMFFIByteArray::from_slice(lines.as_bytes());
        // SAFETY: in an error the cell follows the header, and this part of it never changes.
        if let Some(update) = unsafe { (*self.cell()).update_backtrace } {
            // The function of an error that another library created takes no lock.
            // SAFETY: `self` keeps the error alive.
            let _others = unsafe { lock_bit(self.0.header(), OBJECT_FLAG_TRACE_LOCKED) };
            // SAFETY: this is the error's own function, and the string, which it copies, is valid. No reference to the
            // cell is alive.
            unsafe { update(self.0.as_handle(), &text, mode) };
        }
    }

    /// Returns the error that caused this error; `None` if no cause is recorded.
    /// [`source`](core::error::Error::source) returns the same error, borrowed.
    pub fn cause(&self) -> Option<Error> {
        self.cause_ref().cloned()
    }

    /// Returns the error that caused this one, borrowed from this error.
    fn cause_ref(&self) -> Option<&Error> {
        // SAFETY: in an error the cell follows the header.
        let cause = unsafe { &raw const (*self.cell()).cause_chain };
        // SAFETY: this part of the cell never changes and lives as long as `self`. It is NULL or a handle that the error
        // owns, so it has the representation of an optional reference, which is not dropped here.
        let cause = unsafe { &*cause.cast::<Option<ObjectRef>>() }.as_ref()?;
        // SAFETY: an error is a transparent reference to an object, whose type has been checked.
        cause.is_instance(kTVMFFIError).then(|| unsafe { &*ptr::from_ref(cause).cast::<Error>() })
    }

    /// Returns further details of the error, if any: a Map or a foreign exception object. The Map
    /// can have the keys `function`, `argument`, `path`, `expected`, `got` and `notes`. If the
    /// error also has a foreign exception object, the Map contains it under the key `exception`.
    pub fn context(&self) -> Option<ObjectRef> {
        // SAFETY: in an error the cell follows the header, and this part of it never changes.
        let context = unsafe { (*self.cell()).extra_context };
        // SAFETY: the error owns a reference to its context, if it has one.
        unsafe { ObjectRef::from_borrowed_or_null(context) }
    }

    /// Returns a copy of the error with `cause` as its cause.
    ///
    /// ```
    /// # use anyfn_core as _;
    /// use std::error::Error as _;
    ///
    /// let cause = anyfn::Error::new("KeyError", "port");
    /// let error = anyfn::Error::new("ValueError", "incomplete settings").with_cause(&cause);
    /// assert_eq!(error.source().map(|cause| cause.to_string()), Some("KeyError: port".to_string()));
    /// ```
    #[must_use]
    pub fn with_cause(self, cause: &Error) -> Error {
        self.rebuilt(Some(cause.0.clone()), self.context())
    }

    /// Returns a copy of the error with `context` as its context.
    #[must_use]
    pub fn with_context(self, context: ObjectRef) -> Error {
        self.rebuilt(self.cause().map(Error::into_object), Some(context))
    }

    /// Returns a copy of the error with an additional note, such as the location at which the error occurred.
    ///
    /// Notes are strings in the list `notes` of the context, and Python shows them below the message. The note is
    /// omitted if memory allocation fails or if the context is an object of another kind.
    #[must_use]
    pub fn with_note(self, note: &str) -> Error {
        match self.detail_with_note(note) {
            Ok(context) => self.with_context(context),
            Err(_) => self,
        }
    }

    fn detail_with_note(&self, note: &str) -> Result<ObjectRef> {
        let mut detail = Map::<Any, Any>::new();
        match self.context().map(Map::<Any, Any>::try_from_object) {
            Some(Ok(known)) => detail = known,
            Some(Err(object)) if object.type_index() == kTVMFFIOpaquePyObject => {
                detail.insert(Any::new("exception")?, Any::from(object))?;
            }
            Some(Err(_)) => return Err(self.clone()),
            None => {}
        }
        let known = detail.get_any("notes")?.and_then(|notes| notes.get::<Array<Any>>().ok());
        let mut notes = known.unwrap_or_default();
        notes.push(Any::new(note)?)?;
        detail.insert(Any::new("notes")?, Any::new(notes)?)?;
        Ok(detail.into_object())
    }

    fn rebuilt(&self, cause: Option<ObjectRef>, context: Option<ObjectRef>) -> Error {
        let trace = self.backtrace();
        let (kind, message) = (self.kind().as_bytes(), self.message().as_bytes());
        Self::try_from_texts(kind, message, trace.as_bytes(), cause, context).unwrap_or_else(|| self.clone())
    }

    /// Converts the error into an object reference.
    pub fn into_object(self) -> ObjectRef {
        self.0
    }

    /// Returns the error as a borrowed object reference.
    pub fn as_object(&self) -> &ObjectRef {
        &self.0
    }

    /// Casts an object reference to an [`Error`].
    ///
    /// # Errors
    /// Returns the object if it is not an error.
    pub fn try_from_object(object: ObjectRef) -> Result<Error, ObjectRef> {
        if object.is_instance(kTVMFFIError) { Ok(Error(object)) } else { Err(object) }
    }

    /// Returns the address of the error's `TVMFFIErrorCell`, which follows the object header. The result is a
    /// raw pointer because another thread may change the backtrace in the cell.
    fn cell(&self) -> *const TVMFFIErrorCell {
        self.0.header().wrapping_add(1).cast()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind(), self.message())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}\n{}", self.backtrace())
    }
}

impl core::error::Error for Error {
    /// Returns the [cause](Error::cause). Repeated calls of `source`, each on the previous result,
    /// yield the whole chain of causes.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.cause_ref().map(|cause| cause as &(dyn core::error::Error + 'static))
    }
}

/// Details about an invalid argument, stored as the context of an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct Detail<'a> {
    /// Name of the function that was called.
    pub function: &'a str,
    /// Name or index of the argument.
    pub argument: &'a str,
    /// Path to the invalid value inside the argument, such as `[3]["w"]`.
    pub path: &'a str,
    /// Description of the expected type.
    pub expected: &'a str,
    /// Description of the actual value.
    pub got: &'a str,
}

/// Returns a copy of `error` with `detail` as its context, or `error` unchanged if memory allocation fails.
pub fn with_detail(error: Error, detail: &Detail<'_>) -> Error {
    let pairs = [
        ("function", detail.function),
        ("argument", detail.argument),
        ("path", detail.path),
        ("expected", detail.expected),
        ("got", detail.got),
    ];
    // If memory for the details is exhausted, the error is returned without them.
    match Map::<Any, Any>::try_from_iter(pairs) {
        Ok(context) => error.with_context(context.into_object()),
        Err(_) => error,
    }
}

/// Returns early from the enclosing function with an [`Error`] of the given kind. The message is formatted as
/// by `format!`.
///
/// ```
/// # use anyfn_core as _;
/// fn half(x: i64) -> anyfn::Result<i64> {
///     if x % 2 != 0 {
///         anyfn::bail!("ValueError", "{x} is odd");
///     }
///     Ok(x / 2)
/// }
/// assert_eq!(half(3).unwrap_err().message(), "3 is odd");
/// ```
#[macro_export]
macro_rules! bail {
    ($kind:expr, $($format:tt)+) => {
        return ::core::result::Result::Err($crate::error!($kind, $($format)+))
    };
}

/// Creates an [`Error`] of the given kind. The message is formatted as by `format!`.
#[macro_export]
macro_rules! error {
    ($kind:expr, $($format:tt)+) => {
        $crate::Error::formatted($kind, ::core::format_args!($($format)+))
    };
}
