//! The CUDA devices of the machine: a list of them, with the limits, the context and the streams of each device.

use core::ffi::c_char;
use core::ptr;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;

use anyfn::{Error, Result};
use anyfn_driver::Pool;
use anyfn_kernels::fork;

use crate::api::{self, Api, Raw};
use crate::block::Block;
use crate::context::Current;
use crate::event::CuEvent;
use crate::process::{FORKS, is_forked};

/// The opened driver and its devices.
pub(crate) struct System {
    pub(crate) api: Api,
    /// Version of the driver's interface, such as 12090 for CUDA 12.9.
    pub(crate) version: i32,
    devices: Vec<CuDevice>,
}

/// A CUDA device.
pub(crate) struct CuDevice {
    /// Number of the device: `cuda:<index>`.
    pub(crate) index: i32,
    id: i32,
    pub(crate) name: String,
    pub(crate) limits: Limits,
    pool: Mutex<Pool<Block>>,
    /// The error after which the context cannot be used any more.
    lost: OnceLock<String>,
    opened: OnceLock<Opened>,
}

/// Limits of a device.
pub(crate) struct Limits {
    /// Compute capability, such as (8, 0) for `sm_80`.
    pub(crate) capability: (i32, i32),
    /// Maximum number of threads of a block.
    pub(crate) threads: usize,
    /// Maximum number of threads of a block in each dimension.
    pub(crate) block: [usize; 3],
    /// Maximum number of blocks in each dimension.
    pub(crate) grid: [usize; 3],
    /// Bytes of memory that the threads of a block share.
    pub(crate) shared: usize,
    /// Bytes of device memory.
    pub(crate) memory: usize,
}

/// Context of a device that is in use, which is the device's primary one, as in other libraries.
pub(crate) struct Opened {
    context: Raw,
    /// Streams that the driver has created.
    streams: Mutex<Vec<usize>>,
    /// Streams of other libraries, each with an event behind its last kernel or copy of this runtime.
    foreign: Mutex<HashMap<(usize, Option<ThreadId>), CuEvent>>,
}

// SAFETY: the driver permits the use of contexts and streams on any thread, by several threads at a time.
unsafe impl Send for Opened {}
// SAFETY: several threads may use a context at a time, and the lists are locked.
unsafe impl Sync for Opened {}

/// Returns the devices of the machine. The first call opens the driver and lists them.
///
/// # Errors
/// Returns the reason why there are none.
pub(crate) fn system() -> Result<&'static System, String> {
    static SYSTEM: OnceLock<Result<System, String>> = OnceLock::new();
    if is_forked() {
        return Err(fork::reason("CUDA"));
    }
    let found = SYSTEM.get_or_init(|| {
        FORKS.watch();
        let api = Api::open()?;
        let (version, devices) = list(&api)?;
        Ok(System { api, version, devices })
    });
    found.as_ref().map_err(Clone::clone)
}

/// Returns a device.
///
/// # Errors
/// Returns the reason why it is not available.
pub(crate) fn device(index: i32) -> Result<(&'static System, &'static CuDevice), String> {
    let system = system()?;
    match known(index) {
        Some((_, device)) => match device.lost.get() {
            None => Ok((system, device)),
            Some(error) => Err(format!("it was lost ({error}); it can be used again in a new process")),
        },
        None => {
            let found: Vec<String> = system.devices.iter().map(|device| device.describe(system)).collect();
            Err(format!("{} found only {}", system.api.library, found.join(", ")))
        }
    }
}

/// Returns a device, even if it was lost; `None` if there is no such device.
pub(crate) fn known(index: i32) -> Option<(&'static System, &'static CuDevice)> {
    let system = system().ok()?;
    Some((system, system.devices.get(usize::try_from(index).ok()?)?))
}

/// Returns a device as [`device`] does, with an error in the words of the runtime.
pub(crate) fn available(index: i32) -> Result<(&'static System, &'static CuDevice)> {
    device(index)
        .map_err(|reason| anyfn::error!("RuntimeError", "device cuda:{index} is not available: {reason}"))
}

impl System {
    /// Returns all devices.
    pub(crate) fn devices(&self) -> &[CuDevice] {
        &self.devices
    }

    /// Returns the version of the driver as text, such as `12.9`.
    pub(crate) fn version_text(&self) -> String {
        format!("{}.{}", self.version / 1000, self.version % 1000 / 10)
    }

    /// Returns the error for a code that a function of the driver returned when it was to do `what` on `device`.
    #[cold]
    pub(crate) fn error(&self, code: i32, what: &str, device: &CuDevice) -> Error {
        let kind = if code == api::OUT_OF_MEMORY { "MemoryError" } else { "RuntimeError" };
        let error = format!("cannot {what} on cuda:{}: {}", device.index, self.api.code_name(code));
        if !api::is_lost(code) {
            return Error::new(kind, &error);
        }
        // Every later call in the context returns the same error.
        let lost = format!("{error}; the device was lost, and can be used again in a new process");
        drop(device.lost.set(error));
        Error::new(kind, &lost)
    }

