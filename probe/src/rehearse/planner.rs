//! Whoever answers what a convolution takes in cuDNN, behind a socket that the hollow card's processes ask through.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
#[cfg(unix)]
use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::{UnixListener, UnixStream},
};

use plimsoll_hollow::Card;
use serde::Serialize;
use serde_json::Value;

use crate::cudnn::Cudnn;
use crate::exit::Failure;
use crate::worker::Python;

/// What the socket is called, in a folder of our own.
const SOCKET: &str = "cudnn";

/// The library, and where it is asked.
#[derive(Debug)]
pub struct Planner {
    /// The socket.
    pub socket: PathBuf,
    asked: Arc<Mutex<Asked>>,
}

/// What was asked.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
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

impl Planner {
    /// Starts the library of `python` for `card`, and listens in `folder`.
    ///
    /// # Errors
    /// As [`Cudnn::start`], and a folder in which nobody can listen.
    #[cfg(unix)]
    pub fn start(python: &Path, card: &Card, folder: &Path) -> Result<Self, Failure> {
        let python = Python { program: python.to_owned() };
        let cudnn = Cudnn::start(&python, card.capability, card.multiprocessors)?;
        let asked = Asked { version: cudnn.version.clone(), answered: 0, unanswered: 0, failed: None };
        let asked = Arc::new(Mutex::new(asked));
        let socket = folder.join(SOCKET);
        let listener = UnixListener::bind(&socket).map_err(|error| Failure::Environment {
            problem: format!("cannot listen at {}: {error}", socket.display()),
            hint: "point TMPDIR to a folder of your own with a shorter name".to_owned(),
        })?;
        let (cudnn, counted) = (Arc::new(Mutex::new(cudnn)), Arc::clone(&asked));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (cudnn, counted) = (Arc::clone(&cudnn), Arc::clone(&counted));
                thread::spawn(move || answer(&stream, &cudnn, &counted));
            }
        });
        Ok(Self { socket, asked })
    }

    /// There are no hollow cards here.
    #[cfg(not(unix))]
    pub fn start(_python: &Path, _card: &Card, _folder: &Path) -> Result<Self, Failure> {
        Err(Failure::Environment { problem: "there are no hollow cards here".to_owned(), hint: "use Linux".to_owned() })
    }

    /// What was asked until now.
    pub fn asked(&self) -> Asked {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One process's questions, until it ends.
#[cfg(unix)]
fn answer(stream: &UnixStream, cudnn: &Mutex<Cudnn>, counted: &Mutex<Asked>) {
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
