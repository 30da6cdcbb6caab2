//! What transformers' causal language models share around their layers.

use std::rc::Rc;

use plimsoll_catalog::software::{Rules, rules};
use plimsoll_ground::Result;
use plimsoll_scenario::AttentionMask;
use plimsoll_torch::nn::{AttentionCore, Embedding, Linear, Probabilities, Scope};
use plimsoll_torch::ops::{self, Fill, FusedRules, Pointwise, Rearrangement, Reduction};
use plimsoll_torch::tensor::{Context, DType, HeadLoss, Tensor};
use plimsoll_torch::{Batch, Field};

use super::classification;
use super::config::Config;
use super::loss::counted;
use super::{Output, Plan};

/// `input_ids`, `labels` and, where one is given, the attention mask: int64 `[batch, seq]` each.
pub fn batch(cx: &Rc<Context>, plan: &Plan, seq: u64) -> Batch {
    let sizes = [plan.input.batch, seq];
    let tokens = || ops::empty(cx, &sizes, DType::Int64);
    let batch = Batch::of(tokens()).with(Field::Labels, ops::labels(cx, &sizes, DType::Int64));
    if plan.input.attention_mask == AttentionMask::None { batch } else { batch.with(Field::Mask, tokens()) }
}

/// `inputs_embeds`. A frozen model's checkpoints would have no gradient: for them it is made a leaf that requires grad
/// (`enable_input_require_grads`).
pub fn input_embeddings(table: &Embedding, ids: &Tensor, plan: &Plan) -> Tensor {
    as_input(table.forward(ids), plan)
}

/// What `enable_input_require_grads` makes of an embedding's output.
pub fn as_input(embeds: Tensor, plan: &Plan) -> Tensor {
    if plan.adapters && plan.checkpointing { embeds.into_required_output() } else { embeds }
}

/// The same of one part of a model, whose own `get_input_embeddings` names the module: before all parts were asked, nobody came by it.
pub fn as_input_of_part(embeds: Tensor, plan: &Plan) -> Tensor {
    let asked = embeds.cx().machine().rules.has(&rules::PARTS_REQUIRE_INPUT_GRADS);
    if asked { as_input(embeds, plan) } else { embeds }
}

/// What a model does to its logits before it returns them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readout {
    /// Nothing.
    #[default]
    Plain,
    /// Squashes them by a tanh: `final_logit_softcapping` (Gemma 2).
    SoftCapped,
    /// Divides them: `logits_scaling` (Granite).
    Divided,
}

impl Readout {
    fn apply(self, mut logits: Tensor) -> Tensor {
        if self == Self::Plain {
            return logits;
        }
        logits = ops::div_scalar(&logits);
        if self == Self::SoftCapped {
            logits = ops::tanh(&logits);
            logits = ops::mul_scalar(&logits);
        }
        logits
    }
}

/// Of which positions a generation has logits made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generated {
    /// Of the last one alone (`logits_to_keep=1`).
    #[default]
    Last,
    /// Of all, of which the last ones are taken.
    All,
    /// Of all, made float32 where they stand.
    AllInFloat32,
}

impl Generated {
    /// Those of a model type under `software`.
    pub fn of(model_type: &str, software: Rules) -> Self {
        let (last, floats) = match model_type {
            "bloom" | "gpt_neo" | "opt" => (&rules::EVERY_MODEL_KEEPS_LOGITS, false),
            "gptj" => (&rules::EVERY_MODEL_KEEPS_LOGITS, true),
            "gpt2" => (&rules::GPT2_KEEPS_LOGITS, false),
            "gpt_neox" => (&rules::GPT_NEOX_KEEPS_LOGITS, false),
            "granite" => (&rules::GRANITE_KEEPS_LOGITS, !software.has(&rules::LOSS_FUNCTION)),
            "falcon" => (&rules::FALCON_KEEPS_LOGITS, false),
            "stablelm" => (&rules::LOGITS_TO_KEEP, false),
            _ => (&rules::LOGITS_TO_KEEP, true),
        };
        match (software.has(last), floats) {
            (true, _) => Self::Last,
            (false, true) => Self::AllInFloat32,
            (false, false) => Self::All,
        }
    }
}

