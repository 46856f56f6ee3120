//! Packed functions with a Rust signature.

use core::ffi::{c_int, c_void};
use core::fmt::Write;
use core::marker::PhantomData;

use alloc::format;
use alloc::string::{String as StdString, ToString};
use alloc::vec::Vec;

use anyfn_abi::{
    AnyfnFunctionExt, FUNCTION_FLAG_BLOCKING, FUNCTION_FLAG_UNSAFE, TVMFFIAny, TVMFFISafeCallType,
    kTVMFFIDLTensorPtr,
};

use crate::args::IntoArg;
use crate::convert::{FromArg, IntoAny};
use crate::error::{Detail, with_detail};
use crate::function::{Callable, FunctionContent, write_text};
use crate::object::ObjectBox;
use crate::text::quote;
use crate::{Any, AnyView, Error, Literal, Mismatch, PackedFunc, Result, Schema};

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

    /// Returns a copy of the arguments, with the read-only flag set on the tensors that the
    /// function only reads. The caller may have passed read-only memory, so the function must not
    /// write to these tensors or pass them to code that does.
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
    /// Types of the arguments and of the result.
    #[doc(hidden)]
    const TYPES: &'static FunctionTypes;
    /// True if the function may run for a long time or block; see [`Blocking`].
    const BLOCKING: bool = false;
    /// True if the function trusts an address that its caller passes; see [`Unsafe`].
    const UNSAFE: bool = false;
    /// Converts the arguments, calls the function and converts the result. If the caller has omitted arguments with
    /// defaults, the function is called again through `safe_call`, with all arguments.
    ///
    /// # Errors
    /// Returns `TypeError` or `OverflowError` if an argument cannot be converted, and otherwise the error of the
    /// function.
    #[doc(hidden)]
    fn call_packed(&self, names: &Names, args: &[AnyView<'_>], safe_call: SafeCall<'_>) -> Result<Any>;
}

/// Types of the arguments and of the result of a function.
///
/// Signatures and error messages are formatted from this static data by code that all functions share. If that code were
/// generic, a library would contain a copy of it for each registered function.
#[derive(Clone, Copy, Debug)]
pub struct FunctionTypes {
    /// Functions that return the types of the arguments, one function for each argument; `None` if
    /// the function accepts any arguments.
    pub args: Option<&'static [fn() -> Schema]>,
    /// Function that returns the type of the result.
    pub result: fn() -> Schema,
}

/// C function that calls a function with packed arguments, and the handle to pass as its first argument.
#[derive(Clone, Copy)]
pub struct SafeCall<'a> {
    call: TVMFFISafeCallType,
    handle: *mut c_void,
    /// Lifetime for which the handle is valid. It prevents a callee from keeping the handle for
    /// later.
    lifetime: PhantomData<&'a ()>,
}

