//! The table of accesses in progress. It locks ranges of memory and needs no lock object for each range.
//!
//! It is generic over the lock that it uses, so that its tests run the same code with the locks of `loom`.

use alloc::vec::Vec;
use core::ops::DerefMut;

use super::Wanted;

/// Maximum number of ranges that one request can contain.
pub(super) const RANGES_MAX: usize = 4;

/// A lock with a condition variable around the [`AccessTable`].
pub(super) trait Monitor {
    type Guard<'a>: DerefMut<Target = AccessTable>
    where
        Self: 'a;
    /// Time at which a wait ends if no notification has arrived.
    type Deadline: Copy;
    fn lock(&self) -> Self::Guard<'_>;
    /// Releases the lock, waits for a notification, and acquires the lock again. The second element of the
    /// result is true if the deadline has passed. Spurious wake-ups are possible.
    fn wait<'a>(&'a self, guard: Self::Guard<'a>, deadline: Self::Deadline) -> (Self::Guard<'a>, bool);
    fn notify_all(&self);
}

/// Result of [`Table::begin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All requested accesses have begun.
    Begun,
    /// The calling thread itself has a conflicting access.
    Own {
        /// Index of the requested range that conflicts with an access of the calling thread.
        index: usize,
        /// True if the conflicting access of the calling thread is for writing.
        writes: bool,
    },
    /// Waiting would never end: the threads that hold the ranges wait for accesses of the calling thread.
    Deadlock,
    /// The deadline passed before the accesses could begin.
    TimedOut,
    /// Memory allocation for the table failed.
    OutOfMemory,
}

struct HeldRange {
    ticket: u64,
    thread: usize,
    range: Wanted,
}

/// A waiting thread and the ranges that it requested.
struct Waiting {
    order: u64,
    thread: usize,
    ranges: [Wanted; RANGES_MAX],
}

/// The accesses in progress, and the threads that wait for an access.
pub(super) struct AccessTable {
    held: Vec<HeldRange>,
    waiting: Vec<Waiting>,
    /// Ranges that are marked as read-only.
    protected: Vec<HeldRange>,
    last_ticket: u64,
    last_order: u64,
}

enum Verdict {
    Free,
    Wait,
    Failed(Outcome),
}

impl AccessTable {
    pub(super) const fn new() -> AccessTable {
        AccessTable {
            held: Vec::new(),
            waiting: Vec::new(),
            protected: Vec::new(),
            last_ticket: 0,
            last_order: 0,
        }
    }

    /// Decides whether a request of the thread `me` succeeds, waits or fails. `order` is the position of the request in
    /// the queue, if it is queued.
    fn judge(&self, me: usize, wanted: &[Wanted], order: Option<u64>) -> Verdict {
        let mut blocked = false;
        for held in &self.held {
            let Some(index) = wanted.iter().position(|wanted| wanted.conflicts_with(&held.range)) else {
                continue;
            };
            if held.thread == me {
                return Verdict::Failed(Outcome::Own { index, writes: held.range.write != 0 });
            }
            blocked = true;
        }
        if !blocked && self.waiting.is_empty() {
            return Verdict::Free;
        }
        let holds_any = self.held.iter().any(|held| held.thread == me);
        if blocked {
            let stuck = holds_any && self.waits_for(me, wanted);
            return if stuck { Verdict::Failed(Outcome::Deadlock) } else { Verdict::Wait };
        }
        // First come, first served, so that a writer gets its turn among readers. A thread that already holds an
        // access does not queue: the threads ahead of it may wait for that very access.
        let in_front =
            |waiting: &&Waiting| waiting.thread != me && order.is_none_or(|order| waiting.order < order);
        let behind = !holds_any && self.waiting.iter().filter(in_front).any(|waiting| waiting.meets(wanted));
        if behind { Verdict::Wait } else { Verdict::Free }
    }

    /// Returns true if a request of the thread `me` would deadlock: a thread whose access conflicts with
    /// `wanted` waits, directly or through other threads, for an access of `me`.
    fn waits_for(&self, me: usize, wanted: &[Wanted]) -> bool {
        let holders = |ranges: &[Wanted], out: &mut Vec<usize>| {
            for held in &self.held {
                if ranges.iter().any(|range| range.conflicts_with(&held.range)) && !out.contains(&held.thread) {
                    out.push(held.thread);
                }
            }
        };
        let mut reached = Vec::new();
        holders(wanted, &mut reached);
        let mut at = 0;
        while let Some(thread) = reached.get(at).copied() {
            if thread == me {
                return true;
            }
            for waiting in self.waiting.iter().filter(|waiting| waiting.thread == thread) {
                holders(&waiting.ranges, &mut reached);
            }
            at += 1;
        }
        false
    }

