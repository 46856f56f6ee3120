//! Registration of drivers that are in another library than the runtime, through a table of C functions.

use core::ffi::{c_int, c_void};
use std::sync::OnceLock;

use anyfn::__private::{catch, trampoline};
use anyfn::abi::{
    ANYFN_DEVICE_DRIVER_FOREIGN_STREAMS, ANYFN_DEVICE_DRIVER_VERSION, ANYFN_MEMORY_ADDRESS,
    ANYFN_MEMORY_HANDLE, ANYFN_MEMORY_HOST, AnyfnDeviceDriver, AnyfnDeviceWork, AnyfnMemoryStatistics,
    AnyfnTransfer, TVMFFIAny, TVMFFIByteArray,
};
use anyfn::{Any, Device, Error, OpaquePtr, PackedFunc, Result, TypedPackedFunc, registry};

use crate::clock::Clock;
use crate::driver::{Attribute, Driver, MemoryKind, MemoryLocation, Request, Transfer, Value};

/// Name of the global function that registers a driver.
const REGISTER: &str = "anyfn.register_device_driver";

/// Registers a driver with the runtime of the process, for a library that the runtime has loaded. The library stays mapped until the
/// process ends. Registering the same driver again has no effect.
///
/// A library calls it in a function that it exports:
///
/// ```
/// # use anyfn_loader as _;
/// # use anyfn_runtime as _;
/// use anyfn_runtime::device::null::Null;
///
/// static MINE: Null = Null::new(13);
///
/// anyfn::export! {
///     /// Registers the drivers of this library.
///     fn register_drivers() -> anyfn::Result<()> {
///         anyfn_driver::register(&MINE)
///     }
/// }
/// # register_drivers()?;
/// # assert!(anyfn_runtime::device::exists(anyfn::Device::new(13, 0)));
/// # Ok::<(), anyfn::Error>(())
/// ```
///
/// # Errors
/// Returns `RuntimeError` if the kind of devices has another driver, or if the runtime has another version of the interface; `ValueError` if
/// the device type is not from 1 to 63, or the runtime uses no drivers of other libraries.
pub fn register<T: Driver>(driver: &'static T) -> Result<()> {
    let table = table_of(driver);
    // SAFETY: looked up to be called here, with what it requires.
    let register = unsafe { registry::get_unsafe(REGISTER) }?;
    // SAFETY: the table lives for the call; the driver and the functions live until the process ends, see below.
    let address = unsafe { OpaquePtr::from_ptr((&raw const table).cast_mut().cast()) };
    register.call((address,))?;
    /// Object that keeps the library mapped: a library is not unmapped while an object that its code has created is alive.
    static KEEPER: OnceLock<PackedFunc> = OnceLock::new();
    KEEPER.get_or_init(|| TypedPackedFunc::from_fn(|| ()).into());
    Ok(())
}

/// Returns the table of a driver. Its functions call those of `T` directly.
pub(crate) fn table_of<T: Driver>(driver: &'static T) -> AnyfnDeviceDriver {
    AnyfnDeviceDriver {
        size: size_of::<AnyfnDeviceDriver>(),
        version: ANYFN_DEVICE_DRIVER_VERSION,
        device_type: driver.device_type(),
        memory_kind: match driver.memory_kind() {
            MemoryKind::Host => ANYFN_MEMORY_HOST,
            MemoryKind::Address => ANYFN_MEMORY_ADDRESS,
            MemoryKind::Handle => ANYFN_MEMORY_HANDLE,
        },
        flags: if driver.takes_foreign_streams() { ANYFN_DEVICE_DRIVER_FOREIGN_STREAMS } else { 0 },
        context: core::ptr::from_ref(driver).cast_mut().cast(),
        probe: Some(probe::<T>),
        attribute: Some(attribute::<T>),
        allocate: Some(allocate::<T>),
        allocate_zeroed: Some(allocate_zeroed::<T>),
        allocate_scope: Some(allocate_scope::<T>),
        free: Some(free::<T>),
        copy: Some(copy::<T>),
        create_stream: Some(create_stream::<T>),
        destroy_stream: Some(destroy_stream::<T>),
        synchronize_stream: Some(synchronize_stream::<T>),
        create_event: Some(create_event::<T>),
        destroy_event: Some(destroy_event::<T>),
        record_event: Some(record_event::<T>),
        wait_event: Some(wait_event::<T>),
        synchronize_event: Some(synchronize_event::<T>),
        elapsed_ns: Some(elapsed_ns::<T>),
        synchronize: Some(synchronize::<T>),
        owns: Some(owns::<T>),
        release_memory: Some(release_memory::<T>),
        memory_statistics: Some(memory_statistics::<T>),
        record_work: Some(record_work),
        take_work: Some(take_work::<T>),
    }
}

