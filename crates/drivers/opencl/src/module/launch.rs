//! Launches of kernels.

use core::ffi::c_void;
use core::ptr;
use std::sync::{Arc, PoisonError, RwLock};

use anyfn::abi::{TVMFFIEnvGetStream, kDLOpenCL, kTVMFFIDLTensorPtr, kTVMFFITensor};
use anyfn::{Any, AnyView, Args, Blocking, OpaquePtr, PackedFunc, Result, TensorView, TypedPackedFunc, bail};
use anyfn_kernels::{Call, Kernel, POINTER};

use super::program::{Built, Object, Program};
use super::{Content, KIND};
use crate::api::Raw;
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

    fn call(&self) -> Call<'_> {
        Call { kind: KIND, device_type: kDLOpenCL, kernel: self.kernel() }
    }

    fn launch(&self, args: Args<'_>) -> Result<Any> {
        let (args, extents) = self.call().split(args.as_slice())?;
        let index = self.device_of(args)?;
        let (system, device) = available(index)?;
        let built = self.built(system, device)?;
        let Some(sizes) = self.sizes(&built, extents)? else {
            // There are no work items.
            return Ok(Any::NONE);
        };
        let object = built.take()?;
        let kept = self.set_args(system, &built, &object, args);
        let result = kept.and_then(|kept| {
            let result = self.enqueue(system, device, &object, sizes);
            // The buffers had to live until the kernel was queued.
            drop(kept);
            result
        });
        built.give_back(object);
        result.map(|()| Any::NONE)
    }

    /// Returns the device of the buffers.
    fn device_of(&self, args: &[AnyView<'_>]) -> Result<i32> {
        let at = |data: *mut c_void| Some(Buffer::at(data, system().ok()?)?.device);
        self.call().device_of(args, &at, &|| device(0).err())
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
        let (call, device) = (self.call(), built.device());
        let Some(extents) = call.extents(extents)? else { return Ok(None) };
        let (groups, local) = (extents.groups, extents.items);
        call.check_group(local, built.group, &device.limits.dimensions, device.index)?;
        if built.required != [0; 3] {
            call.check_required(local, built.required)?;
        }
        let mut global = [0; 3];
        for dimension in 0..3 {
            let Some(size) = groups[dimension].checked_mul(local[dimension]) else {
                bail!("ValueError", "kernel `{}`: the number of work items overflows", self.kernel().name)
            };
            global[dimension] = size;
        }
        Ok(Some((global, local)))
    }

    /// Converts an argument.
    fn value(&self, system: &'static System, built: &Built, at: usize, arg: &AnyView<'_>) -> Result<Value> {
        let dtype = self.kernel().args[at];
        if dtype != POINTER {
            return self.call().scalar(at, arg).map(|(bytes, size)| Value::Scalar(bytes, size));
        }
        match arg.type_index() {
            kTVMFFITensor | kTVMFFIDLTensorPtr => {
                let tensor = arg.get::<TensorView<'_>>()?;
                self.buffer(system, built, at, &tensor).map(Value::Buffer)
            }
            _ if arg.is_none() => Ok(Value::Buffer(None)),
            _ => {
                let pointer = arg.get::<OpaquePtr>()?.as_ptr();
                let buffer = Buffer::at(pointer, system).ok_or_else(|| self.call().unknown(at, pointer))?;
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
        let call = self.call();
        call.check_tensor(at, tensor, built.elements[at])?;
        let (data, offset) = (tensor.as_dl().data, tensor.as_dl().byte_offset);
        if data.is_null() && tensor.num_elements() == Some(0) {
            return Ok(None);
        }
        // SAFETY: the tensor is an argument of the call, so it lives until the kernel is queued.
        let Some(buffer) = (unsafe { Buffer::of_tensor(data, system) }) else {
            return Err(call.unknown(at, data));
        };
        let device = built.device();
        if buffer.device != device.index {
            return Err(call.unknown(at, data));
        }
        let offset = usize::try_from(offset).ok().filter(|offset| *offset <= buffer.bytes);
        match offset {
            Some(0) => Ok(Some(buffer)),
            Some(offset) if tensor.num_elements() == Some(0) || offset == buffer.bytes => Ok(None),
            Some(offset) if offset.is_multiple_of(device.limits.alignment) => {
                buffer.part(device, offset).map(Some)
            }
            _ => Err(call.misaligned(at, tensor.as_dl().byte_offset, device.index, device.limits.alignment)),
        }
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
        let queue = device.queue_of(&system.api, stream)?;
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

/// Builds kernel `index` of a module for a device.
///
/// # Errors
/// Returns the error that the first launch on this device would return.
pub(super) fn build(content: &Content, index: usize, on: i32) -> Result<()> {
    let (system, device) = available(on)?;
    let kernel = &content.kernels[index];
    Built::new(Program::of(system, device, content.source_of(kernel))?, kernel).map(drop)
}
