//! Rotary position embeddings.

use plimsoll_catalog::software::rules;

use super::scope::Scope;
use crate::ops::{self, Pointwise};
use crate::tensor::{DType, Geometry, ModuleId, Tensor};

/// `LlamaRotaryEmbedding`: two float32 buffers, and the cosines and sines of every position.
#[derive(Debug)]
pub struct RotaryEmbedding {
    inv_freq: Tensor,
    /// `original_inv_freq`: kept for rope types that change the frequencies, held by all; before it was a buffer, on the host.
    _original_inv_freq: Option<Tensor>,
    /// Whether cosines and sines are scaled (`attention_scaling`), which makes others of them.
    scaled: bool,
    module: ModuleId,
}

/// How the tables of three axes (time, height, width) become one (`recomposition_frequencies`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axes {
    /// So many angles of each, one axis after the other (`mrope_section`, Qwen2.5-VL).
    Sections([u64; 3]),
    /// Of height and of width so many are written over every third of time's (Qwen3-VL).
    Interleaved([u64; 2]),
}

impl Axes {
    /// What cosines and sines were computed of before [`rules::VL_AXES_JOINED`]: all axes, whose sections layers picked, or time's
    /// with the others written over it.
    fn angles(self, freqs: &Tensor) -> Tensor {
        let angles = match self {
            Self::Sections(_) => freqs.clone(),
            Self::Interleaved(lengths) => written_over(&ops::select(freqs, 0), lengths),
        };
        ops::cat(&[&angles, &angles], -1)
    }

    /// `[batch, seq, head_dim]` out of `[3, batch, seq, head_dim / 2]`.
    fn put_together(self, tables: &Tensor) -> Tensor {
        // One is as large as the other.
        let one = ops::select(tables, 0);
        let half = match self {
            Self::Sections(lengths) => {
                let parts = lengths.map(|length| ops::narrow(&one, -1, length));
                ops::cat(&[&parts[0], &parts[1], &parts[2]], -1)
            }
            Self::Interleaved(lengths) => written_over(&one, lengths),
        };
        ops::cat(&[&half, &half], -1)
    }
}

/// `freqs_thw[..., offset : 3 * length : 3] = freq[axis, ..., offset : 3 * length : 3]` of height and width.
fn written_over(time: &Tensor, lengths: [u64; 2]) -> Tensor {
    for (offset, length) in [1, 2].into_iter().zip(lengths) {
        let end = length.saturating_mul(3).min(time.size(-1));
        let third = ops::narrow(time, -1, end.saturating_sub(offset).div_ceil(3));
        ops::copy_over(&third, &third);
    }
    time.clone()
}

/// `apply_multimodal_rotary_pos_emb`: what a layer picks out of tables of all axes, each axis' sections in both halves.
pub fn picked_sections(table: &Tensor) -> Tensor {
    let one = ops::select(table, 0);
    ops::rearrangement(table.cx(), ops::Rearrangement::Cat, one.dims(), table.dtype())
}

impl RotaryEmbedding {
    /// For heads of `head_dim` (the rotated part of them).
    pub fn new(scope: &Scope, head_dim: u64) -> Self {
        Self {
            inv_freq: scope.buffer(&[head_dim / 2]),
            _original_inv_freq: scope
                .cx()
                .machine()
                .rules
                .has(&rules::FREQUENCIES_TWICE)
                .then(|| scope.buffer(&[head_dim / 2])),
            scaled: true,
            module: scope.module(),
        }
    }

    /// That of a layer of older transformers: one buffer, and nothing is scaled.
    pub fn unscaled(scope: &Scope, head_dim: u64) -> Self {
        let inv_freq = scope.buffer(&[head_dim / 2]);
        Self { inv_freq, _original_inv_freq: None, scaled: false, module: scope.module() }
    }

    /// `forward(x, position_ids)`: cosines and sines `[1, seq, head_dim]` in x's dtype, under `no_grad` and outside
    /// autocast.
    pub fn forward(&self, x: &Tensor, position_ids: &Tensor) -> (Tensor, Tensor) {
        self.tables(x.dtype(), position_ids, true)
    }

    /// GPT-OSS's: `[1, seq, head_dim / 2]`, each angle once.
    pub fn forward_once(&self, x: &Tensor, position_ids: &Tensor) -> (Tensor, Tensor) {
        self.tables(x.dtype(), position_ids, false)
    }

