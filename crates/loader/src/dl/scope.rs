//! Loads libraries that use this runtime into processes in which the runtime's symbols are not globally
//! visible.
//!
//! If this runtime was itself opened with local visibility, as Python extensions are, a library with undefined runtime
//! symbols would not find them. Making the symbols global would affect any other runtime in the process. So a tiny
//! library is generated, the scope library. It needs two files, the library and this runtime, and has neither code nor
//! symbols. When it is opened, the dynamic loader also opens the library, and looks up symbols for it in both files.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicU32, Ordering};

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;

use object::elf::{self, Dyn64, FileHeader64, ProgramHeader64, SectionHeader64, Sym64};
use object::{LittleEndian as LE, U16, U32, U64, pod};

use super::Library;
use crate::elf::MACHINE;

/// Opens the library at the path `library` so that its undefined symbols are resolved in the file `runtime`.
/// Returns the library and the generated scope library; the caller must keep both open.
///
/// # Safety
/// The requirements of [`Library::open`] apply.
pub(crate) unsafe fn open(library: &CStr, runtime: &CStr) -> Result<[Library; 2], String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let soname = format!("anyfn-scope-{}-{count}.so", std::process::id());
    let image = image(library, runtime, soname.as_bytes());
    let file = ScopeFile::in_memory(&image, count).or_else(|in_memory| {
        ScopeFile::on_disk(&image, &soname).map_err(|on_disk| format!("{in_memory}; {on_disk}"))
    })?;
    // SAFETY: the scope library has no code; the caller vouches for `library`.
    let scope = unsafe { Library::open(file.path()) }.or_else(|reason| {
        if file.is_reachable() {
            return Err(reason);
        }
        let on_disk = ScopeFile::on_disk(&image, &soname).map_err(|on_disk| format!("{reason}; {on_disk}"))?;
        // SAFETY: the scope library has no code; the caller vouches for `library`. The first attempt has not opened it.
        unsafe { Library::open(on_disk.path()) }
    })?;
    match Library::find(library) {
        Some(library) => Ok([library, scope]),
        None => {
            // SAFETY: the scope library was opened just now and is not used.
            unsafe { scope.close() };
            Err("cannot find the library that the dynamic loader has just loaded".to_string())
        }
    }
}

/// File that contains a generated scope library. It is deleted when this value is dropped, after
/// the dynamic loader has opened it.
enum ScopeFile {
    /// File in memory, and the path to its descriptor.
    Memory { _file: File, path: CString },
    /// File in the folder for temporary files.
    Disk(CString),
}

impl ScopeFile {
    /// Creates a file in memory.
    fn in_memory(image: &[u8], count: u32) -> Result<ScopeFile, String> {
        let file = memory_file(image).map_err(|e| format!("cannot create a file in memory: {e}"))?;
        let path = unique_path(file.as_raw_fd(), count)?;
        Ok(ScopeFile::Memory { _file: file, path })
    }

    /// Returns false if the path does not lead to the file. Descriptors have no paths in a root folder without `/proc`.
    fn is_reachable(&self) -> bool {
        std::fs::metadata(OsStr::from_bytes(self.path().to_bytes())).is_ok()
    }

    /// Creates a temporary file, which only this user may read and write.
    fn on_disk(image: &[u8], name: &str) -> Result<ScopeFile, String> {
        let path = std::env::temp_dir().join(name);
        let failed = |e: std::io::Error| format!("cannot create the file {}: {e}", path.display());
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        let created = ScopeFile::Disk(name);
        file.write_all(image).map_err(failed)?;
        Ok(created)
    }

    fn path(&self) -> &CStr {
        match self {
            ScopeFile::Memory { path, .. } | ScopeFile::Disk(path) => path,
        }
    }
}

impl Drop for ScopeFile {
    fn drop(&mut self) {
        if let ScopeFile::Disk(path) = self {
            // The library is open, or could not be opened.
            let _ = std::fs::remove_file(OsStr::from_bytes(path.as_bytes()));
        }
    }
}

fn memory_file(content: &[u8]) -> std::io::Result<File> {
    // C libraries before glibc 2.27 have no function `memfd_create`.
    // SAFETY: the name is NUL-terminated. The result is a descriptor or -1, which fits into an int.
    let fd =
        unsafe { libc::syscall(libc::SYS_memfd_create, c"anyfn-scope".as_ptr(), libc::MFD_CLOEXEC) } as c_int;
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(content)?;
    Ok(file)
}

