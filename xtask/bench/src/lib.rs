//! The estimates that are timed, and how: the same on every target, only the clock differs.
//!
//! One timed run reads nothing and prints nothing: it is [`Run::new`], which executes both optimizer steps and replays
//! them through the allocator, or one of the questions that take many of those. Results leave as lines of text, so that a
//! browserless runner can pass them on.
#![forbid(unsafe_code)]

use plimsoll_core::estimate::fit::{Freedom, plans, with_tokens};
use plimsoll_core::estimate::{Run, Verdict};
use plimsoll_core::scenario::HullModel;
use plimsoll_core::solve;
pub use plimsoll_core::solve::EFFORT;
use plimsoll_core::{Result, Scenario};

/// One question to time.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Short name on the result line.
    pub id: &'static str,
    /// What it is, for people.
    pub title: &'static str,
    /// What is asked.
    pub question: Question,
    /// Of what.
    model: Asked,
    /// The precision.
    precision: &'static str,
    /// How many cards it is spread over, and how.
    cards: (u64, &'static str),
    /// The case whose time it is to be laid beside.
    pub beside: Option<&'static str>,
}

/// The model that is asked about.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// The `hf` object: the published `config.json` without what does not bear on memory.
    Config(&'static str),
    /// A recording of `GPT2LMHeadModel(GPT2Config())`, and tokens of a sample.
    Hull(&'static [u8], u64),
}

/// One card.
const ONE: (u64, &str) = (1, "none");

/// What is asked of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Its estimate; answered by its peak, in bytes.
    Estimate,
    /// Its largest micro-batch.
    Largest,
    /// How it is spread over 64 H100 in machines of eight with 4,194,304 tokens a step; answered by how many combinations were
    /// run.
    Plans,
    /// A grid of 64 batches by 32 sequences up to 8192 tokens; answered by how many of its cells fit.
    Grid,
}

const LLAMA_3_70B: &str = r#"{"model_type":"llama","hidden_size":8192,"intermediate_size":28672,"num_hidden_layers":80,
    "num_attention_heads":64,"num_key_value_heads":8,"vocab_size":128256,"max_position_embeddings":131072}"#;

const LLAMA_3_8B: &str = r#"{"model_type":"llama","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
    "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256,"max_position_embeddings":8192}"#;

const LLAMA_3_405B: &str = r#"{"model_type":"llama","hidden_size":16384,"intermediate_size":53248,"num_hidden_layers":126,
    "num_attention_heads":128,"num_key_value_heads":8,"vocab_size":128256}"#;

/// Tokens of a step of [`Question::Plans`]: 1,024 sequences, as Llama 2 was trained with.
const TOKENS: u64 = 4_194_304;

