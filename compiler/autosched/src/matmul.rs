//! Schedules of matrix products: stages that sum products of elements of two factors over one axis. Each
//! other axis indexes one of the factors or both.
//!
//! The results are computed in tiles that stay in registers. The factors are read from memory in which their
//! elements are contiguous in the order of use; a factor with another layout is copied first. The stage that
//! uses the results is also computed tile by tile.

use anyfn::{Any, DType, Ref, Result, bail};
use anyfn_ir::analysis::uses_var;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, BufferLoad, Expr, IterKind, Var};
use anyfn_ir::kind::as_int;
use anyfn_ir::operand::Operand;
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::stmt::{BufferStore, For};
use anyfn_ir::target::Target;
use anyfn_ir::{ExprKind, StmtKind, make};
use anyfn_schedule::{IndexMap, Schedule};

use crate::elementwise::share;
use crate::stage::{Stage, loads_of, stages};

/// Minimum trip count of the reduction loop of a matrix product that is tiled.
const SHALLOW: i64 = 8;
/// Minimum number of column tiles of a matrix product for which the loop over column tiles becomes the
/// outermost one. The elements of the right factor for one column tile then stay in the cache.
const MANY: i64 = 8;

/// Size in bytes above which the left factor of a matrix product is divided into parts of equal size, if such
/// parts exist. `PART` is the maximum size in bytes of a part.
const LARGE: i64 = 6 << 20;
const PART: i64 = 1 << 20;
/// Number of parts of a left factor that suffices to occupy all threads evenly. If there are fewer parts,
/// their number should be a multiple of four.
const PARTS: i64 = 16;

/// Matrix product with its loops, factors and tile size.
pub(crate) struct Product {
    /// Index, among the loops of the stage, of the loop over rows of the left factor. `column` is the index
    /// of the loop over columns of the right factor, and `depth` is the index of the loop over the reduction
    /// axis. `others` contains the indices of all other loops.
    row: usize,
    column: usize,
    depth: usize,
    others: Vec<usize>,
    left: Factor,
    right: Factor,
    tile: Tile,
}

/// Factor of a matrix product. `own` is the dimension of the axis that only this factor has, and `depth` is
/// the dimension of the reduction axis.
struct Factor {
    buffer: Ref<Buffer>,
    own: usize,
    depth: usize,
    /// Size of a tile along the dimension `own`. After packing, this number of elements along that dimension
    /// is contiguous.
    width: i64,
}

impl Factor {
    /// Returns true if the factor's elements along the reduction axis are contiguous in memory.
    fn is_along(&self) -> bool {
        self.depth + 1 == self.buffer.shape.len() && self.buffer.strides.is_empty()
    }
}

/// Size of a tile, which is a block of results that are computed together in registers.
struct Tile {
    rows: i64,
    columns: i64,
}

impl Tile {
    /// Returns a tile whose results fit into registers, together with the parts of the factors that
    /// the results require. Of these tiles, one that needs little padding is preferred, and then
    /// the largest. Returns `None` if the vectors of the target have no more than one lane.
    fn of(target: &Target, bits: u8, rows: i64, columns: i64) -> Option<Tile> {
        let lanes = (target.vector_bytes * 8 / i64::from(bits).max(1)).max(1);
        let (most, wide) = match target.vector_bytes {
            0 => return None,
            64.. => (6, 4),
            _ if &*target.arch == "aarch64" => (8, 2),
            32 => (6, 2),
            _ => (4, 2),
        };
        // Number of rows or columns that padding to a tile size adds, if it is more than 1/40 of the extent.
        let added =
            |extent: i64, size: i64| Some((size - extent % size) % size).filter(|more| 40 * more > extent);
        let vectors = (wide / 2 + 1..=wide)
            .rev()
            .filter(|vectors| vectors * lanes <= columns)
            .min_by_key(|vectors| added(columns, vectors * lanes))
            .unwrap_or((columns / lanes).clamp(1, 2));
        // Narrow tiles leave registers free for more rows.
        let most = if wide > 2 { (most * wide / vectors).min(2 * most) } else { most };
        let height = (most * 2 / 3..=most).rev().min_by_key(|height| added(rows, *height))?;
        (lanes > 1).then_some(Tile { rows: height.min(rows), columns: vectors * lanes })
    }
}

