//! Schedules: the loops of a function transformed step by step.
//!
//! Each step is checked: one that would change what the function computes is an error that says which dependence forbids
//! it. A loop is known by its variable, a block by its name. What has been done is kept as a trace, which can be printed,
//! saved and done again on another function.

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

/// A function whose loops are being transformed.
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
    /// Numbers of loops in the trace: by how many loops were known before.
    loops: Vec<Ref<Var>>,
}

type Loop = Ref<Var>;

impl Schedule {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a block is now. This is no step.
    ///
    /// # Errors
    /// `ValueError` if there is none of that name.
    pub fn place(&self, block: &str) -> Result<Place> {
        tree::find_block(&self.state().func, block)
    }

    /// Begins with a function that was verified.
    ///
    /// # Errors
    /// `ValueError` if several blocks have one name.
    pub fn of_verified(func: Ref<PrimFunc>) -> Result<Schedule> {
        if let Some(name) = blocks::repeated_names(&func).first() {
            bail!(
                "ValueError",
                "block `{name}` is there more than once; blocks of a schedule need names of their own"
            );
        }
        Ok(Schedule { state: Mutex::new(State { func, steps: Vec::new(), loops: Vec::new() }) })
    }

    /// Does a step that makes a block; gives the block's name.
    fn step_to_block(&self, name: &str, block: &str, args: &[Any]) -> Result<String> {
        let known: HashSet<String> = self.get_blocks().iter().collect();
        self.step(name, &[], Some(block), &[], args)?;
        match self.get_blocks().iter().find(|name| !known.contains(name)) {
            Some(name) => Ok(name),
            None => bail!("InternalError", "step `{name}` made no block"),
        }
    }

    /// The index map that is given, or that a function of the indices of a buffer makes.
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

    /// Does a step; if it fails, all is as before.
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
        // What is given may be a node that nobody has checked.
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
    /// Begins with a function, which is verified.
    #[init]
    pub fn new(func: Ref<PrimFunc>) -> Result<Schedule> {
        anyfn_passes::verify(&func)?;
        Schedule::of_verified(func)
    }

    /// The function as it is now; its attribute `scheduled` keeps `build` from scheduling it once more.
    pub fn func(&self) -> Result<Ref<PrimFunc>> {
        let func = self.state().func.clone();
        if func.attrs.get("scheduled")?.is_some() {
            return Ok(func);
        }
        PrimFunc::with_attr(func, "scheduled".into(), Any::new(true)?)
    }

    /// A schedule of its own that goes on from here: for steps that may turn out not to be wanted.
    pub fn copy(&self) -> Schedule {
        Schedule { state: Mutex::new(self.state().clone()) }
    }

