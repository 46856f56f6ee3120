//! Conversion of the 16-bit floating-point types `float16` and `bfloat16`.
//!
//! Memory and variables contain their bits as `uint16_t`. The only operations on them are conversions: the
//! pass `widen_floats` computes everything else in `float32`.

use anyfn::abi::kDLBfloat;
use anyfn::{DType, Result, bail};
use anyfn_ir::ops::DTypeExt;

use crate::family::{Body, int_of, uint_of};
use crate::host::Host;

/// Preprocessor code that detects whether the target has instructions for converting `float16`.
const INSTRUCTIONS: &str = "\
#if defined(__FLT16_MANT_DIG__) && (defined(__F16C__) || defined(__aarch64__))
#define ANYFN_HALF
#endif
#if defined(__F16C__) && defined(__GNUC__) && !defined(__clang__)
typedef short anyfn_half_vector __attribute__((vector_size(16)));
#define ANYFN_HALF_VECTORS anyfn_half_vector
#if defined(__AVX512F__)
typedef short anyfn_half_long_vector __attribute__((vector_size(32)));
#define ANYFN_HALF_LONG_VECTORS anyfn_half_long_vector
#endif
#endif
";

fn name_of(dtype: DType) -> &'static str {
    if dtype.0.code == kDLBfloat { "bfloat16" } else { "float16" }
}

/// Returns the part of `half.c` with the given name, which is the source of conversion functions.
fn template(name: &str) -> &'static str {
    let mut parts = include_str!("half.c").split("/// ").filter_map(|part| part.split_once('\n'));
    parts.find(|(head, _)| *head == name).map_or("", |(_, text)| text)
}

impl Body<'_, Host> {
    /// Generates the conversion of a scalar from or to a 16-bit floating-point type.
    pub(super) fn host_half(&mut self, value: &str, from: DType, to: DType) -> Result<String> {
        let half = if from.is_half() { from } else { to };
        self.declare("anyfn_half", INSTRUCTIONS.to_owned());
        self.declare(name_of(half), template(name_of(half)).to_owned());
        Ok(match (from.element(), to.element()) {
            (_, DType::FLOAT32) => format!("anyfn_from_{}({value})", name_of(half)),
            (DType::FLOAT32, _) => format!("anyfn_to_{}({value})", name_of(half)),
            (DType::FLOAT64, _) => {
                self.declare("anyfn_to_odd", template("float64").to_owned());
                format!("anyfn_to_{}(anyfn_to_odd({value}))", name_of(half))
            }
            (from, to) => {
                bail!(
                    "ValueError",
                    "cannot generate C code for a conversion of {from} to {to}; run the pass \
                     `widen_floats`, which converts in two steps"
                )
            }
        })
    }

    /// Returns the name of a function that converts a vector with `lanes` lanes between a 16-bit
    /// floating-point type and another type. Returns `None` if the lanes must be converted one by one.
    pub(crate) fn convert_halves(&mut self, from: DType, to: DType, lanes: u16) -> Result<Option<String>> {
        let (half, direction) = if from.is_half() { (from, "from") } else { (to, "to") };
        if from.element() != DType::FLOAT32 && to.element() != DType::FLOAT32 {
            return Ok(None);
        }
        let float = self.vector(DType::FLOAT32, lanes)?;
        let int = self.vector(int_of(DType::FLOAT32), lanes)?;
        let uint = self.vector(uint_of(DType::FLOAT32), lanes)?;
        let short = self.vector(half.element(), lanes)?;
        self.declare("anyfn_half", INSTRUCTIONS.to_owned());
        let text = template(&format!("{} @", name_of(half)))
            .replace("@F", &float)
            .replace("@I", &int)
            .replace("@U", &uint)
            .replace("@S", &short)
            .replace("@N", &lanes.to_string());
        self.declare(&format!("{}x{lanes}", name_of(half)), text);
        Ok(Some(format!("anyfn_{direction}_{}x{lanes}", name_of(half))))
    }
}
