//! Introduces variables for values that occur several times in an expression.
//!
//! User code that repeats `x = x * x + x` builds an expression of few distinct nodes. If a node is counted at each of
//! its occurrences, however, the number doubles or triples at each step. Everything that inspects, prints or compiles
//! expressions visits each occurrence. Therefore, shared parts of large expressions are assigned to variables first.

use std::collections::HashMap;

use anyfn::{Ref, Result};

use crate::expr::{BinaryOp, Expr, Var};
use crate::kind::ExprKind;
use crate::ops::DTypeExt;
use crate::stmt::Stmt;
use crate::visit::{Mutator, Visitor, on_enough_stack};
use crate::{StmtKind, make, ops, packed};

/// Minimum number of nodes of an expression in which variables are introduced. A shared node counts once for
/// each occurrence.
const LARGE: u64 = 1000;
/// Minimum number of nodes of a value for which a variable is introduced. A shared node counts once for each
/// occurrence.
const WORTH: u64 = 16;

/// Introduces variables for values that occur several times in large expressions.
///
/// Indices of elements are left unchanged. A variable is defined in front of the statement that uses it. Its value must
/// therefore be a number that the statement evaluates unconditionally, or one that is safe to evaluate because it
/// neither reads memory nor divides integers.
///
/// # Errors
/// Returns `MemoryError` when memory runs out.
pub fn name_shared(stmt: &Stmt) -> Result<Stmt> {
    struct Names;
    impl Mutator for Names {
        fn expr(&mut self, expr: &Expr) -> Result<Expr> {
            Ok(expr.clone())
        }

        fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
            let stmt = self.below_stmt(stmt)?;
            match StmtKind::of(&stmt) {
                StmtKind::BufferStore(node) => {
                    let Some((lets, value)) = named(&node.value)? else { return Ok(stmt) };
                    within(lets, make::store(&node.buffer, value, node.indices.clone())?)
                }
                StmtKind::LetStmt(node) => {
                    let Some((lets, value)) = named(&node.value)? else { return Ok(stmt) };
                    within(lets, make::let_stmt(node.var.clone(), value, node.body.clone())?)
                }
                StmtKind::IfThenElse(node) => {
                    let Some((lets, condition)) = named(&node.condition)? else { return Ok(stmt) };
                    within(lets, make::if_then(condition, node.then_case.clone(), node.else_case.clone())?)
                }
                _ => Ok(stmt),
            }
        }
    }
    Names.stmt(stmt)
}

/// Variables with their values. A value may use the variables before it in the list.
type Lets = Vec<(Ref<Var>, Expr)>;

fn within(lets: Lets, stmt: Stmt) -> Result<Stmt> {
    lets.into_iter().rev().try_fold(stmt, |body, (var, value)| make::let_stmt(var, value, body))
}

/// Returns the variables to introduce and the expression rewritten to use them, or `None` if no variable is
/// needed.
fn named(expr: &Expr) -> Result<Option<(Lets, Expr)>> {
    let mut uses = Uses { found: HashMap::new(), size: 0, is_sure: true, is_again: false, is_closed: true };
    uses.expr(expr);
    if uses.size < LARGE || !uses.is_closed {
        return Ok(None);
    }
    let mut name = Name { uses: &uses.found, done: HashMap::new(), here: Tree::default(), lets: Vec::new() };
    let value = name.expr(expr)?;
    let lets = name.lets;
    Ok((!lets.is_empty()).then_some((lets, value)))
}

fn is_leaf(expr: &Expr) -> bool {
    matches!(
        ExprKind::of(expr),
        ExprKind::Var(_) | ExprKind::IntImm(_) | ExprKind::FloatImm(_) | ExprKind::StringImm(_)
    )
}

fn address(expr: &Expr) -> usize {
    expr.as_object().as_handle().addr()
}

/// Occurrences of an expression in a larger expression: the number of occurrences, the size of the
/// expression, and whether an occurrence is evaluated unconditionally.
struct Use {
    places: u32,
    /// Number of nodes of the expression. A shared node counts once for each occurrence.
    size: u64,
    /// True if an occurrence of the expression is evaluated unconditionally.
    is_sure: bool,
}

struct Uses {
    /// Uses of each expression, by the address of the expression.
    found: HashMap<usize, Use>,
    /// Number of nodes visited so far. A shared node counts once for each occurrence.
    size: u64,
    is_sure: bool,
    /// True while an expression is visited again, because a later occurrence is evaluated
    /// unconditionally and no earlier occurrence was.
    is_again: bool,
    /// True as long as no visited node defines a variable, has side effects or is of an unknown type.
    is_closed: bool,
}

