//! Global functions `arith.*`: analysis of integer expressions.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyfn::{Array, Object, Ref, Result, bail, methods};
use anyfn_arith::{Bound, Mark};
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::operand::{Operand, exprs};
use anyfn_ir::size;

/// Integer analyzer for use from other languages. It derives properties of expressions from facts about
/// variables and conditions.
#[derive(Object)]
#[object(key = "arith.Analyzer", init = false)]
struct Analyzer {
    #[field(skip)]
    state: Mutex<AnalyzerState>,
}

#[derive(Default)]
struct AnalyzerState {
    analyzer: anyfn_arith::Analyzer,
    marks: Vec<Mark>,
}

impl Analyzer {
    fn state(&self) -> MutexGuard<'_, AnalyzerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the expression of an operand, or an error if the expression contains itself. Each shared node is
/// visited once.
fn finite(operand: Operand) -> Result<Expr> {
    size::check_acyclic(&operand.0, "the expression")?;
    Ok(operand.0)
}

/// Creates an analyzer without any assumptions.
#[anyfn::register("arith.analyzer")]
fn analyzer() -> Ref<Analyzer> {
    Ref::new(Analyzer { state: Mutex::default() })
}

#[methods]
impl Analyzer {
    /// Declares that a variable takes `extent` consecutive values, beginning with `min`. `extent` is assumed
    /// to be at least 1.
    fn bind(&self, var: Ref<Var>, min: Operand, extent: Operand) -> Result<()> {
        self.state().analyzer.bind(&var, &finite(min)?, &finite(extent)?);
        Ok(())
    }

    /// Assumes that a condition holds.
    fn assume(&self, condition: Operand) -> Result<()> {
        self.state().analyzer.assume(&finite(condition)?);
        Ok(())
    }

    /// Enters a scope: `leave` removes all declarations and assumptions that are made after this call.
    fn enter(&self) {
        let mut state = self.state();
        let mark = state.analyzer.mark();
        state.marks.push(mark);
    }

    /// Leaves a scope: removes all declarations and assumptions made since the matching call of `enter`.
    fn leave(&self) -> Result<()> {
        let mut state = self.state();
        let Some(mark) = state.marks.pop() else {
            bail!("RuntimeError", "`leave` was called without a matching `enter`")
        };
        state.analyzer.restore(mark);
        Ok(())
    }

    /// Returns a lower and an upper bound of an expression as integers. An unknown bound is None.
    fn const_bound(&self, expr: Operand) -> Result<Vec<Option<i64>>> {
        let Bound { min, max } = self.state().analyzer.const_bound(&finite(expr)?);
        Ok(vec![(min != Bound::NEG_INF).then_some(min), (max != Bound::POS_INF).then_some(max)])
    }

    /// Returns two integers, a factor and a remainder. The value of the expression is a multiple of the
    /// factor, plus the remainder.
    fn modular(&self, expr: Operand) -> Result<Vec<i64>> {
        let (factor, rest) = self.state().analyzer.modular(&finite(expr)?);
        Ok(vec![factor, rest])
    }

    /// Returns an expression that has the same value as `expr` and is cheaper to compute.
    fn simplify(&self, expr: Operand) -> Result<Expr> {
        self.state().analyzer.simplify(&finite(expr)?)
    }

    /// Returns true if a condition is proved to hold for all values of its variables.
    fn can_prove(&self, condition: Operand) -> Result<bool> {
        Ok(self.state().analyzer.can_prove(&finite(condition)?))
    }

    /// Returns a lower and an upper bound of an expression while the variables in `over` take all values of
    /// their domains. The bounds are expressions of the other variables. Returns None if no bounds are known.
    fn bounds(&self, expr: Operand, over: Vec<Ref<Var>>) -> Result<Option<Array<Expr>>> {
        size::check_expr(&expr.0, "the expression")?;
        let bounds = self.state().analyzer.bounds(&expr.0, &over);
        Ok(bounds.map(|(low, high)| [low, high].into_iter().collect()))
    }

    /// Returns a region of a buffer that contains all accesses while the variables in `over` take all values
    /// of their domains. The region consists of the first index and the extent of each dimension. Returns
    /// None if no region is known.
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
