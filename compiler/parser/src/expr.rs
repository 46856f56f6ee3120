//! Parsing of expressions.

use anyfn::{Array, DType, Error, ObjectRef, Ref, Result};
use anyfn_ir::buffer::{Buffer, BufferRegion};
use anyfn_ir::expr::{BinaryOp, Expr, Range, Var};
use anyfn_ir::ops::{self, DTypeExt, HANDLE};
use anyfn_ir::packed::READ_ONLY;
use anyfn_ir::printer::{FORMS, KEYWORDS, is_dtype_name};
use anyfn_ir::visit::on_enough_stack;
use anyfn_ir::{ExprKind, make, node, words};

use crate::lexer::{Piece, Token};
use crate::number::Number;
use crate::scope::{Named, Scope, Script};
use crate::source::{Source, nearest};

/// Maximum nesting depth of expressions and statements.
const DEEPEST: usize = 5_000;

pub(crate) struct Parser<'a> {
    pub(crate) source: &'a Source<'a>,
    pub(crate) pieces: Vec<Piece<'a>>,
    /// Index of the next token.
    pub(crate) at: usize,
    pub(crate) depth: usize,
    pub(crate) scope: Scope<'a>,
    /// True while the shapes of parameters are parsed. In these shapes, an unknown name defines a variable.
    pub(crate) defining: bool,
    /// True while a range of indices is parsed. In a range, the colon after a new name either
    /// precedes the data type of the name or separates the two bounds of the range.
    pub(crate) in_range: bool,
    /// Names that only TVMScript has. `None` for source in our own syntax.
    pub(crate) script: Option<Script<'a>>,
}

