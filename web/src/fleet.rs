//! Cards that do different things, as hulls side by side on one scale.

use plimsoll_core::Bytes;
use plimsoll_core::summary::{Hull, Kind};

use crate::gauge::{grow, layers};
use crate::reading::Reading;
use crate::scale::Scale;

/// Width of the drawing of one hull, in px.
pub const WIDTH: f64 = 112.0;

/// Its height.
pub const HEIGHT: f64 = 168.0;

/// The hull within it: left edge, width, y of its keel.
pub const HULL: (f64, f64, f64) = (18.0, 76.0, HEIGHT - 8.0);

/// One hull, ready to be drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Berth {
    /// Which cards.
    pub cards: String,
    /// How deep it sits.
    pub process: Bytes,
    /// To spare, or over.
    pub headroom: i64,
    /// The stack from the keel up: kind, top, height.
    pub layers: Vec<(Kind, f64, f64)>,
    /// y of the surface.
    pub waterline: f64,
}

/// All of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// The first card's first.
    pub berths: Vec<Berth>,
    /// y of the load line.
    pub line: f64,
    /// y of what a card can give at most.
    pub deck: f64,
}

impl Fleet {
    /// Lays the roles of a run out; `None` where all cards do the same.
    pub fn new(reading: &Reading) -> Option<Self> {
        if reading.fleet.is_empty() {
            return None;
        }
        let deepest = reading.fleet.iter().map(|hull| grow(hull.process, 106));
        let deepest = deepest.fold(grow(reading.capacity, 112), Bytes::max);
        let scale = Scale::new(deepest, HULL.2, 4.0);
        let berth = |hull: &Hull| Berth {
            cards: hull.cards.clone(),
            process: hull.process,
            headroom: hull.headroom,
            layers: layers(&hull.parts, &scale).into_iter().map(|(part, y, foot)| (part.kind, y, foot - y)).collect(),
            waterline: scale.y(hull.process),
        };
        Some(Self {
            berths: reading.fleet.iter().map(berth).collect(),
            line: scale.y(reading.load_line),
            deck: scale.y(reading.capacity),
        })
    }
}
