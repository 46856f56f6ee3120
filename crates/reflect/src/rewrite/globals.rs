//! Registered functions for walking and rewriting graphs, with the names, arguments and messages that the ABI
//! defines.

use alloc::string::ToString;

use core::ffi::c_int;

use anyfn::__private::{RUNTIME_TYPES, TypeEntry, entry, trampoline};
use anyfn::abi::{
    TVMFFIAny, TVMFFIAnyValue, TVMFFIByteArray, TVMFFIObject, TVMFFIObjectHandle, TVMFFITypeRegisterAttr,
    kTVMFFIAny, kTVMFFIArray, kTVMFFIBigInt, kTVMFFIBytes, kTVMFFIDict, kTVMFFIList, kTVMFFIMap, kTVMFFIObject,
    kTVMFFIObjectRValueRef, kTVMFFIOpaquePtr, kTVMFFIStr, kTVMFFIUnchanged, kTVMFFIVisitInterrupt,
};
use anyfn::{Any, AnyView, Args, Array, Error, ObjectRef, PackedFunc, Result, bail, register};

use super::links::{Extra, Links};
use super::tool::{self, Native, Tool, ToolKind};
use super::{Order, Region, fail, map, unchanged, walk};
use crate::define::{ANY_SCHEMA, Type, set_any};

// ---- Registration of types

/// Creates the object that a callback returns to end a visit with a value.
#[register("ffi.VisitInterrupt")]
fn visit_interrupt(value: Any) -> ObjectRef {
    super::interrupt(value)
}

entry!(RUNTIME_TYPES: TypeEntry = TypeEntry {
    define: |_again| register_types().map_err(|error| error.to_string()),
});

/// Registers `ffi.VisitInterrupt`, the visitor, mutator and error context types, and the hooks of
/// built-in containers. Walks that are implemented in other languages read these hooks from the
/// type table.
fn register_types() -> Result<()> {
    let header = size_of::<TVMFFIObject>();
    // SAFETY: an interrupt has its value behind the header.
    unsafe {
        fail::add_field(
            kTVMFFIVisitInterrupt,
            ("value", "Value with which the callback ended the visit."),
            ANY_SCHEMA,
            header,
            kTVMFFIAny,
            (fail::get_any, set_any),
        )
    }?;
    fail::register_fields()?;
    let value = size_of::<TVMFFIAny>();
    let doc = "Result with which a callback ended a visit.";
    Type(kTVMFFIVisitInterrupt).metadata_with(doc, value, fail::KIND, Some(create_interrupt))?;
    let visitor = Type(tool::type_index(ToolKind::Visitor));
    visitor.metadata("Visitor of the values in a graph.", tool::HEAD_SIZE, fail::KIND)?;
    let mutator = Type(tool::type_index(ToolKind::Mutator));
    mutator.metadata("Mutator of the values in a graph.", tool::HEAD_SIZE, fail::KIND)?;
    Type(kTVMFFIObject).metadata("", 0, fail::KIND)?;
    Type(kTVMFFIBigInt).metadata("", size_of::<usize>(), fail::KIND)?;
    for index in [kTVMFFIArray, kTVMFFIList, kTVMFFIMap, kTVMFFIDict] {
        set_attribute(index, "__s_visit__", visit_children)?;
        set_attribute(index, "__s_mutate__", mutate_children)?;
        set_attribute(index, "__s_maybe_inplace_mutate__", mutate_children_in_place)?;
    }
    for index in [kTVMFFIStr, kTVMFFIBytes, kTVMFFIBigInt] {
        set_attribute(index, "__s_mutate__", keep)?;
        set_attribute(index, "__s_maybe_inplace_mutate__", keep)?;
    }
    Ok(())
}

/// Creates an interrupt, whose value is then set.
unsafe extern "C" fn create_interrupt(result: *mut TVMFFIObjectHandle) -> c_int {
    trampoline(|| {
        let object = super::interrupt(Any::NONE);
        // SAFETY: the caller passes a location for the result.
        unsafe { result.write(object.into_handle()) };
        Ok(())
    })
}

