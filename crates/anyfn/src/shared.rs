//! Entries of the process-wide type table, in a form that several threads can use at the same time.
//!
//! The structs have the same memory layout as those of the ABI. Here, everything that changes after an entry has been
//! published is atomic. A reference to an entry is therefore sound while another thread registers a type, or loads or
//! unloads a library.

use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use anyfn_abi::{
    TVMFFIAny, TVMFFIAnyValue, TVMFFIByteArray, TVMFFIFieldGetter, TVMFFIFieldInfo, TVMFFIGetTypeAttrColumn,
    TVMFFIMethodInfo, TVMFFIObjectCreator, TVMFFITypeAttrColumn, TVMFFITypeInfo, TVMFFITypeMetadata,
    kTVMFFINone,
};

/// Type info of a type, with the layout of [`TVMFFITypeInfo`].
#[repr(C)]
pub struct SharedType {
    /// Type index of the type.
    pub type_index: i32,
    /// Number of ancestors of the type.
    pub type_depth: i32,
    /// Type key, the unique name of the type.
    pub type_key: TVMFFIByteArray,
    /// Type infos of all ancestors, the root first.
    pub type_ancestors: *const *const SharedType,
    /// Hash of the type key.
    pub type_key_hash: u64,
    /// Number of fields of this type, without those of its ancestors. Writers store this number after they
    /// have stored `fields`.
    pub num_fields: AtomicI32,
    /// Number of methods of this type, without those of its ancestors. Writers store this number after they
    /// have stored `methods`.
    pub num_methods: AtomicI32,
    /// Fields of this type, in an array that lives for the lifetime of the process.
    pub fields: AtomicPtr<SharedField>,
    /// Methods of this type, in an array that lives for the lifetime of the process.
    pub methods: AtomicPtr<TVMFFIMethodInfo>,
    /// Metadata of the type, NULL until registered. It is set once and lives for the lifetime of the process.
    pub metadata: AtomicPtr<SharedMetadata>,
}

// SAFETY: immutable parts refer to strings and types that live for the lifetime of the process; the rest is atomic.
unsafe impl Send for SharedType {}
// SAFETY: immutable parts are only read, and the rest is atomic.
unsafe impl Sync for SharedType {}

/// A reflected field of a type, with the layout of [`TVMFFIFieldInfo`].
#[repr(C)]
pub struct SharedField {
    /// Name of the field.
    pub name: TVMFFIByteArray,
    /// Documentation of the field.
    pub doc: TVMFFIByteArray,
    /// Metadata of the field as a JSON object, whose key `type_schema` describes the field's type.
    pub metadata: TVMFFIByteArray,
    /// Flags of the field, a combination of `kTVMFFIFieldFlagBit*`.
    pub flags: i64,
    /// Size of the field in bytes.
    pub size: i64,
    /// Alignment of the field in bytes.
    pub alignment: i64,
    /// Offset of the field from the object header in bytes.
    pub offset: i64,
    /// Function that reads the field: a `TVMFFIFieldGetter`, or NULL.
    pub getter: AtomicPtr<c_void>,
    /// Function that sets the field: a `TVMFFIFieldSetter`, a Function handle if flag bit 11 is set, or NULL.
    pub setter: AtomicPtr<c_void>,
    /// Default value of the field, or the function that creates the default if flag bit 5 is set.
    pub default_value_or_factory: TVMFFIAny,
    /// Type index that all values of the field have, or `kTVMFFIAny` (-1) if it is not known
    /// statically.
    pub field_static_type_index: i32,
}

// SAFETY: immutable parts refer to strings and values that live for the lifetime of the process; the rest is atomic.
unsafe impl Send for SharedField {}
// SAFETY: immutable parts are only read, and the rest is atomic.
unsafe impl Sync for SharedField {}

