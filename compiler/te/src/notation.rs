//! Operators for tensor expressions in Rust.
//!
//! A [`Term`] is an expression. The operators `+ - * / %` and functions combine terms, numbers, axes and
//! variables into new terms. Invalid operands do not cause a panic: the term holds the error, and [`compute`]
//! or [`Term::expr`] returns it.
//!
//! ```
//! # use anyfn_core as _;
//! # use anyfn_reflect as _;
//! use anyfn::DType;
//! use anyfn_te::notation::{At, axis, compute, max, placeholder, prim_func, sum};
//!
//! let a = placeholder([4, 8], DType::FLOAT32, "A")?;
//! let k = axis("k", 0, 8)?;
//! let total = compute([4], "total", |[i]| sum(a.at((&i, &k)), &[&k]))?;
//! let half = compute([4], "half", |[i]| max(total.at((&i,)) / 2 - 1.5, 0))?;
//! let func = prim_func("halves", &[&a, &half])?;
//! # assert!(anyfn_ir::printer::text(func.as_object()).contains("max(total["));
//!
//! let wrong = compute([4], "wrong", |[i]| a.at((&i,)));
//! assert_eq!(wrong.err().unwrap().kind(), "IndexError");
//! # Ok::<(), anyfn::Error>(())
//! ```

use anyfn::{Array, DType, ObjectRef, Ref, Result};
use anyfn_ir::expr::{BinaryOp, Expr, IterVar, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::{ops, printer};

use crate::Tensor;

/// Expression, or the error that occurred while the expression was built.
#[derive(Clone)]
pub struct Term(Result<Expr>);

impl std::fmt::Debug for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Ok(expr) => f.write_str(&printer::text(expr.as_object())),
            Err(error) => write!(f, "{error:?}"),
        }
    }
}

impl Term {
    /// Returns the expression, or the error that occurred while the expression was built.
    ///
    /// # Errors
    /// Returns the first error that occurred when the expression was built.
    pub fn expr(self) -> Result<Expr> {
        self.0
    }

    /// Converts the value to another data type.
    #[must_use]
    pub fn astype(&self, dtype: DType) -> Term {
        self.map(|value| ops::cast(value, dtype))
    }

    /// Creates the comparison `self < other`.
    #[must_use]
    pub fn less(&self, other: impl Into<Term>) -> Term {
        binary(BinaryOp::Lt, self, other)
    }

    /// Creates the comparison `self <= other`.
    #[must_use]
    pub fn at_most(&self, other: impl Into<Term>) -> Term {
        binary(BinaryOp::Le, self, other)
    }

    /// Creates the comparison `self == other`.
    #[must_use]
    pub fn equal(&self, other: impl Into<Term>) -> Term {
        binary(BinaryOp::Eq, self, other)
    }

    /// Combines two Booleans by a logical AND.
    #[must_use]
    pub fn and(&self, other: impl Into<Term>) -> Term {
        binary(BinaryOp::And, self, other)
    }

    /// Combines two Booleans by a logical OR.
    #[must_use]
    pub fn or(&self, other: impl Into<Term>) -> Term {
        binary(BinaryOp::Or, self, other)
    }

    /// Divides the value by another value and rounds the quotient down.
    #[must_use]
    pub fn floor_div(&self, other: impl Into<Term>) -> Term {
        binary(BinaryOp::FloorDiv, self, other)
    }

    /// Returns the absolute value of this term.
    #[must_use]
    pub fn abs(&self) -> Term {
        self.map(ops::abs)
    }

    /// Raises the value to the power `other`.
    #[must_use]
    pub fn power(&self, other: impl Into<Term>) -> Term {
        let Term(other) = other.into();
        self.map(|value| ops::power(value, other?))
    }

    fn map(&self, change: impl FnOnce(Expr) -> Result<Expr>) -> Term {
        Term(self.0.clone().and_then(change))
    }
}

impl From<&Term> for Term {
    fn from(term: &Term) -> Term {
        term.clone()
    }
}

