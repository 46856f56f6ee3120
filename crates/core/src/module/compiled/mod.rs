//! Calls of functions that the peer's compiler has generated.
//!
//! Their code checks its arguments, but not everything that it relies on. It accesses memory with instructions that
//! fault if it is not aligned, compares only the lower half of extents, and takes any pointer or object for a tensor.
//! Its messages also do not tell what was received. So these functions are called through [`Guard::call`], which
//! inspects each tensor in passing. Anything unusual takes the slow path: unaligned memory is copied and copied back,
//! the rest is refused. [`requirement`] recognises such libraries by their files.

mod copies;
mod report;
pub(super) mod scan;
mod signature;

use core::ffi::c_int;
use core::ptr;
use std::boxed::Box;
use std::string::ToString;
use std::sync::OnceLock;
use std::vec::Vec;

use anyfn::__private::trampoline;
use anyfn::abi::{
    DLTensor, TVMFFIAny, TVMFFIObject, TVMFFISafeCallType, kDLCPU, kTVMFFIDLTensorPtr, kTVMFFIOpaquePtr,
    kTVMFFIStaticObjectBegin, kTVMFFITensor,
};
use anyfn::{Error, Result, TensorView};

use copies::Copies;

/// String that only libraries of the peer's compiler contain.
pub(super) const MARK: &str = signature::MARK;
/// Symbol that all these libraries need.
pub(super) const NEEDED: &str = "TVMFFIErrorSetRaisedFromCStrParts";

/// State of the argument checks of a function of such a library.
pub(super) struct Guard {
    /// Bits of an address that must be 0.
    mask: usize,
    /// Signature of the function, if it had to be requested.
    signature: OnceLock<Option<Box<str>>>,
}

impl Guard {
    pub(super) fn new(alignment: usize) -> Guard {
        Guard { mask: alignment - 1, signature: OnceLock::new() }
    }

    /// Calls a function of the library.
    ///
    /// # Safety
    /// The requirements of `function` itself apply. It must belong to a library that the peer's compiler has generated.
    #[inline]
    pub(super) unsafe fn call(
        &self,
        function: TVMFFISafeCallType,
        args: *const TVMFFIAny,
        count: c_int,
        result: *mut TVMFFIAny,
    ) -> c_int {
        // SAFETY: the caller guarantees the arguments.
        if unsafe { self.is_ordinary(args, count) } {
            // SAFETY: the caller guarantees the call.
            let code = unsafe { function(ptr::null_mut(), args, count, result) };
            if code == 0 {
                return 0;
            }
            // SAFETY: the caller guarantees the call; the call has failed.
            return unsafe { self.failed(function, args, count, code) };
        }
        // SAFETY: the caller guarantees the call.
        unsafe { self.call_slowly(function, args, count, result) }
    }

    /// Returns true if the function's own checks suffice.
    ///
    /// # Safety
    /// There must be `count` valid arguments.
    #[inline]
    unsafe fn is_ordinary(&self, args: *const TVMFFIAny, count: c_int) -> bool {
        // SAFETY: the caller guarantees the arguments.
        for arg in unsafe { slice(args, count) } {
            // SAFETY: the caller guarantees a valid argument.
            let Some(tensor) = (unsafe { tensor(arg) }) else {
                if arg.type_index == kTVMFFIOpaquePtr || arg.type_index >= kTVMFFIStaticObjectBegin {
                    return false;
                }
                continue;
            };
            let address = tensor.data.addr().wrapping_add(tensor.byte_offset as usize);
            let mut odd = address & self.mask | tensor.byte_offset as usize;
            // SAFETY: the tensor is an argument of a call and valid for it.
            let view = unsafe { TensorView::from_dl(tensor) };
            for extent in view.shape() {
                // The strides of an empty tensor mean nothing, but the function checks them.
                odd |= upper(*extent) | usize::from(*extent == 0);
            }
            for stride in view.strides().unwrap_or_default() {
                odd |= upper(*stride);
            }
            if odd != 0 {
                return false;
            }
        }
        true
    }

    /// Adds what was received to the error of a check.
    ///
    /// # Safety
    /// The requirements of [`Guard::call`] apply, and the call must have failed.
    #[cold]
    unsafe fn failed(
        &self,
        function: TVMFFISafeCallType,
        args: *const TVMFFIAny,
        count: c_int,
        code: c_int,
    ) -> c_int {
        let error = Error::take_raised();
        let error = match signature::in_message(error.message()) {
            Some(_) => {
                // SAFETY: the caller guarantees the function.
                let own = unsafe { self.signature(function) };
                // SAFETY: the caller guarantees the arguments.
                let args = unsafe { slice(args, count) };
                own.map_or(error.clone(), |own| report::with_received(error, own, args))
            }
            None => error,
        };
        error.raise();
        code
    }

