//! Entries of the process's table of types as threads share them.
//!
//! They lie in memory as the structs of the ABI do. What is changed after an entry has been published is atomic here, so
//! a reference to one says nothing wrong while another thread registers, unloads or loads again.

use core::ffi::c_void;
use core::mem::offset_of;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use anyfn_abi::{
    TVMFFIAny, TVMFFIAnyValue, TVMFFIByteArray, TVMFFIFieldGetter, TVMFFIFieldInfo, TVMFFIMethodInfo,
    TVMFFIObjectCreator, TVMFFITypeAttrColumn, TVMFFITypeInfo, TVMFFITypeMetadata, kTVMFFINone,
};

/// A type: [`TVMFFITypeInfo`].
#[repr(C)]
pub struct SharedType {
    /// Index of the type.
    pub type_index: i32,
    /// Number of ancestors.
    pub type_depth: i32,
    /// Unique name.
    pub type_key: TVMFFIByteArray,
    /// Ancestors, the root first.
    pub type_ancestors: *const *const SharedType,
    /// Hash of the name.
    pub type_key_hash: u64,
    /// Number of fields of this type itself; stored after `fields`.
    pub num_fields: AtomicI32,
    /// Number of methods of this type itself; stored after `methods`.
    pub num_methods: AtomicI32,
    /// Fields of this type itself. Arrays live for ever.
    pub fields: AtomicPtr<SharedField>,
    /// Methods of this type itself. Arrays live for ever.
    pub methods: AtomicPtr<TVMFFIMethodInfo>,
    /// NULL until registered; set once, and lives for ever.
    pub metadata: AtomicPtr<SharedMetadata>,
}

// SAFETY: what does not change points to texts and types that live for ever; the rest is atomic.
unsafe impl Send for SharedType {}
// SAFETY: what does not change is only read, and the rest is atomic.
unsafe impl Sync for SharedType {}

/// A field of a type: [`TVMFFIFieldInfo`].
#[repr(C)]
pub struct SharedField {
    /// Name.
    pub name: TVMFFIByteArray,
    /// Documentation.
    pub doc: TVMFFIByteArray,
    /// JSON; `type_schema` describes the type.
    pub metadata: TVMFFIByteArray,
    /// `kTVMFFIFieldFlagBit*`.
    pub flags: i64,
    /// Size of the field in bytes.
    pub size: i64,
    /// Alignment of the field in bytes.
    pub alignment: i64,
    /// Offset from the object header in bytes.
    pub offset: i64,
    /// A `TVMFFIFieldGetter` or NULL.
    pub getter: AtomicPtr<c_void>,
    /// A `TVMFFIFieldSetter`, a Function handle when flag bit 11 is set, or NULL.
    pub setter: AtomicPtr<c_void>,
    /// Default value, or the function that makes it when flag bit 5 is set.
    pub default_value_or_factory: TVMFFIAny,
    /// Type index when it is known statically, else `kTVMFFIAny`.
    pub field_static_type_index: i32,
}

// SAFETY: what does not change points to texts and values that live for ever; the rest is atomic.
unsafe impl Send for SharedField {}
// SAFETY: what does not change is only read, and the rest is atomic.
unsafe impl Sync for SharedField {}

/// What a type has registered about itself: [`TVMFFITypeMetadata`].
#[repr(C)]
pub struct SharedMetadata {
    /// Documentation.
    pub doc: TVMFFIByteArray,
    /// A `TVMFFIObjectCreator` or NULL.
    pub creator: AtomicPtr<c_void>,
    /// Size of an object in bytes.
    pub total_size: i32,
    /// How structural equality and hash treat the type.
    pub structural_eq_hash_kind: i32,
}

// SAFETY: the text lives for ever and is only read; the creator is atomic.
unsafe impl Send for SharedMetadata {}
// SAFETY: the text lives for ever and is only read; the creator is atomic.
unsafe impl Sync for SharedMetadata {}

/// One attribute of all types: [`TVMFFITypeAttrColumn`].
#[repr(C)]
pub struct SharedColumn {
    /// Entries. Arrays live for ever.
    pub data: AtomicPtr<TVMFFIAny>,
    /// Number of entries; stored after `data`.
    pub size: AtomicI32,
    /// Type index of the first entry.
    pub begin_index: i32,
}

macro_rules! same_layout {
    ($shared:ident = $abi:ident { $($field:ident),* }) => {
        const _: () = {
            assert!(size_of::<$shared>() == size_of::<$abi>() && align_of::<$shared>() == align_of::<$abi>());
            $( assert!(offset_of!($shared, $field) == offset_of!($abi, $field)); )*
        };
    };
}

