//! Access to fields and methods of objects without static knowledge of their types.

use alloc::format;
use alloc::string::String as StdString;

use anyfn_abi::{kTVMFFIBool, kTVMFFIFloat, kTVMFFIInt, kTVMFFISmallStr, kTVMFFIStr};

use super::{Field, TypeInfo};
use crate::text::{nearest, shorten};
use crate::{Any, AnyView, Error, IntoAny, IntoArgs, ObjectRef, Result, String};

/// A visitor of the fields of an object; see [`ObjectRef::visit_fields`].
///
/// A closure that takes the field and a view of its value implements this trait. Other visitors may override one
/// function for each common type of values. The default implementation of these functions calls
/// [`visit_other`](Self::visit_other).
pub trait FieldVisitor {
    /// Visits a value whose type has no specific function in this trait, such as None. By default,
    /// the functions for specific types call this function.
    ///
    /// # Errors
    /// An error ends the visit.
    fn visit_other(&mut self, field: Field, value: &AnyView<'_>) -> Result<()>;

    /// Visits an int.
    ///
    /// # Errors
    /// An error ends the visit.
    fn visit_int(&mut self, field: Field, value: i64) -> Result<()> {
        self.visit_other(field, &value.into_any()?.as_view())
    }

    /// Visits a float.
    ///
    /// # Errors
    /// An error ends the visit.
    fn visit_float(&mut self, field: Field, value: f64) -> Result<()> {
        self.visit_other(field, &value.into_any()?.as_view())
    }

    /// Visits a boolean.
    ///
    /// # Errors
    /// An error ends the visit.
    fn visit_bool(&mut self, field: Field, value: bool) -> Result<()> {
        self.visit_other(field, &value.into_any()?.as_view())
    }

    /// Visits a string.
    ///
    /// # Errors
    /// An error ends the visit.
    fn visit_str(&mut self, field: Field, value: &String) -> Result<()> {
        self.visit_other(field, &value.as_any().as_view())
    }

    /// Visits an object that is not a string, such as a node, a container or a function.
    ///
    /// # Errors
    /// An error ends the visit.
    fn visit_object(&mut self, field: Field, value: &ObjectRef) -> Result<()> {
        self.visit_other(field, &AnyView::from(value))
    }
}

impl<F: FnMut(Field, &AnyView<'_>) -> Result<()>> FieldVisitor for F {
    #[inline]
    fn visit_other(&mut self, field: Field, value: &AnyView<'_>) -> Result<()> {
        self(field, value)
    }
}

/// Calls the function of `visitor` that matches the type of `value`, such as `visit_int` for an int.
#[inline]
fn visit_value(visitor: &mut impl FieldVisitor, field: Field, value: &Any) -> Result<()> {
    let view = value.view_ref();
    let raw = view.as_raw();
    match view.type_index() {
        // SAFETY: the value of an int is in `v_int64`.
        kTVMFFIInt => visitor.visit_int(field, unsafe { raw.value.v_int64 }),
        // SAFETY: the value of a float is in `v_float64`.
        kTVMFFIFloat => visitor.visit_float(field, unsafe { raw.value.v_float64 }),
        // SAFETY: the value of a boolean is in `v_int64`.
        kTVMFFIBool => visitor.visit_bool(field, unsafe { raw.value.v_int64 } != 0),
        kTVMFFISmallStr | kTVMFFIStr => visitor.visit_str(field, String::of_any_unchecked(value)),
        _ => match view.as_object() {
            Some(object) => visitor.visit_object(field, object),
            None => visitor.visit_other(field, view),
        },
    }
}

/// Returns the error for the name of a field or method that a type does not have.
#[cold]
fn no_such<'a>(info: TypeInfo, what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let near = nearest(name, known);
    let near = near.map_or_else(StdString::new, |near| format!("; did you mean `{near}`?"));
    let name = shorten(name);
    crate::error!("AttributeError", "an object of type {} has no {what} `{name}`{near}", info.key())
}

impl ObjectRef {
    fn field(&self, name: &str) -> Result<Field> {
        let info = TypeInfo::of(self);
        let names = || info.fields().map(Field::name);
        info.field(name).ok_or_else(|| no_such(info, "field", name, names()))
    }

    /// Returns the value of the field called `name`.
    ///
    /// # Errors
    /// Returns `AttributeError`, which names the nearest field, if the type has no such field. Returns the error of the
    /// getter.
    pub fn get_field(&self, name: &str) -> Result<Any> {
        let field = self.field(name)?;
        // SAFETY: the field belongs to the object's type.
        unsafe { field.get_unchecked(self) }
    }

