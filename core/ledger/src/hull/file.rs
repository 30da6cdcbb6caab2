//! The hull as a file: a line that names format and version, and behind it packed JSON.
//!
//! It comes from anywhere, so reading it checks everything that is taken for granted of a hull, and plays every witness: one
//! that does not come out is refused.

use plimsoll_ground::{Error, Result};

use super::packed::{pack, unpack};
use super::tape::{Segment, Step, Tape, Way};
use super::{Chosen, Expr, Hull, Kernel, Operand, phases};

/// The longest file that is read.
pub const MOST_BYTES: usize = 4 << 20;
/// The longest text that one may unpack to.
pub const MOST_UNPACKED: usize = 64 << 20;
/// The most storages of a tape.
const MOST_STORAGES: usize = 500_000;
/// The most expressions, shapes and names.
const MOST_ROWS: usize = 500_000;
/// The most axes, tapes and witnesses of one.
const MOST_AXES: usize = 8;
const MOST_TAPES: usize = 128;
const MOST_WITNESSES: usize = 16;
/// The longest name, and the most dimensions.
pub(super) const LONGEST_NAME: usize = 1024;
const MOST_DIMENSIONS: usize = 16;
/// The most tensors that a kernel is said to be given.
const MOST_OPERANDS: usize = 8;
/// The most multiplications and instructions that playing all witnesses may take: some seconds.
const MOST_WORK: usize = 400_000_000;

pub fn wrong(problem: impl Into<String>) -> Error {
    Error::new(
        "model.hull",
        problem,
        "record it again with plimsoll trace, or ask whoever made it for the file once more",
    )
}

