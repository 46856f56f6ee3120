//! The server's end of the handshake.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyfn::{Error, Result, bail, error};

use super::Bridge;
use super::http::{Exchange, Head, Unopened, accepted};
use super::messages::WebSocket;
use super::side::{Web, printable};
use crate::poll::{Polled, poll};

/// First byte of an HTTP request by `GET`, which begins a WebSocket. The protocol of sessions begins with another one.
const HTTP: u8 = b'G';

/// Answer to an HTTP request that is not the beginning of a WebSocket.
const NO_UPGRADE: &[u8] =
    b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\nContent-Length: 0\r\n\r\n";

/// Web pages that may connect. A browser sends the origin of a page (`https://example.org`) when the page opens a WebSocket, and the
/// page cannot change it. Programs other than browsers send no origin, and are not restricted by this list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(Vec<String>);

impl Origins {
    /// Creates a list of origins. `*` permits all origins, and `null` those of pages without one, such as local files.
    ///
    /// # Errors
    /// Returns `ValueError` for a string that is not an origin.
    pub fn new(all: Vec<String>) -> Result<Origins> {
        for origin in &all {
            let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            let is_origin = host
                .is_some_and(|host| !host.is_empty() && !host.contains(['/', ',', '@', ' ', '?', '#', '*']));
            if !is_origin && origin != "*" && origin != "null" && !is_scheme(origin) {
                bail!(
                    "ValueError",
                    "expected an origin such as `https://example.org` or `http://localhost:8080`, `null` or `*`, got {origin:?}"
                );
            }
        }
        Ok(Origins(all))
    }

    /// Parses the form that [`Origins::to_text`] returns.
    pub(crate) fn parse(text: &str) -> Origins {
        Origins(text.split(',').filter(|origin| !origin.is_empty()).map(String::from).collect())
    }

    /// Returns the origins, separated by commas.
    pub(crate) fn to_text(&self) -> String {
        self.0.join(",")
    }

    /// Returns why the page that sends `request` may not use `what`. A request without an origin does not come from a browser.
    pub(super) fn check(&self, request: &Head, what: &str) -> std::result::Result<(), String> {
        let mut all = request.values("Origin");
        let Some(origin) = all.next() else { return Ok(()) };
        if all.next().is_some() {
            return Err(format!("expected at most one origin, got several; none of them may use this {what}"));
        }
        let origin = printable(&String::from_utf8_lossy(origin));
        match self.allow(&origin) {
            true => Ok(()),
            false => Err(format!(
                "pages of the origin {origin} may not use this {what}: `--allow-origin {origin}` permits it"
            )),
        }
    }

    /// Returns true if pages of `origin` may connect.
    pub fn allow(&self, origin: &str) -> bool {
        self.0.iter().any(|one| one == "*" || one.eq_ignore_ascii_case(origin))
    }
}

