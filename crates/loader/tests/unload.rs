//! Tests that no part of a library remains in the process after it is unmapped, and that no unused library
//! stays mapped.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyfn::{Any, Array, Map, Module, PackedFunc, String as Text, registry};
use anyfn_loader as _;

mod support;
use support::unload::{call, leases, mappings, reap, turn};
use support::{compile, fails, load, testing_plugin};

const HEAD: &str = r#"
#include <anyfn/anyfn.h>
#include <stdlib.h>
#include <stdio.h>
static int seven(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self; (void)args; (void)n;
  return anyfn_return_int(result, 7);
}
static int give(TVMFFIAny* result, int32_t type_index, TVMFFIObjectHandle object) {
  result->type_index = type_index;
  result->v_obj = object;
  return 0;
}
"#;

fn library(name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    compile(name, &format!("{HEAD}\n{source}"), flags)
}

/// Returns the linker flags for a library that needs the library at `path`. The flags add the
/// folder of `path` to the run path.
fn needed(path: &Path) -> [String; 2] {
    let folder = path.parent().unwrap().display();
    let name = path.file_name().unwrap().to_str().unwrap();
    [format!("-Wl,-rpath,{folder}"), format!("-L{folder} -l:{name}")]
}

fn link_with(name: &str, source: &str, path: &Path) -> Option<PathBuf> {
    let flags = needed(path);
    let mut flags: Vec<&str> = flags.iter().flat_map(|flag| flag.split(' ')).collect();
    flags.insert(0, "-Wl,--no-as-needed");
    library(name, source, &flags)
}

fn pinned(module: &Module) -> Option<String> {
    call("ffi.ModulePinned", (module,)).unwrap().get::<Option<String>>().unwrap()
}

#[test]
fn what_a_constructor_makes_is_not_counted_so_the_library_stays() {
    let _turn = turn();
    let source = r#"
        __attribute__((constructor)) static void start(void) {
          TVMFFIByteArray name = {"test.unload.of_constructor", 26};
          TVMFFIObjectHandle f;
          if (TVMFFIFunctionCreate(0, seven, 0, &f) || TVMFFIFunctionSetGlobal(&name, f, 1)) abort();
          TVMFFIObjectDecRef(f);
        }"#;
    let Some(path) = library("constructor", source, &[]) else { return };
    let module = load(&path).unwrap();
    let reason = pinned(&module).unwrap();
    assert!(reason.contains("its constructors have created functions"), "{reason}");
    drop(module);
    assert!(reap().is_empty());
    assert_eq!(call("test.unload.of_constructor", ()).unwrap().get::<i64>().unwrap(), 7);
}

/// Tests that a library is not pinned if its constructor creates a function and releases it again. The loader
/// must forget the code address of a released function, because another library may have been mapped there in
/// the meantime.
#[test]
fn what_a_constructor_makes_and_releases_does_not_keep_the_library() {
    let _turn = turn();
    let source = r#"
        __attribute__((constructor)) static void start(void) {
          TVMFFIObjectHandle f;
          if (TVMFFIFunctionCreate(0, seven, 0, &f)) abort();
          TVMFFIObjectDecRef(f);
        }
        int __tvm_ffi_f(void) { return 0; }"#;
    let Some(path) = library("released_by_constructor", source, &[]) else { return };
    let module = load(&path).unwrap();
    assert_eq!(pinned(&module), None);
    drop(module);
    assert_eq!(reap().len(), 1);
    assert_eq!(mappings(&path), 0);
}

#[test]
fn a_library_that_is_needed_counts_as_its_own() {
    let _turn = turn();
    let inner = r#"
        int make_seven(TVMFFIObjectHandle* out) { return TVMFFIFunctionCreate(0, seven, 0, out); }"#;
    let Some(inner) = library("needed", inner, &[]) else { return };
    let outer = r#"
        int make_seven(TVMFFIObjectHandle* out);
        ANYFN_EXPORT(make) {
          TVMFFIObjectHandle f;
          (void)args; (void)num_args;
          if (make_seven(&f)) return -1;
          return give(result, kTVMFFIFunction, f);
        }"#;
    let Some(outer) = link_with("needing", outer, &inner) else { return };
    let module = load(&outer).unwrap();
    assert_eq!(pinned(&module), None);
    let seven = module.get_function("make").unwrap().call(()).unwrap().get::<PackedFunc>().unwrap();
    drop(module);
    assert_eq!(leases(&outer).unwrap(), ["functions: 1"]);
    assert!(reap().is_empty());
    assert_eq!(seven.call(()).unwrap().get::<i64>().unwrap(), 7);
    drop(seven);
    assert_eq!(reap().len(), 1);
    assert_eq!((mappings(&inner), mappings(&outer)), (0, 0));

    // If both are loaded, in either order, one call unmaps both.
    for first_inner in [false, true] {
        let first = first_inner.then(|| load(&inner).unwrap());
        let outer_module = load(&outer).unwrap();
        let second = load(&inner).unwrap();
        drop((first, outer_module, second));
        assert_eq!(reap().len(), 2, "{first_inner}");
        assert_eq!((mappings(&inner), mappings(&outer)), (0, 0), "{first_inner}");
    }
}

