//! Formatting of tensors as text.

use anyfn::access::{Access, Mode};
use anyfn::{Device, Result, TensorView};
use anyfn_elements::{Codes, Element};

use super::copy::to_bytes;
use super::layout::{Layout, byte_count};

/// Number of elements that are shown at each end of a truncated dimension.
const EDGE: usize = 3;
/// Maximum width of a line in characters.
const WIDTH: usize = 100;
/// Maximum size in bytes of a tensor that is formatted with all its elements. If a larger tensor is not
/// truncated, it is formatted without elements.
const FETCHED_MAX: usize = 1 << 24;
/// Maximum number of elements in a truncated output. A tensor of which more elements would be shown
/// is formatted without elements.
const EDGES_MAX: usize = 1 << 16;

/// Formats a tensor and its elements as text. If there are more than `limit` elements, only those at the edges of each
/// dimension are shown.
///
/// # Errors
/// Returns the errors of [`to_bytes`].
///
/// # Safety
/// The tensor's memory must be valid and initialised. Code that bypasses the table of accesses must not write it
/// meanwhile.
pub(super) unsafe fn text(tensor: &TensorView<'_>, limit: usize) -> Result<String> {
    let layout = Layout::of(tensor)?;
    let summary = layout.count > limit;
    let mut tail = format!(", dtype='{}'", layout.dtype);
    if tensor.device() != Device::CPU {
        tail += &format!(", device='{}'", tensor.device());
    }
    if summary || layout.count == 0 && layout.shape != [0] {
        let extents: Vec<String> = layout.shape.iter().map(ToString::to_string).collect();
        let comma = if extents.len() == 1 { "," } else { "" };
        tail += &format!(", shape=({}{comma})", extents.join(", "));
    }
    let known = Element::of(layout.dtype);
    let (Some(element), true) = (known, byte_count(layout.dtype, layout.shape)? <= FETCHED_MAX || summary)
    else {
        return Ok(format!("<anyfn.Tensor {}>", layout.describe()));
    };
    // Without elements, a pair of brackets is written for each index of the dimensions before the empty one.
    let filled = layout.shape.iter().take_while(|extent| **extent != 0);
    let brackets = filled.fold(1usize, |brackets, extent| brackets.saturating_mul(*extent as usize));
    if layout.count == 0 && brackets > limit.min(EDGES_MAX) {
        return Ok(format!("anyfn.tensor([]{tail})"));
    }
    // Of a large tensor only the edges are read.
    let (mut shown, mut kept) = (layout.shape.to_vec(), Vec::new());
    for extent in shown.iter_mut().filter(|_| summary) {
        *extent = (*extent).min(2 * EDGE as i64 + 1);
    }
    kept.extend(shown.iter().map(|extent| *extent as usize));
    if summary && kept.iter().fold(1usize, |count, extent| count.saturating_mul(*extent)) > EDGES_MAX {
        return Ok(format!("<anyfn.Tensor {}>", layout.describe()));
    }
    // The elements are read in pieces, and must not be written in between.
    let access = if layout.count > 0 { Some(Access::begin([(layout.region(), Mode::Read)])?) } else { None };
    // SAFETY: the caller guarantees the tensor.
    let bytes = unsafe { edges(tensor, &layout, &shown) }?;
    drop(access);
    let codes = Codes::new(&bytes, &element.scalar);
    let count = kept.iter().product::<usize>();
    let mut words: Vec<String> = (0..count).map(|index| word(&element, &codes, index)).collect();
    if kept.len() > 1 {
        let width = words.iter().map(String::len).max().unwrap_or(0);
        words.iter_mut().for_each(|word| *word = format!("{word:>width$}"));
    }
    let cut: Vec<bool> = layout.shape.iter().zip(&shown).map(|(extent, shown)| extent != shown).collect();
    let mut out = String::from("anyfn.tensor(");
    let indent = out.len();
    let writer = Writer { words: &words, shape: &kept, cut: &cut };
    writer.write(0, 0, indent, &mut out);
    out += &tail;
    out.push(')');
    Ok(out)
}

/// Returns the bytes of the elements to display, packed without gaps. `shown` is the shape after truncation.
///
/// # Safety
/// The requirements of [`text`] apply.
unsafe fn edges(tensor: &TensorView<'_>, layout: &Layout<'_>, shown: &[i64]) -> Result<Vec<u8>> {
    if shown == layout.shape {
        // SAFETY: the caller guarantees the tensor.
        return unsafe { to_bytes(tensor) };
    }
    // Of each truncated dimension: the first elements, one that represents all omitted ones, and the last elements.
    // They are fetched row by row, so that nothing else is fetched.
    let dl = tensor.as_dl();
    let mut out = Vec::new();
    let rows = shown.iter().take(shown.len() - 1).product::<i64>();
    let (last, edge) = (shown.len() - 1, EDGE as i64);
    let original = |dim: usize, index: i64| {
        let cut = shown[dim] != layout.shape[dim];
        if cut && index > edge { layout.shape[dim] - shown[dim] + index } else { index }
    };
    let pieces: Vec<(i64, i64)> = if shown[last] == layout.shape[last] {
        vec![(0, shown[last])]
    } else {
        vec![(0, edge + 1), (layout.shape[last] - edge, edge)]
    };
    // Elements of less than a byte are fetched individually.
    let single = !layout.bits.is_multiple_of(8);
    let mut packed = Packed { out: &mut out, bits: 0 };
    for row in 0..rows {
        let (mut rest, mut offset) = (row, 0i128);
        for dim in (0..last).rev() {
            offset += i128::from(original(dim, rest % shown[dim])) * i128::from(layout.strides[dim]);
            rest /= shown[dim];
        }
        for (start, length) in &pieces {
            let step = if single { 1 } else { *length };
            for first in (*start..start + length).step_by(step as usize) {
                let at = offset + i128::from(first) * i128::from(layout.strides[last]);
                // SAFETY: these elements belong to the tensor.
                unsafe { packed.fetch(dl, layout, at, step) }?;
            }
        }
    }
    Ok(out)
}

