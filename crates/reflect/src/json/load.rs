//! Loading of a graph: creates objects from the nodes of a JSON file.
//!
//! As a rule, a file lists the children of a node before the node itself, and one pass creates everything. Otherwise,
//! or if there is any error, a second algorithm starts at the root and creates what it needs. It creates Lists and
//! Dicts empty and objects without their writable fields, and fills them later, so that cycles through them can be
//! loaded.

mod object;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String as StdString;
use alloc::vec::Vec;

use anyfn::reflection::{Field, TypeInfo};
use anyfn::{Any, ArrayBuilder, DType, Device, Dict, Error, List, Map, Result, Shape};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::builtin::Builtin;
use super::inline::Inline;
use super::kept;
use super::save::with_place;
use super::tape::{At, Tape, TokenKind};
use super::{FORMAT, UnknownFields, bigint, enums, hook, tensor, text};
use crate::column::Hook;

type DeclaredTypes<'t> = HashMap<&'t [u8], Inline, FxBuildHasher>;

/// Cached information about a type, used for loading the nodes of that type.
struct Plan<'t> {
    info: TypeInfo,
    made: Made,
    fields: Vec<LoadedField>,
    /// Types of the inline fields, by field name in the file. An inline field contains its value
    /// instead of the index of a node.
    told: DeclaredTypes<'t>,
    /// Names in the file that no field of the type has. Each is a former name of a field, or the name of an
    /// unknown field.
    others: BTreeMap<StdString, Other>,
    unknown: UnknownFields,
}

enum Made {
    Builtin(Builtin),
    Enum(enums::EnumIndex),
    Hook(Hook),
    Fields,
}

struct LoadedField {
    field: Field,
    /// Type of the field's values if the file stores them inline; `None` if the file stores them in nodes.
    inline: Option<Inline>,
    /// True if the field is writable, so that it can be set after other values already refer to the
    /// object. Cycles require this.
    late: bool,
}

#[derive(Clone, Copy)]
enum Other {
    /// Former name of a field. Contains the index of the field, and the type of its values if the
    /// file stores them inline.
    Alias(usize, Option<Inline>),
    /// Name that no field of the type has or had.
    Unknown,
}

/// Fields with inline values, as the writer of a file listed them under the key `anyfn` of the
/// file's metadata.
struct Tag {
    /// Token of the JSON object that lists the fields with inline values, by type key and field name.
    inline: Option<At>,
    /// For each node index, the token of the JSON object that lists the node's inline unknown
    /// fields. These are fields that the type did not have in the writer's process either.
    kept: HashMap<usize, At, FxBuildHasher>,
}

/// Loads the graph from a parsed JSON file and returns the root of the graph.
///
/// # Errors
/// Returns `ValueError` if the JSON is not a valid graph, `RuntimeError` for an unknown type, `TypeError` for a field
/// that is missing or has a value of another type; the error of a hook that a type has registered. The message contains
/// the location.
pub(super) fn load(tape: &Tape<'_>, unknown: UnknownFields) -> Result<Any> {
    if tape.kind(0) != TokenKind::Object {
        anyfn::bail!("ValueError", "Invalid JSON Object Graph, expected an object");
    }
    let root = tape.get(0, "root_index").filter(|at| tape.kind(*at) == TokenKind::Int);
    let Some(root) = root else {
        anyfn::bail!("ValueError", "Invalid JSON Object Graph, expected `root_index` integer field");
    };
    let nodes = tape.get(0, "nodes").filter(|at| tape.kind(*at) == TokenKind::Array);
    let Some(nodes) = nodes else {
        anyfn::bail!("ValueError", "Invalid JSON Object Graph, expected `nodes` array field");
    };
    let nodes: Vec<u32> = tape.items(nodes).map(|at| at as u32).collect();
    let mut loader = Loader {
        tag: tag_of(tape)?,
        made: Vec::new(),
        ready: alloc::vec![false; nodes.len()],
        plans: Vec::new(),
        types: HashMap::default(),
        places: FieldPositions::default(),
        unknown,
        nodes,
        tape,
    };
    loader.made.resize(loader.nodes.len(), Any::NONE);
    let root = loader.index(root)?;
    if loader.in_order(root).is_err() {
        loader.ready.fill(false);
        loader.made.fill(Any::NONE);
        loader.needed(root)?;
    }
    Ok(core::mem::take(&mut loader.made[root]))
}

