//! Admission of sessions: decides which sessions are served and which wait in a queue. This module does no
//! I/O; the listener carries out its decisions.

use std::collections::{HashMap, VecDeque};

/// Session whose client has proved possession of its key, or needs no key.
#[derive(Debug)]
struct AcceptedSession {
    session: u64,
    key: Option<String>,
    /// Maximum number of simultaneous sessions with the session's key.
    key_max: usize,
}

/// Result of trying to add a session to the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// The session was added. It may be admitted immediately.
    In,
    /// The session was added in place of the session with this number: the newest waiting session of the key
    /// with the most waiting sessions.
    InsteadOf(u64),
    /// The session was not added, because the queue is full.
    Full,
}

/// Served sessions and waiting sessions. Sessions are admitted in order of arrival, except that a
/// session overtakes earlier sessions whose key has reached its limit.
#[derive(Debug)]
pub(crate) struct Queue {
    active_max: usize,
    waiting_max: usize,
    active: Vec<AcceptedSession>,
    waiting: VecDeque<AcceptedSession>,
}

impl Queue {
    pub(crate) fn new(active_max: usize, waiting_max: usize) -> Queue {
        Queue { active_max, waiting_max, active: Vec::new(), waiting: VecDeque::new() }
    }

    /// Adds a session to the end of the queue. If the queue is full and the session cannot be
    /// admitted immediately, the session replaces the newest waiting session of the key with the
    /// most waiting sessions, provided that this key has at least two more waiting sessions than
    /// `key`. Otherwise the session is refused.
    pub(crate) fn enter(&mut self, session: u64, key: Option<String>, key_max: usize) -> Entered {
        let of_key = |entries: &mut dyn Iterator<Item = &AcceptedSession>| {
            entries.filter(|entry| entry.key == key).count()
        };
        // A session that can be admitted immediately does not wait.
        let goes = self.active.len() < self.active_max && of_key(&mut self.active.iter()) < key_max;
        let mut entered = Entered::In;
        if !goes && self.waiting.len() >= self.waiting_max {
            let mine = of_key(&mut self.waiting.iter());
            match self.last_of_greediest() {
                // Afterwards that key still has at least as many as this one.
                Some((at, count)) if count >= mine + 2 => match self.waiting.remove(at) {
                    Some(other) => entered = Entered::InsteadOf(other.session),
                    None => return Entered::Full,
                },
                _ => return Entered::Full,
            }
        }
        self.waiting.push_back(AcceptedSession { session, key, key_max });
        entered
    }

    /// Finds the key with the most waiting sessions. Returns the index of the newest of these
    /// sessions, and their number.
    fn last_of_greediest(&self) -> Option<(usize, usize)> {
        let mut counts: HashMap<&Option<String>, (usize, usize)> = HashMap::new();
        for (at, entry) in self.waiting.iter().enumerate() {
            let (last, count) = counts.entry(&entry.key).or_default();
            (*last, *count) = (at, *count + 1);
        }
        counts.into_values().max_by_key(|(last, count)| (*count, *last))
    }

    /// Removes a session, whether it is served or waiting.
    pub(crate) fn leave(&mut self, session: u64) {
        self.active.retain(|entry| entry.session != session);
        self.waiting.retain(|entry| entry.session != session);
    }

    /// Returns the next session that can be admitted, and marks it as served.
    pub(crate) fn admit(&mut self) -> Option<u64> {
        if self.active.len() >= self.active_max {
            return None;
        }
        let of_key = |key: &Option<String>| self.active.iter().filter(|entry| entry.key == *key).count();
        let at = self.waiting.iter().position(|entry| of_key(&entry.key) < entry.key_max)?;
        let entry = self.waiting.remove(at)?;
        let session = entry.session;
        self.active.push(entry);
        Some(session)
    }

    /// Returns the numbers of the waiting sessions in the order of the queue, the front first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u64> {
        self.waiting.iter().map(|entry| entry.session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(queue: &mut Queue) -> Vec<u64> {
        std::iter::from_fn(|| queue.admit()).collect()
    }

    fn key(name: &str) -> Option<String> {
        Some(name.into())
    }

    #[test]
    fn first_come_first_served() {
        let mut queue = Queue::new(1, 3);
        for session in 1..=3 {
            assert_eq!(queue.enter(session, None, 9), Entered::In);
        }
        assert_eq!(admitted(&mut queue), [1]);
        assert_eq!(queue.waiting().collect::<Vec<_>>(), [2, 3]);
        // A session that leaves while it waits is skipped.
        queue.leave(2);
        assert_eq!(queue.enter(4, None, 9), Entered::In);
        queue.leave(1);
        assert_eq!(admitted(&mut queue), [3]);
        queue.leave(3);
        assert_eq!(admitted(&mut queue), [4]);
    }

    #[test]
    fn a_key_at_its_limit_lets_others_pass() {
        let mut queue = Queue::new(3, 8);
        for (session, name) in [(1, "a"), (2, "a"), (3, "a"), (4, "b")] {
            assert_eq!(queue.enter(session, key(name), 2), Entered::In);
        }
        assert_eq!(admitted(&mut queue), [1, 2, 4]);
        queue.leave(4);
        assert!(admitted(&mut queue).is_empty());
        queue.leave(1);
        assert_eq!(admitted(&mut queue), [3]);
    }

    #[test]
    fn a_key_that_fills_the_queue_gives_places_up() {
        let mut queue = Queue::new(1, 4);
        assert_eq!(queue.enter(1, key("a"), 9), Entered::In);
        assert_eq!(admitted(&mut queue), [1]);
        for session in 2..=5 {
            assert_eq!(queue.enter(session, key("a"), 9), Entered::In);
        }
        assert_eq!(queue.enter(6, key("a"), 9), Entered::Full);
        // The session that came last has waited least.
        assert_eq!(queue.enter(7, key("b"), 9), Entered::InsteadOf(5));
        assert_eq!(queue.enter(8, key("b"), 9), Entered::InsteadOf(4));
        // Both have two now: no session is removed for another one of either.
        assert_eq!(queue.enter(9, key("b"), 9), Entered::Full);
        assert_eq!(queue.enter(10, key("a"), 9), Entered::Full);
        assert_eq!(queue.enter(11, key("c"), 9), Entered::InsteadOf(8));
        assert_eq!(queue.waiting().collect::<Vec<_>>(), [2, 3, 7, 11]);
    }

    #[test]
    fn who_can_go_at_once_needs_no_place() {
        let mut queue = Queue::new(2, 1);
        assert_eq!(queue.enter(1, key("a"), 1), Entered::In);
        assert_eq!(admitted(&mut queue), [1]);
        assert_eq!(queue.enter(2, key("a"), 1), Entered::In);
        assert_eq!(queue.enter(3, key("a"), 1), Entered::Full);
        assert_eq!(queue.enter(4, key("b"), 1), Entered::In);
        assert_eq!(admitted(&mut queue), [4]);
    }

    #[test]
    fn a_full_queue_takes_nobody() {
        let mut queue = Queue::new(1, 1);
        assert_eq!(queue.enter(1, None, 9), Entered::In);
        assert_eq!(admitted(&mut queue), [1]);
        assert_eq!(queue.enter(2, None, 9), Entered::In);
        assert_eq!(queue.enter(3, None, 9), Entered::Full);
        queue.leave(1);
        assert_eq!(admitted(&mut queue), [2]);
        assert_eq!(queue.enter(3, None, 9), Entered::In);
    }
}
