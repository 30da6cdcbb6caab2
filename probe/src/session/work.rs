//! What one repetition of a measurement is, in the words people read.

use plimsoll_core::Scenario;
use plimsoll_core::scenario::Mode;

/// What is repeated: in a record each is a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// An optimizer step of training.
    Step,
    /// A generation, from the prompt to the last token.
    Generation {
        /// Tokens that each sample is given.
        tokens: u64,
    },
    /// A single forward without gradients.
    Forward,
}

impl Work {
    /// What a scenario has repeated.
    pub fn of(scenario: &Scenario) -> Self {
        match (scenario.training.mode, scenario.input.max_new_tokens) {
            (Mode::Train, _) => Self::Step,
            (Mode::Inference, Some(tokens)) => Self::Generation { tokens },
            (Mode::Inference, None) => Self::Forward,
        }
    }

    /// Whether something is trained.
    pub const fn trains(self) -> bool {
        matches!(self, Self::Step)
    }

    /// `step`, `generation`, `forward pass`.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Generation { .. } => "generation",
            Self::Forward => "forward pass",
        }
    }

    /// `1 step`, `3 generations`.
    pub fn count(self, n: u64) -> String {
        match (n, self) {
            (1, _) => format!("1 {}", self.noun()),
            (_, Self::Forward) => format!("{n} forward passes"),
            _ => format!("{n} {}s", self.noun()),
        }
    }

    /// What a number of samples is called: nothing is accumulated where nothing is trained.
    pub const fn batch(self) -> &'static str {
        if self.trains() { "micro-batch" } else { "batch" }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_scenario_says_what_is_repeated() {
        let of = |value| Work::of(&Scenario::from_value(&value).unwrap());
        let model = json!({ "catalog": "gpt2" });
        assert_eq!(of(json!({ "model": model })), Work::Step);
        let inference = json!({ "mode": "inference" });
        let generation = of(json!({ "model": model, "input": { "max_new_tokens": 7 }, "training": inference }));
        assert_eq!((generation, generation.count(3)), (Work::Generation { tokens: 7 }, "3 generations".to_owned()));
        let forward = of(json!({ "model": { "hf": { "model_type": "bert" } }, "training": inference }));
        assert_eq!((forward.count(1), forward.count(2)), ("1 forward pass".to_owned(), "2 forward passes".to_owned()));
    }
}
