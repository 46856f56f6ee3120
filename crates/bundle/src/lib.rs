//! Bundles: a library and all modules that it imports, of any kind, in one file.
//!
//! The modules are stored as a constant of the library, in a format that all loaders of the stable ABI know: the import
//! tree, then each module's kind and bytes. The loader of that kind recreates the module from its bytes. Object files
//! are linked with an additional object file that contains the constant. An already linked library receives
//! the constant through `embed`, which needs no linker.
//!
//! In reading order: [`Bundle`], `tree`, `link`, `elf`, `embed`. `linked` writes files that contain the runtime itself.

// Links the runtime into the tests.
#[cfg(test)]
extern crate anyfn_core as _;

mod elf;
mod embed;
mod files;
mod link;
mod linked;
mod tree;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyfn::{Any, Array, Map, Module, Result, register};

use elf::Ident;
use files::{Folder, Partial};
use link::{C_COMPILERS, CPP_COMPILERS, Choice, Inputs, LINKERS, Tool};
use tree::Tree;

/// Builder of a bundle. Files and modules are added to it, and [`Bundle::write`] creates the bundle's file.
///
/// ```no_run
/// # use anyfn::{Module, Result};
/// # fn device_module() -> Result<Module> { Module::load("kernels.dev") }
/// use anyfn_bundle::Bundle;
///
/// Bundle::new().file("kernel.o").import(&device_module()?).write("kernel.so")?;
/// # Ok::<(), anyfn::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Bundle {
    root: Option<Module>,
    files: Vec<PathBuf>,
    imports: Vec<Module>,
    linker: Option<String>,
    compiler: Option<String>,
    compile_options: Vec<String>,
    link_options: Vec<String>,
    static_runtime: Option<PathBuf>,
}

impl Bundle {
    /// Creates the builder of an empty bundle.
    pub fn new() -> Bundle {
        Bundle::default()
    }

    /// Creates the builder of a bundle that contains `module` and all modules that it imports,
    /// directly or indirectly. If one of these modules is a library, or is exported as object or
    /// source code, its code becomes the code of the bundle. Otherwise the code must be added with
    /// [`Bundle::file`], and `module` becomes an import of it.
    pub fn of(module: &Module) -> Bundle {
        Bundle { root: Some(module.clone()), ..Bundle::default() }
    }

    /// Adds a code file: an object file, a static archive, a C, C++ or assembler source file, or a shared
    /// library. A shared library is already linked, so it must be the only code file.
    #[must_use]
    pub fn file(mut self, path: impl AsRef<Path>) -> Bundle {
        self.files.push(path.as_ref().to_path_buf());
        self
    }

    /// Adds `module` to the imports of the bundle's library. The bundle also contains all modules that
    /// `module` imports.
    #[must_use]
    pub fn import(mut self, module: &Module) -> Bundle {
        self.imports.push(module.clone());
        self
    }

    /// Sets the command that links the library: a compiler or linker, such as a cross compiler, optionally followed by
    /// arguments.
    #[must_use]
    pub fn linker(mut self, command: &str) -> Bundle {
        self.linker = Some(command.to_owned());
        self
    }

    /// Sets the command that compiles source files, optionally followed by arguments.
    #[must_use]
    pub fn compiler(mut self, command: &str) -> Bundle {
        self.compiler = Some(command.to_owned());
        self
    }

    /// Adds an argument for the compiler, such as `-Iinclude`.
    #[must_use]
    pub fn compile_option(mut self, option: &str) -> Bundle {
        self.compile_options.push(option.to_owned());
        self
    }

    /// Adds an argument for the linker, such as `-lfoo`.
    #[must_use]
    pub fn link_option(mut self, option: &str) -> Bundle {
        self.link_options.push(option.to_owned());
        self
    }

    /// Links the runtime itself into the file, so that it needs no other file of anyfn and no loader. `folder` contains
    /// `libanyfn_static.a`, `start.c` and `format.c`; in the Python package, that is `anyfn/lib/static`.
    ///
    /// The name of the file selects its form: `f.so` is a library, `f.a` an archive, and any other name a program, which needs a file
    /// that defines `main` ([`Bundle::file`]). The file can contain functions for the processor only, and no modules. The guide is
    /// `docs/static.md`.
    ///
    /// ```no_run
    /// use anyfn_bundle::Bundle;
    ///
    /// let runtime = "/usr/lib/python3/dist-packages/anyfn/lib/static";
    /// Bundle::new().file("kernel.o").file("main.c").static_runtime(runtime).write("program")?;
    /// # Ok::<(), anyfn::Error>(())
    /// ```
    #[must_use]
    pub fn static_runtime(mut self, folder: impl AsRef<Path>) -> Bundle {
        self.static_runtime = Some(folder.as_ref().to_path_buf());
        self
    }

