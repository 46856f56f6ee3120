//! Index maps, which describe changes of a buffer's layout.

use anyfn::{Any, AnyView, Array, DType, Object, PackedFunc, Ref, Result, bail, methods};
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::kind::as_int;
use anyfn_ir::operand::{Operand, exprs};
use anyfn_ir::visit::on_enough_stack;
use anyfn_ir::{ExprKind, ops, printer, size, words};

use crate::loops::substitute_expr;

/// Maximum length, in bytes, of the expression of each new index in a printed map.
const LONGEST: usize = 1 << 16;

/// Maximum number of indices that an index map takes.
const MOST_DIMENSIONS: usize = 1024;

/// Map from the indices of an element of a buffer to the indices of the element in a new layout.
#[derive(Object)]
#[object(key = "tir.IndexMap", structural = "tree")]
pub struct IndexMap {
    /// Variables that represent the old indices.
    #[field(structural = "def")]
    pub vars: Array<Ref<Var>>,
    /// New indices, as expressions of `vars`.
    pub indices: Array<Expr>,
}

#[methods]
impl IndexMap {
    /// Creates a map from a function that receives `ndim` indices and returns the new indices.
    #[init]
    pub fn new(function: PackedFunc, ndim: usize) -> Result<IndexMap> {
        if ndim > MOST_DIMENSIONS {
            bail!("ValueError", "an index map takes at most {MOST_DIMENSIONS} indices, not {ndim}");
        }
        IndexMap::of_function(&function, &vec![DType::INT32; ndim])
    }

    /// Returns the map as source code: a `lambda` expression.
    pub fn text(&self) -> std::string::String {
        let names: Vec<std::string::String> = self.vars.iter().map(|var| var.name.to_string()).collect();
        let indices: Vec<_> =
            self.indices.iter().map(|index| printer::text_within(index.as_object(), LONGEST)).collect();
        format!("lambda {}: [{}]", names.join(", "), indices.join(", "))
    }
}

impl IndexMap {
    pub(crate) fn of_function(function: &PackedFunc, dtypes: &[DType]) -> Result<IndexMap> {
        IndexMap::from_fn(dtypes, |vars| {
            let views: Vec<AnyView<'_>> = vars.as_slice().iter().map(Any::as_view).collect();
            function.call_views(&views)?.get::<Vec<Operand>>().map(exprs)
        })
    }

    /// Creates a map from a function that receives one index of each of the given data types and returns the new
    /// indices.
    ///
    /// # Errors
    /// Returns the error of `function`, `TypeError` if a new index is not an integer, and `ValueError` if there are no
    /// new indices or one of them is too large.
    pub fn from_fn(
        dtypes: &[DType],
        function: impl FnOnce(&Array<Expr>) -> Result<Array<Expr>>,
    ) -> Result<IndexMap> {
        let vars: Vec<Ref<Var>> =
            dtypes.iter().enumerate().map(|(place, dtype)| ops::var(&format!("i{place}"), *dtype)).collect();
        let given: Array<Expr> = vars.iter().map(|var| var.clone().into_parent()).collect();
        let indices = function(&given)?;
        for index in indices.iter() {
            size::check_expr(&index, "an index of the index map")?;
            if !ops::DTypeExt::is_integer(&index.dtype) || ops::DTypeExt::lanes(&index.dtype) != 1 {
                bail!(
                    "TypeError",
                    "an index map must return integers, but one of its indices is {}",
                    index.dtype
                );
            }
        }
        if indices.is_empty() {
            bail!("ValueError", "the index map returns no indices");
        }
        Ok(IndexMap { vars: vars.into_iter().collect(), indices })
    }

    /// Applies the map: returns the new indices of the element whose old indices are `indices`.
    pub(crate) fn apply(&self, indices: &Array<Expr>) -> Result<Array<Expr>> {
        let vars: Vec<Ref<Var>> = self.vars.iter().collect();
        let mut values = Vec::new();
        for (var, index) in vars.iter().zip(indices.iter()) {
            values.push((var, ops::cast(index, var.dtype)?));
        }
        self.indices.iter().map(|index| substitute_expr(&index, &values)).collect()
    }

    /// Decomposes each new index into a sum of digits of the old indices, such as `i // 4 % 8`, for a buffer
    /// of the given shape.
    ///
    /// # Errors
    /// Returns `ValueError` if a new index is not made of `+`, `*`, `//` and `%` with positive numbers, or if the map
    /// is not proven to be one-to-one for elements of this shape.
    pub(crate) fn layout(&self, shape: &Array<Expr>) -> Result<Layout> {
        let vars: Vec<Ref<Var>> = self.vars.iter().collect();
        if vars.len() != shape.len() {
            bail!(
                "ValueError",
                "the index map takes {} but the buffer has {}",
                words::indices(vars.len()),
                words::dimensions(shape.len())
            );
        }
        let mut dims = Vec::new();
        for index in self.indices.iter() {
            // A loaded map has not been checked.
            size::check_expr(&index, "an index of the index map")?;
            let mut terms = Vec::new();
            if !terms_of(&index, 1, &vars, &mut terms) {
                bail!(
                    "ValueError",
                    "the index map must be made of `+`, `*`, `//` and `%` with positive numbers, but \
                     returns `{}`",
                    printer::brief(index.as_object())
                );
            }
            terms.sort_by_key(|term: &Term| term.coefficient);
            dims.push(terms);
        }
        let layout = Layout { dims };
        layout.check(&vars, shape, self)?;
        Ok(layout)
    }
}

