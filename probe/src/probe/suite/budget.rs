//! Time: how much may be spent, how much a further entry will take.

use std::time::Duration;

/// What `--time-budget` takes: `90s`, `30m`, `1h30m`.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time; write it like 90s, 30m or 1h30m");
    let (mut total, mut rest) = (0u64, text.trim());
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, after) = rest.split_at(end);
        let mut letters = after.chars();
        let seconds = match letters.next() {
            Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3600,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        total = number.checked_mul(seconds).and_then(|more| total.checked_add(more)).ok_or_else(wrong)?;
        rest = letters.as_str();
    }
    Ok(Duration::from_secs(total))
}

/// What was spent, and what it had been expected to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    spent: Duration,
    measured: Duration,
    expected: u64,
    entries: u32,
}

/// From so many entries on a machine that was faster than the list counts as such.
const ENOUGH: u32 = 5;
/// And an entry is given so many times what they took: entries differ in how much of their time is Python's.
const SLACK: f64 = 3.0;

impl Clock {
    /// An entry took `time`, and `expected` seconds had been reckoned with.
    pub fn add(&mut self, time: Duration, expected: u64) {
        self.spent += time;
        self.measured += time;
        self.expected += expected;
        self.entries += 1;
    }

    /// How long the next entry will take: as the list says, longer where this machine is slower than the list thinks, and shorter
    /// where several entries have shown that it is faster.
    pub fn forecast(&self, expected: u64) -> Duration {
        let taken = if self.expected == 0 { 1.0 } else { self.measured.as_secs_f64() / self.expected as f64 };
        let share = if self.entries < ENOUGH { taken.max(1.0) } else { taken.max((SLACK * taken).min(1.0)) };
        Duration::from_secs(expected).mul_f64(share)
    }

    /// Whether an entry would go past the budget.
    pub fn past(&self, budget: Option<Duration>, expected: u64) -> bool {
        budget.is_some_and(|budget| self.spent + self.forecast(expected) > budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_people_write_them() {
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("1h30m", 5400), (" 2h ", 7200), ("0s", 0)] {
            assert_eq!(parse(text).unwrap().as_secs(), seconds);
        }
        for text in ["", "30", "m", "-1m", "1.5h", "30 m", "1d", "99999999999999999999s", "9999999999999999h"] {
            assert!(parse(text).unwrap_err().contains("30m"), "{text}");
        }
    }

    #[test]
    fn a_slow_machine_stops_earlier() {
        let mut clock = Clock::default();
        let budget = Some(Duration::from_secs(100));
        assert!(!clock.past(budget, 60));
        assert!(clock.past(budget, 101));
        assert!(!clock.past(None, u64::from(u32::MAX)));
        clock.add(Duration::from_secs(40), 20);
        assert_eq!(clock.forecast(20), Duration::from_secs(40));
        assert!(clock.past(budget, 31));
        // One fast entry is no fast machine; several are, with room to spare.
        let mut clock = Clock::default();
        clock.add(Duration::from_secs(2), 20);
        assert_eq!(clock.forecast(20), Duration::from_secs(20));
        for _ in 1..ENOUGH {
            clock.add(Duration::from_secs(2), 20);
        }
        assert_eq!(clock.forecast(20), Duration::from_secs(6));
        clock.add(Duration::from_secs(500), 20);
        assert!(clock.forecast(20) > Duration::from_secs(80));
    }
}
