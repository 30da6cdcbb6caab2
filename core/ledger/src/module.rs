//! The tree of modules, `nn.Module.named_modules()`: a storage and a launch say where in it they were made.

use std::borrow::Cow;
use std::collections::HashMap;

/// A module: its place in [`Modules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct ModuleId(u32);

impl ModuleId {
    /// The root, for what belongs to no module.
    pub const ROOT: Self = Self(0);

    /// The module at `index` in the tree's list.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// Its place in the tree's list.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One module: its parent, and what it is called there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The module it is registered in; of the root, itself.
    pub parent: ModuleId,
    /// Its attribute's name; of a list's entry, the list's.
    pub name: Cow<'static, str>,
    /// Its number, where it is an entry of a `ModuleList`.
    pub item: Option<u32>,
}

/// Every module of a run, parents before their children. Paths are put together when somebody asks: a model of a hundred
/// layers has thousands of modules, and a run looks at none of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modules(Vec<Module>);

impl Default for Modules {
    fn default() -> Self {
        Self(vec![Module { parent: ModuleId::ROOT, name: Cow::Borrowed(""), item: None }])
    }
}

impl Modules {
    /// Adds a module.
    pub fn add(&mut self, parent: ModuleId, name: Cow<'static, str>, item: Option<u32>) -> ModuleId {
        self.0.push(Module { parent, name, item });
        ModuleId::new(self.0.len() as u32 - 1)
    }

    /// The modules in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Module> {
        self.0.iter()
    }

    /// How many there are, the root included.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: the root is always there.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A module.
    pub fn get(&self, id: ModuleId) -> Option<&Module> {
        self.0.get(id.index())
    }

    /// A module and those it is in, but the root.
    pub fn ancestors(&self, id: ModuleId) -> impl Iterator<Item = ModuleId> {
        let parent = |at: &ModuleId| self.0.get(at.index()).map(|module| module.parent);
        std::iter::successors(Some(id), parent).take_while(|at| *at != ModuleId::ROOT)
    }

    /// The dotted path of a module; empty for the root.
    pub fn path(&self, id: ModuleId) -> String {
        let mut parts: Vec<&Module> = Vec::new();
        let mut at = id;
        while at != ModuleId::ROOT
            && let Some(module) = self.0.get(at.index())
        {
            parts.push(module);
            at = module.parent;
        }
        let mut path = String::new();
        for part in parts.iter().rev() {
            for piece in [Some(part.name.as_ref()), part.item.map(|i| i.to_string()).as_deref()].into_iter().flatten() {
                if !path.is_empty() && !piece.is_empty() {
                    path.push('.');
                }
                path.push_str(piece);
            }
        }
        path
    }

    /// The paths of all with a `*` for every number, `model.layers.*.mlp`, each once and in order; and by
    /// [`ModuleId::index`] which of them a module has. A model has many modules and few such paths.
    pub fn groups(&self) -> (Vec<String>, Vec<u32>) {
        let mut known: HashMap<(u32, &str, bool), u32> = HashMap::new();
        let mut paths: Vec<String> = Vec::new();
        let mut group_of: Vec<u32> = Vec::with_capacity(self.0.len());
        for module in &self.0 {
            // Of the root: nothing is known yet, and it has no parts.
            let parent = group_of.get(module.parent.index()).copied().unwrap_or_default();
            let group = *known.entry((parent, module.name.as_ref(), module.item.is_some())).or_insert_with(|| {
                let mut path = paths.get(parent as usize).cloned().unwrap_or_default();
                let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
                let own = module.name.split('.').map(|part| if is_number(part) { "*" } else { part });
                for part in own.chain(module.item.map(|_| "*")) {
                    if !path.is_empty() && !part.is_empty() {
                        path.push('.');
                    }
                    path.push_str(part);
                }
                paths.push(path);
                paths.len() as u32 - 1
            });
            group_of.push(group);
        }
        // Two ways of writing one path are one group.
        let mut sorted = paths.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let place = |path: &String| sorted.binary_search(path).unwrap_or_default() as u32;
        let places: Vec<u32> = paths.iter().map(place).collect();
        let groups =
            group_of.into_iter().map(|group| places.get(group as usize).copied().unwrap_or_default()).collect();
        (sorted, groups)
    }

    /// The paths of all, by [`ModuleId::index`].
    pub fn paths(&self) -> Vec<String> {
        (0..self.0.len() as u32).map(|index| self.path(ModuleId::new(index))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_the_way_from_the_root() {
        let mut modules = Modules::default();
        let model = modules.add(ModuleId::ROOT, "model".into(), None);
        let layer = modules.add(model, "layers".into(), Some(12));
        let mlp = modules.add(layer, "mlp".into(), None);
        assert_eq!(modules.path(mlp), "model.layers.12.mlp");
        assert_eq!(modules.path(ModuleId::ROOT), "");
        assert_eq!(modules.paths(), ["", "model", "model.layers.12", "model.layers.12.mlp"]);
    }

    #[test]
    fn numbers_are_no_difference_to_a_group() {
        let mut modules = Modules::default();
        let model = modules.add(ModuleId::ROOT, "model".into(), None);
        for item in 0..3 {
            let layer = modules.add(model, "layers".into(), Some(item));
            modules.add(layer, "mlp".into(), None);
        }
        // A recording names a layer in one piece, and a module may have no name of its own.
        let written = modules.add(model, "layers.7".into(), None);
        modules.add(written, "mlp".into(), None);
        modules.add(model, "".into(), None);
        let (paths, groups) = modules.groups();
        assert_eq!(paths, ["", "model", "model.layers.*", "model.layers.*.mlp"]);
        assert_eq!(groups, [0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 1]);
    }
}
