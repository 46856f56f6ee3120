//! Drivers of other libraries, which the runtime uses through a table of C functions.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyfn::abi::{
    ANYFN_DEVICE_DRIVER_FOREIGN_STREAMS, ANYFN_DEVICE_DRIVER_VERSION, ANYFN_MEMORY_ADDRESS,
    ANYFN_MEMORY_HANDLE, ANYFN_MEMORY_HOST, AnyfnDeviceDriver, AnyfnDeviceWork, AnyfnMemoryLocation,
    AnyfnMemoryStatistics, AnyfnTransfer, TVMFFIByteArray,
};
use anyfn::{Any, Device, Error, OpaquePtr, Result, bail, register};
use anyfn_driver::Clock;

use super::registry;
use super::{
    Attribute, Driver, Handle, MemoryKind, MemoryLocation, MemoryStatistics, Request, Transfer, Value, Work,
    is_work_recorded, unsupported,
};

/// A driver of another library.
struct Foreign {
    table: AnyfnDeviceDriver,
    memory_kind: MemoryKind,
}

// SAFETY: the library promises functions that may be called on any thread. The address is only passed to them.
unsafe impl Send for Foreign {}
// SAFETY: the library promises functions that may be called by several threads at a time.
unsafe impl Sync for Foreign {}

/// The drivers of other libraries.
static FOREIGN: Mutex<Vec<&'static Foreign>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<&'static Foreign>> {
    FOREIGN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a device driver of another library. The argument is the address of an `AnyfnDeviceDriver`, which is copied. The library that
/// contains the functions of the driver stays mapped until the process ends. Registering the same driver again has no effect.
///
/// # Safety
/// The address must be NULL or that of such a struct, whose functions do what its documentation says, and stay valid with their context
/// until the process ends.
#[register("anyfn.register_device_driver", unsafe)]
unsafe fn register_device_driver(table: OpaquePtr) -> Result<()> {
    // SAFETY: the requirements are the same.
    let table = unsafe { read(table.as_ptr()) }?;
    let memory_kind = check(&table)?;
    let mut foreign = all();
    let code = |table: &AnyfnDeviceDriver| table.probe.map(|probe| probe as usize);
    let is_same = |known: &&'static Foreign| {
        let other = &known.table;
        other.device_type == table.device_type && other.context == table.context && code(other) == code(&table)
    };
    if foreign.iter().any(is_same) {
        return Ok(());
    }
    let driver: *mut Foreign = Box::into_raw(Box::new(Foreign { table, memory_kind }));
    // SAFETY: allocated above, and freed only if it is not registered.
    let shared: &'static Foreign = unsafe { &*driver };
    if let Err(error) = registry::register(shared) {
        // SAFETY: allocated above; the registry has not stored it.
        drop(unsafe { Box::from_raw(driver) });
        return Err(error);
    }
    foreign.push(shared);
    drop(foreign);
    pin(code(&table).unwrap_or_default());
    if is_work_recorded() {
        shared.record_work(true);
    }
    Ok(())
}

/// Copies the table of a driver.
///
/// # Safety
/// `table` must be NULL or the address of a struct that begins as `AnyfnDeviceDriver` does, and has the size that it states.
unsafe fn read(table: *mut c_void) -> Result<AnyfnDeviceDriver> {
    if table.is_null() {
        bail!("ValueError", "expected the table of a device driver but got NULL");
    }
    let needed = size_of::<AnyfnDeviceDriver>();
    // SAFETY: a table begins with its size.
    let size = unsafe { table.cast::<usize>().read() };
    // SAFETY: the version follows the size in every version of the struct.
    let version = unsafe { table.cast::<usize>().wrapping_add(1).cast::<u32>().read() };
    if version != ANYFN_DEVICE_DRIVER_VERSION || size < needed {
        bail!(
            "RuntimeError",
            "cannot register a device driver: its table has version {version} and {size} bytes, but this runtime needs version \
             {ANYFN_DEVICE_DRIVER_VERSION} and at least {needed} bytes; build the driver for this version of anyfn"
        );
    }
    // SAFETY: the table has at least this size.
    Ok(unsafe { table.cast::<AnyfnDeviceDriver>().read() })
}

