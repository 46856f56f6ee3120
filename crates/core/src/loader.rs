//! Interface to the crate `anyfn-loader`: the trait that the loader of library modules implements, and the
//! items of this crate that it uses.

pub use crate::c_api::watch_calls;
pub use crate::env::{function_name, place};
pub use crate::function_table::{Saved, restore as restore_function, save as save_function};
pub use crate::libraries::{Add, HAS_LIBRARIES, LOADERS, Lease, LeaseKind, Libraries, Library, Loader};
pub use crate::method::revoke as revoke_functions;
pub use crate::registry::{get as global_function, name_of as name_of_function};
pub use crate::sys::{Mutex, MutexGuard, env_flag, warn};
pub use crate::type_table::{info_or_error, metadata, revoke as revoke_types, revoke_creators};
