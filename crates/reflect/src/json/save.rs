//! Saving of a graph: writes one node for each distinct value.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String as StdString;
use alloc::vec::Vec;

use anyfn::__private::{any_hash, bytes_of};
use anyfn::abi::{
    kTVMFFIBigInt, kTVMFFIBytes, kTVMFFIDict, kTVMFFIList, kTVMFFISmallBytes, kTVMFFISmallStr,
    kTVMFFIStaticObjectBegin, kTVMFFIStr,
};
use anyfn::reflection::{Field, TypeInfo};
use anyfn::{Any, DType, Device, Error, Map, ObjectRef, Ref, Result, Shape, Tensor, type_key};
use hashbrown::HashTable;
use rustc_hash::FxHasher;

use super::builtin::Builtin;
use super::inline::Inline;
use super::kept::{self, ExtraFields, KeptField};
use super::sink::{PENDING, Quoted, Sink};
use super::tape::push_key;
use super::value::{Items, shown};
use super::{bigint, enums, hook, tensor};
use crate::column::Hook;

/// Field of a type, with its name in the file, and the type of its values if they are stored inline.
struct SavedField {
    field: Field,
    name: Quoted,
    inline: Option<Inline>,
}

/// Cached information about a type, used for saving its objects.
struct Plan {
    info: TypeInfo,
    key: Quoted,
    /// Hook `__data_to_json__` of the type. If it is registered, its result is saved instead of the fields.
    hook: Option<Hook>,
    /// True if the type has a hook `__any_hash__`. Otherwise its objects are hashed by their addresses.
    hashes: bool,
    kind: Made,
    fields: Vec<SavedField>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    Fields,
    IntEnum,
    StrEnum,
    /// Objects of the type cannot be saved, because a loader could not create them.
    Not,
}

impl Plan {
    fn of(info: TypeInfo) -> Result<Plan> {
        let mut fields: Vec<SavedField> = Vec::new();
        for field in info.fields() {
            let name = Quoted::new(field.name())?;
            let saved = SavedField { field, inline: Inline::of_type(field.static_type_index()), name };
            // A field of a derived type hides a field of its parent with the same name.
            match fields.iter().position(|other| other.field.name() == field.name()) {
                Some(place) => fields[place] = saved,
                None => fields.push(saved),
            }
        }
        let kind = match enums::kind_of(info) {
            Some(enums::EnumIndex::Int) => Made::IntEnum,
            Some(enums::EnumIndex::Str) => Made::StrEnum,
            None if info.can_make() => Made::Fields,
            None => Made::Not,
        };
        Ok(Plan {
            info,
            key: Quoted::new(info.key())?,
            hook: hook::of(info, "__data_to_json__"),
            hashes: info.attribute("__any_hash__").is_some_and(|hook| !hook.is_none()),
            kind,
            fields,
        })
    }
}

/// Distinct value of the graph. The entry keeps the value alive, so that its address is not reused.
struct SavedNode {
    value: Any,
    hash: u64,
    /// Index of the value's node, or [`ACTIVE`] while its children are being saved.
    node: u32,
}

const ACTIVE: u32 = u32::MAX;

/// Stack frame for a value whose children are being saved.
struct Open {
    entry: u32,
    /// Index in `Saver::slots` of the value's first child.
    base: usize,
    at: usize,
    content: Content,
}

enum Content {
    Items { items: Items, builtin: Builtin },
    Object { object: ObjectRef, plan: usize, kept: Option<Box<Ref<ExtraFields>>> },
}

/// Information about a saved graph, in addition to its nodes.
pub(super) struct Saved {
    pub(super) root: u32,
    /// Distinct values of the graph, each with the index of its node.
    entries: Vec<SavedNode>,
    /// Fields whose values are stored inline instead of in nodes, and the types of these values, by type key.
    pub(super) inline: BTreeMap<&'static str, Vec<(&'static str, Inline)>>,
    /// Unknown fields whose values are stored inline instead of in nodes, and the types of these values, by
    /// node index.
    pub(super) kept: Vec<(u32, Vec<(StdString, Inline)>)>,
}

