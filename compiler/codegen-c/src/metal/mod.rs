//! Dialect of Metal devices: kernels in the Metal Shading Language (MSL), whose limits are those of the target.
//!
//! The source of a kernel is complete by itself and begins with the line `// Function: NAME`, at which loaders split a module. The next line
//! lists the parameters of a launch. The buffers are the arguments `[[buffer(0)]]` and so on; the numbers are the members of a struct, each
//! in 8 bytes, which is the argument after the buffers.
//!
//! Compilers of MSL assume by default that there are no infinities and NaN. The pragmas of MSL 3.2 turn this off in the source; for an
//! older version, whoever compiles the source must turn it off. No compiler of MSL has read the generated code yet: tests compile it as C++
//! behind a header that imitates the Metal standard library (`testing/metal`).

mod types;

use std::fmt::Write as _;

use anyfn::abi::kDLBfloat;
use anyfn::{DType, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::stmt::ForKind;
use anyfn_ir::target::Target;

use crate::family::{
    Body, Dialect, Interface, Kernel, KernelDialect, MARKER, Names, Operation, PARAMETERS, Symbol, c, kernel_c,
    tags_of, type_name,
};
use crate::opencl::HELPERS;

/// Variable with the numbers that a launch passes.
const GIVEN: &str = "anyfn_given";
/// Parameters of a kernel: the indices of its block and of its thread.
const BLOCK: &str = "anyfn_block";
const THREAD: &str = "anyfn_thread";
/// Number of arguments `[[buffer(n)]]` that a kernel can have.
const BUFFERS: usize = 31;
/// Number of numbers of 8 bytes that fit into the 4 KiB that a launch can pass without a buffer.
const PASSED: usize = 512;
/// Source before each kernel.
const HEAD: &str = "#include <metal_stdlib>\n#if __METAL_VERSION__ >= 320\n#pragma METAL fp math_mode(safe)\n\
                    #pragma METAL fp contract(off)\n#endif\nusing namespace metal;\n";

/// Dialect of Metal devices, with its state for one kernel.
#[derive(Default)]
pub(crate) struct Metal {
    kernel: Kernel,
}

/// Returns the definitions of the helper functions that the source of a kernel calls.
fn helpers(source: &str) -> Result<String> {
    let mut out = String::new();
    for (name, text) in kernel_c::definitions(include_str!("helpers.metal")) {
        if source.contains(&format!("{name}(")) {
            out.push_str(text.trim_end());
            out.push('\n');
        }
    }
    Ok(out
        + &kernel_c::helpers::<Metal>(source, HELPERS, |dtype| type_name::<Metal>(dtype).map(str::to_owned))?)
}

impl KernelDialect for Metal {
    const BARRIER: &'static str = "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);";

    fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    fn kernel_mut(&mut self) -> &mut Kernel {
        &mut self.kernel
    }

    fn index(axis: ForKind, dimension: usize, of: &str) -> String {
        let index = if axis.is_over_blocks() { BLOCK } else { THREAD };
        format!("({of}){index}.{}", ["x", "y", "z"][dimension])
    }

    fn private_array(of: &str, name: &str, count: i64) -> String {
        format!("{of} {name}[{count}];")
    }

    fn shared_array(of: &str, name: &str, count: i64) -> String {
        format!("  threadgroup {of} {name}[{count}];\n")
    }
}

impl Dialect for Metal {
    const NAME: &'static str = "MSL";
    const TYPES: &'static str = types::NAMES;
    const RESERVED: &'static str = types::RESERVED;
    const RESERVED_PREFIXES: &'static [&'static str] =
        &["__", "atomic", "simd", "quad", "texture", "packed_", "METAL"];
    const RAISES: bool = false;

    fn prelude() -> String {
        String::new()
    }

    fn check_symbol(symbol: &Symbol) -> Result<()> {
        if types::RESERVED.split_whitespace().any(|word| word == symbol.as_str()) {
            bail!("ValueError", "a kernel in MSL cannot have the name `{symbol}`, which is reserved");
        }
        Ok(())
    }

    fn function(
        symbol: &Symbol,
        func: &PrimFunc,
        interface: &Interface,
        target: &Target,
        out: &mut String,
    ) -> Result<()> {
        let mut names = Names::new::<Metal>(symbol);
        let (params, mut listed) = kernel_c::parameters(func, interface, &mut names)?;
        let (mut scope, mut declared) = (Vec::new(), Vec::new());
        let (mut members, mut locals, mut numbers) = (String::new(), String::new(), 0);
        for param in params {
            match param {
                kernel_c::Parameter::Buffer { .. } => {
                    let (text, name) = param.declared::<Metal>()?;
                    declared.push(format!("{text} [[buffer({})]]", declared.len()));
                    scope.push((text, name));
                }
                kernel_c::Parameter::Number { dtype, name } => {
                    let _ = writeln!(members, "  alignas(8) {};", Metal::variable(dtype, &name)?);
                    let value = Metal::constant(dtype, &name, &format!("{GIVEN}.{name}"))?;
                    let _ = writeln!(locals, "  {value}");
                    scope.push((Metal::variable(dtype, &name)?, name));
                    numbers += 1;
                }
            }
        }
        if numbers > 0 {
            declared.push(format!("constant anyfn_numbers& {GIVEN} [[buffer({})]]", declared.len()));
        }
        if declared.len() > BUFFERS {
            bail!(
                "ValueError",
                "a kernel has {} buffers{}, more than the limit of Metal, {BUFFERS}; compute some of the results in another function or stage",
                declared.len(),
                if numbers > 0 { ", one of them for its numbers" } else { "" }
            );
        }
        if numbers > PASSED {
            bail!("ValueError", "a kernel has {numbers} numbers as parameters, more than {PASSED}");
        }
        listed.extend(tags_of(func)?);
        let mut body = Body::new(symbol, &mut names, 1, Metal { kernel: Kernel::of(func)? });
        body.scope = scope;
        body.stmt(&func.body)?;
        let (kernel, text) = (&body.dialect.kernel, &body.out);
        kernel.check_limits(target)?;
        declared.push(format!("uint3 {BLOCK} [[threadgroup_position_in_grid]]"));
        declared.push(format!("uint3 {THREAD} [[thread_position_in_threadgroup]]"));
        let _ = write!(out, "{MARKER}{symbol}\n{PARAMETERS}{}\n{HEAD}{}", listed.join(", "), helpers(text)?);
        if numbers > 0 {
            let _ = writeln!(out, "struct anyfn_numbers {{\n{members}}};");
        }
        let _ = writeln!(
            out,
            "[[max_total_threads_per_threadgroup({})]]\nkernel void {symbol}({}) {{\n{}{locals}{text}}}",
            kernel.block_threads(),
            declared.join(", "),
            kernel.shared
        );
        Ok(())
    }

    fn type_of(dtype: DType) -> Option<&'static str> {
        types::name(dtype)
    }

    fn buffer_parameter(buffer: &Buffer, name: &str, is_written: bool) -> Result<String> {
        let constness = if is_written { "" } else { "const " };
        Ok(format!("device {constness}{}* {name}", type_name::<Metal>(buffer.dtype)?))
    }

    fn int(value: i64, dtype: DType) -> Result<String> {
        kernel_c::int::<Metal>(value, dtype, "L", "UL")
    }

    fn float(_body: &mut Body<'_, Metal>, value: f64, dtype: DType) -> Result<String> {
        types::float(value, dtype)
    }

    fn cast(_body: &mut Body<'_, Metal>, value: &str, from: DType, to: DType) -> Result<String> {
        Ok(match (from.0.code == kDLBfloat, to.0.code == kDLBfloat) {
            (true, false) if to.element() == DType::FLOAT32 => format!("anyfn_from_bfloat16({value})"),
            (false, true) if from.element() == DType::FLOAT32 => format!("anyfn_to_bfloat16({value})"),
            (false, false) if !from.is_half() && !to.is_half() => c::cast::<Metal>(value, to)?,
            (false, false) if from.element() == DType::FLOAT32 || to.element() == DType::FLOAT32 => {
                format!("(({}){value})", type_name::<Metal>(to.element())?)
            }
            _ => bail!(
                "ValueError",
                "cannot generate MSL code for a conversion of {from} to {to}; run the pass `widen_floats`, which converts in two steps"
            ),
        })
    }

    fn wide_index(index: &str) -> String {
        format!("(long){index}")
    }

    fn operation(operation: Operation, a: &str, b: &str) -> Result<String> {
        kernel_c::operation::<Metal>(operation, a, b, type_name::<Metal>(operation.dtype)?)
    }

    fn math(name: &str, _dtype: DType, args: &[String]) -> String {
        match name {
            "rsqrt" => format!("(1.0f / sqrt({}))", args[0]),
            "sigmoid" => format!("anyfn_sigmoid_float({})", args[0]),
            "nearbyint" => format!("rint({})", args[0]),
            "log1p" | "expm1" | "erf" | "hypot" => format!("anyfn_{name}({})", args.join(", ")),
            _ => format!("{name}({})", args.join(", ")),
        }
    }
}
