//! What the tools say, in their own terms, before it is a scenario: precision is a matter of three keys for them, quantization of
//! four, and what is not said has another meaning in each.

use plimsoll_scenario::{
    ActivationOffloading, Attention, BackwardPrefetch, LossImpl, Offload, Optimizer, OptimizerImpl, ParallelStrategy,
    PolicyDtype, QuantStorage, Reshard, ShardingStrategy, Wrap,
};
use serde_json::Value;

/// A floating type that weights are loaded in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// `torch.float32`.
    Float32,
    /// `torch.float16`.
    Float16,
    /// `torch.bfloat16`.
    Bfloat16,
}

impl Dtype {
    /// `torch.bfloat16`, `bfloat16`, `bf16`.
    pub fn named(text: &str) -> Option<Self> {
        match text.trim_start_matches("torch.").to_ascii_lowercase().as_str() {
            "float32" | "fp32" | "float" | "32" | "32-true" => Some(Self::Float32),
            "float16" | "fp16" | "half" => Some(Self::Float16),
            "bfloat16" | "bf16" => Some(Self::Bfloat16),
            _ => None,
        }
    }
}

/// Where adapters go.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// Every linear layer but the output head.
    All,
    /// Modules by the last part of their names.
    Names(Vec<String>),
}

/// Which card a figure of memory is meant of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    /// What may be used, in GiB.
    pub memory_gib: Option<f64>,
    /// The part of it that is aimed at, 0 to 1.
    pub target: Option<f64>,
}

/// What is recomputed of a model whose layers are not all recomputed whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recomputed {
    /// Of every so many layers the last.
    Every(u64),
    /// Of every layer what takes no time.
    Cheap,
}

/// Where checkpoints are reentrant if nobody says whether they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reentrant {
    /// Wherever they are.
    Always,
    /// Wherever they are, but where TRL's offloading goes with a whole model: torch's `checkpoint_wrapper` stands there, whatever is said.
    ButOffloaded,
    /// Not under DistributedDataParallel.
    ButUnderDdp,
    /// Where no Trainer turns them on once more.
    WithoutTrainer,
}

