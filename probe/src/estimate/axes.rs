//! The sizes of a grid as they are written on the command line: `1,2,4x512,1024`, `1-64x256-8192/256`, `64x32`.

use plimsoll_core::solve::{self, MOST_CELLS};
use plimsoll_core::{Error, Scenario};

/// Batches, and sequences where a sample has them.
pub type Axes = (Vec<u64>, Vec<u64>);

/// Reads what follows `--grid`: nothing, so many by so many, or lists of batches and sequences.
pub fn axes(text: &str, scenario: &Scenario) -> Result<Axes, Error> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(solve::around(scenario));
    }
    let (batches, seqs) = match text.split_once(['x', 'X', '×']) {
        Some((batches, seqs)) => (batches, Some(seqs)),
        None => (text, None),
    };
    if let (Ok(rows), Some(Ok(columns))) = (batches.trim().parse::<u64>(), seqs.map(|s| s.trim().parse::<u64>())) {
        return counted(rows, columns, scenario);
    }
    let own = || scenario.input.seq.map(|seq| vec![seq]).unwrap_or_default();
    Ok((list(batches)?, seqs.map_or_else(|| Ok(own()), list)?))
}

fn counted(batches: u64, seqs: u64, scenario: &Scenario) -> Result<Axes, Error> {
    let most = MOST_CELLS as u64;
    if batches == 0 || seqs == 0 || batches.saturating_mul(seqs) > most {
        return Err(wrong(format!("{batches} x {seqs} cells"), &format!("ask for 1 to {most} cells")));
    }
    Ok(solve::even(scenario, batches, seqs))
}

/// Sizes separated by commas, each a number, `from-to` or `from-to/step`.
fn list(text: &str) -> Result<Vec<u64>, Error> {
    let mut sizes = Vec::new();
    for item in text.split(',').map(str::trim) {
        let number = |text: &str| {
            let n = text.trim().parse::<u64>().ok().filter(|n| *n > 0);
            n.ok_or_else(|| wrong(format!("{item:?} is no size"), SHAPE))
        };
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let Some((from, to)) = range.split_once('-') else {
            sizes.push(number(item)?);
            continue;
        };
        let (from, to, step) = (number(from)?, number(to)?, number(step)?);
        if from > to {
            return Err(wrong(format!("{item:?} ends before it begins"), SHAPE));
        }
        if (to - from) / step >= MOST_CELLS as u64 {
            return Err(wrong(format!("{item:?} is too many sizes"), &format!("ask for at most {MOST_CELLS} cells")));
        }
        sizes.extend((from..=to).step_by(usize::try_from(step).unwrap_or(usize::MAX)));
    }
    Ok(sizes)
}

const SHAPE: &str =
    "write batches x sequences, such as 1,2,4x512,1024 or 1-64x256-8192/256; 64x32 is so many by so many";

fn wrong(problem: String, hint: &str) -> Error {
    Error::new("--grid", problem, hint)
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Scenario;

    use super::axes;

    #[test]
    fn sizes_are_read() {
        let scenario = Scenario::from_json(r#"{"model": {"catalog": "gpt2"}, "input": {"seq": 300}}"#).unwrap();
        let read = |text: &str| axes(text, &scenario).unwrap();
        assert_eq!(read("1,2,8x128,256"), (vec![1, 2, 8], vec![128, 256]));
        assert_eq!(read(" 1-4 x 256-1024/256 "), (vec![1, 2, 3, 4], vec![256, 512, 768, 1024]));
        assert_eq!(read("4,8"), (vec![4, 8], vec![300]));
        assert_eq!(read("3x2"), (vec![1, 2, 3], vec![512, 1024]));
        assert!(read("").1.contains(&300));
        let mlp = Scenario::from_json(r#"{"model": {"family": "mlp"}}"#).unwrap();
        assert_eq!(axes("1-3", &mlp).unwrap(), (vec![1, 2, 3], vec![]));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        let scenario = Scenario::from_json(r#"{"model": {"catalog": "gpt2"}}"#).unwrap();
        for text in ["a", "1,2x", "0-4", "4-1", "1-9999999999", "0x4", "1000x1000", "1,,2", "-1", "1-4/0", "1/2", "x8"]
        {
            let error = axes(text, &scenario).unwrap_err();
            assert_eq!(error.key, "--grid", "{text}");
            assert!(!error.hint.is_empty());
        }
    }
}
