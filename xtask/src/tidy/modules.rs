//! Checks that the modules of a crate do not depend on each other in cycles.
//!
//! The modules directly below the root of a crate, each with its submodules, are the nodes of a graph. A
//! module uses another one if a path in its code leads there from the root, as `crate::other::Item` does. If
//! the path leads to a name that the root imports or exports, as in `crate::Item`, the module from which the
//! root imports it is used. The root is not a node, since it declares all modules. Tests and the expansions
//! of macros do not count.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use serde_json::Value;

use crate::result::Result;

/// Permitted cycles: the crate, the modules, and the reason why they are not separated.
const PERMITTED: &[(&str, &[&str], &str)] = &[
    (
        "anyfn",
        &[
            "any",
            "args",
            "bigint",
            "bytes_object",
            "containers",
            "convert",
            "device",
            "dtype",
            "error",
            "function",
            "hash",
            "literal",
            "live",
            "nesting",
            "object",
            "opaque_ptr",
            "panics",
            "shape",
            "string",
            "tensor",
            "tensor_mismatch",
            "typed",
            "types",
        ],
        "values, objects, functions and errors are defined in terms of each other, and converted to each other",
    ),
    ("anyfn-ir", &["buffer", "expr"], "a load names a buffer, whose shape consists of expressions"),
    (
        "anyfn-vulkan",
        &["event", "logical", "memory", "stream", "system", "work"],
        "a device holds its streams and freed buffers, which refer to the device and to the work that uses them",
    ),
];

/// Path of the file with the list of permitted cycles, for messages.
const LIST: &str = "xtask/src/tidy/modules.rs";

/// Function that returns the text of a file, or `None` if the file does not exist.
type Open<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// Returns a message for each cycle of modules that is not permitted, in all packages that `cargo metadata`
/// lists.
pub(crate) fn check(metadata: &Value) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let mut circles = Vec::new();
        for root in ["src/lib.rs", "src/main.rs"] {
            let root = manifest.with_file_name(root);
            if root.is_file() {
                circles.extend(Graph::read(&root, &|path| fs::read_to_string(path).ok())?.circles());
            }
        }
        found.extend(problems(name, &circles));
    }
    Ok(found)
}

/// Compares the cycles of a crate with the list of permitted cycles, and returns a message for each
/// difference.
fn problems(package: &str, circles: &[Circle]) -> Vec<String> {
    let permitted: Vec<&[&str]> =
        PERMITTED.iter().filter(|(name, ..)| *name == package).map(|(_, modules, _)| *modules).collect();
    let refused = circles.iter().filter(|circle| !permitted.iter().any(|modules| circle.has_exactly(modules)));
    let mut found: Vec<String> = refused
        .map(|Circle { modules, example }| {
            let modules: Vec<&str> = modules.iter().map(String::as_str).collect();
            format!(
                "{package}: modules use each other in circles: {}, for example {}; move what they share to a module \
                 below them, or list them with a reason in {LIST}",
                modules.join(", "),
                example.join(" -> ")
            )
        })
        .collect();
    for modules in permitted {
        if !circles.iter().any(|circle| circle.has_exactly(modules)) {
            let modules = modules.join(", ");
            found.push(format!(
                "{package}: the modules {modules} do not form this circle any more; update {LIST}"
            ));
        }
    }
    found
}

/// Set of modules that depend on each other in a cycle: each uses all others, directly or indirectly.
#[derive(Debug, PartialEq)]
struct Circle {
    modules: BTreeSet<String>,
    /// Example of a path along the cycle: each module uses the next one directly. The path ends with its
    /// first module.
    example: Vec<String>,
}

impl Circle {
    fn has_exactly(&self, modules: &[&str]) -> bool {
        self.modules.len() == modules.len()
            && self.modules.iter().all(|module| modules.contains(&module.as_str()))
    }
}

