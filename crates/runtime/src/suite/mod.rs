//! Suite of the tests that every driver must pass.
//!
//! A driver's crate calls [`run`] on its devices with two lists of test names and reasons. The first list names tests
//! of features that the device does not have; these tests must raise `NotImplementedError`. The second list names tests
//! that fail although they should pass. A listed test that passes is a problem, so the lists cannot become outdated.
//!
//! ```
//! # use anyfn_loader as _;
//! use anyfn_runtime::suite::{Lists, run};
//! let lists = Lists { unsupported: &[("scopes", "main memory has one scope")], ..Lists::default() };
//! let report = run(anyfn::Device::CPU, &lists);
//! assert!(report.problems.is_empty(), "{:?}", report.problems);
//! ```

mod tensor;

use anyfn::{Device, Error, Result, bail, register};

use crate::device::{
    Attribute, Event, Memory, MemoryKind, Stream, Value, devices, driver_of, exists, memory_kind,
    stream_number, stream_of, synchronize, take_event, take_stream, unsupported,
};

/// Lists of the tests that a driver is known to fail, with reasons.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lists<'a> {
    /// Tests of features that the devices do not have, as pairs of test name and reason. These tests must
    /// raise `NotImplementedError`.
    pub unsupported: &'a [(&'a str, &'a str)],
    /// Tests of features that do not work yet, as pairs of test name and reason.
    pub expected_failures: &'a [(&'a str, &'a str)],
}

/// Results of the driver tests on one device.
#[derive(Debug, Default)]
pub struct Report {
    /// Names of the tests that passed.
    pub passed: Vec<&'static str>,
    /// Listed tests that failed as expected, with the reasons from the lists.
    pub excused: Vec<(&'static str, String)>,
    /// Descriptions of unlisted tests that failed, listed tests that passed, and listed names that are not tests. If
    /// there are any, the driver does not pass.
    pub problems: Vec<String>,
}

type Case = (&'static str, fn(Device) -> Result<()>);

const CASES: &[Case] = &[
    ("exists", is_there),
    ("missing", others_are_missing),
    ("attributes", attributes),
    ("compute_units", compute_units),
    ("alignment", alignment),
    ("sizes", sizes),
    ("roundtrip", roundtrip),
    ("ranges", ranges),
    ("inside", inside),
    ("many", many),
    ("between_devices", between_devices),
    ("scopes", scopes),
    ("streams", streams),
    ("events", events),
    ("elapsed", elapsed),
    ("foreign_handles", foreign_handles),
    ("threads", threads),
    ("opaque", opaque),
    ("tensors", tensor::on_device),
];

/// Runs all tests on a device. `lists` names the tests that are known to fail.
pub fn run(device: Device, lists: &Lists<'_>) -> Report {
    let mut report = Report::default();
    for (name, case) in CASES {
        let listed = |list: &[(&str, &str)]| {
            list.iter().find(|(listed, _)| listed == name).map(|(_, reason)| reason.to_string())
        };
        let (unsupported, expected) = (listed(lists.unsupported), listed(lists.expected_failures));
        match (case(device), unsupported, expected) {
            (Ok(()), None, None) => report.passed.push(name),
            (Ok(()), _, _) => report.problems.push(format!("{name} passes: remove it from the list")),
            (Err(error), Some(reason), _) if error.kind() == "NotImplementedError" => {
                report.excused.push((name, reason));
            }
            (Err(_), _, Some(reason)) => report.excused.push((name, reason)),
            (Err(error), _, _) => {
                report.problems.push(format!("{name}: {}: {}", error.kind(), error.message()))
            }
        }
    }
    let unknown = lists.unsupported.iter().chain(lists.expected_failures).map(|(name, _)| name);
    for name in unknown.filter(|name| CASES.iter().all(|(known, _)| known != *name)) {
        report.problems.push(format!("{name} is not a test"));
    }
    report
}

/// Runs the tests that every driver must pass on a device, and returns the names of the tests that passed.
/// `unsupported` and `expected_failures` list pairs of a test's name and the reason why it fails. Raises
/// `AssertionError` if a test fails that is not listed, if a listed test passes, or if a listed name is not the name of
/// a test.
#[register("anyfn.device_suite", blocking)]
fn device_suite(
    device: Device,
    #[default(None)] unsupported: Option<Vec<(String, String)>>,
    #[default(None)] expected_failures: Option<Vec<(String, String)>>,
) -> Result<Vec<String>> {
    let (unsupported, failures) = (unsupported.unwrap_or_default(), expected_failures.unwrap_or_default());
    fn pairs(list: &[(String, String)]) -> Vec<(&str, &str)> {
        list.iter().map(|(name, reason)| (&**name, &**reason)).collect()
    }
    let lists = Lists { unsupported: &pairs(&unsupported), expected_failures: &pairs(&failures) };
    let report = run(device, &lists);
    if report.problems.is_empty() {
        return Ok(report.passed.iter().map(ToString::to_string).collect());
    }
    bail!("AssertionError", "{device}: {}", report.problems.join("; "))
}

/// Makes the enclosing function return an `AssertionError` with the given message if a condition does not hold.
macro_rules! ensure {
    ($condition:expr, $($format:tt)+) => {
        if !$condition {
            anyfn::bail!("AssertionError", $($format)+);
        }
    };
}
pub(crate) use ensure;

/// Checks that `result` is an error of the kind `kind`, and returns that error. Otherwise returns an
/// `AssertionError`.
pub(crate) fn refused<T>(result: Result<T>, kind: &str) -> Result<Error> {
    match result {
        Ok(_) => bail!("AssertionError", "expected {kind} but the call succeeded"),
        Err(error) if error.kind() == kind => Ok(error),
        Err(error) => bail!("AssertionError", "expected {kind} but got {}: {}", error.kind(), error.message()),
    }
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + seed * 7 + i / 256) as u8).collect()
}

