//! Tests of time measurements from Rust.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyfn::{Any, Bytes, Device, Error, PackedFunc, Result, TypedPackedFunc, registry};
use anyfn_loader as _;
use anyfn_runtime::timing::{TimeEvaluator, Timer, register_timer};

fn fails<T: std::fmt::Debug>(result: Result<T>, kind: &str, part: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{}", error.message());
    assert!(error.message().contains(part), "{}", error.message());
}

/// Keeps the processor busy for `micros` microseconds.
fn busy(micros: u64) {
    let end = Instant::now() + Duration::from_micros(micros);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

#[test]
fn a_time_that_is_known_is_measured() {
    let function = TypedPackedFunc::from_fn(busy);
    let evaluator = TimeEvaluator { number: 10, repeat: 5, ..TimeEvaluator::default() };
    let timing = evaluator.run(function.as_packed(), (200_u64,)).unwrap();
    // A call never takes less time. How much more it takes depends on other processes.
    assert!(timing.min >= 199e-6, "{timing}");
    assert_eq!(timing.results.len(), 5);
    assert!(timing.numbers.iter().all(|number| number == 10));
    assert!(timing.min <= timing.median && timing.median <= timing.max, "{timing}");
    assert!(timing.min <= timing.mean && timing.mean <= timing.max, "{timing}");
    assert!(timing.overhead < 1e-3);
    let text = timing.to_string();
    assert!(text.contains("per call on cpu:0") && text.contains("5 measurements of 10 calls"), "{text}");
}

#[test]
fn the_least_time_of_a_measurement_is_reached_by_more_calls() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let function = PackedFunc::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(Any::NONE)
    });
    let evaluator = TimeEvaluator { number: 1, repeat: 2, min_repeat_ms: 2.0, ..TimeEvaluator::default() };
    let timing = evaluator.run(&function, ()).unwrap();
    for (seconds, number) in timing.results.iter().zip(timing.numbers.iter()) {
        assert!(seconds * number as f64 >= 2e-3 * (1.0 - 1e-9), "{timing}");
    }
    let counted: i64 = timing.numbers.iter().sum();
    assert!(calls.load(Ordering::Relaxed) > counted as u64, "the warm-up and the attempts that were too short");
}

/// Events of a measurement, such as the start of the timer, in the order in which they happened.
static EVENTS: Mutex<Vec<&str>> = Mutex::new(Vec::new());

fn happens(event: &'static str) {
    EVENTS.lock().unwrap().push(event);
}

/// Timer that adds its calls to [`EVENTS`], and always reports a time of one second.
struct Logging;

impl Timer for Logging {
    fn start(&mut self) -> Result<()> {
        happens("start");
        Ok(())
    }
    fn stop(&mut self) -> Result<f64> {
        happens("stop");
        Ok(1.0)
    }
}

#[test]
fn what_is_done_before_a_measurement_does_not_count() {
    const KIND: i32 = anyfn::abi::kDLMAIA;
    register_timer(KIND, |_| Ok(Box::new(Logging)));
    let evaluator = TimeEvaluator {
        device: Device::new(KIND, 0),
        number: 2,
        repeat: 2,
        preprocess: Some(TypedPackedFunc::from_fn(|_: i64| happens("before")).into()),
        ..TimeEvaluator::default()
    };
    let call = TypedPackedFunc::from_fn(|_: i64| happens("call"));
    evaluator.run(call.as_packed(), (1,)).unwrap();
    let warm_up = ["start", "call", "stop"];
    let measurement = ["before", "start", "call", "call", "stop"];
    assert_eq!(*EVENTS.lock().unwrap(), [&warm_up[..], &measurement, &measurement].concat());
}

#[test]
fn there_are_rests_between_measurements() {
    let evaluator =
        TimeEvaluator { number: 1, repeat: 3, cooldown_interval_ms: 20, ..TimeEvaluator::default() };
    let start = Instant::now();
    let timing = evaluator.run(TypedPackedFunc::from_fn(|x: i64| x).as_packed(), (1,)).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(2 * 20));
    assert_eq!(timing.results.len(), 3);
}

#[test]
fn errors_of_the_function_come_through() {
    let calls = AtomicU64::new(0);
    let function = PackedFunc::new(move |_| match calls.fetch_add(1, Ordering::Relaxed) {
        5 => Err(Error::new("KeyError", "the sixth call")),
        _ => Ok(Any::NONE),
    });
    fails(TimeEvaluator::default().run(&function, ()), "KeyError", "the sixth call");
    let typed = TypedPackedFunc::from_fn(|x: i64| x);
    fails(TimeEvaluator::default().run(typed.as_packed(), ("x",)), "TypeError", "int");
}

