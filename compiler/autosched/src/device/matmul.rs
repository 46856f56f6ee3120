//! Schedules of matrix products for devices. A block of threads computes a tile of the result. It reads the parts of the
//! factors that the tile needs to shared memory, step by step, and each thread sums its elements of the tile in registers.

use anyfn::{Any, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BufferLoad, Var};
use anyfn_ir::kind::is_int;
use anyfn_ir::target::Target;
use anyfn_schedule::Schedule;

use crate::device::fused;
use crate::matmul::{Parts, own_loop, parts, position, result_axes, user};
use crate::stage::Stage;

/// Matrix product with its loops, factors and tile size.
pub(crate) struct Product {
    row: usize,
    column: usize,
    depth: usize,
    /// Indices of the loops over axes that are neither rows nor columns, such as the number of a matrix.
    others: Vec<usize>,
    factors: [Factor; 2],
    tile: Tile,
}

/// Factor of a matrix product.
struct Factor {
    buffer: Ref<Buffer>,
    /// True if the dimension of the reduction axis comes before that of rows or columns.
    is_depth_first: bool,
}

/// Tile of the result that a block of threads computes.
#[derive(Clone, Copy)]
struct Tile {
    /// Number of rows and columns.
    size: i64,
    /// Number of threads along each of them.
    threads: i64,
    /// Number of terms that are read at a time.
    depth: i64,
}

/// Tile sizes, the preferred one first. A thread computes 4 x 4 elements.
const TILES: [Tile; 2] = [Tile { size: 64, threads: 16, depth: 16 }, Tile { size: 32, threads: 8, depth: 16 }];

impl Tile {
    /// Returns the tile size for a product of the given extents, or `None` if the target has too few threads or too little
    /// memory, or if the product is too small.
    fn of(target: &Target, bytes: i64, rows: i64, columns: i64) -> Option<Tile> {
        TILES.into_iter().find(|tile| {
            tile.threads * tile.threads <= target.max_threads
                && 2 * tile.size * tile.depth * bytes <= target.local_memory
                && 2 * rows >= tile.size
                && 2 * columns >= tile.size
        })
    }
}

/// Returns the matrix product that a stage computes, or `None` if the stage is no matrix product, if its extents are not
/// known, or if it is too small for tiles.
pub(crate) fn product(stage: &Stage, target: &Target) -> Option<Product> {
    let Parts { row, column, depth, others, left, right, .. } = parts(stage)?;
    let all_known = (0..stage.loops.len()).all(|place| stage.known_extent(place).is_some());
    if !all_known || others.len() + 3 != stage.loops.len() {
        return None;
    }
    let bytes = i64::from(left.buffer.dtype.0.bits.max(right.buffer.dtype.0.bits).div_ceil(8));
    let tile = Tile::of(target, bytes, stage.extent(row), stage.extent(column))?;
    let factor = |load: &BufferLoad, own: usize| Factor {
        buffer: load.buffer.clone(),
        is_depth_first: position(load, stage, depth) < position(load, stage, own),
    };
    let factors = [factor(left, row), factor(right, column)];
    Some(Product { row, column, depth, others, factors, tile })
}

