//! Schedules of stages that are computed together, row by row, such as the stages of a softmax. The last of
//! the stages determines the rows. The intermediate results of a row stay in the cache of a core, and the
//! rows are distributed over threads.

use std::collections::HashMap;

use anyfn::{Ref, Result, bail};
use anyfn_ir::StmtKind;
use anyfn_ir::expr::{IterKind, Var};
use anyfn_ir::target::Target;
use anyfn_schedule::Schedule;

use crate::matmul::own_loop;
use crate::stage::{Readers, Reads, Stage, stages};
use crate::tile::is_product;
use crate::{elementwise, reduction};

/// Number of rows that suffices to occupy all threads.
const SHARED: i64 = 8;
/// Minimum number of iterations per row for which the loops within a row are vectorized. With fewer
/// iterations, vectorizing across rows is faster.
const FEWEST: i64 = 64;
/// Maximum size in bytes of all intermediate results of a row. Larger results would not stay in the cache.
const MOST: i64 = 256 << 10;

/// Stages that are computed together, for one row of the last stage at a time.
pub(crate) struct Rows {
    pub(crate) last: Stage,
    /// Number of outer loops of the stage `last` that run over rows.
    pub(crate) count: usize,
    /// Stages that are computed inside the row loops of `last`, in reverse order of execution. Each is paired
    /// with the indices of its own loops over rows.
    pub(crate) others: Vec<(Stage, Vec<usize>)>,
}

impl Rows {
    pub(crate) fn name(&self) -> &str {
        &self.last.name
    }

    /// Returns the size in bytes of all intermediate results of a row.
    pub(crate) fn bytes(&self) -> i64 {
        let kept = self.others.iter().map(|(stage, rows)| {
            let spatial = stage.places(IterKind::Spatial);
            let bytes = stage.block().writes.iter().map(|part| i64::from(part.buffer.dtype.0.bits.div_ceil(8)));
            let elements = stage.repetitions(spatial.into_iter().filter(|place| !rows.contains(place)));
            elements.saturating_mul(bytes.sum())
        });
        kept.fold(0i64, i64::saturating_add)
    }

    /// Returns true if computing the stages row by row is expected to be faster than computing them one after the
    /// other.
    fn pays(&self, target: &Target) -> bool {
        let all = || self.others.iter().map(|(stage, rows)| (stage, &rows[..]));
        let own: Vec<usize> = (0..self.count).collect();
        let per_row = |stage: &Stage, rows: &[usize]| {
            stage.repetitions((0..stage.loops.len()).filter(|place| !rows.contains(place)))
        };
        let longest = all().map(|(stage, rows)| per_row(stage, rows)).max().unwrap_or(0);
        let is_large = all().any(|(stage, _)| stage.is_large(target)) || self.last.is_large(target);
        longest.max(per_row(&self.last, &own)) >= FEWEST
            && self.bytes() <= MOST
            && (!is_large || self.last.repetitions(own.iter().copied()) >= SHARED)
    }
}

/// Returns stages that can be computed together, row by row, if this is profitable. Stages whose names are in
/// `tried` are not chosen as the last stage.
pub(crate) fn rows(schedule: &Schedule, target: &Target, tried: &[String]) -> Result<Option<Rows>> {
    let all = stages(schedule)?;
    let readers = Readers::of(&*schedule.func()?, &all);
    let is_fit: Vec<bool> = all.iter().map(|stage| is_fit(stage, target)).collect();
    let result = |(stage, is_fit)| if is_fit { result(stage, &readers) } else { None };
    let results: Vec<Option<Output>> = all.iter().zip(is_fit.iter().copied()).map(result).collect();
    for (number, last) in all.iter().enumerate().rev() {
        if tried.contains(&last.name) || !is_fit[number] || elementwise::is_across(last) {
            continue;
        }
        // Use as many row loops as possible without losing a stage.
        let spatial = last.places(IterKind::Spatial).len();
        let mut best: Option<(usize, Others)> = None;
        for count in 1..=spatial {
            let others = others(&all, &results[..number], count);
            let known = best.as_ref().map_or(1, |(_, others)| others.len());
            if others.len() >= known {
                best = Some((count, others));
            }
        }
        let rows = best.map(|(count, others)| {
            let others = others.into_iter().map(|(number, rows)| (all[number].clone(), rows)).collect();
            Rows { last: last.clone(), count, others }
        });
        if let Some(rows) = rows.filter(|rows| rows.pays(target)) {
            return Ok(Some(rows));
        }
    }
    Ok(None)
}