impl Saved {
    pub(super) fn node_of(&self, entry: u32) -> u32 {
        self.entries.get(entry as usize).map_or(0, |entry| entry.node)
    }
}

/// Writes the nodes of a graph to `sink`. Returns the information with which the caller completes the file,
/// such as the index of the root node.
///
/// # Errors
/// Returns `TypeError` for an object that cannot be recreated, `ValueError` for an object that contains itself unless
/// `cycles` are allowed; the errors of getters and hooks. The message contains the path in the graph.
pub(super) fn save<S: Sink>(sink: &mut S, value: &Any, cycles: bool) -> Result<Saved> {
    let constants = Constants::new()?;
    let mut saver = Saver {
        sink,
        constants,
        cycles: cycles && S::TAKES_PENDING,
        any_kept: kept::any_kept(),
        table: HashTable::new(),
        nodes: 0,
        slots: Vec::new(),
        open: Vec::new(),
        plans: Vec::new(),
        plan_of: Vec::new(),
        saved: Saved { root: 0, entries: Vec::new(), inline: BTreeMap::new(), kept: Vec::new() },
    };
    match saver.run(value) {
        Ok(root) => {
            saver.saved.root = root;
            Ok(saver.saved)
        }
        Err(error) => Err(saver.located(error)),
    }
}

/// Constant strings in the output: type keys of built-in types, and names of the fields of a tensor.
struct Constants {
    /// Type keys of the built-in types, in the order of the variants of [`Builtin`].
    keys: Vec<Quoted>,
    shape: Quoted,
    dtype: Quoted,
    data: Quoted,
}

impl Constants {
    fn new() -> Result<Constants> {
        let keys = Builtin::TYPE_INDICES.iter().map(|index| Quoted::new(type_key(*index)));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let (shape, dtype, data) = (Quoted::new("shape")?, Quoted::new("dtype")?, Quoted::new("data")?);
        Ok(Constants { keys, shape, dtype, data })
    }

    /// Returns the type key of a built-in type.
    #[inline]
    fn key(&self, builtin: Builtin) -> &Quoted {
        &self.keys[builtin as usize]
    }
}

struct Saver<'s, S> {
    sink: &'s mut S,
    constants: Constants,
    cycles: bool,
    any_kept: bool,
    /// Hash table of indices into `Saved::entries`, by the hash of the value.
    table: HashTable<u32>,
    nodes: u32,
    /// For all values on the stack, the nodes of the children that have been saved so far. An
    /// element is a node index, or an index in `Saved::entries` with the flag [`PENDING`].
    slots: Vec<u32>,
    open: Vec<Open>,
    plans: Vec<Plan>,
    /// For each type index, an index in `plans` plus 1, or 0 if the type has not been encountered.
    plan_of: Vec<u32>,
    saved: Saved,
}

