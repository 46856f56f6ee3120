//! Modules: compiled code as an object.

use core::fmt;

use alloc::format;
use alloc::string::String as StdString;
use alloc::vec::Vec;

use anyfn_abi::kTVMFFIModule;

use crate::{Array, Bytes, Error, ObjectRef, PackedFunc, Result, is_instance};

/// Compiled code: functions by name, possibly of other modules that it imports.
#[derive(Clone)]
#[repr(transparent)]
pub struct Module(ObjectRef);

impl Module {
    /// Loads a module from a file; the kind follows from the extension, `.so` is a shared library.
    ///
    /// Loading a library trusts it: its code runs in this process, with everything that native code can do. That includes the memory
    /// of tensors: a compiled kernel reads and writes the tensors that it is given without waiting for guards
    /// ([`TensorWrite`](crate::TensorWrite)) or other threads, so whoever calls one ensures that nothing else uses them meanwhile.
    ///
    /// # Errors
    /// `RuntimeError` for an unknown extension; what the loader raises for a file that it cannot load.
    pub fn load(path: &str) -> Result<Module> {
        crate::global!("ffi.ModuleLoadFromFile")?.call((path,))?.get::<Module>()
    }

    /// A module that always is the newest good build of a file, for development.
    ///
    /// Functions that are looked up in it are those of the newest build whenever they are called; each call asks the
    /// system about the file first. A build that does not load, or lacks a function that is in use, is not taken: a
    /// warning is printed, once, and what is there goes on. Write a new file and rename it, as linkers do: one that is
    /// written over in place changes code that may be running.
    ///
    /// # Errors
    /// As [`Module::load`], for the file as it is now.
    pub fn watch(path: &str) -> Result<Module> {
        crate::global!("ffi.ModuleWatch")?.call((path,))?.get::<Module>()
    }

    /// Whether loading the module's file now would give this very code; `true` for modules without a file.
    ///
    /// # Errors
    /// What a foreign module raises.
    pub fn is_current(&self) -> Result<bool> {
        crate::global!("ffi.ModuleIsCurrent")?.call((self,))?.get::<bool>()
    }

    /// The module of the functions that are statically linked into this process, with a common prefix.
    ///
    /// # Errors
    /// `ValueError` if the runtime has no such modules.
    pub fn system_lib(prefix: &str) -> Result<Module> {
        crate::global!("ffi.SystemLib")?.call((prefix,))?.get::<Module>()
    }

    /// Looks a function up; with `query_imports` also in the modules that this one imports.
    ///
    /// # Errors
    /// What a foreign module raises.
    pub fn find_function(&self, name: &str, query_imports: bool) -> Result<Option<PackedFunc>> {
        crate::global!("ffi.ModuleGetFunction")?.call((self, name, query_imports))?.get::<Option<PackedFunc>>()
    }

    /// Looks a function up in this module.
    ///
    /// # Errors
    /// `AttributeError` if there is none of that name.
    pub fn get_function(&self, name: &str) -> Result<PackedFunc> {
        match self.find_function(name, false)? {
            Some(function) => Ok(function),
            None => Err(self.missing(name)),
        }
    }

    /// Names of the functions, sorted; with `query_imports` also of the modules that this one imports.
    ///
    /// Empty if the module does not know them: one of code whose symbols are not listed.
    ///
    /// # Errors
    /// What a foreign module raises.
    pub fn function_names(&self, query_imports: bool) -> Result<Array<crate::String>> {
        crate::global!("ffi.ModuleListFunctions")?.call((self, query_imports))?.get::<Array<crate::String>>()
    }

    /// The file that the module was loaded from; `None` for other modules.
    ///
    /// # Errors
    /// What a foreign module raises.
    pub fn file(&self) -> Result<Option<crate::String>> {
        crate::global!("ffi.ModuleGetFile")?.call((self,))?.get::<Option<crate::String>>()
    }