/// Digit of an old index in a mixed-radix representation: `index // lower % extent`, or `index // lower` if
/// `extent` is `None`. `var` is the position of the index among the old indices.
#[derive(Clone, Debug)]
pub(crate) struct Digit {
    pub(crate) var: usize,
    pub(crate) lower: i64,
    pub(crate) extent: Option<i64>,
}

/// Term of an index in a buffer's new layout: a digit of an old index times a coefficient.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) digit: Digit,
    pub(crate) coefficient: i64,
}

/// New layout of a buffer. Each new index is a sum of terms: digits of old indices times coefficients, in
/// ascending order of the coefficients.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) dims: Vec<Vec<Term>>,
}

fn digit_of(expr: &Expr, vars: &[Ref<Var>]) -> Option<Digit> {
    on_enough_stack(|| match ExprKind::of(expr) {
        ExprKind::Var(var) => {
            let var = vars.iter().position(|known| known.ptr_eq(var))?;
            Some(Digit { var, lower: 1, extent: None })
        }
        ExprKind::Binary(BinaryOp::FloorDiv | BinaryOp::Div, node) => {
            let digit = digit_of(&node.a, vars)?;
            let number = as_int(&node.b).filter(|number| *number > 0)?;
            let extent = match digit.extent {
                Some(extent) if extent % number != 0 => return None,
                extent => extent.map(|extent| extent / number),
            };
            Some(Digit { lower: digit.lower.checked_mul(number)?, extent, ..digit })
        }
        ExprKind::Binary(BinaryOp::FloorMod | BinaryOp::Mod, node) => {
            let digit = digit_of(&node.a, vars)?;
            let number = as_int(&node.b).filter(|number| *number > 0)?;
            match digit.extent {
                Some(extent) if extent <= number => Some(digit),
                Some(extent) if extent % number != 0 => None,
                _ => Some(Digit { extent: Some(number), ..digit }),
            }
        }
        _ => None,
    })
}

/// Appends the terms of `expr`, multiplied by `factor`, to `terms`. Returns false if `expr` is not a sum of
/// digits of old indices, each with a coefficient.
fn terms_of(expr: &Expr, factor: i64, vars: &[Ref<Var>], terms: &mut Vec<Term>) -> bool {
    on_enough_stack(|| match ExprKind::of(expr) {
        ExprKind::IntImm(node) => node.value == 0,
        ExprKind::Binary(BinaryOp::Add, node) => {
            terms_of(&node.a, factor, vars, terms) && terms_of(&node.b, factor, vars, terms)
        }
        ExprKind::Binary(BinaryOp::Mul, node) => {
            let (inner, number) = match (as_int(&node.a), as_int(&node.b)) {
                (_, Some(number)) => (&node.a, number),
                (Some(number), _) => (&node.b, number),
                _ => return false,
            };
            match factor.checked_mul(number) {
                Some(factor) if number > 0 => terms_of(inner, factor, vars, terms),
                _ => false,
            }
        }
        _ => match digit_of(expr, vars) {
            Some(digit) => {
                terms.push(Term { digit, coefficient: factor });
                true
            }
            None => false,
        },
    })
}

impl Layout {
    fn check(&self, vars: &[Ref<Var>], shape: &Array<Expr>, map: &IndexMap) -> Result<()> {
        let text = map.text();
        for (place, var) in vars.iter().enumerate() {
            let mut digits: Vec<&Digit> =
                self.dims.iter().flatten().map(|term| &term.digit).filter(|digit| digit.var == place).collect();
            digits.sort_by_key(|digit| digit.lower);
            let extent = as_int(&shape.get(place)?);
            // Modulus up to which the digits considered so far determine the index.
            let mut told = 1i64;
            let mut tells_all = extent == Some(1);
            for digit in digits {
                if digit.lower != told || (tells_all && extent != Some(1)) {
                    bail!(
                        "ValueError",
                        "cannot prove that the index map `{text}` is one-to-one: the parts of index `{}` \
                         overlap, or a part between them is missing",
                        var.name
                    );
                }
                match digit.extent {
                    None => tells_all = true,
                    Some(extent) => told = told.saturating_mul(extent),
                }
            }
            if !tells_all && extent.is_none_or(|extent| told < extent) {
                bail!(
                    "ValueError",
                    "the index map `{text}` is not one-to-one: it determines index `{}` only modulo {told}",
                    var.name
                );
            }
        }
        for terms in &self.dims {
            // Each coefficient must exceed the largest value of the terms before it.
            let mut largest = 0i64;
            for (place, term) in terms.iter().enumerate() {
                let extent = self.extent_of(&term.digit, shape)?;
                if term.coefficient <= largest {
                    bail!(
                        "ValueError",
                        "cannot prove that the index map `{text}` is one-to-one: the terms of a sum overlap"
                    );
                }
                match as_int(&extent) {
                    Some(extent) => {
                        largest = largest
                            .saturating_add(term.coefficient.saturating_mul(extent.saturating_sub(1).max(0)));
                    }
                    None if place + 1 == terms.len() => {}
                    None => bail!(
                        "ValueError",
                        "cannot prove that the index map `{text}` is one-to-one: the range of a term of a \
                         sum is unknown"
                    ),
                }
            }
        }
        Ok(())
    }