impl Uses {
    fn perhaps(&mut self, expr: &Expr) {
        let outer = std::mem::replace(&mut self.is_sure, false);
        self.expr(expr);
        self.is_sure = outer;
    }

    fn below(&mut self, expr: &Expr) {
        on_enough_stack(|| match ExprKind::of(expr) {
            ExprKind::Select(node) => {
                self.expr(&node.condition);
                self.perhaps(&node.true_value);
                self.perhaps(&node.false_value);
            }
            ExprKind::Binary(op, node) if op.is_logical() => {
                self.expr(&node.a);
                self.perhaps(&node.b);
            }
            ExprKind::BufferLoad(_) => {}
            ExprKind::Let(_) | ExprKind::Reduce(_) | ExprKind::Other => self.is_closed = false,
            ExprKind::Call(node) if packed::has_effect(node) => self.is_closed = false,
            _ => self.below_expr(expr),
        });
    }
}

impl Visitor for Uses {
    fn expr(&mut self, expr: &Expr) {
        if is_leaf(expr) {
            self.size = self.size.saturating_add(1);
            return;
        }
        let key = address(expr);
        if let Some(known) = self.found.get_mut(&key) {
            known.places += u32::from(!self.is_again);
            let size = known.size;
            // The operands are evaluated unconditionally, too. They are visited again to record this.
            let becomes_sure = self.is_sure && !known.is_sure;
            known.is_sure |= self.is_sure;
            if becomes_sure {
                let outer = (self.size, std::mem::replace(&mut self.is_again, true));
                self.below(expr);
                (self.size, self.is_again) = outer;
            }
            self.size = self.size.saturating_add(size);
            return;
        }
        let outer = std::mem::replace(&mut self.size, 1);
        self.found.insert(key, Use { places: 1, size: 1, is_sure: self.is_sure });
        self.below(expr);
        let size = self.size;
        if let Some(found) = self.found.get_mut(&key) {
            found.size = size;
        }
        self.size = outer.saturating_add(size);
    }
}

/// Size of a rewritten expression as a number of nodes. A shared node counts once for each occurrence.
#[derive(Clone, Copy, Default)]
struct Tree {
    size: u64,
    /// True if a part of the expression must not be moved: it may fail, and it is evaluated only under a condition.
    is_bound: bool,
}

struct Name<'a> {
    uses: &'a HashMap<usize, Use>,
    /// Cached results: the rewritten expression and its size, by the address of the original expression.
    done: HashMap<usize, (Expr, Tree)>,
    /// Accumulated size of the expression being rewritten.
    here: Tree,
    lets: Lets,
}

impl Mutator for Name<'_> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        let one = Tree { size: 1, is_bound: false };
        let (new, tree) = if is_leaf(expr) {
            (expr.clone(), one)
        } else if let Some((new, tree)) = self.done.get(&address(expr)) {
            (new.clone(), *tree)
        } else {
            let (places, is_sure) =
                self.uses.get(&address(expr)).map_or((1, false), |found| (found.places, found.is_sure));
            let own = Tree { size: 1, is_bound: needs_its_place(expr) };
            let outer = std::mem::replace(&mut self.here, own);
            // Blocks declare the indices they read, and the variables are not known in these declarations.
            let is_load = matches!(ExprKind::of(expr), ExprKind::BufferLoad(_));
            let new = if is_load { expr.clone() } else { self.below_expr(expr)? };
            let mut tree = std::mem::replace(&mut self.here, outer);
            tree.is_bound &= !is_sure;
            let is_number = expr.dtype.lanes() == 1
                && (expr.dtype.is_integer()
                    || expr.dtype.is_float()
                    || expr.dtype.is_bool()
                    || expr.dtype.is_half());
            let made = if places > 1 && !tree.is_bound && tree.size >= WORTH && is_number {
                let var = ops::var("shared", expr.dtype);
                self.lets.push((var.clone(), new));
                (var.into_parent(), one)
            } else {
                (new, tree)
            };
            self.done.insert(address(expr), made.clone());
            made
        };
        self.here.size = self.here.size.saturating_add(tree.size);
        self.here.is_bound |= tree.is_bound;
        Ok(new)
    }
}

/// Returns true if an operation may fail when it is evaluated, because it reads memory or divides
/// integers. Such an operation must not be moved out of a condition.
fn needs_its_place(expr: &Expr) -> bool {
    match ExprKind::of(expr) {
        ExprKind::BufferLoad(_) | ExprKind::ProducerLoad(_) => true,
        ExprKind::Binary(BinaryOp::Div | BinaryOp::Mod | BinaryOp::FloorDiv | BinaryOp::FloorMod, _) => {
            !expr.dtype.is_float()
        }
        _ => false,
    }
}
