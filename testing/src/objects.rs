//! Object types.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use anyfn::abi::{TVMFFIByteArray, TVMFFITypeGetOrAllocIndex};
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

/// A name; in tests of what frontends do with derived types, its type derives from `testing.Point`.
pub(crate) struct NamedPoint {
    /// Text that the object holds and releases.
    name: anyfn::String,
}

// SAFETY: the index is asked for once, for this key and with this parent, and kept; the key is this type's own.
unsafe impl Object for NamedPoint {
    const TYPE_KEY: &'static str = "testing.NamedPoint";

    fn type_index() -> i32 {
        static INDEX: OnceLock<i32> = OnceLock::new();
        *INDEX.get_or_init(|| {
            let key = TVMFFIByteArray::from_slice(Self::TYPE_KEY.as_bytes());
            // SAFETY: the key is borrowed for the call; the parent is a type of depth 1.
            unsafe { TVMFFITypeGetOrAllocIndex(&key, -1, 2, 0, 1, Self::parent_index()) }
        })
    }

    fn parent_index() -> i32 {
        Point::type_index()
    }
}

/// Makes an object of the derived type.
#[register("testing.make_named_point")]
fn make_named_point(name: anyfn::String) -> Ref<NamedPoint> {
    Ref::new(NamedPoint { name })
}

/// Name of such an object.
#[register("testing.point_name")]
fn point_name(point: Ref<NamedPoint>) -> anyfn::String {
    point.name.clone()
}
