//! The ways to spread a training over its cards: every strategy that the engine runs, with what each can cut or put elsewhere.

use std::borrow::Cow;

use plimsoll_ground::{Error, Result};
use plimsoll_scenario::{
    Change, Checkpointing, Offload, Parallel, ParallelStrategy, PolicyDtype, Precision, Reshard, Scenario,
    ShardingStrategy,
};

use super::Freedom;
use crate::fit::cost::{Cost, Kind};
use crate::fit::space::Way;

/// A way, or why there is none.
pub struct Spread {
    /// `FSDP2, kept until backward`.
    pub name: String,
    /// It, with the whole of a card's samples as one micro-batch and nothing recomputed; else what stands against it.
    pub way: Result<Way>,
}

/// In which digits a step is computed, whatever a library calls that.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Digits {
    /// float32.
    Single,
    /// 16 bits throughout.
    Pure(Precision),
    /// 16 bits on float32 weights.
    Mixed(Precision),
}

impl Digits {
    fn of(scenario: &Scenario) -> Self {
        let strategy = scenario.parallel.strategy;
        match scenario.training.precision {
            amp @ (Precision::Bf16Amp | Precision::Fp16Amp) => Self::Mixed(amp.half()),
            half @ (Precision::Bf16 | Precision::Fp16) if strategy.is_zero() => Self::Mixed(half),
            half @ (Precision::Bf16 | Precision::Fp16) => Self::Pure(half),
            Precision::Fp32 if cuts(strategy) && scenario.parallel.fsdp.param_dtype == PolicyDtype::Bf16 => {
                Self::Mixed(Precision::Bf16)
            }
            Precision::Fp32 => Self::Single,
        }
    }

    /// What a strategy calls it: the precision, and FSDP's policy.
    fn under(self, strategy: ParallelStrategy) -> (Precision, PolicyDtype, PolicyDtype) {
        let own = |precision| (precision, PolicyDtype::Own, PolicyDtype::Own);
        match self {
            Self::Single => own(Precision::Fp32),
            Self::Mixed(half) | Self::Pure(half) if strategy.is_zero() => own(half),
            Self::Pure(half) => own(half),
            Self::Mixed(Precision::Bf16) if cuts(strategy) => (Precision::Fp32, PolicyDtype::Bf16, PolicyDtype::Fp32),
            Self::Mixed(Precision::Fp16) => own(Precision::Fp16Amp),
            Self::Mixed(_) => own(Precision::Bf16Amp),
        }
    }
}

const fn cuts(strategy: ParallelStrategy) -> bool {
    matches!(strategy, ParallelStrategy::Fsdp1 | ParallelStrategy::Fsdp2)
}

/// One of [`variants`].
struct Variant {
    name: Cow<'static, str>,
    parallel: Parallel,
    costs: Vec<Cost>,
    offloads: bool,
}

/// Every way that may be gone, the one that was asked for among them.
pub fn ways(scenario: &Scenario, freedom: Freedom) -> Result<Vec<Spread>> {
    let whole = whole(scenario, freedom)?;
    let asked = &scenario.parallel;
    let digits = Digits::of(scenario);
    let mut all: Vec<Spread> = Vec::new();
    for variant in variants(scenario) {
        let strategy = variant.parallel.strategy;
        if (!freedom.strategy && strategy != asked.strategy) || (!freedom.offload && variant.offloads) {
            continue;
        }
        let mut parallel = variant.parallel;
        let mut costs = variant.costs;
        // What was said of FSDP's policy stays under both of them.
        let (precision, param, reduce) = if cuts(strategy) && cuts(asked.strategy) && digits != Digits::Single {
            let known = (whole.training.precision, asked.fsdp.param_dtype, asked.fsdp.reduce_dtype);
            if whole.training.precision.is_amp() { digits.under(strategy) } else { known }
        } else {
            digits.under(strategy)
        };
        (parallel.fsdp.param_dtype, parallel.fsdp.reduce_dtype) = (param, reduce);
        costs.extend(digits_cost(&whole, strategy, precision));
        let change = Change::Spread(Box::new(parallel), precision);
        let way = change.apply(&whole).map(|scenario| Way { name: variant.name.clone(), costs, scenario });
        all.push(Spread { name: variant.name.into_owned(), way });
    }
    let known = all.iter().any(|spread| spread.way.as_ref().is_ok_and(|way| way.scenario == whole));
    if !known {
        let name = format!("{} as asked", asked.strategy.in_words().label);
        let way = Way { name: Cow::Owned(name.clone()), costs: Vec::new(), scenario: whole };
        all.insert(0, Spread { name, way: Ok(way) });
    }
    Ok(all)
}

/// The scenario with all samples of a card's step in one micro-batch and nothing recomputed, as far as either may be changed:
/// every plan is a part of it.
fn whole(scenario: &Scenario, freedom: Freedom) -> Result<Scenario> {
    let mut whole = scenario.clone();
    if freedom.recompute
        && let Ok(plain) = Change::Checkpointing(Checkpointing::None).apply(&whole)
    {
        whole = plain;
    }
    if freedom.micro_batch {
        let samples = whole.input.batch.saturating_mul(whole.training.accumulation);
        whole.training.accumulation = 1;
        whole = Change::Sizes { batch: samples, seq: None }.apply(&whole)?;
    }
    Ok(whole)
}

fn digits_cost(asked: &Scenario, strategy: ParallelStrategy, precision: Precision) -> Option<Cost> {
    if !asked.training.precision.is_amp() || precision == asked.training.precision {
        return None;
    }
    let words = if cuts(strategy) {
        "FSDP's MixedPrecisionPolicy instead of autocast: weights are gathered in bfloat16, and every op computes in it"
    } else {
        "DeepSpeed's 16 bits instead of autocast: every op computes in them, on master weights in float32"
    };
    Some(Cost::new(Kind::Numerics, words))
}

