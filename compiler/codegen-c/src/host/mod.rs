//! Dialect for the host: C11, with vectors if the compiler is GCC or Clang.

mod device;
mod entry;
mod half;
mod logic;
mod loops;
mod math;
mod memory;
mod message;
mod options;
mod packed;
mod registers;
mod reserved;
mod signature;
mod size;
mod vector;

use std::collections::HashMap;
use std::fmt::Write as _;

use anyfn::abi::{DEVICE_TYPES, DTYPE_CODES, kDLBfloat, kDLBool, kDLFloat, kDLInt, kDLOpaqueHandle, kDLUInt};
use anyfn::{Array, DType, Device, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Call, Expr, Var};
use anyfn_ir::func::{IRModule, PrimFunc};
use anyfn_ir::ops::{DTypeExt, rounded};
use anyfn_ir::printer;
use anyfn_ir::stmt::{BufferStore, For, Launch, Stmt};
use anyfn_ir::target::{DeviceKind, Target};

use self::options::CodegenOptions;
use self::registers::Registers;
use crate::family::{Body, Dialect, Interface, Literal, Message, Statements, Symbol, c, module, type_name};

/// Returns the C type that represents a scalar data type.
///
/// # Errors
/// Returns `ValueError` for a data type without a C type.
fn c_type(dtype: DType) -> Result<&'static str> {
    type_name::<Host>(dtype)
}

/// Returns the source of C tables that contain the names of devices and data types, as the runtime
/// prints these names in messages.
fn names() -> String {
    let device = |kind: i32| Device::new(kind, 0).to_string().trim_end_matches(":0").to_owned();
    let devices: Vec<String> =
        DEVICE_TYPES.iter().map(|(_, kind)| format!("[{kind}] = \"{}\"", device(*kind))).collect();
    // With 0 bits, a printed name ends with 0 or contains no number of bits.
    let dtype = |code: u8| DType::new(code, 0, 1).to_string().trim_end_matches('0').to_owned();
    let dtypes: Vec<String> =
        DTYPE_CODES.iter().map(|(_, code)| format!("[{code}] = \"{}\"", dtype(*code))).collect();
    let mut out = String::new();
    for (name, entries) in [("anyfn_device_names", devices), ("anyfn_dtype_names", dtypes)] {
        let entries = entries.join(",\n  ");
        let _ = write!(out, "\nstatic const char* const {name}[] = {{\n  {entries},\n}};\n");
    }
    out
}

/// Headers of the C library that the prelude includes.
const LIBRARY: &str = "#include <math.h>\n#include <stdarg.h>\n#include <stdio.h>\n#include <stdlib.h>\n";

/// Generates the source of a module for WebAssembly, where there is no C library.
///
/// # Errors
/// Returns the errors of [`module`].
pub(crate) fn wasm_module(whole: &IRModule, target: &Target) -> Result<String> {
    module::<Host>(whole, target).map(|text| without_library(&text))
}

/// Replaces the C library in the source of host code by definitions for WebAssembly.
pub(crate) fn without_library(text: &str) -> String {
    text.replacen(LIBRARY, include_str!("wasm.c"), 1)
}

/// Dialect of the host, with its state for one function.
pub(crate) struct Host {
    options: CodegenOptions,
    /// Kind of device on which the tensors of the function are, or `None` if they are in main memory.
    device: Option<&'static DeviceKind>,
    /// Statements that free buffers before an early return.
    allocated: Vec<String>,
    /// Source of the functions that contain the bodies of parallel loops. This source precedes the
    /// function that contains the loops.
    tasks: String,
    task_count: usize,
    /// True while generating the body of a parallel loop.
    is_task: bool,
    /// Variables that replace buffers, by the address of the buffer's data variable.
    registers: HashMap<usize, Registers>,
    /// True while stores bypass the caches, because an enclosing loop has the annotation `nontemporal`.
    streams: bool,
}

impl Host {
    fn new(options: CodegenOptions, device: Option<&'static DeviceKind>) -> Host {
        Host {
            options,
            device,
            allocated: Vec::new(),
            tasks: String::new(),
            task_count: 0,
            is_task: false,
            registers: HashMap::new(),
            streams: false,
        }
    }
}

