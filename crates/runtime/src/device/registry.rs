//! The drivers of the process, by device type.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Once;

use anyfn::abi::{DEVICE_TYPES, kDLCPU};
use anyfn::{Device, Error, Result};

use super::cpu::Cpu;
use super::{Driver, LINKED_DRIVERS, MemoryKind, library};

/// Exclusive upper bound of the device type numbers. DLPack uses numbers up to 18.
const KINDS: usize = 64;

static DRIVERS: [AtomicPtr<&'static dyn Driver>; KINDS] = [const { AtomicPtr::new(ptr::null_mut()) }; KINDS];

static CPU: Cpu = Cpu;

/// Registers `driver` for the device type that it reports.
///
/// # Errors
/// Returns `ValueError` if the device type is not from 1 to 63, `RuntimeError` if the device type has a driver already.
pub fn register(driver: &'static dyn Driver) -> Result<()> {
    register_linked();
    insert(driver)
}

fn insert(driver: &'static dyn Driver) -> Result<()> {
    let kind = driver.device_type();
    let slot = usize::try_from(kind).ok().and_then(|kind| DRIVERS.get(kind));
    let Some(slot) = slot.filter(|_| kind > 0) else {
        anyfn::bail!("ValueError", "expected a device type from 1 to {} but got {kind}", KINDS - 1);
    };
    // Never freed, like the driver.
    let entry = Box::into_raw(Box::new(driver));
    let free = kind != kDLCPU
        && slot.compare_exchange(ptr::null_mut(), entry, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if free {
        return Ok(());
    }
    // SAFETY: allocated above and not stored.
    drop(unsafe { Box::from_raw(entry) });
    anyfn::bail!("RuntimeError", "a driver for {} is already registered", type_name(kind))
}

fn register_linked() {
    static LINKED: Once = Once::new();
    LINKED.call_once(|| {
        for driver in LINKED_DRIVERS.iter() {
            // If several drivers serve one kind, the first one is kept.
            drop(insert(*driver));
        }
    });
}

/// Returns the driver of the device type `device_type`, one of the `kDL*` constants. Returns `None`
/// if the device type has no driver. The first question for a device type whose driver is in the library `libanyfn_devices.so` opens that
/// library.
#[inline]
pub fn find(device_type: i32) -> Option<&'static dyn Driver> {
    if device_type == kDLCPU {
        return Some(&CPU);
    }
    let slot = DRIVERS.get(usize::try_from(device_type).ok()?)?;
    load(slot).or_else(|| find_linked(device_type, slot))
}

/// Returns the driver in a slot of the table.
#[inline]
fn load(slot: &AtomicPtr<&'static dyn Driver>) -> Option<&'static dyn Driver> {
    // SAFETY: NULL, or a driver that is never freed.
    unsafe { slot.load(Ordering::Acquire).as_ref() }.copied()
}

#[cold]
fn find_linked(device_type: i32, slot: &AtomicPtr<&'static dyn Driver>) -> Option<&'static dyn Driver> {
    register_linked();
    if load(slot).is_none() {
        library::open_for(device_type);
    }
    load(slot)
}

/// Returns the driver of a device, or an error if the device is not available.
///
/// # Errors
/// Returns `RuntimeError` with the reason if the device is not available.
#[inline]
pub fn driver_of(device: Device) -> Result<&'static dyn Driver> {
    if device == Device::CPU {
        return Ok(&CPU);
    }
    match why_missing(device) {
        None => find(device.0.device_type).ok_or_else(|| missing(device, "its driver is not registered")),
        Some(reason) => Err(missing(device, &reason)),
    }
}

#[cold]
fn missing(device: Device, reason: &str) -> Error {
    Error::new("RuntimeError", &format!("device {device} is not available: {reason}"))
}

/// Returns the reason why a device is not available; `None` if the device is available.
pub fn why_missing(device: Device) -> Option<String> {
    let (kind, index) = (device.0.device_type, device.0.device_id);
    let Some(driver) = find(kind) else { return Some(no_driver(kind)) };
    driver.probe(index).err()
}

#[cold]
fn no_driver(kind: i32) -> String {
    let known = DEVICE_TYPES.iter().any(|(_, number)| *number == kind);
    if !known {
        return format!("{kind} is not a device type of DLPack");
    }
    if let Some(reason) = library::library_error(kind) {
        return reason;
    }
    let loaded = (1..KINDS as i32).filter(|kind| find(*kind).is_some()).map(type_name);
    let loaded: Vec<String> = loaded.collect();
    format!("no driver for {} is loaded in this build, only for {}", type_name(kind), loaded.join(", "))
}

/// Returns true if a device is available. Unlike [`why_missing`], which lists the devices with drivers, this opens no library for another type.
pub fn exists(device: Device) -> bool {
    find(device.0.device_type).is_some_and(|driver| driver.probe(device.0.device_id).is_ok())
}

/// Returns the recorded work of all devices. Opens no library of drivers, because what is not loaded has executed nothing.
#[cfg(feature = "profile")]
pub(crate) fn take_work() -> Vec<super::Work> {
    register_linked();
    DRIVERS.iter().filter_map(load).flat_map(Driver::take_work).collect()
}

/// Begins or ends the recording of work by all drivers.
#[cfg(feature = "profile")]
pub(crate) fn record_work(is_recorded: bool) {
    anyfn_driver::record_work(is_recorded);
    #[cfg(feature = "drivers")]
    super::foreign::record_work(is_recorded);
}

/// Returns all available devices. For each device type, indices are tried from 0 to the first unavailable
/// one, at most 256.
pub fn devices() -> Vec<Device> {
    /// Maximum number of listed devices of one type.
    const MOST: i32 = 256;
    let kinds = (1..KINDS as i32).filter_map(find);
    let of = |driver: &'static dyn Driver| {
        let there = (0..MOST).take_while(move |index| driver.probe(*index).is_ok());
        there.map(move |index| Device::new(driver.device_type(), index))
    };
    kinds.flat_map(of).collect()
}

/// Returns how the host can access the memory of a device. If the device has no driver, the answer depends on
/// the device type only.
#[inline]
pub fn memory_kind(device: Device) -> MemoryKind {
    use anyfn::abi::{kDLCUDA, kDLCUDAHost, kDLCUDAManaged, kDLROCM, kDLROCMHost};
    match device.0.device_type {
        // Pinned memory is host memory.
        kDLCPU | kDLCUDAHost | kDLROCMHost => MemoryKind::Host,
        kind => match find(kind) {
            Some(driver) => driver.memory_kind(),
            None if matches!(kind, kDLCUDA | kDLCUDAManaged | kDLROCM) => MemoryKind::Address,
            None => MemoryKind::Handle,
        },
    }
}

/// Returns the name of a device type, such as `cuda` for `kDLCUDA`.
pub fn type_name(kind: i32) -> String {
    let text = Device::new(kind, 0).to_string();
    text.split(':').next().unwrap_or_default().to_string()
}
