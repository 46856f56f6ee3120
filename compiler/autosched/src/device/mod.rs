//! Schedules for devices: each stage becomes a kernel, whose threads share the elements of the result. The limits of the
//! target bound the number of threads of a block and the memory that they share.

mod matmul;
mod rows;

use anyfn::{Any, Ref, Result, bail};
use anyfn_ir::StmtKind;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, IterKind, Var};
use anyfn_ir::kind::as_int;
use anyfn_ir::stmt::Stmt;
use anyfn_ir::target::Target;
use anyfn_ir::visit::Visitor;
use anyfn_passes::{compact_buffers, lower_blocks, place_allocations, simplify};
use anyfn_schedule::Schedule;

use crate::stage::{Stage, stages};
use crate::{elementwise, rows as host_rows, try_out};

/// Number of threads of a block that computes independent elements.
const THREADS: i64 = 64;
/// Number of results below which a reduction is split into partial results, to occupy the threads.
const FEW: i64 = 64;
/// Number of partial results of each result.
const PARTS: i64 = 1024;
/// Edge length of the square tiles of a transposition.
const SQUARE: i64 = 16;

/// Schedules each stage of a function for a device.
pub(crate) fn schedule_stages(schedule: &mut Schedule, target: &Target) -> Result<()> {
    let mut tried: Vec<String> = Vec::new();
    while let Some(next) = host_rows::rows(schedule, target, &tried)? {
        tried.push(next.name().to_owned());
        try_out(schedule, next.name(), |schedule| {
            rows::schedule(schedule, &next, target)?;
            check_placed(schedule, target)
        });
    }
    let mut done: Vec<String> = Vec::new();
    let mut parted: Vec<String> = Vec::new();
    // A stage may be split into two, which are scheduled in turn.
    while let Some(next) = stages(schedule)?.into_iter().find(|stage| !done.contains(&stage.name)) {
        if let Some(product) = matmul::product(&next, target)
            && try_out(schedule, &next.name, |schedule| {
                matmul::schedule(schedule, &next, &product)?;
                check_placed(schedule, target)
            })
        {
            done.push(next.name.clone());
            continue;
        }
        if !parted.contains(&next.name)
            && wants_partial_results(&next)
            && try_out(schedule, &next.name, |schedule| partial_results(schedule, &next))
        {
            parted.push(next.name.clone());
            continue;
        }
        done.push(next.name.clone());
        if target.max_threads >= SQUARE * SQUARE
            && elementwise::is_across(&next)
            && try_out(schedule, &next.name, |schedule| {
                squares(schedule, &next)?;
                check_placed(schedule, target)
            })
        {
            continue;
        }
        try_out(schedule, &next.name, |schedule| elements(schedule, &next, target));
    }
    Ok(())
}

/// Schedules a stage so that each thread computes an element of the result. A stage of one element is unchanged: the pass
/// `split_host_device` makes it a kernel of one thread.
fn elements(schedule: &Schedule, stage: &Stage, target: &Target) -> Result<()> {
    let loops = schedule.get_loops(&stage.name)?;
    let of = |kind: IterKind| -> Vec<Ref<Var>> {
        stage.places(kind).into_iter().filter_map(|place| loops.get(place).cloned()).collect()
    };
    let (spatial, reducing) = (of(IterKind::Spatial), of(IterKind::Reduce));
    // The iterations over axes of another kind depend on each other.
    if spatial.is_empty() || spatial.len() + reducing.len() < loops.len() {
        return Ok(());
    }
    let order: Vec<Ref<Var>> = spatial.iter().chain(&reducing).cloned().collect();
    if !reducing.is_empty() && order.len() > 1 {
        schedule.reorder(order)?;
    }
    bind(schedule, spatial, THREADS.min(target.max_threads))?;
    if stage.block().init.is_some()
        && let Some(first) = reducing.first()
    {
        schedule.decompose_reduction(&stage.name, first.clone())?;
    }
    Ok(())
}

