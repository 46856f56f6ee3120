//! Tests of the access table against a model.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use std::sync::mpsc;

use anyfn_random::Random;

use super::*;

pub(super) fn range(start: u64, end: u64, write: bool) -> Wanted {
    Wanted { space: 0, base: 0, start, end, write: u64::from(write) }
}

/// Implementation of [`Monitor`] for a single thread. Each wait times out immediately.
struct Single(RefCell<AccessTable>);

impl Monitor for Single {
    type Guard<'a> = core::cell::RefMut<'a, AccessTable>;
    type Deadline = ();
    fn lock(&self) -> Self::Guard<'_> {
        self.0.borrow_mut()
    }
    fn wait<'a>(&'a self, guard: Self::Guard<'a>, _deadline: ()) -> (Self::Guard<'a>, bool) {
        (guard, true)
    }
    fn notify_all(&self) {}
}

pub(super) fn begin<M: Monitor<Deadline = ()>>(
    table: &Table<M>,
    me: usize,
    wanted: &[Wanted],
) -> Result<Vec<u64>, Outcome> {
    let mut tickets = alloc::vec![0; wanted.len()];
    match table.begin(me, wanted, || (), &mut tickets) {
        Outcome::Begun => Ok(tickets),
        outcome => Err(outcome),
    }
}

#[test]
fn it_agrees_with_a_model_of_single_bytes() {
    // The model considers single bytes: each has readers or a writer.
    const BYTES: usize = 24;
    const THREADS: usize = 3;
    let mut random = Random::new(11);
    let mut next = move |below: usize| random.below(below);
    let table = Table(Single(RefCell::new(AccessTable::new())));
    let mut live: Vec<(usize, Wanted, u64)> = Vec::new();
    let (mut begun, mut own, mut late) = (0, 0, 0);
    for _ in 0..20_000 {
        if !live.is_empty() && next(3) == 0 {
            let (.., ticket) = live.swap_remove(next(live.len()));
            table.end(ticket);
            continue;
        }
        let me = 1 + next(THREADS);
        let wanted: Vec<Wanted> = (0..1 + next(2))
            .map(|_| {
                let start = next(BYTES);
                range(start as u64, (start + next(BYTES - start)) as u64, next(2) == 1)
            })
            .collect();
        let conflicts = |mine: bool| {
            (0..BYTES as u64).any(|byte| {
                let covers = |range: &Wanted| range.start <= byte && byte < range.end;
                let uses = |range: &Wanted| {
                    covers(range) && wanted.iter().any(|w| covers(w) && w.write + range.write > 0)
                };
                live.iter().any(|(thread, range, _)| (*thread == me) == mine && uses(range))
            })
        };
        let expected = if conflicts(true) {
            1
        } else if conflicts(false) {
            2
        } else {
            0
        };
        match begin(&table, me, &wanted) {
            Ok(tickets) => {
                assert_eq!(expected, 0);
                begun += 1;
                let entries = wanted.iter().zip(tickets).filter(|(_, ticket)| *ticket != 0);
                live.extend(entries.map(|(range, ticket)| (me, *range, ticket)));
            }
            Err(Outcome::Own { index, .. }) => {
                assert_eq!(expected, 1);
                assert!(
                    live.iter().any(|(thread, range, _)| *thread == me && wanted[index].conflicts_with(range))
                );
                own += 1;
            }
            Err(outcome) => {
                assert_eq!((expected, outcome), (2, Outcome::TimedOut));
                late += 1;
            }
        }
    }
    assert!(begun > 1000 && own > 1000 && late > 1000, "{begun} {own} {late}");
    live.into_iter().for_each(|(.., ticket)| table.end(ticket));
    assert!(table.0.lock().is_idle());
}

#[test]
fn spaces_and_bases_are_apart_and_nothing_conflicts_with_an_empty_range() {
    let table = Table(Single(RefCell::new(AccessTable::new())));
    let write = range(0, 8, true);
    let others =
        [Wanted { space: 1, ..write }, Wanted { base: 1, ..write }, range(8, 9, true), range(4, 4, true)];
    begin(&table, 1, &[write]).unwrap();
    begin(&table, 1, &others).unwrap();
    assert_eq!(begin(&table, 1, &[range(7, 8, false)]), Err(Outcome::Own { index: 0, writes: true }));
}

/// Implementation of [`Monitor`] with a lock of the standard library. It sends a message to the
/// channel `waits` before each wait.
struct Announced {
    state: std::sync::Mutex<AccessTable>,
    changed: std::sync::Condvar,
    waits: mpsc::Sender<()>,
}

impl Monitor for Announced {
    type Guard<'a> = std::sync::MutexGuard<'a, AccessTable>;
    type Deadline = ();
    fn lock(&self) -> Self::Guard<'_> {
        self.state.lock().unwrap()
    }
    fn wait<'a>(&'a self, guard: Self::Guard<'a>, _deadline: ()) -> (Self::Guard<'a>, bool) {
        self.waits.send(()).unwrap();
        (self.changed.wait(guard).unwrap(), false)
    }
    fn notify_all(&self) {
        self.changed.notify_all();
    }
}

#[test]
fn a_writer_gets_its_turn_before_readers_that_come_later() {
    let (waits, waited) = mpsc::channel();
    let state = std::sync::Mutex::new(AccessTable::new());
    let table = Arc::new(Table(Announced { state, changed: std::sync::Condvar::new(), waits }));
    let (order, seen) = mpsc::channel();
    let held = begin(&table, 1, &[range(0, 8, false)]).unwrap();
    let spawn = |me: usize, write: bool| {
        let (table, order) = (table.clone(), order.clone());
        let thread = std::thread::spawn(move || {
            let tickets = begin(&table, me, &[range(4, 5, write)]).unwrap();
            order.send(me).unwrap();
            table.end(tickets[0]);
        });
        waited.recv().unwrap();
        thread
    };
    let threads = [spawn(2, true), spawn(3, false)];
    // A thread that already holds an access does not wait in the queue.
    let more = begin(&table, 1, &[range(4, 5, false)]).unwrap();
    held.into_iter().chain(more).for_each(|ticket| table.end(ticket));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [2, 3]);
}
