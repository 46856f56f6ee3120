//! Moves elements between two layouts in main memory.
//!
//! The dimensions are merged and sorted so that the target is written in order. If another dimension has a smaller stride in the
//! source, as in a transposition, that dimension and the innermost one are processed in tiles, so that each cache line is read and
//! written once.

use core::mem::MaybeUninit;

/// One dimension: its extent, and the strides of source and target in elements.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Dim {
    extent: isize,
    from: isize,
    to: isize,
}

/// Extent of a tile in both dimensions, in elements of up to 4 bytes. Larger elements have smaller tiles.
const TILE: usize = 64;
/// Largest distance, in bytes, between elements of a tile that is written without a buffer: half of the smallest first-level cache in
/// use, 32 KiB, so that source and target fit in it together.
const CLOSE: usize = 16 << 10;
/// Minimum extents of a plane that is transposed through a buffer.
const LEAST: isize = 8;

/// Copies elements of `bits` bits between two ranges of main memory that do not overlap. `strides` are those of source and target,
/// in elements.
///
/// # Safety
/// All elements must be valid for reads in the source and for writes in the target, and their total number must not exceed the
/// address space. No extent may be 0.
#[cfg_attr(feature = "tiles", inline(never))]
pub unsafe fn move_elements(
    source: *const u8,
    target: *mut u8,
    shape: &[i64],
    strides: [&[i64]; 2],
    bits: u64,
) {
    let (mut dims, at_from, at_to) = merged(shape, strides);
    if !bits.is_multiple_of(8) {
        each(&dims, at_from, at_to, |from, to| {
            // SAFETY: the caller guarantees all elements; this is one of them.
            unsafe { move_bits(source, from as i128, target, to as i128, bits) };
        });
        return;
    }
    let size = (bits / 8) as isize;
    let (source, target) = (source.wrapping_offset(at_from * size), target.wrapping_offset(at_to * size));
    // An element is moved as one unit, or as several if no integer has its size.
    // Without the feature `tiles`, units are bytes, so that only one copy of the code exists.
    let unit = if cfg!(feature = "tiles") { 1 << size.trailing_zeros().min(4) } else { 1 };
    if unit != size {
        let units = size / unit;
        for dim in &mut dims {
            *dim = Dim { extent: dim.extent, from: dim.from * units, to: dim.to * units };
        }
        dims.push(Dim { extent: units, from: 1, to: 1 });
        merge(&mut dims);
    }
    // Copies units of one type.
    macro_rules! units {
        ($ty:ty) => {
            // SAFETY: the caller guarantees all elements, of which these are the units.
            unsafe { walk::<$ty>(source.cast(), target.cast(), dims) }
        };
    }
    match unit {
        1 => units!(u8),
        2 => units!(u16),
        4 => units!(u32),
        8 => units!(u64),
        _ => units!(u128),
    }
}

/// Returns the dimensions in the order in which the target is written, the innermost last, and the offsets of the first element of
/// source and target. The strides of the target are positive.
fn merged(shape: &[i64], [from, to]: [&[i64]; 2]) -> (Vec<Dim>, isize, isize) {
    let (mut at_from, mut at_to, mut dims) = (0, 0, Vec::with_capacity(shape.len() + 1));
    for (extent, (from, to)) in shape.iter().zip(from.iter().zip(to)) {
        let (extent, from, to) = (*extent as isize, *from as isize, *to as isize);
        if extent == 1 {
            continue;
        }
        if to == 0 {
            // All elements along the dimension have the same target, which keeps the last one.
            at_from += (extent - 1) * from;
        } else if to < 0 {
            (at_from, at_to) = (at_from + (extent - 1) * from, at_to + (extent - 1) * to);
            dims.push(Dim { extent, from: -from, to: -to });
        } else {
            dims.push(Dim { extent, from, to });
        }
    }
    // This is an insertion sort: there are few dimensions, and the code of `sort_by_key` is larger than this function.
    let size = |dim: &Dim| (dim.to, dim.from.unsigned_abs());
    for sorted in 1..dims.len() {
        for at in (1..=sorted).rev() {
            if size(&dims[at - 1]) >= size(&dims[at]) {
                break;
            }
            dims.swap(at - 1, at);
        }
    }
    merge(&mut dims);
    (dims, at_from, at_to)
}

/// Merges neighbouring dimensions that are one dimension for both source and target.
fn merge(dims: &mut Vec<Dim>) {
    dims.dedup_by(|inner, outer| {
        let one = inner.from.checked_mul(inner.extent) == Some(outer.from)
            && inner.to.checked_mul(inner.extent) == Some(outer.to);
        if one {
            *outer = Dim { extent: outer.extent * inner.extent, ..*inner };
        }
        one
    });
}

