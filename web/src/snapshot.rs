//! A memory snapshot over the present run: what is said of both, and their lines on one scale.

use plimsoll_core::estimate::{Against, Asked, Pair};
use plimsoll_core::snapshot::{Course, Snapshot, Summary};
use plimsoll_core::{Bytes, Error, Result, grouped};

use crate::number;
use crate::path::Path;

/// Largest file that the page reads: a browser's tab has less room than a program.
pub const MOST_BYTES: usize = 128 << 20;

/// Columns that a line is drawn in: the highest point of each.
const COLUMNS: usize = 600;

/// A snapshot that was opened, of the card with the longest history.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The file's name.
    pub name: String,
    /// All of it.
    pub snapshot: Snapshot,
    /// The card's history.
    pub course: Course,
    /// What it says.
    pub summary: Summary,
}

impl Opened {
    /// Reads a file's bytes.
    ///
    /// # Errors
    /// As [`Snapshot::read`]; a snapshot that holds no card's memory.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Self> {
        let snapshot = Snapshot::read(bytes)?;
        let device = snapshot.busiest().ok_or_else(|| {
            Error::new("snapshot", "it holds no memory of any card", "dump it while the tensors are there")
        })?;
        let course = Course::of(device);
        let summary = Summary::of(&snapshot, device, &course);
        Ok(Self { name: name.to_owned(), course, summary, snapshot })
    }

    /// What it is, in a sentence or two.
    pub fn about(&self) -> String {
        let summary = &self.summary;
        if summary.events == 0 {
            return format!(
                "{}: card {}, without a history, for torch.cuda.memory._record_memory_history() was not called.",
                self.name, summary.device
            );
        }
        let steps = match summary.steps {
            0 => String::new(),
            1 => " and 1 step of an optimizer".to_owned(),
            n => format!(" and {n} steps of an optimizer"),
        };
        let before = match summary.before.is_zero() {
            true => String::new(),
            false => format!(
                " {} were there before it begins: who asked for them it does not tell.",
                number::bytes(summary.before)
            ),
        };
        format!(
            "{}: card {}, {} events{steps}. Most alive {}, most reserved {}.{before}",
            self.name,
            summary.device,
            grouped(summary.events),
            number::bytes(summary.peak),
            number::bytes(summary.peak_reserved),
        )
    }

    /// What lies between, by name.
    pub fn between(&self) -> [(&'static str, String); 5] {
        let end = &self.summary.at_end;
        [
            ("Reserved", format!("{} in {} segments", number::bytes(end.reserved), grouped(end.segments))),
            (
                "Tensors have",
                format!("{}, and asked for {}", number::bytes(end.allocated), number::bytes(end.requested)),
            ),
            ("Free between tensors", format!("{}: it cannot be given back", number::bytes(end.stranded))),
            ("Free segments", format!("{}: torch.cuda.empty_cache gives it back", number::bytes(end.empty))),
            ("Largest free block", number::bytes(end.largest_free)),
        ]
    }
}

/// Two figures in words: how much, and how far apart.
pub fn pair(pair: Pair) -> String {
    let (own, other) = (pair.estimate.get(), pair.snapshot.get());
    let apart = match own.cmp(&other) {
        std::cmp::Ordering::Equal => "equal to the byte".to_owned(),
        std::cmp::Ordering::Less => format!("the estimate is {} lower", number::bytes(Bytes::new(other - own))),
        std::cmp::Ordering::Greater => format!("the estimate is {} higher", number::bytes(Bytes::new(own - other))),
    };
    format!("estimate {}, snapshot {}: {apart}", number::bytes(pair.estimate), number::bytes(pair.snapshot))
}

/// How far both steps are the same, in sentences.
pub fn requests(against: &Against) -> Vec<String> {
    let Some(step) = &against.step else {
        return vec![
            "Not compared request by request: that needs two steps of an optimizer in the history, and a run whose \
             micro-batches are few."
                .to_owned(),
        ];
    };
    let Some(differs) = &step.differs else {
        return vec![format!("All {} requests of the steady step are equal to the byte.", grouped(step.equal))];
    };
    let words = |asked: &Option<Asked>| match asked {
        Some(asked) => format!("{} bytes ({})", grouped(asked.bytes.get()), asked.by),
        None => "nothing more".to_owned(),
    };
    vec![
        format!(
            "The first {} of {} requests of the steady step are equal to the byte ({} in the snapshot).",
            grouped(step.equal),
            grouped(step.estimate),
            grouped(step.snapshot)
        ),
        format!("Then the estimate has {}, the snapshot {}.", words(&differs.estimate), words(&differs.snapshot)),
    ]
}

