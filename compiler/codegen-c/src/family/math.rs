//! Names of the floating-point functions that expressions may call.

/// Names of mathematical functions of the C library with one argument.
pub(crate) const MATH: &[&str] = &[
    "exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "floor", "ceil", "trunc", "round", "erf",
    "fabs",
];
/// Names of mathematical functions of the C library with two arguments.
pub(crate) const MATH_OF_TWO: &[&str] = &["pow", "atan2", "fmod", "hypot", "copysign"];
/// Names of mathematical functions with one argument that the C library lacks. Each dialect must implement
/// them itself.
const MORE_MATH: &[&str] = &["rsqrt", "sigmoid"];

/// Returns the number of arguments of a mathematical function, or `None` if no function has that name.
pub(crate) fn arity(name: &str) -> Option<usize> {
    match name {
        _ if MATH.contains(&name) || MORE_MATH.contains(&name) => Some(1),
        _ if MATH_OF_TWO.contains(&name) => Some(2),
        _ => None,
    }
}
