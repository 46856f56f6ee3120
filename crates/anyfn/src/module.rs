//! Modules: objects that contain functions with names. Compiled code is an example.

use core::fmt;

use alloc::format;
use alloc::string::String as StdString;
use alloc::vec::Vec;

use anyfn_abi::kTVMFFIModule;

use crate::convert::object_wrapper;
use crate::text::{nearest, shorten};
use crate::{Array, Bytes, Error, ObjectRef, PackedFunc, Result, is_instance};

/// A module: an object that contains functions with names. It may import other modules, whose functions it
/// uses.
///
/// ```
/// # use anyfn_loader as _;
/// use anyfn::Module;
///
/// let error = Module::load("no_such_library.so").map(drop).unwrap_err();
/// assert!(error.message().contains("no_such_library.so"), "{error}");
///
/// // Functions that are linked into this process, under names with a prefix.
/// let module = Module::system_lib("my_prefix_")?;
/// assert!(module.find_function("missing")?.is_none());
/// # Ok::<(), anyfn::Error>(())
/// ```
#[derive(Clone)]
#[repr(transparent)]
pub struct Module(ObjectRef);

object_wrapper!(Module, anyfn_abi::kTVMFFIModule, "ffi.Module");

impl Module {
    /// Loads a module from a file. The file extension determines the module kind; `.so` is a shared library.
    ///
    /// Loading a library trusts it: its code runs in this process with full access to it, including the memory of
    /// tensors. A compiled kernel reads and writes its tensor arguments without waiting for guards
    /// ([`TensorWrite`](crate::TensorWrite)) or other threads. The caller must ensure that no other code uses these
    /// tensors during the call.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the extension is unknown, and otherwise the error of the loader.
    pub fn load(path: &str) -> Result<Module> {
        crate::global!("ffi.ModuleLoadFromFile")?.call((path,))?.get::<Module>()
    }

    /// Loads a module from a file, and loads the file again whenever it has been rebuilt. This is intended for
    /// development. If the rebuilt file cannot be loaded, the previous code remains in use.
    ///
    /// Functions that are looked up in the module always call the newest build. Each call first asks the operating
    /// system whether the file has changed. A build that cannot be loaded, or that lacks a function in use, is not
    /// used: a warning is printed once, and the previous build remains in use. Replace the file by renaming a new one,
    /// as linkers do. Overwriting it in place changes code that may be running.
    ///
    /// # Errors
    /// Returns the errors of [`Module::load`] for the current file.
    pub fn watch(path: &str) -> Result<Module> {
        crate::global!("ffi.ModuleWatch")?.call((path,))?.get::<Module>()
    }

    /// Returns true if the module still has the same code as its file, which may have been rebuilt. Always
    /// returns true for a module without a file.
    ///
    /// # Errors
    /// Returns the error of a module that is implemented outside the runtime.
    pub fn is_current(&self) -> Result<bool> {
        crate::global!("ffi.ModuleIsCurrent")?.call((self,))?.get::<bool>()
    }

    /// Returns a module with the statically linked functions of this process. Only functions whose names begin
    /// with `prefix` are included.
    ///
    /// # Errors
    /// Returns `ValueError` if the runtime does not support such modules.
    pub fn system_lib(prefix: &str) -> Result<Module> {
        crate::global!("ffi.SystemLib")?.call((prefix,))?.get::<Module>()
    }

    /// Looks up the function called `name` in this module; `None` if it does not exist.
    ///
    /// # Errors
    /// Returns the error of a module that is implemented outside the runtime.
    pub fn find_function(&self, name: &str) -> Result<Option<PackedFunc>> {
        self.find(name, false)
    }

    /// Looks up the function called `name` in this module and then in the modules that it imports, directly or
    /// indirectly; `None` if it does not exist.
    ///
    /// # Errors
    /// Returns the error of a module that is implemented outside the runtime.
    pub fn find_function_with_imports(&self, name: &str) -> Result<Option<PackedFunc>> {
        self.find(name, true)
    }

