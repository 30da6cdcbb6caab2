//! The attention of a transformers decoder: `sdpa_attention_forward` and `eager_attention_forward`.

use plimsoll_catalog::software::{Rule, Rules, Version, rules};
use plimsoll_scenario::Attention;

use crate::ops::{self, SdpaRules};
use crate::tensor::Tensor;

/// The PyTorch whose kernels take grouped heads (`_is_torch_greater_or_equal_than_2_5` in `sdpa_attention.py`).
const GROUPED_TORCH: Version = Version::new(2, 5);

/// In what dtype eager attention has its probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probabilities {
    /// The softmax runs in float32 and is cast back (Llama).
    Float32,
    /// It runs in the scores' dtype and is cast to the values' (GPT-2): under autocast they differ.
    Cast,
    /// It runs in the scores' dtype, and stays as autocast leaves it (Llama 4).
    AsTheyAre,
}

/// What a family's attention does between its projections.
#[derive(Clone, Debug)]
pub struct AttentionCore {
    /// sdpa or eager.
    pub implementation: Attention,
    /// Which kernels the card has.
    pub rules: SdpaRules,
    /// Dropout on the probabilities.
    pub dropout: f64,
    /// In what dtype eager attention has its probabilities.
    pub probabilities: Probabilities,
    /// Whether eager attention makes its output contiguous (the Llama way; sdpa's always is).
    pub eager_contiguous: bool,
    /// Since when it is the attention that all models share, of the last that had classes of their own: those repeat grouped heads
    /// whatever is given, and copy queries, keys and values where there is a mask.
    pub shared_since: Option<&'static Rule>,
    /// Whether eager attention of a class of the model's own adds the mask to its scores in their place.
    pub adds_in_place: bool,
}

impl AttentionCore {
    /// Whether it is a class of the model's own, from before all shared one.
    pub fn is_own(&self, software: Rules) -> bool {
        !software.has(self.shared_since.unwrap_or(&rules::SHARED_SDPA))
    }

    /// What such a class makes of queries, keys and values before it attends: grouped heads are repeated, and where there is a mask for the
    /// kernel all three are copied. They take the names of what they were made of.
    pub fn of_own(&self, [mut q, mut k, mut v]: [Tensor; 3], mask: Option<&Tensor>) -> [Tensor; 3] {
        let groups = q.size(1) / k.size(1).max(1);
        k = repeat_kv(&k, groups);
        v = repeat_kv(&v, groups);
        if mask.is_some() && self.implementation == Attention::Sdpa {
            q = ops::contiguous(&q);
            k = ops::contiguous(&k);
            v = ops::contiguous(&v);
        }
        [q, k, v]
    }

    /// From `[batch, heads, seq, dim]` to `[batch, seq, heads, dim]`, and the probabilities that eager attention
    /// returns beside it: the layer holds them until it is done.
    pub fn forward(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        self.run(q, k, v, mask, false)
    }

    /// [`AttentionCore::forward`], eager scores squashed by a tanh (Gemma 2's `softcap`; sdpa leaves it out).
    pub fn forward_capped(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
    ) -> (Tensor, Option<Tensor>) {
        self.run(q, k, v, mask, true)
    }

    /// [`AttentionCore::forward`] of a class of a model's own, which hands the kernel what it has without copying it.
    pub fn forward_as_given(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
    ) -> (Tensor, Option<Tensor>) {
        match self.implementation {
            Attention::Sdpa => {
                let out = self.kernel(q, k, v, mask, q.size(2) > 1);
                (ops::contiguous(&ops::transpose(&out, 1, 2)), None)
            }
            Attention::Eager => {
                let (out, weights) = self.eager(q, k, v, mask, Scores::AsTheyAre);
                (out, Some(weights))
            }
        }
    }

    fn run(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, cap: bool) -> (Tensor, Option<Tensor>) {
        match self.implementation {
            Attention::Sdpa => (self.sdpa(q, k, v, mask), None),
            Attention::Eager => {
                let scores = if cap { Scores::Capped } else { Scores::Scaled };
                let (out, weights) = self.eager(q, k, v, mask, scores);
                (out, Some(weights))
            }
        }
    }

