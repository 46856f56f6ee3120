//! Builds modules: lowers them, generates C, compiles it or uses a cached library, and loads the result.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyfn::{Array, Map, Module, PackedFunc, Ref, Result, bail, registry};
use anyfn_codegen_c::DeviceCode;
use anyfn_ir::func::{IRModule, PrimFunc};
use anyfn_ir::target::Target;
use anyfn_passes::Pipeline;

use crate::cache::{self, Cache};
use crate::compile::{Compiler, Form, Progress, io_error};
use crate::foreign::{ForeignKernels, ForeignModule};
use crate::lower;
use crate::target;
use crate::write::write;

/// Input of a build: a module, a function, or several functions.
pub trait Buildable {
    /// Converts the input to a module.
    ///
    /// # Errors
    /// Returns `ValueError` if two functions have the same name.
    fn to_module(&self) -> Result<Ref<IRModule>>;
}

impl Buildable for Ref<IRModule> {
    fn to_module(&self) -> Result<Ref<IRModule>> {
        Ok(self.clone())
    }
}

impl Buildable for Ref<PrimFunc> {
    fn to_module(&self) -> Result<Ref<IRModule>> {
        [self.clone()].as_slice().to_module()
    }
}

impl Buildable for [Ref<PrimFunc>] {
    fn to_module(&self) -> Result<Ref<IRModule>> {
        let mut functions: Vec<(String, Ref<PrimFunc>)> = Vec::with_capacity(self.len());
        for func in self {
            let name =
                func.attrs.get("global_symbol")?.map_or(Ok("main".to_owned()), |name| name.get::<String>())?;
            if functions.iter().any(|(known, _)| *known == name) {
                bail!("ValueError", "two functions have the name `{name}`");
            }
            functions.push((name, func.clone()));
        }
        Ok(Ref::new(IRModule { functions: Map::try_from_iter(functions)?, attrs: Map::new() }))
    }
}

/// Options of a build.
#[derive(Clone)]
pub struct BuildOptions {
    /// Target for which the module is built. The default is the target of the module.
    pub target: Option<Ref<Target>>,
    /// Passes that lower the module. The default is the default pipeline.
    pub pipeline: Option<Ref<Pipeline>>,
    /// True to use cached libraries and to cache new ones.
    pub use_cache: bool,
    /// Function that is called every second while the C compiler runs, with a message and the elapsed seconds.
    /// Without such a function, a message is printed once, provided that standard error is a terminal, outside of
    /// continuous integration. The environment variable `ANYFN_PROGRESS` overrides this: `0` suppresses the message, and
    /// `1` prints it anywhere.
    pub progress: Option<PackedFunc>,
}

impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions { target: None, pipeline: None, use_cache: true, progress: None }
    }
}

/// Returns the source of functions in the dialect of their target, such as C. The functions are lowered by
/// `pipeline` or the default pipeline.
///
/// # Errors
/// Returns the error of a pass or of the code generator, or `ValueError` if there are no functions.
pub fn source(what: &(impl Buildable + ?Sized), pipeline: Option<&Ref<Pipeline>>) -> Result<String> {
    source_of(&what.to_module()?, pipeline)
}

fn source_of(module: &Ref<IRModule>, pipeline: Option<&Ref<Pipeline>>) -> Result<String> {
    if module.functions.is_empty() {
        bail!("ValueError", "cannot build the module: it has no functions");
    }
    let target = target::of(module)?;
    anyfn_codegen_c::generate(&*lower(module, pipeline)?, &target)
}

/// Returns the C source of a module that is lowered by the default pipeline. Reuses a source from `cache`, or
/// one of the last 64 sources that this process generated or read.
fn source_again(module: &Ref<IRModule>, cache: Option<&Cache>) -> Result<Arc<str>> {
    const MOST: usize = 64;
    /// C sources that were most recently generated or read from the cache, each with its serialised module.
    static MADE: Mutex<Vec<(String, Arc<str>)>> = Mutex::new(Vec::new());
    let made = || MADE.lock().unwrap_or_else(PoisonError::into_inner);
    // The serialised module includes names, which the messages of generated code contain.
    let save = registry::get("ffi.ToJSONGraphString")?.call((module.clone(), anyfn::Any::NONE));
    let Ok(saved) = save.and_then(|text| text.get::<String>()) else {
        // The module contains something that cannot be serialised, such as a function.
        return source_of(module, None).map(Arc::from);
    };
    let known = made().iter().find(|(known, _)| *known == saved).map(|(_, source)| source.clone());
    if let Some(source) = known {
        return Ok(source);
    }
    let source: Arc<str> = match cache.and_then(|cache| cache.source(&saved)) {
        Some(source) => source.into(),
        None => {
            let source = source_of(module, None)?;
            if let Some(cache) = cache {
                cache.keep_source(&saved, &source);
            }
            source.into()
        }
    };
    let mut made = made();
    if made.len() == MOST {
        made.remove(0);
    }
    made.push((saved, source.clone()));
    Ok(source)
}

