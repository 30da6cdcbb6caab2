//! What a worker said.

use serde_json::Value;

/// A run of a worker from start to end.
#[derive(Debug)]
pub struct Report {
    /// Every event in order.
    pub events: Vec<Value>,
    /// What it wrote to standard error.
    pub stderr: String,
    /// Its exit code; negative for the signal that ended it.
    pub code: i64,
}

impl Report {
    /// Reads what it wrote: nothing but events.
    pub fn new<'l>(lines: impl Iterator<Item = &'l str>, stderr: String, code: i64) -> Self {
        let event = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            assert!(event["event"].is_string() && event["at"].is_u64(), "{line}");
            event
        };
        let events: Vec<Value> = lines.map(event).collect();
        assert!(events.is_sorted_by_key(|event| event["at"].as_u64()), "time runs backwards");
        Self { events, stderr, code }
    }

    /// Every event of a kind.
    pub fn all(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["event"] == kind).collect()
    }

    /// The only event of a kind.
    pub fn one(&self, kind: &str) -> &Value {
        let all = self.all(kind);
        assert_eq!(all.len(), 1, "events {kind}: {self:#?}");
        all[0]
    }

    /// Asserts that it ended well.
    pub fn finished(&self) -> &Self {
        assert_eq!((self.code, self.all("error").len(), self.all("bye").len()), (0, 0, 1), "{self:#?}");
        self
    }

    /// Asserts that it ended with an error of a kind, and answers its message and hint.
    pub fn refused(&self, kind: &str) -> (&str, &str) {
        let error = self.one("error");
        assert_eq!((error["kind"].as_str(), self.code), (Some(kind), 3), "{self:#?}");
        assert_eq!(self.events.last(), Some(error));
        let words = |key: &str| error[key].as_str().unwrap_or_else(|| panic!("no {key}: {error}"));
        (words("message"), words("hint"))
    }

    /// The losses of an attempt's steps.
    pub fn losses(&self) -> Vec<Option<f64>> {
        self.all("step").iter().map(|step| step["loss"].as_f64()).collect()
    }

    /// What it noted, in words.
    pub fn notes(&self) -> Vec<&str> {
        self.all("note").iter().filter_map(|note| note["message"].as_str()).collect()
    }
}
