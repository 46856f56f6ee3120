//! Global functions `ffi.*`, through which frontends use modules.

use core::ffi::c_void;

use std::path::Path;
use std::sync::Arc;

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

/// Registers the global functions through which frontends use modules.
pub(crate) fn register_globals() -> Result<()> {
    let of = OwnModule::try_from;
    let reg = registry::register;
    reg("ffi.ModuleLoadFromFile").set_body_typed(|path: &str| load_from_file(path)?.get::<Module>())?;
    reg("ffi.Module.load_from_file.so").set_body_typed(|path: &str, _format: &str| load_library(path))?;
    reg("ffi.ModuleLeases").set_body_typed(move |m: Module| of(&m)?.leases())?;
    reg("ffi.ModulePinned")
        .set_body_typed(move |m: Module| Ok::<_, anyfn::Error>(of(&m)?.pinned().map(String::from)))?;
    reg("ffi.ModuleMapped").set_body_typed(mapped)?;
    reg("ffi.ModuleReap")
        .set_body_typed(|| Array::<String>::try_from_iter(lease::reap(false).into_iter().map(String::from)))?;
    reg("ffi.ModuleIsCurrent").set_body(|args: Args<'_>| {
        let path = if args.len() > 1 { args.get::<Option<&str>>(1)? } else { None };
        Any::new(OwnModule::try_from(&args.get::<Module>(0)?)?.is_current(path.map(Path::new)))
    })?;
    reg("ffi.ModuleLookups").set_body_typed(|| context::lookups() as i64)?;
    register_watch()?;
    register_ledger()?;
    observe::register()?;
    reg("ffi.ModuleInspectFile").set_body_typed(|path: &str| inspect(path))?;
    reg("ffi.SystemLib").set_body(|args: Args<'_>| {
        let prefix = if args.is_empty() { "" } else { args.get::<&str>(0)? };
        Any::new(system_lib(prefix)?)
    })?;
    reg("ffi.ModuleGetKind").set_body_typed(move |m: Module| Ok::<_, anyfn::Error>(kind(&of(&m)?)))?;
    reg("ffi.ModuleGetFile")
        .set_body_typed(move |m: Module| Ok::<_, anyfn::Error>(of(&m)?.file().map(String::from)))?;
    reg("ffi.ModuleGetPropertyMask")
        .set_body_typed(move |m: Module| Ok::<_, anyfn::Error>(of(&m)?.property_mask()))?;
    reg("ffi.ModuleGetFunction").set_body_typed(move |m: Module, name: &str, query_imports: bool| {
        of(&m)?.function(name, query_imports) as Result<Option<PackedFunc>>
    })?;
    reg("ffi.ModuleImplementsFunction").set_body_typed(move |m: Module, name: &str, query_imports: bool| {
        of(&m)?.implements(name, query_imports)
    })?;
    reg("ffi.ModuleListFunctions").set_body_typed(move |m: Module, query_imports: bool| {
        Array::<String>::try_from_iter(of(&m)?.function_names(query_imports)?.into_iter().map(String::from))
    })?;
    reg("ffi.ModuleGetFunctionDoc").set_body_typed(move |m: Module, name: &str, query_imports: bool| {
        of(&m)?.function_doc(name, query_imports) as Result<Option<String>>
    })?;
    reg("ffi.ModuleGetFunctionMetadata").set_body_typed(
        move |m: Module, name: &str, query_imports: bool| {
            of(&m)?.function_metadata(name, query_imports) as Result<Option<String>>
        },
    )?;
    reg("ffi.ModuleGetWriteFormats").set_body_typed(move |m: Module| of(&m)?.write_formats())?;
    reg("ffi.ModuleWriteToFile")
        .set_body_typed(move |m: Module, path: &str, format: &str| of(&m)?.write_to_file(path, format))?;
    reg("ffi.ModuleSaveToBytes").set_body_typed(move |m: Module| of(&m)?.save_to_bytes())?;
    reg("ffi.ModuleInspectSource")
        .set_body_typed(move |m: Module, format: &str| of(&m)?.inspect_source(format))?;
    reg("ffi.ModuleCreate").set_body(|args: Args<'_>| Any::new(custom::create(args)?))?;
    reg("ffi.ModuleGetImports")
        .set_body_typed(move |m: Module| Array::<Module>::try_from_iter(of(&m)?.imports()))?;
    reg("ffi.ModuleImportModule").set_body_typed(move |m: Module, other: Module| of(&m)?.import(&other))?;
    reg("ffi.ModuleClearImports").set_body_typed(move |m: Module| of(&m)?.clear_imports())?;
    reg("ffi.ModuleGlobalsAdd").set_body_typed(|m: Module| {
        let mut kept = KEPT.lock();
        if !kept.iter().any(|k| k.as_object().ptr_eq(m.as_object())) {
            kept.push(m);
        }
    })?;
    reg("ffi.ModuleGlobalsRemove").set_body_typed(|m: Module| {
        // Released after the lock, because releasing may run any code.
        let removed: Vec<Module> =
            KEPT.lock().extract_if(.., |k| k.as_object().ptr_eq(m.as_object())).collect();
        drop(removed);
    })?;
    Ok(())
}

/// Registers the global functions that start recording live objects (in the ledger) and list the recorded
/// objects.
fn register_ledger() -> Result<()> {
    let reg = registry::register;
    reg("ffi.LedgerStart").set_body_typed(|| {
        let ledger = core::ptr::from_ref(ledger::start()).cast_mut().cast::<c_void>();
        // SAFETY: a ledger is never freed, and only frontends of this project know what the pointer is.
        unsafe { OpaquePtr::from_ptr(ledger) }
    })?;
    reg("ffi.LedgerIsOn").set_body_typed(ledger::is_on)?;
    reg("ffi.LiveHandles")
        .set_body(|args: Args<'_>| of_module(args, |mapped| Any::new(ledger::list(mapped)?)))?;
    reg("ffi.LiveHandlesText")
        .set_body(|args: Args<'_>| of_module(args, |mapped| Any::new(ledger::text(mapped)?)))?;
    ledger::start_if_asked();
    Ok(())
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

/// Registers the global functions for modules that follow a file and use its newest build (see `watch.rs`).
fn register_watch() -> Result<()> {
    let reg = registry::register;
    reg("ffi.ModuleWatch").set_body(|args: Args<'_>| {
        let callback = |index| {
            if args.len() > index { args.get::<Option<PackedFunc>>(index) } else { Ok(None) }
        };
        Any::new(Watch::open(args.get::<&str>(0)?, callback(1)?, callback(2)?)?)
    })?;
    reg("ffi.ModuleWatchPoll").set_body_typed(|m: Module| watch::of(&m)?.poll())?;
    reg("ffi.ModuleWatchReload").set_body_typed(|m: Module| watch::of(&m)?.reload())?;
    reg("ffi.ModuleWatchProblem")
        .set_body_typed(|m: Module| Ok::<_, anyfn::Error>(watch::of(&m)?.problem().map(String::from)))?;
    reg("ffi.ModuleWatchNewest").set_body_typed(|m: Module| watch::of(&m)?.newest())
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