/// Calls `body` with the offsets in source and target of each index, the last dimension varying fastest.
fn each(dims: &[Dim], mut at_from: isize, mut at_to: isize, mut body: impl FnMut(isize, isize)) {
    let mut index = vec![0_isize; dims.len()];
    loop {
        body(at_from, at_to);
        let mut at = dims.len();
        loop {
            let Some(next) = at.checked_sub(1) else { return };
            at = next;
            let Dim { extent, from, to } = dims[at];
            index[at] += 1;
            (at_from, at_to) = (at_from.wrapping_add(from), at_to.wrapping_add(to));
            if index[at] < extent {
                break;
            }
            (at_from, at_to) =
                (at_from.wrapping_sub(extent.wrapping_mul(from)), at_to.wrapping_sub(extent.wrapping_mul(to)));
            index[at] = 0;
        }
    }
}

/// Copies elements, which need not be aligned.
///
/// # Safety
/// All elements must be valid.
unsafe fn walk<T: Copy>(source: *const T, target: *mut T, mut dims: Vec<Dim>) {
    const ONE: Dim = Dim { extent: 1, from: 1, to: 1 };
    let inner = dims.pop().unwrap_or(ONE);
    let mut tiled = None;
    if cfg!(feature = "tiles") {
        // The dimension along which the source is read in order.
        let others = (0..dims.len()).filter(|at| dims[*at].from != 0);
        let closest = others.min_by_key(|at| dims[*at].from.unsigned_abs());
        tiled = closest.filter(|at| dims[*at].from.unsigned_abs() < inner.from.unsigned_abs());
    }
    let middle = match tiled {
        Some(at) => dims.remove(at),
        None => dims.pop().unwrap_or(ONE),
    };
    each(&dims, 0, 0, |from, to| {
        let (source, target) = (source.wrapping_offset(from), target.wrapping_offset(to));
        if tiled.is_some() {
            // SAFETY: the caller guarantees all elements; these are those of one plane.
            unsafe { plane(source, target, inner, middle) };
            return;
        }
        for i in 0..middle.extent {
            let (source, target) =
                (source.wrapping_offset(i * middle.from), target.wrapping_offset(i * middle.to));
            // SAFETY: the caller guarantees all elements; these are those of one row.
            unsafe { row(source, target, inner) };
        }
    });
}

/// Copies one row of elements.
///
/// # Safety
/// The elements of the row must be valid in source and target.
#[inline]
unsafe fn row<T: Copy>(source: *const T, target: *mut T, row: Dim) {
    if (row.from, row.to) == (1, 1) {
        let (source, target) = (source.cast::<u8>(), target.cast::<u8>());
        // SAFETY: the caller guarantees the row, which has no gaps.
        unsafe { core::ptr::copy_nonoverlapping(source, target, row.extent as usize * size_of::<T>()) };
    } else {
        // SAFETY: the caller guarantees the row.
        unsafe { strided_row(source, target, row) };
    }
}

/// Copies one row of elements that are not all next to each other.
///
/// # Safety
/// The elements of the row must be valid in source and target.
#[cfg_attr(feature = "tiles", inline(never))]
#[cfg_attr(not(feature = "tiles"), inline(always))]
unsafe fn strided_row<T: Copy>(source: *const T, target: *mut T, row: Dim) {
    let Dim { extent, from, to } = row;
    // Strides that are known at compile time are moved several elements at once.
    macro_rules! strides {
        ($i:ident => $from:expr) => {
            for $i in 0..extent {
                // SAFETY: the caller guarantees the row, of which this is an element.
                let value = unsafe { source.wrapping_offset($from).read_unaligned() };
                // SAFETY: the caller guarantees the row of the target, too.
                unsafe { target.wrapping_offset($i).write_unaligned(value) };
            }
        };
    }
    match (from, to) {
        (0, 1) if cfg!(feature = "tiles") => strides!(i => 0),
        (-1, 1) if cfg!(feature = "tiles") => strides!(i => -i),
        (2, 1) if size_of::<T>() >= 4 => strides!(i => 2 * i),
        _ => {
            let (mut source, mut target) = (source, target);
            for _ in 0..extent {
                // SAFETY: the caller guarantees the row, of which this is an element.
                let value = unsafe { source.read_unaligned() };
                // SAFETY: the caller guarantees the row of the target, too.
                unsafe { target.write_unaligned(value) };
                (source, target) = (source.wrapping_offset(from), target.wrapping_offset(to));
            }
        }
    }
}

