//! A tape as its file has it: column by column, and numbers by how far each lies from the one before of its kind, so that what repeats
//! in a model is the same text every time.

use serde::{Deserialize, Serialize};

use super::tape::{Born, Segment, Step, Tape, Way};
use super::{Parameter, Variant, Witness, names};

/// A tape, column by column.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TapeColumns {
    precision: String,
    /// Whether numbers of modules, loaded storages and handles are told by the one before, as in every file since several cards are estimated.
    #[serde(default, skip_serializing_if = "super::is_false")]
    since: bool,
    #[serde(default, skip_serializing_if = "Variant::is_plain")]
    variant: Variant,
    #[serde(default, skip_serializing_if = "super::is_false")]
    checkpointed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch: Option<u64>,
    cards: Vec<(u8, u8)>,
    parameters: Vec<Parameter>,
    loaded: u32,
    bytes: Vec<u32>,
    shape: Vec<u32>,
    dtype: Vec<u32>,
    op: Vec<u32>,
    module: Vec<u32>,
    node: Vec<u32>,
    /// Empty where no kernel is told of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kernel: Vec<u32>,
    segments: [SegmentColumns; 3],
    asked: Vec<(String, String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    blocks: Vec<u32>,
    witnesses: Vec<Witness>,
}

/// A micro-batch: a letter for each instruction, and the numbers of those that have one, counted back from the latest.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SegmentColumns {
    born: u32,
    steps: String,
    numbers: Vec<u32>,
    begins: [u32; 2],
    gradients: Vec<Option<i64>>,
    loss: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root: Option<u32>,
    leaves: Vec<Way>,
}

/// How far a number lies from the one before: twice that where it is smaller, which most are, and one less where it is larger.
fn folded(before: u32, number: u32) -> u32 {
    if number <= before { (before - number).saturating_mul(2) } else { (number - before).saturating_mul(2) - 1 }
}

fn unfolded(before: u32, by: u32) -> Option<u32> {
    if by.is_multiple_of(2) { before.checked_sub(by / 2) } else { before.checked_add(by / 2 + 1) }
}

/// The last number of each kind.
#[derive(Default)]
struct Last {
    dropped: u32,
    kept: u32,
    given: u32,
    module: u32,
    released: u32,
    taken: u32,
    reached: u32,
    arrived: u32,
}

/// How far a number lies from the last of its kind, which it becomes.
fn by(last: &mut u32, number: u32) -> Option<u32> {
    Some(folded(std::mem::replace(last, number), number))
}

impl From<&Segment> for SegmentColumns {
    fn from(segment: &Segment) -> Self {
        let (mut steps, mut numbers) = (String::new(), Vec::new());
        let (mut next, mut taken) = (segment.first, 0u32);
        let mut last = Last::default();
        for step in &segment.steps {
            let (letter, number) = match *step {
                Step::Takes => ('t', None),
                Step::Reached(number) => ('n', by(&mut last.reached, number)),
                Step::Arrived(parameter) => ('i', by(&mut last.arrived, parameter)),
                Step::Born => {
                    next += 1;
                    ('a', None)
                }
                Step::Dropped(storage) if storage < segment.first => ('l', by(&mut last.dropped, storage)),
                Step::Dropped(storage) => ('d', Some(next - storage)),
                Step::Carried(index) => ('o', Some(index)),
                Step::Kept(storage) if storage < segment.first => ('k', by(&mut last.kept, storage)),
                Step::Kept(storage) => ('s', Some(next - storage)),
                Step::LetGo(handle) => ('r', by(&mut last.released, handle)),
                Step::Taken(handle) => {
                    taken += 1;
                    ('u', by(&mut last.taken, handle))
                }
                Step::PutBack(number) => ('x', Some(taken - number)),
                Step::Module(module) => ('m', by(&mut last.module, module)),
                Step::Return => ('e', None),
                Step::Product(false) => ('p', None),
                Step::Product(true) => ('b', None),
                Step::Region => ('c', None),
                Step::RegionEnd => ('f', None),
                Step::Given(storage) if storage < segment.first => ('h', by(&mut last.given, storage)),
                Step::Given(storage) => ('g', Some(next - storage)),
            };
            steps.push(letter);
            numbers.extend(number);
        }
        let mut before = 0;
        let mut since = |g: u32| {
            let place = i64::from(g - segment.first);
            place - std::mem::replace(&mut before, place)
        };
        let gradients = segment.gradients.iter().map(|g| g.map(&mut since)).collect();
        Self {
            born: segment.born,
            steps,
            numbers,
            begins: segment.begins,
            gradients,
            loss: segment.loss - segment.first,
            root: segment.root.map(|root| root - segment.first),
            leaves: segment.leaves.clone(),
        }
    }
}

