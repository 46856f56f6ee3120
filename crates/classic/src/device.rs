//! Streams, and memory of devices.

use core::ffi::{c_char, c_int, c_void};

use std::sync::{Mutex, PoisonError};

use anyfn::__private::{SortedMap, trampoline};
use anyfn::abi::classic::TVMStreamHandle;
use anyfn::abi::{DLDataType, DLDevice, DLTensor, kDLUInt};
use anyfn::{DType, Device, Result, Shape, Tensor, TensorView, registry};

use crate::handle::{extents, text, write, wrong};
use crate::value;

/// Returns the device of arguments of a function.
pub(crate) fn of(this: &str, device: DLDevice) -> Result<Device> {
    value::device_of(device).map(Device).map_err(|reason| wrong(this, "device", &reason))
}

/// Calls a function of the runtime for a stream of a device.
fn call(this: &str, name: &str, device_type: c_int, device_id: c_int, streams: &[TVMStreamHandle]) -> c_int {
    trampoline(|| {
        let device = of(this, DLDevice { device_type, device_id })?;
        let function = registry::get(name)?;
        let number = |stream: &TVMStreamHandle| stream.addr() as i64;
        let result = match streams {
            [one] => function.call((device, number(one))),
            [from, to] => function.call((device, number(from), number(to))),
            _ => function.call((device,)),
        };
        result?.get::<()>()
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMStreamCreate(
    device_type: c_int,
    device_id: c_int,
    out: *mut TVMStreamHandle,
) -> c_int {
    const THIS: &str = "TVMStreamCreate";
    trampoline(|| {
        let device = of(THIS, DLDevice { device_type, device_id })?;
        if out.is_null() {
            anyfn::bail!("ValueError", "{THIS}: argument `out` is NULL");
        }
        let number = registry::get("runtime.Device_StreamCreate")?.call((device,))?.get::<i64>()?;
        // SAFETY: by the API, `out` is writable.
        unsafe { write(THIS, "out", out, core::ptr::without_provenance_mut(number as usize)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMStreamFree(device_type: c_int, device_id: c_int, stream: TVMStreamHandle) -> c_int {
    call("TVMStreamFree", "runtime.Device_StreamFree", device_type, device_id, &[stream])
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMSetStream(device_type: c_int, device_id: c_int, handle: TVMStreamHandle) -> c_int {
    call("TVMSetStream", "runtime.Device_SetStream", device_type, device_id, &[handle])
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMSynchronize(
    device_type: c_int,
    device_id: c_int,
    stream: TVMStreamHandle,
) -> c_int {
    call("TVMSynchronize", "runtime.Device_StreamSync", device_type, device_id, &[stream])
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMStreamStreamSynchronize(
    device_type: c_int,
    device_id: c_int,
    src: TVMStreamHandle,
    dst: TVMStreamHandle,
) -> c_int {
    const NAME: &str = "runtime.Device_StreamSyncFromTo";
    call("TVMStreamStreamSynchronize", NAME, device_type, device_id, &[src, dst])
}

/// Memory that was allocated, by its address. It has a size and a kind, which the caller does not state again when it
/// frees the memory.
static MEMORY: Mutex<SortedMap<usize, Tensor>> = Mutex::new(SortedMap::new());

/// Keeps `tensor` until its memory is freed, and writes the first address with an alignment in its memory to `out`.
///
/// # Safety
/// `out` must be NULL or writable.
unsafe fn give(
    this: &str,
    out: *mut *mut c_void,
    alignment: usize,
    make: impl FnOnce() -> Result<Tensor>,
) -> Result<()> {
    if out.is_null() {
        anyfn::bail!("ValueError", "{this}: argument `out_data` is NULL");
    }
    let tensor = make()?;
    let data = tensor.view().data().cast::<u8>();
    let data = data.wrapping_add(data.addr().wrapping_neg() % alignment);
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner).insert(data.addr(), tensor);
    // SAFETY: the caller guarantees the place.
    unsafe { out.write(data.cast()) };
    Ok(())
}

/// Returns a tensor of bytes for raw memory: `nbytes` bytes on a device.
fn memory(nbytes: usize, device: Device) -> Result<Tensor> {
    let Ok(extent) = i64::try_from(nbytes) else {
        anyfn::bail!("MemoryError", "cannot allocate {nbytes} bytes");
    };
    Tensor::empty(DType::new(kDLUInt, 8, 1), &[extent], device)
}

/// Returns the tensor that `runtime.TVMTensorAllocWithScope` allocates in a kind of memory of a device.
fn in_scope(shape: &[i64], dtype: DType, device: Device, scope: &str) -> Result<Tensor> {
    let alloc = registry::get("runtime.TVMTensorAllocWithScope")?;
    alloc.call((&Shape::from(shape), dtype, device, scope))?.get::<Tensor>()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMDeviceAllocDataSpace(
    dev: DLDevice,
    nbytes: usize,
    alignment: usize,
    _type_hint: DLDataType,
    out_data: *mut *mut c_void,
) -> c_int {
    const THIS: &str = "TVMDeviceAllocDataSpace";
    trampoline(|| {
        let device = of(THIS, dev)?;
        let alignment = alignment.max(1);
        if !alignment.is_power_of_two() || alignment > 1 << 20 {
            let reason = std::format!("expected a power of two of at most 1 MiB, got {alignment}");
            return Err(wrong(THIS, "alignment", &reason));
        }
        // Two allocations never have the same address, and the runtime aligns memory to 64 bytes.
        let size = nbytes.max(1).saturating_add(if alignment > 64 { alignment } else { 0 });
        // SAFETY: by the API, `out_data` is writable.
        unsafe { give(THIS, out_data, alignment, || memory(size, device)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMDeviceAllocDataSpaceWithScope(
    dev: DLDevice,
    ndim: c_int,
    shape: *const i64,
    dtype: DLDataType,
    mem_scope: *const c_char,
    out_data: *mut *mut c_void,
) -> c_int {
    const THIS: &str = "TVMDeviceAllocDataSpaceWithScope";
    trampoline(|| {
        let device = of(THIS, dev)?;
        // SAFETY: by the API, there are `ndim` extents.
        let shape = unsafe { extents(THIS, shape, ndim) }?;
        let scope = if mem_scope.is_null() { c"".as_ptr() } else { mem_scope };
        // SAFETY: by the API, this is a C string.
        let scope = unsafe { text(THIS, "mem_scope", scope) }?;
        let make = || match scope {
            "" | "global" if shape.contains(&0) => memory(1, device),
            "" | "global" => Tensor::empty(DType(dtype), shape, device),
            _ => in_scope(shape, DType(dtype), device, scope),
        };
        // SAFETY: by the API, `out_data` is writable.
        unsafe { give(THIS, out_data, 1, make) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMDeviceFreeDataSpace(dev: DLDevice, ptr: *mut c_void) -> c_int {
    const THIS: &str = "TVMDeviceFreeDataSpace";
    trampoline(|| {
        let device = of(THIS, dev)?;
        if ptr.is_null() {
            return Ok(());
        }
        let mut known = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(&ptr.addr()).is_none_or(|tensor| tensor.view().device() != device) {
            return Err(wrong(THIS, "ptr", "no memory was allocated there on this device, or it was freed"));
        }
        let freed = known.remove(&ptr.addr());
        drop(known);
        drop(freed);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMDeviceCopyDataFromTo(
    from: *mut DLTensor,
    to: *mut DLTensor,
    stream: TVMStreamHandle,
) -> c_int {
    // SAFETY: by the API, both are DLPack tensors.
    trampoline(|| unsafe { copy("TVMDeviceCopyDataFromTo", from, to, stream) })
}

/// Copies the elements of a tensor to another one of the same size in bytes. The work of the stream finishes before.
///
/// # Safety
/// Both must be NULL or DLPack tensors.
pub(crate) unsafe fn copy(
    this: &str,
    from: *mut DLTensor,
    to: *mut DLTensor,
    stream: TVMStreamHandle,
) -> Result<()> {
    // SAFETY: the caller guarantees the tensors.
    let (Some(from), Some(to)) = (unsafe { from.as_ref() }, unsafe { to.as_ref() }) else {
        anyfn::bail!("ValueError", "{this}: argument `from` or `to` is NULL");
    };
    let mut sizes = [0; 2];
    let mut flat = [*from, *to];
    for (size, tensor) in sizes.iter_mut().zip(&mut flat) {
        // SAFETY: the caller guarantees the tensors.
        let view = unsafe { TensorView::from_dl(tensor) };
        let bits = view.num_elements().and_then(|n| n.checked_mul(view.dtype().bits() as usize));
        let (true, Some(bits)) = (view.is_contiguous(), bits) else {
            anyfn::bail!("ValueError", "{this}: expected contiguous arrays");
        };
        *size = bits.div_ceil(8) as i64;
        let device = of(this, tensor.device)?;
        *tensor = DLTensor {
            device: device.0,
            ndim: 1,
            dtype: DLDataType { code: kDLUInt, bits: 8, lanes: 1 },
            shape: size,
            strides: core::ptr::null_mut(),
            ..*tensor
        };
    }
    if sizes[0] != sizes[1] {
        anyfn::bail!("ValueError", "{this}: cannot copy {} bytes to an array of {} bytes", sizes[0], sizes[1]);
    }
    if !stream.is_null() {
        let number = stream.addr() as i64;
        registry::get("runtime.Device_StreamSync")?.call((Device(flat[0].device), number))?;
    }
    let [from, to] = &flat;
    // SAFETY: this describes the memory of the caller's tensor as bytes.
    let from = unsafe { TensorView::from_dl(from) };
    // SAFETY: this describes the memory of the caller's tensor as bytes.
    let to = unsafe { TensorView::from_dl(to) };
    registry::get("runtime.TVMTensorCopyFromTo")?.call((from, to))?.get::<()>()
}
