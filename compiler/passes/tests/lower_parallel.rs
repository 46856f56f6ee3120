//! Tests of the launches that replace parallel loops, and of the captures that they list.

use anyfn_core as _;
use anyfn_reflect as _;

use anyfn::{Ref, Result};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::stmt::{ForKind, Stmt};
use anyfn_ir::visit::Mutator;
use anyfn_ir::{StmtKind, make, ops, printer};
use anyfn_parser::parse_func;
use anyfn_passes::{lower_parallel, simplify, verify};

/// Checks that `lower_parallel` turns the function `text` into `expected`. The result must be valid and
/// parsable, and a second run of the pass must not change it.
fn check(text: &str, expected: &str) -> Result<Ref<PrimFunc>> {
    let func = lower_parallel(&parse_func(text)?)?;
    verify(&func)?;
    let printed = printer::text(func.as_object());
    assert_eq!(printed.trim(), expected.trim());
    let read = parse_func(&printed)?;
    verify(&read)?;
    assert_eq!(printer::text(read.as_object()), printed);
    assert!(lower_parallel(&func)?.ptr_eq(&func));
    Ok(func)
}

#[test]
fn tasks_receive_what_the_loop_uses() -> Result<()> {
    check(
        r#"
def f(A: Buffer((n, m), "float32"), B: Buffer((n, m), "float32"), k: int32, unused: int32):
    for j in range(m):
        x: int32 = j + k
        T = alloc((4,), "float32")
        T[0] = 1.0
        for i in parallel(n):
            S = alloc((4,), "float32")
            S[0] = T[0]
            y: int32 = x + i
            if y > 0:
                B[i, j] = A[i, j] + S[0]
"#,
        r#"
def f(A: Buffer((n, m), "float32"), B: Buffer((n, m), "float32"), k: int32, unused: int32):
    for j in range(m):
        x: int32 = j + k
        T = alloc((4,), "float32")
        T[0] = 1.0
        with launch(T, x, A, m, j, B):
            for i in parallel(n):
                S = alloc((4,), "float32")
                S[0] = T[0]
                y: int32 = x + i
                if y > 0:
                    B[i, j] = A[i, j] + S[0]
"#,
    )
    .map(drop)
}

#[test]
fn tasks_receive_the_shape_of_a_buffer_that_they_pass_on() -> Result<()> {
    check(
        r#"
def f(A: Buffer((n, m), "float32"), B: Buffer((n, m), "float32")):
    for i in parallel(4):
        call_packed("work", read_only(A), region(B[i, 0:m]), i)
"#,
        r#"
def f(A: Buffer((n, m), "float32"), B: Buffer((n, m), "float32")):
    with launch(A, m, n, B):
        for i in parallel(4):
            call_packed("work", read_only(A), region(B[i, 0:m]), i)
"#,
    )
    .map(drop)
}

#[test]
fn a_parallel_loop_in_another_one_is_launched_by_each_task() -> Result<()> {
    check(
        r#"
def f(A: Buffer((8, m), "float32"), k: int32):
    for i in parallel(8):
        for j in parallel(k):
            A[i, j] = 0.0
"#,
        r#"
def f(A: Buffer((8, m), "float32"), k: int32):
    with launch(A, m, k):
        for i in parallel(8):
            with launch(i, A, m):
                for j in parallel(k):
                    A[i, j] = 0.0
"#,
    )
    .map(drop)
}

#[test]
fn passes_keep_the_captures_up_to_date() -> Result<()> {
    let func = check(
        r#"
def f(A: Buffer((8,), "float32"), k: int32):
    x: int32 = 3
    y: int32 = k
    for i in parallel(8):
        A[i] = float32(x + y)
"#,
        r#"
def f(A: Buffer((8,), "float32"), k: int32):
    x: int32 = 3
    y: int32 = k
    with launch(x, y, A):
        for i in parallel(8):
            A[i] = float32(x + y)
"#,
    )?;
    let text = printer::text(simplify(&func)?.as_object());
    assert!(text.contains("with launch(k, A):"), "{text}");
    Ok(())
}

