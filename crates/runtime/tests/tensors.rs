//! Tests of tensors through the methods that the crate `anyfn` offers in Rust.

use anyfn::{DType, Device, Error, Tensor, TypedPackedFunc, registry};
use anyfn_loader as _;
use anyfn_runtime::device::{self, Event, Memory, Stream};

const INT32: DType = DType::INT32;

fn numbers(count: i32, shape: &[i64]) -> Tensor {
    Tensor::from_slice(shape, &(0..count).collect::<Vec<i32>>()).unwrap()
}

fn error<T>(result: Result<T, Error>) -> String {
    result.err().map(|error| format!("{}: {}", error.kind(), error.message())).unwrap()
}

#[test]
fn made_and_read() {
    let tensor = Tensor::empty(DType::FLOAT32, &[2, 3], Device::CPU).unwrap();
    assert_eq!(tensor.view().data().addr() % 64, 0);
    tensor.fill(1.5).unwrap();
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.5; 6]);
    tensor.write::<f32>().unwrap()[4] = 7.0;
    assert_eq!(tensor.slice(0, 1..).unwrap().to_vec::<f32>().unwrap(), [1.5, 7.0, 1.5]);
    assert_eq!(Tensor::zeros_on(INT32, &[2], Device::CPU).unwrap().to_vec::<i32>().unwrap(), [0, 0]);
    assert_eq!(Tensor::full(INT32, &[3], 9, Device::CPU).unwrap().to_vec::<i32>().unwrap(), [9; 3]);
    assert!(error(tensor.to_vec::<i32>()).starts_with("TypeError: expected int32 but got float32"));
    assert!(
        error(Tensor::full("int8".parse().unwrap(), &[3], 900, Device::CPU))
            .contains("900 cannot be represented as int8")
    );
}

#[test]
fn what_cannot_be_made() {
    let cuda = Device::new(2, 3);
    let text = error(Tensor::empty(INT32, &[2], cuda));
    assert!(
        text.starts_with("RuntimeError: device cuda:3 is not available: no driver for cuda is loaded"),
        "{text}"
    );
    assert!(
        error(Tensor::empty(INT32, &[-2], Device::CPU))
            .starts_with("ValueError: expected extents of 0 or more")
    );
    assert!(error(Tensor::empty(INT32, &[1 << 62, 1 << 62], Device::CPU)).starts_with("MemoryError"));
    assert!(error(Tensor::empty(INT32, &[1 << 44], Device::CPU)).starts_with("MemoryError"));
    assert!(error(Tensor::empty(INT32, &[1 << 40; 60], Device::CPU)).starts_with("MemoryError"));
    // Products that are a multiple of 2^64, and the largest extents.
    for shape in [&[1 << 32, 1 << 32][..], &[1 << 33, 1 << 31, 4], &[i64::MAX, i64::MAX], &[i64::MAX]] {
        assert!(error(Tensor::empty(INT32, shape, Device::CPU)).starts_with("MemoryError"), "{shape:?}");
        assert!(error(Tensor::zeros(INT32, shape)).starts_with("ValueError"), "{shape:?}");
        let none = [shape, &[0]].concat();
        assert_eq!(Tensor::empty(INT32, &none, Device::CPU).unwrap().to_vec::<i32>().unwrap(), []);
    }
    assert!(error(numbers(6, &[6]).as_strided(&[i64::MAX, i64::MAX], &[1, 1], 0)).starts_with("MemoryError"));
    assert!(error(numbers(6, &[6]).as_strided(&[i64::MAX], &[i64::MAX], 0)).starts_with("ValueError"));
    assert!(error(numbers(6, &[6]).as_strided(&[2, 2], &[i64::MAX, i64::MAX], 2)).starts_with("ValueError"));
    assert!(error(numbers(6, &[6]).as_strided(&[2, 2], &[i64::MIN, i64::MIN], 0)).starts_with("ValueError"));
    // The text of a tensor with no elements, or with very many, is short.
    let text = |tensor: &Tensor| {
        let text = registry::get("anyfn.tensor_text").unwrap().call((tensor,)).unwrap();
        text.get::<String>().unwrap()
    };
    let none = Tensor::empty(INT32, &[i64::MAX, 0], Device::CPU).unwrap();
    assert_eq!(text(&none), format!("anyfn.tensor([], dtype='int32', shape=({}, 0))", i64::MAX));
    let few = Tensor::empty(INT32, &[2, 0], Device::CPU).unwrap();
    assert_eq!(text(&few), "anyfn.tensor([[],\n              []], dtype='int32', shape=(2, 0))");
    let many = numbers(1, &[1]).as_strided(&[10; 18], &[0; 18], 0).unwrap();
    assert!(text(&many).starts_with("<anyfn.Tensor int32[10, 10, "), "{}", text(&many));
    // All functions accept the dimensions that constructors accept, and no constructor accepts more.
    let (most, more) = ([1; 64], [1; 65]);
    assert_eq!(Tensor::empty(INT32, &most, Device::CPU).unwrap().to_vec::<i32>().unwrap(), [0]);
    assert_eq!(Tensor::zeros(INT32, &most).unwrap().to_vec::<i32>().unwrap(), [0]);
    let refused = "ValueError: expected a tensor of at most 64 dimensions but got 65";
    assert_eq!(error(Tensor::empty(INT32, &more, Device::CPU)), refused);
    assert_eq!(error(Tensor::zeros(INT32, &more)), refused);
    assert_eq!(error(Tensor::from_slice(&more, &[1])), refused);
    assert_eq!(error(Tensor::full(INT32, &more, 1, Device::CPU)), refused);
    assert_eq!(error(numbers(1, &[1]).reshape(&more)), refused);
    assert_eq!(error(numbers(1, &[1]).as_strided(&more, &more, 0)), refused);
}

