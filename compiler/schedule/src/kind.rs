//! Kinds of parameters of schedule steps.
//!
//! A kind defines the form in which a method of [`Schedule`] receives an argument (`given!`), how the
//! argument is recorded in a [`Step`] (`record`), and how it is read from a recorded step before the step is
//! applied (`read`). The function that applies the step receives the result of `read` by reference. Kinds are
//! types without values. Their Python types are listed in `xtask/src/codegen/schedule.rs`.

use anyfn::{Any, Ref, Result, String, bail};
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::operand::Operand;

use crate::arguments::Arguments;
use crate::trace::Step;
use crate::{Schedule, annotate, index_map};

/// Expands to the type in which a method receives an argument of a kind.
macro_rules! given {
    (Block) => { &str };
    (Loop) => { anyfn::Ref<anyfn_ir::expr::Var> };
    (Loops) => { Vec<anyfn::Ref<anyfn_ir::expr::Var>> };
    (Numbers) => { Vec<Option<i64>> };
    (Text) => { &str };
    (Buffer) => { anyfn::Any };
    (IndexMap) => { anyfn::Any };
    (Pad) => { Option<anyfn_ir::operand::Operand> };
    (Target) => { anyfn::Any };
    (Value) => { anyfn::Any };
}
pub(crate) use given;

/// Expands to the type of the result of a method, given the kind of the result.
macro_rules! returned {
    () => { () };
    (Block) => { anyfn::String };
    (Loop) => { anyfn::Ref<anyfn_ir::expr::Var> };
    (Loops) => { Vec<anyfn::Ref<anyfn_ir::expr::Var>> };
}
pub(crate) use returned;

/// Name of a block.
pub(crate) enum Block {}

impl Block {
    pub(crate) fn record(given: &str, _: &Schedule, step: &mut Step) -> Result<()> {
        step.block = Some(given.into());
        Ok(())
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<String> {
        arguments.block(parameter)
    }
}

/// Loop, given by its variable.
pub(crate) enum Loop {}

impl Loop {
    pub(crate) fn record(given: Ref<Var>, schedule: &Schedule, step: &mut Step) -> Result<()> {
        step.loops.push(schedule.number_of(&given)?)
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<Ref<Var>> {
        arguments.one_loop(parameter)
    }
}

/// Any number of loops. It must be the last parameter of a step, because Python also accepts the loops as separate
/// arguments.
pub(crate) enum Loops {}

impl Loops {
    pub(crate) fn record(given: Vec<Ref<Var>>, schedule: &Schedule, step: &mut Step) -> Result<()> {
        given.into_iter().try_for_each(|one| Loop::record(one, schedule, step))
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<Vec<Ref<Var>>> {
        arguments.loops(parameter)
    }
}

/// List of integers, each of which may be `None`.
pub(crate) enum Numbers {}

impl Numbers {
    pub(crate) fn record(given: Vec<Option<i64>>, _: &Schedule, step: &mut Step) -> Result<()> {
        step.numbers = given.into_iter().collect();
        Ok(())
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, _: &str) -> Result<Vec<Option<i64>>> {
        Ok(arguments.numbers())
    }
}

/// String, such as the scope of a buffer.
pub(crate) enum Text {}

impl Text {
    pub(crate) fn record(given: &str, _: &Schedule, step: &mut Step) -> Result<()> {
        step.args.push(Any::new(given)?)
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<String> {
        arguments.value(parameter)
    }
}

/// Buffer of a block, given by its name, by its node, or by its index among the buffers of the block.
pub(crate) enum Buffer {}

impl Buffer {
    pub(crate) fn record(given: Any, _: &Schedule, step: &mut Step) -> Result<()> {
        step.args.push(given)
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<Any> {
        arguments.value(parameter)
    }
}

/// Change of the layout of a buffer: a `tir.IndexMap`, or a function of indices. It must follow the block and the
/// buffer.
pub(crate) enum IndexMap {}

impl IndexMap {
    pub(crate) fn record(given: Any, schedule: &Schedule, step: &mut Step) -> Result<()> {
        let (Some(block), Some(buffer)) = (&step.block, step.args.as_slice().last()) else {
            bail!(
                "InternalError",
                "the index map of step `{}` does not follow a block and a buffer",
                step.name
            );
        };
        let map = schedule.index_map(block, buffer, &given)?;
        step.args.push(Any::new(map)?)
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<Ref<index_map::IndexMap>> {
        arguments.value(parameter)
    }
}

/// Value of the padding that a change of layout adds. If it is omitted, the padding is not set. It must be
/// the last parameter of a step, because a trace contains it only if it is given.
pub(crate) enum Pad {}

impl Pad {
    pub(crate) fn record(given: Option<Operand>, _: &Schedule, step: &mut Step) -> Result<()> {
        match given {
            Some(Operand(value)) => step.args.push(Any::new(value)?),
            None => Ok(()),
        }
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<Option<Expr>> {
        arguments.optional_value(parameter)
    }
}

/// Loop, given by its variable, or block, given by its name.
pub(crate) enum Target {}

impl Target {
    pub(crate) fn record(given: Any, schedule: &Schedule, step: &mut Step) -> Result<()> {
        match given.get::<String>() {
            Ok(block) => Block::record(&block, schedule, step),
            Err(_) => Loop::record(given.get::<Ref<Var>>()?, schedule, step),
        }
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<annotate::Target> {
        if arguments.has_block() {
            return arguments.block(parameter).map(annotate::Target::Block);
        }
        arguments.one_loop(parameter).map(annotate::Target::Loop)
    }
}

/// Value of any type.
pub(crate) enum Value {}

impl Value {
    pub(crate) fn record(given: Any, _: &Schedule, step: &mut Step) -> Result<()> {
        step.args.push(given)
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<Any> {
        arguments.value(parameter)
    }
}
