//! Targets: the processor or device for which code is generated, and the C compiler.
//!
//! A target is plain data. The compiler driver detects processors and compilers, and provides the constructor that other
//! languages call.

use anyfn::abi::{kDLOpenCL, kDLVulkan, kDLWebGPU};
use anyfn::{Array, IntoAny, Object, Ref, Result, String, bail, methods};

use crate::func::IRModule;

/// Target: the processor for which code is generated, and the C compiler that compiles the code. For a device, the kernels
/// are generated in the language of the device, and the processor runs the host code, which launches them.
///
/// The compiler driver constructs targets from the processors and compilers that it detects.
/// [`Target::check`] checks the fields of other targets.
#[derive(Object)]
#[object(key = "tir.Target", structural = "tree", final)]
pub struct Target {
    /// Target kind: `c`, `opencl`, `vulkan`, `wasm` (WebAssembly), `webgpu` (WebAssembly that launches kernels on GPUs), or, in
    /// tests of the compiler, `null`.
    pub kind: String,
    /// Architecture of the processor, such as `x86_64` or `aarch64`.
    pub arch: String,
    /// Name of the processor, as the C compiler expects it. `native` is the processor of this machine. If the
    /// name is empty, the compiler uses its default.
    pub mcpu: String,
    /// Features that code generators use: those of the processor, such as `avx2`, `fma` and `neon`, and `shader-f16`, a feature of
    /// WebGPU devices.
    pub features: Array<String>,
    /// Size of the vector registers in bytes. If it is 0, the generated code uses no vector extensions and is
    /// accepted by any C11 compiler.
    pub vector_bytes: i64,
    /// Expected number of cores that run the code.
    pub num_cores: i64,
    /// Command that starts the C compiler: a program name or path, and optional arguments. A word that
    /// contains blanks is quoted.
    pub cc: String,
    /// Further arguments of the C compiler.
    pub options: Array<String>,
    /// Maximum number of threads of a block on the device, which OpenCL calls the work items of a work group. 0 for a
    /// target that is not a device.
    #[field(default)]
    pub max_threads: i64,
    /// Size in bytes of the memory that the threads of a block share, which OpenCL calls local memory. 0 for a target that
    /// is not a device.
    #[field(default)]
    pub local_memory: i64,
}

/// Limits of a kind of device that a target has unless others are given. Every device of that kind should meet them.
pub struct DeviceKind {
    /// Target kind, which is also the name of the device kind.
    pub kind: &'static str,
    /// Device type of the tensors that kernels access.
    pub device_type: i32,
    /// Default of [`Target::max_threads`].
    pub max_threads: i64,
    /// Default of [`Target::local_memory`].
    pub local_memory: i64,
}

impl Target {
    /// Supported target kinds.
    pub const KINDS: &[&str] = &["c", "opencl", "vulkan", "wasm", "webgpu"];

    /// Feature of WebGPU devices that have the type `float16`.
    pub const SHADER_F16: &str = "shader-f16";

    /// Target kinds that are devices. A module for a device consists of host code and kernels.
    pub const DEVICES: &[DeviceKind] = &[
        DeviceKind { kind: "opencl", device_type: kDLOpenCL, max_threads: 256, local_memory: 16384 },
        DeviceKind { kind: "vulkan", device_type: kDLVulkan, max_threads: 256, local_memory: 16384 },
        DeviceKind { kind: "webgpu", device_type: kDLWebGPU, max_threads: 256, local_memory: 16384 },
    ];

    /// Target kinds for tests of the compiler. `null` is an imaginary device, for which source is generated, but no compiler
    /// exists. Messages do not list these kinds.
    pub const FOR_TESTS: &[&str] = &["null"];

    /// Largest value of [`Target::max_threads`] and [`Target::local_memory`].
    const MOST_OF_DEVICE: i64 = 1 << 30;

    /// Maximum number of cores of a target.
    const MOST_CORES: i64 = 1 << 16;

    /// Returns the target of a module, which is its attribute `target`, or `None` if there is no such attribute.
    ///
    /// # Errors
    /// Returns `TypeError` if the attribute is not a target, and `ValueError` if a field of the target is out of range.
    pub fn of(module: &IRModule) -> Result<Option<Ref<Target>>> {
        let Some(target) = module.attrs.get_any("target")? else { return Ok(None) };
        let target = target.get::<Ref<Target>>()?;
        target.check()?;
        Ok(Some(target))
    }

    /// Returns a copy of a module with the attribute `target` set to the given target.
    ///
    /// # Errors
    /// Returns `MemoryError` when memory runs out.
    pub fn put(target: &Ref<Target>, module: &IRModule) -> Result<Ref<IRModule>> {
        let mut attrs = module.attrs.clone();
        attrs.insert("target".into(), target.clone().into_any()?)?;
        Ok(Ref::new(IRModule { functions: module.functions.clone(), attrs }))
    }

    /// Checks that the fields of the target are in range. A deserialised target may have invalid fields.
    ///
    /// # Errors
    /// Returns `ValueError` if a field is out of range.
    pub fn check(&self) -> Result<()> {
        Target::check_kind(&self.kind)?;
        Target::check_cores(self.num_cores)?;
        if self.device_kind().is_some() {
            Target::check_limit("max_threads", self.max_threads)?;
            Target::check_limit("local_memory", self.local_memory)?;
        }
        // SVE vectors may have any multiple of 16 bytes up to 256.
        if !(0..=256).contains(&self.vector_bytes) || self.vector_bytes % 16 != 0 {
            bail!(
                "ValueError",
                "`vector_bytes` of a target must be a multiple of 16 up to 256, not {}",
                self.vector_bytes
            );
        }
        Ok(())
    }