/// Copies a plane in tiles. Along `across`, the elements of the target are closer together, and along `along` those of the source.
///
/// # Safety
/// The elements of the plane must be valid in source and target.
unsafe fn plane<T: Copy>(source: *const T, target: *mut T, across: Dim, along: Dim) {
    let tile = (TILE * 4 / size_of::<T>()).min(TILE) as isize;
    let is_transposition = across.to == 1 && along.from == 1 && across.extent.min(along.extent) >= LEAST;
    // If one extent is small, the rows along the other one are longer.
    let most = if is_transposition {
        tile
    } else {
        (tile * tile / across.extent.min(along.extent).min(tile)).max(tile)
    };
    let mut i = 0;
    while i < across.extent {
        let rows = Dim { extent: most.min(across.extent - i), ..across };
        let mut j = 0;
        while j < along.extent {
            let columns = Dim { extent: most.min(along.extent - j), ..along };
            let source = source.wrapping_offset(i * across.from + j * along.from);
            let target = target.wrapping_offset(i * across.to + j * along.to);
            if is_transposition {
                // SAFETY: the caller guarantees the plane, of which this is a part.
                unsafe { transpose(source, target, rows, columns) };
            } else {
                let (inner, outer) =
                    if rows.extent < columns.extent { (columns, rows) } else { (rows, columns) };
                for k in 0..outer.extent {
                    let (source, target) =
                        (source.wrapping_offset(k * outer.from), target.wrapping_offset(k * outer.to));
                    // SAFETY: the caller guarantees the plane, of which this is a row.
                    unsafe { row(source, target, inner) };
                }
            }
            j += most;
        }
        i += most;
    }
}

/// Transposes a tile of at most `TILE` x `TILE` elements: reads rows of `along`, and writes rows of `across`. Unless source and target
/// are close enough together for the cache, the tile is written to a buffer first, and then each row of the target at once. Writing
/// at large strides instead would evict cache lines that are still needed.
///
/// # Safety
/// The elements of the tile must be valid in source and target.
unsafe fn transpose<T: Copy>(source: *const T, target: *mut T, across: Dim, along: Dim) {
    let reach = |extent: isize, stride: isize| extent as usize * stride.unsigned_abs() * size_of::<T>();
    if reach(across.extent, across.from).max(reach(along.extent, along.to)) <= CLOSE {
        // SAFETY: the caller guarantees the tile.
        unsafe { transpose_into(source, target, across, along) };
        return;
    }
    let mut buffer = [[MaybeUninit::<T>::uninit(); TILE]; TILE];
    let (rows, columns) = (across.extent as usize, along.extent as usize);
    // SAFETY: the caller guarantees the tile in the source; the buffer has room for it.
    unsafe {
        transpose_into(source, buffer.as_mut_ptr().cast(), across, Dim { to: TILE as isize, ..along });
    }
    for (j, row) in buffer[..columns].iter().enumerate() {
        let target = target.wrapping_offset(j as isize * along.to).cast::<u8>();
        // SAFETY: the caller guarantees the tile, of which this is a row in the target; the buffer has been filled so far.
        unsafe { core::ptr::copy_nonoverlapping(row.as_ptr().cast::<u8>(), target, rows * size_of::<T>()) };
    }
}

/// Transposes a tile in blocks: writes element `j` of row `i` of the source as element `i` of row `j` of the target.
///
/// # Safety
/// The elements of the tile must be valid in source and target.
unsafe fn transpose_into<T: Copy>(source: *const T, target: *mut T, across: Dim, along: Dim) {
    let (rows, columns) = (across.extent as usize, along.extent as usize);
    let from = |i: usize, j: usize| source.wrapping_offset(i as isize * across.from).wrapping_add(j);
    let to = |i: usize, j: usize| target.wrapping_offset(j as isize * along.to).wrapping_add(i);
    let bytes = |stride: isize| stride * size_of::<T>() as isize;
    let block = block::extent(size_of::<T>());
    let (whole_rows, whole_columns) = (rows - rows % block, columns - columns % block);
    for i in (0..whole_rows).step_by(block) {
        for j in (0..whole_columns).step_by(block) {
            // SAFETY: the caller guarantees the tile, of which this is a block.
            unsafe {
                block::transpose::<T>(from(i, j).cast(), bytes(across.from), to(i, j).cast(), bytes(along.to));
            }
        }
    }
    // What is left of the tile beside and below the blocks.
    for j in 0..columns {
        for i in if j < whole_columns { whole_rows } else { 0 }..rows {
            // SAFETY: the caller guarantees the tile, of which this is an element.
            let value = unsafe { from(i, j).read_unaligned() };
            // SAFETY: the caller guarantees the tile in the target, too.
            unsafe { to(i, j).write_unaligned(value) };
        }
    }
}

