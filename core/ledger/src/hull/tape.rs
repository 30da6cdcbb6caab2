//! One recording with sizes as expressions: what is loaded, and three micro-batches.

use super::{Parameter, Variant, Witness};
use serde::{Deserialize, Serialize};

/// What stands for an element type among the [questions](Tape::asked) of a tape where the host asked how many elements a mask selects.
pub const MASK: &str = "mask";

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The next storage comes.
    Born,
    /// Python lets go of a storage of this segment, or of one that was loaded.
    Dropped(u32),
    /// What the micro-batch before left behind goes: this one of its [`Segment::leaves`].
    Carried(u32),
    /// Autograd keeps a storage, under the next handle.
    Kept(u32),
    /// Autograd lets go of a handle of this segment.
    LetGo(u32),
    /// Backward takes out what a handle keeps, under the next number.
    Taken(u32),
    /// Backward lets go of what it took out.
    PutBack(u32),
    /// What is called next is given something that takes a gradient.
    Takes,
    /// A module is called.
    Module(u32),
    /// The innermost module returns.
    Return,
    /// A matrix product runs, or one that adds a bias as it goes.
    Product(bool),
    /// A stretch begins that is recomputed where the model is checkpointed.
    Region,
    /// The innermost such stretch ends.
    RegionEnd,
    /// What was just called, or the stretch that just began, is given this storage.
    Given(u32),
    /// Backward comes to what the forward made behind this many calls and returns of modules.
    Reached(u32),
    /// This parameter has its gradient.
    Arrived(u32),
}

/// What something left behind is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Python holds this storage.
    Storage(u32),
    /// Autograd holds this handle.
    Handle(u32),
    /// Backward holds what it took out under this number.
    Taken(u32),
}

/// A storage as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Born {
    /// The expression of its bytes.
    pub bytes: u32,
    /// The shape of the tensor it comes for.
    pub shape: u32,
    /// The number of its element type's name.
    pub dtype: u32,
    /// The number of its operator's name.
    pub op: u32,
    /// The number of its module's name.
    pub module: u32,
    /// The number of its autograd function's name.
    pub node: u32,
    /// What the kernel that makes it was given, as a number of [`Hull::kernels`](super::Hull::kernels) and one more; 0 where that is not
    /// told.
    pub kernel: u32,
}

/// A micro-batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The number of its first storage.
    pub first: u32,
    /// How many storages come in it.
    pub born: u32,
    /// Its instructions.
    pub steps: Vec<Step>,
    /// Where the forward begins, and where backward does.
    pub begins: [u32; 2],
    /// The storage of each parameter's gradient at its end, where it made one.
    pub gradients: Vec<Option<u32>>,
    /// The loss's storage.
    pub loss: u32,
    /// The storage of what backward was called on, where that was made of the loss by one more function. Backward's second storage
    /// is then the gradient that this function makes of the first. `None`: backward was called on the loss.
    pub root: Option<u32>,
    /// What the next micro-batch lets go of.
    pub leaves: Vec<Way>,
}

/// A recording. Storages are numbered in the order they come, handles and what is taken out by segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tape {
    /// The scenario's word for the precision.
    pub precision: String,
    /// What was changed of the model before.
    pub variant: Variant,
    /// Whether it holds under checkpointing alone, because the model then runs another program.
    pub checkpointed: bool,
    /// The one micro-batch that it holds for; `None`: every one from the axis's least on that has no tape of its own.
    pub batch: Option<u64>,
    /// Compute capabilities that it holds for.
    pub cards: Vec<(u8, u8)>,
    /// Parameters in the model's order.
    pub parameters: Vec<Parameter>,
    /// How many storages are there once the model is loaded.
    pub loaded: u32,
    /// Every storage.
    pub storages: Vec<Born>,
    /// The first micro-batch, one with gradients there already, one without them again.
    pub segments: [Segment; 3],
    /// What the host asked the card for: who, the element type, what it was told. Of how many elements a mask selects, [`MASK`] stands for
    /// the type.
    pub asked: Vec<(String, String, String)>,
    /// Modules that repeat in a list, by the numbers of their names.
    pub blocks: Vec<u32>,
    /// What direct recordings came to.
    pub witnesses: Vec<Witness>,
}

impl Tape {
    /// Who asked how many elements a mask selects, and which part it was told: `all`, or a number.
    pub fn masks(&self) -> impl Iterator<Item = (&str, &str)> {
        let asked = self.asked.iter().filter(|(_, dtype, _)| dtype == MASK);
        asked.map(|(who, _, told)| (&**who, &**told))
    }
}
