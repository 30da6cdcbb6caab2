//! How far a session is, on standard error: one live display on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_core::Bytes;
use plimsoll_core::estimate::PhaseName;
use plimsoll_core::measurement::{DeviceKind, EventKind, Sample};
use plimsoll_core::shown;

use super::report::duration;
use crate::session::{Update, Watcher, Work};
use crate::view::Paint;

/// Cells of the memory bar.
const CELLS: u64 = 40;
/// Plain lines about steps come at most this often.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Shows a session while it runs.
#[derive(Debug)]
pub struct Progress {
    /// On a terminal.
    bar: Option<ProgressBar>,
    paint: Paint,
    state: State,
    /// When the last plain line about a step was written.
    told: Option<Instant>,
}

/// What the display is made from.
#[derive(Debug)]
struct State {
    /// What is repeated.
    work: Work,
    phase: String,
    attempt: String,
    steps: u64,
    /// Micro-batches in a step.
    accumulation: u64,
    /// The step that runs, from 1.
    step: u64,
    /// How long the last step took, and the first.
    last_micros: Option<u64>,
    sample: Sample,
    room: Option<Bytes>,
    load_line: Option<Bytes>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            work: Work::Step,
            phase: String::new(),
            attempt: String::new(),
            steps: 0,
            accumulation: 0,
            step: 0,
            last_micros: None,
            sample: Sample::default(),
            room: None,
            load_line: None,
        }
    }
}

impl Progress {
    /// For this process's standard error.
    pub fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            let style = ProgressStyle::with_template("{spinner} {wide_msg}\n  {prefix}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self { bar, paint: Paint::for_stderr(), state: State::default(), told: None }
    }

    /// A line that stays.
    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| write(line)),
            None => write(line),
        }
    }

    fn draw(&self) {
        if let Some(bar) = &self.bar {
            bar.set_message(self.state.headline());
            bar.set_prefix(self.state.memory());
        }
    }

    /// The work itself; on a terminal it is in the display anyway.
    fn plain(&self, line: &str) {
        if self.bar.is_none() {
            write(line);
        }
    }
}

fn write(line: &str) {
    // Nobody is left to tell when standard error is gone.
    let _ = writeln!(anstream::stderr(), "{line}");
}