/// Reads the entry `anyfn` of a file's metadata and checks its format version. Returns `None` if
/// the file has no such entry.
fn tag_of(tape: &Tape<'_>) -> Result<Option<Tag>> {
    let metadata = tape.get(0, "metadata").filter(|at| tape.kind(*at) == TokenKind::Object);
    let tag = metadata.and_then(|at| tape.get(at, "anyfn")).filter(|at| tape.kind(*at) == TokenKind::Object);
    let Some(tag) = tag else { return Ok(None) };
    let format = tape.get(tag, "format");
    match format.and_then(|at| tape.int(at)) {
        Some(1..=FORMAT) => {}
        Some(newer) if newer > FORMAT => {
            let version = tape.get(tag, "version").and_then(|at| tape.str(at)).unwrap_or("?");
            let version = anyfn::__private::shorten(version);
            anyfn::bail!(
                "ValueError",
                "the file has format {newer}, written by anyfn {version}; this version, {}, reads up to {FORMAT}",
                env!("CARGO_PKG_VERSION")
            );
        }
        _ => return Err(tape.error("ValueError", "expected a format number", format.unwrap_or(tag))),
    }
    let mut kept = HashMap::default();
    for (node, fields) in tape.get(tag, "kept").map(|at| tape.pairs(at)).into_iter().flatten() {
        if let Some(node) = tape.str(node).and_then(|node| node.parse().ok()) {
            kept.insert(node, fields);
        }
    }
    Ok(Some(Tag { inline: tape.get(tag, "inline"), kept }))
}

/// Step in which the loader creates a value. The first pass over the file creates each value in one
/// step. The second pass, which supports cycles, creates each value in two steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    /// First of two steps in creating a value: creates it with the content that cannot be set later.
    First,
    /// Second of two steps in creating a value: sets the remaining content. Other values may
    /// already refer to the value.
    Second,
}

impl Part {
    fn first(self) -> bool {
        self != Part::Second
    }

    fn second(self) -> bool {
        self != Part::First
    }

    fn has(self, late: bool) -> bool {
        if late { self.second() } else { self.first() }
    }
}

struct Loader<'t> {
    tape: &'t Tape<'t>,
    tag: Option<Tag>,
    /// Token index of each node in the parsed JSON.
    nodes: Vec<u32>,
    made: Vec<Any>,
    ready: Vec<bool>,
    plans: Vec<Plan<'t>>,
    /// For each type key in the file, the index of the type's plan in `plans`.
    types: HashMap<&'t [u8], usize, FxBuildHasher>,
    /// Tokens of the field values of the object that is being created.
    places: FieldPositions,
    unknown: UnknownFields,
}

/// Tokens of the field values of one object in the file.
#[derive(Default)]
struct FieldPositions {
    /// For each field of the type, the token of its value, and the type of the value if it is inline. The
    /// token is 0 if the file does not contain the field.
    known: Vec<(At, Option<Inline>)>,
    /// Unknown fields of the object: token of the name, token of the value, and type of the value if it is
    /// inline.
    unknown: Vec<(At, At, Option<Inline>)>,
}

/// Node of the file: its index, its token, the index of its type's plan, and the token of its data.
#[derive(Clone, Copy)]
struct Node {
    index: usize,
    at: At,
    plan: usize,
    data: Option<At>,
}

impl<'t> Loader<'t> {
    /// Creates the values of all nodes up to `root` in file order. Fails if a node refers to a later one.
    fn in_order(&mut self, root: usize) -> Result<()> {
        for index in 0..=root {
            let node = self.node(index)?;
            let value = self.make(node, Part::All)?;
            self.made[index] = value;
            self.ready[index] = true;
        }
        Ok(())
    }

