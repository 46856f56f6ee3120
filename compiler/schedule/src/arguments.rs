//! Reads the arguments of a recorded schedule step and checks them.

use anyfn::{Any, Error, FromArg, Ref, Result, String, bail};
use anyfn_ir::expr::Var;

use crate::trace::Step;

/// Arguments of a recorded step, which are read in the order of the step's parameters. A loaded trace may
/// contain any arguments, so each read checks the argument. Errors name the step and the parameter.
pub(crate) struct Arguments<'a> {
    step: &'a Step,
    /// Loops of the schedule, indexed by their numbers in the trace.
    known: &'a [Ref<Var>],
    has_read_block: bool,
    has_read_loops: bool,
    has_read_numbers: bool,
    /// Number of elements of `step.args` that have been read.
    values_read: usize,
}

impl<'a> Arguments<'a> {
    /// Creates the arguments of a step. `known` contains the loops of the schedule, indexed by their numbers
    /// in the trace.
    pub(crate) fn new(step: &'a Step, known: &'a [Ref<Var>]) -> Arguments<'a> {
        Arguments {
            step,
            known,
            has_read_block: false,
            has_read_loops: false,
            has_read_numbers: false,
            values_read: 0,
        }
    }

    /// Returns true if the step has a block argument.
    pub(crate) fn has_block(&self) -> bool {
        self.step.block.is_some()
    }

    /// Returns the block argument, which is the name of a block.
    ///
    /// # Errors
    /// Returns `ValueError` if there is no block.
    pub(crate) fn block(&mut self, parameter: &str) -> Result<String> {
        self.has_read_block = true;
        match &self.step.block {
            Some(name) => Ok(name.clone()),
            None => bail!("ValueError", "step `{}` needs a block (argument `{parameter}`)", self.step.name),
        }
    }

    /// Returns the loop variables of all loops among the step's arguments.
    ///
    /// # Errors
    /// Returns `ValueError` if a loop has a number that is not known.
    pub(crate) fn loops(&mut self, parameter: &str) -> Result<Vec<Ref<Var>>> {
        self.has_read_loops = true;
        let find =
            |number: i64| usize::try_from(number).ok().and_then(|number| self.known.get(number)).cloned();
        let loops: Option<Vec<Ref<Var>>> = self.step.loops.iter().map(find).collect();
        match loops {
            Some(loops) => Ok(loops),
            None => bail!(
                "ValueError",
                "step `{}` uses a loop that no earlier step returned (argument `{parameter}`)",
                self.step.name
            ),
        }
    }

    /// Returns the loop variable of the step's only loop argument.
    ///
    /// # Errors
    /// Returns `ValueError` if the number of loops is not one, or if the loop has a number that is not known.
    pub(crate) fn one_loop(&mut self, parameter: &str) -> Result<Ref<Var>> {
        match <[Ref<Var>; 1]>::try_from(self.loops(parameter)?) {
            Ok([only]) => Ok(only),
            Err(loops) => bail!(
                "ValueError",
                "step `{}` needs one loop but got {} (argument `{parameter}`)",
                self.step.name,
                loops.len()
            ),
        }
    }

    /// Returns the integer arguments, such as the factors of `split`.
    pub(crate) fn numbers(&mut self) -> Vec<Option<i64>> {
        self.has_read_numbers = true;
        self.step.numbers.iter().collect()
    }

    /// Reads the next argument that is not a block, loop or integer.
    ///
    /// # Errors
    /// Returns `ValueError` if all arguments have been read, and `TypeError` if the next one has another type.
    pub(crate) fn value<T: for<'b> FromArg<Arg<'b> = T>>(&mut self, parameter: &str) -> Result<T> {
        match self.next_value() {
            Some(value) => self.converted(value, parameter),
            None => bail!(
                "ValueError",
                "step `{}` needs {} arguments (`{parameter}` is missing)",
                self.step.name,
                self.values_read + 1
            ),
        }
    }

    /// Reads the next argument that is not a block, loop or integer. Returns `None` if all of them have been
    /// read.
    ///
    /// # Errors
    /// Returns `TypeError` if the argument has another type.
    pub(crate) fn optional_value<T: for<'b> FromArg<Arg<'b> = T>>(
        &mut self,
        parameter: &str,
    ) -> Result<Option<T>> {
        match self.next_value() {
            Some(value) => self.converted(value, parameter).map(Some),
            None => Ok(None),
        }
    }

    /// Checks that all arguments of the step have been read.
    ///
    /// # Errors
    /// Returns `ValueError` if an argument has not been read.
    pub(crate) fn finish(&self) -> Result<()> {
        let step = self.step;
        let surplus = [
            ("a block", !self.has_read_block && step.block.is_some()),
            ("loops", !self.has_read_loops && !step.loops.is_empty()),
            ("numbers", !self.has_read_numbers && !step.numbers.is_empty()),
            ("more arguments", self.values_read < step.args.len()),
        ];
        match surplus.iter().find(|(_, is_there)| *is_there) {
            Some((what, _)) => bail!("ValueError", "step `{}` got {what}, which it does not take", step.name),
            None => Ok(()),
        }
    }

    fn next_value(&mut self) -> Option<&'a Any> {
        let step: &'a Step = self.step;
        let value = step.args.as_slice().get(self.values_read)?;
        self.values_read += 1;
        Some(value)
    }

    fn converted<T: for<'b> FromArg<Arg<'b> = T>>(&self, value: &Any, parameter: &str) -> Result<T> {
        value.get::<T>().map_err(|error| {
            let begin = format!("step `{}`, argument `{parameter}`: ", self.step.name);
            Error::from_parts(error.kind(), &begin, error.message())
        })
    }
}
