//! Node types that are defined in Rust, and a Rust function that applies the global graph functions. A graph
//! may contain nodes from any language.

use anyfn::{Any, Array, DType, Object, ObjectRef, Ref, Result, String, register, registry};

anyfn::export!();

/// A node whose value is the value of its input multiplied by a factor.
#[derive(Object, Debug)]
#[object(key = "graph.Scale", structural = "tree")]
struct Scale {
    /// Node whose value is multiplied.
    input: ObjectRef,
    /// Factor by which the value is multiplied.
    #[field(default = 2.0)]
    factor: f64,
}

/// An operation that computes tensors.
#[derive(Object, Debug)]
#[object(key = "graph.Operation", structural = "tree")]
struct Operation {
    /// Name of the operation.
    name: String,
}

/// A tensor in a computation.
#[derive(Object, Debug)]
#[object(key = "graph.TensorNode", structural = "tree")]
struct TensorNode {
    /// Extent of each dimension.
    shape: Array<i64>,
    /// Data type of the elements.
    dtype: DType,
    /// Operation that computes the tensor.
    #[field(default = None)]
    op: Option<Ref<Operation>>,
    /// Index of the tensor among the results of the operation.
    #[field(default = 0)]
    value_index: i32,
}

/// Creates a tensor that the computation takes as input.
#[register("graph.placeholder")]
fn placeholder(
    shape: Array<i64>,
    #[default("float32")] dtype: &str,
    #[default("x")] name: &str,
) -> Result<Ref<TensorNode>> {
    let op = Some(Ref::new(Operation { name: name.into() }));
    Ok(Ref::new(TensorNode { shape, dtype: dtype.parse()?, op, value_index: 0 }))
}

/// Prints, compares, hashes, copies, saves and loads a graph. Returns the length of its printed form in characters.
#[register("graph.check")]
fn check(root: ObjectRef) -> Result<usize> {
    let get = |name: &str| registry::get(name);
    let root = Any::from(root);
    let (equal, hash) = (get("ffi.StructuralEqual")?, get("ffi.StructuralHash")?);
    let is_equal = |other: &Any| equal.call((&root, other, false, false))?.get::<bool>();
    let hash_of = |value: &Any| hash.call((value, false, false))?.get::<i64>();
    let copy = get("ffi.DeepCopy")?.call((&root,))?;
    let saved = get("ffi.ToJSONGraphString")?.call((&root, ()))?;
    let loaded = get("ffi.FromJSONGraphString")?.call((saved,))?;
    if !is_equal(&copy)? || !is_equal(&loaded)? || hash_of(&root)? != hash_of(&loaded)? {
        anyfn::bail!("ValueError", "what was copied or saved differs");
    }
    Ok(get("ffi.ReprPrint")?.call((&root,))?.get::<String>()?.chars().count())
}
