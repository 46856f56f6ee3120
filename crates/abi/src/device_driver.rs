//! The table of functions through which the runtime uses a device driver of another library.

use core::ffi::{c_int, c_void};

use crate::{DLDevice, TVMFFIAny, TVMFFIByteArray};

/// Version of [`AnyfnDeviceDriver`] that this header describes.
pub const ANYFN_DEVICE_DRIVER_VERSION: u32 = 1;

/// Memory of a device driver: addresses in main memory, which the processor can read and write.
pub const ANYFN_MEMORY_HOST: i32 = 0;
/// Memory of a device driver: addresses of the device, to which offsets can be added, but which the processor cannot access.
pub const ANYFN_MEMORY_ADDRESS: i32 = 1;
/// Memory of a device driver: handles. A location is a handle and an offset.
pub const ANYFN_MEMORY_HANDLE: i32 = 2;

/// Flag of a device driver: it accepts native handles of streams that other libraries have created.
pub const ANYFN_DEVICE_DRIVER_FOREIGN_STREAMS: u32 = 1;

/// A location in the memory of a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AnyfnMemoryLocation {
    /// Device to whose memory the location belongs.
    pub device: DLDevice,
    /// Address or handle of the memory.
    pub data: *mut c_void,
    /// Offset of the location from `data`, in bytes.
    pub offset: usize,
}

/// A copy of bytes between two locations. At least one of them is on a device of the driver that receives it; the other is on such a
/// device or in main memory. The ranges may overlap.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AnyfnTransfer {
    /// Location from which bytes are copied.
    pub from: AnyfnMemoryLocation,
    /// Location to which bytes are copied.
    pub to: AnyfnMemoryLocation,
    /// Number of bytes to copy, at least 1.
    pub bytes: usize,
    /// Stream in which the copy is queued; NULL is the default stream.
    pub stream: *mut c_void,
}

/// Statistics of the memory that a driver has allocated on a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AnyfnMemoryStatistics {
    /// Bytes of the blocks that are in use.
    pub used: u64,
    /// Bytes of the freed blocks that are kept for later allocations.
    pub kept: u64,
    /// Maximum of `kept`.
    pub limit: u64,
    /// Number of blocks that the driver has allocated so far.
    pub allocated: u64,
    /// Number of allocations so far that a kept block served.
    pub reused: u64,
}

/// A kernel or a copy that a device has executed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AnyfnDeviceWork {
    /// Device that executed it.
    pub device: DLDevice,
    /// Number that identifies the stream of the device.
    pub stream: u64,
    /// Name of the kernel, or description of the copy, in UTF-8.
    pub name: TVMFFIByteArray,
    /// Time at which the device began, on the clock `CLOCK_MONOTONIC` of the host, in nanoseconds.
    pub start_ns: u64,
    /// Time that it took, by the clock of the device, in nanoseconds.
    pub time_ns: u64,
}

