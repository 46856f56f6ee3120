//! Names of the floating-point functions of the C library that expressions may call.

/// Names of mathematical functions of the C library with one argument. Those with two arguments are
/// [`MATH_OF_TWO`](anyfn_ir::ops::MATH_OF_TWO). The C library lacks `rsqrt` and `sigmoid`, which each dialect implements
/// itself.
pub(crate) const MATH: &[&str] = &[
    "exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "floor", "ceil", "trunc", "round", "erf",
    "fabs",
];