    /// OLMo's: cosines and sines stay in float32.
    pub fn forward_fp32(&self, position_ids: &Tensor) -> (Tensor, Tensor) {
        self.tables(DType::Float32, position_ids, true)
    }

    /// DeepSeek V2's and Llama 4's: one complex number `[1, seq, head_dim / 2]` for each angle.
    pub fn forward_complex(&self, position_ids: &Tensor) -> Tensor {
        self.turned(position_ids, |freqs| {
            let freqs_cis = ops::polar(freqs);
            ops::mul_scalar(&freqs_cis)
        })
    }

    /// Of positions along three axes, `[3, batch, seq]` (Qwen2.5-VL's and Qwen3-VL's): `[batch, seq, head_dim]`.
    pub fn forward_axes(&self, x: &Tensor, position_ids: &Tensor, axes: Axes) -> (Tensor, Tensor) {
        self.turned(position_ids, |freqs| {
            if !x.cx().machine().rules.has(&rules::VL_AXES_JOINED) {
                return self.tables_of(&axes.angles(freqs), x.dtype());
            }
            let table = |op| {
                let values = ops::each(op, freqs, DType::Float32);
                ops::mul_scalar(&values)
            };
            let (mut cos, mut sin) = (table(Pointwise::Cos), table(Pointwise::Sin));
            sin = axes.put_together(&sin);
            cos = axes.put_together(&cos);
            (ops::to(&cos, x.dtype()), ops::to(&sin, x.dtype()))
        })
    }

    fn tables(&self, dtype: DType, position_ids: &Tensor, twice: bool) -> (Tensor, Tensor) {
        self.turned(position_ids, |freqs| {
            let angles = if twice { ops::cat(&[freqs, freqs], -1) } else { freqs.clone() };
            self.tables_of(&angles, dtype)
        })
    }

    fn tables_of(&self, angles: &Tensor, dtype: DType) -> (Tensor, Tensor) {
        let table = |op| {
            let values = ops::each(op, angles, DType::Float32);
            if self.scaled { ops::mul_scalar(&values) } else { values }
        };
        let (cos, sin) = if self.scaled && !angles.cx().machine().rules.has(&rules::ANGLES_SCALED_IN_TURN) {
            let values = [Pointwise::Cos, Pointwise::Sin].map(|op| ops::each(op, angles, DType::Float32));
            let [cos, sin] = values.map(|values| ops::mul_scalar(&values));
            (cos, sin)
        } else {
            (table(Pointwise::Cos), table(Pointwise::Sin))
        };
        (ops::to(&cos, dtype), ops::to(&sin, dtype))
    }

    /// What `make` makes of every position's angles, under `no_grad` and outside autocast.
    fn turned<T>(&self, position_ids: &Tensor, make: impl FnOnce(&Tensor) -> T) -> T {
        let cx = position_ids.cx();
        cx.within(self.module, || {
            cx.no_grad(|| {
                if cx.machine().rules.has(&rules::ANGLES_MULTIPLIED) {
                    let freqs = {
                        let positions = ops::to(&ops::unsqueeze(position_ids, -1), DType::Float32);
                        ops::mul(&positions, &self.inv_freq)
                    };
                    return make(&freqs);
                }
                // All but the tokens: samples, and before them the axes where there are several.
                let lead = position_ids.geometry().rank() - 1;
                let column = ops::unsqueeze(&self.inv_freq, 1);
                let frequencies = (0..lead).fold(column, |frequencies, _| ops::unsqueeze(&frequencies, 0));
                let mut sizes = position_ids.dims()[..lead].to_vec();
                sizes.extend([self.inv_freq.size(0), 1]);
                let expanded = ops::expand(&frequencies, &sizes);
                let positions = ops::to(&ops::unsqueeze(position_ids, -2), DType::Float32);
                cx.with_autocast(None, || {
                    let product = ops::matmul(&expanded, &positions);
                    let freqs = ops::transpose(&product, -2, -1);
                    make(&freqs)
                })
            })
        })
    }
}

