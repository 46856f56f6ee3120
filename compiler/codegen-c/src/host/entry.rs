//! Code generation for functions and their entry points. An entry point checks all conditions on
//! which the function's code relies.

use std::collections::HashSet;
use std::fmt::Write as _;

use anyfn::abi::{kDLBfloat, kDLBool, kDLFloat, kDLInt, kDLUInt};
use anyfn::{DType, Ref, Result, bail};
use anyfn_ir::ExprKind;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::stmt::For;
use anyfn_ir::target::DeviceKind;

use crate::family::{Body, Interface, Literal, Names, Param, Symbol, address};
use crate::host::device::{self, NUMBER};
use crate::host::message::printf_text;
use crate::host::options::CodegenOptions;
use crate::host::{Host, c_type, reserved, signature};

/// C expression for the maximum value of a variable in a shape. Up to this value, sizes in bytes do not
/// overflow.
const MOST_ELEMENTS: &str = "INT64_C(1) << 56";

/// Generates the C function for a primitive function. If the primitive function requests an entry point, the
/// C function is private, and the entry point and a function that returns the signature are also generated.
/// Otherwise, the C function is exported under the name of the primitive function.
pub(super) fn function(
    symbol: &Symbol,
    func: &PrimFunc,
    interface: &Interface,
    options: CodegenOptions,
    out: &mut String,
) -> Result<()> {
    let mut names = Names::new::<Host>(symbol);
    if !func.has_packed_entry()? {
        if !reserved::is_free(symbol.as_str()) {
            bail!(
                "ValueError",
                "`{symbol}` is a reserved name in C; rename the function, or run the pass \
                 `make_packed_api`, which does not use the name"
            );
        }
        let head = format!("ANYFN_EXPORT int32_t {symbol}");
        return computation(symbol, &head, func, interface, options, &mut names, out).map(drop);
    }
    let head = format!("static int32_t {symbol}_compute");
    let passed = computation(symbol, &head, func, interface, options, &mut names, out)?;
    entry(symbol, interface, &passed, device::of(func)?, &mut names, out)?;
    signature::getter(symbol, func, interface, out);
    Ok(())
}

/// Generates the C function that contains the body. `head` is the declaration of the C function
/// without parameters. Returns the names of the parameters in order.
fn computation(
    symbol: &Symbol,
    head: &str,
    func: &PrimFunc,
    interface: &Interface,
    options: CodegenOptions,
    names: &mut Names,
    out: &mut String,
) -> Result<Vec<String>> {
    let device = device::of(func)?;
    let mut scope = interface.declare::<Host>(names)?;
    if device.is_some() {
        scope.insert(0, (format!("const int32_t {NUMBER}"), NUMBER.to_owned()));
    }
    let (declared, passed): (Vec<String>, Vec<String>) = scope.iter().cloned().unzip();
    let declared = if declared.is_empty() { "void".to_owned() } else { declared.join(", ") };
    let mut body = Body::new(symbol, names, 1, Host::new(options, device));
    if device.is_some() {
        body.declare("anyfn_memory", device::SOURCE.to_owned());
    }
    body.scope = scope;
    body.stmt(&func.body)?;
    for var in interface.numbers.iter().chain(&interface.extents).filter(|var| var.dtype.is_half()) {
        body.host_half("", DType::FLOAT64, var.dtype)?;
    }
    // Several functions of a module may use the same declaration.
    for (_, declared) in &body.declared {
        if !out.contains(declared.as_str()) {
            out.push_str(declared);
        }
    }
    out.push_str(&body.dialect.tasks);
    let _ = writeln!(out, "{head}({declared}) {{");
    out.push_str(&body.out);
    out.push_str("  return 0;\n}\n\n");
    Ok(passed)
}

