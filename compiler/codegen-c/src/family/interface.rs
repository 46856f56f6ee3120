//! Interface of a function: its parameters, and values that are derived from them.

use std::collections::HashSet;

use anyfn::{Object, Ref, Result, bail};
use anyfn_ir::analysis::written;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::HANDLE;
use anyfn_ir::stmt::{For, Stmt};
use anyfn_ir::visit::Visitor;
use anyfn_ir::{ExprKind, StmtKind, make};

use crate::family::{Dialect, Names};

/// Parameters of a function, and the variables to which the shapes of its tensors give values.
pub(crate) struct Interface {
    pub(crate) params: Vec<Param>,
    /// Variables of the function's numeric parameters.
    pub(crate) numbers: Vec<Ref<Var>>,
    /// Variables that get their values from the shapes of arguments, in the order of their first occurrence.
    pub(crate) extents: Vec<Ref<Var>>,
    /// Loops whose trip count is a product of variables in `numbers` or `extents`, one loop for each distinct product.
    /// The entry point checks that the loop variables do not overflow.
    pub(crate) counted: Vec<Ref<For>>,
    /// Addresses of the data variables of the buffers that the function writes.
    written: HashSet<usize>,
}

/// A parameter of a function.
pub(crate) enum Param {
    Number(Ref<Var>),
    Tensor(Ref<Buffer>),
}

impl Interface {
    /// Returns the interface of a function.
    ///
    /// # Errors
    /// Returns `ValueError` for a parameter that is a handle without a buffer.
    pub(crate) fn of(func: &PrimFunc) -> Result<Interface> {
        let params = params_of(func)?;
        let (mut numbers, mut extents) = (Vec::new(), Vec::<Ref<Var>>::new());
        for param in &params {
            if let Param::Number(var) = param {
                numbers.push(var.clone());
            }
        }
        for buffer in params.iter().filter_map(Param::buffer) {
            for extent in buffer.shape.iter() {
                if let ExprKind::Var(var) = ExprKind::of(&extent)
                    && !numbers.iter().chain(&extents).any(|known| known.ptr_eq(var))
                {
                    extents.push(var.clone());
                }
            }
        }
        let counted = counted(&func.body, &numbers.iter().chain(&extents).map(address).collect());
        Ok(Interface { params, numbers, extents, counted, written: written(&func.body) })
    }

    /// Assigns names to the parameters of the generated function: the variables in `numbers` and in
    /// `extents`, and the buffers. Returns the declaration and the name of each parameter, in this
    /// order.
    pub(crate) fn declare<D: Dialect>(&self, names: &mut Names) -> Result<Vec<(String, String)>> {
        let mut declared = Vec::new();
        for var in self.numbers.iter().chain(&self.extents) {
            let name = names.var(var);
            declared.push((D::variable(var.dtype, &name)?, name));
        }
        for buffer in self.params.iter().filter_map(Param::buffer) {
            let name = names.buffer(buffer);
            declared.push((D::buffer_parameter(buffer, &name, self.writes(buffer))?, name));
        }
        Ok(declared)
    }

    /// Returns true if the function writes the memory of a buffer.
    pub(crate) fn writes(&self, buffer: &Buffer) -> bool {
        self.written.contains(&address(&buffer.data))
    }
}

impl Param {
    pub(crate) fn buffer(&self) -> Option<&Ref<Buffer>> {
        match self {
            Param::Tensor(buffer) => Some(buffer),
            Param::Number(_) => None,
        }
    }
}

fn params_of(func: &PrimFunc) -> Result<Vec<Param>> {
    let mut params = Vec::new();
    for var in func.params.iter() {
        params.push(match func.buffer_map.get(&var)? {
            Some(buffer) => Param::Tensor(buffer),
            None if var.dtype == HANDLE => {
                bail!("ValueError", "parameter `{}` is a handle without a buffer", var.name)
            }
            None => Param::Number(var),
        });
    }
    Ok(params)
}

pub(crate) fn address<T: Object>(object: &Ref<T>) -> usize {
    object.as_object().as_handle().addr()
}

/// Returns the loops whose extent multiplies variables in `known`, one loop for each distinct
/// extent. Such an extent may exceed the range of the loop variable.
fn counted(body: &Stmt, known: &HashSet<usize>) -> Vec<Ref<For>> {
    struct Extent<'a> {
        known: &'a HashSet<usize>,
        is_known: bool,
        multiplies: bool,
    }
    impl Visitor for Extent<'_> {
        fn expr(&mut self, expr: &Expr) {
            match ExprKind::of(expr) {
                ExprKind::Var(var) => self.is_known &= self.known.contains(&address(var)),
                ExprKind::BufferLoad(_) | ExprKind::Call(_) => self.is_known = false,
                ExprKind::Binary(BinaryOp::Mul, _) => self.multiplies = true,
                _ => {}
            }
            self.below_expr(expr);
        }
    }
    struct Loops<'a>(&'a HashSet<usize>, Vec<Ref<For>>);
    impl Visitor for Loops<'_> {
        fn expr(&mut self, _: &Expr) {}
        fn stmt(&mut self, stmt: &Stmt) {
            if let StmtKind::For(node) = StmtKind::of(stmt) {
                let mut extent = Extent { known: self.0, is_known: true, multiplies: false };
                extent.expr(&node.extent);
                let is_new = |old: &Ref<For>| !make::is_equal(&old.extent, &node.extent);
                if extent.is_known && extent.multiplies && self.1.iter().all(is_new) {
                    self.1.push(node.clone());
                }
            }
            self.below_stmt(stmt);
        }
    }
    let mut loops = Loops(known, Vec::new());
    loops.stmt(body);
    loops.1
}
