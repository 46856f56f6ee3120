//! Structural hash, which is consistent with structural equality.

use alloc::vec::Vec;

use anyfn::__private::small_str_hash;
use anyfn::abi::{
    TVMFFIAny, TVMFFIObjectHandle, kTVMFFIArray, kTVMFFIBigInt, kTVMFFIBool, kTVMFFIBytes, kTVMFFIDict,
    kTVMFFIFieldFlagBitMaskSEqHashIgnore as IGNORE, kTVMFFIFloat, kTVMFFIInt, kTVMFFIList, kTVMFFIMap,
    kTVMFFISEqHashKindDAGNode as DAG, kTVMFFISEqHashKindFreeVar as FREE_VAR, kTVMFFIShape, kTVMFFISmallBytes,
    kTVMFFISmallStr, kTVMFFIStr, kTVMFFITensor,
};
use anyfn::reflection::TypeInfo;
use anyfn::{Any, Args, Error, ObjectRef, PackedFunc, Result, TensorView};

use super::{Options, Region, kind_of};
use crate::column::{Column, Hook, expected};
use crate::guard;
use crate::plan::{self, Plan, PlanCache, Plans};
use crate::table::Table;
use crate::value::{self, HeldObject, hash_bytes, hash_combine, is_watched};

static HASH: Column = Column::new("__s_hash__");
static PLANS: PlanCache = PlanCache::with_hooks(IGNORE, &HASH);

/// Returns the structural hash of a value. Values that [`structural_equal`](super::structural_equal) considers
/// equal with the same options have the same hash, also in different processes.
///
/// A variable that the value uses but does not define is hashed by its address, unless `map_free_vars` is set. The hash
/// of such a value differs between processes.
///
/// # Errors
/// Returns `ValueError` for a value that contains itself, because no hash of a cycle would be shared by all values that
/// are equal to it. Otherwise returns the errors of `structural_equal`.
pub fn structural_hash(value: &Any, options: Options) -> Result<u64> {
    let mut hash = Hash::new(options);
    hash.run(value.clone(), 2)
}

/// Progress of hashing an object.
#[derive(Clone, Copy, Default, PartialEq)]
enum Progress {
    #[default]
    Nothing,
    /// The object is being hashed.
    Open,
    Hash(u64),
}

/// Value whose content is being hashed.
struct Frame {
    node: Content,
    next: usize,
    /// Combined hash of the children that have been hashed so far.
    hash: u64,
    /// Key of the result in `Hash::known`: the address of the object, or 0 if the result is not recorded.
    address: usize,
    /// Value of `Hash::skipped` at the time at which hashing of the value began.
    skipped: usize,
    region: Region,
    outer: Region,
}

enum Content {
    Array(HeldObject),
    /// Snapshot of the elements of a List.
    List(Vec<Any>),
    /// Values of a Map or Dict with the hashes of their keys, sorted by these hashes.
    Sorted(Vec<(u64, Any)>),
    Object(HeldObject, &'static Plan),
}

/// Result of one step of a hash computation.
enum StepResult {
    Hash(u64),
    Opened,
}

struct Hash {
    stack: Vec<Frame>,
    region: Region,
    skip_tensor_content: bool,
    plans: Plans,
    known: Table<usize, Progress>,
    /// Objects whose addresses are keys of `known`, held so that the addresses are not reused.
    kept: Vec<ObjectRef>,
    variables: u32,
    nodes: u32,
    /// Number of Map and Dict keys that were left out because they had not been hashed yet. The hash of a
    /// container with such keys is not recorded, because it may differ later.
    skipped: usize,
    /// Initial value of the hash of an Array, computed from its type key; 0 until an Array is encountered.
    array: u64,
}

impl Default for Hash {
    fn default() -> Hash {
        Hash::new(Options::default())
    }
}

// SAFETY: besides values, which are `Send`, it holds references to types, which are never freed and are changed by
// atomic stores only.
unsafe impl Send for Hash {}

impl Hash {
    fn new(options: Options) -> Hash {
        Hash {
            stack: Vec::new(),
            region: Region::root(options),
            skip_tensor_content: options.skip_tensor_content,
            plans: Plans::new(&PLANS),
            known: Table::default(),
            kept: Vec::new(),
            variables: 0,
            nodes: 0,
            skipped: 0,
            array: 0,
        }
    }

