//! Checks of the arguments of a call that launches a kernel.

use core::ffi::c_void;

use anyfn::abi::{kDLFloat, kDLUInt, kTVMFFIDLTensorPtr, kTVMFFITensor};
use anyfn::{AnyView, DType, Device, Error, OpaquePtr, Result, TensorView, bail};

use crate::{Extent, Kernel, POINTER};

/// A call of a kernel on a kind of devices.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Name of the kind of devices, such as `opencl`.
    pub kind: &'static str,
    /// DLPack number of the kind of devices.
    pub device_type: i32,
    /// Kernel that is called.
    pub kernel: &'a Kernel,
}

/// Extents of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Number of work groups in each dimension.
    pub groups: [usize; 3],
    /// Number of work items of a group in each dimension.
    pub items: [usize; 3],
}

impl Call<'_> {
    /// Separates the arguments of the kernel from the extents of the launch.
    ///
    /// # Errors
    /// Returns `TypeError` for another number of arguments.
    pub fn split<'b, 'c>(&self, args: &'b [AnyView<'c>]) -> Result<(&'b [AnyView<'c>], &'b [AnyView<'c>])> {
        let kernel = self.kernel;
        let (needed, got) = (kernel.args.len() + kernel.extents.len(), args.len());
        if needed != got {
            bail!("TypeError", "expected {needed} arguments for {kernel} but got {got}");
        }
        Ok(args.split_at(kernel.args.len()))
    }

    /// Returns the number of the device on which the buffers are. `at` returns the device of the buffer at an address, and `reason` why
    /// there is no device of the kind, if so.
    ///
    /// # Errors
    /// Returns `ValueError` for buffers on other devices or on several, `TypeError` for an argument that is no buffer.
    pub fn device_of(
        &self,
        args: &[AnyView<'_>],
        at: &dyn Fn(*mut c_void) -> Option<i32>,
        reason: &dyn Fn() -> Option<String>,
    ) -> Result<i32> {
        let mut found: Option<i32> = None;
        for (number, arg) in args.iter().enumerate().filter(|(number, _)| self.kernel.args[*number] == POINTER)
        {
            let here = match arg.type_index() {
                kTVMFFITensor | kTVMFFIDLTensorPtr => {
                    let place = arg.get::<TensorView<'_>>()?.device();
                    if place.0.device_type != self.device_type {
                        return Err(self.elsewhere(number, place, reason));
                    }
                    place.0.device_id
                }
                _ if arg.is_none() => continue,
                _ => {
                    let Ok(pointer) = arg.get::<OpaquePtr>() else {
                        return Err(self.wrong(number, "a tensor", arg.type_key()));
                    };
                    // The first device may be lost while the buffer is on another.
                    match at(pointer.as_ptr()) {
                        Some(index) => index,
                        None => match reason() {
                            Some(reason) => return Err(self.missing(0, &reason)),
                            None => return Err(self.unknown(number, pointer.as_ptr())),
                        },
                    }
                }
            };
            match found {
                Some(first) if first != here => {
                    let (name, kind) = (&self.kernel.name, self.kind);
                    bail!(
                        "ValueError",
                        "expected the tensors of kernel `{name}` on one device but got {kind}:{first} and {kind}:{here}"
                    );
                }
                _ => found = Some(here),
            }
        }
        match found {
            Some(index) => Ok(index),
            None => bail!(
                "ValueError",
                "kernel `{}`: at least one tensor is needed, which names the device",
                self.kernel.name
            ),
        }
    }

    /// Reads the extents of a launch; `None` if there are no work items.
    ///
    /// # Errors
    /// Returns `TypeError` for a value that is not an integer, `ValueError` for a negative one.
    pub fn extents(&self, values: &[AnyView<'_>]) -> Result<Option<Extents>> {
        let (kernel, mut groups, mut items) = (self.kernel, [1_usize; 3], [1_usize; 3]);
        for (extent, value) in kernel.extents.iter().zip(values) {
            let size = match value.get::<i64>() {
                Ok(size) => usize::try_from(size).ok(),
                Err(_) => bail!(
                    "TypeError",
                    "kernel `{}`: expected an int for {extent} but got {}",
                    kernel.name,
                    value.type_key()
                ),
            };
            let Some(size) = size else {
                bail!("ValueError", "kernel `{}`: expected an extent of at least 0 for {extent}", kernel.name)
            };
            match *extent {
                Extent::Groups(dimension) => groups[usize::from(dimension)] = size,
                Extent::Items(dimension) => items[usize::from(dimension)] = size,
            }
        }
        Ok((!groups.contains(&0) && !items.contains(&0)).then_some(Extents { groups, items }))
    }

    /// Checks that a work group has at most `most` work items, and at most as many in each dimension as `dimensions` says.
    ///
    /// # Errors
    /// Returns `ValueError` if it has more.
    pub fn check_group(&self, items: [usize; 3], most: usize, dimensions: &[usize], index: i32) -> Result<()> {
        let product = items.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
        let fits = |(size, most): (&usize, &usize)| size <= most;
        if product.is_none_or(|product| product > most) || !items.iter().zip(dimensions).all(fits) {
            bail!(
                "ValueError",
                "kernel `{}`: a work group of {} x {} x {} is too large for {}:{index}, which accepts {most} work items, at most \
                 {dimensions:?}",
                self.kernel.name,
                items[0],
                items[1],
                items[2],
                self.kind
            );
        }
        Ok(())
    }

    /// Checks that a work group has the size that the code of the kernel requires.
    ///
    /// # Errors
    /// Returns `ValueError` if it has another size.
    pub fn check_required(&self, items: [usize; 3], required: [usize; 3]) -> Result<()> {
        if required != items {
            bail!(
                "ValueError",
                "kernel `{}`: its source requires work groups of {required:?} but got {items:?}",
                self.kernel.name
            );
        }
        Ok(())
    }

    /// Checks the elements and the layout of a tensor. `element` is the data type that the code of the kernel declares, if it is known.
    ///
    /// # Errors
    /// Returns `TypeError` for other elements, `ValueError` for a tensor that is not contiguous.
    pub fn check_tensor(&self, at: usize, tensor: &TensorView<'_>, element: Option<DType>) -> Result<()> {
        let name = &self.kernel.name;
        if let Some(element) = element
            && DType::new(tensor.dtype().0.code, tensor.dtype().0.bits, 1) != element
        {
            bail!(
                "TypeError",
                "argument {at} of kernel `{name}`: expected a tensor of {element} but got {}",
                tensor.dtype()
            );
        }
        if !tensor.is_contiguous() {
            bail!(
                "ValueError",
                "argument {at} of kernel `{name}`: expected a contiguous tensor, because a kernel receives no strides; pass \
                 a copy (Python: x.contiguous())"
            );
        }
        Ok(())
    }

    /// Converts a number to the bytes of its data type. Returns them and their number.
    ///
    /// # Errors
    /// Returns `TypeError` for a value of another type, `OverflowError` for a number that does not fit.
    pub fn scalar(&self, at: usize, arg: &AnyView<'_>) -> Result<([u8; 8], usize)> {
        let dtype = self.kernel.args[at];
        let (code, bits) = (dtype.0.code, u32::from(dtype.0.bits));
        let mut bytes = [0; 8];
        if code == kDLFloat {
            let Ok(number) = arg.get::<f64>() else {
                return Err(self.wrong(at, &dtype.to_string(), arg.type_key()));
            };
            match bits {
                32 => bytes[..4].copy_from_slice(&(number as f32).to_ne_bytes()),
                _ => bytes = number.to_ne_bytes(),
            }
            return Ok((bytes, bits as usize / 8));
        }
        let Ok(number) = arg.get::<i64>() else {
            return Err(self.wrong(at, &dtype.to_string(), arg.type_key()));
        };
        let (least, most) = match code {
            kDLUInt => (0, (1_i128 << bits) - 1),
            _ => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
        };
        if !(least..=most).contains(&i128::from(number)) {
            bail!(
                "OverflowError",
                "argument {at} of kernel `{}`: {number} does not fit into {dtype}",
                self.kernel.name
            );
        }
        // The low bytes are those of the narrower number.
        let all = number.to_le_bytes();
        let length = bits as usize / 8;
        bytes[..length].copy_from_slice(&all[..length]);
        if cfg!(target_endian = "big") {
            bytes[..length].reverse();
        }
        Ok((bytes, length))
    }

    /// Returns the error for a device that is not available.
    #[cold]
    #[must_use]
    pub fn missing(&self, index: i32, reason: &str) -> Error {
        anyfn::error!("RuntimeError", "device {}:{index} is not available: {reason}", self.kind)
    }

    #[cold]
    fn elsewhere(&self, at: usize, place: Device, reason: &dyn Fn() -> Option<String>) -> Error {
        // Where there is no device at all, no tensor can be copied to one.
        if let Some(reason) = reason() {
            return self.missing(0, &reason);
        }
        let (name, kind) = (&self.kernel.name, self.kind);
        anyfn::error!(
            "ValueError",
            "argument {at} of kernel `{name}`: expected a tensor on {kind} but got one on {place}; copy it to the device first \
             (Python: x.to(\"{kind}:0\"))"
        )
    }

    #[cold]
    fn wrong(&self, at: usize, expected: &str, got: &str) -> Error {
        anyfn::error!(
            "TypeError",
            "argument {at} of kernel `{}`: expected {expected} but got {got}",
            self.kernel.name
        )
    }

    /// Returns the error for an address that is not that of a buffer of this runtime.
    #[cold]
    #[must_use]
    pub fn unknown(&self, at: usize, data: *mut c_void) -> Error {
        let name = &self.kernel.name;
        anyfn::error!(
            "ValueError",
            "argument {at} of kernel `{name}`: {data:p} is not a buffer that this runtime has allocated"
        )
    }

    /// Returns the error for a tensor that begins within its buffer at a byte at which the device cannot begin.
    #[cold]
    #[must_use]
    pub fn misaligned(&self, at: usize, offset: u64, index: i32, alignment: usize) -> Error {
        let (name, kind) = (&self.kernel.name, self.kind);
        anyfn::error!(
            "ValueError",
            "argument {at} of kernel `{name}`: the tensor begins at byte {offset} of its buffer, and {kind}:{index} requires a \
             multiple of {alignment}; pass a copy (Python: x.copy())"
        )
    }
}

#[cfg(test)]
mod tests {
    use anyfn::IntoAny;

    use super::*;

    #[test]
    fn buffers_are_found_while_the_first_device_is_lost() {
        let kernel = Kernel::parse("f", ["pointer"]).unwrap();
        let call = Call { kind: "opencl", device_type: 4, kernel: &kernel };
        // SAFETY: nothing reads the address.
        let pointer = unsafe { OpaquePtr::from_ptr(core::ptr::without_provenance_mut(4096)) };
        let arg = pointer.into_any().unwrap();
        let lost = || Some("it was lost".to_owned());
        assert_eq!(call.device_of(&[arg.as_view()], &|_| Some(1), &lost).unwrap(), 1);
        let error = call.device_of(&[arg.as_view()], &|_| None, &lost).unwrap_err();
        assert_eq!(error.message(), "device opencl:0 is not available: it was lost");
        let error = call.device_of(&[arg.as_view()], &|_| None, &|| None).unwrap_err();
        assert!(error.message().contains("is not a buffer"), "{}", error.message());
    }
}
