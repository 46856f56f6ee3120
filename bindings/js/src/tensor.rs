//! Functions for the package: tensors and their memory.

use std::ffi::c_void;

use anyfn::abi::{TVMFFIAny, kDLCPU, kTVMFFIDataType, kTVMFFIDevice};
use anyfn::{Any, AnyView, DType, Error, ObjectRef, Shape, Tensor, TensorView};

use crate::entry::{Export, arg, entry};
use crate::env::{Res, Value};
use crate::state::{Js, byte_size};
use crate::sys;

/// Functions that this module adds to the exports.
pub(crate) const EXPORTS: &[Export] = &[
    ("tensorInfo", tensor_info),
    ("tensorBuffer", tensor_buffer),
    ("tensorMake", tensor_make),
    ("shape", shape),
    ("parseDType", parse_dtype),
    ("dtypeText", dtype_text),
];

/// Returns a tensor with a copy of the content of a borrowed one.
pub(crate) fn copy_of(borrowed: &TensorView<'_>) -> Result<Tensor, Error> {
    let copy = Tensor::zeros(borrowed.dtype(), borrowed.shape())?;
    copy.set_bytes(&borrowed.to_bytes()?)?;
    Ok(copy)
}

fn tensor(js: Js<'_>, args: &[Value]) -> Res<Tensor> {
    match Tensor::try_from_object(js.object_at(arg(js, args, 0)?)?) {
        Ok(tensor) => Ok(tensor),
        Err(_) => js.env.type_error("expected a tensor"),
    }
}

entry! {
    /// `tensorInfo(slot)`: returns `[shape, dtype, device, strides, byteOffset, isContiguous, isReadOnly]`.
    fn tensor_info(js: Js<'_>, args: &[Value]) {
        let tensor = tensor(js, args)?;
        let view = tensor.view();
        let dl = view.as_dl();
        let number = |extent: &i64| js.env.double(*extent as f64);
        let shape = js.env.array_of(view.shape(), number)?;
        let strides = match view.strides() {
            Some(strides) => js.env.array_of(strides, number)?,
            None => js.env.null()?,
        };
        let dtype_bits = u64::from(dl.dtype.code) | u64::from(dl.dtype.bits) << 8 | u64::from(dl.dtype.lanes) << 16;
        let device_bits = u64::from(dl.device.device_type as u32) | u64::from(dl.device.device_id as u32) << 32;
        let dtype = js.lift(&TVMFFIAny::from_bits(kTVMFFIDataType, dtype_bits), false)?;
        let device = js.lift(&TVMFFIAny::from_bits(kTVMFFIDevice, device_bits), false)?;
        let offset = js.env.double(dl.byte_offset as f64)?;
        let (contiguous, read_only) = (js.env.boolean(view.is_contiguous())?, js.env.boolean(view.is_read_only())?);
        js.env.array(&[shape, dtype, device, strides, offset, contiguous, read_only])
    }
}

entry! {
    /// `tensorBuffer(slot)`: returns an `ArrayBuffer` over the memory of a contiguous tensor in the memory of the host. The buffer
    /// keeps the tensor alive. Returns undefined if the host does not allow such buffers. The buffer of a read-only tensor is a copy.
    fn tensor_buffer(js: Js<'_>, args: &[Value]) {
        let tensor = tensor(js, args)?;
        let view = tensor.view();
        let dl = view.as_dl();
        if dl.device.device_type != kDLCPU {
            return js.env.type_error(&format!(
                "the tensor is on {}; copy it to the CPU first (`to(anyfn.cpu())`)",
                view.device()
            ));
        }
        if !view.is_contiguous() {
            return js.env.type_error("the tensor is not contiguous; `contiguous()` makes a compact copy");
        }
        if view.is_read_only() {
            // JavaScript has no arrays that cannot be written.
            return match view.to_bytes() {
                Ok(bytes) => js.env.array_buffer(&bytes),
                Err(error) => Err(js.throw(error)),
            };
        }
        let size = byte_size(&view);
        let data = view.data();
        if size == 0 || data.is_null() {
            return js.env.array_buffer(&[]);
        }
        let owner = Box::into_raw(Box::new(tensor.clone().into_object()));
        // SAFETY: the tensor owns this memory, and the box keeps the tensor alive until `finalize` frees it.
        match unsafe { js.env.external_buffer(data, size, finalize, owner.cast()) } {
            Some(buffer) => Ok(buffer),
            None => {
                // SAFETY: the buffer was not made, so the box still belongs to this function.
                drop(unsafe { Box::from_raw(owner) });
                js.env.undefined()
            }
        }
    }
}