    /// Creates the values of the node `root` and of all nodes on which it depends. The values on
    /// which a node depends are created first.
    fn needed(&mut self, root: usize) -> Result<()> {
        let mut entered = alloc::vec![false; self.nodes.len()];
        let (mut stack, mut later) = (alloc::vec![(root, self.nodes[root] as At)], Vec::new());
        let mut children = Vec::new();
        loop {
            while let Some((index, from)) = stack.pop() {
                if self.ready[index] {
                    continue;
                }
                let node = self.node(index)?;
                if !entered[index] {
                    entered[index] = true;
                    self.children(node, Part::First, &mut children)?;
                    if !children.is_empty() {
                        stack.push((index, from));
                        for (child, at) in children.drain(..).rev() {
                            if entered[child] && !self.ready[child] {
                                return Err(self.cycle(child, at));
                            }
                            stack.push((child, at));
                        }
                        continue;
                    }
                }
                self.made[index] = self.make(node, Part::First)?;
                self.ready[index] = true;
                later.push(node);
            }
            // The second part of a value is filled when all of its children have been created, or created empty.
            let Some(node) = later.pop() else { return Ok(()) };
            self.children(node, Part::Second, &mut children)?;
            let missing = children.iter().any(|(child, _)| !self.ready[*child]);
            if missing {
                later.push(node);
                stack.append(&mut children);
            } else {
                children.clear();
                self.make(node, Part::Second)?;
            }
        }
    }

    #[cold]
    fn cycle(&self, index: usize, at: At) -> Error {
        self.tape.error(
            "ValueError",
            &format!("Invalid JSON Object Graph: node {index} contains itself through immutable values"),
            at,
        )
    }

    /// Parses the token at `at` as a node index.
    #[inline]
    fn index(&self, at: At) -> Result<usize> {
        let Some(index) = self.tape.int(at) else { return Err(self.mismatch(at, "int")) };
        match usize::try_from(index) {
            Ok(index) if index < self.nodes.len() => Ok(index),
            _ => Err(self.fail(&format!("Invalid JSON Object Graph: invalid node index {index}"), at)),
        }
    }

    /// Returns the value of the node whose index is stored in the token at `at`. Fails if the node has not
    /// been created yet.
    #[inline]
    fn child(&self, at: At) -> Result<Any> {
        let index = self.index(at)?;
        if !self.ready[index] {
            // This happens only in the first pass, which discards the error.
            return Err(Error::untraced("ValueError", "the node is not loaded yet"));
        }
        Ok(self.made[index].clone())
    }

    #[cold]
    fn fail(&self, message: &str, at: At) -> Error {
        self.tape.error("ValueError", message, at)
    }

    #[cold]
    fn mismatch(&self, at: At, expected: &str) -> Error {
        let got = self.tape.type_key(at);
        self.tape.error("TypeError", &format!("Cannot convert from type `{got}` to `{expected}`"), at)
    }

    fn node(&mut self, index: usize) -> Result<Node> {
        let tape = self.tape;
        let at = self.nodes[index] as At;
        if tape.kind(at) != TokenKind::Object {
            return Err(self.mismatch(at, "Map<Any, Any>"));
        }
        let (mut key, mut data) = (None, None);
        for (name, value) in tape.pairs(at) {
            let place = match tape.bytes(name) {
                b"type" => &mut key,
                b"data" => &mut data,
                _ => continue,
            };
            if place.replace(value).is_some() {
                return Err(self.fail("duplicate key", name));
            }
        }
        let Some(key) = key else { return Err(self.fail("a node needs the key `type`", at)) };
        let plan = match self.types.get(tape.bytes(key)) {
            Some(plan) => *plan,
            None => self.plan(key)?,
        };
        Ok(Node { index, at, plan, data })
    }