    /// Returns an error unless `code` means success.
    #[inline]
    pub(crate) fn check(&self, code: i32, what: &str, device: &CuDevice) -> Result<()> {
        if code == api::SUCCESS { Ok(()) } else { Err(self.error(code, what, device)) }
    }
}

impl CuDevice {
    /// Returns the context and the streams of the device. The first call makes the primary context active.
    pub(crate) fn opened(&self, api: &Api) -> Result<&Opened> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let mut context = ptr::null_mut();
        // SAFETY: a device that the driver listed.
        match unsafe { (api.cuDevicePrimaryCtxRetain)(&raw mut context, self.id) } {
            // All threads get the same context.
            api::SUCCESS => Ok(self.opened.get_or_init(|| Opened {
                context,
                streams: Mutex::default(),
                foreign: Mutex::default(),
            })),
            // Not kept: another process may use up the memory of the device, or the whole device, for some time.
            code => Err(anyfn::error!(
                "RuntimeError",
                "cannot use cuda:{}: cuDevicePrimaryCtxRetain returned {}",
                self.index,
                api.code_name(code)
            )),
        }
    }

    /// Makes the context of the device the current one of this thread until the result is dropped.
    #[inline]
    pub(crate) fn enter(&self, system: &'static System) -> Result<Current> {
        let opened = self.opened(&system.api)?;
        Current::enter(&system.api, opened.context).map_err(|code| system.error(code, "use the context", self))
    }

    /// Returns the account of the memory of the device, and the freed blocks that are kept.
    pub(crate) fn pool(&self) -> MutexGuard<'_, Pool<Block>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of the device's architecture, such as `sm_80`.
    pub(crate) fn arch(&self) -> String {
        format!("sm_{}{}", self.limits.capability.0, self.limits.capability.1)
    }

    /// Returns the device, its name and its driver as text for messages.
    pub(crate) fn describe(&self, system: &System) -> String {
        format!(
            "cuda:{} ({}, {}, driver of CUDA {})",
            self.index,
            self.name,
            self.arch(),
            system.version_text()
        )
    }

    /// Returns an attribute of the device; `None` if the driver does not have it.
    pub(crate) fn attribute(&self, api: &Api, what: i32) -> Option<i32> {
        attribute(api, self.id, what)
    }

    /// Returns events behind the work of all streams; none if there is only the default stream, whose work runs in order. Returns `None`
    /// if the driver fails.
    pub(crate) fn markers(&self, system: &'static System) -> Option<Vec<CuEvent>> {
        let opened = self.opened.get()?;
        let (streams, foreign) = (opened.streams(), opened.foreign());
        if streams.is_empty() && foreign.is_empty() {
            return Some(Vec::new());
        }
        let record = |stream: usize| {
            let event = CuEvent::create(&system.api, opened.context, api::EVENT_DISABLE_TIMING).ok()?;
            event.record(ptr::with_exposed_provenance_mut(stream)).ok().map(|()| event)
        };
        let own: Option<Vec<CuEvent>> = streams.iter().copied().chain([0]).map(record).collect();
        let mut all = own?;
        all.extend(foreign.values().cloned());
        Some(all)
    }
}

impl Opened {
    pub(crate) fn context(&self) -> Raw {
        self.context
    }

