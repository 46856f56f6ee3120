//! Signatures of functions, and calls with named arguments.
//!
//! A signature is exchanged as JSON (see `docs/signature.md`), so that functions of any language can have one.

use core::fmt::Write;

use alloc::format;
use alloc::string::String as StdString;
use alloc::vec::Vec;

use crate::json::Json;
use crate::text::nearest;
use crate::{Any, AnyView, Error, IntoArgs, PackedFunc, Result, Schema};

/// Signature of a function, parsed from its JSON.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Any, Fallback, PackedFunc, Signature, register, registry};
///
/// /// Multiplies `x`.
/// #[register("doc.signature.scale")]
/// fn scale(x: f64, #[default(2.0)] factor: f64) -> f64 {
///     x * factor
/// }
///
/// let scale: PackedFunc = registry::get("doc.signature.scale")?;
/// let json = scale.signature().expect("registered functions have one");
/// let signature = Signature::parse(&json)?;
/// let params = signature.params.expect("of a function with known types");
/// assert_eq!(params[0].name, "x");
/// assert!(matches!(params[0].default, Fallback::Required));
/// assert!(matches!(params[1].default, Fallback::Value(_)));
/// assert_eq!(scale.call_named((1.5,), &[("factor", Any::new(4.0)?)])?.get::<f64>()?, 6.0);
/// # Ok::<(), anyfn::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Signature {
    /// Name of the function; empty if it is not known.
    pub name: StdString,
    /// Parameters of the function, in the order of the signature; `None` if they are not known.
    pub params: Option<Vec<Param>>,
    /// True if the names of the arguments are known.
    pub named: bool,
    /// True if the function accepts more positional arguments than `params` lists.
    pub variadic: bool,
    /// Names of the keyword-only arguments. If `takes_names` is false, only callers in the language
    /// in which the function is written can pass these arguments.
    pub keyword_only: Vec<StdString>,
    /// True if the function accepts named arguments directly. The positional arguments are then followed by the
    /// object that `ffi.GetKwargsObject` returns, and by alternating names and values. Constructors that are
    /// generated from the fields of a type accept named arguments directly.
    pub takes_names: bool,
    /// True if the function trusts an address that its caller passes; see [`crate::Unsafe`].
    pub is_unsafe: bool,
    /// Type of the result; `Any` if it is not known.
    pub result: Schema,
    /// Documentation of the function; empty if it has none.
    pub doc: StdString,
}

/// A parameter of a function.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Param {
    /// Name of the parameter; `arg0`, `arg1`, .. if the names are not known.
    pub name: StdString,
    /// Type of the parameter; `Any` if it is not known.
    pub ty: Schema,
    /// Value that is used if the argument is omitted; [`Fallback::Required`] if the argument must
    /// be passed.
    pub default: Fallback,
    /// True if the function only reads the tensor that is passed for this parameter.
    pub read_only: bool,
    /// True if the argument must be passed by name.
    pub by_name: bool,
}

/// Value that a function uses for an omitted argument.
#[derive(Clone, Debug)]
pub enum Fallback {
    /// No default: the argument is required.
    Required,
    /// Default value of the argument, as stated in the signature.
    Value(Any),
    /// Default value that the signature does not state. The argument may be omitted if no later argument is
    /// passed.
    Unknown,
}

/// Origin of the argument that a call passes for a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The positional argument with this index.
    Positional(usize),
    /// The named argument with this index.
    Named(usize),
    /// The default of the parameter, because the caller omitted the argument.
    Default,
}

impl Signature {
    /// Parses the JSON form of a signature.
    ///
    /// # Errors
    /// Returns `ValueError` if the string is not JSON or is nested too deeply.
    pub fn parse(json: &str) -> Result<Signature> {
        let Some(json) = Json::parse(json) else {
            crate::bail!("ValueError", "the function's signature is not valid JSON, or is nested too deeply");
        };
        let text = |key: &str| json.get(key).and_then(Json::text).unwrap_or_default();
        let texts = |key: &str| {
            let items = json.get(key).map_or(&[][..], Json::items);
            items.iter().filter_map(Json::text).map(StdString::from).collect::<Vec<StdString>>()
        };
        let types = Types::of(&Json::parse(text("type_schema")).unwrap_or(Json::Null));
        let names = texts("arg_names");
        let (read_only, optional) = (texts("arg_const"), texts("arg_optional"));
        let (keyword_only, takes_names) =
            (texts("keyword_only"), json.get("takes_names") == Some(&Json::Bool(true)));
        let defaults = json.get("arg_defaults");
        // Types without names and names without types both determine the number of arguments.
        let count = match &types.params {
            Some(params) => Some(params.len()),
            None => json.get("arg_names").map(|_| names.len()),
        };
        let named = count.is_some_and(|count| names.len() == count);
        let param = |index: usize| {
            let name = if named { names[index].clone() } else { format!("arg{index}") };
            let default = match defaults.and_then(|defaults| defaults.get(&name)) {
                Some(value) => Fallback::Value(value.to_any()?),
                None if optional.contains(&name) => Fallback::Unknown,
                None => Fallback::Required,
            };
            let ty = types.params.as_ref().map_or_else(any, |params| params[index].clone());
            let by_name = takes_names && keyword_only.contains(&name);
            Ok(Param { read_only: read_only.contains(&name), name, ty, default, by_name })
        };
        let params = count.map(|count| (0..count).map(param).collect::<Result<Vec<Param>>>()).transpose()?;
        Ok(Signature {
            name: text("name").into(),
            params,
            named,
            variadic: count.is_none() || json.get("variadic") == Some(&Json::Bool(true)),
            keyword_only,
            takes_names,
            is_unsafe: json.get("unsafe") == Some(&Json::Bool(true)),
            result: types.result,
            doc: text("doc").into(),
        })
    }