impl<S: Sink> Saver<'_, S> {
    fn run(&mut self, root: &Any) -> Result<u32> {
        if let Some(slot) = self.visit(root.clone())? {
            return Ok(slot);
        }
        loop {
            let Some(top) = self.open.last_mut() else { return Ok(self.nodes.saturating_sub(1)) };
            match child(&self.plans, top)? {
                Some(child) => {
                    if let Some(slot) = self.visit(child)? {
                        self.slots.push(slot);
                    }
                }
                None => {
                    let Some(top) = self.open.pop() else { continue };
                    match self.finish(&top) {
                        Ok(node) => self.slots.push(node),
                        Err(error) => {
                            // The path in the message ends with this value.
                            self.open.push(top);
                            return Err(error);
                        }
                    }
                }
            }
        }
    }

    fn plan(&mut self, type_index: i32) -> Result<usize> {
        let index = usize::try_from(type_index).unwrap_or(0);
        match self.plan_of.get(index) {
            Some(0) | None => self.new_plan(type_index, index),
            Some(plan) => Ok(*plan as usize - 1),
        }
    }

    #[cold]
    fn new_plan(&mut self, type_index: i32, index: usize) -> Result<usize> {
        let Some(info) = TypeInfo::from_index(type_index) else {
            anyfn::bail!("RuntimeError", "Cannot serialize type {type_index}, which is not registered");
        };
        if self.plan_of.len() <= index {
            self.plan_of.resize(index + 1, 0);
        }
        let plan = Plan::of(info)?;
        let inline: Vec<_> =
            plan.fields.iter().filter_map(|saved| Some((saved.field.name(), saved.inline?))).collect();
        if plan.hook.is_none() && plan.kind == Made::Fields && !inline.is_empty() {
            self.saved.inline.insert(info.key(), inline);
        }
        self.plans.push(plan);
        self.plan_of[index] = self.plans.len() as u32;
        Ok(self.plans.len() - 1)
    }

    /// Returns a hash of a value. Equal values have the same hash.
    #[inline]
    fn hash(&mut self, value: &Any) -> Result<u64> {
        use core::hash::Hasher;
        let mut hasher = FxHasher::default();
        match value.type_index() {
            kTVMFFISmallStr | kTVMFFIStr => hasher.write(bytes_of(value)),
            kTVMFFISmallBytes | kTVMFFIBytes => {
                hasher.write(bytes_of(value));
                hasher.write_u8(1);
            }
            index if index > kTVMFFIDict => {
                let plan = self.plan(index)?;
                let view = value.as_view();
                hasher.write_u64(match self.plans[plan].hashes {
                    true => any_hash(&view),
                    false => view.bits(),
                });
            }
            index => {
                hasher.write_u64(value.as_view().bits());
                hasher.write_u32(index as u32);
            }
        }
        Ok(hasher.finish())
    }

    /// Returns the node index of a value if the value is already saved or has no children.
    /// Otherwise pushes the value on the stack, so that its children are saved first, and returns
    /// `None`.
    fn visit(&mut self, value: Any) -> Result<Option<u32>> {
        let hash = self.hash(&value)?;
        let entries = &self.saved.entries;
        let known = self.table.find(hash, |entry| {
            let entry = &entries[*entry as usize];
            entry.hash == hash && entry.value == value
        });
        if let Some(entry) = known {
            return match entries[*entry as usize].node {
                ACTIVE if self.cycles => Ok(Some(*entry | PENDING)),
                ACTIVE => Err(cycle(&value)),
                node => Ok(Some(node)),
            };
        }
        let content = self.begin(&value)?;
        let number = self.saved.entries.len() as u32;
        if number >= PENDING - 1 {
            return Err(Error::new("ValueError", "a graph of more than 2**31 values cannot be saved"));
        }
        let node = if content.is_none() { self.next_node() } else { ACTIVE };
        self.saved.entries.push(SavedNode { value, hash, node });
        let entries = &self.saved.entries;
        self.table.insert_unique(hash, number, |entry| entries[*entry as usize].hash);
        let Some(content) = content else { return Ok(Some(node)) };
        self.open.push(Open { entry: number, base: self.slots.len(), at: 0, content });
        Ok(None)
    }

    fn next_node(&mut self) -> u32 {
        self.nodes += 1;
        self.nodes - 1
    }

    /// Saves a value without children and returns `None`. For a value with children, returns its content.
    fn begin(&mut self, value: &Any) -> Result<Option<Content>> {
        let index = match value.type_index() {
            kTVMFFISmallStr => kTVMFFIStr,
            kTVMFFISmallBytes => kTVMFFIBytes,
            index => index,
        };
        let Some(builtin) = Builtin::of(index) else {
            if index >= kTVMFFIStaticObjectBegin {
                return self.object(value, index);
            }
            anyfn::bail!("RuntimeError", "Cannot serialize type `{}`", value.type_key());
        };
        match Items::of(value)? {
            Some(items) => Ok(Some(Content::Items { items, builtin })),
            None => self.builtin(value, builtin).map(|()| None),
        }
    }

    /// Saves a value of a built-in type without children.
    fn builtin(&mut self, value: &Any, builtin: Builtin) -> Result<()> {
        // Operations that can fail come before the beginning of the node.
        match builtin {
            Builtin::Tensor => return self.tensor(value),
            Builtin::Str => drop(value.get::<&str>()?),
            Builtin::DType => drop(dtype_name(value)?),
            Builtin::BigInt => {
                let text = bigint::to_text(value)?;
                self.sink.begin(self.constants.key(builtin));
                self.sink.str(&text)?;
                return self.sink.end();
            }
            _ => {}
        }
        self.sink.begin(self.constants.key(builtin));
        match builtin {
            Builtin::None => {}
            Builtin::Bool => self.sink.bool(value.get::<bool>()?)?,
            Builtin::Int => self.sink.int(value.get::<i64>()?)?,
            Builtin::Float => self.sink.float(value.get::<f64>()?)?,
            Builtin::DType => self.sink.str(&dtype_name(value)?)?,
            Builtin::Device => {
                let Device(device) = value.get::<Device>()?;
                self.sink.ints(&[i64::from(device.device_type), i64::from(device.device_id)])?;
            }
            Builtin::Str => self.sink.str(value.get::<&str>()?)?,
            Builtin::Bytes => self.sink.bytes(bytes_of(value))?,
            Builtin::Shape => self.sink.ints(&value.get::<Shape>()?)?,
            // Saved above.
            Builtin::Tensor | Builtin::BigInt => {}
            // Saved when their elements are, by `finish`.
            Builtin::Array | Builtin::List | Builtin::Map | Builtin::Dict => {}
        }
        self.sink.end()
    }

    fn tensor(&mut self, value: &Any) -> Result<()> {
        let tensor = value.get::<Tensor>()?;
        let content = tensor::content(&tensor)?;
        let view = tensor.view();
        let dtype = dtype_name(&Any::new(view.dtype())?)?;
        self.sink.begin(self.constants.key(Builtin::Tensor));
        self.sink.begin_fields();
        self.sink.field(&self.constants.shape);
        self.sink.ints(view.shape())?;
        self.sink.field(&self.constants.dtype);
        self.sink.str(&dtype)?;
        self.sink.field(&self.constants.data);
        self.sink.elements(&content)?;
        self.sink.end_fields()?;
        self.sink.end()
    }

    fn object(&mut self, value: &Any, index: i32) -> Result<Option<Content>> {
        let plan = self.plan(index)?;
        let Some(object) = value.as_object() else { return Ok(None) };
        let Plan { info, key, hook, kind, .. } = &self.plans[plan];
        match kind {
            Made::IntEnum => {
                let index = object.get_field("_int_index")?.get::<i64>()?;
                self.sink.begin(key);
                self.sink.int(index)?;
            }
            Made::StrEnum => {
                let name = object.get_field("_str_index")?;
                let name = name.get::<&str>()?;
                self.sink.begin(key);
                self.sink.str(name)?;
            }
            _ if hook.is_some() => {
                let data = hook.as_ref().map_or(Ok(Any::NONE), |hook| hook::call(hook, value))?;
                self.sink.begin(key);
                self.sink.value(&data)?;
            }
            Made::Not => {
                anyfn::bail!(
                    "TypeError",
                    "Type `{}` does not support ToJSONGraph (no native creator or __ffi_new__ type attr)",
                    info.key()
                );
            }
            Made::Fields => {
                let kept = if self.any_kept { kept::kept(object).map(Box::new) } else { None };
                return Ok(Some(Content::Object { object: object.clone(), plan, kept }));
            }
        }
        self.sink.end()?;
        Ok(None)
    }

    /// Saves a value whose children have been saved, and returns the index of its node.
    fn finish(&mut self, top: &Open) -> Result<u32> {
        match &top.content {
            Content::Items { builtin, .. } => {
                self.sink.begin(self.constants.key(*builtin));
                self.sink.indices(&self.slots[top.base..])?;
            }
            Content::Object { object, plan, kept } => {
                let plan = &self.plans[*plan];
                self.sink.begin(&plan.key);
                self.sink.begin_fields();
                let mut slots = self.slots[top.base..].iter();
                for SavedField { field, name, inline } in &plan.fields {
                    match inline {
                        None => {
                            self.sink.field(name);
                            self.sink.index(slots.next().copied().unwrap_or(0))?;
                        }
                        Some(inline) => {
                            // SAFETY: the field belongs to the object's type.
                            let value = unsafe { field.get_unchecked(object) }?;
                            self.sink.field(name);
                            inline_value(self.sink, *inline, &value)
                                .map_err(|error| in_field(&error, field.name(), plan.info))?;
                        }
                    }
                }
                if let Some(kept) = kept {
                    let mut told = Vec::new();
                    for KeptField { name, inline, value } in &kept.fields {
                        self.sink.field(&Quoted::new(name)?);
                        match inline {
                            None => self.sink.index(slots.next().copied().unwrap_or(0))?,
                            Some(inline) => {
                                inline_value(self.sink, *inline, value)?;
                                told.push((name.clone(), *inline));
                            }
                        }
                    }
                    if !told.is_empty() {
                        self.saved.kept.push((self.nodes, told));
                    }
                }
                self.sink.end_fields()?;
            }
        }
        self.sink.end()?;
        self.slots.truncate(top.base);
        let node = self.next_node();
        self.saved.entries[top.entry as usize].node = node;
        Ok(node)
    }

    /// Appends to an error's message the path from the root to the value at which the error
    /// occurred.
    #[cold]
    fn located(&self, error: Error) -> Error {
        /// Number of steps that an error message shows at each end of a long path.
        const SHOWN: usize = 12;
        let mut path = StdString::from("root");
        let cut = self.open.len().saturating_sub(2 * SHOWN);
        for (depth, open) in self.open.iter().enumerate() {
            if cut > 0 && depth == SHOWN {
                path.push_str(&format!("..({cut} more).."));
            }
            if cut > 0 && (SHOWN..SHOWN + cut).contains(&depth) {
                continue;
            }
            let at = open.at.saturating_sub(1);
            match &open.content {
                Content::Items { items, builtin } if builtin.is_mapping() => {
                    match items.as_slice().get(at & !1) {
                        Some(key) if at % 2 == 1 => path.push_str(&format!("[{}]", shown(key))),
                        _ => path.push_str(&format!(".keys()[{}]", at / 2)),
                    }
                }
                Content::Items { .. } => path.push_str(&format!("[{at}]")),
                Content::Object { plan, kept, .. } => {
                    let fields = &self.plans[*plan].fields;
                    match fields.get(at) {
                        Some(saved) => push_key(&mut path, saved.field.name()),
                        None => {
                            let kept = kept.as_ref().and_then(|kept| kept.fields.get(at - fields.len()));
                            push_key(&mut path, kept.map_or("?", |field| field.name.as_str()));
                        }
                    }
                }
            }
        }
        if self.open.is_empty() { error } else { with_place(&error, &format!(", at {path}")) }
    }
}

