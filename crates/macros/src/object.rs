//! `#[derive(Object)]`

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, LitStr};

pub(crate) fn expand(item: TokenStream) -> syn::Result<TokenStream> {
    let input: DeriveInput = syn::parse2(item)?;
    let mut key: Option<LitStr> = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("object")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("key") {
                return Err(meta.error("unknown option; expected `key = \"..\"`"));
            }
            key = Some(meta.value()?.parse()?);
            Ok(())
        })?;
    }
    let Some(key) = key else {
        return Err(syn::Error::new_spanned(
            &input.ident,
            "an object type needs a key: #[object(key = \"my.Type\")]",
        ));
    };
    if !input.generics.params.is_empty() {
        return Err(syn::Error::new_spanned(
            &input.generics,
            "an object type cannot be generic: its key names one type",
        ));
    }
    let ident = &input.ident;
    Ok(quote! {
        // SAFETY: the index is registered for this key once and kept; `TypeIndex` refuses a key of another type.
        unsafe impl ::anyfn::Object for #ident {
            const TYPE_KEY: &'static str = #key;
            fn type_index() -> i32 {
                static INDEX: ::anyfn::__private::TypeIndex = ::anyfn::__private::TypeIndex::of::<#ident>(#key);
                INDEX.get()
            }
        }
        const _: () = {
            #[::anyfn::__private::linkme::distributed_slice(::anyfn::__private::TYPES)]
            #[linkme(crate = ::anyfn::__private::linkme)]
            static TYPE: fn() -> i32 = <#ident as ::anyfn::Object>::type_index;
        };
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_a_key_and_no_generics() {
        assert!(expand(quote! { struct X; }).is_err());
        assert!(expand(quote! { #[object(key = "x")] struct X<T>(T); }).is_err());
        assert!(expand(quote! { #[object(name = "x")] struct X; }).is_err());
        assert!(expand(quote! { #[object(key = "x")] struct X; }).unwrap().to_string().contains("\"x\""));
    }
}
