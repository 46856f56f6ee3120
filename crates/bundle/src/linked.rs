//! Files that contain the runtime itself: a program, an archive or a library that needs neither `libanyfn.so` nor a loader.
//!
//! The code is linked with `libanyfn_static.a`, the core of the runtime (`crates/static`), of which the linker keeps what is used. A
//! program is linked without a C library; start-up code in C takes its place.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyfn::{Module, Result, registry};

use super::elf::{self, Ident};
use super::files::{Folder, Partial};
use super::link::{C_COMPILERS, Choice, Tool};
use super::{Bundle, Parts, ident_in_archive, is_cpp, members, read_file};

/// File of the runtime in its folder, and the sources of the start-up code of programs.
const ARCHIVE: &str = "libanyfn_static.a";
const START: [&str; 2] = ["start.c", "format.c"];
/// Source of a function that a C library would provide to programs and libraries.
const UNWIND: &str = "unwind.c";

const ARCHIVERS: Choice<'static> = Choice {
    given: None,
    variables: &["AR"],
    names: &["ar", "gcc-ar", "llvm-ar"],
    what: "archiver",
    hint: "install `ar` (`apt-get install binutils`), or set the environment variable AR",
};

const DRIVERS: Choice<'static> = Choice {
    given: None,
    variables: &["ANYFN_LINKER", "CC"],
    names: &["cc", "gcc", "clang"],
    what: "C compiler",
    hint: "it links the file; install one (`apt-get install gcc libc6-dev`), or set `linker` or the environment variable CC",
};

/// Options for sources: small code in sections that the linker can leave out, which needs nothing of a C library.
const COMPILE: &str = "-Os -fPIC -ffunction-sections -fdata-sections -fno-stack-protector -fno-asynchronous-unwind-tables \
                       -U_FORTIFY_SOURCE";

/// Options with which a program is linked.
const PROGRAM: &str =
    "-static -no-pie -nostdlib -Wl,--gc-sections -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,norelro -s";

/// Options with which a library is linked.
const LIBRARY: &str = "-shared -Wl,--gc-sections -Wl,-Bsymbolic -Wl,--no-undefined -s";

/// Symbols of a library: its functions, the variables through which another runtime that loads the library serves it, and what a
/// program without a runtime needs for errors and results.
const EXPORTS: &str = "{ global: __tvm_ffi_*; __TVM*; TVMFFIError*; TVMFFIObject*; TVMFFIGetTypeInfo; TVMFFIString*; TVMFFIBytes*; \
                       TVMFFIAny*; local: *; };\n";

/// Functions of the runtime that need a loader, with what a module uses them for.
const LACKING: [(&str, &str); 2] = [
    ("TVMFFIEnvModLookupFromImports", "calls of functions by their names"),
    ("TVMFFIEnvModRegisterSystemLibSymbol", "the module of the functions that are linked into the program"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Program,
    Archive,
    Library,
}

impl Form {
    fn of(path: &Path) -> Result<Form> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let extension = path.extension().and_then(|text| text.to_str()).unwrap_or_default();
        match extension {
            "a" => Ok(Form::Archive),
            "so" => Ok(Form::Library),
            "o" | "c" | "cc" | "cpp" | "wasm" | "dll" | "dylib" | "exe" => anyfn::bail!(
                "ValueError",
                "cannot write {} with the static runtime: expected a name that ends in `.so` (a library) or `.a` (an archive), or that \
                 has no extension (a program)",
                path.display()
            ),
            _ if name.contains(".so.") => Ok(Form::Library),
            _ => Ok(Form::Program),
        }
    }
}

