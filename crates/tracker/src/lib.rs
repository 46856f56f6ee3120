//! The tracker: shares a pool of servers among many clients.
//!
//! Servers register their devices with a kind and labels. Clients request devices, wait in a fair queue, and receive leases. A lease
//! is a key that the server accepts for one session. It ends with that session, so the device returns whatever happens to the client.
//!
//! In reading order: [`state`] decides everything and does no I/O; [`journal`] keeps the decisions in a file; [`message`] contains
//! the messages of servers and clients; [`service`] is the tracker as a server of sessions; [`agent`] registers a server with a
//! tracker and installs the keys of its leases. The client is `rpc.request` in `anyfn-rpc`. `docs/tracker.md` is the guide.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

pub mod agent;
pub mod journal;
pub mod message;
pub mod service;
pub mod state;

pub use agent::Agent;
pub use service::{Options, Service};