fn set_attribute(type_index: i32, name: &str, native: Native) -> Result<()> {
    let name = TVMFFIByteArray::from_slice(name.as_bytes());
    let value = TVMFFIAny {
        type_index: kTVMFFIOpaquePtr,
        small_str_len: 0,
        value: TVMFFIAnyValue::from_ptr(native as *mut core::ffi::c_void),
    };
    // SAFETY: name and value are borrowed for the call.
    match unsafe { TVMFFITypeRegisterAttr(type_index, &name, &value) } {
        0 => Ok(()),
        _ => Err(Error::take_raised()),
    }
}

/// Hook `__s_visit__` of built-in containers. It passes each child to the given visitor, which any library
/// may have created.
unsafe extern "C" fn visit_children(visitor: *mut TVMFFIObject, value: TVMFFIAny) -> TVMFFIAny {
    tool::native(|| {
        // SAFETY: called with a valid visitor.
        let visitor = unsafe { tool::borrowed(visitor) }?;
        // SAFETY: a view that is valid for the call.
        walk::default_visit(Tool::of(&visitor, ToolKind::Visitor)?, &unsafe { AnyView::from_raw(value) })
    })
}

/// Hook `__s_mutate__` of built-in containers. It passes each child to the given mutator, which any library may have created.
unsafe extern "C" fn mutate_children(mutator: *mut TVMFFIObject, value: TVMFFIAny) -> TVMFFIAny {
    // SAFETY: called with a valid mutator and a view that is valid for the call.
    unsafe { mutate_children_by(mutator, value, false) }
}

/// Hook `__s_maybe_inplace_mutate__` of built-in containers. It is called with a container to which only the caller refers, and
/// replaces the children in it.
unsafe extern "C" fn mutate_children_in_place(mutator: *mut TVMFFIObject, value: TVMFFIAny) -> TVMFFIAny {
    // SAFETY: called with a valid mutator and a view that is valid for the call.
    unsafe { mutate_children_by(mutator, value, true) }
}

/// Passes each child of a container to a mutator.
///
/// # Safety
/// `mutator` must be valid, and `value` a view that is valid for the call.
unsafe fn mutate_children_by(mutator: *mut TVMFFIObject, value: TVMFFIAny, in_place: bool) -> TVMFFIAny {
    tool::native(|| {
        // SAFETY: the caller guarantees a valid mutator.
        let mutator = unsafe { tool::borrowed(mutator) }?;
        // SAFETY: the caller guarantees a valid view.
        let value = unsafe { AnyView::from_raw(value) };
        map::default_mutate(Tool::of(&mutator, ToolKind::Mutator)?, &value, in_place)
    })
}

/// Hook `__s_mutate__` and `__s_maybe_inplace_mutate__` of strings, bytes values and large integers. It
/// returns the marker for an unchanged value, because these values are immutable.
unsafe extern "C" fn keep(_mutator: *mut TVMFFIObject, _value: TVMFFIAny) -> TVMFFIAny {
    unchanged().into_raw()
}

// ---- Walk and map

type Pairs = Array<(i32, PackedFunc)>;

fn links_of(links: &mut Links<'_>, pairs: &Pairs, extra: Extra) -> Result<()> {
    for at in 0..pairs.len() {
        let (type_index, function) = pairs.get(at)?;
        links.add_function(type_index, function, extra);
    }
    Ok(())
}

fn order_of(order: i32) -> Order {
    if order == 0 { Order::Pre } else { Order::Post }
}

/// Calls functions for the values of a graph. Each entry of `callbacks` consists of a type index and a function
/// for values of this type. The function returns nothing, 1 to skip the children, or an interrupt to end the
/// walk. Functions in `callbacks_with_def_region_kind` also receive the kind of the definition region. If
/// `order` is 0, a function runs before the children of its value are visited, otherwise afterwards. Returns
/// the interrupt, or None.
#[register("ffi.StructuralWalk")]
fn structural_walk(
    root: AnyView<'_>,
    callbacks: Pairs,
    callbacks_with_def_region_kind: Pairs,
    order: i32,
) -> Result<Any> {
    let mut links = Links::default();
    links_of(&mut links, &callbacks, Extra::Nothing)?;
    links_of(&mut links, &callbacks_with_def_region_kind, Extra::Region)?;
    let stop = walk::Walk::new(links, order_of(order), false).run(&root)?;
    Ok(stop.unwrap_or_default())
}

