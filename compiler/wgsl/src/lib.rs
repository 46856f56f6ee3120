//! Translates kernels in WGSL to SPIR-V, which drivers of Vulkan take.
//!
//! The result has the semantics of WGSL: an index out of bounds accesses some element of the array instead, memory of a work group begins
//! with zeros, and an integer division by zero has a defined result. It contains the source, as debug information.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

mod source;

use anyfn::{Bytes, Error, Result, bail, register};
use naga::ShaderStage;
use naga::back::pipeline_constants::process_overrides;
use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// Translates the kernel `kernel` of a source in WGSL to SPIR-V.
///
/// ```
/// # extern crate anyfn_core as _;
/// let source = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
/// @compute @workgroup_size(64) fn double(@builtin(global_invocation_id) id: vec3<u32>) { x[id.x] *= 2.0; }";
/// let code = anyfn_wgsl::to_spirv(source, "double").unwrap();
/// assert_eq!(code[0], 0x0723_0203);
///
/// let error = anyfn_wgsl::to_spirv("fn f() -> i32 {\n  return y;\n}", "f").unwrap_err();
/// assert!(error.message().contains("return y;"));
/// ```
///
/// # Errors
/// Returns `RuntimeError` with the message of the translator and the line of the source, `ValueError` if the source has no such kernel.
pub fn to_spirv(source: &str, kernel: &str) -> Result<Vec<u32>> {
    let fail = |text: String| {
        anyfn::error!("RuntimeError", "cannot translate the kernel `{kernel}` from WGSL:\n{}", text.trim_end())
    };
    let module = naga::front::wgsl::parse_str(source).map_err(|error| fail(error.emit_to_string(source)))?;
    let mut validator = Validator::new(ValidationFlags::all(), spv::supported_capabilities());
    let info = validator.validate(&module).map_err(|error| fail(error.emit_to_string(source)))?;
    let is_kernel = |entry: &&naga::EntryPoint| entry.stage == ShaderStage::Compute;
    if !module.entry_points.iter().filter(is_kernel).any(|entry| entry.name == kernel) {
        let names: Vec<&str> = module.entry_points.iter().filter(is_kernel).map(|entry| &*entry.name).collect();
        bail!("ValueError", "the source has no kernel `{kernel}`, only: {}", names.join(", "));
    }
    let stage = ShaderStage::Compute;
    let (module, info) = process_overrides(&module, &info, Some((stage, kernel)), &Default::default())
        .map_err(|error| fail(error.to_string()))?;
    let options = spv::Options {
        lang_version: (1, 3),
        flags: spv::WriterFlags::empty(),
        bounds_check_policies: BoundsCheckPolicies {
            index: BoundsCheckPolicy::Restrict,
            buffer: BoundsCheckPolicy::Restrict,
            ..BoundsCheckPolicies::default()
        },
        // Drivers of kernels need no protection from loops that do not end.
        force_loop_bounding: false,
        use_storage_input_output_16: false,
        ..spv::Options::default()
    };
    let pipeline = spv::PipelineOptions { shader_stage: stage, entry_point: kernel.to_owned() };
    let words = spv::write_vec(&module, &info, &options, Some(&pipeline));
    Ok(source::with_source(words.map_err(|error| fail(error.to_string()))?, source))
}

/// Checks that a source is valid WGSL for WebGPU devices, without immediates and types of 64 bits.
///
/// # Errors
/// Returns `RuntimeError` with the message of the translator and the line of the source.
pub fn check(source: &str) -> Result<()> {
    let fail =
        |text: String| anyfn::error!("RuntimeError", "the WGSL is not valid for WebGPU:\n{}", text.trim_end());
    let module = naga::front::wgsl::parse_str(source).map_err(|error| fail(error.emit_to_string(source)))?;
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::SHADER_FLOAT16);
    validator.validate(&module).map(drop).map_err(|error| fail(error.emit_to_string(source)))
}

/// Translates the kernel `kernel` of a source in WGSL to SPIR-V, whose words have the lowest byte first.
#[register("anyfn.wgsl_to_spirv", blocking)]
fn wgsl_to_spirv(source: &str, kernel: &str) -> Result<Bytes, Error> {
    let bytes: Vec<u8> = to_spirv(source, kernel)?.into_iter().flat_map(u32::to_le_bytes).collect();
    Ok(Bytes::from(&*bytes))
}

#[cfg(test)]
mod tests {
    use super::{check, to_spirv};

    const SOURCE: &str = "
struct Numbers { by: f32, count: u32 }
var<immediate> numbers: Numbers;
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
override size: u32 = 32;

@compute @workgroup_size(size)
fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < numbers.count) { x[id.x] *= numbers.by; }
}

@compute @workgroup_size(1)
fn clear() { x[0] = 0.0; }
";

    #[track_caller]
    fn refused(source: &str, kernel: &str, kind: &str, texts: &[&str]) {
        let error = to_spirv(source, kernel).unwrap_err();
        assert_eq!(error.kind(), kind, "{}", error.message());
        for text in texts {
            assert!(error.message().contains(text), "{}", error.message());
        }
    }

    #[test]
    fn kernels_are_translated_one_by_one() {
        let (scale, clear) = (to_spirv(SOURCE, "scale").unwrap(), to_spirv(SOURCE, "clear").unwrap());
        for code in [&scale, &clear] {
            assert_eq!((code[0], code[1]), (0x0723_0203, 0x0001_0300));
        }
        assert!(scale.len() > clear.len());
    }

    #[test]
    fn what_webgpu_lacks_is_refused() {
        check("enable f16;\n@group(0) @binding(0) var<storage, read_write> x: array<f16>;\n@compute @workgroup_size(1) fn f() { x[0] += 1.5h; }")
            .unwrap();
        for source in
            [SOURCE, "@compute @workgroup_size(1) fn f() { let a: i64 = 1li; }", "fn f() { let a = b; }"]
        {
            let error = check(source).unwrap_err();
            assert!(error.message().starts_with("the WGSL is not valid for WebGPU:\n"), "{}", error.message());
        }
    }

    #[test]
    fn mistakes_are_shown_with_their_line() {
        refused(SOURCE, "missing", "ValueError", &["the source has no kernel `missing`, only: scale, clear"]);
        let unknown = "@compute @workgroup_size(1)\nfn f() {\n  let a = b;\n}";
        refused(
            unknown,
            "f",
            "RuntimeError",
            &["cannot translate the kernel `f` from WGSL", "let a = b;", ":3:"],
        );
        refused("fn f( {", "f", "RuntimeError", &["fn f( {"]);
        let wrong = "@compute @workgroup_size(1) fn f() { let a: i32 = 1u; }";
        refused(wrong, "f", "RuntimeError", &["i32"]);
        let invalid = "@compute @workgroup_size(0) fn f() {}";
        refused(invalid, "f", "RuntimeError", &["Workgroup size is out of range"]);
        let open = "override n: u32;\n@compute @workgroup_size(n) fn f() {}";
        refused(open, "f", "RuntimeError", &["n"]);
    }
}
