//! Swin's layer: attention within windows of the image, every second time shifted by half a window.

use plimsoll_catalog::software::rules;
use plimsoll_torch::nn::{Activation, DropPath, EncoderAttention, LayerNorm, Linear, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{DType, ModuleId, Tensor};

use super::swin_windows::{shift_mask, window_partition, window_reverse};

/// What one layer is made of.
#[derive(Clone, Copy, Debug)]
pub struct Block<'c> {
    /// Features of a patch.
    pub width: u64,
    /// Attention heads.
    pub heads: u64,
    /// Patches along a window.
    pub window: u64,
    /// Width within the MLP.
    pub inner: u64,
    /// Whether queries, keys and values have a bias.
    pub bias: bool,
    /// Whether the windows are shifted by half a window.
    pub shifted: bool,
    /// `hidden_dropout_prob`.
    pub dropout: f64,
    /// Probability of dropping a sample's attention.
    pub drop_path: f64,
    /// `hidden_act`.
    pub act: &'c str,
}

/// `SwinRelativePositionBias`: one number a head for every distance within a window.
#[derive(Debug)]
struct RelativePositionBias {
    table: Tensor,
    index: Tensor,
    area: u64,
    module: ModuleId,
}

impl RelativePositionBias {
    fn new(scope: &Scope, heads: u64, window: u64) -> Self {
        let (distances, area) = (2 * window - 1, window * window);
        Self {
            table: scope.parameter(&[distances * distances, heads]),
            index: scope.buffer_of(&[area * area], DType::Int64),
            area,
            module: scope.module(),
        }
    }

    /// `[1, heads, area, area]`
    fn forward(&self) -> Tensor {
        self.table.cx().within(self.module, || {
            let bias = ops::index(&self.table, &[&self.index]);
            let bias = ops::view(&bias, &[self.area, self.area, bias.size(1)]);
            ops::unsqueeze(&ops::contiguous(&ops::permute(&bias, &[2, 0, 1])), 0)
        })
    }
}

/// `SwinAttention`.
#[derive(Debug)]
struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    relative_position_bias: RelativePositionBias,
    core: EncoderAttention,
    heads: u64,
    module: ModuleId,
}

impl Attention {
    /// Over windows `[batch * windows, area, width]` with the shift's mask `[windows, area, area]`.
    fn forward(&self, hidden: &Tensor, shift: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let (count, area, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
            let shape = [count, area, self.heads, width / self.heads];
            let split = |projected: &Tensor| ops::transpose(&ops::view(projected, &shape), 1, 2);
            let heads = |linear: &Linear| split(&linear.forward(hidden));
            let rules = hidden.cx().machine().rules;
            // Queries were projected first and split last.
            let late = !rules.has(&rules::ENCODERS_SPLIT_QUERIES_FIRST);
            let projected = self.q_proj.forward(hidden);
            let early = (!late).then(|| split(&projected));
            let key = heads(&self.k_proj);
            let value = heads(&self.v_proj);
            let query = early.unwrap_or_else(|| split(&projected));
            drop(projected);
            if !rules.has(&rules::SWIN_SHARES_ATTENTION) {
                return (self.own(hidden, [query, key, value], shift), None);
            }
            let bias = self.relative_position_bias.forward();
            let mut named = None;
            let combined = match shift {
                None => bias.clone(),
                Some(shift) => {
                    let windows = shift.size(0);
                    let expanded = ops::unsqueeze(&ops::unsqueeze(shift, 1), 0);
                    let expanded = ops::expand(&expanded, &[count / windows, windows, 1, area, area]);
                    let mask = ops::reshape(&expanded, &[count, 1, area, area]);
                    let combined = ops::add(&bias, &mask);
                    named = Some(mask);
                    combined
                }
            };
            let (mut out, weights) = self.core.forward([&query, &key, &value], Some(&combined), None, false);
            out = ops::contiguous(&ops::reshape(&out, &[count, area, width]));
            out = self.o_proj.forward(&out);
            drop((bias, combined, named));
            (out, weights)
        })
    }
}