    /// Sets the field called `name`.
    ///
    /// # Errors
    /// Returns `AttributeError` if the type has no such field or the field is read-only, and the error of the setter if
    /// the field does not accept the value.
    pub fn set_field(&self, name: &str, value: impl IntoAny) -> Result<()> {
        let field = self.field(name)?;
        if !field.is_writable() {
            crate::bail!("AttributeError", "field `{name}` of {} is read-only", self.type_key());
        }
        let value = Any::new(value)?;
        // SAFETY: the field belongs to the object's type and is writable.
        unsafe { field.set_unchecked(self, &value.as_view()) }
    }

    /// Calls the method called `name`. The method may be static, and it may be written in any language.
    ///
    /// ```
    /// # use anyfn_core as _;
    /// # use anyfn::{Object, Ref, methods};
    /// #[derive(Object)]
    /// #[object(key = "doc.Square")]
    /// struct Square {
    ///     side: f64,
    /// }
    ///
    /// #[methods]
    /// impl Square {
    ///     fn area(&self, #[default(1.0)] unit: f64) -> f64 {
    ///         self.side * self.side / unit
    ///     }
    /// }
    ///
    /// let square = Ref::new(Square { side: 3.0 }).into_object();
    /// assert_eq!(square.call_method("area", ())?.get::<f64>()?, 9.0);
    /// let error = square.call_method("aera", ()).unwrap_err();
    /// assert!(error.message().ends_with("no method `aera`; did you mean `area`?"));
    /// # Ok::<(), anyfn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns `AttributeError`, which names the nearest method, if the type has no such method. Returns the error of
    /// the method.
    pub fn call_method(&self, name: &str, args: impl IntoArgs) -> Result<Any> {
        /// Maximum number of arguments, including the object, that a call passes without allocating
        /// memory.
        const INLINE: usize = 8;
        let info = TypeInfo::of(self);
        let Some(method) = info.method(name) else {
            return Err(no_such(info, "method", name, info.methods().map(|method| method.name())));
        };
        let function = method.function()?;
        args.with_views(|views| {
            if method.is_static() {
                return function.call_views(views);
            }
            let this = AnyView::from(self);
            if views.len() < INLINE {
                let mut all = [this; INLINE];
                all[1..=views.len()].copy_from_slice(views);
                return function.call_views(&all[..=views.len()]);
            }
            let all = core::iter::once(&this).chain(views).copied();
            function.call_views(&all.collect::<alloc::vec::Vec<AnyView<'_>>>())
        })
    }

    /// Visits all fields of the object, those of the ancestor types first. The visit itself
    /// allocates no memory, although the getters of fields may. Values of read-only fields that
    /// store a reference or a 16-byte value are borrowed without adding a reference.
    ///
    /// ```
    /// # use anyfn_core as _;
    /// use anyfn::reflection::{Field, FieldVisitor};
    /// use anyfn::{AnyView, Object, Ref, Result, String};
    ///
    /// #[derive(Object)]
    /// #[object(key = "doc.Pixel")]
    /// struct Pixel {
    ///     name: String,
    ///     x: i64,
    ///     y: i64,
    /// }
    ///
    /// let pixel = Ref::new(Pixel { name: "corner".into(), x: 3, y: 4 }).into_object();
    /// let mut names = Vec::new();
    /// pixel.visit_fields(&mut |field: Field, _: &AnyView<'_>| {
    ///     names.push(field.name());
    ///     Ok(())
    /// })?;
    /// assert_eq!(names, ["name", "x", "y"]);
    ///
    /// /// Adds up all ints.
    /// struct Sum(i64);
    ///
    /// impl FieldVisitor for Sum {
    ///     fn visit_int(&mut self, _: Field, value: i64) -> Result<()> {
    ///         self.0 += value;
    ///         Ok(())
    ///     }
    ///     fn visit_other(&mut self, _: Field, _: &AnyView<'_>) -> Result<()> {
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut sum = Sum(0);
    /// pixel.visit_fields(&mut sum)?;
    /// assert_eq!(sum.0, 7);
    /// # Ok::<(), anyfn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the first error of the visitor or of a field that cannot be read, which ends the visit.
    pub fn visit_fields(&self, visitor: &mut impl FieldVisitor) -> Result<()> {
        for field in TypeInfo::of(self).fields() {
            // SAFETY: the field belongs to the object's type, and the value is used only while `self` keeps the object
            // alive.
            if let Some(value) = unsafe { field.lend_unchecked(self) } {
                visit_value(visitor, field, &value)?;
            } else {
                // SAFETY: the field belongs to the object's type.
                let value = unsafe { field.get_unchecked(self) }?;
                visit_value(visitor, field, &value)?;
            }
        }
        Ok(())
    }
}
