//! Checks of the runtime in this process, and of the system facilities that loading libraries depends on.

use std::ffi::{CStr, c_char, c_void};

use anyfn::abi::{ABI_VERSION, TVMFFIFunctionCall, anyfn_api};
use anyfn::{Error, Result, TypedPackedFunc, register, registry};

use super::{Check, Status};

/// Returns the path of the loaded file that contains an address.
fn file_of(address: *const c_void) -> Option<String> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: `dladdr` accepts any address; `info` is writable.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: a non-zero result means that `dladdr` filled `info`.
    let name = unsafe { info.assume_init() }.dli_fname;
    // SAFETY: NULL, or a C string that lives as long as the file is loaded.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())?;
    Some(std::fs::canonicalize(&name).map_or(name, |path| path.to_string_lossy().into_owned()))
}

/// Returns the address of a symbol in the global scope of the process.
fn global_symbol(name: &CStr) -> Option<*const c_void> {
    // SAFETY: `name` is a C string, and `dlsym` only looks it up.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address.cast_const())
}

/// Copies a C string into a Rust string. Returns `None` for NULL.
fn text(text: *const c_char) -> Option<String> {
    // SAFETY: NULL, or a C string that lives as long as the process.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Tests that a function can be registered, called and removed, and that a function can raise an error.
fn round_trip() -> Result<()> {
    const NAME: &str = "anyfn.doctor_round_trip";
    registry::register(NAME).overriding().set_body_typed(|a: i64, b: i64| a + b)?;
    let sum = registry::get(NAME)?.call((1, 2)).and_then(|sum| sum.get::<i64>());
    registry::remove(NAME)?;
    if sum? != 3 {
        anyfn::bail!("RuntimeError", "expected 3 as the sum of 1 and 2, got another number");
    }
    let fails = TypedPackedFunc::from_fn(|| -> Result<()> { Err(Error::new("KeyError", "on purpose")) });
    match fails.as_packed().call(()) {
        Err(error) if error.kind() == "KeyError" && error.message() == "on purpose" => Ok(()),
        other => anyfn::bail!("RuntimeError", "expected KeyError: on purpose, got {other:?}"),
    }
}

/// Returns the version of the ABI that the runtime implements.
#[register("anyfn.abi_version")]
fn abi_version() -> String {
    format!("{}.{}.{}", ABI_VERSION.major, ABI_VERSION.minor, ABI_VERSION.patch)
}

/// Checks that the runtime works. Reports its version and file, and any other runtime in the process that conflicts
/// with it.
#[register("anyfn.doctor.runtime")]
fn runtime() -> Vec<Check> {
    let done = "registered, called and removed a function, and raised an error through another one";
    let own = file_of(TVMFFIFunctionCall as *const c_void);
    let file = own.clone().unwrap_or_else(|| "an unknown file".into());
    let mut checks = vec![match round_trip() {
        Ok(()) => {
            let version = env!("CARGO_PKG_VERSION");
            Check::new(
                "runtime",
                Status::Ok,
                done,
                format!("anyfn {version}, ABI {}, in {file}", abi_version()),
            )
        }
        Err(error) => {
            let why = format!("{} in {file}: {}", error.kind(), error.message());
            Check::new("runtime", Status::Problem, done, why).hint("reinstall anyfn")
        }
    }];
    checks.push(second_runtime());
    checks.push(symbols(own.as_deref()));
    checks
}

fn second_runtime() -> Check {
    let done = "looked through the files of the process for other copies of this runtime, and for libtvm_ffi";
    // SAFETY: `anyfn_api` may be called at any time.
    let table = unsafe { anyfn_api() };
    // SAFETY: NULL, or a table that lives as long as the process.
    let table = unsafe { table.as_ref() };
    let conflict = table.and_then(|table| text(table.conflict));
    if let Some(conflict) = conflict {
        return Check::new("runtime.second", Status::Problem, done, conflict)
            .hint("load only one of them: each copy has its own registry");
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let peer = maps.lines().filter_map(|line| line.split_whitespace().last());
    let peer = peer.filter(|path| path.starts_with('/')).find(|path| {
        path.rsplit('/').next().is_some_and(|name| name.starts_with("libtvm_ffi") && name.contains(".so"))
    });
    match peer {
        Some(path) => {
            let why = format!("{path} is also loaded: another runtime, which shares nothing with this one");
            Check::new("runtime.second", Status::Ok, done, why)
        }
        None => Check::new("runtime.second", Status::Ok, done, "no other runtime is loaded"),
    }
}

/// Checks that libraries which look up the runtime's functions by name find those of this runtime. `own` is
/// the path of this runtime's file.
fn symbols(own: Option<&str>) -> Check {
    let done = "looked up TVMFFIFunctionCall among the global symbols of the process";
    match global_symbol(c"TVMFFIFunctionCall") {
        None => {
            let why = "the symbols of this runtime are not global: libraries that need them are opened with this \
                       runtime in their own scope";
            Check::new("runtime.symbols", Status::Ok, done, why)
        }
        Some(address) => {
            let file = file_of(address);
            if address == TVMFFIFunctionCall as *const c_void || file.as_deref() == own {
                return Check::new(
                    "runtime.symbols",
                    Status::Ok,
                    done,
                    "the symbols of this runtime are global",
                );
            }
            let file = file.unwrap_or_else(|| "another file".into());
            let why = format!(
                "the global symbols are those of {file}: libraries that need the runtime's symbols would get \
                 the wrong ones"
            );
            Check::new("runtime.symbols", Status::Problem, done, why)
                .hint("do not load that file with RTLD_GLOBAL, and do not link it to the program")
        }
    }
}

/// Checks the C library and the dynamic loader.
#[register("anyfn.doctor.loader")]
fn loader() -> Vec<Check> {
    let version = global_symbol(c"gnu_get_libc_version").and_then(|address| {
        type Version = extern "C" fn() -> *const c_char;
        // SAFETY: the symbol of this name is a function with this signature.
        text(unsafe { std::mem::transmute::<*const c_void, Version>(address) }())
    });
    let done = "asked the C library for its version";
    let mut checks = vec![match &version {
        Some(version) => Check::new("loader.libc", Status::Ok, done, format!("glibc {version}")),
        None => {
            Check::new("loader.libc", Status::Off, done, "it is not glibc, the only C library that is tested")
        }
    }];
    let done = "looked up _dl_find_object, and used it to find the file of this code";
    checks.push(match global_symbol(c"_dl_find_object").map(|find| (find, finds_own_file(find))) {
        Some((_, true)) => {
            Check::new("loader.find_object", Status::Ok, done, "it finds the file that contains an address")
        }
        Some((_, false)) => {
            Check::new("loader.find_object", Status::Problem, done, "it does not find this code")
                .hint("report this as a bug of anyfn: libraries may be unmapped too early")
        }
        None => Check::new(
            "loader.find_object",
            Status::Off,
            done,
            "the C library does not have it (glibc has it since 2.35)",
        )
        .hint("nothing: a slower method is used"),
    });
    checks
}

/// Returns true if `_dl_find_object` finds the file that contains this code.
fn finds_own_file(find: *const c_void) -> bool {
    /// Layout of the C library's `struct dl_find_object`: flags, first and last address, the link map, and
    /// further fields.
    #[repr(C)]
    struct Found {
        flags: u64,
        start: *const c_void,
        end: *const c_void,
        rest: [u64; 12],
    }
    type Find = unsafe extern "C" fn(address: *const c_void, found: *mut Found) -> i32;
    // SAFETY: the symbol of this name is a function with this signature.
    let find = unsafe { std::mem::transmute::<*const c_void, Find>(find) };
    let own = finds_own_file as *const c_void;
    let mut found = Found { flags: 0, start: std::ptr::null(), end: std::ptr::null(), rest: [0; 12] };
    // SAFETY: `_dl_find_object` accepts any address; the result is writable and large enough.
    let code = unsafe { find(own, &mut found) };
    code == 0 && found.start <= own && own < found.end
}