/// The logits of the last position, which may be a view of them all. A model that does something to them holds the hidden states
/// to the end.
pub fn last_logits(hidden: Tensor, head: &Linear, (readout, generated): (Readout, Generated)) -> Tensor {
    if generated == Generated::Last {
        return readout.apply(head.forward(&ops::narrow(&hidden, 1, 1)));
    }
    let mut logits = readout.apply(head.forward(&hidden));
    if generated == Generated::AllInFloat32 {
        logits = ops::to(&logits, DType::Float32);
    }
    ops::narrow(&logits, 1, 1)
}

/// `torch.arange(seq) + past_seen_tokens`, unsqueezed: `[1, seq]`.
pub fn position_ids(cx: &Rc<Context>, seq: u64) -> Tensor {
    let positions = ops::arange(cx, seq);
    if !cx.machine().rules.has(&rules::POSITIONS_SHIFTED) {
        return ops::unsqueeze(&positions, 0);
    }
    let shifted = ops::pointwise(Pointwise::AddTensor, &positions, &[], &[seq], DType::Int64);
    drop(positions);
    ops::unsqueeze(&shifted, 0)
}

/// `eager_attention_forward` as Llama has it, or sdpa, with dropout on the probabilities.
pub fn attention(plan: &Plan, dropout: f64) -> AttentionCore {
    AttentionCore {
        implementation: plan.attention,
        rules: plan.rules.clone(),
        dropout,
        probabilities: Probabilities::Float32,
        eager_contiguous: true,
        shared_since: None,
        adds_in_place: false,
    }
}

/// [`attention`] of a model that had a class of its own to the last of transformers 4.
pub fn own_attention(plan: &Plan, dropout: f64) -> AttentionCore {
    AttentionCore { shared_since: Some(&rules::LAST_DECODERS_SHARE_SDPA), ..attention(plan, dropout) }
}

/// Gemma's switch to attention in both directions.
///
/// # Errors
/// When it is on.
pub fn refuse_bidirectional(config: &Config<'_>) -> Result<()> {
    let key = "use_bidirectional_attention";
    if config.flag(key, false)? { Err(config.error(key, "is not estimated yet", "set it to false")) } else { Ok(()) }
}

/// The kinds of layers of a decoder some of whose layers look back through a window.
pub const WINDOWED: &[&str] = &["full_attention", "sliding_attention"];

/// How far windowed layers look back, by default `default` tokens, of a model that makes their mask whether it has any or not.
///
/// # Errors
/// When it is `null`.
pub fn window(config: &Config<'_>, default: u64) -> Result<u64> {
    let default_length = (!config.mentions("sliding_window")).then_some(default);
    config.optional_size("sliding_window")?.or(default_length).ok_or_else(|| {
        config.error(
            "sliding_window",
            "transformers fails to make the mask of windowed layers without a length",
            format!("give the number of tokens they look back, or leave the key out for {default}"),
        )
    })
}

/// The attention mask that was given, and whether anything in it is padded.
pub fn given_mask<'t>(mask: Option<&'t Tensor>, plan: &Plan) -> Option<(&'t Tensor, bool)> {
    mask.map(|m| (m, plan.input.attention_mask == AttentionMask::Padded))
}

/// `pad_token_id in input_ids[:, [-1, 0]]`: some models look whether somebody forgot the mask.
pub fn warn_if_padding_and_no_attention_mask(ids: &Tensor) {
    let (cx, batch) = (ids.cx(), ids.size(0));
    let ends = {
        let _columns = ops::fill(cx, Fill::ToCopy, &[2], DType::Int64);
        ops::rearrangement(cx, Rearrangement::IndexTensor, &[batch, 2], DType::Int64)
    };
    let equal = ops::pointwise(Pointwise::EqScalar, &ends, &[], &[batch, 2], DType::Bool);
    drop((ops::reduction(Reduction::Any, &equal, &[], DType::Bool), ends));
}

/// `lm_head`: the token embedding's weight once more, or one of its own.
pub fn head(scope: &Scope, table: &Embedding, tied: bool) -> Linear {
    let place = scope.child("lm_head");
    if tied {
        Linear::tied(&place, table.weight())
    } else {
        Linear::head(&place, table.weight().size(1), table.weight().size(0))
    }
}

