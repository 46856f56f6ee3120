//! The passes that come with the compiler, and the pipeline of them.

use anyfn::{ObjectRef, Ref, Result, bail, register};
use anyfn_ir::func::PrimFunc;

use crate::{Pass, Pipeline};

/// A pass of the compiler.
pub type PassFn = fn(&Ref<PrimFunc>) -> Result<Ref<PrimFunc>>;

macro_rules! passes {
    ($($(#[$doc:meta])* $name:ident $key:literal,)*) => {
        /// The passes of the compiler, by name. Each can be applied alone: `tir.transform.<name>` takes and gives a function or
        /// module.
        pub const PASSES: &[(&str, PassFn)] = &[$((stringify!($name), crate::$name)),*];

        $(
            const _: () = {
                $(#[$doc])*
                #[register($key, blocking)]
                fn alone(node: ObjectRef) -> Result<ObjectRef> {
                    pass(stringify!($name))?.run(node)
                }
            };
        )*
    };
}

passes! {
    /// Takes blocks away: what is left are loops, conditions and memory.
    lower_blocks "tir.transform.lower_blocks",
    /// Loops that are to become vectors get a form that has one.
    vector_loops "tir.transform.vector_loops",
    /// Less to compute: conditions that always hold, loops that run once, branches that are never taken, shorter indices.
    simplify "tir.transform.simplify",
    /// Each buffer of the function's own is allocated around the innermost statement that has all its uses.
    place_allocations "tir.transform.place_allocations",
    /// Each buffer of the function's own is as large as what is used of it.
    compact_buffers "tir.transform.compact_buffers",
    /// Conditions and costly values that do not change in a loop are computed in front of it.
    hoist "tir.transform.hoist",
    /// Buffers of the function's own that are not used at the same time have one memory.
    share_buffers "tir.transform.share_buffers",
    /// Places that are not known to exist are tested while the function runs.
    check_bounds "tir.transform.check_bounds",
    /// Vectorized loops become statements on vectors.
    vectorize "tir.transform.vectorize",
    /// Unrolled loops are written out.
    unroll "tir.transform.unroll",
    /// What is computed with float16 and bfloat16 is computed in float32, and rounded.
    widen_floats "tir.transform.widen_floats",
    /// Calls of packed functions stand alone: each is a statement, or the value of a variable.
    lower_packed_calls "tir.transform.lower_packed_calls",
}

/// The passes of the default pipeline, in their order.
const DEFAULT: &[&str] = &[
    "lower_blocks",
    "simplify",
    "place_allocations",
    "compact_buffers",
    "share_buffers",
    "simplify",
    "hoist",
    "vector_loops",
    "vectorize",
    "unroll",
    "widen_floats",
    "simplify",
    "lower_packed_calls",
];

/// A pass of the compiler by its name.
///
/// # Errors
/// `ValueError` if there is none of that name.
#[register("tir.transform.get")]
pub fn pass(name: &str) -> Result<Ref<Pass>> {
    match PASSES.iter().find(|(known, _)| *known == name) {
        Some((name, run)) => Ok(Pass::on_funcs(name, |func, _| run(func))),
        None => {
            let known: Vec<&str> = PASSES.iter().map(|(name, _)| *name).collect();
            bail!("ValueError", "there is no pass `{name}`; there are {}", known.join(", "))
        }
    }
}

/// A pipeline of passes.
#[register("tir.transform.pipeline")]
fn pipeline(passes: Vec<Ref<Pass>>, #[default("pipeline")] name: &str) -> Ref<Pipeline> {
    Pipeline::new(name, passes)
}

/// Names of all passes of the compiler.
#[register("tir.transform.names")]
fn names() -> Vec<&'static str> {
    PASSES.iter().map(|(name, _)| *name).collect()
}

/// A new pipeline of the passes that make of a function what code generators take.
#[register("tir.transform.default_pipeline")]
#[must_use]
pub fn default_pipeline() -> Ref<Pipeline> {
    Pipeline::new("default", DEFAULT.iter().filter_map(|name| pass(name).ok()))
}
