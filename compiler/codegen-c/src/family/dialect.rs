//! Differences between languages.

use anyfn::{Array, DType, Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Call, Expr, Var};
use anyfn_ir::stmt::{BufferStore, For, Stmt};

use crate::family::{Body, Literal, Message};

/// A language of the C family: generates what differs between languages. [`Body`] calls it for such code, and is called
/// in turn for the code inside.
///
/// A value of this type is the state of one function. The language also provides the code in front of the functions.
/// That code must define the types and macros of `stdint.h` that [`Body`] uses, `NAN`, `INFINITY`, `ANYFN_IN_ORDER`
/// (generated before sums in a loop that must not be reordered), and the functions of
/// [`SCALAR`](crate::family::SCALAR).
pub(crate) trait Dialect: Sized {
    /// Generates a loop. [`Body::plain_loop`] generates one whose iterations are executed in order.
    fn for_loop(body: &mut Body<'_, Self>, node: &For) -> Result<()>;

    /// Generates the allocation of a buffer around the statement that uses it.
    fn allocate(body: &mut Body<'_, Self>, buffer: &Ref<Buffer>, inner: &Stmt) -> Result<()>;

    /// Generates an element, or the element of one lane, of a buffer that is not in memory. Returns `None` for a buffer
    /// in memory.
    fn element(
        body: &mut Body<'_, Self>,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        lane: &str,
    ) -> Result<Option<String>>;

    /// Generates a store of several lanes.
    fn store_vector(body: &mut Body<'_, Self>, node: &BufferStore) -> Result<()>;

    /// Generates a variable with several lanes. [`Body::lane`] indexes it like an array.
    fn bind_vector(body: &mut Body<'_, Self>, var: &Ref<Var>, value: &Expr) -> Result<()>;

    /// Generates a call of a function of the tables in `math.rs`. Its arguments have one type, `float32` or `float64`.
    fn math(name: &str, dtype: DType, args: &[String]) -> String;

    /// Generates the conversion of a value from or to a 16-bit floating-point number, which is represented by its bits.
    fn convert_half(body: &mut Body<'_, Self>, value: &str, from: DType, to: DType) -> Result<String>;

    /// Generates a call of a packed function as a statement. The result is stored in a variable with a data type, if it
    /// is wanted.
    fn call_packed(body: &mut Body<'_, Self>, call: &Call, result: Option<(&str, DType)>) -> Result<()>;

    /// Generates a call of a function of the language, as an expression.
    fn call_extern(body: &mut Body<'_, Self>, call: &Call) -> Result<String>;

    /// Generates the line that ends the function with an error of a kind if a condition does not hold.
    fn check(body: &Body<'_, Self>, condition: &str, kind: &Literal, message: &Message) -> String;
}
