//! Global functions `tir.*`: buffers and statements.

use anyfn::{DType, ObjectRef, PackedFunc, Ref, Result, bail, register};
use anyfn_arith::Analyzer;
use anyfn_ir::buffer::{Buffer, BufferRegion, SCOPES};
use anyfn_ir::expr::{Expr, Range};
use anyfn_ir::operand::{Operand, exprs};
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::stmt::{ForKind, Stmt};
use anyfn_ir::{make, ops, size, words};

/// Creates a compact buffer with the memory scope `global`, `shared` or `local`.
#[register("tir.decl_buffer")]
fn decl_buffer(
    shape: Vec<Operand>,
    #[default("float32")] dtype: DType,
    #[default("buffer")] name: &str,
    #[default("global")] scope: &str,
) -> Result<Ref<Buffer>> {
    if !SCOPES.contains(&scope) {
        bail!("ValueError", "unknown memory scope `{scope}`; known scopes are {}", SCOPES.join(", "));
    }
    Ok(make::buffer_in(scope, name, exprs(shape), dtype))
}

/// Returns an element or a region of a buffer. For each dimension, either `begins` contains an
/// index and `ends` contains None, or `begins` and `ends` contain the beginning and the excluded
/// end of a range of indices.
#[register("tir.buffer_at")]
fn buffer_at(buffer: Ref<Buffer>, begins: Vec<Operand>, ends: Vec<Option<Operand>>) -> Result<ObjectRef> {
    let begins = exprs(begins);
    if ends.iter().all(Option::is_none) {
        return ops::load(&buffer, begins).map(Ref::into_object);
    }
    if begins.len() != buffer.shape.len() {
        let (has, got) = (words::dimensions(buffer.shape.len()), words::indices(begins.len()));
        bail!("IndexError", "`{}` has {has} but got {got}", buffer.name);
    }
    let mut region = Vec::new();
    for (min, end) in begins.iter().zip(ends) {
        let extent = match end {
            Some(end) => {
                let extent = ops::sub(end.0, min.clone())?;
                size::check_expr(&extent, "the range")?;
                Analyzer::new().simplify(&extent)?
            }
            None => ops::int(1, min.dtype)?,
        };
        let (min, extent) = ops::unify(min, extent)?;
        if !min.dtype.is_integer() || min.dtype.lanes() != 1 {
            bail!("TypeError", "an index of `{}` must be an integer but is {}", buffer.name, min.dtype);
        }
        region.push(Ref::new(Range { min, extent }));
    }
    Ok(Ref::new(BufferRegion { buffer, region: region.into_iter().collect() }).into_object())
}

/// Creates a statement that stores a value in an element of a buffer.
#[register("tir.store")]
fn store(buffer: Ref<Buffer>, value: Operand, indices: Vec<Operand>) -> Result<Stmt> {
    let Operand(value) = value;
    let value = ops::adopt(value, buffer.dtype);
    make::store(&buffer, value, exprs(indices))
}

/// Creates a sequence of statements. An expression in the sequence, such as a call, is evaluated for its effects.
#[register("tir.seq")]
fn seq(stmts: Vec<ObjectRef>) -> Result<Stmt> {
    let mut seq = Vec::new();
    for stmt in stmts {
        seq.push(match Stmt::try_from_object(stmt) {
            Ok(stmt) => stmt,
            Err(object) => match Expr::try_from_object(object) {
                Ok(value) => make::evaluate(value),
                Err(object) => bail!("TypeError", "`{}` is not a statement", object.type_key()),
            },
        });
    }
    Ok(make::seq(seq))
}

/// Creates a loop over `0 <= i < extent`. `body` is called with the loop variable `i` and returns the body.
/// The loop is serial by default.
#[register("tir.for_loop")]
fn for_loop(
    extent: Operand,
    body: PackedFunc,
    #[default("serial")] kind: ForKind,
    #[default("i")] name: &str,
) -> Result<Stmt> {
    let var = ops::var(name, extent.0.dtype);
    let min = ops::int(0, extent.0.dtype)?;
    let body = seq(vec![body.call((var.clone(),))?.get::<ObjectRef>()?])?;
    Ok(make::for_of_kind(var, min, extent.0, kind, body))
}