/// Lines on one scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// What the top stands for.
    pub scale: Bytes,
    /// The estimate's steady step, where both have one.
    pub estimate: Option<String>,
    /// The snapshot's steady step; else its whole history.
    pub snapshot: String,
}

impl Lines {
    /// Draws them in `width` x `height`.
    pub fn new(opened: &Opened, against: Option<&Against>, width: f64, height: f64) -> Self {
        let step = against.and_then(|against| against.step.as_ref());
        let (own, other): (Option<&[Bytes]>, &[Bytes]) = match step {
            Some(step) => (Some(&step.lines.0), &step.lines.1),
            None => (None, &opened.course.live),
        };
        let highest = |line: &[Bytes]| line.iter().copied().max().unwrap_or(Bytes::ZERO);
        let scale = highest(other).max(own.map_or(Bytes::ZERO, highest));
        Self {
            scale,
            estimate: own.map(|line| stairs(line, scale, width, height)),
            snapshot: stairs(other, scale, width, height),
        }
    }
}

/// A line as stairs from edge to edge: of each column the highest point.
fn stairs(line: &[Bytes], scale: Bytes, width: f64, height: f64) -> String {
    let columns = COLUMNS.min(line.len());
    let whole = scale.get().max(1) as f64;
    let at = |column: usize| column * line.len() / columns;
    let mut path = Path::with_capacity(2 * columns);
    for column in 0..columns {
        let most = line[at(column)..at(column + 1)].iter().copied().max().unwrap_or(Bytes::ZERO);
        let (x, y) = (column as f64 / columns as f64 * width, height - most.get() as f64 / whole * height);
        if column == 0 {
            path.to(x, y);
        } else {
            path.across(x);
            path.upright(y);
        }
    }
    if columns > 0 {
        path.across(width);
    }
    path.finish()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Scenario;
    use plimsoll_core::estimate::{Against, Run};

    use super::{Lines, Opened, pair, requests};

    const LLAMA: &[u8] = include_bytes!("../../core/snapshot/tests/made/llama.pickle");

    fn against(opened: &Opened, clip: bool) -> Against {
        let scenario = format!(
            r#"{{ "model": {{ "hf": {{ "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
                "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000,
                "use_cache": false }} }}, "input": {{ "batch": 2, "seq": 64 }},
                "training": {{ "precision": "bf16-amp", "clip_grad_norm": {clip} }} }}"#
        );
        Against::new(&Run::new(&Scenario::from_json(&scenario).unwrap()).unwrap(), &opened.snapshot, &opened.course)
    }

    #[test]
    fn a_run_that_is_as_estimated_says_so() {
        let opened = Opened::read("llama.pickle", LLAMA).unwrap();
        assert!(opened.about().starts_with("llama.pickle: card 0, "), "{}", opened.about());
        assert!(opened.about().contains("2 steps of an optimizer"));
        let same = against(&opened, false);
        assert!(pair(same.allocated).ends_with("equal to the byte"));
        assert!(requests(&same)[0].starts_with("All "), "{:?}", requests(&same));
        let lines = Lines::new(&opened, Some(&same), 600.0, 200.0);
        // Gradients are freed in another order, by as many changes.
        assert!(lines.estimate.is_some_and(|estimate| estimate.len().abs_diff(lines.snapshot.len()) < 200));
        assert!(lines.snapshot.starts_with('M') && lines.snapshot.ends_with("H600"), "{}", lines.snapshot);
    }

    #[test]
    fn where_they_part_is_said() {
        let opened = Opened::read("llama.pickle", LLAMA).unwrap();
        let other = against(&opened, true);
        let said = requests(&other).join(" ");
        assert!(said.contains("Then the estimate has") && said.contains("clip: "), "{said}");
        let alone = Lines::new(&opened, None, 600.0, 200.0);
        assert!(alone.estimate.is_none() && !alone.snapshot.contains("NaN"));
    }

    #[test]
    fn what_is_none_is_refused() {
        assert_eq!(Opened::read("a", b"nothing").unwrap_err().key, "snapshot");
        assert!(
            Opened::read("a", b"\x80\x04}\x8c\x08segments]s.").unwrap_err().problem.contains("no memory of any card")
        );
    }
}
