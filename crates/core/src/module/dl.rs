//! The system's dynamic loader.
//!
//! The calls are made directly, through `libc`: besides opening and looking symbols up, the loader of modules has to ask
//! whether a library is already there, which file an address belongs to, and what the process shows globally.

use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use core::ptr::NonNull;

use std::borrow::ToOwned;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::string::String;
use std::vec::Vec;

/// An open library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Library(NonNull<c_void>);

// SAFETY: the handle names an entry of the dynamic loader, which locks for itself.
unsafe impl Send for Library {}
// SAFETY: the handle names an entry of the dynamic loader, which locks for itself.
unsafe impl Sync for Library {}

impl Library {
    /// Opens a library without showing its symbols to others. The text of the dynamic loader on failure.
    ///
    /// All symbols are bound at once: a function that is nowhere is an error now, where binding it at its first call
    /// would end the process.
    ///
    /// # Safety
    /// Runs the library's constructors, which must be fit to run in this process.
    pub(super) unsafe fn open(path: &CStr) -> Result<Library, String> {
        // SAFETY: the path is NUL-terminated; the caller vouches for the library.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Library).ok_or_else(error_text)
    }

    /// Closes it, which unmaps it if this was the last handle.
    ///
    /// # Safety
    /// Nothing of the library may be in use, and this handle must not be used afterwards.
    pub(super) unsafe fn close(self) {
        // SAFETY: an open handle; the caller vouches for the rest.
        if unsafe { libc::dlclose(self.0.as_ptr()) } != 0 {
            drop(error_text());
        }
    }

    /// The library of this name or path, if it is in the process already.
    pub(super) fn find(path: &CStr) -> Option<Library> {
        const FLAGS: c_int = libc::RTLD_LAZY | libc::RTLD_LOCAL | libc::RTLD_NOLOAD;
        // SAFETY: the path is NUL-terminated; nothing is loaded and no code runs.
        let found = NonNull::new(unsafe { libc::dlopen(path.as_ptr(), FLAGS) }).map(Library);
        if found.is_none() {
            drop(error_text());
        }
        found
    }

    /// Address of a symbol of this library, or of one that it is linked to.
    pub(super) fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is valid as long as it is not closed, the name is NUL-terminated.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }

    /// Address of a symbol that this library itself defines.
    pub(super) fn own_symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        let address = self.symbol(name)?;
        let anchor = self.base()?;
        (base_of(address.as_ptr())? == anchor).then_some(address)
    }

    /// What is added to the addresses in the file.
    pub(super) fn difference(self) -> Option<usize> {
        // SAFETY: on success the entry of the dynamic loader, which lives as long as the library.
        Some(unsafe { self.map()?.as_ref() }.difference)
    }

    /// Where the library is mapped.
    fn base(self) -> Option<usize> {
        // SAFETY: on success the entry of the dynamic loader, which lives as long as the library.
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

/// First fields of the dynamic loader's entry of a library, as `link.h` has them.
#[repr(C)]
struct LinkMap {
    difference: usize,
    name: *const core::ffi::c_char,
    dynamic: *const c_void,
}

/// Address of a symbol that every library of the process sees.
///
/// Asked of the main program, whose scope is the global one: `RTLD_DEFAULT` would mean the scope of the file that this
/// code is in, which has its own symbols even when nobody else sees them.
pub(super) fn global_symbol(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: NULL means the main program, which is loaded.
    let program = NonNull::new(unsafe { libc::dlopen(core::ptr::null(), libc::RTLD_LAZY) });
    program.map(Library)?.symbol(name)
}

/// The file that an address belongs to.
pub(super) struct Origin {
    /// Where the file is mapped.
    pub(super) base: usize,
    /// Its path; for the main program what it was started as.
    pub(super) path: PathBuf,
}

/// What the system knows of an address.
fn info_of(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: any address may be asked for; `info` is writable.
    (unsafe { libc::dladdr(address, &raw mut info) } != 0).then_some(info)
}

/// Where the file is mapped that an address belongs to.
pub(super) fn base_of(address: *const c_void) -> Option<usize> {
    info_of(address).map(|info| info.dli_fbase.addr())
}

/// Which file an address belongs to.
pub(super) fn origin(address: *const c_void) -> Option<Origin> {
    let info = info_of(address).filter(|info| !info.dli_fname.is_null())?;
    // SAFETY: the name is NUL-terminated and lives as long as the file is loaded; it is copied at once.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    Some(Origin { base: info.dli_fbase.addr(), path: std::fs::canonicalize(&path).unwrap_or(path) })
}

/// The symbol at or before an address that the file shows, and how far the address is behind it.
pub(super) fn nearest_symbol(address: *const c_void) -> Option<(String, usize)> {
    let info = info_of(address).filter(|info| !info.dli_sname.is_null())?;
    // SAFETY: the name is NUL-terminated and lives as long as the file is loaded; it is copied at once.
    let name = unsafe { CStr::from_ptr(info.dli_sname) };
    Some((name.to_string_lossy().into_owned(), address.addr().wrapping_sub(info.dli_saddr.addr())))
}

/// A file that is mapped.
pub(super) struct Object {
    /// Its addresses.
    pub(super) range: Range<usize>,
    /// Its path; empty for the main program.
    pub(super) path: CString,
}

/// Where the files begin that are mapped.
pub(super) fn starts() -> Vec<usize> {
    let mut starts = Vec::new();
    for_each_object(&mut |range, _| starts.push(range.start));
    starts
}

/// The files that are mapped, but for those that begin at the given addresses.
pub(super) fn objects_without(starts: &[usize]) -> Vec<Object> {
    let mut objects = Vec::new();
    for_each_object(&mut |range, path| {
        if !starts.contains(&range.start) {
            objects.push(Object { range, path: path.to_owned() });
        }
    });
    objects
}

/// Calls `body` with addresses and path of each file that is mapped.
fn for_each_object(mut body: &mut dyn FnMut(Range<usize>, &CStr)) {
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, body: *mut c_void) -> c_int {
        // SAFETY: the system passes a valid description.
        let info = unsafe { &*info };
        // SAFETY: what `for_each_object` passes; nobody else uses it meanwhile.
        let body = unsafe { &mut *body.cast::<&mut dyn FnMut(Range<usize>, &CStr)>() };
        let path = if info.dlpi_name.is_null() {
            c""
        } else {
            // SAFETY: the name is NUL-terminated and lives as long as the file is mapped.
            unsafe { CStr::from_ptr(info.dlpi_name) }
        };
        // SAFETY: the table of the file that is mapped, which has so many entries.
        let segments = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let loads = segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD);
        let (mut start, mut end) = (u64::MAX, 0);
        for load in loads {
            start = start.min(load.p_vaddr);
            end = end.max(load.p_vaddr.saturating_add(load.p_memsz));
        }
        if start < end {
            let base = info.dlpi_addr as usize;
            body(base.wrapping_add(start as usize)..base.wrapping_add(end as usize), path);
        }
        0
    }
    // SAFETY: `visit` fits, and its argument is the body, which does not unwind: it fills a list.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut body).cast()) };
}

/// What went wrong last on this thread.
fn error_text() -> String {
    // SAFETY: may be called at any time.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic loader gives no reason".to_owned();
    }
    // SAFETY: the text is NUL-terminated and valid until the next call on this thread; it is copied at once.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