impl Watcher for Progress {
    fn see(&mut self, update: &Update<'_>) {
        match update {
            Update::Starting { python, device, work } => {
                self.state.work = *work;
                let on = device.map(|device| format!(" on {}", name(device))).unwrap_or_default();
                let python = shown(&python.display().to_string());
                self.say(&self.paint.quiet(&format!("Measuring{on} with {python}")));
                self.state.phase = "starting Python".to_owned();
            }
            Update::Hello { software, device, room, load_line } => {
                self.say(&self.paint.quiet(&format!("{}, torch {}", device.name, software.torch)));
                (self.state.room, self.state.load_line) = (*room, *load_line);
            }
            Update::Progress(message) => {
                (*message).clone_into(&mut self.state.phase);
                self.plain(message);
            }
            Update::Attempt { shape, steps } => {
                self.state.attempt = match self.state.work.trains() {
                    true => format!("micro-batch {} x {}", shape.batch, shape.accumulation),
                    false => format!("batch {}", shape.batch),
                };
                self.state.steps = *steps;
                self.state.accumulation = shape.accumulation;
                self.state.phase = first(self.state.work).to_owned();
                self.state.step = 1;
                self.state.last_micros = None;
                self.told = None;
                self.plain(&format!("{}, {}", self.state.attempt, self.state.work.count(*steps)));
            }
            Update::Phase { name, step, micro_batch } => {
                self.state.step = step.unwrap_or(self.state.step);
                self.state.phase = after(self.state.work, *name, *micro_batch, self.state.accumulation);
            }
            Update::Step(step) => {
                self.state.last_micros = Some(step.micros);
                let is_last = step.step >= self.state.steps;
                self.state.step = (step.step + 1).min(self.state.steps);
                if is_last || self.told.is_none_or(|told| told.elapsed() >= PLAIN_EVERY) {
                    self.told = Some(Instant::now());
                    let memory = self.state.sample.process.map(|p| format!(", {p} in use")).unwrap_or_default();
                    self.plain(&format!(
                        "{} {} of {}: {}{memory}",
                        self.state.work.noun(),
                        step.step,
                        self.state.steps,
                        duration(step.micros)
                    ));
                }
            }
            Update::Usage(sample) => self.state.sample = **sample,
            Update::Event(event) => {
                let label = match event.kind {
                    EventKind::Note | EventKind::Halved | EventKind::Raised => self.paint.strong("note:"),
                    EventKind::Warning | EventKind::Numeric => self.paint.strong("warning:"),
                    // The trouble that follows says more.
                    EventKind::Failed => return,
                    EventKind::OutOfMemory | EventKind::Limit => self.paint.signal("guard:"),
                    EventKind::Interrupted => self.paint.signal("stopped:"),
                };
                self.say(&format!("{label} {}", event.message));
            }
            Update::Trouble { problem, hint, detail } => {
                for line in tail(detail) {
                    self.say(&self.paint.quiet(&format!("  | {line}")));
                }
                self.say(&format!("{} {problem}", self.paint.signal("error:")));
                if !hint.is_empty() {
                    self.say(&format!("{} {hint}", self.paint.strong("hint:")));
                }
            }
            Update::End => {
                if let Some(bar) = &self.bar {
                    bar.finish_and_clear();
                }
                return;
            }
        }
        self.draw();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl State {
    /// `step 2 of 3, backward 4   micro-batch 4 x 8   about 12 s left`, `generation 2 of 3, decode   batch 4`.
    fn headline(&self) -> String {
        if self.steps == 0 {
            return self.phase.clone();
        }
        let noun = self.work.noun();
        let mut text = format!("{noun} {} of {}, {}   {}", self.step, self.steps, self.phase, self.attempt);
        if let Some(micros) = self.last_micros {
            let left = (self.steps + 1).saturating_sub(self.step).saturating_mul(micros);
            text.push_str(&format!("   about {} left", duration(left.max(1000))));
        }
        text
    }

    /// The memory against what there is, with the load line in it.
    fn memory(&self) -> String {
        let Some(used) = self.sample.process.or(self.sample.device) else { return String::new() };
        let mut text = match self.room {
            Some(room) => format!("{} {used} of {room}", bar(used, room, self.load_line)),
            None => format!("{used} in use"),
        };
        if let Some(percent) = self.sample.utilization {
            text.push_str(&format!(", {percent} % busy"));
        }
        if let Some(power) = self.sample.power {
            text.push_str(&format!(", {} W", (power + 500) / 1000));
        }
        text
    }
}

/// What a step begins with.
const fn first(work: Work) -> &'static str {
    if work.trains() { "input 1" } else { "input" }
}

/// What runs once a phase has ended: the worker tells of ends only.
fn after(work: Work, name: PhaseName, micro_batch: Option<u64>, accumulation: u64) -> String {
    let number = micro_batch.unwrap_or(1);
    match (work, name) {
        (Work::Generation { .. }, PhaseName::Input) => return "prefill".to_owned(),
        (Work::Forward, PhaseName::Input) => return "forward".to_owned(),
        (Work::Forward, PhaseName::Forward) | (_, PhaseName::Decode) => return first(work).to_owned(),
        (Work::Generation { tokens: 1 }, PhaseName::Prefill) => return first(work).to_owned(),
        (Work::Generation { .. } | Work::Forward, PhaseName::Load) => return "the model stands".to_owned(),
        _ => {}
    }
    match name {
        PhaseName::Load => "making the optimizer".to_owned(),
        PhaseName::Input => format!("forward {number}"),
        PhaseName::Forward => format!("backward {number}"),
        PhaseName::Backward if number < accumulation => format!("input {}", number + 1),
        PhaseName::Backward => "clip".to_owned(),
        PhaseName::Clip => "optimizer".to_owned(),
        PhaseName::Optimizer => "zero grad".to_owned(),
        PhaseName::ZeroGrad | PhaseName::Decode => first(work).to_owned(),
        PhaseName::Prefill => "decode".to_owned(),
    }
}

/// `[########....|....]`: full cells, free cells, the load line.
fn bar(used: Bytes, room: Bytes, load_line: Option<Bytes>) -> String {
    let cells = |bytes: Bytes| {
        let n = u128::from(bytes.get()) * u128::from(CELLS) / u128::from(room.get().max(1));
        u64::try_from(n).unwrap_or(CELLS).min(CELLS)
    };
    let (full, line) = (cells(used), load_line.map(cells));
    let cell = |at: u64| match at {
        at if line == Some(at) => '|',
        at if at < full => '#',
        _ => '.',
    };
    let inside: String = (0..CELLS).map(cell).collect();
    format!("[{inside}]")
}

/// The last lines of something long.
fn tail(text: &str) -> Vec<&str> {
    const LINES: usize = 15;
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let from = lines.len().saturating_sub(LINES);
    lines.into_iter().skip(from).collect()
}

/// As people say it.
const fn name(device: DeviceKind) -> &'static str {
    match device {
        DeviceKind::Cuda => "the card (cuda)",
        DeviceKind::Mps => "the card (mps)",
        DeviceKind::Cpu => "the processor (cpu)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_memory_and_line() {
        let gib = Bytes::from_gib;
        assert_eq!(bar(gib(5), gib(10), Some(gib(9))), format!("[{}{}|...]", "#".repeat(20), ".".repeat(16)));
        assert_eq!(bar(gib(20), gib(10), None), format!("[{}]", "#".repeat(40)));
        assert_eq!(bar(gib(1), Bytes::ZERO, Some(Bytes::ZERO)).len(), 42);
    }

    #[test]
    fn what_is_left_goes_by_the_last_step() {
        let mut state = State { phase: "forward 1".to_owned(), steps: 5, step: 3, ..State::default() };
        assert!(!state.headline().contains("left"));
        state.last_micros = Some(2_000_000);
        assert!(state.headline().starts_with("step 3 of 5, forward 1"));
        assert!(state.headline().ends_with("about 6.00 s left"), "{}", state.headline());
    }

    #[test]
    fn phases_follow_one_another() {
        assert_eq!(after(Work::Step, PhaseName::Input, Some(2), 4), "forward 2");
        assert_eq!(after(Work::Step, PhaseName::Backward, Some(2), 4), "input 3");
        assert_eq!(after(Work::Step, PhaseName::Backward, Some(4), 4), "clip");
        let generation = Work::Generation { tokens: 8 };
        let order = [PhaseName::Input, PhaseName::Prefill, PhaseName::Decode];
        assert_eq!(order.map(|name| after(generation, name, None, 1)), ["prefill", "decode", "input"]);
        assert_eq!(after(Work::Generation { tokens: 1 }, PhaseName::Prefill, None, 1), "input");
        let order = [PhaseName::Input, PhaseName::Forward];
        assert_eq!(order.map(|name| after(Work::Forward, name, Some(1), 1)), ["forward", "input"]);
    }

    #[test]
    fn only_the_end_of_a_traceback_is_shown() {
        let text: String = (0..40).map(|n| format!("line {n}\n")).collect();
        let shown = tail(&text);
        assert_eq!((shown.len(), shown.first(), shown.last()), (15, Some(&"line 25"), Some(&"line 39")));
        assert!(tail("").is_empty());
    }
}
