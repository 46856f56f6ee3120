//! Counts the objects that this copy of the crate has made and not freed yet.
//!
//! Each library that contains the crate counts its own objects, so a loader can tell whether code of the library is
//! still needed. The count is split over cache lines, picked by the thread's stack address, so that threads that make
//! objects at the same time do not share one.

use core::sync::atomic::{AtomicIsize, Ordering};

const SHARDS: usize = 16;

#[repr(align(64))]
struct Shard(AtomicIsize);

static COUNTS: [Shard; SHARDS] = [const { Shard(AtomicIsize::new(0)) }; SHARDS];

#[inline(always)]
fn shard() -> &'static AtomicIsize {
    let here = 0u8;
    let stack = core::ptr::from_ref(&here).addr();
    &COUNTS[(stack >> 20) % SHARDS].0
}

#[inline(always)]
pub(crate) fn created() {
    shard().fetch_add(1, Ordering::Relaxed);
}

#[inline(always)]
pub(crate) fn freed() {
    shard().fetch_sub(1, Ordering::Relaxed);
}

/// Number of objects that this library has made and that are not freed yet.
///
/// Exact when no other thread makes or frees objects at the same time.
///
/// ```
/// # use anyfn_core as _;
/// let before = anyfn::live_objects();
/// let text = anyfn::String::from("longer than seven bytes");
/// assert_eq!(anyfn::live_objects(), before + 1);
/// drop(text);
/// assert_eq!(anyfn::live_objects(), before);
/// ```
pub fn live_objects() -> isize {
    COUNTS.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum()
}
