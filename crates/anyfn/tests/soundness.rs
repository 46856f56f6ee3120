//! Tests of guarantees that safe code must not be able to break.

use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};

use anyfn::{Any, Error, PackedFunc, Ref, String, Tensor, TensorView, registry};
use anyfn_core as _;

#[test]
fn a_weak_reference_to_a_released_object_gives_nothing_ever() {
    let object = PackedFunc::new(|_| Ok(Any::NONE)).into_object();
    let weak = object.downgrade();
    assert!(weak.upgrade().is_some());
    drop(object);
    for _ in 0..3 {
        assert!(weak.upgrade().is_none());
    }
}

#[derive(anyfn::Object)]
#[object(key = "soundness.Twice")]
#[allow(dead_code, reason = "only made")]
struct Number(usize);

#[derive(anyfn::Object)]
#[object(key = "soundness.Twice")]
#[allow(dead_code, reason = "never made: its key is taken")]
struct Pointer(Box<u64>);

#[derive(anyfn::Object)]
#[object(key = "ffi.String")]
#[allow(dead_code, reason = "never made: its key is taken")]
struct Text(Vec<u64>);

#[test]
fn two_rust_types_cannot_share_a_key() {
    // The type that is used first has the key. The first use of the registry uses all types.
    let number = catch_unwind(|| Ref::new(Number(16)).into_object());
    let pointer = catch_unwind(|| Ref::new(Pointer(Box::new(1))).into_object());
    let object = match (number, pointer) {
        (Ok(object), Err(_)) => {
            let other = object.clone();
            assert!(catch_unwind(|| Ref::<Pointer>::try_from_object(other)).is_err());
            object
        }
        (Err(_), Ok(object)) => {
            let other = object.clone();
            assert!(catch_unwind(|| Ref::<Number>::try_from_object(other)).is_err());
            object
        }
        both => panic!("{both:?}"),
    };
    let text: Any = String::from("longer than seven bytes").into();
    assert!(catch_unwind(|| text.get::<Ref<Text>>()).is_err());
    assert_eq!(object.type_key(), "soundness.Twice");
}

#[test]
fn a_long_chain_of_causes_is_released_without_recursion() {
    let before = anyfn::live_objects();
    let mut error = Error::new("ValueError", "the first");
    for _ in 0..200_000 {
        error = Error::new("ValueError", "another").with_cause(&error);
    }
    drop(error);
    // Other tests in this file may hold a few objects meanwhile.
    assert!((anyfn::live_objects() - before).abs() < 1000);
}

#[test]
fn a_trace_is_read_while_it_grows() {
    let error = Error::new("ValueError", "shared");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2000 {
                error.append_backtrace("  File \"more\", line 1, in more\n");
            }
        });
        scope.spawn(|| {
            for _ in 0..2000 {
                let trace = error.backtrace();
                assert!(trace.starts_with("  File") && trace.ends_with('\n'), "{trace}");
            }
        });
    });
    assert_eq!(error.backtrace().lines().count(), 2001);
}

#[test]
fn one_function_cannot_have_so_many_names_that_its_count_overflows() {
    let function = PackedFunc::new(|_| Any::new(7));
    let error = (0..200_000)
        .find_map(|i| registry::register(&format!("soundness.name{i}")).set(&function).err())
        .expect("the count has no room for so many");
    assert_eq!(error.kind(), "RuntimeError");
    assert_eq!(function.call(()).and_then(|x| x.get::<i64>()).unwrap(), 7);
}

#[test]
fn the_first_function_may_be_made_while_its_thread_panics() {
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            assert!(PackedFunc::new(|_| Ok(Any::NONE)).call(()).is_ok());
        }
    }
    let unwound = catch_unwind(|| {
        let _late = Late;
        panic!("on the way out");
    });
    assert!(unwound.is_err());
}

#[test]
fn an_owned_value_never_points_to_a_tensor_that_may_go() {
    // The function keeps its argument and is called with a view. Only a tensor object could be kept as a tensor.
    let kept = Arc::new(Mutex::new(Any::NONE));
    let keep = PackedFunc::new({
        let kept = kept.clone();
        move |args| {
            *kept.lock().unwrap() = args.get::<Any>(0)?;
            args.get::<Any>(0)
        }
    });
    let tensor = Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap();
    let result = keep.call((tensor.view(),)).unwrap();
    drop(tensor);
    for value in [&result, &*kept.lock().unwrap()] {
        assert_eq!(value.type_key(), "void*");
        assert!(value.get::<TensorView>().is_err());
    }
}

#[test]
fn null_strings_and_byte_arrays_are_no_values() {
    use anyfn::abi::{TVMFFIAny, kTVMFFIByteArrayPtr, kTVMFFIRawStr};
    let text = TVMFFIAny::from_bits(kTVMFFIRawStr, 0);
    // SAFETY: this is a view of a NULL string, which callers of the ABI may pass.
    let text = unsafe { anyfn::AnyView::from_raw(text) };
    assert!(text.get::<anyfn::String>().is_err());
    let bytes = TVMFFIAny::from_bits(kTVMFFIByteArrayPtr, 0);
    // SAFETY: this is a view of a NULL byte array, which callers of the ABI may pass.
    let bytes = unsafe { anyfn::AnyView::from_raw(bytes) };
    assert!(bytes.get::<anyfn::Bytes>().is_err());
}

/// Sets the number of strong references in an object's header.
fn count(object: &anyfn::ObjectRef, strong: u64) {
    use core::sync::atomic::{AtomicU64, Ordering};
    let header = object.as_handle().cast::<anyfn::abi::TVMFFIObject>();
    // SAFETY: this is the header of a live object, whose count is changed only by atomic operations.
    let counter = unsafe { &raw mut (*header).combined_ref_count };
    // SAFETY: the count belongs to a live object and is changed only by atomic operations.
    let counter = unsafe { AtomicU64::from_ptr(counter) };
    counter.store(1 << 32 | strong, Ordering::Relaxed);
}

#[test]
fn a_copy_of_a_map_that_cannot_count_releases_nothing() {
    use anyfn::{Any, Array, Map, ObjectRef};
    const LIMIT: u64 = 3 << 30;
    for size in [2, 20] {
        let object = |at: i64| Array::<i64>::try_from_iter([at]).unwrap().into_object();
        let objects: Vec<ObjectRef> = (0..size).map(object).collect();
        let pairs = objects.iter().enumerate().map(|(at, object)| (at as i64, Any::from(object.clone())));
        let map: Map<i64, Any> = Map::try_from_iter(pairs).unwrap();
        let last = objects.last().unwrap();
        count(last, LIMIT);
        // The map is shared, so it is copied.
        let mut other = map.clone();
        let copied = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| other.insert(100, Any::NONE)));
        let (counted, first) = (last.use_count(), objects[0].use_count());
        count(last, 2);
        assert!(copied.is_err());
        assert_eq!(counted as u64, LIMIT, "a reference was given back that had not been counted");
        assert_eq!(first, 2, "the references of a copy that was not made are given back");
        drop(other);
        assert_eq!(map.get(0).unwrap().unwrap().get::<Array<i64>>().unwrap().len(), 1);
    }
}
