//! The client's end of the handshake.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyfn::{Result, bail, check_signals, error};
use tungstenite::HandshakeError;
use tungstenite::client::{IntoClientRequest, client_with_config};

use super::Bridge;
use super::side::Web;

/// Default port of a URL without one.
const PORT: u16 = 80;

/// Time by which a proxy gives up earlier than this client.
const MARGIN: Duration = Duration::from_millis(500);

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
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_read_timeout(Some(left)).map_err(os)?;
    stream.set_write_timeout(Some(left)).map_err(os)?;
    stream.set_nodelay(true).map_err(os)?;
    match client_with_config(url, stream, Some(super::limits())) {
        Ok((socket, _)) => Web::new(socket).map_err(os),
        Err(HandshakeError::Interrupted(_)) => {
            bail!("TimeoutError", "{url}: no answer within the time allowed (`timeout=`)")
        }
        Err(HandshakeError::Failure(tungstenite::Error::Http(response))) => {
            let body = response
                .body()
                .as_deref()
                .map(|body| String::from_utf8_lossy(body).into_owned())
                .unwrap_or_default();
            bail!("ConnectionError", "{url}: the server refuses: {} {body}", response.status())
        }
        Err(HandshakeError::Failure(why)) => {
            bail!("ConnectionError", "{url}: no WebSocket server answers there: {why}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
