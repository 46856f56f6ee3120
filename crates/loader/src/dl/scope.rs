//! Loading of libraries that need the functions of this runtime when these are not globally visible.
//!
//! If this runtime was itself opened with local visibility, as Python extensions are, a library with undefined runtime
//! symbols would not find them. Making the symbols global would affect any other runtime in the process. So a tiny
//! library is generated, the scope library. It needs two files, the library and this runtime, and has neither code nor
//! symbols. When it is opened, the dynamic loader also opens the library, and looks up symbols for it in both files.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::Library;
use crate::elf::MACHINE;

/// Opens the library at the path `library` so that its undefined symbols are resolved in the file `runtime`.
/// Returns the library and the scope library; the caller must keep both open.
///
/// # Safety
/// The requirements of [`Library::open`] apply.
pub(crate) unsafe fn open(library: &CStr, runtime: &CStr) -> Result<[Library; 2], String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let soname = format!("anyfn-scope-{}-{count}.so", std::process::id());
    let file = memory_file(&image(library, runtime, soname.as_bytes()))
        .map_err(|e| format!("cannot make a file in memory: {e}"))?;
    let path = unique_path(file.as_raw_fd(), count)?;
    // SAFETY: the scope library has no code; the caller vouches for `library`.
    let scope = unsafe { Library::open(&path) }?;
    match Library::find(library) {
        Some(library) => Ok([library, scope]),
        None => {
            // SAFETY: the scope library was opened just now and is not used.
            unsafe { scope.close() };
            Err("the library is not where the dynamic loader has just put it".to_string())
        }
    }
}

fn memory_file(content: &[u8]) -> std::io::Result<File> {
    // SAFETY: the name is NUL-terminated.
    let fd = unsafe { libc::memfd_create(c"anyfn-scope".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(content)?;
    Ok(file)
}

/// Returns a path to the open file with the descriptor `fd`. `count` must be different for each call, so that
/// each call returns a different path.
///
/// The dynamic loader takes a path that it has seen before for the same library, and descriptors are reused. So the
/// path contains the bits of `count` as `.//` and `./`, which do not change the file that it denotes.
fn unique_path(fd: i32, count: u32) -> Result<CString, String> {
    let digits: String = (0..32).map(|bit| if count >> bit & 1 == 1 { ".//" } else { "./" }).collect();
    CString::new(format!("/proc/self/fd/{digits}{fd}")).map_err(|e| e.to_string())
}

const EHDR: usize = 64;
const PHDR: usize = 56;
const DYN: usize = 16;
const SYM: usize = 24;

/// Returns the content of a scope library called `soname`, which needs the files `library` and `runtime`.
fn image(library: &CStr, runtime: &CStr, soname: &[u8]) -> Vec<u8> {
    let mut strings = Vec::from([0u8]);
    let mut put = |text: &[u8]| {
        let at = strings.len() as u64;
        strings.extend_from_slice(text);
        strings.push(0);
        at
    };
    let names = [put(library.to_bytes()), put(runtime.to_bytes()), put(soname)];
    const ENTRIES: usize = 9;
    let dynamic = EHDR + 3 * PHDR;
    let hash = dynamic + ENTRIES * DYN;
    let symbols = hash + 16;
    let string_table = symbols + SYM;
    let size = string_table + strings.len();

    let mut out = Vec::with_capacity(size);
    header(&mut out);
    // Writable, because some dynamic loaders write addresses into the dynamic section.
    let (read_write, align) = (6, 0x10000);
    segment(&mut out, 1, read_write, 0, size, align);
    segment(&mut out, 2, read_write, dynamic, ENTRIES * DYN, 8);
    // States that no executable stack is needed; without it, the stack would become executable.
    segment(&mut out, 0x6474_e551, read_write, 0, 0, 16);
    let entries: [(u64, u64); ENTRIES] = [
        (1, names[0]),
        (1, names[1]),
        (14, names[2]),
        (4, hash as u64),
        (5, string_table as u64),
        (6, symbols as u64),
        (10, strings.len() as u64),
        (11, SYM as u64),
        (0, 0),
    ];
    for (tag, value) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&value.to_le_bytes());
    }
    // A hash table with one bucket and one symbol, the empty one.
    for word in [1u32, 1, 0, 0] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&[0; SYM]);
    out.extend_from_slice(&strings);
    out
}

fn header(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    for half in [3, MACHINE] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    out.extend_from_slice(&1u32.to_le_bytes());
    for word in [0u64, EHDR as u64, 0] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&0u32.to_le_bytes());
    for half in [EHDR as u16, PHDR as u16, 3, 64, 0, 0] {
        out.extend_from_slice(&half.to_le_bytes());
    }
}

fn segment(out: &mut Vec<u8>, kind: u32, flags: u32, at: usize, size: usize, align: u64) {
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    for word in [at, at, at, size, size] {
        out.extend_from_slice(&(word as u64).to_le_bytes());
    }
    out.extend_from_slice(&align.to_le_bytes());
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the content of a scope library, as an example of a valid library for tests.
    pub(crate) fn sample() -> Vec<u8> {
        image(c"/a/lib.so", c"/b/run.so", b"scope.so")
    }

    #[test]
    fn the_image_needs_both_files() {
        use object::read::elf::{Dyn, FileHeader, ProgramHeader};
        use object::{LittleEndian as LE, elf};
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
}