/// Returns the next child of a value, without the children that are stored inline; `None` if no
/// child is left.
fn child(plans: &[Plan], top: &mut Open) -> Result<Option<Any>> {
    match &top.content {
        Content::Items { items, .. } => {
            let child = items.as_slice().get(top.at).cloned();
            top.at += 1;
            Ok(child)
        }
        Content::Object { object, plan, kept } => {
            let fields = &plans[*plan].fields;
            while let Some(saved) = fields.get(top.at) {
                top.at += 1;
                if saved.inline.is_none() {
                    // SAFETY: the field belongs to the object's type.
                    return unsafe { saved.field.get_unchecked(object) }.map(Some);
                }
            }
            let Some(kept) = kept else { return Ok(None) };
            while let Some(field) = kept.fields.get(top.at - fields.len()) {
                top.at += 1;
                if field.inline.is_none() {
                    return Ok(Some(field.value.clone()));
                }
            }
            Ok(None)
        }
    }
}

/// Returns the name of a data type, such as `float32`.
fn dtype_name(value: &Any) -> Result<StdString> {
    let name = format!("{}", value.get::<DType>()?);
    match name.parse::<DType>() {
        Ok(_) => Ok(name),
        Err(_) => {
            anyfn::bail!("ValueError", "the data type {name} has no standard name, so it cannot be saved")
        }
    }
}

