//! Executing a scenario: from the question to the ledger of two optimizer steps.

use std::rc::Rc;

use plimsoll_catalog::device;
use plimsoll_catalog::families::Once;
use plimsoll_catalog::software::{Rules, rules};
use plimsoll_catalog::{Gpu, Vendor};
use plimsoll_families::{loaded_dtype, packed_dtype};
use plimsoll_ground::{Bytes, Error, Result};
use plimsoll_ledger::{Ledger, Parameters, PhaseName, Recorder};
use plimsoll_parallel::Replica;
use plimsoll_scenario::{
    ActivationOffloading, Mode, ModelSource, Parallel, ParallelStrategy, Quantization, Scenario, no_such_gpu,
};
use plimsoll_torch::nn::ShardPlan;
use plimsoll_torch::ops::{self, Answers, QuantizedBase, SdpaRules};
use plimsoll_torch::tensor::{Context, Kernels, Machine, Tensor};

use crate::hull::Player;
use crate::infer::infer;
use crate::train::{Repeats, play, train};

/// The most a single storage may take (1 PiB): anything larger is a typing error.
const LARGEST_STORAGE: u64 = 1 << 50;

/// The most all storages of a run may take together (4 EiB): sums of them, whatever their order, stay below 2^64.
pub const LARGEST_SUM: u64 = 1 << 62;

/// The card a scenario names.
///
/// # Errors
/// An id that is not in the catalog.
pub fn card(scenario: &Scenario) -> Result<&'static Gpu> {
    let id = &scenario.device.gpu;
    plimsoll_catalog::gpu(id).ok_or_else(|| no_such_gpu(id))
}

/// Loads the model and runs two optimizer steps.
///
/// # Errors
/// A scenario of a model that no architecture builds, a card that is not in the catalog, or more than a run may write.
pub fn execute(scenario: &Scenario) -> Result<Ledger> {
    execute_by(scenario, &Libraries::Vendors)
}

/// As [`execute`], by whose libraries.
///
/// # Errors
/// As [`execute`].
pub fn execute_by(scenario: &Scenario, libraries: &Libraries) -> Result<Ledger> {
    copied_or_executed(|repeats| execute_on(&libraries.context(), scenario, repeats, Card::First))
}

/// Whose libraries PyTorch calls.
#[derive(Clone, Debug)]
pub enum Libraries {
    /// The card's vendor's.
    Vendors,
    /// The same, and its cuDNN is asked what it takes for each convolution.
    Asked(Rc<Answers>),
    /// A hollow card's: its cuDNN takes nothing for a convolution.
    Hollow,
}

impl Libraries {
    /// What cuDNN answered, where it is asked.
    pub fn answers(&self) -> Option<&Answers> {
        match self {
            Self::Asked(answers) => Some(answers),
            Self::Vendors | Self::Hollow => None,
        }
    }

    fn context(&self) -> Rc<Context> {
        let cx = Context::new();
        match self {
            Self::Vendors => {}
            Self::Asked(answers) => cx.ask_cudnn(answers),
            Self::Hollow => cx.leave_out_cudnn(),
        }
        cx
    }
}

/// As [`execute`], for those who ask for memory alone, and of many scenarios: without [`Ledger::launches`], and with fewer of a
/// long generation's tokens executed.
///
/// # Errors
/// As [`execute`].
pub fn execute_for_memory(scenario: &Scenario) -> Result<Ledger> {
    copied_or_executed(|repeats| {
        let cx = Context::new();
        cx.leave_out_launches();
        cx.skip_more_tokens();
        execute_on(&cx, scenario, repeats, Card::First)
    })
}

/// What another card than the first holds under `torch.nn.DataParallel`, where the scenario has others and a loop that all run;
/// [`execute`] says it of the first.
///
/// # Errors
/// As [`execute`].
pub fn execute_replica(scenario: &Scenario, libraries: &Libraries) -> Result<Option<Ledger>> {
    let recorded = matches!(scenario.model.source, ModelSource::Hull(_));
    if scenario.parallel.strategy != ParallelStrategy::DataParallel || scenario.parallel.gpus < 2 || recorded {
        return Ok(None);
    }
    execute_on(&libraries.context(), scenario, Repeats::Executed, Card::Replica)
}

/// Whose memory is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Card {
    /// The first rank's.
    First,
    /// That of a card which the first sends a copy of the model to.
    Replica,
}

fn copied_or_executed(run: impl Fn(Repeats) -> Result<Option<Ledger>>) -> Result<Ledger> {
    match run(Repeats::Copied)? {
        Some(ledger) => Ok(ledger),
        None => run(Repeats::Executed)?.ok_or_else(|| {
            Error::new("scenario", "a run that copies nothing says that its copies are wrong", "report it")
        }),
    }
}

