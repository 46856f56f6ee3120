//! Hash tables, which Rust's `core` and `alloc` do not contain.

use rustc_hash::FxBuildHasher;

/// Hash table with a fast hash function. A peer that knows the function could choose colliding keys, so a table whose keys a
/// peer chooses has few entries.
pub(crate) type HashMap<K, V> = hashbrown::HashMap<K, V, FxBuildHasher>;
