//! Programs that were built for a device, and a cache of them.

use core::ffi::c_void;
use core::ptr;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyfn::{Result, bail};
use anyfn_kernels::{Kernel, POINTER};

use super::{Content, Format};
use crate::api::{self, Raw};
use crate::log::with_source;
use crate::nvrtc::{Form, nvrtc};
use crate::process::is_forked;
use crate::system::{CuDevice, System};

/// A program that was built for a device.
pub(super) struct Program {
    handle: Raw,
    /// The code from which it was built.
    code: Arc<[u8]>,
    system: &'static System,
    device: &'static CuDevice,
}

// SAFETY: the driver permits the use of modules on any thread, by several threads at a time.
unsafe impl Send for Program {}
// SAFETY: several threads may use a module at a time.
unsafe impl Sync for Program {}

impl Drop for Program {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        // The driver waits until the kernels of the module have finished.
        if let Ok(_current) = self.device.enter(self.system) {
            // SAFETY: the module was loaded for this value.
            unsafe { (self.system.api.cuModuleUnload)(self.handle) };
        }
    }
}

/// Programs that were used last, the newest at the end.
static CACHE: Mutex<Vec<Arc<Program>>> = Mutex::new(Vec::new());
/// Machine code that NVRTC has made, with the source and the architecture: several devices may have the same one.
static COMPILED: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
/// Maximum number of entries of each cache.
const CACHED: usize = 64;

struct Entry {
    source: Arc<str>,
    arch: String,
    code: Arc<[u8]>,
}

fn cache() -> MutexGuard<'static, Vec<Arc<Program>>> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Code from which the driver makes a program.
struct Code {
    bytes: Arc<[u8]>,
    /// Description of the code, for messages.
    about: String,
    /// True for text, which must end with NUL.
    is_text: bool,
}

