//! Annotations of loops and blocks.

use anyfn::{Any, Map, Ref, Result, String, bail};
use anyfn_ir::expr::Var;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::make;
use anyfn_ir::stmt::Block;

use crate::tree::{self, find_block, find_loop};

type Func = Ref<PrimFunc>;

/// Key of an annotation that marks a block as partial. Such a block shares loops with its readers. In each
/// iteration of these loops, it computes only the elements that the readers need in the same iteration, so it
/// may compute an element several times.
pub(crate) const PARTIAL: &str = "partial";

/// Returns true if a block has the annotation [`PARTIAL`].
pub(crate) fn is_partial(block: &Block) -> bool {
    matches!(block.annotations.get(PARTIAL), Ok(Some(_)))
}

/// Key of an annotation on a block that was moved into the loops of its producer, the block that writes its input. In
/// each iteration of these loops, the annotated block reads only elements that the producer wrote in the same
/// iteration.
pub(crate) const FOLLOWS: &str = "follows";

/// Returns true if a block has the annotation [`FOLLOWS`].
pub(crate) fn follows(block: &Block) -> bool {
    matches!(block.annotations.get(FOLLOWS), Ok(Some(_)))
}

/// Returns a copy of the annotations `old` in which the annotation `key` is true.
pub(crate) fn marked(old: &Map<String, Any>, key: &str) -> Result<Map<String, Any>> {
    with(old, key, &Any::new(true)?)
}

/// Loop or block to which an annotation is attached.
pub(crate) enum Target {
    Loop(Ref<Var>),
    Block(String),
}

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

/// Attaches an annotation to a loop or a block.
///
/// # Errors
/// Returns `ValueError` if the loop or block does not exist, or if the key is empty.
pub(crate) fn annotate(func: &Func, target: &Target, key: &str, value: &Any) -> Result<Func> {
    match target {
        Target::Loop(var) => one_loop(func, var, key, value),
        Target::Block(name) => block(func, name, key, value),
    }
}

fn one_loop(func: &Func, var: &Ref<Var>, key: &str, value: &Any) -> Result<Func> {
    let node = find_loop(func, var)?;
    let new = make::for_like(&node, node.kind, node.body.clone(), with(&node.annotations, key, value)?);
    tree::replace(func, &node.into_parent(), new)
}

fn block(func: &Func, name: &str, key: &str, value: &Any) -> Result<Func> {
    let place = find_block(func, name)?;
    let block = make::annotated(place.block(), with(&place.block().annotations, key, value)?);
    let realize = &place.realize;
    let new = make::realize(realize.iter_values.iter(), realize.predicate.clone(), block);
    tree::replace(func, &place.realize.clone().into_parent(), new)
}
