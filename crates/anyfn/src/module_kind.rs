//! User-defined module kinds.

use alloc::format;
use alloc::string::String as StdString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::{Any, Array, Bytes, Module, PackedFunc, Result, String, TypedPackedFunc, registry};

/// Implementation of a module kind, such as one that holds code for a device.
///
/// ```
/// # use anyfn_loader as _;
/// use std::sync::Arc;
/// use anyfn::{Module, ModuleKind, PackedFunc, Result, TypedPackedFunc};
///
/// struct Constants(Vec<u8>);
///
/// impl ModuleKind for Constants {
///     fn kind(&self) -> &str {
///         "doc_constants"
///     }
///     fn get_function(self: &Arc<Self>, name: &str) -> Result<Option<PackedFunc>> {
///         let this = self.clone();
///         let at = move |index: u32| this.0.get(index as usize).map(|byte| i64::from(*byte));
///         Ok((name == "at").then(|| TypedPackedFunc::from_fn(at).into()))
///     }
///     fn property_mask(&self) -> i32 {
///         Module::SAVED | Module::RUNS
///     }
///     fn save_to_bytes(&self) -> Result<Vec<u8>> {
///         Ok(self.0.clone())
///     }
/// }
///
/// Module::register_loader("doc_constants", &[], |bytes| Module::new(Constants(bytes.to_vec())))?;
/// let module = Module::new(Constants(vec![3, 5]))?;
/// assert_eq!(module.get_function("at")?.call((1,))?.get::<i64>()?, 5);
/// assert_eq!(&*module.save_to_bytes()?, [3, 5]);
/// # Ok::<(), anyfn::Error>(())
/// ```
pub trait ModuleKind: Send + Sync + 'static {
    /// Returns the name of the module kind, under which its loader is registered. It must consist of letters,
    /// digits and `_`, and must not be `library`.
    fn kind(&self) -> &str;

    /// Returns the function called `name`; `None` if it does not exist. The function can hold a clone of `self`
    /// to keep the module's data alive.
    ///
    /// # Errors
    /// An error is returned to the caller that looks up the function.
    fn get_function(self: &Arc<Self>, name: &str) -> Result<Option<PackedFunc>>;

    /// Returns the names of the functions in any order. Functions whose names the module does not know in
    /// advance are omitted.
    fn functions(&self) -> Vec<StdString> {
        Vec::new()
    }

    /// Returns the properties of the module, a combination of [`Module::SAVED`], [`Module::RUNS`] and
    /// [`Module::EXPORTED`].
    fn property_mask(&self) -> i32 {
        Module::RUNS
    }

    /// Serialises the module in the format that the loader of its module kind reads.
    ///
    /// # Errors
    /// Returns an error if the module cannot be saved.
    fn save_to_bytes(&self) -> Result<Vec<u8>> {
        crate::bail!("RuntimeError", "a module of kind `{}` cannot be saved as bytes", self.kind())
    }

    /// Returns the file extensions of the formats that [`ModuleKind::write_to_file`] writes.
    fn write_formats(&self) -> Vec<StdString> {
        Vec::new()
    }

    /// Writes the module to a file in the requested format and returns true. If this function returns false,
    /// the caller writes the result of [`ModuleKind::save_to_bytes`] to the file instead.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    fn write_to_file(&self, _path: &str, _format: &str) -> Result<bool> {
        Ok(false)
    }

    /// Returns the source code of the module; empty if it has none.
    ///
    /// # Errors
    /// An error is returned to the caller that requested the source code.
    fn inspect_source(&self, _format: &str) -> Result<StdString> {
        Ok(StdString::new())
    }
}

impl Module {
    /// Property bit: the module can be saved as bytes.
    pub const SAVED: i32 = 1;
    /// Property bit: the functions of the module can be called.
    pub const RUNS: i32 = 2;
    /// Property bit: the module contains code for the CPU of the host. An export writes this code as an
    /// object file or C source and links it into a library.
    pub const EXPORTED: i32 = 4;

    /// Creates a module of a user-defined kind.
    ///
    /// # Errors
    /// Returns `ValueError` if the name of the kind is empty, contains a NUL character or is reserved for libraries.
    pub fn new<T: ModuleKind>(content: T) -> Result<Module> {
        let this = Arc::new(content);
        let texts = |texts: Vec<StdString>| Array::<String>::try_from_iter(texts.into_iter().map(String::from));
        let get_function = {
            let this = this.clone();
            TypedPackedFunc::from_fn(move |name: &str| this.get_function(name))
        };
        let functions = {
            let this = this.clone();
            TypedPackedFunc::from_fn(move || texts(this.functions()))
        };
        let save = {
            let this = this.clone();
            TypedPackedFunc::from_fn(move || this.save_to_bytes().map(|bytes| Bytes::from(&*bytes)))
        };
        let formats = {
            let this = this.clone();
            TypedPackedFunc::from_fn(move || texts(this.write_formats()))
        };
        let write = {
            let this = this.clone();
            TypedPackedFunc::from_fn(move |path: &str, format: &str| this.write_to_file(path, format))
        };
        let inspect = {
            let this = this.clone();
            TypedPackedFunc::from_fn(move |format: &str| this.inspect_source(format).map(String::from))
        };
        let parts = [
            ("get_function", PackedFunc::from(get_function)),
            ("functions", functions.into()),
            ("save_to_bytes", save.into()),
            ("write_formats", formats.into()),
            ("write_to_file", write.into()),
            ("inspect_source", inspect.into()),
        ];
        let mut args: Vec<Any> = Vec::with_capacity(2 * parts.len() + 3);
        args.extend([Any::new(this.kind())?, Any::new("property_mask")?, Any::new(this.property_mask())?]);
        for (name, part) in parts {
            args.extend([Any::new(name)?, Any::new(part)?]);
        }
        crate::global!("ffi.ModuleCreate")?.call(&*args)?.get::<Module>()
    }

    /// Registers a loader that creates modules of a kind from bytes.
    ///
    /// The bytes come from libraries that contain modules of this kind, or from files with one of `extensions`.
    ///
    /// # Errors
    /// Returns `RuntimeError` if such a loader is already registered.
    pub fn register_loader(
        kind: &str,
        extensions: &[&str],
        loader: impl Fn(&[u8]) -> Result<Module> + Send + Sync + 'static,
    ) -> Result<()> {
        let loader = Arc::new(loader);
        let of_bytes = loader.clone();
        registry::register(&format!("ffi.Module.load_from_bytes.{kind}"))
            .set_body_typed(move |bytes: Bytes| of_bytes(&bytes))?;
        for extension in extensions {
            let of_file = loader.clone();
            registry::register(&format!("ffi.Module.load_from_file.{extension}"))
                .set_body_typed(move |path: &str, _format: &str| of_file(&read(path)?))?;
        }
        Ok(())
    }
}

#[cfg(feature = "std")]
fn read(path: &str) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| crate::error!("RuntimeError", "Cannot read {path}: {error}"))
}

#[cfg(not(feature = "std"))]
fn read(path: &str) -> Result<Vec<u8>> {
    crate::bail!("RuntimeError", "Cannot read {path}: this build of the runtime has no file access")
}
