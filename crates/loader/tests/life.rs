//! Tests of the library context, through which compiled code finds its module, and of the resources that are
//! released when the last handle of a module is dropped.

use std::ffi::c_void;
use std::sync::Mutex;

use anyfn::abi::{TVMFFIAny, TVMFFIEnvModRegisterContextSymbol, TVMFFIEnvModRegisterSystemLibSymbol};
use anyfn::{Any, Array, Bytes, Module, PackedFunc, Result, registry};
use anyfn_loader as _;

mod support;
use support::{compile, fails, load, saxpy, testing_plugin};

/// Lock that serialises the tests that load the plugin, because its global functions belong to the whole
/// process.
static PLUGIN: Mutex<()> = Mutex::new(());

fn plugin_turn() -> std::sync::MutexGuard<'static, ()> {
    PLUGIN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn call_global(name: &str, module: &Module, other: &Module) -> Result<Any> {
    registry::get(name)?.call((module, other))
}

/// Compiles and loads a library that exports one function, `name`, which returns `value`.
fn constant(file: &str, name: &str, value: i64) -> Option<Module> {
    let source = format!(
        "#include <anyfn/anyfn.h>\nANYFN_EXPORT({name}) {{ return anyfn_return_int(result, {value}); }}\n\
         int file_{file};"
    );
    compile(file, &source, &[]).map(|path| load(&path).unwrap())
}

#[test]
fn registrations_come_and_go() {
    let _turn = plugin_turn();
    assert!(registry::find("testing.nop").is_none());
    for _ in 0..3 {
        let module = load(&testing_plugin()).unwrap();
        let again = load(&testing_plugin()).unwrap();
        assert!(module.as_object().ptr_eq(again.as_object()), "one library, one module");
        assert_eq!(module.get_function("add_one").unwrap().call((1,)).unwrap().get::<i64>().unwrap(), 2);
        let echo = registry::get("testing.echo").unwrap();
        drop(module);
        assert!(registry::find("testing.nop").is_some(), "another handle is there");
        drop(again);
        assert!(registry::find("testing.nop").is_none());
        fails(
            registry::get("testing.echo").map(drop),
            "ValueError",
            "Cannot find global function testing.echo",
        );
        // A caller that looked the function up before keeps it.
        assert_eq!(echo.call((5,)).unwrap().get::<i64>().unwrap(), 5);
    }
}

#[test]
fn a_replaced_registration_stays() {
    let _turn = plugin_turn();
    let module = load(&testing_plugin()).unwrap();
    registry::register("testing.count").overriding().set_body_typed(|| 7).unwrap();
    drop(module);
    assert!(registry::find("testing.nop").is_none());
    let count = registry::get("testing.count").unwrap();
    assert_eq!(count.call(()).unwrap().get::<i64>().unwrap(), 7);

    // If a name is already registered, nothing of the plugin is registered, and the error names the plugin.
    fails(
        load(&testing_plugin()).map(drop),
        "RuntimeError",
        "Global Function `testing.count` is already registered",
    );
    let error = load(&testing_plugin()).unwrap_err();
    assert!(
        error.message().contains("by the program; the library ")
            && error.message().contains("libanyfn_testing")
    );
    assert!(registry::find("testing.nop").is_none());
    assert!(registry::remove("testing.count").unwrap());
    load(&testing_plugin()).unwrap();
}

#[test]
fn loading_and_releasing_at_once() {
    let _turn = plugin_turn();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let module = load(&testing_plugin()).unwrap();
                    assert!(registry::find("testing.nop").is_some());
                    let f = module.get_function("add_one").unwrap();
                    drop(module);
                    assert_eq!(f.call((1,)).unwrap().get::<i64>().unwrap(), 2);
                }
            });
        }
    });
    assert!(registry::find("testing.nop").is_none());
}

#[test]
fn a_library_that_was_built_again_is_a_new_one() {
    let Some(first) = constant("rebuilt", "value", 1) else { return };
    // The file is removed, as linkers do, so that the new build is another file.
    std::fs::remove_file(support::scratch("rebuilt.so")).unwrap();
    let second = constant("rebuilt", "value", 2).unwrap();
    let value = |m: &Module| m.get_function("value").unwrap().call(()).unwrap().get::<i64>().unwrap();
    assert_eq!((value(&first), value(&second)), (1, 2));

    // If the file is overwritten in place, the loaded code may have changed already.
    let path = support::scratch("rebuilt.so");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    fails(load(&path).map(drop), "RuntimeError", "the file has been modified in place since it was loaded");
}

