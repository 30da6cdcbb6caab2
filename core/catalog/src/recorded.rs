//! Models of the catalog that exist as recordings of their training step: hulls, one file each in `data/hulls`.

// Written by `build.rs` of `data/hulls.toml` and the files beside it.
include!(concat!(env!("OUT_DIR"), "/hulls.rs"));

/// One row of `data/hulls.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// `sd-1.5-unet-lora`.
    pub id: &'static str,
    /// `Stable Diffusion 1.5 UNet, LoRA`.
    pub name: &'static str,
    /// Who published the model.
    pub publisher: &'static str,
    /// What is trained, and what is not in it.
    pub about: &'static str,
    /// What else it is called: repositories of the Hub that hold it, short names.
    pub aliases: &'static [&'static str],
    /// Exact number of parameters, trained or not; tied weights count once.
    pub parameters: u64,
    /// Where its sizes and its training step come from.
    pub source: &'static str,
    /// `sha256:...` of the file, by which scenarios and links name it.
    pub hash: &'static str,
}

/// All of them, in the order of the data file.
pub fn recorded() -> &'static [Recorded] {
    RECORDED
}

/// The one with this id.
pub fn recorded_model(id: &str) -> Option<&'static Recorded> {
    recorded().iter().find(|row| row.id == id)
}

/// The one whose file has this hash; `None` of a file that is kept for the links that name it, and of any other.
pub fn recorded_as(hash: &str) -> Option<&'static Recorded> {
    recorded().iter().find(|row| row.hash == hash)
}

/// Where a file with this hash stands among those that come along; `None` where it is another's.
pub fn place_of(hash: &str) -> Option<usize> {
    HASHES.iter().position(|known| *known == hash)
}

/// How many files come along.
pub const FILES: usize = HASHES.len();

/// The file at a place that [`place_of`] told. The planner has none in it: it fetches them from where it came from.
pub fn file(place: usize) -> Option<&'static [u8]> {
    CONTENTS.get(place).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_files_are_found_by_what_they_are_called() {
        for row in recorded() {
            assert_eq!((recorded_model(row.id), recorded_as(row.hash)), (Some(row), Some(row)));
            assert!(crate::model(row.id).is_none(), "{} is a model with a family", row.id);
            assert!(place_of(row.hash).and_then(file).is_some_and(|bytes| bytes.starts_with(b"plimsoll-hull")));
        }
        assert_eq!((FILES, place_of("sha256:00"), file(FILES)), (CONTENTS.len(), None, None));
    }
}
