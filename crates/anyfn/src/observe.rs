//! Watching calls: what a profile is told.
//!
//! There is no door through which all calls go: a caller reads the address of a function's code out of the function object
//! and jumps there. So callers tell: this crate of each call that it makes, the runtime of those that come through
//! `TVMFFIFunctionCall`, frontends of theirs; and a frontend tells of calls that it gets, which callers of other makers
//! do not tell of. Who watches counts one call once, see [`Call::is_callee`].
//!
//! While nobody watches, that costs the load of a pointer that is NULL. Each library that contains the crate has a pointer
//! of its own ([`place`]); the runtime sets all of them (`ffi.ObserveCalls`).

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use anyfn_abi::{TVMFFIAny, TVMFFIFunctionCell, TVMFFIObject};

/// Who is told of calls.
#[doc(hidden)]
#[repr(C)]
#[derive(Debug)]
pub struct Observer {
    /// Size of this struct.
    pub size: usize,
    /// Called before a call. What it gives goes to `leave`, unless it is 0.
    pub enter: unsafe extern "C" fn(call: *const Call) -> u64,
    /// Called after the call; `code` is its result.
    pub leave: unsafe extern "C" fn(token: u64, code: c_int),
}

/// A call that is about to be made.
#[doc(hidden)]
#[repr(C)]
#[derive(Debug)]
pub struct Call {
    /// The function object.
    pub function: *mut c_void,
    /// Its arguments.
    pub args: *const TVMFFIAny,
    /// Number of arguments.
    pub num_args: i32,
    /// Who tells: one of the constants of [`door`].
    pub door: u32,
    /// Writes the name of the function as a string, or nothing; `None` if who tells knows none.
    pub name: Option<unsafe extern "C" fn(data: *mut c_void, out: *mut TVMFFIAny)>,
    /// What `name` gets.
    pub data: *mut c_void,
}

/// Who tells of a call.
#[doc(hidden)]
pub mod door {
    /// Code that calls through the crate `anyfn`.
    pub const RUST: u32 = 0;
    /// Code that calls through `TVMFFIFunctionCall`: C, and what compilers generate.
    pub const C: u32 = 1;
    /// Python calls.
    pub const PYTHON: u32 = 2;
    /// Python is called.
    pub const TO_PYTHON: u32 = 3;
}

impl Call {
    /// Whether the function itself tells. Its caller may have told already.
    pub fn is_callee(&self) -> bool {
        self.door == door::TO_PYTHON
    }
}

static OBSERVER: AtomicPtr<Observer> = AtomicPtr::new(core::ptr::null_mut());

/// Where this library looks whether somebody watches; the runtime writes there.
#[doc(hidden)]
pub fn place() -> &'static AtomicPtr<Observer> {
    &OBSERVER
}

/// Whether somebody watches.
#[doc(hidden)]
#[inline(always)]
pub fn is_on() -> bool {
    !OBSERVER.load(Ordering::Relaxed).is_null()
}

/// A call whose end somebody wants to know.
#[doc(hidden)]
#[derive(Debug)]
pub struct Watched(Option<(&'static Observer, u64)>);

impl Watched {
    /// Tells of a call that begins now.
    ///
    /// # Safety
    /// `call` must describe a call that is about to be made, of a function that is alive.
    #[cold]
    pub unsafe fn begin(call: &Call) -> Watched {
        // SAFETY: NULL, or what lives as long as the process.
        let observer = unsafe { OBSERVER.load(Ordering::Acquire).as_ref() };
        let Some(observer) = observer.filter(|observer| observer.size >= size_of::<Observer>()) else {
            return Watched(None);
        };
        // SAFETY: the caller describes a call.
        let token = unsafe { (observer.enter)(call) };
        Watched((token != 0).then_some((observer, token)))
    }

    /// The call is over, with this code.
    #[cold]
    pub fn end(self, code: c_int) {
        if let Some((observer, token)) = self.0 {
            // SAFETY: what `enter` gave, once.
            unsafe { (observer.leave)(token, code) };
        }
    }
}

/// Calls a function and tells of it.
///
/// # Safety
/// As for the `safe_call` of the function object `function`.
#[doc(hidden)]
#[cold]
#[inline(never)]
pub unsafe fn call(
    door: u32,
    function: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: a function object has its cell right behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { function.cast::<TVMFFIObject>().add(1) }.cast();
    // SAFETY: as above; the caller keeps the function alive.
    let safe_call = unsafe { (*cell).safe_call };
    let call = Call { function, args, num_args, door, name: None, data: core::ptr::null_mut() };
    // SAFETY: that is the call.
    let watched = unsafe { Watched::begin(&call) };
    // SAFETY: the caller guarantees what the function needs.
    let code = unsafe { safe_call(function, args, num_args, result) };
    watched.end(code);
    code
}
