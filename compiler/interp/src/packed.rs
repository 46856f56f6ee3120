//! Interpretation of calls of packed functions.

use std::rc::Rc;

use anyfn::{Any, DType, Ref, Result, Tensor, bail, registry};
use anyfn_ir::buffer::{Buffer, BufferRegion};
use anyfn_ir::expr::Call;
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::packed::Arg;

use crate::eval::Machine;
use crate::memory::Memory;
use crate::value::{Scalar, Value, converted, size_of};

/// Copy of a region of a buffer, with the byte offset of each element in the memory of the buffer.
struct Part {
    tensor: Tensor,
    memory: Rc<Memory>,
    offsets: Vec<usize>,
    size: usize,
    is_read_only: bool,
}

impl Machine {
    /// Calls a packed function by name. A buffer, or a region of a buffer, is passed as a copy.
    /// When the function returns, the copies are written back, except those of arguments that are
    /// marked as read-only.
    pub(crate) fn packed(&mut self, dtype: DType, node: &Call) -> Result<Value> {
        let mut args: Vec<Any> = Vec::new();
        let mut parts: Vec<Part> = Vec::new();
        for arg in node.args.iter() {
            args.push(match Arg::of(&arg)? {
                Arg::Value(value) => match self.expr(&value)? {
                    Value::Text(text) => Any::new(text)?,
                    one if value.dtype.is_bool() => Any::new(one.lane(0).is_true())?,
                    one => match one.lane(0) {
                        Scalar::Int(value) => Any::new(value as i64)?,
                        Scalar::Float(value) => Any::new(value)?,
                    },
                },
                Arg::Buffer { buffer, region, is_read_only } => {
                    let part = self.part(&buffer, region.as_ref(), is_read_only)?;
                    let tensor = part.tensor.clone().into_object();
                    parts.push(part);
                    Any::from(tensor)
                }
            });
        }
        let Some((name, args)) = args.split_first() else {
            return self
                .fail("TypeError", "`call_packed` requires the name of a function as its first argument");
        };
        let Ok(name) = name.get::<&str>() else {
            return self
                .fail("TypeError", "the first argument of `call_packed` must be the name of a function");
        };
        let views: Vec<_> = args.iter().map(Any::as_view).collect();
        let result = registry::get(name)?.call_views(&views)?;
        for part in parts.iter().filter(|part| !part.is_read_only) {
            let bytes = part.tensor.view().to_bytes()?;
            for (offset, element) in part.offsets.iter().zip(bytes.chunks_exact(part.size)) {
                part.memory.write(*offset, element);
            }
        }
        Ok(match result.type_key() {
            "float" => Value::One(converted(Scalar::Float(result.get::<f64>()?), dtype)),
            "int" | "bool" => Value::One(converted(Scalar::Int(i128::from(result.get::<i64>()?)), dtype)),
            "None" => Value::int(0),
            other => bail!("TypeError", "packed function `{name}` returned {other}, expected {dtype}"),
        })
    }

    /// Copies a region of a buffer, or the whole buffer if `region` is `None`. Uninitialised elements become
    /// 0 in the copy.
    fn part(
        &mut self,
        buffer: &Ref<Buffer>,
        region: Option<&Ref<BufferRegion>>,
        is_read_only: bool,
    ) -> Result<Part> {
        let (memory, size) = (self.memory_of(buffer)?, size_of(buffer.dtype)?);
        let mut shape = Vec::new();
        let mut offsets: Vec<i128> = vec![0];
        for (dim, whole) in buffer.shape.iter().enumerate() {
            let whole = self.place(&whole)?;
            let (first, count) = match region.map(|region| region.region.get(dim)) {
                Some(range) => {
                    let range = range?;
                    (self.place(&range.min)?, self.place(&range.extent)?)
                }
                None => (0, whole),
            };
            if first < 0 || count < 0 || first + count > whole {
                let text = format!(
                    "elements {first} to {} in dimension {dim} are out of range for `{}`, which has extent \
                     {whole} there",
                    first + count - 1,
                    buffer.name
                );
                return self.fail("IndexError", &text);
            }
            let stride = match buffer.strides.get(dim) {
                Ok(stride) => Some(self.place(&stride)?),
                Err(_) => None,
            };
            let place = |offset: &i128, at: i128| match stride {
                Some(stride) => offset + at * stride,
                None => offset * whole + at,
            };
            offsets =
                offsets.iter().flat_map(|offset| (first..first + count).map(|at| place(offset, at))).collect();
            shape.push(count as i64);
        }
        let mut bytes = Vec::with_capacity(offsets.len() * size);
        let mut places = Vec::with_capacity(offsets.len());
        for offset in offsets {
            let at = usize::try_from(offset).unwrap_or(usize::MAX).saturating_mul(size);
            match memory.read(at, size) {
                Some(found) => {
                    bytes.extend_from_slice(found.unwrap_or_default().get(..size).unwrap_or_default())
                }
                None => {
                    return self.fail(
                        "IndexError",
                        &format!("a region of `{}` is outside of its memory", buffer.name),
                    );
                }
            }
            places.push(at);
        }
        let tensor = Tensor::from_bytes(buffer.dtype, &shape, &bytes)?;
        Ok(Part { tensor, memory, offsets: places, size, is_read_only })
    }
}
