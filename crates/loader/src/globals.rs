//! Global functions `ffi.*`, through which frontends use modules.

use std::path::Path;

use anyfn::__private::{FunctionDef, functions};
#[cfg(feature = "inspect")]
use anyfn::{Any, Map};
use anyfn::{Args, Array, Module, PackedFunc, Result, String, registry};

use anyfn_core::loader::Mutex;

#[cfg(feature = "custom")]
use crate::custom;
#[cfg(feature = "drivers")]
use crate::drivers;
#[cfg(feature = "inspect")]
use crate::inspect;
#[cfg(feature = "ledger")]
use crate::ledger_globals;
#[cfg(feature = "inspect")]
use crate::library::context;
use crate::library::observe;
use crate::load::{load_from_file, load_library};
#[cfg(feature = "inspect")]
use crate::mapped::lease;
use crate::object::AnyModule;
use crate::system::system_lib;
#[cfg(feature = "watch")]
use crate::watch;

/// Modules that `ffi.ModuleGlobalsAdd` keeps alive until `ffi.ModuleGlobalsRemove` is called for them.
static KEPT: Mutex<Vec<Module>> = Mutex::new(Vec::new());

static FUNCTIONS: &[FunctionDef] = &functions! {
    "ffi.ModuleLoadFromFile" [] => |path: &str| load_from_file(path)?.get::<Module>(),
    "ffi.Module.load_from_file.so" [] => |path: &str, _format: &str| load_library(path),
    "ffi.ModuleIsCurrent" [] => is_current,
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
    "ffi.ModuleListTypes" [] => |m: Module| Array::<String>::try_from_iter(of(&m)?.type_keys().into_iter().map(String::from)),
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
    "ffi.ModuleGetImports" [] => |m: Module| Array::<Module>::try_from_iter(of(&m)?.imports()),
    "ffi.ModuleImportModule" [] => |m: Module, other: Module| of(&m)?.import(&other),
    "ffi.ModuleClearImports" [] => |m: Module| of(&m)?.clear_imports(),
    "ffi.ModuleGlobalsAdd" [] => keep,
    "ffi.ModuleGlobalsRemove" [] => no_longer_keep,
};

/// Functions that describe the mapped libraries.
#[cfg(feature = "inspect")]
static MAPPED: &[FunctionDef] = &functions! {
    "ffi.ModuleLeases" [] => |m: Module| of(&m)?.leases(),
    "ffi.ModulePinned" [] => |m: Module| Ok::<_, anyfn::Error>(of(&m)?.pinned().map(String::from)),
    "ffi.ModuleMapped" [] => mapped,
    "ffi.ModuleReap" [] => || Array::<String>::try_from_iter(lease::reap(false).into_iter().map(String::from)),
    "ffi.ModuleLookups" [] => || context::lookups() as i64,
};

#[cfg(feature = "custom")]
static CUSTOM: &[FunctionDef] = &functions! {
    "ffi.ModuleCreate" [] => custom::create,
};

/// Registers the global functions through which frontends use modules.
pub(crate) fn register_globals() -> Result<()> {
    registry::register_defs(FUNCTIONS)?;
    registry::register_defs(observe::FUNCTIONS)?;
    #[cfg(feature = "observe")]
    registry::register_defs(observe::OBSERVERS)?;
    #[cfg(feature = "custom")]
    registry::register_defs(CUSTOM)?;
    #[cfg(feature = "drivers")]
    registry::register_defs(drivers::FUNCTIONS)?;
    #[cfg(feature = "watch")]
    registry::register_defs(watch::FUNCTIONS)?;
    #[cfg(feature = "inspect")]
    {
        registry::register_defs(inspect::FUNCTIONS)?;
        registry::register_defs(MAPPED)?;
    }
    #[cfg(feature = "ledger")]
    ledger_globals::register()?;
    Ok(())
}

fn of(module: &Module) -> Result<AnyModule> {
    AnyModule::try_from(module)
}

/// Returns true if loading the file of a module now would yield the code of that module. The
/// arguments are the module and, optionally, the path of a file that is checked instead.
fn is_current(args: Args<'_>) -> Result<bool> {
    let path = if args.len() > 1 { args.get::<Option<&str>>(1)? } else { None };
    Ok(of(&args.get::<Module>(0)?)?.is_current(path.map(Path::new)))
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

/// Returns a description of each mapped library: its path, its leases and, if it is pinned, the reason.
#[cfg(feature = "inspect")]
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

fn kind(module: &AnyModule) -> String {
    String::from(module.kind().to_str().unwrap_or_default())
}
