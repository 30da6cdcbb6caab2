//! The token that says to a server who sends.

use std::env;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use plimsoll_core::Error;

use crate::exit::Failure;

/// A bearer token. It is never printed.
pub struct Token(String);

/// Longer than any token.
const LONGEST: u64 = 8192;

impl Token {
    fn new(text: &str, key: &str) -> Result<Self, Error> {
        let text = text.trim();
        // What RFC 6750 lets stand in the header, and nothing that could break out of it.
        let letters = |byte: u8| byte.is_ascii_graphic();
        if text.is_empty() || text.len() as u64 > LONGEST || !text.bytes().all(letters) {
            return Err(Error::new(key, "what is there is no token", "put the token there, and nothing else"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The value of the `Authorization` header.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The token from where the flags say it is.
pub fn read(variable: Option<&str>, path: Option<&Path>) -> Result<Option<Token>, Failure> {
    match (variable, path) {
        (Some(name), _) => {
            let text = env::var(name).map_err(|_| {
                Error::new("--token-env", format!("{name} is not set"), format!("export {name}, or give --token-file"))
            })?;
            Ok(Some(Token::new(&text, "--token-env")?))
        }
        (None, Some(path)) => {
            let mut text = String::new();
            let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
            read.map_err(|error| Failure::Environment {
                problem: format!("cannot read the token from {}: {error}", path.display()),
                hint: "check the path".to_owned(),
            })?;
            Ok(Some(Token::new(&text, "--token-file")?))
        }
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word() {
        assert_eq!(Token::new(" abc.DEF_-~+/=\n", "--token-file").unwrap().header(), "Bearer abc.DEF_-~+/=");
        for text in ["", " \n", "a b", "a\r\nx: y", "\u{e4}"] {
            assert_eq!(Token::new(text, "--token-file").unwrap_err().key, "--token-file");
        }
        assert_eq!(format!("{:?}", Token::new("secret", "").unwrap()), "Token(..)");
    }
}
