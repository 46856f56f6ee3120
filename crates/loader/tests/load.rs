//! Tests of loading library modules: files that load, and files that are refused with a reason.

use std::fs;
use std::path::Path;

use anyfn::abi::{DLTensor, kDLCPU};
use anyfn::{Device, Element, Module, PackedFunc, Result, TensorView, registry};
use anyfn_loader as _;
use anyfn_random::Random;

mod support;
use support::{compile, fails, load, saxpy, scratch};

fn call_saxpy(f: &PackedFunc, a: f64, x: &mut [f32], y: &mut [f32]) -> Result<()> {
    fn describe(data: &mut [f32], shape: &mut i64) -> DLTensor {
        *shape = data.len() as i64;
        DLTensor {
            data: data.as_mut_ptr().cast(),
            device: Device::new(kDLCPU, 0).0,
            ndim: 1,
            dtype: f32::DTYPE.0,
            shape,
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        }
    }
    let (mut n, mut m) = (0, 0);
    let (x, y) = (describe(x, &mut n), describe(y, &mut m));
    // SAFETY: data and shapes live for the call.
    let x = unsafe { TensorView::from_dl(&x) };
    // SAFETY: data and shapes live for the call.
    let y = unsafe { TensorView::from_dl(&y) };
    f.call((a, x, y)).map(drop)
}

/// A name without a slash denotes a library that the dynamic loader has mapped already, as when a program is linked to it.
#[test]
fn a_library_is_found_by_its_name_if_it_is_mapped() {
    let source = "int __tvm_ffi_f(void) { return 0; }";
    let Some(path) = compile("mapped_before", source, &["-Wl,-soname,libanyfn_mapped_before.so"]) else {
        return;
    };
    let name = "libanyfn_mapped_before.so";
    fails(
        Module::load(name),
        "RuntimeError",
        "Failed to load dynamic shared library libanyfn_mapped_before.so: there is no such file",
    );
    let library = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the path is NUL-terminated, and the library has no constructors.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null());
    let module = Module::load(name).unwrap();
    assert!(module.find_function("f").unwrap().is_some());
}

#[test]
fn a_c_kernel_computes_and_checks() {
    let Some(path) = saxpy("computes") else { return };
    let module = load(&path).unwrap();
    assert_eq!(module.kind().unwrap(), "library");
    let f = module.get_function("saxpy").unwrap();
    let (mut x, mut y) = ([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]);
    call_saxpy(&f, 2.0, &mut x, &mut y).unwrap();
    assert_eq!(y, [12.0, 24.0, 36.0]);
    fails(call_saxpy(&f, 2.0, &mut x, &mut y[..2]), "ValueError", "expected the shape of x, [3], but got [2]");
    fails(f.call((1,)), "TypeError", "Expected 3 but got 1");

    // The function keeps its module alive.
    drop(module);
    call_saxpy(&f, 0.0, &mut x, &mut y).unwrap();
}

#[test]
fn functions_tell_about_themselves() {
    let Some(path) = saxpy("tells") else { return };
    let module = load(&path).unwrap();
    let doc = registry::get("ffi.ModuleGetFunctionDoc").unwrap();
    assert_eq!(
        doc.call((&module, "saxpy", false)).unwrap().get::<&str>().unwrap(),
        "y = a * x + y, in place, on float32 tensors."
    );
    assert!(doc.call((&module, "call_back", false)).unwrap().is_none());
    let signature = module.get_function("saxpy").unwrap().signature().unwrap();
    assert!(signature.contains("\"arg_names\":[\"a\",\"x\",\"y\"]"), "{signature}");
    assert!(module.get_function("call_back").unwrap().signature().is_none());
    let implements = registry::get("ffi.ModuleImplementsFunction").unwrap();
    assert!(implements.call((&module, "saxpy", true)).unwrap().get::<bool>().unwrap());
    assert!(!implements.call((&module, "saxp", true)).unwrap().get::<bool>().unwrap());
}

#[test]
fn functions_are_listed() {
    let Some(path) = saxpy("lists") else { return };
    let names = |module: &Module| module.function_names().unwrap().iter().map(|n| n.to_string()).collect();
    let module = load(&path).unwrap();
    let listed: Vec<String> = names(&module);
    // The names are in order, without the symbols of metadata and data.
    assert_eq!(listed, ["call_back", "call_global", "saxpy"]);
    assert!(listed.iter().all(|name| module.find_function(name).unwrap().is_some()));

    // A name that only looks like that of a metadata getter, data, a hidden function, C++ names and a weak symbol.
    let source = "int __tvm_ffi_f(void) { return 0; } int __tvm_ffi__doc_f(void) { return 0; }
        int __tvm_ffi__doc_g(void) { return 0; } __attribute__((weak)) int __tvm_ffi_weak(void) { return 0; }
        int __tvm_ffi_data = 1; static int __tvm_ffi_hidden(void) { return 0; } int other(void) { return 0; }
        __attribute__((weak)) int __tvm_ffi_elsewhere(void);
        int uses(void) { return __tvm_ffi_hidden() + (__tvm_ffi_elsewhere ? __tvm_ffi_elsewhere() : 0); }";
    let Some(path) = compile("lists_some", source, &[]) else { return };
    assert_eq!(names(&load(&path).unwrap()), ["_doc_g", "f", "weak"]);
}

