//! Integer analysis: ranges, proofs and simplification of index expressions.
//!
//! [`Analyzer`] records the domains of variables and the conditions that hold. It answers queries: the constant bounds of
//! an expression ([`Analyzer::const_bound`]), its modular set ([`Analyzer::modular`]), whether a condition always holds
//! ([`Analyzer::can_prove`]), a simpler form ([`Analyzer::simplify`]), and the region of a buffer that accesses touch
//! ([`Analyzer::bounds`], [`Analyzer::region`]).
//!
//! # How it works
//! An expression is converted to a sum of a constant and of atoms with factors. An atom is a term that sums treat as
//! opaque: a variable, a quotient, a remainder, a product, an element of a buffer. Atoms are interned, so equal
//! expressions have equal sums, and terms cancel. Rules for quotients and remainders work on sums, with the bounds of
//! their parts.
//!
//! # Assumptions
//! - An expression of variables and constants of a signed type of at least 32 bits is assumed not to overflow where it
//!   is evaluated, if one of its variables has no constant bounds. Such an expression is an index into existing memory.
//!   For any other expression, such as one that contains an element of a buffer or a variable declared with
//!   [`Analyzer::set_any`], a rule is applied only if bounds prove that nothing overflows.
//! - A loop whose variable is bound runs at least once. The facts that follow from this are valid inside of the loop.
//!
//! The analysis itself does not overflow: a value that exceeds 64 bits counts as unbounded, or the expression is left
//! unchanged.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

mod atom;
mod bound;
mod compare;
mod convert;
mod divide;
mod linear;
mod prove;
mod region;
mod simplify;

use std::collections::{HashMap, HashSet};

use anyfn::{DType, Ref, Result};
use anyfn_ir::expr::{Expr, Var};

use crate::atom::{Atom, Key};
pub use crate::bound::Bound;
use crate::linear::{Id, Linear};
pub use crate::region::Span;

/// Integer analyzer: records facts about variables and conditions, and answers queries about expressions.
///
/// An analyzer accompanies a walk over a function: call [`bind`](Self::bind) on entry to a loop, [`assume`](Self::assume)
/// on entry to a branch, and [`restore`](Self::restore) on exit.
#[derive(Default)]
pub struct Analyzer {
    /// All atoms (subexpressions that sums treat as unknowns), indexed by [`Id`].
    atoms: Vec<Atom>,
    /// Index of each atom in `atoms`, by the atom's key and data type.
    places: HashMap<(Key, DType), Id>,
    /// Ranges of the values of variables, as declared so far.
    domains: HashMap<Id, Domain>,
    /// Sums that are known not to be negative.
    facts: Vec<Linear>,
    /// Boolean variables and negated Boolean variables that are known to be true.
    truths: Vec<Expr>,
    /// Log of changes, which [`Analyzer::restore`] reverts.
    undo: Vec<Undo>,
    /// Cached sums to which expressions were converted, by the address of the expression. The expressions are
    /// kept alive so that their addresses stay unique.
    sums: HashMap<usize, (Expr, Linear)>,
    /// Cached simplified expressions, by the address of the original expression.
    simplified: HashMap<usize, (Expr, Expr)>,
    /// Cached results of [`Analyzer::decide`] for logical operations, by the address of the expression.
    decided: HashMap<usize, (Expr, Option<bool>)>,
    /// Conditions that the current call of [`Analyzer::assume`] has recorded, by address, with their assumed values.
    assumed: HashSet<(usize, bool)>,
    /// Cached results of [`Analyzer::has_effect`], by the address of the expression.
    effects: HashMap<usize, (Expr, bool)>,
    /// Counter that is incremented whenever facts are added or removed. Bounds that were cached in an earlier
    /// epoch are invalid.
    epoch: u32,
    /// Cached quotients and remainders of sums. The Boolean in the key is true for a remainder.
    divisions: HashMap<(Linear, i64, bool, DType), Option<Linear>>,
    /// Number of steps that remain for the current proof.
    budget: u32,
    /// Nesting depth of the current proof.
    nesting: u32,
}

/// Range of the values of a variable.
#[derive(Clone)]
struct Domain {
    min: Linear,
    max: Linear,
    /// Constant bounds of the variable's values, which assumptions may narrow.
    bound: Bound,
}

enum Undo {
    Domain(Id, Option<Domain>),
    Fact,
    Truth,
}

/// Saved state of an analyzer, created by [`Analyzer::mark`] and restored by [`Analyzer::restore`].
#[derive(Clone, Copy)]
pub struct Mark(usize);

impl Analyzer {
    /// Creates an analyzer without any recorded facts.
    #[must_use]
    pub fn new() -> Analyzer {
        Analyzer::default()
    }

    /// Declares that a variable may have any value of its type, so that sums that contain it may overflow. Must be
    /// called before any other use of the variable.
    pub fn set_any(&mut self, var: &Ref<Var>) {
        let id = self.var(var);
        if let Some(atom) = self.atom_mut(id) {
            atom.is_data = true;
        }
    }

    /// Declares that a variable takes `extent` consecutive values that start at `min`. `extent` is assumed to be at
    /// least 1.
    pub fn bind(&mut self, var: &Ref<Var>, min: &Expr, extent: &Expr) {
        let (min, extent) = (self.linear(min), self.linear(extent));
        let max = min.plus(&extent, 1).and_then(|end| end.plus_constant(-1));
        // Queries are only made inside the loop, where there is at least one value.
        self.fact(extent.plus_constant(-1));
        self.bind_span(var, min, max);
    }

