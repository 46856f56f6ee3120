//! Functions for the package: tensors and their memory, data types, shapes.

use std::ffi::c_void;
use std::ptr;

use anyfn::abi::{
    DLDataType, DLDevice, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION, DLPackVersion, DLTensor, kDLCPU,
};
use anyfn::{DType, Error, ObjectRef, Shape, Tensor, TensorView};

use crate::entry::{Res, byte_array, long_array, native, owned_handle, text};
use crate::java_function;
use crate::objects::object;
use crate::sys::Obj;

/// Returns a tensor with a copy of the content of a borrowed one.
pub(crate) fn copy_of(borrowed: &TensorView<'_>) -> Result<Tensor, Error> {
    let copy = Tensor::zeros(borrowed.dtype(), borrowed.shape())?;
    copy.set_bytes(&borrowed.to_bytes()?)?;
    Ok(copy)
}

fn tensor(handle: i64) -> Res<Tensor> {
    Tensor::try_from_object(object(handle)?).map_err(|_| Error::new("TypeError", "expected a tensor").into())
}

/// Returns the number of bytes of a compact tensor of this shape and data type.
fn byte_size(view: &TensorView<'_>) -> usize {
    let elements: i64 = view.shape().iter().product();
    let dl = view.as_dl();
    let bits = elements as u64 * u64::from(dl.dtype.bits) * u64::from(dl.dtype.lanes.max(1));
    bits.div_ceil(8) as usize
}

native! {
    /// `tensorShape(tensor)`: returns the extents.
    fn Java_org_anyfn_Native_tensorShape(env, class, handle: i64) -> Obj {
        long_array(env, tensor(handle)?.view().shape())
    }
}

native! {
    /// `tensorStrides(tensor)`: returns the strides in elements, or null if the tensor is compact.
    fn Java_org_anyfn_Native_tensorStrides(env, class, handle: i64) -> Obj {
        match tensor(handle)?.view().strides() {
            Some(strides) => long_array(env, strides),
            None => Ok(ptr::null_mut()),
        }
    }
}

native! {
    /// `tensorWord(tensor, part)`: returns the data type (0), the device (1), or whether the tensor is contiguous (2) or read-only (3).
    fn Java_org_anyfn_Native_tensorWord(env, class, handle: i64, part: i32) -> i64 {
        let tensor = tensor(handle)?;
        let view = tensor.view();
        let dl = view.as_dl();
        Ok(match part {
            0 => i64::from(dl.dtype.code) | i64::from(dl.dtype.bits) << 8 | i64::from(dl.dtype.lanes) << 16,
            1 => i64::from(dl.device.device_type as u32) | i64::from(dl.device.device_id) << 32,
            2 => i64::from(view.is_contiguous()),
            _ => i64::from(view.is_read_only()),
        })
    }
}

native! {
    /// `tensorBuffer(tensor)`: returns a direct buffer over the memory of a contiguous tensor in the memory of the host. Java keeps the
    /// tensor alive. Returns null if the tensor has no elements.
    fn Java_org_anyfn_Native_tensorBuffer(env, class, handle: i64) -> Obj {
        let tensor = tensor(handle)?;
        let view = tensor.view();
        if view.as_dl().device.device_type != kDLCPU {
            let message = format!("the tensor is on {}; copy it to the CPU first: `to(Device.cpu())`", view.device());
            return Err(Error::new("TypeError", &message).into());
        }
        if !view.is_contiguous() {
            return Err(Error::new("TypeError", "the tensor is not contiguous; `contiguous()` makes a compact copy").into());
        }
        let (size, data) = (byte_size(&view), view.data());
        if size == 0 || data.is_null() {
            return Ok(ptr::null_mut());
        }
        if size > i32::MAX as usize {
            let message = format!("the tensor has {size} bytes, and a ByteBuffer at most 2^31 - 1; view a part of it");
            return Err(Error::new("ValueError", &message).into());
        }
        // SAFETY: the tensor owns this memory, and Java keeps the tensor alive as long as the buffer.
        let buffer = unsafe { env.new_direct_byte_buffer(data, size as i64) };
        if buffer.is_null() {
            return Err(java_function::out_of_memory(env));
        }
        Ok(buffer)
    }
}

