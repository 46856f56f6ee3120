//! The table of schedule steps.
//!
//! An entry of the table has the form of a function declaration: documentation, name, parameters with their kinds and
//! defaults, kind of the result, and the function that applies the step. That function receives the function to
//! transform and the arguments, all by reference. It checks that the step is valid, and returns the transformed
//! function. If the step has a result, it returns a pair of the function and the result: loops, or the name of a block.
//! From the table follow:
//!
//! - a method of [`Schedule`], which is registered for other languages with its signature and documentation;
//! - the record of the step in a trace, and its replay;
//! - the check of the arguments when a step is replayed;
//! - the Python stub of the method, which `./x codegen` writes.
//!
//! `docs/schedule-steps.md` has an example of each step. `bindings/python/tests/test_schedule_steps.py` runs the examples
//! and writes the functions that the page shows.

use std::string::String as StdString;

use anyfn::{Error, Ref, Result, String, bail, methods};
use anyfn_ir::func::PrimFunc;

use crate::arguments::Arguments;
use crate::kind::{self, Kind, given, returned};
use crate::trace::Step;
use crate::{
    Loop, Schedule, annotate, blocks, cache, compute_at, layout, loops, pad_axes, reverse, reverse_inline,
    rfactor, threads, tree,
};

type Func = Ref<PrimFunc>;