    /// Writes the bundle to the file `path`. An existing file is replaced once the new one is complete. The same inputs
    /// produce the same bytes.
    ///
    /// # Errors
    /// Returns the error of a module that cannot be saved, with its kind; `RuntimeError` for a file that cannot be
    /// bundled, or with the output of a compiler or linker that failed; `ValueError` if there is no code or if imports
    /// form a cycle. No partial file remains after an error.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if let Some(runtime) = &self.static_runtime {
            return linked::write(self, path, runtime);
        }
        let mut tree = Tree::of(self.root.as_ref(), &self.imports)?;
        let fail = |reason: String| anyfn::error!("RuntimeError", "Cannot bundle {}: {reason}", path.display());
        let folder = Folder::new().map_err(fail)?;
        let code = core::mem::take(&mut tree.code);
        let mut files = self.files.clone();
        files.extend(exported(&code, folder.path())?);
        let parts = Parts::sort(&files).map_err(fail)?;
        if files.is_empty() {
            anyfn::bail!(
                "ValueError",
                "cannot bundle {}: no code was given; pass object files, sources or a library that import the \
                 modules",
                path.display()
            );
        }
        let data = if tree.is_library_alone() { None } else { Some(tree.to_bytes()) };
        let partial = Partial::of(path).map_err(fail)?;
        match parts.libraries.as_slice() {
            [] => self.link(&parts, data.as_deref(), &folder, partial.path()).map_err(fail)?,
            [library] if parts.is_library_alone() => {
                let is_of_module = !code.is_empty();
                with_data(library, data.as_deref(), is_of_module, &partial).map_err(fail)?;
            }
            libraries => {
                return Err(fail(format!(
                    "{} {} already linked, so nothing else can be linked into it; pass the object files it \
                     was linked from",
                    libraries.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and "),
                    if libraries.len() == 1 { "is" } else { "are" },
                )));
            }
        }
        partial.finish().map_err(fail)
    }

    fn link(&self, parts: &Parts, data: Option<&[u8]>, folder: &Folder, out: &Path) -> Result<(), String> {
        let mut objects: Vec<OsString> = parts.objects.iter().map(|(path, _)| path.into()).collect();
        let mut ident = parts.objects.iter().find_map(|(_, ident)| *ident);
        for (index, source) in parts.sources.iter().enumerate() {
            let object = folder.path().join(format!("{index}.o"));
            self.compile(source, &object)?;
            ident = ident.or_else(|| Some(Ident::of(&fs::read(&object).ok()?)?.0));
            objects.push(object.into());
        }
        if let Some(data) = data {
            let ident =
                ident.or_else(|| parts.archives.iter().find_map(|(_, ident)| *ident)).unwrap_or(Ident::HOST);
            ident.check()?;
            let object = folder.path().join("modules.o");
            fs::write(&object, elf::object_file(&ident, data)).map_err(|error| error.to_string())?;
            objects.push(object.into());
        }
        let archives: Vec<OsString> = parts.archives.iter().map(|(path, _)| path.into()).collect();
        let tool = Tool::find(&Choice { given: self.linker.as_deref(), ..LINKERS })?;
        link::link(&tool, out, &Inputs { objects: &objects, archives: &archives, options: &self.link_options })
    }

    fn compile(&self, source: &Path, object: &Path) -> Result<(), String> {
        let choice = if is_cpp(source) { CPP_COMPILERS } else { C_COMPILERS };
        let tool = Tool::find(&Choice { given: self.compiler.as_deref(), ..choice })?;
        let mut args: Vec<OsString> = ["-O2", "-fPIC"].map(OsString::from).into();
        args.extend(self.compile_options.iter().map(OsString::from));
        args.extend(["-c".into(), "-o".into(), object.into(), source.into()]);
        tool.run(&args).map(drop)
    }
}