/// Modules directly below the root of a crate, each with the modules that it uses.
#[derive(Default)]
struct Graph {
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// Reads the modules of the crate whose root file is `root`.
    fn read(root: &Path, open: Open<'_>) -> Result<Graph> {
        let Some(folder) = root.parent() else { return Ok(Graph::default()) };
        let text = open(root).ok_or_else(|| format!("{}: cannot be read", root.display()))?;
        let tokens = parsed(root, &text)?;
        let names = Names::of(&tokens);
        let mut modules: BTreeMap<String, Module> = BTreeMap::new();
        let mut rest = &tokens[..];
        while let [_, after @ ..] = rest {
            if let Some((name, body)) = declared(rest) {
                let module = modules.entry(name.clone()).or_default();
                match body {
                    Some(body) => module.read(&without_tests(body.stream()), 1, &folder.join(&name), open)?,
                    None => module.read_file(folder, &name, 1, open)?,
                }
            }
            rest = after;
        }
        let resolve = |name: &String| -> Option<String> {
            if modules.contains_key(name) {
                return Some(name.clone());
            }
            let imported = names.first.get(name).filter(|first| modules.contains_key(*first));
            let has_it = |glob: &&String| modules.get(*glob).is_some_and(|module| module.items.contains(name));
            imported.or_else(|| names.globs.iter().find(has_it)).cloned()
        };
        let used = |name: &String, module: &Module| -> BTreeSet<String> {
            module.paths.iter().filter_map(resolve).filter(|other| other != name).collect()
        };
        Ok(Graph { uses: modules.iter().map(|(name, module)| (name.clone(), used(name, module))).collect() })
    }

    fn circles(&self) -> Vec<Circle> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.uses.keys().map(|module| (module.as_str(), self.reached(module))).collect();
        let mut circles: Vec<Circle> = Vec::new();
        for (module, others) in &reached {
            let is_known = circles.iter().any(|circle| circle.modules.contains(*module));
            if is_known || !others.contains(module) {
                continue;
            }
            let is_mutual = |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(module));
            let modules = others.iter().filter(is_mutual).map(|other| (*other).to_owned()).collect();
            circles.push(Circle { modules, example: self.way_back(module) });
        }
        circles
    }

    /// Returns the modules that a module uses, directly and indirectly.
    fn reached<'a>(&'a self, start: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut waiting = vec![start];
        while let Some(module) = waiting.pop() {
            let used = self.uses.get(module).into_iter().flatten();
            waiting.extend(used.map(String::as_str).filter(|other| reached.insert(*other)));
        }
        reached
    }

    /// Returns the shortest path of dependencies from a module back to itself. The module must be in a cycle.
    fn way_back(&self, start: &str) -> Vec<String> {
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        let mut waiting = VecDeque::from([start]);
        while let Some(module) = waiting.pop_front() {
            for other in self.uses.get(module).into_iter().flatten() {
                if let Entry::Vacant(place) = before.entry(other.as_str()) {
                    place.insert(module);
                    waiting.push_back(other);
                }
            }
        }
        let mut way = vec![start.to_owned()];
        let mut at = start;
        while let Some(&module) = before.get(at) {
            way.push(module.to_owned());
            at = module;
            if at == start {
                break;
            }
        }
        way.reverse();
        way
    }
}

/// Names that occur in a module directly below the crate root and in its submodules.
#[derive(Default)]
struct Module {
    /// Names of the modules and items directly below the crate root to which paths in the code
    /// lead.
    paths: BTreeSet<String>,
    /// Names of the items that the module defines, without those of its submodules.
    items: BTreeSet<String>,
}

impl Module {
    /// Reads the file of the module `name`, which is declared in a module whose submodules are in `folder`. `level` is the
    /// number of modules from the root to this one.
    fn read_file(&mut self, folder: &Path, name: &str, level: usize, open: Open<'_>) -> Result<()> {
        let below = folder.join(name);
        for file in [folder.join(format!("{name}.rs")), below.join("mod.rs")] {
            let Some(text) = open(&file) else { continue };
            let tokens = parsed(&file, &text)?;
            if level == 1 {
                self.items = items(&tokens);
            }
            self.read(&tokens, level, &below, open)?;
        }
        Ok(())
    }