/// Returns true if a stage can be computed row by row. Its loops must cover all values of its axes, with the
/// reduction loops innermost. It must not be a sum of products that is computed in tiles, because tiles are
/// faster.
fn is_fit(stage: &Stage, target: &Target) -> bool {
    let spatial = stage.places(IterKind::Spatial);
    let reducing = stage.places(IterKind::Reduce);
    spatial.len() + reducing.len() == stage.loops.len()
        && spatial.iter().enumerate().all(|(number, place)| number == *place)
        && stage.has_no_condition()
        && (reducing.is_empty() || stage.block().init.is_some())
        && !is_product(stage, target)
}

/// Result of a stage, and the reads of the result by other stages.
struct Output<'a> {
    /// Indices of the stage's loops over the dimensions of its result, one for each dimension.
    places: Vec<usize>,
    reads: &'a Reads,
}

/// Returns the result of a stage. Returns `None` if the result is never read, if the function's
/// caller may read it, or if its indices are not axes alone.
fn result<'a>(stage: &Stage, readers: &'a Readers) -> Option<Output<'a>> {
    let StmtKind::BufferStore(store) = StmtKind::of(&stage.block().body) else { return None };
    let places = store.indices.iter().map(|index| stage.place_of(&index)).collect::<Option<Vec<_>>>()?;
    Some(Output { places, reads: readers.reads(&store.buffer)? })
}

/// Indices of stages, each paired with the indices of that stage's loops over rows.
type Others = Vec<(usize, Vec<usize>)>;

/// Returns the stages, except the last one, that can be computed in the loops over rows of the last stage. A stage
/// qualifies if each of its rows is read only to compute the same row of the last stage. `count` is the number of
/// loops over rows.
fn others(all: &[Stage], before: &[Option<Output>], count: usize) -> Others {
    let mut known: HashMap<usize, Vec<usize>> = HashMap::from([(before.len(), (0..count).collect())]);
    let mut found = Vec::new();
    for (number, output) in before.iter().enumerate().rev() {
        if let Some(rows) = output.as_ref().and_then(|output| rows_of(all, number, output, &known)) {
            known.insert(number, rows.clone());
            found.push((number, rows));
        }
    }
    found
}

/// Returns the indices of the loops over rows of the stage with the index `number`. `known` contains these
/// indices for the stages that can be computed row by row. Returns `None` if any other stage reads the
/// result, or if a row of a reading stage needs more than one row of the result.
fn rows_of(
    all: &[Stage],
    number: usize,
    output: &Output,
    known: &HashMap<usize, Vec<usize>>,
) -> Option<Vec<usize>> {
    let mut rows: Option<Vec<usize>> = None;
    let mut uses = 0;
    for (user, loads) in &output.reads.stages {
        uses += loads.len();
        if *user == number {
            continue;
        }
        let user_rows = known.get(user)?;
        for indices in loads {
            let own = user_rows.iter().map(|row| {
                let dim = indices.iter().position(|index| all[*user].place_of(&index) == Some(*row))?;
                output.places.get(dim).copied()
            });
            let own = own.collect::<Option<Vec<_>>>()?;
            if rows.as_ref().is_some_and(|rows| *rows != own) {
                return None;
            }
            rows = Some(own);
        }
    }
    rows.filter(|_| uses == output.reads.count)
}

/// Moves the other stages into the last stage's loops over rows, and schedules all stages.
pub(crate) fn schedule(schedule: &Schedule, rows: &Rows, target: &Target) -> Result<()> {
    let loops = schedule.get_loops(&rows.last.name)?;
    let Some(row) = loops.get(rows.count - 1) else {
        bail!("InternalError", "the last stage has fewer loops than expected")
    };
    for (stage, _) in &rows.others {
        schedule.compute_at(&stage.name, row.clone())?;
    }
    let own: Vec<usize> = (0..rows.count).collect();
    inside(schedule, &rows.last, &own, |place| Ok(loops[place].clone()))?;
    for (stage, own) in &rows.others {
        schedule.get_loops(&stage.name)?;
        inside(schedule, stage, own, |place| {
            own_loop(schedule, stage, &stage.name, place).map(|node| node.loop_var.clone())
        })?;
    }
    if rows.last.is_large(target) || rows.others.iter().any(|(stage, _)| stage.is_large(target)) {
        elementwise::share(schedule, loops[..rows.count].to_vec())?;
    }
    Ok(())
}

/// Schedules those loops of a stage that run within one row. `rows` contains the indices of the
/// loops over rows. `at` maps the index of an original loop to the variable of the current loop.
fn inside(
    schedule: &Schedule,
    stage: &Stage,
    rows: &[usize],
    at: impl Fn(usize) -> Result<Ref<Var>>,
) -> Result<()> {
    let of = |place: usize| (!rows.contains(&place)).then(|| at(place)).transpose();
    let loops = (0..stage.loops.len()).map(of).collect::<Result<Vec<_>>>()?;
    if stage.is_reduction() {
        reduction::arrange(schedule, stage, &loops, false)
    } else {
        elementwise::vectors(schedule, stage, &loops)
    }
}
