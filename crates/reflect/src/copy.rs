//! Shallow and deep copies of values.

use alloc::format;
use alloc::vec::Vec;

use anyfn::abi::{
    TVMFFIAny, TVMFFIObjectHandle, kTVMFFIArray, kTVMFFIBigInt, kTVMFFIBytes, kTVMFFIDict, kTVMFFIFunction,
    kTVMFFIList, kTVMFFIMap, kTVMFFIModule, kTVMFFIShape, kTVMFFIStr, kTVMFFITensor,
};
use anyfn::reflection::Field;
use anyfn::{Any, Array, Dict, Error, List, Map, ObjectRef, Result, Tensor, TensorView};

use crate::column::{Column, Hook, expected};
use crate::guard::Nested;
use crate::plan::{self, Plan, PlanCache, Plans};
use crate::table::Table;
use crate::value::{self, Mapping, is_watched};

static SHALLOW_COPY: Column = Column::new("__ffi_shallow_copy__");
static HASH: Column = Column::new("__any_hash__");
static EQUAL: Column = Column::new("__any_equal__");
static PLANS: PlanCache = PlanCache::new(0);

/// Returns a deep copy of a value. Containers, tensors in main memory and objects are copied. The
/// original and the copy share numbers, strings, shapes, functions, modules and enumeration values.
/// Shared nodes and cycles of the original are shared nodes and cycles of the copy.
///
/// # Errors
/// Returns `RuntimeError` for an object whose type has no `__ffi_shallow_copy__`; the error of this hook or of a
/// field's setter; `InternalError` for a tensor that is not contiguous in main memory.
///
/// Returns `ValueError` for an object with read-only fields on a cycle, if the cycle passes through a key whose type
/// has its own hash or equality, or through a field whose setter runs code of its type. This code would see a copy
/// before it is complete.
///
/// After an error, the copies made so far are released: the copied Lists and Dicts are emptied and the writable fields
/// of copies are set to the values of the originals, so that no cycle remains.
pub fn deep_copy(value: &Any) -> Result<Any> {
    let mut copier = Copier::default();
    copier.run_to_end(value).inspect_err(|_| copier.take_apart())
}

/// Returns a copy of a List, Dict, tensor or object with the same elements or field values. Other
/// values, such as Arrays, Maps and strings, are returned unchanged.
///
/// # Errors
/// Returns the errors of [`deep_copy`].
pub fn shallow_copy(value: &Any) -> Result<Any> {
    let Some(object) = value.as_object() else { return Ok(value.clone()) };
    match object.type_index() {
        kTVMFFIList => Ok(List::<Any>::from_vec(value::list(object.clone())?.try_snapshot()?)?.into()),
        kTVMFFIDict => Ok(Dict::<Any, Any>::from_vec(value::pairs(object)?)?.into()),
        kTVMFFIArray | kTVMFFIMap => Ok(value.clone()),
        kTVMFFITensor => tensor(value),
        _ if is_fixed(object, &mut Plans::new(&PLANS))? => Ok(value.clone()),
        // None of its fields is set afterwards, so it need not be a new object.
        _ => by_hook(object).map(Any::from),
    }
}

/// Returns a deep copy of a value. Containers, tensors and objects are copied. Numbers, strings,
/// bytes, shapes, functions, modules and enumeration values are shared with the original.
#[anyfn::register("ffi.DeepCopy")]
fn deep_copy_global(value: Any) -> Result<Any> {
    deep_copy(&value)
}

/// Returns a copy of a List, Dict, tensor or object with the same elements or field values. Other
/// values, such as Arrays, Maps and strings, are returned unchanged.
#[anyfn::register("anyfn.ShallowCopy")]
fn shallow_copy_global(value: Any) -> Result<Any> {
    shallow_copy(&value)
}

/// Returns true if copies of a graph share the object: a string, bytes, shape, big integer, function, module or
/// enumeration value.
fn is_fixed(object: &ObjectRef, plans: &mut Plans) -> Result<bool> {
    Ok(match object.type_index() {
        kTVMFFIStr | kTVMFFIBytes | kTVMFFIShape | kTVMFFIBigInt | kTVMFFIFunction | kTVMFFIModule => true,
        _ => plans.of(object)?.is_enum,
    })
}