/// Methods that read and consume tokens.
impl<'a> Parser<'a> {
    /// Returns the token `ahead` positions after the next one, or [`Token::End`] if the source ends before that
    /// position.
    pub(crate) fn ahead(&self, ahead: usize) -> &Token<'a> {
        self.pieces.get(self.at + ahead).map_or(&Token::End, |piece| &piece.token)
    }

    pub(crate) fn next(&self) -> &Token<'a> {
        self.ahead(0)
    }

    /// Returns the byte offset at which the next token begins.
    pub(crate) fn start(&self) -> usize {
        self.pieces.get(self.at).map_or(self.source.text.len(), |piece| piece.start)
    }

    /// Returns the byte offset at which the previous token ends.
    pub(crate) fn last_end(&self) -> usize {
        self.at.checked_sub(1).and_then(|at| self.pieces.get(at)).map_or(0, |piece| piece.end)
    }

    pub(crate) fn is_sign(&self, ahead: usize, sign: &str) -> bool {
        matches!(self.ahead(ahead), Token::Sign(found) if *found == sign)
    }

    pub(crate) fn is_name(&self, ahead: usize, name: &str) -> bool {
        matches!(self.ahead(ahead), Token::Name(found) if *found == name)
    }

    /// Consumes the next token and returns true if it is the operator or punctuation `sign`. Returns false
    /// otherwise.
    pub(crate) fn eat(&mut self, sign: &str) -> bool {
        let is_there = self.is_sign(0, sign);
        self.at += usize::from(is_there);
        is_there
    }

    pub(crate) fn eat_name(&mut self, name: &str) -> bool {
        let is_there = self.is_name(0, name);
        self.at += usize::from(is_there);
        is_there
    }

    /// Consumes the operator or punctuation `sign`, or returns an error. `place` describes the expected
    /// position of the sign in the message, as in "after the loop".
    pub(crate) fn expect(&mut self, sign: &str, place: &str) -> Result<()> {
        if self.eat(sign) {
            return Ok(());
        }
        // A token that is missing at the end of a line is reported there.
        let at = if *self.next() == Token::Newline { self.last_end() } else { self.start() };
        let space = if place.is_empty() { "" } else { " " };
        Err(self.source.error("SyntaxError", at, &format!("expected `{sign}`{space}{place}{}", self.but())))
    }

    /// Returns the end of an error message, which describes the next token, such as " but got 5".
    /// Returns an empty string at the end of a line.
    pub(crate) fn but(&self) -> String {
        match self.next() {
            Token::Name(name) => format!(" but got `{name}`"),
            Token::Int(text) | Token::Float(text) => format!(" but got {text}"),
            Token::Text(_) => " but got a string".to_owned(),
            Token::Sign(sign) => format!(" but got `{sign}`"),
            Token::Newline | Token::Indent | Token::Dedent | Token::End => String::new(),
        }
    }

    pub(crate) fn expected<T>(&self, what: &str) -> Result<T> {
        let at = if *self.next() == Token::Newline { self.last_end() } else { self.start() };
        Err(self.source.error("SyntaxError", at, &format!("expected {what}{}", self.but())))
    }

    pub(crate) fn fail<T>(&self, kind: &str, at: usize, message: &str) -> Result<T> {
        Err(self.source.error(kind, at, message))
    }

    /// Returns `result`. If `result` is an error, adds the source location at offset `at` to the error.
    pub(crate) fn located<T>(&self, at: usize, result: Result<T>) -> Result<T> {
        result.map_err(|error: Error| self.source.error(error.kind(), at, error.message()))
    }

    pub(crate) fn word(&mut self, what: &str) -> Result<&'a str> {
        match *self.next() {
            Token::Name(name) if !KEYWORDS.contains(&name) => {
                self.at += 1;
                Ok(name)
            }
            _ => self.expected(what),
        }
    }

    pub(crate) fn text(&mut self, what: &str) -> Result<String> {
        match self.next() {
            Token::Text(text) => {
                let text = text.clone();
                self.at += 1;
                Ok(text)
            }
            _ => self.expected(what),
        }
    }

    /// Parses an integer constant with an optional minus sign. `what` names the value in error messages.
    pub(crate) fn plain_int(&mut self, what: &str) -> Result<i64> {
        let start = self.start();
        let minus = if self.eat("-") { "-" } else { "" };
        match *self.next() {
            Token::Int(digits) => {
                self.at += 1;
                match format!("{minus}{digits}").parse() {
                    Ok(value) => Ok(value),
                    Err(_) => self.fail("ValueError", start, &format!("{what} is too large")),
                }
            }
            _ => self.expected(what),
        }
    }

    /// Parses the name of a data type, with or without quotation marks.
    pub(crate) fn dtype(&mut self) -> Result<DType> {
        let start = self.start();
        let name = match self.next() {
            Token::Name(name) => self.constant_text(name).unwrap_or_else(|| (*name).to_owned()),
            Token::Text(text) => text.clone(),
            _ => return self.expected("a data type"),
        };
        self.at += 1;
        self.dtype_of(&name, start)
    }

    pub(crate) fn dtype_of(&self, name: &str, at: usize) -> Result<DType> {
        // The runtime accepts further strings, which are not names of data types in the source.
        let known = is_dtype_name(name).then(|| name.parse::<DType>().ok()).flatten();
        match known.filter(|dtype| dtype.to_string() == name) {
            Some(dtype) => Ok(dtype),
            None => {
                let hint = self.instead_of_dtype(name);
                self.fail("TypeError", at, &format!("`{name}` is not a data type; {hint}"))
            }
        }
    }

    /// Returns the hint that ends the error message for a name that is not a data type, such as
    /// "did you mean `float32`?". The name has already been consumed.
    fn instead_of_dtype(&self, name: &str) -> String {
        const NAMES: [&str; 15] = [
            "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
            "float32", "float64", "bfloat16", "handle", "Buffer",
        ];
        if self.is_sign(0, ".")
            && let Token::Name(member) = self.ahead(1)
        {
            match *member {
                "Buffer" | "handle" => {
                    return "write `@T.prim_func` before the function if it is TVMScript, or declare a buffer as in `A: Buffer((4, 4), float32)`"
                        .to_owned();
                }
                member if is_dtype_name(member) => return format!("write `{member}` without `{name}.`"),
                _ => {}
            }
        }
        // The runtime accepts further names, such as `f32`.
        let other = match name {
            "half" => Some("float16".to_owned()),
            "double" => Some("float64".to_owned()),
            _ => name.parse::<DType>().ok().map(|dtype| dtype.to_string()),
        };
        let other = other.filter(|other| is_dtype_name(other));
        match other.or_else(|| nearest(name, NAMES).map(str::to_owned)) {
            Some(other) => format!("did you mean `{other}`?"),
            None => "data types are `bool`, `int8` to `int64`, `uint8` to `uint64`, `float16` to `float64`, `bfloat16` and \
                     `handle`, and vectors such as `float32x4`"
                .to_owned(),
        }
    }

    /// Runs a step one nesting level deeper. Returns an error if the depth exceeds [`DEEPEST`].
    pub(crate) fn deeper<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= DEEPEST {
            return self.fail(
                "ValueError",
                self.start(),
                &format!("this is nested more than {DEEPEST} levels deep"),
            );
        }
        self.depth += 1;
        let result = on_enough_stack(|| step(self));
        self.depth -= 1;
        result
    }
}

