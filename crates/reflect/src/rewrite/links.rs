//! Callbacks of walks and maps. Each callback accepts the values of one type and of its derived
//! types.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::RefCell;

use anyfn::abi::{
    kTVMFFIAny, kTVMFFIBytes, kTVMFFIInt, kTVMFFIObject, kTVMFFISmallBytes, kTVMFFISmallStr,
    kTVMFFIStaticObjectBegin, kTVMFFIStr,
};
use anyfn::{Any, AnyView, ObjectRef, PackedFunc, Result, bail};

use super::Region;

/// Additional arguments that a callback receives after the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extra {
    Nothing,
    /// The callback also receives the kind of the definition region, as an int.
    Region,
    /// The callback also receives the visitor or mutator, with which it can process the children.
    Tool,
    /// The callback also receives the mutator, and an int that is 1 if the value may be changed in place.
    ToolAndMode,
}

/// Callback written in Rust.
pub(crate) type Native<'a> = Box<dyn FnMut(&Any, Region) -> Result<Any> + 'a>;

enum Callee<'a> {
    Function(PackedFunc, Extra),
    Native(RefCell<Native<'a>>),
}

struct Link<'a> {
    type_index: i32,
    callee: Callee<'a>,
}

/// Callbacks of one walk, in the order in which they were added. A value is passed to the first callback that accepts
/// its type.
#[derive(Default)]
pub(crate) struct Links<'a>(Vec<Link<'a>>);

/// Returns true if a callback for values of type `wanted` accepts values of type `actual`.
pub(crate) fn matches(actual: i32, wanted: i32) -> bool {
    match wanted {
        kTVMFFIAny => true,
        kTVMFFIStr => matches!(actual, kTVMFFIStr | kTVMFFISmallStr),
        kTVMFFIBytes => matches!(actual, kTVMFFIBytes | kTVMFFISmallBytes),
        kTVMFFIObject => actual >= kTVMFFIStaticObjectBegin,
        _ => anyfn::is_instance(actual, wanted),
    }
}

impl<'a> Links<'a> {
    pub(crate) fn add_function(&mut self, type_index: i32, function: PackedFunc, extra: Extra) {
        self.0.push(Link { type_index, callee: Callee::Function(function, extra) });
    }

    pub(crate) fn add_native(&mut self, type_index: i32, native: Native<'a>) {
        self.0.push(Link { type_index, callee: Callee::Native(RefCell::new(native)) });
    }

    /// Creates a list with one callback, which accepts all values and does nothing.
    pub(crate) fn all() -> Links<'a> {
        let mut links = Links::default();
        links.add_native(kTVMFFIAny, Box::new(|_, _| Ok(Any::NONE)));
        links
    }

    /// Returns the index of the first callback that accepts values of the given type; `None` if no callback
    /// does.
    pub(crate) fn find(&self, type_index: i32) -> Option<u32> {
        self.0.iter().position(|link| matches(type_index, link.type_index)).map(|at| at as u32)
    }

    /// Calls the callback at index `link` for `value`. `tool` consists of the visitor or mutator, for
    /// callbacks that take one, and a flag, which is true if the value may be changed in place.
    pub(crate) fn call(
        &self,
        link: u32,
        value: &AnyView<'_>,
        region: Region,
        tool: Option<(&ObjectRef, bool)>,
    ) -> Result<Any> {
        match &self.0[link as usize].callee {
            Callee::Function(function, Extra::Nothing) => function.call_views(core::slice::from_ref(value)),
            Callee::Function(function, Extra::Region) => {
                function.call_views(&[*value, int(region as i64).as_view()])
            }
            Callee::Function(function, extra) => {
                let Some((tool, in_place)) = tool else {
                    bail!("InternalError", "a callback requires a visitor, but the operation has none")
                };
                let mode = int(i64::from(in_place));
                let args = [*value, AnyView::from(tool), mode.as_view()];
                function.call_views(if *extra == Extra::Tool { &args[..2] } else { &args })
            }
            Callee::Native(native) => match native.try_borrow_mut() {
                Ok(mut native) => native(super::as_any(value), region),
                Err(_) => bail!("RuntimeError", "a callback was called again while it was running"),
            },
        }
    }
}

fn int(value: i64) -> Any {
    // SAFETY: an int holds no reference.
    unsafe { Any::from_raw(anyfn::abi::TVMFFIAny::from_bits(kTVMFFIInt, value as u64)) }
}
