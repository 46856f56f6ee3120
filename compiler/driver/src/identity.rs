//! Identity of this build of the compiler: the build ID of the library or executable that contains
//! the compiler.

use std::sync::OnceLock;

static FOUND: OnceLock<Option<String>> = OnceLock::new();

/// Returns the build ID of the library or executable that contains this code. Returns `None` if the
/// file has no build ID, and on all systems other than 64-bit Linux. The linker writes the build
/// ID, which changes whenever the code changes.
pub(crate) fn build_id() -> Option<&'static str> {
    FOUND.get_or_init(|| elf::find((&raw const FOUND).addr())).as_deref()
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
mod elf {
    pub(super) fn find(_: usize) -> Option<String> {
        None
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod elf {
    use std::ffi::{c_int, c_void};
    use std::fmt::Write as _;
    use std::ptr;
    use std::slice;

    struct Search {
        /// Address inside the library or executable whose build ID is requested.
        here: usize,
        found: Option<String>,
    }

    pub(super) fn find(here: usize) -> Option<String> {
        let mut search = Search { here, found: None };
        // SAFETY: `look` has the expected type and expects what is passed: the address of `search`. `search` outlives
        // the call, since `dl_iterate_phdr` calls back on this thread until it returns and keeps nothing. Nothing else
        // uses `search` meanwhile.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
        search.found
    }

    /// Callback of `dl_iterate_phdr`. It examines a library or executable, and ends the iteration if the file
    /// contains the address `here`.
    ///
    /// # Safety
    /// - `info` must be a valid description, as passed by `dl_iterate_phdr`, of a library that stays mapped during the
    ///   call.
    /// - `data` must be the address of a [`Search`] that nothing else uses during the call.
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: `data` is the address of a `Search` that nothing else uses during the call, by this function's contract.
        let search = unsafe { &mut *data.cast::<Search>() };
        // SAFETY: `info` is valid during the call, by this function's contract, and is only read.
        let info = unsafe { &*info };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: in a valid description, `dlpi_phdr` is the address of `dlpi_phnum` headers, and it was checked not to
        // be null. The headers are part of the library, which stays mapped, and nothing writes to them.
        let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let start = |header: &libc::Elf64_Phdr| (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        let size = |header: &libc::Elf64_Phdr| header.p_memsz as usize;
        let is_here = |header: &libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && search.here.wrapping_sub(start(header)) < size(header)
        };
        if !headers.iter().any(is_here) {
            return 0;
        }
        // Some notes exist only in the file. Only notes in a segment that is mapped for reading and not for
        // writing are read.
        let is_mapped = |note: &libc::Elf64_Phdr| {
            headers.iter().any(|header| {
                let offset = start(note).wrapping_sub(start(header));
                header.p_type == libc::PT_LOAD
                    && header.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R
                    && offset.checked_add(size(note)).is_some_and(|end| end <= size(header))
            })
        };
        for header in headers.iter().filter(|header| header.p_type == libc::PT_NOTE && is_mapped(header)) {
            let notes = ptr::with_exposed_provenance::<u8>(start(header));
            // SAFETY: the whole range is in a segment of this library that is mapped for reading and not for writing,
            // as `is_mapped` has checked. The segment stays mapped during the call, and `notes` is not kept after it.
            let notes = unsafe { slice::from_raw_parts(notes, size(header)) };
            search.found = search.found.take().or_else(|| id_in(notes));
        }
        1
    }

    /// Returns the build ID that a sequence of ELF notes contains. Each note consists of the sizes of its
    /// name and its content, a type, the name, and the content.
    fn id_in(mut notes: &[u8]) -> Option<String> {
        const BUILD_ID: u32 = 3;
        loop {
            let word = |at: usize| {
                let bytes = notes.get(at..at + 4)?;
                Some(u32::from_ne_bytes(bytes.try_into().ok()?))
            };
            let (name, content, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
            let begin = 12 + name.checked_next_multiple_of(4)?;
            let end = begin.checked_add(content)?;
            if kind == BUILD_ID && notes.get(12..12 + name) == Some(b"GNU\0") {
                let mut text = String::new();
                for byte in notes.get(begin..end)? {
                    let _ = write!(text, "{byte:02x}");
                }
                return Some(text);
            }
            notes = notes.get(end.checked_next_multiple_of(4)?..)?;
        }
    }

    #[cfg(test)]
    mod tests {
        use super::id_in;

        #[test]
        fn notes() {
            let note = |kind: u8, content: &[u8]| {
                [&[4, 0, 0, 0, content.len() as u8, 0, 0, 0, kind, 0, 0, 0, b'G', b'N', b'U', 0], content]
                    .concat()
            };
            assert_eq!(id_in(&note(3, &[0xab, 1, 2, 3])).as_deref(), Some("ab010203"));
            assert_eq!(id_in(&[note(5, &[1, 2, 3, 4]), note(3, &[7])].concat()).as_deref(), Some("07"));
            assert_eq!(id_in(&note(5, &[1, 2, 3, 4])), None);
            assert_eq!(id_in(&note(3, &[1, 2, 3, 4])[..18]), None);
            assert_eq!(id_in(&[0xff; 40]), None);
            assert_eq!(id_in(&[]), None);
        }
    }
}