impl Dialect for Host {
    const NAME: &'static str = "C";
    const TYPES: &'static str = "bool, int8 to int64, uint8 to uint64, float32 and float64";
    const RESERVED: &'static str = reserved::RESERVED;
    const RESERVED_PREFIXES: &'static [&'static str] = reserved::PREFIXES;

    fn prelude() -> String {
        // The first line of the file is a comment for developers, which is omitted.
        let abi = include_str!("abi.c").split_once('\n').map_or("", |(_, text)| text);
        [abi, &names(), include_str!("prelude.c"), c::SCALAR, include_str!("machine.c")].concat()
    }

    fn check_symbol(symbol: &Symbol) -> Result<()> {
        let name = symbol.as_str();
        // The loader gives these names a special meaning after the prefix `__tvm_ffi_`.
        if name.starts_with("_metadata_")
            || name.starts_with("_doc_")
            || name == "_library_ctx"
            || name == "_library_bin"
        {
            bail!("ValueError", "function name `{name}` is reserved by the library convention");
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
        entry::function(symbol, func, interface, CodegenOptions::of(target), out)
    }

    fn type_of(dtype: DType) -> Option<&'static str> {
        Some(match (dtype.0.code, dtype.0.bits) {
            (kDLInt, 8) => "int8_t",
            (kDLInt, 16) => "int16_t",
            (kDLInt, 32) => "int32_t",
            (kDLInt, 64) => "int64_t",
            (kDLUInt, 8) => "uint8_t",
            (kDLUInt, 16) => "uint16_t",
            (kDLUInt, 32) => "uint32_t",
            (kDLUInt, 64) => "uint64_t",
            // The type contains the bits of the number.
            (kDLFloat | kDLBfloat, 16) => "uint16_t",
            (kDLFloat, 32) => "float",
            (kDLFloat, 64) => "double",
            (kDLBool, 8) => "uint8_t",
            (kDLOpaqueHandle, _) => "void*",
            _ => return None,
        })
    }

    fn has_type(dtype: DType) -> bool {
        Host::type_of(dtype.element()).is_some()
    }

    fn buffer_parameter(buffer: &Buffer, name: &str, is_written: bool) -> Result<String> {
        if device::is_there(buffer) {
            return Ok(format!("const anyfn_memory {name}"));
        }
        let constness = if is_written { "" } else { "const " };
        Ok(format!("{constness}{}* restrict {name}", c_type(buffer.dtype)?))
    }

    fn float(body: &mut Body<'_, Host>, value: f64, dtype: DType) -> Result<String> {
        if !dtype.is_half() {
            return c::float::<Host>(value, dtype);
        }
        let value = c::float::<Host>(rounded(value, dtype), DType::FLOAT32)?;
        body.host_half(&value, DType::FLOAT32, dtype)
    }

    fn string(text: &str) -> Result<String> {
        Ok(Literal::c_str("a text", text)?.to_string())
    }

    fn cast(body: &mut Body<'_, Host>, value: &str, from: DType, to: DType) -> Result<String> {
        if from.is_half() || to.is_half() {
            body.host_half(value, from, to)
        } else {
            c::cast::<Host>(value, to)
        }
    }

    fn is_eager(first: &Expr, second: &Expr) -> bool {
        logic::is_eager(first, second)
    }

    fn math(name: &str, dtype: DType, args: &[String]) -> String {
        math::call(name, dtype, args)
    }

    fn call_extern(body: &mut Body<'_, Host>, call: &Call) -> Result<String> {
        body.host_extern(call)
    }

    fn before_sum(body: &mut Body<'_, Host>) {
        body.line("ANYFN_IN_ORDER;");
    }

    fn bind_vector(body: &mut Body<'_, Host>, var: &Ref<Var>, value: &Expr) -> Result<()> {
        body.bind_lanes(var, value)
    }

    fn call_packed(body: &mut Body<'_, Host>, call: &Call, result: Option<(&str, DType)>) -> Result<()> {
        if let Some((name, dtype)) = result {
            body.line(&format!("{};", Host::variable(dtype, name)?));
        }
        body.host_packed(call, result)
    }
}

impl Statements for Host {
    fn element(
        body: &mut Body<'_, Host>,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        lane: &str,
    ) -> Result<Option<String>> {
        if device::is_there(buffer) {
            let indices: Vec<String> = indices.iter().map(|index| printer::brief(index.as_object())).collect();
            bail!(
                "ValueError",
                "host code cannot access `{}[{}]`, which is in memory of a device",
                buffer.name,
                indices.join(", ")
            );
        }
        body.registers(buffer).is_some().then(|| body.register(buffer, indices, lane)).transpose()
    }

    fn for_loop(body: &mut Body<'_, Host>, node: &For) -> Result<()> {
        body.loop_of_any_kind(node)
    }

    fn launch(body: &mut Body<'_, Host>, node: &Launch) -> Result<()> {
        body.tasks(node)
    }

    fn allocate(body: &mut Body<'_, Host>, buffer: &Ref<Buffer>, inner: &Stmt) -> Result<()> {
        if &*buffer.scope == "shared" {
            bail!(
                "ValueError",
                "buffer `{}` is shared by the threads of a block, but C code for the host has no thread blocks",
                buffer.name
            );
        }
        if device::is_there(buffer) {
            return body.allocate_on_device(buffer, inner);
        }
        match registers::width(buffer, inner, body.dialect.options) {
            Some(width) => body.allocate_registers(buffer, width, inner),
            None => body.allocate_memory(buffer, inner),
        }
    }

    fn store_vector(body: &mut Body<'_, Host>, node: &BufferStore) -> Result<()> {
        body.store_lanes(node)
    }

    fn check(body: &mut Body<'_, Host>, condition: &str, kind: &str, message: &Message) -> Result<String> {
        let kind = Literal::c_str("the kind of an error", kind)?;
        let fail = body.fail(&format!("anyfn_fail({kind}, {})", message::printf(message)));
        Ok(format!("if (!({condition})) {fail}"))
    }
}
