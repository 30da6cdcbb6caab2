//! What a server's answer means.

use serde_json::Value;

use crate::exit::Failure;

use super::address::Address;

/// The record is there now.
#[derive(Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It was not before.
    New {
        /// Where it can be read, when the server says so.
        place: Option<String>,
    },
    /// It was there before.
    Known,
}

/// Why a record is not on the server, in the words of the server or our own.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What happened.
    pub problem: String,
    /// What to do.
    pub hint: String,
}

impl Refusal {
    /// As the failure of the whole command.
    pub fn about(self, record: &str) -> Failure {
        Failure::Environment { problem: format!("{record} was not sent: {}", self.problem), hint: self.hint }
    }
}

/// What one answer means.
#[derive(Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Done.
    Accepted(Accepted),
    /// It may go better later.
    Later(Refusal),
    /// It will not.
    Never(Refusal),
}

/// Reads an answer: its status, its `Location`, its body.
pub fn meaning(status: u16, location: Option<&str>, body: &str, address: &Address) -> Meaning {
    let host = address.host();
    let said = said(body);
    let problem = format!("{host} answered {status}{}", said.map(|said| format!(", {said}")).unwrap_or_default());
    let refusal = |hint: &str| Refusal { problem: problem.clone(), hint: hint.to_owned() };
    match status {
        200 | 409 => Meaning::Accepted(Accepted::Known),
        201..=299 => Meaning::Accepted(Accepted::New { place: location.map(printable) }),
        300..=399 => {
            let elsewhere = location.map(|place| format!(" to {}", printable(place))).unwrap_or_default();
            Meaning::Never(Refusal {
                problem: format!(
                    "{host} answered {status} and points elsewhere{elsewhere}; nothing is sent there unasked"
                ),
                hint: "give the right address with --to, if you trust it".to_owned(),
            })
        }
        401 | 403 => Meaning::Never(refusal("give a token of that server with --token-env or --token-file")),
        404 | 405 => Meaning::Never(refusal("check --to: that does not look like a Plimsoll server")),
        413 => Meaning::Never(refusal("the server takes no records of that size; ask whoever runs it")),
        400 | 422 => Meaning::Never(refusal("the server reads another format; use a Plimsoll of its version")),
        408 | 425 | 429 => Meaning::Later(refusal("try again later")),
        500..=599 => Meaning::Later(refusal("the server is in trouble; try again later")),
        _ => Meaning::Never(refusal("check --to")),
    }
}

/// Title and detail of a problem+json body (RFC 9457).
fn said(body: &str) -> Option<String> {
    let problem: Value = serde_json::from_str(body).ok()?;
    let part = |key: &str| problem.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(printable);
    match (part("title"), part("detail")) {
        (Some(title), Some(detail)) => Some(format!("{title}: {detail}")),
        (title, detail) => title.or(detail),
    }
}

/// A stranger's words, as one line that cannot command a terminal.
fn printable(text: &str) -> String {
    const LONGEST: usize = 300;
    let plain = |c: char| if c.is_control() || !c.is_ascii() { '?' } else { c };
    let mut line: String = text.trim().chars().map(plain).take(LONGEST).collect();
    if text.trim().chars().count() > LONGEST {
        line.push_str("...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> Meaning {
        meaning(status, None, body, &Address::parse("https://a.org").unwrap())
    }

    #[test]
    fn every_status_has_a_meaning() {
        for status in [200, 409] {
            assert_eq!(of(status, ""), Meaning::Accepted(Accepted::Known));
        }
        for status in [201, 202, 204] {
            assert_eq!(of(status, ""), Meaning::Accepted(Accepted::New { place: None }));
        }
        for status in [408, 425, 429, 500, 502, 503, 504] {
            assert!(matches!(of(status, ""), Meaning::Later(_)), "{status}");
        }
        for status in [301, 307, 308, 400, 401, 403, 404, 405, 410, 413, 415, 422, 100, 999] {
            assert!(matches!(of(status, ""), Meaning::Never(_)), "{status}");
        }
    }

    #[test]
    fn the_servers_words_are_told() {
        let body = r#"{"title": "Bad record", "detail": "peak.allocated: it is \u001b[31mnegative", "status": 422}"#;
        let Meaning::Never(refusal) = of(422, body) else { panic!() };
        assert_eq!(refusal.problem, "a.org answered 422, Bad record: peak.allocated: it is ?[31mnegative");
        let Meaning::Never(refusal) = of(422, "<html>") else { panic!() };
        assert_eq!(refusal.problem, "a.org answered 422");
        assert!(said(&format!("{{\"title\": {:?}}}", "x".repeat(999))).unwrap().len() < 310);
    }
}
