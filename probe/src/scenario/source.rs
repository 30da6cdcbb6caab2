//! Where a scenario comes from: a file, standard input, a share link.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use plimsoll_core::Error;
use plimsoll_core::scenario::{Link, limits, text};
use serde_json::Value;

use crate::exit::Failure;

/// What the positional argument is.
#[derive(Debug, PartialEq, Eq)]
enum Source<'a> {
    Stdin,
    Link(&'a str),
    File(&'a Path),
}

fn classify(source: &str) -> Source<'_> {
    let path = Path::new(source);
    let is_address = ["http://", "https://", "?", "#"].iter().any(|start| source.starts_with(start));
    match source {
        "-" => Source::Stdin,
        _ if is_address => Source::Link(source),
        // A bare query, unless a file is really called that.
        _ if source.contains('=') && !path.exists() => Source::Link(source),
        _ => Source::File(path),
    }
}

/// The name of the source for messages; standard input and flags have none.
pub fn name(source: &str) -> Option<String> {
    match classify(source) {
        Source::Stdin => None,
        Source::Link(_) => Some("the link".to_owned()),
        Source::File(path) => Some(path.display().to_string()),
    }
}

/// The table in a file, standard input or a link, not validated yet.
pub fn read(source: &str) -> Result<Value, Failure> {
    match classify(source) {
        Source::Link(link) => Ok(Link::to_value(link)?),
        Source::Stdin => Ok(table(&stdin()?, None)?),
        Source::File(path) => Ok(table(&file(path)?, path.extension().and_then(|e| e.to_str()))?),
    }
}

/// All of standard input, if it is not longer than any scenario.
pub fn stdin() -> Result<String, Failure> {
    read_all(io::stdin().lock(), "standard input")
}

/// A file's whole text, if it is not longer than any scenario.
pub fn file(path: &Path) -> Result<String, Failure> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
    read_all(file, &name)
}

fn read_all(reader: impl Read, name: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    // One byte more than is allowed, to tell "too long" from "just fits".
    let most = u64::try_from(limits::TEXT).unwrap_or(u64::MAX).saturating_add(1);
    reader.take(most).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    if bytes.len() > limits::TEXT {
        return Err(text::too_long().into());
    }
    String::from_utf8(bytes).map_err(|_| not_text().into())
}

pub fn not_text() -> Error {
    Error::new("scenario", "it is not UTF-8 text", "save it as UTF-8")
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::Environment {
        problem: format!("cannot read {name}: {error}"),
        hint: match error.kind() {
            io::ErrorKind::NotFound => "check the path; a catalog model is named with --model".to_owned(),
            io::ErrorKind::PermissionDenied => "check who may read it".to_owned(),
            _ => "name a file, `-` or a share link".to_owned(),
        },
    }
}

/// TOML or JSON: by the file's extension, else by its first character.
fn table(content: &str, extension: Option<&str>) -> Result<Value, Error> {
    let start = content.trim_start_matches('\u{feff}').trim_start();
    let is_json = match extension {
        Some("json") => true,
        Some("toml") => false,
        _ => start.is_empty() || start.starts_with('{'),
    };
    if is_json { text::json(content) } else { text::toml(content) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_argument_is() {
        assert_eq!(classify("-"), Source::Stdin);
        for link in ["?model=gpt2", "https://example.org/?model=gpt2", "model=gpt2&batch=4", "#m=AAAA", "?"] {
            assert_eq!(classify(link), Source::Link(link));
        }
        assert_eq!(classify("run.toml"), Source::File(Path::new("run.toml")));
        assert_eq!(classify("gpt2"), Source::File(Path::new("gpt2")));
    }

    #[test]
    fn format_by_extension_or_first_character() {
        assert!(table("{\"model\": {}}", None).is_ok());
        assert!(table(" [model]\n", None).is_ok());
        assert!(table("{\"model\": {}}", Some("json")).is_ok());
        assert!(table("[model]\n", Some("json")).is_err());
        assert!(table("{\"model\": {}}", Some("toml")).is_err());
        assert_eq!(table("", None).unwrap_err().problem, "the file is empty");
    }
}