/// Checks the table of a driver, and returns the kind of its memory.
fn check(table: &AnyfnDeviceDriver) -> Result<MemoryKind> {
    let functions = [
        ("probe", table.probe.is_some()),
        ("allocate", table.allocate.is_some()),
        ("free", table.free.is_some()),
        ("copy", table.copy.is_some()),
        ("create_stream", table.create_stream.is_some()),
        ("destroy_stream", table.destroy_stream.is_some()),
        ("synchronize_stream", table.synchronize_stream.is_some()),
        ("create_event", table.create_event.is_some()),
        ("destroy_event", table.destroy_event.is_some()),
        ("record_event", table.record_event.is_some()),
        ("wait_event", table.wait_event.is_some()),
        ("synchronize_event", table.synchronize_event.is_some()),
        ("elapsed_ns", table.elapsed_ns.is_some()),
        ("synchronize", table.synchronize.is_some()),
    ];
    if let Some((name, _)) = functions.iter().find(|(_, is_there)| !is_there) {
        bail!("ValueError", "cannot register a device driver: its function `{name}` is NULL");
    }
    match table.memory_kind {
        ANYFN_MEMORY_HOST => Ok(MemoryKind::Host),
        ANYFN_MEMORY_ADDRESS => Ok(MemoryKind::Address),
        ANYFN_MEMORY_HANDLE => Ok(MemoryKind::Handle),
        other => bail!(
            "ValueError",
            "cannot register a device driver: expected a memory kind from 0 to 2 but got {other}"
        ),
    }
}

