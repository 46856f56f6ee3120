//! The OpenCL devices of the machine: a list of them, with the limits, the context and the queues of each device.

use core::ffi::c_void;
use core::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use anyfn::{Error, Result};
use anyfn_driver::{DEFAULT_STREAM, Handle, Pool};
use anyfn_kernels::fork;

use crate::api::{self, Api, Raw, code_name, info, number, text};
use crate::block::Block;
use crate::event::ClEvent;
use crate::process::{FORKS, is_forked, with_signal_handlers};

/// The opened loader and the devices of all its drivers.
pub(crate) struct System {
    pub(crate) api: Api,
    devices: Vec<ClDevice>,
}

/// An OpenCL device.
pub(crate) struct ClDevice {
    /// Number of the device: `opencl:<index>`.
    pub(crate) index: i32,
    pub(crate) id: Raw,
    platform: Raw,
    /// Name and version of the driver.
    pub(crate) driver: String,
    pub(crate) name: String,
    pub(crate) limits: Limits,
    pool: Mutex<Pool<Block>>,
    /// The error after which the driver cannot use the device any more.
    lost: OnceLock<String>,
    opened: OnceLock<Result<Opened, String>>,
}

/// Limits of a device.
pub(crate) struct Limits {
    /// Maximum number of work items of a group.
    pub(crate) group: usize,
    /// Maximum number of work items of a group in each dimension.
    pub(crate) dimensions: Vec<usize>,
    /// Bytes of local memory.
    pub(crate) local: u64,
    /// Bytes of global memory.
    pub(crate) global: usize,
    /// Bytes of the largest buffer.
    pub(crate) buffer: usize,
    /// Maximum number of bytes of the arguments of a kernel.
    pub(crate) arguments: usize,
    /// Alignment of the start of a part of a buffer, in bytes.
    pub(crate) alignment: usize,
}

/// Context and queues of a device that is in use.
pub(crate) struct Opened {
    pub(crate) context: Raw,
    /// The queue of the default stream.
    pub(crate) queue: Raw,
    queues: Mutex<Vec<usize>>,
}

// SAFETY: OpenCL permits the use of platforms, devices, contexts and queues on any thread, by several threads at a time.
unsafe impl Send for ClDevice {}
// SAFETY: OpenCL permits the use of devices by several threads at a time.
unsafe impl Sync for ClDevice {}
// SAFETY: OpenCL permits the use of contexts and queues on any thread.
unsafe impl Send for Opened {}
// SAFETY: OpenCL permits the use of contexts and queues by several threads at a time.
unsafe impl Sync for Opened {}

/// Returns the devices of the machine. The first call opens the loader and lists them.
///
/// # Errors
/// Returns the reason why there are none.
pub(crate) fn system() -> Result<&'static System, String> {
    static SYSTEM: OnceLock<Result<System, String>> = OnceLock::new();
    if is_forked() {
        return Err(fork::reason("OpenCL"));
    }
    let found = SYSTEM.get_or_init(|| {
        FORKS.watch();
        with_signal_handlers(|| {
            let api = Api::open()?;
            let devices = list(&api)?;
            Ok(System { api, devices })
        })
    });
    found.as_ref().map_err(Clone::clone)
}

/// Returns a device.
///
/// # Errors
/// Returns the reason why it is not available.
pub(crate) fn device(index: i32) -> Result<(&'static System, &'static ClDevice), String> {
    let system = system()?;
    match known(index) {
        Some((_, device)) => match device.lost.get() {
            None => Ok((system, device)),
            Some(error) => Err(format!("it was lost ({error}); it can be used again in a new process")),
        },
        None => {
            let found: Vec<String> = system.devices.iter().map(ClDevice::describe).collect();
            Err(format!("{} found only {}", system.api.library, found.join(", ")))
        }
    }
}

/// Returns a device, even if it was lost; `None` if there is no such device.
pub(crate) fn known(index: i32) -> Option<(&'static System, &'static ClDevice)> {
    let system = system().ok()?;
    Some((system, system.devices.get(usize::try_from(index).ok()?)?))
}

