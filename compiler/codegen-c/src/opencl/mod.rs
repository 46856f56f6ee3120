//! Dialect of OpenCL devices: kernels in OpenCL C 1.2, whose limits are those of the target.
//!
//! The source of a kernel is complete by itself and begins with the line `// Function: NAME`, at which loaders may split a
//! module. The next line lists the parameters of a launch. Floating-point operations are not contracted, so that results do not depend on
//! the compiler of the device.

mod types;

use std::fmt::Write as _;

use anyfn::{DType, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::stmt::ForKind;
use anyfn_ir::target::Target;

use crate::family::{
    Body, Dialect, Interface, Kernel, KernelDialect, MARKER, Names, Operation, PARAMETERS, Symbol, kernel_c,
    tags_of, type_name, uses,
};

/// Name of the type of the elements of parameters that are buffers of truth values.
const BOOL: &str = "anyfn_bool";

/// Definitions of helper functions, which are those of MSL, too.
pub(crate) const HELPERS: &str = include_str!("helpers.cl");

/// Dialect of OpenCL devices, with its state for one kernel.
#[derive(Default)]
pub(crate) struct OpenCl {
    kernel: Kernel,
}

/// Returns the definitions of the helper functions that the source of a kernel calls.
fn helpers(source: &str) -> Result<String> {
    let typedef = if uses(source, BOOL) { format!("typedef uchar {BOOL};\n") } else { String::new() };
    let helpers =
        kernel_c::helpers::<OpenCl>(source, HELPERS, |dtype| type_name::<OpenCl>(dtype).map(str::to_owned))?;
    Ok(typedef + &helpers)
}

impl KernelDialect for OpenCl {
    const BARRIER: &'static str = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);";

    fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    fn kernel_mut(&mut self) -> &mut Kernel {
        &mut self.kernel
    }

    fn index(axis: ForKind, dimension: usize, of: &str) -> String {
        let function = if axis.is_over_blocks() { "get_group_id" } else { "get_local_id" };
        format!("({of}){function}({dimension})")
    }

    fn private_array(of: &str, name: &str, count: i64) -> String {
        format!("{of} {name}[{count}];")
    }

    fn shared_array(of: &str, name: &str, count: i64) -> String {
        format!("  __local {of} {name}[{count}];\n")
    }
}

impl Dialect for OpenCl {
    const NAME: &'static str = "OpenCL C";
    const TYPES: &'static str = types::NAMES;
    const RESERVED: &'static str = types::RESERVED;
    const RESERVED_PREFIXES: &'static [&'static str] =
        &["get_", "cl", "CL", "vload", "vstore", "convert_", "as_", "native_", "half_"];
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
        let mut names = Names::new::<OpenCl>(symbol);
        let (params, mut listed) = kernel_c::parameters(func, interface, &mut names)?;
        let declared: Vec<_> =
            params.into_iter().map(kernel_c::Parameter::declared::<OpenCl>).collect::<Result<_>>()?;
        listed.extend(tags_of(func)?);
        let dialect = OpenCl { kernel: Kernel::of(func)? };
        let params: Vec<String> = declared.iter().map(|(declared, _)| declared.clone()).collect();
        let mut body = Body::new(symbol, &mut names, 1, dialect);
        body.scope = declared;
        body.stmt(&func.body)?;
        body.dialect.kernel.check_limits(target)?;
        let group = body.dialect.kernel.block_size();
        let source = format!(
            "__kernel __attribute__((reqd_work_group_size({group})))\nvoid {symbol}({}) {{\n{}{}}}\n",
            params.join(", "),
            body.dialect.kernel.shared,
            body.out
        );
        let helpers = helpers(&source)?;
        let _ = writeln!(out, "{MARKER}{symbol}\n{PARAMETERS}{}", listed.join(", "));
        if uses(&source, "double") {
            out.push_str("#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n");
        }
        let _ = write!(out, "#pragma OPENCL FP_CONTRACT OFF\n{helpers}{source}");
        Ok(())
    }

    fn type_of(dtype: DType) -> Option<&'static str> {
        types::name(dtype)
    }

    fn buffer_parameter(buffer: &Buffer, name: &str, is_written: bool) -> Result<String> {
        let constness = if is_written { "" } else { "const " };
        // Launchers compare the types of parameters with those of tensors, and know no name for truth values.
        let of = if buffer.dtype.is_bool() { BOOL } else { type_name::<OpenCl>(buffer.dtype)? };
        Ok(format!("__global {constness}{of}* restrict {name}"))
    }

    fn int(value: i64, dtype: DType) -> Result<String> {
        kernel_c::int::<OpenCl>(value, dtype, "L", "UL")
    }

    fn wide_index(index: &str) -> String {
        format!("(long){index}")
    }

    fn operation(operation: Operation, a: &str, b: &str) -> Result<String> {
        kernel_c::operation::<OpenCl>(operation, a, b, type_name::<OpenCl>(operation.dtype)?)
    }

    fn math(name: &str, dtype: DType, args: &[String]) -> String {
        let is_single = dtype == DType::FLOAT32;
        match name {
            "rsqrt" => format!("({} / sqrt({}))", if is_single { "1.0f" } else { "1.0" }, args[0]),
            "sigmoid" => format!("anyfn_sigmoid_{}({})", if is_single { "float" } else { "double" }, args[0]),
            "nearbyint" => format!("rint({})", args[0]),
            _ => format!("{name}({})", args.join(", ")),
        }
    }
}
