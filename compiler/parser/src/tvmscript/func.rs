//! Functions and modules of TVMScript.

use std::collections::HashMap;

use anyfn::{Any, DType, Map, Ref, Result, String as Str};
use anyfn_ir::ExprKind;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::ops::{self, HANDLE};
use anyfn_ir::printer::is_dtype_name;

use crate::expr::Parser;
use crate::func::{Functions, Program, module};
use crate::lexer::Token;
use crate::scope::{Constant, Named, Scope, Script};
use crate::stmt::OpenBlock;

/// Attributes of Apache TVM that have another name here.
const ATTRIBUTES: [(&str, &str); 2] = [("tirx.is_scheduled", "scheduled"), ("tir.is_scheduled", "scheduled")];

impl<'a> Parser<'a> {
    /// Parses imports, and functions or one class of functions.
    pub(crate) fn script(&mut self, names: HashMap<String, Constant>) -> Result<Program> {
        self.script = Some(Script {
            tensor: "T",
            module: "I",
            sizes: Vec::new(),
            names,
            numbers: HashMap::new(),
            is_old: false,
            declared: HashMap::new(),
            matched: Vec::new(),
            loops: HashMap::new(),
        });
        let mut sizes = Vec::new();
        loop {
            match *self.next() {
                Token::Name("from" | "import") => self.import()?,
                // A size that the functions below share: `n = TypeVar("n")`.
                Token::Name(name) if self.is_sign(1, "=") && self.is_name(2, "TypeVar") => {
                    sizes.push(name);
                    self.skip_line()?;
                }
                _ => break,
            }
        }
        let first = self.decorators()?;
        let is_module = first == Decorated::Module;
        let is_old = self.pieces.windows(3).any(|pieces| {
            let [module, dot, member] = pieces else { return false };
            matches!(module.token, Token::Name(name) if self.is_script(name))
                && dot.token == Token::Sign(".")
                && member.token == Token::Name("block")
        });
        if let Some(script) = &mut self.script {
            script.sizes = sizes;
            script.is_old = is_old;
        }
        let mut attrs = Vec::new();
        let mut functions: Functions = Vec::new();
        if is_module || self.is_name(0, "class") {
            if !self.eat_name("class") {
                return self.expected("`class` after the decorator of a module");
            }
            self.word("the name of the module")?;
            self.open_suite("after the name of the module")?;
            while !matches!(self.next(), Token::Dedent | Token::End) {
                self.module_item(&mut attrs, &mut functions)?;
            }
            self.close_suite()?;
        } else {
            self.next_func(first, &mut functions)?;
            while *self.next() != Token::End {
                let decorated = self.decorators()?;
                self.next_func(decorated, &mut functions)?;
            }
            if let [(_, func)] = &functions[..] {
                return Ok(Program::Func(func.clone()));
            }
        }
        if *self.next() != Token::End {
            return self.expected("the end of the source after the module");
        }
        module(functions, Map::try_from_iter(attrs)?).map(Program::Module)
    }

    /// Parses an import. Keeps the names of the modules of the tensor IR and of the module IR.
    fn import(&mut self) -> Result<()> {
        let of_script = self.is_name(0, "from") && self.is_name(3, "script") && self.is_sign(2, ".");
        while !matches!(self.next(), Token::Newline | Token::End) {
            if let (Token::Name(name), Some(script)) = (self.pieces[self.at].token.clone(), &mut self.script) {
                let alias = match self.pieces.get(self.at + 1..self.at + 3) {
                    Some([of, alias]) if of.token == Token::Name("as") => match alias.token {
                        Token::Name(alias) => alias,
                        _ => name,
                    },
                    _ => name,
                };
                let is_imported =
                    of_script && self.at > 0 && self.pieces[self.at - 1].token != Token::Sign(".");
                match name {
                    "tir" | "tirx" if is_imported => script.tensor = alias,
                    "ir" if is_imported => script.module = alias,
                    _ => {}
                }
            }
            self.at += 1;
        }
        self.newline()
    }

    /// Skips the decorators of a function or a module, and returns what they decorate.
    fn decorators(&mut self) -> Result<Decorated> {
        let mut found = Decorated::Func;
        while self.eat("@") {
            let (start, at) = (self.at, self.start());
            let mut name = "";
            while let Token::Name(part) = *self.next() {
                name = part;
                self.at += 1;
                if !self.eat(".") {
                    break;
                }
            }
            found = match name {
                "prim_func" => Decorated::Func,
                "ir_module" => Decorated::Module,
                _ => {
                    let name = self.source.text[at..].lines().next().unwrap_or_default();
                    let text = format!("expected `@T.prim_func` or `@I.ir_module`, got `@{name}`");
                    return self.fail("NotImplementedError", at, &text);
                }
            };
            self.skip_line()?;
            let is_private = self.pieces[start..self.at].windows(3).any(|pieces| {
                let [key, set, value] = pieces else { return false };
                (&key.token, &set.token, &value.token)
                    == (&Token::Name("private"), &Token::Sign("="), &Token::Name("True"))
            });
            if is_private && found == Decorated::Func {
                found = Decorated::PrivateFunc;
            }
        }
        Ok(found)
    }

