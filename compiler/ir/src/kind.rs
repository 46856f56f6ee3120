//! Expressions and statements as enums, for use in `match`.

use std::sync::OnceLock;

use anyfn::{Object, Ref};

use crate::expr::{
    Binary, BinaryOp, Broadcast, BufferLoad, Call, Cast, Expr, FloatImm, IntImm, Let, Not, ProducerLoad, Ramp,
    Reduce, Select, StringImm, Var,
};
use crate::stmt::{
    Allocate, AssertStmt, Block, BlockRealize, BufferStore, Evaluate, For, IfThenElse, Launch, LetStmt,
    SeqStmt, Stmt,
};

/// Table that maps a type index to the position of the type in a list of node types. It is built at first
/// use.
struct TypePositions(OnceLock<Vec<u8>>);

impl TypePositions {
    const NONE: u8 = u8::MAX;

    /// Returns the position in `list` of the type whose index is `type_index`. Returns `None` if
    /// the list does not contain the type.
    #[inline]
    fn find(&self, type_index: i32, list: fn() -> Vec<i32>) -> Option<usize> {
        let table = self.0.get_or_init(|| {
            let list = list();
            let size = list.iter().max().map_or(0, |largest| *largest as usize + 1);
            let mut table = vec![TypePositions::NONE; size];
            for (place, index) in (0..).zip(list) {
                table[index as usize] = place;
            }
            table
        });
        let place = *table.get(usize::try_from(type_index).ok()?)?;
        (place != TypePositions::NONE).then_some(usize::from(place))
    }
}

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident of $node:ident { $($variant:ident,)* } and { $($more:tt)* } otherwise $rest:path) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub enum $name<'a> {
            $(#[doc = concat!("A [`", stringify!($variant), "`].")] $variant(&'a Ref<$variant>),)*
            $($more)*
            /// Node of a type that is not defined in this crate.
            Other,
        }

        impl<'a> $name<'a> {
            /// Returns the kind of a node.
            #[must_use]
            pub fn of(node: &'a $node) -> $name<'a> {
                static PLACES: TypePositions = TypePositions(OnceLock::new());
                let place = PLACES.find(node.as_object().type_index(), || vec![$($variant::type_index()),*]);
                type Make<'a> = fn(&'a $node) -> Option<$name<'a>>;
                let makes: &[Make<'a>] = &[$(|node| node.cast_ref().map($name::$variant)),*];
                place.and_then(|place| makes[place](node)).unwrap_or_else(|| $rest(node))
            }
        }
    };
}

kinds! {
    /// Expression as an enum, with a variant for each node type.
    ExprKind of Expr {
        Var, IntImm, FloatImm, StringImm, Cast, Not, Select, BufferLoad, ProducerLoad, Ramp, Broadcast, Call, Let,
        Reduce,
    } and {
        /// Binary operation on two values.
        Binary(BinaryOp, &'a Ref<Binary>),
    } otherwise binary
}

kinds! {
    /// Statement as an enum, with a variant for each node type.
    StmtKind of Stmt {
        BufferStore, For, Launch, SeqStmt, IfThenElse, LetStmt, Allocate, Evaluate, AssertStmt, Block,
        BlockRealize,
    } and {} otherwise other
}

fn binary(node: &Expr) -> ExprKind<'_> {
    static PLACES: TypePositions = TypePositions(OnceLock::new());
    let list = || BinaryOp::ALL.iter().map(|op| op.type_index()).collect();
    let place = PLACES.find(node.as_object().type_index(), list);
    match (place, node.cast_ref::<Binary>()) {
        (Some(place), Some(node)) => ExprKind::Binary(BinaryOp::ALL[place], node),
        _ => ExprKind::Other,
    }
}

fn other(_: &Stmt) -> StmtKind<'_> {
    StmtKind::Other
}

/// Returns the value of an integer or Boolean constant. Returns `None` for a `uint64` constant
/// beyond the range of `int64`, and for any other expression.
#[must_use]
pub fn as_int(expr: &Expr) -> Option<i64> {
    expr.cast_ref::<IntImm>().and_then(|node| i64::try_from(node.whole()).ok())
}

/// Returns true if an expression is an integer constant beyond the range of `int64`. Such a constant cannot
/// be an extent, index or trip count.
#[must_use]
pub fn is_beyond_int64(expr: &Expr) -> bool {
    expr.cast_ref::<IntImm>().is_some_and(|node| i64::try_from(node.whole()).is_err())
}

/// Returns true if an expression is the integer constant `value`.
#[must_use]
pub fn is_int(expr: &Expr, value: i64) -> bool {
    as_int(expr) == Some(value)
}
