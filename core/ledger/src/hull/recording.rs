//! What the recorder says, and one recording taken apart into micro-batches.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_ground::{Error, Result};
use serde::Deserialize;

use super::kernel::Run;
use super::tape::{Segment, Step, Way};

/// A line of the recorder's.
#[derive(Debug, Default, Deserialize)]
pub struct Reply {
    /// The version of its lines, in the first.
    pub hello: Option<u32>,
    /// PyTorch's version, in the first.
    #[serde(default)]
    pub torch: String,
    /// Python's version, in the first.
    #[serde(default)]
    pub python: String,
    /// Libraries of models that it imported, and their versions.
    #[serde(default)]
    pub packages: Vec<(String, String)>,
    /// What was found of a script, in the first: its inputs as `--input` would say them.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// Its axes, as `--axis` would say them.
    #[serde(default)]
    pub axes: Vec<String>,
    /// The precision it trains in.
    #[serde(default)]
    pub precision: String,
    /// The marked lines.
    #[serde(default)]
    pub lines: String,
    /// A recording.
    pub recording: Option<Recording>,
    /// Why there is none.
    pub refused: Option<String>,
    /// What to do about that.
    #[serde(default)]
    pub hint: String,
}

/// Bytes, shape, dtype, op, module and autograd's function of a storage that comes.
pub(super) type Come = (u64, Vec<u64>, String, String, u32, String);

/// A recording at one point.
#[derive(Debug, Deserialize)]
pub struct Recording {
    /// How many stretches of it are recomputed where the model is checkpointed.
    #[serde(default)]
    pub regions: u32,
    /// Lists of modules that are alike: the path, how many there are, and which of them a shorter model has.
    #[serde(default)]
    pub repeats: Vec<(String, u32, Vec<u32>)>,
    /// Cards on which the same attention kernels run.
    pub same: Vec<(u8, u8)>,
    /// Instructions.
    pub(super) code: Vec<Raw>,
    /// Bytes, shape, dtype, op, module, autograd's function.
    pub(super) storages: Vec<Come>,
    /// What the kernels were given that made these storages; older recorders do not say.
    #[serde(default, rename = "ran")]
    pub(super) kernels: BTreeMap<u32, Run>,
    pub(super) modules: Vec<String>,
    /// Names of modules that repeat in a list.
    #[serde(default)]
    pub(super) blocks: Vec<String>,
    pub(super) loaded: u32,
    /// Name, shape, dtype, whether it is trained, storage.
    pub(super) parameters: Vec<(String, Vec<u64>, String, bool, u32)>,
    pub(super) gradients: BTreeMap<String, Vec<Option<u32>>>,
    pub(super) losses: BTreeMap<String, (u32, String)>,
    /// What backward was called on, made of the loss; older recorders called it on the loss.
    #[serde(default)]
    pub(super) roots: BTreeMap<String, u32>,
    /// Who asked the card for a number: the dtype, and what was answered.
    pub asked: BTreeMap<String, (String, serde_json::Value)>,
}

/// An instruction as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Raw {
    Two(char, u32, u32),
    One(char, u32),
    Phase(char, String),
    Bare((char,)),
}

/// The micro-batches of a recording: three are kept, the fourth shows that the third repeats.
pub(super) struct Apart {
    pub segments: [Segment; 3],
}

fn wrong(problem: impl Into<String>) -> Error {
    Error::new("trace", problem, "the recorder and this program do not fit together: report it")
}

/// What a storage, handle or number taken out belongs to: the segment it came in.
#[derive(Default)]
struct Bounds {
    storages: Vec<u32>,
    handles: Vec<u32>,
    taken: Vec<u32>,
}

impl Bounds {
    fn of(bounds: &[u32], number: u32) -> Option<usize> {
        bounds.partition_point(|first| *first <= number).checked_sub(1)
    }
}

