//! Object types.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Once, OnceLock};

use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIFieldInfo, TVMFFIObject, TVMFFITypeGetOrAllocIndex,
    TVMFFITypeRegisterField, kTVMFFIAny, kTVMFFIFieldFlagBitMaskWritable, kTVMFFIInt,
};
use anyfn::{Any, Object, Ref, register};

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

/// A box whose type tells of its fields, as types of C++ libraries do.
#[derive(Object)]
#[object(key = "testing.Reflected")]
#[repr(C)]
pub(crate) struct Reflected {
    number: AtomicI64,
    text: anyfn::String,
}

/// Reads `number`.
unsafe extern "C" fn read_number(field: *mut c_void, result: *mut TVMFFIAny) -> c_int {
    // SAFETY: called with the address of the field.
    let number = unsafe { &*field.cast::<AtomicI64>() }.load(Ordering::Relaxed);
    // SAFETY: called with a writable result that holds nothing.
    unsafe { result.write(TVMFFIAny::from_bits(kTVMFFIInt, number as u64)) };
    0
}

/// Sets `number`; only from an int.
unsafe extern "C" fn write_number(field: *mut c_void, value: *const TVMFFIAny) -> c_int {
    anyfn::__private::trampoline(|| {
        // SAFETY: called with a valid view.
        let value = unsafe { *value };
        // SAFETY: as above.
        let value = unsafe { anyfn::AnyView::from_raw(value) }.get::<i64>()?;
        // SAFETY: called with the address of the field.
        unsafe { &*field.cast::<AtomicI64>() }.store(value, Ordering::Relaxed);
        Ok(())
    })
}

/// Reads `text`.
unsafe extern "C" fn read_text(field: *mut c_void, result: *mut TVMFFIAny) -> c_int {
    // SAFETY: called with the address of the field.
    let text = unsafe { &*field.cast::<anyfn::String>() }.clone();
    // SAFETY: called with a writable result that holds nothing.
    unsafe { result.write(Any::from(text).into_raw()) };
    0
}

/// Makes a box, and tells of its type's fields at the first call.
#[register("testing.make_reflected")]
fn make_reflected(number: i64, text: anyfn::String) -> Ref<Reflected> {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        let field = |name: &'static str, doc: &'static str, offset: usize, getter, setter: *mut c_void| {
            TVMFFIFieldInfo {
                name: TVMFFIByteArray::from_slice(name.as_bytes()),
                doc: TVMFFIByteArray::from_slice(doc.as_bytes()),
                metadata: TVMFFIByteArray::EMPTY,
                flags: i64::from(!setter.is_null()) * kTVMFFIFieldFlagBitMaskWritable,
                size: 8,
                alignment: 8,
                // The content begins right behind the header.
                offset: (size_of::<TVMFFIObject>() + offset) as i64,
                getter: Some(getter),
                setter,
                default_value_or_factory: TVMFFIAny::NONE,
                field_static_type_index: kTVMFFIAny,
            }
        };
        let fields = [
            field(
                "number",
                "A number.",
                offset_of!(Reflected, number),
                read_number as _,
                write_number as *mut c_void,
            ),
            field("text", "A text.", offset_of!(Reflected, text), read_text, ptr::null_mut()),
        ];
        for field in fields {
            // SAFETY: the type's own index and fields; texts and values are copied.
            assert_eq!(unsafe { TVMFFITypeRegisterField(Reflected::type_index(), &field) }, 0);
        }
    });
    Ref::new(Reflected { number: AtomicI64::new(number), text })
}
