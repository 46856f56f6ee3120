//! Global functions `ffi.*` for containers, on which the container classes of frontends are based.

use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use anyfn::__private::{FunctionDef, functions};
use anyfn::{
    Any, AnyView, Args, Array, Device, Dict, Error, FromArg, List, Map, Mismatch, ObjectRef, PackedFunc,
    Result, Schema, Tensor, TypedPackedFunc,
};
use anyfn_abi::{kDLCPU, kTVMFFIArray, kTVMFFIDict, kTVMFFIList, kTVMFFIMap};

/// Declares argument types, each of which accepts one type of container only, with elements of any type. A
/// container of another type is rejected, not converted. Signatures show the container's name without element
/// types.
macro_rules! exact {
    ($($name:ident = $container:ty, $index:ident, $key:literal;)*) => { $(
        struct $name($container);

        impl FromArg for $name {
            type Arg<'a> = $name;
            fn schema() -> Schema {
                Schema::plain($key)
            }
            fn from_arg(view: &AnyView<'_>) -> Result<$name, Mismatch> {
                if view.type_index() != $index {
                    return Err(Mismatch::of_type::<Self>(view));
                }
                <$container as FromArg>::from_arg(view).map($name)
            }
        }
    )* };
}

exact! {
    AnyArray = Array, kTVMFFIArray, "ffi.Array";
    AnyList = List, kTVMFFIList, "ffi.List";
    AnyMap = Map, kTVMFFIMap, "ffi.Map";
    AnyDict = Dict, kTVMFFIDict, "ffi.Dict";
}

/// The global functions that this file implements.
pub(super) static FUNCTIONS: &[FunctionDef] = &functions! {
    "ffi.Array" [] => array,
    "ffi.ArrayGetItem" [] => |array: AnyArray, index: i64| array.0.get(element(index, array.0.len())?),
    "ffi.ArraySize" [] => |array: AnyArray| array.0.len(),
    "ffi.ArrayContains" [] => |array: AnyArray, value: Any| array.0.contains(&value),
    "ffi.List" [] => list,
    "ffi.ListGetItem" [] => |list: AnyList, index: i64| list.0.get(signed(index, &list.0, out_of_bounds)?),
    "ffi.ListSize" [] => |list: AnyList| list.0.len(),
    "ffi.ListContains" [] => |list: AnyList, value: Any| list.0.contains(&value),
    "ffi.ListSetItem" [] => |list: List, index: i64, value: Any| {
        list.set(signed(index, &list, out_of_bounds)?, value)
    },
    "ffi.ListAppend" [] => |list: List, value: Any| list.push(value),
    "ffi.ListInsert" [] => |list: List, index: i64, value: Any| {
        list.insert(signed(index, &list, out_of_positions)?, value)
    },
    "ffi.ListPop" [] => |list: List, index: i64| list.remove(signed(index, &list, out_of_bounds)?),
    "ffi.ListErase" [] => |list: List, index: i64| list.remove(signed(index, &list, out_of_bounds)?).map(drop),
    "ffi.ListEraseRange" [] => |list: List, start: i64, end: i64| {
        if start == end {
            return Ok(());
        }
        replace_range(&list, start, end, Vec::new())
    },
    // The values are copied first, because both may be the same List.
    "ffi.ListReplaceSlice" [] => |list: List, start: i64, end: i64, values: List| {
        replace_range(&list, start, end, values.snapshot())
    },
    "ffi.ListReserve" [] => |list: List, capacity: i64| {
        usize::try_from(capacity).map_or(Ok(()), |capacity| list.reserve(capacity))
    },
    "ffi.ListReverse" [] => |list: List| list.reverse(),
    "ffi.ListClear" [] => |list: List| list.clear(),
    "ffi.Map" [] => map,
    "ffi.MapSize" [] => |map: AnyMap| map.0.len(),
    "ffi.MapGetItem" [] => |map: AnyMap, key: Any| map.0.at(&key),
    "ffi.MapCount" [] => |map: AnyMap, key: Any| map.0.contains_key(&key).map(i64::from),
    "ffi.MapGetItemOrMissing" [] => |map: AnyMap, key: Any| or_missing(map.0.get(&key)?),
    "ffi.MapForwardIterFunctor" [] => |map: AnyMap| {
        iterate(map.0.iter_any().map(|(key, value)| (key.clone(), value.clone())).collect())
    },
    "ffi.Dict" [] => dict,
    "ffi.DictSize" [] => |dict: AnyDict| dict.0.len(),
    "ffi.DictGetItem" [] => |dict: AnyDict, key: Any| dict.0.at(&key),
    "ffi.DictCount" [] => |dict: AnyDict, key: Any| dict.0.contains_key(&key).map(i64::from),
    "ffi.DictGetItemOrMissing" [] => |dict: AnyDict, key: Any| or_missing(dict.0.get(&key)?),
    "ffi.DictSetItem" [] => |dict: Dict, key: Any, value: Any| dict.insert(key, value).map(drop),
    "ffi.DictErase" [] => |dict: Dict, key: Any| dict.remove(&key).map(drop),
    "ffi.DictClear" [] => |dict: Dict| dict.clear(),
    "ffi.DictForwardIterFunctor" [] => |dict: AnyDict| iterate(dict.0.snapshot()),
    "ffi.ContainerFindFirstNonCPUDevice" [] => first_device_but_cpu,
};

