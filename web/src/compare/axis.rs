//! A logarithmic axis of memory: a run of half a gibibyte and one of eighty on one sheet.

use plimsoll_core::Bytes;

/// One GiB as a float.
const GIB: f64 = 1_073_741_824.0;

/// From `low` to `high`, powers of two of a GiB, along `start` to `end` in px.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    low: i32,
    high: i32,
    start: f64,
    end: f64,
}

/// One tick.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Its position in px.
    pub at: f64,
    /// What is written beside it: `8`, in GiB; `½` and less as decimals.
    pub text: String,
}

impl Axis {
    /// The smallest axis that holds all of `sizes`, at least two octaves.
    pub fn around(sizes: impl Iterator<Item = Bytes>, start: f64, end: f64) -> Self {
        let mut range: Option<(f64, f64)> = None;
        for size in sizes.filter(|b| *b > Bytes::ZERO) {
            let octave = (size.get() as f64 / GIB).log2();
            range = Some(range.map_or((octave, octave), |(low, high)| (low.min(octave), high.max(octave))));
        }
        let (low, high) = range.unwrap_or((0.0, 3.0));
        // Sizes are u64: between 2^-30 and 2^34 GiB.
        let (mut low, mut high) = ((low + 1e-9).floor() as i32, (high - 1e-9).ceil() as i32);
        if high - low < 2 {
            high = low + 2;
            if high - 1 > low {
                low -= 1;
            }
        }
        Self { low, high, start, end }
    }

    /// Where `bytes` stand; at the low end for none.
    pub fn at(&self, bytes: Bytes) -> f64 {
        let octave = if bytes == Bytes::ZERO { f64::from(self.low) } else { (bytes.get() as f64 / GIB).log2() };
        let share = (octave - f64::from(self.low)) / f64::from(self.high - self.low);
        self.start + (self.end - self.start) * share.clamp(0.0, 1.0)
    }

    /// The same range along another stretch.
    pub const fn along(self, start: f64, end: f64) -> Self {
        Self { start, end, ..self }
    }

    /// A tick at every power of two, or at every few so that they are `gap` px apart.
    pub fn ticks(&self, gap: f64) -> Vec<Tick> {
        let octave = (self.end - self.start).abs() / f64::from(self.high - self.low);
        let every = ((gap / octave.max(1e-6)).ceil() as i32).max(1);
        (self.low..=self.high)
            .filter(|n| (n - self.low) % every == 0)
            .map(|n| {
                let share = f64::from(n - self.low) / f64::from(self.high - self.low);
                let text = if n >= 0 { format!("{}", 1_u64 << n.min(40)) } else { format!("{}", 2_f64.powi(n)) };
                let text = if text.len() > 5 { format!("{:.3}", 2_f64.powi(n)) } else { text };
                Tick { at: self.start + (self.end - self.start) * share, text }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_it_is_made_around() {
        let sizes = [Bytes::from_mib(300), Bytes::from_gib(80)];
        let axis = Axis::around(sizes.into_iter(), 0.0, 900.0);
        assert!(axis.at(sizes[0]) > 0.0 && axis.at(sizes[1]) < 900.0);
        assert_eq!(axis.at(Bytes::ZERO), 0.0);
        let texts: Vec<String> = axis.ticks(40.0).into_iter().map(|m| m.text).collect();
        assert_eq!(texts, ["0.25", "0.5", "1", "2", "4", "8", "16", "32", "64", "128"]);
    }

    #[test]
    fn ticks_keep_their_distance_and_one_point_is_no_trouble() {
        let axis = Axis::around([Bytes::from_gib(8)].into_iter(), 400.0, 0.0);
        assert!(axis.at(Bytes::from_gib(8)) > 0.0 && axis.at(Bytes::from_gib(8)) < 400.0);
        for ticks in [axis.ticks(10.0), axis.ticks(300.0), Axis::around(std::iter::empty(), 0.0, 200.0).ticks(60.0)] {
            assert!(!ticks.is_empty());
            assert!(ticks.windows(2).all(|w| (w[0].at - w[1].at).abs() > 9.0));
        }
    }

    #[test]
    fn absurd_sizes_stay_drawable() {
        let axis = Axis::around([Bytes::new(1), Bytes::new(u64::MAX)].into_iter(), 0.0, 100.0);
        assert!(axis.ticks(20.0).len() <= 8 && axis.at(Bytes::new(u64::MAX)).is_finite());
    }
}
