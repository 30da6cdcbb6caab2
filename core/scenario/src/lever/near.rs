//! How far apart a lever sets two runs: which measurement says most about a scenario.

use serde_json::Value;

/// What a difference counts. A whole different model counts 4, another card 2.5; beyond 12 nothing is told by one run about the
/// other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Near {
    /// When two values differ.
    unlike: f64,
    /// For every doubling, when both are numbers.
    octave: f64,
}

impl Near {
    /// It says nothing of what a run takes.
    pub const NOT: Self = Self { unlike: 0.0, octave: 0.0 };

    /// So much when two values differ.
    pub const fn unlike(weight: f64) -> Self {
        Self { unlike: weight, octave: 0.0 }
    }

    /// So much for every doubling; `unlike` when only one has a number.
    pub const fn octaves(weight: f64, unlike: f64) -> Self {
        Self { unlike, octave: weight }
    }

    /// Whether it bears on what a run takes at all.
    pub fn counts(self) -> bool {
        self != Self::NOT
    }

    /// How far apart two values are.
    pub fn between(self, one: Option<&Value>, other: Option<&Value>) -> f64 {
        let number = |value: Option<&Value>| value.and_then(Value::as_u64);
        match (number(one), number(other)) {
            (Some(a), Some(b)) if self.octave > 0.0 => self.octave * (a.max(1) as f64 / b.max(1) as f64).log2().abs(),
            _ if one == other => 0.0,
            _ => self.unlike,
        }
    }
}
