//! Launches of kernels.

use core::ffi::c_void;
use core::ptr;
use std::sync::{Arc, PoisonError, RwLock};

use anyfn::abi::{TVMFFIEnvGetStream, kDLFloat, kDLOpenCL, kDLUInt, kTVMFFIDLTensorPtr, kTVMFFITensor};
use anyfn::{
    Any, AnyView, Args, Blocking, DType, Device, OpaquePtr, PackedFunc, Result, TensorView, TypedPackedFunc,
    bail,
};

use super::Content;
use super::kernel::{Extent, Kernel, POINTER};
use super::program::{Built, Object, Program};
use crate::api::Raw;
use crate::driver::queue_of;
use crate::memory::Buffer;
use crate::system::{ClDevice, System, available, device, system};
use crate::work::Command;

/// Creates the function that launches kernel `index` of a module.
pub(super) fn function(content: Arc<Content>, index: usize) -> PackedFunc {
    let launcher = Launcher { content, index, built: RwLock::default() };
    TypedPackedFunc::from_fn(Blocking(move |args: Args<'_>| launcher.launch(args))).into()
}

struct Launcher {
    content: Arc<Content>,
    index: usize,
    /// The kernel for each device on which it was launched.
    built: RwLock<Vec<Arc<Built>>>,
}

/// Value of an argument of a kernel.
enum Value {
    Buffer(Option<Buffer>),
    Scalar([u8; 8], usize),
}

impl Launcher {
    fn kernel(&self) -> &Kernel {
        &self.content.kernels[self.index]
    }

    fn launch(&self, args: Args<'_>) -> Result<Any> {
        let (kernel, args) = (self.kernel(), args.as_slice());
        let (needed, got) = (kernel.args.len() + kernel.extents.len(), args.len());
        if needed != got {
            bail!("TypeError", "expected {needed} arguments for {kernel} but got {got}");
        }
        let (args, extents) = args.split_at(kernel.args.len());
        let index = self.device_of(args)?;
        let (system, device) = available(index)?;
        let built = self.built(system, device)?;
        let Some((global, local)) = self.sizes(&built, extents)? else {
            // There are no work items.
            return Ok(Any::NONE);
        };
        let object = built.take()?;
        let kept = self.set_args(system, &built, &object, args);
        let result = kept.and_then(|kept| {
            let result = self.enqueue(system, device, &object, (global, local));
            // The buffers had to live until the kernel was queued.
            drop(kept);
            result
        });
        built.give_back(object);
        result.map(|()| Any::NONE)
    }

    /// Returns the device of the buffers.
    fn device_of(&self, args: &[AnyView<'_>]) -> Result<i32> {
        let mut found: Option<i32> = None;
        for (at, arg) in args.iter().enumerate().filter(|(at, _)| self.kernel().args[*at] == POINTER) {
            let here = match arg.type_index() {
                kTVMFFITensor | kTVMFFIDLTensorPtr => {
                    let place = arg.get::<TensorView<'_>>()?.device();
                    if place.0.device_type != kDLOpenCL {
                        return Err(self.elsewhere(at, place));
                    }
                    place.0.device_id
                }
                _ if arg.is_none() => continue,
                _ => {
                    let Ok(pointer) = arg.get::<OpaquePtr>() else {
                        return Err(self.wrong(at, "a tensor", arg.type_key()));
                    };
                    let system = system().map_err(|reason| missing(0, &reason))?;
                    match Buffer::at(pointer.as_ptr(), system) {
                        Some(buffer) => buffer.device,
                        None => return Err(self.unknown(at, pointer.as_ptr())),
                    }
                }
            };
            match found {
                Some(first) if first != here => {
                    let name = &self.kernel().name;
                    bail!(
                        "ValueError",
                        "expected the tensors of kernel `{name}` on one device but got opencl:{first} and opencl:{here}"
                    );
                }
                _ => found = Some(here),
            }
        }
        match found {
            Some(index) => Ok(index),
            None => bail!(
                "ValueError",
                "kernel `{}`: at least one tensor is needed, which names the device",
                self.kernel().name
            ),
        }
    }

    #[cold]
    fn elsewhere(&self, at: usize, place: Device) -> anyfn::Error {
        // Where there is no device at all, no tensor can be copied to one.
        if let Err(reason) = device(0) {
            return missing(0, &reason);
        }
        let name = &self.kernel().name;
        anyfn::error!(
            "ValueError",
            "argument {at} of kernel `{name}`: expected a tensor on opencl but got one on {place}; copy it to the device \
             first (Python: x.to(\"opencl:0\"))"
        )
    }

    #[cold]
    fn wrong(&self, at: usize, expected: &str, got: &str) -> anyfn::Error {
        anyfn::error!(
            "TypeError",
            "argument {at} of kernel `{}`: expected {expected} but got {got}",
            self.kernel().name
        )
    }

    #[cold]
    fn unknown(&self, at: usize, data: *mut c_void) -> anyfn::Error {
        let name = &self.kernel().name;
        anyfn::error!(
            "ValueError",
            "argument {at} of kernel `{name}`: {data:p} is not a buffer that this runtime has allocated"
        )
    }

    /// Returns the kernel for a device, which is built at the first call.
    fn built(&self, system: &'static System, device: &'static ClDevice) -> Result<Arc<Built>> {
        let find =
            |list: &Vec<Arc<Built>>| list.iter().find(|built| built.device().index == device.index).cloned();
        if let Some(built) = find(&self.built.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(built);
        }
        let kernel = self.kernel();
        // Not under the lock, because building takes long. If two threads get here, the kernel of the first one stays.
        let program = Program::of(system, device, self.content.source_of(kernel))?;
        let built = Arc::new(Built::new(program, kernel)?);
        let mut list = self.built.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = find(&list) {
            return Ok(first);
        }
        list.push(built.clone());
        Ok(built)
    }

    /// Reads the extents of a launch, and returns the global and the local sizes; `None` if there are no work items.
    fn sizes(&self, built: &Built, extents: &[AnyView<'_>]) -> Result<Option<([usize; 3], [usize; 3])>> {
        let (kernel, limits) = (self.kernel(), &built.device().limits);
        let (mut groups, mut local) = ([1_usize; 3], [1_usize; 3]);
        for (extent, value) in kernel.extents.iter().zip(extents) {
            let size = match value.get::<i64>() {
                Ok(size) => usize::try_from(size).ok(),
                Err(_) => bail!(
                    "TypeError",
                    "kernel `{}`: expected an int for {extent} but got {}",
                    kernel.name,
                    value.type_key()
                ),
            };
            let Some(size) = size else {
                bail!("ValueError", "kernel `{}`: expected an extent of at least 0 for {extent}", kernel.name)
            };
            match *extent {
                Extent::Groups(dimension) => groups[usize::from(dimension)] = size,
                Extent::Items(dimension) => local[usize::from(dimension)] = size,
            }
        }
        if groups.contains(&0) || local.contains(&0) {
            return Ok(None);
        }
        let product = local.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
        let fits = |(size, most): (&usize, &usize)| size <= most;
        if product.is_none_or(|product| product > built.group)
            || !local.iter().zip(&limits.dimensions).all(fits)
        {
            bail!(
                "ValueError",
                "kernel `{}`: a work group of {} x {} x {} is too large for opencl:{}, which accepts {} work items, at \
                 most {:?}",
                kernel.name,
                local[0],
                local[1],
                local[2],
                built.device().index,
                built.group,
                limits.dimensions
            );
        }
        if built.required != [0; 3] && built.required != local {
            bail!(
                "ValueError",
                "kernel `{}`: its source requires work groups of {:?} but got {local:?}",
                kernel.name,
                built.required
            );
        }
        let mut global = [0; 3];
        for dimension in 0..3 {
            let Some(size) = groups[dimension].checked_mul(local[dimension]) else {
                bail!("ValueError", "kernel `{}`: the number of work items overflows", kernel.name)
            };
            global[dimension] = size;
        }
        Ok(Some((global, local)))
    }

    /// Converts an argument.
    fn value(&self, system: &'static System, built: &Built, at: usize, arg: &AnyView<'_>) -> Result<Value> {
        let dtype = self.kernel().args[at];
        if dtype != POINTER {
            return self.scalar(at, dtype, arg);
        }
        match arg.type_index() {
            kTVMFFITensor | kTVMFFIDLTensorPtr => {
                let tensor = arg.get::<TensorView<'_>>()?;
                self.buffer(system, built, at, &tensor).map(Value::Buffer)
            }
            _ if arg.is_none() => Ok(Value::Buffer(None)),
            _ => {
                let pointer = arg.get::<OpaquePtr>()?.as_ptr();
                let buffer = Buffer::at(pointer, system).ok_or_else(|| self.unknown(at, pointer))?;
                Ok(Value::Buffer(Some(buffer)))
            }
        }
    }

    /// Returns the buffer of a tensor, from the first element of the tensor on.
    fn buffer(
        &self,
        system: &'static System,
        built: &Built,
        at: usize,
        tensor: &TensorView<'_>,
    ) -> Result<Option<Buffer>> {
        let name = &self.kernel().name;
        if let Some(element) = built.elements[at]
            && DType::new(tensor.dtype().0.code, tensor.dtype().0.bits, 1) != element
        {
            bail!(
                "TypeError",
                "argument {at} of kernel `{name}`: expected a tensor of {element} but got {}",
                tensor.dtype()
            );
        }
        if !tensor.is_contiguous() {
            bail!(
                "ValueError",
                "argument {at} of kernel `{name}`: expected a contiguous tensor, because a kernel receives no strides; pass \
                 a copy (Python: x.contiguous())"
            );
        }
        let (data, offset) = (tensor.as_dl().data, tensor.as_dl().byte_offset);
        if data.is_null() && tensor.num_elements() == Some(0) {
            return Ok(None);
        }
        // SAFETY: the tensor is an argument of the call, so it lives until the kernel is queued.
        let Some(buffer) = (unsafe { Buffer::of_tensor(data, system) }) else {
            return Err(self.unknown(at, data));
        };
        let device = built.device();
        if buffer.device != device.index {
            return Err(self.unknown(at, data));
        }
        let offset = usize::try_from(offset).ok().filter(|offset| *offset <= buffer.bytes);
        match offset {
            Some(0) => Ok(Some(buffer)),
            Some(offset) if tensor.num_elements() == Some(0) || offset == buffer.bytes => Ok(None),
            Some(offset) if offset.is_multiple_of(device.limits.alignment) => {
                buffer.part(device, offset).map(Some)
            }
            _ => bail!(
                "ValueError",
                "argument {at} of kernel `{name}`: the tensor begins at byte {} of its buffer, and opencl:{} requires a \
                 multiple of {}; pass a copy (Python: x.copy())",
                tensor.as_dl().byte_offset,
                device.index,
                device.limits.alignment
            ),
        }
    }

    fn scalar(&self, at: usize, dtype: DType, arg: &AnyView<'_>) -> Result<Value> {
        let (code, bits) = (dtype.0.code, u32::from(dtype.0.bits));
        let mut bytes = [0; 8];
        if code == kDLFloat {
            let Ok(number) = arg.get::<f64>() else {
                return Err(self.wrong(at, &dtype.to_string(), arg.type_key()));
            };
            match bits {
                32 => bytes[..4].copy_from_slice(&(number as f32).to_ne_bytes()),
                _ => bytes = number.to_ne_bytes(),
            }
            return Ok(Value::Scalar(bytes, bits as usize / 8));
        }
        let Ok(number) = arg.get::<i64>() else {
            return Err(self.wrong(at, &dtype.to_string(), arg.type_key()));
        };
        let (least, most) = match code {
            kDLUInt => (0, (1_i128 << bits) - 1),
            _ => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
        };
        if !(least..=most).contains(&i128::from(number)) {
            bail!(
                "OverflowError",
                "argument {at} of kernel `{}`: {number} does not fit into {dtype}",
                self.kernel().name
            );
        }
        // The low bytes are those of the narrower number.
        let all = number.to_le_bytes();
        let length = bits as usize / 8;
        bytes[..length].copy_from_slice(&all[..length]);
        if cfg!(target_endian = "big") {
            bytes[..length].reverse();
        }
        Ok(Value::Scalar(bytes, length))
    }

    /// Sets the arguments of a kernel object, and returns those buffers that must be kept until the kernel is queued.
    fn set_args(
        &self,
        system: &'static System,
        built: &Built,
        object: &Object,
        args: &[AnyView<'_>],
    ) -> Result<Vec<Buffer>> {
        let mut kept = Vec::new();
        for (at, arg) in args.iter().enumerate() {
            let value = self.value(system, built, at, arg)?;
            let mem: Raw;
            let (size, address) = match &value {
                Value::Buffer(buffer) => {
                    mem = buffer.as_ref().map_or(ptr::null_mut(), |buffer| buffer.mem);
                    (size_of::<Raw>(), (&raw const mem).cast::<c_void>())
                }
                Value::Scalar(bytes, size) => (*size, bytes.as_ptr().cast()),
            };
            // SAFETY: this thread alone uses the kernel object, and `address` is that of `size` bytes.
            let code = unsafe { (system.api.clSetKernelArg)(object.handle, at as u32, size, address) };
            if code != crate::api::SUCCESS {
                let what = format!("pass argument {at} of the kernel `{}`", self.kernel().name);
                return Err(system.error(code, &what, built.device()));
            }
            if let Value::Buffer(Some(buffer)) = value
                && buffer.is_owned
            {
                kept.push(buffer);
            }
        }
        Ok(kept)
    }

    /// Queues a kernel whose arguments are set in the current stream of the device.
    fn enqueue(
        &self,
        system: &'static System,
        device: &ClDevice,
        object: &Object,
        (global, local): ([usize; 3], [usize; 3]),
    ) -> Result<()> {
        let api = &system.api;
        let launch = || format!("launch the kernel `{}`", self.kernel().name);
        // SAFETY: `TVMFFIEnvGetStream` may be called at any time.
        let stream = unsafe { TVMFFIEnvGetStream(kDLOpenCL, device.index) };
        let queue = queue_of(system, device, stream)?;
        let mut command = Command::new(system, device, queue);
        // SAFETY: all arguments are set, the sizes have three dimensions, and the code that set the current stream
        // guarantees that it belongs to the device. OpenCL keeps the buffers until the kernel has finished.
        let code = unsafe {
            (api.clEnqueueNDRangeKernel)(
                queue,
                object.handle,
                self.kernel().dimensions() as u32,
                ptr::null(),
                global.as_ptr(),
                local.as_ptr(),
                0,
                ptr::null(),
                command.event(),
            )
        };
        command.queued(|| self.kernel().name.clone());
        if code == crate::api::SUCCESS { Ok(()) } else { Err(system.error(code, &launch(), device)) }
    }
}

#[cold]
fn missing(index: i32, reason: &str) -> anyfn::Error {
    anyfn::error!("RuntimeError", "device opencl:{index} is not available: {reason}")
}

/// Builds kernel `index` of a module for a device.
///
/// # Errors
/// Returns the error that the first launch on this device would return.
pub(super) fn build(content: &Content, index: usize, on: i32) -> Result<()> {
    let (system, device) = available(on)?;
    let kernel = &content.kernels[index];
    Built::new(Program::of(system, device, content.source_of(kernel))?, kernel).map(drop)
}
