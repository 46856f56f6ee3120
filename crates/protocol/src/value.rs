//! Serialisation of values to messages and back. This module does no I/O; the caller provides the handles
//! through [`Names`].
//!
//! A value is a tag followed by its content; numbers are little-endian, lengths are `u32`. Containers, and objects whose fields
//! are values, are sent by value. Functions, modules, tensors and everything else that cannot be serialised are sent as handles
//! of the end that owns them.

use alloc::borrow::{Cow, ToOwned};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use anyfn::abi::{
    kTVMFFIArray, kTVMFFIBool, kTVMFFIByteArrayPtr, kTVMFFIBytes, kTVMFFIDLTensorPtr, kTVMFFIDataType,
    kTVMFFIDevice, kTVMFFIDict, kTVMFFIError, kTVMFFIFloat, kTVMFFIFunction, kTVMFFIInt, kTVMFFIList,
    kTVMFFIMap, kTVMFFIModule, kTVMFFINone, kTVMFFIObjectRValueRef, kTVMFFIOpaquePtr, kTVMFFIOpaquePyObject,
    kTVMFFIRawStr, kTVMFFIShape, kTVMFFISmallBytes, kTVMFFISmallStr, kTVMFFIStaticObjectBegin, kTVMFFIStr,
    kTVMFFITensor,
};
use anyfn::{
    Any, AnyView, Array, Bytes, DType, Device, Dict, Error, List, Map, ObjectRef, Result, Shape, TensorView,
    bail, check_signals, error, registry,
};

use crate::tables::HashMap;

/// Maximum number of elements for which memory is reserved in advance. A message that only claims to contain
/// many elements thus takes little memory.
const ROOM: usize = 256;

/// Maximum number of dimensions of a tensor.
const DIMENSIONS_MAX: usize = 64;

/// Maximum nesting depth of values.
pub const DEPTH_MAX: usize = 64;

/// Class of an object that a handle refers to: function, module, tensor, or any other object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Packed function.
    Function = 1,
    /// Module, which has functions by name.
    Module = 2,
    /// Tensor in the memory of the sender.
    Tensor = 3,
    /// Object of any other type.
    Object = 4,
}

impl Class {
    fn of(byte: u8) -> Option<Class> {
        [Class::Function, Class::Module, Class::Tensor, Class::Object]
            .into_iter()
            .find(|class| *class as u8 == byte)
    }

    /// Returns the name of the class for error messages.
    pub fn name(self) -> &'static str {
        match self {
            Class::Function => "function",
            Class::Module => "module",
            Class::Tensor => "tensor",
            Class::Object => "object",
        }
    }
}

/// Description of a tensor without its elements.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Extents of the dimensions; none is negative.
    pub shape: Vec<i64>,
    /// Data type of the elements.
    pub dtype: DType,
    /// Device that holds the tensor's memory, in the device numbering of the tensor's owner.
    pub device: Device,
}

/// Handle received from the peer, with a description of its object.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// Number by which the peer identifies the object.
    pub handle: u64,
    /// Class of the object that the handle refers to.
    pub class: Class,
    /// Type key of the object that the handle refers to.
    pub type_key: String,
    /// Description of the tensor that the handle refers to; `None` for other objects.
    pub tensor: Option<TensorInfo>,
}

