//! What a layer of linear attention remembers of a generation (`LinearAttentionLayer` in transformers' `cache_utils.py`; before it,
//! `Qwen3NextDynamicCache` and `Qwen3_5DynamicCache` in `models/{qwen3_next,qwen3_5}/modeling_*.py`).

use plimsoll_catalog::software::rules;
use plimsoll_torch::ops::{self, Fill};
use plimsoll_torch::tensor::{Kind, PastLinear, Tensor};

/// What the layer remembers of a generation, taken out of the cache until it is kept again.
pub(super) struct Remembered {
    at: usize,
    pub layer: PastLinear,
}

impl Remembered {
    /// `None` where nothing is remembered.
    pub fn take(hidden: &Tensor) -> Option<Self> {
        hidden.cx().take_past_linear().map(|(at, layer)| Self { at, layer })
    }

    /// `has_previous_state`.
    pub const fn is_going_on(&self) -> bool {
        self.layer.state.is_some()
    }

    /// The same before [`rules::CONVOLVED_BY_FUNCTION`]: the last places are cut out by a pad of less than nothing, and the cache has
    /// them as they are before [`rules::LINEAR_STATES_COPIED`].
    pub fn cut_out(&mut self, mixed: &Tensor, kernel: u64) -> Tensor {
        let [batch, channels, seq] = [0, 1, 2].map(|axis| mixed.size(axis));
        let sizes = [batch, channels, kernel];
        let cx = mixed.cx();
        let cut = if seq < kernel { ops::pad(mixed, &sizes) } else { ops::clone(&ops::narrow(mixed, 2, kernel)) };
        let conv = if cx.machine().rules.has(&rules::LINEAR_STATES_COPIED) {
            let conv = cx.counting_as(Kind::KeyValue, || ops::fill(cx, Fill::ZerosLike, &sizes, mixed.dtype()));
            ops::copy_over(&conv, &cut);
            conv
        } else {
            cut.clone()
        };
        self.layer.conv = Some(conv);
        cut
    }

    pub const fn state(&self) -> Option<&Tensor> {
        self.layer.state.as_ref()
    }

    /// `update_conv_state` of a prompt, padded where it is shorter than the window of `kernel`.
    pub fn begun(&mut self, mixed: &Tensor, kernel: u64) -> Tensor {
        let [batch, channels, seq] = [0, 1, 2].map(|axis| mixed.size(axis));
        let sizes = [batch, channels, kernel];
        let cx = mixed.cx();
        let conv = cx.counting_as(Kind::KeyValue, || ops::fill(cx, Fill::Zeros, &sizes, mixed.dtype()));
        let whole = if seq < kernel { ops::pad(mixed, &sizes) } else { mixed.clone() };
        ops::copy_over(&conv, &ops::narrow(&whole, 2, kernel));
        self.layer.conv = Some(conv);
        whole
    }

    /// `update_recurrent_state`.
    pub fn keep(mut self, state: &Tensor) {
        let cx = state.cx();
        let rules = cx.machine().rules;
        if !rules.has(&rules::LINEAR_STATES_COPIED) {
            self.layer.state = Some(state.clone());
            cx.put_past_linear(self.at, self.layer);
            return;
        }
        let own = if rules.has(&rules::LINEAR_STATES_AS_GIVEN) { None } else { self.layer.conv.as_ref() };
        let dtype = own.map_or(state.dtype(), Tensor::dtype);
        let made = || cx.counting_as(Kind::KeyValue, || ops::fill(cx, Fill::ZerosLike, state.dims(), dtype));
        let kept = self.layer.state.take().unwrap_or_else(made);
        ops::copy_over(&kept, state);
        self.layer.state = Some(kept);
        cx.put_past_linear(self.at, self.layer);
    }
}
