//! From recordings at several points to a hull.

use plimsoll_ground::{Error, Result};
use rustc_hash::FxHashMap;

use super::recording::{Apart, Come, Recording};
use super::repeats::matched;
use super::solve::Solver;
use super::tape::{Born, Step, Tape};
use super::{Axis, Chosen, Hull, Kernel, Operand, Parameter, Phase, Variant, Witness, kernel, phases, values};

/// What is to be recorded, as it is said at the head of the file.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// What made it.
    pub made: Vec<(String, String)>,
    /// What is traced.
    pub model: String,
    /// How its loss is computed.
    pub loss: String,
    /// Name and type of every input.
    pub inputs: Vec<(String, String)>,
    /// What sizes depend on, the batch first.
    pub axes: Vec<Axis>,
}

/// A recording and where it was made.
#[derive(Debug)]
pub struct Trial {
    /// The values of the axes.
    pub at: Vec<u64>,
    /// What was recorded there.
    pub recording: Recording,
}

impl Hull {
    /// A hull without tapes.
    pub fn new(asked: Asked) -> Self {
        let Asked { made, model, loss, inputs, axes } = asked;
        Self {
            made,
            model,
            loss,
            inputs,
            axes,
            modules: Vec::new(),
            ops: Vec::new(),
            nodes: vec![String::new()],
            dtypes: Vec::new(),
            exprs: Vec::new(),
            shapes: Vec::new(),
            kernels: Vec::new(),
            tapes: Vec::new(),
        }
    }
}

/// A table of names or shapes, each once.
struct Table<'t, T> {
    rows: &'t mut Vec<T>,
    numbers: FxHashMap<T, u32>,
}

impl<'t, T: Clone + Eq + std::hash::Hash> Table<'t, T> {
    fn of(rows: &'t mut Vec<T>) -> Self {
        let numbers = rows.iter().enumerate().map(|(number, row)| (row.clone(), number as u32)).collect();
        Self { rows, numbers }
    }

    fn number(&mut self, row: &T) -> u32 {
        if let Some(number) = self.numbers.get(row) {
            return *number;
        }
        let number = self.rows.len() as u32;
        self.rows.push(row.clone());
        self.numbers.insert(row.clone(), number);
        number
    }
}

/// What a tape holds for, beside its precision.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holds<'a> {
    /// What was changed of the model, where something was.
    pub variant: Option<&'a Variant>,
    /// The one micro-batch that all its recordings are of, where it is for that alone.
    pub batch: Option<u64>,
    /// Compute capabilities.
    pub cards: &'a [(u8, u8)],
    /// Whether it holds under checkpointing alone.
    pub checkpointed: bool,
}

/// Adds the tape of one precision to a hull: `trials` are recordings at different points. Answers how many roundings the
/// points leave loose.
///
/// # Errors
/// Programs that differ between points, sizes without an expression.
pub fn fit(hull: &mut Hull, precision: &str, holds: Holds<'_>, trials: &[Trial]) -> Result<usize> {
    let Some(first) = trials.first() else { return Err(nothing()) };
    let (mut parts, sizes, loose) = expressed(hull, trials)?;
    add(hull, precision, holds, &first.recording, parts.swap_remove(0), &sizes);
    Ok(loose)
}

