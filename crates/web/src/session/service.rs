//! Services of a page: functions of its registry that are granted, tensors, and, if it permits uploads, modules that the
//! client sends. Uploads lie in the memory of the runtime.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyfn::{Any, AnyView, Array, Bytes, Device, Map, PackedFunc, Ref, Result, bail, registry};
use anyfn_protocol::endpoint::{Endpoint, Service, SessionLimits};
use anyfn_protocol::services::{self, Denied, Grants};
use anyfn_protocol::sink::Sink;
use anyfn_protocol::{answer_later, code};
use blake2::{Blake2s256, Digest};

use super::{Incoming, lock};

/// Number of bytes by which each upload counts at least.
const FILE_MIN: usize = 4096;

/// Permissions and limits of the client of a page.
#[derive(Clone)]
pub(super) struct Grant {
    functions: Vec<String>,
    upload: bool,
    handles: u32,
    calls: u32,
    message_bytes: usize,
    memory_bytes: u64,
    store_bytes: usize,
    call_seconds: u64,
    idle_seconds: u64,
    load: PackedFunc,
}

impl Grant {
    /// Reads the entries of a grant; see `docs/browser.md`.
    pub(super) fn new(options: &Map<anyfn::String, Any>, load: PackedFunc) -> Result<Grant> {
        let mut grant = Grant {
            functions: Vec::new(),
            upload: false,
            handles: 10_000,
            calls: 64,
            message_bytes: 64 << 20,
            memory_bytes: 1 << 30,
            store_bytes: 64 << 20,
            call_seconds: 0,
            idle_seconds: 3600,
            load,
        };
        for (name, value) in options {
            match &*name {
                "functions" => grant.functions = value.get::<Vec<String>>()?,
                "upload" => grant.upload = value.get::<bool>()?,
                "handles" => grant.handles = value.get::<u32>()?,
                "calls" => grant.calls = value.get::<u32>()?,
                "message_bytes" => grant.message_bytes = value.get::<usize>()?.min(super::MESSAGE_MAX),
                "memory_bytes" => grant.memory_bytes = value.get::<u64>()?,
                "store_bytes" => grant.store_bytes = value.get::<usize>()?,
                "call_seconds" => grant.call_seconds = value.get::<u64>()?,
                "idle_seconds" => grant.idle_seconds = value.get::<u64>()?,
                other => bail!(
                    "ValueError",
                    "unknown grant or limit `{other}`; expected functions, upload, handles, calls, message_bytes, memory_bytes, \
                     store_bytes, call_seconds or idle_seconds"
                ),
            }
        }
        Ok(grant)
    }

    pub(super) fn limits(&self) -> SessionLimits {
        SessionLimits {
            handles: self.handles,
            calls: self.calls,
            message_bytes: self.message_bytes,
            call_seconds: self.call_seconds,
            idle_seconds: self.idle_seconds,
        }
    }
}

impl Grants for Grant {
    fn allows_function(&self, name: &str) -> bool {
        // The functions of the package trust it.
        !name.starts_with("anyfn.web.") && services::matches(&self.functions, name)
    }

    fn allows_device(&self, device: &str) -> bool {
        device.starts_with("cpu")
    }

    fn allows_registration(&self) -> bool {
        self.upload
    }