impl From<Expr> for Term {
    fn from(expr: Expr) -> Term {
        Term(Ok(expr))
    }
}

impl From<&Ref<Var>> for Term {
    fn from(var: &Ref<Var>) -> Term {
        Term(Ok(var.clone().into_parent()))
    }
}

impl From<&Ref<IterVar>> for Term {
    fn from(axis: &Ref<IterVar>) -> Term {
        Term::from(&axis.var)
    }
}

impl From<bool> for Term {
    fn from(value: bool) -> Term {
        Term(Ok(ops::bool(value)))
    }
}

macro_rules! numbers {
    ($($type:ty: $make:ident $dtype:ident,)*) => { $(
        impl From<$type> for Term {
            fn from(value: $type) -> Term {
                Term(ops::$make(value.into(), DType::$dtype))
            }
        }
    )* };
}

// As in other languages, a number takes the data type of the operand that it is combined with.
numbers! { i32: int INT32, i64: int INT64, f32: float FLOAT32, f64: float FLOAT32, }

fn binary(op: BinaryOp, a: impl Into<Term>, b: impl Into<Term>) -> Term {
    let (Term(a), Term(b)) = (a.into(), b.into());
    Term(a.and_then(|a| ops::binary(op, a, b?)))
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident,)*) => { $(
        impl<T: Into<Term>> std::ops::$trait<T> for Term {
            type Output = Term;
            fn $method(self, other: T) -> Term {
                binary(BinaryOp::$op, self, other)
            }
        }
        impl<T: Into<Term>> std::ops::$trait<T> for &Term {
            type Output = Term;
            fn $method(self, other: T) -> Term {
                binary(BinaryOp::$op, self, other)
            }
        }
        operators!($trait $method $op: i32 i64 f32 f64);
    )* };
    ($trait:ident $method:ident $op:ident: $($number:ty)*) => { $(
        impl std::ops::$trait<Term> for $number {
            type Output = Term;
            fn $method(self, other: Term) -> Term {
                binary(BinaryOp::$op, self, other)
            }
        }
    )* };
}

// The result of `%` has the sign of the right operand, as in the other frontends. `&`, `|` and `^` also apply
// to Booleans.
operators! {
    Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, Rem rem FloorMod,
    BitAnd bitand BitAnd, BitOr bitor BitOr, BitXor bitxor BitXor, Shl shl ShiftLeft, Shr shr ShiftRight,
}

impl std::ops::Not for Term {
    type Output = Term;

    /// Negates a Boolean, or inverts all bits of an integer.
    fn not(self) -> Term {
        self.map(ops::not)
    }
}

impl std::ops::Neg for Term {
    type Output = Term;

    fn neg(self) -> Term {
        self.map(ops::neg)
    }
}

/// Creates the maximum of two values.
pub fn max(a: impl Into<Term>, b: impl Into<Term>) -> Term {
    binary(BinaryOp::Max, a, b)
}

/// Creates the minimum of two values.
pub fn min(a: impl Into<Term>, b: impl Into<Term>) -> Term {
    binary(BinaryOp::Min, a, b)
}

/// Creates a choice between two values. If the condition is a scalar, the value that is not chosen
/// is not evaluated, so it may contain an index that is out of bounds.
pub fn select(condition: impl Into<Term>, yes: impl Into<Term>, no: impl Into<Term>) -> Term {
    let (Term(condition), Term(yes), Term(no)) = (condition.into(), yes.into(), no.into());
    Term(condition.and_then(|condition| ops::select(condition, yes?, no?)))
}

/// Creates a call of a function that code generators know by name, such as `exp`, with one argument.
pub fn call(name: &str, value: impl Into<Term>) -> Term {
    value.into().map(|value| ops::math(name, [value]))
}

/// Creates the sum of a value over reduction axes.
pub fn sum(value: impl Into<Term>, axes: &[&Ref<IterVar>]) -> Term {
    value.into().map(|value| crate::sum(value, axes.iter().map(|axis| (*axis).clone()).collect()))
}

