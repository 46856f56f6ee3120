//! The types of the process, by index and by key, with their reflection data.
//!
//! An entry is created once and lives for the lifetime of the process, at an address that clients keep. An index is
//! looked up without a lock in a table of chunks, a key in a [`NameTable`]. All changes happen under one lock, in an
//! order that does not disturb readers: a new array is complete before its address is stored, and the address is stored
//! before the number of elements.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use anyfn::__private::SortedMap;
use anyfn::abi::{
    STATIC_TYPE_KEYS, TVMFFIAny, TVMFFIByteArray, TVMFFIFieldInfo, TVMFFIMethodInfo, TVMFFITypeMetadata,
    kTVMFFIDynObjectBegin, kTVMFFIFieldFlagBitSetterIsFunctionObj, kTVMFFIFunction, kTVMFFIObject,
};
use anyfn::shared::{SharedField, SharedMetadata, SharedType};
use anyfn::{AnyView, ObjectRef, Result, bail};

use crate::sync::{NameTable, Start};
use crate::sys::{self, Mutex};
use crate::{libraries, unload};

const CHUNK: usize = 1024;
const CHUNKS: usize = 2048;

/// Maximum number of type indices.
const CAPACITY: i32 = (CHUNK * CHUNKS) as i32;

type Chunk = [AtomicPtr<TypeEntry>; CHUNK];

/// Entry of the type table. Users of the C ABI see only its first field, `info`.
#[repr(C)]
struct TypeEntry {
    info: SharedType,
    /// Number of consecutive indices, beginning with the type's own, that are reserved for the type and its
    /// descendants.
    num_slots: i32,
    can_overflow: bool,
}

/// State that the registration of types uses, guarded by the lock of the type table.
struct Writer {
    /// Smallest dynamic type index that is not reserved for any type.
    next: i32,
    /// Registration state of each type, by type index. Lookups do not use it.
    details: SortedMap<i32, Details>,
}

/// Registration state of a type. Lookups do not use it.
struct Details {
    /// Number of type indices in use among those reserved for the type, including the type's own index.
    allocated: i32,
    fields: Growing<SharedField>,
    methods: Growing<TVMFFIMethodInfo>,
}

/// An array that only grows, and whose elements any thread may read without a lock. If it is full, a larger
/// array replaces it, and the old one is kept because readers may still use it. Readers hold shared
/// references to published elements while further elements are written.
struct Growing<T: 'static> {
    /// All arrays that have held the elements: first those that were replaced because they were full, then
    /// the current one.
    arrays: Vec<&'static [Element<T>]>,
    /// Number of elements in the current array.
    len: usize,
}

type Element<T> = UnsafeCell<MaybeUninit<T>>;

// SAFETY: only the writer, under its lock, uses the cells of elements that are not published yet. The others are fields
// and methods, whose strings, values and functions are never freed and are only read, or are atomic.
unsafe impl<T> Send for Growing<T> {}

