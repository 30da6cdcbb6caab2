//! `plimsoll estimate --jsonl`: a scenario a line, an estimate a line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};

use plimsoll_core::scenario::{limits, text};
use plimsoll_core::{Error, Scenario};
use serde_json::{Value, json};

use crate::exit::{self, Failure};
use crate::scenario::{self, Overlay, hull};

/// Answers every line; the code is 2 when one of them was bad.
pub fn run(source: Option<&str>, overlay: &Overlay) -> Result<u8, Failure> {
    let reader: Box<dyn BufRead> = match source {
        None | Some("-") => Box::new(io::stdin().lock()),
        Some(path) => Box::new(BufReader::new(File::open(path).map_err(|error| Failure::Environment {
            problem: format!("cannot read {path}: {error}"),
            hint: "with --jsonl, name a file with one JSON scenario a line, or none for standard input".to_owned(),
        })?)),
    };
    match answer(reader, &mut io::stdout().lock(), overlay, source.unwrap_or("-")) {
        Err(Failure::Closed) => Ok(exit::OK),
        outcome => outcome,
    }
}

/// Hulls lie beside `source`, or from standard input where the program was started.
fn answer(mut reader: impl BufRead, out: &mut impl Write, overlay: &Overlay, source: &str) -> Result<u8, Failure> {
    let mut code = exit::OK;
    let mut number = 0_u64;
    while let Some(line) = line(&mut reader).map_err(|error| Failure::Environment {
        problem: format!("cannot read line {}: {error}", number + 1),
        hint: "give one JSON scenario a line".to_owned(),
    })? {
        number += 1;
        let outcome = line.and_then(|line| match line.trim() {
            "" => Ok(None),
            line => estimate(line, overlay, source).map(Some),
        });
        let reply = match outcome {
            Ok(None) => continue,
            Ok(Some(estimate)) => estimate,
            Err(Error { key, problem, hint, reason }) => {
                code = exit::BAD_SCENARIO;
                let mut error = json!({ "line": number, "key": key, "problem": problem, "hint": hint });
                if let Some(reason) = reason {
                    error["reason"] = reason.as_str().into();
                }
                json!({ "error": error })
            }
        };
        writeln!(out, "{reply}")?;
        // Whoever writes line by line may wait for each answer.
        out.flush()?;
    }
    Ok(code)
}

fn estimate(line: &str, overlay: &Overlay, source: &str) -> Result<Value, Error> {
    let mut value = hull::opened(text::json(line)?, source).map_err(|failure| match failure {
        Failure::Scenario { error, .. } => error,
        Failure::Environment { problem, hint } => Error::new("model.hull", problem, hint),
        other => Error::new("model.hull", other.problem(), "give the line again"),
    })?;
    overlay.apply(&mut value);
    let estimate = plimsoll_core::estimate::estimate(&Scenario::from_value(&value)?)?;
    serde_json::to_value(estimate).map_err(|error| Error::new("scenario", error.to_string(), "report this"))
}

/// The next line, or what is wrong with it; `None` at the end. A line too long is read over, not kept.
fn line(reader: &mut impl BufRead) -> io::Result<Option<Result<String, Error>>> {
    let most = u64::try_from(limits::TEXT).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    if reader.by_ref().take(most).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    if bytes.len() > limits::TEXT && bytes.last() != Some(&b'\n') {
        skip_line(reader)?;
        return Ok(Some(Err(text::too_long())));
    }
    Ok(Some(String::from_utf8(bytes).map_err(|_| scenario::not_text())))
}

fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|b| *b == b'\n');
        let used = end.map_or(buffer.len(), |at| at + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Flags;

    /// As if the lines stood in a file here.
    const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus/hulls/lines.jsonl");

    fn answers(input: &[u8]) -> (u8, Vec<Value>) {
        let mut out = Vec::new();
        let code = answer(input, &mut out, &Overlay::new(&Flags::default()).unwrap(), HERE).unwrap();
        let text = String::from_utf8(out).unwrap();
        (code, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    #[test]
    fn every_bad_line_is_answered_and_the_next_one_read() {
        let mut input = b"{\"model\": {\"family\": \"mlp\"}, \"input\": {\"batch\": 0}}\n\n{\"mod\n\xff\xfe\n".to_vec();
        input.extend(vec![b'x'; 10 << 20]);
        input.extend(b"\n[1]");
        let (code, answers) = answers(&input);
        assert_eq!(code, exit::BAD_SCENARIO);
        let errors: Vec<(u64, &str)> = answers
            .iter()
            .map(|a| (a["error"]["line"].as_u64().unwrap(), a["error"]["problem"].as_str().unwrap()))
            .collect();
        assert_eq!(errors[0], (1, "0 is too small"));
        assert_eq!(errors[1].0, 3);
        assert!(errors[1].1.starts_with("not valid JSON"));
        assert_eq!(errors[2], (4, "it is not UTF-8 text"));
        assert_eq!(errors[3], (5, "the text is longer than 1 MiB"));
        assert_eq!(errors[4], (6, "expected a table, found a list"));
        assert_eq!(errors.len(), 5);
    }

    #[test]
    fn a_hull_lies_beside_the_lines_and_one_that_does_not_is_an_answer_too() {
        let line = |name: &str| {
            format!("{{\"model\": {{\"hull\": \"{name}\", \"S\": 224}}, \"training\": {{\"precision\": \"fp32\"}}}}\n")
        };
        let (code, answers) =
            answers((line("mobilenet_v3.hull") + &line("nowhere.hull") + &line("gcn.hull")).as_bytes());
        assert_eq!(code, exit::BAD_SCENARIO);
        assert_eq!(answers[0]["peak"]["allocated"].as_u64().map(|bytes| bytes > 1 << 20), Some(true), "{}", answers[0]);
        assert_eq!(answers[1]["error"]["key"], "model.hull");
        assert!(answers[1]["error"]["problem"].as_str().unwrap().contains("nowhere.hull"));
        // That one has no side.
        assert_eq!(answers[2]["error"]["line"], 3);
    }

    #[test]
    fn no_lines_no_answers() {
        assert_eq!(answers(b""), (exit::OK, vec![]));
        assert_eq!(answers(b"\n \r\n"), (exit::OK, vec![]));
    }
}
