//! Names that generated code must not define.

/// Keywords of C, and names that the prelude and headers define.
pub(super) const RESERVED: &str = "auto break case char const continue default do double else enum extern float for goto if inline int \
                        long register restrict return short signed sizeof static struct switch typedef union unsigned void \
                        volatile while bool true false main args num_args result self asm typeof linux unix \
                        int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t size_t \
                        task group data shared end at stdin stdout stderr errno math_errhandling signgam M_E L_tmpnam L_ctermid P_tmpdir \
                        exp exp2 log log2 log10 log1p expm1 sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh \
                        atanh floor ceil trunc round nearbyint erf fabs pow atan2 fmod hypot copysign expf exp2f logf log2f log10f \
                        log1pf expm1f sqrtf sinf cosf tanf asinf acosf atanf sinhf coshf tanhf asinhf acoshf atanhf \
                        floorf ceilf truncf roundf nearbyintf erff fabsf powf atan2f fmodf hypotf copysignf";

/// Prefixes of the lowercase macros that the header `cpuid.h` defines.
pub(super) const PREFIXES: &[&str] = &["bit_", "signature_"];

/// Returns true if generated code may define an exported function with the given name, which is a C identifier. All names
/// that begin with an underscore are reserved.
pub(super) fn is_free(name: &str) -> bool {
    let is_word = RESERVED.split_whitespace().any(|word| word == name);
    let is_internal = name.starts_with('_') || name.starts_with("anyfn_");
    !is_word && !is_internal && !PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crate::family::{Dialect as _, Names, Symbol};
    use crate::host::Host;

    fn names() -> Names {
        Names::new::<Host>(&Symbol::of("f").expect("a word"))
    }

    /// Checks that generated names do not collide with macros of the headers that generated code includes.
    #[test]
    fn no_name_is_a_macro_of_the_headers() {
        let source = Host::prelude() + include_str!("stream.c") + include_str!("packed.c");
        for standard in ["-std=c11", "-std=gnu11", "-std=gnu2x"] {
            let asked = std::process::Command::new("cc")
                .args([standard, "-march=native", "-dM", "-E", "-x", "c", "-"])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::null())
                .spawn()
                .and_then(|mut child| {
                    let input = child.stdin.take();
                    let text = source.clone();
                    let writer = std::thread::spawn(move || {
                        input.map(|mut input| std::io::Write::write_all(&mut input, text.as_bytes()))
                    });
                    let output = child.wait_with_output();
                    let _ = writer.join();
                    output
                });
            let output = asked.expect("the C compiler runs");
            assert!(output.status.success(), "{standard}");
            let text = String::from_utf8_lossy(&output.stdout);
            let macros: HashSet<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix("#define ")?.split([' ', '(']).next())
                .collect();
            assert!(macros.len() > 300, "{}", macros.len());
            // Function-like macros, such as `putchar(c)`, are not expanded where no parenthesis follows.
            let is_object = |name: &&&str| !text.contains(&format!("#define {name}("));
            let bad: Vec<String> = macros
                .iter()
                .filter(is_object)
                .map(|name| names().fresh(name))
                .filter(|given| macros.contains(given.as_str()))
                .collect();
            assert!(bad.is_empty(), "given as they are: {bad:?}");
        }
    }
}
