//! Proxy between clients and servers that cannot accept connections: web pages, and machines behind a firewall.
//!
//! A server opens a WebSocket `/NAME?role=server` and waits. A client opens `/NAME`; the proxy then copies bytes between the two until
//! one of them ends, and tells the other one. A connection is used for one session, so a server opens the next one as soon as its
//! first bytes arrive. A client gets a server only when its own first bytes have arrived; otherwise, a silent client would keep the
//! server from all others. The proxy takes no part in the protocol of the session: it has no keys, and cannot read or change what is
//! encrypted between the ends.
//!
//! Each connection has a thread, and all numbers are limited. What waits is asked for a sign of life.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyfn::{Result, bail, error};

use super::Origins;
use super::accept::upgrade;
use super::relay::relay;
use super::side::{Side, Stop, Web};
use crate::poll::{Polled, poll};
use crate::signals;

/// Maximum length in bytes of the name of a server.
const NAME_MAX: usize = 64;

/// Longest time that a client waits for its server.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Configuration of a proxy.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// Host name or IP address to listen on.
    pub host: String,
    /// Port to listen on; 0 selects any free port.
    pub port: u16,
    /// Web pages that may connect, as clients or as servers.
    pub origins: Origins,
    /// Maximum number of servers that wait; default 256.
    pub waiting: usize,
    /// Maximum number of servers that wait from one address; default 64.
    pub waiting_of_address: usize,
    /// Maximum number of pairs of a client and a server; default 256.
    pub pairs: usize,
    /// Maximum number of connections whose request is not complete, and of clients whose server does not wait yet; default 64.
    pub half_open: usize,
    /// Maximum number of these connections from one address; default 16.
    pub half_open_of_address: usize,
    /// Time limit for the request of a connection, for the first bytes of a client, and for a client that does not say how long it
    /// waits for its server; default 10 seconds.
    pub patience: Duration,
    /// Time after which a silent peer is asked for a sign of life; after three times that time it is treated as disconnected.
    /// Default: 15 seconds.
    pub heartbeat: Duration,
}

impl Default for ProxyConfig {
    fn default() -> ProxyConfig {
        ProxyConfig {
            host: "127.0.0.1".into(),
            port: 9191,
            origins: Origins::default(),
            waiting: 256,
            waiting_of_address: 64,
            pairs: 256,
            half_open: 64,
            half_open_of_address: 16,
            patience: Duration::from_secs(10),
            heartbeat: Duration::from_secs(15),
        }
    }
}

/// Function that receives the events of a proxy: `listen`, `waits`, `paired`, `ended`, `refused`. Arguments: the event, the name of the
/// server, the address of the peer, and a reason.
pub type Log = Box<dyn Fn(&str, &str, &str, &str) + Send + Sync>;

/// Returns a log that writes each event as a line of JSON to the standard error.
pub fn log_to_stderr() -> Log {
    Box::new(|event, name, peer, reason| {
        let mut line = serde_json::json!({"event": event, "peer": peer});
        for (entry, value) in [("name", name), ("reason", reason)] {
            if !value.is_empty() {
                // Parts of it come from peers, whose control characters a terminal could obey.
                let shown = value.chars().map(|c| if c.is_ascii() && !c.is_ascii_control() { c } else { '?' });
                line[entry] = shown.collect::<String>().into();
            }
        }
        let _ = writeln!(std::io::stderr(), "{line}");
    })
}

/// Server that waits for a client.
struct Waiting {
    number: usize,
    address: IpAddr,
    /// Takes the client to the thread of the server.
    client: Sender<Client>,
    /// Wakes that thread by a byte.
    wake: UnixStream,
}

/// Client whose first bytes have arrived.
struct Client {
    web: Web,
    first: Vec<u8>,
    peer: SocketAddr,
}

#[derive(Default)]
struct Names {
    waiting: HashMap<String, VecDeque<Waiting>>,
    last: usize,
}

impl Names {
    fn count(&self, is_counted: impl Fn(&Waiting) -> bool) -> usize {
        self.waiting.values().flatten().filter(|waiting| is_counted(waiting)).count()
    }

    fn remove(&mut self, name: &str, number: usize) {
        if let Some(queue) = self.waiting.get_mut(name) {
            queue.retain(|waiting| waiting.number != number);
            if queue.is_empty() {
                self.waiting.remove(name);
            }
        }
    }

