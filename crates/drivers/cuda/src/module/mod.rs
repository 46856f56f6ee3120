//! The module kind `cuda`: kernels in CUDA C, PTX or machine code, each of which is a function.
//!
//! A module is built for a device when a function is called with tensors of that device for the first time, so that a module can be
//! created, saved and loaded where there is no device. A module in CUDA C may also carry code that was compiled earlier: PTX, which the
//! driver of each newer device translates, or machine code for one architecture. It then runs where NVRTC is not installed.

mod binary;
mod launch;
mod program;

use std::sync::Arc;

use anyfn::{Array, Device, Map, Module, ModuleKind, PackedFunc, Result, String as Text, bail, register};
use anyfn_kernels::{Kernel, module, payload, source_of};

use crate::nvrtc::{Form, nvrtc};

/// Kind of the modules.
const KIND: &str = "cuda";
/// Marks the code that follows the fields of Apache TVM in a saved module.
const COMPILED: &str = "anyfn.compiled";
/// Oldest architecture for which kernels are generated, as PTX for all newer ones.
const OLDEST: &str = "compute_75";

/// Format of the code of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// CUDA C.
    Source,
    Ptx,
    Cubin,
    /// Several of the other formats in one file.
    Fatbin,
}

const FORMATS: [(&str, Format); 4] =
    [("cuda", Format::Source), ("ptx", Format::Ptx), ("cubin", Format::Cubin), ("fatbin", Format::Fatbin)];

impl Format {
    fn name(self) -> &'static str {
        FORMATS.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }

    fn of(name: &str) -> Result<Format> {
        match FORMATS.iter().find(|(known, _)| *known == name) {
            Some((_, format)) => Ok(*format),
            None => bail!(
                "ValueError",
                "expected code in the format `cuda`, `ptx`, `cubin` or `fatbin` but got `{}`",
                name.escape_debug()
            ),
        }
    }
}

/// Code of a kernel that was compiled from CUDA C.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Compiled {
    kernel: String,
    form: Form,
    /// Architecture, such as `sm_90a`, or `compute_75` for PTX.
    arch: String,
    code: Vec<u8>,
}

impl Compiled {
    /// Returns the compute capability of the architecture, and true if the code runs on that one only: its name ends with a letter.
    fn capability(&self) -> Option<((i32, i32), bool)> {
        let text = self.arch.split_once('_')?.1;
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: i32 = digits.parse().ok()?;
        Some(((number / 10, number % 10), digits.len() < text.len()))
    }

    /// Returns true if a device of a compute capability can run the code.
    fn runs_on(&self, device: (i32, i32)) -> bool {
        match (self.capability(), self.form) {
            (Some((own, true)), _) => own == device,
            (Some((own, false)), Form::Cubin) => own.0 == device.0 && own.1 <= device.1,
            (Some((own, false)), Form::Ptx) => own <= device,
            (None, _) => false,
        }
    }
}

/// Content of a module of kind `cuda`.
struct Content {
    kernels: Vec<Kernel>,
    format: Format,
    code: Vec<u8>,
    compiled: Vec<Compiled>,
}

impl Content {
    fn new(kernels: Vec<Kernel>, format: Format, code: Vec<u8>) -> Result<Content> {
        module::check_names(KIND, kernels.iter())?;
        let is_text = matches!(format, Format::Source | Format::Ptx);
        if is_text && std::str::from_utf8(&code).is_err() {
            bail!("ValueError", "the code of a module in the format `{}` must be UTF-8", format.name());
        }
        if is_text && code.contains(&0) {
            bail!("ValueError", "the source contains a NUL character");
        }
        let checked = match format {
            Format::Cubin => binary::check_cubin(&code),
            Format::Fatbin => binary::check_fatbin(&code),
            Format::Source | Format::Ptx => Ok(()),
        };
        if let Err(reason) = checked {
            bail!("ValueError", "the code is not a {}: {reason}", format.name());
        }
        Ok(Content { kernels, format, code, compiled: Vec::new() })
    }

    /// Returns the source of the program that contains a kernel; `None` for a module without source.
    fn source_of(&self, kernel: &Kernel) -> Option<&str> {
        let text = std::str::from_utf8(&self.code).ok().filter(|_| self.format == Format::Source)?;
        Some(source_of(text, kernel, &self.kernels))
    }

    /// Compiles the kernels for an architecture, or, if it is empty, to PTX for all devices.
    fn compile(&mut self, arch: &str) -> Result<()> {
        if self.format != Format::Source {
            bail!("ValueError", "a module in the format `{}` is compiled already", self.format.name());
        }
        let (arch, form) = match arch {
            "" => (OLDEST, Form::Ptx),
            arch if arch.starts_with("compute_") => (arch, Form::Ptx),
            arch => (arch, Form::Cubin),
        };
        let nvrtc = match nvrtc() {
            Ok(nvrtc) => nvrtc,
            Err(reason) => bail!("RuntimeError", "cannot compile kernels for {arch}: {reason}"),
        };
        let mut all = Vec::new();
        for kernel in &self.kernels {
            let Some(source) = self.source_of(kernel) else { continue };
            let code = nvrtc.compile(source, arch, form)?;
            all.push(Compiled { kernel: kernel.name.clone(), form, arch: arch.to_owned(), code });
        }
        self.compiled = all;
        Ok(())
    }

