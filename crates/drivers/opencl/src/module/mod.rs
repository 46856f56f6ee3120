//! The module kind `opencl`: kernels in OpenCL C, each of which is a function.
//!
//! A module holds source. It is built for a device when a function is called with tensors of that device for the first
//! time, so that a module can be created, saved and loaded where there is no device.

mod launch;
mod log;
mod program;

use std::sync::Arc;

use anyfn::{Array, Device, Map, Module, ModuleKind, PackedFunc, Result, String as Text, register};
use anyfn_kernels::{Kernel, module, payload, source_of};

/// Kind of the modules.
const KIND: &str = "opencl";
/// Format of the code of modules that contain OpenCL C.
const FORMAT: &str = "cl";

/// Content of a module of kind `opencl`.
struct Content {
    kernels: Vec<Kernel>,
    source: String,
}

impl Content {
    fn new(kernels: Vec<Kernel>, source: String) -> Result<Content> {
        module::check_names(KIND, kernels.iter())?;
        Ok(Content { kernels, source })
    }

    /// Returns the source of the program that contains a kernel.
    fn source_of(&self, kernel: &Kernel) -> &str {
        source_of(&self.source, kernel, &self.kernels)
    }
}

impl ModuleKind for Content {
    fn kind(&self) -> &str {
        KIND
    }

    fn get_function(self: &Arc<Self>, name: &str) -> Result<Option<PackedFunc>> {
        let index = self.kernels.iter().position(|kernel| kernel.name == name);
        Ok(index.map(|index| launch::function(self.clone(), index)))
    }

    fn functions(&self) -> Vec<String> {
        self.kernels.iter().map(|kernel| kernel.name.clone()).collect()
    }

    fn property_mask(&self) -> i32 {
        Module::SAVED | Module::RUNS
    }

    fn save_to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = payload::write_table(FORMAT, &self.kernels);
        payload::write_bytes(&mut bytes, self.source.as_bytes());
        Ok(bytes)
    }

    fn inspect_source(&self, _format: &str) -> Result<String> {
        Ok(self.source.clone())
    }
}

/// Creates a module from OpenCL C. `device` is a device for which it is built at once, so that errors in the source are
/// found early; `None` builds it at the first launch.
///
/// # Errors
/// Returns `ValueError` if there is no kernel or two have one name. With a device also `RuntimeError` if the device is not
/// available or the source does not compile, and `ValueError` if a kernel differs from its description.
pub fn module(source: &str, kernels: Vec<Kernel>, device: Option<Device>) -> Result<Module> {
    let content = Content::new(kernels, source.to_owned())?;
    if let Some(device) = device {
        let device = module::index_of(device, KIND, anyfn::abi::kDLOpenCL)?;
        for index in 0..content.kernels.len() {
            launch::build(&content, index, device)?;
        }
    }
    Module::new(content)
}

/// Creates a module of kind `opencl` from OpenCL C. `kernels` maps the name of each kernel to its parameters: "pointer"
/// for each buffer, the data type of each scalar, then the extents of a launch ("blockIdx.x" is the number of work groups
/// in the first dimension, "threadIdx.x" the number of work items of a group). If `device` is given, the module is built
/// for it at once, otherwise at the first launch.
#[register("anyfn.opencl_module", blocking)]
fn opencl_module(
    source: &str,
    kernels: Map<Text, Array<Text>>,
    #[default(None)] device: Option<Device>,
) -> Result<Module> {
    module(source, module::parse(&kernels)?, device)
}

/// Loads a module of kind `opencl` from bytes that `save_to_bytes` or Apache TVM has written.
#[register("ffi.Module.load_from_bytes.opencl")]
fn load_from_bytes(bytes: anyfn::Bytes) -> Result<Module> {
    let mut reader = payload::Reader::new(KIND, &bytes);
    let (kernels, source) = (reader.table(FORMAT)?, reader.text()?.to_owned());
    reader.finish()?;
    Module::new(Content::new(kernels, source)?)
}

/// Loads a module of kind `opencl` from a file that `write_to_file` has written.
#[register("ffi.Module.load_from_file.opencl")]
fn load_from_file(path: &str, _format: &str) -> Result<Module> {
    module::load_file(path, load_from_bytes)
}
