//! The drivers of the process, by kind of device.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Once;

use anyfn::abi::{DEVICE_TYPES, kDLCPU};
use anyfn::{Device, Error, Result};

use super::cpu::Cpu;
use super::{Driver, MemoryKind};

/// Kinds of devices that there can be; DLPack counts to 18.
const KINDS: usize = 64;

static DRIVERS: [AtomicPtr<&'static dyn Driver>; KINDS] = [const { AtomicPtr::new(ptr::null_mut()) }; KINDS];

/// Drivers of crates that are linked with this one: each crate puts its own here.
///
/// ```
/// use anyfn_runtime::device::{Driver, LINKED_DRIVERS, null::Null};
///
/// static NULL: Null = Null::new(14);
/// #[anyfn::__private::linkme::distributed_slice(LINKED_DRIVERS)]
/// #[linkme(crate = anyfn::__private::linkme)]
/// static DRIVER: &'static dyn Driver = &NULL;
/// # use anyfn_core as _;
/// # assert!(anyfn_runtime::device::exists(anyfn::Device::new(14, 0)));
/// ```
#[anyfn::__private::linkme::distributed_slice]
#[linkme(crate = anyfn::__private::linkme)]
pub static LINKED_DRIVERS: [&'static dyn Driver];

static CPU: Cpu = Cpu;

/// Makes a driver known for its kind of devices.
///
/// # Errors
/// `ValueError` for a kind beyond those that DLPack can grow to, `RuntimeError` if the kind has a driver.
pub fn register(driver: &'static dyn Driver) -> Result<()> {
    register_linked();
    insert(driver)
}

fn insert(driver: &'static dyn Driver) -> Result<()> {
    let kind = driver.device_type();
    let slot = usize::try_from(kind).ok().and_then(|kind| DRIVERS.get(kind));
    let Some(slot) = slot.filter(|_| kind > 0) else {
        anyfn::bail!("ValueError", "a device type is a number from 1 to {} but got {kind}", KINDS - 1);
    };
    // Kept for ever, like the driver.
    let entry = Box::into_raw(Box::new(driver));
    let free = kind != kDLCPU
        && slot.compare_exchange(ptr::null_mut(), entry, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if free {
        return Ok(());
    }
    // SAFETY: made just now and not stored.
    drop(unsafe { Box::from_raw(entry) });
    anyfn::bail!("RuntimeError", "there is a driver for {} already", type_name(kind))
}

fn register_linked() {
    static LINKED: Once = Once::new();
    LINKED.call_once(|| {
        for driver in LINKED_DRIVERS {
            // The first of several stays.
            drop(insert(*driver));
        }
    });
}

/// The driver of a kind of devices, if there is one.
#[inline]
pub fn find(device_type: i32) -> Option<&'static dyn Driver> {
    if device_type == kDLCPU {
        return Some(&CPU);
    }
    let slot = DRIVERS.get(usize::try_from(device_type).ok()?)?;
    // SAFETY: NULL, or a driver that is kept for ever.
    match unsafe { slot.load(Ordering::Acquire).as_ref() } {
        Some(driver) => Some(*driver),
        None => find_linked(slot),
    }
}

#[cold]
fn find_linked(slot: &AtomicPtr<&'static dyn Driver>) -> Option<&'static dyn Driver> {
    register_linked();
    // SAFETY: NULL, or a driver that is kept for ever.
    unsafe { slot.load(Ordering::Acquire).as_ref() }.copied()
}

/// The driver of a device that is there.
///
/// # Errors
/// `RuntimeError` with the reason why it is not.
#[inline]
pub fn driver_of(device: Device) -> Result<&'static dyn Driver> {
    if device == Device::CPU {
        return Ok(&CPU);
    }
    match why_missing(device) {
        None => find(device.0.device_type).ok_or_else(|| missing(device, "its driver is gone")),
        Some(reason) => Err(missing(device, &reason)),
    }
}

#[cold]
fn missing(device: Device, reason: &str) -> Error {
    Error::new("RuntimeError", &format!("device {device} is not available: {reason}"))
}

/// Why a device is not there; `None` if it is.
pub fn why_missing(device: Device) -> Option<String> {
    let (kind, index) = (device.0.device_type, device.0.device_id);
    let Some(driver) = find(kind) else { return Some(no_driver(kind)) };
    driver.probe(index).err()
}

#[cold]
fn no_driver(kind: i32) -> String {
    let known = DEVICE_TYPES.iter().any(|(_, number)| *number == kind);
    if !known {
        return format!("{kind} is no device type that DLPack knows");
    }
    let loaded = (1..KINDS as i32).filter(|kind| find(*kind).is_some()).map(type_name);
    let loaded: Vec<String> = loaded.collect();
    format!("no driver for {} is loaded in this build, only for {}", type_name(kind), loaded.join(", "))
}

/// Whether a device is there.
pub fn exists(device: Device) -> bool {
    why_missing(device).is_none()
}

/// All devices that are there.
pub fn devices() -> Vec<Device> {
    /// More of one kind are not listed.
    const MOST: i32 = 256;
    let kinds = (1..KINDS as i32).filter_map(find);
    let of = |driver: &'static dyn Driver| {
        let there = (0..MOST).take_while(move |index| driver.probe(*index).is_ok());
        there.map(move |index| Device::new(driver.device_type(), index))
    };
    kinds.flat_map(of).collect()
}

/// How the memory of a device can be reached, whether it has a driver or not.
#[inline]
pub fn memory_kind(device: Device) -> MemoryKind {
    use anyfn::abi::{kDLCUDA, kDLCUDAHost, kDLCUDAManaged, kDLROCM, kDLROCMHost};
    match device.0.device_type {
        // Pinned memory is memory of the host.
        kDLCPU | kDLCUDAHost | kDLROCMHost => MemoryKind::Host,
        kind => match find(kind) {
            Some(driver) => driver.memory_kind(),
            None if matches!(kind, kDLCUDA | kDLCUDAManaged | kDLROCM) => MemoryKind::Address,
            None => MemoryKind::Handle,
        },
    }
}

/// Name of a kind of devices, as in `cuda:1`.
pub fn type_name(kind: i32) -> String {
    let text = Device::new(kind, 0).to_string();
    text.split(':').next().unwrap_or_default().to_string()
}
