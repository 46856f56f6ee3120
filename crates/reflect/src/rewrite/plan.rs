//! Plans: how a walk or map processes the values of a type. A walk or map creates one plan for each
//! type that it encounters.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use anyfn::abi::{
    kTVMFFIArray, kTVMFFIBigInt, kTVMFFIBool, kTVMFFIBytes, kTVMFFIDataType, kTVMFFIDevice, kTVMFFIDict,
    kTVMFFIFieldFlagBitMaskSEqHashDefPattern, kTVMFFIFieldFlagBitMaskSEqHashDefSimple,
    kTVMFFIFieldFlagBitMaskSEqHashIgnore, kTVMFFIFloat, kTVMFFIInt, kTVMFFIList, kTVMFFIMap,
    kTVMFFISEqHashKindDAGNode, kTVMFFISEqHashKindFreeVar, kTVMFFISmallBytes, kTVMFFISmallStr,
    kTVMFFIStaticObjectBegin, kTVMFFIStr,
};
use anyfn::reflection::{Field, TypeInfo};
use anyfn::{Any, Error, Result, bail};

use super::Region;
use super::links::Links;
use crate::column::Hook;

/// Kind of children that the values of a type have: elements, key-value pairs, fields, children that a hook
/// processes, or none.
pub(crate) enum Shape {
    /// The value has no children.
    Leaf,
    Array,
    List,
    Map,
    Dict,
    Fields(Vec<Member>),
    /// A hook of the type processes the children.
    Hook(Hook),
}

/// Field that a walk visits.
pub(crate) struct Member {
    pub(crate) field: Field,
    /// Definition region that begins at the field; `None` if the field is in the region of its object.
    pub(crate) opens: Option<Region>,
}

/// Cached information about a type for one walk or map.
pub(crate) struct Plan {
    pub(crate) type_index: i32,
    /// Index of the callback that accepts values of the type.
    pub(crate) link: Option<u32>,
    pub(crate) shape: Shape,
    /// Hook of the type for mutating a value in place; always `None` for a walk.
    pub(crate) in_place: Option<Hook>,
    /// True if objects of the type are variables.
    pub(crate) free_var: bool,
    /// True if the structural kind of the type is DAG node. Sharing then matters: a graph that refers to one
    /// object twice is not equal to a graph that refers to two equal objects.
    pub(crate) dag_node: bool,
}

/// Operation for which a [`Plan`] is created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Visit,
    Mutate,
}

/// Cache of plans, one for each type that a walk or map has encountered.
pub(crate) struct Plans {
    purpose: Purpose,
    /// Direct-mapped cache of indices in `list`, by the low bits of the type index. After a miss, `list` is
    /// searched.
    near: [Cell<u16>; NEAR],
    /// Direct-mapped cache, by the low bits of the type index, of types whose values need no processing: they
    /// have no children, and no callback accepts them.
    idle: [Cell<i32>; NEAR],
    list: RefCell<Vec<Rc<Plan>>>,
}

const NEAR: usize = 64;

impl Plans {
    pub(crate) fn new(purpose: Purpose) -> Plans {
        Plans {
            purpose,
            near: [const { Cell::new(0) }; NEAR],
            idle: [const { Cell::new(-1) }; NEAR],
            list: RefCell::new(Vec::new()),
        }
    }

    /// Returns true if values of the type are known to need no processing, because they have no
    /// children and no callback accepts them. A result of false may also mean that this is not
    /// known yet.
    #[inline]
    pub(crate) fn is_idle(&self, type_index: i32) -> bool {
        self.idle[type_index as usize % NEAR].get() == type_index
    }

    /// Returns the plan for values of a type, and creates it if necessary.
    ///
    /// # Errors
    /// Returns `TypeError` if the hook that the type has registered is not a function.
    #[inline]
    pub(crate) fn get(&self, type_index: i32, links: &Links<'_>) -> Result<Rc<Plan>> {
        let near = &self.near[type_index as usize % NEAR];
        if let Some(plan) = self.list.borrow().get(usize::from(near.get()))
            && plan.type_index == type_index
        {
            return Ok(Rc::clone(plan));
        }
        self.find(type_index, links)
    }

    #[cold]
    fn find(&self, type_index: i32, links: &Links<'_>) -> Result<Rc<Plan>> {
        let known = self.list.borrow().iter().position(|plan| plan.type_index == type_index);
        let at = match known {
            Some(at) => at,
            None => {
                let plan = self.make(type_index, links)?;
                let stands_for_itself = !plan.free_var && !plan.dag_node;
                if plan.link.is_none() && matches!(plan.shape, Shape::Leaf) && stands_for_itself {
                    self.idle[type_index as usize % NEAR].set(type_index);
                }
                let mut list = self.list.borrow_mut();
                list.push(Rc::new(plan));
                list.len() - 1
            }
        };
        if let Ok(place) = u16::try_from(at) {
            self.near[type_index as usize % NEAR].set(place);
        }
        Ok(Rc::clone(&self.list.borrow()[at]))
    }

