//! Descriptions of the types and shapes of call arguments in a profile.

use std::fmt::Write;

use anyfn::abi::{TVMFFIAny, kDLCPU};
use anyfn::{AnyView, TensorView};

/// Maximum number of arguments that are described for each call.
const SHOWN: usize = 16;

/// Describes the types and shapes of a call's arguments: `int, float32[3, 4], float32[8]@cuda:0`.
///
/// # Safety
/// `args` must point to `count` valid views.
pub(super) unsafe fn describe(args: *const TVMFFIAny, count: i32) -> String {
    // SAFETY: the caller guarantees the views.
    let views = unsafe { AnyView::slice_from_raw(args, count) };
    let mut text = String::new();
    for (index, view) in views.iter().take(SHOWN).enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        // Writing to a string cannot fail.
        let _ = match view.get::<TensorView<'_>>() {
            Ok(tensor) => {
                let device = tensor.device();
                let written = write!(text, "{}{:?}", tensor.dtype(), tensor.shape());
                if device.0.device_type == kDLCPU { written } else { write!(text, "@{device}") }
            }
            Err(_) => write!(text, "{}", view.type_key()),
        };
    }
    if views.len() > SHOWN {
        let _ = write!(text, ", and {} more", views.len() - SHOWN);
    }
    // A call without arguments is described too, because an empty string means that arguments were not recorded.
    if text.is_empty() { "none".to_owned() } else { text }
}