impl<T: 'static> Growing<T> {
    const fn new() -> Self {
        Growing { arrays: Vec::new(), len: 0 }
    }

    /// Appends an element. If the current array is full, a larger array replaces it.
    fn push(&mut self, item: T) {
        let capacity = self.arrays.last().map_or(0, |array| array.len());
        if self.len == capacity {
            let mut larger = Vec::with_capacity((capacity * 2).max(4));
            larger.resize_with(larger.capacity(), || UnsafeCell::new(MaybeUninit::uninit()));
            let larger: &'static [Element<T>] = larger.leak();
            for (from, to) in self.arrays.last().into_iter().copied().flatten().zip(larger) {
                // SAFETY: the elements own nothing, so both arrays may contain them, and nothing else refers to the new
                // array. Elements of the old array change by atomic stores only, under the lock that this thread holds.
                unsafe { ptr::copy_nonoverlapping(from.get(), to.get(), 1) };
            }
            self.arrays.push(larger);
        }
        if let Some(array) = self.arrays.last() {
            // SAFETY: nothing refers to this element before `publish` makes it visible.
            unsafe { array[self.len].get().write(MaybeUninit::new(item)) };
            self.len += 1;
        }
    }

    /// Returns the first `len` elements of an array as a slice. These elements must be initialised.
    fn slice(array: &'static [Element<T>], len: usize) -> &'static [T] {
        // SAFETY: `len` elements are initialised; `UnsafeCell` and `MaybeUninit` are transparent.
        unsafe { core::slice::from_raw_parts(array.as_ptr().cast::<T>(), len) }
    }

    /// Returns the elements of the current array.
    fn items(&self) -> &'static [T] {
        self.arrays.last().map_or(&[], |array| Self::slice(array, self.len))
    }

    /// Iterates over the elements of the current array and of all arrays that it has replaced.
    fn all(&self) -> impl Iterator<Item = &'static T> {
        let old = self.arrays.split_last().map_or(&[][..], |(_, old)| old);
        old.iter().flat_map(|array| Self::slice(array, array.len())).chain(self.items())
    }

    /// Stores the address of the current array in `data`, then its number of elements in `count`. From then
    /// on readers see all elements.
    fn publish(&self, data: &AtomicPtr<T>, count: &AtomicI32) {
        let items = self.items();
        data.store(items.as_ptr().cast_mut(), Ordering::Release);
        count.store(i32::try_from(items.len()).unwrap_or(i32::MAX), Ordering::Release);
    }
}

static CHUNK_TABLE: [AtomicPtr<Chunk>; CHUNKS] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];
static KEYS: NameTable<AtomicPtr<TypeEntry>> = NameTable::new();
static WRITER: Mutex<Writer> = Mutex::new(Writer { next: kTVMFFIDynObjectBegin, details: SortedMap::new() });
static START: Start = Start::new();

/// Properties of a type that is to be registered.
pub(crate) struct NewType<'a> {
    pub(crate) key: &'a [u8],
    /// Type index that is fixed for the new type, or -1 to allocate one.
    pub(crate) static_index: i32,
    /// Number of ancestors of the new type, or -1 to compute this number from the parent type.
    pub(crate) depth: i32,
    pub(crate) child_slots: i32,
    pub(crate) can_overflow: bool,
    /// Type index of the parent type, or -1 for none.
    pub(crate) parent: i32,
}

/// Registers the built-in types, which have the same indices in every process.
fn register_static_types() {
    for &(index, key) in STATIC_TYPE_KEYS {
        let parent = if index > kTVMFFIObject { kTVMFFIObject } else { -1 };
        let depth = i32::from(index > kTVMFFIObject);
        let new = NewType {
            key: key.as_bytes(),
            static_index: index,
            depth,
            child_slots: 0,
            can_overflow: true,
            parent,
        };
        if let Err(error) = register(&new) {
            sys::warn(&format!("type `{key}` cannot be registered: {error}"));
        }
    }
}

fn start() {
    START.ensure(register_static_types);
}

fn lossy(bytes: &[u8]) -> alloc::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Returns the entry with the type index `type_index`, if it exists.
#[inline]
fn find(type_index: i32) -> Option<&'static TypeEntry> {
    let at = usize::try_from(type_index).ok()?;
    let chunk = CHUNK_TABLE.get(at / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: the pointer is NULL or refers to a chunk that is never freed.
    let chunk = unsafe { chunk.as_ref() }?;
    // SAFETY: the pointer is NULL or refers to a complete entry that is never freed.
    unsafe { chunk[at % CHUNK].load(Ordering::Acquire).as_ref() }
}

/// Returns the type info of the type with the index `type_index`, if it exists.
#[inline]
pub(crate) fn info(type_index: i32) -> Option<&'static SharedType> {
    if let Some(entry) = find(type_index) {
        return Some(&entry.info);
    }
    // Looking again helps only before the very first use.
    start();
    find(type_index).map(|entry| &entry.info)
}