unsafe extern "C" fn finalize(_env: *mut sys::Env, _data: *mut c_void, hint: *mut c_void) {
    // SAFETY: the hint is the box that `tensor_buffer` made, and Node.js calls this function once.
    drop(unsafe { Box::from_raw(hint.cast::<ObjectRef>()) });
}

fn extent(js: Js<'_>, value: Value) -> Res<i64> {
    let number = js.env.number(value)?;
    if number.fract() != 0.0 || number.abs() >= (1i64 << 53) as f64 || number.is_nan() {
        return js.env.type_error(&format!("expected an integer as the extent of a shape, got {number}"));
    }
    Ok(number as i64)
}

entry! {
    /// `tensorMake(array, shape, dtype)`: makes a tensor with a copy of the content of a typed array. Without a data type, the tensor
    /// has that of the array.
    fn tensor_make(js: Js<'_>, args: &[Value]) {
        let extents = js.env.elements(arg(js, args, 1)?)?;
        let shape = extents.into_iter().map(|value| extent(js, value)).collect::<Res<Vec<i64>>>()?;
        let content = js.lower_owned(arg(js, args, 0)?)?;
        let dtype = arg(js, args, 2)?;
        let made = if js.env.is_undefined(dtype) {
            content.get::<Tensor>().and_then(|tensor| tensor.reshape(&shape))
        } else {
            let dtype = js.lower_owned(dtype)?;
            dtype.get::<DType>().and_then(|dtype| {
                let tensor = Tensor::zeros(dtype, &shape)?;
                let view: AnyView<'_> = content.as_view();
                match view.get::<Tensor>() {
                    Ok(content) => tensor.set_bytes(&content.to_bytes()?)?,
                    Err(_) => tensor.set_bytes(view.get::<&[u8]>()?)?,
                }
                Ok(tensor)
            })
        };
        match made {
            Ok(tensor) => js.lift_object(tensor.into_object()),
            Err(error) => Err(js.throw(error)),
        }
    }
}

entry! {
    /// `shape(slot)`: returns the extents of a Shape.
    fn shape(js: Js<'_>, args: &[Value]) {
        match Shape::try_from(js.object_at(arg(js, args, 0)?)?) {
            Ok(shape) => js.env.array_of(shape.iter(), |extent| js.env.double(*extent as f64)),
            Err(error) => Err(js.throw(error)),
        }
    }
}

entry! {
    /// `parseDType(text)`: returns the data type with a name.
    fn parse_dtype(js: Js<'_>, args: &[Value]) {
        match DType::try_from(js.env.to_text(arg(js, args, 0)?)?.as_str()).and_then(Any::new) {
            Ok(dtype) => js.lift_owned(dtype, false),
            Err(error) => Err(js.throw(error)),
        }
    }
}

entry! {
    /// `dtypeText(dtype)`: returns the name of a data type.
    fn dtype_text(js: Js<'_>, args: &[Value]) {
        match js.lower_owned(arg(js, args, 0)?)?.get::<DType>() {
            Ok(dtype) => js.env.string(dtype.to_string().as_bytes()),
            Err(error) => Err(js.throw(error)),
        }
    }
}
