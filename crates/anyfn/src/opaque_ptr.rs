//! Addresses that are passed between languages.

use core::ffi::c_void;
use core::{fmt, ptr};

use anyfn_abi::{TVMFFIAnyValue, kTVMFFINone, kTVMFFIOpaquePtr};

use crate::convert::plain;
use crate::{Any, AnyView, FromArg, IntoAny, Mismatch, Result, Schema};

/// An address that is passed between languages as a value. This crate never accesses the memory at the address.
///
/// Functions of other languages may access the address that they receive. Therefore safe code can receive an address,
/// pass it on and compare it, but can create only [`OpaquePtr::NULL`]. Creating a value from an arbitrary address is
/// unsafe.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{OpaquePtr, TypedPackedFunc};
///
/// let is_null = TypedPackedFunc::from_fn(|address: OpaquePtr| address.is_null());
/// assert!(is_null.as_packed().call((OpaquePtr::NULL,))?.get::<bool>()?);
/// # Ok::<(), anyfn::Error>(())
/// ```
///
/// A raw pointer cannot be an argument, an element or a result:
///
/// ```compile_fail,E0277
/// # use anyfn_core as _;
/// let copy = anyfn::registry::get("runtime.TVMTensorCopyToBytes")?;
/// copy.call((std::ptr::without_provenance_mut::<std::ffi::c_void>(8),))?;
/// # Ok::<(), anyfn::Error>(())
/// ```
///
/// ```compile_fail,E0277
/// # use anyfn_core as _;
/// let address = anyfn::Any::new(std::ptr::without_provenance_mut::<std::ffi::c_void>(8))?;
/// # Ok::<(), anyfn::Error>(())
/// ```
///
/// ```compile_fail,E0133
/// # use anyfn_core as _;
/// let address = anyfn::OpaquePtr::from_ptr(std::ptr::without_provenance_mut(8));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct OpaquePtr(*mut c_void);

// SAFETY: the value is an address, which only unsafe code dereferences.
unsafe impl Send for OpaquePtr {}
// SAFETY: the value cannot change through a shared reference, and only unsafe code dereferences it.
unsafe impl Sync for OpaquePtr {}

impl OpaquePtr {
    /// The null address.
    pub const NULL: OpaquePtr = OpaquePtr(ptr::null_mut());

    /// Creates a value from an address.
    ///
    /// # Safety
    /// Functions that receive the value may read, write or call what it points to, and safe code may pass it to any of
    /// them. The address must satisfy the documented requirements of each function that can receive it, as long as it
    /// can receive it.
    #[inline]
    pub const unsafe fn from_ptr(address: *mut c_void) -> OpaquePtr {
        OpaquePtr(address)
    }

    /// Returns the address.
    #[inline]
    pub const fn as_ptr(self) -> *mut c_void {
        self.0
    }

    /// Returns true if the address is 0.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl Default for OpaquePtr {
    fn default() -> OpaquePtr {
        OpaquePtr::NULL
    }
}

impl fmt::Debug for OpaquePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

impl FromArg for OpaquePtr {
    type Arg<'a> = OpaquePtr;
    fn schema() -> Schema {
        Schema::plain("void*")
    }
    #[inline]
    fn from_arg(view: &AnyView<'_>) -> Result<OpaquePtr, Mismatch> {
        match view.type_index() {
            // SAFETY: the value of an opaque pointer is in `v_ptr`.
            kTVMFFIOpaquePtr => Ok(OpaquePtr(unsafe { view.as_raw().value.v_ptr })),
            kTVMFFINone => Ok(OpaquePtr::NULL),
            _ => Err(Mismatch::of_type::<Self>(view)),
        }
    }
}

impl IntoAny for OpaquePtr {
    fn schema() -> Schema {
        Schema::plain("void*")
    }
    #[inline]
    fn into_any(self) -> Result<Any> {
        Ok(plain(kTVMFFIOpaquePtr, TVMFFIAnyValue::from_ptr(self.0)))
    }
}
