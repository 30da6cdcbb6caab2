//! Stages that need nothing of the others but the built tests, in processes of their own beside them: tests wait often enough,
//! for a browser, a server, a Python or a clock, that compilers and other tests beside them cost little time. Processes of their own, so that what
//! their processors worked is told apart.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Options, Outcome, Row, measured, stages, suite::Suite, tally::Tally};
use crate::python::Python;
use crate::shell::{headline, note};
use crate::workspace;

/// A stage of tests or checks.
type Stage = fn(&Options, &mut Tally) -> Result<Outcome>;

/// What one process runs, in this order.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    name: &'static str,
    stages: &'static [(&'static str, Stage)],
}

/// All of them. A browser's tests wait more than they work, and so do those that the process begins with which starts these.
pub const GROUPS: [Group; 2] = [
    Group {
        name: "planner",
        stages: &[
            ("build, planner", |_, _| stages::planner_build()),
            ("tests, wasm", |_, tally| stages::wasm_tests(tally)),
            ("tests, browser", browser),
            ("lints, native", |_, _| stages::native_lints()),
            ("documentation", |_, _| stages::documentation()),
            ("examples", |_, tally| stages::examples(tally)),
            ("lints, planner", |_, _| stages::planner_lints()),
        ],
    },
    Group { name: "torch", stages: &[("tests, torch", |options, tally| torch(options, tally))] },
];

impl Group {
    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        GROUPS.into_iter().find(|group| group.name == name)
    }

    /// Where it writes how its stages ended.
    fn rows(self) -> PathBuf {
        folder().join(format!("aside-{}.json", self.name))
    }
}

fn folder() -> PathBuf {
    workspace::root().join("target/tmp")
}

/// Whoever built the tests has waited for the Python.
fn torch(_: &Options, tally: &mut Tally) -> Result<Outcome> {
    let ci = super::in_ci();
    stages::torch_tests(&Suite::build()?, Python::ready(ci), ci, tally)
}

/// What cargo built is named by cargo once more, which builds nothing then.
fn browser(options: &Options, tally: &mut Tally) -> Result<Outcome> {
    let suite = Suite::build()?;
    if options.without_browser {
        stages::browser_tests_left_out(&suite, tally)
    } else {
        stages::browser_tests(&suite, tally)
    }
}

/// Runs them, and writes after each how all of them ended so far: the other side of [`Aside`].
pub fn run(group: Group, options: &Options) -> Result<bool> {
    let (mut rows, file) = (Vec::new(), group.rows());
    for (name, stage) in group.stages {
        rows.push(measured(name, &mut |tally| stage(options, tally)));
        let told: Vec<Value> = rows.iter().map(tell).collect();
        fs::write(&file, Value::from(told).to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(super::report::is_success(&rows))
}

/// The stages of a group as they run beside this process.
#[derive(Debug)]
pub struct Aside {
    group: Group,
    child: Child,
    log: PathBuf,
    start: Instant,
}

impl Aside {
    /// Starts them. What they print goes into a file, for whoever wants to look before they are done.
    pub fn start(group: Group, options: &Options) -> Result<Self> {
        fs::create_dir_all(folder())?;
        let (rows, log) = (group.rows(), folder().join(format!("aside-{}.log", group.name)));
        // Of a run before this one, which this one must not be taken for.
        if rows.exists() {
            fs::remove_file(&rows)?;
        }
        let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["test", "--aside", group.name]).stdout(output.try_clone()?).stderr(output);
        if options.without_browser {
            command.arg("--without-browser");
        }
        let child = command.spawn().context("cannot start the stages beside the tests")?;
        let shown = log.strip_prefix(workspace::root()).unwrap_or(&log).display();
        let names: Vec<&str> = group.stages.iter().map(|(name, _)| *name).collect();
        note(&format!("beside these runs \"{}\": {shown}", names.join("\", \"")));
        Ok(Self { group, child, log, start: Instant::now() })
    }

    /// Waits for their end, prints what they printed, and says how each ended.
    pub fn end(mut self) -> Vec<Row> {
        headline(&format!("what ran beside the tests: {}", self.group.name));
        let status = self.child.wait();
        let _ = File::open(&self.log).and_then(|mut log| std::io::copy(&mut log, &mut std::io::stderr()));
        let told =
            fs::read_to_string(self.group.rows()).ok().and_then(|text| serde_json::from_str::<Vec<Value>>(&text).ok());
        let told = told.unwrap_or_default();
        let ended =
            || format!("did not come to its end ({})", status.as_ref().map_or("lost".to_owned(), |s| s.to_string()));
        let row = |(at, (name, _)): (usize, (&'static str, Stage))| {
            told.get(at).and_then(|value| hear(name, value)).unwrap_or_else(|| Row {
                name,
                outcome: Outcome::Failed(ended()),
                tally: Tally::default(),
                time: self.start.elapsed(),
                cpu: None,
            })
        };
        self.group.stages.iter().copied().enumerate().map(row).collect()
    }
}

fn tell(row: &Row) -> Value {
    let (why, required) = match &row.outcome {
        Outcome::Passed => (None, None),
        Outcome::Failed(why) => (Some(why), None),
        Outcome::NotRun { why, required } => (Some(why), Some(*required)),
    };
    let Tally { passed, failed, skipped } = row.tally;
    json!({
        "why": why, "required": required, "tests": [passed, failed, skipped],
        "milliseconds": row.time.as_millis() as u64, "worked": row.cpu.map(|cpu| cpu.as_millis() as u64),
    })
}

fn hear(name: &'static str, told: &Value) -> Option<Row> {
    let why = told["why"].as_str().map(str::to_owned);
    let outcome = match (why, told["required"].as_bool()) {
        (None, _) => Outcome::Passed,
        (Some(why), None) => Outcome::Failed(why),
        (Some(why), Some(required)) => Outcome::NotRun { why, required },
    };
    let count = |at: usize| told["tests"][at].as_u64();
    let tally = Tally { passed: count(0)?, failed: count(1)?, skipped: count(2)? };
    let time = Duration::from_millis(told["milliseconds"].as_u64()?);
    Some(Row { name, outcome, tally, time, cpu: told["worked"].as_u64().map(Duration::from_millis) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_stage_ended_is_told_and_heard() {
        for outcome in [
            Outcome::Passed,
            Outcome::Failed("clippy".into()),
            Outcome::NotRun { why: "no Node".into(), required: true },
            Outcome::NotRun { why: "asked".into(), required: false },
        ] {
            let tally = Tally { passed: 3, failed: 1, skipped: 2 };
            let row = Row { name: "x", outcome, tally, time: Duration::from_millis(70), cpu: Some(Duration::ZERO) };
            assert_eq!(hear("x", &tell(&row)).as_ref(), Some(&row));
        }
        assert_eq!(hear("x", &json!({ "why": null })), None);
        assert_eq!(hear("x", &Value::Null), None);
    }
}