    /// Returns the structural hash of a value. A hook may call this function while enclosing values are being
    /// hashed.
    fn run(&mut self, value: Any, own: usize) -> Result<u64> {
        let base = self.stack.len();
        let outer = self.region;
        let mut hash = match leaf(self.skip_tensor_content, &value)? {
            Some(hash) => return Ok(hash),
            None => match self.open_value(value, own, outer)? {
                StepResult::Hash(hash) => return Ok(hash),
                StepResult::Opened => None,
            },
        };
        loop {
            if let Some(done) = hash {
                if self.stack.len() == base {
                    return Ok(done);
                }
                if let Some(frame) = self.stack.last_mut() {
                    frame.hash = hash_combine(frame.hash, done);
                }
            }
            hash = match self.advance()? {
                StepResult::Hash(done) => Some(done),
                StepResult::Opened => None,
            };
        }
    }

    /// Begins to hash a value as `Hash::open` does, and takes over its reference.
    fn open_value(&mut self, value: Any, own: usize, outer: Region) -> Result<StepResult> {
        match value.into_object() {
            Some(object) => self.open(HeldObject::owned(object), own, outer),
            None => Ok(StepResult::Hash(0)),
        }
    }

    /// Begins to hash the content of an object. `own` is the reference count that the object has if
    /// no other code refers to it. `outer` is the definition region that becomes current again
    /// after the object has been hashed.
    fn open(&mut self, object: HeldObject, own: usize, outer: Region) -> Result<StepResult> {
        let index = object.type_index();
        let is_container = matches!(index, kTVMFFIArray | kTVMFFIList | kTVMFFIMap | kTVMFFIDict);
        let plan = if is_container { None } else { Some(self.plans.of(&object)?) };
        let kind = match plan {
            Some(plan) => kind_of(plan)?,
            None => 0,
        };
        let mut address = 0;
        // A value without other references is not encountered again.
        if object.use_count() > own || is_watched(self.stack.len()) {
            address = value::address_of(&object);
            match self.known.get(address).unwrap_or_default() {
                Progress::Hash(hash) => {
                    self.region = outer;
                    return Ok(StepResult::Hash(hash));
                }
                Progress::Open => return Err(cycle()),
                Progress::Nothing => {
                    self.known.set(address, Progress::Open);
                    self.kept.push((*object).clone());
                }
            }
        }
        match plan {
            Some(plan) => {
                if plan.hooked {
                    return self.ask(object, plan, address, outer);
                }
                let hash = plan.info.key_hash();
                self.push(Content::Object(object, plan), hash, address, outer);
                if kind == FREE_VAR {
                    self.region = self.region.within_variable();
                }
            }
            None if index == kTVMFFIArray => {
                if self.array == 0 {
                    self.array = key_hash(&object);
                }
                let hash = hash_combine(self.array, value::elements(&object).len() as u64);
                self.push(Content::Array(object), hash, address, outer);
            }
            None => self.open_container(&object, address, outer)?,
        }
        Ok(StepResult::Opened)
    }

    /// Pushes a stack frame for a node whose children are then hashed. The frame records the kind
    /// of the current definition region.
    #[inline(always)]
    fn push(&mut self, node: Content, hash: u64, address: usize, outer: Region) {
        let (region, skipped) = (self.region, self.skipped);
        self.stack.push(Frame { node, next: 0, hash, address, skipped, region, outer });
    }

    /// Begins to hash the elements of a List, or the values of a Map or Dict.
    #[inline(never)]
    fn open_container(&mut self, object: &ObjectRef, address: usize, outer: Region) -> Result<()> {
        let start = key_hash(object);
        if object.type_index() == kTVMFFIList {
            let items = value::list(object.clone())?.try_snapshot()?;
            let hash = hash_combine(start, items.len() as u64);
            self.push(Content::List(items), hash, address, outer);
            return Ok(());
        }
        let pairs = value::pairs(object)?;
        let hash = hash_combine(start, pairs.len() as u64);
        let skipped = self.skipped;
        let mut sorted = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            match self.key(&key)? {
                Some(key) => sorted.push((key, value)),
                None => self.skipped += 1,
            }
        }
        sorted.sort_by_key(|(key, _)| *key);
        let region = self.region;
        self.stack.push(Frame {
            node: Content::Sorted(sorted),
            next: 0,
            hash,
            address,
            skipped,
            region,
            outer,
        });
        Ok(())
    }