/// `apply_rotary_pos_emb` of GPT-OSS: the halves are turned one by one and put together.
pub fn apply_rotary_pos_emb_in_halves(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    if by_liger(q) {
        // Angles that are a product turned round lie so, as do what is made of them number by number, and Liger copies them.
        let lying = |table: &Tensor| {
            let turned = Geometry::contiguous(&[table.size(0), table.size(2), table.size(1)]).transposed(1, 2);
            let multiplied = table.cx().machine().rules.has(&rules::ANGLES_MULTIPLIED);
            if multiplied { table.clone() } else { table.unsafe_view_as(turned) }
        };
        return ops::liger_rope(q, k, &lying(cos), &lying(sin));
    }
    let (cos, sin) = (ops::unsqueeze(cos, 1), ops::unsqueeze(sin, 1));
    let rotate = |x: &Tensor| {
        let halves = ops::split(x, x.size(-1) / 2, -1);
        let first = ops::sub(&ops::mul(&halves[0], &cos), &ops::mul(&halves[1], &sin));
        let second = ops::add(&ops::mul(&halves[1], &cos), &ops::mul(&halves[0], &sin));
        ops::cat(&[&first, &second], -1)
    };
    (rotate(q), rotate(k))
}

/// `torch.cat((-x2, x1), dim=-1)`.
fn rotate_half(x: &Tensor) -> Tensor {
    let half = x.size(-1) / 2;
    let first = ops::narrow(x, -1, half);
    let second = ops::narrow(x, -1, x.size(-1) - half);
    ops::cat(&[&ops::neg(&second), &first], -1)
}

/// ModernBERT's `apply_rotary_pos_emb`: computed in float32, brought back at the end.
pub fn apply_rotary_pos_emb_float(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let (cos, sin) = (ops::unsqueeze(cos, 1), ops::unsqueeze(sin, 1));
    let rotate = |x: &Tensor| {
        let straight = {
            let whole = ops::to(x, DType::Float32);
            ops::mul(&whole, &cos)
        };
        let turned = {
            let half = {
                let whole = ops::to(x, DType::Float32);
                rotate_half(&whole)
            };
            ops::mul(&half, &sin)
        };
        ops::add(&straight, &turned)
    };
    let (query, key) = (rotate(q), rotate(k));
    (ops::to(&query, q.dtype()), ops::to(&key, q.dtype()))
}

/// Whether `liger_rotary_pos_emb` stands in the place of the model's `apply_rotary_pos_emb`.
fn by_liger(x: &Tensor) -> bool {
    x.cx().liger().is_some_and(|liger| liger.rope)
}

/// `apply_rotary_pos_emb(q, k, cos, sin)`.
pub fn apply_rotary_pos_emb(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    if by_liger(q) {
        return ops::liger_rope(q, k, cos, sin);
    }
    let (cos, sin) = (ops::unsqueeze(cos, 1), ops::unsqueeze(sin, 1));
    (rotate(q, &cos, &sin), rotate(k, &cos, &sin))
}

/// `apply_rotary_pos_emb(x, cos, sin, unsqueeze_dim=2)` of Gemma 4: queries and keys one by one, `[batch, seq, heads, dim]`.
pub fn apply_rotary_pos_emb_to(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    rotate(x, &ops::unsqueeze(cos, 2), &ops::unsqueeze(sin, 2))
}

/// `(x * cos) + (rotate_half(x) * sin)`.
fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    let straight = ops::mul(x, cos);
    let turned = ops::mul(&rotate_half(x), sin);
    ops::add(&straight, &turned)
}

/// `apply_rotary_pos_emb` of the families that turn only the first `cos.size(-1)` dimensions of a head and put the rest
/// back behind them.
pub fn apply_partial_rotary_pos_emb(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    if by_liger(q) {
        return ops::liger_rope(q, k, cos, sin);
    }
    let turned = cos.size(-1);
    let split = |x: &Tensor| (ops::first_of_last(x, turned), ops::narrow(x, -1, x.size(-1) - turned));
    let (q_rot, q_pass) = split(q);
    let (k_rot, k_pass) = split(k);
    let (q_embed, k_embed) = apply_rotary_pos_emb(&q_rot, &k_rot, cos, sin);
    let q = ops::cat(&[&q_embed, &q_pass], -1);
    drop(q_embed);
    (q, ops::cat(&[&k_embed, &k_pass], -1))
}

