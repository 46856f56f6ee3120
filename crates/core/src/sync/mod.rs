//! Lock-free data structures on which the tables of the process are based.
//!
//! They are generic over their atomics, so that their tests run the same code on the atomics of `loom`.

mod name_table;
mod slot;
mod start;

pub(crate) use name_table::NameTable;
pub(crate) use slot::Slot;
pub(crate) use start::Start;
