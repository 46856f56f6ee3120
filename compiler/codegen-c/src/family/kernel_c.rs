//! Parts that the dialects of kernels whose languages extend C or C++ have in common.

use anyfn::abi::{kDLBool, kDLFloat, kDLInt, kDLUInt};
use anyfn::{DType, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::BinaryOp;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::DTypeExt;

use crate::family::{Dialect, Interface, Names, Operation, c, type_name, uint_of};

/// Data types for which helper functions exist, where the language has them.
const ALL: [DType; 10] = [
    DType::new(kDLInt, 8, 1),
    DType::new(kDLInt, 16, 1),
    DType::new(kDLInt, 32, 1),
    DType::new(kDLInt, 64, 1),
    DType::new(kDLUInt, 8, 1),
    DType::new(kDLUInt, 16, 1),
    DType::new(kDLUInt, 32, 1),
    DType::new(kDLUInt, 64, 1),
    DType::new(kDLFloat, 32, 1),
    DType::new(kDLFloat, 64, 1),
];

/// Returns the helper functions that a text of definitions contains, each with its name. A line that begins with `/// ` names the
/// function that follows it.
pub(crate) fn definitions(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.split("\n/// ").skip(1).filter_map(|part| part.split_once('\n'))
}

/// Returns those helper functions in `text` that a source calls. The name of a helper function is `anyfn_NAME_SUFFIX`, where `suffix`
/// returns the suffix for a data type. In `text`, `@T` is the type, `@U` the unsigned one, and `@N` the suffix.
pub(crate) fn helpers<D: Dialect>(
    source: &str,
    text: &'static str,
    suffix: impl Fn(DType) -> Result<String>,
) -> Result<String> {
    let mut out = String::new();
    for (name, text) in definitions(text) {
        for dtype in ALL.into_iter().filter(|dtype| D::type_of(*dtype).is_some()) {
            let suffix = suffix(dtype)?;
            if source.contains(&format!("anyfn_{name}_{suffix}(")) {
                let of = type_name::<D>(dtype)?;
                let unsigned = if dtype.is_float() { of } else { type_name::<D>(uint_of(dtype))? };
                out.push_str(&text.trim_end().replace("@T", of).replace("@U", unsigned).replace("@N", &suffix));
                out.push('\n');
            }
        }
    }
    Ok(out)
}

/// Parameter of a kernel.
pub(crate) enum Parameter {
    /// Memory of a buffer.
    Buffer {
        buffer: Ref<Buffer>,
        name: String,
        is_written: bool,
    },
    Number {
        dtype: DType,
        name: String,
    },
}

/// Returns the parameters of a kernel, and the description of each for a launch.
///
/// # Errors
/// Returns `ValueError` for a 16-bit floating-point number, which a launch does not pass.
pub(crate) fn parameters(
    func: &PrimFunc,
    interface: &Interface,
    names: &mut Names,
) -> Result<(Vec<Parameter>, Vec<String>)> {
    let (mut params, mut listed) = (Vec::new(), Vec::new());
    for var in func.params.iter() {
        match func.buffer_map.get(&var)? {
            Some(buffer) => {
                listed.push("pointer".to_owned());
                let name = names.buffer(&buffer);
                let is_written = interface.writes(&buffer);
                params.push(Parameter::Buffer { buffer, name, is_written });
            }
            None if var.dtype.is_half() => bail!(
                "ValueError",
                "parameter `{}` is {}, which a launch does not pass; pass a float32",
                var.name,
                var.dtype
            ),
            None => {
                listed.push(if var.dtype.is_bool() { "uint8".to_owned() } else { var.dtype.to_string() });
                params.push(Parameter::Number { dtype: var.dtype, name: names.var(&var) });
            }
        }
    }
    Ok((params, listed))
}

impl Parameter {
    /// Returns the declaration and the name of the parameter of a function.
    pub(crate) fn declared<D: Dialect>(self) -> Result<(String, String)> {
        Ok(match self {
            Parameter::Buffer { buffer, name, is_written } => {
                (D::buffer_parameter(&buffer, &name, is_written)?, name)
            }
            Parameter::Number { dtype, name } => (D::variable(dtype, &name)?, name),
        })
    }
}

/// Returns the literal of an integer or Boolean constant. `long` and `ulong` are the suffixes of 64-bit literals.
pub(crate) fn int<D: Dialect>(value: i64, dtype: DType, long: &str, ulong: &str) -> Result<String> {
    if D::type_of(dtype).is_none() {
        bail!("ValueError", "{} has no type for {dtype}", D::NAME);
    }
    Ok(match (dtype.0.code, dtype.0.bits) {
        (kDLInt, 64) if value == i64::MIN => format!("(-9223372036854775807{long} - 1)"),
        (kDLInt, 64) if value < 0 => format!("({value}{long})"),
        (kDLInt, 64) => format!("{value}{long}"),
        (kDLUInt, 64) => format!("{}{ulong}", value as u64),
        (kDLUInt, 32) => format!("{value}u"),
        (kDLInt, 32) if value == i64::from(i32::MIN) => "(-2147483647 - 1)".to_owned(),
        _ if value < 0 => format!("({value})"),
        _ => value.to_string(),
    })
}

/// Returns the literal of a finite floating-point constant, which is the shortest one that gives the nearest number of the type.
pub(crate) fn finite(value: f64, is_single: bool) -> String {
    let text = if is_single { format!("{:?}f", value as f32) } else { format!("{value:?}") };
    if value.is_sign_negative() { format!("({text})") } else { text }
}

/// Returns an expression for an operation on scalars, which calls the helper functions that end with `suffix`.
pub(crate) fn operation<D: Dialect>(operation: Operation, a: &str, b: &str, suffix: &str) -> Result<String> {
    let Operation { op, dtype, is_safe, .. } = operation;
    let of = type_name::<D>(dtype)?;
    let is_signed = dtype.0.code == kDLInt;
    Ok(match op {
        BinaryOp::Div if dtype.is_integer() && is_safe => format!("(({of})({a} / {b}))"),
        BinaryOp::Mod if dtype.is_integer() && is_safe => format!("(({of})({a} % {b}))"),
        BinaryOp::FloorDiv if !is_signed && is_safe => format!("(({of})({a} / {b}))"),
        BinaryOp::FloorMod if !is_signed && is_safe => format!("(({of})({a} % {b}))"),
        BinaryOp::FloorDiv => format!("anyfn_floordiv_{suffix}({a}, {b})"),
        BinaryOp::FloorMod => format!("anyfn_floormod_{suffix}({a}, {b})"),
        BinaryOp::Div if dtype.is_integer() => format!("anyfn_div_{suffix}({a}, {b})"),
        BinaryOp::Mod if dtype.is_integer() => format!("anyfn_mod_{suffix}({a}, {b})"),
        BinaryOp::Min | BinaryOp::Max => format!("anyfn_{}_{suffix}({a}, {b})", op.text()),
        // The shift is unsigned, since bits may be shifted out.
        BinaryOp::ShiftLeft => {
            let unsigned = type_name::<D>(DType::new(kDLUInt, dtype.0.bits.max(32), 1))?;
            format!("(({of})(({unsigned}){a} << {b}))")
        }
        _ => c::operation::<D>(operation, a, b)?,
    })
}

/// Returns the name of the type that represents a data type in OpenCL C and in MSL, where those of integers are the same; `None` for other
/// floating-point numbers than `float`, in which the languages differ.
pub(crate) fn short_name(dtype: DType) -> Option<&'static str> {
    Some(match (dtype.0.code, dtype.0.bits) {
        (kDLInt, 8) => "char",
        (kDLInt, 16) => "short",
        (kDLInt, 32) => "int",
        (kDLInt, 64) => "long",
        // Parameters of kernels in OpenCL C cannot be `bool`.
        (kDLUInt | kDLBool, 8) => "uchar",
        (kDLUInt, 16) => "ushort",
        (kDLUInt, 32) => "uint",
        (kDLUInt, 64) => "ulong",
        (kDLFloat, 32) => "float",
        _ => return None,
    })
}
