//! What one operation reads of the types that it meets: their fields and their own functions.

use alloc::vec::Vec;
use core::mem::ManuallyDrop;

use anyfn::reflection::{Field, TypeInfo};
use anyfn::{Error, ObjectRef, Result};

use crate::column::Column;
use crate::table::Table;

/// A type, as one operation needs it.
pub(crate) struct Plan {
    pub(crate) info: TypeInfo,
    /// `kTVMFFISEqHashKind*`.
    pub(crate) kind: i64,
    /// Whether its objects are the values of an enumeration.
    pub(crate) is_enum: bool,
    /// Whether the type has a function of its own for the operation.
    pub(crate) hooked: bool,
    /// The fields that take part, the parent's first.
    pub(crate) fields: Vec<Field>,
}

/// The types that an operation has met.
pub(crate) struct Plans {
    /// Fields with one of these flags do not take part.
    skip: i64,
    /// Where types have functions of their own.
    hooks: Option<&'static Column>,
    list: Vec<Plan>,
    by_type: Table<usize, u32>,
    /// The type that was asked for last, and its place.
    last: (i32, u32),
}

impl Plans {
    /// No types as yet; `skip` are the flags of fields that do not take part.
    pub(crate) fn new(skip: i64) -> Plans {
        Plans { skip, hooks: None, list: Vec::new(), by_type: Table::default(), last: (-1, 0) }
    }

    /// The same, for an operation for which types may have functions of their own.
    pub(crate) fn with_hooks(skip: i64, hooks: &'static Column) -> Plans {
        Plans { hooks: Some(hooks), ..Plans::new(skip) }
    }

    /// The place of an object's type.
    ///
    /// # Errors
    /// `RuntimeError` if the type is not in the table of types: the object is none.
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
            .ok_or_else(|| Error::new("RuntimeError", "an object is of no type that is known"))?;
        let fields = info.fields().filter(|field| !field.has(self.skip)).collect();
        let at = self.list.len() as u32;
        let is_enum = info.lineage().any(|ancestor| ancestor.key() == "ffi.Enum");
        let hooked = self.hooks.is_some_and(|hooks| hooks.has(index));
        self.list.push(Plan { info, kind: info.structural_kind().into(), is_enum, hooked, fields });
        self.by_type.set(index as usize, at);
        Ok(at)
    }

    /// The type at a place.
    #[inline]
    pub(crate) fn get(&self, at: u32) -> &Plan {
        &self.list[at as usize]
    }

    /// The field of a type by its number, if there are so many.
    #[inline]
    pub(crate) fn field(&self, at: u32, number: u32) -> Option<Field> {
        self.list[at as usize].fields.get(number as usize).copied()
    }
}

/// Reads a field of an object whose type has it.
///
/// # Errors
/// That of the type.
#[inline]
pub(crate) fn read(field: Field, object: &ObjectRef) -> Result<anyfn::Any> {
    // SAFETY: the fields of a plan are used with objects of its very type only.
    unsafe { field.get_unchecked(object) }
}

/// The value of a field that never changes, as it lies in the object; `None` for other fields.
///
/// # Safety
/// The result may be used only as long as the object lives.
#[inline]
pub(crate) unsafe fn lend(field: Field, object: &ObjectRef) -> Option<ManuallyDrop<anyfn::Any>> {
    // SAFETY: the fields of a plan are used with objects of its very type only; the caller guarantees the rest.
    unsafe { field.lend_unchecked(object) }
}

/// As [`read`], into a place that holds nothing.
///
/// # Errors
/// That of the type.
#[inline]
pub(crate) fn read_into(field: Field, object: &ObjectRef, value: &mut anyfn::Any) -> Result<()> {
    // SAFETY: the fields of a plan are used with objects of its very type only.
    unsafe { field.get_into_unchecked(object, value) }
}