/// Compiles functions for their target and loads them. The functions are lowered by `pipeline` or the default
/// pipeline.
///
/// # Errors
/// Returns the errors of [`build_with`].
pub fn build(what: &(impl Buildable + ?Sized), pipeline: Option<&Ref<Pipeline>>) -> Result<Module> {
    build_with(what, &BuildOptions { pipeline: pipeline.cloned(), ..BuildOptions::default() })
}

/// Compiles functions as specified by `options`, and loads the resulting module.
///
/// If the cache contains a library that the same compiler made from the same source with the same arguments,
/// that library is used. The environment variable `ANYFN_CACHE_DIR` specifies the folder of the cache. A
/// module for another processor architecture is not loaded, but it can be exported.
///
/// # Errors
/// Returns the error of a pass or of the code generator, or `ValueError` if there are no functions or no compiler for the
/// dialect of the target. Returns `RuntimeError` if the C compiler fails, with its output, or if it does not exist.
pub fn build_with(what: &(impl Buildable + ?Sized), options: &BuildOptions) -> Result<Module> {
    let module = what.to_module()?;
    let target = options.target.clone().map_or_else(|| target::of(&module), Ok)?;
    target.check()?;
    let dialect = anyfn_codegen_c::dialect_of(&target)?;
    if dialect != anyfn_codegen_c::HOST_DIALECT && target.device_kind().is_none() {
        bail!(
            "ValueError",
            "cannot build a module for dialect `{dialect}`: there is no compiler for it; use `source` to obtain its source"
        );
    }
    let module = Target::put(&target, &module)?;
    let cache = if options.use_cache { Cache::open() } else { None };
    let text = match &options.pipeline {
        Some(pipeline) => source_of(&module, Some(pipeline))?.into(),
        None => source_again(&module, cache.as_ref())?,
    };
    let (text, device) = anyfn_codegen_c::parts(&text);
    let compiler = Arc::new(Compiler::of(&target)?);
    let what = names(&module);
    let progress = Progress { what: &what, callback: options.progress.as_ref() };
    let make = |folder: &Path| make(&compiler, text, folder, &progress);
    let find = || -> Result<PathBuf> {
        if let Some(library) = cache.as_ref().and_then(|cache| cache.get(&compiler.identity, text)) {
            return Ok(library);
        }
        let folder = cache::temporary()?;
        make(folder.path())?;
        let library = folder.path().join(cache::LIBRARY);
        let kept = cache.as_ref().and_then(|cache| cache.keep(&compiler.identity, text, &library));
        kept.map_or_else(|| copied(&library), Ok)
    };
    let found = find()?;
    if !target.is_here() {
        let arch = target.arch.to_string();
        let Some(device) = device.filter(|_| target.is_for_page()) else {
            return Module::new(ForeignModule { compiler, library: found, arch, kernels: None });
        };
        device.sources().try_for_each(anyfn_wgsl::check)?;
        let kernels: Arc<str> = device.source.into();
        let module =
            Module::new(ForeignModule { compiler, library: found, arch, kernels: Some(kernels.clone()) })?;
        module.import_module(&Module::new(ForeignKernels { kernels })?)?;
        return Ok(module);
    }
    // A library caches the functions that it looks up, so each module that looks up functions gets a separate
    // copy of the library. The loader accepts only paths that are valid UTF-8.
    let own = |found: PathBuf| {
        let is_shared = cache.is_some() && (text.contains(LOOKS_UP) || found.to_str().is_none());
        if is_shared { copied(&found) } else { Ok(found) }
    };
    let mut library = own(found.clone())?;
    let module = match (load(&library), &cache) {
        (Ok(module), _) => module,
        // The library is intact, but may have been built for another machine that uses the same folder.
        (Err(_), Some(cache)) => {
            cache.remove(&found);
            library = own(find()?)?;
            load(&library)?
        }
        (Err(error), None) => return Err(error),
    };
    BUILT.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(library, compiler);
    if let Some(device) = device {
        module.import_module(&kernels(&device, &target)?)?;
    }
    Ok(module)
}

/// Creates the module that contains the kernels of a device. The host code finds them among its imports.
fn kernels(device: &DeviceCode<'_>, target: &Target) -> Result<Module> {
    let name = format!("anyfn.{}_module", device.kind);
    let Ok(create) = registry::get(&name) else {
        bail!("RuntimeError", "this runtime has no modules of kind `{}`", device.kind)
    };
    let mut kernels: Vec<(anyfn::String, Array<anyfn::String>)> = Vec::new();
    for (kernel, params) in &device.kernels {
        kernels.push((
            anyfn::String::from(*kernel),
            params.iter().map(|param| anyfn::String::from(*param)).collect(),
        ));
    }
    let kernels = Map::<anyfn::String, Array<anyfn::String>>::try_from_iter(kernels)?;
    let has_architectures = target.device_kind().is_some_and(|kind| !kind.architectures.is_empty());
    match has_architectures {
        true => create.call((device.source, kernels, anyfn::Any::NONE, &*target.device_arch))?.get::<Module>(),
        false => create.call((device.source, kernels, anyfn::Any::NONE))?.get::<Module>(),
    }
}

