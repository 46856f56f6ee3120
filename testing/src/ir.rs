//! A small intermediate representation: what compilers define as objects, for tests of everything that follows from fields.

use anyfn::{Array, DType, Object, Ref, String};

/// An expression.
#[derive(Object, Debug)]
#[object(key = "testing.Expr", structural = "tree")]
pub struct Expr {}

/// A variable: two of the same name are different.
#[derive(Object, Debug)]
#[object(key = "testing.Var", parent = Expr, structural = "var")]
#[repr(C)]
pub struct Var {
    base: Expr,
    /// Name of the variable, for people.
    #[field(structural = "ignore")]
    pub name: String,
}

/// An integer.
#[derive(Object, Debug)]
#[object(key = "testing.IntImm", parent = Expr, structural = "tree")]
#[repr(C)]
pub struct IntImm {
    base: Expr,
    /// The integer.
    pub value: i64,
}

/// A sum.
#[derive(Object, Debug)]
#[object(key = "testing.Add", parent = Expr, structural = "tree")]
#[repr(C)]
pub struct Add {
    base: Expr,
    /// What stands left.
    pub lhs: Ref<Expr>,
    /// What stands right.
    pub rhs: Ref<Expr>,
}

/// An expression in which a variable stands for another one.
#[derive(Object, Debug)]
#[object(key = "testing.Let", parent = Expr, structural = "tree")]
#[repr(C)]
pub struct Let {
    base: Expr,
    /// The variable that is defined here.
    #[field(structural = "def")]
    pub var: Ref<Var>,
    /// What it stands for.
    pub value: Ref<Expr>,
    /// Where it is used.
    pub body: Ref<Expr>,
}

/// A function: its parameters are defined for the body.
#[derive(Object, Debug)]
#[object(key = "testing.Func", structural = "tree")]
pub struct Func {
    /// The parameters.
    #[field(structural = "def")]
    pub params: Array<Ref<Var>>,
    /// The result.
    pub body: Ref<Expr>,
    /// A remark that does not count.
    #[field(structural = "ignore", default = "", kw_only, compare = false, hash = false)]
    pub comment: String,
}

/// What computes tensors.
#[derive(Object, Debug)]
#[object(key = "testing.Operation", structural = "tree")]
pub struct Operation {
    /// Name of the operation.
    pub name: String,
    /// The tensors that it reads.
    pub inputs: Array<Ref<TensorNode>>,
}

/// A tensor in a computation.
#[derive(Object, Debug)]
#[object(key = "testing.TensorNode", structural = "tree")]
pub struct TensorNode {
    /// Extent of each dimension.
    pub shape: Array<Ref<Expr>>,
    /// Type of the elements.
    pub dtype: DType,
    /// The operation that computes it; None for an input.
    #[field(default = None)]
    pub op: Option<Ref<Operation>>,
    /// Which result of the operation it is.
    #[field(default = 0)]
    pub value_index: i32,
}

impl Var {
    /// A new variable.
    pub fn make(name: &str) -> Ref<Var> {
        Ref::new(Var { base: Expr {}, name: name.into() })
    }
}

impl IntImm {
    /// An integer as an expression.
    pub fn make(value: i64) -> Ref<Expr> {
        Ref::new(IntImm { base: Expr {}, value }).into_parent()
    }
}

impl Add {
    /// A sum as an expression.
    pub fn make(lhs: Ref<Expr>, rhs: Ref<Expr>) -> Ref<Expr> {
        Ref::new(Add { base: Expr {}, lhs, rhs }).into_parent()
    }
}

impl Let {
    /// Such an expression.
    pub fn make(var: Ref<Var>, value: Ref<Expr>, body: Ref<Expr>) -> Ref<Expr> {
        Ref::new(Let { base: Expr {}, var, value, body }).into_parent()
    }
}
