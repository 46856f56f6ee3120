//! Passes as objects, which any language makes and applies.

use anyfn::{Any, Error, FromArg, Map, Object, ObjectRef, PackedFunc, Ref, Result, String, bail, methods};
use anyfn_ir::func::{IRModule, PrimFunc};

use crate::{verify, verify_module};

anyfn_ir::text_enum! {
    /// What a pass takes and gives.
    PassKind {
        /// A function; the pass is applied to each function of a module.
        PrimFunc = "prim_func",
        /// A module as a whole.
        Module = "module",
    }
}

type OfFunc = dyn Fn(&Ref<PrimFunc>, &Ref<IRModule>) -> Result<Ref<PrimFunc>> + Send + Sync;
type OfModule = dyn Fn(&Ref<IRModule>) -> Result<Ref<IRModule>> + Send + Sync;

/// A function from programs to programs, with a name.
#[derive(Object)]
#[object(key = "tir.Pass", init = false)]
pub struct Pass {
    /// Name, by which pipelines find it and messages speak of it.
    pub name: String,
    /// What it takes and gives.
    pub kind: PassKind,
    #[field(skip)]
    body: Body,
    /// Whether it is a function of another language.
    #[field(skip)]
    is_foreign: bool,
}

enum Body {
    Func(Box<OfFunc>),
    Module(Box<OfModule>),
}

impl Pass {
    /// A pass on functions. It also gets the module that the function belongs to, as it was before the pass.
    pub fn on_funcs(
        name: &str,
        body: impl Fn(&Ref<PrimFunc>, &Ref<IRModule>) -> Result<Ref<PrimFunc>> + Send + Sync + 'static,
    ) -> Ref<Pass> {
        Ref::new(Pass {
            name: name.into(),
            kind: PassKind::PrimFunc,
            body: Body::Func(Box::new(body)),
            is_foreign: false,
        })
    }

    /// A pass on modules.
    pub fn on_modules(
        name: &str,
        body: impl Fn(&Ref<IRModule>) -> Result<Ref<IRModule>> + Send + Sync + 'static,
    ) -> Ref<Pass> {
        Ref::new(Pass {
            name: name.into(),
            kind: PassKind::Module,
            body: Body::Module(Box::new(body)),
            is_foreign: false,
        })
    }

    /// The module after the pass; the same object if nothing has changed.
    ///
    /// # Errors
    /// That of the pass, with a note that names the pass and the function.
    pub fn apply(&self, module: &Ref<IRModule>) -> Result<Ref<IRModule>> {
        let body = match &self.body {
            Body::Module(body) => {
                let new = body(module).map_err(|error| self.noted(error, None))?;
                return if new.ptr_eq(module) { Ok(new) } else { self.checked(&new).map(|()| new) };
            }
            Body::Func(body) => body,
        };
        let mut functions = Vec::with_capacity(module.functions.len());
        let mut is_same = true;
        for (name, func) in module.functions.iter() {
            let new = body(&func, module).map_err(|error| self.noted(error, Some(&name)))?;
            is_same &= new.ptr_eq(&func);
            functions.push((name, new));
        }
        if is_same {
            return Ok(module.clone());
        }
        let functions = Map::try_from_iter(functions)?;
        let new = Ref::new(IRModule { functions, attrs: module.attrs.clone() });
        self.checked(&new).map(|()| new)
    }

    /// Checks what the pass has left, since the next one relies on it; that of passes of the compiler in debug builds alone.
    fn checked(&self, module: &Ref<IRModule>) -> Result<()> {
        if self.is_foreign || cfg!(debug_assertions) {
            verify_module(module).map_err(|error| self.noted(error, None))?;
        }
        Ok(())
    }

    /// A function after the pass.
    ///
    /// # Errors
    /// As [`Pass::apply`]; `ValueError` if a pass on modules leaves no function of that name.
    pub fn apply_to(&self, func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
        let symbol = func.attrs.get("global_symbol")?.and_then(|symbol| symbol.get::<String>().ok());
        let name = symbol.unwrap_or_else(|| "main".into());
        let functions = Map::try_from_iter([(name.clone(), func.clone())])?;
        let module = self.apply(&Ref::new(IRModule { functions, attrs: Map::new() }))?;
        match module.functions.get(&*name)? {
            Some(func) => Ok(func),
            None => bail!("ValueError", "pass `{}` has left no function `{name}`", self.name),
        }
    }

    #[cold]
    fn noted(&self, error: Error, func: Option<&str>) -> Error {
        match func {
            Some(func) => error.with_note(&format!("in pass `{}` on function `{func}`", self.name)),
            None => error.with_note(&format!("in pass `{}`", self.name)),
        }
    }
}

/// What a pass of another language has returned.
fn returned<T: Object>(name: &str, expected: &str, value: &Any) -> Result<Ref<T>> {
    if let Ok(node) = Ref::<T>::from_arg(&value.as_view()) {
        return Ok(node);
    }
    let hint = if value.type_key() == "None" { " (is a `return` missing?)" } else { "" };
    bail!("TypeError", "pass `{name}` must return a `{expected}` but returned `{}`{hint}", value.type_key())
}

#[methods]
impl Pass {
    /// A pass of a function of any language. Of kind `prim_func` it gets a function and the module that this belongs to and
    /// returns the new function; of kind `module` it gets and returns a module.
    #[init]
    fn new(name: String, kind: PassKind, function: PackedFunc) -> Pass {
        let shown = name.clone();
        let body = match kind {
            PassKind::PrimFunc => Body::Func(Box::new(move |func, module| {
                returned(&shown, "tir.PrimFunc", &function.call((func.clone(), module.clone()))?)
            })),
            PassKind::Module => Body::Module(Box::new(move |module| {
                returned(&shown, "tir.IRModule", &function.call((module.clone(),))?)
            })),
        };
        Pass { name, kind, body, is_foreign: true }
    }

    /// The function or module after the pass; the same object if nothing has changed. It is verified first.
    #[blocking]
    pub fn run(&self, node: ObjectRef) -> Result<ObjectRef> {
        match Ref::<PrimFunc>::try_from_object(node) {
            Ok(func) => {
                verify(&func)?;
                self.apply_to(&func).map(Ref::into_object)
            }
            Err(node) => match Ref::<IRModule>::try_from_object(node) {
                Ok(module) => {
                    verify_module(&module)?;
                    self.apply(&module).map(Ref::into_object)
                }
                Err(node) => bail!(
                    "TypeError",
                    "pass `{}` takes a tir.PrimFunc or tir.IRModule but got `{}`",
                    self.name,
                    node.type_key()
                ),
            },
        }
    }
}
