//! `repr` of containers, in a form that Python can evaluate to an equal container.
//!
//! A container that occurs several times is written in full each time while the result is short. Once
//! [`REPEATED_MAX`] items have been written, a further occurrence is shown as dots, like a container within itself.
//! The length of the result thus grows with the number of containers, not with the number of paths to them.

use std::cell::{Cell, RefCell};

use anyfn::abi::{kTVMFFIArray, kTVMFFIDict, kTVMFFIList, kTVMFFIMap};
use anyfn::{Any, Array, Dict, List, Map, ObjectRef};

use super::base::{CLASSES, lift_item, native, raw};
use super::slots::slots;
use crate::loops::Pace;
use crate::memo::ByAddress;
use crate::object;
use crate::py::{self, Obj, Own, Res};

/// Maximum nesting depth of containers that are printed in full; deeper containers appear as `...`.
const DEPTH_MAX: usize = 100;

/// Number of printed items up to which a container that occurs again is printed in full. In a
/// longer result, such a container appears as `...`.
const REPEATED_MAX: u32 = 10_000;

thread_local! {
    /// State of the `repr` in progress on this thread: the containers written so far that may occur again, by
    /// address, and the number of items written so far.
    static WRITTEN: (RefCell<ByAddress<ObjectRef>>, Cell<u32>) =
        const { (RefCell::new(ByAddress::with_hasher(rustc_hash::FxBuildHasher)), Cell::new(0)) };
    /// Addresses of the containers that this thread is writing, outermost first. The `repr` of an object inside them
    /// may write further containers.
    static WRITING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Guard that marks a container as being written until the guard is dropped.
struct Writing;

impl Writing {
    /// Begins to write a container. Returns `None` if the container must be abbreviated to `...`: it is being
    /// written already, it was written before and the result is long, or it is nested too deeply.
    fn begin(container: &ObjectRef) -> Option<Writing> {
        let address = container.as_handle().addr();
        let is_again = WRITTEN
            .with(|(written, items)| items.get() > REPEATED_MAX && written.borrow().contains_key(&address));
        if is_again {
            return None;
        }
        // The surrounding container and the caller own one reference each.
        if container.use_count() > 2 {
            let kept = container.clone();
            drop(WRITTEN.with(|(written, _)| written.borrow_mut().insert(address, kept)));
        }
        WRITING.with_borrow_mut(|writing| {
            if writing.len() >= DEPTH_MAX || writing.contains(&address) {
                return None;
            }
            writing.push(address);
            Some(Writing)
        })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let is_outermost = WRITING.with_borrow_mut(|writing| {
            writing.pop();
            writing.is_empty()
        });
        if is_outermost {
            drop(WRITTEN.with(|(written, items)| {
                items.set(0);
                written.take()
            }));
        }
    }
}

fn write_value(out: &mut String, value: &Any) -> Res<()> {
    if let kTVMFFIArray | kTVMFFIList | kTVMFFIMap | kTVMFFIDict = raw(value).type_index
        && let Some(container) = value.clone().into_object()
    {
        return write_container(out, container, None);
    }
    let value = lift_item(value)?;
    // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
    let text = py::unsafe_new_ref!(py::raw::PyObject_Repr(value.as_ptr()))?;
    match text.obj().str_bytes() {
        Ok(bytes) => out.push_str(&py::text_of(bytes)),
        Err(py::Raised) => {
            // The text contains lone surrogates.
            py::clear_error();
            out.push_str("<text that is not Unicode>");
        }
    }
    Ok(())
}

fn write_all<'a, T: 'a>(
    out: &mut String,
    brackets: [char; 2],
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut String, T) -> Res<()>,
) -> Res<()> {
    out.push(brackets[0]);
    let mut pace = Pace::new();
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        WRITTEN.with(|(_, items)| items.set(items.get().saturating_add(1)));
        pace.step()?;
        write(out, item)?;
    }
    out.push(brackets[1]);
    Ok(())
}

/// Writes a container in the form `class(items)`. If `class` is `None`, the name of the built-in class is written.
fn write_container(out: &mut String, container: ObjectRef, class: Option<&str>) -> Res<()> {
    let kind = container.type_index();
    let name = match kind {
        kTVMFFIArray => "anyfn.Array",
        kTVMFFIList => "anyfn.List",
        kTVMFFIMap => "anyfn.Map",
        _ => "anyfn.Dict",
    };
    out.push_str(class.unwrap_or(name));
    out.push('(');
    let is_mapping = matches!(kind, kTVMFFIMap | kTVMFFIDict);
    let pair = |out: &mut String, key: &Any, value: &Any| {
        write_value(out, key)?;
        out.push_str(": ");
        write_value(out, value)
    };
    match Writing::begin(&container) {
        None => out.push_str(if is_mapping { "{...}" } else { "[...]" }),
        Some(_writing) => match kind {
            kTVMFFIArray => {
                if let Ok(array) = Array::<Any>::try_from_object(container) {
                    write_all(out, ['[', ']'], array.as_slice(), write_value)?;
                }
            }
            kTVMFFIList => {
                if let Ok(list) = List::<Any>::try_from_object(container) {
                    write_all(out, ['[', ']'], &native(list.try_snapshot())?, write_value)?;
                }
            }
            kTVMFFIMap => {
                if let Ok(map) = Map::<Any, Any>::try_from_object(container) {
                    write_all(out, ['{', '}'], map.iter_any(), |out, (key, value)| pair(out, key, value))?;
                }
            }
            _ => {
                if let Ok(dict) = Dict::<Any, Any>::try_from_object(container) {
                    let pairs = native(dict.try_snapshot())?;
                    write_all(out, ['{', '}'], &pairs, |out, (key, value)| pair(out, key, value))?;
                }
            }
        },
    }
    out.push(')');
    Ok(())
}

/// Returns the `repr` of a view in the form `name(items)`. `items` is the list of the view's keys,
/// values or pairs.
pub(super) fn write_listed(name: &str, items: Obj<'_>) -> Res<Own> {
    // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
    let text = py::unsafe_new_ref!(py::raw::PyObject_Repr(items.as_ptr()))?;
    let text = text.obj().to_text()?;
    py::string_lossy(format!("{name}({text})").as_bytes())
}

slots! {
    pub(super) fn repr(this: obj) -> Own {
        let name = this.class_name();
        let Some(container) = object::reference_of(this) else {
            return py::string_lossy(format!("<{name} object without a native container>").as_bytes());
        };
        let own = CLASSES.iter().any(|(_, class)| this.class().is(class.ptr()));
        let mut text = String::new();
        write_container(&mut text, container, (!own).then_some(name.as_str()))?;
        py::string_lossy(text.as_bytes())
    }
}
