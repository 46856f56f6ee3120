//! Dialect of an imaginary device. It is a template for the dialects of real devices, and shows that `family`
//! does not assume C.
//!
//! Its language has the properties in which languages of devices typically differ from C:
//!
//! - *Types follow names*, and conversions look like calls: `let x: i32 = i32(y);`. There are no vectors, no 16-bit
//!   floating-point numbers, no strings and no addresses.
//! - *Constants carry their type*: `1_i32`, `2.0_f32`, `true`. A constant without a type has that of the other operand.
//! - *Arithmetic is defined for all operands.* Of two integers, the narrower one is converted to the type of the other.
//!   Integers wrap around. A quotient and a remainder are 0 if the divisor is 0. `floor_div`, `floor_mod`, `min` and
//!   `max` are operations of the language, and so are the mathematical functions.
//! - *Memory has an address space*: `global` for parameters, `shared` for memory of all threads or, if they form blocks, of a
//!   block, `private` for memory of one thread. The size of an allocation is constant.
//! - *All threads execute a kernel.* The outermost parallel loops are distributed over them, followed by a `barrier`.
//!   Outside of these loops, each thread would repeat every access to memory, so such an access is an error. All threads
//!   therefore reach the same barriers: no condition around a loop depends on memory.
//! - *Threads may form blocks.* A loop that is bound to a thread axis becomes the index of the thread in this axis, such as
//!   `thread_index_x()`, and the outermost loops over the threads of a block are followed by a `barrier`. There is a barrier
//!   between loops in them, too, such as two loops over `threadIdx.y` in a loop over `threadIdx.x`; a condition around such a
//!   barrier must be the same for all threads. `extent f.thread_index_x = ..;` states the number of indices, for the program
//!   that starts the kernel; all loops of an axis have the same. An access is in loops over all axes of the kernel.
//! - *Messages of errors are not strings of the kernel.* `error f.0(..)` declares a message with the types of the integers
//!   in it, for the program that starts the kernel. `raise f.0(..)` ends the kernel and passes the integers.
//!
//! Calls of packed functions and of C functions are errors, as the defaults of [`Dialect`] are. The program that starts the
//! kernel checks the arguments: [`Interface`] describes them.

use std::fmt::Write as _;