/// Owner of the memory of a tensor over a Java buffer.
struct Borrowed {
    /// Keeps the Java buffer alive.
    _buffer: ObjectRef,
    shape: Vec<i64>,
}

unsafe extern "C" fn end(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the pointer was made by `tensorOver`, and this function is called once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: the context was made by `tensorOver`, too.
    drop(unsafe { Box::from_raw(managed.manager_ctx.cast::<Borrowed>()) });
}

native! {
    /// `tensorOver(keep, buffer, offset, dtype, shape, isReadOnly)`: makes a tensor over the memory of a direct buffer. The tensor
    /// keeps the object `keep` alive. Java has checked that the buffer is large enough.
    fn Java_org_anyfn_Native_tensorOver(
        env, class, keep: Obj, buffer: Obj, offset: i64, dtype: i64, shape: Obj, is_read_only: u8,
    ) -> i64 {
        // SAFETY: the argument is a direct buffer.
        let data = unsafe { env.get_direct_buffer_address(buffer) };
        let data: *mut c_void = data.cast::<u8>().wrapping_offset(offset as isize).cast();
        // SAFETY: the argument is an array.
        let rank = unsafe { env.get_array_length(shape) };
        let mut extents = vec![0; rank as usize];
        // SAFETY: the vector has the length of the array.
        unsafe { env.get_long_array_region(shape, 0, rank, extents.as_mut_ptr()) };
        let owner = Box::into_raw(Box::new(Borrowed { _buffer: java_function::keep(env, keep)?, shape: extents }));
        // SAFETY: the box was made above.
        let shape = unsafe { &mut (*owner).shape }.as_mut_ptr();
        let managed = Box::into_raw(Box::new(DLManagedTensorVersioned {
            version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
            manager_ctx: owner.cast(),
            deleter: Some(end),
            flags: if is_read_only != 0 { DLPACK_FLAG_BITMASK_READ_ONLY } else { 0 },
            dl_tensor: DLTensor {
                data,
                device: DLDevice { device_type: kDLCPU, device_id: 0 },
                ndim: rank,
                dtype: DLDataType { code: dtype as u8, bits: (dtype >> 8) as u8, lanes: (dtype >> 16) as u16 },
                shape,
                strides: ptr::null_mut(),
                byte_offset: 0,
            },
        }));
        // SAFETY: the struct describes the memory of the buffer, which its owner keeps alive.
        match unsafe { Tensor::from_dlpack(managed) } {
            Ok(tensor) => Ok(owned_handle(tensor.into_object())),
            Err(error) => {
                // SAFETY: a failure leaves the struct to its owner.
                unsafe { end(managed) };
                Err(error.into())
            }
        }
    }
}

native! {
    /// `shape(shape)`: returns the extents of a Shape.
    fn Java_org_anyfn_Native_shape(env, class, handle: i64) -> Obj {
        let shape = Shape::try_from(object(handle)?)?;
        let extents: Vec<i64> = shape.iter().copied().collect();
        long_array(env, &extents)
    }
}

native! {
    /// `parseDType(text)`: returns the data type with a name.
    fn Java_org_anyfn_Native_parseDType(env, class, name: Obj) -> i64 {
        let DType(dtype) = DType::try_from(text(env, name)?.as_str())?;
        Ok(i64::from(dtype.code) | i64::from(dtype.bits) << 8 | i64::from(dtype.lanes) << 16)
    }
}

native! {
    /// `dtypeText(dtype)`: returns the name of a data type.
    fn Java_org_anyfn_Native_dtypeText(env, class, dtype: i64) -> Obj {
        let dtype = DType(DLDataType { code: dtype as u8, bits: (dtype >> 8) as u8, lanes: (dtype >> 16) as u16 });
        byte_array(env, dtype.to_string().as_bytes())
    }
}
