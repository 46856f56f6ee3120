//! The interface of a driver for one kind of device.

use core::ffi::c_void;

use anyfn::{Device, Result};

#[cfg(feature = "streams")]
use crate::{MemoryStatistics, Work};

/// Alignment of tensors and workspaces in bytes.
pub const ALIGNMENT: usize = 64;

/// Kind of device memory, distinguished by how the host can access it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Main memory: data pointers are addresses that the processor can read and write.
    Host,
    /// Device memory: data pointers are addresses on the device. Offsets can be added to them, but the host cannot
    /// dereference them.
    Address,
    /// Opaque memory: data pointers are handles. A location within the memory is a handle together with a separate
    /// offset.
    Handle,
}

/// Attribute of a device. The discriminants are the attribute numbers that the global function
/// `runtime.GetDeviceAttr` accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Attribute {
    /// Availability of the device: 1 if it is available, otherwise 0.
    Exists = 0,
    /// Maximum number of threads in a block (work group).
    MaxThreadsPerBlock = 1,
    /// Number of threads that execute in lockstep.
    WarpSize = 2,
    /// Maximum size, in bytes, of the memory that the threads of a block share.
    MaxSharedMemoryPerBlock = 3,
    /// Version of the device's instruction set, as a string.
    ComputeVersion = 4,
    /// Product name of the device, as a string.
    Name = 5,
    /// Maximum clock rate of the device in kHz.
    MaxClockRate = 6,
    /// Number of processors of the device (multiprocessors, compute units).
    ComputeUnits = 7,
    /// Maximum number of threads in each dimension of a block, as a string.
    MaxThreadDimensions = 8,
    /// Maximum number of registers available to a block of threads.
    MaxRegistersPerBlock = 9,
    /// Architecture of a ROCm GPU, as a string.
    GcnArchitecture = 10,
    /// Version of the programming interface that the vendor's device driver implements.
    ApiVersion = 11,
    /// Version of the vendor's device driver, as a string.
    DriverVersion = 12,
    /// Size of the device's second-level cache in bytes.
    L2CacheSize = 13,
    /// Total size of the device's memory in bytes.
    TotalMemory = 14,
    /// Size of the device memory that is currently free, in bytes.
    FreeMemory = 15,
    /// Alignment of the rows of an image in device memory, in elements.
    ImagePitchAlignment = 16,
}

impl Attribute {
    /// All attributes, in the order of their discriminants.
    pub const ALL: [Attribute; 17] = [
        Attribute::Exists,
        Attribute::MaxThreadsPerBlock,
        Attribute::WarpSize,
        Attribute::MaxSharedMemoryPerBlock,
        Attribute::ComputeVersion,
        Attribute::Name,
        Attribute::MaxClockRate,
        Attribute::ComputeUnits,
        Attribute::MaxThreadDimensions,
        Attribute::MaxRegistersPerBlock,
        Attribute::GcnArchitecture,
        Attribute::ApiVersion,
        Attribute::DriverVersion,
        Attribute::L2CacheSize,
        Attribute::TotalMemory,
        Attribute::FreeMemory,
        Attribute::ImagePitchAlignment,
    ];
}

/// Value of an attribute of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Integer value of a device attribute.
    Int(i64),
    /// String value of a device attribute.
    Text(String),
}

/// Size and alignment of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Size of the allocation in bytes, at least 1.
    pub bytes: usize,
    /// Alignment of the allocation in bytes, a power of two.
    pub alignment: usize,
}

/// A location in the memory of a device.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLocation {
    /// Device to whose memory the location belongs.
    pub device: Device,
    /// Address or handle of the memory, according to the [`MemoryKind`] of the device's driver.
    pub data: *mut c_void,
    /// Offset of the location from `data`, in bytes.
    pub offset: usize,
}

/// Description of a copy of bytes from one location to another.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Location from which bytes are copied.
    pub from: MemoryLocation,
    /// Location to which bytes are copied.
    pub to: MemoryLocation,
    /// Number of bytes to copy, at least 1.
    pub bytes: usize,
    /// Stream in which the copy is queued. [`DEFAULT_STREAM`] is allowed.
    pub stream: Handle,
}

