//! The module kind `vulkan`: kernels in SPIR-V, each of which is a function.
//!
//! A module holds code. A pipeline is built for a device when a function is called with tensors of that device for the first
//! time, so that a module can be created, saved and loaded where there is no device. WGSL is translated by the compiler.

mod launch;
mod program;
mod reflect;
mod spirv;

use std::sync::Arc;

use anyfn::{
    Any, Array, Bytes, Device, Map, Module, ModuleKind, PackedFunc, Result, String as Text, bail, register,
    registry,
};
use anyfn_kernels::{Kernel, module, payload, source_of};

use reflect::Entry;

/// Kind of the modules.
const KIND: &str = "vulkan";
/// Format of the code of modules in SPIR-V.
const FORMAT: &str = "vulkan";
/// Function of the compiler that translates a kernel in WGSL to SPIR-V.
const TRANSLATE: &str = "anyfn.wgsl_to_spirv";

/// A kernel with its code.
struct Coded {
    kernel: Kernel,
    /// Words of SPIR-V.
    code: Arc<[u32]>,
    entry: Entry,
}

/// Content of a module of kind `vulkan`.
struct Content {
    kernels: Vec<Coded>,
}

impl Content {
    /// Creates a module from kernels with their code, which is checked.
    ///
    /// # Errors
    /// Returns `ValueError` if there is no kernel, if two have one name, or if the code of one does not fit its description.
    fn new(kernels: Vec<(Kernel, Arc<[u32]>)>) -> Result<Content> {
        module::check_names(KIND, kernels.iter().map(|(kernel, _)| kernel))?;
        let coded = |(kernel, code): (Kernel, Arc<[u32]>)| {
            let entry = Entry::of(&code, &kernel)?;
            Ok(Coded { kernel, code, entry })
        };
        Ok(Content { kernels: kernels.into_iter().map(coded).collect::<Result<_>>()? })
    }
}

impl ModuleKind for Content {
    fn kind(&self) -> &str {
        KIND
    }

    fn get_function(self: &Arc<Self>, name: &str) -> Result<Option<PackedFunc>> {
        let index = self.kernels.iter().position(|coded| coded.kernel.name == name);
        Ok(index.map(|index| launch::function(self.clone(), index)))
    }

    fn functions(&self) -> Vec<String> {
        self.kernels.iter().map(|coded| coded.kernel.name.clone()).collect()
    }

    fn property_mask(&self) -> i32 {
        Module::SAVED | Module::RUNS
    }

    fn save_to_bytes(&self) -> Result<Vec<u8>> {
        let kernels: Vec<Kernel> = self.kernels.iter().map(|coded| coded.kernel.clone()).collect();
        let mut bytes = payload::write_table(FORMAT, &kernels);
        payload::write_length(&mut bytes, self.kernels.len());
        for Coded { kernel, code, entry } in &self.kernels {
            payload::write_bytes(&mut bytes, kernel.name.as_bytes());
            bytes.extend(u32::from(entry.uniform.is_some()).to_le_bytes());
            payload::write_length(&mut bytes, code.len());
            bytes.extend(code.iter().flat_map(|word| word.to_le_bytes()));
        }
        Ok(bytes)
    }

