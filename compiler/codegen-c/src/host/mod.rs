//! Dialect for the host: C11, with vectors if the compiler is GCC or Clang.

mod entry;
mod half;
mod loops;
mod math;
mod memory;
mod packed;
mod registers;
mod signature;
mod vector;

use std::collections::HashMap;

use anyfn::{Array, DType, Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Call, Expr, Var};
use anyfn_ir::stmt::{BufferStore, For, Stmt};

pub(crate) use self::entry::function;
use self::registers::Registers;
use crate::family::{Body, Dialect, Literal, Message, SCALAR};
use crate::options::CodegenOptions;

/// Returns the source that precedes the functions of a module.
pub(crate) fn prelude() -> String {
    [include_str!("prelude.c"), SCALAR, include_str!("machine.c")].concat()
}

/// The dialect of the host, with its state within one function.
pub(crate) struct Host {
    options: CodegenOptions,
    /// Names of the buffers that must be freed before an early return.
    allocated: Vec<String>,
    /// Source of the functions for the bodies of parallel loops. It precedes the function that contains the loops.
    tasks: String,
    task_count: usize,
    /// True while generating the body of a parallel loop.
    is_task: bool,
    /// Variables that replace buffers, by the address of the buffer's data variable.
    registers: HashMap<usize, Registers>,
    /// True if stores should bypass the caches, as the annotation `nontemporal` of an enclosing loop requests.
    streams: bool,
}

impl Host {
    fn new(options: CodegenOptions) -> Host {
        Host {
            options,
            allocated: Vec::new(),
            tasks: String::new(),
            task_count: 0,
            is_task: false,
            registers: HashMap::new(),
            streams: false,
        }
    }
}

impl Dialect for Host {
    fn for_loop(body: &mut Body<'_, Host>, node: &For) -> Result<()> {
        body.loop_of_any_kind(node)
    }

    fn allocate(body: &mut Body<'_, Host>, buffer: &Ref<Buffer>, inner: &Stmt) -> Result<()> {
        match registers::width(buffer, inner, body.dialect.options) {
            Some(width) => body.allocate_registers(buffer, width, inner),
            None => body.allocate_memory(buffer, inner),
        }
    }

    fn element(
        body: &mut Body<'_, Host>,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        lane: &str,
    ) -> Result<Option<String>> {
        body.registers(buffer).is_some().then(|| body.register(buffer, indices, lane)).transpose()
    }

    fn store_vector(body: &mut Body<'_, Host>, node: &BufferStore) -> Result<()> {
        body.store_lanes(node)
    }

    fn bind_vector(body: &mut Body<'_, Host>, var: &Ref<Var>, value: &Expr) -> Result<()> {
        body.bind_lanes(var, value)
    }

    fn math(name: &str, dtype: DType, args: &[String]) -> String {
        math::call(name, dtype, args)
    }

    fn convert_half(body: &mut Body<'_, Host>, value: &str, from: DType, to: DType) -> Result<String> {
        body.host_half(value, from, to)
    }

    fn call_packed(body: &mut Body<'_, Host>, call: &Call, result: Option<(&str, DType)>) -> Result<()> {
        body.host_packed(call, result)
    }

    fn call_extern(body: &mut Body<'_, Host>, call: &Call) -> Result<String> {
        body.host_extern(call)
    }

    fn check(body: &Body<'_, Host>, condition: &str, kind: &Literal, message: &Message) -> String {
        let fail = body.fail(&format!("anyfn_fail({kind}, {message})"));
        format!("if (!({condition})) {fail}")
    }
}
