//! Strings and byte strings. Up to seven bytes are stored inline in the value, and longer content
//! in an object.

use core::borrow::Borrow;
use core::cmp::Ordering;
use core::convert::Infallible;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;
use core::str::FromStr;

use alloc::borrow::Cow;
use alloc::string::String as StdString;
use alloc::vec::Vec;

use anyfn_abi::{
    TVMFFIAny, TVMFFIAnyValue, TVMFFIByteArray, TVMFFIObject, kTVMFFIBytes, kTVMFFISmallBytes, kTVMFFISmallStr,
    kTVMFFIStr,
};

use crate::bytes_object::{BytesObject, content_of};
use crate::{Any, AnyView};

/// Maximum number of bytes that are stored inline in a value.
pub(crate) const SMALL_MAX: usize = 7;

/// Packs up to seven bytes into a little-endian word, padded with zeros.
///
/// This avoids a copy of variable length, which would be a function call and cost more than the rest of the
/// function.
#[inline]
pub(crate) fn pack(bytes: &[u8]) -> u64 {
    let half = |at: usize| {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[at..at + 4]);
        u64::from(u32::from_le_bytes(word)) << (8 * at)
    };
    let byte = |at: usize| u64::from(bytes[at]) << (8 * at);
    match bytes.len() {
        0 => 0,
        // The halves and bytes may overlap; where they do, they agree.
        len @ 1..=3 => byte(0) | byte(len / 2) | byte(len - 1),
        len => half(0) | half(len.min(SMALL_MAX) - 4),
    }
}

/// Creates an owned value with a copy of `bytes`, which is stored inline in the value or in an object.
#[inline]
fn make(bytes: &[u8], small_index: i32, object_index: i32) -> Any {
    match small(bytes, small_index) {
        Some(value) => value,
        None => BytesObject::allocate(bytes, object_index).into(),
    }
}

/// Creates a value like [`make`]; returns `None` if memory allocation fails.
pub(crate) fn try_make(bytes: &[u8], small_index: i32, object_index: i32) -> Option<Any> {
    small(bytes, small_index).or_else(|| BytesObject::try_allocate(bytes, object_index).map(Any::from))
}

/// Returns a value that stores the bytes inline; `None` if there are more than seven bytes.
#[inline]
fn small(bytes: &[u8], small_index: i32) -> Option<Any> {
    if bytes.len() <= SMALL_MAX {
        let raw = TVMFFIAny {
            type_index: small_index,
            small_str_len: bytes.len() as u32,
            value: TVMFFIAnyValue { v_uint64: pack(bytes).to_le() },
        };
        // SAFETY: small content owns nothing, and the bytes are padded with zeros as the ABI requires.
        return Some(unsafe { Any::from_raw(raw) });
    }
    None
}

/// Returns the bytes of a string or bytes value. The type of the value must be small string, small bytes,
/// String object or Bytes object.
#[inline]
pub(crate) fn bytes_of<'a>(view: &'a AnyView<'_>) -> &'a [u8] {
    let raw = view.as_raw();
    match raw.type_index {
        kTVMFFISmallStr | kTVMFFISmallBytes => {
            let data: *const u8 = (&raw const raw.value).cast();
            let len = (raw.small_str_len as usize).min(SMALL_MAX);
            // SAFETY: the content is stored in the value, which `'a` borrows.
            unsafe { core::slice::from_raw_parts(data, len) }
        }
        _ => {
            // SAFETY: the remaining two types are objects in which a byte array follows the header.
            let object: *const TVMFFIObject = unsafe { raw.value.v_obj };
            // SAFETY: the remaining two types are objects in which a byte array follows the header. The view keeps the
            // object alive for `'a`.
            unsafe { content_of(object) }
        }
    }
}

