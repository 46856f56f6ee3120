//! Statements of TVMScript.

use anyfn::{Any, Map, Ref, Result, String as Str};
use anyfn_ir::buffer::{Buffer, BufferRegion};
use anyfn_ir::expr::{Expr, IterKind, IterVar, Range, Var};
use anyfn_ir::kind::is_int;
use anyfn_ir::ops::{self, DTypeExt, HANDLE};
use anyfn_ir::printer::{KEYWORDS, is_word};
use anyfn_ir::stmt::{ForKind, Stmt};
use anyfn_ir::{ExprKind, make, node, words};

use crate::expr::{Parser, extent_of};
use crate::lexer::Token;
use crate::scope::Named;
use crate::stmt::{Bound, BufferType, Cover, Item, Nest, OpenBlock, address};

/// Names of the functions that allocate a buffer for the statements that follow.
const ALLOCS: [&str; 4] = ["alloc_buffer", "alloc_local", "alloc_shared", "sblock_alloc_buffer"];

impl<'a> Parser<'a> {
    pub(crate) fn script_item(&mut self) -> Result<Item> {
        let at = self.start();
        if self.docstring()? || self.declared_var()? {
            return Ok(Item::Nothing);
        }
        match *self.next() {
            Token::Name("for") => self.script_for().map(Item::Stmt),
            Token::Name("if") => self.stmt().map(Item::Stmt),
            Token::Name("assert") => self.script_assert().map(Item::Stmt),
            Token::Name("with") => self.script_with().map(Item::Stmt),
            Token::Name(name @ ("while" | "return" | "break" | "continue" | "def")) => {
                self.fail("NotImplementedError", at, &format!("`{name}` of TVMScript is not supported"))
            }
            Token::Name(name) if !KEYWORDS.contains(&name) && self.is_sign(1, ":") => self.script_let(name, at),
            Token::Name(name) if !KEYWORDS.contains(&name) && self.is_sign(1, "=") => self.assignment(name, at),
            Token::Name(_) if self.is_sign(1, ",") => {
                self.fail("SyntaxError", at, "the axes of a block must come before all other statements in it")
            }
            _ => match self.member() {
                Some(member @ ("reads" | "writes" | "where" | "sblock_attr" | "block_attr" | "func_attr")) => {
                    let place = if member == "func_attr" { "function" } else { "block" };
                    let text = format!("`T.{member}(..)` must come before all other statements in a {place}");
                    self.fail("SyntaxError", at, &text)
                }
                Some("evaluate") => {
                    self.at += 3;
                    self.expect("(", "after `evaluate`")?;
                    let value = self.expr()?;
                    self.expect(")", "after the value")?;
                    self.newline()?;
                    Ok(Item::Stmt(make::evaluate(value)))
                }
                _ => self.simple().map(Item::Stmt),
            },
        }
    }

    /// Parses a string that stands alone on a line. Returns false for any other line.
    pub(super) fn docstring(&mut self) -> Result<bool> {
        let is_docstring = matches!(self.next(), Token::Text(_)) && *self.ahead(1) == Token::Newline;
        self.at += 2 * usize::from(is_docstring);
        Ok(is_docstring)
    }

    /// Parses attributes: a map from their names to their values.
    pub(super) fn attribute_map(&mut self) -> Result<Vec<(Str, Any)>> {
        let at = self.start();
        match self.value()?.get::<Map<Str, Any>>() {
            Ok(map) => Ok(map.iter().collect()),
            Err(_) => self.fail("TypeError", at, "expected attributes by their names, as in {\"name\": 1}"),
        }
    }

