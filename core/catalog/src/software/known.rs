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

/// transformers' releases whose loss and attention call were read (Llama's are the same from 4.36 to 4.45), and all of 5, whose
/// modeling files were laid beside one another, in order.
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
    Version::new(4, 51),
    Version::new(4, 52),
    Version::new(4, 53),
    Version::new(4, 54),
    Version::new(4, 55),
    Version::new(4, 56),
    Version::new(4, 57),
    Version::new(5, 0),
    Version::new(5, 1),
    Version::new(5, 2),
    Version::new(5, 3),
    Version::new(5, 4),
    Version::new(5, 5),
    Version::new(5, 6),
    Version::new(5, 7),
    Version::new(5, 8),
    Version::new(5, 9),
    Version::new(5, 10),
    Version::new(5, 11),
    Version::new(5, 12),
    Version::new(5, 13),
    Version::new(5, 14),
    Version::new(5, 15),
    Version::new(5, 16),
    Version::new(5, 17),
    Version::new(5, 18),
    Version::new(5, 19),
    Version::new(5, 20),
    Version::new(5, 21),
    Version::new(5, 22),
    Version::new(5, 23),
    Version::new(5, 24),
];

/// bitsandbytes' releases whose four-bit product and linear were compared, in order: all from 0.41 on that its
/// repository has a tag for, 0.41.1 and 0.50.2 from their wheels.
pub const KNOWN_BITSANDBYTES: &[Version] = &[
    Version::new(0, 41),
    Version::patch(0, 41, 1),
    Version::new(0, 42),
    Version::new(0, 43),
    Version::patch(0, 43, 1),
    Version::patch(0, 43, 2),
    Version::patch(0, 43, 3),
    Version::new(0, 44),
    Version::patch(0, 44, 1),
    Version::new(0, 45),
    Version::patch(0, 45, 1),
    Version::patch(0, 45, 2),
    Version::patch(0, 45, 3),
    Version::patch(0, 45, 4),
    Version::patch(0, 45, 5),
    Version::new(0, 46),
    Version::patch(0, 46, 1),
    Version::new(0, 47),
    Version::new(0, 48),
    Version::patch(0, 48, 1),
    Version::patch(0, 48, 2),
    Version::new(0, 49),
    Version::patch(0, 49, 1),
    Version::patch(0, 49, 2),
    Version::new(0, 50),
    Version::patch(0, 50, 1),
    Version::patch(0, 50, 2),
];

/// The known version nearest to `version`: of the same major version if there is one, else at the near end of the list.
/// Between two that are equally far the older one is taken.
pub fn nearest(version: Version, known: &[Version]) -> Version {
    let same_major = known.iter().filter(|k| k.major == version.major);
    let closest = same_major.min_by_key(|k| version.distance(**k));
    let older = known.iter().rev().find(|k| **k < version);
    *closest.or(older).or_else(|| known.first()).unwrap_or(&version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_in_order() {
        assert!(KNOWN_TORCH.is_sorted() && KNOWN_TRANSFORMERS.is_sorted() && KNOWN_BITSANDBYTES.is_sorted());
    }

    /// A patch nobody read is that of its minor version first.
    #[test]
    fn of_bitsandbytes_three_numbers_count() {
        let of = |minor, patch| nearest(Version::patch(0, minor, patch), KNOWN_BITSANDBYTES);
        assert_eq!(of(43, 1), Version::patch(0, 43, 1));
        assert_eq!(of(43, 9), Version::patch(0, 43, 3));
        assert_eq!(of(30, 0), Version::new(0, 41));
        assert_eq!(of(60, 1), Version::patch(0, 50, 1));
        assert_eq!(nearest(Version::new(1, 0), KNOWN_BITSANDBYTES), Version::patch(0, 50, 2));
    }

    #[test]
    fn the_nearest_is_of_the_same_major_version() {
        let of = |major, minor| nearest(Version::new(major, minor), KNOWN_TRANSFORMERS);
        assert_eq!(of(4, 49), Version::new(4, 49));
        assert_eq!(of(4, 51), Version::new(4, 51));
        assert_eq!(of(4, 42), Version::new(4, 40));
        assert_eq!(of(4, 0), Version::new(4, 36));
        assert_eq!(of(5, 0), Version::new(5, 0));
        assert_eq!(of(5, 40), Version::new(5, 24));
        assert_eq!(of(6, 2), Version::new(5, 24));
        assert_eq!(of(3, 5), Version::new(4, 36));
        assert_eq!(nearest(Version::new(0, 4), KNOWN_TORCH), Version::new(1, 13));
    }
}