use anyfn::abi::{kDLBool, kDLFloat, kDLInt, kDLUInt};
use anyfn::{Array, DType, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::stmt::{For, ForKind, SeqStmt, Stmt};
use anyfn_ir::target::Target;
use anyfn_ir::visit::Visitor;
use anyfn_ir::{ExprKind, printer};

use crate::family::{
    Barriers, Body, Dialect, Interface, Literal, Message, Names, Operation, Part, Statements, Symbol,
    known_size, thread_axes, type_name, uses,
};

/// Dialect of the null device, with its state for one function.
#[derive(Default)]
pub(crate) struct Null {
    /// Declarations of the error messages of the function, without the names of the messages. The name of a
    /// message ends with the index of its declaration in this list.
    errors: Vec<String>,
    /// True while generating code that each thread executes. Such code is in a loop whose iterations are
    /// distributed over the threads, or in nested loops that together are bound to all thread axes of the
    /// function.
    is_in_thread: bool,
    /// Thread axes to which loops of the function are bound.
    axes: Vec<ForKind>,
    /// Thread axes of the enclosing loops.
    open: Vec<ForKind>,
    /// Number of threads along each thread axis.
    extents: Vec<(ForKind, String)>,
    /// Barriers inside of the outermost loops over the threads of a block.
    barriers: Barriers,
    /// Number of parameters of the function. The parameters are the first elements of
    /// [`Body::scope`].
    num_params: usize,
}

/// Returns the name of the built-in function for the index of a thread in an axis, such as `thread_index_x`
/// for `threadIdx.x`.
fn index_function(axis: ForKind) -> String {
    axis.text().replace("Idx.", "_index_")
}

/// Returns true if an expression neither reads memory nor calls functions.
fn is_arithmetic(expr: &Expr) -> bool {
    struct Find(bool);
    impl Visitor for Find {
        fn expr(&mut self, expr: &Expr) {
            self.0 |= matches!(ExprKind::of(expr), ExprKind::BufferLoad(_) | ExprKind::Call(_));
            self.below_expr(expr);
        }
    }
    let mut find = Find(false);
    find.expr(expr);
    !find.0
}

impl Body<'_, Null> {
    /// Generates a loop that is bound to a thread axis: defines the index of the thread and generates the
    /// body.
    fn bound_loop(&mut self, node: &For) -> Result<()> {
        let (axis, var) = (node.kind, &node.loop_var);
        let extent = self.place(&node.extent)?;
        let is_local = self.scope.iter().skip(self.dialect.num_params).any(|(_, name)| uses(&extent, name));
        if is_local || !is_arithmetic(&node.extent) {
            bail!(
                "ValueError",
                "loop `{}` is bound to {}, but its extent `{}` is not known before the kernel starts",
                var.name,
                axis.text(),
                printer::brief(node.extent.as_object())
            );
        }
        let known =
            self.dialect.extents.iter().find(|(known, _)| *known == axis).map(|(_, extent)| extent.clone());
        match known {
            None => self.dialect.extents.push((axis, extent)),
            Some(known) if known == extent => {}
            Some(_) => {
                bail!(
                    "ValueError",
                    "loops of different extents are bound to {}, among them loop `{}`",
                    axis.text(),
                    var.name
                )
            }
        }
        let (name, of) = (self.names.var(var), type_name::<Null>(var.dtype)?);
        let declared = Null::variable(var.dtype, &name)?;
        self.open("{");
        self.line(&Null::constant(var.dtype, &name, &format!("{of}({}())", index_function(axis)))?);
        self.scope.push((declared, name));
        self.extents.push(node.extent.clone());
        let outer = self.dialect.is_in_thread;
        self.dialect.open.push(axis);
        self.dialect.is_in_thread = self.dialect.axes.iter().all(|axis| self.dialect.open.contains(axis));
        self.stmt(&node.body)?;
        self.dialect.is_in_thread = outer;
        self.dialect.open.pop();
        self.extents.pop();
        self.scope.pop();
        self.close("}");
        if axis.is_over_threads() && !self.dialect.open.iter().any(|axis| axis.is_over_threads()) {
            self.line("barrier();");
        }
        Ok(())
    }
}

