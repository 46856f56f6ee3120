//! Tests of what all drivers do, which the tests of each driver include.

use anyfn::Device;
use anyfn_runtime::device::{Memory, copy_bytes, devices, why_missing};
use anyfn_runtime::suite::{Lists, run};

/// Returns true if a device is available. Otherwise the test is skipped, with the reason.
fn has_device(device: Device) -> bool {
    match why_missing(device) {
        None => true,
        Some(reason) => {
            anyfn_skip::report(&format!("{device}: {reason}"));
            false
        }
    }
}

/// Runs the suite on each device of the type of `first`. `unsupported` lists the tests of what the driver does not support.
pub(crate) fn every_device_passes_the_suite(first: Device, unsupported: &[(&str, &str)], passed: usize) {
    if !has_device(first) {
        return;
    }
    let lists = Lists { unsupported, expected_failures: &[] };
    for device in devices().into_iter().filter(|device| device.0.device_type == first.0.device_type) {
        let report = run(device, &lists);
        assert!(report.problems.is_empty(), "{device}: {:?}", report.problems);
        assert_eq!(report.passed.len(), passed, "{:?}", report.passed);
    }
}

/// Copies ranges that overlap within the memory of a device.
pub(crate) fn overlapping_ranges_are_copied(device: Device) {
    if !has_device(device) {
        return;
    }
    let mut memory = Memory::allocate(device, 100, 64).unwrap();
    let bytes: Vec<u8> = (0..100).collect();
    for (from, to) in [(0, 10), (10, 0), (5, 5)] {
        memory.write(0, &bytes).unwrap();
        let (start, end) = (memory.place(from, 50).unwrap(), memory.place(to, 50).unwrap());
        // SAFETY: both ranges are in `memory`, which is alive until it is read.
        unsafe { copy_bytes(start, end, 50, core::ptr::null_mut()) }.unwrap();
        let mut got = vec![0; 100];
        memory.read(0, &mut got).unwrap();
        let mut expected = bytes.clone();
        expected.copy_within(from..from + 50, to);
        assert_eq!(got, expected, "{from} -> {to}");
    }
}
