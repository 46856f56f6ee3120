//! Conversion of Rust types to C declarations.

use syn::{GenericArgument, PathArguments, ReturnType, Type};

use crate::codegen::source::c_name;
use crate::result::Result;

/// Returns the declaration of `name` with type `ty`, without a semicolon: `int32_t x`, `void (*f)(void* p)`, `char a[8]`.
pub(crate) fn declare(ty: &Type, name: &str) -> Result<String> {
    match ty {
        Type::Array(array) => {
            let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(len), .. }) = &array.len else {
                return Err("the length of an array is not a literal".into());
            };
            declare(&array.elem, &format!("{name}[{}]", len.base10_digits()))
        }
        Type::BareFn(f) => {
            let mut params = Vec::new();
            for (i, arg) in f.inputs.iter().enumerate() {
                let arg_name = match &arg.name {
                    Some((ident, _)) => c_name(&ident.to_string()),
                    None => format!("arg{i}"),
                };
                params.push(declare(&arg.ty, &arg_name)?);
            }
            let params = if params.is_empty() { "void".to_owned() } else { params.join(", ") };
            Ok(format!("{} (*{name})({params})", return_type(&f.output)?))
        }
        Type::Path(_) => match option_inner(ty) {
            Some(inner) => declare(inner, name),
            None => Ok(format!("{} {name}", named(ty)?)),
        },
        _ => Ok(format!("{} {name}", named(ty)?)),
    }
}

/// Returns the C type of a function's result.
pub(crate) fn return_type(output: &ReturnType) -> Result<String> {
    match output {
        ReturnType::Default => Ok("void".to_owned()),
        ReturnType::Type(_, ty) => named(ty),
    }
}

/// Returns the C type of `ty`. Returns an error for a type that cannot be written without the name of the declared item, such as
/// an array.
pub(crate) fn named(ty: &Type) -> Result<String> {
    match ty {
        Type::Ptr(ptr) => {
            let target = named(&ptr.elem)?;
            Ok(match (ptr.const_token.is_some(), target.ends_with('*')) {
                (true, true) => format!("{target} const*"),
                (true, false) => format!("const {target}*"),
                (false, _) => format!("{target}*"),
            })
        }
        Type::Path(path) => {
            if let Some(inner) = option_inner(ty) {
                return named(inner);
            }
            let last = path.path.segments.last().ok_or("an empty path as type")?;
            Ok(primitive(&last.ident.to_string()))
        }
        Type::BareFn(_) => Err("a function pointer needs an alias here".into()),
        _ => Err("a type that the C header cannot express".into()),
    }
}

/// Returns the type `T` of an `Option<T>`. In C, a parameter of either type is declared as `T`, because each
/// C pointer may be NULL.
fn option_inner(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    if last.ident != "Option" {
        return None;
    }
    let PathArguments::AngleBracketed(args) = &last.arguments else { return None };
    match args.args.first()? {
        GenericArgument::Type(inner) => Some(inner),
        _ => None,
    }
}

fn primitive(rust: &str) -> String {
    let c = match rust {
        "i8" => "int8_t",
        "u8" => "uint8_t",
        "i16" => "int16_t",
        "u16" => "uint16_t",
        "i32" => "int32_t",
        "u32" => "uint32_t",
        "i64" => "int64_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        "isize" => "ptrdiff_t",
        "f32" => "float",
        "f64" => "double",
        "c_char" => "char",
        "c_int" => "int",
        "c_void" => "void",
        other => other,
    };
    c.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rust: &str, c: &str) {
        let ty: Type = syn::parse_str(rust).expect("the test's type parses");
        assert_eq!(declare(&ty, "x").expect("the type has a C form"), c);
    }

    #[test]
    fn declarations() {
        check("i32", "int32_t x");
        check("*const c_char", "const char* x");
        check("*mut *const c_char", "const char** x");
        check("*const *const TVMFFITypeInfo", "const TVMFFITypeInfo* const* x");
        check("[c_char; 8]", "char x[8]");
        check("Option<unsafe extern \"C\" fn(self_: *mut c_void)>", "void (*x)(void* self)");
        check("unsafe extern \"C\" fn() -> c_int", "int (*x)(void)");
        check("*mut Option<Alias>", "Alias* x");
        check("crate::TVMFFIAny", "TVMFFIAny x");
    }

    #[test]
    fn what_c_cannot_express_is_an_error() {
        let ty: Type = syn::parse_str("&[u8]").expect("the test's type parses");
        assert!(declare(&ty, "x").is_err());
    }
}
