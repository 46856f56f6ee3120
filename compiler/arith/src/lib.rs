//! Integer analysis: what index expressions can be, and simpler ones of the same value.
//!
//! [`Analyzer`] knows the domains of variables and conditions that hold, and answers: between which numbers an expression
//! lies ([`Analyzer::const_bound`]), what it leaves when divided ([`Analyzer::modular`]), whether a condition always holds
//! ([`Analyzer::can_prove`]), a simpler form ([`Analyzer::simplify`]), and which part of a buffer accesses touch
//! ([`Analyzer::bounds`], [`Analyzer::region`]).
//!
//! # How it works
//! An expression becomes a sum: a constant and atoms with factors. An atom is what a sum cannot look into: a variable, a
//! quotient, a remainder, a product, an element of a buffer. Atoms are made once, so equal expressions get equal sums,
//! and what cancels is gone. Rules for quotients and remainders work on sums with the bounds of their parts.
//!
//! # What is assumed
//! - An expression of variables and constants of a signed type of at least 32 bits does not overflow where it is computed,
//!   if one of the variables has no numbers for limits: it is about places in memory, which exist. In all else, as in what
//!   contains elements of buffers or variables of which it is said ([`Analyzer::set_any`]), a rule is used only if bounds show
//!   that nothing overflows.
//! - Loops whose variables are bound run at least once: what is said holds inside of them.
//!
//! The analysis itself computes without overflow: what would leave 64 bits counts as unbounded, or stays as it was written.

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

use crate::atom::{Atom, Id, Key};
pub use crate::bound::Bound;
use crate::linear::Linear;
pub use crate::region::Span;

/// What is known about variables and conditions, and answers to questions about expressions.
///
/// It is meant to go along with a walk over a function: [`bind`](Self::bind) on the way into a loop,
/// [`assume`](Self::assume) on the way into a branch, [`restore`](Self::restore) on the way out.
#[derive(Default)]
pub struct Analyzer {
    /// All atoms; an [`Id`] is a place in it.
    atoms: Vec<Atom>,
    /// Where an atom is.
    places: HashMap<(Key, DType), Id>,
    /// Domains of bound variables.
    domains: HashMap<Id, Domain>,
    /// Sums that are not negative.
    facts: Vec<Linear>,
    /// Conditions that hold and are not about integers.
    truths: Vec<Expr>,
    /// What [`Analyzer::restore`] brings back.
    undo: Vec<Undo>,
    /// Sums of expressions, by address; the expressions are kept so that the addresses stay theirs.
    sums: HashMap<usize, (Expr, Linear)>,
    /// Simplified expressions, by address.
    simplified: HashMap<usize, (Expr, Expr)>,
    /// Whether conditions made of others hold, by address.
    decided: HashMap<usize, (Expr, Option<bool>)>,
    /// Conditions that the present assumption has taken in, by address, and whether they hold.
    assumed: HashSet<(usize, bool)>,
    /// Whether an expression can do anything but give a value, by address.
    effects: HashMap<usize, (Expr, bool)>,
    /// Grows when something known changes, so that bounds are computed anew.
    epoch: u32,
    /// Quotients and remainders (`true`) of sums.
    divisions: HashMap<(Linear, i64, bool, DType), Option<Linear>>,
    /// Steps that the present proof may still take.
    budget: u32,
    /// Proofs within proofs.
    nesting: u32,
}

/// The values of a variable.
#[derive(Clone)]
struct Domain {
    min: Linear,
    max: Linear,
    /// With constants; may be narrower by assumptions.
    bound: Bound,
}

enum Undo {
    Domain(Id, Option<Domain>),
    Fact,
    Truth,
}

/// A point to go back to: see [`Analyzer::mark`].
#[derive(Clone, Copy)]
pub struct Mark(usize);

impl Analyzer {
    /// One that knows nothing.
    #[must_use]
    pub fn new() -> Analyzer {
        Analyzer::default()
    }

    /// Says that a variable can have any value of its type, and that sums with it wrap around. To be said before anything else
    /// of it.
    pub fn set_any(&mut self, var: &Ref<Var>) {
        let id = self.var(var);
        if let Some(atom) = self.atom_mut(id) {
            atom.is_data = true;
        }
    }

    /// Says that a variable runs from `min` on through `extent` values, of which there is at least one.
    pub fn bind(&mut self, var: &Ref<Var>, min: &Expr, extent: &Expr) {
        let (min, extent) = (self.linear(min), self.linear(extent));
        let max = min.plus(&extent, 1).and_then(|end| end.plus_constant(-1));
        // There is at least one value, or nobody asks.
        self.fact(extent.plus_constant(-1));
        self.bind_span(var, min, max);
    }

    /// Says that a variable has the value of an expression.
    pub fn bind_value(&mut self, var: &Ref<Var>, value: &Expr) {
        if anyfn_ir::ops::DTypeExt::is_integer(&var.dtype) && value.dtype == var.dtype {
            let value = self.linear(value);
            // What is read from memory may change as long as the variable lives.
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

    /// Says that a condition holds.
    pub fn assume(&mut self, condition: &Expr) {
        self.forget();
        self.assumed.clear();
        self.assume_here(condition, true);
        self.forget();
    }

    /// Says that a condition does not hold.
    pub fn assume_not(&mut self, condition: &Expr) {
        self.forget();
        self.assumed.clear();
        self.assume_here(condition, false);
        self.forget();
    }

    /// The present point: [`restore`](Self::restore) forgets what is said after it.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.undo.len())
    }

    /// Forgets what has been said since the mark.
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

    /// Runs `inner` where a variable runs from `min` on through `extent` values.
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

    /// Between which numbers an integer lies; anything else is unbounded.
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

    /// The pair (`factor`, `rest`) such that an integer is `factor * x + rest` for some x, with `0 <= rest < factor`; a factor
    /// of 0 says that it is the rest. (1, 0) says nothing.
    pub fn modular(&mut self, expr: &Expr) -> (i64, i64) {
        use anyfn_ir::ops::DTypeExt;
        if !expr.dtype.is_integer() || expr.dtype.lanes() != 1 {
            return (1, 0);
        }
        let sum = self.linear(expr);
        self.modular_of(&sum)
    }

    /// An expression of the same value and data type, with less to compute where that is known.
    ///
    /// What does not get simpler stays the same object.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn simplify(&mut self, expr: &Expr) -> Result<Expr> {
        self.simplify_here(expr)
    }

    /// Whether a condition holds for all values of the variables in it. `false` says nothing.
    pub fn can_prove(&mut self, condition: &Expr) -> bool {
        self.decide(condition) == Some(true)
    }

    /// Whether a condition holds for no values of the variables in it. `false` says nothing.
    pub fn can_refute(&mut self, condition: &Expr) -> bool {
        self.decide(condition) == Some(false)
    }

    /// Whether two integers are the same for all values of the variables in them.
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

    /// Forgets what was computed, because what is known changes.
    fn forget(&mut self) {
        self.epoch += 1;
        self.sums.clear();
        self.simplified.clear();
        self.decided.clear();
        self.divisions.clear();
    }
}
