//! Schedules of stages that sum products over several axes, such as convolutions. One axis indexes only the
//! first factor (the "weights"), and another axis indexes only the second factor (the "image").
//!
//! A tile of results stays in registers, as for matrix products. It consists of vectors over the axis of the
//! weights, for several values of the axis of the image. The weights are packed into panels in the order of
//! use. The image is copied only if it needs padding. Each of its elements is broadcast to all lanes, so its
//! layout does not matter.

use anyfn::{Any, Ref, Result, bail};
use anyfn_ir::analysis::{is_var, uses_var};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, BufferLoad, Expr, IterKind, Var};
use anyfn_ir::kind::as_int;
use anyfn_ir::operand::Operand;
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::target::Target;
use anyfn_ir::{ExprKind, StmtKind};
use anyfn_schedule::{IndexMap, Schedule};

use crate::elementwise::share;
use crate::matmul::{User, factors, init_loop, is_plain, own_loop, position, product, result_axes, user};
use crate::stage::Stage;

/// Minimum number of products per result for which a stage is tiled.
const SHALLOW: i64 = 8;
/// Minimum trip count of the loop over the image axis for which a stage is tiled. The image axis indexes the
/// image but not the weights.
const FEWEST: i64 = 4;
/// Maximum extent of a tile along the image axis, which indexes the image but not the weights.
const MOST: i64 = 14;
/// Maximum size in bytes of weights that stay in the cache as a whole while rows of results are computed. If
/// the weights are larger, the loops are ordered so that only one panel of them has to stay in the cache.
const SMALL: i64 = 1 << 20;

/// Number of contiguous weights that the packing loop copies in succession.
const LINE: i64 = 16;

/// Sum of products with its loops, factors and tile size.
pub(crate) struct Products {
    /// Index of the loop over the image axis, which indexes the image but not the weights. `column` is the
    /// index of the loop over the weight axis, which indexes the weights but not the image. `depths` contains
    /// the indices of the loops over reduction axes, and `others` contains the indices of all other loops.
    row: usize,
    column: usize,
    depths: Vec<usize>,
    others: Vec<usize>,
    weights: Ref<Buffer>,
    /// Indices of the stage's loops over the dimensions of the buffer `weights`, one for each dimension.
    places: Vec<usize>,
    image: Ref<Buffer>,
    /// Increase of each index of the image when the image axis increases by one.
    steps: Vec<i64>,
    tile: Tile,
}

/// Size of a tile, which is a block of results that are computed together in registers.
struct Tile {
    rows: i64,
    columns: i64,
}

impl Tile {
    /// Returns the tile with the lowest estimated cost, which counts reads and operations, including
    /// operations on padding. Returns `None` if no tile is suitable.
    fn of(target: &Target, bits: u8, rows: i64, columns: i64) -> Option<Tile> {
        let lanes = (target.vector_bytes * 8 / i64::from(bits).max(1)).max(1);
        let registers = match target.vector_bytes {
            0 => return None,
            64.. => 32,
            _ if &*target.arch == "aarch64" => 32,
            _ => 16,
        };
        let up = |extent: i64, size: i64| (extent + size - 1) / size * size;
        let mut best: Option<(i64, i64, Tile)> = None;
        for vectors in 1..=4 {
            for height in 1..=rows.min(MOST) {
                let sums = vectors * height;
                if sums + vectors + 1 >= registers {
                    continue;
                }
                // Number of cycles of a step. A cycle executes two operations and two reads, and a sum can be
                // used again after four cycles.
                let cycles = sums.max(vectors + height).max(8);
                let padded = up(rows, height).saturating_mul(up(columns, vectors * lanes));
                // Copying the image has a small cost.
                let copied = if rows % height == 0 { 64 } else { 66 };
                let cost = padded.saturating_mul(cycles * 1024 / sums).saturating_mul(copied);
                if best.as_ref().is_none_or(|(known, most, _)| (cost, -sums) < (*known, -*most)) {
                    best = Some((cost, sums, Tile { rows: height, columns: vectors * lanes }));
                }
            }
        }
        let (_, _, tile) = best?;
        // Vectors that are mostly empty are slower than vectors along another axis.
        (lanes > 1 && 2 * up(columns, tile.columns) <= 3 * columns).then_some(tile)
    }
}

