//! Nested containers as Python's own.

use std::collections::HashMap;

use anyfn::abi::{kTVMFFIArray, kTVMFFIDict, kTVMFFIList, kTVMFFIMap, kTVMFFIShape};
use anyfn::{Any, Array, Dict, List, Map, ObjectRef, Shape};
use pyo3_ffi as ffi;

use super::{lift_item, native, raw};
use crate::object;
use crate::py::{self, Obj, Own, Res};

/// Lists and Dicts that have been met, with what they became: they may be met again, even within themselves.
type Met = HashMap<usize, Own>;

/// Copies a container with all containers in it: Arrays and Lists become lists, Maps and Dicts dicts, Shapes tuples.
/// Other objects stay what they are. A List or Dict that is met twice becomes one object.
pub(crate) fn to_python(value: Obj<'_>) -> Res<Own> {
    match object::reference_of(value) {
        Some(native) => match convert(&native, &mut Met::new())? {
            Some(converted) => Ok(converted),
            None => Ok(value.to_own()),
        },
        None => Ok(value.to_own()),
    }
}

fn convert_value(value: &Any, met: &mut Met) -> Res<Own> {
    if let kTVMFFIArray | kTVMFFIList | kTVMFFIMap | kTVMFFIDict | kTVMFFIShape = raw(value).type_index {
        let object = value.clone().into_object();
        if let Some(converted) = object.map(|object| convert(&object, met)).transpose()?.flatten() {
            return Ok(converted);
        }
    }
    lift_item(value)
}

/// `None` if the object is no container.
fn convert(object: &ObjectRef, met: &mut Met) -> Res<Option<Own>> {
    let address = object.as_handle().addr();
    let object = object.clone();
    py::nested(|| match object.type_index() {
        kTVMFFIArray => match Array::<Any>::try_from_object(object) {
            Ok(array) => {
                let mut items = super::reserved(array.len())?;
                for item in array.as_slice() {
                    items.push(convert_value(item, met)?);
                }
                py::list(items).map(Some)
            }
            Err(_) => Ok(None),
        },
        kTVMFFIList => match List::<Any>::try_from_object(object) {
            Ok(list) => {
                if let Some(converted) = met.get(&address) {
                    return Ok(Some(converted.obj().to_own()));
                }
                let converted = py::list(Vec::new())?;
                met.insert(address, converted.obj().to_own());
                for item in native(list.try_snapshot())? {
                    let item = convert_value(&item, met)?;
                    // SAFETY: a list and a valid object.
                    py::check(unsafe { ffi::PyList_Append(converted.as_ptr(), item.as_ptr()) })?;
                }
                Ok(Some(converted))
            }
            Err(_) => Ok(None),
        },
        kTVMFFIMap => match Map::<Any, Any>::try_from_object(object) {
            Ok(map) => {
                let converted = py::dict()?;
                for (key, value) in map.iter_any() {
                    set(&converted, key, value, met)?;
                }
                Ok(Some(converted))
            }
            Err(_) => Ok(None),
        },
        kTVMFFIDict => match Dict::<Any, Any>::try_from_object(object) {
            Ok(dict) => {
                if let Some(converted) = met.get(&address) {
                    return Ok(Some(converted.obj().to_own()));
                }
                let converted = py::dict()?;
                met.insert(address, converted.obj().to_own());
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
    let key = convert_key(key)?;
    // SAFETY: a dictionary and valid objects; hashing the key may run Python code.
    py::check(py::raw::run(|| unsafe { py::raw::PyDict_SetItem(dict.as_ptr(), key.as_ptr(), value.as_ptr()) }))
}

/// A key as Python can hash it: an Array becomes a tuple.
fn convert_key(key: &Any) -> Res<Own> {
    if raw(key).type_index == kTVMFFIArray
        && let Some(Ok(array)) = key.clone().into_object().map(Array::<Any>::try_from_object)
    {
        return py::nested(|| py::tuple(array.as_slice().iter().map(convert_key).collect::<Res<Vec<Own>>>()?));
    }
    lift_item(key)
}
