//! Attributes of types: one column per attribute, one entry per type.
//!
//! Clients keep the address of a column and read it without a lock, so a column is never freed and its old arrays are
//! kept. They also keep the answer that there is no column; so the well-known ones exist from the start.

use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use anyfn::abi::{TVMFFIAny, TVMFFITypeAttrColumn, kTVMFFIBigInt, kTVMFFINone, kTVMFFIOpaquePtr};
use anyfn::{AnyView, Result, bail};

use crate::sync::{NameTable, Start};
use crate::sys::Mutex;
use crate::type_table;

/// Columns that clients expect to exist.
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

/// A column. Clients see the first field.
#[repr(C)]
struct Column {
    shown: TVMFFITypeAttrColumn,
    /// All arrays so far; the last one is shown.
    arrays: Mutex<Vec<Box<[TVMFFIAny]>>>,
}

// SAFETY: what is shown is changed under the lock by atomic stores; entries are set once and live for ever.
unsafe impl Send for Column {}
// SAFETY: as above.
unsafe impl Sync for Column {}

static COLUMNS: NameTable<Column> = NameTable::new();
static START: Start = Start::new();

fn make_well_known() {
    for name in WELL_KNOWN {
        column_of(name.as_bytes());
    }
    for (name, hook) in crate::bigint::hooks() {
        let mut value = TVMFFIAny::NONE;
        value.type_index = kTVMFFIOpaquePtr;
        value.value.v_ptr = hook;
        // SAFETY: an opaque pointer is valid whatever it holds.
        if let Err(error) = unsafe { set(kTVMFFIBigInt, name.as_bytes(), &value) } {
            // Never so: the type is built in and the entry is new. Large integers would be equal by identity then.
            drop(error);
        }
    }
}

fn column_of(name: &[u8]) -> &'static Column {
    COLUMNS.get_or_insert(name, || Column {
        shown: TVMFFITypeAttrColumn { data: ptr::null(), size: 0, begin_index: 0 },
        arrays: Mutex::new(Vec::new()),
    })
}

/// The column of an attribute, if anything has registered it.
#[inline]
pub(crate) fn column(name: &[u8]) -> Option<&'static TVMFFITypeAttrColumn> {
    START.ensure(make_well_known);
    COLUMNS.get(name).map(|column| &column.shown)
}

/// Sets an attribute of a type, once; type index 0 only makes the column.
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
    let size = column.shown_size();
    let entry = column.entry(&mut arrays, at);
    // SAFETY: within the current array; only read here, under the lock.
    if unsafe { (*entry).type_index } != kTVMFFINone {
        bail!(
            "RuntimeError",
            "TypeAttr `{}` is already registered for type index {type_index}. To update the stored value, register a \
             mutable container (e.g., Dict/List) once and mutate it in place on subsequent calls.",
            String::from_utf8_lossy(name)
        );
    }
    let raw = value.into_raw();
    // A reader looks at the type index first: it is stored last.
    // SAFETY: within the current array, and not read by anyone while the type index is None.
    unsafe { (*entry).small_str_len = raw.small_str_len };
    // SAFETY: as above.
    unsafe { (*entry).value = raw.value };
    // SAFETY: as above; from now on the entry does not change.
    unsafe { type_cell(entry) }.store(raw.type_index, Ordering::Release);
    if at >= size {
        column.show_size(at + 1);
    }
    Ok(())
}

/// The attribute of a type, if it is set.
#[allow(dead_code, reason = "for functions that construct objects")]
pub(crate) fn get(type_index: i32, name: &[u8]) -> Option<&'static TVMFFIAny> {
    let column = column(name)?;
    let at = usize::try_from(type_index).ok()?;
    // SAFETY: changed by atomic stores only.
    let size = unsafe { AtomicI32::from_ptr((&raw const column.size).cast_mut()) }.load(Ordering::Acquire);
    if at >= size as usize {
        return None;
    }
    // SAFETY: changed by atomic stores only.
    let data = unsafe { AtomicPtr::from_ptr((&raw const column.data).cast_mut().cast::<*mut TVMFFIAny>()) };
    // SAFETY: the array was stored before the size that covers `at`.
    let entry = unsafe { data.load(Ordering::Acquire).add(at) };
    // SAFETY: an entry of a column, which lives for ever.
    if unsafe { type_cell(entry) }.load(Ordering::Acquire) == kTVMFFINone {
        return None;
    }
    // SAFETY: an entry that is set does not change and lives for ever.
    Some(unsafe { &*entry })
}

/// The type index of an entry, which changes once.
///
/// # Safety
/// The entry must be of a column's array: those live for ever.
unsafe fn type_cell(entry: *mut TVMFFIAny) -> &'static AtomicI32 {
    // SAFETY: the caller guarantees a live entry.
    let cell = unsafe { &raw mut (*entry).type_index };
    // SAFETY: as above; the type index is changed by atomic stores only.
    unsafe { AtomicI32::from_ptr(cell) }
}

impl Column {
    /// The entry `at` of the current array, which grows if it has to.
    fn entry(&self, arrays: &mut Vec<Box<[TVMFFIAny]>>, at: usize) -> *mut TVMFFIAny {
        if arrays.last().is_none_or(|array| array.len() <= at) {
            let capacity = (at + 1).next_power_of_two().max(FIRST_CAPACITY);
            let mut larger = Vec::with_capacity(capacity);
            larger.extend_from_slice(arrays.last().map_or(&[], |array| array));
            larger.resize(capacity, TVMFFIAny::NONE);
            arrays.push(larger.into());
            if let Some(array) = arrays.last_mut() {
                // SAFETY: changed under the lock only, by atomic stores.
                let data = unsafe {
                    AtomicPtr::from_ptr((&raw const self.shown.data).cast_mut().cast::<*mut TVMFFIAny>())
                };
                data.store(array.as_mut_ptr(), Ordering::Release);
            }
        }
        arrays.last_mut().map_or(ptr::null_mut(), |array| &raw mut array[at])
    }

    fn size_cell(&self) -> &AtomicI32 {
        // SAFETY: changed under the lock only, by atomic stores.
        unsafe { AtomicI32::from_ptr((&raw const self.shown.size).cast_mut()) }
    }

    fn shown_size(&self) -> usize {
        self.size_cell().load(Ordering::Acquire) as usize
    }

    fn show_size(&self, size: usize) {
        self.size_cell().store(size as i32, Ordering::Release);
    }
}
