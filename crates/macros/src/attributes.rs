//! Doc comments, argument names and defaults, which the macros read from functions.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Expr, ExprLit, ExprUnary, FnArg, GenericArgument, ItemFn, Lit, Meta, Pat, PatType,
    PathArguments, Receiver, Signature, Token, Type, UnOp,
};

/// Returns the text of a doc comment, with the same lines as in the source.
pub(crate) fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_string()),
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Names, defaults and attributes of a function's arguments.
pub(crate) struct Arguments {
    names: Vec<String>,
    /// Defaults of the last arguments, as `::anyfn::Literal` values.
    defaults: Vec<TokenStream>,
    read_only: Vec<String>,
    /// Generated items that make the compiler check the type of each default.
    checks: Vec<TokenStream>,
}

impl Arguments {
    /// Reads the arguments of a function, and removes this crate's attributes from them.
    pub(crate) fn take(function: &mut ItemFn) -> syn::Result<Arguments> {
        Arguments::read(&mut function.sig, |this| {
            Err(syn::Error::new_spanned(
                this,
                "a method cannot be registered as a global function; put #[methods] on its `impl` instead",
            ))
        })
    }

    /// Reads the arguments of a method. Its receiver becomes an argument called `self`.
    pub(crate) fn of_method(signature: &mut Signature) -> syn::Result<Arguments> {
        Arguments::read(signature, |this| match (&this.reference, &this.mutability, &this.colon_token) {
            (Some(_), None, None) => Ok(()),
            _ => {
                let text = "objects are shared: the receiver of a method must be `&self` or `this: Ref<Self>`";
                Err(syn::Error::new_spanned(this, text))
            }
        })
    }

    fn read(signature: &mut Signature, check: impl Fn(&Receiver) -> syn::Result<()>) -> syn::Result<Arguments> {
        let mut taken = Arguments { names: vec![], defaults: vec![], read_only: vec![], checks: vec![] };
        for (index, arg) in signature.inputs.iter_mut().enumerate() {
            match arg {
                FnArg::Receiver(this) => {
                    check(this)?;
                    taken.names.push("self".into());
                }
                FnArg::Typed(arg) => taken.add(index, arg)?,
            }
        }
        Ok(taken)
    }

    /// Renames the first argument to `self`, the name of the receiver for callers in other languages.
    pub(crate) fn first_is_self(&mut self) {
        if let Some(first) = self.names.first_mut() {
            *first = "self".into();
        }
    }

    fn add(&mut self, index: usize, arg: &mut PatType) -> syn::Result<()> {
        // An argument that is a pattern is named by its position.
        let name = match &*arg.pat {
            Pat::Ident(name) => name.ident.unraw().to_string(),
            _ => format!("arg{index}"),
        };
        let mut default = None;
        for attribute in &arg.attrs {
            if attribute.path().is_ident("default") {
                if default.replace(attribute.parse_args::<Expr>()?).is_some() {
                    return Err(syn::Error::new_spanned(attribute, "an argument can have only one default"));
                }
            } else if attribute.path().is_ident("read_only") {
                attribute.meta.require_path_only()?;
                if !arg.ty.to_token_stream().to_string().contains("Tensor") {
                    return Err(syn::Error::new_spanned(
                        &arg.ty,
                        "#[read_only] can only be used on tensor arguments",
                    ));
                }
                self.read_only.push(name.clone());
            }
        }
        arg.attrs.retain(|attribute| {
            !attribute.path().is_ident("default") && !attribute.path().is_ident("read_only")
        });
        match default {
            Some(default) => {
                self.defaults.push(literal(&default)?);
                self.checks.extend(check(&arg.ty, &default)?);
            }
            None if !self.defaults.is_empty() => {
                let text = format!("`{name}` needs a #[default(..)] too: the argument before it has one");
                return Err(syn::Error::new_spanned(arg, text));
            }
            None => {}
        }
        self.names.push(name);
        Ok(())
    }

