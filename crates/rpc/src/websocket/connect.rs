//! The client's end of the handshake.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyfn::{Result, bail, check_signals, error};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Bridge;
use super::http::{Exchange, Unopened};
use super::messages::WebSocket;
use super::side::{Web, printable};
use crate::socket;

/// Default port of a URL without one.
const PORT: u16 = 80;

/// Time by which a proxy gives up earlier than this client.
const MARGIN: Duration = Duration::from_millis(500);

/// Maximum number of bytes of the answer of a server that an error message shows.
const BODY_MAX: usize = 1024;

/// Parts of a URL of a WebSocket.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    host: String,
    port: u16,
    /// Host and port as the URL names them.
    named: String,
    /// Path and query.
    target: String,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Address> {
        let wrong =
            |why: &str| error!("ValueError", "expected a URL such as `ws://host:9190`, got {url:?}: {why}");
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("it contains a blank, or a character that is not of ASCII"));
        }
        let Some((scheme, rest)) = url.split_once("://") else { return Err(wrong("it has no scheme")) };
        match scheme {
            "ws" => {}
            "wss" => {
                return Err(wrong(
                    "this client cannot use TLS, and does not need it: a session with a key is encrypted from end to end",
                ));
            }
            _ => return Err(wrong("its scheme is not `ws`")),
        }
        // A fragment is not sent.
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let named = authority.rsplit_once('@').map_or(authority, |(_, named)| named);
        let (host, port) = match named.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(|| wrong("`[` is not closed"))?,
            None => named.split_at(named.find(':').unwrap_or(named.len())),
        };
        if host.is_empty() {
            return Err(wrong("it names no host"));
        }
        let port = match port.strip_prefix(':') {
            Some("") => PORT,
            Some(port) => port.parse().map_err(|_| wrong("its port is not a number up to 65535"))?,
            None if port.is_empty() => PORT,
            None => return Err(wrong("expected `:` and a port behind the host")),
        };
        let root = if target.starts_with('/') { "" } else { "/" };
        Ok(Address { host: host.into(), port, named: named.into(), target: format!("{root}{target}") })
    }
}

/// Returns true if a URL names this machine by a loopback address. Other names are not resolved, because the answer may change.
#[cfg(all(target_os = "linux", feature = "server"))]
pub(crate) fn is_local(url: &str) -> bool {
    Address::parse(url).is_ok_and(|address| match address.host.parse() {
        Ok(ip) => socket::is_loopback(ip),
        Err(_) => address.host.eq_ignore_ascii_case("localhost"),
    })
}

/// Opens a WebSocket, and returns the bridge and the session's end of it.
///
/// # Errors
/// Returns `ValueError` for an impossible URL, `ConnectionError` if the machine or its answer is not what a server has to be, and
/// `TimeoutError`.
pub(crate) fn connect(url: &str, wait: Duration) -> Result<(Bridge, OwnedFd)> {
    // A proxy waits as long for the server as this client does, and then tells it what is missing. A server ignores the query.
    let is_name = !url.contains('?') && url.splitn(4, '/').nth(3).is_some_and(|name| !name.is_empty());
    let whole = if is_name {
        format!("{url}?wait={}", wait.saturating_sub(MARGIN).as_millis())
    } else {
        url.to_owned()
    };
    Bridge::start(open(&whole, wait)?)
}

/// Opens a WebSocket.
pub(super) fn open(url: &str, wait: Duration) -> Result<Web> {
    let address = Address::parse(url)?;
    let deadline = Instant::now() + wait;
    let addresses = match (&*address.host, address.port).to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(error) => bail!("ConnectionError", "{url}: {error}"),
    };
    let mut why = "the host name resolves to no address".to_owned();
    for one in addresses {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&one, left) {
            Ok(stream) => return shake_hands(url, &address, stream, deadline),
            Err(error) => why = error.to_string(),
        }
        check_signals()?;
    }
    bail!("ConnectionError", "{url}: {why}")
}

