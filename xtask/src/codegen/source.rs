//! Reads the declarations of `crates/abi` from its source, including doc comments.

use std::fs;
use std::path::Path;

use proc_macro2::TokenStream;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, Ident, Token, Type};

use crate::result::Result;

/// Files of the ABI crate with declarations, in the order in which the C header contains the declarations.
const FILES: [&str; 9] = [
    "lib.rs",
    "any.rs",
    "object.rs",
    "cells.rs",
    "dlpack.rs",
    "reflection.rs",
    "device_driver.rs",
    "functions.rs",
    "backend.rs",
];

/// All declarations of the ABI.
#[derive(Default)]
pub(crate) struct Abi {
    /// Documentation of the `functions` module, which contains the rules that hold for all functions.
    pub(crate) conventions: Vec<String>,
    pub(crate) records: Vec<Record>,
    pub(crate) aliases: Vec<Alias>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) functions: Vec<Function>,
    /// Functions that are not in the function table, such as `anyfn_api`, which returns the table.
    pub(crate) entry_points: Vec<Function>,
    /// Functions that compiled code calls by their symbol names.
    pub(crate) backend: Vec<Function>,
}

/// A struct or a union.
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) doc: Vec<String>,
    pub(crate) fields: Vec<Field>,
    pub(crate) is_union: bool,
}

/// A field of a record or a parameter of a function.
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) doc: Vec<String>,
    pub(crate) ty: Type,
}

pub(crate) struct Alias {
    pub(crate) name: String,
    pub(crate) doc: Vec<String>,
    pub(crate) ty: Type,
}

/// A constant of the ABI. `group` is the name of the constant group that contains it, if any.
pub(crate) struct Constant {
    pub(crate) group: Option<String>,
    pub(crate) name: String,
    pub(crate) doc: Vec<String>,
    pub(crate) value: String,
}

pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) doc: Vec<String>,
    pub(crate) params: Vec<Field>,
    pub(crate) ret: Option<Type>,
}

/// Reads the declarations of the ABI crate, whose root folder is `abi_dir`.
pub(crate) fn read(abi_dir: &Path) -> Result<Abi> {
    read_files(abi_dir, ["index.rs"].iter().chain(FILES.iter()), "functions.rs")
}

/// Reads the declarations of the classic API.
pub(crate) fn read_classic(abi_dir: &Path) -> Result<Abi> {
    read_files(abi_dir, ["classic.rs"].iter(), "classic.rs")
}