    fn take(&mut self, name: &str) -> Option<Waiting> {
        let queue = self.waiting.get_mut(name)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(name);
        }
        first
    }
}

struct Shared {
    config: ProxyConfig,
    names: Mutex<Names>,
    /// Notified when a server begins to wait.
    arrived: Condvar,
    half_open: Mutex<HashMap<IpAddr, usize>>,
    pairs: AtomicUsize,
    stops: AtomicBool,
    log: Log,
}

impl Shared {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Part of a limit, returned on drop.
struct Counted(Arc<Shared>, fn(&Shared) -> &AtomicUsize);

impl Counted {
    /// Takes a part, or returns `None` at the limit.
    fn new(shared: &Arc<Shared>, counter: fn(&Shared) -> &AtomicUsize, most: usize) -> Option<Counted> {
        if counter(shared).fetch_add(1, Ordering::Relaxed) >= most {
            counter(shared).fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Counted(shared.clone(), counter))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.1)(&self.0).fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns what the limits on one address count together: an address of IPv4, or the network of one of IPv6, in which a machine may
/// choose its address.
fn group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

/// Part of the limit on connections without a complete request, returned on drop.
struct HalfOpen(Arc<Shared>, IpAddr);

impl HalfOpen {
    /// Takes a part, or returns `None` at the limit.
    fn new(shared: &Arc<Shared>, peer: IpAddr) -> Option<HalfOpen> {
        let mut all = shared.half_open.lock().unwrap_or_else(PoisonError::into_inner);
        let group = group(peer);
        let is_full = all.values().sum::<usize>() >= shared.config.half_open
            || all.get(&group).is_some_and(|count| *count >= shared.config.half_open_of_address);
        if is_full {
            return None;
        }
        *all.entry(group).or_default() += 1;
        Some(HalfOpen(shared.clone(), group))
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        let mut all = self.0.half_open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.1);
            }
        }
    }
}

/// Running proxy. It accepts no more connections when this value is dropped, and servers that wait are disconnected within a second.
/// Pairs go on until one of them ends.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy on threads of this process.
    ///
    /// # Errors
    /// Returns `OSError` if the address cannot be bound or no thread can be started.
    pub fn start(config: ProxyConfig, log: Log) -> Result<Proxy> {
        let shown = format!("{}:{}", config.host, config.port);
        let failed = |why: std::io::Error| error!("OSError", "cannot listen at {shown}: {why}");
        let addresses: Vec<SocketAddr> =
            (&*config.host, config.port).to_socket_addrs().map_err(failed)?.collect();
        let listener = TcpListener::bind(&addresses[..]).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            config,
            names: Mutex::default(),
            arrived: Condvar::new(),
            half_open: Mutex::default(),
            pairs: AtomicUsize::new(0),
            stops: AtomicBool::new(false),
            log,
        });
        (shared.log)("listen", "", &address.to_string(), "");
        let served = shared.clone();
        let thread =
            std::thread::Builder::new().name("anyfn-proxy".into()).spawn(move || accept(&served, &listener));
        Ok(Proxy { address, shared, thread: Some(thread.map_err(failed)?) })
    }

    /// Returns the address at which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of servers that wait, and of pairs.
    pub fn counts(&self) -> (usize, usize) {
        (self.shared.names().count(|_| true), self.shared.pairs.load(Ordering::Relaxed))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    signals::block_all();
    while !shared.stops.load(Ordering::Relaxed) {
        let _ = poll(&mut [Polled::read(listener.as_fd())], Some(Duration::from_millis(200)));
        loop {
            match listener.accept() {
                Ok((stream, peer)) => begin(shared, stream, peer),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    // No descriptors or memory are left, or the connection has ended before it was accepted.
                    std::thread::sleep(Duration::from_millis(20));
                    break;
                }
            }
        }
    }
}

/// Starts the thread of a connection.
fn begin(shared: &Arc<Shared>, stream: TcpStream, peer: SocketAddr) {
    let Some(half_open) = HalfOpen::new(shared, peer.ip()) else {
        (shared.log)("refused", "", &peer.to_string(), "too many connections without a request");
        return;
    };
    let of_thread = shared.clone();
    let run = move || {
        signals::block_all();
        if let Err(error) = serve(&of_thread, stream, peer, half_open) {
            (of_thread.log)("refused", "", &peer.to_string(), error.message());
        }
    };
    let _ = std::thread::Builder::new().name("anyfn-proxy-peer".into()).stack_size(256 << 10).spawn(run);
}

