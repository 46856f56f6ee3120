//! Type attributes: one column per attribute, one entry per type.
//!
//! Clients keep the address of a column and read it without a lock, so a column is never freed and its old arrays are
//! kept. Clients also remember that a column does not exist, so the well-known columns exist from the start.

use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use alloc::string::String;
use alloc::vec::Vec;

use anyfn::abi::{TVMFFIAny, kTVMFFIBigInt, kTVMFFINone, kTVMFFIObject, kTVMFFIOpaquePtr, kTVMFFITensor};
use anyfn::shared::{SharedColumn, set_entry};
use anyfn::{AnyView, Result, bail};

use crate::sync::{NameTable, Start};
use crate::sys::Mutex;
use crate::type_table;

/// Names of the type attributes whose columns always exist.
const WELL_KNOWN: &[&str] = &[
    "__ffi_new__",
    "__ffi_init__",
    "__ffi_shallow_copy__",
    "__ffi_convert__",
    "__ffi_convert_type_schema__",
    "__ffi_type_final__",
    "__ffi_repr__",
    "__ffi_hash__",
    "__ffi_eq__",
    "__ffi_compare__",
    "__ffi_enum__",
    "__data_to_json__",
    "__data_from_json__",
    "__any_hash__",
    "__any_equal__",
    "__s_visit__",
    "__s_mutate__",
    "__s_maybe_inplace_mutate__",
    "__s_equal__",
    "__s_hash__",
];

const FIRST_CAPACITY: usize = 256;

/// Column of a type attribute. Users of the C ABI see only its first field, `shown`.
#[repr(C)]
struct Column {
    shown: SharedColumn,
    /// Arrays that have held the entries of this column, the current one last. [`Column::shown`] refers to
    /// the current array. The other arrays are never freed, because readers may still use them. This list
    /// refers to them so that leak checkers find them.
    arrays: Mutex<Vec<Entries>>,
}

/// Address of an array that holds the entries of a column. The array is never freed. No reference to the
/// whole array is formed, because readers hold references to single entries while other entries are written.
#[derive(Clone, Copy)]
struct Entries(*mut [TVMFFIAny]);

// SAFETY: the surrounding lock determines the writer; readers first read an entry's type index, which is atomic.
unsafe impl Send for Entries {}

static COLUMNS: NameTable<Column> = NameTable::new();
static START: Start = Start::new();

fn make_well_known() {
    for name in WELL_KNOWN {
        column_of(name.as_bytes());
    }
    let (name, functions) = crate::access::attribute();
    let mut value = TVMFFIAny::NONE;
    value.type_index = kTVMFFIOpaquePtr;
    value.value.v_ptr = functions;
    // SAFETY: every address is a valid opaque pointer.
    if let Err(error) = unsafe { set(kTVMFFITensor, name.as_bytes(), &value) } {
        // Cannot happen: the type is built in and nothing could set the entry earlier. Libraries would then exclude
        // only their own accesses.
        drop(error);
    }
    let (name, count) = anyfn::making::attribute();
    value.value.v_ptr = count;
    // SAFETY: every address is a valid opaque pointer.
    if let Err(error) = unsafe { set(kTVMFFIObject, name.as_bytes(), &value) } {
        // Cannot happen: the type is built in and the entry is new.
        drop(error);
    }
    for (name, hook) in crate::bigint::hooks() {
        let mut value = TVMFFIAny::NONE;
        value.type_index = kTVMFFIOpaquePtr;
        value.value.v_ptr = hook;
        // SAFETY: every address is a valid opaque pointer.
        if let Err(error) = unsafe { set(kTVMFFIBigInt, name.as_bytes(), &value) } {
            // Cannot happen: the type is built in and the entry is new. Large integers would then be compared by
            // identity.
            drop(error);
        }
    }
}

fn column_of(name: &[u8]) -> &'static Column {
    COLUMNS.get_or_insert(name, || Column {
        shown: SharedColumn { data: AtomicPtr::new(ptr::null_mut()), size: AtomicI32::new(0), begin_index: 0 },
        arrays: Mutex::new(Vec::new()),
    })
}

/// Returns the column of the type attribute called `name`, or `None` if no code has registered this
/// attribute.
#[inline]
pub(crate) fn column(name: &[u8]) -> Option<&'static SharedColumn> {
    START.ensure(make_well_known);
    COLUMNS.get(name).map(|column| &column.shown)
}

/// Sets the attribute `name` of a type. An attribute that is already set cannot be changed. With
/// the type index 0, that of `None`, only the column is created.
///
/// # Safety
/// `value` must be valid.
pub(crate) unsafe fn set(type_index: i32, name: &[u8], value: &TVMFFIAny) -> Result<()> {
    START.ensure(make_well_known);
    if type_index == kTVMFFINone {
        column_of(name);
        return Ok(());
    }
    type_table::info_or_error(type_index)?;
    // SAFETY: the caller guarantees a valid value.
    let value = unsafe { AnyView::from_raw(*value) }.to_owned();
    let column = column_of(name);
    let at = type_index as usize;
    let mut arrays = column.arrays.lock();
    if column.shown.get(type_index).is_some() {
        bail!(
            "RuntimeError",
            "TypeAttr `{}` is already registered for type index {type_index}. To update the stored value, register a \
             mutable container (e.g., Dict/List) once and mutate it in place on subsequent calls.",
            String::from_utf8_lossy(name)
        );
    }
    let entry = column.entry(&mut arrays, at);
    // SAFETY: the entry belongs to the column's array and is None, and this thread holds the writers' lock.
    unsafe { set_entry(entry, value.into_raw()) };
    if at >= column.shown.size.load(Ordering::Relaxed) as usize {
        column.shown.size.store(type_index + 1, Ordering::Release);
    }
    Ok(())
}

/// Returns the attribute `name` of a type, or `None` if it is not set.
pub(crate) fn get(type_index: i32, name: &[u8]) -> Option<&'static TVMFFIAny> {
    column(name)?.get(type_index)
}

impl Column {
    /// Returns the address of the entry for the type with the index `at`. If the current array is too short,
    /// replaces it with a larger one.
    fn entry(&self, arrays: &mut Vec<Entries>, at: usize) -> *mut TVMFFIAny {
        let none = || ptr::slice_from_raw_parts_mut(ptr::null_mut(), 0);
        let mut array = arrays.last().map_or_else(none, |Entries(array)| *array);
        if array.len() <= at {
            let capacity = (at + 1).next_power_of_two().max(FIRST_CAPACITY);
            let larger: *mut [TVMFFIAny] = alloc::vec![TVMFFIAny::NONE; capacity].leak();
            // SAFETY: the old array has this many entries, which only this thread may write, and the new array has
            // more.
            unsafe { ptr::copy_nonoverlapping(array.cast::<TVMFFIAny>(), larger.cast(), array.len()) };
            arrays.push(Entries(larger));
            array = larger;
            self.shown.data.store(larger.cast(), Ordering::Release);
        }
        array.cast::<TVMFFIAny>().wrapping_add(at)
    }
}