    /// Reads `tokens`, the code of this module or of one of its submodules. `folder` contains the
    /// submodule files of the module whose code is read, and `level` is the number of modules on
    /// the path from the root to that module.
    fn read(&mut self, tokens: &[TokenTree], level: usize, folder: &Path, open: Open<'_>) -> Result<()> {
        let mut rest = tokens;
        while let [first, after @ ..] = rest {
            if let Some((name, body)) = declared(rest) {
                match body {
                    Some(body) => {
                        self.read(&without_tests(body.stream()), level + 1, &folder.join(name), open)?;
                        rest = &after[2..];
                        continue;
                    }
                    None => self.read_file(folder, &name, level + 1, open)?,
                }
            }
            rest = after;
            match first {
                // `$crate` belongs to the module that uses the macro.
                TokenTree::Punct(punct) if punct.as_char() == '$' => {
                    if let [TokenTree::Ident(_), others @ ..] = after {
                        rest = others;
                    }
                }
                TokenTree::Ident(word) if word == "crate" => {
                    if let Some(path) = after_colons(after) {
                        follow(path, 0, &mut self.paths);
                    }
                }
                TokenTree::Ident(word) if word == "super" => {
                    if let (Some(path), Some(level)) = (after_colons(after), level.checked_sub(1)) {
                        follow(path, level, &mut self.paths);
                    }
                }
                TokenTree::Group(group) => self.read(&without_tests(group.stream()), level, folder, open)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Follows a path to a module or item directly below the crate root, and adds its name to `names`. `path` is
/// the rest of the path after a prefix that leads to a module `level` levels below the root.
fn follow(path: &[TokenTree], level: usize, names: &mut BTreeSet<String>) {
    match path {
        [TokenTree::Ident(word), rest @ ..] if word == "super" => {
            if let (Some(rest), Some(level)) = (after_colons(rest), level.checked_sub(1)) {
                follow(rest, level, names);
            }
        }
        [TokenTree::Ident(name), ..] if level == 0 => {
            names.insert(name.to_string());
        }
        [TokenTree::Group(group), ..] if group.delimiter() == Delimiter::Brace => {
            branches(group).iter().for_each(|branch| follow(branch, level, names));
        }
        _ => {}
    }
}

/// Names that the crate root imports or re-exports with `use`.
#[derive(Default)]
struct Names {
    /// Names that the root imports, each with the first name on the path of its import, without
    /// `crate` or `self`.
    first: BTreeMap<String, String>,
    /// First names on the paths of the imports that end with `*`.
    globs: Vec<String>,
}

impl Names {
    fn of(root: &[TokenTree]) -> Names {
        let mut names = Names::default();
        let mut rest = root;
        while let [first, after @ ..] = rest {
            rest = after;
            if matches!(first, TokenTree::Ident(word) if word == "use") {
                let end = after.iter().position(|token| is_punct(token, ';')).unwrap_or(after.len());
                names.add(&after[..end], None);
            }
        }
        names
    }

    /// Adds the imports of a `use` tree, such as `module::{A, B as C}`. `first` is the first name on the path
    /// that precedes the tree.
    fn add(&mut self, tree: &[TokenTree], first: Option<&str>) {
        match tree {
            [punct, rest @ ..] if is_punct(punct, ':') => self.add(rest, first),
            [punct] if is_punct(punct, '*') => self.globs.extend(first.map(str::to_owned)),
            [TokenTree::Group(group)] => branches(group).iter().for_each(|branch| self.add(branch, first)),
            [TokenTree::Ident(name), rest @ ..] => {
                let name = name.to_string();
                if let Some(rest) = after_colons(rest) {
                    let is_root = first.is_none() && matches!(name.as_str(), "crate" | "self");
                    return self.add(rest, if is_root { None } else { first.or(Some(name.as_str())) });
                }
                let alias = match rest {
                    [_, TokenTree::Ident(alias)] => alias.to_string(),
                    _ => name.clone(),
                };
                self.first.insert(alias, first.unwrap_or(&name).to_owned());
            }
            _ => {}
        }
    }
}

/// Returns the name of the module that is declared at the beginning of `tokens`, and the body of the module
/// unless it is in another file.
fn declared(tokens: &[TokenTree]) -> Option<(String, Option<&Group>)> {
    match tokens {
        [TokenTree::Ident(word), TokenTree::Ident(name), end, ..] if word == "mod" => match end {
            TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => {
                Some((name.to_string(), Some(body)))
            }
            end => is_punct(end, ';').then(|| (name.to_string(), None)),
        },
        _ => None,
    }
}

/// Returns the names of the items that the tokens of a module define.
fn items(tokens: &[TokenTree]) -> BTreeSet<String> {
    const KEYWORDS: [&str; 8] = ["const", "enum", "fn", "static", "struct", "trait", "type", "union"];
    let mut items = BTreeSet::new();
    for pair in tokens.windows(2) {
        if let [TokenTree::Ident(keyword), TokenTree::Ident(name)] = pair
            && KEYWORDS.iter().any(|known| keyword == *known)
        {
            items.insert(name.to_string());
        }
    }
    items
}

/// Returns the tokens of a file without the items that are compiled only for tests.
fn parsed(file: &Path, text: &str) -> Result<Vec<TokenTree>> {
    let tokens = text.parse::<TokenStream>().map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(without_tests(tokens))
}

/// Returns the tokens without the items, fields and statements that are compiled only for tests.
fn without_tests(tokens: TokenStream) -> Vec<TokenTree> {
    let all: Vec<TokenTree> = tokens.into_iter().collect();
    let mut kept = Vec::with_capacity(all.len());
    let mut rest = &all[..];
    while let [first, after @ ..] = rest {
        match attribute(rest) {
            Some((attribute, after)) if is_of_tests(attribute) => rest = after_item(after),
            _ => {
                kept.push(first.clone());
                rest = after;
            }
        }
    }
    kept
}

/// Returns the attribute at the beginning of `tokens`, and the tokens after it.
fn attribute(tokens: &[TokenTree]) -> Option<(&Group, &[TokenTree])> {
    match tokens {
        [punct, TokenTree::Group(group), after @ ..]
            if is_punct(punct, '#') && group.delimiter() == Delimiter::Bracket =>
        {
            Some((group, after))
        }
        _ => None,
    }
}

/// Returns true if the attribute restricts an item to tests.
fn is_of_tests(attribute: &Group) -> bool {
    let mut tokens = attribute.stream().into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Ident(word)), None) => word == "test",
        (Some(TokenTree::Ident(word)), Some(TokenTree::Group(condition))) if word == "cfg" => {
            let condition: String = condition.stream().to_string().split_whitespace().collect();
            condition == "test" || condition == "doctest" || condition.starts_with("all(test")
        }
        _ => false,
    }
}

/// Returns the tokens after the item, field, variant or statement at the beginning of `tokens`.
fn after_item(mut tokens: &[TokenTree]) -> &[TokenTree] {
    const BEGINNINGS: [&str; 17] = [
        "async",
        "const",
        "enum",
        "extern",
        "fn",
        "impl",
        "let",
        "macro_rules",
        "mod",
        "pub",
        "static",
        "struct",
        "trait",
        "type",
        "union",
        "unsafe",
        "use",
    ];
    while let Some((_, after)) = attribute(tokens) {
        tokens = after;
    }
    let begins = |word: &str| matches!(tokens.first(), Some(TokenTree::Ident(first)) if first == word);
    let is_item = BEGINNINGS.iter().any(|word| begins(word));
    let mut is_import = false;
    for (at, token) in tokens.iter().enumerate() {
        let is_end = match token {
            TokenTree::Ident(word) => {
                is_import |= word == "use";
                false
            }
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && !is_import,
            token => is_punct(token, ';') || (is_punct(token, ',') && !is_item),
        };
        if is_end {
            return &tokens[at + 1..];
        }
    }
    &[]
}

/// Returns the parts of a group that are separated by commas.
fn branches(group: &Group) -> Vec<Vec<TokenTree>> {
    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
    tokens.split(|token| is_punct(token, ',')).map(<[TokenTree]>::to_vec).collect()
}

/// Returns the tokens after `::`, or `None` if the tokens do not begin with it.
fn after_colons(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    match tokens {
        [first, second, rest @ ..] if is_punct(first, ':') && is_punct(second, ':') => Some(rest),
        _ => None,
    }
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cycles of a crate that consists of the given files.
    fn circles(files: &[(&str, &str)]) -> Vec<Circle> {
        let open = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new("src").join(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        Graph::read(Path::new("src/lib.rs"), &open).expect("the files are Rust").circles()
    }

    fn circle(modules: &[&str], example: &[&str]) -> Circle {
        Circle {
            modules: modules.iter().map(|module| (*module).to_owned()).collect(),
            example: example.iter().map(|module| (*module).to_owned()).collect(),
        }
    }

    #[test]
    fn circles_are_found_through_all_kinds_of_paths() {
        let root = "pub mod a;\nmod b;\nmod c;\nmod d { use crate::a; }\n";
        let found = circles(&[
            ("lib.rs", root),
            ("a.rs", "use crate::{Unknown, b::{self, X}};"),
            ("b.rs", "fn f() -> u8 { g(super::c::DATA[0]) }"),
            ("c.rs", "pub(in crate::d) struct C(Vec<crate::a::A>);"),
        ]);
        let all = circle(&["a", "b", "c", "d"], &["a", "b", "c", "a"]);
        assert_eq!(found, [all]);
        let found = circles(&[
            ("lib.rs", root),
            ("a.rs", "use crate::b::X;"),
            ("b.rs", "use super::c::Y; use std::mem; use other::a::Z;"),
            ("c.rs", "//! Uses `crate::a`.\nconst TEXT: &str = \"crate::a\";"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_module_consists_of_its_submodules() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod x; mod y { mod z { use super::super::super::b; } } use x::X;"),
            ("a/x.rs", "use super::Y; use super::y::Z;"),
            ("b.rs", "mod x; fn f() { x::g() }"),
            ("b/x.rs", "use super::super::{a::A, b};"),
        ]);
        assert_eq!(found, [circle(&["a", "b"], &["a", "b", "a"])]);
    }

    #[test]
    fn names_of_the_root_belong_to_their_modules() {
        let files = |root| {
            [("lib.rs", root), ("a.rs", "pub struct A; use crate::B;"), ("b.rs", "pub struct B(crate::A);")]
        };
        let found = circle(&["a", "b"], &["a", "b", "a"]);
        assert_eq!(circles(&files("mod a; mod b; pub use a::A; use self::b::{C, D as B};")), [found]);
        let found = circle(&["a", "b"], &["a", "b", "a"]);
        assert_eq!(circles(&files("mod a; mod b; pub use crate::a::*; pub use b::*;")), [found]);
        // Items of the root itself.
        let found = circles(&files("mod a; mod b; struct A; pub use b::B;"));
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn tests_and_macros_do_not_count() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod c;"),
            ("a.rs", "use crate::b::B;"),
            (
                "b.rs",
                "#[cfg(test)]\nuse crate::{a::A, c};\n\
                 macro_rules! m { ($x:ident) => { $crate::a::A } }\n\
                 struct S { #[cfg(test)] a: crate::a::A, b: u8 }\n\
                 #[cfg(all(test, unix))]\n#[allow(unused)]\nfn f<T, U>() -> [u8; 2] { crate::a::f() }\n\
                 #[cfg(test)]\nmod tests { use crate::a; }",
            ),
            ("c.rs", "use crate::a;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
        let other = "#[cfg(test)]\nfn f() {}\n#[cfg(not(test))]\nfn g() { crate::a::f() }";
        let found = circles(&[("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", other)]);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn exceptions_are_listed_as_long_as_they_are_needed() {
        let listed = circle(&["buffer", "expr"], &["buffer", "expr", "buffer"]);
        assert!(problems("anyfn-ir", &[listed]).is_empty());
        assert_eq!(problems("anyfn-ir", &[]).len(), 1);
        let more = circle(&["buffer", "expr", "stmt"], &["buffer", "stmt", "expr", "buffer"]);
        let found = problems("anyfn-ir", &[more]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("buffer -> stmt -> expr -> buffer"), "{found:?}");
        let listed = circle(&["buffer", "expr"], &["buffer", "expr", "buffer"]);
        assert_eq!(problems("anyfn-te", &[listed]).len(), 1);
        assert!(problems("anyfn-te", &[]).is_empty());
    }
}
