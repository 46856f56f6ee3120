//! Functions with the attribute `#[register]`, collected at link time.

use core::ffi::{c_int, c_void};

use anyfn_abi::{
    AnyfnFunctionExt, FUNCTION_FLAG_BLOCKING, FUNCTION_FLAG_UNSAFE, TVMFFIAny, TVMFFISafeCallType,
};

use crate::function::FunctionContent;
use crate::object::ObjectBox;
use crate::typed::{self, FunctionTypes};
use crate::{Names, PackableFn, PackedFunc};

/// Constant description of a Rust function that captures no variables.
///
/// All registered functions of a library share the code that creates their function objects and formats their
/// signatures. Only `call` is specific to the function.
pub struct FunctionDef {
    names: &'static Names,
    types: &'static FunctionTypes,
    /// Flags of the function object, and the callback that returns its signature.
    ext: &'static AnyfnFunctionExt,
    /// C function that implements the function. It accepts any value as its first argument, the
    /// context pointer.
    call: TVMFFISafeCallType,
}

impl FunctionDef {
    /// Creates the description of a Rust function. `call` is a C function that calls this Rust
    /// function.
    ///
    /// ```compile_fail,E0133
    /// use anyfn::__private::{FunctionDef, Names};
    /// static NAMES: Names = Names { function: "f", args: &[], doc: "", defaults: &[], read_only: &[] };
    /// let def = FunctionDef::new(&NAMES, || 1_i64, anyfn::abi::TVMFFIFunctionCall);
    /// ```
    ///
    /// # Safety
    /// `call` must meet the ABI's requirements for functions, for any first argument and on any thread. Its arguments and its
    /// result must have the types of `function`.
    pub const unsafe fn new<S, F: PackableFn<S> + Copy>(
        names: &'static Names,
        _function: F,
        call: TVMFFISafeCallType,
    ) -> FunctionDef {
        FunctionDef { names, types: F::TYPES, ext: ext(F::BLOCKING, F::UNSAFE), call }
    }

    /// Returns the names of the function and its arguments, the documentation and the defaults.
    #[must_use]
    pub fn names(&self) -> &'static Names {
        self.names
    }

    /// Returns the C function that implements the function.
    pub(crate) fn code(&self) -> TVMFFISafeCallType {
        self.call
    }

    /// Returns true if the function may run for a long time or block.
    #[must_use]
    pub fn is_blocking(&self) -> bool {
        self.ext.flags & FUNCTION_FLAG_BLOCKING != 0
    }

    /// Returns the signature of the function as JSON.
    #[must_use]
    pub fn signature(&self) -> alloc::string::String {
        typed::signature_json(self.names, self.types, self.ext.flags & FUNCTION_FLAG_UNSAFE != 0)
    }

    /// Creates a function object.
    #[must_use]
    pub fn to_function(&'static self) -> PackedFunc {
        PackedFunc::from_content(FunctionContent::new(self.call, self.ext, self))
    }
}

/// Returns the extension of function objects with the given flags.
const fn ext(is_blocking: bool, is_unsafe: bool) -> &'static AnyfnFunctionExt {
    const fn with(flags: u64) -> AnyfnFunctionExt {
        AnyfnFunctionExt { size: size_of::<AnyfnFunctionExt>(), flags, signature: Some(signature_of) }
    }
    match (is_blocking, is_unsafe) {
        (false, false) => const { &with(0) },
        (true, false) => const { &with(FUNCTION_FLAG_BLOCKING) },
        (false, true) => const { &with(FUNCTION_FLAG_UNSAFE) },
        (true, true) => const { &with(FUNCTION_FLAG_BLOCKING | FUNCTION_FLAG_UNSAFE) },
    }
}

/// Returns the signature of a function object that [`FunctionDef::to_function`] created.
unsafe extern "C" fn signature_of(func: *mut c_void, out: *mut TVMFFIAny) -> c_int {
    // SAFETY: the function object is of this type, because the callback was taken from it.
    let content = unsafe { ObjectBox::<FunctionContent<&'static FunctionDef>>::content_of(func) };
    // SAFETY: the caller passes a writable result location that holds nothing.
    unsafe { crate::function::write_text(out, || content.body().signature()) }
}

/// Describes a Rust function without captured variables as a [`FunctionDef`]. The arguments are the
/// function's [`Names`] and the function itself.
#[doc(hidden)]
#[macro_export]
macro_rules! __function_def {
    ($names:expr, $body:expr) => {{
        static __ANYFN_NAMES: $crate::__private::Names = $names;

        unsafe extern "C" fn __anyfn_call(
            handle: *mut ::core::ffi::c_void,
            args: *const $crate::abi::TVMFFIAny,
            num_args: i32,
            result: *mut $crate::abi::TVMFFIAny,
        ) -> ::core::ffi::c_int {
            let body = $body;
            // SAFETY: this is the function that is called, with its first argument.
            let safe_call = unsafe { $crate::__private::SafeCall::new(__anyfn_call, handle) };
            // SAFETY: the caller passes what the ABI promises for a call.
            unsafe { $crate::__private::call_exported(&__ANYFN_NAMES, body, safe_call, args, num_args, result) }
        }

        let body = $body;
        // SAFETY: the C function calls the same function, and uses its first argument only to call itself.
        unsafe { $crate::__private::FunctionDef::new(&__ANYFN_NAMES, body, __anyfn_call) }
    }};
}

/// Describes Rust functions without captured variables as an array of [`FunctionDef`]. Each entry consists of the global
/// name, the names of the arguments (none if they are not known), and the function.
#[doc(hidden)]
#[macro_export]
macro_rules! __functions {
    ($($name:literal [$($arg:literal),*] => $body:expr,)*) => {
        [$(
            $crate::__function_def!(
                $crate::__private::Names {
                    function: $name,
                    args: &[$($arg),*],
                    doc: "",
                    defaults: &[],
                    read_only: &[],
                },
                $body
            ),
        )*]
    };
}

/// A function with the attribute `#[register]`.
pub struct RegisteredFunction {
    /// Description of the function. The name in the description is the name of the global function.
    pub function: FunctionDef,
    /// True if the function may replace a global function of the same name.
    pub overrides: bool,
}

#[cfg(not(test))]
crate::__collected! {
    /// All functions with the attribute `#[register]` in this executable or library.
    pub static REGISTRATIONS: [RegisteredFunction];
}
/// Empty slice that, in unit tests, replaces the slice that the linker assembles. A unit test executable
/// contains this crate twice, and the linker does not allow two such slices of the same name.
#[cfg(test)]
pub static REGISTRATIONS: [RegisteredFunction; 0] = [];