    /// Returns a hash of a Map or Dict key that does not depend on the order of the keys; `None`
    /// for an object that has not been hashed yet.
    fn key(&self, key: &Any) -> Result<Option<u64>> {
        if !value::is_object(key.type_index()) {
            let short = key.type_index() == kTVMFFISmallStr;
            let plain = hash_combine(key.type_index() as u64, value::bits(key));
            return Ok(Some(if short { small_str_hash(value::bits(key)) } else { plain }));
        }
        match key.type_index() {
            kTVMFFIStr | kTVMFFIBytes | kTVMFFIBigInt => leaf(true, key),
            _ => Ok(match self.known.get(value::address(key)) {
                Some(Progress::Hash(hash)) => Some(hash),
                _ => None,
            }),
        }
    }

    /// Hashes the next child of the topmost value on the stack. If the child has children itself,
    /// pushes the child on the stack instead.
    fn advance(&mut self) -> Result<StepResult> {
        let skip = self.skip_tensor_content;
        let Some(frame) = self.stack.last_mut() else { return Ok(StepResult::Hash(0)) };
        let (object, own, region) = loop {
            let at = frame.next;
            frame.next += 1;
            match &frame.node {
                Content::Array(_) | Content::List(_) => {
                    let (items, own) = match &frame.node {
                        Content::Array(array) => (value::elements(array), 1),
                        Content::List(items) => (items.as_slice(), 2),
                        _ => (&[][..], 2),
                    };
                    let (hash, at) = fold_leaves(skip, items, at, frame.hash)?;
                    frame.hash = hash;
                    frame.next = at + 1;
                    let Some(item) = items.get(at) else { return Ok(self.close()) };
                    let Some(object) = item.as_object() else { continue };
                    // SAFETY: the frame holds the element, and is below the frame of the element.
                    break (unsafe { HeldObject::borrowed(object) }, own, self.region);
                }
                Content::Sorted(pairs) => {
                    let Some((key, item)) = pairs.get(at) else { return Ok(self.close()) };
                    frame.hash = hash_combine(frame.hash, *key);
                    let ties = pairs[at + 1..].iter().take_while(|(other, _)| other == key).count();
                    if ties > 0 {
                        // The order of values with the same key hash is not determined.
                        frame.next += ties;
                        continue;
                    }
                    match leaf(skip, item)? {
                        Some(hash) => frame.hash = hash_combine(frame.hash, hash),
                        None => {
                            let Some(object) = item.as_object() else { continue };
                            // SAFETY: the frame holds the value, and is below the frame of the value.
                            break (unsafe { HeldObject::borrowed(object) }, 2, self.region);
                        }
                    }
                }
                Content::Object(object, plan) => {
                    let Some(field) = plan.field(at) else { return Ok(self.close()) };
                    // SAFETY: the frame holds the object, and is below the frame of the value.
                    if let Some(item) = unsafe { plan::lend(field, object) } {
                        match leaf(skip, &item)? {
                            Some(hash) => {
                                frame.hash = hash_combine(frame.hash, hash);
                                continue;
                            }
                            None => {
                                let Some(object) = item.as_object() else { continue };
                                // SAFETY: the frame holds the object, and is below the frame of the value.
                                break (unsafe { HeldObject::borrowed(object) }, 1, self.region.of(field));
                            }
                        }
                    }
                    let mut item = Any::NONE;
                    plan::read_into(field, object, &mut item)?;
                    match leaf(skip, &item)? {
                        Some(hash) => frame.hash = hash_combine(frame.hash, hash),
                        None => {
                            let Some(object) = item.into_object() else { continue };
                            break (HeldObject::owned(object), 2, self.region.of(field));
                        }
                    }
                }
            }
        };
        let outer = self.region;
        self.region = region;
        self.open(object, own, outer)
    }