/// Returns the binary operation that a token denotes, or `None` if the token is not a binary
/// operator.
fn operator(token: &Token<'_>) -> Option<BinaryOp> {
    let (Token::Sign(text) | Token::Name(text)) = token else { return None };
    BinaryOp::ALL.iter().copied().find(|op| op.precedence() > 0 && op.text() == *text)
}

impl<'a> Parser<'a> {
    pub(crate) fn expr(&mut self) -> Result<Expr> {
        self.deeper(|p| p.binary(1))
    }

    /// Parses binary operations whose precedence is at least `least`.
    fn binary(&mut self, least: u8) -> Result<Expr> {
        let mut left = self.unary(least)?;
        loop {
            let Some(op) = operator(self.next()).filter(|op| op.precedence() >= least) else {
                if self.is_sign(0, "**") {
                    return self.fail(
                        "SyntaxError",
                        self.start(),
                        "the operator `**` is not supported; write `pow(x, y)`",
                    );
                }
                return Ok(left);
            };
            let at = self.start();
            self.at += 1;
            let right = self.deeper(|p| p.binary(op.precedence() + 1))?;
            left = match self.script {
                Some(_) => self.script_binary(op, left, right, at)?,
                None => self.located(at, node::binary(op, left, right))?,
            };
            if op.is_comparison() && operator(self.next()).is_some_and(BinaryOp::is_comparison) {
                return self.fail(
                    "SyntaxError",
                    self.start(),
                    "comparisons cannot be chained; combine them with `and`, or use parentheses",
                );
            }
        }
    }

    fn unary(&mut self, least: u8) -> Result<Expr> {
        let at = self.start();
        if self.is_name(0, "not") {
            if least > BinaryOp::Eq.precedence() {
                return self.fail("SyntaxError", at, "`not` requires parentheses here");
            }
            self.at += 1;
            let value = match self.is_name(0, "not") {
                true => self.deeper(|p| p.unary(1))?,
                false => self.deeper(|p| p.binary(BinaryOp::Eq.precedence()))?,
            };
            if let Some(number) = self.number(&value) {
                return self.untyped(Number::Bool(!number.is_true()), at);
            }
            return self.located(at, node::not(value));
        }
        if self.eat("~") {
            let value = self.deeper(|p| p.unary(BinaryOp::Mul.precedence()))?;
            if let Some(Number::Int(number)) = self.number(&value) {
                return self.untyped(Number::Int(!number), at);
            }
            return self.located(at, ops::not(value));
        }
        if self.is_sign(0, "-") {
            self.at += 1;
            if let Token::Int(text) | Token::Float(text) = *self.next() {
                return self.literal(at, &format!("-{text}"));
            }
            let value = self.deeper(|p| p.unary(BinaryOp::Mul.precedence()))?;
            if let Some(number) = self.number(&value) {
                return self.untyped(number.negated(), at);
            }
            let zero =
                if value.dtype.is_float() { ops::float(-0.0, value.dtype) } else { ops::int(0, value.dtype) };
            return self.located(at, node::binary(BinaryOp::Sub, self.located(at, zero)?, value));
        }
        let value = self.primary()?;
        self.methods(value, at)
    }

    /// Parses a number. The next token is the number without its sign, and `text` is the number
    /// with its sign, if it has one.
    fn literal(&mut self, at: usize, text: &str) -> Result<Expr> {
        let is_int = matches!(self.next(), Token::Int(_));
        self.at += 1;
        if self.script.is_some() {
            let number = match text.parse::<i128>() {
                Ok(value) if is_int => Number::Int(value),
                _ => Number::Float(text.parse::<f64>().unwrap_or(f64::NAN)),
            };
            return self.untyped(number, at);
        }
        if !is_int {
            let value = text.parse::<f64>().unwrap_or(f64::NAN);
            return self.located(at, ops::float(value, DType::FLOAT32));
        }
        match text.parse::<i64>() {
            Ok(value) => {
                let dtype = if i32::try_from(value).is_ok() { DType::INT32 } else { DType::INT64 };
                self.located(at, ops::int(value, dtype))
            }
            Err(_) => self.fail("ValueError", at, &format!("{text} does not fit into int64")),
        }
    }