    /// Parses the properties of a buffer, after the opening bracket, and the closing bracket. Without a data type or a scope
    /// in the source, the buffer has the data type `float32` and the scope `scope`.
    pub(super) fn script_buffer(&mut self, name: &str, scope: &str) -> Result<Ref<Buffer>> {
        let at = self.start();
        let mut shape = None;
        let mut dtype = "float32".parse().ok();
        let mut strides = Vec::new();
        let (mut scope, mut alignment, mut data) = (scope.to_owned(), 64, None);
        let mut place = 0;
        while !self.eat(")") {
            let key_at = self.start();
            let key = match *self.next() {
                Token::Name(key) if self.is_sign(1, "=") => {
                    self.at += 2;
                    key
                }
                _ => ["shape", "dtype", "data", "strides"].get(place).copied().unwrap_or("further arguments"),
            };
            place += 1;
            match key {
                "shape" => shape = Some(self.extents()?),
                "dtype" => dtype = Some(self.dtype()?),
                "strides" => strides = self.extents()?,
                "scope" => scope = self.text("a scope, as in \"local\"")?,
                "data" => data = Some(self.address()?),
                "align" => {
                    alignment = match i32::try_from(self.plain_int("an alignment")?) {
                        // 0 and -1 are the default.
                        Ok(value) if value > 0 => value,
                        _ => 64,
                    };
                }
                // The offset of a buffer is part of its address here.
                "offset_factor" => drop(self.plain_int("a factor")?),
                "elem_offset" if matches!(self.next(), Token::Int("0")) => self.at += 1,
                "buffer_type" if matches!(self.next(), Token::Text(text) if text.is_empty() || text == "default") =>
                {
                    self.at += 1;
                }
                _ => {
                    let text = format!("`{key}` of a buffer in TVMScript is not supported");
                    return self.fail("NotImplementedError", key_at, &text);
                }
            }
            if !self.eat(",") && !self.is_sign(0, ")") {
                return self.expected("`,` or `)` after the argument of the buffer");
            }
        }
        let (Some(shape), Some(dtype)) = (shape, dtype) else {
            return self.fail("TypeError", at, "expected the shape of the buffer, as in `(4, 4)`");
        };
        self.new_buffer(name, at, BufferType { shape, dtype, strides, scope, alignment, data })
    }

    /// Parses extents or strides: a tuple, a list, or a single number. A string names a variable.
    fn extents(&mut self) -> Result<Vec<Expr>> {
        let end = match self.next() {
            Token::Sign("(") => ")",
            Token::Sign("[") => "]",
            _ => return Ok(vec![self.extent()?]),
        };
        self.at += 1;
        self.list(end, "in the shape", Self::extent)
    }

    fn extent(&mut self) -> Result<Expr> {
        let at = self.start();
        let extent = match self.next() {
            Token::Text(text) => {
                let text = text.clone();
                let start = self.pieces[self.at].start + 1;
                self.at += 1;
                let name = self.source.text.get(start..start + text.len()).filter(|name| *name == text);
                let Some(name) = name.filter(|name| is_word(name) && !KEYWORDS.contains(name)) else {
                    let text = "expected the name of a variable; an expression in a string is not supported";
                    return self.fail("NotImplementedError", at, text);
                };
                match self.scope.find(name).cloned() {
                    Some(Named::Var(var)) => var.into_parent(),
                    None if self.defining => self.declared_extent(name),
                    _ => return self.unknown(name, at),
                }
            }
            _ => self.expr()?,
        };
        if !extent.dtype.is_integer() || extent.dtype.lanes() != 1 {
            return self.fail("TypeError", at, &format!("expected an integer but this is {}", extent.dtype));
        }
        Ok(extent)
    }

    /// Returns true if the current function or the source declares a variable, such as `n = T.int64()`.
    pub(crate) fn is_declared(&self, name: &str) -> bool {
        self.script.as_ref().is_some_and(|script| script.declared.contains_key(name))
    }

    /// Defines a variable that a shape mentions first, with the data type that the body of the function declares.
    pub(crate) fn declared_extent(&mut self, name: &'a str) -> Expr {
        let declared = self.script.as_ref().and_then(|script| script.declared.get(name).copied());
        self.new_extent(name, declared.unwrap_or(anyfn::DType::INT32)).into_parent()
    }

    /// Parses the address of a buffer, as in `A.data`.
    fn address(&mut self) -> Result<Ref<Var>> {
        let at = self.start();
        match self.expr()?.cast::<Var>() {
            Ok(var) if var.dtype == HANDLE => Ok(var),
            _ => self.fail("TypeError", at, "expected the address of a buffer, as in `A.data`"),
        }
    }

