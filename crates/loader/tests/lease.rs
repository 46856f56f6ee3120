//! Tests that a library stays mapped as long as any part of it is in use, and no longer.

use std::ffi::c_void;

use anyfn::abi::TVMFFIFunctionCall;
use anyfn::{Module, PackedFunc, registry};
use anyfn_loader as _;

mod support;
use support::unload::{call, leases, mappings, reap, turn};
use support::{compile, fails, load, testing_plugin};

const SOURCE: &str = r#"
#include <anyfn/anyfn.h>
#include <stdlib.h>
static int64_t released;
static int add(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  int64_t x;
  if (anyfn_arg_int(args, n, 0, &x)) return -1;
  return anyfn_return_int(result, x + *(int64_t*)self);
}
static int seven(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self; (void)args; (void)n;
  return anyfn_return_int(result, 7);
}
static void release(void* self) { released++; free(self); }
ANYFN_EXPORT(adder) {
  int64_t x;
  TVMFFIObjectHandle f;
  if (anyfn_arg_int(args, num_args, 0, &x)) return -1;
  int64_t* data = malloc(sizeof *data);
  *data = x;
  if (TVMFFIFunctionCreate(data, add, release, &f)) return -1;
  result->type_index = kTVMFFIFunction;
  result->v_obj = f;
  return 0;
}
ANYFN_EXPORT(plain) {
  TVMFFIObjectHandle f;
  (void)args; (void)num_args;
  if (TVMFFIFunctionCreate(0, seven, 0, &f)) return -1;
  result->type_index = kTVMFFIFunction;
  result->v_obj = f;
  return 0;
}
static void delete_tensor(DLManagedTensor* t) { released++; free(t->dl_tensor.data); free(t->dl_tensor.shape); free(t); }
ANYFN_EXPORT(tensor) {
  DLManagedTensor* t = calloc(1, sizeof *t);
  (void)args; (void)num_args;
  t->dl_tensor.data = calloc(4, 4);
  t->dl_tensor.shape = malloc(8);
  t->dl_tensor.shape[0] = 4;
  t->dl_tensor.ndim = 1;
  t->dl_tensor.dtype.code = kDLFloat;
  t->dl_tensor.dtype.bits = 32;
  t->dl_tensor.dtype.lanes = 1;
  t->dl_tensor.device.device_type = kDLCPU;
  t->deleter = delete_tensor;
  ((float*)t->dl_tensor.data)[2] = 2.5f;
  TVMFFIObjectHandle out;
  if (TVMFFITensorFromDLPack(t, 0, 0, &out)) return -1;
  result->type_index = kTVMFFITensor;
  result->v_obj = out;
  return 0;
}
ANYFN_EXPORT(fail) { (void)args; (void)num_args; (void)result; return anyfn_raise("ValueError", "of the library"); }
ANYFN_EXPORT(released) { (void)args; (void)num_args; return anyfn_return_int(result, released); }
"#;

#[test]
fn everything_of_a_c_library_keeps_it() {
    let _turn = turn();
    let Some(path) = compile("lease", SOURCE, &[]) else { return };
    let module = load(&path).unwrap();
    assert!(call("ffi.ModulePinned", (&module,)).unwrap().is_none());
    let function = |name: &str| module.get_function(name).unwrap();
    let adder = function("adder").call((5,)).unwrap().get::<PackedFunc>().unwrap();
    let plain = function("plain").call(()).unwrap().get::<PackedFunc>().unwrap();
    let tensor = function("tensor").call(()).unwrap().get::<anyfn::Tensor>().unwrap();
    let error = function("fail").call(()).unwrap_err();
    let exported = function("released");
    registry::register("test.lease.adder").set(&adder).unwrap();

    drop(module);
    assert_eq!(leases(&path).unwrap(), ["functions: 2", "tensors: 1", "modules: 1"]);
    assert!(reap().is_empty());
    assert_eq!(adder.call((1,)).unwrap().get::<i64>().unwrap(), 6);
    assert_eq!(plain.call(()).unwrap().get::<i64>().unwrap(), 7);
    // SAFETY: no code writes to the tensor.
    let values = unsafe { tensor.view().as_slice::<f32>() }.unwrap().to_vec();
    assert_eq!(values, [0.0, 0.0, 2.5, 0.0]);
    assert_eq!((error.kind(), error.message().to_string()), ("ValueError", "of the library".to_string()));
    assert_eq!(exported.call(()).unwrap().get::<i64>().unwrap(), 0);

    // The values are dropped one after the other. The error holds nothing of the library.
    drop(exported);
    drop(plain);
    drop(adder);
    assert_eq!(leases(&path).unwrap(), ["functions: 1", "tensors: 1"]);
    assert!(reap().is_empty());
    assert_eq!(call("test.lease.adder", (2,)).unwrap().get::<i64>().unwrap(), 7);
    assert!(registry::remove("test.lease.adder").unwrap());
    drop(tensor);
    assert_eq!(leases(&path).unwrap(), Vec::<String>::new());
    assert!(mappings(&path) > 0, "nothing is unmapped inside a release");
    assert_eq!(reap(), [path.canonicalize().unwrap().to_str().unwrap()]);
    assert_eq!((leases(&path), mappings(&path)), (None, 0));
    assert_eq!(error.message(), "of the library");

    // When the library is loaded again, its variables have their initial values.
    let module = load(&path).unwrap();
    assert_eq!(module.get_function("released").unwrap().call(()).unwrap().get::<i64>().unwrap(), 0);
}

