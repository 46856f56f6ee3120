//! Tensor objects: DLPack tensors with a reference count.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use anyfn::abi::{
    DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackVersion, DLTensor,
    OBJECT_FLAG_TENSOR_READ_ONLY, TVMFFIObject, TVMFFIObjectHandle, kDLCPU, kDLCUDA, kDLCUDAHost,
    kDLCUDAManaged, kDLROCM, kDLROCMHost, kTVMFFITensor,
};
use anyfn::tensor_mismatch::TensorMismatch;
use anyfn::{DType, Error, NDIM_MAX, ObjectRef, Result, bail};

use crate::env;
use crate::libraries::{Lease, LeaseKind};
use crate::value::out_of_memory;

/// Content of a tensor object. Users of the C ABI access only its first field, `tensor`.
#[repr(C)]
struct Content {
    tensor: DLTensor,
    owner: Owner,
    /// Storage of the strides, or of the shape and strides, to which `tensor` points. Empty if `owner` keeps them
    /// alive.
    _extents: Box<[i64]>,
    /// Lease on the library whose code releases the memory. It is dropped after the memory has been released.
    _lease: Lease,
}

/// Owner of the memory of a tensor: a DLPack tensor that another library has exported, or another object.
enum Owner {
    Managed(*mut DLManagedTensor),
    Versioned(*mut DLManagedTensorVersioned),
    Object(#[allow(dead_code, reason = "held, not read")] ObjectRef),
}

// SAFETY: DLPack allows any thread to read, write and release a tensor that was handed over.
unsafe impl Send for Content {}

impl Drop for Owner {
    fn drop(&mut self) {
        match *self {
            Owner::Managed(tensor) => {
                // SAFETY: the tensor was handed over and is released once, here.
                if let Some(deleter) = unsafe { (*tensor).deleter } {
                    // SAFETY: the tensor was handed over and is released once, here.
                    unsafe { deleter(tensor) };
                }
            }
            Owner::Versioned(tensor) => {
                // SAFETY: the tensor was handed over and is released once, here.
                if let Some(deleter) = unsafe { (*tensor).deleter } {
                    // SAFETY: the tensor was handed over and is released once, here.
                    unsafe { deleter(tensor) };
                }
            }
            Owner::Object(_) => {}
        }
    }
}

/// Requirements that an importer places on a tensor.
#[derive(Clone, Copy)]
pub(crate) struct Require {
    /// Minimum alignment of the data in bytes; 0 if any alignment is accepted.
    pub(crate) alignment: i32,
    pub(crate) contiguous: bool,
}

impl Require {
    pub(crate) const NOTHING: Require = Require { alignment: 0, contiguous: false };
}

/// Creates a tensor object from a DLPack tensor in the unversioned format, used before DLPack 1.0.
/// On success the object owns `from`; on an error the caller still owns it.
///
/// # Safety
/// `from` must be a valid DLPack tensor.
pub(crate) unsafe fn from_managed(from: *mut DLManagedTensor, require: Require) -> Result<ObjectRef> {
    // SAFETY: the caller guarantees a valid tensor.
    let tensor = unsafe { (*from).dl_tensor };
    // SAFETY: the caller guarantees a valid tensor.
    let (tensor, extents) = unsafe { checked(tensor, require) }?;
    Ok(new_tensor(tensor, Owner::Managed(from), extents, false))
}

/// Creates a tensor object from a DLPack tensor in the versioned format, used since DLPack 1.0. On
/// success the object owns `from`; on an error the caller still owns it.
///
/// # Safety
/// `from` must point to a `DLManagedTensorVersioned`, which must be valid if its major version is the supported one. In
/// any other major version only the field `version` is read.
pub(crate) unsafe fn from_versioned(
    from: *mut DLManagedTensorVersioned,
    require: Require,
) -> Result<ObjectRef> {
    // SAFETY: the version is the first field in every version of DLPack.
    let version = unsafe { (*from).version };
    if version.major != DLPACK_MAJOR_VERSION {
        let DLPackVersion { major, minor } = version;
        return Err(TensorMismatch::Version { major, minor }.error());
    }
    // SAFETY: the caller guarantees a valid tensor.
    let tensor = unsafe { (*from).dl_tensor };
    // SAFETY: the caller guarantees a valid tensor.
    let flags = unsafe { (*from).flags };
    let read_only = flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0;
    if flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED != 0 && !tensor.dtype.bits.is_multiple_of(8) {
        return Err(TensorMismatch::Padded { dtype: DType(tensor.dtype) }.error());
    }
    // SAFETY: the caller guarantees a valid tensor.
    let (tensor, extents) = unsafe { checked(tensor, require) }?;
    Ok(new_tensor(tensor, Owner::Versioned(from), extents, read_only))
}

fn new_tensor(tensor: DLTensor, owner: Owner, extents: Box<[i64]>, read_only: bool) -> ObjectRef {
    let flags = if read_only { OBJECT_FLAG_TENSOR_READ_ONLY } else { 0 };
    let null = ptr::null::<c_void>();
    let (deleter, from) = match owner {
        Owner::Managed(tensor) => {
            // SAFETY: the tensor was handed over, so it is valid.
            let deleter = unsafe { (*tensor).deleter };
            (deleter.map_or(null, |deleter| deleter as *const c_void), tensor.cast_const().cast())
        }
        Owner::Versioned(tensor) => {
            // SAFETY: the tensor was handed over, so it is valid.
            let deleter = unsafe { (*tensor).deleter };
            (deleter.map_or(null, |deleter| deleter as *const c_void), tensor.cast_const().cast())
        }
        Owner::Object(_) => (null, null),
    };
    // Tensors without a deleter are often constants of a library.
    let addresses = [deleter, tensor.data.cast_const(), from, tensor.shape.cast_const().cast()];
    let lease = Lease::of(LeaseKind::Tensor, &addresses);
    lease.explain(deleter, |lease| {
        let content = Content { tensor, owner, _extents: extents, _lease: lease };
        // SAFETY: the content begins with the description of a tensor, whose memory and extents its owner keeps alive.
        unsafe { anyfn::__private::new_object_with_flags(kTVMFFITensor, flags, content) }
    })
}

/// Checks a tensor against the rules of DLPack and against `require`. Returns the tensor and the storage of its
/// strides: if the tensor has no strides, those of a compact tensor are added.
///
/// # Safety
/// Unless `ndim` is negative, the shape and the strides must each be NULL or readable for `ndim` elements.
unsafe fn checked(mut tensor: DLTensor, require: Require) -> Result<(DLTensor, Box<[i64]>)> {
    // SAFETY: the caller guarantees the shape.
    let shape = unsafe { shape_of(&tensor) }?;
    let compact = compact_strides(shape)?;
    if tensor.data.is_null() && tensor.device.device_type == kDLCPU && !shape.contains(&0) {
        bail!("ValueError", "invalid tensor of shape {shape:?} in main memory: its data pointer is NULL");
    }
    if require.alignment < 0 {
        bail!("ValueError", "expected an alignment of 0 or more bytes, got {}", require.alignment);
    }
    // SAFETY: the caller guarantees the strides.
    let strides = (!tensor.strides.is_null()).then(|| unsafe { strides_of(&tensor, shape.len()) });
    check_span(&tensor, shape, strides.unwrap_or(&compact))?;
    let alignment = require.alignment as u64;
    if alignment > 1 && !first_byte(&tensor).is_multiple_of(alignment) {
        bail!("RuntimeError", "FromDLPack: Data is not aligned to {alignment} bytes.");
    }
    let Some(strides) = strides else {
        let mut extents = compact;
        if !extents.is_empty() {
            tensor.strides = extents.as_mut_ptr();
        }
        return Ok((tensor, extents));
    };
    if require.contiguous && !is_contiguous(shape, strides) {
        bail!("RuntimeError", "FromDLPack: Tensor is not contiguous.");
    }
    Ok((tensor, Box::default()))
}

/// Returns the strides of a tensor with `ndim` dimensions.
///
/// # Safety
/// The strides of the tensor must be readable for `ndim` elements.
unsafe fn strides_of<'a>(tensor: &DLTensor, ndim: usize) -> &'a [i64] {
    // SAFETY: the caller guarantees the strides.
    unsafe { core::slice::from_raw_parts(tensor.strides, ndim) }
}

/// Returns an error if the address of an element of the tensor would exceed the address space.
fn check_span(tensor: &DLTensor, shape: &[i64], strides: &[i64]) -> Result<()> {
    let dtype = tensor.dtype;
    if shape.contains(&0) {
        return Ok(());
    }
    let bits = i128::from(dtype.bits) * i128::from(dtype.lanes);
    // Offset of the first and of the last element in memory, in elements.
    let (mut low, mut high) = (0i128, 0i128);
    for (extent, stride) in shape.iter().zip(strides) {
        // Each product is below 2^126, and there are few.
        let end = (i128::from(*extent) - 1) * i128::from(*stride);
        let bound = if end < 0 { &mut low } else { &mut high };
        *bound = bound.saturating_add(end);
    }
    let bytes = |index: i128| index.saturating_mul(bits) / 8;
    let first = i128::from(first_byte(tensor)).saturating_add(bytes(low));
    let last = i128::from(first_byte(tensor)).saturating_add(bytes(high)).saturating_add((bits + 7) / 8);
    let wraps = first_byte(tensor) < tensor.byte_offset;
    if wraps || first < 0 || last > i128::from(u64::MAX) || last - first > i128::from(i64::MAX) {
        bail!(
            "ValueError",
            "a tensor of shape {shape:?} with strides {strides:?} and a byte offset of {} exceeds the address \
             space",
            tensor.byte_offset
        );
    }
    Ok(())
}

/// Returns the shape of a tensor, or an error if the tensor has no valid shape.
///
/// # Safety
/// The requirements of [`checked`] apply.
unsafe fn shape_of<'a>(tensor: &DLTensor) -> Result<&'a [i64]> {
    let Ok(ndim) = usize::try_from(tensor.ndim) else {
        bail!("ValueError", "expected a tensor with 0 or more dimensions, got {}", tensor.ndim);
    };
    if tensor.ndim > NDIM_MAX {
        return Err(TensorMismatch::TooManyDimensions { got: tensor.ndim.into() }.error());
    }
    if ndim == 0 {
        return Ok(&[]);
    }
    if tensor.shape.is_null() {
        let s = if ndim == 1 { "" } else { "s" };
        bail!("ValueError", "invalid tensor with {ndim} dimension{s}: its shape is NULL");
    }
    // SAFETY: the caller guarantees `ndim` extents.
    Ok(unsafe { core::slice::from_raw_parts(tensor.shape, ndim) })
}

/// Returns the strides of a compact tensor of shape `shape`, or an error if an extent is negative or the tensor is too
/// large.
fn compact_strides(shape: &[i64]) -> Result<Box<[i64]>> {
    let mut strides = Vec::new();
    if strides.try_reserve_exact(shape.len()).is_err() {
        return Err(out_of_memory("strides"));
    }
    strides.resize(shape.len(), 1i64);
    let mut stride = 1i64;
    for (at, extent) in shape.iter().enumerate().rev() {
        strides[at] = stride;
        if *extent < 0 {
            bail!("ValueError", "invalid shape {shape:?} of a tensor: an extent is negative");
        }
        // The other extents of an empty tensor are arbitrary.
        stride = match stride.checked_mul(*extent) {
            Some(product) => product,
            None if shape.contains(&0) => 0,
            None => bail!("ValueError", "a tensor of shape {shape:?} is too large"),
        };
    }
    Ok(strides.into())
}

fn is_contiguous(shape: &[i64], strides: &[i64]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut expected = 1i64;
    for (extent, stride) in shape.iter().zip(strides).rev() {
        // The stride of a dimension of extent 1 is never used.
        if *extent != 1 && *stride != expected {
            return false;
        }
        expected = expected.wrapping_mul(*extent);
    }
    true
}

/// Returns the address of the first element. On devices whose data pointers are handles and not addresses,
/// returns the byte offset of the first element instead.
fn first_byte(tensor: &DLTensor) -> u64 {
    let base = match tensor.device.device_type {
        kDLCPU | kDLCUDA | kDLCUDAHost | kDLCUDAManaged | kDLROCM | kDLROCMHost => tensor.data.addr() as u64,
        _ => 0,
    };
    base.wrapping_add(tensor.byte_offset)
}

/// Returns the `DLTensor` of an object.
///
/// # Safety
/// The object must be a tensor and stay alive for `'a`.
unsafe fn tensor_of<'a>(object: TVMFFIObjectHandle) -> &'a DLTensor {
    // SAFETY: the `DLTensor` of a tensor object directly follows the header.
    let tensor = unsafe { object.cast::<TVMFFIObject>().add(1) };
    // SAFETY: the `DLTensor` of a tensor object directly follows the header.
    unsafe { &*tensor.cast() }
}

fn is_read_only(object: &ObjectRef) -> bool {
    // SAFETY: the header is readable; other creators leave the flags zero.
    unsafe { (*object.as_handle().cast::<TVMFFIObject>()).flags & OBJECT_FLAG_TENSOR_READ_ONLY != 0 }
}

fn expect_tensor(object: &ObjectRef, what: &str) -> Result<()> {
    if object.is_instance(kTVMFFITensor) {
        return Ok(());
    }
    bail!("TypeError", "{what}: expected a `ffi.Tensor` but got `{}`", object.type_key())
}

/// Exports a tensor in the unversioned format of DLPack, used before 1.0, which cannot mark memory
/// as read-only.
pub(crate) fn to_managed(object: ObjectRef) -> Result<*mut DLManagedTensor> {
    unsafe extern "C" fn delete(this: *mut DLManagedTensor) {
        // SAFETY: the struct was created by `Box` below; the consumer calls this function once.
        let this = unsafe { Box::from_raw(this) };
        // SAFETY: the context is a reference to the object.
        drop(unsafe { ObjectRef::from_owned_or_null(this.manager_ctx) });
    }
    expect_tensor(&object, "TVMFFITensorToDLPack")?;
    // SAFETY: the object is a tensor, which the reference keeps alive.
    let dl_tensor = *unsafe { tensor_of(object.as_handle()) };
    let managed = DLManagedTensor { dl_tensor, manager_ctx: object.into_handle(), deleter: Some(delete) };
    Ok(Box::into_raw(Box::new(managed)))
}

/// Exports a tensor object in the versioned format of DLPack, used since 1.0, including the flag
/// for read-only memory.
pub(crate) fn to_versioned(object: ObjectRef) -> Result<*mut DLManagedTensorVersioned> {
    unsafe extern "C" fn delete(this: *mut DLManagedTensorVersioned) {
        // SAFETY: the struct was created by `Box` below; the consumer calls this function once.
        let this = unsafe { Box::from_raw(this) };
        // SAFETY: the context is a reference to the object.
        drop(unsafe { ObjectRef::from_owned_or_null(this.manager_ctx) });
    }
    expect_tensor(&object, "TVMFFITensorToDLPackVersioned")?;
    // SAFETY: the object is a tensor, which the reference keeps alive.
    let dl_tensor = *unsafe { tensor_of(object.as_handle()) };
    let flags = if is_read_only(&object) { DLPACK_FLAG_BITMASK_READ_ONLY } else { 0 };
    Ok(Box::into_raw(Box::new(DLManagedTensorVersioned {
        version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
        manager_ctx: object.into_handle(),
        deleter: Some(delete),
        flags,
        dl_tensor,
    })))
}

/// Creates a tensor that refers to the memory of `source`, with the data pointer, byte offset, device, data type, shape
/// and strides of `prototype`.
///
/// # Safety
/// Shape and strides of `prototype` must be readable for `ndim` elements.
pub(crate) unsafe fn view(source: ObjectRef, prototype: &DLTensor) -> Result<ObjectRef> {
    expect_tensor(&source, "TVMFFITensorCreateUnsafeView")?;
    // SAFETY: the caller guarantees the shape.
    let shape = unsafe { shape_of(prototype) }?;
    if !shape.is_empty() && prototype.strides.is_null() {
        bail!("ValueError", "TVMFFITensorCreateUnsafeView: the prototype has no strides");
    }
    let mut extents = Vec::new();
    if extents.try_reserve_exact(2 * shape.len()).is_err() {
        return Err(out_of_memory("a shape"));
    }
    extents.extend_from_slice(shape);
    if !shape.is_empty() {
        // SAFETY: the caller guarantees as many strides as extents.
        extents.extend_from_slice(unsafe { core::slice::from_raw_parts(prototype.strides, shape.len()) });
    }
    let mut extents = extents.into_boxed_slice();
    let (shape_at, strides_at) = extents.split_at_mut(shape.len());
    let tensor = DLTensor { shape: shape_at.as_mut_ptr(), strides: strides_at.as_mut_ptr(), ..*prototype };
    let read_only = is_read_only(&source);
    Ok(new_tensor(tensor, Owner::Object(source), extents, read_only))
}

/// Returns a read-only tensor object that refers to the memory of `object`. An object that is read-only
/// already, or that is not a tensor, is returned unchanged.
pub(crate) fn read_only(object: ObjectRef) -> ObjectRef {
    if object.type_index() != kTVMFFITensor || is_read_only(&object) {
        return object;
    }
    // SAFETY: the object is a tensor, which the reference keeps alive. The new object keeps it, and so its shape and
    // strides.
    let tensor = *unsafe { tensor_of(object.as_handle()) };
    new_tensor(tensor, Owner::Object(object), Box::default(), true)
}

/// Allocates a tensor with the shape, data type and device of `prototype` by calling the current allocator.
///
/// # Safety
/// `prototype` must be a valid tensor, except that its data pointer is not used.
pub(crate) unsafe fn allocate(prototype: *mut DLTensor) -> Result<ObjectRef> {
    let Some(allocator) = env::allocator() else {
        bail!(
            "RuntimeError",
            "TVMFFIEnvTensorAlloc: allocator is nullptr, likely because TVMFFIEnvSetDLPackManagedTensorAllocator has \
             not been called."
        );
    };
    // SAFETY: the caller guarantees the prototype.
    let described = unsafe { *prototype };
    // SAFETY: the caller guarantees the prototype, including its shape.
    unsafe { shape_of(&described) }?;
    let mut failure: Option<Error> = None;
    let mut made: *mut DLManagedTensorVersioned = ptr::null_mut();
    // SAFETY: the call follows the allocator's contract; `set_error` receives the address of `failure`, which outlives
    // the call.
    let code = unsafe { allocator(prototype, &mut made, (&raw mut failure).cast(), Some(set_error)) };
    if code != 0 {
        return Err(failure.unwrap_or_else(|| {
            anyfn::error!("RuntimeError", "the tensor allocator failed with code {code} and reported no error")
        }));
    }
    if made.is_null() {
        bail!("RuntimeError", "the tensor allocator returned no tensor");
    }
    // SAFETY: the tensor that the allocator created is valid.
    let result = unsafe { from_versioned(made, Require::NOTHING) };
    if result.is_err() {
        drop(Owner::Versioned(made));
    }
    result
}

/// Stores the error that an allocator reports. The allocator calls this function with the context that it received from
/// [`allocate`].
unsafe extern "C" fn set_error(context: *mut c_void, kind: *const c_char, message: *const c_char) {
    let text = |text: *const c_char| {
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the allocator passes C strings.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    let error = Error::new(&text(kind), &text(message));
    // SAFETY: `allocate` passes the address of its variable as context.
    if let Some(slot) = unsafe { context.cast::<Option<Error>>().as_mut() } {
        *slot = Some(error);
    }
}