    /// Parses `A = T.alloc_buffer(..)`. Returns `None` if the line does not have this form.
    fn script_alloc(&mut self, members: &[&str]) -> Result<Option<Ref<Buffer>>> {
        let Token::Name(name) = *self.next() else { return Ok(None) };
        if !(self.is_sign(1, "=") && self.is_member(2)) {
            return Ok(None);
        }
        let Token::Name(member) = *self.ahead(4) else { return Ok(None) };
        if !members.contains(&member) || !self.is_sign(5, "(") {
            return Ok(None);
        }
        self.at += 6;
        let scope = match member {
            "alloc_local" => "local",
            "alloc_shared" => "shared",
            _ => "global",
        };
        let buffer = self.script_buffer(name, scope)?;
        self.newline()?;
        self.scope.define(name, Named::Buffer(buffer.clone(), None));
        Ok(Some(buffer))
    }

    /// Parses the allocation of a buffer that belongs to the enclosing block. Versions of Apache TVM that write `T.block`
    /// call it `T.alloc_buffer`. Returns `None` for any other line.
    pub(super) fn block_alloc(&mut self) -> Result<Option<Ref<Buffer>>> {
        let is_old = self.script.as_ref().is_some_and(|script| script.is_old);
        self.script_alloc(if is_old { &["alloc_buffer"] } else { &["sblock_alloc_buffer"] })
    }

    /// Parses `x: T.let[T.float32] = value` or `x: T.float32 = value`, which name a value.
    fn script_let(&mut self, name: &'a str, at: usize) -> Result<Item> {
        self.at += 2;
        let dtype = if self.member() == Some("let") {
            self.at += 3;
            self.expect("[", "after `let`")?;
            let dtype = self.script_dtype()?;
            self.expect("]", "after the data type")?;
            dtype
        } else if self.member() == Some("Buffer") {
            return self.unsupported("Buffer", at);
        } else {
            self.script_dtype()?
        };
        self.expect("=", "after the data type")?;
        let value_at = self.start();
        let value = self.expr()?;
        let value = self.adopted(value, dtype, value_at)?;
        self.newline()?;
        let var = ops::var(name, dtype);
        self.scope.define(name, Named::Var(var.clone()));
        Ok(Item::Cover(Cover::Let(var, value)))
    }

    /// Parses an assignment to a name: an allocation, another buffer for the same memory, or the name of a value.
    fn assignment(&mut self, name: &'a str, at: usize) -> Result<Item> {
        if let Some(buffer) = self.script_alloc(&ALLOCS)? {
            return Ok(Item::Cover(Cover::Allocate(buffer)));
        }
        if let (true, &Token::Name(member)) = (self.is_member(2), self.ahead(4)) {
            match member {
                "decl_buffer" | "Buffer" | "buffer_decl" => {
                    self.at += 5;
                    self.expect("(", "after the name")?;
                    let buffer = self.script_buffer(name, "global")?;
                    self.newline()?;
                    self.scope.define(name, Named::Buffer(buffer, None));
                    return Ok(Item::Nothing);
                }
                "axis" => {
                    let text = "the axes of a block must come before all other statements in it";
                    return self.fail("SyntaxError", at, text);
                }
                "match_buffer" => {
                    let text = "`T.match_buffer` is only supported for parameters, before all other statements";
                    return self.fail("NotImplementedError", at, text);
                }
                "allocate" | "allocate_const" | "env_thread" | "alloc_scalar" | "local_scalar"
                | "shared_scalar" => {
                    return self.unsupported(member, at);
                }
                _ => {}
            }
        }
        if let Some(Named::Buffer(buffer, _)) = self.scope.find(name).cloned() {
            // A buffer of one element is a variable that can be changed.
            let [extent] = &buffer.shape.iter().collect::<Vec<_>>()[..] else {
                return self.fail(
                    "TypeError",
                    at,
                    &format!("`{name}` is a buffer; specify an element, as in `{name}[i] = ..`"),
                );
            };
            if !is_int(extent, 1) {
                return self.fail(
                    "TypeError",
                    at,
                    &format!("`{name}` is a buffer; specify an element, as in `{name}[i] = ..`"),
                );
            }
            self.at += 2;
            let value_at = self.start();
            let value = self.expr()?;
            let value = self.adopted(value, buffer.dtype, value_at)?;
            self.newline()?;
            let first = self.located(at, ops::int(0, extent.dtype))?;
            return self
                .located(at, make::store(&buffer, value, [first].into_iter().collect()))
                .map(Item::Stmt);
        }
        if matches!(self.scope.find(name), Some(Named::Var(_))) {
            let text =
                format!("`{name}` already has a value, and a variable cannot be changed; store into a buffer");
            return self.fail("NotImplementedError", at, &text);
        }
        self.at += 2;
        let value = self.expr()?;
        self.newline()?;
        let var = ops::var(name, value.dtype);
        self.scope.define(name, Named::Var(var.clone()));
        Ok(Item::Cover(Cover::Let(var, value)))
    }