impl Program {
    /// Returns the program that contains a kernel for a device. It is built if it is not in the cache.
    ///
    /// # Errors
    /// Returns `RuntimeError` with the log of the compiler or the driver, and the lines of the source that it names.
    pub(super) fn of(
        system: &'static System,
        device: &'static CuDevice,
        content: &Content,
        kernel: &Kernel,
    ) -> Result<Arc<Program>> {
        let choices = choices(device, content, kernel)?;
        let mut failed = None;
        for choice in choices {
            let code = match choice() {
                Ok(code) => code,
                Err(error) => {
                    failed = failed.or(Some(error));
                    continue;
                }
            };
            if let Some(program) = Program::known(device, &code.bytes) {
                return Ok(program);
            }
            // Not under the lock, because building takes long.
            match Program::load(system, device, &code) {
                Ok(program) => {
                    let program = Arc::new(program);
                    let mut cache = cache();
                    cache.push(program.clone());
                    let oldest = (cache.len() > CACHED).then(|| cache.remove(0));
                    drop(cache);
                    drop(oldest);
                    return Ok(program);
                }
                // Other code of the same kernel may be newer or older than the driver.
                Err((api::NO_BINARY | api::UNSUPPORTED_PTX, error)) => failed = failed.or(Some(error)),
                Err((_, error)) => return Err(error),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => bail!(
                "RuntimeError",
                "there is no code of the kernel `{}` for {}",
                kernel.name,
                device.describe(system)
            ),
        }
    }

    fn known(device: &CuDevice, code: &Arc<[u8]>) -> Option<Arc<Program>> {
        let mut cache = cache();
        let is_same = |program: &Arc<Program>| program.device.index == device.index && program.code == *code;
        let at = cache.iter().position(is_same)?;
        let program = cache.remove(at);
        cache.push(program.clone());
        Some(program)
    }

    /// Passes code to the driver.
    ///
    /// # Errors
    /// Returns the code of the error beside the error.
    fn load(
        system: &'static System,
        device: &'static CuDevice,
        code: &Code,
    ) -> Result<Program, (i32, anyfn::Error)> {
        const LOG: usize = 16 << 10;
        let _current = device.enter(system).map_err(|error| (0, error))?;
        let mut log = vec![0_u8; LOG];
        let mut options = [api::JIT_ERROR_LOG_BUFFER, api::JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The driver takes sizes as the values of pointers, and writes the size of the log in place of that of the buffer.
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG - 1)];
        let mut image = code.bytes.to_vec();
        if code.is_text {
            image.push(0);
        }
        let mut handle = ptr::null_mut();
        // SAFETY: the image is complete, text ends with NUL, and the log has the size that is passed.
        let result = unsafe {
            (system.api.cuModuleLoadDataEx)(
                &raw mut handle,
                image.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if result == api::SUCCESS {
            return Ok(Program { handle, code: code.bytes.clone(), system, device });
        }
        let text: Vec<u8> = log.into_iter().take_while(|byte| *byte != 0).collect();
        let text = String::from_utf8_lossy(&text).into_owned();
        let source = if code.is_text { String::from_utf8_lossy(&code.bytes) } else { "".into() };
        let error = system.error(result, &format!("load {}", code.about), device);
        let error = match text.trim().is_empty() {
            true => error,
            false => anyfn::Error::new(
                error.kind(),
                &format!("{}:\n{}", error.message(), with_source(&text, &source)),
            ),
        };
        Err((result, error))
    }
}

type Choice<'a> = Box<dyn FnOnce() -> Result<Code> + 'a>;

/// Returns the ways to get code of a kernel for a device, the preferred one first.
fn choices<'a>(device: &'a CuDevice, content: &'a Content, kernel: &'a Kernel) -> Result<Vec<Choice<'a>>> {
    let given = |bytes: &'a [u8], about: String, is_text: bool| -> Choice<'a> {
        Box::new(move || Ok(Code { bytes: bytes.into(), about, is_text }))
    };
    let Some(source) = content.source_of(kernel) else {
        let about = format!("a module in the format `{}`", content.format.name());
        return Ok(vec![given(&content.code, about, content.format == Format::Ptx)]);
    };
    let (machine, portable): (Vec<_>, Vec<_>) = content
        .compiled
        .iter()
        .filter(|compiled| compiled.kernel == kernel.name && compiled.runs_on(device.limits.capability))
        .partition(|compiled| compiled.form == Form::Cubin);
    let of = |compiled: &'a super::Compiled| {
        let is_text = compiled.form == Form::Ptx;
        let what = if is_text { "PTX" } else { "machine code" };
        let code = compiled.code.strip_suffix(b"\0").unwrap_or(&compiled.code);
        given(if is_text { code } else { &compiled.code }, format!("the {what} for {}", compiled.arch), is_text)
    };
    let mut all: Vec<Choice<'a>> = machine.into_iter().map(of).collect();
    let made = compiled_now(device, source);
    // Where the compiler is missing, PTX alone can help.
    if portable.is_empty() || nvrtc().is_ok() {
        all.push(Box::new(made));
    }
    all.extend(portable.into_iter().map(of));
    Ok(all)
}

/// Compiles a source for a device, or takes what was compiled before.
fn compiled_now<'a>(device: &'a CuDevice, source: &'a str) -> impl FnOnce() -> Result<Code> + 'a {
    move || {
        let fail = |reason: String| {
            anyfn::error!(
                "RuntimeError",
                "cannot compile a kernel in CUDA C for cuda:{}: {reason}; install NVRTC (it is part of the CUDA toolkit, and in PyPI the \
                 package `nvidia-cuda-nvrtc-cu12`, whose library ANYFN_NVRTC_LIBRARY must name), or build the module where it is installed, which adds PTX",
                device.index
            )
        };
        let nvrtc = nvrtc().map_err(fail)?;
        let (arch, form) = nvrtc.form_for(device.limits.capability).map_err(|reason| {
            anyfn::error!(
                "RuntimeError",
                "cannot compile a kernel in CUDA C for cuda:{}: {reason}",
                device.index
            )
        })?;
        let entries = || COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries()
            .iter()
            .find(|entry| entry.arch == arch && *entry.source == *source)
            .map(|entry| entry.code.clone());
        let bytes: Arc<[u8]> = match known {
            Some(code) => code,
            None => {
                let mut code = nvrtc.compile(source, &arch, form)?;
                if form == Form::Ptx && code.last() == Some(&0) {
                    code.pop();
                }
                let code: Arc<[u8]> = code.into();
                let mut entries = entries();
                if entries.len() >= CACHED {
                    entries.remove(0);
                }
                entries.push(Entry { source: source.into(), arch: arch.clone(), code: code.clone() });
                code
            }
        };
        Ok(Code {
            bytes,
            about: format!("a program that NVRTC compiled for {arch}"),
            is_text: form == Form::Ptx,
        })
    }
}