/// Metadata of a type, with the layout of [`TVMFFITypeMetadata`].
#[repr(C)]
pub struct SharedMetadata {
    /// Documentation of the type.
    pub doc: TVMFFIByteArray,
    /// Function that creates an object of the type: a `TVMFFIObjectCreator`, or NULL.
    pub creator: AtomicPtr<c_void>,
    /// Size of an object of the type in bytes.
    pub total_size: i32,
    /// Kind of structural equality and hash for objects of the type, one of `kTVMFFISEqHashKind*`.
    pub structural_eq_hash_kind: i32,
}

// SAFETY: the string lives for the lifetime of the process and is only read; the creator is atomic.
unsafe impl Send for SharedMetadata {}
// SAFETY: the string lives for the lifetime of the process and is only read; the creator is atomic.
unsafe impl Sync for SharedMetadata {}

/// Values of one attribute for all types, with the layout of [`TVMFFITypeAttrColumn`].
#[repr(C)]
pub struct SharedColumn {
    /// Values of the attribute, one entry for each type index from `begin_index` on, in an array that lives
    /// for the lifetime of the process.
    pub data: AtomicPtr<TVMFFIAny>,
    /// Number of entries in the array `data`. Writers store this number after they have stored `data`.
    pub size: AtomicI32,
    /// Type index to which the first entry of the array `data` belongs.
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
    /// Returns the fields of the type, without those of its ancestors.
    pub fn fields(&self) -> &'static [SharedField] {
        // SAFETY: a writer stores the address of a longer array before the number, and arrays live for the lifetime of
        // the process.
        unsafe { published(&self.num_fields, &self.fields) }
    }

    /// Returns the methods of the type, without those of its ancestors.
    pub fn methods(&self) -> &'static [TVMFFIMethodInfo] {
        // SAFETY: a writer stores the address of a longer array before the number, and arrays live for the lifetime of
        // the process.
        unsafe { published(&self.num_methods, &self.methods) }
    }

    /// Returns the metadata of the type; `None` if it has not been registered.
    pub fn metadata(&self) -> Option<&'static SharedMetadata> {
        // SAFETY: the pointer is NULL or refers to metadata that lives for the lifetime of the process.
        unsafe { self.metadata.load(Ordering::Acquire).cast_const().as_ref() }
    }
}

/// Returns an array that belongs to a type info, such as its fields. Another thread may append to the array
/// at the same time.
///
/// # Safety
/// A thread that appends must first store the address of an array with enough elements in `data`, and then the larger
/// number of elements in `count`. Arrays must live for the lifetime of the process.
unsafe fn published<T>(count: &AtomicI32, data: &AtomicPtr<T>) -> &'static [T] {
    // The number is read first, so the address that is read after it is that of the same array or of a longer one.
    let count = count.load(Ordering::Acquire);
    let data = data.load(Ordering::Acquire);
    match usize::try_from(count) {
        // SAFETY: the caller guarantees that the array has this many elements and lives for the lifetime of the
        // process.
        Ok(count) if count > 0 => unsafe { core::slice::from_raw_parts(data, count) },
        _ => &[],
    }
}

impl SharedField {
    /// Returns the current getter of the field; `None` if the field has no getter.
    #[inline]
    pub fn getter(&self) -> Option<TVMFFIFieldGetter> {
        let getter = self.getter.load(Ordering::Acquire);
        // SAFETY: the pointer is NULL, which is `None`, or a getter.
        unsafe { core::mem::transmute::<*mut c_void, Option<TVMFFIFieldGetter>>(getter) }
    }

    /// Returns the current setter of the field.
    #[inline]
    pub fn setter(&self) -> *mut c_void {
        self.setter.load(Ordering::Acquire)
    }
}

impl SharedMetadata {
    /// Returns the current creator of the type, which creates its objects; `None` if the type has no creator.
    pub fn creator(&self) -> Option<TVMFFIObjectCreator> {
        let creator = self.creator.load(Ordering::Acquire);
        // SAFETY: the pointer is NULL, which is `None`, or a creator.
        unsafe { core::mem::transmute::<*mut c_void, Option<TVMFFIObjectCreator>>(creator) }
    }
}