/// Generates the entry point, which checks the arguments and calls the function that contains the
/// body. `passed` contains the names of the variables that the entry point passes to that function,
/// in order. `device` is the kind of device on which the tensors are.
fn entry(
    symbol: &Symbol,
    interface: &Interface,
    passed: &[String],
    device: Option<&'static DeviceKind>,
    names: &mut Names,
    out: &mut String,
) -> Result<()> {
    let _ = writeln!(
        out,
        "ANYFN_EXPORT int32_t __tvm_ffi_{symbol}(void* self, const anyfn_value* args, int32_t num_args, anyfn_value* result) {{"
    );
    let params = &interface.params;
    let mut entry = EntryPrinter { symbol, out, device, names, known: HashSet::new() };
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
    let tensors: Vec<(usize, &Ref<Buffer>)> =
        params.iter().enumerate().filter_map(|(place, param)| Some((place, param.buffer()?))).collect();
    if device.is_some() {
        entry.line(&format!("int32_t {NUMBER} = -1;"));
    }
    for (place, buffer) in &tensors {
        entry.tensor(*place, buffer);
    }
    if device.is_some() {
        entry.line(&format!("if ({NUMBER} < 0) {NUMBER} = 0;"));
    }
    // Dimensions whose extent defines a variable. The other extents may depend on it.
    let mut found = HashSet::new();
    for (place, buffer) in &tensors {
        for (dim, extent) in buffer.shape.iter().enumerate() {
            if entry.extent_found(*place, dim, buffer, &extent)? {
                found.insert((*place, dim));
            }
        }
    }
    for (place, buffer) in &tensors {
        for (dim, extent) in buffer.shape.iter().enumerate() {
            if !found.contains(&(*place, dim)) {
                entry.extent_checked(*place, dim, buffer, &extent)?;
            }
        }
        let (c_type, name) = (c_type(buffer.dtype)?, entry.names.buffer(buffer));
        if device.is_some() {
            entry.line(&format!(
                "const anyfn_memory {name} = {{anyfn_t{place}->data, anyfn_t{place}->byte_offset}};"
            ));
            continue;
        }
        let data = format!("(char*)anyfn_t{place}->data + anyfn_t{place}->byte_offset");
        entry.line(&format!("{c_type}* {name} = ({c_type}*)({data});"));
    }
    entry.overlaps(interface, &tensors);
    for node in &interface.counted {
        entry.loop_counted(node)?;
    }
    entry.line(&format!("if ({symbol}_compute({}) != 0) return -1;", passed.join(", ")));
    entry.line("result->type_index = 0;");
    entry.line("return 0;");
    out.push_str("}\n");
    Ok(())
}

struct EntryPrinter<'a> {
    symbol: &'a Symbol,
    out: &'a mut String,
    device: Option<&'static DeviceKind>,
    names: &'a mut Names,
    /// Addresses of the variables to which the code generated so far assigns a value.
    known: HashSet<usize>,
}

