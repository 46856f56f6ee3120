//! Interpreter of the tensor IR, which executes functions without compiling them. A function can be
//! interpreted at any stage: before lowering, while it consists of blocks, and after each pass.
//!
//! The interpreter is the reference for compiled code, and a tool for debugging. It is therefore slow and simple, and
//! checks each step: indices outside of a buffer, reads of elements before they are written, values of axes outside of
//! their domain, and overflow of integers that are an index or trip count. Where compiled code has defined behaviour,
//! the interpreter behaves in the same way: other integers wrap around, and their division by 0 gives 0.
//!
//! The iterations of every loop run one after the other, including those of parallel loops and of loops that
//! are bound to a thread axis. Allocated memory exists while the statement that allocates it runs, so a block
//! of threads has its own shared memory. `select` and logical operators on scalars evaluate only the operands
//! that they need.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_host as _;

mod eval;
mod exec;
mod math;
mod memory;
mod packed;
mod value;

use std::rc::Rc;

use anyfn::tensor_mismatch::{self, TensorMismatch};
use anyfn::{Any, Array, Error, ObjectRef, Ref, Result, Tensor, bail};
use anyfn_ir::analysis::written;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::Var;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::{DTypeExt, HANDLE};
use anyfn_ir::{ExprKind, reduction, size};

use eval::{Machine, address};
use memory::Memory;
use value::Value;

/// Runs a function on tensors and numbers, as compiled code would. Results are written to the tensors.
///
/// # Errors
/// Returns `TypeError`, `ValueError` or `OverflowError` for invalid arguments. Returns `IndexError`, `ValueError`,
/// `OverflowError` or `ZeroDivisionError` for a step that is not valid in compiled code. The message of this error
/// contains the values of the innermost variables. Returns the error of a failed assertion, of a packed function, or of
/// an interruption of the calling thread. The tensors then contain the elements that were written before the error.
pub fn interpret(func: &Ref<PrimFunc>, args: &Array<Any>) -> Result<()> {
    size::check_func(func)?;
    let name = match func.attrs.get("global_symbol")? {
        Some(symbol) => symbol.get::<String>()?,
        None => "main".to_owned(),
    };
    if args.len() != func.params.len() {
        let (expected, got) = (func.params.len(), args.len());
        bail!("TypeError", "{name}: expected {expected} arguments but got {got}");
    }
    let mut machine = Machine::new(&name);
    let mut tensors: Vec<(usize, Ref<Buffer>, Tensor)> = Vec::new();
    for (place, (param, arg)) in func.params.iter().zip(args.as_slice()).enumerate() {
        match func.buffer_map.get(&param)? {
            Some(buffer) => match Tensor::try_from_object(arg.as_object().cloned().unwrap_or_else(none)) {
                Ok(tensor) => tensors.push((place, buffer, tensor)),
                Err(_) => bail!(
                    "TypeError",
                    "{name}: argument {place} `{}`: expected a tensor but got {}",
                    buffer.name,
                    arg.type_key()
                ),
            },
            None if param.dtype == HANDLE => {
                bail!("ValueError", "parameter `{}` is a handle without a buffer", param.name)
            }
            None => machine.define(&param, number(&name, place, &param, arg)?),
        }
    }
    // An extent may use a variable that is an extent of a later argument.
    for (place, buffer, tensor) in &tensors {
        check_type(&name, *place, buffer, tensor)?;
        for (extent, got) in buffer.shape.iter().zip(tensor.view().shape()) {
            if let ExprKind::Var(var) = ExprKind::of(&extent)
                && !machine.knows(var)
            {
                machine.define(var, Value::int(i128::from(*got)));
            }
        }
    }
    for (place, buffer, tensor) in &tensors {
        bind(&mut machine, &name, *place, buffer, tensor)?;
    }
    check_overlaps(func, &name, &tensors)?;
    let result = machine.stmt(&reduction::with_empty_apart(&func.body)?);
    for (_, buffer, tensor) in &tensors {
        let memory = machine.memory_of(buffer)?;
        if memory.is_written() {
            tensor.set_bytes(&memory.bytes())?;
        }
    }
    result
}

fn none() -> ObjectRef {
    Array::<Any>::new().into_object()
}

fn number(name: &str, place: usize, param: &Ref<Var>, arg: &Any) -> Result<Value> {
    let (dtype, own) = (param.dtype, &param.name);
    let kind = arg.type_key();
    match kind {
        "float" if dtype.is_float() => Ok(Value::float(arg.get::<f64>()?, dtype)),
        "int" if dtype.is_float() => Ok(Value::float(arg.get::<i64>()? as f64, dtype)),
        "int" | "bool" if !dtype.is_float() => {
            let given = i128::from(arg.get::<i64>()?);
            match value::wrapped(given, dtype) {
                kept if kept == given => Ok(Value::int(given)),
                _ => bail!(
                    "OverflowError",
                    "{name}: argument {place} `{own}`: {given} does not fit into {dtype}"
                ),
            }
        }
        _ => {
            let word = if dtype.is_float() { "float" } else { "int" };
            bail!("TypeError", "{name}: argument {place} `{own}`: expected {word} but got {kind}")
        }
    }
}

fn check_type(name: &str, place: usize, buffer: &Buffer, tensor: &Tensor) -> Result<()> {
    let view = tensor.view();
    let own = &buffer.name;
    let (expected, got) = (buffer.shape.len(), view.shape().len());
    let checked = match expected == got {
        true => tensor_mismatch::check_dtype(&view, buffer.dtype),
        false => Err(TensorMismatch::Dimensions { expected, got }),
    };
    checked.map_err(|mismatch| anyfn::error!(mismatch.kind(), "{name}: argument {place} `{own}`: {mismatch}"))
}

/// Initialises the memory of a buffer with the bytes of a tensor, after checking the extents of the tensor.
fn bind(machine: &mut Machine, name: &str, place: usize, buffer: &Ref<Buffer>, tensor: &Tensor) -> Result<()> {
    let view = tensor.view();
    let own = &buffer.name;
    for (dim, (extent, got)) in buffer.shape.iter().zip(view.shape()).enumerate() {
        let expected = machine.place(&extent)?;
        if expected != i128::from(*got) {
            let mismatch = TensorMismatch::Extent { dim, expected, got: *got };
            bail!(mismatch.kind(), "{name}: argument {place} `{own}`: {mismatch}");
        }
    }
    let bytes = view.to_bytes().map_err(|error| {
        Error::new(error.kind(), &format!("{name}: argument {place} `{own}`: {}", error.message()))
    })?;
    machine.add_memory(buffer, Rc::new(Memory::of_tensor(bytes)));
    Ok(())
}

/// Checks that no written tensor overlaps the memory of another argument. A tensor is written if
/// the function stores to it or passes it to another function that may write it. Compiled code
/// assumes that no such overlap exists.
fn check_overlaps(func: &PrimFunc, name: &str, tensors: &[(usize, Ref<Buffer>, Tensor)]) -> Result<()> {
    let written = written(&func.body);
    for (i, (a, first, x)) in tensors.iter().enumerate() {
        for (b, second, y) in &tensors[i + 1..] {
            let is_written =
                written.contains(&address(&first.data)) || written.contains(&address(&second.data));
            if is_written && x.view().shares_memory(&y.view()) {
                bail!(
                    "ValueError",
                    "{name}: arguments {a} `{}` and {b} `{}` share memory, and one of them is written",
                    first.name,
                    second.name
                );
            }
        }
    }
    Ok(())
}
