//! Code generation shared by the languages of the C family, and the interface to their dialects.

mod barriers;
mod body;
pub(crate) mod c;
mod dialect;
mod expr;
mod interface;
mod kernel;
pub(crate) mod kernel_c;
mod layout;
mod module;
mod names;
mod text;
mod types;

pub(crate) use barriers::{Barriers, thread_axes};
pub(crate) use body::{Body, known_size, uses};
pub(crate) use dialect::{Dialect, Operation, Statements};
pub(crate) use expr::is_shift_of;
pub(crate) use interface::{Interface, Param, address};
pub(crate) use kernel::{Kernel, KernelDialect, MARKER, PARAMETERS, tags_of};
pub(crate) use layout::check_layout;
pub(crate) use module::{SEPARATOR, device_module, module};
pub(crate) use names::Names;
pub(crate) use text::{Literal, Message, Part, Symbol};
pub(crate) use types::{check_types, check_wide, int_of, type_name, uint_of};
