//! A linear scale of memory with round ticks.

use plimsoll_core::{Bytes, grouped};

/// One GiB as a float.
const GIB: f64 = 1_073_741_824.0;

/// Maps memory to a vertical position: `base` at `bottom`, `top` at `ceiling`; y grows downwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// What stands at the bottom edge: nothing, but where a part is looked at closely.
    pub base: Bytes,
    /// What stands at the top edge.
    pub top: Bytes,
    /// y of `base`, and of all that is less.
    pub bottom: f64,
    /// y of `top`.
    pub ceiling: f64,
}

/// One tick of a scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Its position.
    pub y: f64,
    /// What is written beside it, in GiB.
    pub text: String,
}

impl Scale {
    /// `top` is raised to at least one byte, so that nothing divides by zero.
    pub fn new(top: Bytes, bottom: f64, ceiling: f64) -> Self {
        Self::between(Bytes::ZERO, top, bottom, ceiling)
    }

    /// From `base` to `top`, which is raised to a byte above it.
    pub fn between(base: Bytes, top: Bytes, bottom: f64, ceiling: f64) -> Self {
        Self { base, top: top.max(Bytes::new(base.get().saturating_add(1))), bottom, ceiling }
    }

    /// y of `bytes`; above `ceiling` when they exceed the top.
    pub fn y(&self, bytes: Bytes) -> f64 {
        self.bottom - self.length(bytes.saturating_sub(self.base))
    }

    /// How long `bytes` are on this scale.
    pub fn length(&self, bytes: Bytes) -> f64 {
        (self.bottom - self.ceiling) * (bytes.get() as f64 / self.span())
    }

    fn span(&self) -> f64 {
        self.top.saturating_sub(self.base).get() as f64
    }

    /// Ticks at a round step from the base up, at least `gap` apart.
    pub fn ticks(&self, gap: f64) -> Vec<Tick> {
        let per_gib = (self.bottom - self.ceiling) * GIB / self.span();
        let least = if self.base == Bytes::ZERO { LEAST } else { FINEST };
        let step = round_step(gap / per_gib, least);
        let base = self.base.get() as f64 / GIB;
        let first = (base / step - 1e-9).ceil().max(0.0);
        let last = (self.top.get() as f64 / GIB / step + 1e-9).floor();
        // The step bounds the count; 200 is far above any height and below any trouble.
        let count = if (last - first).is_finite() { (last - first).clamp(-1.0, 200.0) + 1.0 } else { 0.0 };
        let mut places = 0;
        let mut unit = 1.0;
        while step < unit * 0.999 && places < 9 {
            (places, unit) = (places + 1, unit / 10.0);
        }
        (0..count as u32)
            .map(|i| {
                let value = (first + f64::from(i)) * step;
                let text =
                    if value >= 1000.0 && places == 0 { grouped(value as u64) } else { format!("{value:.places$}") };
                Tick { y: self.bottom - (value - base) * per_gib, text }
            })
            .collect()
    }
}

/// The finest step of a scale from zero, and of one that is not, in GiB: a hundredth is what figures are written to.
const LEAST: f64 = 0.01;
const FINEST: f64 = 1e-6;

/// The smallest of 1, 2, 5 x 10^n that is below neither `least` nor `finest`, which is a power of ten.
fn round_step(least: f64, finest: f64) -> f64 {
    if !least.is_finite() || least <= 0.0 {
        return 1.0;
    }
    let mut decade = finest;
    loop {
        for step in [1.0, 2.0, 5.0] {
            if step * decade >= least {
                return step * decade;
            }
        }
        decade *= 10.0;
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Bytes;

    use super::Scale;

    #[test]
    fn zero_is_at_the_bottom_and_the_top_at_the_ceiling() {
        let scale = Scale::new(Bytes::from_gib(12), 500.0, 20.0);
        assert_eq!(scale.y(Bytes::ZERO), 500.0);
        assert_eq!(scale.y(Bytes::from_gib(12)), 20.0);
        assert_eq!(scale.y(Bytes::from_gib(6)), 260.0);
    }

    #[test]
    fn ticks_are_round_and_apart() {
        let scale = Scale::new(Bytes::from_gib(13), 500.0, 20.0);
        let ticks = scale.ticks(30.0);
        let texts: Vec<_> = ticks.iter().map(|t| t.text.as_str()).collect();
        assert_eq!(texts, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13"]);
        assert!(ticks.windows(2).all(|w| w[0].y - w[1].y >= 30.0));
    }

    #[test]
    fn a_scale_may_begin_above_nothing() {
        let scale = Scale::between(Bytes::from_gib(10), Bytes::from_gib(12), 500.0, 100.0);
        assert_eq!((scale.y(Bytes::from_gib(10)), scale.y(Bytes::from_gib(11))), (500.0, 300.0));
        assert_eq!(scale.y(Bytes::from_gib(3)), 500.0, "what lies under it is at its foot");
        let texts: Vec<_> = scale.ticks(90.0).into_iter().map(|t| t.text).collect();
        assert_eq!(texts, ["10.0", "10.5", "11.0", "11.5", "12.0"]);
        // Two allocations of a MiB on twenty GiB.
        let fine = Scale::between(Bytes::from_gib(20), Bytes::new((20 << 30) + (2 << 20)), 300.0, 20.0);
        let texts: Vec<_> = fine.ticks(60.0).into_iter().map(|t| t.text).collect();
        assert_eq!(texts, ["20.0000", "20.0005", "20.0010", "20.0015"]);
    }

    #[test]
    fn thousands_are_grouped_as_elsewhere() {
        let texts: Vec<_> =
            Scale::new(Bytes::from_gib(1400), 500.0, 20.0).ticks(100.0).into_iter().map(|t| t.text).collect();
        assert_eq!(texts, ["0", "500", "1,000"]);
    }

    #[test]
    fn extremes_stay_drawable() {
        for top in [0, 1, 1 << 20, 1 << 40, u64::MAX] {
            let ticks = Scale::new(Bytes::new(top), 500.0, 20.0).ticks(40.0);
            assert!((1..=13).contains(&ticks.len()), "{top}: {}", ticks.len());
        }
    }
}