    fn read(bytes: &[u8]) -> Result<Content> {
        // The name of the format comes first.
        let mut start = payload::Reader::new(KIND, bytes);
        let format = Format::of(start.text()?)?;
        let mut reader = payload::Reader::new(KIND, bytes);
        let kernels = reader.table(format.name())?;
        let code = reader.bytes()?.to_vec();
        let mut content = Content::new(kernels, format, code)?;
        if reader.finish().is_ok() {
            return Ok(content);
        }
        if reader.text()? != COMPILED {
            return Err(reader.damaged());
        }
        for _ in 0..reader.length(32)? {
            let (kernel, form) = (reader.text()?.to_owned(), reader.text()?);
            let form = match form {
                "ptx" => Form::Ptx,
                "cubin" => Form::Cubin,
                _ => return Err(reader.damaged()),
            };
            let (arch, code) = (reader.text()?.to_owned(), reader.bytes()?.to_vec());
            if form == Form::Cubin && binary::check_cubin(&code).is_err() {
                return Err(reader.damaged());
            }
            content.compiled.push(Compiled { kernel, form, arch, code });
        }
        reader.finish()?;
        Ok(content)
    }

    fn write(&self) -> Vec<u8> {
        let mut bytes = payload::write_table(self.format.name(), &self.kernels);
        payload::write_bytes(&mut bytes, &self.code);
        if !self.compiled.is_empty() {
            payload::write_bytes(&mut bytes, COMPILED.as_bytes());
            payload::write_length(&mut bytes, self.compiled.len());
            for Compiled { kernel, form, arch, code } in &self.compiled {
                let form = if *form == Form::Ptx { "ptx" } else { "cubin" };
                for part in [kernel.as_bytes(), form.as_bytes(), arch.as_bytes(), code] {
                    payload::write_bytes(&mut bytes, part);
                }
            }
        }
        bytes
    }
}

impl ModuleKind for Content {
    fn kind(&self) -> &str {
        KIND
    }

    fn get_function(self: &Arc<Self>, name: &str) -> Result<Option<PackedFunc>> {
        let index = self.kernels.iter().position(|kernel| kernel.name == name);
        Ok(index.map(|index| launch::function(self.clone(), index)))
    }

    fn functions(&self) -> Vec<String> {
        self.kernels.iter().map(|kernel| kernel.name.clone()).collect()
    }

    fn property_mask(&self) -> i32 {
        Module::SAVED | Module::RUNS
    }

    fn save_to_bytes(&self) -> Result<Vec<u8>> {
        Ok(self.write())
    }

    fn inspect_source(&self, format: &str) -> Result<String> {
        let text = |code: &[u8]| String::from_utf8_lossy(code).trim_end_matches('\0').to_owned();
        match (format, self.format) {
            ("ptx", Format::Source) => {
                let all = self.compiled.iter().filter(|compiled| compiled.form == Form::Ptx);
                Ok(all.map(|compiled| text(&compiled.code)).collect::<Vec<String>>().join("\n"))
            }
            ("architectures", Format::Source) => {
                let mut all: Vec<&str> = self.compiled.iter().map(|compiled| &*compiled.arch).collect();
                all.dedup();
                Ok(all.join(", "))
            }
            (_, Format::Source | Format::Ptx) => Ok(text(&self.code)),
            (_, Format::Cubin | Format::Fatbin) => Ok(String::new()),
        }
    }
}

/// Creates a module from CUDA C. `device` is a device for which it is built at once, so that errors in the source are
/// found early; `None` builds it at the first launch.
///
/// # Errors
/// Returns `ValueError` if there is no kernel or two have one name. With a device also `RuntimeError` if the device is not
/// available or the source does not compile, and `ValueError` if a kernel differs from its description.
pub fn module(source: &str, kernels: Vec<Kernel>, device: Option<Device>) -> Result<Module> {
    made(Content::new(kernels, Format::Source, source.as_bytes().to_vec())?, device)
}

fn made(content: Content, device: Option<Device>) -> Result<Module> {
    if let Some(device) = device {
        let device = module::index_of(device, KIND, anyfn::abi::kDLCUDA)?;
        for index in 0..content.kernels.len() {
            launch::build(&content, index, device)?;
        }
    }
    Module::new(content)
}