fn tensor(value: &Any) -> Result<Any> {
    let view = value.get::<TensorView<'_>>()?;
    let bytes = value::content(&view, "copy")?;
    Ok(Any::from(Tensor::from_bytes(view.dtype(), view.shape(), &bytes)?.into_object()))
}

/// Calls the hook `__ffi_shallow_copy__` of an object's type, and returns the copy that it creates.
fn by_hook(object: &ObjectRef) -> Result<ObjectRef> {
    type Native = unsafe extern "C" fn(TVMFFIObjectHandle) -> TVMFFIAny;
    let _nested = Nested::enter()?;
    let made = match SHALLOW_COPY.get(object.type_index())? {
        Some(Hook::Function(function)) => function.call((object,))?,
        Some(Hook::Native(code)) => {
            // SAFETY: by the definition of the column, an address in it is such a function.
            let code = unsafe { core::mem::transmute::<*mut core::ffi::c_void, Native>(code) };
            // SAFETY: called with a valid object.
            let raw = unsafe { code(object.as_handle()) };
            // SAFETY: a hook returns an owned value.
            expected(unsafe { Any::from_raw(raw) })?
        }
        None => return Err(no_copy(object)),
    };
    match made.into_object() {
        // The fields of the copy are set according to the type of the original.
        Some(made) if made.type_index() == object.type_index() => Ok(made),
        _ => anyfn::bail!(
            "TypeError",
            "`__ffi_shallow_copy__` of `{}` returned an object of another type",
            object.type_key()
        ),
    }
}

#[cold]
fn no_copy(object: &ObjectRef) -> Error {
    let key = object.type_key();
    Error::new(
        "RuntimeError",
        &format!("Cannot deep copy object of type \"{key}\" because it is not copy-constructible"),
    )
}

#[cold]
fn not_new(made: &ObjectRef, field: Field) -> Error {
    let (key, name) = (made.type_key(), field.name());
    let message = format!(
        "`__ffi_shallow_copy__` of `{key}` returned an object that has other references: its field `{name}` \
         cannot be set to a copy"
    );
    Error::new("TypeError", &message)
}

#[cold]
fn is_seen(made: &ObjectRef, field: Field) -> Error {
    let (key, name) = (made.type_key(), field.name());
    let message = format!(
        "an object of `{key}` lies on a cycle that passes through a key whose type has its own hash or equality, or through a \
         field with its own setter, which may have kept its copy: the copy's field `{name}` is read-only and cannot be set"
    );
    Error::new("ValueError", &message)
}

/// Returns true if inserting `key` into a Map or Dict runs foreign code, that is, if the type of `key` has a
/// hook for hashing or equality.
fn is_hooked(key: &Any) -> bool {
    let index = key.type_index();
    value::is_object(index)
        && !matches!(index, kTVMFFIStr | kTVMFFIBytes)
        && (HASH.has(index) || EQUAL.has(index))
}

/// Location in a copy (element, value or field) that is filled in at the end of the copy operation. When the
/// location was reached, the copy that belongs there did not exist yet, because of a cycle.
enum Holder {
    Element(List, usize),
    Value(Dict, Any),
    /// Dict into which all pairs are inserted only at the end of the operation, to preserve their order.
    /// Until then, an Array of alternating keys and values holds them.
    Pairs(Dict),
    Field(ObjectRef, Field),
}

// Read-only fields may only be set in a copy that no other code can reach. Therefore each copy records how far it
// reaches among the copies that are not complete: the smallest number of such a copy (all copies begun since then are
// on a cycle with it), or one of these constants.
/// Value of `Frame::reach` for a copy that refers to an unfinished copy, directly or indirectly. The missing
/// elements or fields of the unfinished copy are filled in at the end of the operation.
const END: u32 = 0;
/// Value of `Frame::reach` for a copy whose children are all complete and no longer change.
const COMPLETE: u32 = u32::MAX;
/// Entry of `Copier::reaches` for a copy that is still being built.
const OPEN: u32 = u32::MAX - 1;

