//! In which order a base that bitsandbytes quantizes comes to the card, and what passes on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ledger::{Event, Kind, Ledger, ModuleId, Stream, What};

use super::FourBit;
use crate::Op;
use crate::tensor::{Context, DType};

/// What is said of a base that was quantized while it was built.
#[derive(Debug)]
pub struct QuantizedBase {
    /// The dtype it is loaded in.
    pub loaded: DType,
    /// What four-bit weights are packed in.
    pub storage: DType,
    /// Whether `prepare_model_for_kbit_training` makes float32 of what is not quantized.
    pub prepared: bool,
    /// The storages of what is trained.
    pub trained: BTreeSet<u32>,
    /// The storages of what `model.parameters()` lists.
    pub parameters: BTreeSet<u32>,
}

/// What one linear holds on the card once it is quantized, in the order it was built in.
#[derive(Debug)]
pub(super) struct Quantized {
    module: ModuleId,
    pub is_four_bit: bool,
    held: Vec<u32>,
    /// Bytes of each of them.
    pub bytes: Vec<u64>,
    /// Bytes of its bias, where it has one.
    pub bias: Option<u64>,
}

impl Quantized {
    /// The numbers of its weight: two a byte, or one.
    pub fn numbers(&self) -> u64 {
        let bytes = |at: usize| self.bytes.get(at).copied().unwrap_or(0);
        if self.is_four_bit { bytes(0).saturating_mul(2) } else { bytes(1) }
    }
}

/// What is not quantized.
#[derive(Clone, Copy, Debug)]
struct Whole {
    id: u32,
    /// Its numbers, where it is in float32 in the end.
    floats: Option<u64>,
}

/// Something that is trained, which an adapter is of.
#[derive(Clone, Copy, Debug)]
struct Trained {
    whole: Whole,
    numbers: u64,
    /// The quantized linear that it stands beside, by its place among them.
    beside: Option<usize>,
    /// Whether it is of an adapter's, and not of a module that is trained whole.
    is_adapter: bool,
    /// Whether it is what DoRA learns of each row's length.
    is_magnitude: bool,
}

/// A load as it was built.
#[derive(Debug, Default)]
struct AsBuilt {
    linears: Vec<Quantized>,
    rest: Vec<Whole>,
    /// cuBLAS' workspace, where adapters are multiplied while they are made.
    workspace: Option<u32>,
    adapters: Vec<Trained>,
}

impl AsBuilt {
    /// `None` where something went again, which a base that was quantized does not have.
    fn of(ledger: &Ledger, trained: &BTreeSet<u32>) -> Option<Self> {
        let is = |op: &str, ops: &[Op]| ops.iter().any(|known| known.name() == op);
        let mut found = Self::default();
        let mut adapted = BTreeMap::new();
        for event in &ledger.events {
            if event.is_free() {
                return None;
            }
            let (id, storage) = (event.id(), &ledger.storages[event.id() as usize]);
            let op = ledger.op(storage);
            let floats = (storage.dtype == DType::Float32).then(|| storage.bytes / DType::Float32.size());
            let whole = Whole { id, floats };
            match found.linears.last_mut() {
                Some(linear) if linear.module == storage.module && is(op, &QUANTIZES) => {
                    linear.held.push(id);
                    linear.bytes.push(storage.bytes);
                }
                _ if is(op, &[Op::Quantize4bit, Op::Int8VectorwiseQuant]) => {
                    let is_four_bit = op == Op::Quantize4bit.name();
                    // peft puts it beside its adapters, in a module of its own.
                    let around = ledger.modules.get(storage.module).filter(|module| module.name == "base_layer");
                    adapted.extend(around.map(|module| (module.parent, found.linears.len())));
                    let (held, bytes) = (vec![id], vec![storage.bytes]);
                    found.linears.push(Quantized { module: storage.module, is_four_bit, held, bytes, bias: None });
                }
                _ if trained.contains(&id) => {
                    let mut above = ledger.modules.ancestors(storage.module);
                    let beside = above.find_map(|module| adapted.get(&module).copied());
                    let is_in = |names: &[&str]| {
                        let named =
                            |at| ledger.modules.get(at).is_some_and(|module| names.iter().any(|n| module.name == *n));
                        ledger.modules.ancestors(storage.module).any(named)
                    };
                    let (is_adapter, is_magnitude) = (is_in(&ADAPTER), is_in(&[MAGNITUDE]));
                    let numbers = storage.bytes / storage.dtype.size();
                    found.adapters.push(Trained { whole, numbers, beside, is_adapter, is_magnitude });
                }
                _ if op == Op::CublasWorkspace.name() && found.workspace.is_none() => found.workspace = Some(id),
                of_linear => {
                    if let Some(linear) = of_linear.filter(|linear| linear.module == storage.module) {
                        linear.bias = Some(storage.bytes);
                    }
                    found.rest.push(whole);
                }
            }
        }
        Some(found)
    }
}

