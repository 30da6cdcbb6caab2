//! The space that is searched: ways to train, each with every step that makes it lighter without changing what is learned.

use std::borrow::Cow;

use plimsoll_scenario::{
    ADAPTERS, ActivationOffloading, Change, LossImpl, Mode, Optimizer, OptimizerImpl, Precision, Quantization, Scenario,
};

use super::cost::{Cost, Kind};

/// What is trained, and in which digits: what a recipe may give up of the result. In their order, the least first.
#[derive(Clone, Debug)]
pub struct Way {
    /// `QLoRA`; empty for the run as it was asked.
    pub name: Cow<'static, str>,
    /// What it costs.
    pub costs: Vec<Cost>,
    /// The run with it, and with nothing else.
    pub scenario: Scenario,
}

/// A step that costs nothing of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The optimizer's fused kernel.
    FusedOptimizer,
    /// Head and loss in one kernel.
    FusedLoss,
    /// Checkpoints that are not reentrant.
    NotReentrant,
}

/// A point of the space within a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Whether layers are recomputed.
    pub checkpointing: bool,
    /// Into how many parts the micro-batch falls.
    pub parts: u64,
    /// Which of [`STEPS`] are taken, a bit each.
    pub steps: u8,
}

/// Every step, in the order they are taken.
pub const STEPS: [Step; 3] = [Step::FusedOptimizer, Step::FusedLoss, Step::NotReentrant];

/// The first of them.
pub const FUSED_OPTIMIZER: u8 = 1;

/// All of them.
pub const EVERY_STEP: u8 = (1 << STEPS.len()) - 1;

impl Step {
    fn change(self) -> Change {
        match self {
            Self::FusedOptimizer => Change::Implementation(OptimizerImpl::Fused),
            Self::FusedLoss => Change::Loss(LossImpl::FusedLinear),
            Self::NotReentrant => Change::NotReentrant,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::FusedOptimizer => "fused optimizer",
            Self::FusedLoss => "fused loss",
            Self::NotReentrant => "use_reentrant=False",
        }
    }

    fn cost(self) -> Cost {
        match self {
            Self::FusedOptimizer => Cost::new(
                Kind::Software,
                "the optimizer's fused kernel: the same update without whole-model temporaries",
            ),
            Self::FusedLoss => Cost::new(
                Kind::Software,
                "Liger's kernels, which need Triton: the same loss, logits are never kept, and norms and gated activations keep less",
            ),
            Self::NotReentrant => Cost::new(
                Kind::Software,
                "use_reentrant=False: the same numbers, and what is recomputed goes as soon as it was used",
            ),
        }
    }
}

impl Point {
    /// The run as the way has it.
    pub const START: Self = Self { checkpointing: false, parts: 1, steps: 0 };

    /// Whether it gives up nothing that the other does not, and they differ.
    pub const fn spares(self, other: Self) -> bool {
        (!self.checkpointing || other.checkpointing) && self.parts <= other.parts && self.steps & !other.steps == 0
    }

    /// Whether, in a way that gives up less of the result, it makes the other needless: it recomputes no more, and its
    /// micro-batch is at least half as large. Steps cost nothing beside what is learned.
    pub const fn serves_for(self, other: Self) -> bool {
        (!self.checkpointing || other.checkpointing) && self.parts <= 2 * other.parts
    }

    /// How much it costs beside the others of a way: recomputing a third of the compute is worth more than halving the
    /// micro-batch twice, a package less than either.
    pub const fn weight(self) -> u64 {
        let checkpointing = if self.checkpointing { 33 } else { 0 };
        checkpointing + 8 * self.parts.ilog2() as u64 + 2 * self.steps.count_ones() as u64
    }
}

impl Way {
    /// Whether it trains whatever the other does: adapters do not stand for all weights.
    pub fn trains_as_much(&self, other: &Self) -> bool {
        let adapters = |way: &Self| way.scenario.training.lora.is_some();
        !adapters(self) || adapters(other)
    }

