//! Expansion of `export! { .. }`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{ItemFn, LitStr, Path, Token};

use crate::attributes::{Arguments, doc};

enum ExportItem {
    Function(Box<ItemFn>),
    Alias(LitStr, Path),
}

struct ExportItems(Vec<ExportItem>);

impl Parse for ExportItems {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut entries = Vec::new();
        while !input.is_empty() {
            if input.peek(LitStr) {
                let name = input.parse()?;
                input.parse::<Token![=>]>()?;
                entries.push(ExportItem::Alias(name, input.parse()?));
            } else {
                entries.push(ExportItem::Function(Box::new(input.parse()?)));
            }
            while input.parse::<Option<Token![,]>>()?.is_some() || input.parse::<Option<Token![;]>>()?.is_some()
            {
            }
        }
        Ok(ExportItems(entries))
    }
}

pub(crate) fn expand(items: TokenStream) -> syn::Result<TokenStream> {
    let ExportItems(entries) = syn::parse2(items)?;
    let mut out = TokenStream::new();
    for mut entry in entries {
        let symbols = match &mut entry {
            ExportItem::Function(function) => {
                check_name(&function.sig.ident.to_string(), &function.sig.ident)?;
                let arguments = Arguments::take(function)?;
                let ident = &function.sig.ident;
                let symbols = symbols(&ident.to_string(), ident, &arguments, &doc(&function.attrs));
                quote! { #function #symbols }
            }
            ExportItem::Alias(name, path) => {
                check_name(&name.value(), name)?;
                symbols(&name.value(), path, &Arguments::unknown(), "")
            }
        };
        out.extend(symbols);
    }
    out.extend(quote! {
        const _: () = {
            /// Returns the functions that `#[register]` has collected in this library, for the loader.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn __anyfn_registrations(count: *mut i32) -> *const ::anyfn::abi::TVMFFIMethodInfo {
                // SAFETY: the loader passes NULL or a writable count.
                unsafe { ::anyfn::__private::registrations(count) }
            }

            /// Returns the number of live objects that code of this library has created.
            #[unsafe(no_mangle)]
            extern "C" fn __anyfn_live_objects() -> i64 {
                ::anyfn::live_objects() as i64
            }

            /// Sets the function that counts the objects freed by this library. The function
            /// belongs to the runtime and not to this library, so it stays mapped when the library
            /// is unmapped.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn __anyfn_use_count_end(count: ::anyfn::CountEnd) {
                // SAFETY: the loader passes a function of the runtime.
                unsafe { ::anyfn::use_count_end(count) };
            }

            /// Sets the ledger of the process, whose functions are called for each object that code of this
            /// library creates or frees.
            #[unsafe(no_mangle)]
            extern "C" fn __anyfn_use_ledger(ledger: &'static ::anyfn::Ledger) {
                ::anyfn::use_ledger(ledger);
            }

            /// Returns the address of the variable that points to the observer of this library's calls.
            #[unsafe(no_mangle)]
            extern "C" fn __anyfn_observer_place() -> *mut ::core::ffi::c_void {
                // SAFETY: the loader stores only observers there that live as long as the process.
                let place = unsafe { ::anyfn::observe::place() };
                ::core::ptr::from_ref(place).cast_mut().cast()
            }

            /// ELF note with the version of the ABI for which the library was built, and with the
            /// oldest version of the runtime with which the library works. The loader reads the
            /// note before any code of the library runs.
            #[used]
            #[cfg_attr(target_os = "linux", unsafe(link_section = ".note.anyfn"))]
            static NOTE: ::anyfn::__private::Note = ::anyfn::__private::NOTE;
        };
    });
    Ok(out)
}

/// Returns an error for a name whose symbol the loader would not treat as a function. For example,
/// `__tvm_ffi__library_ctx` is a variable that the loader writes.
fn check_name(name: &str, at: &impl quote::ToTokens) -> syn::Result<()> {
    let reserved = ["_library_", "_metadata_", "_doc_"];
    if name.is_empty() || reserved.iter().any(|begin| name.starts_with(begin)) {
        let text = format!(
            "an exported function cannot be named `{name}`: the library convention reserves such names"
        );
        return Err(syn::Error::new_spanned(at, text));
    }
    Ok(())
}

/// Generates the exported symbols of one function.
fn symbols(name: &str, function: &impl quote::ToTokens, arguments: &Arguments, doc: &str) -> TokenStream {
    let call = format!("__tvm_ffi_{name}");
    let metadata = format!("__tvm_ffi__metadata_{name}");
    let docs = format!("__tvm_ffi__doc_{name}");
    let (names, checks) = arguments.names(&name, doc);
    // The function may have the name of any of these variables: it is not in their scope.
    let variable = |name| Ident::new(name, Span::mixed_site());
    let (handle, args) = (variable("handle"), variable("args"));
    let (num_args, result, safe_call) = (variable("num_args"), variable("result"), variable("safe_call"));
    let parameters = quote! {
        #handle: *mut ::core::ffi::c_void,
        #args: *const ::anyfn::abi::TVMFFIAny,
        #num_args: i32,
        #result: *mut ::anyfn::abi::TVMFFIAny,
    };
    quote! {
        const _: () = {
            #checks
            const NAMES: ::anyfn::__private::Names = #names;

            #[unsafe(export_name = #call)]
            unsafe extern "C" fn __anyfn_call(#parameters) -> ::core::ffi::c_int {
                // SAFETY: this is the function that the loader calls, and the handle that it passes.
                let #safe_call = unsafe { ::anyfn::__private::SafeCall::new(__anyfn_call, #handle) };
                // SAFETY: the loader passes what the ABI promises for a call.
                unsafe {
                    ::anyfn::__private::call_exported(&NAMES, #function, #safe_call, #args, #num_args, #result)
                }
            }

            #[unsafe(export_name = #metadata)]
            unsafe extern "C" fn __anyfn_metadata(#parameters) -> ::core::ffi::c_int {
                let _ = (#handle, #args, #num_args);
                // SAFETY: the loader passes what the ABI promises for a call.
                unsafe { ::anyfn::__private::exported_metadata(&NAMES, #function, #result) }
            }

            #[unsafe(export_name = #docs)]
            unsafe extern "C" fn __anyfn_doc(#parameters) -> ::core::ffi::c_int {
                let _ = (#handle, #args, #num_args);
                // SAFETY: the loader passes what the ABI promises for a call.
                unsafe { ::anyfn::__private::exported_doc(&NAMES, #result) }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_names_that_the_loader_takes_for_data() {
        for item in [
            quote! { fn _library_ctx() {} },
            quote! { "_library_bin" => other::function },
            quote! { fn scale() {} fn _metadata_scale() {} },
            quote! { "_doc_scale" => scale },
            quote! { "" => scale },
        ] {
            let error = expand(item.clone()).expect_err("a reserved name").to_string();
            assert!(error.contains("the library convention reserves such names"), "{error}");
        }
        assert!(expand(quote! { fn library_ctx() {} fn _private() {} }).is_ok());
    }

    #[test]
    fn exports_symbols_of_the_library_convention() {
        let out = expand(quote! { fn scale(x: f64) -> f64 { x } "twice" => other::twice }).unwrap().to_string();
        for part in ["__tvm_ffi_scale", "__tvm_ffi__metadata_scale", "__tvm_ffi__doc_scale", "__tvm_ffi_twice"]
        {
            assert!(out.contains(part), "{part} in {out}");
        }
    }
}