const CONTEXT: &str = r#"
#include <anyfn/anyfn.h>
ANYFN_DLL_EXPORT void* __tvm_ffi__library_ctx = NULL;
ANYFN_DLL_EXPORT void* __TVMFFIFunctionCall = NULL;
ANYFN_DLL_EXPORT void* __test_symbol = NULL;
ANYFN_EXPORT(slot) { return anyfn_return_ptr(result, &__tvm_ffi__library_ctx); }
ANYFN_EXPORT(function_call) { return anyfn_return_ptr(result, __TVMFFIFunctionCall); }
ANYFN_EXPORT(symbol) { return anyfn_return_ptr(result, __test_symbol); }
ANYFN_EXPORT(lookup) {
  TVMFFIByteArray name;
  TVMFFIObjectHandle f = NULL;
  if (anyfn_arg_str(args, num_args, 0, &name)) return -1;
  if (TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, name.data, &f)) return -1;
  return anyfn_call(f, NULL, 0, result);
}
"#;

#[test]
fn context_slots_are_filled_and_emptied() {
    static SYMBOL: i32 = 1;
    let symbol = (&raw const SYMBOL).cast_mut().cast::<c_void>();
    // SAFETY: the name is NUL-terminated.
    assert_eq!(unsafe { TVMFFIEnvModRegisterContextSymbol(c"__test_symbol".as_ptr(), symbol) }, 0);
    let Some(path) = compile("context", CONTEXT, &[]) else { return };
    let module = load(&path).unwrap();
    let pointer = |name: &str| -> *mut c_void {
        module.get_function(name).unwrap().call(()).unwrap().get::<anyfn::OpaquePtr>().unwrap().as_ptr()
    };
    let slot: *mut *mut c_void = pointer("slot").cast();
    // SAFETY: `slot` is the address of a variable of the library, and libraries stay mapped.
    let context = unsafe { *slot };
    assert_eq!(context.addr() + 8, module.as_object().as_handle().addr(), "the address of the table pointer");
    assert_eq!(pointer("symbol"), symbol);
    assert_eq!(pointer("function_call"), anyfn::abi::TVMFFIFunctionCall as *mut c_void);
    drop(module);
    // SAFETY: `slot` is the address of a variable of the library, and libraries stay mapped.
    assert!(unsafe { *slot }.is_null());

    // When the library is loaded again, the variable is filled again.
    let module = load(&path).unwrap();
    // SAFETY: `slot` is the address of a variable of the library, and libraries stay mapped.
    assert_eq!(unsafe { *slot }.addr() + 8, module.as_object().as_handle().addr());
}

#[test]
fn lookups_see_imports_before_globals() {
    let Some(path) = compile("lookup", CONTEXT, &[]) else { return };
    let module = load(&path).unwrap();
    let (deep, shallow) = (constant("deep", "life_a", 1).unwrap(), constant("shallow", "life_b", 2).unwrap());
    call_global("ffi.ModuleImportModule", &shallow, &deep).unwrap();
    call_global("ffi.ModuleImportModule", &module, &shallow).unwrap();
    registry::register("life_a").set_body_typed(|| 10).unwrap();
    registry::register("life_c").set_body_typed(|| 30).unwrap();
    let lookup = |name: &str| module.get_function("lookup")?.call((name,))?.get::<i64>();
    assert_eq!(lookup("life_a_long_name_no").map_err(|e| e.kind().to_string()), Err("RuntimeError".into()));
    assert_eq!((lookup("life_b").unwrap(), lookup("life_a").unwrap(), lookup("life_c").unwrap()), (2, 1, 30));
    fails(
        lookup("life_d"),
        "RuntimeError",
        "Cannot find function life_d in the imported modules or global registry.",
    );

    assert!(module.find_function("life_a").unwrap().is_none());
    assert_eq!(
        module.find_function_with_imports("life_a").unwrap().unwrap().call(()).unwrap().get::<i64>().unwrap(),
        1
    );
    registry::get("ffi.ModuleClearImports").unwrap().call((&module,)).unwrap();
    assert!(module.find_function_with_imports("life_a").unwrap().is_none());
    // The library keeps a function that it has looked up once.
    assert_eq!(lookup("life_b").unwrap(), 2);
}

