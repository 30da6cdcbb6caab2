//! Whatever is sent: refused with its reason or kept, never a failure of the server, and nothing bad is kept.

use std::io::Write as _;
use std::sync::OnceLock;

use axum::http::StatusCode;
use flate2::{Compression, write::GzEncoder};
use plimsoll_core::Measurement;
use plimsoll_core::measurement::{EXAMPLE, TEXT};
use plimsoll_server::store::{Filter, Store};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::base::Base;
use crate::http::{JSON, LOCAL, MEASUREMENTS, Server};

/// Fewest kinds that are sent.
const KINDS: usize = 200;

/// One bad upload.
struct Bad {
    name: String,
    body: Vec<u8>,
    /// Beside the host; the media type unless another is given.
    headers: Vec<(&'static str, &'static str)>,
}

fn bad(name: impl Into<String>, body: impl Into<Vec<u8>>) -> Bad {
    Bad { name: name.into(), body: body.into(), headers: vec![JSON[1]] }
}

fn example() -> Value {
    serde_json::from_str(EXAMPLE).unwrap()
}

/// The example with the value at a pointer replaced, or taken out.
fn with(pointer: &str, value: Option<Value>) -> Vec<u8> {
    let mut record = example();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match (record.pointer_mut(parent).unwrap(), value) {
        (Value::Object(map), Some(value)) => {
            map.insert(key.to_owned(), value);
        }
        (Value::Object(map), None) => {
            map.shift_remove(key).unwrap();
        }
        (Value::Array(list), Some(value)) => list[key.parse::<usize>().unwrap()] = value,
        (Value::Array(list), None) => {
            list.remove(key.parse().unwrap());
        }
        _ => panic!("{pointer} is in no table"),
    }
    record.to_string().into_bytes()
}

/// The pointers to all values of the record's own shape; of lists the first item stands for all. What is inside the
/// scenario and the estimate is theirs.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let mut below = |key: &str, value: &Value| {
        let pointer = format!("{at}/{key}");
        found.push(pointer.clone());
        if pointer != "/scenario" && pointer != "/estimate" {
            pointers(value, &pointer, found);
        }
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| below(key, value)),
        Value::Array(list) => list.iter().take(1).for_each(|value| below("0", value)),
        _ => {}
    }
}

/// Every value replaced by those of other types, and by numbers that it cannot be.
fn wrong_values(kinds: &mut Vec<Bad>) {
    let record = example();
    let mut all = Vec::new();
    pointers(&record, "", &mut all);
    for pointer in &all {
        let mut wrong = vec![json!([1]), json!({"a": 1}), json!(true), json!("a"), json!(7)];
        match record.pointer(pointer).unwrap() {
            // What may be absent is not sent here; what is absent in the example may be anything.
            Value::Null => continue,
            Value::Bool(_) => wrong.retain(|value| !value.is_boolean()),
            Value::String(_) => wrong.retain(|value| !value.is_string()),
            Value::Array(_) => wrong.retain(|value| !value.is_array()),
            Value::Object(_) => {
                wrong.retain(|value| !value.is_object());
                wrong.push(json!({"no such key": 1}));
            }
            Value::Number(number) => {
                wrong.retain(|value| !value.is_number());
                wrong.extend([json!(1e300), json!("NaN")]);
                if !number.is_f64() {
                    wrong.extend([json!(-1), json!(0.5), json!(1e20)]);
                }
            }
        }
        for value in wrong {
            kinds.push(bad(format!("{pointer} = {value}"), with(pointer, Some(value))));
        }
    }
    // A loss or a scale may be any finite number.
    kinds.retain(|kind| !["/steps/0/loss = 1e+300", "/steps/0/scale = 1e+300"].contains(&kind.name.as_str()));
}

