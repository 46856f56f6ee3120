//! Observation of calls, for profiling.
//!
//! There is no single point through which all calls pass: a caller reads the address of a function's code from the
//! function object and jumps there. Therefore callers report calls. This crate reports each call that it makes, the
//! runtime reports calls through `TVMFFIFunctionCall`, and frontends report their own calls. A frontend also reports
//! the calls that it receives, because callers of other implementations do not report them. The observer must count a
//! call that both ends report only once; see [`Call::is_callee`].
//!
//! Without an observer, the cost is the load of a pointer that is NULL. Each library that contains this crate has its
//! own pointer ([`place`]), and the runtime sets all of them (`ffi.ObserveCalls`).

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use anyfn_abi::{TVMFFIAny, TVMFFIFunctionCell, TVMFFIObject};

/// Pair of functions that are called at the beginning and at the end of each reported call, for
/// profiling.
///
/// Safe code calls its functions. Therefore creating an observer and installing it are unsafe:
///
/// ```compile_fail,E0451
/// # use anyfn_core as _;
/// unsafe extern "C" fn enter(_: *const anyfn::observe::Call) -> u64 {
///     8
/// }
/// unsafe extern "C" fn leave(token: u64, _: i32) {
///     // SAFETY: this is deliberately unsound.
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
    /// Size of this struct in bytes.
    size: usize,
    /// Function that is called before each reported call. The result is passed to `leave`, unless
    /// it is 0.
    enter: unsafe extern "C" fn(call: *const Call) -> u64,
    /// Function that is called after each reported call for which `enter` did not return 0.
    /// Arguments: the result of `enter`, the status that the call returned.
    leave: unsafe extern "C" fn(token: u64, code: c_int),
}

impl Observer {
    /// Creates an observer from its two functions.
    ///
    /// # Safety
    /// `enter` must be callable from any thread with a valid [`Call`]. `leave` must be callable once with each result
    /// of `enter`. Neither function may unwind.
    #[doc(hidden)]
    pub const unsafe fn new(
        enter: unsafe extern "C" fn(call: *const Call) -> u64,
        leave: unsafe extern "C" fn(token: u64, code: c_int),
    ) -> Observer {
        Observer { size: size_of::<Observer>(), enter, leave }
    }
}

/// Description of a call that is about to be made.
#[doc(hidden)]
#[repr(C)]
#[derive(Debug)]
pub struct Call {
    /// The function object that is called.
    pub function: *mut c_void,
    /// Arguments of the call.
    pub args: *const TVMFFIAny,
    /// Number of arguments.
    pub num_args: i32,
    /// Identifier of the code that reports the call: one of the constants in [`door`].
    pub door: u32,
    /// Function that writes the name of the called function, as a string, to `out`. It writes nothing if the
    /// name is unknown. `None` if the reporting code never knows the name.
    pub name: Option<unsafe extern "C" fn(data: *mut c_void, out: *mut TVMFFIAny)>,
    /// Context pointer that is passed to the function `name`.
    pub data: *mut c_void,
}

/// Identifiers of the code that reports a call.
#[doc(hidden)]
pub mod door {
    /// Call reported by its caller, which uses the crate `anyfn`.
    pub const RUST: u32 = 0;
    /// Call reported by its caller, which calls `TVMFFIFunctionCall`, as C and compiled code do.
    pub const C: u32 = 1;
    /// Call reported by its caller, which is Python code.
    pub const PYTHON: u32 = 2;
    /// Call reported by its callee, which is a Python function.
    pub const TO_PYTHON: u32 = 3;
}

impl Call {
    /// Returns true if the callee reports the call. The caller may have reported the same call
    /// already.
    pub fn is_callee(&self) -> bool {
        self.door == door::TO_PYTHON
    }
}

static OBSERVER: AtomicPtr<Observer> = AtomicPtr::new(core::ptr::null_mut());

/// Returns the variable that holds the address of the observer to which this library reports calls. The runtime
/// sets this variable.
///
/// # Safety
/// Only NULL and observers that live as long as the process may be stored there.
#[doc(hidden)]
pub unsafe fn place() -> &'static AtomicPtr<Observer> {
    &OBSERVER
}

/// Returns true if calls are observed.
#[doc(hidden)]
#[inline(always)]
pub fn is_on() -> bool {
    !OBSERVER.load(Ordering::Relaxed).is_null()
}

/// A reported call, whose end must also be reported.
#[doc(hidden)]
#[derive(Debug)]
pub struct Watched(Option<(&'static Observer, u64)>);

impl Watched {
    /// Reports a call that begins now.
    ///
    /// # Safety
    /// `call` must describe a call that is about to be made, of a function that is alive.
    #[cold]
    pub unsafe fn begin(call: &Call) -> Watched {
        // SAFETY: the pointer is NULL or refers to an observer that lives as long as the process.
        let observer = unsafe { OBSERVER.load(Ordering::Acquire).as_ref() };
        let Some(observer) = observer.filter(|observer| observer.size >= size_of::<Observer>()) else {
            return Watched(None);
        };
        // SAFETY: the caller guarantees a valid description of a call.
        let token = unsafe { (observer.enter)(call) };
        Watched((token != 0).then_some((observer, token)))
    }

    /// Reports the end of the call. `code` is the status that the call returned.
    #[cold]
    pub fn end(self, code: c_int) {
        if let Some((observer, token)) = self.0 {
            // SAFETY: the token is the result of `enter`, and it is used once.
            unsafe { (observer.leave)(token, code) };
        }
    }
}

/// Calls a function and reports the call to the observer.
///
/// # Safety
/// The requirements of the `safe_call` of the function object `function` apply.
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
    // SAFETY: in a function object the cell directly follows the header.
    let cell: *const TVMFFIFunctionCell = unsafe { function.cast::<TVMFFIObject>().add(1) }.cast();
    // SAFETY: in a function object the cell directly follows the header; the caller keeps the function alive.
    let safe_call = unsafe { (*cell).safe_call };
    let call = Call { function, args, num_args, door, name: None, data: core::ptr::null_mut() };
    // SAFETY: `call` describes the call that follows.
    let watched = unsafe { Watched::begin(&call) };
    // SAFETY: the caller guarantees the requirements of the function.
    let code = unsafe { safe_call(function, args, num_args, result) };
    watched.end(code);
    code
}
