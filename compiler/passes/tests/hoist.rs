//! Tests of the passes `hoist`, `unroll`, `share_buffers`, `vector_loops` and `widen_floats` on constructed
//! functions.

use anyfn_core as _;
use anyfn_reflect as _;

use anyfn::{Array, DType, Map, Ref};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::stmt::{ForKind, Stmt};
use anyfn_ir::{make, ops, printer};
use anyfn_passes::{hoist, share_buffers, unroll, vector_loops, widen_floats};

fn buffer(name: &str, extents: &[i32]) -> Ref<Buffer> {
    make::buffer(name, extents.iter().map(|extent| ops::i32(*extent)).collect(), DType::FLOAT32)
}

fn load(buffer: &Ref<Buffer>, indices: &[&Expr]) -> Expr {
    ops::load(buffer, indices.iter().map(|index| (*index).clone()).collect()).unwrap()
}

fn store(buffer: &Ref<Buffer>, indices: &[&Expr], value: Expr) -> Stmt {
    make::store(buffer, value, indices.iter().map(|index| (*index).clone()).collect::<Array<Expr>>()).unwrap()
}

fn serial(name: &str, extent: Expr, body: impl FnOnce(&Expr) -> Stmt) -> Stmt {
    let var: Ref<Var> = ops::var(name, DType::INT32);
    let body = body(&var.clone().into_parent());
    make::for_loop(var, ops::i32(0), extent, body)
}

fn exp(value: Expr) -> Expr {
    ops::call(DType::FLOAT32, "exp", [value.into_object()])
}

fn func(numbers: &[&Ref<Var>], buffers: &[&Ref<Buffer>], body: Stmt) -> Ref<PrimFunc> {
    let handles: Vec<Ref<Var>> = buffers.iter().map(|buffer| ops::var(&buffer.name, ops::HANDLE)).collect();
    let map = handles.iter().cloned().zip(buffers.iter().map(|buffer| (*buffer).clone()));
    Ref::new(PrimFunc {
        params: handles.iter().cloned().chain(numbers.iter().map(|var| (*var).clone())).collect(),
        buffer_map: Map::try_from_iter(map.collect::<Vec<_>>()).unwrap(),
        body,
        attrs: Map::new(),
    })
}

fn text(func: &Ref<PrimFunc>) -> String {
    printer::text(func.as_object())
}

#[test]
fn conditions_and_costly_values_go_in_front_of_loops() {
    let (a, b, n) = (buffer("A", &[8]), buffer("B", &[8, 16]), ops::var("n", DType::INT32));
    let condition = ops::less(n.clone().into_parent(), ops::i32(5)).unwrap();
    let body = serial("i", ops::i32(8), |i| {
        serial("j", ops::i32(16), |j| {
            let value = ops::add(exp(load(&a, &[i])), load(&b, &[i, j])).unwrap();
            make::if_then(condition.clone(), store(&b, &[i, j], value), None).unwrap()
        })
    });
    let moved = text(&hoist(&func(&[&n], &[&a, &b], body)).unwrap());
    let expected = [
        "    if n < 5:",
        "        for i in range(8):",
        "            once: float32 = exp(A[i])",
        "            for j in range(16):",
        "                B[i, j] = once + B[i, j]",
    ];
    assert!(moved.contains(&expected.join("\n")), "{moved}");
}

#[test]
fn quotients_in_places_are_computed_once() {
    let (a, b) = (buffer("A", &[8, 8]), buffer("B", &[8, 16]));
    let body = serial("i", ops::i32(8), |i| {
        let quotient = |x: &Expr| ops::floor_div(x.clone(), ops::i32(4)).unwrap();
        // The second quotient changes in each iteration.
        serial("j", ops::i32(16), |j| store(&b, &[i, j], load(&a, &[&quotient(i), &quotient(j)])))
    });
    let moved = text(&hoist(&func(&[], &[&a, &b], body)).unwrap());
    let expected = [
        "        once: int32 = i // 4",
        "        for j in range(16):",
        "            B[i, j] = A[once, j // 4]",
    ];
    assert!(moved.contains(&expected.join("\n")), "{moved}");
}