/// Creates the product of a value over reduction axes.
pub fn product(value: impl Into<Term>, axes: &[&Ref<IterVar>]) -> Term {
    value.into().map(|value| crate::prod(value, axes.iter().map(|axis| (*axis).clone()).collect()))
}

/// Creates the maximum of a value over reduction axes.
pub fn max_over(value: impl Into<Term>, axes: &[&Ref<IterVar>]) -> Term {
    value.into().map(|value| crate::max(value, axes.iter().map(|axis| (*axis).clone()).collect()))
}

/// Creates the minimum of a value over reduction axes.
pub fn min_over(value: impl Into<Term>, axes: &[&Ref<IterVar>]) -> Term {
    value.into().map(|value| crate::min(value, axes.iter().map(|axis| (*axis).clone()).collect()))
}

/// Creates a reduction axis that takes the values from `begin` to `end`, excluding `end`.
///
/// # Errors
/// Returns the error of [`reduce_axis`](crate::reduce_axis), or an error held by a bound.
pub fn axis(name: &str, begin: impl Into<Term>, end: impl Into<Term>) -> Result<Ref<IterVar>> {
    let begin = begin.into().expr()?;
    let extent = ops::sub(end.into().expr()?, begin.clone())?;
    crate::reduce_axis(begin, extent, name)
}

/// Creates a placeholder: an input tensor, which is passed when the function is called.
///
/// # Errors
/// Returns the error of [`placeholder`](crate::placeholder), or an error held by an extent.
pub fn placeholder<S: Into<Term>, const N: usize>(
    shape: [S; N],
    dtype: DType,
    name: &str,
) -> Result<Ref<Tensor>> {
    crate::placeholder(exprs(shape)?, dtype, name)
}

/// Creates a tensor. The function `element` receives the indices of an element and returns the term
/// that computes the element.
///
/// # Errors
/// Returns the error of [`compute`](crate::compute), or an error held by a term.
pub fn compute<S: Into<Term>, const N: usize>(
    shape: [S; N],
    name: &str,
    element: impl FnOnce([Term; N]) -> Term,
) -> Result<Ref<Tensor>> {
    crate::compute(exprs(shape)?, name, |indices| {
        let index = |place: usize| Term(indices.get(place));
        element(std::array::from_fn(index)).expr()
    })
}

/// Creates a primitive function from placeholders and computed tensors.
///
/// # Errors
/// Returns the error of [`create_prim_func`](crate::create_prim_func).
pub fn prim_func(name: &str, tensors: &[&Ref<Tensor>]) -> Result<Ref<PrimFunc>> {
    let args: Vec<ObjectRef> = tensors.iter().map(|tensor| (*tensor).clone().into_object()).collect();
    crate::create_prim_func(&args, name)
}

fn exprs<T: Into<Term>>(terms: impl IntoIterator<Item = T>) -> Result<Array<Expr>> {
    Ok(terms.into_iter().map(|term| term.into().expr()).collect::<Result<Vec<_>>>()?.into_iter().collect())
}

/// Access to an element of a tensor by its indices.
pub trait At {
    /// Returns the element at the given indices, a tuple with one index for each dimension.
    fn at(&self, indices: impl Indices) -> Term;
}

impl At for Ref<Tensor> {
    fn at(&self, indices: impl Indices) -> Term {
        Term(exprs(indices.terms()).and_then(|indices| crate::element(self, indices)))
    }
}

/// Tuple of one to six indices, each of which is a term or converts to a term.
pub trait Indices {
    /// Returns the terms in order.
    fn terms(self) -> Vec<Term>;
}

macro_rules! indices {
    ($($($name:ident)*;)*) => { $(
        impl<$($name: Into<Term>),*> Indices for ($($name,)*) {
            #[expect(non_snake_case, reason = "types and values have the same names")]
            fn terms(self) -> Vec<Term> {
                let ($($name,)*) = self;
                vec![$($name.into()),*]
            }
        }
    )* };
}

indices! { A; A B; A B C; A B C D; A B C D E; A B C D E F; }
