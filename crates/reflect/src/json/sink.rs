//! Outputs for a saved graph: one writes a JSON string, the other builds a JSON value from Maps and Arrays.

use alloc::format;
use alloc::string::String as StdString;
use alloc::vec::Vec;

use anyfn::{Any, Array, ArrayBuilder, Map, Result};

use super::tape::string;
use super::{text, value};

/// Constant string of the output, both as a value and as quoted JSON.
pub(super) struct Quoted {
    pub(super) value: Any,
    pub(super) text: Vec<u8>,
}

impl Quoted {
    pub(super) fn new(name: &str) -> Result<Quoted> {
        let mut quoted = Vec::new();
        text::write_str(&mut quoted, name.as_bytes());
        Ok(Quoted { value: string(name.as_bytes())?, text: quoted })
    }
}

/// Flag of a reference to a node that has no index yet. The other bits are the node's index in
/// `Saved::entries`.
pub(super) const PENDING: u32 = 1 << 31;

/// Output to which a graph is saved, node by node.
pub(super) trait Sink {
    /// True if a reference to a node may be written before the index of the node is known.
    const TAKES_PENDING: bool;

    /// Begins a node with the given type key.
    fn begin(&mut self, type_key: &Quoted);
    /// Begins the fields of an object, which are the data of its node.
    fn begin_fields(&mut self);
    /// Writes the name of a field. The next call writes its value.
    fn field(&mut self, name: &Quoted);
    fn end_fields(&mut self) -> Result<()>;
    fn end(&mut self) -> Result<()>;

    fn null(&mut self) -> Result<()>;
    fn bool(&mut self, value: bool) -> Result<()>;
    fn int(&mut self, value: i64) -> Result<()>;
    fn float(&mut self, value: f64) -> Result<()>;
    fn str(&mut self, value: &str) -> Result<()>;
    fn bytes(&mut self, bytes: &[u8]) -> Result<()>;
    /// Writes the elements of a tensor.
    fn elements(&mut self, bytes: &[u8]) -> Result<()>;
    fn ints(&mut self, values: &[i64]) -> Result<()>;
    fn index(&mut self, slot: u32) -> Result<()>;
    fn indices(&mut self, slots: &[u32]) -> Result<()>;
    fn value(&mut self, value: &Any) -> Result<()>;
}

/// Output that writes a JSON string.
pub(super) struct Text {
    out: Vec<u8>,
    /// Offsets in the output at which node indices are inserted later, each with the index of the
    /// node in `Saved::entries`.
    pending: Vec<(usize, u32)>,
}

/// Number of bytes reserved at the beginning of the JSON string for the part that contains the
/// index of the root node. The index is known only at the end.
const HEAD: usize = 48;
/// Number of bytes reserved for a node index that is not known yet.
const WIDTH: usize = 10;

impl Text {
    pub(super) fn new() -> Text {
        Text { out: alloc::vec![b' '; HEAD], pending: Vec::new() }
    }

    /// Completes the JSON string. `index_of` converts an index in `Saved::entries` to a node index;
    /// `metadata` is a JSON value.
    pub(super) fn finish(
        mut self,
        root: u32,
        metadata: Option<&Any>,
        index_of: impl Fn(u32) -> u32,
    ) -> Result<(Vec<u8>, usize)> {
        for (at, entry) in &self.pending {
            let mut digits = Vec::with_capacity(WIDTH);
            text::write_int(&mut digits, index_of(*entry));
            let at = at + WIDTH - digits.len();
            self.out[at..at + digits.len()].copy_from_slice(&digits);
        }
        self.out.push(b']');
        if let Some(metadata) = metadata {
            self.out.extend_from_slice(b",\"metadata\":");
            value::write(&mut self.out, metadata, 0)?;
        }
        self.out.push(b'}');
        let head = format!("{{\"root_index\":{root},\"nodes\":[");
        let from = HEAD - head.len();
        self.out[from..HEAD].copy_from_slice(head.as_bytes());
        Ok((self.out, from))
    }

    /// Writes a comma unless the next value is the first in its array or object.
    #[inline]
    fn comma(&mut self) {
        if !matches!(self.out.last(), Some(b'[' | b'{')) {
            self.out.push(b',');
        }
    }

    /// Writes a value that is already encoded as JSON. Unless the value belongs to a field, the key `"data"` is
    /// written first.
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.data();
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes the key `"data"` of a node, unless the next value is the value of a field.
    #[inline]
    fn data(&mut self) {
        if self.out.last() != Some(&b':') {
            self.out.extend_from_slice(b",\"data\":");
        }
    }
}

impl Sink for Text {
    const TAKES_PENDING: bool = true;

    #[inline]
    fn begin(&mut self, type_key: &Quoted) {
        if self.out.len() > HEAD {
            self.out.push(b',');
        }
        self.out.extend_from_slice(b"{\"type\":");
        self.out.extend_from_slice(&type_key.text);
    }

    #[inline]
    fn begin_fields(&mut self) {
        self.out.extend_from_slice(b",\"data\":{");
    }

    #[inline]
    fn field(&mut self, name: &Quoted) {
        self.comma();
        self.out.extend_from_slice(&name.text);
        self.out.push(b':');
    }

    #[inline]
    fn end_fields(&mut self) -> Result<()> {
        self.out.push(b'}');
        Ok(())
    }

    #[inline]
    fn end(&mut self) -> Result<()> {
        self.out.push(b'}');
        Ok(())
    }

    fn null(&mut self) -> Result<()> {
        self.put(b"null")
    }

    fn bool(&mut self, value: bool) -> Result<()> {
        self.put(if value { b"true" } else { b"false" })
    }

