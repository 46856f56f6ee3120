//! What the macros read from functions and attributes.

use syn::{Attribute, Expr, ExprLit, FnArg, ItemFn, Lit, Meta, Pat};

/// The doc comment, one line per line.
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

/// Names of the arguments; one that is a pattern is called by its position.
pub(crate) fn arg_names(function: &ItemFn) -> syn::Result<Vec<String>> {
    let name = |(i, arg): (usize, &FnArg)| match arg {
        FnArg::Receiver(this) => Err(syn::Error::new_spanned(this, "a method cannot be registered by itself")),
        FnArg::Typed(typed) => Ok(match &*typed.pat {
            Pat::Ident(name) => name.ident.to_string(),
            _ => format!("arg{i}"),
        }),
    };
    function.sig.inputs.iter().enumerate().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_docs_and_names() {
        let function: ItemFn = syn::parse_quote! {
            /// Adds.
            /// Twice.
            fn add(a: i64, (b, c): (i64, i64)) -> i64 { a + b + c }
        };
        assert_eq!(doc(&function.attrs), "Adds.\nTwice.");
        assert_eq!(arg_names(&function).unwrap(), ["a", "arg1"]);
    }
}