/// Maximum size in bytes of a file that a bundle includes.
const FILE_MAX: u64 = 4 << 30;

/// Reads a regular file of at most 4 GiB. Devices and pipes, which may never end, are refused without being read.
///
/// # Errors
/// Returns the reason as text, without the path.
pub fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut options = fs::File::options();
    // Opening a pipe would block until a writer opens it.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true), libc::O_NONBLOCK);
    let file = options.read(true).open(path).map_err(text)?;
    let metadata = file.metadata().map_err(text)?;
    if !metadata.is_file() {
        let kind = if metadata.is_dir() { "a directory" } else { "a device, pipe or socket" };
        return Err(format!("expected a regular file, got {kind}"));
    }
    let size = metadata.len();
    if size > FILE_MAX {
        return Err(format!("expected a file of at most {FILE_MAX} bytes, got {size}"));
    }
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(size as usize)
        .map_err(|_| format!("cannot allocate memory for its {size} bytes"))?;
    // The file may grow while it is read.
    std::io::Read::read_to_end(&mut std::io::Read::take(file, FILE_MAX), &mut bytes).map_err(text)?;
    Ok(bytes)
}

/// Writes a copy of the file `library` to `out`, with the serialised modules `data` embedded. Returns an
/// error if the library already contains modules and `replaces` is false.
fn with_data(library: &Path, data: Option<&[u8]>, replaces: bool, out: &Partial) -> Result<(), String> {
    let fail = |reason: String| format!("{}: {reason}", library.display());
    let file = read_file(library).map_err(fail)?;
    let carries = embed::carries(&file).map_err(fail)?;
    if carries && !replaces {
        return Err(fail(
            "it already contains modules; load it, change its imports, and export the module".to_owned(),
        ));
    }
    let new = match data {
        Some(data) => embed::embed(&file, data).map_err(fail)?,
        // The library contained modules, and the new bundle has none.
        None if carries => {
            embed::embed(&file, &Tree::of(None, &[]).map_err(|e| fail(e.to_string()))?.to_bytes())
                .map_err(fail)?
        }
        None => file,
    };
    out.write(&new, library)
}

/// Returns one code file for each module in `code`: for a library, its existing file; for any other module,
/// an object or source file that the module writes to `folder`.
fn exported(code: &[Module], folder: &Path) -> Result<Vec<PathBuf>> {
    const FORMATS: [&str; 5] = ["o", "obj", "c", "cc", "cpp"];
    let mut files = Vec::new();
    for (index, module) in code.iter().enumerate() {
        let kind = module.kind()?;
        if &*kind == "library"
            && let Some(file) = module.file()?
        {
            if !module.is_current()? {
                anyfn::bail!(
                    "RuntimeError",
                    "{file} has changed since it was loaded; load it again before it is exported"
                );
            }
            files.push(PathBuf::from(&*file));
            continue;
        }
        let formats = module.write_formats()?;
        let Some(format) = FORMATS.iter().find(|known| formats.iter().any(|format| &*format == **known)) else {
            anyfn::bail!(
                "RuntimeError",
                "the module of kind `{kind}` contains code to be linked, but cannot write it in any of the \
                 formats {}",
                FORMATS.join(", ")
            );
        };
        let path = folder.join(format!("module{index}.{format}"));
        module.write_to_file(&path.to_string_lossy(), format)?;
        files.push(path);
    }
    Ok(files)
}

fn is_cpp(path: &Path) -> bool {
    path.extension()
        .and_then(|text| text.to_str())
        .is_some_and(|text| matches!(text, "cc" | "cpp" | "cxx" | "C"))
}

/// Code files of a bundle, grouped by type.
#[derive(Default)]
struct Parts {
    sources: Vec<PathBuf>,
    objects: Vec<(PathBuf, Option<Ident>)>,
    archives: Vec<(PathBuf, Option<Ident>)>,
    libraries: Vec<PathBuf>,
}

