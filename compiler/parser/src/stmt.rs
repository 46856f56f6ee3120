//! Parsing of statements.

use std::collections::HashSet;

use anyfn::{DType, Map, Object, Ref, Result};
use anyfn_ir::buffer::{Buffer, BufferRegion};
use anyfn_ir::expr::{BinaryOp, BufferLoad, Expr, IterKind, IterVar, Range, Var};
use anyfn_ir::node::{self, BlockParts};
use anyfn_ir::ops::{self, DTypeExt, HANDLE};
use anyfn_ir::printer::KEYWORDS;
use anyfn_ir::stmt::{For, ForKind, Stmt};
use anyfn_ir::visit::{Mutator, Substitute, Visitor};
use anyfn_ir::{ExprKind, analysis, make, words};

use crate::expr::{Parser, extent_of};
use crate::lexer::Token;
use crate::scope::Named;

/// Definition that is visible in the remaining statements at the same indentation.
pub(crate) enum Cover {
    Let(Ref<Var>, Expr),
    Allocate(Ref<Buffer>),
}

/// Result of parsing a line: a declaration, a definition for the lines that follow, or a statement.
pub(crate) enum Item {
    Nothing,
    Cover(Cover),
    Stmt(Stmt),
}

/// Bound of a loop. The flag is true for a number without a data type, which takes the data type of the loop
/// variable.
pub(crate) type Bound = (Expr, bool);

/// Header of nested loops: for each variable an optional first value and the number of iterations.
pub(crate) struct Nest<'a> {
    pub(crate) names: Vec<&'a str>,
    pub(crate) bounds: Vec<(Option<Bound>, Bound)>,
    pub(crate) kind: ForKind,
    pub(crate) annotations: Map<anyfn::String, anyfn::Any>,
    /// Data type of the loop variables, if the source states it.
    pub(crate) told: Option<DType>,
    /// Byte offset of the header, for errors.
    pub(crate) at: usize,
}

/// Properties of a buffer that source states.
pub(crate) struct BufferType {
    pub(crate) shape: Vec<Expr>,
    pub(crate) dtype: DType,
    /// Strides in elements. Empty for a compact buffer.
    pub(crate) strides: Vec<Expr>,
    pub(crate) scope: String,
    /// Alignment in bytes.
    pub(crate) alignment: i32,
    /// Variable whose memory the buffer shares, or `None` for memory of its own.
    pub(crate) data: Option<Ref<Var>>,
}

/// Block whose axes and properties have been parsed, and whose body has not.
pub(crate) struct OpenBlock {
    pub(crate) parts: BlockParts,
    /// Values of the axes. Empty for a block that is not placed.
    pub(crate) values: Vec<Expr>,
    pub(crate) predicate: Expr,
    /// Regions that the source states. If it states none, they are derived from the body.
    pub(crate) reads: Option<Vec<Ref<BufferRegion>>>,
    pub(crate) writes: Option<Vec<Ref<BufferRegion>>>,
}

impl OpenBlock {
    pub(crate) fn new(annotations: Map<anyfn::String, anyfn::Any>) -> OpenBlock {
        OpenBlock {
            parts: BlockParts { annotations, ..BlockParts::default() },
            values: Vec::new(),
            predicate: ops::bool(true),
            reads: None,
            writes: None,
        }
    }
}

impl<'a> Parser<'a> {
    /// Parses a colon and the indented statements after it, which have a separate scope.
    pub(crate) fn suite(&mut self, place: &str) -> Result<Stmt> {
        self.open_suite(place)?;
        let mark = self.scope.enter();
        let stmts = self.deeper(Self::stmts);
        self.scope.leave(mark);
        let stmts = stmts?;
        self.close_suite()?;
        Ok(stmts)
    }

    pub(crate) fn open_suite(&mut self, place: &str) -> Result<()> {
        self.expect(":", place)?;
        self.newline()?;
        if *self.next() != Token::Indent {
            return self.fail("SyntaxError", self.start(), &format!("expected indented statements {place}"));
        }
        self.at += 1;
        Ok(())
    }

    pub(crate) fn close_suite(&mut self) -> Result<()> {
        match self.next() {
            Token::Dedent => {
                self.at += 1;
                Ok(())
            }
            _ => self.expected("the end of these statements"),
        }
    }