/// Returns the index of the type with the key `key`, if it is registered.
pub(crate) fn index_of(key: &[u8]) -> Option<i32> {
    start();
    // SAFETY: the pointer refers to an entry that is never freed, or is NULL while the type is being registered.
    let entry = unsafe { KEYS.get(key)?.load(Ordering::Acquire).as_ref() }?;
    Some(entry.info.type_index)
}

/// Returns the keys of all types, in the order of their registration.
pub(crate) fn keys() -> Vec<&'static [u8]> {
    start();
    KEYS.iter().filter(|(_, entry)| !entry.load(Ordering::Acquire).is_null()).map(|(key, _)| key).collect()
}

/// Number of types that existed when the runtime had registered its own.
static OWN: AtomicUsize = AtomicUsize::new(0);

/// Records that the runtime has registered its own types.
pub(crate) fn end_own() {
    OWN.store(keys().len(), Ordering::Relaxed);
}

/// Returns the number of types at the time of [`end_own`]. They come first in [`keys`].
pub(crate) fn own() -> usize {
    OWN.load(Ordering::Relaxed)
}

/// Registers a type and returns its index. If a type with this key is registered already, returns
/// the index of that type and ignores the other properties.
pub(crate) fn get_or_register(new: &NewType<'_>) -> Result<i32> {
    if let Some(known) = index_of(new.key) {
        return Ok(known);
    }
    register(new)
}

fn register(new: &NewType<'_>) -> Result<i32> {
    let mut writer = WRITER.lock();
    let slot = KEYS.get_or_insert(new.key, || AtomicPtr::new(ptr::null_mut()));
    // SAFETY: the pointer is NULL or refers to an entry that is never freed.
    if let Some(known) = unsafe { slot.load(Ordering::Acquire).as_ref() } {
        return Ok(known.info.type_index);
    }
    let key = lossy(new.key);
    let parent = match new.parent {
        -1 => None,
        parent => match find(parent) {
            Some(parent) => Some(parent),
            None => {
                bail!("InternalError", "Cannot register type `{key}`: its parent type {parent} does not exist")
            }
        },
    };
    let depth = parent.map_or(0, |parent| parent.info.type_depth + 1);
    if new.depth != -1 && new.depth != depth {
        bail!(
            "InternalError",
            "Cannot register type `{key}` with depth {}: its parent's depth makes it {depth}",
            new.depth
        );
    }
    let Some(num_slots) = new.child_slots.checked_add(1).filter(|n| (1..=CAPACITY).contains(n)) else {
        bail!("ValueError", "Cannot register type `{key}` with {} child slots", new.child_slots);
    };
    let can_overflow = new.can_overflow && parent.is_none_or(|parent| parent.can_overflow);
    let index = writer.allot(new, &key, parent, num_slots)?;
    if parent.is_some_and(|parent| index <= parent.info.type_index) {
        bail!(
            "InternalError",
            "Cannot register type `{key}` with index {index}: it must be above its parent's"
        );
    }
    writer.details.insert(index, Details { allocated: 1, fields: Growing::new(), methods: Growing::new() });
    let entry: &'static TypeEntry = Box::leak(Box::new(TypeEntry {
        info: SharedType {
            type_index: index,
            type_depth: depth,
            type_key: TVMFFIByteArray::from_slice(keep(new.key)),
            type_ancestors: ancestors(parent),
            type_key_hash: hash(new.key),
            num_fields: AtomicI32::new(0),
            num_methods: AtomicI32::new(0),
            fields: AtomicPtr::new(ptr::null_mut()),
            methods: AtomicPtr::new(ptr::null_mut()),
            metadata: AtomicPtr::new(ptr::null_mut()),
        },
        num_slots,
        can_overflow,
    }));
    chunk_of(index)[index as usize % CHUNK].store(ptr::from_ref(entry).cast_mut(), Ordering::Release);
    slot.store(ptr::from_ref(entry).cast_mut(), Ordering::Release);
    Ok(index)
}

