//! Ledgers as files: JSON, compressed where the name ends in `.gz`.

use std::fs::File;
use std::io::{BufReader, Cursor, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use plimsoll_core::Error;
use plimsoll_core::ledger::Ledger;
use plimsoll_core::ledger::file::MOST_TEXT;

use crate::exit::Failure;

/// The first bytes of a compressed file.
const GZ: [u8; 2] = [0x1f, 0x8b];

/// Writes a ledger.
///
/// # Errors
/// A file that cannot be written.
pub fn write(path: &Path, ledger: &Ledger) -> Result<(), Failure> {
    let text = ledger.to_text()?;
    let bytes = if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz")) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish())
    } else {
        Ok(text.into_bytes())
    };
    let written = bytes.and_then(|bytes| std::fs::write(path, bytes));
    written.map_err(|problem| environment(path, "cannot be written", &problem, "name a file in a folder that is there"))
}

/// Reads a ledger, compressed or not.
///
/// # Errors
/// A file that cannot be read, or is no ledger.
pub fn read(path: &Path) -> Result<Ledger, Failure> {
    let failed = |problem: std::io::Error| {
        environment(path, "cannot be read", &problem, "name a file of `plimsoll estimate --ledger`")
    };
    let file = File::open(path).and_then(|file| unpacked(BufReader::new(file))).map_err(failed)?;
    let text = text(file);
    let ledger = text.and_then(|text| Ok(Ledger::from_text(&text)?));
    ledger.map_err(|failure| failure.in_file(&path.display().to_string()))
}

/// The stream as it was before it was compressed, if it was.
///
/// # Errors
/// A stream whose first bytes cannot be read.
pub fn unpacked<'a>(mut stream: impl Read + 'a) -> std::io::Result<Box<dyn Read + 'a>> {
    let mut begin = [0; GZ.len()];
    let got = read_up_to(&mut stream, &mut begin)?;
    let rest = Cursor::new(begin).take(got as u64).chain(stream);
    Ok(if begin == GZ { Box::new(GzDecoder::new(rest)) } else { Box::new(rest) })
}

/// As many bytes as there are, up to the buffer's end.
fn read_up_to(file: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read(&mut buffer[got..])? {
            0 => break,
            more => got += more,
        }
    }
    Ok(got)
}

/// The text of a stream that ends before it is too long, whatever a few compressed bytes unfold to.
fn text(stream: impl Read) -> Result<String, Failure> {
    const HINT: &str = "write it again with `plimsoll estimate SCENARIO --ledger FILE`";
    let mut text = String::new();
    match stream.take(MOST_TEXT + 1).read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(problem) => Err(Error::new("ledger", format!("it is no text: {problem}"), HINT).into()),
    }
}

fn environment(path: &Path, what: &str, problem: &std::io::Error, hint: &str) -> Failure {
    Failure::Environment { problem: format!("{} {what}: {problem}", path.display()), hint: hint.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        std::fs::write(&path, bytes).unwrap();
        read(&path).unwrap_err().problem()
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::default();
        for name in ["ledger.json", "ledger.json.gz"] {
            let path = folder.path().join(name);
            write(&path, &ledger).unwrap();
            let compressed = std::fs::read(&path).unwrap().starts_with(&GZ);
            assert_eq!((compressed, read(&path).unwrap()), (name.ends_with("gz"), ledger.clone()));
        }
    }

    #[test]
    fn what_is_no_ledger_is_refused() {
        assert!(refused(b"").starts_with("ledger: it is no ledger"));
        assert!(refused(b"{}").starts_with("ledger: it is no ledger"));
        assert!(
            refused(&[0x1f]).starts_with("ledger: it is no ledger")
                || refused(&[0xff]).starts_with("ledger: it is no text")
        );
        assert!(refused(&GZ).starts_with("ledger: it is no text"), "{}", refused(&GZ));
        assert!(refused(&[0xff, 0xfe, 0]).starts_with("ledger: it is no text"));
    }

    /// A hundred kilobytes that unfold to more than is read.
    #[test]
    fn what_unfolds_without_end_is_refused() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let spaces = vec![b' '; 1 << 20];
        for _ in 0..=(MOST_TEXT >> 20) {
            encoder.write_all(&spaces).unwrap();
        }
        let said = refused(&encoder.finish().unwrap());
        assert!(said.contains("longer than"), "{said}");
    }
}
