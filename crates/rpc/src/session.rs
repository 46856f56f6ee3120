//! Client's end of a session: the type [`Session`].

use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyfn::{
    Any, Args, DType, Device, Error, Module, Object, PackedFunc, Ref, Result, Shape, bail, check_signals,
    error, methods, register,
};

use anyfn_protocol::code;
use anyfn_protocol::endpoint::{Target, Transfer};

use crate::child::ChildProcess;
use crate::connection::{Connection, with_timeout};
use crate::establish::{self, Arrival};
use crate::fork::Owner;
use crate::given::{self, PARENT, SOCKETS};
use crate::keys::{Key, parse_key, read_key, system_random};
use crate::policy::{Policy, SECONDS_MAX};
use crate::serial;
use crate::socket::Socket;
use crate::store::digest_of;
use anyfn_protocol::{described, stands_for};

/// Session with another process: access to its functions, modules and tensors.
#[derive(Object)]
#[object(key = "rpc.Session", init = false, final)]
pub struct Session {
    /// Name of the peer, for error messages.
    pub peer: anyfn::String,
    #[field(skip)]
    connection: Connection,
    #[field(skip)]
    child: Option<Child>,
}

/// Child process that serves one session. Dropping this value waits up to two seconds for the
/// process to end, kills the process if it is still running, and removes the session's folder.
struct Child {
    process: Arc<ChildProcess>,
    _folder: Folder,
}

impl Drop for Child {
    fn drop(&mut self) {
        self.process.end();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A process that is forked from the session's owner must not end the session when it drops what it has inherited.
        if self.connection.is_inherited() {
            return;
        }
        // The remaining proxies keep the connection open, since they can still be called although the session object is
        // unreachable: only the last of them ends it.
        if Arc::strong_count(self.connection.endpoint()) == 1 || self.child.is_some() {
            self.connection.close();
        }
    }
}

impl Session {
    fn ask(&self, code: u16, args: impl anyfn::IntoArgs) -> Result<Any> {
        args.with_views(|views| self.connection.endpoint().call(&Target::Service(code), views))
    }
}

#[methods]
impl Session {
    /// Returns a global function of the peer. It is called like a local function, from any thread.
    #[blocking]
    pub fn get_function(&self, name: &str) -> Result<PackedFunc> {
        match described(self.connection.endpoint(), &self.ask(code::GLOBAL, (name,))?)? {
            Some(function) => Ok(function),
            None => {
                let hint = if self.child.is_some() {
                    ", and `rpc.spawn(imports=[..])` imports modules that register functions"
                } else {
                    ""
                };
                bail!(
                    "ValueError",
                    "{}: no function is named {name:?}; `function_names()` lists the functions of the session{hint}",
                    self.peer
                )
            }
        }
    }

    /// Returns the names of the global functions that this session may call.
    #[blocking]
    pub fn function_names(&self) -> Result<Any> {
        self.ask(code::NAMES, ())
    }

    /// Returns a description of the peer: version, operating system, architecture, target triple,
    /// pointer size, CPU features, number of cores, devices, and the permissions of this session.
    #[blocking]
    pub fn info(&self) -> Result<Any> {
        self.ask(code::INFO, ())
    }

    /// Allocates a tensor of zeros at the peer.
    #[blocking]
    pub fn allocate(&self, shape: Shape, dtype: DType, #[default(None)] device: Option<Device>) -> Result<Any> {
        self.ask(code::EMPTY, (shape, dtype, device.unwrap_or(Device::CPU)))
    }

