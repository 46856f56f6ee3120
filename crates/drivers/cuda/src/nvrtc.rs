//! The compiler of CUDA C, NVRTC, which is opened at its first use.

use core::ffi::{CStr, c_char};
use core::ptr;
use std::ffi::CString;
use std::sync::OnceLock;

use anyfn::{Result, bail};
use anyfn_kernels::library::{self, Library};

use crate::api::Raw;
use crate::log::with_source;

/// The compiler of CUDA C.
const LIBRARY: Library = Library {
    what: "NVRTC, the compiler of CUDA C,",
    names: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    variable: "ANYFN_NVRTC_LIBRARY",
};

/// Name of a source in the messages of the compiler.
pub(crate) const NAME: &str = "kernel.cu";

macro_rules! functions {
    ($($name:ident($($arg:ty),*);)*) => {
        /// The functions of NVRTC. Each returns an error code.
        #[allow(non_snake_case, reason = "the names of NVRTC")]
        pub(crate) struct Nvrtc {
            /// Name under which the library was opened.
            pub(crate) library: String,
            /// Compute capabilities for which the compiler generates code, such as 80, in ascending order.
            pub(crate) architectures: Vec<i32>,
            version: (i32, i32),
            nvrtcGetErrorString: unsafe extern "C" fn(i32) -> *const c_char,
            $($name: unsafe extern "C" fn($($arg),*) -> i32,)*
        }

        impl Nvrtc {
            fn open() -> Result<Nvrtc, String> {
                let (library, handle) = LIBRARY.open()?;
                let symbol = |name: &CStr| {
                    // SAFETY: the library is open.
                    let address = unsafe { library::symbol(handle, name) };
                    address.ok_or_else(|| format!("{library} has no function {}; CUDA 11.2 or later is needed", name.to_string_lossy()))
                };
                let mut nvrtc = Nvrtc {
                    // SAFETY: the function has this type, by the interface of NVRTC.
                    nvrtcGetErrorString: unsafe {
                        core::mem::transmute::<Raw, unsafe extern "C" fn(i32) -> *const c_char>(symbol(c"nvrtcGetErrorString")?)
                    },
                    $($name: {
                        let name = CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()).unwrap_or_default();
                        // SAFETY: the function has this type, by the interface of NVRTC.
                        unsafe { core::mem::transmute::<Raw, unsafe extern "C" fn($($arg),*) -> i32>(symbol(name)?) }
                    },)*
                    library: library.clone(),
                    architectures: Vec::new(),
                    version: (0, 0),
                };
                nvrtc.ask()?;
                Ok(nvrtc)
            }
        }
    };
}

functions! {
    nvrtcVersion(*mut i32, *mut i32);
    nvrtcGetNumSupportedArchs(*mut i32);
    nvrtcGetSupportedArchs(*mut i32);
    nvrtcCreateProgram(*mut Raw, *const c_char, *const c_char, i32, *const *const c_char, *const *const c_char);
    nvrtcCompileProgram(Raw, i32, *const *const c_char);
    nvrtcGetProgramLogSize(Raw, *mut usize);
    nvrtcGetProgramLog(Raw, *mut c_char);
    nvrtcGetPTXSize(Raw, *mut usize);
    nvrtcGetPTX(Raw, *mut c_char);
    nvrtcGetCUBINSize(Raw, *mut usize);
    nvrtcGetCUBIN(Raw, *mut c_char);
    nvrtcDestroyProgram(*mut Raw);
}

/// Returns the compiler. The first call opens it.
///
/// # Errors
/// Returns the names that were tried, and why each could not be opened.
pub(crate) fn nvrtc() -> Result<&'static Nvrtc, String> {
    static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    NVRTC.get_or_init(Nvrtc::open).as_ref().map_err(Clone::clone)
}

/// A program of the compiler, destroyed on drop.
struct Program<'a> {
    handle: Raw,
    nvrtc: &'a Nvrtc,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program was created for this value.
        unsafe { (self.nvrtc.nvrtcDestroyProgram)(&raw mut self.handle) };
    }
}

/// Form of compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Code of a virtual processor, as text, which the driver of a device translates.
    Ptx,
    /// Machine code for one architecture.
    Cubin,
}

impl Nvrtc {
    fn ask(&mut self) -> Result<(), String> {
        let fail = |what: &str| Err(format!("{what} of {} failed", self.library));
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: writes two numbers.
        if unsafe { (self.nvrtcVersion)(&raw mut major, &raw mut minor) } != 0 {
            return fail("nvrtcVersion");
        }
        // SAFETY: writes a number.
        if unsafe { (self.nvrtcGetNumSupportedArchs)(&raw mut count) } != 0 {
            return fail("nvrtcGetNumSupportedArchs");
        }
        let mut all = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: there is room for `count` numbers.
        if unsafe { (self.nvrtcGetSupportedArchs)(all.as_mut_ptr()) } != 0 {
            return fail("nvrtcGetSupportedArchs");
        }
        all.sort_unstable();
        self.version = (major, minor);
        self.architectures = all;
        Ok(())
    }