#[test]
fn wrong_options_are_refused() {
    let function = PackedFunc::new(|_| Ok(Any::NONE));
    let run = |evaluator: TimeEvaluator| evaluator.run(&function, ());
    fails(run(TimeEvaluator { number: 0, ..Default::default() }), "ValueError", "`number`");
    fails(run(TimeEvaluator { number: u64::MAX, ..Default::default() }), "ValueError", "`number`");
    fails(run(TimeEvaluator { repeat: 0, ..Default::default() }), "ValueError", "`repeat`");
    fails(
        run(TimeEvaluator { min_repeat_ms: f64::NAN, ..Default::default() }),
        "ValueError",
        "`min_repeat_ms`",
    );
    let device = Device::new(anyfn::abi::kDLVulkan, 3);
    fails(
        run(TimeEvaluator { device, ..Default::default() }),
        "RuntimeError",
        "device vulkan:3 is not available",
    );
    let flush = TimeEvaluator { cache_flush_bytes: usize::MAX / 2, ..Default::default() };
    fails(run(flush), "MemoryError", "flush");
}

#[test]
fn caches_are_flushed_before_each_call() {
    let evaluator =
        TimeEvaluator { number: 3, repeat: 2, cache_flush_bytes: 1 << 20, ..TimeEvaluator::default() };
    let timing = evaluator.run(TypedPackedFunc::from_fn(busy).as_packed(), (50_u64,)).unwrap();
    assert!(timing.min >= 49e-6, "{timing}");
}

/// Timer of a test device. The index of the device determines the measured time.
struct Odd(Device);

impl Timer for Odd {
    fn start(&mut self) -> Result<()> {
        Ok(())
    }
    fn stop(&mut self) -> Result<f64> {
        match self.0.0.device_id {
            1 => Ok(0.0),
            2 => anyfn::bail!("RuntimeError", "the device is lost"),
            _ => Ok(1.0),
        }
    }
}

#[test]
fn a_driver_gives_the_clock_of_its_device() {
    const KIND: i32 = anyfn::abi::kDLMetal;
    register_timer(KIND, |device| Ok(Box::new(Odd(device))));
    let function = PackedFunc::new(|_| Ok(Any::NONE));
    let on = |id: i32| TimeEvaluator { device: Device::new(KIND, id), number: 4, ..Default::default() };
    assert_eq!(on(0).run(&function, ()).unwrap().mean, 0.25);
    fails(on(2).run(&function, ()), "RuntimeError", "the device is lost");
    // A measurement with a clock that always shows zero ends as well.
    let timing = TimeEvaluator { limit_zero_time_iterations: 3, ..on(1) }.run(&function, ()).unwrap();
    assert_eq!((timing.mean, timing.numbers.get(0).unwrap()), (0.0, 32));
}

#[test]
fn a_device_without_a_clock_is_waited_for() {
    let device = anyfn_runtime::device::enable_null().unwrap();
    let function = TypedPackedFunc::from_fn(busy);
    let evaluator = TimeEvaluator { device, number: 2, cache_flush_bytes: 4096, ..Default::default() };
    let timing = evaluator.run(function.as_packed(), (100_u64,)).unwrap();
    assert!(timing.min >= 99e-6 && timing.device == device, "{timing}");
}

#[test]
fn the_evaluator_that_other_runtimes_have() {
    registry::register("timing.busy").set_body_typed(busy).unwrap();
    let make = registry::get("runtime.RPCTimeEvaluator").unwrap();
    let views = |name: &'static str, device: i64| (None::<i64>, name, device, 0, 3, 2, 0, "");
    let new = make.call((None::<i64>, "timing.busy", 1, 0, 3, 2, 0, 100, 0, 1, 0, "")).unwrap();
    let old = make.call(views("timing.busy", 1)).unwrap();
    for evaluator in [new, old] {
        let bytes = evaluator.get::<PackedFunc>().unwrap().call((100_u64,)).unwrap().get::<Bytes>().unwrap();
        let seconds: Vec<f64> =
            bytes.chunks_exact(8).map(|bytes| f64::from_ne_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(seconds.len(), 2);
        assert!(seconds.iter().all(|seconds| *seconds >= 99e-6), "{seconds:?}");
    }
    fails(make.call((None::<i64>, "timing.busy")), "TypeError", "expected 12 arguments, or 8");
    fails(make.call(views("timing.absent", 1)), "ValueError", "timing.absent");
    fails(make.call(views("timing.busy", 2)), "RuntimeError", "device cuda:0 is not available");
}