#[test]
fn what_a_repetition_of_fused_loops_is_comes_first() {
    let b = buffer("B", &[4, 4]);
    let fused = ops::var("fused", DType::INT32);
    let i = fused.clone().into_parent();
    let (row, column) =
        (ops::floor_div(i.clone(), ops::i32(4)).unwrap(), ops::floor_mod(i, ops::i32(4)).unwrap());
    let one = store(&b, &[&row, &column], ops::cast(ops::i32(1), DType::FLOAT32).unwrap());
    let two = store(&b, &[&row, &column], exp(load(&b, &[&row, &column])));
    let (zero, count) = (ops::i32(0), ops::i32(16));
    let body = make::for_of_kind(fused, zero, count, ForKind::Parallel, make::seq(vec![one, two]));
    let moved = text(&hoist(&func(&[], &[&b], body)).unwrap());
    let expected = [
        "        once: int32 = fused // 4",
        "        once_1: int32 = fused % 4",
        "        B[once, once_1] = 1.0",
        "        B[once, once_1] = exp(B[once, once_1])",
    ];
    assert!(moved.contains(&expected.join("\n")), "{moved}");
}

#[test]
fn what_may_change_or_may_not_be_computed_stays() {
    let (a, b, n) = (buffer("A", &[8]), buffer("B", &[8]), ops::var("n", DType::INT32));
    let zero = ops::i32(0);
    let extent: Expr = n.clone().into_parent();
    // The loop may have no iterations, it writes the element that is read, or only some iterations compute the value.
    let bodies = [
        serial("i", extent.clone(), |i| store(&b, &[i], exp(load(&a, &[&zero])))),
        serial("i", ops::i32(8), |i| store(&a, &[i], exp(load(&a, &[&zero])))),
        serial("i", ops::i32(8), |i| {
            let condition = ops::less(i.clone(), extent.clone()).unwrap();
            make::if_then(condition, store(&b, &[i], exp(load(&a, &[&zero]))), None).unwrap()
        }),
        serial("i", ops::i32(8), |i| {
            let condition = ops::less(i.clone(), extent.clone()).unwrap();
            let value = ops::select(condition, exp(load(&a, &[&zero])), load(&a, &[i])).unwrap();
            store(&b, &[i], value)
        }),
    ];
    for body in bodies {
        let func = func(&[&n], &[&a, &b], body);
        assert_eq!(text(&hoist(&func).unwrap()), text(&func));
    }
}

#[test]
fn a_condition_that_divides_by_zero_stays_in_its_loop() {
    let (a, n) = (buffer("A", &[64]), ops::var("n", DType::INT32));
    let bounded = |divisor: i32| {
        let body = serial("i", n.clone().into_parent(), |i| {
            let limit = ops::rebuilt(BinaryOp::FloorDiv, n.clone().into_parent(), ops::i32(divisor)).unwrap();
            let condition = ops::less(i.clone(), limit).unwrap();
            make::if_then(condition, store(&a, &[i], load(&a, &[i])), None).unwrap()
        });
        text(&vector_loops(&func(&[&n], &[&a], body)).unwrap())
    };
    let (half, none) = (bounded(2), bounded(0));
    assert!(half.contains("in range(max(min(n, n // 2), 0))") && !half.contains("if "), "{half}");
    assert!(none.contains("in range(n)") && none.contains("if i < n // 0:"), "{none}");
}

/// Returns the names of the buffers whose memory a function allocates if its buffers T, U, V and W have these
/// alignments. T is live from step 0 to 1, U from 1 to 2, V from 2 to 3, W from 3 to 4.
fn memories(alignments: [i32; 4]) -> Vec<String> {
    const SIZE: i32 = 8192;
    let whole = |to: &Ref<Buffer>, from: &Ref<Buffer>| {
        serial("i", ops::i32(SIZE), |i| store(to, &[i], load(from, &[i])))
    };
    let [a, b] = ["A", "B"].map(|name| buffer(name, &[SIZE]));
    let [t, u, v, w] = [0, 1, 2, 3].map(|place| {
        let plain = buffer(["T", "U", "V", "W"][place], &[SIZE]);
        Ref::new(Buffer {
            data: plain.data.clone(),
            dtype: plain.dtype,
            shape: plain.shape.clone(),
            strides: plain.strides.clone(),
            name: plain.name.clone(),
            scope: plain.scope.clone(),
            alignment: alignments[place],
        })
    });
    let steps = [whole(&t, &a), whole(&u, &t), whole(&v, &u), whole(&w, &v), whole(&b, &w)];
    let mut body = make::seq(steps);
    for own in [&t, &u, &v, &w] {
        body = make::allocate(own.clone(), body);
    }
    let shared = share_buffers(&func(&[], &[&a, &b], body)).unwrap();
    let mut memories = Vec::new();
    let mut inner = shared.body.clone();
    while let anyfn_ir::StmtKind::Allocate(node) = anyfn_ir::StmtKind::of(&inner) {
        memories.push(node.buffer.name.to_string());
        let body = node.body.clone();
        inner = body;
    }
    // A second run finds nothing to share.
    assert!(share_buffers(&shared).unwrap().ptr_eq(&shared));
    memories.sort();
    memories
}

