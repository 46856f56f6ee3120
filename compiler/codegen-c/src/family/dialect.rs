//! Interface to the parts of the code generator that differ between dialects of C.

use anyfn::{Array, DType, Ref, Result, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{BinaryOp, Call, Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::kind::is_int;
use anyfn_ir::ops::DTypeExt;
use anyfn_ir::packed::name_of;
use anyfn_ir::printer;
use anyfn_ir::stmt::{BufferStore, For, Launch, SeqStmt, Stmt};
use anyfn_ir::target::Target;

use crate::family::{Body, Interface, Message, Symbol, c, type_name};

/// Operation on two scalars.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) op: BinaryOp,
    /// Data type of the operation's operands.
    pub(crate) dtype: DType,
    /// True for index arithmetic, which is assumed not to overflow. Other integer arithmetic wraps around.
    pub(crate) in_place: bool,
    /// False for an integer division that may be undefined in C, because the divisor may be 0 or the quotient
    /// may overflow for the divisor -1. In that case, the generated code must handle these divisors. For the
    /// divisor 0, both the quotient and the remainder are 0.
    pub(crate) is_safe: bool,
}

/// Language of the C family, with the state of the code generator for one function. [`Body`] calls the
/// methods of this trait to generate code that differs between languages. The methods in turn call [`Body`]
/// to generate nested code.
///
/// A dialect must implement the items without a default, and those of [`Statements`]. The defaults generate C, or return an error
/// for a construct that a dialect may lack.
///
/// [`Dialect::prelude`] returns the source before the functions of a module. It must define the names that
/// the generated code uses; for the defaults, these are the names listed in [`c`]. `null` is the shortest
/// dialect, and a template for new ones.
pub(crate) trait Dialect: Statements {
    /// Name of the language, as shown in messages.
    const NAME: &'static str;

    /// List of the data types that the language supports, as shown in messages.
    const TYPES: &'static str;

    /// Names that variables and buffers must not have, separated by white space: the keywords of the
    /// language, and names that the prelude defines.
    const RESERVED: &'static str;

    /// Prefixes of further reserved names. `anyfn_` is always reserved.
    const RESERVED_PREFIXES: &'static [&'static str];

    /// True if functions can raise errors, so that a divisor in an index is checked. Otherwise a quotient by 0 is 0.
    const RAISES: bool = true;

    // Modules and functions.

    /// Returns the source that precedes the functions of a module.
    fn prelude() -> String;

    /// Checks that the dialect accepts the name of a function. The name consists of letters, digits and
    /// underscores.
    ///
    /// # Errors
    /// Returns `ValueError` if no function of the language can have that name.
    fn check_symbol(_symbol: &Symbol) -> Result<()> {
        Ok(())
    }

    /// Generates a function with everything that it requires, such as declarations and an entry point. All
    /// data types in it have already been checked by [`Dialect::has_type`].
    fn function(
        symbol: &Symbol,
        func: &PrimFunc,
        interface: &Interface,
        target: &Target,
        out: &mut String,
    ) -> Result<()>;

    // Types and declarations.

    /// Returns the name of the type that represents a scalar data type in the language, or `None` if the
    /// language has no such type.
    fn type_of(dtype: DType) -> Option<&'static str>;

    /// Returns true if the language can represent values of a data type. A dialect with vectors also returns
    /// true for vectors.
    fn has_type(dtype: DType) -> bool {
        dtype.lanes() == 1 && Self::type_of(dtype).is_some()
    }

    /// Returns the declaration of a scalar variable or parameter without an initial value.
    fn variable(dtype: DType, name: &str) -> Result<String> {
        Ok(format!("{} {name}", type_name::<Self>(dtype)?))
    }

    /// Returns the declaration of a parameter for the memory of a buffer.
    fn buffer_parameter(buffer: &Buffer, name: &str, is_written: bool) -> Result<String>;

    /// Returns a statement that defines a scalar constant.
    fn constant(dtype: DType, name: &str, value: &str) -> Result<String> {
        Ok(format!("const {} = {value};", Self::variable(dtype, name)?))
    }

    // Expressions.

    /// Returns the literal of an integer or Boolean constant.
    fn int(value: i64, dtype: DType) -> Result<String> {
        c::int::<Self>(value, dtype)
    }

    /// Returns the literal of a floating-point constant.
    fn float(_body: &mut Body<'_, Self>, value: f64, dtype: DType) -> Result<String> {
        c::float::<Self>(value, dtype)
    }

    /// Returns the literal of a string constant, which occurs only as an argument of a call. By
    /// default, returns an error, because the dialect has no strings.
    fn string(text: &str) -> Result<String> {
        bail!("ValueError", "{} code cannot contain strings, got {text:?}", Self::NAME)
    }

    /// Returns an expression that converts a scalar to another data type. The numbers of lanes of
    /// `from` and `to` are ignored.
    fn cast(_body: &mut Body<'_, Self>, value: &str, _from: DType, to: DType) -> Result<String> {
        c::cast::<Self>(value, to)
    }

    /// Returns an expression that converts an index to the type in which offsets are computed.
    fn wide_index(index: &str) -> String {
        format!("(int64_t){index}")
    }

    /// Returns an expression for an operation on two scalars. The expression must contain `a` exactly once.
    fn operation(operation: Operation, a: &str, b: &str) -> Result<String> {
        c::operation::<Self>(operation, a, b)
    }

    /// Returns true if a logical operation should be generated as `&` or `|`, which evaluate both operands.
    fn is_eager(_first: &Expr, _second: &Expr) -> bool {
        false
    }

    /// Returns an expression with the value `a` if a condition holds, and `b` otherwise. The value that is
    /// not selected must not be evaluated.
    fn select(condition: &str, a: &str, b: &str) -> String {
        format!("({condition} ? {a} : {b})")
    }

    /// Returns a call of a function whose name is in the tables of `math.rs`. All arguments have the data type `dtype`,
    /// which is `float32` or `float64`.
    fn math(name: &str, dtype: DType, args: &[String]) -> String;

    /// Returns an expression that calls a C function.
    fn call_extern(_body: &mut Body<'_, Self>, call: &Call) -> Result<String> {
        bail!(
            "ValueError",
            "cannot generate {1} code for a call of the C function `{0}`",
            name_of(call),
            Self::NAME
        )
    }

    // Statements.

    /// Returns a statement that evaluates an expression for its effect.
    fn discard(value: &str) -> String {
        format!("(void)({value});")
    }

    /// Generates code in front of a statement that adds to a buffer element in a loop. The code
    /// prevents a compiler from reordering the additions.
    fn before_sum(_body: &mut Body<'_, Self>) {}

    /// Returns the first line of a loop whose variable takes the values from `first` up to but not including `end`.
    fn loop_head(dtype: DType, name: &str, first: &str, end: &str) -> Result<String> {
        Ok(format!("for ({} = {first}; {name} < {end}; ++{name}) {{", Self::variable(dtype, name)?))
    }

    /// Generates the definition of a variable whose value is a vector. [`Body::lane`] indexes the variable
    /// like an array. Called only if the dialect has vectors.
    fn bind_vector(_body: &mut Body<'_, Self>, var: &Ref<Var>, _value: &Expr) -> Result<()> {
        bail!("ValueError", "{} has no vector types, which `{}` requires", Self::NAME, var.name)
    }

    /// Generates a call of a packed function as a statement. `result` is the name and data type of
    /// a new variable that receives the result, or `None` if the result is discarded.
    fn call_packed(_body: &mut Body<'_, Self>, call: &Call, _result: Option<(&str, DType)>) -> Result<()> {
        bail!(
            "ValueError",
            "cannot generate {1} code for a call of the packed function `{0}`",
            name_of(call),
            Self::NAME
        )
    }
}

/// Statements of a dialect that code for one thread and kernels for many threads express in different ways. Each
/// [`KernelDialect`](crate::family::KernelDialect) has the statements of kernels.
pub(crate) trait Statements: Sized {
    /// Returns an expression that accesses an element of a buffer, if the dialect keeps the buffer
    /// in variables. If the last index is a vector, `lane` selects one of its lanes. Returns `None`
    /// for a buffer in memory.
    fn element(
        _body: &mut Body<'_, Self>,
        _buffer: &Ref<Buffer>,
        _indices: &Array<Expr>,
        _lane: &str,
    ) -> Result<Option<String>> {
        Ok(None)
    }

    /// Generates code in front of the statement at `index` of a sequence, such as a barrier between threads.
    fn before_step(_body: &mut Body<'_, Self>, _seq: &SeqStmt, _index: usize) {}

    /// Generates a loop of any kind. [`Body::plain_loop`] generates a loop whose iterations are executed in order.
    fn for_loop(body: &mut Body<'_, Self>, node: &For) -> Result<()>;

    /// Generates a launch of tasks. By default, generates the parallel loop itself. This is correct for a
    /// language that distributes the iterations of a parallel loop over threads.
    fn launch(body: &mut Body<'_, Self>, node: &Launch) -> Result<()>
    where
        Self: Dialect,
    {
        if !is_int(&node.num_tasks, 0) {
            let name = &node.body.loop_var.name;
            bail!(
                "ValueError",
                "loop `{name}` requests a number of tasks, but {} code cannot set it",
                Self::NAME
            );
        }
        Self::for_loop(body, &node.body)
    }

    /// Generates the allocation of a buffer around the statement that uses the buffer.
    fn allocate(body: &mut Body<'_, Self>, buffer: &Ref<Buffer>, inner: &Stmt) -> Result<()>;

    /// Generates a store of a vector. Called only if the dialect has vectors.
    fn store_vector(_body: &mut Body<'_, Self>, node: &BufferStore) -> Result<()>
    where
        Self: Dialect,
    {
        bail!(
            "ValueError",
            "{} has no vector types, which `{}` requires",
            Self::NAME,
            printer::brief(node.value.as_object())
        )
    }

    /// Returns a line that ends the function with an error of the given kind and message unless a condition
    /// holds. Equal arguments must give equal lines.
    fn check(body: &mut Body<'_, Self>, condition: &str, kind: &str, message: &Message) -> Result<String>;
}