    pub(crate) fn newline(&mut self) -> Result<()> {
        match self.next() {
            Token::Newline => {
                self.at += 1;
                Ok(())
            }
            Token::End => Ok(()),
            _ => self.expected("the end of the line"),
        }
    }

    /// Parses the remaining statements at the current indentation, and returns them as a single statement.
    pub(crate) fn stmts(&mut self) -> Result<Stmt> {
        Ok(one(self.items()?))
    }

    /// Parses the remaining statements at the current indentation. A definition and the statements in its
    /// scope form one statement.
    pub(crate) fn items(&mut self) -> Result<Vec<Stmt>> {
        // The statements before each definition, each with that definition.
        let mut outer: Vec<(Vec<Stmt>, Cover)> = Vec::new();
        let mut items = Vec::new();
        let mut has_pass = false;
        while !matches!(self.next(), Token::Dedent | Token::End) {
            if *self.next() == Token::Indent {
                return self.fail(
                    "SyntaxError",
                    self.start(),
                    "this line is indented more than the lines before it",
                );
            }
            if self.eat_name("pass") {
                self.newline()?;
                has_pass = true;
            } else if self.script.is_some() {
                match self.script_item()? {
                    Item::Nothing => {}
                    Item::Cover(cover) => {
                        outer.push((std::mem::take(&mut items), cover));
                        has_pass = false;
                    }
                    Item::Stmt(stmt) => items.push(stmt),
                }
            } else if self.declaration()? {
                // The line only declares a name.
            } else if let Some(cover) = self.definition()? {
                outer.push((std::mem::take(&mut items), cover));
                has_pass = false;
            } else {
                items.push(self.stmt()?);
            }
        }
        if items.is_empty() && !has_pass {
            return self.expected("a statement");
        }
        while let Some((before, cover)) = outer.pop() {
            let (body, at) = (one(items), self.start());
            let stmt = match cover {
                Cover::Let(var, value) => self.located(at, make::let_stmt(var, value, body))?,
                Cover::Allocate(buffer) => make::allocate(buffer, body),
            };
            items = before;
            items.push(stmt);
        }
        Ok(items)
    }

    /// Parses `x: int32` or `A: Buffer(..)`, which declare names that are defined elsewhere. Returns false if the line
    /// is not a declaration.
    fn declaration(&mut self) -> Result<bool> {
        let Token::Name(name) = *self.next() else { return Ok(false) };
        if KEYWORDS.contains(&name) || !self.is_sign(1, ":") {
            return Ok(false);
        }
        if self.is_name(2, "Buffer") && self.is_sign(3, "(") {
            self.at += 4;
            let buffer = self.buffer(name)?;
            self.scope.define(name, Named::Buffer(buffer, None));
        } else if matches!(self.ahead(3), Token::Newline | Token::End) {
            self.at += 2;
            let dtype = self.dtype()?;
            self.scope.define(name, Named::Var(ops::var(name, dtype)));
        } else {
            return Ok(false);
        }
        self.newline()?;
        Ok(true)
    }

    /// Parses `x: int32 = value` or `A = alloc(..)`, which define a name for the remaining statements.
    /// Returns `None` for any other line.
    fn definition(&mut self) -> Result<Option<Cover>> {
        let Token::Name(name) = *self.next() else { return Ok(None) };
        if KEYWORDS.contains(&name) {
            return Ok(None);
        }
        if let Some(buffer) = self.alloc()? {
            return Ok(Some(Cover::Allocate(buffer)));
        }
        if self.is_sign(1, "=") {
            let at = self.start();
            let text = match (self.ahead(2), self.ahead(3)) {
                (Token::Name("axis"), Token::Sign(".")) => {
                    "the axes of a block must come before all other statements in it".to_owned()
                }
                _ => format!("declare the data type to name a value, as in `{name}: float32 = ..`"),
            };
            return self.fail("SyntaxError", at, &text);
        }
        if !self.is_sign(1, ":") {
            return Ok(None);
        }
        self.at += 2;
        let dtype = self.dtype()?;
        self.expect("=", "after the data type")?;
        let at = self.start();
        let value = self.expr()?;
        let value = self.adopted(value, dtype, at)?;
        self.newline()?;
        let var = ops::var(name, dtype);
        self.scope.define(name, Named::Var(var.clone()));
        Ok(Some(Cover::Let(var, value)))
    }

