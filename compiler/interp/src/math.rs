//! Implementations of the mathematical functions that code generators support, for use by the
//! interpreter.

/// Returns the unary function named `name`, or `None` if the name is unknown.
pub(crate) fn of_one(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "exp" => f64::exp,
        "exp2" => f64::exp2,
        "log" => f64::ln,
        "log2" => f64::log2,
        "log10" => f64::log10,
        "log1p" => f64::ln_1p,
        "expm1" => f64::exp_m1,
        "sqrt" => f64::sqrt,
        "sin" => f64::sin,
        "cos" => f64::cos,
        "tan" => f64::tan,
        "asin" => f64::asin,
        "acos" => f64::acos,
        "atan" => f64::atan,
        "sinh" => f64::sinh,
        "cosh" => f64::cosh,
        "tanh" => f64::tanh,
        "asinh" => f64::asinh,
        "acosh" => f64::acosh,
        "atanh" => f64::atanh,
        "floor" => f64::floor,
        "ceil" => f64::ceil,
        "trunc" => f64::trunc,
        "round" => f64::round,
        "nearbyint" => f64::round_ties_even,
        "fabs" | "abs" => f64::abs,
        "erf" => erf,
        "rsqrt" => |x| 1.0 / x.sqrt(),
        "sigmoid" => |x| 1.0 / (1.0 + (-x).exp()),
        _ => return None,
    })
}

/// Returns the binary function named `name`, or `None` if the name is unknown.
pub(crate) fn of_two(name: &str) -> Option<fn(f64, f64) -> f64> {
    Some(match name {
        "pow" => f64::powf,
        "atan2" => f64::atan2,
        "fmod" => |x, y| x % y,
        "hypot" => f64::hypot,
        "copysign" => f64::copysign,
        _ => return None,
    })
}

/// Function of the C math library with one or two parameters.
#[derive(Clone, Copy)]
pub(crate) enum OfC {
    One(fn(f64) -> f64),
    Two(fn(f64, f64) -> f64),
}

impl OfC {
    /// Returns the number of arguments that the function takes.
    pub(crate) fn arity(self) -> usize {
        match self {
            OfC::One(_) => 1,
            OfC::Two(_) => 2,
        }
    }

    /// Calls the function with the given arguments. Missing arguments are 0.
    pub(crate) fn call(self, numbers: &[f64]) -> f64 {
        let number = |place: usize| numbers.get(place).copied().unwrap_or_default();
        match self {
            OfC::One(function) => function(number(0)),
            OfC::Two(function) => function(number(0), number(1)),
        }
    }
}

/// Returns the function of the C math library whose version for `double` is called `name`, such as
/// `fmin`. Returns `None` if the interpreter does not know the function.
pub(crate) fn of_c(name: &str) -> Option<OfC> {
    match name {
        // These are not functions of C, or are not functions on floating-point numbers.
        "abs" | "rsqrt" | "sigmoid" => None,
        "cbrt" => Some(OfC::One(f64::cbrt)),
        "rint" => Some(OfC::One(f64::round_ties_even)),
        "fmin" => Some(OfC::Two(f64::min)),
        "fmax" => Some(OfC::Two(f64::max)),
        "fdim" => Some(OfC::Two(|x, y| {
            if x > y {
                x - y
            } else if x <= y {
                0.0
            } else {
                x + y
            }
        })),
        _ => of_one(name).map(OfC::One).or_else(|| of_two(name).map(OfC::Two)),
    }
}

/// Computes the error function of `x`: by its power series if `x` is near 0, and otherwise by the
/// continued fraction of the complementary error function.
fn erf(x: f64) -> f64 {
    let size = x.abs();
    let value = if size.is_nan() {
        return x;
    } else if size < 2.5 {
        let (mut term, mut sum) = (size, size);
        for n in 1..80 {
            term *= -size * size / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else if size > 6.0 {
        1.0
    } else {
        let fraction = (1..=60).rev().fold(size, |below, n| size + f64::from(n) / 2.0 / below);
        1.0 - (-size * size).exp() / fraction / std::f64::consts::PI.sqrt()
    };
    value.copysign(x)
}

#[cfg(test)]
mod tests {
    #[test]
    fn erf_is_right() {
        // Values from mathematical tables.
        let known = [
            (0.0, 0.0),
            (0.5, 0.520_499_877_8),
            (1.0, 0.842_700_792_9),
            (2.0, 0.995_322_265_0),
            (3.0, 0.999_977_909_5),
        ];
        for (x, expected) in known {
            assert!((super::erf(x) - expected).abs() < 1e-9, "{x}");
            assert!((super::erf(-x) + expected).abs() < 1e-9, "{x}");
        }
        assert!((super::erf(2.499_999_999) - super::erf(2.5)).abs() < 1e-9);
    }
}
