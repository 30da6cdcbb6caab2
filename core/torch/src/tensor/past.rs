//! What a generation has seen: the keys and values of every attention layer (transformers' `DynamicCache`, and the
//! `EncoderDecoderCache` that has two of them). A forward in training that was asked for them returns one as well.
//!
//! Layers are told apart by the order in which a forward reaches them, which is the order of `layer_idx`.

use super::context::Context;
use super::storage::Tensor;

/// The cache of one generation.
#[derive(Debug, Default)]
pub struct Past {
    /// Of attention to the tokens themselves.
    layers: Vec<PastLayer>,
    next_layer: usize,
    /// `cross_attention_cache`: the keys and values of attention to what the encoder read, which stay as they are.
    cross: Vec<[Tensor; 2]>,
    next_cross: usize,
    /// Of linear attention.
    linear: Vec<PastLinear>,
    next_linear: usize,
    /// Whether the prompt has been read.
    decoding: bool,
    /// Whether keys and values are tuples that every forward returns anew: the latest one's arguments hold the old ones.
    tuples: bool,
    /// Those.
    given: Vec<Tensor>,
}

/// The cache of one layer.
#[derive(Debug, Default)]
pub struct PastLayer {
    /// `keys`.
    pub keys: Option<Tensor>,
    /// `values`.
    pub values: Option<Tensor>,
    /// Tokens that went in, forgotten ones included.
    pub seen: u64,
    /// The sliding window, where the layer has one: it then remembers one token less than that.
    pub window: Option<u64>,
    /// `_sliding_window_tensor`, a number on the device.
    pub window_tensor: Option<Tensor>,
}

/// What a layer of linear attention remembers (`LinearAttentionLayer`), as large after every token.
#[derive(Debug, Default)]
pub struct PastLinear {
    /// `conv_states`: the last of what its convolution read.
    pub conv: Option<Tensor>,
    /// `recurrent_states`.
    pub state: Option<Tensor>,
}

/// What a mask has to cover (`get_query_offset` and `get_mask_sizes`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Tokens before the first query.
    pub query_offset: u64,
    /// Keys there will be.
    pub keys: u64,
    /// Tokens before the first of these keys.
    pub key_offset: u64,
}

impl Past {
    /// A cache of a generation; `tuples` says whether it is one of tuples and no class.
    pub fn of(tuples: bool) -> Self {
        Self { tuples, ..Self::default() }
    }

    /// Every tensor that it refers to.
    pub fn into_tensors(self) -> Vec<Tensor> {
        let own = self.layers.into_iter().flat_map(|layer| [layer.keys, layer.values, layer.window_tensor]);
        let linear = self.linear.into_iter().flat_map(|layer| [layer.conv, layer.state]);
        own.flatten().chain(self.cross.into_iter().flatten()).chain(linear.flatten()).chain(self.given).collect()
    }
}

impl Context {
    /// Whether keys and values are remembered: a generation is going on, or a forward was asked for them.
    pub fn remembers(&self) -> bool {
        self.past.borrow().is_some()
    }

    /// Runs `f`, an encoder, with nothing remembered.
    pub fn forgetting<T>(&self, f: impl FnOnce() -> T) -> T {
        let past = self.replace_past(None);
        let out = f();
        drop(self.replace_past(past));
        out
    }

    /// Whether a generation is past its prompt.
    pub fn decodes(&self) -> bool {
        self.past.borrow().as_ref().is_some_and(|past| past.decoding)
    }

    /// Gives the run another cache and takes out the one it had.
    pub fn replace_past(&self, past: Option<Past>) -> Option<Past> {
        self.past.replace(past)
    }

    /// The forward of one more token begins: the next layer reached is the first.
    pub fn rewind_past(&self) {
        if let Some(past) = self.past.borrow_mut().as_mut() {
            past.next_layer = 0;
            past.next_cross = 0;
            past.next_linear = 0;
            past.decoding = true;
        }
    }

