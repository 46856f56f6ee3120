//! Services that a server offers to every client: looking up functions, and allocating and copying
//! tensors. The services for files belong to the driver.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use anyfn::abi::{kDLCPU, kDLOpaqueHandle};
use anyfn::access::{Access, Mode, Region};
use anyfn::{
    Any, AnyView, DType, Device, Module, PackedFunc, Result, Shape, Tensor, TensorView, WeakRef, bail, registry,
};

use crate::code;
use crate::endpoint::{Endpoint, Service};
use crate::sink::Sink;
use crate::sync::Lock;
use crate::value::TensorInfo;

/// Maximum length of a function's name, in bytes.
const NAME_MAX: usize = 1024;

/// Number of bytes by which each tensor counts towards the memory limit, in addition to the size of its
/// elements.
const TENSOR: u64 = 512;

/// Permission that a client lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied<'a> {
    /// Permission to look up the global function of this name.
    Function(&'a str),
    /// Permission to use this device, such as `cpu:0`.
    Device(&'a str),
    /// Permission to upload libraries and to register functions, and therefore to run arbitrary
    /// code.
    Upload,
}

/// Permissions of a client. Everything that is not granted is denied.
pub trait Grants: Send + Sync {
    /// Returns true if the client may look up the global function called `name`.
    fn allows_function(&self, name: &str) -> bool;

    /// Returns true if the client may use a device, such as `cpu:0`. The default is true.
    fn allows_device(&self, _device: &str) -> bool {
        true
    }

    /// Returns true if the client may register global functions. Only clients that may run
    /// arbitrary code should be allowed to do so. The default is false.
    fn allows_registration(&self) -> bool {
        false
    }

    /// Describes how a permission is granted, for the error message that the client receives. The
    /// default is a general description that names no program.
    fn how_to_grant(&self, _denied: Denied<'_>) -> String {
        "it has to be granted where the server is started".into()
    }

    /// Returns the maximum total size in bytes of the tensors that the client allocates. The default is no limit.
    fn memory_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Records an event, such as a look-up or a refusal, and its subject, such as the name of a function. The default does nothing.
    fn audit(&self, _event: &str, _subject: &str) {}
}

/// Returns true if `name` matches one of `patterns`, which are names, or prefixes followed by `*`.
pub fn matches<S: AsRef<str>>(patterns: &[S], name: &str) -> bool {
    patterns.iter().map(AsRef::as_ref).any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    })
}

/// Permission to look up the global functions whose names match the patterns; see [`matches()`].
impl Grants for Vec<String> {
    fn allows_function(&self, name: &str) -> bool {
        matches(self, name)
    }
}

/// Services of one session, with their state. `G` decides what the client may do.
pub struct Services<G> {
    grants: G,
    /// Tensors that the client has allocated, each with the number of bytes by which it counts towards the
    /// memory limit.
    memory: Lock<Vec<(WeakRef, u64)>>,
}

impl<G: Grants> Services<G> {
    /// Creates the services of a session.
    pub fn new(grants: G) -> Services<G> {
        Services { grants, memory: Lock::new(Vec::new()) }
    }

    /// Returns the permissions of the client.
    pub fn grants(&self) -> &G {
        &self.grants
    }

    fn check_device(&self, device: Device) -> Result<()> {
        let name = device.to_string();
        if !self.grants.allows_device(&name) {
            self.grants.audit("denied", &name);
            let how = self.grants.how_to_grant(Denied::Device(&name));
            bail!("PermissionError", "this session may not use the device {name}: {how}");
        }
        Ok(())
    }

