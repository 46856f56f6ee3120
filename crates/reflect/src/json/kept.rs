//! What processes know besides the objects: fields that were read and that the types do not have, and other names of types
//! and fields.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use alloc::boxed::Box;
use alloc::string::String as StdString;
use alloc::vec::Vec;

use anyfn::reflection::TypeInfo;
use anyfn::{Any, Dict, ObjectRef, Ref, Result, WeakRef};

use super::inline::Inline;

/// A Dict of the process, made at the first use.
struct Shared(AtomicPtr<c_void>);

impl Shared {
    const fn new() -> Shared {
        Shared(AtomicPtr::new(ptr::null_mut()))
    }

    fn get(&self) -> Option<&Dict> {
        // SAFETY: NULL, or a Dict that `make` has leaked.
        unsafe { self.0.load(Ordering::Acquire).cast::<Dict>().as_ref() }
    }

    fn make(&self) -> &Dict {
        if let Some(dict) = self.get() {
            return dict;
        }
        let made = Box::into_raw(Box::new(Dict::<Any, Any>::new()));
        match self.0.compare_exchange(ptr::null_mut(), made.cast(), Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: leaked just now, and never freed.
            Ok(_) => unsafe { &*made },
            Err(first) => {
                // SAFETY: nobody else has seen this one.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: another thread was first, and leaked its own.
                unsafe { &*first.cast() }
            }
        }
    }
}

// ---- Fields that a type does not have

/// A field that was read although the type does not have it.
pub(super) struct KeptField {
    pub(super) name: StdString,
    /// How the value stood in the file.
    pub(super) inline: Option<Inline>,
    pub(super) value: Any,
}

/// What was read of an object besides its fields.
#[derive(anyfn::Object)]
#[object(key = "anyfn.json.Kept", opaque)]
pub(super) struct Kept {
    /// Keeps the address from being used again.
    object: WeakRef,
    pub(super) fields: Vec<KeptField>,
}

/// By address of the object.
static KEPT: Shared = Shared::new();
/// How many entries there were after those of dead objects were removed.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Keeps fields for as long as an object lives.
pub(super) fn keep(object: &ObjectRef, fields: Vec<KeptField>) -> Result<()> {
    let kept = KEPT.make();
    if kept.len() > 64 + 2 * LIVE.load(Ordering::Relaxed) {
        sweep();
    }
    let entry = Ref::new(Kept { object: object.downgrade(), fields });
    kept.insert(Any::new(object.as_handle().addr())?, entry.into_object().into()).map(drop)
}

/// Forgets what belongs to objects that are gone.
pub(super) fn sweep() {
    let Some(kept) = KEPT.get() else { return };
    for (address, entry) in kept.snapshot() {
        let entry = entry.into_object().and_then(|object| Ref::<Kept>::try_from_object(object).ok());
        if entry.is_some_and(|entry| entry.object.upgrade().is_none()) {
            // The address is not used again before the entry is gone, so this removes no other.
            let _ = kept.remove(&address);
        }
    }
    LIVE.store(kept.len(), Ordering::Relaxed);
}

/// What is kept for an object.
pub(super) fn kept(object: &ObjectRef) -> Option<Ref<Kept>> {
    let kept = KEPT.get()?;
    let entry = kept.get_any(object.as_handle().addr()).ok()??;
    Ref::<Kept>::try_from_object(entry.into_object()?).ok()
}

/// Whether anything is kept at all.
pub(super) fn any_kept() -> bool {
    KEPT.get().is_some_and(|kept| !kept.is_empty())
}

// ---- Other names

/// Names of types that are gone, and those that stand for them now.
static TYPES: Shared = Shared::new();
/// The same of fields: `type key, NUL, name`.
static FIELDS: Shared = Shared::new();

/// How often a name may have changed.
const CHANGES: usize = 32;

fn field_key(type_key: &str, name: &str) -> StdString {
    [type_key, "\0", name].concat()
}

/// Says that a type has another key by now.
pub(super) fn alias_type(old: &str, new: &str) -> Result<()> {
    TYPES.make().insert(Any::new(old)?, Any::new(new)?).map(drop)
}

/// Says that a field of a type has another name by now.
pub(super) fn alias_field(type_key: &str, old: &str, new: &str) -> Result<()> {
    FIELDS.make().insert(Any::new(field_key(type_key, old))?, Any::new(new)?).map(drop)
}

/// The type that a key stands for: its own, or that of the name that it has by now.
pub(super) fn type_of(key: &str) -> Option<TypeInfo> {
    let mut key = StdString::from(key);
    for _ in 0..CHANGES {
        if let Some(info) = TypeInfo::from_key(&key) {
            return Some(info);
        }
        key = TYPES.get()?.get_any(key.as_str()).ok()??.get::<StdString>().ok()?;
    }
    None
}

/// The name that a field of a type has by now.
pub(super) fn field_of(info: TypeInfo, name: &str) -> Option<StdString> {
    let aliases = FIELDS.get()?;
    let mut found: Option<StdString> = None;
    for _ in 0..CHANGES {
        let name = found.as_deref().unwrap_or(name);
        let next = info.lineage().rev().find_map(|info| {
            let next = aliases.get_any(field_key(info.key(), name)).ok()??;
            next.get::<StdString>().ok()
        });
        match next {
            Some(next) => found = Some(next),
            None => break,
        }
    }
    found
}