impl SegmentColumns {
    /// The micro-batch whose first storage has this number; `None` where a number is missing or points nowhere. `since`: some numbers
    /// are told by the one before of their kind.
    fn segment(self, first: u32, since: bool) -> Option<Segment> {
        let mut steps = Vec::with_capacity(self.steps.len());
        let mut numbers = self.numbers.into_iter();
        let (mut next, mut handles, mut taken) = (first, 0u32, 0u32);
        let mut last = Last::default();
        for letter in self.steps.bytes() {
            let loaded = |last: &mut u32, number: u32| {
                *last = if since { unfolded(*last, number)? } else { number };
                Some(*last).filter(|storage| *storage < first)
            };
            let handle = |last: &mut u32, number: u32| {
                *last = if since { unfolded(*last, number)? } else { handles.checked_sub(number)? };
                Some(*last)
            };
            let step = match letter {
                b't' => Step::Takes,
                b'n' => {
                    last.reached = unfolded(last.reached, numbers.next()?)?;
                    Step::Reached(last.reached)
                }
                b'i' => {
                    last.arrived = unfolded(last.arrived, numbers.next()?)?;
                    Step::Arrived(last.arrived)
                }
                b'a' => {
                    next = next.checked_add(1)?;
                    Step::Born
                }
                b'l' => Step::Dropped(loaded(&mut last.dropped, numbers.next()?)?),
                b'd' => Step::Dropped(next.checked_sub(numbers.next()?)?),
                b'o' => Step::Carried(numbers.next()?),
                b'k' => {
                    let storage = loaded(&mut last.kept, numbers.next()?)?;
                    handles += 1;
                    Step::Kept(storage)
                }
                b's' => {
                    handles += 1;
                    Step::Kept(next.checked_sub(numbers.next()?)?)
                }
                b'r' => Step::LetGo(handle(&mut last.released, numbers.next()?)?),
                b'u' => {
                    taken += 1;
                    Step::Taken(handle(&mut last.taken, numbers.next()?)?)
                }
                b'x' => Step::PutBack(taken.checked_sub(numbers.next()?)?),
                b'm' => {
                    let number = numbers.next()?;
                    last.module = if since { unfolded(last.module, number)? } else { number };
                    Step::Module(last.module)
                }
                b'e' => Step::Return,
                b'p' => Step::Product(false),
                b'b' => Step::Product(true),
                b'c' => Step::Region,
                b'f' => Step::RegionEnd,
                b'h' => Step::Given(loaded(&mut last.given, numbers.next()?)?),
                b'g' => Step::Given(next.checked_sub(numbers.next()?)?),
                _ => return None,
            };
            steps.push(step);
        }
        let absolute = |number: u32| number.checked_add(first);
        let mut before = 0i64;
        let mut place = |g: i64| {
            let place = if since { before.checked_add(g)? } else { g };
            before = place;
            absolute(u32::try_from(place).ok()?)
        };
        let gradients =
            self.gradients.into_iter().map(|g| g.map_or(Some(None), |g| place(g).map(Some))).collect::<Option<_>>()?;
        Some(Segment {
            first,
            born: self.born,
            steps,
            begins: self.begins,
            gradients,
            loss: absolute(self.loss)?,
            root: self.root.map_or(Some(None), |root| absolute(root).map(Some))?,
            leaves: self.leaves,
        })
    }
}

