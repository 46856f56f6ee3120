//! The import tree: serialised modules that a library contains, such as device code, and the imports among
//! them.
//!
//! The blob begins with its size. Then come two lists that describe the imports: the end of each module's row in the
//! second list, and the indices of the imported modules, row by row. One entry for each module follows, with its kind
//! and its bytes. The kind `_lib` represents the library itself and has no bytes. All numbers have 64 bits, little
//! endian.

use crate::message::{CHECKS, refused};

/// Entry of one module in a serialised import tree.
#[derive(Debug, PartialEq)]
pub(crate) enum ModuleEntry<'a> {
    Library,
    Other { kind: &'a str, bytes: &'a [u8] },
}

/// A parsed import tree.
#[derive(Debug, PartialEq)]
pub(crate) struct Tree<'a> {
    pub(crate) entries: Vec<ModuleEntry<'a>>,
    /// Pairs of indices in `entries`, sorted by the first index. The first index of a pair is a
    /// module, the second one a module that it imports.
    pub(crate) edges: Vec<(usize, usize)>,
}

impl<'a> Tree<'a> {
    /// Returns the kind and the size in bytes of each module, and the indices of the modules that it imports.
    /// The library itself has the kind `library` and the size 0.
    pub(crate) fn modules(&self) -> impl Iterator<Item = (&'a str, usize, Vec<usize>)> {
        self.entries.iter().enumerate().map(|(at, entry)| {
            let (kind, size) = match entry {
                ModuleEntry::Library => ("library", 0),
                ModuleEntry::Other { kind, bytes } => (*kind, bytes.len()),
            };
            // The edges are in the order of the importers.
            let from = self.edges.partition_point(|(from, _)| *from < at);
            let imports = self.edges[from..].iter().take_while(|(from, _)| *from == at);
            (kind, size, imports.map(|(_, to)| *to).collect())
        })
    }

    /// Creates a tree from its modules and their imports, which are checked. `ends` are the ends of the modules' rows in
    /// `children`.
    pub(crate) fn with_rows(
        entries: Vec<ModuleEntry<'a>>,
        ends: &[usize],
        children: &[usize],
    ) -> Result<Tree<'a>, String> {
        if ends.len() != entries.len() + 1 {
            return Err(refused!("{} modules have {} rows", entries.len(), ends.len().saturating_sub(1)));
        }
        let tree = Tree { entries, edges: edges(ends, children)? };
        if CHECKS {
            // Otherwise, the first import that closes a cycle is an error.
            tree.check_acyclic()?;
        }
        Ok(tree)
    }

    /// Returns an error if a module imports itself directly or indirectly. The check repeatedly
    /// discards a module that no remaining module imports; modules in a cycle always remain.
    fn check_acyclic(&self) -> Result<(), String> {
        // All entries of the library are one module.
        let library = self.entries.iter().position(|entry| *entry == ModuleEntry::Library).unwrap_or(0);
        let one = |at: usize| if self.entries[at] == ModuleEntry::Library { library } else { at };
        let mut importers = vec![0usize; self.entries.len()];
        let mut imports = vec![Vec::new(); self.entries.len()];
        for (from, to) in &self.edges {
            importers[one(*to)] += 1;
            imports[one(*from)].push(one(*to));
        }
        let mut open: Vec<usize> = (0..self.entries.len()).filter(|at| importers[*at] == 0).collect();
        let mut taken = 0;
        while let Some(next) = open.pop() {
            taken += 1;
            for to in &imports[next] {
                importers[*to] -= 1;
                if importers[*to] == 0 {
                    open.push(*to);
                }
            }
        }
        if taken == self.entries.len() {
            Ok(())
        } else {
            Err(refused!("its modules import each other in a cycle"))
        }
    }
}

