//! Type attributes whose values are hooks, that is, functions that a type registers for an operation.

use core::ffi::c_void;

use anyfn::abi::{TVMFFIAny, kTVMFFIError, kTVMFFIOpaquePtr};
use anyfn::shared::Attribute;
use anyfn::{Any, AnyView, Error, OpaquePtr, PackedFunc, Result};

/// A type attribute whose values are hooks, such as `__ffi_repr__`.
pub(crate) struct Column(Attribute);

/// A hook that a type has registered for an operation.
pub(crate) enum Hook {
    /// Packed function, which any language may have defined.
    Function(PackedFunc),
    /// Address of a native function, which takes plain C arguments and returns a `TVMFFIAny` by value.
    Native(*mut c_void),
}

impl Hook {
    /// Interprets the value of a type attribute as a hook. Returns `None` if the value is neither a
    /// packed function nor an address.
    pub(crate) fn from_value(value: &AnyView<'_>) -> Option<Hook> {
        if value.type_index() == kTVMFFIOpaquePtr {
            return value.get::<OpaquePtr>().ok().map(|code| Hook::Native(code.as_ptr()));
        }
        value.get::<PackedFunc>().ok().map(Hook::Function)
    }
}

impl Column {
    pub(crate) const fn new(name: &'static str) -> Column {
        Column(Attribute::new(name))
    }

    /// Returns true if the type with the index `type_index` has itself registered a value for this attribute.
    /// Values of its ancestors are ignored.
    #[inline]
    pub(crate) fn has(&self, type_index: i32) -> bool {
        self.0.get(type_index).is_some()
    }

    /// Returns the hook that the type with the index `type_index` has itself registered under this
    /// attribute, or `None` if the type has registered no hook. Hooks of its ancestors are ignored.
    ///
    /// # Errors
    /// Returns `TypeError` if the registered value is not a function.
    #[inline]
    pub(crate) fn get(&self, type_index: i32) -> Result<Option<Hook>> {
        match self.0.get(type_index) {
            None => Ok(None),
            Some(entry) => self.resolve(entry, type_index).map(Some),
        }
    }

    #[cold]
    fn resolve(&self, entry: &'static TVMFFIAny, type_index: i32) -> Result<Hook> {
        // SAFETY: an entry that is set holds its value for the lifetime of the process.
        let value = unsafe { AnyView::from_raw(*entry) };
        Hook::from_value(&value).ok_or_else(|| {
            anyfn::error!(
                "TypeError",
                "attribute `{}` of type `{}` is not a function",
                self.0.name(),
                anyfn::type_key(type_index)
            )
        })
    }
}

/// Converts the return value of a native function to a `Result`. A returned error object becomes `Err`.
///
/// # Errors
/// Returns the error that the function has returned.
pub(crate) fn expected(value: Any) -> Result<Any> {
    if value.type_index() != kTVMFFIError {
        return Ok(value);
    }
    match value.into_object().map(Error::try_from_object) {
        Some(Ok(error)) => Err(error),
        _ => Err(Error::new("InternalError", "a native function failed without raising an error")),
    }
}
