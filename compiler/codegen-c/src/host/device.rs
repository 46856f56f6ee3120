//! Host code of functions whose tensors are on a device: memory that only kernels access.

use anyfn::{Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::func::{DEVICE, PrimFunc};
use anyfn_ir::stmt::Stmt;
use anyfn_ir::target::{DeviceKind, Target};

use crate::family::{Body, known_size};
use crate::host::{Host, c_type};

/// Source of the C type for memory of a device, and of the functions that use it.
pub(super) const SOURCE: &str = include_str!("device.c");

/// Name of the variable in generated code that contains the number of the device.
pub(super) const NUMBER: &str = "anyfn_device";

/// Returns the kind of device on which the tensors of a function are, or `None` if they are in main memory.
///
/// # Errors
/// Returns `ValueError` for a device that is not known.
pub(super) fn of(func: &PrimFunc) -> Result<Option<&'static DeviceKind>> {
    let Some(name) = func.attrs.get_any(DEVICE)? else { return Ok(None) };
    let name = name.get::<anyfn::String>()?;
    match Target::DEVICES.iter().find(|device| device.kind == &*name) {
        Some(device) => Ok(Some(device)),
        None => bail!("ValueError", "unknown device kind `{name}`"),
    }
}

/// Returns true for a buffer in memory of a device.
pub(super) fn is_there(buffer: &Buffer) -> bool {
    &*buffer.scope == "device"
}

impl Body<'_, Host> {
    /// Generates the allocation of a buffer in memory of the device around `body`.
    pub(super) fn allocate_on_device(&mut self, buffer: &Ref<Buffer>, body: &Stmt) -> Result<()> {
        let Some(device) = self.dialect.device else {
            bail!(
                "ValueError",
                "buffer `{}` is in memory of a device, but the function has no device",
                buffer.name
            )
        };
        let (c_type, name, device) = (c_type(buffer.dtype)?, self.names.buffer(buffer), device.device_type);
        self.open("{");
        let bytes = known_size(buffer).and_then(|n| n.checked_mul(i64::from(buffer.dtype.0.bits.div_ceil(8))));
        let size = match bytes {
            Some(bytes) => bytes.to_string(),
            None => self.checked_size(buffer, c_type)?,
        };
        self.line(&format!(
            "const anyfn_memory {name} = {{anyfn_device_alloc({device}, {NUMBER}, {size}), 0}};"
        ));
        let fail = self.fail("-1");
        self.line(&format!("if (!{name}.data) {fail}"));
        let free = format!("anyfn_device_free({device}, {NUMBER}, {name}.data);");
        self.dialect.allocated.push(free.clone());
        self.scope.push((format!("const anyfn_memory {name}"), name));
        self.stmt(body)?;
        self.scope.pop();
        self.dialect.allocated.pop();
        self.line(&free);
        self.close("}");
        Ok(())
    }
}