    fn sdpa(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let (mut q, mut k, mut v) = (q.clone(), k.clone(), v.clone());
        let software = q.cx().machine().rules;
        let groups = q.size(1) / k.size(1).max(1);
        // use_gqa_in_sdpa(): grouped heads go to the kernel only without a mask, and by now with heads of at most 256.
        let own = self.is_own(software);
        let takes_groups = !own && software.has(&rules::SDPA_GROUPS) && software.torch() >= GROUPED_TORCH;
        let any = !software.has(&rules::SDPA_GROUPS_OF_256);
        let grouped = takes_groups && mask.is_none() && (any || k.size(-1) <= 256);
        let [batch, heads, queries, dim] = [0, 1, 2, 3].map(|axis| q.size(axis));
        let several = queries > 1;
        // `pack_gqa`: the heads of a group are queries of one head.
        let packed = groups > 1 && !grouped && !several && !own && software.has(&rules::SINGLE_QUERIES_PACKED);
        if packed {
            q = ops::reshape(&q, &[batch, heads / groups, groups, dim]);
        } else if groups > 1 && !grouped {
            k = repeat_kv(&k, groups);
            v = repeat_kv(&v, groups);
        }
        // Once for every call, before that only with a mask, now no longer.
        let copies = if own { mask.is_some() } else { !software.has(&rules::SDPA_AS_GIVEN) };
        if copies {
            (q, k, v) = (ops::contiguous(&q), ops::contiguous(&k), ops::contiguous(&v));
        }
        // `attention_mask[:, :, :, : key.shape[-2]]`: one that is made without being given any may be longer.
        let cut = mask.filter(|mask| mask.size(-1) > k.size(2)).map(|mask| ops::narrow(mask, -1, k.size(2)));
        let mut out = self.kernel(&q, &k, &v, cut.as_ref().or(mask), several);
        if packed {
            out = ops::reshape(&out, &[batch, heads, queries, v.size(-1)]);
        }
        ops::contiguous(&ops::transpose(&out, 1, 2))
    }

    /// `several` says whether there are more queries than one: those look at what was before them where no mask says otherwise.
    fn kernel(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, several: bool) -> Tensor {
        ops::scaled_dot_product_attention(&self.rules, q, k, v, mask, self.dropout, several && mask.is_none())
    }

    fn eager(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, scores: Scores) -> (Tensor, Tensor) {
        let groups = q.size(1) / k.size(1).max(1);
        let (keys, values) = (repeat_kv(k, groups), repeat_kv(v, groups));
        let mut weights = ops::matmul(q, &ops::transpose(&keys, 2, 3));
        if scores != Scores::AsTheyAre {
            weights = ops::mul_scalar(&weights);
        }
        if scores == Scores::Capped {
            weights = ops::div_scalar(&weights);
            weights = ops::tanh(&weights);
            weights = ops::mul_scalar(&weights);
        }
        weights = match mask {
            Some(mask) if self.adds_in_place && self.is_own(q.cx().machine().rules) => ops::add_in_place(weights, mask),
            Some(mask) => ops::add(&weights, mask),
            None => weights,
        };
        match self.probabilities {
            Probabilities::Float32 => weights = ops::to(&ops::softmax_fp32(&weights), q.dtype()),
            Probabilities::Cast => {
                weights = ops::softmax(&weights);
                weights = ops::to(&weights, v.dtype());
            }
            Probabilities::AsTheyAre => weights = ops::softmax(&weights),
        }
        weights = ops::dropout(&weights, self.dropout);
        let mut out = ops::matmul(&weights, &values);
        out = ops::transpose(&out, 1, 2);
        if self.eager_contiguous {
            out = ops::contiguous(&out);
        }
        (out, weights)
    }
}

/// What eager attention does to its scores before the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scores {
    /// The queries were scaled before.
    AsTheyAre,
    /// Scaled here.
    Scaled,
    /// And squashed by a tanh.
    Capped,
}

/// `repeat_kv`: every key and value head `n` times.
pub fn repeat_kv(x: &Tensor, n: u64) -> Tensor {
    if n == 1 {
        return x.clone();
    }
    let [b, h, s, d] = [x.size(0), x.size(1), x.size(2), x.size(3)];
    // x[:, :, None, :, :]
    let outer = ops::unsqueeze(&ops::whole(&ops::whole(x)), 2);
    let all = ops::whole(&ops::whole(&outer));
    ops::reshape(&ops::expand(&all, &[b, h, n, s, d]), &[b, h * n, s, d])
}
