//! `Qwen3NextGatedDeltaNet` and `Qwen3_5GatedDeltaNet` (transformers `models/{qwen3_next,qwen3_5}/modeling_*.py`): linear
//! attention by the gated delta rule behind a short causal convolution.
//!
//! As it runs in PyTorch alone, where neither flash-linear-attention nor causal-conv1d is installed: what their kernels keep
//! for backward is something else, and not estimated.

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::nn::{
    Activation, DeltaStates, Linear, Scope, chunk_gated_delta_rule, recurrent_gated_delta_rule, repeated_heads,
};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{DType, ModuleId, Tensor};

use super::config::{Config, MAX_SIZE, divide};
use super::linear_memory::Remembered;

/// What a configuration says of its linear layers.
#[derive(Clone, Copy, Debug)]
pub struct DeltaSizes<'a> {
    /// `hidden_size`.
    pub hidden: u64,
    /// `linear_num_key_heads`, of queries as well.
    pub key_heads: u64,
    /// `linear_num_value_heads`.
    pub value_heads: u64,
    /// `linear_key_head_dim`.
    pub key_dim: u64,
    /// `linear_value_head_dim`.
    pub value_dim: u64,
    /// `linear_conv_kernel_dim`.
    pub kernel: u64,
    /// `hidden_act`.
    pub act: &'a str,
}

impl<'a> DeltaSizes<'a> {
    /// With the defaults of `configuration_qwen3_next.py`, of layers `hidden` wide.
    ///
    /// # Errors
    /// Heads that do not divide, or are too large together.
    pub fn read(config: &Config<'a>, hidden: u64) -> Result<Self> {
        let sizes = Self {
            hidden,
            key_heads: config.size("linear_num_key_heads", 16)?,
            value_heads: config.size("linear_num_value_heads", 32)?,
            key_dim: config.size("linear_key_head_dim", 128)?,
            value_dim: config.size("linear_value_head_dim", 128)?,
            kernel: config.size("linear_conv_kernel_dim", 4)?,
            act: config.text("hidden_act", "silu")?,
        };
        divide(config, ("linear_num_value_heads", sizes.value_heads), ("linear_num_key_heads", sizes.key_heads))?;
        let wide = |heads: u64, dim: u64| heads.saturating_mul(dim) > MAX_SIZE;
        if wide(sizes.key_heads, sizes.key_dim) || wide(sizes.value_heads, sizes.value_dim) {
            return Err(config.error(
                "linear_num_value_heads",
                "heads are too large together",
                "give fewer or smaller",
            ));
        }
        Ok(sizes)
    }

    /// `key_dim` and `value_dim` of the class: all heads together.
    const fn widths(&self) -> (u64, u64) {
        (self.key_heads * self.key_dim, self.value_heads * self.value_dim)
    }

    /// How many heads of values share one of keys.
    const fn share(&self) -> u64 {
        self.value_heads / self.key_heads
    }
}

/// How a layer projects what comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InProjections {
    /// By two linears, one for queries, keys, values and gates, one for steps and decays (Qwen3-Next).
    Together,
    /// By four: only queries, keys and values share one (Qwen3.5).
    Apart,
}

/// The linears of it.
#[derive(Debug)]
enum InProj {
    /// `in_proj_qkvz` and `in_proj_ba`.
    Together(Box<[Linear; 2]>),
    /// `in_proj_qkv`, `in_proj_z`, `in_proj_b` and `in_proj_a`.
    Apart(Box<[Linear; 4]>),
}

/// What they make of the hidden states.
struct Projected {
    /// Queries, keys and values side by side, channels before places.
    mixed: Tensor,
    z: Tensor,
    b: Tensor,
    a: Tensor,
    /// What `forward` holds besides until it takes the three apart again.
    rebound: Vec<Tensor>,
    /// What it holds to its end.
    held: Vec<Tensor>,
}

