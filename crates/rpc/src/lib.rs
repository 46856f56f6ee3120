//! Sessions, over which a process calls functions and uses modules and tensors of another process or machine.
//!
//! Both ends of a session are peers: each may call the functions that the other has passed to it. The modules in reading order:
//! [`frame`] (messages in a byte stream), `handshake` and `channel` (authentication and encryption), `value` (serialised values),
//! `handles` (objects that the peer may refer to), `connection` (calls in flight), `service` (operations that a session offers),
//! `session` and `remote` (the client's interface), `server` (one process for each client). `docs/rpc.md` specifies the protocol.

// Links the runtime into the tests.
#[cfg(test)]
extern crate anyfn_loader as _;

pub mod channel;
mod code;
mod connection;
mod establish;
pub mod frame;
mod given;
mod handles;
pub mod handshake;
pub mod keys;
mod loan;
pub mod policy;
mod polling;
mod processor;
mod remote;
#[cfg(target_os = "linux")]
pub mod server;
mod service;
mod session;
mod sink;
mod socket;
mod store;
pub mod value;

pub use connection::{CALLS_MAX, Connection, is_cancelled};
pub use establish::{Arrival, Guest};
pub use handshake::Refused;
pub use keys::Key;
pub use remote::{RemoteObject, RemoteTensor};
pub use session::Session;
