//! Pipelines that were built for a device, and a cache of them.

use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyfn::{Result, bail};
use anyfn_kernels::{Kernel, POINTER};
use ash::prelude::VkResult;
use ash::vk;

use super::Coded;
use super::reflect::Entry;
use crate::api::{code_name, is_memory};
use crate::logical::Logical;
use crate::stream::UNIFORM;
use crate::system::{VkDevice, is_forked};

/// A kernel that was built for a device, which any number of threads can launch.
pub(super) struct Program {
    pub(super) logical: &'static Logical,
    code: Arc<[u32]>,
    name: String,
    /// Number of buffers, which are the first bindings.
    pub(super) buffers: u32,
    /// Bytes of the push constants.
    push: u32,
    pub(super) set_layout: vk::DescriptorSetLayout,
    pub(super) layout: vk::PipelineLayout,
    pub(super) pipeline: vk::Pipeline,
}

impl Drop for Program {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        let api = &self.logical.api;
        // SAFETY: command buffers keep the programs that they use, so no work uses the pipeline.
        unsafe { api.destroy_pipeline(self.pipeline, None) };
        // SAFETY: no work uses the layout.
        unsafe { api.destroy_pipeline_layout(self.layout, None) };
        // SAFETY: no work uses the layout.
        unsafe { api.destroy_descriptor_set_layout(self.set_layout, None) };
    }
}

/// Programs that were used last, the newest at the end.
static CACHE: Mutex<Vec<Arc<Program>>> = Mutex::new(Vec::new());
/// Maximum number of programs in [`CACHE`].
const CACHED: usize = 64;

fn cache() -> MutexGuard<'static, Vec<Arc<Program>>> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of the block of numbers that a launch passes as push constants.
fn push_of(entry: &Entry) -> u32 {
    if entry.uniform.is_some() { 0 } else { entry.bytes }
}

impl Program {
    /// Returns the program of a kernel for a device. It is built if it is not in the cache.
    ///
    /// # Errors
    /// Returns `ValueError` if the kernel exceeds a limit of the device, `RuntimeError` if the driver refuses it.
    pub(super) fn of(logical: &'static Logical, coded: &Coded) -> Result<Arc<Program>> {
        let Coded { kernel, code, entry } = coded;
        let buffers = kernel.args.iter().filter(|arg| **arg == POINTER).count() as u32;
        let push = push_of(entry);
        let found = {
            let mut cache = cache();
            let is_same = |program: &Arc<Program>| {
                program.logical.device.index == logical.device.index
                    && program.name == kernel.name
                    && (program.buffers, program.push) == (buffers, push)
                    && *program.code == **code
            };
            let at = cache.iter().position(is_same);
            at.map(|at| {
                let program = cache.remove(at);
                cache.push(program.clone());
                program
            })
        };
        if let Some(program) = found {
            return Ok(program);
        }
        check(logical.device, kernel, entry, buffers)?;
        // Not under the lock, because building takes long.
        let program = Arc::new(Program::build(logical, coded, buffers, push)?);
        let mut cache = cache();
        cache.push(program.clone());
        let oldest = (cache.len() > CACHED).then(|| cache.remove(0));
        drop(cache);
        drop(oldest);
        Ok(program)
    }

    fn build(logical: &'static Logical, coded: &Coded, buffers: u32, push: u32) -> Result<Program> {
        let Coded { kernel, code, entry } = coded;
        let mut program = Program {
            logical,
            code: code.clone(),
            name: kernel.name.clone(),
            buffers,
            push,
            set_layout: vk::DescriptorSetLayout::null(),
            layout: vk::PipelineLayout::null(),
            pipeline: vk::Pipeline::null(),
        };
        program.create(entry).map_err(|code| {
            if is_memory(code) || code == vk::Result::ERROR_DEVICE_LOST {
                return logical.device.error(code, &format!("build the kernel `{}`", kernel.name));
            }
            anyfn::error!(
                "RuntimeError",
                "cannot build the kernel `{}` for {}: the driver refuses its SPIR-V with {}",
                kernel.name,
                logical.device.describe(),
                code_name(code)
            )
        })?;
        Ok(program)
    }

    fn create(&mut self, entry: &Entry) -> VkResult<()> {
        let (api, stage) = (&self.logical.api, vk::ShaderStageFlags::COMPUTE);
        let binding = |binding, descriptor_type| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(binding)
                .descriptor_type(descriptor_type)
                .descriptor_count(1)
                .stage_flags(stage)
        };
        let mut bindings: Vec<_> =
            (0..self.buffers).map(|number| binding(number, vk::DescriptorType::STORAGE_BUFFER)).collect();
        bindings.extend(entry.uniform.map(|number| binding(number, vk::DescriptorType::UNIFORM_BUFFER)));
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: the device is alive, and the numbers of the bindings differ.
        self.set_layout = unsafe { api.create_descriptor_set_layout(&info, None) }?;
        let sets = [self.set_layout];
        let ranges = [vk::PushConstantRange { stage_flags: stage, offset: 0, size: self.push }];
        let info = vk::PipelineLayoutCreateInfo::default()
            .set_layouts(&sets)
            .push_constant_ranges(if self.push > 0 { &ranges } else { &[] });
        // SAFETY: the layout of the set is alive, and the size of the push constants was checked.
        self.layout = unsafe { api.create_pipeline_layout(&info, None) }?;
        let info = vk::ShaderModuleCreateInfo::default().code(&self.code);
        // SAFETY: the instructions of the code were read, and its capabilities are those of the device.
        let shader = unsafe { api.create_shader_module(&info, None) }?;
        let name = CString::new(&*self.name).unwrap_or_default();
        let of = vk::PipelineShaderStageCreateInfo::default().stage(stage).module(shader).name(&name);
        let info = [vk::ComputePipelineCreateInfo::default().stage(of).layout(self.layout)];
        // SAFETY: the code has an entry point of this name, whose bindings are those of the layout.
        let made = unsafe { api.create_compute_pipelines(self.logical.cache, &info, None) };
        // SAFETY: a pipeline does not use the shader after it was created.
        unsafe { api.destroy_shader_module(shader, None) };
        let pipelines = made.map_err(|(_, code)| code)?;
        self.pipeline = pipelines[0];
        Ok(())
    }
}

