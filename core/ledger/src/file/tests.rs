//! A ledger that was written is read as it was; what is wrong with a file is said, and nothing panics.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    Birth, DType, Event, GradFnId, Kind, Law, Ledger, ModuleId, Names, OpId, Owner, Parameters, PhaseName, Recorder,
    Stream, What, Work,
};

/// A ledger with something in every column.
fn sample(sizes: &[(u64, u8, bool)]) -> Ledger {
    let ops = Names::own(vec!["none".into(), "mm".into(), "add_.Tensor".into()]);
    let mut recorder = Recorder::new(ops, Names::own(vec![String::new(), "MmBackward0".into()]));
    recorder.phase(PhaseName::Load, None, None);
    let layer = recorder.module(ModuleId::ROOT, "layers".into(), Some(3));
    let attention = recorder.module(layer, "self_attn".into(), None);
    recorder.phase(PhaseName::Forward, Some(1), Some(1));
    let mut born = Vec::new();
    for (row, (bytes, kind, dies)) in sizes.iter().enumerate() {
        let id = recorder.birth(Birth {
            bytes: *bytes,
            kind: Kind::ALL[usize::from(*kind) % Kind::ALL.len()],
            op: OpId((row % 3) as u16),
            grad_fn: GradFnId((row % 2) as u16),
            module: if row % 2 == 0 { attention } else { ModuleId::ROOT },
            dtype: DType::ALL[row % DType::ALL.len()],
            sizes: &[*bytes, row as u64],
            owner: born.last().copied().and_then(Owner::new),
        });
        recorder.launch(Work {
            op: OpId(1),
            dtype: DType::BFloat16,
            flops: bytes * 2,
            read: *bytes,
            written: row as u64 % 5,
        });
        match dies {
            true => recorder.death(id),
            false => born.push(id),
        }
    }
    recorder.phase(PhaseName::ZeroGrad, Some(1), None);
    if let [first, second, ..] = born[..] {
        recorder.law(Law { storage: second, tokens: first, rows: 7, unit: 8, tokens_per_part: 10 });
    }
    Ledger { parameters: Parameters { total: 9, trainable: 4 }, trained: born, ..recorder.finish() }
}

fn three() -> Ledger {
    sample(&[(1024, 0, false), (0, 3, false), (512, 4, true), (2048, 7, false)])
}

fn value() -> Value {
    serde_json::from_str(&three().to_text().unwrap()).unwrap()
}

/// What is said of a file after a change.
fn said(change: impl FnOnce(&mut Value)) -> String {
    let mut value = value();
    change(&mut value);
    Ledger::from_text(&value.to_string()).unwrap_err().to_string()
}

proptest! {
    #[test]
    fn a_ledger_is_read_as_it_was_written(rows in prop::collection::vec((0u64..1 << 40, any::<u8>(), any::<bool>()), 0..60)) {
        let ledger = sample(&rows);
        prop_assert_eq!(Ledger::from_text(&ledger.to_text().unwrap()).unwrap(), ledger);
    }

    #[test]
    fn no_text_panics(text in ".{0,200}") {
        prop_assert!(Ledger::from_text(&text).is_err());
    }

    /// A number anywhere in the file is another one: it is read or refused.
    #[test]
    fn no_number_panics(place in any::<prop::sample::Index>(), number in prop_oneof![Just(-1i64), Just(0), Just(i64::MAX), any::<i64>()]) {
        let mut value = value();
        let mut paths = Vec::new();
        numbers(&value, &mut String::new(), &mut paths);
        *value.pointer_mut(&paths[place.index(paths.len())]).unwrap() = json!(number);
        if let Ok(ledger) = Ledger::from_text(&value.to_string()) {
            prop_assert_eq!(Ledger::from_text(&ledger.to_text().unwrap()).unwrap(), ledger);
        }
    }
}

fn numbers(value: &Value, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    let mut visit = |key: &str, value: &Value| {
        path.push('/');
        path.push_str(key);
        numbers(value, path, found);
        path.truncate(length);
    };
    match value {
        Value::Number(_) => found.push(path.clone()),
        Value::Array(rows) => rows.iter().enumerate().for_each(|(row, value)| visit(&row.to_string(), value)),
        Value::Object(columns) => columns.iter().for_each(|(key, value)| visit(key, value)),
        _ => {}
    }
}