/// Progress of copying one object of the original graph.
#[derive(Clone, Copy, Default)]
enum Progress {
    #[default]
    Nothing,
    /// The object is an Array or Map whose elements are being copied. Its copy does not exist yet.
    Open,
    /// The object has been copied. Contains the index of the copy in `Copier::copies`.
    Copied(u32),
}

/// Original and copy of a value whose children are being copied.
enum Content {
    Array(Array, Vec<Any>),
    List(Vec<Any>, List),
    /// Key-value pairs of the original Map, and the keys and values copied so far, alternating.
    Map(Vec<(Any, Any)>, Vec<Any>),
    Dict(Vec<(Any, Any)>, Dict, Option<Any>),
    Object {
        original: ObjectRef,
        made: ObjectRef,
        plan: &'static Plan,
        is_new: bool,
    },
}

struct Frame {
    content: Content,
    next: usize,
    original: ObjectRef,
    /// True if the original may be encountered again. Its copy is then recorded in `Copier::known`.
    shared: bool,
    /// True if the copy of a container still contains an element or key of the original, because the copy of
    /// that element or key does not exist yet. The copy of the container is then filled again at the end of the
    /// operation.
    unfinished: bool,
    /// Length of `Copier::copies` at the time at which this copy was begun, plus 1. If the copy was added to
    /// `Copier::copies` immediately, its index there is `number - 1`.
    number: u32,
    /// Lowest `number` among the incomplete copies that can be reached from the children copied so
    /// far (the low-link of Tarjan's algorithm). [`END`] if one of the copies that can be reached
    /// has missing elements or fields that are filled in at the end of the operation; [`COMPLETE`]
    /// if no incomplete copy can be reached.
    reach: u32,
    /// Lowest `number` among the incomplete copies that can be reached from the children that foreign code has
    /// received: keys, and values passed to the setters of fields. [`END`] and [`COMPLETE`] have the same meaning
    /// as in `reach`. Foreign code may refer to the copies of all frames with this number or a higher one.
    seen: u32,
}

struct Copier {
    stack: Vec<Frame>,
    plans: Plans,
    known: Table<usize, Progress>,
    /// Original objects and their copies.
    copies: Vec<(ObjectRef, Any)>,
    /// Indices in `copies` of existing objects that a hook returned instead of new ones. Code outside of this
    /// operation may refer to these objects.
    foreign: Vec<usize>,
    /// One entry for each copy in `copies`: [`OPEN`] while the copy is being built, then its `Frame::reach`, which is
    /// [`END`], [`COMPLETE`], or the index of a copy plus 1.
    reaches: Vec<u32>,
    holes: Vec<(Holder, Any)>,
    /// Lowest `number` among the incomplete copies that can be reached from the copy created or found most
    /// recently; see [`Frame::reach`].
    reach: u32,
    /// True if foreign code may refer to copies whose missing elements or fields are filled in at the end of
    /// the operation.
    seen: bool,
}

impl Default for Copier {
    fn default() -> Copier {
        Copier {
            stack: Vec::new(),
            plans: Plans::new(&PLANS),
            known: Table::default(),
            copies: Vec::new(),
            foreign: Vec::new(),
            reaches: Vec::new(),
            holes: Vec::new(),
            reach: COMPLETE,
            seen: false,
        }
    }
}

/// Result of one step of a copy operation.
enum StepResult {
    Copy(Any),
    /// The original value, as a placeholder for its copy, which does not exist yet. The copy is filled in at
    /// the end of the operation.
    Hole(Any),
    Opened,
}

impl Copier {
    fn run_to_end(&mut self, value: &Any) -> Result<Any> {
        let copy = self.run(value.clone())?;
        // At the end, when everything else is complete, because the types of keys and fields may have hooks.
        let mut last = Vec::new();
        while let Some((holder, original)) = self.holes.pop() {
            let part = self.run(original)?;
            match holder {
                Holder::Pairs(_) => last.push((holder, part)),
                Holder::Field(_, field) if field.runs_own_code() => last.push((holder, part)),
                _ => self.fill(holder, part)?,
            }
        }
        last.into_iter().try_for_each(|(holder, part)| self.fill(holder, part))?;
        Ok(copy)
    }

