//! Services that a server offers in a session: the services of the protocol, subject to the
//! server's policy, and the services for uploading and loading files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyfn::__private::shorten;
use anyfn::{Any, AnyView, Device, Error, Map, Module, Result, bail, error, registry};
use anyfn_protocol::code;
use anyfn_protocol::endpoint::{Endpoint, Service};
use anyfn_protocol::services::{self, Denied, Grants};
use anyfn_protocol::sink::Sink;

use crate::policy::{self, Policy};
use crate::processor;
use crate::store::{self, Store};

/// Callback for audit events of a session. Arguments: name of the event, and its subject, such as the name of
/// a function.
pub(crate) type Audit = Box<dyn Fn(&str, &str) + Send + Sync>;

/// Policy of a session, and the callback that logs its use.
struct Granted {
    policy: Policy,
    audit: Audit,
}

impl Grants for Granted {
    fn allows_function(&self, name: &str) -> bool {
        self.policy.allows_function(name)
    }

    fn allows_device(&self, device: &str) -> bool {
        self.policy.allows_device(device)
    }

    fn allows_registration(&self) -> bool {
        self.policy.upload
    }

    fn how_to_grant(&self, denied: Denied<'_>) -> std::string::String {
        policy::how_to_grant(denied)
    }

    fn memory_bytes(&self) -> u64 {
        self.policy.memory_bytes
    }

    fn audit(&self, event: &str, subject: &str) {
        (self.audit)(event, subject);
    }
}

/// Services of one session, with their state.
pub(crate) struct Services {
    /// Services of the crate `anyfn_protocol`, which do not use uploaded files.
    common: services::Services<Granted>,
    store: Mutex<Store>,
}

impl Services {
    /// Creates the services of a session. Uploaded files are stored in `folder`, which no other session uses.
    pub(crate) fn new(policy: Policy, folder: PathBuf, audit: Audit) -> Services {
        let store = Mutex::new(Store::new(folder, policy.store_bytes));
        Services { common: services::Services::new(Granted { policy, audit }), store }
    }

    fn policy(&self) -> &Policy {
        &self.common.grants().policy
    }

    fn audit(&self, event: &str, subject: &str) {
        self.common.grants().audit(event, subject);
    }