/// The module.
#[derive(Debug)]
pub struct GatedDeltaNet {
    /// `conv1d.weight`, whose module is not called since [`rules::CONVOLVED_BY_FUNCTION`].
    conv_weight: Tensor,
    conv: ModuleId,
    in_proj: InProj,
    dt_bias: Tensor,
    a_log: Tensor,
    norm: GatedNorm,
    out_proj: Linear,
    activation: Activation,
    sizes: [u64; 6],
    module: ModuleId,
}

impl GatedDeltaNet {
    /// `None` for an unknown activation.
    pub fn new(scope: &Scope, sizes: &DeltaSizes<'_>, projections: InProjections) -> Option<Self> {
        let (keys, values) = sizes.widths();
        let channels = 2 * keys + values;
        let place = scope.place();
        let linear = |name: &'static str, i, o| Linear::new(&scope.child(name), i, o, false);
        let conv = scope.child("conv1d");
        let conv_weight = conv.parameter(&[channels, 1, sizes.kernel]);
        let together = (projections == InProjections::Together).then(|| {
            InProj::Together(Box::new([
                linear("in_proj_qkvz", sizes.hidden, 2 * (keys + values)),
                linear("in_proj_ba", sizes.hidden, 2 * sizes.value_heads),
            ]))
        });
        let norm = GatedNorm::new(&scope.child("norm"), sizes.value_dim);
        let out_proj = linear("out_proj", values, sizes.hidden);
        Some(Self {
            conv_weight,
            conv: conv.module(),
            in_proj: together.unwrap_or_else(|| {
                InProj::Apart(Box::new([
                    linear("in_proj_qkv", sizes.hidden, channels),
                    linear("in_proj_z", sizes.hidden, values),
                    linear("in_proj_b", sizes.hidden, sizes.value_heads),
                    linear("in_proj_a", sizes.hidden, sizes.value_heads),
                ]))
            }),
            norm,
            out_proj,
            dt_bias: scope.own_parameter(place, &[sizes.value_heads]),
            a_log: scope.own_parameter(place + 1, &[sizes.value_heads]),
            activation: Activation::new(scope, sizes.act)?,
            sizes: [sizes.key_heads, sizes.value_heads, sizes.key_dim, sizes.value_dim, sizes.kernel, sizes.share()],
            module: scope.module(),
        })
    }

    /// `forward`; `mask` is the given one where anything in it is padded.
    pub fn forward(&self, hidden: &Tensor, mask: Option<&Tensor>) -> Tensor {
        hidden.cx().within(self.module, || {
            let [key_heads, value_heads, key_dim, value_dim, _, share] = self.sizes;
            let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
            let hidden = masked(hidden, mask);
            let (batch, seq) = (hidden.size(0), hidden.size(1));
            let Projected { mut mixed, mut z, b, a, rebound, held } = self.projected(&hidden);
            let mut past = Remembered::take(&hidden);
            let by_function = hidden.cx().machine().rules.has(&rules::CONVOLVED_BY_FUNCTION);
            // What is cut out of a prompt for the cache has a name to the end.
            let mut cut = None;
            mixed = match &mut past {
                Some(past) if past.is_going_on() => self.convolved_token(&mixed, past),
                Some(past) if !by_function => {
                    cut = Some(past.cut_out(&mixed, self.sizes[4]));
                    self.convolved(&mixed)
                }
                Some(past) => {
                    mixed = past.begun(&mixed, self.sizes[4]);
                    ops::narrow(&self.convolved(&mixed), 2, seq)
                }
                None => self.convolved(&mixed),
            };
            mixed = ops::transpose(&mixed, 1, 2);
            let parts = ops::split_sizes(&mixed, &[keys, keys, values], -1);
            let [mut query, mut key, mut value] = [parts[0].clone(), parts[1].clone(), parts[2].clone()];
            drop((parts, rebound));
            let heads = |x: &Tensor, dim: u64| ops::reshape(x, &[batch, seq, x.size(2) / dim, dim]);
            query = heads(&query, key_dim);
            key = heads(&key, key_dim);
            value = heads(&value, value_dim);
            let beta = ops::sigmoid(&b);
            let decay = {
                let rate = {
                    let wide = ops::to(&self.a_log, DType::Float32);
                    let rate = ops::exp(&wide);
                    drop(wide);
                    ops::neg(&rate)
                };
                let step = {
                    let biased = {
                        let wide = ops::to(&a, DType::Float32);
                        ops::add(&wide, &self.dt_bias)
                    };
                    ops::softplus(&biased)
                };
                let decay = ops::mul(&rate, &step);
                drop((rate, step));
                decay
            };
            if share > 1 && !hidden.cx().machine().rules.has(&rules::HEADS_REPEATED_IN_RULE) {
                query = repeated_heads(&query, share);
                key = repeated_heads(&key, share);
            }
            let states = DeltaStates { query: &query, key: &key, value: &value, decay: &decay, beta: &beta };
            // Python has a name for the state before, which an older cache replaces.
            let before = past.as_ref().and_then(Remembered::state).cloned();
            let (mut out, state) = match &before {
                Some(before) => {
                    let (out, state) = recurrent_gated_delta_rule(&states, before);
                    (out, Some(state))
                }
                None => chunk_gated_delta_rule(&states, past.is_some()),
            };
            if let (Some(past), Some(state)) = (past, &state) {
                past.keep(state);
            }
            out = ops::reshape(&out, &[batch * seq * value_heads, value_dim]);
            z = ops::reshape(&z, &[batch * seq * value_heads, value_dim]);
            out = self.norm.forward(&out, &z);
            out = ops::reshape(&out, &[batch, seq, values]);
            let output = self.out_proj.forward(&out);
            drop((hidden, held, query, key, value, z, b, a, mixed, beta, decay, out, state, before, cut));
            output
        })
    }

