//! Access paths (`ffi.reflection.AccessPath`): sequences of fields, indices and keys that lead from a root to
//! a value in its graph.
//!
//! A path is a linked list of steps that begins with the last step, so that paths with a common prefix share
//! the objects of the prefix.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::offset_of;

use anyfn::abi::{TVMFFIObjectCreator, kTVMFFISEqHashKindConstTreeNode as CONST_TREE};
use anyfn::{Any, Args, Array, Error, Object, ObjectRef, PackedFunc, Ref, Result, TypedPackedFunc};

use crate::define::{self, Type};

/// Kind of a step of an access path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum AccessKind {
    /// Field of an object.
    Attr = 0,
    /// Element of a sequence.
    ArrayItem = 1,
    /// Value of a key in a mapping.
    MapItem = 2,
    /// Field that an object does not have.
    AttrMissing = 3,
    /// Index at which a sequence has no element.
    ArrayItemMissing = 4,
    /// Key that a mapping does not contain.
    MapItemMissing = 5,
}

/// A step of an access path.
#[derive(Default, anyfn::Object)]
#[object(key = "ffi.reflection.AccessStep", opaque)]
#[repr(C)]
pub(crate) struct Step {
    kind: i32,
    key: Any,
}

/// Access path: the path to the parent value, and the step from the parent to the value. The path
/// of the root has neither.
#[derive(Default, anyfn::Object)]
#[object(key = "ffi.reflection.AccessPath", opaque)]
#[repr(C)]
pub(crate) struct Path {
    parent: Option<ObjectRef>,
    step: Option<ObjectRef>,
    depth: i32,
}

impl Step {
    fn new(kind: AccessKind, key: Any) -> Step {
        Step { kind: kind as i32, key }
    }

    pub(crate) fn attr(name: &str) -> Step {
        Step::new(AccessKind::Attr, anyfn::String::from(name).into_any_value())
    }

    pub(crate) fn item(index: usize) -> Step {
        Step::new(AccessKind::ArrayItem, int(index as i64))
    }

    pub(crate) fn missing_item(index: usize) -> Step {
        Step::new(AccessKind::ArrayItemMissing, int(index as i64))
    }

    pub(crate) fn key(key: Any) -> Step {
        Step::new(AccessKind::MapItem, key)
    }

    pub(crate) fn missing_key(key: Any) -> Step {
        Step::new(AccessKind::MapItemMissing, key)
    }

    /// Formats the step, such as `.name` or `[1]`. `show` formats the key of a mapping.
    fn show(&self, mut show: impl FnMut(&Any) -> Result<String>) -> Result<String> {
        Ok(match self.kind {
            0 => format!(".{}", self.key.get::<&str>()?),
            1 => format!("[{}]", self.key.get::<i64>()?),
            2 => format!("[{}]", show(&self.key)?),
            4 => format!("[<missing:{}>]", self.key.get::<i64>()?),
            3 | 5 => format!("[<missing:{}>]", show(&self.key)?),
            kind => anyfn::bail!("ValueError", "unknown kind {kind} of an access step"),
        })
    }

    fn is_same(&self, other: &Step) -> bool {
        self.kind == other.kind && self.key == other.key
    }
}

fn int(value: i64) -> Any {
    Any::new(value).unwrap_or_default()
}

/// Returns the access path of the root, which has no steps.
pub(crate) fn root() -> Ref<Path> {
    super::ensure_defined();
    Ref::new(Path { parent: None, step: None, depth: 0 })
}

/// Returns an access path with an additional step.
pub(crate) fn extend(path: &Ref<Path>, step: Step) -> Ref<Path> {
    extend_by(path, Ref::new(step).into_object())
}

fn extend_by(path: &Ref<Path>, step: ObjectRef) -> Ref<Path> {
    let (parent, depth) = (Some(path.as_object().clone()), path.depth.saturating_add(1));
    Ref::new(Path { parent, step: Some(step), depth })
}

impl Path {
    fn parent(&self) -> Option<Ref<Path>> {
        self.parent.clone().and_then(|object| Ref::try_from_object(object).ok())
    }

    fn step(&self) -> Option<Ref<Step>> {
        self.step.clone().and_then(|object| Ref::try_from_object(object).ok())
    }
}

/// Returns the steps of an access path, beginning at the root.
pub(crate) fn steps(path: &Ref<Path>) -> Vec<Ref<Step>> {
    let mut steps = Vec::new();
    let mut at = path.clone();
    loop {
        steps.extend(at.step());
        match at.parent() {
            Some(parent) => at = parent,
            None => break,
        }
    }
    steps.reverse();
    steps
}

fn is_equal(left: &Ref<Path>, right: &Ref<Path>) -> bool {
    let (left, right) = (steps(left), steps(right));
    left.len() == right.len() && left.iter().zip(&right).all(|(left, right)| left.is_same(right))
}

fn is_prefix(path: &Ref<Path>, of: &Ref<Path>) -> bool {
    let (path, of) = (steps(path), steps(of));
    path.len() <= of.len() && path.iter().zip(&of).all(|(left, right)| left.is_same(right))
}

/// Formats an access path, such as `root.body.args[1].name`. `root` is the name that the string begins with.
///
/// # Errors
/// Returns `TypeError` if `path` is not an access path; the error of printing a key.
pub fn describe_path(path: &ObjectRef, root: &str) -> Result<String> {
    let path = Ref::<Path>::try_from_object(path.clone()).map_err(|other| {
        Error::new("TypeError", &format!("expected an AccessPath but got {}", other.type_key()))
    })?;
    let mut text = String::from(root);
    for step in steps(&path) {
        text.push_str(&step.show(crate::repr)?);
    }
    Ok(text)
}

