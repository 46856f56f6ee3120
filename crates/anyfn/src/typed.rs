//! Packed functions with a Rust signature.

use core::ffi::{c_int, c_void};
use core::fmt::Write;
use core::marker::PhantomData;

use alloc::format;
use alloc::string::{String as StdString, ToString};
use alloc::vec::Vec;

use anyfn_abi::{
    AnyfnFunctionExt, FUNCTION_FLAG_BLOCKING, FUNCTION_FLAG_UNSAFE, TVMFFIAny, kTVMFFIDLTensorPtr,
};

use crate::args::IntoArg;
use crate::convert::{FromArg, IntoAny};
use crate::error::{Detail, with_detail};
use crate::function::{Callable, FunctionContent};
use crate::object::ObjectBox;
use crate::text::quote;
use crate::{Any, AnyView, Error, Literal, Mismatch, PackedFunc, Result, Schema, panics};

/// A [`PackedFunc`] with a Rust signature, such as `TypedPackedFunc<fn(i64, &str) -> f64>`.
///
/// If it is created from a Rust function, the signature is derived from the function, and arguments are checked and
/// converted before the function runs. If it is created from a function of another language, arguments and result are
/// converted at each call.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::TypedPackedFunc;
/// fn repeat(text: &str, times: usize) -> String {
///     text.repeat(times)
/// }
/// let repeat = TypedPackedFunc::from_fn(repeat);
/// let error = repeat.as_packed().call(("ab", "x")).unwrap_err();
/// assert_eq!(error.kind(), "TypeError");
/// # Ok::<(), anyfn::Error>(())
/// ```
pub struct TypedPackedFunc<Signature> {
    packed: PackedFunc,
    signature: PhantomData<fn() -> Signature>,
}

impl<S> Clone for TypedPackedFunc<S> {
    fn clone(&self) -> Self {
        Self::from_packed(self.packed.clone())
    }
}

impl<S> From<TypedPackedFunc<S>> for PackedFunc {
    fn from(typed: TypedPackedFunc<S>) -> PackedFunc {
        typed.packed
    }
}

/// Properties of a function that are not part of its Rust type: names, documentation and defaults.
#[derive(Clone, Copy, Default)]
pub struct Names {
    /// Name of the function; empty if it has none.
    pub function: &'static str,
    /// Names of the arguments; empty if they are not known.
    pub args: &'static [&'static str],
    /// Documentation of the function; empty if it has none.
    pub doc: &'static str,
    /// Default values of the last arguments. These arguments may be omitted.
    pub defaults: &'static [Literal],
    /// Names of the tensor arguments that the function only reads.
    pub read_only: &'static [&'static str],
}

impl Names {
    /// Returns the index of the first argument that has a default, and the defaults of all arguments from
    /// this index on.
    fn optional(&self) -> (usize, &'static [Literal]) {
        let count = self.defaults.len().min(self.args.len());
        (self.args.len() - count, &self.defaults[self.defaults.len() - count..])
    }

    /// Returns a copy of the arguments, with the read-only flag set on the tensors that the function only
    /// reads. The caller may have passed read-only memory, so the function must not write to these tensors or
    /// pass them on to be written.
    #[inline(never)]
    fn with_read_only_marked<'a, const N: usize>(&self, args: &[AnyView<'a>; N]) -> [AnyView<'a>; N] {
        let mut marked = *args;
        for (arg, name) in marked.iter_mut().zip(self.args) {
            if arg.type_index() == kTVMFFIDLTensorPtr && self.read_only.contains(name) {
                *arg = arg.read_only_tensor();
            }
        }
        marked
    }
}

