//! Compares the source that each dialect generates with the files in `tests/golden`.
//!
//! `UPDATE_EXPECT=1 cargo test -p anyfn-codegen-c` writes the files.

use anyfn_core as _;
use anyfn_reflect as _;

use anyfn::{Array, Error, Map, Ref, Result};
use anyfn_codegen_c::generate;
use anyfn_ir::func::IRModule;
use anyfn_ir::target::Target;
use anyfn_parser::parse_module;
use anyfn_passes::{Pipeline, native};
use expect_test::expect_file;

/// Names and sources of functions that each dialect can express.
const FUNCTIONS: &[(&str, &str)] = &[
    (
        "scale",
        r#"
def scale(A: Buffer((n,), "float32"), B: Buffer((n,), "float32"), factor: float32):
    for i in parallel(n):
        B[i] = A[i] * factor
"#,
    ),
    (
        "rows",
        r#"
def rows(A: Buffer((n, 4), "float32"), B: Buffer((n,), "float32")):
    for i in parallel(n):
        total = alloc((2,), "float32", scope="local")
        total[0] = 0.0
        total[1] = 0.0
        for j in range(4):
            total[j % 2] += exp(A[i, j])
        B[i] = select(total[0] < total[1], total[0], sqrt(total[1])) / 2.0
"#,
    ),
    (
        "checked",
        r#"
def checked(A: Buffer((n,), "float32"), B: Buffer((n,), "float32"), k: int32):
    assert k < n, ValueError("k is ", k, ", 100% of ", n)
    for i in parallel(n):
        B[i] = A[i // k]
"#,
    ),
    (
        "stages",
        r#"
def stages(A: Buffer((64,), "int32"), B: Buffer((64,), "bool")):
    T = alloc((64,), "int64")
    for i in parallel(64):
        T[i] = int64(A[i]) * 3 - 1
    for j in parallel(64):
        B[j] = T[63 - j] > 0 and (not A[j] == 7)
"#,
    ),
    (
        "constants",
        r#"
def constants(A: Buffer((n,), "float64"), m: int32):
    for i in parallel(1, extent=m):
        x: float64 = A[i] + float64("inf")
        if i < m:
            A[i] = max(x, float64("nan"))
        else:
            A[i] = -1.5
"#,
    ),
];

/// Names and sources of functions that only the host dialect can express.
const ON_HOST: &[(&str, &str)] = &[
    (
        "vectors",
        r#"
def vectors(A: Buffer((n,), "float32"), B: Buffer((n,), "float32")):
    for i in range(n // 8):
        B[ramp(i * 8, 1, 8)] = A[ramp(i * 8, 1, 8)] * broadcast(2.0, 8)
"#,
    ),
    (
        "calls",
        r#"
def calls(A: Buffer((8,), "float32"), B: Buffer((8,), "float32")):
    for i in range(8):
        B[i] = call_extern("sinf", A[i], dtype="float32")
    call_packed("golden.twice", A, B)
"#,
    ),
];

/// Names and sources of functions that only dialects of devices can express.
const ON_DEVICES: &[(&str, &str)] = &[(
    "reverse",
    r#"
def reverse(A: Buffer((n, 64), "float32"), B: Buffer((n, 64), "float32")):
    for i in bind("blockIdx.x", n):
        S = alloc((64,), "float32", scope="shared")
        for j in bind("threadIdx.x", 64):
            S[j] = A[i, j]
        for k in bind("threadIdx.x", 64):
            t = alloc((1,), "float32", scope="local")
            t[0] = S[63 - k]
            B[i, k] = t[0] * 2.0
"#,
)];

/// Vector size in bytes of those test targets that have vectors.
const VECTOR: i64 = 32;

/// Source that the host dialect includes before functions that make calls. Golden files contain a
/// comment in place of this source.
const INCLUDED: &str = include_str!("../src/host/packed.c");
/// Source that the host dialect includes before functions whose tensors are on a device.
const DEVICE: &str = include_str!("../src/host/device.c");

/// Returns a target of the kind `kind`. The processor of the target is arbitrary, because code
/// generators do not use it.
fn target(kind: &str, vector_bytes: i64) -> Target {
    let device = Target::DEVICES.iter().find(|device| device.kind == kind);
    Target {
        kind: kind.into(),
        arch: "x86_64".into(),
        mcpu: "".into(),
        features: Array::new(),
        vector_bytes,
        num_cores: 1,
        cc: "cc".into(),
        options: Array::new(),
        max_threads: device.map_or(0, |device| device.max_threads),
        local_memory: device.map_or(0, |device| device.local_memory),
        device_arch: "".into(),
    }
}

fn copy_of(target: &Target) -> Target {
    self::target(&target.kind, target.vector_bytes)
}

/// Returns the generated source of the functions in `text`, without the prelude. The passes that code
/// generation requires are applied first.
fn functions(text: &str, target: &Target) -> Result<String> {
    lowered(text, target, &["lower_parallel", "make_packed_api"])
}

/// Returns the generated source of the functions in `text`, after applying the given passes.
fn lowered(text: &str, target: &Target, passes: &[&str]) -> Result<String> {
    let passes = passes.iter().map(|name| native::find(name).expect("a built-in pass"));
    let module = Target::put(&Ref::new(copy_of(target)), &*parse_module(text)?)?;
    let module = Pipeline::new("lowering", passes).apply(&module)?;
    let prelude = generate(&IRModule { functions: Map::new(), attrs: Map::new() }, target)?;
    let source = generate(&module, target)?;
    let functions = source.strip_prefix(&prelude).expect("the prelude precedes the functions");
    let functions = functions.replace(INCLUDED.trim(), "/* The content of packed.c. */");
    Ok(functions.trim_start().to_owned())
}

#[test]
fn functions_in_each_dialect() -> Result<()> {
    let check = |file: &str, source: &str| expect_file![format!("golden/{file}")].assert_eq(source);
    for (name, text) in FUNCTIONS.iter().chain(ON_HOST) {
        let portable = functions(text, &target("c", 0))?;
        let vectors = functions(text, &target("c", VECTOR))?;
        check(&format!("{name}.c"), &portable);
        // Only code with vectors depends on the vector size.
        if *name == "vectors" {
            check(&format!("{name}.vectors.c"), &vectors);
        } else {
            assert_eq!(portable, vectors, "{name}");
        }
    }
    for (name, text) in FUNCTIONS.iter().chain(ON_DEVICES) {
        check(&format!("{name}.null"), &functions(text, &target("null", 0))?);
    }
    for (name, text) in ON_DEVICES.iter().chain(KERNELS) {
        check(&format!("{name}.opencl"), &kernels(text, "opencl")?);
        let source = kernels(text, "cuda")?;
        let (_, device) = anyfn_codegen_c::parts(&source);
        check(&format!("{name}.cuda"), device.expect("kernels").source);
        // MSL has no type `double`.
        let source = kernels(&text.replace("float64", "float32"), "metal")?;
        let (_, device) = anyfn_codegen_c::parts(&source);
        check(&format!("{name}.metal"), device.expect("kernels").source);
        // WGSL has numbers of 32 bits only.
        let small = text.replace("float64", "float32").replace("int64", "int32");
        let source = kernels(&small, "vulkan")?;
        let (_, device) = anyfn_codegen_c::parts(&source);
        check(&format!("{name}.wgsl"), device.expect("kernels").source);
        let source = kernels(&small, "webgpu")?;
        let (_, device) = anyfn_codegen_c::parts(&source);
        let device = device.expect("kernels");
        assert_eq!(device.sources().collect::<String>(), device.source.trim_start());
        check(&format!("{name}.webgpu"), device.source);
    }
    Ok(())
}

/// Functions for devices whose threads share work, with the names of their golden files.
const KERNELS: &[(&str, &str)] = &[
    (
        "tiles",
        r#"
def tiles(A: Buffer((n, 64), "float64"), B: Buffer((n, 64), "float64"), k: int64, b: bool):
    T = alloc((n, 64), "float64")
    for i in bind("blockIdx.y", n):
        sum = alloc((64,), "float64", scope="local")
        for j in bind("threadIdx.x", 16):
            for l in range(4):
                sum[j * 4 + l] = 0.0
        for r in range(n):
            S = alloc((64,), "float64", scope="shared")
            for j in bind("threadIdx.x", 16):
                for l in range(4):
                    S[l * 16 + j] = A[r, l * 16 + j]
            for j in bind("threadIdx.x", 16):
                for l in range(4):
                    sum[j * 4 + l] = sum[j * 4 + l] + S[63 - j * 4 - l]
        for j in bind("threadIdx.x", 8):
            T[i, j] = max(sum[j * 4], float64(int64(j) // k))
        T[i, 9] = sigmoid(A[i, 0])
    B[0, 0] = select(b, T[0, 1], exp(T[0, 2]))
"#,
    ),
    (
        "called",
        r#"
def called(A: Buffer((n,), "int32"), B: Buffer((n,), "int32")):
    T = alloc((n,), "int32")
    for i in bind("blockIdx.x", n):
        T[i] = A[i] // (A[i] - 1)
    call_packed("link.change", read_only(T), B)
"#,
    ),
];

/// Returns the source of the functions in `text` for a kind of devices: host code and kernels.
fn kernels(text: &str, kind: &str) -> Result<String> {
    let passes = ["lower_parallel", "private_buffers", "make_packed_api", "split_host_device"];
    let source = lowered(text, &target(kind, 0), &passes)?;
    let (host, device) = anyfn_codegen_c::parts(&source);
    let device = device.expect("kernels");
    assert!(device.kind == kind && !device.kernels.is_empty() && host.contains("anyfn_memory"));
    Ok(source.replace(DEVICE, "/* The content of device.c. */\n"))
}

/// Returns the error that occurs when source is generated for a null target from the functions in
/// `text`.
fn refused(text: &str) -> Error {
    functions(text, &target("null", 0)).expect_err(text)
}

#[test]
fn errors_name_what_null_cannot_express() {
    for (body, expected) in [
        (
            "A[ramp(0, 1, 4)] = broadcast(1.0, 4)",
            "`broadcast(1.0, 4)` is float32x4, but null has no vector types",
        ),
        ("A[0] = float32(float16(A[1]))", "is float16, for which null has no type; it has bool,"),
        ("A[0] = 1.0", "`A[0]` is accessed outside of a parallel loop"),
        ("assert A[n - 1] > 0.0, ValueError()", "`A[n - 1]` is accessed outside of a parallel loop"),
        (
            "for i in parallel(n):\n        T = alloc((n,), \"float32\")\n        T[i] = 0.0",
            "cannot allocate buffer `T` in null code: its size must be constant",
        ),
        ("call_packed(\"g\", A)", "cannot generate null code for a call of the packed function `g`"),
        (
            "for i in parallel(n):\n        A[i] = call_extern(\"sinf\", A[i], dtype=\"float32\")",
            "cannot generate null code for a call of the C function `sinf`",
        ),
    ] {
        let error = refused(&format!("def f(A: Buffer((n,), \"float32\")):\n    {body}\n"));
        let message = error.message();
        assert!(message.starts_with("function `f`: ") && message.contains(expected), "{body}: {message}");
    }
}

#[test]
fn errors_name_what_null_kernels_cannot_do_with_thread_axes() {
    for (body, expected) in [
        (
            "for i in bind(\"blockIdx.x\", n):\n        A[i] = 0.0\n        for j in bind(\"threadIdx.x\", 4):\n            A[i] = 0.0",
            "`A[i]` is accessed outside of a loop that is bound to threadIdx.x",
        ),
        (
            "for i in bind(\"threadIdx.x\", 4):\n        A[i] = 0.0\n    for j in bind(\"threadIdx.x\", 8):\n        A[j] = 0.0",
            "loops of different extents are bound to threadIdx.x, among them loop `j`",
        ),
        (
            "for i in range(n):\n        for j in bind(\"threadIdx.x\", i):\n            A[j] = 0.0",
            "loop `j` is bound to threadIdx.x, but its extent `i` is not known before the kernel starts",
        ),
        (
            "for i in parallel(n):\n        pass\n    for j in bind(\"threadIdx.x\", 8):\n        A[j] = 0.0",
            "loop `i` is parallel, but other loops of the null kernel are bound to thread axes",
        ),
        (
            "S = alloc((8,), \"float32\", scope=\"shared\")\n    for i in bind(\"blockIdx.x\", n):\n        S[0] = A[i]",
            "buffer `S` belongs to a block of threads, but is allocated outside of the loops over blocks",
        ),
        (
            "S = alloc((8,), \"float32\")\n    for i in bind(\"blockIdx.x\", n):\n        S[0] = A[i]",
            "buffer `S` belongs to a block of threads, but is allocated outside of the loops over blocks",
        ),
        (
            "for i in bind(\"threadIdx.x\", 4):\n        S = alloc((8,), \"float32\")\n        for j in bind(\"threadIdx.y\", 8):\n            S[j] = A[j]",
            "buffer `S` is allocated between loops over threads",
        ),
        (
            "for i in parallel(n):\n        S = alloc((8,), \"float32\", scope=\"shared\")\n        S[0] = A[i]",
            "buffer `S` is shared by the threads of a block, but allocated by each of them",
        ),
        (
            "for i in bind(\"threadIdx.x\", 4):\n        m: int32 = i * 2\n        if m < 4:\n            \
             for j in bind(\"threadIdx.y\", 8):\n                A[j] = 0.0\n            \
             for k in bind(\"threadIdx.y\", 8):\n                A[k] = 1.0",
            "cannot place a barrier inside of the condition: `m < 4` depends on the index of a thread, so only some threads of \
             the block would reach the barrier; move the condition into the inner loops over threads",
        ),
        (
            "for i in bind(\"threadIdx.x\", 4):\n        for k in range(i + 1):\n            \
             for j in bind(\"threadIdx.y\", 8):\n                A[j] = 0.0",
            "cannot place a barrier inside of loop `k`: `i + 1` depends on the index of a thread",
        ),
    ] {
        let error = refused(&format!("def f(A: Buffer((n,), \"float32\")):\n    {body}\n"));
        assert!(error.message().contains(expected), "{body}: {}", error.message());
    }
}

#[test]
fn barriers_separate_loops_inside_of_a_loop_over_threads() -> Result<()> {
    let text = r#"
def f(A: Buffer((4, 8), "float32"), n: int32):
    S = alloc((4, 8), "float32", scope="shared")
    for i in bind("threadIdx.x", 4):
        for k in range(n):
            for j in bind("threadIdx.y", 8):
                S[i, j] = A[i, j]
            if n > 2:
                for l in bind("threadIdx.y", 8):
                    A[i, l] = S[i, 7 - l]
"#;
    let source = functions(text, &target("null", 0))?;
    let is_control = |line: &&str| ["let", "for", "if", "barrier"].iter().any(|word| line.starts_with(word));
    let lines: Vec<&str> = source.lines().map(str::trim).filter(is_control).collect();
    let expected = [
        "let i: i32 = i32(thread_index_x());",
        "for (var k: i32 = 0_i32; k < n; k += 1) {",
        "let j: i32 = i32(thread_index_y());",
        "barrier();",
        "if ((n > 2_i32)) {",
        "let l: i32 = i32(thread_index_y());",
        "barrier();",
        "barrier();",
    ];
    assert_eq!(lines, expected, "{source}");
    // Only the barrier behind the outermost loop follows a single inner loop, so its condition may differ between threads.
    let text = r#"
def f(A: Buffer((4, 8), "float32")):
    for i in bind("threadIdx.x", 4):
        if i < 2:
            for j in bind("threadIdx.y", 8):
                A[i, j] = 0.0
"#;
    let source = functions(text, &target("null", 0))?;
    assert_eq!(source.matches("barrier();").count(), 1, "{source}");
    Ok(())
}

#[test]
fn the_host_has_no_thread_axes() {
    let error = functions(ON_DEVICES[0].1, &target("c", 0)).expect_err("the loops are bound");
    let expected =
        "function `reverse`: loop `i` is bound to blockIdx.x, but C code for the host has no thread axes";
    assert_eq!(error.message(), expected);
    let text = "def f(A: Buffer((8,), \"float32\")):\n    S = alloc((8,), \"float32\", scope=\"shared\")\n    S[0] = A[0]\n";
    let error = functions(text, &target("c", 0)).expect_err("the buffer is shared");
    let expected =
        "buffer `S` is shared by the threads of a block, but C code for the host has no thread blocks";
    assert!(error.message().contains(expected), "{}", error.message());
}

#[test]
fn the_number_of_tasks_is_set_where_the_language_has_tasks() -> Result<()> {
    let text = r#"
def f(A: Buffer((n,), "float32")):
    with launch(A, tasks=2):
        for i in parallel(n):
            A[i] = 0.0
"#;
    let source = functions(text, &target("c", 0))?;
    assert!(source.contains("if (anyfn_parallel_in(2, f_task0, &shared) != 0) return -1;"), "{source}");
    let error = refused(text);
    let expected = "function `f`: loop `i` requests a number of tasks, but null code cannot set it";
    assert_eq!(error.message(), expected);
    Ok(())
}

#[test]
fn the_host_needs_launches() {
    let error = lowered(FUNCTIONS[0].1, &target("c", 0), &[]).expect_err("the loop is not lowered");
    let expected =
        "function `scale`: cannot generate C code for parallel loop `i`; run the pass `lower_parallel` first";
    assert_eq!(error.message(), expected);
}

#[test]
fn a_plain_function_is_exported_under_its_name() -> Result<()> {
    let text = |name: &str| FUNCTIONS[0].1.replace("def scale(", &format!("def {name}("));
    let plain = |name: &str| lowered(&text(name), &target("c", 0), &["lower_parallel"]);
    let source = plain("scale")?;
    let head =
        "ANYFN_EXPORT int32_t scale(float factor, int32_t n, const float* restrict A, float* restrict B) {\n";
    assert!(source.contains(head) && !source.contains("__tvm_ffi_"), "{source}");
    let packed = functions(&text("scale"), &target("c", 0))?;
    assert!(
        packed.contains("__tvm_ffi_scale(") && packed.contains("static int32_t scale_compute("),
        "{packed}"
    );
    for name in ["exp", "int", "anyfn_alloc"] {
        let error = plain(name).expect_err(name);
        let expected = format!(
            "function `{name}`: `{name}` is a reserved name in C; rename the function, or run the pass \
             `make_packed_api`, which does not use the name"
        );
        assert_eq!(error.message(), expected);
        functions(&text(name), &target("c", 0))?;
    }
    let other = text("scale").replace("factor: float32):", "factor: float32):\n    attr(\"entry\", \"other\")");
    let error = functions(&other, &target("c", 0)).expect_err("the attribute has another value");
    assert_eq!(error.message(), "function `scale`: the attribute `entry` must be \"packed\" but is \"other\"");
    Ok(())
}

#[test]
fn a_target_of_another_kind_has_no_code() -> Result<()> {
    let error = generate(&*parse_module(FUNCTIONS[0].1)?, &target("rocm", 0)).expect_err("no such dialect");
    assert_eq!(
        error.message(),
        "cannot generate code for a target of kind `rocm`; known kinds are `c`, `cuda`, `metal`, `opencl`, `vulkan`, `webgpu`, `wasm`, `null`"
    );
    Ok(())
}
