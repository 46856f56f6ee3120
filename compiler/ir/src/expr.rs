//! Expressions: nodes that have a value of one data type.

use anyfn::abi::kDLUInt;
use anyfn::{Array, DType, Object, ObjectRef, Ref, String};

use crate::buffer::Buffer;

/// Reference to an expression of any kind.
pub type Expr = Ref<PrimExpr>;

/// Base type of all expressions.
#[derive(Object)]
#[object(key = "tir.PrimExpr", structural = "tree", child_slots = 60)]
pub struct PrimExpr {
    /// Data type of the value.
    pub dtype: DType,
}

/// Variable. Two variables with the same name are distinct.
#[derive(Object)]
#[object(key = "tir.Var", parent = PrimExpr, structural = "var")]
#[repr(C)]
pub struct Var {
    pub(crate) base: PrimExpr,
    /// Name hint of the variable, used for printing.
    #[field(structural = "ignore")]
    pub name: String,
}

/// Integer or Boolean constant.
#[derive(Object)]
#[object(key = "tir.IntImm", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct IntImm {
    pub(crate) base: PrimExpr,
    /// Value of the constant, which is in the range of its data type. A `uint64` value is stored as the
    /// `int64` with the same bits.
    pub value: i64,
}

impl IntImm {
    /// Returns the value of the constant. A `uint64` value may be beyond the range of `int64`.
    #[must_use]
    pub fn whole(&self) -> i128 {
        if is_unsigned_64(self.base.dtype) { (self.value as u64).into() } else { self.value.into() }
    }
}

/// Returns true for `uint64`, whose constants store the bits of the value as an `i64`.
pub(crate) fn is_unsigned_64(dtype: DType) -> bool {
    dtype.0.code == kDLUInt && dtype.0.bits == 64
}

/// Constant of a floating-point type.
#[derive(Object)]
#[object(key = "tir.FloatImm", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct FloatImm {
    pub(crate) base: PrimExpr,
    /// Value of the constant in double precision. It is rounded to the data type where the constant is used.
    pub value: f64,
}

/// String constant, for use as an argument of a packed function.
#[derive(Object)]
#[object(key = "tir.StringImm", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct StringImm {
    pub(crate) base: PrimExpr,
    /// Content of the string constant.
    pub value: String,
}

/// Conversion of a value to another data type.
#[derive(Object)]
#[object(key = "tir.Cast", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Cast {
    pub(crate) base: PrimExpr,
    /// Value that the cast converts to another data type.
    pub value: Expr,
}

/// Operation on two values of the same data type.
#[derive(Object)]
#[object(key = "tir.BinaryExpr", parent = PrimExpr, structural = "tree", child_slots = 20)]
#[repr(C)]
pub struct Binary {
    pub(crate) base: PrimExpr,
    /// Left operand.
    pub a: Expr,
    /// Right operand.
    pub b: Expr,
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $key:literal $text:literal $precedence:literal,)*) => {
        $(
            $(#[$doc])*
            #[derive(Object)]
            #[object(key = $key, parent = Binary, structural = "tree", final)]
            #[repr(C)]
            pub struct $name {
                pub(crate) base: Binary,
            }
        )*

        /// Kind of a binary operation.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum BinaryOp {
            $($(#[$doc])* $name,)*
        }

        impl BinaryOp {
            /// All binary operations.
            pub const ALL: &[BinaryOp] = &[$(BinaryOp::$name),*];

            /// Returns the printed form of the operation: an operator such as `+`, or the name of a function such as
            /// `min`.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(BinaryOp::$name => $text,)* }
            }

            /// Returns the precedence of the operator. Returns 0 for an operation that is printed as a function call.
            #[must_use]
            pub const fn precedence(self) -> u8 {
                match self { $(BinaryOp::$name => $precedence,)* }
            }

            /// Returns the type index of the nodes that represent this operation.
            #[must_use]
            pub fn type_index(self) -> i32 {
                match self { $(BinaryOp::$name => $name::type_index(),)* }
            }

            /// Creates a node for this operation. The operands must have matching data types. `dtype` is the data type
            /// of the result.
            pub(crate) fn node(self, dtype: DType, a: Expr, b: Expr) -> Expr {
                let base = Binary { base: PrimExpr { dtype }, a, b };
                match self {
                    $(BinaryOp::$name => Ref::new($name { base }).into_parent().into_parent(),)*
                }
            }
        }
    };
}

