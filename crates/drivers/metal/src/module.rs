//! The module kind `metal`: kernels in MSL, each of which is a function.
//!
//! A module holds source. A kernel is compiled for a device when it is called with tensors of that device for the first time, so that a
//! module can be created, saved and loaded where there is no device.

use std::sync::{Arc, RwLock};

use anyfn::{Array, Device, Map, Module, ModuleKind, PackedFunc, Result, String as Text, bail, register};
use anyfn_kernels::{Kernel, module, payload, source_of};

use crate::content::{Content, KIND};
use crate::launch;

/// Format of the code of modules that contain MSL.
const FORMAT: &str = "metal";

impl Content {
    fn new(kernels: Vec<(Kernel, Arc<str>)>) -> Result<Content> {
        module::check_names(KIND, kernels.iter().map(|(kernel, _)| kernel))?;
        for (kernel, _) in &kernels {
            if let Some(dtype) = kernel.args.iter().find(|dtype| **dtype == anyfn::DType::FLOAT64) {
                bail!("ValueError", "kernel `{}`: MSL has no type for {dtype}; pass a float32", kernel.name);
            }
        }
        Ok(Content { kernels, compiled: RwLock::default() })
    }

    fn read(bytes: &[u8]) -> Result<Content> {
        let mut reader = payload::Reader::new(KIND, bytes);
        let mut kernels = Vec::new();
        let mut sources: Vec<(&str, &str)> = Vec::new();
        let table = reader.table(FORMAT)?;
        for _ in 0..reader.length(16)? {
            sources.push((reader.text()?, reader.text()?));
        }
        for kernel in table {
            let Some((_, source)) = sources.iter().find(|(name, _)| *name == kernel.name) else {
                return Err(reader.damaged());
            };
            kernels.push((kernel, Arc::from(*source)));
        }
        reader.finish()?;
        Content::new(kernels)
    }
}

impl ModuleKind for Content {
    fn kind(&self) -> &str {
        KIND
    }

    fn get_function(self: &Arc<Self>, name: &str) -> Result<Option<PackedFunc>> {
        let index = self.kernels.iter().position(|(kernel, _)| kernel.name == name);
        Ok(index.map(|index| launch::function(self.clone(), index)))
    }

    fn functions(&self) -> Vec<String> {
        self.kernels.iter().map(|(kernel, _)| kernel.name.clone()).collect()
    }

    fn property_mask(&self) -> i32 {
        Module::SAVED | Module::RUNS
    }

    /// Writes the kernels as Apache TVM does, which keeps a source for each kernel.
    fn save_to_bytes(&self) -> Result<Vec<u8>> {
        let kernels: Vec<Kernel> = self.kernels.iter().map(|(kernel, _)| kernel.clone()).collect();
        let mut bytes = payload::write_table(FORMAT, &kernels);
        payload::write_length(&mut bytes, self.kernels.len());
        for (kernel, source) in &self.kernels {
            payload::write_bytes(&mut bytes, kernel.name.as_bytes());
            payload::write_bytes(&mut bytes, source.as_bytes());
        }
        Ok(bytes)
    }

    fn inspect_source(&self, _format: &str) -> Result<String> {
        let mut sources: Vec<&str> = Vec::new();
        for (_, source) in &self.kernels {
            if !sources.contains(&&**source) {
                sources.push(source);
            }
        }
        Ok(sources.concat())
    }
}

/// Creates a module from MSL. `device` is a device for which it is compiled at once, so that errors in the source are found early; `None`
/// compiles it at the first launch.
///
/// # Errors
/// Returns `ValueError` if there is no kernel, two have one name, or one has a `float64` parameter. With a device also `RuntimeError` if the
/// device is not available, and the errors of the driver that compiles the source.
pub fn module(source: &str, kernels: Vec<Kernel>, device: Option<Device>) -> Result<Module> {
    let parts: Vec<Arc<str>> =
        kernels.iter().map(|kernel| Arc::from(source_of(source, kernel, &kernels))).collect();
    let content = Content::new(kernels.into_iter().zip(parts).collect())?;
    if let Some(device) = device {
        module::index_of(device, KIND, anyfn::abi::kDLMetal)?;
        for index in 0..content.kernels.len() {
            launch::compiled(&content, index, device)?;
        }
    }
    Module::new(content)
}

/// Creates a module of kind `metal` from MSL. `kernels` maps the name of each kernel to its parameters: "pointer" for each buffer, the data
/// type of each scalar, then the extents of a launch ("blockIdx.x" is the number of threadgroups in the first dimension, "threadIdx.x" the
/// number of threads of a threadgroup). The buffers of a kernel are its arguments `[[buffer(0)]]` and so on; the scalars follow them as one
/// struct, in 8 bytes each. If `device` is given, the module is compiled for it at once, otherwise at the first launch.
#[register("anyfn.metal_module", blocking)]
fn metal_module(
    source: &str,
    kernels: Map<Text, Array<Text>>,
    #[default(None)] device: Option<Device>,
) -> Result<Module> {
    module(source, module::parse(&kernels)?, device)
}

/// Loads a module of kind `metal` from bytes that `save_to_bytes` or Apache TVM has written.
#[register("ffi.Module.load_from_bytes.metal")]
fn load_from_bytes(bytes: anyfn::Bytes) -> Result<Module> {
    Module::new(Content::read(&bytes)?)
}

/// Loads a module of kind `metal` from a file that `write_to_file` has written.
#[register("ffi.Module.load_from_file.metal")]
fn load_from_file(path: &str, _format: &str) -> Result<Module> {
    module::load_file(path, load_from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "// Function: f\nfirst\n// Function: g\nsecond\n";

    fn kernels() -> Vec<Kernel> {
        let params = ["pointer", "int32", "blockIdx.x", "threadIdx.x"];
        ["f", "g"].iter().map(|name| Kernel::parse(name, params).unwrap()).collect()
    }

    #[test]
    fn saved_modules_are_read_and_damaged_ones_refused() {
        let module = module(SOURCE, kernels(), None).unwrap();
        let bytes = module.save_to_bytes().unwrap();
        let read = Content::read(&bytes).unwrap();
        assert_eq!(
            (read.inspect_source("").unwrap().as_str(), read.save_to_bytes().unwrap()),
            (SOURCE, bytes.to_vec())
        );
        assert_eq!(&*read.kernels[1].1, "// Function: g\nsecond\n");
        for end in 0..bytes.len() {
            assert_eq!(Content::read(&bytes[..end]).err().expect("damaged").kind(), "ValueError", "{end}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 0xFF;
            // Not everything is an error, but nothing may panic or allocate without limit.
            drop(Content::read(&damaged));
        }
    }

    #[test]
    fn types_that_msl_does_not_have_are_refused() {
        let kernel = Kernel::parse("f", ["pointer", "float64"]).unwrap();
        let error = module("", vec![kernel], None).unwrap_err();
        assert_eq!(error.message(), "kernel `f`: MSL has no type for float64; pass a float32");
        let twice = vec![Kernel::parse("f", ["pointer"]).unwrap(); 2];
        assert_eq!(module("", twice, None).unwrap_err().message(), "kernel `f` occurs twice");
    }
}
