//! Conversion of JavaScript values to native values, called *lowering*. It applies to the arguments of calls and to the results of
//! callbacks.

use std::mem::MaybeUninit;
use std::ptr;

use anyfn::abi::{
    DLDataType, DLDevice, DLTensor, TVMFFIAny, TVMFFIBigIntFromByteArray, TVMFFIByteArray, kDLCPU, kTVMFFIBool,
    kTVMFFIDataType, kTVMFFIDevice, kTVMFFIFloat, kTVMFFIInt, kTVMFFIOpaquePtr,
};
use anyfn::{Any, Bytes, DType, Error, Tensor};

use crate::env::{Memory, Res, Value};
use crate::js_function;
use crate::state::{BORROWED_TENSOR, Js};
use crate::sys::{array_type, value_type};

/// Tags of values that are not native objects. The package defines them with the same numbers (`lib/values.js`).
mod tag {
    pub(crate) const FLOAT: i32 = -1;
    pub(crate) const DTYPE: i32 = -2;
    pub(crate) const DEVICE: i32 = -3;
    pub(crate) const OPAQUE: i32 = -4;
}

/// Data types of typed arrays, by kind: code, bits.
const DTYPES: [(u8, u8); 11] =
    [(0, 8), (1, 8), (1, 8), (0, 16), (1, 16), (0, 32), (1, 32), (2, 32), (2, 64), (0, 64), (1, 64)];

/// Size of the buffer on the stack into which strings are copied.
const SHORT: usize = 256;

/// A tensor that describes the memory of a typed array.
pub(crate) struct View {
    pub(crate) tensor: DLTensor,
    shape: [i64; 1],
    pub(crate) array: Value,
}

impl View {
    /// Returns the number of elements.
    pub(crate) fn length(&self) -> i64 {
        self.shape[0]
    }
}

/// Number of views that need no allocation.
const INLINE: usize = 4;

/// Views of a call. Native code receives their addresses, so the value must not move once it contains views.
pub(crate) struct Views {
    inline: [MaybeUninit<View>; INLINE],
    /// Number of views in `inline`.
    used: usize,
    #[expect(clippy::vec_box, reason = "a view must not move")]
    more: Vec<Box<View>>,
}

impl Views {
    #[inline]
    pub(crate) fn new() -> Views {
        Views { inline: [const { MaybeUninit::uninit() }; INLINE], used: 0, more: Vec::new() }
    }

    /// Adds a view, and returns its address.
    fn add(&mut self, view: View) -> *const DLTensor {
        let view = match self.inline.get_mut(self.used) {
            Some(place) => {
                self.used += 1;
                place.write(view)
            }
            None => {
                self.more.push(Box::new(view));
                // The vector is not empty.
                let last = self.more.len() - 1;
                &mut self.more[last]
            }
        };
        view.tensor.shape = view.shape.as_mut_ptr();
        &raw const view.tensor
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns all views.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &View> {
        // SAFETY: the first `used` places contain views.
        let inline = self.inline[..self.used].iter().map(|view| unsafe { view.assume_init_ref() });
        inline.chain(self.more.iter().map(|view| &**view))
    }
}

/// Conversion of typed arrays.
pub(crate) enum Arrays<'v> {
    /// To a tensor that borrows the memory. The views are stored here, and must not be dropped before the call ends.
    Lend(&'v mut Views),
    /// To a tensor with a copy of the content.
    Copy,
    /// Not at all; the text tells what to do instead.
    Refuse(&'static str),
}

impl Js<'_> {
    /// Converts an argument into `out`, which contains None. Numbers are written member by member: a value that is written in parts
    /// and moved as a whole costs the processor a stall.
    #[inline]
    pub(crate) fn lower_into(self, value: Value, arrays: &mut Arrays<'_>, out: &mut Any) -> Res<()> {
        if let Ok(number) = self.env.to_double(value) {
            let (type_index, bits) = number_bits(number);
            let out: *mut TVMFFIAny = ptr::from_mut(out).cast();
            // SAFETY: `Any` has the layout of its raw value, and None owns nothing.
            let out = unsafe { &mut *out };
            out.type_index = type_index;
            out.value.v_uint64 = bits;
            return Ok(());
        }
        *out = self.lower(value, arrays)?;
        Ok(())
    }

    /// Converts a value to an owned native value, or to a borrowed tensor.
    #[inline(never)]
    pub(crate) fn lower(self, value: Value, arrays: &mut Arrays<'_>) -> Res<Any> {
        match self.env.type_of(value)? {
            value_type::NUMBER => {
                let (type_index, bits) = number_bits(self.env.to_double(value)?);
                Ok(plain(type_index, bits))
            }
            value_type::STRING => self.lower_string(value),
            value_type::UNDEFINED | value_type::NULL => Ok(Any::NONE),
            value_type::BOOLEAN => Ok(plain(kTVMFFIBool, u64::from(self.env.to_bool(value)?))),
            value_type::FUNCTION => self.lower_function(value),
            value_type::OBJECT => self.lower_object(value, arrays),
            value_type::BIGINT => self.lower_bigint(value),
            _ => self.env.type_error("a symbol cannot be converted to a native value"),
        }
    }

    /// Converts a value to an owned native value. The content of typed arrays is copied.
    pub(crate) fn lower_owned(self, value: Value) -> Res<Any> {
        self.lower(value, &mut Arrays::Copy)
    }

    /// Converts the result of a callback. The numbers that a function with bigints returns are floats.
    pub(crate) fn lower_result(self, value: Value, big: bool) -> Res<Any> {
        if big && self.env.type_of(value)? == value_type::NUMBER {
            return Ok(plain(kTVMFFIFloat, self.env.to_double(value)?.to_bits()));
        }
        self.lower_owned(value)
    }

    fn lower_string(self, value: Value) -> Res<Any> {
        let mut buffer = [0; SHORT];
        let length = self.env.read_string(value, &mut buffer)?;
        // A longer string was cut off before a character of up to four bytes.
        if length < SHORT - 4 {
            return self.string(value, &buffer[..length]);
        }
        let bytes = self.env.to_utf8(value)?;
        self.string(value, &bytes)
    }

    fn string(self, value: Value, bytes: &[u8]) -> Res<Any> {
        // U+FFFD may replace a lone surrogate.
        if !bytes.is_ascii() && bytes.windows(3).any(|three| three == "\u{fffd}".as_bytes()) {
            self.check_surrogates(value)?;
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Any::from(anyfn::String::from(text))),
            Err(_) => self.env.type_error("the string cannot be encoded"),
        }
    }

