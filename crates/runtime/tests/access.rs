//! Tests of accesses to the elements of tensors: no thread sees a partial write of another thread,
//! and a thread whose accesses conflict with each other gets an error instead of a deadlock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use anyfn::abi::DLTensor;
use anyfn::access::{Access, Mode, Region};
use anyfn::{DType, Device, Error, PackedFunc, Tensor, TensorView, TypedPackedFunc, register, registry};
use anyfn_loader as _;
use anyfn_runtime as _;

fn error<T>(result: Result<T, Error>) -> String {
    result.err().map(|error| format!("{}: {}", error.kind(), error.message())).unwrap()
}

/// Guard that stops the other threads of a test when it is dropped, even if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn readers_never_see_half_of_what_is_written() {
    const LENGTH: usize = 1 << 15;
    let tensor = Tensor::zeros(DType::UINT8, &[LENGTH as i64]).unwrap();
    let (stop, patterns) = (AtomicBool::new(false), [3u8, 4].map(|byte| vec![byte; LENGTH]));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                tensor.fill(1).unwrap();
                tensor.set_bytes(&patterns[0]).unwrap();
            }
        });
        scope.spawn(|| {
            let other = Tensor::from_bytes(DType::UINT8, &[LENGTH as i64], &patterns[1]).unwrap();
            while !stop.load(Ordering::Relaxed) {
                other.copy_to(&tensor).unwrap();
                tensor.write::<u8>().unwrap().fill(2);
            }
        });
        let _stop = Stop(&stop);
        for _ in 0..100 {
            let seen = tensor.to_vec::<u8>().unwrap();
            assert!(seen.iter().all(|byte| *byte == seen[0]), "torn");
            let seen = tensor.read::<u8>().unwrap();
            assert!(seen.iter().all(|byte| *byte == seen[0]), "torn");
            drop(seen);
            let seen = tensor.cast(DType::FLOAT32).unwrap().to_vec::<f32>().unwrap();
            assert!(seen.iter().all(|value| *value == seen[0]), "torn");
        }
    });
}

#[test]
fn other_threads_wait_for_a_guard_and_views_that_are_apart_do_not() {
    let tensor = Tensor::zeros(DType::INT32, &[2, 4]).unwrap();
    let (first, second) = (tensor.slice(0, 0..1).unwrap(), tensor.slice(0, 1..2).unwrap());
    let filled = AtomicBool::new(false);
    let (started, start) = mpsc::channel();
    std::thread::scope(|scope| {
        let mut guard = first.write::<i32>().unwrap();
        scope.spawn(|| {
            second.fill(5).unwrap();
            started.send(()).unwrap();
            tensor.fill(7).unwrap();
            filled.store(true, Ordering::SeqCst);
        });
        start.recv().unwrap();
        // The other row has been written meanwhile, and this thread can use both rows.
        assert_eq!(*second.read::<i32>().unwrap(), [5; 4]);
        guard.fill(6);
        assert_eq!(*guard, [6; 4]);
        assert!(!filled.load(Ordering::SeqCst));
        drop(guard);
    });
    assert_eq!(tensor.to_vec::<i32>().unwrap(), [7; 8]);
}

#[test]
fn a_conflict_with_a_guard_of_the_same_thread_is_an_error() {
    let tensor = Tensor::from_slice(&[2, 2], &[1i32, 2, 3, 4]).unwrap();
    let other = Tensor::zeros(DType::INT32, &[2, 2]).unwrap();
    let held = |name: &str| format!("this thread holds a {name} of the same memory");
    let read = tensor.read::<i32>().unwrap();
    for result in [tensor.fill(1), tensor.set_bytes(&[0; 16]), other.copy_to(&tensor)] {
        let text = error(result);
        assert!(
            text.starts_with("RuntimeError: cannot write the 16 bytes") && text.ends_with(&held("TensorRead")),
            "{text}"
        );
    }
    assert!(error(tensor.write::<i32>()).ends_with(&held("TensorRead")));
    // The tensor can be read again and copied from.
    assert_eq!(tensor.to_vec::<i32>().unwrap(), *read);
    tensor.copy_to(&other).unwrap();
    drop(read);

    let write = tensor.write::<i32>().unwrap();
    let text = |name: &str| registry::get(name).unwrap().call((&tensor,)).map(drop);
    for result in [
        tensor.to_vec::<i32>().map(drop),
        tensor.copy_to(&other),
        tensor.cast(DType::FLOAT32).map(drop),
        tensor.view().to_bytes().map(drop),
        text("anyfn.tensor_text"),
        text("anyfn.tensor_decode"),
        text("anyfn.tensor_copy"),
        tensor.permute(&[1, 0]).unwrap().contiguous().map(drop),
    ] {
        let text = error(result);
        assert!(text.starts_with("RuntimeError: cannot read") && text.contains(&held("TensorWrite")), "{text}");
    }
    drop(write);
    assert_eq!(tensor.to_vec::<i32>().unwrap(), [1, 2, 3, 4]);
}

#[test]
fn a_copy_between_views_that_overlap_is_one_access() {
    let tensor = Tensor::from_slice(&[5], &[1i32, 2, 3, 4, 5]).unwrap();
    tensor.slice(0, 0..4).unwrap().copy_to(&tensor.slice(0, 1..5).unwrap()).unwrap();
    assert_eq!(tensor.to_vec::<i32>().unwrap(), [1, 1, 2, 3, 4]);
    let reversed = tensor.slice_with_step(0, .., -1).unwrap();
    reversed.copy_to(&tensor).unwrap();
    assert_eq!(tensor.to_vec::<i32>().unwrap(), [4, 3, 2, 1, 1]);
}

