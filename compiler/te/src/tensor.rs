//! Tensors of tensor expressions, and the operations that compute them.

use std::collections::HashSet;

use anyfn::{Any, Array, DType, Map, Object, ObjectRef, Ref, Result, String, bail};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{DataProducer, Expr, IterKind, IterVar, Range, Reduce};
use anyfn_ir::kind::{as_int, is_beyond_int64};
use anyfn_ir::ops::{self, DTypeExt};
use anyfn_ir::stmt::Stmt;
use anyfn_ir::{printer, size};

/// Operation that defines one or more tensors.
#[derive(Object)]
#[object(key = "te.Operation", structural = "dag", child_slots = 8)]
pub struct Operation {
    /// Name hint, which is also the name of the block that computes the operation.
    #[field(structural = "ignore")]
    pub name: String,
    /// Annotations of the operation, for passes.
    pub attrs: Map<String, Any>,
}

/// Tensor: a result of an operation.
#[derive(Object)]
#[object(key = "te.Tensor", parent = DataProducer, structural = "dag", final)]
#[repr(C)]
pub struct Tensor {
    base: DataProducer,
    /// Operation that defines the tensor.
    pub op: Ref<Operation>,
    /// Index of the tensor among the results of the operation.
    pub value_index: i32,
}

/// Placeholder: an input tensor, which is passed to the function.
#[derive(Object)]
#[object(key = "te.PlaceholderOp", parent = Operation, structural = "dag", final)]
#[repr(C)]
pub struct PlaceholderOp {
    base: Operation,
    /// Extent of each dimension.
    pub shape: Array<Expr>,
    /// Data type of the elements.
    pub dtype: DType,
}

/// Operation that computes tensors element by element.
#[derive(Object)]
#[object(key = "te.ComputeOp", parent = Operation, structural = "dag", final)]
#[repr(C)]
pub struct ComputeOp {
    base: Operation,
    /// Axes of the computed tensors: one for each dimension.
    #[field(structural = "def")]
    pub axis: Array<Ref<IterVar>>,
    /// Value of an element of each tensor. Either all values are results of the same reduction, or none is a reduction.
    pub body: Array<Expr>,
}

/// Operation that computes tensors by a statement, its `body`.
#[derive(Object)]
#[object(key = "te.ExternOp", parent = Operation, structural = "dag", final)]
#[repr(C)]
pub struct ExternOp {
    pub(crate) base: Operation,
    /// Tensors that the body reads.
    pub inputs: Array<Ref<Tensor>>,
    /// Buffers from which the body reads the inputs, one for each input.
    #[field(structural = "def")]
    pub input_buffers: Array<Ref<Buffer>>,
    /// Buffers to which the body writes the results, one for each result.
    #[field(structural = "def")]
    pub output_buffers: Array<Ref<Buffer>>,
    /// Statement that computes the results.
    pub body: Stmt,
}

impl Tensor {
    pub(crate) fn make(op: Ref<Operation>, value_index: i32, shape: Array<Expr>, dtype: DType) -> Ref<Tensor> {
        Ref::new(Tensor { base: DataProducer { shape, dtype }, op, value_index })
    }

    /// Returns the name hint of the operation that defines the tensor.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.op.name
    }
}

/// Creates the load of an element of a tensor.
///
/// # Errors
/// Returns `IndexError` if the number of indices differs from the number of dimensions, and `TypeError` if an index is
/// not an integer or if an index other than the last one is a vector.
pub fn element(tensor: &Ref<Tensor>, indices: Array<Expr>) -> Result<Expr> {
    ops::produce(&tensor.clone().into_parent(), tensor.name(), indices)
}

/// Creates a placeholder: an input tensor, which is passed when the function is called.
///
/// # Errors
/// Returns `TypeError` if an extent is not an integer, and `ValueError` if it is negative or exceeds `int64`.
pub fn placeholder(shape: Array<Expr>, dtype: DType, name: &str) -> Result<Ref<Tensor>> {
    check_shape(name, &shape)?;
    let base = Operation { name: name.into(), attrs: Map::new() };
    let op = Ref::new(PlaceholderOp { base, shape: shape.clone(), dtype });
    Ok(Tensor::make(op.into_parent(), 0, shape, dtype))
}

/// Creates a tensor. The function `element` receives the indices of an element and returns the
/// expression that computes the element.
///
/// # Errors
/// Returns the error of `element`, `TypeError` if an extent is not an integer, and `ValueError` if it is negative or
/// exceeds `int64`. Returns `TypeError` if a reduction is nested in another expression.
pub fn compute(
    shape: Array<Expr>,
    name: &str,
    element: impl FnOnce(Array<Expr>) -> Result<Expr>,
) -> Result<Ref<Tensor>> {
    let tensors = compute_several(shape, name, |indices| Ok([element(indices)?].into_iter().collect()))?;
    tensors.get(0)
}