#[test]
fn everything_of_a_rust_plugin_keeps_it() {
    let _turn = turn();
    let path = testing_plugin();
    let module = load(&path).unwrap();
    assert!(call("ffi.ModulePinned", (&module,)).unwrap().is_none());
    let adder = call("testing.make_adder", (3,)).unwrap().get::<PackedFunc>().unwrap();
    let point = call("testing.make_point", (1.0, 2.0)).unwrap();
    let text = call("testing.concat", ("a long text, ", "too long for a value")).unwrap();
    let error = call("testing.raise_error", ("KeyError", "of the plugin")).unwrap_err();
    let add_one = module.get_function("add_one").unwrap();
    drop(module);
    assert!(registry::find("testing.nop").is_some(), "a function of the module is a handle of it");
    assert!(reap().is_empty());
    assert_eq!(adder.call((4,)).unwrap().get::<i64>().unwrap(), 7);
    assert_eq!(text.get::<&str>().unwrap(), "a long text, too long for a value");
    assert_eq!(error.message(), "of the plugin");
    drop(add_one);
    assert!(registry::find("testing.nop").is_none(), "registrations go with the module's last handle");
    assert!(reap().is_empty());
    let held: Vec<String> = leases(&path).unwrap();
    assert!(held.len() == 1 && held[0].starts_with("objects: "), "{held:?}");
    drop((adder, text, error));
    assert_eq!(leases(&path).unwrap(), ["objects: 1"]);
    assert!(reap().is_empty());
    drop(point);
    assert_eq!(leases(&path).unwrap(), Vec::<String>::new());
    assert_eq!(reap().len(), 1);
    assert_eq!(mappings(&path), 0);
    // Its types can be used again after it is loaded again.
    let module = load(&path).unwrap();
    let point = call("testing.make_point", (1.5, 2.0)).unwrap();
    assert_eq!(call("testing.point_x", (&point,)).unwrap().get::<f64>().unwrap(), 1.5);
    drop((module, point));
    assert_eq!(reap().len(), 1);
}

/// Returns the resident memory of the process in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Tests loading and unloading each library many times. If the environment variable `ANYFN_CYCLES` is set, it
/// is the number of cycles, and the test also checks the memory use.
#[test]
fn loading_and_unloading_leaves_nothing() {
    let _turn = turn();
    let Some(c_library) = compile("cycles", SOURCE, &[]) else { return };
    let cycles = std::env::var("ANYFN_CYCLES").ok().and_then(|n| n.parse().ok());
    let is_sanitized = std::env::var_os("ASAN_OPTIONS").is_some();
    for (path, rounds) in [(c_library, 300), (testing_plugin(), 100)] {
        let rounds: usize = cycles.unwrap_or(rounds);
        let (mut mapped, mut memory) = (Vec::new(), 0);
        for round in 0..rounds {
            let module: Module = load(&path).unwrap();
            if round % 3 == 0 {
                let name = if registry::find("testing.nop").is_some() { "add_one" } else { "adder" };
                drop(module.get_function(name).unwrap().call((1,)).unwrap());
            }
            drop(module);
            assert_eq!(reap().len(), 1, "round {round} of {}", path.display());
            assert_eq!(mappings(&path), 0);
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            // The allocator of the address sanitizer maps and splits its memory as it keeps freed blocks.
            let is_counted = |line: &&str| !is_sanitized || line.contains('/');
            let lines: Vec<String> = maps.lines().filter(is_counted).map(String::from).collect();
            if round == rounds / 3 {
                (mapped, memory) = (lines.clone(), resident());
            }
            let added: Vec<&String> = lines.iter().filter(|line| !mapped.contains(line)).collect();
            assert!(
                round <= rounds / 3 || lines.len() <= mapped.len() + 4,
                "{} mappings after {round} rounds, with these new ones: {added:#?}",
                lines.len()
            );
        }
        let (before, after) = (memory, resident());
        println!("{}: {before} KiB after a third of {rounds} rounds, {after} KiB at the end", path.display());
        assert!(cycles.is_none() || after <= before + 256, "{before} KiB became {after} KiB");
    }
}

