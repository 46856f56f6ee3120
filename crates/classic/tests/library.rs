//! Libraries that follow the library convention of TVM 0.8, loaded and called from Rust.

use anyfn_classic as _;
use anyfn_loader as _;
use anyfn_runtime as _;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyfn::{DType, Device, Module, Tensor, registry};

/// Compiles the library in `testing/classic`, or returns `None` if there is no C compiler.
fn compile(name: &str, flags: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.so", std::process::id()));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(&compiler)
        .args(["-O1", "-shared", "-fPIC", "-fvisibility=hidden"])
        .args(flags)
        .arg("-I")
        .arg(root.join("bindings/c/include"))
        .arg(root.join("testing/classic/library.c"))
        .arg("-o")
        .arg(&output)
        .status();
    match status {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            anyfn_skip::report(&format!("no C compiler {compiler}: {error}"));
            return None;
        }
    }
    Some(output)
}

fn vector(values: &[f32]) -> Tensor {
    Tensor::from_slice(&[values.len() as i64], values).unwrap()
}

#[test]
fn functions_are_called_like_any_other() {
    let Some(path) = compile("slots", &[]) else { return };
    let module = Module::load(path.to_str().unwrap()).unwrap();
    assert_eq!(&*module.kind().unwrap(), "library");
    let names: Vec<String> = module.function_names().unwrap().iter().map(|name| name.to_string()).collect();
    assert_eq!(names, ["call_twice", "iota", "scalar_add", "vector_add"]);

    let (a, b) = (vector(&[1.0, 2.0]), vector(&[10.0, 20.0]));
    let sum = Tensor::empty(DType::new(2, 32, 1), &[2], Device::CPU).unwrap();
    let add = module.get_function("vector_add").unwrap();
    add.call((&a, &b, &sum)).unwrap();
    assert_eq!(*sum.read::<f32>().unwrap(), [11.0, 22.0]);
    let error = add.call((1, 2)).unwrap_err();
    assert_eq!(error.message(), "Assert fail: (num_args == 3), vector_add: num_args should be 3");
    let error = add.call((1, 2, 3)).unwrap_err();
    assert_eq!((error.kind(), error.message()), ("TypeError", "vector_add: expected vectors of float32"));

    let scalar_add = module.get_function("scalar_add").unwrap();
    assert_eq!(scalar_add.call((1, 2.5)).unwrap().get::<f64>().unwrap(), 3.5);
    let entry = module.get_function("main").unwrap();
    assert_eq!(entry.call((40, 2)).unwrap().get::<f64>().unwrap(), 42.0);

    // A function of the program, whose handle the library caches. Its error passes through as the same object.
    let call_twice = module.get_function("call_twice").unwrap();
    let error = call_twice.call((21,)).unwrap_err();
    assert!(error.message().contains("Cannot find function classic.twice"), "{error}");
    registry::register("classic.twice")
        .set_body_typed(|x: i64| if x < 0 { anyfn::bail!("OverflowError", "negative") } else { Ok(2 * x) })
        .unwrap();
    assert_eq!(call_twice.call((21,)).unwrap().get::<i64>().unwrap(), 42);
    let error = call_twice.call((-1,)).unwrap_err();
    assert_eq!((error.kind(), error.message()), ("OverflowError", "negative"));
    assert!(error.backtrace().contains("library.rs"), "{}", error.backtrace());

    let numbers = vector(&[0.0; 50]);
    module.get_function("iota").unwrap().call((&numbers,)).unwrap();
    assert_eq!(numbers.read::<f32>().unwrap()[49], 49.0);

    let imports = module.imports().unwrap();
    assert_eq!(imports.len(), 1);
    let import = imports.get(0).unwrap();
    assert_eq!(&*import.kind().unwrap(), "kept");
    assert_eq!(import.save_to_bytes().unwrap().as_bytes(), b"payload");
    // Neither data nor functions of libraries that this one needs.
    for name in ["__tvm_module_ctx", "printf", "_init", "vector"] {
        assert!(module.find_function(name).unwrap().is_none(), "{name}");
    }
}

#[test]
fn arguments_that_tvm_0_8_does_not_have_are_errors() {
    let Some(path) = compile("arguments", &[]) else { return };
    let module = Module::load(path.to_str().unwrap()).unwrap();
    let add = module.get_function("scalar_add").unwrap();
    let error = add.call(("a\0b",)).unwrap_err();
    assert_eq!(
        error.message(),
        "argument 0 cannot be passed to a function of the classic API: a string that contains a NUL character has no type \
         code; pass bytes"
    );
    let error = add.call((1, Device::new(13, 0))).unwrap_err();
    assert!(error.message().contains("argument 1 ") && error.message().contains("TVM 0.8"), "{error}");
    // A Boolean is an integer.
    assert_eq!(add.call((true, 2)).unwrap().get::<f64>().unwrap(), 3.0);
}