    fn primary(&mut self) -> Result<Expr> {
        let at = self.start();
        match *self.next() {
            Token::Int(text) | Token::Float(text) => self.literal(at, text),
            Token::Text(ref text) => {
                let node = ops::string(text);
                self.at += 1;
                Ok(node)
            }
            Token::Sign("(") => {
                self.at += 1;
                let inner = self.expr()?;
                self.expect(")", "")?;
                Ok(inner)
            }
            Token::Name("True" | "False") => {
                let value = self.is_name(0, "True");
                self.at += 1;
                if self.script.is_some() { self.untyped(Number::Bool(value), at) } else { Ok(ops::bool(value)) }
            }
            Token::Name(name) if !KEYWORDS.contains(&name) => self.named(name, at),
            _ => self.expected("an expression"),
        }
    }

    /// Parses an expression that begins with a name, such as a variable, an element of a buffer or a call.
    fn named(&mut self, name: &'a str, at: usize) -> Result<Expr> {
        self.at += 1;
        if self.is_script(name) && self.is_sign(0, ".") {
            return self.script_expr(at);
        }
        if self.is_sign(0, "(") && self.script.is_some() {
            let text = format!(
                "`{name}(..)` of TVMScript is not supported; functions of the tensor IR begin with `T.`"
            );
            return self.fail("NotImplementedError", at, &text);
        }
        if self.is_sign(0, "(") {
            return self.function(name, at);
        }
        if self.is_sign(0, ".") {
            return self.dotted(name, at);
        }
        let is_dtype = |token: &Token| matches!(token, Token::Name(name) if is_dtype_name(name));
        // In a range, `:` may also be followed by its end, which may begin with a cast such as `int64(n)`.
        let is_declared = !self.in_range || (is_dtype(self.ahead(1)) && !self.is_sign(2, "("));
        if self.defining && self.is_sign(0, ":") && is_declared {
            self.at += 1;
            let dtype = self.dtype()?;
            return Ok(self.new_extent(name, dtype).into_parent());
        }
        match self.scope.find(name).cloned() {
            Some(Named::Var(var)) if self.is_sign(0, "[") => {
                self.fail("TypeError", at, &format!("`{}` is a variable, not a buffer", var.name))
            }
            Some(Named::Var(var)) => Ok(var.into_parent()),
            Some(Named::Buffer(buffer, _)) if self.is_sign(0, "[") => {
                let indices = self.indices()?;
                self.located(at, ops::load(&buffer, indices))
            }
            Some(Named::Buffer(..)) => self.fail(
                "TypeError",
                at,
                &format!("`{name}` is a buffer, not a value; specify an element, as in `{name}[i]`"),
            ),
            None if self.script.is_some() => match self.constant(name, at) {
                Some(constant) => constant,
                None if self.defining && self.is_declared(name) => Ok(self.declared_extent(name)),
                None => self.unknown(name, at),
            },
            None if self.defining => Ok(self.new_extent(name, DType::INT32).into_parent()),
            None => self.unknown(name, at),
        }
    }

    /// Defines a variable for a name that occurs for the first time in the shape of a parameter.
    pub(crate) fn new_extent(&mut self, name: &'a str, dtype: DType) -> Ref<Var> {
        let var = ops::var(name, dtype);
        self.scope.define(name, Named::Var(var.clone()));
        var
    }

    pub(crate) fn unknown<T>(&self, name: &str, at: usize) -> Result<T> {
        let hint = match nearest(name, self.scope.names().chain(KEYWORDS.iter().copied())) {
            Some(known) => format!("; did you mean `{known}`?"),
            None => String::new(),
        };
        self.fail("NameError", at, &format!("`{name}` is not defined here{hint}"))
    }

