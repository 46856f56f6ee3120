//! Which modules a bundle holds and how they import each other, and the bytes that say so.

use std::collections::HashMap;

use anyfn::{Bytes, Module, Result};

/// The place of the library itself in the bytes.
const LIBRARY: &str = "_lib";

/// A module of a bundle: the library itself, or another one as its kind and its bytes.
pub(super) struct Node {
    /// `None` for the library.
    other: Option<(String, Bytes)>,
    imports: Vec<usize>,
}

/// The modules of a bundle; the first is what loading the file gives.
#[derive(Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// The place of the library.
    library: Option<usize>,
    /// Modules that become part of the library's code: the library itself, or modules that are exported as code.
    pub(super) code: Vec<Module>,
}

impl Tree {
    /// The modules that `root` is and imports, directly or not; without a root only a library. The library imports
    /// `imports`, too, and the root if that does not import the library.
    pub(super) fn of(root: Option<&Module>, imports: &[Module]) -> Result<Tree> {
        let mut tree = Tree::default();
        let mut known = HashMap::new();
        if let Some(root) = root {
            tree.add(root, &mut known)?;
        }
        let library = match tree.library {
            Some(library) => library,
            None => {
                tree.put_library_first();
                known.values_mut().for_each(|at| *at += 1);
                0
            }
        };
        for module in imports {
            let at = tree.add(module, &mut known)?;
            if at != library && !tree.nodes[library].imports.contains(&at) {
                tree.nodes[library].imports.push(at);
            }
        }
        tree.check_acyclic()?;
        Ok(tree)
    }

    /// Puts a library in front that imports what was first before.
    fn put_library_first(&mut self) {
        self.nodes.iter_mut().flat_map(|node| &mut node.imports).for_each(|at| *at += 1);
        let imports = if self.nodes.is_empty() { Vec::new() } else { vec![1] };
        self.nodes.insert(0, Node { other: None, imports });
        self.library = Some(0);
    }

    /// Adds a module with all that it imports, each once; gives its place.
    fn add(&mut self, module: &Module, known: &mut HashMap<usize, usize>) -> Result<usize> {
        let address = |module: &Module| module.as_object().as_handle().addr();
        if let Some(at) = known.get(&address(module)) {
            return Ok(*at);
        }
        let first = self.node_of(module)?;
        known.insert(address(module), first);
        let mut open = vec![(first, module.clone())];
        while let Some((at, module)) = open.pop() {
            for import in &module.imports()? {
                let to = match known.get(&address(&import)) {
                    Some(to) => *to,
                    None => {
                        let to = self.node_of(&import)?;
                        known.insert(address(&import), to);
                        open.push((to, import));
                        to
                    }
                };
                // Modules that become one import no part of themselves.
                if to != at && !self.nodes[at].imports.contains(&to) {
                    self.nodes[at].imports.push(to);
                }
            }
        }
        Ok(first)
    }

    /// The place of a module alone.
    fn node_of(&mut self, module: &Module) -> Result<usize> {
        let kind = module.kind()?;
        let is_library = &*kind == "library" && module.file()?.is_some();
        let at = self.nodes.len();
        if is_library || module.property_mask()? & Module::EXPORTED != 0 {
            self.code.push(module.clone());
            if let Some(library) = self.library {
                return Ok(library);
            }
            self.library = Some(at);
            self.nodes.push(Node { other: None, imports: Vec::new() });
            return Ok(at);
        }
        let bytes = module.save_to_bytes().map_err(|error| {
            anyfn::error!(
                error.kind(),
                "the module of kind `{kind}` cannot be put into a bundle: {}",
                error.message()
            )
            .with_cause(&error)
        })?;
        self.nodes.push(Node { other: Some((kind.to_string(), bytes)), imports: Vec::new() });
        Ok(at)
    }

    /// Modules that become one may import each other.
    fn check_acyclic(&self) -> Result<()> {
        let mut importers = vec![0usize; self.nodes.len()];
        self.nodes.iter().flat_map(|node| &node.imports).for_each(|to| importers[*to] += 1);
        let mut open: Vec<usize> = (0..self.nodes.len()).filter(|at| importers[*at] == 0).collect();
        let mut taken = 0;
        while let Some(next) = open.pop() {
            taken += 1;
            for to in &self.nodes[next].imports {
                importers[*to] -= 1;
                if importers[*to] == 0 {
                    open.push(*to);
                }
            }
        }
        if taken == self.nodes.len() {
            return Ok(());
        }
        anyfn::bail!(
            "ValueError",
            "a module of the bundle imports the library that imports it: modules that are linked into one library cannot \
             have others between them"
        )
    }

    /// Whether there is only the library.
    pub(super) fn is_library_alone(&self) -> bool {
        self.nodes.len() == 1
    }

    /// What stands in the file: the size, then which module imports which, then the modules.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut ends = vec![0u64];
        let mut children: Vec<u64> = Vec::new();
        for node in &self.nodes {
            children.extend(node.imports.iter().map(|to| *to as u64));
            ends.push(children.len() as u64);
        }
        let mut all = vec![0; 8];
        let number = |all: &mut Vec<u8>, number: u64| all.extend(number.to_le_bytes());
        for numbers in [&ends, &children] {
            number(&mut all, numbers.len() as u64);
            numbers.iter().for_each(|n| number(&mut all, *n));
        }
        for node in &self.nodes {
            let (kind, bytes) = match &node.other {
                None => (LIBRARY, None),
                Some((kind, bytes)) => (kind.as_str(), Some(bytes)),
            };
            number(&mut all, kind.len() as u64);
            all.extend(kind.as_bytes());
            if let Some(bytes) = bytes {
                number(&mut all, bytes.len() as u64);
                all.extend_from_slice(bytes);
            }
        }
        let size = all.len() as u64 - 8;
        all[..8].copy_from_slice(&size.to_le_bytes());
        all
    }
}
