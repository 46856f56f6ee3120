//! A small intermediate representation with node types such as compilers define. It tests the operations that
//! work on reflected fields.

use anyfn::{Array, DType, Object, Ref, String};

/// Base type of expressions.
#[derive(Object, Debug)]
#[object(key = "testing.Expr", structural = "tree")]
pub struct Expr {}

/// A variable. Two variables are different even if they have the same name.
#[derive(Object, Debug)]
#[object(key = "testing.Var", parent = Expr, structural = "var")]
#[repr(C)]
pub struct Var {
    base: Expr,
    /// Name of the variable, which comparison ignores.
    #[field(structural = "ignore")]
    pub name: String,
}

/// An integer constant.
#[derive(Object, Debug)]
#[object(key = "testing.IntImm", parent = Expr, structural = "tree")]
#[repr(C)]
pub struct IntImm {
    base: Expr,
    /// Value of the constant.
    pub value: i64,
}

/// Sum of two expressions.
#[derive(Object, Debug)]
#[object(key = "testing.Add", parent = Expr, structural = "tree")]
#[repr(C)]
pub struct Add {
    base: Expr,
    /// Left operand of the sum.
    pub lhs: Ref<Expr>,
    /// Right operand of the sum.
    pub rhs: Ref<Expr>,
}

/// An expression that binds a variable to the value of another expression within its body.
#[derive(Object, Debug)]
#[object(key = "testing.Let", parent = Expr, structural = "tree")]
#[repr(C)]
pub struct Let {
    base: Expr,
    /// Variable that the expression defines.
    #[field(structural = "def")]
    pub var: Ref<Var>,
    /// Value of the variable.
    pub value: Ref<Expr>,
    /// Expression in which the variable may be used.
    pub body: Ref<Expr>,
}

/// A function, whose parameters are variables that may be used in its body.
#[derive(Object, Debug)]
#[object(key = "testing.Func", structural = "tree")]
pub struct Func {
    /// Parameters of the function.
    #[field(structural = "def")]
    pub params: Array<Ref<Var>>,
    /// Result of the function.
    pub body: Ref<Expr>,
    /// Comment, which comparison and hashing ignore.
    #[field(structural = "ignore", default = "", kw_only, compare = false, hash = false)]
    pub comment: String,
}

/// An operation that computes tensors.
#[derive(Object, Debug)]
#[object(key = "testing.Operation", structural = "tree")]
pub struct Operation {
    /// Name of the operation.
    pub name: String,
    /// Tensors that the operation reads.
    pub inputs: Array<Ref<TensorNode>>,
}

/// A tensor in a computation.
#[derive(Object, Debug)]
#[object(key = "testing.TensorNode", structural = "tree")]
pub struct TensorNode {
    /// Extent of each dimension.
    pub shape: Array<Ref<Expr>>,
    /// Data type of the elements.
    pub dtype: DType,
    /// Operation that computes the tensor, or None for an input.
    #[field(default = None)]
    pub op: Option<Ref<Operation>>,
    /// Index of the tensor among the results of the operation.
    #[field(default = 0)]
    pub value_index: i32,
}

impl Var {
    /// Creates a variable.
    pub fn make(name: &str) -> Ref<Var> {
        Ref::new(Var { base: Expr {}, name: name.into() })
    }
}

impl IntImm {
    /// Creates an integer constant.
    pub fn make(value: i64) -> Ref<Expr> {
        Ref::new(IntImm { base: Expr {}, value }).into_parent()
    }
}

impl Add {
    /// Creates a sum.
    pub fn make(lhs: Ref<Expr>, rhs: Ref<Expr>) -> Ref<Expr> {
        Ref::new(Add { base: Expr {}, lhs, rhs }).into_parent()
    }
}

impl Let {
    /// Creates a let expression.
    pub fn make(var: Ref<Var>, value: Ref<Expr>, body: Ref<Expr>) -> Ref<Expr> {
        Ref::new(Let { base: Expr {}, var, value, body }).into_parent()
    }
}
