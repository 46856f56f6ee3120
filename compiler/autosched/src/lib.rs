//! Default schedules for functions without a schedule.
//!
//! A stage is a block that has its own loops. Cheap stages are inlined. Each remaining stage is scheduled
//! separately: contiguous accesses are vectorized, and loops are distributed over threads if this is
//! profitable. All transformations are steps of [`Schedule`], which checks them. If no step can be applied,
//! the function is unchanged.
//!
//! [`default_schedule`] applies all of these steps. A pipeline applies them in two passes: [`inlined`], then
//! [`scheduled`]. [`finish`] applies them to the stages that a schedule by hand has not changed, and [`unscheduled`]
//! lists such stages.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

mod cost;
mod device;
mod elementwise;
mod inline;
mod matmul;
mod reduction;
mod rows;
mod stage;
mod tile;

use std::collections::HashSet;

use anyfn::{Ref, Result};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::target::Target;
use anyfn_schedule::Schedule;

use crate::stage::{PARALLEL_WORK, Stage};

/// Origin of the steps of the default schedule, in a trace.
const ORIGIN: &str = "default_schedule";

/// Returns the default schedule of a function for a target. The function must already have been verified, and must not
/// be scheduled yet.
///
/// # Errors
/// Returns `ValueError` if several blocks of the function have the same name.
pub fn default_schedule(func: &Ref<PrimFunc>, target: &Target) -> Result<Schedule> {
    let mut schedule = Schedule::of_verified(func.clone())?;
    inline_stages(&mut schedule)?;
    schedule_stages(&mut schedule, target)?;
    schedule.set_origin(0, ORIGIN);
    Ok(schedule)
}

/// Completes a schedule for a target: applies the default schedule to the stages that no step has
/// been applied to, directly or through one of their loops. All other stages remain as they are.
/// Stages that a step such as `cache_write` has added are not inlined.
///
/// A step of the default schedule that is refused is left out, without an error.
///
/// # Errors
/// Returns `RuntimeError` if another thread applies a step to the schedule at the same time, and `MemoryError` when
/// memory runs out. The schedule is then as it was before, apart from that step.
pub fn finish(schedule: &Schedule, target: &Target) -> Result<()> {
    let mut rest = schedule.copy();
    let num_steps = rest.trace().steps.len();
    rest.fix_touched();
    inline_stages(&mut rest)?;
    schedule_stages(&mut rest, target)?;
    rest.set_origin(num_steps, ORIGIN);
    schedule.assign(&rest, num_steps)
}

/// Returns the names of the costly stages that the default schedule would still change in a
/// function that was scheduled by hand.
///
/// # Errors
/// Returns `ValueError` if several blocks of the function have the same name.
pub fn unscheduled(func: &Ref<PrimFunc>, target: &Target) -> Result<Vec<String>> {
    let mut schedule = Schedule::of_verified(func.clone())?;
    let before = stage::stages(&schedule)?;
    schedule_stages(&mut schedule, target)?;
    let after = stage::stages(&schedule)?;
    let is_left = |stage: &&Stage| {
        stage.work() >= PARALLEL_WORK && after.iter().all(|unchanged| unchanged.name != stage.name)
    };
    Ok(before.iter().filter(is_left).map(|stage| stage.name.clone()).collect())
}

/// Inlines cheap stages into the stages that use their results.
fn inline_stages(schedule: &mut Schedule) -> Result<()> {
    if !stage::stages(schedule)?.is_empty() {
        try_out(schedule, "inline", inline::inline);
    }
    Ok(())
}