    fn find(&self, name: &str, query_imports: bool) -> Result<Option<PackedFunc>> {
        crate::global!("ffi.ModuleGetFunction")?.call((self, name, query_imports))?.get::<Option<PackedFunc>>()
    }

    /// Looks up the function called `name` in this module.
    ///
    /// # Errors
    /// Returns `AttributeError` if the function does not exist.
    pub fn get_function(&self, name: &str) -> Result<PackedFunc> {
        match self.find_function(name)? {
            Some(function) => Ok(function),
            None => Err(self.missing(name)),
        }
    }

    /// Returns the names of the functions in this module, sorted.
    ///
    /// The result is empty if the module cannot list its functions, for example because the symbols of its code are not
    /// listed.
    ///
    /// # Errors
    /// Returns the error of a module that is implemented outside the runtime.
    pub fn function_names(&self) -> Result<Array<crate::String>> {
        self.names(false)
    }

    /// Returns the names of the functions in this module and in the modules that it imports, sorted. Functions that a
    /// module cannot list are omitted; see [`Module::function_names`].
    ///
    /// # Errors
    /// Returns the error of a module that is implemented outside the runtime.
    pub fn function_names_with_imports(&self) -> Result<Array<crate::String>> {
        self.names(true)
    }

    fn names(&self, query_imports: bool) -> Result<Array<crate::String>> {
        crate::global!("ffi.ModuleListFunctions")?.call((self, query_imports))?.get::<Array<crate::String>>()
    }

    /// Returns the type keys of the object types that the library of this module has registered, sorted. The array is
    /// empty if the module is no library.
    ///
    /// # Errors
    /// Returns the error of a module that is implemented outside the runtime.
    pub fn type_keys(&self) -> Result<Array<crate::String>> {
        crate::global!("ffi.ModuleListTypes")?.call((self,))?.get::<Array<crate::String>>()
    }

    /// Returns the path of the file from which the module was loaded; `None` if it was not loaded from a file.
    ///
    /// # Errors
    /// Returns the error of a module that is implemented outside the runtime.
    pub fn file(&self) -> Result<Option<crate::String>> {
        crate::global!("ffi.ModuleGetFile")?.call((self,))?.get::<Option<crate::String>>()
    }

    /// Creates the error for a missing function. The message contains the file, the most similar function name and
    /// the first function names.
    #[doc(hidden)]
    #[cold]
    pub fn missing(&self, name: &str) -> Error {
        let of = match self.file() {
            Ok(Some(file)) => format!("module `{file}`"),
            _ => StdString::from("module"),
        };
        let names: Result<Vec<StdString>> =
            self.function_names().map(|names| names.iter().map(|name| StdString::from(&*name)).collect());
        let near = nearest(name, names.iter().flatten().map(StdString::as_str));
        let hint = match (near, names.as_deref(), self.kind().as_deref()) {
            (Some(near), Ok([_]), _) => format!("; did you mean `{near}`?"),
            (Some(near), Ok(names), _) => {
                format!("; did you mean `{near}`? Its functions are {}", listed(names))
            }
            (None, Ok([]), Ok("library")) => {
                StdString::from("; the library exports no functions (no symbols `__tvm_ffi_NAME`)")
            }
            (None, Ok([]) | Err(_), _) | (Some(_), Err(_), _) => StdString::new(),
            (None, Ok([only]), _) => format!("; its only function is `{}`", shorten(only)),
            (None, Ok(names), _) => format!("; its functions are {}", listed(names)),
        };
        let name = shorten(name);
        Error::untraced("AttributeError", &format!("{of} has no function `{name}`{hint}"))
    }

    /// Returns the kind of the module, such as `library`.
    ///
    /// # Errors
    /// Returns the error of a module that is implemented outside the runtime.
    pub fn kind(&self) -> Result<crate::String> {
        crate::global!("ffi.ModuleGetKind")?.call((self,))?.get::<crate::String>()
    }

