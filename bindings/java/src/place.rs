//! Conversion between native values and the places of a buffer.
//!
//! A place has the layout of a native value. Most types are stored as such. The exceptions are:
//!
//! - strings, bytes and large integers, whose content is in the buffer: their type is a private tag, the second word is the length, and
//!   the payload is the address;
//! - objects: the second word says who owns the reference. Native code takes a reference that Java passes as owned, and Java takes all
//!   references that it receives;
//! - functions that Java implements: the second word is [`IS_JAVA`] in what Java receives.

use anyfn::abi::{
    TVMFFIAny, TVMFFIAnyViewToOwnedAny, TVMFFIBigIntFromByteArray, TVMFFIBigIntGetContentByteArray,
    TVMFFIByteArray, TVMFFIObject, kTVMFFIBigInt, kTVMFFIByteArrayPtr, kTVMFFIBytes, kTVMFFIDLTensorPtr,
    kTVMFFIFunction, kTVMFFIRawStr, kTVMFFISmallBytes, kTVMFFISmallStr, kTVMFFIStaticObjectBegin, kTVMFFIStr,
};
use anyfn::{Any, Bytes, Error, ObjectRef};

use crate::java_function;

/// Type of a place whose string is in the buffer. The class `org.anyfn.Value` defines the same numbers.
const TEXT: i32 = -101;
/// Type of a place whose bytes are in the buffer.
const BYTES: i32 = -102;
/// Type of a place whose integer of any size, in two's complement with the least significant byte first, is in the buffer.
const BIG: i32 = -103;
/// Second word of an object whose reference passes on.
const OWNED: u32 = 1;
/// Second word of a function that Java implements.
const IS_JAVA: u32 = 2;

/// The part of a buffer into which content may be written.
pub(crate) struct Room {
    /// First free byte.
    pub(crate) next: *mut u8,
    /// Number of free bytes.
    pub(crate) size: usize,
}

impl Room {
    /// Copies bytes into the buffer. Returns their address, or `None` if they do not fit.
    fn put(&mut self, bytes: &[u8]) -> Option<u64> {
        if bytes.len() > self.size {
            return None;
        }
        let at = self.next;
        // SAFETY: the room has this size, and belongs to this frame alone.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        // The next content begins at a multiple of 8, if any room is left.
        let used = bytes.len().next_multiple_of(8).min(self.size);
        self.next = self.next.wrapping_add(used);
        self.size -= used;
        Some(at.expose_provenance() as u64)
    }

    /// Stores content in the buffer or, if it does not fit, as an object.
    fn content(
        &mut self,
        tag: i32,
        bytes: &[u8],
        object: impl FnOnce() -> Result<Any, Error>,
    ) -> Result<TVMFFIAny, Error> {
        match self.put(bytes) {
            Some(address) => {
                let mut place = TVMFFIAny::from_bits(tag, address);
                place.small_str_len = bytes.len() as u32;
                Ok(place)
            }
            None => {
                let value = object()?;
                let mut place = value.into_raw();
                if place.type_index >= kTVMFFIStaticObjectBegin {
                    place.small_str_len = OWNED;
                }
                Ok(place)
            }
        }
    }
}

/// Converts a borrowed value to what a place contains. References of objects are new ones, which pass to Java.
pub(crate) fn encode(value: &TVMFFIAny, room: &mut Room) -> Result<TVMFFIAny, Error> {
    match value.type_index {
        kTVMFFISmallStr | kTVMFFISmallBytes => Ok(*value),
        index if index < kTVMFFIDLTensorPtr => Ok(*value),
        kTVMFFIStr => room.content(TEXT, heap_bytes(value), || owned(value)),
        kTVMFFIBytes => room.content(BYTES, heap_bytes(value), || owned(value)),
        kTVMFFIBigInt => {
            // SAFETY: the value is a valid `BigInt`, from which the result borrows.
            let words = unsafe { TVMFFIBigIntGetContentByteArray(value) };
            // SAFETY: `value` keeps the words alive.
            room.content(BIG, unsafe { words.as_slice() }, || owned(value))
        }
        kTVMFFIByteArrayPtr => {
            // SAFETY: a byte array view has its value in `v_ptr`.
            let content = unsafe { value.value.v_ptr }.cast::<TVMFFIByteArray>();
            // SAFETY: the pointer is the address of a byte array, or NULL if the caller violates the ABI.
            match unsafe { content.as_ref() } {
                Some(content) => {
                    // SAFETY: the view is valid, so the bytes are.
                    let bytes = unsafe { content.as_slice() };
                    room.content(BYTES, bytes, || Ok(Any::from(Bytes::from(bytes))))
                }
                None => Ok(TVMFFIAny::NONE),
            }
        }
        kTVMFFIDLTensorPtr => Err(Error::new(
            "TypeError",
            "the function returned a borrowed DLTensor*, which has no owner; it must return a tensor",
        )),
        index if index >= kTVMFFIStaticObjectBegin => {
            let mut place = owned(value)?.into_raw();
            place.small_str_len = OWNED;
            if index == kTVMFFIFunction && is_java_function(value) {
                place.small_str_len = IS_JAVA;
            }
            Ok(place)
        }
        // A C string, or a variable out of which an object may be moved.
        index => {
            let owned = owned(value)?;
            if owned.type_index() == index || (index != kTVMFFIRawStr && owned.type_index() < kTVMFFISmallStr) {
                let key = anyfn::type_key(index);
                return Err(Error::new(
                    "TypeError",
                    &format!("a value of type {key} cannot be converted to a Java value"),
                ));
            }
            encode(owned.as_raw(), room)
        }
    }
}

