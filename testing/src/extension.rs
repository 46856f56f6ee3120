//! A value type of a user's own: complex numbers, which cross as objects of a small type.

use anyfn::{Cell, Object, Ref, register, value_type};

/// A complex number, as Rust code uses it: a plain value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Complex {
    re: f64,
    im: f64,
}

/// What it is for other languages.
#[derive(Object, Debug)]
#[object(key = "testing.Complex", final, structural = "tree")]
pub struct ComplexObject {
    /// The real part.
    pub re: f64,
    /// The imaginary part.
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

/// Product of two complex numbers.
#[register("testing.complex_multiply")]
fn multiply(a: Complex, b: Complex) -> Complex {
    Complex { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re }
}

/// Sum of complex numbers.
#[register("testing.complex_sum")]
fn sum(numbers: Vec<Complex>) -> Complex {
    let add = |a: Complex, b: &Complex| Complex { re: a.re + b.re, im: a.im + b.im };
    numbers.iter().fold(Complex { re: 0.0, im: 0.0 }, add)
}

/// A wave, with fields of the value type.
#[derive(Object, Debug)]
#[object(key = "testing.Wave")]
pub struct Wave {
    /// How it begins.
    pub start: Complex,
    /// Where it is.
    #[field(default = Cell::new(Complex { re: 0.0, im: 1.0 }))]
    pub now: Cell<Complex>,
}