impl Product {
    /// Returns the size, in row tiles, of the parts into which the left factor is divided so that a
    /// part stays in the cache. Returns `None` if the factor is not divided. All parts have the
    /// same size and, if possible, can be distributed evenly over threads.
    fn part(&self, stage: &Stage, is_large: bool) -> Option<i64> {
        let bits = i64::from(self.left.buffer.dtype.0.bits);
        let panel = (self.tile.rows * stage.extent(self.depth) * bits / 8).max(1);
        let (rows, _) = (stage.known_extent(self.row)?, stage.known_extent(self.depth)?);
        let panels = rows / self.tile.rows + i64::from(rows % self.tile.rows != 0);
        if panels.saturating_mul(panel) <= LARGE || !self.others.is_empty() {
            return None;
        }
        let most = (PART / panel).max(1);
        let parts = (1..=most).rev().filter(|part| panels % part == 0 && 4 * part > most);
        let (even, any): (Vec<i64>, Vec<i64>) = parts.partition(|part| {
            let count = panels / part;
            !is_large || count % 4 == 0 || count >= PARTS
        });
        even.first().or(any.first()).copied()
    }
}

/// The loops and factors of a stage that computes a matrix product.
pub(crate) struct Parts<'a> {
    /// Indices of loops, as in [`Product`].
    pub(crate) row: usize,
    pub(crate) column: usize,
    pub(crate) depth: usize,
    pub(crate) others: Vec<usize>,
    pub(crate) left: &'a BufferLoad,
    pub(crate) right: &'a BufferLoad,
    /// Data type of the results.
    pub(crate) dtype: DType,
}

/// Returns the loops and factors of the matrix product that a stage computes, or `None` if the stage is not a matrix
/// product that can be tiled, or if its sums have too few terms.
pub(crate) fn parts(stage: &Stage) -> Option<Parts<'_>> {
    let block = stage.block();
    block.init.as_ref()?;
    let StmtKind::BufferStore(store) = StmtKind::of(&block.body) else { return None };
    let dtype = store.buffer.dtype;
    if !(dtype.is_float() || dtype.is_integer()) || !stage.has_no_condition() || !stage.can_be_tiled() {
        return None;
    }
    let ExprKind::Binary(BinaryOp::Add, sum) = ExprKind::of(&store.value) else { return None };
    let (left, right) = factors(store, &sum.a, &sum.b).or_else(|| factors(store, &sum.b, &sum.a))?;
    let [depth] = stage.places(IterKind::Reduce)[..] else { return None };
    let column = stage.place_of(&store.indices.last().ok()?)?;
    // The right factor is the one that has the last axis of the result.
    let has = |factor: &BufferLoad, place: usize| position(factor, stage, place).is_some();
    let (left, right) = if has(right, column) { (left, right) } else { (right, left) };
    if left.buffer.data.ptr_eq(&right.buffer.data) || !is_plain(left, stage) || !is_plain(right, stage) {
        return None;
    }
    let spatial = stage.places(IterKind::Spatial);
    let row = spatial.iter().copied().rev().find(|place| has(left, *place) && !has(right, *place))?;
    if has(left, column) || !has(right, column) || !has(left, depth) || !has(right, depth) {
        return None;
    }
    let others = spatial.iter().copied().filter(|place| *place != row && *place != column).collect();
    (stage.extent(depth) >= SHALLOW).then_some(Parts { row, column, depth, others, left, right, dtype })
}

/// Returns the matrix product that a stage computes, or `None` if the stage is not a matrix product or is too small for
/// tiles.
pub(crate) fn product(stage: &Stage, target: &Target) -> Option<Product> {
    let Parts { row, column, depth, others, left, right, dtype } = parts(stage)?;
    if dtype.0.bits < 32 {
        return None;
    }
    let tile = Tile::of(target, dtype.0.bits, stage.extent(row), stage.extent(column))?;
    if stage.extent(row) < 2 || 2 * stage.extent(column) < tile.columns {
        return None;
    }
    let factor = |load: &BufferLoad, place: usize, width: i64| -> Option<Factor> {
        let (own, depth) = (position(load, stage, place)?, position(load, stage, depth)?);
        Some(Factor { buffer: load.buffer.clone(), own, depth, width })
    };
    let left = factor(left, row, tile.rows)?;
    let right = factor(right, column, tile.columns)?;
    Some(Product { row, column, depth, others, left, right, tile })
}