/// Writes the code files and the module of `bundle`, and the runtime in the folder `runtime`, to the file `path`.
pub(super) fn write(bundle: &Bundle, path: &Path, runtime: &Path) -> Result<()> {
    let form = Form::of(path)?;
    let because = |kind: &str, reason: &str| {
        anyfn::Error::new(kind, &format!("cannot write {} with the static runtime: {reason}", path.display()))
    };
    let fail = |reason: String| because("RuntimeError", &reason);
    if !bundle.imports.is_empty() {
        return Err(because("ValueError", "it has no modules that another module could import"));
    }
    if form == Form::Program && bundle.files.is_empty() {
        return Err(because(
            "ValueError",
            "a program needs the file that defines `main`; pass it, such as `main.c`",
        ));
    }
    let folder = Folder::new().map_err(fail)?;
    let mut files = bundle.files.clone();
    if let Some(module) = &bundle.root {
        files.push(
            object_of(module, folder.path())
                .map_err(|error| because(error.kind(), error.message()).with_cause(&error))?,
        );
    }
    if files.is_empty() {
        return Err(because("ValueError", "no code was given; pass a module, object files or sources"));
    }
    let parts = Parts::sort(&files).map_err(fail)?;
    if let Some(library) = parts.libraries.first() {
        let reason =
            format!("{} is a shared library; pass the object files it was linked from", library.display());
        return Err(because("ValueError", &reason));
    }
    let archive = runtime.join(ARCHIVE);
    let content = read_file(&archive).map_err(|reason| {
        fail(format!("this installation of anyfn has no static runtime: {}: {reason}", archive.display()))
    })?;
    let machine = ident_in_archive(&content);
    drop(content);
    let others = parts.objects.iter().chain(&parts.archives);
    for (file, ident) in others {
        if let (Some(ident), Some(machine)) = (ident, &machine)
            && !ident.is_like(machine)
        {
            let name = name_of(file, &folder);
            let reason = format!("{name} was compiled for another kind of processor than the runtime");
            return Err(because("ValueError", &reason));
        }
    }
    let partial = Partial::of(path).map_err(fail)?;
    let objects = objects(bundle, &parts, &folder).map_err(|(kind, reason)| because(kind, &reason))?;
    check_archives(&parts).map_err(|(kind, reason)| because(kind, &reason))?;
    let linked = Linked { bundle, archive: &archive, runtime, folder: &folder, out: &partial };
    match form {
        Form::Archive => linked.archive(objects, &parts),
        Form::Library => linked.library(objects, &parts),
        Form::Program => linked.program(objects, &parts),
    }
    .map_err(fail)?;
    partial.finish().map_err(fail)
}

/// Writes the object file of a module that the compiler has built to `folder`, and returns its path.
fn object_of(module: &Module, folder: &Path) -> Result<PathBuf> {
    let path = folder.join("module.o");
    let kind = module.kind()?;
    if !matches!(&*kind, "library" | "foreign") {
        anyfn::bail!(
            "ValueError",
            "it has no modules of kind `{kind}`, only functions that are compiled for the processor"
        );
    }
    if let Some(import) = module.imports()?.iter().next() {
        let import = import.kind()?;
        anyfn::bail!("ValueError", "the module imports one of kind `{import}`, and it has no modules");
    }
    let Some(export) = registry::find("compiler.export") else {
        anyfn::bail!(
            "ValueError",
            "the module is a library, which is already linked; pass the object files it was linked from"
        );
    };
    export.call((module.clone(), &*path.to_string_lossy()))?;
    Ok(path)
}

/// Compiles the sources, and copies the object files so that they use the runtime with which they are linked. Returns the kind and the
/// text of an error.
fn objects(bundle: &Bundle, parts: &Parts, folder: &Folder) -> Result<Vec<OsString>, (&'static str, String)> {
    let fail = |reason: String| ("RuntimeError", reason);
    let mut all = Vec::new();
    for (index, source) in parts.sources.iter().enumerate() {
        let object = folder.path().join(format!("{}-{index}.o", stem(source)));
        let choice = if is_cpp(source) { super::CPP_COMPILERS } else { C_COMPILERS };
        let tool = Tool::find(&Choice { given: bundle.compiler.as_deref(), ..choice }).map_err(fail)?;
        compile(&tool, source, &object, &bundle.compile_options).map_err(fail)?;
        all.push((object, source.clone()));
    }
    for (index, (object, _)) in parts.objects.iter().enumerate() {
        let copy = folder.path().join(format!("{}-object{index}.o", stem(object)));
        fs::copy(object, &copy).map_err(|error| fail(format!("{}: {error}", object.display())))?;
        all.push((copy, object.clone()));
    }
    for (object, named) in &all {
        let about = |reason: String| fail(format!("{}: {reason}", named.display()));
        let mut bytes = read_file(object).map_err(about)?;
        // An object file in the format of a compiler, such as LLVM's, has its own rules.
        if Ident::of(&bytes).is_none() {
            continue;
        }
        let used = elf::use_linked_runtime(&mut bytes).map_err(about)?;
        check_used(&used, &name_of(named, folder))?;
        fs::write(object, bytes).map_err(|error| about(error.to_string()))?;
    }
    Ok(all.into_iter().map(|(object, _)| object.into()).collect())
}

/// Returns an error if the code in the file `name` needs a loader. `used` lists the functions of the runtime that it uses.
fn check_used(used: &[String], name: &str) -> Result<(), (&'static str, String)> {
    for (symbol, feature) in LACKING {
        if used.iter().any(|used| used == symbol) {
            return Err((
                "ValueError",
                format!("{name} uses {feature} ({symbol}), for which it has no loader"),
            ));
        }
    }
    Ok(())
}

