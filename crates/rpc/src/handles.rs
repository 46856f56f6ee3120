//! Numbers for objects of this side that the other side knows.
//!
//! A handle is a place in a table and how often the place was used before, so one that has been given back names nothing,
//! even when its place is in use again. Handles mean nothing in another session.

use std::collections::HashMap;

use anyfn::{Any, Result, bail};

use crate::value::Class;

struct Entry {
    class: Class,
    object: Any,
    /// How often it has been sent, less how often that has been given back.
    sent: u64,
    /// The memory of the call in progress: only its content may be read and written, and only during the call.
    lent: bool,
}

#[derive(Default)]
struct Place {
    generation: u32,
    entry: Option<Entry>,
}

/// Bit of the handle of a loan. Giving one back says nothing, as the end of the call does: the other side may do so before or
/// after it.
const LOAN: u64 = 1 << 62;

/// Bits of a generation.
const GENERATIONS: u32 = (1 << 30) - 1;

/// The table.
pub(crate) struct Handles {
    places: Vec<Place>,
    free: Vec<u32>,
    /// Places by address of the object, so that an object has one handle.
    known: HashMap<usize, u32>,
    limit: u32,
}

/// What a handle names.
pub(crate) struct Named {
    pub(crate) class: Class,
    pub(crate) object: Any,
    pub(crate) lent: bool,
}

fn address(object: &Any) -> usize {
    object.as_object().map_or(0, |object| object.as_handle().addr())
}

impl Handles {
    pub(crate) fn new(limit: u32) -> Handles {
        Handles { places: Vec::new(), free: Vec::new(), known: HashMap::new(), limit }
    }

    /// Objects that the other side holds.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn number(&self, place: u32) -> u64 {
        let found = &self.places[place as usize];
        let loan = if found.entry.as_ref().is_some_and(|entry| entry.lent) { LOAN } else { 0 };
        loan | u64::from(found.generation) << 32 | u64::from(place + 1)
    }

    /// The handle of an object that is being sent.
    pub(crate) fn give(&mut self, class: Class, object: Any, lent: bool) -> Result<u64> {
        let address = address(&object);
        if !lent
            && let Some(place) = self.known.get(&address).copied()
            && let Some(entry) = self.places[place as usize].entry.as_mut()
        {
            entry.sent += 1;
            return Ok(self.number(place));
        }
        if self.len() >= self.limit as usize {
            bail!(
                "PermissionError",
                "the session holds {} handles, as many as it may: let some go",
                self.limit
            );
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 1, entry: None });
            (self.places.len() - 1) as u32
        });
        self.places[place as usize].entry = Some(Entry { class, object, sent: 1, lent });
        if !lent {
            self.known.insert(address, place);
        }
        Ok(self.number(place))
    }

    fn find(&self, handle: u64) -> Option<u32> {
        let place = (handle as u32).checked_sub(1)?;
        let found = self.places.get(place as usize)?;
        found.entry.as_ref()?;
        (self.number(place) == handle).then_some(place)
    }

    /// What a handle names.
    pub(crate) fn get(&self, handle: u64) -> Result<Named> {
        let entry = self.find(handle).and_then(|place| self.places[place as usize].entry.as_ref());
        match entry {
            Some(entry) => Ok(Named { class: entry.class, object: entry.object.clone(), lent: entry.lent }),
            None => bail!("ValueError", "handle {handle:#x} names nothing in this session"),
        }
    }

    /// The other side no longer holds what it has received `count` times. The object, if it is held by nobody there now.
    pub(crate) fn release(&mut self, handle: u64, count: u64) -> Result<Option<Any>> {
        if handle & LOAN != 0 {
            return Ok(None);
        }
        let Some(place) = self.find(handle) else {
            bail!("ValueError", "handle {handle:#x} is given back, but names nothing in this session");
        };
        let found = &mut self.places[place as usize];
        let Some(entry) = found.entry.as_mut() else { return Ok(None) };
        let Some(left) = entry.sent.checked_sub(count) else {
            bail!("ValueError", "handle {handle:#x} is given back more often than it was sent");
        };
        entry.sent = left;
        Ok(if left == 0 { self.remove(place) } else { None })
    }

    /// Ends a loan.
    pub(crate) fn end_loan(&mut self, handle: u64) -> Option<Any> {
        let place = self.find(handle)?;
        self.remove(place)
    }

    fn remove(&mut self, place: u32) -> Option<Any> {
        let found = &mut self.places[place as usize];
        let entry = found.entry.take()?;
        found.generation = (found.generation & GENERATIONS) % GENERATIONS + 1;
        self.free.push(place);
        if !entry.lent {
            self.known.remove(&address(&entry.object));
        }
        Some(entry.object)
    }

    /// Takes everything out, to be released without a lock.
    pub(crate) fn clear(&mut self) -> Vec<Any> {
        self.known.clear();
        self.free.clear();
        self.places.drain(..).filter_map(|place| place.entry).map(|entry| entry.object).collect()
    }
}
