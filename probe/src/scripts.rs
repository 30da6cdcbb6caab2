//! Programs in Python that a person's own interpreter runs. Each stands in parts, and is given as one script, which can
//! be read first.

/// The script that the parts of a folder make in this order: what a class is derived from, or a table is made of, comes
/// before it.
macro_rules! joined {
    ($folder:literal: $first:literal $(, $part:literal)* $(,)?) => {
        concat!(
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $folder, "/", $first, ".py")),
            $("\n\n", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $folder, "/", $part, ".py"))),*
        )
    };
}

/// The worker, as `plimsoll probe --print-worker` shows it.
#[rustfmt::skip]
pub const WORKER: &str = joined!(
    "worker":
    "head", "messages", "leader", "packages", "devices", "machine",
    "families", "hugging_face", "adapters", "quantization", "liger", "checkpoints", "ranks", "filling", "building",
    "optimizers", "inputs", "losses", "compiled", "trainer", "loop", "inference", "zero", "libraries", "main",
);

/// The recorder, as `plimsoll trace --print-recorder` shows it.
#[rustfmt::skip]
pub const RECORDER: &str = joined!(
    "recorder":
    "head", "messages", "tape", "kernels", "asked", "contents", "selecting", "remembered", "watch", "replacements", "quantized", "attention", "driver",
    "model", "variants", "quantization", "repeats", "placing", "checkpoints", "naming", "compiling",
    "marked", "recording", "main",
);

/// What asks cuDNN, as `plimsoll estimate --ask-cudnn` does.
#[rustfmt::skip]
pub const CUDNN: &str = joined!("cudnn": "ask");

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn a_script_has_every_part_of_its_folder_once() {
        for (script, folder) in [(WORKER, "worker"), (RECORDER, "recorder"), (CUDNN, "cudnn")] {
            let folder = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
            let paths = folder.map(|entry| entry.unwrap().path());
            let mut length = 0;
            for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "py")) {
                let part = fs::read_to_string(&path).unwrap();
                assert_eq!(script.matches(&part).count(), 1, "{}", path.display());
                length += part.len() + "\n\n".len();
            }
            assert_eq!(length, script.len() + "\n\n".len());
        }
    }
}
