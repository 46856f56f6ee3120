//! Schedules: sequences of checked transformations of the loops and blocks of a function.
//!
//! A step that would change the result of the function returns an error that names the dependence that
//! prevents it. Steps refer to a loop by its variable and to a block by its name. The steps are recorded as a
//! trace, which can be printed, saved and replayed on another function. `steps` is the table of all steps.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

mod annotate;
mod arguments;
mod blocks;
mod cache;
mod compute_at;
mod index_map;
mod kind;
mod layout;
mod loops;
mod pad_axes;
mod reduction;
mod reverse;
mod reverse_inline;
mod rfactor;
mod scope;
mod steps;
mod threads;
mod trace;
mod tree;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyfn::{Any, Array, DType, Object, PackedFunc, Ref, Result, String, bail, methods};
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::size;

pub use index_map::IndexMap;
pub use kind::Kind;
pub use steps::{Parameter, STEPS, StepInfo};
pub use trace::{Step, Trace};
pub use tree::BlockPath;

use steps::Applied;

/// Function whose loops and blocks are transformed step by step.
#[derive(Object)]
#[object(key = "tir.Schedule", init = false)]
pub struct Schedule {
    #[field(skip)]
    state: Mutex<ScheduleState>,
}

#[derive(Clone)]
struct ScheduleState {
    func: Ref<PrimFunc>,
    steps: Vec<Step>,
    /// Loop variables, indexed by the numbers of their loops in the trace.
    loops: Vec<Ref<Var>>,
    /// Names of the blocks of the function for which the schedule was created.
    original: Arc<HashSet<std::string::String>>,
    /// Names of the blocks that [`Schedule::fix_touched`] has marked as fixed.
    fixed: Arc<HashSet<std::string::String>>,
}

type Loop = Ref<Var>;

impl Schedule {
    fn state(&self) -> MutexGuard<'_, ScheduleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the block called `block` and the loops that are currently around it. The call is not recorded as a step.
    ///
    /// # Errors
    /// Returns `ValueError` if no block has that name.
    pub fn place(&self, block: &str) -> Result<BlockPath> {
        tree::find_block(&self.state().func, block)
    }

    /// Creates a schedule for a function, which must already have been verified.
    ///
    /// # Errors
    /// Returns `ValueError` if several blocks have the same name.
    pub fn of_verified(func: Ref<PrimFunc>) -> Result<Schedule> {
        if let Some(name) = blocks::repeated_names(&func).first() {
            bail!(
                "ValueError",
                "several blocks have the name `{name}`; the blocks of a schedule must have unique names"
            );
        }
        let places = tree::blocks(&func.body);
        let original = Arc::new(places.iter().map(|place| place.block().name.to_string()).collect());
        let (steps, loops, fixed) = (Vec::new(), Vec::new(), Arc::default());
        Ok(Schedule { state: Mutex::new(ScheduleState { func, steps, loops, original, fixed }) })
    }

    /// Marks as fixed all blocks to which steps have been applied, directly or through a loop
    /// around the block. The default schedule does not change fixed blocks. Steps that only return
    /// loops are ignored.
    pub fn fix_touched(&self) {
        let mut state = self.state();
        let steps = || state.steps.iter().filter(|step| &*step.name != "get_loops");
        let mut fixed: HashSet<std::string::String> =
            steps().filter_map(|step| step.block.as_ref().map(|name| name.to_string())).collect();
        let known = |number: i64| state.loops.get(usize::try_from(number).ok()?).map(tree::address);
        let loops: HashSet<usize> =
            steps().flat_map(|step| step.loops.iter().filter_map(known).collect::<Vec<_>>()).collect();
        for place in tree::blocks(&state.func.body) {
            if place.loops.iter().any(|node| loops.contains(&tree::address(&node.loop_var))) {
                fixed.insert(place.block().name.to_string());
            }
        }
        state.fixed = Arc::new(fixed);
    }

    /// Returns true if [`Schedule::fix_touched`] has marked the block called `block` as fixed.
    #[must_use]
    pub fn is_fixed(&self, block: &str) -> bool {
        self.state().fixed.contains(block)
    }

    /// Returns true if the function has a block called `block` that was added by a step, such as
    /// `cache_write`.
    #[must_use]
    pub fn is_added(&self, block: &str) -> bool {
        let state = self.state();
        !state.original.contains(block) && tree::find_block(&state.func, block).is_ok()
    }

    /// Sets the origin of all steps from number `first` on, such as `default_schedule`. The origin of a step that the user
    /// has applied is `None`.
    pub fn set_origin(&self, first: usize, origin: &str) {
        for step in self.state().steps.iter_mut().skip(first) {
            step.origin = Some(origin.into());
        }
    }

    /// Replaces the function and the steps of this schedule by those of `other`. The schedule
    /// `other` must have begun as a copy of this schedule, when this schedule had `num_steps`
    /// steps.
    ///
    /// # Errors
    /// Returns `RuntimeError` if further steps have been applied to this schedule since then.
    #[doc(hidden)]
    pub fn assign(&self, other: &Schedule, num_steps: usize) -> Result<()> {
        let ScheduleState { func, steps, loops, .. } = other.state().clone();
        let mut state = self.state();
        if state.steps.len() != num_steps {
            bail!("RuntimeError", "the schedule was changed by another thread at the same time");
        }
        (state.func, state.steps, state.loops) = (func, steps, loops);
        Ok(())
    }