impl Writer {
    /// Allocates an index for a new type and reserves `num_slots` consecutive indices, beginning
    /// with it. If the type has a static index, checks and returns that index instead.
    fn allot(
        &mut self,
        new: &NewType<'_>,
        key: &str,
        parent: Option<&TypeEntry>,
        num_slots: i32,
    ) -> Result<i32> {
        if new.static_index >= 0 {
            if new.static_index >= kTVMFFIDynObjectBegin {
                bail!(
                    "ValueError",
                    "Cannot register type `{key}` with static index {}: it is too large",
                    new.static_index
                );
            }
            if let Some(other) = find(new.static_index) {
                // SAFETY: the key is never freed.
                let other = lossy(unsafe { other.info.type_key.as_slice() });
                bail!(
                    "InternalError",
                    "Conflicting static index {} between {other} and {key}",
                    new.static_index
                );
            }
            return Ok(new.static_index);
        }
        let Some(parent) = parent else {
            bail!(
                "InternalError",
                "Cannot register type `{key}`: a type without a static index needs a parent"
            );
        };
        if let Some(details) = self.details.get_mut(&parent.info.type_index)
            && details.allocated.checked_add(num_slots).is_some_and(|end| end <= parent.num_slots)
        {
            let index = parent.info.type_index + details.allocated;
            details.allocated += num_slots;
            return Ok(index);
        }
        if !parent.can_overflow {
            // SAFETY: the key is never freed.
            let parent = lossy(unsafe { parent.info.type_key.as_slice() });
            bail!("InternalError", "Reach maximum number of sub-classes for {parent}");
        }
        match self.next.checked_add(num_slots) {
            Some(end) if end <= CAPACITY => Ok(core::mem::replace(&mut self.next, end)),
            _ => bail!("InternalError", "Cannot register type `{key}`: there are too many types"),
        }
    }
}

/// Returns the chunk of the table that contains a type index. Creates the chunk if it does not exist. The caller must
/// hold the lock of the type table.
fn chunk_of(index: i32) -> &'static Chunk {
    let cell = &CHUNK_TABLE[index as usize / CHUNK];
    // SAFETY: the pointer is NULL or refers to a chunk that is never freed.
    if let Some(chunk) = unsafe { cell.load(Ordering::Acquire).as_ref() } {
        return chunk;
    }
    let chunk: &'static Chunk = Box::leak(Box::new([const { AtomicPtr::new(ptr::null_mut()) }; CHUNK]));
    cell.store(ptr::from_ref(chunk).cast_mut(), Ordering::Release);
    chunk
}

/// Returns the address of an array with the ancestors of a new type, the root first. `parent` is
/// the parent of the new type; without a parent, the result is NULL. The array is never freed.
fn ancestors(parent: Option<&'static TypeEntry>) -> *const *const SharedType {
    let Some(parent) = parent else { return ptr::null() };
    let mut all: Vec<*const SharedType> = Vec::new();
    for depth in 0..parent.info.type_depth as usize {
        // SAFETY: the array has as many elements as the type has ancestors.
        let ancestor = unsafe { parent.info.type_ancestors.add(depth) };
        // SAFETY: the pointer refers to an element of the array.
        all.push(unsafe { *ancestor });
    }
    all.push(&parent.info);
    all.leak().as_ptr()
}

/// Copies `bytes` into memory that is never freed, and returns the copy.
fn keep(bytes: &[u8]) -> &'static [u8] {
    Box::leak(bytes.into())
}

/// Copies a string into memory that is never freed, and returns the copy. In memory the copy ends with a NUL,
/// which is not part of its size. The copy of an empty string has the address NULL.
///
/// # Safety
/// The requirements of [`TVMFFIByteArray::as_slice`] apply.
unsafe fn keep_text(text: &TVMFFIByteArray) -> TVMFFIByteArray {
    // SAFETY: the caller guarantees the bytes.
    let text = unsafe { text.as_slice() };
    if text.is_empty() {
        return TVMFFIByteArray::EMPTY;
    }
    let mut copy = text.to_vec();
    copy.push(0);
    TVMFFIByteArray::from_slice(&copy.leak()[..text.len()])
}

