//! Tests that operations see what a type registers after its objects were compared, hashed or printed for the first
//! time.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIFieldInfo, TVMFFIObject, TVMFFITypeRegisterAttr, TVMFFITypeRegisterField,
    kTVMFFIInt,
};
use anyfn::{Any, AnyView, Args, Object, PackedFunc, Ref, Result};
use anyfn_core as _;
use anyfn_reflect::{Options, recursive_equal, recursive_hash, repr, structural_equal, structural_hash};

/// Reads a field that is stored as an `i64`.
unsafe extern "C" fn get_int(field: *mut c_void, out: *mut TVMFFIAny) -> c_int {
    // SAFETY: the caller passes the address of the field.
    let value = unsafe { *field.cast::<u64>() };
    // SAFETY: the caller passes a writable result.
    unsafe { out.write(TVMFFIAny::from_bits(kTVMFFIInt, value)) };
    0
}

/// Registers an `i64` that follows the header of `T` at `offset` as the field `name`.
fn register_field<T: Object>(name: &str, offset: usize) {
    let info = TVMFFIFieldInfo {
        name: TVMFFIByteArray::from_slice(name.as_bytes()),
        doc: TVMFFIByteArray::EMPTY,
        metadata: TVMFFIByteArray::EMPTY,
        flags: 0,
        size: 8,
        alignment: 8,
        offset: (size_of::<TVMFFIObject>() + offset) as i64,
        getter: Some(get_int),
        setter: core::ptr::null_mut(),
        default_value_or_factory: TVMFFIAny::NONE,
        field_static_type_index: kTVMFFIInt,
    };
    // SAFETY: all arguments are borrowed for the call, and the objects of the type have such a number at the offset.
    assert_eq!(unsafe { TVMFFITypeRegisterField(T::type_index(), &info) }, 0);
}

fn register_hook<T: Object>(name: &str, hook: impl Fn(Args<'_>) -> Result<Any> + Send + Sync + 'static) {
    let hook = PackedFunc::new(hook);
    let name = TVMFFIByteArray::from_slice(name.as_bytes());
    let value = AnyView::from(hook.as_object());
    // SAFETY: all arguments are borrowed for the call, which takes its own reference.
    assert_eq!(unsafe { TVMFFITypeRegisterAttr(T::type_index(), &name, value.as_raw()) }, 0);
}

fn equal(left: &Any, right: &Any) -> bool {
    structural_equal(left, right, Options::default()).unwrap()
}

fn hash(value: &Any) -> u64 {
    structural_hash(value, Options::default()).unwrap()
}

#[derive(Object)]
#[object(key = "test.plans.Growing", structural = "tree")]
struct Growing {
    first: i64,
    #[field(skip)]
    second: i64,
}

#[test]
fn fields_that_are_registered_later() {
    let make = |second| Any::from(Ref::new(Growing { first: 1, second }).into_object());
    let (left, right) = (make(2), make(3));
    for _ in 0..2 {
        assert!(equal(&left, &right) && hash(&left) == hash(&right));
        assert!(recursive_equal(&left, &right).unwrap());
        assert_eq!(recursive_hash(&left).unwrap(), recursive_hash(&right).unwrap());
        assert_eq!(repr(&left).unwrap(), "test.plans.Growing(first=1)");
    }
    let before = hash(&left);
    register_field::<Growing>("second", offset_of!(Growing, second));
    for _ in 0..2 {
        assert!(!equal(&left, &right) && equal(&left, &make(2)));
        assert!(hash(&left) != hash(&right) && hash(&left) == hash(&make(2)) && hash(&left) != before);
        assert!(!recursive_equal(&left, &right).unwrap());
        assert_ne!(recursive_hash(&left).unwrap(), recursive_hash(&right).unwrap());
        assert_eq!(repr(&left).unwrap(), "test.plans.Growing(first=1, second=2)");
    }
}

/// Type whose parent registers a field later.
#[derive(Object)]
#[object(key = "test.plans.Parent", structural = "tree")]
struct Parent {
    #[field(skip)]
    number: i64,
}

#[derive(Object)]
#[object(key = "test.plans.Child", structural = "tree", parent = Parent)]
struct Child {
    parent: Parent,
}

#[test]
fn fields_that_a_parent_registers_later() {
    let make = |number| Any::from(Ref::new(Child { parent: Parent { number } }).into_object());
    let (left, right) = (make(2), make(3));
    assert!(equal(&left, &right) && hash(&left) == hash(&right));
    register_field::<Parent>("number", offset_of!(Parent, number));
    assert!(!equal(&left, &right) && hash(&left) != hash(&right) && equal(&left, &make(2)));
}

#[derive(Object)]
#[object(key = "test.plans.Hooked", structural = "tree")]
struct Hooked {
    number: i64,
}

#[test]
fn hooks_that_are_registered_later() {
    let make = |number| Any::from(Ref::new(Hooked { number }).into_object());
    let (left, right) = (make(2), make(3));
    assert!(!equal(&left, &right) && hash(&left) != hash(&right));
    register_hook::<Hooked>("__s_equal__", |_| Any::new(true));
    register_hook::<Hooked>("__s_hash__", |_| Any::new(7));
    assert!(equal(&left, &right) && hash(&left) == hash(&right));
}

macro_rules! types {
    ($($name:ident = $key:literal),*) => { $(
        #[derive(Object)]
        #[object(key = $key, structural = "tree")]
        struct $name {
            #[field(skip)]
            number: i64,
        }
    )* };
}

types!(
    A = "test.plans.A",
    B = "test.plans.B",
    C = "test.plans.C",
    D = "test.plans.D",
    E = "test.plans.E",
    F = "test.plans.F"
);

/// Checks that a thread sees a field as soon as it is registered, while all threads look up and replace the plan of the type.
fn race<T: Object + Send + Sync>(make: impl Fn(i64) -> Ref<T>, offset: usize) {
    let (left, right) = (Any::from(make(1).into_object()), Any::from(make(2).into_object()));
    let registered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let before = registered.load(Ordering::Acquire);
                    let equal = equal(&left, &right);
                    assert!(before == 0 || !equal, "the field is ignored");
                    if !equal {
                        assert_ne!(hash(&left), hash(&right));
                        break;
                    }
                }
            });
        }
        scope.spawn(|| {
            std::thread::yield_now();
            register_field::<T>("number", offset);
            registered.store(1, Ordering::Release);
        });
    });
}

#[test]
fn threads_use_the_plan_of_a_type_that_changes() {
    race(|number| Ref::new(A { number }), offset_of!(A, number));
    race(|number| Ref::new(B { number }), offset_of!(B, number));
    race(|number| Ref::new(C { number }), offset_of!(C, number));
    race(|number| Ref::new(D { number }), offset_of!(D, number));
    race(|number| Ref::new(E { number }), offset_of!(E, number));
    race(|number| Ref::new(F { number }), offset_of!(F, number));
}