    /// Parses `A = alloc(..)`. Returns `None` if the line does not have this form.
    fn alloc(&mut self) -> Result<Option<Ref<Buffer>>> {
        let Token::Name(name) = *self.next() else { return Ok(None) };
        if !(self.is_sign(1, "=") && self.is_name(2, "alloc") && self.is_sign(3, "(")) {
            return Ok(None);
        }
        self.at += 4;
        let buffer = self.buffer(name)?;
        self.newline()?;
        self.scope.define(name, Named::Buffer(buffer.clone(), None));
        Ok(Some(buffer))
    }

    /// Parses the shape, data type and further properties of a buffer. The opening bracket has already been
    /// parsed.
    pub(crate) fn buffer(&mut self, name: &str) -> Result<Ref<Buffer>> {
        let at = self.start();
        let shape = self.shape("the shape, as in `(4, 4)`")?;
        self.expect(",", "after the shape")?;
        let dtype = self.dtype()?;
        let mut strides = Vec::new();
        let (mut scope, mut alignment) = ("global".to_owned(), 64);
        let mut data = None;
        while self.eat(",") {
            if self.is_sign(0, ")") {
                break;
            }
            let key_at = self.start();
            let key = self.word("`strides`, `scope`, `align` or `data`")?;
            self.expect("=", "after the name")?;
            match key {
                "strides" => strides = self.shape("strides, as in `(4, 1)`")?,
                "scope" => scope = self.text("a scope, as in \"local\"")?,
                "align" => {
                    let value = self.plain_int("an alignment")?;
                    alignment = match i32::try_from(value) {
                        Ok(value) if value > 0 => value,
                        _ => {
                            return self.fail(
                                "ValueError",
                                key_at,
                                "expected an alignment between 1 and 2^31 - 1",
                            );
                        }
                    };
                }
                "data" => {
                    let data_at = self.start();
                    let owner = self.word("the name of a buffer")?;
                    data = Some(match self.scope.find(owner).cloned() {
                        Some(Named::Buffer(owner, _)) => owner.data.clone(),
                        Some(Named::Var(var)) if var.dtype == HANDLE => var,
                        Some(_) => {
                            return self.fail("TypeError", data_at, &format!("`{owner}` is not a buffer"));
                        }
                        None => return self.unknown(owner, data_at),
                    });
                }
                _ => {
                    let text = format!("expected `strides`, `scope`, `align` or `data` but got `{key}`");
                    return self.fail("SyntaxError", key_at, &text);
                }
            }
        }
        self.expect(")", "after the arguments of the buffer")?;
        self.new_buffer(name, at, BufferType { shape, dtype, strides, scope, alignment, data })
    }

    /// Creates a buffer. `at` is the byte offset of its properties, for errors.
    pub(crate) fn new_buffer(&self, name: &str, at: usize, of: BufferType) -> Result<Ref<Buffer>> {
        if !of.strides.is_empty() && of.strides.len() != of.shape.len() {
            let (has, got) = (words::dimensions(of.shape.len()), of.strides.len());
            let text = format!("`{name}` has {has} but {}", words::counted(got, "stride", "strides"));
            return self.fail("ValueError", at, &text);
        }
        Ok(Ref::new(Buffer {
            data: of.data.unwrap_or_else(|| ops::var(&format!("{name}_data"), HANDLE)),
            dtype: of.dtype,
            shape: of.shape.into_iter().collect(),
            strides: of.strides.into_iter().collect(),
            name: name.into(),
            scope: of.scope.as_str().into(),
            alignment: of.alignment,
        }))
    }

    pub(crate) fn shape(&mut self, what: &str) -> Result<Vec<Expr>> {
        if !self.eat("(") {
            return self.expected(what);
        }
        self.list(")", "in the shape", |p| {
            let at = p.start();
            let extent = p.expr()?;
            if !extent.dtype.is_integer() || extent.dtype.lanes() != 1 {
                return p.fail("TypeError", at, &format!("expected an integer but this is {}", extent.dtype));
            }
            Ok(extent)
        })
    }

