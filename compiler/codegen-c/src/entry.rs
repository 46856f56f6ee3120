//! The entry of a function by the library convention: checks all that its code relies on.

use std::collections::HashSet;
use std::fmt::Write as _;

use anyfn::abi::{kDLBfloat, kDLBool, kDLFloat, kDLInt, kDLUInt};
use anyfn::{DType, Object, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::{DTypeExt, HANDLE};
use anyfn_ir::stmt::Stmt;
use anyfn_ir::visit::Visitor;
use anyfn_ir::{ExprKind, StmtKind, packed};

use crate::body::Body;
use crate::expr::quoted;
use crate::names::Names;
use crate::options::CodegenOptions;
use crate::signature;
use crate::types::{c_type, check_types};

/// Bytes that a tensor of symbolic shape may span, so that their count does not overflow.
const MOST_ELEMENTS: &str = "INT64_C(1) << 56";

/// Writes a function and its entry.
pub(crate) fn function(
    symbol: &str,
    func: &Ref<PrimFunc>,
    options: CodegenOptions,
    out: &mut String,
) -> Result<()> {
    check_symbol(symbol)?;
    check_types(func)?;
    let mut names = Names::new();
    let params = params_of(func)?;
    let written = written(&func.body);
    // Extents and other numbers that shapes bring along, in the order in which they are found.
    let mut bound: Vec<Ref<Var>> = Vec::new();
    for param in &params {
        if let Param::Number(var) = param {
            bound.push(var.clone());
        }
    }
    let numbers = bound.len();
    for param in &params {
        let Param::Tensor(buffer) = param else { continue };
        for extent in buffer.shape.iter() {
            if let ExprKind::Var(var) = ExprKind::of(&extent)
                && !bound.iter().any(|known| known.ptr_eq(var))
            {
                bound.push(var.clone());
            }
        }
    }

    // The computation.
    let mut declared: Vec<String> = Vec::new();
    let mut passed: Vec<String> = Vec::new();
    for var in &bound {
        let name = names.var(var);
        declared.push(format!("{} {name}", c_type(var.dtype)?));
        passed.push(name);
    }
    for param in &params {
        let Param::Tensor(buffer) = param else { continue };
        let name = names.buffer(buffer);
        let is_written = written.contains(&address(&buffer.data));
        let constness = if is_written { "" } else { "const " };
        declared.push(format!("{constness}{}* restrict {name}", c_type(buffer.dtype)?));
        passed.push(name);
    }
    let scope: Vec<(String, String)> = declared.iter().cloned().zip(passed.iter().cloned()).collect();
    let declared = if declared.is_empty() { "void".to_owned() } else { declared.join(", ") };
    let mut body = Body::new(symbol, &mut names, 1, options);
    body.scope = scope;
    body.stmt(&func.body)?;
    for var in bound.iter().filter(|var| var.dtype.is_half()) {
        body.convert_half("", DType::FLOAT64, var.dtype)?;
    }
    // Functions of one module may share types.
    for (_, declared) in &body.declared {
        if !out.contains(declared.as_str()) {
            out.push_str(declared);
        }
    }
    out.push_str(&body.tasks);
    let _ = writeln!(out, "static int32_t {symbol}_compute({declared}) {{");
    out.push_str(&body.out);
    out.push_str("  return 0;\n}\n\n");

    // The entry.
    let _ = writeln!(
        out,
        "ANYFN_EXPORT int32_t __tvm_ffi_{symbol}(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {{"
    );
    let mut entry = Entry { symbol, out, names: &mut names, known: HashSet::new() };
    entry.line("(void)self;");
    entry.line("if (ANYFN_UNLIKELY(anyfn_missing)) return anyfn_fail_missing();");
    let count = params.len();
    entry.line(&format!(
        "if (ANYFN_UNLIKELY(num_args != {count})) return anyfn_fail(\"TypeError\", \"{symbol}: expected {count} arguments but \
         got %d\", num_args);"
    ));
    for (place, param) in params.iter().enumerate() {
        if let Param::Number(var) = param {
            entry.number(place, var)?;
        }
    }
    for var in &bound[numbers..] {
        let (c_type, name) = (c_type(var.dtype)?, entry.names.var(var));
        entry.line(&format!("{c_type} {name};"));
    }
    for (place, param) in params.iter().enumerate() {
        if let Param::Tensor(buffer) = param {
            entry.tensor(place, buffer)?;
        }
    }
    entry.overlaps(&params, &written)?;
    entry.line(&format!("if ({symbol}_compute({}) != 0) return -1;", passed.join(", ")));
    entry.line("result->type_index = 0;");
    entry.line("return 0;");
    out.push_str("}\n");
    signature::getter(symbol, func, &params, &written, out);
    Ok(())
}

/// What an argument is.
pub(crate) enum Param {
    Number(Ref<Var>),
    Tensor(Ref<Buffer>),
}

fn params_of(func: &PrimFunc) -> Result<Vec<Param>> {
    let mut params = Vec::new();
    for var in func.params.iter() {
        params.push(match func.buffer_map.get(&var)? {
            Some(buffer) => Param::Tensor(buffer),
            None if var.dtype == HANDLE => {
                bail!("ValueError", "parameter `{}` is a handle without a buffer", var.name)
            }
            None => Param::Number(var),
        });
    }
    Ok(params)
}

pub(crate) fn address<T: Object>(object: &Ref<T>) -> usize {
    object.as_object().as_handle().addr()
}

/// A name that C and the library convention can have.
fn check_symbol(symbol: &str) -> Result<()> {
    let is_word = symbol.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_word || symbol.is_empty() || symbol.starts_with(|c: char| c.is_ascii_digit()) {
        bail!("ValueError", "function name `{symbol}` must consist of letters, digits and underscores");
    }
    Ok(())
}

/// The memory that a statement writes.
fn written(body: &Stmt) -> HashSet<usize> {
    struct Written(HashSet<usize>);
    impl Visitor for Written {
        fn expr(&mut self, expr: &Expr) {
            if let ExprKind::Call(call) = ExprKind::of(expr) {
                let buffers = packed::buffers(call, true).into_iter();
                self.0.extend(buffers.map(|(buffer, _)| address(&buffer.data)));
            }
            self.below_expr(expr);
        }
        fn stmt(&mut self, stmt: &Stmt) {
            if let StmtKind::BufferStore(node) = StmtKind::of(stmt) {
                self.0.insert(address(&node.buffer.data));
            }
            self.below_stmt(stmt);
        }
    }
    let mut written = Written(HashSet::new());
    written.stmt(body);
    written.0
}

struct Entry<'a> {
    symbol: &'a str,
    out: &'a mut String,
    names: &'a mut Names,
    /// Numbers that have a value.
    known: HashSet<usize>,
}

