//! Stages that need nothing of the others but the built tests, in a process of its own beside them: tests wait often enough,
//! for a browser, a server or a clock, that compilers and other tests beside them cost little time. A process of its own, so that what its processors
//! worked is told apart.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Options, Outcome, Row, measured, stages, suite::Suite, tally::Tally};
use crate::shell::{headline, note};
use crate::workspace;

/// A stage of tests or checks.
type Stage = fn(&Options, &mut Tally) -> Result<Outcome>;

/// What is run, in this order: a browser's tests wait more than they work, and so do those that the other process begins with.
const STAGES: [(&str, Stage); 7] = [
    ("build, planner", |_, _| stages::planner_build()),
    ("tests, wasm", |_, tally| stages::wasm_tests(tally)),
    ("tests, browser", browser),
    ("lints, native", |_, _| stages::native_lints()),
    ("documentation", |_, _| stages::documentation()),
    ("examples", |_, tally| stages::examples(tally)),
    ("lints, planner", |_, _| stages::planner_lints()),
];

/// What cargo built is named by cargo once more, which builds nothing then.
fn browser(options: &Options, tally: &mut Tally) -> Result<Outcome> {
    let suite = Suite::build()?;
    if options.without_browser {
        stages::browser_tests_left_out(&suite, tally)
    } else {
        stages::browser_tests(&suite, tally)
    }
}

/// Runs them, and writes after each how all of them ended so far into `file`: the other side of [`Aside`].
pub fn run(file: &Path, options: &Options) -> Result<bool> {
    let mut rows = Vec::new();
    for (name, stage) in STAGES {
        rows.push(measured(name, &mut |tally| stage(options, tally)));
        let told: Vec<Value> = rows.iter().map(tell).collect();
        fs::write(file, Value::from(told).to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(super::report::is_success(&rows))
}

/// The stages as they run beside this process.
#[derive(Debug)]
pub struct Aside {
    child: Child,
    rows: PathBuf,
    log: PathBuf,
    start: Instant,
}

impl Aside {
    /// Starts them. What they print goes into a file, for whoever wants to look before they are done.
    pub fn start(options: &Options) -> Result<Self> {
        let folder = workspace::root().join("target/tmp");
        fs::create_dir_all(&folder)?;
        let (rows, log) = (folder.join("aside.json"), folder.join("aside.log"));
        // Of a run before this one, which this one must not be taken for.
        if rows.exists() {
            fs::remove_file(&rows)?;
        }
        let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["test", "--aside"]).arg(&rows).stdout(output.try_clone()?).stderr(output);
        if options.without_browser {
            command.arg("--without-browser");
        }
        let child = command.spawn().context("cannot start the stages beside the tests")?;
        let shown = log.strip_prefix(workspace::root()).unwrap_or(&log).display();
        note(&format!("the planner and its tests, lints and documentation run beside the tests: {shown}"));
        Ok(Self { child, rows, log, start: Instant::now() })
    }

    /// Waits for their end, prints what they printed, and says how each ended.
    pub fn end(mut self) -> Vec<Row> {
        headline("what ran beside the tests");
        let status = self.child.wait();
        let _ = File::open(&self.log).and_then(|mut log| std::io::copy(&mut log, &mut std::io::stderr()));
        let told = fs::read_to_string(&self.rows).ok().and_then(|text| serde_json::from_str::<Vec<Value>>(&text).ok());
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
        STAGES.into_iter().enumerate().map(row).collect()
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