#[test]
fn a_later_load_unmaps_what_was_idle_twice() {
    let _turn = turn();
    let Some(path) = compile("idle", SOURCE, &[]) else { return };
    let Some(other) = compile("other", "int __tvm_ffi_f(void) { return 0; }", &[]) else { return };
    drop(load(&path).unwrap());
    drop(load(&other).unwrap());
    assert!(mappings(&path) > 0, "seen idle for the first time");
    let kept = load(&other).unwrap();
    assert_eq!(mappings(&path), 0);
    drop(kept);
    reap();
}

#[test]
fn what_cannot_be_counted_is_pinned() {
    let _turn = turn();
    let pinned = |name: &str, source: &str, flags: &[&str], part: &str| {
        let Some(path) = compile(name, source, flags) else { return };
        let module = load(&path).unwrap();
        let reason = call("ffi.ModulePinned", (&module,)).unwrap().get::<String>().unwrap();
        assert!(reason.contains(part), "no `{part}` in: {reason}");
        drop(module);
        assert!(reap().is_empty());
        assert!(mappings(&path) > 0);
    };
    let f = "int __tvm_ffi_f(void) { return 0; }";
    pinned("nodelete", f, &["-Wl,-z,nodelete"], "-z nodelete");
    let unique = "asm(\".globl one\\n.type one, @gnu_unique_object\\n.data\\none: .long 1\\n.size one, 4\\n.text\\n\"); \
                  int __tvm_ffi_f(void) { return 0; }";
    pinned("unique", unique, &[], "unique in the whole process, such as one");
    let types =
        "int TVMFFITypeGetOrAllocIndex(void); int __tvm_ffi_f(void) { return TVMFFITypeGetOrAllocIndex(); }";
    pinned("types", types, &[], "it has its own object types");
    let fields =
        "int TVMFFITypeRegisterField(void); int __tvm_ffi_f(void) { return TVMFFITypeRegisterField(); }";
    pinned("fields", fields, &[], "registers fields of types");
    let unknown = call("ffi.ModulePinned", (1,));
    fails(unknown, "TypeError", "argument #0");
    let _: *const c_void = (TVMFFIFunctionCall as *const ()).cast();
}

/// Tests that callbacks in both directions work after the module is dropped: a function of the
/// library that the caller keeps, and a function of the caller that the library keeps.
#[test]
fn callbacks_in_both_directions_outlive_the_module() {
    let _turn = turn();
    let source = format!(
        "{SOURCE}\n{}",
        r#"
        ANYFN_EXPORT(give) {
          TVMFFIAny arg = {0};
          if (num_args != 1) return anyfn_raise("TypeError", "expected one function");
          arg.type_index = kTVMFFIFunction;
          if (TVMFFIFunctionCreate(0, seven, 0, &arg.v_obj)) return -1;
          int code = TVMFFIFunctionCall(args[0].v_obj, &arg, 1, result);
          TVMFFIObjectDecRef(arg.v_obj);
          return code;
        }
        static int call_kept(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
          return TVMFFIFunctionCall((TVMFFIObjectHandle)self, args, n, result);
        }
        static void release_kept(void* self) { TVMFFIObjectDecRef(self); }
        ANYFN_EXPORT(wrap) {
          TVMFFIObjectHandle f;
          if (num_args != 1) return anyfn_raise("TypeError", "expected one function");
          TVMFFIObjectIncRef(args[0].v_obj);
          if (TVMFFIFunctionCreate(args[0].v_obj, call_kept, release_kept, &f)) return -1;
          result->type_index = kTVMFFIFunction;
          result->v_obj = f;
          return 0;
        }"#
    );
    let Some(path) = compile("callbacks", &source, &[]) else { return };
    let module = load(&path).unwrap();
    let given = std::sync::Arc::new(std::sync::Mutex::new(None));
    let keep = PackedFunc::new({
        let given = given.clone();
        move |args| {
            *given.lock().unwrap() = Some(args.get::<PackedFunc>(0)?);
            Ok(anyfn::Any::default())
        }
    });
    module.get_function("give").unwrap().call((keep,)).unwrap();
    let host = PackedFunc::new(|args| anyfn::Any::new(args.get::<i64>(0)? * 2));
    let wrapped = module.get_function("wrap").unwrap().call((&host,)).unwrap().get::<PackedFunc>().unwrap();
    let given = given.lock().unwrap().take().unwrap();
    drop(module);
    assert_eq!(leases(&path).unwrap(), ["functions: 2"]);
    assert!(reap().is_empty());
    assert_eq!(given.call(()).unwrap().get::<i64>().unwrap(), 7);
    assert_eq!(wrapped.call((4,)).unwrap().get::<i64>().unwrap(), 8);
    assert_eq!(host.as_object().use_count(), 2);
    drop((given, wrapped));
    assert_eq!(host.as_object().use_count(), 1);
    assert_eq!(reap().len(), 1);
    assert_eq!(mappings(&path), 0);
}
