//! Access to the elements of tensors: many readers or one writer for each range of memory, on each device.
//!
//! A [`Tensor`](crate::Tensor) and a [`TensorView`](crate::TensorView) describe memory; neither gives access to it.
//! A [`Tensor`](crate::Tensor) and a [`TensorView`](crate::TensorView) describe memory; neither gives access to
//! it. Elements are read through [`TensorRead`] and written through [`TensorWrite`], and each function of the
//! runtime that uses elements holds an [`Access`] while it does so. All accesses are recorded in one table of
//! the process. The table holds byte ranges and not objects, so views of one tensor exclude each other only
//! where they overlap.
//! - An access that conflicts with an access of another thread waits for it to end. Ranges that are needed
//!   together are requested together ([`Access::begin`]), so functions that copy in opposite directions do not
//!   deadlock.
//! - An access that conflicts with an access of the same thread fails with `RuntimeError`. So does an access that
//!   would wait forever, because the threads that it waits for are waiting for the calling thread.
//! - Foreign code and compiled kernels read and write their arguments without consulting the table. The caller of
//!   such code ensures that no other code uses the memory at the same time.

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
    /// Returns the region of `bytes` bytes of host memory that begins at `data`.
    pub fn host(data: *const u8, bytes: usize) -> Region {
        let start = data.addr() as u64;
        Region { space: 0, base: 0, start, end: start.saturating_add(bytes as u64) }
    }

    /// Returns the region of `bytes` bytes of device memory that begins at `start`. If the memory of the device has
    /// addresses, `start` is an address and `base` is 0. Otherwise `start` is an offset in bytes in the allocation with
    /// the handle `base`. Devices whose memory the processor can address share its address space: use [`Region::host`]
    /// for them.
    pub fn on_device(device: Device, base: u64, start: u64, bytes: u64) -> Region {
        let (kind, index) = (device.0.device_type as u32, device.0.device_id as u32);
        let space = u64::from(kind) << 32 | u64::from(index);
        Region { space: space.max(1), base, start, end: start.saturating_add(bytes) }
    }

    /// Returns true if this region contains all bytes of `other`.
    pub fn contains(&self, other: &Region) -> bool {
        let within = self.start <= other.start && other.end <= self.end;
        within && self.space == other.space && self.base == other.base
    }

    /// Returns true if any byte of the region is currently marked as read-only; see [`ReadOnly`].
    pub fn is_read_only(&self) -> bool {
        functions::is_protected(Wanted::new(*self, Mode::Read))
    }

    /// Returns true if the two regions have at least one byte in common.
    pub fn overlaps(&self, other: &Region) -> bool {
        let both = self.start.max(other.start) < self.end.min(other.end);
        both && self.space == other.space && self.base == other.base
    }
}

/// Mode of an access: read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Read access: other accesses may read at the same time.
    Read,
    /// Write access: no other access may read or write at the same time.
    Write,
}

/// A requested region and the mode in which it is accessed, in the layout that the C interface uses.
#[doc(hidden)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    space: u64,
    base: u64,
    start: u64,
    end: u64,
    /// Mode of the access: 1 to write, 0 to read.
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

/// An access in progress, which ends when this value is dropped. The value stays on the thread that began the
/// access.
///
/// It records that the memory is in use and gives no access to it: code that holds an `Access` and uses raw pointers
/// still needs `unsafe`. Leaking it (`core::mem::forget`) leaves the memory marked as in use, even after the tensor
/// is freed and the memory is reused.
#[must_use = "the access ends when this is dropped"]
pub struct Access {
    ticket: u64,
    /// Makes the type `!Send`, because the access table records which thread holds an access.
    _thread: PhantomData<*const ()>,
}

// SAFETY: a shared reference allows no operation; only the value itself must stay on its thread.
unsafe impl Sync for Access {}

impl Access {
    /// Begins accesses to several regions together, as soon as no access of another thread
    /// conflicts with any of them. The regions may overlap each other, because accesses of the same
    /// request do not conflict.
    ///
    /// # Errors
    /// - Returns `RuntimeError` if this thread has a conflicting access, or if waiting would never end.
    /// - Returns the error of [`check_signals`](crate::check_signals) if it fails while the access waits.
    /// - Returns `MemoryError` if memory allocation fails.
    #[inline]
    pub fn begin<const N: usize>(wanted: [(Region, Mode); N]) -> Result<[Access; N]> {
        functions::begin(wanted.map(|(region, mode)| Wanted::new(region, mode)), None)
    }

    /// Begins accesses like [`Access::begin`], with a limit on the waiting time in milliseconds. A limit above 100 ms
    /// is rounded up to a multiple of 100 ms.
    ///
    /// # Errors
    /// Returns the errors of [`Access::begin`], and `RuntimeError` if the memory is still in use after that time.
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

/// A guard that marks memory as read-only as long as the guard exists.
///
/// The description of a tensor cannot express that its memory must not be written. A caller that passes such memory
/// to a kernel marks it here, so that callbacks of the kernel, on any thread or machine, receive read-only tensors.
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
    /// Marks a region as read-only until the returned guard is dropped.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn begin(region: Region) -> Result<ReadOnly> {
        functions::protect(Wanted::new(region, Mode::Read)).map(|ticket| ReadOnly { ticket })
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        functions::unprotect(self.ticket);
    }
}