binary! {
    /// Sum of two numbers.
    Add "tir.Add" "+" 8,
    /// Difference of two numbers.
    Sub "tir.Sub" "-" 8,
    /// Product of two numbers.
    Mul "tir.Mul" "*" 9,
    /// Quotient of two numbers; for integers, rounded towards zero.
    Div "tir.Div" "/" 9,
    /// Remainder of the truncating division ([`Div`]), with the sign of the left operand.
    Mod "tir.Mod" "truncmod" 0,
    /// Quotient of two integers, rounded down.
    FloorDiv "tir.FloorDiv" "//" 9,
    /// Remainder of the floor division ([`FloorDiv`]), with the sign of the right operand.
    FloorMod "tir.FloorMod" "%" 9,
    /// Minimum of two numbers; NaN if either operand is NaN.
    Min "tir.Min" "min" 0,
    /// Maximum of two numbers; NaN if either operand is NaN.
    Max "tir.Max" "max" 0,
    /// Equality comparison of two values.
    Eq "tir.EQ" "==" 3,
    /// Inequality comparison of two values.
    Ne "tir.NE" "!=" 3,
    /// Less-than comparison of two values.
    Lt "tir.LT" "<" 3,
    /// Less-than-or-equal comparison of two values.
    Le "tir.LE" "<=" 3,
    /// Greater-than comparison of two values.
    Gt "tir.GT" ">" 3,
    /// Greater-than-or-equal comparison of two values.
    Ge "tir.GE" ">=" 3,
    /// Bitwise AND of two integers.
    BitAnd "tir.BitAnd" "&" 6,
    /// Bitwise OR of two integers.
    BitOr "tir.BitOr" "|" 4,
    /// Bitwise XOR of two integers.
    BitXor "tir.BitXor" "^" 5,
    /// Left shift of an integer. The shift count is taken modulo the number of bits.
    ShiftLeft "tir.ShiftLeft" "<<" 7,
    /// Right shift of an integer that preserves its sign. The shift count is taken modulo the number of bits.
    ShiftRight "tir.ShiftRight" ">>" 7,
    /// Logical AND of two Booleans.
    And "tir.And" "and" 2,
    /// Logical OR of two Booleans.
    Or "tir.Or" "or" 1,
}

impl BinaryOp {
    /// Returns true for a comparison, whose result is a Boolean.
    #[must_use]
    pub const fn is_comparison(self) -> bool {
        self.precedence() == 3
    }

    /// Returns true for a bitwise operation on integers, including shifts.
    #[must_use]
    pub const fn is_bitwise(self) -> bool {
        use BinaryOp::{BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight};
        matches!(self, BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight)
    }

    /// Returns true for a left or right shift.
    #[must_use]
    pub const fn is_shift(self) -> bool {
        matches!(self, BinaryOp::ShiftLeft | BinaryOp::ShiftRight)
    }

    /// Returns true for a logical operation, whose operands are Booleans.
    #[must_use]
    pub const fn is_logical(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or)
    }
}

/// Logical negation of a Boolean.
#[derive(Object)]
#[object(key = "tir.Not", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Not {
    pub(crate) base: PrimExpr,
    /// Operand of the negation.
    pub a: Expr,
}

/// Choice between two values by a condition. If the condition is a scalar, the value that is not
/// chosen is not evaluated.
#[derive(Object)]
#[object(key = "tir.Select", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Select {
    pub(crate) base: PrimExpr,
    /// Condition that chooses between `true_value` and `false_value`.
    pub condition: Expr,
    /// Value of the expression if the condition holds.
    pub true_value: Expr,
    /// Value of the expression if the condition does not hold.
    pub false_value: Expr,
}

/// Load of an element of a buffer.
#[derive(Object)]
#[object(key = "tir.BufferLoad", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct BufferLoad {
    pub(crate) base: PrimExpr,
    /// Buffer that the load reads.
    pub buffer: Ref<Buffer>,
    /// Index of the loaded element in each dimension. The last index may be a vector.
    pub indices: Array<Expr>,
}

/// Source of the elements that a [`ProducerLoad`] reads, such as the tensor that a tensor expression defines.
/// Such a source has no buffer yet.
#[derive(Object)]
#[object(key = "tir.DataProducer", structural = "tree", child_slots = 4)]
pub struct DataProducer {
    /// Extent of each dimension.
    pub shape: Array<Expr>,
    /// Data type of the elements.
    pub dtype: DType,
}

/// Load of an element of a tensor that a tensor expression defines.
#[derive(Object)]
#[object(key = "tir.ProducerLoad", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct ProducerLoad {
    pub(crate) base: PrimExpr,
    /// Tensor that the load reads.
    pub producer: Ref<DataProducer>,
    /// Index of the loaded element in each dimension.
    pub indices: Array<Expr>,
}