/// Returns true if a server may wait under `name`.
pub(super) fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(is_part)
}

/// Role that a peer asks for.
#[derive(Debug, PartialEq, Eq)]
enum Role {
    Server,
    /// Client that waits for its server for a time, or for as long as the proxy decides.
    Client(Option<Duration>),
}

/// Parses the target of a request: `/NAME`, `/NAME?wait=MILLISECONDS` or `/NAME?role=server`.
fn target(text: &str) -> Option<(&str, Role)> {
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let name = path.strip_prefix('/')?;
    if !is_name(name) {
        return None;
    }
    let role = match query.split_once('=') {
        None if query.is_empty() => Role::Client(None),
        Some(("role", "server")) => Role::Server,
        Some(("wait", time)) => Role::Client(Some(Duration::from_millis(time.parse().ok()?).min(WAIT_MAX))),
        _ => return None,
    };
    Some((name, role))
}

fn serve(shared: &Arc<Shared>, stream: TcpStream, peer: SocketAddr, half_open: HalfOpen) -> Result<()> {
    let deadline = Instant::now() + shared.config.patience;
    stream.set_nonblocking(false).map_err(|why| error!("OSError", "{why}"))?;
    let (mut web, path) = upgrade(stream, deadline, |request| shared.config.origins.check(request, "proxy"))?;
    let Some((name, role)) = target(&path) else {
        web.close("expected a path of the form /NAME or /NAME?role=server");
        bail!("ValueError", "expected a path of the form /NAME or /NAME?role=server");
    };
    match role {
        Role::Server => wait(shared, web, name, peer, half_open),
        Role::Client(time) => {
            let now = Instant::now();
            let first = match first_bytes(shared, &mut web, now + shared.config.patience) {
                Ok(first) => first,
                Err(why) => {
                    web.close(&why);
                    bail!("ConnectionError", "{why}");
                }
            };
            let client = Client { web, first, peer };
            pair(shared, client, name, now + time.unwrap_or(shared.config.patience))
        }
    }
}

/// Lets a server wait for a client, and then copies their bytes.
fn wait(shared: &Arc<Shared>, mut web: Web, name: &str, peer: SocketAddr, half_open: HalfOpen) -> Result<()> {
    let os = |why: std::io::Error| error!("OSError", "{why}");
    let (wake, mut woken) = UnixStream::pair().map_err(os)?;
    woken.set_nonblocking(true).map_err(os)?;
    let (client, clients) = channel();
    let number = {
        let mut names = shared.names();
        let address = group(peer.ip());
        let refused = if names.count(|_| true) >= shared.config.waiting {
            Some("too many servers wait at this proxy")
        } else if names.count(|waiting| waiting.address == address) >= shared.config.waiting_of_address {
            Some("too many servers of this address wait at this proxy")
        } else {
            None
        };
        if let Some(why) = refused {
            drop(names);
            web.close(why);
            bail!("PermissionError", "{why}");
        }
        names.last += 1;
        let number = names.last;
        names.waiting.entry(name.to_owned()).or_default().push_back(Waiting { number, address, client, wake });
        number
    };
    shared.arrived.notify_all();
    drop(half_open);
    (shared.log)("waits", name, &peer.to_string(), "");
    let taken = wait_for_client(shared, &mut web, &mut woken, &clients);
    let mut last = None;
    let outcome = match taken {
        Ok(client) => Ok(client),
        // A client may have taken the server in the meantime.
        Err(why) => {
            shared.names().remove(name, number);
            last = clients.try_recv().ok();
            Err(why)
        }
    };
    match outcome {
        Ok(client) => {
            copy(shared, web, client, name);
            Ok(())
        }
        Err(why) => {
            if let Some(mut client) = last {
                client.web.close("the server disconnected");
            }
            web.close(&why);
            (shared.log)("ended", name, &peer.to_string(), &why);
            Ok(())
        }
    }
}

