//! Constructors of IR nodes for other languages. They check their arguments, but do not fold
//! constants.

use anyfn::{DType, Ref, Result, String, bail, methods};

use crate::buffer::Buffer;
use crate::expr::{
    Add, And, Binary, BinaryOp, BitAnd, BitOr, BitXor, Broadcast, BufferLoad, Call, Cast, DataProducer, Div,
    Eq, Expr, FloatImm, FloorDiv, FloorMod, Ge, Gt, IntImm, Le, Let, Lt, Max, Min, Mod, Mul, Ne, Not, Or,
    PrimExpr, ProducerLoad, Ramp, Select, ShiftLeft, ShiftRight, StringImm, Sub, Var,
};
use crate::operand::{Argument, Operand, exprs};
use crate::ops::{self, DTypeExt, HANDLE, math_arity};

/// Expands to `Ok` with the content of a newly created node, or to an error if the type of the node
/// is not `$node`.
macro_rules! only {
    ($made:expr, $node:ident { $($field:ident),* }) => {{
        let made: Expr = $made;
        match made.cast_ref::<$node>() {
            Some(node) => Ok($node { base: PrimExpr { dtype: node.dtype }, $($field: node.$field.clone()),* }),
            None => bail!("ValueError", "expected {}, got {}", $node::NAME, made.as_object().type_key()),
        }
    }};
}

macro_rules! names {
    ($($node:ident),*) => { $(impl $node { const NAME: &'static str = stringify!($node); })* };
}

names!(IntImm, BufferLoad, ProducerLoad, Ramp, Broadcast, Let);

#[methods]
impl Var {
    /// Creates a variable.
    #[init]
    fn new(name: String, #[default("int32")] dtype: DType) -> Var {
        Var { base: PrimExpr { dtype }, name }
    }
}

#[methods]
impl IntImm {
    /// Creates an integer or Boolean constant of a data type.
    #[init]
    fn new(dtype: DType, value: i128) -> Result<IntImm> {
        only!(ops::whole(value, dtype.element())?, IntImm { value })
    }
}

#[methods]
impl FloatImm {
    /// Creates a floating-point constant of a data type.
    #[init]
    fn new(dtype: DType, value: f64) -> Result<FloatImm> {
        ops::float(value, dtype.element())?;
        Ok(FloatImm { base: PrimExpr { dtype: dtype.element() }, value })
    }
}

#[methods]
impl StringImm {
    /// Creates a string constant.
    #[init]
    fn new(value: String) -> StringImm {
        StringImm { base: PrimExpr { dtype: HANDLE }, value }
    }
}

#[methods]
impl Cast {
    /// Creates a conversion of a value to another data type.
    #[init]
    fn new(dtype: DType, value: Operand) -> Result<Cast> {
        ops::cast(value.0.clone(), dtype)?;
        Ok(Cast { base: PrimExpr { dtype }, value: value.0 })
    }
}

macro_rules! binary {
    ($($node:ident)*) => { $(
        #[methods]
        impl $node {
            /// Creates a binary operation. The data types of the operands are unified.
            #[init]
            fn new(a: Operand, b: Operand) -> Result<$node> {
                let (dtype, a, b) = ops::checked(BinaryOp::$node, a.0, b.0)?;
                Ok($node { base: Binary { base: PrimExpr { dtype }, a, b } })
            }
        }
    )* };
}

binary!(Add Sub Mul Div Mod FloorDiv FloorMod Min Max Eq Ne Lt Le Gt Ge And Or);
binary!(BitAnd BitOr BitXor ShiftLeft ShiftRight);

#[methods]
impl Not {
    /// Creates the logical negation of a Boolean.
    #[init]
    fn new(a: Operand) -> Result<Not> {
        ops::not(a.0.clone())?;
        Ok(Not { base: PrimExpr { dtype: a.0.dtype }, a: a.0 })
    }
}

#[methods]
impl Select {
    /// Creates a choice between two values. If the condition is a scalar, the value that is not
    /// chosen is not evaluated.
    #[init]
    fn new(condition: Operand, true_value: Operand, false_value: Operand) -> Result<Select> {
        ops::select(condition.0.clone(), true_value.0.clone(), false_value.0.clone())?;
        let (true_value, false_value) = ops::unify(true_value.0, false_value.0)?;
        let base = PrimExpr { dtype: true_value.dtype };
        Ok(Select { base, condition: condition.0, true_value, false_value })
    }
}

#[methods]
impl BufferLoad {
    /// Creates a load of an element of a buffer.
    #[init]
    fn new(buffer: Ref<Buffer>, indices: Vec<Operand>) -> Result<BufferLoad> {
        only!(ops::load(&buffer, exprs(indices))?, BufferLoad { buffer, indices })
    }
}

#[methods]
impl ProducerLoad {
    /// Creates a load of an element of a tensor that a tensor expression defines.
    #[init]
    fn new(producer: Ref<DataProducer>, indices: Vec<Operand>) -> Result<ProducerLoad> {
        only!(ops::produce(&producer, "tensor", exprs(indices))?, ProducerLoad { producer, indices })
    }
}

#[methods]
impl Ramp {
    /// Creates the vector `start`, `start + stride`, and so on.
    #[init]
    fn new(start: Operand, stride: Operand, lanes: u16) -> Result<Ramp> {
        only!(ops::ramp(start.0, stride.0, lanes)?, Ramp { start, stride, lanes })
    }
}

#[methods]
impl Broadcast {
    /// Creates a vector that repeats one value.
    #[init]
    fn new(value: Operand, lanes: u16) -> Result<Broadcast> {
        if lanes < 2 {
            bail!("ValueError", "a vector needs at least 2 lanes but got {lanes}");
        }
        only!(ops::splat(value.0, lanes)?, Broadcast { value, lanes })
    }
}

#[methods]
impl Call {
    /// Creates a call of a function known to code generators, of a packed function, or of a C function. A number or a
    /// string among the arguments becomes a constant. The arguments of a mathematical function such as `exp` have the data
    /// type of the result, so a number takes that type.
    #[init]
    fn new(dtype: DType, op: String, args: Vec<Argument>) -> Call {
        let is_math = math_arity(&op).is_some();
        let object = |arg: Argument| if is_math { arg.adopted(dtype) } else { arg.into_object() };
        Call { base: PrimExpr { dtype }, op, args: args.into_iter().map(object).collect() }
    }
}

#[methods]
impl Let {
    /// Creates an expression that binds a variable to a value within its body.
    #[init]
    fn new(var: Ref<Var>, value: Operand, body: Operand) -> Result<Let> {
        only!(ops::bind(var, value.0, body.0)?, Let { var, value, body })
    }
}
