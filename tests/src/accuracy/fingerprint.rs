//! A fingerprint of the engine's complete answer to each row, so that two targets can be compared byte by byte.

use plimsoll_core::Scenario;
use plimsoll_core::estimate::{Estimate, Run, StepWork};
use serde_json::json;

use super::corpus::{Row, traced};

/// How many points of the timeline go into the fingerprint.
const TIMELINE_POINTS: usize = 256;

/// 64-bit FNV-1a of the estimate and its timeline as JSON; a refusal's is that of the error.
///
/// # Errors
/// A row that is not a scenario, or an answer that is not JSON.
pub fn fingerprint(row: &Row) -> anyhow::Result<u64> {
    let scenario = Scenario::from_value(&row.scenario).map_err(|e| anyhow::anyhow!("row {}: {e}", row.id))?;
    let answer = match Run::new(&scenario) {
        Ok(run) => {
            // What a step computes has rows of its own.
            let estimate = Estimate { work: StepWork::default(), ..run.estimate().clone() };
            json!({ "estimate": estimate, "timeline": run.timeline(TIMELINE_POINTS) })
        }
        Err(error) => json!({ "error": error }),
    };
    Ok(fnv1a(serde_json::to_string(&answer)?.as_bytes()))
}

/// The content of `corpus/estimates.hashes`.
///
/// # Errors
/// As [`fingerprint`].
pub fn fingerprints() -> anyhow::Result<String> {
    let mut text = String::from(
        "# FNV-1a of the engine's answer to each row of traced.jsonl. Written by `cargo xtask accuracy`.\n",
    );
    for row in traced()? {
        text.push_str(&format!("{} {:016x}\n", row.id, fingerprint(&row)?));
    }
    Ok(text)
}

/// Compares this build's answers with the committed `corpus/estimates.hashes`.
///
/// # Errors
/// The rows that differ, and what to do about it.
pub fn compare(committed: &str) -> Result<(), String> {
    let fresh = fingerprints().map_err(|e| format!("{e:#}"))?;
    let mut committed = committed.lines();
    let mut differing = Vec::new();
    for line in fresh.lines() {
        if committed.next() != Some(line) {
            differing.push(line.split(' ').next().unwrap_or(line).to_owned());
        }
    }
    let left = committed.count();
    if differing.is_empty() && left == 0 {
        return Ok(());
    }
    let shown = differing.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    Err(format!(
        "{} answers differ from tests/corpus/estimates.hashes ({shown}{}) and {left} lines there are left over; if the native test \
         fails as well, the file is stale: run `cargo xtask accuracy`; if only the wasm test does, the targets disagree",
        differing.len(),
        if differing.len() > 8 { ", ..." } else { "" },
    ))
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::fnv1a;

    /// Test vectors of the FNV authors.
    #[test]
    fn fnv1a_is_fnv1a() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