/// The same of a model that was recorded whole at some points, and at `trials`, the first of which is the first of those, with fewer of
/// the modules that repeat in it. The tape is the first whole one's; its sizes grow as those that they go by. `None`: they go by none, or do
/// not come out at another point where it was recorded whole, directly, so it must be recorded whole everywhere.
///
/// # Errors
/// As above, of the shorter model.
pub fn fit_whole(
    hull: &mut Hull,
    precision: &str,
    holds: Holds<'_>,
    wholes: &[Trial],
    trials: &[Trial],
) -> Result<Option<usize>> {
    let Some((whole, others)) = wholes.split_first() else { return Err(nothing()) };
    let Some(first) = trials.first().filter(|first| first.at == whole.at) else { return Err(nothing()) };
    let apart = whole.recording.apart()?;
    let Some(matched) = matched((&whole.recording, &apart), (&first.recording, &first.recording.apart()?)) else {
        return Ok(None);
    };
    let (_, sizes, loose) = expressed(hull, trials)?;
    let mut of_whole = Vec::with_capacity(matched.len());
    for by in matched {
        let Some(size) = sizes.get(by) else { return Ok(None) };
        of_whole.push(size.clone());
    }
    for other in others {
        let values = values(&hull.exprs, &other.at);
        let storages = &other.recording.storages;
        let mut comes = of_whole.iter().zip(&whole.recording.storages).zip(storages).map(|((size, first), storage)| {
            // A direct recording does not say which module backward has come to.
            let kind = |(_, _, dtype, op, _, node): &Come| (dtype.clone(), op.clone(), node.clone());
            kind(first) == kind(storage) && values.get(size.bytes as usize).copied().flatten() == Some(storage.0)
        });
        if storages.len() != of_whole.len() || !comes.all(|comes| comes) {
            return Ok(None);
        }
    }
    add(hull, precision, holds, &whole.recording, apart, &of_whole);
    let tape = hull.tapes.last();
    let comes_out =
        |other: &Trial| tape.is_some_and(|tape| phases(hull, tape, &other.at) == Ok(other.recording.phases()));
    if !others.iter().all(comes_out) {
        hull.tapes.pop();
        return Ok(None);
    }
    Ok(Some(loose))
}

fn nothing() -> Error {
    Error::new("trace", "nothing was recorded", "record at a few sizes")
}

fn add(hull: &mut Hull, precision: &str, holds: Holds<'_>, recording: &Recording, apart: Apart, sizes: &[Size]) {
    let mut tape = written(hull, precision, recording, apart, sizes);
    tape.variant = holds.variant.cloned().unwrap_or_default();
    (tape.batch, tape.cards, tape.checkpointed) = (holds.batch, holds.cards.to_vec(), holds.checkpointed);
    hull.tapes.push(tape);
}

/// What of a storage goes by the axes, as expressions.
#[derive(Clone, Debug, Default)]
struct Size {
    bytes: u32,
    shape: Vec<u32>,
    /// What the kernel that makes it was given, where that is told.
    kernel: Option<kernel::Expressed>,
}

/// The recordings taken apart, the expressions of every storage's size, and how many roundings the points leave loose.
fn expressed(hull: &mut Hull, trials: &[Trial]) -> Result<(Vec<Apart>, Vec<Size>, usize)> {
    let Some(first) = trials.first() else { return Err(nothing()) };
    let mut parts = Vec::with_capacity(trials.len());
    for trial in trials {
        parts.push(trial.recording.apart()?);
    }
    for (trial, apart) in trials.iter().zip(&parts).skip(1) {
        alike(hull, first, &parts[0], trial, apart)?;
    }
    let count = first.recording.storages.len();
    let kept = parts[0].segments.last().map_or(0, |last| (last.first + last.born) as usize);
    debug_assert!(kept <= count);
    let mut solver =
        Solver::new(trials.iter().map(|trial| trial.at.clone()).collect(), std::mem::take(&mut hull.exprs));
    let mut missing: Vec<String> = Vec::new();
    let mut sizes: Vec<Size> = Vec::with_capacity(kept);
    for index in 0..kept {
        let at = |trial: &Trial| trial.recording.storages[index].0;
        let bytes: Vec<u64> = trials.iter().map(at).collect();
        let ranks = trials.iter().map(|t| t.recording.storages[index].1.len()).collect::<Vec<_>>();
        let same_rank = ranks.windows(2).all(|pair| pair[0] == pair[1]);
        let dimensions: Vec<Vec<u64>> = (0..if same_rank { ranks[0] } else { 0 })
            .map(|d| trials.iter().map(|t| t.recording.storages[index].1[d]).collect())
            .collect();
        let numbers: Option<Vec<u32>> = dimensions.iter().map(|d| solver.dimension(d)).collect();
        match solver.bytes(&bytes, &dimensions) {
            Some(number) => {
                sizes.push(Size {
                    bytes: number,
                    shape: numbers.filter(|_| same_rank).unwrap_or_else(|| vec![number]),
                    kernel: None,
                });
            }
            None => {
                sizes.push(Size::default());
                let (_, shape, _, op, module, _) = &first.recording.storages[index];
                let module = first.recording.modules.get(*module as usize).map_or("", String::as_str);
                missing.push(format!("{op} {shape:?} in {module:?}: {bytes:?} bytes"));
            }
        }
    }
    let loose = solver.loose;
    // Behind all of them, whose expressions are the same whether kernels are told of or not.
    for (index, size) in sizes.iter_mut().enumerate() {
        let runs: Option<Vec<&kernel::Run>> =
            trials.iter().map(|trial| trial.recording.kernels.get(&(index as u32))).collect();
        let runs = runs.filter(|runs| kernel::alike(runs));
        size.kernel = runs.and_then(|runs| kernel::expressed(&runs, |values| solver.dimension(values)));
    }
    hull.exprs = solver.into_table();
    if !missing.is_empty() {
        let points: Vec<&Vec<u64>> = trials.iter().map(|trial| &trial.at).collect();
        return Err(Error::new(
            "trace",
            format!(
                "{} sizes have no expression over the axes at {points:?}: {}",
                missing.len(),
                missing.iter().take(5).cloned().collect::<Vec<_>>().join("; ")
            ),
            "give an axis a fixed number in --input, or say with --axis S=256/32 that only multiples of 32 are asked for",
        ));
    }
    Ok((parts, sizes, loose))
}

