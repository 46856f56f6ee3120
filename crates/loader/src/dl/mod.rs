//! Access to the system's dynamic loader.
//!
//! The calls are made directly, through `libc`. Besides opening libraries and looking up symbols, the loader of modules
//! has to find out whether a library is already loaded, which file an address belongs to, and which symbols the process
//! exports globally.

pub(crate) mod runtime;
pub(crate) mod scope;

use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use core::ptr::NonNull;

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Handle of a library that the dynamic loader has opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Library(NonNull<c_void>);

// SAFETY: the handle refers to an entry of the dynamic loader, which does its own locking.
unsafe impl Send for Library {}
// SAFETY: the handle refers to an entry of the dynamic loader, which does its own locking.
unsafe impl Sync for Library {}

impl Library {
    /// Opens a library without making its symbols visible to other libraries. On failure, returns the message of the
    /// dynamic loader.
    ///
    /// All symbols are bound immediately. So a missing symbol is an error here, and does not end the process
    /// at the first call of a function.
    ///
    /// # Safety
    /// This runs the library's constructors, which must be fit to run in this process.
    pub(crate) unsafe fn open(path: &CStr) -> Result<Library, String> {
        // SAFETY: the path is NUL-terminated; the caller vouches for the library.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Library).ok_or_else(error_text)
    }

    /// Closes this handle of the library. The library is unmapped if no other handle of it is open.
    ///
    /// # Safety
    /// Nothing of the library may be in use, and this handle must not be used afterwards.
    pub(crate) unsafe fn close(self) {
        // SAFETY: the handle is open; the caller vouches for the rest.
        if unsafe { libc::dlclose(self.0.as_ptr()) } != 0 {
            drop(error_text());
        }
    }

    /// Opens the library with the given name or path if it is already mapped; otherwise returns `None` and
    /// loads nothing.
    pub(crate) fn find(path: &CStr) -> Option<Library> {
        const FLAGS: c_int = libc::RTLD_LAZY | libc::RTLD_LOCAL | libc::RTLD_NOLOAD;
        // SAFETY: the path is NUL-terminated; nothing is loaded and no code runs.
        let found = NonNull::new(unsafe { libc::dlopen(path.as_ptr(), FLAGS) }).map(Library);
        if found.is_none() {
            drop(error_text());
        }
        found
    }