fn shake_hands(url: &str, address: &Address, stream: TcpStream, deadline: Instant) -> Result<Web> {
    let os = |why: std::io::Error| error!("ConnectionError", "{url}: {why}");
    socket::watch_peer(stream.as_fd());
    stream.set_nonblocking(true).map_err(os)?;
    let exchange = Exchange { stream: &stream, deadline, check: check_signals };
    match ask(&exchange, address) {
        Ok(rest) => Web::new(WebSocket::new(stream, false, &rest)).map_err(os),
        Err(Refusal::Status(status)) => {
            bail!("ConnectionError", "{url}: the server refuses: {}", printable(&status))
        }
        Err(Refusal::Unopened(Unopened::Stopped(error))) => Err(error),
        Err(Refusal::Unopened(Unopened::Late)) => {
            bail!("TimeoutError", "{url}: no answer within the time allowed (`timeout=`)")
        }
        Err(Refusal::Unopened(Unopened::Io(why))) => {
            bail!("ConnectionError", "{url}: no WebSocket server answers there: {why}")
        }
        Err(Refusal::Unopened(Unopened::Invalid(why))) => {
            bail!("ConnectionError", "{url}: no WebSocket server answers there: the answer is wrong: {why}")
        }
    }
}

/// Reason why a server has not opened a WebSocket.
enum Refusal {
    Unopened(Unopened),
    /// It has answered with another status than 101: the status, and the text behind it.
    Status(String),
}

impl From<Unopened> for Refusal {
    fn from(why: Unopened) -> Refusal {
        Refusal::Unopened(why)
    }
}

/// Asks for a WebSocket. Returns the bytes that have arrived behind the answer.
fn ask(exchange: &Exchange<'_>, address: &Address) -> std::result::Result<Vec<u8>, Refusal> {
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(|why| Unopened::Io(why.into()))?;
    let key = STANDARD.encode(key);
    let Address { named, target, .. } = address;
    exchange.send(
        format!(
            "GET {target} HTTP/1.1\r\nHost: {named}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        )
        .as_bytes(),
    )?;
    let (head, mut rest) = exchange.answer()?;
    if head.status == 101 {
        head.accepts(key.as_bytes())?;
        return Ok(rest);
    }
    // The text may arrive behind the head.
    let length =
        head.values("Content-Length").next().and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    let length = length.unwrap_or(0).min(BODY_MAX);
    while rest.len() < length {
        match exchange.more(&mut rest) {
            Ok(true) => {}
            // A signal, which the caller wants to know about.
            Err(stopped @ Unopened::Stopped(_)) => return Err(stopped.into()),
            // What has arrived has to do.
            Ok(false) | Err(_) => break,
        }
    }
    rest.truncate(BODY_MAX);
    Err(Refusal::Status(format!("{} {} {}", head.status, head.text, String::from_utf8_lossy(&rest))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends its answer byte by byte does not extend the time limit, and the text of one that refuses cannot control a
    /// terminal.
    #[test]
    fn the_time_limit_is_that_of_the_whole_handshake() {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("ws://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut slow, _) = listener.accept().unwrap();
            for byte in b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n" {
                if slow.write_all(&[*byte]).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            let (mut refusing, _) = listener.accept().unwrap();
            let _ = refusing.read(&mut [0; 1024]);
            let body = "no\x1b[31m entry";
            let length = body.len();
            write!(refusing, "HTTP/1.1 403 Forbidden\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        });
        let started = Instant::now();
        assert_eq!(open(&url, Duration::from_millis(300)).err().unwrap().kind(), "TimeoutError");
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        let error = open(&url, Duration::from_secs(5)).err().unwrap();
        assert!(error.message().ends_with("403 Forbidden no[31m entry"), "{:?}", error.message());
        server.join().unwrap();
    }

    #[test]
    fn urls_name_a_host_and_a_port() {
        let check = |url: &str, host: &str, port: u16, named: &str, target: &str| {
            let expected = Address { host: host.into(), port, named: named.into(), target: target.into() };
            assert_eq!(Address::parse(url).unwrap(), expected);
        };
        check("ws://board:9190", "board", 9190, "board:9190", "/");
        check("ws://board/name?x", "board", 80, "board", "/name?x");
        check("ws://board?x#y", "board", 80, "board", "/?x");
        check("ws://me:secret@board:/", "board", 80, "board:", "/");
        check("ws://[::1]:7/", "::1", 7, "[::1]:7", "/");
        for (url, why) in [
            ("wss://board", "TLS"),
            ("http://board", "scheme"),
            ("ws://", "names no host"),
            ("ws://:80/", "names no host"),
            ("board:9190", "no scheme"),
            ("ws://a b", "blank"),
            ("ws://a\r\nX: y", "blank"),
            ("ws://board:99999", "port"),
            ("ws://[::1", "not closed"),
            ("ws://[::1]9", "behind the host"),
        ] {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error.kind(), "ValueError");
            assert!(error.message().contains(why), "{url}: {}", error.message());
        }
    }
}
