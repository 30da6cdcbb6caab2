//! A version of a package, as far as rules hang on it.

use std::fmt;

/// The first two numbers of a version: `2.11` of `2.11.0+cu128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
}

impl Version {
    /// `major.minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Reads what a package prints of itself: `2.11`, `2.11.0`, `2.12.0a0+git1234`, `5.17.0.dev0`. `None` when it does not
    /// begin with two numbers of at most four digits.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, rest) = text.split_once('.')?;
        let minor: &str = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.len() <= 4 && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten()
        };
        Some(Self { major: number(major)?, minor: number(minor)? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
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
    fn anything_else_is_no_version() {
        for text in ["", "2", "two", "2.x", "2..1", "-2.1", "20000.1", "2.20000", " 2.1", "2.", ".1", "+2.1"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }
}
