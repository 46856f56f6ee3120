//! Helper functions for values: payload, identity, and content of containers and tensors.

use alloc::vec::Vec;
use core::mem::ManuallyDrop;

use anyfn::abi::{
    TVMFFIBigIntGetContentByteArray, kTVMFFIArray, kTVMFFIBytes, kTVMFFIDict, kTVMFFIList, kTVMFFIMap,
    kTVMFFISmallBytes, kTVMFFISmallStr, kTVMFFIStaticObjectBegin, kTVMFFIStr,
};
use anyfn::{Any, Array, Dict, Error, List, Map, ObjectRef, Result, TensorRead, TensorView};

pub(crate) use anyfn::__private::{bytes_of, hash_bytes, hash_combine};

/// Returns the 8-byte payload of a value that is not an object. The payload of a small string does not include its
/// length.
#[inline]
pub(crate) fn bits(value: &Any) -> u64 {
    value.as_view().bits()
}

/// Returns true if all 16 bytes of two values are the same. For objects, this means that they are the same object.
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

/// Returns the address of an object; 0 for other values.
#[inline]
pub(crate) fn address(value: &Any) -> usize {
    value.as_object().map_or(0, address_of)
}

#[inline]
pub(crate) fn address_of(object: &ObjectRef) -> usize {
    object.as_handle().addr()
}

/// Returns the 64-bit words of an int or BigInt as bytes, in two's complement, least significant word first.
pub(crate) fn words(value: &Any) -> Vec<u8> {
    let view = value.as_view();
    // SAFETY: a valid value, from which the result borrows.
    let words = unsafe { TVMFFIBigIntGetContentByteArray(view.as_raw()) };
    // SAFETY: borrowed from `view`, which outlives the copy.
    unsafe { words.as_slice() }.to_vec()
}

/// Returns the extents of a shape value.
pub(crate) fn extents(value: &Any) -> Result<anyfn::Shape> {
    value.get::<anyfn::Shape>()
}

/// Content of an object, by the kind of its children.
pub(crate) enum Node {
    Array(Array),
    /// Snapshot of the elements of a List.
    List(Vec<Any>),
    /// Snapshot of the key-value pairs of a Map or Dict.
    Pairs(Vec<(Any, Any)>),
    Object(ObjectRef),
}

/// Returns the content of an object. The content of a List, Map or Dict is a snapshot.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
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
    Error::new("InternalError", &alloc::format!("an object with the type index of {what} is not a {what}"))
}

/// Converts an object of type `ffi.Array` to an [`Array`].
pub(crate) fn array(object: ObjectRef) -> Result<Array> {
    Array::try_from_object(object).map_err(|_| not_a("ffi.Array"))
}

/// Converts an object of type `ffi.List` to a [`List`].
pub(crate) fn list(object: ObjectRef) -> Result<List> {
    List::try_from_object(object).map_err(|_| not_a("ffi.List"))
}

/// Map or Dict in which keys are looked up.
pub(crate) enum Mapping {
    Map(Map),
    Dict(Dict),
}

impl Mapping {
    /// Converts an object of type `ffi.Map` or `ffi.Dict` to a [`Mapping`].
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

    /// Returns a snapshot of the key-value pairs of the Map or Dict.
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

/// Returns a snapshot of the key-value pairs of a Map or Dict.
pub(crate) fn pairs(object: &ObjectRef) -> Result<Vec<(Any, Any)>> {
    Mapping::of(object.clone())?.pairs()
}

/// Returns read access to the bytes of a tensor's elements. `verb` names the operation in error messages.
///
/// # Errors
/// Returns `ValueError` if the elements are not in main memory, and `InternalError` if they are not contiguous; the message names the
/// operation by `verb`. Returns `RuntimeError` if this thread is writing the elements.
pub(crate) fn content<'a>(tensor: &TensorView<'a>, verb: &str) -> Result<TensorRead<'a, u8>> {
    use anyfn::abi::kDLCPU;
    if tensor.device().0.device_type != kDLCPU {
        anyfn::bail!(
            "ValueError",
            "cannot {verb} a tensor on {}: copy it to main memory first",
            tensor.device()
        );
    }
    if !tensor.is_contiguous() {
        anyfn::bail!("InternalError", "Can only {verb} contiguous tensor");
    }
    tensor.read_bytes()
}

/// Returns true if an operation must record the objects at this nesting depth regardless of their reference
/// counts. This applies to every 256th level from level 1024 on. An operation on a cycle thus ends even if
/// the reference counts do not show the cycle.
#[inline]
pub(crate) fn is_watched(depth: usize) -> bool {
    depth >= 1024 && depth.is_multiple_of(256)
}

/// Object that an operation is processing. The reference is either owned, or borrowed from the object's
/// parent, which is being processed as well.
///
/// Borrowing matters because reference counting dominates the run time of operations that do little else.
pub(crate) struct HeldObject {
    object: ManuallyDrop<ObjectRef>,
    /// 1 if the reference is owned, otherwise 0. The field is a whole word to avoid store-forwarding stalls
    /// when a value is moved.
    owned: usize,
}

impl HeldObject {
    #[inline]
    pub(crate) fn owned(object: ObjectRef) -> HeldObject {
        HeldObject { object: ManuallyDrop::new(object), owned: 1 }
    }

    /// Creates a borrowed reference to a child of an Array or another object, without incrementing
    /// the reference count.
    ///
    /// # Safety
    /// The parent of the object must be kept alive and must keep its reference to the object as
    /// long as the result is used.
    #[inline]
    pub(crate) unsafe fn borrowed(object: &ObjectRef) -> HeldObject {
        // SAFETY: the copy is never dropped, and the caller guarantees that the object lives.
        let object = unsafe { core::ptr::read(object) };
        HeldObject { object: ManuallyDrop::new(object), owned: 0 }
    }

    /// Returns the reference count that the object has if no other code refers to it: 1 for the reference of
    /// its parent, plus 1 if this reference is owned.
    #[inline]
    pub(crate) fn own(&self) -> usize {
        1 + self.owned
    }
}

impl core::ops::Deref for HeldObject {
    type Target = ObjectRef;
    #[inline]
    fn deref(&self) -> &ObjectRef {
        &self.object
    }
}

impl Drop for HeldObject {
    #[inline]
    fn drop(&mut self) {
        if self.owned != 0 {
            // SAFETY: dropped only here.
            unsafe { ManuallyDrop::drop(&mut self.object) };
        }
    }
}

/// Returns the elements of an Array.
#[inline]
pub(crate) fn elements(array: &ObjectRef) -> &[Any] {
    debug_assert_eq!(array.type_index(), kTVMFFIArray);
    let array: *const ObjectRef = array;
    // SAFETY: `Array` is transparent over an `ObjectRef`, and the object is an Array.
    unsafe { &*array.cast::<Array>() }.as_slice()
}
