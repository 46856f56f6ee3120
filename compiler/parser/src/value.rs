//! Parsing of values that are not expressions: annotations, and fields of nodes whose types the
//! tensor IR does not define.

use anyfn::reflection::TypeInfo;
use anyfn::{Any, Array, Map, ObjectRef, Result, String as Str, registry};

use crate::expr::Parser;
use crate::lexer::Token;
use crate::scope::Named;

impl<'a> Parser<'a> {
    /// Parses the value of an annotation or field. A single number, string, Boolean or `None` is a
    /// plain value. Any other source is an expression, a container or a node.
    pub(crate) fn value(&mut self) -> Result<Any> {
        self.deeper(Self::value_here)
    }

    fn value_here(&mut self) -> Result<Any> {
        let at = self.start();
        let minus = usize::from(self.is_sign(0, "-"));
        let is_alone = matches!(
            self.ahead(minus + 1),
            Token::Sign("," | ")" | "]" | "}" | ":") | Token::Newline | Token::End
        );
        let sign = if minus == 1 { "-" } else { "" };
        let value = match self.ahead(minus) {
            Token::Int(digits) if is_alone => match format!("{sign}{digits}").parse::<i64>() {
                Ok(value) => Any::new(value)?,
                Err(_) => return self.fail("ValueError", at, "this integer is too large"),
            },
            Token::Float(digits) if is_alone => {
                Any::new(format!("{sign}{digits}").parse::<f64>().unwrap_or(f64::NAN))?
            }
            Token::Text(text) if is_alone && minus == 0 => Any::new(text.as_str())?,
            Token::Name("True") if is_alone && minus == 0 => Any::new(true)?,
            Token::Name("False") if is_alone && minus == 0 => Any::new(false)?,
            Token::Name("None") if is_alone && minus == 0 => Any::new(())?,
            _ => return self.compound(at),
        };
        self.at += minus + 1;
        Ok(value)
    }

    fn compound(&mut self, at: usize) -> Result<Any> {
        match *self.next() {
            Token::Sign("[") => {
                self.at += 1;
                let items = self.list("]", "in the list", Self::value)?;
                Any::new(Array::<Any>::try_from_iter(items)?)
            }
            Token::Sign("{") => {
                self.at += 1;
                let pairs = self.list("}", "in the map", |p| {
                    let key = p.value()?;
                    p.expect(":", "after the key")?;
                    Ok((key, p.value()?))
                })?;
                let map = Map::<Any, Any>::from_vec(pairs);
                Any::new(self.located(at, map)?)
            }
            Token::Name(name) if self.is_sign(1, "(") => self.named_value(name, at),
            Token::Name(name)
                if self.is_sign(1, ".") && self.scope.find(name).is_none() && !self.is_script(name) =>
            {
                self.at += 1;
                self.keyed(name, at).map(Any::from)
            }
            Token::Name(name) if !self.is_sign(1, "[") => match self.scope.find(name).cloned() {
                Some(Named::Buffer(buffer, _)) => {
                    self.at += 1;
                    if self.is_sign(0, ".") {
                        self.at -= 1;
                        return self.expr().map(|expr| Any::from(expr.into_object()));
                    }
                    Ok(Any::from(buffer.into_object()))
                }
                _ => self.expr().map(|expr| Any::from(expr.into_object())),
            },
            _ => self.expr().map(|expr| Any::from(expr.into_object())),
        }
    }

    fn named_value(&mut self, name: &'a str, at: usize) -> Result<Any> {
        match name {
            "float" => {
                self.at += 2;
                let text = self.text("a number as a string")?;
                self.expect(")", "after the number")?;
                match text.parse::<f64>() {
                    Ok(value) => Any::new(value),
                    Err(_) => self.fail("ValueError", at, &format!("{text:?} is not a number")),
                }
            }
            "dtype" => {
                self.at += 2;
                let dtype = self.dtype()?;
                self.expect(")", "after the data type")?;
                Any::new(dtype)
            }
            "region" => {
                self.at += 2;
                let region = self.region()?;
                self.expect(")", "after the region")?;
                Ok(Any::from(region.into_object()))
            }
            "node" => {
                self.at += 1;
                self.node(at).map(Any::from)
            }
            _ => self.expr().map(|expr| Any::from(expr.into_object())),
        }
    }

    /// Parses `node("key", field=value)`, beginning at the opening bracket.
    pub(crate) fn node(&mut self, at: usize) -> Result<ObjectRef> {
        self.expect("(", "")?;
        let key = self.text("the key of a type, as a string")?;
        if !self.is_sign(0, ")") {
            self.expect(",", "after the key")?;
        }
        self.fields(&key, at)
    }

    /// Parses `my.Node(field=value)`, beginning at the first dot. `first` is the name before the dot.
    pub(crate) fn keyed(&mut self, first: &str, at: usize) -> Result<ObjectRef> {
        let mut key = first.to_owned();
        while self.eat(".") {
            key.push('.');
            key.push_str(self.word("a name")?);
        }
        if !self.is_sign(0, "(") {
            return self.unknown(first, at);
        }
        self.at += 1;
        self.fields(&key, at)
    }

    /// Parses the fields of an object, after the opening bracket, and creates the object. Its type must be
    /// registered under the type key `key`.
    fn fields(&mut self, key: &str, at: usize) -> Result<ObjectRef> {
        if TypeInfo::from_key(key).is_none() {
            let text = format!("unknown type `{key}`; load the library that defines it before parsing");
            return self.fail("NameError", at, &text);
        }
        let mut args = vec![Any::new(key)?];
        self.list(")", "after the field", |p| {
            let name = p.word("a field, as in `name=value`")?;
            p.expect("=", "after the name of the field")?;
            args.push(Any::new(name)?);
            args.push(p.value()?);
            Ok(())
        })?;
        let views: Vec<_> = args.iter().map(Any::as_view).collect();
        let made = registry::get("ffi.MakeObjectFromPackedArgs").and_then(|make| make.call_views(&views));
        self.located(at, made.and_then(|made| made.get::<ObjectRef>()))
    }

    /// Parses annotations, as in `, key=value, **{"another key": value}`, up to the closing bracket, which is
    /// not consumed. `other` is called with the key of each keyword argument. For an annotation, `other` must
    /// return false. For any other argument, it must parse the value and return true.
    pub(crate) fn annotations(
        &mut self,
        mut other: impl FnMut(&mut Self, &str) -> Result<bool>,
    ) -> Result<Map<Str, Any>> {
        let mut found: Vec<(Str, Any)> = Vec::new();
        while self.eat(",") {
            if self.is_sign(0, ")") {
                break;
            }
            let at = self.start();
            if self.eat("**") {
                let value = self.value()?;
                let Ok(map) = value.get::<Map<Str, Any>>() else {
                    return self.fail(
                        "TypeError",
                        at,
                        "expected annotations by their names, as in **{\"name\": 1}",
                    );
                };
                found.extend(map.iter());
                continue;
            }
            let key = self.word("an annotation, as in `name=value`")?;
            self.expect("=", "after the name of the annotation")?;
            if !other(self, key)? {
                found.push((key.into(), self.value()?));
            }
        }
        Map::try_from_iter(found)
    }
}