impl Dialect for Null {
    const NAME: &'static str = "null";
    const TYPES: &'static str = "bool, int8 to int64, uint8 to uint64, float32 and float64";
    const RESERVED: &'static str = "kernel error raise let var for if else true false nan inf \
        global shared private const extent bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 \
        thread_index thread_count thread_index_x thread_index_y thread_index_z \
        block_index_x block_index_y block_index_z barrier select floor_div floor_mod min max \
        exp exp2 log log2 log10 log1p expm1 sqrt rsqrt sigmoid sin cos tan asin acos atan sinh cosh tanh asinh acosh \
        atanh floor ceil trunc round nearbyint erf fabs pow atan2 fmod hypot copysign";
    const RESERVED_PREFIXES: &'static [&'static str] = &[];

    fn prelude() -> String {
        "dialect null 1;\n".to_owned()
    }

    fn function(
        symbol: &Symbol,
        func: &PrimFunc,
        interface: &Interface,
        _target: &Target,
        out: &mut String,
    ) -> Result<()> {
        let mut names = Names::new::<Null>(symbol);
        let scope = interface.declare::<Null>(&mut names)?;
        let params: Vec<String> = scope.iter().map(|(declared, _)| declared.clone()).collect();
        let barriers = Barriers::inside(&func.body)?;
        let dialect =
            Null { axes: thread_axes(&func.body), barriers, num_params: scope.len(), ..Null::default() };
        let mut body = Body::new(symbol, &mut names, 1, dialect);
        body.scope = scope;
        body.stmt(&func.body)?;
        for (axis, extent) in &body.dialect.extents {
            let _ = writeln!(out, "extent {symbol}.{} = {extent};", index_function(*axis));
        }
        for (number, error) in body.dialect.errors.iter().enumerate() {
            let _ = writeln!(out, "error {symbol}.{number}({error});");
        }
        let _ = writeln!(out, "kernel {symbol}({}) {{\n{}}}", params.join(", "), body.out);
        Ok(())
    }

    fn type_of(dtype: DType) -> Option<&'static str> {
        Some(match (dtype.0.code, dtype.0.bits) {
            (kDLInt, 8) => "i8",
            (kDLInt, 16) => "i16",
            (kDLInt, 32) => "i32",
            (kDLInt, 64) => "i64",
            (kDLUInt, 8) => "u8",
            (kDLUInt, 16) => "u16",
            (kDLUInt, 32) => "u32",
            (kDLUInt, 64) => "u64",
            (kDLFloat, 32) => "f32",
            (kDLFloat, 64) => "f64",
            (kDLBool, 8) => "bool",
            _ => return None,
        })
    }

    fn variable(dtype: DType, name: &str) -> Result<String> {
        Ok(format!("{name}: {}", type_name::<Null>(dtype)?))
    }

    fn buffer_parameter(buffer: &Buffer, name: &str, is_written: bool) -> Result<String> {
        let constness = if is_written { "" } else { "const " };
        Ok(format!("{name}: global {constness}{}[]", type_name::<Null>(buffer.dtype)?))
    }

    fn constant(dtype: DType, name: &str, value: &str) -> Result<String> {
        Ok(format!("let {} = {value};", Null::variable(dtype, name)?))
    }

    fn int(value: i64, dtype: DType) -> Result<String> {
        let of = type_name::<Null>(dtype)?;
        Ok(match dtype.0.code {
            kDLBool => (value != 0).to_string(),
            kDLUInt => format!("{}_{of}", value as u64),
            _ if value < 0 => format!("({value}_{of})"),
            _ => format!("{value}_{of}"),
        })
    }

    fn float(_body: &mut Body<'_, Null>, value: f64, dtype: DType) -> Result<String> {
        let of = type_name::<Null>(dtype)?;
        let value = if dtype == DType::FLOAT32 { f64::from(value as f32) } else { value };
        let size = match value.abs() {
            size if size.is_nan() => return Ok(format!("nan_{of}")),
            size if size.is_infinite() => "inf".to_owned(),
            // The literal is the shortest decimal number whose nearest `float32` is the value.
            size if dtype == DType::FLOAT32 => format!("{:?}", size as f32),
            size => format!("{size:?}"),
        };
        Ok(if value.is_sign_negative() { format!("(-{size}_{of})") } else { format!("{size}_{of}") })
    }

    fn cast(_body: &mut Body<'_, Null>, value: &str, _from: DType, to: DType) -> Result<String> {
        Ok(if to.is_bool() {
            format!("({value} != 0)")
        } else {
            format!("{}({value})", type_name::<Null>(to)?)
        })
    }

    fn wide_index(index: &str) -> String {
        format!("i64({index})")
    }

    fn operation(operation: Operation, a: &str, b: &str) -> Result<String> {
        Ok(match operation.op {
            BinaryOp::FloorDiv => format!("floor_div({a}, {b})"),
            BinaryOp::FloorMod => format!("floor_mod({a}, {b})"),
            op @ (BinaryOp::Min | BinaryOp::Max) => format!("{}({a}, {b})", op.text()),
            BinaryOp::Mod => format!("({a} % {b})"),
            BinaryOp::And => format!("({a} && {b})"),
            BinaryOp::Or => format!("({a} || {b})"),
            op => format!("({a} {} {b})", op.text()),
        })
    }

    fn select(condition: &str, a: &str, b: &str) -> String {
        format!("select({condition}, {a}, {b})")
    }

    fn math(name: &str, _dtype: DType, args: &[String]) -> String {
        format!("{name}({})", args.join(", "))
    }

    fn discard(value: &str) -> String {
        format!("_ = {value};")
    }

    fn loop_head(dtype: DType, name: &str, first: &str, end: &str) -> Result<String> {
        let declared = Null::variable(dtype, name)?;
        Ok(format!("for (var {declared} = {first}; {name} < {end}; {name} += 1) {{"))
    }
}

impl Statements for Null {
    fn element(
        body: &mut Body<'_, Null>,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        _lane: &str,
    ) -> Result<Option<String>> {
        if body.dialect.is_in_thread {
            return Ok(None);
        }
        let indices: Vec<String> = indices.iter().map(|index| printer::brief(index.as_object())).collect();
        let dialect = &body.dialect;
        let place = match dialect.axes.iter().find(|axis| !dialect.open.contains(axis)) {
            Some(axis) => format!("a loop that is bound to {}", axis.text()),
            None => "a parallel loop".to_owned(),
        };
        bail!(
            "ValueError",
            "`{}[{}]` is accessed outside of {place}, where each thread of a null kernel would repeat the access",
            buffer.name,
            indices.join(", ")
        )
    }

