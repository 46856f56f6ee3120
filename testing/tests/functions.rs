//! Tests that call the sample functions from a Rust program that links them.

use std::collections::HashMap;

use anyfn::abi::{DLTensor, kDLCPU};
use anyfn::{
    Any, Bytes, DType, Device, Element, IntoArgs, PackedFunc, Ref, Result, Shape, TensorView, registry,
};
use anyfn_host as _;
use anyfn_testing::{Counter, Point};

fn call(name: &str, args: impl IntoArgs) -> Result<Any> {
    registry::get(name).unwrap().call(args)
}

#[track_caller]
fn fails(result: Result<Any>, kind: &str, part: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.message().contains(part), "no `{part}` in: {error}");
}

#[test]
fn any_arguments() {
    assert!(call("testing.nop", ()).unwrap().is_none());
    assert!(call("testing.nop", (1, "two", 3.0)).unwrap().is_none());
    assert_eq!(call("testing.count", (1, "two", 3.0)).unwrap().get::<i64>().unwrap(), 3);
    assert_eq!(call("testing.echo", ("x",)).unwrap().get::<&str>().unwrap(), "x");
    fails(call("testing.echo", ()), "TypeError", "Expected 1 but got 0");
    let add = registry::get("testing.add_i64").unwrap();
    assert_eq!(call("testing.apply", (&add, 1, 2)).unwrap().get::<i64>().unwrap(), 3);
    fails(call("testing.apply", ()), "TypeError", "argument #0 is missing");
    assert!(!registry::get("testing.nop").unwrap().signature().unwrap().contains("named_args"));
    assert!(add.signature().unwrap().contains("\"arg_names\":[\"a\",\"b\"],\"doc\":\"Returns a + b as"));
}

#[test]
fn typed_values() {
    assert_eq!(call("testing.add_f64", (1, 0.5)).unwrap().get::<f64>().unwrap(), 1.5);
    assert_eq!(call("testing.concat", ("ab", "cdefghijk")).unwrap().get::<&str>().unwrap(), "abcdefghijk");
    assert_eq!(call("testing.str_len", ("grüße",)).unwrap().get::<i64>().unwrap(), 5);
    assert_eq!(call("testing.bytes_len", (&b"abc"[..],)).unwrap().get::<i64>().unwrap(), 3);
    assert_eq!(&*call("testing.bytes_reverse", (&b"abc"[..],)).unwrap().get::<Bytes>().unwrap(), b"cba");
    assert!(!call("testing.not", (true,)).unwrap().get::<bool>().unwrap());
    assert_eq!(call("testing.echo_u8", (255,)).unwrap().get::<u8>().unwrap(), 255);
    fails(call("testing.echo_u8", (256,)), "OverflowError", "256");
    fails(call("testing.echo_u64", (-1,)), "OverflowError", "-1");
    fails(call("testing.echo_i32", ("1",)), "TypeError", "Expected `int` but got");
    assert_eq!(call("testing.add_one_if_any", (1,)).unwrap().get::<i64>().unwrap(), 2);
    assert!(call("testing.add_one_if_any", (Any::NONE,)).unwrap().is_none());
    let range = call("testing.array_range", (5,)).unwrap();
    assert_eq!(call("testing.array_sum", (&range,)).unwrap().get::<i64>().unwrap(), 10);
    let reversed = call("testing.array_reverse", (&range,)).unwrap();
    assert_eq!(reversed.get::<Vec<i64>>().unwrap(), [4, 3, 2, 1, 0]);
    let map = Any::new(HashMap::from([("a".to_string(), 1i64), ("b".to_string(), 2)])).unwrap();
    assert_eq!(call("testing.map_sum", (&map,)).unwrap().get::<i64>().unwrap(), 3);
    assert_eq!(call("testing.map_get", (&map, "b")).unwrap().get::<i64>().unwrap(), 2);
    assert!(call("testing.map_get", (&map, "c")).unwrap().is_none());
    let dtype = call("testing.echo_dtype", ("float32x4",)).unwrap();
    assert_eq!(dtype.get::<DType>().unwrap().to_string(), "float32x4");
    let device = Device::new(kDLCPU, 3);
    assert_eq!(call("testing.echo_device", (device,)).unwrap().get::<Device>().unwrap(), device);
    let shape = Shape::from(&[2, 3][..]);
    assert_eq!(call("testing.echo_shape", (&shape,)).unwrap().get::<Shape>().unwrap(), shape);
    assert_eq!(call("testing.shape_size", (&shape,)).unwrap().get::<i64>().unwrap(), 6);
    let huge = Shape::from(&[i64::MAX, 2][..]);
    fails(call("testing.shape_size", (&huge,)), "OverflowError", "does not fit");
}

