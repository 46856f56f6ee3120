//! Iteration over the children of a value. The state of an iteration does not borrow the value.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::mem::ManuallyDrop;

use anyfn::__private::{next_pair, replace_value};
use anyfn::abi::{TVMFFIAny, TVMFFIObject, TVMFFISeqCell};
use anyfn::reflection::Field;
use anyfn::{Any, Dict, List, MapCursor, ObjectRef, Result};

use super::Region;
use super::plan::{Plan, Shape};
use crate::structural::Step;

/// Value that a walk is processing, either owned or borrowed from its parent.
pub(crate) enum Value {
    Owned(Any),
    /// The value is borrowed from its parent, which must not change while the value is used.
    Lent(ManuallyDrop<Any>),
}

impl Value {
    /// Creates a borrowed value without incrementing the reference count.
    ///
    /// # Safety
    /// `value` must not be moved or dropped as long as the result is used.
    pub(crate) unsafe fn lent(value: &Any) -> Value {
        let raw = *value.as_raw();
        // SAFETY: a copy that is never dropped.
        Value::Lent(ManuallyDrop::new(unsafe { Any::from_raw(raw) }))
    }

    #[inline]
    pub(crate) fn get(&self) -> &Any {
        match self {
            Value::Owned(value) => value,
            Value::Lent(value) => value,
        }
    }

    /// Returns true if the value is an object with more owners than its parent and this operation.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Value::Owned(value) => value.as_object().is_some_and(|object| object.use_count() > 2),
            Value::Lent(value) => value.as_object().is_some_and(|object| object.use_count() > 1),
        }
    }

    /// Converts this value to an owned value. A borrowed value is cloned.
    #[inline]
    pub(crate) fn into_owned(self) -> Any {
        match self {
            Value::Owned(value) => value,
            Value::Lent(value) => Any::clone(&value),
        }
    }
}

/// State of an iteration over the children of a value.
pub(crate) enum Children {
    /// Elements of an Array, or of a List to which no other code refers; contains the index of the next
    /// element.
    Elements(usize),
    /// Snapshot of the elements of a List, and the index of the next element.
    Listed(Box<(Vec<Any>, usize)>),
    /// Values of a Map, or of a Dict to which no other code refers. Contains the position of the next value,
    /// the position of the most recently returned value, and the number of values returned so far.
    Pairs(Box<(MapCursor, MapCursor, u32)>),
    /// Snapshot of the pairs of a Dict, and the index of the next pair.
    Paired(Box<(Vec<(Any, Any)>, usize)>),
    /// Fields of an object; contains the index of the next field in the list of walked fields.
    Fields(u32),
    /// Children that a hook or callback visits itself. The iteration returns no children.
    Chosen,
}

impl Children {
    /// Begins an iteration over the children of an object. `in_place` may be true only if no other code
    /// refers to the object.
    #[inline(always)]
    pub(crate) fn of(shape: &Shape, object: &ObjectRef, in_place: bool) -> Result<Children> {
        match shape {
            Shape::Array => Ok(Children::Elements(0)),
            Shape::Fields(_) => Ok(Children::Fields(0)),
            _ => Children::of_others(shape, object, in_place),
        }
    }

    #[inline(never)]
    fn of_others(shape: &Shape, object: &ObjectRef, in_place: bool) -> Result<Children> {
        Ok(match shape {
            Shape::Array => Children::Elements(0),
            Shape::List if in_place => Children::Elements(0),
            Shape::List => match List::<Any>::try_from_object(object.clone()) {
                Ok(list) => Children::Listed(Box::new((list.try_snapshot()?, 0))),
                Err(_) => Children::Chosen,
            },
            Shape::Map => Children::Pairs(Box::default()),
            Shape::Dict if in_place => Children::Pairs(Box::default()),
            Shape::Dict => match Dict::<Any, Any>::try_from_object(object.clone()) {
                Ok(dict) => Children::Paired(Box::new((dict.try_snapshot()?, 0))),
                Err(_) => Children::Chosen,
            },
            Shape::Fields(_) => Children::Fields(0),
            Shape::Leaf | Shape::Hook(_) => Children::Chosen,
        })
    }

    /// Returns true if dropping this iteration releases no references.
    #[inline]
    pub(crate) fn owns_nothing(&self) -> bool {
        matches!(self, Children::Elements(_) | Children::Fields(_))
    }

    /// Returns the next child of `node`, and the definition region that begins at the child's field, if any.
    /// `node` must be the object that was passed to `Children::of`.
    #[inline]
    pub(crate) fn next(&mut self, plan: &Plan, node: &ObjectRef) -> Result<Option<(Value, Option<Region>)>> {
        let lent = |value: &Any| {
            // SAFETY: the frame that holds this iteration keeps the container, or the snapshot of its elements. A child
            // is used until the next one is requested, and only the walk itself changes a container that is not shared.
            Some((unsafe { Value::lent(value) }, None))
        };
        Ok(match self {
            Children::Elements(at) => {
                *at += 1;
                elements(node).get(*at - 1).and_then(lent)
            }
            Children::Listed(listed) => {
                let (items, at) = &mut **listed;
                *at += 1;
                items.get(*at - 1).and_then(lent)
            }
            Children::Pairs(places) => {
                let (next, last, at) = &mut **places;
                *last = *next;
                *at += 1;
                // SAFETY: a Map, or a Dict that is not shared.
                unsafe { next_pair(node, next) }.and_then(|(_, value)| lent(value))
            }
            Children::Paired(paired) => {
                let (pairs, at) = &mut **paired;
                *at += 1;
                pairs.get(*at - 1).and_then(|(_, value)| lent(value))
            }
            Children::Fields(at) => {
                let Shape::Fields(members) = &plan.shape else { return Ok(None) };
                let Some(member) = members.get(*at as usize) else { return Ok(None) };
                *at += 1;
                // SAFETY: the plan is that of exactly the object's type, and the frame that holds this iteration keeps
                // the object. Only values that do not change are borrowed, and a walk that changes the object in place
                // requests the next child first.
                if let Some(value) = unsafe { member.field.lend_unchecked(node) } {
                    return Ok(Some((Value::Lent(value), member.opens)));
                }
                // SAFETY: the plan is that of exactly the object's type.
                let value = unsafe { member.field.get_unchecked(node) }?;
                Some((Value::Owned(value), member.opens))
            }
            Children::Chosen => None,
        })
    }