    /// The next layer's cache, and its place, to be put back by [`Context::put_past_layer`]; `None` where nothing is
    /// remembered.
    pub fn take_past_layer(&self, window: Option<u64>) -> Option<(usize, PastLayer)> {
        let mut past = self.past.borrow_mut();
        let past = past.as_mut()?;
        let at = past.next_layer;
        past.next_layer += 1;
        if at == past.layers.len() {
            past.layers.push(PastLayer { window, ..PastLayer::default() });
        }
        past.layers.get_mut(at).map(|layer| (at, std::mem::take(layer)))
    }

    /// Puts a layer's cache back.
    pub fn put_past_layer(&self, at: usize, layer: PastLayer) {
        if let Some(slot) = self.past.borrow_mut().as_mut().and_then(|past| past.layers.get_mut(at)) {
            *slot = layer;
        }
    }

    /// Lets go of what stood in a layer's cache, or has it held until the next forward's arguments are there.
    pub fn replaced_past(&self, old: Option<Tensor>) {
        if let Some(past) = self.past.borrow_mut().as_mut().filter(|past| past.tuples) {
            past.given.extend(old);
        }
    }

    /// The arguments of the latest forward go.
    pub fn let_go_of_given_past(&self) {
        let given = self.past.borrow_mut().as_mut().map(|past| std::mem::take(&mut past.given));
        drop(given);
    }

    /// So, of the next layer of linear attention.
    pub fn take_past_linear(&self) -> Option<(usize, PastLinear)> {
        let mut past = self.past.borrow_mut();
        let past = past.as_mut()?;
        let at = past.next_linear;
        past.next_linear += 1;
        if at == past.linear.len() {
            past.linear.push(PastLinear::default());
        }
        past.linear.get_mut(at).map(|layer| (at, std::mem::take(layer)))
    }

    /// Puts it back.
    pub fn put_past_linear(&self, at: usize, layer: PastLinear) {
        if let Some(slot) = self.past.borrow_mut().as_mut().and_then(|past| past.linear.get_mut(at)) {
            *slot = layer;
        }
    }

    /// Keys and values of the next layer's attention to what the encoder read, once they are there (`is_updated`).
    pub fn take_past_cross(&self) -> Option<[Tensor; 2]> {
        let mut past = self.past.borrow_mut();
        let past = past.as_mut()?;
        let known = past.cross.get(past.next_cross).cloned()?;
        past.next_cross += 1;
        Some(known)
    }

    /// Keeps the next layer's keys and values of attention to what the encoder read.
    pub fn keep_past_cross(&self, states: [Tensor; 2]) {
        if let Some(past) = self.past.borrow_mut().as_mut() {
            past.cross.push(states);
            past.next_cross += 1;
        }
    }

    /// What a mask for `queries` more tokens covers: in windowed layers, or in those that see everything. Where a model
    /// has no layer of the kind, its first one says.
    pub fn seen(&self, queries: u64, windowed: bool) -> Seen {
        let past = self.past.borrow();
        let layers = past.as_ref().map_or(&[][..], |past| &past.layers);
        let Some(layer) = layers.iter().find(|l| l.window.is_some() == windowed).or(layers.first()) else {
            return Seen { query_offset: 0, keys: queries, key_offset: 0 };
        };
        match layer.window {
            Some(window) => Seen {
                query_offset: layer.seen,
                keys: queries + layer.seen.min(window.saturating_sub(1)),
                key_offset: (layer.seen + 1).saturating_sub(window),
            },
            None => Seen { query_offset: layer.seen, keys: queries + layer.seen, key_offset: 0 },
        }
    }

    /// The windows of the layers that have one, and the tokens they have seen.
    pub fn past_windows(&self) -> Vec<(u64, u64)> {
        let past = self.past.borrow();
        let layers = past.as_ref().map_or(&[][..], |past| &past.layers);
        let mut windows: Vec<_> = layers.iter().filter_map(|l| Some((l.window?, l.seen))).collect();
        windows.dedup();
        windows
    }

    /// How many layers remember something.
    pub fn past_layers(&self) -> usize {
        self.past.borrow().as_ref().map_or(0, |past| past.layers.len())
    }

    /// Puts the model into evaluation (`model.eval()`).
    pub fn set_inference(&self) {
        self.inference.set(true);
    }

    /// Whether the model is evaluated: nothing is dropped out, and there are no labels.
    pub fn is_inference(&self) -> bool {
        self.inference.get()
    }
}