/// Checks a kernel against the limits and features of a device.
fn check(device: &VkDevice, kernel: &Kernel, entry: &Entry, buffers: u32) -> Result<()> {
    let limits = &device.limits;
    let fail = |reason: String| {
        anyfn::error!("ValueError", "kernel `{}` on vulkan:{}: {reason}", kernel.name, device.index)
    };
    let items: usize = entry.group.iter().fold(1, |product, size| product.saturating_mul(*size));
    if items > limits.group || entry.group.iter().zip(&limits.dimensions).any(|(size, most)| size > most) {
        let [x, y, z] = entry.group;
        bail!(
            "ValueError",
            "kernel `{}`: a work group of {x} x {y} x {z} is too large for vulkan:{}, which accepts {} work items, at most {:?}",
            kernel.name,
            device.index,
            limits.group,
            limits.dimensions
        );
    }
    if entry.shared > u64::from(limits.shared) {
        let (bytes, most) = (entry.shared, limits.shared);
        return Err(fail(format!("it needs {bytes} bytes of workgroup memory, and the device has {most}")));
    }
    if buffers > limits.buffers {
        let most = limits.buffers;
        return Err(fail(format!("it has {buffers} buffers, and the device accepts {most}")));
    }
    let (bytes, most, by) = match entry.uniform {
        Some(_) => (entry.bytes, UNIFORM as u32, "a uniform block"),
        None => (entry.bytes, limits.push.min(UNIFORM as u32), "push constants"),
    };
    if bytes > most {
        return Err(fail(format!("its numbers have {bytes} bytes, and {most} bytes can be passed in {by}")));
    }
    for capability in &entry.capabilities {
        if let Some(missing) = missing(device, entry, *capability) {
            return Err(fail(format!("its code needs {missing}")));
        }
    }
    Ok(())
}

/// Returns a description of a capability of SPIR-V that a device does not have, or that is not enabled.
fn missing(device: &VkDevice, entry: &Entry, capability: u32) -> Option<String> {
    use vk::SubgroupFeatureFlags as Subgroup;
    let (features, core) = (&device.features, &device.features.core);
    let subgroup = |operations| device.limits.subgroup_operations.contains(operations);
    let (name, is_there) = match capability {
        // Matrix and Shader, which every device has.
        0 | 1 => return None,
        9 => ("float16", features.float16),
        10 => ("float64", core.shader_float64 == vk::TRUE),
        11 => ("int64", core.shader_int64 == vk::TRUE),
        12 => (
            "atomic operations on int64",
            features.buffer_int64_atomics && (features.shared_int64_atomics || entry.shared == 0),
        ),
        22 => ("int16", core.shader_int16 == vk::TRUE),
        39 => ("int8", features.int8),
        61 => ("subgroups", subgroup(Subgroup::BASIC)),
        62 => ("votes of subgroups", subgroup(Subgroup::VOTE)),
        63 => ("arithmetic of subgroups", subgroup(Subgroup::ARITHMETIC)),
        64 => ("ballots of subgroups", subgroup(Subgroup::BALLOT)),
        65 => ("shuffles of subgroups", subgroup(Subgroup::SHUFFLE)),
        66 => ("relative shuffles of subgroups", subgroup(Subgroup::SHUFFLE_RELATIVE)),
        67 => ("clusters of subgroups", subgroup(Subgroup::CLUSTERED)),
        68 => ("quads of subgroups", subgroup(Subgroup::QUAD)),
        4433 => ("buffers of 16-bit values", features.storage16),
        4434 => ("uniform blocks of 16-bit values", features.uniform16),
        4435 => ("push constants of 16 bits", features.push16),
        4441 => ("variable pointers to buffers", features.storage_variable_pointers),
        4442 => ("variable pointers", features.variable_pointers),
        4448 => ("buffers of 8-bit values", features.storage8),
        4449 => ("uniform blocks of 8-bit values", features.uniform8),
        4450 => ("push constants of 8 bits", features.push8),
        5345 => ("the memory model of Vulkan", features.memory_model),
        5346 => ("the memory model of Vulkan across the device", features.device_scope),
        other => return Some(format!("the capability {other} of SPIR-V, which this version does not enable")),
    };
    (!is_there).then(|| format!("{name}, which the device does not have"))
}
