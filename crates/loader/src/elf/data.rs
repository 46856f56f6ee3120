//! Access to the bytes of a library file.

use core::ops::Range;
use std::fs::File;

use object::ReadCache;
use object::read::ReadRef;

/// The bytes of a file, either all of them in memory or read from the file as needed.
///
/// It is one type, so that the readers of tables, which take a [`ReadRef`], are compiled once.
#[derive(Clone, Copy)]
pub(super) enum Data<'d> {
    All(&'d [u8]),
    AsNeeded(&'d ReadCache<File>),
}

impl<'d> ReadRef<'d> for Data<'d> {
    fn len(self) -> Result<u64, ()> {
        match self {
            Data::All(bytes) => ReadRef::len(bytes),
            Data::AsNeeded(file) => file.len(),
        }
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'d [u8], ()> {
        match self {
            Data::All(bytes) => bytes.read_bytes_at(offset, size),
            Data::AsNeeded(file) => file.read_bytes_at(offset, size),
        }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'d [u8], ()> {
        match self {
            Data::All(bytes) => bytes.read_bytes_at_until(range, delimiter),
            Data::AsNeeded(file) => file.read_bytes_at_until(range, delimiter),
        }
    }
}
