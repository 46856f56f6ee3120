//! Tests of loops that are bound to thread axes, and of memory that the threads of a block share.

use anyfn_core as _;
use anyfn_reflect as _;

use anyfn::Result;
use anyfn_ir::printer;
use anyfn_parser::{parse_func, parse_module};
use anyfn_passes::{compact_buffers, default_pipeline, place_allocations, private_buffers, simplify, verify};

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

#[test]
fn the_pipeline_keeps_thread_axes() -> Result<()> {
    let module = default_pipeline().apply(&parse_module(REVERSE)?)?;
    let text = printer::text(module.functions.get("reverse")?.expect("the function").as_object());
    let expected = REVERSE.trim().replace("):\n    for i", "):\n    attr(\"entry\", \"packed\")\n    for i");
    assert_eq!(text, expected);
    Ok(())
}

#[test]
fn shared_memory_is_placed_around_the_loops_over_threads() -> Result<()> {
    let outside = REVERSE.replace("        S = alloc((64,), \"float32\", scope=\"shared\")\n", "");
    let outside =
        outside.replace("    for i", "    S = alloc((64,), \"float32\", scope=\"shared\")\n    for i");
    let placed = compact_buffers(&place_allocations(&parse_func(&outside)?)?)?;
    assert_eq!(printer::text(placed.as_object()), REVERSE.trim());
    // The allocation of a buffer that one thread uses moves into its loop, unless the buffer is shared.
    let own = |scope: &str| {
        format!(
            "def f(A: Buffer((8,), \"float32\")):\n    S = alloc((8,), \"float32\"{scope})\n    for i in bind(\"threadIdx.x\", 8):\n        \
             S[i] = A[i]\n        A[i] = S[i] + 1.0"
        )
    };
    let placed = |scope: &str| -> Result<String> {
        let func = compact_buffers(&place_allocations(&parse_func(&own(scope))?)?)?;
        verify(&func)?;
        Ok(printer::text(func.as_object()))
    };
    assert_eq!(placed(", scope=\"shared\"")?, own(", scope=\"shared\""));
    let text = placed("")?;
    assert!(
        text.contains("\"threadIdx.x\", 8):\n        S = alloc((1,), \"float32\", scope=\"local\")"),
        "{text}"
    );
    Ok(())
}

#[test]
fn shared_memory_stays_outside_of_threads() -> Result<()> {
    let (x, y) = ("bind(\"threadIdx.x\", 8)", "bind(\"threadIdx.y\", 4)");
    for (outer, inner) in [("parallel(4)", "range(8)"), (y, "range(8)"), (y, x)] {
        // Each iteration writes the elements that it reads, so memory of another scope would move into the loops.
        let text = format!(
            r#"def f(A: Buffer((4, 8), "float32")):
    S = alloc((4, 8), "float32", scope="shared")
    for i in {outer}:
        for j in {inner}:
            S[i, j] = A[i, j]
            A[i, j] = S[i, j] + 1.0"#
        );
        let placed = place_allocations(&parse_func(&text)?)?;
        assert_eq!(printer::text(placed.as_object()), text);
        let other = place_allocations(&parse_func(&text.replace("\"shared\"", "\"global\""))?)?;
        let printed = printer::text(other.as_object());
        assert!(printed.find("S = alloc") > printed.find("for j"), "{printed}");
    }
    Ok(())
}

#[test]
fn a_single_iteration_stays_bound() -> Result<()> {
    let text =
        "def f(A: Buffer((8,), \"float32\")):\n    for i in bind(\"threadIdx.x\", 1):\n        A[i] = 0.0";
    let printed = printer::text(simplify(&parse_func(text)?)?.as_object());
    assert!(printed.contains("for i in bind(\"threadIdx.x\", 1):"), "{printed}");
    Ok(())
}

#[test]
fn thread_axes_are_verified() -> Result<()> {
    verify(&parse_func(REVERSE)?)?;
    for (body, expected) in [
        (
            "for i in bind(\"threadIdx.x\", 1, extent=4):\n        A[i] = 0.0",
            "loop `i` is bound to threadIdx.x, so it must begin at 0, not at 1",
        ),
        (
            "for i in bind(\"threadIdx.x\", 4):\n        for j in bind(\"threadIdx.x\", 4):\n            A[j] = 0.0",
            "loop `j` is inside of another loop that is bound to threadIdx.x",
        ),
        (
            "for i in bind(\"threadIdx.y\", 4):\n        for j in bind(\"blockIdx.x\", 4):\n            A[j] = 0.0",
            "loop `j` is bound to blockIdx.x, but inside of a loop over the threads of a block",
        ),
        (
            "for i in parallel(4):\n        for j in bind(\"blockIdx.x\", 4):\n            A[j] = 0.0",
            "loop `j` is bound to blockIdx.x, but inside of a parallel or vectorized loop",
        ),
        (
            "for i in bind(\"threadIdx.x\", 4):\n        S = alloc((4,), \"float32\", scope=\"shared\")\n        S[0] = 0.0",
            "buffer `S` is shared by the threads of a block, but each of them allocates it",
        ),
    ] {
        let error = verify(&parse_func(&format!("def f(A: Buffer((8,), \"float32\")):\n    {body}\n"))?)
            .expect_err(body);
        assert!(
            error.kind() == "ValueError" && error.message().contains(expected),
            "{body}: {}",
            error.message()
        );
    }
    Ok(())
}

#[test]
fn functions_that_differ_in_an_axis_are_different() -> Result<()> {
    let equal = anyfn::registry::get("ffi.StructuralEqual")?;
    let (func, other) = (parse_func(REVERSE)?, parse_func(&REVERSE.replace("blockIdx.x", "blockIdx.y"))?);
    let same = parse_func(REVERSE)?;
    assert!(equal.call((func.clone(), same, false, false))?.get::<bool>()?);
    assert!(!equal.call((func, other, false, false))?.get::<bool>()?);
    Ok(())
}

#[test]
fn threads_have_parts_of_local_buffers() -> Result<()> {
    let text = r#"
def f(A: Buffer((64, 64), "float32")):
    T = alloc((8, 64), "float32", scope="local")
    for i in bind("threadIdx.y", 4):
        for j in bind("threadIdx.x", 16):
            for k, l in grid(2, 4):
                T[i * 2 + k, j * 4 + l] = A[i, j]
    for j in bind("threadIdx.x", 16):
        for i in bind("threadIdx.y", 4):
            A[i, j] = T[i * 2 + 1, j * 4]
"#;
    let divided = private_buffers(&parse_func(text)?)?;
    verify(&divided)?;
    let shown = printer::text(divided.as_object());
    for line in [
        "T = alloc((16, 4, 2, 4), \"float32\", scope=\"local\")",
        "T[j, i, k, l] = A[i, j]",
        "= T[j_1, i_1, 1, 0]",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    // Threads that access elements of others share the buffer.
    for (old, new) in [
        ("= T[i * 2 + 1, j * 4]", "= T[i * 2 + 1, 63 - j * 4]"),
        ("= T[i * 2 + 1, j * 4]", "= T[i * 2 + 2, j * 4]"),
        ("= T[i * 2 + 1, j * 4]", "= T[3, j * 4]"),
        ("T[i * 2 + k, j * 4 + l] =", "T[k, j * 4 + l] ="),
        ("scope=\"local\"", "scope=\"shared\""),
    ] {
        let func = parse_func(&text.replace(old, new))?;
        assert!(private_buffers(&func)?.ptr_eq(&func), "{new}");
    }
    Ok(())
}
