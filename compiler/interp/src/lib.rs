//! Runs functions as they are written, one step after the other: before they are lowered, with blocks, and after each pass.
//!
//! It is what compiled code is compared with, and a way to find out what is wrong with a program. So it is slow, plain, and
//! checks each step: places that are not in a buffer, elements that are read before they were written, values of axes
//! outside of their domain, and integers that overflow where they say a place or how often something is done. What
//! compiled code defines, it does: other integers wrap around, and a division by 0 gives 0.
//!
//! Parallel, vectorized and unrolled loops run one repetition after the other. Of `select` and logical operators on single
//! values only what decides is computed.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_host as _;

mod eval;
mod exec;
mod math;
mod memory;
mod packed;
mod value;

use std::collections::HashMap;
use std::rc::Rc;

use anyfn::{Any, Array, Error, Object, ObjectRef, Ref, Result, Tensor, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::Var;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::{DTypeExt, HANDLE};
use anyfn_ir::{ExprKind, StmtKind, reduction, size};

use eval::Machine;
use memory::Memory;
use value::Value;

fn address<T: Object>(node: &Ref<T>) -> usize {
    node.as_object().as_handle().addr()
}

/// Runs a function on tensors and numbers, as its compiled form does: what it computes is in the tensors then.
///
/// # Errors
/// `TypeError` and `ValueError` for arguments that do not fit; `IndexError`, `ValueError`, `OverflowError`,
/// `ZeroDivisionError` for a step that compiled code could not do rightly, with the values of all loop variables; what an
/// assertion or a packed function says; what interrupts the calling thread. What was written until then is in the tensors.
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
    // An extent may be made of a variable that is the extent of a later argument.
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
    if view.shape().len() != buffer.shape.len() {
        let (expected, got) = (buffer.shape.len(), view.shape().len());
        bail!("ValueError", "{name}: argument {place} `{own}`: expected {expected} dimensions but got {got}");
    }
    if view.dtype() != buffer.dtype {
        let (expected, got) = (buffer.dtype, view.dtype());
        bail!("TypeError", "{name}: argument {place} `{own}`: expected {expected} but got {got}");
    }
    Ok(())
}

/// Makes a tensor the memory of a buffer, if its extents are what they should be.
fn bind(machine: &mut Machine, name: &str, place: usize, buffer: &Ref<Buffer>, tensor: &Tensor) -> Result<()> {
    let view = tensor.view();
    let own = &buffer.name;
    for (dim, (extent, got)) in buffer.shape.iter().zip(view.shape()).enumerate() {
        let expected = machine.place(&extent)?;
        if expected != i128::from(*got) {
            bail!(
                "ValueError",
                "{name}: argument {place} `{own}`: expected extent {expected} in dimension {dim} but got {got}"
            );
        }
    }
    let bytes = view.to_bytes().map_err(|error| {
        Error::new(error.kind(), &format!("{name}: argument {place} `{own}`: {}", error.message()))
    })?;
    machine.add_memory(buffer, Rc::new(Memory::of_tensor(bytes)));
    Ok(())
}

/// Compiled code relies on it that what is written is not what is read or written elsewhere.
fn check_overlaps(func: &PrimFunc, name: &str, tensors: &[(usize, Ref<Buffer>, Tensor)]) -> Result<()> {
    let written = written(func);
    for (i, (a, first, x)) in tensors.iter().enumerate() {
        for (b, second, y) in &tensors[i + 1..] {
            let is_written =
                written.contains_key(&address(&first.data)) || written.contains_key(&address(&second.data));
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

fn written(func: &PrimFunc) -> HashMap<usize, ()> {
    use anyfn_ir::expr::Expr;
    use anyfn_ir::stmt::Stmt;
    use anyfn_ir::visit::Visitor;
    struct Written(HashMap<usize, ()>);
    impl Visitor for Written {
        fn expr(&mut self, _: &Expr) {}
        fn stmt(&mut self, stmt: &Stmt) {
            if let StmtKind::BufferStore(node) = StmtKind::of(stmt) {
                self.0.insert(address(&node.buffer.data), ());
            }
            self.below_stmt(stmt);
        }
    }
    let mut written = Written(HashMap::new());
    written.stmt(&func.body);
    written.0
}
