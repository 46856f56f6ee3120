//! Replacements for the functions of the ledger in a runtime without the feature `ledger`. They
//! record no objects.

use core::ffi::c_void;

use std::string::String as StdString;
use std::sync::Arc;

use anyfn::ObjectRef;

use super::Mapped;

pub(crate) fn tell(_mapped: &Mapped) {}

pub(crate) fn add(_object: *const c_void, _type_index: i32) {}

pub(crate) fn remove(_object: *const c_void) {}

pub(crate) fn explain(
    _object: *const c_void,
    _kind: &'static str,
    _libraries: Vec<(usize, StdString)>,
    _code: *const c_void,
    _name: Option<&str>,
) {
}

pub(crate) fn explain_module(_object: &ObjectRef, _mapped: Option<&Arc<Mapped>>, _name: Option<&str>) {}