    /// Returns the library and its version as text for messages.
    pub(crate) fn describe(&self) -> String {
        format!("{} of CUDA {}.{}", self.library, self.version.0, self.version.1)
    }

    /// Returns the architecture and the form of code to generate for a device: its machine code, or, if the device is newer than the compiler,
    /// PTX of the newest architecture that the device can run.
    ///
    /// # Errors
    /// Returns the reason why the compiler generates no code for the device.
    pub(crate) fn form_for(&self, capability: (i32, i32)) -> Result<(String, Form), String> {
        let number = 10 * capability.0 + capability.1;
        if self.architectures.contains(&number) {
            return Ok((format!("sm_{number}"), Form::Cubin));
        }
        match self.architectures.iter().rev().find(|known| **known < number) {
            Some(known) => Ok((format!("compute_{known}"), Form::Ptx)),
            None => Err(format!(
                "{} generates no code for sm_{number}, only for {:?}",
                self.describe(),
                self.architectures
            )),
        }
    }

    /// Compiles a source for an architecture such as `sm_80` (machine code) or `compute_75` (PTX).
    ///
    /// # Errors
    /// Returns `RuntimeError` with the log of the compiler and the lines of the source that it names, `ValueError` for a source that
    /// contains NUL.
    pub(crate) fn compile(&self, source: &str, arch: &str, form: Form) -> Result<Vec<u8>> {
        let Ok(text) = CString::new(source) else { bail!("ValueError", "the source contains a NUL character") };
        let name = CString::new(NAME).unwrap_or_default();
        let mut handle = ptr::null_mut();
        // SAFETY: both strings live during the call, and there are no headers.
        let code = unsafe {
            (self.nvrtcCreateProgram)(
                &raw mut handle,
                text.as_ptr(),
                name.as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        if code != 0 {
            bail!("RuntimeError", "nvrtcCreateProgram of {} returned {}", self.library, self.code_name(code));
        }
        let program = Program { handle, nvrtc: self };
        let options = [format!("--gpu-architecture={arch}"), "--std=c++17".to_owned()];
        let options = options.map(|option| CString::new(option).unwrap_or_default());
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is alive, and the options live during the call.
        let code =
            unsafe { (self.nvrtcCompileProgram)(program.handle, pointers.len() as i32, pointers.as_ptr()) };
        if code != 0 {
            let log = program.log();
            let reason = if log.is_empty() { self.code_name(code) } else { with_source(&log, source) };
            bail!(
                "RuntimeError",
                "cannot compile a program of CUDA C for {arch} with {}:\n{reason}",
                self.describe()
            );
        }
        let (size_of, get) = match form {
            Form::Ptx => (self.nvrtcGetPTXSize, self.nvrtcGetPTX),
            Form::Cubin => (self.nvrtcGetCUBINSize, self.nvrtcGetCUBIN),
        };
        let mut size = 0;
        // SAFETY: the program is alive, and a number is written.
        let code = unsafe { size_of(program.handle, &raw mut size) };
        let mut out = vec![0_u8; size];
        if code != 0 || size == 0 {
            bail!("RuntimeError", "{} has made no code for {arch}", self.describe());
        }
        // SAFETY: the program is alive, and there is room for its code.
        let code = unsafe { get(program.handle, out.as_mut_ptr().cast()) };
        if code != 0 {
            bail!("RuntimeError", "cannot read the code from {}: {}", self.library, self.code_name(code));
        }
        Ok(out)
    }

    fn code_name(&self, code: i32) -> String {
        // SAFETY: the function returns a constant C string, or NULL.
        let text = unsafe { (self.nvrtcGetErrorString)(code) };
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: a C string of the library, which is never freed.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} ({code})", text.to_string_lossy())
    }
}

impl Program<'_> {
    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: the program is alive, and a number is written.
        if unsafe { (self.nvrtc.nvrtcGetProgramLogSize)(self.handle, &raw mut size) } != 0 {
            return String::new();
        }
        let mut log = vec![0_u8; size];
        // SAFETY: the program is alive, and there is room for its log.
        if unsafe { (self.nvrtc.nvrtcGetProgramLog)(self.handle, log.as_mut_ptr().cast::<c_char>()) } != 0 {
            return String::new();
        }
        String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned()
    }
}
