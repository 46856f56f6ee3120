//! Tests that functions are printed as TVMScript and read from it.

use anyfn_core as _;
use anyfn_reflect as _;

mod common;

use anyfn::registry;
use anyfn_ir::printer;
use anyfn_parser::parse;
use common::Programs;

/// Parses TVMScript and returns the function or module in our syntax.
fn ours(script: &str) -> String {
    match parse(script) {
        Ok(node) => printer::text(&node),
        Err(error) => panic!("{}: {}\n{script}", error.kind(), error.message()),
    }
}

#[test]
fn random_functions_survive_a_round_trip() {
    let (mut printed, mut equal) = (0, 0);
    for seed in 0..3000 {
        let func = Programs::new(seed).func();
        let script = match printer::tvmscript(func.as_object()) {
            Ok(script) => script,
            Err(error) if error.kind() == "NotImplementedError" => continue,
            Err(error) => panic!("seed {seed}: {}", error.message()),
        };
        printed += 1;
        let read = match parse(&script) {
            Ok(read) => read,
            Err(error) => panic!("seed {seed}: {}\n{script}", error.message()),
        };
        // Sequences in sequences are flattened, so the function is compared by its script.
        let again = printer::tvmscript(&read).unwrap();
        assert_eq!(script, again, "seed {seed}");
        let same = registry::get("ffi.StructuralEqual").unwrap();
        let same = same.call((func.clone(), read, true, false)).unwrap();
        equal += u32::from(same.get::<bool>().unwrap());
    }
    println!("{printed} of 3000 functions have a script, {equal} are equal after the round trip");
    assert!(printed > 100 && equal > 50, "{printed} printed, {equal} equal");
}

