//! Code generation for the allocation of buffers, and for freeing them before an early return.

use anyfn::{Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::stmt::Stmt;

use crate::family::{Body, known_size};
use crate::host::message::printf_text;
use crate::host::{Host, c_type};

impl Body<'_, Host> {
    /// Returns a statement that frees the memory allocated by the function and returns the value of
    /// `call`, which reports an error.
    pub(super) fn fail(&self, call: &str) -> String {
        let free: String = self.dialect.allocated.iter().rev().map(|free| format!("{free} ")).collect();
        if free.is_empty() { format!("return {call};") } else { format!("{{ {free}return {call}; }}") }
    }

    /// Generates a variable that contains the size of a buffer in bytes, and a check that the size is not
    /// negative. A size that overflows becomes too large to be allocated. Returns an expression for the size.
    pub(super) fn checked_size(&mut self, buffer: &Buffer, c_type: &str) -> Result<String> {
        let mut size = format!("(int64_t)sizeof({c_type})");
        for extent in buffer.shape.iter() {
            size = format!("anyfn_sized_times({size}, {})", self.size(&extent)?);
        }
        let name = self.names.fresh(&format!("{}_size", buffer.name));
        self.line(&format!("const int64_t {name} = {size};"));
        let what = printf_text(&format!("cannot allocate buffer `{}`: an extent is negative", buffer.name));
        let fail = self.fail(&format!("anyfn_fail(\"ValueError\", {what})"));
        self.line(&format!("if ({name} < 0) {fail}"));
        Ok(format!("(uint64_t){name}"))
    }

    /// Generates the allocation of a buffer around `body`. The buffer is on the stack if its size is known and at most
    /// 16 KiB, and is otherwise allocated by `anyfn_alloc`.
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
                let size = match bytes {
                    Some(bytes) => bytes.to_string(),
                    None => self.checked_size(buffer, c_type)?,
                };
                self.line(&format!("{c_type}* restrict {name} = ({c_type}*)anyfn_alloc({size});"));
                let what = printf_text(&format!("cannot allocate buffer `{}`: out of memory", buffer.name));
                let fail = self.fail(&format!("anyfn_fail(\"MemoryError\", {what})"));
                self.line(&format!("if (!{name}) {fail}"));
                self.dialect.allocated.push(format!("anyfn_free({name});"));
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
