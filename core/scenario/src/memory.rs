//! Sizes as people write them: `11.6 GiB`, `11 GB`, `12000 MiB`.

use plimsoll_ground::Bytes;
use plimsoll_ground::quoted;

/// Units with their bytes; binary before decimal. A letter alone is what people mean by it where memory is meant: `12 G` is
/// 12 GiB, as for `nvidia-smi` and the shells.
const UNITS: &[(&str, u64)] = &[
    ("tib", 1 << 40),
    ("gib", 1 << 30),
    ("mib", 1 << 20),
    ("kib", 1 << 10),
    ("tb", 1_000_000_000_000),
    ("gb", 1_000_000_000),
    ("mb", 1_000_000),
    ("kb", 1_000),
    ("t", 1 << 40),
    ("g", 1 << 30),
    ("m", 1 << 20),
    ("k", 1 << 10),
    ("b", 1),
];

/// Most digits after the point: more say nothing about memory.
const DECIMALS: usize = 9;

/// Reads a size. A comma is a decimal one, unless three digits follow: those may be thousands.
///
/// # Errors
/// What is wrong, as a clause that follows the key.
pub fn parse(text: &str) -> Result<Bytes, String> {
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let number = match number.split_once(',') {
        Some((whole, fraction)) if fraction.len() != 3 => &format!("{whole}.{fraction}"),
        _ => number,
    };
    let unit = unit.trim().to_ascii_lowercase();
    let scale = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, scale)) => *scale,
        None if unit.is_empty() && !number.is_empty() => 1,
        None => return Err(format!("{} is not a size", quoted(text))),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits_only = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits_only(whole) || !digits_only(fraction) || fraction.len() > DECIMALS {
        return Err(format!("{} is not a size", quoted(text)));
    }
    let too_large = || format!("{} is too large", quoted(text));
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    // Nine digits at most, so the default is only met by an empty fraction.
    let part: u64 = fraction.parse().unwrap_or_default();
    let tenths = 10u128.pow(u32::try_from(fraction.len()).unwrap_or_default());
    let bytes = u128::from(whole) * u128::from(scale) + (u128::from(part) * u128::from(scale) + tenths / 2) / tenths;
    u64::try_from(bytes).map(Bytes::new).map_err(|_| too_large())
}

/// Reads a size of which the unit may be left out, as in a field that says it is of GiB.
///
/// # Errors
/// As [`parse`].
pub fn parse_gib(text: &str) -> Result<Bytes, String> {
    let bare = text.trim().bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b',');
    if bare { parse(&format!("{} GiB", text.trim())) } else { parse(text) }
}

/// The shortest text that [`parse`] reads as exactly this size: `11.6 GiB`, `12227 MiB`, `1000001 B`.
pub fn print(bytes: Bytes) -> String {
    for (name, label) in [("gib", "GiB"), ("mib", "MiB")] {
        let Some((_, scale)) = UNITS.iter().find(|(unit, _)| *unit == name) else { continue };
        for decimals in 0..=3u32 {
            let tenths = 10u128.pow(decimals);
            let scaled = (u128::from(bytes.get()) * tenths + u128::from(*scale) / 2) / u128::from(*scale);
            let (whole, part) = (scaled / tenths, scaled % tenths);
            let text = match decimals {
                0 => format!("{whole} {label}"),
                _ => format!("{whole}.{part:0width$} {label}", width = decimals as usize),
            };
            if whole > 0 && parse(&text) == Ok(bytes) {
                return text;
            }
        }
    }
    format!("{} B", bytes.get())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_way_of_writing_it() {
        assert_eq!(parse("11.6 GiB"), Ok(Bytes::new(12_455_405_158)));
        assert_eq!(parse("11GiB"), Ok(Bytes::from_gib(11)));
        assert_eq!(parse(" 11 gb "), Ok(Bytes::new(11_000_000_000)));
        assert_eq!(parse("12000 MiB"), Ok(Bytes::from_mib(12_000)));
        assert_eq!(parse("1.5 TiB"), Ok(Bytes::from_gib(1536)));
        assert_eq!(parse("1048576"), Ok(Bytes::from_mib(1)));
        assert_eq!(parse("7 B"), Ok(Bytes::new(7)));
        for text in ["12 G", "12G", "12 GiB", "12288 M"] {
            assert_eq!(parse(text), Ok(Bytes::from_gib(12)), "{text}");
        }
        assert_eq!(parse("12GB"), Ok(Bytes::new(12_000_000_000)));
        assert_eq!(parse("11,5 GiB"), Ok(Bytes::from_mib(11_776)));
    }

    #[test]
    fn what_is_not_a_size() {
        for text in [
            "",
            " ",
            "GiB",
            "-1 GiB",
            "1,024 MiB",
            "1.2.3 GiB",
            "1,2,3 GiB",
            ".5 GiB",
            "NaN",
            "1e9",
            "11 Gi",
            "11 GiB!",
            "inf GiB",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(parse("99999999999999 TiB").is_err_and(|e| e.contains("too large")));
        assert!(parse("999999999999999999999999999 B").is_err_and(|e| e.contains("too large")));
        assert!(parse("0.0000000001 GiB").is_err());
    }

    #[test]
    fn a_field_of_gib_needs_no_unit() {
        assert_eq!(parse_gib("11.5"), Ok(Bytes::from_mib(11_776)));
        for text in ["11,5 GiB", "900MiB", "12 G", "12GB"] {
            assert_eq!(parse_gib(text), parse(text), "{text}");
        }
        assert!(parse_gib("").is_err() && parse_gib("lots").is_err());
    }

    #[test]
    fn printed_short() {
        assert_eq!(print(Bytes::new(12_455_405_158)), "11.6 GiB");
        assert_eq!(print(Bytes::from_gib(11)), "11 GiB");
        assert_eq!(print(Bytes::from_mib(12_227)), "12227 MiB");
        assert_eq!(print(Bytes::new(1_000_001)), "1000001 B");
        assert_eq!(print(Bytes::ZERO), "0 B");
    }

    proptest! {
        #[test]
        fn printing_and_reading_is_exact(n: u64) {
            prop_assert_eq!(parse(&print(Bytes::new(n))), Ok(Bytes::new(n)));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = parse(&text);
        }
    }
}