    /// Returns the address of a symbol that is defined by the library itself or by a library on
    /// which it depends, or `None` if no such symbol exists.
    pub(crate) fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is valid as long as it is not closed, the name is NUL-terminated.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }

    /// Returns the address of a symbol, or `None` if this library itself does not define it.
    pub(crate) fn own_symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        let address = self.symbol(name)?;
        let anchor = self.base()?;
        (base_of(address.as_ptr())? == anchor).then_some(address)
    }

    /// Returns the load bias of the library: the difference between the address of a byte in memory
    /// and its address according to the file.
    pub(crate) fn difference(self) -> Option<usize> {
        // SAFETY: on success this is the entry of the dynamic loader, which lives as long as the library.
        Some(unsafe { self.map()?.as_ref() }.difference)
    }

    /// Returns the path of the library's file, as the dynamic loader knows it.
    pub(crate) fn path(self) -> Option<PathBuf> {
        // SAFETY: on success this is the entry of the dynamic loader, which lives as long as the library.
        let name = unsafe { self.map()?.as_ref() }.name;
        // SAFETY: NULL, or a C string that lives as long as the library.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })?;
        (!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(name.to_bytes())))
    }

    /// Returns the address at which the library is mapped.
    fn base(self) -> Option<usize> {
        // SAFETY: on success this is the entry of the dynamic loader, which lives as long as the library.
        let dynamic = unsafe { self.map()?.as_ref() }.dynamic;
        base_of(dynamic)
    }

    fn map(self) -> Option<NonNull<LinkMap>> {
        let mut map: *mut LinkMap = core::ptr::null_mut();
        // SAFETY: the handle is valid; `RTLD_DI_LINKMAP` writes one pointer.
        let code = unsafe { libc::dlinfo(self.0.as_ptr(), libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
        if code == 0 { NonNull::new(map) } else { None }
    }
}

/// First fields of the struct `link_map` in `link.h`, with which the dynamic loader describes a library.
#[repr(C)]
struct LinkMap {
    difference: usize,
    name: *const core::ffi::c_char,
    dynamic: *const c_void,
}

/// Returns the address of a symbol that is visible to all libraries of the process.
///
/// The symbol is looked up in the main program, whose scope is the global one. `RTLD_DEFAULT` would also search the
/// file that contains this code, and find its symbols even if no other library sees them.
pub(crate) fn global_symbol(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: NULL denotes the main program, which is loaded.
    let program = NonNull::new(unsafe { libc::dlopen(core::ptr::null(), libc::RTLD_LAZY) });
    program.map(Library)?.symbol(name)
}

/// Loaded file that contains a given address.
pub(crate) struct Origin {
    /// Address at which the file is mapped.
    pub(crate) base: usize,
    /// Path of the file. For the main program, this is the path with which the program was started.
    pub(crate) path: PathBuf,
}

/// Returns the dynamic loader's information about an address, or `None` if no loaded file contains it.
fn info_of(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: `dladdr` accepts any address; `info` is writable.
    (unsafe { libc::dladdr(address, &raw mut info) } != 0).then_some(info)
}

/// Returns the address at which the file that contains `address` is mapped, or `None` if no loaded
/// file contains `address`.
pub(crate) fn base_of(address: *const c_void) -> Option<usize> {
    info_of(address).map(|info| info.dli_fbase.addr())
}

/// Returns the loaded file that contains an address, or `None` if no loaded file contains it.
pub(crate) fn origin(address: *const c_void) -> Option<Origin> {
    let (base, path) = named(address)?;
    Some(Origin { base, path: std::fs::canonicalize(&path).unwrap_or(path) })
}

/// Returns the address at which the file that contains `address` is mapped, and the name by which the file was loaded: a path that may be
/// relative to the folder that was the current one then, or what the main program was told as its name.
fn named(address: *const c_void) -> Option<(usize, PathBuf)> {
    let info = info_of(address).filter(|info| !info.dli_fname.is_null())?;
    // SAFETY: the name is NUL-terminated and lives as long as the file is loaded; it is copied at once.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some((info.dli_fbase.addr(), PathBuf::from(OsStr::from_bytes(name.to_bytes()))))
}

/// Returns the path of the file that contains an address. It is absolute, and right even if the file was loaded by a name that is relative to
/// a former current folder. Returns `None` if the system does not tell it.
#[cfg(feature = "drivers")]
pub(crate) fn file_of(address: *const c_void) -> Option<PathBuf> {
    let (_, name) = named(address)?;
    if name.is_absolute() { Some(std::fs::canonicalize(&name).unwrap_or(name)) } else { mapped_file(address) }
}

/// Returns the path of the file that is mapped at an address, as the kernel states it.
#[cfg(feature = "drivers")]
fn mapped_file(address: *const c_void) -> Option<PathBuf> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    maps.split(|byte| *byte == b'\n').find_map(|line| {
        // Address range, permissions, offset, device, inode, and after spaces the path.
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let (start, end) = core::str::from_utf8(words.next()?).ok()?.split_once('-')?;
        let bound = |text| usize::from_str_radix(text, 16).ok();
        let is_inside = (bound(start)?..bound(end)?).contains(&address.addr());
        let path = words.nth(4)?.trim_ascii_start();
        (is_inside && path.first() == Some(&b'/')).then(|| PathBuf::from(OsStr::from_bytes(path)))
    })
}

/// Returns true if the main program contains an address.
#[cfg(feature = "drivers")]
pub(crate) fn is_in_program(address: *const c_void) -> bool {
    let mut found = false;
    for_each_object(&mut |info| {
        let object = object_of(info).filter(|object| object.range.contains(&address.addr()));
        found |= object.is_some_and(|object| object.path.is_empty());
    });
    found
}