    /// Removes the references between the copies after an error, so that no unreachable cycle leaks. Further
    /// errors are ignored.
    fn take_apart(&mut self) {
        for (at, (original, copy)) in core::mem::take(&mut self.copies).into_iter().enumerate() {
            if let Ok(list) = copy.get::<List>() {
                list.clear();
            } else if let Ok(dict) = copy.get::<Dict>() {
                dict.clear().ok();
            } else if let Ok(plan) = self.plans.of(&original)
                && let Some(copy) = copy.as_object()
                && self.foreign.binary_search(&at).is_err()
            {
                for field in plan.fields.iter().copied().filter(|field| field.is_writable()) {
                    let Ok(value) = plan::read(field, &original) else { continue };
                    // SAFETY: the field belongs to the copy's type, which is that of the original, and may be set at
                    // any time.
                    unsafe { field.set_unchecked(copy, &value.as_view()) }.ok();
                }
            }
        }
    }

    fn run(&mut self, value: Any) -> Result<Any> {
        let base = self.stack.len();
        let mut look = self.open(value, 2)?;
        loop {
            match look {
                StepResult::Opened => {}
                StepResult::Copy(copy) | StepResult::Hole(copy) if self.stack.len() == base => return Ok(copy),
                StepResult::Copy(copy) => self.feed(copy, false)?,
                StepResult::Hole(original) => self.feed(original, true)?,
            }
            look = self.advance()?;
        }
    }

    /// Copies a value without children, or begins to copy a value with children. `own` is the reference count
    /// that the value has if no other code refers to it.
    fn open(&mut self, value: Any, own: usize) -> Result<StepResult> {
        self.reach = COMPLETE;
        let Some(object) = value.as_object() else { return Ok(StepResult::Copy(value)) };
        let address = value::address_of(object);
        match self.known.get(address).unwrap_or_default() {
            Progress::Copied(at) => {
                self.reach = self.reach_of(at as usize);
                return Ok(StepResult::Copy(self.copies[at as usize].1.clone()));
            }
            Progress::Open => {
                self.reach = END;
                return Ok(StepResult::Hole(value));
            }
            Progress::Nothing => {}
        }
        let shared = object.use_count() > own || is_watched(self.stack.len());
        let object = object.clone();
        let content = match object.type_index() {
            kTVMFFIArray => {
                let items = value::array(object.clone())?;
                let made = Vec::with_capacity(items.len());
                Content::Array(items, made)
            }
            kTVMFFIList => {
                let items = value::list(object.clone())?.try_snapshot()?;
                let made = List::with_capacity(items.len())?;
                Content::List(items, made)
            }
            kTVMFFIMap => Content::Map(value::pairs(&object)?, Vec::new()),
            kTVMFFIDict => Content::Dict(Mapping::of(object.clone())?.pairs()?, Dict::new(), None),
            kTVMFFITensor => {
                let copy = tensor(&value)?;
                self.remember(object, copy.clone(), shared, COMPLETE);
                return Ok(StepResult::Copy(copy));
            }
            _ if is_fixed(&object, &mut self.plans)? => return Ok(StepResult::Copy(value)),
            _ => {
                let plan = self.plans.of(&object)?;
                let made = by_hook(&object)?;
                let is_new = made.is_unique();
                Content::Object { original: object.clone(), made, plan, is_new }
            }
        };
        let number = self.copies.len() as u32 + 1;
        match &content {
            Content::Array(..) | Content::Map(..) if shared => self.known.set(address, Progress::Open),
            Content::Array(..) | Content::Map(..) => {}
            Content::List(_, made) => self.remember(object.clone(), made.clone().into(), shared, OPEN),
            Content::Dict(_, made, _) => self.remember(object.clone(), made.clone().into(), shared, OPEN),
            Content::Object { made, is_new, .. } => {
                if shared && !is_new {
                    self.foreign.push(self.copies.len());
                }
                self.remember(object.clone(), made.clone().into(), shared, OPEN);
            }
        }
        let (reach, seen) = (COMPLETE, COMPLETE);
        let frame =
            Frame { content, next: 0, original: object, shared, unfinished: false, number, reach, seen };
        self.stack.push(frame);
        Ok(StepResult::Opened)
    }

