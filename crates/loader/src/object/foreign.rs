//! Modules of C++ classes that other libraries define, such as those of Apache TVM.
//!
//! Their operations are virtual functions, which may throw exceptions. Rust can neither call such functions nor throw, so
//! both directions go through C++ code: `crates/lib/cpp/tvm_ffi.cc`, which is part of `libtvm_ffi.so` only. That code passes
//! a table of functions, [`Classes`], when the library is loaded. Without it, using a module of another library is an error.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{NonNull, null, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};

use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIFieldInfo, TVMFFIObject, TVMFFIObjectHandle, TVMFFITypeMetadata,
    TVMFFITypeRegisterField, TVMFFITypeRegisterMetadata, kTVMFFIArray, kTVMFFIFieldFlagBitMaskCompareOff,
    kTVMFFIFieldFlagBitMaskHashOff, kTVMFFIModule,
};
use anyfn::{Any, Array, Bytes, Error, Module, ObjectRef, PackedFunc, Result, String};

use super::{AnyModule, Implementation, Imports};

type This = *const c_void;
type Text = *const TVMFFIAny;

/// Table that the C++ code and this crate exchange. The C++ code declares the same struct as `ModuleClasses`.
#[repr(C)]
pub(crate) struct Classes {
    /// Size of this struct in bytes.
    size: usize,
    /// Address of the virtual functions of the class for modules that this runtime creates.
    runtime_module: *const c_void,
    // Functions that call a virtual function of a module. Each returns 0, or -1 with the raised error set.
    kind: unsafe extern "C" fn(This, *mut *const c_char) -> c_int,
    property_mask: unsafe extern "C" fn(This, *mut c_int) -> c_int,
    function: unsafe extern "C" fn(This, Text, *mut TVMFFIObjectHandle) -> c_int,
    implements: unsafe extern "C" fn(This, Text, *mut c_int) -> c_int,
    function_doc: unsafe extern "C" fn(This, Text, *mut TVMFFIAny) -> c_int,
    function_metadata: unsafe extern "C" fn(This, Text, *mut TVMFFIAny) -> c_int,
    write_to_file: unsafe extern "C" fn(This, Text, Text) -> c_int,
    write_formats: unsafe extern "C" fn(This, *mut TVMFFIObjectHandle) -> c_int,
    save_to_bytes: unsafe extern "C" fn(This, *mut TVMFFIAny) -> c_int,
    inspect_source: unsafe extern "C" fn(This, Text, *mut TVMFFIAny) -> c_int,
    import_module: unsafe extern "C" fn(This, *const TVMFFIObjectHandle) -> c_int,
    clear_imports: unsafe extern "C" fn(This) -> c_int,
    // Functions of this crate, which `exchange` sets.
    add_import: Option<unsafe extern "C" fn(TVMFFIObjectHandle, TVMFFIObjectHandle) -> c_int>,
    remove_imports: Option<unsafe extern "C" fn(TVMFFIObjectHandle) -> c_int>,
    kind_of: Option<unsafe extern "C" fn(TVMFFIObjectHandle) -> *const c_char>,
    visit_context_symbols: Option<unsafe extern "C" fn(TVMFFIObjectHandle) -> c_int>,
}

/// The table of the C++ code, or NULL if this library has none.
static CLASSES: AtomicPtr<Classes> = AtomicPtr::new(null_mut());

/// Returns the table of the C++ code, if this library has any.
fn classes() -> Option<&'static Classes> {
    if cfg!(not(feature = "cpp")) {
        return None;
    }
    // SAFETY: the pointer is NULL or was passed to `exchange`, whose caller guarantees a table that stays valid. Its fields
    // were set before the pointer was stored.
    unsafe { CLASSES.load(Ordering::Acquire).as_ref() }
}

/// Returns the address of the virtual functions that module objects of this runtime have, if C++ code provides them.
pub(super) fn runtime_module() -> Option<*const c_void> {
    classes().map(|classes| classes.runtime_module)
}

