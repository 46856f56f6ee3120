//! The client's end of the handshake.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyfn::{Result, bail, check_signals, error};
use tungstenite::client::{IntoClientRequest, client_with_config};

use super::side::{Web, printable};
use super::{Bridge, Unopened};
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
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Address> {
        let wrong =
            |why: &str| error!("ValueError", "expected a URL such as `ws://host:9190`, got {url:?}: {why}");
        let request = url.into_client_request().map_err(|why| wrong(&why.to_string()))?;
        match request.uri().scheme_str() {
            Some("ws") => {}
            Some("wss") => {
                return Err(wrong(
                    "this client cannot use TLS, and does not need it: a session with a key is encrypted from end to end",
                ));
            }
            _ => return Err(wrong("its scheme is not `ws`")),
        }
        let Some(host) = request.uri().host().filter(|host| !host.is_empty()) else {
            return Err(wrong("it names no host"));
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Address { host, port: request.uri().port_u16().unwrap_or(PORT) })
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
            Ok(stream) => return shake_hands(url, stream, deadline),
            Err(error) => why = error.to_string(),
        }
        check_signals()?;
    }
    bail!("ConnectionError", "{url}: {why}")
}

fn shake_hands(url: &str, stream: TcpStream, deadline: Instant) -> Result<Web> {
    let os = |why: std::io::Error| error!("ConnectionError", "{url}: {why}");
    socket::watch_peer(stream.as_fd());
    stream.set_nonblocking(true).map_err(os)?;
    let done = client_with_config(url, stream, Some(super::limits()));
    match super::shake_hands(done, deadline, check_signals) {
        Ok((socket, _)) => Web::new(socket).map_err(os),
        Err(Unopened::Stopped(error)) => Err(error),
        Err(Unopened::Late) => {
            bail!("TimeoutError", "{url}: no answer within the time allowed (`timeout=`)")
        }
        Err(Unopened::Failed(tungstenite::Error::Http(response))) => {
            let body = response.body().as_deref().unwrap_or_default();
            let body = printable(&String::from_utf8_lossy(&body[..body.len().min(BODY_MAX)]));
            bail!("ConnectionError", "{url}: the server refuses: {} {body}", response.status())
        }
        Err(Unopened::Failed(why)) => {
            bail!("ConnectionError", "{url}: no WebSocket server answers there: {why}")
        }
    }
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
        let address = |host: &str, port| Address { host: host.into(), port };
        assert_eq!(Address::parse("ws://board:9190").unwrap(), address("board", 9190));
        assert_eq!(Address::parse("ws://board/name?x").unwrap(), address("board", 80));
        assert_eq!(Address::parse("ws://[::1]:7/").unwrap(), address("::1", 7));
        for (url, why) in [
            ("wss://board", "TLS"),
            ("http://board", "scheme"),
            ("ws://", ""),
            ("board:9190", ""),
            ("ws://a b", ""),
        ] {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error.kind(), "ValueError");
            assert!(error.message().contains(why), "{url}: {}", error.message());
        }
    }
}
