//! Parsing of TVMScript, the Python syntax in which Apache TVM prints functions and modules of its tensor IR.
//!
//! The expressions, loops and blocks are those of our own syntax under other names, so this module adds the names to the
//! same parser: [`Parser::script`] is set while it reads TVMScript. It accepts the spelling of current versions
//! (`T.sblock`) and of earlier ones (`T.block`). A construct without an equivalent is an error that names it.

mod expr;
mod func;
mod stmt;

use anyfn::{DType, Result};
use anyfn_ir::expr::Expr;
use anyfn_ir::ops;

use crate::expr::Parser;
use crate::lexer::Token;
use crate::number::Number;
use crate::scope::Constant;

impl<'a> Parser<'a> {
    /// Returns true if the source is TVMScript: it begins with an import, a size, a class or the decorator of a function.
    pub(crate) fn begins_script(&self) -> bool {
        match self.next() {
            Token::Name("from" | "import" | "class") => true,
            Token::Name(_) => self.is_sign(1, "=") && self.is_name(2, "TypeVar"),
            Token::Sign("@") => !self.is_name(1, "key"),
            _ => false,
        }
    }

    /// Returns true if the source is TVMScript and `name` is its name for the module of the tensor IR.
    pub(crate) fn is_script(&self, name: &str) -> bool {
        self.script.as_ref().is_some_and(|script| script.tensor == name)
    }

    /// Returns true if a member of the module of the tensor IR begins `ahead` tokens after the next one, as in `T.grid`.
    fn is_member(&self, ahead: usize) -> bool {
        matches!(self.ahead(ahead), Token::Name(name) if self.is_script(name)) && self.is_sign(ahead + 1, ".")
    }

    /// Returns the name of the member of the module of the tensor IR that begins at the next token.
    fn member(&self) -> Option<&'a str> {
        match *self.ahead(2) {
            Token::Name(member) if self.is_member(0) => Some(member),
            _ => None,
        }
    }

    /// Consumes `T.member` and the opening bracket after it, and returns true, if the source has one of these members here.
    fn eat_member(&mut self, members: &[&str]) -> bool {
        let is_there = self.member().is_some_and(|member| members.contains(&member)) && self.is_sign(3, "(");
        self.at += 4 * usize::from(is_there);
        is_there
    }

    /// Returns an error for a member of the module of the tensor IR that has no equivalent.
    fn unsupported<T>(&self, member: &str, at: usize) -> Result<T> {
        self.fail("NotImplementedError", at, &format!("`T.{member}` of TVMScript is not supported"))
    }

    /// Returns an expression for the constant that the caller of the parser defines under a name, if there is one.
    pub(crate) fn constant(&mut self, name: &str, at: usize) -> Option<Result<Expr>> {
        match self.script.as_ref()?.names.get(name)? {
            Constant::Text(text) => Some(Ok(ops::string(text))),
            Constant::Number(number) => {
                let number = *number;
                Some(self.untyped(number, at))
            }
        }
    }

    /// Returns the string that the caller of the parser defines under a name.
    pub(crate) fn constant_text(&self, name: &str) -> Option<String> {
        match self.script.as_ref()?.names.get(name)? {
            Constant::Text(text) => Some(text.clone()),
            Constant::Number(_) => None,
        }
    }

    /// Returns a constant for a number of Python, and records that it is one.
    pub(crate) fn untyped(&mut self, number: Number, at: usize) -> Result<Expr> {
        let constant = self.located(at, number.constant())?;
        if let Some(script) = &mut self.script {
            let address = constant.as_object().as_handle().addr();
            script.numbers.insert(address, (constant.clone(), number));
        }
        Ok(constant)
    }

    /// Returns the number of Python for which the parser has made a constant.
    pub(crate) fn number(&self, value: &Expr) -> Option<Number> {
        let numbers = &self.script.as_ref()?.numbers;
        numbers.get(&value.as_object().as_handle().addr()).map(|(_, number)| *number)
    }

    /// Parses a name, and returns its data type if it is `T.float32` or similar. A pair of brackets may follow.
    fn script_dtype(&mut self) -> Result<DType> {
        if !self.is_member(0) {
            return self.dtype();
        }
        self.at += 2;
        let dtype = self.dtype()?;
        if self.eat("(") {
            self.expect(")", "after the data type")?;
        }
        Ok(dtype)
    }

    /// Consumes the tokens up to the end of the line.
    fn skip_line(&mut self) -> Result<()> {
        while !matches!(self.next(), Token::Newline | Token::End) {
            self.at += 1;
        }
        self.newline()
    }
}
