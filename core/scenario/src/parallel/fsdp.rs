//! `[parallel.fsdp]`: `fully_shard` and its mixed-precision policy.

use plimsoll_ground::{Error, Result};
use serde_json::Value;

use super::Parallel;
use crate::lever::{Field, Group, Kind, Lever, Near, Written, levers};
use crate::recipe::words;
use crate::{Mode, ParallelStrategy, Quantization, Scenario};

levers! {
    /// `[parallel.fsdp]`: the arguments of `fully_shard`, and where it is called.
    pub struct Fsdp = "parallel.fsdp", fsdp of Parallel {
        /// Whether a block's gathered parameters are let go of after its forward.
        pub reshard_after_forward: Reshard = Reshard::Unset => {
            link: "reshard",
            label: "Resharded after the forward",
            help: "reshard_after_forward; left unset, every block but the root",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.5),
        }
        /// Which modules get a `fully_shard` of their own.
        pub wrap: Wrap = Wrap::Layer => {
            link: "wrap",
            label: "Wrapped",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.5),
        }
        /// Which modules of a hull get a `fully_shard`, or a `FullyShardedDataParallel`, of their own, by name; `*` stands for whatever is
        /// between two dots (`layers.*`). Where nothing is said, its blocks that repeat.
        pub modules: Vec<String> = Vec::new() => {
            link: "fsdp_modules",
            kind: Kind::Names { all: None, example: &["layers.*", "encoder.block.*"] },
            label: "Wrapped modules",
            help: "Of a recorded model, by name: layers.*",
            otherwise: "its blocks that repeat",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.5),
        }
        /// The dtype parameters are gathered in and the forward runs in (`MixedPrecisionPolicy.param_dtype`).
        pub param_dtype: PolicyDtype = PolicyDtype::Own => {
            link: "param_dtype",
            label: "Gathered in",
            help: "MixedPrecisionPolicy.param_dtype: what forward and backward compute in",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(3.0),
        }
        /// The dtype gradients are reduced in (`MixedPrecisionPolicy.reduce_dtype`).
        pub reduce_dtype: PolicyDtype = PolicyDtype::Own => {
            link: "reduce_dtype",
            label: "Reduced in",
            help: "MixedPrecisionPolicy.reduce_dtype: what gradients are summed over the cards in",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.0),
        }
        /// Whether parameters, gradients and optimizer state lie in the machine's memory, where clipping and the optimizer run
        /// (`CPUOffloadPolicy`).
        pub cpu_offload: bool = false => {
            link: "cpu_offload",
            label: "Offloaded to the CPU",
            help: "CPUOffloadPolicy: shards, gradients and states in the machine's memory",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(4.0),
        }
        /// Offloaded: whether what lies in the machine's memory is page-locked (`CPUOffloadPolicy.pin_memory`). FSDP1 knows no other way.
        pub pin_memory: bool = true => {
            link: "fsdp_pin",
            label: "Page-locked",
            help: "CPUOffloadPolicy.pin_memory: shards and gradients in page-locked memory, which is rounded up to powers of two",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.25),
        }
        /// Whether gradients are reduced after every micro-batch; else they stay whole until the last one
        /// (`set_requires_gradient_sync(False)`).
        pub sync_every_micro_batch: bool = true => {
            link: "sync_every",
            label: "Reduced after every micro-batch",
            help: "Off: set_requires_gradient_sync(False) keeps whole gradients until the last one",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(2.0),
        }
        /// Whether gathered parameters are let go of after backward (`set_reshard_after_backward`).
        pub reshard_after_backward: bool = true => {
            link: "reshard_backward",
            label: "Resharded after the backward",
            help: "Off: set_reshard_after_backward(False), for good: gathered parameters stay",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(2.0),
        }
        /// Where the model is made before it is cut.
        pub load: LoadFrom = LoadFrom::Meta, or load => {
            link: "fsdp_load",
            label: "Made",
            help: "Where the model is made before fully_shard cuts it",
            otherwise: "meta; FSDP cuts a quantized base where it is quantized, on the card: cuda",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.0),
        }
        /// FSDP1: what is cut, and for how long it is whole.
        pub sharding_strategy: ShardingStrategy = ShardingStrategy::FullShard => {
            link: "sharding",
            label: "FSDP1 cuts",
            help: "sharding_strategy of FSDP1",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(3.0),
        }
        /// FSDP1: whether the optimizer sees the parameters as they are, and not one flat one of every module.
        pub use_orig_params: bool = false => {
            link: "orig_params",
            label: "Original parameters",
            help: "use_orig_params of FSDP1: gradients that were let go of live until the next forward",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.5),
        }
        /// FSDP1: when backward gathers the parameters it needs next.
        pub backward_prefetch: BackwardPrefetch = BackwardPrefetch::Pre => {
            link: "backward_prefetch",
            label: "Gathered ahead",
            help: "backward_prefetch of FSDP1",
            group: Group::Spread,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.5),
        }
    }
}