#[test]
fn imports_make_no_cycles() {
    let Some(a) = constant("cycle_a", "a", 1) else { return };
    let (b, c) = (constant("cycle_b", "b", 2).unwrap(), constant("cycle_c", "c", 3).unwrap());
    let import = |x: &Module, y: &Module| call_global("ffi.ModuleImportModule", x, y);
    import(&a, &b).unwrap();
    import(&b, &c).unwrap();
    for (x, y) in [(&c, &a), (&b, &a), (&a, &a)] {
        fails(import(x, y), "RuntimeError", "Cyclic dependency detected during import");
    }
    // A diamond of imports is not a cycle, and functions in it are found.
    import(&a, &c).unwrap();
    assert_eq!(a.find_function_with_imports("c").unwrap().unwrap().call(()).unwrap().get::<i64>().unwrap(), 3);
    let joined =
        |names: Array<anyfn::String>| names.iter().map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
    let (own, all) = (a.function_names().unwrap(), a.function_names_with_imports().unwrap());
    assert_eq!((joined(own), joined(all)), ("a".into(), "a b c".into()));
}

fn blob(ends: &[u64], children: &[u64], entries: &[(&str, Option<&[u8]>)]) -> Vec<u8> {
    let mut content = Vec::new();
    let number = |content: &mut Vec<u8>, n: u64| content.extend_from_slice(&n.to_le_bytes());
    for list in [ends, children] {
        number(&mut content, list.len() as u64);
        list.iter().for_each(|n| number(&mut content, *n));
    }
    for (kind, bytes) in entries {
        for part in [Some(kind.as_bytes()), *bytes].into_iter().flatten() {
            number(&mut content, part.len() as u64);
            content.extend_from_slice(part);
        }
    }
    let mut all = (content.len() as u64).to_le_bytes().to_vec();
    all.extend(content);
    all
}

fn with_blob(name: &str, blob: &[u8]) -> Option<std::path::PathBuf> {
    let bytes: Vec<String> = blob.iter().map(u8::to_string).collect();
    let source = format!(
        "#include <anyfn/anyfn.h>\nANYFN_DLL_EXPORT const unsigned char __tvm_ffi__library_bin[] = {{{}}};\n\
         ANYFN_EXPORT({name}) {{ return anyfn_return_int(result, 1); }}",
        bytes.join(",")
    );
    compile(name, &source, &[])
}

#[test]
fn import_trees_are_built() {
    let tree = blob(&[0, 1, 1], &[1], &[("_lib", None), ("test_kind", Some(b"content"))]);
    let Some(path) = with_blob("tree", &tree) else { return };
    // Functions that need no loader work. The error for other functions names the missing loader.
    let module = load(&path).unwrap();
    assert_eq!(module.get_function("tree").unwrap().call(()).unwrap().get::<i64>().unwrap(), 1);
    let missing = "Cannot find function imported_function: it may be in the module of kind `test_kind` that the library \
                   carries, whose loader ffi.Module.load_from_bytes.test_kind is not registered";
    fails(module.find_function_with_imports("imported_function").map(drop), "RuntimeError", missing);
    assert!(module.find_function("imported_function").unwrap().is_none());
    let carried = module.imports().unwrap().iter().next().unwrap();
    assert_eq!((&*carried.kind().unwrap(), &*carried.save_to_bytes().unwrap()), ("test_kind", &b"content"[..]));
    fails(carried.get_function("imported_function").map(drop), "RuntimeError", missing);
    assert!(carried.function_names_with_imports().unwrap().is_empty());

    registry::register("ffi.Module.load_from_bytes.test_kind")
        .set_body_typed(|bytes: Bytes| {
            assert_eq!(&*bytes, b"content");
            constant("imported", "imported_function", 42)
                .ok_or_else(|| anyfn::error!("ValueError", "no compiler"))
        })
        .unwrap();
    // A loader that is registered later is found at the next use, also by a module that was loaded before.
    let imported = module.find_function_with_imports("imported_function").unwrap().unwrap();
    assert_eq!(imported.call(()).unwrap().get::<i64>().unwrap(), 42);
    drop((module, carried));
    let module = load(&path).unwrap();
    let f = |name: &str| {
        module.find_function_with_imports(name).unwrap().unwrap().call(()).unwrap().get::<i64>().unwrap()
    };
    assert_eq!((f("tree"), f("imported_function")), (1, 42));

    // The root may be another module that imports the library.
    let tree = blob(&[0, 1, 1], &[1], &[("test_kind", Some(b"content")), ("_lib", None)]);
    let module = load(&with_blob("below", &tree).unwrap()).unwrap();
    assert!(module.find_function("below").unwrap().is_none());
    assert!(module.find_function_with_imports("below").unwrap().is_some());

    let cyclic = blob(&[0, 1, 2], &[1, 0], &[("_lib", None), ("test_kind", Some(b"content"))]);
    fails(
        load(&with_blob("cyclic", &cyclic).unwrap()).map(drop),
        "RuntimeError",
        "modules import each other in a cycle",
    );
    let mut long = blob(&[0, 0], &[], &[("_lib", None)]);
    long[1] = 1;
    fails(
        load(&with_blob("long", &long).unwrap()).map(drop),
        "RuntimeError",
        "import tree is damaged: it declares",
    );
    let bad = blob(&[0, 5], &[], &[("_lib", None)]);
    fails(load(&with_blob("bad", &bad).unwrap()).map(drop), "RuntimeError", "import tree is damaged: module 0");
}