/// Returns true for the origin of an extension of a browser, such as `chrome-extension://abc`.
fn is_scheme(origin: &str) -> bool {
    origin.split_once("-extension://").is_some_and(|(browser, id)| {
        !browser.is_empty()
            && !id.is_empty()
            && (browser.to_owned() + id).bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

/// Connection whose first bytes have been examined.
pub(crate) enum Accepted {
    /// The bytes of a session follow directly.
    Plain(OwnedFd),
    /// They follow in a WebSocket.
    Web(Bridge, OwnedFd),
}

/// Accepts a WebSocket on a connection that begins with one, and returns every other connection as it is.
///
/// # Errors
/// Returns `PermissionError` if pages of the client's origin may not connect, and `ConnectionError` if the client is too slow or
/// breaks the rules of HTTP or WebSocket. It has been told before.
pub(crate) fn accept(fd: OwnedFd, origins: &Origins, wait: Duration) -> Result<Accepted> {
    let stream = TcpStream::from(fd);
    let deadline = Instant::now() + wait;
    if !begins_with_http(&stream, deadline)? {
        return Ok(Accepted::Plain(stream.into()));
    }
    let (web, _) = upgrade(stream, deadline, |request| origins.check(request, "server"))?;
    let (bridge, session) = Bridge::start(web)?;
    Ok(Accepted::Web(bridge, session))
}

fn failed(why: impl std::fmt::Display) -> Error {
    error!("ConnectionError", "client: {why}")
}

fn begins_with_http(stream: &TcpStream, deadline: Instant) -> Result<bool> {
    use std::os::fd::AsFd;
    stream.set_nonblocking(true).map_err(failed)?;
    loop {
        let mut first = [0];
        match stream.peek(&mut first) {
            Ok(count) => {
                stream.set_nonblocking(false).map_err(failed)?;
                return Ok(count == 1 && first[0] == HTTP);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(error)),
        }
        let Some(left) = deadline.checked_duration_since(Instant::now()) else {
            bail!("TimeoutError", "client: no bytes within the time allowed")
        };
        poll(&mut [Polled::read(stream.as_fd())], Some(left)).map_err(failed)?;
    }
}

/// Performs the handshake. `check` decides about the request, and returns the reason for which it is refused. Returns the WebSocket and
/// the target of the request (its path and query).
pub(super) fn upgrade(
    stream: TcpStream,
    deadline: Instant,
    check: impl FnOnce(&Head) -> std::result::Result<(), String>,
) -> Result<(Web, String)> {
    stream.set_nonblocking(true).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let exchange = Exchange { stream: &stream, deadline, check: || Ok(()) };
    let opened = exchange.request().and_then(|(head, rest)| {
        let key = accepted(head.key()?);
        if !rest.is_empty() {
            return Err(Unopened::Invalid("bytes follow it before it is answered"));
        }
        Ok((head, key))
    });
    let result = opened.and_then(|(head, key)| {
        let answer = match check(&head) {
            Ok(()) => format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: {key}\r\n\r\n"
            ),
            Err(why) => {
                let length = why.len();
                let answer = format!(
                    "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\
                     Content-Length: {length}\r\n\r\n{why}"
                );
                let _ = exchange.send(answer.as_bytes());
                return Err(Unopened::Stopped(error!("PermissionError", "client: {why}")));
            }
        };
        exchange.send(answer.as_bytes())?;
        Ok(head.text)
    });
    match result {
        Ok(target) => Ok((Web::new(WebSocket::new(stream, true, &[])).map_err(failed)?, target)),
        Err(Unopened::Stopped(error)) => Err(error),
        Err(Unopened::Late) => {
            bail!("TimeoutError", "client: the WebSocket did not open within the time allowed")
        }
        Err(Unopened::Io(why)) => Err(failed(why)),
        Err(Unopened::Invalid(why)) => {
            let _ = exchange.send(NO_UPGRADE);
            bail!("ConnectionError", "client: the request does not open a WebSocket: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_origin() {
        let origins = Origins::new(vec!["https://a.example".into()]).unwrap();
        let request = |all: &[&str]| Head::of_fields(all.iter().map(|one| ("origin", *one)));
        assert!(origins.check(&request(&[]), "server").is_ok());
        assert!(origins.check(&request(&["https://a.example"]), "server").is_ok());
        let why = origins.check(&request(&["https://b.example"]), "proxy").unwrap_err();
        assert!(why.contains("may not use this proxy: `--allow-origin https://b.example`"), "{why}");
        let why = origins.check(&request(&["https://a.example", "https://b.example"]), "server").unwrap_err();
        assert!(why.starts_with("expected at most one origin"), "{why}");
        // The reason is in the log, which is read in terminals.
        let why = origins.check(&request(&["https://\u{9b}2J.example"]), "server").unwrap_err();
        assert!(!why.contains(char::is_control), "{why:?}");
        // A browser does not send lists, so no list is an origin.
        assert!(origins.check(&request(&["https://a.example https://b.example"]), "server").is_err());
    }

    #[test]
    fn origins_are_compared_as_a_whole() {
        let origins = Origins::new(vec!["https://a.example".into(), "http://localhost:8080".into()]).unwrap();
        assert!(origins.allow("https://a.example") && origins.allow("https://A.example"));
        for other in [
            "http://a.example",
            "https://a.example.evil.org",
            "https://a.example:1",
            "http://localhost",
            "null",
            "",
            "*",
        ] {
            assert!(!origins.allow(other), "{other}");
        }
        assert_eq!(Origins::parse(&origins.to_text()), origins);
        assert!(!Origins::default().allow("null"));
        assert!(Origins::new(vec!["*".into()]).unwrap().allow("http://x"));
        assert!(Origins::new(vec!["null".into()]).unwrap().allow("null"));
        assert!(Origins::new(vec!["chrome-extension://abc".into()]).unwrap().allow("chrome-extension://abc"));
        for wrong in ["example.org", "https://a.example/", "https://", "https://*.example", "a,b", ""] {
            let error = Origins::new(vec![wrong.into()]).unwrap_err();
            assert!(error.message().starts_with("expected an origin such as"), "{wrong}");
        }
    }
}
