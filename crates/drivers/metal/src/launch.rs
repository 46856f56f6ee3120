//! Launches of kernels, which a driver of Metal devices compiles.

use core::ffi::c_void;
use std::sync::{Arc, PoisonError};

use anyfn::abi::{kDLMetal, kTVMFFIDLTensorPtr, kTVMFFITensor};
use anyfn::{
    Any, AnyView, Args, Array, Blocking, Device, PackedFunc, Result, String as Text, TensorView,
    TypedPackedFunc, bail, register, registry,
};
use anyfn_kernels::{Call, Kernel, POINTER};

use crate::content::{Content, KIND};

/// Global function that a driver of Metal devices registers. It receives the source of a kernel, its name, the list of its parameters as
/// in `anyfn.metal_module`, and the device; it compiles the kernel and returns the function that launches it. That function receives the
/// arguments and the extents of a launch in the order of the list, checked except for the limits of the device: buffers are contiguous
/// tensors on the device, addresses in its memory (of which [`LOCATE`] knows), or None; numbers fit their data types, and extents are at
/// least 1.
pub const COMPILE: &str = "anyfn.metal_compile";
/// Global function that a driver of Metal devices registers. It receives an address as an int, and returns the number of the device
/// in whose memory it is, or None.
pub const LOCATE: &str = "anyfn.metal_device_of";
/// Library of the system that a driver needs.
const LIBRARY: &str = "/System/Library/Frameworks/Metal.framework/Metal";

/// Creates the function that launches kernel `index` of a module.
pub(crate) fn function(content: Arc<Content>, index: usize) -> PackedFunc {
    let launcher = Launcher { content, index };
    TypedPackedFunc::from_fn(Blocking(move |args: Args<'_>| launcher.launch(args))).into()
}

struct Launcher {
    content: Arc<Content>,
    index: usize,
}

impl Launcher {
    fn call(&self) -> Call<'_> {
        Call { kind: KIND, device_type: kDLMetal, kernel: &self.content.kernels[self.index].0 }
    }

    fn launch(&self, args: Args<'_>) -> Result<Any> {
        let call = self.call();
        let (given, extents) = call.split(args.as_slice())?;
        let on = call.device_of(given, &locate, &why_missing)?;
        let device = Device::new(kDLMetal, on);
        for (at, arg) in given.iter().enumerate() {
            self.check(at, arg)?;
        }
        let compiled = compiled(&self.content, self.index, device)?;
        if call.extents(extents)?.is_none() {
            // There are no threads.
            return Ok(Any::NONE);
        }
        compiled.call_views(args.as_slice())
    }

    /// Checks an argument of the kernel.
    fn check(&self, at: usize, arg: &AnyView<'_>) -> Result<()> {
        let call = self.call();
        if call.kernel.args[at] != POINTER {
            return call.scalar(at, arg).map(drop);
        }
        match arg.type_index() {
            kTVMFFITensor | kTVMFFIDLTensorPtr => call.check_tensor(at, &arg.get::<TensorView<'_>>()?, None),
            _ => Ok(()),
        }
    }
}

/// Returns kernel `index` of a module for a device. It is compiled at the first call, and kept by the module.
///
/// # Errors
/// Returns the error of [`compile`].
pub(crate) fn compiled(content: &Content, index: usize, device: Device) -> Result<PackedFunc> {
    let find = |list: &Vec<(usize, Device, PackedFunc)>| {
        list.iter().find(|(at, on, _)| (*at, *on) == (index, device)).map(|(_, _, compiled)| compiled.clone())
    };
    if let Some(compiled) = find(&content.compiled.read().unwrap_or_else(PoisonError::into_inner)) {
        return Ok(compiled);
    }
    // Not under the lock, because compiling takes long. If two threads get here, the kernel of the first one stays.
    let made = compile(content, index, device)?;
    let mut list = content.compiled.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(first) = find(&list) {
        return Ok(first);
    }
    list.push((index, device, made.clone()));
    Ok(made)
}

/// Compiles kernel `index` of a module for a device.
///
/// # Errors
/// Returns `RuntimeError` if no driver is registered, and the errors of the driver.
fn compile(content: &Content, index: usize, device: Device) -> Result<PackedFunc> {
    let (kernel, source) = &content.kernels[index];
    let Some(compile) = registry::find(COMPILE) else {
        let reason = why_missing().unwrap_or_else(|| format!("its driver has no function `{COMPILE}`"));
        bail!("RuntimeError", "device {device} is not available: {reason}")
    };
    compile.call((&**source, &*kernel.name, params_of(kernel), device))?.get::<PackedFunc>()
}

/// Returns the number of the device whose memory begins at an address.
fn locate(data: *mut c_void) -> Option<i32> {
    registry::find(LOCATE)?.call((data.addr() as i64,)).ok()?.get::<Option<i32>>().ok()?
}

/// Returns the parameters of a kernel as text.
fn params_of(kernel: &Kernel) -> Array<Text> {
    let arg = |arg: &anyfn::DType| if *arg == POINTER { "pointer".to_owned() } else { arg.to_string() };
    let all = kernel.args.iter().map(arg).chain(kernel.extents.iter().map(ToString::to_string));
    all.map(Text::from).collect()
}

/// Returns the reason why there is no Metal device; `None` if a driver that compiles kernels is registered.
#[register("anyfn.metal_why_missing")]
fn why_missing() -> Option<String> {
    if registry::find(COMPILE).is_some() {
        return None;
    }
    let here = match std::path::Path::new(LIBRARY).exists() {
        true => format!("the system has the library {LIBRARY}"),
        false => format!("there is no library {LIBRARY}, which only macOS has"),
    };
    Some(format!("no driver of Metal devices is registered, and anyfn contains none; {here}"))
}