    /// Converts a constant to the data type of its context. Returns any other expression unchanged.
    pub(crate) fn adopted(&self, value: Expr, dtype: DType, at: usize) -> Result<Expr> {
        if self.script.is_some() {
            // Apache TVM converts the value, whatever it is.
            let converted = match self.number(&value) {
                Some(number) => number.typed(dtype),
                None => ops::cast(value, dtype),
            };
            return self.located(at, converted);
        }
        if value.dtype == dtype || !matches!(ExprKind::of(&value), ExprKind::IntImm(_) | ExprKind::FloatImm(_))
        {
            return Ok(value);
        }
        self.located(at, ops::unify(value, ops::var("", dtype).into_parent())).map(|(value, _)| value)
    }

    pub(crate) fn stmt(&mut self) -> Result<Stmt> {
        match *self.next() {
            Token::Name("for") => self.for_loop(),
            Token::Name("if") => self.condition(),
            Token::Name("with") => self.with(),
            Token::Name("assert") => self.assertion(),
            _ => self.simple(),
        }
    }

    /// Parses a store, or an expression that is evaluated for its effect.
    pub(crate) fn simple(&mut self) -> Result<Stmt> {
        let at = self.start();
        if let Token::Name(name @ ("reads" | "writes" | "where" | "attr")) = *self.next()
            && self.is_sign(1, "(")
        {
            let place = if name == "attr" { "function" } else { "block" };
            return self.fail(
                "SyntaxError",
                at,
                &format!("`{name}(..)` must come before all other statements in a {place}"),
            );
        }
        if let Token::Name(name) = *self.next()
            && self.is_sign(1, ".")
            && self.scope.find(name).is_none()
            && !self.is_script(name)
        {
            self.at += 1;
            let object = self.keyed(name, at)?;
            self.newline()?;
            return Ok(match Expr::try_from_object(object) {
                Ok(expr) => make::evaluate(expr),
                Err(object) => match Stmt::try_from_object(object) {
                    Ok(stmt) => stmt,
                    Err(object) => {
                        return self.fail(
                            "TypeError",
                            at,
                            &format!("`{}` is not a statement", object.type_key()),
                        );
                    }
                },
            });
        }
        if self.is_name(0, "node") && self.is_sign(1, "(") {
            self.at += 1;
            let object = self.node(at)?;
            self.newline()?;
            return match Stmt::try_from_object(object) {
                Ok(stmt) => Ok(stmt),
                Err(object) => Expr::try_from_object(object).map(make::evaluate).or_else(|object| {
                    self.fail("TypeError", at, &format!("`{}` is not a statement", object.type_key()))
                }),
            };
        }
        let target = self.expr()?;
        let op = match self.next() {
            Token::Sign("=") => None,
            Token::Sign("+=") => Some(BinaryOp::Add),
            Token::Sign("-=") => Some(BinaryOp::Sub),
            Token::Sign("*=") => Some(BinaryOp::Mul),
            Token::Newline | Token::End => {
                self.newline()?;
                return Ok(make::evaluate(target));
            }
            _ => return self.expected("an operator, `=` or the end of the line"),
        };
        let Some(load) = target.cast_ref::<BufferLoad>() else {
            return self.fail("TypeError", at, "only an element of a buffer can be set, as in `A[i] = 0.0`");
        };
        self.at += 1;
        let value_at = self.start();
        let mut value = self.expr()?;
        self.newline()?;
        if let Some(op) = op {
            value = match self.script {
                Some(_) => self.script_binary(op, target.clone(), value, value_at)?,
                None => self.located(value_at, node::binary(op, target.clone(), value))?,
            };
        }
        let value = self.adopted(value, target.dtype, value_at)?;
        self.located(at, make::store(&load.buffer, value, load.indices.clone()))
    }