/// Returns the loads `a` and `b` of an update `so_far + a * b`. `value` must be the product `a * b`, and
/// `so_far` must load the element to which `store` writes. Otherwise, returns `None`.
pub(crate) fn factors<'a>(
    store: &BufferStore,
    so_far: &Expr,
    value: &'a Expr,
) -> Option<(&'a BufferLoad, &'a BufferLoad)> {
    let ExprKind::BufferLoad(load) = ExprKind::of(so_far) else { return None };
    let is_own = load.buffer.ptr_eq(&store.buffer)
        && load.indices.iter().zip(store.indices.iter()).all(|(a, b)| make::is_equal(&a, &b));
    let ExprKind::Binary(BinaryOp::Mul, product) = ExprKind::of(value) else { return None };
    if is_own { Some((element(&product.a)?, element(&product.b)?)) } else { None }
}

/// Returns the load if an expression is a load, or a load that is converted to another data type.
/// Otherwise, returns `None`.
fn element(expr: &Expr) -> Option<&BufferLoad> {
    match ExprKind::of(expr) {
        ExprKind::BufferLoad(node) => Some(node),
        ExprKind::Cast(node) => element(&node.value),
        _ => None,
    }
}

/// Returns the first dimension in which the index of a load is the axis of the loop with index `place`.
/// Returns `None` if no such dimension exists.
pub(crate) fn position(load: &BufferLoad, stage: &Stage, place: usize) -> Option<usize> {
    load.indices.iter().position(|index| stage.place_of(&index) == Some(place))
}

/// Returns true if the indices of a load are distinct axes.
pub(crate) fn is_plain(load: &BufferLoad, stage: &Stage) -> bool {
    let mut places: Vec<_> = load.indices.iter().map(|index| stage.place_of(&index)).collect();
    places.sort_unstable();
    let count = places.len();
    places.dedup();
    places.len() == count && places.iter().all(Option::is_some)
}

