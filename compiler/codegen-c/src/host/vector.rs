//! Code generation for vector expressions. A value with several lanes is computed in pieces that fit the
//! vectors of the target. A C compiler would split a longer vector by storing it in memory.
//!
//! Operations without a vector instruction are computed lane by lane. A Boolean vector is represented by a
//! mask: a vector of integers whose bits are all set or all clear. The integers have as many bits as the
//! values with which the mask is used.

use anyfn::abi::{kDLBfloat, kDLFloat, kDLInt};
use anyfn::{Array, DType, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr, Var};
use anyfn_ir::kind::is_int;
use anyfn_ir::ops::{DTypeExt, MATH_OF_TWO};
use anyfn_ir::stmt::BufferStore;
use anyfn_ir::visit::{Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, make};

use crate::family::{Body, check_wide, int_of, is_shift_of, uint_of};
use crate::host::options::CodegenOptions;
use crate::host::registers::{Registers, known_place};
use crate::host::{Host, c_type};

/// Element type of a mask, unless the context requires another type.
const INT8: DType = DType::new(kDLInt, 8, 1);

/// Range of adjacent lanes of a vector.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    pub(crate) first: u16,
    pub(crate) count: u16,
}

/// Returns the number of lanes that a statement computes at a time. A vector of the target has room for this
/// number of values of the widest data type in the statement.
pub(crate) fn statement_width(value: &Expr, options: CodegenOptions) -> u16 {
    struct Longest(u16);
    impl Visitor for Longest {
        fn expr(&mut self, expr: &Expr) {
            if expr.dtype.lanes() != 1 && !expr.dtype.is_bool() {
                self.0 = self.0.max(expr.dtype.0.bits.into());
            }
            // Indices are computed for the first lane only.
            if !matches!(ExprKind::of(expr), ExprKind::BufferLoad(_)) {
                self.below_expr(expr);
            }
        }
    }
    let mut longest = Longest(8);
    longest.expr(value);
    (options.vector_bytes * 8 / longest.0.max(1)).max(1)
}

