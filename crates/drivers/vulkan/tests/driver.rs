//! The tests that every driver passes, on Vulkan devices.

use anyfn::Device;
use anyfn::abi::kDLVulkan;
use anyfn_loader as _;
use anyfn_vulkan as _;

#[path = "../../testing/driver.rs"]
mod driver;

const FIRST: Device = Device::new(kDLVulkan, 0);

#[test]
fn every_device_passes_the_suite() {
    let unsupported = [
        ("scopes", "buffers are the only kind of memory that this driver allocates"),
        ("compute_units", "Vulkan does not tell their number"),
    ];
    driver::every_device_passes_the_suite(FIRST, &unsupported, 17);
}

#[test]
fn overlapping_ranges_are_copied() {
    driver::overlapping_ranges_are_copied(FIRST);
}