    /// Returns `given` if it is an index map. Otherwise, calls `given` with the indices of `buffer`, and
    /// returns the map from these indices to the results of the call.
    fn index_map(&self, block: &str, buffer: &Any, given: &Any) -> Result<Ref<IndexMap>> {
        if let Ok(map) = given.get::<Ref<IndexMap>>() {
            return Ok(map);
        }
        let Ok(function) = given.get::<PackedFunc>() else {
            bail!(
                "TypeError",
                "an index map must be a function of indices or a tir.IndexMap, not a `{}`",
                given.type_key()
            );
        };
        let func = self.state().func.clone();
        let scope = scope::Scope::of(&func)?;
        let buffer = layout::buffer_of(&scope.leaves[scope.find(block)?], buffer)?;
        let dtypes: Vec<DType> = buffer.shape.iter().map(|extent| extent.dtype).collect();
        Ok(Ref::new(IndexMap::of_function(&function, &dtypes)?))
    }

    /// Returns the number that identifies a loop in the trace.
    fn number_of(&self, wanted: &Loop) -> Result<i64> {
        match self.state().loops.iter().position(|known| known.ptr_eq(wanted)) {
            Some(number) => Ok(number as i64),
            None => {
                bail!(
                    "ValueError",
                    "`{}` is not a loop of this schedule; obtain its loops from get_loops",
                    wanted.name
                )
            }
        }
    }

    /// Applies a step, records it, and returns its result. If the step fails, the schedule is unchanged.
    fn step(&self, mut step: Step) -> Result<Applied> {
        let mut state = self.state();
        let applied = steps::apply(&state.func, &step, &state.loops)?;
        threads::check(&applied.func)?;
        // An argument may be a node that has not been verified.
        let args = step.args.as_slice();
        if args.iter().any(|arg| arg.get::<Ref<IndexMap>>().is_ok() || arg.get::<Expr>().is_ok()) {
            anyfn_passes::verify(&applied.func)?;
        } else {
            size::check_func(&applied.func)?;
        }
        step.results = applied.loops.len() as i64;
        state.func = applied.func.clone();
        state.steps.push(step);
        state.loops.extend(applied.loops.iter().cloned());
        Ok(applied)
    }
}

#[methods]
impl Schedule {
    /// Verifies a function and creates a schedule for it.
    #[init]
    pub fn new(func: Ref<PrimFunc>) -> Result<Schedule> {
        anyfn_passes::verify(&func)?;
        Schedule::of_verified(func)
    }

    /// Returns the function in its current form. Its attribute `scheduled` prevents `build` from scheduling it again.
    pub fn func(&self) -> Result<Ref<PrimFunc>> {
        let func = self.state().func.clone();
        if func.attrs.get("scheduled")?.is_some() {
            return Ok(func);
        }
        PrimFunc::with_attr(func, "scheduled".into(), Any::new(true)?)
    }

    /// Returns an independent copy of the schedule, for steps that may have to be discarded.
    pub fn copy(&self) -> Schedule {
        Schedule { state: Mutex::new(self.state().clone()) }
    }

    /// Applies the steps of a trace to a function and returns the resulting schedule.
    pub fn replay(func: Ref<PrimFunc>, trace: Ref<Trace>) -> Result<Schedule> {
        let schedule = Schedule::new(func)?;
        for step in trace.steps.iter() {
            anyfn::check_signals()?;
            let applied = schedule.step(step.replayed())?;
            if applied.loops.len() as i64 != step.results {
                bail!(
                    "ValueError",
                    "step `{}` returned {} loops, but the trace records {}",
                    step.name,
                    applied.loops.len(),
                    step.results
                );
            }
        }
        Ok(schedule)
    }

    /// Returns the steps applied so far.
    pub fn trace(&self) -> Ref<Trace> {
        Ref::new(Trace { steps: self.state().steps.iter().map(|step| Ref::new(step.clone())).collect() })
    }

    /// Sets the source of the latest step, or of all steps from number `first` on: the location in the user's program,
    /// such as `tune.py:14`, and the source line there. Steps are numbered from 0. Python calls this after each step.
    ///
    /// # Errors
    /// Returns `ValueError` if `first` is negative, or if it is not given and the schedule has no step.
    pub fn set_source(
        &self,
        source: &str,
        #[default(None)] code: Option<&str>,
        #[default(None)] first: Option<i64>,
    ) -> Result<()> {
        let mut state = self.state();
        let first = match (first, state.steps.len()) {
            (Some(first @ ..=-1), _) => {
                bail!("ValueError", "expected the number of a step as `first`, got {first}")
            }
            (Some(first), _) => usize::try_from(first).unwrap_or(usize::MAX),
            (None, 0) => {
                bail!("ValueError", "the schedule has no steps; apply a step before you set its source")
            }
            (None, len) => len - 1,
        };
        for step in state.steps.iter_mut().skip(first) {
            (step.source, step.code) = (Some(source.into()), code.map(String::from));
        }
        Ok(())
    }

    /// Returns the names of all blocks, in execution order.
    pub fn get_blocks(&self) -> Array<String> {
        tree::blocks(&self.state().func.body).iter().map(|place| place.block().name.clone()).collect()
    }

    /// Returns `name` if a block of that name exists, and raises an error otherwise.
    pub fn get_block(&self, name: &str) -> Result<String> {
        Ok(tree::find_block(&self.state().func, name)?.block().name.clone())
    }
}
