//! A version of a package, as far as rules hang on it.

use std::fmt;

/// The numbers of a version that count: of PyTorch and transformers the first two (`2.11` of `2.11.0+cu128`), of
/// bitsandbytes, which changes more from one patch to the next, three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
    /// The third number, 0 where it does not count.
    pub patch: u16,
}

impl Version {
    /// `major.minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self::patch(major, minor, 0)
    }

    /// `major.minor.patch`.
    pub const fn patch(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }

    /// Reads what a package prints of itself: `2.11`, `2.11.0`, `2.12.0a0+git1234`, `5.17.0.dev0`. `None` when it does not
    /// begin with two numbers of at most four digits.
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self { patch: 0, ..Self::parse_patch(text)? })
    }

    /// The same with the third number, where there is one: `0.43.1`, `0.44.0.dev0`, `0.43` (which is 0.43.0).
    pub fn parse_patch(text: &str) -> Option<Self> {
        let (major, rest) = text.split_once('.')?;
        let minor = leading_digits(rest);
        let patch = rest.get(minor.len()..).and_then(|rest| rest.strip_prefix('.')).map_or("", leading_digits);
        let patch = if patch.is_empty() { Some(0) } else { number(patch) };
        Some(Self { major: number(major)?, minor: number(minor)?, patch: patch? })
    }

    /// How far it is from another of the same major version, the second number before the third.
    pub fn distance(self, other: Self) -> (u16, u16) {
        (self.minor.abs_diff(other.minor), self.patch.abs_diff(other.patch))
    }
}

fn leading_digits(text: &str) -> &str {
    text.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default()
}

/// At most four digits and nothing else.
fn number(digits: &str) -> Option<u16> {
    let plain = !digits.is_empty() && digits.len() <= 4 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.patch {
            0 => write!(f, "{}.{}", self.major, self.minor),
            patch => write!(f, "{}.{}.{patch}", self.major, self.minor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn two_numbers_count() {
        for text in ["2.11", "2.11.0", "2.11.0+cu128", "2.11.0a0+git1234", "2.11rc1"] {
            assert_eq!(Version::parse(text), Some(Version::new(2, 11)), "{text}");
        }
        assert_eq!(Version::new(2, 11).to_string(), "2.11");
        assert!(Version::new(2, 9) < Version::new(2, 10) && Version::new(2, 15) < Version::new(3, 0));
    }

    #[test]
    fn or_three() {
        for (text, version) in [
            ("0.43.1", Version::patch(0, 43, 1)),
            ("0.43.2.dev0", Version::patch(0, 43, 2)),
            ("0.43", Version::new(0, 43)),
            ("0.43.0", Version::new(0, 43)),
            ("0.43.dev1", Version::new(0, 43)),
            ("0.45rc1", Version::new(0, 45)),
        ] {
            assert_eq!(Version::parse_patch(text), Some(version), "{text}");
            assert_eq!(Version::parse_patch(&version.to_string()), Some(version), "{text}");
        }
        assert_eq!(Version::patch(0, 43, 1).to_string(), "0.43.1");
        assert!(Version::patch(0, 43, 1) < Version::patch(0, 43, 2) && Version::patch(0, 43, 9) < Version::new(0, 44));
        assert_eq!(Version::parse_patch("0.43.20000"), None);
    }

    #[test]
    fn anything_else_is_no_version() {
        for text in ["", "2", "two", "2.x", "2..1", "-2.1", "20000.1", "2.20000", " 2.1", "2.", ".1", "+2.1"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }
}
