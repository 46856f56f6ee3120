//! Interpretation of expressions.

use std::collections::HashMap;
use std::rc::Rc;

use anyfn::{Array, DType, Error, Object, Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Call, Expr, Var};
use anyfn_ir::ops::{DTypeExt, rounded};
use anyfn_ir::visit::on_enough_stack;
use anyfn_ir::{ExprKind, packed, printer};

use crate::math;
use crate::memory::Memory;
use crate::value::{Scalar, Value, binary, converted, from_bytes, size_of, to_bytes};

/// Maximum number of variables whose values an error message shows.
const SHOWN: usize = 12;

/// Returns the address of a node, which serves as the identity of the node.
pub(crate) fn address<T: Object>(node: &Ref<T>) -> usize {
    node.as_object().as_handle().addr()
}

/// State of a function that is being interpreted.
pub(crate) struct Machine {
    name: String,
    vars: HashMap<usize, Value>,
    /// Variables that are currently defined, in order of definition, for error messages.
    known: Vec<Ref<Var>>,
    memory: HashMap<usize, Rc<Memory>>,
    /// Number of loop iterations executed so far.
    pub(crate) repeated: u64,
    /// True while evaluating an index, offset, extent or trip count, whose computation must not overflow.
    in_place: bool,
}

impl Machine {
    pub(crate) fn new(name: &str) -> Machine {
        Machine {
            name: name.to_owned(),
            vars: HashMap::new(),
            known: Vec::new(),
            memory: HashMap::new(),
            repeated: 0,
            in_place: false,
        }
    }

    pub(crate) fn knows(&self, var: &Ref<Var>) -> bool {
        self.vars.contains_key(&address(var))
    }

    pub(crate) fn define(&mut self, var: &Ref<Var>, value: Value) {
        self.vars.insert(address(var), value);
        self.known.push(var.clone());
    }

    /// Runs `step` while the variable `var` has the value `value`.
    pub(crate) fn with<R>(
        &mut self,
        var: &Ref<Var>,
        value: Value,
        step: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        let before = self.vars.insert(address(var), value);
        self.known.push(var.clone());
        let result = step(self);
        self.known.pop();
        match before {
            Some(before) => self.vars.insert(address(var), before),
            None => self.vars.remove(&address(var)),
        };
        result
    }

    pub(crate) fn add_memory(&mut self, buffer: &Buffer, memory: Rc<Memory>) {
        self.memory.insert(address(&buffer.data), memory);
    }

    /// Allocates memory for a buffer, runs `step`, and restores the previous memory of the buffer.
    pub(crate) fn allocated<R>(
        &mut self,
        buffer: &Ref<Buffer>,
        step: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        let size = self.size_of(buffer)?;
        let before = self.memory.insert(address(&buffer.data), Rc::new(Memory::new(size)));
        let result = step(self);
        match before {
            Some(before) => self.memory.insert(address(&buffer.data), before),
            None => self.memory.remove(&address(&buffer.data)),
        };
        result
    }

    pub(crate) fn memory_of(&self, buffer: &Buffer) -> Result<Rc<Memory>> {
        match self.memory.get(&address(&buffer.data)) {
            Some(memory) => Ok(memory.clone()),
            None => {
                self.fail("ValueError", &format!("buffer `{}` is not allocated at this point", buffer.name))
            }
        }
    }

    /// Returns the size of a buffer in bytes, from the start of its first element to the end of its
    /// last element.
    fn size_of(&mut self, buffer: &Buffer) -> Result<usize> {
        const MOST: i128 = 1 << 32;
        let mut count = 1i128;
        let mut last = 0i128;
        for (dim, extent) in buffer.shape.iter().enumerate() {
            let extent = self.place(&extent)?;
            if extent < 0 {
                return self.fail(
                    "ValueError",
                    &format!(
                        "cannot allocate buffer `{}`: extent {extent} in dimension {dim} is negative",
                        buffer.name
                    ),
                );
            }
            count = count.saturating_mul(extent);
            if let Ok(stride) = buffer.strides.get(dim) {
                last = last.saturating_add((extent - 1).max(0).saturating_mul(self.place(&stride)?));
            }
        }
        if !buffer.strides.is_empty() && count > 0 {
            count = last.saturating_add(1);
        }
        let size = count.saturating_mul(size_of(buffer.dtype)? as i128);
        match usize::try_from(size) {
            Ok(size) if i128::try_from(size).is_ok_and(|size| size <= MOST) => Ok(size),
            _ => self.fail(
                "MemoryError",
                &format!("cannot allocate buffer `{}`: {size} bytes are too many", buffer.name),
            ),
        }
    }

