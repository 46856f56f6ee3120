//! Test of the number of live objects, in a separate test binary, so that no other test changes the number.

use anyfn::{String, live_objects};
use anyfn_core as _;

#[test]
fn counts_objects_of_more_threads_than_have_a_count_of_their_own() {
    let make = |i: usize| String::from(format!("made by thread number {i}").as_str());
    let before = live_objects();
    let threads: Vec<_> =
        (0..200).map(|i| std::thread::spawn(move || (0..50).map(|_| make(i)).collect::<Vec<_>>())).collect();
    let made: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(live_objects(), before + 200 * 50);
    // Freed by other threads than those that created them.
    let threads: Vec<_> = made.into_iter().map(|texts| std::thread::spawn(move || drop(texts))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(live_objects(), before);
}
