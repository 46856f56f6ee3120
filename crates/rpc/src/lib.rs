//! Functions, modules and tensors of another process or machine, used as if they were here.
//!
//! Both ends are the same: each may call functions that the other has given it. In reading order: [`frame`] (messages in a
//! stream of bytes), `handshake` and `channel` (who is there, and encryption), `value` (values as bytes), `handles` (what
//! the other side may name), `connection` (calls in flight), `service` (what a session offers), `session` and `remote`
//! (what a client sees), `server` (a process of its own for each client). The bytes are written down in `docs/rpc.md`.

// The macros write `::anyfn`.
#[cfg(test)]
extern crate anyfn_core as _;

pub mod channel;
mod connection;
mod establish;
pub mod frame;
mod given;
mod handles;
pub mod handshake;
pub mod keys;
mod loan;
pub mod policy;
mod processor;
mod remote;
mod scope;
#[cfg(target_os = "linux")]
pub mod server;
mod service;
mod session;
mod socket;
mod store;
pub mod value;

pub use connection::{CALLS_MAX, Connection, is_cancelled};
pub use establish::{Arrival, Guest};
pub use handshake::Refused;
pub use keys::Key;
pub use remote::{RemoteObject, RemoteTensor};
pub use session::Session;