    /// Generates the `::anyfn::Names` value of the function, and the items that check its defaults.
    pub(crate) fn names(&self, function: &impl ToTokens, doc: &str) -> (TokenStream, TokenStream) {
        let Arguments { names, defaults, read_only, checks } = self;
        let names = quote! {
            ::anyfn::__private::Names {
                function: #function,
                args: &[#(#names),*],
                doc: ::anyfn::__private::doc(#doc),
                defaults: &[#(#defaults),*],
                read_only: &[#(#read_only),*],
            }
        };
        (names, quote!(#(#checks)*))
    }

    /// Returns the `Arguments` of a function whose arguments are unknown, because the macro receives only the
    /// path of the function.
    pub(crate) fn unknown() -> Arguments {
        Arguments { names: vec![], defaults: vec![], read_only: vec![], checks: vec![] }
    }
}

/// Converts the expression of a default to an `::anyfn::Literal`.
pub(crate) fn literal(value: &Expr) -> syn::Result<TokenStream> {
    let class = quote!(::anyfn::Literal);
    let is_number = |value: &Expr| matches!(value, Expr::Lit(ExprLit { lit: Lit::Int(_) | Lit::Float(_), .. }));
    match value {
        Expr::Lit(ExprLit { lit, .. }) => match lit {
            Lit::Int(_) => return Ok(quote!(#class::Int(#value as i64))),
            Lit::Float(_) => return Ok(quote!(#class::Float(#value as f64))),
            Lit::Bool(_) => return Ok(quote!(#class::Bool(#value))),
            Lit::Str(_) => return Ok(quote!(#class::Str(#value))),
            _ => {}
        },
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) if is_number(expr) => match &**expr {
            Expr::Lit(ExprLit { lit: Lit::Int(_), .. }) => return Ok(quote!(#class::Int(#value as i64))),
            _ => return Ok(quote!(#class::Float(#value as f64))),
        },
        Expr::Path(path) if path.path.is_ident("None") => return Ok(quote!(#class::None)),
        Expr::Array(array) => {
            let items: Punctuated<TokenStream, Token![,]> =
                array.elems.iter().map(literal).collect::<syn::Result<_>>()?;
            return Ok(quote!(#class::Array(&[#items])));
        }
        _ => {}
    }
    Err(syn::Error::new_spanned(
        value,
        "a default must be a number, a bool, a string, None, or an array of these, so that other languages \
         can read it",
    ))
}

/// Generates an item that compiles only if the default has the type of the argument. Returns `None` if the
/// type is not a number, a bool, `&str` or an `Option` of one of these, or if the default is `None`.
pub(crate) fn check(ty: &Type, default: &Expr) -> syn::Result<Option<TokenStream>> {
    let is_none = matches!(default, Expr::Path(_));
    let (ty, optional) = match optional(ty) {
        Some(inner) => (inner, true),
        None => (ty, false),
    };
    let text = ty.to_token_stream().to_string();
    const SIMPLE: [&str; 14] =
        ["i8", "i16", "i32", "i64", "isize", "u8", "u16", "u32", "u64", "usize", "f32", "f64", "bool", "& str"];
    if !SIMPLE.contains(&text.as_str()) {
        return Ok(None);
    }
    if is_none {
        return match optional {
            true => Ok(None),
            false => Err(syn::Error::new_spanned(
                default,
                format!("the default None requires the type Option<{text}>"),
            )),
        };
    }
    Ok(Some(quote!(const _: #ty = #default;)))
}

/// Returns the type `T` of an `Option<T>`; `None` for other types.
fn optional(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
    match &last.arguments {
        PathArguments::AngleBracketed(args) => match args.args.first() {
            Some(GenericArgument::Type(inner)) => Some(inner),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn names(function: &mut ItemFn) -> syn::Result<String> {
        let arguments = Arguments::take(function)?;
        let (names, checks) = arguments.names(&"f", "");
        Ok(quote!(#names #checks).to_string())
    }

    #[test]
    fn reads_docs_and_names() {
        let mut function: ItemFn = parse_quote! {
            /// Adds.
            /// Twice.
            fn add(a: i64, (b, c): (i64, i64), r#type: i64) -> i64 { a + b + c }
        };
        assert_eq!(doc(&function.attrs), "Adds.\nTwice.");
        assert_eq!(Arguments::take(&mut function).unwrap().names, ["a", "arg1", "type"]);
    }

    #[test]
    fn reads_defaults_and_removes_their_attributes() {
        let mut function: ItemFn = parse_quote! {
            fn f(
                #[read_only] x: TensorView<'_>,
                #[default(-2)] #[allow(unused)] b: i64,
                #[default([1.5, -2.0])] c: Vec<f64>,
                #[default("x")] s: &str,
                #[default(None)] o: Option<i64>,
                #[default(3)] p: Option<u8>,
                #[default(true)] t: bool,
            ) {}
        };
        let text = names(&mut function).unwrap();
        for part in [
            "Literal :: Int (- 2 as i64)",
            "Literal :: Array (& [:: anyfn :: Literal :: Float (1.5 as f64) , :: anyfn :: Literal :: Float",
            "Literal :: Str (\"x\")",
            "Literal :: None",
            "Literal :: Bool (true)",
            "read_only : & [\"x\"]",
            "const _ : i64 = - 2 ;",
            "const _ : & str = \"x\" ;",
            "const _ : u8 = 3 ;",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let left = function.to_token_stream().to_string();
        assert!(!left.contains("default") && !left.contains("read_only") && left.contains("allow"), "{left}");
    }

    #[test]
    fn explains_what_is_wrong_with_a_default() {
        let cases: [(ItemFn, &str); 7] = [
            (
                parse_quote!(
                    fn f(#[default(1)] a: i64, b: i64) {}
                ),
                "`b` needs a #[default(..)] too",
            ),
            (
                parse_quote!(
                    fn f(#[default(g())] a: i64) {}
                ),
                "a default must be a number",
            ),
            (
                parse_quote!(
                    fn f(#[default(None)] a: i64) {}
                ),
                "the default None requires the type Option<i64>",
            ),
            (
                parse_quote!(
                    fn f(
                        #[default(1)]
                        #[default(2)]
                        a: i64,
                    ) {
                    }
                ),
                "only one default",
            ),
            (
                parse_quote!(
                    fn f(#[read_only] a: i64) {}
                ),
                "can only be used on tensor arguments",
            ),
            (
                parse_quote!(
                    fn f(#[read_only(1)] a: TensorView<'_>) {}
                ),
                "unexpected token",
            ),
            (
                parse_quote!(
                    fn f(#[default] a: i64) {}
                ),
                "default(...)",
            ),
        ];
        for (mut function, expected) in cases {
            let error = names(&mut function).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected} in {error}");
        }
    }
}
