//! History as columns of eighths, newest at the right.

/// What stands for n eighths of a cell.
const BLOCKS: [char; 9] =
    [' ', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];
/// The same where only ASCII is wanted.
const ASCII: [char; 9] = [' ', '_', '.', ':', '-', '=', '+', '*', '#'];

/// Eighths in a cell.
const EIGHTHS: usize = 8;

/// `rows` rows from the top, each with one cell a value, `columns` at most; `None` leaves a gap. `whole` fills all rows. A
/// value above nothing shows at least one eighth.
pub fn chart(values: &[Option<u64>], whole: u64, columns: usize, rows: usize, ascii: bool) -> Vec<Vec<char>> {
    let shown = values.get(values.len().saturating_sub(columns)..).unwrap_or_default();
    let heights: Vec<usize> = shown.iter().map(|value| value.map_or(0, |value| height(value, whole, rows))).collect();
    let blocks = if ascii { ASCII } else { BLOCKS };
    let row = |from_top: usize| -> Vec<char> {
        let below = (rows - 1 - from_top) * EIGHTHS;
        let eighths = heights.iter().map(|height| height.saturating_sub(below).min(EIGHTHS));
        eighths.map(|n| blocks.get(n).copied().unwrap_or(' ')).collect()
    };
    (0..rows).map(row).collect()
}

/// The row, counted from the top, in which a level lies.
pub fn row_of(level: u64, whole: u64, rows: usize) -> usize {
    let eighths = height(level, whole, rows).max(1);
    rows.saturating_sub(eighths.div_ceil(EIGHTHS))
}

fn height(value: u64, whole: u64, rows: usize) -> usize {
    let most = (rows * EIGHTHS) as u128;
    let whole = u128::from(whole.max(1));
    let eighths = (u128::from(value) * most + whole / 2) / whole;
    let eighths = usize::try_from(eighths.min(most)).unwrap_or_default();
    if value > 0 { eighths.max(1) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(rows: &[Vec<char>]) -> Vec<String> {
        rows.iter().map(|row| row.iter().collect()).collect()
    }

    #[test]
    fn one_row_is_a_sparkline() {
        let values: Vec<Option<u64>> = (0..=8).map(|n| Some(n * 10)).chain([None, Some(1), Some(1000)]).collect();
        assert_eq!(text(&chart(&values, 80, 40, 1, false)), [" ▁▂▃▄▅▆▇█ ▁█"]);
        assert_eq!(text(&chart(&values, 80, 40, 1, true)), [" _.:-=+*# _#"]);
        assert_eq!(text(&chart(&values, 80, 2, 1, true)), ["_#"]);
        assert_eq!(text(&chart(&[], 80, 10, 1, true)), [""]);
        assert_eq!(text(&chart(&[Some(5)], 0, 10, 1, true)), ["#"]);
    }

    #[test]
    fn several_rows_stand_on_each_other() {
        let values = [Some(4), Some(12), Some(16)];
        assert_eq!(text(&chart(&values, 16, 9, 2, false)), [" ▄█", "▄██"]);
        assert_eq!((row_of(16, 16, 2), row_of(9, 16, 2), row_of(8, 16, 2), row_of(0, 16, 2)), (0, 0, 1, 1));
    }
}
