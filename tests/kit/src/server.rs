//! `plimsoll serve` as a process of its own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::http::Client;

/// How long it may take to end when it is told to, on a machine that is busy with other work.
const END: Duration = Duration::from_secs(120);

/// A running server; it is killed when this is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Where it listens: `127.0.0.1:43210`.
    pub address: String,
}

impl Server {
    /// Starts `plimsoll serve` on a free port of this machine, with these arguments.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(plimsoll: &Path, arguments: &[&str]) -> Result<Self> {
        Self::start_by(Command::new(plimsoll), arguments)
    }

    /// The same, by a command that takes the arguments of `plimsoll`.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_by(mut command: Command, arguments: &[&str]) -> Result<Self> {
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut server = Self { child: child.context("cannot start plimsoll")?, address: String::new() };
        let mut line = String::new();
        BufReader::new(server.child.stdout.take().context("it has no output")?).read_line(&mut line)?;
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split('/').next());
        server.address = address.with_context(|| format!("the server said no address: {line:?}"))?.to_owned();
        Ok(server)
    }

    /// A connection to it.
    ///
    /// # Errors
    /// It does not listen.
    pub fn client(&self) -> Result<Client> {
        Client::connect(&self.address)
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it where it stands.
    ///
    /// # Errors
    /// It ended by itself before.
    pub fn kill(mut self) -> Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "it had ended by itself");
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to end, and waits until it has.
    ///
    /// # Errors
    /// It does not end, or with an error.
    pub fn end(mut self) -> Result<()> {
        let told = Command::new("kill").arg(self.child.id().to_string()).status()?;
        ensure!(told.success(), "it cannot be told to end");
        let start = Instant::now();
        while start.elapsed() < END {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "it ended with {status}");
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        anyhow::bail!("it did not end")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
