//! The peaks that each process of the command left.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use plimsoll_core::Bytes;
use plimsoll_hollow::Card;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::planner::Plans;

/// What one process held of one card at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    device: u32,
    allocated: Bytes,
    reserved: Bytes,
    out_of_memory: u64,
    retries: u64,
    /// Where in the loop each was reached; absent where nothing was trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allocated_in: Option<Moment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reserved_in: Option<Moment>,
    /// Where the parts of the loop began, if a ledger was asked for.
    #[serde(default, skip_serializing)]
    marks: Vec<Mark>,
}

/// Where a part of the loop began: after how many allocations and frees, which, and of which step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Mark(pub u64, pub u64, pub Part, pub u64);

/// A part of an optimizer step, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment(Part, u64);

/// A part of the loop, as far as it shows from outside: what is neither backward nor the optimizer is called forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Neither of the others.
    Forward,
    /// `Tensor.backward`.
    Backward,
    /// `Optimizer.step`.
    Optimizer,
}

impl Moment {
    /// In words.
    pub fn text(self) -> String {
        match self {
            Self(Part::Forward, 1) => "before the first backward".to_owned(),
            Self(Part::Forward, step) => format!("between steps {} and {step}, or in the forward of {step}", step - 1),
            Self(Part::Backward, step) => format!("in the backward of step {step}"),
            Self(Part::Optimizer, step) => format!("in the optimizer of step {step}"),
        }
    }
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Process {
    pid: u32,
    cards: Vec<Held>,
    /// Optimizer steps that were through.
    #[serde(default)]
    steps: u64,
    /// Whether it was ended for having made as many as were asked for.
    #[serde(default)]
    stopped: bool,
    /// Where in the loop it ended; absent where nothing was trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Moment>,
}

/// All processes that used a card, by number.
#[derive(Debug, Default)]
pub struct Peaks {
    processes: Vec<Process>,
}

impl Peaks {
    /// Reads what was left in a folder; a file that is cut short was a process that was killed.
    pub fn read(folder: &Path) -> Self {
        let Ok(entries) = fs::read_dir(folder) else { return Self::default() };
        let files = entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "json"));
        let mut processes: Vec<Process> =
            files.filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok()).collect();
        processes.retain(|process: &Process| !process.cards.is_empty());
        processes.sort_by_key(|process| process.pid);
        Self { processes }
    }

    /// Every process by its number, with the marks of each card.
    pub fn marks(&self) -> impl Iterator<Item = (u32, BTreeMap<u32, Vec<Mark>>)> {
        self.processes
            .iter()
            .map(|process| (process.pid, process.cards.iter().map(|held| (held.device, held.marks.clone())).collect()))
    }

    /// Whether any process ran out of memory.
    pub fn out_of_memory(&self) -> bool {
        self.held().any(|held| held.out_of_memory > 0)
    }

    fn held(&self) -> impl Iterator<Item = &Held> {
        self.processes.iter().flat_map(|process| &process.cards)
    }

    /// For people.
    pub fn text(&self, context: Bytes, load_line: Bytes, steps: Option<u64>, plans: Option<&Plans>) -> String {
        let mut text = String::new();
        if self.processes.is_empty() {
            return "No process left figures: none used a card, or it was killed or started with -I or -S.\n"
                .to_owned();
        }
        let several = self.processes.len() > 1;
        for process in &self.processes {
            for held in &process.cards {
                let who = if several { format!(", process {}", process.pid) } else { String::new() };
                let _ = writeln!(text, "Peaks on card {}{who}:", held.device);
                let whole = Bytes::new(held.reserved.get().saturating_add(context.get()));
                let rows = [
                    ("allocated", held.allocated, held.allocated_in),
                    ("reserved", held.reserved, held.reserved_in),
                    ("process", whole, None),
                ];
                for (name, bytes, at) in rows {
                    let at = at.map(|at| format!("  {}", at.text())).unwrap_or_default();
                    let _ = writeln!(text, "  {name:<10} {bytes:>12}  {:>18} bytes{at}", bytes.get());
                }
                let (spare, over) = (load_line.saturating_sub(whole), whole.saturating_sub(load_line));
                let depth = match held.out_of_memory {
                    0 if over > Bytes::ZERO => format!("over by {over}"),
                    0 => format!("{spare} to spare"),
                    times => {
                        let at = process.at.map(|at| format!(", at the end {}", at.text())).unwrap_or_default();
                        format!("ran out of memory {times} time(s){at}")
                    }
                };
                let _ = writeln!(text, "  load line  {load_line:>12}  {depth}");
            }
        }
        if let Some(asked) = steps {
            let made = self.processes.iter().map(|process| process.steps).min().unwrap_or(0);
            let how =
                if self.processes.iter().all(|process| process.stopped) { "ended there" } else { "ended by itself" };
            let _ = writeln!(text, "{made} of the {asked} optimizer steps that were asked for; the command {how}.");
        }
        let unasked = || "What convolutions would ask cuDNN for is not in it".to_owned();
        let _ = writeln!(text, "{}; losses and times mean nothing.", plans.map_or_else(unasked, Plans::text));
        text
    }

    /// For programs.
    pub fn json(&self, card: &Card, torch: &str, plans: Option<&Plans>) -> String {
        let peak = |of: fn(&Held) -> u64| self.held().map(of).max().unwrap_or(0);
        let document = json!({
            "schema": 1, "kind": "rehearsal", "torch": torch, "card": card,
            "peak": { "allocated": peak(|h| h.allocated.get()), "reserved": peak(|h| h.reserved.get()) },
            "out_of_memory": self.out_of_memory(), "processes": self.processes, "cudnn": plans,
        });
        format!("{document}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_of_all_processes_is_told_and_a_file_cut_short_is_nobodys() {
        let folder = tempfile::tempdir().unwrap();
        let row = |pid: u32, allocated: u64, ooms: u64| json!({"pid": pid, "cards": [{"device": 0, "allocated": allocated, "reserved": 4096, "out_of_memory": ooms, "retries": 0}]});
        for (name, text) in [
            ("7.json", row(7, 512, 0).to_string()),
            ("8.json", row(8, 1024, 1).to_string()),
            ("9.json", "{\"pid\": 9".to_owned()),
            ("10.json", "{\"pid\": 10, \"cards\": []}".to_owned()),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let peaks = Peaks::read(folder.path());
        assert!(peaks.out_of_memory());
        let card = Card {
            name: "x".into(),
            capability: (8, 9),
            multiprocessors: 1,
            memory: 1,
            board: 1,
            context: 0,
            falling: false,
        };
        let document: serde_json::Value = serde_json::from_str(&peaks.json(&card, "2.11", None)).unwrap();
        assert_eq!(document["peak"]["allocated"], 1024);
        assert_eq!(document["processes"].as_array().unwrap().len(), 2);
        let text = peaks.text(Bytes::ZERO, Bytes::new(4000), Some(3), None);
        for part in ["card 0, process 8:", "over by 96 B", "ran out of memory 1 time(s)", "0 of the 3 optimizer steps"]
        {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert!(Peaks::default().text(Bytes::ZERO, Bytes::ZERO, None, None).starts_with("No process"));
    }
}
