//! Python's containers as the runtime's.

use anyfn::{Any, AnyView, PackedFunc};

use crate::error;
use crate::lower::{At, lower_owned};
use crate::py::{self, Obj, Own, Res, names};

/// Makes an Array of a list or tuple.
pub(crate) fn lower_sequence(items: Obj<'_>, at: &At<'_>) -> Res<Any> {
    py::nested(|| {
        let values = lower_all(py::to_list(items)?, at)?;
        make("ffi.Array", &values)
    })
}

/// Makes a Map of a dict.
pub(crate) fn lower_mapping(pairs: Obj<'_>, at: &At<'_>) -> Res<Any> {
    py::nested(|| {
        let mut values = Vec::new();
        for pair in py::to_list(pairs.call_method(names::ITEMS.get(), &[])?.obj())? {
            values.extend(lower_all(py::to_list(pair.obj())?, at)?);
        }
        make("ffi.Map", &values)
    })
}

fn lower_all(items: Vec<Own>, at: &At<'_>) -> Res<Vec<Any>> {
    items.iter().map(|item| lower_owned(item.obj(), at)).collect()
}

fn make(constructor: &str, values: &[Any]) -> Res<Any> {
    let function: Result<PackedFunc, anyfn::Error> = anyfn::registry::get(constructor);
    let views: Vec<AnyView<'_>> = values.iter().map(Any::as_view).collect();
    function.and_then(|function| function.call_views(&views)).map_err(error::raise)
}