    /// Creates the plan for loading nodes of the type whose key is the token at `at`. Returns the
    /// index of the plan in `plans`.
    #[cold]
    fn plan(&mut self, at: At) -> Result<usize> {
        let tape = self.tape;
        let Some(key) = tape.str(at) else { return Err(self.mismatch(at, "str")) };
        let Some(info) = kept::type_of(key) else { return Err(unknown_type(tape, key, at)) };
        let hook = hook::of(info, "__data_from_json__");
        let made = match (Builtin::of(info.index()), enums::kind_of(info), hook) {
            (Some(builtin), ..) => Made::Builtin(builtin),
            (_, Some(kind), _) => Made::Enum(kind),
            (.., Some(hook)) => Made::Hook(hook),
            _ => Made::Fields,
        };
        let mut told = HashMap::default();
        if let Some(fields) = self.tag.as_ref().and_then(|tag| tape.get(tag.inline?, key)) {
            for (name, kind) in tape.pairs(fields) {
                if let Some(inline) = tape.str(kind).and_then(Inline::of_key) {
                    told.insert(tape.bytes(name), inline);
                }
            }
        }
        let mut fields = Vec::new();
        if matches!(made, Made::Fields) {
            for field in info.fields() {
                let inline = self.inline_of(&told, field.name(), field);
                fields.push(LoadedField { field, inline, late: field.is_writable() });
            }
        }
        let unknown = match info.lineage().rev().find_map(|info| info.attribute("__json_unknown_fields__")) {
            Some(word) if !word.is_none() => UnknownFields::of(word.get::<&str>()?)?.max(self.unknown),
            _ => self.unknown,
        };
        let others = BTreeMap::new();
        self.plans.push(Plan { info, made, fields, told, others, unknown });
        self.types.insert(tape.bytes(at), self.plans.len() - 1);
        Ok(self.plans.len() - 1)
    }

    /// Returns the type of a field's values if the file stores them inline; `None` if the file stores them in
    /// nodes. `name` is the name of the field in the file.
    fn inline_of(&self, told: &DeclaredTypes<'_>, name: &str, field: Field) -> Option<Inline> {
        match self.tag {
            Some(_) => told.get(name.as_bytes()).copied(),
            None => Inline::of_type(field.static_type_index()),
        }
    }

    fn data(&self, node: Node, kind: TokenKind, expected: &str) -> Result<At> {
        match node.data {
            Some(data) if self.tape.kind(data) == kind => Ok(data),
            Some(data) => Err(self.mismatch(data, expected)),
            None => Err(self.no_data(node)),
        }
    }

    #[cold]
    fn no_data(&self, node: Node) -> Error {
        let key = self.plans[node.plan].info.key();
        self.fail(&format!("a node of type `{key}` needs the key `data`"), node.at)
    }