/// Reader of a serialised import tree: the bytes that are left.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, len: u64, what: &str) -> Result<&'a [u8], String> {
        let left = self.0.len();
        let len = usize::try_from(len).ok().filter(|len| *len <= left);
        let Some((taken, rest)) = len.and_then(|len| self.0.split_at_checked(len)) else {
            return Err(refused!("it is truncated within {what}"));
        };
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn number(&mut self, what: &str) -> Result<u64, String> {
        let bytes = self.take(8, what)?;
        Ok(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    pub(crate) fn bytes(&mut self, what: &str) -> Result<&'a [u8], String> {
        let len = self.number(what)?;
        self.take(len, what)
    }

    pub(crate) fn numbers(&mut self, what: &str) -> Result<Vec<usize>, String> {
        let count = self.number(what)?;
        let bytes = self.take(count.saturating_mul(8), what)?;
        let number = |bytes: &[u8; 8]| usize::try_from(u64::from_le_bytes(*bytes)).unwrap_or(usize::MAX);
        Ok(bytes.as_chunks::<8>().0.iter().map(number).collect())
    }
}

/// Returns the imports as pairs of indices. `ends` are the ends of the modules' rows in `children`.
fn edges(ends: &[usize], children: &[usize]) -> Result<Vec<(usize, usize)>, String> {
    let count = ends.len().saturating_sub(1);
    let mut edges = Vec::new();
    for (from, row) in ends.array_windows::<2>().enumerate() {
        let Some(row) = children.get(row[0]..row[1]) else {
            return Err(refused!("module {from} has an invalid list of imports"));
        };
        for to in row {
            if *to >= count {
                return Err(refused!("module {from} imports module {to}, but there are {count} modules"));
            }
            edges.push((from, *to));
        }
    }
    if edges.len() != children.len() {
        return Err(refused!(
            "{} of its {} imports belong to no module",
            children.len() - edges.len(),
            children.len()
        ));
    }
    Ok(edges)
}

/// Parses and checks a serialised import tree. `content` must not include the size that precedes the tree in
/// a library.
pub(crate) fn parse(content: &[u8]) -> Result<Tree<'_>, String> {
    let mut reader = Reader(content);
    let ends = reader.numbers("the list of rows")?;
    let children = reader.numbers("the list of imports")?;
    let count = ends.len().saturating_sub(1);
    if count == 0 {
        return Err(refused!("it contains no modules"));
    }
    let mut entries = Vec::new();
    for _ in 0..count {
        let kind = reader.bytes("the kind of a module")?;
        entries.push(match core::str::from_utf8(kind) {
            Ok("_lib") => ModuleEntry::Library,
            Ok("") => return Err(refused!("the kind of a module is empty")),
            Ok(kind) => ModuleEntry::Other { kind, bytes: reader.bytes("the content of a module")? },
            Err(_) => return Err(refused!("the kind of a module is not UTF-8: \"{}\"", shown(kind))),
        });
    }
    if !entries.contains(&ModuleEntry::Library) {
        return Err(refused!("it has no entry for the library itself"));
    }
    if !reader.0.is_empty() {
        return Err(refused!("{} bytes follow its last module", reader.0.len()));
    }
    Tree::with_rows(entries, &ends, &children)
}