/// Hook `__ffi_repr__` of access path steps. Its arguments are the step and a callback that formats the key.
fn print_step(args: Args<'_>) -> Result<Any> {
    let (step, callback) = (args.get::<Ref<Step>>(0)?, args.get::<PackedFunc>(1)?);
    Any::new(step.show(|key| callback.call((key,))?.get::<String>())?)
}

/// Hook `__ffi_repr__` of access paths. Its arguments are the path and a callback that formats a step.
fn print_path(args: Args<'_>) -> Result<Any> {
    let (path, callback) = (args.get::<Ref<Path>>(0)?, args.get::<PackedFunc>(1)?);
    let mut text = String::from("<root>");
    for step in steps(&path) {
        text.push_str(&callback.call((step.as_object(),))?.get::<String>()?);
    }
    Any::new(text)
}

/// Metadata of the field `step`.
const STEP_SCHEMA: &str =
    r#"{"type_schema":"{\"type\":\"Optional\",\"args\":[{\"type\":\"ffi.reflection.AccessStep\"}]}"}"#;

/// Registers the fields, methods and hooks of access paths and their steps in the type table.
pub(super) fn define() -> Result<()> {
    let step = Type(Step::type_index());
    // SAFETY: the struct has the field at this offset.
    unsafe {
        step.field(("kind", "Kind of the step: 0 for a field, 1 for an element, 2 for the value of a key; 3, 4 and 5 if that is missing."), (offset_of!(Step, kind), 4), define::I32, define::INT)
    }?;
    // SAFETY: the struct has the field at this offset.
    unsafe {
        step.field(
            ("key", "Name of the field, index of the element, or the key."),
            (offset_of!(Step, key), 16),
            define::VALUE,
            define::ANY,
        )
    }?;
    let creator = Some(define::create::<Step> as TVMFFIObjectCreator);
    step.metadata_with(
        "A step of an access path, with a kind and a key.",
        size_of::<Step>(),
        CONST_TREE,
        creator,
    )?;
    step.attribute("__ffi_repr__", &PackedFunc::new(print_step))?;

    let path = Type(Path::type_index());
    // SAFETY: the struct has the field at this offset.
    unsafe {
        path.field(
            ("parent", "Path to the parent; None for the root."),
            (offset_of!(Path, parent), 8),
            (define::OBJECT.0, define::set_reference::<Path>, define::OBJECT.2),
            define::ANY,
        )
    }?;
    // SAFETY: the struct has the field at this offset.
    unsafe {
        path.field(
            ("step", "Step from the parent; None for the root."),
            (offset_of!(Path, step), 8),
            (define::OBJECT.0, define::set_reference::<Step>, STEP_SCHEMA),
            define::ANY,
        )
    }?;
    // SAFETY: the struct has the field at this offset.
    unsafe {
        path.field(("depth", "Number of steps."), (offset_of!(Path, depth), 4), define::I32, define::INT)
    }?;
    let creator = Some(define::create::<Path> as TVMFFIObjectCreator);
    path.metadata_with("The path from a root to a value within it.", size_of::<Path>(), CONST_TREE, creator)?;
    path.attribute("__ffi_repr__", &PackedFunc::new(print_path))?;
    let method = |name, function: PackedFunc| path.method(name, false, &function);
    path.method("_root", true, &TypedPackedFunc::from_fn(root).into())?;
    method(
        "_extend",
        TypedPackedFunc::from_fn(|path: Ref<Path>, step: Ref<Step>| extend_by(&path, step.into_object()))
            .into(),
    )?;
    method(
        "_attr",
        TypedPackedFunc::from_fn(|path: Ref<Path>, name: &str| extend(&path, Step::attr(name))).into(),
    )?;
    method(
        "_array_item",
        TypedPackedFunc::from_fn(|path: Ref<Path>, index: i64| {
            extend(&path, Step::new(AccessKind::ArrayItem, int(index)))
        })
        .into(),
    )?;
    method(
        "_map_item",
        TypedPackedFunc::from_fn(|path: Ref<Path>, key: Any| extend(&path, Step::key(key))).into(),
    )?;
    method(
        "_attr_missing",
        TypedPackedFunc::from_fn(|path: Ref<Path>, name: anyfn::String| {
            extend(&path, Step::new(AccessKind::AttrMissing, name.into_any_value()))
        })
        .into(),
    )?;
    method(
        "_array_item_missing",
        TypedPackedFunc::from_fn(|path: Ref<Path>, index: i64| {
            extend(&path, Step::new(AccessKind::ArrayItemMissing, int(index)))
        })
        .into(),
    )?;
    method(
        "_map_item_missing",
        TypedPackedFunc::from_fn(|path: Ref<Path>, key: Any| extend(&path, Step::missing_key(key))).into(),
    )?;
    method(
        "_is_prefix_of",
        TypedPackedFunc::from_fn(|path: Ref<Path>, other: Ref<Path>| is_prefix(&path, &other)).into(),
    )?;
    method(
        "_to_steps",
        TypedPackedFunc::from_fn(|path: Ref<Path>| -> Result<Array> { Array::try_from_iter(steps(&path)) })
            .into(),
    )?;
    method(
        "_path_equal",
        TypedPackedFunc::from_fn(|path: Ref<Path>, other: Ref<Path>| is_equal(&path, &other)).into(),
    )
}
