//! Global functions `ffi.*`, through which frontends use modules.

use core::ffi::c_void;

use std::path::Path;
use std::sync::Arc;

use anyfn::__private::{FunctionDef, functions};
use anyfn::{Any, Args, Array, Map, Module, OpaquePtr, PackedFunc, Result, String, registry};

use anyfn_core::loader::Mutex;

use crate::custom;
use crate::inspect::inspect;
use crate::library::{context, observe};
use crate::load::{load_from_file, load_library};
use crate::mapped::{Mapped, lease, ledger};
use crate::object::OwnModule;
use crate::system::system_lib;
use crate::watch::{self, Watch};

/// Modules that `ffi.ModuleGlobalsAdd` keeps alive until `ffi.ModuleGlobalsRemove` is called for them.
static KEPT: Mutex<Vec<Module>> = Mutex::new(Vec::new());

static FUNCTIONS: &[FunctionDef] = &functions! {
    "ffi.ModuleLoadFromFile" [] => |path: &str| load_from_file(path)?.get::<Module>(),
    "ffi.Module.load_from_file.so" [] => |path: &str, _format: &str| load_library(path),
    "ffi.ModuleLeases" [] => |m: Module| of(&m)?.leases(),
    "ffi.ModulePinned" [] => |m: Module| Ok::<_, anyfn::Error>(of(&m)?.pinned().map(String::from)),
    "ffi.ModuleMapped" [] => mapped,
    "ffi.ModuleReap" [] => || Array::<String>::try_from_iter(lease::reap(false).into_iter().map(String::from)),
    "ffi.ModuleIsCurrent" [] => is_current,
    "ffi.ModuleLookups" [] => || context::lookups() as i64,
    "ffi.ModuleWatch" [] => watch_file,
    "ffi.ModuleWatchPoll" [] => |m: Module| watch::of(&m)?.poll(),
    "ffi.ModuleWatchReload" [] => |m: Module| watch::of(&m)?.reload(),
    "ffi.ModuleWatchProblem" [] => |m: Module| Ok::<_, anyfn::Error>(watch::of(&m)?.problem().map(String::from)),
    "ffi.ModuleWatchNewest" [] => |m: Module| watch::of(&m)?.newest(),
    "ffi.LedgerStart" [] => start_ledger,
    "ffi.LedgerIsOn" [] => ledger::is_on,
    "ffi.LiveHandles" [] => |args: Args<'_>| of_module(args, |mapped| Any::new(ledger::list(mapped)?)),
    "ffi.LiveHandlesText" [] => |args: Args<'_>| of_module(args, |mapped| Any::new(ledger::text(mapped)?)),
    "ffi.ModuleInspectFile" [] => |path: &str| inspect(path),
    "ffi.SystemLib" [] => |args: Args<'_>| system_lib(if args.is_empty() { "" } else { args.get::<&str>(0)? }),
    "ffi.ModuleGetKind" [] => |m: Module| Ok::<_, anyfn::Error>(kind(&of(&m)?)),
    "ffi.ModuleGetFile" [] => |m: Module| Ok::<_, anyfn::Error>(of(&m)?.file().map(String::from)),
    "ffi.ModuleGetPropertyMask" [] => |m: Module| Ok::<_, anyfn::Error>(of(&m)?.property_mask()),
    "ffi.ModuleGetFunction" [] => |m: Module, name: &str, query_imports: bool| {
        of(&m)?.function(name, query_imports) as Result<Option<PackedFunc>>
    },
    "ffi.ModuleImplementsFunction" [] => |m: Module, name: &str, query_imports: bool| {
        of(&m)?.implements(name, query_imports)
    },
    "ffi.ModuleListFunctions" [] => |m: Module, query_imports: bool| {
        Array::<String>::try_from_iter(of(&m)?.function_names(query_imports)?.into_iter().map(String::from))
    },
    "ffi.ModuleGetFunctionDoc" [] => |m: Module, name: &str, query_imports: bool| {
        of(&m)?.function_doc(name, query_imports) as Result<Option<String>>
    },
    "ffi.ModuleGetFunctionMetadata" [] => |m: Module, name: &str, query_imports: bool| {
        of(&m)?.function_metadata(name, query_imports) as Result<Option<String>>
    },
    "ffi.ModuleGetWriteFormats" [] => |m: Module| of(&m)?.write_formats(),
    "ffi.ModuleWriteToFile" [] => |m: Module, path: &str, format: &str| of(&m)?.write_to_file(path, format),
    "ffi.ModuleSaveToBytes" [] => |m: Module| of(&m)?.save_to_bytes(),
    "ffi.ModuleInspectSource" [] => |m: Module, format: &str| of(&m)?.inspect_source(format),
    "ffi.ModuleCreate" [] => custom::create,
    "ffi.ModuleGetImports" [] => |m: Module| Array::<Module>::try_from_iter(of(&m)?.imports()),
    "ffi.ModuleImportModule" [] => |m: Module, other: Module| of(&m)?.import(&other),
    "ffi.ModuleClearImports" [] => |m: Module| of(&m)?.clear_imports(),
    "ffi.ModuleGlobalsAdd" [] => keep,
    "ffi.ModuleGlobalsRemove" [] => no_longer_keep,
};