    /// Declares that the variable `var` has the value of the expression `value`.
    pub fn bind_value(&mut self, var: &Ref<Var>, value: &Expr) {
        if anyfn_ir::ops::DTypeExt::is_integer(&var.dtype) && value.dtype == var.dtype {
            let value = self.linear(value);
            // Memory may change during the lifetime of the variable, so only the bound of the value is recorded.
            if self.is_data(&value) {
                let bound = self.bound_of(&value);
                let id = self.var(var);
                let own = Linear::atom(id);
                self.set_domain(id, Domain { min: own.clone(), max: own, bound });
            } else {
                self.bind_span(var, value.clone(), Some(value));
            }
        }
    }

    fn bind_span(&mut self, var: &Ref<Var>, min: Linear, max: Option<Linear>) {
        let id = self.var(var);
        let own = Linear::atom(id);
        let of_type = Bound::of_type(var.dtype);
        let lowest = self.bound_of(&min).min;
        let highest = max.as_ref().map_or(Bound::POS_INF, |max| self.bound_of(max).max);
        let bound = Bound { min: lowest, max: highest }.intersect(of_type);
        self.set_domain(id, Domain { min, max: max.unwrap_or(own), bound });
    }

    fn set_domain(&mut self, id: Id, domain: Domain) {
        self.forget();
        let old = self.domains.insert(id, domain);
        self.undo.push(Undo::Domain(id, old));
    }

    /// Declares that a condition holds.
    pub fn assume(&mut self, condition: &Expr) {
        self.forget();
        self.assumed.clear();
        self.assume_here(condition, true);
        self.forget();
    }

    /// Declares that a condition does not hold.
    pub fn assume_not(&mut self, condition: &Expr) {
        self.forget();
        self.assumed.clear();
        self.assume_here(condition, false);
        self.forget();
    }

    /// Returns a mark for the current state of the analyzer, to which [`restore`](Self::restore)
    /// can return.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.undo.len())
    }

    /// Restores the state that the analyzer had when [`mark`](Self::mark) returned `mark`. Removes
    /// everything that was declared since then.
    pub fn restore(&mut self, mark: Mark) {
        if self.undo.len() > mark.0 {
            self.forget();
        }
        while self.undo.len() > mark.0 {
            match self.undo.pop() {
                Some(Undo::Domain(id, Some(domain))) => drop(self.domains.insert(id, domain)),
                Some(Undo::Domain(id, None)) => drop(self.domains.remove(&id)),
                Some(Undo::Fact) => drop(self.facts.pop()),
                Some(Undo::Truth) => drop(self.truths.pop()),
                None => {}
            }
        }
    }

    /// Runs `inner` with a variable bound to `extent` consecutive values that start at `min`.
    pub fn with_bound<R>(
        &mut self,
        var: &Ref<Var>,
        min: &Expr,
        extent: &Expr,
        inner: impl FnOnce(&mut Analyzer) -> R,
    ) -> R {
        let mark = self.mark();
        self.bind(var, min, extent);
        let result = inner(self);
        self.restore(mark);
        result
    }

    /// Returns constant bounds of an integer expression. The bounds of a Boolean are 0 and 1. Expressions of other
    /// types are unbounded.
    pub fn const_bound(&mut self, expr: &Expr) -> Bound {
        use anyfn_ir::ops::DTypeExt;
        if !expr.dtype.is_integer() {
            return if expr.dtype.is_bool() { Bound { min: 0, max: 1 } } else { Bound::ANY };
        }
        if expr.dtype.lanes() != 1 {
            return self.bound_of_lanes(expr);
        }
        let sum = self.linear(expr);
        self.bound_of(&sum).intersect(Bound::of_type(expr.dtype))
    }

    /// Returns the modular set `(factor, rest)` of an integer expression: its value is `factor * x + rest` for some
    /// integer `x`, with `0 <= rest < factor`. If `factor` is 0, the value is `rest`. `(1, 0)` means that nothing is
    /// known.
    pub fn modular(&mut self, expr: &Expr) -> (i64, i64) {
        use anyfn_ir::ops::DTypeExt;
        if !expr.dtype.is_integer() || expr.dtype.lanes() != 1 {
            return (1, 0);
        }
        let sum = self.linear(expr);
        self.modular_of(&sum)
    }

    /// Simplifies an expression: the result has the same value and data type, and is cheaper to evaluate where possible.
    ///
    /// An expression that does not become simpler keeps its identity.
    ///
    /// # Errors
    /// Returns `MemoryError` when memory runs out.
    pub fn simplify(&mut self, expr: &Expr) -> Result<Expr> {
        self.simplify_here(expr)
    }

    /// Returns true if a condition is proved to hold for all values of its variables. Returns false if there is no proof.
    pub fn can_prove(&mut self, condition: &Expr) -> bool {
        self.decide(condition) == Some(true)
    }

    /// Returns true if a condition is proved to be false for all values of its variables. Returns false if
    /// there is no proof.
    pub fn can_refute(&mut self, condition: &Expr) -> bool {
        self.decide(condition) == Some(false)
    }

    /// Returns true if two integers are proved to be equal for all values of their variables.
    pub fn can_prove_equal(&mut self, a: &Expr, b: &Expr) -> bool {
        use anyfn_ir::ops::DTypeExt;
        if a.ptr_eq(b) {
            return !self.has_effect(a);
        }
        let is_index = |expr: &Expr| expr.dtype.is_integer() && expr.dtype.lanes() == 1;
        if !is_index(a) || !is_index(b) {
            return false;
        }
        let (a, b) = (self.linear(a), self.linear(b));
        self.is_zero(&a, &b)
    }

    /// Invalidates cached results after facts were added or removed.
    fn forget(&mut self) {
        self.epoch += 1;
        self.sums.clear();
        self.simplified.clear();
        self.decided.clear();
        self.divisions.clear();
    }
}
