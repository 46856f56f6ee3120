//! Process-wide tables for saving and loading: unknown fields of loaded objects, and former names of types
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

/// Process-wide Dict, which is created at its first use and never freed.
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
                // SAFETY: this Dict was not shared.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: another thread was first, and leaked its own.
                unsafe { &*first.cast() }
            }
        }
    }
}

// ---- Fields that a type does not have

/// Unknown field of a loaded object: the file contained it, but the object's type does not have it.
pub(super) struct KeptField {
    pub(super) name: StdString,
    /// Type of the field's value if the file stores the value inline; `None` if the file stores it in a node.
    pub(super) inline: Option<Inline>,
    pub(super) value: Any,
}

/// Unknown fields of one loaded object, which are saved again together with the object.
#[derive(anyfn::Object)]
#[object(key = "anyfn.json.Kept", opaque)]
pub(super) struct ExtraFields {
    /// Weak reference to the object, so that its memory and thus its address is not reused.
    object: WeakRef,
    pub(super) fields: Vec<KeptField>,
}

/// Unknown fields of loaded objects, by the address of the object.
static KEPT: Shared = Shared::new();
/// Number of entries in `KEPT` after the most recent removal of the entries of objects that no
/// longer exist.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Stores `fields`, the unknown fields of `object`, until the object is destroyed.
pub(super) fn keep(object: &ObjectRef, fields: Vec<KeptField>) -> Result<()> {
    let kept = KEPT.make();
    if kept.len() > 64 + 2 * LIVE.load(Ordering::Relaxed) {
        sweep();
    }
    let entry = Ref::new(ExtraFields { object: object.downgrade(), fields });
    kept.insert(Any::new(object.as_handle().addr())?, entry.into_object().into()).map(drop)
}

/// Removes from `KEPT` the entries of objects that no longer exist.
pub(super) fn sweep() {
    let Some(kept) = KEPT.get() else { return };
    for (address, entry) in kept.snapshot() {
        let entry = entry.into_object().and_then(|object| Ref::<ExtraFields>::try_from_object(object).ok());
        if entry.is_some_and(|entry| entry.object.upgrade().is_none()) {
            // The address is not reused before the entry is removed, so this removes no other entry.
            let _ = kept.remove(&address);
        }
    }
    LIVE.store(kept.len(), Ordering::Relaxed);
}

/// Returns the unknown fields that were stored for a loaded object, or `None` if none were stored.
pub(super) fn kept(object: &ObjectRef) -> Option<Ref<ExtraFields>> {
    let kept = KEPT.get()?;
    let entry = kept.get_any(object.as_handle().addr()).ok()??;
    Ref::<ExtraFields>::try_from_object(entry.into_object()?).ok()
}

/// Returns true if unknown fields are stored for any object.
pub(super) fn any_kept() -> bool {
    KEPT.get().is_some_and(|kept| !kept.is_empty())
}

// ---- Renamed types and fields

/// Map from former type keys to current type keys.
static TYPES: Shared = Shared::new();
/// Map from former field names to current field names. Its keys have the form `type key, NUL, name`.
static FIELDS: Shared = Shared::new();

/// Maximum number of successive renamings that the lookup of one type or field follows.
const CHANGES: usize = 32;

fn field_key(type_key: &str, name: &str) -> StdString {
    [type_key, "\0", name].concat()
}

/// Records that the type with the key `old` now has the key `new`.
pub(super) fn alias_type(old: &str, new: &str) -> Result<()> {
    TYPES.make().insert(Any::new(old)?, Any::new(new)?).map(drop)
}

/// Records that the field `old` of a type is now called `new`.
pub(super) fn alias_field(type_key: &str, old: &str, new: &str) -> Result<()> {
    FIELDS.make().insert(Any::new(field_key(type_key, old))?, Any::new(new)?).map(drop)
}

/// Returns the type whose current or former key is `key`.
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

/// Returns the current name of the field that was formerly called `name`, or `None` if no renaming
/// of this field is recorded for the type or its ancestors.
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
