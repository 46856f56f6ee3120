//! Parsing of functions and modules.

use std::collections::HashMap;

use anyfn::{Any, Map, Ref, Result, String as Str};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::Var;
use anyfn_ir::func::{IRModule, PrimFunc};
use anyfn_ir::ops::{self, HANDLE};

use crate::expr::Parser;
use crate::lexer::{Token, pieces};
use crate::scope::{Constant, Named, Scope};
use crate::source::Source;

/// Maximum size of the source in bytes.
const LARGEST: usize = 1 << 28;

/// Result of parsing: a function or a module.
pub(crate) enum Program {
    Func(Ref<PrimFunc>),
    Module(Ref<IRModule>),
}

/// Variables of parameters, and the buffers of some of them.
type Params = (Vec<Ref<Var>>, Vec<(Ref<Var>, Ref<Buffer>)>);

/// Functions, each with its name in a module.
pub(crate) type Functions = Vec<(String, Ref<PrimFunc>)>;

/// Creates a module that contains only the function `func`.
pub(crate) fn module_of(func: Ref<PrimFunc>) -> Result<Ref<IRModule>> {
    let name = match func.attrs.get("global_symbol")? {
        Some(symbol) => symbol.get::<String>()?,
        None => "main".to_owned(),
    };
    module(vec![(name, func)], Map::new())
}

pub(crate) fn module(functions: Functions, attrs: Map<Str, Any>) -> Result<Ref<IRModule>> {
    let functions = functions.iter().map(|(name, func)| (name.as_str(), func.clone()));
    Ok(Ref::new(IRModule { functions: Map::try_from_iter(functions)?, attrs }))
}

impl Program {
    /// Parses the whole source as a function or a module. `names` are constants that TVMScript may use.
    pub(crate) fn read(text: &str, names: HashMap<String, Constant>) -> Result<Program> {
        let source = Source { text };
        if text.len() > LARGEST {
            return Err(source.error("ValueError", 0, &format!("the source is larger than {LARGEST} bytes")));
        }
        let mut parser = Parser {
            source: &source,
            pieces: pieces(&source)?,
            at: 0,
            depth: 0,
            scope: Scope::default(),
            defining: false,
            in_range: false,
            script: None,
        };
        if parser.begins_script() { parser.script(names) } else { parser.program() }
    }
}

impl<'a> Parser<'a> {
    fn program(&mut self) -> Result<Program> {
        let is_module = self.is_name(0, "module") && self.is_sign(1, "(");
        if is_module {
            self.at += 2;
            self.expect(")", "after `module(`")?;
            self.newline()?;
        }
        let attrs = self.attributes()?;
        if !is_module && !attrs.is_empty() {
            return self.expected("`def`: attributes of a module require `module()` before them");
        }
        let mut functions: Functions = Vec::new();
        while *self.next() != Token::End {
            let at = self.start();
            let (key, func) = self.keyed_func()?;
            if functions.iter().any(|(known, _)| *known == key) {
                return self.fail("ValueError", at, &format!("duplicate function `{key}`"));
            }
            functions.push((key, func));
        }
        match <[(String, Ref<PrimFunc>); 1]>::try_from(functions) {
            Ok([(_, func)]) if !is_module => Ok(Program::Func(func)),
            Ok(only) => module(only.into(), Map::try_from_iter(attrs)?).map(Program::Module),
            Err(none) if none.is_empty() && !is_module => self.expected("`def`, the beginning of a function"),
            Err(functions) => module(functions, Map::try_from_iter(attrs)?).map(Program::Module),
        }
    }

    /// Parses lines of the form `attr("key", value)`.
    fn attributes(&mut self) -> Result<Vec<(Str, Any)>> {
        let mut attrs = Vec::new();
        while self.is_name(0, "attr") && self.is_sign(1, "(") {
            self.at += 2;
            let key = self.text("the name of the attribute, as a string")?;
            self.expect(",", "after the name of the attribute")?;
            let value = self.value()?;
            self.expect(")", "after the value")?;
            self.newline()?;
            attrs.push((key.as_str().into(), value));
        }
        Ok(attrs)
    }