/// Conversion between objects and the handles of a session.
pub trait Names {
    /// Returns the handle by which the peer refers to a local object, and increments the number of times that
    /// the handle was sent.
    fn give(&self, class: Class, object: Any) -> Result<u64>;
    /// Returns the peer's handle if `object` is a proxy for an object of the peer, otherwise `None`.
    fn theirs(&self, object: &ObjectRef) -> Result<Option<u64>>;
    /// Returns a proxy for the peer's object to which a received handle refers.
    fn proxy(&self, given: Given) -> Result<Any>;
    /// Returns the local object to which a handle held by the peer refers.
    fn own(&self, handle: u64) -> Result<Any>;
    /// Returns a handle for a local tensor that is an argument of a call. The peer may use the memory of the tensor for the
    /// duration of the call.
    fn lend(&self, tensor: &TensorView<'_>) -> Result<u64>;
    /// Returns an error if reading must be aborted. [`Reader`] calls this method at intervals while it reads
    /// a message.
    fn look(&self) -> Result<()> {
        Ok(())
    }
}

/// Message format that both ends have agreed on in the handshake.
#[derive(Clone, Copy)]
pub struct Wire {
    /// True if a value may refer to an earlier value of the same message.
    pub shares: bool,
    /// Maximum length in bytes of a message that this end may send.
    pub longest: usize,
}

mod tag {
    pub(super) const NONE: u8 = 0;
    pub(super) const FALSE: u8 = 1;
    pub(super) const TRUE: u8 = 2;
    pub(super) const INT: u8 = 3;
    pub(super) const FLOAT: u8 = 4;
    pub(super) const STR: u8 = 5;
    pub(super) const BYTES: u8 = 6;
    pub(super) const DTYPE: u8 = 7;
    pub(super) const DEVICE: u8 = 8;
    pub(super) const SHAPE: u8 = 9;
    pub(super) const ARRAY: u8 = 10;
    pub(super) const LIST: u8 = 11;
    pub(super) const MAP: u8 = 12;
    pub(super) const DICT: u8 = 13;
    pub(super) const ERROR: u8 = 14;
    pub(super) const GRAPH: u8 = 15;
    pub(super) const MINE: u8 = 16;
    pub(super) const YOURS: u8 = 17;
    pub(super) const KEPT: u8 = 18;
    pub(super) const AGAIN: u8 = 19;
}

/// Number of values that are processed between two checks for signals and cancellation.
const LOOK_EVERY: u32 = 4096;

/// Form in which an object was written to a message.
enum Written {
    /// The content of the object was written. Later values of the message refer to it by `number`; `height`
    /// is the nesting depth of the content.
    Kept { number: u32, height: usize },
    /// Only a handle was written, because the object cannot be sent by value.
    Handle,
}

/// Serialiser of values for one message.
pub struct Writer<'a> {
    names: &'a dyn Names,
    /// Bytes written so far.
    pub out: Vec<u8>,
    wire: Wire,
    depth: usize,
    /// Maximum of `depth` since the writer began the current shareable object, that is, an object to which
    /// later values may refer. The height of the object is computed from it.
    reached: usize,
    /// Number of values until the next check for signals and cancellation.
    patience: u32,
    /// Objects that may occur again in the message, by address. They are kept alive, so that addresses are
    /// not reused.
    written: HashMap<usize, (Written, ObjectRef)>,
    /// Number of values written so far to which later values may refer.
    kept: u32,
}

