//! The words of the page, each in a sentence.

/// A word, and what it means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// As it stands on the page.
    pub word: &'static str,
    /// In a sentence or two.
    pub meaning: &'static str,
}

/// Every word, in the order of the alphabet.
pub const WORDS: [Word; 22] = [
    Word {
        word: "accumulation",
        meaning: "Several micro-batches are run one after the other before the optimizer steps once: the effect of a large \
                  batch in the memory of a small one.",
    },
    Word {
        word: "activation checkpointing",
        meaning: "What a layer computes is thrown away and computed again in backward: less memory, about a third more work.",
    },
    Word {
        word: "allocated",
        meaning: "What PyTorch's allocator has handed out: torch.cuda.max_memory_allocated() at its highest.",
    },
    Word {
        word: "autocast",
        meaning: "Weights stay in float32 and matrix products run in 16 bits; the 16-bit copies are made anew in every step. \
                  The precisions that end in amp.",
    },
    Word { word: "context", meaning: "What CUDA and its libraries take of the card before a tensor exists." },
    Word {
        word: "foreach",
        meaning: "The optimizer works on all parameters at once and needs temporaries as large as the model; fused needs none.",
    },
    Word {
        word: "gaps",
        meaning: "What the allocator keeps and cannot give to anyone: the space between blocks, and cached blocks.",
    },
    Word {
        word: "largest batch",
        meaning: "The largest micro-batch with which the same run stays under the load line, confirmed by running it.",
    },
    Word { word: "lever", meaning: "One thing about a run that can be changed." },
    Word {
        word: "Liger's kernels",
        meaning: "Functions in Triton that take the place of norms, rotary positions, gated activations and the loss: the same results, and \
                  less is kept for backward (use_liger_kernel).",
    },
    Word {
        word: "load line",
        meaning: "How deep a run should sit at most: 92 % of what one process can have on the card, where nothing else is said.",
    },
    Word {
        word: "LoRA",
        meaning: "Small matrices are trained beside weights that stay as they are. QLoRA: those weights are held in 4 bits.",
    },
    Word { word: "micro-batch", meaning: "The samples one card computes at once." },
    Word {
        word: "nf4",
        meaning: "Four bits for a weight, and a scale for every 64 of them; double: the scales are quantized as well.",
    },
    Word {
        word: "optimizer states",
        meaning: "What the optimizer remembers of every number it trains: AdamW two averages of it.",
    },
    Word { word: "over by, to spare", meaning: "How far the process peak is from the load line, over it or under." },
    Word {
        word: "process peak",
        meaning: "What nvidia-smi would show of the process at the deepest moment: what is reserved, and the context.",
    },
    Word {
        word: "recipe",
        meaning: "Everything that says how a model is trained: precision, optimizer, checkpointing, adapters, loss, micro-batch.",
    },
    Word {
        word: "reserved",
        meaning: "What PyTorch's allocator has taken from the driver, whether or not it has handed it out.",
    },
    Word { word: "saved activations", meaning: "What forward keeps because backward will need it." },
    Word {
        word: "step",
        meaning: "One change of the weights: its micro-batches forward and backward, clipping, the optimizer, gradients zeroed.",
    },
    Word { word: "temporaries", meaning: "What an operator holds while it works, and lets go of." },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_in_order_and_end_in_a_full_stop() {
        assert!(WORDS.is_sorted_by_key(|word| word.word.to_lowercase()));
        for word in WORDS {
            assert!(word.meaning.ends_with('.') && !word.meaning.contains("  "), "{}", word.word);
        }
    }
}
