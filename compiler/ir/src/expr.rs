//! Expressions: what has a value of one data type.

use anyfn::{Array, DType, Object, ObjectRef, Ref, String};

use crate::buffer::Buffer;
use crate::fold;

/// An expression of any kind.
pub type Expr = Ref<PrimExpr>;

/// What all expressions have.
#[derive(Object)]
#[object(key = "tir.PrimExpr", structural = "tree", child_slots = 60)]
pub struct PrimExpr {
    /// Data type of the value.
    pub dtype: DType,
}

/// A variable. Two of the same name are different.
#[derive(Object)]
#[object(key = "tir.Var", parent = PrimExpr, structural = "var")]
#[repr(C)]
pub struct Var {
    pub(crate) base: PrimExpr,
    /// Name for people.
    #[field(structural = "ignore")]
    pub name: String,
}

/// An integer or truth value.
#[derive(Object)]
#[object(key = "tir.IntImm", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct IntImm {
    pub(crate) base: PrimExpr,
    /// The value, which the data type can hold; of `uint64` the bits.
    pub value: i64,
}

impl IntImm {
    /// The value, beyond the signed range, too.
    #[must_use]
    pub fn whole(&self) -> i128 {
        if fold::is_unsigned_64(self.base.dtype) { (self.value as u64).into() } else { self.value.into() }
    }
}

/// A floating-point number.
#[derive(Object)]
#[object(key = "tir.FloatImm", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct FloatImm {
    pub(crate) base: PrimExpr,
    /// The value, rounded to the data type where it is used.
    pub value: f64,
}

/// A text, for calls of packed functions.
#[derive(Object)]
#[object(key = "tir.StringImm", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct StringImm {
    pub(crate) base: PrimExpr,
    /// The text.
    pub value: String,
}

/// A value as one of another data type.
#[derive(Object)]
#[object(key = "tir.Cast", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Cast {
    pub(crate) base: PrimExpr,
    /// What is converted.
    pub value: Expr,
}

/// An operation on two values of the same data type.
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

        /// Which operation on two values.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum BinaryOp {
            $($(#[$doc])* $name,)*
        }

        impl BinaryOp {
            /// All operations.
            pub const ALL: &[BinaryOp] = &[$(BinaryOp::$name),*];

            /// How it is printed: an operator, or the name of a function.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(BinaryOp::$name => $text,)* }
            }

            /// How strongly the operator binds; 0 for a function.
            #[must_use]
            pub const fn precedence(self) -> u8 {
                match self { $(BinaryOp::$name => $precedence,)* }
            }

            /// Index of the type of its nodes.
            #[must_use]
            pub fn type_index(self) -> i32 {
                match self { $(BinaryOp::$name => $name::type_index(),)* }
            }

            /// A node of two operands whose data types fit; `dtype` is that of the result.
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
    /// Sum.
    Add "tir.Add" "+" 8,
    /// Difference.
    Sub "tir.Sub" "-" 8,
    /// Product.
    Mul "tir.Mul" "*" 9,
    /// Quotient; of integers rounded towards zero.
    Div "tir.Div" "/" 9,
    /// Remainder of [`Div`], with the sign of the left operand.
    Mod "tir.Mod" "truncmod" 0,
    /// Quotient rounded down.
    FloorDiv "tir.FloorDiv" "//" 9,
    /// Remainder of [`FloorDiv`], with the sign of the right operand.
    FloorMod "tir.FloorMod" "%" 9,
    /// The smaller one; of floating-point numbers, NaN if one of them is.
    Min "tir.Min" "min" 0,
    /// The larger one; of floating-point numbers, NaN if one of them is.
    Max "tir.Max" "max" 0,
    /// Equal.
    Eq "tir.EQ" "==" 3,
    /// Not equal.
    Ne "tir.NE" "!=" 3,
    /// Less.
    Lt "tir.LT" "<" 3,
    /// Less or equal.
    Le "tir.LE" "<=" 3,
    /// Greater.
    Gt "tir.GT" ">" 3,
    /// Greater or equal.
    Ge "tir.GE" ">=" 3,
    /// The bits that both of two integers have.
    BitAnd "tir.BitAnd" "&" 6,
    /// The bits that one of two integers has.
    BitOr "tir.BitOr" "|" 4,
    /// The bits that exactly one of two integers has.
    BitXor "tir.BitXor" "^" 5,
    /// The bits of an integer, moved up; by how many counts modulo the number of bits.
    ShiftLeft "tir.ShiftLeft" "<<" 7,
    /// The bits of an integer, moved down, with its sign; by how many counts modulo the number of bits.
    ShiftRight "tir.ShiftRight" ">>" 7,
    /// Both of two truth values.
    And "tir.And" "and" 2,
    /// One of two truth values.
    Or "tir.Or" "or" 1,
}

impl BinaryOp {
    /// Whether the result is a truth value that compares two values.
    #[must_use]
    pub const fn is_comparison(self) -> bool {
        self.precedence() == 3
    }

    /// Whether it takes integers as their bits.
    #[must_use]
    pub const fn is_bitwise(self) -> bool {
        use BinaryOp::{BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight};
        matches!(self, BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight)
    }

