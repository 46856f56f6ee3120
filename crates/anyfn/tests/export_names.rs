//! Tests that functions may have the names of the parameters, variables and functions in the code that `export!` and
//! `#[register]` generate.

use core::ffi::{c_int, c_void};

use anyfn::Any;
use anyfn::abi::TVMFFIAny;
use anyfn_core as _;

anyfn::export! {
    fn handle(x: i64) -> i64 {
        x
    }
    fn args() -> i64 {
        1
    }
    fn num_args() -> i64 {
        2
    }
    fn result() -> i64 {
        3
    }
    fn safe_call() -> i64 {
        4
    }
    fn metadata() -> i64 {
        5
    }
    fn doc() -> i64 {
        6
    }
}

mod registered {
    /// Returns its argument.
    #[anyfn::register("names.body")]
    fn body(handle: i64) -> i64 {
        handle
    }

    /// Returns its argument.
    ///
    /// # Safety
    /// None.
    #[anyfn::register("names.call", unsafe)]
    unsafe fn call(args: i64) -> i64 {
        args
    }
}

#[test]
fn registered_functions_have_any_name() {
    let body = anyfn::registry::get("names.body").unwrap();
    assert_eq!(body.call((7,)).unwrap().get::<i64>().unwrap(), 7);
    // SAFETY: the function has no requirements.
    let call = unsafe { anyfn::registry::get_unsafe("names.call") }.unwrap();
    assert_eq!(call.call((8,)).unwrap().get::<i64>().unwrap(), 8);
    assert!(call.is_unsafe() && !body.is_unsafe());
}

unsafe extern "C" {
    fn __tvm_ffi_handle(
        handle: *mut c_void,
        args: *const TVMFFIAny,
        num_args: i32,
        result: *mut TVMFFIAny,
    ) -> c_int;
}

#[test]
fn exported_functions_have_any_name() {
    let arg = Any::new(7).unwrap();
    let mut result = TVMFFIAny::NONE;
    // SAFETY: the function is the one above; the argument lives for the call, and the result is a None.
    let code = unsafe { __tvm_ffi_handle(core::ptr::null_mut(), arg.as_raw(), 1, &mut result) };
    assert_eq!(code, 0);
    // SAFETY: on success the result is an owned value.
    assert_eq!(unsafe { Any::from_raw(result) }.get::<i64>().unwrap(), 7);
    assert_eq!([args(), num_args(), self::result(), safe_call(), metadata(), doc()], [1, 2, 3, 4, 5, 6]);
}