macro_rules! byte_type {
    ($(#[$doc:meta])* $name:ident, $small:ident, $object:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        #[repr(transparent)]
        pub struct $name(Any);

        impl $name {
            /// Converts the string or byte string into an [`Any`].
            pub fn into_any_value(self) -> Any {
                self.0
            }

            /// Returns the string or byte string as a borrowed [`Any`].
            #[inline]
            pub fn as_any(&self) -> &Any {
                &self.0
            }

            /// Wraps a value whose type the caller has checked: it must be a string for `String` and bytes
            /// for `Bytes`.
            #[inline]
            pub(crate) fn from_any_unchecked(value: Any) -> Self {
                debug_assert!(value.type_index() == $small || value.type_index() == $object);
                $name(value)
            }

            /// Wraps a borrowed value whose type the caller has checked: it must be a string for `String` and
            /// bytes for `Bytes`.
            #[inline]
            #[allow(dead_code, reason = "one macro for both")]
            pub(crate) fn of_any_unchecked(value: &Any) -> &Self {
                debug_assert!(value.type_index() == $small || value.type_index() == $object);
                // SAFETY: the type is transparent over the value.
                unsafe { &*core::ptr::from_ref(value).cast() }
            }

            /// Returns the content as bytes.
            #[inline]
            pub fn as_bytes(&self) -> &[u8] {
                bytes_of(self.0.view_ref())
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.as_bytes() == other.as_bytes()
            }
        }
        impl Eq for $name {}
        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                self.as_bytes().cmp(other.as_bytes())
            }
        }
        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                (**self).hash(state);
            }
        }
        impl From<$name> for Any {
            fn from(value: $name) -> Any {
                value.0
            }
        }
    };
}

byte_type! {
    /// An immutable UTF-8 string. It can be passed to other languages without a copy.
    ///
    /// It dereferences to `str`, and can be used where `AsRef<str>` or, as the key of a map, `Borrow<str>` is required.
    ///
    /// ```
    /// # use anyfn_core as _;
    /// use std::collections::HashMap;
    ///
    /// let text = anyfn::String::from("hello");
    /// assert_eq!(text, "hello");
    /// assert!(text.starts_with("he"));
    ///
    /// let sizes = HashMap::from([(text, 5)]);
    /// assert_eq!(sizes.get("hello"), Some(&5));
    /// ```
    String, kTVMFFISmallStr, kTVMFFIStr
}

byte_type! {
    /// An immutable byte string. It can be passed to other languages without a copy.
    ///
    /// It dereferences to `[u8]`.
    ///
    /// ```
    /// # use anyfn_core as _;
    /// let bytes = anyfn::Bytes::from(vec![1, 2, 3]);
    /// assert_eq!(bytes, [1, 2, 3]);
    /// assert_eq!(bytes.iter().max(), Some(&3));
    /// ```
    Bytes, kTVMFFISmallBytes, kTVMFFIBytes
}

impl From<&str> for String {
    #[inline]
    fn from(text: &str) -> String {
        String(make(text.as_bytes(), kTVMFFISmallStr, kTVMFFIStr))
    }
}

impl From<StdString> for String {
    fn from(text: StdString) -> String {
        text.as_str().into()
    }
}

impl From<&StdString> for String {
    fn from(text: &StdString) -> String {
        text.as_str().into()
    }
}

impl From<Cow<'_, str>> for String {
    fn from(text: Cow<'_, str>) -> String {
        String::from(&*text)
    }
}

impl From<char> for String {
    fn from(character: char) -> String {
        String::from(&*character.encode_utf8(&mut [0; 4]))
    }
}

impl From<String> for StdString {
    fn from(text: String) -> StdString {
        StdString::from(&*text)
    }
}

impl FromStr for String {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<String, Infallible> {
        Ok(text.into())
    }
}

impl FromIterator<char> for String {
    fn from_iter<I: IntoIterator<Item = char>>(characters: I) -> String {
        characters.into_iter().collect::<StdString>().into()
    }
}

impl<'a> FromIterator<&'a str> for String {
    fn from_iter<I: IntoIterator<Item = &'a str>>(parts: I) -> String {
        parts.into_iter().collect::<StdString>().into()
    }
}

impl Default for String {
    /// Returns the empty string.
    fn default() -> String {
        "".into()
    }
}

impl From<&[u8]> for Bytes {
    #[inline]
    fn from(bytes: &[u8]) -> Bytes {
        Bytes(make(bytes, kTVMFFISmallBytes, kTVMFFIBytes))
    }
}

