//! Replacement of the children of a value, in a copy or in place.

use alloc::vec::Vec;

use anyfn::reflection::{Field, TypeInfo};
use anyfn::{Any, ArrayBuilder, Dict, List, Map, ObjectRef, PackedFunc, Result, bail};

use super::children::{self, Children, Value};
use super::plan::{Plan, Shape};

/// Returns a copy of `node` in which the children at the given indices are replaced. `changes` must be in ascending
/// order of the indices.
#[cold]
pub(crate) fn with_changes(
    node: &ObjectRef,
    plan: &Plan,
    children: Children,
    changes: Vec<(usize, Any)>,
) -> Result<Any> {
    match (&plan.shape, children) {
        (Shape::Fields(members), _) => {
            let copy = shallow_copy(node)?;
            for (at, value) in changes {
                let Some(member) = members.get(at) else { continue };
                // SAFETY: the copy has the same type and is not shared.
                unsafe { set_field(member.field, &copy, &value) }?;
            }
            Ok(Any::from(copy))
        }
        (Shape::List, Children::Listed(listed)) => {
            let mut items = listed.0;
            for (at, value) in changes {
                items[at] = value;
            }
            Ok(Any::from(List::<Any>::from_vec(items)?.into_object()))
        }
        (Shape::Dict, Children::Paired(paired)) => {
            let mut pairs = paired.0;
            for (at, value) in changes {
                pairs[at].1 = value;
            }
            Ok(Any::from(Dict::<Any, Any>::from_vec(pairs)?.into_object()))
        }
        (Shape::Array, _) => {
            let items = children::elements(node);
            let mut array = ArrayBuilder::with_capacity(items.len())?;
            let mut changes = changes.into_iter().peekable();
            for (at, item) in items.iter().enumerate() {
                match changes.next_if(|(changed, _)| *changed == at) {
                    Some((_, value)) => array.push(value)?,
                    None => array.push(item.clone())?,
                }
            }
            Ok(Any::from(array.finish().into_object()))
        }
        (Shape::Map, _) => {
            let Ok(map) = Map::<Any, Any>::try_from_object(node.clone()) else {
                bail!("InternalError", "a node of type ffi.Map is not a Map")
            };
            let mut pairs: Vec<(Any, Any)> =
                map.iter_any().map(|(key, value)| (key.clone(), value.clone())).collect();
            for (at, value) in changes {
                pairs[at].1 = value;
            }
            Ok(Any::from(Map::<Any, Any>::from_vec(pairs)?.into_object()))
        }
        _ => bail!("InternalError", "a value without children has changed children"),
    }
}

/// Returns a shallow copy of an object.
fn shallow_copy(node: &ObjectRef) -> Result<ObjectRef> {
    let info = TypeInfo::of(node);
    if let Some(function) = info.attribute("__ffi_shallow_copy__") {
        let Ok(function) = function.get::<PackedFunc>() else {
            bail!("TypeError", "__ffi_shallow_copy__ must be an ffi.Function")
        };
        return match function.call((node,))?.into_object() {
            // Its fields are set afterwards, so no other reference may exist.
            Some(copy) if copy.type_index() == node.type_index() && copy.is_unique() => Ok(copy),
            _ => bail!(
                "TypeError",
                "Shallow copy callback must return a distinct object with the same type as its input"
            ),
        };
    }
    if !info.can_make() {
        bail!(
            "TypeError",
            "an object of type `{}` cannot be copied: the type has neither __ffi_shallow_copy__ nor a creator",
            info.key()
        )
    }
    let copy = info.make()?;
    if copy.type_index() != node.type_index() {
        bail!(
            "TypeError",
            "the creator of type `{}` returned an object of type {}",
            info.key(),
            copy.type_key()
        );
    }
    for field in info.fields() {
        // SAFETY: the field belongs to the object's type.
        let value = unsafe { field.get_unchecked(node) }?;
        // SAFETY: the copy has the same type and is not shared.
        unsafe { set_field(field, &copy, &value) }?;
    }
    Ok(copy)
}

/// Sets a field of an object to which no other code refers.
///
/// # Safety
/// The requirements of [`Field::set_unchecked`] apply.
pub(crate) unsafe fn set_field(field: Field, object: &ObjectRef, value: &Any) -> Result<()> {
    if !field.is_settable() {
        bail!(
            "TypeError",
            "Cannot structurally mutate field `{}` of type `{}` because it does not define a setter",
            field.name(),
            object.type_key()
        );
    }
    // SAFETY: the caller guarantees the same.
    unsafe { field.set_unchecked(object, &value.as_view()) }
}

/// Returns `child`, and a flag that is true if only `node`, the child's parent, refers to the
/// child. If the flag is true, the returned child is borrowed from `node`.
///
/// # Safety
/// `node` must not be shared, and the child must not be moved or dropped as long as the result is used.
pub(crate) unsafe fn only_here(child: Value, field: Option<Field>, node: &ObjectRef) -> (Value, bool) {
    let Some(object) = child.get().as_object() else { return (child, false) };
    match (&child, field) {
        (Value::Lent(_), _) => {
            let unique = object.is_unique();
            (child, unique)
        }
        // SAFETY: as the caller guarantees.
        (Value::Owned(value), Some(field)) if unsafe { field.holds(node, object) } => {
            // SAFETY: the field keeps the child alive.
            let lent = unsafe { Value::lent(value) };
            drop(child);
            let unique = lent.get().as_object().is_some_and(ObjectRef::is_unique);
            (lent, unique)
        }
        _ => (child, false),
    }
}
