//! A pasted config in the fragment: base64url of raw deflate of its JSON.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use plimsoll_ground::{Error, Result};
use serde_json::{Map, Value};

use crate::{limits, text};

/// Written without padding; read with or without.
pub const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Deflate's effort, 0 to 10: a config is small, so all of it.
const EFFORT: u8 = 10;

/// Text as it goes into a fragment.
pub(super) fn pack(text: &str) -> String {
    BASE64.encode(compress_to_vec(text.as_bytes(), EFFORT))
}

/// Text out of a fragment, of at most `most` bytes; `what` it is and which `key` it has are for the error.
///
/// # Errors
/// Not base64url, not deflate, more than `most` once inflated, not text.
pub(super) fn unpack(packed: &str, most: usize, key: &str, what: &str) -> Result<String> {
    let refuse = |problem: String| Error::new(key, problem, AGAIN);
    let packed = BASE64.decode(packed).map_err(|_| refuse(format!("{what} in the link is not base64url")))?;
    let text = decompress_to_vec_with_limit(&packed, most)
        .map_err(|_| refuse(format!("{what} in the link cannot be unpacked, or is too long")))?;
    String::from_utf8(text).map_err(|_| refuse(format!("{what} in the link is not text")))
}

/// What to do about a damaged link.
const AGAIN: &str = "copy the whole link again, the part behind # too";

/// The config as the fragment's `m`.
pub(super) fn encode(config: &Map<String, Value>) -> String {
    pack(&Value::Object(config.clone()).to_string())
}

/// Reads the fragment's `m`.
///
/// # Errors
/// As [`unpack`], and what is not a JSON table.
pub(super) fn decode(text: &str) -> Result<Map<String, Value>> {
    let refuse = |problem: &str| Error::new("m", problem, AGAIN);
    match text::json(&unpack(text, limits::CONFIG, "m", "the model")?) {
        Ok(Value::Object(config)) => Ok(config),
        Ok(_) => Err(refuse("the model in the link is not a config.json")),
        Err(error) => Err(refuse(&format!("the model in the link is {}", error.problem))),
    }
}
