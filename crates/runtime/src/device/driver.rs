//! What a driver of one kind of devices provides.

use core::ffi::c_void;

use anyfn::{Device, Result};

/// Where and how the memory of a kind of devices can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Main memory: `data` is an address that the processor can read and write.
    Host,
    /// `data` is an address on the device; one may calculate with it but not follow it.
    Address,
    /// `data` is a handle; a place inside is told by an offset beside it.
    Handle,
}

/// What one can ask of a device. The numbers are those of `runtime.GetDeviceAttr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Attribute {
    /// Whether it is there: 0 or 1.
    Exists = 0,
    /// Most threads of a block (of a work group).
    MaxThreadsPerBlock = 1,
    /// Threads that run in step.
    WarpSize = 2,
    /// Bytes of memory that the threads of a block share.
    MaxSharedMemoryPerBlock = 3,
    /// Version of the instruction set, as text.
    ComputeVersion = 4,
    /// Name of the product, as text.
    Name = 5,
    /// Highest clock rate, in kHz.
    MaxClockRate = 6,
    /// Processors (multiprocessors, compute units) that it has.
    ComputeUnits = 7,
    /// Most threads of a block in each dimension, as text.
    MaxThreadDimensions = 8,
    /// Registers of a block.
    MaxRegistersPerBlock = 9,
    /// Architecture of a ROCm GPU, as text.
    GcnArchitecture = 10,
    /// Version of the interface to the driver.
    ApiVersion = 11,
    /// Version of the driver, as text.
    DriverVersion = 12,
    /// Bytes of the second-level cache.
    L2CacheSize = 13,
    /// Bytes of memory.
    TotalMemory = 14,
    /// Bytes of memory that are free at this moment.
    FreeMemory = 15,
    /// Alignment of the rows of images, in elements.
    ImagePitchAlignment = 16,
}

impl Attribute {
    /// All of them.
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

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Int(i64),
    /// A text.
    Text(String),
}

/// What an allocation is made and freed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// At least 1.
    pub bytes: usize,
    /// A power of two.
    pub alignment: usize,
}

/// A place in the memory of a device.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The device.
    pub device: Device,
    /// Address or handle, by the driver's [`MemoryKind`].
    pub data: *mut c_void,
    /// Bytes from there on.
    pub offset: usize,
}

/// One copy of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Where they are.
    pub from: Place,
    /// Where they go.
    pub to: Place,
    /// How many; at least 1.
    pub bytes: usize,
    /// The stream that the copy waits in; [`DEFAULT_STREAM`] is one of them.
    pub stream: Handle,
}

/// What a driver tells its streams and events apart by; NULL is the default stream.
pub type Handle = *mut c_void;

/// The stream that work goes to when none is named.
pub const DEFAULT_STREAM: Handle = core::ptr::null_mut();

/// A driver of one kind of devices.
///
/// It trusts its caller: the layer above (this module) has checked that the device exists, that sizes and ranges are right,
/// that streams and events are the driver's own and alive. A driver reports only what that layer cannot foresee. What it
/// cannot do at all is a `NotImplementedError`, made by [`unsupported`].
///
/// [`super::null`] is the shortest driver there is, and a template for others.
///
/// # Safety
/// Safe code reads and writes what a driver hands out, so an implementation promises:
/// - `device_type` and `memory_kind` always give the same answer.
/// - `allocate`, `allocate_zeroed` and `allocate_scope` give memory of at least `request.bytes` bytes that begins at a multiple
///   of `request.alignment`, belongs to the caller alone until `free`, and overlaps nothing else. Of [`MemoryKind::Host`] the
///   address can be read and written by any thread, and `allocate_zeroed` has set every byte to 0. Of the other kinds the
///   content may be anything, but copying it to main memory yields initialised bytes.
/// - `copy` writes exactly `bytes` bytes at `to` and nothing else; a copy to main memory is done once the stream has been
///   synchronized.
/// - Streams and events may be used and destroyed on any thread, several at a time.
///
/// NULL, an address of another alignment and a range that wraps around are refused above the drivers; the rest cannot be checked.
///
/// ```compile_fail,E0200
/// struct Mine;
/// impl anyfn_runtime::device::Driver for Mine {}
/// ```
pub unsafe trait Driver: Send + Sync {
    /// The kind of devices: one of the `kDL*` constants.
    fn device_type(&self) -> i32;

    /// How its memory can be reached.
    fn memory_kind(&self) -> MemoryKind;