#[test]
fn views() {
    let tensor = numbers(24, &[4, 6]);
    let of = |tensor: &Tensor| tensor.to_vec::<i32>().unwrap();
    assert_eq!(of(&tensor.slice(1, 1..3).unwrap()), [1, 2, 7, 8, 13, 14, 19, 20]);
    assert_eq!(of(&tensor.slice(0, -1..).unwrap().reshape(&[6]).unwrap()), [18, 19, 20, 21, 22, 23]);
    assert_eq!(of(&tensor.slice(0, ..=-1).unwrap()).len(), 24);
    let backwards = tensor.reshape(&[-1]).unwrap().slice_with_step(0, 2..9, -3).unwrap();
    assert_eq!(of(&backwards), [8, 5, 2]);
    assert_eq!(of(&tensor.permute(&[1, 0]).unwrap().slice(0, 0..2).unwrap()), [0, 6, 12, 18, 1, 7, 13, 19]);
    assert_eq!(of(&tensor.as_strided(&[2, 2], &[0, 5], 3).unwrap()), [3, 8, 3, 8]);
    assert!(
        error(tensor.as_strided(&[2], &[21], 3)).starts_with("ValueError: int32[2] with strides [21] reaches")
    );
    assert!(error(tensor.permute(&[1, 0]).unwrap().reshape(&[24])).contains("make it contiguous first"));
    assert!(error(tensor.slice(2, ..)).contains("has no dimension 2"));
    assert!(error(tensor.slice_with_step(0, .., 0)).contains("a slice step other than 0"));
    assert!(error(tensor.permute(&[0, 0])).contains("each of the 2 dimensions once"));
    let kept = { numbers(6, &[6]).slice(0, 2..).unwrap() };
    assert_eq!(of(&kept), [2, 3, 4, 5]);
}

#[test]
fn many_elements_are_converted() {
    // More than one run of elements, the last of which is partial, from layouts of any kind.
    let tensor = numbers(9000, &[150, 60]);
    let int16: DType = "int16".parse().unwrap();
    for view in [
        tensor.slice(0, ..).unwrap(),
        tensor.permute(&[1, 0]).unwrap(),
        tensor.slice_with_step(0, 3..149, -3).unwrap(),
        tensor.as_strided(&[40, 30], &[0, 7], 5).unwrap(),
    ] {
        let expected = view.to_vec::<i32>().unwrap();
        let floats: Vec<f32> = expected.iter().map(|x| *x as f32).collect();
        assert_eq!(view.cast(DType::FLOAT32).unwrap().to_vec::<f32>().unwrap(), floats);
        for dtype in ["int16", "uint64", "float64", "int15", "uint17"] {
            let there = view.cast(dtype.parse().unwrap()).unwrap();
            assert_eq!(there.cast(INT32).unwrap().to_vec::<i32>().unwrap(), expected, "{dtype}");
        }
    }
    // The first value that is not represented, behind others that are.
    let text = error(tensor.cast("uint8".parse().unwrap()));
    assert_eq!(text, "ValueError: 256 at [4, 16] cannot be represented as uint8");
    tensor.slice(0, 140..141).unwrap().fill(-1).unwrap();
    let text = error(tensor.cast("uint32".parse().unwrap()));
    assert_eq!(text, "ValueError: -1 at [140, 0] cannot be represented as uint32");
    assert_eq!(tensor.slice(0, 140..141).unwrap().cast(int16).unwrap().to_vec::<i16>().unwrap(), [-1; 60]);
}

