//! Interface to the parts of the code generator that differ between the languages of the C family.

use anyfn::{Array, DType, Ref, Result};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Call, Expr, Var};
use anyfn_ir::stmt::{BufferStore, For, Stmt};

use crate::family::{Body, Literal, Message};

/// A language of the C family, with the state of the code generator for one function. [`Body`] calls these methods to
/// generate code that differs between languages. The methods call [`Body`] to generate the code inside.
///
/// The language also provides the code in front of the functions of a module. That code must define the types and
/// macros of `stdint.h` that [`Body`] uses, `NAN`, `INFINITY`, the functions of [`SCALAR`](crate::family::SCALAR), and
/// the macro `ANYFN_IN_ORDER`, which precedes a sum in a loop that must not be reordered.
pub(crate) trait Dialect: Sized {
    /// Generates a loop of any kind. [`Body::plain_loop`] generates a loop whose iterations are executed in order.
    fn for_loop(body: &mut Body<'_, Self>, node: &For) -> Result<()>;

    /// Generates the allocation of a buffer around the statement that uses it.
    fn allocate(body: &mut Body<'_, Self>, buffer: &Ref<Buffer>, inner: &Stmt) -> Result<()>;

    /// Generates an access of an element of a buffer that is not in memory. If the last index is a vector, `lane`
    /// selects one of its lanes. Returns `None` for a buffer in memory.
    fn element(
        body: &mut Body<'_, Self>,
        buffer: &Ref<Buffer>,
        indices: &Array<Expr>,
        lane: &str,
    ) -> Result<Option<String>>;

    /// Generates a store of a vector.
    fn store_vector(body: &mut Body<'_, Self>, node: &BufferStore) -> Result<()>;

    /// Generates a variable whose value is a vector. [`Body::lane`] indexes the variable like an array.
    fn bind_vector(body: &mut Body<'_, Self>, var: &Ref<Var>, value: &Expr) -> Result<()>;

    /// Returns a call of a function whose name is in the tables of `math.rs`. All arguments have the data type `dtype`,
    /// which is `float32` or `float64`.
    fn math(name: &str, dtype: DType, args: &[String]) -> String;

    /// Returns the conversion of `value` from or to a 16-bit floating-point type. A 16-bit floating-point number is
    /// represented by an integer with the same bits.
    fn convert_half(body: &mut Body<'_, Self>, value: &str, from: DType, to: DType) -> Result<String>;

    /// Generates a call of a packed function as a statement. `result` is the name and data type of the variable that
    /// receives the result, or `None` if the result is discarded.
    fn call_packed(body: &mut Body<'_, Self>, call: &Call, result: Option<(&str, DType)>) -> Result<()>;

    /// Returns a call of a C function, as an expression.
    fn call_extern(body: &mut Body<'_, Self>, call: &Call) -> Result<String>;

    /// Returns a line that ends the function with an error of the given kind and message if a condition does not hold.
    fn check(body: &Body<'_, Self>, condition: &str, kind: &Literal, message: &Message) -> String;
}