/// Visits the values of a graph with functions that visit the children themselves. A function receives the
/// value and a visitor. Returns the interrupt with which a function ended the visit, or None.
#[register("ffi.StructuralVisit")]
fn structural_visit(root: AnyView<'_>, callbacks: Pairs) -> Result<Any> {
    let mut links = Links::default();
    links_of(&mut links, &callbacks, Extra::Tool)?;
    Ok(walk::Walk::new(links, Order::Own, false).run(&root)?.unwrap_or_default())
}

/// Replaces the values of a graph by the results of functions. Unchanged values remain the same objects. A
/// root passed by r-value reference is changed in place if no other reference to it exists.
#[register("ffi.StructuralMap")]
fn structural_map(
    root: Any,
    callbacks: Pairs,
    callbacks_with_def_region_kind: Pairs,
    order: i32,
) -> Result<Any> {
    let mut links = Links::default();
    links_of(&mut links, &callbacks, Extra::Nothing)?;
    links_of(&mut links, &callbacks_with_def_region_kind, Extra::Region)?;
    map::Mapping::new(links, order_of(order), false).run(root)
}

/// Rewrites a graph as `ffi.StructuralMap` does, with functions that rewrite the children themselves. A
/// function receives the value and a mutator. If the third element of its tuple in `callbacks` is true, it
/// also receives an int, which is 1 if the value may be changed in place.
#[register("ffi.StructuralMutate")]
fn structural_mutate(root: Any, callbacks: Array<(i32, PackedFunc, bool)>) -> Result<Any> {
    let mut links = Links::default();
    for at in 0..callbacks.len() {
        let (type_index, function, mode) = callbacks.get(at)?;
        links.add_function(type_index, function, if mode { Extra::ToolAndMode } else { Extra::Tool });
    }
    map::Mapping::new(links, Order::Own, false).run(root)
}

/// Operation code of `anyfn.rewrite` for a walk. The next three constants are the codes of the other
/// operations.
const WALK: i64 = 0;
const VISIT: i64 = 1;
const MAP: i64 = 2;
const MUTATE: i64 = 3;
/// Option bits of `anyfn.rewrite`. With `PRE`, callbacks run before the children are processed. With `ONCE`,
/// a walk visits each object once. With `EACH_TIME`, a map processes each occurrence of an object.
const PRE: i64 = 1;
const ONCE: i64 = 2;
const EACH_TIME: i64 = 4;

// Registers `anyfn.rewrite`, which walks, visits, maps or mutates a graph. Arguments: root,
// operation, options, then three arguments for each callback: the type index of the accepted
// values, the kind of the additional argument that the callback receives (0 none, 1 the region, 2
// the visitor or mutator, 3 the mutator and the mode), and the function.
//
// A root that is moved in, as an r-value reference, and to which no other reference exists, is mapped or mutated in
// place. At the end it is moved back to the reference, so that the caller still has it if a callback has replaced it.
/// Walks or rewrites a graph. Arguments: root, operation, options, then three arguments for each
/// callback: type index, kind of the additional argument, and function.
#[register("anyfn.rewrite")]
fn rewrite(args: Args<'_>) -> Result<Any> {
    let views = args.as_slice();
    if views.len() < 3 || !views.len().is_multiple_of(3) {
        bail!("TypeError", "anyfn.rewrite: expected 3 arguments and 3 for each callback, got {}", views.len());
    }
    let (what, options) = (args.get::<i64>(1)?, args.get::<i64>(2)?);
    if options & !(PRE | ONCE | EACH_TIME) != 0 {
        bail!(
            "ValueError",
            "anyfn.rewrite: expected a sum of the options {PRE}, {ONCE} and {EACH_TIME}, got {options}"
        );
    }
    let mut links = Links::default();
    for at in (3..views.len()).step_by(3) {
        let extra = match args.get::<i64>(at + 1)? {
            0 => Extra::Nothing,
            1 => Extra::Region,
            2 => Extra::Tool,
            3 => Extra::ToolAndMode,
            other => bail!(
                "ValueError",
                "anyfn.rewrite: expected an extra argument of kind 0 to 3 for a callback, got {other}"
            ),
        };
        links.add_function(args.get::<i32>(at)?, args.get::<PackedFunc>(at + 2)?, extra);
    }
    let order = match what {
        VISIT | MUTATE => Order::Own,
        _ if options & PRE != 0 => Order::Pre,
        _ => Order::Post,
    };
    match what {
        WALK | VISIT => {
            let stop = walk::Walk::new(links, order, options & ONCE != 0).run(&views[0])?;
            Ok(stop.unwrap_or_default())
        }
        MAP | MUTATE => {
            let share = what == MAP && options & EACH_TIME == 0;
            let mapping = map::Mapping::new(links, order, share);
            if views[0].type_index() == kTVMFFIObjectRValueRef {
                return mapping.run_moved(&views[0]);
            }
            mapping.run(views[0].to_owned())
        }
        other => bail!("ValueError", "anyfn.rewrite: expected an operation from 0 to 3, got {other}"),
    }
}

