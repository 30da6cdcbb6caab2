//! A tape as it is where the model's parameters are views, as `FullyShardedDataParallel` has them: neither autocast nor autograd does
//! with those what it does with leaves.
//!
//! `cached_cast` of `aten/src/ATen/autocast_mode.cpp` keeps the copy of a leaf until the region ends, and casts a view at every use: the
//! copy then goes with the operator that it was made for, unless autograd keeps it. `AccumulateGrad` copies a gradient that it may not
//! keep as it is, for its strides or because somebody else holds it; one of a view goes on as it came.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_ground::{Error, Result};

use super::Hull;
use super::tape::{Born, Segment, Step, Tape};

/// A copy of a parameter in 16 bits.
struct Copied {
    storage: u32,
    /// Where it comes.
    at: usize,
    /// The module that runs.
    module: Option<u32>,
    /// Where it lets go of what it made for itself: its return; where none runs, the last that comes in the forward.
    until: usize,
    /// From where on who still holds it has saved it: of a stretch that is run again, whose autocast is over then, the first that its
    /// backward makes.
    saved: usize,
}

/// What a copy of a parameter is told by.
struct Casts<'a> {
    hull: &'a Hull,
    storages: &'a [Born],
    /// Sizes of the parameters that autocast keeps copies of: those that are trained, in float32.
    sizes: BTreeSet<&'a [u32]>,
}

impl Tape {
    /// The same micro-batches of a model whose parameters are views; `None` where that changes nothing.
    ///
    /// # Errors
    /// A copy that several operators share, or a gradient that others hold.
    pub fn of_views(&self, hull: &Hull) -> Result<Option<Self>> {
        let float = |born: &&Born| hull.dtypes.get(born.dtype as usize).is_some_and(|name| name == "float32");
        let trained = self.parameters.iter().filter(|parameter| parameter.trained);
        let loaded = trained.filter_map(|parameter| self.storages.get(parameter.storage as usize)).filter(float);
        let sizes = loaded.filter_map(|born| hull.shapes.get(born.shape as usize)).map(Vec::as_slice).collect();
        let casts = Casts { hull, storages: &self.storages, sizes };
        let mut segments = self.segments.clone();
        let mut changed = false;
        for segment in &mut segments {
            changed |= casts.anew(segment)?;
            changed |= self.as_they_came(hull, segment)?;
        }
        Ok(changed.then(|| Self { segments, ..self.clone() }))
    }

    /// Gradients that are copied for their strides take the place of what they are copies of. Whether there was one.
    fn as_they_came(&self, hull: &Hull, segment: &mut Segment) -> Result<bool> {
        let born = segment.steps.iter().enumerate().filter(|(_, step)| **step == Step::Born);
        let storages = self.storages.iter().skip(segment.first as usize);
        let accumulates = |born: &Born| hull.nodes.get(born.node as usize).is_some_and(|node| node == "AccumulateGrad");
        let places = born.zip(storages).filter(|(_, born)| accumulates(born)).map(|((at, _), born)| (at, *born));
        let copies: Vec<(usize, Born)> = places.collect();
        for (at, copy) in &copies {
            let alike = |storage: u32| {
                let of = self.storages.get(storage as usize).filter(|_| storage >= segment.first);
                of.is_some_and(|of| (of.bytes, of.dtype) == (copy.bytes, copy.dtype))
            };
            let gone = segment.steps.iter().skip(at + 1).take_while(|step| matches!(step, Step::Dropped(_)));
            let Some(behind) = gone.copied().position(|step| matches!(step, Step::Dropped(of) if alike(of))) else {
                let name = hull.modules.get(copy.module as usize).map_or("", String::as_str);
                return Err(Error::new(
                    "parallel.strategy",
                    format!(
                        "somebody else holds a gradient of {}: PyTorch copies it here, and under FullyShardedDataParallel holds on to it, \
                         but whose it is is not recorded",
                        if name.is_empty() { "the model" } else { name }
                    ),
                    "ask for another batch (of a single sample gradients are not summed up), or use fsdp2",
                ));
            };
            if let Some(stretch) = segment.steps.get_mut(*at..at + behind + 2) {
                stretch.rotate_right(1);
            }
        }
        Ok(!copies.is_empty())
    }
}

