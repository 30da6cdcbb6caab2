//! Many rows of a grid from a few traces.
//!
//! What turns with the batch mostly turns with batch times sequence, so the cells that do the same lie in bands between two
//! counts of tokens. Through each band goes a surface ([`Surface`]), found from three of its rows and held against others;
//! where that fails, the lengths are halved until it holds, or their rows are traced one by one. Kernels pad to multiples
//! of at most 128 tokens, so only lengths that leave the same remainder share a surface.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_ground::Result;

use super::parallel;
use super::row::{Piece, Turns, blocks};
use super::steps::Steps;
use super::surface::{Peaks, Sample, Surface};
use crate::OneBatch;

/// The widest padding of a sequence: flash attention's blocks of 128 queries (`flash_api.cpp`, `round_multiple`).
const PADDING: u64 = 128;

/// Of fewer lengths each row is traced: a surface would save nothing.
const WORTH: usize = 7;

/// The same of a band, whose rows take three traces each.
const WORTH_OF_BAND: usize = 5;

/// Steps that turn oftener do not go by tokens.
const TURNS: usize = 8;

/// The bands of a grid.
#[derive(Debug, Default)]
pub struct Bands {
    bands: Vec<Band>,
    /// Where the rows turned that were traced on the way.
    pub turns: Turns,
}

/// Cells that do the same.
#[derive(Debug)]
struct Band {
    surface: Surface,
    /// Among what its peaks are, where that is known.
    peaks: Option<Peaks>,
    reach: Reach,
}

/// By sequence, the first and the last column.
type Reach = BTreeMap<u64, (usize, usize)>;

impl Bands {
    /// Of these batches and sequences, both ascending. What cannot be traced is in no band, and refused where its own row
    /// asks for it.
    pub fn new(steps: &Steps<'_>, batches: &[u64], seqs: &[u64]) -> Self {
        let mut classes: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for seq in seqs {
            classes.entry(seq % PADDING).or_default().push(*seq);
        }
        let blocks = blocks(batches);
        let asked = classes.values().flat_map(|lengths| blocks.iter().map(move |block| (lengths, *block)));
        // The wide ones first, which take longest.
        let mut asked: Vec<_> = asked.collect();
        asked.sort_by_key(|(_, (first, last))| std::cmp::Reverse(last - first));
        let found = parallel::map(asked, |(lengths, columns)| {
            let mut search = Search { steps, batches, columns, found: Self::default() };
            // What was found before something could not be traced stands.
            let _ = search.find(lengths);
            search.found
        });
        let and = |all: Self, other: Self| Self {
            bands: all.bands.into_iter().chain(other.bands).collect(),
            turns: all.turns.and(other.turns),
        };
        found.into_iter().fold(Self::default(), and)
    }

    /// What is known of a row, in no order.
    pub fn row(&self, seq: u64) -> Vec<Piece> {
        let of = |band: &Band| {
            let (first, last) = *band.reach.get(&seq)?;
            let candidates = band.peaks.as_ref().map(|peaks| peaks.at(seq));
            Some(Piece { first, last, stream: band.surface.at(seq), candidates })
        };
        self.bands.iter().filter_map(of).collect()
    }
}

/// The search for the bands of lengths that share a remainder.
struct Search<'a> {
    steps: &'a Steps<'a>,
    batches: &'a [u64],
    /// Of the batches, the first and the last that are looked at together.
    columns: (usize, usize),
    found: Bands,
}

/// A cell: its column, and its sequence.
type Place = (usize, u64);

