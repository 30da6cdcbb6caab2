//! The estimates that are timed, and how: the same on every target, only the clock differs.
//!
//! One timed run reads nothing and prints nothing: it is [`Run::new`], which executes both optimizer steps and replays
//! them through the allocator. Results leave as lines of text, so that a browserless runner can pass them on.
#![forbid(unsafe_code)]

#[cfg(not(target_arch = "wasm32"))]
pub mod harbour;
#[cfg(not(target_arch = "wasm32"))]
pub mod http;
#[cfg(not(target_arch = "wasm32"))]
pub mod postgres;
#[cfg(not(target_arch = "wasm32"))]
pub mod storm;
pub mod synthetic;

use plimsoll_core::{Result, Scenario, estimate::Run};

/// One estimate to time.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Short name on the result line.
    pub id: &'static str,
    /// What it is, for people.
    pub title: &'static str,
    /// The `hf` object: the published `config.json` without what does not bear on memory.
    config: &'static str,
}

/// What is timed. The sizes are those of the models' `config.json` on Hugging Face (meta-llama/Llama-2-7b-hf,
/// Meta-Llama-3-8B, Llama-3.1-405B).
pub const CASES: [Case; 3] = [
    Case {
        id: "llama-2-7b",
        title: "Llama-2-7B",
        config: r#"{"model_type":"llama","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
            "num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32000}"#,
    },
    Case {
        id: "llama-3-8b",
        title: "Llama-3-8B",
        config: r#"{"model_type":"llama","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
            "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256}"#,
    },
    Case {
        id: "llama-3.1-405b",
        title: "Llama-3.1-405B (126 layers)",
        config: r#"{"model_type":"llama","hidden_size":16384,"intermediate_size":53248,"num_hidden_layers":126,
            "num_attention_heads":128,"num_key_value_heads":8,"vocab_size":128256}"#,
    },
];

impl Case {
    /// Batch 1, 2048 tokens, bf16 autocast, AdamW, everything else by default.
    ///
    /// # Errors
    /// The scenario format has changed under this one.
    pub fn scenario(&self) -> Result<Scenario> {
        Scenario::from_json(&format!(
            r#"{{"model":{{"hf":{}}},"input":{{"batch":1,"seq":2048}},
                "training":{{"precision":"bf16-amp","optimizer":"adamw"}},"device":{{"gpu":"h200"}}}}"#,
            self.config
        ))
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
    /// Peak of the allocated memory that was estimated, in bytes: shows that the estimate was made.
    pub peak: u64,
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
        Run::new(&scenario)?;
    }
    let (least, most, limit) = RUNS;
    let mut times = Vec::with_capacity(most);
    let mut peak = 0;
    let start = now();
    while times.len() < least || (times.len() < most && now() - start < limit) {
        let before = now();
        let run = Run::new(&scenario)?;
        times.push(now() - before);
        peak = run.estimate().peak.allocated.get();
    }
    times.sort_by(f64::total_cmp);
    let at = |index: usize| times.get(index).copied().unwrap_or(f64::NAN);
    Ok(Timing { runs: times.len(), median: at(times.len() / 2), fastest: at(0), peak })
}

/// What begins a result line, among whatever else a test runner prints.
pub const MARK: &str = "plimsoll-bench";

/// `plimsoll-bench ID RUNS MEDIAN FASTEST PEAK MEMORY`: milliseconds, bytes; the last is the memory the process took, 0
/// where it cannot be known.
pub fn line(case: &Case, timing: &Timing, memory: u64) -> String {
    let Timing { runs, median, fastest, peak } = timing;
    format!("{MARK} {} {runs} {median:.4} {fastest:.4} {peak} {memory}", case.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_a_valid_scenario() {
        for case in CASES {
            case.scenario().unwrap();
        }
    }
}
