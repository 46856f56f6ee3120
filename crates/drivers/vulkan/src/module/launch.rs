//! Launches of kernels.

use core::ffi::c_void;
use std::sync::{Arc, PoisonError, RwLock};

use anyfn::abi::{TVMFFIEnvGetStream, kDLBool, kDLInt, kDLUInt, kDLVulkan, kTVMFFIDLTensorPtr, kTVMFFITensor};
use anyfn::{
    Any, AnyView, Args, Blocking, DType, OpaquePtr, PackedFunc, Result, TensorView, TypedPackedFunc, bail,
};
use anyfn_kernels::{Call, POINTER};
use ash::prelude::VkResult;
use ash::vk;

use super::program::Program;
use super::{Coded, Content, KIND};
use crate::logical::Logical;
use crate::memory;
use crate::stream::{Recording, Task, UNIFORM};
use crate::system::{VkDevice, available, device};

/// Creates the function that launches kernel `index` of a module.
pub(super) fn function(content: Arc<Content>, index: usize) -> PackedFunc {
    let launcher = Launcher { content, index, built: RwLock::default() };
    TypedPackedFunc::from_fn(Blocking(move |args: Args<'_>| launcher.launch(args))).into()
}

struct Launcher {
    content: Arc<Content>,
    index: usize,
    /// The kernel for each device on which it was launched.
    built: RwLock<Vec<Arc<Program>>>,
}

/// The arguments of a launch, as the device takes them.
struct Arguments {
    buffers: Vec<Bound>,
    /// The block of numbers.
    block: [u8; UNIFORM],
}

/// A buffer, or a part of one, to which a kernel has access.
enum Bound {
    Part(vk::DescriptorBufferInfo),
    /// This many bytes of zeros, for a tensor without elements.
    Zeros(u64),
}

impl Launcher {
    fn coded(&self) -> &Coded {
        &self.content.kernels[self.index]
    }

    fn call(&self) -> Call<'_> {
        Call { kind: KIND, device_type: kDLVulkan, kernel: &self.coded().kernel }
    }

    fn launch(&self, args: Args<'_>) -> Result<Any> {
        let (args, extents) = self.call().split(args.as_slice())?;
        let index = self.device_of(args)?;
        let (device, logical) = available(index)?;
        let program = self.built(logical)?;
        let Some(groups) = self.groups(device, extents)? else {
            // There are no work items.
            return Ok(Any::NONE);
        };
        let arguments = self.arguments(logical, args)?;
        self.submit(&program, &arguments, groups)?;
        Ok(Any::NONE)
    }

    /// Returns the device of the buffers.
    fn device_of(&self, args: &[AnyView<'_>]) -> Result<i32> {
        let at = |data: *mut c_void| Some(memory::at(data)?.device);
        self.call().device_of(args, &at, &|| device(0).err())
    }

    /// Returns the kernel for a device, which is built at the first call.
    fn built(&self, logical: &'static Logical) -> Result<Arc<Program>> {
        let find = |list: &Vec<Arc<Program>>| {
            list.iter().find(|program| program.logical.device.index == logical.device.index).cloned()
        };
        if let Some(program) = find(&self.built.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(program);
        }
        // Not under the lock, because building takes long. If two threads get here, the program of the first one stays.
        let program = Program::of(logical, self.coded())?;
        let mut list = self.built.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = find(&list) {
            return Ok(first);
        }
        list.push(program.clone());
        Ok(program)
    }

    /// Reads the extents of a launch, and returns the numbers of work groups; `None` if there are no work items.
    fn groups(&self, device: &VkDevice, extents: &[AnyView<'_>]) -> Result<Option<[u32; 3]>> {
        let (call, coded, limits) = (self.call(), self.coded(), &device.limits);
        let Some(extents) = call.extents(extents)? else { return Ok(None) };
        if coded.kernel.has_items() {
            call.check_group(extents.items, limits.group, &limits.dimensions, device.index)?;
            call.check_required(extents.items, coded.entry.group)?;
        }
        let mut groups = [1; 3];
        for ((group, given), (most, axis)) in
            groups.iter_mut().zip(extents.groups).zip(limits.groups.iter().zip(["x", "y", "z"]))
        {
            *group = match u32::try_from(given) {
                Ok(given) if given <= *most => given,
                _ => bail!(
                    "ValueError",
                    "kernel `{}`: {given} work groups along {axis} are too many for vulkan:{}, which accepts {most}",
                    coded.kernel.name,
                    device.index
                ),
            };
        }
        Ok(Some(groups))
    }

    /// Converts the arguments.
    fn arguments(&self, logical: &'static Logical, args: &[AnyView<'_>]) -> Result<Arguments> {
        let Coded { kernel, entry, .. } = self.coded();
        let mut arguments = Arguments { buffers: Vec::with_capacity(args.len()), block: [0; UNIFORM] };
        let mut numbers = 0;
        for (at, (dtype, arg)) in kernel.args.iter().zip(args).enumerate() {
            if *dtype == POINTER {
                let buffer = self.buffer(logical, at, arguments.buffers.len(), arg)?;
                arguments.buffers.push(buffer);
                continue;
            }
            let (bytes, length) = self.call().scalar(at, arg)?;
            // A number that the code does not read has no offset.
            if let Some(offset) = entry.offsets.get(numbers)
                && let Some(place) = arguments.block.get_mut(*offset as usize..*offset as usize + length)
            {
                place.copy_from_slice(&bytes[..length]);
            }
            numbers += 1;
        }
        Ok(arguments)
    }

    /// Returns the part of a buffer that an argument describes. `number` is the number of the buffer among the arguments.
    fn buffer(&self, logical: &'static Logical, at: usize, number: usize, arg: &AnyView<'_>) -> Result<Bound> {
        let (call, device) = (self.call(), logical.device);
        let (data, offset, bytes) = match arg.type_index() {
            kTVMFFITensor | kTVMFFIDLTensorPtr => {
                let tensor = arg.get::<TensorView<'_>>()?;
                let element = self.coded().entry.elements.get(number).copied().flatten();
                let packed = element == Some(WORD) && is_packed(tensor.dtype());
                call.check_tensor(at, &tensor, element.filter(|_| !packed))?;
                let elements = tensor.num_elements().unwrap_or(0);
                let bits = usize::from(tensor.dtype().0.bits) * usize::from(tensor.dtype().0.lanes);
                (
                    tensor.as_dl().data,
                    tensor.as_dl().byte_offset,
                    Some(elements.saturating_mul(bits).div_ceil(8)),
                )
            }
            _ if arg.is_none() => (core::ptr::null_mut(), 0, Some(0)),
            _ => (arg.get::<OpaquePtr>()?.as_ptr(), 0, None),
        };
        // Kernels check indices against the declared type, so all of it must exist. They count in words.
        let least = self.coded().entry.least.get(number).copied().unwrap_or(0);
        let least = least.checked_next_multiple_of(4).unwrap_or(u64::MAX).max(4);
        let too_small = |length: usize| {
            anyfn::error!(
                "ValueError",
                "argument {at} of kernel `{}`: the tensor has {length} bytes, and the code of the kernel declares at least {least}",
                call.kernel.name
            )
        };
        let zeros = || if least <= EMPTY { Ok(Bound::Zeros(least)) } else { Err(too_small(0)) };
        if bytes == Some(0) {
            return zeros();
        }
        let Some(buffer) = memory::at(data).filter(|buffer| buffer.device == device.index) else {
            return Err(call.unknown(at, data));
        };
        let length = bytes.unwrap_or(buffer.bytes);
        let start = usize::try_from(offset).ok();
        let start = start.filter(|start| start.checked_add(length).is_some_and(|end| end <= buffer.bytes));
        let Some(start) = start else {
            bail!(
                "ValueError",
                "argument {at} of kernel `{}`: {length} bytes at offset {offset} exceed the buffer of {} bytes on vulkan:{}",
                call.kernel.name,
                buffer.bytes,
                device.index
            );
        };
        if length == 0 {
            return zeros();
        }
        if !start.is_multiple_of(device.limits.alignment) {
            return Err(call.misaligned(at, offset, device.index, device.limits.alignment));
        }
        // Buffers are allocated in units of 16 bytes.
        let range = (length as u64).next_multiple_of(4);
        if range > device.limits.range {
            bail!(
                "ValueError",
                "argument {at} of kernel `{}`: the tensor has {length} bytes, and a kernel on vulkan:{} can access {} bytes of a buffer; \
                 pass parts of it",
                call.kernel.name,
                device.index,
                device.limits.range
            );
        }
        if range < least {
            return Err(too_small(length));
        }
        Ok(Bound::Part(vk::DescriptorBufferInfo { buffer: buffer.buffer, offset: start as u64, range }))
    }

    /// Queues the kernel in the current stream of the device.
    fn submit(&self, program: &Arc<Program>, arguments: &Arguments, groups: [u32; 3]) -> Result<()> {
        let (logical, entry) = (program.logical, &self.coded().entry);
        // SAFETY: `TVMFFIEnvGetStream` may be called at any time.
        let handle = unsafe { TVMFFIEnvGetStream(kDLVulkan, logical.device.index) };
        let stream = logical.stream(handle)?;
        let bytes = &arguments.block[..(entry.bytes as usize).min(UNIFORM)];
        let task = Task::Kernel(&self.coded().kernel.name);
        stream.submit(task, |recording| {
            let set = recording.set(program.set_layout, program.buffers)?;
            let uniform = match entry.uniform {
                Some(_) => Some([vk::DescriptorBufferInfo {
                    buffer: recording.uniform(bytes)?,
                    offset: 0,
                    range: vk::WHOLE_SIZE,
                }]),
                None => None,
            };
            let buffers = bindings(recording, &arguments.buffers)?;
            let buffers = vk::WriteDescriptorSet::default()
                .dst_set(set)
                .dst_binding(0)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .buffer_info(&buffers);
            let mut writes = vec![buffers];
            if let (Some(binding), Some(uniform)) = (entry.uniform, &uniform) {
                writes.push(
                    vk::WriteDescriptorSet::default()
                        .dst_set(set)
                        .dst_binding(binding)
                        .descriptor_type(vk::DescriptorType::UNIFORM_BUFFER)
                        .buffer_info(uniform),
                );
            }
            let (api, commands) = (recording.api, recording.commands);
            // SAFETY: the set is new, and has as many bindings as there are buffers, which are alive: they are arguments of the call, and
            // the pool keeps freed ones until the work that uses them has finished.
            unsafe { api.update_descriptor_sets(&writes, &[]) };
            let point = vk::PipelineBindPoint::COMPUTE;
            // SAFETY: the command buffer is being recorded, and keeps the program.
            unsafe { api.cmd_bind_pipeline(commands, point, program.pipeline) };
            // SAFETY: the set has the layout of the pipeline.
            unsafe { api.cmd_bind_descriptor_sets(commands, point, program.layout, 0, &[set], &[]) };
            if entry.uniform.is_none() && !bytes.is_empty() {
                let stage = vk::ShaderStageFlags::COMPUTE;
                // SAFETY: the layout has push constants of this size.
                unsafe { api.cmd_push_constants(commands, program.layout, stage, 0, bytes) };
            }
            let [x, y, z] = groups;
            // SAFETY: the numbers of groups are within the limits of the device.
            unsafe { api.cmd_dispatch(commands, x, y, z) };
            recording.keep(program.clone());
            Ok(())
        })?;
        Ok(())
    }
}

/// Maximum number of bytes of the declared type of a buffer to which a tensor without elements can be passed.
const EMPTY: u64 = 4096;

/// Returns the buffers of a launch. Each tensor without elements is bound to zeros of its own.
fn bindings(recording: &mut Recording<'_>, all: &[Bound]) -> VkResult<Vec<vk::DescriptorBufferInfo>> {
    let alignment = recording.logical.device.limits.alignment as u64;
    let mut needed = 0;
    let mut buffers: Vec<vk::DescriptorBufferInfo> = Vec::with_capacity(all.len());
    for bound in all {
        buffers.push(match bound {
            Bound::Part(part) => *part,
            Bound::Zeros(range) => {
                let offset = needed;
                needed = (offset + range).next_multiple_of(alignment);
                vk::DescriptorBufferInfo { buffer: vk::Buffer::null(), offset, range: *range }
            }
        });
    }
    if needed > 0 {
        let zeros = recording.zeros(needed as usize)?;
        buffers
            .iter_mut()
            .filter(|part| part.buffer == vk::Buffer::null())
            .for_each(|part| part.buffer = zeros);
    }
    Ok(buffers)
}

/// Data type of the elements of arrays in which smaller integers may be packed.
const WORD: DType = DType::new(kDLUInt, 32, 1);

/// Returns true for integers of 8 and 16 bits, several of which are in each `u32` of a kernel.
fn is_packed(dtype: DType) -> bool {
    matches!(dtype.0.code, kDLInt | kDLUInt | kDLBool) && dtype.0.bits < 32
}

/// Builds kernel `index` of a module for a device.
///
/// # Errors
/// Returns the error that the first launch on this device would return.
pub(super) fn build(content: &Content, index: usize, on: i32) -> Result<()> {
    let (_, logical) = available(on)?;
    Program::of(logical, &content.kernels[index]).map(drop)
}
