//! The example is good, and whatever is done to it is found.

use plimsoll_ground::{Bytes, Error};
use plimsoll_ledger::PhaseName;
use proptest::prelude::*;
use proptest::sample::{Index, select};
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

/// The example as a run on two cards, of which the second took a little less.
fn several() -> Measurement {
    let mut record = example();
    record.scenario["parallel"] = json!({ "gpus": 2, "strategy": "ddp" });
    record.estimate = None;
    let rank = |rank: u32, less: u64| {
        let lower = |size: Option<Bytes>| size.map(|size| size.saturating_sub(Bytes::new(less)));
        let peak = MeasuredPeak { allocated: lower(record.peak.allocated), ..record.peak.clone() };
        let buffer = MeasuredBuffer { kind: BufferKind::Bucket, bytes: Bytes::from_mib(25), count: 19 };
        let outcome = Some(Outcome::Finished);
        MeasuredRank { rank, device: None, outcome, peak, phases: record.phases.clone(), buffers: vec![buffer] }
    };
    record.ranks = vec![rank(0, 0), rank(1, 4096)];
    record
}

#[test]
fn a_record_of_several_cards_tells_of_every_rank() {
    let record = several();
    assert_eq!(faults(&record), []);
    let text = record.canonical();
    assert_eq!(Measurement::from_json(&text), Ok(record.clone()));
    // A record without ranks is written as it always was.
    assert!(text.contains("\"ranks\"") && !example().canonical().contains("\"ranks\""));
    let refused = |change: &dyn Fn(&mut Measurement)| {
        let mut record = several();
        change(&mut record);
        let mut keys: Vec<String> = faults(&record).into_iter().map(|error| error.key).collect();
        keys.dedup();
        keys
    };
    assert_eq!(refused(&|r| _ = r.ranks.pop()), ["ranks"]);
    assert_eq!(refused(&|r| r.ranks.clear()), [""; 0], "they may be left out");
    assert_eq!(refused(&|r| r.scenario["parallel"] = json!({ "gpus": 4 })), ["ranks"]);
    assert_eq!(refused(&|r| r.ranks.swap(0, 1)), ["ranks[0].rank", "ranks[1].rank"]);
    assert_eq!(refused(&|r| r.ranks[0].peak.allocated = mib(10)), ["peak.allocated"], "the highest is no rank's");
    assert_eq!(refused(&|r| r.ranks[1].peak.reserved = mib(10)), ["ranks[1].peak.allocated"]);
    assert_eq!(
        refused(&|r| r.ranks[1].peak.process_source = Some(ProcessSource::Resident)),
        ["ranks[1].peak.process_source"]
    );
    assert_eq!(
        refused(&|r| r.ranks[1].phases[1].end_allocated = mib(11_000)),
        ["ranks[1].phases[1].peak_allocated", "ranks[1].phases[1].end_reserved"]
    );
    assert_eq!(refused(&|r| r.ranks[1].phases[1].attempt = 7), ["ranks[1].phases[1].attempt"]);
    assert_eq!(refused(&|r| r.ranks[0].buffers[0].count = 0), ["ranks[0].buffers[0]"]);
    assert_eq!(refused(&|r| r.ranks[1].device = Some("/home/zaphod".to_owned())), ["ranks[1].device"]);
    // In a link without the phases of each: what is compared is there.
    let packed = record.packed().unwrap();
    let carried = Measurement::in_link(&format!("#r={packed}")).unwrap().unwrap();
    assert_eq!((carried.ranks.len(), &carried.ranks[1].peak), (2, &record.ranks[1].peak));
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

/// The example, as if the model had answered: two generations.
fn answered() -> Measurement {
    let mut record = example();
    record.scenario = plimsoll_scenario::Scenario::from_value(&json!({
        "model": { "catalog": "gpt2" }, "input": { "batch": 8, "seq": 512, "max_new_tokens": 16 },
        "training": { "mode": "inference", "precision": "bf16" },
    }))
    .unwrap()
    .to_value();
    record.estimate = None;
    record.events.clear();
    record.attempts.truncate(1);
    record.attempts[0] = Attempt { batch: 8, accumulation: 1, outcome: Outcome::Finished, steps: 2 };
    let load = record.phases[0].clone();
    let phase = |name, step, micro_batch| MeasuredPhase { name, step: Some(step), micro_batch, ..load.clone() };
    record.phases = vec![load.clone()];
    for step in 1..=2 {
        record.phases.push(phase(PhaseName::Input, step, Some(1)));
        record.phases.push(phase(PhaseName::Prefill, step, None));
        record.phases.push(phase(PhaseName::Decode, step, None));
    }
    record.peak.allocated = load.peak_allocated;
    record.peak.reserved = load.peak_reserved;
    let step = |step| MeasuredStep { attempt: 0, step, micros: 1000, loss: None, scale: None, skipped: false };
    record.steps = vec![step(1), step(2)];
    record.speed = Some(Speed { step_micros: 1000, samples_per_second: 8000.0, tokens_per_second: Some(128_000.0) });
    record
}

#[test]
fn a_generation_has_its_own_loop() {
    assert_eq!(faults(&answered()), []);
    let keys = |change: fn(&mut Measurement)| {
        let mut record = answered();
        change(&mut record);
        record.validate().into_iter().map(|error| error.key).collect::<Vec<_>>()
    };
    assert_eq!(keys(|r| r.phases.swap(2, 3)), ["phases[3].name"]);
    assert_eq!(keys(|r| r.phases[2].micro_batch = Some(1))[0], "phases[2].micro_batch");
    assert_eq!(keys(|r| r.phases[3].name = PhaseName::Optimizer)[0], "phases[3].name");
    assert_eq!(keys(|r| r.steps[1].loss = Some(2.0)), ["steps[1].loss"]);
    assert_eq!(keys(|r| r.speed.as_mut().unwrap().tokens_per_second = Some(1e9)), ["speed.tokens_per_second"]);
    // A smaller batch is a smaller batch: nothing makes up for it.
    let halved = |accumulation| {
        let mut record = answered();
        record.attempts.insert(0, Attempt { batch: 8, accumulation: 1, outcome: Outcome::OutOfMemory, steps: 0 });
        record.attempts[1] = Attempt { batch: 4, accumulation, ..record.attempts[1].clone() };
        for phase in record.phases.iter_mut().skip(1) {
            phase.attempt = 1;
        }
        for step in &mut record.steps {
            step.attempt = 1;
        }
        record.speed = None;
        record
    };
    assert_eq!(faults(&halved(1)), []);
    assert_eq!(halved(1).as_run().unwrap().input.batch, 4);
    assert_eq!(halved(2).validate()[0].key, "attempts[1].accumulation");
    // And training has none of it.
    let trained = |change: fn(&mut Measurement)| {
        let mut record = example();
        change(&mut record);
        record.validate().into_iter().map(|error| error.key).collect::<Vec<_>>()
    };
    assert_eq!(trained(|r| r.phases[5].name = PhaseName::Prefill)[0], "phases[5].name");
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

/// A value no key takes.
fn of() -> Value {
    json!("of")
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
