//! Memory of buffers, with a record of the bytes that have been written.

use std::cell::{Cell, RefCell};

pub(crate) struct Memory {
    bytes: RefCell<Vec<u8>>,
    /// Initialisation state of each byte: true if it has been written. Empty for the memory of a tensor,
    /// whose bytes are all initialised.
    known: RefCell<Vec<bool>>,
    written: Cell<bool>,
}

impl Memory {
    /// Allocates uninitialised memory.
    pub(crate) fn new(size: usize) -> Memory {
        Memory {
            bytes: RefCell::new(vec![0; size]),
            known: RefCell::new(vec![false; size]),
            written: Cell::new(false),
        }
    }

    /// Creates memory that is initialised with the bytes of a tensor.
    pub(crate) fn of_tensor(bytes: Vec<u8>) -> Memory {
        Memory { bytes: RefCell::new(bytes), known: RefCell::new(Vec::new()), written: Cell::new(false) }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.borrow().len()
    }

    pub(crate) fn is_written(&self) -> bool {
        self.written.get()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes.borrow().clone()
    }

    /// Returns the bytes of an element, followed by zeros. Returns `None` if the element is out of
    /// bounds, and `Some(Err(()))` if one of its bytes is uninitialised.
    pub(crate) fn read(&self, at: usize, size: usize) -> Option<Result<[u8; 8], ()>> {
        let bytes = self.bytes.borrow();
        let found = bytes.get(at..at.checked_add(size)?)?;
        if self.known.borrow().get(at..at + size).is_some_and(|known| !known.iter().all(|known| *known)) {
            return Some(Err(()));
        }
        let mut out = [0; 8];
        out.get_mut(..size)?.copy_from_slice(found);
        Some(Ok(out))
    }

    /// Writes the bytes of an element. Returns false if the element is out of bounds.
    pub(crate) fn write(&self, at: usize, new: &[u8]) -> bool {
        let mut bytes = self.bytes.borrow_mut();
        let Some(place) = at.checked_add(new.len()).and_then(|end| bytes.get_mut(at..end)) else {
            return false;
        };
        place.copy_from_slice(new);
        if let Some(known) = self.known.borrow_mut().get_mut(at..at + new.len()) {
            known.fill(true);
        }
        self.written.set(true);
        true
    }

    /// Copies bytes from the memory `from`, which may be this memory. Uninitialised bytes remain
    /// uninitialised in the copy. Returns false if a range is out of bounds.
    pub(crate) fn copy(&self, at: usize, from: &Memory, from_at: usize, size: usize) -> bool {
        let known = match from.known.borrow().get(from_at..from_at.saturating_add(size)) {
            Some(known) => known.to_vec(),
            None => vec![true; size],
        };
        let bytes = match from.bytes.borrow().get(from_at..from_at.saturating_add(size)) {
            Some(bytes) => bytes.to_vec(),
            None => return false,
        };
        if !self.write(at, &bytes) {
            return false;
        }
        if let Some(place) = self.known.borrow_mut().get_mut(at..at + size) {
            place.copy_from_slice(&known);
        }
        true
    }

    /// Returns true for memory that the interpreted function allocated. Such memory may contain uninitialised
    /// bytes, unlike the memory of a tensor.
    pub(crate) fn is_own(&self) -> bool {
        !self.known.borrow().is_empty()
    }
}
