//! Whoever answers what a convolution takes in cuDNN, behind a socket that the hollow card's processes ask through.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(unix)]
use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    thread,
};

use plimsoll_hollow::Card;
use serde::Serialize;
#[cfg(unix)]
use serde_json::Value;

#[cfg(unix)]
use crate::cudnn::Cudnn;
use crate::exit::Failure;
#[cfg(unix)]
use crate::worker::Python;

/// What the socket is called, in a folder of our own.
#[cfg(unix)]
const SOCKET: &str = "cudnn";

/// The library, and where it is asked.
#[derive(Debug)]
pub struct Planner {
    /// The socket.
    pub socket: PathBuf,
    plans: Arc<Mutex<Plans>>,
}

/// What was asked.
#[derive(Clone, Debug, Serialize)]
pub struct Plans {
    /// The library's version, as `9.19.0`.
    pub version: String,
    /// Questions that were answered; each process asks each once.
    pub answered: u64,
    /// Questions that cuDNN has no plan for, of which nothing is in the figures.
    pub unanswered: u64,
    /// Why none was answered any more, if something happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl Plans {
    /// In words.
    pub fn text(&self) -> String {
        let Self { version, answered, unanswered, failed } = self;
        let mut text = if answered + unanswered == 0 {
            "No convolution was asked of cuDNN".to_owned()
        } else {
            format!(
                "What convolutions take in cuDNN is in it, as cuDNN {version} plans them ({answered} different products)"
            )
        };
        if *unanswered > 0 {
            text.push_str(&format!("; of {unanswered} it has no plan without the card, and they take nothing here"));
        }
        if let Some(problem) = failed {
            text.push_str(&format!("; from some convolution on it was not asked ({problem})"));
        }
        text
    }
}

impl Planner {
    /// Starts the library of `python` for `card`, and listens in `folder`.
    ///
    /// # Errors
    /// As [`Cudnn::start`], and a folder in which nobody can listen.
    #[cfg(unix)]
    pub fn start(python: &Path, card: &Card, folder: &Path) -> Result<Self, Failure> {
        let python = Python { program: python.to_owned() };
        let cudnn = Cudnn::start(&python, card.capability, card.multiprocessors)?;
        let plans = Plans { version: cudnn.version.clone(), answered: 0, unanswered: 0, failed: None };
        let plans = Arc::new(Mutex::new(plans));
        let socket = folder.join(SOCKET);
        let listener = UnixListener::bind(&socket).map_err(|error| Failure::Environment {
            problem: format!("cannot listen at {}: {error}", socket.display()),
            hint: "point TMPDIR to a folder of your own with a shorter name".to_owned(),
        })?;
        let (cudnn, counted) = (Arc::new(Mutex::new(cudnn)), Arc::clone(&plans));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (cudnn, counted) = (Arc::clone(&cudnn), Arc::clone(&counted));
                thread::spawn(move || answer(&stream, &cudnn, &counted));
            }
        });
        Ok(Self { socket, plans })
    }

    /// There are no hollow cards here.
    #[cfg(not(unix))]
    pub fn start(_python: &Path, _card: &Card, _folder: &Path) -> Result<Self, Failure> {
        Err(Failure::Environment { problem: "there are no hollow cards here".to_owned(), hint: "use Linux".to_owned() })
    }

    /// What was asked until now.
    pub fn plans(&self) -> Plans {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One process's questions, until it ends.
#[cfg(unix)]
fn answer(stream: &UnixStream, cudnn: &Mutex<Cudnn>, counted: &Mutex<Plans>) {
    let mut out = stream;
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let Ok(questions) = serde_json::from_str::<Vec<Value>>(&line) else { break };
        let said = cudnn.lock().unwrap_or_else(PoisonError::into_inner).ask(&questions);
        let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
        let said = said.unwrap_or_else(|failure| {
            counted.failed.get_or_insert(failure.problem());
            vec![None; questions.len()]
        });
        let answered = said.iter().filter(|bytes| bytes.is_some()).count();
        counted.answered += answered as u64;
        counted.unanswered += (said.len() - answered) as u64;
        drop(counted);
        if writeln!(out, "{}", Value::from(said)).is_err() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Plans;

    #[test]
    fn what_was_not_asked_is_not_claimed() {
        let plans = |answered, unanswered, failed: Option<&str>| {
            Plans { version: "9.19.0".to_owned(), answered, unanswered, failed: failed.map(str::to_owned) }.text()
        };
        assert_eq!(plans(0, 0, None), "No convolution was asked of cuDNN");
        assert!(plans(3, 0, None).ends_with("as cuDNN 9.19.0 plans them (3 different products)"));
        let rest = plans(3, 2, Some("it ended"));
        assert!(rest.contains("of 2 it has no plan") && rest.ends_with("it was not asked (it ended)"), "{rest}");
    }
}