impl Casts<'_> {
    fn is_cast(&self, born: &Born) -> bool {
        self.hull.ops.get(born.op as usize).is_some_and(|op| op == "_to_copy")
    }

    fn is_of_backward(&self, born: &Born) -> bool {
        self.hull.nodes.get(born.node as usize).is_some_and(|node| !node.is_empty())
    }

    fn is_copy(&self, born: &Born) -> bool {
        let half =
            self.hull.dtypes.get(born.dtype as usize).is_some_and(|name| name == "bfloat16" || name == "float16");
        let sizes = self.hull.shapes.get(born.shape as usize);
        half && self.is_cast(born) && sizes.is_some_and(|sizes| self.sizes.contains(sizes.as_slice()))
    }

    /// Lets every copy that autocast keeps go behind the operator that it was made for. Whether there was one.
    fn anew(&self, segment: &mut Segment) -> Result<bool> {
        let dropped = |(place, step): (usize, &Step)| match step {
            Step::Dropped(storage) => Some((*storage, place)),
            _ => None,
        };
        let goes: BTreeMap<u32, usize> = segment.steps.iter().enumerate().filter_map(dropped).collect();
        let mut gone: BTreeSet<usize> = BTreeSet::new();
        let mut moved: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for copy in self.copies(segment) {
            let kept = |place: &usize| *place > copy.until && *place < copy.saved;
            let Some(place) = goes.get(&copy.storage).copied().filter(kept) else { continue };
            if is_shared(segment, &copy) {
                return Err(self.cannot(&copy));
            }
            match self.used(segment, &copy) {
                Some(used) => {
                    gone.insert(place);
                    moved.entry(used).or_default().push(copy.storage);
                }
                // A stretch that is run again stops within the operator that saves the last of it: all goes there.
                None if copy.at >= segment.begins[1] as usize => {}
                None => return Err(self.cannot(&copy)),
            }
        }
        let mut steps = Vec::with_capacity(segment.steps.len());
        let mut begins = segment.begins;
        for (place, step) in segment.steps.iter().enumerate() {
            for (new, old) in begins.iter_mut().zip(segment.begins) {
                if old as usize == place {
                    *new = steps.len() as u32;
                }
            }
            if !gone.contains(&place) {
                steps.push(*step);
            }
            steps.extend(moved.remove(&place).unwrap_or_default().into_iter().map(Step::Dropped));
        }
        (segment.steps, segment.begins) = (steps, begins);
        Ok(!gone.is_empty())
    }

    /// What may be copies of parameters that autocast keeps: those that forward makes, or a stretch that is run again.
    fn copies(&self, segment: &Segment) -> Vec<Copied> {
        let forward = segment.begins[1] as usize;
        let last = segment.steps.iter().take(forward).rposition(|step| *step == Step::Born).unwrap_or(forward);
        let mut returns: Vec<Option<usize>> = vec![None; segment.steps.len()];
        let mut calls: Vec<(usize, u32)> = Vec::new();
        let mut copies: Vec<(Copied, Option<usize>)> = Vec::new();
        let mut settled = 0;
        let mut next = segment.first;
        for (at, step) in segment.steps.iter().enumerate() {
            match step {
                Step::Module(module) => calls.push((at, *module)),
                Step::Return => {
                    if let Some((call, _)) = calls.pop()
                        && let Some(place) = returns.get_mut(call)
                    {
                        *place = Some(at);
                    }
                }
                Step::Born => {
                    let storage = next;
                    next += 1;
                    let within = calls.last().copied();
                    let born = self.storages.get(storage as usize);
                    if born.is_some_and(|born| self.is_copy(born)) && (at < forward || within.is_some()) {
                        let module = within.map(|(_, module)| module);
                        let copy = Copied { storage, at, module, until: last, saved: usize::MAX };
                        copies.push((copy, within.map(|(call, _)| call)));
                    } else if at >= forward && born.is_some_and(|born| self.is_of_backward(born)) {
                        copies
                            .iter_mut()
                            .skip(settled)
                            .filter(|(copy, _)| copy.at >= forward)
                            .for_each(|(copy, _)| copy.saved = at);
                        settled = copies.len();
                    }
                }
                _ => {}
            }
        }
        let until = |(copy, call): (Copied, Option<usize>)| {
            let returned = call.and_then(|call| returns.get(call).copied().flatten());
            Copied { until: returned.unwrap_or(copy.until), ..copy }
        };
        copies.into_iter().map(until).collect()
    }

    /// Behind which step the operator is over that a copy was made for: behind what a product makes, or else the first thing that is
    /// no cast.
    fn used(&self, segment: &Segment, copy: &Copied) -> Option<usize> {
        let mut next = copy.storage as usize + 1;
        let (mut product, mut first) = (false, None);
        for (place, step) in segment.steps.iter().enumerate().skip(copy.at + 1) {
            match step {
                Step::Product(_) => product = true,
                Step::Born if product => return Some(place),
                Step::Born => {
                    if !self.storages.get(next).is_some_and(|born| self.is_cast(born)) {
                        first = first.or(Some(place));
                    }
                    next += 1;
                }
                Step::Module(_) | Step::Return | Step::Region | Step::RegionEnd | Step::Dropped(_) => break,
                _ => {}
            }
        }
        first
    }

    fn cannot(&self, copy: &Copied) -> Error {
        let name = copy.module.and_then(|module| self.hull.modules.get(module as usize)).map_or("", String::as_str);
        let who = if name.is_empty() { "the model" } else { name };
        Error::new(
            "parallel.strategy",
            format!(
                "{who} uses a parameter several times: autocast keeps the copy that it made in this recording, and casts what \
                 FullyShardedDataParallel makes a view of another anew at every use, which is not recorded"
            ),
            "use fsdp2, or record it without autocast: plimsoll trace --precision fp32,bf16",
        )
    }
}

