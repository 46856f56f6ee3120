//! The Vulkan devices of the machine: a list of them, with the limits and the features of each device.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use anyfn::{Error, Result};
use anyfn_driver::Pool;
use anyfn_kernels::fork::{self, Forks};
use ash::vk;

use crate::api::{self, code_name, text, version};
use crate::logical::Logical;
use crate::memory::Block;

/// The opened loader and the devices of all its drivers.
pub(crate) struct System {
    /// Name under which the loader was opened.
    library: String,
    /// Functions of the loader, which the instance uses.
    _entry: ash::Entry,
    pub(crate) instance: ash::Instance,
    devices: Vec<VkDevice>,
    /// Devices that cannot be used, each with the reason.
    refused: Vec<String>,
}

/// A Vulkan device.
pub(crate) struct VkDevice {
    /// Number of the device: `vulkan:<index>`.
    pub(crate) index: i32,
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) name: String,
    /// Name and version of the driver.
    pub(crate) driver: String,
    /// Version of Vulkan that the device implements.
    pub(crate) version: u32,
    pub(crate) limits: Limits,
    pub(crate) features: Features,
    /// Number of the family of the queues.
    pub(crate) family: u32,
    /// Number of queues in the family.
    pub(crate) queues: u32,
    /// Number of bits of a time stamp that are valid; 0 if there is no clock.
    pub(crate) time_bits: u32,
    /// True if the processor and the device share their memory.
    pub(crate) is_shared: bool,
    pool: Mutex<Pool<Block>>,
    /// The error after which the driver cannot use the device any more.
    lost: OnceLock<String>,
    opened: OnceLock<Result<&'static Logical, String>>,
}

/// Limits of a device.
pub(crate) struct Limits {
    /// Maximum number of work items of a group.
    pub(crate) group: usize,
    /// Maximum number of work items of a group in each dimension.
    pub(crate) dimensions: [usize; 3],
    /// Maximum number of work groups in each dimension.
    pub(crate) groups: [u32; 3],
    /// Bytes of the memory that the work items of a group share.
    pub(crate) shared: u32,
    /// Bytes of the memory of the device.
    pub(crate) memory: usize,
    /// Bytes of the largest buffer.
    pub(crate) buffer: usize,
    /// Bytes of the largest part of a buffer that a kernel can access.
    pub(crate) range: u64,
    /// Maximum number of buffers of a kernel.
    pub(crate) buffers: u32,
    /// Bytes of the numbers that a launch passes as push constants.
    pub(crate) push: u32,
    /// Alignment of the start of a part of a buffer, in bytes.
    pub(crate) alignment: usize,
    /// Nanoseconds of a step of the clock.
    pub(crate) period: f32,
    /// Number of work items that are executed in lockstep.
    pub(crate) subgroup: u32,
    /// Operations within a subgroup.
    pub(crate) subgroup_operations: vk::SubgroupFeatureFlags,
}

/// Optional features of a device that kernels use.
#[derive(Clone, Copy, Default)]
pub(crate) struct Features {
    pub(crate) core: vk::PhysicalDeviceFeatures,
    pub(crate) storage16: bool,
    pub(crate) uniform16: bool,
    pub(crate) uniform8: bool,
    pub(crate) storage8: bool,
    pub(crate) push16: bool,
    pub(crate) push8: bool,
    pub(crate) float16: bool,
    pub(crate) int8: bool,
    pub(crate) buffer_int64_atomics: bool,
    pub(crate) shared_int64_atomics: bool,
    pub(crate) memory_model: bool,
    pub(crate) device_scope: bool,
    pub(crate) variable_pointers: bool,
    pub(crate) storage_variable_pointers: bool,
    timeline: bool,
}

static FORKS: Forks = Forks::new();

/// Returns true if this process was forked after Vulkan was initialised.
#[inline]
pub(crate) fn is_forked() -> bool {
    FORKS.is_forked()
}

/// Returns the devices of the machine. The first call opens the loader and lists them.
///
/// # Errors
/// Returns the reason why there are none.
pub(crate) fn system() -> Result<&'static System, String> {
    static SYSTEM: OnceLock<Result<System, String>> = OnceLock::new();
    if is_forked() {
        return Err(fork::reason("Vulkan"));
    }
    let found = SYSTEM.get_or_init(|| {
        FORKS.watch();
        open()
    });
    found.as_ref().map_err(Clone::clone)
}