    fn global(&self, name: &str) -> Result<Any> {
        if name.len() > NAME_MAX {
            bail!("ValueError", "expected a function name of at most {NAME_MAX} bytes, got {}", name.len());
        }
        // Only clients that may call a function learn whether it exists.
        if !self.grants.allows_function(name) {
            self.grants.audit("denied", name);
            let how = self.grants.how_to_grant(Denied::Function(name));
            bail!("PermissionError", "this session may not call the function {name:?}: {how}");
        }
        self.grants.audit("get_function", name);
        let found = registry::get(name);
        if let Err(error) = &found
            && error.kind() == "PermissionError"
        {
            self.grants.audit("denied", name);
            bail!(
                "PermissionError",
                "no session may call the function {name:?}, which trusts the addresses that it receives"
            );
        }
        described(found.ok())
    }

    fn empty(&self, args: &[AnyView<'_>]) -> Result<Any> {
        let [shape, dtype, device] = args else { return wrong_args() };
        let (shape, dtype, device) = (shape.get::<Shape>()?, dtype.get::<DType>()?, device.get::<Device>()?);
        self.check_device(device)?;
        if dtype.0.code == kDLOpaqueHandle || dtype.0.bits == 0 || dtype.0.lanes == 0 {
            bail!(
                "ValueError",
                "cannot create a tensor of {dtype}: its elements have no meaning in another process"
            );
        }
        let info = TensorInfo { shape: shape.to_vec(), dtype, device };
        let bytes = (info.bytes()? as u64).saturating_add(TENSOR);
        let mut memory = self.memory.lock();
        memory.retain(|(tensor, _)| tensor.upgrade().is_some());
        let used: u64 = memory.iter().map(|(_, bytes)| bytes).sum();
        if used.saturating_add(bytes) > self.grants.memory_bytes() {
            bail!(
                "MemoryError",
                "cannot create a tensor of {bytes} bytes: the session uses {used} of its limit of {} (`memory_bytes`)",
                self.grants.memory_bytes()
            );
        }
        let tensor = registry::get("anyfn.tensor_zeros")?.call((shape, dtype, device))?;
        if let Some(object) = tensor.as_object() {
            memory.push((object.downgrade(), bytes));
        }
        Ok(tensor)
    }

    /// Checks that the buffer with which a measurement flushes the caches does not exceed the memory limit.
    fn check_flush(&self, args: &[AnyView<'_>]) -> Result<()> {
        let bytes = args.get(code::TIME_FLUSH).map_or(Ok(0), |bytes| bytes.get::<u64>())?;
        if bytes > self.grants.memory_bytes() {
            bail!(
                "MemoryError",
                "cannot write {bytes} bytes to empty the caches: the session may use {} bytes of memory (`memory_bytes`)",
                self.grants.memory_bytes()
            );
        }
        Ok(())
    }

    /// Registers a function from the client as a global function, so that uploaded code can call
    /// the function by name. All code in the process can call it, so only clients that may run
    /// arbitrary code can register functions.
    fn register(&self, args: &[AnyView<'_>]) -> Result<Any> {
        let [name, function, replace] = args else { return wrong_args() };
        let (name, replace) = (name.get::<&str>()?, replace.get::<bool>()?);
        if name.is_empty() || name.len() > NAME_MAX {
            bail!("ValueError", "expected a function name of 1 to {NAME_MAX} bytes, got {}", name.len());
        }
        if !self.grants.allows_registration() {
            self.grants.audit("denied", name);
            let how = self.grants.how_to_grant(Denied::Upload);
            bail!(
                "PermissionError",
                "this session may not register functions, which requires the permission to upload libraries: {how}"
            );
        }
        self.grants.audit("register", name);
        let registration = registry::register(name);
        let registration = if replace { registration.overriding() } else { registration };
        registration.set(&function.get::<PackedFunc>()?)?;
        Ok(Any::NONE)
    }
}

fn wrong_args<T>() -> Result<T> {
    bail!("TypeError", "the arguments of the request do not match the protocol")
}

/// Returns the reply to a request for a function: the function and its signature, each of which may be None.
fn described(function: Option<PackedFunc>) -> Result<Any> {
    let signature = function.as_ref().and_then(PackedFunc::signature);
    Any::new((function, signature))
}

/// Returns the local tensor to which a handle refers.
fn tensor(endpoint: &Endpoint, handle: u64) -> Result<Tensor> {
    let named = endpoint.named(handle)?;
    match named.object.get::<Tensor>() {
        Ok(tensor) => Ok(tensor),
        Err(_) => bail!("TypeError", "handle {handle:#x} is a {}, not a tensor", named.class.name()),
    }
}

/// Checks that a byte range lies within a tensor, and returns its offset and length.
fn part(tensor: &TensorView<'_>, first: u64, count: u64) -> Result<(usize, usize)> {
    let info = TensorInfo { shape: tensor.shape().to_vec(), dtype: tensor.dtype(), device: tensor.device() };
    let size = info.bytes()? as u64;
    match first.checked_add(count) {
        Some(end) if end <= size => Ok((first as usize, count as usize)),
        _ => bail!(
            "ValueError",
            "a range of {count} bytes at byte offset {first} exceeds a tensor of {size} bytes"
        ),
    }
}

/// Returns true if a tensor is compact and in host memory, so that its bytes can be sent and received
/// directly.
fn is_plain(tensor: &TensorView<'_>) -> bool {
    tensor.device().0.device_type == kDLCPU && tensor.is_contiguous()
}

fn object(endpoint: &Endpoint, handle: u64) -> Result<Any> {
    let named = endpoint.named(handle)?;
    if named.lent {
        bail!("ValueError", "a tensor that is borrowed for one call can only be read and written");
    }
    Ok(named.object)
}

impl<G: Grants> Service for Services<G> {
    fn call(&self, endpoint: &Arc<Endpoint>, id: u64, code: u16, args: &[AnyView<'_>]) -> Result<Any> {
        let handle = || args.first().map_or_else(wrong_args, |first| first.get::<u64>());
        let text = |at: usize| args.get(at).map_or_else(wrong_args, |text| text.get::<String>());
        match code {
            code::GLOBAL => self.global(&text(0)?),
            code::NAMES => {
                // Functions that trust addresses are left out: `find` does not return them.
                let granted =
                    |name: &String| self.grants.allows_function(name) && registry::find(name).is_some();
                let names = registry::list()?.into_iter().filter(granted);
                Any::new(names.collect::<Vec<_>>())
            }
            code::MODULE_FUNCTION => {
                let module = object(endpoint, handle()?)?.get::<Module>()?;
                described(module.find_function_with_imports(&text(1)?)?)
            }
            code::MODULE_NAMES => {
                Any::new(object(endpoint, handle()?)?.get::<Module>()?.function_names_with_imports()?)
            }
            code::EMPTY => self.empty(args),
            code::READ => {
                let [_, first, count] = args else { return wrong_args() };
                let tensor = tensor(endpoint, handle()?)?;
                let view = tensor.view();
                let (first, count) = part(&view, first.get::<u64>()?, count.get::<u64>()?)?;
                if is_plain(&view) {
                    if count > 0 {
                        let bytes = view.read_bytes()?;
                        let Some(bytes) = bytes.get(first..first + count) else { return wrong_args() };
                        endpoint.send_result_data(id, bytes)?;
                    }
                } else {
                    let all = registry::get("anyfn.tensor_to_bytes")?.call((&tensor,))?;
                    let Some(bytes) = all.get::<&[u8]>()?.get(first..first + count) else {
                        return wrong_args();
                    };
                    endpoint.send_result_data(id, bytes)?;
                }
                Ok(Any::NONE)
            }
            code::REGISTER => self.register(args),
            code::TIME => {
                let function = object(endpoint, handle()?)?;
                self.check_flush(args)?;
                let mut all = vec![function.as_view()];
                all.extend_from_slice(&args[1..]);
                if let Ok(device) = args.get(1).map_or_else(wrong_args, |device| device.get::<Device>()) {
                    self.check_device(device)?;
                }
                registry::get("anyfn.time_evaluator")?.call_views(&all)
            }
            code::TEXT => registry::get("ffi.ReprPrint")?.call((object(endpoint, handle()?)?,)),
            code::FIELD => {
                let object = object(endpoint, handle()?)?;
                let Some(object) = object.as_object() else { return wrong_args() };
                object.get_field(&text(1)?)
            }
            code::COPY => {
                let [_, to] = args else { return wrong_args() };
                let (from, to) = (tensor(endpoint, handle()?)?, tensor(endpoint, to.get::<u64>()?)?);
                registry::get("runtime.TVMTensorCopyFromTo")?.call((&from, &to))
            }
            code::SYNC | code::DEVICE_ATTRIBUTE => {
                let Some(device) = args.first() else { return wrong_args() };
                let device = device.get::<Device>()?;
                self.check_device(device)?;
                if code == code::SYNC {
                    return registry::get("anyfn.device_synchronize")?.call((device,));
                }
                let Some(kind) = args.get(1) else { return wrong_args() };
                let kind = kind.get::<i32>()?;
                registry::get("runtime.GetDeviceAttr")?.call((device.0.device_type, device.0.device_id, kind))
            }
            other => bail!("ValueError", "unknown service {other} in this version of the protocol"),
        }
    }

    fn upload(&self, endpoint: &Endpoint, code: u16, args: &[Any]) -> Result<Option<(Box<dyn Sink>, u64)>> {
        match (code, args) {
            (code::WRITE, [handle, first, count]) => {
                let tensor = tensor(endpoint, handle.get::<u64>()?)?;
                let (first, count) = part(&tensor.view(), first.get::<u64>()?, count.get::<u64>()?)?;
                if tensor.is_read_only() {
                    bail!("ValueError", "cannot write to a read-only tensor");
                }
                let sink = TensorSink { at: first, tensor, staged: Vec::new() };
                if !is_plain(&sink.tensor.view()) && !sink.is_whole(count)? {
                    bail!(
                        "ValueError",
                        "cannot write to part of a tensor that is not compact or not in host memory: write the whole tensor"
                    );
                }
                Ok(Some((Box::new(sink), count as u64)))
            }
            (code::WRITE, _) => wrong_args(),
            _ => Ok(None),
        }
    }
}

/// Maximum time in milliseconds that received bytes wait for calls that are using their destination tensor.
const SINK_WAIT_MS: u32 = 10_000;

/// Destination of an upload that writes to a tensor.
struct TensorSink {
    tensor: Tensor,
    at: usize,
    /// Buffer for a tensor that is not compact or not in host memory. It collects the received bytes, which
    /// are copied to the tensor when all have arrived.
    staged: Vec<u8>,
}

impl TensorSink {
    fn is_whole(&self, count: usize) -> Result<bool> {
        let view = self.tensor.view();
        let info = TensorInfo { shape: view.shape().to_vec(), dtype: view.dtype(), device: view.device() };
        Ok(info.bytes()? == count)
    }
}

impl Sink for TensorSink {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let view = self.tensor.view();
        if !is_plain(&view) {
            self.staged.extend_from_slice(bytes);
            return Ok(());
        }
        let to = view.data().cast::<u8>().wrapping_add(self.at);
        // This thread reads for all calls of the session: a call that uses the elements may be waiting for what it has to
        // read.
        let [_access] = Access::begin_within([(Region::host(to, bytes.len()), Mode::Write)], SINK_WAIT_MS)?;
        // SAFETY: the endpoint passes no more bytes than were announced, and `part` has checked that all of these lie within
        // the tensor. The access keeps all other users of the bytes away.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        self.at += bytes.len();
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Any> {
        if !is_plain(&self.tensor.view()) {
            return registry::get("anyfn.tensor_set_bytes")?.call((&self.tensor, &self.staged[..]));
        }
        Ok(Any::NONE)
    }
}