    fn projected(&self, hidden: &Tensor) -> Projected {
        let (batch, seq) = (hidden.size(0), hidden.size(1));
        match &self.in_proj {
            InProj::Together(linears) => {
                let [qkvz, ba] = linears.as_ref();
                let (qkvz, ba) = (qkvz.forward(hidden), ba.forward(hidden));
                let ([query, key, value], z, b, a) = self.ordered(&qkvz, &ba);
                let flat = |x: &Tensor| ops::reshape(x, &[batch, seq, x.size(2) * x.size(3)]);
                let rebound = vec![flat(&query), flat(&key), flat(&value)];
                drop((query, key, value));
                let mixed = ops::cat(&rebound.iter().collect::<Vec<_>>(), -1);
                Projected { mixed: ops::transpose(&mixed, 1, 2), z, b, a, rebound, held: vec![qkvz, ba] }
            }
            InProj::Apart(linears) => {
                let [qkv, z, b, a] = linears.as_ref();
                let mixed = ops::transpose(&qkv.forward(hidden), 1, 2);
                let [_, value_heads, _, value_dim, ..] = self.sizes;
                let z = ops::reshape(&z.forward(hidden), &[batch, seq, value_heads, value_dim]);
                let (b, a) = (b.forward(hidden), a.forward(hidden));
                Projected { mixed, z, b, a, rebound: Vec::new(), held: Vec::new() }
            }
        }
    }

    /// `fix_query_key_value_ordering`: every head of keys has its queries, values and gates beside it.
    fn ordered(&self, qkvz: &Tensor, ba: &Tensor) -> ([Tensor; 3], Tensor, Tensor, Tensor) {
        let [key_heads, value_heads, key_dim, value_dim, _, share] = self.sizes;
        let (batch, seq, wide) = (qkvz.size(0), qkvz.size(1), share * value_dim);
        let qkvz = ops::view(qkvz, &[batch, seq, key_heads, 2 * (key_dim + wide)]);
        let ba = ops::view(ba, &[batch, seq, key_heads, 2 * share]);
        let parts = ops::split_sizes(&qkvz, &[key_dim, key_dim, wide, wide], 3);
        let gates = ops::split_sizes(&ba, &[share, share], 3);
        let value = ops::reshape(&parts[2], &[batch, seq, value_heads, value_dim]);
        let z = ops::reshape(&parts[3], &[batch, seq, value_heads, value_dim]);
        let b = ops::reshape(&gates[0], &[batch, seq, value_heads]);
        let a = ops::reshape(&gates[1], &[batch, seq, value_heads]);
        ([parts[0].clone(), parts[1].clone(), value], z, b, a)
    }