/// Native handle of a stream or event, a value that the driver chooses. The handle NULL denotes the default stream.
pub type Handle = *mut c_void;

/// Handle of the default stream. Every device has a default stream, which receives work that is queued
/// without an explicit stream.
pub const DEFAULT_STREAM: Handle = core::ptr::null_mut();

/// A driver for one kind of device.
///
/// A driver trusts its caller: the runtime has checked that the device is available, that sizes and
/// ranges are valid, and that streams and events are alive and belong to the driver. A driver reports only errors that
/// the runtime cannot foresee. For an operation that it does not support it returns `NotImplementedError`, created by
/// [`unsupported`].
///
/// `anyfn_runtime::device::null` is the shortest driver, and a template for new ones.
///
/// # Safety
/// Safe code reads and writes the memory that a driver allocates, so an implementation must guarantee:
/// - `device_type` and `memory_kind` always return the same value.
/// - `allocate`, `allocate_zeroed` and `allocate_scope` return memory of at least `request.bytes` bytes that begins at
///   a multiple of `request.alignment`, belongs to the caller alone until `free`, and overlaps nothing else. For
///   [`MemoryKind::Host`], any thread can read and write the address, and `allocate_zeroed` has set every byte to 0.
///   For the other kinds the content is unspecified, but copying it to main memory yields initialised bytes.
/// - `copy` writes exactly `bytes` bytes at `to` and nothing else. A copy to main memory has finished once the stream
///   has been synchronized.
/// - Streams and events may be used and destroyed on any thread, by several threads at a time.
///
/// The runtime refuses NULL, addresses with a wrong alignment, and ranges that wrap around. The other requirements
/// cannot be checked.
///
/// ```compile_fail,E0200
/// struct Mine;
/// impl anyfn_driver::Driver for Mine {}
/// ```
pub unsafe trait Driver: Send + Sync {
    /// Returns the device type that the driver serves, one of the `kDL*` constants.
    fn device_type(&self) -> i32;

    /// Returns how the host can access the memory of the driver's devices. See [`MemoryKind`].
    fn memory_kind(&self) -> MemoryKind;

    /// Checks that the device with the given index is available. The runtime calls this often, so an implementation
    /// should cache the answer.
    ///
    /// # Errors
    /// Returns the reason why the device is not available. In the message it follows "device cuda:2 is not available:
    /// ", as does, for example, "there are only 2".
    fn probe(&self, index: i32) -> Result<(), String>;

    /// Returns an attribute of an available device; `None` if the driver does not provide it.
    fn attribute(&self, index: i32, attribute: Attribute) -> Option<Value>;

    /// Allocates memory on a device, with unspecified content.
    ///
    /// # Errors
    /// Returns `MemoryError` if the memory is not available.
    fn allocate(&self, index: i32, request: Request) -> Result<*mut c_void>;

    /// Allocates zeroed memory. Returns `None` if the driver cannot allocate and zero memory in one operation.
    ///
    /// # Errors
    /// Returns `MemoryError` if the memory is not available.
    fn allocate_zeroed(&self, _index: i32, _request: Request) -> Result<Option<*mut c_void>> {
        Ok(None)
    }

    /// Allocates memory in a memory scope, such as `global.texture`. A scope is a kind of memory of
    /// the device. [`Driver::free`] frees the memory.
    ///
    /// # Errors
    /// Returns `NotImplementedError` for a scope that the device does not have, `MemoryError` if the memory is not
    /// available.
    fn allocate_scope(&self, _index: i32, _request: Request, scope: &str) -> Result<*mut c_void> {
        unsupported(&format!("memory of scope {scope}"))
    }

    /// Frees memory on a device.
    ///
    /// # Safety
    /// `data` must have been allocated by this driver on the device `index` with the same `request`, and must not be
    /// used any more.
    unsafe fn free(&self, index: i32, data: *mut c_void, request: Request);

    /// Copies bytes between two locations. At least one of them is on a device of this driver. The other
    /// location is on a device of this driver or in main memory. The ranges may overlap.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    ///
    /// # Safety
    /// Both locations must be valid for `bytes` bytes until the copy has finished in its stream.
    unsafe fn copy(&self, transfer: &Transfer) -> Result<()>;

