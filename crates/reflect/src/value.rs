//! What all operations need of values: their kinds, their bits, and what lies in containers.

use alloc::vec::Vec;
use core::mem::ManuallyDrop;

use anyfn::abi::{
    TVMFFIBigIntGetContentByteArray, kTVMFFIArray, kTVMFFIBytes, kTVMFFIDict, kTVMFFIList, kTVMFFIMap,
    kTVMFFISmallBytes, kTVMFFISmallStr, kTVMFFIStaticObjectBegin, kTVMFFIStr,
};
use anyfn::{Any, Array, Dict, Error, List, Map, ObjectRef, Result, TensorRead, TensorView};

pub(crate) use anyfn::__private::{bytes_of, hash_bytes, hash_combine};

/// All bits of a value that is no object, but for the length of a small string.
#[inline]
pub(crate) fn bits(value: &Any) -> u64 {
    value.as_view().bits()
}

/// Whether all 16 bytes of two values are the same.
#[inline]
pub(crate) fn same_bits(left: &Any, right: &Any) -> bool {
    let (left, right) = (left.as_view(), right.as_view());
    left.type_index() == right.type_index()
        && left.as_raw().small_str_len == right.as_raw().small_str_len
        && left.bits() == right.bits()
}

#[inline]
pub(crate) fn is_object(type_index: i32) -> bool {
    type_index >= kTVMFFIStaticObjectBegin
}

#[inline]
pub(crate) fn is_string(type_index: i32) -> bool {
    matches!(type_index, kTVMFFIStr | kTVMFFISmallStr)
}

#[inline]
pub(crate) fn is_bytes(type_index: i32) -> bool {
    matches!(type_index, kTVMFFIBytes | kTVMFFISmallBytes)
}

/// The address of an object; 0 for other values.
#[inline]
pub(crate) fn address(value: &Any) -> usize {
    value.as_object().map_or(0, address_of)
}

#[inline]
pub(crate) fn address_of(object: &ObjectRef) -> usize {
    object.as_handle().addr()
}

/// The words of an int or a BigInt, as bytes.
pub(crate) fn words(value: &Any) -> Vec<u8> {
    let view = value.as_view();
    // SAFETY: a valid value, from which the result borrows.
    let words = unsafe { TVMFFIBigIntGetContentByteArray(view.as_raw()) };
    // SAFETY: borrowed from `view`, which outlives the copy.
    unsafe { words.as_slice() }.to_vec()
}

/// The extents of a shape.
pub(crate) fn extents(value: &Any) -> Result<anyfn::Shape> {
    value.get::<anyfn::Shape>()
}

/// What a value consists of.
pub(crate) enum Node {
    Array(Array),
    /// The elements that a List had when it was met.
    List(Vec<Any>),
    /// The pairs of a Map or Dict, those that it had when it was met.
    Pairs(Vec<(Any, Any)>),
    Object(ObjectRef),
}

/// Opens an object that may consist of others.
///
/// # Errors
/// `MemoryError` when memory is short.
#[inline]
pub(crate) fn open(object: ObjectRef) -> Result<Node> {
    match object.type_index() {
        kTVMFFIArray => array(object).map(Node::Array),
        kTVMFFIList => Ok(Node::List(list(object)?.try_snapshot()?)),
        kTVMFFIMap | kTVMFFIDict => pairs(&object).map(Node::Pairs),
        _ => Ok(Node::Object(object)),
    }
}

#[cold]
fn not_a(what: &str) -> Error {
    Error::new("InternalError", &alloc::format!("an object of the type {what} is none"))
}

/// An object of the type Array.
pub(crate) fn array(object: ObjectRef) -> Result<Array> {
    Array::try_from_object(object).map_err(|_| not_a("ffi.Array"))
}

/// An object of the type List.
pub(crate) fn list(object: ObjectRef) -> Result<List> {
    List::try_from_object(object).map_err(|_| not_a("ffi.List"))
}

/// A Map or Dict, to look keys up.
pub(crate) enum Mapping {
    Map(Map),
    Dict(Dict),
}