    /// Parses a function, with an optional `@key(..)` in front of it. Returns the function, and its name in a
    /// module.
    fn keyed_func(&mut self) -> Result<(String, Ref<PrimFunc>)> {
        let mut key = None;
        if self.eat("@") {
            if !self.eat_name("key") {
                return self.expected("`@key(\"name\")`");
            }
            self.expect("(", "after `@key`")?;
            key = Some(self.text("a name, as a string")?);
            self.expect(")", "after the name")?;
            self.newline()?;
        }
        // Names are local to a function.
        self.scope = Scope::default();
        if !self.eat_name("def") {
            return self.expected("`def`, the beginning of a function");
        }
        let name = self.word("the name of the function")?;
        let func = self.func(name)?;
        Ok((key.unwrap_or_else(|| name.to_owned()), func))
    }

    /// Parses the parameters of a function, after its name. `param` parses the type of a parameter, given its name and its
    /// byte offset. Returns the variables of the parameters, and the buffers of those that are buffers. `example` is the
    /// text of two parameters, for errors.
    pub(crate) fn params(
        &mut self,
        example: &str,
        mut param: impl FnMut(&mut Self, &'a str, usize) -> Result<(Ref<Var>, Option<Ref<Buffer>>)>,
    ) -> Result<Params> {
        self.expect("(", "after the name of the function")?;
        let mut buffers = Vec::new();
        let mut names: Vec<&'a str> = Vec::new();
        self.defining = true;
        let params = self.list(")", "after the parameter", |p| {
            let at = p.start();
            let name = p.word(&format!("a parameter, as in {example}"))?;
            if names.contains(&name) {
                return p.fail("ValueError", at, &format!("duplicate parameter `{name}`"));
            }
            names.push(name);
            p.expect(":", "after the parameter")?;
            let (var, buffer) = param(p, name, at)?;
            buffers.extend(buffer.map(|buffer| (var.clone(), buffer)));
            Ok(var)
        });
        self.defining = false;
        Ok((params?, buffers))
    }

    /// Parses the parameters and the body of a function, after its name.
    fn func(&mut self, name: &str) -> Result<Ref<PrimFunc>> {
        let (params, buffers) = self.params("`A: Buffer((4, 4), \"float32\")` or `n: int32`", Self::param)?;
        self.expect(":", "after the parameters")?;
        self.newline()?;
        if *self.next() != Token::Indent {
            return self.fail("SyntaxError", self.start(), "expected indented statements after the parameters");
        }
        self.at += 1;
        let mut attrs = self.attributes()?;
        match attrs.iter().position(|(key, _)| &**key == "global_symbol") {
            None => attrs.insert(0, ("global_symbol".into(), Any::new(name)?)),
            Some(place) if attrs.get(place).is_some_and(|(_, value)| value.type_key() == "None") => {
                attrs.remove(place);
            }
            Some(_) => {}
        }
        let body = self.stmts()?;
        match self.next() {
            Token::Dedent => self.at += 1,
            Token::End => {}
            _ => return self.expected("the end of the function"),
        }
        Ok(Ref::new(PrimFunc {
            params: params.into_iter().collect(),
            buffer_map: Map::try_from_iter(buffers)?,
            body,
            attrs: Map::try_from_iter(attrs)?,
        }))
    }

    /// Parses a parameter, after its name. Returns the variable of the parameter, and the buffer if it is a
    /// buffer parameter.
    fn param(&mut self, name: &'a str, at: usize) -> Result<(Ref<Var>, Option<Ref<Buffer>>)> {
        let known = self.scope.find(name).cloned();
        if self.is_name(0, "Buffer") && self.is_sign(1, "(") {
            self.at += 2;
            let buffer = self.buffer(name)?;
            if known.is_some() {
                return self.fail(
                    "ValueError",
                    at,
                    &format!("`{name}` is already the extent of an earlier parameter"),
                );
            }
            let handle = ops::var(&format!("{name}_handle"), HANDLE);
            self.scope.define(name, Named::Buffer(buffer.clone(), Some(handle.clone())));
            return Ok((handle, Some(buffer)));
        }
        let dtype = self.dtype()?;
        match known {
            // The parameter is an extent that is also passed as a number.
            Some(Named::Var(var)) if var.dtype == dtype => Ok((var, None)),
            Some(_) => {
                let text =
                    format!("`{name}` is already the extent of an earlier parameter, with another data type");
                self.fail("TypeError", at, &text)
            }
            None => {
                let var = ops::var(name, dtype);
                self.scope.define(name, Named::Var(var.clone()));
                Ok((var, None))
            }
        }
    }
}
