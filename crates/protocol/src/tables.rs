//! Hash tables, which the standard library's prelude does not have without `std`.

use rustc_hash::FxBuildHasher;

/// Hash table with a fast hash function. A peer that knows the function could choose colliding keys, so a table whose keys a
/// peer chooses has few entries.
pub(crate) type HashMap<K, V> = hashbrown::HashMap<K, V, FxBuildHasher>;
