//! `tir.*`: default schedules.

use anyfn::{Ref, Result, register};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::target::{AsTarget, Target};
use anyfn_schedule::Schedule;

/// Returns the default schedule of a function for a target, or for this machine if no target is given.
#[register("tir.default_schedule", blocking)]
fn default_schedule(func: Ref<PrimFunc>, #[default(None)] target: Option<AsTarget>) -> Result<Ref<Schedule>> {
    anyfn_passes::verify(&func)?;
    let target = target.map_or_else(Target::host, |target| target.0)?;
    anyfn_autosched::default_schedule(&func, &target).map(Ref::new)
}