/// What was said, and what the tool that was told makes of the rest. `None`: nobody said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    /// A Hub id, a folder, a recipe's name.
    pub model: Option<String>,
    /// The model as a scenario says it, where that is known from elsewhere.
    pub known: Option<Value>,
    /// A config.json.
    pub config: Option<Value>,
    /// Samples on one card at once.
    pub batch: Option<u64>,
    /// Samples of one optimizer step over all cards.
    pub global_batch: Option<u64>,
    /// Micro-batches of one optimizer step.
    pub accumulation: Option<u64>,
    /// Tokens of a sample.
    pub seq: Option<u64>,
    /// Side of an image.
    pub image: Option<u64>,
    /// Whether samples are packed, so that none is padded.
    pub packing: Option<bool>,
    /// `bf16=True`: autocast to bfloat16.
    pub bf16: Option<bool>,
    /// `fp16=True`: autocast to float16 with a gradient scaler.
    pub fp16: Option<bool>,
    /// What the weights are loaded in.
    pub weights: Option<Dtype>,
    /// What weights that are trained are kept in, whatever they are loaded in.
    pub trained_in_float32: bool,
    /// `load_in_4bit`.
    pub four_bit: Option<bool>,
    /// `load_in_8bit`.
    pub eight_bit: Option<bool>,
    /// `bnb_4bit_use_double_quant`.
    pub double_quant: Option<bool>,
    /// `bnb_4bit_quant_storage`.
    pub quant_storage: Option<QuantStorage>,
    /// Whether `prepare_model_for_kbit_training` is run.
    pub prepare_kbit: Option<bool>,
    /// Whether layers are recomputed.
    pub checkpointing: Option<bool>,
    /// `use_reentrant`.
    pub reentrant: Option<bool>,
    /// What the tool makes of it where that is not said; `None`: they are not reentrant, as transformers 5 has it.
    pub reentrant_unsaid: Option<Reentrant>,
    /// Whether only a part of it all is, and which: tools say the two apart, and the second may stand where the first is not so.
    pub partly: bool,
    /// Which part.
    pub recomputed: Option<Recomputed>,
    /// The optimizer.
    pub optimizer: Option<Optimizer>,
    /// Which of its implementations.
    pub implementation: Option<OptimizerImpl>,
    /// Whether the gradients' norm is clipped.
    pub clip: Option<bool>,
    /// Whether each parameter is stepped in backward.
    pub in_backward: Option<bool>,
    /// Where what backward needs waits for it.
    pub offloading: Option<ActivationOffloading>,
    /// Whether gradients are filled with zeros instead of dropped.
    pub zeros: Option<bool>,
    /// Whether there are adapters.
    pub adapters: Option<bool>,
    /// Their rank.
    pub rank: Option<u64>,
    /// Where they are.
    pub targets: Option<Targets>,
    /// Their dropout.
    pub dropout: Option<f64>,
    /// `use_dora`.
    pub dora: Option<bool>,
    /// `autocast_adapter_dtype`.
    pub adapters_in_float32: Option<bool>,
    /// `modules_to_save`.
    pub save: Option<Vec<String>>,
    /// How attention is computed.
    pub attention: Option<Attention>,
    /// How the loss is.
    pub loss: Option<LossImpl>,
    /// Whether Liger's kernels take the model's place (`use_liger_kernel`).
    pub liger: Option<bool>,
    /// Which of them, where that is said: rotary positions, norms, gated activations; and the fused loss.
    pub liger_parts: [Option<bool>; 3],
    /// See [`Draft::liger_parts`].
    pub liger_loss: Option<bool>,
    /// Whether kernels of another library run that keep as much as Liger's, which stand for them where those are followed.
    pub like_liger: bool,
    /// Whether transformers' Trainer runs it, or one that is made of it.
    pub by_trainer: bool,
    /// Whether trl's SFTTrainer runs it: where nothing else is said its loss keeps no logits, a quantized base is left as it was
    /// loaded, and its adapters are bfloat16.
    pub by_trl: bool,
    /// Whether samples are pairs of sequences, which run together (DPO).
    pub pairs: bool,
    /// Whether dropout is switched off, whatever the adapters say (`disable_dropout` of trl's DPOTrainer).
    pub disable_dropout: bool,
    /// Whether a reference of its own is on the card, where there are no adapters to take off.
    pub reference: bool,
    /// `amsgrad` of Adam and AdamW.
    pub amsgrad: Option<bool>,
    /// `label_smoothing_factor`.
    pub smoothing: Option<f64>,
    /// `torch.compile`.
    pub compile: Option<bool>,
    /// `use_cache`.
    pub use_cache: Option<bool>,
    /// Cards of one machine, as a launcher is told.
    pub per_node: Option<u64>,
    /// Machines.
    pub nodes: Option<u64>,
    /// Cards in all.
    pub gpus: Option<u64>,
    /// How the training is spread over them.
    pub strategy: Option<ParallelStrategy>,
    /// Copies of a group that shards.
    pub replicate: Option<u64>,
    /// Tensor parallel degree.
    pub tensor: Option<u64>,
    /// Context (sequence) parallel degree.
    pub context: Option<u64>,
    /// Pipeline parallel degree.
    pub pipeline: Option<u64>,
    /// Expert parallel degree.
    pub expert: Option<u64>,
    /// `fully_shard(reshard_after_forward=)`.
    pub reshard: Option<Reshard>,
    /// Which modules are wrapped.
    pub wrap: Option<Wrap>,
    /// `MixedPrecisionPolicy.param_dtype`.
    pub param_dtype: Option<PolicyDtype>,
    /// `MixedPrecisionPolicy.reduce_dtype`.
    pub reduce_dtype: Option<PolicyDtype>,
    /// Parameters and states in the machine's memory.
    pub cpu_offload: Option<bool>,
    /// FSDP1's `ShardingStrategy`.
    pub sharding: Option<ShardingStrategy>,
    /// FSDP1's `use_orig_params`.
    pub orig_params: Option<bool>,
    /// FSDP1's `backward_prefetch`.
    pub backward_prefetch: Option<BackwardPrefetch>,
    /// DeepSpeed's `reduce_bucket_size`, in numbers.
    pub reduce_bucket: Option<u64>,
    /// DeepSpeed's `overlap_comm`.
    pub overlap: Option<bool>,
    /// What DeepSpeed's stage 3 says beside.
    pub stage3: Stage3,
    /// Where DeepSpeed keeps the optimizer's states.
    pub offload_optimizer: Option<Offload>,
    /// `DistributedDataParallel(bucket_cap_mb=)`.
    pub bucket_cap_mb: Option<u64>,
    /// `gradient_as_bucket_view`.
    pub bucket_view: Option<bool>,
    /// `static_graph`.
    pub static_graph: Option<bool>,
    /// `find_unused_parameters`.
    pub find_unused: Option<bool>,
    /// `broadcast_buffers`.
    pub broadcast_buffers: Option<bool>,
    /// What may be used of the card.
    pub budget: Budget,
    /// What is to be said of how it was understood.
    pub remarks: Vec<String>,
}

impl Draft {
    /// Says something of how it was understood, once.
    pub fn remark(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }
}

/// The keys of DeepSpeed's `zero_optimization` that its stage 3 reads, in numbers where they are numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stage3 {
    /// `stage3_prefetch_bucket_size`.
    pub prefetch: Option<u64>,
    /// `stage3_max_live_parameters`.
    pub live: Option<u64>,
    /// `stage3_max_reuse_distance`.
    pub reuse: Option<u64>,
    /// `stage3_param_persistence_threshold`.
    pub persistence: Option<u64>,
    /// `sub_group_size`.
    pub sub_group: Option<u64>,
    /// `contiguous_gradients`.
    pub contiguous: Option<bool>,
    /// `reduce_scatter`.
    pub scatters: Option<bool>,
    /// `offload_param.device`.
    pub offload: Option<Offload>,
    /// `offload_optimizer.buffer_count`.
    pub buffers: Option<u64>,
    /// `offload_param.buffer_count`.
    pub param_buffers: Option<u64>,
    /// `offload_param.buffer_size`.
    pub param_buffer: Option<u64>,
    /// `offload_param.max_in_cpu`.
    pub param_max_in_cpu: Option<u64>,
    /// `aio.block_size`.
    pub aio_block: Option<u64>,
    /// `aio.intra_op_parallelism`.
    pub aio_threads: Option<u64>,
}