/// Takes the table of the C++ code and sets this crate's functions in it. `visit_context_symbols` calls a function with name
/// and address of each context symbol.
///
/// # Errors
/// Returns `RuntimeError` if the table is NULL or does not have the size of [`Classes`].
///
/// # Safety
/// `table` must be NULL or the address of a table that begins with its size and is valid for the lifetime of the process.
/// Nothing else may access it during the call.
pub(crate) unsafe fn exchange(
    table: *mut c_void,
    visit_context_symbols: unsafe extern "C" fn(TVMFFIObjectHandle) -> c_int,
) -> Result<()> {
    let Some(table) = NonNull::new(table.cast::<Classes>()) else {
        anyfn::bail!("RuntimeError", "the table of module classes is NULL");
    };
    // SAFETY: the caller guarantees that the table begins with its size.
    let size = unsafe { table.cast::<usize>().read() };
    if size != size_of::<Classes>() {
        let expected = size_of::<Classes>();
        anyfn::bail!("RuntimeError", "expected a table of module classes of {expected} bytes, got {size}");
    }
    // SAFETY: the table is valid and has all fields; nothing else accesses it now.
    let classes = unsafe { &mut *table.as_ptr() };
    classes.add_import = Some(add_import);
    classes.remove_imports = Some(remove_imports);
    classes.kind_of = Some(kind_of);
    classes.visit_context_symbols = Some(visit_context_symbols);
    CLASSES.store(table.as_ptr(), Ordering::Release);
    describe()
}

/// Describes the type `ffi.Module` as the peer's Python package expects it: with its size and the field `imports_`. The field
/// is excluded from comparisons, so that a module is equal only to itself, as elsewhere.
fn describe() -> Result<()> {
    let header = size_of::<TVMFFIObject>();
    let imports = TVMFFIFieldInfo {
        name: TVMFFIByteArray::from_slice(b"imports_"),
        doc: TVMFFIByteArray::from_slice(b"Modules that the module imports."),
        metadata: TVMFFIByteArray::from_slice(
            br#"{"type_schema":"{\"type\":\"ffi.Array\",\"args\":[{\"type\":\"Any\"}]}"}"#,
        ),
        flags: kTVMFFIFieldFlagBitMaskCompareOff | kTVMFFIFieldFlagBitMaskHashOff,
        size: size_of::<usize>() as i64,
        alignment: align_of::<usize>() as i64,
        offset: header as i64,
        getter: Some(get_imports),
        setter: refuse_imports as *mut c_void,
        default_value_or_factory: TVMFFIAny::NONE,
        field_static_type_index: kTVMFFIArray,
    };
    let metadata = TVMFFITypeMetadata {
        doc: TVMFFIByteArray::EMPTY,
        creator: None,
        total_size: (header + 3 * size_of::<usize>()) as i32,
        structural_eq_hash_kind: 0,
    };
    let check = |code| if code == 0 { Ok(()) } else { Err(Error::take_raised()) };
    // SAFETY: the description is borrowed for the call, and the accessors are never unloaded.
    check(unsafe { TVMFFITypeRegisterField(kTVMFFIModule, &raw const imports) })?;
    // SAFETY: the description is borrowed for the call.
    check(unsafe { TVMFFITypeRegisterMetadata(kTVMFFIModule, &raw const metadata) })
}

/// Getter of the field `imports_`.
unsafe extern "C" fn get_imports(field: *mut c_void, out: *mut TVMFFIAny) -> c_int {
    // SAFETY: the field of a live module, at the offset that was registered.
    let imports = unsafe { &*field.cast::<Imports>() };
    code_of(imports.to_array().map(|imports| {
        // SAFETY: the caller passes a location for the result.
        unsafe { out.write(Any::from(imports).into_raw()) };
    }))
}

/// Setter of the field `imports_`, which always fails.
unsafe extern "C" fn refuse_imports(_field: *mut c_void, _value: *const TVMFFIAny) -> c_int {
    code_of(Err(Error::new("TypeError", "cannot set the imports of a module; use its function import_module")))
}

