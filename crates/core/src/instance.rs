//! Detection of a second copy of this implementation in the process.
//!
//! Two copies have two type tables and two registries, and one copy does not know the objects of the other. They cannot
//! work together, so the conflict is reported.

use core::ffi::{CStr, c_void};

use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;

use crate::sys::objects;

/// This copy of the implementation: the file that holds it, and its conflict with another copy, if any.
pub(crate) struct Instance {
    /// Absolute path of the file that contains this copy of the implementation.
    pub(crate) path: Option<CString>,
    /// Reason why this copy of the implementation must not be used; `None` if no other copy was found.
    pub(crate) conflict: Option<CString>,
}

/// Searches all loaded files for another copy of the implementation. `own` must be the address at which this copy
/// exports `symbol`.
pub(crate) fn find(symbol: &CStr, own: *const c_void) -> Instance {
    let path = objects::file_of(own);
    let other = objects::symbols_named(symbol).into_iter().find(|address| *address != own);
    let conflict = other.map(|other| conflict(path.as_deref(), objects::file_of(other).as_deref()));
    Instance { path: path.and_then(c_string), conflict: conflict.and_then(c_string) }
}

fn conflict(own: Option<&str>, other: Option<&str>) -> String {
    let show = |path: Option<&str>| String::from(path.unwrap_or("an unknown file"));
    format!("two copies of anyfn are loaded: {} and {}", show(other), show(own))
}

fn c_string(text: String) -> Option<CString> {
    CString::new(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_both_files() {
        let text = conflict(Some("/a/liba.so"), Some("/b/libb.so"));
        assert_eq!(text, "two copies of anyfn are loaded: /b/libb.so and /a/liba.so");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn sees_symbols_of_other_files() {
        // Every process here contains the C library, whose symbol is not at this test's address.
        let own = (&raw const EMPTY).cast();
        let found = find(c"malloc", own);
        assert!(found.path.is_some());
        assert!(found.conflict.unwrap().to_str().unwrap().contains("two copies"));
        assert!(find(c"anyfn_no_such_symbol", own).conflict.is_none());
    }

    static EMPTY: u8 = 0;
}