/// Returns a device as [`device`] does, with an error in the words of the runtime.
pub(crate) fn available(index: i32) -> Result<(&'static System, &'static ClDevice)> {
    device(index)
        .map_err(|reason| anyfn::error!("RuntimeError", "device opencl:{index} is not available: {reason}"))
}

impl System {
    /// Returns all devices.
    pub(crate) fn devices(&self) -> &[ClDevice] {
        &self.devices
    }

    /// Returns the error for a code that a function of OpenCL returned when it was to do `what` on `device`.
    #[cold]
    pub(crate) fn error(&self, code: i32, what: &str, device: &ClDevice) -> Error {
        let kind = if api::is_memory(code) { "MemoryError" } else { "RuntimeError" };
        let error = format!("cannot {what} on opencl:{}: {}", device.index, code_name(code));
        if !api::is_lost(code) {
            return Error::new(kind, &error);
        }
        // Calls that wait for a lost device may not return, so none follow.
        let lost = format!("{error}; the device was lost, and can be used again in a new process");
        drop(device.lost.set(error));
        Error::new(kind, &lost)
    }

    /// Returns an error unless `code` means success.
    #[inline]
    pub(crate) fn check(&self, code: i32, what: &str, device: &ClDevice) -> Result<()> {
        if code == api::SUCCESS { Ok(()) } else { Err(self.error(code, what, device)) }
    }

    /// Waits until all work of all queues of a device has finished.
    pub(crate) fn finish(&self, device: &ClDevice) -> Result<()> {
        let Some(Ok(opened)) = device.opened.get() else { return Ok(()) };
        let queues: Vec<usize> = {
            let queues = opened.queues();
            for queue in queues.iter() {
                // SAFETY: queues in the list are alive.
                unsafe { (self.api.clRetainCommandQueue)(ptr::with_exposed_provenance_mut(*queue)) };
            }
            queues.clone()
        };
        let mut result = Ok(());
        for queue in queues {
            let queue = ptr::with_exposed_provenance_mut(queue);
            // SAFETY: retained above.
            let code = unsafe { (self.api.clFinish)(queue) };
            result = result.and(self.check(code, "wait for the work", device));
            // SAFETY: retained above, and not used any more.
            unsafe { (self.api.clReleaseCommandQueue)(queue) };
        }
        result
    }
}

impl ClDevice {
    /// Returns the context and the queues of the device. The first call creates them.
    pub(crate) fn opened(&self, api: &Api) -> Result<&Opened> {
        let opened = self.opened.get_or_init(|| with_signal_handlers(|| self.open(api)));
        opened
            .as_ref()
            .map_err(|reason| anyfn::error!("RuntimeError", "cannot use opencl:{}: {reason}", self.index))
    }

    fn open(&self, api: &Api) -> Result<Opened, String> {
        let mut code = 0;
        let properties = [api::CONTEXT_PLATFORM, self.platform.expose_provenance() as isize, 0];
        // SAFETY: the list ends with 0, and the device belongs to the platform.
        let context = unsafe {
            (api.clCreateContext)(
                properties.as_ptr(),
                1,
                &raw const self.id,
                ptr::null(),
                ptr::null(),
                &mut code,
            )
        };
        if code != api::SUCCESS {
            return Err(format!("clCreateContext returned {}", code_name(code)));
        }
        let opened = Opened { context, queue: ptr::null_mut(), queues: Mutex::default() };
        let queue = self
            .queue(api, &opened)
            .map_err(|code| format!("clCreateCommandQueue returned {}", code_name(code)))?;
        Ok(Opened { queue, ..opened })
    }

    /// Creates a queue, whose commands run in order and record when they ran.
    ///
    /// # Errors
    /// Returns the error code of OpenCL.
    pub(crate) fn queue(&self, api: &Api, opened: &Opened) -> Result<Raw, i32> {
        let mut code = 0;
        // SAFETY: the context is alive and was created for this device.
        let queue = unsafe {
            (api.clCreateCommandQueue)(opened.context, self.id, api::QUEUE_PROFILING_ENABLE, &mut code)
        };
        if code != api::SUCCESS {
            return Err(code);
        }
        opened.queues().push(queue.expose_provenance());
        Ok(queue)
    }

