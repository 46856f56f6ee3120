//! Lexer: splits source into names, numbers, strings, operators, punctuation, ends of lines and
//! changes of indentation.

use anyfn::Result;

use crate::source::Source;

/// Token of the source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    Name(&'a str),
    /// Integer without its sign, which is a separate token.
    Int(&'a str),
    /// Number with a decimal point or an exponent.
    Float(&'a str),
    Text(String),
    Sign(&'static str),
    /// End of a line that contains at least one token.
    Newline,
    Indent,
    Dedent,
    End,
}

/// Token with the byte offsets of its start and end.
pub(crate) struct Piece<'a> {
    pub(crate) token: Token<'a>,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Operators and punctuation. Longer signs come first, so that `//` is not read as two `/`.
const SIGNS: &[&str] = &[
    "**", "//", "<<", ">>", "==", "!=", "<=", ">=", "+=", "-=", "*=", "+", "-", "*", "/", "%", "&", "|", "^",
    "~", "<", ">", "=", "(", ")", "[", "]", "{", "}", ",", ":", ".", "@",
];

struct Lexer<'a> {
    source: &'a Source<'a>,
    rest: &'a str,
    pieces: Vec<Piece<'a>>,
    /// Open brackets with their byte offsets. Line breaks inside brackets are ignored.
    open: Vec<(char, usize)>,
    indents: Vec<usize>,
}

/// Splits source into tokens. The last token is [`Token::End`].
pub(crate) fn pieces<'a>(source: &'a Source<'a>) -> Result<Vec<Piece<'a>>> {
    let mut lexer =
        Lexer { source, rest: source.text, pieces: Vec::new(), open: Vec::new(), indents: Vec::new() };
    lexer.run()?;
    Ok(lexer.pieces)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl<'a> Lexer<'a> {
    fn at(&self) -> usize {
        self.source.text.len() - self.rest.len()
    }

    fn error<T>(&self, at: usize, message: &str) -> Result<T> {
        Err(self.source.error("SyntaxError", at, message))
    }

    fn push(&mut self, token: Token<'a>, start: usize) {
        let end = self.at();
        self.pieces.push(Piece { token, start, end });
    }

    /// Consumes the next `bytes` bytes, which must end at a character boundary, and returns them.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !fits(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn run(&mut self) -> Result<()> {
        let mut is_line_start = true;
        loop {
            if is_line_start && self.open.is_empty() {
                self.indentation()?;
                is_line_start = false;
            }
            self.take_while(|c| c == ' ');
            let start = self.at();
            let Some(first) = self.rest.chars().next() else { break };
            match first {
                '#' => drop(self.take_while(|c| c != '\n')),
                '\r' => drop(self.take(1)),
                '\n' => {
                    if self.open.is_empty() {
                        if !matches!(self.pieces.last().map(|piece| &piece.token), None | Some(Token::Newline))
                        {
                            self.push(Token::Newline, start);
                        }
                        is_line_start = true;
                    }
                    self.take(1);
                }
                '\t' => return self.error(start, "expected spaces but got a tab"),
                // A docstring of TVMScript.
                '"' | '\'' if self.rest.starts_with(["\"\"\"", "'''"][usize::from(first == '\'')]) => {
                    let quotes = self.take(3);
                    let Some(end) = self.rest.find(quotes) else {
                        return self.error(start, "unterminated string: expected its closing quotation marks");
                    };
                    let text = self.take(end).to_owned();
                    self.take(3);
                    self.push(Token::Text(text), start);
                }
                '"' | '\'' => {
                    let text = self.text(first)?;
                    self.push(Token::Text(text), start);
                }
                _ if first.is_ascii_digit() => self.number()?,
                _ if is_word(first) => {
                    let word = self.take_while(is_word);
                    self.push(Token::Name(word), start);
                }
                _ => self.sign(first)?,
            }
        }
        if let Some((bracket, at)) = self.open.pop() {
            return self.error(at, &format!("`{bracket}` is never closed"));
        }
        let end = self.at();
        if !matches!(self.pieces.last().map(|piece| &piece.token), None | Some(Token::Newline)) {
            self.push(Token::Newline, end);
        }
        for _ in 1..self.indents.len() {
            self.push(Token::Dedent, end);
        }
        self.push(Token::End, end);
        Ok(())
    }

    /// Lexes the indentation of a line. Empty lines and comments are skipped.
    fn indentation(&mut self) -> Result<()> {
        loop {
            let spaces = self.take_while(|c| c == ' ').len();
            if self.rest.starts_with('#') {
                self.take_while(|c| c != '\n');
            }
            if self.rest.starts_with(['\n', '\r']) {
                self.take(1);
                continue;
            }
            if self.rest.is_empty() {
                return Ok(());
            }
            let at = self.at();
            let Some(last) = self.indents.last().copied() else {
                self.indents.push(spaces);
                return Ok(());
            };
            if spaces > last {
                self.indents.push(spaces);
                self.push(Token::Indent, at);
            }
            while self.indents.len() > 1 && self.indents.last().is_some_and(|top| *top > spaces) {
                self.indents.pop();
                self.push(Token::Dedent, at);
            }
            if self.indents.last() != Some(&spaces) {
                return self.error(at, "the indentation of this line matches no enclosing block");
            }
            return Ok(());
        }
    }

    fn number(&mut self) -> Result<()> {
        let start = self.at();
        let digits = |lexer: &mut Self| lexer.take_while(|c| c.is_ascii_digit());
        digits(self);
        let mut is_float = false;
        if self.rest.starts_with('.') {
            is_float = true;
            self.take(1);
            digits(self);
        }
        if self.rest.starts_with(['e', 'E']) {
            let sign = usize::from(self.rest[1..].starts_with(['+', '-']));
            if self.rest[1 + sign..].starts_with(|c: char| c.is_ascii_digit()) {
                is_float = true;
                self.take(1 + sign);
                digits(self);
            }
        }
        let end = self.at();
        let text = &self.source.text[start..end];
        if self.rest.starts_with(is_word) {
            return self.error(start, "expected a number or a name, not both in one word");
        }
        self.push(if is_float { Token::Float(text) } else { Token::Int(text) }, start);
        Ok(())
    }

    fn text(&mut self, quote: char) -> Result<String> {
        let start = self.at();
        self.take(1);
        let mut out = String::new();
        loop {
            let at = self.at();
            let Some(c) = self.rest.chars().next().filter(|c| *c != '\n') else {
                return self
                    .error(start, "unterminated string: expected its closing quotation mark on the same line");
            };
            self.take(c.len_utf8());
            match c {
                _ if c == quote => return Ok(out),
                '\\' => out.push(self.escape(at)?),
                _ => out.push(c),
            }
        }
    }

    /// Lexes an escape sequence whose backslash has already been consumed.
    fn escape(&mut self, at: usize) -> Result<char> {
        let c = self.rest.chars().next().unwrap_or('\n');
        if c != '\n' {
            self.take(c.len_utf8());
        }
        let digits = match c {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            '0' => return Ok('\0'),
            '\\' | '"' | '\'' => return Ok(c),
            'x' => 2,
            'u' if self.rest.starts_with('{') => {
                self.take(1);
                self.rest.find('}').unwrap_or(0)
            }
            'u' => 4,
            _ => return self.error(at, "expected one of \\n \\r \\t \\0 \\\\ \\\" \\' \\x00 \\u{0}"),
        };
        let is_braced = c == 'u' && self.source.text[..self.at()].ends_with('{');
        let value = self.rest.get(..digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        match value.and_then(char::from_u32) {
            Some(value) => {
                self.take(digits + usize::from(is_braced));
                Ok(value)
            }
            None => self.error(at, "this escape sequence is not a valid character"),
        }
    }

    fn sign(&mut self, first: char) -> Result<()> {
        let start = self.at();
        let Some(sign) = SIGNS.iter().find(|sign| self.rest.starts_with(**sign)) else {
            return self.error(start, &format!("unexpected character {first:?}"));
        };
        match first {
            '(' | '[' | '{' => self.open.push((first, start)),
            ')' | ']' | '}' => {
                let expected = match self.open.pop() {
                    Some(('(', _)) => ')',
                    Some(('[', _)) => ']',
                    Some((_, _)) => '}',
                    None => return self.error(start, &format!("`{first}` has no matching opening bracket")),
                };
                if expected != first {
                    return self.error(start, &format!("expected `{expected}` before `{first}`"));
                }
            }
            _ => {}
        }
        self.take(sign.len());
        self.push(Token::Sign(sign), start);
        Ok(())
    }
}
