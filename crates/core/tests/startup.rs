//! Tests of steps that a program adds to the initialisation of the runtime.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyfn_core::startup::{STEPS, entry};

static RUNS: AtomicUsize = AtomicUsize::new(0);

fn step() {
    RUNS.fetch_add(1, Ordering::Relaxed);
}

entry!(STEPS: fn() = step);

#[test]
fn a_step_runs_once_before_the_first_use_of_the_registry() {
    assert_eq!(RUNS.load(Ordering::Relaxed), 0);
    for _ in 0..2 {
        assert!(anyfn::registry::find("tests.startup.absent").is_none());
        assert_eq!(RUNS.load(Ordering::Relaxed), 1);
    }
}