    /// Uploads a file and returns its digest, which identifies it. Nothing is sent if the peer already has the file. `progress`
    /// is called with the number of bytes sent so far and in total.
    #[blocking]
    pub fn send_file(
        &self,
        bytes: anyfn::Bytes,
        #[default(None)] progress: Option<PackedFunc>,
    ) -> Result<std::string::String> {
        let bytes = bytes.as_bytes();
        let digest = digest_of(bytes);
        let there = self.ask(code::HAS, (vec![digest.clone()],))?.get::<Vec<bool>>()?;
        if there != [true] {
            let args = (digest.clone(), bytes.len());
            anyfn::IntoArgs::with_views(args, |views| {
                let transfer = Transfer { bytes, into: None, progress: progress.as_ref() };
                self.connection.endpoint().transfer(&Target::Service(code::PUT), views, transfer)
            })?;
        }
        Ok(digest)
    }

    /// Returns a map from the digest of each uploaded file to its size in bytes.
    #[blocking]
    pub fn files(&self) -> Result<Any> {
        self.ask(code::FILES, ())
    }

    /// Removes an uploaded file. Returns true if the file existed. A library that was loaded from
    /// the file stays loaded.
    #[blocking]
    pub fn remove(&self, digest: &str) -> Result<bool> {
        self.ask(code::REMOVE, (digest,))?.get::<bool>()
    }

    /// Loads an uploaded library at the peer.
    #[blocking]
    pub fn load_file(&self, digest: &str) -> Result<Module> {
        self.ask(code::LOAD, (digest,))?.get::<Module>()
    }

    /// Loads a module at the peer from an uploaded file, which contains what `save_to_bytes` has returned for a module of the kind
    /// `kind`, such as `opencl`.
    #[blocking]
    pub fn load_module(&self, digest: &str, kind: &str) -> Result<Module> {
        self.ask(code::LOAD, (digest, kind))?.get::<Module>()
    }

    /// Registers a function as a global function of the peer, so that code loaded at the peer can
    /// call the function by this name. The function stays registered until the peer's process ends.
    /// If `replace` is true, it replaces an existing function of this name.
    #[blocking]
    pub fn set_function(
        &self,
        name: &str,
        function: PackedFunc,
        #[default(false)] replace: bool,
    ) -> Result<()> {
        self.ask(code::REGISTER, (name, function, replace)).map(drop)
    }

    /// Waits until a device of the peer has completed all its work. The default device is the CPU.
    #[blocking]
    pub fn synchronize(&self, #[default(None)] device: Option<Device>) -> Result<()> {
        self.ask(code::SYNC, (device.unwrap_or(Device::CPU),)).map(drop)
    }

    /// Returns an attribute of a device of the peer. The numbers of the attributes are those of `runtime.GetDeviceAttr`.
    #[blocking]
    pub fn device_attribute(&self, device: Device, number: i32) -> Result<Any> {
        self.ask(code::DEVICE_ATTRIBUTE, (device, number))
    }

    /// Ends the session. After that, using its proxies raises `ConnectionError`.
    #[blocking]
    pub fn close(&self) {
        self.connection.close();
    }

    /// Returns the error that ended the session, or None while it is open.
    fn ended(&self) -> Option<Error> {
        self.connection.ended()
    }
}

/// Returns a function that calls `function` with a time limit in seconds. A call that exceeds the
/// limit raises `TimeoutError` and is cancelled at the peer.
#[register("rpc.timed")]
fn timed(function: PackedFunc, seconds: f64) -> Result<PackedFunc> {
    let limit = self::seconds("seconds", seconds)?;
    let signature = function.signature();
    let body = move |args: Args<'_>| with_timeout(Some(limit), || function.call_views(args.as_slice()));
    Ok(PackedFunc::described_blocking(body, move || {
        signature.as_ref().map_or_else(std::string::String::new, ToString::to_string)
    }))
}

/// Returns a function for the parameter `progress` of transfers. Called with two numbers, as transfers do, it stores the
/// first one, the number of bytes transferred so far. Called without arguments, it returns the stored number. Another
/// thread can thus observe a transfer, which calls no code of a frontend for it.
#[register("rpc.transfer_counter")]
fn transfer_counter() -> PackedFunc {
    let done = AtomicU64::new(0);
    PackedFunc::new(move |args: Args<'_>| {
        if args.is_empty() {
            return Any::new(done.load(Ordering::Relaxed));
        }
        done.store(args.get::<u64>(0)?, Ordering::Relaxed);
        Ok(Any::NONE)
    })
}

