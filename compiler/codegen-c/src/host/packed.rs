//! Calls from generated code to external functions.

use std::fmt::Write as _;

use anyfn::abi::{
    TENSOR_VIEW_READ_ONLY, kDLBool, kDLFloat, kDLInt, kDLUInt, kTVMFFIBool, kTVMFFIDLTensorPtr, kTVMFFIFloat,
    kTVMFFIInt, kTVMFFIOpaquePtr, kTVMFFIRawStr,
};
use anyfn::{Array, DType, Ref, Result, bail};
use anyfn_ir::buffer::{Buffer, BufferRegion};
use anyfn_ir::expr::{Call, Expr};
use anyfn_ir::kind::is_int;
use anyfn_ir::packed::{Arg, name_of};
use anyfn_ir::{ExprKind, ops};

use crate::family::{Body, Literal, Symbol};
use crate::host::device::{self, NUMBER};
use crate::host::message::printf_text;
use crate::host::{Host, c_type};

/// Name of a variable in generated code that is set if a task of a parallel loop fails. The other
/// tasks of the loop read the variable before they make calls, and end if it is set.
pub(super) const FAILED: &str = "anyfn_failed";

impl Body<'_, Host> {
    /// Generates a call of a packed function as a statement. `result` is the name and data type of the variable that
    /// receives the result, or `None` if the result is discarded.
    pub(super) fn host_packed(&mut self, call: &Call, result: Option<(&str, DType)>) -> Result<()> {
        let name = name_of(call);
        let slot = self.slot(&name)?;
        let mut args = Vec::new();
        for arg in call.args.iter().skip(1) {
            args.push(Arg::of(&arg)?);
        }
        self.end_with_others();
        self.open("{");
        let count = args.len();
        if count > 0 {
            self.line(&format!("anyfn_value anyfn_args[{count}];"));
        }
        for (place, arg) in args.iter().enumerate() {
            let (index, member, value) = self.argument(&name, place, arg)?;
            // A frontend that copies a tensor on a device does not copy it back if the callee only reads it.
            let flags = match arg {
                Arg::Buffer { buffer, is_read_only: true, .. } if device::is_there(buffer) => {
                    TENSOR_VIEW_READ_ONLY
                }
                _ => 0,
            };
            self.line(&format!("anyfn_args[{place}].type_index = {index};"));
            self.line(&format!("anyfn_args[{place}].small_len = {flags};"));
            self.line(&format!("anyfn_args[{place}].value.{member} = {value};"));
        }
        self.line("anyfn_value anyfn_result;");
        let args = if count > 0 { "anyfn_args" } else { "0" };
        let fail = self.fail("-1");
        self.line(&format!(
            "if (ANYFN_UNLIKELY(anyfn_call(&{slot}, {slot}_find, {args}, {count}, &anyfn_result) != 0)) {fail}"
        ));
        match result {
            Some((var, dtype)) => self.take_result(&name, var, dtype)?,
            None => {
                self.line("if (ANYFN_UNLIKELY(anyfn_result.type_index >= 64)) anyfn_release(&anyfn_result);")
            }
        }
        self.close("}");
        Ok(())
    }

    /// Generates code that ends a task of a parallel loop if another task has failed. This code is
    /// generated only before calls, because calls have visible effects and take so long that one
    /// more read of memory hardly matters.
    pub(super) fn end_with_others(&mut self) {
        if self.dialect.is_task {
            let end = self.fail("0");
            self.line(&format!("if (ANYFN_STOPS({FAILED})) {end}"));
        }
    }

    /// Declares a variable that caches the packed function with the name `name`. Returns the name of the
    /// variable.
    fn slot(&mut self, name: &str) -> Result<String> {
        let mut slot = String::from("anyfn_function_");
        for byte in name.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => slot.push(byte.into()),
                _ => {
                    let _ = write!(slot, "_{byte:02x}");
                }
            }
        }
        let declared = format!(
            "static void* {slot} = 0;\n\
             static int {slot}_find(void** out) {{\n  \
             return anyfn_find({}, out);\n}}\n",
            Literal::c_str("the name of a packed function", name)?
        );
        self.declare("anyfn_call", include_str!("packed.c").to_owned());
        self.declare(&slot, declared);
        Ok(slot)
    }

    /// Returns the parts of the value that represents an argument: the type index, the name of the
    /// union member, and the expression to be assigned to that member.
    fn argument(&mut self, name: &str, place: usize, arg: &Arg) -> Result<(i32, &'static str, String)> {
        let value = match arg {
            Arg::Buffer { buffer, region, .. } => {
                self.tensor(place, buffer, region.as_ref())?;
                return Ok((kTVMFFIDLTensorPtr, "v_ptr", format!("&anyfn_t{place}")));
            }
            Arg::Value(value) => value,
        };
        let text = self.expr(value)?;
        if let ExprKind::StringImm(_) = ExprKind::of(value) {
            return Ok((kTVMFFIRawStr, "v_ptr", format!("(void*){text}")));
        }
        let DType(dtype) = value.dtype;
        Ok(match dtype.code {
            kDLBool => (kTVMFFIBool, "v_int64", format!("({text}) != 0")),
            kDLUInt if dtype.bits == 64 => {
                let what = printf_text(&format!(
                    "{}: argument {place} of `{name}` does not fit into int64",
                    self.symbol
                ));
                let fail = self.fail(&format!("anyfn_fail(\"OverflowError\", {what})"));
                self.line(&format!("const uint64_t anyfn_u{place} = {text};"));
                self.line(&format!("if (ANYFN_UNLIKELY(anyfn_u{place} > INT64_MAX)) {fail}"));
                (kTVMFFIInt, "v_int64", format!("(int64_t)anyfn_u{place}"))
            }
            kDLInt | kDLUInt => (kTVMFFIInt, "v_int64", format!("(int64_t)({text})")),
            kDLFloat if dtype.bits >= 32 => (kTVMFFIFloat, "v_float64", format!("(double)({text})")),
            _ if value.dtype == ops::HANDLE => (kTVMFFIOpaquePtr, "v_ptr", format!("(void*)({text})")),
            _ => bail!(
                "ValueError",
                "cannot pass argument {place} of `{name}`: unsupported data type {}",
                value.dtype
            ),
        })
    }

    /// Generates the definition of `anyfn_t<place>`, a tensor view of a buffer or of a region of it.
    fn tensor(&mut self, place: usize, buffer: &Ref<Buffer>, region: Option<&Ref<BufferRegion>>) -> Result<()> {
        let ndim = buffer.shape.len();
        let part: Vec<(Expr, Expr)> = match region {
            Some(region) => {
                region.region.iter().map(|range| (range.min.clone(), range.extent.clone())).collect()
            }
            None => Vec::new(),
        };
        let mut shape = Vec::new();
        for (dim, extent) in buffer.shape.iter().enumerate() {
            let extent = part.get(dim).map_or(extent, |(_, extent)| extent.clone());
            shape.push(format!("(int64_t)({})", self.expr(&extent)?));
        }
        let mut strides = vec!["1".to_owned(); ndim];
        for dim in (0..ndim).rev() {
            if dim + 1 < ndim {
                let extent = self.expr(&buffer.shape.get(dim + 1)?)?;
                strides[dim] = format!("{} * (int64_t)({extent})", strides[dim + 1]);
            }
        }
        let mut offset = String::new();
        for (dim, (min, _)) in part.iter().enumerate() {
            if !is_int(min, 0) {
                let _ = write!(offset, " + (int64_t)({}) * ({})", self.expr(min)?, strides[dim]);
            }
        }
        let DType(dtype) = buffer.dtype;
        let name = self.names.buffer(buffer);
        let bytes = dtype.bits.div_ceil(8);
        let (data, device, byte_offset) = match self.dialect.device {
            Some(device) if device::is_there(buffer) => {
                let start = if offset.is_empty() {
                    String::new()
                } else {
                    format!(" + (uint64_t)((0{offset}) * {bytes})")
                };
                (
                    format!("{name}.data"),
                    format!("{}, {NUMBER}", device.device_type),
                    format!("{name}.offset{start}"),
                )
            }
            _ => (format!("(void*)({name}{offset})"), "1, 0".to_owned(), "0".to_owned()),
        };
        let (shape_name, strides_name) = match ndim {
            0 => ("0".to_owned(), "0".to_owned()),
            _ => {
                self.line(&format!("const int64_t anyfn_shape{place}[{ndim}] = {{{}}};", shape.join(", ")));
                self.line(&format!("const int64_t anyfn_strides{place}[{ndim}] = {{{}}};", strides.join(", ")));
                (format!("anyfn_shape{place}"), format!("anyfn_strides{place}"))
            }
        };
        self.line(&format!(
            "anyfn_tensor anyfn_t{place} = {{{data}, {device}, {ndim}, {}, {}, 1, {shape_name}, {strides_name}, {byte_offset}}};",
            dtype.code, dtype.bits
        ));
        Ok(())
    }

    /// Generates code that checks the result of a call, converts it to the data type `dtype`, and
    /// assigns it to the variable `var`.
    fn take_result(&mut self, name: &str, var: &str, dtype: DType) -> Result<()> {
        let c_type = c_type(dtype)?;
        let place = Literal::message(&format!("{}: `{name}`", self.symbol));
        let fail = self.fail("-1");
        let (declared, call) = match dtype.0.code {
            kDLBool => ("int64_t", format!("anyfn_int_result({place}, &anyfn_result, 0, 1, &anyfn_taken)")),
            kDLInt | kDLUInt => {
                let bits = u32::from(dtype.0.bits);
                let (least, most) = match (dtype.0.code == kDLInt, bits) {
                    (true, 64) => ("INT64_MIN".to_owned(), "INT64_MAX".to_owned()),
                    (false, 64) => ("0".to_owned(), "INT64_MAX".to_owned()),
                    (true, _) => {
                        (format!("-INT64_C({})", 1i64 << (bits - 1)), format!("{}", (1i64 << (bits - 1)) - 1))
                    }
                    (false, _) => ("0".to_owned(), format!("INT64_C({})", (1i64 << bits) - 1)),
                };
                ("int64_t", format!("anyfn_int_result({place}, &anyfn_result, {least}, {most}, &anyfn_taken)"))
            }
            kDLFloat => ("double", format!("anyfn_float_result({place}, &anyfn_result, &anyfn_taken)")),
            _ => ("void*", format!("anyfn_address_result({place}, &anyfn_result, &anyfn_taken)")),
        };
        self.line(&format!("{declared} anyfn_taken = 0;"));
        self.line(&format!("if (ANYFN_UNLIKELY({call} != 0)) {fail}"));
        self.line(&format!("{var} = ({c_type})anyfn_taken;"));
        Ok(())
    }

    /// Returns an expression that calls a C function.
    pub(super) fn host_extern(&mut self, call: &Call) -> Result<String> {
        let name = name_of(call);
        let Some(name) = Symbol::of(&name) else {
            bail!("ValueError", "`{}` is not a valid name of a C function", name.escape_debug())
        };
        let (mut types, mut args) = (Vec::new(), Vec::new());
        for arg in call.args.iter().skip(1) {
            match Arg::of(&arg)? {
                Arg::Value(value) => match ExprKind::of(&value) {
                    ExprKind::StringImm(text) => {
                        types.push("const char*".to_owned());
                        args.push(Literal::c_str("an argument of a C function", &text.value)?.to_string());
                    }
                    _ => {
                        types.push(c_type(value.dtype)?.to_owned());
                        args.push(self.expr(&value)?);
                    }
                },
                Arg::Buffer { buffer, region, .. } => {
                    types.push(format!("{}*", c_type(buffer.dtype)?));
                    args.push(self.first_element(&buffer, region.as_ref())?);
                }
            }
        }
        // The function is declared under another name, so that declarations in headers cannot conflict.
        let types_text = if types.is_empty() { "void".to_owned() } else { types.join(", ") };
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in types_text.bytes().chain(c_type(call.dtype)?.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        let alias = format!("anyfn_extern_{name}_{:x}", hash & 0xffff_ffff);
        let declared = format!(
            "#if defined(__GNUC__) && !defined(__APPLE__)\nextern {0} {alias}({types_text}) __asm__(\"{name}\");\n#else\n\
             extern {0} {name}({types_text});\n#define {alias} {name}\n#endif\n",
            c_type(call.dtype)?
        );
        self.declare(&alias, declared);
        Ok(format!("{alias}({})", args.join(", ")))
    }

    fn first_element(&mut self, buffer: &Ref<Buffer>, region: Option<&Ref<BufferRegion>>) -> Result<String> {
        let indices: Array<Expr> = match region {
            Some(region) => region.region.iter().map(|range| range.min.clone()).collect(),
            None => buffer.shape.iter().map(|_| ops::i32(0)).collect(),
        };
        let element = self.element(buffer, &indices, "")?;
        Ok(format!("({}*)&{element}", c_type(buffer.dtype)?))
    }
}