/// Returns true if a stage is a sum of products that is computed in register tiles.
pub(crate) fn is_product(stage: &Stage, target: &Target) -> bool {
    product(stage, target).is_some() || products(stage, target).is_some()
}

/// Returns the sum of products that a stage computes, or `None` if the stage is of another form or sums too few
/// products.
pub(crate) fn products(stage: &Stage, target: &Target) -> Option<Products> {
    let block = stage.block();
    block.init.as_ref()?;
    let StmtKind::BufferStore(store) = StmtKind::of(&block.body) else { return None };
    let dtype = store.buffer.dtype;
    if dtype.0.bits < 32 || !(dtype.is_float() || dtype.is_integer()) || !stage.has_no_condition() {
        return None;
    }
    if !stage.can_be_tiled() {
        return None;
    }
    let ExprKind::Binary(BinaryOp::Add, sum) = ExprKind::of(&store.value) else { return None };
    let (a, b) = factors(store, &sum.a, &sum.b).or_else(|| factors(store, &sum.b, &sum.a))?;
    let depths = stage.places(IterKind::Reduce);
    if stage.repetitions(depths.iter().copied()) < SHALLOW || a.buffer.data.ptr_eq(&b.buffer.data) {
        return None;
    }
    // The image axis is the last suitable one, whose elements are contiguous.
    let found = [(a, b), (b, a)].into_iter().filter_map(|(weights, image)| axes(stage, weights, image));
    let (row, column, weights, image) = found.max_by_key(|(_, column, ..)| stage.extent(*column))?;
    // The extents of a tile's axes and of the reduction axes must be known. Other extents, such as the batch
    // size, need not be known.
    if depths.iter().any(|place| stage.known_extent(*place).is_none()) {
        return None;
    }
    let tile = Tile::of(target, dtype.0.bits, stage.known_extent(row)?, stage.known_extent(column)?)?;
    let spatial = stage.places(IterKind::Spatial);
    if depths.len() + spatial.len() != stage.loops.len() {
        return None;
    }
    let others = spatial.into_iter().filter(|place| *place != row && *place != column).collect();
    let places = weights.indices.iter().map(|index| stage.place_of(&index)).collect::<Option<Vec<_>>>()?;
    let axis = stage.axis(row)?;
    let steps = image.indices.iter().map(|index| step(&index, axis).filter(|step| *step >= 0));
    let steps = steps.collect::<Option<Vec<_>>>()?;
    let (weights, image) = (weights.buffer.clone(), image.buffer.clone());
    Some(Products { row, column, depths, others, weights, places, image, steps, tile })
}

/// Returns the index of a loop over an axis that only `image` uses, the index of a loop over an
/// axis that only `weights` uses, and the two loads. Returns `None` if such loops do not exist,
/// that is, if the loads are not the weights and the image of a sum of products.
fn axes<'a>(
    stage: &Stage,
    weights: &'a BufferLoad,
    image: &'a BufferLoad,
) -> Option<(usize, usize, &'a BufferLoad, &'a BufferLoad)> {
    if !is_plain(weights, stage) {
        return None;
    }
    let in_image = |place: usize| {
        stage.axis(place).is_some_and(|axis| image.indices.iter().any(|index| uses_var(&index, axis)))
    };
    let spatial = stage.places(IterKind::Spatial);
    let own = |place: &usize| position(weights, stage, *place).is_some();
    let column = spatial.iter().copied().filter(|place| own(place) && !in_image(*place));
    let column = column.max_by_key(|place| stage.extent(*place))?;
    let rows = spatial.iter().copied().filter(|place| !own(place) && in_image(*place));
    let row = rows.rev().find(|place| stage.extent(*place) >= FEWEST)?;
    Some((row, column, weights, image))
}

