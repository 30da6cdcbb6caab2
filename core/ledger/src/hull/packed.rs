//! How a hull's text is packed: by LZMA, which finds a micro-batch in the one before it and a tape in another card's, however
//! far apart they stand. Files of the first version of the format were deflated, which looks back 32 KiB.

use std::io::{Read as _, Write as _};

use lzma_rust2::{LzmaOptions, LzmaReader, LzmaWriter, MfType};
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use plimsoll_ground::{Error, Result};

use super::file::{MOST_UNPACKED, wrong};

/// What every file begins with; the number is the version of the format. Behind it stand the length of the text, in four bytes,
/// the lowest first, and LZMA without a header.
const MAGIC: &[u8] = b"plimsoll-hull 2\n";
/// Behind this stands raw deflate.
const FIRST: &[u8] = b"plimsoll-hull 1\n";
/// What a file of any version begins with.
pub const ANY: &[u8] = b"plimsoll-hull ";
/// LZMA's parameters: literals go by the 3 upper bits of the one before, and nothing goes by where it stands, as in text.
const LITERALS: u32 = 3;
const POSITIONS: u32 = 0;
/// The least window there is, in bytes.
const WINDOW: u32 = 4096;
/// How long a match the encoder is content with, and how far it looks: as hard as it goes.
const NICE: u32 = 273;
const DEPTH: i32 = 1000;

/// The bytes of a file with this text.
///
/// # Errors
/// The text is longer than any that is read.
pub fn pack(text: &[u8]) -> Result<Vec<u8>> {
    let failed = |problem: String| Error::new("hull", format!("it cannot be written: {problem}"), "report it");
    let length = u32::try_from(text.len()).ok().filter(|_| text.len() <= MOST_UNPACKED);
    let length = length.ok_or_else(|| failed("it is longer than any hull".to_owned()))?;
    let options = LzmaOptions {
        lc: LITERALS,
        lp: POSITIONS,
        pb: POSITIONS,
        dict_size: length.max(WINDOW),
        nice_len: NICE,
        mf: MfType::Bt4,
        depth_limit: DEPTH,
        ..LzmaOptions::default()
    };
    let head = [MAGIC, &length.to_le_bytes()].concat();
    let written = LzmaWriter::new_no_header(head, &options, false).and_then(|mut writer| {
        writer.write_all(text)?;
        writer.finish()
    });
    written.map_err(|problem| failed(problem.to_string()))
}

/// The text of a file's bytes.
///
/// # Errors
/// It is no hull, is one of a newer version, or cannot be unpacked.
pub fn unpack(bytes: &[u8]) -> Result<Vec<u8>> {
    let broken = || wrong("it cannot be unpacked, or is too long");
    if let Some(packed) = bytes.strip_prefix(FIRST) {
        return decompress_to_vec_with_limit(packed, MOST_UNPACKED).map_err(|_| broken());
    }
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        let known = bytes.starts_with(ANY);
        let problem = if known { "it is a hull of another version of the format" } else { "it is no hull" };
        let hint = if known { "use a newer plimsoll" } else { "name a file that plimsoll trace wrote" };
        return Err(Error::new("model.hull", problem, hint));
    };
    let (length, packed) = rest.split_first_chunk::<4>().ok_or_else(broken)?;
    let length = u32::from_le_bytes(*length);
    if length as usize > MOST_UNPACKED {
        return Err(broken());
    }
    let window = length.max(WINDOW);
    let reader = LzmaReader::new(packed, length.into(), LITERALS, POSITIONS, POSITIONS, window, None);
    let mut text = Vec::new();
    let read = reader.and_then(|reader| reader.take(length.into()).read_to_end(&mut text));
    if read.is_ok_and(|read| read == length as usize) { Ok(text) } else { Err(broken()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_and_what_stands_far_apart_alike_is_kept_once() {
        let noise: Vec<u8> = (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let twice = [noise.as_slice(), b"between", noise.as_slice()].concat();
        let packed = pack(&twice).unwrap();
        assert_eq!(unpack(&packed).unwrap(), twice);
        assert!(packed.len() < pack(&noise).unwrap().len() + 1000, "{}", packed.len());
        assert_eq!(unpack(&pack(b"").unwrap()).unwrap(), b"");
    }

    #[test]
    fn what_is_cut_off_or_says_another_length_is_refused() {
        let packed = pack(&b"a text that is packed ".repeat(50)).unwrap();
        for end in 0..packed.len() {
            // The coder's last bytes say nothing more.
            if end + 8 < packed.len() {
                assert!(unpack(&packed[..end]).is_err(), "{end}");
            }
        }
        let mut longer = packed.clone();
        longer[MAGIC.len() + 3] = 0x7f;
        assert!(unpack(&longer).is_err());
        assert!(unpack(b"plimsoll-hull 3\nx").unwrap_err().hint.contains("newer"));
        assert!(unpack(b"x").unwrap_err().problem.contains("no hull"));
    }
}