/// What is timed. The sizes are those of the models' `config.json` on Hugging Face (meta-llama/Llama-2-7b-hf,
/// Meta-Llama-3-8B, which Llama-3.1-8B shares, Llama-3.1-70B, Llama-3.1-405B; Qwen/Qwen3-30B-A3B).
pub const CASES: [Case; 17] = [
    Case {
        id: "llama-2-7b",
        title: "Llama-2-7B",
        question: Question::Estimate,
        model: Asked::Config(
            r#"{"model_type":"llama","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
            "num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32000}"#,
        ),
        precision: "bf16-amp",
        cards: ONE,
        beside: None,
    },
    Case {
        id: "llama-3-8b",
        title: "Llama-3-8B",
        question: Question::Estimate,
        model: Asked::Config(LLAMA_3_8B),
        precision: "bf16-amp",
        cards: ONE,
        beside: None,
    },
    Case {
        id: "llama-3.1-405b",
        title: "Llama-3.1-405B (126 layers)",
        question: Question::Estimate,
        model: Asked::Config(LLAMA_3_405B),
        precision: "bf16-amp",
        cards: ONE,
        beside: None,
    },
    Case {
        id: "qwen3-30b-a3b",
        title: "Qwen3-30B-A3B (128 experts x 48 layers)",
        question: Question::Estimate,
        model: Asked::Config(
            r#"{"model_type":"qwen3_moe","hidden_size":2048,"intermediate_size":6144,"moe_intermediate_size":768,
            "num_experts":128,"num_experts_per_tok":8,"norm_topk_prob":true,"num_hidden_layers":48,
            "num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,"vocab_size":151936}"#,
        ),
        precision: "bf16-amp",
        cards: ONE,
        beside: None,
    },
    Case {
        id: "llama-3.1-70b",
        title: "Llama-3.1-70B",
        question: Question::Estimate,
        model: Asked::Config(LLAMA_3_70B),
        precision: "bf16-amp",
        cards: ONE,
        beside: None,
    },
    Case {
        id: "llama-3.1-70b-ddp",
        title: "Llama-3.1-70B, DDP on 64 cards",
        question: Question::Estimate,
        model: Asked::Config(LLAMA_3_70B),
        precision: "bf16-amp",
        cards: (64, "ddp"),
        beside: Some("llama-3.1-70b"),
    },
    Case {
        id: "llama-3.1-70b-fsdp2",
        title: "Llama-3.1-70B, FSDP2 on 64 cards",
        question: Question::Estimate,
        model: Asked::Config(LLAMA_3_70B),
        precision: "bf16-amp",
        cards: (64, "fsdp2"),
        beside: Some("llama-3.1-70b"),
    },
    Case {
        id: "llama-3.1-70b-fsdp1",
        title: "Llama-3.1-70B, FSDP1 on 64 cards",
        question: Question::Estimate,
        model: Asked::Config(LLAMA_3_70B),
        precision: "bf16-amp",
        cards: (64, "fsdp1"),
        beside: Some("llama-3.1-70b"),
    },
    Case {
        id: "llama-3.1-70b-bf16",
        title: "Llama-3.1-70B in pure bf16",
        question: Question::Estimate,
        model: Asked::Config(LLAMA_3_70B),
        precision: "bf16",
        cards: ONE,
        beside: None,
    },
    Case {
        id: "llama-3.1-70b-zero-2",
        title: "Llama-3.1-70B in pure bf16, ZeRO-2 on 64 cards",
        question: Question::Estimate,
        model: Asked::Config(LLAMA_3_70B),
        precision: "bf16",
        cards: (64, "zero-2"),
        beside: Some("llama-3.1-70b-bf16"),
    },
    Case {
        id: "llama-3.1-70b-zero-3",
        title: "Llama-3.1-70B in pure bf16, ZeRO-3 on 64 cards",
        question: Question::Estimate,
        model: Asked::Config(LLAMA_3_70B),
        precision: "bf16",
        cards: (64, "zero-3"),
        beside: Some("llama-3.1-70b-bf16"),
    },
    Case {
        id: "llama-3.1-405b-fsdp2",
        title: "Llama-3.1-405B, FSDP2 on 512 cards, all roles",
        question: Question::Estimate,
        model: Asked::Config(LLAMA_3_405B),
        precision: "bf16-amp",
        cards: (512, "fsdp2"),
        beside: Some("llama-3.1-405b"),
    },
    Case {
        id: "gpt2",
        title: "GPT-2",
        question: Question::Estimate,
        model: Asked::Config(r#"{"model_type":"gpt2"}"#),
        precision: "bf16-amp",
        cards: ONE,
        beside: None,
    },
    Case {
        id: "gpt2-hull",
        title: "GPT-2 from a hull",
        question: Question::Estimate,
        model: Asked::Hull(include_bytes!("../../../tests/corpus/hulls/gpt2.hull"), 1024),
        precision: "bf16-amp",
        cards: ONE,
        beside: Some("gpt2"),
    },
    Case {
        id: "llama-3.1-8b-largest",
        title: "Llama-3.1-8B, largest batch",
        question: Question::Largest,
        model: Asked::Config(LLAMA_3_8B),
        precision: "bf16",
        cards: ONE,
        beside: None,
    },
    Case {
        id: "llama-3.1-8b-grid",
        title: "Llama-3.1-8B, 64 batches by 32 sequences",
        question: Question::Grid,
        model: Asked::Config(LLAMA_3_8B),
        precision: "bf16",
        cards: ONE,
        beside: None,
    },
    Case {
        id: "llama-3.1-70b-plans",
        title: "Llama-3.1-70B, plans for 64 H100",
        question: Question::Plans,
        model: Asked::Config(LLAMA_3_70B),
        precision: "bf16-amp",
        cards: (64, "none"),
        beside: None,
    },
];

impl Case {
    /// Batch 1, 2048 tokens (of GPT-2 1024), AdamW, an H200 or so many, everything else by default; of plans H100 and twice the
    /// tokens.
    ///
    /// # Errors
    /// The scenario format has changed under this one.
    pub fn scenario(&self) -> Result<Scenario> {
        let plans = self.question == Question::Plans;
        let (seq, gpu) = if plans { (4096, "h100-sxm") } else { (2048, "h200") };
        let (model, input) = match self.model {
            Asked::Config(config) if config.contains("gpt2") => {
                (format!(r#""hf":{config}"#), r#","seq":1024"#.to_owned())
            }
            Asked::Config(config) => (format!(r#""hf":{config}"#), format!(r#","seq":{seq}"#)),
            Asked::Hull(bytes, seq) => (format!(r#""hull":"{}","S":{seq}"#, HullModel::content(bytes)), String::new()),
        };
        let (gpus, strategy) = self.cards;
        let strategy = if plans { String::new() } else { format!(r#","strategy":"{strategy}""#) };
        let scenario = Scenario::from_json(&format!(
            r#"{{"model":{{{model}}},"input":{{"batch":1{input}}},
                "training":{{"precision":"{}","optimizer":"adamw"}},"device":{{"gpu":"{gpu}"}},
                "parallel":{{"gpus":{gpus}{strategy}}}}}"#,
            self.precision
        ))?;
        if plans { with_tokens(&scenario, TOKENS) } else { Ok(scenario) }
    }

    /// Answers the question once.
    ///
    /// # Errors
    /// It is refused.
    pub fn answer(&self, scenario: &Scenario) -> Result<u64> {
        Ok(match self.question {
            Question::Estimate => Run::new(scenario)?.estimate().peak.allocated.get(),
            Question::Largest => solve::max_batch(scenario)?,
            Question::Plans => plans(scenario, Freedom::default())?.looked_at,
            Question::Grid => {
                let (batches, seqs) = solve::even(scenario, 64, 32);
                let grid = solve::grid(scenario, &batches, &seqs, EFFORT)?;
                let fits = grid.rows.iter().flat_map(|row| &row.cells).filter(|cell| cell.verdict == Verdict::Fits);
                fits.count() as u64
            }
        })
    }
}

/// How long one estimate took, over many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Runs timed.
    pub runs: usize,
    /// The middle one, in milliseconds.
    pub median: f64,
    /// The fastest, in milliseconds.
    pub fastest: f64,
    /// What was found, as the [`Question`] says: shows that it was asked.
    pub answer: u64,
}

/// Before timing starts, so that code and memory are warm.
const WARM_UP: usize = 5;

/// Fewest and most runs, and the time after which there are no more, in milliseconds.
const RUNS: (usize, usize, f64) = (31, 301, 3000.0);

/// Times a case with a clock that tells milliseconds.
///
/// # Errors
/// The estimate is refused.
pub fn time(case: &Case, now: impl Fn() -> f64) -> Result<Timing> {
    let scenario = case.scenario()?;
    for _ in 0..WARM_UP {
        case.answer(&scenario)?;
    }
    let (least, most, limit) = RUNS;
    let mut times = Vec::with_capacity(most);
    let mut answer = 0;
    let start = now();
    while times.len() < least || (times.len() < most && now() - start < limit) {
        let before = now();
        answer = case.answer(&scenario)?;
        times.push(now() - before);
    }
    times.sort_by(f64::total_cmp);
    let at = |index: usize| times.get(index).copied().unwrap_or(f64::NAN);
    Ok(Timing { runs: times.len(), median: at(times.len() / 2), fastest: at(0), answer })
}

/// What begins a result line, among whatever else a test runner prints.
pub const MARK: &str = "plimsoll-bench";

/// `plimsoll-bench ID RUNS MEDIAN FASTEST ANSWER MEMORY`: milliseconds, bytes; the last is the memory the process took, 0
/// where it cannot be known.
pub fn line(case: &Case, timing: &Timing, memory: u64) -> String {
    let Timing { runs, median, fastest, answer } = timing;
    format!("{MARK} {} {runs} {median:.4} {fastest:.4} {answer} {memory}", case.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_a_valid_scenario() {
        for case in CASES {
            case.scenario().unwrap_or_else(|error| panic!("{}: {error}", case.id));
            assert!(case.beside.is_none_or(|id| CASES.iter().any(|other| other.id == id)), "{}", case.id);
        }
    }
}
