//! Schedules: sequences of checked transformations of the loops and blocks of a function.
//!
//! A step that would change what the function computes returns an error that names the dependence in its way. Steps
//! refer to a loop by its variable and to a block by its name. The steps are recorded as a trace, which can be printed,
//! saved and replayed on another function.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

mod annotate;
mod blocks;
mod cache;
mod compute_at;
mod index_map;
mod layout;
mod loops;
mod pad_axes;
mod reduction;
mod reverse;
mod reverse_inline;
mod rfactor;
mod scope;
mod trace;
mod tree;

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyfn::{Any, Array, DType, Object, PackedFunc, Ref, Result, String, bail, methods};
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::operand::Operand;
use anyfn_ir::size;

pub use index_map::IndexMap;
pub use trace::{Step, Trace};
pub use tree::Place;

/// A function whose loops and blocks are transformed step by step.
#[derive(Object)]
#[object(key = "tir.Schedule", init = false)]
pub struct Schedule {
    #[field(skip)]
    state: Mutex<State>,
}

#[derive(Clone)]
struct State {
    func: Ref<PrimFunc>,
    steps: Vec<Step>,
    /// Loop variables, indexed by the numbers of the loops in the trace.
    loops: Vec<Ref<Var>>,
}

type Loop = Ref<Var>;