/// A Rust function or closure that can become a [`PackedFunc`].
///
/// `Signature` is a `fn` type that represents the arguments and the result; it is always inferred. The trait is
/// implemented for every `Fn` of up to 12 arguments whose types implement [`FromArg`] and whose result implements
/// [`IntoAny`], and for functions that take any arguments as [`crate::Args`].
pub trait PackableFn<Signature>: Send + Sync + 'static {
    /// True if the function accepts any number of arguments of any type. The signature then lists no argument
    /// types.
    const VARIADIC: bool = false;
    /// True if the function may run for a long time or block; see [`Blocking`].
    const BLOCKING: bool = false;
    /// True if the function trusts an address that its caller passes; see [`Unsafe`].
    const UNSAFE: bool = false;
    /// Returns the types of the arguments.
    fn arg_schemas() -> Vec<Schema>;
    /// Returns the type of the result.
    fn result_schema() -> Schema;
    /// Converts the arguments, calls the function and converts the result.
    ///
    /// # Errors
    /// Returns `TypeError` or `OverflowError` if an argument cannot be converted, and otherwise the error of the
    /// function.
    fn call_packed(&self, names: &Names, args: &[AnyView<'_>]) -> Result<Any>;
}

/// Wrapper that marks a function as blocking: it may run for a long time or wait for another thread.
///
/// Callers that hold a lock of their language, such as Python's, release it during the call. A function that waits for
/// a thread which may call back into that language must be marked, or both wait forever.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Blocking, registry};
/// use std::time::Duration;
///
/// registry::register("doc.blocking.pause")
///     .set_body_typed(Blocking(|millis: i64| std::thread::sleep(Duration::from_millis(millis as u64))))?;
/// registry::get("doc.blocking.pause")?.call((1,))?;
/// # Ok::<(), anyfn::Error>(())
/// ```
pub struct Blocking<F>(pub F);

impl<S, F: PackableFn<S>> PackableFn<S> for Blocking<F> {
    const VARIADIC: bool = F::VARIADIC;
    const BLOCKING: bool = true;
    const UNSAFE: bool = F::UNSAFE;
    fn arg_schemas() -> Vec<Schema> {
        F::arg_schemas()
    }
    fn result_schema() -> Schema {
        F::result_schema()
    }
    fn call_packed(&self, names: &Names, args: &[AnyView<'_>]) -> Result<Any> {
        self.0.call_packed(names, args)
    }
}

/// Wrapper that marks a function as unsafe: it accesses memory or calls code at an address that its caller
/// passes. The address may also be passed as an integer.
///
/// The mark is part of the function object and of its signature. Safe Rust and remote peers cannot look up such a
/// function by name: [`registry::get`](crate::registry::get) returns an error that names
/// [`registry::get_unsafe`](crate::registry::get_unsafe). C and Python can look it up: there, addresses are always passed
/// explicitly. `#[register("name", unsafe)]` marks an `unsafe fn`.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{OpaquePtr, Unsafe, registry};
///
/// // SAFETY: callers of the registered function promise that the address is that of an int.
/// let read = |place: OpaquePtr| unsafe { place.as_ptr().cast::<i64>().read() };
/// registry::register("doc.read_i64").set_body_typed(Unsafe(read))?;
/// assert!(registry::get("doc.read_i64").unwrap_err().message().contains("get_unsafe"));
///
/// let mut number = 7_i64;
/// // SAFETY: the address is that of an int that is alive, as the function requires.
/// let read = unsafe { registry::get_unsafe("doc.read_i64") }?;
/// // SAFETY: the int lives until the call has returned, as the function requires.
/// let place = unsafe { OpaquePtr::from_ptr((&raw mut number).cast()) };
/// assert_eq!(read.call((place,))?.get::<i64>()?, 7);
/// # Ok::<(), anyfn::Error>(())
/// ```
pub struct Unsafe<F>(pub F);

impl<S, F: PackableFn<S>> PackableFn<S> for Unsafe<F> {
    const VARIADIC: bool = F::VARIADIC;
    const BLOCKING: bool = F::BLOCKING;
    const UNSAFE: bool = true;
    fn arg_schemas() -> Vec<Schema> {
        F::arg_schemas()
    }
    fn result_schema() -> Schema {
        F::result_schema()
    }
    fn call_packed(&self, names: &Names, args: &[AnyView<'_>]) -> Result<Any> {
        self.0.call_packed(names, args)
    }
}

struct Typed<F, S> {
    names: Names,
    body: F,
    signature: PhantomData<fn() -> S>,
}

impl<S: 'static, F: PackableFn<S>> Callable for Typed<F, S> {
    const EXT: AnyfnFunctionExt = AnyfnFunctionExt {
        size: size_of::<AnyfnFunctionExt>(),
        flags: (if F::BLOCKING { FUNCTION_FLAG_BLOCKING } else { 0 })
            | (if F::UNSAFE { FUNCTION_FLAG_UNSAFE } else { 0 }),
        signature: Some(signature_of::<F, S>),
    };

    #[inline]
    fn call(&self, args: &[AnyView<'_>]) -> Result<Any> {
        self.body.call_packed(&self.names, args)
    }
}

unsafe extern "C" fn signature_of<F: PackableFn<S>, S: 'static>(
    func: *mut c_void,
    out: *mut TVMFFIAny,
) -> c_int {
    panics::trampoline(|| {
        // SAFETY: the function object is of this type, because the callback was taken from it.
        let content = unsafe { ObjectBox::<FunctionContent<Typed<F, S>>>::content_of(func) };
        let text = signature_json::<F, S>(&content.body().names);
        // SAFETY: the caller passes a writable result location that holds nothing.
        unsafe { out.write(Any::from(crate::String::from(text)).into_raw()) };
        Ok(())
    })
}

/// Returns the signature as JSON; see `docs/signature.md`.
pub(crate) fn signature_json<F: PackableFn<S>, S>(names: &Names) -> StdString {
    let mut schema = StdString::from("{\"type\":\"ffi.Function\"");
    if !F::VARIADIC {
        schema.push_str(",\"named_args\":{\"return\":[");
        F::result_schema().write_json(&mut schema);
        schema.push_str("],\"params\":[");
        for (i, arg) in F::arg_schemas().iter().enumerate() {
            if i > 0 {
                schema.push(',');
            }
            arg.write_json(&mut schema);
        }
        schema.push_str("]}");
    }
    schema.push('}');
    let mut json = StdString::from("{\"type_schema\":");
    quote(&schema, &mut json);
    if !names.function.is_empty() {
        json.push_str(",\"name\":");
        quote(names.function, &mut json);
    }
    if F::UNSAFE {
        json.push_str(",\"unsafe\":true");
    }
    if !names.args.is_empty() && !F::VARIADIC {
        write_names("arg_names", names.args, &mut json);
        let (first, defaults) = names.optional();
        for (i, (name, value)) in names.args[first..].iter().zip(defaults).enumerate() {
            json.push_str(if i == 0 { ",\"arg_defaults\":{" } else { "," });
            quote(name, &mut json);
            json.push(':');
            value.write_json(&mut json);
        }
        json.push_str(if defaults.is_empty() { "" } else { "}" });
        if !names.read_only.is_empty() {
            write_names("arg_const", names.read_only, &mut json);
        }
    }
    if !names.doc.is_empty() {
        json.push_str(",\"doc\":");
        quote(names.doc, &mut json);
    }
    json.push('}');
    json
}

/// Appends the JSON member `,"key":["a","b"]` to `out`, with the key `key` and the strings `names`.
fn write_names(key: &str, names: &[&str], out: &mut StdString) {
    // Writing to a string cannot fail.
    let _ = write!(out, ",\"{key}\":");
    for (i, name) in names.iter().enumerate() {
        out.push(if i == 0 { '[' } else { ',' });
        quote(name, out);
    }
    out.push_str(if names.is_empty() { "[]" } else { "]" });
}

/// Formats the signature for error messages, such as `name(0: int, 1: str) -> int`.
fn shown<F: PackableFn<S>, S>(names: &Names) -> StdString {
    let mut text = StdString::new();
    text.push_str(names.function);
    text.push('(');
    for (i, arg) in F::arg_schemas().iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{i}: {arg}", if i == 0 { "" } else { ", " });
    }
    let result = F::result_schema();
    // All clients of the ABI show the absence of a result in this way.
    let result = if result.origin == "None" { "void".to_string() } else { result.to_string() };
    let _ = write!(text, ") -> {result}");
    text
}

/// Adds the defaults of omitted arguments and calls the function. `expected` is the number of parameters.
#[cold]
fn call_with_defaults<F: PackableFn<S>, S>(
    body: &F,
    names: &Names,
    args: &[AnyView<'_>],
    expected: usize,
) -> Result<Any> {
    let (missing, defaults) = (expected.checked_sub(args.len()), names.defaults);
    let Some(first) = missing.and_then(|missing| defaults.len().checked_sub(missing)) else {
        return Err(wrong_count::<F, S>(names, expected, args.len()));
    };
    let added = defaults[first..].iter().map(Literal::to_any).collect::<Result<Vec<Any>>>()?;
    let all: Vec<AnyView<'_>> = args.iter().copied().chain(added.iter().map(Any::as_view)).collect();
    body.call_packed(names, &all)
}

#[cold]
fn wrong_count<F: PackableFn<S>, S>(names: &Names, expected: usize, got: usize) -> Error {
    let fewest = expected.saturating_sub(names.defaults.len());
    let fewest = if fewest < expected { format!("{fewest} to ") } else { StdString::new() };
    let message = alloc::format!(
        "Mismatched number of arguments when calling: `{}`. Expected {fewest}{expected} but got {got} arguments",
        shown::<F, S>(names)
    );
    let (expected, got) = (alloc::format!("{fewest}{expected} arguments"), alloc::format!("{got} arguments"));
    with_detail(
        Error::untraced("TypeError", &message),
        &Detail { function: names.function, expected: &expected, got: &got, ..Detail::default() },
    )
}

#[cold]
fn wrong_arg<F: PackableFn<S>, S>(names: &Names, index: usize, mismatch: &Mismatch) -> Error {
    let what = if mismatch.kind() == "TypeError" { "Mismatched type" } else { "Value out of range" };
    let name = names.args.get(index).copied();
    let place = match (mismatch.path(), name) {
        ("", _) => StdString::new(),
        (path, Some(name)) => alloc::format!(", at `{name}{path}`"),
        (path, None) => alloc::format!(", at `#{index}{path}`"),
    };
    let message = alloc::format!(
        "{what} on argument #{index} when calling: `{}`. Expected `{}` but got `{}`{place}",
        shown::<F, S>(names),
        mismatch.expected(),
        mismatch.got()
    );
    let argument = name.map_or_else(|| index.to_string(), ToString::to_string);
    let detail = Detail {
        function: names.function,
        argument: &argument,
        path: mismatch.path(),
        expected: mismatch.expected(),
        got: mismatch.got(),
    };
    with_detail(Error::untraced(mismatch.kind(), &message), &detail)
}

impl<S> TypedPackedFunc<S> {
    /// Adds a Rust signature to a packed function.
    pub fn from_packed(packed: PackedFunc) -> Self {
        TypedPackedFunc { packed, signature: PhantomData }
    }

    /// Creates a function from a Rust function or closure. The signature is derived from its Rust type.
    pub fn from_fn<F: PackableFn<S>>(body: F) -> Self
    where
        S: 'static,
    {
        Self::named(Names::default(), body)
    }

    /// Creates a function like [`TypedPackedFunc::from_fn`], with the names that error messages and frontends
    /// show.
    pub fn named<F: PackableFn<S>>(names: Names, body: F) -> Self
    where
        S: 'static,
    {
        Self::from_packed(PackedFunc::from_callable(Typed { names, body, signature: PhantomData::<fn() -> S> }))
    }

    /// Returns a borrowed reference to the function without its Rust signature.
    pub fn as_packed(&self) -> &PackedFunc {
        &self.packed
    }
}

macro_rules! arities {
    ($( ($($name:ident: $index:tt),*) )*) => { $(
        impl<Func, $($name: FromArg,)* Out: IntoAny> PackableFn<fn($($name),*) -> Out> for Func
        where
            Func: Send + Sync + 'static,
            Func: Fn($($name),*) -> Out,
            Func: for<'a> Fn($($name::Arg<'a>),*) -> Out,
        {
            fn arg_schemas() -> Vec<Schema> {
                alloc::vec![$($name::schema()),*]
            }
            fn result_schema() -> Schema {
                Out::schema()
            }
            #[inline]
            #[allow(non_snake_case, unused_variables, reason = "one macro for all arities, zero included")]
            fn call_packed(&self, names: &Names, args: &[AnyView<'_>]) -> Result<Any> {
                const N: usize = 0 $( + { let _ = stringify!($name); 1 } )*;
                let Ok(args) = <&[AnyView<'_>; N]>::try_from(args) else {
                    return call_with_defaults::<Func, fn($($name),*) -> Out>(self, names, args, N);
                };
                let marked;
                let args = if names.read_only.is_empty() {
                    args
                } else {
                    marked = names.with_read_only_marked(args);
                    &marked
                };
                let fail = |index, mismatch: &Mismatch| {
                    wrong_arg::<Func, fn($($name),*) -> Out>(names, index, mismatch)
                };
                $(
                    let $name = match $name::from_arg(&args[$index]) {
                        Ok(value) => value,
                        Err(mismatch) => {
                            return Err(fail($index, &mismatch));
                        }
                    };
                )*
                self($($name),*).into_any()
            }
        }

        impl<$($name: IntoArg,)* Out: FromArg> TypedPackedFunc<fn($($name),*) -> Out>
        where
            Out: for<'a> FromArg<Arg<'a> = Out>,
        {
            /// Calls the function.
            ///
            /// # Errors
            /// Returns the error of the function, and `TypeError` if the result has another type.
            #[inline]
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "one macro for all arities")]
            pub fn call(&self, $($name: $name),*) -> Result<Out> {
                let value = self.packed.call(($($name,)*))?;
                value.get::<Out>()
            }

            /// Converts the function into a closure, which is called like any other Rust function.
            #[allow(non_snake_case, reason = "one macro for all arities")]
            pub fn into_fn(self) -> impl Fn($($name),*) -> Result<Out> {
                move |$($name),*| self.call($($name),*)
            }
        }
    )* };
}

arities! {
    ()
    (A: 0)
    (A: 0, B: 1)
    (A: 0, B: 1, C: 2)
    (A: 0, B: 1, C: 2, D: 3)
    (A: 0, B: 1, C: 2, D: 3, E: 4)
    (A: 0, B: 1, C: 2, D: 3, E: 4, F: 5)
    (A: 0, B: 1, C: 2, D: 3, E: 4, F: 5, G: 6)
    (A: 0, B: 1, C: 2, D: 3, E: 4, F: 5, G: 6, H: 7)
    (A: 0, B: 1, C: 2, D: 3, E: 4, F: 5, G: 6, H: 7, I: 8)
    (A: 0, B: 1, C: 2, D: 3, E: 4, F: 5, G: 6, H: 7, I: 8, J: 9)
    (A: 0, B: 1, C: 2, D: 3, E: 4, F: 5, G: 6, H: 7, I: 8, J: 9, K: 10)
    (A: 0, B: 1, C: 2, D: 3, E: 4, F: 5, G: 6, H: 7, I: 8, J: 9, K: 10, L: 11)
}
