//! Macros that implement the C functions of Python classes in Rust, and access to the arguments of methods.

use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3_ffi as ffi;

use crate::error;
use crate::py::{self, Obj, Own, PyObject, Raised, Res};

/// Runs `body` and converts a panic into an exception.
#[inline(always)]
pub(super) fn guarded<T>(body: impl FnOnce() -> Res<T>) -> Res<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        error::raise_panic(&*payload);
        Err(Raised)
    })
}

/// Conversion of a Rust result to the return value of a C function that CPython calls.
pub(super) trait ToC {
    /// Type of the return value in C.
    type C;
    /// Returns the C value of a successful result, or the C value that indicates an exception.
    fn to_c(result: Res<Self>) -> Self::C
    where
        Self: Sized;
}

impl ToC for Own {
    type C = *mut PyObject;
    #[inline(always)]
    fn to_c(result: Res<Own>) -> *mut PyObject {
        crate::object::to_c(result)
    }
}

/// Result of `__next__`: `None` becomes NULL without an exception, which indicates the end of an iteration.
impl ToC for Option<Own> {
    type C = *mut PyObject;
    #[inline(always)]
    fn to_c(result: Res<Option<Own>>) -> *mut PyObject {
        match result {
            Ok(Some(own)) => own.into_ptr(),
            _ => std::ptr::null_mut(),
        }
    }
}

impl ToC for () {
    type C = c_int;
    fn to_c(result: Res<()>) -> c_int {
        if result.is_ok() { 0 } else { -1 }
    }
}

impl ToC for bool {
    type C = c_int;
    fn to_c(result: Res<bool>) -> c_int {
        result.map_or(-1, c_int::from)
    }
}

impl ToC for usize {
    type C = ffi::Py_ssize_t;
    fn to_c(result: Res<usize>) -> ffi::Py_ssize_t {
        result.map_or(-1, |value| value.min(isize::MAX as usize) as isize)
    }
}

impl ToC for ffi::Py_hash_t {
    type C = ffi::Py_hash_t;
    fn to_c(result: Res<ffi::Py_hash_t>) -> ffi::Py_hash_t {
        result.unwrap_or(-1)
    }
}

/// Defines C functions for type slots. The declared type of an argument is `obj`, `opt` (an object
/// or NULL), `size` or `int`.
macro_rules! slots {
    ($( $(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $kind:ident),*) -> $out:ty $body:block )*) => { $(
        $(#[$meta])*
        $vis unsafe extern "C" fn $name(
            $($arg: $crate::containers::slots::slots!(@type $kind)),*
        ) -> <$out as $crate::containers::slots::ToC>::C {
            $( let $arg = $crate::containers::slots::slots!(@value $kind $arg); )*
            let result: $crate::py::Res<$out> = $crate::containers::slots::guarded(|| $body);
            <$out as $crate::containers::slots::ToC>::to_c(result)
        }
    )* };
    (@type obj) => { *mut $crate::py::PyObject };
    (@type opt) => { *mut $crate::py::PyObject };
    (@type size) => { pyo3_ffi::Py_ssize_t };
    (@type int) => { std::ffi::c_int };
    (@value obj $arg:ident) => {{
        // SAFETY: Python passes a valid object and holds the GIL.
        let object: $crate::py::Obj<'_> = unsafe { $crate::py::Obj::from_ptr($arg) };
        object
    }};
    (@value opt $arg:ident) => {{
        // SAFETY: Python passes a valid object or NULL, and holds the GIL.
        let object: Option<$crate::py::Obj<'_>> = unsafe { $crate::py::Obj::from_nullable($arg) };
        object
    }};
    (@value size $arg:ident) => { $arg };
    (@value int $arg:ident) => { $arg };
}
pub(super) use slots;

/// Method flags for functions that take an array of positional arguments, followed by the values of the
/// keyword arguments. The flags have been part of the stable ABI since Python 3.10, and their values have not
/// changed since 3.7.
const METH_FASTCALL_KEYWORDS: c_int = 0x80 | 0x02;

/// Signature of a method that CPython calls.
pub(super) type Method =
    unsafe extern "C" fn(*mut PyObject, *const *mut PyObject, ffi::Py_ssize_t, *mut PyObject) -> *mut PyObject;

/// Makes the entry of one method for the method table of a class.
pub(super) fn method(name: &'static CStr, doc: &'static CStr, function: Method) -> ffi::PyMethodDef {
    // SAFETY: this only changes the type; CPython calls the function with the signature that the flags declare.
    let function = unsafe { std::mem::transmute::<Method, ffi::PyCFunction>(function) };
    ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: function },
        ml_flags: METH_FASTCALL_KEYWORDS,
        ml_doc: doc.as_ptr(),
    }
}

