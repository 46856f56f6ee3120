//! Parameters of a native function, with names and default values as Python objects, and the arrangement of
//! call arguments in the order of the parameters.

use std::cell::RefCell;

use anyfn::{Param, Signature};

use crate::py::{self, Obj, Own};

/// Maximum number of parameters that [`Known::arrange`], the fast path, handles.
pub(crate) const INLINE: usize = 8;

/// Parsed signature of a function, with names and default values as Python objects.
pub(crate) struct Known {
    /// The signature; `None` if the function has no signature.
    pub(crate) signature: Option<Signature>,
    /// Interned name of each parameter. Empty if the names are unknown.
    pub(crate) names: Vec<Own>,
    /// Default of each parameter; `None` for a parameter without a known default.
    pub(crate) defaults: Vec<Option<Own>>,
    /// Number of parameters up to and including the last required one; 0 if no parameter is required.
    pub(crate) required: usize,
    /// True if the function processes named arguments itself.
    pub(crate) takes_names: bool,
    /// The `inspect.Signature` that was computed last, and the number of registrations of classes at that time. It contains
    /// the classes of native types.
    pub(crate) shown: RefCell<Option<(usize, Own)>>,
}

impl Known {
    fn params(&self) -> &[Param] {
        self.signature.as_ref().and_then(|signature| signature.params.as_deref()).unwrap_or_default()
    }

    /// Returns the name of the parameter at `index`, if it is known.
    pub(crate) fn name(&self, index: usize) -> Option<&str> {
        let params = self.signature.as_ref().filter(|signature| signature.named)?.params.as_ref()?;
        params.get(index).map(|param| param.name.as_str())
    }

    /// Returns true if the function only reads the tensor that it receives for the parameter at `index`.
    pub(crate) fn is_read_only(&self, index: usize) -> bool {
        self.params().get(index).is_some_and(|param| param.read_only)
    }

    /// Returns true if the function may write to a tensor that it receives for the parameter at
    /// `index`: the signature declares a type for the parameter, and does not declare the parameter
    /// as read-only.
    pub(crate) fn is_written(&self, index: usize) -> bool {
        self.params().get(index).is_some_and(|param| !param.read_only && param.ty.origin != "Any")
    }

    /// Arranges the positional and named arguments of a call in the order of the parameters. Fills
    /// `out` and returns the number of arguments. Returns `None` if the arguments do not match the
    /// parameters, if there are too many for `out`, or if the function processes named arguments
    /// itself. The caller then handles the call in another way, such as by `Known::arrange_any`, or
    /// reports the error.
    #[inline]
    pub(crate) fn arrange<'a>(
        &'a self,
        args: &[Obj<'a>],
        names: Obj<'_>,
        out: &mut [Option<Obj<'a>>; INLINE],
    ) -> Option<usize> {
        let count = self.names.len();
        let positional = args.len() - names.tuple_len();
        if count > INLINE || positional > count || self.takes_names {
            return None;
        }
        for (slot, arg) in out.iter_mut().zip(&args[..positional]) {
            *slot = Some(*arg);
        }
        let mut end = positional;
        for (index, arg) in args[positional..].iter().enumerate() {
            let name = py::tuple_get(names, index)?;
            let place = match self.names.iter().position(|known| name.is(known.as_ptr())) {
                Some(place) => place,
                // The name is not interned: it was made at run time.
                None => self.names.iter().position(|known| py::same_text(known.obj(), name))?,
            };
            if out[place].replace(*arg).is_some() {
                return None;
            }
            end = end.max(place + 1);
        }
        if end < self.required {
            return None;
        }
        for (index, slot) in out[..end].iter_mut().enumerate() {
            if slot.is_none() {
                *slot = Some(self.defaults[index].as_ref()?.obj());
            }
        }
        Some(end)
    }
}
