//! The import tree of a bundle, and its serialised form.

use std::collections::HashMap;

use anyfn::{Bytes, Module, Result};

/// Module kind that marks the bundle's library in the serialised tree.
const LIBRARY: &str = "_lib";

/// A module of a bundle, with the indices of the modules that it imports.
pub(super) struct Node {
    /// Kind and serialised content of the module, or `None` for the bundle's library.
    other: Option<(String, Bytes)>,
    imports: Vec<usize>,
}

/// The modules of a bundle. Loading the bundle returns the module with index 0.
#[derive(Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Index of the bundle's library in `nodes`.
    library: Option<usize>,
    /// Modules whose code is linked into the bundle's library: a loaded library, or modules that are exported
    /// as code.
    pub(super) code: Vec<Module>,
}

impl Tree {
    /// Builds the tree of `root` and all modules that it imports, directly or indirectly. If none of these
    /// modules is a library or is exported as code, adds a library that imports `root`. The modules `imports`
    /// become imports of the library.
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

    /// Inserts a library at index 0. It imports the module that had index 0 before, if any.
    fn put_library_first(&mut self) {
        self.nodes.iter_mut().flat_map(|node| &mut node.imports).for_each(|at| *at += 1);
        let imports = if self.nodes.is_empty() { Vec::new() } else { vec![1] };
        self.nodes.insert(0, Node { other: None, imports });
        self.library = Some(0);
    }

    /// Adds `module` and all modules that it imports, each module once, and returns the index of `module`.
    /// `known` maps addresses of modules to their indices.
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
                // Several modules that are merged into the library do not import each other.
                if to != at && !self.nodes[at].imports.contains(&to) {
                    self.nodes[at].imports.push(to);
                }
            }
        }
        Ok(first)
    }

    /// Adds a node for `module` without its imports and returns the node's index. All modules that are
    /// exported as code share the node of the library.
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
                "cannot add the module of kind `{kind}` to a bundle: {}",
                error.message()
            )
            .with_cause(&error)
        })?;
        self.nodes.push(Node { other: Some((kind.to_string(), bytes)), imports: Vec::new() });
        Ok(at)
    }

    /// Checks that the imports have no cycle. Cycles can arise because several modules share the node of the
    /// library.
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
            "a module of the bundle imports the library that imports it: modules that are linked into one \
             library cannot import each other through a separate module"
        )
    }

    /// Returns true if the tree consists of the library only.
    pub(super) fn is_library_alone(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Serialises the tree: the size of the following data in bytes, the imports of each module, then the
    /// kind and the content of each module. The bundle's library has no content.
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
