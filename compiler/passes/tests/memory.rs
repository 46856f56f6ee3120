//! Tests of `place_allocations` and `compact_buffers` on constructed functions: positions and sizes of
//! allocations.

use anyfn_core as _;
use anyfn_reflect as _;

use anyfn::{Array, DType, Map, Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::stmt::{ForKind, Stmt};
use anyfn_ir::{make, ops, printer};
use anyfn_passes::{compact_buffers, place_allocations, simplify};

fn int(value: i32) -> Expr {
    ops::i32(value)
}

fn shape(extents: &[i32]) -> Array<Expr> {
    extents.iter().map(|extent| int(*extent)).collect()
}

fn buffer(name: &str, extents: &[i32]) -> Ref<Buffer> {
    make::buffer(name, shape(extents), DType::FLOAT32)
}

fn load(buffer: &Ref<Buffer>, indices: &[Expr]) -> Expr {
    ops::load(buffer, indices.iter().cloned().collect()).unwrap()
}

fn store(buffer: &Ref<Buffer>, indices: &[Expr], value: Expr) -> Stmt {
    make::store(buffer, value, indices.iter().cloned().collect()).unwrap()
}

fn one(index: &Expr) -> &[Expr] {
    std::slice::from_ref(index)
}

fn number(value: f64) -> Expr {
    ops::float(value, DType::FLOAT32).unwrap()
}

fn add(a: &Expr, b: &Expr) -> Expr {
    ops::add(a.clone(), b.clone()).unwrap()
}

fn mul(a: &Expr, b: i32) -> Expr {
    ops::mul(a.clone(), int(b)).unwrap()
}

fn less(a: &Expr, b: &Expr) -> Expr {
    ops::less(a.clone(), b.clone()).unwrap()
}

/// Returns a loop of the given kind. `body` creates the loop body from the loop variable.
fn loop_of(kind: ForKind, name: &str, extent: Expr, body: impl FnOnce(Expr) -> Stmt) -> Stmt {
    let var: Ref<Var> = ops::var(name, DType::INT32);
    let body = body(var.clone().into_parent());
    make::for_of_kind(var, int(0), extent, kind, body)
}

fn serial(name: &str, extent: i32, body: impl FnOnce(Expr) -> Stmt) -> Stmt {
    loop_of(ForKind::Serial, name, int(extent), body)
}

fn func(params: &[&Ref<Buffer>], body: Stmt) -> Ref<PrimFunc> {
    let handles: Vec<Ref<Var>> =
        params.iter().map(|buffer| ops::var(&format!("{}_handle", buffer.name), ops::HANDLE)).collect();
    let map = handles.iter().cloned().zip(params.iter().map(|buffer| (*buffer).clone()));
    Ref::new(PrimFunc {
        buffer_map: Map::try_from_iter(map).unwrap(),
        params: handles.into_iter().collect(),
        body,
        attrs: Map::new(),
    })
}

fn lines(func: &Ref<PrimFunc>) -> Vec<String> {
    printer::text(func.as_object()).lines().skip(1).map(|line| line.trim_end().to_owned()).collect()
}

/// Applies `place_allocations` and `compact_buffers` to a function, and returns its printed form.
fn passed(func: &Ref<PrimFunc>) -> Result<String> {
    Ok(lines(&simplify(&compact_buffers(&place_allocations(&simplify(func)?)?)?)?).join("\n"))
}

/// Returns a function that computes `C` in tiles of 8 x 32. For each tile, it sets the elements to 0, adds
/// elements of `A` in a loop over `k`, and copies the tile to `D`.
fn tiles(guard: bool, kind: ForKind) -> Ref<PrimFunc> {
    let (n, m) = if guard { (1000, 100) } else { (64, 64) };
    let (a, c, d) = (buffer("A", &[n, m]), buffer("C", &[n, m]), buffer("D", &[n, m]));
    let all = |body: &dyn Fn(&[Expr]) -> Stmt, outer: &Expr, column: &Expr| {
        serial("ii", 8, |ii| {
            serial("ji", 32, |ji| {
                let place = [add(&mul(outer, 8), &ii), add(&mul(column, 32), &ji)];
                let body = body(&place);
                if guard { make::if_then(less(&place[1], &int(m)), body, None).unwrap() } else { body }
            })
        })
    };
    let body = loop_of(kind, "io", int(n / 8), |io| {
        serial("jo", (m + 31) / 32, |jo| {
            make::seq([
                all(&|place| store(&c, place, number(0.0)), &io, &jo),
                serial("k", 16, |_| {
                    all(&|place| store(&c, place, add(&load(&c, place), &load(&a, place))), &io, &jo)
                }),
                all(&|place| store(&d, place, load(&c, place)), &io, &jo),
            ])
        })
    });
    func(&[&a, &d], make::allocate(c, body))
}

#[test]
fn a_tile_is_as_large_as_a_tile() -> Result<()> {
    for (guard, kind) in [(false, ForKind::Serial), (true, ForKind::Serial), (false, ForKind::Parallel)] {
        let text = passed(&tiles(guard, kind))?;
        assert!(text.contains("C = alloc((8, 32), \"float32\", scope=\"local\")"), "{text}");
        assert!(text.contains("C[ii, ji] = 0.0") || text.contains("C[ii_1, ji_1] = 0.0"), "{text}");
        let (jo, place) = (text.find("jo").unwrap(), text.find("alloc((8, 32)").unwrap());
        assert!(jo < place, "inside of both loops:\n{text}");
    }
    Ok(())
}

/// Tests that the buffer `C` is allocated inside the loop over `i` and outside the loops over `k`
/// in `for i: for k: if k == 0: C[i] = 0; C[i] += A[i, k]` and then `D[i] = C[i]`. The loop over
/// `k` is split in two.
#[test]
fn a_reduction_begins_with_its_first_step() -> Result<()> {
    let (a, c, d) = (buffer("A", &[16, 32]), buffer("C", &[16]), buffer("D", &[16]));
    let body = serial("i", 16, |i| {
        let reduced = serial("ko", 8, |ko| {
            serial("ki", 4, |ki| {
                let k = add(&mul(&ko, 4), &ki);
                let is_first = ops::equal(k.clone(), int(0)).unwrap();
                make::seq([
                    make::if_then(is_first, store(&c, one(&i), number(0.0)), None).unwrap(),
                    store(&c, one(&i), add(&load(&c, one(&i)), &load(&a, &[i.clone(), k]))),
                ])
            })
        });
        make::seq([reduced, store(&d, one(&i), load(&c, one(&i)))])
    });
    let text = passed(&func(&[&a, &d], make::allocate(c, body)))?;
    assert!(text.contains("alloc((1,), \"float32\""), "{text}");
    assert!(text.find("for i").unwrap() < text.find("alloc((1,)").unwrap(), "{text}");
    assert!(
        text.find("alloc((1,)").unwrap() < text.find("ko").unwrap(),
        "not into the loops that add:\n{text}"
    );
    Ok(())
}

#[test]
fn what_is_carried_stays_outside() -> Result<()> {
    let (a, s, d) = (buffer("A", &[16]), buffer("S", &[16]), buffer("D", &[16]));
    // A running sum, which reads the element that the previous iteration has written.
    let before = |i: &Expr| ops::sub(i.clone(), int(1)).unwrap();
    let running = serial("i", 16, |i| {
        let is_first = ops::equal(i.clone(), int(0)).unwrap();
        let first = store(&s, one(&i), load(&a, one(&i)));
        let next = store(&s, one(&i), add(&load(&s, &[before(&i)]), &load(&a, one(&i))));
        make::seq([make::if_then(is_first, first, Some(next)).unwrap(), store(&d, one(&i), load(&s, one(&i)))])
    });
    let text = passed(&func(&[&a, &d], make::allocate(s, running)))?;
    assert!(text.find("S = alloc").unwrap() < text.find("for i").unwrap(), "{text}");
    assert!(text.contains("(16,)"), "{text}");
    // A single element that is written under a condition that reads memory.
    let t = buffer("T", &[1]);
    let flagged = serial("i", 16, |i| {
        let positive = less(&number(0.0), &load(&a, one(&i)));
        make::seq([
            make::if_then(positive, store(&t, &[int(0)], load(&a, one(&i))), None).unwrap(),
            store(&d, one(&i), load(&t, &[int(0)])),
        ])
    });
    let text = passed(&func(&[&a, &d], make::allocate(t, flagged)))?;
    assert!(text.find("alloc((1,)").unwrap() < text.find("for i").unwrap(), "{text}");
    Ok(())
}

#[test]
fn places_that_nobody_knows_keep_the_buffer() -> Result<()> {
    let index = make::buffer("I", shape(&[16]), DType::INT32);
    let (t, d) = (buffer("T", &[16]), buffer("D", &[16]));
    let body = make::seq([
        serial("j", 16, |j| store(&t, &[j], number(1.0))),
        serial("i", 16, |i| store(&d, one(&i), load(&t, &[load(&index, one(&i))]))),
    ]);
    let text = passed(&func(&[&index, &d], make::allocate(t.clone(), body)))?;
    assert!(text.contains("(16,)") && text.contains("T[I[i]]"), "{text}");
    // The buffer is an argument of a call, which receives its shape.
    let call =
        ops::call(DType::INT32, "call_packed", [ops::string("f").into_object(), t.clone().into_object()]);
    let body = make::seq([store(&t, &[int(3)], number(1.0)), make::evaluate(call)]);
    let text = passed(&func(&[&d], make::allocate(t, body)))?;
    assert!(text.contains("(16,)") && text.contains("T[3]"), "{text}");
    Ok(())
}

#[test]
fn memory_is_around_the_statements_that_use_it() -> Result<()> {
    let (t, d) = (buffer("T", &[16]), buffer("D", &[16]));
    let body = make::seq([
        serial("i", 16, |i| store(&d, &[i], number(1.0))),
        serial("j", 16, |j| store(&t, &[j], number(2.0))),
        serial("k", 16, |k| store(&d, one(&k), load(&t, one(&k)))),
        serial("l", 16, |l| store(&d, &[l], number(3.0))),
    ]);
    let text = passed(&func(&[&d], make::allocate(t, body)))?;
    let place = text.find("alloc((16,)").unwrap();
    assert!(text.find("for i").unwrap() < place && place < text.find("for j").unwrap(), "{text}");
    Ok(())
}
