//! Counts tests from what the runners print.

/// How many tests did what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Ran and passed.
    pub passed: u64,
    /// Ran and failed.
    pub failed: u64,
    /// Did not run.
    pub skipped: u64,
}

impl Tally {
    /// Takes in a line of output; only a runner's summary counts:
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
    pub fn see(&mut self, line: &str) {
        let Some(counts) = line.trim().strip_prefix("test result: ") else { return };
        // The verdict ends in a full stop, which `;` does not split off.
        for part in counts.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(Ok(count)), Some(what)) = (words.next().map(str::parse::<u64>), words.next()) else { continue };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.skipped += count,
                _ => {}
            }
        }
    }

    /// Whether anything ran.
    pub fn ran(self) -> bool {
        self.passed + self.failed > 0
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_cargo_and_of_wasm_bindgen_are_summed() {
        let mut tally = Tally::default();
        for line in [
            "running 4 tests",
            "test a::b ... ok",
            "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 5 filtered out; finished in 0.50s",
            "test result: ok. 10 passed; 0 failed; 0 ignored; 0 filtered out; finished in 1.02s",
            "the text says test result: ok. 99 passed",
        ] {
            tally.see(line);
        }
        assert_eq!(tally, Tally { passed: 13, failed: 1, skipped: 2 });
    }

    #[test]
    fn nothing_seen_is_nothing_run() {
        let mut tally = Tally::default();
        tally.see("test result: ok. 0 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        assert!(!tally.ran());
    }
}