    fn for_loop(&mut self) -> Result<Stmt> {
        self.at += 1;
        let mut names = vec![self.word("the name of a loop variable")?];
        while self.eat(",") {
            names.push(self.word("the name of a loop variable")?);
        }
        let kinds = [
            ("range", ForKind::Serial),
            ("parallel", ForKind::Parallel),
            ("vectorized", ForKind::Vectorized),
            ("unrolled", ForKind::Unrolled),
        ];
        if !self.eat_name("in") {
            return self.expected("`in` after the loop variables");
        }
        let form_at = self.start();
        const FORMS: &str = "`range`, `grid`, `parallel`, `vectorized`, `unrolled` or `bind`";
        let form = self.word(FORMS)?;
        let mut kind = kinds.iter().find(|(name, _)| *name == form).map(|(_, kind)| *kind);
        if kind.is_none() && form != "grid" && form != "bind" {
            return self.fail("SyntaxError", form_at, &format!("expected {FORMS} but got `{form}`"));
        }
        self.expect("(", &format!("after `{form}`"))?;
        if form == "bind" {
            kind = Some(self.thread_axis()?);
        }
        let mut bounds: Vec<(Option<Bound>, Bound)> = Vec::new();
        let mut annotations = Map::new();
        if kind.is_some() {
            let first = self.bound()?;
            let mut bound = (None, first.clone());
            let is_remark = matches!(self.ahead(1), Token::Name(_)) && self.is_sign(2, "=");
            if self.is_sign(0, ",") && !self.is_sign(1, "**") && !self.is_sign(1, ")") && !is_remark {
                self.at += 1;
                let (at, (end, is_open)) = (self.start(), self.bound()?);
                let extent = self.located(at, extent_of(&first.0, end))?;
                bound = (Some(first.clone()), (extent, is_open && first.1));
            }
            let mut extent = None;
            annotations = self.annotations(|p, key| {
                if key == "extent" && extent.is_none() {
                    extent = Some(p.bound()?);
                    return Ok(true);
                }
                Ok(false)
            })?;
            if let Some(extent) = extent {
                bound = (Some(first), extent);
            }
            self.expect(")", "after the bounds of the loop")?;
            bounds.push(bound);
        } else {
            for extent in self.list(")", "in the bounds of the loops", Self::bound)? {
                bounds.push((None, extent));
            }
        }
        if bounds.len() != names.len() {
            let text = format!("`{form}` has {} extents for {} variables", bounds.len(), names.len());
            return self.fail("SyntaxError", form_at, &text);
        }
        let told = if self.eat_name("as") { Some(self.dtype()?) } else { None };
        self.loop_nest(Nest {
            names,
            bounds,
            kind: kind.unwrap_or(ForKind::Serial),
            annotations,
            told,
            at: form_at,
        })
    }

    /// Parses the body of nested loops and returns the loops.
    pub(crate) fn loop_nest(&mut self, nest: Nest<'a>) -> Result<Stmt> {
        let form_at = nest.at;
        let mark = self.scope.enter();
        let mut loops = Vec::new();
        for (name, (min, extent)) in nest.names.into_iter().zip(nest.bounds) {
            let dtype = nest.told.unwrap_or(extent.0.dtype);
            let typed = |(bound, is_open): Bound| {
                if is_open { self.adopted(bound, dtype, form_at) } else { Ok(bound) }
            };
            let extent = typed(extent)?;
            let min = match min {
                Some(min) => typed(min)?,
                None => self.located(form_at, ops::int(0, dtype))?,
            };
            if !extent.dtype.is_integer() || !min.dtype.is_integer() || extent.dtype.lanes() != 1 {
                return self.fail("TypeError", form_at, "the bounds of a loop must be integers");
            }
            let var = ops::var(name, dtype);
            self.scope.define(name, Named::Var(var.clone()));
            if let Some(script) = &mut self.script {
                let dom = Ref::new(Range { min: min.clone(), extent: extent.clone() });
                script.loops.insert(address(&var), dom);
            }
            loops.push((var, min, extent));
        }
        let body = self.suite("after the loop");
        self.scope.leave(mark);
        let mut stmt = body?;
        for (var, min, extent) in loops.into_iter().rev() {
            stmt = node::for_loop(var, min, extent, nest.kind, stmt, nest.annotations.clone());
        }
        Ok(stmt)
    }

    /// Parses the thread axis of a loop, and the comma after it.
    fn thread_axis(&mut self) -> Result<ForKind> {
        let at = self.start();
        let axis = self.text("a thread axis, as in \"threadIdx.x\"")?;
        self.expect(",", "after the thread axis")?;
        match ForKind::BOUND.into_iter().find(|kind| kind.text() == axis) {
            Some(kind) => Ok(kind),
            None => {
                let known = ForKind::BOUND.map(ForKind::text).join("`, `");
                self.fail("ValueError", at, &format!("`{axis}` is not a thread axis; known axes are `{known}`"))
            }
        }
    }

