//! Passes as objects that any language can create and apply.

use anyfn::{Any, Error, FromArg, Map, Object, ObjectRef, PackedFunc, Ref, Result, String, bail, methods};
use anyfn_ir::func::{IRModule, PrimFunc};

use crate::{verify, verify_module};

anyfn_ir::text_enum! {
    /// Unit of IR that a pass transforms.
    PassKind {
        /// One function: the pass is applied to each function of a module.
        PrimFunc = "prim_func",
        /// Whole module with all its functions.
        Module = "module",
    }
}

type OfFunc = dyn Fn(&Ref<PrimFunc>, &Ref<IRModule>) -> Result<Ref<PrimFunc>> + Send + Sync;
type OfModule = dyn Fn(&Ref<IRModule>) -> Result<Ref<IRModule>> + Send + Sync;

/// Named transformation of a function or module.
#[derive(Object)]
#[object(key = "tir.Pass", init = false)]
pub struct Pass {
    /// Name of the pass, used by pipelines and in messages.
    pub name: String,
    /// Unit of IR that the pass transforms: a single function, or a whole module.
    pub kind: PassKind,
    #[field(skip)]
    body: Body,
    /// True if the pass is implemented in another language.
    #[field(skip)]
    is_foreign: bool,
}

enum Body {
    Func(Box<OfFunc>),
    Module(Box<OfModule>),
}

impl Pass {
    /// Creates a pass that transforms the functions of a module one by one. `body` receives a function and
    /// the module that contains it, and returns the new function. The module is the input of the pass, so its
    /// functions are not transformed yet.
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

    /// Creates a pass that transforms modules as a whole. `body` receives a module and returns the new one.
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

    /// Applies the pass to a module. Returns the same object if nothing has changed.
    ///
    /// # Errors
    /// Returns the error of the pass, with a note that names the pass and the function.
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

    /// Verifies the output of the pass, since the next pass relies on it. The output of a built-in pass is verified
    /// only in debug builds.
    fn checked(&self, module: &Ref<IRModule>) -> Result<()> {
        if self.is_foreign || cfg!(debug_assertions) {
            verify_module(module).map_err(|error| self.noted(error, None))?;
        }
        Ok(())
    }

    /// Applies the pass to a single function.
    ///
    /// # Errors
    /// Returns the error of [`Pass::apply`], or `ValueError` if a pass on modules has removed the function.
    pub fn apply_to(&self, func: &Ref<PrimFunc>) -> Result<Ref<PrimFunc>> {
        let symbol = func.attrs.get("global_symbol")?.and_then(|symbol| symbol.get::<String>().ok());
        let name = symbol.unwrap_or_else(|| "main".into());
        let functions = Map::try_from_iter([(name.clone(), func.clone())])?;
        let module = self.apply(&Ref::new(IRModule { functions, attrs: Map::new() }))?;
        match module.functions.get(&*name)? {
            Some(func) => Ok(func),
            None => bail!("ValueError", "pass `{}` has removed function `{name}`", self.name),
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

/// Returns the object that a pass written in another language returned, or `TypeError` if it does not have
/// the expected type.
fn returned<T: Object>(name: &str, expected: &str, value: &Any) -> Result<Ref<T>> {
    if let Ok(node) = Ref::<T>::from_arg(&value.as_view()) {
        return Ok(node);
    }
    let hint = if value.type_key() == "None" { " (is a `return` missing?)" } else { "" };
    bail!("TypeError", "pass `{name}` must return a `{expected}` but returned `{}`{hint}", value.type_key())
}

#[methods]
impl Pass {
    /// Creates a pass from a function of any language. For the kind `prim_func`, `function` receives a
    /// primitive function and the module that contains it, and returns the new primitive function. For the
    /// kind `module`, `function` receives a module and returns a module.
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

    /// Verifies a function or module and applies the pass to it. Returns the same object if nothing has changed.
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
