//! Dialect of OpenCL devices: kernels in OpenCL C 1.2, whose limits are those of the target.
//!
//! The source of a kernel is complete by itself and begins with the line `// Function: NAME`, at which loaders may split a
//! module. The next line lists the parameters of a launch. Floating-point operations are not contracted, so that results do not depend on
//! the compiler of the device.

mod types;

use std::fmt::Write as _;

use anyfn::{Array, DType, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Expr};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::printer;
use anyfn_ir::stmt::{BufferStore, For, ForKind, SeqStmt, Stmt};
use anyfn_ir::target::Target;

use crate::family::{
    Body, Dialect, Interface, Kernel, KernelDialect, MARKER, Message, Names, Operation, PARAMETERS, Symbol, c,
    no_check, tags_of, type_name, uint_of, uses,
};

/// Name of the type of the elements of parameters that are buffers of truth values.
const BOOL: &str = "anyfn_bool";

/// Dialect of OpenCL devices, with its state for one kernel.
#[derive(Default)]
pub(crate) struct OpenCl {
    kernel: Kernel,
}

/// Returns the definitions of the helper functions that the source of a kernel calls.
fn helpers(source: &str) -> Result<String> {
    let mut out = if uses(source, BOOL) { format!("typedef uchar {BOOL};\n") } else { String::new() };
    for (name, text) in
        include_str!("helpers.cl").split("\n/// ").skip(1).filter_map(|part| part.split_once('\n'))
    {
        for dtype in types::ALL {
            let of = type_name::<OpenCl>(dtype)?;
            if source.contains(&format!("anyfn_{name}_{of}(")) {
                let unsigned = if dtype.is_float() { of } else { type_name::<OpenCl>(uint_of(dtype))? };
                out.push_str(text.trim_end().replace("@T", of).replace("@U", unsigned).as_str());
                out.push('\n');
            }
        }
    }
    Ok(out)
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
        let (mut declared, mut listed) = (Vec::new(), Vec::new());
        for var in func.params.iter() {
            declared.push(match func.buffer_map.get(&var)? {
                Some(buffer) => {
                    listed.push("pointer".to_owned());
                    let name = names.buffer(&buffer);
                    (OpenCl::buffer_parameter(&buffer, &name, interface.writes(&buffer))?, name)
                }
                None => {
                    listed.push(if var.dtype.is_bool() { "uint8".to_owned() } else { var.dtype.to_string() });
                    let name = names.var(&var);
                    (OpenCl::variable(var.dtype, &name)?, name)
                }
            });
        }
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

    fn has_type(dtype: DType) -> bool {
        dtype.lanes() == 1 && types::name(dtype).is_some()
    }

    fn int(value: i64, dtype: DType) -> Result<String> {
        types::int(value, dtype)
    }

    fn wide_index(index: &str) -> String {
        format!("(long){index}")
    }

    fn operation(operation: Operation, a: &str, b: &str) -> Result<String> {
        let Operation { op, dtype, is_safe, .. } = operation;
        let of = type_name::<OpenCl>(dtype)?;
        let is_signed = dtype.0.code == anyfn::abi::kDLInt;
        Ok(match op {
            BinaryOp::Div if dtype.is_integer() && is_safe => format!("(({of})({a} / {b}))"),
            BinaryOp::Mod if dtype.is_integer() && is_safe => format!("(({of})({a} % {b}))"),
            BinaryOp::FloorDiv if !is_signed && is_safe => format!("(({of})({a} / {b}))"),
            BinaryOp::FloorMod if !is_signed && is_safe => format!("(({of})({a} % {b}))"),
            BinaryOp::FloorDiv => format!("anyfn_floordiv_{of}({a}, {b})"),
            BinaryOp::FloorMod => format!("anyfn_floormod_{of}({a}, {b})"),
            BinaryOp::Div if dtype.is_integer() => format!("anyfn_div_{of}({a}, {b})"),
            BinaryOp::Mod if dtype.is_integer() => format!("anyfn_mod_{of}({a}, {b})"),
            BinaryOp::Min | BinaryOp::Max => format!("anyfn_{}_{of}({a}, {b})", op.text()),
            // The shift is unsigned, since bits may be shifted out.
            BinaryOp::ShiftLeft if dtype.0.bits == 64 => format!("(({of})((ulong){a} << {b}))"),
            BinaryOp::ShiftLeft => format!("(({of})((uint){a} << {b}))"),
            _ => c::operation::<OpenCl>(operation, a, b)?,
        })
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

    fn element(
        body: &mut Body<'_, OpenCl>,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        lane: &str,
    ) -> Result<Option<String>> {
        body.element_of_kernel(buffer, indices, lane)
    }

    fn before_step(body: &mut Body<'_, OpenCl>, seq: &SeqStmt, index: usize) {
        body.barrier_before(seq, index);
    }

    fn for_loop(body: &mut Body<'_, OpenCl>, node: &For) -> Result<()> {
        body.loop_of_kernel(node)
    }

    fn allocate(body: &mut Body<'_, OpenCl>, buffer: &Ref<Buffer>, inner: &Stmt) -> Result<()> {
        body.allocate_in_kernel(buffer, inner)
    }

    fn store_vector(_body: &mut Body<'_, OpenCl>, node: &BufferStore) -> Result<()> {
        bail!(
            "ValueError",
            "vectors are not supported in kernels: `{}`",
            printer::brief(node.value.as_object())
        )
    }

    fn check(_body: &mut Body<'_, OpenCl>, _condition: &str, _kind: &str, message: &Message) -> Result<String> {
        no_check::<OpenCl>(message)
    }
}
