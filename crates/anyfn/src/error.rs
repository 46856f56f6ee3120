//! Errors: one object for all languages.

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
use crate::{Any, Array, Map, ObjectRef, live, nesting, refcount};

/// Result of everything that may fail across languages.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// An error of any language: kind, message, trace, cause.
///
/// The kind is a stable name such as `ValueError`; frontends map it to their own classes. The trace lists the calls
/// that the error passed through, the most recent first.
///
/// ```
/// # use anyfn_core as _;
/// let error = anyfn::Error::new("ValueError", "rank must be 2, got 3");
/// assert_eq!(error.kind(), "ValueError");
/// assert_eq!(error.message(), "rank must be 2, got 3");
/// assert!(error.backtrace().contains(file!()));
/// ```
#[derive(Clone)]
#[repr(transparent)]
pub struct Error(ObjectRef);

/// Memory of an error that this crate makes: kind, message and trace follow in the same allocation.
#[repr(C)]
struct ErrorObject {
    header: TVMFFIObject,
    cell: TVMFFIErrorCell,
    /// Size of the whole allocation.
    size: usize,
    /// The allocation of the trace once it has been changed; the cell points into it then. NULL before.
    grown: *mut [u8],
}

/// Frees the allocation of a trace.
///
/// # Safety
/// `grown` must be NULL or made by `Box`, and nothing may use it any more.
unsafe fn free(grown: *mut [u8]) {
    if !grown.is_null() {
        // SAFETY: the caller guarantees it.
        drop(unsafe { Box::from_raw(grown) });
    }
}

/// Where an error was raised, for the first line of its trace.
struct Place<'a> {
    file: &'a str,
    line: u32,
}

/// Kind, message and trace, and the texts' common allocation.
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

    /// Makes the error, or `None` when memory is short.
    fn try_allocate(&self, cause: Option<ObjectRef>, context: Option<ObjectRef>) -> Option<Error> {
        let layout = self.layout()?;
        // SAFETY: the layout is not empty.
        let this: *mut ErrorObject = unsafe { alloc(layout) }.cast();
        if this.is_null() {
            return None;
        }
        // SAFETY: the texts' space begins behind the struct, in the same allocation.
        let mut at: *mut u8 = unsafe { this.add(1) }.cast();
        let mut put = |parts: &[&[u8]]| {
            let start = at;
            for part in parts {
                // SAFETY: `layout` has room for all parts and one NUL per text.
                unsafe { ptr::copy_nonoverlapping(part.as_ptr(), at, part.len()) };
                // SAFETY: `layout` has room for all parts and one NUL per text.
                at = unsafe { at.add(part.len()) };
            }
            // SAFETY: `layout` has room for one NUL per text.
            unsafe { at.write(0) };
            let size = at.addr() - start.addr();
            // SAFETY: `layout` has room for that NUL, so this is at most one past the end.
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
        // SAFETY: fresh memory, large and aligned enough.
        unsafe { this.write(object) };
        live::created(this, kTVMFFIError);
        // SAFETY: a valid object with one reference, which the result takes.
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
                // SAFETY: the object is ours and unused; it is handed over whole, memory included if so flagged.
                unsafe { nesting::defer(object.cast(), flags) };
                return Ended::NONE;
            }
            // SAFETY: no strong reference is left, so nothing else uses the trace. The header, whose weak count others
            // change, is not referred to.
            let grown = unsafe { (*this).grown };
            // SAFETY: the error's own allocation, which nothing else frees.
            unsafe { free(grown) };
            // SAFETY: the memory is still there, and the cause does not change.
            let cause = unsafe { (*this).cell.cause_chain };
            // SAFETY: the memory is still there, and the context does not change.
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
        // SAFETY: the memory is still there.
        let size = unsafe { (*this).size };
        let Ok(layout) = Layout::from_size_align(size, align_of::<ErrorObject>()) else { return Ended::NONE };
        let ended = live::ending(this, kTVMFFIError);
        // SAFETY: allocated with this very layout; the content is gone.
        unsafe { dealloc(this.cast(), layout) };
        ended
    }

    unsafe extern "C" fn update_backtrace(error: TVMFFIObjectHandle, text: *const TVMFFIByteArray, mode: i32) {
        let this: *mut ErrorObject = error.cast();
        // SAFETY: the caller passes a valid byte array or NULL.
        let Some(text) = (unsafe { text.as_ref() }) else { return };
        // SAFETY: the caller's text is valid for the call.
        let text = unsafe { text.as_slice() };
        let mut trace = Vec::new();
        // SAFETY: called with an error of ours, which the caller keeps alive.
        let _locked = unsafe { lock_bit(this.cast(), OBJECT_FLAG_LOCKED) };
        // Both are reached by their address: others may hold references to the texts beside them.
        // SAFETY: the error is alive.
        let shown: *mut TVMFFIByteArray = unsafe { &raw mut (*this).cell.backtrace };
        // SAFETY: the error is alive.
        let grown: *mut *mut [u8] = unsafe { &raw mut (*this).grown };
        // SAFETY: the trace is read and changed under the lock only.
        let old = unsafe { shown.read() };
        // SAFETY: the error's own text, which this function alone frees, under the lock.
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
        // SAFETY: the trace is read and changed under the lock only.
        unsafe { shown.write(TVMFFIByteArray { data: data.cast(), size }) };
        // SAFETY: read and changed under the lock only.
        let old = unsafe { grown.replace(data) };
        // SAFETY: the old allocation, which nothing points to any more.
        unsafe { free(old) };
    }
}

