//! Conversion of decimal numbers to floating-point numbers.
//!
//! `str::parse` does the same faster, but a library for size would contain its tables and code (16 KB) only for the
//! few numbers in signatures.

use alloc::vec::Vec;

/// Natural number of any size, as digits in base 2^32, the least significant first. The last digit is not 0.
#[derive(Default)]
struct Natural(Vec<u32>);

impl Natural {
    /// Multiplies the number by `factor` and adds `term`.
    fn multiply_add(&mut self, factor: u32, term: u32) {
        let mut carry = u64::from(term);
        for digit in &mut self.0 {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Multiplies the number, which must not be 0, by 2 to the power of `count`.
    fn shift(&mut self, count: u32) {
        self.multiply_add(1 << (count % 32), 0);
        self.0.splice(0..0, core::iter::repeat_n(0, (count / 32) as usize));
    }

    /// Returns the number of bits.
    fn bits(&self) -> i64 {
        self.0.len() as i64 * 32 - self.0.last().map_or(0, |digit| i64::from(digit.leading_zeros()))
    }

    /// Subtracts `other` and returns true. If `other` is greater than this number, returns false
    /// and changes nothing.
    fn subtract(&mut self, other: &Natural) -> bool {
        let order = self.0.len().cmp(&other.0.len());
        if order.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev())).is_lt() {
            return false;
        }
        let mut borrow = 0;
        for (index, digit) in self.0.iter_mut().enumerate() {
            let difference = i64::from(*digit) - i64::from(other.0.get(index).copied().unwrap_or(0)) + borrow;
            *digit = difference as u32;
            borrow = difference >> 32;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        true
    }
}

/// Returns the floating-point number nearest to the decimal number in `text`, such as `-1.5e3`.
/// Returns `None` if `text` is not a decimal number, or if no finite floating-point number is that
/// large.
#[must_use]
pub fn parse_decimal(text: &str) -> Option<f64> {
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i64>().ok()?.clamp(-1 << 40, 1 << 40)),
        None => (text, 0),
    };
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => (-1.0, digits),
        None => (1.0, digits),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    if digits().next().is_none() || !digits().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // No number between two floating-point numbers needs more digits; further ones only tell that it is greater.
    const DIGITS_MAX: usize = 800;
    let digits = digits().skip_while(|digit| *digit == b'0');
    let (mut numerator, mut exponent) = (Natural::default(), exponent - fraction.len() as i64);
    let mut count = 0;
    for digit in digits {
        count += 1;
        if count <= DIGITS_MAX {
            numerator.multiply_add(10, u32::from(digit - b'0'));
        } else {
            exponent += 1;
            if digit != b'0' {
                numerator.0[0] |= 1;
            }
        }
    }
    let magnitude = exponent + count.min(DIGITS_MAX) as i64;
    if count == 0 || magnitude < -330 {
        return Some(0.0 * sign);
    }
    if magnitude > 310 {
        return None;
    }
    let mut denominator = Natural(Vec::from([1]));
    let scaled = if exponent < 0 { &mut denominator } else { &mut numerator };
    for _ in 0..exponent.abs() {
        scaled.multiply_add(10, 0);
    }
    // The quotient gets 55 or 56 bits, two or three more than a floating-point number has. A subnormal number gets fewer.
    let shift = (55 - (numerator.bits() - denominator.bits())).min(1076);
    let shifted = if shift < 0 { &mut denominator } else { &mut numerator };
    shifted.shift(shift.unsigned_abs() as u32);
    const STEPS: u32 = 57;
    denominator.shift(STEPS - 1);
    let mut quotient = 0_u64;
    for _ in 0..STEPS {
        quotient = quotient << 1 | u64::from(numerator.subtract(&denominator));
        numerator.multiply_add(2, 0);
    }
    // The last bit tells whether the number is greater than the bits before it say.
    quotient |= u64::from(!numerator.0.is_empty());
    let power = |exponent: i64| f64::from_bits(((1023 + exponent) as u64) << 52);
    let value = if quotient >> 54 == 0 {
        // Subnormal: its bits are a multiple of 2^-1074.
        let (bits, rest) = (quotient >> 2, quotient & 3);
        f64::from_bits(bits + u64::from(rest == 3 || (rest == 2 && bits & 1 == 1)))
    } else {
        quotient as f64 * power(-shift / 2) * power(-shift - -shift / 2)
    };
    value.is_finite().then_some(value * sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) {
        let expected = text.parse::<f64>().ok().filter(|value| value.is_finite());
        assert_eq!(parse_decimal(text).map(f64::to_bits), expected.map(f64::to_bits), "{text}");
    }

    #[test]
    fn equals_the_standard_library() {
        for text in [
            "0",
            "-0",
            "0.0",
            "1",
            "-1.5e3",
            "1.",
            ".5",
            "1e400",
            "1e-400",
            "0e400",
            "1e308",
            "1.8e308",
            "1.7976931348623157e308",
            "1.7976931348623158e308",
            "1.7976931348623159e308",
            "4.9e-324",
            "2.4703282292062327e-324",
            "2.4703282292062328e-324",
            "2.2250738585072011e-308",
            "2.2250738585072014e-308",
            "9007199254740993",
            "9007199254740993.000000000000000000001",
            "",
            ".",
            "e5",
            "1e",
            "--1",
            "1e5.5",
            "1_0",
            "1e99999999999",
            "-1e-99999999999",
            "1E+2",
        ] {
            check(text);
        }
        let half = alloc::format!("9007199254740993.{}", "0".repeat(2000));
        check(&half);
        check(&(half + "1"));
        check(&alloc::format!("{}e-2000", "7".repeat(2000)));
    }

    #[test]
    fn equals_the_standard_library_for_random_numbers() {
        let mut random = anyfn_random::Random::from_env();
        for _ in 0..20_000 {
            let value = f64::from_bits(random.number());
            if value.is_finite() {
                check(&alloc::format!("{value:e}"));
                check(&alloc::format!("{value:.16e}"));
                check(&alloc::format!("{value:.20e}"));
                check(&alloc::format!(
                    "{}e{}",
                    random.number() >> (random.number() % 64),
                    random.number() as i8
                ));
            }
        }
    }
}
