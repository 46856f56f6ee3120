//! Functions and modules.

use anyfn::{Any, Array, Map, Object, Ref, Result, String, methods};

use crate::buffer::Buffer;
use crate::expr::Var;
use crate::stmt::Stmt;

/// A function on buffers and numbers.
#[derive(Object)]
#[object(key = "tir.PrimFunc", structural = "tree", final)]
pub struct PrimFunc {
    /// The parameters. One that is a buffer is a variable of data type `handle`.
    #[field(structural = "def")]
    pub params: Array<Ref<Var>>,
    /// The buffers of such parameters.
    #[field(structural = "def")]
    pub buffer_map: Map<Ref<Var>, Ref<Buffer>>,
    /// What it does.
    pub body: Stmt,
    /// What passes and code generators need to know: `global_symbol` is the name under which it is called.
    pub attrs: Map<String, Any>,
}

/// Functions by name: what passes take and give.
#[derive(Object)]
#[object(key = "tir.IRModule", structural = "tree", final)]
pub struct IRModule {
    /// The functions.
    pub functions: Map<String, Ref<PrimFunc>>,
    /// What passes and code generators need to know.
    pub attrs: Map<String, Any>,
}

#[methods]
impl PrimFunc {
    /// The function with another body; the same object if it is the same one.
    pub fn with_body(this: Ref<Self>, body: Stmt) -> Ref<PrimFunc> {
        if body.ptr_eq(&this.body) {
            return this;
        }
        let (params, buffer_map, attrs) = (this.params.clone(), this.buffer_map.clone(), this.attrs.clone());
        Ref::new(PrimFunc { params, buffer_map, body, attrs })
    }

    /// The function with another attribute, in place of the one of that name if there is one.
    pub fn with_attr(this: Ref<Self>, key: String, value: Any) -> Result<Ref<PrimFunc>> {
        let attrs = this.attrs.iter_any().map(|(key, value)| Ok((key.get::<String>()?, value.clone())));
        let attrs = attrs.filter(|attr| !matches!(attr, Ok((known, _)) if *known == key));
        let mut attrs: Vec<(String, Any)> = attrs.collect::<Result<_>>()?;
        attrs.push((key, value));
        let (params, buffer_map, body) = (this.params.clone(), this.buffer_map.clone(), this.body.clone());
        Ok(Ref::new(PrimFunc { params, buffer_map, body, attrs: Map::try_from_iter(attrs)? }))
    }
}
