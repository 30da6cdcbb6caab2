//! Batches and sequences as a table: the process peak of every cell in GiB, and whether it fits.

use std::fmt::Write as _;

use plimsoll_core::estimate::Verdict;
use plimsoll_core::solve::{Cell, Grid, Known, Row};
use plimsoll_core::{Bytes, Scenario};

use super::{Paint, WIDTH, grouped, headline, wrapped};

/// Columns of the sequence at the left.
const LEGEND: usize = 10;
/// Columns of a cell.
const CELL: usize = 8;

/// The table; as many batches side by side as `columns` have room for, the others below.
pub fn grid(scenario: &Scenario, grid: &Grid, columns: usize, paint: Paint) -> String {
    let mut out = format!("\n{}\n", headline::question(scenario, paint));
    let each = (columns.max(WIDTH) - 2 - LEGEND) / CELL;
    for (index, batches) in grid.batches.chunks(each).enumerate() {
        let from = index * each;
        let head: String = batches.iter().map(|b| format!("{:>CELL$}", grouped(*b))).collect();
        let name = if index == 0 { "batch" } else { "" };
        let _ = writeln!(out, "  {}", paint.strong(format!("{name:>LEGEND$}{head}").trim_end()));
        for row in &grid.rows {
            let legend = row.seq.map_or_else(|| "GiB".to_owned(), |seq| format!("seq {}", grouped(seq)));
            let cells: String = row.cells.iter().skip(from).take(each).map(|c| cell(c, paint)).collect();
            let refused = if row.refused.is_some() { paint.quiet("  refused, see below") } else { String::new() };
            let _ = writeln!(out, "  {}{cells}{refused}", paint.quiet(&format!("{legend:>LEGEND$}")));
        }
        out.push('\n');
    }
    out.push_str(&notes(grid, paint));
    out
}

/// `12.3`, with what it means behind it: nothing, `^` or `!`. Neither can be read as a part of the figure, as in "23.4x".
fn cell(cell: &Cell, paint: Paint) -> String {
    let mark = match cell.verdict {
        Verdict::Fits => ' ',
        Verdict::Tight => '^',
        Verdict::DoesNotFit => '!',
    };
    let before = match cell.known {
        Known::Exact => "",
        Known::AtLeast => ">",
        Known::Near => "~",
    };
    let text = format!("{before}{}{mark}", tenths(cell.process));
    let room = " ".repeat(CELL.saturating_sub(text.chars().count()));
    let text = paint.verdict(cell.verdict, &text);
    format!("{room}{text}")
}

/// GiB with one decimal, or whole from a thousand on.
fn tenths(bytes: Bytes) -> String {
    const GIB: u128 = 1 << 30;
    let tenths = (u128::from(bytes.get()) * 10 + GIB / 2) / GIB;
    if tenths >= 10_000 { (tenths / 10).to_string() } else { format!("{}.{}", tenths / 10, tenths % 10) }
}

fn notes(grid: &Grid, paint: Paint) -> String {
    let cells = || grid.rows.iter().flat_map(|row| &row.cells);
    let mut words = vec![format!(
        "Process peak in GiB. Fits up to the load line of {}; ^ runs, but over the line; ! does not fit.",
        grid.device.load_line
    )];
    if cells().any(|c| c.known == Known::AtLeast) {
        words.push("> is the least it could take: the tensors alone, or the whole card.".to_owned());
    }
    if cells().any(|c| c.known == Known::Near) {
        words.push(
            "~ is about: not replayed through the allocator, and the verdict follows from it; ask for fewer cells, or for \
             one alone."
                .to_owned(),
        );
    }
    if cells().next().is_some() && cells().all(|c| c.verdict == Verdict::DoesNotFit) {
        words.push(
            "None of these fits: `plimsoll fit` in place of `plimsoll estimate` looks for a recipe that does."
                .to_owned(),
        );
    }
    let refused = |row: &Row| Some(format!("seq {}: {}", row.seq.unwrap_or(0), row.refused.as_ref()?));
    words.extend(grid.rows.iter().filter_map(refused));
    let mut out = String::new();
    for text in words {
        for line in wrapped(&text, WIDTH - 2) {
            let _ = writeln!(out, "  {}", paint.quiet(&line));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use plimsoll_core::solve::{self, EFFORT};
    use plimsoll_core::{Bytes, Scenario};

    use super::{Paint, WIDTH, grid, tenths};

    #[test]
    fn eighty_columns_whatever_is_in_them() {
        let text = r#"{"model": {"catalog": "gpt2"}, "input": {"seq": 256}, "device": {"gpu": "rtx-3060"}}"#;
        let scenario = Scenario::from_json(text).unwrap();
        let batches: Vec<u64> = vec![1, 2, 3, 4, 8, 16, 32, 64, 128, 1000, 1_000_000];
        for effort in [0, EFFORT] {
            let cells = solve::grid(&scenario, &batches, &[128, 1024, 2000], effort).unwrap();
            let text = grid(&scenario, &cells, WIDTH, Paint::with_colour(false));
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
            assert_eq!(text.matches("seq 1,024").count(), 2, "two blocks: {text}");
            assert!(text.contains("refused") && text.contains("1024 positions"), "{text}");
            assert_eq!(text.contains("not replayed"), effort == 0, "{text}");
            assert!(text.contains('!') && text.contains("load line of 11.00 GiB"), "{text}");
            assert!(!text.contains("plimsoll fit"), "{text}");
            let wide = grid(&scenario, &cells, 120, Paint::with_colour(false));
            assert_eq!(wide.matches("seq 1,024").count(), 1, "{wide}");
        }
    }

    #[test]
    fn a_sheet_where_nothing_fits_says_where_to_look() {
        let text = r#"{"model": {"catalog": "llama-3.1-8b"}, "device": {"gpu": "rtx-3060"}}"#;
        let scenario = Scenario::from_json(text).unwrap();
        let cells = solve::grid(&scenario, &[1, 2], &[128, 256], EFFORT).unwrap();
        let text = grid(&scenario, &cells, WIDTH, Paint::with_colour(false));
        assert!(text.contains("None of these fits: `plimsoll fit`"), "{text}");
    }

    #[test]
    fn large_figures_lose_their_decimal() {
        assert_eq!(tenths(Bytes::from_mib(1536)), "1.5");
        assert_eq!(tenths(Bytes::from_gib(999)), "999.0");
        assert_eq!(tenths(Bytes::from_gib(12_345)), "12345");
    }
}