/// Every key that must be there left out, every key given twice.
fn keys(kinds: &mut Vec<Bad>) {
    let schema: Value = serde_json::from_str(include_str!("../../../docs/measurement.schema.json")).unwrap();
    let record = example();
    let required = |table: &Value| -> Vec<String> {
        table["required"].as_array().into_iter().flatten().map(|key| key.as_str().unwrap().to_owned()).collect()
    };
    let places = [
        ("", &schema),
        ("/software", &schema["$defs"]["MeasuredSoftware"]),
        ("/device", &schema["$defs"]["MeasuredDevice"]),
        ("/attempts/0", &schema["$defs"]["Attempt"]),
        ("/phases/0", &schema["$defs"]["MeasuredPhase"]),
        ("/steps/0", &schema["$defs"]["MeasuredStep"]),
        ("/speed", &schema["$defs"]["Speed"]),
        ("/samples/0", &schema["$defs"]["Sample"]),
        ("/events/0", &schema["$defs"]["Event"]),
    ];
    for (place, table) in places {
        let required = required(table);
        assert!(!required.is_empty(), "{place}");
        for key in required {
            kinds.push(bad(format!("no {place}/{key}"), with(&format!("{place}/{key}"), None)));
        }
        let table = record.pointer(place).unwrap();
        for (key, value) in table.as_object().unwrap() {
            let (whole, inner) = (record.to_string(), table.to_string());
            let doubled = format!("{{{}:{value},{}", json!(key), &inner[1..]);
            kinds.push(bad(format!("{place}/{key} twice"), whole.replacen(&inner, &doubled, 1)));
        }
    }
}

/// What contradicts itself, or cannot be.
fn contradictions(kinds: &mut Vec<Bad>) {
    let gib = |n: u64| Some(json!(n << 30));
    for (pointer, value) in [
        ("/peak/allocated", gib(9)),
        ("/peak/allocated", gib(1)),
        ("/peak/reserved", gib(1)),
        ("/peak/reserved", gib(13)),
        ("/peak/process", gib(1)),
        ("/peak/process", gib(13)),
        ("/peak/process_source", Some(json!("resident"))),
        ("/peak/process_source", Some(json!(null))),
        ("/device/kind", Some(json!("cpu"))),
        ("/device/kind", Some(json!("tpu"))),
        ("/device/gpu", Some(json!("no-such-card"))),
        ("/device/total", Some(json!(12))),
        ("/device/total", Some(json!(u64::MAX))),
        ("/device/reserved", gib(13)),
        ("/device/name", Some(json!(""))),
        ("/device/name", Some(json!("a\nb"))),
        ("/device/name", Some(json!("x".repeat(300)))),
        ("/device/name", Some(json!("GPU-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"))),
        ("/device/driver", Some(json!("not a version"))),
        ("/allocator/limit", gib(8)),
        ("/allocator/limit", gib(13)),
        ("/allocator/conf", Some(json!("x".repeat(300)))),
        ("/schema", Some(json!(0))),
        ("/schema", Some(json!(2))),
        ("/schema", Some(json!(4_294_967_297u64))),
        ("/taken", Some(json!("2026-02-30"))),
        ("/taken", Some(json!("1999-12-31"))),
        ("/taken", Some(json!("yesterday"))),
        ("/plimsoll", Some(json!(""))),
        ("/software/os", Some(json!("amiga"))),
        ("/software/torch", Some(json!("2.11.0 (mine)"))),
        ("/software/torch", Some(json!("2.".repeat(100)))),
        ("/parameters/trainable", Some(json!(1u64 << 60))),
        ("/attempts", Some(json!([]))),
        ("/attempts/0/batch", Some(json!(15))),
        ("/attempts/1/batch", Some(json!(0))),
        ("/attempts/1/accumulation", Some(json!(3))),
        ("/attempts/1/steps", Some(json!(3))),
        ("/attempts/1/outcome", Some(json!("won"))),
        ("/phases/0/name", Some(json!("sleep"))),
        ("/phases/0/attempt", Some(json!(9))),
        ("/phases/0/step", Some(json!(1))),
        ("/phases/1/step", Some(json!(null))),
        ("/phases/1/step", Some(json!(99))),
        ("/phases/1/micro_batch", Some(json!(99))),
        ("/phases/0/end_allocated", gib(9)),
        ("/phases/0/end_reserved", gib(9)),
        ("/phases/0/peak_reserved", Some(json!(0))),
        ("/steps/0/micros", Some(json!(0))),
        ("/steps/0/step", Some(json!(2))),
        ("/steps/0/attempt", Some(json!(9))),
        ("/speed/step_micros", Some(json!(1))),
        ("/speed/samples_per_second", Some(json!(1e9))),
        ("/speed/samples_per_second", Some(json!(-1.0))),
        ("/utilization", Some(json!({"mean": 90, "most": 80}))),
        ("/utilization", Some(json!({"mean": 90, "most": 101}))),
        ("/power", Some(json!({"mean": 1, "most": 1_000_000_000}))),
        ("/samples/0/at", Some(json!(u64::MAX))),
        ("/samples/0/device", gib(13)),
        ("/samples/0/process", gib(13)),
        ("/samples/0/temperature", Some(json!(200))),
        ("/samples/0/utilization", Some(json!(101))),
        ("/events/0/kind", Some(json!("party"))),
        ("/events/0/message", Some(json!("in /home/somebody/run.py"))),
        ("/events/0/message", Some(json!("ask somebody@example.org"))),
        ("/events/0/message", Some(json!("from 192.168.17.4"))),
        ("/events/0/message", Some(json!("x".repeat(2000)))),
        ("/events/0/message", Some(json!("\u{1b}[31m"))),
        ("/scenario", Some(json!({}))),
        ("/scenario/model", Some(json!({"catalog": "no-such-model", "task": "causal-lm"}))),
        ("/scenario/model", Some(json!({"hf": {"model_type": "no-such-type"}, "task": "causal-lm"}))),
        ("/scenario/model", Some(json!({"hf": {"model_type": "gpt2", "x": "/home/somebody"}, "task": "causal-lm"}))),
        ("/scenario/input/batch", Some(json!(0))),
        ("/scenario/input/batch", Some(json!(1u64 << 40))),
        ("/scenario/input/seq", Some(json!(-1))),
        ("/scenario/input/sequence", Some(json!(512))),
        ("/scenario/training/precision", Some(json!("fp3"))),
        ("/scenario/training/precision", Some(json!(16))),
        ("/scenario/device/gpu", Some(json!("no-such-card"))),
        ("/estimate/peak/allocated", Some(json!("7 GiB"))),
        ("/estimate/phases", Some(json!({}))),
        ("/estimate/scenario", Some(json!({}))),
        ("/estimate/peak", Some(json!(null))),
    ] {
        let name = format!("{pointer} = {}", value.as_ref().map(Value::to_string).unwrap_or_default());
        kinds.push(bad(name.chars().take(80).collect::<String>(), with(pointer, value)));
    }
    let many = |list: &str, n: usize| {
        let one = example().pointer(&format!("/{list}/0")).unwrap().clone();
        with(&format!("/{list}"), Some(Value::Array(vec![one; n])))
    };
    for (list, n) in [("attempts", 65), ("samples", 4001), ("events", 1001), ("phases", 20_001), ("steps", 100_001)] {
        kinds.push(bad(format!("{n} {list}"), many(list, n)));
    }
}

