//! Tests all operations of a session within one process: the session connects this process with itself over a
//! socket pair.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyfn::{
    Any, Array, Device, Dict, Error, List, Map, Module, ModuleKind, PackedFunc, Ref, Shape, Tensor,
    TypedPackedFunc, registry,
};
use anyfn_loader as _;
use anyfn_reflect as _;
use anyfn_rpc::{CALLS_MAX, RemoteTensor, Session};
use anyfn_runtime as _;

fn local() -> Ref<Session> {
    registry::get("rpc.local").unwrap().call(()).unwrap().get::<Ref<Session>>().unwrap()
}

fn register(name: &str, function: PackedFunc) {
    registry::register(name).overriding().set(&function).unwrap();
}

#[test]
fn values_come_back_as_they_were() {
    register("test.local.echo", PackedFunc::new(|args| Ok(args.as_slice()[0].to_owned())));
    let session = local();
    let echo = session.get_function("test.local.echo").unwrap();
    let long = "x".repeat(1 << 20);
    let values: Vec<Any> = vec![
        Any::NONE,
        Any::new(true).unwrap(),
        Any::new(i64::MIN).unwrap(),
        Any::new(-0.0).unwrap(),
        Any::new("small").unwrap(),
        Any::new(&*long).unwrap(),
        Any::new(anyfn::Bytes::from(&b"\0\xff"[..])).unwrap(),
        Any::new(Device::new(2, 1)).unwrap(),
        Any::new("float32".parse::<anyfn::DType>().unwrap()).unwrap(),
    ];
    for value in values {
        assert_eq!(echo.call((&value,)).unwrap(), value);
    }
    let shape = echo.call((Shape::from(&[1, -2, 3][..]),)).unwrap().get::<Shape>().unwrap();
    assert_eq!(shape[..], [1, -2, 3]);
    let map = || Map::<String, i64>::try_from_iter([("a", 1)]).unwrap();
    let back = echo.call((vec![1, 2], map(), "text")).unwrap();
    assert_eq!(back.get::<Vec<i64>>().unwrap(), [1, 2]);
    let back = echo.call(((vec![1, 2], map(), "text"),)).unwrap();
    let (numbers, map, text) = back.get::<(Vec<i64>, Map<String, i64>, String)>().unwrap();
    assert_eq!((&numbers[..], map.at("a").unwrap(), &*text), (&[1, 2][..], 1, "text"));
    let error = echo.call((Error::new("ValueError", "kept"),)).unwrap().get::<Error>().unwrap();
    assert_eq!((error.kind(), error.message()), ("ValueError", "kept"));
    let itself = List::<Any>::new();
    itself.push(Any::new(itself.clone()).unwrap()).unwrap();
    let error = echo.call((&itself,)).unwrap_err();
    assert!(error.message().contains("nested deeper"), "{error:?}");
    itself.clear();
}

