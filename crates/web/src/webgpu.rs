//! Driver of WebGPU devices, which JavaScript code operates (`bindings/js/web/webgpu.js`).
//!
//! The memory of a device is a table of buffers, and data pointers are numbers in this table. WebGPU executes work in the order in which it
//! is queued and never blocks, so copies to a device are queued, and `synchronize` only submits the work. Copies to main memory cannot finish
//! during a call: JavaScript code awaits them.

use core::ffi::c_void;
use core::ptr;
use std::sync::OnceLock;

use anyfn::abi::{kDLCPU, kDLWebGPU};
use anyfn::{Any, PackedFunc, Result, bail, register};
use anyfn_host::runtime::device::{
    self, Attribute, Driver, Handle, MemoryKind, Request, Transfer, Value, unsupported,
};

/// Functions of the package that operate the devices.
struct Functions {
    /// Takes the index of a device. Returns the reason why the device is not available, or None.
    probe: PackedFunc,
    /// Takes the index of a device and the number of an attribute. Returns its value, or None.
    attribute: PackedFunc,
    /// Takes the index of a device, a number of bytes, and whether they are set to zero. Returns the number of a buffer.
    allocate: PackedFunc,
    /// Takes the index of a device and the number of a buffer.
    free: PackedFunc,
    /// Takes the index of a device, the number of a buffer, an offset, an address in main memory, and a number of bytes.
    write: PackedFunc,
    /// Takes the index of a device, number and offset of the source and of the target, and a number of bytes.
    copy: PackedFunc,
    /// Takes the index of a device, and submits its work.
    submit: PackedFunc,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

struct WebGpu;

static DRIVER: WebGpu = WebGpu;

/// Registers the driver of WebGPU devices. The arguments are the fields of `Functions`.
#[register("anyfn.web.webgpu_driver")]
fn set_driver(
    probe: PackedFunc,
    attribute: PackedFunc,
    allocate: PackedFunc,
    free: PackedFunc,
    write: PackedFunc,
    copy: PackedFunc,
    submit: PackedFunc,
) -> Result<()> {
    if FUNCTIONS.set(Functions { probe, attribute, allocate, free, write, copy, submit }).is_err() {
        bail!("RuntimeError", "the driver of WebGPU devices is already registered");
    }
    device::register(&DRIVER)
}

fn functions() -> Result<&'static Functions> {
    match FUNCTIONS.get() {
        Some(functions) => Ok(functions),
        None => bail!("RuntimeError", "the driver of WebGPU devices is not registered"),
    }
}

impl WebGpu {
    fn allocate_with(&self, index: i32, request: Request, is_zeroed: bool) -> Result<*mut c_void> {
        // The upper layer accepts any handle that is not NULL. Bindings of kernels have alignments of their own.
        let made = functions()?.allocate.call((index, request.bytes as i64, is_zeroed))?;
        Ok(ptr::without_provenance_mut(made.get::<usize>()?))
    }
}

// SAFETY: memory is identified by numbers that no code dereferences. The package hands a number out once until it is freed, checks all ranges,
// and sets new buffers to zero. There is one thread.
unsafe impl Driver for WebGpu {
    fn device_type(&self) -> i32 {
        kDLWebGPU
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Handle
    }

    fn probe(&self, index: i32) -> Result<(), String> {
        let reason =
            functions().and_then(|functions| functions.probe.call((index,))?.get::<Option<anyfn::String>>());
        match reason {
            Ok(None) => Ok(()),
            Ok(Some(reason)) => Err(reason.to_string()),
            Err(error) => Err(error.message().to_owned()),
        }
    }

    fn attribute(&self, index: i32, attribute: Attribute) -> Option<Value> {
        let value: Any = functions().ok()?.attribute.call((index, attribute as i64)).ok()?;
        match value.get::<i64>() {
            Ok(number) => Some(Value::Int(number)),
            Err(_) => value.get::<anyfn::String>().ok().map(|text| Value::Text(text.to_string())),
        }
    }

    fn allocate(&self, index: i32, request: Request) -> Result<*mut c_void> {
        self.allocate_with(index, request, false)
    }

    fn allocate_zeroed(&self, index: i32, request: Request) -> Result<Option<*mut c_void>> {
        self.allocate_with(index, request, true).map(Some)
    }

    unsafe fn free(&self, index: i32, data: *mut c_void, _request: Request) {
        // A device that was lost has no memory.
        let _ = functions().and_then(|functions| functions.free.call((index, data.addr() as i64)));
    }

    unsafe fn copy(&self, transfer: &Transfer) -> Result<()> {
        let Transfer { from, to, bytes, .. } = transfer;
        let (source, target, bytes) = (from.device.0, to.device.0, *bytes as i64);
        if target.device_type == kDLCPU {
            bail!(
                "RuntimeError",
                "the memory of {} cannot be read during a call, because WebGPU does not block; in JavaScript, `await x.to('cpu')` copies \
                 a tensor",
                from.device
            );
        }
        let place = (to.data.addr() as i64, to.offset as i64);
        if source.device_type == kDLCPU {
            let address = from.data.addr().wrapping_add(from.offset) as i64;
            return functions()?.write.call((target.device_id, place.0, place.1, address, bytes)).map(drop);
        }
        if source.device_id != target.device_id {
            return unsupported(&format!(
                "{} cannot be copied to {} directly; in JavaScript, copy the tensor by `(await x.to('cpu')).to('{}')`",
                from.device, to.device, to.device
            ));
        }
        let origin = (from.data.addr() as i64, from.offset as i64);
        functions()?.copy.call((source.device_id, origin.0, origin.1, place.0, place.1, bytes)).map(drop)
    }

    fn create_stream(&self, _index: i32) -> Result<Handle> {
        unsupported("a WebGPU device has one queue and no streams")
    }

    unsafe fn destroy_stream(&self, _index: i32, _stream: Handle) {}

    unsafe fn synchronize_stream(&self, _index: i32, _stream: Handle) -> Result<()> {
        // What was queued is executed in order, after the content of main memory was copied.
        Ok(())
    }

    fn create_event(&self, _index: i32) -> Result<Handle> {
        unsupported("WebGPU devices have no events")
    }

    unsafe fn destroy_event(&self, _index: i32, _event: Handle) {}

    unsafe fn record_event(&self, _index: i32, _event: Handle, _stream: Handle) -> Result<()> {
        unsupported("WebGPU devices have no events")
    }

    unsafe fn wait_event(&self, _index: i32, _event: Handle, _stream: Handle) -> Result<()> {
        unsupported("WebGPU devices have no events")
    }

    unsafe fn synchronize_event(&self, _index: i32, _event: Handle) -> Result<()> {
        unsupported("WebGPU devices have no events")
    }

    unsafe fn elapsed_ns(&self, _index: i32, _start: Handle, _end: Handle) -> Result<u64> {
        unsupported("WebGPU devices have no clock")
    }

    fn synchronize(&self, index: i32) -> Result<()> {
        functions()?.submit.call((index,)).map(drop)
    }
}
