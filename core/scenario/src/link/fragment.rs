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

/// The config as the fragment's `m`.
pub(super) fn encode(config: &Map<String, Value>) -> String {
    let json = Value::Object(config.clone()).to_string();
    BASE64.encode(compress_to_vec(json.as_bytes(), EFFORT))
}

/// Reads the fragment's `m`.
///
/// # Errors
/// Not base64url, not deflate, more than a config may hold once inflated, not a JSON table.
pub(super) fn decode(text: &str) -> Result<Map<String, Value>> {
    let refuse = |problem: &str| Error::new("m", problem, "copy the whole link again, the part behind # too");
    let packed = BASE64.decode(text).map_err(|_| refuse("the model in the link is not base64url"))?;
    let json = decompress_to_vec_with_limit(&packed, limits::CONFIG)
        .map_err(|_| refuse("the model in the link cannot be unpacked, or is too long"))?;
    let json = String::from_utf8(json).map_err(|_| refuse("the model in the link is not text"))?;
    match text::json(&json) {
        Ok(Value::Object(config)) => Ok(config),
        Ok(_) => Err(refuse("the model in the link is not a config.json")),
        Err(error) => Err(refuse(&format!("the model in the link is {}", error.problem))),
    }
}