#[test]
fn what_is_one_value_arrives_as_one() {
    register("test.local.same", PackedFunc::new(|args| Any::new(args.as_slice()[0] == args.as_slice()[1])));
    register(
        "test.local.all",
        PackedFunc::new(|args| Any::new(Array::from_iter(args.as_slice().iter().map(|v| v.to_owned())))),
    );
    register(
        "test.local.grow",
        PackedFunc::new(|args| {
            let outer = args.get::<Array<List<Any>>>(0)?;
            outer.get(0)?.push(Any::new(7)?)?;
            Any::new(outer)
        }),
    );
    let session = local();
    let inner = List::<Any>::new();
    let values: [Any; 4] = [
        Any::new(inner.clone()).unwrap(),
        Any::new(Dict::<Any, Any>::new()).unwrap(),
        Any::new(vec![1, 2]).unwrap(),
        Any::new(Map::<String, i64>::try_from_iter([("a", 1)]).unwrap()).unwrap(),
    ];
    let same = session.get_function("test.local.same").unwrap();
    let all = session.get_function("test.local.all").unwrap();
    for value in &values {
        // Two arguments, items of each container, and keys are a single object at the remote end, and again in the result.
        assert!(same.call((value, value)).unwrap().get::<bool>().unwrap());
        let back = all.call((value, value)).unwrap().get::<(Any, Any)>().unwrap();
        assert_eq!(back.0, back.1);
        let list = List::<Any>::from_vec(vec![value.clone(), value.clone()]).unwrap();
        let dict = Dict::<Any, Any>::from_vec(vec![(value.clone(), Any::new(list.clone()).unwrap())]).unwrap();
        let map = Map::<Any, Any>::from_vec(vec![(value.clone(), value.clone())]).unwrap();
        let back = all.call((&list, &dict, &map)).unwrap();
        let (list, dict, map) = back.get::<(List<Any>, Dict<Any, Any>, Map<Any, Any>)>().unwrap();
        assert_eq!(list.get(0).unwrap(), list.get(1).unwrap());
        let pairs = dict.try_snapshot().unwrap();
        assert_eq!(
            (&pairs[0].0, pairs[0].1.get::<List<Any>>().unwrap()),
            (&list.get(0).unwrap(), list.clone())
        );
        let pair = map.iter_any().next().unwrap();
        assert_eq!((pair.0, pair.1), (&list.get(0).unwrap(), &list.get(0).unwrap()));
    }
    let grow = session.get_function("test.local.grow").unwrap();
    let back = grow.call((vec![inner.clone(), inner.clone()],)).unwrap().get::<Vec<List<Any>>>().unwrap();
    assert_eq!((back[0].len(), back[1].len(), inner.len()), (1, 1, 0));
}

#[test]
fn a_graph_is_sent_once_and_a_tree_within_the_limit() {
    register("test.local.echo", PackedFunc::new(|args| Ok(args.as_slice()[0].to_owned())));
    register(
        "test.local.too_long",
        PackedFunc::new(|_| {
            let part = Any::new("x".repeat(1 << 20))?;
            Any::new(Array::<Any>::try_from_iter(vec![part; 1100])?)
        }),
    );
    let session = local();
    let echo = session.get_function("test.local.echo").unwrap();
    let double = |start: Any, make: &dyn Fn(Any) -> Any| (0..60).fold(start, |value, _| make(value));
    let graphs = [
        double(Any::NONE, &|value| Any::new(vec![value.clone(), value]).unwrap()),
        double(Any::NONE, &|value| {
            Any::new(List::<Any>::from_vec(vec![value.clone(), value]).unwrap()).unwrap()
        }),
        double(Any::NONE, &|value| {
            Any::new(
                Map::<Any, Any>::from_vec(vec![(Any::NONE, value.clone()), (Any::new(1).unwrap(), value)])
                    .unwrap(),
            )
            .unwrap()
        }),
    ];
    for graph in graphs {
        // Each call would take 2^60 steps if shared values were sent more than once.
        let back = echo.call((&graph,)).unwrap();
        let equal = registry::get("ffi.RecursiveEq").unwrap().call((&graph, &back)).unwrap();
        assert!(equal.get::<bool>().unwrap());
    }
    // Strings are copied. Exceeding the limit is an error at either end, and the session continues.
    let part = Any::new("x".repeat(1 << 20)).unwrap();
    let error = echo.call((Array::<Any>::try_from_iter(vec![part; 1100]).unwrap(),)).unwrap_err();
    assert_eq!(error.kind(), "ValueError");
    assert!(
        error.message().contains("more than 1073741824 bytes") && error.message().contains("message_bytes"),
        "{error}"
    );
    let error = session.get_function("test.local.too_long").unwrap().call(()).unwrap_err();
    assert!(error.kind() == "ValueError" && error.message().contains("more than 1073741824 bytes"), "{error}");
    assert_eq!(echo.call((5,)).unwrap().get::<i64>().unwrap(), 5);
}