    /// Parses attributes or a function of a module.
    fn module_item(&mut self, attrs: &mut Vec<(Str, Any)>, functions: &mut Functions) -> Result<()> {
        if self.docstring()? {
            return Ok(());
        }
        let module = self.script.as_ref().map_or("I", |script| script.module);
        if self.is_name(0, module) && self.is_sign(1, ".") {
            let at = self.start();
            self.at += 2;
            match self.word("`module_attrs`")? {
                "module_attrs" => {
                    self.expect("(", "after `module_attrs`")?;
                    attrs.extend(self.attribute_map()?);
                    self.expect(")", "after the attributes")?;
                    return self.newline();
                }
                other => {
                    let text = format!("`{module}.{other}` of TVMScript is not supported");
                    return self.fail("NotImplementedError", at, &text);
                }
            }
        }
        if self.eat_name("pass") {
            return self.newline();
        }
        let decorated = self.decorators()?;
        self.next_func(decorated, functions)
    }

    /// Parses a function, and adds it to the functions of a module.
    fn next_func(&mut self, decorated: Decorated, functions: &mut Functions) -> Result<()> {
        let at = self.start();
        if !self.eat_name("def") {
            return self.expected("`def`, the beginning of a function");
        }
        let name = self.word("the name of the function")?;
        let func = self.script_func(name, decorated == Decorated::PrivateFunc)?;
        if functions.iter().any(|(known, _)| known == name) {
            return self.fail("ValueError", at, &format!("duplicate function `{name}`"));
        }
        functions.push((name.to_owned(), func));
        Ok(())
    }

    /// Parses the parameters and the body of a function, after its name. A private function has no symbol.
    fn script_func(&mut self, name: &str, is_private: bool) -> Result<Ref<PrimFunc>> {
        // Names are local to a function.
        self.scope = Scope::default();
        let mut declared = self.declarations();
        if let Some(script) = &mut self.script {
            declared.extend(script.sizes.iter().map(|name| (*name, DType::INT64)));
            script.declared = declared;
            script.matched.clear();
            script.loops.clear();
        }
        let example = "`A: T.Buffer((4, 4), \"float32\")` or `n: T.int32`";
        let (params, mut buffers) = self.params(example, Self::script_param)?;
        // Python code may state that the function returns nothing.
        if self.is_sign(0, "-") && self.is_sign(1, ">") && matches!(self.ahead(2), Token::Name("None")) {
            self.at += 3;
        }
        self.open_suite("after the parameters")?;
        let mut attrs: Vec<(Str, Any)> = Vec::new();
        loop {
            if self.eat_member(&["func_attr"]) {
                if !attrs.is_empty() {
                    return self.fail("SyntaxError", self.start(), "duplicate `T.func_attr`");
                }
                attrs.extend(self.attribute_map()?);
                self.expect(")", "after the attributes")?;
                self.newline()?;
            } else if !self.docstring()? && !self.declared_var()? && !self.match_buffer()? {
                break;
            }
        }
        for (key, value) in &mut attrs {
            // Some versions of Apache TVM write `T.bool(True)`.
            if let Some(ExprKind::IntImm(node)) = value.get::<Expr>().ok().as_ref().map(ExprKind::of)
                && node.dtype == DType::BOOL
            {
                *value = Any::new(node.value != 0)?;
            }
            if let Some((_, ours)) = ATTRIBUTES.iter().find(|(theirs, _)| *theirs == &**key) {
                *key = (*ours).into();
            }
        }
        if !is_private && !attrs.iter().any(|(key, _)| &**key == "global_symbol") {
            attrs.insert(0, ("global_symbol".into(), Any::new(name)?));
        }
        let body = self.script_body()?;
        match self.next() {
            Token::Dedent => self.at += 1,
            Token::End => {}
            _ => return self.expected("the end of the function"),
        }
        buffers.extend(self.script.iter_mut().flat_map(|script| std::mem::take(&mut script.matched)));
        Ok(Ref::new(PrimFunc {
            params: params.into_iter().collect(),
            buffer_map: Map::try_from_iter(buffers)?,
            body,
            attrs: Map::try_from_iter(attrs)?,
        }))
    }

    /// Parses the statements of a function. Buffers that they allocate for blocks belong to a root block, which TVMScript
    /// does not write.
    fn script_body(&mut self) -> Result<anyfn_ir::stmt::Stmt> {
        let mut root = OpenBlock::new(Map::new());
        while let Some(buffer) = self.block_alloc()? {
            root.parts.alloc_buffers.push(buffer);
        }
        if root.parts.alloc_buffers.is_empty() {
            return self.stmts();
        }
        (root.reads, root.writes) = (Some(Vec::new()), Some(Vec::new()));
        self.close_block("root", true, root)
    }

