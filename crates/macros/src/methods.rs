//! Expansion of `#[methods]`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{
    Attribute, Expr, ExprLit, FnArg, Ident, ImplItem, ImplItemFn, ItemImpl, Lit, LitStr, Meta, Pat, Token, Type,
};

use crate::attributes::{Arguments, doc};

/// Options of a method, read from its attributes.
#[derive(Default)]
struct Options {
    name: Option<LitStr>,
    init: bool,
    blocking: bool,
}

impl Options {
    /// Reads the options from a method's attributes and removes those attributes.
    fn take(attributes: &mut Vec<Attribute>) -> syn::Result<Options> {
        let mut options = Options::default();
        let mut others = Vec::new();
        for attribute in attributes.drain(..) {
            let path = attribute.path();
            if path.is_ident("init") {
                attribute.meta.require_path_only()?;
                options.init = true;
            } else if path.is_ident("blocking") {
                attribute.meta.require_path_only()?;
                options.blocking = true;
            } else if path.is_ident("name") {
                options.name = Some(text(&attribute.meta)?);
            } else {
                others.push(attribute);
            }
        }
        *attributes = others;
        Ok(options)
    }
}

fn text(meta: &Meta) -> syn::Result<LitStr> {
    match meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if !text.value().is_empty() => Ok(text.clone()),
            other => Err(syn::Error::new_spanned(other, "expected the name of the method")),
        },
        _ => Err(syn::Error::new_spanned(meta, "expected #[name = \"..\"]")),
    }
}

/// Parses the argument of `#[methods(of = Type)]` and returns the type.
fn object_type(input: ParseStream<'_>) -> syn::Result<Type> {
    let name: Ident = input.parse()?;
    if name != "of" {
        let text = "expected `of = Type`; put the options of a method on the method";
        return Err(syn::Error::new_spanned(name, text));
    }
    input.parse::<Token![=]>()?;
    input.parse()
}

