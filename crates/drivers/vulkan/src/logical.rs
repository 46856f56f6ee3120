//! A device in use: its queues, its streams and its memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use anyfn::{Result, bail};
use anyfn_driver::{DEFAULT_STREAM, Handle};
use ash::vk;
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use gpu_allocator::{AllocationSizes, AllocatorDebugSettings};

use crate::api::code_name;
use crate::event::Stamps;
use crate::stream::Stream;
use crate::system::{System, VkDevice};

/// Maximum number of queues of a device that streams use.
const QUEUES: u32 = 8;
/// Bytes of the smallest and of the largest piece of memory that is divided among buffers. Larger buffers have their own.
const PIECES: (u64, u64) = (8 << 20, 64 << 20);

/// A device in use, which stays so until the process ends.
pub(crate) struct Logical {
    /// The functions of the device.
    pub(crate) api: ash::Device,
    pub(crate) device: &'static VkDevice,
    queues: Vec<Mutex<vk::Queue>>,
    allocator: Mutex<Allocator>,
    pub(crate) cache: vk::PipelineCache,
    default: OnceLock<Arc<Stream>>,
    streams: Mutex<Vec<Arc<Stream>>>,
    next: AtomicU64,
    /// The time stamps that the next work of a profile uses.
    pub(crate) stamps: Stamps,
}

impl Logical {
    /// Creates the queues of a device.
    ///
    /// # Errors
    /// Returns the reason why the device cannot be used.
    pub(crate) fn open(system: &'static System, device: &'static VkDevice) -> Result<&'static Logical, String> {
        let features = &device.features;
        let flag = vk::Bool32::from;
        let mut eleven = vk::PhysicalDeviceVulkan11Features {
            storage_buffer16_bit_access: flag(features.storage16),
            uniform_and_storage_buffer16_bit_access: flag(features.uniform16),
            storage_push_constant16: flag(features.push16),
            variable_pointers: flag(features.variable_pointers),
            variable_pointers_storage_buffer: flag(features.storage_variable_pointers),
            ..Default::default()
        };
        let mut twelve = vk::PhysicalDeviceVulkan12Features {
            storage_buffer8_bit_access: flag(features.storage8),
            uniform_and_storage_buffer8_bit_access: flag(features.uniform8),
            storage_push_constant8: flag(features.push8),
            shader_float16: flag(features.float16),
            shader_int8: flag(features.int8),
            shader_buffer_int64_atomics: flag(features.buffer_int64_atomics),
            shader_shared_int64_atomics: flag(features.shared_int64_atomics),
            vulkan_memory_model: flag(features.memory_model),
            vulkan_memory_model_device_scope: flag(features.device_scope),
            timeline_semaphore: vk::TRUE,
            ..Default::default()
        };
        let count = device.queues.min(QUEUES);
        let priorities = [1.0_f32; QUEUES as usize];
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(device.family)
            .queue_priorities(&priorities[..count as usize])];
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_features(&features.core)
            .push_next(&mut eleven)
            .push_next(&mut twelve);
        // SAFETY: the family has this many queues, and the device has the features.
        let api = unsafe { system.instance.create_device(device.physical, &info, None) }
            .map_err(|code| format!("vkCreateDevice returned {}", code_name(code)))?;
        let queue = |index| {
            // SAFETY: the device was created with this queue.
            Mutex::new(unsafe { api.get_device_queue(device.family, index) })
        };
        let queues = (0..count).map(queue).collect();
        let mut debug_settings = AllocatorDebugSettings::default();
        debug_settings.log_leaks_on_shutdown = false;
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: system.instance.clone(),
            device: api.clone(),
            physical_device: device.physical,
            debug_settings,
            buffer_device_address: false,
            allocation_sizes: AllocationSizes::new(PIECES.0, PIECES.0)
                .with_max_device_memblock_size(PIECES.1)
                .with_max_host_memblock_size(PIECES.1),
        });
        let cache = allocator.map_err(|error| error.to_string()).and_then(|allocator| {
            // SAFETY: the device is alive, and no earlier content is passed.
            let cache = unsafe { api.create_pipeline_cache(&vk::PipelineCacheCreateInfo::default(), None) };
            let cache = cache.map_err(|code| format!("vkCreatePipelineCache returned {}", code_name(code)))?;
            Ok((Mutex::new(allocator), cache))
        });
        let (allocator, cache) = cache.inspect_err(|_| {
            // SAFETY: nothing of the device is left.
            unsafe { api.destroy_device(None) };
        })?;
        let logical: &'static Logical = Box::leak(Box::new(Logical {
            api,
            device,
            queues,
            allocator,
            cache,
            default: OnceLock::new(),
            streams: Mutex::default(),
            next: AtomicU64::new(0),
            stamps: Stamps::default(),
        }));
        let stream = logical.create_stream().map_err(|error| error.message().to_owned())?;
        drop(logical.default.set(stream));
        Ok(logical)
    }

    /// Returns the allocator of the memory of the device.
    pub(crate) fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks a queue, which only one thread at a time may use.
    pub(crate) fn queue(&self, index: usize) -> MutexGuard<'_, vk::Queue> {
        self.queues[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, Vec<Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all streams.
    pub(crate) fn all_streams(&self) -> Vec<Arc<Stream>> {
        self.streams().clone()
    }

    /// Creates a stream, whose work runs in one of the queues.
    pub(crate) fn create_stream(&'static self) -> Result<Arc<Stream>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let stream = Arc::new(Stream::new(self, number as usize % self.queues.len())?);
        self.streams().push(stream.clone());
        Ok(stream)
    }

    /// Removes a stream from the list.
    pub(crate) fn forget_stream(&self, handle: Handle) {
        let found = {
            let mut streams = self.streams();
            let at = streams.iter().position(|stream| Arc::as_ptr(stream).addr() == handle.addr());
            at.map(|at| streams.remove(at))
        };
        drop(found);
    }

    /// Returns the stream with the given native handle.
    ///
    /// # Errors
    /// Returns `ValueError` if there is no such stream.
    pub(crate) fn stream(&self, handle: Handle) -> Result<Arc<Stream>> {
        if handle == DEFAULT_STREAM
            && let Some(stream) = self.default.get()
        {
            return Ok(stream.clone());
        }
        let found = self.streams().iter().find(|stream| Arc::as_ptr(stream).addr() == handle.addr()).cloned();
        match found {
            Some(stream) => Ok(stream),
            None => bail!("ValueError", "{handle:p} is not a stream of vulkan:{}", self.device.index),
        }
    }

    /// Waits until all work of all streams has finished, and returns the first error.
    pub(crate) fn finish(&self) -> Result<()> {
        let mut result = Ok(());
        for stream in self.all_streams() {
            result = result.and(stream.finish("wait for the work"));
        }
        result
    }
}