#[test]
fn errors_say_where_they_come_from() {
    register(
        "test.local.fail",
        TypedPackedFunc::from_fn(|| -> anyfn::Result<()> { anyfn::bail!("KeyError", "no such key") }).into(),
    );
    let session = local();
    let error = session.get_function("test.local.fail").unwrap().call(()).unwrap_err();
    assert_eq!((error.kind(), error.message()), ("KeyError", "no such key"));
    let trace = error.backtrace();
    assert!(trace.contains("local.rs") && trace.contains("in <remote>"), "{trace}");
    let missing = session.get_function("test.local.missing").unwrap_err();
    assert!(missing.message().contains("test.local.missing"), "{missing:?}");
}

#[test]
fn tensors_stay_there() {
    let double = TypedPackedFunc::from_fn(|tensor: Tensor| {
        tensor.write::<f32>().unwrap().iter_mut().for_each(|x| *x *= 2.0);
    });
    register("test.local.double", double.into());
    let session = local();
    let host = Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0]).unwrap();
    let there = session.allocate(Shape::from(&[3][..]), "float32".parse().unwrap(), None).unwrap();
    let there = there.get::<Ref<RemoteTensor>>().unwrap();
    assert_eq!(there.nbytes, 12);
    there.as_object().call_method("write", (&host,)).unwrap();
    session.get_function("test.local.double").unwrap().call((&there,)).unwrap();
    let back = Tensor::zeros("float32".parse().unwrap(), &[3]).unwrap();
    there.as_object().call_method("read", (&back,)).unwrap();
    assert_eq!(*back.read::<f32>().unwrap(), [2.0, 4.0, 6.0]);
    let error = session.get_function("test.local.double").unwrap().call((&host,)).unwrap_err();
    assert!(error.message().contains("session.tensor"), "{error:?}");
    let other = local();
    let foreign = other.allocate(Shape::from(&[3][..]), "float32".parse().unwrap(), None).unwrap();
    let error = there.as_object().call_method("assign", (&foreign,)).unwrap_err();
    assert!(error.message().contains("another session"), "{error:?}");
    let wrong = Tensor::zeros("float32".parse().unwrap(), &[4]).unwrap();
    assert!(there.as_object().call_method("write", (&wrong,)).unwrap_err().message().contains("shape"));
}

