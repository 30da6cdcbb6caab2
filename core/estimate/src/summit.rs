//! The moments of a stream that may be its highest.

use plimsoll_ground::Bytes;
use plimsoll_ledger::Ledger;

use crate::Line;
use crate::any_batch::Growth;
use crate::measure::ROUNDING;

/// `ROUNDING` in bytes.
const UNIT: i64 = ROUNDING.get() as i64;

/// The most that rounding up adds to a size.
pub const RAGGED: i64 = UNIT - 1;

/// A local maximum of what is alive, as high as this in `N` cases; rounding adds at most `slack`.
#[derive(Clone, Copy, Debug)]
pub struct Summit<const N: usize> {
    /// The allocation that makes it.
    pub event: usize,
    /// Bytes alive in each case.
    pub heights: [i64; N],
    /// How much more that may be.
    pub slack: i64,
}

/// The summits of a stream, in their order, but those that one of them is above in all cases: nearly all. `heights` has the
/// bytes of a storage of each way to grow, and how much more they may be; all storages together must stay below 2^63.
///
/// Where heights are affine functions of one number and the cases are the ends of a range, what one is above at both it is
/// above in between; so with two numbers, each of which heights are affine in, and the corners of a rectangle.
pub fn summits<const N: usize>(ledger: &Ledger, ways: &[u32], heights: &[([i64; N], i64)]) -> Vec<Summit<N>> {
    let mut kept: Vec<Summit<N>> = Vec::new();
    // Those that are the highest in one of the cases.
    let mut tops = [[i64::MIN; N]; N];
    let mut add = |summit: Summit<N>| {
        let below = |top: &[i64; N]| summit.heights.iter().zip(top).all(|(height, top)| height + summit.slack < *top);
        if tops.iter().any(below) {
            return;
        }
        for (case, top) in tops.iter_mut().enumerate() {
            if summit.heights[case] > top[case] {
                *top = summit.heights;
            }
        }
        kept.push(summit);
    };
    let mut here = Summit { event: 0, heights: [0; N], slack: 0 };
    let mut rising = false;
    for (event, e) in ledger.events.iter().enumerate() {
        let (bytes, slack) = &heights[ways[e.id() as usize] as usize];
        if e.is_free() {
            if rising {
                add(here);
            }
            here.heights.iter_mut().zip(bytes).for_each(|(here, bytes)| *here -= bytes);
            here.slack -= slack;
        } else {
            here.heights.iter_mut().zip(bytes).for_each(|(here, bytes)| *here += bytes);
            here.slack += slack;
            here.event = event;
        }
        rising = !e.is_free();
    }
    if rising {
        add(here);
    }
    kept
}

/// The line that a size follows when it is rounded up to 512 bytes; `None` where that is no line.
pub fn rounded(line: Line) -> Option<Line> {
    if line.per_sample == 0 {
        return Some(Line { fixed: line.fixed.saturating_add(RAGGED).div_euclid(UNIT) * UNIT, per_sample: 0 });
    }
    (line.fixed % UNIT == 0 && line.per_sample % UNIT == 0).then_some(line)
}

/// The line of a growth, and how much more than that it may take between two batches.
pub fn height(growth: &Growth, batches: [u64; 2]) -> (Line, i64) {
    match growth {
        Growth::Line(line) => rounded(*line).map_or((*line, RAGGED), |line| (line, 0)),
        Growth::Rule(..) => (Line::constant(0), bound(growth, batches)),
    }
}

/// About the most that a growth may take between two batches, and no more than sums of a few have room for. A rule may say less
/// of more, so it is asked at several.
pub fn bound(growth: &Growth, [first, last]: [u64; 2]) -> i64 {
    const ASKED: u64 = 8;
    const BOUND: u64 = 1 << 58;
    let within = last.saturating_sub(first);
    let most = (0..=ASKED).map(|i| growth.at(first + within / ASKED * i).max(growth.at(last)));
    most.max().unwrap_or(Bytes::ZERO).get().min(BOUND).saturating_add(ROUNDING.get()) as i64
}
