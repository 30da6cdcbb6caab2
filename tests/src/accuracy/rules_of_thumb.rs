//! What people estimate with: closed rules that need no engine. Kept here, and nowhere near the engine, to show beside it.

use serde_json::Value;

use super::corpus::Row;

/// What the rules look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Numbers in the model.
    pub parameters: u64,
    /// Size of the hidden state.
    pub hidden: u64,
    /// Number of layers.
    pub layers: u64,
    /// Attention heads.
    pub heads: u64,
    /// Micro-batch.
    pub batch: u64,
    /// Tokens per sample.
    pub seq: u64,
    /// Weights are float32 and the forward runs under autocast.
    pub autocast: bool,
    /// Weights are 16 bits wide.
    pub half: bool,
    /// Every layer is recomputed in backward.
    pub checkpointing: bool,
    /// Attention scores are kept (eager attention).
    pub scores_kept: bool,
}

/// One rule: bytes at the peak, from the shape alone.
#[derive(Debug)]
pub struct Rule {
    /// What it is called in the scoreboard.
    pub name: &'static str,
    /// The rule in words.
    pub words: &'static str,
    /// The estimate in bytes.
    pub bytes: fn(&Shape) -> u64,
}

/// The rules in the scoreboard.
pub const RULES: [Rule; 4] = [
    Rule {
        name: "16 bytes a parameter",
        words: "16 bytes a parameter (weights, gradients and two AdamW states in float32), and \
                batch x seq x hidden x layers x 2 activations of the compute type",
        bytes: sixteen_bytes,
    },
    Rule {
        name: "4x / 3x the model",
        words: "four times the weights in one precision, three times the float32 weights with autocast",
        bytes: times_the_model,
    },
    Rule {
        name: "8 bytes a parameter",
        words: "weights, gradients and two states in two bytes each, whatever the precision",
        bytes: half_precision_states,
    },
    Rule {
        name: "Transformer Math",
        words: "EleutherAI's Transformer Math 101: weights and gradients in the compute type, 12 bytes a parameter for AdamW, \
                activations batch x seq x hidden x layers x (34 + 5 x heads x seq / hidden), without the last term where scores \
                are not kept, x 2 under full recomputation; doubled in float32",
        bytes: transformer_math,
    },
];

impl Shape {
    /// The row's shape where the rules claim to apply: a transformer, trained in full, with Adam or AdamW.
    pub fn of(row: &Row) -> Option<Self> {
        if row.lora().is_some() || !matches!(row.training("optimizer"), "adam" | "adamw") {
            return None;
        }
        let model = row.scenario.get("model")?;
        let config = model.get("hf").unwrap_or(model);
        let number = |names: [&str; 2]| names.iter().find_map(|n| config.get(n)).and_then(Value::as_u64);
        Some(Self {
            parameters: row.expected.parameters.total,
            hidden: number(["hidden_size", "n_embd"])?,
            layers: number(["num_hidden_layers", "n_layer"])?,
            heads: number(["num_attention_heads", "n_head"])?,
            batch: row.input_number("batch")?,
            seq: row.input_number("seq")?,
            autocast: row.training("precision").ends_with("-amp"),
            half: matches!(row.training("precision"), "fp16" | "bf16"),
            checkpointing: row.training("checkpointing") == "full",
            scores_kept: row.training("attention") == "eager",
        })
    }

    fn compute_bytes(&self) -> u64 {
        if self.autocast || self.half { 2 } else { 4 }
    }

    fn weight_bytes(&self) -> u64 {
        if self.half { 2 } else { 4 }
    }

    /// Size of the hidden states of all layers, in values.
    fn hidden_states(&self) -> u64 {
        self.batch * self.seq * self.hidden * self.layers
    }
}

fn sixteen_bytes(s: &Shape) -> u64 {
    16 * s.parameters + s.hidden_states() * 2 * s.compute_bytes()
}

fn times_the_model(s: &Shape) -> u64 {
    let times = if s.autocast { 3 } else { 4 };
    times * s.parameters * s.weight_bytes()
}

fn half_precision_states(s: &Shape) -> u64 {
    8 * s.parameters
}

fn transformer_math(s: &Shape) -> u64 {
    let states = s.parameters * (2 * s.compute_bytes() + 12);
    // The published factors are bytes for 16-bit activations: half of them is the number of values.
    let activations = if s.checkpointing {
        2 * s.hidden_states()
    } else {
        let scores = if s.scores_kept { 5 * s.batch * s.seq * s.seq * s.heads * s.layers } else { 0 };
        34 * s.hidden_states() + scores
    };
    states + activations / 2 * s.compute_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPT2: Shape = Shape {
        parameters: 124_439_808,
        hidden: 768,
        layers: 12,
        heads: 12,
        batch: 4,
        seq: 512,
        autocast: false,
        half: false,
        checkpointing: false,
        scores_kept: false,
    };

    #[test]
    fn the_rules_say_what_their_words_say() {
        let states = 18_874_368; // 4 x 512 x 768 x 12
        assert_eq!(sixteen_bytes(&GPT2), 16 * 124_439_808 + states * 2 * 4);
        assert_eq!(times_the_model(&GPT2), 4 * 4 * 124_439_808);
        assert_eq!(times_the_model(&Shape { autocast: true, ..GPT2 }), 3 * 4 * 124_439_808);
        assert_eq!(half_precision_states(&GPT2), 8 * 124_439_808);
        assert_eq!(transformer_math(&GPT2), 20 * 124_439_808 + 68 * states);
        let eager = Shape { scores_kept: true, autocast: true, ..GPT2 };
        assert_eq!(transformer_math(&eager), 16 * 124_439_808 + 34 * states + 5 * 4 * 512 * 512 * 12 * 12);
        assert_eq!(transformer_math(&Shape { checkpointing: true, ..eager }), 16 * 124_439_808 + 2 * states);
    }
}