impl Search<'_> {
    fn step(&self, (column, seq): Place) -> Result<Arc<OneBatch>> {
        self.steps.at(self.batches[column], Some(seq))
    }

    fn tokens(&self, (column, seq): Place) -> u64 {
        self.batches[column].saturating_mul(seq)
    }

    fn columns(&self) -> impl Iterator<Item = usize> + use<> {
        self.columns.0..=self.columns.1
    }

    fn find(&mut self, lengths: &[u64]) -> Result<()> {
        if lengths.len() < WORTH {
            return Ok(());
        }
        if let Some(bands) = self.through(lengths)? {
            self.found.bands.extend(bands);
            return Ok(());
        }
        let (short, long) = lengths.split_at(self.cut(lengths)?);
        self.find(short)?;
        self.find(long)
    }

    /// Where lengths are cut that no bands go through: where long samples do something else whatever the batch, or in half.
    fn cut(&self, lengths: &[u64]) -> Result<usize> {
        let along = |column: usize| {
            let places: Vec<Place> = lengths.iter().map(|seq| (column, *seq)).collect();
            self.turns(lengths, &places)
        };
        let (first, last) = (along(self.columns.0)?, along(self.columns.1)?);
        let both = first.iter().filter(|at| last.contains(at) && self.columns.0 < self.columns.1).copied();
        Ok(both.min_by_key(|at| at.abs_diff(lengths.len() / 2)).unwrap_or(lengths.len() / 2))
    }

    /// The bands of these lengths; `None` where they do not go by tokens, or some cell is not on its band's surface.
    fn through(&mut self, lengths: &[u64]) -> Result<Option<Vec<Band>>> {
        let cells = lengths.iter().flat_map(|seq| self.columns().map(move |column| (column, *seq)));
        // Of those of as many tokens the one with the longest samples.
        let by_tokens: BTreeMap<u64, Place> = cells.map(|place| (self.tokens(place), place)).collect();
        let (tokens, places): (Vec<u64>, Vec<Place>) = by_tokens.into_iter().unzip();
        let turns: Vec<usize> = self.turns(&tokens, &places)?;
        if turns.len() > TURNS {
            return Ok(None);
        }
        for at in &turns {
            self.found.turns.narrow(tokens[at - 1], tokens[*at], 1);
        }
        let turns: Vec<u64> = turns.into_iter().map(|at| tokens[at]).collect();
        let reaches = self.reaches(&turns, lengths);
        let wanted: BTreeSet<Place> = reaches.iter().flat_map(|reach| Places::of(reach).all()).collect();
        parallel::map(wanted.into_iter().collect(), |place| self.step(place).map(drop))
            .into_iter()
            .collect::<Result<()>>()?;
        let mut bands = Vec::with_capacity(reaches.len());
        for reach in reaches {
            let rows = reach.len();
            match self.band(reach)? {
                Some(band) => bands.push(band),
                None if rows >= WORTH => return Ok(None),
                None => {}
            }
        }
        Ok(Some(bands))
    }

    /// Which of these cells, ascending by `sizes`, do not do as the one before, if what lies between two that do the same
    /// does so too.
    fn turns(&self, sizes: &[u64], places: &[Place]) -> Result<Vec<usize>> {
        let mut turns = Vec::new();
        let Some(last) = places.len().checked_sub(1) else { return Ok(turns) };
        let step = |at: usize| Ok((at, self.step(places[at])?));
        let mut open = vec![(step(0)?, step(last)?)];
        while let Some((low, high)) = open.pop() {
            if low.1.does_as(&high.1) {
                continue;
            }
            if high.0 - low.0 == 1 {
                turns.push(high.0);
                if turns.len() > TURNS {
                    break;
                }
                continue;
            }
            let middle = step(between(sizes, low.0, high.0))?;
            open.extend([(middle.clone(), high), (low, middle)]);
        }
        Ok(turns)
    }

    /// Of each band between two turns, its cells.
    fn reaches(&self, turns: &[u64], lengths: &[u64]) -> Vec<Reach> {
        let mut reaches = vec![Reach::new(); turns.len() + 1];
        for seq in lengths {
            for column in self.columns() {
                let band = turns.iter().take_while(|turn| **turn <= self.tokens((column, *seq))).count();
                let (_, last) = reaches[band].entry(*seq).or_insert((column, column));
                *last = column;
            }
        }
        reaches
    }

    /// The band of some cells; `None` where there are too few to be worth it, or one of those looked at is not on the surface
    /// through the others.
    fn band(&self, reach: Reach) -> Result<Option<Band>> {
        let places = Places::of(&reach);
        let Some([a, b, c]) = places.fit else { return Ok(None) };
        let step = |place: Place| Ok((place, self.step(place)?));
        let ends = |row: Ends| Ok([step((row.first, row.seq))?, step((row.last, row.seq))?]);
        let fit: [[(Place, Arc<OneBatch>); 2]; 3] = [ends(a)?, ends(b)?, ends(c)?];
        let checks = places.checks.iter().map(|place| step(*place)).collect::<Result<Vec<_>>>()?;
        let one = &fit[0][0].1;
        if fit.iter().flatten().chain(&checks).any(|(_, step)| !step.does_as(one)) {
            return Ok(None);
        }
        let from = a.seq;
        let unit = reach.keys().fold(0, |unit, seq| gcd(unit, seq.abs_diff(from)));
        let samples = fit.each_ref().map(|[low, high]| Sample {
            seq: low.0.1,
            low: (self.batches[low.0.0], &low.1),
            high: (self.batches[high.0.0], &high.1),
        });
        let Some(surface) = Surface::through(&samples, unit) else { return Ok(None) };
        let holds = checks.iter().all(|((column, seq), step)| surface.at(*seq).is_at(step, self.batches[*column]));
        let (Some((short, _)), Some((long, _)), true) = (reach.first_key_value(), reach.last_key_value(), holds) else {
            return Ok(None);
        };
        let columns = reach.values().fold((usize::MAX, 0), |all, row| (all.0.min(row.0), all.1.max(row.1)));
        let batches = [self.batches[columns.0], self.batches[columns.1]];
        Ok(Some(Band { peaks: surface.peaks(batches, [*short, *long]), surface, reach }))
    }
}