    fn remember(&mut self, original: ObjectRef, copy: Any, shared: bool, reach: u32) {
        if shared {
            self.reaches.push(reach);
            self.known.set(value::address_of(&original), Progress::Copied(self.copies.len() as u32));
            self.copies.push((original, copy));
        }
    }

    /// Returns the current value of `Frame::reach` for the copy at index `at` of `Copier::copies`. Follows
    /// the chain of indices in `reaches` to this value, and shortens the chain (path compression).
    fn reach_of(&mut self, at: usize) -> u32 {
        let mut last = at;
        let reach = loop {
            match self.reaches[last] {
                OPEN => break last as u32 + 1,
                reach @ (END | COMPLETE) => break reach,
                number => last = number as usize - 1,
            }
        };
        // Path compression: later queries are answered at once.
        let mut at = at;
        while at != last {
            at = core::mem::replace(&mut self.reaches[at], reach) as usize - 1;
        }
        reach
    }

    /// Continues with the next child of the topmost copy on the stack.
    fn advance(&mut self) -> Result<StepResult> {
        let Some(frame) = self.stack.last_mut() else { return Ok(StepResult::Copy(Any::NONE)) };
        let at = frame.next;
        frame.next += 1;
        let next = match &frame.content {
            Content::Array(items, _) => items.as_slice().get(at).cloned().map(|item| (item, 2)),
            Content::List(items, _) => items.get(at).cloned().map(|item| (item, 3)),
            Content::Map(pairs, _) | Content::Dict(pairs, ..) => {
                let pair = pairs.get(at / 2);
                pair.map(|(key, value)| if at % 2 == 0 { key } else { value }).cloned().map(|item| (item, 3))
            }
            Content::Object { original, made, plan, .. } => match plan.field(at) {
                // The copy refers to the same value as well.
                Some(field) => {
                    let own = if original.ptr_eq(made) { 2 } else { 3 };
                    Some((plan::read(field, original)?, own))
                }
                None => None,
            },
        };
        match next {
            Some((value, own)) => self.open(value, own),
            None => self.close(),
        }
    }