/// A loss that a model of an older transformers computed by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnLoss {
    /// It calls the one that all share, or does what the others do.
    #[default]
    None,
    /// On logits in the dtype they have.
    AsGiven,
    /// On float32 logits, which the model returns, as all did before [`rules::LOSS_FUNCTION`].
    Upcast,
    /// On logits in the dtype they have, shifted by an index for every dimension (GPT-NeoX).
    AsGivenByIndex,
    /// On float32 logits, which are made the states' dtype afterwards, and so is the loss (GPT-Neo).
    ThereAndBack,
    /// On float32 logits, which the model returns; the loss is made the states' dtype (GPT-J).
    LossBack,
}

impl OwnLoss {
    /// Whether logits are made float32 in the model, in their place.
    fn upcasts(self, software: Rules) -> bool {
        self == Self::Upcast || self == Self::None && !software.has(&rules::LOSS_FUNCTION)
    }

    /// That of a model type under `software`.
    pub fn of(model_type: &str, software: Rules) -> Self {
        let shared = match model_type {
            "gpt_neox" => &rules::GPT_NEOX_SHARES_LOSS,
            "gpt2" | "opt" | "bloom" | "falcon" | "stablelm" | "mistral" | "granite" => &rules::OLDEST_SHARE_LOSS,
            "gpt_neo" | "gptj" => &rules::GPT_NEO_LEAVES_LOGITS,
            "starcoder2" => &rules::STARCODER2_SHARES_LOSS,
            _ => return Self::None,
        };
        match (software.has(shared), model_type) {
            (true, _) => Self::None,
            (false, "gpt_neo") => Self::ThereAndBack,
            (false, "gptj") => Self::LossBack,
            (false, "mistral" | "granite" | "starcoder2") if software.has(&rules::LOSS_FUNCTION) => Self::Upcast,
            (false, "mistral" | "granite" | "starcoder2") => Self::None,
            (false, "gpt_neox") => Self::AsGivenByIndex,
            (false, _) => Self::AsGiven,
        }
    }
}

/// The logits and the loss of the last hidden state. A `ModelOutput` holds the loss as well as the logits.
pub fn output(
    hidden: Tensor,
    head: &Linear,
    labels: &Tensor,
    (own, readout, generated): (OwnLoss, Readout, Generated),
) -> Output {
    head_output(hidden, head, labels, own, |x| {
        // hidden_states[:, slice_indices, :], which are all of them; asked for in parts the body runs without it.
        let sliced = generated == Generated::Last && x.cx().loss_rules().head == HeadLoss::Full;
        let x = if sliced { ops::whole(&ops::whole(&ops::whole(x))) } else { x.clone() };
        readout.apply(head.forward(&x))
    })
}

/// The head and the loss the way the recipe has them; `project` is the head with all it does to its logits.
fn head_output(
    hidden: Tensor,
    head: &Linear,
    labels: &Tensor,
    own: OwnLoss,
    project: impl Fn(&Tensor) -> Tensor,
) -> Output {
    match (hidden.cx().loss_rules().head, head.plain()) {
        (HeadLoss::Chunked, _) => chunked_output(hidden, labels, project),
        (HeadLoss::FusedLinear { cuda, sums_in_product }, Some((weight, bias))) => {
            // `lce_forward` of Liger's own has a name for `hidden_states[:, slice_indices, :]`.
            let kept = hidden.cx().liger().map(|_| hidden.clone());
            let hidden = if kept.is_some() { ops::whole(&ops::whole(&ops::whole(&hidden))) } else { hidden };
            // Both names hold their labels until the loss is there.
            let padded = padded(labels);
            let targets = ops::contiguous(&ops::narrow_from(&padded, 1, 1, labels.size(1)));
            let rows = ops::view(&hidden, &[targets.numel(), hidden.size(-1)]);
            let card = FusedRules { cuda, sums_in_product };
            let loss = counted(ops::fused_linear_cross_entropy(card, &rows, weight, bias));
            drop((padded, targets, hidden, rows, kept));
            Output { held: vec![loss.clone()], loss }
        }
        (HeadLoss::FusedLmHead { metrics }, Some((weight, bias))) => {
            tiled_output(hidden, (weight, bias), labels, metrics)
        }
        // bitsandbytes leaves the output head as it is; one that it had replaced would have no weight to fuse.
        (HeadLoss::Full | HeadLoss::FusedLinear { .. } | HeadLoss::FusedLmHead { .. }, _) => {
            let (loss, logits) = loss(project(&hidden), labels, own, hidden.dtype());
            drop(hidden);
            Output { held: vec![loss.clone(), logits], loss }
        }
    }
}