impl Recording {
    /// Takes it apart.
    ///
    /// # Errors
    /// What no composition of micro-batches stands for, by what the model does.
    pub(super) fn apart(&self) -> Result<Apart> {
        let mut bounds = Bounds::default();
        let (mut storages, mut handles, mut taken) = (0u32, 0u32, 0u32);
        let mut segments: Vec<Segment> = Vec::new();
        let mut releases: Vec<BTreeSet<Way>> = Vec::new();
        // Steps of what was left behind are put in once it is known what all is.
        let mut carried: Vec<Vec<(usize, Way)>> = Vec::new();
        let mut phase = "";
        for raw in &self.code {
            if let Raw::Phase('p', name) = raw {
                phase = name;
                match phase {
                    "input" => {
                        bounds.storages.push(storages);
                        bounds.handles.push(handles);
                        bounds.taken.push(taken);
                        segments.push(Segment {
                            first: storages,
                            born: 0,
                            steps: Vec::new(),
                            begins: [0, 0],
                            gradients: Vec::new(),
                            loss: 0,
                            root: None,
                            leaves: Vec::new(),
                        });
                        releases.push(BTreeSet::new());
                        carried.push(Vec::new());
                    }
                    "forward" | "backward" => {
                        if let Some(segment) = segments.last_mut() {
                            segment.begins[usize::from(phase == "backward")] = segment.steps.len() as u32;
                        }
                    }
                    _ => {}
                }
                continue;
            }
            let Some(index) = segments.len().checked_sub(1) else {
                match raw {
                    Raw::One('a', _) => storages += 1,
                    other => return Err(wrong(format!("while the model is loaded: {other:?}"))),
                }
                continue;
            };
            let segment = &mut segments[index];
            let mut left = |way: Way, owner: usize, steps: &mut Vec<Step>| -> Result<()> {
                if owner + 1 != index {
                    return Err(Error::new(
                        "trace",
                        "a micro-batch lets go of something that is two micro-batches old",
                        "leave out what the model keeps of earlier calls",
                    ));
                }
                releases[owner].insert(way);
                carried[index].push((steps.len(), way));
                steps.push(Step::Carried(0));
                Ok(())
            };
            let zero = phase == "zero";
            let step = match raw {
                Raw::One('a', number) => {
                    if *number != storages {
                        return Err(wrong("storages are not in order"));
                    }
                    storages += 1;
                    segment.born += 1;
                    Step::Born
                }
                Raw::One('d', number) => match Bounds::of(&bounds.storages, *number) {
                    _ if zero => {
                        let letter = ["A", "B", "C", "D"];
                        let is_gradient = letter
                            .iter()
                            .filter_map(|l| self.gradients.get(*l))
                            .any(|all| all.contains(&Some(*number)));
                        if is_gradient {
                            continue;
                        }
                        return Err(wrong("something else than gradients goes with the gradients"));
                    }
                    None => Step::Dropped(*number),
                    Some(owner) if owner == index => Step::Dropped(*number),
                    Some(owner) => {
                        left(Way::Storage(*number), owner, &mut segment.steps)?;
                        continue;
                    }
                },
                Raw::Two('s', handle, storage) => {
                    if *handle != handles {
                        return Err(wrong("handles are not in order"));
                    }
                    handles += 1;
                    let owner = Bounds::of(&bounds.storages, *storage);
                    if owner.is_some_and(|owner| owner != index) {
                        return Err(Error::new(
                            "trace",
                            "a micro-batch saves something of the one before for its backward",
                            "detach what the model keeps between calls",
                        ));
                    }
                    Step::Kept(*storage)
                }
                Raw::One('r', handle) => match Bounds::of(&bounds.handles, *handle) {
                    Some(owner) if owner == index => Step::LetGo(*handle - bounds.handles[index]),
                    Some(owner) => {
                        left(Way::Handle(*handle - bounds.handles[owner]), owner, &mut segment.steps)?;
                        continue;
                    }
                    None => return Err(wrong("a handle of nowhere")),
                },
                Raw::Two('u', number, handle) => {
                    if *number != taken || Bounds::of(&bounds.handles, *handle) != Some(index) {
                        return Err(wrong("backward takes out what another micro-batch kept"));
                    }
                    taken += 1;
                    Step::Taken(*handle - bounds.handles[index])
                }
                Raw::One('x', number) => match Bounds::of(&bounds.taken, *number) {
                    Some(owner) if owner == index => Step::PutBack(*number - bounds.taken[index]),
                    Some(owner) => {
                        left(Way::Taken(*number - bounds.taken[owner]), owner, &mut segment.steps)?;
                        continue;
                    }
                    None => return Err(wrong("backward lets go of what it never took")),
                },
                Raw::Bare(('t',)) => Step::Takes,
                Raw::One('n', turns) => Step::Reached(*turns),
                Raw::One('i', parameter) => Step::Arrived(*parameter),
                Raw::One('m', module) => Step::Module(*module),
                Raw::Bare(('e',)) => Step::Return,
                Raw::Bare(('c',)) => Step::Region,
                Raw::Bare(('f',)) => Step::RegionEnd,
                Raw::One('g', storage) => match Bounds::of(&bounds.storages, *storage) {
                    // What the model keeps of an earlier call lives on by itself.
                    Some(owner) if owner != index => continue,
                    _ => Step::Given(*storage),
                },
                Raw::One('b', bias) => Step::Product(*bias == 1),
                other => return Err(wrong(format!("an instruction {other:?}"))),
            };
            if phase == "end" {
                break;
            }
            segment.steps.push(step);
        }
        self.joined(segments, releases, &carried)
    }

