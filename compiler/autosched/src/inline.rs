//! Which stages are computed where they are used.

use anyfn::{Ref, Result};
use anyfn_ir::StmtKind;
use anyfn_ir::analysis::is_var;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, IterKind};
use anyfn_ir::stmt::{BufferStore, Stmt};
use anyfn_schedule::Schedule;

use crate::cost;
use crate::stage::{Stage, loads_of, stages};

/// Operations that may be done again for each use.
const CHEAP: i64 = 4;
/// Uses of what is done again.
const MOST_USES: usize = 4;
/// Operations of a stage that others may be put into.
const LARGEST: i64 = 200;

/// Puts stages into those that use them, one after the other.
pub(crate) fn inline(schedule: &Schedule) -> Result<()> {
    let mut kept: Vec<String> = Vec::new();
    loop {
        let all = stages(schedule)?;
        let Some(next) = all.iter().find(|stage| !kept.contains(&stage.name)) else { return Ok(()) };
        if pays(schedule, next, &all)? {
            schedule.compute_inline(&next.name)?;
        } else {
            kept.push(next.name.clone());
        }
    }
}

/// Whether it pays to compute a stage where it is used; and is possible.
fn pays(schedule: &Schedule, stage: &Stage, all: &[Stage]) -> Result<bool> {
    let Some(store) = elementwise(stage) else { return Ok(false) };
    let func = schedule.func()?;
    if func.buffer_map.iter().any(|(_, buffer)| buffer.data.ptr_eq(&store.buffer.data)) {
        return Ok(false);
    }
    // Others may use it, which are not stages.
    let uses = count(&func.body, &store.buffer);
    let mut found = 0;
    let mut again = 1;
    let mut largest = 0;
    for user in all {
        let count = count(&user.block().body, &store.buffer);
        if count == 0 {
            continue;
        }
        found += count;
        let per_element =
            user.repetitions(0..user.loops.len()) / stage.repetitions(0..stage.loops.len()).max(1);
        again = again.max(per_element);
        largest = largest.max(cost::of_stmt(&user.block().body));
        // A sum of many products reads each factor again and again: as fast as it can.
        if user.is_reduction() && per_element > 1 {
            return Ok(false);
        }
    }
    if found == 0 || found != uses {
        return Ok(false);
    }
    let operations = cost::of_expr(&store.value);
    let is_once = found == 1 && again <= 1;
    Ok(largest + operations <= LARGEST && (is_once || (operations <= CHEAP && found <= MOST_USES)))
}

/// What a stage stores if it computes each element by itself, at the place that its axes tell.
fn elementwise(stage: &Stage) -> Option<&BufferStore> {
    let block = stage.block();
    let StmtKind::BufferStore(store) = StmtKind::of(&block.body) else { return None };
    let is_own = |index: &Expr| block.iter_vars.iter().any(|axis| is_var(index, &axis.var));
    let is_spatial = block.iter_vars.iter().all(|axis| axis.kind == IterKind::Spatial);
    let is_plain =
        store.indices.len() == block.iter_vars.len() && store.indices.iter().all(|index| is_own(&index));
    let reads_itself = count(&block.body, &store.buffer) > 0;
    let mut places = Vec::new();
    for index in store.indices.iter() {
        places.push(block.iter_vars.iter().position(|axis| is_var(&index, &axis.var)));
    }
    places.sort_unstable();
    places.dedup();
    let is_distinct = places.len() == block.iter_vars.len();
    (is_spatial && is_plain && is_distinct && !reads_itself && block.init.is_none()).then_some(&**store)
}

/// How often elements of a buffer are read.
fn count(stmt: &Stmt, buffer: &Ref<Buffer>) -> usize {
    loads_of(stmt, buffer).len()
}