/// What is no record at all, or no JSON, or no text.
fn no_records(kinds: &mut Vec<Bad>) {
    let good = EXAMPLE.as_bytes();
    let texts = [
        "",
        " ",
        "\n",
        "null",
        "true",
        "1",
        "\"a\"",
        "[]",
        "{}",
        "{",
        "}",
        "[",
        "]",
        "{]",
        ",",
        "NaN",
        "Infinity",
        "-",
        "01",
        "1.",
        "'a'",
        "{a: 1}",
        "{\"a\" 1}",
        "{\"a\": 1,}",
        "[1,]",
        "// a",
        "<html></html>",
        "a=b",
        "\u{feff}",
        "\u{0}",
        "\"\\ud800\"",
        "\"\u{1}\"",
        "\"\\x\"",
        "{\"schema\": 1}",
        "{\"schema\": 99}",
        "[{\"schema\": 1}]",
        "{\"schema\": NaN}",
    ];
    for text in texts {
        kinds.push(bad(format!("{text:?}"), text));
    }
    for percent in [1, 10, 25, 50, 75, 90, 99] {
        kinds.push(bad(format!("cut off after {percent} %"), &good[..good.len() * percent / 100]));
    }
    for behind in ["x", "{}", "null", "}", "\u{0}", "// the end"] {
        kinds.push(bad(format!("{behind:?} behind it"), format!("{EXAMPLE}{behind}")));
    }
    for literal in ["NaN", "Infinity", "-Infinity", "0x10", "+1", "1e", ".5", "1_000", "1e999", "-0x1"] {
        kinds.push(bad(format!("a size of {literal}"), EXAMPLE.replacen("7997054976", literal, 1)));
    }
    for bytes in [b"\xff".as_slice(), b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\x80"] {
        let mut body = good.to_vec();
        let at = EXAMPLE.find("Example card").unwrap();
        body.splice(at..at + 1, bytes.iter().copied());
        kinds.push(bad(format!("{bytes:?} in a text"), body));
    }
    let wide: Vec<u8> = EXAMPLE.encode_utf16().flat_map(u16::to_le_bytes).collect();
    kinds.push(bad("UTF-16", wide));
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for depth in [33, 200, 100_000] {
            let deep = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            kinds.push(bad(format!("{depth} x {open}"), deep.clone()));
            if depth < 1000 {
                let inside = serde_json::from_str::<Value>(&deep).ok();
                inside.into_iter().for_each(|deep| {
                    kinds.push(bad(format!("{depth} x {open} inside"), with("/scenario", Some(deep))))
                });
            }
        }
    }
    kinds.push(bad("100,000 deep, never closed", "[".repeat(100_000)));
    kinds.push(bad("too many spaces", " ".repeat(TEXT + 1)));
    kinds.push(bad("far too many spaces", " ".repeat(5 * TEXT)));
    kinds.push(bad("good, with too many spaces behind", format!("{EXAMPLE}{}", " ".repeat(TEXT))));
    kinds.push(bad("a long key", format!("{{\"{}\": 1}}", "k".repeat(TEXT - 100))));
    kinds.push(bad("a long text", with("/device/name", Some(json!("n".repeat(TEXT / 2))))));
    kinds.push(bad("many keys", {
        let keys: Map<String, Value> = (0..100_000).map(|n| (format!("k{n}"), json!(n))).collect();
        Value::Object(keys).to_string()
    }));
}