    fn inspect_source(&self, _format: &str) -> Result<String> {
        let mut sources: Vec<String> = Vec::new();
        for Coded { kernel, code, entry } in &self.kernels {
            let source = spirv::source(code).unwrap_or_else(|| entry.describe(kernel, code));
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        Ok(sources.concat())
    }
}

/// Creates a module from kernels in WGSL, which the compiler translates. `device` is a device for which it is built at once, so that errors
/// are found early; `None` builds it at the first launch.
///
/// A kernel is an entry point of the source. The buffers of its description are the bindings 0, 1, .. of group 0, and the numbers are the
/// members of a struct that is declared with `var<immediate>`, or with `var<uniform>` at the binding after the buffers.
///
/// # Errors
/// Returns `RuntimeError` if the compiler is not loaded, or with its message if the source is not correct. Returns the errors of
/// [`spirv_module`].
pub fn module(source: &str, kernels: Vec<Kernel>, device: Option<Device>) -> Result<Module> {
    let Some(translate) = registry::find(TRANSLATE) else {
        bail!(
            "RuntimeError",
            "WGSL is translated by the compiler, which is not loaded (there is no function `{TRANSLATE}`); load \
             libanyfn_compiler.so, or pass SPIR-V"
        );
    };
    let parts: Vec<&str> = kernels.iter().map(|kernel| source_of(source, kernel, &kernels)).collect();
    let mut all = Vec::new();
    for (kernel, part) in kernels.iter().zip(parts) {
        let code = translate.call((part, &*kernel.name))?.get::<Bytes>()?;
        all.push((kernel.clone(), words(&code)?));
    }
    create(all, device)
}

/// Creates a module from kernels in SPIR-V, which are entry points of one binary. Otherwise as [`module()`].
///
/// # Errors
/// Returns `ValueError` for bytes that are not SPIR-V, or if a kernel differs from its description. With a device also `RuntimeError` if the
/// device is not available or refuses the code, and `ValueError` if the code exceeds a limit of the device.
pub fn spirv_module(code: &[u8], kernels: Vec<Kernel>, device: Option<Device>) -> Result<Module> {
    let code = words(code)?;
    create(kernels.into_iter().map(|kernel| (kernel, code.clone())).collect(), device)
}

fn create(kernels: Vec<(Kernel, Arc<[u32]>)>, device: Option<Device>) -> Result<Module> {
    let content = Content::new(kernels)?;
    if let Some(device) = device {
        let device = module::index_of(device, KIND, anyfn::abi::kDLVulkan)?;
        for index in 0..content.kernels.len() {
            launch::build(&content, index, device)?;
        }
    }
    Module::new(content)
}

/// Returns the words of a binary in SPIR-V.
fn words(bytes: &[u8]) -> Result<Arc<[u32]>> {
    if !bytes.len().is_multiple_of(4) {
        bail!(
            "ValueError",
            "expected SPIR-V, which consists of words of 4 bytes, but got {} bytes",
            bytes.len()
        );
    }
    Ok(bytes.chunks_exact(4).filter_map(<[u8]>::first_chunk).map(|word| u32::from_le_bytes(*word)).collect())
}

/// Creates a module of kind `vulkan` from WGSL, which is a string, or from SPIR-V, which is bytes. `kernels` maps the name of each kernel
/// to its parameters: "pointer" for each buffer, the data type of each number, then the extents of a launch ("blockIdx.x" is the number of
/// work groups in the first dimension; "threadIdx.x", the number of work items of a group, must be that of the source). If `device` is
/// given, the module is built for it at once, otherwise at the first launch.
#[register("anyfn.vulkan_module", blocking)]
fn vulkan_module(
    source: Any,
    kernels: Map<Text, Array<Text>>,
    #[default(None)] device: Option<Device>,
) -> Result<Module> {
    let parsed = module::parse(&kernels)?;
    if let Ok(source) = source.get::<Text>() {
        return module(&source, parsed, device);
    }
    match source.get::<Bytes>() {
        Ok(code) => spirv_module(&code, parsed, device),
        Err(_) => {
            bail!("TypeError", "expected WGSL as a string or SPIR-V as bytes but got {}", source.type_key())
        }
    }
}

/// Loads a module of kind `vulkan` from bytes that `save_to_bytes` or Apache TVM has written.
#[register("ffi.Module.load_from_bytes.vulkan")]
fn load_from_bytes(bytes: Bytes) -> Result<Module> {
    let mut reader = payload::Reader::new(KIND, &bytes);
    let mut kernels = reader.table(FORMAT)?;
    let mut all = Vec::new();
    for _ in 0..reader.length(20)? {
        let name = reader.text()?;
        let Some(at) = kernels.iter().position(|kernel| kernel.name == name) else {
            return Err(reader.damaged());
        };
        let kernel = kernels.remove(at);
        // Whether the numbers are in a uniform block. The code shows it, too.
        reader.array::<4>()?;
        let mut code = Vec::new();
        for _ in 0..reader.length(4)? {
            code.push(u32::from_le_bytes(*reader.array()?));
        }
        all.push((kernel, code.into()));
    }
    if !kernels.is_empty() {
        return Err(reader.damaged());
    }
    reader.finish()?;
    Module::new(Content::new(all)?)
}

/// Loads a module of kind `vulkan` from a file that `write_to_file` has written.
#[register("ffi.Module.load_from_file.vulkan")]
fn load_from_file(path: &str, _format: &str) -> Result<Module> {
    module::load_file(path, load_from_bytes)
}
