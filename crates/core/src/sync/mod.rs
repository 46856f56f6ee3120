//! Lock-free structures under the tables of the process.
//!
//! They are generic over the atomics they are made of, so that their tests run the very same code on `loom`'s.

mod name_table;
mod slot;
mod start;

pub(crate) use name_table::NameTable;
pub(crate) use slot::Slot;
pub(crate) use start::Start;
