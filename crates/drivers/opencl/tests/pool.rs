//! The pool of freed buffers, on a device with little memory. One test, because the numbers are those of the process.

use anyfn::abi::kDLOpenCL;
use anyfn::{DType, Device, Tensor};
use anyfn_loader as _;
use anyfn_opencl::{Kernel, module};
use anyfn_runtime::device::{MemoryStatistics, Stream, driver_of, synchronize, why_missing};

const DEVICE: Device = Device::new(kDLOpenCL, 0);
const MIB: i64 = 1 << 20;

fn statistics() -> MemoryStatistics {
    driver_of(DEVICE).unwrap().memory_statistics(0).unwrap()
}

fn bytes(count: i64) -> anyfn::Result<Tensor> {
    Tensor::empty(DType::UINT8, &[count], DEVICE)
}

#[test]
fn freed_buffers_are_used_again() {
    // PoCL then has a device of 1 GiB, whose buffers have at most 256 MiB.
    // SAFETY: this is the only test of the program, and no other thread reads the environment.
    unsafe { std::env::set_var("POCL_MEMORY_LIMIT", "1") };
    if let Some(reason) = why_missing(DEVICE) {
        return anyfn_skip::report(&format!("opencl: {reason}"));
    }

    // Sizes of one class share a block.
    let first = bytes(MIB).unwrap();
    let address = first.view().data();
    let before = statistics();
    assert_eq!((before.used, before.kept, before.reused), (MIB as usize, 0, 0));
    drop(first);
    assert_eq!((statistics().used, statistics().kept), (0, MIB as usize));
    let second = bytes(MIB - 1000).unwrap();
    assert_eq!(second.view().data(), address);
    let now = statistics();
    assert_eq!((now.used, now.kept, now.reused), (MIB as usize, 0, 1));
    assert_eq!(now.allocated, before.allocated);
    let third = bytes(MIB).unwrap();
    assert!(third.view().data() != address);

    // The next user of a buffer waits for the commands of the last one.
    let source = "kernel void fill(global int *x, int times) {
        int sum = 0;
        for (int i = 0; i < times; ++i) sum = sum * 31 + i;
        x[get_global_id(0)] = sum | 1;
    }";
    let params = ["pointer", "int32", "blockIdx.x", "threadIdx.x"];
    let made = module(source, vec![Kernel::parse("fill", params).unwrap()], None).unwrap();
    let fill = made.get_function("fill").unwrap();
    for round in 0..20 {
        let x = Tensor::empty(DType::INT32, &[1000], DEVICE).unwrap();
        fill.call((&x, 20_000, 10, 100)).unwrap();
        let address = x.view().data();
        drop(x);
        let y = Tensor::zeros_on(DType::INT32, &[1000], DEVICE).unwrap();
        assert_eq!(y.view().data(), address, "round {round}");
        assert_eq!(y.to_device(Device::CPU).unwrap().to_vec::<i32>().unwrap(), [0; 1000]);
    }

    // With a second stream, whose commands run beside those of the default one, a buffer is used again once its last user's have finished.
    let stream = Stream::create(DEVICE).unwrap();
    let before = statistics();
    let x = Tensor::empty(DType::INT32, &[5000], DEVICE).unwrap();
    let address = x.view().data();
    fill.call((&x, 100_000, 50, 100)).unwrap();
    drop(x);
    let busy = Tensor::empty(DType::INT32, &[5000], DEVICE).unwrap();
    assert!(busy.view().data() != address);
    synchronize(DEVICE).unwrap();
    let x = Tensor::empty(DType::INT32, &[5000], DEVICE).unwrap();
    assert_eq!(x.view().data(), address);
    assert_eq!(statistics().reused, before.reused + 1);
    drop((x, busy, second, third));
    assert!(statistics().kept >= before.kept + 2 * MIB as usize);
    drop(stream);

    // What is kept is limited to an eighth of the memory, and given back when the memory is needed.
    let limit = statistics().limit as i64;
    assert_eq!(limit, 128 * MIB);
    drop(bytes(200 * MIB).unwrap());
    assert!(statistics().kept <= limit as usize);
    drop(bytes(100 * MIB).unwrap());
    assert!(statistics().kept >= 100 * MIB as usize);
    let all: Vec<Tensor> = (0..4).map(|_| bytes(256 * MIB).unwrap()).collect();
    assert_eq!((statistics().used, statistics().kept), (1 << 30, 0));
    let error = bytes(1).unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        ("MemoryError", "cannot allocate 256 bytes on opencl:0: 0 bytes are free")
    );
    drop(all);

    drop(bytes(100 * MIB).unwrap());
    let kept = statistics().kept;
    let driver = driver_of(DEVICE).unwrap();
    assert_eq!((driver.release_memory(0), driver.release_memory(0)), (kept, 0));
    assert_eq!((statistics().used, statistics().kept), (0, 0));
}
