//! The hollow twin: the same entry rehearsed on a card with the figures of the one at hand.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_core::scenario::AttentionMask;
use plimsoll_core::{Bytes, Measurement};

use crate::exit::Failure;
use crate::interrupt::{self, Running};
use crate::probe::Where;
use crate::probe::suite::plan::Plan;
use crate::probe::survey::{Seen, Survey};
use crate::records;

/// How often Ctrl-C and the end are looked for.
const TICK: Duration = Duration::from_millis(20);
/// How long it may take to end when it is asked to.
const GOODBYE: Duration = Duration::from_secs(20);
/// Lines of its own words that are told when it fails.
const LINES: usize = 6;

/// Somewhere the twin of an entry is run.
pub trait Twins {
    /// Runs it; what it leaves goes to `folder`: `scenario.json` is there, `twin.json` and `twin.pickle` are made.
    ///
    /// # Errors
    /// When it leaves no record.
    fn rehearse(&mut self, plan: &Plan, folder: &Path) -> Result<Measurement, Failure>;
}

/// A `plimsoll rehearse` of this very program.
#[derive(Debug)]
pub struct Rehearsal<'a> {
    place: &'a Where,
    options: Vec<String>,
}

impl<'a> Rehearsal<'a> {
    /// A twin of the card. What others held of it is none of the twin's; `context` is what was measured of the context and the
    /// libraries.
    pub fn new(place: &'a Where, survey: &Survey, card: &Seen, context: Option<Bytes>, more: &[String]) -> Self {
        let others = survey.device.used_before.unwrap_or_default();
        let mut options = vec![
            format!("--name={}", card.name),
            format!("--memory={} B", card.memory.saturating_sub(others).get()),
            format!("--sms={}", card.multiprocessors),
            format!("--compute-capability={}", card.capability),
        ];
        options.extend(survey.device.gpu.iter().map(|id| format!("--gpu={id}")));
        options.extend(context.map(|context| format!("--context={} B", context.get())));
        // Said later, it holds.
        for option in more {
            let name = option.split('=').next().unwrap_or(option);
            options.retain(|own| own.split('=').next() != Some(name));
            options.push(option.clone());
        }
        Self { place, options }
    }

    fn command(&self, program: &Path, plan: &Plan, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg("rehearse").args(&self.options);
        // A card that computes nothing has to be told when a generation is over, and that not every sample is as long as the longest.
        // Not both: a fixed truth would answer for the end of the generation too.
        let tokens = plan.scenario.input.max_new_tokens.map(|tokens| format!("--stop-after={tokens}"));
        let padded = tokens.is_none() && plan.scenario.input.attention_mask == AttentionMask::Padded;
        for (name, option) in [("--stop-after", tokens), ("--truth", padded.then(|| "--truth=false".to_owned()))] {
            let said = self.options.iter().any(|own| own.starts_with(name));
            command.args(option.filter(|_| !said));
        }
        let python = |command: &mut Command| {
            if let Some(python) = &self.place.python {
                command.arg("--python").arg(python);
            }
        };
        python(&mut command);
        command.arg("--").arg(program).args(["probe", "run"]).arg(folder.join("scenario.json"));
        python(&mut command);
        command.args(["--device", "cuda", "--format", "json", "--busy", "ignore"]);
        command.arg("--steps").arg(self.place.steps(&plan.scenario).to_string());
        command.arg("--out").arg(folder.join("twin.json")).arg("--snapshot").arg(folder.join("twin.pickle"));
        if let Some(limit) = plan.limit {
            command.arg(format!("--limit={} B", limit.get()));
        }
        if let Some(timeout) = self.place.timeout {
            command.arg(format!("--timeout={timeout}"));
        }
        if !plan.adapt {
            command.arg("--no-adapt");
        }
        // It is alone on its card, whichever of several the other ran on.
        command.env_remove("CUDA_VISIBLE_DEVICES").env_remove("CUDA_DEVICE_ORDER");
        command
    }
}