impl Schedule {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the block called `block` and the loops that are currently around it. The call is not recorded as a step.
    ///
    /// # Errors
    /// Returns `ValueError` if no block has that name.
    pub fn place(&self, block: &str) -> Result<Place> {
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
                "block `{name}` is there more than once; blocks of a schedule need names of their own"
            );
        }
        Ok(Schedule { state: Mutex::new(State { func, steps: Vec::new(), loops: Vec::new() }) })
    }

    /// Applies the step `name`, which creates a block, and returns the name of the new block.
    fn step_to_block(&self, name: &str, block: &str, args: &[Any]) -> Result<String> {
        let known: HashSet<String> = self.get_blocks().iter().collect();
        self.step(name, &[], Some(block), &[], args)?;
        match self.get_blocks().iter().find(|name| !known.contains(name)) {
            Some(name) => Ok(name),
            None => bail!("InternalError", "step `{name}` made no block"),
        }
    }

    /// Returns `given` if it is an index map. Otherwise, calls it as a function of the indices of `buffer` and returns
    /// the map that it describes.
    fn index_map(&self, block: &str, buffer: &Any, given: &Any) -> Result<Ref<IndexMap>> {
        if let Ok(map) = given.get::<Ref<IndexMap>>() {
            return Ok(map);
        }
        let Ok(function) = given.get::<PackedFunc>() else {
            bail!(
                "TypeError",
                "an index map is a function of indices or a tir.IndexMap, not a `{}`",
                given.type_key()
            );
        };
        let func = self.state().func.clone();
        let scope = scope::Scope::of(&func)?;
        let buffer = layout::buffer_of(&scope.leaves[scope.find(block)?], buffer)?;
        let dtypes: Vec<DType> = buffer.shape.iter().map(|extent| extent.dtype).collect();
        Ok(Ref::new(IndexMap::of_function(&function, &dtypes)?))
    }

    /// Applies and records the step `name`, and returns the loops that it created. If the step fails, the schedule is
    /// unchanged.
    fn step(
        &self,
        name: &str,
        loops: &[Loop],
        block: Option<&str>,
        numbers: &[Option<i64>],
        args: &[Any],
    ) -> Result<Vec<Loop>> {
        let mut state = self.state();
        let mut step = Step::new(name, state.numbers_of(loops)?, block, numbers, args);
        let (func, results) = trace::apply(&state.func, name, loops, block, numbers, args)?;
        // An argument may be a node that has not been verified.
        if args.iter().any(|arg| arg.get::<Ref<IndexMap>>().is_ok() || arg.get::<Expr>().is_ok()) {
            anyfn_passes::verify(&func)?;
        } else {
            size::check_func(&func)?;
        }
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

    /// Returns an independent schedule with the same state, for steps that may have to be discarded.
    pub fn copy(&self) -> Schedule {
        Schedule { state: Mutex::new(self.state().clone()) }
    }

    /// Applies the steps of a trace to a function and returns the resulting schedule.
    pub fn replay(func: Ref<PrimFunc>, trace: Ref<Trace>) -> Result<Schedule> {
        let schedule = Schedule::new(func)?;
        for step in trace.steps.iter() {
            anyfn::check_signals()?;
            let loops: Option<Vec<Loop>> = {
                let known = &schedule.state().loops;
                let find =
                    |number: i64| usize::try_from(number).ok().and_then(|number| known.get(number)).cloned();
                step.loops.iter().map(find).collect()
            };
            let Some(loops) = loops else {
                bail!("ValueError", "step `{}` uses a loop that no step has given", step.name)
            };
            let numbers: Vec<Option<i64>> = step.numbers.iter().collect();
            let results =
                schedule.step(&step.name, &loops, step.block.as_deref(), &numbers, step.args.as_slice())?;
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

    /// Returns the steps applied so far.
    pub fn trace(&self) -> Ref<Trace> {
        Ref::new(Trace { steps: self.state().steps.iter().map(|step| Ref::new(step.clone())).collect() })
    }

    /// Returns the names of all blocks, in execution order.
    pub fn get_blocks(&self) -> Array<String> {
        tree::blocks(&self.state().func.body).iter().map(|place| place.block().name.clone()).collect()
    }

    /// Returns `name` if there is a block of that name, and raises an error otherwise.
    pub fn get_block(&self, name: &str) -> Result<String> {
        Ok(tree::find_block(&self.state().func, name)?.block().name.clone())
    }

    /// Returns the loops around a block, outermost first.
    pub fn get_loops(&self, block: &str) -> Result<Vec<Loop>> {
        self.step("get_loops", &[], Some(block), &[], &[])
    }

    /// Splits a loop into nested loops whose extents are the factors, and returns them; one factor may be None and is
    /// then inferred. If the factors cover more iterations than the loop has, the blocks inside are guarded by a
    /// condition.
    pub fn split(&self, r#loop: Loop, factors: Vec<Option<i64>>) -> Result<Vec<Loop>> {
        self.step("split", &[r#loop], None, &factors, &[])
    }

    /// Fuses perfectly nested loops into one loop, and returns it.
    pub fn fuse(&self, loops: Vec<Loop>) -> Result<Loop> {
        let mut fused = self.step("fuse", &loops, None, &[], &[])?;
        fused.pop().ok_or_else(|| anyfn::Error::new("InternalError", "fuse gave no loop"))
    }

    /// Reorders nested loops into the given order, outermost first. Other loops of the nest keep their positions.
    pub fn reorder(&self, loops: Vec<Loop>) -> Result<()> {
        self.step("reorder", &loops, None, &[], &[]).map(drop)
    }

    /// Distributes the iterations of a loop over the threads of the runtime.
    pub fn parallel(&self, r#loop: Loop) -> Result<()> {
        self.step("parallel", &[r#loop], None, &[], &[]).map(drop)
    }

    /// Executes the iterations of a loop with vector instructions.
    pub fn vectorize(&self, r#loop: Loop) -> Result<()> {
        self.step("vectorize", &[r#loop], None, &[], &[]).map(drop)
    }

    /// Unrolls a loop: repeats its body once for each iteration.
    pub fn unroll(&self, r#loop: Loop) -> Result<()> {
        self.step("unroll", &[r#loop], None, &[], &[]).map(drop)
    }

    /// Moves the initialisation of a reduction into a new block in front of a loop. Returns the name of the new block.
    pub fn decompose_reduction(&self, block: &str, r#loop: Loop) -> Result<std::string::String> {
        self.step("decompose_reduction", &[r#loop], Some(block), &[], &[])?;
        Ok(format!("{block}_init"))
    }

    /// Adds a block that copies a buffer to memory of the given scope, and lets `block` read the copy. The buffer is
    /// given by its name, or by its index among the buffers that the block reads. The scope is `global`, or `local` for
    /// memory that only one task accesses. Returns the name of the new block, which is also the name of the copy.
    pub fn cache_read(&self, block: &str, buffer: Any, #[default("global")] scope: &str) -> Result<String> {
        self.step_to_block("cache_read", block, &[buffer, Any::new(scope)?])
    }

    /// Lets a block write to a new buffer in memory of the given scope, and adds a block that copies it to the original
    /// buffer. The original buffer is given by its name, or by its index among the buffers that the block writes.
    /// Returns the name of the new block, which is also the name of the new buffer.
    pub fn cache_write(&self, block: &str, buffer: Any, #[default("local")] scope: &str) -> Result<String> {
        self.step_to_block("cache_write", block, &[buffer, Any::new(scope)?])
    }

    /// Changes the memory layout of a buffer that the function allocates. The buffer is given by its name, or by its
    /// index among the buffers that the block writes, followed by those that it reads. `index_map` is a `tir.IndexMap`,
    /// or a function that receives the indices of an element and returns its new indices. The buffer may become larger.
    /// If `pad` is given, the loops of the block that sets the buffer run over all locations of the new layout, and the
    /// block sets locations that hold no element to that value.
    pub fn transform_layout(
        &self,
        block: &str,
        buffer: Any,
        index_map: Any,
        #[default(None)] pad: Option<Operand>,
    ) -> Result<()> {
        let map = self.index_map(block, &buffer, &index_map)?;
        let mut args = vec![buffer, Any::new(map)?];
        if let Some(pad) = pad {
            args.push(Any::new(pad.0)?);
        }
        self.step("transform_layout", &[], Some(block), &[], &args).map(drop)
    }

    /// Attaches an annotation, which consists of a key and a value, to a loop or to a block that is given by its name.
    /// Passes can read annotations.
    pub fn annotate(&self, target: Any, key: &str, value: Any) -> Result<()> {
        let args = [Any::new(key)?, value];
        if let Ok(block) = target.get::<String>() {
            return self.step("annotate", &[], Some(&block), &[], &args).map(drop);
        }
        self.step("annotate", &[target.get::<Loop>()?], None, &[], &args).map(drop)
    }

    /// Factors a reduction loop out into a separate axis of partial results. A new block computes the partial results
    /// independently of each other, and the original block combines them. Returns the name of the new block.
    pub fn rfactor(&self, block: &str, r#loop: Loop) -> Result<std::string::String> {
        self.step("rfactor", &[r#loop], Some(block), &[], &[])?;
        Ok(format!("{block}_rf"))
    }

    /// Moves a block into a loop that contains the blocks that read its result, so that each iteration computes the
    /// elements that it needs. The block gets new loops.
    pub fn compute_at(&self, block: &str, r#loop: Loop) -> Result<()> {
        self.step("compute_at", &[r#loop], Some(block), &[], &[]).map(drop)
    }

    /// Moves a block into a loop that contains the producer of its input, behind the producer. In each iteration, the
    /// block then uses the elements that were computed in the same iteration. The block gets new loops.
    pub fn reverse_compute_at(&self, block: &str, r#loop: Loop) -> Result<()> {
        self.step("reverse_compute_at", &[r#loop], Some(block), &[], &[]).map(drop)
    }

    /// Rounds the extents of a block's axes up to multiples of the given numbers, one for each axis in order; None
    /// leaves an axis unchanged. The block then computes elements that are never read, so that loops over tiles need no
    /// conditions. Where it would read beyond a buffer for such an element, it reads the nearest element.
    pub fn pad_axes(&self, block: &str, multiples: Vec<Option<i64>>) -> Result<()> {
        self.step("pad_axes", &[], Some(block), &multiples, &[]).map(drop)
    }

    /// Inlines a block into the blocks that read its result.
    pub fn compute_inline(&self, block: &str) -> Result<()> {
        self.step("compute_inline", &[], Some(block), &[], &[]).map(drop)
    }

    /// Inlines a block into the block that produces its input, which then computes the elements of the inlined block
    /// directly.
    pub fn reverse_compute_inline(&self, block: &str) -> Result<()> {
        self.step("reverse_compute_inline", &[], Some(block), &[], &[]).map(drop)
    }
}
