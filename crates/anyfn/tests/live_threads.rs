//! Counts of live objects with more threads than have their own counters.

use anyfn::{String, live_objects};
use anyfn_core as _;

#[test]
fn objects_of_many_threads_are_counted() {
    let before = live_objects();
    let text = || String::from("longer than seven bytes");
    for round in 0..10 {
        // The objects of each thread are freed by another thread.
        let made: Vec<_> = (0..60).map(|_| std::thread::spawn(move || [text(), text()])).collect();
        let made: Vec<_> = made.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(live_objects(), before + 120, "round {round}");
        let freed: Vec<_> = made.into_iter().map(|pair| std::thread::spawn(move || drop(pair))).collect();
        freed.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(live_objects(), before, "round {round}");
    }
}