/// `_fused_forward` of `trainer/utils.py` in TRL 1.16: the loss, and what else `FusedCausalLMOutput` holds: the log-probability of every
/// label, the entropies and which labels are the likeliest, where `metrics` asks for them, and which labels count.
fn tiled_output(hidden: Tensor, (weight, bias): (&Tensor, Option<&Tensor>), labels: &Tensor, metrics: bool) -> Output {
    let scored = labels.size(1).saturating_sub(1);
    // last_hidden_state[:, :-1], labels[:, 1:]
    let states = ops::narrow(&ops::whole(&hidden), 1, scored);
    let labels = ops::narrow_from(&ops::whole(labels), 1, 1, scored);
    let mask = ops::pointwise(Pointwise::NeScalar, &labels, &[], labels.dims(), DType::Bool);
    let of_tokens = {
        let (states, targets) = (ops::select_masked(&states, &mask), ops::select_masked(&labels, &mask));
        ops::chunked_log_probs(&states, weight, bias, &targets, metrics)
    };
    let log_probs = ops::scatter_masked(&of_tokens.log_probs, &mask);
    let entropy = of_tokens.entropy.as_ref().map(|x| ops::scatter_masked(x, &mask));
    let is_top1 = of_tokens.is_top1.as_ref().map(|x| ops::scatter_masked(x, &mask));
    drop(of_tokens);
    let loss = {
        let total = ops::neg(&ops::sum_all(&log_probs));
        let count = ops::clamped_count(ops::reduction(Reduction::Sum, &mask, &[], DType::Int64));
        ops::div(&total, &count)
    };
    drop((states, labels, hidden));
    let outputs = [Some(loss.clone()), Some(log_probs), entropy, is_top1, Some(mask)];
    Output { held: outputs.into_iter().flatten().collect(), loss }
}

/// How many chunks torchtune cuts a sequence into (`CEWithChunkedOutputLoss(num_output_chunks=8)`).
const CHUNKS: u64 = 8;

/// torchtune's `TransformerDecoder.chunked_output` and `CEWithChunkedOutputLoss`: the head chunk by chunk, every chunk's
/// logits in the weights' (or autocast's) dtype, and then a loss that makes one chunk after the other float32.
fn chunked_output(hidden: Tensor, labels: &Tensor, project: impl Fn(&Tensor) -> Tensor) -> Output {
    let size = hidden.size(1).div_ceil(CHUNKS);
    let chunks: Vec<Tensor> = ops::split(&hidden, size, 1).iter().map(project).collect();
    drop(hidden);
    let shifted = ops::contiguous(&ops::narrow_from(&padded(labels), 1, 1, labels.size(1)));
    let counted = ops::each(Pointwise::NeScalar, labels, DType::Bool);
    let count = ops::reduction(Reduction::Sum, &counted, &[], DType::Int64);
    drop(counted);
    let targets: Vec<Tensor> = ops::split(&shifted, size, 1).iter().map(|t| ops::reshape(t, &[t.numel()])).collect();
    let mut total: Option<Tensor> = None;
    for (logits, targets) in chunks.iter().zip(&targets) {
        let flat = ops::view(logits, &[targets.numel(), logits.size(-1)]);
        let part = {
            let wide = ops::to(&flat, DType::Float32);
            ops::cross_entropy_sum(&wide, targets)
        };
        total = Some(match total.take() {
            // 0.0 + tensor
            None => ops::add_scalar(&part),
            Some(total) => ops::add_in_place(total, &part),
        });
    }
    let loss = match &total {
        Some(total) => ops::div(total, &count),
        None => unreachable!("a sequence has at least one token, and so one chunk"),
    };
    drop((total, count, targets, shifted));
    Output { held: chunks, loss }
}