    /// Creates a plan that includes all fields of a type and ignores the hooks of the type.
    pub(crate) fn without_hook(&self, type_index: i32) -> Result<Plan> {
        let mut plan = self.make(type_index, &Links::default())?;
        if let (Shape::Hook(_) | Shape::Fields(_) | Shape::Leaf, Some(info)) =
            (&plan.shape, TypeInfo::from_index(type_index))
        {
            plan.shape = fields(info, &Links::all(), 0);
        }
        Ok(plan)
    }

    fn make(&self, type_index: i32, links: &Links<'_>) -> Result<Plan> {
        let link = links.find(type_index);
        let mut plan =
            Plan { type_index, link, shape: Shape::Leaf, in_place: None, free_var: false, dag_node: false };
        if type_index < kTVMFFIStaticObjectBegin {
            return Ok(plan);
        }
        plan.shape = match type_index {
            kTVMFFIArray => Shape::Array,
            kTVMFFIList => Shape::List,
            kTVMFFIMap => Shape::Map,
            kTVMFFIDict => Shape::Dict,
            kTVMFFIStr | kTVMFFIBytes => Shape::Leaf,
            _ => {
                let Some(info) = TypeInfo::from_index(type_index) else {
                    bail!("RuntimeError", "the type of an object is not registered")
                };
                plan.free_var = i64::from(info.structural_kind()) == kTVMFFISEqHashKindFreeVar;
                plan.dag_node = i64::from(info.structural_kind()) == kTVMFFISEqHashKindDAGNode;
                let name = if self.purpose == Purpose::Visit { "__s_visit__" } else { "__s_mutate__" };
                if self.purpose == Purpose::Mutate {
                    plan.in_place = hook(info, "__s_maybe_inplace_mutate__")?;
                }
                match hook(info, name)? {
                    Some(hook) => Shape::Hook(hook),
                    None => fields(info, links, kTVMFFIFieldFlagBitMaskSEqHashIgnore),
                }
            }
        };
        Ok(plan)
    }
}

/// Returns the hook `name` that the type itself has registered. Hooks of ancestors are ignored, because they
/// would miss the fields that the type adds.
fn hook(info: TypeInfo, name: &str) -> Result<Option<Hook>> {
    let Some(value) = info.attribute(name) else { return Ok(None) };
    match Hook::from_value(&value.as_view()) {
        Some(hook) => Ok(Some(hook)),
        None => Err(wrong_hook(name, &value)),
    }
}

#[cold]
fn wrong_hook(name: &str, value: &Any) -> Error {
    match name {
        "__s_visit__" => {
            Error::new("TypeError", "__s_visit__ must be an opaque function pointer or ffi.Function")
        }
        _ => anyfn::error!(
            "TypeError",
            "{name} must be a direct hook pointer or ffi.Function, not {}",
            value.type_key()
        ),
    }
}

/// Returns the fields of a type that a walk visits. Fields that have any of the flags `without`, or whose
/// values need no processing, are left out.
fn fields(info: TypeInfo, links: &Links<'_>, without: i64) -> Shape {
    let mut members = Vec::new();
    for field in info.fields() {
        if field.has(without) || is_plain(field, links) {
            continue;
        }
        let opens = if field.has(kTVMFFIFieldFlagBitMaskSEqHashDefSimple) {
            Some(Region::Simple)
        } else if field.has(kTVMFFIFieldFlagBitMaskSEqHashDefPattern) {
            Some(Region::Pattern)
        } else {
            None
        };
        members.push(Member { field, opens });
    }
    if members.is_empty() { Shape::Leaf } else { Shape::Fields(members) }
}

/// Returns true if a field can only hold values that have no children and that no callback accepts.
fn is_plain(field: Field, links: &Links<'_>) -> bool {
    let types: &[i32] = match field.static_type_index() {
        // Large numbers are objects.
        kTVMFFIInt => &[kTVMFFIInt, kTVMFFIBigInt],
        kTVMFFIBool => &[kTVMFFIBool],
        kTVMFFIFloat => &[kTVMFFIFloat],
        kTVMFFIDataType => &[kTVMFFIDataType],
        kTVMFFIDevice => &[kTVMFFIDevice],
        kTVMFFIStr | kTVMFFISmallStr => &[kTVMFFIStr, kTVMFFISmallStr],
        kTVMFFIBytes | kTVMFFISmallBytes => &[kTVMFFIBytes, kTVMFFISmallBytes],
        _ => return false,
    };
    types.iter().all(|index| links.find(*index).is_none())
}
