//! Code generation for statements.

use anyfn::{DType, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::kind::{as_int, is_int};
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::packed::as_packed;
use anyfn_ir::stmt::{For, Stmt};
use anyfn_ir::visit::on_enough_stack;
use anyfn_ir::{ExprKind, StmtKind};

use crate::family::{Dialect, Message, Names, Symbol};

/// Maximum indentation level. Without a limit, the source of a deeply nested function would consist mostly of
/// blanks.
const MOST_INDENTED: usize = 64;

/// Generator of the source of a function's body.
pub(crate) struct Body<'a, D> {
    pub(crate) out: String,
    pub(crate) names: &'a mut Names,
    pub(crate) depth: usize,
    /// Declaration and name of each variable and buffer that is visible to the code generated next.
    pub(crate) scope: Vec<(String, String)>,
    /// Symbol of the function whose body is generated.
    pub(crate) symbol: &'a Symbol,
    /// Name and declaration of each type and function that the generated code uses. A declaration follows the
    /// declarations on which it depends.
    pub(crate) declared: Vec<(String, String)>,
    /// True while generating index arithmetic. Overflow is assumed not to occur there, which makes the
    /// generated code faster.
    pub(crate) in_place: bool,
    /// Extents of the enclosing loops.
    pub(crate) extents: Vec<Expr>,
    /// Number of enclosing expressions that are evaluated only under a condition.
    pub(crate) maybe: usize,
    /// Pending checks that divisors are not 0, as lines of source. The checks are written before
    /// the next line, which uses the divisors in indices.
    pub(crate) checks: Vec<String>,
    /// State of the generator that is specific to the dialect.
    pub(crate) dialect: D,
}

