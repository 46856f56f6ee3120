//! Where languages differ.

use anyfn::{Array, DType, Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Call, Expr, Var};
use anyfn_ir::stmt::{BufferStore, For, Stmt};

use crate::family::{Body, Literal, Message};

/// A language of the family: what it writes in its own way. [`Body`] asks it there, and is asked in turn for what is inside.
///
/// A value of it is the state of one function. What stands before the functions is the language's own, too; it has to define
/// the types and macros of `stdint.h` that [`Body`] uses, `NAN`, `INFINITY`, `ANYFN_IN_ORDER` (stands before sums in a loop
/// that must not be reordered), and the functions of [`SCALAR`](crate::family::SCALAR).
pub(crate) trait Dialect: Sized {
    /// A loop; [`Body::plain_loop`] writes one whose repetitions come one after the other.
    fn for_loop(body: &mut Body<'_, Self>, node: &For) -> Result<()>;

    /// Memory of the function itself, around the statement that uses it.
    fn allocate(body: &mut Body<'_, Self>, buffer: &Ref<Buffer>, inner: &Stmt) -> Result<()>;

    /// An element, or that of one lane, of a buffer that is not in memory; `None` for one that is.
    fn element(
        body: &mut Body<'_, Self>,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        lane: &str,
    ) -> Result<Option<String>>;

    /// A store of many lanes.
    fn store_vector(body: &mut Body<'_, Self>, node: &BufferStore) -> Result<()>;

    /// A variable of many lanes, of which [`Body::lane`] takes one by its number, as of an array.
    fn bind_vector(body: &mut Body<'_, Self>, var: &Ref<Var>, value: &Expr) -> Result<()>;

    /// A function of the tables in `math.rs`, of arguments of one type, `float32` or `float64`.
    fn math(name: &str, dtype: DType, args: &[String]) -> String;

    /// The conversion of a value from or to a number of 16 bits with a point, which is its bits.
    fn convert_half(body: &mut Body<'_, Self>, value: &str, from: DType, to: DType) -> Result<String>;

    /// A call of a packed function as a statement; the result goes into a variable of a data type, if it is wanted.
    fn call_packed(body: &mut Body<'_, Self>, call: &Call, result: Option<(&str, DType)>) -> Result<()>;

    /// A call of a function of the language, as an expression.
    fn call_extern(body: &mut Body<'_, Self>, call: &Call) -> Result<String>;

    /// The line that ends the function with an error of a kind if a condition does not hold.
    fn check(body: &Body<'_, Self>, condition: &str, kind: &Literal, message: &Message) -> String;
}