impl SharedColumn {
    /// Returns the values of the attribute called `name` for all types; `None` if no type has registered a
    /// value.
    pub fn of(name: &str) -> Option<&'static SharedColumn> {
        let name = TVMFFIByteArray::from_slice(name.as_bytes());
        // SAFETY: the name is borrowed for the call.
        let column: *const SharedColumn = unsafe { TVMFFIGetTypeAttrColumn(&name) }.cast();
        // SAFETY: the pointer is NULL or refers to a column, which lives for the lifetime of the process.
        unsafe { column.as_ref() }
    }

    /// Returns the entry of the type with this index; `None` if the entry is not set. An entry never changes
    /// once it is set.
    #[inline]
    pub fn get(&self, type_index: i32) -> Option<&'static TVMFFIAny> {
        let size = self.size.load(Ordering::Acquire);
        let at = type_index.checked_sub(self.begin_index).filter(|at| (0..size).contains(at))?;
        // SAFETY: an array that covers the size was stored before the size, and arrays live for the lifetime of the
        // process.
        let entry = unsafe { self.data.load(Ordering::Acquire).add(at as usize) };
        // SAFETY: this is an entry of such an array. Only its type index is read before the entry is set.
        let kind = unsafe { &raw mut (*entry).type_index };
        // SAFETY: the location is aligned and lives for the lifetime of the process. It is stored last, with an atomic
        // store.
        if unsafe { AtomicI32::from_ptr(kind) }.load(Ordering::Acquire) == kTVMFFINone {
            return None;
        }
        // SAFETY: an entry that is set does not change any more and lives for the lifetime of the process.
        Some(unsafe { &*entry })
    }
}

/// A type attribute that is read often. The table of its values for all types is looked up only once.
pub struct Attribute {
    name: &'static str,
    column: AtomicPtr<SharedColumn>,
}

impl Attribute {
    /// Creates the attribute called `name`. Its table of values is looked up at the first use.
    pub const fn new(name: &'static str) -> Attribute {
        Attribute { name, column: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the name of the attribute.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the value that a type itself, not an ancestor, has registered; `None` if it has not registered one.
    #[inline]
    pub fn get(&self, type_index: i32) -> Option<&'static TVMFFIAny> {
        // SAFETY: the pointer is NULL or refers to a column, which lives for the lifetime of the process.
        match unsafe { self.column.load(Ordering::Acquire).cast_const().as_ref() } {
            Some(column) => column.get(type_index),
            None => self.find()?.get(type_index),
        }
    }

    #[cold]
    fn find(&self) -> Option<&'static SharedColumn> {
        let column = SharedColumn::of(self.name)?;
        self.column.store(ptr::from_ref(column).cast_mut(), Ordering::Release);
        Some(column)
    }
}

/// Sets the value that an attribute has for one type, while other threads may read the same entry.
/// The type index of the value is stored last, because readers check it first.
///
/// # Safety
/// `entry` must be a writable entry of a column's array that is `None`, and no other thread may set it at the same time.
pub unsafe fn set_entry(entry: *mut TVMFFIAny, value: TVMFFIAny) {
    let TVMFFIAny { type_index, small_str_len, value } = value;
    // SAFETY: the caller guarantees the entry, which no thread reads while its type index is None.
    let length: *mut u32 = unsafe { &raw mut (*entry).small_str_len };
    // SAFETY: the caller guarantees the entry, which no thread reads while its type index is None.
    unsafe { length.write(small_str_len) };
    // SAFETY: the caller guarantees the entry.
    let content: *mut TVMFFIAnyValue = unsafe { &raw mut (*entry).value };
    // SAFETY: no thread reads the value while the type index is None.
    unsafe { content.write(value) };
    // SAFETY: the caller guarantees the entry.
    let kind = unsafe { &raw mut (*entry).type_index };
    // SAFETY: the location is aligned, and other threads read it with atomic loads while it is None.
    unsafe { AtomicI32::from_ptr(kind) }.store(type_index, Ordering::Release);
}
