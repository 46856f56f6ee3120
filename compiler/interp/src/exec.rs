//! Interpretation of statements.

use anyfn::{Error, Result};
use anyfn_ir::StmtKind;
use anyfn_ir::expr::IterKind;
use anyfn_ir::stmt::{BlockRealize, Stmt};
use anyfn_ir::visit::on_enough_stack;

use crate::eval::Machine;
use crate::value::Value;

impl Machine {
    pub(crate) fn stmt(&mut self, stmt: &Stmt) -> Result<()> {
        on_enough_stack(|| self.stmt_here(stmt))
    }

    fn stmt_here(&mut self, stmt: &Stmt) -> Result<()> {
        match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) => self.store(&node.buffer, &node.indices, &node.value),
            StmtKind::For(node) => {
                let (first, count) = (self.place(&node.min)?, self.place(&node.extent)?);
                // Compiled code compares the variable with the end of the loop.
                let (dtype, end) = (node.loop_var.dtype, first.saturating_add(count.max(0)));
                if crate::value::wrapped(end, dtype) != end {
                    let text =
                        format!("loop `{}` ends at {end}, which {dtype} cannot represent", node.loop_var.name);
                    return self.fail("OverflowError", &text);
                }
                for number in 0..count.max(0) {
                    self.repeated += 1;
                    if self.repeated.is_multiple_of(4096) {
                        anyfn::check_signals()?;
                    }
                    self.with(&node.loop_var, Value::int(first + number), |m| m.stmt(&node.body))?;
                }
                Ok(())
            }
            StmtKind::Launch(node) => {
                let count = self.place(&node.num_tasks)?;
                if count < 0 {
                    let name = &node.body.loop_var.name;
                    return self.fail(
                        "ValueError",
                        &format!("the number of tasks of loop `{name}` is negative: {count}"),
                    );
                }
                self.stmt(&node.body.clone().into_parent())
            }
            StmtKind::SeqStmt(node) => node.seq.iter().try_for_each(|stmt| self.stmt(&stmt)),
            StmtKind::IfThenElse(node) => match (self.is_true(&node.condition)?, &node.else_case) {
                (true, _) => self.stmt(&node.then_case),
                (false, Some(stmt)) => self.stmt(stmt),
                (false, None) => Ok(()),
            },
            StmtKind::LetStmt(node) => {
                let value = self.expr(&node.value)?;
                self.with(&node.var, value, |m| m.stmt(&node.body))
            }
            StmtKind::Allocate(node) => self.allocated(&node.buffer, |m| m.stmt(&node.body)),
            StmtKind::Evaluate(node) => self.expr(&node.value).map(drop),
            StmtKind::AssertStmt(node) => {
                if self.is_true(&node.condition)? {
                    return Ok(());
                }
                let mut message = String::new();
                for part in node.message.iter() {
                    match self.expr(&part)? {
                        Value::Text(text) => message.push_str(&text),
                        value => message.push_str(&value.lane(0).text()),
                    }
                }
                Err(Error::new(&node.kind, &message))
            }
            StmtKind::BlockRealize(node) => self.block(node),
            StmtKind::Block(node) => self.fail(
                "ValueError",
                &format!("block `{}` has no values for its axes; it must be part of a BlockRealize", node.name),
            ),
            StmtKind::Other => {
                let key = stmt.as_object().type_key();
                self.fail("TypeError", &format!("`{key}` cannot be interpreted; a pass must lower it first"))
            }
        }
    }

    fn block(&mut self, node: &BlockRealize) -> Result<()> {
        if !self.is_true(&node.predicate)? {
            return Ok(());
        }
        let block = &node.block;
        let mut is_first = true;
        let mut values = Vec::new();
        for (axis, value) in block.iter_vars.iter().zip(node.iter_values.iter()) {
            let (first, count) = (self.place(&axis.dom.min)?, self.place(&axis.dom.extent)?);
            let value = self.place(&value)?;
            if value < first || value >= first.saturating_add(count) {
                let (name, end) = (&axis.var.name, first.saturating_add(count).saturating_sub(1));
                return self.fail(
                    "IndexError",
                    &format!(
                        "axis `{name}` of block `{}` is {value}, which is not between {first} and {end}",
                        block.name
                    ),
                );
            }
            is_first &= axis.kind != IterKind::Reduce || value == first;
            values.push((axis.var.clone(), Value::int(value)));
        }
        self.bound(&values, &mut |machine| {
            let buffers: Vec<_> = block.alloc_buffers.iter().collect();
            machine.with_buffers(&buffers, &mut |machine| {
                if let Some(init) = block.init.as_ref().filter(|_| is_first) {
                    machine.stmt(init)?;
                }
                machine.stmt(&block.body)
            })
        })
    }

    /// Runs `step` while each variable in `values` has the value that is paired with it.
    fn bound(
        &mut self,
        values: &[(anyfn::Ref<anyfn_ir::expr::Var>, Value)],
        step: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        on_enough_stack(|| match values.split_first() {
            Some(((var, value), rest)) => self.with(var, value.clone(), |m| m.bound(rest, step)),
            None => step(self),
        })
    }

    /// Allocates memory for `buffers`, runs `step`, and restores the previous memory of the buffers.
    fn with_buffers(
        &mut self,
        buffers: &[anyfn::Ref<anyfn_ir::buffer::Buffer>],
        step: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        on_enough_stack(|| match buffers.split_first() {
            Some((buffer, rest)) => self.allocated(buffer, |m| m.with_buffers(rest, step)),
            None => step(self),
        })
    }
}
