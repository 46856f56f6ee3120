//! Checks of devices. Each available device is tested. For each known kind of device without an
//! available device, the reason is reported.

use std::ffi::CString;

use anyfn::abi::{kDLCPU, kDLCUDA, kDLOpenCL, kDLROCM, kDLVulkan};
use anyfn::{Device, Result, bail, register};
use anyfn_runtime::device::{self, ALIGNMENT, Attribute, Memory, Value};

use super::{Check, Status, bytes};

/// A known kind of device: its name and DLPack number, the vendor's libraries, its device files under `/dev`,
/// and advice on its installation.
struct DeviceKind {
    name: &'static str,
    number: i32,
    libraries: &'static [&'static str],
    nodes: &'static [&'static str],
    install: &'static str,
}

const KINDS: &[DeviceKind] = &[
    DeviceKind {
        name: "cuda",
        number: kDLCUDA,
        libraries: &["libcuda.so.1"],
        nodes: &["/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"],
        install: "install NVIDIA's driver; in a container, run it with its GPUs",
    },
    DeviceKind {
        name: "rocm",
        number: kDLROCM,
        libraries: &["libamdhip64.so", "libamdhip64.so.6", "libamdhip64.so.7"],
        nodes: &["/dev/kfd"],
        install: "install ROCm; in a container, run it with /dev/kfd and /dev/dri",
    },
    DeviceKind {
        name: "opencl",
        number: kDLOpenCL,
        libraries: &["libOpenCL.so.1"],
        nodes: &["/dev/dri/renderD128", "/dev/nvidiactl"],
        install: "install an OpenCL loader and a driver (Debian, Ubuntu: apt-get install ocl-icd-libopencl1 pocl-opencl-icd)",
    },
    DeviceKind {
        name: "vulkan",
        number: kDLVulkan,
        libraries: &["libvulkan.so.1"],
        nodes: &["/dev/dri/renderD128", "/dev/nvidiactl"],
        install: "install a Vulkan loader and a driver (Debian, Ubuntu: apt-get install libvulkan1 mesa-vulkan-drivers)",
    },
    #[cfg(target_os = "macos")]
    DeviceKind {
        name: "metal",
        number: anyfn::abi::kDLMetal,
        libraries: &["/System/Library/Frameworks/Metal.framework/Metal"],
        nodes: &[],
        install: "use a machine with a GPU that supports Metal",
    },
];

/// Checks all available devices, and reports why each other known kind of device has none.
#[register("anyfn.doctor.devices", blocking)]
fn devices() -> Vec<Check> {
    let mut checks: Vec<Check> = device::devices().into_iter().map(tried).collect();
    for kind in KINDS {
        if !checks.iter().any(|check| check.id.starts_with(&format!("device.{}:", kind.name))) {
            checks.push(missing(kind));
        }
    }
    checks
}

/// Checks an available device by copying data through its memory.
fn tried(device: Device) -> Check {
    let id = format!("device.{device}");
    let done = "allocated memory, wrote to it, copied it, read it back, and waited for the device";
    let attribute = |attribute| {
        let driver = device::find(device.0.device_type)?;
        driver.attribute(device.0.device_id, attribute)
    };
    let mut why = Vec::new();
    if let Some(Value::Text(name)) = attribute(Attribute::Name) {
        why.push(name);
    }
    if let Some(Value::Int(total)) = attribute(Attribute::TotalMemory) {
        why.push(bytes(total.max(0) as u64));
    }
    match try_memory(device) {
        Ok(()) => {
            why.insert(0, "it works".to_owned());
            Check::new(&id, Status::Ok, done, why.join(", "))
        }
        Err(error) => {
            let why = format!("{}: {}", error.kind(), error.message());
            let to_do = if device.0.device_type == kDLCPU {
                "check the memory limits of the process"
            } else {
                "repair or reinstall its driver"
            };
            Check::new(&id, Status::Problem, done, why).hint(to_do)
        }
    }
}

fn try_memory(device: Device) -> Result<()> {
    const BYTES: usize = 4096;
    let pattern: Vec<u8> = (0..BYTES).map(|i| (i * 7 % 251) as u8).collect();
    let mut first = Memory::allocate(device, BYTES, ALIGNMENT)?;
    let mut second = Memory::allocate(device, BYTES, ALIGNMENT)?;
    first.write(0, &pattern)?;
    first.copy_to(0, &mut second, 0, BYTES)?;
    device::synchronize(device)?;
    let mut back = vec![0; BYTES];
    second.read(0, &mut back)?;
    if back != pattern {
        bail!("RuntimeError", "the data that was read differs from the data that was written");
    }
    Ok(())
}

/// Reports why no device of the kind `kind` is available.
fn missing(kind: &DeviceKind) -> Check {
    let id = format!("device.{}", kind.name);
    let done = format!(
        "looked for a driver in this build, opened {}, looked for device files",
        kind.libraries.join(", ")
    );
    if device::find(kind.number).is_some() {
        let why = device::why_missing(Device::new(kind.number, 0))
            .unwrap_or_else(|| "it has become available".to_owned());
        return Check::new(&id, Status::Off, done, why).hint(kind.install);
    }
    if let Some(why) = device::library_error(kind.number) {
        return Check::new(&id, Status::Problem, done, why).hint("install anyfn again, from one package");
    }
    let opened = kind.libraries.iter().map(|library| open(library)).collect::<Vec<_>>();
    let node = kind.nodes.iter().find(|node| std::path::Path::new(node).exists());
    let node = node.map_or_else(String::new, |node| format!("; the system shows a device at {node}"));
    match opened.iter().find(|opened| opened.is_ok()) {
        Some(_) => {
            let why = format!("its library is installed, but this build of anyfn has no driver for it{node}");
            Check::new(&id, Status::Off, done, why).hint("use a build of anyfn that contains the driver")
        }
        None => {
            let reason = opened.into_iter().find_map(Result::err).unwrap_or_default();
            Check::new(&id, Status::Off, done, format!("{reason}{node}")).hint(kind.install)
        }
    }
}

/// Opens a library and closes it again, to check that it is installed.
///
/// # Errors
/// Returns the reason why the library cannot be opened.
fn open(library: &str) -> Result<(), String> {
    let name = CString::new(library).map_err(|error| error.to_string())?;
    // SAFETY: `name` is a C string. The library belongs to the system, and its constructors may run.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if !handle.is_null() {
        // SAFETY: `handle` was opened just now.
        unsafe { libc::dlclose(handle) };
        return Ok(());
    }
    // SAFETY: `dlerror` may be called at any time.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return Err(format!("{library} cannot be opened"));
    }
    // SAFETY: the string is valid until the next call on this thread, and it is copied immediately.
    Err(unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