    /// Clears `out` and fills it with the references from a node to other nodes that the step
    /// `part` needs. Each reference consists of the index of the other node, and the token that
    /// contains this index.
    fn children(&mut self, node: Node, part: Part, out: &mut Vec<(usize, At)>) -> Result<()> {
        let tape = self.tape;
        out.clear();
        match &self.plans[node.plan].made {
            Made::Builtin(builtin @ (Builtin::Array | Builtin::Map | Builtin::List | Builtin::Dict))
                if part.has(builtin.is_mutable()) =>
            {
                for at in tape.items(self.data(node, TokenKind::Array, "Array<Any>")?) {
                    out.push((self.index(at)?, at));
                }
            }
            Made::Fields => {
                self.match_fields(node)?;
                let known = self.places.known.iter().zip(&self.plans[node.plan].fields);
                for ((value, inline), loaded) in known {
                    if *value != 0 && inline.is_none() && part.has(loaded.late) {
                        out.push((self.index(*value)?, *value));
                    }
                }
                for (_, value, inline) in &self.places.unknown {
                    if inline.is_none() && part.second() {
                        out.push((self.index(*value)?, *value));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn make(&mut self, node: Node, part: Part) -> Result<Any> {
        match &self.plans[node.plan].made {
            Made::Builtin(builtin) => self.builtin(node, *builtin, part),
            Made::Fields => self.object(node, part),
            Made::Hook(_) | Made::Enum(_) if !part.first() => Ok(Any::NONE),
            Made::Hook(hook) => {
                let Some(data) = node.data else { return Err(self.no_data(node)) };
                let made = hook::call(hook, &self.tape.to_any(data)?);
                made.map_err(|error| with_place(&error, &self.tape.place(data)))
            }
            Made::Enum(kind) => {
                let Some(data) = node.data else { return Err(self.no_data(node)) };
                let fits = match kind {
                    enums::EnumIndex::Int => self.tape.kind(data) == TokenKind::Int,
                    enums::EnumIndex::Str => self.tape.str(data).is_some(),
                };
                if !fits {
                    let expected = if *kind == enums::EnumIndex::Int { "int" } else { "str" };
                    return Err(self.mismatch(data, expected));
                }
                let index = self.tape.to_any(data)?;
                enums::find(self.plans[node.plan].info, &index)
                    .map_err(|error| with_place(&error, &self.tape.place(data)))
            }
        }
    }

    fn inline(&self, at: At, inline: Inline) -> Result<Any> {
        let tape = self.tape;
        match inline {
            Inline::None => Ok(Any::NONE),
            Inline::Int => match (tape.int(at), tape.str(at)) {
                (Some(value), _) => Any::new(value),
                // An integer of more than 64 bits.
                (None, Some(text)) => match bigint::from_text(text) {
                    Some(value) => value,
                    None => Err(self.mismatch(at, "int")),
                },
                (None, None) => Err(self.mismatch(at, "int")),
            },
            Inline::Bool => match tape.int(at) {
                Some(value) => Any::new(value != 0),
                None => Err(self.mismatch(at, "bool")),
            },
            Inline::Float => match (tape.kind(at), tape.int(at)) {
                (_, Some(value)) => Any::new(value as f64),
                (TokenKind::Float, _) => tape.to_any(at),
                _ => Err(self.mismatch(at, "float")),
            },
            Inline::DType => {
                let Some(name) = tape.str(at) else { return Err(self.mismatch(at, "DataType")) };
                let dtype: Result<DType> = name.parse();
                Any::new(dtype.map_err(|error| with_place(&error, &tape.place(at)))?)
            }
        }
    }

    fn builtin(&self, node: Node, builtin: Builtin, part: Part) -> Result<Any> {
        let tape = self.tape;
        if builtin.is_mutable() {
            return self.mutable(node, part, builtin);
        }
        if !part.first() || builtin == Builtin::None {
            return Ok(Any::NONE);
        }
        let Some(data) = node.data else { return Err(self.no_data(node)) };
        let text = || tape.str(data).ok_or_else(|| self.mismatch(data, "str"));
        match builtin {
            Builtin::None => self.inline(data, Inline::None),
            Builtin::Bool => self.inline(data, Inline::Bool),
            Builtin::Int => self.inline(data, Inline::Int),
            Builtin::Float => self.inline(data, Inline::Float),
            Builtin::DType => self.inline(data, Inline::DType),
            Builtin::Str => {
                text()?;
                tape.to_any(data)
            }
            Builtin::Bytes => self.bytes(data).and_then(|bytes| Any::new(&bytes[..])),
            Builtin::BigInt => match bigint::from_text(text()?) {
                Some(value) => value,
                None => Err(self.fail("Invalid decimal string for ffi.BigInt", data)),
            },
            Builtin::Device => {
                let parts = self.ints(data)?;
                let parts: Vec<i32> = parts.iter().filter_map(|part| i32::try_from(*part).ok()).collect();
                match parts[..] {
                    [kind, id] => Any::new(Device::new(kind, id)),
                    _ => Err(self.fail(
                        &format!(
                            "Invalid JSON Object Graph: Device data must be an array of [device_type, device_id], got \
                             {} element(s)",
                            tape.len(data)
                        ),
                        data,
                    )),
                }
            }
            Builtin::Shape => Any::new(Shape::from(&self.ints(data)?[..])),
            Builtin::Tensor => self.tensor(data),
            Builtin::Map => {
                let map = Map::<Any, Any>::from_vec(self.pairs(node)?)?;
                Any::new(map)
            }
            Builtin::Array => {
                let data = self.data(node, TokenKind::Array, "Array<Any>")?;
                let mut array = ArrayBuilder::with_capacity(tape.len(data))?;
                tape.items(data).try_for_each(|at| array.push(self.child(at)?))?;
                Any::new(array.finish())
            }
            Builtin::List | Builtin::Dict => self.mutable(node, part, builtin),
        }
    }

    /// Depending on `part`, creates a List or Dict with its elements, creates an empty one, or
    /// fills an existing one.
    fn mutable(&self, node: Node, part: Part, builtin: Builtin) -> Result<Any> {
        if part == Part::First {
            return if builtin == Builtin::List {
                Any::new(List::<Any>::new())
            } else {
                Any::new(Dict::<Any, Any>::new())
            };
        }
        if builtin == Builtin::List {
            let data = self.data(node, TokenKind::Array, "Array<Any>")?;
            let values = self.tape.items(data).map(|at| self.child(at)).collect::<Result<Vec<Any>>>()?;
            if part == Part::All {
                return Any::new(List::<Any>::from_vec(values)?);
            }
            let list = self.made[node.index].get::<List>()?;
            return list.replace_range(0..0, values).map(|()| Any::NONE);
        }
        let pairs = self.pairs(node)?;
        if part == Part::All {
            return Any::new(Dict::<Any, Any>::from_vec(pairs)?);
        }
        let dict = self.made[node.index].get::<Dict>()?;
        dict.extend(pairs).map(|()| Any::NONE)
    }

    fn pairs(&self, node: Node) -> Result<Vec<(Any, Any)>> {
        let data = self.data(node, TokenKind::Array, "Array<Any>")?;
        let len = self.tape.len(data);
        if !len.is_multiple_of(2) {
            return Err(self.fail(
                &format!(
                    "Invalid JSON Object Graph: Map/Dict data must contain an even number of [key, value] entries, \
                     got {len}"
                ),
                data,
            ));
        }
        let mut pairs = Vec::with_capacity(len / 2);
        let mut items = self.tape.items(data);
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            pairs.push((self.child(key)?, self.child(value)?));
        }
        Ok(pairs)
    }

    fn ints(&self, data: At) -> Result<Vec<i64>> {
        if self.tape.kind(data) != TokenKind::Array {
            return Err(self.mismatch(data, "Array<int>"));
        }
        let ints = self.tape.items(data);
        ints.map(|at| self.tape.int(at).ok_or_else(|| self.mismatch(at, "int"))).collect()
    }

    fn bytes(&self, data: At) -> Result<Vec<u8>> {
        if self.tape.str(data).is_none() {
            return Err(self.mismatch(data, "str"));
        }
        text::read_base64(self.tape.bytes(data)).ok_or_else(|| self.fail("invalid base64 encoding", data))
    }

    fn tensor(&self, data: At) -> Result<Any> {
        let part = |name: &str| {
            let found = self.tape.get(data, name);
            found.ok_or_else(|| self.fail(&format!("the data of a tensor needs the key `{name}`"), data))
        };
        if self.tape.kind(data) != TokenKind::Object {
            return Err(self.mismatch(data, "Map<Any, Any>"));
        }
        let shape = self.ints(part("shape")?)?;
        let dtype = self.inline(part("dtype")?, Inline::DType)?.get::<DType>()?;
        let bytes = self.bytes(part("data")?)?;
        let tensor = tensor::make(dtype, &shape, &bytes);
        Any::new(tensor.map_err(|error| with_place(&error, &self.tape.place(data)))?)
    }
}

#[cold]
fn unknown_type(tape: &Tape<'_>, key: &str, at: At) -> Error {
    let keys = anyfn::registry::find("ffi.GetRegisteredTypeKeys").and_then(|keys| keys.call(()).ok());
    let keys = keys.and_then(|keys| keys.get::<Vec<StdString>>().ok()).unwrap_or_default();
    let near = anyfn::__private::nearest(key, keys.iter().map(StdString::as_str));
    let hint = near.map_or_else(
        || StdString::from("is the library or module loaded that defines it?"),
        |near| format!("did you mean `{near}`?"),
    );
    let key = anyfn::__private::shorten(key);
    tape.error("RuntimeError", &format!("Cannot find type `{key}`; {hint}"), at)
}