/// Mutator that makes parallel loops serial.
struct Serial;

impl Mutator for Serial {
    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        let stmt = self.below_stmt(stmt)?;
        let StmtKind::For(node) = StmtKind::of(&stmt) else { return Ok(stmt) };
        Ok(make::for_like(node, ForKind::Serial, node.body.clone(), node.annotations.clone()))
    }
}

#[test]
fn a_serial_loop_is_not_launched() -> Result<()> {
    let text = "def f(A: Buffer((8,), \"float32\")):\n    for i in parallel(8):\n        A[i] = 0.0";
    let func = lower_parallel(&parse_func(text)?)?;
    let func = PrimFunc::with_body(func.clone(), Serial.stmt(&func.body)?);
    assert_eq!(printer::text(func.as_object()), text.replace("parallel", "range"));
    Ok(())
}

#[test]
fn the_number_of_tasks_stays() -> Result<()> {
    let text = r#"
def f(A: Buffer((8, 8), "float32")):
    with launch(A, tasks=2):
        for i in parallel(8):
            for j in parallel(8):
                A[i, j] = 0.0
"#;
    let expected = r#"
def f(A: Buffer((8, 8), "float32")):
    with launch(A, tasks=2):
        for i in parallel(8):
            with launch(i, A):
                for j in parallel(8):
                    A[i, j] = 0.0
"#;
    check(text, expected).map(drop)
}

#[test]
fn launches_are_verified() -> Result<()> {
    for (launch, kind, expected) in [
        ("launch(A, k)", "", ""),
        ("launch(k, A, n, tasks=k)", "", ""),
        ("launch(A)", "NameError", "the launch of loop `i` does not capture `k`, which the loop uses"),
        ("launch(k)", "NameError", "does not capture `A`"),
        ("launch(A, k, 3)", "TypeError", "a launch captures variables and buffers, not `tir.IntImm`"),
        ("launch(A, k, tasks=-1)", "ValueError", "the number of tasks of loop `i` is negative: -1"),
        ("launch(A, k, tasks=int64(1))", "TypeError", "the number of tasks of loop `i` is int64, not int32"),
    ] {
        let text = format!(
            "def f(A: Buffer((n,), \"float32\"), k: int32):\n    with {launch}:\n        for i in parallel(n):\n            \
             A[i] = float32(k)\n"
        );
        match verify(&parse_func(&text)?) {
            Ok(()) => assert_eq!(kind, "", "{launch}"),
            Err(error) => {
                assert_eq!(error.kind(), kind, "{launch}: {}", error.message());
                assert!(error.message().contains(expected), "{launch}: {}", error.message());
            }
        }
    }
    let text = "def f(A: Buffer((8,), \"float32\")):\n    with launch(A):\n        for i in range(8):\n            A[i] = 0.0";
    let error = verify(&parse_func(text)?).expect_err("the loop is serial");
    assert!(
        error.message().contains("the loop `i` of a launch is serial, not parallel"),
        "{}",
        error.message()
    );
    // A variable can be captured only where it is defined.
    let i = ops::var("i", anyfn::DType::INT32);
    let body = make::evaluate(i.into_parent());
    let body = make::for_of_kind(
        ops::var("j", anyfn::DType::INT32),
        ops::i32(0),
        ops::i32(4),
        ForKind::Parallel,
        body,
    );
    let func = parse_func("def f(n: int32):\n    for j in parallel(n):\n        n")?;
    let func = lower_parallel(&PrimFunc::with_body(func, body))?;
    let error = verify(&func).expect_err("`i` is not defined");
    assert_eq!(
        (error.kind(), error.message()),
        ("NameError", "function `f`: variable `i` is not defined where it is used")
    );
    Ok(())
}
