//! Proxies: local objects that represent functions, modules, tensors and other objects of the peer.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use anyfn::{
    Any, Args, DType, Device, IntoArgs, Module, ModuleKind, Object, ObjectRef, PackedFunc, Ref, Result, Shape,
    String, TensorRead, TensorView, bail, methods,
};

use crate::code;
use crate::endpoint::{Endpoint, PendingCall, Proxies, Target, Transfer};
use crate::sync::{Guard, Lock};
use crate::value::{Class, Given, TensorInfo};

/// Functions that create and recognise the proxies of all sessions.
pub(crate) const FUNCTIONS: Proxies = Proxies { create: proxy, find: stands_for, describe: described };

/// Size in bytes from which the release of a remote tensor is sent immediately instead of with the next
/// message.
const LARGE: usize = 1 << 20;

/// Endpoint and handle of each proxy in this process, keyed by the address of the proxy.
static PROXIES: Lock<BTreeMap<usize, (Weak<Endpoint>, u64)>> = Lock::new(BTreeMap::new());

fn proxies() -> Guard<'static, BTreeMap<usize, (Weak<Endpoint>, u64)>> {
    PROXIES.lock()
}

/// Returns the endpoint and the handle of a proxy, or `None` if `object` is not a proxy.
pub fn stands_for(object: &ObjectRef) -> Option<(Arc<Endpoint>, u64)> {
    let (endpoint, number) = proxies().get(&object.as_handle().addr())?.clone();
    Some((endpoint.upgrade()?, number))
}

fn add_proxy(object: &ObjectRef, endpoint: &Arc<Endpoint>, number: u64) -> usize {
    let address = object.as_handle().addr();
    proxies().insert(address, (Arc::downgrade(endpoint), number));
    address
}

/// Handle that refers to an object of the peer. Dropping this value releases the handle.
pub(crate) struct Handle {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) number: u64,
    /// Address of the proxy; 0 until the proxy has been created.
    address: AtomicUsize,
    large: bool,
}

impl Handle {
    fn new(endpoint: &Arc<Endpoint>, number: u64, large: bool) -> Handle {
        Handle { endpoint: endpoint.clone(), number, address: AtomicUsize::new(0), large }
    }

    fn stands_at(&self, object: &ObjectRef) {
        self.address.store(add_proxy(object, &self.endpoint, self.number), Ordering::Relaxed);
    }