impl Serialize for Tape {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let column = |of: fn(&Born) -> u32| self.storages.iter().map(of).collect();
        let [a, b, c] = &self.segments;
        TapeColumns {
            precision: self.precision.clone(),
            variant: self.variant.clone(),
            checkpointed: self.checkpointed,
            batch: self.batch,
            cards: self.cards.clone(),
            parameters: {
                let mut last = 0;
                let short = names::folded(self.parameters.iter().map(|p| p.name.as_str()));
                let told = self.parameters.iter().zip(short).filter_map(|(parameter, name)| {
                    Some(Parameter { name, storage: by(&mut last, parameter.storage)?, ..parameter.clone() })
                });
                told.collect()
            },
            loaded: self.loaded,
            bytes: column(|born| born.bytes),
            shape: column(|born| born.shape),
            dtype: column(|born| born.dtype),
            op: column(|born| born.op),
            since: true,
            module: {
                let mut last = 0;
                self.storages.iter().filter_map(|born| by(&mut last, born.module)).collect()
            },
            node: column(|born| born.node),
            kernel: {
                let kernels = column(|born| born.kernel);
                if kernels.iter().all(|kernel| *kernel == 0) { Vec::new() } else { kernels }
            },
            segments: [a.into(), b.into(), c.into()],
            asked: self.asked.clone(),
            blocks: self.blocks.clone(),
            witnesses: self.witnesses.clone(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Tape {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let columns = TapeColumns::deserialize(deserializer)?;
        let count = columns.bytes.len();
        let others = [&columns.shape, &columns.dtype, &columns.op, &columns.module, &columns.node];
        let kernels = columns.kernel.len();
        if others.iter().any(|column| column.len() != count) || (kernels != 0 && kernels != count) {
            return Err(D::Error::custom("columns of storages are not equally long"));
        }
        let mut parameters = columns.parameters;
        if columns.since {
            let names = names::unfolded(parameters.iter().map(|p| p.name.as_str()));
            let names = names.ok_or_else(|| D::Error::custom("a parameter's name is none"))?;
            let mut last = 0;
            for (parameter, name) in parameters.iter_mut().zip(names) {
                let storage = unfolded(last, parameter.storage);
                last = storage.ok_or_else(|| D::Error::custom("a parameter's storage is none"))?;
                (parameter.name, parameter.storage) = (name, last);
            }
        }
        let mut modules = Vec::with_capacity(count);
        let mut last = 0;
        for number in &columns.module {
            let module = if columns.since { unfolded(last, *number) } else { Some(*number) };
            last = module.ok_or_else(|| D::Error::custom("a storage's module is none"))?;
            modules.push(last);
        }
        let storages = (0..count).map(|at| Born {
            bytes: columns.bytes[at],
            shape: columns.shape[at],
            dtype: columns.dtype[at],
            op: columns.op[at],
            module: modules[at],
            node: columns.node[at],
            kernel: columns.kernel.get(at).copied().unwrap_or(0),
        });
        let storages = storages.collect();
        let mut first = columns.loaded;
        let since = columns.since;
        let mut segment = |columns: SegmentColumns| {
            let born = columns.born;
            let segment = columns.segment(first, since);
            first = first.saturating_add(born);
            segment.ok_or_else(|| D::Error::custom("an instruction points nowhere"))
        };
        let [a, b, c] = columns.segments;
        let segments = [segment(a)?, segment(b)?, segment(c)?];
        Ok(Self {
            precision: columns.precision,
            variant: columns.variant,
            checkpointed: columns.checkpointed,
            batch: columns.batch,
            cards: columns.cards,
            parameters,
            loaded: columns.loaded,
            storages,
            segments,
            asked: columns.asked,
            blocks: columns.blocks,
            witnesses: columns.witnesses,
        })
    }
}