    /// `causal_conv1d_update`: what was read last beside the new token, of which the last places are remembered.
    fn convolved_token(&self, mixed: &Tensor, past: &Remembered) -> Tensor {
        let Some(state) = &past.layer.conv else { return mixed.clone() };
        let weight = ops::unsqueeze(&ops::view(&self.conv_weight, &[self.conv_weight.size(0), self.sizes[4]]), 1);
        let read = {
            let both = ops::cat(&[state, mixed], -1);
            ops::to(&both, weight.dtype())
        };
        ops::copy_over(state, &ops::narrow(&read, 2, state.size(2)));
        let mut out = ops::conv1d(&read, &weight, None, 1, 0);
        out = ops::narrow(&out, 2, mixed.size(2));
        out = self.activation.forward(&out);
        out = ops::to(&out, mixed.dtype());
        drop(read);
        out
    }

    /// `causal_conv1d_fn`: padded on both sides, of which the right one is cut off. The weight goes there as a view, of which
    /// autocast remembers no copy.
    fn convolved(&self, mixed: &Tensor) -> Tensor {
        let [.., kernel, _] = self.sizes;
        if !mixed.cx().machine().rules.has(&rules::CONVOLVED_BY_FUNCTION) {
            let out = {
                let conv = || ops::conv1d(mixed, &self.conv_weight, None, 1, kernel.saturating_sub(1));
                let whole = mixed.cx().within(self.conv, conv);
                ops::narrow(&ops::whole(&ops::whole(&whole)), 2, mixed.size(2))
            };
            return self.activation.forward(&out);
        }
        // `self.conv1d.weight`: no call of the convolution's own.
        mixed.cx().read(&self.conv_weight);
        let squeezed = ops::view(&self.conv_weight, &[self.conv_weight.size(0), kernel]);
        let out = {
            let states = ops::to(mixed, squeezed.dtype());
            let weight = ops::unsqueeze(&squeezed, 1);
            let whole = ops::conv1d(&states, &weight, None, 1, kernel.saturating_sub(1));
            ops::narrow(&ops::whole(&ops::whole(&whole)), 2, mixed.size(2))
        };
        let out = self.activation.forward(&out);
        ops::to(&out, mixed.dtype())
    }
}

/// `apply_mask_to_padding_states`.
fn masked(hidden: &Tensor, mask: Option<&Tensor>) -> Tensor {
    match mask {
        None => hidden.clone(),
        Some(mask) => {
            let product = ops::mul(hidden, &ops::unsqueeze(mask, -1));
            ops::to(&product, hidden.dtype())
        }
    }
}

/// `Qwen3NextRMSNormGated`: the norm comes before the gate.
#[derive(Debug)]
struct GatedNorm {
    weight: Tensor,
    module: ModuleId,
}

impl GatedNorm {
    fn new(scope: &Scope, features: u64) -> Self {
        Self { weight: scope.parameter(&[features]), module: scope.module() }
    }

    fn forward(&self, x: &Tensor, gate: &Tensor) -> Tensor {
        x.cx().within_given(self.module, x, || {
            let dtype = x.dtype();
            let mut hidden = ops::to(x, DType::Float32);
            let variance = ops::mean_last(&ops::pow(&hidden));
            hidden = {
                let inverse = ops::rsqrt(&ops::add_scalar(&variance));
                ops::mul(&hidden, &inverse)
            };
            hidden = {
                let narrow = ops::to(&hidden, dtype);
                ops::mul(&self.weight, &narrow)
            };
            hidden = {
                let opened = {
                    let wide = ops::to(gate, DType::Float32);
                    ops::silu(&wide)
                };
                ops::mul(&hidden, &opened)
            };
            let out = ops::to(&hidden, dtype);
            drop((hidden, variance));
            out
        })
    }
}
