//! Schedules of stages that compute each element independently. A stage is a block with the loops around it.

use anyfn::{Any, Ref, Result};
use anyfn_ir::expr::Var;
use anyfn_schedule::Schedule;

use crate::stage::{Stage, Stride};

/// Minimum trip count of a loop that is vectorized.
const FEWEST: i64 = 4;
/// Number of iterations of a stage's outer loops that suffices to occupy all threads.
const SHARED: i64 = 8;
/// Number of elements along the last axis of a stage that each task computes if the stage's outer loops have
/// too few iterations to occupy all threads.
const PIECE: i64 = 16 * 1024;
/// Minimum size in bytes of a result that is stored by instructions that bypass the caches.
const STREAMED: i64 = 32 << 20;
/// Edge length of the square tiles of a transposition.
const SQUARE: i64 = 32;

/// Schedules a stage: vectorizes its last axis or, for a transposition, splits it into square
/// tiles. If `is_large` is true, also distributes the outer loops over threads.
pub(crate) fn schedule(schedule: &Schedule, stage: &Stage, is_large: bool) -> Result<()> {
    let mut loops = schedule.get_loops(&stage.name)?;
    let Some(last) = loops.len().checked_sub(1) else { return Ok(()) };
    if let Some(across) = across(stage) {
        return squares(schedule, loops, across, is_large);
    }
    let Some(mut inner) = loops.pop() else { return Ok(()) };
    if is_large && stage.repetitions(0..last) < SHARED && stage.extent(last) > PIECE {
        let parts = schedule.split(inner, vec![None, Some(PIECE)])?;
        inner = parts[1].clone();
        loops.push(parts[0].clone());
    }
    if is_large {
        if let Some(outer) = loops.last().filter(|_| is_streamed(stage)) {
            schedule.annotate(Any::new(outer.clone())?, "nontemporal", Any::new(true)?)?;
        }
        share(schedule, loops)?;
    }
    if stage.extent(last) >= FEWEST && is_beside(stage, last) {
        schedule.vectorize(inner)?;
    }
    Ok(())
}

/// Vectorizes the last loop of a stage where this is profitable. For each axis, `loops` contains
/// the current loop, or `None` if that loop also contains other stages.
pub(crate) fn vectors(schedule: &Schedule, stage: &Stage, loops: &[Option<Ref<Var>>]) -> Result<()> {
    let Some(last) = loops.len().checked_sub(1) else { return Ok(()) };
    match &loops[last] {
        Some(inner) if stage.extent(last) >= FEWEST && is_beside(stage, last) => {
            schedule.vectorize(inner.clone())
        }
        _ => Ok(()),
    }
}

/// Returns true if a stage is a transposition that should be computed in square tiles.
pub(crate) fn is_across(stage: &Stage) -> bool {
    across(stage).is_some()
}

/// Returns true if the results of a stage are too large to stay in caches.
fn is_streamed(stage: &Stage) -> bool {
    let places = 0..stage.loops.len();
    let bytes =
        stage.block().writes.iter().map(|region| i64::from(region.buffer.dtype.0.bits.div_ceil(8))).sum();
    let elements = places.clone().try_fold(1i64, |count, place| count.checked_mul(stage.known_extent(place)?));
    elements.and_then(|count| count.checked_mul(bytes)).is_some_and(|bytes| bytes >= STREAMED)
}

/// Fuses loops and distributes the iterations of the fused loop over threads.
pub(crate) fn share(schedule: &Schedule, mut loops: Vec<Ref<Var>>) -> Result<()> {
    match loops.pop() {
        Some(only) if loops.is_empty() => schedule.parallel(only),
        Some(last) => {
            loops.push(last);
            schedule.parallel(schedule.fuse(loops)?)
        }
        None => Ok(()),
    }
}

/// Returns true if all accesses of a stage are contiguous along the loop with index `place`.
/// Repeated reads of the same element are also accepted.
fn is_beside(stage: &Stage, place: usize) -> bool {
    stage.accesses(place).iter().all(|access| match access.stride {
        Stride::Next => true,
        Stride::Same => !access.is_write,
        Stride::Far => false,
    })
}

/// Returns the index of the loop along which a transposition reads contiguous elements. Along its
/// last loop, a transposition writes contiguous elements but reads elements that are not
/// contiguous. Returns `None` for other stages, and for transpositions that are too small for
/// tiles.
fn across(stage: &Stage) -> Option<usize> {
    let last = stage.loops.len().checked_sub(1)?;
    let accesses = stage.accesses(last);
    let is_far = accesses.iter().any(|access| !access.is_write && access.stride == Stride::Far);
    let writes_next = accesses.iter().all(|access| !access.is_write || access.stride == Stride::Next);
    if !is_far || !writes_next || stage.extent(last) < SQUARE {
        return None;
    }
    (0..last).find(|place| {
        let reads_next =
            stage.accesses(*place).iter().any(|access| !access.is_write && access.stride == Stride::Next);
        reads_next && stage.extent(*place) >= SQUARE
    })
}

/// Returns the index of the loop along which a transposition reads contiguous elements, and the index, among the buffers
/// that its block reads, of the buffer that is transposed. Returns `None` for other stages.
pub(crate) fn transposed(stage: &Stage) -> Option<(usize, usize)> {
    let across = across(stage)?;
    let last = stage.loops.len().checked_sub(1)?;
    let (reads_far, reads_next) = (stage.accesses(last), stage.accesses(across));
    let far = reads_far.iter().find(|access| !access.is_write && access.stride == Stride::Far)?;
    let is_next = reads_next
        .iter()
        .any(|access| !access.is_write && access.stride == Stride::Next && access.buffer.ptr_eq(&far.buffer));
    let reads = &stage.block().reads;
    let number = reads.iter().position(|region| region.buffer.ptr_eq(&far.buffer))?;
    is_next.then_some((across, number))
}

/// Splits the last loop and the loop `across` into square tiles, so that each cache line that is read is used
/// completely.
fn squares(schedule: &Schedule, mut loops: Vec<Ref<Var>>, across: usize, is_large: bool) -> Result<()> {
    let Some(last) = loops.pop() else { return Ok(()) };
    let other = loops.remove(across);
    let rows = schedule.split(other, vec![None, Some(SQUARE)])?;
    let columns = schedule.split(last, vec![None, Some(SQUARE)])?;
    loops.push(rows[0].clone());
    loops.push(columns[0].clone());
    let order: Vec<_> = loops.iter().chain([&rows[1], &columns[1]]).cloned().collect();
    schedule.reorder(order)?;
    if is_large { share(schedule, loops) } else { Ok(()) }
}