/// Waits for the first bytes of a client. The error is the reason for which it is refused.
fn first_bytes(shared: &Shared, web: &mut Web, deadline: Instant) -> std::result::Result<Vec<u8>, String> {
    loop {
        // Sends answers to pings.
        let is_written = match web.flush() {
            Ok(is_written) => is_written,
            Err(Stop::Over(why)) => return Err(why),
            Err(Stop::Wait) => false,
        };
        match web.receive() {
            Ok(first) => return Ok(first),
            Err(Stop::Over(why)) if why.is_empty() => return Err("the client disconnected".into()),
            Err(Stop::Over(why)) => return Err(why),
            Err(Stop::Wait) => {}
        }
        let Some(left) = deadline.checked_duration_since(Instant::now()) else {
            return Err(format!("the client sent nothing for {} seconds", shared.config.patience.as_secs()));
        };
        if shared.stops.load(Ordering::Relaxed) {
            return Err("the proxy stops".into());
        }
        let waits = &mut [Polled::ready(web.fd(), true, !is_written)];
        if poll(waits, Some(left.min(Duration::from_secs(1)))).is_err() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Waits until a client arrives. The error is the reason for which the server no longer waits.
fn wait_for_client(
    shared: &Shared,
    web: &mut Web,
    woken: &mut UnixStream,
    clients: &Receiver<Client>,
) -> std::result::Result<Client, String> {
    let heartbeat = shared.config.heartbeat;
    let mut asked = Instant::now();
    loop {
        if shared.stops.load(Ordering::Relaxed) {
            return Err("the proxy stops".into());
        }
        if let Ok(client) = clients.try_recv() {
            let _ = woken.read(&mut [0]);
            return Ok(client);
        }
        let is_written = match web.flush() {
            Ok(is_written) => is_written,
            Err(Stop::Over(why)) => return Err(why),
            Err(Stop::Wait) => false,
        };
        match web.receive() {
            Ok(_) => return Err("a server must not send anything before its client does".into()),
            Err(Stop::Over(why)) => return Err(why),
            Err(Stop::Wait) => {}
        }
        let now = Instant::now();
        if now.duration_since(web.heard()) > heartbeat * 3 {
            return Err("no sign of life".into());
        }
        if now.duration_since(asked) >= heartbeat {
            asked = now;
            web.ping();
            continue;
        }
        let mut waits = [Polled::ready(web.fd(), true, !is_written), Polled::read(woken.as_fd())];
        if poll(&mut waits, Some(heartbeat.min(Duration::from_secs(1)))).is_err() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Hands a client to the server of a name, which may arrive a little later.
fn pair(shared: &Arc<Shared>, mut client: Client, name: &str, deadline: Instant) -> Result<()> {
    let mut names = shared.names();
    loop {
        if let Some(server) = names.take(name) {
            drop(names);
            match server.client.send(client) {
                Ok(()) => {
                    let _ = (&server.wake).write(&[1]);
                    return Ok(());
                }
                // The server has just ended.
                Err(back) => client = back.0,
            }
            names = shared.names();
            continue;
        }
        let Some(left) = deadline.checked_duration_since(Instant::now()) else { break };
        (names, _) = shared.arrived.wait_timeout(names, left).unwrap_or_else(PoisonError::into_inner);
    }
    drop(names);
    let why = format!("no server waits under the name {name}");
    client.web.close(&why);
    bail!("ConnectionError", "{why}")
}

fn copy(shared: &Arc<Shared>, mut server: Web, client: Client, name: &str) {
    let Client { web: mut client, first, peer } = client;
    let Some(_pair) = Counted::new(shared, |shared| &shared.pairs, shared.config.pairs) else {
        let why = "too many sessions run through this proxy";
        client.close(why);
        server.close(why);
        (shared.log)("refused", name, &peer.to_string(), why);
        return;
    };
    (shared.log)("paired", name, &peer.to_string(), "");
    if server.send(first).is_err() {
        client.close("the server disconnected");
        return;
    }
    relay(server, client, Some(shared.config.heartbeat), |why| {
        (shared.log)("ended", name, &peer.to_string(), why)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_names() {
        assert_eq!(target("/page"), Some(("page", Role::Client(None))));
        assert_eq!(target("/page?role=server"), Some(("page", Role::Server)));
        let waits = |seconds| Role::Client(Some(Duration::from_secs(seconds)));
        assert_eq!(target("/a.b-c_1?wait=2000"), Some(("a.b-c_1", waits(2))));
        assert_eq!(target("/a?wait=99999999999"), Some(("a", waits(60))));
        for wrong in [
            "",
            "/",
            "page",
            "/a/b",
            "/a%20b",
            "/page?role=other",
            "/page?x",
            "/page?wait=x",
            "/page?wait=-1",
            "/\u{e9}",
        ] {
            assert_eq!(target(wrong), None, "{wrong}");
        }
        assert_eq!(target(&format!("/{}", "a".repeat(65))), None);
    }
}
