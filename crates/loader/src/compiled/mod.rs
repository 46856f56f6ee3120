//! Calls of functions that the peer's compiler, which is that of Apache TVM, has generated.
//!
//! Generated functions check their arguments, but not everything that they rely on. They access memory with
//! instructions that fault if it is not aligned. They compare only the lower 32 bits of extents, and accept any pointer
//! or object as a tensor. Their messages do not state what was received. So these functions are called through
//! [`Guard::call`], which inspects each tensor first. A call with unusual arguments takes a slow path: unaligned memory
//! is copied and copied back, and other arguments that the function would misinterpret are refused. [`requirement`]
//! recognises the libraries that need this by their files.

mod copies;
mod report;
pub(crate) mod scan;
mod signature;

use core::ffi::c_int;
use core::ptr;
use std::sync::OnceLock;

use anyfn::__private::trampoline;
use anyfn::abi::{
    DLTensor, TVMFFIAny, TVMFFIObject, TVMFFISafeCallType, kDLCPU, kTVMFFIDLTensorPtr, kTVMFFIOpaquePtr,
    kTVMFFIStaticObjectBegin, kTVMFFITensor,
};
use anyfn::{Error, Result, TensorView};

use copies::Copies;

/// String by which a library of the peer's compiler is recognised. No other library contains it.
pub(crate) const MARK: &str = signature::MARK;
/// Symbol that every library of the peer's compiler needs from the runtime.
pub(crate) const NEEDED: &str = "TVMFFIErrorSetRaisedFromCStrParts";

/// Additional argument checks of one function of a library that the peer's compiler has generated.
pub(crate) struct Guard {
    /// Bits that must be 0 in the address of each tensor's first element.
    mask: usize,
    /// Signature of the function; unset until a check needs it, and `None` if the function does not report it.
    signature: OnceLock<Option<Box<str>>>,
}

impl Guard {
    pub(crate) fn new(alignment: usize) -> Guard {
        Guard { mask: alignment - 1, signature: OnceLock::new() }
    }

    /// Calls `function` after the additional argument checks.
    ///
    /// # Safety
    /// The requirements of `function` itself apply. It must belong to a library that the peer's compiler has generated.
    #[inline]
    pub(crate) unsafe fn call(
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

    /// Returns true if the arguments need no checks beyond those of the function itself.
    ///
    /// # Safety
    /// `args` must point to `count` valid arguments.
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

    /// Adds a description of the argument that was received to the raised error, if an argument check of the function
    /// has raised it. Returns `code`.
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

    /// Calls the function with arguments for which [`Guard::is_ordinary`] returns false: checks each of them, and
    /// replaces tensors that the function cannot use by usable ones.
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

    /// Returns a description of `tensor` that the function can use, or `None` if it can use `tensor` as it is or must
    /// refuse it itself. The data of an unaligned tensor is copied.
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

    /// Returns an error if the function would misinterpret the argument at `index`. `tensor` is the tensor in `arg`, if
    /// `arg` is one.
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
            let item = format!("Invalid {}.shape[{at}]", parameter.name);
            match expected.parse::<i64>() {
                Ok(expected) if expected == *extent => {}
                Ok(expected) => {
                    let (expected, got) = (expected.to_string(), extent.to_string());
                    return Err(report::refuse("ValueError", &item, index, own, &expected, &got));
                }
                // The code may hold the extent in 32 bits, and nothing tells whether it does.
                Err(_) if i32::try_from(*extent).is_err() => {
                    let expected = format!("{expected} to be at most {}", i32::MAX);
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
            let item = format!("Mismatched {}.strides", parameter.name);
            let got = format!(
                "strides {} with shape {}",
                report::tuple(view.strides().unwrap_or_default()),
                report::tuple(view.shape())
            );
            return Err(report::refuse("ValueError", &item, index, own, "to be compact array", &got));
        }
        Ok(())
    }

    /// Returns the signature of the function, or `None` if the function does not report it.
    ///
    /// # Safety
    /// The requirements of [`signature::ask`] apply.
    unsafe fn signature(&self, function: TVMFFISafeCallType) -> Option<&str> {
        // SAFETY: the caller guarantees the function.
        self.signature.get_or_init(|| unsafe { signature::ask(function) }).as_deref()
    }
}

/// Returns a value that is 0 if `number` is at least 0 and less than 2^31, and otherwise not 0.
#[inline]
fn upper(number: i64) -> usize {
    (number as u64 >> 31) as usize
}

/// Returns the tensor to which an argument refers, or `None` if the argument is not a tensor.
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
/// `args` must point to `count` valid arguments for `'a`.
unsafe fn slice<'a>(args: *const TVMFFIAny, count: c_int) -> &'a [TVMFFIAny] {
    match usize::try_from(count) {
        // SAFETY: the caller guarantees the arguments.
        Ok(count) if count > 0 && !args.is_null() => unsafe { core::slice::from_raw_parts(args, count) },
        _ => &[],
    }
}

/// Returns the alignment in bytes that the code of a library requires, if the peer's compiler has generated it, and
/// `None` for other libraries. `needs` must return true for the symbols that the library needs; `constants` and `code`
/// must return the contents of its read-only data and of its code.
pub(crate) fn requirement<'a>(
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

/// Returns true if `bytes` contains `text`.
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
