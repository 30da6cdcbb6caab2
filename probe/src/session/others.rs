//! Others on the card: whether to say so, or to leave it to them.

use super::Busy;
use super::sensors::Taken;

/// From this share of the card's memory on, others are told of.
const WARN_PERCENT: u64 = 5;
/// From this share on the card is left to them. As documented in `--help`.
const REFUSE_PERCENT: u64 = 25;

/// Others on the card.
pub struct Others {
    /// Whether they hold so much that a measurement is refused unless it is asked for.
    pub refuse: bool,
    /// In words.
    pub message: String,
}

/// Who else is on the card; `None` when there is nothing to say.
pub fn others(taken: &Taken, busy: Busy) -> Option<Others> {
    let used = taken.used_before.filter(|_| busy != Busy::Ignore)?;
    let total = taken.card.total;
    let percent = used.get().saturating_mul(100) / total.get().max(1);
    (percent >= WARN_PERCENT).then(|| Others {
        refuse: percent >= REFUSE_PERCENT,
        message: format!("others hold {used} of the card's {total} ({percent} %)"),
    })
}
