//! Whatever is done to a record's text is refused where it was done, and nothing panics.

use plimsoll_ground::Bytes;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use super::*;

/// Every place of a value, as JSON pointers.
fn places(value: &Value, at: String, into: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| places(inner, format!("{at}/{key}"), into)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, inner)| places(inner, format!("{at}/{i}"), into));
        }
        _ => {}
    }
    into.push(at);
}

fn parent(pointer: &str) -> (String, String) {
    let (parent, key) = pointer.rsplit_once('/').unwrap_or(("", pointer));
    (parent.to_owned(), key.to_owned())
}

/// A value no key takes.
fn of() -> Value {
    json!("of")
}

proptest! {
    #[test]
    fn no_mutation_panics(
        changes in prop::collection::vec((any::<Index>(), 0usize..4, any::<i64>(), select(vec![
            json!(null), json!(true), json!(-1), json!(0), json!(u64::MAX), json!(1e308), json!(-0.5), json!("NaN"), json!(""),
            json!("/home/ada/x"), json!([]), json!({}), json!([[]]), json!("forward"), json!(1_u64 << 40),
        ])), 1..4)
    ) {
        let mut record = value();
        for (place, how, number, put) in changes {
            let mut all = Vec::new();
            places(&record, String::new(), &mut all);
            let pointer = place.get(&all).clone();
            let (above, key) = parent(&pointer);
            match (how, record.pointer_mut(&above)) {
                (0, Some(Value::Object(map))) => { map.remove(&key); }
                (0, Some(Value::Array(items))) => { items.pop(); }
                (1, _) => if let Some(spot) = record.pointer_mut(&pointer) { *spot = json!(number) },
                _ => if let Some(spot) = record.pointer_mut(&pointer) { *spot = put },
            }
        }
        match Measurement::from_json(&record.to_string()) {
            Err(error) => prop_assert!(!error.key.is_empty() && !error.problem.is_empty()),
            Ok(read) => {
                for error in read.validate() {
                    prop_assert!(!error.key.is_empty() && !error.problem.is_empty() && !error.hint.is_empty(), "{}", error);
                }
                prop_assert_eq!(read.content_id().len(), 64);
                let mut scrubbed = read;
                scrubbed.scrub(&Known::default());
            }
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,200}", cut in 0..EXAMPLE.trim_end().len()) {
        let _ = Measurement::from_json(&text);
        if let Some(front) = EXAMPLE.get(..cut) {
            prop_assert!(Measurement::from_json(front).is_err());
        }
        let _ = scrubbed(&text);
    }

    /// A required key dropped, or given another type, is refused where it stands.
    #[test]
    fn a_broken_shape_is_refused_at_its_path(place in any::<Index>(), drop in any::<bool>()) {
        let mut record = value();
        let mut all = Vec::new();
        places(&record, String::new(), &mut all);
        // Inside the scenario and the estimate anything may stand as far as the shape goes; null is "left out".
        all.retain(|p| !p.is_empty() && !p.starts_with("/scenario") && !p.starts_with("/estimate"));
        let pointer = place.get(&all).clone();
        let (above, key) = parent(&pointer);
        let path = pointer.trim_start_matches('/').split('/').fold(String::new(), |path, step| {
            if step.parse::<usize>().is_ok() { format!("{path}[{step}]") }
            else if path.is_empty() { step.to_owned() } else { format!("{path}.{step}") }
        });
        let may_be_absent = {
            let mut without = record.clone();
            match without.pointer_mut(&above) {
                Some(Value::Object(map)) => { map.remove(&key); }
                Some(Value::Array(_)) | None => {}
                Some(_) => unreachable!(),
            }
            Measurement::from_value(without).is_ok()
        };
        if drop {
            let Some(Value::Object(map)) = record.pointer_mut(&above) else { return Ok(()) };
            map.remove(&key);
            if may_be_absent { return Ok(()) }
        } else {
            *record.pointer_mut(&pointer).unwrap() = json!({ "unheard": [of()] });
        }
        let error = Measurement::from_json(&record.to_string()).unwrap_err();
        let above = path.rsplit_once(['.', '[']).map_or("record", |(above, _)| above);
        prop_assert!(
            error.key == path || error.key == above || error.key == format!("{path}.unheard"),
            "{} where {} was broken: {}", error.key, path, error
        );
    }

    /// A peak raised by anything beyond its neighbour is refused at a key of the peak.
    #[test]
    fn peaks_that_swap_are_refused(more in 1u64..1 << 40) {
        let record = example();
        let reserved = record.peak.reserved.unwrap().get();
        let allocated = Measurement { peak: MeasuredPeak { allocated: Some(Bytes::new(reserved + more)), ..record.peak.clone() }, ..record.clone() };
        prop_assert!(allocated.validate().iter().any(|e| e.key == "peak.allocated"));
        let less = Bytes::new(reserved.saturating_sub(more));
        let process = Measurement { peak: MeasuredPeak { process: Some(less), ..record.peak.clone() }, ..record };
        prop_assert!(process.validate().iter().any(|e| e.key == "peak.process"));
    }
}
