//! A linear scale of memory with round ticks.

use plimsoll_core::Bytes;

/// One GiB as a float.
const GIB: f64 = 1_073_741_824.0;

/// Maps memory to a vertical position: zero at `bottom`, `top` at `ceiling`; y grows downwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// What stands at the top edge.
    pub top: Bytes,
    /// y of zero bytes.
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
        Self { top: top.max(Bytes::new(1)), bottom, ceiling }
    }

    /// y of `bytes`; above `ceiling` when they exceed the top.
    pub fn y(&self, bytes: Bytes) -> f64 {
        self.bottom - self.length(bytes)
    }

    /// How long `bytes` are on this scale.
    pub fn length(&self, bytes: Bytes) -> f64 {
        (self.bottom - self.ceiling) * (bytes.get() as f64 / self.top.get() as f64)
    }

    /// Ticks at a round step from zero up, at least `gap` apart.
    pub fn ticks(&self, gap: f64) -> Vec<Tick> {
        let per_gib = (self.bottom - self.ceiling) * GIB / self.top.get() as f64;
        let step = round_step(gap / per_gib);
        let count = (self.top.get() as f64 / GIB / step + 1e-9).floor();
        // The step bounds the count; 200 is far above any height and below any trouble.
        let count = if count.is_finite() { count.clamp(0.0, 200.0) as u32 } else { 0 };
        let places = if step >= 1.0 {
            0
        } else if step >= 0.1 {
            1
        } else {
            2
        };
        (0..=count)
            .map(|i| {
                let value = f64::from(i) * step;
                Tick { y: self.bottom - value * per_gib, text: format!("{value:.places$}") }
            })
            .collect()
    }
}

/// The smallest of 1, 2, 5 x 10^n that is not below `least`.
fn round_step(least: f64) -> f64 {
    if !least.is_finite() || least <= 0.0 {
        return 1.0;
    }
    let mut decade = 0.01;
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
    fn extremes_stay_drawable() {
        for top in [0, 1, 1 << 20, 1 << 40, u64::MAX] {
            let ticks = Scale::new(Bytes::new(top), 500.0, 20.0).ticks(40.0);
            assert!((1..=13).contains(&ticks.len()), "{top}: {}", ticks.len());
        }
    }
}