    /// Returns the variables that the body of the function declares, such as `n = T.int64()`, with their data types. The
    /// shapes of the parameters use these variables before.
    fn declarations(&self) -> HashMap<&'a str, DType> {
        let mut declared = HashMap::new();
        let body = self.pieces[self.at..].iter().position(|piece| piece.token == Token::Indent);
        let body = &self.pieces[self.at + body.unwrap_or(0)..];
        let end = body.iter().position(|piece| piece.token == Token::Dedent).unwrap_or(body.len());
        for line in body[..end].split(|piece| matches!(piece.token, Token::Newline | Token::Indent)) {
            if let [name, set, module, dot, dtype, open, ..] = line
                && let (Token::Name(name), Token::Name(module), Token::Name(dtype)) =
                    (&name.token, &module.token, &dtype.token)
                && (&set.token, &dot.token, &open.token)
                    == (&Token::Sign("="), &Token::Sign("."), &Token::Sign("("))
                && self.is_script(module)
                && let Ok(dtype) = self.dtype_of(dtype, 0)
            {
                declared.insert(*name, dtype);
            }
        }
        declared
    }

    /// Parses `n = T.int32()`, which declares a variable. Returns false for any other line.
    pub(super) fn declared_var(&mut self) -> Result<bool> {
        let Token::Name(name) = *self.next() else { return Ok(false) };
        if !(self.is_sign(1, "=") && self.is_member(2) && self.is_sign(5, "(")) {
            return Ok(false);
        }
        let at = self.start();
        let dtype = match *self.ahead(4) {
            // A declaration has no argument, or `is_size_var=True`.
            Token::Name(dtype)
                if is_dtype_name(dtype) && (self.is_sign(6, ")") || self.is_name(6, "is_size_var")) =>
            {
                let dtype = self.dtype_of(dtype, at)?;
                self.at += 6;
                if self.eat_name("is_size_var") {
                    self.expect("=", "after `is_size_var`")?;
                    if !self.eat_name("True") {
                        return self.expected("`True`");
                    }
                }
                dtype
            }
            Token::Name("var") => {
                self.at += 6;
                self.dtype()?
            }
            _ => return Ok(false),
        };
        self.expect(")", "after the declaration of a variable")?;
        self.newline()?;
        match self.scope.find(name) {
            None => drop(self.new_extent(name, dtype)),
            Some(Named::Var(var)) if var.dtype == dtype => {}
            Some(_) => {
                return self.fail("TypeError", at, &format!("`{name}` is already defined, with another type"));
            }
        }
        Ok(true)
    }

    /// Parses a parameter, after its name and the colon. Returns the variable of the parameter, and the buffer if it is a
    /// buffer parameter.
    fn script_param(&mut self, name: &'a str, at: usize) -> Result<(Ref<Var>, Option<Ref<Buffer>>)> {
        if self.eat_member(&["Buffer"]) {
            let buffer = self.script_buffer(name, "global")?;
            if self.scope.find(name).is_some() {
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
        if !self.is_member(0) {
            return self.expected("a type, as in `T.Buffer((4, 4), \"float32\")` or `T.int32`");
        }
        if self.member() == Some("handle") {
            self.at += 3;
            if self.eat("(") {
                // The data type to which an address points is part of the buffer.
                let _ = self.list(")", "in the type", |p| p.arg())?;
            }
            let var = ops::var(name, HANDLE);
            self.scope.define(name, Named::Var(var.clone()));
            return Ok((var, None));
        }
        let dtype = self.script_dtype()?;
        let var = match self.scope.find(name) {
            Some(Named::Var(var)) if var.dtype == dtype => var.clone(),
            Some(_) => return self.fail("ValueError", at, &format!("duplicate parameter `{name}`")),
            None => self.new_extent(name, dtype),
        };
        Ok((var, None))
    }

    /// Parses `A = T.match_buffer(a, (4, 4), "float32")`, which declares the buffer of a parameter. Returns false for any
    /// other line.
    fn match_buffer(&mut self) -> Result<bool> {
        let Token::Name(name) = *self.next() else { return Ok(false) };
        if !(self.is_sign(1, "=") && self.is_member(2) && self.is_name(4, "match_buffer")) {
            return Ok(false);
        }
        self.at += 5;
        self.expect("(", "after `match_buffer`")?;
        let at = self.start();
        let param = self.word("a parameter of type `T.handle`")?;
        let Some(Named::Var(var)) = self.scope.find(param).cloned().filter(is_handle) else {
            return self.fail("TypeError", at, &format!("`{param}` is not a parameter of type `T.handle`"));
        };
        self.expect(",", "after the parameter")?;
        let buffer = self.script_buffer(name, "global")?;
        self.newline()?;
        self.scope.define(name, Named::Buffer(buffer.clone(), Some(var.clone())));
        if let Some(script) = &mut self.script {
            if script.matched.iter().any(|(known, _)| known.ptr_eq(&var)) {
                return self.fail("ValueError", at, &format!("`{param}` already has a buffer"));
            }
            script.matched.push((var, buffer));
        }
        Ok(true)
    }
}

fn is_handle(named: &Named) -> bool {
    matches!(named, Named::Var(var) if var.dtype == HANDLE)
}

/// Item that a decorator decorates.
#[derive(Clone, Copy, PartialEq)]
enum Decorated {
    Func,
    PrivateFunc,
    Module,
}
