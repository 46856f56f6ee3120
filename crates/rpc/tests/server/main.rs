//! Tests the server with real processes and sockets. This program also acts as the session processes
//! (`worker`), with a simple protocol: a line with the key, then one command per line. The tests check the
//! listener, and that no process, file or descriptor is left behind.

#![cfg(target_os = "linux")]

use anyfn_loader as _;
use anyfn_reflect as _;
use anyfn_runtime as _;

mod clients;
mod limits;
mod real;
mod rig;
mod start;
mod worker;