/// Returns the type info of the type with the index `type_index`, or an error if the type does not exist.
pub fn info_or_error(type_index: i32) -> Result<&'static SharedType> {
    match info(type_index) {
        Some(info) => Ok(info),
        None => bail!("InternalError", "Cannot find type info for type_index={type_index}"),
    }
}

/// Returns the key of a type for error messages.
fn key_text(info: &SharedType) -> String {
    // SAFETY: the key is never freed.
    lossy(unsafe { info.type_key.as_slice() }).into_owned()
}

/// Iterates over the ancestors of a type, the root first, and then the type itself.
pub(crate) fn lineage(info: &'static SharedType) -> impl Iterator<Item = &'static SharedType> {
    let ancestors = (0..info.type_depth as usize).filter_map(|depth| {
        // SAFETY: the array has as many elements as the type has ancestors.
        let ancestor = unsafe { info.type_ancestors.add(depth) };
        // SAFETY: the pointer refers to an element of the array.
        let ancestor = unsafe { *ancestor };
        // SAFETY: types are never freed.
        unsafe { ancestor.as_ref() }
    });
    ancestors.chain(core::iter::once(info))
}

/// Adds a field to a type. If the type has the field already, only its getter and setter may be replaced, by the rules
/// of [`Writer::renew_field`]; otherwise returns an error.
///
/// # Safety
/// The strings must be readable, and the default must be a valid value. Getter and setter must follow the ABI. They
/// must stay callable for the lifetime of the process, or until they are revoked.
pub(crate) unsafe fn add_field(type_index: i32, field: &TVMFFIFieldInfo) -> Result<()> {
    let info = info_or_error(type_index)?;
    // SAFETY: the caller guarantees the strings.
    let name = unsafe { field.name.as_slice() };
    let setter_is_function = field.flags & kTVMFFIFieldFlagBitSetterIsFunctionObj != 0;
    let mut writer = WRITER.lock();
    // SAFETY: the names of registered fields are never freed.
    let has = |info: &SharedType| info.fields().iter().any(|known| unsafe { known.name.as_slice() } == name);
    if has(info) {
        if writer.renew_field(type_index, name, field) {
            return Ok(());
        }
        bail!("InternalError", "Duplicate field name \"{}\" in type \"{}\"", lossy(name), key_text(info));
    }
    if let Some(ancestor) = lineage(info).find(|ancestor| !ptr::eq(*ancestor, info) && has(ancestor)) {
        sys::warn(&format!(
            "field \"{}\" in type \"{}\" duplicates an ancestor field in \"{}\"",
            lossy(name),
            key_text(info),
            key_text(ancestor)
        ));
    }
    if setter_is_function {
        // SAFETY: the flag states that the setter is a function object; the type keeps a reference that is never
        // released.
        core::mem::forget(unsafe { ObjectRef::from_borrowed_or_null(field.setter) });
    }
    // SAFETY: the caller guarantees a valid value.
    let default = unsafe { AnyView::from_raw(field.default_value_or_factory) }.to_owned().into_raw();
    let kept = SharedField {
        // SAFETY: the caller guarantees the strings.
        name: unsafe { keep_text(&field.name) },
        // SAFETY: the caller guarantees the strings.
        doc: unsafe { keep_text(&field.doc) },
        // SAFETY: the caller guarantees the strings.
        metadata: unsafe { keep_text(&field.metadata) },
        flags: field.flags,
        size: field.size,
        alignment: field.alignment,
        offset: field.offset,
        getter: AtomicPtr::new(unload::address_of_getter(field.getter)),
        setter: AtomicPtr::new(field.setter),
        default_value_or_factory: default,
        field_static_type_index: field.field_static_type_index,
    };
    let Some(details) = writer.details.get_mut(&type_index) else { return Ok(()) };
    details.fields.push(kept);
    details.fields.publish(&info.fields, &info.num_fields);
    Ok(())
}

impl Writer {
    /// Replaces the getter and setter of the field `name` when a Rust plugin registers the field
    /// again, unless the old ones must stay (see [`libraries::take_over`]). Returns false if the
    /// new field has another offset, size or kind of setter. Also returns false if the old getter
    /// is still loaded and either getter does not belong to a plugin.
    ///
    /// As for functions, the build of a plugin that was loaded last takes precedence. Its code then also
    /// reads the objects of older builds, so it stays mapped as long as these objects exist.
    ///
    /// Other builds of a plugin may declare other flags, defaults and attributes. The flags, defaults and
    /// attributes of the first registration are kept.
    fn renew_field(&mut self, type_index: i32, name: &[u8], new: &TVMFFIFieldInfo) -> bool {
        let Some(details) = self.details.get(&type_index) else { return false };
        let mut found = false;
        for known in details.fields.all() {
            // SAFETY: the strings of registered fields are never freed.
            let same_name = unsafe { known.name.as_slice() } == name;
            let same_setter = (known.flags ^ new.flags) & kTVMFFIFieldFlagBitSetterIsFunctionObj == 0;
            let same_place = (known.offset, known.size) == (new.offset, new.size) && same_setter;
            if !same_name || !same_place {
                continue;
            }
            let new_code = unload::address_of_getter(new.getter).addr();
            let takes = if unload::is_gone(known) {
                Some(true)
            } else {
                libraries::take_over(unload::code_of(known), new_code)
            };
            if takes == Some(true) {
                unload::store_code(known, new.getter, new.setter);
            }
            found |= takes.is_some();
        }
        found
    }
}

/// Metadata of all types that have a creator, a function that creates objects of the type. While the list is
/// locked, no object may be created and no function called, because a thread that locks the list may already
/// hold locks of the loader.
static WITH_CREATOR: Mutex<Vec<&'static SharedMetadata>> = Mutex::new(Vec::new());

/// Revokes the functions by which a library that is about to be unmapped creates objects of its types.
/// `is_gone` returns true for the addresses of the library's code. `is_idle` is called afterwards. If it
/// returns false, because the library is in use, restores the functions and returns false.
pub fn revoke_creators(is_gone: &dyn Fn(usize) -> bool, is_idle: &dyn Fn() -> bool) -> bool {
    let all = WITH_CREATOR.lock();
    let mut taken = Vec::new();
    for metadata in all.iter() {
        let creator = metadata.creator.load(Ordering::Acquire);
        if is_gone(creator.addr()) {
            unload::store_creator(metadata, Some(unload::create));
            taken.push((metadata, creator));
        }
    }
    if is_idle() {
        return true;
    }
    let gone = unload::address_of_creator(Some(unload::create));
    for (metadata, creator) in taken {
        // The creator stays if another library has stored its own in the meantime.
        let _ = metadata.creator.compare_exchange(gone, creator, Ordering::AcqRel, Ordering::Relaxed);
    }
    false
}

/// Revokes the getters and setters of fields whose library is about to be unmapped. If `is_gone` returns true
/// for the address of a field's getter, replaces its getter and setter by functions that raise an error.
pub fn revoke(is_gone: &dyn Fn(usize) -> bool) {
    let writer = WRITER.lock();
    for details in writer.details.values() {
        for field in details.fields.all().filter(|field| is_gone(unload::code_of(field))) {
            unload::store_code(field, Some(unload::get), unload::set as *mut core::ffi::c_void);
        }
    }
}

/// Adds a method to a type.
///
/// # Safety
/// The strings must be readable, and the method must be a valid value.
pub(crate) unsafe fn add_method(type_index: i32, method: &TVMFFIMethodInfo) -> Result<()> {
    let info = info_or_error(type_index)?;
    if method.method.type_index != kTVMFFIFunction {
        bail!("TypeError", "a method of type \"{}\" is not a function", key_text(info));
    }
    // SAFETY: the caller guarantees a valid value.
    let function: TVMFFIAny = unsafe { AnyView::from_raw(method.method) }.to_owned().into_raw();
    let kept = TVMFFIMethodInfo {
        // SAFETY: the caller guarantees the strings.
        name: unsafe { keep_text(&method.name) },
        // SAFETY: the caller guarantees the strings.
        doc: unsafe { keep_text(&method.doc) },
        // SAFETY: the caller guarantees the strings.
        metadata: unsafe { keep_text(&method.metadata) },
        flags: method.flags,
        method: function,
    };
    let mut writer = WRITER.lock();
    let Some(details) = writer.details.get_mut(&type_index) else { return Ok(()) };
    details.methods.push(kept);
    details.methods.publish(&info.methods, &info.num_methods);
    Ok(())
}

/// Returns the metadata of the type with the index `type_index`, if it is set.
pub fn metadata(type_index: i32) -> Option<&'static SharedMetadata> {
    info(type_index)?.metadata()
}

