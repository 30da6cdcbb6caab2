//! Has cargo build something, and says in one line how far it is.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::shell::{self, note, seconds};

/// How often the line is written where it is no terminal that shows it.
const SELDOM: Duration = Duration::from_secs(20);

/// What cargo is to build, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order<'a> {
    /// `build`, or `test`, which then runs nothing.
    pub command: &'a str,
    /// Which packages and features, and for which target: what `cargo tree` understands too.
    pub selection: &'a [&'a str],
    /// Everything else: the profile, which of the packages' programs.
    pub options: &'a [&'a str],
}

/// One program or test that cargo built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The package.
    pub package: String,
    /// The target's name.
    pub name: String,
    /// Its kind: `lib`, `bin`, `test`, ...
    pub kind: String,
    /// Whether it runs the tests within it.
    pub is_test: bool,
    /// The folder of the package, in which cargo runs its tests.
    pub folder: PathBuf,
    /// The program.
    pub path: PathBuf,
}

/// What was built.
#[derive(Debug, Default)]
pub struct Built {
    /// In the order in which cargo was done with them.
    pub programs: Vec<Program>,
    /// The folders that build scripts wrote into, by package.
    pub out_dirs: Vec<(String, PathBuf)>,
}

impl Built {
    /// The program of a package's `[[bin]]`.
    pub fn binary(&self, name: &str) -> Result<&Path> {
        let found = self.programs.iter().find(|p| p.name == name && p.kind == "bin" && !p.is_test);
        found.map(|program| program.path.as_path()).with_context(|| format!("cargo built no program `{name}`"))
    }
}

