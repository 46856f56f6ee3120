//! Dialect of CUDA devices: kernels in CUDA C that need no header, whose limits are those of the target.
//!
//! The source of a kernel is complete by itself and begins with the line `// Function: NAME`, at which loaders may split a
//! module. The next line lists the parameters of a launch. The compiler of the device
//! may contract products and sums to fused operations, as that of host code does.

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

/// Dialect of CUDA devices, with its state for one kernel.
#[derive(Default)]
pub(crate) struct Cuda {
    kernel: Kernel,
}

/// Returns the definitions of the helper functions that the source of a kernel calls.
fn helpers(source: &str) -> Result<String> {
    let mut out = String::new();
    for (name, text) in kernel_c::definitions(include_str!("halves.cu")) {
        if source.contains(&format!("{name}(")) {
            out.push_str(text.trim_end());
            out.push('\n');
        }
    }
    Ok(out + &kernel_c::helpers::<Cuda>(source, include_str!("helpers.cu"), |dtype| Ok(types::suffix(dtype)))?)
}

impl KernelDialect for Cuda {
    const BARRIER: &'static str = "__syncthreads();";

    fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    fn kernel_mut(&mut self) -> &mut Kernel {
        &mut self.kernel
    }

    fn index(axis: ForKind, dimension: usize, of: &str) -> String {
        let index = if axis.is_over_blocks() { "blockIdx" } else { "threadIdx" };
        format!("({of}){index}.{}", ["x", "y", "z"][dimension])
    }

    fn private_array(of: &str, name: &str, count: i64) -> String {
        format!("{of} {name}[{count}];")
    }

    fn shared_array(of: &str, name: &str, count: i64) -> String {
        format!("  __shared__ {of} {name}[{count}];\n")
    }
}

impl Dialect for Cuda {
    const NAME: &'static str = "CUDA C";
    const TYPES: &'static str = types::NAMES;
    const RESERVED: &'static str = types::RESERVED;
    const RESERVED_PREFIXES: &'static [&'static str] = &["__", "cu", "CU", "nv", "atomic"];
    const RAISES: bool = false;

    fn prelude() -> String {
        String::new()
    }

    fn function(
        symbol: &Symbol,
        func: &PrimFunc,
        interface: &Interface,
        target: &Target,
        out: &mut String,
    ) -> Result<()> {
        let mut names = Names::new::<Cuda>(symbol);
        let (params, mut listed) = kernel_c::parameters(func, interface, &mut names)?;
        let declared: Vec<_> =
            params.into_iter().map(kernel_c::Parameter::declared::<Cuda>).collect::<Result<_>>()?;
        listed.extend(tags_of(func)?);
        let dialect = Cuda { kernel: Kernel::of(func)? };
        let params: Vec<String> = declared.iter().map(|(declared, _)| declared.clone()).collect();
        let mut body = Body::new(symbol, &mut names, 1, dialect);
        body.scope = declared;
        body.stmt(&func.body)?;
        body.dialect.kernel.check_limits(target)?;
        let threads = body.dialect.kernel.block_threads();
        let source = format!(
            "extern \"C\" __global__ void __launch_bounds__({threads})\n{symbol}({}) {{\n{}{}}}\n",
            params.join(", "),
            body.dialect.kernel.shared,
            body.out
        );
        let helpers = helpers(&source)?;
        let _ = writeln!(out, "{MARKER}{symbol}\n{PARAMETERS}{}", listed.join(", "));
        out.push_str(&helpers);
        out.push_str(&source);
        Ok(())
    }

    fn type_of(dtype: DType) -> Option<&'static str> {
        types::name(dtype)
    }

    fn buffer_parameter(buffer: &Buffer, name: &str, is_written: bool) -> Result<String> {
        let constness = if is_written { "" } else { "const " };
        Ok(format!("{constness}{}* __restrict__ {name}", type_name::<Cuda>(buffer.dtype)?))
    }

    fn int(value: i64, dtype: DType) -> Result<String> {
        kernel_c::int::<Cuda>(value, dtype, "LL", "ULL")
    }

    fn float(_body: &mut Body<'_, Cuda>, value: f64, dtype: DType) -> Result<String> {
        types::float(value, dtype)
    }

    fn cast(_body: &mut Body<'_, Cuda>, value: &str, from: DType, to: DType) -> Result<String> {
        let half = |dtype: DType| if dtype.0.code == kDLBfloat { "bfloat16" } else { "float16" };
        Ok(match (from.is_half(), to.is_half()) {
            (false, false) => c::cast::<Cuda>(value, to)?,
            (true, false) if to.element() == DType::FLOAT32 => format!("anyfn_from_{}({value})", half(from)),
            (false, true) if from.element() == DType::FLOAT32 => format!("anyfn_to_{}({value})", half(to)),
            (false, true) if from.element() == DType::FLOAT64 => {
                format!("anyfn_to_{}(anyfn_to_odd({value}))", half(to))
            }
            _ => bail!(
                "ValueError",
                "cannot generate CUDA C code for a conversion of {from} to {to}; run the pass `widen_floats`, which converts in \
                 two steps"
            ),
        })
    }

    fn wide_index(index: &str) -> String {
        format!("(long long){index}")
    }

    fn operation(operation: Operation, a: &str, b: &str) -> Result<String> {
        kernel_c::operation::<Cuda>(operation, a, b, &types::suffix(operation.dtype))
    }

    fn math(name: &str, dtype: DType, args: &[String]) -> String {
        let args = args.join(", ");
        match (name, dtype == DType::FLOAT32) {
            ("sigmoid", _) => format!("anyfn_sigmoid_{dtype}({args})"),
            (_, true) => format!("{name}f({args})"),
            (_, false) => format!("{name}({args})"),
        }
    }
}