    /// Returns the queue of a stream.
    #[inline]
    pub(crate) fn queue_of(&self, api: &Api, stream: Handle) -> Result<Raw> {
        if stream == DEFAULT_STREAM { Ok(self.opened(api)?.queue) } else { Ok(stream) }
    }

    /// Returns events behind the commands of all queues; none if there is one queue, whose commands run in order. Returns `None` if the
    /// driver fails.
    pub(crate) fn markers(&self, api: &'static Api) -> Option<Vec<ClEvent>> {
        let queues = self.opened.get()?.as_ref().ok()?.queues();
        if queues.len() == 1 {
            return Some(Vec::new());
        }
        let marker = |queue: &usize| {
            let (queue, mut event) = (ptr::with_exposed_provenance_mut(*queue), ptr::null_mut());
            // SAFETY: queues in the list, which is locked, are alive; there is no wait list.
            let code = unsafe { (api.clEnqueueMarkerWithWaitList)(queue, 0, ptr::null(), &raw mut event) };
            (code == api::SUCCESS).then_some(ClEvent { event, api })
        };
        queues.iter().map(marker).collect()
    }

    /// Returns the account of the memory of the device, and the freed buffers that are kept.
    pub(crate) fn pool(&self) -> MutexGuard<'_, Pool<Block>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the device, its name and its driver as text for messages.
    pub(crate) fn describe(&self) -> String {
        format!("opencl:{} ({}, {})", self.index, self.name, self.driver)
    }

    /// Returns an answer of `clGetDeviceInfo`; `None` if the driver has none.
    pub(crate) fn info(&self, api: &Api, what: u32) -> Option<Vec<u8>> {
        device_info(api, self.id, what)
    }
}

impl Opened {
    fn queues(&self) -> MutexGuard<'_, Vec<usize>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a queue that is about to be released from the list of queues.
    pub(crate) fn forget_queue(&self, queue: Raw) {
        self.queues().retain(|known| *known != queue.addr());
    }
}

fn device_info(api: &Api, id: Raw, what: u32) -> Option<Vec<u8>> {
    // SAFETY: a device that the driver listed; `info` passes memory of the size that it passes.
    info(|size, value: *mut c_void, written| unsafe { (api.clGetDeviceInfo)(id, what, size, value, written) })
        .ok()
}

/// Lists the devices of all drivers: GPUs first, then other accelerators, then the rest, otherwise in the loader's order.
///
/// # Errors
/// Returns the reason why there are no devices.
fn list(api: &Api) -> Result<Vec<ClDevice>, String> {
    let library = &api.library;
    let mut count = 0;
    // SAFETY: asks for the number only.
    let code = unsafe { (api.clGetPlatformIDs)(0, ptr::null_mut(), &mut count) };
    if code == api::PLATFORM_NOT_FOUND || code == api::SUCCESS && count == 0 {
        return Err(format!("{library} is installed but found no driver of OpenCL; {}", vendors()));
    }
    if code != api::SUCCESS {
        return Err(format!("clGetPlatformIDs of {library} returned {}", code_name(code)));
    }
    let mut platforms = vec![ptr::null_mut(); count as usize];
    // SAFETY: there is room for `count` platforms.
    let code = unsafe { (api.clGetPlatformIDs)(count, platforms.as_mut_ptr(), &mut count) };
    if code != api::SUCCESS {
        return Err(format!("clGetPlatformIDs of {library} returned {}", code_name(code)));
    }
    platforms.truncate(count as usize);
    let mut found: Vec<(u64, ClDevice)> = Vec::new();
    let mut empty = Vec::new();
    for platform in platforms {
        let of = |what| {
            // SAFETY: a platform that the loader listed; `info` passes memory of the size that it passes.
            let answer = info(|size, value: *mut c_void, written| unsafe {
                (api.clGetPlatformInfo)(platform, what, size, value, written)
            });
            answer.map(|bytes| text(&bytes)).unwrap_or_default()
        };
        let driver = format!("{}, {}", of(api::PLATFORM_NAME), of(api::PLATFORM_VERSION));
        let ids = ids(api, platform);
        if ids.is_empty() {
            empty.push(driver.clone());
        }
        found.extend(ids.into_iter().map(|id| describe(api, platform, id, driver.clone())));
    }
    if found.is_empty() {
        return Err(format!("{library} found drivers but no device ({})", empty.join("; ")));
    }
    found.sort_by_key(|(kind, _)| match kind {
        kind if kind & api::DEVICE_TYPE_GPU != 0 => 0,
        kind if kind & api::DEVICE_TYPE_ACCELERATOR != 0 => 1,
        _ => 2,
    });
    Ok((0..).zip(found).map(|(index, (_, device))| ClDevice { index, ..device }).collect())
}

