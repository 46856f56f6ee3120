//! Table of handles, which the peer uses to refer to local objects.
//!
//! A handle consists of the index of a table slot and its generation. A released handle stays invalid even when its slot is
//! reused. Handles are valid in one session only.

use alloc::vec::Vec;

use anyfn::{Any, Result, bail};

use crate::tables::HashMap;
use crate::value::Class;

struct HandleEntry {
    class: Class,
    object: Any,
    /// Number of times that the handle was sent to the peer, minus the number of times that the
    /// peer has released the handle.
    sent: u64,
    /// True for a tensor that borrows its memory for the duration of a call. The peer may only read and write
    /// its elements, and only during the call.
    lent: bool,
}

#[derive(Default)]
struct HandleSlot {
    generation: u32,
    entry: Option<HandleEntry>,
}

/// Bit that marks the handle of a borrowed tensor. The handle becomes invalid at the end of the call, so
/// releasing it has no effect.
const LOAN: u64 = 1 << 62;

/// Bit mask of a handle's generation, which has 30 bits.
const GENERATIONS: u32 = (1 << 30) - 1;

/// Table of the local objects to which the peer has handles.
pub(crate) struct Handles {
    places: Vec<HandleSlot>,
    free: Vec<u32>,
    /// Slot index of each object, by the object's address. An object that is sent twice thus keeps its
    /// handle.
    known: HashMap<usize, u32>,
    limit: u32,
}

/// Local object to which a handle held by the peer refers.
pub struct Named {
    /// Class of the object.
    pub class: Class,
    /// The object.
    pub object: Any,
    /// True for a tensor that borrows its memory for the duration of a call.
    pub lent: bool,
}

fn address(object: &Any) -> usize {
    object.as_object().map_or(0, |object| object.as_handle().addr())
}

impl Handles {
    /// Creates an empty table for at most `limit` objects.
    pub(crate) fn new(limit: u32) -> Handles {
        Handles { places: Vec::new(), free: Vec::new(), known: HashMap::default(), limit }
    }

    /// Returns the number of objects to which the peer has handles.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn number(&self, place: u32) -> u64 {
        let found = &self.places[place as usize];
        let loan = if found.entry.as_ref().is_some_and(|entry| entry.lent) { LOAN } else { 0 };
        loan | u64::from(found.generation) << 32 | u64::from(place + 1)
    }

    /// Returns the handle of an object that is sent to the peer. `lent` is true for a tensor that borrows its
    /// memory for the duration of a call.
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
                "the session holds {} handles, which is its limit (`handles`): release some",
                self.limit
            );
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(HandleSlot { generation: 1, entry: None });
            (self.places.len() - 1) as u32
        });
        self.places[place as usize].entry = Some(HandleEntry { class, object, sent: 1, lent });
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

    /// Returns the local object to which a handle held by the peer refers.
    pub(crate) fn get(&self, handle: u64) -> Result<Named> {
        let entry = self.find(handle).and_then(|place| self.places[place as usize].entry.as_ref());
        match entry {
            Some(entry) => Ok(Named { class: entry.class, object: entry.object.clone(), lent: entry.lent }),
            None => bail!("ValueError", "handle {handle:#x} does not exist in this session"),
        }
    }

    /// Releases `count` of the peer's references to a handle. Returns the object if the peer has no
    /// references left.
    pub(crate) fn release(&mut self, handle: u64, count: u64) -> Result<Option<Any>> {
        if handle & LOAN != 0 {
            return Ok(None);
        }
        let Some(place) = self.find(handle) else {
            bail!("ValueError", "cannot release handle {handle:#x}, which does not exist in this session");
        };
        let found = &mut self.places[place as usize];
        let Some(entry) = found.entry.as_mut() else { return Ok(None) };
        let Some(left) = entry.sent.checked_sub(count) else {
            bail!("ValueError", "cannot release handle {handle:#x} more often than it was sent");
        };
        entry.sent = left;
        Ok(if left == 0 { self.remove(place) } else { None })
    }

    /// Invalidates the handle of a borrowed tensor at the end of the call, and returns the tensor.
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

    /// Removes and returns all objects, so that the caller can drop them after unlocking the table.
    pub(crate) fn clear(&mut self) -> Vec<Any> {
        self.known.clear();
        self.free.clear();
        self.places.drain(..).filter_map(|place| place.entry).map(|entry| entry.object).collect()
    }
}