impl Parts {
    fn sort(files: &[PathBuf]) -> Result<Parts, String> {
        let mut parts = Parts::default();
        for path in files {
            let fail = |reason: &str| format!("{}: {reason}", path.display());
            let path = &as_argument(path);
            let file = read_file(path).map_err(|error| fail(&error))?;
            let extension = path.extension().and_then(|text| text.to_str()).unwrap_or_default();
            if matches!(extension, "c" | "s" | "S") || is_cpp(path) {
                parts.sources.push(path.clone());
            } else if file.starts_with(b"!<arch>\n") || file.starts_with(b"!<thin>\n") {
                parts.archives.push((path.clone(), ident_in_archive(&file)));
            } else {
                match Ident::of(&file) {
                    Some((_, elf::SHARED)) => parts.libraries.push(path.clone()),
                    Some((ident, elf::RELOCATABLE)) => parts.objects.push((path.clone(), Some(ident))),
                    Some(_) => return Err(fail("it is a program, not an object file or a library")),
                    // Such as the intermediate code of a compiler, which the linker may understand.
                    None if matches!(extension, "o" | "obj" | "bc") => parts.objects.push((path.clone(), None)),
                    None => {
                        return Err(fail(
                            "it is not an object file, static archive, C or C++ source, or shared library",
                        ));
                    }
                }
            }
        }
        Ok(parts)
    }

    fn is_library_alone(&self) -> bool {
        self.sources.is_empty() && self.objects.is_empty() && self.archives.is_empty()
    }
}

/// Returns a path that compilers take for that of a file: one that begins with `-` would be an option, and one with `@` a file of options.
fn as_argument(path: &Path) -> PathBuf {
    match path.as_os_str().as_encoded_bytes() {
        [b'-' | b'@', ..] => Path::new(".").join(path),
        _ => path.to_path_buf(),
    }
}

/// Returns the ELF format and machine of the first object file in a static archive.
fn ident_in_archive(archive: &[u8]) -> Option<Ident> {
    members(archive).find_map(|member| match Ident::of(member) {
        Some((ident, elf::RELOCATABLE)) => Some(ident),
        _ => None,
    })
}

/// Returns the contents of the members of a static archive, up to the first one that is damaged. Those of a thin archive are in other
/// files.
fn members(archive: &[u8]) -> impl Iterator<Item = &[u8]> {
    const HEAD: usize = 60;
    let mut at: usize = 8;
    core::iter::from_fn(move || {
        let head = archive.get(at..at.checked_add(HEAD)?)?;
        let size: usize = core::str::from_utf8(&head[48..58]).ok()?.trim_end().parse().ok()?;
        let start = at + HEAD;
        // Members begin at even offsets.
        at = start.checked_add(size)?.checked_add(size % 2)?;
        Some(&archive[start.min(archive.len())..start.checked_add(size)?.min(archive.len())])
    })
}

/// Applies the keyword options of the global function `anyfn.bundle` to the builder.
fn with_options(mut bundle: Bundle, options: &Map<anyfn::String, Any>) -> Result<Bundle> {
    for (name, value) in options.iter_any() {
        let name = name.get::<&str>()?;
        let texts = || -> Result<Vec<String>> {
            Ok(value.get::<Array<anyfn::String>>()?.iter().map(|text| text.to_string()).collect())
        };
        match name {
            "linker" => bundle.linker = Some(value.get::<String>()?),
            "compiler" => bundle.compiler = Some(value.get::<String>()?),
            "compile_options" => bundle.compile_options = texts()?,
            "link_options" => bundle.link_options = texts()?,
            "static_runtime" => bundle.static_runtime = Some(PathBuf::from(value.get::<String>()?)),
            _ => anyfn::bail!(
                "ValueError",
                "unknown bundle option `{name}`; known are linker, compiler, compile_options, link_options, static_runtime"
            ),
        }
    }
    Ok(bundle)
}

/// Writes a bundle of the code files `files`, which imports `modules`, to the file `path`. If `root` is
/// given, the bundle contains `root` and all modules that it imports. Options: `linker` and `compiler`
/// (commands), `compile_options` and `link_options` (lists of arguments), and `static_runtime` (the folder of the static
/// runtime, which is linked into the file; see [`Bundle::static_runtime`]).
#[register("anyfn.bundle", blocking)]
fn bundle(
    path: &str,
    root: Option<Module>,
    files: Array<anyfn::String>,
    modules: Array<Module>,
    options: Map<anyfn::String, Any>,
) -> Result<()> {
    let bundle = Bundle {
        root,
        files: files.iter().map(|file| PathBuf::from(&*file)).collect(),
        imports: modules.iter().collect(),
        ..Bundle::default()
    };
    with_options(bundle, &options)?.write(path)
}
