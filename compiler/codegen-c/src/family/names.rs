//! Names of variables and buffers in generated code.

use std::collections::{HashMap, HashSet};

use anyfn::{Object, Ref};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::Var;

use crate::family::Symbol;

/// Names that generated code must not define: keywords of C, and names in the prelude and in headers.
const RESERVED: &str = "auto break case char const continue default do double else enum extern float for goto if inline int \
                        long register restrict return short signed sizeof static struct switch typedef union unsigned void \
                        volatile while bool true false main args num_args result self asm typeof linux unix \
                        int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t size_t \
                        task group data shared end at stdin stdout stderr errno math_errhandling signgam M_E L_tmpnam L_ctermid P_tmpdir \
                        exp exp2 log log2 log10 log1p expm1 sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh \
                        atanh floor ceil trunc round erf fabs pow atan2 fmod hypot copysign expf exp2f logf log2f log10f \
                        log1pf expm1f sqrtf sinf cosf tanf asinf acosf atanf sinhf coshf tanhf asinhf acoshf atanhf \
                        floorf ceilf truncf roundf erff fabsf powf atan2f fmodf hypotf copysignf";

/// Maximum length of a name in characters, without an appended number. Compilers compare the first 63 characters of a
/// name, so that names with different numbers differ.
const MOST_LETTERS: usize = 48;

/// Assigns a unique name to each variable and buffer: the name that it has in the IR, if that name is valid and not
/// taken.
pub(crate) struct Names {
    given: HashMap<usize, String>,
    taken: HashSet<String>,
    /// Number that was appended most recently to each name that is taken.
    numbers: HashMap<String, usize>,
    /// Prefix of the generated functions of this function, which no variable may have.
    own: String,
}

impl Names {
    /// Creates an empty assignment of names for the function `symbol`.
    pub(crate) fn new(symbol: &Symbol) -> Names {
        Names {
            given: HashMap::new(),
            taken: RESERVED.split_whitespace().map(str::to_owned).collect(),
            numbers: HashMap::new(),
            own: format!("{symbol}_"),
        }
    }

    pub(crate) fn var(&mut self, var: &Ref<Var>) -> String {
        self.of(var, &var.name)
    }

    pub(crate) fn buffer(&mut self, buffer: &Ref<Buffer>) -> String {
        self.of(&buffer.data, &buffer.name)
    }

    fn of<T: Object>(&mut self, object: &Ref<T>, own: &str) -> String {
        let key = object.as_object().as_handle().addr();
        if let Some(name) = self.given.get(&key) {
            return name.clone();
        }
        let name = self.fresh(own);
        self.given.insert(key, name.clone());
        name
    }

    /// Returns a name that is not taken, similar to `own`.
    pub(crate) fn fresh(&mut self, own: &str) -> String {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut own: String =
            own.chars().take(MOST_LETTERS).map(|c| if is_word(c) { c } else { '_' }).collect();
        // Names that begin with two underscores, or with one and a capital letter, are reserved for the compiler.
        // Headers define many macros without lowercase letters, and the header `cpuid.h` defines some with lowercase
        // letters.
        if own.is_empty()
            || own.starts_with(|c: char| c.is_ascii_digit() || c == '_')
            || ["anyfn_", "bit_", "signature_", &self.own].iter().any(|head| own.starts_with(head))
            || (own.matches(|c: char| c.is_ascii_uppercase()).count() > 2
                && !own.contains(|c: char| c.is_ascii_lowercase()))
        {
            own.insert(0, 'v');
        }
        if self.taken.insert(own.clone()) {
            return own;
        }
        let mut number = self.numbers.get(&own).copied().unwrap_or(0);
        loop {
            number += 1;
            let name = format!("{own}_{number}");
            if self.taken.insert(name.clone()) {
                self.numbers.insert(own, number);
                return name;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new(&Symbol::of("f").expect("a word"))
    }

    #[test]
    fn names_are_words_that_differ() {
        let (mut names, mut seen) = (names(), HashSet::new());
        let long = "x".repeat(100_000);
        let texts = [
            "",
            "a",
            "a",
            "a_1",
            "a",
            "1",
            "_",
            "__x",
            "ä",
            "a\0",
            "a?",
            "int",
            "f_compute",
            "anyfn_t0",
            &long,
            &long,
        ];
        for text in texts.into_iter().cycle().take(64) {
            let name = names.fresh(text);
            assert!(name.len() <= 63 && Symbol::of(&name).is_some(), "{name}");
            assert!(!name.starts_with('_') && !name.starts_with("f_") && !name.starts_with("anyfn_"), "{name}");
            assert!(seen.insert(name));
        }
    }

    /// Tests that names do not collide with macros of the headers that generated code includes.
    #[test]
    fn no_name_is_a_macro_of_the_headers() {
        let source =
            crate::host::prelude() + include_str!("../host/stream.c") + include_str!("../host/packed.c");
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