/// Returns the amount by which an expression increases when a variable increases by one, or `None`
/// if this amount is not a known constant.
fn step(expr: &Expr, var: &Ref<Var>) -> Option<i64> {
    if is_var(expr, var) {
        return Some(1);
    }
    match ExprKind::of(expr) {
        _ if !uses_var(expr, var) => Some(0),
        ExprKind::Binary(BinaryOp::Add, node) => step(&node.a, var)?.checked_add(step(&node.b, var)?),
        ExprKind::Binary(BinaryOp::Sub, node) => step(&node.a, var)?.checked_sub(step(&node.b, var)?),
        ExprKind::Binary(BinaryOp::Mul, node) => match (as_int(&node.a), as_int(&node.b)) {
            (Some(factor), _) => step(&node.b, var)?.checked_mul(factor),
            (_, Some(factor)) => step(&node.a, var)?.checked_mul(factor),
            _ => None,
        },
        _ => None,
    }
}

/// Schedules a sum of products: computes tiles in registers, packs the weights, and uses the results tile by
/// tile.
pub(crate) fn schedule(schedule: &Schedule, stage: &Stage, products: &Products, is_large: bool) -> Result<()> {
    let name = &stage.name;
    let tile = &products.tile;
    let user = match user(schedule, stage)? {
        Some(user) => user,
        None => {
            let copy = schedule.cache_write(name, Any::new(0)?, "local")?.to_string();
            User { name: copy, places: result_axes(stage)? }
        }
    };
    // The vectors of a tile run over the weight axis. If the results have another layout, they are transposed
    // at the end.
    let moved = across(schedule, stage, products)?
        .then(|| schedule.cache_write(name, Any::new(0)?, "local"))
        .transpose()?;
    let weights = pack(schedule, stage, products)?;
    let image = make_room(schedule, stage, products)?;
    let mut multiples = vec![None; stage.block().iter_vars.len()];
    for (place, size) in [(products.row, tile.rows), (products.column, tile.columns)] {
        if let (Some(axis), false) = (stage.axis_number(place), stage.extent(place) % size == 0) {
            multiples[axis] = Some(size);
        }
    }
    if multiples.iter().any(Option::is_some) {
        schedule.pad_axes(name, multiples)?;
    }
    if let Some(moved) = &moved {
        let count = schedule.place(moved)?.block().iter_vars.len();
        let mut multiples = vec![None; count];
        multiples[count - 2] = Some(tile.rows);
        multiples[count - 1] = Some(tile.columns);
        schedule.pad_axes(moved, multiples)?;
    }

    let loops = schedule.get_loops(&user.name)?;
    let at = |place: usize| -> Result<Ref<Var>> {
        match user.places.iter().position(|known| *known == place) {
            Some(place) => Ok(loops[place].clone()),
            None => bail!("InternalError", "no loop found for an axis of the result"),
        }
    };
    let rows = schedule.split(at(products.row)?, vec![None, Some(tile.rows)])?;
    let columns = schedule.split(at(products.column)?, vec![None, Some(tile.columns)])?;
    let mut outer: Vec<Ref<Var>> = products.others.iter().map(|place| at(*place)).collect::<Result<_>>()?;
    // Either all weights stay in the cache, or one panel of them.
    let bytes = i64::from(products.weights.dtype.0.bits / 8);
    if stage.repetitions(products.places.iter().copied()).saturating_mul(bytes) <= SMALL {
        outer.extend([rows[0].clone(), columns[0].clone()]);
    } else {
        outer.insert(0, columns[0].clone());
        outer.push(rows[0].clone());
    }
    let inner = match &moved {
        Some(_) => [columns[1].clone(), rows[1].clone()],
        None => [rows[1].clone(), columns[1].clone()],
    };
    schedule.reorder(outer.iter().chain(&inner).cloned().collect())?;
    let place = outer[outer.len() - 1].clone();

    if let Some(moved) = &moved {
        schedule.compute_at(moved, place.clone())?;
        let loops = schedule.get_loops(moved)?;
        schedule.vectorize(loops[loops.len() - 1].clone())?;
        if tile.rows > 1 {
            schedule.unroll(loops[loops.len() - 2].clone())?;
        }
    } else {
        schedule.vectorize(columns[1].clone())?;
        if stage.extent(products.row) % tile.rows == 0 && stage.extent(products.column) % tile.columns == 0 {
            schedule.unroll(rows[1].clone())?;
        }
    }
    schedule.compute_at(name, place)?;
    schedule.get_loops(name)?;
    let depths: Vec<_> =
        products.depths.iter().map(|place| own_loop(schedule, stage, name, *place)).collect::<Result<_>>()?;
    let row = own_loop(schedule, stage, name, products.row)?;
    let column = own_loop(schedule, stage, name, products.column)?;
    let order: Vec<_> = depths.iter().chain([&row, &column]).map(|node| node.loop_var.clone()).collect();
    schedule.reorder(order)?;
    let init = schedule.decompose_reduction(name, depths[0].loop_var.clone())?;
    schedule.get_loops(&init)?;
    let order = [products.row, products.column].map(|place| own_loop(schedule, stage, &init, place));
    let order: Vec<_> =
        order.into_iter().map(|node| node.map(|node| node.loop_var.clone())).collect::<Result<_>>()?;
    schedule.reorder(order)?;
    let (init_row, init_column) = (init_loop(schedule, &init, 1)?, init_loop(schedule, &init, 0)?);
    for (row, column) in [(row, column), (init_row, init_column)] {
        schedule.vectorize(column.loop_var.clone())?;
        schedule.unroll(row.loop_var.clone())?;
    }

    arrange(schedule, stage, products, &weights)?;
    if let Some(image) = &image
        && let Some(last) = schedule.get_loops(image)?.last()
    {
        schedule.vectorize(last.clone())?;
    }
    if is_large {
        for copy in [Some(weights), image].into_iter().flatten() {
            if let Some(first) = schedule.get_loops(&copy)?.first() {
                schedule.parallel(first.clone())?;
            }
        }
    }
    if is_large {
        outer.pop();
        share(schedule, outer)?;
    }
    Ok(())
}

