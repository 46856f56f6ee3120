//! Global functions `tir.*`: default schedules.

use anyfn::{Ref, Result, register};
use anyfn_ir::func::PrimFunc;
use anyfn_schedule::Schedule;

use crate::target::{AsTarget, host};

/// Returns the default schedule of a function for a target, or for this machine if no target is given.
#[register("tir.default_schedule", blocking)]
fn default_schedule(func: Ref<PrimFunc>, #[default(None)] target: Option<AsTarget>) -> Result<Ref<Schedule>> {
    anyfn_passes::verify(&func)?;
    let target = target.map_or_else(host, |target| target.0)?;
    anyfn_autosched::default_schedule(&func, &target).map(Ref::new)
}

/// Completes a schedule for a target, or for this machine if no target is given: applies the
/// default schedule to the blocks that no step has been applied to, directly or through a loop
/// around the block. Blocks that a step has added are not inlined.
#[register("tir.finish_schedule", blocking)]
fn finish_schedule(schedule: Ref<Schedule>, #[default(None)] target: Option<AsTarget>) -> Result<()> {
    let target = target.map_or_else(host, |target| target.0)?;
    anyfn_autosched::finish(&schedule, &target)
}
