//! Programs that were built for a device, and a cache of them.

use core::ffi::{CStr, c_void};
use core::ptr;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyfn::abi::{kDLFloat, kDLInt, kDLUInt};
use anyfn::{DType, Result, bail};
use anyfn_kernels::{Kernel, POINTER};

use super::log::with_source;
use crate::api::{self, Raw, code_name, info, number, text};
use crate::process::is_forked;
use crate::system::{ClDevice, System};

/// A program that was built for a device.
pub(super) struct Program {
    handle: Raw,
    source: Arc<str>,
    system: &'static System,
    device: &'static ClDevice,
}

// SAFETY: OpenCL permits the use of programs on any thread, by several threads at a time.
unsafe impl Send for Program {}
// SAFETY: OpenCL permits the use of programs by several threads at a time.
unsafe impl Sync for Program {}

impl Drop for Program {
    fn drop(&mut self) {
        if !is_forked() {
            // SAFETY: the program was created for this value.
            unsafe { (self.system.api.clReleaseProgram)(self.handle) };
        }
    }
}

/// Programs that were used last, the newest at the end.
static CACHE: Mutex<Vec<Arc<Program>>> = Mutex::new(Vec::new());
/// Maximum number of programs in [`CACHE`].
const CACHED: usize = 64;

fn cache() -> MutexGuard<'static, Vec<Arc<Program>>> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Options of every build, which make the types of the arguments known.
const OPTIONS: &CStr = c"-cl-kernel-arg-info";

impl Program {
    /// Returns the program of a source for a device. It is built if it is not in the cache.
    ///
    /// # Errors
    /// Returns `RuntimeError` with the log of the driver and the lines of the source that it names.
    pub(super) fn of(system: &'static System, device: &'static ClDevice, source: &str) -> Result<Arc<Program>> {
        let found = {
            let mut cache = cache();
            let is_same =
                |program: &Arc<Program>| program.device.index == device.index && *program.source == *source;
            let at = cache.iter().position(is_same);
            at.map(|at| {
                let program = cache.remove(at);
                cache.push(program.clone());
                program
            })
        };
        if let Some(program) = found {
            return Ok(program);
        }
        // Not under the lock, because building takes long.
        let program = Arc::new(Program::build(system, device, source)?);
        let mut cache = cache();
        cache.push(program.clone());
        let oldest = (cache.len() > CACHED).then(|| cache.remove(0));
        drop(cache);
        drop(oldest);
        Ok(program)
    }

    fn build(system: &'static System, device: &'static ClDevice, source: &str) -> Result<Program> {
        let opened = device.opened(&system.api)?;
        let api = &system.api;
        let (start, length) = (source.as_ptr().cast(), source.len());
        let mut code = 0;
        // SAFETY: one string with its length, which is borrowed for the call.
        let handle = unsafe {
            (api.clCreateProgramWithSource)(opened.context, 1, &raw const start, &raw const length, &mut code)
        };
        system.check(code, "create a program", device)?;
        let program = Program { handle, source: source.into(), system, device };
        // SAFETY: the program is new, and the device belongs to its context.
        let code = unsafe {
            (api.clBuildProgram)(handle, 1, &raw const device.id, OPTIONS.as_ptr(), ptr::null(), ptr::null())
        };
        if code == api::SUCCESS {
            return Ok(program);
        }
        // SAFETY: the program is alive; `info` passes memory of the size that it passes.
        let log = info(|size, value: *mut c_void, written| unsafe {
            (api.clGetProgramBuildInfo)(handle, device.id, api::PROGRAM_BUILD_LOG, size, value, written)
        });
        let log = log.map(|log| text(&log)).unwrap_or_default();
        let reason = if log.is_empty() { code_name(code) } else { with_source(&log, source) };
        bail!("RuntimeError", "cannot build a program of OpenCL C for {}:\n{reason}", device.describe())
    }

    /// Returns the names of the kernels in the program.
    fn names(&self) -> String {
        // SAFETY: the program is alive; `info` passes memory of the size that it passes.
        let names = info(|size, value: *mut c_void, written| unsafe {
            (self.system.api.clGetProgramInfo)(self.handle, api::PROGRAM_KERNEL_NAMES, size, value, written)
        });
        names.map(|names| text(&names).replace(';', ", ")).unwrap_or_default()
    }
}

