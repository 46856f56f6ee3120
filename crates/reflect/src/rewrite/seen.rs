//! Sets of objects, and tables keyed by objects. Both compare objects by identity.

use alloc::vec;
use alloc::vec::Vec;

use anyfn::Any;

/// Set of objects, stored as addresses in an open-addressing hash table in which zero marks an empty slot.
/// The owner of the set must keep the objects alive.
#[derive(Default)]
pub(crate) struct Seen {
    places: Vec<usize>,
    count: usize,
}

impl Seen {
    #[inline]
    fn home(&self, address: usize) -> usize {
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize) >> 16) & (self.places.len() - 1)
    }

    fn address(value: &Any) -> usize {
        value.as_object().map_or(0, |object| object.as_handle().addr())
    }

    /// Adds an object to the set. Returns `false` if it is already present.
    pub(crate) fn insert(&mut self, value: &Any) -> bool {
        let address = Self::address(value);
        if address == 0 {
            return true;
        }
        if (self.count + 1) * 2 > self.places.len() {
            self.grow();
        }
        let mut at = self.home(address);
        loop {
            match self.places[at] {
                0 => {
                    self.places[at] = address;
                    self.count += 1;
                    return true;
                }
                known if known == address => return false,
                _ => at = (at + 1) & (self.places.len() - 1),
            }
        }
    }

    fn grow(&mut self) {
        let old = core::mem::take(&mut self.places);
        self.places = vec![0; (old.len() * 2).max(16)];
        for address in old.into_iter().filter(|address| *address != 0) {
            let mut at = self.home(address);
            while self.places[at] != 0 {
                at = (at + 1) & (self.places.len() - 1);
            }
            self.places[at] = address;
        }
    }

    /// Removes an object from the set.
    pub(crate) fn remove(&mut self, value: &Any) {
        let address = Self::address(value);
        if address == 0 || self.places.is_empty() {
            return;
        }
        let mask = self.places.len() - 1;
        let mut at = self.home(address);
        while self.places[at] != address {
            if self.places[at] == 0 {
                return;
            }
            at = (at + 1) & mask;
        }
        self.count -= 1;
        // Following entries are moved back, so that no search ends at the hole.
        let mut hole = at;
        loop {
            at = (at + 1) & mask;
            let address = self.places[at];
            if address == 0 {
                break;
            }
            let home = self.home(address);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.places[hole] = address;
                hole = at;
            }
        }
        self.places[hole] = 0;
    }
}

/// Hash table keyed by an object and a small number. It compares objects by identity and keeps them alive.
#[derive(Default)]
pub(crate) struct Memo {
    /// Indices in `entries` plus one; zero marks an empty slot.
    places: Vec<u32>,
    entries: Vec<(Any, usize, (u64, Any))>,
}

impl Memo {
    fn find(&self, object: &Any, number: usize) -> Result<usize, usize> {
        let mask = self.places.len() - 1;
        let address = Seen::address(object);
        let mut at = ((address ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize) >> 16) & mask;
        loop {
            match self.places[at] {
                0 => return Err(at),
                place => {
                    let (known, of, _) = &self.entries[place as usize - 1];
                    if Seen::address(known) == address && *of == number {
                        return Ok(place as usize - 1);
                    }
                }
            }
            at = (at + 1) & mask;
        }
    }

    pub(crate) fn get(&self, object: &Any, number: usize) -> Option<(u64, Any)> {
        if self.places.is_empty() {
            return None;
        }
        let at = self.find(object, number).ok()?;
        Some(self.entries[at].2.clone())
    }

    /// Stores a value for an object and a number, and returns the previous value.
    pub(crate) fn set(&mut self, object: Any, number: usize, value: (u64, Any)) -> Option<(u64, Any)> {
        if (self.entries.len() + 1) * 2 > self.places.len() {
            self.places = vec![0; (self.places.len() * 2).max(16)];
            for index in 0..self.entries.len() {
                let (object, number, _) = &self.entries[index];
                if let Err(at) = self.find(object, *number) {
                    self.places[at] = index as u32 + 1;
                }
            }
        }
        match self.find(&object, number) {
            Ok(at) => Some(core::mem::replace(&mut self.entries[at].2, value)),
            Err(at) => {
                self.entries.push((object, number, value));
                self.places[at] = self.entries.len() as u32;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyfn::Array;

    #[test]
    fn keeps_what_was_added() {
        let values: Vec<Any> =
            (0..1000).map(|i| Any::new(Array::<i64>::try_from_iter([i]).unwrap()).unwrap()).collect();
        let mut seen = Seen::default();
        for (i, value) in values.iter().enumerate() {
            assert!(seen.insert(value));
            assert!(!seen.insert(value));
            if i % 3 == 0 {
                seen.remove(value);
            }
        }
        for (i, value) in values.iter().enumerate() {
            assert_eq!(seen.insert(value), i % 3 == 0, "{i}");
        }
    }
}
