//! Lowering of functions to the form that code generators accept.

use anyfn::{Map, Ref, Result};
use anyfn_ir::func::{IRModule, PrimFunc};
use anyfn_ir::{share, size};
use anyfn_passes::{Pipeline, verify_module};

use crate::{default_pipeline, target};

/// Lowers the functions of a module to the form that code generators accept. Applies the passes of
/// `pipeline`, or those of the [default pipeline](default_pipeline) if `pipeline` is `None`. The
/// default pipeline first schedules the functions that are not scheduled yet.
///
/// # Errors
/// Returns `TypeError`, `NameError`, `ValueError` or `IndexError` if verification of a function fails, before or after
/// the passes (see [`anyfn_passes::verify`]). Returns the error of a pass, with a note that names the pass and the
/// function.
pub fn lower(module: &Ref<IRModule>, pipeline: Option<&Ref<Pipeline>>) -> Result<Ref<IRModule>> {
    let module = small(module)?;
    verify_module(&module)?;
    let pipeline = pipeline.cloned().map_or_else(default_pipeline, Ok)?;
    let lowered = pipeline.apply(&module)?;
    // Passes may be written by users, so their output is verified.
    verify_module(&lowered).map_err(|error| pipeline.find_broken(&module).unwrap_or(error))?;
    Ok(lowered)
}

/// Returns notes about costly blocks that manual schedules left unscheduled. Each note names a
/// function that was scheduled by hand, and those of its blocks that the default schedule would
/// change. The notes are sorted. Functions that cannot be scheduled, such as those with several
/// blocks of the same name, are omitted.
///
/// # Errors
/// Returns the error of [`anyfn_passes::verify`] for an invalid function, or the error of an invalid target.
pub fn notes(module: &Ref<IRModule>) -> Result<Vec<String>> {
    let module = small(module)?;
    verify_module(&module)?;
    let target = target::of(&module)?;
    let mut notes = Vec::new();
    for (name, func) in module.functions.iter() {
        if func.attrs.get("scheduled")?.is_none() {
            continue;
        }
        // There are no schedules of a function with several blocks of the same name.
        let Ok(blocks) = anyfn_autosched::unscheduled(&func, &target) else { continue };
        if !blocks.is_empty() {
            let (noun, verb) = if blocks.len() == 1 { ("block", "is") } else { ("blocks", "are") };
            let blocks = blocks.join("`, `");
            notes.push(format!(
                "function `{name}`: {noun} `{blocks}` {verb} not scheduled; `schedule.finish()` applies the default schedule"
            ));
        }
    }
    notes.sort();
    Ok(notes)
}

/// Introduces variables in a module for values that occur several times in large expressions. The expressions
/// are then small enough to be visited as trees.
fn small(module: &Ref<IRModule>) -> Result<Ref<IRModule>> {
    let mut is_same = true;
    let mut functions = Vec::with_capacity(module.functions.len());
    for (name, func) in module.functions.iter() {
        size::check_statements(&func)?;
        let body = share::name_shared(&func.body)?;
        if body.ptr_eq(&func.body) {
            functions.push((name, func));
            continue;
        }
        is_same = false;
        let (params, buffer_map) = (func.params.clone(), func.buffer_map.clone());
        functions.push((name, Ref::new(PrimFunc { params, buffer_map, body, attrs: func.attrs.clone() })));
    }
    if is_same {
        return Ok(module.clone());
    }
    let functions = Map::try_from_iter(functions)?;
    Ok(Ref::new(IRModule { functions, attrs: module.attrs.clone() }))
}