    fn joined(
        &self,
        mut segments: Vec<Segment>,
        releases: Vec<BTreeSet<Way>>,
        carried: &[Vec<(usize, Way)>],
    ) -> Result<Apart> {
        for (index, letter) in ["A", "B", "C", "D"].into_iter().enumerate() {
            let Some(segment) = segments.get_mut(index) else { return Err(wrong("fewer than four micro-batches")) };
            segment.leaves = releases[index].iter().copied().collect();
            let in_segment = |storage: &u32| (segment.first..segment.first + segment.born).contains(storage);
            let gradients = self.gradients.get(letter).cloned().unwrap_or_default();
            segment.gradients = gradients.into_iter().map(|g| g.filter(in_segment)).collect();
            segment.loss = self.losses.get(letter).map_or(0, |(storage, _)| *storage);
            segment.root = self.roots.get(letter).copied();
            if !in_segment(&segment.loss) || !segment.root.iter().all(in_segment) {
                return Err(wrong("the loss is older than its micro-batch"));
            }
        }
        for (index, steps) in carried.iter().enumerate() {
            for (at, way) in steps {
                let before = &segments[index.saturating_sub(1)].leaves;
                let Ok(number) = before.binary_search(way) else { return Err(wrong("what was left is not listed")) };
                segments[index].steps[*at] = Step::Carried(number as u32);
            }
        }
        let Ok([first, second, third, fourth]) = <[Segment; 4]>::try_from(segments) else {
            return Err(wrong("more than four micro-batches"));
        };
        if third.relative(self.loaded) != fourth.relative(self.loaded) {
            return Err(Error::new(
                "trace",
                "the model does something else in every micro-batch",
                "set what it counts or caches between calls to a fixed value while it is traced",
            ));
        }
        let kinds = |segment: &Segment| segment.leaves.iter().map(std::mem::discriminant).collect::<Vec<_>>();
        if kinds(&first) != kinds(&third) || kinds(&second) != kinds(&third) {
            return Err(Error::new(
                "trace",
                "the first micro-batch leaves other things behind than those that follow",
                "run the model once before it is traced, so that what it caches is there",
            ));
        }
        if second.gradients.iter().any(Option::is_some) {
            return Err(Error::new(
                "trace",
                "gradients are replaced where they should be added to",
                "use dense gradients (sparse = False)",
            ));
        }
        Ok(Apart { segments: [first, second, third] })
    }
}

impl Segment {
    /// Takes out what is marked for checkpointing alone.
    pub(super) fn unmark(&mut self) {
        let mark = |step: &Step| matches!(step, Step::Region | Step::RegionEnd | Step::Given(_));
        for begin in &mut self.begins {
            let before = self.steps.iter().take(*begin as usize).filter(|step| mark(step)).count();
            *begin -= before as u32;
        }
        self.steps.retain(|step| !mark(step));
    }

    /// The instructions with storages counted from the segment's first.
    fn relative(&self, loaded: u32) -> Vec<Step> {
        let of = |storage: u32| if storage < loaded { storage } else { storage - self.first + loaded };
        let step = |step: &Step| match *step {
            Step::Dropped(storage) => Step::Dropped(of(storage)),
            Step::Kept(storage) => Step::Kept(of(storage)),
            Step::Given(storage) => Step::Given(of(storage)),
            other => other,
        };
        self.steps.iter().map(step).collect()
    }
}