/// Returns true if a type itself, and not only an ancestor, has a method called `name`.
pub(crate) fn has_method(type_index: i32, name: &[u8]) -> bool {
    let writer = WRITER.lock();
    let methods = writer.details.get(&type_index).map_or(&[][..], |details| details.methods.items());
    // SAFETY: the names of registered methods are never freed.
    methods.iter().any(|known| unsafe { known.name.as_slice() } == name)
}

/// Sets the metadata of a type. Metadata that is already set cannot be changed. The only exception is the
/// creator (the function that creates objects of the type), which a plugin may replace by registering the
/// same type again.
///
/// # Safety
/// The string must be readable. The creator must stay callable for the lifetime of the process, or until it is revoked.
pub(crate) unsafe fn set_metadata(type_index: i32, metadata: &TVMFFITypeMetadata) -> Result<()> {
    let info = info_or_error(type_index)?;
    let writer = WRITER.lock();
    if let Some(known) = info.metadata() {
        let code = unload::creator_of(known);
        let new = metadata.creator.map_or(0, |creator| creator as usize);
        let of_plugins = libraries::is_code_of_plugin(code) && (new == 0 || libraries::is_code_of_plugin(new));
        let told = (known.total_size, known.structural_eq_hash_kind);
        let same = told == (metadata.total_size, metadata.structural_eq_hash_kind);
        if (unload::is_gone_creator(code) || of_plugins) && same {
            unload::store_creator(known, metadata.creator);
            return Ok(());
        }
        let key = key_text(info);
        bail!(
            "RuntimeError",
            "Overriding {key}, possible causes: two types have the same key, or the type is registered twice"
        );
    }
    let kept = SharedMetadata {
        // SAFETY: the caller guarantees the string.
        doc: unsafe { keep_text(&metadata.doc) },
        creator: AtomicPtr::new(unload::address_of_creator(metadata.creator)),
        total_size: metadata.total_size,
        structural_eq_hash_kind: metadata.structural_eq_hash_kind,
    };
    let kept: &'static SharedMetadata = Box::leak(Box::new(kept));
    if metadata.creator.is_some() {
        WITH_CREATOR.lock().push(kept);
    }
    info.metadata.store(ptr::from_ref(kept).cast_mut(), Ordering::Release);
    drop(writer);
    Ok(())
}

/// Returns the hash of a type key.
///
/// Clients combine it with hashes that they compute with the C++ standard library, so both functions must agree. On
/// 64-bit targets that library uses MurmurHash64A with this seed.
fn hash(key: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SEED: u64 = 0xc70f_6907;
    let mix = |word: u64| word ^ (word >> 47);
    let mut hash = SEED ^ (key.len() as u64).wrapping_mul(MULTIPLIER);
    let mut words = key.chunks_exact(8);
    let load = |bytes: &[u8]| {
        let mut buffer = [0; 8];
        buffer[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(buffer)
    };
    for word in &mut words {
        hash ^= mix(load(word).wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    if !words.remainder().is_empty() {
        hash ^= load(words.remainder());
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    mix(mix(hash).wrapping_mul(MULTIPLIER))
}
