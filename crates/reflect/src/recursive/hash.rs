//! Hash of values, consistent with equality by all fields.

use alloc::vec::Vec;

use anyfn::abi::{
    DLDataType, DLDevice, kTVMFFIBigInt, kTVMFFIBool, kTVMFFIBytes, kTVMFFIDataType, kTVMFFIDevice,
    kTVMFFIFieldFlagBitMaskCompareOff as COMPARE_OFF, kTVMFFIFieldFlagBitMaskHashOff as HASH_OFF, kTVMFFIFloat,
    kTVMFFINone, kTVMFFIShape, kTVMFFISmallBytes, kTVMFFISmallStr, kTVMFFIStaticObjectEnd, kTVMFFIStr,
};
use anyfn::reflection::TypeInfo;
use anyfn::{Any, Args, ObjectRef, Result};

use crate::column::Column;
use crate::guard;
use crate::plan::{self, Plan, PlanCache, Plans};
use crate::printer::call;
use crate::structural::shape_hash;
use crate::table::Table;
use crate::value::{self, Node, hash_bytes, hash_combine, is_watched};

static HASH: Column = Column::new("__ffi_hash__");
static EQ: Column = Column::new("__ffi_eq__");
static COMPARE: Column = Column::new("__ffi_compare__");
static PLANS: PlanCache = PlanCache::new(COMPARE_OFF | HASH_OFF);

/// Returns a hash of a value. [Equal](super::recursive_equal) values without cycles have the same
/// hash, also in different processes.
///
/// # Errors
/// Returns `ValueError` for an object whose type has a hook for comparison but none for the hash; the error of a hook
/// `__ffi_hash__` or a getter.
pub fn recursive_hash(value: &Any) -> Result<u64> {
    Hash::default().run(value.clone(), 2)
}

/// Progress of hashing an object.
#[derive(Clone, Copy, Default)]
enum Progress {
    #[default]
    Nothing,
    Open,
    Hash(u64),
}

enum Content {
    Node(Node),
    Object(ObjectRef, &'static Plan),
}

struct Frame {
    content: Content,
    next: usize,
    hash: u64,
    /// Key of the result in `Hash::known`: the address of the object, or 0 if the result is not recorded.
    address: usize,
    /// For a Map or Dict, the hashes of the keys and values that have been hashed so far, alternating.
    entries: Vec<u64>,
}

enum StepResult {
    Hash(u64),
    Opened,
}

struct Hash {
    stack: Vec<Frame>,
    plans: Plans,
    known: Table<usize, Progress>,
    /// Objects whose addresses are keys of `known`, held so that the addresses are not reused.
    kept: Vec<ObjectRef>,
}

impl Default for Hash {
    fn default() -> Hash {
        let plans = Plans::new(&PLANS);
        Hash { stack: Vec::new(), plans, known: Table::default(), kept: Vec::new() }
    }
}

// SAFETY: besides values, which are `Send`, it holds references to types, which are never freed and are changed by
// atomic stores only.
unsafe impl Send for Hash {}

impl Frame {
    fn feed(&mut self, hash: u64) {
        match &self.content {
            Content::Node(Node::Pairs(_)) => self.entries.push(hash),
            Content::Node(_) => {
                // Index of the element that has this hash.
                let at = self.next as u64 - 1;
                self.hash = hash_combine(self.hash, hash_combine(hash, at));
            }
            Content::Object(..) => self.hash = hash_combine(self.hash, hash),
        }
    }
}

impl Hash {
    /// Returns the hash of a value. A hook may call this function while enclosing values are being hashed.
    fn run(&mut self, value: Any, own: usize) -> Result<u64> {
        let base = self.stack.len();
        let mut look = match leaf(&value)? {
            Some(hash) => return Ok(hash),
            None => self.open(value, own)?,
        };
        loop {
            if let StepResult::Hash(hash) = look {
                if self.stack.len() == base {
                    return Ok(hash);
                }
                if let Some(frame) = self.stack.last_mut() {
                    frame.feed(hash);
                }
            }
            look = self.advance()?;
        }
    }

    fn open(&mut self, value: Any, own: usize) -> Result<StepResult> {
        let Some(object) = value.into_object() else { return Ok(StepResult::Hash(0)) };
        let index = object.type_index();
        let mut address = 0;
        let has_hook = HASH.has(index);
        // A value without other references is not encountered again.
        if object.use_count() > own || is_watched(self.stack.len()) || has_hook {
            address = value::address_of(&object);
            match self.known.get(address).unwrap_or_default() {
                Progress::Hash(hash) => return Ok(StepResult::Hash(hash)),
                Progress::Open => return Ok(StepResult::Hash(TypeInfo::of(&object).key_hash())),
                Progress::Nothing => {
                    self.known.set(address, Progress::Open);
                    self.kept.push(object.clone());
                }
            }
        }
        if has_hook {
            return self.ask(object, address);
        }
        if index >= kTVMFFIStaticObjectEnd && (EQ.has(index) || COMPARE.has(index)) {
            anyfn::bail!(
                "ValueError",
                "RecursiveHash: type '{}' defines __ffi_eq__ or __ffi_compare__ but not __ffi_hash__. Add a \
                 __ffi_hash__ hook to maintain the invariant RecursiveEq(a,b) => RecursiveHash(a)==RecursiveHash(b).",
                object.type_key()
            );
        }
        let start = TypeInfo::of(&object).key_hash();
        let node = value::open(object)?;
        let (content, hash) = match node {
            Node::Object(object) => {
                let plan = self.plans.of(&object)?;
                (Content::Object(object, plan), start)
            }
            node => {
                let len = match &node {
                    Node::Array(items) => items.len(),
                    Node::List(items) => items.len(),
                    Node::Pairs(pairs) => pairs.len(),
                    Node::Object(_) => 0,
                };
                (Content::Node(node), hash_combine(start, len as u64))
            }
        };
        self.stack.push(Frame { content, next: 0, hash, address, entries: Vec::new() });
        Ok(StepResult::Opened)
    }