impl Entry<'_> {
    fn line(&mut self, text: &str) {
        self.out.push_str("  ");
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// A number, from an argument.
    fn number(&mut self, place: usize, var: &Ref<Var>) -> Result<()> {
        self.known.insert(address(var));
        let (c_type, name) = (c_type(var.dtype)?, self.names.var(var));
        let place_text = quoted(&format!("{}: argument {place} `{}`", self.symbol, var.name));
        let DType(dtype) = var.dtype;
        let (condition, value, word) = match dtype.code {
            kDLFloat | kDLBfloat if var.dtype.is_half() => {
                let function = if dtype.code == kDLBfloat { "anyfn_to_bfloat16" } else { "anyfn_to_float16" };
                (
                    format!("args[{place}].type_index != 3 && args[{place}].type_index != 1"),
                    format!(
                        "{function}(anyfn_to_odd(args[{place}].type_index == 3 ? args[{place}].value.v_float64 : \
                         (double)args[{place}].value.v_int64))"
                    ),
                    "float",
                )
            }
            kDLFloat => (
                format!("args[{place}].type_index != 3 && args[{place}].type_index != 1"),
                format!(
                    "args[{place}].type_index == 3 ? ({c_type})args[{place}].value.v_float64 : \
                     ({c_type})args[{place}].value.v_int64"
                ),
                "float",
            ),
            kDLInt | kDLUInt | kDLBool => (
                format!("args[{place}].type_index != 1 && args[{place}].type_index != 2"),
                format!("({c_type})args[{place}].value.v_int64"),
                "int",
            ),
            _ => bail!("ValueError", "parameter `{}` of {} cannot be passed", var.name, var.dtype),
        };
        self.line(&format!(
            "if (ANYFN_UNLIKELY({condition})) return anyfn_fail(\"TypeError\", \"%s: expected {word} but got %s\", {place_text}, \
             anyfn_type_name(args[{place}].type_index));"
        ));
        let is_signed_64 = dtype.code == kDLInt && dtype.bits == 64;
        if !var.dtype.is_float() && !is_signed_64 {
            let sign = if dtype.code == kDLInt { "" } else { " || args[PLACE].value.v_int64 < 0" };
            let sign = sign.replace("PLACE", &place.to_string());
            self.line(&format!(
                "if (ANYFN_UNLIKELY((int64_t)({c_type})args[{place}].value.v_int64 != args[{place}].value.v_int64{sign})) return \
                 anyfn_fail(\"OverflowError\", \"%s: %lld does not fit into {}\", {place_text}, (long \
                 long)args[{place}].value.v_int64);",
                var.dtype
            ));
        }
        self.line(&format!("const {c_type} {name} = {value};"));
        Ok(())
    }

    /// A tensor: its type, and each extent; an extent that is a variable gets its value where it is found first.
    fn tensor(&mut self, place: usize, buffer: &Ref<Buffer>) -> Result<()> {
        let name = self.names.buffer(buffer);
        let where_text = quoted(&format!("{}: argument {place} `{}`", self.symbol, buffer.name));
        let DType(dtype) = buffer.dtype;
        let size = u64::from(dtype.bits.div_ceil(8));
        self.line(&format!(
            "const anyfn_tensor* t{place} = anyfn_get_tensor({where_text}, &args[{place}], {}, {}, {}, {size});",
            buffer.shape.len(),
            dtype.code,
            dtype.bits
        ));
        self.line(&format!("if (ANYFN_UNLIKELY(!t{place})) return -1;"));
        for (dim, extent) in buffer.shape.iter().enumerate() {
            if let ExprKind::Var(var) = ExprKind::of(&extent)
                && self.known.insert(address(var))
            {
                let (c_type, var_name) = (c_type(var.dtype)?, self.names.var(var));
                self.line(&format!(
                    "if (ANYFN_UNLIKELY((int64_t)({c_type})t{place}->shape[{dim}] != t{place}->shape[{dim}] || \
                     t{place}->shape[{dim}] > ({MOST_ELEMENTS}))) return anyfn_fail(\"OverflowError\", \"%s: extent %lld in \
                     dimension {dim} is too large\", {where_text}, (long long)t{place}->shape[{dim}]);"
                ));
                self.line(&format!("{var_name} = ({c_type})t{place}->shape[{dim}];"));
                continue;
            }
            let mut body = Body::new(self.symbol, self.names, 0, CodegenOptions::PORTABLE);
            let expected = body.place(&extent)?;
            self.line(&format!(
                "if (ANYFN_UNLIKELY(t{place}->shape[{dim}] != (int64_t)({expected}))) return anyfn_fail_extent({where_text}, \
                 {dim}, (int64_t)({expected}), t{place}->shape[{dim}]);"
            ));
        }
        let c_type = c_type(buffer.dtype)?;
        self.line(&format!("{c_type}* {name} = ({c_type}*)((char*)t{place}->data + t{place}->byte_offset);"));
        Ok(())
    }

    /// What is written must not be what is read or written elsewhere: the code relies on it.
    fn overlaps(&mut self, params: &[Param], written: &HashSet<usize>) -> Result<()> {
        let tensors: Vec<(usize, &Ref<Buffer>)> = params
            .iter()
            .enumerate()
            .filter_map(|(place, param)| match param {
                Param::Tensor(buffer) => Some((place, buffer)),
                Param::Number(_) => None,
            })
            .collect();
        for (place, buffer) in &tensors {
            let mut bytes = format!("INT64_C({})", buffer.dtype.0.bits.div_ceil(8));
            for dim in 0..buffer.shape.len() {
                let _ = write!(bytes, " * t{place}->shape[{dim}]");
            }
            self.line(&format!("const int64_t size{place} = {bytes};"));
        }
        for (i, (a, first)) in tensors.iter().enumerate() {
            for (b, second) in &tensors[i + 1..] {
                if written.contains(&address(&first.data)) || written.contains(&address(&second.data)) {
                    let (x, y) = (self.names.buffer(first), self.names.buffer(second));
                    let text = quoted(&format!(
                        "{}: arguments {a} `{}` and {b} `{}` share memory, and one of them is written",
                        self.symbol, first.name, second.name
                    ));
                    self.line(&format!(
                        "if (ANYFN_UNLIKELY(anyfn_overlap({x}, size{a}, {y}, size{b}))) return anyfn_fail(\"ValueError\", {text});"
                    ));
                }
            }
        }
        for (place, _) in &tensors {
            self.line(&format!("(void)size{place};"));
        }
        Ok(())
    }
}
