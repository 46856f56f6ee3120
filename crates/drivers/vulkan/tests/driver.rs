//! The tests that every driver passes, and those of what is particular to Vulkan.

use anyfn::Device;
use anyfn::abi::kDLVulkan;
use anyfn_loader as _;
use anyfn_runtime::device::{Memory, devices, why_missing};
use anyfn_runtime::suite::{Lists, run};
use anyfn_vulkan as _;

const FIRST: Device = Device::new(kDLVulkan, 0);

/// Returns true if there is a device. Otherwise the test is skipped, with the reason.
fn has_device() -> bool {
    match why_missing(FIRST) {
        None => true,
        Some(reason) => {
            anyfn_skip::report(&format!("vulkan: {reason}"));
            false
        }
    }
}

#[test]
fn every_device_passes_the_suite() {
    if !has_device() {
        return;
    }
    let lists = Lists {
        unsupported: &[
            ("scopes", "buffers are the only kind of memory that this driver allocates"),
            ("compute_units", "Vulkan does not tell their number"),
        ],
        expected_failures: &[],
    };
    for device in devices().into_iter().filter(|device| device.0.device_type == kDLVulkan) {
        let report = run(device, &lists);
        assert!(report.problems.is_empty(), "{device}: {:?}", report.problems);
        assert_eq!(report.passed.len(), 17, "{:?}", report.passed);
    }
}

#[test]
fn overlapping_ranges_are_copied() {
    if !has_device() {
        return;
    }
    let mut memory = Memory::allocate(FIRST, 100, 64).unwrap();
    let bytes: Vec<u8> = (0..100).collect();
    for (from, to) in [(0, 10), (10, 0), (5, 5)] {
        memory.write(0, &bytes).unwrap();
        let (start, end) = (memory.place(from, 50).unwrap(), memory.place(to, 50).unwrap());
        // SAFETY: both ranges are in `memory`, which is alive until it is read.
        unsafe { anyfn_runtime::device::copy_bytes(start, end, 50, core::ptr::null_mut()) }.unwrap();
        let mut got = vec![0; 100];
        memory.read(0, &mut got).unwrap();
        let mut expected = bytes.clone();
        expected.copy_within(from..from + 50, to);
        assert_eq!(got, expected, "{from} -> {to}");
    }
}