/// Defines methods and a function that returns their method table. Each documentation string begins with the method's
/// signature in the form that CPython reads.
macro_rules! methods {
    ($list:ident; $( $doc:literal fn $name:ident($this:ident, $args:ident) $body:block )*) => {
        /// Returns the table of methods for the class.
        fn $list() -> Vec<pyo3_ffi::PyMethodDef> {
            vec![$( {
                unsafe extern "C" fn call(
                    $this: *mut $crate::py::PyObject,
                    args: *const *mut $crate::py::PyObject,
                    count: pyo3_ffi::Py_ssize_t,
                    names: *mut $crate::py::PyObject,
                ) -> *mut $crate::py::PyObject {
                    // SAFETY: Python passes an instance and holds the GIL.
                    let $this: $crate::py::Obj<'_> = unsafe { $crate::py::Obj::from_ptr($this) };
                    // SAFETY: Python passes `count` objects, followed by the values of keyword arguments.
                    let $args = unsafe {
                        $crate::containers::slots::Args::new(stringify!($name), args, count, names)
                    };
                    $crate::error::catch(|| $body)
                }
                const NAME: &std::ffi::CStr = $crate::containers::slots::c_str(concat!(stringify!($name), "\0"));
                $crate::containers::slots::method(NAME, $doc, call)
            }, )* pyo3_ffi::PyMethodDef::zeroed()]
        }
    };
}
pub(super) use methods;

/// Converts a string that ends with its only zero byte to a C string. Any other string becomes an
/// empty C string.
pub(super) const fn c_str(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

/// Name and value of a keyword argument.
pub(super) type Named<'a> = (Obj<'a>, Obj<'a>);

/// Arguments of a method call.
pub(super) struct Args<'a> {
    method: &'static str,
    values: &'a [Obj<'a>],
    named: &'a [Obj<'a>],
    names: Option<Obj<'a>>,
}

impl<'a> Args<'a> {
    /// Makes the argument list of a call of the method named `method`.
    ///
    /// # Safety
    /// The arguments must be as CPython passes them: `count` valid objects, then one for each name of the tuple
    /// `names`, which may be NULL.
    pub(super) unsafe fn new(
        method: &'static str,
        args: *const *mut PyObject,
        count: ffi::Py_ssize_t,
        names: *mut PyObject,
    ) -> Args<'a> {
        // SAFETY: the pointer is a tuple or NULL.
        let names: Option<Obj<'a>> = unsafe { Obj::from_nullable(names) };
        let total = count as usize + names.map_or(0, Obj::tuple_len);
        let all: &[Obj<'_>] = if total == 0 {
            &[]
        } else {
            // SAFETY: guaranteed by the caller; `Obj` is transparent over the pointer.
            unsafe { std::slice::from_raw_parts(args.cast(), total) }
        };
        let (values, named) = all.split_at(count as usize);
        Args { method, values, named, names }
    }

    /// Returns the positional arguments. Raises `TypeError` unless there are between `min` and `max` of them and no
    /// keyword arguments.
    pub(super) fn positional(&self, min: usize, max: usize) -> Res<&'a [Obj<'a>]> {
        if !self.named.is_empty() {
            return py::raise(
                py::exceptions::type_error(),
                &format!("{}() takes no keyword arguments", self.method),
            );
        }
        self.count(min, max)?;
        Ok(self.values)
    }

    fn count(&self, min: usize, max: usize) -> Res<()> {
        let given = self.values.len();
        if (min..=max).contains(&given) {
            return Ok(());
        }
        let (word, bound) = match (min == max, given < min) {
            (true, _) => ("exactly", min),
            (_, true) => ("at least", min),
            _ => ("at most", max),
        };
        let plural = if bound == 1 { "" } else { "s" };
        py::raise(
            py::exceptions::type_error(),
            &format!("{}() takes {word} {bound} argument{plural} ({given} given)", self.method),
        )
    }

    /// Returns the only argument. Raises `TypeError` if the number of arguments is not 1.
    #[inline]
    pub(super) fn one(&self) -> Res<Obj<'a>> {
        Ok(self.positional(1, 1)?[0])
    }

    /// Raises `TypeError` if there are any arguments.
    pub(super) fn none(&self) -> Res<()> {
        self.positional(0, 0).map(drop)
    }

    /// Returns the positional arguments, and the names and values of the keyword arguments. Raises `TypeError` if
    /// there are more than `max` positional arguments.
    pub(super) fn with_keywords(&self, max: usize) -> Res<(&'a [Obj<'a>], Vec<Named<'a>>)> {
        self.count(0, max)?;
        let names =
            (0..self.named.len()).filter_map(|at| self.names.and_then(|names| py::tuple_get(names, at)));
        Ok((self.values, names.zip(self.named.iter().copied()).collect()))
    }

    /// Returns the values of the keyword arguments `names`, each `None` if it is absent. Raises
    /// `TypeError` for any other argument.
    pub(super) fn only_keywords<const N: usize>(&self, names: [&str; N]) -> Res<[Option<Obj<'a>>; N]> {
        let (_, named) = self.with_keywords(0)?;
        let mut found = [None; N];
        for (name, value) in named {
            let text = name.to_text()?;
            match names.iter().position(|known| *known == text) {
                Some(at) => found[at] = Some(value),
                None => {
                    return py::raise(
                        py::exceptions::type_error(),
                        &format!("{}() got an unexpected keyword argument '{text}'", self.method),
                    );
                }
            }
        }
        Ok(found)
    }
}