fn is_there(device: Device) -> Result<()> {
    ensure!(exists(device), "{device} does not exist");
    ensure!(devices().contains(&device), "{device} is not listed");
    let driver = driver_of(device)?;
    ensure!(driver.device_type() == device.0.device_type, "the driver has another device type");
    Ok(())
}

fn others_are_missing(device: Device) -> Result<()> {
    for index in [-1, i32::MAX] {
        let other = Device::new(device.0.device_type, index);
        let error = refused(Memory::allocate(other, 1, 1), "RuntimeError")?;
        let start = format!("device {other} is not available: ");
        ensure!(error.message().starts_with(&start), "{}", error.message());
        ensure!(error.message().len() > start.len(), "no reason is given");
        refused(Stream::create(other), "RuntimeError")?;
    }
    Ok(())
}

fn attributes(device: Device) -> Result<()> {
    let driver = driver_of(device)?;
    let of = |attribute| driver.attribute(device.0.device_id, attribute);
    ensure!(matches!(of(Attribute::Name), Some(Value::Text(name)) if !name.is_empty()), "it has no name");
    let (Some(Value::Int(total)), Some(Value::Int(free))) =
        (of(Attribute::TotalMemory), of(Attribute::FreeMemory))
    else {
        bail!("AssertionError", "it does not report its memory");
    };
    ensure!(0 < free && free <= total, "{free} bytes of {total} are free");
    // No attribute may cause a failure.
    Attribute::ALL.into_iter().for_each(|attribute| drop(of(attribute)));
    Ok(())
}

fn compute_units(device: Device) -> Result<()> {
    match driver_of(device)?.attribute(device.0.device_id, Attribute::ComputeUnits) {
        Some(Value::Int(1..)) => Ok(()),
        None => unsupported("the number of compute units is not known"),
        Some(other) => bail!("AssertionError", "it has {other:?} compute units"),
    }
}

fn alignment(device: Device) -> Result<()> {
    for shift in 0..=12 {
        let memory = Memory::allocate(device, 10, 1 << shift)?;
        ensure!(memory.data().addr() % (1 << shift) == 0, "memory is not aligned to {} bytes", 1 << shift);
    }
    for wrong in [0, 3, 48, 1 << (usize::BITS - 1)] {
        refused(Memory::allocate(device, 8, wrong), "ValueError")?;
    }
    Ok(())
}

fn sizes(device: Device) -> Result<()> {
    let none = Memory::allocate(device, 0, 64)?;
    ensure!(!none.data().is_null(), "memory of 0 bytes has a NULL address");
    // More than the device can have, as far as the number fits.
    let sizes = [usize::MAX as u64, isize::MAX as u64, 1 << 55, 1 << 48];
    for bytes in sizes.into_iter().flat_map(usize::try_from) {
        refused(Memory::allocate(device, bytes, 64), "MemoryError")?;
    }
    // Allocation still works afterwards.
    Memory::allocate(device, 1 << 20, 64).map(drop)
}

