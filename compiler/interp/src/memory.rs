//! Memory of buffers, byte by byte: which bytes have been written is known.

use std::cell::{Cell, RefCell};

pub(crate) struct Memory {
    bytes: RefCell<Vec<u8>>,
    /// Whether a byte has a value; empty if all have.
    known: RefCell<Vec<bool>>,
    written: Cell<bool>,
}

impl Memory {
    /// Memory that holds nothing yet.
    pub(crate) fn new(size: usize) -> Memory {
        Memory {
            bytes: RefCell::new(vec![0; size]),
            known: RefCell::new(vec![false; size]),
            written: Cell::new(false),
        }
    }

    /// Memory that is given.
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

    /// The bytes of an element; `None` if they are not there, an error if they have no value yet.
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

    /// Sets the bytes of an element; whether they are there.
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

    /// Copies bytes from other memory, or of its own, whether they have a value or not; whether both are there.
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

    /// Whether what has no value can be kept here: what is given has values everywhere.
    pub(crate) fn is_own(&self) -> bool {
        !self.known.borrow().is_empty()
    }
}
