//! Calls whose result is converted to a Rust type.

use alloc::format;
use alloc::string::String as StdString;

use crate::error::{Detail, with_detail};
use crate::json::member;
use crate::text::shorten;
use crate::{Error, FromArg, IntoArgs, Mismatch, PackedFunc, Result, registry};

impl PackedFunc {
    /// Calls the function and converts the result to the Rust type `T`.
    ///
    /// Prefer it to `function.call(args)?.get::<T>()` for functions that users pass, such as callbacks: if the result has
    /// another type, the error names the function, and its backtrace contains the line of a Python function.
    ///
    /// ```
    /// # use anyfn_core as _;
    /// use anyfn::{Names, PackedFunc, TypedPackedFunc};
    ///
    /// let names = Names { function: "doc.half", ..Names::default() };
    /// let half: PackedFunc = TypedPackedFunc::named(names, |x: f64| x / 2.0).into();
    /// assert_eq!(half.call_to::<f64>((3.0,))?, 1.5);
    /// let error = half.call_to::<bool>((3.0,)).unwrap_err();
    /// assert_eq!(error.message(), "result of `doc.half`: expected `bool` but got `float`");
    /// # Ok::<(), anyfn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the error of the function or of the conversion of an argument, and `TypeError` or `OverflowError` if the
    /// result cannot be converted.
    #[inline]
    pub fn call_to<T>(&self, args: impl IntoArgs) -> Result<T>
    where
        T: for<'a> FromArg<Arg<'a> = T>,
    {
        let value = self.call(args)?;
        T::from_arg(value.view_ref()).map_err(|mismatch| wrong_result(self, &mismatch))
    }
}

/// Returns the error for a result of `function` that has the wrong type.
#[cold]
#[inline(never)]
fn wrong_result(function: &PackedFunc, mismatch: &Mismatch) -> Error {
    let own_name = || function.signature().and_then(|text| member(&text, "name").map(StdString::from));
    let name = known_name(function).or_else(own_name).unwrap_or_default();
    let subject = match &*name {
        "" => StdString::from("a function without a name"),
        name => format!("`{}`", shorten(name)),
    };
    let (path, expected, got) = (mismatch.path(), mismatch.expected(), mismatch.got());
    let message = if mismatch.is_explained() {
        format!("result{path} of {subject}: {got}")
    } else {
        format!("result{path} of {subject}: expected `{expected}` but got `{got}`")
    };
    let detail = Detail { function: &name, argument: "result", path, expected, got };
    let error = with_detail(Error::untraced(mismatch.kind(), &message), &detail);
    if let Some(line) = definition(function) {
        error.replace_backtrace(&format!("  {line}\n"));
    }
    error
}

/// Returns the source location of a Python function, formatted as a line of a traceback. Returns
/// `None` for other functions, and if the process does not run Python.
fn definition(function: &PackedFunc) -> Option<StdString> {
    let line = registry::find("anyfn.python_source")?.call((function,)).ok()?;
    line.get::<StdString>().ok()
}

/// Returns the name under which the process knows a function: its global name, the symbol of its
/// code, or the qualified name of a Python function. Returns `None` if the function has no name, or
/// if the runtime was built without the library loader, which implements this look-up.
fn known_name(function: &PackedFunc) -> Option<StdString> {
    let name = registry::find("ffi.FunctionName")?.call((function,)).ok()?;
    name.get::<StdString>().ok()
}