/// Whether several operators use a copy: autograd keeps it for each, or the module that made it is called again.
fn is_shared(segment: &Segment, copy: &Copied) -> bool {
    let count = |wanted: Step, most: usize| segment.steps.iter().take(most).filter(|step| **step == wanted).count();
    let forward = segment.begins[1] as usize;
    let again = copy.at < forward && copy.module.is_some_and(|module| count(Step::Module(module), forward) > 1);
    again || count(Step::Kept(copy.storage), segment.steps.len()) > 1
}

#[cfg(test)]
mod tests {
    use super::super::{Asked, Hull, Parameter, Tape, Variant};
    use super::{Born, Segment, Step};

    const OPS: [&str; 4] = ["parameter", "_to_copy", "addmm", "new_empty_strided"];
    const WEIGHT: u32 = 0;
    const CAST: u32 = 1;
    const PRODUCT: u32 = 2;
    const COPY: u32 = 3;

    /// A weight, and micro-batches of these steps, which make these: operator, element type and autograd function.
    fn of(steps: &[Step], made: &[(u32, u32, u32)]) -> (Hull, Tape) {
        let mut hull = Hull::new(Asked::default());
        hull.ops = OPS.map(str::to_owned).to_vec();
        hull.dtypes = ["float32", "bfloat16"].map(str::to_owned).to_vec();
        hull.nodes = ["", "AccumulateGrad", "AddmmBackward0"].map(str::to_owned).to_vec();
        hull.modules = ["", "head"].map(str::to_owned).to_vec();
        hull.shapes = vec![vec![0, 0]];
        let born = |(op, dtype, node)| Born { bytes: 0, shape: 0, dtype, op, module: 1, node, kernel: 0 };
        let weight = Parameter {
            name: "head.weight".to_owned(),
            sizes: vec![4, 4],
            dtype: "float32".to_owned(),
            trained: true,
            storage: 0,
        };
        let forward = steps.iter().position(|step| *step == Step::Reached(0)).unwrap_or(steps.len());
        let segment = Segment {
            first: 1,
            born: made.len() as u32,
            steps: steps.to_vec(),
            begins: [0, forward as u32],
            gradients: vec![None],
            loss: 1,
            root: None,
            leaves: Vec::new(),
        };
        let storages = [(WEIGHT, 0, 0)].into_iter().chain(made.iter().copied()).map(born).collect();
        let tape = Tape {
            precision: "bf16-amp".to_owned(),
            variant: Variant::default(),
            checkpointed: false,
            batch: None,
            cards: Vec::new(),
            parameters: vec![weight],
            loaded: 1,
            storages,
            segments: [segment.clone(), segment.clone(), segment],
            asked: Vec::new(),
            blocks: Vec::new(),
            witnesses: Vec::new(),
        };
        (hull, tape)
    }

    #[test]
    fn a_copy_of_a_view_goes_behind_the_product_it_was_made_for() {
        use Step::{Born, Dropped, Kept, Module, Product, Return};
        let steps = [Module(1), Born, Kept(1), Product(false), Born, Return, Dropped(1), Dropped(2), Step::Reached(0)];
        let (hull, tape) = of(&steps, &[(CAST, 1, 0), (PRODUCT, 1, 0)]);
        let made = tape.of_views(&hull).unwrap().unwrap();
        let wanted = [Module(1), Born, Kept(1), Product(false), Born, Dropped(1), Return, Dropped(2), Step::Reached(0)];
        assert_eq!((made.segments[0].steps.as_slice(), made.segments[0].begins), (wanted.as_slice(), [0, 8]));
        // What no autocast keeps stays as it is.
        let (hull, tape) = of(&wanted, &[(CAST, 1, 0), (PRODUCT, 1, 0)]);
        assert_eq!(tape.of_views(&hull).unwrap(), None);
    }

    #[test]
    fn a_copy_that_is_used_twice_is_refused() {
        use Step::{Born, Dropped, Module, Product, Return};
        let call = [Module(1), Product(false), Born, Return];
        let steps = [&[Module(1), Born, Product(false), Born, Return], call.as_slice(), &[Dropped(1)]].concat();
        let (hull, tape) = of(&steps, &[(CAST, 1, 0), (PRODUCT, 1, 0), (PRODUCT, 1, 0)]);
        let error = tape.of_views(&hull).unwrap_err().to_string();
        assert!(error.contains("head uses a parameter several times"), "{error}");
    }

    #[test]
    fn a_gradient_of_a_view_goes_on_as_it_came() {
        use Step::{Arrived, Born, Dropped, Reached};
        let steps = [Reached(0), Born, Born, Dropped(1), Arrived(0)];
        let (hull, tape) = of(&steps, &[(PRODUCT, 0, 2), (COPY, 0, 1)]);
        let made = tape.of_views(&hull).unwrap().unwrap();
        assert_eq!(made.segments[0].steps, [Reached(0), Born, Dropped(1), Born, Arrived(0)]);
        let (hull, tape) = of(&[Reached(0), Born, Born, Arrived(0), Dropped(1)], &[(PRODUCT, 0, 2), (COPY, 0, 1)]);
        let error = tape.of_views(&hull).unwrap_err().to_string();
        assert!(error.contains("somebody else holds a gradient of head"), "{error}");
    }
}