/// What makes the storages of a quantized weight.
const QUANTIZES: [Op; 5] = [Op::Quantize4bit, Op::QuantizeBlockwise, Op::Mean, Op::ToCopy, Op::Int8VectorwiseQuant];

/// Where DoRA keeps what it learns, and where an adapter of a linear has what it has.
const MAGNITUDE: &str = "lora_magnitude_vector";
const ADAPTER: [&str; 3] = ["lora_A", "lora_B", MAGNITUDE];

/// A load that is being written anew.
#[derive(Debug)]
pub(super) struct Load<'c> {
    cx: &'c Rc<Context>,
    events: Vec<Event>,
}

impl Load<'_> {
    pub fn comes(&mut self, ids: impl IntoIterator<Item = u32>) {
        self.events.extend(ids.into_iter().map(Event::alloc));
    }

    pub fn goes(&mut self, id: u32) {
        self.events.push(Event::new(What::Free, id, Stream::DEFAULT));
    }

    /// Something that will go.
    pub fn passes(&mut self, op: Op, numbers: u64, dtype: DType) -> u32 {
        let made = self.cx.counting_as(Kind::Forward, || self.cx.empty_sizes(op, &[numbers], dtype));
        let id = made.storage_id();
        self.events.push(Event::alloc(id));
        id
    }

    /// `Params4bit._quantize`: scales in float32, the packed numbers, the sixteen values, which are divided by the largest of them;
    /// with double quantization the scales without their mean are quantized once more.
    fn four_bit(&mut self, Quantized { held, bytes, .. }: &Quantized) {
        let values = |load: &mut Self, code: u32| {
            load.comes([code]);
            let passing = [load.passes(Op::Abs, 16, DType::Float32), load.passes(Op::Max, 1, DType::Float32)];
            passing.into_iter().for_each(|id| load.goes(id));
        };
        match held[..] {
            [data, absmax, code] => {
                self.comes([absmax, data]);
                values(self, code);
            }
            [data, code, offset, absmax, ref maps @ ..] => {
                let blocks = bytes.get(3).copied().unwrap_or(0);
                let scales = self.passes(Op::Quantize4bit, blocks, DType::Float32);
                self.comes([data]);
                values(self, code);
                self.comes([offset]);
                let centred = self.passes(Op::SubTensor, blocks, DType::Float32);
                // The library's own map, where this is the first to ask for it, is there before what is made with it.
                let [second, maps @ ..] = maps else { return };
                let (own, copy) = maps.split_at(maps.len().saturating_sub(1));
                self.comes(own.iter().copied());
                self.comes([*second, absmax]);
                self.comes(copy.iter().copied());
                self.goes(centred);
                self.goes(scales);
            }
            _ => self.comes(held.iter().copied()),
        }
    }

    /// All of these come: those that are said to, as what they are loaded in; then each of these is there in float32 before it goes as it
    /// was.
    fn widened(&mut self, loaded: DType, wholes: impl Iterator<Item = (Whole, bool)>) {
        let mut casts = Vec::new();
        for (Whole { id, floats }, widens) in wholes {
            match floats.filter(|_| widens && loaded != DType::Float32) {
                Some(floats) => casts.push((self.passes(Op::ToCopy, floats, loaded), id)),
                None => self.comes([id]),
            }
        }
        for (before, after) in casts {
            self.comes([after]);
            self.goes(before);
        }
    }

    /// Adapters come one linear after the other, those of layers in `four_bit` in that dtype, those of linears left `whole` in
    /// that of their weights; what DoRA learns is measured as soon as a linear has both of its matrices. Then peft makes all of them float32.
    fn adapters(&mut self, four_bit: DType, whole: DType, built: &AsBuilt) {
        let (mut casts, mut workspace) = (Vec::new(), built.workspace);
        let mut matrices = [0; 2];
        for Trained { whole: Whole { id, floats }, numbers, beside, is_adapter, is_magnitude } in &built.adapters {
            let linear = beside.and_then(|at| built.linears.get(at));
            let dtype = match linear {
                Some(linear) if linear.is_four_bit => four_bit,
                None if *is_adapter => whole,
                _ => DType::Float32,
            };
            let left = is_magnitude
                .then(|| self.measure(linear, [matrices[0], matrices[1], *numbers], dtype, workspace.take()));
            match floats.filter(|_| dtype != DType::Float32) {
                Some(floats) => {
                    let op = if *is_magnitude { Op::LinalgVectorNorm } else { Op::ToCopy };
                    casts.push((self.passes(op, floats, dtype), *id));
                }
                None => self.comes([*id]),
            }
            left.into_iter().flatten().for_each(|id| self.goes(id));
            matrices = [matrices[1], *numbers];
        }
        self.comes(workspace);
        for (before, after) in casts {
            self.comes([after]);
            self.goes(before);
        }
    }

    /// `int8_vectorwise_quant` of the weight in float16.
    fn eight_bit(&mut self, linear: &Quantized, loaded: DType) {
        let half = (loaded != DType::Float16).then(|| self.passes(Op::ToCopy, linear.numbers(), DType::Float16));
        self.comes(linear.held.iter().copied());
        if let Some(half) = half {
            self.goes(half);
        }
    }
}