    fn enter(&mut self, me: usize, wanted: &[Wanted], tickets: &mut [u64]) {
        for (range, ticket) in wanted.iter().zip(tickets) {
            // Nothing conflicts with an empty range, so it needs no entry.
            *ticket = 0;
            if range.start < range.end {
                self.last_ticket += 1;
                *ticket = self.last_ticket;
                self.held.push(HeldRange { ticket: *ticket, thread: me, range: *range });
            }
        }
    }

    fn leave_queue(&mut self, order: u64) {
        self.waiting.retain(|waiting| waiting.order != order);
    }

    /// Removes the accesses and read-only marks of all threads except `thread`, because only this thread
    /// exists in the child of a fork.
    #[cfg(feature = "std")]
    pub(super) fn keep_only(&mut self, thread: usize) {
        self.held.retain(|held| held.thread == thread);
        self.protected.retain(|held| held.thread == thread);
        self.waiting.clear();
    }

    #[cfg(test)]
    fn is_idle(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }
}

impl Waiting {
    fn meets(&self, wanted: &[Wanted]) -> bool {
        wanted.iter().any(|wanted| self.ranges.iter().any(|range| wanted.conflicts_with(range)))
    }
}

/// The table of accesses, protected by the lock `M`.
pub(super) struct Table<M>(pub(super) M);

impl<M: Monitor> Table<M> {
    /// Begins the accesses `wanted` together for the thread `me`, as soon as no access of another
    /// thread conflicts with any of them. Writes one ticket for each access to `tickets`. Accesses
    /// of the same request do not exclude each other. No access begins unless the outcome is
    /// [`Outcome::Begun`].
    pub(super) fn begin(
        &self,
        me: usize,
        wanted: &[Wanted],
        deadline: impl FnOnce() -> M::Deadline,
        tickets: &mut [u64],
    ) -> Outcome {
        let mut state = self.0.lock();
        if state.held.try_reserve(wanted.len()).is_err() {
            return Outcome::OutOfMemory;
        }
        match state.judge(me, wanted, None) {
            Verdict::Free => {
                state.enter(me, wanted, tickets);
                Outcome::Begun
            }
            Verdict::Failed(outcome) => outcome,
            Verdict::Wait => {
                drop(state);
                self.wait(me, wanted, deadline(), tickets)
            }
        }
    }

    #[cold]
    fn wait(&self, me: usize, wanted: &[Wanted], deadline: M::Deadline, tickets: &mut [u64]) -> Outcome {
        let mut ranges = [Wanted::NOTHING; RANGES_MAX];
        for (range, wanted) in ranges.iter_mut().zip(wanted) {
            *range = *wanted;
        }
        let mut state = self.0.lock();
        if state.waiting.try_reserve(1).is_err() {
            return Outcome::OutOfMemory;
        }
        state.last_order += 1;
        let order = state.last_order;
        state.waiting.push(Waiting { order, thread: me, ranges });
        let mut is_late = false;
        let outcome = loop {
            match state.judge(me, wanted, Some(order)) {
                Verdict::Free if state.held.try_reserve(wanted.len()).is_err() => break Outcome::OutOfMemory,
                Verdict::Free => {
                    state.enter(me, wanted, tickets);
                    break Outcome::Begun;
                }
                Verdict::Failed(outcome) => break outcome,
                Verdict::Wait if is_late => break Outcome::TimedOut,
                Verdict::Wait => (state, is_late) = self.0.wait(state, deadline),
            }
        };
        state.leave_queue(order);
        let others = !state.waiting.is_empty();
        drop(state);
        if others {
            // Other threads may have waited behind this request.
            self.0.notify_all();
        }
        outcome
    }

    /// Marks a range as read-only on behalf of the thread `me`. Returns the ticket of the mark, or 0 if
    /// memory allocation fails.
    pub(super) fn protect(&self, me: usize, range: Wanted) -> u64 {
        let mut state = self.0.lock();
        if state.protected.try_reserve(1).is_err() {
            return 0;
        }
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        state.protected.push(HeldRange { ticket, thread: me, range });
        ticket
    }

    /// Removes a read-only mark, given the ticket that [`Table::protect`] returned for it.
    pub(super) fn unprotect(&self, ticket: u64) {
        let mut state = self.0.lock();
        if let Some(at) = state.protected.iter().rposition(|held| held.ticket == ticket) {
            state.protected.swap_remove(at);
        }
    }

    /// Returns true if any byte of `range` is marked as read-only.
    pub(super) fn is_protected(&self, range: &Wanted) -> bool {
        // A write conflicts with every entry.
        let write = Wanted { write: 1, ..*range };
        self.0.lock().protected.iter().any(|held| held.range.conflicts_with(&write))
    }

    /// Ends the access with this ticket.
    pub(super) fn end(&self, ticket: u64) {
        let mut state = self.0.lock();
        // Accesses mostly end in reverse order.
        if let Some(at) = state.held.iter().rposition(|held| held.ticket == ticket) {
            state.held.swap_remove(at);
        }
        let others = !state.waiting.is_empty();
        drop(state);
        if others {
            self.0.notify_all();
        }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "table_orders.rs"]
mod orders;