    /// Matches the arguments of a call to the parameters. Returns the origin of the argument for each
    /// parameter, given the number of positional arguments and the names of the named arguments.
    ///
    /// Omitted arguments at the end are not part of the result, because the called function adds their defaults itself.
    /// `function` is the name of the function for messages.
    ///
    /// # Errors
    /// Returns `TypeError`, which names the argument, if the arguments do not match the signature.
    pub fn arrange(&self, function: &str, positional: usize, named: &[&str]) -> Result<Vec<Source>> {
        let params = match &self.params {
            Some(params) if self.named => params,
            _ => {
                crate::bail!(
                    "TypeError",
                    "{function}() takes no keyword arguments: its signature does not contain the names of its \
                     arguments"
                );
            }
        };
        if positional > params.len() && !self.variadic {
            return Err(self.too_many(function, params, positional));
        }
        let mut sources: Vec<Option<Source>> = (0..params.len().max(positional)).map(|_| None).collect();
        for (index, source) in sources.iter_mut().enumerate().take(positional) {
            *source = Some(Source::Positional(index));
        }
        for (index, name) in named.iter().enumerate() {
            let Some(place) = params.iter().position(|param| param.name == *name) else {
                let is_open = |param: &&Param| !named.contains(&param.name.as_str());
                let open: Vec<&Param> = params.iter().skip(positional).filter(is_open).collect();
                return Err(self.unexpected(function, &open, name));
            };
            if sources[place].replace(Source::Named(index)).is_some() {
                crate::bail!("TypeError", "{function}() got multiple values for argument '{name}'");
            }
        }
        let end = sources.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let is_missing = |(index, param): &(usize, &Param)| {
            let filled = matches!(param.default, Fallback::Value(_));
            let left_out = matches!(param.default, Fallback::Unknown) && *index >= end;
            sources[*index].is_none() && !filled && !left_out
        };
        let missing: Vec<&Param> =
            params.iter().enumerate().filter(is_missing).map(|(_, param)| param).collect();
        if !missing.is_empty() {
            return Err(missing_arguments(function, &missing));
        }
        Ok(sources[..end].iter().map(|source| source.unwrap_or(Source::Default)).collect())
    }

    #[cold]
    fn too_many(&self, function: &str, params: &[Param], got: usize) -> Error {
        let required = params.iter().filter(|param| matches!(param.default, Fallback::Required)).count();
        let all = params.len();
        let range = if required == all { format!("{all}") } else { format!("from {required} to {all}") };
        let s = if all == 1 { "" } else { "s" };
        let were = if got == 1 { "was" } else { "were" };
        mistake(&format!("{function}() takes {range} positional argument{s} but {got} {were} given"))
    }

    /// Creates the error for an argument name that is not in the signature. `open` contains the
    /// parameters for which the call passes no argument yet.
    #[cold]
    fn unexpected(&self, function: &str, open: &[&Param], name: &str) -> Error {
        if self.keyword_only.iter().any(|known| known == name) {
            return mistake(&format!(
                "{function}() takes '{name}' as a keyword-only argument, which only callers in its own \
                 language can pass"
            ));
        }
        let names = open.iter().map(|param| param.name.as_str());
        // Names of one letter are not considered similar to each other.
        let near = nearest(name, names).filter(|near| near.len() > 1 || name.len() > 1);
        let near = near.map_or_else(StdString::new, |near| format!("; did you mean '{near}'?"));
        mistake(&format!("{function}() got an unexpected keyword argument '{name}'{near}"))
    }
}