fn roundtrip(device: Device) -> Result<()> {
    for bytes in [1, 7, 64, 4096, 1_000_003] {
        let mut memory = Memory::allocate(device, bytes, 64)?;
        let (sent, mut got) = (pattern(bytes, bytes), vec![0; bytes]);
        memory.write(0, &sent)?;
        memory.read(0, &mut got)?;
        ensure!(sent == got, "{bytes} bytes came back changed");
    }
    Ok(())
}

fn ranges(device: Device) -> Result<()> {
    let mut memory = Memory::allocate(device, 100, 64)?;
    memory.write(0, &[0; 100])?;
    memory.write(90, &[1; 10])?;
    memory.write(3, &[2; 5])?;
    memory.write(100, &[])?;
    let mut all = [9; 100];
    memory.read(0, &mut all)?;
    let expected: Vec<u8> =
        (0..100).map(|i| if i >= 90 { 1 } else { 2 * u8::from((3..8).contains(&i)) }).collect();
    ensure!(all[..] == expected[..], "ranges are not where they should be: {all:?}");
    for (offset, bytes) in [(91, 10), (100, 1), (101, 0), (usize::MAX, 2), (2, 99)] {
        refused(memory.write(offset, &vec![0; bytes]), "ValueError")?;
        refused(memory.read(offset, &mut vec![0; bytes]), "ValueError")?;
    }
    Ok(())
}

fn inside(device: Device) -> Result<()> {
    let (mut first, mut second) = (Memory::allocate(device, 64, 64)?, Memory::allocate(device, 64, 64)?);
    first.write(0, &pattern(64, 1))?;
    second.write(0, &[0; 64])?;
    first.copy_to(8, &mut second, 16, 24)?;
    let mut got = [1; 64];
    second.read(0, &mut got)?;
    ensure!(got[16..40] == pattern(64, 1)[8..32] && got[..16] == [0; 16] && got[40..] == [0; 24], "{got:?}");
    refused(first.copy_to(41, &mut second, 0, 24), "ValueError")?;
    refused(first.copy_to(0, &mut second, 41, 24), "ValueError").map(drop)
}

fn many(device: Device) -> Result<()> {
    let mut all = Vec::new();
    for i in 0..200 {
        let mut memory = Memory::allocate(device, 1 + i * 13, 64)?;
        memory.write(0, &pattern(1 + i * 13, i))?;
        all.push((i, memory));
    }
    // Freed out of order.
    all.retain(|(i, _)| i % 3 != 0);
    for (i, memory) in all.iter().rev() {
        let mut got = vec![0; memory.len()];
        memory.read(0, &mut got)?;
        ensure!(got == pattern(1 + i * 13, *i), "memory {i} was overwritten");
    }
    Ok(())
}

fn between_devices(device: Device) -> Result<()> {
    for other in devices() {
        let (mut here, mut there) = (Memory::allocate(device, 50, 64)?, Memory::allocate(other, 50, 64)?);
        let mut back = Memory::allocate(device, 50, 64)?;
        here.write(0, &pattern(50, 3))?;
        there.write(0, &[0; 50])?;
        here.copy_to(10, &mut there, 5, 30)?;
        there.copy_to(5, &mut back, 0, 30)?;
        let mut got = [0; 30];
        back.read(0, &mut got)?;
        ensure!(got[..] == pattern(50, 3)[10..40], "{device} -> {other} -> {device} has changed bytes");
    }
    Ok(())
}

fn scopes(device: Device) -> Result<()> {
    for scope in ["", "global"] {
        Memory::allocate_scope(device, 8, 64, Some(scope))?;
    }
    // A device that has other scopes names them in a test of its driver; all other devices report that they have none.
    Memory::allocate_scope(device, 8, 64, Some("global.texture")).map(drop)
}

fn streams(device: Device) -> Result<()> {
    let (one, two) = (Stream::create(device)?, Stream::create(device)?);
    ensure!(one.as_raw() != two.as_raw(), "two streams are the same");
    ensure!(!one.as_raw().is_null() && !two.as_raw().is_null(), "a new stream is the default one");
    let event = Event::create(device)?;
    event.record(Some(&one))?;
    two.wait(&event)?;
    one.synchronize()?;
    two.synchronize()?;
    synchronize(device)
}

fn events(device: Device) -> Result<()> {
    let event = Event::create(device)?;
    event.record(None)?;
    event.synchronize()?;
    let stream = Stream::create(device)?;
    event.record(Some(&stream))?;
    event.synchronize()?;
    for other in devices().into_iter().filter(|other| *other != device) {
        refused(event.record(Some(&Stream::create(other)?)), "ValueError")?;
        refused(stream.wait(&Event::create(other)?), "ValueError")?;
    }
    Ok(())
}