/// Keeps the library mapped that contains the address `code`.
fn pin(code: usize) {
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: looks up an address; the location is writable.
    let found = unsafe { libc::dladdr(ptr::without_provenance(code), info.as_mut_ptr()) };
    // SAFETY: all bytes were zero or written by the call, which are valid values.
    let info = unsafe { info.assume_init() };
    if found != 0 && !info.dli_fname.is_null() {
        // The program itself cannot be found by its name, and is never unmapped.
        // SAFETY: the name of a mapped file; nothing is loaded, and the handle is not used.
        unsafe { libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    }
}

/// Begins or ends the recording of work by the drivers of other libraries.
#[cfg(feature = "profile")]
pub(super) fn record_work(is_recorded: bool) {
    let foreign = all().clone();
    foreign.iter().for_each(|driver| driver.record_work(is_recorded));
}

/// Calls a function that returns an error code.
macro_rules! call {
    ($self:ident.$name:ident($($arg:expr),*)) => {
        match $self.table.$name {
            Some(function) => {
                // SAFETY: the library promises a function of this type. The layer above has checked the arguments, and locations for
                // results are writable.
                match unsafe { function($self.table.context, $($arg),*) } {
                    0 => Ok(()),
                    _ => Err(Error::take_raised()),
                }
            }
            None => unsupported(concat!("the driver has no function `", stringify!($name), "`")),
        }
    };
}

/// Calls a function that returns no error.
macro_rules! tell {
    ($self:ident.$name:ident($($arg:expr),*) or $default:expr) => {
        match $self.table.$name {
            // SAFETY: the library promises a function of this type. The layer above has checked the arguments, and locations for results
            // are writable.
            Some(function) => unsafe { function($self.table.context, $($arg),*) },
            None => $default,
        }
    };
}

impl Foreign {
    fn record_work(&self, is_recorded: bool) {
        tell!(self.record_work(c_int::from(is_recorded)) or ());
    }
}

// SAFETY: the library promises what the trait requires.
unsafe impl Driver for Foreign {
    fn device_type(&self) -> i32 {
        self.table.device_type
    }

    fn memory_kind(&self) -> MemoryKind {
        self.memory_kind
    }

    fn probe(&self, index: i32) -> Result<(), String> {
        call!(self.probe(index)).map_err(|error: Error| error.message().to_owned())
    }

    fn attribute(&self, index: i32, attribute: Attribute) -> Option<Value> {
        self.table.attribute?;
        let mut out = Any::default().into_raw();
        let done: Result<()> = call!(self.attribute(index, attribute as i32, &raw mut out));
        // SAFETY: the driver has left None there, or written a value that belongs to the caller.
        let value = unsafe { Any::from_raw(out) };
        done.ok()?;
        match value.get::<i64>() {
            Ok(number) => Some(Value::Int(number)),
            Err(_) => value.get::<String>().ok().map(Value::Text),
        }
    }

    fn allocate(&self, index: i32, request: Request) -> Result<*mut c_void> {
        let mut data = ptr::null_mut();
        call!(self.allocate(index, request.bytes, request.alignment, &raw mut data))?;
        Ok(data)
    }

    fn allocate_zeroed(&self, index: i32, request: Request) -> Result<Option<*mut c_void>> {
        if self.table.allocate_zeroed.is_none() {
            return Ok(None);
        }
        let mut data: *mut c_void = ptr::null_mut();
        call!(self.allocate_zeroed(index, request.bytes, request.alignment, &raw mut data))?;
        Ok((!data.is_null()).then_some(data))
    }

    fn allocate_scope(&self, index: i32, request: Request, scope: &str) -> Result<*mut c_void> {
        if self.table.allocate_scope.is_none() {
            return unsupported(&format!("memory of scope {scope}"));
        }
        let scope = TVMFFIByteArray::from_slice(scope.as_bytes());
        let mut data = ptr::null_mut();
        call!(self.allocate_scope(index, request.bytes, request.alignment, &raw const scope, &raw mut data))?;
        Ok(data)
    }

    unsafe fn free(&self, index: i32, data: *mut c_void, request: Request) {
        tell!(self.free(index, data, request.bytes, request.alignment) or ());
    }

    unsafe fn copy(&self, transfer: &Transfer) -> Result<()> {
        let of = |place: &MemoryLocation| AnyfnMemoryLocation {
            device: place.device.0,
            data: place.data,
            offset: place.offset,
        };
        let transfer = AnyfnTransfer {
            from: of(&transfer.from),
            to: of(&transfer.to),
            bytes: transfer.bytes,
            stream: transfer.stream,
        };
        call!(self.copy(&raw const transfer))
    }

    fn create_stream(&self, index: i32) -> Result<Handle> {
        let mut stream = ptr::null_mut();
        call!(self.create_stream(index, &raw mut stream))?;
        if stream.is_null() {
            // NULL is the default stream, which the runtime would destroy with the new one.
            bail!("RuntimeError", "the driver has created a stream without a handle");
        }
        Ok(stream)
    }

    unsafe fn destroy_stream(&self, index: i32, stream: Handle) {
        tell!(self.destroy_stream(index, stream) or ());
    }

    unsafe fn synchronize_stream(&self, index: i32, stream: Handle) -> Result<()> {
        call!(self.synchronize_stream(index, stream))
    }

    fn takes_foreign_streams(&self) -> bool {
        self.table.flags & ANYFN_DEVICE_DRIVER_FOREIGN_STREAMS != 0
    }

    fn create_event(&self, index: i32) -> Result<Handle> {
        let mut event = ptr::null_mut();
        call!(self.create_event(index, &raw mut event))?;
        Ok(event)
    }

    unsafe fn destroy_event(&self, index: i32, event: Handle) {
        tell!(self.destroy_event(index, event) or ());
    }

    unsafe fn record_event(&self, index: i32, event: Handle, stream: Handle) -> Result<()> {
        call!(self.record_event(index, event, stream))
    }

    unsafe fn wait_event(&self, index: i32, event: Handle, stream: Handle) -> Result<()> {
        call!(self.wait_event(index, event, stream))
    }

    unsafe fn synchronize_event(&self, index: i32, event: Handle) -> Result<()> {
        call!(self.synchronize_event(index, event))
    }

    unsafe fn elapsed_ns(&self, index: i32, start: Handle, end: Handle) -> Result<u64> {
        let mut elapsed = 0;
        call!(self.elapsed_ns(index, start, end, &raw mut elapsed))?;
        Ok(elapsed)
    }

    fn synchronize(&self, index: i32) -> Result<()> {
        call!(self.synchronize(index))
    }

    fn owns(&self, index: i32, data: *mut c_void) -> bool {
        tell!(self.owns(index, data) or 1) != 0
    }

    fn release_memory(&self, index: i32) -> usize {
        usize::try_from(tell!(self.release_memory(index) or 0)).unwrap_or(usize::MAX)
    }

    fn memory_statistics(&self, index: i32) -> Option<MemoryStatistics> {
        let mut now = AnyfnMemoryStatistics { used: 0, kept: 0, limit: 0, allocated: 0, reused: 0 };
        if tell!(self.memory_statistics(index, &raw mut now) or 0) == 0 {
            return None;
        }
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let AnyfnMemoryStatistics { used, kept, limit, allocated, reused } = now;
        Some(MemoryStatistics { used: size(used), kept: size(kept), limit: size(limit), allocated, reused })
    }

    fn take_work(&self) -> Vec<Work> {
        let mut taken = Taken { clock: Clock::now(), work: Vec::new() };
        tell!(self.take_work(take, (&raw mut taken).cast()) or ());
        taken.work
    }
}

/// Work that a driver has passed.
struct Taken {
    clock: Clock,
    work: Vec<Work>,
}

/// Adds a kernel or a copy to a [`Taken`].
unsafe extern "C" fn take(taker: *mut c_void, work: *const AnyfnDeviceWork) {
    // SAFETY: `take_work` passes such a value, which nothing else uses during the call.
    let taken = unsafe { &mut *taker.cast::<Taken>() };
    // SAFETY: the driver passes a struct that lives for the call.
    let work = unsafe { &*work };
    // SAFETY: the name lives for the call.
    let name = String::from_utf8_lossy(unsafe { work.name.as_slice() }).into_owned();
    taken.work.push(Work {
        device: Device(work.device),
        stream: work.stream as usize,
        name,
        start: taken.clock.to_instant(work.start_ns),
        time: std::time::Duration::from_nanos(work.time_ns),
    });
}