impl Body<'_, Host> {
    /// Generates a store of a vector.
    pub(super) fn store_lanes(&mut self, node: &BufferStore) -> Result<()> {
        let is_late = reads_elsewhere(node);
        if !self.dialect.options.has_vectors() {
            return self.store_in_loop(node, is_late);
        }
        let pieces = self.pieces(&node.value, Some((&node.buffer, &node.indices)));
        let mut values = Vec::new();
        for piece in &pieces {
            values.push(self.piece(&node.value, *piece)?);
        }
        if is_late {
            // All elements are read before one is written.
            self.open("{");
            for (piece, value) in pieces.iter().zip(&mut values) {
                let c_type = match piece.count {
                    1 => c_type(node.value.dtype.element())?.to_owned(),
                    count => self.vector(node.value.dtype.element(), count)?,
                };
                let name = self.names.fresh("late");
                self.line(&format!("const {c_type} {name} = {value};"));
                *value = name;
            }
        }
        let is_streamed =
            self.dialect.streams && is_contiguous(&node.indices) && self.registers(&node.buffer).is_none();
        for (piece, value) in pieces.iter().zip(&values) {
            let bytes = piece.count * u16::from(node.buffer.dtype.0.bits.div_ceil(8));
            if is_streamed && bytes >= 16 {
                let stream = self.stream(node.buffer.dtype, piece.count)?;
                let place = self.element(&node.buffer, &node.indices, &piece.first.to_string())?;
                self.line(&format!("{stream}(&{place}, {value});"));
                continue;
            }
            let place = match piece.count {
                1 => self.element(&node.buffer, &node.indices, &piece.first.to_string())?,
                _ => self.neighbours(&node.buffer, &node.indices, *piece, "")?,
            };
            self.line(&format!("{place} = {value};"));
        }
        if is_late {
            self.close("}");
        }
        Ok(())
    }

    /// Generates a store of a vector as a loop over its lanes, for compilers without vectors. If `is_late` is
    /// true, all lanes are computed before the first one is stored.
    fn store_in_loop(&mut self, node: &BufferStore, is_late: bool) -> Result<()> {
        let lanes = node.value.dtype.lanes();
        let lane = self.names.fresh("lane");
        let value = self.lane(&node.value, &lane)?;
        let place = self.element(&node.buffer, &node.indices, &lane)?;
        let head = format!("for (int32_t {lane} = 0; {lane} < {lanes}; ++{lane})");
        if !is_late {
            self.line(&format!("{head} {place} = {value};"));
            return Ok(());
        }
        let late = self.names.fresh("late");
        self.open("{");
        self.line(&format!("{} {late}[{lanes}];", c_type(node.value.dtype.element())?));
        self.line(&format!("{head} {late}[{lane}] = {value};"));
        self.line(&format!("{head} {place} = {late}[{lane}];"));
        self.close("}");
        Ok(())
    }

    /// Returns an expression for the given lanes of a value, in the type in which the value is stored in
    /// memory.
    fn piece(&mut self, value: &Expr, lanes: Lanes) -> Result<String> {
        if lanes.count == 1 {
            return self.lane(value, &lanes.first.to_string());
        }
        if value.dtype.is_bool() {
            // In memory, the value true is 1.
            let mask = self.mask(value, INT8, lanes)?;
            let name = self.vector(DType::UINT8, lanes.count)?;
            return Ok(format!("(({name}){mask} & 1)"));
        }
        self.lanes(value, lanes)
    }

    /// Returns the ranges of lanes in which a value is computed and, if a destination is given, stored.
    fn pieces(&self, value: &Expr, stored: Option<(&Ref<Buffer>, &Array<Expr>)>) -> Vec<Lanes> {
        let is_contiguous = stored.is_none_or(|(_, indices)| is_contiguous(indices));
        let mut width = if is_contiguous { statement_width(value, self.dialect.options) } else { 1 };
        // A variable that replaces a buffer is always accessed as a whole.
        let registers = self.registers_of(value, stored.map(|(buffer, _)| buffer));
        if let Some(least) = registers.iter().map(|registers| registers.width).min() {
            width =
                if registers.iter().all(|registers| registers.width == least) { width.min(least) } else { 1 };
        }
        if registers.iter().any(|registers| registers.width != width) {
            width = 1;
        }
        let mut pieces = Vec::new();
        let mut first = 0;
        while first < value.dtype.lanes() {
            let count = width.min(largest_power_of_two(value.dtype.lanes() - first));
            pieces.push(Lanes { first, count });
            first += count;
        }
        pieces
    }

    /// Returns the C variables that replace buffers, for the buffers that a statement accesses:
    /// those from which `value` loads vectors, and the buffer `stored`.
    fn registers_of(&self, value: &Expr, stored: Option<&Ref<Buffer>>) -> Vec<&Registers> {
        struct Find<'a, 'b>(&'a Body<'b, Host>, Vec<&'a Registers>);
        impl Visitor for Find<'_, '_> {
            fn expr(&mut self, expr: &Expr) {
                if expr.dtype.lanes() != 1 {
                    self.below_expr(expr);
                }
            }
            fn buffer(&mut self, buffer: &Ref<Buffer>) {
                self.1.extend(self.0.registers(buffer));
            }
        }
        let mut find = Find(self, Vec::new());
        find.expr(value);
        if let Some(buffer) = stored {
            find.buffer(buffer);
        }
        find.1
    }

    /// Generates an array variable that contains the lanes of a vector value.
    pub(super) fn bind_lanes(&mut self, var: &Ref<Var>, value: &Expr) -> Result<()> {
        let (element, lanes) = (var.dtype.element(), var.dtype.lanes());
        let (c_type, name) = (c_type(element)?, self.names.var(var));
        self.line(&format!("{c_type} {name}[{lanes}];"));
        if self.dialect.options.has_vectors() {
            for piece in self.pieces(value, None) {
                let value = self.piece(value, piece)?;
                let place = self.part(&format!("{name}[{}]", piece.first), element, piece, "")?;
                self.line(&format!("{place} = {value};"));
            }
        } else {
            let lane = self.names.fresh("lane");
            let value = self.lane(value, &lane)?;
            self.line(&format!(
                "for (int32_t {lane} = 0; {lane} < {lanes}; ++{lane}) {name}[{lane}] = {value};"
            ));
        }
        self.scope.push((format!("const {c_type}* restrict {name}"), name));
        Ok(())
    }

    /// Returns a vector expression for contiguous elements in memory. `first` is an expression for the first
    /// element.
    fn part(&mut self, first: &str, element: DType, lanes: Lanes, constness: &str) -> Result<String> {
        if lanes.count == 1 {
            return Ok(first.to_owned());
        }
        let name = self.vector(element, lanes.count)?;
        Ok(format!("*({constness}{name}_in_memory*)&{first}"))
    }

    /// Declares a function that stores a vector and bypasses the caches. Returns the name of the
    /// function.
    fn stream(&mut self, element: DType, lanes: u16) -> Result<String> {
        let name = self.vector(element, lanes)?;
        let (function, c_type) = (format!("{name}_stream"), c_type(element)?);
        let bytes = lanes * u16::from(element.0.bits.div_ceil(8));
        self.declare(
            &function,
            format!(
                "static inline void {function}({c_type}* place, {name} x) {{\n  if (!anyfn_stream_{bytes}(place, &x)) \
                 *({name}_in_memory*)place = x;\n}}\n"
            ),
        );
        Ok(function)
    }

    /// Declares a vector type and returns its name.
    pub(crate) fn vector(&mut self, element: DType, lanes: u16) -> Result<String> {
        let (name, declared) = vector_type(element, lanes)?;
        self.declare(&name, declared);
        Ok(name)
    }

    /// Returns a vector expression for contiguous elements of a buffer, namely the given lanes of
    /// the access at `indices`.
    fn neighbours(
        &mut self,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        lanes: Lanes,
        constness: &str,
    ) -> Result<String> {
        if let Some(registers) = self.registers(buffer)
            && let Some(place) = known_place(buffer, indices)
            && let Ok(place) = usize::try_from(place + i64::from(lanes.first))
            && let Some(name) = registers.names.get(place / usize::from(registers.width))
        {
            return Ok(name.clone());
        }
        let first = self.element(buffer, indices, &lanes.first.to_string())?;
        self.part(&first, buffer.dtype, lanes, constness)
    }

    /// Returns a vector expression for the given lanes of a value.
    pub(crate) fn lanes(&mut self, expr: &Expr, lanes: Lanes) -> Result<String> {
        on_enough_stack(|| self.lanes_here(expr, lanes))
    }

    fn lanes_here(&mut self, expr: &Expr, lanes: Lanes) -> Result<String> {
        let element = expr.dtype.element();
        if element.is_bool() {
            return self.mask(expr, INT8, lanes);
        }
        if let ExprKind::Binary(op, _) = ExprKind::of(expr) {
            check_wide::<Host>(op.text(), element)?;
        }
        Ok(match ExprKind::of(expr) {
            ExprKind::Var(var) => {
                let first = format!("{}[{}]", self.names.var(var), lanes.first);
                self.part(&first, element, lanes, "const ")?
            }
            ExprKind::Broadcast(node) => {
                let (name, value) = (self.vector(element, lanes.count)?, self.expr(&node.value)?);
                format!("{name}_splat({value})")
            }
            ExprKind::Ramp(node) => {
                let name = self.vector(element, lanes.count)?;
                let (start, stride) = (self.expr(&node.start)?, self.expr(&node.stride)?);
                let numbers: Vec<String> =
                    (lanes.first..lanes.first + lanes.count).map(|lane| lane.to_string()).collect();
                format!("({name}_splat({start}) + {name}_splat({stride}) * ({name}){{{}}})", numbers.join(", "))
            }
            ExprKind::BufferLoad(node) if is_contiguous(&node.indices) => {
                self.neighbours(&node.buffer, &node.indices, lanes, "const ")?
            }
            ExprKind::Cast(node) if node.value.dtype.is_bool() => {
                let mask = self.mask(&node.value, int_of(element), lanes)?;
                let name = self.vector(element, lanes.count)?;
                format!("__builtin_convertvector(({mask} & 1), {name})")
            }
            ExprKind::Cast(node) if element.is_half() || node.value.dtype.is_half() => {
                match self.convert_halves(node.value.dtype, element, lanes.count)? {
                    Some(function) => format!("{function}({})", self.lanes(&node.value, lanes)?),
                    None => self.one_by_one(expr, lanes)?,
                }
            }
            ExprKind::Cast(node) => {
                let mut value = self.lanes(&node.value, lanes)?;
                let from = node.value.dtype.element();
                if from.is_integer() && element.is_float() && from.0.bits < 32 {
                    // The conversion is done in two steps that each have an instruction.
                    let middle = self.vector(DType::INT32, lanes.count)?;
                    value = format!("__builtin_convertvector({value}, {middle})");
                }
                let name = self.vector(element, lanes.count)?;
                format!("__builtin_convertvector({value}, {name})")
            }
            ExprKind::Select(node) => {
                self.maybe += 1;
                let values = (self.lanes(&node.true_value, lanes), self.lanes(&node.false_value, lanes));
                self.maybe -= 1;
                let (a, b) = (values.0?, values.1?);
                if node.condition.dtype.lanes() == 1 {
                    let name = self.vector(element, lanes.count)?;
                    format!("({} ? ({name}){a} : ({name}){b})", self.expr(&node.condition)?)
                } else {
                    let mask = self.mask(&node.condition, int_of(element), lanes)?;
                    let select = self.select(element, lanes.count)?;
                    format!("{select}({mask}, {a}, {b})")
                }
            }
            ExprKind::Binary(op @ (BinaryOp::Min | BinaryOp::Max), node) => {
                let (a, b) = (self.lanes(&node.a, lanes)?, self.lanes(&node.b, lanes)?);
                let function = self.min_max(op, element, lanes.count)?;
                format!("{function}({a}, {b})")
            }
            ExprKind::Binary(op @ (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul), node) => {
                let (a, b) = (self.lanes(&node.a, lanes)?, self.lanes(&node.b, lanes)?);
                let sign = op.text();
                if element.is_integer() {
                    // The operation is unsigned, since overflow must wrap around.
                    let name = self.vector(element, lanes.count)?;
                    let unsigned = self.vector(uint_of(element), lanes.count)?;
                    format!("(({name})(({unsigned}){a} {sign} ({unsigned}){b}))")
                } else {
                    format!("({a} {sign} {b})")
                }
            }
            ExprKind::Binary(op @ (BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor), node) => {
                format!("({} {} {})", self.lanes(&node.a, lanes)?, op.text(), self.lanes(&node.b, lanes)?)
            }
            ExprKind::Binary(op @ (BinaryOp::ShiftLeft | BinaryOp::ShiftRight), node) => {
                let (a, mut b) = (self.lanes(&node.a, lanes)?, self.lanes(&node.b, lanes)?);
                if !is_shift_of(&node.b) {
                    b = format!("({b} & {})", element.0.bits - 1);
                }
                if op == BinaryOp::ShiftRight {
                    format!("({a} >> {b})")
                } else {
                    // The shift is unsigned, since bits may be shifted out.
                    let name = self.vector(element, lanes.count)?;
                    let unsigned = self.vector(uint_of(element), lanes.count)?;
                    format!("(({name})(({unsigned}){a} << ({unsigned}){b}))")
                }
            }
            ExprKind::Binary(BinaryOp::Div, node) if element.is_float() => {
                format!("({} / {})", self.lanes(&node.a, lanes)?, self.lanes(&node.b, lanes)?)
            }
            ExprKind::Call(node) if element.is_float() && !element.is_half() => {
                let Some(function) = self.vector_math(&node.op, element, lanes.count)? else {
                    return self.one_by_one(expr, lanes);
                };
                let expected = if MATH_OF_TWO.contains(&&*node.op) { 2 } else { 1 };
                if node.args.len() != expected {
                    bail!("TypeError", "`{}` takes {expected} arguments but got {}", node.op, node.args.len());
                }
                let mut args = Vec::new();
                for arg in node.args.iter() {
                    let Ok(arg) = Expr::try_from_object(arg) else {
                        bail!("TypeError", "the arguments of `{}` must be numbers", node.op);
                    };
                    args.push(self.lanes(&arg, lanes)?);
                }
                format!("{function}({})", args.join(", "))
            }
            _ => self.one_by_one(expr, lanes)?,
        })
    }

    /// Returns an expression for the given lanes of a Boolean value, as a mask of integers of type `dtype`.
    fn mask(&mut self, expr: &Expr, dtype: DType, lanes: Lanes) -> Result<String> {
        on_enough_stack(|| {
            let name = self.vector(dtype, lanes.count)?;
            Ok(match ExprKind::of(expr) {
                ExprKind::Binary(op, node) if op.is_comparison() && !node.a.dtype.is_bool() => {
                    check_wide::<Host>(op.text(), node.a.dtype)?;
                    let own = int_of(node.a.dtype);
                    let (a, b) = (self.lanes(&node.a, lanes)?, self.lanes(&node.b, lanes)?);
                    let own_name = self.vector(own, lanes.count)?;
                    let mask = format!("({own_name})({a} {} {b})", op.text());
                    if own == dtype { mask } else { format!("__builtin_convertvector({mask}, {name})") }
                }
                ExprKind::Binary(op, node) if node.a.dtype.is_bool() => {
                    let (a, b) = (self.mask(&node.a, dtype, lanes)?, self.mask(&node.b, dtype, lanes)?);
                    match op {
                        BinaryOp::And => format!("({a} & {b})"),
                        BinaryOp::Or => format!("({a} | {b})"),
                        BinaryOp::Eq => format!("(~({a} ^ {b}))"),
                        _ => format!("({a} ^ {b})"),
                    }
                }
                ExprKind::Not(node) => format!("(~{})", self.mask(&node.a, dtype, lanes)?),
                ExprKind::Broadcast(node) => {
                    let value = self.expr(&node.value)?;
                    format!("{name}_splat({value} ? -1 : 0)")
                }
                ExprKind::BufferLoad(node) if is_contiguous(&node.indices) => {
                    let loaded = self.neighbours(&node.buffer, &node.indices, lanes, "const ")?;
                    format!("(({name})(__builtin_convertvector({loaded}, {name}) != 0))")
                }
                ExprKind::Cast(node) if !node.value.dtype.is_bool() => {
                    check_wide::<Host>("bool", node.value.dtype)?;
                    let own = int_of(node.value.dtype);
                    let value = self.lanes(&node.value, lanes)?;
                    let own_name = self.vector(own, lanes.count)?;
                    let mask = format!("({own_name})({value} != 0)");
                    if own == dtype { mask } else { format!("__builtin_convertvector({mask}, {name})") }
                }
                ExprKind::Select(node) if node.condition.dtype.lanes() != 1 => {
                    let condition = self.mask(&node.condition, dtype, lanes)?;
                    let a = self.mask(&node.true_value, dtype, lanes)?;
                    let b = self.mask(&node.false_value, dtype, lanes)?;
                    let select = self.select(dtype, lanes.count)?;
                    format!("{select}({condition}, {a}, {b})")
                }
                _ => {
                    let values = self.each_lane(expr, lanes)?;
                    let values: Vec<String> = values.iter().map(|value| format!("{value} ? -1 : 0")).collect();
                    format!("({name}){{{}}}", values.join(", "))
                }
            })
        })
    }

    fn each_lane(&mut self, expr: &Expr, lanes: Lanes) -> Result<Vec<String>> {
        (lanes.first..lanes.first + lanes.count).map(|lane| self.lane(expr, &lane.to_string())).collect()
    }

    /// Returns a vector expression for the given lanes of a value. Each lane is computed separately.
    fn one_by_one(&mut self, expr: &Expr, lanes: Lanes) -> Result<String> {
        let name = self.vector(expr.dtype.element(), lanes.count)?;
        let values = self.each_lane(expr, lanes)?;
        Ok(format!("({name}){{{}}}", values.join(", ")))
    }

    /// Declares a function that selects between the lanes of two vectors by a mask. Returns the
    /// name of the function.
    pub(crate) fn select(&mut self, element: DType, lanes: u16) -> Result<String> {
        let (name, mask) = (self.vector(element, lanes)?, self.vector(int_of(element), lanes)?);
        let function = format!("{name}_select");
        self.declare(
            &function,
            format!(
                "static inline {name} {function}({mask} m, {name} a, {name} b) {{ return ({name})((m & ({mask})a) | (~m & \
                 ({mask})b)); }}\n"
            ),
        );
        Ok(function)
    }

    /// Declares a function that computes the minimum or maximum of each lane of two vectors.
    /// Returns the name of the function. If one of two values is NaN, the declared function returns
    /// NaN, as for scalars.
    fn min_max(&mut self, op: BinaryOp, element: DType, lanes: u16) -> Result<String> {
        let select = self.select(element, lanes)?;
        let (name, mask) = (self.vector(element, lanes)?, self.vector(int_of(element), lanes)?);
        let function = format!("{name}_{}", op.text());
        let sign = if op == BinaryOp::Min { '<' } else { '>' };
        let chosen = format!("{select}(({mask})(b {sign} a), b, a)");
        let value =
            if element.is_float() { format!("{select}(({mask})(b != b), b, {chosen})") } else { chosen };
        self.declare(
            &function,
            format!("static inline {name} {function}({name} a, {name} b) {{ return {value}; }}\n"),
        );
        Ok(function)
    }
}