    fn streams(&self) -> MutexGuard<'_, Vec<usize>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn foreign(&self) -> MutexGuard<'_, HashMap<(usize, Option<ThreadId>), CuEvent>> {
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a stream to the list of streams.
    pub(crate) fn add_stream(&self, stream: Raw) {
        self.streams().push(stream.expose_provenance());
    }

    /// Removes a stream that is about to be destroyed from the list.
    pub(crate) fn forget_stream(&self, stream: Raw) {
        self.streams().retain(|known| *known != stream.addr());
    }

    /// Returns true for a stream that this driver has not created, and that is not the default one.
    #[inline]
    pub(crate) fn is_foreign(&self, stream: Raw) -> bool {
        stream.addr() > api::STREAM_LEGACY && !self.streams().contains(&stream.addr())
    }

    /// Waits, at the first use of a foreign stream, for the work of the default stream: blocks of memory may have changed their user before
    /// that work has finished, as long as there was no other stream.
    ///
    /// # Errors
    /// Returns the error code of the driver.
    pub(crate) fn before_foreign(&self, api: &'static Api, stream: Raw) -> Result<(), i32> {
        // Locked until the stream is known: memory that is freed meanwhile would get no event, although its work may not have finished.
        let mut foreign = self.foreign();
        if foreign.contains_key(&key(stream)) {
            return Ok(());
        }
        // SAFETY: NULL is the default stream of the current context.
        let code = unsafe { (api.cuStreamSynchronize)(ptr::null_mut()) };
        if code != api::SUCCESS {
            return Err(code);
        }
        let event = self.marker(api)?;
        // A program that creates many streams keeps the events of the last ones only.
        if foreign.len() >= FOREIGN
            && let Some(oldest) = foreign.keys().next().copied()
            && let Some(event) = foreign.remove(&oldest)
        {
            event.wait()?;
        }
        foreign.insert(key(stream), event);
        Ok(())
    }

    /// Records that work was queued in a foreign stream.
    ///
    /// # Errors
    /// Returns the error code of the driver.
    pub(crate) fn after_foreign(&self, api: &'static Api, stream: Raw) -> Result<(), i32> {
        match self.foreign().entry(key(stream)) {
            Entry::Occupied(entry) => entry.get().record(stream),
            // Another thread has used many streams meanwhile.
            Entry::Vacant(entry) => entry.insert(self.marker(api)?).record(stream),
        }
    }

    fn marker(&self, api: &'static Api) -> Result<CuEvent, i32> {
        CuEvent::create(api, self.context, api::EVENT_DISABLE_TIMING)
    }
}

/// Maximum number of foreign streams that are remembered.
const FOREIGN: usize = 64;

/// Returns the key of a foreign stream. The handle `STREAM_PER_THREAD` denotes another stream on each thread, so its key contains the
/// thread.
fn key(stream: Raw) -> (usize, Option<ThreadId>) {
    let is_per_thread = stream.addr() == api::STREAM_PER_THREAD;
    (stream.addr(), is_per_thread.then(|| std::thread::current().id()))
}

fn attribute(api: &Api, id: i32, what: i32) -> Option<i32> {
    let mut value = 0;
    // SAFETY: a device that the driver listed.
    let code = unsafe { (api.cuDeviceGetAttribute)(&raw mut value, what, id) };
    (code == api::SUCCESS).then_some(value)
}

/// Initialises the driver. Returns its version and its devices.
///
/// # Errors
/// Returns the reason why there are no devices.
fn list(api: &Api) -> Result<(i32, Vec<CuDevice>), String> {
    let library = &api.library;
    let fail =
        |function: &str, code: i32| Err(format!("{function} of {library} returned {}", api.code_name(code)));
    // SAFETY: the flags must be 0.
    match unsafe { (api.cuInit)(0) } {
        api::SUCCESS => {}
        api::NO_DEVICE => return Err(format!("{library} is installed but found no CUDA device")),
        code => return fail("cuInit", code),
    }
    let (mut version, mut count) = (0, 0);
    // SAFETY: writes a number.
    let code = unsafe { (api.cuDriverGetVersion)(&raw mut version) };
    if code != api::SUCCESS {
        return fail("cuDriverGetVersion", code);
    }
    // SAFETY: writes a number.
    let code = unsafe { (api.cuDeviceGetCount)(&raw mut count) };
    if code != api::SUCCESS {
        return fail("cuDeviceGetCount", code);
    }
    if count == 0 {
        return Err(format!("{library} is installed but found no CUDA device"));
    }
    let mut devices = Vec::new();
    for index in 0..count {
        match describe(api, index) {
            Ok(device) => devices.push(device),
            Err((function, code)) => return fail(function, code),
        }
    }
    Ok((version, devices))
}

/// Reads the name and the limits of a device.
fn describe(api: &Api, index: i32) -> Result<CuDevice, (&'static str, i32)> {
    let mut id = 0;
    // SAFETY: writes a number.
    let code = unsafe { (api.cuDeviceGet)(&raw mut id, index) };
    if code != api::SUCCESS {
        return Err(("cuDeviceGet", code));
    }
    let mut name: [c_char; 256] = [0; 256];
    // SAFETY: the array has the size that is passed.
    let code = unsafe { (api.cuDeviceGetName)(name.as_mut_ptr(), name.len() as i32, id) };
    if code != api::SUCCESS {
        return Err(("cuDeviceGetName", code));
    }
    let mut memory = 0;
    // SAFETY: writes a number.
    let code = unsafe { (api.cuDeviceTotalMem_v2)(&raw mut memory, id) };
    if code != api::SUCCESS {
        return Err(("cuDeviceTotalMem", code));
    }
    let size = |what| attribute(api, id, what).and_then(|value| usize::try_from(value).ok()).unwrap_or(0);
    let sizes = |first| [size(first), size(first + 1), size(first + 2)];
    let number = |what| attribute(api, id, what).unwrap_or(0);
    let limits = Limits {
        capability: (number(api::COMPUTE_CAPABILITY_MAJOR), number(api::COMPUTE_CAPABILITY_MINOR)),
        threads: size(api::MAX_THREADS_PER_BLOCK),
        block: sizes(api::MAX_BLOCK_DIM_X),
        grid: sizes(api::MAX_GRID_DIM_X),
        shared: size(api::MAX_SHARED_MEMORY_PER_BLOCK),
        memory,
    };
    let name: Vec<u8> = name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    Ok(CuDevice {
        index,
        id,
        name: String::from_utf8_lossy(&name).into_owned(),
        limits,
        pool: Mutex::new(Pool::new(memory, Pool::<Block>::limit_for(memory))),
        lost: OnceLock::new(),
        opened: OnceLock::new(),
    })
}
