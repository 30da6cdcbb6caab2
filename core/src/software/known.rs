//! The versions whose rules are known.

use super::Version;

/// PyTorch's releases from 1.13 to 2.15, in order.
pub const KNOWN_TORCH: &[Version] = &[
    Version::new(1, 13),
    Version::new(2, 0),
    Version::new(2, 1),
    Version::new(2, 2),
    Version::new(2, 3),
    Version::new(2, 4),
    Version::new(2, 5),
    Version::new(2, 6),
    Version::new(2, 7),
    Version::new(2, 8),
    Version::new(2, 9),
    Version::new(2, 10),
    Version::new(2, 11),
    Version::new(2, 12),
    Version::new(2, 13),
    Version::new(2, 14),
    Version::new(2, 15),
];

/// transformers' releases whose loss and attention call were read (Llama's are the same from 4.36 to 4.45), in order.
pub const KNOWN_TRANSFORMERS: &[Version] = &[
    Version::new(4, 36),
    Version::new(4, 40),
    Version::new(4, 44),
    Version::new(4, 45),
    Version::new(4, 46),
    Version::new(4, 47),
    Version::new(4, 48),
    Version::new(4, 49),
    Version::new(4, 50),
    Version::new(4, 53),
    Version::new(4, 54),
    Version::new(4, 55),
    Version::new(4, 56),
    Version::new(4, 57),
    Version::new(5, 17),
];

/// The known version nearest to `version`: of the same major version if there is one, else at the near end of the list.
/// Between two that are equally far the older one is taken.
pub fn nearest(version: Version, known: &[Version]) -> Version {
    let same_major = known.iter().filter(|k| k.major == version.major);
    let closest = same_major.min_by_key(|k| k.minor.abs_diff(version.minor));
    let older = known.iter().rev().find(|k| **k < version);
    *closest.or(older).or_else(|| known.first()).unwrap_or(&version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lists_are_in_order() {
        assert!(KNOWN_TORCH.is_sorted() && KNOWN_TRANSFORMERS.is_sorted());
    }

    #[test]
    fn the_nearest_is_of_the_same_major_version() {
        let of = |major, minor| nearest(Version::new(major, minor), KNOWN_TRANSFORMERS);
        assert_eq!(of(4, 49), Version::new(4, 49));
        assert_eq!(of(4, 51), Version::new(4, 50));
        assert_eq!(of(4, 52), Version::new(4, 53));
        assert_eq!(of(4, 0), Version::new(4, 36));
        assert_eq!(of(5, 0), Version::new(5, 17));
        assert_eq!(of(6, 2), Version::new(5, 17));
        assert_eq!(of(3, 5), Version::new(4, 36));
        assert_eq!(nearest(Version::new(0, 4), KNOWN_TORCH), Version::new(1, 13));
    }
}
