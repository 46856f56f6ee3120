//! A sorted map for few or rarely changed entries, which adds little machine code to a program.

use core::borrow::Borrow;

use alloc::vec::Vec;

/// Map that stores its entries in one vector, sorted by key.
///
/// Each combination of types adds a fifth of the machine code of a `BTreeMap` to a program. Lookups are as fast;
/// inserting and removing an entry takes time proportional to the number of entries.
#[derive(Debug)]
pub struct SortedMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> SortedMap<K, V> {
    /// Creates an empty map.
    #[must_use]
    pub const fn new() -> SortedMap<K, V> {
        SortedMap(Vec::new())
    }

    /// Returns the keys, in ascending order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// Returns the values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// Returns the index of the entry for `key`. If the entry does not exist, returns the index at
    /// which it would be inserted, as an error.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }

    /// Returns the value of `key`, if the map contains it.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|index| &self.0[index].1)
    }

    /// Returns the value of `key`, if the map contains it.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|index| &mut self.0[index].1)
    }

    /// Sets the value of `key`, and returns its previous value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(index) => Some(core::mem::replace(&mut self.0[index].1, value)),
            Err(index) => {
                self.0.insert(index, (key, value));
                None
            }
        }
    }

    /// Returns the value of `key`. If the map does not contain `key`, inserts `key` with the value
    /// `value` first.
    pub fn get_or_insert(&mut self, key: K, value: V) -> &mut V {
        let index = self.find(&key).unwrap_or_else(|index| {
            self.0.insert(index, (key, value));
            index
        });
        &mut self.0[index].1
    }

    /// Removes `key`, and returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|index| self.0.remove(index).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_entries_sorted() {
        let mut map = SortedMap::new();
        assert_eq!([map.insert(3, 'c'), map.insert(1, 'a'), map.insert(2, 'b')], [None; 3]);
        assert_eq!((map.insert(2, 'x'), map.get(&2), map.get(&4)), (Some('b'), Some(&'x'), None));
        *map.get_mut(&3).unwrap() = 'z';
        assert!(map.keys().eq(&[1, 2, 3]) && map.values().eq(&['a', 'x', 'z']));
        assert_eq!((map.remove(&1), map.remove(&1)), (Some('a'), None));
    }
}