unsafe extern "C" fn linked_in(_: *mut c_void, _: *const TVMFFIAny, _: i32, result: *mut TVMFFIAny) -> i32 {
    // SAFETY: the caller passes a writable result.
    unsafe { result.write(TVMFFIAny::from_bits(1, 77)) };
    0
}

#[test]
fn system_libraries_are_found_by_prefix() {
    static mut SLOT: *mut c_void = std::ptr::null_mut();
    let slot = (&raw mut SLOT).cast::<c_void>();
    let symbols =
        [(c"__tvm_ffi_life_system_f", linked_in as *mut c_void), (c"life_system___tvm_ffi__library_ctx", slot)];
    for (name, symbol) in symbols {
        // SAFETY: the name is NUL-terminated, and the symbols live as long as the process.
        assert_eq!(unsafe { TVMFFIEnvModRegisterSystemLibSymbol(name.as_ptr(), symbol) }, 0);
    }
    let module = Module::system_lib("life_system_").unwrap();
    assert!(module.as_object().ptr_eq(Module::system_lib("life_system_").unwrap().as_object()));
    assert_eq!(module.get_function("f").unwrap().call(()).unwrap().get::<i64>().unwrap(), 77);
    assert!(module.find_function("g").unwrap().is_none());
    let listed: Vec<_> = module.function_names().unwrap().iter().map(|name| name.to_string()).collect();
    assert_eq!(listed, ["f"]);
    // SAFETY: written by the loader above, on this thread.
    assert_eq!(unsafe { SLOT }.addr() + 8, module.as_object().as_handle().addr());
    let plain = Module::system_lib("").unwrap();
    assert!(plain.find_function("life_system_f").unwrap().is_some());
}

fn register_symbol(name: &str, symbol: *const c_void) {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: the name is NUL-terminated, and the tests pass symbols that live as long as the process.
    assert_eq!(unsafe { TVMFFIEnvModRegisterSystemLibSymbol(name.as_ptr(), symbol.cast_mut()) }, 0);
}

unsafe extern "C" fn linked_in_too(_: *mut c_void, _: *const TVMFFIAny, _: i32, result: *mut TVMFFIAny) -> i32 {
    // SAFETY: the caller passes a writable result.
    unsafe { result.write(TVMFFIAny::from_bits(1, 78)) };
    0
}

/// Tests that two libraries linked into one program are separate modules, although their functions
/// have the same names.
#[test]
fn each_prefix_is_a_module_of_its_own() {
    static mut SLOTS: [*mut c_void; 2] = [std::ptr::null_mut(); 2];
    register_symbol("__tvm_ffi_life_one_f", linked_in as *const c_void);
    register_symbol("__tvm_ffi_life_two_f", linked_in_too as *const c_void);
    register_symbol("__tvm_ffi_life_two_g", linked_in_too as *const c_void);
    let slots = (&raw mut SLOTS).cast::<*mut c_void>();
    register_symbol("life_one___tvm_ffi__library_ctx", slots.cast());
    register_symbol("life_two___tvm_ffi__library_ctx", slots.wrapping_add(1).cast());
    let modules = ["life_one_", "life_two_"].map(|prefix| Module::system_lib(prefix).unwrap());
    assert!(!modules[0].as_object().ptr_eq(modules[1].as_object()));
    let f = |module: &Module| module.get_function("f").unwrap().call(()).unwrap().get::<i64>().unwrap();
    assert_eq!(modules.each_ref().map(f), [77, 78]);
    let listed = |module: &Module| {
        let names: Vec<_> = module.function_names().unwrap().iter().map(|name| name.to_string()).collect();
        names.join(" ")
    };
    assert_eq!(modules.each_ref().map(listed), ["f", "f g"]);
    // Each library's code knows its own module.
    for (at, module) in modules.iter().enumerate() {
        // SAFETY: written when the modules were made, on this thread.
        let context = unsafe { slots.wrapping_add(at).read() };
        assert_eq!(context.addr() + 8, module.as_object().as_handle().addr());
    }
    // The modules are part of the program, so there is no library that could be unmapped.
    let pinned = registry::get("ffi.ModulePinned").unwrap().call((&modules[0],)).unwrap();
    assert_eq!(pinned.get::<&str>().unwrap(), "it is part of the program");
    let again = modules.each_ref().map(|module| module.as_object().as_handle().addr());
    drop(modules);
    let modules = ["life_one_", "life_two_"].map(|prefix| Module::system_lib(prefix).unwrap());
    assert_eq!(modules.each_ref().map(|module| module.as_object().as_handle().addr()), again);
}