/// Returns an error if the code in an archive needs a loader.
fn check_archives(parts: &Parts) -> Result<(), (&'static str, String)> {
    for (archive, _) in &parts.archives {
        let about = |reason: String| ("RuntimeError", format!("{}: {reason}", archive.display()));
        for member in members(&read_file(archive).map_err(about)?) {
            if matches!(Ident::of(member), Some((_, elf::RELOCATABLE))) {
                let used = elf::use_linked_runtime(&mut member.to_vec()).map_err(about)?;
                check_used(&used, &archive.display().to_string())?;
            }
        }
    }
    Ok(())
}

/// Returns the name of a code file in messages: that of a module is temporary.
fn name_of(file: &Path, folder: &Folder) -> String {
    if file.starts_with(folder.path()) { "the module".to_owned() } else { file.display().to_string() }
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn compile(tool: &Tool, source: &Path, object: &Path, options: &[String]) -> Result<(), String> {
    let mut args: Vec<OsString> = COMPILE.split_whitespace().map(OsString::from).collect();
    args.extend(options.iter().map(OsString::from));
    args.extend(["-c".into(), "-o".into(), object.into(), source.into()]);
    tool.run(&args).map(drop)
}

struct Linked<'a> {
    bundle: &'a Bundle,
    archive: &'a Path,
    runtime: &'a Path,
    folder: &'a Folder,
    out: &'a Partial,
}

impl Linked<'_> {
    /// Adds the objects to a copy of the runtime.
    fn archive(&self, objects: Vec<OsString>, parts: &Parts) -> Result<(), String> {
        if let Some((archive, _)) = parts.archives.first() {
            return Err(format!("{} is an archive; pass its object files", archive.display()));
        }
        let tool = Tool::find(&ARCHIVERS)?;
        fs::copy(self.archive, self.out.path())
            .map_err(|error| format!("{}: {error}", self.archive.display()))?;
        // `D`: the same inputs produce the same bytes.
        let mut args: Vec<OsString> = vec!["rcsD".into(), self.out.path().into()];
        args.extend(objects);
        tool.run(&args).map(drop)
    }

    fn library(&self, mut objects: Vec<OsString>, parts: &Parts) -> Result<(), String> {
        objects.push(self.support(UNWIND, &["-fPIC", "-fvisibility=hidden"])?);
        let script = self.folder.path().join("exports");
        fs::write(&script, EXPORTS).map_err(|error| error.to_string())?;
        // Not `-Wl`, which separates options at commas, because the path may contain some.
        let script = format!("--version-script={}", script.display());
        let options: Vec<&str> = LIBRARY.split_whitespace().chain(["-Xlinker", &*script]).collect();
        self.link(&options, objects, parts, &["-lm"])
    }

    fn program(&self, mut objects: Vec<OsString>, parts: &Parts) -> Result<(), String> {
        for name in START.into_iter().chain([UNWIND]) {
            objects.push(self.support(name, &["-fno-pic"])?);
        }
        let linked = self.link(&PROGRAM.split_whitespace().collect::<Vec<_>>(), objects, parts, &["-lgcc"]);
        linked.map_err(|reason| {
            if reason.contains("undefined") {
                format!(
                    "{reason}\nthe program is linked without a C library; for functions that start.c lacks, write an archive (`f.a`) and \
                     link it with a C library"
                )
            } else {
                reason
            }
        })
    }

    /// Compiles a source of the runtime by the compiler that links, and returns the object file.
    fn support(&self, name: &str, options: &[&str]) -> Result<OsString, String> {
        let object = self.folder.path().join(name).with_extension("o");
        let options: Vec<String> =
            ["-fno-builtin", "-w"].iter().chain(options).map(|option| (*option).to_owned()).collect();
        compile(&self.driver()?, &self.runtime.join(name), &object, &options)?;
        Ok(object.into())
    }

    fn driver(&self) -> Result<Tool, String> {
        let tool = Tool::find(&Choice { given: self.bundle.linker.as_deref(), ..DRIVERS })?;
        if tool.is_plain_linker {
            return Err(
                "the linker must be a compiler, such as `gcc`, which knows the libraries of the machine".into(),
            );
        }
        Ok(tool)
    }

    fn link(
        &self,
        options: &[&str],
        objects: Vec<OsString>,
        parts: &Parts,
        libraries: &[&str],
    ) -> Result<(), String> {
        let mut args: Vec<OsString> = options.iter().map(OsString::from).collect();
        args.extend(["-o".into(), self.out.path().into()]);
        args.extend(objects);
        args.extend(parts.archives.iter().map(|(path, _)| path.into()));
        args.push(self.archive.into());
        args.extend(self.bundle.link_options.iter().map(OsString::from));
        args.extend(libraries.iter().map(OsString::from));
        self.driver()?.run(&args).map(drop)
    }
}
