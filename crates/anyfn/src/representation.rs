//! Flags that describe how a Rust field is stored in memory, and whether setting it runs code outside this
//! crate.

use core::marker::PhantomData;

/// Field flag, not defined by the ABI, of a field that stores a 16-byte value and does not change
/// once it is set.
pub(crate) const LENDS_VALUE: i64 = 1 << 62;
/// Field flag, not defined by the ABI, of a field that stores the address of an object, or NULL,
/// and does not change once it is set.
pub(crate) const LENDS_OBJECT: i64 = 1 << 61;

/// Field flag, not defined by the ABI, of a field that stores an `i64` and does not change once it is set.
pub(crate) const LENDS_INT: i64 = 1 << 57;
/// Field flag, not defined by the ABI, of a field that stores an `f64` and does not change once it is set.
pub(crate) const LENDS_FLOAT: i64 = 1 << 56;
/// Field flag, not defined by the ABI, of a field that stores a `bool` and does not change once it is set.
pub(crate) const LENDS_BOOL: i64 = 1 << 55;
/// Flags of the fields whose values readers can borrow.
pub(crate) const LENDS: i64 = LENDS_VALUE | LENDS_OBJECT | LENDS_INT | LENDS_FLOAT | LENDS_BOOL;

/// Field flag, not defined by the ABI, of a field whose representation only its own getter and
/// setter understand, apart from numbers that readers can copy.
pub(crate) const OPAQUE: i64 = 1 << 60;
/// Field flag, not defined by the ABI, of a field whose setter converts values with code outside
/// this crate. That code may keep a reference to the value.
pub(crate) const RUNS_CODE: i64 = 1 << 59;
/// Field flag, not defined by the ABI, of a field whose setter is a function object that keeps a
/// reference to the value only in the field.
pub(crate) const STORES_ONLY: i64 = 1 << 58;

/// Memory representation of object fields whose Rust type is `T`, which determines whether readers
/// can borrow the field's value.
///
/// Code that reads objects trusts the representation without a check. Therefore only this crate can create a
/// representation other than [`Lent::NOT`], and the representation of one type cannot be used for another type.
#[doc(hidden)]
#[derive(Debug)]
pub struct Lent<T: ?Sized>(i64, PhantomData<*const T>);

impl<T: ?Sized> Lent<T> {
    /// Representation that only the field's own getter and setter understand.
    pub const NOT: Lent<T> = Lent(OPAQUE | RUNS_CODE, PhantomData);
    /// Representation of a field that stores a 16-byte value and is set only once, so that readers can borrow
    /// the value.
    pub(crate) const VALUE: Lent<T> = Lent(LENDS_VALUE, PhantomData);
    /// Representation of a field that stores a reference to an object, or NULL, and is set only once, so that
    /// readers can borrow the object.
    pub(crate) const OBJECT: Lent<T> = Lent(LENDS_OBJECT, PhantomData);

    /// Representation of a field that stores an `i64` and is set only once, so that readers can copy it.
    pub(crate) const INT: Lent<T> = Lent(OPAQUE | RUNS_CODE | LENDS_INT, PhantomData);
    /// Representation of a field that stores an `f64` and is set only once, so that readers can copy it.
    pub(crate) const FLOAT: Lent<T> = Lent(OPAQUE | RUNS_CODE | LENDS_FLOAT, PhantomData);
    /// Representation of a field that stores a `bool` and is set only once, so that readers can copy it.
    pub(crate) const BOOL: Lent<T> = Lent(OPAQUE | RUNS_CODE | LENDS_BOOL, PhantomData);

    /// Returns the flags of a field with this representation.
    pub const fn flags(&self) -> i64 {
        self.0
    }
}

impl<T> Lent<T> {
    /// Returns this representation with another conversion, `conversion`, which the field's setter
    /// applies to values.
    pub(crate) const fn set_by(&self, conversion: &Conversion<T>) -> Lent<T> {
        Lent((self.0 & !RUNS_CODE) | conversion.0, PhantomData)
    }

    /// Returns the representation of an `Option<T>`. An object reference keeps its representation if `Option<T>` has
    /// the same size as `T`; otherwise the result is [`Lent::NOT`].
    pub(crate) const fn optional(&self) -> Lent<Option<T>> {
        if self.0 == LENDS_OBJECT && size_of::<Option<T>>() == size_of::<T>() {
            Lent::OBJECT
        } else {
            Lent::NOT
        }
    }
}

/// Flag that states whether converting a value to the Rust type `T` can run code outside this crate.
///
/// Other code may keep a reference to the value. Only this crate can declare that a type runs no other code,
/// and the constant of one type cannot be used for another type.
#[doc(hidden)]
#[derive(Debug)]
pub struct Conversion<T: ?Sized>(i64, PhantomData<*const T>);

impl<T: ?Sized> Conversion<T> {
    /// Conversion that may run code outside this crate.
    pub const CUSTOM: Conversion<T> = Conversion(RUNS_CODE, PhantomData);
    /// Conversion that runs only code of this crate.
    pub(crate) const BUILT_IN: Conversion<T> = Conversion(0, PhantomData);

    /// Returns the conversion of a container or wrapper type `U` whose elements are converted with `self`.
    pub(crate) const fn within<U: ?Sized>(&self) -> Conversion<U> {
        Conversion(self.0, PhantomData)
    }

    /// Returns the conversion of a type `V` with two kinds of elements: one is converted with `self`, the
    /// other with `other`.
    pub(crate) const fn and<U: ?Sized, V: ?Sized>(&self, other: &Conversion<U>) -> Conversion<V> {
        Conversion(self.0 | other.0, PhantomData)
    }

    /// Returns the representation of a mutable field of type `U`, such as a `Cell`, whose setter
    /// converts values with `self`.
    pub(crate) const fn slot<U: ?Sized>(&self) -> Lent<U> {
        Lent(self.0, PhantomData)
    }
}
