//! Hash table whose keys are object addresses or pairs of object addresses. Operations use it to
//! record the objects that they have encountered.

use alloc::vec;
use alloc::vec::Vec;

/// Key of a [`Table`]: an address, or a pair of addresses.
pub(crate) trait Key: Copy + PartialEq {
    /// Value that marks an empty slot and is not a valid key.
    const NONE: Self;
    /// Returns a hash of the key. The high bits of the hash are well distributed.
    fn mix(self) -> u64;
}

/// Odd multiplier that spreads an address over all bits: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Key for usize {
    const NONE: usize = 0;
    #[inline]
    fn mix(self) -> u64 {
        (self as u64).wrapping_mul(SPREAD)
    }
}

impl Key for (usize, usize) {
    const NONE: (usize, usize) = (0, 0);
    #[inline]
    fn mix(self) -> u64 {
        (self.0 as u64).wrapping_mul(SPREAD).rotate_left(29).wrapping_add(self.1 as u64).wrapping_mul(SPREAD)
    }
}

/// Open-addressing hash table. Entries are never removed.
pub(crate) struct Table<K, V> {
    /// Slots of the table. Their number is zero or a power of two.
    slots: Vec<(K, V)>,
    len: usize,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table { slots: Vec::new(), len: 0 }
    }
}

impl<K: Key, V: Copy + Default> Table<K, V> {
    /// Returns the index of the slot that contains `key`, or of the empty slot for inserting it. The table
    /// must have at least one slot.
    #[inline]
    fn place(&self, key: K) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (key.mix() >> (64 - self.slots.len().trailing_zeros())) as usize & mask;
        while self.slots[at].0 != key && self.slots[at].0 != K::NONE {
            at = (at + 1) & mask;
        }
        at
    }

    #[inline]
    pub(crate) fn get(&self, key: K) -> Option<V> {
        if self.slots.is_empty() {
            return None;
        }
        let (known, value) = self.slots[self.place(key)];
        (known == key).then_some(value)
    }

    /// Sets the value for a key.
    #[inline]
    pub(crate) fn set(&mut self, key: K, value: V) {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let at = self.place(key);
        if self.slots[at].0 == K::NONE {
            self.len += 1;
        }
        self.slots[at] = (key, value);
    }

    #[cold]
    fn grow(&mut self) {
        // Most tables stay small, and each one is filled within one operation.
        let factor = if self.slots.len() < 1024 { 4 } else { 2 };
        let larger = (self.slots.len() * factor).max(16);
        let old = core::mem::replace(&mut self.slots, vec![(K::NONE, V::default()); larger]);
        for (key, value) in old {
            if key != K::NONE {
                let at = self.place(key);
                self.slots[at] = (key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_set() {
        let mut table = Table::<usize, u32>::default();
        assert_eq!(table.get(8), None);
        for key in 1..5000usize {
            table.set(key * 16, key as u32);
        }
        table.set(32, 7);
        assert_eq!((table.get(16), table.get(32), table.get(80_000)), (Some(1), Some(7), None));
        assert!((3..5000usize).all(|key| table.get(key * 16) == Some(key as u32)));
    }

    #[test]
    fn tells_pairs_apart() {
        let mut table = Table::<(usize, usize), u8>::default();
        for left in 1..60 {
            for right in 1..60 {
                table.set((left, right), (left * right % 251) as u8);
            }
        }
        assert_eq!(table.get((7, 9)), Some(63));
        assert_eq!(table.get((60, 1)), None);
    }
}