/// Whether two recordings are the same program.
///
/// # Errors
/// Where they begin to differ.
pub fn same_program(hull: &Hull, first: &Trial, other: &Trial) -> Result<()> {
    alike(hull, first, &first.recording.apart()?, other, &other.recording.apart()?)
}

/// Whether the marks of what is checkpointed are all that two recordings at one point differ in.
///
/// # Errors
/// A recording that cannot be taken apart.
pub fn same_but_for_marks(hull: &Hull, first: &Trial, other: &Trial) -> Result<bool> {
    let bare = |trial: &Trial| -> Result<Apart> {
        let mut apart = trial.recording.apart()?;
        for segment in &mut apart.segments {
            segment.unmark();
        }
        Ok(apart)
    };
    Ok(alike(hull, first, &bare(first)?, other, &bare(other)?).is_ok())
}

/// Refuses programs that differ.
fn alike(hull: &Hull, first: &Trial, one: &Apart, other: &Trial, two: &Apart) -> Result<()> {
    let (a, b) = (&first.recording, &other.recording);
    let differ = |what: String| {
        let axes: Vec<String> = hull
            .axes
            .iter()
            .enumerate()
            .map(|(i, axis)| format!("{} = {} and {}", axis.name, first.at[i], other.at[i]))
            .collect();
        Err(Error::new(
            "trace",
            format!("the program changes between {}: {what}", axes.join(", ")),
            "give the axis a fixed number in --input, or say with --axis S=256/32 that only multiples of 32 are asked for",
        ))
    };
    let name = |r: &Recording, storage: usize| {
        r.storages.get(storage).map_or(String::new(), |(_, shape, _, op, module, _)| {
            format!("{op} {shape:?} in {:?}", r.modules.get(*module as usize).map_or("", String::as_str))
        })
    };
    let kind = |r: &Recording, i: usize| {
        r.storages.get(i).map(|(_, _, dtype, op, module, _)| (dtype.clone(), op.clone(), *module))
    };
    let births = a.storages.len().max(b.storages.len());
    if let Some(at) = (0..births).find(|&at| kind(a, at) != kind(b, at)) {
        return differ(format!("{} here, {} there", name(a, at), name(b, at)));
    }
    for (x, y) in one.segments.iter().zip(&two.segments) {
        if let Some(at) = (0..x.steps.len().max(y.steps.len())).find(|&at| x.steps.get(at) != y.steps.get(at)) {
            let near = x.steps[..at.min(x.steps.len())].iter().filter(|s| **s == Step::Born).count();
            return differ(format!("behind {}", name(a, (x.first as usize + near).saturating_sub(1))));
        }
        if x != y {
            return differ("gradients".to_owned());
        }
    }
    Ok(())
}

