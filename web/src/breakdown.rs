//! The stacked bar of what fills the peak.

use crate::reading::Reading;
use plimsoll_core::summary::Kind;

/// One piece of the bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// What for.
    pub kind: Kind,
    /// Left edge, in per cent of the bar.
    pub x: f64,
    /// Width, in per cent of the bar.
    pub width: f64,
}

/// The pieces from left to right; together exactly the whole bar. Kinds without bytes are left out.
pub fn bar(reading: &Reading) -> Vec<Piece> {
    let whole = reading.parts.iter().map(|p| p.bytes.get() as f64).sum::<f64>().max(1.0);
    let mut x = 0.0;
    reading
        .parts
        .iter()
        .filter(|part| part.bytes.get() > 0)
        .map(|part| {
            let width = 100.0 * part.bytes.get() as f64 / whole;
            let piece = Piece { kind: part.kind, x, width };
            x += width;
            piece
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::summary::Kind;

    use super::bar;
    use crate::engine::{opening, read};

    /// A picture that is taken along has the page's colours: the first block of tokens is light, every later one dark.
    #[test]
    fn pages_and_pictures_have_the_same_colours() {
        let tokens = include_str!("../styles/tokens.css");
        for kind in Kind::ALL.into_iter().filter(|kind| kind.category().is_some()) {
            let name = format!("--{}: ", kind.class());
            let colours: Vec<&str> = tokens.split(&name).skip(1).filter_map(|rest| rest.split(';').next()).collect();
            let [light, dark] = kind.colours();
            assert_eq!(colours, [light, dark, dark], "{name}");
        }
    }

    #[test]
    fn the_bar_is_filled_from_end_to_end() {
        let (reading, _) = read(&opening()).unwrap();
        let pieces = bar(&reading);
        assert!(pieces.len() > 5);
        assert_eq!(pieces[0].x, 0.0);
        for pair in pieces.windows(2) {
            assert!((pair[0].x + pair[0].width - pair[1].x).abs() < 1e-9);
        }
        let end = pieces.last().map(|p| p.x + p.width).unwrap();
        assert!((end - 100.0).abs() < 1e-9);
    }
}
