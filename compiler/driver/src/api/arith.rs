//! `arith.*`: what is known of integer expressions.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyfn::{Array, Object, Ref, Result, bail, methods};
use anyfn_arith::{Bound, Mark};
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::operand::{Operand, exprs};
use anyfn_ir::size;

/// What is known about variables and conditions, and answers to questions about expressions.
#[derive(Object)]
#[object(key = "arith.Analyzer", init = false)]
struct Analyzer {
    #[field(skip)]
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    analyzer: anyfn_arith::Analyzer,
    marks: Vec<Mark>,
}

impl Analyzer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An expression that does not contain itself: each node is visited once, so it may have any size as a tree.
fn finite(operand: Operand) -> Result<Expr> {
    size::check_acyclic(&operand.0, "the expression")?;
    Ok(operand.0)
}

/// One that knows nothing.
#[anyfn::register("arith.analyzer")]
fn analyzer() -> Ref<Analyzer> {
    Ref::new(Analyzer { state: Mutex::default() })
}

#[methods]
impl Analyzer {
    /// Says that a variable runs from `min` on through `extent` values, of which there is at least one.
    fn bind(&self, var: Ref<Var>, min: Operand, extent: Operand) -> Result<()> {
        self.state().analyzer.bind(&var, &finite(min)?, &finite(extent)?);
        Ok(())
    }

    /// Says that a condition holds.
    fn assume(&self, condition: Operand) -> Result<()> {
        self.state().analyzer.assume(&finite(condition)?);
        Ok(())
    }

    /// What is said from now on is forgotten by `leave`.
    fn enter(&self) {
        let mut state = self.state();
        let mark = state.analyzer.mark();
        state.marks.push(mark);
    }

    /// Forgets what has been said since `enter`.
    fn leave(&self) -> Result<()> {
        let mut state = self.state();
        let Some(mark) = state.marks.pop() else { bail!("RuntimeError", "`leave` without `enter`") };
        state.analyzer.restore(mark);
        Ok(())
    }

    /// The smallest and the largest value; none where there is no limit.
    fn const_bound(&self, expr: Operand) -> Result<Vec<Option<i64>>> {
        let Bound { min, max } = self.state().analyzer.const_bound(&finite(expr)?);
        Ok(vec![(min != Bound::NEG_INF).then_some(min), (max != Bound::POS_INF).then_some(max)])
    }

    /// A factor and a rest: the value is a multiple of the factor, and the rest more.
    fn modular(&self, expr: Operand) -> Result<Vec<i64>> {
        let (factor, rest) = self.state().analyzer.modular(&finite(expr)?);
        Ok(vec![factor, rest])
    }

    /// An expression of the same value with less to compute.
    fn simplify(&self, expr: Operand) -> Result<Expr> {
        self.state().analyzer.simplify(&finite(expr)?)
    }

    /// Whether a condition is shown to hold always.
    fn can_prove(&self, condition: Operand) -> Result<bool> {
        Ok(self.state().analyzer.can_prove(&finite(condition)?))
    }

    /// The smallest and the largest value when variables run and others stay; none if they are not known.
    fn bounds(&self, expr: Operand, over: Vec<Ref<Var>>) -> Result<Option<Array<Expr>>> {
        size::check_expr(&expr.0, "the expression")?;
        let bounds = self.state().analyzer.bounds(&expr.0, &over);
        Ok(bounds.map(|(low, high)| [low, high].into_iter().collect()))
    }

    /// The part of a buffer in which accesses lie when variables run: first index and extent in each dimension.
    fn region(&self, accesses: Vec<Vec<Operand>>, over: Vec<Ref<Var>>) -> Result<Option<Array<Array<Expr>>>> {
        let accesses: Vec<Array<Expr>> = accesses.into_iter().map(exprs).collect();
        for index in accesses.iter().flat_map(|indices| indices.iter()) {
            size::check_expr(&index, "an index")?;
        }
        let spans = self.state().analyzer.region(&accesses, &over);
        let both = |span: anyfn_arith::Span| [span.min, span.extent].into_iter().collect();
        Ok(spans.map(|spans| spans.into_iter().map(both).collect()))
    }
}
