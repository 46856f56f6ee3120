//! Tests that the program's panic hook is changed only if the program requests it.

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyfn::{PackedFunc, error_kind};
use anyfn_core as _;

static SEEN: AtomicUsize = AtomicUsize::new(0);

#[test]
fn locations_are_recorded_only_if_the_program_asks_for_them() {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        SEEN.fetch_add(1, Ordering::Relaxed);
        default(info);
    }));

    // Creating and calling functions leaves the hook of the program in place, and adds none.
    let fails = PackedFunc::new(|_| panic!("oh no"));
    let error = fails.call(()).unwrap_err();
    assert_eq!((error.kind(), error.message()), (error_kind::INTERNAL_ERROR, "panic: oh no"));
    assert!(error.backtrace().contains("<unknown>"), "{error:?}");
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);

    anyfn::record_panic_locations();
    anyfn::record_panic_locations();
    let error = fails.call(()).unwrap_err();
    assert!(error.message().starts_with("panic: oh no ("), "{error}");
    assert!(error.message().contains(file!()) && error.backtrace().contains(file!()), "{error:?}");
    // The hook of the program still runs, once for each panic.
    assert_eq!(SEEN.load(Ordering::Relaxed), 2);
}