/// Square blocks that are transposed in registers of 16 bytes.
#[cfg(target_arch = "x86_64")]
mod block {
    use core::arch::x86_64::{
        __m128i, _mm_loadu_si128, _mm_setzero_si128, _mm_storeu_si128, _mm_unpackhi_epi8, _mm_unpackhi_epi16,
        _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi8, _mm_unpacklo_epi16, _mm_unpacklo_epi32,
        _mm_unpacklo_epi64,
    };

    /// Returns the number of rows and columns of a block: as many elements as a register holds.
    pub(super) const fn extent(size: usize) -> usize {
        16 / size
    }

    /// Transposes a block. The strides are in bytes.
    ///
    /// # Safety
    /// The rows of the block must be valid in source and target.
    #[target_feature(enable = "sse2")]
    pub(super) unsafe fn transpose<T>(source: *const u8, from: isize, target: *mut u8, to: isize) {
        // Interleaving each row with the one half a block below, as often as the extent can be halved, transposes the block.
        macro_rules! interleaved {
            ($extent:literal, $low:ident, $high:ident) => {{
                let zero = _mm_setzero_si128();
                let mut rows: [__m128i; $extent] = [zero; $extent];
                for (i, row) in rows.iter_mut().enumerate() {
                    // SAFETY: the caller guarantees the block, of which this is a row.
                    *row = unsafe { _mm_loadu_si128(source.wrapping_offset(i as isize * from).cast()) };
                }
                let mut extent = $extent;
                while extent > 1 {
                    let mut next = [zero; $extent];
                    for i in 0..$extent / 2 {
                        next[2 * i] = $low(rows[i], rows[i + $extent / 2]);
                        next[2 * i + 1] = $high(rows[i], rows[i + $extent / 2]);
                    }
                    rows = next;
                    extent /= 2;
                }
                for (i, row) in rows.iter().enumerate() {
                    // SAFETY: this row of the block is in the target, which the caller guarantees.
                    unsafe { _mm_storeu_si128(target.wrapping_offset(i as isize * to).cast(), *row) };
                }
            }};
        }
        match size_of::<T>() {
            1 => interleaved!(16, _mm_unpacklo_epi8, _mm_unpackhi_epi8),
            2 => interleaved!(8, _mm_unpacklo_epi16, _mm_unpackhi_epi16),
            4 => interleaved!(4, _mm_unpacklo_epi32, _mm_unpackhi_epi32),
            8 => interleaved!(2, _mm_unpacklo_epi64, _mm_unpackhi_epi64),
            // SAFETY: the block is one element.
            _ => unsafe { core::ptr::copy_nonoverlapping(source, target, size_of::<T>()) },
        }
    }
}

/// Blocks of one element, on processors whose registers are not used.
#[cfg(not(target_arch = "x86_64"))]
mod block {
    pub(super) const fn extent(_size: usize) -> usize {
        1
    }

    /// Copies an element.
    ///
    /// # Safety
    /// The element must be valid in source and target.
    pub(super) unsafe fn transpose<T>(source: *const u8, _from: isize, target: *mut u8, _to: isize) {
        // SAFETY: the caller guarantees the element.
        unsafe { core::ptr::copy_nonoverlapping(source, target, size_of::<T>()) };
    }
}

