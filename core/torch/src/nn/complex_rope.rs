//! Rotary embeddings that turn pairs of neighbours as complex numbers (`apply_rotary_emb` of DeepSeek V2 and of Llama 4).

use crate::ops;
use crate::tensor::{DType, Tensor};

/// `apply_rotary_emb` of DeepSeek V2: of `[batch, heads, seq, dim]`. Each comes back in its dtype before the other is turned.
pub fn apply_rotary_emb(q: &Tensor, k: &Tensor, freqs_cis: &Tensor) -> (Tensor, Tensor) {
    let (xq, xk) = (as_complex(q), as_complex(k));
    let freqs_cis = ops::unsqueeze(freqs_cis, 1);
    let turned = |pairs: &Tensor, like: &Tensor| ops::to(&turn(pairs, &freqs_cis), like.dtype());
    let xq_out = turned(&xq, q);
    (xq_out, turned(&xk, k))
}

/// `apply_rotary_emb` of Llama 4: of `[batch, seq, heads, dim]`, both in float32 until both are turned.
pub fn apply_rotary_emb_before_heads(q: &Tensor, k: &Tensor, freqs_cis: &Tensor) -> (Tensor, Tensor) {
    let (xq, xk) = (as_complex(q), as_complex(k));
    let turned = |pairs: &Tensor| turn(pairs, &ops::unsqueeze(freqs_cis, 2));
    let (xq_out, xk_out) = (turned(&xq), turned(&xk));
    let query = ops::to(&xq_out, q.dtype());
    (query, ops::to(&xk_out, k.dtype()))
}

/// `torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))`.
fn as_complex(x: &Tensor) -> Tensor {
    let wide = ops::to(x, DType::Float32);
    let mut sizes = x.dims().to_vec();
    if let Some(last) = sizes.last_mut() {
        *last /= 2;
    }
    sizes.push(2);
    ops::view_as_complex(&ops::reshape(&wide, &sizes))
}

/// `torch.view_as_real(pairs * freqs_cis).flatten(3)`.
fn turn(pairs: &Tensor, freqs_cis: &Tensor) -> Tensor {
    let real = ops::view_as_real(&ops::mul_complex(pairs, freqs_cis));
    let mut sizes = real.dims().to_vec();
    sizes.pop();
    if let Some(last) = sizes.last_mut() {
        *last *= 2;
    }
    ops::reshape(&real, &sizes)
}
