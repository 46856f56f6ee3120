//! Expansion of `#[derive(Object)]`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;
use std::time::SystemTime;

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Expr, Fields, Ident, LitBool, LitInt, LitStr, Member, Type};

use crate::attributes::{check, doc, literal};

/// The options in `#[object(..)]`.
#[derive(Default)]
struct TypeOptions {
    key: Option<LitStr>,
    parent: Option<Type>,
    is_final: bool,
    child_slots: Option<LitInt>,
    structural: Option<Ident>,
    no_init: bool,
    opaque: bool,
}

impl TypeOptions {
    fn read(input: &DeriveInput) -> syn::Result<TypeOptions> {
        let mut options = TypeOptions::default();
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("object")) {
            attribute.parse_nested_meta(|meta| {
                let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                match &*name {
                    "key" => options.key = Some(meta.value()?.parse()?),
                    "parent" => options.parent = Some(meta.value()?.parse()?),
                    "final" => options.is_final = true,
                    "opaque" => options.opaque = true,
                    "child_slots" => options.child_slots = Some(meta.value()?.parse()?),
                    "structural" => options.structural = Some(structural_kind(&meta.value()?.parse()?)?),
                    "init" => options.no_init = !meta.value()?.parse::<LitBool>()?.value,
                    _ => {
                        return Err(meta.error(
                            "unknown option; expected `key = \"..\"`, `parent = Type`, `final`, `child_slots = N`, \
                             `structural = \"..\"`, `init = false` or `opaque`",
                        ));
                    }
                }
                Ok(())
            })?;
        }
        Ok(options)
    }
}

fn structural_kind(name: &LitStr) -> syn::Result<Ident> {
    let kind = match &*name.value() {
        "tree" => "TreeNode",
        "var" => "FreeVar",
        "dag" => "DAGNode",
        "const_tree" => "ConstTreeNode",
        "unique" => "UniqueInstance",
        _ => {
            let text = "expected \"tree\", \"var\", \"dag\", \"const_tree\" or \"unique\"";
            return Err(syn::Error::new_spanned(name, text));
        }
    };
    Ok(format_ident!("kTVMFFISEqHashKind{kind}"))
}

/// The options in `#[field(..)]`.
#[derive(Default)]
struct FieldOptions {
    skip: bool,
    name: Option<LitStr>,
    /// Default of the field; the outer `None` means that the field has no default. The inner `None` means
    /// that the default is `Default::default()` of the field's type.
    default: Option<Option<Expr>>,
    /// Names of the field's flags, without their prefix `kTVMFFIFieldFlagBitMask`.
    flags: Vec<&'static str>,
}

impl FieldOptions {
    fn read(attributes: &[syn::Attribute]) -> syn::Result<FieldOptions> {
        let mut options = FieldOptions::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("field")) {
            attribute.parse_nested_meta(|meta| options.add(&meta))?;
        }
        Ok(options)
    }

    fn add(&mut self, meta: &syn::meta::ParseNestedMeta<'_>) -> syn::Result<()> {
        let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        match &*name {
            "skip" => self.skip = true,
            "name" => self.name = Some(meta.value()?.parse()?),
            "default" => {
                let value = if meta.input.peek(syn::Token![=]) { Some(meta.value()?.parse()?) } else { None };
                self.default = Some(value);
            }
            "kw_only" => self.flags.push("KwOnly"),
            "repr" | "compare" | "hash" | "init" => {
                let flag = match &*name {
                    "repr" => "ReprOff",
                    "compare" => "CompareOff",
                    "hash" => "HashOff",
                    _ => "InitOff",
                };
                if !meta.value()?.parse::<LitBool>()?.value {
                    self.flags.push(flag);
                }
            }
            "structural" => {
                let value: LitStr = meta.value()?.parse()?;
                self.flags.push(match &*value.value() {
                    "ignore" => "SEqHashIgnore",
                    "def" | "def_pattern" => "SEqHashDefPattern",
                    "def_simple" => "SEqHashDefSimple",
                    _ => {
                        let text = "expected \"ignore\", \"def_pattern\" (or \"def\") or \"def_simple\"";
                        return Err(syn::Error::new_spanned(value, text));
                    }
                });
            }
            _ => {
                return Err(meta.error(
                    "unknown option; expected `skip`, `name = \"..\"`, `default`, `default = value`, `kw_only`, \
                     `structural = \"..\"`, or `repr`, `compare`, `hash`, `init` with `= false`",
                ));
            }
        }
        Ok(())
    }
}