    /// Hashes the next child of the topmost value on the stack. If the child has children itself,
    /// pushes the child on the stack instead.
    fn advance(&mut self) -> Result<StepResult> {
        let Some(frame) = self.stack.last_mut() else { return Ok(StepResult::Hash(0)) };
        let (value, own) = loop {
            let at = frame.next;
            frame.next += 1;
            let (item, own) = match &frame.content {
                Content::Node(Node::Array(items)) => (items.as_slice().get(at), 2),
                Content::Node(Node::List(items)) => (items.get(at), 3),
                Content::Node(Node::Pairs(pairs)) => {
                    let pair = pairs.get(at / 2);
                    (pair.map(|(key, value)| if at % 2 == 0 { key } else { value }), 3)
                }
                Content::Node(Node::Object(_)) => (None, 2),
                Content::Object(object, plan) => {
                    let Some(field) = plan.field(at) else { return Ok(self.close()) };
                    // SAFETY: the frame holds the object meanwhile.
                    if let Some(item) = unsafe { plan::lend(field, object) } {
                        match leaf(&item)? {
                            Some(hash) => {
                                frame.feed(hash);
                                continue;
                            }
                            None => break (Any::clone(&item), 2),
                        }
                    }
                    let item = plan::read(field, object)?;
                    match leaf(&item)? {
                        Some(hash) => {
                            frame.feed(hash);
                            continue;
                        }
                        None => break (item, 2),
                    }
                }
            };
            let Some(item) = item else { return Ok(self.close()) };
            match leaf(item)? {
                Some(hash) => frame.feed(hash),
                None => break (item.clone(), own),
            }
        };
        self.open(value, own)
    }

    /// Removes the topmost value from the stack and returns its hash.
    fn close(&mut self) -> StepResult {
        let Some(frame) = self.stack.pop() else { return StepResult::Hash(0) };
        let mut entries: Vec<u64> =
            frame.entries.chunks_exact(2).map(|pair| hash_combine(pair[0], pair[1])).collect();
        entries.sort_unstable();
        let hash = entries.into_iter().fold(frame.hash, hash_combine);
        self.remember(frame.address, hash)
    }

    fn remember(&mut self, address: usize, hash: u64) -> StepResult {
        if address != 0 {
            self.known.set(address, Progress::Hash(hash));
        }
        StepResult::Hash(hash)
    }

    /// Hashes an object by calling the hook of its type.
    #[cold]
    fn ask(&mut self, object: ObjectRef, address: usize) -> Result<StepResult> {
        let Some(hook) = HASH.get(object.type_index())? else { return Ok(StepResult::Hash(0)) };
        let result = guard::lend(self, Hash::callback, |callback| call(&hook, &object, callback))?;
        Ok(self.remember(address, result.get::<i64>()? as u64))
    }

    /// Callback that a hook for hashing receives as an argument, with the signature `(value) -> int`.
    fn callback(&mut self, args: Args<'_>) -> Result<Any> {
        let value = args.get::<Any>(0)?;
        Any::new(self.run(value, 1)? as i64)
    }
}

/// Returns the hash of a value without children; `None` for an object with children.
#[inline]
fn leaf(value: &Any) -> Result<Option<u64>> {
    let index = value.type_index();
    let tag = |index: i32| index as u64;
    let bits = value::bits(value);
    Ok(Some(match index {
        kTVMFFINone => hash_combine(0, 0),
        kTVMFFISmallStr | kTVMFFIStr => anyfn::__private::any_hash(&value.as_view()),
        kTVMFFISmallBytes | kTVMFFIBytes => hash_combine(tag(kTVMFFIBytes), hash_bytes(value::bytes_of(value))),
        kTVMFFIBool => hash_combine(tag(index), u64::from(bits != 0)),
        kTVMFFIFloat => {
            let number = f64::from_bits(bits);
            let number = if number.is_nan() { f64::NAN } else { number };
            // Zero has the same hash regardless of its sign.
            hash_combine(tag(index), if number == 0.0 { 0 } else { number.to_bits() })
        }
        kTVMFFIDataType => {
            let DLDataType { code, bits, lanes } = value.get::<anyfn::DType>()?.0;
            let hash = hash_combine(hash_combine(tag(index), code.into()), bits.into());
            hash_combine(hash, lanes.into())
        }
        kTVMFFIDevice => {
            let DLDevice { device_type, device_id } = value.get::<anyfn::Device>()?.0;
            hash_combine(hash_combine(tag(index), device_type as u64), device_id as u64)
        }
        _ if !value::is_object(index) => hash_combine(tag(index), bits),
        kTVMFFIShape => shape_hash(value)?,
        kTVMFFIBigInt => big(value),
        _ => return Ok(None),
    }))
}

fn big(value: &Any) -> u64 {
    let words = value::words(value);
    hash_bytes(&words)
}