/// Returns the name of the nearest exported symbol at or below an address, and the distance of the address
/// from that symbol in bytes.
pub(crate) fn nearest_symbol(address: *const c_void) -> Option<(String, usize)> {
    let info = info_of(address).filter(|info| !info.dli_sname.is_null())?;
    // SAFETY: the name is NUL-terminated and lives as long as the file is loaded; it is copied at once.
    let name = unsafe { CStr::from_ptr(info.dli_sname) };
    Some((name.to_string_lossy().into_owned(), address.addr().wrapping_sub(info.dli_saddr.addr())))
}

/// A file that is mapped as a library or program.
pub(crate) struct Object {
    /// Address range in which the file is mapped.
    pub(crate) range: Range<usize>,
    /// Path of the file; empty for the main program.
    pub(crate) path: CString,
}

/// The files that were mapped at one moment: the addresses of their program headers, in the order of the dynamic loader.
pub(crate) struct Snapshot(Vec<*const c_void>);

impl Snapshot {
    /// Records which files are mapped.
    pub(crate) fn take() -> Snapshot {
        let mut headers = Vec::new();
        for_each_object(&mut |info| headers.push(info.dlpi_phdr.cast()));
        Snapshot(headers)
    }

    /// Returns the files that are mapped now and were not mapped when the snapshot was taken.
    pub(crate) fn newer(&self) -> Vec<Object> {
        let mut objects = Vec::new();
        // The dynamic loader lists the files in the order in which they were mapped, so a file is usually found at the next
        // position.
        let mut next = 0;
        for_each_object(&mut |info| {
            let is_this = |header: &*const c_void| core::ptr::addr_eq(*header, info.dlpi_phdr);
            match self
                .0
                .get(next)
                .is_some_and(is_this)
                .then_some(next)
                .or_else(|| self.0.iter().position(is_this))
            {
                Some(at) => next = at + 1,
                None => objects.extend(object_of(info)),
            }
        });
        objects
    }
}

/// Calls `body` with the description of each mapped file.
fn for_each_object(mut body: &mut dyn FnMut(&libc::dl_phdr_info)) {
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, body: *mut c_void) -> c_int {
        // SAFETY: the system passes a valid description.
        let info = unsafe { &*info };
        // SAFETY: the argument is the body that `for_each_object` passes; nothing else uses it at the same time.
        let body = unsafe { &mut *body.cast::<&mut dyn FnMut(&libc::dl_phdr_info)>() };
        body(info);
        0
    }
    // SAFETY: `visit` has the required signature. Its argument is the body, which does not unwind: it fills a list.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut body).cast()) };
}

/// Returns the address range and the path of a mapped file, or `None` if it has no segments. `info` must be the
/// description that [`for_each_object`] passes.
fn object_of(info: &libc::dl_phdr_info) -> Option<Object> {
    // SAFETY: this is the program header table of a mapped file, which has this many entries.
    let segments = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let (mut start, mut end) = (usize::MAX, 0);
    for load in segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD) {
        // These fields are as wide as an address.
        let (address, size) = (load.p_vaddr as usize, load.p_memsz as usize);
        start = start.min(address);
        end = end.max(address.saturating_add(size));
    }
    if start >= end {
        return None;
    }
    let path = if info.dlpi_name.is_null() {
        c""
    } else {
        // SAFETY: the name is NUL-terminated and lives as long as the file is mapped.
        unsafe { CStr::from_ptr(info.dlpi_name) }
    };
    let base = info.dlpi_addr as usize;
    Some(Object { range: base.wrapping_add(start)..base.wrapping_add(end), path: path.to_owned() })
}

/// Returns the message of the dynamic loader's most recent failure on this thread.
fn error_text() -> String {
    // SAFETY: the function may be called at any time.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic loader gives no reason".to_owned();
    }
    // SAFETY: the message is NUL-terminated and valid until the next call on this thread; it is copied at once.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