/// Name that occurs in the generated source of every library that looks up packed functions.
const LOOKS_UP: &str = "__tvm_ffi__library_ctx";

/// C compiler of each library that this process has built, keyed by the path of the library.
static BUILT: Mutex<Option<HashMap<PathBuf, Arc<Compiler>>>> = Mutex::new(None);

/// Copies a library and its source to a new folder. Returns the path of the copied library.
fn copied(library: &Path) -> Result<PathBuf> {
    let folder = cache::scratch()?;
    for name in [cache::LIBRARY, cache::SOURCE] {
        fs::copy(library.with_file_name(name), folder.join(name)).map_err(|error| io_error(&folder, &error))?;
    }
    Ok(folder.join(cache::LIBRARY))
}

fn load(library: &Path) -> Result<Module> {
    let Some(name) = library.to_str() else {
        bail!("OSError", "cannot load library {}: its path is not valid UTF-8", library.display())
    };
    registry::get("ffi.ModuleLoadFromFile")?.call((name,))?.get::<Module>()
}

/// Writes a source file to a folder and compiles it to a library in the same folder. If the compiler fails,
/// the source is kept for inspection.
fn make(compiler: &Compiler, text: &str, folder: &Path, progress: &Progress<'_>) -> Result<()> {
    let source = folder.join(cache::SOURCE);
    fs::write(&source, text).map_err(|error| io_error(folder, &error))?;
    compiler.run(&source, &folder.join(cache::LIBRARY), Form::Library, progress).map_err(|error| {
        if error.kind() != "RuntimeError" {
            return error;
        }
        let kept = tempfile::Builder::new().prefix("anyfn-failed-").suffix(".c").tempfile().and_then(|file| {
            fs::write(file.path(), text)?;
            file.into_temp_path().keep().map_err(std::io::Error::from)
        });
        match kept {
            Ok(path) => error.with_note(&format!("the source is kept in {}", path.display())),
            Err(_) => error,
        }
    })
}

/// Returns the names of the first three functions of a module and the number of further functions,
/// for use in messages.
fn names(module: &IRModule) -> String {
    let mut names: Vec<String> = module.functions.iter().map(|(name, _)| format!("`{name}`")).collect();
    names.sort();
    if names.len() > 3 {
        let more = names.split_off(3).len();
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

/// Returns the C source of a module that was built in this process, or `None` for other modules.
///
/// # Errors
/// Returns `OSError` if the source can no longer be read.
pub fn source_of_built(module: &Module) -> Result<Option<String>> {
    let Some(file) = module.file()?.map(|file| PathBuf::from(&*file)) else { return Ok(None) };
    let is_ours =
        BUILT.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|b| b.contains_key(&file));
    let source = file.with_file_name(cache::SOURCE);
    let read = || fs::read_to_string(&source).map_err(|error| io_error(&source, &error));
    if is_ours { read().map(Some) } else { Ok(None) }
}

/// Writes a module that was built in this process. The extension of the path selects C source
/// (`f.c`), an object file (`f.o`), or a library (`f.so`).
///
/// # Errors
/// Returns `ValueError` for another extension, for a module that was not built in this process, and for a module with kernels
/// of a device. Returns the error of
/// the C compiler, or `OSError` if the file cannot be written.
pub fn export(module: &Module, path: &Path) -> Result<()> {
    let file = module.file()?.map(|file| PathBuf::from(&*file));
    let built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let found = file.and_then(|file| Some((built.as_ref()?.get(&file)?.clone(), file)));
    drop(built);
    // The files of a build contain the host code alone.
    for import in module.imports()?.iter() {
        let kind = import.kind()?;
        if found.is_some() && Target::DEVICES.iter().any(|device| device.kind == &*kind) {
            bail!(
                "ValueError",
                "cannot write {}: the module imports kernels of kind `{kind}`, which only a bundle contains; export the module \
                 as a library (Python: `module.export(\"f.so\")`, Rust: `anyfn_host::bundle`)",
                path.display()
            );
        }
    }
    match found {
        Some((compiler, library)) => write(&compiler, &library, None, path),
        None if &*module.kind()? == "foreign" => module.write_to_file(&path.to_string_lossy(), ""),
        None => {
            bail!(
                "ValueError",
                "cannot export the module as source or object file: `build` did not create it in this process"
            )
        }
    }
}
