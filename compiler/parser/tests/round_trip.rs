//! Tests that parsing a printed program gives an equal program, and that invalid source causes an error.

use anyfn_core as _;
use anyfn_reflect as _;

mod common;

use anyfn::{Map, ObjectRef, Ref, Result, registry};
use anyfn_ir::func::IRModule;
use anyfn_ir::printer;
use anyfn_parser::{parse, parse_func, parse_module};
use anyfn_random::Random;
use common::Programs;

fn is_equal(a: &ObjectRef, b: &ObjectRef) -> bool {
    let equal = registry::get("ffi.StructuralEqual").unwrap();
    equal.call((a.clone(), b.clone(), true, false)).unwrap().get::<bool>().unwrap()
}

/// Returns a description of the first difference between two nodes.
fn difference(a: &ObjectRef, b: &ObjectRef) -> String {
    let find = registry::get("ffi.GetFirstStructuralMismatch").unwrap();
    {
        let found = find.call((a.clone(), b.clone(), true, false)).unwrap();
        let show = registry::get("ffi.ReprPrint").unwrap();
        format!("{:?}", show.call((found,)))
    }
}

fn check(node: &ObjectRef, seed: u64) {
    let text = printer::text(node);
    let read = match parse(&text) {
        Ok(read) => read,
        Err(error) => panic!("seed {seed}: {}\n{text}", error.message()),
    };
    let again = printer::text(&read);
    assert!(is_equal(node, &read), "seed {seed}: {}\n{text}\n--- read\n{again}", difference(node, &read));
    assert_eq!(text, again, "seed {seed}");
}

#[test]
fn random_functions_are_read_as_they_were() {
    for seed in 0..3000 {
        check(Programs::new(seed).func().as_object(), seed);
    }
}

#[test]
fn random_modules_are_read_as_they_were() -> Result<()> {
    for seed in 0..100 {
        let mut programs = Programs::new(seed);
        let count = programs.random.below(3);
        let names = ["f", "g", "a name"];
        let functions: Vec<_> = (0..count).map(|place| (names[place], programs.func())).collect();
        let functions = Map::try_from_iter(functions)?;
        let attrs = Map::try_from_iter([("k", anyfn::Any::new(seed as i64)?)])?;
        check(Ref::new(IRModule { functions, attrs }).as_object(), seed);
    }
    Ok(())
}

/// Tests that the parser does not panic on a program with random changes, but parses it or returns
/// an error.
#[test]
fn changed_texts_do_no_harm() {
    let rounds = anyfn_random::setting("ANYFN_FUZZ", 400);
    let words = [
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ":",
        ",",
        "=",
        "\n",
        "    ",
        "\n        ",
        "for",
        "in",
        "range(",
        "with ",
        "block(\"",
        "\"",
        "\\",
        "-",
        "1e999",
        "99999999999999999999",
        "int8(",
        "not ",
        "and",
        "**",
        "axis.",
        "as ",
        "def ",
        "let(x, ",
        "float32x4",
        "int32x70000",
        "ramp(",
        "broadcast(",
        "select(",
        "é",
        "\t",
        "\r",
        "\0",
        "node(",
        "tir.Var(",
        "ffi.Map(",
        "attr(",
        "@key(",
        "dtype=",
        "alloc(",
        "data=",
        "tir.PrimFunc(",
        ".data",
        "True",
        "None",
        "truncmod(",
        "//",
        "% 0",
    ];
    let (mut read, mut refused) = (0, 0);
    for seed in 0..rounds {
        let text = printer::text(Programs::new(seed % 500).func().as_object());
        let mut random = Random::new(seed + 1_000_000);
        for _ in 0..8 {
            let mut changed: Vec<char> = text.chars().collect();
            for _ in 0..1 + random.below(4) {
                let at = random.below(changed.len() + 1);
                let end = (at + random.below(12)).min(changed.len());
                match random.below(4) {
                    0 => drop(changed.drain(at..end)),
                    1 => drop(changed.splice(at..at, random.pick(&words).chars())),
                    2 => drop(changed.splice(at..end, random.pick(&words).chars())),
                    _ => {
                        let piece: Vec<char> = changed[at..end].to_vec();
                        let to = random.below(changed.len() + 1);
                        drop(changed.splice(to..to, piece));
                    }
                }
            }
            let changed: String = changed.into_iter().collect();
            match parse(&changed) {
                Ok(node) => {
                    read += 1;
                    // A parsed program can be printed and parsed again, with a separate variable for each
                    // definition.
                    let again = |node: &ObjectRef| {
                        let text = printer::text(node);
                        parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {}\n{text}", error.message()))
                    };
                    let second = again(&node);
                    assert_eq!(printer::text(&second), printer::text(&again(&second)), "seed {seed}");
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.message().starts_with("line "), "seed {seed}: {}", error.message());
                }
            }
        }
    }
    assert!(read > rounds / 20 && refused > rounds, "{read} read, {refused} refused");
}