// ---- Visitors and mutators

/// Visits a value: calls the callback for the value, and visits its children unless the callback is
/// responsible for them.
#[register("ffi.StructuralVisitorVisit")]
fn visitor_visit(visitor: ObjectRef, value: AnyView<'_>) -> Result<Any> {
    walk::visit_by(&visitor, &value, false)
}

/// Visits the children of a value, without calling the callback for the value itself.
#[register("ffi.StructuralVisitorDefaultVisit")]
fn visitor_default_visit(visitor: ObjectRef, value: AnyView<'_>) -> Result<Any> {
    walk::visit_by(&visitor, &value, true)
}

/// Returns the kind of the definition region of the value that is being visited.
#[register("ffi.StructuralVisitorDefRegionKind")]
fn visitor_region(visitor: ObjectRef) -> Result<i32> {
    Ok(Tool::of(&visitor, ToolKind::Visitor)?.region() as i32)
}

/// Calls `callback` in a definition region of the given kind. In a pattern region, which extends to
/// all nested values, `kind` has no effect.
#[register("ffi.StructuralVisitorWithDefRegionKind")]
fn visitor_with_region(visitor: ObjectRef, kind: i32, callback: PackedFunc) -> Result<Any> {
    tool::with_region(Tool::of(&visitor, ToolKind::Visitor)?, Region::from_raw(kind), &callback)
}

fn or_itself(result: Any, value: &AnyView<'_>) -> Any {
    if result.type_index() == kTVMFFIUnchanged { value.to_owned() } else { result }
}

/// Mutates a value: calls the callback for the value, and mutates its children unless the callback
/// is responsible for them.
#[register("ffi.StructuralMutatorMutate")]
fn mutator_mutate(mutator: ObjectRef, value: AnyView<'_>) -> Result<Any> {
    Ok(or_itself(map::mutate_by(&mutator, &value, false, false)?, &value))
}

/// Mutates the children of a value, without calling the callback for the value itself.
#[register("ffi.StructuralMutatorDefaultMutate")]
fn mutator_default_mutate(mutator: ObjectRef, value: AnyView<'_>) -> Result<Any> {
    Ok(or_itself(map::mutate_by(&mutator, &value, true, false)?, &value))
}

/// Returns the recorded replacement of a variable, or None if none is recorded.
#[register("ffi.StructuralMutatorVarRemapGet")]
fn mutator_remap_get(mutator: ObjectRef, var: AnyView<'_>) -> Result<Any> {
    let known = map::remap_get(&mutator, &var)?;
    Ok(or_itself(known, &var))
}

/// Records a replacement for a variable.
#[register("ffi.StructuralMutatorVarRemapSet")]
fn mutator_remap_set(mutator: ObjectRef, var: AnyView<'_>, mapped_value: AnyView<'_>) -> Result<()> {
    map::remap_set(&mutator, &var, &mapped_value)
}

/// Returns the kind of the definition region of the value that is being mutated.
#[register("ffi.StructuralMutatorDefRegionKind")]
fn mutator_region(mutator: ObjectRef) -> Result<i32> {
    Ok(Tool::of(&mutator, ToolKind::Mutator)?.region() as i32)
}

/// Calls `callback` in a definition region of the given kind. In a pattern region, which extends to
/// all nested values, `kind` has no effect.
#[register("ffi.StructuralMutatorWithDefRegionKind")]
fn mutator_with_region(mutator: ObjectRef, kind: i32, callback: PackedFunc) -> Result<Any> {
    tool::with_region(Tool::of(&mutator, ToolKind::Mutator)?, Region::from_raw(kind), &callback)
}
