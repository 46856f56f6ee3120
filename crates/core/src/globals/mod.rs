//! Global functions named `ffi.*`, through which every language reaches what the C functions do not offer.
//!
//! Names, behaviour and error messages are those of the ABI.

mod construct;
mod containers;
mod python_class;

pub(crate) use construct::{new_object, register_init};

use core::ffi::c_void;

use alloc::vec::Vec;

use anyfn::abi::{TVMFFISafeCallType, kTVMFFIObject};
use anyfn::{
    Any, Args, Bytes, Map, Names, ObjectRef, OpaquePtr, PackableFn, PackedFunc, Result, Shape, String,
    TypedPackedFunc, Unsafe, bail,
};

use crate::sync::Slot;
use crate::sys::Mutex;
use crate::{extern_function, loader, registry, type_table};

/// Registers the Rust function `body` under `name`. Its signature consists of the argument names `args` and the types
/// of its Rust parameters.
pub(crate) fn typed<S: 'static, F: PackableFn<S>>(
    name: &'static str,
    args: &'static [&'static str],
    body: F,
) -> Result<()> {
    let function: PackedFunc =
        TypedPackedFunc::named(Names { function: name, args, ..Names::default() }, body).into();
    set(name, function)
}

/// Registers a function that takes any arguments.
pub(crate) fn packed(name: &'static str, body: fn(Args<'_>) -> Result<Any>) -> Result<()> {
    set(name, PackedFunc::new(body))
}

fn set(name: &str, function: PackedFunc) -> Result<()> {
    let signature = function.signature();
    let metadata = signature.as_ref().map_or(&[][..], |text| text.as_bytes());
    registry::set(name.as_bytes(), function.into_object(), registry::Description { doc: b"", metadata }, false)
}

/// Registers all functions of this module.
pub(crate) fn register() -> Result<()> {
    typed("ffi.FunctionListGlobalNamesFunctor", &[], list_names)?;
    typed("ffi.FunctionRemoveGlobal", &["name"], |name: &str| registry::remove(name.as_bytes()))?;
    typed("ffi.FunctionFromExternC", &["self", "safe_call", "deleter"], Unsafe(from_extern_c))?;
    typed("ffi.FunctionCallNamed", &["f", "args", "kwargs"], call_named)?;
    typed("ffi.GetGlobalFuncMetadata", &["name"], |name: &str| registry::metadata(name.as_bytes()))?;
    typed("ffi.String", &["value"], |value: String| value)?;
    typed("ffi.Bytes", &["value"], |value: Bytes| value)?;
    packed("ffi.Shape", shape)?;
    typed("ffi.GetInvalidObject", &[], || sentinel(&MISSING))?;
    typed("ffi.GetKwargsObject", &[], || sentinel(&KWARGS))?;
    typed("ffi.GetRegisteredTypeKeys", &[], type_keys)?;
    typed("anyfn.live_objects", &[], live_objects)?;
    construct::register()?;
    python_class::register()?;
    crate::record::register()?;
    crate::method::register()?;
    containers::register()?;
    loader::register_globals()
}

/// Returns a function that lists the names of the global functions registered now. With the argument -1 it returns the
/// number of names, with `i` the name at index `i`.
fn list_names() -> PackedFunc {
    let names = registry::names();
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
fn call_named(f: PackedFunc, args: Vec<Any>, kwargs: Map<String, Any>) -> Result<Any> {
    let named = kwargs.iter().collect::<Vec<(String, Any)>>();
    let named: Vec<(&str, Any)> = named.iter().map(|(name, value)| (&**name, value.clone())).collect();
    f.call_named(&args[..], &named)
}

/// Returns the number of live objects that this library has created, by type; for tests.
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

/// Object that represents a missing value, such as the value of a key that is not in a map.
static MISSING: Slot = Slot::new();
/// Object that precedes the named arguments in a call of a constructor.
static KWARGS: Slot = Slot::new();

/// Returns the object in `slot`, and creates a plain object there at the first call.
fn sentinel(slot: &'static Slot) -> Result<ObjectRef> {
    static LOCK: Mutex<()> = Mutex::new(());
    if let Some(object) = slot.get() {
        return Ok(object);
    }
    let _lock = LOCK.lock();
    if !slot.is_set() {
        // SAFETY: a plain object has no content.
        slot.swap(Some(unsafe { anyfn::__private::new_object(kTVMFFIObject, ()) }));
    }
    slot.get().ok_or_else(|| anyfn::Error::new("InternalError", "a constant object is gone"))
}

/// Returns the sentinel that represents a missing value.
#[allow(dead_code, reason = "for functions of maps")]
pub(crate) fn missing() -> Result<ObjectRef> {
    sentinel(&MISSING)
}

/// Returns the sentinel that precedes keyword arguments.
pub(crate) fn kwargs() -> Result<ObjectRef> {
    sentinel(&KWARGS)
}

/// Returns the keys of all types.
fn type_keys() -> Result<Vec<String>> {
    type_table::keys().into_iter().map(|key| crate::value::string(key)?.get::<String>()).collect()
}
