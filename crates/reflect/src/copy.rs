//! Copies: of an object alone, or with all that it consists of.

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
use crate::plan::{self, Plans};
use crate::structural::is_watched;
use crate::table::Table;
use crate::value::{self, Mapping};

static SHALLOW_COPY: Column = Column::new("__ffi_shallow_copy__");
static HASH: Column = Column::new("__any_hash__");
static EQUAL: Column = Column::new("__any_equal__");

/// A copy of a value with all that it consists of: containers, tensors in main memory and objects are made anew, what
/// cannot change (numbers, texts, shapes, functions, modules, values of enumerations) is kept. What was shared, or lies on
/// a cycle, is so in the copy.
///
/// # Errors
/// `InternalError` for an object whose type has no `__ffi_shallow_copy__`; what that or a field's setter gives;
/// `ValueError` for an object with read-only fields on a cycle that passes through a key whose type has its own hash or
/// equality, or through a field whose setter runs code of its type: these would see a copy before it is complete. What was
/// copied before an error is given back: the copies' Lists and Dicts are emptied and their writable fields are set to the
/// values of the originals, so that no cycle is left.
pub fn deep_copy(value: &Any) -> Result<Any> {
    let mut copier = Copier::default();
    copier.run_to_end(value).inspect_err(|_| copier.take_apart())
}

/// A copy of a container or an object, with the same elements and fields; a value that cannot change is its own copy.
///
/// # Errors
/// As [`deep_copy`].
pub fn shallow_copy(value: &Any) -> Result<Any> {
    let Some(object) = value.as_object() else { return Ok(value.clone()) };
    match object.type_index() {
        kTVMFFIList => Ok(List::<Any>::from_vec(value::list(object.clone())?.try_snapshot()?)?.into()),
        kTVMFFIDict => Ok(Dict::<Any, Any>::from_vec(value::pairs(object)?)?.into()),
        kTVMFFIArray | kTVMFFIMap => Ok(value.clone()),
        kTVMFFITensor => tensor(value),
        _ if is_fixed(object, &mut Plans::new(0))? => Ok(value.clone()),
        // No field of it is set, so it need not be a new one.
        _ => by_hook(object).map(Any::from),
    }
}

/// A copy of a value with all that it consists of.
#[anyfn::register("ffi.DeepCopy")]
fn deep_copy_global(value: Any) -> Result<Any> {
    deep_copy(&value)
}

/// A copy of a container or an object, with the same elements and fields.
#[anyfn::register("anyfn.ShallowCopy")]
fn shallow_copy_global(value: Any) -> Result<Any> {
    shallow_copy(&value)
}

/// Whether an object is its own copy.
fn is_fixed(object: &ObjectRef, plans: &mut Plans) -> Result<bool> {
    Ok(match object.type_index() {
        kTVMFFIStr | kTVMFFIBytes | kTVMFFIShape | kTVMFFIBigInt | kTVMFFIFunction | kTVMFFIModule => true,
        _ => {
            let plan = plans.of(object)?;
            plans.get(plan).is_enum
        }
    })
}

fn tensor(value: &Any) -> Result<Any> {
    let view = value.get::<TensorView<'_>>()?;
    let bytes = value::content(&view, "copy")?;
    Ok(Any::from(Tensor::from_bytes(view.dtype(), view.shape(), &bytes)?.into_object()))
}

