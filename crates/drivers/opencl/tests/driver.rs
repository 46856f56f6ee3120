//! The tests that every driver passes, on OpenCL devices.

use anyfn::Device;
use anyfn::abi::kDLOpenCL;
use anyfn_loader as _;
use anyfn_opencl as _;

#[path = "../../testing/driver.rs"]
mod driver;

const FIRST: Device = Device::new(kDLOpenCL, 0);

#[test]
fn every_device_passes_the_suite() {
    let unsupported = [("scopes", "buffers are the only kind of memory that this driver allocates")];
    driver::every_device_passes_the_suite(FIRST, &unsupported, 18);
}

#[test]
fn overlapping_ranges_are_copied() {
    driver::overlapping_ranges_are_copied(FIRST);
}
