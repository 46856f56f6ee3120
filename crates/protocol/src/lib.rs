//! The protocol of remote sessions as a state machine: bytes go in, bytes come out. This crate does no I/O.
//!
//! [`ClientOpening`] and [`ServerOpening`] perform the handshake. From it an [`Endpoint`] results, one end of the session, which
//! starts calls, receives calls, and answers them, in any order and at any time. An event loop, a page or a program on a board
//! moves its bytes and tells it the time. If threads can block on the transport, an [`endpoint::Driver`] does that, and proxies of
//! remote functions are called like local ones; `anyfn-rpc` is such a driver for sockets. `docs/rpc.md` specifies the protocol and
//! shows how to drive it.
//!
//! The modules in reading order: [`frame`] (messages in a byte stream), [`handshake`] and [`channel`] (authentication and
//! encryption), [`value`] (serialised values), [`opening`] (the beginning of a session), [`endpoint`] (calls in progress),
//! [`services`] (operations that a server offers).
//!
//! Without the feature `std`, the crate needs `alloc` only. Locks then spin, and the calls that run are shared by all threads.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate anyfn_core as _;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod channel;
#[cfg(target_arch = "x86_64")]
mod cipher;
pub mod code;
pub mod endpoint;
pub mod frame;
mod handles;
pub mod handshake;
pub mod key;
pub mod line;
mod loan;
pub mod opening;
mod remote;
pub mod services;
pub mod sink;
mod sync;
mod tables;
pub mod value;

pub use endpoint::{
    Answer, CALLS_MAX, Endpoint, IncomingCall, PendingCall, SessionLimits, answer_later, is_cancelled,
};
pub use handshake::Refused;
pub use key::{Key, Random, Secret};
pub use line::{Line, LineEvent};
pub use opening::{Arrival, ClientOpening, Opened, ServerOpening};
pub use remote::{RemoteObject, RemoteTensor, described, stands_for};
pub use sync::Guard;

/// Documentation tests: the Rust samples of `docs/rpc.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rpc.md")]
struct Guide;