/// A kernel of a program, which any number of threads can launch.
pub(super) struct Built {
    program: Arc<Program>,
    name: CString,
    /// Data types of the elements of the buffers, where the driver knows them.
    pub(super) elements: Vec<Option<DType>>,
    /// Maximum number of work items of a group.
    pub(super) group: usize,
    /// Group size that the source requires; zeros if it requires none.
    pub(super) required: [usize; 3],
    /// Kernel objects that no thread uses. Only one thread at a time may set the arguments of a kernel object.
    free: Mutex<Vec<Object>>,
}

/// A kernel object.
pub(super) struct Object {
    pub(super) handle: Raw,
    system: &'static System,
}

// SAFETY: OpenCL permits the use of a kernel object on any thread, by one thread at a time, which its owner is.
unsafe impl Send for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        if !is_forked() {
            // SAFETY: the kernel object was created for this value.
            unsafe { (self.system.api.clReleaseKernel)(self.handle) };
        }
    }
}

impl Built {
    /// Finds a kernel in a program, and checks it against its description and the limits of the device.
    ///
    /// # Errors
    /// Returns `ValueError` if the program has no such kernel, if its arguments are others, or if it exceeds a limit.
    pub(super) fn new(program: Arc<Program>, kernel: &Kernel) -> Result<Built> {
        let (system, device) = (program.system, program.device);
        let name = CString::new(&*kernel.name).unwrap_or_default();
        let mut built =
            Built { program, name, elements: Vec::new(), group: 0, required: [0; 3], free: Mutex::default() };
        let object = built.create()?;
        let fail = |reason: String| {
            anyfn::error!("ValueError", "kernel `{}` on opencl:{}: {reason}", kernel.name, device.index)
        };
        // SAFETY: the kernel object is alive; `info` passes memory of the size that it passes.
        let count = info(|size, value: *mut c_void, written| unsafe {
            (system.api.clGetKernelInfo)(object.handle, api::KERNEL_NUM_ARGS, size, value, written)
        });
        let count = count.map_err(|code| system.error(code, "read the arguments of a kernel", device))?;
        let (declared, described) = (number(&count) as usize, kernel.args.len());
        if declared != described {
            return Err(fail(format!(
                "its source has {declared} parameters, but its description {kernel} has {described}"
            )));
        }
        for (at, arg) in kernel.args.iter().enumerate() {
            let found = Parameter::of(system, &object, at);
            if found.as_ref().is_some_and(|found| found.is_local) {
                return Err(fail(format!(
                    "parameter {at} of its source is in local memory, which a launch does not pass; declare the array in \
                     the kernel"
                )));
            }
            if found.as_ref().is_some_and(|found| found.is_pointer != (*arg == POINTER)) {
                let is = if *arg == POINTER { "a pointer" } else { "a scalar" };
                return Err(fail(format!(
                    "parameter {at} of its source is not {is}, as its description {kernel} says"
                )));
            }
            let dtype = found.and_then(|found| found.dtype);
            if let Some(dtype) = dtype.filter(|dtype| *arg != POINTER && dtype != arg) {
                return Err(fail(format!(
                    "parameter {at} of its source is {dtype}, but {arg} in its description"
                )));
            }
            built.elements.push(dtype);
        }
        let bytes: usize = kernel.args.iter().map(|arg| arg.bits() as usize / 8).sum();
        if bytes > device.limits.arguments {
            let most = device.limits.arguments;
            return Err(fail(format!("its arguments have {bytes} bytes, and the device accepts {most}")));
        }
        let of = |what| {
            // SAFETY: the kernel object is alive; `info` passes memory of the size that it passes.
            info(|size, value: *mut c_void, written| unsafe {
                (system.api.clGetKernelWorkGroupInfo)(object.handle, device.id, what, size, value, written)
            })
            .unwrap_or_default()
        };
        // Some drivers end the process where a kernel has more local memory than the device.
        let local = number(&of(api::KERNEL_LOCAL_MEM_SIZE));
        if local > device.limits.local {
            let most = device.limits.local;
            return Err(fail(format!("it needs {local} bytes of local memory, and the device has {most}")));
        }
        let group = number(&of(api::KERNEL_WORK_GROUP_SIZE)) as usize;
        built.group = if group == 0 { device.limits.group } else { group.min(device.limits.group) };
        let required = of(api::KERNEL_COMPILE_WORK_GROUP_SIZE);
        for (size, word) in built.required.iter_mut().zip(required.chunks_exact(size_of::<usize>())) {
            *size = number(word) as usize;
        }
        built.give_back(object);
        Ok(built)
    }