    /// Calls the function with arguments that need a closer inspection.
    ///
    /// # Safety
    /// The requirements of [`Guard::call`] apply.
    #[cold]
    #[inline(never)]
    unsafe fn call_slowly(
        &self,
        function: TVMFFISafeCallType,
        args: *const TVMFFIAny,
        count: c_int,
        result: *mut TVMFFIAny,
    ) -> c_int {
        let mut own_code = 0;
        let code = trampoline(|| {
            // SAFETY: the caller guarantees the arguments.
            let args = unsafe { slice(args, count) };
            // SAFETY: the caller guarantees the arguments.
            let tensors: Vec<Option<&DLTensor>> = args.iter().map(|arg| unsafe { tensor(arg) }).collect();
            for (index, arg) in args.iter().enumerate() {
                // SAFETY: the caller guarantees the function.
                unsafe { self.check(function, index, arg, tensors[index]) }?;
            }
            let mut copies = Copies::default();
            let mut shown: Vec<Option<DLTensor>> = Vec::with_capacity(args.len());
            for (index, tensor) in tensors.iter().enumerate() {
                // SAFETY: the caller guarantees the tensors.
                shown.push(unsafe { self.show(&mut copies, index, *tensor, &tensors) }?);
            }
            let mut passed = args.to_vec();
            for (arg, shown) in passed.iter_mut().zip(&mut shown) {
                if let Some(shown) = shown {
                    *arg = TVMFFIAny { type_index: kTVMFFIDLTensorPtr, ..TVMFFIAny::NONE };
                    arg.value.v_ptr = ptr::from_mut(shown).cast();
                }
            }
            // SAFETY: the caller guarantees the call; the tensors in its arguments live until it has returned.
            own_code = unsafe { function(ptr::null_mut(), passed.as_ptr(), count, result) };
            if own_code == 0 {
                copies.write_back();
            } else {
                // SAFETY: the caller guarantees the arguments; the call has failed.
                unsafe { self.failed(function, args.as_ptr(), count, own_code) };
            }
            Ok(())
        });
        if code == 0 { own_code } else { code }
    }

    /// Returns a replacement for a tensor that the function cannot use as it is, if a replacement is possible.
    ///
    /// # Safety
    /// The tensors must be valid.
    unsafe fn show(
        &self,
        copies: &mut Copies,
        index: usize,
        tensor: Option<&DLTensor>,
        tensors: &[Option<&DLTensor>],
    ) -> Result<Option<DLTensor>> {
        let Some(tensor) = tensor else { return Ok(None) };
        // SAFETY: the caller guarantees the tensor.
        let is_compact = unsafe { TensorView::from_dl(tensor) }.is_contiguous();
        // The function itself refuses tensors that are not compact or are on another device.
        if !is_compact || tensor.device.device_type != kDLCPU || tensor.data.is_null() {
            return Ok(None);
        }
        let start = tensor.data.addr().wrapping_add(tensor.byte_offset as usize);
        if start & self.mask != 0 {
            // SAFETY: the caller guarantees the tensors, and this one is compact.
            return unsafe { copies.show(tensor, index, tensors) }.map(Some);
        }
        let data = tensor.data.wrapping_byte_add(tensor.byte_offset as usize);
        let from_start = DLTensor { data, byte_offset: 0, strides: ptr::null_mut(), ..*tensor };
        let is_empty = copies::size(tensor) == Some(0);
        Ok((tensor.byte_offset != 0 || is_empty).then_some(from_start))
    }

