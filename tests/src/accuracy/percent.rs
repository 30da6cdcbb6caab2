//! Relative errors and how they are printed.

/// `(estimated - expected) / expected`; 0 when both are 0.
pub fn relative(estimated: u64, expected: u64) -> f64 {
    if estimated == expected { 0.0 } else { (estimated as f64 - expected as f64) / expected as f64 }
}

/// A share as people read it: `0`, `< 0.001 %`, `0.034 %`, `3.59 %`, `127 %`.
pub fn percent(share: f64) -> String {
    let p = share.abs() * 100.0;
    match p {
        0.0 => "0".to_owned(),
        _ if p < 0.001 => "< 0.001 %".to_owned(),
        _ if p < 1.0 => format!("{p:.3} %"),
        _ if p < 100.0 => format!("{p:.2} %"),
        _ => format!("{p:.0} %"),
    }
}

/// As [`percent`], with the sign: `+0.034 %`.
pub fn signed_percent(share: f64) -> String {
    let sign = if share < 0.0 { "-" } else { "+" };
    if share == 0.0 { "0".to_owned() } else { format!("{sign}{}", percent(share).trim_start_matches("< ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_readable() {
        assert_eq!([0.0, 1e-7, 0.00034, 0.0359, -1.27].map(percent), ["0", "< 0.001 %", "0.034 %", "3.59 %", "127 %"]);
        assert_eq!([0.0, -0.00034, 0.5].map(signed_percent), ["0", "-0.034 %", "+50.00 %"]);
        assert_eq!(relative(90, 100), -0.1);
        assert_eq!(relative(0, 0), 0.0);
    }
}