    /// Returns an error whose message shows the values of the innermost scalar variables, at most
    /// [`SHOWN`] of them.
    pub(crate) fn fail<T>(&self, kind: &str, message: &str) -> Result<T> {
        let mut shown: Vec<String> = Vec::new();
        for var in self.known.iter().rev().take(SHOWN).rev() {
            if let Some(Value::One(value)) = self.vars.get(&address(var)) {
                shown.push(format!("{} = {}", var.name, value.text()));
            }
        }
        let with = if shown.is_empty() { String::new() } else { format!("; with {}", shown.join(", ")) };
        Err(Error::new(kind, &format!("{}: {message}{with}", self.name)))
    }

    /// Evaluates an integer that is an index, offset, extent or trip count.
    pub(crate) fn place(&mut self, expr: &Expr) -> Result<i128> {
        Ok(self.place_value(expr)?.lane(0).as_int())
    }

    fn place_value(&mut self, expr: &Expr) -> Result<Value> {
        let outer = std::mem::replace(&mut self.in_place, true);
        let result = self.expr(expr);
        self.in_place = outer;
        result
    }

    pub(crate) fn is_true(&mut self, expr: &Expr) -> Result<bool> {
        Ok(self.expr(expr)?.lane(0).is_true())
    }

    pub(crate) fn expr(&mut self, expr: &Expr) -> Result<Value> {
        on_enough_stack(|| self.expr_here(expr))
    }