/// Returns true if the last of the indices is a vector of consecutive values.
fn is_contiguous(indices: &Array<Expr>) -> bool {
    indices.last().is_ok_and(|index| match ExprKind::of(&index) {
        ExprKind::Ramp(ramp) => is_int(&ramp.stride, 1),
        _ => false,
    })
}

/// Returns true if a store also reads the memory of its buffer at other indices. All lanes must
/// then be read before any lane is stored.
fn reads_elsewhere(node: &BufferStore) -> bool {
    struct Reads<'a>(&'a BufferStore, bool);
    impl Visitor for Reads<'_> {
        fn expr(&mut self, expr: &Expr) {
            if let ExprKind::BufferLoad(load) = ExprKind::of(expr)
                && load.buffer.data.ptr_eq(&self.0.buffer.data)
            {
                let is_same = load.buffer.ptr_eq(&self.0.buffer)
                    && load.indices.iter().zip(self.0.indices.iter()).all(|(a, b)| make::is_equal(&a, &b));
                self.1 |= !is_same;
            }
            self.below_expr(expr);
        }
    }
    let mut reads = Reads(node, false);
    reads.expr(&node.value);
    reads.1
}

fn largest_power_of_two(number: u16) -> u16 {
    1 << number.checked_ilog2().unwrap_or(0)
}

/// Returns the name and the declaration of the C type for a vector of `lanes` elements. The
/// declaration also defines the type `<name>_in_memory`, which has the alignment of a single
/// element, and the function `<name>_splat`, which copies a number to all lanes.
///
/// # Errors
/// Returns the error of [`c_type`].
fn vector_type(element: DType, lanes: u16) -> Result<(String, String)> {
    let c_type = c_type(element)?;
    let letter = match element.0.code {
        kDLInt => 'i',
        kDLFloat => 'f',
        kDLBfloat => 'b',
        _ => 'u',
    };
    let name = format!("anyfn_{letter}{}x{lanes}", element.0.bits);
    let bytes = u32::from(element.0.bits).div_ceil(8);
    let size = u32::from(lanes) * bytes;
    let each = vec!["x"; lanes.into()].join(", ");
    let declared = format!(
        "typedef {c_type} {name} __attribute__((vector_size({size})));\n\
         typedef {c_type} {name}_in_memory __attribute__((vector_size({size}), aligned({bytes}), may_alias));\n\
         static inline {name} {name}_splat({c_type} x) {{ return ({name}){{{each}}}; }}\n"
    );
    Ok((name, declared))
}