/// Changes the layout of a stage's results so that the axes of a tile become the last dimensions. Returns
/// false if the layout already has this form.
fn across(schedule: &Schedule, stage: &Stage, products: &Products) -> Result<bool> {
    let axes = result_axes(stage)?;
    let last = [products.row, products.column];
    let mut order: Vec<usize> = (0..axes.len()).filter(|dim| !last.contains(&axes[*dim])).collect();
    order.extend(last.iter().filter_map(|place| axes.iter().position(|known| known == place)));
    if order.iter().enumerate().all(|(place, dim)| place == *dim) {
        return Ok(false);
    }
    let found = schedule.place(&stage.name)?;
    let buffer = found.realize.block.writes.get(0)?.buffer.clone();
    let dtypes: Vec<_> = buffer.shape.iter().map(|extent| extent.dtype).collect();
    let map = IndexMap::from_fn(&dtypes, |given| order.iter().map(|dim| given.get(*dim)).collect())?;
    schedule.transform_layout(&stage.name, Any::new(0)?, Any::new(Ref::new(map))?, None)?;
    Ok(true)
}

/// Adds a stage that copies the weights into panels, in the order in which tiles read them. For each step of the
/// reduction, a panel contains the weights that one tile needs. Returns the name of the stage.
fn pack(schedule: &Schedule, stage: &Stage, products: &Products) -> Result<String> {
    let copy = copy_of(schedule, &stage.name, &products.weights)?;
    let places = &products.places;
    let (Some(own), width) = (places.iter().position(|place| *place == products.column), products.tile.columns)
    else {
        bail!("InternalError", "the column axis does not index the weights");
    };
    let dtypes: Vec<_> = products.weights.shape.iter().map(|extent| extent.dtype).collect();
    let map = IndexMap::from_fn(&dtypes, |given| {
        let index = given.get(own)?;
        let width = ops::int(width, index.dtype)?;
        let mut new: Vec<Expr> = Vec::new();
        for (dim, place) in places.iter().enumerate() {
            if dim == own {
                new.push(ops::floor_div(index.clone(), width.clone())?);
            } else if !products.depths.contains(place) {
                new.push(given.get(dim)?);
            }
        }
        for depth in &products.depths {
            if let Some(dim) = places.iter().position(|place| place == depth) {
                new.push(given.get(dim)?);
            }
        }
        new.push(ops::floor_mod(index, width)?);
        Ok(new.into_iter().collect())
    })?;
    let pad = ops::number(0, products.weights.dtype)?;
    schedule.transform_layout(&copy, Any::new(0)?, Any::new(Ref::new(map))?, Some(Operand(pad)))?;
    Ok(copy)
}

