//! Compiler passes: transformations of functions and modules.
//!
//! - [`Pass`]: a pass as an object, implemented by a function of any language. [`Pipeline`]: an ordered list of passes
//!   that can be modified, observed, timed and printed.
//! - [`native`]: the built-in passes, each a plain function, and the default pipeline.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

mod access;
mod check_bounds;
mod compact_buffers;
mod hoist;
mod kernel_extents;
mod loops;
mod lower_blocks;
mod lower_packed_calls;
mod lower_parallel;
mod make_packed_api;
pub mod native;
mod pass;
mod pipeline;
mod place_allocations;
mod private_buffers;
mod share_buffers;
mod simplify;
mod split_host_device;
mod vector_loops;
mod vectorize;
mod verify;
mod verify_bounds;
mod verify_types;
mod widen_floats;

pub use check_bounds::check_bounds;
pub use compact_buffers::compact_buffers;
pub use hoist::hoist;
pub use loops::unroll;
pub use lower_blocks::lower_blocks;
pub use lower_packed_calls::lower_packed_calls;
pub use lower_parallel::lower_parallel;
pub use make_packed_api::make_packed_api;
pub use native::default_pipeline;
pub use pass::{Pass, PassKind};
pub use pipeline::{Moment, Pipeline, Position};
pub use place_allocations::place_allocations;
pub use private_buffers::{THREAD_AXES, private_buffers};
pub use share_buffers::share_buffers;
pub use simplify::simplify;
pub use split_host_device::split_host_device;
pub use vector_loops::vector_loops;
pub use vectorize::vectorize;
pub use verify::{verify, verify_module};
pub use widen_floats::widen_floats;
