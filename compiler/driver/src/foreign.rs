//! Modules that were built for another processor architecture.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyfn::{Module, ModuleKind, PackedFunc, Result, bail};

use crate::cache;
use crate::compile::{Compiler, io_error};
use crate::write::write;

/// Module that contains a library for another processor architecture. The functions of the module cannot be
/// called on this machine, but the module can be exported.
pub(crate) struct ForeignModule {
    pub(crate) compiler: Arc<Compiler>,
    pub(crate) library: PathBuf,
    pub(crate) arch: String,
    /// Kernels in WGSL, which the exported file contains; `None` for a module without kernels.
    pub(crate) kernels: Option<Arc<str>>,
}

/// Module of the kernels of a module for pages. The host code imports it, so that its source can be read.
pub(crate) struct ForeignKernels {
    pub(crate) kernels: Arc<str>,
}

impl ModuleKind for ForeignKernels {
    fn kind(&self) -> &str {
        "webgpu"
    }

    fn get_function(self: &Arc<Self>, name: &str) -> Result<Option<PackedFunc>> {
        bail!(
            "RuntimeError",
            "kernel `{name}` was built for WebGPU and cannot be called in this process; export the module that imports it to a \
             `.wasm` file and load it in a page"
        )
    }

    fn inspect_source(&self, _format: &str) -> Result<String> {
        Ok(self.kernels.to_string())
    }

    fn property_mask(&self) -> i32 {
        Module::EXPORTED
    }
}

impl ModuleKind for ForeignModule {
    fn kind(&self) -> &str {
        "foreign"
    }

    fn get_function(self: &Arc<Self>, name: &str) -> Result<Option<PackedFunc>> {
        bail!(
            "RuntimeError",
            "`{name}` was built for {} by `{}` and cannot be called on {}; export the module and load it there",
            self.arch,
            self.compiler.cc,
            std::env::consts::ARCH
        )
    }

    fn inspect_source(&self, _format: &str) -> Result<String> {
        let path = self.library.with_file_name(cache::SOURCE);
        std::fs::read_to_string(&path).map_err(|error| io_error(&path, &error))
    }

    fn write_formats(&self) -> Vec<String> {
        [if self.compiler.is_for_wasm() { "wasm" } else { "so" }, "o", "c"].map(String::from).into()
    }

    fn write_to_file(&self, path: &str, _format: &str) -> Result<bool> {
        write(&self.compiler, &self.library, self.kernels.as_deref(), Path::new(path)).map(|()| true)
    }

    fn property_mask(&self) -> i32 {
        Module::EXPORTED
    }
}
