//! Service codes: numbers by which a call selects a service of the peer. They are part of the protocol.

/// Request for a global function. Argument: name. Result: the function and its signature, or None for both if
/// the function does not exist.
pub const GLOBAL: u16 = 1;
/// Request for a function of a module. Arguments: handle of the module, name of the function. The result has
/// the same form as for [`GLOBAL`].
pub const MODULE_FUNCTION: u16 = 2;
/// Request for the names of a module's functions. Argument: handle of the module.
pub const MODULE_NAMES: u16 = 3;
/// Request to allocate a tensor of zeros. Arguments: shape, data type, device.
pub const EMPTY: u16 = 4;
/// Request to write to a tensor. Arguments: handle of the tensor, offset of the first byte, number of bytes. The bytes follow
/// the arguments.
pub const WRITE: u16 = 5;
/// Request to read from a tensor. Arguments: handle of the tensor, offset of the first byte, number of bytes. The bytes
/// precede the result.
pub const READ: u16 = 6;
/// Request to check which files have been uploaded. Argument: array of digests. Result: an array of booleans,
/// which are true for the digests whose files exist.
pub const HAS: u16 = 7;
/// Request to upload a file. Arguments: digest, number of bytes. The bytes follow the arguments.
pub const PUT: u16 = 8;
/// Request for the sizes of the uploaded files. Result: a map from the digest of each file to its size in bytes.
pub const FILES: u16 = 9;
/// Request to remove an uploaded file. Argument: digest of the file. Result: true if the file existed.
pub const REMOVE: u16 = 10;
/// Request to load an uploaded file. Arguments: digest of the file, and, unless the file is a library, the kind of the module whose bytes
/// it contains. Result: the module.
pub const LOAD: u16 = 11;
/// Request for the time evaluator of a function. Arguments: handle of the function, then the options of
/// `anyfn.time_evaluator`.
pub const TIME: u16 = 12;
/// Index of the [`TIME`] argument that specifies how many bytes are written before each call, to flush the
/// caches.
pub const TIME_FLUSH: usize = 8;
/// Request for a description of the server. No arguments.
pub const INFO: u16 = 13;
/// Request for the string representation of an object. Argument: handle of the object.
pub const TEXT: u16 = 14;
/// Request for the value of a field. Arguments: handle of the object, name of the field.
pub const FIELD: u16 = 15;
/// Request to copy a tensor to another one. Arguments: handle of the source, handle of the destination.
pub const COPY: u16 = 16;
/// Request to wait until the work of a device is complete. Argument: device.
pub const SYNC: u16 = 17;
/// Request for an attribute of a device. Arguments: device, code of the attribute as in `runtime.GetDeviceAttr`.
pub const DEVICE_ATTRIBUTE: u16 = 18;
/// Request for the names of the global functions that the policy permits. No arguments.
pub const NAMES: u16 = 19;
/// Request to register a global function. Arguments: name, function, and a Boolean that is true if the function
/// may replace an existing one.
pub const REGISTER: u16 = 20;