    /// Creates a stream. Work in a stream is executed in order, and independently of the work in other streams.
    ///
    /// # Errors
    /// Returns an error if the device has no (more) streams.
    fn create_stream(&self, index: i32) -> Result<Handle>;

    /// Destroys a stream after its work has finished.
    ///
    /// # Safety
    /// `stream` must come from `create_stream` of this device and must not be used any more.
    unsafe fn destroy_stream(&self, index: i32, stream: Handle);

    /// Waits until the work of a stream has finished.
    ///
    /// # Errors
    /// Returns an error if the work has failed.
    ///
    /// # Safety
    /// `stream` must be a live stream of this device, or the default one.
    unsafe fn synchronize_stream(&self, index: i32, stream: Handle) -> Result<()>;

    /// Returns true if the driver accepts native handles of streams that this runtime did not
    /// create, such as streams of another library that uses the same device.
    fn takes_foreign_streams(&self) -> bool {
        false
    }

    /// Creates an event, which marks a point in the work of a stream once it is recorded.
    ///
    /// # Errors
    /// Returns an error if the device has no (more) events.
    fn create_event(&self, index: i32) -> Result<Handle>;

    /// Destroys an event.
    ///
    /// # Safety
    /// `event` must come from `create_event` of this device and must not be used any more.
    unsafe fn destroy_event(&self, index: i32, event: Handle);

    /// Records an event in a stream, after all work that is queued in the stream so far.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    ///
    /// # Safety
    /// `event` must be a live event and `stream` a live stream of this device, or the default one.
    unsafe fn record_event(&self, index: i32, event: Handle, stream: Handle) -> Result<()>;

    /// Makes all work that is queued in `stream` after this call wait until the work before `event` has
    /// finished.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    ///
    /// # Safety
    /// `event` must be a live event and `stream` a live stream of this device, or the default one.
    unsafe fn wait_event(&self, index: i32, event: Handle, stream: Handle) -> Result<()>;

    /// Blocks the calling thread until the work before an event has finished.
    ///
    /// # Errors
    /// Returns an error if the work has failed.
    ///
    /// # Safety
    /// `event` must be a live event of this device.
    unsafe fn synchronize_event(&self, index: i32, event: Handle) -> Result<()>;

    /// Returns the time in nanoseconds from `start` to `end`. The work before both events must have finished.
    ///
    /// # Errors
    /// Returns an error if an event has not been recorded, or the device has no clock.
    ///
    /// # Safety
    /// `start` and `end` must be live events of this device.
    unsafe fn elapsed_ns(&self, index: i32, start: Handle, end: Handle) -> Result<u64>;

    /// Waits until all work of the device has finished.
    ///
    /// # Errors
    /// Returns an error if the work has failed.
    fn synchronize(&self, index: i32) -> Result<()>;

    /// Returns true if `data` is memory of the device `index` that this driver can use. For [`MemoryKind::Handle`], a driver must
    /// know its own handles, because those of other libraries have no meaning here.
    #[cfg(feature = "streams")]
    fn owns(&self, _index: i32, _data: *mut c_void) -> bool {
        true
    }

    /// Returns the memory of all freed blocks that the driver keeps for later allocations to the system, see
    /// [`Pool`](crate::Pool). Returns the number of bytes.
    #[cfg(feature = "streams")]
    fn release_memory(&self, _index: i32) -> usize {
        0
    }

    /// Returns statistics of the memory of an available device; `None` if the driver has none.
    #[cfg(feature = "streams")]
    fn memory_statistics(&self, _index: i32) -> Option<MemoryStatistics> {
        None
    }

    /// Waits for the work that was queued while [`is_work_recorded`](crate::is_work_recorded) was true, and returns it. Drivers of
    /// devices without a clock return nothing.
    #[cfg(feature = "streams")]
    fn take_work(&self) -> Vec<Work> {
        Vec::new()
    }
}

/// Returns `NotImplementedError` with the message `what`. Drivers use it for operations that they
/// do not support.
///
/// # Errors
/// Always returns `NotImplementedError`.
pub fn unsupported<T>(what: &str) -> Result<T> {
    Err(anyfn::Error::new("NotImplementedError", what))
}
