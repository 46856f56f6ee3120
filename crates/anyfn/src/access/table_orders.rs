//! Tests of the access table that explore all interleavings of threads; `./x test` runs them with
//! `--cfg loom`.

use alloc::vec::Vec;

use super::tests::{begin, range};
use super::*;

/// Implementation of [`Monitor`] with a lock and a condition variable of `loom`.
struct Loom {
    state: loom::sync::Mutex<AccessTable>,
    changed: loom::sync::Condvar,
}

impl Loom {
    fn new() -> Loom {
        Loom { state: loom::sync::Mutex::new(AccessTable::new()), changed: loom::sync::Condvar::new() }
    }
}

impl Monitor for Loom {
    type Guard<'a> = loom::sync::MutexGuard<'a, AccessTable>;
    type Deadline = ();
    fn lock(&self) -> Self::Guard<'_> {
        self.state.lock().unwrap()
    }
    fn wait<'a>(&'a self, guard: Self::Guard<'a>, _deadline: ()) -> (Self::Guard<'a>, bool) {
        (self.changed.wait(guard).unwrap(), false)
    }
    fn notify_all(&self) {
        self.changed.notify_all();
    }
}

/// An access table and two bytes that it protects. `loom` checks the bytes for data races.
struct Memory {
    table: Table<Loom>,
    bytes: [loom::cell::UnsafeCell<u8>; 2],
}

// SAFETY: the table excludes conflicting accesses, which `loom` checks.
unsafe impl Sync for Memory {}
// SAFETY: the bytes are plain data.
unsafe impl Send for Memory {}

impl Memory {
    fn new() -> Memory {
        let bytes = [loom::cell::UnsafeCell::new(0), loom::cell::UnsafeCell::new(0)];
        Memory { table: Table(Loom::new()), bytes }
    }

    fn read(&self, me: usize, at: usize) -> u8 {
        let tickets = begin(&self.table, me, &[range(at as u64, at as u64 + 1, false)]).unwrap();
        // SAFETY: the table excludes writers, which `loom` checks.
        let byte = self.bytes[at].with(|byte| unsafe { *byte });
        self.table.end(tickets[0]);
        byte
    }

    fn add(&self, me: usize, at: usize) {
        let tickets = begin(&self.table, me, &[range(at as u64, at as u64 + 1, true)]).unwrap();
        // SAFETY: the table excludes all other accesses, which `loom` checks.
        self.bytes[at].with_mut(|byte| unsafe { *byte += 1 });
        self.table.end(tickets[0]);
    }

    fn copy(&self, me: usize, from: usize, to: usize) {
        let wanted = [range(from as u64, from as u64 + 1, false), range(to as u64, to as u64 + 1, true)];
        let tickets = begin(&self.table, me, &wanted).unwrap();
        // SAFETY: the table excludes writers, which `loom` checks.
        let byte = self.bytes[from].with(|byte| unsafe { *byte });
        // SAFETY: the table excludes all other accesses, which `loom` checks.
        self.bytes[to].with_mut(|to| unsafe { *to = byte });
        tickets.into_iter().for_each(|ticket| self.table.end(ticket));
    }
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(body);
}

#[test]
fn writers_exclude_each_other_and_readers() {
    model(|| {
        let memory = loom::sync::Arc::new(Memory::new());
        let threads = [2, 3].map(|me| {
            let memory = memory.clone();
            loom::thread::spawn(move || memory.add(me, 0))
        });
        assert!(memory.read(1, 0) <= 2);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(memory.read(1, 0), 2);
        assert!(memory.table.0.lock().is_idle());
    });
}

#[test]
fn copies_in_opposite_directions_do_not_block_each_other_for_ever() {
    model(|| {
        let memory = loom::sync::Arc::new(Memory::new());
        memory.add(1, 0);
        let other = memory.clone();
        let thread = loom::thread::spawn(move || other.copy(2, 1, 0));
        memory.copy(1, 0, 1);
        thread.join().unwrap();
        assert_eq!(memory.read(1, 0), memory.read(1, 1));
    });
}

#[test]
fn a_cycle_of_waiting_threads_is_an_error_of_one_of_them() {
    model(|| {
        let table = loom::sync::Arc::new(Table(Loom::new()));
        let (a, b) = (range(0, 1, true), range(1, 2, true));
        let both = |table: &Table<Loom>, me, first, second| {
            let held = begin(table, me, &[first]).unwrap();
            let then = begin(table, me, &[second]);
            held.iter().chain(then.iter().flatten()).for_each(|ticket| table.end(*ticket));
            then.err()
        };
        let other = table.clone();
        let thread = loom::thread::spawn(move || both(&other, 2, b, a));
        let outcomes = [both(&table, 1, a, b), thread.join().unwrap()];
        let errors: Vec<Outcome> = outcomes.into_iter().flatten().collect();
        assert!(matches!(errors[..], [] | [Outcome::Deadlock]), "{errors:?}");
        assert!(table.0.lock().is_idle());
    });
}
