//! Frequently used type attributes: the hooks that a type has registered for an operation.

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIGetTypeAttrColumn, TVMFFITypeAttrColumn, kTVMFFIFunction, kTVMFFINone,
    kTVMFFIOpaquePtr,
};
use anyfn::{Any, AnyView, Error, PackedFunc, Result};

/// A type attribute whose column is looked up once. Columns are never freed.
pub(crate) struct Column {
    name: &'static str,
    column: AtomicPtr<TVMFFITypeAttrColumn>,
}

/// A hook that a type has registered for an operation.
pub(crate) enum Hook {
    /// A packed function of any language.
    Function(PackedFunc),
    /// The address of a native function, which takes its arguments directly and returns a value in two registers.
    Native(*mut c_void),
}

impl Column {
    pub(crate) const fn new(name: &'static str) -> Column {
        Column { name, column: AtomicPtr::new(core::ptr::null_mut()) }
    }

    #[inline]
    fn column(&self) -> *mut TVMFFITypeAttrColumn {
        let known = self.column.load(Ordering::Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    #[cold]
    fn look_up(&self) -> *mut TVMFFITypeAttrColumn {
        let name = TVMFFIByteArray::from_slice(self.name.as_bytes());
        // SAFETY: the name is borrowed for the call.
        let column = unsafe { TVMFFIGetTypeAttrColumn(&name) }.cast_mut();
        self.column.store(column, Ordering::Relaxed);
        column
    }

    /// Returns the value that the type itself has registered; ancestors do not count.
    #[inline]
    fn entry(&self, type_index: i32) -> Option<&'static TVMFFIAny> {
        let column = self.column();
        if column.is_null() {
            return None;
        }
        // SAFETY: a column is never freed.
        let size = unsafe { &raw mut (*column).size };
        // SAFETY: changed by atomic stores only.
        let size = unsafe { AtomicI32::from_ptr(size) }.load(Ordering::Acquire);
        // SAFETY: a column is never freed, and this field never changes.
        let begin = unsafe { (*column).begin_index };
        let at = type_index.checked_sub(begin).filter(|at| (0..size).contains(at))?;
        // SAFETY: a column is never freed.
        let data = unsafe { &raw mut (*column).data };
        // SAFETY: changed by atomic stores only.
        let data = unsafe { AtomicPtr::from_ptr(data.cast::<*mut TVMFFIAny>()) }.load(Ordering::Acquire);
        // SAFETY: the size was read first, so the array covers `at`; it is never freed.
        let entry = unsafe { data.add(at as usize) };
        // SAFETY: the size was read first, so the array covers `at`; it is never freed.
        let kind = unsafe { &raw mut (*entry).type_index };
        // SAFETY: changed by atomic stores only.
        if unsafe { AtomicI32::from_ptr(kind) }.load(Ordering::Acquire) == kTVMFFINone {
            return None;
        }
        // SAFETY: an entry that is set never changes and is never freed.
        Some(unsafe { &*entry })
    }

    /// Returns true if the type itself has registered a value for this attribute.
    #[inline]
    pub(crate) fn has(&self, type_index: i32) -> bool {
        self.entry(type_index).is_some()
    }

    /// Returns the hook that the type itself has registered; `None` if it has registered none.
    ///
    /// # Errors
    /// Returns `TypeError` if the registered value is not a function.
    #[inline]
    pub(crate) fn get(&self, type_index: i32) -> Result<Option<Hook>> {
        match self.entry(type_index) {
            None => Ok(None),
            Some(entry) => self.resolve(entry, type_index).map(Some),
        }
    }

    #[cold]
    fn resolve(&self, entry: &'static TVMFFIAny, type_index: i32) -> Result<Hook> {
        match entry.type_index {
            // SAFETY: opaque pointers have their value in `v_ptr`.
            kTVMFFIOpaquePtr => Ok(Hook::Native(unsafe { entry.value.v_ptr })),
            // SAFETY: an entry that is set holds its value permanently.
            kTVMFFIFunction => unsafe { AnyView::from_raw(*entry) }.get::<PackedFunc>().map(Hook::Function),
            _ => anyfn::bail!(
                "TypeError",
                "attribute `{}` of type `{}` is no function",
                self.name,
                anyfn::type_key(type_index)
            ),
        }
    }
}

/// Converts the result of a native hook, where an error object represents failure.
///
/// # Errors
/// Returns the error that the hook has returned.
///
/// # Safety
/// `raw` must be an owned value.
pub(crate) unsafe fn expected(raw: TVMFFIAny) -> Result<Any> {
    // SAFETY: the caller transfers ownership of the value.
    let value = unsafe { Any::from_raw(raw) };
    if value.type_index() != anyfn::abi::kTVMFFIError {
        return Ok(value);
    }
    match value.into_object().map(Error::try_from_object) {
        Some(Ok(error)) => Err(error),
        _ => Err(Error::new("InternalError", "a native hook has failed without an error")),
    }
}