#[test]
fn a_linked_library_carries_an_import_tree() {
    let tree = blob(&[0, 1, 1], &[1], &[("_lib", None), ("life_linked", Some(b"content"))]);
    registry::register("ffi.Module.load_from_bytes.life_linked")
        .set_body_typed(|bytes: Bytes| {
            assert_eq!(&*bytes, b"content");
            Module::system_lib("life_imported_")
        })
        .unwrap();
    register_symbol("__tvm_ffi_life_carrier_f", linked_in as *const c_void);
    register_symbol("__tvm_ffi_life_imported_g", linked_in_too as *const c_void);
    register_symbol("life_carrier___tvm_ffi__library_bin", tree.leak().as_ptr().cast());
    let module = Module::system_lib("life_carrier_").unwrap();
    assert!(module.find_function("g").unwrap().is_none());
    let g = module.find_function_with_imports("g").unwrap().unwrap();
    assert_eq!(g.call(()).unwrap().get::<i64>().unwrap(), 78);
}

/// Tests that a name that compiled code looks up through its library context is searched for only once.
#[test]
fn a_name_that_was_looked_up_is_not_searched_for_again() {
    let Some(path) = compile("once", CONTEXT, &[]) else { return };
    let module = load(&path).unwrap();
    let lookup = module.get_function("lookup").unwrap();
    let value = || lookup.call(("life_once",)).unwrap().get::<i64>().unwrap();
    registry::register("life_once").set_body_typed(|| 1).unwrap();
    let found = registry::get("life_once").unwrap();
    assert_eq!(value(), 1);
    // A new search of the imports and the registry would find another function now.
    let import = constant("once_import", "life_once", 3).unwrap();
    call_global("ffi.ModuleImportModule", &module, &import).unwrap();
    registry::register("life_once").overriding().set_body_typed(|| 2).unwrap();
    let holders = found.as_object().use_count();
    for _ in 0..1000 {
        assert_eq!(value(), 1);
    }
    assert_eq!(found.as_object().use_count(), holders, "the handle is lent, not counted");
    // Lookups by other callers, such as the registry and the module, search again.
    assert_eq!(registry::get("life_once").unwrap().call(()).unwrap().get::<i64>().unwrap(), 2);
    let by_module = module.find_function_with_imports("life_once").unwrap().unwrap();
    assert_eq!(by_module.call(()).unwrap().get::<i64>().unwrap(), 3);
    // A name that was not found is searched for again.
    assert!(lookup.call(("life_once_later",)).is_err());
    registry::register("life_once_later").set_body_typed(|| 4).unwrap();
    assert_eq!(lookup.call(("life_once_later",)).unwrap().get::<i64>().unwrap(), 4);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn cpp_clients_find_their_table() {
    let Some(path) = saxpy("table") else { return };
    let module = load(&path).unwrap();
    let this = module.as_object().as_handle().wrapping_byte_sub(8);
    // SAFETY: in front of the header is the pointer to the table.
    let table = unsafe { *this.cast::<*const [*const c_void; 12]>() };
    // SAFETY: the table has 12 functions.
    let table = unsafe { &*table };
    assert!(table.iter().all(|slot| !slot.is_null()));
    // SAFETY: the first function of the table returns the kind.
    let kind: extern "C" fn(*const c_void) -> *const std::ffi::c_char =
        unsafe { std::mem::transmute(table[0]) };
    // SAFETY: the kind is a NUL-terminated string that lives as long as the process.
    assert_eq!(unsafe { std::ffi::CStr::from_ptr(kind(this)) }, c"library");
    // SAFETY: the third function of the table returns a function through a hidden first argument.
    let function: extern "C" fn(*mut *mut c_void, *const c_void, *const TVMFFIAny) -> *mut *mut c_void =
        unsafe { std::mem::transmute(table[2]) };
    let mut out = std::ptr::null_mut();
    let name = Any::new("saxpy").unwrap();
    let raw = *name.as_raw();
    assert_eq!(function(&raw mut out, this, &raw const raw), &raw mut out);
    // SAFETY: `out` is an owned reference to a function.
    let object = unsafe { anyfn::ObjectRef::from_owned_or_null(out) }.unwrap();
    assert!(PackedFunc::try_from_object(object).is_ok());
}