    /// Parses a bound of a loop. The returned flag is true if the bound is a number without a data type. Such
    /// a number takes the data type of the loop variable.
    pub(crate) fn bound(&mut self) -> Result<(Expr, bool)> {
        let minus = usize::from(self.is_sign(0, "-"));
        let is_open = matches!(self.ahead(minus), Token::Int(_))
            && (self.is_sign(minus + 1, ",") || self.is_sign(minus + 1, ")"));
        Ok((self.expr()?, is_open))
    }

    pub(crate) fn condition(&mut self) -> Result<Stmt> {
        self.at += 1;
        let at = self.start();
        let condition = self.expr()?;
        let then_case = self.suite("after the condition")?;
        let else_case = if self.is_name(0, "elif") {
            Some(self.deeper(Self::condition)?)
        } else if self.eat_name("else") {
            Some(self.suite("after `else`")?)
        } else {
            None
        };
        self.located(at, make::if_then(condition, then_case, else_case))
    }

    fn assertion(&mut self) -> Result<Stmt> {
        self.at += 1;
        let at = self.start();
        let condition = self.expr()?;
        self.expect(",", "after the condition, as in `assert n > 0, ValueError(\"n must be positive\")`")?;
        let kind = self.word("the kind of the error")?;
        self.expect("(", "after the kind of the error")?;
        let kind = if kind == "call" {
            let kind = self.text("the kind of the error")?;
            if !self.is_sign(0, ")") {
                self.expect(",", "after the kind")?;
            }
            kind
        } else {
            kind.to_owned()
        };
        let message = self.list(")", "in the message", Self::expr)?;
        self.newline()?;
        self.located(at, node::assert_stmt(condition, &kind, message.into_iter().collect()))
    }

    fn with(&mut self) -> Result<Stmt> {
        self.at += 1;
        let at = self.start();
        let form = self.word("`block`, `launch`, `scope` or `seq`")?;
        match form {
            "block" => self.block(true),
            "bare_block" => self.block(false),
            "launch" => self.launch(),
            "scope" | "seq" => {
                self.expect("(", "")?;
                self.expect(")", "")?;
                if form == "scope" {
                    return self.suite("after `with scope()`");
                }
                self.open_suite("after `with seq()`")?;
                let mark = self.scope.enter();
                let items = self.deeper(Self::items);
                self.scope.leave(mark);
                let items = items?;
                self.close_suite()?;
                Ok(node::seq(items))
            }
            "init" => {
                self.fail("SyntaxError", at, "`with init()` must come before the other statements of a block")
            }
            _ => self.fail(
                "SyntaxError",
                at,
                &format!("expected `block`, `launch`, `scope` or `seq` after `with` but got `{form}`"),
            ),
        }
    }

    /// Parses a launch: its captures, the number of tasks, and its loop.
    fn launch(&mut self) -> Result<Stmt> {
        self.expect("(", "after `launch`")?;
        let mut num_tasks = None;
        let captures = self.list(")", "after the capture", |p| {
            if p.is_name(0, "tasks") && p.is_sign(1, "=") {
                p.at += 2;
                num_tasks = Some(p.expr()?);
                return Ok(None);
            }
            p.arg().map(Some)
        })?;
        let at = self.start();
        match self.suite("after `with launch(..)`")?.cast::<For>() {
            Ok(body) => {
                let num_tasks = num_tasks.unwrap_or_else(|| ops::i32(0));
                Ok(node::launch(num_tasks, captures.into_iter().flatten().collect(), body))
            }
            Err(_) => self.fail("SyntaxError", at, "expected one loop inside of `with launch(..)`"),
        }
    }

    /// Parses a block. If `is_placed` is true, the axes have values, and the result is a realization of the
    /// block.
    fn block(&mut self, is_placed: bool) -> Result<Stmt> {
        self.expect("(", "after `block`")?;
        let name = self.text("the name of the block, as a string")?;
        let annotations = self.annotations(|_, _| Ok(false))?;
        self.expect(")", "after the name of the block")?;
        self.open_suite("after the block")?;
        let mark = self.scope.enter();
        let stmt = self.deeper(|p| p.block_inside(&name, is_placed, annotations));
        self.scope.leave(mark);
        let stmt = stmt?;
        self.close_suite()?;
        Ok(stmt)
    }

