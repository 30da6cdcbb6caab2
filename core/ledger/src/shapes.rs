//! The sizes of storages' tensors, each list of sizes once: a model's thousands of tensors have some dozens of shapes.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

/// A shape: its place in [`Shapes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShapeId(pub u32);

/// Shapes by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shapes {
    sizes: Vec<u64>,
    /// Where each shape's sizes end.
    ends: Vec<u32>,
}

impl Shapes {
    /// The sizes of a shape; none where there is no such shape.
    pub fn get(&self, ShapeId(number): ShapeId) -> &[u64] {
        let at = |index: u32| self.ends.get(index as usize).copied();
        let begin = number.checked_sub(1).map_or(Some(0), at);
        let range = begin.zip(at(number)).and_then(|(begin, end)| self.sizes.get(begin as usize..end as usize));
        range.unwrap_or_default()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// How many sizes they have together.
    pub fn numbers(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds a shape without looking whether it is there.
    pub fn add(&mut self, sizes: &[u64]) -> ShapeId {
        self.sizes.extend_from_slice(sizes);
        self.ends.push(self.sizes.len() as u32);
        ShapeId(self.ends.len() as u32 - 1)
    }
}

/// Shapes asked for of late, which need not be looked up.
const RECENT: usize = 64;

/// Finds the number of a shape that was seen before.
#[derive(Debug)]
pub(crate) struct ShapeIndex {
    known: HashMap<Box<[u64]>, ShapeId, FxBuildHasher>,
    recent: [ShapeId; RECENT],
}

impl Default for ShapeIndex {
    fn default() -> Self {
        Self { known: HashMap::default(), recent: [ShapeId(u32::MAX); RECENT] }
    }
}

impl ShapeIndex {
    /// The number of these sizes in `shapes`, which gets them if they are new.
    pub fn of(&mut self, shapes: &mut Shapes, sizes: &[u64]) -> ShapeId {
        let mixed =
            sizes.iter().fold(sizes.len() as u64, |mixed, size| (mixed ^ size).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let recent = &mut self.recent[(mixed >> 58) as usize % RECENT];
        if (recent.0 as usize) < shapes.len() && shapes.get(*recent) == sizes {
            return *recent;
        }
        *recent = match self.known.get(sizes) {
            Some(known) => *known,
            None => {
                let id = shapes.add(sizes);
                self.known.insert(sizes.into(), id);
                id
            }
        };
        *recent
    }
}
