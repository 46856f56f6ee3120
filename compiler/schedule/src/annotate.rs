//! Annotations of loops and blocks.

use anyfn::{Any, Map, Ref, Result, String, bail};
use anyfn_ir::expr::Var;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::make;

use crate::tree::{self, find_block, find_loop};

type Func = Ref<PrimFunc>;

pub(crate) fn with(old: &Map<String, Any>, key: &str, value: &Any) -> Result<Map<String, Any>> {
    if key.is_empty() {
        bail!("ValueError", "an annotation needs a key");
    }
    let mut all: Vec<(String, Any)> = Vec::new();
    for (known, value) in old.iter_any() {
        let known = known.get::<String>()?;
        if &*known != key {
            all.push((known, value.clone()));
        }
    }
    all.push((key.into(), value.clone()));
    Map::try_from_iter(all)
}

/// Attaches an annotation to a loop.
///
/// # Errors
/// Returns `ValueError` if the loop does not exist, or if the key is empty.
pub(crate) fn one_loop(func: &Func, var: &Ref<Var>, key: &str, value: &Any) -> Result<Func> {
    let node = find_loop(func, var)?;
    let new = make::for_like(&node, node.kind, node.body.clone(), with(&node.annotations, key, value)?);
    tree::replace(func, &node.into_parent(), new)
}

/// Attaches an annotation to a block.
///
/// # Errors
/// Returns `ValueError` if the block does not exist, or if the key is empty.
pub(crate) fn block(func: &Func, name: &str, key: &str, value: &Any) -> Result<Func> {
    let place = find_block(func, name)?;
    let block = make::annotated(place.block(), with(&place.block().annotations, key, value)?);
    let realize = &place.realize;
    let new = make::realize(realize.iter_values.iter(), realize.predicate.clone(), block);
    tree::replace(func, &place.realize.clone().into_parent(), new)
}