/// Functions in the spelling of current versions of Apache TVM and of earlier ones, which are the same function.
const NEW: &str = r#"
# from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def main(A: T.Buffer(("n", 8), "float32"), B: T.Buffer((n, 8), "float32")):
    n = T.int32()
    T.func_attr({"tirx.is_scheduled": True})
    # with T.sblock("root"):
    C = T.sblock_alloc_buffer((n,))
    for i, k in T.grid(n, 8):
        with T.sblock("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(A[vi, vk])
            T.writes(C[vi])
            T.sblock_attr({"note": 1})
            with T.init():
                C[vi] = T.float32(0.0)
            C[vi] = C[vi] + A[vi, vk]
    for i in T.parallel(n):
        for j in T.vectorized(8):
            B[i, j] = C[i] * T.float32(2.0)
"#;

const OLD: &str = r#"
from tvm.script import tir as tir

@tir.prim_func
def main(a: tir.handle, b: tir.handle) -> None:
    """Doubles the sums of rows."""
    tir.func_attr({"tir.is_scheduled": tir.bool(True), "global_symbol": "main"})
    n = tir.var("int32")
    A = tir.match_buffer(a, [n, 8], dtype="float32", elem_offset=0, align=-1, offset_factor=1, buffer_type="default")
    B = tir.match_buffer(b, (n, 8))
    C = tir.alloc_buffer([n], "float32")
    for i in tir.serial(0, n):
        for k in range(8):
            with tir.block("C"):
                vi = tir.axis.S(n, i)
                vk = tir.axis.R((0, 8), k)
                tir.reads([A[vi, vk]])
                tir.writes([C[vi]])
                tir.block_attr({"note": 1})
                with tir.init():
                    C[vi] = 0.0
                C[vi] += A[vi, vk]
    for i in tir.parallel(n):
        for j in tir.vectorized(0, 8):
            B[i, j] = C[i] * 2.0
"#;

#[test]
fn old_and_new_spellings_are_the_same_function() {
    let expected = r#"def main(A: Buffer((n, 8), "float32"), B: Buffer((n, 8), "float32")):
    attr("scheduled", True)
    with block("root"):
        reads()
        writes()
        C = alloc((n,), "float32")
        for i, k in grid(n, 8):
            with block("C", note=1):
                vi = axis.spatial(n, i)
                vk = axis.reduce(8, k)
                reads(A[vi, vk])
                writes(C[vi])
                with init():
                    C[vi] = 0.0
                C[vi] = C[vi] + A[vi, vk]
        for i_1 in parallel(n):
            for j in vectorized(8):
                B[i_1, j] = C[i_1] * 2.0"#;
    let read = ours(NEW);
    // The attribute with the symbol comes first.
    assert_eq!(read, expected);
    assert_eq!(ours(OLD), expected);
}

#[test]
fn expressions_and_statements_have_equivalents() {
    let script = r#"
@T.prim_func
def f(A: T.Buffer((16,), "float32"), I: T.Buffer((16,), "int32"), k: T.int32):
    X = T.alloc_buffer((4,), "float32", scope="local")
    Y = T.decl_buffer((2, 2), "float32", data=X.data)
    x: T.let[T.float32] = A[0]
    y: T.float32 = 1
    z = A[1] + 1
    for i in T.unroll(1, 4, annotations={"pragma": "on"}):
        X[i] = T.max(x, T.min(y, z)) + T.if_then_else(i < 2, x, 0) + T.Select(k == 2, y, z)
        I[i] = T.Div(I[i], 2) + T.truncmod(I[i], 3) + T.ceildiv(k, 2) + T.Cast("int32", z) + ~k + T.cast(x, "int32")
        if not (k > 2 and i != 1) or T.likely(k < 0):
            Y[0, 1] = T.nearbyint(x) + T.pow(x, 2) + T.abs(x) + T.max_value("float32") + T.infinity("float32")
    A[T.Ramp(0, 1, 4)] = T.Broadcast(T.float32(1), 4)
    A[0:8:2] = T.Broadcast(I[0].astype("float16").astype(T.float32), 4)
    T.evaluate(0)
"#;
    let expected = r#"def f(A: Buffer((16,), "float32"), I: Buffer((16,), "int32"), k: int32):
    X = alloc((4,), "float32", scope="local")
    Y: Buffer((2, 2), "float32", data=X)
    x: float32 = A[0]
    y: float32 = 1.0
    z: float32 = A[1] + 1.0
    for i in unrolled(1, 4, pragma="on"):
        X[i] = max(x, min(y, z)) + select(i < 2, x, 0.0) + select(k == 2, y, z)
        I[i] = I[i] / 2 + truncmod(I[i], 3) + (k + 2 - 1) // 2 + int32(z) + (k ^ -1) + int32(x)
        if not (k > 2 and i != 1) or k < 0:
            Y[0, 1] = nearbyint(x) + pow(x, 2.0) + fabs(x) + 3.4028234663852886e38 + float32("inf")
    A[ramp(0, 1, 4)] = broadcast(1.0, 4)
    A[ramp(0, 2, 4)] = broadcast(float32(float16(I[0])), 4)
    0"#;
    assert_eq!(ours(script), expected);
}

#[test]
fn devices_packed_and_external_functions_have_equivalents() {
    let script = r#"
@T.prim_func
def f(A: T.Buffer((4, 8), "float32")):
    for i in T.thread_binding(4, thread="blockIdx.x"):
        S = T.alloc_shared((8,))
        for j in T.thread_binding(0, 8, "threadIdx.x"):
            S[j] = A[i, j]
    T.call_packed("my.f", T.tvm_stack_make_array(A.data, T.tvm_stack_make_shape(4, 8), 0, 2, T.float32(0), 0), 1)
    T.call_extern("int32", "puts", A.data)
"#;
    let expected = r#"def f(A: Buffer((4, 8), "float32")):
    for i in bind("blockIdx.x", 4):
        S = alloc((8,), "float32", scope="shared")
        for j in bind("threadIdx.x", 8):
            S[j] = A[i, j]
    call_packed("my.f", A, 1)
    call_extern("puts", A)"#;
    assert_eq!(ours(script), expected);
    let node = parse(script).unwrap();
    assert_eq!(ours(&printer::tvmscript(&node).unwrap()), expected);
}

/// Returns the message of the error for a function with the given body, whose parameter `A` is a buffer.
fn refused(params: &str, body: &str) -> String {
    let script = format!("@T.prim_func\ndef f({params}):\n    {body}\n");
    match parse(&script) {
        Ok(node) => panic!("{}", printer::text(&node)),
        Err(error) => error.message().lines().next().unwrap_or_default().to_owned(),
    }
}

#[test]
fn what_would_mean_something_else_is_refused() {
    let a = "A: T.Buffer((8,), \"int32\")";
    let message = refused(a, "A[0] = A[1] / 2");
    assert!(message.contains("`/` of integers is not defined in TVMScript"), "{message}");
    let message = refused("A: T.Buffer((SIZE,), \"int32\")", "A[0] = 1");
    assert!(message.ends_with("`SIZE` is not defined here"), "{message}");
    for text in ["n + 1", "", "for", "\\x6e"] {
        let message = refused(&format!("A: T.Buffer((\"{text}\",), \"int32\")"), "A[0] = 1");
        assert!(message.contains("expected the name of a variable"), "{message}");
    }
    for params in ["a: T.handle, a: T.handle", "n: T.int32, n: T.int32"] {
        assert!(refused(params, "T.evaluate(0)").contains("duplicate parameter"));
    }
    assert!(refused(a, "A = 5").contains("`A` is a buffer; specify an element"));
    assert!(refused(a, "n = T.int32() + 5").contains("expected the end of the line"));
    assert!(
        refused(a, "for i in parallel(8):\n        A[i] = 1")
            .contains("expected `range` or a loop of TVMScript")
    );
    assert!(refused(a, "A[0] = select(A[1] > 0, 1, 2)").contains("`select(..)` of TVMScript is not supported"));
    assert!(
        refused(a, "for i in T.serial(8, thread=\"threadIdx.x\"):\n        A[i] = 1")
            .contains("takes no thread axis")
    );
    let block = "with T.sblock(\"b\"):\n        T.where(A[0] > 0)\n        T.where(A[1] > 0)\n        A[0] = 1";
    assert!(refused(a, block).contains("duplicate `T.where`"));
    // The text is longer in the source than its value.
    assert!(
        refused("A: T.Buffer((\"\\né\",), \"int32\")", "A[0] = 1").contains("expected the name of a variable")
    );
}

#[test]
fn a_private_function_says_so() {
    let script = |options: &str| {
        ours(&format!("@T.prim_func({options})\ndef f(A: T.Buffer((8,), \"int32\")):\n    A[0] = 1\n"))
    };
    assert!(script("private=True").contains("global_symbol"));
    assert!(!script("private=False").contains("global_symbol"));
    let one = "@T.prim_func\ndef f(A: T.Buffer((1,), \"int32\")):\n    A = 5\n";
    assert!(ours(one).ends_with("A[0] = 5"));
}

/// Tests that the time is linear in the number of blocks.
#[test]
fn many_blocks_are_read() {
    let block = "    with T.sblock(\"b\"):\n        T.reads()\n        T.writes(A[0])\n        A[0] = 1\n";
    let script = format!("@T.prim_func\ndef f(A: T.Buffer((8,), \"int32\")):\n{}", block.repeat(4000));
    assert_eq!(ours(&script).matches("with block").count(), 4000);
}

#[test]
fn changed_scripts_do_no_harm() {
    let words = [
        "T.",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ":",
        "=",
        "\n",
        "    ",
        "\"",
        "\"\"\"",
        "~",
        "T.int64()",
        "T.axis.remap(",
        "n",
        "with T.",
        "-1",
    ];
    let (mut read, mut refused) = (0, 0);
    for seed in 0..anyfn_random::setting("ANYFN_FUZZ", 4000) {
        let mut random = anyfn_random::Random::new(seed);
        let mut changed: Vec<char> = [NEW, OLD][random.below(2)].chars().collect();
        for _ in 0..1 + random.below(3) {
            let at = random.below(changed.len() + 1);
            let end = (at + random.below(10)).min(changed.len());
            match random.below(3) {
                0 => drop(changed.drain(at..end)),
                1 => drop(changed.splice(at..at, random.pick(&words).chars())),
                _ => drop(changed.splice(at..end, random.pick(&words).chars())),
            }
        }
        match parse(&changed.into_iter().collect::<String>()) {
            Ok(node) => {
                read += 1;
                let _ = printer::tvmscript(&node);
            }
            Err(error) => {
                refused += 1;
                assert!(error.message().starts_with("line "), "{}", error.message());
            }
        }
    }
    assert!(read > 100 && refused > 100, "{read} read, {refused} refused");
}