    /// A schedule of a function to which the steps of another one are done.
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
        self.step("get_loops", &[], Some(block), &[], &[])
    }

    /// Replaces a loop by as many as there are factors, which are the extents of the new ones; one of them may be None.
    pub fn split(&self, r#loop: Loop, factors: Vec<Option<i64>>) -> Result<Vec<Loop>> {
        self.step("split", &[r#loop], None, &factors, &[])
    }

    /// Makes one loop of several, each right inside of the one before.
    pub fn fuse(&self, loops: Vec<Loop>) -> Result<Loop> {
        let mut fused = self.step("fuse", &loops, None, &[], &[])?;
        fused.pop().ok_or_else(|| anyfn::Error::new("InternalError", "fuse gave no loop"))
    }

    /// Puts nested loops into this order.
    pub fn reorder(&self, loops: Vec<Loop>) -> Result<()> {
        self.step("reorder", &loops, None, &[], &[]).map(drop)
    }

    /// Lets several threads carry out the repetitions of a loop.
    pub fn parallel(&self, r#loop: Loop) -> Result<()> {
        self.step("parallel", &[r#loop], None, &[], &[]).map(drop)
    }

    /// Carries out the repetitions of a loop by instructions on vectors.
    pub fn vectorize(&self, r#loop: Loop) -> Result<()> {
        self.step("vectorize", &[r#loop], None, &[], &[]).map(drop)
    }

    /// Writes the repetitions of a loop out.
    pub fn unroll(&self, r#loop: Loop) -> Result<()> {
        self.step("unroll", &[r#loop], None, &[], &[]).map(drop)
    }

    /// Takes what comes before a reduction into a block of its own in front of a loop; gives its name.
    pub fn decompose_reduction(&self, block: &str, r#loop: Loop) -> Result<std::string::String> {
        self.step("decompose_reduction", &[r#loop], Some(block), &[], &[])?;
        Ok(format!("{block}_init"))
    }

    /// Lets a block read a copy of a buffer (its name, or its number among what the block reads), which a new block in
    /// front makes. The copy is in memory `scope`: `global`, or `local` for what only one task sees. Gives the name of the
    /// new block, which is that of the copy, too.
    pub fn cache_read(&self, block: &str, buffer: Any, #[default("global")] scope: &str) -> Result<String> {
        self.step_to_block("cache_read", block, &[buffer, Any::new(scope)?])
    }

    /// Lets a block write into memory `scope`, from which a new block behind copies to the buffer (its name, or its number
    /// among what the block writes). Gives the name of the new block, which is that of the memory, too.
    pub fn cache_write(&self, block: &str, buffer: Any, #[default("local")] scope: &str) -> Result<String> {
        self.step_to_block("cache_write", block, &[buffer, Any::new(scope)?])
    }

    /// Gives the elements of a buffer other places: `index_map` is a function of the indices of an element that gives the
    /// new ones, or a `tir.IndexMap`. The buffer is known by its name or number among what the block writes and then reads,
    /// and is one of the function's own. It may get larger than it was: with `pad`, places without an element are set to
    /// that value by the block that sets the buffer, whose loops are then those over the new places.
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

    /// Notes something for passes on a loop, or on a block, which is given by its name.
    pub fn annotate(&self, target: Any, key: &str, value: Any) -> Result<()> {
        let args = [Any::new(key)?, value];
        if let Ok(block) = target.get::<String>() {
            return self.step("annotate", &[], Some(&block), &[], &args).map(drop);
        }
        self.step("annotate", &[target.get::<Loop>()?], None, &[], &args).map(drop)
    }

    /// Takes one loop of a reduction out: its repetitions get results of their own, computed by a new block, which the block
    /// then combines; they can run side by side. Gives the name of the new block.
    pub fn rfactor(&self, block: &str, r#loop: Loop) -> Result<std::string::String> {
        self.step("rfactor", &[r#loop], Some(block), &[], &[])?;
        Ok(format!("{block}_rf"))
    }

    /// Moves a block into a loop, where those that read what it computes are: at each repetition it computes what is needed
    /// there. Its loops are new ones.
    pub fn compute_at(&self, block: &str, r#loop: Loop) -> Result<()> {
        self.step("compute_at", &[r#loop], Some(block), &[], &[]).map(drop)
    }

    /// Moves a block into a loop in which what it reads is computed: at each repetition it uses what was computed there. Its
    /// loops are new ones.
    pub fn reverse_compute_at(&self, block: &str, r#loop: Loop) -> Result<()> {
        self.step("reverse_compute_at", &[r#loop], Some(block), &[], &[]).map(drop)
    }

    /// Makes the extents of a block's axes multiples of these numbers, one for each axis in order; None leaves one as it is.
    /// The block computes elements that nobody reads, so that loops over tiles need no conditions; where it would read beyond
    /// a buffer for them, it reads the nearest element.
    pub fn pad_axes(&self, block: &str, multiples: Vec<Option<i64>>) -> Result<()> {
        self.step("pad_axes", &[], Some(block), &multiples, &[]).map(drop)
    }

    /// Puts a block into those that read what it computes.
    pub fn compute_inline(&self, block: &str) -> Result<()> {
        self.step("compute_inline", &[], Some(block), &[], &[]).map(drop)
    }

    /// Puts a block into the one that sets what it reads: elements become there what the block makes of them.
    pub fn reverse_compute_inline(&self, block: &str) -> Result<()> {
        self.step("reverse_compute_inline", &[], Some(block), &[], &[]).map(drop)
    }
}