fn array(args: Args<'_>) -> Result<Array> {
    Array::try_from_iter(args.as_slice().iter().copied())
}

fn list(args: Args<'_>) -> Result<List> {
    List::try_from_iter(args.as_slice().iter().copied())
}

fn map(args: Args<'_>) -> Result<Map> {
    let mut map = Map::<Any, Any>::new();
    for (key, value) in pairs(args.as_slice())? {
        map.insert(key.to_owned(), value.to_owned())?;
    }
    Ok(map)
}

fn dict(args: Args<'_>) -> Result<Dict> {
    let dict = Dict::<Any, Any>::new();
    for (key, value) in pairs(args.as_slice())? {
        dict.insert(key.to_owned(), value.to_owned())?;
    }
    Ok(dict)
}

/// Converts an index of `list` to `usize`, or returns the error that `error` creates if the index
/// is negative. The upper bound is checked later, under the lock of the list.
fn signed(index: i64, list: &List, error: fn(i64, usize) -> Error) -> Result<usize> {
    usize::try_from(index).map_err(|_| error(index, list.len()))
}

fn element(index: i64, len: usize) -> Result<usize> {
    usize::try_from(index).map_err(|_| out_of_bounds(index, len))
}

#[cold]
fn out_of_bounds(index: i64, len: usize) -> Error {
    anyfn::error!("IndexError", "Index {index} out of bounds {len}")
}

#[cold]
fn out_of_positions(index: i64, len: usize) -> Error {
    anyfn::error!("IndexError", "Index {index} out of bounds [0, {len}]")
}

fn replace_range(list: &List, start: i64, end: i64, values: Vec<Any>) -> Result<()> {
    match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) => list.replace_range(start..end, values),
        _ if start == end && values.is_empty() => Ok(()),
        _ if start == end => Err(out_of_positions(start, list.len())),
        _ => Err(anyfn::error!("IndexError", "Erase range [{start}, {end}) out of bounds {}", list.len())),
    }
}

/// Groups `values`, which are alternating keys and values, into pairs.
fn pairs<'a>(values: &'a [AnyView<'a>]) -> Result<impl Iterator<Item = (AnyView<'a>, AnyView<'a>)>> {
    if !values.len().is_multiple_of(2) {
        anyfn::bail!("RuntimeError", "Check failed: args.size() % 2 == 0 ({} vs. 0) : ", values.len() % 2);
    }
    Ok(values.chunks_exact(2).map(|pair| (pair[0], pair[1])))
}

/// Returns the value `found`, or the sentinel for a missing value if `found` is `None`.
fn or_missing(found: Option<Any>) -> Result<Any> {
    match found {
        Some(value) => Ok(value),
        None => anyfn::global!("ffi.GetInvalidObject")?.call(()),
    }
}

/// Returns an iterator over `pairs` in the form of a function with one argument. The argument 0 returns the
/// key of the current pair and 1 its value. Any other number advances to the next pair and returns true if it
/// exists.
fn iterate(pairs: Vec<(Any, Any)>) -> PackedFunc {
    let at = AtomicUsize::new(0);
    TypedPackedFunc::from_fn(move |command: i64| -> Result<Any> {
        if !matches!(command, 0 | 1) {
            let next = (at.load(Ordering::Relaxed) + 1).min(pairs.len());
            at.store(next, Ordering::Relaxed);
            return Any::new(next < pairs.len());
        }
        match pairs.get(at.load(Ordering::Relaxed)) {
            Some((key, value)) => Ok(if command == 0 { key } else { value }.clone()),
            None => anyfn::bail!("IndexError", "the iterator is exhausted"),
        }
    })
    .into()
}

/// Searches nested containers for a tensor that is not on the CPU and returns the device of the first such
/// tensor, or the CPU if there is no such tensor. The keys of maps are not searched.
fn first_device_but_cpu(value: Any) -> Result<Device> {
    // Containers may be deeply nested, and Lists and Dicts may even contain themselves: no recursion, and each is
    // visited once.
    let mut visited = Map::<i64, ObjectRef>::new();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        let Some(object) = value.as_object() else { continue };
        if let Ok(tensor) = Tensor::try_from_object(object.clone()) {
            let device = tensor.view().device();
            if device.0.device_type != kDLCPU {
                return Ok(device);
            }
            continue;
        }
        let items: Vec<Any> = match value.type_index() {
            kTVMFFIArray => value.get::<Array>()?.as_slice().to_vec(),
            kTVMFFIList => value.get::<List>()?.snapshot(),
            kTVMFFIMap => value.get::<Map>()?.iter_any().map(|(_, value)| value.clone()).collect(),
            kTVMFFIDict => value.get::<Dict>()?.snapshot().into_iter().map(|(_, value)| value).collect(),
            _ => continue,
        };
        let address = object.as_handle().addr() as i64;
        if !visited.contains_key(address)? {
            visited.insert(address, object.clone())?;
            open.extend(items.into_iter().rev());
        }
    }
    Ok(Device::CPU)
}