#[test]
fn threads_that_would_wait_for_each_other_get_an_error_or_their_turn() {
    let [a, b] = [0, 1].map(|_| Tensor::zeros(DType::INT32, &[4]).unwrap());
    let (ready, both) = (std::sync::Barrier::new(2), [(&a, &b), (&b, &a)]);
    let outcomes: Vec<Result<(), Error>> = std::thread::scope(|scope| {
        let threads = both.map(|(first, second)| {
            let ready = &ready;
            scope.spawn(move || {
                let _first = first.write::<i32>()?;
                ready.wait();
                second.fill(1)
            })
        });
        threads.map(|thread| thread.join().unwrap()).into()
    });
    let errors: Vec<String> = outcomes.into_iter().filter(Result::is_err).map(error).collect();
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].starts_with("RuntimeError: cannot access the elements of a tensor: the thread"),
        "{}",
        errors[0]
    );
    // Both copies run at once, in opposite directions, many times: each gets its turn.
    std::thread::scope(|scope| {
        for (from, to) in both {
            scope.spawn(move || {
                for _ in 0..2000 {
                    from.copy_to(to).unwrap();
                    let (from, to) = (from.view(), to.view());
                    let (from, mut to) = from.read_and_write::<i32, i32>(&to).unwrap();
                    to.copy_from_slice(&from);
                }
            });
        }
    });
}

#[test]
fn an_access_within_a_limit_names_the_time_that_it_waited() {
    let bytes = [0u8; 4];
    let region = Region::host(bytes.as_ptr(), bytes.len());
    let [_held] = Access::begin([(region, Mode::Write)]).unwrap();
    for (limit, waited) in [(0, 0), (10, 10), (100, 100), (101, 200)] {
        let begin = || Access::begin_within([(region, Mode::Read)], limit).map(drop);
        let text = error(std::thread::scope(|scope| scope.spawn(begin).join().unwrap()));
        assert_eq!(
            text,
            format!(
                "RuntimeError: cannot access the elements of a tensor: another thread has used them for more than \
                 {waited} ms"
            )
        );
    }
}

#[test]
fn memory_of_devices_is_in_the_table_too() {
    let device = anyfn_runtime::device::enable_null().unwrap();
    let there = Tensor::full(DType::UINT8, &[1 << 16], 1, device).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The part is strided, so each write reads the memory of the device, changes it and writes it back.
            let even = there.slice_with_step(0, .., 2).unwrap();
            while !stop.load(Ordering::Relaxed) {
                even.fill(2).unwrap();
                there.fill(3).unwrap();
            }
        });
        let _stop = Stop(&stop);
        let odd = there.slice_with_step(0, 1.., 2).unwrap();
        for _ in 0..200 {
            let seen = odd.to_vec::<u8>().unwrap();
            assert!(seen.iter().all(|byte| *byte == seen[0]), "torn");
        }
    });
}

#[register("access_test.meddle")]
fn meddle(#[read_only] x: TensorView<'_>, how: &str) -> anyfn::Result<()> {
    assert!(x.is_read_only());
    let global = |name: &str| registry::get(name).unwrap();
    match how {
        "fill" => global("anyfn.tensor_fill").call((x, 7)).map(drop),
        "copy" => {
            global("runtime.TVMTensorCopyFromTo").call((&Tensor::from_slice(&[2], &[7, 7])?, x)).map(drop)
        }
        "bytes" => global("anyfn.tensor_set_bytes").call((x, &[7u8; 8][..])).map(drop),
        "write" => x.write::<i32>().map(drop),
        "pass on" => PackedFunc::from(TypedPackedFunc::from_fn(|x: TensorView<'_>| -> anyfn::Result<()> {
            x.write::<i32>()?.fill(7);
            Ok(())
        }))
        .call((x,))
        .map(drop),
        "read" => global("anyfn.tensor_text").call((x,)).map(drop),
        _ => x.read::<i32>().map(drop),
    }
}

#[test]
fn what_a_function_only_reads_is_not_written() {
    let numbers = [1, 2];
    let mut shape = [2];
    let described = DLTensor {
        data: numbers.as_ptr().cast_mut().cast(),
        device: Device::CPU.0,
        ndim: 1,
        dtype: <i32 as anyfn::Element>::DTYPE.0,
        shape: shape.as_mut_ptr(),
        strides: core::ptr::null_mut(),
        byte_offset: 0,
    };
    // SAFETY: the array is alive, and the functions must not write to it, which this test checks.
    let view = unsafe { TensorView::from_dl(&described) };
    assert!(!view.is_read_only());
    let meddle = registry::get("access_test.meddle").unwrap();
    for how in ["fill", "copy", "bytes", "write", "pass on"] {
        let error = meddle.call((view, how)).unwrap_err();
        assert!(error.message().contains("expected a writable tensor"), "{how}: {}", error.message());
        assert_eq!(numbers, [1, 2], "{how}");
    }
    for how in ["read", "look"] {
        meddle.call((view, how)).unwrap();
    }
}
