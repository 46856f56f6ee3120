//! The pool of freed buffers, on a device. One test, because the numbers are those of the process.

use anyfn::abi::kDLVulkan;
use anyfn::{DType, Device, Tensor};
use anyfn_loader as _;
use anyfn_runtime::device::{Attribute, MemoryStatistics, Stream, Value, driver_of, synchronize, why_missing};
use anyfn_vulkan::{Kernel, module};
use anyfn_wgsl as _;

const DEVICE: Device = Device::new(kDLVulkan, 0);
const MIB: i64 = 1 << 20;

fn statistics() -> MemoryStatistics {
    driver_of(DEVICE).unwrap().memory_statistics(0).unwrap()
}

fn bytes(count: i64) -> anyfn::Result<Tensor> {
    Tensor::empty(DType::UINT8, &[count], DEVICE)
}

#[test]
fn freed_buffers_are_used_again() {
    if let Some(reason) = why_missing(DEVICE) {
        return anyfn_skip::report(&format!("vulkan: {reason}"));
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
    // A driver on the processor ends a loop after 65,535 iterations.
    let source = "@group(0) @binding(0) var<storage, read_write> x: array<i32>;
        var<immediate> times: i32;
        @compute @workgroup_size(100)
        fn fill(@builtin(global_invocation_id) id: vec3<u32>) {
            var sum = 0;
            for (var i = 0; i < times; i++) { sum = sum * 31 + i; }
            x[id.x] = sum | 1;
        }";
    let params = ["pointer", "int32", "blockIdx.x"];
    let made = module(source, vec![Kernel::parse("fill", params).unwrap()], None).unwrap();
    let fill = made.get_function("fill").unwrap();
    for round in 0..20 {
        let x = Tensor::empty(DType::INT32, &[1000], DEVICE).unwrap();
        fill.call((&x, 20_000, 10)).unwrap();
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
    fill.call((&x, 60_000, 50)).unwrap();
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
    let driver = driver_of(DEVICE).unwrap();
    let Some(Value::Int(total)) = driver.attribute(0, Attribute::TotalMemory) else { panic!("no memory") };
    let limit = statistics().limit as i64;
    assert_eq!(limit, (total / 8).min(1024 * MIB));
    drop(bytes(limit + MIB).unwrap());
    assert!(statistics().kept <= limit as usize);
    drop(bytes(limit / 2).unwrap());
    assert!(statistics().kept >= limit as usize / 2);
    let mut all = Vec::new();
    let error = loop {
        match bytes(limit) {
            Ok(tensor) => all.push(tensor),
            Err(error) => break error,
        }
    };
    assert!(error.kind() == "MemoryError" && error.message().contains("bytes are free"), "{}", error.message());
    assert!(all.len() >= 7 && statistics().kept == 0, "{}", all.len());
    drop(all);

    drop(bytes(100 * MIB).unwrap());
    let kept = statistics().kept;
    assert_eq!((driver.release_memory(0), driver.release_memory(0)), (kept, 0));
    assert_eq!((statistics().used, statistics().kept), (0, 0));
}