/// Returns a time evaluator that measures a remote function at the peer, or None for a local function. The
/// arguments are those of `anyfn.time_evaluator`, which calls this function first.
#[register("rpc.time_evaluator", blocking)]
fn time_evaluator(args: Args<'_>) -> Result<Any> {
    let function = args.get::<PackedFunc>(0)?;
    let Some((endpoint, number)) = stands_for(function.as_object()) else { return Ok(Any::NONE) };
    let number = Any::new(number)?;
    let mut all = vec![number.as_view()];
    all.extend_from_slice(&args.as_slice()[1..]);
    endpoint.call(&Target::Service(code::TIME), &all)
}

/// Default time limit for connecting, in seconds.
const CONNECT: f64 = 10.0;

/// Converts a time limit in seconds to a duration. `name` is the name of the parameter in error messages.
pub(crate) fn seconds(name: &str, seconds: f64) -> Result<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        // The upper bound prevents overflow of deadlines.
        Ok(limit) if !limit.is_zero() && limit.as_secs() <= SECONDS_MAX => Ok(limit),
        _ => bail!(
            "ValueError",
            "`{name}`: expected a positive number of seconds, at most {SECONDS_MAX}, got {seconds}"
        ),
    }
}

/// Returns the key of a client, or `None` if no key is given. The key is given either as a string
/// or by the path of a file that only its owner may read.
fn key_of_client(key: Option<&str>, file: Option<&str>) -> Result<Option<Key>> {
    match (key, file) {
        (Some(_), Some(_)) => bail!("ValueError", "expected `key` or `key_file`, got both"),
        (Some(key), None) => parse_key(key).map(Some),
        (None, Some(file)) => read_key(Path::new(file)).map(Some),
        (None, None) => Ok(None),
    }
}

/// Connects to a server. `key` is the string that `anyfn rpc key` prints; alternatively, `key_file`
/// is the path of a file with the key, which `anyfn rpc key -o` creates. `timeout` is the time
/// limit in seconds (default 10) until the session begins, including the time in the queue.
#[register("rpc.connect", blocking)]
fn connect(
    host: &str,
    port: u16,
    #[default(None)] key: Option<&str>,
    #[default(None)] timeout: Option<f64>,
    #[default(None)] key_file: Option<&str>,
) -> Result<Ref<Session>> {
    let wait = seconds("timeout", timeout.unwrap_or(CONNECT))?;
    if host.is_empty() {
        bail!("ValueError", "`host`: expected the name or address of a machine, got an empty string");
    }
    if port == 0 {
        bail!("ValueError", "`port`: expected a number from 1 to 65535, got 0");
    }
    let key = key_of_client(key, key_file)?;
    let peer = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let deadline = Instant::now() + wait;
    let addresses = match (host, port).to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(error) => bail!("ConnectionError", "{peer}: {error}"),
    };
    let mut why = None;
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                let left = deadline.saturating_duration_since(Instant::now());
                let connection = establish::connect(OwnedFd::from(stream), key, &peer, left, None)?;
                return Ok(Ref::new(Session { peer: (&*peer).into(), connection, child: None }));
            }
            Err(error) => why = Some(error),
        }
        check_signals()?;
    }
    match why {
        Some(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => bail!(
            "ConnectionError",
            "{peer}: {error}: no server listens there; `anyfn rpc server --port {port}` starts one"
        ),
        Some(error) => bail!("ConnectionError", "{peer}: {error}"),
        None => bail!("ConnectionError", "{peer}: the host name resolves to no address"),
    }
}

