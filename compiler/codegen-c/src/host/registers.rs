//! Small buffers that are replaced by C variables, because all their indices are constants.

use anyfn::{Array, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::Expr;
use anyfn_ir::kind::as_int;
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::stmt::{ForKind, Stmt};
use anyfn_ir::visit::{Visitor, on_enough_stack};
use anyfn_ir::{ExprKind, StmtKind};

use crate::family::{Body, known_size};
use crate::host::options::CodegenOptions;
use crate::host::vector::statement_width;
use crate::host::{Host, c_type};

/// Maximum size in bytes of a buffer that is replaced by variables. The maximum number of these variables is
/// `MOST_VARIABLES`.
const MOST_BYTES: i64 = 8192;
const MOST_VARIABLES: i64 = 128;

/// C variables that replace a small buffer.
pub(crate) struct Registers {
    /// Number of lanes of each C variable that replaces the buffer.
    pub(crate) width: u16,
    /// Names of the C variables that replace the buffer. Each holds `width` consecutive elements of the
    /// buffer, in the order of their offsets.
    pub(crate) names: Vec<String>,
}

/// Returns the offset of an access in elements, or `None` if the offset is not constant. For a
/// contiguous vector, this is the offset of the first lane.
pub(crate) fn known_place(buffer: &Buffer, indices: &Array<Expr>) -> Option<i64> {
    let mut place = 0i64;
    for (dim, index) in indices.iter().enumerate() {
        let index = match ExprKind::of(&index) {
            ExprKind::Ramp(ramp) if as_int(&ramp.stride) == Some(1) => as_int(&ramp.start)?,
            _ => as_int(&index)?,
        };
        let extent = as_int(&buffer.shape.get(dim).ok()?)?;
        place = place.checked_mul(extent)?.checked_add(index)?;
    }
    Some(place)
}

impl Body<'_, Host> {
    /// Returns the variables that replace a buffer, or `None` if the buffer is in memory.
    pub(super) fn registers(&self, buffer: &Ref<Buffer>) -> Option<&Registers> {
        self.dialect.registers.get(&buffer.data.as_object().as_handle().addr())
    }

    /// Returns the C expression for an element of a buffer that is replaced by variables. If the last index
    /// is a vector, `lane` is the number of one of its lanes.
    pub(super) fn register(
        &mut self,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        lane: &str,
    ) -> Result<String> {
        let is_vector = indices.last().is_ok_and(|index| index.dtype.lanes() != 1);
        let place = known_place(buffer, indices).and_then(|place| {
            let lane = if is_vector { lane.parse().ok()? } else { 0 };
            usize::try_from(place + lane).ok()
        });
        if let (Some(place), Some(registers)) = (place, self.registers(buffer))
            && let Some(name) = registers.names.get(place / usize::from(registers.width))
        {
            let lane = place % usize::from(registers.width);
            return Ok(if registers.width == 1 { name.clone() } else { format!("{name}[{lane}]") });
        }
        bail!("InternalError", "cannot determine the register of an element of `{}`", buffer.name)
    }

    /// Generates the declarations of variables that replace a buffer, each with `width` lanes, around `body`.
    pub(super) fn allocate_registers(&mut self, buffer: &Ref<Buffer>, width: u16, body: &Stmt) -> Result<()> {
        let c_type =
            if width == 1 { c_type(buffer.dtype)?.to_owned() } else { self.vector(buffer.dtype, width)? };
        let count = known_size(buffer).unwrap_or(0) / i64::from(width);
        let names: Vec<String> =
            (0..count).map(|number| self.names.fresh(&format!("{}_{number}", buffer.name))).collect();
        self.open("{");
        for names in names.chunks(8) {
            self.line(&format!("{c_type} {};", names.join(", ")));
        }
        let key = buffer.data.as_object().as_handle().addr();
        self.dialect.registers.insert(key, Registers { width, names });
        self.stmt(body)?;
        self.dialect.registers.remove(&key);
        self.close("}");
        Ok(())
    }
}

/// Returns the number of lanes of each variable that replaces a buffer, or `None` if the buffer must be in
/// memory.
pub(crate) fn width(buffer: &Ref<Buffer>, body: &Stmt, options: CodegenOptions) -> Option<u16> {
    let count = known_size(buffer)?;
    let bytes = count.checked_mul(i64::from(buffer.dtype.0.bits.div_ceil(8)))?;
    if !options.has_vectors() || !buffer.strides.is_empty() || !(1..=MOST_BYTES).contains(&bytes) {
        return None;
    }
    let mut uses = Uses { buffer, options, count, width: None, statement: 1, in_task: false, fits: true };
    uses.stmt(body);
    let width = uses.width.unwrap_or(1);
    (uses.fits && count % i64::from(width) == 0 && count / i64::from(width) <= MOST_VARIABLES).then_some(width)
}

/// Visitor that collects the uses of a buffer and determines whether variables can replace it.
struct Uses<'a> {
    buffer: &'a Ref<Buffer>,
    options: CodegenOptions,
    count: i64,
    width: Option<u16>,
    /// Number of lanes that the current statement computes at a time.
    statement: u16,
    in_task: bool,
    fits: bool,
}

impl Uses<'_> {
    fn is_mine(&self, buffer: &Ref<Buffer>) -> bool {
        buffer.data.ptr_eq(&self.buffer.data)
    }

    fn access(&mut self, buffer: &Ref<Buffer>, indices: &Array<Expr>) {
        let lanes = indices.last().map_or(1, |index| index.dtype.lanes());
        let is_same_shape = buffer.ptr_eq(self.buffer);
        let Some(place) = known_place(buffer, indices).filter(|_| is_same_shape && !self.in_task) else {
            self.fits = false;
            return;
        };
        if place < 0 || place + i64::from(lanes) > self.count {
            self.fits = false;
        } else if lanes != 1 {
            // The width is reduced to the largest power of two that divides all offsets and lengths.
            let mut width = self.width.unwrap_or(self.statement).min(self.statement);
            while width > 1 && (place % i64::from(width) != 0 || !lanes.is_multiple_of(width)) {
                width /= 2;
            }
            self.width = Some(width);
        }
    }
}

impl Visitor for Uses<'_> {
    fn expr(&mut self, expr: &Expr) {
        on_enough_stack(|| match ExprKind::of(expr) {
            ExprKind::BufferLoad(node) if self.is_mine(&node.buffer) => {
                self.access(&node.buffer, &node.indices);
                node.indices.iter().for_each(|index| self.expr(&index));
            }
            ExprKind::Var(var) if var.ptr_eq(&self.buffer.data) => self.fits = false,
            _ => self.below_expr(expr),
        })
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match StmtKind::of(stmt) {
            StmtKind::BufferStore(node) => {
                self.statement = statement_width(&node.value, self.options);
                self.expr(&node.value);
                node.indices.iter().for_each(|index| self.expr(&index));
                if self.is_mine(&node.buffer) {
                    self.access(&node.buffer, &node.indices);
                }
                self.statement = 1;
            }
            StmtKind::For(node) if node.kind == ForKind::Parallel => {
                let outer = std::mem::replace(&mut self.in_task, true);
                self.below_stmt(stmt);
                self.in_task = outer;
            }
            _ => self.below_stmt(stmt),
        }
    }

    fn buffer(&mut self, buffer: &Ref<Buffer>) {
        if self.is_mine(buffer) {
            self.fits = false;
        }
    }
}
