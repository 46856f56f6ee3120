//! Check of the layout of buffers.

use anyfn::{Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::Expr;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::as_int;
use anyfn_ir::visit::Visitor;
use anyfn_ir::{make, ops, printer};

/// Checks that all buffers of a function are compact, with or without strides that say so. Generated code computes the places of
/// elements from the extents, entry points accept compact arguments only, and allocations have room for the extents only.
///
/// # Errors
/// Returns `ValueError` that names the first buffer with other strides.
pub(crate) fn check_layout(func: &PrimFunc) -> Result<()> {
    struct Check(Result<()>);
    impl Visitor for Check {
        fn expr(&mut self, expr: &Expr) {
            if self.0.is_ok() {
                self.below_expr(expr);
            }
        }
        fn buffer(&mut self, buffer: &Ref<Buffer>) {
            if self.0.is_ok() {
                self.0 = check_buffer(buffer);
            }
        }
        fn define_buffer(&mut self, buffer: &Ref<Buffer>) {
            self.buffer(buffer);
        }
    }
    func.buffer_map.iter().try_for_each(|(_, buffer)| check_buffer(&buffer))?;
    let mut check = Check(Ok(()));
    check.stmt(&func.body);
    check.0
}

fn check_buffer(buffer: &Ref<Buffer>) -> Result<()> {
    let mut compact = ops::i32(1);
    let dims = buffer.shape.iter().zip(buffer.strides.iter()).collect::<Vec<_>>();
    for (dim, (extent, stride)) in dims.into_iter().enumerate().rev() {
        let is_compact = match (as_int(&stride), as_int(&compact)) {
            (Some(stride), Some(compact)) => stride == compact,
            _ => make::is_equal(&stride, &compact),
        };
        if !is_compact && as_int(&extent) != Some(1) {
            bail!(
                "ValueError",
                "buffer `{}` has stride {} in dimension {dim}, but compiled code requires compact buffers, which have {} there: leave \
                 out `strides`, or declare a larger compact buffer and use a part of it",
                buffer.name,
                printer::brief(stride.as_object()),
                printer::brief(compact.as_object())
            );
        }
        compact = ops::mul(extent.clone(), ops::cast(compact, extent.dtype)?)?;
    }
    Ok(())
}
