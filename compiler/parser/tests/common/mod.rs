//! Generator of random programs that contain all kinds of nodes.

use anyfn::{Any, Array, DType, Map, ObjectRef, Ref};
use anyfn_ir::buffer::{Buffer, BufferRegion};
use anyfn_ir::expr::{BinaryOp, Expr, IterKind, IterVar, Range, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::make;
use anyfn_ir::node::{self, BlockParts};
use anyfn_ir::ops::{self, DTypeExt, HANDLE};
use anyfn_ir::stmt::{For, ForKind, Stmt};
use anyfn_random::Random;

const NAMES: &[&str] =
    &["x", "i", "for", "A", "A", "data", "v 1", "", "1st", "größe", "axis", "range", "float32", "sum", "C.D"];
const TYPES: &[&str] = &["int32", "int64", "uint8", "int8", "uint64", "float32", "float64", "float16", "bool"];

/// Variables and buffers that are defined at a position of the program.
#[derive(Clone, Default)]
struct Known {
    vars: Vec<Ref<Var>>,
    buffers: Vec<Ref<Buffer>>,
}

pub(crate) struct Programs {
    pub random: Random,
    known: Known,
}

fn dtype(name: &str) -> DType {
    name.parse().unwrap()
}

impl Programs {
    pub(crate) fn new(seed: u64) -> Programs {
        Programs { random: Random::new(seed), known: Known::default() }
    }

    fn name(&mut self) -> &'static str {
        self.random.pick(NAMES)
    }

    fn some_dtype(&mut self) -> DType {
        dtype(self.random.pick(TYPES))
    }

    fn var(&mut self, dtype: DType) -> Ref<Var> {
        ops::var(self.name(), dtype)
    }

    fn constant(&mut self, dtype: DType) -> Expr {
        let scalar = dtype.element();
        let value = if scalar.is_float() {
            let values = [
                0.0,
                -0.0,
                1.0,
                -1.5,
                0.1,
                1e30,
                1e-7,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::NAN,
                3.0e16,
                5e-324,
            ];
            ops::float(self.random.pick(&values), scalar)
        } else if scalar.is_bool() {
            Ok(ops::bool(self.random.chance(50)))
        } else {
            let (min, max) = match scalar.to_string().as_str() {
                "int8" => (-128, 127),
                "uint8" => (0, 255),
                "int32" => (i64::from(i32::MIN), i64::from(i32::MAX)),
                "uint64" => (0, -1),
                _ => (i64::MIN, i64::MAX),
            };
            ops::int(self.random.pick(&[0, 1, 2, 100, min, max]), scalar)
        }
        .unwrap();
        if dtype.lanes() == 1 { value } else { node::broadcast(value, dtype.lanes()).unwrap() }
    }

    /// Returns a random expression of a data type.
    pub(crate) fn expr(&mut self, dtype: DType, depth: usize) -> Expr {
        let vars: Vec<_> = self.known.vars.iter().filter(|var| var.dtype == dtype).cloned().collect();
        if depth == 0 {
            return if !vars.is_empty() && self.random.chance(60) {
                self.random.pick(&vars).into_parent()
            } else {
                self.constant(dtype)
            };
        }
        let below = depth - 1;
        match self.random.below(12) {
            0 => self.expr(dtype, 0),
            1 if !dtype.is_bool() => {
                let from = self.some_dtype().with_lanes(dtype.lanes());
                let value = self.expr(from, below);
                node::cast(value, dtype).unwrap()
            }
            2 => {
                let condition = self.expr(DType::BOOL.with_lanes(dtype.lanes()), below);
                let (a, b) = (self.expr(dtype, below), self.expr(dtype, below));
                node::select(condition, a, b).unwrap()
            }
            3 if dtype.lanes() == 1 => {
                let fits: Vec<_> = self.known.buffers.iter().filter(|b| b.dtype == dtype).cloned().collect();
                if fits.is_empty() {
                    return self.expr(dtype, 0);
                }
                let buffer = self.random.pick(&fits);
                let indices = self.indices(&buffer, below);
                ops::load(&buffer, indices).unwrap()
            }
            4 => {
                let inner = self.some_dtype();
                let value = self.expr(inner, below);
                let var = self.var(value.dtype);
                self.known.vars.push(var.clone());
                let body = self.expr(dtype, below);
                self.known.vars.pop();
                ops::bind(var, value, body).unwrap()
            }
            5 => {
                let ops = ["exp", "min", "call_packed", "my.op", "two words", "float32", "sum", "_x", "if"];
                let op = self.random.pick(&ops);
                let mut args = Vec::new();
                for _ in 0..self.random.below(3) {
                    let of = if self.random.chance(50) { dtype } else { self.some_dtype() };
                    args.push(match self.random.below(4) {
                        0 => ops::string(self.random.pick(&["a", "quote \" \\ \n \u{7f} é", ""])).into_object(),
                        1 if !self.known.buffers.is_empty() => {
                            self.random.pick(&self.known.buffers.clone()).into_object()
                        }
                        2 if !self.known.buffers.is_empty() => {
                            let buffer = self.random.pick(&self.known.buffers.clone());
                            self.region(&buffer).into_object()
                        }
                        _ => self.expr(of, below).into_object(),
                    });
                }
                ops::call(dtype, op, args)
            }
            6 if dtype.lanes() > 1 => {
                let value = self.expr(dtype.element(), below);
                node::broadcast(value, dtype.lanes()).unwrap()
            }
            7 if dtype.lanes() > 1 && dtype.is_integer() => {
                let (start, stride) = (self.expr(dtype.element(), below), self.expr(dtype.element(), below));
                ops::ramp(start, stride, dtype.lanes()).unwrap()
            }
            _ if dtype.is_bool() => match self.random.below(4) {
                0 => node::not(self.expr(dtype, below)).unwrap(),
                1 => self.binary(&[BinaryOp::And, BinaryOp::Or], dtype, below),
                _ => {
                    let of = self.random.pick(&["int32", "float64", "uint64"]);
                    let of = self::dtype(of).with_lanes(dtype.lanes());
                    use BinaryOp::{Eq, Ge, Gt, Le, Lt, Ne};
                    self.binary(&[Eq, Ge, Gt, Le, Lt, Ne], of, below)
                }
            },
            _ if dtype.is_float() => {
                use BinaryOp::{Add, Div, Max, Min, Mul, Sub};
                self.binary(&[Add, Sub, Mul, Div, Min, Max], dtype, below)
            }
            _ => {
                use BinaryOp::{Add, BitAnd, BitOr, BitXor, Div, FloorDiv, FloorMod, Max, Min, Mod, Mul};
                use BinaryOp::{ShiftLeft, ShiftRight, Sub};
                let arithmetic = [Add, Sub, Mul, Div, Min, Max, FloorDiv, FloorMod, Mod];
                let bitwise = [BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight];
                self.binary(&[&arithmetic[..], &bitwise].concat(), dtype, below)
            }
        }
    }

    fn binary(&mut self, ops: &[BinaryOp], dtype: DType, depth: usize) -> Expr {
        let op = self.random.pick(ops);
        let (a, b) = (self.expr(dtype, depth), self.expr(dtype, depth));
        // A division by a constant 0 is an error.
        node::binary(op, a.clone(), b).unwrap_or(a)
    }

    fn indices(&mut self, buffer: &Buffer, depth: usize) -> Array<Expr> {
        (0..buffer.shape.len())
            .map(|_| {
                let of = dtype(self.random.pick(&["int32", "int64"]));
                self.expr(of, depth.min(2))
            })
            .collect()
    }

    fn range(&mut self) -> Ref<Range> {
        let of = dtype(self.random.pick(&["int32", "int64"]));
        let other = if self.random.chance(80) { of } else { DType::INT64 };
        let min = if self.random.chance(40) { ops::int(0, of).unwrap() } else { self.expr(of, 1) };
        let extent = if self.random.chance(40) { ops::int(1, of).unwrap() } else { self.expr(other, 1) };
        Ref::new(Range { min, extent })
    }

    fn region(&mut self, buffer: &Ref<Buffer>) -> Ref<BufferRegion> {
        let region = (0..buffer.shape.len()).map(|_| self.range()).collect();
        Ref::new(BufferRegion { buffer: buffer.clone(), region })
    }

    fn regions(&mut self) -> Vec<Ref<BufferRegion>> {
        let buffers = self.known.buffers.clone();
        if buffers.is_empty() {
            return Vec::new();
        }
        (0..self.random.below(3))
            .map(|_| {
                let buffer = self.random.pick(&buffers);
                self.region(&buffer)
            })
            .collect()
    }

    fn buffer(&mut self) -> Ref<Buffer> {
        let of = self.some_dtype();
        let ndim = self.random.below(3);
        let extents = |p: &mut Self| -> Array<Expr> {
            (0..ndim)
                .map(|_| {
                    let of = dtype(p.random.pick(&["int32", "int64"]));
                    p.expr(of, 1)
                })
                .collect()
        };
        let shape = extents(self);
        let strides = if self.random.chance(20) { extents(self) } else { Array::new() };
        Ref::new(Buffer {
            data: ops::var("d", HANDLE),
            dtype: of,
            shape,
            strides,
            name: self.name().into(),
            scope: (self.random.pick(&["global", "shared", "local"])).into(),
            alignment: self.random.pick(&[64, 64, 16]),
        })
    }

    /// Adds a buffer to the known buffers, and sometimes another buffer that shares its memory.
    fn add_buffer(&mut self, buffer: &Ref<Buffer>) {
        self.known.buffers.push(buffer.clone());
        self.add_alias(buffer);
    }

    fn add_alias(&mut self, buffer: &Ref<Buffer>) {
        if self.random.chance(20) {
            let other = self.buffer();
            let (dtype, shape, strides) = (other.dtype, other.shape.clone(), other.strides.clone());
            let (name, scope, alignment) = (other.name.clone(), other.scope.clone(), other.alignment);
            let data = buffer.data.clone();
            let other = Buffer { data, dtype, shape, strides, name, scope, alignment };
            self.known.buffers.push(Ref::new(other));
        }
    }

    fn annotations(&mut self) -> Map<anyfn::String, Any> {
        if self.random.chance(70) {
            return Map::new();
        }
        // This expression is used only once, because each definition has its own variable.
        let mut expr = Some(self.expr(DType::INT32, 2));
        let values = [
            Any::new(7i64),
            Any::new(true),
            Any::new(-2.5),
            Any::new(f64::NAN),
            Any::new("text that is longer than what fits into a value"),
            Any::new(()),
            Any::new(DType::FLOAT32),
            Any::new([1i64, 2].into_iter().collect::<Array<i64>>()),
            Any::new(ops::i32(3)),
            Any::new(ops::string("s")),
            Any::new(ops::float(2.0, DType::FLOAT32).unwrap()),
        ];
        let keys = ["pragma", "two words", "for", "extent", "k"];
        let mut pairs = Vec::new();
        for key in keys {
            if self.random.chance(40) {
                let value = match expr.take() {
                    Some(expr) => Any::new(expr),
                    None => self.random.pick(&values),
                };
                pairs.push((key, value.unwrap()));
            }
        }
        Map::try_from_iter(pairs).unwrap()
    }

    pub(crate) fn stmt(&mut self, depth: usize) -> Stmt {
        let before = self.known.clone();
        let stmt = self.stmt_here(depth);
        self.known = before;
        stmt
    }

    fn stmt_here(&mut self, depth: usize) -> Stmt {
        let below = depth.saturating_sub(1);
        if depth == 0 || self.random.chance(25) {
            return self.leaf();
        }
        match self.random.below(10) {
            0 | 1 => {
                let kinds = [
                    ForKind::Serial,
                    ForKind::Serial,
                    ForKind::Serial,
                    ForKind::Parallel,
                    ForKind::Vectorized,
                    ForKind::Unrolled,
                    ForKind::BlockIdxY,
                    ForKind::ThreadIdxX,
                ];
                let kind = self.random.pick(&kinds);
                let range = self.range();
                let of = if self.random.chance(70) { range.extent.dtype } else { DType::INT32 };
                let var = self.var(of);
                let annotations = self.annotations();
                self.known.vars.push(var.clone());
                let body = self.stmt(below);
                node::for_loop(var, range.min.clone(), range.extent.clone(), kind, body, annotations)
            }
            2 => {
                let count = self.random.below(4);
                node::seq((0..count).map(|_| self.stmt(below)).collect())
            }
            3 => {
                let condition = self.expr(DType::BOOL, 2);
                let then_case = self.stmt(below);
                let else_case = self.random.chance(50).then(|| self.stmt(below));
                make::if_then(condition, then_case, else_case).unwrap()
            }
            4 => {
                let of = self.some_dtype();
                let value = self.expr(of, 2);
                let var = self.var(value.dtype);
                self.known.vars.push(var.clone());
                let body = self.stmt(below);
                make::let_stmt(var, value, body).unwrap()
            }
            5 => {
                let buffer = self.buffer();
                self.add_buffer(&buffer);
                let body = self.stmt(below);
                make::allocate(buffer, body)
            }
            6 | 7 => self.block(below),
            8 => self.launch(below),
            _ => {
                let (a, b) = (self.stmt(below), self.stmt(below));
                make::seq([a, b])
            }
        }
    }

    fn launch(&mut self, depth: usize) -> Stmt {
        let mut captures: Vec<ObjectRef> = Vec::new();
        for _ in 0..self.random.below(3) {
            let vars = self.known.vars.iter().map(|var| var.clone().into_object());
            let buffers = self.known.buffers.iter().map(|buffer| buffer.clone().into_object());
            let known: Vec<ObjectRef> = vars.chain(buffers).collect();
            if !known.is_empty() {
                captures.push(self.random.pick(&known));
            }
        }
        let num_tasks = if self.random.chance(50) { ops::i32(0) } else { self.expr(DType::INT32, 1) };
        let range = self.range();
        let var = self.var(range.extent.dtype);
        let annotations = self.annotations();
        self.known.vars.push(var.clone());
        let (min, extent, kind) = (range.min.clone(), range.extent.clone(), ForKind::Parallel);
        let body = node::for_loop(var, min, extent, kind, self.stmt(depth), annotations);
        match body.cast::<For>() {
            Ok(body) => node::launch(num_tasks, captures, body),
            Err(stmt) => stmt,
        }
    }

    fn leaf(&mut self) -> Stmt {
        match self.random.below(5) {
            0 => {
                let of = self.some_dtype();
                make::evaluate(self.expr(of, 2))
            }
            1 => {
                let condition = self.expr(DType::BOOL, 2);
                let kind = self.random.pick(&["ValueError", "my kind", "call"]);
                let message = [ops::string("n is "), self.expr(DType::INT32, 1)].into_iter().collect();
                node::assert_stmt(condition, kind, message).unwrap()
            }
            _ => {
                let buffers = self.known.buffers.clone();
                if buffers.is_empty() {
                    return make::evaluate(ops::i32(0));
                }
                let buffer = self.random.pick(&buffers);
                let mut indices: Vec<Expr> = self.indices(&buffer, 2).iter().collect();
                let mut of = buffer.dtype;
                if self.random.chance(25)
                    && let Some(last) = indices.pop()
                {
                    let stride = ops::int(1, last.dtype).unwrap();
                    indices.push(ops::ramp(last, stride, 4).unwrap());
                    of = of.with_lanes(4);
                }
                let value = self.expr(of, 3);
                make::store(&buffer, value, indices.into_iter().collect()).unwrap()
            }
        }
    }

    fn block(&mut self, depth: usize) -> Stmt {
        // Annotations come before the axes, so they cannot use them.
        let mut parts = BlockParts { annotations: self.annotations(), ..BlockParts::default() };
        let mut values = Vec::new();
        for _ in 0..self.random.below(3) {
            let dom = self.range();
            let of = if self.random.chance(80) { dom.extent.dtype } else { DType::INT32 };
            values.push(self.expr(of, 1));
            let kind = self.random.pick(&[IterKind::Spatial, IterKind::Reduce, IterKind::Ordered]);
            let var = self.var(of);
            parts.iter_vars.push(Ref::new(IterVar { dom, var, kind }));
        }
        // The predicate is outside of the block, so it cannot use the axes.
        let predicate = if self.random.chance(70) { ops::bool(true) } else { self.expr(DType::BOOL, 1) };
        self.known.vars.extend(parts.iter_vars.iter().map(|axis| axis.var.clone()));
        parts.reads = self.regions();
        parts.writes = self.regions();
        for _ in 0..self.random.below(2) {
            let buffer = self.buffer();
            self.add_buffer(&buffer);
            parts.alloc_buffers.push(buffer);
        }
        parts.init = self.random.chance(40).then(|| self.stmt(depth));
        let body = self.stmt(depth);
        let block = node::block(self.random.pick(&["C", "a block", "C_init"]), parts, body);
        if self.random.chance(90) { make::realize(values, predicate, block) } else { block.into_parent() }
    }

    /// Returns a random function.
    pub(crate) fn func(&mut self) -> Ref<PrimFunc> {
        self.known = Known::default();
        let mut params = Vec::new();
        let mut buffer_map = Vec::new();
        for _ in 0..self.random.below(4) {
            let of = self.some_dtype();
            let var = self.var(of);
            if self.random.chance(50) {
                params.push(var.clone());
                self.known.vars.push(var);
                continue;
            }
            let count = self.known.vars.len();
            if self.random.chance(50) {
                // A variable that the shape may define.
                let of = dtype(self.random.pick(&["int32", "int64"]));
                let var = self.var(of);
                self.known.vars.push(var);
            }
            let buffer = self.buffer();
            let new = self.known.vars.split_off(count);
            // The variable is defined only if the shape or the strides contain it.
            let is_used = buffer
                .shape
                .iter()
                .chain(buffer.strides.iter())
                .any(|extent| new.iter().any(|var| extent.as_object().ptr_eq(var.as_object())));
            if !is_used && !new.is_empty() {
                continue;
            }
            self.known.vars.extend(new);
            let handle = ops::var("h", HANDLE);
            params.push(handle.clone());
            buffer_map.push((handle, buffer.clone()));
            self.known.buffers.push(buffer);
        }
        for buffer in self.known.buffers.clone() {
            self.add_alias(&buffer);
        }
        // A variable that is not defined in the function.
        if self.random.chance(20) {
            let of = self.some_dtype();
            let var = self.var(of);
            self.known.vars.push(var);
        }
        if self.random.chance(20) {
            let buffer = self.buffer();
            self.add_buffer(&buffer);
        }
        let body = self.stmt(5);
        let symbols: [Option<&str>; 4] = [Some("f"), Some("f"), None, Some("not a word")];
        let mut attrs: Vec<(&str, Any)> = Vec::new();
        if let Some(symbol) = self.random.pick(&symbols) {
            attrs.push(("global_symbol", Any::new(symbol).unwrap()));
        }
        if self.random.chance(30) {
            attrs.push(("noalias", Any::new(true).unwrap()));
        }
        Ref::new(PrimFunc {
            params: params.into_iter().collect(),
            buffer_map: Map::try_from_iter(buffer_map).unwrap(),
            body,
            attrs: Map::try_from_iter(attrs).unwrap(),
        })
    }
}