fn open() -> Result<System, String> {
    let (library, entry) = api::open()?;
    // SAFETY: the entry is that of a loader.
    let supported = unsafe { entry.try_enumerate_instance_version() };
    let supported = supported.ok().flatten().unwrap_or(vk::API_VERSION_1_0);
    if supported < vk::API_VERSION_1_2 {
        return Err(format!(
            "{library} implements Vulkan {}; version 1.2 or later is needed",
            version(supported)
        ));
    }
    let application = vk::ApplicationInfo {
        p_engine_name: c"anyfn".as_ptr(),
        api_version: vk::API_VERSION_1_2,
        ..Default::default()
    };
    let info = vk::InstanceCreateInfo::default().application_info(&application);
    // SAFETY: the loader implements the requested version, and no layer or extension is requested.
    let instance = match unsafe { entry.create_instance(&info, None) } {
        Ok(instance) => instance,
        Err(vk::Result::ERROR_INCOMPATIBLE_DRIVER) => {
            return Err(format!("{library} is installed but found no driver of Vulkan; {}", drivers()));
        }
        Err(code) => return Err(format!("vkCreateInstance of {library} returned {}", code_name(code))),
    };
    let (devices, refused) = list(&library, &instance)?;
    Ok(System { library, _entry: entry, instance, devices, refused })
}

/// Returns a device.
///
/// # Errors
/// Returns the reason why it is not available.
pub(crate) fn device(index: i32) -> Result<(&'static System, &'static VkDevice), String> {
    let system = system()?;
    match known(index) {
        Some((_, device)) => match device.lost.get() {
            None => Ok((system, device)),
            Some(error) => Err(format!("it was lost ({error}); it can be used again in a new process")),
        },
        None => {
            let all = system.devices.iter().map(VkDevice::describe).chain(system.refused.iter().cloned());
            Err(format!("{} found only {}", system.library, all.collect::<Vec<_>>().join(", ")))
        }
    }
}

/// Returns a device, even if it was lost; `None` if there is no such device.
pub(crate) fn known(index: i32) -> Option<(&'static System, &'static VkDevice)> {
    let system = system().ok()?;
    Some((system, system.devices.get(usize::try_from(index).ok()?)?))
}

/// Returns a device and its queues, with an error in the words of the runtime. The first call creates the queues.
#[inline]
pub(crate) fn available(index: i32) -> Result<(&'static VkDevice, &'static Logical)> {
    let (system, device) = device(index)
        .map_err(|reason| anyfn::error!("RuntimeError", "device vulkan:{index} is not available: {reason}"))?;
    Ok((device, device.opened(system)?))
}

impl System {
    /// Returns all devices.
    pub(crate) fn devices(&self) -> &[VkDevice] {
        &self.devices
    }
}

impl VkDevice {
    fn opened(&'static self, system: &'static System) -> Result<&'static Logical> {
        let opened = self.opened.get_or_init(|| Logical::open(system, self));
        opened
            .as_ref()
            .copied()
            .map_err(|reason| anyfn::error!("RuntimeError", "cannot use vulkan:{}: {reason}", self.index))
    }

    /// Returns the queues of the device, if it is in use.
    pub(crate) fn in_use(&self) -> Option<&'static Logical> {
        self.opened.get()?.as_ref().ok().copied()
    }

    /// Returns true if the driver cannot use the device any more.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Returns the nanoseconds from one time stamp to another; 0 if the second is the earlier one. Time stamps may have few bits, and begin
    /// again at 0.
    pub(crate) fn nanoseconds(&self, start: u64, end: u64) -> u64 {
        nanoseconds(self.time_bits, self.limits.period, start, end)
    }

    /// Returns the account of the memory of the device, and the freed buffers that are kept.
    pub(crate) fn pool(&self) -> MutexGuard<'_, Pool<Block>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the device, its name and its driver as text for messages.
    pub(crate) fn describe(&self) -> String {
        format!("vulkan:{} ({}, {}, Vulkan {})", self.index, self.name, self.driver, version(self.version))
    }

    /// Returns the error for a code that a function of Vulkan returned when it was to do `what`.
    #[cold]
    pub(crate) fn error(&self, code: vk::Result, what: &str) -> Error {
        let kind = if api::is_memory(code) { "MemoryError" } else { "RuntimeError" };
        let error = format!("cannot {what} on vulkan:{}: {}", self.index, code_name(code));
        if code != vk::Result::ERROR_DEVICE_LOST {
            return Error::new(kind, &error);
        }
        // Calls that wait for a lost device may not return, so none follow.
        let lost = format!("{error}; the device was lost, and can be used again in a new process");
        drop(self.lost.set(error));
        Error::new(kind, &lost)
    }
}

