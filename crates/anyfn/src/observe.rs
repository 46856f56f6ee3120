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
///
/// Its functions are called by safe code, so to make one, and to say that calls are told to it, is unsafe:
///
/// ```compile_fail,E0451
/// # use anyfn_core as _;
/// unsafe extern "C" fn enter(_: *const anyfn::observe::Call) -> u64 {
///     8
/// }
/// unsafe extern "C" fn leave(token: u64, _: i32) {
///     // SAFETY: there is none.
///     unsafe { std::ptr::without_provenance_mut::<u64>(token as usize).write(0) }
/// }
/// let observer = anyfn::observe::Observer { size: 24, enter, leave };
/// ```
///
/// ```compile_fail,E0133
/// # use anyfn_core as _;
/// let place = anyfn::observe::place();
/// place.store(std::ptr::without_provenance_mut(8), std::sync::atomic::Ordering::Release);
/// ```
#[doc(hidden)]
#[repr(C)]
#[derive(Debug)]
pub struct Observer {
    /// Size of this struct.
    size: usize,
    /// Called before a call. What it gives goes to `leave`, unless it is 0.
    enter: unsafe extern "C" fn(call: *const Call) -> u64,
    /// Called after the call; `code` is its result.
    leave: unsafe extern "C" fn(token: u64, code: c_int),
}

impl Observer {
    /// An observer of these functions.
    ///
    /// # Safety
    /// `enter` must be callable from any thread with a valid [`Call`], `leave` once with what `enter` gave; neither may
    /// unwind.
    #[doc(hidden)]
    pub const unsafe fn new(
        enter: unsafe extern "C" fn(call: *const Call) -> u64,
        leave: unsafe extern "C" fn(token: u64, code: c_int),
    ) -> Observer {
        Observer { size: size_of::<Observer>(), enter, leave }
    }
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
///
/// # Safety
/// Only NULL and observers that live as long as the process may be stored there.
#[doc(hidden)]
pub unsafe fn place() -> &'static AtomicPtr<Observer> {
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
    // SAFETY: a function object has its cell right behind the header; the caller keeps the function alive.
    let safe_call = unsafe { (*cell).safe_call };
    let call = Call { function, args, num_args, door, name: None, data: core::ptr::null_mut() };
    // SAFETY: that is the call.
    let watched = unsafe { Watched::begin(&call) };
    // SAFETY: the caller guarantees what the function needs.
    let code = unsafe { safe_call(function, args, num_args, result) };
    watched.end(code);
    code
}