/// Returns a new owned value.
fn owned(value: &TVMFFIAny) -> Result<Any, Error> {
    let mut owned = TVMFFIAny::NONE;
    // SAFETY: the value is a valid view, and `owned` is writable.
    if unsafe { TVMFFIAnyViewToOwnedAny(value, &mut owned) } != 0 {
        return Err(Error::take_raised());
    }
    // SAFETY: on success this is an owned value.
    Ok(unsafe { Any::from_raw(owned) })
}

fn is_java_function(value: &TVMFFIAny) -> bool {
    // SAFETY: objects have their value in `v_obj`.
    let object = unsafe { value.value.v_obj };
    // SAFETY: the view is valid, so the object is alive.
    let function = unsafe { java_function::from_handle(object) };
    function.is_some_and(|function| function.is_function)
}

/// Returns the bytes of a string object or bytes object.
pub(crate) fn heap_bytes(value: &TVMFFIAny) -> &[u8] {
    // SAFETY: objects have their value in `v_obj`.
    let object = unsafe { value.value.v_obj };
    // SAFETY: these objects have a byte array behind the header.
    let content: *const TVMFFIByteArray = unsafe { object.add(1) }.cast();
    // SAFETY: the content of such an object is initialised and never changes.
    let content = unsafe { &*content };
    // SAFETY: the object owns its content, and the value keeps the object alive.
    unsafe { content.as_slice() }
}

/// Makes an integer of two's complement, the least significant byte first.
pub(crate) fn big(words: &[u8]) -> Result<Any, Error> {
    let words = TVMFFIByteArray::from_slice(words);
    let mut out = TVMFFIAny::NONE;
    // SAFETY: the words are borrowed for the call, and `out` is writable.
    if unsafe { TVMFFIBigIntFromByteArray(&words, &mut out) } != 0 {
        return Err(Error::take_raised());
    }
    // SAFETY: on success the result is an owned value.
    Ok(unsafe { Any::from_raw(out) })
}

/// Converts the content of a place to an owned value. An object that the place owns passes to the result.
///
/// # Safety
/// Java must have written the place: addresses must be those of content and of live objects.
pub(crate) unsafe fn decode(place: &TVMFFIAny) -> Result<Any, Error> {
    let length = place.small_str_len as usize;
    // SAFETY: the place is initialised.
    let bits = unsafe { place.bits() };
    let content = || -> &[u8] {
        if length == 0 {
            return &[];
        }
        let data: *const u8 = std::ptr::with_exposed_provenance(bits as usize);
        // SAFETY: guaranteed by the caller; the content is used before Java runs again.
        unsafe { std::slice::from_raw_parts(data, length) }
    };
    match place.type_index {
        TEXT => Ok(Any::from(anyfn::String::from(std::str::from_utf8(content())?))),
        BYTES => Ok(Any::from(Bytes::from(content()))),
        BIG => big(content()),
        index if index >= kTVMFFIStaticObjectBegin => {
            let handle: *mut TVMFFIObject = std::ptr::with_exposed_provenance_mut(bits as usize);
            let object = if length == 0 {
                // SAFETY: guaranteed by the caller.
                unsafe { ObjectRef::from_borrowed_or_null(handle.cast()) }
            } else {
                // SAFETY: guaranteed by the caller; the reference passes to the result.
                unsafe { ObjectRef::from_owned_or_null(handle.cast()) }
            };
            Ok(object.map_or(Any::NONE, Any::from))
        }
        // SAFETY: the value owns nothing.
        _ => Ok(unsafe { Any::from_raw(*place) }),
    }
}
