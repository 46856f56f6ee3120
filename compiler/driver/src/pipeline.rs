//! The default pipeline and the scheduling passes, which depend on the target of the module.

use anyfn::{Ref, Result, bail};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::target::Target;
use anyfn_passes::{Pass, Pipeline, Position, native};

use crate::target;

/// Function that implements a scheduling pass. It receives a primitive function and the target, and
/// returns the transformed function.
type Schedule = fn(&Ref<PrimFunc>, &Target) -> Ref<PrimFunc>;

/// Names and implementations of the scheduling passes, in the order in which the default pipeline
/// applies them.
const SCHEDULING: &[(&str, Schedule)] =
    &[("inline", |func, _| anyfn_autosched::inlined(func)), ("default_schedule", anyfn_autosched::scheduled)];

/// Returns a pass of the compiler by name.
///
/// # Errors
/// Returns `ValueError` if no pass has that name.
pub fn pass(name: &str) -> Result<Ref<Pass>> {
    if let Some((name, schedule)) = SCHEDULING.iter().find(|(known, _)| *known == name) {
        return Ok(scheduling(name, *schedule));
    }
    match native::find(name) {
        Some(pass) => Ok(pass),
        None => bail!("ValueError", "unknown pass `{name}`; known passes are {}", pass_names().join(", ")),
    }
}

/// Returns a pass that schedules the functions of a module for the target of the module.
fn scheduling(name: &str, schedule: Schedule) -> Ref<Pass> {
    Pass::on_funcs(name, move |func, module| Ok(schedule(func, &*target::of(module)?)))
}

/// Returns the names of all passes of the compiler.
#[must_use]
pub(crate) fn pass_names() -> Vec<&'static str> {
    SCHEDULING.iter().map(|(name, _)| *name).chain(native::names()).collect()
}

/// Creates the default pipeline: the scheduling passes, followed by the passes that lower functions to the
/// form that code generators accept ([`anyfn_passes::default_pipeline`]).
///
/// # Errors
/// Returns the error of inserting a pass.
pub fn default_pipeline() -> Result<Ref<Pipeline>> {
    let pipeline = anyfn_passes::default_pipeline();
    for (name, schedule) in SCHEDULING.iter().rev() {
        pipeline.put(Position::Before, None, scheduling(name, *schedule))?;
    }
    Ok(pipeline)
}