    fn script_for(&mut self) -> Result<Stmt> {
        self.at += 1;
        let mut names = vec![self.word("the name of a loop variable")?];
        while self.eat(",") {
            names.push(self.word("the name of a loop variable")?);
        }
        if !self.eat_name("in") {
            return self.expected("`in` after the loop variables");
        }
        let at = self.start();
        let is_plain = self.is_name(0, "range");
        if !is_plain && !self.is_member(0) {
            return self.expected("`range` or a loop of TVMScript, as in `T.grid(4, 4)`");
        }
        self.at += if is_plain { 0 } else { 2 };
        let form = self.word("`range` or a loop of TVMScript, as in `T.grid(4, 4)`")?;
        let mut kind = match form {
            "range" if is_plain => ForKind::Serial,
            "serial" | "grid" if !is_plain => ForKind::Serial,
            "parallel" => ForKind::Parallel,
            "vectorized" => ForKind::Vectorized,
            "unroll" => ForKind::Unrolled,
            "thread_binding" => ForKind::BlockIdxX,
            other => return self.unsupported(other, at),
        };
        self.expect("(", &format!("after `{form}`"))?;
        let mut bounds: Vec<Bound> = Vec::new();
        let mut annotations = Map::new();
        let mut thread = None;
        while !self.eat(")") {
            if matches!(self.next(), Token::Text(_)) {
                thread = Some((self.start(), self.text("a thread axis")?));
            } else if let (&Token::Name(key), true) = (self.next(), self.is_sign(1, "=")) {
                let key_at = self.start();
                self.at += 2;
                match key {
                    "annotations" => annotations = Map::try_from_iter(self.attribute_map()?)?,
                    "thread" => {
                        thread = Some((self.start(), self.text("a thread axis, as in \"threadIdx.x\"")?))
                    }
                    _ => {
                        let text = format!("`{key}` of a loop in TVMScript is not supported");
                        return self.fail("NotImplementedError", key_at, &text);
                    }
                }
            } else {
                bounds.push(self.bound()?);
            }
            if !self.eat(",") && !self.is_sign(0, ")") {
                return self.expected("`,` or `)` in the bounds of the loop");
            }
        }
        if let (true, Some((at, _))) = (form != "thread_binding", &thread) {
            return self.fail("TypeError", *at, &format!("`T.{form}` takes no thread axis"));
        }
        if form == "thread_binding" {
            let Some((at, axis)) = thread else {
                return self.fail("TypeError", at, "expected the thread axis, as in `thread=\"threadIdx.x\"`");
            };
            kind = match ForKind::BOUND.into_iter().find(|kind| kind.text() == axis) {
                Some(kind) => kind,
                None => {
                    let text = format!("the thread axis `{axis}` of TVMScript is not supported");
                    return self.fail("NotImplementedError", at, &text);
                }
            };
        }
        let bounds = match (form, &bounds[..]) {
            ("grid", _) => bounds.into_iter().map(|extent| (None, extent)).collect(),
            (_, [extent]) => vec![(None, extent.clone())],
            (_, [first, end]) => {
                let extent = self.located(at, extent_of(&first.0, end.0.clone()))?;
                vec![(Some(first.clone()), (extent, first.1 && end.1))]
            }
            _ => {
                return self.fail(
                    "TypeError",
                    at,
                    &format!("`{form}` takes one extent, or the bounds of a range"),
                );
            }
        };
        if bounds.len() != names.len() {
            let text = format!("`{form}` has {} extents for {} variables", bounds.len(), names.len());
            return self.fail("SyntaxError", at, &text);
        }
        self.loop_nest(Nest { names, bounds, kind, annotations, told: None, at })
    }

