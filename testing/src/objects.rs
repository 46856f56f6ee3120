//! Object types.

use std::sync::atomic::{AtomicI64, Ordering};

use anyfn::{Object, Ref, register};

/// A point of the plane; immutable.
#[derive(Object, Debug, PartialEq)]
#[object(key = "testing.Point")]
pub struct Point {
    /// First coordinate.
    pub x: f64,
    /// Second coordinate.
    pub y: f64,
}

/// Counts, from any thread.
#[derive(Object, Debug)]
#[object(key = "testing.Counter")]
pub struct Counter {
    #[field(skip)]
    value: AtomicI64,
}

impl Counter {
    /// A counter that begins with `value`.
    pub fn new(value: i64) -> Counter {
        Counter { value: AtomicI64::new(value) }
    }

    /// Adds `n` and gives the new value.
    pub fn add(&self, n: i64) -> i64 {
        self.value.fetch_add(n, Ordering::Relaxed).wrapping_add(n)
    }

    /// The value.
    pub fn value(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// Makes a point.
#[register("testing.make_point")]
fn make_point(x: f64, y: f64) -> Ref<Point> {
    Ref::new(Point { x, y })
}

/// First coordinate of a point.
#[register("testing.point_x")]
fn point_x(point: Ref<Point>) -> f64 {
    point.x
}

/// Second coordinate of a point.
#[register("testing.point_y")]
fn point_y(point: Ref<Point>) -> f64 {
    point.y
}

/// Makes a counter that begins with `value`.
#[register("testing.make_counter")]
fn make_counter(value: i64) -> Ref<Counter> {
    Ref::new(Counter::new(value))
}

/// Adds `n` to a counter and gives its new value.
#[register("testing.counter_add")]
fn counter_add(counter: Ref<Counter>, n: i64) -> i64 {
    counter.add(n)
}

/// Value of a counter.
#[register("testing.counter_value")]
fn counter_value(counter: Ref<Counter>) -> i64 {
    counter.value()
}

/// A point with a name, derived from `testing.Point`.
#[derive(Object, Debug)]
#[object(key = "testing.NamedPoint", parent = Point)]
#[repr(C)]
pub struct NamedPoint {
    point: Point,
    /// What the point is called.
    pub name: anyfn::String,
}

/// Makes an object of the derived type.
#[register("testing.make_named_point")]
fn make_named_point(name: anyfn::String) -> Ref<NamedPoint> {
    Ref::new(NamedPoint { point: Point { x: 0.0, y: 0.0 }, name })
}

/// Name of such an object.
#[register("testing.point_name")]
fn point_name(point: Ref<NamedPoint>) -> anyfn::String {
    point.name.clone()
}