    /// Whether it moves bits.
    #[must_use]
    pub const fn is_shift(self) -> bool {
        matches!(self, BinaryOp::ShiftLeft | BinaryOp::ShiftRight)
    }

    /// Whether it takes truth values.
    #[must_use]
    pub const fn is_logical(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or)
    }
}

/// The opposite of a truth value.
#[derive(Object)]
#[object(key = "tir.Not", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Not {
    pub(crate) base: PrimExpr,
    /// The truth value.
    pub a: Expr,
}

/// One of two values; of the other one nothing is read.
#[derive(Object)]
#[object(key = "tir.Select", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Select {
    pub(crate) base: PrimExpr,
    /// Which one it is.
    pub condition: Expr,
    /// The value if it holds.
    pub true_value: Expr,
    /// The value if not.
    pub false_value: Expr,
}

/// An element of a buffer.
#[derive(Object)]
#[object(key = "tir.BufferLoad", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct BufferLoad {
    pub(crate) base: PrimExpr,
    /// The buffer.
    pub buffer: Ref<Buffer>,
    /// The place, an index for each dimension; the last one may be a vector.
    pub indices: Array<Expr>,
}

/// What gives elements by their indices, before it has a buffer: a tensor of a computation.
#[derive(Object)]
#[object(key = "tir.DataProducer", structural = "tree", child_slots = 4)]
pub struct DataProducer {
    /// Extent of each dimension.
    pub shape: Array<Expr>,
    /// Data type of the elements.
    pub dtype: DType,
}

/// An element of a tensor of a computation.
#[derive(Object)]
#[object(key = "tir.ProducerLoad", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct ProducerLoad {
    pub(crate) base: PrimExpr,
    /// The tensor.
    pub producer: Ref<DataProducer>,
    /// The place, an index for each dimension.
    pub indices: Array<Expr>,
}

/// A vector of values with equal distances.
#[derive(Object)]
#[object(key = "tir.Ramp", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Ramp {
    pub(crate) base: PrimExpr,
    /// The first value.
    pub start: Expr,
    /// The distance.
    pub stride: Expr,
    /// Number of values.
    pub lanes: i32,
}

/// A vector of one value.
#[derive(Object)]
#[object(key = "tir.Broadcast", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Broadcast {
    pub(crate) base: PrimExpr,
    /// The value.
    pub value: Expr,
    /// Number of values.
    pub lanes: i32,
}

/// A call: of a function that code generators know (`exp`), or of a packed function (`call_packed`, whose first argument is
/// the name).
#[derive(Object)]
#[object(key = "tir.Call", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Call {
    pub(crate) base: PrimExpr,
    /// Name of the function.
    pub op: String,
    /// The arguments: expressions and buffers.
    pub args: Array<ObjectRef>,
}

/// An expression in which a variable stands for a value.
#[derive(Object)]
#[object(key = "tir.Let", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Let {
    pub(crate) base: PrimExpr,
    /// The variable.
    #[field(structural = "def")]
    pub var: Ref<Var>,
    /// What it stands for.
    pub value: Expr,
    /// Where it is used.
    pub body: Expr,
}

/// Values from the first one, in order.
#[derive(Object)]
#[object(key = "tir.Range", structural = "tree", final)]
pub struct Range {
    /// The first value.
    pub min: Expr,
    /// Number of values.
    pub extent: Expr,
}

/// An axis of a computation or of a block.
#[derive(Object)]
#[object(key = "tir.IterVar", structural = "tree", final)]
pub struct IterVar {
    /// The values it takes.
    pub dom: Ref<Range>,
    /// The variable.
    #[field(structural = "def")]
    pub var: Ref<Var>,
    /// What depends on it.
    pub kind: IterKind,
}

/// How two values become one in a reduction; for several values at once, all are combined together.
#[derive(Object)]
#[object(key = "tir.CommReducer", structural = "tree", final)]
pub struct CommReducer {
    /// What has been combined so far.
    #[field(structural = "def")]
    pub lhs: Array<Ref<Var>>,
    /// What comes next.
    #[field(structural = "def")]
    pub rhs: Array<Ref<Var>>,
    /// The combination.
    pub result: Array<Expr>,
    /// What combines with a value to that value.
    pub identity: Array<Expr>,
}

/// A value combined over all values of axes.
#[derive(Object)]
#[object(key = "tir.Reduce", parent = PrimExpr, structural = "tree", final)]
#[repr(C)]
pub struct Reduce {
    pub(crate) base: PrimExpr,
    /// How two values are combined.
    pub combiner: Ref<CommReducer>,
    /// The axes.
    #[field(structural = "def")]
    pub axis: Array<Ref<IterVar>>,
    /// What is combined.
    pub source: Array<Expr>,
    /// Where it is combined; elsewhere the identity is.
    pub condition: Expr,
    /// Which of the results this is.
    pub value_index: i32,
}

crate::text_enum! {
    /// How iterations of an axis depend on each other.
    IterKind {
        /// Not at all.
        Spatial = "spatial",
        /// They add to the same results, in any order.
        Reduce = "reduce",
        /// They come one after the other.
        Ordered = "ordered",
    }
}

impl Reduce {
    /// A node of parts that fit.
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