#[test]
fn between_devices() {
    let null = device::enable_null().unwrap();
    let tensor = numbers(6, &[2, 3]);
    let there = tensor.to_device(null).unwrap();
    assert_eq!(there.view().device(), null);
    assert_eq!(there.to_vec::<i32>().unwrap(), [0, 1, 2, 3, 4, 5]);
    let column = there.slice(1, 1..2).unwrap();
    column.fill(-1).unwrap();
    assert_eq!(there.to_vec::<i32>().unwrap(), [0, -1, 2, 3, -1, 5]);
    there.copy_to(&tensor).unwrap();
    assert_eq!(tensor.to_vec::<i32>().unwrap(), [0, -1, 2, 3, -1, 5]);
    assert_eq!(
        error(there.read::<i32>()),
        "ValueError: expected a tensor in main memory but got one on ext_dev:0"
    );
    let half: DType = "bfloat16".parse().unwrap();
    assert_eq!(there.cast(half).unwrap().cast(INT32).unwrap().to_vec::<i32>().unwrap(), [0, -1, 2, 3, -1, 5]);
    assert!(error(tensor.copy_to(&there.reshape(&[6]).unwrap())).contains("the shapes differ"));
}

#[test]
fn a_function_makes_what_its_caller_gets() {
    let double = TypedPackedFunc::from_fn(|x: anyfn::TensorView<'_>| -> anyfn::Result<Tensor> {
        let made = Tensor::empty_for_caller(x.dtype(), x.shape(), x.device())?;
        let view = made.view();
        let (from, mut to) = x.read_and_write::<i32, i32>(&view)?;
        from.iter().zip(to.iter_mut()).for_each(|(from, to)| *to = 2 * from);
        drop(to);
        Ok(made)
    });
    let result = double.as_packed().call((&numbers(3, &[3]),)).unwrap();
    assert_eq!(result.get::<Tensor>().unwrap().to_vec::<i32>().unwrap(), [0, 2, 4]);
}

#[test]
fn streams_and_events_are_owned() {
    let null = device::enable_null().unwrap();
    for device in [Device::CPU, null] {
        let stream = Stream::create(device).unwrap();
        let event = Event::create(device).unwrap();
        event.record(Some(&stream)).unwrap();
        stream.wait(&event).unwrap();
        stream.synchronize().unwrap();
    }
    assert!(error(Memory::allocate(Device::new(7, 0), 8, 8)).contains("no driver for vulkan is loaded"));
}

#[test]
fn many_threads_copy() {
    let null = device::enable_null().unwrap();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                for round in 0..50 {
                    let tensor = Tensor::full(INT32, &[50, 40], seed * 1000 + round, Device::CPU).unwrap();
                    let there = tensor.permute(&[1, 0]).unwrap().to_device(null).unwrap();
                    let back = there.slice_with_step(0, .., 2).unwrap().to_vec::<i32>().unwrap();
                    assert!(back.iter().all(|x| *x == seed * 1000 + round) && back.len() == 1000);
                }
            });
        }
    });
}

#[test]
fn drivers_are_registered_once() {
    device::enable_null().unwrap();
    static SECOND: device::null::Null = device::null::Null::new(12);
    static WRONG: device::null::Null = device::null::Null::new(-4);
    static CPU: device::null::Null = device::null::Null::new(1);
    assert_eq!(error(device::register(&SECOND)), "RuntimeError: a driver for ext_dev is already registered");
    assert!(error(device::register(&WRONG)).starts_with("ValueError: expected a device type from 1"));
    assert_eq!(error(device::register(&CPU)), "RuntimeError: a driver for cpu is already registered");
}

#[test]
fn work_of_a_device_is_timed() {
    let null = device::enable_null().unwrap();
    let mut timer = anyfn_runtime::timing::timer(null).unwrap();
    timer.start().unwrap();
    let tensor = Tensor::full(INT32, &[100_000], 1, null).unwrap();
    let seconds = timer.stop().unwrap();
    assert!(seconds > 0.0 && seconds < 60.0, "{seconds}");
    drop(tensor);
    timer.start().unwrap();
    assert!(timer.stop().unwrap() < seconds.max(1.0));
    assert!(error(anyfn_runtime::timing::timer(Device::new(2, 0))).contains("device cuda:0 is not available"));
}

#[test]
fn an_empty_tensor_shows_nothing_that_others_have_left() {
    for length in [1, 64, 1000, 100_000] {
        for _ in 0..20 {
            let old = Tensor::full(DType::UINT8, &[length], 0xA5, Device::CPU).unwrap();
            drop(old);
            let new = Tensor::empty(DType::UINT8, &[length], Device::CPU).unwrap();
            assert!(new.to_vec::<u8>().unwrap().iter().all(|byte| *byte == 0), "{length}");
        }
    }
}
