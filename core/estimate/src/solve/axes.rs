//! Which batches and sequences a grid shows when nobody says.

use plimsoll_scenario::Scenario;

/// Micro-batches people train with.
const BATCHES: [u64; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// Sequences people train with, in tokens.
const SEQS: [u64; 8] = [128, 256, 512, 1024, 2048, 4096, 8192, 16_384];

/// How many of them are shown.
const ROWS: usize = 6;

/// Batches and sequences around a scenario, its own among them; no sequences where a sample has none, and none longer
/// than the model has positions for.
pub fn around(scenario: &Scenario) -> (Vec<u64>, Vec<u64>) {
    let own = scenario.input.batch;
    // The batches of every day, or as many doublings up to one beyond a larger one of one's own.
    let mut batches: Vec<u64> = BATCHES.iter().map(|b| b * (own / 32).max(1).next_power_of_two()).collect();
    batches[0] = 1;
    let Some(seq) = scenario.input.seq else { return (with(batches, own), Vec::new()) };
    let longest = scenario.model.source.positions().unwrap_or(u64::MAX).max(seq);
    let mut seqs: Vec<u64> = SEQS.into_iter().filter(|s| *s <= longest).collect();
    // The window of lengths that has the scenario's own in its upper half.
    let above = seqs.iter().filter(|s| **s > seq).count().min(2);
    let end = seqs.iter().filter(|s| **s <= seq).count() + above;
    let end = end.max(ROWS.min(seqs.len()));
    seqs.truncate(end);
    let start = seqs.len().saturating_sub(ROWS);
    (with(batches, own), with(seqs.split_off(start), seq))
}

/// `count` micro-batches from 1 up and `count` sequences in even steps: to 8,192 tokens, to the scenario's own where that
/// is longer, or to the last position of the model.
pub fn even(scenario: &Scenario, batches: u64, seqs: u64) -> (Vec<u64>, Vec<u64>) {
    const USUAL: u64 = 8192;
    let batches = (1..=batches).collect();
    let Some(seq) = scenario.input.seq else { return (batches, Vec::new()) };
    let longest = scenario.model.source.positions().unwrap_or(u64::MAX).max(seq).min(USUAL.max(seq));
    let step = (longest / seqs.max(1)).max(1);
    (batches, (1..=seqs).map(|i| i * step).filter(|s| *s <= longest).collect())
}

fn with(mut sizes: Vec<u64>, own: u64) -> Vec<u64> {
    sizes.push(own);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use plimsoll_scenario::Scenario;
    use serde_json::json;

    use super::{around, even};

    fn scenario(model: serde_json::Value, input: serde_json::Value) -> Scenario {
        Scenario::from_value(&json!({"model": model, "input": input})).unwrap()
    }

    #[test]
    fn the_scenario_is_on_its_own_sheet() {
        for (batch, seq) in [(1, 512), (4, 1000), (7, 100), (300, 2048), (1, 100_000)] {
            let scenario = scenario(json!({"catalog": "llama-3.1-8b"}), json!({"batch": batch, "seq": seq}));
            let (batches, seqs) = around(&scenario);
            assert!(batches.contains(&batch) && seqs.contains(&seq), "{batch} {seq}: {batches:?} {seqs:?}");
            assert!((12..=13).contains(&batches.len()) && (6..=7).contains(&seqs.len()), "{batches:?} {seqs:?}");
            assert!(batches.is_sorted() && seqs.is_sorted() && batches[0] == 1);
        }
    }

    #[test]
    fn no_row_is_longer_than_the_model_goes() {
        let gpt2 = scenario(json!({"catalog": "gpt2"}), json!({"batch": 2, "seq": 100}));
        assert_eq!(around(&gpt2).1, [100, 128, 256, 512, 1024]);
        assert_eq!(even(&gpt2, 3, 4), (vec![1, 2, 3], vec![256, 512, 768, 1024]));
        let mlp = scenario(json!({"family": "mlp"}), json!({"batch": 2}));
        assert_eq!((around(&mlp).1, even(&mlp, 2, 9).1), (vec![], vec![]));
        let llama = scenario(json!({"catalog": "llama-3.1-8b"}), json!({"batch": 2}));
        let (batches, seqs) = even(&llama, 64, 32);
        assert_eq!((batches.len(), seqs.len(), seqs[0], seqs[31]), (64, 32, 256, 8192));
    }
}