/// Connects to a server over WebSocket, directly or through a proxy. `url` is `ws://HOST:PORT` for a server (`anyfn rpc server`), and
/// `ws://HOST:PORT/NAME` for the server that waits at a proxy (`anyfn rpc proxy`) under a name. The other parameters are those of
/// `rpc.connect`.
#[cfg(feature = "websocket")]
#[register("rpc.connect_url", blocking)]
fn connect_url(
    url: &str,
    #[default(None)] key: Option<&str>,
    #[default(None)] timeout: Option<f64>,
    #[default(None)] key_file: Option<&str>,
) -> Result<Ref<Session>> {
    let wait = seconds("timeout", timeout.unwrap_or(CONNECT))?;
    let key = key_of_client(key, key_file)?;
    let deadline = Instant::now() + wait;
    let (bridge, fd) = crate::websocket::connect(url, wait)?;
    let socket = Socket::new(fd).map_err(|error| error!("ConnectionError", "{url}: {error}"))?;
    let socket = socket.with_reason(bridge.reason().clone());
    bridge.detach();
    let left = deadline.saturating_duration_since(Instant::now());
    let connection = establish::connect_over(socket, key, url, left, None)?;
    Ok(Ref::new(Session { peer: url.into(), connection, child: None }))
}

/// Connects to a board over a serial line, such as `/dev/ttyACM0`, with `speed` baud (default 115200). The session is not encrypted.
/// `timeout` is the time limit in seconds (default 10) until the session begins.
#[register("rpc.connect_serial", blocking)]
fn connect_serial(
    path: &str,
    #[default(None)] speed: Option<u32>,
    #[default(None)] timeout: Option<f64>,
) -> Result<Ref<Session>> {
    let wait = seconds("timeout", timeout.unwrap_or(CONNECT))?;
    let peer = format!("serial:{path}");
    let socket = serial::open(path, speed.unwrap_or(115_200))?;
    let connection = establish::connect(socket, None, &peer, wait, None)?;
    Ok(Ref::new(Session { peer: (&*peer).into(), connection, child: None }))
}

/// Creates a session of this process with itself. Objects, values and errors behave as in a session with another machine.
#[register("rpc.local", blocking)]
fn local() -> Result<Ref<Session>> {
    let (here, there) = match Socket::pair() {
        Ok(pair) => pair,
        Err(error) => bail!("OSError", "cannot create a socket pair: {error}"),
    };
    let folder = Folder::new()?;
    let served = std::thread::Builder::new().name("anyfn-rpc-local".into()).spawn(move || {
        let wait = Duration::from_secs(10);
        let guest = Arrival::new(there, wait).and_then(|arrival| arrival.accept(None));
        let connection = guest.and_then(|guest| guest.welcome(Policy::trusted(), folder.0.clone(), |_, _| {}));
        if let Ok(connection) = connection {
            connection.serve();
        }
        drop(folder);
    });
    if let Err(error) = served {
        bail!("RuntimeError", "cannot start a thread: {error}");
    }
    let connection = establish::connect(here, None, "local", Duration::from_secs(10), None)?;
    Ok(Ref::new(Session { peer: "local".into(), connection, child: None }))
}

/// Folder of a session's uploaded files, which the first upload creates. It is removed with its content when this value is dropped by
/// the process that has created the value.
struct Folder(PathBuf, Owner);

