//! Schedules: the loops of a function transformed step by step.
//!
//! Each step is checked: one that would change what the function computes is an error that says which dependence forbids
//! it. A loop is known by its variable, a block by its name. What has been done is kept as a trace, which can be printed,
//! saved and done again on another function.

#[cfg(test)]
extern crate anyfn_core as _;

mod blocks;
mod loops;
mod trace;
mod tree;

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyfn::{Array, Object, Ref, Result, String, bail, methods};
use anyfn_ir::expr::Var;
use anyfn_ir::func::PrimFunc;

pub use trace::{Step, Trace};

/// A function whose loops are being transformed.
#[derive(Object)]
#[object(key = "tir.Schedule", init = false)]
pub struct Schedule {
    #[field(skip)]
    state: Mutex<State>,
}

struct State {
    func: Ref<PrimFunc>,
    steps: Vec<Step>,
    /// Numbers of loops in the trace: by how many loops were known before.
    loops: Vec<Ref<Var>>,
}

type Loop = Ref<Var>;

impl Schedule {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a step; if it fails, all is as before.
    fn step(
        &self,
        name: &str,
        loops: &[Loop],
        block: Option<&str>,
        numbers: &[Option<i64>],
    ) -> Result<Vec<Loop>> {
        let mut state = self.state();
        let mut step = Step::new(name, state.numbers_of(loops)?, block, numbers);
        let (func, results) = trace::apply(&state.func, name, loops, block, numbers)?;
        step.results = results.len() as i64;
        state.func = func;
        state.steps.push(step);
        state.loops.extend(results.iter().cloned());
        Ok(results)
    }
}

impl State {
    fn numbers_of(&self, loops: &[Loop]) -> Result<Vec<i64>> {
        loops
            .iter()
            .map(|wanted| match self.loops.iter().position(|known| known.ptr_eq(wanted)) {
                Some(number) => Ok(number as i64),
                None => {
                    bail!("ValueError", "`{}` is no loop of this schedule; take it from get_loops", wanted.name)
                }
            })
            .collect()
    }
}

#[methods]
impl Schedule {
    /// Begins with a function.
    #[init]
    pub fn new(func: Ref<PrimFunc>) -> Result<Schedule> {
        if let Some(name) = blocks::repeated_names(&func).first() {
            bail!(
                "ValueError",
                "block `{name}` is there more than once; blocks of a schedule need names of their own"
            );
        }
        Ok(Schedule { state: Mutex::new(State { func, steps: Vec::new(), loops: Vec::new() }) })
    }

    /// The function as it is now.
    pub fn func(&self) -> Ref<PrimFunc> {
        self.state().func.clone()
    }

    /// A schedule of a function to which the steps of another one are done.
    pub fn replay(func: Ref<PrimFunc>, trace: Ref<Trace>) -> Result<Schedule> {
        let schedule = Schedule::new(func)?;
        for step in trace.steps.iter() {
            let known = schedule.state().loops.clone();
            let find = |number: i64| usize::try_from(number).ok().and_then(|number| known.get(number)).cloned();
            let loops: Option<Vec<Loop>> = step.loops.iter().map(find).collect();
            let Some(loops) = loops else {
                bail!("ValueError", "step `{}` uses a loop that no step has given", step.name)
            };
            let numbers: Vec<Option<i64>> = step.numbers.iter().collect();
            let results = schedule.step(&step.name, &loops, step.block.as_deref(), &numbers)?;
            if results.len() as i64 != step.results {
                bail!(
                    "ValueError",
                    "step `{}` gives {} loops here but gave {}",
                    step.name,
                    results.len(),
                    step.results
                );
            }
        }
        Ok(schedule)
    }

    /// What has been done.
    pub fn trace(&self) -> Ref<Trace> {
        Ref::new(Trace { steps: self.state().steps.iter().map(|step| Ref::new(step.clone())).collect() })
    }

    /// Names of all blocks, in the order in which they run.
    pub fn get_blocks(&self) -> Array<String> {
        tree::blocks(&self.state().func.body).iter().map(|place| place.block().name.clone()).collect()
    }

    /// The name of a block, if it is there.
    pub fn get_block(&self, name: &str) -> Result<String> {
        Ok(tree::find_block(&self.state().func, name)?.block().name.clone())
    }

    /// The loops around a block, the outermost first.
    pub fn get_loops(&self, block: &str) -> Result<Vec<Loop>> {
        self.step("get_loops", &[], Some(block), &[])
    }

    /// Replaces a loop by as many as there are factors, which are the extents of the new ones; one of them may be None.
    pub fn split(&self, r#loop: Loop, factors: Vec<Option<i64>>) -> Result<Vec<Loop>> {
        self.step("split", &[r#loop], None, &factors)
    }

    /// Makes one loop of several, each right inside of the one before.
    pub fn fuse(&self, loops: Vec<Loop>) -> Result<Loop> {
        let mut fused = self.step("fuse", &loops, None, &[])?;
        fused.pop().ok_or_else(|| anyfn::Error::new("InternalError", "fuse gave no loop"))
    }

    /// Puts nested loops into this order.
    pub fn reorder(&self, loops: Vec<Loop>) -> Result<()> {
        self.step("reorder", &loops, None, &[]).map(drop)
    }

    /// Lets several threads carry out the repetitions of a loop.
    pub fn parallel(&self, r#loop: Loop) -> Result<()> {
        self.step("parallel", &[r#loop], None, &[]).map(drop)
    }

    /// Carries out the repetitions of a loop by instructions on vectors.
    pub fn vectorize(&self, r#loop: Loop) -> Result<()> {
        self.step("vectorize", &[r#loop], None, &[]).map(drop)
    }

    /// Writes the repetitions of a loop out.
    pub fn unroll(&self, r#loop: Loop) -> Result<()> {
        self.step("unroll", &[r#loop], None, &[]).map(drop)
    }

    /// Takes what comes before a reduction into a block of its own in front of a loop; gives its name.
    pub fn decompose_reduction(&self, block: &str, r#loop: Loop) -> Result<std::string::String> {
        self.step("decompose_reduction", &[r#loop], Some(block), &[])?;
        Ok(format!("{block}_init"))
    }

    /// Puts a block into those that read what it computes.
    pub fn compute_inline(&self, block: &str) -> Result<()> {
        self.step("compute_inline", &[], Some(block), &[]).map(drop)
    }
}