    /// Parses `A.data`, `A.handle`, or a node that is written with its type key, such as
    /// `my.Node(field=value)`.
    fn dotted(&mut self, name: &'a str, at: usize) -> Result<Expr> {
        if let Some(Named::Buffer(buffer, handle)) = self.scope.find(name).cloned() {
            self.at += 1;
            let part = self.word("`data` or `handle`")?;
            return match (part, handle) {
                ("data", _) => Ok(buffer.data.clone().into_parent()),
                ("handle", Some(handle)) => Ok(handle.into_parent()),
                _ => self.fail("NameError", at, &format!("buffer `{name}` has no attribute `{part}`")),
            };
        }
        let object = self.keyed(name, at)?;
        Expr::try_from_object(object).or_else(|object| {
            self.fail("TypeError", at, &format!("`{}` is not an expression", object.type_key()))
        })
    }

    /// Parses the indices of an element, including the brackets.
    pub(crate) fn indices(&mut self) -> Result<Array<Expr>> {
        self.expect("[", "")?;
        if self.is_sign(0, "(") && self.is_sign(1, ")") {
            self.at += 2;
            self.expect("]", "after the indices")?;
            return Ok(Array::new());
        }
        self.list("]", "after the indices", Self::index).map(|indices| indices.into_iter().collect())
    }

    /// Parses items that are separated by commas, with an optional trailing comma, up to the closing sign
    /// `end`.
    pub(crate) fn list<T>(
        &mut self,
        end: &str,
        place: &str,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while !self.eat(end) {
            items.push(item(self)?);
            if !self.eat(",") && !self.is_sign(0, end) {
                return self.expected(&format!("`,` or `{end}` {place}"));
            }
        }
        Ok(items)
    }

    /// Parses an expression in the form of a call: a conversion, a node such as `select(..)`, or a call of a function.
    fn function(&mut self, name: &'a str, at: usize) -> Result<Expr> {
        if is_dtype_name(name) {
            let dtype = self.dtype_of(name, at)?;
            self.at += 1;
            return self.converted(dtype, at);
        }
        let two = BinaryOp::ALL.iter().copied().find(|op| op.precedence() == 0 && op.text() == name);
        match name {
            "select" => {
                let [condition, a, b] = self.args(name, at)?;
                self.located(at, node::select(condition, a, b))
            }
            "ramp" => {
                self.at += 1;
                let start = self.comma("ramp(start, stride, lanes)")?;
                let stride = self.comma("ramp(start, stride, lanes)")?;
                let lanes = self.lanes()?;
                self.located(at, ops::ramp(start, stride, lanes))
            }
            "broadcast" => {
                self.at += 1;
                let value = self.comma("broadcast(value, lanes)")?;
                let lanes = self.lanes()?;
                self.located(at, node::broadcast(value, lanes))
            }
            "let" => {
                self.at += 1;
                let name = self.word("the name of a variable")?;
                self.expect(",", "after the name")?;
                let value = self.comma("let(name, value, body)")?;
                let var = ops::var(name, value.dtype);
                let mark = self.scope.enter();
                self.scope.define(name, Named::Var(var.clone()));
                let body = self.expr();
                self.scope.leave(mark);
                let body = body?;
                self.eat(",");
                self.expect(")", "after the body of `let`")?;
                self.located(at, ops::bind(var, value, body))
            }
            "cast" => {
                self.at += 1;
                let dtype = self.dtype()?;
                self.expect(",", "after the data type")?;
                let value = self.expr()?;
                self.expect(")", "after the value")?;
                self.located(at, node::cast(value, dtype))
            }
            "call" => {
                self.at += 1;
                let op = self.text("the name of the function, as a string")?;
                if !self.is_sign(0, ")") {
                    self.expect(",", "after the name")?;
                }
                self.call(&op, at)
            }
            "text" => {
                self.at += 1;
                let text = self.text("a text")?;
                self.expect(")", "after the string")?;
                Ok(ops::string(&text))
            }
            "node" => {
                let object = self.node(at)?;
                Expr::try_from_object(object).or_else(|object| {
                    self.fail("TypeError", at, &format!("`{}` is not an expression", object.type_key()))
                })
            }
            "sum" | "reduce" => self.reduction(at),
            _ if two.is_some() => {
                let args = self.begin_args(name, at)?;
                let Ok([a, b]) = <[Expr; 2]>::try_from(args) else {
                    return self.fail("TypeError", at, &format!("`{name}` takes 2 values"));
                };
                let op = two.unwrap_or(BinaryOp::Min);
                self.located(at, node::binary(op, a, b))
            }
            _ if FORMS.contains(&name) => {
                self.fail("SyntaxError", at, &format!("`{name}` is not an expression and cannot be used here"))
            }
            _ => {
                self.at += 1;
                self.call(name, at)
            }
        }
    }

