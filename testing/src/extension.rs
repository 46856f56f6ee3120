//! A user-defined value type: complex numbers, which cross language boundaries as objects.

use anyfn::{Cell, Object, Ref, register, value_type};

/// A complex number as a plain Rust value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Complex {
    re: f64,
    im: f64,
}

/// Object that represents a complex number in other languages.
#[derive(Object, Debug)]
#[object(key = "testing.Complex", final, structural = "tree")]
pub struct ComplexObject {
    /// Real part of the number.
    pub re: f64,
    /// Imaginary part of the number.
    #[field(default = 0.0)]
    pub im: f64,
}

impl From<Ref<ComplexObject>> for Complex {
    fn from(object: Ref<ComplexObject>) -> Complex {
        Complex { re: object.re, im: object.im }
    }
}

impl From<Complex> for Ref<ComplexObject> {
    fn from(Complex { re, im }: Complex) -> Ref<ComplexObject> {
        Ref::new(ComplexObject { re, im })
    }
}

value_type!(Complex as Ref<ComplexObject>);

/// Returns the product of two complex numbers.
#[register("testing.complex_multiply")]
fn multiply(a: Complex, b: Complex) -> Complex {
    Complex { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re }
}

/// Returns the sum of complex numbers.
#[register("testing.complex_sum")]
fn sum(numbers: Vec<Complex>) -> Complex {
    let add = |a: Complex, b: &Complex| Complex { re: a.re + b.re, im: a.im + b.im };
    numbers.iter().fold(Complex { re: 0.0, im: 0.0 }, add)
}

/// A wave that has fields of the value type `Complex`.
#[derive(Object, Debug)]
#[object(key = "testing.Wave")]
pub struct Wave {
    /// Initial value of the wave.
    pub start: Complex,
    /// Current value of the wave.
    #[field(default = Cell::new(Complex { re: 0.0, im: 1.0 }))]
    pub now: Cell<Complex>,
}