pub(crate) fn expand(args: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let of = if args.is_empty() { None } else { Some(object_type.parse2(args)?) };
    let mut block: ItemImpl = syn::parse2(item)?;
    if let Some((_, path, _)) = &block.trait_ {
        return Err(syn::Error::new_spanned(
            path,
            "#[methods] can only be used on an inherent `impl`, not on the `impl` of a trait",
        ));
    }
    if !block.generics.params.is_empty() {
        return Err(syn::Error::new_spanned(&block.generics, "an object type cannot be generic"));
    }
    let this = block.self_ty.clone();
    let mut inits = 0;
    let mut told = Vec::new();
    for item in &mut block.items {
        let ImplItem::Fn(function) = item else { continue };
        if of.is_some()
            && let Some(receiver) = function.sig.receiver()
        {
            let text = "with `of = Type`, the receiver of a method must be `this: Ref<Type>`";
            return Err(syn::Error::new_spanned(receiver, text));
        }
        let options = Options::take(&mut function.attrs)?;
        inits += usize::from(options.init);
        if inits > 1 {
            return Err(syn::Error::new_spanned(&function.sig.ident, "a type can have only one #[init]"));
        }
        told.push(definition(function, &options)?);
    }
    let of = of.as_ref().unwrap_or(&this);
    Ok(quote! {
        #block
        const _: () = {
            use ::anyfn::__private as __p;
            type This = #this;
            const KEY: &str = <#of as ::anyfn::Object>::TYPE_KEY;
            __p::entry!(__p::METHODS: __p::TypeMethods = __p::TypeMethods {
                of: || ::core::any::TypeId::of::<#of>(),
                methods: &[#(#told),*],
            });
        };
    })
}

/// Generates the `MethodDef` that registers a method.
fn definition(function: &mut ImplItemFn, options: &Options) -> syn::Result<TokenStream> {
    let signature = &mut function.sig;
    let generic = signature.generics.type_params().next().map(ToTokens::to_token_stream);
    if let Some(what) = generic.or_else(|| signature.asyncness.map(ToTokens::into_token_stream)) {
        let text =
            "a method that other languages call cannot be generic or async; put helpers into another `impl`";
        return Err(syn::Error::new_spanned(what, text));
    }
    let mut arguments = Arguments::of_method(signature)?;
    let is_static = match signature.inputs.first() {
        Some(FnArg::Receiver(_)) => false,
        Some(FnArg::Typed(first)) if is_this(&first.pat) => {
            if !is_receiver(&first.ty) {
                let text = "the receiver of a method must be `&self` or `this: Ref<Self>`";
                return Err(syn::Error::new_spanned(&first.ty, text));
            }
            arguments.first_is_self();
            false
        }
        _ => true,
    };
    if options.init && !is_static {
        let text = "an #[init] function creates the object, so it cannot have a receiver";
        return Err(syn::Error::new_spanned(&signature.inputs, text));
    }
    let ident = &signature.ident;
    let name = options.name.clone().unwrap_or_else(|| LitStr::new(&ident.unraw().to_string(), ident.span()));
    let doc = doc(&function.attrs);
    // Attributes that decide whether the function exists.
    let cfg = function.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    let (names, checks) = arguments.names(&quote!(NAME), &doc);
    let body = if options.blocking { quote!(__p::Blocking(This::#ident)) } else { quote!(This::#ident) };
    let is_init = options.init;
    Ok(quote! {
        #(#cfg)*
        {
            #checks
            const LOCAL: &str = #name;
            const JOINED: [u8; KEY.len() + 1 + LOCAL.len()] = __p::join(KEY, LOCAL);
            const NAME: &str = __p::joined(&JOINED);
            __p::MethodDef {
                name: LOCAL,
                function: __p::function_def!(#names, #body),
                is_static: #is_static,
                is_init: #is_init,
            }
        }
    })
}

fn is_this(pattern: &Pat) -> bool {
    matches!(pattern, Pat::Ident(name) if name.ident == "this")
}

/// Returns true if a type is `&Self`, `Ref<..>` or `&Type`.
fn is_receiver(ty: &Type) -> bool {
    match ty {
        Type::Reference(reference) => reference.mutability.is_none(),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "Ref"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(item: TokenStream) -> String {
        expand(quote!(), item).unwrap().to_string()
    }

    fn error(item: TokenStream) -> String {
        expand(quote!(), item).unwrap_err().to_string()
    }

    #[test]
    fn tells_of_methods() {
        let out = expanded(quote! {
            impl Node {
                /// Length of the node.
                #[blocking]
                pub fn r#type(&self, #[default(2)] by: i64) -> i64 { by }
                fn with(this: Ref<Self>, other: Ref<Node>) {}
                #[init]
                #[cfg(unix)]
                fn new(a: i64) -> Self { Node }
                #[name = "of"]
                fn make(other: Ref<Node>) {}
                const X: i64 = 1;
            }
        });
        for part in [
            "LOCAL : & str = \"type\"",
            "doc (\"Length of the node.\")",
            "args : & [\"self\" , \"by\"]",
            "args : & [\"self\" , \"other\"]",
            "__p :: Blocking (This :: r#type)",
            "is_static : true , is_init : true",
            "# [cfg (unix)] { ",
            "LOCAL : & str = \"of\"",
            "const X : i64 = 1",
        ] {
            assert!(out.contains(part), "{part} in {out}");
        }
        for part in ["# [init]", "# [blocking]", "# [default", "# [name"] {
            assert!(!out.contains(part), "{part} in {out}");
        }
    }

    #[test]
    fn methods_of_a_type_of_another_crate() {
        let item = quote!(
            impl Tools {
                #[init]
                fn new(a: i64) -> Node {
                    Node
                }
                fn with(this: Ref<Node>) {}
            }
        );
        let out = expand(quote!(of = other::Node), item).unwrap().to_string();
        for part in [
            "type This = Tools",
            "< other :: Node as :: anyfn :: Object > :: TYPE_KEY",
            "TypeId :: of :: < other :: Node > ()",
            "args : & [\"self\"]",
            "This :: new",
        ] {
            assert!(out.contains(part), "{part} in {out}");
        }
        for (args, item, text) in [
            (quote!(for = Node), quote!(impl Tools {}), "expected"),
            (quote!(blocking), quote!(impl Tools {}), "expected `of = Type`"),
            (quote!(of = Node, blocking), quote!(impl Tools {}), "unexpected token"),
            (quote!(of = Node), quote!(impl Tools { fn f(&self) {} }), "must be `this: Ref<Type>`"),
        ] {
            let error = expand(args.clone(), item).unwrap_err().to_string();
            assert!(error.contains(text), "{args}: {error}");
        }
    }

    #[test]
    fn explains_mistakes() {
        let cases = [
            (quote!(impl Node { fn f(&mut self) {} }), "objects are shared"),
            (quote!(impl Node { fn f(self) {} }), "objects are shared"),
            (quote!(impl Node { fn f(this: i64) {} }), "must be `&self`"),
            (quote!(impl Node { fn f<T>(t: T) {} }), "cannot be generic or async"),
            (quote!(impl Node { async fn f() {} }), "cannot be generic or async"),
            (quote!(impl Node { #[init] fn f(&self) {} }), "creates the object"),
            (quote!(impl Node { #[init] fn f() {} #[init] fn g() {} }), "only one #[init]"),
            (quote!(impl Node { #[name = 1] fn f() {} }), "the name of the method"),
            (quote!(impl Clone for Node {}), "not on the `impl` of a trait"),
            (
                quote!(
                    impl<T> Node<T> {}
                ),
                "cannot be generic",
            ),
            (quote!(impl Node { fn f(&self, #[default(1)] a: i64, b: i64) {} }), "needs a #[default"),
        ];
        for (item, text) in cases {
            let got = error(item.clone());
            assert!(got.contains(text), "{item}: {got}");
        }
        assert!(expand(quote!(blocking), quote!(impl Node {})).is_err());
    }
}
