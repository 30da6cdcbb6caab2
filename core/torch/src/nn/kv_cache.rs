//! The cache of keys and values (transformers `cache_utils.py`: `DynamicLayer`, `DynamicSlidingWindowLayer`,
//! `EncoderDecoderCache`).

use std::rc::Rc;

use plimsoll_catalog::software::rules;

use crate::ops::{self, Fill, Rearrangement};
use crate::tensor::{Context, DType, Kind, Tensor};

/// `past_key_values.update(key_states, value_states, layer_idx)` where a generation is going on, or a forward in training
/// was asked for them: the new ones are put behind the old ones in a fresh tensor, and the old ones let go of. A windowed
/// layer hands on all of them and keeps a view of the last `window - 1`: the whole stays alive until the next token.
/// Elsewhere they come back as they are.
///
/// In training nothing stands before them, and what was made of nothing is no more than what attention was going to keep
/// for backward: it counts as that. Before [`rules::CACHE_COPIES`] it was the very tensors, views with their wholes, and what a
/// generation put behind nothing too.
pub fn update(key: Tensor, value: Tensor, window: Option<u64>) -> (Tensor, Tensor) {
    let cx = Rc::clone(key.cx());
    // Windowed layers remembered everything too.
    let window = window.filter(|_| !keeps_as_given(&cx));
    let Some((at, mut layer)) = cx.take_past_layer(window) else { return (key, value) };
    if keeps_as_given(&cx) && layer.keys.is_none() {
        layer.seen += key.size(2);
        (layer.keys, layer.values) = (Some(key.clone()), Some(value.clone()));
        cx.put_past_layer(at, layer);
        return (key, value);
    }
    let counted = |f: &dyn Fn() -> Tensor| remembered(&cx, f);
    if layer.window.is_some() && layer.window_tensor.is_none() && cx.machine().rules.has(&rules::WINDOW_ON_CARD) {
        layer.window_tensor = Some(counted(&|| ops::fill(&cx, Fill::ToCopy, &[], DType::Int64)));
    }
    layer.seen += key.size(2);
    let dtypes = dtypes(&key, &value);
    let whole = |old: Option<&Tensor>, new: &Tensor, dtype: DType| {
        counted(&|| match old {
            Some(old) => ops::cat(&[old, new], 2),
            None => behind_nothing(new, dtype),
        })
    };
    let (keys, values) = match layer.window {
        None => {
            let keys = whole(layer.keys.as_ref(), &key, dtypes[0]);
            cx.replaced_past(layer.keys.replace(keys));
            let values = whole(layer.values.as_ref(), &value, dtypes[1]);
            cx.replaced_past(layer.values.replace(values));
            (layer.keys.clone(), layer.values.clone())
        }
        Some(window) => {
            let keys = whole(layer.keys.as_ref(), &key, dtypes[0]);
            let values = whole(layer.values.as_ref(), &value, dtypes[1]);
            let last = |whole: &Tensor| ops::narrow(whole, 2, whole.size(2).min(window.saturating_sub(1)));
            layer.keys = Some(last(&keys));
            layer.values = Some(last(&values));
            (Some(keys), Some(values))
        }
    };
    cx.put_past_layer(at, layer);
    (keys.unwrap_or(key), values.unwrap_or(value))
}

/// `torch.cat((past_key, key), dim=-2)` of tuples that every forward returns anew, where keys are remembered in `dtype` (GPT-J before
/// it had a cache). Elsewhere they come back as they are.
pub fn update_tuple(key: Tensor, value: Tensor, dtype: DType) -> (Tensor, Tensor) {
    let cx = Rc::clone(key.cx());
    let Some((at, mut layer)) = cx.take_past_layer(None) else { return (key, value) };
    layer.seen += key.size(2);
    let whole = |old: Option<&Tensor>, new: Tensor| match old {
        Some(old) => remembered(&cx, &|| ops::cat(&[old, &new], 2)),
        None => new,
    };
    let key = whole(layer.keys.as_ref(), key);
    let value = whole(layer.values.as_ref(), value);
    let kept = remembered(&cx, &|| ops::to(&key, dtype));
    cx.replaced_past(layer.keys.replace(kept));
    cx.replaced_past(layer.values.replace(value.clone()));
    cx.put_past_layer(at, layer);
    (key, value)
}

/// Keys and values of a decoder's attention to what the encoder read: those of the `cross_attention_cache` from the second
/// token on; at the first one `project` makes them, and they are kept. Elsewhere they come as they are made.
pub fn cross(cx: &Rc<Context>, project: impl FnOnce() -> (Tensor, Tensor)) -> (Tensor, Tensor) {
    if let Some([keys, values]) = cx.take_past_cross() {
        return (keys, values);
    }
    let (key, value) = project();
    if !cx.remembers() {
        return (key, value);
    }
    if keeps_as_given(cx) {
        cx.keep_past_cross([key.clone(), value.clone()]);
        return (key, value);
    }
    let dtypes = dtypes(&key, &value);
    let copy = |x: &Tensor, dtype| remembered(cx, &|| behind_nothing(x, dtype));
    let (keys, values) = (copy(&key, dtypes[0]), copy(&value, dtypes[1]));
    cx.keep_past_cross([keys.clone(), values.clone()]);
    (keys, values)
}

/// Whether the first keys and values are kept as they were handed over.
fn keeps_as_given(cx: &Rc<Context>) -> bool {
    !cx.machine().rules.has(&rules::CACHE_COPIES)
}

/// What a generation makes counts as what it remembers; in training it is an activation like others.
fn remembered(cx: &Rc<Context>, f: &dyn Fn() -> Tensor) -> Tensor {
    if cx.is_inference() { cx.counting_as(Kind::KeyValue, f) } else { f() }
}

/// What keys and values are remembered in. Before [`rules::VALUES_KEEP_THEIR_DTYPE`] values were in the keys': where autocast left turned
/// keys in float32, values were too.
fn dtypes(key: &Tensor, value: &Tensor) -> [DType; 2] {
    let own = key.cx().machine().rules.has(&rules::VALUES_KEEP_THEIR_DTYPE);
    [key.dtype(), if own { value.dtype() } else { key.dtype() }]
}

/// `torch.cat([torch.tensor([], dtype=dtype), x])`: a copy all the same.
fn behind_nothing(x: &Tensor, dtype: DType) -> Tensor {
    let empty = ops::fill(x.cx(), Fill::EmptyMemoryFormat, &[x.size(0), x.size(1), 0, x.size(3)], dtype);
    ops::cat(&[&empty, x], 2)
}

/// Lets `tokens` tokens go by: every layer's keys and values are made anew as they are after them.
pub fn skip(cx: &Rc<Context>, tokens: u64) {
    cx.rewind_past();
    for _ in 0..cx.past_layers() {
        let Some((at, mut layer)) = cx.take_past_layer(None) else { return };
        layer.seen += tokens;
        let (seen, window) = (layer.seen, layer.window);
        let grown = |old: &Tensor| {
            let rows = window.map_or(old.size(2) + tokens, |window| seen.min(window));
            let sizes = [old.size(0), old.size(1), rows, old.size(3)];
            let whole =
                cx.counting_as(Kind::KeyValue, || ops::rearrangement(cx, Rearrangement::Cat, &sizes, old.dtype()));
            match window {
                Some(window) => ops::narrow(&whole, 2, rows.min(window.saturating_sub(1))),
                None => whole,
            }
        };
        layer.keys = layer.keys.as_ref().map(grown);
        layer.values = layer.values.as_ref().map(grown);
        cx.put_past_layer(at, layer);
    }
}
