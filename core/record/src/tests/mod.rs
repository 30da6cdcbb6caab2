//! The example is good, and whatever is done to it is found.

mod generation;
mod hostile;
mod several;

use plimsoll_ground::{Bytes, Error};
use plimsoll_ledger::PhaseName;
use serde_json::{Value, json};

use super::*;

fn example() -> Measurement {
    Measurement::from_json(EXAMPLE).unwrap()
}

fn value() -> Value {
    serde_json::from_str(EXAMPLE).unwrap()
}

fn faults(record: &Measurement) -> Vec<Error> {
    record.validate()
}

/// The keys that are refused after `change`.
fn keys(change: impl FnOnce(&mut Measurement)) -> Vec<String> {
    let mut record = example();
    change(&mut record);
    let mut keys: Vec<String> = faults(&record).into_iter().map(|e| e.key).collect();
    keys.dedup();
    keys
}

fn mib(n: u64) -> Option<Bytes> {
    Some(Bytes::from_mib(n))
}

#[test]
fn the_example_is_good_and_says_that_it_is_one() {
    let record = example();
    assert_eq!(faults(&record), []);
    assert_eq!(record.device.name, "Example card");
    assert_eq!(record.device.gpu, None);
    assert_eq!(record.subject(), Some(1));
}

#[test]
fn what_is_written_is_read_back() {
    let record = example();
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(Measurement::from_json(&text), Ok(record.clone()));
    assert_eq!(Measurement::from_json(&format!("\u{feff}{text}\n")), Ok(record));
}