fn packed(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// What the headers say, or should.
fn headers(kinds: &mut Vec<Bad>) {
    let bomb = packed(&vec![b' '; 64 << 20]);
    assert!(bomb.len() < 100_000, "small on the way, huge in memory");
    for coding in ["gzip", "x-gzip", "deflate", "br", "zstd", "compress", "gzip, gzip", "nonsense"] {
        for (what, body) in [("a bomb", &bomb), ("a record", &packed(EXAMPLE.as_bytes()))] {
            let headers = vec![JSON[1], ("content-encoding", coding)];
            kinds.push(Bad { name: format!("{what} said to be {coding}"), body: body.clone(), headers });
        }
    }
    kinds.push(bad("a bomb said to be JSON", bomb));
    for kind in [
        "",
        "text/plain",
        "text/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin1",
        "application/jsonl",
        "application/json, text/plain",
        "*/*",
    ] {
        let headers = vec![("content-type", kind)];
        kinds.push(Bad { name: format!("said to be {kind:?}"), body: EXAMPLE.into(), headers });
    }
    kinds.push(Bad { name: "no media type".into(), body: EXAMPLE.into(), headers: Vec::new() });
}

async fn stored(store: &Store) -> usize {
    store.list(&Filter::default(), None, 1).await.unwrap().total
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_is_refused_with_its_reason_and_none_is_kept() {
    let base = Base::sqlite();
    let store = base.open().await;
    let server = Server::new(&store, LOCAL);
    let mut kinds = Vec::new();
    for make in [wrong_values, keys, contradictions, no_records, headers] {
        make(&mut kinds);
    }
    assert!(kinds.len() >= KINDS, "only {} kinds", kinds.len());
    let mut wrong = Vec::new();
    for kind in &kinds {
        let mut headers = vec![JSON[0]];
        headers.extend(&kind.headers);
        let answer = server.ask("POST", MEASUREMENTS, &headers, kind.body.clone()).await;
        if !answer.status.is_client_error() {
            wrong.push(format!("{}: {} {}", kind.name, answer.status, String::from_utf8_lossy(&answer.body)));
            continue;
        }
        let problem = answer.problem();
        // The reason names the place and what to do, and does not send back what was sent.
        if matches!(answer.status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY) {
            let first = &problem["errors"][0];
            let told = ["key", "problem", "hint"].iter().all(|key| first[key].as_str().is_some_and(|t| !t.is_empty()));
            if !told {
                wrong.push(format!("{}: {problem}", kind.name));
            }
        }
        assert!(answer.body.len() < 100_000, "{}: {} bytes", kind.name, answer.body.len());
    }
    assert!(wrong.is_empty(), "{} of {} kinds:\n{}", wrong.len(), kinds.len(), wrong.join("\n"));
    assert_eq!(stored(&store).await, 0);
    // The server is none the worse for it.
    assert_eq!(server.post(EXAMPLE).await.status, StatusCode::CREATED);
    println!("{} kinds of bad uploads", kinds.len());
}

/// One server for all rounds.
fn shared() -> &'static (Runtime, Base, Store, Server) {
    static SHARED: OnceLock<(Runtime, Base, Store, Server)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let runtime = Runtime::new().unwrap();
        let base = Base::sqlite();
        let store = runtime.block_on(base.open());
        let server = runtime.block_on(async { Server::new(&store, LOCAL) });
        (runtime, base, store, server)
    })
}

