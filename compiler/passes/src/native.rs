//! Built-in passes, and the pipeline of passes that lowers functions.

use anyfn::{ObjectRef, Ref, Result, register};
use anyfn_ir::func::{IRModule, PrimFunc};
use anyfn_ir::target::Target;

use crate::{Pass, Pipeline};

/// Function that implements a built-in pass. It receives a primitive function and returns the
/// transformed function.
pub type PassFn = fn(&Ref<PrimFunc>) -> Result<Ref<PrimFunc>>;

/// Expands to an array of pairs: the name of a pass, and the function that implements it.
macro_rules! named {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), crate::$name)),*]
    };
}

macro_rules! passes {
    ($($(#[$doc:meta])* $name:ident $key:literal,)*) => {
        /// Names and implementations of all built-in passes. Each pass can also be applied by the
        /// global function `tir.transform.<name>`, which takes and returns a function or module.
        pub const PASSES: &[(&str, PassFn)] = named![$($name),*];

        $(
            const _: () = {
                $(#[$doc])*
                #[register($key, blocking)]
                fn alone(node: ObjectRef) -> Result<ObjectRef> {
                    pass(stringify!($name), crate::$name).run(node)
                }
            };
        )*
    };
}

passes! {
    /// Replaces blocks by loops, conditions and allocations.
    lower_blocks "tir.transform.lower_blocks",
    /// Splits loops that are to be vectorized into loops over full vectors and a remainder.
    vector_loops "tir.transform.vector_loops",
    /// Simplifies expressions and removes conditions that always hold, loops that run once, and branches that are never
    /// taken.
    simplify "tir.transform.simplify",
    /// Moves the allocation of each buffer to the innermost statement that contains all its uses.
    place_allocations "tir.transform.place_allocations",
    /// Shrinks allocated buffers, so that each contains only the region that the function accesses.
    compact_buffers "tir.transform.compact_buffers",
    /// Moves loop-invariant conditions and costly values out of loops.
    hoist "tir.transform.hoist",
    /// Assigns the same memory to buffers that are not used at the same time.
    share_buffers "tir.transform.share_buffers",
    /// Inserts run-time bounds checks for accesses that are not proven to be in bounds.
    check_bounds "tir.transform.check_bounds",
    /// Replaces vectorized loops by statements on vectors.
    vectorize "tir.transform.vectorize",
    /// Unrolls the loops of kind `unrolled`.
    unroll "tir.transform.unroll",
    /// Rewrites operations on float16 and bfloat16 so that they are computed in float32 and their
    /// results are rounded.
    widen_floats "tir.transform.widen_floats",
    /// Moves calls of packed functions out of expressions: each becomes a statement or the value of a variable.
    lower_packed_calls "tir.transform.lower_packed_calls",
    /// Replaces each parallel loop by the launch of tasks that share its iterations.
    lower_parallel "tir.transform.lower_parallel",
    /// Divides local buffers that are allocated outside of the loops over threads among the threads of a block.
    private_buffers "tir.transform.private_buffers",
    /// Requests an entry point for the function. Other languages call the entry point, which takes packed
    /// arguments and checks them.
    make_packed_api "tir.transform.make_packed_api",
}

/// Names and implementations of the lowering passes, in the order of the default pipeline.
const DEFAULT: &[(&str, PassFn)] = named![
    lower_blocks,
    simplify,
    place_allocations,
    compact_buffers,
    share_buffers,
    simplify,
    hoist,
    vector_loops,
    vectorize,
    unroll,
    widen_floats,
    simplify,
    lower_packed_calls,
    lower_parallel,
    private_buffers,
    make_packed_api,
];

/// Names of passes of the default pipeline that do not apply to functions for a device, whose threads take the place of
/// vectors. A vectorized loop becomes a serial loop.
const NOT_FOR_DEVICES: &[&str] = &["vector_loops", "vectorize"];

/// Name of the pass that transforms whole modules.
const SPLIT: &str = "split_host_device";

fn pass(name: &str, run: PassFn) -> Ref<Pass> {
    let is_for_devices = !NOT_FOR_DEVICES.contains(&name);
    Pass::on_funcs(
        name,
        move |func, module| {
            if is_for_devices || !is_for_device(module)? { run(func) } else { Ok(func.clone()) }
        },
    )
}

/// Returns true if the target of a module is a device.
fn is_for_device(module: &IRModule) -> Result<bool> {
    Ok(Target::of(module)?.is_some_and(|target| target.device_kind().is_some()))
}

/// Returns the pass that splits functions for a device into host code and kernels.
fn split() -> Ref<Pass> {
    Pass::on_modules(SPLIT, crate::split_host_device)
}

/// Splits the functions of a module whose target is a device into host code and kernels.
#[register("tir.transform.split_host_device", blocking)]
fn split_alone(module: ObjectRef) -> Result<ObjectRef> {
    split().run(module)
}

/// Returns a built-in pass by name, or `None` if no built-in pass has that name.
#[must_use]
pub fn find(name: &str) -> Option<Ref<Pass>> {
    if name == SPLIT {
        return Some(split());
    }
    PASSES.iter().find(|(known, _)| *known == name).map(|(name, run)| pass(name, *run))
}

/// Returns the names of all built-in passes.
#[must_use]
pub fn names() -> Vec<&'static str> {
    PASSES.iter().map(|(name, _)| *name).chain([SPLIT]).collect()
}

/// Creates a pipeline of passes.
#[register("tir.transform.pipeline")]
fn pipeline(passes: Vec<Ref<Pass>>, #[default("pipeline")] name: &str) -> Ref<Pipeline> {
    Pipeline::new(name, passes)
}

/// Creates the default pipeline, which lowers a function to the form that code generators accept. It does not
/// contain the scheduling passes, which depend on the target.
#[must_use]
pub fn default_pipeline() -> Ref<Pipeline> {
    Pipeline::new("default", DEFAULT.iter().map(|(name, run)| pass(name, *run)).chain([split()]))
}