    /// Refuses arguments that the function would misinterpret.
    ///
    /// # Safety
    /// The argument must be valid. The requirements of [`Guard::call`] apply to `function`.
    unsafe fn check(
        &self,
        function: TVMFFISafeCallType,
        index: usize,
        arg: &TVMFFIAny,
        tensor: Option<&DLTensor>,
    ) -> Result<()> {
        let is_pointer = arg.type_index == kTVMFFIOpaquePtr || arg.type_index >= kTVMFFIStaticObjectBegin;
        let is_odd = match tensor {
            Some(tensor) => {
                // SAFETY: the caller guarantees the tensor.
                let view = unsafe { TensorView::from_dl(tensor) };
                let numbers = view.shape().iter().chain(view.strides().unwrap_or_default());
                numbers.copied().any(|number| i32::try_from(number).is_err())
            }
            None => is_pointer,
        };
        if !is_odd {
            return Ok(());
        }
        // SAFETY: the caller guarantees the function.
        let Some(own) = (unsafe { self.signature(function) }) else { return Ok(()) };
        let parameters = signature::parameters(own);
        let Some(parameter) = parameters.get(index) else { return Ok(()) };
        let Some(extents) = &parameter.tensor else { return Ok(()) };
        let Some(tensor) = tensor else {
            let got = report::kind(arg);
            return Err(report::refuse("TypeError", "Mismatched type", index, own, "Tensor", &got));
        };
        // SAFETY: the caller guarantees the tensor.
        let view = unsafe { TensorView::from_dl(tensor) };
        if view.shape().len() != extents.len() {
            return Ok(());
        }
        for (at, (extent, expected)) in view.shape().iter().zip(extents).enumerate() {
            let item = std::format!("Invalid {}.shape[{at}]", parameter.name);
            match expected.parse::<i64>() {
                Ok(expected) if expected == *extent => {}
                Ok(expected) => {
                    let (expected, got) = (expected.to_string(), extent.to_string());
                    return Err(report::refuse("ValueError", &item, index, own, &expected, &got));
                }
                // The code may hold the extent in 32 bits, and nothing tells whether it does.
                Err(_) if i32::try_from(*extent).is_err() => {
                    let expected = std::format!("{expected} to be at most {}", i32::MAX);
                    return Err(report::refuse(
                        "ValueError",
                        &item,
                        index,
                        own,
                        &expected,
                        &extent.to_string(),
                    ));
                }
                Err(_) => {}
            }
        }
        if !view.is_contiguous() {
            let item = std::format!("Mismatched {}.strides", parameter.name);
            let got = std::format!(
                "strides {} with shape {}",
                report::tuple(view.strides().unwrap_or_default()),
                report::tuple(view.shape())
            );
            return Err(report::refuse("ValueError", &item, index, own, "to be compact array", &got));
        }
        Ok(())
    }

    /// Returns the function's signature.
    ///
    /// # Safety
    /// The requirements of [`signature::ask`] apply.
    unsafe fn signature(&self, function: TVMFFISafeCallType) -> Option<&str> {
        // SAFETY: the caller guarantees the function.
        self.signature.get_or_init(|| unsafe { signature::ask(function) }).as_deref()
    }
}

/// Returns 0 only for numbers from 0 to 2^31 - 1.
#[inline]
fn upper(number: i64) -> usize {
    (number as u64 >> 31) as usize
}

/// Returns the tensor in an argument, if it is one.
///
/// # Safety
/// The argument must be valid.
#[inline]
unsafe fn tensor(arg: &TVMFFIAny) -> Option<&DLTensor> {
    let tensor: *const DLTensor = match arg.type_index {
        // SAFETY: values of this type are pointers.
        kTVMFFIDLTensorPtr => unsafe { arg.value.v_ptr }.cast(),
        kTVMFFITensor => {
            // SAFETY: values of this type are objects.
            let object = unsafe { arg.value.v_obj };
            object.wrapping_byte_add(size_of::<TVMFFIObject>()).cast()
        }
        _ => return None,
    };
    // SAFETY: the pointer is NULL, or valid as the caller guarantees.
    unsafe { tensor.as_ref() }
}

/// # Safety
/// There must be `count` valid arguments.
unsafe fn slice<'a>(args: *const TVMFFIAny, count: c_int) -> &'a [TVMFFIAny] {
    match usize::try_from(count) {
        // SAFETY: the caller guarantees the arguments.
        Ok(count) if count > 0 && !args.is_null() => unsafe { core::slice::from_raw_parts(args, count) },
        _ => &[],
    }
}

/// Returns the alignment that the code of a library of the peer's compiler requires, read from what the file puts into
/// memory; `None` for other libraries.
pub(super) fn requirement<'a>(
    needs: impl Fn(&str) -> bool,
    constants: impl Fn() -> Vec<&'a [u8]>,
    code: impl Fn() -> Vec<&'a [u8]>,
) -> Option<usize> {
    if !needs(NEEDED) || !constants().iter().any(|bytes| holds(bytes, MARK.as_bytes())) {
        return None;
    }
    // Code that cannot be read may require any alignment.
    Some(code().iter().map(|code| scan::alignment(code)).max().unwrap_or(64))
}

/// Returns true if bytes contain a string.
fn holds(bytes: &[u8], text: &[u8]) -> bool {
    let Some((first, _)) = text.split_first() else { return true };
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        if rest[at..].starts_with(text) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}