/// Schedules a matrix product: computes tiles in registers, packs the factors, and uses the results tile by
/// tile.
pub(crate) fn schedule(schedule: &Schedule, stage: &Stage, product: &Product, is_large: bool) -> Result<()> {
    let name = &stage.name;
    let extent = |place: usize| stage.extent(place);
    let tile = &product.tile;
    // Destination of the results: the stage that uses them, or a copy.
    let user = match user(schedule, stage)? {
        Some(user) => user,
        None => {
            let copy = schedule.cache_write(name, Any::new(0)?, "local")?.to_string();
            let axes = result_axes(stage)?;
            User { name: copy, places: axes }
        }
    };
    let is_even = |place: usize, size: i64| stage.known_extent(place).is_some_and(|extent| extent % size == 0);
    let is_even_row = is_even(product.row, tile.rows);
    let is_even_column = is_even(product.column, tile.columns);
    // Packing the right factor is not profitable for few rows. Packing the left factor is not profitable for
    // few columns, or if its rows are read contiguously. Uneven extents require packing, however, because
    // packed factors consist of whole panels.
    let right = (extent(product.row) >= 2 * tile.rows || !is_even_column)
        .then(|| pack(schedule, name, &product.right))
        .transpose()?;
    let left = (!product.left.is_along() && (extent(product.column) >= 2 * tile.columns || !is_even_row))
        .then(|| pack(schedule, name, &product.left))
        .transpose()?;
    let mut multiples = vec![None; stage.block().iter_vars.len()];
    for (place, size, is_even) in
        [(product.row, tile.rows, is_even_row), (product.column, tile.columns, is_even_column)]
    {
        if let (Some(axis), false) = (stage.axis_number(place), is_even) {
            multiples[axis] = Some(size);
        }
    }
    if multiples.iter().any(Option::is_some) {
        schedule.pad_axes(name, multiples)?;
    }

    let loops = schedule.get_loops(&user.name)?;
    let at = |place: usize| -> Result<Ref<Var>> {
        match user.places.iter().position(|known| *known == place) {
            Some(place) => Ok(loops[place].clone()),
            None => bail!("InternalError", "no loop found for an axis of the result"),
        }
    };
    let part = left.as_ref().and_then(|_| product.part(stage, is_large));
    let mut rows = match part {
        Some(part) => schedule.split(at(product.row)?, vec![None, Some(part), Some(tile.rows)])?,
        None => schedule.split(at(product.row)?, vec![None, Some(tile.rows)])?,
    };
    let columns = schedule.split(at(product.column)?, vec![None, Some(tile.columns)])?;
    let others: Vec<Ref<Var>> = product.others.iter().map(|place| at(*place)).collect::<Result<_>>()?;
    let columns_outside =
        extent(product.column) >= MANY * tile.columns || extent(product.column) >= extent(product.row);
    // The outermost loop runs over the parts of a large left factor, each of which stays in the cache. It
    // contains the loop over tiles of columns or of rows.
    let part = part.map(|_| rows.remove(0));
    let (outer, inner) =
        if columns_outside || part.is_some() { (&columns[0], &rows[0]) } else { (&rows[0], &columns[0]) };
    let order: Vec<_> =
        others.iter().chain(&part).chain([outer, inner, &rows[1], &columns[1]]).cloned().collect();
    schedule.reorder(order)?;

    // A tile accumulates its sums in registers.
    schedule.compute_at(name, inner.clone())?;
    schedule.get_loops(name)?;
    let depth = own_loop(schedule, stage, name, product.depth)?;
    let row = own_loop(schedule, stage, name, product.row)?;
    let column = own_loop(schedule, stage, name, product.column)?;
    let order: Vec<_> = [&depth, &row, &column].iter().map(|node| node.loop_var.clone()).collect();
    schedule.reorder(order)?;
    let init = schedule.decompose_reduction(name, depth.loop_var.clone())?;
    schedule.get_loops(&init)?;
    let before = (init_loop(schedule, &init, 1)?, init_loop(schedule, &init, 0)?);
    for (row, column) in [(row, column), before] {
        schedule.vectorize(column.loop_var.clone())?;
        if as_int(&row.extent).is_some() {
            schedule.unroll(row.loop_var.clone())?;
        }
    }
    schedule.vectorize(columns[1].clone())?;
    schedule.unroll(rows[1].clone())?;

    // The factor that all tiles of a part, of a column or of a row reuse is packed when it is needed. The
    // other factor is packed in advance.
    let (near, far, at) = match &part {
        Some(part) => (left, right, part),
        None if columns_outside => (right, left, outer),
        None => (left, right, outer),
    };
    if let Some(near) = near {
        schedule.compute_at(&near, at.clone())?;
        vectors(schedule, &near)?;
    }
    if let Some(far) = far {
        let loops = vectors(schedule, &far)?;
        if is_large && let Some(first) = loops.first() {
            schedule.parallel(first.clone())?;
        }
    }
    if is_large {
        let shared: Vec<_> = others.iter().chain([at]).cloned().collect();
        share(schedule, shared)?;
    }
    Ok(())
}

/// Stage that uses the results of a product. It is either a stage that reads each result once, in
/// loops over the same axes, or a new stage that copies the results.
pub(crate) struct User {
    pub(crate) name: String,
    /// For each loop of the stage that uses the matrix product, the index of the product's loop over the same
    /// dimension of the result.
    pub(crate) places: Vec<usize>,
}

/// Returns the indices of the loops over the dimensions of a stage's result, one for each dimension.
pub(crate) fn result_axes(stage: &Stage) -> Result<Vec<usize>> {
    let StmtKind::BufferStore(store) = StmtKind::of(&stage.block().body) else { return Ok(Vec::new()) };
    let places = store.indices.iter().map(|index| stage.place_of(&index));
    match places.collect::<Option<Vec<_>>>() {
        Some(places) => Ok(places),
        None => bail!("ValueError", "the indices of the result are not its axes alone"),
    }
}