/// A field of the struct to which `#[derive(Object)]` is applied, with the options of the field.
struct Field<'a> {
    member: Member,
    ty: &'a Type,
    name: LitStr,
    doc: String,
    options: FieldOptions,
}

impl<'a> Field<'a> {
    fn read(index: usize, field: &'a syn::Field) -> syn::Result<Field<'a>> {
        let options = FieldOptions::read(&field.attrs)?;
        let (member, name) = match &field.ident {
            Some(ident) => (Member::Named(ident.clone()), ident.unraw().to_string()),
            None => (Member::Unnamed(index.into()), index.to_string()),
        };
        let name = options.name.clone().unwrap_or_else(|| LitStr::new(&name, field.span()));
        Ok(Field { member, ty: &field.ty, name, doc: doc(&field.attrs), options })
    }

    /// Generates the `FieldDef` of a reflected field. `number` is its index among the reflected fields of the type
    /// itself.
    fn definition(&self, this: &Ident, number: usize) -> syn::Result<TokenStream> {
        let Field { member, ty, name, doc, options } = self;
        let offset = quote!((__p::content_offset::<#this>() + ::core::mem::offset_of!(#this, #member)));
        let number = quote!({ FIRST + #number });
        let flags = options.flags.iter().map(|flag| {
            let flag = format_ident!("kTVMFFIFieldFlagBitMask{flag}");
            quote!(| ::anyfn::abi::#flag)
        });
        let value = quote_spanned!(ty.span()=> <#ty as __p::FieldValue>);
        let (default, checked) = match &options.default {
            None => (quote!(__p::FieldDefault::None), None),
            Some(Some(expr)) if is_constant(expr) => {
                let (value, checked) = (literal(expr)?, check(ty, expr)?);
                (quote!(__p::FieldDefault::Value(#value)), checked)
            }
            Some(expr) => {
                let expr = default_expr(expr.as_ref());
                let make = quote!(|| { let value: #ty = #expr; __p::default_value(&value) });
                (quote!(__p::FieldDefault::Factory(__p::factory(#make))), None)
            }
        };
        Ok(quote! {
            {
                #checked
                __p::FieldDef {
                    name: #name,
                    doc: ::anyfn::__private::doc(#doc),
                    flags: #value::LENT.flags() #(#flags)*,
                    offset: #offset,
                    size: ::core::mem::size_of::<#ty>(),
                    alignment: ::core::mem::align_of::<#ty>(),
                    getter: __p::get::<#ty, { #offset }, #number>,
                    setter: __p::set::<#ty, { #offset }, #number>,
                    writable: #value::WRITABLE,
                    schema: #value::schema,
                    static_type_index: #value::static_type_index,
                    default: #default,
                }
            }
        })
    }
}

/// Returns true if a default is a number, a bool, a string or `None`. Such a default is registered as a constant.
fn is_constant(expr: &Expr) -> bool {
    !matches!(expr, Expr::Array(_)) && literal(expr).is_ok()
}

fn default_expr(expr: Option<&Expr>) -> TokenStream {
    expr.map_or_else(|| quote!(::core::default::Default::default()), |expr| quote!(#expr))
}

pub(crate) fn expand(item: TokenStream) -> syn::Result<TokenStream> {
    let input: DeriveInput = syn::parse2(item)?;
    let options = TypeOptions::read(&input)?;
    let Some(key) = &options.key else {
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
    let this = &input.ident;
    let all = fields(&input.data)?;
    let (base, rest) = match &options.parent {
        Some(parent) => {
            let first = all
                .first()
                .filter(|field| quote!(#parent).to_string() == field.ty.to_token_stream().to_string());
            let Some(first) = first else {
                let text = "a derived type begins with its parent: the first field must be of this type";
                return Err(syn::Error::new_spanned(parent, text));
            };
            (Some((parent, &first.member)), &all[1..])
        }
        None => (None, &all[..]),
    };
    let definition = definition(&input, &options, base, rest)?;
    let parent_index = base.map(|(parent, _)| {
        quote! {
            fn parent_index() -> i32 {
                <#parent as ::anyfn::Object>::type_index()
            }
        }
    });
    let derived = base.map(|(parent, member)| {
        let text = "a derived type must begin with its parent in memory: put #[repr(C)] on the struct";
        quote! {
            const _: () = assert!(
                ::core::mem::offset_of!(#this, #member) == 0
                    && ::anyfn::__private::content_offset::<#this>() == ::anyfn::__private::content_offset::<#parent>(),
                #text
            );
            // SAFETY: the assertion above checks the layout, and `parent_index` returns the type index of the parent.
            unsafe impl ::anyfn::Derived for #this {
                type Parent = #parent;
            }
            impl ::core::ops::Deref for #this {
                type Target = #parent;
                fn deref(&self) -> &#parent {
                    &self.#member
                }
            }
        }
    });
    Ok(quote! {
        #definition
        #derived
        // SAFETY: the index is registered once for this key and kept, and `TypeIndex` refuses a key of another type.
        unsafe impl ::anyfn::Object for #this {
            const TYPE_KEY: &'static str = #key;
            #[inline]
            fn type_index() -> i32 {
                <#this as ::anyfn::__private::Define>::index().get::<#this>()
            }
            #parent_index
        }
        /// Converts the value into a new object that contains it.
        impl ::anyfn::IntoAny for #this {
            fn schema() -> ::anyfn::Schema {
                ::anyfn::Schema::plain(#key)
            }
            fn into_any(self) -> ::anyfn::Result<::anyfn::Any> {
                ::core::result::Result::Ok(::anyfn::Ref::new(self).into_object().into())
            }
        }
        ::anyfn::__private::entry!(::anyfn::__private::TYPES: ::anyfn::__private::TypeEntry =
            ::anyfn::__private::TypeEntry {
                define: |again| <#this as ::anyfn::__private::Define>::index().define::<#this>(again),
            });
    })
}

/// Reads the fields of a struct; returns no fields for an enum or union.
fn fields(data: &Data) -> syn::Result<Vec<Field<'_>>> {
    let Data::Struct(data) = data else { return Ok(Vec::new()) };
    let named = matches!(data.fields, Fields::Named(_));
    let read = |(index, field)| {
        let mut field = Field::read(index, field)?;
        // A field without a name is reflected only if it is given one.
        field.options.skip |= !named && field.options.name.is_none();
        Ok(field)
    };
    data.fields.iter().enumerate().map(read).collect()
}

/// Generates the implementation of `Define`, which describes the struct and its reflected fields to the type
/// table.
fn definition(
    input: &DeriveInput,
    options: &TypeOptions,
    base: Option<(&Type, &Member)>,
    fields: &[Field<'_>],
) -> syn::Result<TokenStream> {
    let this = &input.ident;
    let doc = doc(&input.attrs);
    let (told, left): (Vec<&Field<'_>>, Vec<&Field<'_>>) =
        fields.iter().partition(|field| !field.options.skip && !options.opaque);
    let told_of = told
        .iter()
        .enumerate()
        .map(|(number, field)| field.definition(this, number))
        .collect::<syn::Result<Vec<TokenStream>>>()?;
    // Only Rust code can construct objects with a field that is neither reflected nor has a default.
    let is_struct = matches!(input.data, Data::Struct(_));
    let prepares = is_struct && left.iter().all(|field| field.options.default.is_some());
    let define_parent = base.map(|(parent, _)| {
        quote! {
            fn define_parent() -> ::core::result::Result<(), __p::StdString> {
                <#parent as __p::Define>::index().try_get::<#parent>().map(::core::mem::drop)
            }
        }
    });
    let parents_count = base.map_or(quote!(0), |(parent, _)| quote!(<#parent as __p::Define>::COUNT));
    let number_told = told.len();
    let prepare_base = base.map(
        |(parent, member)| quote!(unsafe { <#parent as __p::Define>::prepare(&raw mut (*this).#member) };),
    );
    let drop_base = base.map(|(parent, member)| {
        quote!(unsafe { <#parent as __p::Define>::drop_partial(&raw mut (*this).#member, is_set) };)
    });
    // These are methods of a separate trait, because the user's expressions are safe code and may name `Self`.
    let (mut begins, mut begin) = (Vec::new(), Vec::new());
    let mut prepare = Vec::new();
    for (number, Field { member, ty, options, .. }) in left.iter().enumerate().filter(|_| prepares) {
        let expr = default_expr(options.default.as_ref().and_then(Option::as_ref));
        let name = format_ident!("begin_{number}");
        begins.push(quote!(fn #name() -> #ty;));
        begin.push(quote!(fn #name() -> #ty { #expr }));
        prepare.push(quote! {
            { let value: #ty = <Self as Begin>::#name(); unsafe { (&raw mut (*this).#member).write(value) }; }
        });
    }
    let aligned = aligned(this, base, fields);
    let digest = digest(&input.data, this, &told, &left);
    let drop_left = left
        .iter()
        .filter(|_| prepares)
        .map(|Field { member, .. }| quote!(unsafe { (&raw mut (*this).#member).drop_in_place() };));
    let drop_told = told.iter().enumerate().map(|(number, Field { member, .. })| {
        quote! {
            if is_set(FIRST + #number) {
                unsafe { (&raw mut (*this).#member).drop_in_place() };
            }
        }
    });
    let prepares = match base {
        Some((parent, _)) => quote!(#prepares && <#parent as __p::Define>::PREPARES),
        None => quote!(#prepares),
    };
    let can_be_made = !options.no_init;
    let is_told = left.is_empty();
    let is_told = match base {
        Some((parent, _)) => quote!(#is_told && <#parent as __p::Define>::IS_TOLD),
        None => quote!(#is_told),
    };
    let kind = options.structural.clone().unwrap_or_else(|| format_ident!("kTVMFFISEqHashKindUnsupported"));
    let (is_final, is_opaque, child_slots) = (options.is_final, options.opaque, &options.child_slots);
    let child_slots = child_slots.as_ref().map_or(quote!(0), |slots| quote!(#slots));
    Ok(quote! {
        const _: () = {
            use ::anyfn::__private as __p;
            /// Index of the first reflected field of the type itself; the fields of its ancestors come before it.
            const FIRST: usize = #parents_count;
            #aligned
            /// Functions that return the initial values of the fields that are not reflected.
            trait Begin {
                #(#begins)*
            }
            impl Begin for #this {
                #(#begin)*
            }
            // SAFETY: the fields are those of the struct, and the functions visit all of them.
            unsafe impl __p::Define for #this {
                const DEFINITION: &'static __p::Definition = &__p::Definition {
                    doc: ::anyfn::__private::doc(#doc),
                    structural_kind: ::anyfn::abi::#kind as i32,
                    fields: &[#(#told_of),*],
                    creator: if #can_be_made && <#this as __p::Define>::PREPARES {
                        ::core::option::Option::Some(__p::create::<#this>)
                    } else {
                        ::core::option::Option::None
                    },
                    is_final: #is_final,
                    is_opaque: #is_opaque,
                    child_slots: #child_slots,
                };
                const COUNT: usize = FIRST + #number_told;
                const PREPARES: bool = #prepares;
                const IS_TOLD: bool = #is_told;
                fn index() -> &'static __p::TypeIndex {
                    static INDEX: __p::TypeIndex = __p::TypeIndex::new();
                    &INDEX
                }
                #digest
                #define_parent
                #[allow(unused_variables, clippy::multiple_unsafe_ops_per_block, clippy::undocumented_unsafe_blocks)]
                unsafe fn prepare(this: *mut Self) {
                    #prepare_base
                    #(#prepare)*
                }
                #[allow(unused_variables, clippy::multiple_unsafe_ops_per_block, clippy::undocumented_unsafe_blocks)]
                unsafe fn drop_partial(this: *mut Self, is_set: &dyn ::core::ops::Fn(usize) -> bool) {
                    #drop_base
                    #(#drop_told)*
                    #(#drop_left)*
                }
            }
        };
    })
}

/// Generates compile-time checks that reject a struct with unaligned fields, because fields are accessed by
/// reference. Looking for `#[repr(packed)]` would not suffice, because other macros may add the attribute after
/// this macro runs.
fn aligned(this: &Ident, base: Option<(&Type, &Member)>, fields: &[Field<'_>]) -> TokenStream {
    let fields = fields.iter().map(|field| (field.ty, &field.member)).chain(base);
    let asserts = fields.map(|(ty, member)| {
        quote_spanned! {ty.span()=>
            const _: () = assert!(
                ::core::mem::align_of::<#ty>() <= ::core::mem::align_of::<#this>()
                    && ::core::mem::offset_of!(#this, #member) % ::core::mem::align_of::<#ty>() == 0,
                "the fields of an object type must be aligned: it cannot be #[repr(packed)]"
            );
        }
    });
    quote!(#(#asserts)*)
}

/// Generates `Define::digest`, which computes a hash of the struct's layout. `told` are the reflected fields
/// and `left` the other fields.
fn digest(data: &Data, this: &Ident, told: &[&Field<'_>], left: &[&Field<'_>]) -> TokenStream {
    // The schema of a reflected field describes its content.
    let told = told.iter().map(|Field { member, ty, .. }| {
        quote!(digest.field(::core::mem::offset_of!(#this, #member), &__p::FieldType::<#ty>::NEW, 0);)
    });
    let build = build();
    // Cargo compiles the crate again if the variable that `build` reads has changed.
    let tracked = (!left.is_empty() || !matches!(data, Data::Struct(_))).then(|| {
        quote! {
            const _: ::core::option::Option<&::core::primitive::str> = ::core::option_env!("SOURCE_DATE_EPOCH");
        }
    });
    let left = left.iter().map(|Field { member, ty, .. }| {
        quote! {
            let field = &__p::FieldType::<#ty>::NEW;
            digest.field(::core::mem::offset_of!(#this, #member), field, field.build(#build));
        }
    });
    let whole = (!matches!(data, Data::Struct(_))).then(|| quote!(digest.build(#build);));
    quote! {
        fn digest(digest: &mut __p::Digest) {
            #[allow(unused_imports)]
            use __p::{OfBuild as _, OfType as _};
            #tracked
            #(#told)*
            #(#left)*
            #whole
        }
    }
}

/// Returns a number that differs between runs of the compiler, unless the environment requests reproducible
/// builds.
fn build() -> u64 {
    static BUILD: OnceLock<u64> = OnceLock::new();
    *BUILD.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) => epoch.hash(&mut hasher),
            Err(_) => (SystemTime::now(), std::process::id()).hash(&mut hasher),
        }
        // The number 0 means that there is no build number.
        hasher.finish().max(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(item: TokenStream) -> String {
        expand(item).unwrap_err().to_string()
    }

    #[test]
    fn needs_a_key_and_no_generics() {
        assert!(expand(quote! { struct X; }).is_err());
        assert!(expand(quote! { #[object(key = "x")] struct X<T>(T); }).is_err());
        assert!(error(quote! { #[object(name = "x")] struct X; }).contains("expected `key = "));
        assert!(expand(quote! { #[object(key = "x")] struct X; }).unwrap().to_string().contains("\"x\""));
    }

    #[test]
    fn tells_of_named_fields() {
        let item = quote! {
            #[object(key = "x", structural = "var")]
            struct X {
                /// The name.
                r#type: i64,
                #[field(default = 2, kw_only, repr = false)]
                b: i64,
                #[field(skip, default)]
                c: Vec<Box<u8>>,
            }
        };
        let out = expand(item).unwrap().to_string();
        for part in [
            "name : \"type\"",
            "doc (\"The name.\")",
            "FieldDefault :: Value",
            "kTVMFFIFieldFlagBitMaskKwOnly",
            "kTVMFFIFieldFlagBitMaskReprOff",
            "kTVMFFISEqHashKindFreeVar",
            "FIRST + 2usize",
            "create :: < X >",
        ] {
            assert!(out.contains(part), "{part} in {out}");
        }
        assert!(!out.contains("name : \"c\""));
    }

    #[test]
    fn a_build_number_is_tracked() {
        for (item, is_used) in [
            (quote! { #[object(key = "x")] struct X { a: i64 } }, false),
            (quote! { #[object(key = "x")] struct X { #[field(skip)] a: i64 } }, true),
            (quote! { #[object(key = "x")] enum X { A, B } }, true),
        ] {
            let out = expand(item).unwrap().to_string();
            assert_eq!(out.contains("option_env ! (\"SOURCE_DATE_EPOCH\")"), is_used, "{out}");
        }
    }

    #[test]
    fn what_has_nothing_to_begin_with_cannot_be_made() {
        for (item, made) in [
            (quote! { #[object(key = "x", init = false)] struct X { a: i64 } }, "if false"),
            (quote! { #[object(key = "x")] struct X { #[field(skip)] a: i64 } }, "PREPARES : bool = false"),
            (quote! { #[object(key = "x")] struct X(Box<u8>); }, "PREPARES : bool = false"),
            (quote! { #[object(key = "x")] enum X { A, B } }, "PREPARES : bool = false"),
            (quote! { #[object(key = "x")] struct X { a: i64 } }, "PREPARES : bool = true"),
        ] {
            let out = expand(item).unwrap().to_string();
            assert!(out.contains(made), "{made} in {out}");
        }
    }

    #[test]
    fn explains_mistakes() {
        let cases = [
            (quote! { #[object(key = "x", structural = "x")] struct X; }, "expected \"tree\""),
            (
                quote! { #[object(key = "x")] struct X { #[field(structural = "x")] a: i64 } },
                "expected \"ignore\"",
            ),
            (quote! { #[object(key = "x")] struct X { #[field(frozen)] a: i64 } }, "unknown option"),
            (quote! { #[object(key = "x", parent = Y)] struct X { a: i64 } }, "begins with its parent"),
        ];
        for (item, text) in cases {
            assert!(error(item.clone()).contains(text), "{item}");
        }
    }
}