#[test]
fn code_of_one_library_with_a_deleter_of_another_keeps_both() {
    let _turn = turn();
    let caller = r#"
        ANYFN_EXPORT(address) { (void)args; (void)num_args; return anyfn_return_int(result, (int64_t)(intptr_t)seven); }"#;
    let releaser = r#"
        static int64_t released;
        static void release(void* self) { (void)self; released++; }
        ANYFN_EXPORT(wrap) {
          int64_t address;
          TVMFFIObjectHandle f;
          if (anyfn_arg_int(args, num_args, 0, &address)) return -1;
          if (TVMFFIFunctionCreate(&released, (TVMFFISafeCallType)(intptr_t)address, release, &f)) return -1;
          return give(result, kTVMFFIFunction, f);
        }"#;
    let (Some(caller), Some(releaser)) = (library("caller", caller, &[]), library("releaser", releaser, &[]))
    else {
        return;
    };
    let modules = [load(&caller).unwrap(), load(&releaser).unwrap()];
    let address = modules[0].get_function("address").unwrap().call(()).unwrap();
    let wrapped =
        modules[1].get_function("wrap").unwrap().call((address,)).unwrap().get::<PackedFunc>().unwrap();
    drop(modules);
    assert_eq!(leases(&caller).unwrap(), ["functions: 1"]);
    assert_eq!(leases(&releaser).unwrap(), ["functions: 1"]);
    assert!(reap().is_empty());
    assert_eq!(wrapped.call(()).unwrap().get::<i64>().unwrap(), 7);
    drop(wrapped);
    assert_eq!(reap().len(), 2);
}

#[test]
fn constants_of_a_library_as_a_tensor_keep_it() {
    let _turn = turn();
    let source = r#"
        static float values[2] = {1.5f, 2.5f};
        static int64_t shape[1] = {2};
        static DLManagedTensor constants;
        ANYFN_EXPORT(constants) {
          TVMFFIObjectHandle out;
          (void)args; (void)num_args;
          constants.dl_tensor.data = values;
          constants.dl_tensor.shape = shape;
          constants.dl_tensor.ndim = 1;
          constants.dl_tensor.dtype.code = kDLFloat;
          constants.dl_tensor.dtype.bits = 32;
          constants.dl_tensor.dtype.lanes = 1;
          constants.dl_tensor.device.device_type = kDLCPU;
          if (TVMFFITensorFromDLPack(&constants, 0, 0, &out)) return -1;
          return give(result, kTVMFFITensor, out);
        }"#;
    let Some(path) = library("constants", source, &[]) else { return };
    let module = load(&path).unwrap();
    let tensor = module.get_function("constants").unwrap().call(()).unwrap().get::<anyfn::Tensor>().unwrap();
    drop(module);
    assert!(reap().is_empty());
    // SAFETY: no code writes to the tensor.
    assert_eq!(unsafe { tensor.view().as_slice::<f32>() }.unwrap(), [1.5, 2.5]);
    drop(tensor);
    assert_eq!(reap().len(), 1);
}

#[test]
fn another_path_to_the_same_file_leaves_no_handle() {
    let _turn = turn();
    let Some(path) = library(
        "linked",
        "ANYFN_EXPORT(f) { (void)args; (void)num_args; return anyfn_return_int(result, 1); }",
        &[],
    ) else {
        return;
    };
    let (hard, soft) = (path.with_extension("hard.so"), path.with_extension("soft.so"));
    for link in [&hard, &soft] {
        let _ = std::fs::remove_file(link);
    }
    std::fs::hard_link(&path, &hard).unwrap();
    std::os::unix::fs::symlink(&path, &soft).unwrap();
    let modules = [&path, &hard, &soft, &hard].map(|path| load(path).unwrap());
    assert!(modules.iter().all(|module| module.as_object().ptr_eq(modules[0].as_object())));
    drop(modules);
    assert_eq!(reap().len(), 1);
    assert_eq!((mappings(&path), mappings(&hard)), (0, 0));
}