/// Tests that inferred regions do not use definitions inside of the block, such as buffers that the block
/// allocates.
#[test]
fn inferred_regions_use_nothing_from_inside_of_the_block() {
    let text = r#"
def f(a: Buffer((8,), "float32")):
    with block("b"):
        n = alloc((1,), "int32", scope="local")
        n[0] = 3
        call_packed("g", region(a[0:n[0]]))
"#;
    let printed = printer::text(&parse(text).unwrap());
    assert!(printed.contains("writes(a[0:8])"), "{printed}");
    parse(&printed).unwrap();
}

/// Tests a range in the shape of a parameter whose upper bound begins with a cast, such as `m:int64(n) + 1`.
/// The cast must not be mistaken for the data type of a new variable `m`.
#[test]
fn a_range_in_a_shape_may_end_with_a_cast() {
    let text = r#"
def f(n: int32, data: Buffer((8,), "float32"), A: Buffer((call("min", region(data[m: int64:int64(n) + 1])),), "float32")):
    A[0] = 1.0
"#;
    let printed = printer::text(&parse(text).unwrap());
    assert_eq!(printer::text(&parse(&printed).unwrap()), printed);
    let known = text.replace("m: int64:int64(n)", "n:int64(n)");
    let printed = printer::text(&parse(&known).unwrap());
    assert_eq!(printer::text(&parse(&printed).unwrap()), printed);
}

#[test]
fn hostile_nesting_is_refused() {
    let deep = |open: &str, close: &str| {
        format!("def f(n: int32):\n    {}n{}\n", open.repeat(100_000), close.repeat(100_000))
    };
    for (open, close) in
        [("(", ")"), ("-", ""), ("not ", ""), ("exp(", ")"), ("n + (", ")"), ("let(x, ", ", x)")]
    {
        let error = parse(&deep(open, close)).unwrap_err();
        assert!(error.message().contains("nested more than 5000 levels deep"), "{open}: {}", error.message());
    }
    let loops: String = (0..6000).map(|n| format!("{}if n > 0:\n", " ".repeat(n + 1))).collect();
    let error = parse(&format!("def f(n: int32):\n{loops}{}n\n", " ".repeat(6001))).unwrap_err();
    assert!(error.message().contains("nested more than 5000 levels deep"), "{}", error.message());
    // A long sum is not deeply nested.
    let sum = format!("def f(n: int32):\n    n{}\n", " + n".repeat(100_000));
    assert!(parse(&sum).is_ok());
}

const BY_HAND: &str = r#"
    # C = A @ B, written by hand.
    def matmul(A: Buffer((n, 64), float32), B: Buffer((64, 32), float32), C: Buffer((n, 32), float32)):
        for i, j, k in grid(n, 32, 64):
            with block("C"):
                vi = axis.spatial(n, i)
                vj = axis.spatial(32, j)
                vk = axis.reduce(64, k)
                with init():
                    C[vi, vj] = 0
                C[vi, vj] += A[vi, vk] * B[vk, vj]
"#;

#[test]
fn a_program_by_hand() -> Result<()> {
    let func = parse_func(BY_HAND)?;
    assert_eq!(
        printer::text(func.as_object()),
        r#"def matmul(A: Buffer((n, 64), "float32"), B: Buffer((64, 32), "float32"), C: Buffer((n, 32), "float32")):
    for i, j, k in grid(n, 32, 64):
        with block("C"):
            vi = axis.spatial(n, i)
            vj = axis.spatial(32, j)
            vk = axis.reduce(64, k)
            reads(A[vi, vk], B[vk, vj])
            writes(C[vi, vj])
            with init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]"#
    );
    let module = parse_module(BY_HAND)?;
    assert_eq!(module.functions.len(), 1);
    assert!(parse(&printer::text(module.as_object()))?.type_key() == "tir.IRModule");
    Ok(())
}