/// A driver for the devices of one kind, in another library than the runtime. The function `anyfn.register_device_driver` registers it.
///
/// The first argument of each function is `context`. Functions that return `int` return 0 on success, and -1 after they have raised an
/// error (`TVMFFIErrorSetRaisedFromCStr`); they write results only on success. An operation that the driver does not support raises
/// `NotImplementedError`. The runtime checks its arguments before it calls the driver: the device with the index `index` is available,
/// sizes and ranges are valid, streams and events are alive and belong to the device. All functions may be called from any thread, by
/// several threads at a time, and let no exception propagate. Functions that may be NULL say so.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AnyfnDeviceDriver {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Version of this struct: `ANYFN_DEVICE_DRIVER_VERSION`.
    pub version: u32,
    /// Kind of the devices, one of `DLDeviceType`, from 1 to 63.
    pub device_type: i32,
    /// Kind of the memory, one of `ANYFN_MEMORY_*`.
    pub memory_kind: i32,
    /// Combination of `ANYFN_DEVICE_DRIVER_*`.
    pub flags: u32,
    /// Value that each function receives as its first argument.
    pub context: *mut c_void,
    /// Checks that a device is available. The runtime calls this function before each operation, so it should be fast. The message of
    /// the error is the reason why the device is not available, such as "there are only 2".
    pub probe: Option<unsafe extern "C" fn(context: *mut c_void, index: i32) -> c_int>,
    /// Writes an attribute of a device, an int or a string. The attributes are those of `runtime.GetDeviceAttr`. `*out` is None on entry,
    /// and remains so if the driver does not have the attribute. May be NULL if it has none.
    pub attribute: Option<
        unsafe extern "C" fn(context: *mut c_void, index: i32, attribute: i32, out: *mut TVMFFIAny) -> c_int,
    >,
    /// Allocates memory with unspecified content, which must be readable: at least `bytes` bytes from a multiple of `alignment`, a power
    /// of two, on. `bytes` is at least 1.
    pub allocate: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            index: i32,
            bytes: usize,
            alignment: usize,
            out: *mut *mut c_void,
        ) -> c_int,
    >,
    /// Allocates memory whose bytes are zero. `*out` is NULL on entry, and remains so if this is not possible in one operation. May be NULL.
    pub allocate_zeroed: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            index: i32,
            bytes: usize,
            alignment: usize,
            out: *mut *mut c_void,
        ) -> c_int,
    >,
    /// Allocates memory in a scope, such as `global.texture`. May be NULL if there are no scopes.
    pub allocate_scope: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            index: i32,
            bytes: usize,
            alignment: usize,
            scope: *const TVMFFIByteArray,
            out: *mut *mut c_void,
        ) -> c_int,
    >,
    /// Frees memory that was allocated on this device with the same number of bytes and alignment.
    pub free: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            index: i32,
            data: *mut c_void,
            bytes: usize,
            alignment: usize,
        ),
    >,
    /// Copies bytes. The runtime synchronizes the stream after a copy to or from main memory.
    pub copy: Option<unsafe extern "C" fn(context: *mut c_void, transfer: *const AnyfnTransfer) -> c_int>,
    /// Creates a stream, whose work is executed in order and independently of other streams. Its handle is not NULL.
    pub create_stream:
        Option<unsafe extern "C" fn(context: *mut c_void, index: i32, out: *mut *mut c_void) -> c_int>,
    /// Destroys a stream after its work has finished.
    pub destroy_stream: Option<unsafe extern "C" fn(context: *mut c_void, index: i32, stream: *mut c_void)>,
    /// Waits until the work of a stream has finished. NULL is the default stream, here and below.
    pub synchronize_stream:
        Option<unsafe extern "C" fn(context: *mut c_void, index: i32, stream: *mut c_void) -> c_int>,
    /// Creates an event, which marks a point in the work of a stream.
    pub create_event:
        Option<unsafe extern "C" fn(context: *mut c_void, index: i32, out: *mut *mut c_void) -> c_int>,
    /// Destroys an event.
    pub destroy_event: Option<unsafe extern "C" fn(context: *mut c_void, index: i32, event: *mut c_void)>,
    /// Records an event in a stream, after all work that is queued there so far.
    pub record_event: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            index: i32,
            event: *mut c_void,
            stream: *mut c_void,
        ) -> c_int,
    >,
    /// Makes the work that is queued in a stream after this call wait for the work before an event.
    pub wait_event: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            index: i32,
            event: *mut c_void,
            stream: *mut c_void,
        ) -> c_int,
    >,
    /// Blocks the calling thread until the work before an event has finished.
    pub synchronize_event:
        Option<unsafe extern "C" fn(context: *mut c_void, index: i32, event: *mut c_void) -> c_int>,
    /// Writes the nanoseconds from one event to another. The work before both has finished.
    pub elapsed_ns: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            index: i32,
            start: *mut c_void,
            end: *mut c_void,
            out: *mut u64,
        ) -> c_int,
    >,
    /// Waits until all work of a device has finished.
    pub synchronize: Option<unsafe extern "C" fn(context: *mut c_void, index: i32) -> c_int>,
    /// Returns 1 if `data` is memory of the device that this driver can use, otherwise 0. May be NULL if all addresses are.
    pub owns: Option<unsafe extern "C" fn(context: *mut c_void, index: i32, data: *mut c_void) -> c_int>,
    /// Returns the freed memory that the driver keeps to the system, and the number of its bytes. May be NULL.
    pub release_memory: Option<unsafe extern "C" fn(context: *mut c_void, index: i32) -> u64>,
    /// Writes statistics of the memory of a device and returns 1, or returns 0 if there are none. May be NULL.
    pub memory_statistics: Option<
        unsafe extern "C" fn(context: *mut c_void, index: i32, out: *mut AnyfnMemoryStatistics) -> c_int,
    >,
    /// Begins (1) or ends (0) the recording of work, for the timeline of a profile. May be NULL.
    pub record_work: Option<unsafe extern "C" fn(context: *mut c_void, is_recorded: c_int)>,
    /// Waits for the work that was queued while work was recorded, and passes each kernel and copy to `take`, with `taker` as its first
    /// argument. May be NULL.
    pub take_work: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            take: unsafe extern "C" fn(taker: *mut c_void, work: *const AnyfnDeviceWork),
            taker: *mut c_void,
        ),
    >,
}