#[test]
fn a_library_that_is_refused_after_it_was_opened_is_closed() {
    let _turn = turn();
    let Some(path) = library("renewed", "", &[]) else { return };
    let source = format!(
        "#include <utime.h>\n__attribute__((constructor)) static void start(void) {{ struct utimbuf t = {{1, 1}}; utime(\"{}\", \
         &t); }}\nint __tvm_ffi_f(void) {{ return 0; }}",
        path.display()
    );
    let Some(path) = library("renewed", &source, &[]) else { return };
    fails(load(&path), "RuntimeError", "the file was replaced while it was loaded");
    assert_eq!((leases(&path), mappings(&path)), (None, 0));
}

#[test]
fn a_library_may_reap_and_load_where_it_begins_and_ends() {
    let _turn = turn();
    let Some(other) = library("other_end", "int __tvm_ffi_f(void) { return 0; }", &[]) else { return };
    let source = r#"
        static void run(const char* name, const char* text) {
          TVMFFIByteArray key = {name, 0};
          while (name[key.size]) key.size++;
          TVMFFIObjectHandle f;
          TVMFFIAny arg = {0}, out = {0};
          if (TVMFFIFunctionGetGlobal(&key, &f) || !f) abort();
          arg.type_index = kTVMFFIRawStr;
          arg.v_c_str = text;
          if (TVMFFIFunctionCall(f, &arg, text ? 1 : 0, &out)) abort();
          TVMFFIObjectDecRef(f);
          if (out.type_index >= kTVMFFIStaticObjectBegin) TVMFFIObjectDecRef(out.v_obj);
        }
        static void both(void) { run("ffi.ModuleReap", 0); run("ffi.ModuleLoadFromFile", "@OTHER@"); }
        __attribute__((constructor)) static void start(void) { both(); }
        __attribute__((destructor)) static void end(void) { both(); }
        int __tvm_ffi_f(void) { return 0; }"#
        .replace("@OTHER@", &other.display().to_string());
    let Some(path) = library("begin_end", &source, &[]) else { return };
    for _ in 0..3 {
        let module = load(&path).unwrap();
        assert_eq!(pinned(&module), None);
        drop(module);
        while !reap().is_empty() {}
        assert_eq!((mappings(&path), mappings(&other)), (0, 0));
    }
}

