//! Launches of kernels.

use core::ffi::c_void;
use core::ptr;
use std::sync::{Arc, PoisonError, RwLock};

use anyfn::abi::{TVMFFIEnvGetStream, kDLCUDA, kTVMFFIDLTensorPtr, kTVMFFITensor};
use anyfn::{Any, AnyView, Args, Blocking, OpaquePtr, PackedFunc, Result, TensorView, TypedPackedFunc, bail};
use anyfn_kernels::{Call, Extents, Kernel, POINTER};

use super::program::{Built, Program};
use super::{Content, KIND};
use crate::driver::queue_in;
use crate::memory;
use crate::system::{CuDevice, System, available, device};

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

impl Launcher {
    fn kernel(&self) -> &Kernel {
        &self.content.kernels[self.index]
    }

    fn call(&self) -> Call<'_> {
        Call { kind: KIND, device_type: kDLCUDA, kernel: self.kernel() }
    }

    fn launch(&self, args: Args<'_>) -> Result<Any> {
        let (args, extents) = self.call().split(args.as_slice())?;
        let at = |data: *mut c_void| memory::device_of(data.addr());
        let index = self.call().device_of(args, &at, &|| device(0).err())?;
        let (system, device) = available(index)?;
        let built = self.built(system, device)?;
        let Some(sizes) = self.sizes(&built, extents)? else {
            // There are no threads.
            return Ok(Any::NONE);
        };
        // Every argument has at most 8 bytes.
        let mut values = args
            .iter()
            .enumerate()
            .map(|(at, arg)| self.value(index, at, arg))
            .collect::<Result<Vec<[u8; 8]>>>()?;
        self.enqueue(system, device, &built, sizes, &mut values)?;
        Ok(Any::NONE)
    }

    /// Returns the kernel for a device, which is built at the first call.
    fn built(&self, system: &'static System, device: &'static CuDevice) -> Result<Arc<Built>> {
        let find =
            |list: &Vec<Arc<Built>>| list.iter().find(|built| built.device().index == device.index).cloned();
        if let Some(built) = find(&self.built.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(built);
        }
        let kernel = self.kernel();
        // Not under the lock, because building takes long. If two threads get here, the kernel of the first one stays.
        let program = Program::of(system, device, &self.content, kernel)?;
        let built = Arc::new(Built::new(program, kernel)?);
        let mut list = self.built.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = find(&list) {
            return Ok(first);
        }
        list.push(built.clone());
        Ok(built)
    }

    /// Reads the extents of a launch, and checks them against the limits of the kernel and the device; `None` if there are no threads.
    fn sizes(&self, built: &Built, extents: &[AnyView<'_>]) -> Result<Option<Extents>> {
        let (call, device) = (self.call(), built.device());
        let Some(extents) = call.extents(extents)? else { return Ok(None) };
        call.check_group(extents.items, built.threads, &device.limits.block, device.index)?;
        for ((axis, count), most) in ["x", "y", "z"].into_iter().zip(extents.groups).zip(device.limits.grid) {
            if count > most {
                bail!(
                    "ValueError",
                    "kernel `{}`: {count} blocks in dimension {axis} are too many for cuda:{}, which accepts {most}",
                    self.kernel().name,
                    device.index
                );
            }
        }
        Ok(Some(extents))
    }

    /// Converts an argument to its bytes.
    fn value(&self, index: i32, at: usize, arg: &AnyView<'_>) -> Result<[u8; 8]> {
        if self.kernel().args[at] != POINTER {
            return self.call().scalar(at, arg).map(|(bytes, _)| bytes);
        }
        let address = match arg.type_index() {
            kTVMFFITensor | kTVMFFIDLTensorPtr => {
                let tensor = arg.get::<TensorView<'_>>()?;
                // The code of a kernel does not tell the data types of its buffers.
                self.call().check_tensor(at, &tensor, None)?;
                let (data, offset) = (tensor.as_dl().data, tensor.as_dl().byte_offset);
                // Memory of this runtime is checked; that of other libraries is what its tensor says.
                if memory::block_at(data.addr()).is_some_and(|(found, _)| found != index) {
                    return Err(self.call().unknown(at, data));
                }
                data.addr() as u64 + if data.is_null() { 0 } else { offset }
            }
            _ if arg.is_none() => 0,
            // The device of the address was found before.
            _ => arg.get::<OpaquePtr>()?.as_ptr().addr() as u64,
        };
        Ok(address.to_ne_bytes())
    }

    /// Queues a kernel in the current stream of the device.
    fn enqueue(
        &self,
        system: &'static System,
        device: &'static CuDevice,
        built: &Built,
        sizes: Extents,
        values: &mut [[u8; 8]],
    ) -> Result<()> {
        let _current = device.enter(system)?;
        // SAFETY: `TVMFFIEnvGetStream` may be called at any time.
        let stream = unsafe { TVMFFIEnvGetStream(kDLCUDA, device.index) };
        let addresses: Vec<*mut c_void> = values.iter_mut().map(|value| value.as_mut_ptr().cast()).collect();
        // All sizes were compared with the limits of the device, which have 32 bits.
        let [gx, gy, gz] = sizes.groups.map(|size| size as u32);
        let [bx, by, bz] = sizes.items.map(|size| size as u32);
        let launch = || format!("launch the kernel `{}`", self.kernel().name);
        queue_in(system, device, stream, &launch, || {
            // SAFETY: the values have the sizes that the description of the kernel says, and are copied by the call. The code that set the
            // current stream guarantees that it belongs to the device. Memory of tensors that are freed is reused after the kernel.
            unsafe {
                (system.api.cuLaunchKernel)(
                    built.function,
                    gx,
                    gy,
                    gz,
                    bx,
                    by,
                    bz,
                    0,
                    stream,
                    addresses.as_ptr(),
                    ptr::null(),
                )
            }
        })
    }
}

/// Builds kernel `index` of a module for a device.
///
/// # Errors
/// Returns the error that the first launch on this device would return.
pub(super) fn build(content: &Content, index: usize, on: i32) -> Result<()> {
    let (system, device) = available(on)?;
    let kernel = &content.kernels[index];
    Built::new(Program::of(system, device, content, kernel)?, kernel).map(drop)
}
