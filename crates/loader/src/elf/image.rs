//! The image of a library: the parts of the file that the dynamic loader maps according to the program headers.
//!
//! Everything except the headers is located by its address in memory. [`Image`] translates such an address to
//! the bytes of the file, and determines if it is executable or writable. A table that reaches beyond the
//! image shows that the file is damaged.

use object::elf::{self, FileHeader64, ProgramHeader64};
use object::pod::Pod;
use object::read::ReadRef;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian as LE, elf as e};

use super::data::Data;
use crate::message::{CHECKS, broken, refused};

/// Maximum size in bytes of a library's image in memory. A library with a larger image is rejected as
/// damaged.
const SPAN_MAX: u64 = 1 << 40;
/// Maximum address in an image. No library is linked to a higher address.
const ADDRESS_MAX: u64 = 1 << 56;
/// Maximum number of program headers. A typical library has about ten. The number is limited
/// because each lookup of an address searches all program headers.
const SEGMENTS_MAX: usize = 64;

/// Address range into which the dynamic loader maps bytes of the file (a `PT_LOAD` program header).
#[derive(Clone, Copy)]
struct Load {
    address: u64,
    memory: u64,
    offset: u64,
    file: u64,
    flags: u32,
}

impl Load {
    fn holds(&self, address: u64, size: u64, available: u64) -> bool {
        address >= self.address && size <= available && address - self.address <= available - size
    }
}

/// Parts of a file that the dynamic loader maps into memory.
pub(super) struct Image<'d> {
    data: Data<'d>,
    loads: Vec<Load>,
    /// Address and size in bytes of the library's dynamic section.
    pub(super) dynamic: (u64, u64),
    /// Size in bytes of the library's thread-local storage for one thread.
    pub(super) thread_local: u64,
    /// True if the library requires an executable stack.
    pub(super) executable_stack: bool,
}