/// Sends it, and if it was kept, looks whether it could be.
fn survives(body: Vec<u8>) -> Result<(), TestCaseError> {
    let (runtime, _, store, server) = shared();
    runtime.block_on(async {
        let answer = server.post(body.clone()).await;
        if answer.status.is_client_error() {
            answer.problem();
            return Ok(());
        }
        prop_assert!(answer.status.is_success(), "{} {}", answer.status, String::from_utf8_lossy(&answer.body));
        let sent = Measurement::from_json(std::str::from_utf8(&body).unwrap()).unwrap();
        prop_assert_eq!(sent.validate(), []);
        prop_assert_eq!(store.record(&sent.content_id()).await.unwrap(), Some(sent.canonical()));
        Ok(())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes(body in proptest::collection::vec(any::<u8>(), 0..2000)) {
        survives(body)?;
    }

    #[test]
    fn any_text_that_looks_like_json(body in "[\\[\\]{}\",:0-9a-z.eE+\\\\ \n-]{0,300}") {
        survives(body.into_bytes())?;
    }

    /// A record with some bytes changed, left out, doubled or moved.
    #[test]
    fn a_record_that_met_with_an_accident(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..40, any::<u8>(), 0u8..5), 1..6)
    ) {
        let mut body = EXAMPLE.as_bytes().to_vec();
        for (at, length, byte, how) in edits {
            let at = at.index(body.len());
            let end = (at + length).min(body.len());
            match how {
                0 => body[at] = byte,
                1 => body[at] = b"0123456789-.\"{}[],:entf"[usize::from(byte) % 23],
                2 => drop(body.drain(at..end)),
                3 => {
                    let copy = body[at..end].to_vec();
                    body.splice(at..at, copy);
                }
                _ => body[at..end].reverse(),
            }
            if body.is_empty() {
                break;
            }
        }
        survives(body)?;
    }

    /// A record with one number replaced by any other.
    #[test]
    fn a_record_with_another_number(which in any::<prop::sample::Index>(), number in any::<i128>(), bits in 0u32..128) {
        let number = (number >> bits).to_string();
        let digits: Vec<(usize, usize)> = {
            let mut found = Vec::new();
            let bytes = EXAMPLE.as_bytes();
            let mut at = 0;
            while at < bytes.len() {
                let end = (at..bytes.len()).find(|i| !bytes[*i].is_ascii_digit()).unwrap_or(bytes.len());
                if end > at {
                    found.push((at, end));
                }
                at = end.max(at + 1);
            }
            found
        };
        let (start, end) = digits[which.index(digits.len())];
        survives(format!("{}{number}{}", &EXAMPLE[..start], &EXAMPLE[end..]).into_bytes())?;
    }
}