    fn create(&self) -> Result<Object> {
        let Program { system, device, handle, .. } = &*self.program;
        let mut code = 0;
        // SAFETY: the program is alive, and the name is a C string.
        let kernel = unsafe { (system.api.clCreateKernel)(*handle, self.name.as_ptr(), &mut code) };
        if code == api::INVALID_KERNEL_NAME {
            let (name, names) = (self.name.to_string_lossy(), self.program.names());
            bail!("ValueError", "the source has no kernel `{name}`, only: {names}");
        }
        system.check(code, &format!("create the kernel `{}`", self.name.to_string_lossy()), device)?;
        Ok(Object { handle: kernel, system })
    }

    fn free(&self) -> MutexGuard<'_, Vec<Object>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a kernel object that no other thread uses.
    pub(super) fn take(&self) -> Result<Object> {
        let free = self.free().pop();
        free.map_or_else(|| self.create(), Ok)
    }

    /// Makes a kernel object available to other threads.
    pub(super) fn give_back(&self, object: Object) {
        self.free().push(object);
    }

    /// Returns the device for which the kernel was built.
    pub(super) fn device(&self) -> &'static ClDevice {
        self.program.device
    }
}

/// Properties of a parameter of a kernel, as the driver reports them.
struct Parameter {
    is_pointer: bool,
    is_local: bool,
    /// Data type of a scalar, or of the elements of a buffer, if it is one that the runtime has.
    dtype: Option<DType>,
}

impl Parameter {
    /// Returns what the driver knows about a parameter; `None` if it knows nothing.
    fn of(system: &System, object: &Object, at: usize) -> Option<Parameter> {
        let of = |what| {
            // SAFETY: the kernel object is alive; `info` passes memory of the size that it passes.
            info(|size, value: *mut c_void, written| unsafe {
                (system.api.clGetKernelArgInfo)(object.handle, at as u32, what, size, value, written)
            })
            .ok()
        };
        let space = number(&of(api::KERNEL_ARG_ADDRESS_QUALIFIER)?);
        let is_local = space == api::KERNEL_ARG_ADDRESS_LOCAL;
        let is_pointer = match space {
            api::KERNEL_ARG_ADDRESS_GLOBAL | api::KERNEL_ARG_ADDRESS_CONSTANT => true,
            api::KERNEL_ARG_ADDRESS_PRIVATE => false,
            _ if is_local => true,
            _ => return None,
        };
        let name = text(&of(api::KERNEL_ARG_TYPE_NAME)?);
        Some(Parameter { is_pointer, is_local, dtype: dtype_of(name.trim_end_matches(['*', ' '])) })
    }
}

/// Returns the data type that a type of OpenCL C has; `None` if it has none. A vector has that of its elements.
fn dtype_of(name: &str) -> Option<DType> {
    let name = name.trim_end_matches(|digit: char| digit.is_ascii_digit());
    let (code, bits) = match name {
        "char" => (kDLInt, 8),
        "short" => (kDLInt, 16),
        "int" => (kDLInt, 32),
        "long" => (kDLInt, 64),
        "uchar" | "unsigned char" => (kDLUInt, 8),
        "ushort" | "unsigned short" => (kDLUInt, 16),
        "uint" | "unsigned int" => (kDLUInt, 32),
        "ulong" | "unsigned long" => (kDLUInt, 64),
        "half" => (kDLFloat, 16),
        "float" => (kDLFloat, 32),
        "double" => (kDLFloat, 64),
        _ => return None,
    };
    Some(DType::new(code, bits, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_opencl_c_have_data_types() {
        assert_eq!(dtype_of("float4"), Some(DType::FLOAT32));
        assert_eq!(dtype_of("uchar"), Some(DType::UINT8));
        assert_eq!(dtype_of("long16"), Some(DType::INT64));
        assert_eq!(dtype_of("struct pair"), None);
    }
}