    #[cold]
    fn check_surrogates(self, value: Value) -> Res<()> {
        let units = self.env.to_utf16(value)?;
        let mut at = 0;
        for decoded in char::decode_utf16(units) {
            match decoded {
                Ok(character) => at += character.len_utf16(),
                Err(_) => {
                    return self.env.type_error(&format!(
                        "the string has a lone surrogate at index {at}, which UTF-8 cannot represent; `toWellFormed` replaces it"
                    ));
                }
            }
        }
        Ok(())
    }

    fn lower_function(self, value: Value) -> Res<Any> {
        match self.tag_of(value)? {
            Some(slot) if slot >= 0.0 => Ok(self.object_of_slot(slot)?.into()),
            _ => self.callback(value, false),
        }
    }

    /// Makes a native function that calls a JavaScript function.
    pub(crate) fn callback(self, function: Value, big: bool) -> Res<Any> {
        match js_function::make(self.env, &self.state.shared, function, big, true) {
            Some(function) => Ok(function.into()),
            None => self.env.error("cannot refer to the function"),
        }
    }

    #[inline(never)]
    fn lower_object(self, value: Value, arrays: &mut Arrays<'_>) -> Res<Any> {
        if let Ok(memory) = self.env.typed_array(value) {
            return self.lower_array(value, memory, arrays);
        }
        match self.tag_of(value)? {
            Some(slot) if slot >= 0.0 => Ok(self.object_of_slot(slot)?.into()),
            Some(tag) => self.lower_tagged(value, tag as i32),
            None => self.lower_other(value),
        }
    }

    fn lower_tagged(self, value: Value, tag: i32) -> Res<Any> {
        let content = self.content_of(value)?;
        match tag {
            tag::FLOAT => Ok(plain(kTVMFFIFloat, self.env.to_double(content)?.to_bits())),
            tag::DTYPE => Ok(plain(kTVMFFIDataType, self.env.to_uint64(content)?)),
            tag::DEVICE => Ok(plain(kTVMFFIDevice, self.env.to_uint64(content)?)),
            tag::OPAQUE => Ok(plain(kTVMFFIOpaquePtr, self.env.to_uint64(content)?)),
            _ => self.env.type_error("unknown tag of a value"),
        }
    }

    fn lower_other(self, value: Value) -> Res<Any> {
        if self.env.is_array_buffer(value)? {
            self.check_attached(value)?;
            let memory = self.env.array_buffer_memory(value)?;
            return Ok(bytes_of(&memory, memory.length));
        }
        if self.env.is_error(value)? {
            return Ok(self.error_of(value, CAUSES_MAX).into());
        }
        // The result is a wrapper, or a tagged value.
        let converted = self.call_hook(&self.state.hooks.convert, &[value])?;
        match self.tag_of(converted)? {
            Some(slot) if slot >= 0.0 => Ok(self.object_of_slot(slot)?.into()),
            _ => self.env.type_error("the package returned no native object"),
        }
    }

