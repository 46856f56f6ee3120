//! Plans: fields and hooks of a type, cached for the duration of one operation.

use alloc::vec::Vec;
use core::mem::ManuallyDrop;

use anyfn::reflection::{Field, TypeInfo};
use anyfn::{Error, ObjectRef, Result};

use crate::column::Column;
use crate::table::Table;

/// Fields and hooks of a type, cached for one operation.
pub(crate) struct Plan {
    pub(crate) info: TypeInfo,
    /// Structural kind of the type, one of the constants `kTVMFFISEqHashKind*`.
    pub(crate) kind: i64,
    /// True if the objects of the type are enumeration values.
    pub(crate) is_enum: bool,
    /// True if the type has registered a hook for the operation that uses this plan, such as a comparison.
    pub(crate) hooked: bool,
    /// Fields of the type that the operation processes, beginning with those of the parent type.
    pub(crate) fields: Vec<Field>,
}

/// Cache of plans, one for each type that an operation has encountered.
pub(crate) struct Plans {
    /// Flags of the fields that the operation ignores. A field is ignored if it has any of these flags.
    skip: i64,
    /// Type attribute, such as `__s_equal__`, under which types register hooks for the operation; `None` if
    /// the operation has no hooks.
    hooks: Option<&'static Column>,
    list: Vec<Plan>,
    by_type: Table<usize, u32>,
    /// Type index of the most recent lookup, and the index in `list` of the plan for that type.
    last: (i32, u32),
}

impl Plans {
    /// Creates an empty cache for an operation without hooks. The operation ignores fields that have any of
    /// the flags `skip`.
    pub(crate) fn new(skip: i64) -> Plans {
        Plans { skip, hooks: None, list: Vec::new(), by_type: Table::default(), last: (-1, 0) }
    }

    /// Creates an empty cache for an operation whose hooks types register under the attribute `hooks`. The
    /// operation ignores fields that have any of the flags `skip`.
    pub(crate) fn with_hooks(skip: i64, hooks: &'static Column) -> Plans {
        Plans { hooks: Some(hooks), ..Plans::new(skip) }
    }

    /// Returns the index of the plan for an object's type, and creates the plan if necessary.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the type is not in the type table, which does not occur for a valid object.
    #[inline]
    pub(crate) fn of(&mut self, object: &ObjectRef) -> Result<u32> {
        let index = object.type_index();
        if self.last.0 == index {
            return Ok(self.last.1);
        }
        self.find(index)
    }

    fn find(&mut self, index: i32) -> Result<u32> {
        let at = match self.by_type.get(index as usize) {
            Some(at) => at,
            None => self.make(index)?,
        };
        self.last = (index, at);
        Ok(at)
    }

    #[cold]
    fn make(&mut self, index: i32) -> Result<u32> {
        let info = TypeInfo::from_index(index)
            .ok_or_else(|| Error::new("RuntimeError", "the type of an object is not registered"))?;
        let mut fields = Vec::with_capacity(info.lineage().map(|ancestor| ancestor.own_fields().len()).sum());
        fields.extend(info.fields().filter(|field| !field.has(self.skip)));
        let at = self.list.len() as u32;
        // The type is derived from the root, so it is the second of each lineage that contains it.
        let is_enum = info.lineage().nth(1).is_some_and(|ancestor| ancestor.key() == "ffi.Enum");
        let hooked = self.hooks.is_some_and(|hooks| hooks.has(index));
        self.list.push(Plan { info, kind: info.structural_kind().into(), is_enum, hooked, fields });
        self.by_type.set(index as usize, at);
        Ok(at)
    }

    /// Returns the plan at index `at`.
    #[inline]
    pub(crate) fn get(&self, at: u32) -> &Plan {
        &self.list[at as usize]
    }

    /// Returns the field with the index `number` in the plan at index `at`; `None` if the plan has fewer
    /// fields.
    #[inline]
    pub(crate) fn field(&self, at: u32, number: u32) -> Option<Field> {
        self.list[at as usize].fields.get(number as usize).copied()
    }
}

/// Returns the value of an object's field. The field must belong to the object's type.
///
/// # Errors
/// Returns the error of the getter.
#[inline]
pub(crate) fn read(field: Field, object: &ObjectRef) -> Result<anyfn::Any> {
    // SAFETY: the fields of a plan are only used with objects of exactly this type.
    unsafe { field.get_unchecked(object) }
}

/// Borrows the value of an object's field without incrementing the reference count of the value.
/// Returns `None` if the value may change or cannot be borrowed.
///
/// # Safety
/// The result may be used only as long as the object lives.
#[inline]
pub(crate) unsafe fn lend(field: Field, object: &ObjectRef) -> Option<ManuallyDrop<anyfn::Any>> {
    // SAFETY: the fields of a plan are only used with objects of exactly this type; the caller guarantees the rest.
    unsafe { field.lend_unchecked(object) }
}

/// Reads an object's field into `value`. Before the call, `value` must not own an object.
///
/// # Errors
/// Returns the error of the getter.
#[inline]
pub(crate) fn read_into(field: Field, object: &ObjectRef, value: &mut anyfn::Any) -> Result<()> {
    // SAFETY: the fields of a plan are only used with objects of exactly this type.
    unsafe { field.get_into_unchecked(object, value) }
}