fn nanoseconds(bits: u32, period: f32, start: u64, end: u64) -> u64 {
    let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    let ticks = end.wrapping_sub(start) & mask;
    if ticks > mask / 2 { 0 } else { (ticks as f64 * f64::from(period)) as u64 }
}

/// Lists the devices of all drivers: discrete GPUs first, then integrated and virtual ones, then the rest, otherwise in the loader's order.
/// Returns those that can be used, and descriptions of the others.
///
/// # Errors
/// Returns the reason why there are no devices.
fn list(library: &str, instance: &ash::Instance) -> Result<(Vec<VkDevice>, Vec<String>), String> {
    // SAFETY: the instance is alive.
    let physical = unsafe { instance.enumerate_physical_devices() }
        .map_err(|code| format!("vkEnumeratePhysicalDevices of {library} returned {}", code_name(code)))?;
    if physical.is_empty() {
        return Err(format!("{library} is installed but found no device; {}", drivers()));
    }
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for physical in physical {
        match describe(instance, physical) {
            Ok(device) => found.push(device),
            Err(reason) => refused.push(reason),
        }
    }
    if found.is_empty() {
        return Err(format!("{library} found no device that can be used: {}", refused.join(", ")));
    }
    found.sort_by_key(|(kind, _)| match *kind {
        vk::PhysicalDeviceType::DISCRETE_GPU => 0,
        vk::PhysicalDeviceType::INTEGRATED_GPU => 1,
        vk::PhysicalDeviceType::VIRTUAL_GPU => 2,
        _ => 3,
    });
    Ok(((0..).zip(found).map(|(index, (_, device))| VkDevice { index, ..device }).collect(), refused))
}

/// Reads the kind, the limits and the features of a device.
///
/// # Errors
/// Returns a description of the device with the reason why it cannot be used.
fn describe(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
) -> Result<(vk::PhysicalDeviceType, VkDevice), String> {
    // SAFETY: the loader listed the device.
    let basic = unsafe { instance.get_physical_device_properties(physical) };
    let name = text(&basic.device_name);
    if basic.api_version < vk::API_VERSION_1_2 {
        return Err(format!("{name} (unusable: it implements Vulkan {}, not 1.2)", version(basic.api_version)));
    }
    let (mut eleven, mut twelve) =
        (vk::PhysicalDeviceVulkan11Properties::default(), vk::PhysicalDeviceVulkan12Properties::default());
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut eleven).push_next(&mut twelve);
    // SAFETY: the device implements Vulkan 1.2, to which the structs belong.
    unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
    let limits = properties.properties.limits;
    let features = features(instance, physical);
    if !features.timeline {
        return Err(format!("{name} (unusable: it has no timeline semaphores)"));
    }
    // SAFETY: the loader listed the device.
    let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
    let computes = |family: &vk::QueueFamilyProperties| {
        family.queue_flags.contains(vk::QueueFlags::COMPUTE) && family.queue_count > 0
    };
    let Some(family) = families.iter().position(computes) else {
        return Err(format!("{name} (unusable: it has no queue that computes)"));
    };
    // SAFETY: the loader listed the device.
    let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
    let heaps = &memory.memory_heaps[..memory.memory_heap_count as usize];
    let local = heaps.iter().filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    let bytes = local.map(|heap| heap.size).max().unwrap_or(0);
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let kind = basic.device_type;
    let limits = Limits {
        group: limits.max_compute_work_group_invocations as usize,
        dimensions: limits.max_compute_work_group_size.map(|size| size as usize),
        groups: limits.max_compute_work_group_count,
        shared: limits.max_compute_shared_memory_size,
        memory: size(bytes),
        buffer: size(eleven.max_memory_allocation_size.min(bytes)),
        range: u64::from(limits.max_storage_buffer_range),
        buffers: limits.max_per_stage_descriptor_storage_buffers.min(limits.max_descriptor_set_storage_buffers),
        push: limits.max_push_constants_size,
        alignment: size(limits.min_storage_buffer_offset_alignment).max(4),
        period: limits.timestamp_period,
        subgroup: eleven.subgroup_size,
        subgroup_operations: if eleven.subgroup_supported_stages.contains(vk::ShaderStageFlags::COMPUTE) {
            eleven.subgroup_supported_operations
        } else {
            vk::SubgroupFeatureFlags::empty()
        },
    };
    let device = VkDevice {
        index: 0,
        physical,
        name,
        driver: format!("{} {}", text(&twelve.driver_name), text(&twelve.driver_info)).trim().to_owned(),
        version: basic.api_version,
        features,
        family: family as u32,
        queues: families[family].queue_count,
        time_bits: families[family].timestamp_valid_bits,
        is_shared: matches!(kind, vk::PhysicalDeviceType::INTEGRATED_GPU | vk::PhysicalDeviceType::CPU),
        pool: Mutex::new(Pool::new(limits.memory, Pool::<Block>::limit_for(limits.memory))),
        limits,
        lost: OnceLock::new(),
        opened: OnceLock::new(),
    };
    Ok((kind, device))
}