/// As [`execute`], with or without copies; `None` where a copy turned out to be none.
///
/// # Errors
/// As [`execute`].
pub fn execute_with(scenario: &Scenario, repeats: Repeats) -> Result<Option<Ledger>> {
    execute_on(&Context::new(), scenario, repeats, Card::First)
}

pub(crate) fn execute_on(
    cx: &Rc<Context>,
    scenario: &Scenario,
    repeats: Repeats,
    card: Card,
) -> Result<Option<Ledger>> {
    let done = execute_within(cx, scenario, repeats, card);
    // However it ended: a run that still held tensors would never be let go of itself.
    cx.end();
    done
}

fn execute_within(cx: &Rc<Context>, scenario: &Scenario, repeats: Repeats, whose: Card) -> Result<Option<Ledger>> {
    let gpu = card(scenario)?;
    let software = Rules::of(&scenario.software);
    let rules = match (gpu.vendor, gpu.compute_capability) {
        (Vendor::Nvidia, Some(cc)) => SdpaRules::cuda(cc, software),
        (Vendor::Amd, _) => SdpaRules::rocm(),
        _ => SdpaRules::math_only(),
    };
    // A copy of what the card does says nothing of the machine's memory.
    let offloads = scenario.training.activation_offloading != ActivationOffloading::None;
    let repeats = if offloads { Repeats::Executed } else { repeats };
    cx.set_repeats(repeats == Repeats::Copied);
    cx.set_machine(Machine {
        rules: software,
        kernels: match (gpu.vendor, gpu.compute_capability) {
            _ if !scenario.device.workspaces => Kernels::Uncounted,
            (Vendor::Nvidia, Some((major, minor))) => Kernels::Cuda(major, minor),
            (Vendor::Amd, _) => Kernels::Rocm,
            _ => Kernels::Uncounted,
        },
        multiprocessors: device::multiprocessors(gpu),
        threads: device::resident_threads(gpu),
        one_expert_at_a_time: gpu.compute_capability.is_some_and(|cc| !multiplies_grouped(cc, software)),
    });
    if scenario.device.workspaces {
        let torch = software.torch();
        let (blas, lt) = (device::cublas_workspace(gpu, torch), device::cublaslt_workspace(gpu, torch));
        // Where the allocator gives none, there is nothing that the environment could size.
        let asked = scenario.allocator.cublas_workspace.bytes().filter(|_| blas.bytes > Bytes::ZERO);
        let blas = device::Workspace { bytes: asked.map_or(blas.bytes, Bytes::new), ..blas };
        cx.set_blas_workspace(blas, lt.beside(blas.bytes));
    }
    let inference = scenario.training.mode == Mode::Inference;
    if inference {
        cx.set_inference();
    }
    cx.begin(PhaseName::Load, None, None);
    if let ModelSource::Hull(model) = &scenario.model.source {
        let plan = cuts(&scenario.parallel).then(|| plimsoll_parallel::plan(&scenario.parallel));
        let player = Player::load(cx, model, scenario, gpu, plan.as_ref())?;
        let (parameters, packed) = (player.parameters.clone(), player.packed);
        play(cx, player, &scenario.training, &scenario.parallel)?;
        let trained = parameters.iter().filter(|p| p.requires_grad());
        return finished(cx, scenario, &parameters, trained, packed);
    }
    let shards = match whose {
        Card::First => shards(scenario, rules.clone())?,
        Card::Replica => Some(Replica::plan()),
    };
    // Of fake tensors, which know no kernels, rows hold what a load leaves alone.
    let whole = shards.is_none();
    let built = plimsoll_families::build(cx, scenario, rules, shards)?;
    let quantized = scenario.training.quantization != Quantization::None;
    if quantized && whole && cx.machine().kernels.is_counted() {
        // Without adapters what could be trained is of the base as well.
        let adapters = built.trained().filter(|_| scenario.training.lora.is_some());
        let base = QuantizedBase {
            loaded: loaded_dtype(&scenario.training),
            storage: packed_dtype(&scenario.training),
            prepared: !inference && scenario.training.prepare_kbit,
            trained: adapters.map(Tensor::storage_id).collect(),
            parameters: built.listed.borrow().iter().map(Tensor::storage_id).collect(),
        };
        ops::load_quantized(cx, &base);
    }
    if inference {
        // Nobody wraps it.
        drop(built.listed.take());
        infer(cx, &built, scenario)?;
    } else {
        train(cx, &built, &scenario.training, &scenario.parallel, repeats)?;
    }
    finished(cx, scenario, &built.parameters, built.trained(), built.packed)
}

