//! Compresses the built planner once, as hard as it goes, so that the server never has to.

use std::{
    ffi::OsStr,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use brotli::enc::BrotliEncoderParams;
use flate2::{Compression, write::GzEncoder};

/// What gains from it; fonts and pictures are compressed already.
const EXTENSIONS: [&str; 9] = ["css", "html", "ico", "js", "json", "svg", "txt", "wasm", "webmanifest"];

/// Smaller than this a compressed form saves no packet.
const SMALLEST: usize = 512;

/// Writes `FILE.br` and `FILE.gz` beside each file that gains from it.
pub fn beside(files: &[PathBuf]) -> Result<()> {
    std::thread::scope(|scope| {
        let tasks: Vec<_> =
            files.iter().filter(|path| is_compressible(path)).map(|path| scope.spawn(move || one(path))).collect();
        tasks.into_iter().try_for_each(|task| task.join().unwrap_or_else(|_| anyhow::bail!("a compressor panicked")))
    })
}

fn is_compressible(path: &Path) -> bool {
    path.extension().and_then(OsStr::to_str).is_some_and(|extension| EXTENSIONS.contains(&extension))
}

fn one(path: &Path) -> Result<()> {
    let content = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if content.len() < SMALLEST {
        return Ok(());
    }
    for (suffix, compressed) in [("br", brotli(&content)?), ("gz", gzip(&content)?)] {
        if compressed.len() < content.len() {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{suffix}"));
            fs::write(&name, compressed).with_context(|| format!("cannot write {}", Path::new(&name).display()))?;
        }
    }
    Ok(())
}

/// Brotli at its highest quality, with the largest window browsers accept.
pub fn brotli(content: &[u8]) -> Result<Vec<u8>> {
    let params = BrotliEncoderParams { quality: 11, lgwin: 24, size_hint: content.len(), ..Default::default() };
    let mut out = Vec::new();
    brotli::BrotliCompress(&mut &*content, &mut out, &params)?;
    Ok(out)
}

/// Gzip at its highest level. No name and no time inside: the same content gives the same bytes.
pub fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn what_is_compressed_comes_back() {
        let content: Vec<u8> = (0..20_000u32).flat_map(|i| (i / 7 % 251).to_le_bytes()).collect();
        let (br, gz) = (brotli(&content).unwrap(), gzip(&content).unwrap());
        assert!(br.len() < gz.len() && gz.len() < content.len() / 4, "{} {}", br.len(), gz.len());
        let (mut from_br, mut from_gz) = (Vec::new(), Vec::new());
        brotli::BrotliDecompress(&mut br.as_slice(), &mut from_br).unwrap();
        flate2::read::GzDecoder::new(gz.as_slice()).read_to_end(&mut from_gz).unwrap();
        assert!(from_br == content && from_gz == content);
    }

    #[test]
    fn pictures_fonts_and_what_is_compressed_are_left_alone() {
        for (name, expected) in
            [("a.wasm", true), ("a.js", true), ("a.woff2", false), ("a.png", false), ("a.js.br", false)]
        {
            assert_eq!(is_compressible(Path::new(name)), expected, "{name}");
        }
    }
}