impl<const N: usize> From<&[u8; N]> for Bytes {
    fn from(bytes: &[u8; N]) -> Bytes {
        bytes.as_slice().into()
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        bytes.as_slice().into()
    }
}

impl From<Bytes> for Vec<u8> {
    fn from(bytes: Bytes) -> Vec<u8> {
        bytes.to_vec()
    }
}

impl FromIterator<u8> for Bytes {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> Bytes {
        bytes.into_iter().collect::<Vec<u8>>().into()
    }
}

impl<'a> IntoIterator for &'a Bytes {
    type Item = &'a u8;
    type IntoIter = core::slice::Iter<'a, u8>;
    fn into_iter(self) -> core::slice::Iter<'a, u8> {
        self.iter()
    }
}

impl Default for Bytes {
    /// Returns the empty byte string.
    fn default() -> Bytes {
        b"".into()
    }
}

impl Deref for String {
    type Target = str;
    /// Returns the content. If C code has violated the ABI and the bytes are not UTF-8, returns an empty
    /// string.
    #[inline]
    fn deref(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).unwrap_or("")
    }
}

impl Deref for Bytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for String {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for String {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.as_bytes().escape_ascii())
    }
}

impl AsRef<str> for String {
    fn as_ref(&self) -> &str {
        self
    }
}

impl AsRef<[u8]> for String {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

#[cfg(feature = "std")]
impl AsRef<std::ffi::OsStr> for String {
    fn as_ref(&self) -> &std::ffi::OsStr {
        (**self).as_ref()
    }
}

#[cfg(feature = "std")]
impl AsRef<std::path::Path> for String {
    fn as_ref(&self) -> &std::path::Path {
        (**self).as_ref()
    }
}

/// Borrows the content. Strings are compared and hashed by their contents.
impl Borrow<str> for String {
    fn borrow(&self) -> &str {
        self
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Borrows the content. Byte strings are compared and hashed by their contents.
impl Borrow<[u8]> for Bytes {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Implements equality between two types by comparing their bytes.
macro_rules! equal_bytes {
    ($( [$($generics:tt)*] $left:ty, $right:ty => |$this:ident, $other:ident| $equal:expr; )*) => { $(
        impl<$($generics)*> PartialEq<$right> for $left {
            fn eq(&self, $other: &$right) -> bool {
                let $this = self;
                $equal
            }
        }
    )* };
}

equal_bytes! {
    [] String, str => |this, other| this.as_bytes() == other.as_bytes();
    [] String, &str => |this, other| this.as_bytes() == other.as_bytes();
    [] String, StdString => |this, other| this.as_bytes() == other.as_bytes();
    [] str, String => |this, other| this.as_bytes() == other.as_bytes();
    [] &str, String => |this, other| this.as_bytes() == other.as_bytes();
    [] StdString, String => |this, other| this.as_bytes() == other.as_bytes();
    [] Bytes, [u8] => |this, other| this.as_bytes() == other;
    [] Bytes, &[u8] => |this, other| this.as_bytes() == *other;
    [const N: usize] Bytes, [u8; N] => |this, other| this.as_bytes() == other;
    [const N: usize] Bytes, &[u8; N] => |this, other| this.as_bytes() == *other;
    [] Bytes, Vec<u8> => |this, other| this.as_bytes() == other;
}

/// Returns the content of a `TVMFFIByteArray` as a string, or an empty string if the bytes are not
/// UTF-8.
///
/// # Safety
/// The requirements of [`TVMFFIByteArray::as_slice`] apply.
pub(crate) unsafe fn text_of<'a>(array: &TVMFFIByteArray) -> &'a str {
    // SAFETY: the caller guarantees the requirements of `as_slice`.
    core::str::from_utf8(unsafe { array.as_slice() }).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_every_length_as_the_bytes_lie() {
        let bytes = [0x81u8, 0x42, 0xc3, 0x24, 0xa5, 0x66, 0xe7];
        for len in 0..=SMALL_MAX {
            let mut expected = [0u8; 8];
            expected[..len].copy_from_slice(&bytes[..len]);
            assert_eq!(pack(&bytes[..len]), u64::from_le_bytes(expected), "{len} bytes");
        }
    }
}