/// Registers the global functions through which frontends use modules.
pub(crate) fn register_globals() -> Result<()> {
    registry::register_defs(FUNCTIONS)?;
    registry::register_defs(observe::FUNCTIONS)?;
    ledger::start_if_asked();
    Ok(())
}

fn of(module: &Module) -> Result<OwnModule> {
    OwnModule::try_from(module)
}

/// Returns true if the file of a module, or the file whose path is the second argument, is the one that was loaded.
fn is_current(args: Args<'_>) -> Result<bool> {
    let path = if args.len() > 1 { args.get::<Option<&str>>(1)? } else { None };
    Ok(of(&args.get::<Module>(0)?)?.is_current(path.map(Path::new)))
}

/// Creates a module that follows a file and uses its newest build (see `watch.rs`).
fn watch_file(args: Args<'_>) -> Result<Module> {
    let callback = |index| if args.len() > index { args.get::<Option<PackedFunc>>(index) } else { Ok(None) };
    Watch::open(args.get::<&str>(0)?, callback(1)?, callback(2)?)
}

/// Starts recording live objects (in the ledger) and returns the address of the ledger.
fn start_ledger() -> OpaquePtr {
    let ledger = core::ptr::from_ref(ledger::start()).cast_mut().cast::<c_void>();
    // SAFETY: a ledger is never freed, and only frontends of this project know what the pointer is.
    unsafe { OpaquePtr::from_ptr(ledger) }
}

fn keep(module: Module) {
    let mut kept = KEPT.lock();
    if !kept.iter().any(|one| one.as_object().ptr_eq(module.as_object())) {
        kept.push(module);
    }
}

fn no_longer_keep(module: Module) {
    // Released after the lock, because releasing may run any code.
    let removed: Vec<Module> =
        KEPT.lock().extract_if(.., |one| one.as_object().ptr_eq(module.as_object())).collect();
    drop(removed);
}

/// Calls `body` with the library of the module in `args`, or with `None` if `args` is empty. Returns an error
/// if the module has no library file.
fn of_module(args: Args<'_>, body: impl FnOnce(Option<&Arc<Mapped>>) -> Result<Any>) -> Result<Any> {
    let module = if args.is_empty() { None } else { args.get::<Option<Module>>(0)? };
    let Some(module) = module else { return body(None) };
    let newest = watch::newest(&OwnModule::try_from(&module)?)?;
    let own = OwnModule::try_from(&newest)?;
    match own.mapped() {
        Some(mapped) => body(Some(mapped)),
        None => anyfn::bail!("RuntimeError", "the module was not loaded from a library file"),
    }
}

/// Returns a description of each mapped library: its path, its leases and, if it is pinned, the reason.
fn mapped() -> Result<Array<Any>> {
    let mut all = Array::<Any>::new();
    for library in lease::all() {
        let mut fields = Map::<String, Any>::new();
        fields.insert("file".into(), Any::new(library.path.display().to_string())?)?;
        fields.insert("leases".into(), Any::new(library.leases()?)?)?;
        fields.insert("pinned".into(), Any::new(library.pinned.lock().clone().map(String::from))?)?;
        all.push(Any::new(fields)?)?;
    }
    Ok(all)
}

fn kind(module: &OwnModule) -> String {
    String::from(module.kind().to_str().unwrap_or_default())
}
