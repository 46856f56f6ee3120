use super::*;
use anyfn::abi::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

static DATA: [u64; 32] = [0; 32];

fn describe(shape: &mut [i64], strides: Option<&mut [i64]>) -> DLTensor {
    DLTensor {
        data: DATA.as_ptr().cast_mut().cast(),
        device: DLDevice { device_type: kDLCPU, device_id: 0 },
        ndim: shape.len() as i32,
        dtype: DLDataType { code: kDLFloat, bits: 32, lanes: 1 },
        shape: shape.as_mut_ptr(),
        strides: strides.map_or(ptr::null_mut(), |strides| strides.as_mut_ptr()),
        byte_offset: 0,
    }
}

unsafe extern "C" fn count(this: *mut DLManagedTensor) {
    (*(*this).manager_ctx.cast::<AtomicUsize>()).fetch_add(1, Ordering::Relaxed);
}

unsafe extern "C" fn count_versioned(this: *mut DLManagedTensorVersioned) {
    (*(*this).manager_ctx.cast::<AtomicUsize>()).fetch_add(1, Ordering::Relaxed);
}

fn managed(dl_tensor: DLTensor, counter: &AtomicUsize) -> DLManagedTensor {
    DLManagedTensor { dl_tensor, manager_ctx: ptr::from_ref(counter).cast_mut().cast(), deleter: Some(count) }
}

fn versioned(dl_tensor: DLTensor, counter: &AtomicUsize) -> DLManagedTensorVersioned {
    DLManagedTensorVersioned {
        version: DLPackVersion { major: 1, minor: 0 },
        manager_ctx: ptr::from_ref(counter).cast_mut().cast(),
        deleter: Some(count_versioned),
        flags: 0,
        dl_tensor,
    }
}

fn tensor(object: &ObjectRef) -> &DLTensor {
    unsafe { &*content(object) }
}

fn strides(object: &ObjectRef) -> &[i64] {
    let tensor = tensor(object);
    assert!(!tensor.strides.is_null());
    unsafe { std::slice::from_raw_parts(tensor.strides, tensor.ndim as usize) }
}

#[test]
fn a_tensor_takes_dlpack_over_and_has_strides() {
    let (released, mut shape) = (AtomicUsize::new(0), [2, 3, 4]);
    let mut from = managed(describe(&mut shape, None), &released);
    let mut out = ptr::null_mut();
    assert_eq!(unsafe { TVMFFITensorFromDLPack(&mut from, 8, 1, &mut out) }, 0);
    let made = owned(out);
    assert_eq!(made.type_index(), kTVMFFITensor);
    assert_eq!(strides(&made), [12, 4, 1]);
    assert_eq!(tensor(&made).data.addr(), DATA.as_ptr().addr());

    let mut exported = ptr::null_mut();
    assert_eq!(unsafe { TVMFFITensorToDLPack(made.as_handle(), &mut exported) }, 0);
    let mut exported_too = ptr::null_mut();
    assert_eq!(unsafe { TVMFFITensorToDLPackVersioned(made.as_handle(), &mut exported_too) }, 0);
    drop(made);
    assert_eq!(released.load(Ordering::Relaxed), 0);
    assert_eq!(unsafe { (*exported_too).version.major }, 1);
    assert_eq!(unsafe { (*exported_too).flags }, 0);
    unsafe { (*exported).deleter.unwrap()(exported) };
    assert_eq!(released.load(Ordering::Relaxed), 0);
    unsafe { (*exported_too).deleter.unwrap()(exported_too) };
    assert_eq!(released.load(Ordering::Relaxed), 1);
}

#[test]
fn scalars_and_empty_tensors() {
    let released = AtomicUsize::new(0);
    for (shape, expected) in [
        (vec![], vec![]),
        (vec![0], vec![1]),
        (vec![3, 0, 2], vec![0, 2, 1]),
        (vec![i64::MAX, i64::MAX, 0], vec![0, 0, 1]),
    ] {
        let mut shape: Vec<i64> = shape;
        let mut from = versioned(describe(&mut shape, None), &released);
        let mut out = ptr::null_mut();
        assert_eq!(unsafe { TVMFFITensorFromDLPackVersioned(&mut from, 0, 1, &mut out) }, 0, "{shape:?}");
        let made = owned(out);
        if !shape.is_empty() {
            assert_eq!(strides(&made), expected);
        }
    }
    assert_eq!(released.load(Ordering::Relaxed), 4);
}

