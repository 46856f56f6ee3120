//! Calls of functions that the peer's compiler has made.
//!
//! Their code checks its arguments, but not all that it relies on: it reads and writes memory by instructions that fault
//! where it is not aligned, compares extents by their lower half, and takes any pointer or object for a tensor. And its
//! messages do not say what was received. So these functions are called through [`Guard::call`], which looks at each
//! tensor in passing; whatever is out of the ordinary goes the slow way: unaligned memory is copied and copied back, the
//! rest is refused. Which libraries these are is read from their files ([`requirement`]).

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

/// A text that only libraries of the peer's compiler hold.
pub(super) const MARK: &str = signature::MARK;
/// The symbol that they all need.
pub(super) const NEEDED: &str = "TVMFFIErrorSetRaisedFromCStrParts";

/// What is known of a function of such a library.
pub(super) struct Guard {
    /// The bits of an address that must be 0.
    mask: usize,
    /// Its signature, if it had to be asked for.
    signature: OnceLock<Option<Box<str>>>,
}

impl Guard {
    pub(super) fn new(alignment: usize) -> Guard {
        Guard { mask: alignment - 1, signature: OnceLock::new() }
    }

    /// Calls a function of the library.
    ///
    /// # Safety
    /// As calling `function` itself, which must be of a library that the peer's compiler has made.
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

    /// Whether the function's own checks are enough.
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
            // SAFETY: a tensor of a call, valid for it.
            let view = unsafe { TensorView::from_dl(tensor) };
            for extent in view.shape() {
                // Strides of an empty tensor mean nothing, but its check looks at them.
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
    /// As [`Guard::call`], which has failed.
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

    /// Calls with arguments that need a closer look.
    ///
    /// # Safety
    /// As [`Guard::call`].
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

    /// Another tensor in the place of one that the function cannot use, if it can use any.
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
        // SAFETY: the caller guarantees it.
        let is_compact = unsafe { TensorView::from_dl(tensor) }.is_contiguous();
        // What is not compact is refused by the function, as is what it finds on another device.
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

    /// Refuses what the function would take for something else.
    ///
    /// # Safety
    /// The argument must be valid, and `function` as for [`Guard::call`].
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
                // SAFETY: the caller guarantees it.
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
        // SAFETY: the caller guarantees it.
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
                // The code may hold it in 32 bits, and nothing says whether it does.
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

    /// The function's signature.
    ///
    /// # Safety
    /// As [`signature::ask`].
    unsafe fn signature(&self, function: TVMFFISafeCallType) -> Option<&str> {
        // SAFETY: the caller guarantees the function.
        self.signature.get_or_init(|| unsafe { signature::ask(function) }).as_deref()
    }
}

/// Not 0 for what is no number of 31 bits.
#[inline]
fn upper(number: i64) -> usize {
    (number as u64 >> 31) as usize
}

/// The tensor that an argument is.
///
/// # Safety
/// The argument must be valid.
#[inline]
unsafe fn tensor(arg: &TVMFFIAny) -> Option<&DLTensor> {
    let tensor: *const DLTensor = match arg.type_index {
        // SAFETY: such values are pointers.
        kTVMFFIDLTensorPtr => unsafe { arg.value.v_ptr }.cast(),
        kTVMFFITensor => {
            // SAFETY: such values are objects.
            let object = unsafe { arg.value.v_obj };
            object.wrapping_byte_add(size_of::<TVMFFIObject>()).cast()
        }
        _ => return None,
    };
    // SAFETY: NULL, or valid as the caller guarantees.
    unsafe { tensor.as_ref() }
}

/// # Safety
/// There must be so many valid arguments.
unsafe fn slice<'a>(args: *const TVMFFIAny, count: c_int) -> &'a [TVMFFIAny] {
    match usize::try_from(count) {
        // SAFETY: the caller guarantees them.
        Ok(count) if count > 0 && !args.is_null() => unsafe { core::slice::from_raw_parts(args, count) },
        _ => &[],
    }
}

/// The alignment that the code of a library of the peer's compiler asks for, read from what a file puts into memory;
/// `None` for other libraries.
pub(super) fn requirement<'a>(
    needs: impl Fn(&str) -> bool,
    constants: impl Fn() -> Vec<&'a [u8]>,
    code: impl Fn() -> Vec<&'a [u8]>,
) -> Option<usize> {
    if !needs(NEEDED) || !constants().iter().any(|bytes| holds(bytes, MARK.as_bytes())) {
        return None;
    }
    // What is not there to be read may be anything.
    Some(code().iter().map(|code| scan::alignment(code)).max().unwrap_or(64))
}

/// Whether bytes hold a text.
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