/// Tests that the runtime's locks and the dynamic loader's lock cannot cause a deadlock. The library is
/// opened without anyfn's loader, so its constructors create functions while the dynamic loader's lock is
/// held.
#[test]
fn making_functions_under_the_loaders_lock_ends() {
    let _turn = turn();
    let source = r#"
        __attribute__((constructor)) static void start(void) {
          for (int i = 0; i < 2000; i++) {
            TVMFFIObjectHandle f;
            if (TVMFFIFunctionCreate(0, seven, 0, &f)) abort();
            TVMFFIObjectDecRef(f);
          }
        }"#;
    let (Some(foreign), plugin) = (library("foreign", source, &[]), testing_plugin()) else { return };
    let foreign = std::ffi::CString::new(foreign.to_str().unwrap()).unwrap();
    // Each thread continues until both have done their part often enough.
    const TIMES: usize = 50;
    let (opened, loaded) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while opened.load(Ordering::Relaxed) < TIMES || loaded.load(Ordering::Relaxed) < TIMES {
                // SAFETY: the constructor of the library only creates functions, and releases all of them.
                let handle = unsafe { libc::dlopen(foreign.as_ptr(), libc::RTLD_NOW) };
                assert!(!handle.is_null());
                // SAFETY: the library was just opened, and nothing uses the handle afterwards.
                unsafe { libc::dlclose(handle) };
                opened.fetch_add(1, Ordering::Relaxed);
            }
        });
        while opened.load(Ordering::Relaxed) < TIMES || loaded.load(Ordering::Relaxed) < TIMES {
            drop(load(&plugin).unwrap());
            reap();
            loaded.fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Loads, uses and unmaps libraries on several threads for `ANYFN_STRESS_SECONDS` seconds, 1 by default.
#[test]
fn threads_that_load_use_and_reap() {
    let _turn = turn();
    let source = r#"
        static int add(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
          int64_t x;
          if (anyfn_arg_int(args, n, 0, &x)) return -1;
          return anyfn_return_int(result, x + *(int64_t*)self);
        }
        ANYFN_EXPORT(adder) {
          int64_t* data = malloc(sizeof *data);
          TVMFFIObjectHandle f;
          if (anyfn_arg_int(args, num_args, 0, data)) return -1;
          if (TVMFFIFunctionCreate(data, add, free, &f)) return -1;
          return give(result, kTVMFFIFunction, f);
        }"#;
    let names = ["stress_a", "stress_b"];
    let Some(mut paths) = names.iter().map(|name| library(name, source, &[])).collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let plugin = testing_plugin();
    paths.push(plugin.clone());
    let seconds = std::env::var("ANYFN_STRESS_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1.0);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    // A library is unmapped only when no thread happens to use it, which may take longer on a busy machine.
    let late = end + Duration::from_secs(120);
    let (rounds, reaped) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (paths, plugin, rounds, reaped) = (&paths, &plugin, &rounds, &reaped);
            scope.spawn(move || {
                let mut kept: Vec<PackedFunc> = Vec::new();
                for round in 0.. {
                    let has_reaped = reaped.load(Ordering::Relaxed) > 0;
                    if Instant::now() >= if has_reaped { end } else { late } {
                        break;
                    }
                    let path = &paths[(round + thread) % paths.len()];
                    let module = load(path).unwrap();
                    if path == plugin {
                        let add_one = module.get_function("add_one").unwrap();
                        assert_eq!(
                            add_one.call((round as i64,)).unwrap().get::<i64>().unwrap(),
                            round as i64 + 1
                        );
                    } else {
                        let adder = module.get_function("adder").unwrap();
                        let adder = adder.call((round as i64,)).unwrap().get::<PackedFunc>().unwrap();
                        assert_eq!(adder.call((1,)).unwrap().get::<i64>().unwrap(), round as i64 + 1);
                        kept.push(adder);
                        if kept.len() > 3 {
                            kept.remove(0);
                        }
                    }
                    drop(module);
                    for function in &kept {
                        assert!(function.call((0,)).is_ok());
                    }
                    if round % 7 == 0 {
                        kept.clear();
                    }
                    reaped.fetch_add(reap().len(), Ordering::Relaxed);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    println!(
        "{} rounds, {} libraries unmapped",
        rounds.load(Ordering::Relaxed),
        reaped.load(Ordering::Relaxed)
    );
    assert!(reaped.load(Ordering::Relaxed) > 0);
    reap();
    assert!(paths.iter().all(|path| mappings(path) == 0), "{}", still_mapped());
}

/// Returns a description of each mapped library: its leases and, if it is pinned, the reason.
fn still_mapped() -> String {
    let mapped = call("ffi.ModuleMapped", ()).unwrap().get::<Array<Map<Text, Any>>>().unwrap();
    let described = |library: Map<Text, Any>| {
        let text = |key: &str| library.get(key).unwrap().unwrap().get::<Option<String>>().unwrap();
        let leases = library.get("leases").unwrap().unwrap().get::<Map<Text, i64>>().unwrap();
        let leases: Vec<_> = leases.iter().map(|(what, number)| format!("{what}: {number}")).collect();
        format!("{:?}: {leases:?}, pinned: {:?}\n", text("file"), text("pinned"))
    };
    mapped.iter().map(described).collect()
}

/// Tests that a plugin stays mapped while only its objects are alive. After the plugin's module is dropped,
/// objects are created on one thread and released on another.
#[test]
fn a_plugins_count_never_misses_what_is_alive() {
    let _turn = turn();
    let path = testing_plugin();
    let module = load(&path).unwrap();
    let concat = registry::get("testing.concat").unwrap();
    drop(module);
    let done = AtomicBool::new(false);
    let seconds = std::env::var("ANYFN_STRESS_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(0.5);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (sender, receiver) = std::sync::mpsc::sync_channel(64);
            let (concat, done) = (&concat, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let text = concat.call(("a long text, ", "too long for a value")).unwrap();
                    if sender.send(text).is_err() {
                        break;
                    }
                }
            });
            scope.spawn(move || receiver.into_iter().for_each(drop));
        }
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end {
            assert!(reap().is_empty());
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(leases(&path).unwrap(), ["objects: 1"]);
    drop(concat);
    assert_eq!(reap().len(), 1);
}
