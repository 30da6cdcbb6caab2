//! The cursor of the timeline: how keys move it.

use crate::reading::Point;

/// How the cursor moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// One point back.
    Back,
    /// One point on.
    On,
    /// To the first point.
    First,
    /// To the last point.
    Last,
    /// To the start of this phase, or of the one before.
    PhaseBack,
    /// To the start of the next phase.
    PhaseOn,
    /// To the peak.
    Peak,
}

impl Move {
    /// The move a key stands for.
    pub fn of_key(key: &str) -> Option<Self> {
        Some(match key {
            "ArrowLeft" | "ArrowDown" => Self::Back,
            "ArrowRight" | "ArrowUp" => Self::On,
            "Home" => Self::First,
            "End" => Self::Last,
            "PageUp" => Self::PhaseBack,
            "PageDown" => Self::PhaseOn,
            "p" | "P" => Self::Peak,
            _ => return None,
        })
    }
}

/// Where the cursor stands after a move.
pub fn moved(points: &[Point], peak: usize, cursor: usize, by: Move) -> usize {
    let last = points.len().saturating_sub(1);
    let cursor = cursor.min(last);
    let phase = points.get(cursor).map_or(0, |p| p.phase);
    match by {
        Move::Back => cursor.saturating_sub(1),
        Move::On => (cursor + 1).min(last),
        Move::First => 0,
        Move::Last => last,
        Move::Peak => peak.min(last),
        Move::PhaseOn => points.iter().position(|p| p.phase > phase).unwrap_or(last),
        Move::PhaseBack => {
            let start = points.iter().position(|p| p.phase == phase).unwrap_or(0);
            if start < cursor {
                return start;
            }
            let before = start.checked_sub(1).and_then(|i| points.get(i)).map(|p| p.phase);
            before.and_then(|phase| points.iter().position(|p| p.phase == phase)).unwrap_or(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Move, moved};
    use crate::reading::Point;
    use plimsoll_core::summary::Kind;

    fn points() -> Vec<Point> {
        [0, 0, 1, 1, 2, 3]
            .into_iter()
            .enumerate()
            .map(|(i, phase)| Point {
                event: i as u32,
                phase,
                live: [0; Kind::LEDGER],
                op: String::new(),
                module: String::new(),
            })
            .collect()
    }

    #[test]
    fn keys_move_the_cursor() {
        let points = points();
        let go = |from, by| moved(&points, 2, from, by);
        assert_eq!(go(0, Move::Back), 0);
        assert_eq!(go(0, Move::On), 1);
        assert_eq!(go(5, Move::On), 5);
        assert_eq!(go(3, Move::First), 0);
        assert_eq!(go(3, Move::Last), 5);
        assert_eq!(go(3, Move::Peak), 2);
        assert_eq!(go(0, Move::PhaseOn), 2);
        assert_eq!(go(2, Move::PhaseOn), 4);
        assert_eq!(go(5, Move::PhaseOn), 5);
        assert_eq!(go(3, Move::PhaseBack), 2);
        assert_eq!(go(2, Move::PhaseBack), 0);
        assert_eq!(go(0, Move::PhaseBack), 0);
        assert_eq!(Move::of_key("PageDown"), Some(Move::PhaseOn));
        assert_eq!(Move::of_key("q"), None);
    }

    #[test]
    fn without_points_it_stays_at_the_start() {
        for by in [Move::Back, Move::On, Move::First, Move::Last, Move::PhaseBack, Move::PhaseOn, Move::Peak] {
            assert_eq!(moved(&[], 3, 7, by), 0, "{by:?}");
        }
    }
}