#[test]
fn what_is_required_is_checked_and_the_caller_keeps_the_tensor() {
    let released = AtomicUsize::new(0);
    let mut out = ptr::null_mut();
    let (mut shape, mut turned) = ([2, 3], [1, 2]);
    let mut from = managed(describe(&mut shape, Some(&mut turned)), &released);
    let code = unsafe { TVMFFITensorFromDLPack(&mut from, 0, 1, &mut out) };
    expect(code, "RuntimeError", "FromDLPack: Tensor is not contiguous.");
    let mut from = managed(describe(&mut shape, None), &released);
    from.dl_tensor.byte_offset = 4;
    let code = unsafe { TVMFFITensorFromDLPack(&mut from, 8, 0, &mut out) };
    expect(code, "RuntimeError", "FromDLPack: Data is not aligned to 8 bytes.");
    assert_eq!(failed(unsafe { TVMFFITensorFromDLPack(&mut from, -8, 0, &mut out) }).0, "ValueError");
    // A device handle has no alignment; only the byte offset has one.
    from.dl_tensor.device.device_type = kDLOpenCL;
    from.dl_tensor.data = from.dl_tensor.data.wrapping_byte_add(1);
    from.dl_tensor.byte_offset = 16;
    assert_eq!(unsafe { TVMFFITensorFromDLPack(&mut from, 16, 0, &mut out) }, 0);
    drop(owned(out));
    assert_eq!(released.swap(0, Ordering::Relaxed), 1);

    let mut strides = [77, 1];
    let mut one = [1, 3];
    let mut from = managed(describe(&mut one, Some(&mut strides)), &released);
    assert_eq!(unsafe { TVMFFITensorFromDLPack(&mut from, 0, 1, &mut out) }, 0);
    assert_eq!(tensor(&owned(out)).strides, strides.as_mut_ptr());
    assert_eq!(released.load(Ordering::Relaxed), 1);
}

#[test]
fn broken_tensors_are_refused() {
    let released = AtomicUsize::new(0);
    let mut out = ptr::null_mut();
    let mut refuse = |change: &dyn Fn(&mut DLTensor)| {
        let mut shape = [2, 3];
        let mut from = versioned(describe(&mut shape, None), &released);
        change(&mut from.dl_tensor);
        failed(unsafe { TVMFFITensorFromDLPackVersioned(&mut from, 0, 0, &mut out) })
    };
    assert_eq!(refuse(&|tensor| tensor.ndim = -1).1, "expected a tensor with 0 or more dimensions, got -1");
    assert_eq!(
        refuse(&|tensor| tensor.shape = ptr::null_mut()).1,
        "invalid tensor with 2 dimensions: its shape is NULL"
    );
    let negative = "invalid shape [2, -3] of a tensor: an extent is negative";
    assert_eq!(refuse(&|tensor| unsafe { *tensor.shape.add(1) = -3 }).1, negative);
    let large = refuse(&|tensor| unsafe {
        *tensor.shape = i64::MAX;
    });
    assert!(large.1.ends_with("is too large"), "{}", large.1);

    let mut shape = [2, 3];
    let mut from = versioned(describe(&mut shape, None), &released);
    from.version = DLPackVersion { major: 2, minor: 1 };
    let code = unsafe { TVMFFITensorFromDLPackVersioned(&mut from, 0, 0, &mut out) };
    expect(code, "ValueError", "DLPack version 2.1 cannot be read: expected 1.x");
    let this = "TVMFFITensorFromDLPackVersioned";
    expect_null(unsafe { TVMFFITensorFromDLPackVersioned(ptr::null_mut(), 0, 0, &mut out) }, this, "from");
    expect_null(unsafe { TVMFFITensorFromDLPackVersioned(&mut from, 0, 0, ptr::null_mut()) }, this, "out");
    let this = "TVMFFITensorFromDLPack";
    expect_null(unsafe { TVMFFITensorFromDLPack(ptr::null_mut(), 0, 0, &mut out) }, this, "from");
    assert_eq!(released.load(Ordering::Relaxed), 0);

    let shape = anyfn::Shape::from(&[1i64][..]);
    let mut exported = ptr::null_mut();
    let code = unsafe { TVMFFITensorToDLPackVersioned(shape.as_object().as_handle(), &mut exported) };
    expect(code, "TypeError", "TVMFFITensorToDLPackVersioned: expected a `ffi.Tensor` but got `ffi.Shape`");
    expect_null(
        unsafe { TVMFFITensorToDLPackVersioned(ptr::null_mut(), &mut exported) },
        "TVMFFITensorToDLPackVersioned",
        "from",
    );
    let mut exported = ptr::null_mut();
    expect_null(
        unsafe { TVMFFITensorToDLPack(ptr::null_mut(), &mut exported) },
        "TVMFFITensorToDLPack",
        "from",
    );
}