#[test]
fn a_missing_function_is_none_or_an_error() {
    let Some(path) = saxpy("missing") else { return };
    let module = load(&path).unwrap();
    assert!(module.find_function_with_imports("nothing").unwrap().is_none());
    fails(
        module.get_function("nothing"),
        "AttributeError",
        "has no function `nothing`; its functions are `call_back`, `call_global`, `saxpy`",
    );
    fails(
        module.get_function("saxpi"),
        "AttributeError",
        "has no function `saxpi`; did you mean `saxpy`? Its functions are `call_back`, `call_global`, `saxpy`",
    );
    // A message lists only the first functions.
    let many: String = (10..22).map(|n| format!("int __tvm_ffi_f{n}(void) {{ return 0; }}\n")).collect();
    let Some(path) = compile("missing_of_many", &many, &[]) else { return };
    let names: Vec<String> = (10..20).map(|n| format!("`f{n}`")).collect();
    let message = format!("has no function `another`; its functions are {}, ... and 2 more", names.join(", "));
    fails(load(&path).unwrap().get_function("another"), "AttributeError", &message);
    let Some(path) = compile("missing_of_one", "int __tvm_ffi_one(void) { return 0; }", &[]) else { return };
    fails(load(&path).unwrap().get_function("absent"), "AttributeError", "; its only function is `one`");
    // Names of data symbols are not functions.
    assert!(module.find_function("_library_ctx").unwrap().is_none());
    assert!(module.find_function("a\0b").unwrap().is_none());
}

#[test]
fn what_modules_cannot_do_is_an_error() {
    let Some(path) = saxpy("cannot") else { return };
    let module = load(&path).unwrap();
    let write = registry::get("ffi.ModuleWriteToFile").unwrap();
    fails(
        write.call((&module, "file.so", "so")),
        "RuntimeError",
        "a module of kind `library` cannot be written",
    );
    let global = |name: &str| registry::get(name).unwrap();
    assert_eq!(global("ffi.ModuleGetPropertyMask").call((&module,)).unwrap().get::<i64>().unwrap(), 3);
    assert_eq!(global("ffi.ModuleInspectSource").call((&module, "")).unwrap().get::<&str>().unwrap(), "");
    let formats = global("ffi.ModuleGetWriteFormats").call((&module,)).unwrap();
    assert_eq!(formats.get::<anyfn::Array<anyfn::String>>().unwrap().len(), 0);
    global("ffi.ModuleGlobalsAdd").call((&module,)).unwrap();
    global("ffi.ModuleGlobalsAdd").call((&module,)).unwrap();
    let count = module.as_object().use_count();
    global("ffi.ModuleGlobalsRemove").call((&module,)).unwrap();
    assert_eq!(module.as_object().use_count(), count - 1);
}

fn refused(path: &Path, part: &str) {
    let result = load(path);
    fails(result.map(|_| ()), "RuntimeError", part);
    let error = load(path).unwrap_err();
    assert!(error.message().contains(path.file_name().unwrap().to_str().unwrap()), "{error}");
}