    /// Removes the topmost value from the stack and returns its hash.
    fn close(&mut self) -> StepResult {
        // Read in place. The frame was written word by word, and reading it back in larger pieces would stall.
        let Some(frame) = self.stack.last() else { return StepResult::Hash(0) };
        let (mut hash, address, region, skipped) = (frame.hash, frame.address, frame.region, frame.skipped);
        let object = match &frame.node {
            Content::Object(object, plan) => Some((value::address_of(object), *plan)),
            _ => None,
        };
        self.region = frame.outer;
        self.stack.truncate(self.stack.len() - 1);
        if let Some((object, plan)) = object {
            hash = self.result(object, plan, hash, region);
        } else if skipped != self.skipped {
            if address != 0 {
                self.known.set(address, Progress::Nothing);
            }
            return StepResult::Hash(hash);
        }
        self.remember(address, hash)
    }

    #[inline]
    fn remember(&mut self, address: usize, hash: u64) -> StepResult {
        if address != 0 {
            self.known.set(address, Progress::Hash(hash));
        }
        StepResult::Hash(hash)
    }

    /// Returns the hash of an object, given `hash`, the combined hash of its fields. `object` is the address
    /// of the object, and `region` its definition region.
    #[inline]
    fn result(&mut self, object: usize, plan: &'static Plan, hash: u64, region: Region) -> u64 {
        match plan.kind {
            FREE_VAR if region == Region::Use => object as u64,
            FREE_VAR => {
                self.variables += 1;
                hash_combine(hash, u64::from(self.variables - 1))
            }
            DAG => {
                self.nodes += 1;
                hash_combine(hash, u64::from(self.nodes - 1))
            }
            _ => hash,
        }
    }

    /// Hashes an object by calling the hook of its type.
    #[cold]
    fn ask(
        &mut self,
        object: HeldObject,
        plan: &'static Plan,
        address: usize,
        outer: Region,
    ) -> Result<StepResult> {
        let Some(hook) = HASH.get(object.type_index())? else { return Ok(StepResult::Hash(0)) };
        let (region, start) = (self.region, plan.info.key_hash());
        if plan.kind == FREE_VAR {
            self.region = region.within_variable();
        }
        let result =
            guard::lend(self, Hash::callback, |callback| call(&hook, &object, start as i64, callback))?;
        let hash = result.get::<i64>()? as u64;
        let hash = self.result(value::address_of(&object), plan, hash, region);
        self.region = outer;
        Ok(self.remember(address, hash))
    }

    /// Callback that an `__s_hash__` hook receives, with the signature `(value, hash so far, region kind) ->
    /// hash`.
    fn callback(&mut self, args: Args<'_>) -> Result<Any> {
        let (value, start) = (args.get::<Any>(0)?, args.get::<i64>(1)?);
        let kind = if args.len() > 2 { args.get::<i64>(2)? } else { 0 };
        let outer = self.region;
        self.region = outer.asked(kind);
        let hash = self.run(value, 2)?;
        self.region = outer;
        Any::new(hash_combine(start as u64, hash) as i64)
    }
}

#[cold]
fn cycle() -> Error {
    Error::new(
        "ValueError",
        "StructuralHash: cyclic reference detected; a value that contains itself has no hash",
    )
}

fn key_hash(object: &ObjectRef) -> u64 {
    TypeInfo::of(object).key_hash()
}

/// Returns the hash of a value without children; `None` for an object with children.
#[inline]
fn leaf(skip_content: bool, value: &Any) -> Result<Option<u64>> {
    let index = value.type_index();
    if !value::is_object(index) {
        let bits = match index {
            kTVMFFISmallStr => return Ok(Some(small_str_hash(value::bits(value)))),
            kTVMFFIFloat => float_bits(value::bits(value)),
            _ => value::bits(value),
        };
        return Ok(Some(hash_combine(index as u64, bits)));
    }
    match index {
        kTVMFFIStr => Ok(Some(hash_combine(kTVMFFIStr as u64, hash_bytes(value::bytes_of(value))))),
        kTVMFFIBytes | kTVMFFIBigInt | kTVMFFIShape | kTVMFFITensor => {
            plain_object(skip_content, value).map(Some)
        }
        _ => Ok(None),
    }
}