/// `apply_rotary_pos_emb` of Phi-3: each of the two is put together before the other is turned, even where the rest
/// behind the turned part is empty.
pub fn apply_rotary_pos_emb_phi3(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    if by_liger(q) {
        return ops::liger_rope(q, k, cos, sin);
    }
    let (cos, sin) = (ops::unsqueeze(cos, 1), ops::unsqueeze(sin, 1));
    let split = |x: &Tensor| (ops::first_of_last(x, cos.size(-1)), ops::narrow(x, -1, x.size(-1) - cos.size(-1)));
    let (q_rot, q_pass) = split(q);
    let (k_rot, k_pass) = split(k);
    let whole = |rot: &Tensor, pass: &Tensor| {
        let turned = rotate(rot, &cos, &sin);
        ops::cat(&[&turned, pass], -1)
    };
    (whole(&q_rot, &q_pass), whole(&k_rot, &k_pass))
}

/// `torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)`.
pub fn rotate_every_two(x: &Tensor) -> Tensor {
    let first = ops::every_second(x);
    let second = ops::every_second(x);
    let pairs = ops::stack_last(&ops::neg(&second), &first);
    ops::view(&pairs, x.dims())
}

/// `apply_rotary_pos_emb` of GLM, which turns every dimension with its neighbour: cosines and sines are spread anew in
/// every layer, and the rest of a head is put back even where there is none.
pub fn apply_neighbours_rotary_pos_emb(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let (cos, sin) = (spread(&ops::unsqueeze(cos, 1)), spread(&ops::unsqueeze(sin, 1)));
    let turned = cos.size(-1);
    let split = |x: &Tensor| (ops::first_of_last(x, turned), ops::narrow(x, -1, x.size(-1) - turned));
    let (q_rot, q_pass) = split(q);
    let (k_rot, k_pass) = split(k);
    let rotate = |x: &Tensor| {
        let straight = ops::mul(x, &cos);
        let turned = ops::mul(&rotate_every_two(x), &sin);
        ops::add(&straight, &turned)
    };
    let (q_embed, k_embed) = (rotate(&q_rot), rotate(&k_rot));
    let q = ops::cat(&[&q_embed, &q_pass], -1);
    drop(q_embed);
    (q, ops::cat(&[&k_embed, &k_pass], -1))
}

/// `apply_rotary_pos_emb_interleave` of DeepSeek V3: every dimension with its neighbour, the even ones' results before the
/// odd ones'. Before [`rules::NEIGHBOURS_IN_PLACE`] they were put in this order first.
pub fn apply_rotary_pos_emb_interleave(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    if !q.cx().machine().rules.has(&rules::NEIGHBOURS_IN_PLACE) {
        let ordered = |x: &Tensor| {
            let [batch, heads, seq, dim] = [0, 1, 2, 3].map(|axis| x.size(axis));
            let pairs = ops::view(x, &[batch, heads, seq, dim / 2, 2]);
            ops::reshape(&ops::transpose(&pairs, 4, 3), &[batch, heads, seq, dim])
        };
        return apply_rotary_pos_emb(&ordered(q), &ordered(k), cos, sin);
    }
    let half = |table: &Tensor| ops::unsqueeze(&ops::narrow(table, -1, table.size(-1) / 2), 1);
    let (cos, sin) = (half(cos), half(sin));
    let pairs = |x: &Tensor| (ops::every_second(x), ops::every_second(x));
    let (q_pairs, k_pairs) = (pairs(q), pairs(k));
    let turned = |(even, odd): &(Tensor, Tensor)| {
        let first = {
            let straight = ops::mul(even, &cos);
            let crossed = ops::mul(odd, &sin);
            ops::sub(&straight, &crossed)
        };
        let second = {
            let straight = ops::mul(odd, &cos);
            let crossed = ops::mul(even, &sin);
            ops::add(&straight, &crossed)
        };
        ops::cat(&[&first, &second], -1)
    };
    (turned(&q_pairs), turned(&k_pairs))
}

/// `table[..., :half].repeat_interleave(2, dim=-1)`.
fn spread(table: &Tensor) -> Tensor {
    let half = ops::narrow(table, -1, table.size(-1) / 2);
    let mut sizes = half.dims().to_vec();
    sizes.push(2);
    let wide = ops::clone(&ops::expand(&ops::unsqueeze(&half, -1), &sizes));
    ops::view(&wide, table.dims())
}

/// `apply_rotary_pos_emb` of OLMo: turned in float32, then back to the dtype they came in.
pub fn apply_rotary_pos_emb_fp32(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let (q_embed, k_embed) = apply_rotary_pos_emb(q, k, cos, sin);
    (ops::to(&q_embed, q.dtype()), ops::to(&k_embed, k.dtype()))
}