/// Returns a path to the open file with the descriptor `fd`. Calls with different values of `count`
/// return different paths.
///
/// The dynamic loader takes a path that it has seen before for the same library, and descriptors are reused. So the
/// path contains the bits of `count` as `.//` and `./`, which do not change the file that it denotes.
fn unique_path(fd: i32, count: u32) -> Result<CString, String> {
    // At least eight, so that no path is one that other code of the process uses.
    let bits = (u32::BITS - count.leading_zeros()).max(8);
    let digits: String = (0..bits).map(|bit| if count >> bit & 1 == 1 { ".//" } else { "./" }).collect();
    CString::new(format!("/proc/self/fd/{digits}{fd}")).map_err(|e| e.to_string())
}

/// Returns the ELF image of a scope library called `soname`, which needs the files `library` and `runtime`.
fn image(library: &CStr, runtime: &CStr, soname: &[u8]) -> Vec<u8> {
    let mut strings = Vec::from([0u8]);
    let mut put = |text: &[u8]| {
        let at = strings.len() as u64;
        strings.extend_from_slice(text);
        strings.push(0);
        at
    };
    let names = [put(library.to_bytes()), put(runtime.to_bytes()), put(soname)];
    const SEGMENTS: usize = 3;
    const ENTRIES: usize = 9;
    let dynamic = size_of::<FileHeader64<LE>>() + SEGMENTS * size_of::<ProgramHeader64<LE>>();
    let hash = dynamic + ENTRIES * size_of::<Dyn64<LE>>();
    let symbols = hash + 4 * size_of::<U32<LE>>();
    let string_table = symbols + size_of::<Sym64<LE>>();
    let size = string_table + strings.len();

    // Writable, because some dynamic loaders write addresses into the dynamic section.
    let read_write = elf::PF_R | elf::PF_W;
    let segments: [ProgramHeader64<LE>; SEGMENTS] = [
        segment(elf::PT_LOAD, read_write, 0, size, page_size()),
        segment(elf::PT_DYNAMIC, read_write, dynamic, hash - dynamic, 8),
        // States that no executable stack is needed; without it, the stack would become executable.
        segment(elf::PT_GNU_STACK, read_write, 0, 0, 16),
    ];
    let entries: [(u32, u64); ENTRIES] = [
        (elf::DT_NEEDED, names[0]),
        (elf::DT_NEEDED, names[1]),
        (elf::DT_SONAME, names[2]),
        (elf::DT_HASH, hash as u64),
        (elf::DT_STRTAB, string_table as u64),
        (elf::DT_SYMTAB, symbols as u64),
        (elf::DT_STRSZ, strings.len() as u64),
        (elf::DT_SYMENT, size_of::<Sym64<LE>>() as u64),
        (elf::DT_NULL, 0),
    ];
    let entries =
        entries.map(|(tag, value)| Dyn64 { d_tag: U64::new(LE, tag.into()), d_val: U64::new(LE, value) });
    // A hash table with one bucket and one symbol, the empty one.
    let hash_table = [1, 1, 0, 0].map(|word| U32::new(LE, word));
    [
        pod::bytes_of(&header()),
        pod::bytes_of_slice(&segments),
        pod::bytes_of_slice(&entries),
        pod::bytes_of_slice(&hash_table),
        pod::bytes_of(&Sym64::<LE>::default()),
        strings.as_slice(),
    ]
    .concat()
}

/// Returns the size of a page of memory. With a larger alignment, the dynamic loader would reserve more addresses than the
/// segment needs, and release them afterwards.
fn page_size() -> u64 {
    // SAFETY: the function may be called at any time.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(0x10000)
}

