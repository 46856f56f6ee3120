//! Generation of mathematical functions: calls of the C library for scalars, and functions from templates for
//! vectors.

use anyfn::{DType, Result};
use anyfn_ir::ops::math_arity;

use crate::family::{Body, int_of};
use crate::host::{Host, c_type};

/// Returns an expression that calls a mathematical function of the C library or the prelude.
pub(super) fn call(name: &str, dtype: DType, args: &[String]) -> String {
    let (suffix, one) = if dtype == DType::FLOAT32 { ("f", "1.0f") } else { ("", "1.0") };
    match name {
        "rsqrt" => format!("({one} / sqrt{suffix}({}))", args[0]),
        "sigmoid" => format!("anyfn_sigmoid{suffix}({})", args[0]),
        _ => format!("{name}{suffix}({})", args.join(", ")),
    }
}

/// Template for the vector version of a mathematical function.
struct Template {
    name: &'static str,
    bits: u8,
    uses: Vec<&'static str>,
    text: &'static str,
}

/// Returns the templates that `math.c` contains.
fn templates() -> impl Iterator<Item = Template> {
    include_str!("math.c").split("\n/// ").skip(1).filter_map(|part| {
        let (head, text) = part.split_once('\n')?;
        let mut words = head.split_whitespace();
        let (name, bits) = (words.next()?, words.next()?.parse().ok()?);
        Some(Template { name, bits, uses: words.collect(), text })
    })
}

impl Body<'_, Host> {
    /// Declares the vector version of a mathematical function and returns its name. Returns `None` if no
    /// mathematical function has the given name. The version is generated from a template if one exists.
    /// Otherwise, it is a loop over the lanes, which the C compiler replaces by an instruction if the target
    /// has one.
    pub(crate) fn vector_math(&mut self, name: &str, element: DType, lanes: u16) -> Result<Option<String>> {
        let (vector, mask) = (self.vector(element, lanes)?, self.vector(int_of(element), lanes)?);
        let function = format!("{vector}_{name}");
        if let Some(template) = templates().find(|t| t.name == name && t.bits == element.0.bits) {
            self.select(element, lanes)?;
            for used in template.uses {
                self.vector_math(used, element, lanes)?;
            }
            let text = template.text.replace("@V", &vector).replace("@I", &mask);
            self.declare(&function, text.replace("@N", &lanes.to_string()) + "\n");
            return Ok(Some(function));
        }
        let c_name = if c_type(element)? == "float" { format!("{name}f") } else { name.to_owned() };
        // The C library lacks `rsqrt` and `sigmoid`.
        let (params, value) = match (name, math_arity(name)) {
            ("rsqrt", _) => (1, "1 / x[i]".to_owned()),
            ("sigmoid", _) => (1, format!("anyfn_{c_name}(x[i])")),
            (_, Some(1)) => (1, format!("{c_name}(x[i])")),
            (_, Some(_)) => (2, format!("{c_name}(x[i], y[i])")),
            (_, None) => return Ok(None),
        };
        let mut params = vec![format!("{vector} x"), format!("{vector} y")][..params].join(", ");
        let mut before = String::new();
        if name == "rsqrt" {
            let sqrt = self.vector_math("sqrt", element, lanes)?.unwrap_or_default();
            before = format!("  x = {sqrt}(x);\n");
        }
        params.insert(0, '(');
        self.declare(
            &function,
            format!(
                "static inline {vector} {function}{params}) {{\n{before}  for (int i = 0; i < {lanes}; ++i) x[i] = {value};\n  \
                 return x;\n}}\n"
            ),
        );
        Ok(Some(function))
    }
}
