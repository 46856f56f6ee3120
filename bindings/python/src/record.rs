//! Fields of object types that Python classes define. The extension stores values in these fields
//! directly, without calling a setter.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use anyfn::abi::{TVMFFIObject, kTVMFFIFieldFlagBitMaskReprOff, kTVMFFIFieldFlagBitMaskWritable};
use anyfn::record::{FieldKind, SLOTS_ATTRIBUTE, Slot, schema_text};
use anyfn::reflection::{self, TypeInfo};
use anyfn::{Any, ObjectRef};

use crate::at::At;
use crate::owned::lower_owned;
use crate::py::{self, Obj, Own, Res};
use crate::{error, gil, lift, object};

/// Description of an object type that a Python class has defined: the name of the class and the
/// fields. The description lives for the lifetime of the process, like the type.
pub(crate) struct Record {
    pub(crate) type_index: i32,
    /// Name of the class that has defined the type, for messages.
    pub(crate) class: String,
    /// All fields, beginning with the fields of the parent type.
    pub(crate) fields: Vec<Field>,
}

/// Field of an object type that a Python class has defined.
pub(crate) struct Field {
    pub(crate) info: reflection::Field,
    pub(crate) name: &'static str,
    /// Kind of value that the field accepts. `None` for a field that must be set through its
    /// setter, such as a field inherited from a native type.
    pub(crate) kind: Option<FieldKind>,
    /// Type of the field as shown in messages.
    pub(crate) shown: String,
    /// Offset of the field from the beginning of the object, in bytes.
    offset: usize,
}

impl Field {
    pub(crate) fn is_writable(&self) -> bool {
        self.info.has(kTVMFFIFieldFlagBitMaskWritable)
    }
}

impl Record {
    /// Creates the record of a type from the type table. `shown` contains the names of fields, each
    /// with the type that messages show for the field. For a field that is not in `shown`, this
    /// type is taken from the record of the type that adds the field, or from the field's schema.
    pub(crate) fn of(type_index: i32, class: String, shown: &[(String, String)]) -> Option<Record> {
        let mut fields = Vec::new();
        for owner in TypeInfo::from_index(type_index)?.lineage() {
            let slots = owner.attribute(SLOTS_ATTRIBUTE).is_some();
            let known = record_of(owner.index());
            for info in owner.own_fields() {
                let name = info.name();
                let schema = anyfn::__private::field_schema(info.metadata());
                let kind = FieldKind::parse(&schema, &anyfn::type_index_of);
                let before = known.and_then(|known| known.fields.iter().find(|field| field.name == name));
                let told = shown.iter().find(|(known, _)| known == name).map(|(_, shown)| shown);
                let shown = told.or(before.map(|field| &field.shown)).cloned();
                let shown = shown.unwrap_or_else(|| schema_text(&schema));
                let offset = usize::try_from(info.offset()).ok()?;
                // A slot whose type cannot be resolved is also set by its own setter.
                fields.push(Field { info, name, kind: kind.ok().filter(|_| slots), shown, offset });
            }
        }
        Some(Record { type_index, class, fields })
    }

    /// Converts a Python value and stores it in the field at `index`. The object must be under construction, or the
    /// field must be writable.
    #[inline]
    pub(crate) fn set(&self, object: &ObjectRef, index: usize, value: Obj<'_>) -> Res<()> {
        let value = self.accept(index, value)?;
        self.put(object, index, value)
    }

    /// Stores a value in the field at `index`, which must accept the value.
    #[inline]
    pub(crate) fn put(&self, object: &ObjectRef, index: usize, value: Any) -> Res<()> {
        let field = &self.fields[index];
        if field.kind.is_none() {
            return put_native(field, object, &value);
        }
        // SAFETY: the object has this type, and the field accepts the value.
        unsafe { Slot::write(object.as_handle().wrapping_byte_add(field.offset).cast(), value) };
        Ok(())
    }

    /// Converts a Python value to a native value for the field at `index`. Raises `TypeError` if the field does not
    /// accept the value.
    #[inline]
    pub(crate) fn accept(&self, index: usize, value: Obj<'_>) -> Res<Any> {
        let field = &self.fields[index];
        let at = At::Field { class: &self.class, name: field.name };
        let lowered = lower_owned(value, &at)?;
        let Some(kind) = &field.kind else { return Ok(lowered) };
        match kind.accept(lowered) {
            Ok(value) => Ok(value),
            Err(_) => self.refuse(index, value),
        }
    }

    #[cold]
    pub(crate) fn refuse<T>(&self, index: usize, value: Obj<'_>) -> Res<T> {
        let field = &self.fields[index];
        let at = At::Field { class: &self.class, name: field.name };
        let message = format!("expected {} but got {}", field.shown, value.class_name());
        at.raise(py::exceptions::type_error(), &message)
    }
}

#[cold]
fn put_native(field: &Field, object: &ObjectRef, value: &Any) -> Res<()> {
    // SAFETY: this is a field of the object's type, and the object is under construction or the field is writable.
    gil::counted(|| unsafe { field.info.set_unchecked(object, &value.as_view()) }).map_err(error::raise)
}

/// Table of records, indexed by type index.
type Table = Vec<AtomicPtr<Record>>;

