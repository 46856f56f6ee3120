//! Access to the bytes of a library file.

use core::cell::RefCell;
use core::ops::Range;
use core::ptr::NonNull;
use std::fs::File;
use std::os::unix::fs::FileExt;

use object::read::ReadRef;

/// The bytes of a file, either all of them in memory or read from the file as needed.
///
/// It is one type, so that the readers of tables, which take a [`ReadRef`], are compiled once.
#[derive(Clone, Copy)]
pub(super) enum Data<'d> {
    All(&'d [u8]),
    AsNeeded(&'d Parts),
}

/// A file of which parts are read as needed. The parts stay in memory until this value is dropped.
///
/// `object::ReadCache` does the same with a hash table, whose code is larger than everything else here.
pub(super) struct Parts {
    file: File,
    /// Size of the file in bytes.
    len: u64,
    /// Offset and content of each part that was read.
    read: RefCell<Vec<(u64, NonNull<[u8]>)>>,
}

impl Parts {
    /// Creates the view of a file with a size of `len` bytes.
    pub(super) fn new(file: File, len: u64) -> Parts {
        Parts { file, len, read: RefCell::new(Vec::new()) }
    }

    fn part(&self, offset: u64, size: u64) -> Result<&[u8], ()> {
        /// Number of the most recent parts among which a part is searched before it is read again.
        const RECENT: usize = 64;
        if size == 0 {
            return Ok(&[]);
        }
        if offset.checked_add(size).is_none_or(|end| end > self.len) {
            return Err(());
        }
        let size = usize::try_from(size).map_err(|_| ())?;
        let mut read = self.read.borrow_mut();
        let known = read.iter().rev().take(RECENT).find(|(at, part)| *at == offset && part.len() == size);
        let part = match known {
            Some((_, part)) => *part,
            None => {
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(size).map_err(|_| ())?;
                bytes.resize(size, 0);
                self.file.read_exact_at(&mut bytes, offset).map_err(|_| ())?;
                let part = NonNull::from(Box::leak(bytes.into_boxed_slice()));
                read.push((offset, part));
                part
            }
        };
        // SAFETY: the part is freed when `self` is dropped, and nothing writes to it.
        Ok(unsafe { part.as_ref() })
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for (_, part) in self.read.get_mut().drain(..) {
            // SAFETY: `part` has leaked this box, and references to it do not outlive `self`.
            drop(unsafe { Box::from_raw(part.as_ptr()) });
        }
    }
}

impl<'d> ReadRef<'d> for Data<'d> {
    fn len(self) -> Result<u64, ()> {
        match self {
            Data::All(bytes) => ReadRef::len(bytes),
            Data::AsNeeded(file) => Ok(file.len),
        }
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'d [u8], ()> {
        match self {
            Data::All(bytes) => bytes.read_bytes_at(offset, size),
            Data::AsNeeded(file) => file.part(offset, size),
        }
    }

    /// Not needed for the tables that are read here: returns an error for a file that is read as needed.
    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'d [u8], ()> {
        match self {
            Data::All(bytes) => bytes.read_bytes_at_until(range, delimiter),
            Data::AsNeeded(_) => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn parts_of_a_file_are_its_bytes() {
        let path = std::env::temp_dir().join(format!("anyfn-parts-{}", std::process::id()));
        let content: Vec<u8> = (0..=255).collect();
        File::create(&path).unwrap().write_all(&content).unwrap();
        let parts = Parts::new(File::open(&path).unwrap(), 256);
        std::fs::remove_file(&path).unwrap();
        let data = Data::AsNeeded(&parts);
        let held = data.read_bytes_at(3, 5).unwrap();
        for at in 0..200 {
            assert_eq!(data.read_bytes_at(at, 56), Ok(&content[at as usize..at as usize + 56]));
        }
        assert_eq!(data.read_bytes_at(3, 5), Ok(held));
        assert_eq!((held, data.read_bytes_at(256, 0)), (&content[3..8], Ok(&[][..])));
        for (offset, size) in [(256, 1), (0, 257), (u64::MAX, 2), (1, u64::MAX)] {
            assert_eq!(data.read_bytes_at(offset, size), Err(()), "{offset} {size}");
        }
    }
}