    #[inline]
    fn int(&mut self, value: i64) -> Result<()> {
        self.data();
        text::write_int(&mut self.out, value);
        Ok(())
    }

    fn float(&mut self, value: f64) -> Result<()> {
        self.data();
        text::write_float(&mut self.out, value);
        Ok(())
    }

    fn str(&mut self, value: &str) -> Result<()> {
        self.data();
        text::write_str(&mut self.out, value.as_bytes());
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.data();
        text::write_bytes(&mut self.out, bytes);
        Ok(())
    }

    fn elements(&mut self, bytes: &[u8]) -> Result<()> {
        self.data();
        text::write_base64(&mut self.out, bytes);
        Ok(())
    }

    fn ints(&mut self, values: &[i64]) -> Result<()> {
        self.put(b"[")?;
        for value in values {
            self.comma();
            text::write_int(&mut self.out, *value);
        }
        self.out.push(b']');
        Ok(())
    }

    #[inline]
    fn index(&mut self, slot: u32) -> Result<()> {
        self.data();
        if slot & PENDING == 0 {
            text::write_int(&mut self.out, slot);
        } else {
            self.pending.push((self.out.len(), slot & !PENDING));
            self.out.extend_from_slice(&[b' '; WIDTH]);
        }
        Ok(())
    }

    #[inline]
    fn indices(&mut self, slots: &[u32]) -> Result<()> {
        self.put(b"[")?;
        for (at, slot) in slots.iter().enumerate() {
            if at != 0 {
                self.out.push(b',');
            }
            if slot & PENDING == 0 {
                text::write_int(&mut self.out, *slot);
            } else {
                self.pending.push((self.out.len(), slot & !PENDING));
                self.out.extend_from_slice(&[b' '; WIDTH]);
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn value(&mut self, value: &Any) -> Result<()> {
        self.data();
        value::write(&mut self.out, value, 0)
    }
}

/// Output that builds a JSON value from Maps and Arrays.
pub(super) struct Value {
    nodes: ArrayBuilder,
    /// Key-value pairs of the current node. If its data consist of the fields of an object, these
    /// are collected in `fields`.
    node: Vec<(Any, Any)>,
    fields: Vec<(Any, Any)>,
    /// Name of the field whose value is written next, or `None` if the next value is the data of the node.
    name: Option<Any>,
    type_name: Any,
    data_name: Any,
}

impl Value {
    pub(super) fn new() -> Result<Value> {
        Ok(Value {
            nodes: ArrayBuilder::with_capacity(0)?,
            node: Vec::new(),
            fields: Vec::new(),
            name: None,
            type_name: Any::new("type")?,
            data_name: Any::new("data")?,
        })
    }

    pub(super) fn finish(self, root: u32, metadata: Option<&Any>) -> Result<Any> {
        let mut pairs = Vec::with_capacity(3);
        pairs.push((Any::new("root_index")?, Any::new(root)?));
        pairs.push((Any::new("nodes")?, Any::new(self.nodes.finish())?));
        if let Some(metadata) = metadata {
            pairs.push((Any::new("metadata")?, metadata.clone()));
        }
        Any::new(Map::<Any, Any>::from_vec(pairs)?)
    }

    fn put(&mut self, value: Any) -> Result<()> {
        match self.name.take() {
            Some(name) => self.fields.push((name, value)),
            None => self.node.push((self.data_name.clone(), value)),
        }
        Ok(())
    }
}

impl Sink for Value {
    const TAKES_PENDING: bool = false;

    fn begin(&mut self, type_key: &Quoted) {
        self.node.push((self.type_name.clone(), type_key.value.clone()));
    }

    fn begin_fields(&mut self) {}

    fn field(&mut self, name: &Quoted) {
        self.name = Some(name.value.clone());
    }

    fn end_fields(&mut self) -> Result<()> {
        let fields = core::mem::take(&mut self.fields);
        self.put(Any::new(Map::<Any, Any>::from_vec(fields)?)?)
    }

    fn end(&mut self) -> Result<()> {
        let node = core::mem::take(&mut self.node);
        self.nodes.push(Any::new(Map::<Any, Any>::from_vec(node)?)?)
    }

    fn null(&mut self) -> Result<()> {
        self.put(Any::NONE)
    }

    fn bool(&mut self, value: bool) -> Result<()> {
        self.put(Any::new(value)?)
    }

    fn int(&mut self, value: i64) -> Result<()> {
        self.put(Any::new(value)?)
    }

    fn float(&mut self, value: f64) -> Result<()> {
        self.put(Any::new(value)?)
    }

    fn str(&mut self, value: &str) -> Result<()> {
        self.put(string(value.as_bytes())?)
    }

    fn elements(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes(bytes)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let mut out = Vec::new();
        text::write_base64(&mut out, bytes);
        let text = StdString::from_utf8(out).unwrap_or_default();
        self.put(string(text.trim_matches('"').as_bytes())?)
    }

    fn ints(&mut self, values: &[i64]) -> Result<()> {
        self.put(Any::new(Array::<i64>::try_from_iter(values.iter().copied())?)?)
    }

    fn index(&mut self, slot: u32) -> Result<()> {
        self.put(Any::new(slot)?)
    }

    fn indices(&mut self, slots: &[u32]) -> Result<()> {
        let mut array = ArrayBuilder::with_capacity(slots.len())?;
        slots.iter().try_for_each(|slot| array.push_int(i64::from(*slot)))?;
        self.put(Any::new(array.finish())?)
    }

    fn value(&mut self, value: &Any) -> Result<()> {
        self.put(value.clone())
    }
}