/// Returns the driver of a table.
///
/// # Safety
/// `context` must be that of [`table_of`] for the same `T`.
unsafe fn of<'a, T: 'a>(context: *mut c_void) -> &'a T {
    // SAFETY: `table_of` has stored a reference that is valid until the process ends.
    unsafe { &*context.cast::<T>() }
}

/// Calls `body`, which returns no error. A panic is printed.
fn quiet<R>(default: R, body: impl FnOnce() -> R) -> R {
    catch(|| Ok(body())).unwrap_or_else(|error| {
        eprintln!("anyfn: a device driver has panicked: {}", error.message());
        default
    })
}

unsafe extern "C" fn probe<T: Driver>(context: *mut c_void, index: i32) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    trampoline(|| driver.probe(index).map_err(|reason| Error::untraced("RuntimeError", &reason)))
}

unsafe extern "C" fn attribute<T: Driver>(
    context: *mut c_void,
    index: i32,
    attribute: i32,
    out: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    trampoline(|| {
        let known = usize::try_from(attribute).ok().and_then(|number| Attribute::ALL.get(number));
        let value = match known.and_then(|attribute| driver.attribute(index, *attribute)) {
            Some(Value::Int(number)) => Any::new(number)?,
            Some(Value::Text(text)) => Any::new(text)?,
            None => return Ok(()),
        };
        // SAFETY: the runtime passes a writable location that holds None.
        unsafe { out.write(value.into_raw()) };
        Ok(())
    })
}

/// Writes the result of a function. The runtime passes writable locations.
///
/// # Safety
/// `out` must be valid for writes.
unsafe fn give<R>(out: *mut R, result: Result<R>) -> Result<()> {
    let value = result?;
    // SAFETY: the caller guarantees the location.
    unsafe { out.write(value) };
    Ok(())
}

unsafe extern "C" fn allocate<T: Driver>(
    context: *mut c_void,
    index: i32,
    bytes: usize,
    alignment: usize,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    // SAFETY: the runtime passes a writable location.
    trampoline(|| unsafe { give(out, driver.allocate(index, Request { bytes, alignment })) })
}

unsafe extern "C" fn allocate_zeroed<T: Driver>(
    context: *mut c_void,
    index: i32,
    bytes: usize,
    alignment: usize,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    trampoline(|| {
        let data = driver.allocate_zeroed(index, Request { bytes, alignment })?;
        // SAFETY: the runtime passes a writable location.
        unsafe { give(out, Ok(data.unwrap_or(core::ptr::null_mut()))) }
    })
}

unsafe extern "C" fn allocate_scope<T: Driver>(
    context: *mut c_void,
    index: i32,
    bytes: usize,
    alignment: usize,
    scope: *const TVMFFIByteArray,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    trampoline(|| {
        // SAFETY: the runtime passes a string.
        let scope = unsafe { &*scope };
        // SAFETY: the bytes of the string live for the call.
        let scope = String::from_utf8_lossy(unsafe { scope.as_slice() });
        // SAFETY: the runtime passes a writable location.
        unsafe { give(out, driver.allocate_scope(index, Request { bytes, alignment }, &scope)) }
    })
}

unsafe extern "C" fn free<T: Driver>(
    context: *mut c_void,
    index: i32,
    data: *mut c_void,
    bytes: usize,
    alignment: usize,
) {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    // SAFETY: the runtime frees what it has allocated, once.
    quiet((), || unsafe { driver.free(index, data, Request { bytes, alignment }) });
}

unsafe extern "C" fn copy<T: Driver>(context: *mut c_void, transfer: *const AnyfnTransfer) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    // SAFETY: the runtime passes a description that lives for the call.
    let AnyfnTransfer { from, to, bytes, stream } = unsafe { *transfer };
    let [from, to] = [from, to].map(|location| MemoryLocation {
        device: Device(location.device),
        data: location.data,
        offset: location.offset,
    });
    // SAFETY: the runtime guarantees both locations.
    trampoline(|| unsafe { driver.copy(&Transfer { from, to, bytes, stream }) })
}

unsafe extern "C" fn create_stream<T: Driver>(
    context: *mut c_void,
    index: i32,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    // SAFETY: the runtime passes a writable location.
    trampoline(|| unsafe { give(out, driver.create_stream(index)) })
}