    /// The scenario at a point; `None` where the model does not take a step of it, or takes it already.
    pub fn at(&self, point: Point) -> Option<Scenario> {
        let mut scenario = self.scenario.clone();
        let mut apply = |change: Change| {
            let next = change.apply(&scenario).ok().filter(|next| *next != scenario)?;
            scenario = next;
            Some(())
        };
        for (bit, step) in STEPS.iter().enumerate() {
            if point.steps & (1 << bit) != 0 {
                apply(step.change())?;
            }
        }
        if point.checkpointing {
            apply(Change::Recompute)?;
        }
        if point.parts > 1 {
            apply(Change::Parts(point.parts))?;
        }
        Some(scenario)
    }

    /// The steps that it can take, as bits.
    pub fn steps(&self) -> u8 {
        let taken = |bit: &usize| self.at(Point { steps: 1 << *bit, ..Point::START }).is_some();
        (0..STEPS.len()).filter(taken).fold(0, |bits, bit| bits | 1 << bit)
    }

    /// Whether its layers can be recomputed, and are not yet.
    pub fn checkpoints(&self) -> bool {
        self.at(Point { checkpointing: true, ..Point::START }).is_some()
    }

    /// In short.
    pub fn name(&self, point: Point, scenario: &Scenario) -> String {
        let mut parts: Vec<String> = [&*self.name].into_iter().filter(|n| !n.is_empty()).map(str::to_owned).collect();
        let steps = STEPS.iter().enumerate().filter(|(bit, _)| point.steps & (1 << bit) != 0);
        parts.extend(steps.map(|(_, step)| step.name().to_owned()));
        if point.checkpointing {
            parts.push("checkpointing".to_owned());
        }
        if point.parts > 1 {
            let input = &scenario.input;
            parts.push(match scenario.training.mode {
                Mode::Train => format!("batch {} x {} accumulated", input.batch, scenario.training.accumulation),
                Mode::Inference => format!("batch {}", input.batch),
            });
        }
        parts.join(", ")
    }

    /// What a point of it costs, what is learned last.
    pub fn costs(&self, point: Point, scenario: &Scenario) -> Vec<Cost> {
        let steps = STEPS.iter().enumerate().filter(|(bit, _)| point.steps & (1 << bit) != 0);
        let mut costs: Vec<Cost> = steps.map(|(_, step)| step.cost()).collect();
        if point.parts > 1 {
            let words = match scenario.training.mode {
                Mode::Train => format!(
                    "{} micro-batches for each one before: the same effective batch, smaller kernels",
                    point.parts
                ),
                Mode::Inference => format!("the batch in {} parts, one after the other", point.parts),
            };
            costs.push(Cost::new(Kind::Compute, words));
        }
        if point.checkpointing {
            let words = "every layer runs forward once more in backward: about a third more compute";
            costs.push(Cost::new(Kind::Compute, words));
        }
        costs.extend(self.costs.iter().cloned());
        costs.sort_by_key(|cost| cost.kind);
        costs
    }
}

/// Into how many parts a micro-batch falls evenly, one first: the effective batch stays.
pub fn parts(scenario: &Scenario) -> Vec<u64> {
    let batch = scenario.input.batch;
    let small = (1..).take_while(|n: &u64| n.saturating_mul(*n) <= batch).filter(|n| batch.is_multiple_of(*n));
    let mut all: Vec<u64> = small.flat_map(|n| [n, batch / n]).collect();
    all.sort_unstable();
    all.dedup();
    // What cannot stand beside accumulation would give way to it.
    let in_backward = scenario.training.optimizer_in_backward;
    let stays = |next: &Scenario| next.training.optimizer_in_backward == in_backward;
    all.retain(|n| *n == 1 || Change::Parts(*n).apply(scenario).is_ok_and(|next| stays(&next)));
    all
}

/// The ways a scenario can go, the one as it is first.
pub fn ways(scenario: &Scenario) -> Vec<Way> {
    let mut ways = vec![Way { name: Cow::Borrowed(""), costs: Vec::new(), scenario: scenario.clone() }];
    for (name, changes, costs) in candidates(scenario) {
        let changed = changes.iter().try_fold(scenario.clone(), |here, change| change.apply(&here));
        let Ok(mut next) = changed else { continue };
        // Whether layers are recomputed is a point's matter: `Change::Qlora` turns it on as peft's preparation does.
        if let Ok(kept) = Change::Checkpointing(scenario.training.checkpointing).apply(&next) {
            next = kept;
        }
        if ways.iter().all(|way| way.scenario != next) {
            ways.push(Way { name: Cow::Borrowed(name), costs, scenario: next });
        }
    }
    ways
}

