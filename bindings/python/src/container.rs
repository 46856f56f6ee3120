//! Python's containers as the runtime's.

use anyfn::{Any, Array, Map};

use crate::error;
use crate::lower::{At, lower_owned};
use crate::py::{self, Obj, Own, Res};

/// Makes an Array of a list or tuple.
pub(crate) fn lower_sequence(items: Obj<'_>, is_list: bool, at: &At<'_>) -> Res<Any> {
    // The list may change while its items are converted, which can run Python code: its end is looked at each time.
    let item: fn(Obj<'_>, usize) -> Option<Own> = if is_list { py::list_item } else { py::tuple_item };
    py::nested(|| {
        let mut array = Array::<Any>::new();
        let mut index = 0;
        while let Some(value) = item(items, index) {
            array.push(lower_owned(value.obj(), &At::Item { of: at, index })?).map_err(error::raise)?;
            index += 1;
        }
        Ok(array.into_object().into())
    })
}

/// Makes a Map of a dict.
pub(crate) fn lower_mapping(pairs: Obj<'_>, at: &At<'_>) -> Res<Any> {
    py::nested(|| {
        let items = py::dict_items(pairs)?;
        let mut map = Map::<Any, Any>::new();
        let mut index = 0;
        while let Some(pair) = py::list_item(items.obj(), index) {
            if let (Some(key), Some(value)) = (py::tuple_item(pair.obj(), 0), py::tuple_item(pair.obj(), 1)) {
                let value = lower_owned(value.obj(), &At::Entry { of: at, key: key.obj() })?;
                map.insert(lower_owned(key.obj(), &At::Key { of: at })?, value).map_err(error::raise)?;
            }
            index += 1;
        }
        Ok(map.into_object().into())
    })
}
