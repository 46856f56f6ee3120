//! Plans: the fields and hooks of the types that one operation encounters.

use alloc::vec::Vec;
use core::mem::ManuallyDrop;

use anyfn::reflection::{Field, TypeInfo};
use anyfn::{Error, ObjectRef, Result};

use crate::column::Column;
use crate::table::Table;

/// Information about a type for one operation.
pub(crate) struct Plan {
    pub(crate) info: TypeInfo,
    /// Structural kind of the type: one of the constants `kTVMFFISEqHashKind*`.
    pub(crate) kind: i64,
    /// True if the objects of the type are the values of an enumeration.
    pub(crate) is_enum: bool,
    /// True if the type has a hook for the operation.
    pub(crate) hooked: bool,
    /// Fields that take part in the operation, beginning with the fields of the parent type.
    pub(crate) fields: Vec<Field>,
}

/// Plans of the types that an operation has encountered.
pub(crate) struct Plans {
    /// Flags that exclude a field from the operation.
    skip: i64,
    /// Attribute under which types register hooks for the operation.
    hooks: Option<&'static Column>,
    list: Vec<Plan>,
    by_type: Table<usize, u32>,
    /// Type index that was looked up most recently, and the index of its plan.
    last: (i32, u32),
}

impl Plans {
    /// Creates an empty list of plans. Fields with one of the flags `skip` do not take part in the operation.
    pub(crate) fn new(skip: i64) -> Plans {
        Plans { skip, hooks: None, list: Vec::new(), by_type: Table::default(), last: (-1, 0) }
    }

    /// Creates an empty list of plans for an operation for which types may register hooks under the attribute `hooks`.
    pub(crate) fn with_hooks(skip: i64, hooks: &'static Column) -> Plans {
        Plans { hooks: Some(hooks), ..Plans::new(skip) }
    }

    /// Returns the index of the plan for an object's type.
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
        let fields = info.fields().filter(|field| !field.has(self.skip)).collect();
        let at = self.list.len() as u32;
        let is_enum = info.lineage().any(|ancestor| ancestor.key() == "ffi.Enum");
        let hooked = self.hooks.is_some_and(|hooks| hooks.has(index));
        self.list.push(Plan { info, kind: info.structural_kind().into(), is_enum, hooked, fields });
        self.by_type.set(index as usize, at);
        Ok(at)
    }

    /// Returns the plan at an index.
    #[inline]
    pub(crate) fn get(&self, at: u32) -> &Plan {
        &self.list[at as usize]
    }

    /// Returns the field at index `number` of the plan at index `at`; `None` if the plan has fewer fields.
    #[inline]
    pub(crate) fn field(&self, at: u32, number: u32) -> Option<Field> {
        self.list[at as usize].fields.get(number as usize).copied()
    }
}

/// Reads a field of an object. The field must belong to the object's type.
///
/// # Errors
/// Returns the error of the getter.
#[inline]
pub(crate) fn read(field: Field, object: &ObjectRef) -> Result<anyfn::Any> {
    // SAFETY: the fields of a plan are only used with objects of exactly this type.
    unsafe { field.get_unchecked(object) }
}

/// Borrows the value of a field from the object if the field never changes; returns `None` for other fields.
///
/// # Safety
/// The result may be used only as long as the object lives.
#[inline]
pub(crate) unsafe fn lend(field: Field, object: &ObjectRef) -> Option<ManuallyDrop<anyfn::Any>> {
    // SAFETY: the fields of a plan are only used with objects of exactly this type; the caller guarantees the rest.
    unsafe { field.lend_unchecked(object) }
}

/// Reads a field as [`read`] does and writes the result to `value`, which must not own an object.
///
/// # Errors
/// Returns the error of the getter.
#[inline]
pub(crate) fn read_into(field: Field, object: &ObjectRef, value: &mut anyfn::Any) -> Result<()> {
    // SAFETY: the fields of a plan are only used with objects of exactly this type.
    unsafe { field.get_into_unchecked(object, value) }
}