/// The same ways with what layers keep in the machine's memory: it is looked at where nothing else fits, for it goes over PCIe.
pub fn offloaded(ways: &[Way]) -> Vec<Way> {
    let away = |way: &Way| {
        let means = [
            (
                ActivationOffloading::CheckpointInputs,
                "offloaded checkpoints",
                "each layer's input waits in the machine's memory: over PCIe and back, and every layer runs forward once more",
            ),
            (
                ActivationOffloading::SaveOnCpu,
                "save_on_cpu",
                "what backward needs waits in the machine's memory: over PCIe and back",
            ),
        ];
        let (scenario, name, words) = means.into_iter().find_map(|(how, name, words)| {
            let next = Change::Offloading(how).apply(&way.scenario).ok()?;
            (next.training.activation_offloading == how && next != way.scenario).then_some((next, name, words))
        })?;
        let name = [&*way.name, name].into_iter().filter(|n| !n.is_empty()).collect::<Vec<&str>>().join(", ");
        let costs = way.costs.iter().cloned().chain([Cost::new(Kind::Traffic, words)]).collect();
        Some(Way { name: Cow::Owned(name), costs, scenario })
    };
    ways.iter().filter_map(away).collect()
}

type Candidate = (&'static str, Vec<Change>, Vec<Cost>);

fn candidates(scenario: &Scenario) -> Vec<Candidate> {
    match scenario.training.mode {
        Mode::Train if scenario.training.lora.is_some() => adapted(scenario, &[]),
        Mode::Train => full(scenario),
        Mode::Inference => generated(scenario),
    }
}

fn full(scenario: &Scenario) -> Vec<Candidate> {
    let training = &scenario.training;
    let eight = || {
        let words = "bitsandbytes' AdamW: the moments in one byte each; training hardly changes";
        (Change::Optimizer(Optimizer::AdamW8bit), Cost::new(Kind::Numerics, words))
    };
    let autocast = || {
        let words = "matrix products in bfloat16, weights stay in float32; the usual choice";
        (Change::Precision(Precision::Bf16Amp), Cost::new(Kind::Numerics, words))
    };
    let bf16 = || {
        let words = "weights, gradients and states in bfloat16: small updates are rounded away";
        (Change::Precision(Precision::Bf16), Cost::new(Kind::Numerics, words))
    };
    let factored = || {
        let words = "Adafactor instead of Adam: second moments by rows and columns only; give it its own learning rate";
        (Change::Optimizer(Optimizer::Adafactor), Cost::new(Kind::Quality, words))
    };
    let moments =
        matches!(training.optimizer, Optimizer::Adam | Optimizer::AdamW | Optimizer::NAdam | Optimizer::Adamax);
    let single = training.precision == Precision::Fp32;
    // Gradients in float16 are refused by GradScaler, so float16 has no such way.
    let halves = matches!(training.precision, Precision::Fp32 | Precision::Bf16Amp);
    let mut all = Vec::new();
    let mut add = |name, steps| all.push(candidate(name, steps));
    if single {
        add("bf16 autocast", vec![autocast()]);
    }
    if moments {
        add("8-bit AdamW", vec![eight()]);
        if single {
            add("bf16 autocast, 8-bit AdamW", vec![autocast(), eight()]);
        }
    }
    if halves {
        add("pure bf16", vec![bf16()]);
    }
    if halves && moments {
        add("pure bf16, 8-bit AdamW", vec![bf16(), eight()]);
    }
    if moments {
        let change = if halves { vec![bf16(), factored()] } else { vec![factored()] };
        add(if halves { "pure bf16, Adafactor" } else { "Adafactor" }, change);
    }
    let words = "small adapters are trained, the model stays frozen: enough for most fine-tunes, not for pretraining";
    all.extend(adapted(scenario, &[(Change::Adapters(ADAPTERS), Cost::new(Kind::Quality, words))]));
    // Behind the adapters, which do not stand for it: whoever would train every weight still can.
    if moments {
        let words = "each parameter is stepped as soon as its gradient is there: gradients are not clipped, nothing is accumulated";
        let early = || (Change::InBackward, Cost::new(Kind::Quality, words));
        all.push(candidate("8-bit AdamW in backward", vec![eight(), early()]));
        if halves {
            all.push(candidate("pure bf16, 8-bit AdamW in backward", vec![bf16(), eight(), early()]));
            all.push(candidate("pure bf16, Adafactor in backward", vec![bf16(), factored(), early()]));
        }
    }
    all
}

fn candidate(name: &'static str, steps: Vec<(Change, Cost)>) -> Candidate {
    let (changes, costs) = steps.into_iter().unzip();
    (name, changes, costs)
}

/// Adapters on ever lighter bases. Where they are new, `first` brings them.
fn adapted(scenario: &Scenario, first: &[(Change, Cost)]) -> Vec<Candidate> {
    let with = |steps: Vec<(Change, Option<Cost>)>| {
        let before = first.iter().cloned().map(|(change, cost)| (change, Some(cost)));
        let (changes, costs): (Vec<Change>, Vec<Option<Cost>>) = before.chain(steps).unzip();
        (changes, costs.into_iter().flatten().collect::<Vec<Cost>>())
    };
    let base = (
        Change::Precision(scenario.training.precision.half()),
        Some(Cost::new(Kind::Numerics, "the frozen base in 16 bits, as it is published; adapters stay in float32")),
    );
    let eight = (
        Change::Quantized(Quantization::Int8),
        Some(Cost::new(Kind::Numerics, "the frozen base in 8 bits (LLM.int8): each product takes longer")),
    );
    let four = (
        Change::Qlora,
        Some(Cost::new(Kind::Numerics, "the frozen base in 4 bits (NF4): each product unpacks its weight first")),
    );
    let loaded = (
        Change::Unprepared,
        Some(Cost::new(
            Kind::Numerics,
            "without prepare_model_for_kbit_training: norms, embeddings and logits compute in the loaded 16 bits",
        )),
    );
    let mut all = Vec::new();
    let mut add = |name, steps| {
        let (changes, costs) = with(steps);
        all.push((name, changes, costs));
    };
    let quantized = scenario.training.quantization;
    if quantized == Quantization::None {
        add(if first.is_empty() { "16-bit base" } else { "LoRA on a 16-bit base" }, vec![base]);
        add(if first.is_empty() { "8-bit base" } else { "LoRA on an 8-bit base" }, vec![eight]);
    }
    if matches!(quantized, Quantization::None | Quantization::Int8) {
        add("QLoRA", vec![four.clone()]);
        add("QLoRA as loaded", vec![four, loaded]);
    } else {
        let double = (
            Change::Quantized(Quantization::Nf4Double),
            Some(Cost::new(Kind::Numerics, "the scales of the 4-bit base quantized once more")),
        );
        add("double quantization", vec![double.clone()]);
        add("base as loaded", vec![loaded.clone()]);
        add("double quantization, base as loaded", vec![double, loaded]);
    }
    all
}

fn generated(scenario: &Scenario) -> Vec<Candidate> {
    let training = &scenario.training;
    let bits = |quantization, words: &str| (Change::Quantized(quantization), Cost::new(Kind::Numerics, words));
    let base = training.precision.half();
    let half = (Change::Precision(base), Cost::new(Kind::Numerics, "weights in 16 bits, as they are published"));
    let eight = bits(Quantization::Int8, "weights in 8 bits (LLM.int8): each product takes longer");
    let four = bits(Quantization::Nf4Double, "weights in 4 bits (NF4): each product unpacks its weight first");
    let one = |name, (change, cost): (Change, Cost)| (name, vec![change], vec![cost]);
    let two = |name, (change, cost): (Change, Cost)| (name, vec![half.0.clone(), change], vec![half.1.clone(), cost]);
    match training.quantization {
        Quantization::None => {
            vec![one("16-bit weights", half.clone()), two("8-bit weights", eight), two("4-bit weights", four)]
        }
        Quantization::Int8 => vec![one("4-bit weights", four)],
        Quantization::Nf4 => vec![one("double quantization", four)],
        Quantization::Nf4Double => Vec::new(),
    }
}
