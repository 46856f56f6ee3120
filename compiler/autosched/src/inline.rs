//! Inlining of stages into the stages that use their results. A stage is a block with the loops around it.

use std::collections::HashSet;

use anyfn::Result;
use anyfn_ir::StmtKind;
use anyfn_ir::analysis::is_var;
use anyfn_ir::expr::{Expr, IterKind};
use anyfn_ir::stmt::BufferStore;
use anyfn_schedule::Schedule;

use crate::cost;
use crate::stage::{Readers, Stage, stages};

/// Maximum cost, in simple operations, of a stage that is inlined although its results are then
/// computed repeatedly.
const CHEAP: i64 = 4;
/// Maximum number of reads of a stage's results if the stage is inlined although its results are
/// then computed repeatedly.
const MOST_USES: usize = 4;
/// Maximum cost, in simple operations, of a stage after another stage is inlined into it.
const LARGEST: i64 = 200;

/// Inlines stages into the stages that use their results, one after the other, where this is profitable.
pub(crate) fn inline(schedule: &Schedule) -> Result<()> {
    let mut kept: HashSet<String> = HashSet::new();
    loop {
        let all = stages(schedule)?;
        let readers = Readers::of(&*schedule.func()?, &all);
        let mut rest = all.iter().filter(|stage| kept.insert(stage.name.clone()));
        // A stage that was added by hand, such as a copy, would be useless if it were inlined.
        let pays = |stage: &&Stage| !schedule.is_added(&stage.name) && pays(stage, &all, &readers);
        let Some(next) = rest.find(pays) else { return Ok(()) };
        schedule.compute_inline(&next.name)?;
    }
}

/// Returns true if a stage can be inlined and inlining it is profitable.
fn pays(stage: &Stage, all: &[Stage], readers: &Readers) -> bool {
    let Some(store) = elementwise(stage) else { return false };
    let Some(reads) = readers.reads(&store.buffer) else { return false };
    let mut found = 0;
    let mut again = 1;
    let mut largest = 0;
    for (user, loads) in &reads.stages {
        let user = &all[*user];
        found += loads.len();
        let per_element =
            user.repetitions(0..user.loops.len()) / stage.repetitions(0..stage.loops.len()).max(1);
        again = again.max(per_element);
        largest = largest.max(cost::of_stmt(&user.block().body));
        // A sum of many products reads each factor many times, so its factors should be loaded from memory
        // instead of computed again.
        if user.is_reduction() && per_element > 1 {
            return false;
        }
    }
    // Statements that are not stages may also use it.
    if found == 0 || found != reads.count {
        return false;
    }
    let operations = cost::of_expr(&store.value);
    let is_once = found == 1 && again <= 1;
    largest + operations <= LARGEST && (is_once || (operations <= CHEAP && found <= MOST_USES))
}

/// Returns the store of a stage. Returns `None` if the stage does not compute each element
/// independently, or if the indices of the store are not distinct axes.
fn elementwise(stage: &Stage) -> Option<&BufferStore> {
    let block = stage.block();
    let StmtKind::BufferStore(store) = StmtKind::of(&block.body) else { return None };
    let is_own = |index: &Expr| block.iter_vars.iter().any(|axis| is_var(index, &axis.var));
    let is_spatial = block.iter_vars.iter().all(|axis| axis.kind == IterKind::Spatial);
    let is_plain =
        store.indices.len() == block.iter_vars.len() && store.indices.iter().all(|index| is_own(&index));
    let reads_itself = !stage.loads_of(&store.buffer).is_empty();
    let mut places = Vec::new();
    for index in store.indices.iter() {
        places.push(block.iter_vars.iter().position(|axis| is_var(&index, &axis.var)));
    }
    places.sort_unstable();
    places.dedup();
    let is_distinct = places.len() == block.iter_vars.len();
    (is_spatial && is_plain && is_distinct && !reads_itself && block.init.is_none()).then_some(&**store)
}