    fn lower_bigint(self, value: Value) -> Res<Any> {
        if let Some(value) = self.env.to_int64(value)? {
            return Ok(plain(kTVMFFIInt, value as u64));
        }
        let (negative, mut words) = self.env.to_words(value)?;
        // Two's complement needs a bit for the sign.
        words.push(0);
        if negative {
            let mut carry = true;
            for word in &mut words {
                (*word, carry) = (!*word).overflowing_add(u64::from(carry));
            }
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let bytes = TVMFFIByteArray::from_slice(&bytes);
        let mut out = TVMFFIAny::NONE;
        // SAFETY: the words are borrowed for the call, and `out` is writable.
        if unsafe { TVMFFIBigIntFromByteArray(&bytes, &mut out) } != 0 {
            let error = Error::take_raised();
            return self.env.range_error(error.message());
        }
        // SAFETY: on success the result is an owned value.
        Ok(unsafe { Any::from_raw(out) })
    }

    fn check_attached(self, buffer: Value) -> Res<()> {
        if self.env.is_detached(buffer) {
            return self.env.type_error("the ArrayBuffer is detached: its memory was transferred elsewhere");
        }
        Ok(())
    }

    fn lower_array(self, value: Value, memory: Memory, arrays: &mut Arrays<'_>) -> Res<Any> {
        let mut memory = memory;
        let mut is_bytes = false;
        if memory.kind == array_type::UINT8 || memory.kind == array_type::UINT8_CLAMPED {
            is_bytes = self.env.is_true(self.call_hook(&self.state.hooks.is_bytes, &[value])?);
            // A proxy among the prototypes of the array may have run any code.
            memory = self.env.typed_array(value)?;
        }
        if memory.data.is_null() {
            self.check_attached(memory.buffer)?;
        }
        if is_bytes {
            return Ok(bytes_of(&memory, memory.length));
        }
        let Some((code, bits)) = usize::try_from(memory.kind).ok().and_then(|kind| DTYPES.get(kind)).copied()
        else {
            return self.env.type_error("typed arrays of this class cannot be converted to a tensor");
        };
        let dtype = DLDataType { code, bits, lanes: 1 };
        let length = memory.length as i64;
        match arrays {
            Arrays::Refuse(why) => self.env.type_error(why),
            Arrays::Copy => {
                let bytes = content(&memory, memory.length * usize::from(bits / 8));
                let tensor = Tensor::zeros(DType(dtype), &[length]).and_then(|tensor| {
                    tensor.set_bytes(bytes)?;
                    Ok(tensor)
                });
                match tensor {
                    Ok(tensor) => Ok(tensor.into()),
                    Err(error) => Err(self.throw(error)),
                }
            }
            Arrays::Lend(views) => {
                let tensor = DLTensor {
                    data: memory.data,
                    device: DLDevice { device_type: kDLCPU, device_id: 0 },
                    ndim: 1,
                    dtype,
                    shape: ptr::null_mut(),
                    strides: ptr::null_mut(),
                    byte_offset: 0,
                };
                let address = views.add(View { tensor, shape: [length], array: value });
                Ok(plain(BORROWED_TENSOR, address.expose_provenance() as u64))
            }
        }
    }
}

/// Maximum length of the chain of causes that a conversion of an exception follows.
const CAUSES_MAX: usize = 32;

/// Makes a value that owns nothing.
#[inline]
fn plain(type_index: i32, bits: u64) -> Any {
    // SAFETY: values of these types own nothing.
    unsafe { Any::from_raw(TVMFFIAny::from_bits(type_index, bits)) }
}

/// Converts a number by the rule of the package: an integer below 2^53 that is not -0 is an int, every other number a float. Returns type
/// index and payload.
#[inline]
fn number_bits(value: f64) -> (i32, u64) {
    const LIMIT: f64 = 9_007_199_254_740_992.0;
    if value.abs() < LIMIT {
        // SAFETY: the number is finite and within the range of the type.
        let int: i64 = unsafe { value.to_int_unchecked() };
        // The bits of -0 differ from those of 0.
        if (int as f64).to_bits() == value.to_bits() {
            return (kTVMFFIInt, int as u64);
        }
    }
    (kTVMFFIFloat, value.to_bits())
}

/// Converts a number to a raw value, which owns nothing.
#[inline]
pub(crate) fn number(value: f64) -> TVMFFIAny {
    let (type_index, bits) = number_bits(value);
    TVMFFIAny::from_bits(type_index, bits)
}

fn bytes_of(memory: &Memory, size: usize) -> Any {
    Any::from(Bytes::from(content(memory, size)))
}

/// Returns the first bytes of a buffer. They are valid until JavaScript code runs.
fn content(memory: &Memory, size: usize) -> &[u8] {
    if size == 0 || memory.data.is_null() {
        return &[];
    }
    // SAFETY: the engine guarantees this memory, and no JavaScript code runs while callers use the bytes.
    unsafe { std::slice::from_raw_parts(memory.data.cast::<u8>(), size) }
}
