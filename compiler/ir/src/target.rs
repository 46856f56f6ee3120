//! Targets: the processor or device for which code is generated, and the C compiler.
//!
//! A target is plain data. The compiler driver detects processors and compilers, and provides the constructor that other
//! languages call.

use anyfn::abi::{kDLCUDA, kDLMetal, kDLOpenCL, kDLVulkan, kDLWebGPU};
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
    /// Target kind: `c`, `cuda`, `metal`, `opencl`, `vulkan`, `wasm` (WebAssembly), `webgpu` (WebAssembly that launches kernels on GPUs),
    /// or, in tests of the compiler, `null`.
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
    /// Architecture of the device, such as `sm_80`, for which the kernels are also compiled to machine code. If it is empty, the
    /// driver of the device compiles the kernels.
    #[field(default)]
    pub device_arch: String,
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
    /// Largest possible value of [`Target::max_threads`].
    pub most_threads: i64,
    /// Largest possible value of [`Target::local_memory`].
    pub most_memory: i64,
    /// Possible values of [`Target::device_arch`], besides the empty one.
    pub architectures: &'static [&'static str],
}

/// Architectures of NVIDIA GPUs for which kernels can be compiled. The compiler of CUDA 13 knows no older ones.
const CUDA_ARCHITECTURES: &[&str] = &[
    "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103",
    "sm_103a", "sm_110", "sm_110a", "sm_120", "sm_120a", "sm_121", "sm_121a",
];

impl Target {
    /// Supported target kinds.
    pub const KINDS: &[&str] = &["c", "cuda", "metal", "opencl", "vulkan", "wasm", "webgpu"];

    /// Feature of WebGPU devices that have the type `float16`.
    pub const SHADER_F16: &str = "shader-f16";

    /// Target kinds that are devices. A module for a device consists of host code and kernels.
    pub const DEVICES: &[DeviceKind] = &[
        DeviceKind {
            kind: "cuda",
            device_type: kDLCUDA,
            max_threads: 1024,
            local_memory: 49152,
            most_threads: 1024,
            // CUDA C declares at most 48 KiB of shared memory; more would have to be a parameter of the launch.
            most_memory: 49152,
            architectures: CUDA_ARCHITECTURES,
        },
        DeviceKind {
            kind: "metal",
            device_type: kDLMetal,
            // The limits of all Apple GPUs since 2014 and of all Macs. No GPU has higher ones.
            max_threads: 1024,
            local_memory: 32768,
            most_threads: 1024,
            most_memory: 32768,
            architectures: &[],
        },
        DeviceKind {
            kind: "opencl",
            device_type: kDLOpenCL,
            max_threads: 256,
            local_memory: 16384,
            most_threads: Target::MOST_OF_DEVICE,
            most_memory: Target::MOST_OF_DEVICE,
            architectures: &[],
        },
        DeviceKind {
            kind: "vulkan",
            device_type: kDLVulkan,
            max_threads: 256,
            local_memory: 16384,
            most_threads: Target::MOST_OF_DEVICE,
            most_memory: Target::MOST_OF_DEVICE,
            architectures: &[],
        },
        DeviceKind {
            kind: "webgpu",
            device_type: kDLWebGPU,
            max_threads: 256,
            local_memory: 16384,
            most_threads: Target::MOST_OF_DEVICE,
            most_memory: Target::MOST_OF_DEVICE,
            architectures: &[],
        },
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
        match self.device_kind() {
            Some(device) => device.check(self.max_threads, self.local_memory, &self.device_arch)?,
            None if !self.device_arch.is_empty() => bail!(
                "ValueError",
                "a target of kind `{}` has no device architecture, but `device_arch` is `{}`",
                self.kind,
                self.device_arch.escape_debug()
            ),
            None => {}
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
            device_arch: "".into(),
        }
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

impl DeviceKind {
    /// Checks the limits and the architecture of a device.
    ///
    /// # Errors
    /// Returns `ValueError` for a limit out of range, and for an unknown architecture.
    pub fn check(&self, max_threads: i64, local_memory: i64, arch: &str) -> Result<()> {
        let of = match self.most_threads {
            Target::MOST_OF_DEVICE => "a device".to_owned(),
            _ => format!("a target of kind `{}`", self.kind),
        };
        for (name, limit, most) in
            [("max_threads", max_threads, self.most_threads), ("local_memory", local_memory, self.most_memory)]
        {
            if !(1..=most).contains(&limit) {
                bail!("ValueError", "`{name}` of {of} must be from 1 to {most}, not {limit}");
            }
        }
        if arch.is_empty() || self.architectures.contains(&arch) {
            return Ok(());
        }
        if self.architectures.is_empty() {
            bail!("ValueError", "a target of kind `{}` has no option `device_arch`", self.kind);
        }
        bail!(
            "ValueError",
            "unknown device architecture `{}` of a target of kind `{}`; known architectures: `{}`",
            arch.escape_debug(),
            self.kind,
            self.architectures.join("`, `")
        )
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
            device_arch: "".into(),
        }
    }

    #[test]
    fn devices_have_limits_and_architectures() {
        let cuda = |max_threads, local_memory, arch: &str| Target {
            max_threads,
            local_memory,
            device_arch: arch.into(),
            ..target("cuda", 16, 1)
        };
        assert!(cuda(1024, 49152, "").check().is_ok() && cuda(1, 1, "sm_90a").check().is_ok());
        for (bad, text) in [
            (cuda(1025, 1, ""), "`max_threads` of a target of kind `cuda` must be from 1 to 1024, not 1025"),
            (
                cuda(1, 49153, ""),
                "`local_memory` of a target of kind `cuda` must be from 1 to 49152, not 49153",
            ),
            (
                Target { kind: "metal".into(), ..cuda(1, 32769, "") },
                "`local_memory` of a target of kind `metal` must be from 1 to 32768, not 32769",
            ),
            (cuda(1, 1, "sm_70"), "unknown device architecture `sm_70` of a target of kind `cuda`; known"),
            (
                Target { kind: "opencl".into(), ..cuda(1, 1, "sm_80") },
                "of kind `opencl` has no option `device_arch`",
            ),
            (Target { kind: "c".into(), ..cuda(1, 1, "sm_80") }, "of kind `c` has no device architecture"),
        ] {
            let error = bad.check().unwrap_err();
            assert!(error.kind() == "ValueError" && error.message().contains(text), "{}", error.message());
        }
    }

    #[test]
    fn fields_are_checked() {
        let good = target("c", 48, 3);
        assert!(good.check().is_ok() && good.has("sve") && !good.has("avx"));
        assert!(target("null", 0, 1).check().is_ok());
        for (bad, text) in [
            (target("rocm", 16, 1), "unknown target kind `rocm`"),
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