/// The current table of records, which is replaced by a larger one when it has to grow. It is
/// changed only while the GIL is held.
static RECORDS: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

fn table() -> Option<&'static Table> {
    // SAFETY: the pointer is NULL or a table that lives as long as the process.
    unsafe { RECORDS.load(Ordering::Acquire).as_ref() }
}

/// Returns the record of a type, or `None` if no Python class has defined the type.
#[inline]
pub(crate) fn record_of(type_index: i32) -> Option<&'static Record> {
    let record = table()?.get(usize::try_from(type_index).ok()?)?.load(Ordering::Acquire);
    // SAFETY: the pointer is NULL or a record that lives as long as the process.
    unsafe { record.as_ref() }
}

/// Returns the record of an object's type, or `None` if no Python class has defined the type.
#[inline]
pub(crate) fn record_of_object(object: *mut TVMFFIObject) -> Option<&'static Record> {
    // SAFETY: the caller has a valid object.
    record_of(unsafe { (*object).type_index })
}

/// Stores the record of a type permanently.
pub(crate) fn keep(record: Record) -> &'static Record {
    let at = usize::try_from(record.type_index).unwrap_or(0);
    let record: &'static mut Record = Box::leak(Box::new(record));
    let record = ptr::from_mut(record);
    match table().and_then(|table| table.get(at)) {
        Some(place) => place.store(record, Ordering::Release),
        None => {
            let known =
                |at: usize| table().and_then(|table| table.get(at)).map(|old| old.load(Ordering::Acquire));
            let size = (at + 1).next_power_of_two().max(256);
            let larger: Table = (0..size)
                .map(|index| {
                    AtomicPtr::new(if index == at { record } else { known(index).unwrap_or(ptr::null_mut()) })
                })
                .collect();
            // The old table is never freed, since other threads may be reading it.
            RECORDS.store(Box::into_raw(Box::new(larger)), Ordering::Release);
        }
    }
    // SAFETY: the record was made above and lives as long as the process.
    unsafe { &*record }
}

// ---- Attributes

/// Raises an `AttributeError` in place of the error of a failed getter, if the field belongs to a
/// type that is defined in Python. The getter of such a field fails only because the field has not
/// been set. Leaves the errors of other getters as they are.
#[cold]
pub(crate) fn explain_unset(this: Obj<'_>, name: &str) -> Res<()> {
    if record_of_object(object::handle_unchecked(this)).is_none_or(|record| !record.has(name)) {
        return Ok(());
    }
    let message = format!("field '{name}' of {} has not been set", this.class_name());
    py::raise(py::exceptions::attribute_error(), &message)
}

impl Record {
    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.kind.is_some() && field.name == name)
    }
}

/// Stores a Python value in the field at the address `at`. Returns false and stores nothing if the
/// object's type is not defined in Python or the field has its own setter.
#[inline]
pub(crate) fn set_field(handle: *mut TVMFFIObject, at: *mut c_void, value: Obj<'_>) -> Res<bool> {
    let Some(record) = record_of_object(handle) else { return Ok(false) };
    let offset = at.addr() - handle.addr();
    let Some(index) = record.fields.iter().position(|field| field.offset == offset && field.kind.is_some())
    else {
        return Ok(false);
    };
    let value = record.accept(index, value)?;
    // SAFETY: the instance keeps the object alive, and the field accepts the value.
    unsafe { Slot::write(at.cast(), value) };
    Ok(true)
}

/// Maximum depth to which `repr` shows nested objects.
const SHOWN_DEPTH: usize = 20;

/// Returns the `repr` of an object, such as `Pair(a=1, b=2)`.
pub(crate) fn repr(this: Obj<'_>, record: &Record) -> Res<Own> {
    thread_local! {
        /// Addresses of the objects that this thread is formatting, outermost first.
        static WRITING: std::cell::RefCell<Vec<usize>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    struct Written;
    impl Drop for Written {
        fn drop(&mut self) {
            WRITING.with_borrow_mut(Vec::pop);
        }
    }
    let class = this.class_name();
    let Some(object) = object::reference_of(this) else { return py::string(class.as_bytes()) };
    let address = object.as_handle().addr();
    let begun = WRITING.with_borrow_mut(|writing| {
        let goes = writing.len() < SHOWN_DEPTH && !writing.contains(&address);
        if goes {
            writing.push(address);
        }
        goes
    });
    if !begun {
        return py::string(format!("{class}(...)").as_bytes());
    }
    let _written = Written;
    let mut text = format!("{class}(");
    let shown = record.fields.iter().filter(|field| !field.info.has(kTVMFFIFieldFlagBitMaskReprOff));
    for (index, field) in shown.enumerate() {
        text.push_str(if index == 0 { "" } else { ", " });
        text.push_str(field.name);
        text.push('=');
        // SAFETY: this is a field of the object's type.
        let Ok(value) = gil::counted(|| unsafe { field.info.get_unchecked(&object) }) else {
            text.push_str("<not set>");
            continue;
        };
        let value = lift::lift_owned(value)?;
        // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
        let shown = py::unsafe_new_ref!(py::raw::PyObject_Repr(value.as_ptr()))?;
        text.push_str(&py::text_of(shown.obj().str_bytes()?));
    }
    text.push(')');
    py::string(text.as_bytes())
}
