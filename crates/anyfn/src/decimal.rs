//! Conversion of decimal numbers to floating-point numbers and back.
//!
//! `str::parse` and `{:?}` do the same faster, but a library for size would contain their tables and code (16 KB and 9 KB)
//! only for the few numbers in signatures.

use core::cmp::Ordering;
use core::fmt::Write;

use alloc::string::String;
use alloc::vec::Vec;

/// Natural number of any size, as digits in base 2^32, the least significant first. The last digit is not 0.
#[derive(Clone, Default)]
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

    fn compare(&self, other: &Natural) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Returns the sum of this number and `other`.
    fn plus(&self, other: &Natural) -> Natural {
        let (mut sum, mut carry) = (self.clone(), 0);
        sum.0.resize(self.0.len().max(other.0.len()), 0);
        for (index, digit) in sum.0.iter_mut().enumerate() {
            carry += u64::from(*digit) + u64::from(other.0.get(index).copied().unwrap_or(0));
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            sum.0.push(carry as u32);
        }
        sum
    }

    /// Subtracts `other` and returns true. If `other` is greater than this number, returns false
    /// and changes nothing.
    fn subtract(&mut self, other: &Natural) -> bool {
        if self.compare(other).is_lt() {
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

/// Appends a finite floating-point number to `out`, in the format of `{:?}`: the shortest decimal number that is nearer to
/// it than to any other floating-point number, with a fraction or an exponent.
pub(crate) fn write_float(value: f64, out: &mut String) {
    if value.is_sign_negative() {
        out.push('-');
    }
    let value = value.abs();
    let (digits, point) = if value == 0.0 { (String::from("0"), 1) } else { shortest(value) };
    let count = digits.len() as i32;
    // Writing to a string cannot fail.
    let _ = if value != 0.0 && !(1e-4..1e16).contains(&value) {
        let (first, rest) = digits.split_at(1);
        write!(out, "{first}{}{rest}e{}", if rest.is_empty() { "" } else { "." }, point - 1)
    } else if point <= 0 {
        write!(out, "0.{}{digits}", &"000"[..-point as usize])
    } else if point < count {
        let (whole, fraction) = digits.split_at(point as usize);
        write!(out, "{whole}.{fraction}")
    } else {
        write!(out, "{digits}{}.0", &"000000000000000"[..(point - count) as usize])
    };
}

/// Returns the digits of the shortest decimal number that is nearer to `value` than to any other floating-point number, and
/// the number of digits before the decimal point, which may be negative. `value` must be finite and greater than 0.
///
/// This is the algorithm of Steele and White: all numbers less than `above / scale` greater, or less than `below / scale`
/// less, than `rest / scale` are read as the same floating-point number.
fn shortest(value: f64) -> (String, i32) {
    let bits = value.to_bits();
    let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52) as i32);
    let mantissa = if exponent == 0 { fraction } else { fraction | 1 << 52 };
    let power = exponent.max(1) - 1075;
    let mut scale = Natural(Vec::from([2]));
    let mut below = Natural(Vec::from([1]));
    let mut rest = Natural(Vec::from([mantissa as u32, (mantissa >> 32) as u32]));
    while rest.0.last() == Some(&0) {
        rest.0.pop();
    }
    rest.shift(1);
    if power < 0 {
        scale.shift(power.unsigned_abs());
    } else {
        rest.shift(power.unsigned_abs());
        below.shift(power.unsigned_abs());
    }
    let mut above = below.clone();
    if fraction == 0 && exponent > 1 {
        // The next lower number is half as far away as the next higher one.
        for number in [&mut scale, &mut rest, &mut above] {
            number.shift(1);
        }
    }
    // A number in the middle of two is read as the one whose mantissa is even.
    let even = mantissa & 1 == 0;
    let is_over = |rest: &Natural, above: &Natural, scale: &Natural| {
        let order = rest.plus(above).compare(scale);
        order.is_gt() || even && order.is_eq()
    };
    let mut point = 0;
    while is_over(&rest, &above, &scale) {
        scale.multiply_add(10, 0);
        point += 1;
    }
    let mut digits = String::new();
    loop {
        for number in [&mut rest, &mut above, &mut below] {
            number.multiply_add(10, 0);
        }
        let mut digit = 0;
        while rest.subtract(&scale) {
            digit += 1;
        }
        let order = rest.compare(&below);
        let (is_low, is_high) = (order.is_lt() || even && order.is_eq(), is_over(&rest, &above, &scale));
        if digits.is_empty() && digit == 0 && !is_high {
            // A leading zero.
            point -= 1;
            continue;
        }
        if is_high && (!is_low || rest.plus(&rest).compare(&scale).is_ge()) {
            digit += 1;
        }
        digits.push(char::from(b'0' + digit));
        if is_low || is_high {
            return (digits, point);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_as_the_standard_library() {
        let check = |value: f64| {
            let mut text = String::new();
            write_float(value, &mut text);
            assert_eq!(text, alloc::format!("{value:?}"));
        };
        for value in [
            0.0,
            1.0,
            0.1,
            0.5,
            1.5,
            10.0,
            100.0,
            123.456,
            1e15,
            1e16,
            1e17,
            1e-4,
            1e-5,
            9.9e-6,
            1e-7,
            1e22,
            1e23,
            5e-324,
            f64::MIN_POSITIVE,
            f64::MAX,
            f64::EPSILON,
            2.0,
            4.0,
            9007199254740993.0,
            9999999999999998.0,
            0.3,
            2.5,
            1.0 / 3.0,
            4.35,
            0.00001234,
            299792458.0,
        ] {
            check(value);
            check(-value);
            check(f64::from_bits(value.to_bits() + 1).min(f64::MAX));
        }
        (1..2047).for_each(|exponent| check(f64::from_bits(exponent << 52)));
        let mut random = anyfn_random::Random::from_env();
        for _ in 0..2000 {
            let value = f64::from_bits(random.number());
            check(if value.is_finite() { value } else { 1.25 });
            check(f64::from(random.number() as u32) / 1000.0);
        }
    }

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
