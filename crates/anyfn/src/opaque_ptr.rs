//! Addresses that cross languages.

use core::ffi::c_void;
use core::{fmt, ptr};

use anyfn_abi::{TVMFFIAnyValue, kTVMFFINone, kTVMFFIOpaquePtr};

use crate::convert::plain;
use crate::{Any, AnyView, FromArg, IntoAny, Mismatch, Result, Schema};

/// Address that crosses languages as a value; the crate never reads what it points to.
///
/// Functions of other languages may follow the address that they get. So safe code receives one, passes it on and
/// compares it, and makes only [`OpaquePtr::NULL`]; to make one of an arbitrary address is unsafe.
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
/// A raw pointer is no argument, no element and no result:
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

// SAFETY: an address, which only unsafe code follows.
unsafe impl Send for OpaquePtr {}
// SAFETY: it cannot be changed through a shared reference, and only unsafe code follows it.
unsafe impl Sync for OpaquePtr {}

impl OpaquePtr {
    /// The address 0.
    pub const NULL: OpaquePtr = OpaquePtr(ptr::null_mut());

    /// Makes a value of an address.
    ///
    /// # Safety
    /// Functions that get the value may read, write or call what it points to, and safe code may give it to any of them:
    /// the address must be valid for what each function that can get it documents, as long as it can get it.
    #[inline]
    pub const unsafe fn from_ptr(address: *mut c_void) -> OpaquePtr {
        OpaquePtr(address)
    }

    /// The address.
    #[inline]
    pub const fn as_ptr(self) -> *mut c_void {
        self.0
    }

    /// Returns true for the address 0.
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
            // SAFETY: opaque pointers have their value in `v_ptr`.
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
        Ok(plain(kTVMFFIOpaquePtr, TVMFFIAnyValue { v_ptr: self.0 }))
    }
}