    /// Finds out whether a device is there. Called often, so the answer should be at hand.
    ///
    /// # Errors
    /// Why it is not, as the second half of a sentence: "there are only 2".
    fn probe(&self, index: i32) -> Result<(), String>;

    /// An attribute of a device that is there; `None` if the driver does not know it.
    fn attribute(&self, index: i32, attribute: Attribute) -> Option<Value>;

    /// Allocates memory.
    ///
    /// # Errors
    /// `MemoryError` when it is short.
    fn allocate(&self, index: i32, request: Request) -> Result<*mut c_void>;

    /// Allocates memory of zeros, if that is possible in one go; `None` if not.
    ///
    /// # Errors
    /// `MemoryError` when it is short.
    fn allocate_zeroed(&self, _index: i32, _request: Request) -> Result<Option<*mut c_void>> {
        Ok(None)
    }

    /// Allocates memory of a scope, such as `global.texture`; the others are freed alike.
    ///
    /// # Errors
    /// `NotImplementedError` for a scope that the device has not, `MemoryError` when memory is short.
    fn allocate_scope(&self, _index: i32, _request: Request, scope: &str) -> Result<*mut c_void> {
        unsupported(&format!("memory of scope {scope}"))
    }

    /// Frees memory.
    ///
    /// # Safety
    /// `data` comes from an allocation with this request and is not used any more.
    unsafe fn free(&self, index: i32, data: *mut c_void, request: Request);

    /// Copies bytes. One of the places at least is on the driver's devices; the other one too, or in main memory. Places
    /// may overlap.
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Safety
    /// Both places are valid for as many bytes until the stream has passed the copy.
    unsafe fn copy(&self, transfer: &Transfer) -> Result<()>;

    /// Makes a stream: work in it runs in order, and independent of that in others.
    ///
    /// # Errors
    /// If the device has no (more) streams.
    fn create_stream(&self, index: i32) -> Result<Handle>;

    /// Gives a stream back, after its work.
    ///
    /// # Safety
    /// `stream` comes from `create_stream` of this device and is not used any more.
    unsafe fn destroy_stream(&self, index: i32, stream: Handle);

    /// Waits until the work of a stream is done.
    ///
    /// # Errors
    /// If the work has failed.
    ///
    /// # Safety
    /// `stream` is a live stream of this device, or the default one.
    unsafe fn synchronize_stream(&self, index: i32, stream: Handle) -> Result<()>;

    /// Whether a stream that nobody has made here may be one of another library on the same device.
    fn takes_foreign_streams(&self) -> bool {
        false
    }

    /// Makes an event: a mark in a stream.
    ///
    /// # Errors
    /// If the device has no (more) events.
    fn create_event(&self, index: i32) -> Result<Handle>;

    /// Gives an event back.
    ///
    /// # Safety
    /// `event` comes from `create_event` of this device and is not used any more.
    unsafe fn destroy_event(&self, index: i32, event: Handle);

    /// Puts the mark behind the work that is in the stream now.
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Safety
    /// `event` is a live event and `stream` a live stream of this device, or the default one.
    unsafe fn record_event(&self, index: i32, event: Handle, stream: Handle) -> Result<()>;

    /// Lets later work of a stream wait until the mark has been passed.
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Safety
    /// `event` is a live event and `stream` a live stream of this device, or the default one.
    unsafe fn wait_event(&self, index: i32, event: Handle, stream: Handle) -> Result<()>;

    /// Waits here until the mark has been passed.
    ///
    /// # Errors
    /// If the work has failed.
    ///
    /// # Safety
    /// `event` is a live event of this device.
    unsafe fn synchronize_event(&self, index: i32, event: Handle) -> Result<()>;

    /// Nanoseconds between the passing of two marks, which both are passed.
    ///
    /// # Errors
    /// If an event has not been recorded, or the device has no clock.
    ///
    /// # Safety
    /// `start` and `end` are live events of this device.
    unsafe fn elapsed_ns(&self, index: i32, start: Handle, end: Handle) -> Result<u64>;

    /// Waits until all work of the device is done.
    ///
    /// # Errors
    /// If the work has failed.
    fn synchronize(&self, index: i32) -> Result<()>;
}

/// What a driver answers to what it cannot do.
///
/// # Errors
/// Always: `NotImplementedError`.
pub fn unsupported<T>(what: &str) -> Result<T> {
    Err(anyfn::Error::new("NotImplementedError", what))
}