impl<'d> Image<'d> {
    /// Parses and checks the program headers of a file with a size of `len` bytes.
    pub(super) fn new(header: &FileHeader64<LE>, data: Data<'d>, len: u64) -> Result<Image<'d>, String> {
        let segments = header.program_headers(LE, data).map_err(broken)?;
        if segments.len() > SEGMENTS_MAX {
            return Err(refused!("the file is damaged: it has too many program headers ({})", segments.len()));
        }
        let mut image =
            Image { data, loads: Vec::new(), dynamic: (0, 0), thread_local: 0, executable_stack: false };
        for (index, segment) in segments.iter().enumerate() {
            image.segment(index, segment, len)?;
        }
        if image.loads.is_empty() {
            return Err(refused!("the file is damaged: it has no segment to load (no PT_LOAD)"));
        }
        let (address, size) = image.dynamic;
        if size == 0 {
            return Err(refused!(
                "the file is damaged: it has no dynamic section, so it is not a shared library"
            ));
        }
        let unwind =
            segments.iter().filter(|_| CHECKS).find(|segment| segment.p_type(LE) == elf::PT_GNU_EH_FRAME);
        if unwind.is_some_and(|table| !image.is_in_memory(table.p_vaddr(LE), table.p_memsz(LE))) {
            return Err(refused!("the file is damaged: its unwind table is outside of the loaded segments"));
        }
        if !image.is_in_memory(address, size) {
            return Err(refused!("the file is damaged: its dynamic section is outside of the loaded segments"));
        }
        Ok(image)
    }

    fn segment(&mut self, index: usize, segment: &ProgramHeader64<LE>, len: u64) -> Result<(), String> {
        let damaged = |what: &str| Err(refused!("the file is damaged: program header {index} {what}"));
        let (offset, file) = (segment.p_offset(LE), segment.p_filesz(LE));
        let (address, memory) = (segment.p_vaddr(LE), segment.p_memsz(LE));
        match segment.p_type(LE) {
            elf::PT_LOAD => {
                if file > memory {
                    return damaged("has more bytes in the file than in memory");
                }
                if CHECKS
                    && (segment.p_flags(LE) & e::PF_R == 0
                        || segment.p_flags(LE) & !(e::PF_R | e::PF_W | e::PF_X) != 0)
                {
                    return damaged("is not readable, or has unknown flags");
                }
                let align = segment.p_align(LE);
                if CHECKS && align > 1 && (!align.is_power_of_two() || (address ^ offset) & (align - 1) != 0) {
                    return damaged("violates its own alignment");
                }
                if CHECKS && file < memory && segment.p_flags(LE) & e::PF_W == 0 {
                    return damaged("has fewer bytes in the file than in memory, but is not writable");
                }
                if CHECKS && self.loads.last().is_some_and(|last| file > 0 && offset < last.offset + last.file)
                {
                    return damaged("overlaps the previous one in the file");
                }
                if offset.checked_add(file).is_none_or(|end| end > len) {
                    return Err(refused!(
                        "the file is truncated: program header {index} exceeds its {len} bytes"
                    ));
                }
                let Some(end) = address.checked_add(memory) else {
                    return damaged("has a size that overflows");
                };
                let first = self.loads.first().map_or(address, |load| load.address);
                if self.loads.last().is_some_and(|last| address < last.address + last.memory) {
                    return damaged("overlaps the previous one in memory, or is out of order");
                }
                // The second condition keeps later sums of addresses from overflowing.
                if end - first > SPAN_MAX || end > ADDRESS_MAX {
                    return damaged("requires more memory than the address space has");
                }
                self.loads.push(Load { address, memory, offset, file, flags: segment.p_flags(LE) });
            }
            elf::PT_DYNAMIC => {
                if self.dynamic.1 != 0 {
                    return damaged("is a second dynamic section");
                }
                if file == 0 || memory < file {
                    return damaged("is an empty dynamic section");
                }
                self.dynamic = (address, file);
            }
            elf::PT_TLS => {
                let align = segment.p_align(LE);
                if CHECKS && (file > memory || memory > SPAN_MAX || align > 1 && !align.is_power_of_two()) {
                    return damaged("describes invalid thread-local storage");
                }
                self.thread_local = memory;
            }
            elf::PT_GNU_STACK => self.executable_stack = segment.p_flags(LE) & elf::PF_X != 0,
            elf::PT_GNU_RELRO if CHECKS && memory > 0 => {
                let end = address.checked_add(memory);
                // The end may be rounded up to a page.
                let covers = |load: &&Load| {
                    let page = (load.address + load.memory).next_multiple_of(0x1_0000);
                    address >= load.address && end.is_some_and(|end| end <= page)
                };
                if self.loads.iter().find(covers).is_none() {
                    return damaged("protects memory that is not loaded");
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the bytes of the file that are mapped at `address`. `what` is the noun for these
    /// bytes in error messages.
    pub(super) fn bytes(&self, address: u64, size: u64, what: &str) -> Result<&'d [u8], String> {
        let load = self.loads.iter().find(|load| load.holds(address, size, load.file));
        let found =
            load.and_then(|load| self.data.read_bytes_at(load.offset + (address - load.address), size).ok());
        found.ok_or_else(|| refused!("the file is damaged: its {what} lie outside of the loaded segments"))
    }

    /// Returns the table of `count` entries that is mapped at `address`. `what` is the noun for the
    /// entries in error messages.
    pub(super) fn table<T: Pod>(&self, address: u64, count: u64, what: &str) -> Result<&'d [T], String> {
        let size = count.checked_mul(size_of::<T>() as u64);
        let bytes = self.bytes(address, size.unwrap_or(u64::MAX), what)?;
        match object::pod::slice_from_bytes(bytes, count as usize) {
            Ok((table, _)) => Ok(table),
            Err(()) => Err(refused!("the file is damaged: its {what} are not aligned")),
        }
    }

    /// Returns the bytes of the file that are mapped from `address` to the end of its segment.
    /// `what` is the noun for these bytes in error messages.
    pub(super) fn rest(&self, address: u64, what: &str) -> Result<&'d [u8], String> {
        let load = self.loads.iter().find(|load| load.holds(address, 0, load.file));
        let size = load.map_or(0, |load| load.file - (address - load.address));
        self.bytes(address, size, what)
    }

    /// Returns the parts of the file that are mapped without write permission: the code if `code` is true,
    /// otherwise the read-only data. Parts larger than 64 MiB are left out.
    pub(super) fn contents(&self, code: bool) -> Vec<&'d [u8]> {
        const SIZE_MAX: u64 = 1 << 26;
        let flags = if code { e::PF_X } else { 0 };
        let is_meant = |load: &&Load| load.flags & (e::PF_X | e::PF_W) == flags && load.file <= SIZE_MAX;
        let bytes = |load: &Load| self.data.read_bytes_at(load.offset, load.file).ok();
        self.loads.iter().filter(is_meant).filter_map(bytes).collect()
    }

    /// Returns the address range of the image: from the first mapped address to one past the last.
    pub(super) fn span(&self) -> core::ops::Range<u64> {
        let first = self.loads.first().map_or(0, |load| load.address);
        first..self.loads.last().map_or(first, |load| load.address + load.memory)
    }

    /// Returns true if the `size` addresses from `address` on are all mapped.
    pub(super) fn is_in_memory(&self, address: u64, size: u64) -> bool {
        self.loads.iter().any(|load| load.holds(address, size, load.memory))
    }

    /// Returns true if `address` is in code, that is, in memory that is mapped as executable.
    pub(super) fn is_code(&self, address: u64) -> bool {
        self.loads.iter().any(|load| load.flags & e::PF_X != 0 && load.holds(address, 1, load.memory))
    }

    /// Returns true if the `size` addresses from `address` on are mapped as writable.
    pub(super) fn is_writable(&self, address: u64, size: u64) -> bool {
        self.loads.iter().any(|load| load.flags & e::PF_W != 0 && load.holds(address, size, load.memory))
    }
}