    /// Parses `assert condition, "message"`, or the kind and the parts of a message: `("ValueError", ["message"])`.
    fn script_assert(&mut self) -> Result<Stmt> {
        self.at += 1;
        let at = self.start();
        let condition = self.expr()?;
        self.expect(",", "after the condition, as in `assert n > 0, \"n must be positive\"`")?;
        let mut kind = "RuntimeError".to_owned();
        let message = if self.eat("(") {
            kind = self.text("the kind of the error")?;
            self.expect(",", "after the kind")?;
            self.expect("[", "before the message")?;
            let parts = self.list("]", "in the message", Self::expr)?;
            self.expect(")", "after the message")?;
            parts
        } else {
            vec![self.expr()?]
        };
        self.newline()?;
        self.located(at, node::assert_stmt(condition, &kind, message.into_iter().collect()))
    }

    fn script_with(&mut self) -> Result<Stmt> {
        self.at += 1;
        let at = self.start();
        if !self.is_member(0) {
            return self.expected("a block, as in `T.sblock(\"name\")`");
        }
        self.at += 2;
        match self.word("`sblock`")? {
            "sblock" | "block" => {}
            "init" => {
                let text = "`with T.init()` must come before the other statements of a block";
                return self.fail("SyntaxError", at, text);
            }
            other => return self.unsupported(other, at),
        }
        self.expect("(", "after `sblock`")?;
        let name =
            if self.is_sign(0, ")") { String::new() } else { self.text("the name of the block, as a string")? };
        self.expect(")", "after the name of the block")?;
        self.open_suite("after the block")?;
        let mark = self.scope.enter();
        let stmt = self.deeper(|p| p.script_block(&name));
        self.scope.leave(mark);
        let stmt = stmt?;
        self.close_suite()?;
        Ok(stmt)
    }

    fn script_block(&mut self, name: &str) -> Result<Stmt> {
        let mut open = OpenBlock::new(Map::new());
        // Properties of the block that the source has stated.
        let mut seen: Vec<&str> = Vec::new();
        loop {
            let at = self.start();
            if let Some(buffer) = self.block_alloc()? {
                open.parts.alloc_buffers.push(buffer);
            } else if self.script_axes(&mut open)? || self.docstring()? {
                // The axes of the block have been added.
            } else if let Some(member) = self.member().filter(|member| seen.contains(member)) {
                return self.fail("SyntaxError", at, &format!("duplicate `T.{member}`"));
            } else if self.eat_member(&["where"]) {
                seen.push("where");
                open.predicate = self.expr()?;
                self.expect(")", "after the condition")?;
                self.newline()?;
                if open.predicate.dtype != anyfn::DType::BOOL {
                    let text = format!("a condition must be bool but is {}", open.predicate.dtype);
                    return self.fail("TypeError", at, &text);
                }
            } else if self.eat_member(&["reads"]) {
                seen.push("reads");
                open.reads = Some(self.regions()?);
            } else if self.eat_member(&["writes"]) {
                seen.push("writes");
                open.writes = Some(self.regions()?);
            } else if self.eat_member(&["sblock_attr", "block_attr"]) {
                seen.extend(["sblock_attr", "block_attr"]);
                open.parts.annotations = Map::try_from_iter(self.attribute_map()?)?;
                self.expect(")", "after the annotations")?;
                self.newline()?;
            } else if self.is_name(0, "with") && self.is_member(1) && self.is_name(3, "init") {
                self.at += 4;
                self.expect("(", "after `init`")?;
                self.expect(")", "")?;
                open.parts.init = Some(self.suite("after `with T.init()`")?);
                break;
            } else {
                break;
            }
        }
        // A block without axes, such as a call of an external function, may state no regions. They are then derived.
        let is_empty = |regions: &Option<Vec<_>>| regions.as_ref().is_none_or(Vec::is_empty);
        if open.parts.iter_vars.is_empty() && name != "root" && is_empty(&open.reads) && is_empty(&open.writes)
        {
            (open.reads, open.writes) = (None, None);
        }
        self.close_block(name, true, open)
    }

    /// Parses the regions of `T.reads(..)` or `T.writes(..)`, after the opening bracket. They may be in a list.
    fn regions(&mut self) -> Result<Vec<Ref<BufferRegion>>> {
        let regions = if self.eat("[") {
            let regions = self.list("]", "in the regions", Self::region)?;
            self.expect(")", "after the regions")?;
            regions
        } else {
            self.list(")", "in the regions", Self::region)?
        };
        self.newline()?;
        Ok(regions)
    }

