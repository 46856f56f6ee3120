//! Global functions named `ffi.*`, which give all languages access to operations that have no C function.
//!
//! Names, behaviour and error messages are those of the ABI.

#[cfg(feature = "containers")]
mod containers;
mod missing;
#[cfg(feature = "define")]
mod python_class;

use core::ffi::c_void;

use alloc::vec::Vec;

use anyfn::__private::{FunctionDef, functions};
use anyfn::abi::TVMFFISafeCallType;
use anyfn::{
    Any, Args, Bytes, Map, OpaquePtr, PackedFunc, Result, Shape, String, TypedPackedFunc, Unsafe, bail,
    registry,
};

#[cfg(feature = "define")]
use crate::record;
use crate::{drop_in, extern_function, function_table, libraries, method, sentinel, type_table};

static FUNCTIONS: &[FunctionDef] = &functions! {
    "ffi.FunctionListGlobalNamesFunctor" [] => list_names,
    "ffi.FunctionRemoveGlobal" ["name"] => |name: &str| function_table::remove(name.as_bytes()),
    "ffi.FunctionFromExternC" ["self", "safe_call", "deleter"] => Unsafe(from_extern_c),
    "ffi.GetGlobalFuncMetadata" ["name"] => |name: &str| function_table::metadata(name.as_bytes()),
    "anyfn.missing_function" ["name"] => missing::message,
    "ffi.String" ["value"] => |value: String| value,
    "ffi.Bytes" ["value"] => |value: Bytes| value,
    "ffi.Shape" [] => shape,
    "ffi.GetInvalidObject" [] => sentinel::missing,
    "ffi.GetKwargsObject" [] => sentinel::kwargs,
    "ffi.GetRegisteredTypeKeys" [] => type_keys,
    "anyfn.live_objects" [] => live_objects,
    "anyfn.runtime" [] => runtime,
};

#[cfg(feature = "named")]
static NAMED: &[FunctionDef] = &functions! {
    "ffi.FunctionCallNamed" ["f", "args", "kwargs"] => call_named,
};

/// Registers all functions of this module.
pub(crate) fn register() -> Result<()> {
    let lists: &[&[FunctionDef]] = &[
        FUNCTIONS,
        #[cfg(feature = "named")]
        NAMED,
        #[cfg(feature = "construct")]
        crate::construct::FUNCTIONS,
        #[cfg(feature = "define")]
        python_class::FUNCTIONS,
        #[cfg(feature = "define")]
        record::FUNCTIONS,
        method::FUNCTIONS,
        #[cfg(feature = "containers")]
        containers::FUNCTIONS,
    ];
    lists.iter().try_for_each(|defs| registry::register_defs(defs))?;
    libraries::register_globals()
}

/// Returns a function that lists the names of the currently registered global functions. Called with -1, the
/// function returns the number of names; called with an index, it returns the name at that index.
fn list_names() -> PackedFunc {
    let names = function_table::names();
    TypedPackedFunc::from_fn(move |index: i64| -> Result<Any> {
        if index == -1 {
            return Any::new(names.len());
        }
        match usize::try_from(index).ok().and_then(|index| names.get(index)) {
            Some(name) => crate::value::string(name),
            None => bail!("IndexError", "Index {index} out of bounds {}", names.len()),
        }
    })
    .into()
}

/// Calls a function with positional and named arguments. Used by languages that have no other way to pass named
/// arguments.
#[cfg(feature = "named")]
fn call_named(f: PackedFunc, args: Vec<Any>, kwargs: Map<String, Any>) -> Result<Any> {
    let named = kwargs.iter().collect::<Vec<(String, Any)>>();
    let named: Vec<(&str, Any)> = named.iter().map(|(name, value)| (&**name, value.clone())).collect();
    f.call_named(&args[..], &named)
}

/// Returns the name and version of this runtime, such as `anyfn 0.1.0`, followed by ` (libtvm_ffi.so)` if it stands in for the
/// peer's library. Other runtimes have no such function, so a program can tell which one it uses.
fn runtime() -> &'static str {
    if drop_in::is_active() {
        concat!("anyfn ", env!("CARGO_PKG_VERSION"), " (libtvm_ffi.so)")
    } else {
        concat!("anyfn ", env!("CARGO_PKG_VERSION"))
    }
}

/// Returns, for each type, the number of live objects that this library has created. Intended for
/// tests.
fn live_objects() -> Map<String, i64> {
    // Counted before the map is created, because the map is such an object.
    let counts = anyfn::live_objects_by_type();
    counts.into_iter().map(|(key, count)| (String::from(key), count as i64)).collect()
}

fn from_extern_c(data: OpaquePtr, safe_call: OpaquePtr, deleter: OpaquePtr) -> Result<PackedFunc> {
    type Deleter = unsafe extern "C" fn(*mut c_void);
    // SAFETY: the pointer is NULL, which is `None`, or a function of this type as the caller promises.
    let safe_call =
        unsafe { core::mem::transmute::<*mut c_void, Option<TVMFFISafeCallType>>(safe_call.as_ptr()) };
    // SAFETY: the pointer is NULL, or a function of this type as the caller promises.
    let deleter = unsafe { core::mem::transmute::<*mut c_void, Option<Deleter>>(deleter.as_ptr()) };
    // SAFETY: the caller promises functions that can be called from any thread.
    unsafe { extern_function::create_packed(data.as_ptr(), safe_call, deleter) }
}

/// Creates a `Shape` from arguments that are integers.
fn shape(args: Args<'_>) -> Result<Any> {
    let mut extents = Vec::with_capacity(args.len());
    for view in args.as_slice() {
        match view.get::<i64>() {
            Ok(extent) => extents.push(extent),
            Err(_) => bail!("ValueError", "Expect shape to take list of int arguments"),
        }
    }
    Any::new(Shape::from(&extents[..]))
}

/// Returns the keys of all types. If this library stands in for the peer's, its own types that the peer does not have are left
/// out, because the peer's tools expect to know every type.
fn type_keys() -> Result<Vec<String>> {
    let own = if drop_in::is_active() { type_table::own() } else { 0 };
    let is_hidden = |key: &[u8]| key.contains(&b'.') && !key.starts_with(b"ffi.");
    let keys = type_table::keys().into_iter().enumerate();
    let keys = keys.filter(|(at, key)| *at >= own || !is_hidden(key));
    keys.map(|(_, key)| crate::value::string(key)?.get::<String>()).collect()
}