/// Builds, and says meanwhile how far it is.
pub fn compile(order: &Order) -> Result<Built> {
    let packages = packages(order)?;
    let mut cargo = shell::cargo();
    cargo.arg(order.command).args(["--locked", "--quiet", "--message-format", "json-render-diagnostics"]);
    if order.command == "test" {
        cargo.arg("--no-run");
    }
    cargo.args(order.selection).args(order.options);
    let mut child = cargo.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let (sender, lines) = channel();
    read(child.stdout.take(), sender);

    let (mut built, mut done, mut compiled) = (Built::default(), HashSet::new(), 0);
    let mut line = Line::default();
    loop {
        match lines.recv_timeout(Duration::from_millis(500)) {
            Ok(text) => {
                let Ok(message) = serde_json::from_str::<Value>(&text) else { continue };
                compiled += u32::from(message.get("fresh") == Some(&Value::Bool(false)));
                if let Some(package) = built.take(&message) {
                    done.insert(package);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        line.show(&progress(done.len(), packages));
    }
    let took = line.end();
    shell::check(&cargo, child.wait()?)?;
    if compiled > 0 {
        note(&format!("{} packages in {}", done.len(), seconds(took)));
    }
    Ok(built)
}

/// A package is counted with the first that is built of it, mostly its library: programs and tests may still be missing.
fn progress(done: usize, packages: usize) -> String {
    if done < packages { format!("{done} of {packages} packages") } else { "the last programs".to_owned() }
}

/// How many packages it takes; those that are not here yet are fetched.
fn packages(order: &Order) -> Result<usize> {
    let edges = if order.command == "test" { "normal,build,dev" } else { "normal,build" };
    let mut cargo = shell::cargo();
    cargo.args(["tree", "--locked", "--prefix", "none", "--edges", edges]).args(order.selection);
    let mut child = cargo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // The list is read aside, so that cargo never waits for a reader.
    let (sender, list) = channel();
    read(child.stdout.take(), sender);
    let (sender, said) = channel();
    read(child.stderr.take(), sender);
    let (mut fetched, mut errors, mut line) = (0, Vec::new(), Line::default());
    for text in said {
        if text.trim_start().starts_with("Downloaded ") {
            fetched += 1;
            line.show(&format!("{fetched} packages fetched"));
        } else {
            errors.push(text);
        }
    }
    line.end();
    if let Err(error) = shell::check(&cargo, child.wait()?) {
        bail!("{error}:\n{}", errors.join("\n"));
    }
    if fetched > 0 {
        note(&format!("{fetched} packages fetched"));
    }
    // `name v1.2.3 (proc-macro) (*)`
    let names: HashSet<String> = list.iter().map(|l| l.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    Ok(names.iter().filter(|name| !name.is_empty()).count())
}

/// Reads lines on a thread of its own.
fn read(stream: Option<impl Read + Send + 'static>, into: Sender<String>) {
    let Some(stream) = stream else { return };
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            // Nobody listens any more: the output still has to be taken from the program.
            let _ = into.send(line);
        }
    });
}

impl Built {
    /// Takes in one of cargo's messages; the package that is done with it.
    fn take(&mut self, message: &Value) -> Option<String> {
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        let id = text("/package_id")?;
        match text("/reason")? {
            "build-script-executed" => {
                self.out_dirs.push((package(id), text("/out_dir")?.into()));
                None
            }
            "compiler-artifact" => {
                let kind = text("/target/kind/0")?;
                if kind == "custom-build" {
                    return None;
                }
                if let Some(path) = text("/executable") {
                    self.programs.push(Program {
                        package: package(id),
                        name: text("/target/name")?.to_owned(),
                        kind: kind.to_owned(),
                        is_test: message.pointer("/profile/test") == Some(&Value::Bool(true)),
                        folder: Path::new(text("/manifest_path")?).parent()?.to_owned(),
                        path: path.into(),
                    });
                }
                Some(id.to_owned())
            }
            _ => None,
        }
    }
}

/// The name in `path+file:///home/me/plimsoll/tests#plimsoll-tests@0.1.0`; without one it is the folder's.
fn package(id: &str) -> String {
    let (place, rest) = id.rsplit_once('#').unwrap_or((id, ""));
    let folder = || Path::new(place).file_name().and_then(OsStr::to_str).unwrap_or_default();
    rest.split_once('@').map_or_else(folder, |(name, _)| name).to_owned()
}

/// A line that is written again and again in the same place.
#[derive(Debug)]
struct Line {
    start: Instant,
    shown: Option<Instant>,
    in_place: bool,
}

impl Default for Line {
    fn default() -> Self {
        Self { start: Instant::now(), shown: None, in_place: std::io::stderr().is_terminal() }
    }
}

impl Line {
    fn show(&mut self, text: &str) {
        let text = format!("        {text}, {}", seconds(self.start.elapsed()));
        if self.in_place {
            // Whether it can be seen is no reason to stop.
            let _ = write!(std::io::stderr(), "\r{text}\x1b[K");
            self.shown = Some(Instant::now());
        } else if self.shown.unwrap_or(self.start).elapsed() > SELDOM {
            let _ = writeln!(std::io::stderr(), "{text}");
            self.shown = Some(Instant::now());
        }
    }

    /// Takes it away, and says how long there was one.
    fn end(&self) -> Duration {
        if self.in_place && self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        self.start.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_said_to_be_done_that_is_not() {
        assert_eq!(progress(3, 4), "3 of 4 packages");
        assert_eq!(progress(4, 4), "the last programs");
    }

    #[test]
    fn packages_have_their_names() {
        for (id, name) in [
            ("path+file:///home/me/plimsoll/tests#plimsoll-tests@0.1.0", "plimsoll-tests"),
            ("path+file:///home/me/plimsoll/xtask#0.1.0", "xtask"),
            ("registry+https://github.com/rust-lang/crates.io-index#serde@1.0.229", "serde"),
        ] {
            assert_eq!(package(id), name);
        }
    }

    #[test]
    fn programs_are_told_from_libraries_and_scripts() {
        let message = |kind: &str, test: bool, executable: Value| {
            json!({
                "reason": "compiler-artifact", "package_id": "path+file:///a/probe#plimsoll-probe@0.1.0",
                "manifest_path": "/a/probe/Cargo.toml", "target": { "kind": [kind], "name": "plimsoll" },
                "profile": { "test": test }, "executable": executable, "fresh": true
            })
        };
        let mut built = Built::default();
        assert!(built.take(&message("custom-build", false, json!("/t/build"))).is_none());
        assert!(built.take(&message("lib", false, Value::Null)).is_some());
        assert!(built.take(&message("bin", true, json!("/t/plimsoll-1"))).is_some());
        assert!(built.binary("plimsoll").is_err());
        assert!(built.take(&message("bin", false, json!("/t/plimsoll"))).is_some());
        assert_eq!(built.binary("plimsoll").unwrap(), Path::new("/t/plimsoll"));
        assert_eq!(built.programs.len(), 2);
        assert!(built.programs[0].is_test && built.programs[0].folder == Path::new("/a/probe"));
        let script = json!({ "reason": "build-script-executed", "package_id": "path+file:///a/server#plimsoll-server@0.1.0",
            "out_dir": "/t/out" });
        assert!(built.take(&script).is_none());
        assert_eq!(built.out_dirs, [("plimsoll-server".to_owned(), PathBuf::from("/t/out"))]);
    }
}