    /// Adds the copied child `part` to the topmost copy on the stack. If `hole` is true, `part` is an
    /// original whose copy does not exist yet.
    fn feed(&mut self, part: Any, hole: bool) -> Result<()> {
        let Some(frame) = self.stack.last_mut() else { return Ok(()) };
        let at = frame.next - 1;
        let is_complete = !hole && self.reach == COMPLETE;
        if self.reach != COMPLETE {
            frame.reach = frame.reach.min(self.reach);
            let is_key = at % 2 == 0 && matches!(frame.content, Content::Map(..) | Content::Dict(..));
            if is_key && !hole && !frame.unfinished && is_hooked(&part) {
                frame.seen = frame.seen.min(self.reach);
            }
        }
        match &mut frame.content {
            Content::Array(_, made) | Content::Map(_, made) => {
                frame.unfinished |= hole;
                made.push(part);
            }
            Content::List(_, made) => {
                made.push(part.clone())?;
                if hole {
                    self.holes.push((Holder::Element(made.clone(), at), part));
                }
            }
            Content::Dict(_, made, key @ None) => {
                *key = Some(part);
                if hole && !core::mem::replace(&mut frame.unfinished, true) {
                    made.clear()?;
                }
            }
            Content::Dict(_, made, key) => {
                let key = key.take().unwrap_or_default();
                if frame.unfinished {
                    return Ok(());
                }
                made.insert(key.clone(), part.clone())?;
                if hole {
                    self.holes.push((Holder::Value(made.clone(), key), part));
                }
            }
            Content::Object { original, made, plan, is_new } => {
                let Some(field) = plan.field(at) else { return Ok(()) };
                let stays = !value::is_object(part.type_index())
                    || value::same_bits(&part, &plan::read(field, original)?);
                match (hole, stays, *is_new) {
                    (false, true, _) => {}
                    (_, _, false) => return Err(not_new(made, field)),
                    _ if !field.is_writable()
                        && (frame.seen <= frame.number || (field.runs_own_code() && !is_complete)) =>
                    {
                        return Err(is_seen(made, field));
                    }
                    (true, ..) => self.holes.push((Holder::Field(made.clone(), field), part)),
                    (false, false, true) => {
                        if field.runs_own_code() {
                            frame.seen = frame.seen.min(self.reach);
                        }
                        // SAFETY: the field belongs to the copy's type. The copy was new when its hook returned it. If
                        // the field is read-only, only other copies refer to it, none of which foreign code can know.
                        unsafe { field.set_unchecked(made, &part.as_view()) }?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Stores `part`, a finished copy, at the location `holder` of another copy.
    fn fill(&mut self, holder: Holder, part: Any) -> Result<()> {
        match holder {
            Holder::Element(list, at) => list.set(at, part),
            Holder::Value(dict, key) => dict.insert(key, part).map(drop),
            Holder::Pairs(dict) => {
                let pairs = part.get::<Array>()?;
                // Also removes the pairs that were inserted before the first missing key.
                dict.clear()?;
                pairs
                    .as_slice()
                    .chunks_exact(2)
                    .try_for_each(|pair| dict.insert(pair[0].clone(), pair[1].clone()).map(drop))
            }
            Holder::Field(object, field) if self.seen && !field.is_writable() => Err(is_seen(&object, field)),
            // SAFETY: the field belongs to the copy's type. The copy was new when its hook returned it. If the field is
            // read-only, only other copies refer to it, none of which foreign code can know.
            Holder::Field(object, field) => unsafe { field.set_unchecked(&object, &part.as_view()) },
        }
    }

    /// Completes the topmost copy on the stack.
    fn close(&mut self) -> Result<StepResult> {
        let Some(mut frame) = self.stack.pop() else { return Ok(StepResult::Copy(Any::NONE)) };
        let is_open = frame.shared && !matches!(frame.content, Content::Array(..) | Content::Map(..));
        if frame.seen <= frame.number {
            // Code that knows this copy knows everything that it reaches.
            frame.seen = frame.seen.min(frame.reach);
        }
        self.seen |= frame.seen == END;
        // If it reaches nothing that was begun before, it is complete, together with everything on its cycles.
        self.reach = if frame.reach < frame.number { frame.reach } else { COMPLETE };
        if is_open {
            self.reaches[frame.number as usize - 1] = self.reach;
        }
        if let Some(outer) = self.stack.last_mut()
            && frame.seen < frame.number
        {
            outer.seen = outer.seen.min(frame.seen);
        }
        let copy: Any = match frame.content {
            Content::List(_, made) => return Ok(StepResult::Copy(made.into())),
            Content::Dict(pairs, made, _) => {
                if frame.unfinished {
                    let flat = pairs.into_iter().flat_map(|(key, value)| [key, value]);
                    let original = Array::<Any>::try_from_iter(flat)?;
                    self.holes.push((Holder::Pairs(made.clone()), original.into()));
                }
                return Ok(StepResult::Copy(made.into()));
            }
            Content::Object { made, .. } => return Ok(StepResult::Copy(made.into())),
            Content::Array(..) | Content::Map(..) if frame.unfinished => {
                self.known.set(value::address_of(&frame.original), Progress::Nothing);
                self.reach = END;
                return Ok(StepResult::Hole(frame.original.into()));
            }
            Content::Array(_, made) => Array::<Any>::try_from_iter(made)?.into(),
            Content::Map(_, made) => {
                let mut made = made.into_iter();
                let mut pairs = Vec::with_capacity(made.len() / 2);
                while let (Some(key), Some(value)) = (made.next(), made.next()) {
                    pairs.push((key, value));
                }
                Map::<Any, Any>::from_vec(pairs)?.into()
            }
        };
        self.remember(frame.original, copy.clone(), frame.shared, self.reach);
        Ok(StepResult::Copy(copy))
    }
}