/// Returns the ELF header of a library with three program headers and without section headers. The program
/// headers follow the ELF header.
fn header() -> FileHeader64<LE> {
    FileHeader64 {
        e_ident: elf::Ident {
            magic: elf::ELFMAG,
            class: elf::ELFCLASS64,
            data: elf::ELFDATA2LSB,
            version: elf::EV_CURRENT,
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            padding: [0; 7],
        },
        e_type: U16::new(LE, elf::ET_DYN),
        e_machine: U16::new(LE, MACHINE),
        e_version: U32::new(LE, elf::EV_CURRENT.into()),
        e_entry: U64::new(LE, 0),
        e_phoff: U64::new(LE, size_of::<FileHeader64<LE>>() as u64),
        e_shoff: U64::new(LE, 0),
        e_flags: U32::new(LE, 0),
        e_ehsize: U16::new(LE, size_of::<FileHeader64<LE>>() as u16),
        e_phentsize: U16::new(LE, size_of::<ProgramHeader64<LE>>() as u16),
        e_phnum: U16::new(LE, 3),
        e_shentsize: U16::new(LE, size_of::<SectionHeader64<LE>>() as u16),
        e_shnum: U16::new(LE, 0),
        e_shstrndx: U16::new(LE, 0),
    }
}

/// Returns the program header of a segment of `size` bytes. `at` is both the file offset and the
/// address of the segment.
fn segment(kind: u32, flags: u32, at: usize, size: usize, align: u64) -> ProgramHeader64<LE> {
    let (at, size) = (U64::new(LE, at as u64), U64::new(LE, size as u64));
    ProgramHeader64 {
        p_type: U32::new(LE, kind),
        p_flags: U32::new(LE, flags),
        p_offset: at,
        p_vaddr: at,
        p_paddr: at,
        p_filesz: size,
        p_memsz: size,
        p_align: U64::new(LE, align),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the ELF image of a scope library, which tests use as an example of a valid library.
    pub(crate) fn sample() -> Vec<u8> {
        image(c"/a/lib.so", c"/b/run.so", b"scope.so")
    }

    #[test]
    fn the_image_needs_both_files() {
        use object::read::elf::{Dyn, FileHeader, ProgramHeader};
        let image = image(c"/a/lib.so", c"/b/run.so", b"scope.so");
        let header = elf::FileHeader64::<LE>::parse(&*image).unwrap();
        let segments = header.program_headers(LE, &*image).unwrap();
        assert_eq!(segments[0].p_filesz(LE), image.len() as u64);
        let entries = segments[1].dynamic(LE, &*image).unwrap().unwrap();
        let value =
            |tag: u32| entries.iter().filter(move |e| e.tag32(LE) == Some(tag)).map(|e| e.d_val(LE) as usize);
        let strings = value(elf::DT_STRTAB).next().unwrap();
        let text = |at: usize| CStr::from_bytes_until_nul(&image[strings + at..]).unwrap();
        let needed: Vec<_> = value(elf::DT_NEEDED).map(text).collect();
        assert_eq!(needed, [c"/a/lib.so", c"/b/run.so"]);
        assert_eq!(value(elf::DT_SONAME).map(text).next(), Some(c"scope.so"));
    }

    #[test]
    fn paths_differ_by_the_count() {
        let paths: std::collections::BTreeSet<_> = (0..100).map(|n| unique_path(5, n).unwrap()).collect();
        assert_eq!(paths.len(), 100);
    }

    #[test]
    fn a_file_in_memory_is_reachable_by_its_path() {
        if std::fs::metadata("/proc/self/fd").is_err() {
            anyfn_skip::skip!("there is no /proc");
        }
        let file = ScopeFile::in_memory(&image(c"libm.so.6", c"libc.so.6", b"anyfn-scope-path.so"), 3).unwrap();
        assert!(file.is_reachable());
        let absent = ScopeFile::Disk(CString::new([file.path().to_bytes(), b".absent"].concat()).unwrap());
        assert!(!absent.is_reachable());
    }

    #[test]
    fn a_temporary_file_takes_the_place_of_one_in_memory() {
        let image = image(c"libm.so.6", c"libc.so.6", b"anyfn-scope-test.so");
        let name = format!("anyfn-scope-test-{}.so", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let file = ScopeFile::on_disk(&image, &name).unwrap();
        assert!(path.exists());
        // A file that exists is not used, whoever made it.
        assert!(ScopeFile::on_disk(&image, &name).is_err());
        // SAFETY: the scope library has no code, and the libraries that it needs are loaded already.
        let library = unsafe { Library::open(file.path()) }.unwrap();
        drop(file);
        assert!(!path.exists());
        // SAFETY: nothing uses the library.
        unsafe { library.close() };
    }
}