/// Checks that a device can allocate the buffers of a schedule: those that the threads of a block share or own inside of the
/// loops over blocks, with known sizes, and within the memory that the threads share.
fn check_placed(schedule: &Schedule, target: &Target) -> Result<()> {
    struct Find {
        is_in_block: bool,
        is_in_thread: bool,
        shared_bytes: i64,
        refused: Option<String>,
    }
    impl Find {
        fn allocated(&mut self, buffer: &Buffer) {
            let bytes = i64::from(buffer.dtype.0.bits.div_ceil(8));
            let size = buffer.shape.iter().try_fold(bytes, |bytes, extent| bytes.checked_mul(as_int(&extent)?));
            match size {
                _ if !self.is_in_block && &*buffer.scope == "global" => {}
                _ if !self.is_in_block => {
                    self.refused = Some(format!("`{}` is outside of the loops over blocks", buffer.name))
                }
                None => self.refused = Some(format!("the size of `{}` is not known", buffer.name)),
                Some(size) if !self.is_in_thread && &*buffer.scope != "local" => {
                    self.shared_bytes = self.shared_bytes.saturating_add(size);
                }
                Some(_) => {}
            }
        }
    }
    impl Visitor for Find {
        fn expr(&mut self, _: &Expr) {}
        fn stmt(&mut self, stmt: &Stmt) {
            let before = (self.is_in_block, self.is_in_thread);
            match StmtKind::of(stmt) {
                StmtKind::For(node) => {
                    self.is_in_block |= node.kind.is_over_blocks();
                    self.is_in_thread |= node.kind.is_over_threads();
                }
                StmtKind::Allocate(node) => self.allocated(&node.buffer),
                _ => {}
            }
            self.below_stmt(stmt);
            (self.is_in_block, self.is_in_thread) = before;
        }
    }
    let lowered = compact_buffers(&place_allocations(&simplify(&lower_blocks(&schedule.func()?)?)?)?)?;
    let mut find = Find { is_in_block: false, is_in_thread: false, shared_bytes: 0, refused: None };
    find.stmt(&lowered.body);
    if find.shared_bytes > target.local_memory {
        find.refused = Some(format!("the threads of a block share {} bytes", find.shared_bytes));
    }
    match find.refused {
        Some(reason) => bail!("ValueError", "a buffer cannot be allocated on the device: {reason}"),
        None => Ok(()),
    }
}

/// Fuses loops into one.
fn fused(schedule: &Schedule, mut loops: Vec<Ref<Var>>) -> Result<Option<Ref<Var>>> {
    match loops.pop() {
        Some(only) if loops.is_empty() => Ok(Some(only)),
        Some(last) => {
            loops.push(last);
            schedule.fuse(loops).map(Some)
        }
        None => Ok(None),
    }
}

/// Fuses loops and binds the iterations of the fused loop to the threads of blocks of the given size.
fn bind(schedule: &Schedule, loops: Vec<Ref<Var>>, threads: i64) -> Result<()> {
    let Some(fused) = fused(schedule, loops)? else { return Ok(()) };
    let parts = schedule.split(fused, vec![None, Some(threads)])?;
    schedule.bind(parts[0].clone(), "blockIdx.x")?;
    schedule.bind(parts[1].clone(), "threadIdx.x")
}

/// Returns true if a reduction has too few results to occupy the threads of a device.
fn wants_partial_results(stage: &Stage) -> bool {
    let [depth] = stage.places(IterKind::Reduce)[..] else { return false };
    let results = stage.repetitions(stage.places(IterKind::Spatial));
    stage.block().init.is_some()
        && results < FEW
        && stage.known_extent(depth).is_some_and(|extent| extent >= 4 * PARTS)
}

/// Splits a reduction into partial results. Threads that are neighbours read neighbouring elements.
fn partial_results(schedule: &Schedule, stage: &Stage) -> Result<()> {
    let loops = schedule.get_loops(&stage.name)?;
    let [depth] = stage.places(IterKind::Reduce)[..] else { return Ok(()) };
    let parts = schedule.split(loops[depth].clone(), vec![None, Some(PARTS)])?;
    schedule.rfactor(&stage.name, parts[1].clone()).map(drop)
}

/// Schedules a transposition in square tiles, which the threads of a block read to shared memory, so that neighbouring
/// threads both read and write neighbouring elements.
fn squares(schedule: &Schedule, stage: &Stage) -> Result<()> {
    let Some((across, number)) = elementwise::transposed(stage) else { return Ok(()) };
    let mut loops = schedule.get_loops(&stage.name)?;
    let tile = schedule.cache_read(&stage.name, Any::new(number as i64)?, "shared")?.to_string();
    let Some(last) = loops.pop() else { return Ok(()) };
    let other = loops.remove(across);
    let rows = schedule.split(other, vec![None, Some(SQUARE)])?;
    let columns = schedule.split(last, vec![None, Some(SQUARE)])?;
    let order = loops.iter().chain([&rows[0], &columns[0], &rows[1], &columns[1]]).cloned().collect();
    schedule.reorder(order)?;
    if let Some(outer) = fused(schedule, loops)? {
        schedule.bind(outer, "blockIdx.z")?;
    }
    schedule.bind(rows[0].clone(), "blockIdx.y")?;
    schedule.bind(columns[0].clone(), "blockIdx.x")?;
    schedule.bind(rows[1].clone(), "threadIdx.y")?;
    schedule.bind(columns[1].clone(), "threadIdx.x")?;
    schedule.compute_at(&tile, columns[0].clone())?;
    // The last dimension that is read is that of the loop `across`.
    let own: Vec<Ref<Var>> = schedule.get_loops(&tile)?;
    let [.., first, second] = &own[..] else { return Ok(()) };
    schedule.bind(first.clone(), "threadIdx.y")?;
    schedule.bind(second.clone(), "threadIdx.x")
}
