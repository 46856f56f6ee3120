//! Structural equality and the corresponding hash, and the path to the first difference.
//!
//! Two values are structurally equal if they have the same form: variables that one value defines correspond to
//! variables that the other defines at the same position, whatever their names.

mod equal;
mod hash;
mod key;
mod path;

use core::sync::atomic::{AtomicBool, Ordering};

use anyfn::__private::{TYPES, TypeEntry, entry};
use anyfn::abi::{
    kTVMFFIFieldFlagBitMaskSEqHashDefPattern as DEF_PATTERN,
    kTVMFFIFieldFlagBitMaskSEqHashDefSimple as DEF_SIMPLE,
};
use anyfn::reflection::Field;
use anyfn::{Any, Error, ObjectRef, Result};

use crate::plan::Plan;

pub(crate) use equal::hook_equal;
pub use equal::{first_mismatch, structural_equal};
pub(crate) use hash::shape as shape_hash;
pub use hash::structural_hash;
pub use key::structural_key;
pub use path::{AccessKind, describe_path};
pub(crate) use path::{Path, Step, extend, root as root_path};

/// Options for comparing and hashing values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// True if two different free variables may be considered equal, provided that they correspond
    /// throughout both values. A free variable is a variable that a value uses but does not define.
    pub map_free_vars: bool,
    /// True if tensors with equal shapes and data types are considered equal, regardless of their content.
    pub skip_tensor_content: bool,
}

/// Kind of a definition region, which determines whether variables in it are definitions or uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Region {
    /// Variables in the region are uses.
    #[default]
    Use,
    /// Variables in the region are definitions, and so are variables in the fields of a defined variable.
    Pattern,
    /// Variables in the region are definitions, but variables in the fields of a defined variable are uses.
    Simple,
}

impl Region {
    fn root(options: Options) -> Region {
        if options.map_free_vars { Region::Pattern } else { Region::Use }
    }

    /// Returns the definition region of a field's value, given that the object is in this region.
    #[inline]
    fn of(self, field: Field) -> Region {
        if !field.has(DEF_PATTERN | DEF_SIMPLE) || self == Region::Pattern {
            return self;
        }
        if field.has(DEF_SIMPLE) { Region::Simple } else { Region::Pattern }
    }

    /// Returns the definition region that a hook requests by the number `kind`: 1 for a pattern, 2
    /// for a simple definition, any other number for the current region. In a pattern, which
    /// extends to all nested values, `kind` is ignored.
    fn asked(self, kind: i64) -> Region {
        match (self, kind) {
            (Region::Pattern, _) | (_, 1) => Region::Pattern,
            (_, 2) => Region::Simple,
            _ => self,
        }
    }

    /// Returns the definition region of the fields of a variable, given that the variable is in this region.
    fn within_variable(self) -> Region {
        if self == Region::Simple { Region::Use } else { self }
    }
}

/// Returns the structural kind of a type.
///
/// # Errors
/// Returns `TypeError` for a type that does not specify how it is compared.
fn kind_of(plan: &Plan) -> Result<i64> {
    if plan.kind == anyfn::abi::kTVMFFISEqHashKindUnsupported { Err(unsupported(plan)) } else { Ok(plan.kind) }
}

#[cold]
fn unsupported(plan: &Plan) -> Error {
    let key = plan.info.key();
    let what = if plan.info.has_metadata() { "_type_s_eq_hash_kind" } else { "Type metadata" };
    Error::new(
        "TypeError",
        &alloc::format!("{what} is not set for type `{key}`, so StructuralHash is not supported for this type"),
    )
}

/// Returns true if two values are structurally equal; see [`structural_equal`].
#[anyfn::register("ffi.StructuralEqual")]
fn equal_global(lhs: Any, rhs: Any, map_free_vars: bool, skip_tensor_content: bool) -> Result<bool> {
    structural_equal(&lhs, &rhs, Options { map_free_vars, skip_tensor_content })
}

/// Computes the structural hash of a value; see [`structural_hash`].
#[anyfn::register("ffi.StructuralHash")]
fn hash_global(value: Any, map_free_vars: bool, skip_tensor_content: bool) -> Result<i64> {
    structural_hash(&value, Options { map_free_vars, skip_tensor_content }).map(|hash| hash as i64)
}

/// Returns the access paths to the first structural difference between two values, or None if they are equal; see
/// [`first_mismatch`].
#[anyfn::register("ffi.GetFirstStructuralMismatch")]
fn mismatch_global(
    lhs: Any,
    rhs: Any,
    map_free_vars: bool,
    skip_tensor_content: bool,
) -> Result<Option<(ObjectRef, ObjectRef)>> {
    first_mismatch(&lhs, &rhs, Options { map_free_vars, skip_tensor_content })
}

/// Formats an access path, such as `root.body.args[1].name`. `root` is the name that the string begins with.
#[anyfn::register("anyfn.DescribePath")]
fn describe_global(path: ObjectRef, root: &str) -> Result<alloc::string::String> {
    describe_path(&path, root)
}

/// Ensures that the types of access paths and structural keys are registered. Starts the registry, which
/// registers them.
fn ensure_defined() {
    static DEFINED: AtomicBool = AtomicBool::new(false);
    if !DEFINED.load(Ordering::Acquire) {
        let _started = anyfn::registry::find("ffi.StructuralKey");
        DEFINED.store(true, Ordering::Release);
    }
}

/// Registers the types of access paths and structural keys.
fn define(again: bool) -> core::result::Result<(), anyfn::__private::StdString> {
    if again {
        return Ok(());
    }
    let types = path::define().and_then(|()| key::define());
    debug_assert!(types.is_ok(), "{types:?}");
    types.map_err(|error| error.message().into())
}

entry!(TYPES: TypeEntry = TypeEntry { define });
