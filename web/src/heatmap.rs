//! The heat map: what fits over batches and sequences, as a table of cells and how keys move over it.

use plimsoll_core::estimate::Verdict;
use plimsoll_core::solve::{self, Cell, Grid, Known};
use plimsoll_core::{Bytes, Result, Scenario};

use crate::number;

/// Events replayed for a map: enough to know every one of its hundred cells exactly, for models of up to a hundred layers.
const EFFORT: u64 = 6_000_000;

/// How many shades of depth there are above the line.
const SHADES: u64 = 5;

/// Estimates the grid around a scenario.
///
/// # Errors
/// As [`solve::grid`].
pub fn grid(scenario: &Scenario) -> Result<Grid> {
    let (batches, seqs) = solve::around(scenario);
    solve::grid(scenario, &batches, &seqs, EFFORT)
}

/// Whether a grid has a cell for the sizes of this scenario.
pub fn shows(grid: &Grid, scenario: &Scenario) -> bool {
    grid.cell(scenario.input.batch, scenario.input.seq).is_some()
}

/// The scenario without what a grid runs over: two that agree in it share a grid.
pub fn base(scenario: &Scenario) -> Scenario {
    let mut base = scenario.clone();
    base.input.batch = 1;
    if base.input.target_seq == base.input.seq {
        base.input.target_seq = None;
    }
    base.input.seq = base.input.seq.map(|_| 1);
    base
}

/// A grid laid out: a column for each sequence, a row for each batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// The sequences; one of `None` where a sample has none.
    pub columns: Vec<Option<u64>>,
    /// Row by row.
    pub rows: Vec<MapRow>,
}

/// One batch.
#[derive(Clone, Debug, PartialEq)]
pub struct MapRow {
    /// How many samples.
    pub batch: u64,
    /// A cell for each sequence.
    pub cells: Vec<MapCell>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub struct MapCell {
    /// Its batch.
    pub batch: u64,
    /// Its sequence.
    pub seq: Option<u64>,
    /// `20.3`: the process peak in GiB; `–` where it is refused.
    pub text: String,
    /// The cell in a sentence.
    pub says: String,
    /// CSS classes: its shade, and where the load line runs along it.
    pub class: String,
    /// Whether it can be taken.
    pub usable: bool,
}

impl Map {
    /// Of a grid.
    pub fn new(grid: &Grid) -> Self {
        let at = |row: usize, column: usize| grid.rows.get(column).and_then(|r| r.cells.get(row));
        let fits = |row: usize, column: usize| at(row, column).map(|cell| cell.verdict == Verdict::Fits);
        let rows = grid.batches.iter().enumerate().map(|(row, &batch)| {
            let cells = grid.rows.iter().enumerate().map(|(column, line)| {
                let Some(cell) = at(row, column) else { return refused(batch, line.seq, line.refused.as_deref()) };
                let mut class = shade(cell, grid.device.load_line);
                let here = fits(row, column);
                // The load line runs between what fits and what does not.
                if fits(row, column + 1).is_some_and(|other| Some(other) != here) {
                    class.push_str(" line-right");
                }
                if fits(row + 1, column).is_some_and(|other| Some(other) != here) {
                    class.push_str(" line-below");
                }
                MapCell {
                    batch,
                    seq: line.seq,
                    text: figure(cell),
                    says: says(cell, line.seq, grid),
                    class,
                    usable: true,
                }
            });
            MapRow { batch, cells: cells.collect() }
        });
        Self { columns: grid.rows.iter().map(|row| row.seq).collect(), rows: rows.collect() }
    }

    /// Row and column of a scenario's own cell.
    pub fn place(&self, batch: u64, seq: Option<u64>) -> Option<(usize, usize)> {
        let row = self.rows.iter().position(|row| row.batch == batch)?;
        Some((row, self.columns.iter().position(|column| *column == seq)?))
    }