/// Returns the devices of a platform.
fn ids(api: &Api, platform: Raw) -> Vec<Raw> {
    let mut count = 0;
    // SAFETY: asks for the number only.
    let code = unsafe { (api.clGetDeviceIDs)(platform, api::DEVICE_TYPE_ALL, 0, ptr::null_mut(), &mut count) };
    if code != api::SUCCESS || count == 0 {
        return Vec::new();
    }
    let mut ids = vec![ptr::null_mut(); count as usize];
    // SAFETY: there is room for `count` devices.
    let code =
        unsafe { (api.clGetDeviceIDs)(platform, api::DEVICE_TYPE_ALL, count, ids.as_mut_ptr(), &mut count) };
    if code != api::SUCCESS {
        return Vec::new();
    }
    ids.truncate(count as usize);
    ids
}

/// Reads the kind and the limits of a device.
fn describe(api: &Api, platform: Raw, id: Raw, driver: String) -> (u64, ClDevice) {
    let of = |what| device_info(api, id, what).unwrap_or_default();
    let size = |what| usize::try_from(number(&of(what))).unwrap_or(usize::MAX);
    let words = of(api::DEVICE_MAX_WORK_ITEM_SIZES);
    let dimensions = words.chunks_exact(size_of::<usize>()).map(|word| number(word) as usize).collect();
    let limits = Limits {
        group: size(api::DEVICE_MAX_WORK_GROUP_SIZE),
        dimensions,
        local: number(&of(api::DEVICE_LOCAL_MEM_SIZE)),
        global: size(api::DEVICE_GLOBAL_MEM_SIZE),
        buffer: size(api::DEVICE_MAX_MEM_ALLOC_SIZE),
        arguments: size(api::DEVICE_MAX_PARAMETER_SIZE),
        alignment: (size(api::DEVICE_MEM_BASE_ADDR_ALIGN) / 8).max(1),
    };
    let pool = Mutex::new(Pool::new(limits.global, Pool::<Block>::limit_for(limits.global)));
    let device = ClDevice {
        index: 0,
        id,
        platform,
        driver,
        name: text(&of(api::DEVICE_NAME)),
        limits,
        pool,
        lost: OnceLock::new(),
        opened: OnceLock::new(),
    };
    (number(&of(api::DEVICE_TYPE)), device)
}

/// Describes the folder in which drivers of OpenCL are registered with the loader.
fn vendors() -> String {
    let folder = ["OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"].iter().find_map(|name| std::env::var(name).ok());
    let folder = folder.unwrap_or_else(|| "/etc/OpenCL/vendors".to_owned());
    match std::fs::read_dir(&folder) {
        Ok(files) => {
            let names: Vec<String> =
                files.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect();
            match names.is_empty() {
                true => format!("{folder} registers none"),
                false => format!("{folder} contains {}", names.join(", ")),
            }
        }
        Err(error) => format!("{folder}: {error}"),
    }
}