/// Entry of the table of schedule steps: the name, the parameters and the implementation of one step.
pub struct StepInfo {
    /// Name of the step, and of the method of [`Schedule`] that applies it.
    pub name: &'static str,
    /// Parameters of the step, which are also the parameters of the method.
    pub parameters: &'static [Parameter],
    apply: fn(&Func, &mut Arguments<'_>) -> Result<Applied>,
}

/// Description of a parameter of a schedule step.
pub struct Parameter {
    /// Name of the parameter, as in the signature of the method.
    pub name: &'static str,
    /// Kind of the parameter, which determines the argument types that the method accepts in Rust
    /// and Python.
    pub kind: Kind,
}

/// Result of a step: the transformed function, and the loops and the block that the step returns.
pub(crate) struct Applied {
    pub(crate) func: Func,
    pub(crate) loops: Vec<Loop>,
    pub(crate) block: Option<StdString>,
}

impl From<Func> for Applied {
    fn from(func: Func) -> Applied {
        Applied { func, loops: Vec::new(), block: None }
    }
}

impl From<(Func, Loop)> for Applied {
    fn from((func, one): (Func, Loop)) -> Applied {
        Applied { func, loops: vec![one], block: None }
    }
}

impl From<(Func, Vec<Loop>)> for Applied {
    fn from((func, loops): (Func, Vec<Loop>)) -> Applied {
        Applied { func, loops, block: None }
    }
}

impl From<(Func, StdString)> for Applied {
    fn from((func, block): (Func, StdString)) -> Applied {
        Applied { func, loops: Vec::new(), block: Some(block) }
    }
}

/// Type of the result of a schedule method that applies a step.
trait Returned: Sized {
    fn of(applied: Applied) -> Result<Self>;
}

impl Returned for () {
    fn of(_: Applied) -> Result<()> {
        Ok(())
    }
}

impl Returned for Loop {
    fn of(mut applied: Applied) -> Result<Loop> {
        applied.loops.pop().ok_or_else(|| Error::new("InternalError", "the step returned no loop"))
    }
}

impl Returned for Vec<Loop> {
    fn of(applied: Applied) -> Result<Vec<Loop>> {
        Ok(applied.loops)
    }
}

impl Returned for String {
    fn of(applied: Applied) -> Result<String> {
        let block = applied.block.map(String::from);
        block.ok_or_else(|| Error::new("InternalError", "the step returned no block"))
    }
}

/// Applies a recorded step to a function. `known` contains the loops of the schedule, indexed by their
/// numbers in the trace.
///
/// # Errors
/// Returns `ValueError` if the table has no step of that name or if arguments are missing or surplus, `TypeError` if an
/// argument has another type, and otherwise the error of the step.
pub(crate) fn apply(func: &Func, step: &Step, known: &[Loop]) -> Result<Applied> {
    match STEPS.iter().find(|info| info.name == &*step.name) {
        Some(info) => (info.apply)(func, &mut Arguments::new(step, known)),
        None => bail!("ValueError", "unknown schedule step `{}`", step.name),
    }
}

/// Returns the name of a parameter, without the prefix `r#` of a raw identifier.
const fn plain(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

macro_rules! steps {
    ($(
        $(#[$($doc:tt)*])*
        fn $name:ident($($param:ident: $kind:ident $(= $default:tt)?),*) $(-> $result:ident)? = $function:path;
    )*) => {
        /// All schedule steps.
        pub const STEPS: &[StepInfo] = &[$(StepInfo {
            name: stringify!($name),
            parameters: &[$(Parameter { name: plain(stringify!($param)), kind: Kind::$kind }),*],
            apply: {
                fn apply(func: &Func, arguments: &mut Arguments<'_>) -> Result<Applied> {
                    $(let $param = kind::$kind::read(arguments, plain(stringify!($param)))?;)*
                    arguments.finish()?;
                    Ok(Applied::from($function(func $(, &$param)*)?))
                }
                apply
            },
        }),*];

        #[methods]
        impl Schedule {
            $(
                $(#[$($doc)*])*
                ///
                /// The page `docs/schedule-steps.md` shows a function before and after this step.
                pub fn $name(
                    &self,
                    $($(#[default($default)])? $param: given!($kind)),*
                ) -> Result<returned!($($result)?)> {
                    let mut step = Step::new(stringify!($name));
                    $(kind::$kind::record($param, self, &mut step)?;)*
                    Returned::of(self.step(step)?)
                }
            )*
        }
    };
}

steps! {
    /// Returns the loops around a block, outermost first.
    fn get_loops(block: Block) -> Loops = tree::loops_around;

    /// Splits a loop into nested loops, whose extents are the factors, and returns the new loops.
    /// One factor may be None; it is then inferred from the trip count. If the factors cover more
    /// iterations than the loop has, the blocks inside are guarded by a condition.
    fn split(r#loop: Loop, factors: Numbers) -> Loops = loops::split;

    /// Fuses perfectly nested loops into one loop, and returns the fused loop.
    fn fuse(loops: Loops) -> Loop = loops::fuse;

    /// Reorders nested loops into the given order, outermost first. Other loops of the nest keep their positions.
    fn reorder(loops: Loops) = loops::reorder;

    /// Distributes the iterations of a loop over the threads of the runtime.
    fn parallel(r#loop: Loop) = loops::parallel;

    /// Executes the iterations of a loop with vector instructions.
    fn vectorize(r#loop: Loop) = loops::vectorize;

    /// Unrolls a loop: repeats its body once for each iteration.
    fn unroll(r#loop: Loop) = loops::unroll;

    /// Binds a loop to a thread axis of a device, so that each iteration is executed by the thread, or the block of
    /// threads, with that index. The axes are `blockIdx.x`, `blockIdx.y` and `blockIdx.z` for the blocks of a grid, and
    /// `threadIdx.x`, `threadIdx.y` and `threadIdx.z` for the threads of a block.
    fn bind(r#loop: Loop, thread_axis: Text) = threads::bind;

    /// Moves the initialisation of a reduction into a new block in front of a loop. Returns the name of the new block.
    fn decompose_reduction(block: Block, r#loop: Loop) -> Block = blocks::decompose_reduction;

    /// Adds a block that copies a buffer to memory of the given scope, and lets `block` read the copy. The buffer is
    /// given by its name, or by its index among the buffers that the block reads. The scope is `global`, `shared` for
    /// memory of a block of threads, or `local` for memory that only one task accesses. Returns the name of the new
    /// block, which is also the name of the copy.
    fn cache_read(block: Block, buffer: Buffer, scope: Text = "global") -> Block = cache::cache_read;

    /// Lets a block write to a new buffer in memory of the given scope, and adds a block that copies the new
    /// buffer to the original one. The original buffer is given by its name, or by its index among the buffers
    /// that the block writes. Returns the name of the new block, which is also the name of the new buffer.
    fn cache_write(block: Block, buffer: Buffer, scope: Text = "local") -> Block = cache::cache_write;

    /// Sets the memory scope of a buffer that the function allocates. The buffer is given by its name, or by its index
    /// among the buffers that the block writes. The scope is `global`, or `shared` for memory of a block of threads.
    fn set_scope(block: Block, buffer_index: Buffer, scope: Text) = threads::set_scope;

    /// Changes the memory layout of a buffer that the function allocates. The buffer is given by
    /// its name, or by its index among the buffers that the block writes, followed by those that it
    /// reads. `index_map` is a `tir.IndexMap`, or a function that receives the indices of an
    /// element and returns its new indices. The buffer may become larger. If `pad` is given, the
    /// loops of the block that sets the buffer run over all locations of the new layout, and this
    /// block stores `pad` in locations that hold no element.
    fn transform_layout(block: Block, buffer: Buffer, index_map: IndexMap, pad: Pad = None) = layout::transform_layout;

    /// Attaches an annotation, which consists of a key and a value, to a loop or to a block that is given by its name.
    /// Passes can read annotations.
    fn annotate(target: Target, key: Text, value: Value) = annotate::annotate;

    /// Factors a reduction loop out into a separate axis of partial results. A new block computes the partial results
    /// independently of each other, and the original block combines them. Returns the name of the new block.
    fn rfactor(block: Block, r#loop: Loop) -> Block = rfactor::rfactor;

    /// Moves a block into a loop that contains the readers of its result. In each iteration, the
    /// block then computes only the elements that the readers need in that iteration. The block
    /// gets new loops.
    fn compute_at(block: Block, r#loop: Loop) = compute_at::compute_at;

    /// Moves a block into a loop that contains the producer of its input, after the producer. In each iteration, the
    /// block then uses the elements that were computed in the same iteration. The block gets new loops.
    fn reverse_compute_at(block: Block, r#loop: Loop) = reverse::reverse_compute_at;

    /// Rounds the extents of a block's axes up to multiples of the given numbers, one for each axis
    /// in order; None leaves an axis unchanged. The block then computes elements that are never
    /// read, so that loops over tiles need no conditions. Where the block would read beyond a
    /// buffer for such an element, or read an element that may be unset, it reads a nearby element.
    fn pad_axes(block: Block, multiples: Numbers) = pad_axes::pad_axes;

    /// Inlines a block into the blocks that read its result.
    fn compute_inline(block: Block) = blocks::compute_inline;

    /// Inlines a block into the producer of its input. The producer then computes the elements of
    /// the inlined block directly.
    fn reverse_compute_inline(block: Block) = reverse_inline::reverse_compute_inline;
}
