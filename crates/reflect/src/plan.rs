//! Plans: fields and hooks of a type, as one kind of operation uses them. Plans are cached for the lifetime of the process.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::ManuallyDrop;

use anyfn::reflection::{Field, TypeInfo};
use anyfn::{Error, ObjectRef, Result};

use crate::column::Column;
use crate::published::PublishedVec;

/// Fields and hooks of a type. A plan never changes.
pub(crate) struct Plan {
    pub(crate) info: TypeInfo,
    type_index: i32,
    /// Structural kind of the type, one of the constants `kTVMFFISEqHashKind*`.
    pub(crate) kind: i64,
    /// True if the objects of the type are enumeration values.
    pub(crate) is_enum: bool,
    /// True if the type has registered a hook for the operation that uses this plan, such as a comparison.
    pub(crate) hooked: bool,
    /// Fields of the type that the operation processes, beginning with those of the parent type.
    pub(crate) fields: Vec<Field>,
    /// State of the registration of the type when the plan was made.
    made_at: Registered,
    /// Plan that this one has replaced. It is never freed, since operations on other threads may use it.
    _replaced: Option<&'static Plan>,
}

/// State of the registration of a type. When it changes, the plan of the type is outdated.
#[derive(PartialEq)]
struct Registered {
    /// Number of fields of the type and its ancestors.
    fields: usize,
    has_metadata: bool,
    hooked: bool,
}

/// Cache of the plans for one kind of operation, shared by all threads.
pub(crate) struct PlanCache {
    /// Flags of the fields that the operation ignores. A field is ignored if it has any of these flags.
    skip: i64,
    /// Type attribute, such as `__s_equal__`, under which types register hooks for the operation; `None` if
    /// the operation has no hooks.
    hooks: Option<&'static Column>,
    by_type: PublishedVec<Plan>,
}

impl PlanCache {
    /// Creates an empty cache for an operation without hooks. The operation ignores fields that have any of
    /// the flags `skip`.
    pub(crate) const fn new(skip: i64) -> PlanCache {
        PlanCache { skip, hooks: None, by_type: PublishedVec::new() }
    }

    /// Creates an empty cache for an operation whose hooks types register under the attribute `hooks`. The
    /// operation ignores fields that have any of the flags `skip`.
    pub(crate) const fn with_hooks(skip: i64, hooks: &'static Column) -> PlanCache {
        PlanCache { skip, hooks: Some(hooks), by_type: PublishedVec::new() }
    }

    /// Returns the plan for a type according to what the type has registered so far.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the type is not in the type table, which does not occur for a valid object.
    fn get(&self, index: i32) -> Result<&'static Plan> {
        let unknown = || Error::new("RuntimeError", "the type of an object is not registered");
        let info = TypeInfo::from_index(index).ok_or_else(unknown)?;
        let cell = self.by_type.cell(index).ok_or_else(unknown)?;
        let mut known = cell.get();
        loop {
            // Read before the fields and hooks: whatever is registered meanwhile makes the plan outdated.
            let registered = self.registered(info);
            if let Some(plan) = known
                && plan.made_at == registered
            {
                return Ok(plan);
            }
            // If another thread was faster, its plan may be older than `registered`, so it is compared as well.
            known = Some(cell.replace(known, Box::new(self.make(info, registered, known))));
        }
    }

    fn registered(&self, info: TypeInfo) -> Registered {
        Registered {
            fields: info.lineage().map(|ancestor| ancestor.own_fields().len()).sum(),
            has_metadata: info.has_metadata(),
            hooked: self.hooks.is_some_and(|hooks| hooks.has(info.index())),
        }
    }

    #[cold]
    fn make(&self, info: TypeInfo, made_at: Registered, replaced: Option<&'static Plan>) -> Plan {
        let mut fields = Vec::with_capacity(made_at.fields);
        fields.extend(info.fields().filter(|field| !field.has(self.skip)));
        Plan {
            info,
            type_index: info.index(),
            kind: info.structural_kind().into(),
            // The type is derived from the root, so it is the second of each lineage that contains it.
            is_enum: info.lineage().nth(1).is_some_and(|ancestor| ancestor.key() == "ffi.Enum"),
            hooked: made_at.hooked,
            fields,
            made_at,
            _replaced: replaced,
        }
    }
}

/// Number of plans that an operation finds without a look at the shared cache. A power of two.
const NEAR: usize = 16;

/// Plans that one operation uses. They are looked up in a shared cache when the operation encounters their types.
pub(crate) struct Plans {
    cache: &'static PlanCache,
    /// Plans by the low bits of their type indices.
    near: [Option<&'static Plan>; NEAR],
}

impl Plans {
    /// Creates the state for an operation that uses the plans in `cache`.
    pub(crate) const fn new(cache: &'static PlanCache) -> Plans {
        Plans { cache, near: [None; NEAR] }
    }

    /// Returns the plan for an object's type.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the type is not in the type table, which does not occur for a valid object.
    #[inline]
    pub(crate) fn of(&mut self, object: &ObjectRef) -> Result<&'static Plan> {
        let index = object.type_index();
        match self.near[index as usize % NEAR] {
            Some(plan) if plan.type_index == index => Ok(plan),
            _ => self.find(index),
        }
    }

    #[inline(never)]
    fn find(&mut self, index: i32) -> Result<&'static Plan> {
        let plan = self.cache.get(index)?;
        self.near[index as usize % NEAR] = Some(plan);
        Ok(plan)
    }
}

impl Plan {
    /// Returns the field with the index `number`; `None` if the plan has fewer fields.
    #[inline]
    pub(crate) fn field(&self, number: usize) -> Option<Field> {
        self.fields.get(number).copied()
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