/// `pad(labels, (0, 1))`: without the first one, each token's label is the next token.
fn padded(labels: &Tensor) -> Tensor {
    ops::rearrangement(labels.cx(), Rearrangement::ConstantPadNd, &[labels.size(0), labels.size(1) + 1], DType::Int64)
}

/// The loss, and the logits the model returns. `ForCausalLMLoss` of transformers 5: float32 logits, labels padded and
/// shifted, cross-entropy. Older ones shifted the logits, and still older ones made them float32 where they stood.
fn loss(logits: Tensor, labels: &Tensor, own: OwnLoss, states: DType) -> (Tensor, Tensor) {
    let cx = &Rc::clone(logits.cx());
    let software = cx.machine().rules;
    let outside = classification::is_outside(cx);
    let mut logits = logits;
    let upcast = own == OwnLoss::LossBack || own == OwnLoss::None && !software.has(&rules::LOSS_FUNCTION);
    if (cx.is_inference() || outside) && upcast {
        // Whether or not there are labels.
        logits = ops::to(&logits, DType::Float32);
    }
    if cx.is_inference() {
        return (logits.clone(), logits);
    }
    if outside {
        return (ops::no_loss(&logits), logits);
    }
    match own {
        OwnLoss::None | OwnLoss::Upcast => {}
        OwnLoss::AsGiven => return (shifted_loss(&logits, labels).0, logits),
        // logits[:, :-1, :]
        OwnLoss::AsGivenByIndex => return (shifted_loss(&ops::whole(&logits), labels).0, logits),
        OwnLoss::ThereAndBack | OwnLoss::LossBack => {
            let float = ops::to(&logits, DType::Float32);
            drop(logits);
            // `shift_logits`, a name of the model's forward until the loss was a function of its own.
            let mut named = None;
            let loss = if software.has(&rules::PADDED_LABELS) {
                padded_loss(&float, labels)
            } else {
                let (loss, shifted) = shifted_loss(&float, labels);
                named = (!software.has(&rules::OLDEST_SHARE_LOSS)).then_some(shifted);
                loss
            };
            let returned = if own == OwnLoss::LossBack { float.clone() } else { ops::to(&float, states) };
            drop(float);
            let loss = ops::to(&loss, states);
            drop(named);
            return (loss, returned);
        }
    }
    if !software.has(&rules::PADDED_LABELS) {
        let float = ops::to(&logits, DType::Float32);
        let returned = if own.upcasts(software) {
            drop(logits);
            float.clone()
        } else {
            logits
        };
        return (shifted_loss(&float, labels).0, returned);
    }
    let float = ops::to(&logits, DType::Float32);
    (padded_loss(&float, labels), logits)
}

/// `ForCausalLMLoss` on float32 logits.
fn padded_loss(float: &Tensor, labels: &Tensor) -> Tensor {
    let (batch, seq, vocab) = (labels.size(0), labels.size(1), float.size(-1));
    let padded = padded(labels);
    let shifted = ops::contiguous(&ops::narrow_from(&padded, 1, 1, seq));
    let targets = ops::view(&shifted, &[batch * seq]);
    let loss = counted(ops::cross_entropy(&ops::view(float, &[batch * seq, vocab]), &targets));
    drop(padded);
    loss
}

/// `shift_logits = logits[..., :-1, :].contiguous()`, the labels likewise: the loss, and the logits that were shifted.
fn shifted_loss(logits: &Tensor, labels: &Tensor) -> (Tensor, Tensor) {
    let (batch, seq, vocab) = (labels.size(0), labels.size(1).saturating_sub(1), logits.size(-1));
    // logits[..., :-1, :]
    let shifted = ops::contiguous(&ops::whole(&ops::narrow(logits, 1, seq)));
    let targets = ops::contiguous(&ops::narrow_from(labels, 1, 1, seq));
    let flat = ops::view(&shifted, &[batch * seq, vocab]);
    let loss = counted(ops::cross_entropy(&flat, &ops::view(&targets, &[batch * seq])));
    drop(flat);
    (loss, shifted)
}