fn written(hull: &mut Hull, precision: &str, recording: &Recording, apart: Apart, sizes: &[Size]) -> Tape {
    let mut shapes = Table::of(&mut hull.shapes);
    let (mut ops, mut nodes) = (Table::of(&mut hull.ops), Table::of(&mut hull.nodes));
    let (mut dtypes, mut modules) = (Table::of(&mut hull.dtypes), Table::of(&mut hull.modules));
    let names: Vec<u32> = recording.modules.iter().map(|name| modules.number(name)).collect();
    let mut kernels = Table::of(&mut hull.kernels);
    let mut storages = Vec::with_capacity(sizes.len());
    for (size, (_, _, dtype, op, module, node)) in sizes.iter().zip(&recording.storages) {
        let kernel = size.kernel.as_ref().map(|(op, operands, numbers)| {
            let operands = operands.iter().map(|(sizes, strides, dtype)| {
                Operand(shapes.number(sizes), shapes.number(strides), dtypes.number(dtype))
            });
            Kernel { op: ops.number(op), operands: operands.collect(), numbers: numbers.clone() }
        });
        storages.push(Born {
            bytes: size.bytes,
            shape: shapes.number(&size.shape),
            dtype: dtypes.number(dtype),
            op: ops.number(op),
            module: names.get(*module as usize).copied().unwrap_or(0),
            node: nodes.number(node),
            kernel: kernel.map_or(0, |kernel| kernels.number(&kernel) + 1),
        });
    }
    let mut segments = apart.segments;
    for step in segments.iter_mut().flat_map(|segment| segment.steps.iter_mut()) {
        if let Step::Module(number) = step {
            *number = names.get(*number as usize).copied().unwrap_or(0);
        }
    }
    let parameters = recording.parameters.iter().map(|(name, sizes, dtype, trained, storage)| Parameter {
        name: name.clone(),
        sizes: sizes.clone(),
        dtype: dtype.clone(),
        trained: *trained,
        storage: *storage,
    });
    let asked = recording.asked.iter().map(|(who, (dtype, told))| {
        (who.clone(), dtype.clone(), told.as_str().map_or_else(|| told.to_string(), str::to_owned))
    });
    Tape {
        precision: precision.to_owned(),
        variant: Variant::default(),
        checkpointed: false,
        batch: None,
        cards: Vec::new(),
        parameters: parameters.collect(),
        loaded: recording.loaded,
        storages,
        segments,
        asked: asked.collect(),
        blocks: recording.blocks.iter().map(|name| modules.number(name)).collect(),
        witnesses: Vec::new(),
    }
}

impl Hull {
    /// Has a recording in which autograd held what it saved itself be a witness of the tape with this number, which must come out
    /// as it; `checkpointed`: PyTorch itself checkpointed the model in it.
    ///
    /// # Errors
    /// It does not.
    pub fn witness(&mut self, number: usize, trial: &Trial, checkpointed: bool) -> Result<()> {
        let told = trial.recording.phases();
        let Some(tape) = self.tapes.get(number) else { return Ok(()) };
        let played = if checkpointed { &tape.checkpointed(self, Chosen::Marked)?.0 } else { tape };
        let ours = phases(self, played, &trial.at)?;
        if let Some(at) = (0..told.len().max(ours.len())).find(|&at| told.get(at) != ours.get(at)) {
            return Err(Error::new(
                "trace",
                format!(
                    "at {:?} the tape comes out otherwise than the model itself (phase {at}: {:?}, not {:?})",
                    trial.at,
                    ours.get(at),
                    told.get(at)
                ),
                "give an axis a fixed number in --input; if it stays so, report it with the model",
            ));
        }
        if let Some(tape) = self.tapes.get_mut(number) {
            tape.witnesses.push(Witness { axes: trial.at.clone(), checkpointed, phases: told });
        }
        Ok(())
    }
}

impl Recording {
    /// Peaks and ends of a direct recording: nothing but births and deaths.
    fn phases(&self) -> Vec<Phase> {
        use super::recording::Raw;
        let size = |number: u32| self.storages.get(number as usize).map_or(0, |s| s.0.next_multiple_of(512));
        let (mut now, mut phases, mut recorded) = (0u64, Vec::<Phase>::new(), false);
        for raw in &self.code {
            match raw {
                Raw::Phase('p', name) => {
                    recorded = matches!(name.as_str(), "input" | "forward" | "backward");
                    if recorded {
                        phases.push(Phase { peak: now, end: now });
                    }
                }
                Raw::One('a', number) => now += size(*number),
                Raw::One('d', number) => now = now.saturating_sub(size(*number)),
                _ => {}
            }
            if let (true, Some(phase)) = (recorded, phases.last_mut()) {
                phase.peak = phase.peak.max(now);
                phase.end = now;
            }
        }
        phases.truncate(9);
        phases
    }
}
