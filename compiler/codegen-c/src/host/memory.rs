//! Memory of a function itself.

use std::fmt::Write as _;

use anyfn::{Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::stmt::Stmt;

use crate::family::{Body, c_type, quoted};
use crate::host::Host;
use crate::host::registers::known_size;

impl Body<'_, Host> {
    /// The statement that ends the function with an error.
    pub(super) fn fail(&self, call: &str) -> String {
        let free: String =
            self.dialect.allocated.iter().rev().map(|name| format!("anyfn_free({name}); ")).collect();
        if free.is_empty() { format!("return {call};") } else { format!("{{ {free}return {call}; }}") }
    }

    /// Memory on the stack if it is small and its size known, else from the C library.
    pub(super) fn allocate_memory(&mut self, buffer: &Ref<Buffer>, body: &Stmt) -> Result<()> {
        const ON_STACK: i64 = 16384;
        let c_type = c_type(buffer.dtype)?;
        let name = self.names.buffer(buffer);
        let known = known_size(buffer);
        let bytes = known.and_then(|n| n.checked_mul(i64::from(buffer.dtype.0.bits.div_ceil(8))));
        self.open("{");
        self.scope.push((format!("{c_type}* restrict {name}"), name.clone()));
        match (known, bytes) {
            (Some(count), Some(bytes)) if bytes <= ON_STACK => {
                self.line(&format!("_Alignas(64) {c_type} {name}[{}];", count.max(1)));
                self.stmt(body)?;
            }
            _ => {
                let mut size = format!("(uint64_t)sizeof({c_type})");
                for extent in buffer.shape.iter() {
                    let _ = write!(size, " * (uint64_t)({})", self.place(&extent)?);
                }
                self.line(&format!("{c_type}* restrict {name} = ({c_type}*)anyfn_alloc({size});"));
                let what = quoted(&format!("no memory for `{}`", buffer.name));
                let fail = self.fail(&format!("anyfn_fail(\"MemoryError\", {what})"));
                self.line(&format!("if (!{name}) {fail}"));
                self.dialect.allocated.push(name.clone());
                self.stmt(body)?;
                self.dialect.allocated.pop();
                self.line(&format!("anyfn_free({name});"));
            }
        }
        self.scope.pop();
        self.close("}");
        Ok(())
    }
}