#[test]
fn errors_show_where_they_are_and_what_was_expected() {
    let inside = |line: &str| format!("def f(n: int32, A: Buffer((n, 4), float32)):\n    {line}\n");
    let cases = [
        (
            "for i in range(n)\n        A[i, 0] = 0",
            "line 2, column 22: expected `:` after the loop\n    for i in range(n)\n                     ^",
        ),
        (
            "fro i in range(n):\n        A[i, 0] = 0",
            "line 2, column 5: `fro` is not defined here; did you mean `for`?",
        ),
        ("A[i, 0] = 0.0", "line 2, column 7: `i` is not defined here"),
        ("A[0] = 0.0", "line 2, column 5: `A` has 2 dimensions but got 1 index"),
        ("A[0, 0] = n", "line 2, column 5: an element of `A` is float32 but the value is int32"),
        ("x = 3", "line 2, column 5: declare the data type to name a value, as in `x: float32 = ..`"),
        ("x: flaot32 = 3", "line 2, column 8: `flaot32` is not a data type; did you mean `float32`?"),
        ("x: f32 = 3.0", "`f32` is not a data type; did you mean `float32`?"),
        ("x: int = 3", "`int` is not a data type; did you mean `int32`?"),
        ("x: double = 3.0", "`double` is not a data type; did you mean `float64`?"),
        ("x: Bufer((4,), float32)", "`Bufer` is not a data type; did you mean `Buffer`?"),
        (
            "x: T = 3",
            "line 2, column 8: `T` is not a data type; data types are `bool`, `int8` to `int64`, `uint8` to `uint64`",
        ),
        ("x: T.int32 = 3", "line 2, column 8: `T` is not a data type; write `int32` without `T.`"),
        (
            "x: T.Buffer((4,), float32) = 3",
            "`T` is not a data type; write `@T.prim_func` before the function if it is TVMScript, or declare a buffer as in `A: Buffer((4, 4), float32)`",
        ),
        (
            "for i in rnge(n):\n        pass",
            "expected `range`, `grid`, `parallel`, `vectorized`, `unrolled` or `bind` but got `rnge`",
        ),
        ("0 < n < 3", "line 2, column 11: comparisons cannot be chained"),
        ("n ** 2", "the operator `**` is not supported; write `pow(x, y)`"),
        ("A + 1", "`A` is a buffer, not a value; specify an element, as in `A[i]`"),
        ("n[0]", "`n` is a variable, not a buffer"),
        ("(n", "line 2, column 5: `(` is never closed"),
        ("select(n > 0, 1)", "`select` takes 3 values but got 2"),
        (
            "with block(\"B\"):\n        n\n        v = axis.spatial(4, n)",
            "the axes of a block must come before all other statements",
        ),
        ("if n > 0:\n    n", "line 3, column 5: expected indented statements after the condition"),
        (
            "\"text",
            "line 2, column 5: unterminated string: expected its closing quotation mark on the same line",
        ),
        ("int8(500)", "line 2, column 5: 500 does not fit into int8"),
        ("my.Node(x=1)", "unknown type `my.Node`; load the library that defines it"),
        ("sum(n, axis=[n])", "a reduction of a tensor expression cannot be parsed"),
        ("n\n  n", "line 3, column 3: the indentation of this line matches no enclosing block"),
        ("A[n, 0] = 0.0 0", "line 2, column 19: expected the end of the line but got 0"),
        (
            "with launch(A):\n        A[0, 0] = 0.0",
            "line 2, column 19: expected one loop inside of `with launch(..)`",
        ),
        (
            "for i in bind(\"threadIdx.w\", n):\n        pass",
            "line 2, column 19: `threadIdx.w` is not a thread axis; known axes are `blockIdx.x`, `blockIdx.y`",
        ),
        ("for i in bind(n):\n        pass", "line 2, column 19: expected a thread axis, as in \"threadIdx.x\""),
        (
            "with start():\n        n",
            "expected `block`, `launch`, `scope` or `seq` after `with` but got `start`",
        ),
    ];
    for (line, expected) in cases {
        let error = parse(&inside(line)).unwrap_err();
        assert!(error.message().contains(expected), "{line}\nexpected: {expected}\ngot: {}", error.message());
    }
    assert!(parse("").unwrap_err().message().contains("expected `def`, the beginning of a function"));
    assert!(parse_func("module()\n").err().unwrap().message().contains("contains 0"));
}

#[test]
fn loops_whose_extents_depend_on_each_other() -> Result<()> {
    let text = r#"def f(A: Buffer((8, 8), "float32")):
    for i in range(8):
        for j, k in grid(i, 2):
            A[i, j] = 0.0"#;
    let func = parse(text)?;
    assert_eq!(printer::text(&func).trim_end(), text);
    check(&func, 0);
    Ok(())
}
