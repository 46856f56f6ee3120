//! Tests of targets with different dialects: the generated source, and builds for targets without a compiler.

use anyfn_host as _;

use anyfn::{DType, Device, Ref, Result, Tensor};
use anyfn_compiler::ir::target::Target;
use anyfn_compiler::parser::parse_module;
use anyfn_compiler::target::{self, TargetOptions};
use anyfn_compiler::{BuildOptions, build, build_with, source};

/// Source of a function that reverses each row in shared memory.
const REVERSE: &str = r#"
def reverse(A: Buffer((n, 64), "float32"), B: Buffer((n, 64), "float32")):
    for i in bind("blockIdx.x", n):
        S = alloc((64,), "float32", scope="shared")
        for j in bind("threadIdx.x", 64):
            S[j] = A[i, j]
        for k in bind("threadIdx.x", 64):
            B[i, k] = S[63 - k]
"#;

fn null() -> Result<Ref<Target>> {
    target::make("null", TargetOptions::default()).map(Ref::new)
}

#[test]
fn the_target_chooses_the_dialect() -> Result<()> {
    let module = parse_module(REVERSE)?;
    let text = source(&Target::put(&null()?, &module)?, None)?;
    assert!(text.starts_with("dialect null 1;\n"), "{text}");
    assert!(text.contains("kernel reverse(n: i32, A: global const f32[], B: global f32[]) {"), "{text}");
    let error =
        source(&Target::put(&target::host()?, &module)?, None).expect_err("the host has no thread axes");
    assert!(error.message().contains("C code for the host has no thread axes"), "{}", error.message());
    Ok(())
}

#[test]
fn a_module_for_a_device_imports_its_kernels() -> Result<()> {
    let target = target::make("opencl", TargetOptions::default()).map(Ref::new)?;
    let options = BuildOptions { target: Some(target), ..BuildOptions::default() };
    let built = build_with(&parse_module(REVERSE)?, &options)?;
    let imports: Vec<_> = built.imports()?.iter().collect();
    let [kernels] = &imports[..] else { panic!("one module of kernels") };
    assert_eq!(&*kernels.kind()?, "opencl");
    assert!(kernels.get_function("reverse_kernel").is_ok());
    let reverse = built.get_function("reverse")?;
    let x: Vec<f32> = (0..128).map(|i| i as f32).collect();
    let host = Tensor::from_slice(&[2, 64], &x)?;
    let error = reverse.call((&host, &host)).expect_err("the tensor is in main memory");
    assert!(
        error.message().contains("expected a tensor on opencl but got one on cpu:0"),
        "{}",
        error.message()
    );
    let device: Device = "opencl:0".parse()?;
    let Ok(there) = host.to_device(device) else {
        anyfn_skip::report("no OpenCL device");
        return Ok(());
    };
    let result = Tensor::zeros(DType::FLOAT32, &[2, 64])?.to_device(device)?;
    reverse.call((&there, &result))?;
    let rows = result.to_device(Device::CPU)?.to_vec::<f32>()?;
    let expected: Vec<f32> = x.chunks(64).flat_map(|row| row.iter().rev().copied()).collect();
    assert_eq!(rows, expected);
    Ok(())
}

#[test]
fn a_dialect_without_a_compiler_is_not_built() -> Result<()> {
    let module = parse_module(REVERSE)?;
    let options = BuildOptions { target: Some(null()?), ..BuildOptions::default() };
    for result in [build_with(&module, &options), build(&Target::put(&null()?, &module)?, None)] {
        let Err(error) = result else { panic!("there is no compiler") };
        let expected = "cannot build a module for dialect `null`: there is no compiler for it; use `source` to obtain its source";
        assert_eq!((error.kind(), error.message()), ("ValueError", expected));
    }
    Ok(())
}

#[test]
fn a_target_without_a_compiler_has_no_options() {
    let options = TargetOptions { cc: Some("cc".to_owned()), ..TargetOptions::default() };
    let Err(error) = target::make("null", options) else { panic!("no compiler is used") };
    assert_eq!((error.kind(), error.message()), ("ValueError", "a target of kind `null` has no option `cc`"));
}

/// Tests that a build refuses buffers whose strides leave gaps: entry points accept compact arguments, so generated code would
/// write behind them.
#[test]
fn only_compact_buffers_are_compiled() -> Result<()> {
    let text = |param: &str, local: &str| {
        let text = format!(
            "def f(A: Buffer((n, 8), \"float32\"{param})):
    B = alloc((2, 8), \"float32\"{local})
    B[0, 0] = A[0, 0]
    A[0, 1] = B[0, 0]
"
        );
        parse_module(&text)
    };
    for (param, local) in [("", ""), (", strides=(8, 1)", ", strides=(8, 1)"), ("", ", strides=(8, 1)")] {
        let func = build(&text(param, local)?, None)?.get_function("f")?;
        let x = Tensor::from_slice(&[1, 8], &[3.0_f32, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])?;
        func.call((&x,))?;
        assert_eq!(x.to_vec::<f32>()?[1], 3.0);
    }
    for target in [target::host()?, target::make("opencl", TargetOptions::default()).map(Ref::new)?, null()?] {
        for (param, local, name) in
            [(", strides=(16, 1)", "", "`A`"), (", strides=(1, n)", "", "`A`"), ("", ", strides=(1, 2)", "`B`")]
        {
            let module = text(param, local)?;
            let error = source(&Target::put(&target, &module)?, None).expect_err("gaps");
            assert_eq!(error.kind(), "ValueError");
            let is_named = error.message().contains(&format!("buffer {name} has stride"));
            assert!(is_named && error.message().contains("compact buffers"), "{}", error.message());
        }
    }
    Ok(())
}
