//! The server with real processes and sockets. The session processes are this program itself (`worker`), which speaks a
//! language of its own: a line with the key, then a command a line. What is tested is the listener, and what is left behind.

#![cfg(target_os = "linux")]

use anyfn_core as _;
use anyfn_reflect as _;
use anyfn_runtime as _;

mod clients;
mod limits;
mod real;
mod rig;
mod start;
mod worker;
