//! Global functions `tir.transform.*`: the passes of the compiler by name, and the default pipeline.

use anyfn::{ObjectRef, Ref, Result, register};
use anyfn_passes::{Pass, Pipeline};

use crate::pipeline;

/// Returns a pass of the compiler by name.
#[register("tir.transform.get")]
fn get(name: &str) -> Result<Ref<Pass>> {
    pipeline::pass(name)
}

/// Returns the names of all passes of the compiler.
#[register("tir.transform.names")]
fn names() -> Vec<&'static str> {
    pipeline::pass_names()
}

/// Creates the default pipeline, which schedules functions and lowers them to the form that code generators
/// accept.
#[register("tir.transform.default_pipeline")]
fn default_pipeline() -> Result<Ref<Pipeline>> {
    pipeline::default_pipeline()
}

/// Inlines cheap stages into the stages that use their results, in functions that are not scheduled yet.
#[register("tir.transform.inline", blocking)]
fn inline(node: ObjectRef) -> Result<ObjectRef> {
    pipeline::pass("inline")?.run(node)
}

/// Schedules functions that are not scheduled yet: vectorizes loops, and distributes their iterations over
/// threads.
#[register("tir.transform.default_schedule", blocking)]
fn default_schedule(node: ObjectRef) -> Result<ObjectRef> {
    pipeline::pass("default_schedule")?.run(node)
}
