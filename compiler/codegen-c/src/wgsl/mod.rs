//! Dialect of Vulkan and WebGPU devices: kernels in WGSL, whose limits are those of the target.
//!
//! The source of a kernel is complete by itself and begins with the line `// Function: NAME`, at which loaders split a module. The next line
//! lists the parameters of a launch. The buffers are the bindings from 0 on, and the numbers are the members of a struct: push constants,
//! or a uniform block if there are many, and always for WebGPU, whose limits `limits` checks.
//!
//! WGSL has no conditional expression. Its function `select` evaluates both values, which is correct because expressions have no effects,
//! a division by 0 gives 0, and an index out of bounds accesses some element of the array.

mod limits;
mod types;

use std::fmt::Write as _;

use anyfn::{DType, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::BinaryOp;
use anyfn_ir::func::{IRModule, PrimFunc};
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::stmt::ForKind;
use anyfn_ir::target::Target;

use crate::family::{
    Body, Dialect, Interface, Kernel, KernelDialect, MARKER, Names, Operation, PARAMETERS, Symbol,
    device_module, tags_of, type_name,
};
use crate::host::{self, Host};

/// Variable with the numbers that a launch passes.
const GIVEN: &str = "anyfn_given";
/// Parameters of a kernel: the indices of its block and of its thread.
const BLOCK: &str = "anyfn_block";
const THREAD: &str = "anyfn_thread";
/// Parameter that replaces the index of the block where the blocks lie in two dimensions.
const GROUP: &str = "anyfn_group";
/// Numbers of 4 bytes that fit into the push constants of every device.
const PUSHED: usize = 32;
/// Numbers of 4 bytes that can be passed at all.
const PASSED: usize = 256;

/// Name of the language.
pub(crate) const NAME: &str = "WGSL";
/// Variants of the dialect: for Vulkan, for WebGPU, and for WebGPU devices with the feature `shader-f16`.
pub(crate) const VULKAN: u8 = 0;
pub(crate) const WEBGPU: u8 = 1;
pub(crate) const WEBGPU_F16: u8 = 2;
/// Member of the struct of numbers that contains the number of blocks of a launch whose blocks lie in two dimensions.
const BLOCKS: &str = "anyfn_blocks";

/// A variant of the dialect, with its state for one kernel.
#[derive(Default)]
pub(crate) struct Wgsl<const FOR: u8> {
    kernel: Kernel,
}

/// Generates the source of a module for WebGPU: host code for WebAssembly, and kernels.
///
/// # Errors
/// Returns the errors of [`device_module`].
pub(crate) fn web_module(module: &IRModule, target: &Target) -> Result<String> {
    let text = match target.has(Target::SHADER_F16) {
        true => device_module::<Host, Wgsl<WEBGPU_F16>>(module, target),
        false => device_module::<Host, Wgsl<WEBGPU>>(module, target),
    };
    text.map(|text| host::without_library(&text))
}

/// Returns the definitions of the helper functions that a source calls, and that they call.
fn helpers(source: &str) -> String {
    let all: Vec<(&str, &str)> =
        include_str!("helpers.wgsl").split("\n/// ").skip(1).filter_map(|part| part.split_once('\n')).collect();
    let mut used: Vec<bool> = all.iter().map(|(name, _)| source.contains(&format!("anyfn_{name}("))).collect();
    loop {
        let mut is_more = false;
        for at in 0..all.len() {
            let calls = |other: usize| used[other] && all[other].1.contains(&format!("anyfn_{}(", all[at].0));
            if !used[at] && (0..all.len()).any(calls) {
                used[at] = true;
                is_more = true;
            }
        }
        if !is_more {
            break;
        }
    }
    let texts = all.iter().zip(used).filter(|(_, used)| *used).map(|((_, text), _)| text.trim_end());
    texts.fold(String::new(), |out, text| out + text + "\n")
}

impl<const FOR: u8> KernelDialect for Wgsl<FOR> {
    const BARRIER: &'static str = "workgroupBarrier(); storageBarrier();";

    fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    fn kernel_mut(&mut self) -> &mut Kernel {
        &mut self.kernel
    }

    fn index(axis: ForKind, dimension: usize, of: &str) -> String {
        let of_what = if axis.is_over_blocks() { BLOCK } else { THREAD };
        format!("{of}({of_what}.{})", ["x", "y", "z"][dimension])
    }

    fn private_array(of: &str, name: &str, count: i64) -> String {
        format!("var {name}: array<{of}, {count}>;")
    }

    fn shared_array(of: &str, name: &str, count: i64) -> String {
        format!("var<workgroup> {name}: array<{of}, {count}>;\n")
    }
}

impl<const FOR: u8> Dialect for Wgsl<FOR> {
    const NAME: &'static str = NAME;
    const TYPES: &'static str = types::names(FOR);
    const RESERVED: &'static str = types::RESERVED;
    const RESERVED_PREFIXES: &'static [&'static str] = &["texture", "subgroup", "quad", "pack", "unpack", "dp"];
    const RAISES: bool = false;

    fn prelude() -> String {
        String::new()
    }

    fn check_symbol(symbol: &Symbol) -> Result<()> {
        let is_reserved = types::RESERVED.split_whitespace().any(|word| word == symbol.as_str());
        if is_reserved || symbol.as_str().starts_with("__") {
            bail!("ValueError", "a kernel in WGSL cannot have the name `{symbol}`, which is reserved");
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
        let mut names = Names::new::<Self>(symbol);
        let (mut scope, mut listed) = (Vec::new(), Vec::new());
        let (mut bindings, mut members, mut locals) = (String::new(), String::new(), String::new());
        let (mut buffers, mut numbers) = (0, 0);
        for var in func.params.iter() {
            if let Some(buffer) = func.buffer_map.get(&var)? {
                listed.push("pointer".to_owned());
                let name = names.buffer(&buffer);
                let declared = Self::buffer_parameter(&buffer, &name, interface.writes(&buffer))?;
                let _ = writeln!(bindings, "@group(0) @binding({buffers}) {declared};");
                buffers += 1;
                scope.push((declared, name));
                continue;
            }
            let (name, of) = (names.var(&var), type_name::<Self>(var.dtype)?);
            let given = format!("{GIVEN}.{name}");
            // Structs that launches fill contain no truth values, and only numbers of 4 bytes.
            let (passed, described, value) = match of {
                "bool" => ("u32", "uint32".to_owned(), format!("{given} != 0u")),
                "f16" => ("f32", "float32".to_owned(), format!("f16({given})")),
                _ => (of, var.dtype.to_string(), given),
            };
            listed.push(described);
            let _ = writeln!(members, "  {name}: {passed},");
            let _ = writeln!(locals, "  let {name}: {of} = {value};");
            numbers += 1;
            scope.push((Self::variable(var.dtype, &name)?, name));
        }
        let tags = tags_of(func)?;
        let is_folded = FOR != VULKAN && limits::is_folded(func, &tags);
        if is_folded {
            let _ = writeln!(members, "  {BLOCKS}: u32,");
            numbers += 1;
        }
        if numbers > PASSED {
            bail!("ValueError", "a kernel has {numbers} numbers as parameters, more than {PASSED}");
        }
        listed.extend(tags);
        let mut body = Body::new(symbol, &mut names, 1, Wgsl::<FOR> { kernel: Kernel::of(func)? });
        body.scope = scope;
        body.stmt(&func.body)?;
        let (kernel, text) = (&body.dialect.kernel, &body.out);
        kernel.check_limits(target)?;
        if FOR != VULKAN {
            limits::check(func, kernel, is_folded)?;
        }
        let helpers = helpers(text);
        let _ = writeln!(out, "{MARKER}{symbol}\n{PARAMETERS}{}", listed.join(", "));
        if FOR == WEBGPU_F16 && (text.contains("f16") || bindings.contains("f16") || locals.contains("f16")) {
            out.push_str("enable f16;\n");
        }
        if numbers > 0 {
            let space = match FOR == VULKAN && numbers <= PUSHED {
                true => "var<immediate>".to_owned(),
                false => format!("@group(0) @binding({buffers}) var<uniform>"),
            };
            let _ = writeln!(out, "struct anyfn_numbers {{\n{members}}}\n{space} {GIVEN}: anyfn_numbers;");
        }
        let (indices, block) = match is_folded {
            true => (
                format!(
                    "@builtin(workgroup_id) {GROUP}: vec3<u32>, @builtin(num_workgroups) {GROUP}s: vec3<u32>"
                ),
                format!(
                    "  let {BLOCK} = vec3<u32>({GROUP}.x + {GROUP}.y * {GROUP}s.x, 0u, 0u);\n  if ({BLOCK}.x >= {GIVEN}.{BLOCKS}) \
                     {{ return; }}\n"
                ),
            ),
            false => (format!("@builtin(workgroup_id) {BLOCK}: vec3<u32>"), String::new()),
        };
        let _ = write!(
            out,
            "{bindings}{}{helpers}@compute @workgroup_size({})\nfn {symbol}({indices}, @builtin(local_invocation_id) {THREAD}: \
             vec3<u32>) {{\n{block}{locals}{text}}}\n",
            kernel.shared,
            kernel.block_size()
        );
        Ok(())
    }

    fn type_of(dtype: DType) -> Option<&'static str> {
        types::name(dtype, FOR)
    }

    fn has_type(dtype: DType) -> bool {
        dtype.lanes() == 1 && types::name(dtype, FOR).is_some()
    }

    fn variable(dtype: DType, name: &str) -> Result<String> {
        Ok(format!("{name}: {}", type_name::<Self>(dtype)?))
    }

    fn buffer_parameter(buffer: &Buffer, name: &str, is_written: bool) -> Result<String> {
        if buffer.dtype.is_bool() {
            bail!(
                "ValueError",
                "argument `{}` is a tensor of bool, which WGSL does not have; it has {}: use one of these, and convert to and from bool \
                 outside of the function",
                buffer.name,
                types::names(FOR)
            );
        }
        let access = if is_written { "read_write" } else { "read" };
        Ok(format!("var<storage, {access}> {name}: array<{}>", type_name::<Self>(buffer.dtype)?))
    }

    fn constant(dtype: DType, name: &str, value: &str) -> Result<String> {
        Ok(format!("let {} = {value};", Self::variable(dtype, name)?))
    }

    fn int(value: i64, dtype: DType) -> Result<String> {
        types::int(value, dtype)
    }

    fn float(_body: &mut Body<'_, Self>, value: f64, dtype: DType) -> Result<String> {
        types::float(value, dtype)
    }

    fn cast(_body: &mut Body<'_, Self>, value: &str, _from: DType, to: DType) -> Result<String> {
        Ok(format!("{}({value})", type_name::<Self>(to.element())?))
    }

    /// Indices have 32 bits. A sum or product that overflows on the way to an offset is right in the end, because numbers wrap around.
    fn wide_index(index: &str) -> String {
        index.to_owned()
    }

    fn operation(operation: Operation, a: &str, b: &str) -> Result<String> {
        let Operation { op, dtype, is_safe, .. } = operation;
        let of = type_name::<Self>(dtype)?;
        let is_signed = dtype.0.code == anyfn::abi::kDLInt;
        Ok(match op {
            BinaryOp::Div if dtype.is_integer() && is_safe => format!("({a} / {b})"),
            BinaryOp::Mod if dtype.is_integer() && is_safe => format!("({a} % {b})"),
            BinaryOp::FloorDiv if !is_signed && is_safe => format!("({a} / {b})"),
            BinaryOp::FloorMod if !is_signed && is_safe => format!("({a} % {b})"),
            BinaryOp::FloorDiv if is_signed => format!("anyfn_floordiv_{of}({a}, {b})"),
            BinaryOp::FloorMod if is_signed => format!("anyfn_floormod_{of}({a}, {b})"),
            BinaryOp::Div | BinaryOp::FloorDiv if dtype.is_integer() => format!("anyfn_div_{of}({a}, {b})"),
            BinaryOp::Mod | BinaryOp::FloorMod if dtype.is_integer() => format!("anyfn_mod_{of}({a}, {b})"),
            BinaryOp::Min | BinaryOp::Max => format!("anyfn_{}_{of}({a}, {b})", op.text()),
            BinaryOp::ShiftLeft => format!("({a} << u32({b}))"),
            BinaryOp::ShiftRight => format!("({a} >> u32({b}))"),
            // The operator `!=` of drivers is false for NaN.
            BinaryOp::Ne if dtype.is_float() => format!("(!({a} == {b}))"),
            BinaryOp::And => format!("({a} && {b})"),
            BinaryOp::Or => format!("({a} || {b})"),
            _ => format!("({a} {} {b})", op.text()),
        })
    }

    fn select(condition: &str, a: &str, b: &str) -> String {
        format!("select({b}, {a}, {condition})")
    }

    fn math(name: &str, _dtype: DType, args: &[String]) -> String {
        match name {
            "rsqrt" => format!("(1.0f / sqrt({}))", args[0]),
            "log10" => format!("(log2({}) * 0.30103f)", args[0]),
            "fabs" => format!("abs({})", args[0]),
            "nearbyint" => format!("round({})", args[0]),
            "fmod" => format!("({} % {})", args[0], args[1]),
            "sigmoid" | "log1p" | "expm1" | "erf" | "pow" | "hypot" | "round" | "copysign" => {
                format!("anyfn_{name}({})", args.join(", "))
            }
            _ => format!("{name}({})", args.join(", ")),
        }
    }

    fn discard(value: &str) -> String {
        format!("_ = {value};")
    }

    fn loop_head(dtype: DType, name: &str, first: &str, end: &str) -> Result<String> {
        Ok(format!("for (var {} = {first}; {name} < {end}; {name}++) {{", Self::variable(dtype, name)?))
    }
}