/// Orders the loops of the block `copy`, which copies the weights, so that contiguous weights are read in the
/// innermost loops.
fn arrange(schedule: &Schedule, stage: &Stage, products: &Products, copy: &str) -> Result<()> {
    let mut loops = schedule.get_loops(copy)?;
    let Some(own) = loops.pop() else { return Ok(()) };
    if products.places.last() == Some(&products.column) {
        return schedule.vectorize(own);
    }
    // As many as fill a few cache lines. The loops over a panel are in the order of the reduction.
    let mut inside = Vec::new();
    let mut count = 1i64;
    for depth in products.depths.iter().rev().filter(|depth| products.places.contains(depth)) {
        let (Some(node), true) = (loops.pop(), count < LINE) else { break };
        let extent = stage.extent(*depth);
        if extent > 2 * LINE {
            inside.insert(0, schedule.split(node, vec![None, Some(LINE)])?[1].clone());
            break;
        }
        inside.insert(0, node);
        count = count.saturating_mul(extent);
    }
    inside.insert(0, own);
    schedule.reorder(inside)
}

/// Adds a stage that copies the image (the factor that is not the weights) into a buffer with padding, so
/// that the last tile does not read out of bounds. Returns the name of the stage, or `None` if the extent of
/// the image axis is a multiple of the tile size.
fn make_room(schedule: &Schedule, stage: &Stage, products: &Products) -> Result<Option<String>> {
    let (extent, rows) = (stage.extent(products.row), products.tile.rows);
    let more = (rows - extent % rows) % rows;
    if more == 0 {
        return Ok(None);
    }
    let copy = copy_of(schedule, &stage.name, &products.image)?;
    let dtypes: Vec<_> = products.image.shape.iter().map(|extent| extent.dtype).collect();
    let map = IndexMap::from_fn(&dtypes, |given| {
        let mut new: Vec<Expr> = Vec::new();
        for ((index, extent), step) in given.iter().zip(products.image.shape.iter()).zip(&products.steps) {
            match as_int(&extent) {
                Some(extent) if *step != 0 => {
                    let room = ops::int(extent.saturating_add(step.saturating_mul(more)), index.dtype)?;
                    new.push(ops::floor_div(index.clone(), room.clone())?);
                    new.push(ops::floor_mod(index, room)?);
                }
                _ => new.push(index),
            }
        }
        Ok(new.into_iter().collect())
    })?;
    let pad = ops::number(0, products.image.dtype)?;
    schedule.transform_layout(&copy, Any::new(0)?, Any::new(Ref::new(map))?, Some(Operand(pad)))?;
    Ok(Some(copy))
}

/// Adds a block that copies a buffer which the block `name` reads. Returns the name of the new block.
fn copy_of(schedule: &Schedule, name: &str, buffer: &Ref<Buffer>) -> Result<String> {
    let block = schedule.place(name)?.block().clone();
    let number = block.reads.iter().position(|region| region.buffer.ptr_eq(buffer));
    let Some(number) = number else {
        bail!("InternalError", "block `{name}` does not read a factor of the product")
    };
    Ok(schedule.cache_read(name, Any::new(number as i64)?, "global")?.to_string())
}
