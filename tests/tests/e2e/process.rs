//! A program that runs beside the test and ends with it.

use std::{
    io::{BufRead as _, BufReader, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// How long a program may take to start or to end, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// A child process with its output read line by line; killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

impl Process {
    /// Starts the command.
    pub fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let lines = read(child.stdout.take());
        let errors = read(child.stderr.take());
        Ok(Self { name, child, lines, errors })
    }

    /// What follows `mark` on the first line of standard output that holds it.
    pub fn line_after(&mut self, mark: &str) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some((_, rest)) = line.split_once(mark) {
                        return Ok(rest.to_owned());
                    }
                }
                Err(_) => {
                    let errors = self.errors();
                    bail!("{} did not print {mark:?}; its errors: {errors:?}", self.name)
                }
            }
        }
    }

    /// Its process id.
    #[cfg(unix)]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub fn end(&mut self) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > PATIENCE {
                bail!("{} did not end within {PATIENCE:?}", self.name);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it has printed on standard error so far; all of it once it has ended.
    pub fn errors(&mut self) -> String {
        // The reader ends with the stream, so after the process's end this is complete.
        let ended = self.child.try_wait().is_ok_and(|status| status.is_some());
        let lines: Vec<String> = if ended { self.errors.iter().collect() } else { self.errors.try_iter().collect() };
        lines.join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, and then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a stream on a thread of its own, so that the program never waits for a reader.
fn read(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, lines) = channel();
    if let Some(stream) = stream {
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                // Nobody listens any more: the program's output still has to be taken from it.
                let _ = sender.send(line);
            }
        });
    }
    lines
}