#[test]
fn the_id_is_that_of_the_content() {
    let record = example();
    let id = record.content_id();
    assert_eq!((id.len(), id.chars().all(|c| c.is_ascii_hexdigit())), (64, true));
    // Keys in another order, other white space, a null left out: the same record.
    let mut shuffled = value();
    let Value::Object(map) = &mut shuffled else { panic!() };
    let last = map.remove("schema").unwrap();
    map.insert("schema".to_owned(), last);
    map["software"].as_object_mut().unwrap().remove("peft");
    assert_eq!(Measurement::from_json(&shuffled.to_string()).unwrap().content_id(), id);
    let mut other = record;
    other.steps[0].micros += 1;
    assert_ne!(other.content_id(), id);
    assert!(other.canonical().starts_with(r#"{"allocator":{"conf":null,"limit":"#), "{}", other.canonical());
}

#[test]
fn shapes_that_are_refused_name_the_path() {
    let refused = |text: &str| Measurement::from_json(text).unwrap_err();
    let with = |pointer: &str, put: Value| {
        let mut value = value();
        *value.pointer_mut(pointer).unwrap() = put;
        refused(&value.to_string())
    };
    assert_eq!(with("/device/total", json!("12 GiB")).key, "device.total");
    assert_eq!(with("/device/total", json!(1.5)).key, "device.total");
    assert_eq!(with("/phases/3/micros", json!(-1)).key, "phases[3].micros");
    assert_eq!(with("/samples/0/utilization", json!(256)).key, "samples[0].utilization");
    assert_eq!(with("/attempts/1/outcome", json!("fine")).key, "attempts[1].outcome");
    assert_eq!(with("/software/wsl", json!(null)).key, "software.wsl");
    assert_eq!(with("/steps/0/loss", json!("NaN")).key, "steps[0].loss");
    assert_eq!(with("/peak", json!([])).key, "peak");
    let mut more = value();
    more["device"]["serial"] = json!("1");
    let error = refused(&more.to_string());
    assert!(error.key.starts_with("device") && error.problem.contains("unknown field `serial`"), "{error}");
    let mut less = value();
    less["device"].as_object_mut().unwrap().remove("total");
    let error = refused(&less.to_string());
    assert!(error.key.starts_with("device") && error.problem.contains("missing field `total`"), "{error}");

    let twice = EXAMPLE.replacen("\"plimsoll\"", "\"schema\": 1, \"plimsoll\"", 1);
    assert_eq!(refused(&twice).key, "schema");
    assert!(refused(&twice).problem.starts_with("it is given twice at line"), "{}", refused(&twice));
    let inner = EXAMPLE.replacen("\"batch\": 16,", "\"batch\": 16, \"batch\": 16,", 1);
    assert_eq!(refused(&inner).key, "scenario.input.batch");
    assert!(refused("{\"schema\": 2, \"later\": 1}").problem.contains("made by a newer Plimsoll"));
    assert!(refused("").problem.contains("not valid JSON"));
    assert!(refused(&EXAMPLE[..EXAMPLE.len() / 2]).hint.contains("cut off"));
    assert!(refused(&format!("{EXAMPLE} 1")).problem.contains("trailing"));
    assert!(refused("[]").problem.contains("invalid"));
    assert_eq!(with("/speed", json!([366_290, 50.0, null])).problem, "expected a table, found a list");
    assert_eq!(with("/attempts/0", json!([16, 2, "limit", 0])).key, "attempts[0]");
    assert!(refused(&EXAMPLE.replacen("412300", "NaN", 1)).problem.contains("not valid JSON"));
    assert!(refused(&" ".repeat(TEXT + 1)).problem.contains("bytes long"));
    for depth in [40, 100, 200, 1_000_000] {
        let deep = format!("{{\"scenario\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        let error = refused(&deep);
        assert!(error.problem.contains("nested too deep") || error.problem.contains("recursion limit"), "{error}");
        assert!(error.key.len() < 500, "{error}");
    }
}

#[test]
fn memory_that_contradicts_itself() {
    assert_eq!(keys(|r| r.peak.allocated = mib(9000)), ["peak.allocated"]);
    assert_eq!(keys(|r| r.peak.process = mib(8000)), ["peak.process"]);
    assert!(keys(|r| r.peak.process = Some(Bytes::from_gib(13))).contains(&"peak.process".to_owned()));
    assert_eq!(keys(|r| r.peak.reserved = Some(Bytes::from_gib(13)))[..2], ["peak.process", "peak.reserved"]);
    assert_eq!(keys(|r| std::mem::swap(&mut r.peak.allocated, &mut r.peak.reserved))[0], "peak.allocated");
    assert_eq!(keys(|r| r.peak.allocated = mib(7000)), ["peak.allocated"]);
    assert_eq!(keys(|r| r.peak.process_source = None), ["peak.process_source"]);
    assert_eq!(keys(|r| r.peak.process_source = Some(ProcessSource::Resident)), ["peak.process_source"]);
    assert_eq!(
        keys(|r| r.phases[5].end_allocated = mib(12_000)),
        ["phases[5].peak_allocated", "phases[5].end_reserved"]
    );
    assert_eq!(keys(|r| r.phases[5].peak_reserved = mib(1)), ["phases[5].peak_reserved"]);
    assert_eq!(keys(|r| r.device.total = Bytes::new(12)).first().map(String::as_str), Some("device.total"));
    assert_eq!(keys(|r| r.device.used_before = Some(Bytes::from_gib(13))), ["device.used_before"]);
    assert_eq!(keys(|r| r.allocator.limit = Some(Bytes::from_gib(13))), ["allocator.limit"]);
    assert_eq!(keys(|r| r.allocator.limit = mib(8000))[0], "peak.reserved");
    assert_eq!(keys(|r| r.device.gpu = Some("voodoo".to_owned())), ["device.gpu"]);
    assert_eq!(keys(|r| r.samples[3].process = Some(Bytes::from_gib(13))), ["samples[3].process"]);
    assert_eq!(keys(|r| r.samples[3].utilization = Some(101)), ["samples[3].utilization"]);
    assert_eq!(keys(|r| r.samples[3].at = 0), ["samples[3].at"]);
    assert_eq!(keys(|r| r.power = Some(Range { mean: 2, most: 1 })), ["power"]);
    assert_eq!(keys(|r| r.utilization = Some(Range { mean: 2, most: 101 })), ["utilization"]);
    assert_eq!(keys(|r| r.parameters.as_mut().unwrap().total = 1), ["parameters"]);
}

#[test]
fn what_a_source_is_allowed() {
    // Others may have given back what they held, but not more.
    let difference = |short: u64| {
        keys(|r| {
            r.peak.process_source = Some(ProcessSource::NvmlDifference);
            r.peak.process = r.peak.reserved.map(|reserved| reserved.saturating_sub(Bytes::from_mib(short)));
            r.samples.clear();
        })
    };
    assert!(difference(600).is_empty());
    assert_eq!(difference(613), ["peak.process"]);
    let unknown_before = keys(|r| {
        r.peak.process_source = Some(ProcessSource::NvmlDifference);
        r.device.used_before = None;
    });
    assert_eq!(unknown_before, ["device.used_before"]);
    // Windows moves memory out of the card.
    let windows = keys(|r| {
        r.software.os = "windows".to_owned();
        r.device.total = Bytes::from_gib(8);
        r.allocator.limit = None;
        r.peak.process = mib(8000);
        r.samples.clear();
    });
    assert!(windows.is_empty(), "{windows:?}");
    // On a single attempt no sample is above the peak.
    let sampled = keys(|r| {
        r.attempts.remove(0);
        r.phases.retain(|p| p.attempt == 1);
        r.phases.iter_mut().for_each(|p| p.attempt = 0);
        r.steps.iter_mut().for_each(|s| s.attempt = 0);
        r.scenario["input"]["batch"] = json!(8);
        r.scenario["training"]["accumulation"] = json!(4);
        r.estimate = None;
        r.samples[5].process = Some(Bytes::from_gib(11));
    });
    assert_eq!(sampled, ["peak.process"]);
}

#[test]
fn a_processor_has_no_count_of_allocations() {
    let on_cpu = |change: fn(&mut Measurement)| {
        keys(|r| {
            r.device.kind = DeviceKind::Cpu;
            r.peak.process_source = Some(ProcessSource::Resident);
            (r.peak.allocated, r.peak.reserved) = (None, None);
            change(r);
        })
    };
    assert!(on_cpu(|_| ()).is_empty());
    assert_eq!(on_cpu(|r| r.peak.allocated = mib(1)).first().map(String::as_str), Some("peak.allocated"));
}

#[test]
fn a_loop_out_of_order() {
    assert_eq!(keys(|r| r.phases.swap(5, 6)), ["phases[6].name"]);
    assert_eq!(keys(|r| r.phases[5].attempt = 7), ["phases[5].attempt"]);
    assert_eq!(keys(|r| r.phases[5].step = None)[0], "phases[5].step");
    assert_eq!(keys(|r| r.phases[5].step = Some(9))[0], "phases[5].step");
    assert_eq!(keys(|r| r.phases[5].micro_batch = Some(5))[0], "phases[5].micro_batch");
    assert_eq!(keys(|r| r.phases[0].step = Some(1))[0], "phases[0].step");
    let optimizer = example().phases.iter().position(|p| p.name == PhaseName::Optimizer).unwrap();
    assert_eq!(keys(|r| r.phases[optimizer].micro_batch = Some(1)), [format!("phases[{optimizer}].micro_batch")]);
    let zero_grad = keys(|r| {
        r.scenario["training"]["zero_grad_at"] = json!("before-backward");
        r.estimate = None;
        // It now stands before the first backward: where it stands is wrong.
    });
    assert!(zero_grad.iter().all(|k| k.starts_with("phases[")) && zero_grad.len() == 2, "{zero_grad:?}");
}

#[test]
fn attempts_and_steps_that_do_not_add_up() {
    assert_eq!(keys(|r| r.attempts[1].accumulation = 3)[0], "attempts[1].accumulation");
    assert_eq!(keys(|r| r.attempts[0].batch = 32)[0], "attempts[0]");
    assert_eq!(keys(|r| r.attempts[1].batch = 0)[0], "attempts[1].batch");
    assert_eq!(keys(|r| r.attempts[1].steps = 3), ["attempts[1].steps"]);
    assert_eq!(keys(|r| r.steps[1].step = 3)[0], "steps[1].step");
    assert_eq!(keys(|r| r.steps[1].attempt = 2)[0], "steps[1].attempt");
    assert_eq!(keys(|r| r.steps[0].micros = 0), ["steps[0].micros"]);
    assert_eq!(keys(|r| r.steps[0].loss = Some(f64::NAN)), ["steps[0].loss"]);
    assert_eq!(keys(|r| r.steps[0].scale = Some(-1.0)), ["steps[0].scale"]);
    assert_eq!(
        keys(|r| {
            r.steps[0].scale = None;
            r.steps[0].skipped = true;
        }),
        ["steps[0].skipped"]
    );
    assert!(keys(|r| r.attempts.clear()).contains(&"attempts".to_owned()));
    // A raise is told of by an event, and then the effective batch may change.
    let raised = keys(|r| {
        r.events.push(Event { at: 1, kind: EventKind::Raised, message: "micro-batch 8 to 16".to_owned() });
        r.attempts[1].batch = 16;
        r.speed = None;
    });
    assert!(raised.is_empty(), "{raised:?}");
    // The last micro-batch may be smaller: 32 samples in micro-batches of 12 are 3 of them.
    let leftover = keys(|r| {
        r.attempts[1].batch = 12;
        r.attempts[1].accumulation = 3;
        r.phases.retain(|p| p.micro_batch != Some(4));
    });
    assert!(leftover.is_empty(), "{leftover:?}");
}

#[test]
fn speeds_that_the_steps_do_not_give() {
    let speed = |change: fn(&mut Speed)| keys(|r| change(r.speed.as_mut().unwrap()));
    assert_eq!(speed(|s| s.step_micros *= 2)[0], "speed.step_micros");
    assert_eq!(speed(|s| s.samples_per_second *= 1.1), ["speed.samples_per_second"]);
    assert_eq!(speed(|s| s.samples_per_second = f64::NAN)[0], "speed.samples_per_second");
    assert_eq!(speed(|s| s.tokens_per_second = Some(1e30)), ["speed.tokens_per_second"]);
    assert_eq!(speed(|s| s.tokens_per_second = Some(0.0)), ["speed.tokens_per_second"]);
    assert_eq!(
        keys(|r| {
            r.steps.truncate(1);
            r.attempts[1].steps = 1;
        })
        .last()
        .map(String::as_str),
        Some("speed")
    );
}

#[test]
fn what_computed_nothing_is_no_measurement() {
    let still = |r: &mut Measurement| r.steps.iter_mut().for_each(|step| step.loss = Some(0.0));
    assert_eq!(keys(still), ["steps"]);
    assert!(keys(|r| r.steps[0].loss = Some(0.0)).is_empty(), "one of them may be");
    let contrasted = |r: &mut Measurement| {
        r.steps.iter_mut().for_each(|step| step.loss = Some(0.0));
        r.attempts.iter_mut().for_each(|attempt| attempt.batch = 1);
        r.scenario["model"] = json!({ "catalog": "clip-vit-base-patch32" });
    };
    assert!(!keys(contrasted).contains(&"steps".to_owned()), "a sample contrasted with itself has nothing to learn");
    let hollow = |r: &mut Measurement| {
        still(r);
        r.device.hollow = true;
    };
    assert_eq!(keys(hollow), ["device.hollow"]);
    assert!(!serde_json::to_string(&example()).unwrap().contains("hollow"), "real records stay as they were");
}

#[test]
fn texts_that_tell_too_much() {
    assert_eq!(keys(|r| r.events[0].message = "in /home/ada/run.py".to_owned()), ["events[0].message"]);
    assert_eq!(keys(|r| r.events[0].message = "x".repeat(MESSAGE + 1)), ["events[0].message"]);
    assert_eq!(keys(|r| r.events[0].message = "two\nlines".to_owned()), ["events[0].message"]);
    assert_eq!(keys(|r| r.events[0].message.clear()), ["events[0].message"]);
    assert_eq!(keys(|r| r.device.name = "card GPU-1a2b3c4d".to_owned()), ["device.name"]);
    assert_eq!(keys(|r| r.allocator.conf = Some("C:\\Users\\ada".to_owned())), ["allocator.conf"]);
    assert_eq!(keys(|r| r.software.torch = "2.11 of /opt/x/y".to_owned()), ["software.torch"]);
    assert_eq!(keys(|r| r.software.os = "plan9".to_owned()), ["software.os"]);
    for day in ["2026-02-29", "2026-13-01", "20261120", "2026-11-20T10:00", "1970-01-01", "2026-1-1", "+026-11-20"] {
        assert_eq!(keys(|r| r.taken = day.to_owned()), ["taken"], "{day}");
    }
    assert!(keys(|r| r.taken = "2028-02-29".to_owned()).is_empty());
    assert_eq!(keys(|r| r.schema = 3), ["schema"]);
}

#[test]
fn scenarios_and_estimates() {
    assert_eq!(keys(|r| r.scenario["input"]["bacth"] = json!(4))[0], "scenario.input.bacth");
    assert_eq!(keys(|r| r.scenario = json!(null))[0], "scenario");
    let other = keys(|r| r.scenario["training"]["precision"] = json!("fp32"));
    assert_eq!(other, ["estimate.scenario.training"]);
    assert!(keys(|r| r.estimate = None).is_empty());
    assert_eq!(keys(|r| r.estimate = Some(json!("12 GiB"))), ["estimate"]);
    assert_eq!(keys(|r| r.estimate.as_mut().unwrap()["peak"]["process"] = json!(-1)), ["estimate.peak.process"]);
    assert_eq!(keys(|r| r.estimate.as_mut().unwrap()["phases"][2]["name"] = json!(1)), ["estimate.phases[2].name"]);
    // Later versions tell more.
    assert!(keys(|r| r.estimate.as_mut().unwrap()["explain"] = json!({ "x": 1 })).is_empty());
    // What is not estimated is measured all the same.
    let measured = keys(|r| {
        r.scenario["model"] = json!({ "hf": { "model_type": "any", "_name_or_path": "/home/ada/model" } });
        r.estimate = None;
    });
    assert_eq!(measured, ["scenario.model.hf._name_or_path"]);
}

#[test]
fn a_scrubbed_record_is_good() {
    let mut record = example();
    record.events[0].message = "Traceback: File /home/ada/run.py, line 3\n mail ada@example.org".to_owned();
    record.scenario["model"] = json!({ "hf": { "model_type": "any", "_name_or_path": "C:\\models\\own" } });
    record.estimate = None;
    record.scrub(&Known::default());
    assert_eq!(faults(&record), []);
    assert_eq!(record.events[0].message, "Traceback: File [left out] line 3 mail [left out]");
    assert_eq!(record.scenario["model"]["hf"]["_name_or_path"], json!("[left out]"));
}

#[test]
fn memory_that_spills_is_not_without_bounds() {
    let spilling = |bytes| {
        keys(|record| {
            record.software.wsl = true;
            record.allocator.limit = None;
            for size in [&mut record.peak.allocated, &mut record.peak.reserved] {
                *size = Some(Bytes::new(bytes));
            }
        })
    };
    assert!(spilling(u64::MAX).contains(&"peak.allocated".to_owned()));
    assert!(spilling(u64::MAX).contains(&"peak.reserved".to_owned()));
    let mut record = example();
    record.software.wsl = true;
    record.peak.reserved = Some(Bytes::new(1 << 40));
    assert!(record.validate().iter().all(|e| !e.problem.contains("no machine")));
}