#[test]
fn read_only_memory_stays_so() {
    let (released, mut shape) = (AtomicUsize::new(0), [2]);
    let mut from = versioned(describe(&mut shape, None), &released);
    from.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
    let mut out = ptr::null_mut();
    assert_eq!(unsafe { TVMFFITensorFromDLPackVersioned(&mut from, 0, 0, &mut out) }, 0);
    let made = owned(out);
    let prototype = *tensor(&made);
    assert_eq!(unsafe { TVMFFITensorCreateUnsafeView(made.as_handle(), &prototype, &mut out) }, 0);
    let view = owned(out);
    for object in [&made, &view] {
        let mut exported = ptr::null_mut();
        assert_eq!(unsafe { TVMFFITensorToDLPackVersioned(object.as_handle(), &mut exported) }, 0);
        assert_eq!(unsafe { (*exported).flags }, DLPACK_FLAG_BITMASK_READ_ONLY);
        unsafe { (*exported).deleter.unwrap()(exported) };
    }
}

#[test]
fn views_keep_their_source_and_copy_their_shape() {
    let (released, mut shape) = (AtomicUsize::new(0), [4, 4]);
    let mut from = managed(describe(&mut shape, None), &released);
    let mut out = ptr::null_mut();
    assert_eq!(unsafe { TVMFFITensorFromDLPack(&mut from, 0, 0, &mut out) }, 0);
    let source = owned(out);
    let view = {
        let (mut shape, mut strides) = ([2, 4], [8, 1]);
        let mut prototype = describe(&mut shape, Some(&mut strides));
        prototype.byte_offset = 16;
        assert_eq!(unsafe { TVMFFITensorCreateUnsafeView(source.as_handle(), &prototype, &mut out) }, 0);
        prototype.strides = ptr::null_mut();
        let mut none = ptr::null_mut();
        let code = unsafe { TVMFFITensorCreateUnsafeView(source.as_handle(), &prototype, &mut none) };
        expect(code, "ValueError", "TVMFFITensorCreateUnsafeView: the prototype has no strides");
        prototype.ndim = -2;
        let code = unsafe { TVMFFITensorCreateUnsafeView(source.as_handle(), &prototype, &mut none) };
        assert_eq!(failed(code).0, "ValueError");
        owned(out)
    };
    drop(source);
    assert_eq!(released.load(Ordering::Relaxed), 0);
    assert_eq!(strides(&view), [8, 1]);
    assert_eq!(unsafe { *tensor(&view).shape }, 2);
    assert_eq!(tensor(&view).byte_offset, 16);
    drop(view);
    assert_eq!(released.load(Ordering::Relaxed), 1);
    let this = "TVMFFITensorCreateUnsafeView";
    let prototype = describe(&mut [], None);
    expect_null(unsafe { TVMFFITensorCreateUnsafeView(ptr::null_mut(), &prototype, &mut out) }, this, "source");
}