/// Returns the bits of a floating-point number for its hash: all NaNs are equal.
#[inline(always)]
fn float_bits(bits: u64) -> u64 {
    if f64::from_bits(bits).is_nan() { f64::NAN.to_bits() } else { bits }
}

/// Combines `hash` with the hashes of the elements at `at` and above, up to the first one with children. Returns the hash, and
/// the index of that element or the number of elements.
#[inline(never)]
fn fold_leaves(skip_content: bool, items: &[Any], at: usize, mut hash: u64) -> Result<(u64, usize)> {
    for (passed, item) in items.iter().skip(at).enumerate() {
        let index = item.type_index();
        // The common kinds first; the others are told apart in `leaf`.
        let one = match index {
            kTVMFFIInt | kTVMFFIBool => hash_combine(index as u64, value::bits(item)),
            kTVMFFIFloat => hash_combine(index as u64, float_bits(value::bits(item))),
            _ => match leaf(skip_content, item)? {
                Some(one) => one,
                None => return Ok((hash, at + passed)),
            },
        };
        hash = hash_combine(hash, one);
    }
    Ok((hash, items.len().max(at)))
}

#[cold]
fn plain_object(skip_content: bool, value: &Any) -> Result<u64> {
    let index = value.type_index();
    match index {
        kTVMFFIBytes => {
            let bytes = value::bytes_of(value);
            if bytes.len() < 8 {
                // Equal to the hash of the same bytes stored in the value itself, which compare equal.
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                return Ok(hash_combine(kTVMFFISmallBytes as u64, u64::from_ne_bytes(word)));
            }
            Ok(hash_combine(index as u64, hash_bytes(bytes)))
        }
        kTVMFFIBigInt => Ok(hash_combine(index as u64, hash_bytes(&value::words(value)))),
        kTVMFFIShape => shape(value),
        _ => {
            let tensor = value.get::<TensorView<'_>>()?;
            let start = TypeInfo::from_index(index).map_or(0, TypeInfo::key_hash);
            let mut hash = hash_combine(start, tensor.shape().len() as u64);
            hash = tensor.shape().iter().fold(hash, |hash, extent| hash_combine(hash, *extent as u64));
            let dtype = tensor.dtype().0;
            let dtype = u64::from(dtype.code) | u64::from(dtype.bits) << 8 | u64::from(dtype.lanes) << 16;
            hash = hash_combine(hash, dtype);
            if skip_content {
                return Ok(hash);
            }
            Ok(hash_combine(hash, hash_bytes(&value::content(&tensor, "hash")?)))
        }
    }
}

/// Returns the hash of a shape, which both the structural hash and the recursive hash use.
pub(crate) fn shape(value: &Any) -> Result<u64> {
    let start = TypeInfo::from_index(kTVMFFIShape).map_or(0, TypeInfo::key_hash);
    let extents = value::extents(value)?;
    let start = hash_combine(start, extents.len() as u64);
    Ok(extents.iter().fold(start, |hash, extent| hash_combine(hash, *extent as u64)))
}

fn call(hook: &Hook, object: &ObjectRef, start: i64, callback: &PackedFunc) -> Result<Any> {
    type Native = unsafe extern "C" fn(TVMFFIObjectHandle, i64, *const TVMFFIObjectHandle) -> TVMFFIAny;
    match hook {
        Hook::Function(function) => function.call((object, start, callback)),
        Hook::Native(code) => {
            // SAFETY: by the definition of the column, an address in it is such a function.
            let code = unsafe { core::mem::transmute::<*mut core::ffi::c_void, Native>(*code) };
            let callback = callback.as_object().as_handle();
            // SAFETY: called with a valid object and the address of a handle.
            let raw = unsafe { code(object.as_handle(), start, &callback) };
            // SAFETY: a hook returns an owned value.
            expected(unsafe { Any::from_raw(raw) })
        }
    }
}