    /// Returns the number of values that a digit of an old index can have, for a buffer of the given shape.
    pub(crate) fn extent_of(&self, digit: &Digit, shape: &Array<Expr>) -> Result<Expr> {
        let extent = shape.get(digit.var)?;
        let dtype = extent.dtype;
        let rest = match as_int(&extent) {
            Some(extent) => {
                ops::int(extent.div_euclid(digit.lower) + i64::from(extent % digit.lower != 0), dtype)?
            }
            None if digit.lower == 1 => extent,
            None => {
                let up = ops::add(extent, ops::int(digit.lower - 1, dtype)?)?;
                ops::floor_div(up, ops::int(digit.lower, dtype)?)?
            }
        };
        match (digit.extent, as_int(&rest)) {
            (None, _) => Ok(rest),
            // If the digit has more values than there are elements, the remaining values are padding.
            (Some(extent), _) => ops::int(extent, dtype),
        }
    }

    /// Returns the shape that a buffer of the shape `old` has in the new layout.
    pub(crate) fn shape(&self, old: &Array<Expr>, dtype: DType) -> Result<Array<Expr>> {
        let mut shape = Vec::new();
        for terms in &self.dims {
            let mut extent = ops::int(1, dtype)?;
            for term in terms {
                // The last index is the sum of the last values of all terms.
                let count = ops::sub(self.extent_of(&term.digit, old)?, ops::int(1, dtype)?)?;
                extent = match (as_int(&extent), terms.len()) {
                    (Some(1), 1) if term.coefficient == 1 => self.extent_of(&term.digit, old)?,
                    _ => ops::add(ops::mul(count, ops::int(term.coefficient, dtype)?)?, extent)?,
                };
            }
            shape.push(extent);
        }
        Ok(shape.into_iter().collect())
    }

    /// Returns true if the new layout is proven to need no padding for the old index at position
    /// `var`. No padding is needed if each combination of the digits of the index represents one of
    /// its `extent` values.
    pub(crate) fn is_exact(&self, var: usize, extent: &Expr) -> bool {
        let digits = || self.dims.iter().flatten().map(|term| &term.digit).filter(|digit| digit.var == var);
        let is_alone = |digit: &Digit| {
            let holds = |term: &Term| term.digit.var == var && term.digit.lower == digit.lower;
            self.dims.iter().any(|terms| terms.len() == 1 && holds(&terms[0]) && terms[0].coefficient == 1)
        };
        if !digits().all(is_alone) {
            return false;
        }
        let mut product = 1i64;
        let mut is_open = None;
        for digit in digits() {
            match digit.extent {
                Some(extent) => product = product.saturating_mul(extent),
                None => is_open = Some(digit.lower),
            }
        }
        match (as_int(extent), is_open) {
            (_, Some(1)) => true,
            (Some(extent), Some(lower)) => extent % lower == 0,
            (Some(extent), None) => extent == product,
            (None, _) => false,
        }
    }

    /// Returns `ndim` expressions that compute the old indices from `new`, the expressions of the new indices.
    pub(crate) fn inverse(&self, ndim: usize, new: &Array<Expr>, dtype: DType) -> Result<Vec<Expr>> {
        let mut old = vec![ops::int(0, dtype)?; ndim];
        let mut parts: Vec<(usize, i64, Expr)> = Vec::new();
        for (terms, index) in self.dims.iter().zip(new.iter()) {
            for (place, term) in terms.iter().enumerate() {
                let mut value = index.clone();
                if let Some(next) = terms.get(place + 1) {
                    value = ops::floor_mod(value, ops::int(next.coefficient, dtype)?)?;
                }
                value = ops::floor_div(value, ops::int(term.coefficient, dtype)?)?;
                parts.push((term.digit.var, term.digit.lower, value));
            }
        }
        parts.sort_by_key(|(var, lower, _)| (*var, std::cmp::Reverse(*lower)));
        for (var, lower, value) in parts {
            let part = ops::mul(value, ops::int(lower, dtype)?)?;
            old[var] = ops::add(old[var].clone(), part)?;
        }
        Ok(old)
    }
}
