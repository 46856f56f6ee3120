//! The table of all exported functions, which `anyfn_api` returns.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use alloc::boxed::Box;
use alloc::ffi::CString;

use anyfn::abi::{ABI_VERSION, AnyfnApi};

use super::{env::*, error::*, function::*, object::*, once::*, tensor::*, types::*, value::*};
use crate::instance;

const NAME: &CStr = c"anyfn_api";

/// Function table, created by the first call of `anyfn_api`. If two threads create it at the same time, one of the two
/// tables is dropped.
static TABLE: AtomicPtr<AnyfnApi> = AtomicPtr::new(ptr::null_mut());

macro_rules! table {
    ($($name:ident),*) => {
        fn make() -> AnyfnApi {
            let this = instance::find(NAME, anyfn_api as *const _);
            let keep = |text: Option<CString>| text.map_or(ptr::null(), |text| text.into_raw().cast_const());
            AnyfnApi {
                size: size_of::<AnyfnApi>(),
                version: ABI_VERSION,
                reserved: 0,
                conflict: keep(this.conflict),
                path: keep(this.path),
                $($name),*
            }
        }
    };
}
anyfn_abi::for_each_function!(table);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyfn_api() -> *const AnyfnApi {
    let made = TABLE.load(Ordering::Acquire);
    if !made.is_null() {
        return made;
    }
    super::or_raise(ptr::null(), || {
        let table = Box::into_raw(Box::new(make()));
        match TABLE.compare_exchange(ptr::null_mut(), table, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(table.cast_const()),
            Err(first) => {
                // SAFETY: the table was created above, and nothing else refers to it.
                drop(unsafe { Box::from_raw(table) });
                Ok(first.cast_const())
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyfn::abi::FUNCTION_NAMES;

    #[test]
    fn the_table_is_complete_and_stays() {
        // SAFETY: the function may be called at any time.
        let table = unsafe { anyfn_api() };
        // SAFETY: the function may be called at any time.
        assert_eq!(table, unsafe { anyfn_api() });
        // SAFETY: the table lives as long as the process.
        let table = unsafe { &*table };
        assert_eq!(table.version, ABI_VERSION);
        assert_eq!(FUNCTION_NAMES.len(), 50);
        assert!(table.size >= 50 * size_of::<usize>());
        assert!(table.conflict.is_null());
        assert!(!table.path.is_null());
    }
}
