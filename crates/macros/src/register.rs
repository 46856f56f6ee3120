//! `#[register("name")]`

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{ItemFn, LitStr, Token};

use crate::attributes::{Arguments, doc};

/// The words that may follow the name.
mod kw {
    syn::custom_keyword!(blocking);
}

struct Options {
    name: LitStr,
    overrides: bool,
    blocking: bool,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = input.parse()?;
        let mut options = Options { name, overrides: false, blocking: false };
        while input.parse::<Option<Token![,]>>()?.is_some() && !input.is_empty() {
            if input.peek(kw::blocking) {
                input.parse::<kw::blocking>()?;
                options.blocking = true;
            } else {
                input.parse::<Token![override]>()?;
                options.overrides = true;
            }
        }
        Ok(options)
    }
}

pub(crate) fn expand(args: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let Options { name, overrides, blocking } = syn::parse2(args)?;
    let mut function: ItemFn = syn::parse2(item)?;
    let arguments = Arguments::take(&mut function)?;
    let ident = &function.sig.ident;
    let doc = doc(&function.attrs);
    let (names, checks) = arguments.names(&name, &doc);
    let body = if blocking { quote!(::anyfn::Blocking(#ident)) } else { quote!(#ident) };
    Ok(quote! {
        #function
        const _: () = {
            #checks
            #[::anyfn::__private::linkme::distributed_slice(::anyfn::__private::REGISTRATIONS)]
            #[linkme(crate = ::anyfn::__private::linkme)]
            static ENTRY: ::anyfn::__private::Entry = ::anyfn::__private::Entry {
                name: #name,
                overrides: #overrides,
                doc: #doc,
                make: || ::anyfn::TypedPackedFunc::named(#names, #body).into(),
            };
        };
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_name_arguments_and_doc() {
        let item = quote! { /** Adds. */ fn add(a: i64, b: i64) -> i64 { a + b } };
        let out = expand(quote! { "my.add", override }, item).unwrap().to_string();
        for part in ["\"my.add\"", "overrides : true", "& [\"a\" , \"b\"]", "\"Adds.\""] {
            assert!(out.contains(part), "{part} in {out}");
        }
    }

    #[test]
    fn marks_functions_that_block() {
        let out =
            expand(quote! { "my.wait", blocking, override }, quote! { fn wait() {} }).unwrap().to_string();
        assert!(out.contains("Blocking (wait)"), "{out}");
    }

    #[test]
    fn refuses_what_is_no_function() {
        assert!(expand(quote! { "x" }, quote! { struct X; }).is_err());
        assert!(expand(quote! { x }, quote! { fn x() {} }).is_err());
        assert!(expand(quote! { "x" }, quote! { fn x(&self) {} }).is_err());
    }
}