/// Vector of equally spaced values: `start`, `start + stride`, and so on.
#[derive(Object)]
#[object(key = "tir.Ramp", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Ramp {
    pub(crate) base: PrimExpr,
    /// First value of the vector.
    pub start: Expr,
    /// Difference between the values of neighbouring lanes.
    pub stride: Expr,
    /// Number of lanes of the vector.
    pub lanes: i32,
}

/// Vector that repeats one value.
#[derive(Object)]
#[object(key = "tir.Broadcast", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Broadcast {
    pub(crate) base: PrimExpr,
    /// Value of each lane.
    pub value: Expr,
    /// Number of lanes of the vector.
    pub lanes: i32,
}

/// Call of a function known to code generators, such as `exp`, of a packed function, or of a C function. For
/// a packed function, `op` is `call_packed` and the first argument is the name of the function; for a C
/// function, `op` is `call_extern`.
#[derive(Object)]
#[object(key = "tir.Call", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Call {
    pub(crate) base: PrimExpr,
    /// Name of the function that is called, or of an operation such as `call_packed`.
    pub op: String,
    /// Arguments of the call: expressions, buffers and regions of buffers.
    pub args: Array<ObjectRef>,
}

/// Expression that binds a variable to a value within its body.
#[derive(Object)]
#[object(key = "tir.Let", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Let {
    pub(crate) base: PrimExpr,
    /// Variable that the expression binds.
    #[field(structural = "def")]
    pub var: Ref<Var>,
    /// Value to which the variable is bound.
    pub value: Expr,
    /// Expression in which the variable is visible.
    pub body: Expr,
}

/// Range of consecutive values.
#[derive(Object)]
#[object(key = "tir.Range", structural = "tree", final)]
pub struct Range {
    /// First value of the range.
    pub min: Expr,
    /// Number of values in the range.
    pub extent: Expr,
}

/// Axis of a tensor expression or of a block.
#[derive(Object)]
#[object(key = "tir.IterVar", structural = "tree", final)]
pub struct IterVar {
    /// Range of values that the axis takes.
    pub dom: Ref<Range>,
    /// Variable that holds the value of the axis.
    #[field(structural = "def")]
    pub var: Ref<Var>,
    /// Dependence between the iterations of the axis.
    pub kind: IterKind,
}

/// Combiner of a reduction: an operation with an identity element. It may combine several values at once, such as a
/// maximum and its index.
#[derive(Object)]
#[object(key = "tir.CommReducer", structural = "tree", final)]
pub struct CommReducer {
    /// Parameters of the combiner that receive the values combined so far.
    #[field(structural = "def")]
    pub lhs: Array<Ref<Var>>,
    /// Parameters of the combiner that receive the next values.
    #[field(structural = "def")]
    pub rhs: Array<Ref<Var>>,
    /// Combined values, as expressions of `lhs` and `rhs`.
    pub result: Array<Expr>,
    /// Identity element: combining it with a value gives that value.
    pub identity: Array<Expr>,
}

/// Reduction of a value over all values of the reduction axes.
#[derive(Object)]
#[object(key = "tir.Reduce", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Reduce {
    pub(crate) base: PrimExpr,
    /// Combiner that the reduction applies to the values.
    pub combiner: Ref<CommReducer>,
    /// Axes over which the values are reduced.
    #[field(structural = "def")]
    pub axis: Array<Ref<IterVar>>,
    /// Values that are reduced.
    pub source: Array<Expr>,
    /// Condition under which a value is included in the reduction. If the condition is false, the identity
    /// element is combined instead.
    pub condition: Expr,
    /// Index of the result of this expression among the results of the combiner.
    pub value_index: i32,
}

crate::text_enum! {
    /// Dependence between the iterations over an axis.
    IterKind {
        /// Iterations over the axis are independent of each other.
        Spatial = "spatial",
        /// Iterations over the axis update the same results, in any order.
        Reduce = "reduce",
        /// Iterations over the axis run one after the other.
        Ordered = "ordered",
    }
}

impl Reduce {
    /// Creates a reduction without checking it. The arguments must match each other in number and data type.
    #[must_use]
    pub fn make(
        base: PrimExpr,
        combiner: Ref<CommReducer>,
        axis: Array<Ref<IterVar>>,
        source: Array<Expr>,
        condition: Expr,
        value_index: i32,
    ) -> Expr {
        Ref::new(Reduce { base, combiner, axis, source, condition, value_index }).into_parent()
    }
}
