//! Names of variables and buffers in generated code.

use std::collections::{HashMap, HashSet};

use anyfn::{Object, Ref};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::Var;

use crate::family::{Dialect, Symbol};

/// Maximum length of a name in characters, before a number is appended. The limit keeps the number within the
/// first 63 characters, which every C compiler distinguishes.
const MOST_LETTERS: usize = 48;

/// Unique names of variables and buffers. A variable or buffer keeps the name that it has in the IR, if that
/// name is valid and not taken.
pub(crate) struct Names {
    given: HashMap<usize, String>,
    taken: HashSet<String>,
    /// Last number that was appended to each name, by the name without the number.
    numbers: HashMap<String, usize>,
    /// Prefix of the helper functions that are generated for the current function. No variable name
    /// may begin with this prefix.
    own: String,
    /// Prefixes that the dialect reserves. No variable name may begin with one of them.
    prefixes: &'static [&'static str],
}

impl Names {
    /// Creates an empty name table for the function `symbol` in the dialect `D`.
    pub(crate) fn new<D: Dialect>(symbol: &Symbol) -> Names {
        Names {
            given: HashMap::new(),
            taken: D::RESERVED.split_whitespace().map(str::to_owned).collect(),
            numbers: HashMap::new(),
            own: format!("{symbol}_"),
            prefixes: D::RESERVED_PREFIXES,
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

    /// Returns a valid name that is similar to `own` and has not been used yet.
    pub(crate) fn fresh(&mut self, own: &str) -> String {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut own: String =
            own.chars().take(MOST_LETTERS).map(|c| if is_word(c) { c } else { '_' }).collect();
        // Names that begin with two underscores, or with one and a capital letter, are reserved for the compiler of the
        // dialect. Headers define many macros without lowercase letters.
        if own.is_empty()
            || own.starts_with(|c: char| c.is_ascii_digit() || c == '_')
            || ["anyfn_", &self.own].iter().chain(self.prefixes).any(|head| own.starts_with(head))
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
    use crate::host::Host;

    fn names() -> Names {
        Names::new::<Host>(&Symbol::of("f").expect("a word"))
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
}