/// A row of a band.
#[derive(Clone, Copy, Debug)]
struct Ends {
    seq: u64,
    first: usize,
    last: usize,
}

/// Which cells of a band are traced: those that a surface goes through, and those it is held against.
struct Places {
    fit: Option<[Ends; 3]>,
    checks: Vec<Place>,
}

impl Places {
    fn of(reach: &Reach) -> Self {
        let rows: Vec<Ends> =
            reach.iter().map(|(seq, (first, last))| Ends { seq: *seq, first: *first, last: *last }).collect();
        // What a sample adds is seen where there are two batches.
        let wide = |row: &&Ends| row.first < row.last;
        let narrow = !rows.iter().any(|row| wide(&row));
        let fit: Vec<Ends> = rows.iter().filter(|row| narrow || wide(row)).copied().collect();
        let last = fit.len().saturating_sub(1);
        if rows.len() < WORTH_OF_BAND || fit.len() < 3 {
            return Self { fit: None, checks: Vec::new() };
        }
        let middle = fit[last / 2];
        let mut checks = Vec::new();
        for row in [fit[last / 4], fit[last - last / 4]] {
            checks.extend([(row.first, row.seq), (row.last, row.seq)]);
        }
        for row in [rows[0], middle, rows[rows.len() - 1]] {
            checks.push((row.first + (row.last - row.first) / 2, row.seq));
        }
        Self { fit: Some([fit[0], middle, fit[last]]), checks }
    }

    /// All of them.
    fn all(self) -> impl Iterator<Item = Place> {
        let ends = |row: Ends| [(row.first, row.seq), (row.last, row.seq)];
        self.fit.into_iter().flatten().flat_map(ends).chain(self.checks)
    }
}

/// Where to look for a turn between two places that are not neighbours. Kernels turn at round numbers, at them or behind: so the
/// roundest is tried that lies in between, then the neighbours of those that do not, and the middle of what is left.
fn between(sizes: &[u64], low: usize, high: usize) -> usize {
    // Of 2^n and 3 * 2^n the odd part.
    let round = |at: usize| Some(sizes[at] >> sizes[at].trailing_zeros().min(63)).filter(|odd| *odd == 1 || *odd == 3);
    let middle = u128::from(sizes[low]) * u128::from(sizes[high]);
    let off = |at: usize| {
        let square = u128::from(sizes[at]).pow(2);
        square.max(middle) / square.min(middle).max(1)
    };
    let inside = (low + 1..high).filter_map(|at| Some((round(at)?, off(at), at)));
    match inside.min() {
        Some((_, _, at)) => at,
        None if round(high).is_some() => high - 1,
        None if round(low).is_some() => low + 1,
        None => low + (high - low) / 2,
    }
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use plimsoll_scenario::Scenario;
    use serde_json::json;

    use super::{Bands, between};
    use crate::solve::steps::Steps;

    /// 2,048 cells of an 8B, whose steps turn at 3,072 tokens and at 2^18, and twice over the lengths of a single sample.
    #[test]
    fn a_sheet_is_traced_at_few_cells() {
        let model = json!({"hf": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 2,
            "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256}});
        let asked = json!({"model": model, "input": {"batch": 1, "seq": 2048}, "training": {"precision": "bf16"},
            "device": {"gpu": "h200"}});
        let asked = Scenario::from_value(&asked).unwrap();
        let (batches, seqs): (Vec<u64>, Vec<u64>) = ((1..=64).collect(), (1..=32).map(|i| i * 256).collect());
        let steps = Steps::new(&asked);
        let bands = Bands::new(&steps, &batches, &seqs);
        assert!(steps.count() < 64, "{} of {}", steps.count(), batches.len() * seqs.len());
        let known: usize = seqs.iter().flat_map(|seq| bands.row(*seq)).map(|p| p.last - p.first + 1).sum();
        assert!(known > 2030, "all but the shortest single samples: {known}");
    }

    /// A turn is found in few looks where it is at a round number, before it or behind.
    #[test]
    fn turns_are_looked_for_at_round_numbers() {
        let sizes: Vec<u64> = (2..=2048).map(|i| i * 256).collect();
        let looks = |turn: u64| {
            let (mut low, mut high, mut looks) = (0, sizes.len() - 1, 0);
            while high - low > 1 {
                let at = between(&sizes, low, high);
                assert!(low < at && at < high);
                *(if sizes[at] < turn { &mut low } else { &mut high }) = at;
                looks += 1;
            }
            assert!(sizes[low] < turn && turn <= sizes[high]);
            looks
        };
        assert!([3073, 1 << 18, (1 << 18) + 1, 3 << 14].into_iter().all(|turn| looks(turn) <= 7));
        assert!((600..1 << 19).step_by(331).all(|turn| looks(turn) <= 20));
    }
}
