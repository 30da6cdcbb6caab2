//! A record in a link's fragment, which browsers keep to themselves: base64url of raw deflate of its JSON.

use base64::Engine as _;
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use plimsoll_ground::{Error, Result};
use plimsoll_scenario::link::{BASE64, FRAGMENT};

use super::Measurement;

/// The fragment's name for it: `#r=...`.
pub const PART: &str = "r";

/// Largest JSON unpacked from a link, in bytes: many times what [`Measurement::packed`] leaves of a record.
const JSON: usize = 256 << 10;

/// Most phases and steps a link carries.
const ROWS: usize = 200;

/// Deflate's effort, 0 to 10.
const EFFORT: u8 = 10;

impl Measurement {
    /// The record for a link: without samples, events and the day's estimate, which the page makes anew, and with the
    /// first and last of very many steps. `None` when it is too long even so.
    pub fn packed(&self) -> Option<String> {
        let mut slim = self.clone();
        slim.samples.clear();
        slim.events.clear();
        slim.estimate = None;
        slim.ranks.iter_mut().for_each(|rank| rank.phases.clear());
        thin(&mut slim.phases);
        thin(&mut slim.steps);
        let packed = BASE64.encode(compress_to_vec(slim.canonical().as_bytes(), EFFORT));
        (packed.len() + PART.len() + 1 < FRAGMENT / 2).then_some(packed)
    }

    /// The record a link carries behind `#`; `None` when it carries none.
    ///
    /// # Errors
    /// A part that is not what [`Measurement::packed`] writes, or a record that cannot be true.
    pub fn in_link(link: &str) -> Option<Result<Self>> {
        let (_, fragment) = link.split_once('#')?;
        let packed = fragment.split('&').find_map(|part| part.strip_prefix(PART)?.strip_prefix('='))?;
        Some(unpacked(packed))
    }
}

/// Keeps the first and the last rows.
fn thin<T>(rows: &mut Vec<T>) {
    if rows.len() > ROWS {
        rows.drain(ROWS / 2..rows.len() - ROWS / 2);
    }
}

fn unpacked(packed: &str) -> Result<Measurement> {
    let refuse = |problem: &str| Error::new(PART, problem, "copy the whole link again, the part behind # too");
    if packed.len() > FRAGMENT {
        return Err(refuse("the measurement in the link is too long"));
    }
    let bytes = BASE64.decode(packed).map_err(|_| refuse("the measurement in the link is not base64url"))?;
    let json = decompress_to_vec_with_limit(&bytes, JSON)
        .map_err(|_| refuse("the measurement in the link cannot be unpacked, or is too long"))?;
    let json = String::from_utf8(json).map_err(|_| refuse("the measurement in the link is not text"))?;
    let record = Measurement::from_json(&json)?;
    match record.validate().into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(record),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EXAMPLE;

    #[test]
    fn a_link_carries_what_is_compared() {
        let record = Measurement::from_json(EXAMPLE).unwrap();
        let packed = record.packed().unwrap();
        assert!(packed.len() < 2000, "{}", packed.len());
        let link = format!("http://127.0.0.1:7070/?model=gpt2#m=abc&r={packed}");
        let carried = Measurement::in_link(&link).unwrap().unwrap();
        assert_eq!((&carried.peak, &carried.phases, &carried.device), (&record.peak, &record.phases, &record.device));
        assert!(carried.samples.is_empty() && carried.estimate.is_none());
        assert_eq!(carried.point().unwrap().measured, record.point().unwrap().measured);
    }

    #[test]
    fn a_broken_part_says_what_to_do() {
        assert!(Measurement::in_link("?model=gpt2").is_none() && Measurement::in_link("?model=gpt2#m=x").is_none());
        let packed = |json: &str| BASE64.encode(compress_to_vec(json.as_bytes(), EFFORT));
        let bomb = packed(&" ".repeat(4 << 20));
        let negative = packed(&EXAMPLE.replace("7997054976", "-1"));
        let swapped = packed(&EXAMPLE.replace("8713666560", "871"));
        for part in ["!", "AAAA", bomb.as_str(), negative.as_str(), swapped.as_str(), packed("{}").as_str()] {
            let error = Measurement::in_link(&format!("#r={part}")).unwrap().unwrap_err();
            assert!(!error.hint.is_empty(), "{error:?}");
        }
    }

    #[test]
    fn very_many_steps_still_fit() {
        let mut record = Measurement::from_json(EXAMPLE).unwrap();
        let (phase, step) = (record.phases[3].clone(), record.steps[0].clone());
        record.phases = (0..5000).map(|i| MeasuredPhaseAt(&phase, i).row()).collect();
        record.steps = (0..5000).map(|i| super::super::MeasuredStep { step: i, ..step.clone() }).collect();
        assert!(record.packed().is_some_and(|packed| packed.len() < FRAGMENT));
    }

    struct MeasuredPhaseAt<'a>(&'a super::super::MeasuredPhase, u64);

    impl MeasuredPhaseAt<'_> {
        fn row(&self) -> super::super::MeasuredPhase {
            super::super::MeasuredPhase { micro_batch: Some(self.1), micros: self.1 * 7919 % 100_003, ..self.0.clone() }
        }
    }
}