fn inline_value(sink: &mut impl Sink, inline: Inline, value: &Any) -> Result<()> {
    match inline {
        Inline::None => sink.null(),
        Inline::Bool => sink.bool(value.get::<bool>()?),
        // As in a separate node.
        Inline::Int if value.type_index() == kTVMFFIBigInt => sink.str(&bigint::to_text(value)?),
        Inline::Int => sink.int(value.get::<i64>()?),
        Inline::Float => sink.float(value.get::<f64>()?),
        Inline::DType => sink.str(&dtype_name(value)?),
    }
}

#[cold]
fn in_field(error: &Error, field: &str, info: TypeInfo) -> Error {
    with_place(error, &format!(" in field `{field}` of `{}`", info.key()))
}

/// Returns a copy of an error with `place` appended to its message.
#[cold]
pub(super) fn with_place(error: &Error, place: &str) -> Error {
    let message = [error.message(), place].concat();
    let (kind, trace) = (error.kind().as_bytes(), error.backtrace());
    let cause = error.cause().map(Error::into_object);
    let located = Error::try_from_texts(kind, message.as_bytes(), trace.as_bytes(), cause, error.context());
    located.unwrap_or_else(|| error.clone())
}

#[cold]
fn cycle(value: &Any) -> Error {
    let what = match value.type_index() {
        kTVMFFIList => "a List",
        kTVMFFIDict => "a Dict",
        _ => value.type_key(),
    };
    Error::new("ValueError", &format!("Cycle detected during serialization: {what} contains itself"))
}