fn features(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Features {
    let (mut eleven, mut twelve) =
        (vk::PhysicalDeviceVulkan11Features::default(), vk::PhysicalDeviceVulkan12Features::default());
    let mut all = vk::PhysicalDeviceFeatures2::default().push_next(&mut eleven).push_next(&mut twelve);
    // SAFETY: the device implements Vulkan 1.2, to which the structs belong.
    unsafe { instance.get_physical_device_features2(physical, &mut all) };
    let core = all.features;
    let is = |flag: vk::Bool32| flag == vk::TRUE;
    Features {
        // Only what kernels use, because some other features cost time.
        core: vk::PhysicalDeviceFeatures {
            shader_float64: core.shader_float64,
            shader_int64: core.shader_int64,
            shader_int16: core.shader_int16,
            ..Default::default()
        },
        storage16: is(eleven.storage_buffer16_bit_access),
        uniform16: is(eleven.uniform_and_storage_buffer16_bit_access),
        uniform8: is(twelve.uniform_and_storage_buffer8_bit_access),
        push16: is(eleven.storage_push_constant16),
        variable_pointers: is(eleven.variable_pointers),
        storage_variable_pointers: is(eleven.variable_pointers_storage_buffer),
        storage8: is(twelve.storage_buffer8_bit_access),
        push8: is(twelve.storage_push_constant8),
        float16: is(twelve.shader_float16),
        int8: is(twelve.shader_int8),
        buffer_int64_atomics: is(twelve.shader_buffer_int64_atomics),
        shared_int64_atomics: is(twelve.shader_shared_int64_atomics),
        memory_model: is(twelve.vulkan_memory_model),
        device_scope: is(twelve.vulkan_memory_model_device_scope),
        timeline: is(twelve.timeline_semaphore),
    }
}

/// Describes where drivers of Vulkan are registered with the loader.
fn drivers() -> String {
    for name in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        if let Ok(files) = std::env::var(name) {
            return format!("{name} is {files}");
        }
    }
    let mut found = Vec::new();
    for folder in ["/etc/vulkan/icd.d", "/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"] {
        let Ok(files) = std::fs::read_dir(folder) else { continue };
        let names: Vec<String> =
            files.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        if !names.is_empty() {
            found.push(format!("{folder} contains {}", names.join(", ")));
        }
    }
    if found.is_empty() {
        "no driver is registered in /usr/share/vulkan/icd.d".to_owned()
    } else {
        found.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::nanoseconds;

    #[test]
    fn clocks_begin_again() {
        assert_eq!(nanoseconds(64, 1.0, 5, 12), 7);
        assert_eq!(nanoseconds(64, 2.5, 10, 14), 10);
        assert_eq!(nanoseconds(36, 2.0, (1 << 36) - 3, 4), 14);
        assert_eq!(nanoseconds(64, 1.0, u64::MAX, 1), 2);
        // The second time stamp is the earlier one.
        assert_eq!((nanoseconds(36, 1.0, 9, 4), nanoseconds(64, 1.0, 9, 4)), (0, 0));
    }
}