impl EntryPrinter<'_> {
    fn line(&mut self, text: &str) {
        self.out.push_str("  ");
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// Generates code that checks and converts the numeric argument at index `place`.
    fn number(&mut self, place: usize, var: &Ref<Var>) -> Result<()> {
        self.known.insert(address(var));
        let (c_type, name) = (c_type(var.dtype)?, self.names.var(var));
        let place_text = Literal::message(&format!("{}: argument {place} `{}`", self.symbol, var.name));
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
            _ => {
                bail!("ValueError", "cannot pass parameter `{}`: unsupported data type {}", var.name, var.dtype)
            }
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

    fn where_text(&self, place: usize, buffer: &Buffer) -> Literal {
        Literal::message(&format!("{}: argument {place} `{}`", self.symbol, buffer.name))
    }

    /// Generates checks of the data type and the number of dimensions of the tensor argument at index
    /// `place`.
    fn tensor(&mut self, place: usize, buffer: &Buffer) {
        let DType(dtype) = buffer.dtype;
        let (function, more) = match self.device {
            Some(device) => ("anyfn_get_device_tensor", format!(", {}, &{NUMBER}", device.device_type)),
            None => ("anyfn_get_tensor", String::new()),
        };
        self.line(&format!(
            "const anyfn_tensor* anyfn_t{place} = {function}({}, &args[{place}], {}, {}, {}, {}{more});",
            self.where_text(place, buffer),
            buffer.shape.len(),
            dtype.code,
            dtype.bits,
            dtype.bits.div_ceil(8)
        ));
        self.line(&format!("if (ANYFN_UNLIKELY(!anyfn_t{place})) return -1;"));
    }

    /// If `extent` is a variable that has no value yet, generates the assignment of the argument's extent to
    /// this variable and returns true. Otherwise, returns false.
    fn extent_found(&mut self, place: usize, dim: usize, buffer: &Buffer, extent: &Expr) -> Result<bool> {
        let ExprKind::Var(var) = ExprKind::of(extent) else { return Ok(false) };
        if !self.known.insert(address(var)) {
            return Ok(false);
        }
        let (c_type, name, got) = (c_type(var.dtype)?, self.names.var(var), shape(place, dim));
        self.line(&format!(
            "if (ANYFN_UNLIKELY((int64_t)({c_type}){got} != {got} || {got} > ({MOST_ELEMENTS}))) return \
             anyfn_fail_large({}, {dim}, {got});",
            self.where_text(place, buffer)
        ));
        self.line(&format!("{name} = ({c_type}){got};"));
        Ok(true)
    }

    /// Generates a check that an extent of an argument has the expected value.
    fn extent_checked(&mut self, place: usize, dim: usize, buffer: &Buffer, extent: &Expr) -> Result<()> {
        let (where_text, got) = (self.where_text(place, buffer), shape(place, dim));
        let expected = self.size(extent)?;
        self.line(&format!(
            "if (ANYFN_UNLIKELY({got} != {expected})) return anyfn_fail_extent({where_text}, {dim}, {expected}, {got});"
        ));
        if extent.dtype.0.bits < 64 && !matches!(ExprKind::of(extent), ExprKind::Var(_) | ExprKind::IntImm(_)) {
            let c_type = c_type(extent.dtype)?;
            self.line(&format!(
                "if (ANYFN_UNLIKELY(({c_type}){got} != {got})) return anyfn_fail_large({where_text}, {dim}, {got});"
            ));
        }
        Ok(())
    }

    /// Generates an overflow check for the variable of a loop whose trip count is a product.
    fn loop_counted(&mut self, node: &For) -> Result<()> {
        let (repeats, dtype) = (self.size(&node.extent)?, node.loop_var.dtype);
        let most = if dtype.0.bits == 64 { "INT64_MAX - 1" } else { "INT32_MAX" };
        let text = format!("{}: loop `{}` would run", self.symbol, node.loop_var.name);
        self.line(&format!(
            "if (ANYFN_UNLIKELY({repeats} > {most})) return anyfn_fail(\"OverflowError\", \"%s %lld iterations, more than {dtype} \
             can count\", {}, (long long){repeats});",
            Literal::message(&text)
        ));
        Ok(())
    }

    fn size(&mut self, extent: &Expr) -> Result<String> {
        Body::new(self.symbol, self.names, 0, Host::new(CodegenOptions::PORTABLE, self.device)).size(extent)
    }

    /// Generates checks that an argument which the function writes shares no memory with any other argument.
    /// The function's code relies on this.
    fn overlaps(&mut self, interface: &Interface, tensors: &[(usize, &Ref<Buffer>)]) {
        for (place, buffer) in tensors {
            let mut bytes = format!("INT64_C({})", buffer.dtype.0.bits.div_ceil(8));
            for dim in 0..buffer.shape.len() {
                let _ = write!(bytes, " * {}", shape(*place, dim));
            }
            self.line(&format!("const int64_t anyfn_size{place} = {bytes};"));
        }
        for (i, (a, first)) in tensors.iter().enumerate() {
            for (b, second) in &tensors[i + 1..] {
                if interface.writes(first) || interface.writes(second) {
                    let (x, y) = (self.names.buffer(first), self.names.buffer(second));
                    let text = printf_text(&format!(
                        "{}: arguments {a} `{}` and {b} `{}` share memory, and one of them is written",
                        self.symbol, first.name, second.name
                    ));
                    let function = if self.device.is_some() { "anyfn_memory_overlap" } else { "anyfn_overlap" };
                    self.line(&format!(
                        "if (ANYFN_UNLIKELY({function}({x}, anyfn_size{a}, {y}, anyfn_size{b}))) return anyfn_fail(\"ValueError\", {text});"
                    ));
                }
            }
        }
        for (place, _) in tensors {
            self.line(&format!("(void)anyfn_size{place};"));
        }
    }
}

/// Returns the C expression for the extent of the tensor argument at index `place` in dimension `dim`.
fn shape(place: usize, dim: usize) -> String {
    format!("anyfn_t{place}->shape[{dim}]")
}
