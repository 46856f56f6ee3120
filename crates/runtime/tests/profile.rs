//! Tests of profiles of Rust code. The tests run one after another, because a process has only one profiler.

use std::sync::{Mutex, PoisonError};

use anyfn::{Error, PackedFunc, Result, TypedPackedFunc, registry};
use anyfn_loader as _;
use anyfn_runtime::profile::{self, Function, Options, Order, Profile};

static ONE: Mutex<()> = Mutex::new(());

/// Records the calls that `body` makes, and returns their profile.
fn recorded(options: Options, body: impl FnOnce()) -> Profile {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    profile::start(options).unwrap();
    body();
    profile::stop().unwrap()
}

fn of<'a>(profile: &'a Profile, name: &str) -> &'a Function {
    let functions = profile.functions(Order::default());
    functions.iter().find(|function| function.name == name).unwrap_or_else(|| panic!("no {name} in {profile}"))
}

#[test]
fn calls_of_registered_functions() {
    registry::register("profiled.inner").set_body_typed(|x: i64| x + 1).unwrap();
    registry::register("profiled.outer")
        .set_body_typed(|x: i64| -> Result<i64> {
            registry::get("profiled.inner")?.call((x,))?.get::<i64>()?;
            registry::get("profiled.inner")?.call((x,))?.get::<i64>()
        })
        .unwrap();
    let profile = recorded(Options::default(), || {
        let outer = registry::get("profiled.outer").unwrap().typed::<fn(i64) -> i64>();
        assert_eq!(outer.call(1).unwrap(), 2);
        std::thread::scope(|threads| {
            threads.spawn(|| outer.call(1).unwrap());
        });
        let failing = PackedFunc::new(|_| Err(Error::new("ValueError", "no")));
        failing.call(()).unwrap_err();
    });
    assert_eq!((profile.calls, profile.dropped), (7, 0));
    let (outer, inner) = (of(&profile, "profiled.outer"), of(&profile, "profiled.inner"));
    assert_eq!((outer.calls, inner.calls, outer.errors), (2, 4, 0));
    assert!((outer.total - outer.self_time - inner.total).abs() < 1e-9, "{profile}");
    assert!(inner.min <= inner.mean() && inner.mean() <= inner.max);
    let failed = of(&profile, "<unnamed>");
    assert_eq!((failed.calls, failed.errors), (1, 1));
    let share: f64 = profile.functions(Order::Name).iter().map(|function| function.share).sum();
    assert!((share - 1.0).abs() < 1e-9);
    let text = profile.to_string();
    assert!(text.contains("7 calls in ") && text.contains("3 functions, on 2 threads"), "{text}");
    assert_eq!(profile.functions(Order::Calls)[0].name, "profiled.inner");
    let mut trace = Vec::new();
    profile.write_trace(&mut trace).unwrap();
    let trace = String::from_utf8(trace).unwrap();
    assert_eq!(trace.matches("\"ph\":\"X\"").count(), 7);
    assert_eq!(trace.matches("\"cat\":\"rust\"").count(), 7);
    assert_eq!(trace.matches("\"args\":{\"error\":true}").count(), 1);
}

#[test]
fn the_timeline_is_bounded() {
    let function = TypedPackedFunc::from_fn(|x: i64| x);
    let profile = recorded(Options { limit: 3, shapes: true }, || {
        for _ in 0..10 {
            function.call(1).unwrap();
        }
    });
    assert_eq!((profile.calls, profile.dropped), (10, 7));
    let mut trace = Vec::new();
    profile.write_trace(&mut trace).unwrap();
    assert_eq!(String::from_utf8(trace).unwrap().matches("\"arguments\":\"int\"").count(), 3);
}

#[test]
fn there_is_one_profile_at_a_time() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(profile::stop().err().unwrap().kind(), "RuntimeError");
    profile::start(Options::default()).unwrap();
    assert!(profile::is_on());
    assert_eq!(profile::start(Options::default()).unwrap_err().kind(), "RuntimeError");
    drop(profile::stop().unwrap());
    assert!(!profile::is_on());
}
