//! Measures launches and copies of OpenCL devices beside the calls of OpenCL alone that do the same: `devices [ROW...]`. Both use
//! the context of the first device, and take turns in one process.
//!
//! Prints `name=nanoseconds` per row, and `name@raw=nanoseconds` for OpenCL alone, or `devices!reason` if there is no device.

use std::error::Error;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::time::Instant;

use anyfn::abi::kDLOpenCL;
use anyfn::{DType, Device, Tensor};
use anyfn_host::opencl::{Kernel, module};
use anyfn_host::runtime::device::{synchronize, why_missing};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;
type Raw = *mut c_void;

const LARGE: usize = 64 << 20;
const SMALL: usize = 4;
/// Launches that are queued before the device is waited for.
const LAUNCHES: usize = 1000;
const TURNS: usize = 30;

const SOURCE: &str = "kernel void f(global const int *x, global int *y, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = x[i];
}";

macro_rules! opencl {
    ($($name:ident: fn($($arg:ty),*) -> $out:ty;)*) => {
        /// The functions of OpenCL that the comparison calls.
        #[allow(non_snake_case, reason = "the names of the OpenCL specification")]
        struct OpenCl { $($name: unsafe extern "C" fn($($arg),*) -> $out,)* }

        impl OpenCl {
            /// Opens the OpenCL loader. It was opened by the runtime before.
            fn open() -> Result<OpenCl> {
                let name = c"libOpenCL.so.1";
                // SAFETY: the name is a C string.
                let library = unsafe { dlopen(name.as_ptr(), 2) };
                Ok(OpenCl { $($name: {
                    let name = CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes())?;
                    // SAFETY: the name is a C string, and a library that was not opened is refused by the function.
                    let address = unsafe { dlsym(library, name.as_ptr()) };
                    if address.is_null() {
                        return Err(format!("no {name:?}").into());
                    }
                    // SAFETY: the OpenCL specification gives the function of this name this type.
                    unsafe { std::mem::transmute::<Raw, unsafe extern "C" fn($($arg),*) -> $out>(address) }
                },)* })
            }
        }
    };
}

unsafe extern "C" {
    fn dlopen(name: *const std::ffi::c_char, flags: i32) -> Raw;
    fn dlsym(library: Raw, name: *const std::ffi::c_char) -> Raw;
}

opencl! {
    clGetMemObjectInfo: fn(Raw, u32, usize, Raw, *mut usize) -> i32;
    clGetContextInfo: fn(Raw, u32, usize, Raw, *mut usize) -> i32;
    clCreateCommandQueue: fn(Raw, Raw, u64, *mut i32) -> Raw;
    clFinish: fn(Raw) -> i32;
    clCreateProgramWithSource: fn(Raw, u32, *const *const u8, *const usize, *mut i32) -> Raw;
    clBuildProgram: fn(Raw, u32, *const Raw, *const u8, *const c_void, *const c_void) -> i32;
    clCreateKernel: fn(Raw, *const u8, *mut i32) -> Raw;
    clSetKernelArg: fn(Raw, u32, usize, *const c_void) -> i32;
    clEnqueueNDRangeKernel: fn(Raw, Raw, u32, *const usize, *const usize, *const usize, u32, *const Raw, *mut Raw) -> i32;
    clEnqueueReadBuffer: fn(Raw, Raw, u32, usize, usize, *mut u8, u32, *const Raw, *mut Raw) -> i32;
    clEnqueueWriteBuffer: fn(Raw, Raw, u32, usize, usize, *const u8, u32, *const Raw, *mut Raw) -> i32;
    clEnqueueCopyBuffer: fn(Raw, Raw, Raw, usize, usize, usize, u32, *const Raw, *mut Raw) -> i32;
}

const MEM_CONTEXT: u32 = 0x1106;
const CONTEXT_DEVICES: u32 = 0x1081;
/// The queues of the runtime have this property, too.
const QUEUE_PROFILING_ENABLE: u64 = 2;

fn check(code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(format!("OpenCL error {code}").into()) }
}

/// Returns the buffer of a tensor, to which the first field of its descriptor refers.
fn buffer(tensor: &Tensor) -> Raw {
    // SAFETY: the data of a tensor on OpenCL is the address of a descriptor, whose first field is the `cl_mem`.
    unsafe { tensor.view().data().cast::<Raw>().read() }
}

/// Measures two functions in turn, `count` calls at a time, and prints the shortest times per call of the row `name`.
fn measure(
    name: &str,
    count: usize,
    mut ours: impl FnMut() -> Result<()>,
    mut raw: impl FnMut() -> Result<()>,
) -> Result<()> {
    let mut best = [f64::INFINITY; 2];
    for _ in 0..TURNS {
        let sides: [&mut dyn FnMut() -> Result<()>; 2] = [&mut ours, &mut raw];
        for (body, best) in sides.into_iter().zip(&mut best) {
            let start = Instant::now();
            body()?;
            *best = best.min(start.elapsed().as_nanos() as f64 / count as f64);
        }
    }
    let [ours, raw] = best;
    println!("{name}={ours:.1}\n{name}@raw={raw:.1}");
    Ok(())
}