#[test]
fn large_tensors_come_back_whole() {
    let session = local();
    let count = 3_000_001;
    let host = Tensor::from_slice(&[count as i64], &(0..count).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let there = session.allocate(Shape::from(&[count as i64][..]), "float32".parse().unwrap(), None).unwrap();
    let there = there.get::<Ref<RemoteTensor>>().unwrap();
    there.as_object().call_method("write", (&host,)).unwrap();
    let back = Tensor::zeros("float32".parse().unwrap(), &[count as i64]).unwrap();
    there.as_object().call_method("read", (&back,)).unwrap();
    assert_eq!(back.view().to_bytes().unwrap(), host.view().to_bytes().unwrap());
}

#[test]
fn callbacks_nest_to_a_stated_depth() {
    // A function that calls its argument, which calls back.
    register(
        "test.local.bounce",
        TypedPackedFunc::from_fn(|back: PackedFunc, depth: i64| back.call((depth,))).into(),
    );
    let session = local();
    let bounce = session.get_function("test.local.bounce").unwrap();
    let slot: Arc<Mutex<Option<PackedFunc>>> = Arc::default();
    let again = slot.clone();
    let back: PackedFunc = TypedPackedFunc::from_fn(move |depth: i64| -> anyfn::Result<Any> {
        if depth == 0 {
            return Any::new("the end");
        }
        let function = again.lock().unwrap().clone().unwrap();
        bounce.call((function, depth - 1))
    })
    .into();
    *slot.lock().unwrap() = Some(back.clone());
    assert_eq!(back.call((i64::from(CALLS_MAX) / 2 - 2,)).unwrap().get::<&str>().unwrap(), "the end");
    let error = back.call((1000,)).unwrap_err();
    assert_eq!(error.kind(), "RecursionError");
    assert!(error.message().contains(&CALLS_MAX.to_string()), "{error:?}");
    slot.lock().unwrap().take();
}

#[test]
fn a_time_limit_ends_waiting_and_tells_the_other_side() {
    let cancelled = Arc::new(AtomicBool::new(false));
    let seen = cancelled.clone();
    register(
        "test.local.long",
        TypedPackedFunc::from_fn(move || {
            let started = Instant::now();
            while started.elapsed() < Duration::from_secs(20) {
                if anyfn_rpc::is_cancelled() {
                    seen.store(true, Ordering::Relaxed);
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        })
        .into(),
    );
    let session = local();
    let long = session.get_function("test.local.long").unwrap();
    let limited = registry::get("rpc.timed").unwrap().call((long, 0.05)).unwrap().get::<PackedFunc>().unwrap();
    let error = limited.call(()).unwrap_err();
    assert_eq!(error.kind(), "TimeoutError");
    let started = Instant::now();
    while !cancelled.load(Ordering::Relaxed) {
        assert!(started.elapsed() < Duration::from_secs(10), "the other side has not heard of it");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(session.info().is_ok());
}

#[test]
fn calls_of_several_threads_are_in_flight_together() {
    let inside = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (i, m) = (inside, most.clone());
    register(
        "test.local.slow",
        TypedPackedFunc::from_fn(move |n: i64| {
            m.fetch_max(i.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(200));
            i.fetch_sub(1, Ordering::SeqCst);
            n
        })
        .into(),
    );
    let session = local();
    let slow = session.get_function("test.local.slow").unwrap();
    std::thread::scope(|scope| {
        for n in 0..4 {
            let slow = slow.clone();
            scope.spawn(move || assert_eq!(slow.call((n,)).unwrap().get::<i64>().unwrap(), n));
        }
    });
    assert!(most.load(Ordering::SeqCst) >= 2, "one after the other");
}

#[test]
fn threads_get_their_own_results() {
    register("test.local.same", TypedPackedFunc::from_fn(|n: i64| n).into());
    let session = local();
    let same = session.get_function("test.local.same").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_i64 {
            let same = same.clone();
            scope.spawn(move || {
                for n in 0..500 {
                    assert_eq!(
                        same.call((thread * 1000 + n,)).unwrap().get::<i64>().unwrap(),
                        thread * 1000 + n
                    );
                }
            });
        }
    });
}

#[test]
fn modules_and_objects_stand_for_those_there() {
    struct Numbers;
    impl ModuleKind for Numbers {
        fn kind(&self) -> &str {
            "test_numbers"
        }
        fn get_function(self: &Arc<Self>, name: &str) -> anyfn::Result<Option<PackedFunc>> {
            Ok((name == "seven").then(|| TypedPackedFunc::from_fn(|| 7).into()))
        }
        fn functions(&self) -> Vec<String> {
            vec!["seven".into()]
        }
    }
    register("test.local.module", TypedPackedFunc::from_fn(|| Module::new(Numbers)).into());
    register("test.local.is_module", TypedPackedFunc::from_fn(|module: Module| module.kind()).into());
    let session = local();
    let module = session.get_function("test.local.module").unwrap().call(()).unwrap().get::<Module>().unwrap();
    assert_eq!(&*module.kind().unwrap(), "rpc");
    assert_eq!(module.get_function("seven").unwrap().call(()).unwrap().get::<i64>().unwrap(), 7);
    let names = module.function_names().unwrap();
    assert_eq!(&*names.first().unwrap(), "seven");
    // A module that is sent back is the module itself.
    let kind = session.get_function("test.local.is_module").unwrap().call((&module,)).unwrap();
    assert_eq!(kind.get::<&str>().unwrap(), "test_numbers");
}

#[test]
fn what_is_dropped_here_is_let_go_there() {
    struct Guard(Arc<AtomicUsize>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = dropped.clone();
    register(
        "test.local.make",
        TypedPackedFunc::from_fn(move || {
            let guard = Guard(count.clone());
            PackedFunc::new(move |_| Any::new(guard.0.load(Ordering::SeqCst) as i64))
        })
        .into(),
    );
    let session = local();
    let make = session.get_function("test.local.make").unwrap();
    for _ in 0..10 {
        drop(make.call(()).unwrap());
    }
    session.info().unwrap();
    session.info().unwrap();
    assert!(dropped.load(Ordering::SeqCst) >= 9);
    let kept = make.call(()).unwrap();
    session.close();
    let error = kept.get::<PackedFunc>().unwrap().call(()).unwrap_err();
    assert_eq!(error.kind(), "ConnectionError");
    assert!(error.message().contains("closed"), "{error:?}");
    drop(kept);
    let started = Instant::now();
    while dropped.load(Ordering::SeqCst) < 11 {
        assert!(started.elapsed() < Duration::from_secs(5), "the other side keeps things: {dropped:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn time_is_measured_there() {
    register("test.local.nothing", TypedPackedFunc::from_fn(|| ()).into());
    let session = local();
    let nothing = session.get_function("test.local.nothing").unwrap();
    let evaluator = registry::get("anyfn.time_evaluator").unwrap().call((nothing, (), 100, 3)).unwrap();
    let timing = evaluator.get::<PackedFunc>().unwrap().call(()).unwrap();
    assert_eq!(timing.type_key(), "anyfn.Timing");
    let mean = timing.as_object().unwrap().get_field("mean").unwrap().get::<f64>().unwrap();
    assert!(mean < 1e-4, "{mean} seconds: the way there is measured, too");
}

#[test]
fn large_tensors_go_both_ways_at_once() {
    const COUNT: usize = 64 << 20;
    let session = local();
    let dtype: anyfn::DType = "uint8".parse().unwrap();
    let make = || {
        let tensor = session.allocate(Shape::from(&[COUNT as i64][..]), dtype, None).unwrap();
        tensor.get::<Ref<RemoteTensor>>().unwrap()
    };
    let (up, down) = (make(), make());
    let host = Tensor::from_slice(&[COUNT as i64], &(0..COUNT).map(|i| (i % 251) as u8).collect::<Vec<_>>());
    let host = host.unwrap();
    down.as_object().call_method("write", (&host,)).unwrap();
    let back = Tensor::zeros(dtype, &[COUNT as i64]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..2).for_each(|_| drop(up.as_object().call_method("write", (&host,)).unwrap())));
        scope.spawn(|| (0..2).for_each(|_| drop(down.as_object().call_method("read", (&back,)).unwrap())));
    });
    assert_eq!(back.view().to_bytes().unwrap(), host.view().to_bytes().unwrap());
    let again = Tensor::zeros(dtype, &[COUNT as i64]).unwrap();
    up.as_object().call_method("read", (&again,)).unwrap();
    assert_eq!(again.view().to_bytes().unwrap(), host.view().to_bytes().unwrap());
}

#[test]
fn one_file_from_two_threads_is_whole() {
    let session = local();
    let content: Vec<u8> = (0..8 << 20).map(|i: u32| (i * 7 % 255) as u8).collect();
    let bytes = anyfn::Bytes::from(&content[..]);
    let digests: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..3).map(|_| scope.spawn(|| session.send_file(bytes.clone(), None).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(digests.iter().all(|digest| *digest == digests[0]));
    let files = session.files().unwrap().get::<Map<String, i64>>().unwrap();
    assert_eq!((files.len(), files.at(&*digests[0]).unwrap()), (1, content.len() as i64));
}

#[test]
fn a_counter_observes_a_transfer() {
    let counter = || {
        let made = registry::get("rpc.transfer_counter").unwrap().call(()).unwrap();
        made.get::<PackedFunc>().unwrap()
    };
    let count = |counter: &PackedFunc| counter.call(()).unwrap().get::<u64>().unwrap();
    let (sent, other) = (counter(), counter());
    let bytes = anyfn::Bytes::from(&*vec![7_u8; 1 << 20]);
    local().send_file(bytes, Some(sent.clone())).unwrap();
    assert_eq!((count(&sent), count(&other)), (1 << 20, 0));
    assert_eq!(sent.call(("many", 1)).unwrap_err().kind(), "TypeError");
    assert_eq!(count(&sent), 1 << 20);
}