impl<'a, D: Dialect> Body<'a, D> {
    pub(crate) fn new(symbol: &'a Symbol, names: &'a mut Names, depth: usize, dialect: D) -> Body<'a, D> {
        Body {
            out: String::new(),
            names,
            depth,
            scope: Vec::new(),
            symbol,
            declared: Vec::new(),
            in_place: false,
            extents: Vec::new(),
            maybe: 0,
            checks: Vec::new(),
            dialect,
        }
    }

    pub(crate) fn line(&mut self, text: &str) {
        self.flush_checks();
        self.raw_line(text);
    }

    /// Writes the pending checks of divisors, which must precede the line that contains the
    /// divisors.
    pub(crate) fn flush_checks(&mut self) {
        for check in std::mem::take(&mut self.checks) {
            self.raw_line(&check);
        }
    }

    fn raw_line(&mut self, text: &str) {
        for _ in 0..self.depth.min(MOST_INDENTED) {
            self.out.push_str("  ");
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// Writes a line and then increases the indentation.
    pub(crate) fn open(&mut self, text: &str) {
        self.line(text);
        self.depth += 1;
    }

    /// Decreases the indentation and then writes a line.
    pub(crate) fn close(&mut self, text: &str) {
        self.depth -= 1;
        self.line(text);
    }

    /// Declares a type or function that the generated code uses, unless a declaration with the same
    /// name exists.
    pub(crate) fn declare(&mut self, name: &str, text: String) {
        if !self.declared.iter().any(|(known, _)| known == name) {
            self.declared.push((name.to_owned(), text));
        }
    }

    pub(crate) fn stmt(&mut self, stmt: &Stmt) -> Result<()> {
        on_enough_stack(|| self.stmt_here(stmt))
    }

    pub(crate) fn inner(&mut self, stmt: &Stmt) -> Result<()> {
        self.depth += 1;
        let result = self.stmt(stmt);
        self.depth -= 1;
        result
    }

    fn stmt_here(&mut self, stmt: &Stmt) -> Result<()> {
        match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) if node.value.dtype.lanes() != 1 => D::store_vector(self, node)?,
            StmtKind::BufferStore(node) => {
                let place = self.element(&node.buffer, &node.indices, "")?;
                let value = self.expr(&node.value)?;
                // The compiler of the dialect must preserve the order of a sum that is computed in a loop.
                let is_in_loop = self.scope.last().is_some_and(|(_, name)| !uses(&place, name));
                let is_sum =
                    matches!(ExprKind::of(&node.value), ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub, _));
                if is_sum && node.buffer.dtype.is_float() && is_in_loop && value.contains(&place) {
                    D::before_sum(self);
                }
                self.line(&format!("{place} = {value};"));
            }
            StmtKind::For(node) => D::for_loop(self, node)?,
            StmtKind::Launch(node) => D::launch(self, node)?,
            StmtKind::SeqStmt(node) => {
                for (index, stmt) in node.seq.iter().enumerate() {
                    D::before_step(self, node, index);
                    self.stmt(&stmt)?;
                }
            }
            StmtKind::IfThenElse(node) => {
                let condition = self.place(&node.condition)?;
                self.line(&format!("if ({condition}) {{"));
                self.inner(&node.then_case)?;
                if let Some(stmt) = &node.else_case {
                    self.line("} else {");
                    self.inner(stmt)?;
                }
                self.line("}");
            }
            StmtKind::LetStmt(node) => {
                self.open("{");
                self.bind(&node.var, &node.value)?;
                self.stmt(&node.body)?;
                self.scope.pop();
                self.close("}");
            }
            StmtKind::Allocate(node) => D::allocate(self, &node.buffer, &node.body)?,
            StmtKind::Evaluate(node) => match as_packed(&node.value) {
                Some(call) => D::call_packed(self, call, None)?,
                None => {
                    let value = self.expr(&node.value)?;
                    self.line(&D::discard(&value));
                }
            },
            StmtKind::AssertStmt(node) => {
                let condition = self.expr(&node.condition)?;
                let mut message = Message::default();
                for part in node.message.iter() {
                    match ExprKind::of(&part) {
                        ExprKind::StringImm(text) => message.push_text(&text.value),
                        _ => message.push_integer(self.expr(&part)?, part.dtype),
                    }
                }
                let check = D::check(self, &condition, &node.kind, &message)?;
                self.line(&check);
            }
            StmtKind::Block(_) | StmtKind::BlockRealize(_) => {
                bail!("ValueError", "blocks must be lowered before code is generated");
            }
            StmtKind::Other => {
                bail!(
                    "TypeError",
                    "cannot generate {1} code for a `{0}`; a pass must lower it first",
                    stmt.as_object().type_key(),
                    D::NAME
                );
            }
        }
        Ok(())
    }

    /// Generates the definition of a variable with a given value.
    fn bind(&mut self, var: &Ref<Var>, value: &Expr) -> Result<()> {
        if var.dtype.lanes() != 1 {
            return D::bind_vector(self, var, value);
        }
        let name = self.names.var(var);
        let declared = D::variable(var.dtype, &name)?;
        if let Some(call) = as_packed(value) {
            D::call_packed(self, call, Some((&name, var.dtype)))?;
        } else {
            let value = self.expr(value)?;
            self.line(&D::constant(var.dtype, &name, &value)?);
        }
        self.scope.push((declared, name));
        Ok(())
    }

    /// Generates a loop whose iterations are executed in order.
    pub(crate) fn plain_loop(&mut self, node: &For) -> Result<()> {
        self.loop_with(node, D::loop_head, |body| body.inner(&node.body))
    }

    /// Generates a loop. `head` receives the data type and the name of the loop variable, its first value and
    /// its exclusive end, and returns the first line of the loop. `inner` generates the body.
    pub(crate) fn loop_with(
        &mut self,
        node: &For,
        head: impl FnOnce(DType, &str, &str, &str) -> Result<String>,
        inner: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let (min, extent) = (self.place(&node.min)?, self.place(&node.extent)?);
        let (dtype, name) = (node.loop_var.dtype, self.names.var(&node.loop_var));
        let declared = D::variable(dtype, &name)?;
        let end = if is_int(&node.min, 0) { extent } else { format!("{min} + {extent}") };
        self.line(&head(dtype, &name, &min, &end)?);
        self.scope.push((declared, name));
        self.extents.push(node.extent.clone());
        inner(self)?;
        self.extents.pop();
        self.scope.pop();
        self.line("}");
        Ok(())
    }
}

/// Returns true if a name occurs in source code as a whole word.
pub(crate) fn uses(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_word) && !text[at + name.len()..].starts_with(is_word))
}

/// Returns the number of elements of a buffer, or `None` if the shape is not constant or the number
/// exceeds 64 bits.
pub(crate) fn known_size(buffer: &Buffer) -> Option<i64> {
    buffer.shape.iter().try_fold(1i64, |n, extent| n.checked_mul(as_int(&extent)?))
}