#[cold]
fn missing_arguments(function: &str, missing: &[&Param]) -> Error {
    if let Some(param) = missing.iter().find(|param| matches!(param.default, Fallback::Unknown)) {
        return mistake(&format!(
            "{function}() requires argument '{}' if a later one is given: only the function knows its default",
            param.name
        ));
    }
    let mut names = StdString::new();
    for (i, param) in missing.iter().enumerate() {
        let between = match (i, missing.len() - i) {
            (0, _) => "",
            (1, 1) => " and ",
            (_, 1) => ", and ",
            _ => ", ",
        };
        // Writing to a string cannot fail.
        let _ = write!(names, "{between}'{}'", param.name);
    }
    let s = if missing.len() == 1 { "" } else { "s" };
    mistake(&format!("{function}() missing {} required positional argument{s}: {names}", missing.len()))
}

/// Creates the error, with the message `text`, for a call whose arguments do not match the
/// signature.
fn mistake(text: &str) -> Error {
    Error::untraced("TypeError", text)
}

fn any() -> Schema {
    Schema::plain("Any")
}

/// Types of the parameters and of the result of a function, parsed from a `type_schema`.
struct Types {
    params: Option<Vec<Schema>>,
    result: Schema,
}

impl Types {
    fn of(schema: &Json) -> Types {
        let list = |items: &[Json]| items.iter().map(schema_of).collect::<Vec<Schema>>();
        let named = schema.get("named_args");
        let params = named.and_then(|named| named.get("params")).map(|params| list(params.items()));
        let result = named.and_then(|named| named.get("return")).map_or(&[][..], Json::items).first();
        if params.is_some() || result.is_some() {
            return Types { params, result: result.map_or_else(any, schema_of) };
        }
        // The other form lists the result first, then the arguments.
        match schema.get("args").map(Json::items) {
            Some([result, params @ ..]) => Types { params: Some(list(params)), result: schema_of(result) },
            _ => Types { params: None, result: any() },
        }
    }
}

pub(crate) fn schema_of(json: &Json) -> Schema {
    let origin = json.get("type").and_then(Json::text).unwrap_or("Any");
    let args = json.get("args").map_or(&[][..], Json::items);
    Schema { origin: StdString::from(origin).into(), args: args.iter().map(schema_of).collect() }
}

impl PackedFunc {
    /// Calls the function with positional arguments, followed by named ones.
    ///
    /// The names are those in the signature of the function. An argument that is omitted gets its default.
    ///
    /// ```
    /// # use anyfn_core as _;
    /// #[anyfn::register("doc.scale")]
    /// fn scale(x: f64, #[default(2.0)] factor: f64, #[default(0.0)] offset: f64) -> f64 {
    ///     factor * x + offset
    /// }
    ///
    /// let scale = anyfn::registry::get("doc.scale")?;
    /// assert_eq!(scale.call((3,))?.get::<f64>()?, 6.0);
    /// assert_eq!(scale.call_named((3,), &[("offset", anyfn::Any::new(1.0)?)])?.get::<f64>()?, 7.0);
    /// # Ok::<(), anyfn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns `TypeError` if the names of the arguments are not known or do not match, and otherwise the error of the
    /// function.
    pub fn call_named(&self, args: impl IntoArgs, named: &[(&str, Any)]) -> Result<Any> {
        args.with_views(|views| {
            if named.is_empty() {
                return self.call_views(views);
            }
            let Some(signature) = self.signature() else {
                crate::bail!("TypeError", "{}", unsigned("function"));
            };
            let signature = Signature::parse(&signature)?;
            if signature.takes_names {
                return self.call_behind_sentinel(views, named);
            }
            let names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
            let name = if signature.name.is_empty() { "function" } else { &signature.name };
            let sources = signature.arrange(name, views.len(), &names)?;
            let params = signature.params.as_deref().unwrap_or_default();
            let view = |(index, source): (usize, &Source)| match *source {
                Source::Positional(from) => views[from],
                Source::Named(from) => named[from].1.as_view(),
                Source::Default => match &params[index].default {
                    Fallback::Value(value) => value.as_view(),
                    Fallback::Required | Fallback::Unknown => AnyView::NONE,
                },
            };
            self.call_views(&sources.iter().enumerate().map(view).collect::<Vec<AnyView<'_>>>())
        })
    }

    /// Calls a function that accepts named arguments directly; see [`Signature::takes_names`].
    fn call_behind_sentinel(&self, views: &[AnyView<'_>], named: &[(&str, Any)]) -> Result<Any> {
        let sentinel = crate::registry::get("ffi.GetKwargsObject")?.call(())?;
        let names = named.iter().map(|(name, _)| Any::new(*name)).collect::<Result<Vec<Any>>>()?;
        let mut all = views.to_vec();
        all.push(sentinel.as_view());
        for (name, (_, value)) in names.iter().zip(named) {
            all.extend([name.as_view(), value.as_view()]);
        }
        self.call_views(&all)
    }
}

/// Returns the error message for a call that passes named arguments to a function without a signature.
#[doc(hidden)]
pub fn unsigned(function: &str) -> StdString {
    format!(
        "{function}() takes no keyword arguments: it was created without a signature, so the names of its \
         arguments are unknown"
    )
}