impl<'a> Writer<'a> {
    /// Creates a serialiser that appends to `out`.
    pub fn new(names: &'a dyn Names, out: Vec<u8>, wire: Wire) -> Writer<'a> {
        Writer {
            names,
            out,
            wire,
            depth: 0,
            reached: 0,
            patience: LOOK_EVERY,
            written: HashMap::default(),
            kept: 0,
        }
    }

    /// Returns an error if `more` further bytes would exceed the maximum length of a message.
    #[inline]
    fn room(&self, more: usize) -> Result<()> {
        if self.out.len().saturating_add(more) > self.wire.longest { Err(self.too_long()) } else { Ok(()) }
    }

    #[cold]
    fn too_long(&self) -> Error {
        let limit = self.wire.longest;
        error!(
            "ValueError",
            "cannot send the values: they take more than {limit} bytes, the limit of one message (`message_bytes`)"
        )
    }

    fn length(&mut self, length: usize) -> Result<()> {
        let Ok(length) = u32::try_from(length) else {
            bail!(
                "ValueError",
                "cannot send a value of {length} bytes or elements: the number must fit in 32 bits"
            );
        };
        self.out.extend_from_slice(&length.to_le_bytes());
        Ok(())
    }

    fn number(&mut self, tag: u8, bytes: [u8; 8]) {
        let mut all = [tag; 9];
        all[1..].copy_from_slice(&bytes);
        self.out.extend_from_slice(&all);
    }

    fn sized(&mut self, tag: u8, bytes: &[u8]) -> Result<()> {
        self.room(bytes.len())?;
        self.out.push(tag);
        self.length(bytes.len())?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes a list of values, such as the arguments of a call.
    pub fn values(&mut self, values: &[AnyView<'_>]) -> Result<()> {
        self.length(values.len())?;
        // Views hold no reference, so with several of them a count of 1 does not exclude that two are the same object.
        let many = values.iter().filter(|value| is_by_value(value.type_index())).nth(1).is_some();
        let owners = if many { 0 } else { 1 };
        values.iter().try_for_each(|value| self.value(value, owners))
    }

    /// Writes one value.
    ///
    /// # Errors
    /// Returns `ValueError` if the value is nested too deeply, contains itself, or is too long, and `TypeError` for a pointer.
    pub fn one(&mut self, value: &AnyView<'_>) -> Result<()> {
        self.value(value, 1)
    }

    /// Writes a value. `owners` is the number of references that this occurrence holds to the value's object.
    /// If the object has more references, it may occur again in the message.
    fn value(&mut self, value: &AnyView<'_>, owners: usize) -> Result<()> {
        if self.depth == DEPTH_MAX {
            return Err(too_deep());
        }
        self.room(0)?;
        self.patience -= 1;
        if self.patience == 0 {
            self.patience = LOOK_EVERY;
            check_signals()?;
        }
        self.depth += 1;
        self.reached = self.reached.max(self.depth);
        let done = if self.wire.shares
            && is_by_value(value.type_index())
            && let Some(object) = value.as_object()
            && object.use_count() > owners
        {
            self.shared(value, object)
        } else {
            self.content(value)
        };
        self.depth -= 1;
        done
    }

    /// Writes an object that may occur again in the message. Writes its content the first time, and only its
    /// number after that.
    #[inline(never)]
    fn shared(&mut self, value: &AnyView<'_>, object: &ObjectRef) -> Result<()> {
        let address = object.as_handle().addr();
        match self.written.get(&address) {
            Some((Written::Kept { number, height }, _)) => {
                if self.depth + height > DEPTH_MAX {
                    return Err(too_deep());
                }
                self.reached = self.reached.max(self.depth + height);
                self.out.push(tag::AGAIN);
                self.out.extend_from_slice(&number.to_le_bytes());
                return Ok(());
            }
            Some((Written::Handle, _)) => return self.handle(value, object),
            None => {}
        }
        let outer = core::mem::replace(&mut self.reached, self.depth);
        let start = self.out.len();
        self.out.push(tag::KEPT);
        self.content(value)?;
        let height = self.reached - self.depth;
        self.reached = self.reached.max(outer);
        let written = if matches!(self.out.get(start + 1), Some(&tag::MINE | &tag::YOURS)) {
            self.out.remove(start);
            Written::Handle
        } else {
            self.kept += 1;
            Written::Kept { number: self.kept - 1, height }
        };
        self.written.insert(address, (written, object.clone()));
        Ok(())
    }

    fn content(&mut self, value: &AnyView<'_>) -> Result<()> {
        match value.type_index() {
            kTVMFFINone => self.out.push(tag::NONE),
            kTVMFFIBool => self.out.push(if value.get::<bool>()? { tag::TRUE } else { tag::FALSE }),
            kTVMFFIInt => {
                self.number(tag::INT, value.get::<i64>()?.to_le_bytes());
            }
            kTVMFFIFloat => {
                self.number(tag::FLOAT, value.get::<f64>()?.to_bits().to_le_bytes());
            }
            kTVMFFIRawStr | kTVMFFISmallStr | kTVMFFIStr => {
                self.sized(tag::STR, value.get::<&str>()?.as_bytes())?
            }
            kTVMFFIByteArrayPtr | kTVMFFISmallBytes | kTVMFFIBytes => {
                self.sized(tag::BYTES, value.get::<&[u8]>()?)?
            }
            kTVMFFIDataType => {
                self.out.push(tag::DTYPE);
                self.dtype(value.get::<DType>()?);
            }
            kTVMFFIDevice => {
                self.out.push(tag::DEVICE);
                self.device(value.get::<Device>()?);
            }
            kTVMFFIShape => {
                self.out.push(tag::SHAPE);
                self.shape(&value.get::<Shape>()?)?;
            }
            kTVMFFIArray => {
                self.out.push(tag::ARRAY);
                let array = value.get::<Array>()?;
                self.length(array.len())?;
                array.as_slice().iter().try_for_each(|item| self.value(&item.as_view(), 1))?;
            }
            kTVMFFIList => {
                self.out.push(tag::LIST);
                let items = value.get::<List>()?.try_snapshot()?;
                self.length(items.len())?;
                // The list holds another reference besides the one in `items`.
                items.iter().try_for_each(|item| self.value(&item.as_view(), 2))?;
            }
            kTVMFFIMap => {
                self.out.push(tag::MAP);
                let map = value.get::<Map>()?;
                self.length(map.len())?;
                for (key, item) in map.iter_any() {
                    self.value(&key.as_view(), 1)?;
                    self.value(&item.as_view(), 1)?;
                }
            }
            kTVMFFIDict => {
                self.out.push(tag::DICT);
                let pairs = value.get::<Dict>()?.try_snapshot()?;
                self.length(pairs.len())?;
                for (key, item) in &pairs {
                    self.value(&key.as_view(), 2)?;
                    self.value(&item.as_view(), 2)?;
                }
            }
            kTVMFFIError => {
                self.out.push(tag::ERROR);
                self.error(&value.get::<Error>()?)?;
            }
            kTVMFFIDLTensorPtr => {
                let view = value.get::<TensorView<'_>>()?;
                let handle = self.names.lend(&view)?;
                self.mine(handle, Class::Tensor, "ffi.Tensor", Some(&view))?;
            }
            kTVMFFIOpaquePtr => {
                bail!("TypeError", "cannot send a pointer, which has no meaning in another process")
            }
            kTVMFFIObjectRValueRef => {
                self.depth -= 1;
                let done = self.value(&value.to_owned().as_view(), 1);
                self.depth += 1;
                done?;
            }
            _ => self.object(value)?,
        }
        Ok(())
    }

    fn object(&mut self, value: &AnyView<'_>) -> Result<()> {
        let Some(object) = value.as_object() else {
            bail!("TypeError", "cannot send a value of type `{}`", value.type_key());
        };
        let names_it = !is_by_value(value.type_index()) || self.names.theirs(object)?.is_some();
        if !names_it && let Some(text) = graph(value) {
            // Serialising a graph takes long and does not check for signals.
            check_signals()?;
            return self.sized(tag::GRAPH, text.as_bytes());
        }
        self.handle(value, object)
    }

    /// Writes an object as a handle.
    fn handle(&mut self, value: &AnyView<'_>, object: &ObjectRef) -> Result<()> {
        if let Some(handle) = self.names.theirs(object)? {
            self.out.push(tag::YOURS);
            self.out.extend_from_slice(&handle.to_le_bytes());
            return Ok(());
        }
        let class = match value.type_index() {
            kTVMFFIFunction => Class::Function,
            kTVMFFIModule => Class::Module,
            kTVMFFITensor => Class::Tensor,
            _ => Class::Object,
        };
        let handle = self.names.give(class, value.to_owned())?;
        let view = if class == Class::Tensor { Some(value.get::<TensorView<'_>>()?) } else { None };
        self.mine(handle, class, value.type_key(), view.as_ref())
    }

    fn mine(&mut self, handle: u64, class: Class, key: &str, tensor: Option<&TensorView<'_>>) -> Result<()> {
        self.out.push(tag::MINE);
        self.out.extend_from_slice(&handle.to_le_bytes());
        self.out.push(class as u8);
        self.text(key)?;
        if let Some(tensor) = tensor {
            self.shape(tensor.shape())?;
            self.dtype(tensor.dtype());
            self.device(tensor.device());
        }
        Ok(())
    }

    /// Writes a string with a length prefix.
    pub fn text(&mut self, text: &str) -> Result<()> {
        self.room(text.len())?;
        self.length(text.len())?;
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn shape(&mut self, shape: &[i64]) -> Result<()> {
        self.room(size_of_val(shape))?;
        self.length(shape.len())?;
        shape.iter().for_each(|extent| self.out.extend_from_slice(&extent.to_le_bytes()));
        Ok(())
    }

    fn dtype(&mut self, dtype: DType) {
        self.out.extend_from_slice(&[dtype.0.code, dtype.0.bits]);
        self.out.extend_from_slice(&dtype.0.lanes.to_le_bytes());
    }

    fn device(&mut self, device: Device) {
        self.out.extend_from_slice(&device.0.device_type.to_le_bytes());
        self.out.extend_from_slice(&device.0.device_id.to_le_bytes());
    }

    /// Writes an error as its kind, message and backtrace.
    pub fn error(&mut self, error: &Error) -> Result<()> {
        self.text(error.kind())?;
        self.text(error.message())?;
        self.text(&error.backtrace())
    }
}

#[cold]
fn too_deep() -> Error {
    error!("ValueError", "cannot send a value that is nested deeper than {DEPTH_MAX} or contains itself")
}

/// Returns true for the types of containers and objects, which are sent by value if possible.
#[inline]
fn is_by_value(type_index: i32) -> bool {
    type_index >= kTVMFFIStaticObjectBegin
        && !matches!(
            type_index,
            kTVMFFIStr
                | kTVMFFIBytes
                | kTVMFFIError
                | kTVMFFIFunction
                | kTVMFFIShape
                | kTVMFFITensor
                | kTVMFFIModule
                | kTVMFFIOpaquePyObject
        )
}

/// Serialises an object and all that it refers to as JSON. Returns `None` if part of it cannot be serialised.
fn graph(value: &AnyView<'_>) -> Option<anyfn::String> {
    let write = registry::find("ffi.ToJSONGraphString")?;
    write.call_views(&[*value, AnyView::NONE]).ok()?.get::<anyfn::String>().ok()
}

/// Deserialiser of values from one message.
pub struct Reader<'a> {
    names: &'a dyn Names,
    bytes: &'a [u8],
    wire: Wire,
    depth: usize,
    /// Maximum of `depth` since the reader began the current shareable object, that is, an object to which
    /// later values may refer. The height of the object is computed from it.
    reached: usize,
    /// Values read so far to which later values may refer, each with the nesting depth of its content.
    kept: Vec<(Any, usize)>,
    /// Number of values until the next call of [`Names::look`].
    patience: u32,
    /// True if reading was aborted by an error of [`Names::look`].
    given_up: bool,
}

impl<'a> Reader<'a> {
    /// Creates a deserialiser for the message `bytes`.
    pub fn new(names: &'a dyn Names, bytes: &'a [u8], wire: Wire) -> Reader<'a> {
        let (patience, given_up) = (LOOK_EVERY, false);
        Reader { names, bytes, wire, depth: 0, reached: 0, kept: Vec::new(), patience, given_up }
    }

    /// Returns the bytes of the message that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Checks that the whole message has been read.
    pub fn end(&self) -> Result<()> {
        match self.bytes.len() {
            0 => Ok(()),
            left => bail!("ValueError", "{left} unexpected bytes follow the end of a message"),
        }
    }

    #[inline]
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.bytes.split_at_checked(count) else { return Err(self.ends(count)) };
        self.bytes = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((taken, rest)) = self.bytes.split_first_chunk::<N>() else { return Err(self.ends(N)) };
        self.bytes = rest;
        Ok(*taken)
    }

    #[cold]
    fn ends(&self, count: usize) -> Error {
        let left = self.bytes.len();
        error!("ValueError", "a message ends within a value: expected {count} bytes, got {left}")
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads a two-byte integer.
    #[inline]
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Reads a four-byte integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads an eight-byte integer.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads an element count. Returns an error if the rest of the message is too short for that many
    /// elements of at least `each` bytes.
    fn count(&mut self, each: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        if count > self.bytes.len() / each {
            bail!(
                "ValueError",
                "a message claims {count} elements, but only {} bytes follow",
                self.bytes.len()
            );
        }
        Ok(count)
    }

    fn sized(&mut self) -> Result<&'a [u8]> {
        let count = self.count(1)?;
        self.take(count)
    }

    /// Reads a string with a length prefix.
    pub fn text(&mut self) -> Result<&'a str> {
        match core::str::from_utf8(self.sized()?) {
            Ok(text) => Ok(text),
            Err(_) => bail!("ValueError", "a string in a message is not UTF-8"),
        }
    }

    /// Reads a list of values.
    pub fn values(&mut self) -> Result<Vec<Any>> {
        let count = self.count(1)?;
        let mut values = Vec::with_capacity(count.min(ROOM));
        for _ in 0..count {
            values.push(self.value()?);
        }
        Ok(values)
    }

    /// Reads one value.
    ///
    /// # Errors
    /// Returns `ValueError` for bytes that are not a value, and for handles that refer to nothing.
    pub fn value(&mut self) -> Result<Any> {
        if self.depth == DEPTH_MAX {
            bail!("ValueError", "a message holds a value that is nested deeper than {DEPTH_MAX}");
        }
        self.patience -= 1;
        if self.patience == 0 {
            self.patience = LOOK_EVERY;
            self.names.look().inspect_err(|_| self.given_up = true)?;
        }
        self.depth += 1;
        self.reached = self.reached.max(self.depth);
        let value = self.u8().and_then(|tag| self.content(tag));
        self.depth -= 1;
        value
    }

    /// Reads a value to which later values may refer, and records it.
    fn keep(&mut self) -> Result<Any> {
        let outer = core::mem::replace(&mut self.reached, self.depth);
        let value = match self.u8()? {
            tag @ (tag::ARRAY | tag::LIST | tag::MAP | tag::DICT | tag::GRAPH) => self.content(tag)?,
            other => bail!("ValueError", "cannot keep a value of kind {other}: expected a container or object"),
        };
        self.kept.push((value.clone(), self.reached - self.depth));
        self.reached = self.reached.max(outer);
        Ok(value)
    }

    /// Reads a reference to an earlier value of the message, and returns that value.
    fn again(&mut self) -> Result<Any> {
        let number = self.u32()?;
        let Some((value, height)) = self.kept.get(number as usize) else {
            bail!(
                "ValueError",
                "cannot refer to kept value {number} of a message: {} are complete before it",
                self.kept.len()
            );
        };
        let reached = self.depth + height;
        if reached > DEPTH_MAX {
            bail!("ValueError", "a message holds a value that is nested deeper than {DEPTH_MAX}");
        }
        self.reached = self.reached.max(reached);
        Ok(value.clone())
    }

    fn content(&mut self, tag: u8) -> Result<Any> {
        match tag {
            tag::NONE => Ok(Any::NONE),
            tag::FALSE => Any::new(false),
            tag::TRUE => Any::new(true),
            tag::INT => Any::new(i64::from_le_bytes(self.array()?)),
            tag::FLOAT => Any::new(f64::from_bits(self.u64()?)),
            tag::STR => Any::new(self.text()?),
            tag::BYTES => Any::new(Bytes::from(self.sized()?)),
            tag::DTYPE => Any::new(self.dtype()?),
            tag::DEVICE => Any::new(self.device()?),
            tag::SHAPE => Any::new(Shape::from(&self.shape()?[..])),
            tag::ARRAY => Any::new(Array::<Any>::try_from_iter(self.values()?)?),
            tag::LIST => Any::new(List::<Any>::from_vec(self.values()?)?),
            tag::MAP => Any::new(Map::<Any, Any>::from_vec(self.pairs()?)?),
            tag::DICT => Any::new(Dict::<Any, Any>::from_vec(self.pairs()?)?),
            tag::ERROR => Ok(Any::from(self.error()?.into_object())),
            tag::GRAPH => {
                let text = self.text()?;
                registry::get("ffi.FromJSONGraphString")?.call((text,))
            }
            tag::MINE => {
                let given = self.given()?;
                self.names.proxy(given)
            }
            tag::YOURS => {
                let handle = self.u64()?;
                self.names.own(handle)
            }
            tag::KEPT if self.wire.shares => self.keep(),
            tag::AGAIN if self.wire.shares => self.again(),
            other => bail!("ValueError", "unknown value kind {other} in a message"),
        }
    }

    /// Returns the handles in the unread part of the message if reading was aborted; otherwise an empty list.
    /// The peer counts these handles as sent, so they must be released.
    pub fn unread_handles(mut self) -> Vec<u64> {
        let mut handles = Vec::new();
        while self.given_up && self.skip(&mut handles).is_ok() {}
        handles
    }

    /// Skips one value and appends its handle, if any, to `handles`. For a container, skips only the
    /// beginning; the next calls skip its elements.
    fn skip(&mut self, handles: &mut Vec<u64>) -> Result<()> {
        match self.u8()? {
            tag::NONE | tag::FALSE | tag::TRUE | tag::KEPT => {}
            tag::INT | tag::FLOAT | tag::DEVICE | tag::YOURS => drop(self.take(8)?),
            tag::DTYPE | tag::AGAIN => drop(self.take(4)?),
            tag::STR | tag::BYTES | tag::GRAPH => drop(self.sized()?),
            tag::SHAPE => drop(self.shape()?),
            tag::ARRAY | tag::LIST | tag::MAP | tag::DICT => drop(self.u32()?),
            tag::ERROR => (0..3).try_for_each(|_| self.sized().map(drop))?,
            tag::MINE => handles.push(self.given()?.handle),
            other => bail!("ValueError", "unknown value kind {other} in a message"),
        }
        Ok(())
    }

    fn pairs(&mut self) -> Result<Vec<(Any, Any)>> {
        let count = self.count(2)?;
        let mut pairs = Vec::with_capacity(count.min(ROOM));
        for _ in 0..count {
            pairs.push((self.value()?, self.value()?));
        }
        Ok(pairs)
    }

    fn given(&mut self) -> Result<Given> {
        let handle = self.u64()?;
        let class = self.u8()?;
        let Some(class) = Class::of(class) else {
            bail!("ValueError", "unknown handle class {class} in a message");
        };
        let type_key = self.text()?.to_owned();
        let tensor = match class {
            Class::Tensor => {
                Some(TensorInfo { shape: self.shape()?, dtype: self.dtype()?, device: self.device()? })
            }
            _ => None,
        };
        if let Some(tensor) = &tensor {
            tensor.bytes()?;
        }
        Ok(Given { handle, class, type_key, tensor })
    }

    fn shape(&mut self) -> Result<Vec<i64>> {
        let count = self.count(8)?;
        (0..count).map(|_| self.array().map(i64::from_le_bytes)).collect()
    }

    fn dtype(&mut self) -> Result<DType> {
        let [code, bits, low, high] = self.array()?;
        Ok(DType(anyfn::abi::DLDataType { code, bits, lanes: u16::from_le_bytes([low, high]) }))
    }

    fn device(&mut self) -> Result<Device> {
        Ok(Device::new(i32::from_le_bytes(self.array()?), i32::from_le_bytes(self.array()?)))
    }

    /// Reads the kind, message and backtrace of an error.
    pub fn error(&mut self) -> Result<Error> {
        let (kind, message, trace) = (self.text()?, self.text()?, self.text()?);
        let error = Error::untraced(&printable(kind), &printable(message));
        error.append_backtrace(&printable(trace));
        Ok(error)
    }
}

impl TensorInfo {
    /// Returns the size in bytes of all elements together, stored without gaps.
    ///
    /// # Errors
    /// Returns `ValueError` for more than 64 dimensions, a negative extent, or a size that exceeds the address space.
    pub fn bytes(&self) -> Result<usize> {
        if self.shape.len() > DIMENSIONS_MAX {
            bail!(
                "ValueError",
                "expected a tensor of at most {DIMENSIONS_MAX} dimensions, got {}",
                self.shape.len()
            );
        }
        let bits = u64::from(self.dtype.0.bits) * u64::from(self.dtype.0.lanes);
        // Extents of 0 are skipped, so that no product of some of the extents is too large either.
        let mut total = Some(bits.max(1));
        let mut empty = bits == 0;
        for extent in &self.shape {
            let Ok(extent) = u64::try_from(*extent) else {
                bail!("ValueError", "expected non-negative extents of a tensor, got {extent}");
            };
            empty |= extent == 0;
            total = total.and_then(|total| total.checked_mul(extent.max(1)));
        }
        match total.and_then(|bits| usize::try_from(bits.div_ceil(8)).ok()) {
            Some(bytes) if bytes <= isize::MAX as usize => Ok(if empty { 0 } else { bytes }),
            _ => bail!("ValueError", "a tensor of shape {:?} exceeds the address space", self.shape),
        }
    }
}

/// Escapes control characters in a string from the peer, because a terminal could interpret them. Newline and
/// tab are kept.
fn printable(text: &str) -> Cow<'_, str> {
    let order = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(order) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|c| if order(c) { c.escape_default().to_string() } else { c.to_string() });
    Cow::Owned(shown.collect())
}
