//! Guards that borrow the elements of tensors in host memory as slices.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use anyfn_abi::{kDLCPU, kDLCUDAHost, kDLROCMHost};

use super::{Access, Mode, Region};
use crate::{Element, Result, Tensor, TensorView, bail};

/// Guard that gives read access to the elements of a tensor, as a slice in row-major order.
///
/// While the guard is alive, functions and guards of the runtime that write the same memory wait for it on
/// other threads, and fail with `RuntimeError` on this thread. Drop the guard before calling functions that may
/// use the tensor.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::Tensor;
/// let tensor = Tensor::from_slice(&[3], &[1.0f32, 2.0, 4.0])?;
/// assert_eq!(tensor.read::<f32>()?.iter().sum::<f32>(), 7.0);
/// # Ok::<(), anyfn::Error>(())
/// ```
///
/// The guard cannot change the elements, cannot outlive the tensor, and stays on its thread:
///
/// ```compile_fail,E0594
/// fn f(tensor: &anyfn::Tensor) {
///     tensor.read::<f32>().unwrap()[0] = 1.0;
/// }
/// ```
/// ```compile_fail,E0505
/// fn f(tensor: anyfn::Tensor) -> f32 {
///     let elements = tensor.read::<f32>().unwrap();
///     drop(tensor);
///     elements[0]
/// }
/// ```
/// ```compile_fail,E0277
/// fn f(tensor: &anyfn::Tensor) {
///     let elements = tensor.read::<f32>().unwrap();
///     std::thread::scope(|scope| { scope.spawn(move || elements[0]); });
/// }
/// ```
#[must_use = "the access ends when this is dropped"]
pub struct TensorRead<'a, T> {
    data: NonNull<T>,
    len: usize,
    _access: Access,
    _elements: PhantomData<&'a [T]>,
}

/// Guard that gives write access to the elements of a tensor, as a slice in row-major order.
///
/// While the guard is alive, functions and guards of the runtime that use the same memory wait for it on other
/// threads, and fail with `RuntimeError` on this thread. Drop the guard before calling functions that may use
/// the tensor.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::Tensor;
/// let tensor = Tensor::from_slice(&[3], &[1i32, 2, 3])?;
/// tensor.write::<i32>()?.iter_mut().for_each(|x| *x *= 10);
/// assert_eq!(*tensor.read::<i32>()?, [10, 20, 30]);
///
/// let written = tensor.write::<i32>()?;
/// assert!(tensor.read::<i32>().unwrap_err().message().ends_with("this thread holds a TensorWrite of the same memory"));
/// # drop(written);
/// # Ok::<(), anyfn::Error>(())
/// ```
#[must_use = "the access ends when this is dropped"]
pub struct TensorWrite<'a, T> {
    data: NonNull<T>,
    len: usize,
    _access: Access,
    _elements: PhantomData<&'a mut [T]>,
}

// SAFETY: a shared reference to the guard gives only shared references to plain numbers.
unsafe impl<T: Sync> Sync for TensorRead<'_, T> {}
// SAFETY: a shared reference to the guard gives only shared references to plain numbers; writing needs an exclusive
// one.
unsafe impl<T: Sync> Sync for TensorWrite<'_, T> {}

impl<T> Deref for TensorRead<'_, T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the layout was checked when the guard was created, and the access excludes writers while it is
        // alive.
        unsafe { core::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl<T> Deref for TensorWrite<'_, T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the layout was checked when the guard was created, and the access excludes all other accesses while
        // it is alive.
        unsafe { core::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for TensorWrite<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the layout was checked when the guard was created, the access excludes all other accesses while it
        // is alive, and the guard is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}

impl<T: fmt::Debug> fmt::Debug for TensorRead<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for TensorWrite<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Address and number of the elements of a tensor that is known to be compact and in host memory.
#[derive(Clone, Copy)]
struct Elements<T> {
    data: NonNull<T>,
    len: usize,
}

impl<T> Elements<T> {
    fn of((data, len): (*mut T, usize)) -> Result<Elements<T>> {
        match NonNull::new(data) {
            Some(data) => Ok(Elements { data, len }),
            None => bail!("ValueError", "expected a tensor with data but its data pointer is NULL"),
        }
    }

    fn region(self) -> Region {
        // The product does not overflow: `len` was checked, and no tensor is larger than half of the address space.
        Region::host(self.data.as_ptr().cast_const().cast(), self.len * size_of::<T>())
    }

    fn read<'a>(self, access: Access) -> TensorRead<'a, T> {
        TensorRead { data: self.data, len: self.len, _access: access, _elements: PhantomData }
    }

    fn write<'a>(self, access: Access) -> TensorWrite<'a, T> {
        TensorWrite { data: self.data, len: self.len, _access: access, _elements: PhantomData }
    }
}

impl Tensor {
    /// Borrows the elements for reading; see [`TensorRead`].
    ///
    /// # Errors
    /// Returns the errors of [`TensorView::read`].
    pub fn read<T: Element>(&self) -> Result<TensorRead<'_, T>> {
        self.view().read()
    }

    /// Borrows the elements for writing; see [`TensorWrite`].
    ///
    /// # Errors
    /// Returns the errors of [`TensorView::write`].
    pub fn write<T: Element>(&self) -> Result<TensorWrite<'_, T>> {
        self.view().write()
    }
}