/// Returns 0 for success. For a failure, sets the raised error of this thread and returns -1.
pub(crate) fn code_of(result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            error.raise();
            -1
        }
    }
}

/// Returns the module with the given handle.
///
/// # Safety
/// `handle` must be NULL or the handle of a live object.
unsafe fn module(handle: TVMFFIObjectHandle) -> Result<AnyModule> {
    // SAFETY: the caller guarantees the handle.
    let object = unsafe { ObjectRef::from_borrowed_or_null(handle) };
    match object.map(Module::try_from_object) {
        Some(Ok(module)) => AnyModule::try_from(&module),
        _ => anyfn::bail!("TypeError", "a module can only import a module"),
    }
}

unsafe extern "C" fn add_import(to: TVMFFIObjectHandle, other: TVMFFIObjectHandle) -> c_int {
    let add = || {
        // SAFETY: C++ code passes a module, which it holds.
        let other = unsafe { module(other) }?;
        // SAFETY: C++ code passes a module, which it holds.
        unsafe { module(to) }?.add_imports(&[other.into_module()])
    };
    code_of(add())
}

unsafe extern "C" fn remove_imports(of: TVMFFIObjectHandle) -> c_int {
    // SAFETY: C++ code passes a module, which it holds.
    code_of(unsafe { module(of) }.and_then(|module| module.remove_imports()))
}

unsafe extern "C" fn kind_of(of: TVMFFIObjectHandle) -> *const c_char {
    // SAFETY: C++ code passes a module of this runtime, which it holds. Its kind lives as long as the module.
    unsafe { module(of) }.map_or(c"".as_ptr(), |module| module.kind().as_ptr())
}

/// A module object of a C++ class, at the address of the pointer to its virtual functions.
///
/// The type has no size, so that a reference to it grants no access to the object: C++ code may change the object at any
/// time.
#[repr(C)]
pub(super) struct Foreign([u8; 0]);

impl Foreign {
    /// Returns the module of a C++ class at `context`, the address of its pointer to virtual functions. Returns `None` if
    /// this library cannot call such modules.
    ///
    /// # Safety
    /// `context` must be the context of a module of a C++ class that lives as long as the result.
    pub(super) unsafe fn at<'a>(context: *const c_void) -> Option<&'a Foreign> {
        classes()?;
        // SAFETY: the pointer is not NULL, and a type without size can be anywhere.
        Some(unsafe { &*context.cast::<Foreign>() })
    }

    /// Calls a function of the C++ code with the table, the address of the module, and a place for a result that begins as
    /// `value`. Returns the result, or the error that the function has raised.
    fn call<T>(&self, mut value: T, call: impl FnOnce(&Classes, This, &mut T) -> c_int) -> Result<T> {
        let Some(classes) = classes() else {
            anyfn::bail!("InternalError", "this library cannot call modules of C++ classes");
        };
        match call(classes, core::ptr::from_ref(self).cast(), &mut value) {
            0 => Ok(value),
            _ => Err(Error::take_raised()),
        }
    }

    /// Calls a function of the C++ code whose result is a value.
    fn value(&self, call: impl FnOnce(&Classes, This, *mut TVMFFIAny) -> c_int) -> Result<Any> {
        let raw = self.call(TVMFFIAny::NONE, |classes, this, out| call(classes, this, out))?;
        // SAFETY: the C++ code has returned an owned value.
        Ok(unsafe { Any::from_raw(raw) })
    }

    /// Calls a function of the C++ code whose result is an object or NULL.
    fn object(
        &self,
        call: impl FnOnce(&Classes, This, *mut TVMFFIObjectHandle) -> c_int,
    ) -> Result<Option<ObjectRef>> {
        let handle = self.call(null_mut(), |classes, this, out| call(classes, this, out))?;
        // SAFETY: the C++ code has returned an owned reference or NULL.
        Ok(unsafe { ObjectRef::from_owned_or_null(handle) })
    }