/// Buffer to which the bytes of elements are appended, packed without gaps.
struct Packed<'a> {
    out: &'a mut Vec<u8>,
    bits: usize,
}

impl Packed<'_> {
    /// Reads `count` elements along the last dimension and appends them to the buffer. `at` is the distance
    /// in elements from the first element of the tensor to the first element that is read.
    ///
    /// # Safety
    /// The elements must belong to the tensor, whose memory must be valid.
    unsafe fn fetch(
        &mut self,
        dl: &anyfn::abi::DLTensor,
        layout: &Layout<'_>,
        at: i128,
        count: i64,
    ) -> Result<()> {
        let bit = at * i128::from(layout.bits);
        let place = layout.at(bit.div_euclid(8))?;
        let shift = bit.rem_euclid(8) as i64;
        let stride = layout.strides.last().copied().unwrap_or(1);
        let whole = layout.bits.is_multiple_of(8);
        // For an element that is not a whole number of bytes, the bytes that contain it.
        let (mut extent, mut stride) =
            if whole { (count, stride) } else { ((shift + layout.bits as i64 + 7) / 8, 1) };
        let mut piece = *dl;
        piece.data = place.data;
        piece.byte_offset = place.offset as u64;
        piece.ndim = 1;
        piece.shape = &raw mut extent;
        piece.strides = &raw mut stride;
        if !whole {
            piece.dtype = anyfn::DType::UINT8.0;
        }
        // SAFETY: extent and stride outlive the view.
        let view = unsafe { TensorView::from_dl(&piece) };
        // SAFETY: the caller guarantees the elements.
        let bytes = unsafe { to_bytes(&view) }?;
        if whole {
            self.out.extend(bytes);
            return Ok(());
        }
        for at in 0..layout.bits as usize {
            let from = shift as usize + at;
            if self.bits.is_multiple_of(8) {
                self.out.push(0);
            }
            self.out[self.bits / 8] |= (bytes[from / 8] >> (from % 8) & 1) << (self.bits % 8);
            self.bits += 1;
        }
        Ok(())
    }
}

/// Formats one element: a number, a complex number, or a list of lanes.
fn word(element: &Element, codes: &Codes<'_>, index: usize) -> String {
    let mut out = String::new();
    let first = index * element.scalars;
    let lane = |lane: usize, out: &mut String| {
        if !element.complex {
            return element.scalar.text(codes.get(first + lane), out);
        }
        let (mut real, mut imaginary) = (String::new(), String::new());
        element.scalar.text(codes.get(first + 2 * lane), &mut real);
        element.scalar.text(codes.get(first + 2 * lane + 1), &mut imaginary);
        let sign = if imaginary.starts_with('-') { "" } else { "+" };
        *out += &format!("({real}{sign}{imaginary}j)");
    };
    if element.lanes == 1 {
        lane(0, &mut out);
        return out;
    }
    out.push('<');
    for at in 0..element.lanes {
        if at > 0 {
            out += ", ";
        }
        lane(at, &mut out);
    }
    out.push('>');
    out
}

struct Writer<'a> {
    words: &'a [String],
    shape: &'a [usize],
    cut: &'a [bool],
}

impl Writer<'_> {
    /// Formats the dimension `dim` of the tensor and the dimensions inside it. `first` is the index in
    /// `words` of the first element to write.
    fn write(&self, dim: usize, first: usize, indent: usize, out: &mut String) {
        let Some(extent) = self.shape.get(dim) else {
            out.push_str(self.words.first().map_or("", |_| &self.words[first]));
            return;
        };
        /// Maximum nesting depth of brackets in the output, which limits the recursion.
        const DEEPEST: usize = 64;
        if dim == DEEPEST {
            out.push_str("...");
            return;
        }
        let step: usize = self.shape[dim + 1..].iter().product();
        out.push('[');
        let mut column = column_of(out);
        for at in 0..*extent {
            let gap = self.cut[dim] && at == EDGE;
            let text = if gap { "..." } else { "" };
            if dim + 1 == self.shape.len() {
                let word = if gap { text } else { &*self.words[first + at] };
                if at > 0 {
                    out.push(',');
                    let wrap = column + word.len() + 3 > WIDTH;
                    self.separate(wrap, indent + dim + 1, out);
                    column = if wrap { indent + dim + 1 } else { column + 2 };
                }
                out.push_str(word);
                column += word.len();
                continue;
            }
            if at > 0 {
                out.push(',');
                self.separate(true, indent + dim + 1, out);
            }
            if gap {
                out.push_str(text);
            } else {
                self.write(dim + 1, first + at * step, indent, out);
            }
        }
        out.push(']');
    }

    fn separate(&self, wrap: bool, indent: usize, out: &mut String) {
        if wrap {
            out.push('\n');
            out.extend(core::iter::repeat_n(' ', indent));
        } else {
            out.push(' ');
        }
    }
}

fn column_of(out: &str) -> usize {
    out.len() - out.rfind('\n').map_or(0, |at| at + 1)
}