fn run(only: &[String]) -> Result<()> {
    let place = Device::new(kDLOpenCL, 0);
    if let Some(reason) = why_missing(place) {
        println!("devices!{}", reason.replace('\n', " "));
        return Ok(());
    }
    let wanted = |name: &str| only.is_empty() || only.iter().any(|row| row == name);
    let x = Tensor::zeros_on(DType::INT32, &[64], place)?;
    let y = Tensor::zeros_on(DType::INT32, &[64], place)?;
    let cl = OpenCl::open()?;
    let (mut context, mut device): (Raw, Raw) = (ptr::null_mut(), ptr::null_mut());
    let size = size_of::<Raw>();
    // SAFETY: the buffer is alive, and the answer is one pointer.
    check(unsafe {
        (cl.clGetMemObjectInfo)(buffer(&x), MEM_CONTEXT, size, (&raw mut context).cast(), ptr::null_mut())
    })?;
    // SAFETY: the context is alive and has one device.
    check(unsafe {
        (cl.clGetContextInfo)(context, CONTEXT_DEVICES, size, (&raw mut device).cast(), ptr::null_mut())
    })?;
    let mut code = 0;
    // SAFETY: the device belongs to the context.
    let queue = unsafe { (cl.clCreateCommandQueue)(context, device, QUEUE_PROFILING_ENABLE, &raw mut code) };
    check(code)?;

    if wanted("device_launch") {
        let params = ["pointer", "pointer", "int32", "blockIdx.x", "threadIdx.x"];
        let f = module(SOURCE, vec![Kernel::parse("f", params)?], Some(place))?.get_function("f")?;
        let (start, length) = (SOURCE.as_ptr(), SOURCE.len());
        // SAFETY: one string with its length.
        let program = unsafe {
            (cl.clCreateProgramWithSource)(context, 1, &raw const start, &raw const length, &raw mut code)
        };
        check(code)?;
        // SAFETY: the program is new, and the device belongs to its context.
        check(unsafe {
            (cl.clBuildProgram)(program, 1, &raw const device, c"".as_ptr().cast(), ptr::null(), ptr::null())
        })?;
        // SAFETY: the program was built, and the name is a C string.
        let kernel = unsafe { (cl.clCreateKernel)(program, c"f".as_ptr().cast(), &raw mut code) };
        check(code)?;
        let (buffers, n, sizes) = ([buffer(&x), buffer(&y)], 64_i32, [64_usize]);
        let ours = || {
            for _ in 0..LAUNCHES {
                f.call((&x, &y, 64, 1, 64))?;
            }
            Ok(synchronize(place)?)
        };
        let raw = || {
            for _ in 0..LAUNCHES {
                for (at, buffer) in (0..).zip(&buffers) {
                    // SAFETY: the argument is a buffer that is alive.
                    unsafe { (cl.clSetKernelArg)(kernel, at, size, ptr::from_ref(buffer).cast()) };
                }
                // SAFETY: the argument is an int.
                unsafe { (cl.clSetKernelArg)(kernel, 2, 4, (&raw const n).cast()) };
                // SAFETY: all arguments are set, and there is one dimension.
                check(unsafe {
                    let (sizes, none) = (sizes.as_ptr(), ptr::null_mut());
                    (cl.clEnqueueNDRangeKernel)(
                        queue,
                        kernel,
                        1,
                        ptr::null(),
                        sizes,
                        sizes,
                        0,
                        ptr::null(),
                        none,
                    )
                })?;
            }
            // SAFETY: the queue is alive.
            check(unsafe { (cl.clFinish)(queue) })
        };
        measure("device_launch", LAUNCHES, ours, raw)?;
    }

    for (text, bytes, count) in [("64mib", LARGE, 1), ("4b", SMALL, 100)] {
        let there = Tensor::zeros_on(DType::UINT8, &[bytes as i64], place)?;
        let other = Tensor::zeros_on(DType::UINT8, &[bytes as i64], place)?;
        let here = Tensor::zeros_on(DType::UINT8, &[bytes as i64], Device::CPU)?;
        // Pages of zeros that were never written are one page, which is in the cache.
        there.copy_to(&here)?;
        let host = here.view().data().cast::<u8>();
        let (mem, target) = (buffer(&there), buffer(&other));
        let copy = |from: &Tensor, to: &Tensor| -> Result<()> {
            for _ in 0..count {
                from.copy_to(to)?;
            }
            Ok(())
        };
        let name = format!("device_up_{text}");
        if wanted(&name) {
            let raw = || {
                for _ in 0..count {
                    // SAFETY: the call waits for the copy, and both sides have as many bytes.
                    check(unsafe {
                        (cl.clEnqueueWriteBuffer)(
                            queue,
                            mem,
                            1,
                            0,
                            bytes,
                            host,
                            0,
                            ptr::null(),
                            ptr::null_mut(),
                        )
                    })?;
                }
                Ok(())
            };
            measure(&name, count, || copy(&here, &there), raw)?;
        }
        let name = format!("device_down_{text}");
        if wanted(&name) {
            let raw = || {
                for _ in 0..count {
                    // SAFETY: the call waits for the copy, and both sides have as many bytes.
                    check(unsafe {
                        (cl.clEnqueueReadBuffer)(queue, mem, 1, 0, bytes, host, 0, ptr::null(), ptr::null_mut())
                    })?;
                }
                Ok(())
            };
            measure(&name, count, || copy(&there, &here), raw)?;
        }
        let name = format!("device_copy_{text}");
        if bytes == LARGE && wanted(&name) {
            let ours = || {
                copy(&there, &other)?;
                Ok(synchronize(place)?)
            };
            let raw = || {
                // SAFETY: both buffers have as many bytes.
                check(unsafe {
                    (cl.clEnqueueCopyBuffer)(queue, mem, target, 0, 0, bytes, 0, ptr::null(), ptr::null_mut())
                })?;
                // SAFETY: the queue is alive.
                check(unsafe { (cl.clFinish)(queue) })
            };
            measure(&name, count, ours, raw)?;
        }
    }
    Ok(())
}

fn main() {
    let only: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = run(&only) {
        println!("devices!{}", error.to_string().replace('\n', " "));
    }
}