fn describe(data: *mut f32, shape: &mut [i64; 1]) -> DLTensor {
    DLTensor {
        data: data.cast(),
        device: Device::new(kDLCPU, 0).0,
        ndim: 1,
        dtype: f32::DTYPE.0,
        shape: shape.as_mut_ptr(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    }
}

#[test]
fn tensors() {
    let mut memory = [1.0f32, 2.0, 3.0, 10.0, 20.0, 30.0];
    let (mut shape, mut shorter) = ([3], [2]);
    let data = memory.as_mut_ptr();
    let (x, y) = (describe(data, &mut shape), describe(data.wrapping_add(3), &mut shape));
    let (overlapping, short) = (describe(data.wrapping_add(1), &mut shape), describe(data, &mut shorter));
    let view = |tensor| {
        // SAFETY: data and shapes live until the end of the test.
        unsafe { TensorView::from_dl(tensor) }
    };
    assert_eq!(call("testing.tensor_sum", (view(&x),)).unwrap().get::<f64>().unwrap(), 6.0);
    call("testing.saxpy", (2.0, view(&x), view(&y))).unwrap();
    assert_eq!(call("testing.tensor_sum", (view(&y),)).unwrap().get::<f64>().unwrap(), 72.0);
    fails(call("testing.saxpy", (2.0, view(&x), view(&overlapping))), "ValueError", "must not share memory");
    fails(
        call("testing.saxpy", (2.0, view(&x), view(&short))),
        "ValueError",
        "the same shape, but got [3] and [2]",
    );
    let text = call("testing.tensor_describe", (view(&x),)).unwrap();
    assert_eq!(text.get::<&str>().unwrap(), "float32[3]@cpu:0");
    assert_eq!(memory, [1.0, 2.0, 3.0, 12.0, 24.0, 36.0]);
}

#[test]
fn errors() {
    fails(call("testing.raise_error", ("KeyError", "no such key")), "KeyError", "no such key");
    let error =
        call("testing.raise_error_with_cause", ("ValueError", "outer", "TypeError", "inner")).unwrap_err();
    assert_eq!(error.cause().unwrap().to_string(), "TypeError: inner");
    fails(call("testing.panic", ("on purpose",)), "InternalError", "on purpose");
    let fail = PackedFunc::new(|_| -> Result<Any> { anyfn::bail!("IndexError", "out") });
    let caught = call("testing.catch_error", (&fail,)).unwrap();
    assert_eq!(call("testing.describe_error", (&caught,)).unwrap().get::<&str>().unwrap(), "IndexError: out");
}

#[test]
fn callbacks() {
    let double = PackedFunc::new(|args| Any::new(2 * args.get::<i64>(0)?));
    assert_eq!(call("testing.apply_on_thread", (&double, 4)).unwrap().get::<i64>().unwrap(), 8);
    assert_eq!(call("testing.apply_on_threads", (&double, 4)).unwrap().get::<i64>().unwrap(), 12);
    call("testing.keep", (&double,)).unwrap();
    assert_eq!(call("testing.call_kept", (5,)).unwrap().get::<i64>().unwrap(), 10);
    assert_eq!(call("testing.call_kept_on_thread", (6,)).unwrap().get::<i64>().unwrap(), 12);
    assert!(call("testing.drop_kept", ()).unwrap().get::<bool>().unwrap());
    fails(call("testing.call_kept", (5,)), "RuntimeError", "no function is kept");
    let adder = call("testing.make_adder", (3,)).unwrap().get::<PackedFunc>().unwrap();
    assert_eq!(adder.call((4,)).unwrap().get::<i64>().unwrap(), 7);
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&calls);
    let count = PackedFunc::new(move |_| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(Any::NONE)
    });
    for (n, sum) in [(0, 0), (10, 10)] {
        call("testing.call_n", (&count, n)).unwrap().get::<f64>().unwrap();
        assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), sum);
    }
    assert!(call("testing.call_n_with", (&double, 10, 1)).unwrap().get::<f64>().unwrap() > 0.0);
    assert!(call("testing.raise_n", (10,)).unwrap().get::<f64>().unwrap() > 0.0);
}

#[test]
fn objects() {
    let point = call("testing.make_point", (1.5, 2)).unwrap();
    assert_eq!(*point.get::<Ref<Point>>().unwrap(), Point { x: 1.5, y: 2.0 });
    assert_eq!(call("testing.point_y", (&point,)).unwrap().get::<f64>().unwrap(), 2.0);
    let counter = call("testing.make_counter", (1,)).unwrap();
    assert_eq!(call("testing.counter_add", (&counter, 4)).unwrap().get::<i64>().unwrap(), 5);
    assert_eq!(counter.get::<Ref<Counter>>().unwrap().value(), 5);
    fails(
        call("testing.point_x", (&counter,)),
        "TypeError",
        "Expected `testing.Point` but got `testing.Counter`",
    );

    // A method can be registered without a wrapper.
    registry::register("test.Counter.add").set_body_method(Counter::add).unwrap();
    assert_eq!(call("test.Counter.add", (&counter, 5)).unwrap().get::<i64>().unwrap(), 10);
    assert_eq!(call("testing.type_key", (&counter,)).unwrap().get::<&str>().unwrap(), "testing.Counter");
    assert!(call("testing.live_objects", ()).unwrap().get::<i64>().unwrap() >= 2);
}