    fn how_to_grant(&self, denied: Denied<'_>) -> String {
        match denied {
            Denied::Function(name) => {
                format!("the page has to grant it, as in `serve(url, {{functions: ['{name}']}})`")
            }
            Denied::Upload => "the page has to grant it, as in `serve(url, {upload: true})`".into(),
            _ => "a page serves only the device cpu".into(),
        }
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}

/// Services of one session, with their state.
pub(super) struct Services {
    common: services::Services<Grant>,
    files: Arc<Mutex<BTreeMap<String, Arc<Vec<u8>>>>>,
}

/// Returns the digest of the content of a file.
pub(super) fn digest_of(bytes: &[u8]) -> String {
    Blake2s256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn wrong_args<T>() -> Result<T> {
    bail!("TypeError", "the arguments of the request do not match the protocol")
}

impl Services {
    pub(super) fn new(grant: Grant) -> Services {
        Services { common: services::Services::new(grant), files: Arc::default() }
    }

    fn grant(&self) -> &Grant {
        self.common.grants()
    }

    fn files(&self) -> Result<&Mutex<BTreeMap<String, Arc<Vec<u8>>>>> {
        if !self.grant().upload {
            bail!(
                "PermissionError",
                "this session may not upload modules: {}",
                self.grant().how_to_grant(Denied::Upload)
            );
        }
        Ok(&self.files)
    }

    /// Loads an uploaded module. The package compiles it, and answers later.
    fn load(&self, digest: &str) -> Result<Any> {
        let file = lock(self.files()?).get(digest).cloned();
        let Some(file) = file else { bail!("ValueError", "there is no file {digest:?}: upload it first") };
        let args = Array::try_from_iter([Any::new(Bytes::from(&file[..]))?])?;
        let incoming = Incoming { id: -1, args, answer: Mutex::new(Some(answer_later()?)) };
        self.grant().load.call((Ref::new(incoming),))
    }
}

impl Service for Services {
    fn call(&self, endpoint: &Arc<Endpoint>, id: u64, code: u16, args: &[AnyView<'_>]) -> Result<Any> {
        let digest = || args.first().map_or_else(wrong_args, |text| text.get::<String>());
        match code {
            code::HAS => {
                let files = lock(self.files()?);
                let Some(digests) = args.first() else { return wrong_args() };
                Any::new(
                    digests
                        .get::<Vec<String>>()?
                        .iter()
                        .map(|digest| files.contains_key(digest))
                        .collect::<Vec<bool>>(),
                )
            }
            code::FILES => {
                let files = lock(self.files()?);
                let sizes =
                    files.iter().map(|(digest, file)| (anyfn::String::from(&**digest), file.len() as i64));
                Any::new(Map::<anyfn::String, i64>::try_from_iter(sizes)?)
            }
            code::REMOVE => Any::new(lock(self.files()?).remove(&digest()?).is_some()),
            code::LOAD if args.len() == 1 => self.load(&digest()?),
            code::LOAD => bail!("ValueError", "a page can load only WebAssembly modules (target `wasm`)"),
            code::INFO => info(self.grant()),
            other => self.common.call(endpoint, id, other, args),
        }
    }

    fn upload(&self, endpoint: &Endpoint, code: u16, args: &[Any]) -> Result<Option<(Box<dyn Sink>, u64)>> {
        let [digest, count] = args else { return self.common.upload(endpoint, code, args) };
        if code != code::PUT {
            return self.common.upload(endpoint, code, args);
        }
        let (digest, count) = (digest.get::<String>()?, count.get::<u64>()?);
        let used: usize = lock(self.files()?).values().map(|file| file.len().max(FILE_MIN)).sum();
        let limit = self.grant().store_bytes;
        if count.max(FILE_MIN as u64).saturating_add(used as u64) > limit as u64 {
            bail!(
                "MemoryError",
                "cannot upload {count} bytes: the session uses {used} of its limit of {limit} (`store_bytes`)"
            );
        }
        Ok(Some((Box::new(Upload { digest, content: Vec::new(), files: self.files.clone(), limit }), count)))
    }
}

/// Upload in progress.
struct Upload {
    digest: String,
    content: Vec<u8>,
    files: Arc<Mutex<BTreeMap<String, Arc<Vec<u8>>>>>,
    limit: usize,
}

impl Sink for Upload {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.content.try_reserve(bytes.len()).is_err() {
            bail!("MemoryError", "the page has no memory left for the upload");
        }
        self.content.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Any> {
        if digest_of(&self.content) != self.digest {
            bail!("ValueError", "the content of the upload does not have the digest {:?}", self.digest);
        }
        let mut files = lock(&self.files);
        // Several uploads may have been in progress.
        let used: usize = files.values().map(|file| file.len().max(FILE_MIN)).sum();
        if used + self.content.len().max(FILE_MIN) > self.limit {
            bail!(
                "MemoryError",
                "the uploads of the session exceed its limit of {} bytes (`store_bytes`)",
                self.limit
            );
        }
        files.insert(self.digest, Arc::new(self.content));
        Ok(Any::NONE)
    }
}

/// Returns a description of the page for the client.
fn info(grant: &Grant) -> Result<Any> {
    let devices = match registry::find("anyfn.devices") {
        Some(devices) => devices.call(())?.get::<Vec<Device>>()?,
        None => vec![Device::CPU],
    };
    let pairs = [
        ("version", Any::new(env!("CARGO_PKG_VERSION"))?),
        ("os", Any::new("unknown")?),
        ("arch", Any::new("wasm32")?),
        ("triple", Any::new("wasm32-unknown-unknown")?),
        ("pointer_bits", Any::new(usize::BITS)?),
        ("features", Any::new(vec!["simd128".to_owned()])?),
        ("cores", Any::new(1)?),
        ("devices", Any::new(devices)?),
        ("upload", Any::new(grant.upload)?),
        ("functions", Any::new(grant.functions.clone())?),
    ];
    Any::new(Map::<anyfn::String, Any>::try_from_iter(
        pairs.into_iter().map(|(name, value)| (anyfn::String::from(name), value)),
    )?)
}