#[test]
fn files_that_are_no_libraries_are_refused() {
    let file = |name: &str, content: &[u8]| {
        let path = scratch(name);
        fs::write(&path, content).unwrap();
        path
    };
    refused(&file("empty.so", b""), "the file is empty");
    refused(&file("text.so", b"int main() {}\n"), "a text file (it begins with \"int main() {}\\n\")");
    refused(&file("other.so", b"MZ\x90\0\x03\0\0\0"), "a file of another format");
    refused(&file("short.so", b"\x7fELF\x02\x01"), "truncated");
    refused(&scratch("absent.so"), "there is no such file");
    fails(Module::load("absent.so").map(drop), "RuntimeError", "there is no such file in /");
    let dir = scratch("dir.so");
    fs::create_dir_all(&dir).unwrap();
    refused(&dir, "it is a directory");
    let pipe = scratch("pipe.so");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    refused(&pipe, "it is not a regular file");
    fails(Module::load("code.py").map(drop), "RuntimeError", "Loader for `.py` files is not registered");
    fails(
        Module::load("library").map(drop),
        "RuntimeError",
        "its file name has no extension, which selects the loader",
    );
    fs::write(scratch("plain.so"), "").unwrap();
    let load = |name: &str| Module::load(scratch(name).to_str().unwrap()).map(drop);
    fails(load("plain"), "RuntimeError", "plain.so`?");
    fs::create_dir_all(scratch("dir.d")).unwrap();
    fails(load("dir.d"), "RuntimeError", "It is a directory");
    fails(Module::load("/").map(drop), "RuntimeError", "cannot load the module `/`: it is a directory");
    let compile = "Compile it first, as with `cc -shared -fPIC a/axpy.c -o a/axpy.so`";
    fails(Module::load("a/axpy.c").map(drop), "RuntimeError", compile);
    fails(Module::load("f.so.").map(drop), "RuntimeError", "its file name has no extension");
    // Version numbers are not extensions.
    fails(Module::load("absent.so.1.2").map(drop), "RuntimeError", "there is no such file");
    fails(Module::load("absent.1").map(drop), "RuntimeError", "Loader for `.1` files is not registered");
    // Library extensions of other systems have the same meaning.
    fails(Module::load("absent.dylib").map(drop), "RuntimeError", "there is no such file");
    fails(registry::get("ffi.ModuleLoadFromFile").unwrap().call((1,)), "TypeError", "argument #0");
}