    fn before_step(body: &mut Body<'_, Null>, seq: &SeqStmt, index: usize) {
        if body.dialect.barriers.is_before(seq, index) {
            body.line("barrier();");
        }
    }

    fn for_loop(body: &mut Body<'_, Null>, node: &For) -> Result<()> {
        if node.kind.is_bound() {
            return body.bound_loop(node);
        }
        if node.kind == ForKind::Parallel && !body.dialect.is_in_thread && !body.dialect.axes.is_empty() {
            bail!(
                "ValueError",
                "loop `{}` is parallel, but other loops of the null kernel are bound to thread axes",
                node.loop_var.name
            );
        }
        // A parallel loop inside another one is executed entirely by the thread of the outer iteration.
        if node.kind != ForKind::Parallel || body.dialect.is_in_thread {
            return body.loop_with(node, Null::loop_head, |body| {
                body.inner(&node.body)?;
                if body.dialect.barriers.is_at_end_of(node) {
                    body.depth += 1;
                    body.line("barrier();");
                    body.depth -= 1;
                }
                Ok(())
            });
        }
        let head = |dtype: DType, name: &str, first: &str, end: &str| -> Result<String> {
            let (declared, of) = (Null::variable(dtype, name)?, type_name::<Null>(dtype)?);
            Ok(format!(
                "for (var {declared} = {first} + {of}(thread_index()); {name} < {end}; {name} += {of}(thread_count())) {{"
            ))
        };
        body.loop_with(node, head, |body| {
            body.dialect.is_in_thread = true;
            let result = body.inner(&node.body);
            body.dialect.is_in_thread = false;
            result
        })?;
        body.line("barrier();");
        Ok(())
    }

    fn allocate(body: &mut Body<'_, Null>, buffer: &Ref<Buffer>, inner: &Stmt) -> Result<()> {
        let Some(count) = known_size(buffer) else {
            bail!(
                "ValueError",
                "cannot allocate buffer `{}` in null code: its size must be constant",
                buffer.name
            );
        };
        let (name, of) = (body.names.buffer(buffer), type_name::<Null>(buffer.dtype)?);
        let dialect = &body.dialect;
        let is_shared = &*buffer.scope == "shared";
        if is_shared && dialect.is_in_thread {
            bail!(
                "ValueError",
                "buffer `{}` is shared by the threads of a block, but allocated by each of them",
                buffer.name
            );
        }
        if !dialect.is_in_thread && dialect.open.iter().any(|axis| !axis.is_over_blocks()) {
            bail!("ValueError", "buffer `{}` is allocated between loops over threads", buffer.name);
        }
        // Memory that is not private to a thread belongs to a block.
        if dialect.axes.iter().any(|axis| axis.is_over_blocks() && !dialect.open.contains(axis)) {
            bail!(
                "ValueError",
                "buffer `{}` belongs to a block of threads, but is allocated outside of the loops over blocks",
                buffer.name
            );
        }
        let space = if dialect.is_in_thread && !is_shared { "private" } else { "shared" };
        body.open("{");
        body.line(&format!("var {name}: {space} {of}[{}];", count.max(1)));
        body.scope.push((format!("{name}: {space} {of}[]"), name));
        body.stmt(inner)?;
        body.scope.pop();
        body.close("}");
        Ok(())
    }

    fn check(body: &mut Body<'_, Null>, condition: &str, kind: &str, message: &Message) -> Result<String> {
        let mut declared = Literal::c_str("the kind of an error", kind)?.to_string();
        let mut values = Vec::new();
        for part in message.parts() {
            declared.push_str(", ");
            match part {
                Part::Text(text) => declared.push_str(&Literal::message(text).to_string()),
                Part::Integer { code, dtype } => {
                    declared.push_str(type_name::<Null>(*dtype)?);
                    values.push(code.as_str());
                }
            }
        }
        let errors = &mut body.dialect.errors;
        let number = errors.iter().position(|known| *known == declared).unwrap_or(errors.len());
        if number == errors.len() {
            errors.push(declared);
        }
        Ok(format!("if (!({condition})) {{ raise {}.{number}({}); }}", body.symbol, values.join(", ")))
    }
}