/// The copy that the type makes.
fn by_hook(object: &ObjectRef) -> Result<ObjectRef> {
    type Native = unsafe extern "C" fn(TVMFFIObjectHandle) -> TVMFFIAny;
    let _nested = Nested::enter()?;
    let made = match SHALLOW_COPY.get(object.type_index())? {
        Some(Hook::Function(function)) => function.call((object,))?,
        Some(Hook::Native(code)) => {
            // SAFETY: an address in this column is such a function, by the column's definition.
            let code = unsafe { core::mem::transmute::<*mut core::ffi::c_void, Native>(code) };
            // SAFETY: called with a valid object.
            let raw = unsafe { code(object.as_handle()) };
            // SAFETY: a hook returns an owned value.
            unsafe { expected(raw) }?
        }
        None => return Err(no_copy(object)),
    };
    match made.into_object() {
        // Its fields are set by what the type of the original says.
        Some(made) if made.type_index() == object.type_index() => Ok(made),
        _ => anyfn::bail!(
            "TypeError",
            "`__ffi_shallow_copy__` of `{}` has made an object of another type",
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
        "`__ffi_shallow_copy__` of `{key}` has given an object that others hold: its field `{name}` cannot be set to a copy"
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

/// Whether code of others runs when a value becomes a key.
fn is_hooked(key: &Any) -> bool {
    let index = key.type_index();
    value::is_object(index)
        && !matches!(index, kTVMFFIStr | kTVMFFIBytes)
        && (HASH.has(index) || EQUAL.has(index))
}

/// Where a copy is missing whose original was being copied at the time.
enum Holder {
    Element(List, usize),
    Value(Dict, Any),
    /// Keys and values by turns, of a Dict that stays empty until then: a key is what others are ordered by.
    Pairs(Dict),
    Field(ObjectRef, Field),
}

// Only a copy that nobody else can reach may get its read-only fields, so each copy tells how far it reaches among those that
// are not complete: the smallest number of one of them (all that were begun since then lie on a cycle with it), or one of these.
/// Something that is filled at the end only.
const END: u32 = 0;
/// All that it reaches is complete, and stays as it is.
const COMPLETE: u32 = u32::MAX;
/// Of an entry of `Copier::reaches`: the copy itself is being made.
const OPEN: u32 = u32::MAX - 1;

/// What is known of an object.
#[derive(Clone, Copy, Default)]
enum Known {
    #[default]
    Nothing,
    /// An Array or Map whose elements are being copied.
    Open,
    /// The place of its copy.
    Copied(u32),
}

/// A copy that is being made.
enum Content {
    Array(Array, Vec<Any>),
    List(Vec<Any>, List),
    /// The keys and values that are copied so far, by turns.
    Map(Vec<(Any, Any)>, Vec<Any>),
    Dict(Vec<(Any, Any)>, Dict, Option<Any>),
    Object {
        original: ObjectRef,
        made: ObjectRef,
        plan: u32,
        is_new: bool,
    },
}

struct Frame {
    content: Content,
    next: usize,
    original: ObjectRef,
    /// Whether others may meet the original, so that its copy is remembered.
    shared: bool,
    /// Whether an element (of a Dict: a key) is still the original, so that all elements have to be copied again later.
    unfinished: bool,
    /// One more than the copies that were remembered before; if it is remembered at once, that is its place among them.
    number: u32,
    /// How far its parts reach.
    reach: u32,
    /// How far the parts reach that code of others has got, as keys or by setters of fields: it may know the copies of all
    /// frames from this number on.
    seen: u32,
}

struct Copier {
    stack: Vec<Frame>,
    plans: Plans,
    known: Table<usize, Known>,
    /// Originals and their copies.
    copies: Vec<(ObjectRef, Any)>,
    /// Which of them others hold, since a hook has given an object that was there before.
    foreign: Vec<usize>,
    /// How far each of the copies reaches: [`END`], [`OPEN`], [`COMPLETE`] or a number, which is one more than a place.
    reaches: Vec<u32>,
    holes: Vec<(Holder, Any)>,
    /// How far the copy reaches that was made or found last.
    reach: u32,
    /// Whether code of others may know copies that are filled at the end.
    seen: bool,
}

impl Default for Copier {
    fn default() -> Copier {
        Copier {
            stack: Vec::new(),
            plans: Plans::new(0),
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

/// A value after a look.
enum Look {
    Copy(Any),
    /// The original stands for its copy, which is not there yet.
    Hole(Any),
    Opened,
}

impl Copier {
    fn run_to_end(&mut self, value: &Any) -> Result<Any> {
        let copy = self.run(value.clone())?;
        // At the end, when all else is complete: the types of keys and fields may have functions of their own.
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

    /// Takes the copies out of each other after an error, which is the one that is told: nobody has what lies on a cycle.
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
                let fields = (0..).map_while(|number| self.plans.field(plan, number));
                for field in fields.filter(|field| field.is_writable()) {
                    let Ok(value) = plan::read(field, &original) else { continue };
                    // SAFETY: a field of the copy's type, which is that of the original; it may be set at any time.
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
                Look::Opened => {}
                Look::Copy(copy) | Look::Hole(copy) if self.stack.len() == base => return Ok(copy),
                Look::Copy(copy) => self.feed(copy, false)?,
                Look::Hole(original) => self.feed(original, true)?,
            }
            look = self.advance()?;
        }
    }

    /// Copies a value, or begins to.
    fn open(&mut self, value: Any, own: usize) -> Result<Look> {
        self.reach = COMPLETE;
        let Some(object) = value.as_object() else { return Ok(Look::Copy(value)) };
        let address = value::address_of(object);
        match self.known.get(address).unwrap_or_default() {
            Known::Copied(at) => {
                self.reach = self.reach_of(at as usize);
                return Ok(Look::Copy(self.copies[at as usize].1.clone()));
            }
            Known::Open => {
                self.reach = END;
                return Ok(Look::Hole(value));
            }
            Known::Nothing => {}
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
                return Ok(Look::Copy(copy));
            }
            _ if is_fixed(&object, &mut self.plans)? => return Ok(Look::Copy(value)),
            _ => {
                let plan = self.plans.of(&object)?;
                let made = by_hook(&object)?;
                let is_new = made.is_unique();
                Content::Object { original: object.clone(), made, plan, is_new }
            }
        };
        let number = self.copies.len() as u32 + 1;
        match &content {
            Content::Array(..) | Content::Map(..) if shared => self.known.set(address, Known::Open),
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
        Ok(Look::Opened)
    }

    fn remember(&mut self, original: ObjectRef, copy: Any, shared: bool, reach: u32) {
        if shared {
            self.reaches.push(reach);
            self.known.set(value::address_of(&original), Known::Copied(self.copies.len() as u32));
            self.copies.push((original, copy));
        }
    }

    /// How far a copy that is remembered reaches: the smallest number of one that is being made, [`END`] or [`COMPLETE`].
    fn reach_of(&mut self, at: usize) -> u32 {
        let mut last = at;
        let reach = loop {
            match self.reaches[last] {
                OPEN => break last as u32 + 1,
                reach @ (END | COMPLETE) => break reach,
                number => last = number as usize - 1,
            }
        };
        // The next one is answered at once.
        let mut at = at;
        while at != last {
            at = core::mem::replace(&mut self.reaches[at], reach) as usize - 1;
        }
        reach
    }

    /// Goes on with the innermost copy.
    fn advance(&mut self) -> Result<Look> {
        let Some(frame) = self.stack.last_mut() else { return Ok(Look::Copy(Any::NONE)) };
        let at = frame.next;
        frame.next += 1;
        let next = match &frame.content {
            Content::Array(items, _) => items.as_slice().get(at).cloned().map(|item| (item, 2)),
            Content::List(items, _) => items.get(at).cloned().map(|item| (item, 3)),
            Content::Map(pairs, _) | Content::Dict(pairs, ..) => {
                let pair = pairs.get(at / 2);
                pair.map(|(key, value)| if at % 2 == 0 { key } else { value }).cloned().map(|item| (item, 3))
            }
            Content::Object { original, made, plan, .. } => match self.plans.field(*plan, at as u32) {
                // The copy holds the same value, too.
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

    /// Puts the copy of an element into the innermost copy. A hole is the original, whose copy comes later.
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
                let Some(field) = self.plans.field(*plan, at as u32) else { return Ok(()) };
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
                        // SAFETY: a field of the copy's type; the copy was new when its hook gave it, and if the field is
                        // read-only, only other copies hold it, none of which code of others can know.
                        unsafe { field.set_unchecked(made, &part.as_view()) }?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts a copy where it is missing.
    fn fill(&mut self, holder: Holder, part: Any) -> Result<()> {
        match holder {
            Holder::Element(list, at) => list.set(at, part),
            Holder::Value(dict, key) => dict.insert(key, part).map(drop),
            Holder::Pairs(dict) => {
                let pairs = part.get::<Array>()?;
                // Also without the pairs that were there before the first key turned out to be missing.
                dict.clear()?;
                pairs
                    .as_slice()
                    .chunks_exact(2)
                    .try_for_each(|pair| dict.insert(pair[0].clone(), pair[1].clone()).map(drop))
            }
            Holder::Field(object, field) if self.seen && !field.is_writable() => Err(is_seen(&object, field)),
            // SAFETY: a field of the copy's type; the copy was new when its hook gave it, and if the field is read-only,
            // only other copies hold it, none of which code of others can know.
            Holder::Field(object, field) => unsafe { field.set_unchecked(&object, &part.as_view()) },
        }
    }

    /// Ends the innermost copy.
    fn close(&mut self) -> Result<Look> {
        let Some(mut frame) = self.stack.pop() else { return Ok(Look::Copy(Any::NONE)) };
        let is_open = frame.shared && !matches!(frame.content, Content::Array(..) | Content::Map(..));
        if frame.seen <= frame.number {
            // Whoever knows it knows what it reaches.
            frame.seen = frame.seen.min(frame.reach);
        }
        self.seen |= frame.seen == END;
        // If it reaches nothing that was begun before, it is complete, with all on its cycles.
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
            Content::List(_, made) => return Ok(Look::Copy(made.into())),
            Content::Dict(pairs, made, _) => {
                if frame.unfinished {
                    let flat = pairs.into_iter().flat_map(|(key, value)| [key, value]);
                    let original = Array::<Any>::try_from_iter(flat)?;
                    self.holes.push((Holder::Pairs(made.clone()), original.into()));
                }
                return Ok(Look::Copy(made.into()));
            }
            Content::Object { made, .. } => return Ok(Look::Copy(made.into())),
            Content::Array(..) | Content::Map(..) if frame.unfinished => {
                self.known.set(value::address_of(&frame.original), Known::Nothing);
                self.reach = END;
                return Ok(Look::Hole(frame.original.into()));
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
        Ok(Look::Copy(copy))
    }
}
