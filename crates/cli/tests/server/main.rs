//! Tests of `anyfn rpc server` in a separate process: attacks, clients that vanish, connections that break,
//! and many clients at once. After each test the next client is served, and at the end no process, file or
//! folder of a client remains.
//!
//! With `ANYFN_SOAK` the tests take longer. `ANYFN_FUZZ_SECONDS` sets the duration of the tests of `fuzz`.

#![cfg(target_os = "linux")]

mod attacks;
mod boundaries;
mod floods;
mod fuzz;
mod grants;
#[path = "../../../rpc/tests/hand/client.rs"]
mod hand;
mod hostile;
mod limits;
mod many;
mod proxy;
mod queue;
#[path = "../../../rpc/tests/hand/random.rs"]
mod random;
mod rig;
mod sessions;
mod websocket;