const fn traffic(words: &str) -> (Kind, &str) {
    (Kind::Traffic, words)
}

const fn engine(words: &str) -> (Kind, &str) {
    (Kind::Software, words)
}

/// Every strategy that is searched, with what it can be told.
fn variants(scenario: &Scenario) -> Vec<Variant> {
    let mut plain = scenario.parallel.clone();
    plain.replicate = 1;
    plain.ddp.gradient_as_bucket_view = false;
    plain.fsdp.reshard_after_forward = Reshard::Unset;
    plain.fsdp.sync_every_micro_batch = true;
    plain.fsdp.cpu_offload = false;
    plain.fsdp.sharding_strategy = ShardingStrategy::FullShard;
    (plain.zero.offload_optimizer, plain.zero.offload_param) = (Offload::None, Offload::None);
    let mut all: Vec<Variant> = Vec::new();
    let mut add =
        |strategy, name: Cow<'static, str>, (kind, words): (Kind, &str), offloads, tell: &dyn Fn(&mut Parallel)| {
            let mut parallel = Parallel { strategy, ..plain.clone() };
            tell(&mut parallel);
            all.push(Variant { name, parallel, costs: vec![Cost::new(kind, words)], offloads });
        };
    use ParallelStrategy::{Ddp, Fsdp1, Fsdp2, Zero1, Zero2, Zero3};
    add(Ddp, "DDP".into(), traffic("gradients are averaged once a step"), false, &|_| {});
    let views = (Kind::Software, "gradients are views into DDP's buckets, and averaged there once a step");
    add(Ddp, "DDP, bucket views".into(), views, false, &|p| p.ddp.gradient_as_bucket_view = true);
    let gathered =
        traffic("every block is gathered for its forward and again for its backward, its gradients scattered");
    add(Fsdp2, "FSDP2".into(), gathered, false, &|_| {});
    let kept = traffic("every block is gathered once a micro-batch and stays whole until backward has used it");
    add(Fsdp2, "FSDP2, kept until backward".into(), kept, false, &|p| p.fsdp.reshard_after_forward = Reshard::False);
    let once = traffic("gradients stay whole until the step's last micro-batch, and are scattered once");
    add(Fsdp2, "FSDP2, reduced once a step".into(), once, false, &|p| p.fsdp.sync_every_micro_batch = false);
    let gpus = plain.gpus;
    for copies in (2..gpus).filter(|copies| gpus.is_multiple_of(*copies)) {
        let name = format!("HSDP, {copies} groups of {}", gpus / copies);
        let words = format!("blocks are gathered among {} cards, gradients summed over {copies} groups", gpus / copies);
        add(Fsdp2, name.into(), traffic(&words), false, &|p| p.replicate = copies);
    }
    let words = "shards come from the machine's memory, gradients go there, where the optimizer steps; what it takes there is \
                 not estimated";
    add(Fsdp2, "FSDP2, offloaded".into(), traffic(words), true, &|p| p.fsdp.cpu_offload = true);
    add(Fsdp1, "FSDP1".into(), gathered, false, &|_| {});
    let shards = |p: &mut Parallel| p.fsdp.sharding_strategy = ShardingStrategy::ShardGradOp;
    add(Fsdp1, "FSDP1, SHARD_GRAD_OP".into(), kept, false, &shards);
    add(Fsdp1, "FSDP1, offloaded".into(), traffic(words), true, &|p| p.fsdp.cpu_offload = true);
    let first = engine("DeepSpeed's engine: gradients are averaged once a step, new parameters gathered");
    add(Zero1, "ZeRO-1".into(), first, false, &|_| {});
    let second = engine("DeepSpeed's engine: gradients are averaged in every micro-batch, new parameters gathered");
    add(Zero2, "ZeRO-2".into(), second, false, &|_| {});
    let away = |p: &mut Parallel| p.zero.offload_optimizer = Offload::Cpu;
    let words = "DeepSpeed's engine: gradients go to the machine's memory, where the optimizer steps; what it takes there is not \
                 estimated";
    add(Zero2, "ZeRO-2, optimizer offloaded".into(), engine(words), true, &away);
    let third = engine("DeepSpeed's engine: every module is gathered for its forward and its backward");
    add(Zero3, "ZeRO-3".into(), third, false, &|_| {});
    add(Zero3, "ZeRO-3, optimizer offloaded".into(), engine(words), true, &away);
    let words = "DeepSpeed's engine: parameters, gradients and optimizer in the machine's memory; what they take there is not \
                 estimated";
    add(Zero3, "ZeRO-3, all offloaded".into(), engine(words), true, &|p| {
        away(p);
        p.zero.offload_param = Offload::Cpu;
    });
    all
}

/// What several cards are also used for, and no way here does.
pub fn not_searched(scenario: &Scenario) -> Vec<String> {
    let later = ["tensor, pipeline, context and expert parallelism", "hybrid sharding under FSDP1"];
    let mut all: Vec<String> = later.iter().map(|name| format!("{name} (not estimated yet)")).collect();
    all.push("the fused loss (no strategy but DDP takes it)".to_owned());
    if scenario.training.checkpointing != Checkpointing::Full {
        all.push(
            "selective checkpointing, and of every so many-th layer (say it yourself: it is estimated)".to_owned(),
        );
    }
    all
}

/// What stands against a way, in one clause.
pub fn refusal(error: &Error) -> String {
    if error.hint.is_empty() { error.problem.clone() } else { format!("{}: {}", error.problem, error.hint) }
}