/// A kernel of a program, which any number of threads can launch.
pub(super) struct Built {
    program: Arc<Program>,
    pub(super) function: Raw,
    /// Maximum number of threads of a block.
    pub(super) threads: usize,
}

// SAFETY: the driver permits the use of functions on any thread, by several threads at a time.
unsafe impl Send for Built {}
// SAFETY: several threads may launch a function at a time.
unsafe impl Sync for Built {}

/// Maximum number of bytes of the arguments of a kernel, which all devices accept.
const ARGUMENTS: usize = 4096;

impl Built {
    /// Finds a kernel in a program, and checks it against its description and the limits of the device.
    ///
    /// # Errors
    /// Returns `ValueError` if the program has no such kernel, if its parameters are others, or if it exceeds a limit.
    pub(super) fn new(program: Arc<Program>, kernel: &Kernel) -> Result<Built> {
        let (system, device) = (program.system, program.device);
        let _current = device.enter(system)?;
        let name = CString::new(&*kernel.name).unwrap_or_default();
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, and the name is a C string.
        let code =
            unsafe { (system.api.cuModuleGetFunction)(&raw mut function, program.handle, name.as_ptr()) };
        if code == api::NOT_FOUND {
            bail!(
                "ValueError",
                "the code has no kernel `{}`; a kernel in CUDA C is a function `extern \"C\" __global__ void {0}(..)`",
                kernel.name
            );
        }
        system.check(code, &format!("find the kernel `{}`", kernel.name), device)?;
        let fail = |reason: String| {
            anyfn::error!("ValueError", "kernel `{}` on cuda:{}: {reason}", kernel.name, device.index)
        };
        if let Some(param_info) = system.api.param_info {
            check_parameters(kernel, |at| {
                let (mut offset, mut size) = (0, 0);
                // SAFETY: the function is loaded, and two numbers are written.
                let code = unsafe { param_info(function, at, &raw mut offset, &raw mut size) };
                (code == api::SUCCESS).then_some(size)
            })
            .map_err(fail)?;
        }
        let bytes: usize = kernel.args.iter().map(|arg| arg.bits() as usize / 8).sum();
        if bytes > ARGUMENTS {
            return Err(fail(format!("its arguments have {bytes} bytes, and devices accept {ARGUMENTS}")));
        }
        let mut threads = 0;
        // SAFETY: the function is loaded, and a number is written.
        let code = unsafe {
            (system.api.cuFuncGetAttribute)(&raw mut threads, api::FUNC_MAX_THREADS_PER_BLOCK, function)
        };
        system.check(code, &format!("read the limits of the kernel `{}`", kernel.name), device)?;
        let threads = usize::try_from(threads).unwrap_or(0).min(device.limits.threads);
        Ok(Built { program, function, threads })
    }

    /// Returns the device for which the kernel was built.
    pub(super) fn device(&self) -> &'static CuDevice {
        self.program.device
    }
}

/// Compares the sizes of the parameters of a kernel with its description. `size_of` returns the size of a parameter; `None` behind the last
/// one.
///
/// # Errors
/// Returns the first difference.
fn check_parameters(kernel: &Kernel, size_of: impl Fn(usize) -> Option<usize>) -> Result<(), String> {
    let declared = (0..ARGUMENTS).take_while(|at| size_of(*at).is_some()).count();
    if declared != kernel.args.len() {
        let described = kernel.args.len();
        return Err(format!(
            "its code has {declared} parameters, but its description {kernel} has {described}"
        ));
    }
    for (at, arg) in kernel.args.iter().enumerate() {
        let (expected, found) = (arg.bits() as usize / 8, size_of(at).unwrap_or(0));
        if found != expected {
            let is = if *arg == POINTER { "a pointer".to_owned() } else { arg.to_string() };
            return Err(format!(
                "parameter {at} of its code has {found} bytes, but its description {kernel} says {is}, which has {expected}"
            ));
        }
    }
    Ok(())
}