    /// Parses `v = T.axis.spatial(extent, value)` or `v, w = T.axis.remap("SR", [i, j])`. Returns false for any other line.
    fn script_axes(&mut self, open: &mut OpenBlock) -> Result<bool> {
        let mut names = Vec::new();
        let before = self.at;
        while let Token::Name(name) = *self.next() {
            names.push(name);
            self.at += 1;
            if !self.eat(",") {
                break;
            }
        }
        if names.is_empty() || !(self.is_sign(0, "=") && self.is_member(1) && self.is_name(3, "axis")) {
            self.at = before;
            return Ok(false);
        }
        self.at += 4;
        self.expect(".", "after `axis`")?;
        let at = self.start();
        let form = self.word("`spatial`, `reduce` or `remap`")?;
        self.expect("(", "after the kind of the axis")?;
        if form == "remap" {
            self.remap(&names, open)?;
        } else {
            let Some(kind) = kind_of(form) else {
                let text = format!("`T.axis.{form}` of TVMScript is not supported");
                return self.fail("NotImplementedError", at, &text);
            };
            let &[name] = &names[..] else {
                return self.fail("SyntaxError", at, &format!("`T.axis.{form}` defines one axis"));
            };
            let dom_at = self.start();
            let (first, extent) = if self.is_sign(0, "(") { self.pair()? } else { (None, self.expr()?) };
            let dom = match first {
                Some(min) => {
                    let extent = self.located(dom_at, extent_of(&min, extent))?;
                    Range { min, extent }
                }
                None => Range { min: self.located(dom_at, ops::int(0, extent.dtype))?, extent },
            };
            self.expect(",", "after the extent of the axis")?;
            let value_at = self.start();
            let value = self.expr()?;
            let value = self.adopted(value, dom.extent.dtype, value_at)?;
            self.add_axis(name, kind, Ref::new(dom), value, open);
        }
        self.expect(")", "after the value of the axis")?;
        self.newline()?;
        Ok(true)
    }

    /// Parses the kinds and the loop variables of axes that take over the ranges of their loops.
    fn remap(&mut self, names: &[&'a str], open: &mut OpenBlock) -> Result<()> {
        let at = self.start();
        let kinds = self.text("the kinds of the axes, as in \"SSR\"")?;
        self.expect(",", "after the kinds")?;
        self.expect("[", "before the loop variables")?;
        let mut values = Vec::new();
        self.list("]", "after the loop variable", |p| {
            let at = p.start();
            let value = p.expr()?;
            let dom = match ExprKind::of(&value) {
                ExprKind::Var(var) => {
                    p.script.as_ref().and_then(|script| script.loops.get(&address(var)).cloned())
                }
                _ => None,
            };
            match dom {
                Some(dom) => values.push((dom, value)),
                None => return p.fail("TypeError", at, "expected the variable of a loop around the block"),
            }
            Ok(())
        })?;
        if kinds.chars().count() != names.len() || values.len() != names.len() {
            let text = format!(
                "`T.axis.remap` has {} for {} and {}",
                words::counted(names.len(), "name", "names"),
                words::counted(kinds.chars().count(), "kind", "kinds"),
                words::counted(values.len(), "loop variable", "loop variables"),
            );
            return self.fail("SyntaxError", at, &text);
        }
        for ((name, kind), (dom, value)) in names.iter().zip(kinds.chars()).zip(values) {
            let Some(kind) = kind_of(kind.encode_utf8(&mut [0; 4])) else {
                return self.fail(
                    "ValueError",
                    at,
                    &format!("expected `S`, `R` or `O` as kind of an axis, got `{kind}`"),
                );
            };
            self.add_axis(name, kind, dom, value, open);
        }
        Ok(())
    }

    fn add_axis(&mut self, name: &'a str, kind: IterKind, dom: Ref<Range>, value: Expr, open: &mut OpenBlock) {
        let var = ops::var(name, dom.extent.dtype);
        self.scope.define(name, Named::Var(var.clone()));
        open.parts.iter_vars.push(Ref::new(IterVar { dom, var, kind }));
        open.values.push(value);
    }
}

/// Returns the kind of an axis by its name or its letter.
fn kind_of(text: &str) -> Option<IterKind> {
    match text {
        "spatial" | "S" => Some(IterKind::Spatial),
        "reduce" | "R" => Some(IterKind::Reduce),
        "scan" | "ordered" | "O" => Some(IterKind::Ordered),
        _ => None,
    }
}
