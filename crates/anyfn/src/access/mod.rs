//! Access to the elements of tensors: many readers or one writer for each range of memory, on each device.
//!
//! A [`Tensor`](crate::Tensor) and a [`TensorView`](crate::TensorView) describe memory; neither gives access to it. Elements are
//! read through [`TensorRead`] and written through [`TensorWrite`], and each function of
//! the runtime that touches elements holds an [`Access`] meanwhile. All of them are in one table of the process, which holds
//! byte ranges instead of objects, so views of one tensor exclude each other where they overlap and nowhere else.
//!
//! - An access that conflicts with one of another thread waits for it. Ranges that are needed together are taken together
//!   ([`Access::begin`]), so functions that copy in opposite directions do not block each other for ever.
//! - An access that conflicts with one of the same thread is a `RuntimeError`. So is one that could only wait for ever, since
//!   the threads that it waits for wait for the calling thread.
//! - Foreign code and compiled kernels read and write what they are given without asking. Whoever calls them ensures that
//!   nothing else uses the memory meanwhile.

mod functions;
mod guards;
mod table;

use core::fmt;
use core::marker::PhantomData;

use crate::{Device, Result};
pub use guards::{TensorRead, TensorWrite};

/// A range of bytes in the memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    space: u64,
    base: u64,
    start: u64,
    end: u64,
}

impl Region {
    /// Main memory from an address on.
    pub fn host(data: *const u8, bytes: usize) -> Region {
        let start = data.addr() as u64;
        Region { space: 0, base: 0, start, end: start.saturating_add(bytes as u64) }
    }

    /// Memory of a device. `base` is the handle of an allocation whose bytes are counted from 0, or 0 where bytes have addresses.
    /// Devices whose memory the processor can address share one space of addresses with it: use [`Region::host`] there.
    pub fn on_device(device: Device, base: u64, start: u64, bytes: u64) -> Region {
        let (kind, index) = (device.0.device_type as u32, device.0.device_id as u32);
        let space = u64::from(kind) << 32 | u64::from(index);
        Region { space: space.max(1), base, start, end: start.saturating_add(bytes) }
    }

    /// Returns true if all bytes of another region belong to this one.
    pub fn contains(&self, other: &Region) -> bool {
        let within = self.start <= other.start && other.end <= self.end;
        within && self.space == other.space && self.base == other.base
    }

    /// Returns true if a byte of it belongs to memory that a caller lends for reading only at this moment; see [`ReadOnly`].
    pub fn is_read_only(&self) -> bool {
        functions::is_protected(Wanted::new(*self, Mode::Read))
    }

    /// Whether a byte belongs to both regions.
    pub fn overlaps(&self, other: &Region) -> bool {
        let both = self.start.max(other.start) < self.end.min(other.end);
        both && self.space == other.space && self.base == other.base
    }
}

/// How a region is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Others may read meanwhile.
    Read,
    /// Nobody else reads or writes meanwhile.
    Write,
}

/// A region and how it is used, as it crosses the C interface.
#[doc(hidden)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    space: u64,
    base: u64,
    start: u64,
    end: u64,
    /// 0 or 1.
    write: u64,
}

impl Wanted {
    const NOTHING: Wanted = Wanted { space: 0, base: 0, start: 0, end: 0, write: 0 };

    fn new(region: Region, mode: Mode) -> Wanted {
        let Region { space, base, start, end } = region;
        Wanted { space, base, start, end, write: u64::from(mode == Mode::Write) }
    }

    fn conflicts_with(&self, other: &Wanted) -> bool {
        self.start.max(other.start) < self.end.min(other.end)
            && (self.write | other.write) != 0
            && self.space == other.space
            && self.base == other.base
    }
}

#[doc(hidden)]
pub use functions::{Functions, after_fork, before_fork, functions};

/// An access in progress; it ends when this is dropped, on the thread that has begun it.
///
/// It says who uses the memory and gives no access by itself: code that holds one and uses raw pointers still needs `unsafe`.
/// Leaking it (`core::mem::forget`) leaves the memory in use, also when the tensor is freed and the memory has become another
/// one's.
#[must_use = "the access ends when this is dropped"]
pub struct Access {
    ticket: u64,
    /// The table knows the thread.
    _thread: PhantomData<*const ()>,
}

// SAFETY: a shared reference gives nothing; only the type itself must stay on its thread.
unsafe impl Sync for Access {}

impl Access {
    /// Begins accesses to several regions at once, as soon as no access of another thread conflicts with one of them. The regions
    /// may overlap each other: how their bytes are used is up to the caller.
    ///
    /// # Errors
    /// `RuntimeError` if this thread has a conflicting access, or if waiting would never end; what
    /// [`check_signals`](crate::check_signals) says while it waits; `MemoryError` when memory is short.
    #[inline]
    pub fn begin<const N: usize>(wanted: [(Region, Mode); N]) -> Result<[Access; N]> {
        functions::begin(wanted.map(|(region, mode)| Wanted::new(region, mode)), None)
    }

    /// As [`Access::begin`]; waits so many milliseconds at most.
    ///
    /// # Errors
    /// As [`Access::begin`], and `RuntimeError` if the memory is still in use then.
    pub fn begin_within<const N: usize>(wanted: [(Region, Mode); N], milliseconds: u32) -> Result<[Access; N]> {
        functions::begin(wanted.map(|(region, mode)| Wanted::new(region, mode)), Some(milliseconds))
    }
}

impl Drop for Access {
    #[inline]
    fn drop(&mut self) {
        functions::end(self.ticket);
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("ticket", &self.ticket).finish()
    }
}

/// Memory that is lent for reading only, until this is dropped.
///
/// A description of a tensor cannot tell that its memory must not be written. A caller that passes such memory to a kernel enters it
/// here, so that callbacks of the kernel, on whichever thread or machine, get tensors that are read-only.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::access::{ReadOnly, Region};
/// let bytes = b"constant";
/// let region = Region::host(bytes.as_ptr(), bytes.len());
/// let lent = ReadOnly::begin(region)?;
/// assert!(Region::host(&bytes[3], 1).is_read_only());
/// drop(lent);
/// assert!(!region.is_read_only());
/// # Ok::<(), anyfn::Error>(())
/// ```
#[must_use = "the memory may be written again when this is dropped"]
#[derive(Debug)]
pub struct ReadOnly {
    ticket: u64,
}

impl ReadOnly {
    /// Enters a region.
    ///
    /// # Errors
    /// `MemoryError` when memory is short.
    pub fn begin(region: Region) -> Result<ReadOnly> {
        functions::protect(Wanted::new(region, Mode::Read)).map(|ticket| ReadOnly { ticket })
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        functions::unprotect(self.ticket);
    }
}
