//! Registry of global functions, which all languages of the process share.
//!
//! Functions may be registered, looked up and removed from any thread. A look-up takes no lock.
//!
//! ```
//! # use anyfn_core as _;
//! use anyfn::registry;
//!
//! registry::register("doc.my_add").set_body_typed(|a: i64, b: i64| a + b)?;
//! let my_add = registry::get("doc.my_add")?;
//! assert_eq!(my_add.call((1, 2))?.get::<i64>()?, 3);
//! assert!(registry::remove("doc.my_add")?);
//! assert_eq!(registry::get("doc.my_add").unwrap_err().kind(), "ValueError");
//! # Ok::<(), anyfn::Error>(())
//! ```

use alloc::format;
use alloc::string::String as StdString;
use alloc::vec::Vec;
use core::ptr;

use anyfn_abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIFunctionGetGlobal, TVMFFIFunctionSetGlobalFromMethodInfo,
    TVMFFIMethodInfo, TVMFFIObjectHandle,
};

use crate::registered::{FunctionDef, RegisteredFunction};
use crate::text::{intern, shorten};
use crate::typed::Names;
use crate::{
    Any, AnyView, Args, Error, ObjectRef, PackableFn, PackedFunc, Result, TypedPackedFunc, error_kind,
};

/// Looks up a global function; returns `None` if it does not exist or is [`Unsafe`](crate::Unsafe).
pub fn find(name: &str) -> Option<PackedFunc> {
    find_any(name).filter(|function| !function.is_unsafe())
}

/// Looks up a global function, even one that is [`Unsafe`](crate::Unsafe) and uses addresses in its
/// arguments without checking them. Returns `None` if the function does not exist.
///
/// # Safety
/// Each call of the result must satisfy the documented requirements on the function's arguments. The result must not be
/// passed to code that does not know these requirements.
pub unsafe fn find_unsafe(name: &str) -> Option<PackedFunc> {
    find_any(name)
}

fn find_any(name: &str) -> Option<PackedFunc> {
    let name = TVMFFIByteArray::from_slice(name.as_bytes());
    let mut out: TVMFFIObjectHandle = ptr::null_mut();
    // SAFETY: the name is borrowed for the call, and `out` is writable.
    let code = unsafe { TVMFFIFunctionGetGlobal(&name, &mut out) };
    if code != 0 {
        drop(Error::take_raised());
        return None;
    }
    // SAFETY: the result is an owned function or NULL.
    let object = unsafe { ObjectRef::from_owned_or_null(out) }?;
    PackedFunc::try_from_object(object).ok()
}

/// Looks up a global function that is not [`Unsafe`](crate::Unsafe).
///
/// # Errors
/// Returns `ValueError`, which names the nearest function, if the function does not exist. Returns `PermissionError` if
/// the function trusts addresses ([`Unsafe`](crate::Unsafe)); use [`get_unsafe`] for such functions.
pub fn get(name: &str) -> Result<PackedFunc> {
    match find_any(name) {
        Some(function) if !function.is_unsafe() => Ok(function),
        Some(_) => Err(refused(name)),
        None => Err(missing(name)),
    }
}

/// Looks up a global function, even one that is [`Unsafe`](crate::Unsafe) and uses addresses in its
/// arguments without checking them.
///
/// # Safety
/// Each call of the result must satisfy the documented requirements on the function's arguments. The result must not be
/// passed to code that does not know these requirements.
///
/// # Errors
/// Returns `ValueError`, which names the nearest function, if the function does not exist.
pub unsafe fn get_unsafe(name: &str) -> Result<PackedFunc> {
    find_any(name).ok_or_else(|| missing(name))
}

#[cold]
fn refused(name: &str) -> Error {
    let name = shorten(name);
    Error::untraced(
        error_kind::PERMISSION_ERROR,
        &format!(
            "cannot look up global function {name} from safe code: it trusts an address that its caller passes; use \
             `unsafe {{ registry::get_unsafe(..) }}`"
        ),
    )
}

#[cold]
fn missing(name: &str) -> Error {
    let described = find("anyfn.missing_function").and_then(|describe| describe.call((name,)).ok());
    let message = described.and_then(|message| message.get::<StdString>().ok());
    // Other implementations of the ABI do not have the function.
    let message = message.unwrap_or_else(|| format!("Cannot find global function {}", shorten(name)));
    Error::untraced(error_kind::VALUE_ERROR, &message)
}

/// Returns the names of all global functions, sorted.
///
/// # Errors
/// Returns `ValueError` if the runtime lacks the function that lists them.
pub fn list() -> Result<Vec<StdString>> {
    let lister = find("ffi.FunctionListGlobalNamesFunctor")
        .ok_or_else(|| Error::new(error_kind::VALUE_ERROR, "the runtime cannot list global functions"))?;
    let names = lister.call(())?.get::<PackedFunc>()?;
    let count = names.call((-1,))?.get::<i64>()?;
    let mut list = Vec::new();
    for i in 0..count {
        list.push(names.call((i,))?.get::<StdString>()?);
    }
    crate::sort::sort(&mut list);
    Ok(list)
}

/// Removes a global function; returns false if it did not exist. References to the function remain valid.
///
/// # Errors
/// Returns `ValueError` if the runtime lacks the function that removes global functions.
pub fn remove(name: &str) -> Result<bool> {
    let remover = find("ffi.FunctionRemoveGlobal")
        .ok_or_else(|| Error::new(error_kind::VALUE_ERROR, "the runtime cannot remove global functions"))?;
    remover.call((name,))?.get::<bool>()
}

/// Begins the registration of a global function. [`Registration::set`] or a `set_body` method completes it.
pub fn register(name: &str) -> Registration<'_> {
    Registration { name, overrides: false, doc: "" }
}