impl Attention {
    /// `SwinSelfAttention` and `SwinSelfOutput`: scores with the bias, then the mask, added, in the dtype they have.
    fn own(&self, hidden: &Tensor, [query, key, value]: [Tensor; 3], shift: Option<&Tensor>) -> Tensor {
        let (count, area, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
        let out = {
            let mut scores = ops::matmul(&query, &ops::transpose(&key, -1, -2));
            scores = ops::div_scalar(&scores);
            let bias = self.relative_position_bias.forward();
            scores = ops::add(&scores, &bias);
            if let Some(shift) = shift {
                let windows = shift.size(0);
                scores = ops::view(&scores, &[count / windows, windows, self.heads, area, area]);
                scores = ops::add(&scores, &ops::unsqueeze(&ops::unsqueeze(shift, 1), 0));
                scores = ops::view(&scores, &[count, self.heads, area, area]);
            }
            let mut probs = ops::softmax(&scores);
            probs = ops::dropout(&probs, self.core.dropout);
            let mut context = ops::matmul(&probs, &value);
            context = ops::contiguous(&ops::permute(&context, &[0, 2, 1, 3]));
            let out = ops::view(&context, &[count, area, width]);
            drop((query, key, value, scores, bias, probs, context));
            out
        };
        self.o_proj.forward(&out)
    }
}

/// `SwinLayer`.
#[derive(Debug)]
pub struct Layer {
    attention: Attention,
    layernorm_before: LayerNorm,
    layernorm_after: LayerNorm,
    act: Activation,
    fc1: Linear,
    fc2: Linear,
    dropout: (f64, ModuleId),
    drop_path: DropPath,
    window: u64,
    shifted: bool,
    mlp: ModuleId,
    module: ModuleId,
}

impl Layer {
    /// `SwinLayer(config, ...)`; `None` for an activation nobody knows.
    pub fn new(scope: &Scope, block: &Block<'_>, core: &EncoderAttention) -> Option<Self> {
        let &Block { width, heads, window, inner, bias, .. } = block;
        let place = scope.child("attention");
        let project = |name, bias| Linear::new(&place.child(name), width, width, bias);
        let norm = |name| LayerNorm::new(&scope.child(name), width, true);
        // A model comes to the card in the order its modules were made.
        let own = !scope.cx().machine().rules.has(&rules::SWIN_SHARES_ATTENTION);
        let first = own.then(|| norm("layernorm_before"));
        let biases = || RelativePositionBias::new(&place.child("relative_position_bias"), heads, window);
        let (q_proj, k_proj, v_proj) = (project("q_proj", bias), project("k_proj", bias), project("v_proj", bias));
        let early = own.then(biases);
        let o_proj = project("o_proj", true);
        let attention = Attention {
            q_proj,
            k_proj,
            v_proj,
            o_proj,
            relative_position_bias: early.unwrap_or_else(biases),
            core: core.clone(),
            heads,
            module: place.module(),
        };
        let mlp = scope.child("mlp");
        Some(Self {
            attention,
            layernorm_before: first.unwrap_or_else(|| norm("layernorm_before")),
            layernorm_after: norm("layernorm_after"),
            act: Activation::new(&mlp.child("activation_fn"), block.act)?,
            fc1: Linear::new(&mlp.child("fc1"), width, inner, true),
            fc2: Linear::new(&mlp.child("fc2"), inner, width, true),
            dropout: (block.dropout, scope.child("dropout").module()),
            drop_path: DropPath::new(&scope.child("drop_path"), block.drop_path),
            window,
            shifted: block.shifted,
            mlp: mlp.module(),
            module: scope.module(),
        })
    }

    fn feed_forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.mlp, || {
            let mut hidden = self.fc1.forward(x);
            hidden = self.act.forward(&hidden);
            hidden = self.fc2.forward(&hidden);
            hidden
        })
    }

    /// The next hidden states of an image with `side` patches along a side; behind them the attention probabilities,
    /// where there are some.
    pub fn forward(&self, shortcut: &Tensor, side: u64) -> Vec<Tensor> {
        let cx = shortcut.cx();
        let dropout = |x: &Tensor| cx.within(self.dropout.1, || ops::dropout(x, self.dropout.0));
        cx.within(self.module, || {
            let (batch, width, window) = (shortcut.size(0), shortcut.size(2), self.window);
            // A window that covers the image has nowhere to go.
            let shifted = self.shifted && side > window && window > 1;
            let cyclic_shift = |x: &Tensor| if shifted { ops::roll(x, 2) } else { x.clone() };
            let mut hidden = self.layernorm_before.forward(shortcut);
            hidden = ops::view(&hidden, &[batch, side, side, width]);
            let padded = side.next_multiple_of(window);
            hidden = ops::pad(&hidden, &[batch, padded, padded, width]);
            // `shifted_hidden_states` and `shifted_windows` are names to the end of the layer where Swin has attention of its own.
            let names = |x: &Tensor| (!cx.machine().rules.has(&rules::SWIN_SHARES_ATTENTION)).then(|| x.clone());
            let (windows, shifted_hidden) = {
                let shifted = cyclic_shift(&hidden);
                (window_partition(&shifted, window), names(&shifted))
            };
            let mask = shifted.then(|| shift_mask(cx, padded, window, hidden.dtype()));

            let (mut attended, weights) = self.attention.forward(&windows, mask.as_ref());
            attended = dropout(&attended);
            let (mut image, shifted_windows) = {
                let reversed = window_reverse(&attended, window, padded);
                (cyclic_shift(&reversed), names(&reversed))
            };
            if padded != side {
                image = ops::contiguous(&ops::narrow(&ops::narrow(&image, 1, side), 2, side));
            }
            image = ops::view(&image, &[batch, side * side, width]);
            hidden = {
                let branch = self.drop_path.forward(&image);
                ops::add(shortcut, &branch)
            };

            let residual = hidden.clone();
            hidden = self.layernorm_after.forward(&hidden);
            // `intermediate` and `output` were modules of their own: what the first was given went before the second ran.
            let mut made = None;
            if cx.machine().rules.has(&rules::SWIN_SHARES_ATTENTION) {
                hidden = self.feed_forward(&hidden);
            } else {
                hidden = cx.within(self.mlp, || self.act.forward(&self.fc1.forward(&hidden)));
                hidden = cx.within(self.mlp, || self.fc2.forward(made.insert(hidden.clone())));
            }
            hidden = {
                let dropped = dropout(&hidden);
                ops::add(&dropped, &residual)
            };
            drop((windows, mask, attended, image, residual, shifted_hidden, shifted_windows, made));
            [Some(hidden), weights].into_iter().flatten().collect()
        })
    }
}