    fn expr_here(&mut self, expr: &Expr) -> Result<Value> {
        let lanes = expr.dtype.lanes();
        match ExprKind::of(expr) {
            ExprKind::Var(var) => match self.vars.get(&address(var)) {
                Some(value) => Ok(value.clone()),
                None => {
                    self.fail("ValueError", &format!("variable `{}` is not defined at this point", var.name))
                }
            },
            ExprKind::IntImm(node) => Ok(Value::int(crate::value::wrapped(i128::from(node.value), node.dtype))),
            ExprKind::FloatImm(node) => Ok(Value::float(node.value, node.dtype)),
            ExprKind::StringImm(node) => Ok(Value::Text(node.value.to_string())),
            ExprKind::Cast(node) => {
                // Conversions may wrap around or round, and are not checked for overflow.
                let value = self.expr(&node.value)?;
                let target = expr.dtype.element();
                Value::of_lanes(lanes, |lane| Ok(converted(value.lane(lane), target)))
            }
            ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), node) if lanes == 1 => {
                let first = self.is_true(&node.a)?;
                let decides = first == (op == BinaryOp::Or);
                let result = if decides { first } else { self.is_true(&node.b)? };
                Ok(Value::int(result.into()))
            }
            ExprKind::Binary(op, node) => {
                let (a, b) = (self.expr(&node.a)?, self.expr(&node.b)?);
                let (dtype, in_place) = (node.a.dtype.element(), self.in_place);
                Value::of_lanes(lanes, |lane| binary(op, a.lane(lane), b.lane(lane), dtype, in_place))
                    .or_else(|error| self.at(expr, &error))
            }
            ExprKind::Not(node) => {
                let value = self.expr(&node.a)?;
                Value::of_lanes(lanes, |lane| Ok(Scalar::Int(i128::from(!value.lane(lane).is_true()))))
            }
            ExprKind::Select(node) if node.condition.dtype.lanes() == 1 => {
                let chosen = if self.is_true(&node.condition)? { &node.true_value } else { &node.false_value };
                self.expr(chosen)
            }
            ExprKind::Select(node) => {
                let condition = self.expr(&node.condition)?;
                let (a, b) = (self.expr(&node.true_value)?, self.expr(&node.false_value)?);
                Value::of_lanes(lanes, |lane| {
                    Ok(if condition.lane(lane).is_true() { a.lane(lane) } else { b.lane(lane) })
                })
            }
            ExprKind::BufferLoad(node) => {
                let offsets = self.offsets(&node.buffer, &node.indices, expr)?;
                let (memory, dtype) = (self.memory_of(&node.buffer)?, node.buffer.dtype);
                let size = size_of(dtype)?;
                let mut values = Vec::with_capacity(offsets.len());
                for (lane, offset) in offsets.into_iter().enumerate() {
                    values.push(match memory.read(offset, size) {
                        Some(Ok(bytes)) => from_bytes(bytes, dtype),
                        Some(Err(())) => {
                            let place = self.place_text(&node.indices, lane)?;
                            let text = printer::brief(expr.as_object());
                            return self.fail(
                                "ValueError",
                                &format!(
                                    "`{text}` reads `{}`[{place}], which was not written before",
                                    node.buffer.name
                                ),
                            );
                        }
                        None => return self.outside_of_memory(&node.buffer, expr),
                    });
                }
                Ok(match <[Scalar; 1]>::try_from(values) {
                    Ok([one]) => Value::One(one),
                    Err(lanes) => Value::Lanes(lanes),
                })
            }
            ExprKind::Ramp(node) => {
                let (start, stride) = (self.expr(&node.start)?.lane(0), self.expr(&node.stride)?.lane(0));
                let (dtype, in_place) = (expr.dtype.element(), self.in_place);
                Value::of_lanes(lanes, |lane| {
                    let lane = Scalar::Int(lane as i128);
                    let distance = binary(BinaryOp::Mul, stride, lane, dtype, in_place)?;
                    binary(BinaryOp::Add, start, distance, dtype, in_place)
                })
                .or_else(|error| self.at(expr, &error))
            }
            ExprKind::Broadcast(node) => {
                let value = self.expr(&node.value)?.lane(0);
                Value::of_lanes(lanes, |_| Ok(value))
            }
            ExprKind::Call(node) => self.call(expr, node),
            ExprKind::Let(node) => {
                let value = self.expr(&node.value)?;
                self.with(&node.var, value, |machine| machine.expr(&node.body))
            }
            ExprKind::ProducerLoad(_) | ExprKind::Reduce(_) => self.fail(
                "ValueError",
                &format!(
                    "cannot interpret a tensor expression; convert it into a function first \
                     (`te.create_prim_func`): {}",
                    printer::brief(expr.as_object())
                ),
            ),
            ExprKind::Other => {
                let key = expr.as_object().type_key();
                self.fail("TypeError", &format!("`{key}` cannot be interpreted; a pass must lower it first"))
            }
        }
    }

    /// Returns an error of the same kind as `error`, whose message also shows the expression and the values
    /// of the variables.
    fn at<T>(&self, expr: &Expr, error: &Error) -> Result<T> {
        self.fail(error.kind(), &format!("in `{}`: {}", printer::brief(expr.as_object()), error.message()))
    }

    /// Returns the byte offset of each lane of an access to a buffer. `whole` is the expression
    /// that makes the access, for error messages.
    pub(crate) fn offsets(
        &mut self,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        whole: &Expr,
    ) -> Result<Vec<usize>> {
        let size = size_of(buffer.dtype)?;
        let mut values = Vec::with_capacity(indices.len());
        let mut lanes = 1;
        for index in indices.iter() {
            lanes = lanes.max(usize::from(index.dtype.lanes()));
            values.push(self.place_value(&index)?);
        }
        let mut offsets = vec![0i128; lanes];
        for (dim, index) in values.iter().enumerate() {
            let extent = self.place(&buffer.shape.get(dim)?)?;
            let stride = match buffer.strides.get(dim) {
                Ok(stride) => Some(self.place(&stride)?),
                Err(_) => None,
            };
            for (lane, offset) in offsets.iter_mut().enumerate() {
                let at = index.lane(lane).as_int();
                if at < 0 || at >= extent {
                    let text = printer::brief(whole.as_object());
                    let of = if lanes > 1 { format!(" of lane {lane}") } else { String::new() };
                    return self.fail(
                        "IndexError",
                        &format!(
                            "`{text}`: index {at}{of} in dimension {dim} is out of range for `{}`, which \
                             has extent {extent} there",
                            buffer.name
                        ),
                    );
                }
                *offset = match stride {
                    Some(stride) => offset.saturating_add(at.saturating_mul(stride)),
                    None => offset.saturating_mul(extent).saturating_add(at),
                };
            }
        }
        let in_bytes = |offset: i128| usize::try_from(offset.saturating_mul(size as i128));
        match offsets.into_iter().map(in_bytes).collect::<Result<Vec<usize>, _>>() {
            Ok(offsets) => Ok(offsets),
            Err(_) => self.outside_of_memory(buffer, whole),
        }
    }

    fn outside_of_memory<T>(&self, buffer: &Ref<Buffer>, whole: &Expr) -> Result<T> {
        let bytes = self.memory_of(buffer)?.len();
        let text = printer::brief(whole.as_object());
        self.fail(
            "IndexError",
            &format!("`{text}` is outside of the {bytes} bytes of memory of `{}`", buffer.name),
        )
    }

    fn place_text(&mut self, indices: &Array<Expr>, lane: usize) -> Result<String> {
        let mut parts = Vec::new();
        for index in indices.iter() {
            parts.push(self.place_value(&index)?.lane(lane).text());
        }
        Ok(parts.join(", "))
    }

    /// Stores an element, or one element for each lane of a vector.
    pub(crate) fn store(&mut self, buffer: &Ref<Buffer>, indices: &Array<Expr>, value: &Expr) -> Result<()> {
        let target = anyfn_ir::ops::load(buffer, indices.clone())?;
        if let ExprKind::BufferLoad(from) = ExprKind::of(value)
            && self.memory_of(buffer)?.is_own()
        {
            // In a copy, elements without a value, such as padding, may be copied to elements that are not used.
            let (to, size) = (self.memory_of(buffer)?, size_of(buffer.dtype)?);
            let froms = self.offsets(&from.buffer, &from.indices, value)?;
            let tos = self.offsets(buffer, indices, &target)?;
            let memory = self.memory_of(&from.buffer)?;
            for (from_at, to_at) in froms.into_iter().zip(tos) {
                if !to.copy(to_at, &memory, from_at, size) {
                    return self.outside_of_memory(buffer, &target);
                }
            }
            return Ok(());
        }
        let new = self.expr(value)?;
        let offsets = self.offsets(buffer, indices, &target)?;
        let (memory, dtype) = (self.memory_of(buffer)?, buffer.dtype);
        let size = size_of(dtype)?;
        for (lane, offset) in offsets.into_iter().enumerate() {
            let bytes = to_bytes(new.lane(lane), dtype);
            if !memory.write(offset, &bytes[..size]) {
                return self.outside_of_memory(buffer, &target);
            }
        }
        Ok(())
    }

    fn call(&mut self, expr: &Expr, node: &Call) -> Result<Value> {
        let op: &str = &node.op;
        if op == packed::CALL_PACKED {
            return self.packed(expr.dtype, node);
        }
        if op == packed::CALL_EXTERN {
            return self.of_c(expr.dtype, node);
        }
        let mut args = Vec::new();
        for arg in node.args.iter() {
            let Ok(arg) = Expr::try_from_object(arg) else {
                return self.fail("TypeError", &format!("the arguments of `{op}` must be numbers"));
            };
            args.push(self.expr(&arg)?);
        }
        let dtype = expr.dtype.element();
        // The result is rounded to the data type, which is one more rounding than a function for that type
        // performs.
        let number = |value: &Value, lane: usize| value.lane(lane).as_float();
        match (&args[..], math::of_one(op), math::of_two(op)) {
            ([x], Some(function), _) => Value::of_lanes(expr.dtype.lanes(), |lane| {
                Ok(Scalar::Float(rounded(function(number(x, lane)), dtype)))
            }),
            ([x, y], _, Some(function)) => Value::of_lanes(expr.dtype.lanes(), |lane| {
                Ok(Scalar::Float(rounded(function(number(x, lane), number(y, lane)), dtype)))
            }),
            (_, None, None) => self.fail("ValueError", &format!("function `{op}` cannot be interpreted")),
            (args, one, _) => {
                let (expected, got) = (if one.is_some() { 1 } else { 2 }, args.len());
                self.fail("TypeError", &format!("`{op}` takes {expected} arguments but got {got}"))
            }
        }
    }

    /// Interprets a call of a C function, which must be a function of the C math library. The
    /// arguments and the result must have the data types that C declares.
    fn of_c(&mut self, dtype: DType, node: &Call) -> Result<Value> {
        let args: Vec<Expr> = node.args.iter().filter_map(|arg| Expr::try_from_object(arg).ok()).collect();
        let Some((ExprKind::StringImm(name), args)) =
            args.split_first().map(|(name, args)| (ExprKind::of(name), args))
        else {
            return self
                .fail("TypeError", "the first argument of `call_extern` must be the name of a function");
        };
        let name = &*name.value;
        let (plain, wanted) = match name.strip_suffix('f').filter(|plain| math::of_c(plain).is_some()) {
            Some(plain) => (plain, DType::FLOAT32),
            None => (name, DType::FLOAT64),
        };
        let Some(function) = math::of_c(plain) else {
            return self.fail(
                "ValueError",
                &format!(
                    "cannot interpret a call of the C function `{name}`: only functions of the C math \
                     library, such as `hypot` and `hypotf`, are supported; compile the function to call it"
                ),
            );
        };
        let (expected, got) = (function.arity(), node.args.len().saturating_sub(1));
        if got != expected || dtype != wanted || args.iter().any(|arg| arg.dtype != wanted) {
            let given: Vec<String> = args.iter().map(|arg| arg.dtype.to_string()).collect();
            return self.fail(
                "TypeError",
                &format!(
                    "C function `{name}`: expected {expected} arguments of {wanted} and a result of \
                     {wanted}, got ({}) and {dtype}",
                    given.join(", ")
                ),
            );
        }
        let mut numbers = Vec::with_capacity(args.len());
        for arg in args {
            numbers.push(self.expr(arg)?.lane(0).as_float());
        }
        Ok(Value::float(function.call(&numbers), wanted))
    }
}
