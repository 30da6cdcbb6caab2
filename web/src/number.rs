//! How numbers are written on the page.

use plimsoll_core::Bytes;
pub use plimsoll_core::grouped;

/// The minus sign of typography; a hyphen is too short beside figures.
const MINUS: char = '\u{2212}';

/// Number and unit apart, so that the page can set them in different sizes: `("16.42", "GiB")`.
pub fn parts(bytes: Bytes) -> (String, &'static str) {
    let n = bytes.get() as f64;
    match bytes.get() {
        0 => ("0".to_owned(), "GiB"),
        1..1024 => (bytes.get().to_string(), "B"),
        1024..1_048_576 => (format!("{:.1}", n / 1024.0), "KiB"),
        1_048_576..1_073_741_824 => (three_figures(n / 1_048_576.0), "MiB"),
        _ => (three_figures(bytes.gib()), "GiB"),
    }
}

/// `16.42 GiB`.
pub fn bytes(bytes: Bytes) -> String {
    let (number, unit) = parts(bytes);
    format!("{number} {unit}")
}

/// Always in GiB, for columns that are read downwards: `16.42`, `0.06`, `<0.01`, `1,367`.
pub fn gib(bytes: Bytes) -> String {
    gib_to(bytes, 2)
}

/// The same with at most so many decimals, for where there is less room.
pub fn gib_to(bytes: Bytes, places: usize) -> String {
    match bytes.get() {
        0 => "0".to_owned(),
        1..5_368_709 if places > 1 => "<0.01".to_owned(),
        _ if bytes.gib() >= 999.995 => grouped(bytes.gib().round() as u64),
        _ => format!("{:.places$}", bytes.gib()),
    }
}

/// A difference in bytes with its sign: `+2.10 GiB`, `−340 MiB`.
pub fn signed(difference: i64) -> String {
    let text = bytes(Bytes::new(difference.unsigned_abs()));
    match difference {
        0 => text,
        ..0 => format!("{MINUS}{text}"),
        _ => format!("+{text}"),
    }
}

/// A count people can say: `1.24 B`, `124 M`, `8,192`.
pub fn count(n: u64) -> String {
    let short = |value: f64, unit: &str| {
        let places = if value < 10.0 {
            2
        } else if value < 100.0 {
            1
        } else {
            0
        };
        format!("{value:.places$} {unit}")
    };
    match n {
        0..100_000 => grouped(n),
        100_000..1_000_000 => short(n as f64 / 1e3, "K"),
        1_000_000..1_000_000_000 => short(n as f64 / 1e6, "M"),
        1_000_000_000..1_000_000_000_000 => short(n as f64 / 1e9, "B"),
        _ => short(n as f64 / 1e12, "T"),
    }
}

/// `part` of `whole` in per cent: `62 %`, `3.1 %`, `<0.1 %`.
pub fn share(part: Bytes, whole: Bytes) -> String {
    if part == Bytes::ZERO || whole == Bytes::ZERO {
        return "0 %".to_owned();
    }
    let percent = 100.0 * part.get() as f64 / whole.get() as f64;
    if percent < 0.1 {
        "<0.1 %".to_owned()
    } else if percent < 9.95 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

/// `16.42`, `164.2`, `1,642`: as many decimals as are worth reading.
fn three_figures(value: f64) -> String {
    if value < 100.0 {
        format!("{value:.2}")
    } else if value < 1000.0 {
        format!("{value:.1}")
    } else {
        grouped(value.round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Bytes;

    use super::{bytes, count, gib, share, signed};

    #[test]
    fn bytes_take_the_unit_that_reads_best() {
        assert_eq!(bytes(Bytes::ZERO), "0 GiB");
        assert_eq!(bytes(Bytes::new(512)), "512 B");
        assert_eq!(bytes(Bytes::from_mib(340)), "340.0 MiB");
        assert_eq!(bytes(Bytes::from_gib(16)), "16.00 GiB");
        assert_eq!(bytes(Bytes::from_gib(1642)), "1,642 GiB");
    }

    #[test]
    fn columns_stay_in_gib() {
        assert_eq!(gib(Bytes::ZERO), "0");
        assert_eq!(gib(Bytes::new(1)), "<0.01");
        assert_eq!(gib(Bytes::from_mib(64)), "0.06");
        assert_eq!(gib(Bytes::from_gib(20_000)), "20,000");
    }

    #[test]
    fn signs_are_said() {
        assert_eq!(signed(0), "0 GiB");
        assert_eq!(signed(-(3 << 30)), "−3.00 GiB");
        assert_eq!(signed(3 << 30), "+3.00 GiB");
        assert_eq!(signed(i64::MIN), "−8,589,934,592 GiB");
    }

    #[test]
    fn counts_are_short() {
        assert_eq!(count(8192), "8,192");
        assert_eq!(count(124_439_808), "124 M");
        assert_eq!(count(1_235_814_400), "1.24 B");
    }

    #[test]
    fn shares_never_divide_by_zero() {
        assert_eq!(share(Bytes::from_gib(1), Bytes::ZERO), "0 %");
        assert_eq!(share(Bytes::from_gib(1), Bytes::from_gib(2)), "50 %");
        assert_eq!(share(Bytes::new(1), Bytes::from_gib(2)), "<0.1 %");
    }
}