    fn reduction<T>(&self, at: usize) -> Result<T> {
        self.fail(
            "SyntaxError",
            at,
            "a reduction of a tensor expression cannot be parsed; write a block with a reduce axis and \
             `with init():`",
        )
    }

    pub(crate) fn begin_args(&mut self, name: &str, at: usize) -> Result<Vec<Expr>> {
        self.at += 1;
        let args = self.list(")", &format!("in `{name}(..)`"), |p| {
            if p.is_name(0, "axis") && p.is_sign(1, "=") {
                return p.reduction(at);
            }
            p.expr()
        })?;
        Ok(args)
    }

    pub(crate) fn args<const N: usize>(&mut self, name: &str, at: usize) -> Result<[Expr; N]> {
        let args = self.begin_args(name, at)?;
        let count = args.len();
        match args.try_into() {
            Ok(args) => Ok(args),
            Err(_) => self.fail("TypeError", at, &format!("`{name}` takes {N} values but got {count}")),
        }
    }

    pub(crate) fn comma(&mut self, form: &str) -> Result<Expr> {
        let value = self.expr()?;
        self.expect(",", &format!("as in `{form}`"))?;
        Ok(value)
    }

    pub(crate) fn lanes(&mut self) -> Result<u16> {
        let at = self.start();
        let lanes = self.plain_int("a number of lanes")?;
        self.expect(")", "after the number of lanes")?;
        match u16::try_from(lanes) {
            Ok(lanes) => Ok(lanes),
            Err(_) => self.fail("ValueError", at, "expected a number of lanes between 2 and 65535"),
        }
    }

    /// Parses the argument of a conversion such as `float32(x)`, after the opening bracket. The result is a
    /// constant if the argument is a literal.
    pub(crate) fn converted(&mut self, dtype: DType, at: usize) -> Result<Expr> {
        let minus = usize::from(self.is_sign(0, "-"));
        let sign = if minus == 1 { "-" } else { "" };
        if !self.is_sign(minus + 1, ")") {
            let value = self.expr()?;
            self.expect(")", "after the value")?;
            return self.located(at, node::cast(value, dtype));
        }
        let value = match self.ahead(minus) {
            Token::Int(digits) if dtype.is_float() => {
                format!("{sign}{digits}").parse::<f64>().ok().map(Literal::Float)
            }
            Token::Float(digits) => format!("{sign}{digits}").parse::<f64>().ok().map(Literal::Float),
            Token::Text(text) if dtype.is_float() => text.parse::<f64>().ok().map(Literal::Float),
            Token::Text(_) => None,
            Token::Int(digits) => {
                let text = format!("{sign}{digits}");
                let is_unsigned_64 = dtype.element().to_string() == "uint64";
                let bits = || text.parse::<u64>().ok().filter(|_| is_unsigned_64).map(|bits| bits as i64);
                text.parse::<i64>()
                    .ok()
                    .filter(|value| !is_unsigned_64 || *value >= 0)
                    .or_else(bits)
                    .map(Literal::Int)
            }
            _ => {
                let value = self.expr()?;
                self.expect(")", "after the value")?;
                return self.located(at, node::cast(value, dtype));
            }
        };
        let result = match value {
            Some(Literal::Int(value)) => ops::int(value, dtype),
            Some(Literal::Float(value)) => ops::float(value, dtype),
            None => return self.fail("ValueError", at, &format!("this is not a value of {dtype}")),
        };
        self.at += minus + 2;
        self.located(at, result)
    }

    /// Parses the arguments of a call of `op`, after the opening bracket, and returns the call.
    pub(crate) fn call(&mut self, op: &str, at: usize) -> Result<Expr> {
        let mut dtype = None;
        let args = self.list(")", "after the argument", |p| {
            if p.is_name(0, "dtype") && p.is_sign(1, "=") {
                p.at += 2;
                dtype = Some(p.dtype()?);
                return Ok(None);
            }
            if matches!(p.next(), Token::Name(_)) && p.is_sign(1, "=") {
                return p.expected("an argument, or `dtype=`");
            }
            p.arg().map(Some)
        })?;
        let args: Vec<ObjectRef> = args.into_iter().flatten().collect();
        let first = args.first().and_then(|arg| Expr::try_from_object(arg.clone()).ok());
        let told = first.map(|first| first.dtype).filter(|dtype| *dtype != HANDLE);
        let told = told.unwrap_or(if op == READ_ONLY { HANDLE } else { DType::INT32 });
        self.located(at, Ok(ops::call(dtype.unwrap_or(told), op, args)))
    }