    fn block_inside(
        &mut self,
        name: &str,
        is_placed: bool,
        annotations: Map<anyfn::String, anyfn::Any>,
    ) -> Result<Stmt> {
        let mut open = OpenBlock::new(annotations);
        loop {
            let at = self.start();
            if let Some(buffer) = self.alloc()? {
                open.parts.alloc_buffers.push(buffer);
            } else if matches!(self.next(), Token::Name(_)) && self.is_sign(1, "=") && self.is_name(2, "axis") {
                let (axis, value) = self.axis(is_placed)?;
                open.parts.iter_vars.push(axis);
                open.values.extend(value);
            } else if self.is_name(0, "where") && self.is_sign(1, "(") {
                self.at += 2;
                open.predicate = self.expr()?;
                self.expect(")", "after the condition")?;
                self.newline()?;
                if open.predicate.dtype != DType::BOOL {
                    let text = format!("a condition must be bool but is {}", open.predicate.dtype);
                    return self.fail("TypeError", at, &text);
                }
            } else if matches!(self.next(), Token::Name("reads" | "writes")) && self.is_sign(1, "(") {
                let is_reads = self.is_name(0, "reads");
                self.at += 2;
                let regions = self.list(")", "in the regions", Self::region)?;
                self.newline()?;
                *(if is_reads { &mut open.reads } else { &mut open.writes }) = Some(regions);
            } else if self.is_name(0, "with") && self.is_name(1, "init") {
                self.at += 2;
                self.expect("(", "after `init`")?;
                self.expect(")", "")?;
                open.parts.init = Some(self.suite("after `with init()`")?);
                break;
            } else if !self.declaration()? {
                break;
            }
        }
        self.close_block(name, is_placed, open)
    }

    /// Parses the body of a block and returns the block.
    pub(crate) fn close_block(&mut self, name: &str, is_placed: bool, open: OpenBlock) -> Result<Stmt> {
        let OpenBlock { mut parts, values, mut predicate, reads, writes } = open;
        // The predicate is evaluated outside of the block, so axes in it are replaced by their values.
        let axes: Vec<_> = parts.iter_vars.iter().map(|axis| address(&axis.var)).collect();
        let value_of =
            |var: &Ref<Var>| values.get(axes.iter().position(|axis| *axis == address(var))?).cloned();
        predicate = Substitute(value_of).expr(&predicate)?;
        let body = self.stmts()?;
        let mut inside = Inside::of(&body);
        inside.0.extend(parts.alloc_buffers.iter().map(|buffer| address(&buffer.data)));
        parts.writes = writes.unwrap_or_else(|| inside.seen_from_outside(analysis::writes(&body)));
        let written = parts.writes.iter().cloned().collect();
        parts.reads = reads.unwrap_or_else(|| inside.seen_from_outside(analysis::reads(&body, &written)));
        let block = node::block(name, parts, body);
        Ok(if is_placed { make::realize(values, predicate, block) } else { block.into_parent() })
    }

    /// Parses an axis of a block: `v = axis.spatial(extent, value)`. The value is omitted if `is_placed` is
    /// false.
    pub(crate) fn axis(&mut self, is_placed: bool) -> Result<(Ref<IterVar>, Option<Expr>)> {
        let name = self.word("the name of an axis")?;
        self.at += 2;
        self.expect(".", "after `axis`")?;
        let at = self.start();
        let kind = match self.word("`spatial`, `reduce` or `ordered`")? {
            "spatial" => IterKind::Spatial,
            "reduce" => IterKind::Reduce,
            "ordered" => IterKind::Ordered,
            other => {
                let text = format!("expected `spatial`, `reduce` or `ordered` but got `{other}`");
                return self.fail("SyntaxError", at, &text);
            }
        };
        self.expect("(", "after the kind of the axis")?;
        let (min, extent) = if self.is_sign(0, "(") { self.pair()? } else { (None, self.expr()?) };
        let value = if is_placed {
            self.expect(",", "after the extent of the axis")?;
            Some(self.expr()?)
        } else {
            None
        };
        self.expect(")", "after the value of the axis")?;
        let dtype = if self.eat_name("as") { self.dtype()? } else { extent.dtype };
        self.newline()?;
        if !extent.dtype.is_integer() || !dtype.is_integer() {
            return self.fail(
                "TypeError",
                at,
                &format!("an extent must be an integer but this is {}", extent.dtype),
            );
        }
        let min = match min {
            Some(min) => min,
            None => self.located(at, ops::int(0, extent.dtype))?,
        };
        let value = value.map(|value| self.adopted(value, dtype, at)).transpose()?;
        let var = ops::var(name, dtype);
        self.scope.define(name, Named::Var(var.clone()));
        Ok((Ref::new(IterVar { dom: Ref::new(Range { min, extent }), var, kind }), value))
    }