    fn store(&self) -> Result<std::sync::MutexGuard<'_, Store>> {
        if !self.policy().upload {
            self.audit("denied", "upload");
            let how = policy::how_to_grant(Denied::Upload);
            bail!("PermissionError", "this session may not upload libraries: {how}");
        }
        Ok(self.store.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Loads an uploaded file: a library, or the bytes of a module of kind `kind`.
    fn load(&self, digest: &str, kind: Option<&AnyView<'_>>) -> Result<Any> {
        let path = self.store()?.path(digest)?;
        self.audit("load", digest);
        store::verify(Path::new(&path), digest)?;
        if let Some(kind) = kind {
            let kind = kind.get::<&str>()?;
            let Some(load) = registry::find(&format!("ffi.Module.load_from_bytes.{kind}")) else {
                bail!("ValueError", "the remote end cannot load modules of kind {}", shorten(kind))
            };
            let bytes = std::fs::read(&path);
            let bytes =
                bytes.map_err(|error| error!("OSError", "cannot read the file at the remote end: {error}"))?;
            return load.call((anyfn::Bytes::from(&*bytes),));
        }
        match Module::load(&path) {
            Ok(module) => Any::new(module),
            Err(error) => {
                // The client must not learn the location of the session's folder.
                let folder = path.strip_suffix(&format!("{digest}.so")).unwrap_or(&path);
                Err(Error::untraced(error.kind(), &error.message().replace(folder, "")))
            }
        }
    }
}

fn wrong_args<T>() -> Result<T> {
    bail!("TypeError", "the arguments of the request do not match the protocol")
}

impl Service for Services {
    fn call(&self, endpoint: &Arc<Endpoint>, id: u64, code: u16, args: &[AnyView<'_>]) -> Result<Any> {
        let digest = || args.first().map_or_else(wrong_args, |text| text.get::<std::string::String>());
        match code {
            code::HAS => {
                let store = self.store()?;
                let Some(digests) = args.first() else { return wrong_args() };
                let digests = digests.get::<Vec<std::string::String>>()?;
                Any::new(digests.iter().map(|digest| store.has(digest)).collect::<Vec<bool>>())
            }
            code::FILES => {
                let files = self.store()?.files();
                let files = files.into_iter().map(|(digest, bytes)| (digest, bytes as i64));
                Any::new(Map::<anyfn::String, i64>::try_from_iter(files)?)
            }
            code::REMOVE => {
                let digest = digest()?;
                self.audit("remove", &digest);
                Any::new(self.store()?.remove(&digest)?)
            }
            code::LOAD => self.load(&digest()?, args.get(1)),
            code::INFO => info(self.policy()),
            other => self.common.call(endpoint, id, other, args),
        }
    }

    fn upload(&self, endpoint: &Endpoint, code: u16, args: &[Any]) -> Result<Option<(Box<dyn Sink>, u64)>> {
        match (code, args) {
            (code::PUT, [digest, count]) => {
                let (digest, count) = (digest.get::<std::string::String>()?, count.get::<u64>()?);
                let sink = self.store()?.put(&digest, count)?;
                self.audit("upload", &format!("{digest} {count}"));
                Ok(Some((Box::new(sink), count)))
            }
            (code::PUT, _) => wrong_args(),
            (other, args) => self.common.upload(endpoint, other, args),
        }
    }
}

/// Returns a description of this process for the client: version, platform, processor, the devices that the client may use, and the
/// permissions of the policy.
fn info(policy: &Policy) -> Result<Any> {
    let devices = granted_devices(policy)?;
    let pairs = [
        ("version", Any::new(env!("CARGO_PKG_VERSION"))?),
        ("os", Any::new(std::env::consts::OS)?),
        ("arch", Any::new(std::env::consts::ARCH)?),
        ("triple", Any::new(triple())?),
        ("pointer_bits", Any::new(usize::BITS)?),
        ("features", Any::new(processor::features())?),
        ("cores", Any::new(std::thread::available_parallelism().map_or(1, usize::from))?),
        ("devices", Any::new(devices)?),
        ("upload", Any::new(policy.upload)?),
        ("functions", Any::new(policy.functions.clone())?),
    ];
    Any::new(Map::<anyfn::String, Any>::try_from_iter(
        pairs.into_iter().map(|(k, v)| (anyfn::String::from(k), v)),
    )?)
}

/// Returns the available devices that the client may use. Nothing is asked about other devices, because that would open the library of their
/// drivers, and initialise those of their vendors.
fn granted_devices(policy: &Policy) -> Result<Vec<Device>> {
    /// Maximum number of listed devices of one type.
    const MOST: i32 = 256;
    /// Number of the attribute that tells whether a device is available.
    const EXISTS: i32 = 0;
    if policy.devices.iter().any(|granted| granted == "*") {
        return registry::find("anyfn.devices")
            .map_or_else(|| Ok(Vec::new()), |list| list.call(())?.get::<Vec<Device>>());
    }
    let Some(attribute) = registry::find("runtime.GetDeviceAttr") else { return Ok(Vec::new()) };
    let exists = |device: &Device| {
        let (kind, index) = (device.0.device_type, device.0.device_id);
        let is_there = attribute.call((kind, index, EXISTS)).and_then(|answer| answer.get::<i64>());
        is_there.is_ok_and(|is_there| is_there != 0)
    };
    let mut devices: Vec<Device> = Vec::new();
    for granted in &policy.devices {
        let first: Device = granted.parse()?;
        let count = if granted.contains(':') { 1 } else { MOST };
        let of_number = |number| Device::new(first.0.device_type, first.0.device_id + number);
        devices.extend((0..count).map(of_number).take_while(exists));
    }
    let key = |device: &Device| (device.0.device_type, device.0.device_id);
    devices.sort_by_key(key);
    devices.dedup_by_key(|device| key(device));
    Ok(devices)
}

/// Returns the target triple of this machine, as compilers name it.
fn triple() -> std::string::String {
    let environment = if cfg!(target_env = "musl") {
        "musl"
    } else if cfg!(target_env = "msvc") {
        "msvc"
    } else {
        "gnu"
    };
    triple_of(std::env::consts::ARCH, std::env::consts::OS, environment)
}

/// Returns the target triple of a machine. `environment` is the C library of Linux, or the compiler
/// family of Windows.
fn triple_of(arch: &str, os: &str, environment: &str) -> std::string::String {
    match os {
        "linux" => format!("{arch}-linux-{environment}"),
        "android" => format!("{arch}-linux-android"),
        "macos" => format!("{arch}-apple-darwin"),
        "windows" => format!("{arch}-pc-windows-{environment}"),
        _ => format!("{arch}-unknown-{os}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_see_the_devices_that_they_may_use() {
        let null = anyfn_runtime::device::enable_null().unwrap();
        let devices = |granted: &[&str]| {
            let devices = granted.iter().map(|device| (*device).into()).collect();
            let told = info(&Policy { devices, ..Policy::closed() }).unwrap().get::<Map<anyfn::String, Any>>();
            told.unwrap().get("devices").unwrap().unwrap().get::<Vec<Device>>().unwrap()
        };
        assert_eq!(devices(&["cpu"]), [Device::CPU]);
        assert_eq!(devices(&[]), []);
        let all = devices(&["*"]);
        assert!(all.contains(&null) && all.contains(&Device::CPU), "{all:?}");
        assert_eq!(devices(&[&null.to_string()]), [null]);
        let (kind, second) =
            (anyfn_runtime::device::type_name(null.0.device_type), Device::new(null.0.device_type, 1));
        assert_eq!(devices(&[&kind, "cpu:0", &null.to_string()]), [Device::CPU, null, second]);
        assert_eq!(devices(&["cpu:1", "cuda", "opencl:2147483647", &second.to_string()]), [second]);
    }

    #[test]
    fn triples_are_those_of_compilers() {
        for (arch, os, environment, expected) in [
            ("x86_64", "linux", "gnu", "x86_64-linux-gnu"),
            ("aarch64", "linux", "musl", "aarch64-linux-musl"),
            ("aarch64", "android", "gnu", "aarch64-linux-android"),
            ("aarch64", "macos", "gnu", "aarch64-apple-darwin"),
            ("x86_64", "windows", "msvc", "x86_64-pc-windows-msvc"),
            ("x86_64", "windows", "gnu", "x86_64-pc-windows-gnu"),
            ("x86_64", "freebsd", "gnu", "x86_64-unknown-freebsd"),
        ] {
            assert_eq!(triple_of(arch, os, environment), expected);
        }
    }
}