fn elapsed(device: Device) -> Result<()> {
    let (start, end) = (Event::create(device)?, Event::create(device)?);
    start.record(None)?;
    let mut memory = Memory::allocate(device, 1 << 16, 64)?;
    memory.write(0, &vec![1; 1 << 16])?;
    end.record(None)?;
    let elapsed = end.elapsed_ns(&start)?;
    ensure!(elapsed > 0 && elapsed < 60_000_000_000, "a copy has taken {elapsed} ns");
    refused(Event::create(device)?.elapsed_ns(&start), "ValueError").map(drop)
}

fn foreign_handles(device: Device) -> Result<()> {
    let driver = driver_of(device)?;
    let number = stream_number(Stream::create(device)?);
    ensure!(stream_of(driver, device, number)?.handle().addr() as i64 == number, "a stream has two numbers");
    drop(take_stream(device, number)?);
    refused(take_stream(device, number), "ValueError")?;
    refused(take_event(device, number), "ValueError")?;
    refused(take_stream(device, 0), "ValueError")?;
    if !driver.takes_foreign_streams() {
        refused(stream_of(driver, device, number), "ValueError")?;
    }
    Ok(())
}

fn threads(device: Device) -> Result<()> {
    let work = |seed: usize| -> Result<()> {
        for round in 0..50 {
            let mut memory = Memory::allocate(device, 1000 + seed, 64)?;
            let (sent, mut got) = (pattern(1000, seed * 100 + round), vec![0; 1000]);
            memory.write(seed, &sent)?;
            memory.read(seed, &mut got)?;
            ensure!(sent == got, "memory of one thread was changed by another thread");
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.into_iter().try_for_each(|result| match result {
            Ok(result) => result,
            Err(_) => bail!("AssertionError", "a thread has panicked"),
        })
    })
}

fn opaque(device: Device) -> Result<()> {
    let (kind, memory) = (memory_kind(device), Memory::allocate(device, 16, 64)?);
    ensure!((kind == MemoryKind::Host) == (device.0.device_type == Device::CPU.0.device_type), "{kind:?}");
    ensure!(memory.device() == device, "memory is on {}", memory.device());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::enable_null;

    const CPU: Lists<'_> =
        Lists { unsupported: &[("scopes", "main memory has one scope")], expected_failures: &[] };
    const NULL: Lists<'_> = Lists {
        unsupported: &[
            ("scopes", "the null device has one scope"),
            ("elapsed", "the null device has no clock"),
        ],
        expected_failures: &[],
    };

    #[test]
    fn the_cpu_passes() {
        enable_null().unwrap();
        let report = run(Device::CPU, &CPU);
        assert!(report.problems.is_empty(), "{:#?}", report.problems);
        assert_eq!(report.passed.len() + report.excused.len(), CASES.len());
    }

    #[test]
    fn the_null_device_passes() {
        let device = enable_null().unwrap();
        for index in 0..2 {
            let report = run(Device::new(device.0.device_type, index), &NULL);
            assert!(report.problems.is_empty(), "{:#?}", report.problems);
            assert_eq!(report.excused.len(), 2);
        }
    }

    #[test]
    fn lists_do_not_grow_old() {
        let lists = Lists { unsupported: &[("sizes", "?")], expected_failures: &[("nothing", "?")] };
        let problems = run(Device::CPU, &lists).problems;
        assert!(problems.iter().any(|text| text.starts_with("sizes passes")), "{problems:?}");
        assert!(problems.iter().any(|text| text == "nothing is not a test"), "{problems:?}");
        assert!(problems.iter().any(|text| text.starts_with("scopes: NotImplementedError")), "{problems:?}");
    }

    #[test]
    fn a_missing_device_fails_everything() {
        let report = run(Device::new(2, 0), &Lists::default());
        assert!(report.passed.iter().all(|name| *name == "missing"), "{:?}", report.passed);
    }

    #[test]
    fn the_null_device_gives_its_memory_back() {
        let device = enable_null().unwrap();
        let free = || driver_of(device).unwrap().attribute(1, Attribute::FreeMemory);
        // The other tests use this device too, so only the presence of free memory is checked.
        drop(Memory::allocate(Device::new(device.0.device_type, 1), 1 << 20, 64).unwrap());
        assert!(matches!(free(), Some(Value::Int(bytes)) if bytes > 0));
    }
}
