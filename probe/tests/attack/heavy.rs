//! Records whose scenario is more than any run: refused soon, in little memory, while others are served.

use std::fs;
use std::time::{Duration, Instant};

use plimsoll_testkit::synthetic;
use serde_json::{Value, json};

use crate::server;

/// A record of a Llama of 2048 layers, which is 1.7 KB of JSON.
fn heavy(number: u64) -> String {
    let mut record = serde_json::to_value(synthetic::record(number)).unwrap();
    record["scenario"]["model"] = json!({"hf": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_attention_heads": 4, "num_hidden_layers": 2048, "vocab_size": 1000}, "task": "causal-lm"});
    if let Some(record) = record.as_object_mut() {
        record.remove("estimate");
    }
    record.to_string()
}

/// The most memory a process ever had, in KiB.
fn peak(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse().ok())
}

/// How often an honest upload is sent again that the server is too busy for.
const PATIENCE: usize = 20;

#[test]
fn heavy_uploads_cost_little() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let address = server.address.as_str();
    std::thread::scope(|threads| {
        for number in 0..9 {
            threads.spawn(move || {
                let mut client = plimsoll_testkit::http::Client::connect(address).unwrap();
                // Taken or refused: it is the server that must stay.
                let _ = client.upload(&heavy(number));
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        let mut client = server.client().unwrap();
        let record = serde_json::to_string(&synthetic::record(1_000)).unwrap();
        let mut reply = client.upload(&record).unwrap();
        // On a machine that has other work too the server may ask for patience, which whoever uploads has.
        for _ in 0..PATIENCE {
            if reply.status != 503 {
                break;
            }
            std::thread::sleep(Duration::from_secs(1));
            reply = client.upload(&record).unwrap();
        }
        println!("an honest upload beside nine heavy ones: {:?}, {}", start.elapsed(), reply.status);
        assert_eq!(reply.status, 201, "{}", reply.body);
    });
    if let Some(peak) = peak(server.id()) {
        println!("the server's most memory: {} MiB", peak / 1024);
        assert!(peak < 512 * 1024, "{peak} KiB");
    }
    server.end().unwrap();
}

#[test]
fn a_heavy_link_is_refused_in_words() {
    let mut scenario = serde_json::from_str::<Value>(&heavy(0)).unwrap()["scenario"].take();
    scenario["training"]["accumulation"] = json!(8);
    scenario["training"]["checkpointing"] = json!("full");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heavy.json");
    fs::write(&path, scenario.to_string()).unwrap();
    let output = std::process::Command::new(crate::plimsoll()).arg("estimate").arg(&path).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("allocations and frees") && told.contains("hint: take fewer layers"), "{told}");
}