#[test]
fn memory_serves_again_when_it_is_not_used_any_more() {
    assert_eq!(memories([64, 64, 64, 64]), ["T", "U"]);
}

#[test]
fn memory_serves_again_only_if_it_is_aligned() {
    assert_eq!(memories([64, 64, 128, 64]), ["T", "U", "V"]);
    assert_eq!(memories([128, 64, 64, 16]), ["T", "U"]);
}

#[test]
fn a_loop_that_may_end_early_is_written_out_with_conditions() {
    let (a, n) = (buffer("A", &[64]), ops::var("n", DType::INT32));
    let unrolled = |most: i32| {
        let var = ops::var("i", DType::INT32);
        let one = ops::number(1, DType::FLOAT32).unwrap();
        let body = store(&a, &[&var.clone().into_parent()], one);
        let extent = ops::binary(BinaryOp::Min, ops::i32(most), n.clone().into_parent()).unwrap();
        let body = make::for_of_kind(var, ops::i32(0), extent, ForKind::Unrolled, body);
        text(&unroll(&func(&[&n], &[&a], body)).unwrap())
    };
    let few = unrolled(3);
    assert!(few.contains("if 0 < n:") && few.contains("if 2 < n:") && few.contains("A[2] = 1.0"), "{few}");
    assert!(!few.contains("unrolled"), "{few}");
    assert!(unrolled(1000).contains("in unrolled(min(1000, n))"));
}

#[test]
fn a_nest_of_loops_is_not_written_out_to_any_length() {
    let (a, n) = (buffer("A", &[64, 64]), ops::var("n", DType::INT32));
    let unrolled = |extent: &dyn Fn(i32) -> Expr, most: i32| {
        let [i, j] = ["i", "j"].map(|name| ops::var(name, DType::INT32));
        let one = ops::number(1, DType::FLOAT32).unwrap();
        let body = store(&a, &[&i.clone().into_parent(), &j.clone().into_parent()], one);
        let inner = make::for_of_kind(j, ops::i32(0), extent(most), ForKind::Unrolled, body);
        let outer = make::for_of_kind(i, ops::i32(0), extent(most), ForKind::Unrolled, inner);
        text(&unroll(&func(&[&n], &[&a], outer)).unwrap())
    };
    let known = |most: i32| ops::i32(most);
    let unknown = |most: i32| ops::binary(BinaryOp::Min, ops::i32(most), n.clone().into_parent()).unwrap();
    let copies = |text: String| (text.matches("= 1.0").count(), text.matches("for ").count());
    assert_eq!(copies(unrolled(&known, 16)), (256, 0));
    assert_eq!(copies(unrolled(&unknown, 10)), (100, 0));
    // The outer loop is not unrolled.
    assert_eq!(copies(unrolled(&unknown, 32)), (32, 1));
    assert_eq!(copies(unrolled(&known, 128)), (128, 1));
}

#[test]
fn numbers_of_16_bits_are_computed_with_in_32() {
    const HALF: DType = DType::new(anyfn::abi::kDLFloat, 16, 1);
    let extents = [ops::i32(8)].into_iter().collect();
    let (a, b) = (make::buffer("A", Array::clone(&extents), HALF), make::buffer("B", extents, HALF));
    let body = serial("i", ops::i32(8), |i| {
        let element = load(&a, &[i]);
        let tenth = ops::float(0.1, HALF).unwrap();
        let sum = ops::add(ops::mul(element.clone(), tenth).unwrap(), element).unwrap();
        store(&b, &[i], ops::cast(ops::cast(sum, DType::INT64).unwrap(), HALF).unwrap())
    });
    let func = Ref::new(PrimFunc { params: Array::new(), buffer_map: Map::new(), body, attrs: Map::new() });
    let text = printer::text(widen_floats(&func).unwrap().body.as_object());
    // The constant is the float16 that is nearest to 0.1.
    let product = "float32(A[i]) * 0.0999755859375";
    let sum = format!("float32(float16({product})) + float32(A[i])");
    assert!(text.contains(&format!("B[i] = float16(float32(int64(float32(float16({sum})))))")), "{text}");
    // Other types are not changed.
    let plain =
        serial("i", ops::i32(8), |i| store(&buffer("C", &[8]), &[i], ops::float(1.0, DType::FLOAT32).unwrap()));
    let func =
        Ref::new(PrimFunc { params: Array::new(), buffer_map: Map::new(), body: plain, attrs: Map::new() });
    assert!(widen_floats(&func).unwrap().ptr_eq(&func));
}