/// Pending registration of a global function.
#[must_use = "nothing is registered before a set_body method is called"]
pub struct Registration<'a> {
    name: &'a str,
    overrides: bool,
    doc: &'a str,
}

impl Registration<'_> {
    /// Allows the registration to replace a function of the same name.
    pub fn overriding(mut self) -> Self {
        self.overrides = true;
        self
    }

    /// Registers a function.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the name is taken.
    pub fn set(self, function: &PackedFunc) -> Result<()> {
        let signature = function.signature();
        let info = TVMFFIMethodInfo {
            name: TVMFFIByteArray::from_slice(self.name.as_bytes()),
            doc: TVMFFIByteArray::from_slice(self.doc.as_bytes()),
            metadata: signature
                .as_ref()
                .map_or(TVMFFIByteArray::EMPTY, |s| TVMFFIByteArray::from_slice(s.as_bytes())),
            flags: 0,
            method: *AnyView::from(function.as_object()).as_raw(),
        };
        // SAFETY: all strings and the function are borrowed for the call.
        match unsafe { TVMFFIFunctionSetGlobalFromMethodInfo(&info, self.overrides.into()) } {
            0 => Ok(()),
            _ => Err(Error::take_raised()),
        }
    }

    /// Registers a closure that takes any arguments.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the name is taken.
    pub fn set_body(self, body: impl Fn(Args<'_>) -> Result<Any> + Send + Sync + 'static) -> Result<()> {
        self.set(&PackedFunc::new(body))
    }

    /// Registers a Rust function or closure. The signature is derived from its Rust type.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the name is taken.
    pub fn set_body_typed<S: 'static, F: PackableFn<S>>(self, body: F) -> Result<()> {
        let names = Names { function: intern(self.name), ..Names::default() };
        self.set(TypedPackedFunc::named(names, body).as_packed())
    }

    /// Registers a method: a function whose first argument is the object.
    ///
    /// ```
    /// # use anyfn_core as _;
    /// #[derive(anyfn::Object)]
    /// #[object(key = "doc.Scale")]
    /// struct Scale(f64);
    ///
    /// impl Scale {
    ///     fn apply(&self, x: f64) -> f64 {
    ///         self.0 * x
    ///     }
    /// }
    ///
    /// anyfn::registry::register("doc.scale_apply").set_body_method(Scale::apply)?;
    /// let double = anyfn::Ref::new(Scale(2.0));
    /// let result = anyfn::registry::get("doc.scale_apply")?.call((&double, 4.0))?;
    /// assert_eq!(result.get::<f64>()?, 8.0);
    /// # Ok::<(), anyfn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns `RuntimeError` if the name is taken.
    pub fn set_body_method<S: 'static, F: PackableFn<S>>(self, method: F) -> Result<()> {
        self.set_body_typed(method)
    }
}

/// Registers the functions that `#[register]` has collected in this executable or library. This is called once
/// during initialisation.
///
/// # Errors
/// Returns `RuntimeError` if a name is taken.
#[doc(hidden)]
pub fn register_all(entries: &'static [RegisteredFunction]) -> Result<()> {
    entries.iter().try_for_each(|entry| {
        let names = entry.function.names();
        Registration { name: names.function, overrides: entry.overrides, doc: names.doc }
            .set(&entry.function.to_function())
    })
}

/// Registers functions, each under the name that its description contains.
///
/// # Errors
/// Returns `RuntimeError` if a name is taken.
#[doc(hidden)]
pub fn register_defs(functions: &'static [FunctionDef]) -> Result<()> {
    functions.iter().try_for_each(|def| register(def.names().function).set(&def.to_function()))
}

/// A global function that is looked up at the first use and then cached.
///
/// [`crate::global!`] creates such values. Registering another function under the name later has no effect on them.
pub struct Cached {
    name: &'static str,
    slot: core::sync::atomic::AtomicPtr<core::ffi::c_void>,
}

impl Cached {
    #[doc(hidden)]
    pub const fn new(name: &'static str) -> Cached {
        Cached { name, slot: core::sync::atomic::AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the function. The first call looks it up in the registry.
    ///
    /// # Errors
    /// Returns the errors of [`get`]. After an error, the next call looks up the function again.
    #[inline]
    pub fn get(&'static self) -> Result<&'static PackedFunc> {
        use core::sync::atomic::Ordering::{AcqRel, Acquire};
        if self.slot.load(Acquire).is_null() {
            let found = get(self.name)?.into_object().into_handle();
            if self.slot.compare_exchange(ptr::null_mut(), found, AcqRel, Acquire).is_err() {
                // SAFETY: another thread stored its reference first, so this reference is released.
                drop(unsafe { ObjectRef::from_owned_or_null(found) });
            }
        }
        // SAFETY: `PackedFunc` is a transparent, non-NULL handle, and the slot holds one for the rest of the process.
        Ok(unsafe { &*self.slot.as_ptr().cast::<PackedFunc>() })
    }
}

/// Looks up a global function when the expression is first evaluated. Later evaluations return the same
/// function.
///
/// ```
/// # use anyfn_core as _;
/// # anyfn::registry::register("doc.twice").set_body_typed(|x: i64| 2 * x)?;
/// for x in 0..3 {
///     let y = anyfn::global!("doc.twice")?.call((x,))?;
///     assert_eq!(y.get::<i64>()?, 2 * x);
/// }
/// # Ok::<(), anyfn::Error>(())
/// ```
#[macro_export]
macro_rules! global {
    ($name:literal) => {{
        static CACHED: $crate::registry::Cached = $crate::registry::Cached::new($name);
        CACHED.get()
    }};
}

const _: () = assert!(size_of::<TVMFFIAny>() == 16);
