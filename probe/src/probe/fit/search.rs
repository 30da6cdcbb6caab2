//! Looking for the largest number that fits, with as few tries as a good guess allows.

/// A guess is given up for lost when so many more or fewer were no answer either.
const FAR: u64 = 4;

/// A search for the largest micro-batch that trains. Whatever fits, fits with fewer samples too.
#[derive(Clone, Debug)]
pub struct Search {
    /// The largest that is known to fit; 0 as long as none is.
    good: u64,
    /// The smallest that is known not to.
    bad: Option<u64>,
    /// What it probably is.
    aim: Option<u64>,
    /// No more than this is tried.
    most: u64,
    /// How far the next step away from what is known goes.
    step: u64,
}

impl Search {
    /// `aim` is what it probably is; without it the search doubles from 1.
    pub fn new(aim: Option<u64>, most: u64) -> Self {
        Self { good: 0, bad: None, aim: aim.map(|n| n.clamp(1, most)), most, step: 1 }
    }

    /// A better guess.
    pub fn aim(&mut self, aim: u64) {
        self.aim = Some(aim.clamp(1, self.most));
    }

    /// What to try next; `None` when [`Search::largest`] is the answer.
    pub fn next(&self) -> Option<u64> {
        if self.good == self.most || self.bad == Some(self.good + 1) {
            return None;
        }
        let open = |n: &u64| *n > self.good && self.bad.is_none_or(|bad| *n < bad);
        // The guess; then, where that fits, the one above it, and so on outward in doubling steps.
        if let Some(aim) = self.aim.filter(open) {
            return Some(aim);
        }
        match (self.good, self.bad) {
            (good, None) => {
                let step = if self.aim.is_some() { self.step } else { good.max(1) };
                Some(good.saturating_add(step).min(self.most))
            }
            (0, Some(bad)) => Some(bad.saturating_sub(self.step).max(1)),
            (good, Some(bad)) => Some(good + (bad - good) / 2),
        }
    }

    /// How a try went.
    pub fn tried(&mut self, n: u64, fits: bool) {
        if let Some(aim) = self.aim.filter(|aim| *aim != n) {
            // The first steps off the guess are 1 and 2: it is usually right. When it is not even near, it is no guess.
            let wide = if self.step >= FAR { aim / 4 } else { 0 };
            self.step = self.step.saturating_mul(2).max(wide);
        }
        self.know(n, fits);
    }

    /// What is known without a try.
    pub fn know(&mut self, n: u64, fits: bool) {
        if fits {
            self.good = self.good.max(n);
        } else {
            self.bad = Some(self.bad.map_or(n, |bad| bad.min(n)));
        }
    }

    /// The largest that is known to fit; 0 as long as none is.
    pub const fn largest(&self) -> u64 {
        self.good
    }
}

/// How many tries doubling and halving need without a guess when `truth` is the answer.
pub fn blind(truth: u64, most: u64) -> u32 {
    let mut search = Search::new(None, most);
    let mut tries = 0;
    while let Some(n) = search.next() {
        search.tried(n, n <= truth);
        tries += 1;
    }
    tries
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 1 << 24;

    fn tries(truth: u64, aim: Option<u64>, most: u64) -> Vec<u64> {
        let mut search = Search::new(aim, most);
        let mut tried = Vec::new();
        while let Some(n) = search.next() {
            assert!((1..=most).contains(&n), "{n} with {truth} and {aim:?}");
            assert!(!tried.contains(&n), "{n} twice with {truth} and {aim:?}: {tried:?}");
            tried.push(n);
            search.tried(n, n <= truth);
        }
        assert_eq!(search.largest(), truth.min(most), "{aim:?}: {tried:?}");
        tried
    }

    #[test]
    fn a_right_guess_takes_two_tries_and_one_off_by_two_at_most_four() {
        assert_eq!(tries(32, Some(32), MOST), [32, 33]);
        assert_eq!(tries(33, Some(32), MOST), [32, 33, 35, 34]);
        assert_eq!(tries(34, Some(32), MOST), [32, 33, 35, 34]);
        assert_eq!(tries(31, Some(32), MOST), [32, 31]);
        assert_eq!(tries(30, Some(32), MOST), [32, 31, 29, 30]);
        assert_eq!(tries(0, Some(0), MOST), [1]);
        assert_eq!(tries(0, Some(1), MOST), [1]);
        assert_eq!(tries(1, Some(1), MOST), [1, 2]);
        assert_eq!(tries(MOST, Some(MOST), MOST), [MOST]);
    }

    /// Every truth with every guess, up to 160.
    #[test]
    fn it_always_finds_the_truth_in_the_promised_number_of_tries() {
        for truth in 0..160u64 {
            for aim in 0..160u64 {
                let count = tries(truth, Some(aim), MOST).len();
                let off = truth.abs_diff(aim);
                let promised = match off {
                    0 => 2,
                    1 | 2 => 4,
                    3..=6 => 6,
                    // Outward in wide steps, and back by halves.
                    _ => 6 + 2 * truth.max(aim).ilog2() as usize,
                };
                assert!(count <= promised, "{count} tries for {truth} from {aim}, promised {promised}");
            }
        }
    }

    #[test]
    fn far_off_guesses_and_bounds() {
        for truth in [0, 1, 7, 1000, 12_345, MOST - 1, MOST] {
            for aim in [None, Some(0), Some(1), Some(999), Some(100_000), Some(MOST), Some(u64::MAX)] {
                assert!(tries(truth, aim, MOST).len() <= 52);
            }
        }
        assert_eq!(tries(100, Some(8), 8), [8]);
        assert_eq!(tries(100, None, 8), [1, 2, 4, 8]);
    }

    #[test]
    fn a_guess_may_get_better_on_the_way() {
        let mut search = Search::new(Some(4), MOST);
        search.tried(4, true);
        search.aim(50);
        assert_eq!(search.next(), Some(50));
        search.tried(50, true);
        assert_eq!(search.next(), Some(51));
        search.tried(51, false);
        assert_eq!((search.next(), search.largest()), (None, 50));
    }

    #[test]
    fn without_a_guess() {
        assert_eq!(tries(5, None, MOST), [1, 2, 4, 8, 6, 5]);
        assert_eq!(blind(5, MOST), 6);
        // The batches of laptop cards: where an estimate needs two or three tries.
        assert!((16..=31).all(|truth| blind(truth, MOST) == 10));
        assert_eq!(blind(0, MOST), 1);
    }
}
