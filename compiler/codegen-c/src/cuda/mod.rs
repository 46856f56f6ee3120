//! Dialect of CUDA devices: kernels in CUDA C that need no header, whose limits are those of the target.
//!
//! The source of a kernel is complete by itself and begins with the line `// Function: NAME`, at which loaders may split a
//! module. The next line lists the parameters of a launch. The compiler of the device
//! may contract products and sums to fused operations, as that of host code does.

mod types;

use std::fmt::Write as _;

use anyfn::abi::kDLBfloat;
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
    no_check, tags_of, type_name, uint_of,
};

/// Dialect of CUDA devices, with its state for one kernel.
#[derive(Default)]
pub(crate) struct Cuda {
    kernel: Kernel,
}

/// Returns the definitions of the helper functions that the source of a kernel calls.
fn helpers(source: &str) -> Result<String> {
    let mut out = String::new();
    let parts = |text: &'static str| text.split("\n/// ").skip(1).filter_map(|part| part.split_once('\n'));
    for (name, text) in parts(include_str!("halves.cu")) {
        if source.contains(&format!("{name}(")) {
            out.push_str(text.trim_end());
            out.push('\n');
        }
    }
    for (name, text) in parts(include_str!("helpers.cu")) {
        for dtype in types::ALL {
            let suffix = types::suffix(dtype);
            if source.contains(&format!("anyfn_{name}_{suffix}(")) {
                let of = type_name::<Cuda>(dtype)?;
                let unsigned = if dtype.is_float() { of } else { type_name::<Cuda>(uint_of(dtype))? };
                let text = text.trim_end().replace("@T", of).replace("@U", unsigned).replace("@N", &suffix);
                out.push_str(&text);
                out.push('\n');
            }
        }
    }
    Ok(out)
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
        let (mut declared, mut listed) = (Vec::new(), Vec::new());
        for var in func.params.iter() {
            declared.push(match func.buffer_map.get(&var)? {
                Some(buffer) => {
                    listed.push("pointer".to_owned());
                    let name = names.buffer(&buffer);
                    (Cuda::buffer_parameter(&buffer, &name, interface.writes(&buffer))?, name)
                }
                None if var.dtype.is_half() => bail!(
                    "ValueError",
                    "parameter `{}` is {}, which a launch does not pass; pass a float32",
                    var.name,
                    var.dtype
                ),
                None => {
                    listed.push(if var.dtype.is_bool() { "uint8".to_owned() } else { var.dtype.to_string() });
                    let name = names.var(&var);
                    (Cuda::variable(var.dtype, &name)?, name)
                }
            });
        }
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

    fn has_type(dtype: DType) -> bool {
        dtype.lanes() == 1 && types::name(dtype).is_some()
    }

    fn int(value: i64, dtype: DType) -> Result<String> {
        types::int(value, dtype)
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
        let Operation { op, dtype, is_safe, .. } = operation;
        let (of, suffix) = (type_name::<Cuda>(dtype)?, types::suffix(dtype));
        let is_signed = dtype.0.code == anyfn::abi::kDLInt;
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
            BinaryOp::ShiftLeft if dtype.0.bits == 64 => format!("(({of})((unsigned long long){a} << {b}))"),
            BinaryOp::ShiftLeft => format!("(({of})((unsigned int){a} << {b}))"),
            _ => c::operation::<Cuda>(operation, a, b)?,
        })
    }

    fn math(name: &str, dtype: DType, args: &[String]) -> String {
        let args = args.join(", ");
        match (name, dtype == DType::FLOAT32) {
            ("sigmoid", _) => format!("anyfn_sigmoid_{dtype}({args})"),
            (_, true) => format!("{name}f({args})"),
            (_, false) => format!("{name}({args})"),
        }
    }

    fn element(
        body: &mut Body<'_, Cuda>,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        lane: &str,
    ) -> Result<Option<String>> {
        body.element_of_kernel(buffer, indices, lane)
    }

    fn before_step(body: &mut Body<'_, Cuda>, seq: &SeqStmt, index: usize) {
        body.barrier_before(seq, index);
    }

    fn for_loop(body: &mut Body<'_, Cuda>, node: &For) -> Result<()> {
        body.loop_of_kernel(node)
    }

    fn allocate(body: &mut Body<'_, Cuda>, buffer: &Ref<Buffer>, inner: &Stmt) -> Result<()> {
        body.allocate_in_kernel(buffer, inner)
    }

    fn store_vector(_body: &mut Body<'_, Cuda>, node: &BufferStore) -> Result<()> {
        bail!(
            "ValueError",
            "vectors are not supported in kernels: `{}`",
            printer::brief(node.value.as_object())
        )
    }

    fn check(_body: &mut Body<'_, Cuda>, _condition: &str, _kind: &str, message: &Message) -> Result<String> {
        no_check::<Cuda>(message)
    }
}