    /// The error that there is no function of a name: names the file and the nearest function.
    #[doc(hidden)]
    #[cold]
    pub fn missing(&self, name: &str) -> Error {
        let of = match self.file() {
            Ok(Some(file)) => format!("module `{file}`"),
            _ => StdString::from("module"),
        };
        let names: Result<Vec<StdString>> =
            self.function_names(false).map(|names| names.iter().map(|name| StdString::from(&*name)).collect());
        let near = crate::__private::nearest(name, names.iter().flatten().map(StdString::as_str));
        let hint = match (near, names.as_deref(), self.kind().as_deref()) {
            (Some(near), ..) => format!("; did you mean `{near}`?"),
            (None, Ok([]), Ok("library")) => StdString::from("; it exports none, by symbols `__tvm_ffi_NAME`"),
            _ => StdString::new(),
        };
        let name = crate::__private::shorten(name);
        Error::untraced("AttributeError", &format!("{of} has no function `{name}`{hint}"))
    }

    /// Kind of the module, such as `library`.
    ///
    /// # Errors
    /// What a foreign module raises.
    pub fn kind(&self) -> Result<crate::String> {
        crate::global!("ffi.ModuleGetKind")?.call((self,))?.get::<crate::String>()
    }

    /// The modules that this one imports.
    ///
    /// # Errors
    /// What a foreign module raises.
    pub fn imports(&self) -> Result<Array<Module>> {
        crate::global!("ffi.ModuleGetImports")?.call((self,))?.get::<Array<Module>>()
    }

    /// Imports a module: its functions are found by look-ups that query imports, and by this module's code.
    ///
    /// # Errors
    /// `RuntimeError` if the other one imports this one already, directly or not.
    pub fn import_module(&self, other: &Module) -> Result<()> {
        crate::global!("ffi.ModuleImportModule")?.call((self, other)).map(drop)
    }

    /// Imports nothing any more.
    ///
    /// # Errors
    /// What a foreign module raises.
    pub fn clear_imports(&self) -> Result<()> {
        crate::global!("ffi.ModuleClearImports")?.call((self,)).map(drop)
    }

    /// What the module is for: [`Module::SAVED`], [`Module::RUNS`], [`Module::EXPORTED`].
    ///
    /// # Errors
    /// What a foreign module raises.
    pub fn property_mask(&self) -> Result<i32> {
        crate::global!("ffi.ModuleGetPropertyMask")?.call((self,))?.get::<i32>()
    }

    /// The bytes of which the loader of its kind makes the module again, without its imports.
    ///
    /// # Errors
    /// `RuntimeError` that names the kind if it cannot be saved.
    pub fn save_to_bytes(&self) -> Result<Bytes> {
        crate::global!("ffi.ModuleSaveToBytes")?.call((self,))?.get::<Bytes>()
    }

    /// Writes the module to a file; an empty format is the file's extension.
    ///
    /// # Errors
    /// `RuntimeError` that names the kind if it cannot be written, or the file.
    pub fn write_to_file(&self, path: &str, format: &str) -> Result<()> {
        crate::global!("ffi.ModuleWriteToFile")?.call((self, path, format)).map(drop)
    }

    /// Formats of files that the module can write by its own means, as extensions.
    ///
    /// # Errors
    /// What a foreign module raises.
    pub fn write_formats(&self) -> Result<Array<crate::String>> {
        crate::global!("ffi.ModuleGetWriteFormats")?.call((self,))?.get::<Array<crate::String>>()
    }

    /// The module's source text, if it has some; else empty.
    ///
    /// # Errors
    /// What a foreign module raises.
    pub fn inspect_source(&self, format: &str) -> Result<crate::String> {
        crate::global!("ffi.ModuleInspectSource")?.call((self, format))?.get::<crate::String>()
    }

    /// The module as an object.
    pub fn into_object(self) -> ObjectRef {
        self.0
    }

    /// The module as an object, borrowed.
    pub fn as_object(&self) -> &ObjectRef {
        &self.0
    }

    /// A module object as a module.
    ///
    /// # Errors
    /// The object itself, if it is none.
    pub fn try_from_object(object: ObjectRef) -> Result<Module, ObjectRef> {
        if is_instance(object.type_index(), kTVMFFIModule) { Ok(Module(object)) } else { Err(object) }
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