/// Creates a module of kind `cuda` from CUDA C. `kernels` maps the name of each kernel to its parameters: "pointer"
/// for each buffer, the data type of each scalar, then the extents of a launch ("blockIdx.x" is the number of blocks
/// in the first dimension, "threadIdx.x" the number of threads of a block). If `device` is given, the module is built
/// for it at once, otherwise at the first launch. If `arch` is an architecture such as "sm_90", NVRTC compiles the kernels for it now, and
/// the module contains the machine code; for "compute_75" or another virtual architecture it contains PTX for that and newer devices. With
/// "", it contains PTX for all devices if NVRTC is installed, and otherwise the source alone.
#[register("anyfn.cuda_module", blocking)]
fn cuda_module(
    source: &str,
    kernels: Map<Text, Array<Text>>,
    #[default(None)] device: Option<Device>,
    #[default(None)] arch: Option<Text>,
) -> Result<Module> {
    let mut content = Content::new(module::parse(&kernels)?, Format::Source, source.as_bytes().to_vec())?;
    match arch.as_deref() {
        Some("") if nvrtc().is_err() => {}
        Some(arch) => content.compile(arch)?,
        None => {}
    }
    made(content, device)
}

/// Creates a module of kind `cuda` from code that another compiler has made. `format` is "ptx", "cubin" or "fatbin"; `kernels` and `device`
/// are those of `anyfn.cuda_module`.
#[register("anyfn.cuda_binary_module", blocking)]
fn cuda_binary_module(
    code: anyfn::Bytes,
    kernels: Map<Text, Array<Text>>,
    format: &str,
    #[default(None)] device: Option<Device>,
) -> Result<Module> {
    made(Content::new(module::parse(&kernels)?, Format::of(format)?, code.to_vec())?, device)
}

/// Loads a module of kind `cuda` from bytes that `save_to_bytes` or Apache TVM has written.
#[register("ffi.Module.load_from_bytes.cuda")]
fn load_from_bytes(bytes: anyfn::Bytes) -> Result<Module> {
    Module::new(Content::read(&bytes)?)
}

/// Loads a module of kind `cuda` from a file that `write_to_file` has written.
#[register("ffi.Module.load_from_file.cuda")]
fn load_from_file(path: &str, _format: &str) -> Result<Module> {
    module::load_file(path, load_from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content() -> Content {
        let kernels = vec![Kernel::parse("f", ["pointer", "int32", "blockIdx.x"]).unwrap()];
        Content::new(kernels, Format::Source, b"source".to_vec()).unwrap()
    }

    fn compiled(form: Form, arch: &str) -> Compiled {
        Compiled { kernel: "f".into(), form, arch: arch.into(), code: binary::tests::cubin() }
    }

    #[test]
    fn saved_modules_begin_as_those_of_apache_tvm() {
        let mut content = content();
        let plain = content.write();
        let mut expected = payload::write_table("cuda", &content.kernels);
        payload::write_bytes(&mut expected, b"source");
        assert_eq!(plain, expected);
        content.compiled = vec![compiled(Form::Cubin, "sm_80"), compiled(Form::Ptx, "compute_75")];
        let bytes = content.write();
        assert!(bytes.starts_with(&plain));
        let read = Content::read(&bytes).unwrap();
        assert_eq!((read.write(), read.compiled), (bytes.clone(), content.compiled));
        for end in (0..bytes.len()).filter(|end| *end != plain.len()) {
            assert_eq!(Content::read(&bytes[..end]).err().expect("damaged").kind(), "ValueError", "{end}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xFF;
            // Not everything is an error, but nothing may panic or allocate without limit.
            drop(Content::read(&damaged));
        }
    }

    #[test]
    fn code_runs_on_devices_of_its_architecture() {
        for (form, arch, device, expected) in [
            (Form::Cubin, "sm_80", (8, 0), true),
            (Form::Cubin, "sm_80", (8, 9), true),
            (Form::Cubin, "sm_86", (8, 0), false),
            (Form::Cubin, "sm_80", (9, 0), false),
            (Form::Cubin, "sm_90a", (9, 0), true),
            (Form::Cubin, "sm_100a", (10, 3), false),
            (Form::Ptx, "compute_75", (7, 5), true),
            (Form::Ptx, "compute_75", (12, 1), true),
            (Form::Ptx, "compute_90", (8, 9), false),
            (Form::Ptx, "compute_90a", (10, 0), false),
            (Form::Ptx, "compute", (10, 0), false),
        ] {
            assert_eq!(compiled(form, arch).runs_on(device), expected, "{form:?} {arch} {device:?}");
        }
    }

    #[test]
    fn code_in_another_format_is_refused() {
        let kernels = || vec![Kernel::parse("f", ["pointer"]).unwrap()];
        for (format, code) in [
            (Format::Cubin, &b"text"[..]),
            (Format::Fatbin, b"text"),
            (Format::Ptx, b"\xff"),
            (Format::Source, b"a\0b"),
            (Format::Ptx, b"a\0"),
        ] {
            assert_eq!(
                Content::new(kernels(), format, code.to_vec()).err().expect("refused").kind(),
                "ValueError"
            );
        }
        assert!(Format::of("cl").is_err());
    }
}