/// Schedules a matrix product.
pub(crate) fn schedule(schedule: &Schedule, stage: &Stage, product: &Product) -> Result<()> {
    let (name, tile) = (&stage.name, product.tile);
    let user = user(schedule, stage)?;
    let result = schedule.cache_write(name, Any::new(0)?, "local")?.to_string();
    // A stage that uses each result once is computed where the results are stored.
    if let Some(user) = user {
        drop(schedule.reverse_compute_inline(&user.name));
    }
    let shared = [
        copy_of(schedule, name, &product.factors[0].buffer)?,
        copy_of(schedule, name, &product.factors[1].buffer)?,
    ];
    let axes = result_axes(stage)?;
    let loops = schedule.get_loops(&result)?;
    let at = |place: usize| -> Result<Ref<Var>> {
        match axes.iter().position(|known| *known == place).and_then(|dim| loops.get(dim)) {
            Some(var) => Ok(var.clone()),
            None => bail!("InternalError", "no loop found for an axis of the result"),
        }
    };
    let divided = |var: Ref<Var>| -> Result<[Ref<Var>; 3]> {
        let outer = schedule.split(var, vec![None, Some(tile.size)])?;
        let inner = schedule.split(outer[1].clone(), vec![Some(tile.threads), None])?;
        Ok([outer[0].clone(), inner[0].clone(), inner[1].clone()])
    };
    let others: Vec<Ref<Var>> = product.others.iter().map(|place| at(*place)).collect::<Result<_>>()?;
    let [block_y, thread_y, own_y] = divided(at(product.row)?)?;
    let [block_x, thread_x, own_x] = divided(at(product.column)?)?;
    let order = [&block_y, &block_x, &thread_y, &thread_x, &own_y, &own_x];
    schedule.reorder(others.iter().chain(order).cloned().collect())?;
    if let Some(outer) = fused(schedule, others)? {
        schedule.bind(outer, "blockIdx.z")?;
    }
    for (var, axis) in [
        (&block_y, "blockIdx.y"),
        (&block_x, "blockIdx.x"),
        (&thread_y, "threadIdx.y"),
        (&thread_x, "threadIdx.x"),
    ] {
        schedule.bind(var.clone(), axis)?;
    }

    schedule.compute_at(name, block_x)?;
    schedule.get_loops(name)?;
    let own = |place: usize| own_loop(schedule, stage, name, place).map(|node| node.loop_var.clone());
    let depth = schedule.split(own(product.depth)?, vec![None, Some(tile.depth)])?;
    // Each thread has the same elements here and where the results are stored, even if the extents are below the tile size.
    let each = tile.size / tile.threads;
    let rows = schedule.split(own(product.row)?, vec![Some(tile.threads), Some(each)])?;
    let columns = schedule.split(own(product.column)?, vec![Some(tile.threads), Some(each)])?;
    let order = [&depth[0], &rows[0], &columns[0], &depth[1], &rows[1], &columns[1]];
    schedule.reorder(order.into_iter().cloned().collect())?;
    for (copy, factor) in shared.iter().zip(&product.factors) {
        schedule.compute_at(copy, depth[0].clone())?;
        let extents = if factor.is_depth_first { [tile.depth, tile.size] } else { [tile.size, tile.depth] };
        read_together(schedule, copy, &depth[0], extents, tile.threads)?;
    }
    schedule.bind(rows[0].clone(), "threadIdx.y")?;
    schedule.bind(columns[0].clone(), "threadIdx.x")?;
    schedule.decompose_reduction(name, depth[0].clone()).map(drop)
}

/// Distributes the loops of a block that copies a part of a factor over the threads of the block. Neighbouring threads
/// read neighbouring elements. `extents` are those of a whole tile, which the part may be smaller than.
fn read_together(
    schedule: &Schedule,
    copy: &str,
    outer: &Ref<Var>,
    extents: [i64; 2],
    threads: i64,
) -> Result<()> {
    let vars = schedule.get_loops(copy)?;
    let found = schedule.place(copy)?;
    let inside = found.loops.iter().zip(&vars).skip_while(|(node, _)| !node.loop_var.ptr_eq(outer)).skip(1);
    let own: Vec<Ref<Var>> =
        inside.filter(|(node, _)| !is_int(&node.extent, 1)).map(|(_, var)| var.clone()).collect();
    let [.., first, second] = &own[..] else { bail!("InternalError", "block `{copy}` has too few loops") };
    let rows = schedule.split(first.clone(), vec![Some(extents[0] / threads), Some(threads)])?;
    let columns = schedule.split(second.clone(), vec![Some(extents[1] / threads), Some(threads)])?;
    schedule.reorder(vec![rows[1].clone(), columns[1].clone(), rows[0].clone(), columns[0].clone()])?;
    schedule.bind(rows[1].clone(), "threadIdx.y")?;
    schedule.bind(columns[1].clone(), "threadIdx.x")
}

/// Adds a block that copies a factor to shared memory. Returns the name of the new block.
fn copy_of(schedule: &Schedule, name: &str, buffer: &Ref<Buffer>) -> Result<String> {
    let block = schedule.place(name)?.block().clone();
    let number = block.reads.iter().position(|region| region.buffer.ptr_eq(buffer));
    let Some(number) = number else {
        bail!("InternalError", "block `{name}` does not read a factor of the product")
    };
    Ok(schedule.cache_read(name, Any::new(number as i64)?, "shared")?.to_string())
}