/// Writes a number in decimal without the formatting machinery.
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
    /// Makes an error of a kind (such as `ValueError`) with a message; its trace begins with the caller's line.
    #[track_caller]
    #[cold]
    pub fn new(kind: &str, message: &str) -> Error {
        let at = Location::caller();
        Self::at(kind, [message.as_bytes(), b""], &Place { file: at.file(), line: at.line() })
    }

    /// Like [`Error::new`] without a trace: for mistakes of the caller, about which a line of the callee says nothing.
    #[cold]
    pub fn untraced(kind: &str, message: &str) -> Error {
        Texts { kind: kind.as_bytes(), message: [message.as_bytes(), b""], trace: &[] }.allocate()
    }

    /// Like [`Error::new`] with the message made of two parts.
    #[track_caller]
    #[cold]
    pub fn from_parts(kind: &str, first: &str, second: &str) -> Error {
        let at = Location::caller();
        Self::at(kind, [first.as_bytes(), second.as_bytes()], &Place { file: at.file(), line: at.line() })
    }

    /// Makes an error whose trace begins with the given place.
    #[cfg(feature = "std")]
    pub(crate) fn with_place(kind: &str, message: &str, file: &str, line: u32) -> Error {
        Self::at(kind, [message.as_bytes(), b""], &Place { file, line })
    }

    fn at(kind: &str, message: [&[u8]; 2], place: &Place<'_>) -> Error {
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

    /// Makes an error of its texts; `None` when memory is short.
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
    /// A callee that fails without raising an error breaks the rules of the ABI; that gives an `InternalError`.
    #[cold]
    pub fn take_raised() -> Error {
        Error::take_raised_if_any()
            .unwrap_or_else(|| Error::new("InternalError", "a function failed without raising an error"))
    }

    /// As [`Error::take_raised`]; `None` if no error is raised.
    pub(crate) fn take_raised_if_any() -> Option<Error> {
        let mut handle: TVMFFIObjectHandle = ptr::null_mut();
        // SAFETY: `handle` is writable.
        unsafe { TVMFFIErrorMoveFromRaised(&mut handle) };
        // SAFETY: the slot gives an owned error or NULL.
        unsafe { ObjectRef::from_owned_or_null(handle) }.map(Error)
    }

    /// Raises the error on this thread, for a function that returns to C.
    #[cold]
    pub fn raise(&self) {
        // SAFETY: the handle is a valid error; the slot takes a reference of its own.
        unsafe { TVMFFIErrorSetRaised(self.0.as_handle()) };
    }

    /// The kind, such as `ValueError`.
    pub fn kind(&self) -> &str {
        // SAFETY: the error keeps the cell alive, and a maker never changes this part of it.
        let kind = unsafe { &(*self.cell()).kind };
        // SAFETY: the error owns its texts.
        unsafe { text_of(kind) }
    }

    /// The message.
    pub fn message(&self) -> &str {
        // SAFETY: the error keeps the cell alive, and a maker never changes this part of it.
        let message = unsafe { &(*self.cell()).message };
        // SAFETY: the error owns its texts.
        unsafe { text_of(message) }
    }

    /// The trace: lines `  File "<file>", line <n>, in <function>`, the most recent call first.
    pub fn backtrace(&self) -> StdString {
        // SAFETY: the closure only copies the text.
        self.with_backtrace(|trace| unsafe { text_of(trace) }.to_string())
    }

    /// The trace as it is, whatever its encoding.
    #[doc(hidden)]
    pub fn backtrace_bytes(&self) -> Vec<u8> {
        // SAFETY: the closure only copies the text.
        self.with_backtrace(|trace| unsafe { trace.as_slice() }.to_vec())
    }

    /// Reads the trace, which nobody changes meanwhile.
    fn with_backtrace<T>(&self, read: impl FnOnce(&TVMFFIByteArray) -> T) -> T {
        // SAFETY: `self` keeps the error alive.
        let _others = unsafe { lock_bit(self.0.header(), OBJECT_FLAG_TRACE_LOCKED) };
        // SAFETY: `self` keeps the error alive.
        let _own = unsafe { lock_bit(self.0.header(), OBJECT_FLAG_LOCKED) };
        // SAFETY: an error has its cell behind the header; the trace is changed under the locks.
        let trace = unsafe { (*self.cell()).backtrace };
        read(&trace)
    }

    /// Adds lines to the end of the trace.
    pub fn append_backtrace(&self, lines: &str) {
        self.update_backtrace(lines, kTVMFFIBacktraceUpdateModeAppend);
    }

    /// Sets the trace, for who knows the whole of it.
    pub fn replace_backtrace(&self, lines: &str) {
        self.update_backtrace(lines, kTVMFFIBacktraceUpdateModeReplace);
    }

    fn update_backtrace(&self, lines: &str, mode: i32) {
        let text = TVMFFIByteArray::from_slice(lines.as_bytes());
        // SAFETY: an error has its cell behind the header, and a maker never changes this part of it.
        if let Some(update) = unsafe { (*self.cell()).update_backtrace } {
            // Another maker's function takes no lock.
            // SAFETY: `self` keeps the error alive.
            let _others = unsafe { lock_bit(self.0.header(), OBJECT_FLAG_TRACE_LOCKED) };
            // SAFETY: the error's own function, with a valid text that it copies. No reference to the cell is alive.
            unsafe { update(self.0.as_handle(), &text, mode) };
        }
    }

    /// The error that caused this one.
    pub fn cause(&self) -> Option<Error> {
        // SAFETY: an error has its cell behind the header, and a maker never changes this part of it.
        let cause = unsafe { (*self.cell()).cause_chain };
        // SAFETY: the error owns a reference to its cause, if it has one.
        let object = unsafe { ObjectRef::from_borrowed_or_null(cause) }?;
        Error::try_from_object(object).ok()
    }

    /// Further detail: a Map with the keys `function`, `argument`, `path`, `expected` and `got`, a foreign exception
    /// object, or both: then the Map has the object under `exception`.
    pub fn context(&self) -> Option<ObjectRef> {
        // SAFETY: an error has its cell behind the header, and a maker never changes this part of it.
        let context = unsafe { (*self.cell()).extra_context };
        // SAFETY: the error owns a reference to its context, if it has one.
        unsafe { ObjectRef::from_borrowed_or_null(context) }
    }

    /// The same error with a cause.
    #[must_use]
    pub fn with_cause(self, cause: &Error) -> Error {
        self.rebuilt(Some(cause.0.clone()), self.context())
    }

    /// The same error with further detail.
    #[must_use]
    pub fn with_context(self, context: ObjectRef) -> Error {
        self.rebuilt(self.cause().map(Error::into_object), Some(context))
    }

    /// The same error with a remark of who passed it on, such as where it happened: a text in the list `notes` of its
    /// context. Python shows it below the message. Without memory the remark is left out.
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

    /// The error as an object.
    pub fn into_object(self) -> ObjectRef {
        self.0
    }

    /// The error as an object, borrowed.
    pub fn as_object(&self) -> &ObjectRef {
        &self.0
    }

    /// An error object as an error.
    ///
    /// # Errors
    /// The object itself, if it is none.
    pub fn try_from_object(object: ObjectRef) -> Result<Error, ObjectRef> {
        if object.is_instance(kTVMFFIError) { Ok(Error(object)) } else { Err(object) }
    }

    /// Address of the cell, which lies behind the header. There is no reference to all of it, since the trace changes.
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

impl core::error::Error for Error {}

/// Returns early with an [`Error`]: kind, then a format string with its arguments.
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

/// Makes an [`Error`]: kind, then a format string with its arguments.
#[macro_export]
macro_rules! error {
    ($kind:expr, $($format:tt)+) => {
        $crate::Error::new($kind, &$crate::__private::format!($($format)+))
    };
}