/// Returns the record that is stored under the key `anyfn` in the metadata of a saved graph: format, version,
/// and the fields whose values are stored inline.
pub(super) fn tag(saved: &Saved) -> Result<Any> {
    let kinds = |fields: &mut dyn Iterator<Item = (&str, Inline)>| -> Result<Any> {
        let pairs = fields.map(|(name, inline)| (name, inline.key()));
        Any::new(Map::<Any, Any>::try_from_iter(pairs.collect::<Vec<_>>())?)
    };
    let mut pairs: Vec<(Any, Any)> = Vec::new();
    pairs.push((Any::new("format")?, Any::new(super::FORMAT)?));
    pairs.push((Any::new("version")?, Any::new(env!("CARGO_PKG_VERSION"))?));
    let mut inline: Vec<(Any, Any)> = Vec::new();
    for (key, fields) in &saved.inline {
        inline.push((Any::new(*key)?, kinds(&mut fields.iter().copied())?));
    }
    pairs.push((Any::new("inline")?, Any::new(Map::<Any, Any>::from_vec(inline)?)?));
    if !saved.kept.is_empty() {
        let mut kept: Vec<(Any, Any)> = Vec::new();
        for (node, fields) in &saved.kept {
            let fields = kinds(&mut fields.iter().map(|(name, inline)| (name.as_str(), *inline)))?;
            kept.push((Any::new(format!("{node}"))?, fields));
        }
        pairs.push((Any::new("kept")?, Any::new(Map::<Any, Any>::from_vec(kept)?)?));
    }
    Any::new(Map::<Any, Any>::from_vec(pairs)?)
}