impl Hull {
    /// The bytes of a file.
    ///
    /// # Errors
    /// When it cannot be said in JSON, which is a mistake of ours.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let text = serde_json::to_string(self)
            .map_err(|problem| Error::new("hull", format!("it cannot be written: {problem}"), "report it"))?;
        pack(text.as_bytes())
    }

    /// The hull of a file's bytes, every witness played.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MOST_BYTES {
            return Err(wrong(format!("the file is longer than {MOST_BYTES} bytes")));
        }
        let text = unpack(bytes)?;
        let hull = Self::from_text(&text)?;
        hull.witnesses()?;
        Ok(hull)
    }

    /// The hull of the JSON within a file, its witnesses not played.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_text(text: &[u8]) -> Result<Self> {
        let hull: Self = serde_json::from_slice(text).map_err(|problem| wrong(format!("it is no hull: {problem}")))?;
        hull.check()?;
        Ok(hull)
    }

    /// Whether everything refers to something that is there.
    fn check(&self) -> Result<()> {
        let rows = [self.modules.len(), self.ops.len(), self.nodes.len(), self.dtypes.len(), self.exprs.len()];
        if rows.iter().any(|rows| *rows > MOST_ROWS) || self.shapes.len() > MOST_ROWS {
            return Err(wrong("it has more names, expressions or shapes than any model"));
        }
        if self.ops.len() > MOST_NAMES || self.nodes.len() > MOST_NAMES {
            return Err(wrong("it has more operators than there are"));
        }
        let mut names = [&self.modules, &self.ops, &self.nodes, &self.dtypes].into_iter().flatten();
        if names.any(|name| name.len() > LONGEST_NAME) {
            return Err(wrong("a name is longer than any"));
        }
        if self.axes.is_empty() || self.axes.len() > MOST_AXES {
            return Err(wrong(format!("it has {} axes, not 1 to {MOST_AXES}", self.axes.len())));
        }
        for axis in &self.axes {
            if axis.step == 0 || axis.least == 0 || axis.usual < axis.least || axis.name.is_empty() {
                return Err(wrong(format!("the axis {:?} has no sound range", axis.name)));
            }
        }
        if let Some((index, _)) = self.exprs.iter().enumerate().find(|(index, e)| !e.is_sound(*index, self.axes.len()))
        {
            return Err(wrong(format!("expression {index} refers to what is not before it, or divides by nothing")));
        }
        let expr = |number: &u32| (*number as usize) < self.exprs.len();
        if self.shapes.iter().any(|shape| shape.len() > MOST_DIMENSIONS || !shape.iter().all(expr)) {
            return Err(wrong("a shape refers to an expression that is not there"));
        }
        let shape = |number: u32| (number as usize) < self.shapes.len();
        let given = |Operand(sizes, strides, dtype): &Operand| {
            shape(*sizes) && shape(*strides) && (*dtype as usize) < self.dtypes.len()
        };
        let kernel = |kernel: &Kernel| {
            (kernel.op as usize) < self.ops.len()
                && kernel.operands.len() <= MOST_OPERANDS
                && kernel.numbers.len() <= MOST_OPERANDS
                && kernel.operands.iter().all(given)
        };
        if self.kernels.len() > MOST_ROWS || !self.kernels.iter().all(kernel) {
            return Err(wrong("a kernel was given what is not there"));
        }
        if self.tapes.is_empty() || self.tapes.len() > MOST_TAPES {
            return Err(wrong(format!("it has {} tapes, not 1 to {MOST_TAPES}", self.tapes.len())));
        }
        let table: usize = self.exprs.iter().map(Expr::cost).sum();
        let work = self.tapes.iter().map(|tape| {
            let steps: usize = tape.segments.iter().map(|segment| segment.steps.len()).sum();
            (table + steps + tape.storages.len()).saturating_mul(tape.witnesses.len())
        });
        if work.fold(0, usize::saturating_add) > MOST_WORK {
            return Err(wrong("its witnesses take longer to play than any model's"));
        }
        self.tapes.iter().try_for_each(|tape| self.check_tape(tape))
    }

    fn check_tape(&self, tape: &Tape) -> Result<()> {
        let within = |number: u32, rows: usize| (number as usize) < rows;
        for (index, born) in tape.storages.iter().enumerate() {
            let sound = within(born.bytes, self.exprs.len())
                && within(born.shape, self.shapes.len())
                && within(born.dtype, self.dtypes.len())
                && within(born.op, self.ops.len())
                && within(born.module, self.modules.len())
                && within(born.node, self.nodes.len())
                && (born.kernel as usize) <= self.kernels.len();
            if !sound {
                return Err(wrong(format!("storage {index} refers to something that is not there")));
            }
        }
        if !tape.variant.is_sound() {
            return Err(wrong("it is not said what was changed of the model before it was recorded"));
        }
        for parameter in &tape.parameters {
            if parameter.storage >= tape.loaded || parameter.sizes.len() > MOST_DIMENSIONS {
                return Err(wrong(format!("the parameter {:?} is not loaded", parameter.name)));
            }
        }
        let mut next = tape.loaded;
        let mut left = tape.segments[2].leaves.len();
        for segment in &tape.segments {
            if segment.first != next || segment.leaves.len() != left {
                return Err(wrong("its micro-batches do not follow one another"));
            }
            left = segment.leaves.len();
            next = next.checked_add(segment.born).ok_or_else(|| wrong("it has too many storages"))?;
            check_segment(tape, segment, self.modules.len())?;
        }
        let kinds = |segment: &Segment| segment.leaves.iter().map(std::mem::discriminant).collect::<Vec<_>>();
        if tape.segments.iter().any(|segment| kinds(segment) != kinds(&tape.segments[0])) {
            return Err(wrong("its micro-batches leave different things behind"));
        }
        if next as usize != tape.storages.len() || tape.storages.len() > MOST_STORAGES {
            return Err(wrong("its storages are not those of its micro-batches"));
        }
        if tape.blocks.iter().any(|block| !within(*block, self.modules.len())) {
            return Err(wrong("a block is no module of it"));
        }
        if tape.witnesses.len() > MOST_WITNESSES || tape.witnesses.iter().any(|w| w.axes.len() != self.axes.len()) {
            return Err(wrong("its witnesses are not of its axes"));
        }
        Ok(())
    }

    /// Plays every witness.
    fn witnesses(&self) -> Result<()> {
        for tape in &self.tapes {
            for witness in &tape.witnesses {
                let played = if witness.checkpointed { &tape.checkpointed(self, Chosen::Marked)?.0 } else { tape };
                let ours = phases(self, played, &witness.axes)?;
                if ours != witness.phases {
                    return Err(wrong(format!(
                        "at {:?} its {} tape does not come out as what was recorded there",
                        witness.axes, tape.precision
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Names are numbered in 16 bits by the ledger.
const MOST_NAMES: usize = 4096;

/// Whether every instruction is about something that is there, and nothing goes twice.
fn check_segment(tape: &Tape, segment: &Segment, modules: usize) -> Result<()> {
    let bad = |at: usize| wrong(format!("instruction {at} of a micro-batch is about something that is not there"));
    let mut held: Vec<bool> = Vec::new();
    let (mut handles, mut taken): (Vec<bool>, Vec<bool>) = (Vec::new(), Vec::new());
    let mut carried = vec![false; segment.leaves.len()];
    let mut arrived: Vec<bool> = tape.parameters.iter().map(|_| false).collect();
    let mut depth = 0u32;
    let take = |flags: &mut [bool], index: u32| {
        flags.get_mut(index as usize).is_some_and(|flag| std::mem::replace(flag, false))
    };
    for (at, step) in segment.steps.iter().enumerate() {
        let sound = match *step {
            Step::Born => {
                held.push(true);
                true
            }
            Step::Dropped(storage) if storage < tape.loaded => true,
            Step::Dropped(storage) => storage.checked_sub(segment.first).is_some_and(|index| take(&mut held, index)),
            Step::Carried(index) => carried.get_mut(index as usize).is_some_and(|gone| !std::mem::replace(gone, true)),
            Step::Kept(storage) => {
                handles.push(true);
                storage < tape.loaded
                    || storage.checked_sub(segment.first).is_some_and(|index| (index as usize) < held.len())
            }
            Step::LetGo(handle) => take(&mut handles, handle),
            Step::Taken(handle) => {
                taken.push(true);
                handles.get(handle as usize).copied().unwrap_or(false)
            }
            Step::PutBack(number) => take(&mut taken, number),
            Step::Module(number) => {
                depth += 1;
                (number as usize) < modules
            }
            Step::Return => {
                depth = depth.saturating_sub(1);
                true
            }
            Step::Takes | Step::Product(_) => true,
            // Whatever it says, it is a place or none.
            Step::Reached(number) => (number as usize) <= segment.steps.len(),
            Step::Arrived(parameter) => {
                let parameter = parameter as usize;
                arrived.get_mut(parameter).is_some_and(|came| !std::mem::replace(came, true))
            }
            Step::Given(storage) => {
                storage < tape.loaded
                    || storage.checked_sub(segment.first).is_some_and(|index| (index as usize) < held.len())
            }
            Step::Region => {
                depth += 1;
                true
            }
            Step::RegionEnd => {
                depth = depth.saturating_sub(1);
                true
            }
        };
        if !sound {
            return Err(bad(at));
        }
    }
    if held.len() != segment.born as usize {
        return Err(wrong("a micro-batch has more or fewer storages than it says"));
    }
    let [forward, backward] = segment.begins.map(|at| at as usize);
    if !(forward <= backward && backward <= segment.steps.len()) {
        return Err(wrong("a micro-batch's backward does not follow its forward"));
    }
    let births = |steps: &[Step]| steps.iter().filter(|step| **step == Step::Born).count();
    let (before, behind) = segment.steps.split_at(backward);
    let (made, behind) = (births(before), births(behind));
    if segment
        .root
        .is_some_and(|root| root.checked_sub(segment.first).is_none_or(|at| at as usize >= made) || behind < 2)
    {
        return Err(wrong("what backward is called on is not there"));
    }
    let alive = |storage: u32| {
        storage.checked_sub(segment.first).is_some_and(|index| held.get(index as usize).copied().unwrap_or(false))
    };
    if segment.gradients.len() != tape.parameters.len() || !segment.gradients.iter().flatten().all(|g| alive(*g)) {
        return Err(wrong("a gradient is no storage of its micro-batch"));
    }
    let mut gradients: Vec<u32> = segment.gradients.iter().flatten().copied().collect();
    gradients.sort_unstable();
    let leaves = segment.leaves.windows(2).all(|pair| pair[0] < pair[1])
        && segment.leaves.iter().all(|way| match *way {
            Way::Storage(storage) => alive(storage) && gradients.binary_search(&storage).is_err(),
            Way::Handle(handle) => handles.get(handle as usize).copied().unwrap_or(false),
            Way::Taken(number) => taken.get(number as usize).copied().unwrap_or(false),
        });
    if !leaves || segment.loss.checked_sub(segment.first).is_none_or(|index| index >= segment.born) {
        return Err(wrong("what a micro-batch leaves behind is not there"));
    }
    Ok(())
}
