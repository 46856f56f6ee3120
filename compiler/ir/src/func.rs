//! Functions of the tensor IR, and modules.

use anyfn::{Any, Array, Map, Object, Ref, Result, String, bail, methods};

use crate::buffer::Buffer;
use crate::expr::Var;
use crate::stmt::Stmt;

/// Key of the function attribute that requests an entry point: a function that other languages call. If the
/// attribute is absent, a plain function of the target language is generated.
pub const ENTRY: &str = "entry";
/// Value of the attribute [`ENTRY`] that requests an entry point for packed arguments. The entry point also
/// checks the arguments.
pub const PACKED_ENTRY: &str = "packed";

/// Key of the function attribute of host code whose tensors are on a device. The value is the name of the device kind.
pub const DEVICE: &str = "device";
/// Key of the function attribute of a kernel. The value lists the thread axes whose extents follow the parameters in a
/// launch, such as `blockIdx.x`.
pub const LAUNCH: &str = "launch";

/// Primitive function: a function of buffers and numbers in the tensor IR.
#[derive(Object)]
#[object(key = "tir.PrimFunc", structural = "tree", final)]
pub struct PrimFunc {
    /// Parameters of the function. A buffer parameter is a variable of data type `handle`.
    #[field(structural = "def")]
    pub params: Array<Ref<Var>>,
    /// Map from the variable of a buffer parameter to its buffer.
    #[field(structural = "def")]
    pub buffer_map: Map<Ref<Var>, Ref<Buffer>>,
    /// Body of the function.
    pub body: Stmt,
    /// Attributes of the function, for passes and code generators. `global_symbol` is the name under which
    /// the function is called.
    pub attrs: Map<String, Any>,
}

/// Module of the tensor IR: a set of named functions. A pass takes a module and returns a module.
#[derive(Object)]
#[object(key = "tir.IRModule", structural = "tree", final)]
pub struct IRModule {
    /// Functions of the module by name.
    pub functions: Map<String, Ref<PrimFunc>>,
    /// Attributes of the module, for passes and code generators.
    pub attrs: Map<String, Any>,
}

impl PrimFunc {
    /// Returns true if the attribute [`ENTRY`] requests an entry point for packed arguments, and false if the
    /// attribute is absent. Any other value of the attribute is an error.
    ///
    /// # Errors
    /// Returns `ValueError` for any other value of the attribute.
    pub fn has_packed_entry(&self) -> Result<bool> {
        let Some(value) = self.attrs.get_any(ENTRY)? else { return Ok(false) };
        match value.get::<&str>() {
            Ok(PACKED_ENTRY) => Ok(true),
            Ok(other) => {
                bail!("ValueError", "the attribute `{ENTRY}` must be {PACKED_ENTRY:?} but is {other:?}")
            }
            Err(_) => {
                let key = value.type_key();
                bail!("ValueError", "the attribute `{ENTRY}` must be {PACKED_ENTRY:?} but is a `{key}`")
            }
        }
    }
}

#[methods]
impl PrimFunc {
    /// Returns a copy of the function with the body `body`. Returns the function itself if its body is
    /// already `body`.
    pub fn with_body(this: Ref<Self>, body: Stmt) -> Ref<PrimFunc> {
        if body.ptr_eq(&this.body) {
            return this;
        }
        let (params, buffer_map, attrs) = (this.params.clone(), this.buffer_map.clone(), this.attrs.clone());
        Ref::new(PrimFunc { params, buffer_map, body, attrs })
    }

    /// Returns a copy of the function in which the attribute `key` has the value `value`.
    pub fn with_attr(this: Ref<Self>, key: String, value: Any) -> Result<Ref<PrimFunc>> {
        let attrs = this.attrs.iter_any().map(|(key, value)| Ok((key.get::<String>()?, value.clone())));
        let attrs = attrs.filter(|attr| !matches!(attr, Ok((known, _)) if *known == key));
        let mut attrs: Vec<(String, Any)> = attrs.collect::<Result<_>>()?;
        attrs.push((key, value));
        let (params, buffer_map, body) = (this.params.clone(), this.buffer_map.clone(), this.body.clone());
        Ok(Ref::new(PrimFunc { params, buffer_map, body, attrs: Map::try_from_iter(attrs)? }))
    }
}