    /// Calls a service of the peer with this handle as the first argument.
    pub(crate) fn ask(&self, code: u16, args: impl anyfn::IntoArgs) -> Result<Any> {
        args.with_views(|views| {
            let number = Any::new(self.number)?;
            let all: Vec<_> = core::iter::once(number.as_view()).chain(views.iter().copied()).collect();
            self.endpoint.call(&Target::Service(code), &all)
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        proxies().remove(self.address.get_mut());
        self.endpoint.release(self.number, 1, self.large);
    }
}

/// Tensor in the memory of the peer. It can be an argument of the peer's functions, and has methods
/// that copy elements between this tensor and other tensors.
#[derive(Object)]
#[object(key = "rpc.Tensor", init = false, final)]
pub struct RemoteTensor {
    /// Extents of the tensor's dimensions.
    pub shape: Shape,
    /// Data type of the tensor's elements.
    pub dtype: DType,
    /// Device that holds the tensor's memory, in the peer's device numbering.
    pub device: Device,
    /// Total size of the tensor's elements, in bytes.
    pub nbytes: i64,
    #[field(skip)]
    pub(crate) handle: Arc<Handle>,
}

/// Object of the peer that cannot be sent by value. Its fields are read through the session.
#[derive(Object)]
#[object(key = "rpc.Object", init = false, final)]
pub struct RemoteObject {
    /// Type key of the peer's object.
    pub type_key: String,
    #[field(skip)]
    pub(crate) handle: Arc<Handle>,
}

#[methods]
impl RemoteObject {
    /// Returns the value of the field called `field`.
    #[blocking]
    fn get(&self, field: &str) -> Result<Any> {
        self.handle.ask(code::FIELD, (field,))
    }

    /// Returns the string representation of the object, which the peer produces.
    #[blocking]
    fn text(&self) -> Result<Any> {
        self.handle.ask(code::TEXT, ())
    }
}

#[methods]
impl RemoteTensor {
    /// Copies the elements of `from`, another remote tensor of the same session, into this tensor.
    #[blocking]
    pub fn assign(&self, from: Ref<RemoteTensor>) -> Result<()> {
        if !Arc::ptr_eq(&from.handle.endpoint, &self.handle.endpoint) {
            bail!("ValueError", "the tensor to copy from belongs to another session");
        }
        from.handle.ask(code::COPY, (self.handle.number,)).map(drop)
    }

    /// Copies the elements of a local tensor of the same shape and data type into this tensor.
    /// `progress` is called with the number of bytes sent so far and in total.
    #[blocking]
    pub fn write(
        &self,
        #[read_only] from: TensorView<'_>,
        #[default(None)] progress: Option<PackedFunc>,
    ) -> Result<()> {
        self.check(&from)?;
        let bytes = Bytes::of(&from)?;
        let bytes = bytes.get()?;
        let args = (self.handle.number, 0_u64, bytes.len());
        let transfer = Transfer { bytes, into: None, progress: progress.as_ref() };
        let write = Target::Service(code::WRITE);
        args.with_views(|views| self.handle.endpoint.transfer(&write, views, transfer)).map(drop)
    }

    /// Copies this tensor's elements into a local tensor of the same shape and data type, which must be
    /// compact and in host memory. `progress` is called with the number of bytes received so far and in
    /// total.
    #[blocking]
    pub fn read(&self, to: TensorView<'_>, #[default(None)] progress: Option<PackedFunc>) -> Result<()> {
        self.check(&to)?;
        // Held until all bytes have arrived: `progress` and calls that arrive meanwhile cannot use the elements.
        let mut written = to.write_bytes()?;
        let length = usize::try_from(self.nbytes).unwrap_or(0);
        if written.len() != length {
            bail!("ValueError", "expected a tensor of {length} bytes but got {}", written.len());
        }
        let transfer = Transfer { bytes: &[], into: Some(&mut written), progress: progress.as_ref() };
        let (read, args) = (Target::Service(code::READ), (self.handle.number, 0_u64, length));
        args.with_views(|views| self.handle.endpoint.transfer(&read, views, transfer)).map(drop)
    }
}

impl RemoteTensor {
    /// Starts to copy `bytes`, the tensor's elements in row-major order without gaps, into this
    /// tensor. The result is None.
    ///
    /// # Errors
    /// Returns `ValueError` if `bytes` are not all elements, and `ConnectionError` if the session has ended.
    pub fn start_write(&self, bytes: &[u8]) -> Result<PendingCall> {
        if bytes.len() as i64 != self.nbytes {
            bail!("ValueError", "expected the {} bytes of the tensor, got {}", self.nbytes, bytes.len());
        }
        let args = (self.handle.number, 0_u64, bytes.len());
        self.handle.endpoint.start_service(code::WRITE, args, bytes, None)
    }

    /// Starts to read the elements of this tensor. The result is the bytes of the elements in
    /// row-major order without gaps.
    ///
    /// # Errors
    /// Returns `ConnectionError` if the session has ended.
    pub fn start_read(&self) -> Result<PendingCall> {
        let length = usize::try_from(self.nbytes).unwrap_or(0);
        let args = (self.handle.number, 0_u64, length);
        self.handle.endpoint.start_service(code::READ, args, &[], Some(length))
    }

    fn check(&self, here: &TensorView<'_>) -> Result<()> {
        if self.shape[..] != *here.shape() || self.dtype != here.dtype() {
            bail!(
                "ValueError",
                "expected a tensor of {} with shape {:?} but got one of {} with {:?}",
                self.dtype,
                &self.shape[..],
                here.dtype(),
                here.shape()
            );
        }
        Ok(())
    }
}

struct RemoteModule {
    handle: Arc<Handle>,
}

impl ModuleKind for RemoteModule {
    fn kind(&self) -> &str {
        "rpc"
    }

    fn get_function(self: &Arc<Self>, name: &str) -> Result<Option<PackedFunc>> {
        described(&self.handle.endpoint, &self.handle.ask(code::MODULE_FUNCTION, (name,))?)
    }

    fn functions(&self) -> Vec<alloc::string::String> {
        // Without a endpoint, the module has no functions that can be called.
        let names = self.handle.ask(code::MODULE_NAMES, ());
        names.and_then(|names| names.get::<Vec<alloc::string::String>>()).unwrap_or_default()
    }
}

/// Creates a proxy for the peer's object to which a received handle refers.
pub(crate) fn proxy(endpoint: &Arc<Endpoint>, given: Given) -> Result<Any> {
    let large = given.tensor.as_ref().is_some_and(|tensor| tensor.bytes().is_ok_and(|bytes| bytes >= LARGE));
    let handle = Arc::new(Handle::new(endpoint, given.handle, large));
    let (value, object) = match (given.class, given.tensor) {
        (Class::Function, _) => {
            let function = function(&handle);
            (Any::new(function.clone())?, function.into_object())
        }
        (Class::Module, _) => {
            let module = Module::new(RemoteModule { handle: handle.clone() })?;
            (Any::new(module.clone())?, module.into_object())
        }
        (Class::Tensor, Some(tensor)) => {
            let nbytes = i64::try_from(tensor.bytes()?).unwrap_or(i64::MAX);
            let TensorInfo { shape, dtype, device } = tensor;
            let shape = Shape::from(&shape[..]);
            let tensor = Ref::new(RemoteTensor { shape, dtype, device, nbytes, handle: handle.clone() });
            (Any::new(tensor.clone())?, tensor.into_object())
        }
        _ => {
            let type_key = String::from(&*given.type_key);
            let object = Ref::new(RemoteObject { type_key, handle: handle.clone() });
            (Any::new(object.clone())?, object.into_object())
        }
    };
    handle.stands_at(&object);
    Ok(value)
}

/// Creates a local function that calls the peer's function to which `handle` refers.
fn function(handle: &Arc<Handle>) -> PackedFunc {
    const SIGNATURE: &str = r#"{"type_schema":"{\"type\":\"ffi.Function\"}"}"#;
    let handle = handle.clone();
    let body = move |args: Args<'_>| handle.endpoint.call(&Target::Handle(handle.number), args.as_slice());
    PackedFunc::described_blocking(body, || SIGNATURE.into())
}

/// Proxy for a remote function, with the function's signature. It wraps a proxy that has no signature, and uses the
/// handle of that proxy.
struct Alias {
    /// Wrapped proxy without a signature, which owns the handle.
    _plain: PackedFunc,
    endpoint: Arc<Endpoint>,
    number: u64,
    address: AtomicUsize,
}

impl Drop for Alias {
    fn drop(&mut self) {
        proxies().remove(self.address.get_mut());
    }
}

/// Converts a service's answer into a proxy for the requested function. The answer consists of the
/// function and its signature, each of which may be None.
pub fn described(endpoint: &Arc<Endpoint>, answer: &Any) -> Result<Option<PackedFunc>> {
    let (plain, signature) = answer.get::<(Option<PackedFunc>, Option<alloc::string::String>)>()?;
    let (Some(plain), Some(signature)) = (&plain, signature) else { return Ok(plain) };
    let Some((_, number)) = stands_for(plain.as_object()) else { return Ok(Some(plain.clone())) };
    let address = AtomicUsize::new(0);
    let alias = Arc::new(Alias { _plain: plain.clone(), endpoint: endpoint.clone(), number, address });
    let called = alias.clone();
    let body = move |args: Args<'_>| called.endpoint.call(&Target::Handle(called.number), args.as_slice());
    let function = PackedFunc::described_blocking(body, move || signature.clone());
    alias.address.store(add_proxy(function.as_object(), endpoint, number), Ordering::Relaxed);
    Ok(Some(function))
}

/// Bytes of a tensor's elements: borrowed from a compact tensor in host memory, otherwise copied. They cannot
/// change until they are sent.
enum Bytes<'a> {
    There(TensorRead<'a, u8>),
    Copied(Any),
}

impl<'a> Bytes<'a> {
    fn of(tensor: &TensorView<'a>) -> Result<Bytes<'a>> {
        if tensor.device() != Device::CPU || !tensor.is_contiguous() {
            return anyfn::registry::get("anyfn.tensor_to_bytes")?.call((*tensor,)).map(Bytes::Copied);
        }
        tensor.read_bytes().map(Bytes::There)
    }

    fn get(&self) -> Result<&[u8]> {
        match self {
            Bytes::There(bytes) => Ok(bytes),
            Bytes::Copied(bytes) => bytes.get::<&[u8]>(),
        }
    }
}