    /// Parses an argument of a call: an expression, a buffer, a region of a buffer, or another object.
    pub(crate) fn arg(&mut self) -> Result<ObjectRef> {
        if let Token::Name(name) = *self.next() {
            let is_alone = self.is_sign(1, ",") || self.is_sign(1, ")");
            if let (true, Some(Named::Buffer(buffer, _))) = (is_alone, self.scope.find(name)) {
                let buffer = buffer.clone().into_object();
                self.at += 1;
                return Ok(buffer);
            }
            if name == "region" && self.is_sign(1, "(") {
                self.at += 2;
                let region = self.region()?;
                self.expect(")", "after the region")?;
                return Ok(region.into_object());
            }
            if name == "object" && self.is_sign(1, "(") {
                let at = self.start();
                self.at += 2;
                let value = self.value()?;
                self.expect(")", "after the value")?;
                return match value.into_object() {
                    Some(object) => Ok(object),
                    None => self.fail("TypeError", at, "this value is not an object"),
                };
            }
        }
        self.expr().map(|expr| expr.into_object())
    }

    /// Parses a region of a buffer.
    pub(crate) fn region(&mut self) -> Result<Ref<BufferRegion>> {
        let at = self.start();
        let name = self.word("the name of a buffer")?;
        let buffer = self.buffer_named(name, at)?;
        if self.is_sign(0, "[") && self.is_sign(1, "(") && self.is_sign(2, ")") {
            self.at += 1;
            self.at += 2;
            self.expect("]", "after the region")?;
            return self.whole_region(buffer, Vec::new(), at);
        }
        self.expect("[", "after the name of the buffer")?;
        let ranges = self.list("]", "in the region", Self::range)?;
        self.whole_region(buffer, ranges, at)
    }

    fn whole_region(
        &self,
        buffer: Ref<Buffer>,
        ranges: Vec<Ref<Range>>,
        at: usize,
    ) -> Result<Ref<BufferRegion>> {
        if ranges.len() != buffer.shape.len() {
            let (name, has) = (&buffer.name, words::dimensions(buffer.shape.len()));
            let got = words::counted(ranges.len(), "range", "ranges");
            return self.fail("IndexError", at, &format!("`{name}` has {has} but got {got}"));
        }
        Ok(Ref::new(BufferRegion { buffer, region: ranges.into_iter().collect() }))
    }

    fn range(&mut self) -> Result<Ref<Range>> {
        let at = self.start();
        if self.is_name(0, "range") && self.is_sign(1, "(") {
            self.at += 2;
            let min = self.comma("range(first, extent=count)")?;
            if !self.eat_name("extent") {
                return self.expected("`extent=`");
            }
            self.expect("=", "")?;
            let extent = self.expr()?;
            self.expect(")", "after the range")?;
            return Ok(Ref::new(Range { min, extent }));
        }
        let in_range = std::mem::replace(&mut self.in_range, true);
        let min = self.expr()?;
        let extent = if self.eat(":") {
            let end = self.expr()?;
            self.located(at, extent_of(&min, end))?
        } else {
            self.located(at, ops::int(1, min.dtype.element()))?
        };
        self.in_range = in_range;
        Ok(Ref::new(Range { min, extent }))
    }

    pub(crate) fn buffer_named(&self, name: &str, at: usize) -> Result<Ref<Buffer>> {
        match self.scope.find(name) {
            Some(Named::Buffer(buffer, _)) => Ok(buffer.clone()),
            Some(Named::Var(_)) => self.fail("TypeError", at, &format!("`{name}` is a variable, not a buffer")),
            None => self.unknown(name, at),
        }
    }
}

enum Literal {
    Int(i64),
    Float(f64),
}

/// Returns the extent of a range from `min` to `end`, where `end` is excluded.
pub(crate) fn extent_of(min: &Expr, end: Expr) -> Result<Expr> {
    if let ExprKind::Binary(BinaryOp::Add, sum) = ExprKind::of(&end)
        && make::is_equal(&sum.a, min)
    {
        return Ok(sum.b.clone());
    }
    ops::sub(end, min.clone())
}