#[test]
fn streams_are_kept() {
    let mut ledger = three();
    let id = ledger.events.last().unwrap().id();
    *ledger.events.last_mut().unwrap() = Event::new(What::Alloc, id, Stream::new(2));
    let text = ledger.to_text().unwrap();
    assert!(text.contains(r#""stream":[0"#), "{text}");
    assert_eq!(Ledger::from_text(&text).unwrap(), ledger);
    assert!(!three().to_text().unwrap().contains("stream"), "one stream is not written");
}

#[test]
fn what_is_wrong_is_said_by_its_column() {
    let cases: [(&str, Value, &str); 16] = [
        ("/format", json!("other"), "ledger.format: it is \"other\""),
        ("/version", json!(2), "ledger.version: it is 2, and this program reads up to 1; read it with"),
        ("/version", json!(0), "ledger.version"),
        ("/storages/bytes/0", json!(1u64 << 51), "ledger.storages.bytes: row 0"),
        ("/storages/op/0", json!(3), "ledger.storages.op: it refers to row 3 of 3"),
        ("/storages/module/0", json!(9), "ledger.storages.module"),
        ("/storages/shape/0", json!(99), "ledger.storages.shape"),
        ("/storages/owner/2", json!(99), "ledger.storages.owner"),
        ("/events/storage/0", json!(-1), "ledger.events.storage: row 0: storage 0 goes where it is not"),
        ("/events/storage/1", json!(0), "ledger.events.storage: row 1: storage 0 comes twice"),
        ("/phases/event/1", json!(99), "ledger.phases.event"),
        ("/phases/event/0", json!(1), "the first phase does not begin"),
        ("/modules/parent/1", json!(1), "ledger.modules.parent: it refers to row 1 of 1"),
        ("/kinds/0", json!("guess"), "ledger.kinds: \"guess\" is not known"),
        ("/ops/1", json!("\u{1b}[2J"), "ledger.ops: \"\\u{1b}[2J\" is no name"),
        ("/launches/work/0", json!(99), "ledger.launches.work"),
    ];
    for (place, wrong, words) in cases {
        let said = said(|value| *value.pointer_mut(place).unwrap() = wrong);
        assert!(said.contains(words), "{place}: {said}");
    }
    let said = said(|value| drop(value["storages"]["kind"].as_array_mut().unwrap().pop()));
    assert!(said.contains("ledger.storages: one column has 4 rows, another 3"), "{said}");
    assert!(Ledger::from_text("{}").unwrap_err().problem.contains("missing field"));
}

/// Modules within one another without end would make paths without end.
#[test]
fn modules_lie_so_deep_and_no_deeper() {
    let deep = |depth: u32| {
        said(|value| {
            let modules = &mut value["modules"];
            modules["parent"] = (0..=depth).map(|row| row.saturating_sub(1)).collect();
            modules["name"] = (0..=depth).map(|row| if row == 0 { "" } else { "a" }).collect();
            modules["item"] = vec![Value::Null; depth as usize + 1].into();
            value["format"] = json!(if depth > 32 { "plimsoll-ledger" } else { "stop" });
        })
    };
    assert!(deep(32).contains("ledger.format"), "{}", deep(32));
    assert!(deep(33).contains("more than 32 modules deep"), "{}", deep(33));
}

/// What readers go through more than once is not there without end.
#[test]
fn tables_have_so_many_rows_and_no_more() {
    let phases = said(|value| {
        let rows = 5000;
        value["phases"] = json!({ "name": vec!["load"; rows], "step": vec![Value::Null; rows],
            "micro_batch": vec![Value::Null; rows], "event": vec![0; rows], "launch": vec![0; rows] });
    });
    assert!(phases.contains("ledger.phases: there are 5000, and at most 4096 are read"), "{phases}");
    let modules = said(|value| value["modules"]["name"][1] = json!("a".repeat(65)));
    assert!(modules.contains("ledger.modules.name: row 1 has more than 64 bytes"), "{modules}");
}
