//! `#[register("name")]`

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{ItemFn, LitStr, Token};

use crate::attributes::{arg_names, doc};

struct Options {
    name: LitStr,
    overrides: bool,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = input.parse()?;
        let mut overrides = false;
        if input.parse::<Option<Token![,]>>()?.is_some() && !input.is_empty() {
            input.parse::<Token![override]>()?;
            overrides = true;
        }
        Ok(Options { name, overrides })
    }
}

pub(crate) fn expand(args: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let Options { name, overrides } = syn::parse2(args)?;
    let function: ItemFn = syn::parse2(item)?;
    let ident = &function.sig.ident;
    let names = arg_names(&function)?;
    let doc = doc(&function.attrs);
    Ok(quote! {
        #function
        const _: () = {
            #[::anyfn::__private::linkme::distributed_slice(::anyfn::__private::REGISTRATIONS)]
            #[linkme(crate = ::anyfn::__private::linkme)]
            static ENTRY: ::anyfn::__private::Entry = ::anyfn::__private::Entry {
                name: #name,
                overrides: #overrides,
                doc: #doc,
                make: || {
                    let names = ::anyfn::__private::Names { function: #name, args: &[#(#names),*], doc: #doc };
                    ::anyfn::TypedPackedFunc::named(names, #ident).into()
                },
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
    fn refuses_what_is_no_function() {
        assert!(expand(quote! { "x" }, quote! { struct X; }).is_err());
        assert!(expand(quote! { x }, quote! { fn x() {} }).is_err());
        assert!(expand(quote! { "x" }, quote! { fn x(&self) {} }).is_err());
    }
}
