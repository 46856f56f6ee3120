//! Limits that every WebGPU device meets. A page can request higher ones, but not everywhere, so code that needs them is refused.

use anyfn::{Result, bail};
use anyfn_ir::StmtKind;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::Expr;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::as_int;
use anyfn_ir::stmt::{ForKind, Stmt};
use anyfn_ir::visit::Visitor;

use crate::family::{Kernel, known_size};

/// Number of storage buffers of a kernel.
const STORAGE_BUFFERS: usize = 8;
/// Size in bytes of a storage buffer.
const BINDING_BYTES: i64 = 128 << 20;
/// Number of blocks along an axis.
const BLOCKS: i64 = 65_535;
/// Number of threads of a block along the axes x, y and z.
const THREADS: [i64; 3] = [256, 256, 64];

/// Returns true if a kernel may have more blocks than fit into one dimension, and uses only the axis `blockIdx.x`: its blocks then lie in
/// two dimensions.
pub(super) fn is_folded(func: &PrimFunc, tags: &[String]) -> bool {
    let mut of_blocks = tags.iter().filter(|tag| tag.starts_with("blockIdx"));
    let is_only_x = of_blocks.next().is_some_and(|tag| tag == "blockIdx.x") && of_blocks.next().is_none();
    is_only_x && blocks_of(func).iter().any(|(_, extent)| extent.is_none_or(|extent| extent > BLOCKS))
}

/// Returns the axes of the loops over blocks, with the extents that are constant.
fn blocks_of(func: &PrimFunc) -> Vec<(ForKind, Option<i64>)> {
    struct Blocks(Vec<(ForKind, Option<i64>)>);
    impl Visitor for Blocks {
        fn expr(&mut self, _: &Expr) {}
        fn stmt(&mut self, stmt: &Stmt) {
            if let StmtKind::For(node) = StmtKind::of(stmt)
                && node.kind.is_over_blocks()
            {
                self.0.push((node.kind, as_int(&node.extent)));
            }
            self.below_stmt(stmt);
        }
    }
    let mut blocks = Blocks(Vec::new());
    blocks.stmt(&func.body);
    blocks.0
}

/// Checks that a kernel needs no more than every WebGPU device has. What depends on arguments is checked when the kernel is launched.
///
/// # Errors
/// Returns `ValueError`, which names the limit and what exceeds it.
pub(super) fn check(func: &PrimFunc, kernel: &Kernel, is_folded: bool) -> Result<()> {
    let mut buffers: Vec<String> = Vec::new();
    for var in func.params.iter() {
        let Some(buffer) = func.buffer_map.get(&var)? else { continue };
        buffers.push(format!("`{}`", buffer.name));
        let bytes = bytes_of(&buffer);
        if let Some(bytes) = bytes.filter(|bytes| *bytes > BINDING_BYTES) {
            bail!(
                "ValueError",
                "buffer `{}` has {bytes} bytes, more than the limit maxStorageBufferBindingSize of WebGPU, {BINDING_BYTES}; split the \
                 computation into calls on smaller tensors",
                buffer.name
            );
        }
    }
    if buffers.len() > STORAGE_BUFFERS {
        bail!(
            "ValueError",
            "a kernel accesses {} buffers ({}), more than the limit maxStorageBuffersPerShaderStage of WebGPU, {STORAGE_BUFFERS}; \
             compute some of the results in another function or stage",
            buffers.len(),
            buffers.join(", ")
        );
    }
    for ((size, most), axis) in kernel.block_sizes().into_iter().zip(THREADS).zip(["x", "y", "z"]) {
        if size > most {
            let limit = axis.to_uppercase();
            bail!(
                "ValueError",
                "a block has {size} threads along threadIdx.{axis}, more than the limit maxComputeWorkgroupSize{limit} of WebGPU, {most}"
            );
        }
    }
    for (axis, extent) in blocks_of(func) {
        if let Some(extent) = extent.filter(|extent| !is_folded && *extent > BLOCKS) {
            bail!(
                "ValueError",
                "a kernel has {extent} blocks along {}, more than the limit maxComputeWorkgroupsPerDimension of WebGPU, {BLOCKS}; split \
                 the loop and bind both parts, or bind loops to blockIdx.x alone, for which there is no such limit",
                axis.text()
            );
        }
    }
    Ok(())
}

/// Returns the size of a buffer in bytes if it is constant.
fn bytes_of(buffer: &Buffer) -> Option<i64> {
    known_size(buffer)?.checked_mul(i64::from(buffer.dtype.0.bits.div_ceil(8)))
}
