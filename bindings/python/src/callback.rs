//! Calls from native code to Python callables, through the function objects of
//! [`crate::python_function`].

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use anyfn::Error;
use anyfn::abi::TVMFFIAny;

use crate::at::At;
use crate::lent::Loans;
use crate::owned::lower_owned;
use crate::py::{self, Obj, Own, PyObject, Raised, Res};
use crate::python_function::PythonFunction;
use crate::{error, gil, observe, stack};

/// Maximum number of arguments that a call stores on the stack. With more arguments, a call stores
/// all of them on the heap.
const INLINE: usize = 8;

/// Calls the Python object behind a native function. This function is the `safe_call` of every
/// [`PythonFunction`].
///
/// # Safety
/// Must be called by native code according to the rules of the ABI; any thread may call it.
pub(crate) unsafe extern "C" fn safe_call(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    if stack::is_short() {
        return stack_is_short();
    }
    let Some(_held) = gil::enter() else { return interpreter_ended() };
    if anyfn::observe::is_on() && !TOLD.take() {
        // SAFETY: the arguments are those of this function, and the GIL is held.
        return unsafe { watched(handle, args, num_args, result) };
    }
    let function: *const PythonFunction = handle.cast();
    // SAFETY: the handle is the function object itself, which the caller keeps alive.
    let callable = unsafe { (*function).callable };
    // SAFETY: the function owns the object, and the GIL is held.
    let callable: Obj<'_> = unsafe { Obj::from_ptr(callable) };
    let count = usize::try_from(num_args).unwrap_or_default();
    let args: &[TVMFFIAny] = if count == 0 || args.is_null() {
        &[]
    } else {
        // SAFETY: the ABI passes `num_args` valid views.
        unsafe { std::slice::from_raw_parts(args, count) }
    };
    let called = catch_unwind(AssertUnwindSafe(|| {
        let value = if args.len() <= INLINE {
            // The array has one more word in front, which the callee may use for a bound `self`.
            let mut objects = [const { MaybeUninit::<*mut PyObject>::uninit() }; INLINE + 1];
            call(callable, args, &mut objects)?
        } else {
            call(callable, args, &mut vec![MaybeUninit::uninit(); args.len() + 1])?
        };
        lower_owned(value.obj(), &At::Result { function: callable })
    }));
    match called {
        Ok(Ok(value)) => {
            // SAFETY: the ABI passes a writable result that holds no value.
            unsafe { result.write(value.into_raw()) };
            0
        }
        Ok(Err(Raised)) => error::raise_to_native(),
        Err(payload) => {
            error::raise_panic(&*payload);
            error::raise_to_native()
        }
    }
}

thread_local! {
    /// True while [`watched`] calls [`safe_call`], after it has reported the call to the call
    /// observer. `safe_call` then does not report the call again.
    static TOLD: Cell<bool> = const { Cell::new(false) };
}

/// Makes a call through [`safe_call`], and reports the beginning and the end of the call to the call
/// observer.
///
/// # Safety
/// The conditions of [`safe_call`] apply, and the GIL must be held.
#[cold]
#[inline(never)]
unsafe fn watched(handle: *mut c_void, args: *const TVMFFIAny, num_args: i32, result: *mut TVMFFIAny) -> c_int {
    let call = observe::call_to(handle, args, num_args);
    // SAFETY: `call` describes the call that is made below.
    let watched = unsafe { anyfn::observe::Watched::begin(&call) };
    TOLD.set(true);
    // SAFETY: guaranteed by the caller.
    let code = unsafe { safe_call(handle, args, num_args, result) };
    // The call may have failed before it cleared the flag.
    TOLD.set(false);
    watched.end(code);
    code
}

/// Owned references to the argument objects of a call. Dropping this value releases them.
struct Args<'a> {
    objects: &'a mut [MaybeUninit<*mut PyObject>],
    /// Number of argument objects. They are stored from index 1 of `objects` on; the callee may overwrite the
    /// slot at index 0.
    count: usize,
}

impl Drop for Args<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        for object in &self.objects[1..=self.count] {
            // SAFETY: the first `count` objects after the free word are set.
            let object = unsafe { object.assume_init() };
            // SAFETY: each object is an owned reference, and the GIL is held.
            drop(unsafe { Own::from_nullable(object) });
        }
    }
}

#[inline(always)]
fn call(callable: Obj<'_>, args: &[TVMFFIAny], objects: &mut [MaybeUninit<*mut PyObject>]) -> Res<Own> {
    let mut list = Args { objects, count: 0 };
    let mut loans = Loans::new();
    for arg in args {
        let object = loans.lift(arg)?;
        list.count += 1;
        list.objects[list.count] = MaybeUninit::new(object.into_ptr());
    }
    // SAFETY: this is one past the free word, and `count` objects follow.
    let first: *const *mut PyObject = unsafe { list.objects.as_ptr().add(1) }.cast();
    // SAFETY: the objects are valid, the GIL is held, and the word in front may be overwritten; the result is a new
    // reference, or NULL with an exception set.
    let result = py::unsafe_new_ref!(py::raw::vectorcall()(
        callable.as_ptr(),
        first,
        list.count | py::raw::ARGUMENTS_OFFSET,
        ptr::null_mut(),
    ));
    if loans.is_empty() {
        return result;
    }
    // SAFETY: `count` objects follow the free word, and `list` releases them after this call.
    loans.end(unsafe { std::slice::from_raw_parts(first, list.count) }, result)
}

#[cold]
fn stack_is_short() -> c_int {
    Error::new("RecursionError", stack::SHORT).raise();
    -1
}

#[cold]
fn interpreter_ended() -> c_int {
    Error::new("RuntimeError", "cannot call a Python function: the interpreter has ended").raise();
    -1
}