impl Twins for Rehearsal<'_> {
    fn rehearse(&mut self, plan: &Plan, folder: &Path) -> Result<Measurement, Failure> {
        let broken = |problem: String| Failure::Environment { problem, hint: String::new() };
        // Its record lies in the folder; a second one among the user's own says nothing more.
        let scratch = tempfile::tempdir().map_err(|error| broken(format!("cannot make a folder: {error}")))?;
        let log = folder.join("twin.log");
        let program = std::env::current_exe().map_err(|error| broken(format!("cannot find this program: {error}")))?;
        // The program is started with another folder as its own.
        let folder = &std::path::absolute(folder).map_err(|error| broken(error.to_string()))?;
        let words = File::create(&log).map_err(|error| broken(format!("cannot write {}: {error}", log.display())))?;
        let mut command = self.command(&program, plan, folder);
        command.env("PLIMSOLL_DATA", scratch.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(words);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(|error| broken(format!("cannot start the twin: {error}")))?;
        interrupt::running(Some(Running { pid: child.id(), folder: scratch.path().to_owned() }));
        wait(&mut child);
        interrupt::running(None);
        if interrupt::asked() {
            return Err(Failure::Interrupted);
        }
        records::read(&folder.join("twin.json")).map_err(|_| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            broken(lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join(" | "))
        })
    }
}

/// Waits for its end; on Ctrl-C it is asked to end, then made to.
fn wait(child: &mut Child) {
    let mut asked: Option<Instant> = None;
    while matches!(child.try_wait(), Ok(None)) {
        if interrupt::asked() && asked.is_none() {
            asked = Some(Instant::now());
            ask_to_end(child.id());
        }
        if asked.is_some_and(|at| at.elapsed() > GOODBYE) {
            crate::worker::kill(child.id());
        }
        thread::sleep(TICK);
    }
}

#[cfg(unix)]
fn ask_to_end(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        // It may be gone by now, which is as good.
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::INT);
    }
}

#[cfg(not(unix))]
fn ask_to_end(pid: u32) {
    crate::worker::kill(pid);
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::probe::suite::plan;

    #[derive(Debug, clap::Parser)]
    struct Flags {
        #[command(flatten)]
        place: Where,
    }

    #[test]
    fn the_twin_has_the_figures_of_the_card_and_what_is_said_of_it_holds() {
        let place = Flags::parse_from(["probe", "--python", "/py", "--steps", "2"]).place;
        let mut survey = plan::tests::survey(12);
        survey.device.used_before = Some(Bytes::from_mib(1024));
        let card = Seen {
            name: "NVIDIA X".to_owned(),
            memory: Bytes::from_gib(12),
            multiprocessors: 30,
            capability: "8.6".to_owned(),
        };
        let more = ["--sms=12".to_owned(), "--truth=false".to_owned()];
        let rehearsal = Rehearsal::new(&place, &survey, &card, Some(Bytes::from_mib(200)), &more);
        let plan = Plan { scenario: plimsoll_core::Scenario::default(), limit: Some(Bytes::from_gib(6)), adapt: false };
        let command = rehearsal.command(Path::new("/bin/plimsoll"), &plan, Path::new("/out/x"));
        let words: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let (before, after) = words.split_at(words.iter().position(|word| word == "--").unwrap());
        for part in ["--name=NVIDIA X", "--memory=11811160064 B", "--sms=12", "--truth=false", "--context=209715200 B"]
        {
            assert!(before.iter().any(|word| word == part), "no {part} in {before:?}");
        }
        assert!(!before.iter().any(|word| word == "--sms=30"));
        for part in ["--no-adapt", "--limit=6442450944 B", "/out/x/twin.pickle", "2"] {
            assert!(after.iter().any(|word| word == part), "no {part} in {after:?}");
        }
        assert_eq!(words.iter().filter(|word| *word == "/py").count(), 2);
    }
}
