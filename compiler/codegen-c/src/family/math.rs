//! Functions of floating-point numbers that expressions may call.

/// Those of one number that C has.
pub(crate) const MATH: &[&str] = &[
    "exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "floor", "ceil", "trunc", "round", "erf",
    "fabs",
];
/// Those of two.
pub(crate) const MATH_OF_TWO: &[&str] = &["pow", "atan2", "fmod", "hypot", "copysign"];
/// Those of one number that C has not.
const MORE_MATH: &[&str] = &["rsqrt", "sigmoid"];

/// How many numbers a function takes; `None` if there is none of that name.
pub(crate) fn arity(name: &str) -> Option<usize> {
    match name {
        _ if MATH.contains(&name) || MORE_MATH.contains(&name) => Some(1),
        _ if MATH_OF_TWO.contains(&name) => Some(2),
        _ => None,
    }
}