unsafe extern "C" fn destroy_stream<T: Driver>(context: *mut c_void, index: i32, stream: *mut c_void) {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    // SAFETY: the runtime destroys a stream that it has created, once.
    quiet((), || unsafe { driver.destroy_stream(index, stream) });
}

unsafe extern "C" fn synchronize_stream<T: Driver>(
    context: *mut c_void,
    index: i32,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    // SAFETY: the runtime passes a live stream of the device.
    trampoline(|| unsafe { driver.synchronize_stream(index, stream) })
}

unsafe extern "C" fn create_event<T: Driver>(context: *mut c_void, index: i32, out: *mut *mut c_void) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    // SAFETY: the runtime passes a writable location.
    trampoline(|| unsafe { give(out, driver.create_event(index)) })
}

unsafe extern "C" fn destroy_event<T: Driver>(context: *mut c_void, index: i32, event: *mut c_void) {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    // SAFETY: the runtime destroys an event that it has created, once.
    quiet((), || unsafe { driver.destroy_event(index, event) });
}

unsafe extern "C" fn record_event<T: Driver>(
    context: *mut c_void,
    index: i32,
    event: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    // SAFETY: the runtime passes a live event and a live stream of the device.
    trampoline(|| unsafe { driver.record_event(index, event, stream) })
}

unsafe extern "C" fn wait_event<T: Driver>(
    context: *mut c_void,
    index: i32,
    event: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    // SAFETY: the runtime passes a live event and a live stream of the device.
    trampoline(|| unsafe { driver.wait_event(index, event, stream) })
}

unsafe extern "C" fn synchronize_event<T: Driver>(
    context: *mut c_void,
    index: i32,
    event: *mut c_void,
) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    // SAFETY: the runtime passes a live event of the device.
    trampoline(|| unsafe { driver.synchronize_event(index, event) })
}

unsafe extern "C" fn elapsed_ns<T: Driver>(
    context: *mut c_void,
    index: i32,
    start: *mut c_void,
    end: *mut c_void,
    out: *mut u64,
) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    trampoline(|| {
        // SAFETY: the runtime passes live events of the device.
        let elapsed = unsafe { driver.elapsed_ns(index, start, end) };
        // SAFETY: the runtime passes a writable location.
        unsafe { give(out, elapsed) }
    })
}

unsafe extern "C" fn synchronize<T: Driver>(context: *mut c_void, index: i32) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    trampoline(|| driver.synchronize(index))
}

unsafe extern "C" fn owns<T: Driver>(context: *mut c_void, index: i32, data: *mut c_void) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    quiet(0, || c_int::from(driver.owns(index, data)))
}

unsafe extern "C" fn release_memory<T: Driver>(context: *mut c_void, index: i32) -> u64 {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    quiet(0, || driver.release_memory(index) as u64)
}

unsafe extern "C" fn memory_statistics<T: Driver>(
    context: *mut c_void,
    index: i32,
    out: *mut AnyfnMemoryStatistics,
) -> c_int {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    let Some(now) = quiet(None, || driver.memory_statistics(index)) else { return 0 };
    let (used, kept, limit) = (now.used as u64, now.kept as u64, now.limit as u64);
    let (allocated, reused) = (now.allocated, now.reused);
    // SAFETY: the runtime passes a writable location.
    unsafe { out.write(AnyfnMemoryStatistics { used, kept, limit, allocated, reused }) };
    1
}

/// Begins or ends the recording of work by all drivers of this library.
unsafe extern "C" fn record_work(_context: *mut c_void, is_recorded: c_int) {
    crate::record_work(is_recorded != 0);
}

unsafe extern "C" fn take_work<T: Driver>(
    context: *mut c_void,
    take: unsafe extern "C" fn(taker: *mut c_void, work: *const AnyfnDeviceWork),
    taker: *mut c_void,
) {
    // SAFETY: the runtime passes the context of the table.
    let driver = unsafe { of::<T>(context) };
    let clock = Clock::now();
    for work in quiet(Vec::new(), || driver.take_work()) {
        let work = AnyfnDeviceWork {
            device: work.device.0,
            stream: work.stream as u64,
            name: TVMFFIByteArray::from_slice(work.name.as_bytes()),
            start_ns: clock.to_ns(work.start),
            time_ns: u64::try_from(work.time.as_nanos()).unwrap_or(u64::MAX),
        };
        // SAFETY: the runtime passes this function with its argument. The name lives for the call.
        unsafe { take(taker, &raw const work) };
    }
}