/// Copies one element of `bits` bits, which need not begin at a byte boundary.
///
/// # Safety
/// `from` and `to` must be offsets of valid elements, counted in elements from `source` and `target`.
unsafe fn move_bits(source: *const u8, from: i128, target: *mut u8, to: i128, bits: u64) {
    let (from, to) = (from * i128::from(bits), to * i128::from(bits));
    for bit in 0..i128::from(bits) {
        let (from, to) = (from + bit, to + bit);
        // SAFETY: the caller guarantees the element.
        let byte = unsafe { source.wrapping_offset(from.div_euclid(8) as isize).read() };
        let set = byte >> from.rem_euclid(8) & 1;
        let place = target.wrapping_offset(to.div_euclid(8) as isize);
        let mask = 1u8 << to.rem_euclid(8);
        // SAFETY: the caller guarantees the element of the target, part of which is in this byte.
        let old = unsafe { place.read() };
        let new = if set == 1 { old | mask } else { old & !mask };
        // SAFETY: the byte was read, and the caller guarantees that it may be written.
        unsafe { place.write(new) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves elements one by one, in row-major order.
    fn plainly(
        source: &[u8],
        target: &mut [u8],
        shape: &[i64],
        strides: [&[i64]; 2],
        starts: [i64; 2],
        bits: u64,
    ) {
        let count: i64 = shape.iter().product();
        for number in 0..count {
            let (mut left, mut at) = (number, starts);
            for dim in (0..shape.len()).rev() {
                let index = left % shape[dim];
                left /= shape[dim];
                at = [at[0] + index * strides[0][dim], at[1] + index * strides[1][dim]];
            }
            // SAFETY: the test has made both large enough.
            unsafe { move_bits(source.as_ptr(), at[0].into(), target.as_mut_ptr(), at[1].into(), bits) };
        }
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % n
        }
    }

    /// Returns strides of a layout without overlap, whose dimensions are in random order, with gaps and directions, and the range
    /// of its elements.
    fn layout(random: &mut Random, shape: &[i64], is_source: bool) -> (Vec<i64>, i64, i64) {
        let mut order: Vec<usize> = (0..shape.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        let (mut strides, mut next, mut low, mut high) =
            (vec![0; shape.len()], 1 + random.below(4) as i64 / 3, 0, 0);
        for dim in order {
            let stride = match random.below(6) {
                0 => -next,
                // A source may repeat elements.
                1 if is_source => 0,
                _ => next,
            };
            strides[dim] = stride;
            let reach = (shape[dim] - 1) * stride;
            (low, high) = (low + reach.min(0), high + reach.max(0));
            next = next * shape[dim] + if random.below(4) == 0 { 3 } else { 0 };
        }
        (strides, low, high)
    }

    #[test]
    fn all_layouts_are_moved_as_one_by_one() {
        let mut random = Random(1);
        for round in 0..3000 {
            let bits = [8, 16, 24, 32, 64, 96, 128, 160, 1, 4, 6, 12][random.below(12) as usize];
            let most = if round % 10 == 0 { 150 } else { 12 };
            let mut left = 20_000_u64;
            let shape: Vec<i64> = (0..random.below(5))
                .map(|_| {
                    let extent = 1 + random.below(most.min(left));
                    left /= extent;
                    extent as i64
                })
                .collect();
            let (from, from_low, from_high) = layout(&mut random, &shape, true);
            let (to, to_low, to_high) = layout(&mut random, &shape, false);
            // The first element begins at a byte.
            let starts = [-from_low, -to_low].map(|start| (start + 7) / 8 * 8);
            let bytes = |start: i64, high: i64| ((start + high + 1) as u64 * bits).div_ceil(8) as usize;
            let source: Vec<u8> = (0..bytes(starts[0], from_high)).map(|_| random.below(256) as u8).collect();
            // Elements of whole bytes need not be aligned.
            let mut target = vec![0xA5_u8; bytes(starts[1], to_high) + 1];
            let mut expected = target.clone();
            plainly(&source, &mut expected[1..], &shape, [&from, &to], starts, bits);
            let offsets = starts.map(|start| start as isize * bits as isize / 8);
            let begin = source.as_ptr().wrapping_offset(offsets[0]);
            let end = target[1..].as_mut_ptr().wrapping_offset(offsets[1]);
            // SAFETY: both ranges have been made for the layouts.
            unsafe { move_elements(begin, end, &shape, [&from, &to], bits) };
            assert!(target == expected, "round {round}: {bits} bits, {shape:?}, {from:?}, {to:?}");
        }
    }

    #[test]
    fn dimensions_are_merged_and_directed_along_the_target() {
        let dim = |extent, from, to| Dim { extent, from, to };
        assert_eq!(merged(&[2, 3], [&[3, 1], &[3, 1]]), (vec![dim(6, 1, 1)], 0, 0));
        assert_eq!(merged(&[2, 3], [&[-3, -1], &[-3, -1]]), (vec![dim(6, 1, 1)], -5, -5));
        assert_eq!(merged(&[2, 3], [&[1, 2], &[3, 1]]), (vec![dim(2, 1, 3), dim(3, 2, 1)], 0, 0));
        assert_eq!(merged(&[4, 3], [&[3, 1], &[0, 1]]), (vec![dim(3, 1, 1)], 9, 0));
        assert_eq!(merged(&[1, 1], [&[7, 9], &[5, 3]]), (vec![], 0, 0));
    }
}