same_layout!(
    SharedType = TVMFFITypeInfo {
        type_index,
        type_depth,
        type_key,
        type_ancestors,
        type_key_hash,
        num_fields,
        num_methods,
        fields,
        methods,
        metadata
    }
);
same_layout!(
    SharedField = TVMFFIFieldInfo {
        name,
        doc,
        metadata,
        flags,
        size,
        alignment,
        offset,
        getter,
        setter,
        default_value_or_factory,
        field_static_type_index
    }
);
same_layout!(SharedMetadata = TVMFFITypeMetadata { doc, creator, total_size, structural_eq_hash_kind });
same_layout!(SharedColumn = TVMFFITypeAttrColumn { data, size, begin_index });

impl SharedType {
    /// The fields of the type itself.
    pub fn fields(&self) -> &'static [SharedField] {
        // SAFETY: who registers stores the address of a longer array before the number, and arrays live for ever.
        unsafe { published(&self.num_fields, &self.fields) }
    }

    /// The methods of the type itself.
    pub fn methods(&self) -> &'static [TVMFFIMethodInfo] {
        // SAFETY: who registers stores the address of a longer array before the number, and arrays live for ever.
        unsafe { published(&self.num_methods, &self.methods) }
    }

    /// What the type has registered about itself.
    pub fn metadata(&self) -> Option<&'static SharedMetadata> {
        // SAFETY: NULL, or metadata that lives for ever.
        unsafe { self.metadata.load(Ordering::Acquire).cast_const().as_ref() }
    }
}

/// The array of a type that may grow meanwhile.
///
/// # Safety
/// The address must be stored before a number that it has elements for, and its arrays must live for ever.
unsafe fn published<T>(count: &AtomicI32, data: &AtomicPtr<T>) -> &'static [T] {
    // The number first: the address that is read after it is that of its array, or of a longer one.
    let count = count.load(Ordering::Acquire);
    let data = data.load(Ordering::Acquire);
    match usize::try_from(count) {
        // SAFETY: the caller guarantees that the array has so many elements, and lives for ever.
        Ok(count) if count > 0 => unsafe { core::slice::from_raw_parts(data, count) },
        _ => &[],
    }
}

impl SharedField {
    /// The function that reads the field at this moment.
    #[inline]
    pub fn getter(&self) -> Option<TVMFFIFieldGetter> {
        let getter = self.getter.load(Ordering::Acquire);
        // SAFETY: NULL for none, or such a function.
        unsafe { core::mem::transmute::<*mut c_void, Option<TVMFFIFieldGetter>>(getter) }
    }

    /// What sets the field at this moment.
    #[inline]
    pub fn setter(&self) -> *mut c_void {
        self.setter.load(Ordering::Acquire)
    }
}

impl SharedMetadata {
    /// The function that makes objects of the type at this moment.
    pub fn creator(&self) -> Option<TVMFFIObjectCreator> {
        let creator = self.creator.load(Ordering::Acquire);
        // SAFETY: NULL for none, or such a function.
        unsafe { core::mem::transmute::<*mut c_void, Option<TVMFFIObjectCreator>>(creator) }
    }
}

impl SharedColumn {
    /// The entry of a type, if it is set. It does not change any more.
    pub fn get(&self, type_index: i32) -> Option<&'static TVMFFIAny> {
        let size = self.size.load(Ordering::Acquire);
        let at = type_index.checked_sub(self.begin_index).filter(|at| (0..size).contains(at))?;
        // SAFETY: the array that covers the size was stored before it, and arrays live for ever.
        let entry = unsafe { self.data.load(Ordering::Acquire).add(at as usize) };
        // SAFETY: an entry of such an array; nothing but its type index is looked at before it is set.
        let kind = unsafe { &raw mut (*entry).type_index };
        // SAFETY: an aligned place that lives for ever, stored last of an entry, by an atomic store.
        if unsafe { AtomicI32::from_ptr(kind) }.load(Ordering::Acquire) == kTVMFFINone {
            return None;
        }
        // SAFETY: an entry that is set does not change any more and lives for ever.
        Some(unsafe { &*entry })
    }
}

/// Sets an entry of a column, which readers may look at meanwhile. Its type index is stored last.
///
/// # Safety
/// `entry` must be a writable entry of a column's array that is None, and nobody else may set it meanwhile.
pub unsafe fn set_entry(entry: *mut TVMFFIAny, value: TVMFFIAny) {
    let TVMFFIAny { type_index, small_str_len, value } = value;
    // SAFETY: the caller guarantees the place, which nobody reads while the type index is None.
    let length: *mut u32 = unsafe { &raw mut (*entry).small_str_len };
    // SAFETY: as the line before says.
    unsafe { length.write(small_str_len) };
    // SAFETY: the caller guarantees the place.
    let content: *mut TVMFFIAnyValue = unsafe { &raw mut (*entry).value };
    // SAFETY: nobody reads the content while the type index is None.
    unsafe { content.write(value) };
    // SAFETY: the caller guarantees the place.
    let kind = unsafe { &raw mut (*entry).type_index };
    // SAFETY: an aligned place, read by atomic loads while it is None.
    unsafe { AtomicI32::from_ptr(kind) }.store(type_index, Ordering::Release);
}