/// Whether parameters are cut over the cards, or a model is made where its wrapper then takes it from.
const fn cuts(parallel: &Parallel) -> bool {
    !matches!(parallel.strategy, ParallelStrategy::None | ParallelStrategy::Ddp | ParallelStrategy::DataParallel)
}

/// How parameters are cut, where they are.
fn shards(scenario: &Scenario, rules: SdpaRules) -> Result<Option<ShardPlan>> {
    let parallel = &scenario.parallel;
    if !cuts(parallel) {
        return Ok(None);
    }
    let mut plan = plimsoll_parallel::plan(parallel);
    if parallel.strategy == ParallelStrategy::Fsdp1 && scenario.training.lora.is_some() {
        // Which parameters share a flat one with an adapter is known when all are there.
        let tried = plimsoll_families::build(&Context::new(), scenario, rules, Some(plan.clone()))?;
        plan.flat = plimsoll_parallel::flat(&tried.sharded, parallel);
    }
    Ok(Some(plan))
}

/// The ledger of a run, with what its parameters come to.
fn finished<'a>(
    cx: &Rc<Context>,
    scenario: &Scenario,
    parameters: &[Tensor],
    trained: impl Iterator<Item = &'a Tensor>,
    packed: u64,
) -> Result<Option<Ledger>> {
    let total = parameters.iter().fold(packed, |sum, p| sum.saturating_add(p.numel()));
    let mut ids = Vec::with_capacity(parameters.len());
    let trainable = trained.fold(0u64, |sum, p| {
        ids.push(p.storage_id());
        sum.saturating_add(p.numel())
    });
    let (parameters, trained) = (Parameters { total, trainable }, ids);
    // First of all: a run whose copies are none has given up, which says nothing about the scenario.
    if cx.repeats_failed() {
        return Ok(None);
    }
    if cx.exhausted_by_now() {
        return Err(too_much(cx, scenario));
    }
    if let Some(why) = cx.refusal() {
        return Err(why);
    }
    let ledger = Ledger { parameters, trained, ..cx.take() };
    let (largest, sum) =
        ledger.storages.iter().fold((0, 0u64), |(largest, sum), s| (s.bytes.max(largest), sum.saturating_add(s.bytes)));
    if let Some(storage) = ledger.storages.iter().find(|s| largest > LARGEST_STORAGE && s.bytes > LARGEST_STORAGE) {
        return Err(Error::new(
            "scenario",
            format!(
                "one tensor alone ({} in {}) would take over {}",
                ledger.op(storage),
                ledger.module(storage),
                Bytes::new(LARGEST_STORAGE)
            ),
            "look for a size with too many digits",
        ));
    }
    if sum > LARGEST_SUM {
        return Err(Error::new(
            "scenario",
            format!("all tensors of two steps together would take over {}", Bytes::new(LARGEST_SUM)),
            "look for a size with too many digits",
        ));
    }
    Ok(Some(ledger))
}

/// More than a run may have, and of what.
pub(crate) fn too_much(cx: &Context, scenario: &Scenario) -> Error {
    let modules = cx.modules();
    let (key, what) = match scenario.training.accumulation {
        _ if modules as usize > Recorder::MODULES => ("model", format!("more than {} modules", Recorder::MODULES)),
        _ if cx.weight() > Recorder::BYTES => {
            ("model", format!("more than {} of memory to follow, in {modules} modules", Bytes::new(Recorder::BYTES)))
        }
        0 | 1 => ("model", format!("more than {} allocations and frees in its {modules} modules", Recorder::EVENTS)),
        n => (
            "model",
            format!(
                "more than {} allocations and frees in its {modules} modules and {n} micro-batches",
                Recorder::EVENTS
            ),
        ),
    };
    let hint = "take fewer layers or experts, or a smaller training.accumulation; look for a size with too many digits";
    // Thousands of small modules are one expert's each.
    let listed = scenario.family().experts.is_some_and(|experts| experts.once == Once::Listed);
    let hint = if listed && !Rules::of(&scenario.software).has(&rules::STACKED_EXPERTS) {
        format!("ask for transformers 5.17, where experts are two tensors a layer; or {hint}")
    } else {
        hint.to_owned()
    };
    Error::new(key, format!("two steps of it are {what}, which is as far as a run is followed"), hint)
}

/// `_can_use_grouped_mm` of transformers' `integrations/moe.py`, on an NVIDIA card. AMD's answer as if they were of
/// capability 9 and above.
fn multiplies_grouped(capability: (u8, u8), software: Rules) -> bool {
    if software.has(&rules::GROUPED_MM) {
        capability >= (8, 0) || !software.has(&rules::GROUPED_MM_ASKS_CARD)
    } else {
        software.has(&rules::GROUPED_MM_ON_HOPPER) && capability.0 == 9
    }
}