/// Has a base that was quantized come as the probe's worker, and in essence `from_pretrained`, brings it: each linear's weight is sent
/// and quantized, and goes when the next one is there; then whatever is left, in the dtype it is loaded in.
/// `prepare_model_for_kbit_training` makes that float32, a parameter after the other, and by now empties the cache. Adapters come last,
/// one linear's after the other's (`Load::adapters`). Seen event by event with PyTorch 2.11 and bitsandbytes 0.50 on simulated cards. Nothing else of a load is in another order than it was built in.
pub fn load_quantized(cx: &Rc<Context>, base: &QuantizedBase) {
    let QuantizedBase { loaded, storage, prepared, trained, parameters } = base;
    let (loaded, prepared) = (*loaded, *prepared);
    let Some(built) = cx.so_far(|ledger| AsBuilt::of(ledger, trained)) else { return };
    let mut load = Load { cx, events: Vec::new() };
    let mut last = None;
    for linear in &built.linears {
        let mut weight = load.passes(Op::ToCopy, linear.numbers(), loaded);
        if let Some(gone) = last.take() {
            load.goes(gone);
        }
        // That of transformers' Conv1D is turned round on the card: `weight.t().contiguous()`.
        if cx.so_far(|ledger| ledger.modules.ancestors(linear.module).any(|module| cx.is_turned(module))) {
            let turned = load.passes(Op::Clone, linear.numbers(), loaded);
            load.goes(weight);
            weight = turned;
        }
        last = Some(weight);
        if linear.is_four_bit { load.four_bit(linear) } else { load.eight_bit(linear, loaded) }
    }
    load.widened(loaded, built.rest.iter().map(|w| (*w, prepared && parameters.contains(&w.id))));
    let empties = prepared && cx.machine().rules.has(&rules::PREPARING_EMPTIES_CACHE);
    let emptied = empties.then_some(load.events.len());
    if let Some(gone) = last {
        load.goes(gone);
    }
    let four_bit = FourBit::adapted_in(cx, loaded, *storage);
    load.adapters(four_bit, if prepared { DType::Float32 } else { loaded }, &built);
    cx.reload(load.events, emptied);
}
