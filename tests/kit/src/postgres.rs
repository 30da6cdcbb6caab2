//! A PostgreSQL of a test's own: in a folder that goes with it, on a port of this machine.

use std::env;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

/// Names the folder its programs are in.
const NAMED: &str = "PLIMSOLL_TEST_POSTGRES_BIN";

/// The user it belongs to.
const USER: &str = "plimsoll";

/// Who runs it where we are the superuser, which it refuses to be run by: `nobody`.
const NOBODY: u32 = 65534;

/// How long it may take to start on a machine that is busy with other work.
const START: Duration = Duration::from_secs(300);

/// How often it is started when another program takes the port that was free a moment before.
const ATTEMPTS: u32 = 5;

/// What PostgreSQL says then.
const TAKEN: &str = "Address already in use";

/// Ends it when our end of the pipe closes, however we end.
const GUARD: &str = r#""$0" "$@" & pid=$!; read -r _; kill -QUIT $pid; wait $pid"#;

/// Whether it waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// As in earnest.
    ForTheDisk,
    /// Faster, for what is thrown away.
    Never,
}

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub struct Postgres {
    guard: Child,
    bin: PathBuf,
    port: u16,
    databases: AtomicU32,
    _folder: TempDir,
}

impl Postgres {
    /// Starts one.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(waits: Waits) -> Result<Self> {
        let bin = programs()?;
        for _ in 1..ATTEMPTS {
            match Self::attempt(bin.clone(), waits) {
                Err(error) if error.to_string().contains(TAKEN) => {}
                done => return done,
            }
        }
        Self::attempt(bin, waits)
    }

    fn attempt(bin: PathBuf, waits: Waits) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("plimsoll-postgres-").tempdir()?;
        let root = is_root();
        if root {
            own(folder.path())?;
        }
        let data = folder.path().join("data");
        let mut make = as_nobody(Command::new(bin.join("initdb")), root);
        make.arg("-D").arg(&data).args(["-U", USER, "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]);
        let made = make.current_dir(folder.path()).stdin(Stdio::null()).output().context("cannot start initdb")?;
        ensure!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));

        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = fs::File::create(folder.path().join("log"))?;
        let mut serve = as_nobody(Command::new("sh"), root);
        serve.args(["-c", GUARD]).arg(bin.join("postgres")).arg("-D").arg(&data);
        serve.args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        if waits == Waits::Never {
            serve.args(["-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"]);
        }
        serve.current_dir(folder.path()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let guard = serve.spawn().context("cannot start PostgreSQL")?;
        let mut postgres = Self { guard, bin, port, databases: AtomicU32::new(0), _folder: folder };
        postgres.wait(&data)?;
        Ok(postgres)
    }

    /// Until it says that it is ready, in the last line of its own file.
    fn wait(&mut self, data: &Path) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < START {
            let said = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
            if said.lines().last().is_some_and(|line| line.trim() == "ready") {
                return Ok(());
            }
            ensure!(self.guard.try_wait()?.is_none(), "PostgreSQL ended: {}", self.log());
            sleep(Duration::from_millis(20));
        }
        bail!("PostgreSQL did not start: {}", self.log())
    }

    fn log(&self) -> String {
        fs::read_to_string(self._folder.path().join("log")).unwrap_or_default()
    }

    /// The address of a new, empty database.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn database(&self) -> Result<String> {
        let name = format!("d{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let port = self.port.to_string();
        let mut make = Command::new(self.bin.join("createdb"));
        let made = make.args(["-h", "127.0.0.1", "-p", &port, "-U", USER, &name]).stdin(Stdio::null()).output()?;
        ensure!(made.status.success(), "createdb failed: {}", String::from_utf8_lossy(&made.stderr));
        Ok(format!("postgres://{USER}@127.0.0.1:{port}/{name}"))
    }

    /// What it calls itself: `PostgreSQL 15.18`.
    pub fn version(&self) -> String {
        let said = Command::new(self.bin.join("postgres")).arg("--version").output();
        let said = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
        let number = said.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        format!("PostgreSQL {}", number.unwrap_or("of an unknown version"))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// The folder with `initdb`, `postgres` and `createdb`: the one that is named, or one in PATH. Where a system keeps them
/// elsewhere, `cargo xtask test` looks for them and names the folder.
fn programs() -> Result<PathBuf> {
    let named = env::var_os(NAMED).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = named.into_iter().chain(env::split_paths(&path));
    let found = folders.find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file());
    let found = found.with_context(|| {
        format!(
            "PostgreSQL is not in PATH: install it (Debian, Ubuntu: `apt-get install postgresql`), or name the folder \
             of initdb and postgres with {NAMED}"
        )
    })?;
    // Through a link in PATH to where all of its programs are.
    let real = found.join("initdb").canonicalize()?;
    Ok(real.parent().context("initdb is in no folder")?.to_owned())
}

#[cfg(unix)]
fn is_root() -> bool {
    // The owner of what we make is who we are.
    use std::os::unix::fs::MetadataExt as _;
    tempfile::tempdir().and_then(|folder| fs::metadata(folder.path())).is_ok_and(|found| found.uid() == 0)
}

#[cfg(unix)]
fn own(path: &Path) -> io::Result<()> {
    std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY))
}

#[cfg(unix)]
fn as_nobody(mut command: Command, root: bool) -> Command {
    use std::os::unix::process::CommandExt as _;
    if root {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

#[cfg(not(unix))]
fn is_root() -> bool {
    false
}

#[cfg(not(unix))]
fn own(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn as_nobody(command: Command, _: bool) -> Command {
    command
}