/// Creates several tensors of the same shape whose elements are computed together.
///
/// # Errors
/// Returns the errors of [`compute`], `ValueError` if there is no value, and `TypeError` if not all values are results of
/// the same reduction.
pub fn compute_several(
    shape: Array<Expr>,
    name: &str,
    elements: impl FnOnce(Array<Expr>) -> Result<Array<Expr>>,
) -> Result<Array<Ref<Tensor>>> {
    check_shape(name, &shape)?;
    // Loops are fused and tiled together, so all loop variables have the same data type.
    let counts = shape.iter().map(|extent| extent.dtype).reduce(|a, b| if a == b { a } else { DType::INT64 });
    let counts = counts.unwrap_or(DType::INT32);
    let axis: Array<Ref<IterVar>> = shape
        .iter()
        .enumerate()
        .map(|(place, extent)| axis_of(&format!("i{place}"), ops::cast(extent, counts)?, IterKind::Spatial))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .collect();
    let indices = axis.iter().map(|axis| axis.var.clone().into_parent()).collect();
    let body = elements(indices)?;
    if body.is_empty() {
        bail!("ValueError", "`{name}` computes nothing: its function returns no value");
    }
    for value in body.iter() {
        size::check_acyclic(&value, &format!("the element of `{name}`"))?;
    }
    check_body(name, &body)?;
    let dtypes: Vec<DType> = body.iter().map(|value| value.dtype).collect();
    let base = Operation { name: name.into(), attrs: Map::new() };
    let op = Ref::new(ComputeOp { base, axis, body }).into_parent();
    let tensors = dtypes.into_iter().zip(0..);
    Ok(tensors.map(|(dtype, place)| Tensor::make(op.clone(), place, shape.clone(), dtype)).collect())
}

/// Creates a reduction axis that takes `extent` consecutive values, beginning with `min`.
///
/// # Errors
/// Returns `TypeError` if the bounds are not integers or cannot be converted to a common type, and `ValueError` if the
/// extent is negative or a bound exceeds `int64`.
pub fn reduce_axis(min: Expr, extent: Expr, name: &str) -> Result<Ref<IterVar>> {
    let (min, extent) = ops::unify(min, extent)?;
    if let Some(large) = [&min, &extent].into_iter().find(|bound| is_beyond_int64(bound)) {
        let text = printer::brief(large.as_object());
        bail!("ValueError", "the bounds of axis `{name}` must fit into int64 but one is {text}");
    }
    size::check_expr(&min, &format!("the begin of axis `{name}`"))?;
    size::check_expr(&extent, &format!("the extent of axis `{name}`"))?;
    if !extent.dtype.is_integer() {
        bail!("TypeError", "the bounds of axis `{name}` must be integers but are {}", extent.dtype);
    }
    if let Some(value) = as_int(&extent)
        && value < 0
    {
        bail!("ValueError", "axis `{name}` ends {} before it begins", value.unsigned_abs());
    }
    let var = ops::var(name, extent.dtype);
    Ok(Ref::new(IterVar { dom: Ref::new(Range { min, extent }), var, kind: IterKind::Reduce }))
}

fn axis_of(name: &str, extent: Expr, kind: IterKind) -> Result<Ref<IterVar>> {
    let var = ops::var(name, extent.dtype);
    let min = ops::int(0, extent.dtype)?;
    Ok(Ref::new(IterVar { dom: Ref::new(Range { min, extent }), var, kind }))
}

pub(crate) fn check_shape(name: &str, shape: &Array<Expr>) -> Result<()> {
    for (place, extent) in shape.iter().enumerate() {
        if !extent.dtype.is_integer() || extent.dtype.lanes() != 1 {
            bail!("TypeError", "extent {place} of `{name}` must be an integer but is {}", extent.dtype);
        }
        if is_beyond_int64(&extent) {
            bail!(
                "ValueError",
                "extent {place} of `{name}` must fit into int64 but is {}",
                printer::brief(extent.as_object())
            );
        }
        size::check_expr(&extent, &format!("extent {place} of `{name}`"))?;
        if let Some(value) = as_int(&extent)
            && value < 0
        {
            bail!("ValueError", "extent {place} of `{name}` must not be negative but is {value}");
        }
    }
    Ok(())
}

/// Checks that reductions are not nested in other expressions, and that either all values are results of the
/// same reduction, or none is a reduction.
fn check_body(name: &str, body: &Array<Expr>) -> Result<()> {
    struct Inner(bool, HashSet<usize>);
    impl anyfn_ir::visit::Visitor for Inner {
        fn expr(&mut self, expr: &Expr) {
            // Shared subexpressions are visited once.
            if self.1.insert(expr.as_object().as_handle().addr()) {
                self.0 |= expr.is::<Reduce>();
                self.below_expr(expr);
            }
        }
    }
    let mut first: Option<Ref<Reduce>> = None;
    for (place, value) in body.iter().enumerate() {
        let mut inner = Inner(false, HashSet::new());
        anyfn_ir::visit::Visitor::below_expr(&mut inner, &value);
        if inner.0 {
            bail!(
                "TypeError",
                "`{name}`: a reduction is part of another expression; compute it as a separate tensor"
            );
        }
        let reduce = value.cast::<Reduce>().ok();
        let fits = match (&first, &reduce) {
            _ if place == 0 => true,
            (Some(first), Some(other)) => {
                first.combiner.ptr_eq(&other.combiner)
                    && first.source.as_object().ptr_eq(other.source.as_object())
            }
            (first, other) => first.is_none() && other.is_none(),
        };
        if !fits {
            bail!(
                "TypeError",
                "`{name}`: either all results or none must come from a reduction, and from the same one"
            );
        }
        first = first.or(reduce);
    }
    Ok(())
}

/// Returns the tensors in an object, which must be a tensor or an array of tensors.
///
/// # Errors
/// Returns `TypeError` for any other object.
pub fn tensors_of(object: ObjectRef) -> Result<Vec<Ref<Tensor>>> {
    match Ref::<Tensor>::try_from_object(object) {
        Ok(tensor) => Ok(vec![tensor]),
        Err(object) => Any::from(object).get::<Vec<Ref<Tensor>>>(),
    }
}