    /// Returns the description of the device kind, or `None` if the target is not a device.
    #[must_use]
    pub fn device_kind(&self) -> Option<&'static DeviceKind> {
        Target::DEVICES.iter().find(|device| device.kind == &*self.kind)
    }

    /// Returns true if the target is a web page: the host code is compiled to WebAssembly.
    #[must_use]
    pub fn is_for_page(&self) -> bool {
        matches!(&*self.kind, "wasm" | "webgpu")
    }

    /// Returns the target for the host code of a device: the processor that launches the kernels.
    #[must_use]
    pub fn host_part(&self) -> Target {
        Target {
            kind: if self.is_for_page() { "wasm" } else { "c" }.into(),
            arch: self.arch.clone(),
            mcpu: self.mcpu.clone(),
            features: self.features.clone(),
            vector_bytes: self.vector_bytes,
            num_cores: self.num_cores,
            cc: self.cc.clone(),
            options: self.options.clone(),
            max_threads: 0,
            local_memory: 0,
        }
    }

    /// Checks that a limit of a device is in range. `name` is the name of its field.
    ///
    /// # Errors
    /// Returns `ValueError` unless the limit is from 1 to 2^30.
    pub fn check_limit(name: &str, limit: i64) -> Result<()> {
        if !(1..=Target::MOST_OF_DEVICE).contains(&limit) {
            bail!(
                "ValueError",
                "`{name}` of a device must be from 1 to {}, not {limit}",
                Target::MOST_OF_DEVICE
            );
        }
        Ok(())
    }

    /// Checks that a target kind is known.
    ///
    /// # Errors
    /// Returns `ValueError` for an unknown kind.
    pub fn check_kind(kind: &str) -> Result<()> {
        if !Target::KINDS.contains(&kind) && !Target::FOR_TESTS.contains(&kind) {
            let known = Target::KINDS.join("`, `");
            bail!("ValueError", "unknown target kind `{kind}`; known kinds: `{known}`");
        }
        Ok(())
    }

    /// Checks that the number of cores of a target is between 1 and 65,536.
    ///
    /// # Errors
    /// Returns `ValueError` unless the number is from 1 to 65,536.
    pub fn check_cores(num_cores: i64) -> Result<()> {
        if num_cores < 1 {
            bail!("ValueError", "a target must have at least one core, not {num_cores}");
        }
        if num_cores > Target::MOST_CORES {
            bail!("ValueError", "a target must have at most {} cores, not {num_cores}", Target::MOST_CORES);
        }
        Ok(())
    }

    /// Returns true if the processor has a feature, such as `avx2`.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|known| &*known == feature)
    }

    /// Returns true if the target has the architecture of this machine.
    #[must_use]
    pub fn is_here(&self) -> bool {
        &*self.arch == std::env::consts::ARCH
    }
}

#[methods]
impl Target {
    /// Returns true if the processor has a feature, such as `avx2`.
    fn supports(&self, feature: &str) -> bool {
        self.has(feature)
    }
}

#[cfg(test)]
mod tests {
    use anyfn::Map;

    use super::*;

    fn target(kind: &str, vector_bytes: i64, num_cores: i64) -> Target {
        Target {
            kind: kind.into(),
            arch: "aarch64".into(),
            mcpu: "cortex-a72".into(),
            features: ["neon", "sve"].into_iter().map(String::from).collect(),
            vector_bytes,
            num_cores,
            cc: "cc".into(),
            options: Array::new(),
            max_threads: 0,
            local_memory: 0,
        }
    }

    #[test]
    fn fields_are_checked() {
        let good = target("c", 48, 3);
        assert!(good.check().is_ok() && good.has("sve") && !good.has("avx"));
        assert!(target("null", 0, 1).check().is_ok());
        for (bad, text) in [
            (target("cuda", 16, 1), "unknown target kind `cuda`"),
            (target("c", 24, 1), "must be a multiple of 16 up to 256, not 24"),
            (target("c", 272, 1), "must be a multiple of 16 up to 256, not 272"),
            (target("c", 16, 0), "at least one core"),
            (target("c", 16, 1 << 17), "at most 65536 cores"),
            (target("opencl", 16, 1), "`max_threads` of a device must be from 1 to 1073741824, not 0"),
        ] {
            let error = bad.check().unwrap_err();
            assert!(error.kind() == "ValueError" && error.message().contains(text), "{}", error.message());
        }
    }

    #[test]
    fn a_module_may_have_a_target() {
        let module = IRModule { functions: Map::new(), attrs: Map::new() };
        assert!(Target::of(&module).unwrap().is_none());
        let module = Target::put(&Ref::new(target("c", 16, 2)), &module).unwrap();
        assert_eq!(Target::of(&module).unwrap().unwrap().num_cores, 2);
        let module = Target::put(&Ref::new(target("c", 16, 0)), &module).unwrap();
        assert_eq!(Target::of(&module).err().unwrap().kind(), "ValueError");
    }
}
