//! What cuDNN takes for a convolution, asked of whoever listens behind a socket: `plimsoll rehearse --ask-cudnn` has a process there that
//! asks the library, which plans for a card that is described to it. It is never loaded into this one.
//!
//! A line is a list of questions, and is answered by a line with as many numbers; null of what has no answer.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process;
use std::sync::{Mutex, PoisonError};

use super::cards::cards;

/// A connection of this process, and what it was told.
#[derive(Default)]
struct Planner {
    /// With the process it is of: one that was forked has to make its own.
    line: Option<(u32, BufReader<UnixStream>)>,
    known: BTreeMap<String, Option<i64>>,
}

static PLANNER: Mutex<Planner> = Mutex::new(Planner { line: None, known: BTreeMap::new() });

/// Bytes of the workspace that a question is about; `None` where nobody is asked, or knows.
pub(super) fn workspace(question: &str) -> Option<i64> {
    let path = cards().setup.planner.as_deref()?;
    let mut planner = PLANNER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&known) = planner.known.get(question) {
        return known;
    }
    let answer = planner.ask(path, question);
    if answer.is_none() {
        planner.line = None;
    }
    let answer = answer.flatten();
    planner.known.insert(question.to_owned(), answer);
    answer
}

impl Planner {
    /// `None` where the connection fails.
    fn ask(&mut self, path: &Path, question: &str) -> Option<Option<i64>> {
        let pid = process::id();
        if self.line.as_ref().is_none_or(|(of, _)| *of != pid) {
            self.line = Some((pid, BufReader::new(UnixStream::connect(path).ok()?)));
        }
        let (_, line) = self.line.as_mut()?;
        writeln!(line.get_mut(), "[{question}]").ok()?;
        let mut answer = String::new();
        line.read_line(&mut answer).ok()?;
        let [bytes]: [Option<i64>; 1] = serde_json::from_str(&answer).ok()?;
        Some(bytes)
    }
}