    /// Adds a module to the imports through the virtual function for it.
    pub(super) fn import(&self, other: &Module) -> Result<()> {
        let other = other.as_object().as_handle();
        // SAFETY: both modules are alive.
        self.call((), |classes, this, ()| unsafe { (classes.import_module)(this, &raw const other) })
    }

    /// Removes all imports through the virtual function for it.
    pub(super) fn clear_imports(&self) -> Result<()> {
        // SAFETY: the module is alive.
        self.call((), |classes, this, ()| unsafe { (classes.clear_imports)(this) })
    }
}

/// Returns a string as a value. It is passed to C++ code by address.
fn text(text: &str) -> Any {
    Any::from(String::from(text))
}

impl Implementation for Foreign {
    fn kind(&self) -> &CStr {
        // SAFETY: the module is alive, and `out` is writable.
        let kind = self.call(null(), |classes, this, out| unsafe { (classes.kind)(this, out) });
        match kind {
            // SAFETY: a kind is a C string that lives as long as the module.
            Ok(kind) if !kind.is_null() => unsafe { CStr::from_ptr(kind) },
            _ => c"",
        }
    }

    fn property_mask(&self) -> i32 {
        // SAFETY: the module is alive, and `out` is writable.
        self.call(0, |classes, this, out| unsafe { (classes.property_mask)(this, out) }).unwrap_or(0)
    }

    fn function(&self, _module: &AnyModule, name: &str) -> Result<Option<PackedFunc>> {
        let name = text(name);
        // SAFETY: the module and the string are alive, and `out` is writable.
        let found =
            self.object(|classes, this, out| unsafe { (classes.function)(this, name.as_raw(), out) })?;
        found.map_or(Ok(None), |found| Any::from(found).get::<Option<PackedFunc>>())
    }

    fn implements(&self, _module: &AnyModule, name: &str) -> Result<bool> {
        let name = text(name);
        // SAFETY: the module and the string are alive, and `out` is writable.
        let found =
            self.call(0, |classes, this, out| unsafe { (classes.implements)(this, name.as_raw(), out) })?;
        Ok(found != 0)
    }

    fn function_doc(&self, name: &str) -> Result<Option<String>> {
        let name = text(name);
        // SAFETY: the module and the string are alive, and `out` is writable.
        self.value(|classes, this, out| unsafe { (classes.function_doc)(this, name.as_raw(), out) })?
            .get::<Option<String>>()
    }

    fn function_metadata(&self, name: &str) -> Result<Option<String>> {
        let name = text(name);
        // SAFETY: the module and the string are alive, and `out` is writable.
        self.value(|classes, this, out| unsafe { (classes.function_metadata)(this, name.as_raw(), out) })?
            .get::<Option<String>>()
    }

    fn save_to_bytes(&self) -> Result<Option<Bytes>> {
        // SAFETY: the module is alive, and `out` is writable.
        self.value(|classes, this, out| unsafe { (classes.save_to_bytes)(this, out) })?.get::<Option<Bytes>>()
    }

    fn write_to_file(&self, path: &str, format: &str) -> Result<bool> {
        let (path, format) = (text(path), text(format));
        // SAFETY: the module and the strings are alive.
        self.call((), |classes, this, ()| unsafe {
            (classes.write_to_file)(this, path.as_raw(), format.as_raw())
        })?;
        Ok(true)
    }

    fn write_formats(&self) -> Result<Array<String>> {
        // SAFETY: the module is alive, and `out` is writable.
        let formats = self.object(|classes, this, out| unsafe { (classes.write_formats)(this, out) })?;
        formats.map_or_else(|| Ok(Array::new()), |formats| Any::from(formats).get::<Array<String>>())
    }

    fn inspect_source(&self, format: &str) -> Result<String> {
        let format = text(format);
        // SAFETY: the module and the string are alive, and `out` is writable.
        self.value(|classes, this, out| unsafe { (classes.inspect_source)(this, format.as_raw(), out) })?
            .get::<String>()
    }
}
