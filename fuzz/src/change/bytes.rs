//! Changes of an input that know nothing of what it says.

use super::Seed;
use crate::chance::Chance;

/// Words and figures at which readers go wrong.
const TOKENS: [&str; 16] = [
    "null",
    "true",
    "0",
    "-1",
    "1e308",
    "18446744073709551616",
    "9007199254740993",
    "NaN",
    "\"\"",
    "[]",
    "{}",
    "\\u0000",
    "%00",
    "\u{feff}",
    "&m=",
    "#m=",
];

/// Changes an input in one place.
pub(super) fn change(input: &mut Vec<u8>, seeds: &[Seed], chance: &mut Chance) {
    let at = chance.below(input.len() + 1);
    let end = input.len().min(at + chance.below(16));
    match chance.below(7) {
        0 => {
            let token = chance.one_of(&TOKENS).copied().unwrap_or_default();
            input.splice(at..end, token.bytes());
        }
        1 => drop(input.drain(at..end)),
        2 => {
            let part = input.get(at..end).unwrap_or_default().to_vec();
            input.splice(at..at, part);
        }
        3 => {
            let bit = 1 << chance.below(8);
            if let Some(byte) = input.get_mut(at) {
                *byte ^= bit;
            }
        }
        4 => {
            // A digit elsewhere is another figure in its place.
            let digit = b'0' + u8::try_from(chance.below(10)).unwrap_or_default();
            let digits: Vec<usize> =
                (0..input.len()).filter(|&i| input.get(i).is_some_and(u8::is_ascii_digit)).collect();
            if let Some(byte) = digits.get(chance.below(digits.len())).and_then(|&i| input.get_mut(i)) {
                *byte = digit;
            }
        }
        5 => input.truncate(at),
        _ => {
            let other = chance.one_of(seeds).map_or(&[][..], |seed| &seed.text);
            let from = chance.below(other.len());
            let part = other.get(from..other.len().min(from + 64)).unwrap_or_default();
            input.splice(at..end, part.iter().copied());
        }
    }
}