    /// Returns the field that contains the most recently returned child; `None` for an element of a
    /// container.
    pub(crate) fn field(&self, plan: &Plan) -> Option<Field> {
        match (self, &plan.shape) {
            (Children::Fields(_), Shape::Fields(members)) => {
                members.get(self.position()).map(|member| member.field)
            }
            _ => None,
        }
    }

    /// Returns the index of the most recently returned child.
    pub(crate) fn position(&self) -> usize {
        let next = match self {
            Children::Elements(at) => *at,
            Children::Listed(listed) => listed.1,
            Children::Paired(paired) => paired.1,
            Children::Pairs(places) => places.2 as usize,
            Children::Fields(at) => *at as usize,
            Children::Chosen => 0,
        };
        next.saturating_sub(1)
    }

    /// Replaces the most recently returned child of `node` and returns the old child. Returns
    /// `None` if `node` no longer contains the child.
    ///
    /// # Safety
    /// `node` must not be shared, and the iteration must have been begun with `in_place`.
    pub(crate) unsafe fn replace(&self, node: &ObjectRef, value: Any) -> Option<Any> {
        match self {
            Children::Elements(at) => {
                // SAFETY: as the caller guarantees.
                let cell = unsafe { &*cell_of(node) };
                // SAFETY: the last child was within the elements, which have not changed since.
                let slot = unsafe { cell.data.cast::<Any>().add(at - 1) };
                // SAFETY: the last child was within the elements, which have not changed since; the slot holds an owned
                // value, which is moved out.
                Some(unsafe { slot.replace(value) })
            }
            // SAFETY: as the caller guarantees.
            Children::Pairs(places) => unsafe { replace_value(node, places.1, value) },
            _ => None,
        }
    }

    /// Returns the access path step from `node` to the most recently returned child.
    pub(crate) fn access_step(&self, plan: &Plan, node: &ObjectRef) -> Step {
        match self {
            Children::Pairs(places) => {
                let mut at = places.1;
                // SAFETY: as in `next`.
                let key = unsafe { next_pair(node, &mut at) }.map(|(key, _)| key.clone());
                Step::key(key.unwrap_or_default())
            }
            Children::Paired(paired) => {
                let pairs = &paired.0;
                Step::key(pairs.get(self.position()).map(|(key, _)| key.clone()).unwrap_or_default())
            }
            _ => match self.field(plan) {
                Some(field) => Step::attr(field.name()),
                None => Step::item(self.position()),
            },
        }
    }

    /// Appends to `out` the step from `node` to the most recently returned child, in the notation of access
    /// paths: `[2]` or `.name`.
    pub(crate) fn step(&self, plan: &Plan, node: &ObjectRef, out: &mut String) {
        match self {
            Children::Elements(_) | Children::Listed(_) => {
                let _ = write!(out, "[{}]", self.position());
            }
            Children::Pairs(places) => {
                let mut at = places.1;
                // SAFETY: as in `next`.
                if let Some((key, _)) = unsafe { next_pair(node, &mut at) } {
                    show_key(key, out);
                }
            }
            Children::Paired(paired) => {
                let pairs = &paired.0;
                if let Some((key, _)) = pairs.get(self.position()) {
                    show_key(key, out);
                }
            }
            Children::Fields(_) => {
                if let Shape::Fields(members) = &plan.shape
                    && let Some(member) = members.get(self.position())
                {
                    let _ = write!(out, ".{}", member.field.name());
                }
            }
            Children::Chosen => {}
        }
    }
}

/// Appends to `out` a Map key in the notation of access paths, such as `["name"]`.
pub(crate) fn show_key(key: &Any, out: &mut String) {
    let _ = match key.get::<&str>() {
        Ok(text) => write!(out, "[{text:?}]"),
        Err(_) => match key.get::<i64>() {
            Ok(number) => write!(out, "[{number}]"),
            Err(_) => write!(out, "[{}]", format!("{key:?}").lines().next().unwrap_or_default()),
        },
    };
}

/// Returns the elements of `node`, an Array or List. A List must not change while the result is used.
#[inline]
pub(crate) fn elements(node: &ObjectRef) -> &[Any] {
    // SAFETY: called for Arrays and Lists, whose cell follows the header.
    let cell = unsafe { &*cell_of(node) };
    match usize::try_from(cell.size) {
        // SAFETY: the cell has `size` elements at `data`; `Any` is transparent over the struct.
        Ok(size) if size > 0 => unsafe { core::slice::from_raw_parts(cell.data.cast(), size) },
        _ => &[],
    }
}

#[inline]
fn cell_of(node: &ObjectRef) -> *const TVMFFISeqCell {
    node.as_handle().wrapping_byte_add(size_of::<TVMFFIObject>()).cast()
}

const _: () = assert!(size_of::<Any>() == size_of::<TVMFFIAny>());