impl SafeCall<'_> {
    /// Combines a C function with the handle to pass as its first argument.
    ///
    /// # Safety
    /// For the whole lifetime of the result, `call` must be callable with `handle` as first argument, as the ABI requires of
    /// functions.
    #[inline]
    pub unsafe fn new(call: TVMFFISafeCallType, handle: *mut c_void) -> Self {
        SafeCall { call, handle, lifetime: PhantomData }
    }

    /// Calls the function with `args`.
    fn call(self, args: &[AnyView<'_>]) -> Result<Any> {
        let mut result = TVMFFIAny::NONE;
        let count = i32::try_from(args.len()).unwrap_or(i32::MAX);
        // SAFETY: whoever created this guarantees that `call` may be called with `handle`. The views are transparent over
        // the ABI's struct and live for the call, and the result is a None that holds nothing. A cut count only leaves out
        // arguments.
        let code = unsafe { (self.call)(self.handle, args.as_ptr().cast(), count, &mut result) };
        if code != 0 {
            return Err(Error::take_raised());
        }
        // SAFETY: on success the result is an owned value.
        Ok(unsafe { Any::from_raw(result) })
    }
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
#[derive(Clone, Copy, Debug)]
pub struct Blocking<F>(pub F);

impl<S, F: PackableFn<S>> PackableFn<S> for Blocking<F> {
    const TYPES: &'static FunctionTypes = F::TYPES;
    const BLOCKING: bool = true;
    const UNSAFE: bool = F::UNSAFE;
    #[inline]
    fn call_packed(&self, names: &Names, args: &[AnyView<'_>], safe_call: SafeCall<'_>) -> Result<Any> {
        self.0.call_packed(names, args, safe_call)
    }
}

/// Wrapper that marks a function as unsafe: it accesses memory or calls code at an address that its caller
/// passes, as a pointer or as an integer.
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
#[derive(Clone, Copy, Debug)]
pub struct Unsafe<F>(pub F);

impl<S, F: PackableFn<S>> PackableFn<S> for Unsafe<F> {
    const TYPES: &'static FunctionTypes = F::TYPES;
    const BLOCKING: bool = F::BLOCKING;
    const UNSAFE: bool = true;
    #[inline]
    fn call_packed(&self, names: &Names, args: &[AnyView<'_>], safe_call: SafeCall<'_>) -> Result<Any> {
        self.0.call_packed(names, args, safe_call)
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
    fn call(&self, args: &[AnyView<'_>], safe_call: SafeCall<'_>) -> Result<Any> {
        self.body.call_packed(&self.names, args, safe_call)
    }
}

unsafe extern "C" fn signature_of<F: PackableFn<S>, S: 'static>(
    func: *mut c_void,
    out: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: the function object is of this type, because the callback was taken from it.
    let content = unsafe { ObjectBox::<FunctionContent<Typed<F, S>>>::content_of(func) };
    // SAFETY: the caller passes a writable result location that holds nothing.
    unsafe { write_signature(&content.body().names, F::TYPES, F::UNSAFE, out) }
}

/// Writes a signature as JSON to `out`. Returns 0 on success, and -1 if an error was raised.
///
/// # Safety
/// `out` must be writable and hold nothing.
pub(crate) unsafe fn write_signature(
    names: &Names,
    types: &FunctionTypes,
    is_unsafe: bool,
    out: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: the caller guarantees the location of the result.
    unsafe { write_text(out, || signature_json(names, types, is_unsafe)) }
}

/// Returns the signature as JSON; see `docs/signature.md`.
pub(crate) fn signature_json(names: &Names, types: &FunctionTypes, is_unsafe: bool) -> StdString {
    let mut schema = StdString::from("{\"type\":\"ffi.Function\"");
    if let Some(args) = types.args {
        schema.push_str(",\"named_args\":{\"return\":[");
        (types.result)().write_json(&mut schema);
        schema.push_str("],\"params\":[");
        for (i, arg) in args.iter().enumerate() {
            if i > 0 {
                schema.push(',');
            }
            arg().write_json(&mut schema);
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
    if is_unsafe {
        json.push_str(",\"unsafe\":true");
    }
    if !names.args.is_empty() && types.args.is_some() {
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
fn shown(names: &Names, types: &FunctionTypes) -> StdString {
    let mut text = StdString::new();
    text.push_str(names.function);
    text.push('(');
    for (i, arg) in types.args.unwrap_or_default().iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{i}: {}", if i == 0 { "" } else { ", " }, arg());
    }
    let result = (types.result)();
    // All clients of the ABI show the absence of a result in this way.
    let result = if result.origin == "None" { "void".to_string() } else { result.to_string() };
    let _ = write!(text, ") -> {result}");
    text
}

/// Adds the defaults of omitted arguments and calls the function again, through `safe_call`.
#[cold]
#[inline(never)]
fn call_with_defaults(
    names: &Names,
    types: &FunctionTypes,
    args: &[AnyView<'_>],
    safe_call: SafeCall<'_>,
) -> Result<Any> {
    let expected = types.args.map_or(0, <[_]>::len);
    let (missing, defaults) = (expected.checked_sub(args.len()), names.defaults);
    let Some(first) = missing.and_then(|missing| defaults.len().checked_sub(missing)) else {
        return Err(wrong_count(names, types, args.len()));
    };
    let added = defaults[first..].iter().map(Literal::to_any).collect::<Result<Vec<Any>>>()?;
    let all: Vec<AnyView<'_>> = args.iter().copied().chain(added.iter().map(Any::as_view)).collect();
    safe_call.call(&all)
}

fn wrong_count(names: &Names, types: &FunctionTypes, got: usize) -> Error {
    let expected = types.args.map_or(0, <[_]>::len);
    let fewest = expected.saturating_sub(names.defaults.len());
    let fewest = if fewest < expected { format!("{fewest} to ") } else { StdString::new() };
    let message = alloc::format!(
        "Mismatched number of arguments when calling: `{}`. Expected {fewest}{expected} but got {got} arguments",
        shown(names, types)
    );
    let (expected, got) = (alloc::format!("{fewest}{expected} arguments"), alloc::format!("{got} arguments"));
    with_detail(
        Error::untraced("TypeError", &message),
        &Detail { function: names.function, expected: &expected, got: &got, ..Detail::default() },
    )
}

#[cold]
#[inline(never)]
#[expect(clippy::needless_pass_by_value, reason = "the callers, of which there are many, need not drop it")]
fn wrong_arg(names: &Names, types: &FunctionTypes, index: usize, mismatch: Mismatch) -> Error {
    let what = match mismatch.kind() {
        "TypeError" => "Mismatched type",
        _ if mismatch.is_explained() => "Invalid value",
        _ => "Value out of range",
    };
    let name = names.args.get(index).copied();
    let place = match (mismatch.path(), name) {
        ("", _) => StdString::new(),
        (path, Some(name)) => alloc::format!(", at `{name}{path}`"),
        (path, None) => alloc::format!(", at `#{index}{path}`"),
    };
    let (function, expected, got) = (shown(names, types), mismatch.expected(), mismatch.got());
    let message = if mismatch.is_explained() {
        alloc::format!("{what} on argument #{index} when calling: `{function}`: {got}")
    } else {
        alloc::format!(
            "{what} on argument #{index} when calling: `{function}`. Expected `{expected}` but got `{got}`{place}"
        )
    };
    let argument = name.map_or_else(|| index.to_string(), ToString::to_string);
    let detail = Detail { function: names.function, argument: &argument, path: mismatch.path(), expected, got };
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
            const TYPES: &'static FunctionTypes =
                &FunctionTypes { args: Some(&[$($name::schema as fn() -> Schema),*]), result: Out::schema };

            #[inline]
            #[allow(non_snake_case, unused_variables, reason = "one macro for all arities, zero included")]
            fn call_packed(&self, names: &Names, args: &[AnyView<'_>], safe_call: SafeCall<'_>) -> Result<Any> {
                const N: usize = 0 $( + { let _ = stringify!($name); 1 } )*;
                let Ok(args) = <&[AnyView<'_>; N]>::try_from(args) else {
                    return call_with_defaults(names, Self::TYPES, args, safe_call);
                };
                let marked;
                let args = if names.read_only.is_empty() {
                    args
                } else {
                    marked = names.with_read_only_marked(args);
                    &marked
                };
                $(
                    let $name = match $name::from_arg(&args[$index]) {
                        Ok(value) => value,
                        Err(mismatch) => {
                            return Err(wrong_arg(names, Self::TYPES, $index, mismatch));
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
            /// Returns the error of the function, and `TypeError`, which names the function, if the result has another
            /// type.
            #[inline]
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "one macro for all arities")]
            pub fn call(&self, $($name: $name),*) -> Result<Out> {
                self.packed.call_to::<Out>(($($name,)*))
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