#[test]
fn tensors_are_allocated_by_the_current_allocator() {
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn allocate(
        prototype: *mut DLTensor,
        out: *mut *mut DLManagedTensorVersioned,
        error: *mut c_void,
        set_error: Option<DLPackSetError>,
    ) -> c_int {
        unsafe extern "C" fn release(this: *mut DLManagedTensorVersioned) {
            RELEASED.fetch_add(1, Ordering::Relaxed);
            drop(Box::from_raw(this));
        }
        let extents = std::slice::from_raw_parts((*prototype).shape, (*prototype).ndim as usize);
        if extents == [13] {
            set_error.unwrap()(error, c"MemoryError".as_ptr(), c"an unlucky number".as_ptr());
            return -1;
        }
        if extents == [14] {
            return 3;
        }
        if extents == [15] {
            return 0;
        }
        let mut made = versioned(*prototype, &RELEASED);
        made.deleter = Some(release);
        if extents == [16] {
            made.version.major = 7;
        }
        *out = Box::into_raw(Box::new(made));
        0
    }
    let alloc = |extent: i64| {
        let mut shape = [extent];
        let mut out = ptr::null_mut();
        let code = unsafe { TVMFFIEnvTensorAlloc(&mut describe(&mut shape, None), &mut out) };
        (code, out)
    };
    assert_eq!(failed(alloc(2).0).0, "RuntimeError");
    let mut old = Some(allocate as DLPackManagedTensorAllocator);
    assert_eq!(unsafe { TVMFFIEnvSetDLPackManagedTensorAllocator(Some(allocate), 0, &mut old) }, 0);
    assert!(old.is_none());
    let (code, out) = alloc(2);
    assert_eq!(code, 0);
    drop(owned(out));
    assert_eq!(RELEASED.load(Ordering::Relaxed), 1);
    expect(alloc(13).0, "MemoryError", "an unlucky number");
    expect(alloc(14).0, "RuntimeError", "the tensor allocator failed with code 3 and reported no error");
    expect(alloc(15).0, "RuntimeError", "the tensor allocator returned no tensor");
    // A tensor of the allocator that cannot be used is released.
    assert_eq!(failed(alloc(16).0).0, "ValueError");
    assert_eq!(RELEASED.load(Ordering::Relaxed), 2);
    let mut out = ptr::null_mut();
    expect_null(
        unsafe { TVMFFIEnvTensorAlloc(ptr::null_mut(), &mut out) },
        "TVMFFIEnvTensorAlloc",
        "prototype",
    );

    // Other threads have no allocator until it is made the global one.
    let other = || {
        std::thread::spawn(|| unsafe { TVMFFIEnvGetDLPackManagedTensorAllocator() }.is_some()).join().unwrap()
    };
    assert!(!other());
    assert_eq!(unsafe { TVMFFIEnvSetDLPackManagedTensorAllocator(Some(allocate), 1, &mut old) }, 0);
    assert!(old.is_some() && other());
    assert_eq!(unsafe { TVMFFIEnvSetDLPackManagedTensorAllocator(None, 1, ptr::null_mut()) }, 0);
    assert!(!other() && unsafe { TVMFFIEnvGetDLPackManagedTensorAllocator() }.is_none());
}

#[test]
fn a_tensor_of_too_many_dimensions_is_refused_before_its_shape_is_read() {
    for ndim in [65, 1 << 30, i32::MAX] {
        let (released, mut shape) = (AtomicUsize::new(0), [1]);
        let described = DLTensor { ndim, ..describe(&mut shape, None) };
        let mut out = ptr::null_mut();
        assert_eq!(unsafe { TVMFFITensorFromDLPack(&mut managed(described, &released), 0, 0, &mut out) }, -1);
        let error = anyfn::Error::take_raised();
        assert_eq!(error.kind(), "ValueError");
        assert_eq!(error.message(), format!("expected a tensor of at most 64 dimensions but got {ndim}"));
        assert_eq!(
            unsafe { TVMFFITensorFromDLPackVersioned(&mut versioned(described, &released), 0, 0, &mut out) },
            -1
        );
        assert!(anyfn::Error::take_raised().message().ends_with(&format!("got {ndim}")));
        assert_eq!(released.load(Ordering::Relaxed), 0);
        // The tensor is an argument of a call.
        let view = TVMFFIAny {
            type_index: kTVMFFIDLTensorPtr,
            small_str_len: 0,
            value: TVMFFIAnyValue { v_ptr: ptr::from_ref(&described).cast_mut().cast() },
        };
        let view = unsafe { anyfn::AnyView::from_raw(view) };
        assert!(view.get::<anyfn::TensorView<'_>>().is_err());
    }
}