/// Returns the beginning of `bytes`, escaped, for an error message.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const SHOWN: usize = 40;
    match bytes.get(..SHOWN) {
        Some(begin) => format!("{}...", begin.escape_ascii()),
        None => format!("{}", bytes.escape_ascii()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use anyfn_random::Random;

    use super::*;

    pub(crate) fn numbers(values: &[u64]) -> Vec<u8> {
        let count = [values.len() as u64];
        count.iter().chain(values).flat_map(|v| v.to_le_bytes()).collect()
    }

    pub(crate) fn text(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
    }

    #[test]
    fn reads_a_library_with_one_import() {
        let blob = [numbers(&[0, 1, 1]), numbers(&[1]), text("_lib"), text("opencl"), text("code")].concat();
        let tree = parse(&blob).unwrap();
        assert_eq!(tree.edges, [(0, 1)]);
        assert_eq!(tree.entries, [ModuleEntry::Library, ModuleEntry::Other { kind: "opencl", bytes: b"code" }]);
        for len in 0..blob.len() {
            assert!(parse(&blob[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn refuses_what_is_inconsistent() {
        let check = |blob: &[Vec<u8>], reason: &str| {
            let error = parse(&blob.concat()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        };
        check(&[numbers(&[0]), numbers(&[])], "no modules");
        check(&[numbers(&[0, 1]), numbers(&[7]), text("_lib")], "imports module 7, but there are 1 modules");
        check(&[numbers(&[0, 9]), numbers(&[]), text("_lib")], "invalid list");
        check(&[numbers(&[1, 0]), numbers(&[0]), text("_lib")], "invalid list");
        check(&[numbers(&[0, 0]), numbers(&[]), text("x"), text("")], "no entry for the library itself");
        check(&[u64::MAX.to_le_bytes().to_vec()], "list of rows");
        let (lib, other) = (text("_lib"), [text("x"), text("")].concat());
        check(&[numbers(&[0, 0]), numbers(&[]), lib.clone(), vec![0]], "1 bytes follow its last module");
        check(&[numbers(&[0, 0]), numbers(&[0]), lib.clone()], "1 of its 1 imports belong to no module");
        check(&[numbers(&[0, 1]), numbers(&[0]), lib.clone()], "in a cycle");
        check(&[numbers(&[0, 1, 2]), numbers(&[1, 0]), lib.clone(), other.clone()], "in a cycle");
        check(&[numbers(&[0, 1, 2, 2]), numbers(&[1, 2]), lib.clone(), other, lib.clone()], "in a cycle");
        check(
            &[numbers(&[0, 0, 0]), numbers(&[]), lib.clone(), text(""), text("")],
            "the kind of a module is empty",
        );
        check(
            &[numbers(&[0, 0, 0]), numbers(&[]), lib.clone(), text("x"), vec![9; 7]],
            "the content of a module",
        );
        let kind = [3u64.to_le_bytes().to_vec(), b"\xff\xfex".to_vec()].concat();
        check(&[numbers(&[0, 0, 0]), numbers(&[]), lib, kind], "not UTF-8: \"\\xff\\xfex\"");
    }

    /// Tests that damaged import trees are parsed without a panic, and that the result never has more modules
    /// than the input has bytes. `ANYFN_FUZZ_SECONDS` extends the test.
    #[test]
    fn reads_any_import_tree_without_a_panic() {
        let other = |kind: &str, bytes: &str| [text(kind), text(bytes)].concat();
        let (lib, many) = (text("_lib"), vec![b'x'; 300]);
        let seeds = [
            [numbers(&[0, 0]), numbers(&[]), lib.clone()].concat(),
            [numbers(&[0, 1, 1]), numbers(&[1]), lib.clone(), other("opencl", "code")].concat(),
            [
                numbers(&[0, 2, 3, 3, 3]),
                numbers(&[1, 2, 3]),
                other("a", ""),
                lib.clone(),
                other("b", "1"),
                other("c", "2"),
            ]
            .concat(),
            [numbers(&[0, 1, 2]), numbers(&[1, 1]), other("a", core::str::from_utf8(&many).unwrap()), lib]
                .concat(),
        ];
        damage(&seeds, parse);
    }

    /// Changes serialised import trees at random and parses them.
    pub(crate) fn damage(seeds: &[Vec<u8>], parse: impl Fn(&[u8]) -> Result<Tree<'_>, String>) {
        let mut random = Random::from_env();
        let mut next = || random.number() as usize;
        let (mut rounds, mut refused) = (0u64, 0u64);
        for _ in anyfn_random::rounds(0, 1) {
            let mut blob = seeds[next() % seeds.len()].clone();
            for _ in 0..1 + next() % 4 {
                let at = next() % blob.len();
                let word =
                    [0, 1, 2, 3, 9, u64::MAX, u64::MAX / 8, i64::MAX as u64, blob.len() as u64][next() % 9];
                match next() % 5 {
                    0 => blob[at] = next() as u8,
                    1 => blob[at] ^= 1 << (next() % 8),
                    2 if blob.len() >= 8 => {
                        let at = (at & !7).min(blob.len() - 8);
                        blob[at..at + 8].copy_from_slice(&word.to_le_bytes());
                    }
                    3 => drop(blob.splice(at..at, word.to_le_bytes())),
                    _ => blob.truncate(at.max(1)),
                }
            }
            match parse(&blob) {
                Ok(tree) => {
                    let sizes: usize =
                        tree.modules().map(|(kind, size, imports)| kind.len() + size + imports.len()).sum();
                    assert!(sizes <= blob.len() && tree.entries.len() <= blob.len());
                }
                Err(reason) => {
                    refused += 1;
                    assert!(reason.len() < 300, "{reason}");
                }
            }
            rounds += 1;
        }
        eprintln!("{rounds} trees, {refused} refused");
        assert!(refused > 0 && rounds > refused);
    }
}