/// Reads the declarations of some files of the ABI crate. The documentation of the file `conventions` contains the rules for
/// all functions.
fn read_files<'a>(abi_dir: &Path, files: impl Iterator<Item = &'a &'a str>, conventions: &str) -> Result<Abi> {
    let mut abi = Abi::default();
    for name in files {
        let path = abi_dir.join("src").join(name);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let file = syn::parse_file(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        if *name == conventions {
            abi.conventions = doc_lines(&file.attrs);
        }
        for item in file.items {
            abi.add(item).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    if abi.functions.is_empty() || abi.records.is_empty() {
        return Err("no functions or no structs found in crates/abi".into());
    }
    Ok(abi)
}

impl Abi {
    fn add(&mut self, item: syn::Item) -> Result<()> {
        match item {
            syn::Item::Struct(s) if is_repr_c(&s.attrs) => {
                self.records.push(record(s.ident, &s.attrs, s.fields, false));
            }
            syn::Item::Union(u) if is_repr_c(&u.attrs) => {
                self.records.push(record(u.ident, &u.attrs, syn::Fields::Named(u.fields), true));
            }
            syn::Item::Type(t) => {
                self.aliases.push(Alias { name: t.ident.to_string(), doc: doc_lines(&t.attrs), ty: *t.ty });
            }
            syn::Item::Const(c) if c.ident != "_" && c.ident != "ABI_VERSION" => {
                self.constants.push(Constant {
                    group: None,
                    name: c.ident.to_string(),
                    doc: doc_lines(&c.attrs),
                    value: constant_expr(&c.expr)?,
                });
            }
            syn::Item::ForeignMod(m) => {
                for item in m.items {
                    if let syn::ForeignItem::Fn(f) = item {
                        self.entry_points.push(foreign_function(f)?);
                    }
                }
            }
            syn::Item::Macro(m) => self.add_macro(&m.mac)?,
            _ => {}
        }
        Ok(())
    }

    fn add_macro(&mut self, mac: &syn::Macro) -> Result<()> {
        let name = mac.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
        match name.as_str() {
            "indices" => self.add_constants(parse::<ConstantList>(&mac.tokens)?, "TYPE_INDICES")?,
            "constants" | "flags" => {
                let group = parse::<ConstantGroup>(&mac.tokens)?;
                self.add_constants(group.list, &group.name.to_string())?;
            }
            "functions" | "classic" => self.functions = parse::<FunctionList>(&mac.tokens)?.0,
            "backend" => self.backend = parse::<FunctionList>(&mac.tokens)?.0,
            _ => {}
        }
        Ok(())
    }

    fn add_constants(&mut self, list: ConstantList, group: &str) -> Result<()> {
        for (attrs, name, value) in list.0 {
            self.constants.push(Constant {
                group: Some(group.to_owned()),
                name: name.to_string(),
                doc: doc_lines(&attrs),
                value: constant_expr(&value)?,
            });
        }
        Ok(())
    }
}

fn parse<T: Parse>(tokens: &TokenStream) -> Result<T> {
    syn::parse2::<T>(tokens.clone()).map_err(|e| e.to_string().into())
}

fn record(name: Ident, attrs: &[Attribute], fields: syn::Fields, is_union: bool) -> Record {
    let fields = fields
        .into_iter()
        .filter_map(|f| Some(Field { name: f.ident.as_ref()?.to_string(), doc: doc_lines(&f.attrs), ty: f.ty }))
        .collect();
    Record { name: name.to_string(), doc: doc_lines(attrs), fields, is_union }
}

fn foreign_function(f: syn::ForeignItemFn) -> Result<Function> {
    let mut params = Vec::new();
    for arg in f.sig.inputs {
        let syn::FnArg::Typed(arg) = arg else { return Err("a foreign function takes self".into()) };
        let syn::Pat::Ident(name) = *arg.pat else { return Err("an argument has no name".into()) };
        params.push(Field { name: c_name(&name.ident.to_string()), doc: Vec::new(), ty: *arg.ty });
    }
    let ret = match f.sig.output {
        syn::ReturnType::Default => None,
        syn::ReturnType::Type(_, ty) => Some(*ty),
    };
    Ok(Function { name: f.sig.ident.to_string(), doc: doc_lines(&f.attrs), params, ret })
}

fn is_repr_c(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|a| a.path().is_ident("repr") && a.parse_args::<Ident>().is_ok_and(|ident| ident == "C"))
}

/// Returns the lines of a doc comment, without their leading space.
pub(crate) fn doc_lines(attrs: &[Attribute]) -> Vec<String> {
    let mut lines = Vec::new();
    for attr in attrs {
        let syn::Meta::NameValue(meta) = &attr.meta else { continue };
        if !meta.path.is_ident("doc") {
            continue;
        }
        if let Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &meta.value {
            let line = text.value();
            lines.push(line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned());
        }
    }
    lines
}

/// Returns the C name of an argument: the Rust name without the trailing underscore that
/// distinguishes a name from a Rust keyword.
pub(crate) fn c_name(rust_name: &str) -> String {
    rust_name.trim_end_matches('_').to_owned()
}

/// Returns a constant expression as C source. It may consist of literals, signs, shifts and parentheses.
fn constant_expr(expr: &Expr) -> Result<String> {
    match expr {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(n), .. }) => Ok(n.base10_digits().to_owned()),
        Expr::Unary(u) if matches!(u.op, syn::UnOp::Neg(_)) => Ok(format!("-{}", constant_expr(&u.expr)?)),
        Expr::Binary(b) if matches!(b.op, syn::BinOp::Shl(_)) => {
            Ok(format!("{} << {}", constant_expr(&b.left)?, constant_expr(&b.right)?))
        }
        Expr::Paren(p) => Ok(format!("({})", constant_expr(&p.expr)?)),
        _ => Err("a constant is not made of literals, signs and shifts".into()),
    }
}

/// Parsed list of constants of the form `NAME = value ["key"];`.
struct ConstantList(Vec<(Vec<Attribute>, Ident, Expr)>);

impl Parse for ConstantList {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut list = Vec::new();
        while !input.is_empty() {
            let attrs = input.call(Attribute::parse_outer)?;
            let name = input.parse()?;
            input.parse::<Token![=]>()?;
            let value = input.parse()?;
            input.parse::<Option<syn::LitStr>>()?;
            input.parse::<Token![;]>()?;
            list.push((attrs, name, value));
        }
        Ok(ConstantList(list))
    }
}

/// Parsed group of constants of the form `GROUP [: type] { constants }`.
struct ConstantGroup {
    name: Ident,
    list: ConstantList,
}

impl Parse for ConstantGroup {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = input.parse()?;
        if input.parse::<Option<Token![:]>>()?.is_some() {
            input.parse::<Type>()?;
        }
        let body;
        syn::braced!(body in input);
        Ok(ConstantGroup { name, list: body.parse()? })
    }
}

/// Parsed list of functions of the form `fn name(arg: type, ...) [-> type];`.
struct FunctionList(Vec<Function>);

impl Parse for FunctionList {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut list = Vec::new();
        while !input.is_empty() {
            let f: syn::ForeignItemFn = input.parse()?;
            let span = f.sig.ident.span();
            list.push(foreign_function(f).map_err(|e| syn::Error::new(span, e))?);
        }
        Ok(FunctionList(list))
    }
}