    /// Parses the range `(first, extent)` of an axis, or an extent that begins with a parenthesis.
    pub(crate) fn pair(&mut self) -> Result<(Option<Expr>, Expr)> {
        let before = self.at;
        self.at += 1;
        let first = self.expr()?;
        if self.eat(",") {
            let extent = self.expr()?;
            self.expect(")", "after the bounds of the axis")?;
            return Ok((Some(first), extent));
        }
        self.at = before;
        Ok((None, self.expr()?))
    }
}

/// Combines statements into one statement. A single statement is returned unchanged, and any other
/// number of statements becomes a sequence.
pub(crate) fn one(items: Vec<Stmt>) -> Stmt {
    match <[Stmt; 1]>::try_from(items) {
        Ok([only]) => only,
        Err(items) => node::seq(items),
    }
}

/// Visitor that collects the addresses of the variables that statements define.
#[derive(Default)]
struct Inside(HashSet<usize>);

pub(crate) fn address<T: Object>(node: &Ref<T>) -> usize {
    node.as_object().as_handle().addr()
}

impl Visitor for Inside {
    fn define(&mut self, var: &Ref<Var>) {
        self.0.insert(address(var));
    }
}

impl Inside {
    fn of(body: &Stmt) -> Inside {
        let mut inside = Inside::default();
        inside.stmt(body);
        inside
    }

    /// Converts regions of buffers in a block to regions that are valid outside the block. A range
    /// that depends on a definition inside the block becomes the whole dimension. Regions of
    /// buffers that are defined inside the block are omitted.
    fn seen_from_outside(&self, regions: Vec<Ref<BufferRegion>>) -> Vec<Ref<BufferRegion>> {
        let mut seen: Vec<Ref<BufferRegion>> = Vec::new();
        for region in regions.into_iter().filter(|region| !self.0.contains(&address(&region.buffer.data))) {
            let ranges = region.region.iter().zip(region.buffer.shape.iter()).map(|(range, extent)| {
                let zero = ops::int(0, extent.dtype);
                match zero {
                    Ok(min) if self.is_used_in(&range.min) || self.is_used_in(&range.extent) => {
                        Ref::new(Range { min, extent })
                    }
                    _ => range,
                }
            });
            let (buffer, region) = (region.buffer.clone(), ranges.collect());
            let region = Ref::new(BufferRegion { buffer, region });
            let is_same =
                |known: &Ref<BufferRegion>| {
                    known.buffer.ptr_eq(&region.buffer)
                        && known.region.iter().zip(region.region.iter()).all(|(a, b)| {
                            make::is_equal(&a.min, &b.min) && make::is_equal(&a.extent, &b.extent)
                        })
                };
            if !seen.iter().any(is_same) {
                seen.push(region);
            }
        }
        seen
    }

    fn is_used_in(&self, expr: &Expr) -> bool {
        struct Uses<'a>(&'a Inside, bool);
        impl Visitor for Uses<'_> {
            fn expr(&mut self, expr: &Expr) {
                match ExprKind::of(expr) {
                    ExprKind::Var(var) => self.1 |= self.0.0.contains(&address(var)),
                    _ => self.below_expr(expr),
                }
            }

            fn buffer(&mut self, buffer: &Ref<Buffer>) {
                self.1 |= self.0.0.contains(&address(&buffer.data));
            }
        }
        let mut uses = Uses(self, false);
        uses.expr(expr);
        uses.1
    }
}
