//! Schedules of reductions: sums, products, minima, maxima, and custom reducers.

use anyfn::{Ref, Result};
use anyfn_ir::expr::{BinaryOp, IterKind, Var};
use anyfn_ir::{ExprKind, StmtKind};
use anyfn_schedule::Schedule;

use crate::elementwise::share;
use crate::stage::{PARALLEL_WORK, Stage, Stride};

/// Minimum trip count of a loop that is vectorized.
const FEWEST: i64 = 16;
/// Number of adjacent results that are updated together in the reduction loops, so that the results
/// stay in the L1 cache.
const PIECE: i64 = 1024;
/// Number of tasks that suffices to occupy all threads.
const SHARED: i64 = 8;
/// Maximum number of partial results for each result of a reduction that has at most `PARTS`
/// results. For a reduction with more results, the maximum is `PARTS_EACH`.
const PARTS: i64 = 64;
const PARTS_EACH: i64 = 16;

/// Schedules a reduction: makes a suitable loop the innermost one and vectorizes it. If `is_large`
/// is true, also distributes the iterations of the loops over results among threads.
pub(crate) fn schedule(schedule: &Schedule, stage: &Stage, is_large: bool) -> Result<()> {
    let loops = schedule.get_loops(&stage.name)?;
    arrange(schedule, stage, &loops.into_iter().map(Some).collect::<Vec<_>>(), is_large)
}

/// Schedules the current loops of a stage as [`schedule`] does. For each axis, `loops` contains the
/// current loop, or `None` if that loop also contains other stages.
pub(crate) fn arrange(
    schedule: &Schedule,
    stage: &Stage,
    loops: &[Option<Ref<Var>>],
    is_large: bool,
) -> Result<()> {
    let of =
        |kind| stage.places(kind).into_iter().filter_map(|place| Some((place, loops.get(place)?.clone()?)));
    let mut outer: Vec<(usize, Ref<Var>)> = of(IterKind::Spatial).collect();
    let mut middle: Vec<(usize, Ref<Var>)> = of(IterKind::Reduce).collect();
    if middle.is_empty() || !stage.places(IterKind::Ordered).is_empty() {
        return Ok(());
    }
    let chosen = vector_loop(stage, |place| loops.get(place).is_some_and(Option::is_some));
    let mut inner = None;
    if let Some(place) = chosen {
        let from = if stage.kind(place) == IterKind::Reduce { &mut middle } else { &mut outer };
        if let Some(number) = from.iter().position(|(known, _)| *known == place) {
            let (_, mut last) = from.remove(number);
            if stage.kind(place) == IterKind::Spatial && stage.extent(place) > PIECE {
                let parts = schedule.split(last, vec![None, Some(PIECE)])?;
                outer.push((place, parts[0].clone()));
                last = parts[1].clone();
            }
            middle.push((place, last.clone()));
            inner = Some(last);
        }
    }
    let names = |loops: Vec<(usize, Ref<Var>)>| loops.into_iter().map(|(_, var)| var).collect::<Vec<_>>();
    let (outer, middle) = (names(outer), names(middle));
    let order: Vec<_> = outer.iter().chain(&middle).cloned().collect();
    if order.len() > 1 {
        schedule.reorder(order)?;
    }
    // The first of the inner loops is a reduction loop.
    if stage.block().init.is_some() {
        let init = schedule.decompose_reduction(&stage.name, middle[0].clone())?;
        if chosen.is_some_and(|place| stage.kind(place) == IterKind::Spatial)
            && let Some(last) = schedule.get_loops(&init)?.last()
        {
            schedule.vectorize(last.clone())?;
        }
    }
    if is_large && !outer.is_empty() {
        share(schedule, outer)?;
    }
    match inner {
        Some(inner) => schedule.vectorize(inner),
        None => Ok(()),
    }
}

/// Returns the index of the loop to be vectorized, or `None` if no loop is suitable. Considers only loops for
/// which `fits` returns true, and chooses the one with the largest number of contiguous accesses.
fn vector_loop(stage: &Stage, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let is_simple = is_simple(stage);
    let mut best: Option<(i64, usize)> = None;
    for place in 0..stage.loops.len() {
        let reduces = stage.kind(place) == IterKind::Reduce;
        if !fits(place) || stage.extent(place) < FEWEST || (reduces && !is_simple) {
            continue;
        }
        let accesses = stage.accesses(place);
        let is_beside = accesses.iter().all(|access| match access.stride {
            Stride::Far => false,
            Stride::Same => reduces || !access.is_write,
            Stride::Next => !(reduces && access.is_write),
        });
        if !is_beside {
            continue;
        }
        let score = accesses.iter().filter(|access| access.stride == Stride::Next).count() as i64;
        if score > 0 && best.is_none_or(|(known, _)| score >= known) {
            best = Some((score, place));
        }
    }
    best.map(|(_, place)| place)
}

/// Returns true if a stage is a sum, product, minimum or maximum, so that its values may be
/// combined in any order.
fn is_simple(stage: &Stage) -> bool {
    let StmtKind::BufferStore(store) = StmtKind::of(&stage.block().body) else { return false };
    matches!(
        ExprKind::of(&store.value),
        ExprKind::Binary(BinaryOp::Add | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max, _)
    )
}

/// Returns true if a reduction should be split into partial results: it is costly, and it has too few results to occupy
/// all threads.
pub(crate) fn wants_partial_results(stage: &Stage) -> bool {
    let spatial = stage.places(IterKind::Spatial);
    let reducing = stage.places(IterKind::Reduce);
    let Some(first) = reducing.first() else { return false };
    let vectors = vector_loop(stage, |_| true).filter(|place| spatial.contains(place));
    let shared = stage.repetitions(spatial.iter().copied().filter(|place| Some(*place) != vectors));
    let pieces = vectors.map_or(1, |place| stage.extent(place) / PIECE + 1);
    is_simple(stage)
        && stage.block().init.is_some()
        && stage.work() >= 2 * PARALLEL_WORK
        && shared.saturating_mul(pieces) < SHARED
        && stage.extent(*first) >= 2 * SHARED
        && stage.known_extent(*first).is_some()
}

/// Splits a reduction into partial results, which can be computed in parallel.
pub(crate) fn partial_results(schedule: &Schedule, stage: &Stage) -> Result<()> {
    let loops = schedule.get_loops(&stage.name)?;
    let reducing = stage.places(IterKind::Reduce);
    let first = loops[reducing[0]].clone();
    let extent = stage.extent(reducing[0]);
    let most = if stage.repetitions(stage.places(IterKind::Spatial)) > PARTS { PARTS_EACH } else { PARTS };
    let taken = if extent <= most {
        first
    } else {
        // Use only as many parts as needed, so that no part is empty.
        let piece = extent.div_euclid(most) + i64::from(extent.rem_euclid(most) != 0);
        schedule.split(first, vec![None, Some(piece)])?[0].clone()
    };
    schedule.rfactor(&stage.name, taken).map(drop)
}