#[test]
fn truncated_and_foreign_libraries_are_refused() {
    let Some(path) = saxpy("whole") else { return };
    let whole = fs::read(&path).unwrap();
    for len in [8, 63, 64, 100, 500, 4096, whole.len() / 2, whole.len() - 64, whole.len() - 1] {
        let path = scratch(&format!("cut-{len}.so"));
        fs::write(&path, &whole[..len]).unwrap();
        refused(&path, "the file is truncated");
    }
    let patched = |name: &str, at: usize, bytes: &[u8]| {
        let mut content = whole.clone();
        content[at..at + bytes.len()].copy_from_slice(bytes);
        let path = scratch(name);
        fs::write(&path, content).unwrap();
        path
    };
    refused(&patched("machine.so", 18, &[40, 0]), "it is a library for ARM, this process runs on ");
    refused(&patched("class.so", 4, &[1]), "32-bit");
    refused(&patched("type.so", 16, &[1, 0]), "link it with -shared");
    // Random damage of the headers leads to an error or a working library, never to a crash.
    let mut random = Random::new(12345);
    for i in 0..300 {
        let mut content = whole.clone();
        let at = random.below(64);
        content[at] = random.byte();
        let path = scratch(&format!("damaged-{i}.so"));
        fs::write(&path, content).unwrap();
        // Only damage that the checks can refuse is loaded: other files would reach the dynamic loader.
        if at >= 4 && !matches!(at, 24..=31) {
            drop(load(&path));
        }
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn libraries_for_another_runtime_are_refused() {
    let note = |words: &str| {
        format!(
            "static const struct {{ int n, d, t; char o[8]; int w[6]; }} note \
             __attribute__((section(\".note.anyfn\"), used, aligned(4))) = {{6, 24, 1, \"anyfn\", {{{words}}}}};"
        )
    };
    let Some(newer_abi) = compile("newer_abi", &note("0, 99, 0, 0, 1, 0"), &[]) else { return };
    refused(&newer_abi, "it was built for version 0.99.0 of the ABI, this runtime has 0.1.");
    let newer_core = compile("newer_core", &note("0, 1, 0, 9, 0, 0"), &[]).unwrap();
    refused(&newer_core, "it requires version 9.0.0 of the anyfn runtime");
    load(&compile("same", &note("0, 1, 0, 0, 1, 0"), &[]).unwrap()).unwrap();

    let source = "int TVMFFINoSuchThing(void); int __tvm_ffi_f(void) { return TVMFFINoSuchThing(); }";
    refused(&compile("unknown_symbol", source, &[]).unwrap(), "it needs TVMFFINoSuchThing from the runtime");
    let source = "extern int nobody_has_this; int __tvm_ffi_f(void) { return nobody_has_this; }";
    // Functions are bound when the library is loaded: binding at the first call would end the process.
    let function = "int nobody_has_that(void); int __tvm_ffi_f(void) { return nobody_has_that(); }";
    refused(
        &compile("undefined_function", function, &[]).unwrap(),
        "no library in the process defines nobody_has_that",
    );
    refused(
        &compile("undefined_data", source, &[]).unwrap(),
        "no library in the process defines nobody_has_this",
    );
}

#[test]
fn what_the_loader_writes_to_must_be_a_variable() {
    let cases = [
        ("slot_code", "int __tvm_ffi__library_ctx(void) { return 0; }", false),
        ("slot_const", "void* const __tvm_ffi__library_ctx = 0;", false),
        ("slot_sealed", "int f(void) { return 0; } void* const __TVMFFIFunctionCall = (void*)f;", false),
        ("slot_small", "char __tvm_ffi__library_ctx = 1; char after[7];", false),
        ("slot_backend", "void __TVMBackendParallelLaunch(void) {}", false),
        ("slot_local", "__thread void* __tvm_ffi__library_ctx;", false),
        (
            "slot_right",
            "void* __tvm_ffi__library_ctx; __attribute__((weak)) void* __TVMFFIFunctionCall = 0;",
            true,
        ),
    ];
    for (name, source, is_right) in cases {
        let source = format!("{source} int __tvm_ffi_f(void) {{ return 0; }}");
        let Some(path) = compile(name, &source, &["-Wl,-z,relro,-z,now"]) else { return };
        if is_right {
            load(&path).unwrap();
        } else {
            refused(&path, "is not a writable variable");
        }
    }
}

#[test]
fn a_file_is_described_without_being_loaded() {
    let source = "
        #include <stdio.h>
        __attribute__((constructor)) static void start(void) { puts(\"code has run\"); fflush(stdout); __builtin_trap(); }
        void* __tvm_ffi__library_ctx;
        void* __TVMFFIFunctionCall;
        int TVMFFINoSuchThing(void);
        int somebody_else(void);
        int __tvm_ffi_f(void) { return TVMFFINoSuchThing() + somebody_else(); }
        int __tvm_ffi_g(void) { return 0; }
        /* Two modules: one of device code, which the library imports. */
        const struct { unsigned long long size, n, rows[3], m, child[1]; char rest[8 + 4 + 8 + 6 + 8 + 3]; }
        __attribute__((packed)) __tvm_ffi__library_bin = {
          8 + 24 + 8 + 8 + 37, 3, {0, 1, 1}, 1, {1},
          \"\\4\\0\\0\\0\\0\\0\\0\\0_lib\\6\\0\\0\\0\\0\\0\\0\\0opencl\\3\\0\\0\\0\\0\\0\\0\\0abc\"};";
    let Some(path) = compile("described", source, &["-Wl,-soname,described.so"]) else { return };
    let inspect = registry::get("ffi.ModuleInspectFile").unwrap();
    let found = inspect
        .call((path.to_str().unwrap(),))
        .unwrap()
        .get::<anyfn::Map<anyfn::String, anyfn::Any>>()
        .unwrap();
    let text = |key: &str| found.at(key).unwrap().get::<String>().unwrap();
    let list = |key: &str| -> Vec<String> {
        let items = found.at(key).unwrap().get::<anyfn::Array<anyfn::String>>().unwrap();
        items.iter().map(|item| item.to_string()).collect()
    };
    assert_eq!(text("soname"), "described.so");
    assert_eq!(list("functions"), ["f", "g"]);
    assert_eq!(list("context_slots"), ["__TVMFFIFunctionCall", "__tvm_ffi__library_ctx"]);
    assert_eq!(list("runtime_symbols"), ["TVMFFINoSuchThing"]);
    assert!(list("other_symbols").contains(&"somebody_else".to_owned()));
    assert!(found.at("problem").unwrap().is_none() && found.at("abi").unwrap().is_none());
    let imports = found.at("imports").unwrap().get::<anyfn::Array<anyfn::Any>>().unwrap();
    let kinds: Vec<String> = imports
        .iter()
        .map(|module| {
            let module = module.get::<anyfn::Map<anyfn::String, anyfn::Any>>().unwrap();
            format!(
                "{} {}",
                module.at("kind").unwrap().get::<String>().unwrap(),
                module.at("size").unwrap().get::<i64>().unwrap()
            )
        })
        .collect();
    assert_eq!(kinds, ["library 0", "opencl 3"]);
    fails(inspect.call(("absent.so",)), "RuntimeError", "Cannot inspect absent.so: there is no such file");
    let symbols = registry::get("ffi.ModuleFileSymbols").unwrap();
    let found = symbols.call((path.to_str().unwrap(),)).unwrap();
    let found = found.get::<anyfn::Map<anyfn::String, anyfn::Any>>().unwrap();
    let has = |key: &str, name: &str| {
        let names = found.at(key).unwrap().get::<anyfn::Array<anyfn::String>>().unwrap();
        names.iter().any(|found| &*found == name)
    };
    assert_eq!(found.at("soname").unwrap().get::<String>().unwrap(), "described.so");
    assert!(has("defined", "__tvm_ffi_f") && !has("defined", "somebody_else"));
    assert!(has("undefined", "somebody_else") && has("undefined", "TVMFFINoSuchThing"));
    fails(symbols.call(("absent.so",)), "RuntimeError", "Cannot inspect absent.so: there is no such file");
}
