//! The test of the pool of freed buffers, which the tests of each driver include. Its numbers are those of the process, so a program
//! contains no other test.

use anyfn::{DType, Device, Tensor};
use anyfn_runtime::device::{Attribute, MemoryStatistics, Stream, Value, driver_of, synchronize, why_missing};

const MIB: i64 = 1 << 20;

/// Checks on a device when buffers that were freed are used again. `prepare` returns a function that launches a kernel: for each of its
/// groups of 100 work items, a loop of some iterations, the result of which it writes to an element of the tensor.
pub(crate) fn freed_buffers_are_used_again<F: Fn(&Tensor, i32, i32)>(
    device: Device,
    prepare: impl FnOnce() -> F,
) {
    if let Some(reason) = why_missing(device) {
        return anyfn_skip::report(&format!("{device}: {reason}"));
    }
    let driver = driver_of(device).unwrap();
    let statistics = || -> MemoryStatistics { driver.memory_statistics(0).unwrap() };
    let bytes = |count: i64| Tensor::empty(DType::UINT8, &[count], device);

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
    let fill = prepare();
    for round in 0..20 {
        let x = Tensor::empty(DType::INT32, &[1000], device).unwrap();
        fill(&x, 20_000, 10);
        let address = x.view().data();
        drop(x);
        let y = Tensor::zeros_on(DType::INT32, &[1000], device).unwrap();
        assert_eq!(y.view().data(), address, "round {round}");
        assert_eq!(y.to_device(Device::CPU).unwrap().to_vec::<i32>().unwrap(), [0; 1000]);
    }

    // With a second stream, whose commands run beside those of the default one, a buffer is used again once its last user's have finished.
    let stream = Stream::create(device).unwrap();
    let before = statistics();
    let x = Tensor::empty(DType::INT32, &[5000], device).unwrap();
    let address = x.view().data();
    fill(&x, 60_000, 50);
    drop(x);
    let busy = Tensor::empty(DType::INT32, &[5000], device).unwrap();
    assert!(busy.view().data() != address);
    synchronize(device).unwrap();
    let x = Tensor::empty(DType::INT32, &[5000], device).unwrap();
    assert_eq!(x.view().data(), address);
    assert_eq!(statistics().reused, before.reused + 1);
    drop((x, busy, second, third));
    assert!(statistics().kept >= before.kept + 2 * MIB as usize);
    drop(stream);

    // What is kept is limited to an eighth of the memory, and given back when the memory is needed.
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
