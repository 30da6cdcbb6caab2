//! Compresses the planner when it is built, so that the server never has to.

use std::io::Write as _;
use std::path::Path;
use std::thread;

use anyhow::{Result, bail};
use brotli::enc::BrotliEncoderParams;
use flate2::{Compression, write::GzEncoder};

use crate::files::Files;

/// What gains from it; fonts and pictures are compressed already.
const EXTENSIONS: [&str; 9] = ["css", "html", "ico", "js", "json", "svg", "txt", "wasm", "webmanifest"];

/// Smaller than this a compressed form saves no packet.
const SMALLEST: usize = 512;

/// How hard to try.
#[derive(Clone, Copy, Debug)]
pub enum Effort {
    /// In a moment, for what is looked at on this machine: both forms are there, as in what others get.
    Little,
    /// As hard as it goes.
    Most,
}

impl Effort {
    /// Brotli's quality of 0 to 11.
    fn brotli(self) -> i32 {
        match self {
            Self::Little => 1,
            Self::Most => 11,
        }
    }

    fn gzip(self) -> Compression {
        match self {
            Self::Little => Compression::fast(),
            Self::Most => Compression::best(),
        }
    }
}

/// Adds `FILE.br` and `FILE.gz` beside each file that gains from it.
///
/// # Errors
/// A compressor fails, or there is a file of that name.
pub fn beside(files: &mut Files, effort: Effort) -> Result<()> {
    let compressed = thread::scope(|scope| {
        let worthwhile = files.iter().filter(|(name, content)| content.len() >= SMALLEST && is_compressible(name));
        let tasks: Vec<_> = worthwhile
            .map(|(name, content)| (name.to_owned(), content.len(), scope.spawn(move || forms(content, effort))))
            .collect();
        let mut done = Vec::new();
        for (name, plain, task) in tasks {
            let Ok(forms) = task.join() else { bail!("the compressor of {name} panicked") };
            let smaller = forms?.into_iter().filter(|(_, form)| form.len() < plain);
            done.extend(smaller.map(|(ending, form)| (format!("{name}.{ending}"), form)));
        }
        Ok(done)
    })?;
    compressed.into_iter().try_for_each(|(name, form)| files.add(name, form))
}

fn is_compressible(name: &str) -> bool {
    Path::new(name).extension().and_then(|e| e.to_str()).is_some_and(|extension| EXTENSIONS.contains(&extension))
}

fn forms(content: &[u8], effort: Effort) -> Result<[(&'static str, Vec<u8>); 2]> {
    Ok([("br", brotli(content, effort)?), ("gz", gzip(content, effort)?)])
}

/// Brotli, with the largest window browsers accept.
fn brotli(content: &[u8], effort: Effort) -> Result<Vec<u8>> {
    let quality = effort.brotli();
    let params = BrotliEncoderParams { quality, lgwin: 24, size_hint: content.len(), ..Default::default() };
    let mut out = Vec::new();
    brotli::BrotliCompress(&mut &*content, &mut out, &params)?;
    Ok(out)
}

/// Gzip. No name and no time inside: the same content gives the same bytes.
fn gzip(content: &[u8], effort: Effort) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), effort.gzip());
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn what_is_compressed_comes_back() {
        let content: Vec<u8> = (0..20_000u32).flat_map(|i| (i / 7 % 251).to_le_bytes()).collect();
        for effort in [Effort::Little, Effort::Most] {
            let (br, gz) = (brotli(&content, effort).unwrap(), gzip(&content, effort).unwrap());
            assert!(br.len() < content.len() / 4 && gz.len() < content.len() / 4, "{} {}", br.len(), gz.len());
            let (mut from_br, mut from_gz) = (Vec::new(), Vec::new());
            brotli::BrotliDecompress(&mut br.as_slice(), &mut from_br).unwrap();
            flate2::read::GzDecoder::new(gz.as_slice()).read_to_end(&mut from_gz).unwrap();
            assert!(from_br == content && from_gz == content);
        }
    }

    #[test]
    fn only_what_gains_has_compressed_forms() {
        let mut files = Files::default();
        files.add("a.wasm", [0; SMALLEST]).unwrap();
        files.add("short.js", [0; SMALLEST - 1]).unwrap();
        files.add("a.woff2", [0; 2 * SMALLEST]).unwrap();
        // Hashes: nothing is to be gained from them.
        let noise: Vec<u8> = (0..32u8).flat_map(|i| Sha256::digest([i])).collect();
        files.add("noise.js", noise).unwrap();
        beside(&mut files, Effort::Most).unwrap();
        let names: Vec<&str> = files.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a.wasm", "a.wasm.br", "a.wasm.gz", "a.woff2", "noise.js", "short.js"]);
    }
}
