//! Tensor expressions: descriptions of a computation without a schedule.
//!
//! [`placeholder`] and [`compute`] describe tensors. [`create_prim_func`] creates a function from them, whose loops a
//! schedule can transform.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate anyfn_core as _;

mod external;
mod func;
pub mod notation;
mod reduce;
mod tensor;

pub use external::external;
pub use func::create_prim_func;
pub use reduce::{max, min, only_where, prod, reduce, reducer, sum};
pub use tensor::{
    ComputeOp, ExternOp, Operation, PlaceholderOp, Tensor, compute, compute_several, element, placeholder,
    reduce_axis, tensors_of,
};