pub(crate) fn user(schedule: &Schedule, stage: &Stage) -> Result<Option<User>> {
    let StmtKind::BufferStore(store) = StmtKind::of(&stage.block().body) else { return Ok(None) };
    let func = schedule.func()?;
    if func.buffer_map.iter().any(|(_, buffer)| buffer.data.ptr_eq(&store.buffer.data)) {
        return Ok(None);
    }
    let own = result_axes(stage)?;
    let all = stages(schedule)?;
    let reads = |other: &&Stage| other.name != stage.name && !other.loads_of(&store.buffer).is_empty();
    let mut users = all.iter().filter(reads);
    let (Some(user), None) = (users.next(), users.next()) else { return Ok(None) };
    let reads = loads_of(&func.body, &store.buffer).len();
    let known = user.loads_of(&store.buffer).len() + stage.loads_of(&store.buffer).len();
    if user.is_reduction() || user.loops.len() != own.len() || !user.has_no_condition() || reads != known {
        return Ok(None);
    }
    // Each loop of the user runs over one dimension of the results.
    let mut places = vec![None; own.len()];
    for indices in user.loads_of(&store.buffer) {
        for (index, place) in indices.iter().zip(&own) {
            match user.place_of(&index) {
                Some(at) if places[at].is_none_or(|known| known == *place) => places[at] = Some(*place),
                _ => return Ok(None),
            }
        }
    }
    let places: Option<Vec<usize>> = places.into_iter().collect();
    Ok(places.map(|places| User { name: user.name.clone(), places }))
}

/// Adds a stage that copies a factor of a matrix product into panels, in the order in which tiles
/// read the factor. For each index of the reduction axis, a panel contains the rows or columns of
/// the factor that one tile needs. Returns the name of the stage.
fn pack(schedule: &Schedule, name: &str, factor: &Factor) -> Result<String> {
    let block = schedule.place(name)?.block().clone();
    let number = block.reads.iter().position(|region| region.buffer.ptr_eq(&factor.buffer));
    let Some(number) = number else {
        bail!("InternalError", "block `{name}` does not read a factor of the product")
    };
    let copy = schedule.cache_read(name, Any::new(number as i64)?, "global")?.to_string();
    let dtypes: Vec<_> = factor.buffer.shape.iter().map(|extent| extent.dtype).collect();
    let map = IndexMap::from_fn(&dtypes, |given| {
        let own = given.get(factor.own)?;
        let width = ops::int(factor.width, own.dtype)?;
        let mut new: Vec<Expr> = Vec::new();
        for (place, index) in given.iter().enumerate() {
            if place != factor.own && place != factor.depth {
                new.push(index);
            }
        }
        new.push(ops::floor_div(own.clone(), width.clone())?);
        new.push(given.get(factor.depth)?);
        new.push(ops::floor_mod(own, width)?);
        Ok(new.into_iter().collect())
    })?;
    // Since locations beyond the last element get a value, the loops of the copy run over whole panels.
    let pad = ops::number(0, factor.buffer.dtype)?;
    schedule.transform_layout(&copy, Any::new(0)?, Any::new(Ref::new(map))?, Some(Operand(pad)))?;
    Ok(copy)
}

/// Vectorizes the innermost loop of the block `name`, which copies a buffer. Returns all loops of
/// the block.
fn vectors(schedule: &Schedule, name: &str) -> Result<Vec<Ref<Var>>> {
    let loops = schedule.get_loops(name)?;
    if let Some(last) = loops.last() {
        schedule.vectorize(last.clone())?;
    }
    Ok(loops)
}

/// Returns the innermost loop around the block `name` that runs over the same axis as the original
/// loop with index `place` of `stage`.
pub(crate) fn own_loop(schedule: &Schedule, stage: &Stage, name: &str, place: usize) -> Result<Ref<For>> {
    let found = schedule.place(name)?;
    let value = stage.axis_number(place).and_then(|number| found.realize.iter_values.get(number).ok());
    let node =
        value.and_then(|value| found.loops.iter().rev().find(|node| uses_var(&value, &node.loop_var)).cloned());
    match node {
        Some(node) => Ok(node),
        None => bail!("InternalError", "block `{name}` has no loop for one of its axes"),
    }
}

/// Returns a loop around the initialisation block `name`. `from_last` is the position of the loop,
/// counted from the innermost loop, which has position 0.
pub(crate) fn init_loop(schedule: &Schedule, name: &str, from_last: usize) -> Result<Ref<For>> {
    let found = schedule.place(name)?;
    match found.loops.iter().rev().nth(from_last) {
        Some(node) => Ok(node.clone()),
        None => bail!("InternalError", "block `{name}` has too few loops"),
    }
}
