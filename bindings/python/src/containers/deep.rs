//! Conversion of nested containers to Python containers.

use anyfn::abi::{kTVMFFIArray, kTVMFFIDict, kTVMFFIList, kTVMFFIMap, kTVMFFIShape};
use anyfn::{Any, Array, Dict, List, Map, ObjectRef, Shape};
use pyo3_ffi as ffi;

use super::base::{bits, lift_item, native, raw};
use crate::loops::{Pace, push, reserved};
use crate::memo::ByAddress;
use crate::object;
use crate::py::{self, Obj, Own, Res};

/// Maximum number of items, including nested items, of an Array that is converted to the key of a
/// dict. The number is limited because Python computes the hash of a tuple again for each
/// occurrence.
const KEY_MAX: u64 = 1 << 20;

/// State of one conversion to Python containers: the results for containers that may be encountered again,
/// including containers that contain themselves.
#[derive(Default)]
struct Met {
    /// Python object for each converted container, by the address of the container. A reference to
    /// the container is stored as well, so that its address is not reused.
    containers: ByAddress<(Own, ObjectRef)>,
    /// Results for the Arrays that were converted to keys, by the address of the Array: the tuple,
    /// its number of items including nested items, and a reference to the Array.
    keys: ByAddress<(Own, u64, ObjectRef)>,
    pace: Option<Pace>,
}

impl Met {
    /// Returns the Python object that was made for the container at `address`, if it was converted before.
    fn find(&self, address: usize) -> Option<Own> {
        self.containers.get(&address).map(|(converted, _)| converted.obj().to_own())
    }

    fn keep(&mut self, object: &ObjectRef, converted: &Own) {
        let kept = (converted.obj().to_own(), object.clone());
        self.containers.insert(object.as_handle().addr(), kept);
    }

    fn step(&mut self) -> Res<()> {
        self.pace.get_or_insert(const { Pace::new() }).step()
    }
}

/// Copies a container with all containers inside it: Arrays and Lists become lists, Maps and Dicts become dicts,
/// Shapes become tuples. Other objects stay unchanged. A container that occurs twice becomes one object.
pub(crate) fn to_python(value: Obj<'_>) -> Res<Own> {
    match object::reference_of(value) {
        Some(native) => match convert(&native, &mut Met::default())? {
            Some(converted) => Ok(converted),
            None => Ok(value.to_own()),
        },
        None => Ok(value.to_own()),
    }
}

fn convert_value(value: &Any, met: &mut Met) -> Res<Own> {
    met.step()?;
    if let kTVMFFIArray | kTVMFFIList | kTVMFFIMap | kTVMFFIDict | kTVMFFIShape = raw(value).type_index {
        let object = value.clone().into_object();
        if let Some(converted) = object.map(|object| convert(&object, met)).transpose()?.flatten() {
            return Ok(converted);
        }
    }
    lift_item(value)
}

/// Converts a container. Returns `None` if the object is not a container.
fn convert(object: &ObjectRef, met: &mut Met) -> Res<Option<Own>> {
    let address = object.as_handle().addr();
    // The surrounding container and the caller own one reference each.
    let is_shared = object.use_count() > 2;
    if let Some(converted) = met.find(address) {
        return Ok(Some(converted));
    }
    let held = object;
    let object = object.clone();
    py::nested(|| match object.type_index() {
        kTVMFFIArray => match Array::<Any>::try_from_object(object) {
            Ok(array) if is_shared => {
                let converted = py::list(Vec::new())?;
                met.keep(held, &converted);
                for item in array.as_slice() {
                    let item = convert_value(item, met)?;
                    // SAFETY: the arguments are a list and a valid object.
                    py::check(unsafe { ffi::PyList_Append(converted.as_ptr(), item.as_ptr()) })?;
                }
                Ok(Some(converted))
            }
            Ok(array) => {
                let mut items = reserved(array.len())?;
                for item in array.as_slice() {
                    items.push(convert_value(item, met)?);
                }
                py::list(items).map(Some)
            }
            Err(_) => Ok(None),
        },
        kTVMFFIList => match List::<Any>::try_from_object(object) {
            Ok(list) => {
                let converted = py::list(Vec::new())?;
                met.keep(held, &converted);
                for item in native(list.try_snapshot())? {
                    let item = convert_value(&item, met)?;
                    // SAFETY: the arguments are a list and a valid object.
                    py::check(unsafe { ffi::PyList_Append(converted.as_ptr(), item.as_ptr()) })?;
                }
                Ok(Some(converted))
            }
            Err(_) => Ok(None),
        },
        kTVMFFIMap => match Map::<Any, Any>::try_from_object(object) {
            Ok(map) => {
                let converted = py::dict()?;
                if is_shared {
                    met.keep(held, &converted);
                }
                for (key, value) in map.iter_any() {
                    set(&converted, key, value, met)?;
                }
                Ok(Some(converted))
            }
            Err(_) => Ok(None),
        },
        kTVMFFIDict => match Dict::<Any, Any>::try_from_object(object) {
            Ok(dict) => {
                let converted = py::dict()?;
                met.keep(held, &converted);
                for (key, value) in native(dict.try_snapshot())? {
                    set(&converted, &key, &value, met)?;
                }
                Ok(Some(converted))
            }
            Err(_) => Ok(None),
        },
        kTVMFFIShape => match Shape::try_from_object(object) {
            Ok(shape) => {
                let extents = shape.iter().map(|extent| py::int(*extent)).collect::<Res<Vec<Own>>>()?;
                py::tuple(extents).map(Some)
            }
            Err(_) => Ok(None),
        },
        _ => Ok(None),
    })
}

fn set(dict: &Own, key: &Any, value: &Any, met: &mut Met) -> Res<()> {
    let value = convert_value(value, met)?;
    let (key, _) = convert_key(key, met)?;
    // SAFETY: the dictionary and the objects are valid; hashing the key may run Python code.
    py::check(py::raw::run(|| unsafe { py::raw::PyDict_SetItem(dict.as_ptr(), key.as_ptr(), value.as_ptr()) }))
}

/// Converts a key to an object that Python can hash: an Array becomes a tuple. Also returns the
/// number of items of the tuple, including nested items, or 1 for any other key.
fn convert_key(key: &Any, met: &mut Met) -> Res<(Own, u64)> {
    if raw(key).type_index != kTVMFFIArray {
        return Ok((lift_item(key)?, 1));
    }
    let Some(Ok(array)) = key.clone().into_object().map(Array::<Any>::try_from_object) else {
        return Ok((lift_item(key)?, 1));
    };
    let address = bits(key) as usize;
    if let Some((tuple, size, _)) = met.keys.get(&address) {
        return Ok((tuple.obj().to_own(), *size));
    }
    met.step()?;
    let (mut items, mut size) = (Vec::new(), 1_u64);
    py::nested(|| {
        for item in array.as_slice() {
            let (item, more) = convert_key(item, met)?;
            size = size.saturating_add(more);
            push(&mut items, item)?;
        }
        Ok(())
    })?;
    if size > KEY_MAX {
        let text = format!(
            "cannot make a tuple of an Array as a key: it has more than {KEY_MAX} items, nested ones included"
        );
        return py::raise(py::exceptions::value_error(), &text);
    }
    let tuple = py::tuple(items)?;
    met.keys.insert(address, (tuple.obj().to_own(), size, array.into_object()));
    Ok((tuple, size))
}