    /// Where a key leads from a cell; `None` where it means nothing here.
    pub fn moved(&self, (row, column): (usize, usize), key: &str, far: bool) -> Option<(usize, usize)> {
        let (last_row, last_column) = (self.rows.len().checked_sub(1)?, self.columns.len().checked_sub(1)?);
        let (row, column) = (row.min(last_row), column.min(last_column));
        Some(match (key, far) {
            ("ArrowUp", false) => (row.saturating_sub(1), column),
            ("ArrowDown", false) => ((row + 1).min(last_row), column),
            ("ArrowLeft", false) => (row, column.saturating_sub(1)),
            ("ArrowRight", false) => (row, (column + 1).min(last_column)),
            ("Home", false) => (row, 0),
            ("End", false) => (row, last_column),
            ("PageUp", false) => (0, column),
            ("PageDown", false) => (last_row, column),
            ("Home", true) => (0, 0),
            ("End", true) => (last_row, last_column),
            _ => return None,
        })
    }
}

fn refused(batch: u64, seq: Option<u64>, why: Option<&str>) -> MapCell {
    let says = format!("{}: {}", question(batch, seq), why.unwrap_or("not estimated"));
    MapCell { batch, seq, text: "–".to_owned(), says, class: "heat-none".to_owned(), usable: false }
}

/// `Batch 4 of 1,024 tokens`.
fn question(batch: u64, seq: Option<u64>) -> String {
    let tokens = seq.map(|seq| format!(" of {} tokens", number::grouped(seq))).unwrap_or_default();
    format!("Batch {}{tokens}", number::grouped(batch))
}

/// The process peak in GiB, as short as it can be said.
fn figure(cell: &Cell) -> String {
    const GIB: u128 = 1 << 30;
    let tenths = (u128::from(cell.process.get()) * 10 + GIB / 2) / GIB;
    let text = if tenths >= 1000 {
        number::grouped(((tenths + 5) / 10) as u64)
    } else {
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    match cell.known {
        Known::Exact => text,
        Known::AtLeast => format!(">{text}"),
        Known::Near => format!("~{text}"),
    }
}

/// The class of a cell's colour: deeper water up to the line, then what lies below it.
fn shade(cell: &Cell, line: Bytes) -> String {
    match cell.verdict {
        Verdict::Fits => {
            let depth = u128::from(cell.process.get()) * u128::from(SHADES) / u128::from(line.get().max(1));
            format!("heat-{}", depth.min(u128::from(SHADES - 1)))
        }
        Verdict::Tight => "heat-tight".to_owned(),
        Verdict::DoesNotFit => {
            let percent = u128::from(cell.process.get()) * 100 / u128::from(line.get().max(1));
            format!("heat-over over-{}", OVER.iter().take_while(|step| percent >= **step).count())
        }
    }
}

/// Where the shades of what does not fit begin, in percent of the load line: what is a little over is what a lever may
/// bring down, so the steps are narrow there.
const OVER: [u128; 5] = [125, 160, 200, 300, 500];

fn says(cell: &Cell, seq: Option<u64>, grid: &Grid) -> String {
    let how = match cell.known {
        Known::Exact => "",
        Known::AtLeast => "at least ",
        Known::Near => "about ",
    };
    let verdict = match cell.verdict {
        Verdict::Fits => {
            format!("fits with {} to spare", number::bytes(grid.device.load_line.saturating_sub(cell.process)))
        }
        Verdict::Tight => "tight: it runs, but deeper than the load line".to_owned(),
        Verdict::DoesNotFit => {
            format!("does not fit, over by {}", number::bytes(cell.process.saturating_sub(grid.device.load_line)))
        }
    };
    format!("{}: {how}{}, {verdict}", question(cell.batch, seq), number::bytes(cell.process))
}

#[cfg(test)]
mod tests {
    use plimsoll_core::scenario::ModelSource;

    use super::{Map, base, grid, shows};
    use crate::engine::{opening, read, with_model};

    #[test]
    fn the_map_shows_the_scenario_as_the_reading_does() {
        let scenario = opening();
        let grid = grid(&scenario).unwrap();
        assert!(shows(&grid, &scenario));
        let map = Map::new(&grid);
        let (row, column) = map.place(scenario.input.batch, scenario.input.seq).unwrap();
        let (reading, _) = read(&scenario).unwrap();
        let cell = grid.cell(scenario.input.batch, scenario.input.seq).unwrap();
        assert_eq!(cell.process, reading.process);
        assert_eq!(map.rows[row].cells[column].text, format!("{:.1}", reading.process.gib()));
        assert!(map.rows.iter().all(|r| r.cells.len() == map.columns.len()));
    }

    /// Along the line the neighbours differ, and nowhere else.
    #[test]
    fn the_load_line_runs_between_what_fits_and_what_does_not() {
        let mut scenario = opening();
        scenario = with_model(&scenario, ModelSource::Catalog("gpt2".to_owned())).unwrap();
        let map = Map::new(&grid(&scenario).unwrap());
        let fits = |class: &str| !class.contains("heat-tight") && !class.contains("heat-over");
        let mut along = 0;
        for (r, row) in map.rows.iter().enumerate() {
            for (c, cell) in row.cells.iter().enumerate() {
                if let Some(right) = row.cells.get(c + 1) {
                    assert_eq!(cell.class.contains("line-right"), fits(&cell.class) != fits(&right.class));
                    along += usize::from(cell.class.contains("line-right"));
                }
                if let Some(below) = map.rows.get(r + 1).map(|row| &row.cells[c]) {
                    assert_eq!(cell.class.contains("line-below"), fits(&cell.class) != fits(&below.class));
                }
            }
        }
        assert!(along > 2, "there is a line to see: {along}");
        assert!(map.rows[0].cells[0].says.contains("to spare"), "{}", map.rows[0].cells[0].says);
    }

    #[test]
    fn keys_stay_on_the_map() {
        let map = Map::new(&grid(&opening()).unwrap());
        let (rows, columns) = (map.rows.len(), map.columns.len());
        assert_eq!(map.moved((0, 0), "ArrowUp", false), Some((0, 0)));
        assert_eq!(map.moved((0, 0), "ArrowDown", false), Some((1, 0)));
        assert_eq!(map.moved((1, 1), "End", false), Some((1, columns - 1)));
        assert_eq!(map.moved((1, 1), "End", true), Some((rows - 1, columns - 1)));
        assert_eq!(map.moved((rows - 1, columns - 1), "ArrowRight", false), Some((rows - 1, columns - 1)));
        assert_eq!(map.moved((3, 2), "PageUp", false), Some((0, 2)));
        assert_eq!(map.moved((0, 0), "x", false), None);
    }

    /// Another batch or sequence is the same grid, another recipe is not.
    #[test]
    fn sizes_share_a_grid() {
        let scenario = opening();
        let mut other = scenario.clone();
        (other.input.batch, other.input.seq) = (9, Some(77));
        assert_eq!(base(&scenario), base(&other));
        other.training.accumulation = 2;
        assert_ne!(base(&scenario), base(&other));
    }

    #[test]
    fn a_sample_without_a_sequence_has_one_column() {
        let scenario =
            with_model(&opening(), ModelSource::Family { name: "mlp".to_owned(), keys: serde_json::Map::new() })
                .unwrap();
        let map = Map::new(&grid(&scenario).unwrap());
        assert_eq!(map.columns, [None]);
        assert!(map.rows.len() > 8 && map.rows[0].cells[0].says.starts_with("Batch 1: "));
    }
}