impl Folder {
    /// Chooses the path of the folder. Its name cannot be guessed, so no other user can create it first.
    fn new() -> Result<Folder> {
        let mut random = [0; 8];
        system_random(&mut random)?;
        let name = format!("anyfn-rpc-{}-{:016x}", std::process::id(), u64::from_ne_bytes(random));
        Ok(Folder(std::env::temp_dir().join(name), Owner::this_process()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.1.is_here() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// Environment variable by which a parent passes the path of the session's folder to a child process. The child
/// creates this folder, and the parent removes it.
const FOLDER: &str = "ANYFN_RPC_FOLDER";

/// Starts `command` as a child process, and creates a session with it over the child's file
/// descriptor 3. A crash of the child raises `ConnectionError` in this process, with the signal or
/// exit status and the last lines of the child's standard error, which is forwarded to the standard
/// error of this process.
#[register("rpc.spawn", blocking)]
fn spawn(command: Vec<std::string::String>) -> Result<Ref<Session>> {
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::process::CommandExt;
    let [program, args @ ..] = &command[..] else {
        bail!("ValueError", "`command`: expected a program and its arguments, got an empty list");
    };
    if program.is_empty() {
        bail!("ValueError", "`command`: expected a program, got an empty string");
    }
    let (here, there) = match Socket::pair() {
        Ok(pair) => pair,
        Err(error) => bail!("OSError", "cannot create a socket pair: {error}"),
    };
    let number = there.as_raw_fd();
    let folder = Folder::new()?;
    let mut child = std::process::Command::new(program);
    child.args(args).stdin(std::process::Stdio::null());
    let sockets = given::sockets([there.as_fd()])
        .map_err(|why| error!("OSError", "cannot pass a socket to the process: {why}"))?;
    child.env(PARENT, std::process::id().to_string()).env(SOCKETS, sockets).env(FOLDER, &folder.0);
    let is_main = is_main_thread();
    let prepare = move || take_place(number, is_main);
    // SAFETY: between `fork` and `exec`, `take_place` only makes system calls: it allocates nothing and takes no lock.
    unsafe { child.pre_exec(prepare) };
    let child = match ChildProcess::start(&mut child) {
        Ok(process) => Child { process: Arc::new(process), _folder: folder },
        Err(error) => bail!("OSError", "cannot start {program}: {error}"),
    };
    drop(there);
    let (peer, process) = ("child", Some(child.process.clone()));
    let connection = establish::connect(here, None, peer, Duration::from_secs(20), process)?;
    Ok(Ref::new(Session { peer: peer.into(), connection, child: Some(child) }))
}

/// Returns true on the main thread, which exists as long as the process.
fn is_main_thread() -> bool {
    // SAFETY: `gettid` takes no arguments. C libraries before glibc 2.30 have no function for it.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    u32::try_from(thread).is_ok_and(|thread| thread == std::process::id())
}

/// Moves `socket` to file descriptor 3 of a child process. If the main thread starts the child,
/// also makes the child end when its parent ends. Runs in the child before the child executes its
/// program.
fn take_place(socket: i32, is_main_thread: bool) -> std::io::Result<()> {
    // The kernel sends the signal when the thread ends that has started the process. The child of another thread, which may end
    // before the session, ends when it finds its socket closed.
    if is_main_thread {
        // SAFETY: `PR_SET_PDEATHSIG` takes an integer.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    }
    let code = if socket == 3 {
        // SAFETY: `F_SETFD` takes an integer.
        unsafe { libc::fcntl(3, libc::F_SETFD, 0) }
    } else {
        // SAFETY: `dup2` takes two integers. A descriptor that was open at 3 is closed only in this process, which is about to
        // become another program.
        unsafe { libc::dup2(socket, 3) }
    };
    if code < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Serves the session of `rpc.spawn` on file descriptor 3 until the session ends. The program that
/// `rpc.spawn` runs must call this function.
#[register("rpc.serve_spawned", blocking)]
fn serve_spawned() -> Result<()> {
    let [fd] = given::take([3], "`rpc.spawn`")?;
    let Some(folder) = std::env::var_os(FOLDER) else {
        bail!("RuntimeError", "this function may only be called in processes that `rpc.spawn` starts");
    };
    let guest = Arrival::new(fd, Duration::from_secs(20))?.accept(None)?;
    guest.welcome(Policy::trusted(), PathBuf::from(folder), |_, _| {})?.serve();
    Ok(())
}
