//! Generates source code in languages of the C family.
//!
//! The module `family` generates the parts that all languages of the family have in common: statements,
//! scalar expressions, names and checks. A `Dialect` for each language generates the rest, and the table
//! `DIALECTS` selects the dialect of a target. To add a dialect, add a module that implements `Dialect`, and
//! a line to the table.
//!
//! The dialect `host` is C11 that any compiler accepts, with vectors for GCC and Clang. It uses only headers
//! of the C library. A function that requests it, by the attribute that the pass `make_packed_api` sets, gets
//! an entry point, `__tvm_ffi_<name>`, which checks the conditions on which the code relies. The code calls
//! functions of the runtime through pointers that the loader sets. For WebAssembly it uses no C library. The dialect
//! `opencl` is OpenCL C, `cuda` is CUDA C, `metal` is the Metal Shading Language, and `wgsl` is the language of WebGPU and Vulkan devices.
//! The source of a module for such a device is host code
//! and kernels, which [`parts`] separates. The dialect `null` is the language of an imaginary device, and the template for
//! the dialects of devices.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

mod cuda;
mod family;
mod host;
mod metal;
mod null;
mod opencl;
mod wgsl;

use anyfn::{Result, bail};
use anyfn_ir::func::IRModule;
use anyfn_ir::target::Target;

use crate::family::Dialect;

/// Function that generates the source of a module in one dialect.
type Generate = fn(&IRModule, &Target) -> Result<String>;

/// Kinds of targets, each with the name of its dialect and its code generator.
const DIALECTS: &[(&str, &str, Generate)] = &[
    ("c", host::Host::NAME, family::module::<host::Host>),
    ("cuda", cuda::Cuda::NAME, family::device_module::<host::Host, cuda::Cuda>),
    ("metal", metal::Metal::NAME, family::device_module::<host::Host, metal::Metal>),
    ("opencl", opencl::OpenCl::NAME, family::device_module::<host::Host, opencl::OpenCl>),
    ("vulkan", wgsl::NAME, family::device_module::<host::Host, wgsl::Wgsl<{ wgsl::VULKAN }>>),
    ("webgpu", wgsl::NAME, wgsl::web_module),
    ("wasm", host::Host::NAME, host::wasm_module),
    ("null", null::Null::NAME, family::module::<null::Null>),
];

/// Name of the host dialect, which C compilers accept.
pub const HOST_DIALECT: &str = host::Host::NAME;

/// Generates the source of a module for a target. The functions of the module must have been lowered.
///
/// # Errors
/// Returns `ValueError` or `TypeError`, naming the function, if a function cannot be expressed in the language. Returns
/// `ValueError` for a target kind without a code generator.
pub fn generate(module: &IRModule, target: &Target) -> Result<String> {
    let (_, generate) = of_kind(target)?;
    generate(module, target)
}

/// Source of a module for a device.
pub struct DeviceCode<'a> {
    /// Name of the device kind.
    pub kind: &'a str,
    /// Source of the kernels.
    pub source: &'a str,
    /// Names of the kernels, each with the parameters of a launch: `pointer` for a buffer, the data types of numbers, and
    /// the thread axes.
    pub kernels: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> DeviceCode<'a> {
    /// Returns the sources of the kernels, each of which is complete by itself.
    pub fn sources(&self) -> impl Iterator<Item = &'a str> {
        let is_start = |(at, _): &(usize, &str)| *at == 0 || self.source.as_bytes()[at - 1] == b'\n';
        let starts: Vec<usize> =
            self.source.match_indices(family::MARKER).filter(is_start).map(|(at, _)| at).collect();
        let ends: Vec<usize> = starts.iter().skip(1).copied().chain([self.source.len()]).collect();
        let source = self.source;
        starts.into_iter().zip(ends).map(move |(start, end)| &source[start..end])
    }
}

/// Separates the source that [`generate`] has returned into the host code and the code for a device, if there is any.
#[must_use]
pub fn parts(text: &str) -> (&str, Option<DeviceCode<'_>>) {
    let Some((host, rest)) = text.split_once(family::SEPARATOR) else { return (text, None) };
    let (kind, source) = rest.split_once('\n').unwrap_or((rest, ""));
    let mut kernels = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix(family::MARKER) {
            let params =
                lines.next().and_then(|line| line.strip_prefix(family::PARAMETERS)).unwrap_or_default();
            kernels.push((name, params.split(", ").collect()));
        }
    }
    (host, Some(DeviceCode { kind, source, kernels }))
}

/// Returns the name of the dialect in which source is generated for a target, such as [`HOST_DIALECT`].
///
/// # Errors
/// Returns `ValueError` for a target kind without a code generator.
pub fn dialect_of(target: &Target) -> Result<&'static str> {
    of_kind(target).map(|(name, _)| name)
}

/// Returns the name of the dialect of a target, and its code generator.
fn of_kind(target: &Target) -> Result<(&'static str, Generate)> {
    match DIALECTS.iter().find(|(kind, ..)| *kind == &*target.kind) {
        Some((_, name, generate)) => Ok((*name, *generate)),
        None => {
            let known: Vec<&str> = DIALECTS.iter().map(|(kind, ..)| *kind).collect();
            bail!(
                "ValueError",
                "cannot generate code for a target of kind `{}`; known kinds are `{}`",
                target.kind,
                known.join("`, `")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_kind_has_a_dialect() {
        for kind in Target::KINDS.iter().chain(Target::FOR_TESTS) {
            assert!(DIALECTS.iter().any(|(known, ..)| known == kind), "{kind}");
        }
    }
}