impl Mapping {
    /// An object of the type Map or Dict.
    pub(crate) fn of(object: ObjectRef) -> Result<Mapping> {
        if object.type_index() == kTVMFFIMap {
            return Map::try_from_object(object).map(Mapping::Map).map_err(|_| not_a("ffi.Map"));
        }
        Dict::try_from_object(object).map(Mapping::Dict).map_err(|_| not_a("ffi.Dict"))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Mapping::Map(map) => map.len(),
            Mapping::Dict(dict) => dict.len(),
        }
    }

    pub(crate) fn get(&self, key: &Any) -> Result<Option<Any>> {
        match self {
            Mapping::Map(map) => Ok(map.get_any(key)?.cloned()),
            Mapping::Dict(dict) => dict.get_any(key),
        }
    }

    /// The pairs of this moment.
    pub(crate) fn pairs(&self) -> Result<Vec<(Any, Any)>> {
        match self {
            Mapping::Map(map) => {
                let mut pairs = Vec::new();
                pairs.try_reserve_exact(map.len()).map_err(|_| Error::new("MemoryError", "out of memory"))?;
                pairs.extend(map.iter_any().map(|(key, value)| (key.clone(), value.clone())));
                Ok(pairs)
            }
            Mapping::Dict(dict) => dict.try_snapshot(),
        }
    }
}

/// The pairs of a Map or Dict, at this moment.
pub(crate) fn pairs(object: &ObjectRef) -> Result<Vec<(Any, Any)>> {
    Mapping::of(object.clone())?.pairs()
}

/// Reads the bytes of a tensor's elements in place.
///
/// # Errors
/// `InternalError` if they are not contiguous in main memory, naming what cannot be done then; `RuntimeError` if this thread writes
/// them.
pub(crate) fn content<'a>(tensor: &TensorView<'a>, verb: &str) -> Result<TensorRead<'a, u8>> {
    use anyfn::abi::kDLCPU;
    if tensor.device().0.device_type != kDLCPU {
        anyfn::bail!("InternalError", "can only {verb} CPU tensor");
    }
    if !tensor.is_contiguous() {
        anyfn::bail!("InternalError", "Can only {verb} contiguous tensor");
    }
    tensor.read_bytes()
}

/// An object that is being looked at: with a reference of its own, or by that of an Array which is being looked at, too.
///
/// Counting references is most of the work where little else is done.
pub(crate) struct Held {
    object: ManuallyDrop<ObjectRef>,
    /// 1 or 0. A whole word, so that moving it does not split what is read back at once.
    owned: usize,
}

impl Held {
    #[inline]
    pub(crate) fn owned(object: ObjectRef) -> Held {
        Held { object: ManuallyDrop::new(object), owned: 1 }
    }

    /// An element of an Array, without a reference of its own.
    ///
    /// # Safety
    /// As long as the result is used, somebody must hold the Array: then it does not change and keeps its elements.
    #[inline]
    pub(crate) unsafe fn borrowed(object: &ObjectRef) -> Held {
        // SAFETY: the copy is never dropped, and the caller guarantees that the object lives.
        let object = unsafe { core::ptr::read(object) };
        Held { object: ManuallyDrop::new(object), owned: 0 }
    }

    /// How many of the references are those of whoever holds the value and our own.
    #[inline]
    pub(crate) fn own(&self) -> usize {
        1 + self.owned
    }
}

impl core::ops::Deref for Held {
    type Target = ObjectRef;
    #[inline]
    fn deref(&self) -> &ObjectRef {
        &self.object
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        if self.owned != 0 {
            // SAFETY: dropped here only.
            unsafe { ManuallyDrop::drop(&mut self.object) };
        }
    }
}

/// The elements of an object of the type Array.
#[inline]
pub(crate) fn elements(array: &Held) -> &[Any] {
    debug_assert_eq!(array.type_index(), kTVMFFIArray);
    let array: *const ObjectRef = &raw const *array.object;
    // SAFETY: `Array` is transparent over an `ObjectRef`, and the object is an Array.
    unsafe { &*array.cast::<Array>() }.as_slice()
}
