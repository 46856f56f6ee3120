//! Kinds of parameters of schedule steps.
//!
//! A kind defines in which form a method of [`Schedule`] receives an argument (`given!`), how the argument is recorded
//! in a [`Step`] (`record`), and how it is read from a recorded step before the step is applied (`read`). The function
//! that applies the step receives the result of `read` by reference. Kinds are types without values. [`Kind`] lists them
//! for code that handles all steps.
//!
//! The table `kinds!` is the only list of kinds. `./x codegen` reads the Python types from it.

use anyfn::{Any, Ref, Result, String, bail};
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::operand::Operand;

use crate::arguments::Arguments;
use crate::trace::Step;
use crate::{Schedule, annotate, index_map};

macro_rules! kinds {
    ($(
        $(#[$doc:meta])*
        $kind:ident: [$($given:tt)+] as $python:literal $(-> [$($returned:tt)+] as $result:literal)?;
    )*) => {
        /// Kind of a parameter of a schedule step.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        $($(#[$doc])* pub(crate) enum $kind {})*

        /// Expands to the type of a method's parameter, given the kind of the parameter.
        macro_rules! given {
            $(($kind) => { $($given)+ };)*
        }
        pub(crate) use given;

        /// Expands to the type of a method's result, given the kind of the result.
        macro_rules! returned {
            () => { () };
            $($(($kind) => { $($returned)+ };)?)*
        }
        pub(crate) use returned;
    };
}

// Each entry consists of the name of a kind and the type in which a method receives an argument, in Rust and in Python.
// The types behind the arrow are those of a result; a kind without them is only a kind of parameters.
kinds! {
    /// Name of a block. Python also accepts the tensor that the block computes.
    Block: [&str] as "_BlockName" -> [anyfn::String] as "str";

    /// Loop, given by its variable.
    Loop: [anyfn::Ref<anyfn_ir::expr::Var>] as "Var" -> [anyfn::Ref<anyfn_ir::expr::Var>] as "Var";

    /// Any number of loops. A parameter of this kind must be the last one of a step, because Python also
    /// accepts the loops as separate arguments.
    Loops: [Vec<anyfn::Ref<anyfn_ir::expr::Var>>] as "Union[Var, Sequence[Var]]"
        -> [Vec<anyfn::Ref<anyfn_ir::expr::Var>>] as "Array[Var]";

    /// Integers, each of which may be `None`.
    Numbers: [Vec<Option<i64>>] as "Sequence[Union[int, None]]";

    /// String, such as the scope of a buffer.
    Text: [&str] as "str";

    /// Buffer of a block, given by its name, by its node, or by its index among the buffers of the block.
    Buffer: [anyfn::Any] as "_BufferName";

    /// Change of the layout of a buffer: a `tir.IndexMap`, or a function of indices. A parameter of this kind
    /// must follow the block and the buffer.
    IndexMap: [anyfn::Any] as "Union[IndexMap, Callable[..., Sequence[_Operand]]]";

    /// Value that is stored in the padding of a buffer's new layout, or `None` to leave the padding unset. A
    /// parameter of this kind must be the last one of a step, because a trace contains the value only if it
    /// is given.
    Pad: [Option<anyfn_ir::operand::Operand>] as "Union[int, float, PrimExpr, None]";

    /// Loop, given by its variable, or block, given by its name.
    Target: [anyfn::Any] as "Union[Var, str]";

    /// Value of any type.
    Value: [anyfn::Any] as "Any";
}

impl Block {
    pub(crate) fn record(given: &str, _: &Schedule, step: &mut Step) -> Result<()> {
        step.block = Some(given.into());
        Ok(())
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<String> {
        arguments.block(parameter)
    }
}

impl Loop {
    pub(crate) fn record(given: Ref<Var>, schedule: &Schedule, step: &mut Step) -> Result<()> {
        step.loops.push(schedule.number_of(&given)?)
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<Ref<Var>> {
        arguments.one_loop(parameter)
    }
}

impl Loops {
    pub(crate) fn record(given: Vec<Ref<Var>>, schedule: &Schedule, step: &mut Step) -> Result<()> {
        given.into_iter().try_for_each(|one| Loop::record(one, schedule, step))
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<Vec<Ref<Var>>> {
        arguments.loops(parameter)
    }
}

impl Numbers {
    pub(crate) fn record(given: Vec<Option<i64>>, _: &Schedule, step: &mut Step) -> Result<()> {
        step.numbers = given.into_iter().collect();
        Ok(())
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, _: &str) -> Result<Vec<Option<i64>>> {
        Ok(arguments.numbers())
    }
}

impl Text {
    pub(crate) fn record(given: &str, _: &Schedule, step: &mut Step) -> Result<()> {
        step.args.push(Any::new(given)?)
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<String> {
        arguments.value(parameter)
    }
}

impl Buffer {
    pub(crate) fn record(given: Any, _: &Schedule, step: &mut Step) -> Result<()> {
        step.args.push(given)
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<Any> {
        arguments.value(parameter)
    }
}

impl IndexMap {
    pub(crate) fn record(given: Any, schedule: &Schedule, step: &mut Step) -> Result<()> {
        let (Some(block), Some(buffer)) = (&step.block, step.args.as_slice().last()) else {
            bail!("InternalError", "the index map of step `{}` must follow a block and a buffer", step.name);
        };
        let map = schedule.index_map(block, buffer, &given)?;
        step.args.push(Any::new(map)?)
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<Ref<index_map::IndexMap>> {
        arguments.value(parameter)
    }
}

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

impl Value {
    pub(crate) fn record(given: Any, _: &Schedule, step: &mut Step) -> Result<()> {
        step.args.push(given)
    }

    pub(crate) fn read(arguments: &mut Arguments<'_>, parameter: &str) -> Result<Any> {
        arguments.value(parameter)
    }
}
