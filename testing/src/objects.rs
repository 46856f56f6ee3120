//! Simple object types and functions on them.

use std::sync::atomic::{AtomicI64, Ordering};

use anyfn::{Array, Object, Ref, methods, register};

/// An immutable point in the plane.
#[derive(Object, Debug, PartialEq)]
#[object(key = "testing.Point")]
pub struct Point {
    /// First coordinate.
    pub x: f64,
    /// Second coordinate.
    pub y: f64,
}

/// A counter that any thread may change.
#[derive(Object, Debug)]
#[object(key = "testing.Counter")]
pub struct Counter {
    #[field(skip)]
    value: AtomicI64,
}

impl Counter {
    /// Creates a counter with an initial value.
    pub fn new(value: i64) -> Counter {
        Counter { value: AtomicI64::new(value) }
    }

    /// Adds `n` and returns the new value.
    pub fn add(&self, n: i64) -> i64 {
        self.value.fetch_add(n, Ordering::Relaxed).wrapping_add(n)
    }

    /// Returns the current value.
    pub fn value(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// Creates a point from its coordinates.
#[register("testing.make_point")]
fn make_point(x: f64, y: f64) -> Ref<Point> {
    Ref::new(Point { x, y })
}

/// Returns the first coordinate of a point.
#[register("testing.point_x")]
fn point_x(point: Ref<Point>) -> f64 {
    point.x
}

/// Returns the second coordinate of a point.
#[register("testing.point_y")]
fn point_y(point: Ref<Point>) -> f64 {
    point.y
}

/// Creates a counter with an initial value.
#[register("testing.make_counter")]
fn make_counter(value: i64) -> Ref<Counter> {
    Ref::new(Counter::new(value))
}

/// Adds `n` to a counter and returns its new value.
#[register("testing.counter_add")]
fn counter_add(counter: Ref<Counter>, n: i64) -> i64 {
    counter.add(n)
}

/// Returns the value of a counter.
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
    /// Name of the point.
    pub name: anyfn::String,
}

/// Creates a named point at the origin.
#[register("testing.make_named_point")]
fn make_named_point(name: anyfn::String) -> Ref<NamedPoint> {
    Ref::new(NamedPoint { point: Point { x: 0.0, y: 0.0 }, name })
}

/// Returns the name of a named point.
#[register("testing.point_name")]
fn point_name(point: Ref<NamedPoint>) -> anyfn::String {
    point.name.clone()
}

/// An immutable pair of integers, with fields and a method that are reflected.
#[derive(Object, Debug)]
#[object(key = "testing.IntPair")]
pub(crate) struct IntPair {
    /// First integer.
    pub a: i64,
    /// Second integer.
    pub b: i64,
}

#[methods]
impl IntPair {
    /// Creates a pair.
    #[init]
    pub(crate) fn new(a: i64, b: i64) -> IntPair {
        IntPair { a, b }
    }

    /// Returns the sum of both integers.
    pub(crate) fn sum(&self) -> i64 {
        self.a.wrapping_add(self.b)
    }
}

/// A node of a tree. It is compared structurally.
#[derive(Object, Debug)]
#[object(key = "testing.Node", structural = "tree")]
pub(crate) struct Node {
    /// Name of the node.
    pub name: anyfn::String,
    /// Value of the node.
    pub value: i64,
    /// Children of the node.
    pub args: Array,
}

#[methods]
impl Node {
    /// Creates a node.
    #[init]
    pub(crate) fn new(name: anyfn::String, value: i64, args: Array) -> Node {
        Node { name, value, args }
    }
}