/// bitsandbytes quantizes on the card, and accelerate takes no model with four-bit weights from there before it is cut
/// (`fsdp2_prepare_model`). Where nothing is cut there is nothing to say of it.
fn load(scenario: &Scenario) -> LoadFrom {
    let cuts = matches!(scenario.parallel.strategy, ParallelStrategy::Fsdp1 | ParallelStrategy::Fsdp2);
    if cuts && scenario.training.quantization != Quantization::None { LoadFrom::Cuda } else { LoadFrom::Meta }
}

words!(
    /// Where a model is made before it is cut.
    LoadFrom {
        /// On the meta device: only shards are ever made.
        Meta = "meta" as "on the meta device",
        /// In the machine's memory: a block at a time comes to the card whole.
        Cpu = "cpu" as "in the machine's memory",
        /// On the card, whole.
        Cuda = "cuda" as "on the card",
    }
);

words!(
    /// FSDP1's `ShardingStrategy`.
    ShardingStrategy {
        /// Parameters, gradients and states are cut; a module's parameters are let go of after its forward.
        FullShard = "full-shard" as "FULL_SHARD",
        /// As FULL_SHARD, but gathered parameters stay until backward has used them.
        ShardGradOp = "shard-grad-op" as "SHARD_GRAD_OP",
        /// Nothing is cut.
        NoShard = "no-shard" as "NO_SHARD",
    }
);

words!(
    /// FSDP1's `BackwardPrefetch`.
    BackwardPrefetch {
        /// The next parameters are gathered before the current gradients are computed.
        Pre = "pre" as "BACKWARD_PRE",
        /// The next parameters are gathered after the current ones were let go of.
        Post = "post" as "BACKWARD_POST",
        /// None is gathered ahead.
        None = "none" as "none ahead",
    }
);

words!(
    /// Which modules of a model get a `fully_shard` of their own.
    Wrap {
        /// Every layer, and the root with all the rest.
        Layer = "layer" as "every layer and the root",
        /// torchtitan's: the embedding, every layer, norm and output head together, and the root.
        Torchtitan = "torchtitan" as "as torchtitan does",
        /// FSDP1 with adapters: every module that is trained by itself, every layer, and the root (`fsdp_auto_wrap_policy` of peft).
        Peft = "peft" as "every adapter, every layer and the root",
        /// The root alone.
        Root = "root" as "the root alone",
    }
);

words!(
    /// A dtype of FSDP's mixed-precision policy.
    PolicyDtype {
        /// Nothing said: the parameters' own.
        Own = "none" as "the parameters' own",
        /// torch.bfloat16.
        Bf16 = "bf16",
        /// torch.float16. Not estimated yet.
        Fp16 = "fp16",
        /// torch.float32.
        Fp32 = "fp32",
    }
);

plimsoll_ground::vocabulary!(
    /// `reshard_after_forward` of `fully_shard`.
    Reshard {
        /// Left out (`None`): every block but the root.
        Unset = "unset" as "all but the root",
        /// Every block, the root too.
        True = "true" as "all, the root too",
        /// No block: gathered parameters stay until backward has used them.
        False = "false" as "none",
    }
);

/// In Python it is a truth value; a number, of cards to reshard to, is refused by name.
impl Field for Reshard {
    const KIND: Kind = Kind::Words(<Self as plimsoll_ground::Vocabulary>::WORDS);

    fn read(lever: &Lever, value: &Value) -> Result<Self> {
        match value {
            Value::Bool(true) => Ok(Self::True),
            Value::Bool(false) => Ok(Self::False),
            Value::Number(number) => Err(Error::new(
                lever.path,
                format!("resharding to {number} cards is not estimated yet"),
                "use true or false, or leave it out",
            )),
            other => crate::lever::word(lever, other),
        }
    }

    fn write(&self) -> Option<Value> {
        Some(self.as_str().into())
    }

    fn valid(&self, _: &Lever) -> Result<()> {
        Ok(())
    }
}