    /// Returns the modules that this module imports directly.
    ///
    /// # Errors
    /// Returns the error of a module that is implemented outside the runtime.
    pub fn imports(&self) -> Result<Array<Module>> {
        crate::global!("ffi.ModuleGetImports")?.call((self,))?.get::<Array<Module>>()
    }

    /// Imports the module `other`. Its functions are then found by
    /// [`Module::find_function_with_imports`] and by the code of this module.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the other module already imports this one, directly or indirectly.
    pub fn import_module(&self, other: &Module) -> Result<()> {
        crate::global!("ffi.ModuleImportModule")?.call((self, other)).map(drop)
    }

    /// Removes all imports of the module.
    ///
    /// # Errors
    /// Returns the error of a module that is implemented outside the runtime.
    pub fn clear_imports(&self) -> Result<()> {
        crate::global!("ffi.ModuleClearImports")?.call((self,)).map(drop)
    }

    /// Returns the properties of the module, a combination of [`Module::SAVED`], [`Module::RUNS`] and
    /// [`Module::EXPORTED`].
    ///
    /// # Errors
    /// Returns the error of a module that is implemented outside the runtime.
    pub fn property_mask(&self) -> Result<i32> {
        crate::global!("ffi.ModuleGetPropertyMask")?.call((self,))?.get::<i32>()
    }

    /// Serialises the module without its imports, in the format that the loader of its module kind reads.
    ///
    /// # Errors
    /// Returns `RuntimeError`, which names the kind, if the module cannot be saved.
    pub fn save_to_bytes(&self) -> Result<Bytes> {
        crate::global!("ffi.ModuleSaveToBytes")?.call((self,))?.get::<Bytes>()
    }

    /// Writes the module to a file. If `format` is empty, the file extension determines the format.
    ///
    /// # Errors
    /// Returns `RuntimeError`, which names the kind or the file, if the file cannot be written.
    pub fn write_to_file(&self, path: &str, format: &str) -> Result<()> {
        crate::global!("ffi.ModuleWriteToFile")?.call((self, path, format)).map(drop)
    }

    /// Returns the file extensions of the formats in which the module can be written.
    ///
    /// # Errors
    /// Returns the error of a module that is implemented outside the runtime.
    pub fn write_formats(&self) -> Result<Array<crate::String>> {
        crate::global!("ffi.ModuleGetWriteFormats")?.call((self,))?.get::<Array<crate::String>>()
    }

    /// Returns the source code of the module; empty if it has none.
    ///
    /// # Errors
    /// Returns the error of a module that is implemented outside the runtime.
    pub fn inspect_source(&self, format: &str) -> Result<crate::String> {
        crate::global!("ffi.ModuleInspectSource")?.call((self, format))?.get::<crate::String>()
    }

    /// Converts the module into an object reference.
    pub fn into_object(self) -> ObjectRef {
        self.0
    }

    /// Returns the module as a borrowed object reference.
    pub fn as_object(&self) -> &ObjectRef {
        &self.0
    }

    /// Casts an object reference to a [`Module`].
    ///
    /// # Errors
    /// Returns the object if it is not a module.
    pub fn try_from_object(object: ObjectRef) -> Result<Module, ObjectRef> {
        if is_instance(object.type_index(), kTVMFFIModule) { Ok(Module(object)) } else { Err(object) }
    }
}

/// Formats the first function names as a list for messages, followed by the number of the remaining
/// names.
fn listed(names: &[StdString]) -> StdString {
    /// Maximum number of function names that a message lists.
    const MOST: usize = 10;
    let (first, others) = names.split_at(names.len().min(MOST));
    let mut list = StdString::new();
    for (place, name) in first.iter().enumerate() {
        list.push_str(if place == 0 { "`" } else { ", `" });
        list.push_str(&shorten(name));
        list.push('`');
    }
    if !others.is_empty() {
        list.push_str(&format!(", ... and {} more", others.len()));
    }
    list
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
