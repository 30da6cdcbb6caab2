//! Which engine made a summary, so that those of another are made anew.

use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

/// What the engine answers with: a fingerprint of its answer to every reference row, which a test holds against this build,
/// and the figures of the cards. The package's version says neither: it stays while answers change.
const ANSWERS: [&str; 2] =
    [include_str!("../../../tests/corpus/estimates.hashes"), include_str!("../../../data/gpus.toml")];

static NAME: LazyLock<String> = LazyLock::new(|| name(&ANSWERS));

/// The engine's name in the database: the version, and the first 64 bits of the SHA-256 of what it answers with.
pub(super) fn engine() -> &'static str {
    &NAME
}

fn name(answers: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in answers {
        // A checkout may have other ends of lines.
        text.lines().for_each(|line| hash.update(line.as_bytes()));
    }
    let digits: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{}+{digits}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::{ANSWERS, engine, name};

    #[test]
    fn an_engine_with_another_answer_has_another_name() {
        let [answers, cards] = ANSWERS;
        let last = answers.trim_end().chars().last().unwrap();
        let other = if last == '0' { '1' } else { '0' };
        let moved = format!("{}{other}", answers.trim_end().strip_suffix(last).unwrap());
        assert_ne!(name(&[&moved, cards]), engine());
        assert_ne!(name(&[answers, &cards.replace("memory", "Memory")]), engine());
        assert_eq!(name(&[&answers.replace('\n', "\r\n"), cards]), engine());
    }
}
