//! The entry of a function by the library convention: checks all that its code relies on.

use std::collections::HashSet;
use std::fmt::Write as _;

use anyfn::abi::{kDLBfloat, kDLBool, kDLFloat, kDLInt, kDLUInt};
use anyfn::{DType, Ref, Result, bail};
use anyfn_ir::ExprKind;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::Var;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::DTypeExt;

use crate::family::{Body, Interface, Names, Param, address, c_type, check_types, quoted};
use crate::host::{Host, signature};
use crate::options::CodegenOptions;

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
    let interface = Interface::of(func)?;
    let mut names = Names::new();
    let passed = computation(symbol, func, &interface, options, &mut names, out)?;
    entry(symbol, &interface, &passed, &mut names, out)?;
    signature::getter(symbol, func, &interface, out);
    Ok(())
}

/// Writes what computes; the names of what it is given.
fn computation(
    symbol: &str,
    func: &PrimFunc,
    interface: &Interface,
    options: CodegenOptions,
    names: &mut Names,
    out: &mut String,
) -> Result<Vec<String>> {
    let numbers = || interface.numbers.iter().chain(&interface.extents);
    // Declarations and names.
    let mut scope: Vec<(String, String)> = Vec::new();
    for var in numbers() {
        let name = names.var(var);
        scope.push((format!("{} {name}", c_type(var.dtype)?), name));
    }
    for buffer in interface.params.iter().filter_map(Param::buffer) {
        let name = names.buffer(buffer);
        let constness = if interface.writes(buffer) { "" } else { "const " };
        scope.push((format!("{constness}{}* restrict {name}", c_type(buffer.dtype)?), name));
    }
    let (declared, passed): (Vec<String>, Vec<String>) = scope.iter().cloned().unzip();
    let declared = if declared.is_empty() { "void".to_owned() } else { declared.join(", ") };
    let mut body = Body::new(symbol, names, 1, Host::new(options));
    body.scope = scope;
    body.stmt(&func.body)?;
    for var in numbers().filter(|var| var.dtype.is_half()) {
        body.host_half("", DType::FLOAT64, var.dtype)?;
    }
    // Functions of one module may share types.
    for (_, declared) in &body.declared {
        if !out.contains(declared.as_str()) {
            out.push_str(declared);
        }
    }
    out.push_str(&body.dialect.tasks);
    let _ = writeln!(out, "static int32_t {symbol}_compute({declared}) {{");
    out.push_str(&body.out);
    out.push_str("  return 0;\n}\n\n");
    Ok(passed)
}

/// Writes what others call: it checks the arguments, and has the rest computed.
fn entry(
    symbol: &str,
    interface: &Interface,
    passed: &[String],
    names: &mut Names,
    out: &mut String,
) -> Result<()> {
    let _ = writeln!(
        out,
        "ANYFN_EXPORT int32_t __tvm_ffi_{symbol}(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {{"
    );
    let params = &interface.params;
    let mut entry = Entry { symbol, out, names, known: HashSet::new() };
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
    for var in &interface.extents {
        let (c_type, name) = (c_type(var.dtype)?, entry.names.var(var));
        entry.line(&format!("{c_type} {name};"));
    }
    for (place, param) in params.iter().enumerate() {
        if let Param::Tensor(buffer) = param {
            entry.tensor(place, buffer)?;
        }
    }
    entry.overlaps(interface);
    entry.line(&format!("if ({symbol}_compute({}) != 0) return -1;", passed.join(", ")));
    entry.line("result->type_index = 0;");
    entry.line("return 0;");
    out.push_str("}\n");
    Ok(())
}

/// A name that C and the library convention can have.
fn check_symbol(symbol: &str) -> Result<()> {
    let is_word = symbol.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_word || symbol.is_empty() || symbol.starts_with(|c: char| c.is_ascii_digit()) {
        bail!("ValueError", "function name `{symbol}` must consist of letters, digits and underscores");
    }
    Ok(())
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
            let mut body = Body::new(self.symbol, self.names, 0, Host::new(CodegenOptions::PORTABLE));
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
    fn overlaps(&mut self, interface: &Interface) {
        let tensors: Vec<(usize, &Ref<Buffer>)> = interface
            .params
            .iter()
            .enumerate()
            .filter_map(|(place, param)| Some((place, param.buffer()?)))
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
                if interface.writes(first) || interface.writes(second) {
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
    }
}
