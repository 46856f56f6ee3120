//! The schedule that a function gets when none is given.
//!
//! Stages that are cheap are computed where they are used; each stage that is left is looked at by itself: what its loops
//! read and write side by side becomes vectors, and threads share what is left if that pays. All is done by the steps of
//! [`Schedule`], which check it: where nothing fits, a function stays as it is.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

mod cost;
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

use crate::stage::Stage;

/// Repetitions of simple operations that take longer than it takes to start threads.
const PARALLEL_WORK: i64 = 1 << 16;

/// The schedule of a function that nobody has scheduled and that was verified, for a machine.
///
/// # Errors
/// `ValueError` if the function has several blocks of one name.
pub fn default_schedule(func: &Ref<PrimFunc>, target: &Target) -> Result<Schedule> {
    let mut schedule = Schedule::of_verified(func.clone())?;
    if stage::stages(&schedule)?.is_empty() {
        return Ok(schedule);
    }
    try_out(&mut schedule, "inline", inline::inline);
    let mut tried: Vec<String> = Vec::new();
    while let Some(next) = rows::rows(&schedule, target, &tried)? {
        try_out(&mut schedule, next.name(), |schedule| rows::schedule(schedule, &next, target));
        tried.push(next.name().to_owned());
    }
    let mut done: HashSet<String> = HashSet::new();
    let mut parted: Vec<String> = Vec::new();
    // A stage may be split into two, which are looked at in turn.
    while let Some(next) = stage::stages(&schedule)?.into_iter().find(|stage| !done.contains(&stage.name)) {
        if let Some(product) = matmul::product(&next, target) {
            let is_large = is_large(&next, target);
            if try_out(&mut schedule, &next.name, |schedule| {
                matmul::schedule(schedule, &next, &product, is_large)
            }) {
                done.insert(next.name.clone());
                continue;
            }
        }
        if let Some(products) = tile::products(&next, target) {
            let is_large = is_large(&next, target);
            if try_out(&mut schedule, &next.name, |schedule| {
                tile::schedule(schedule, &next, &products, is_large)
            }) {
                done.insert(next.name.clone());
                continue;
            }
        }
        if is_large(&next, target)
            && !parted.contains(&next.name)
            && reduction::wants_partial_results(&next)
            && try_out(&mut schedule, &next.name, |schedule| reduction::partial_results(schedule, &next))
        {
            parted.push(next.name.clone());
            continue;
        }
        done.insert(next.name.clone());
        try_out(&mut schedule, &next.name, |schedule| stage_schedule(schedule, &next, target));
    }
    Ok(schedule)
}

/// The function with its default schedule; as it is if it has been scheduled, or there is none.
#[must_use]
pub fn scheduled(func: &Ref<PrimFunc>, target: &Target) -> Ref<PrimFunc> {
    if !matches!(func.attrs.get("scheduled"), Ok(None)) {
        return func.clone();
    }
    match default_schedule(func, target).and_then(|schedule| schedule.func()) {
        Ok(func) => func,
        Err(error) => {
            report("the function", &error);
            func.clone()
        }
    }
}

fn stage_schedule(schedule: &Schedule, stage: &Stage, target: &Target) -> Result<()> {
    let is_large = is_large(stage, target);
    if stage.is_reduction() {
        reduction::schedule(schedule, stage, is_large)
    } else {
        elementwise::schedule(schedule, stage, is_large)
    }
}

/// Whether a stage gets a tile in registers.
fn is_product(stage: &Stage, target: &Target) -> bool {
    matmul::product(stage, target).is_some() || tile::products(stage, target).is_some()
}

/// Whether it pays to let threads share a stage.
fn is_large(stage: &Stage, target: &Target) -> bool {
    target.num_cores > 1 && stage.work() >= PARALLEL_WORK
}

/// Does some steps; if one fails, none is done.
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

/// A step that fails was not thought through: harmless to users, and seen by whoever works on this with
/// `ANYFN_DEBUG_SCHEDULE=1` in the environment.
fn report(what: &str, error: &anyfn::Error) {
    if std::env::var_os("ANYFN_DEBUG_SCHEDULE").is_some_and(|value| value != "0") {
        eprintln!("default schedule of {what}: {}", error.message());
    }
}