impl<'a> TensorView<'a> {
    /// Borrows the elements for reading; see [`TensorRead`].
    ///
    /// # Errors
    /// - Returns `TypeError` if the data type is not `T`.
    /// - Returns `ValueError` if the elements are not compact, aligned and in host memory.
    /// - Returns `RuntimeError` if this thread already writes the elements, or if waiting for the writer would never
    ///   end; see [`Access::begin`].
    pub fn read<T: Element>(&self) -> Result<TensorRead<'a, T>> {
        let elements = Elements::of(self.checked()?)?;
        let [access] = Access::begin([(elements.region(), Mode::Read)])?;
        Ok(elements.read(access))
    }

    /// Borrows the elements for writing; see [`TensorWrite`].
    ///
    /// # Errors
    /// Returns the errors of [`TensorView::read`], `RuntimeError` if this thread already reads the elements, and
    /// `ValueError` if the memory is read-only.
    pub fn write<T: Element>(&self) -> Result<TensorWrite<'a, T>> {
        let elements = self.writable()?;
        let [access] = Access::begin([(elements.region(), Mode::Write)])?;
        Ok(elements.write(access))
    }

    /// Borrows the elements of this tensor for reading and those of another tensor for writing, as a kernel
    /// with an input and an output does. Both accesses begin at the same time. A kernel on another thread
    /// that uses the same tensors in opposite roles waits until both accesses have ended.
    ///
    /// ```
    /// # use anyfn_core as _;
    /// use anyfn::{Result, Tensor, TensorView};
    ///
    /// fn saxpy(a: f32, x: TensorView<'_>, y: TensorView<'_>) -> Result<()> {
    ///     let (x, mut y) = x.read_and_write::<f32, f32>(&y)?;
    ///     x.iter().zip(y.iter_mut()).for_each(|(x, y)| *y += a * x);
    ///     Ok(())
    /// }
    ///
    /// let (x, y) = (Tensor::from_slice(&[2], &[1.0f32, 2.0])?, Tensor::from_slice(&[2], &[10.0f32, 20.0])?);
    /// saxpy(2.0, x.view(), y.view())?;
    /// assert_eq!(*y.read::<f32>()?, [12.0, 24.0]);
    /// assert_eq!(saxpy(2.0, x.view(), x.view()).unwrap_err().kind(), "ValueError");
    /// # Ok::<(), anyfn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`TensorView::read`] and [`TensorView::write`], and `ValueError` if the tensors share
    /// memory.
    pub fn read_and_write<'b, T: Element, U: Element>(
        &self,
        to: &TensorView<'b>,
    ) -> Result<(TensorRead<'a, T>, TensorWrite<'b, U>)> {
        let (from, into) = (Elements::of(self.checked::<T>()?)?, to.writable::<U>()?);
        if from.region().overlaps(&into.region()) {
            bail!(
                "ValueError",
                "expected two tensors that share no memory, got {self:?} and {to:?}, which overlap"
            );
        }
        let regions = [(from.region(), Mode::Read), (into.region(), Mode::Write)];
        let [read, write] = Access::begin(regions)?;
        Ok((from.read(read), into.write(write)))
    }

    /// Borrows the elements as bytes for reading, whatever their data type.
    ///
    /// # Errors
    /// Returns the errors of [`TensorView::read`].
    pub fn read_bytes(&self) -> Result<TensorRead<'a, u8>> {
        let elements = Elements::of(self.checked_bytes()?)?;
        let [access] = Access::begin([(elements.region(), Mode::Read)])?;
        Ok(elements.read(access))
    }

    /// Borrows the elements as bytes for writing, whatever their data type.
    ///
    /// # Errors
    /// Returns the errors of [`TensorView::write`].
    pub fn write_bytes(&self) -> Result<TensorWrite<'a, u8>> {
        self.check_writable()?;
        let elements = Elements::of(self.checked_bytes()?)?;
        let [access] = Access::begin([(elements.region(), Mode::Write)])?;
        Ok(elements.write(access))
    }

    /// Returns the region of host memory that the elements span, including the gaps between them.
    /// The region is empty if there are no elements. Returns `None` if the tensor is neither in
    /// host memory nor in pinned host memory, or if the elements extend beyond the address space.
    pub fn host_region(&self) -> Option<Region> {
        if !matches!(self.device().0.device_type, kDLCPU | kDLCUDAHost | kDLROCMHost) {
            return None;
        }
        let Some((start, end)) = self.span() else { return Some(Region::host(core::ptr::null(), 0)) };
        let (start, bytes) = (usize::try_from(start).ok()?, usize::try_from(end - start).ok()?);
        start.checked_add(bytes)?;
        Some(Region::host(core::ptr::without_provenance(start), bytes))
    }

    fn writable<T: Element>(&self) -> Result<Elements<T>> {
        self.check_writable()?;
        Elements::of(self.checked()?)
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_read_only() {
            bail!("ValueError", "expected a writable tensor, got {self:?} in read-only memory");
        }
        Ok(())
    }
}