/// Schedules each stage of a function for a target.
fn schedule_stages(schedule: &mut Schedule, target: &Target) -> Result<()> {
    if stage::stages(schedule)?.is_empty() {
        return Ok(());
    }
    if target.device_kind().is_some() {
        return device::schedule_stages(schedule, target);
    }
    let mut tried: Vec<String> = Vec::new();
    while let Some(next) = rows::rows(schedule, target, &tried)? {
        try_out(schedule, next.name(), |schedule| rows::schedule(schedule, &next, target));
        tried.push(next.name().to_owned());
    }
    let mut done: HashSet<String> = HashSet::new();
    let mut parted: Vec<String> = Vec::new();
    // A stage may be split into two, which are scheduled in turn.
    while let Some(next) = stage::stages(schedule)?.into_iter().find(|stage| !done.contains(&stage.name)) {
        if let Some(product) = matmul::product(&next, target) {
            let is_large = next.is_large(target);
            if try_out(schedule, &next.name, |schedule| matmul::schedule(schedule, &next, &product, is_large)) {
                done.insert(next.name.clone());
                continue;
            }
        }
        if let Some(products) = tile::products(&next, target) {
            let is_large = next.is_large(target);
            if try_out(schedule, &next.name, |schedule| tile::schedule(schedule, &next, &products, is_large)) {
                done.insert(next.name.clone());
                continue;
            }
        }
        if next.is_large(target)
            && !parted.contains(&next.name)
            && reduction::wants_partial_results(&next)
            && try_out(schedule, &next.name, |schedule| reduction::partial_results(schedule, &next))
        {
            parted.push(next.name.clone());
            continue;
        }
        done.insert(next.name.clone());
        try_out(schedule, &next.name, |schedule| stage_schedule(schedule, &next, target));
    }
    Ok(())
}

/// Applies the first part of the default schedule to a function: inlines cheap stages into the stages that
/// use their results. Returns the function unchanged if it is already scheduled, or if no stage is inlined.
#[must_use]
pub fn inlined(func: &Ref<PrimFunc>) -> Ref<PrimFunc> {
    let inlined = changed(func, inline_stages);
    // The function is not scheduled yet.
    PrimFunc::with_body(func.clone(), inlined.body.clone())
}

/// Applies the second part of the default schedule to a function: schedules each stage for a target. Returns the function
/// unchanged if it is already scheduled, or if there is no default schedule for it.
#[must_use]
pub fn scheduled(func: &Ref<PrimFunc>, target: &Target) -> Ref<PrimFunc> {
    changed(func, |schedule| schedule_stages(schedule, target))
}

/// Applies schedule steps to a function and returns the result. Returns the function unchanged if it is
/// already scheduled or if the steps fail.
fn changed(func: &Ref<PrimFunc>, steps: impl FnOnce(&mut Schedule) -> Result<()>) -> Ref<PrimFunc> {
    if !matches!(func.attrs.get("scheduled"), Ok(None)) {
        return func.clone();
    }
    let made = Schedule::of_verified(func.clone()).and_then(|mut schedule| {
        steps(&mut schedule)?;
        schedule.func()
    });
    match made {
        Ok(func) => func,
        Err(error) => {
            report("the function", &error);
            func.clone()
        }
    }
}

fn stage_schedule(schedule: &Schedule, stage: &Stage, target: &Target) -> Result<()> {
    let is_large = stage.is_large(target);
    if stage.is_reduction() {
        reduction::schedule(schedule, stage, is_large)
    } else {
        elementwise::schedule(schedule, stage, is_large)
    }
}

/// Applies several steps to a schedule and returns true. If a step fails, leaves the schedule
/// unchanged and returns false.
fn try_out(schedule: &mut Schedule, what: &str, steps: impl FnOnce(&Schedule) -> Result<()>) -> bool {
    let trial = schedule.copy();
    match steps(&trial) {
        Ok(()) => {
            *schedule = trial;
            true
        }
        Err(error) => {
            report(what, &error);
            false
        }
    }
}

/// Prints the error of a failed step if the environment variable `ANYFN_DEBUG_SCHEDULE` is set to a value
/// other than 0. The failure is a defect in this crate, but harmless to users, since the schedule remains
/// valid.
fn report(what: &str, error: &anyfn::Error) {
    if std::env::var_os("ANYFN_DEBUG_SCHEDULE").is_some_and(|value| value != "0") {
        eprintln!("default schedule of {what}: {}", error.message());
    }
}
