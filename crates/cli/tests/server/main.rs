//! `anyfn rpc server` as a process of its own, under everything that can go wrong: attacks, clients that vanish, cables that are
//! cut, many clients at once. After each of them the next client is served, and at the end nothing is left.
//!
//! With `ANYFN_SOAK` the tests take longer; with `ANYFN_FUZZ_SECONDS` those of `fuzz` do.

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
mod queue;
#[path = "../../../rpc/tests/hand/random.rs"]
mod random;
mod rig;
mod sessions;
