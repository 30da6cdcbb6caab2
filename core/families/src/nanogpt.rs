//! `nanogpt`: Karpathy's GPT.

use std::rc::Rc;

use plimsoll_ground::{Error, Result};
use plimsoll_torch::nn::{Embedding, LayerNorm, Linear, ModuleList, Scope};
use plimsoll_torch::ops::{self, SdpaRules};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor};
use plimsoll_torch::{Batch, Field};

use super::config::{Config, divide};
use super::{Model, Output, Plan};

#[derive(Debug)]
struct Block {
    ln1: LayerNorm,
    qkv: Linear,
    proj: Linear,
    ln2: LayerNorm,
    fc: Linear,
    out: Linear,
    heads: u64,
    dropout: f64,
    rules: SdpaRules,
    module: ModuleId,
    /// Whether names hold what they hold in the file of its author.
    published: bool,
}

impl Block {
    fn attention(&self, x: &Tensor) -> Tensor {
        let (batch, seq, embed) = (x.size(0), x.size(1), x.size(2));
        let normed = self.ln1.forward(x);
        let parts = ops::split(&self.qkv.forward(&normed), embed, 2);
        // `self.attn(self.ln_1(x))`: what a module is called with lives until it returns.
        let argument = self.published.then_some(normed);
        let heads =
            |part: &Tensor| ops::transpose(&ops::view(part, &[batch, seq, self.heads, embed / self.heads]), 1, 2);
        let (q, k, v) = (heads(&parts[0]), heads(&parts[1]), heads(&parts[2]));
        let y = ops::scaled_dot_product_attention(&self.rules, &q, &k, &v, None, self.dropout, true);
        let y = ops::view(&ops::contiguous(&ops::transpose(&y, 1, 2)), &[batch, seq, embed]);
        let out = ops::dropout(&self.proj.forward(&y), self.dropout);
        drop(argument);
        out
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || {
            let x = ops::add(x, &self.attention(x));
            let normed = self.ln2.forward(&x);
            let mut hidden = self.fc.forward(&normed);
            let argument = self.published.then_some(normed);
            hidden = ops::gelu(&hidden);
            hidden = self.out.forward(&hidden);
            hidden = ops::dropout(&hidden, self.dropout);
            drop(argument);
            ops::add(&x, &hidden)
        })
    }
}

#[derive(Debug)]
struct NanoGpt {
    cx: Rc<Context>,
    wte: Embedding,
    wpe: Embedding,
    blocks: ModuleList<Block>,
    ln_f: LayerNorm,
    head: Linear,
    dropout: f64,
    vocab: u64,
    input: [u64; 2],
    published: bool,
}

/// Karpathy's GPT with our key names.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let layers = config.layers("n_layer", 12)?;
    let heads = config.size("n_head", 12)?;
    let embed = config.size("n_embd", 768)?;
    let vocab = config.size("vocab_size", 50_304)?;
    let block_size = config.size("block_size", 1024)?;
    let dropout = config.probability("dropout", 0.0)?;
    let bias = config.flag("bias", false)?;
    divide(config, ("n_embd", embed), ("n_head", heads))?;
    let seq = plan.seq()?;
    if seq > block_size {
        return Err(Error::new(
            "input.seq",
            format!("{seq} tokens, but block_size is {block_size}"),
            "raise model.block_size or shorten the sequence",
        ));
    }
    let wte = Embedding::new(&scope.child("wte"), vocab, embed);
    let wpe = Embedding::new(&scope.child("wpe"), block_size, embed);
    let blocks = ModuleList::of(scope, "h", layers, |scope, _| {
        let linear = |name: &'static str, i, o| Linear::new(&scope.child(name), i, o, bias);
        Block {
            ln1: LayerNorm::new(&scope.child("ln1"), embed, bias),
            qkv: linear("qkv", embed, 3 * embed),
            proj: linear("proj", embed, embed),
            ln2: LayerNorm::new(&scope.child("ln2"), embed, bias),
            fc: linear("fc", embed, 4 * embed),
            out: linear("out", 4 * embed, embed),
            heads,
            dropout,
            rules: plan.rules.clone(),
            module: scope.module(),
            published: plan.published,
        }
    });
    let ln_f = LayerNorm::new(&scope.child("ln_f"), embed, bias);
    let head = Linear::tied(&scope.child("head"), wte.weight());
    Ok(Box::new(NanoGpt {
        cx: Rc::clone(scope.cx()),
        wte,
        wpe,
        blocks,
        ln_f,
        head,
        dropout,
        vocab,
        input: [plan.input.batch, seq],
        published: plan.published,
    }))
}

impl Model for NanoGpt {
    fn batch(&self) -> Batch {
        let ids = ops::empty(&self.cx, &self.input, DType::Int64);
        Batch::of(ids).with(Field::Labels, ops::labels(&self.cx, &self.input, DType::Int64))
    }

    fn forward(&self, batch: &Batch) -> Output {
        let [n, seq] = self.input;
        let positions = ops::arange(&self.cx, seq);
        let (tokens, places) = (self.wte.forward(batch.inputs()), self.wpe.forward(&positions));
        let mut x = ops::add(&tokens, &places);
        // `tok_emb` and `pos_emb`, to the end of the forward.
        let named = self.published.then_some((tokens, places));
        x = ops::dropout(&x, self.dropout);
        x = self.blocks.run(&self.cx, x, |_| (), |block, x| block.forward(&x));
        let normed = self.ln_f.forward(&x);
        // `x = self.transformer.ln_f(x)`
        let before = (!self.published).then_some(x);
        let logits = self.head.forward(&normed);
        let after = self.published.then_some(normed);
        let targets = ops::view(batch.labels(), &[n * seq]);
        let loss = ops::cross_entropy(&ops::view(&logits, &[n * seq, self.vocab]), &targets);
        drop((named, before, after));
        Output { loss, held: vec![logits] }
    }
}
