//! Expansion of `#[register("name")]`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::{FnArg, ItemFn, LitStr, Token};

use crate::attributes::{Arguments, doc};

/// Keywords that may follow the name in `#[register("name", ..)]`.
mod kw {
    syn::custom_keyword!(blocking);
}

struct Options {
    name: LitStr,
    overrides: bool,
    blocking: bool,
    is_unsafe: bool,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = input.parse()?;
        let mut options = Options { name, overrides: false, blocking: false, is_unsafe: false };
        while input.parse::<Option<Token![,]>>()?.is_some() && !input.is_empty() {
            if input.peek(kw::blocking) {
                input.parse::<kw::blocking>()?;
                options.blocking = true;
            } else if input.parse::<Option<Token![unsafe]>>()?.is_some() {
                options.is_unsafe = true;
            } else {
                input.parse::<Token![override]>()?;
                options.overrides = true;
            }
        }
        Ok(options)
    }
}

pub(crate) fn expand(args: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let Options { name, overrides, blocking, is_unsafe } = syn::parse2(args)?;
    let mut function: ItemFn = syn::parse2(item)?;
    let arguments = Arguments::take(&mut function)?;
    let ident = &function.sig.ident;
    let doc = doc(&function.attrs);
    let (names, checks) = arguments.names(&name, &doc);
    let (wrapper, mut body) = match is_unsafe {
        true => (wrapper(&function)?, quote!(::anyfn::Unsafe(__anyfn_safe))),
        false if function.sig.unsafety.is_some() => {
            let text = "an `unsafe fn` must be registered with #[register(\"name\", unsafe)]";
            return Err(syn::Error::new_spanned(&function.sig, text));
        }
        false => (TokenStream::new(), quote!(#ident)),
    };
    if blocking {
        body = quote!(::anyfn::Blocking(#body));
    }
    Ok(quote! {
        #function
        const _: () = {
            #checks
            #wrapper
            ::anyfn::__private::entry!(::anyfn::__private::REGISTRATIONS: ::anyfn::__private::RegisteredFunction =
                ::anyfn::__private::RegisteredFunction {
                    function: ::anyfn::__private::function_def!(#names, #body),
                    overrides: #overrides,
                });
        };
    })
}

/// Generates a safe wrapper of an `unsafe fn`. Only the registration uses the wrapper, and it marks
/// the registered function as unsafe, so callers must still meet the requirements of the
/// `unsafe fn`.
fn wrapper(function: &ItemFn) -> syn::Result<TokenStream> {
    let mut signature = function.sig.clone();
    if signature.unsafety.take().is_none() {
        let text = "#[register(\"name\", unsafe)] requires an `unsafe fn`, whose documentation states what \
                    callers must guarantee";
        return Err(syn::Error::new_spanned(&function.sig, text));
    }
    let ident = core::mem::replace(&mut signature.ident, Ident::new("__anyfn_safe", Span::call_site()));
    let mut names = Vec::new();
    for (index, argument) in signature.inputs.iter_mut().enumerate() {
        if let FnArg::Typed(argument) = argument {
            let name = format_ident!("arg{index}");
            argument.attrs.clear();
            *argument.pat = syn::parse_quote!(#name);
            names.push(name);
        }
    }
    Ok(quote! {
        #signature {
            // SAFETY: the registered function is marked as unsafe, so its callers meet the requirements of the
            // `unsafe fn`.
            unsafe { #ident(#(#names),*) }
        }
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
    fn marks_unsafe_functions() {
        let read = quote! { unsafe fn read((a, b): (i64, i64)) -> u8 { 0 } };
        let out = expand(quote! { "my.read", unsafe, blocking }, read).unwrap().to_string();
        for part in [
            "fn __anyfn_safe (arg0 : (i64 , i64)) -> u8",
            "unsafe { read (arg0) }",
            "Blocking (:: anyfn :: Unsafe (__anyfn_safe))",
        ] {
            assert!(out.contains(part), "{part} in {out}");
        }
        assert!(expand(quote! { "my.read", unsafe }, quote! { fn read() {} }).is_err());
        assert!(expand(quote! { "my.read" }, quote! { unsafe fn read() {} }).is_err());
    }

    #[test]
    fn refuses_what_is_no_function() {
        assert!(expand(quote! { "x" }, quote! { struct X; }).is_err());
        assert!(expand(quote! { x }, quote! { fn x() {} }).is_err());
        assert!(expand(quote! { "x" }, quote! { fn x(&self) {} }).is_err());
    }
}
