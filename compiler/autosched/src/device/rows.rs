//! Schedules of stages that are computed together, row by row, such as the stages of a softmax: a block of threads
//! computes a row, whose intermediate results stay in shared memory.

use anyfn::{Ref, Result, bail};
use anyfn_ir::expr::{IterKind, Var};
use anyfn_ir::kind::as_int;
use anyfn_ir::target::Target;
use anyfn_schedule::Schedule;

use crate::device::fused;
use crate::matmul::own_loop;
use crate::rows::Rows;
use crate::stage::Stage;

/// Number of threads that compute a row.
const THREADS: i64 = 64;
/// Minimum length of a reduction that the threads of a block share, and minimum number of partial results.
const SHORTEST: i64 = 16;

/// Computes rows in blocks of threads.
///
/// # Errors
/// Returns the error of a step, and `ValueError` if the intermediate results do not fit into shared memory.
pub(crate) fn schedule(schedule: &Schedule, rows: &Rows, target: &Target) -> Result<()> {
    let threads = THREADS.min(target.max_threads);
    if rows.bytes() > target.local_memory / 2 {
        bail!(
            "ValueError",
            "the intermediate results of a row have {} bytes, too many for shared memory",
            rows.bytes()
        );
    }
    // Partial results must be introduced before the stages are moved into a common loop.
    let mut partial: Vec<Option<(String, i64)>> = Vec::new();
    for (stage, _) in &rows.others {
        partial.push(partial_results(schedule, stage, threads)?);
    }
    let of_last = partial_results(schedule, &rows.last, threads)?;
    let loops = schedule.get_loops(&rows.last.name)?;
    let Some(row) = loops.get(rows.count - 1) else {
        bail!("InternalError", "the last stage has fewer loops than expected")
    };
    if let Some((name, _)) = &of_last {
        schedule.compute_at(name, row.clone())?;
    }
    for ((stage, _), partial) in rows.others.iter().zip(&partial) {
        schedule.compute_at(&stage.name, row.clone())?;
        if let Some((name, _)) = partial {
            schedule.compute_at(name, row.clone())?;
        }
    }
    let row_places: Vec<usize> = (0..rows.count).collect();
    inside(schedule, &rows.last, &row_places, threads)?;
    for (stage, own) in &rows.others {
        inside(schedule, stage, own, threads)?;
    }
    for (name, extent) in partial.iter().flatten().chain(&of_last) {
        // The loop over partial results is the one before the remaining reduction.
        let found = schedule.place(name)?;
        let Some(node) = found.loops.iter().rev().find(|node| as_int(&node.extent) == Some(*extent)) else {
            bail!("InternalError", "block `{name}` has no loop over partial results")
        };
        let var = node.loop_var.clone();
        schedule.get_loops(name)?;
        schedule.bind(var, "threadIdx.x")?;
    }
    if let Some(row) = fused(schedule, loops[..rows.count].to_vec())? {
        schedule.bind(row, "blockIdx.x")?;
    }
    Ok(())
}

/// Splits the reduction of a stage into partial results, one for each thread. Returns the name of the new stage and the
/// number of partial results, or `None` if the stage is not split.
fn partial_results(schedule: &Schedule, stage: &Stage, threads: i64) -> Result<Option<(String, i64)>> {
    let [depth] = stage.places(IterKind::Reduce)[..] else { return Ok(None) };
    let Some(extent) = stage.known_extent(depth).filter(|_| stage.block().init.is_some()) else {
        return Ok(None);
    };
    // All threads have the same number of elements, since a stage with a condition cannot be moved.
    let Some(parts) = (SHORTEST..=threads).rev().find(|parts| extent % parts == 0 && extent > *parts) else {
        return Ok(None);
    };
    let loops = schedule.get_loops(&stage.name)?;
    let parted = schedule.split(loops[depth].clone(), vec![None, Some(parts)])?;
    Ok(Some((schedule.rfactor(&stage.name, parted[1].clone())?.to_string(), parts)))
}

/// Binds the last spatial loop of a stage within a row to threads. The first thread executes a stage without such a loop.
fn inside(schedule: &Schedule, stage: &Stage, rows: &[usize], threads: i64) -> Result<()> {
    let spatial = stage.places(IterKind::Spatial);
    let Some(last) = spatial.into_iter().rfind(|place| !rows.contains(place)) else { return Ok(()) };
    schedule.get_loops(&stage.name)?;
    let own: Ref<Var> = own_loop(schedule, stage, &stage.name, last)?.loop_var.clone();
    let parts = schedule.split(own, vec![None, Some(threads)])?;
    if stage.is_reduction() {
        return schedule.bind(parts[1].clone(), "threadIdx.x");
    }
    schedule.reorder(vec![parts[1].clone(), parts[0].clone()])?;
    schedule.bind(parts[1].clone(), "threadIdx.x")
}
