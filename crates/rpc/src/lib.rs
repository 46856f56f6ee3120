//! Sessions, over which a process calls functions and uses modules and tensors of another process or machine.
//!
//! Both ends of a session are peers: each may call the functions that the other has passed to it. `anyfn_protocol` contains the
//! protocol; this crate drives it over sockets, with threads that block. The modules in reading order: `connection` (the driver),
//! `child` (the process of a spawned session), `establish` (the beginning of a session), `service` (operations that a session
//! offers), `session` (the client's interface), `server` (one process for each client), `websocket` (sessions of web pages). `docs/rpc.md` specifies the protocol.

// A build without the server does not use everything that sessions share with it.
#![cfg_attr(not(feature = "server"), allow(dead_code))]

// Links the runtime into the tests.
#[cfg(test)]
extern crate anyfn_loader as _;

mod child;
mod connection;
mod establish;
mod fork;
mod given;
pub mod keys;
pub mod policy;
mod poll;
mod polling;
mod processor;
mod serial;
#[cfg(all(target_os = "linux", feature = "server"))]
pub mod server;
mod service;
mod session;
mod signals;
mod socket;
mod store;
#[cfg(feature = "tracker")]
mod tracker;
#[cfg(feature = "websocket")]
pub mod websocket;

pub use anyfn_protocol::Refused;
pub use anyfn_protocol::{CALLS_MAX, RemoteObject, RemoteTensor, is_cancelled};
pub use connection::Connection;
pub use establish::{Arrival, Guest};
pub use keys::Key;
pub use session::Session;
