//! The binary when all is well: verdicts as exit codes, every way in gives the same answer.
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Exit code and standard output of a run that must leave standard error empty.
fn plimsoll(args: &[&str], stdin: &str) -> (i32, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(args)
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{args:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

fn json(args: &[&str], stdin: &str) -> Value {
    let args: Vec<&str> = ["estimate", "--format", "json"].iter().chain(args).copied().collect();
    serde_json::from_str(&plimsoll(&args, stdin).1).unwrap()
}

fn file(name: &str, content: &str) -> String {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("estimates");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_exit_code_is_the_verdict() {
    let (code, text) = plimsoll(&["estimate", "--model", "gpt2", "--gpu", "h200"], "");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("FITS   peak "), "{text}");
    let (code, text) = plimsoll(&["estimate", "--model", "llama-3.1-70b", "--gpu", "rtx-5070-ti-laptop"], "");
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("DOES NOT FIT   peak "), "{text}");
    assert!(text.contains("none, not even one sample"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn every_way_in_gives_the_same_answer() {
    let flags =
        json(&["--model", "gpt2", "--gpu", "h200", "--batch", "2", "--precision", "fp32", "--lora-rank", "8"], "");
    let toml = "[model]\ncatalog = \"gpt2\"\n[input]\nbatch = 2\n[training]\nprecision = \"fp32\"\nlora = { rank = 8 }\n\
                [device]\ngpu = \"h200\"\n";
    let canonical = flags["scenario"].to_string();
    let toml_file = file("run.toml", toml);
    let json_file = file("run.json", &canonical);
    for (args, stdin) in [
        (vec![toml_file.as_str()], ""),
        (vec![json_file.as_str()], ""),
        (vec!["-"], toml),
        (vec!["-"], canonical.as_str()),
        (vec!["?model=gpt2&gpu=h200&batch=2&precision=fp32&lora=8"], ""),
        (vec!["https://example.org/plan?v=1&model=gpt2&gpu=h200&batch=2&precision=fp32&lora=8#top"], ""),
        (vec!["model=gpt2&batch=9", "--gpu", "h200", "--batch", "2", "--precision", "fp32", "--lora-rank", "8"], ""),
    ] {
        assert_eq!(json(&args, stdin), flags, "{args:?}");
    }
    let (code, lines) = plimsoll(&["estimate", "--jsonl"], &format!("{canonical}\n\n{canonical}"));
    assert_eq!(code, 0);
    let answers: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers, [flags.clone(), flags]);
}

#[test]
fn flags_override_what_a_file_says() {
    let file = file("base.toml", "[model]\ncatalog = \"gpt2\"\n[input]\nbatch = 2\nseq = 256\n");
    let estimate = json(&[&file, "--batch", "3", "--gpu", "h200"], "");
    assert_eq!(estimate["scenario"]["input"]["batch"], 3);
    assert_eq!(estimate["scenario"]["input"]["seq"], 256);
    assert_eq!(estimate["scenario"]["device"]["gpu"], "h200");
    let other = json(&[&file, "--family", "nbeats", "--set", "stacks=2"], "");
    assert_eq!(other["scenario"]["model"]["stacks"], 2);
    assert_eq!(other["scenario"]["model"].get("catalog"), None);
}

/// What another tool's file says gives way to a flag where both have no place: the Trainer's loop is followed with no loss of Liger's.
#[test]
fn a_tools_file_gives_way_to_flags() {
    let script = "args = SFTConfig(output_dir=\"out\", max_length=512)\n";
    let path = file("sft.py", script);
    let estimate = |more: &[&str]| {
        let args = ["estimate", "--model", "qwen3-0.6b", "--format", "json", "--from", &path];
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(args).args(more).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        (serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default(), told)
    };
    let (said, _) = estimate(&[]);
    assert_eq!(said["scenario"]["training"]["trainer"], "transformers", "{said}");
    let (liger, told) = estimate(&["--loss-impl", "fused-linear"]);
    assert_eq!(liger["scenario"]["training"]["loss_impl"], "fused-linear", "{told}");
    assert_eq!(liger["scenario"]["training"]["trainer"], Value::Null);
    let (refused, told) = estimate(&["--loss-impl", "fused-linear", "--trainer", "transformers"]);
    assert!(refused.is_null() && told.contains("training.trainer"), "{told}");
}

#[test]
fn a_config_json_as_it_comes() {
    // The keys of a real config.json, small: also those that say nothing about memory.
    let config = r#"{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 1, "eos_token_id": 2,
        "head_dim": 32, "hidden_act": "silu", "hidden_size": 128, "initializer_range": 0.02, "intermediate_size": 352,
        "max_position_embeddings": 512, "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2,
        "num_key_value_heads": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
        "rope_theta": 10000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.45.0",
        "use_cache": true, "vocab_size": 1000}"#;
    let path = file("config.json", config);
    let estimate = json(&["--hf-config", &path], "");
    // Embedding, then per layer: q, k, v, o, three of the MLP, two norms; last the final norm.
    let layer = 128 * 128 + 2 * 128 * 64 + 128 * 128 + 3 * 128 * 352 + 2 * 128;
    assert_eq!(estimate["parameters"]["total"], 1000 * 128 + 2 * layer + 128);
    assert_eq!(estimate["scenario"]["input"]["seq"], 512);
    assert_eq!(estimate["scenario"]["model"]["hf"]["rope_scaling"], Value::Null);
}

#[test]
fn the_json_is_the_contract() {
    let estimate = json(&["--family", "mlp", "--batch", "64"], "");
    let keys: Vec<&str> = estimate.as_object().unwrap().keys().map(String::as_str).collect();
    for key in ["schema", "scenario", "parameters", "peak", "at_peak", "phases", "device", "verdict", "headroom"] {
        assert!(keys.contains(&key), "{key} is missing");
    }
    assert!(estimate["max_batch"].as_u64().unwrap() > 64);
    let at_peak: u64 = estimate["at_peak"].as_object().unwrap().values().map(|v| v.as_u64().unwrap()).sum();
    assert_eq!(at_peak, estimate["peak"]["requested"].as_u64().unwrap());
}

/// `plimsoll estimate ... | head -1`: the verdict stands although nobody reads to the end.
#[cfg(unix)]
#[test]
fn a_closed_pipe_keeps_the_verdict() {
    for (model, code) in [("gpt2", 0), ("llama-3.1-70b", 1)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["estimate", "--model", model])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
        assert_eq!(output.status.code(), Some(code), "{model}");
    }
}

/// Compressed or not, a ledger says what the estimate says.
#[test]
fn a_ledger_is_written_and_read() {
    for name in ["ledger.json", "ledger.json.gz"] {
        let path = file(name, "");
        let estimate = json(&["--model", "gpt2", "--gpu", "h200", "--ledger", &path], "");
        let (code, text) = plimsoll(&["inspect", &path, "--format", "json"], "");
        let inspected: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(code, 0, "{text}");
        for key in ["at_peak", "parameters", "work"] {
            assert!(!estimate[key].is_null());
            assert_eq!(inspected[key], estimate[key], "{key}");
        }
        for key in ["requested", "allocated", "reserved", "phase", "step", "op", "module"] {
            assert_eq!(inspected["peak"][key], estimate["peak"][key], "{key}");
        }
        let (_, text) = plimsoll(&["inspect", &path], "");
        assert!(text.contains("By module") && text.contains("peak"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn the_example_of_the_readme_is_what_it_prints() {
    let readme = include_str!("../../README.md");
    let line = readme.lines().find(|line| line.starts_with("plimsoll estimate --model llama-3.2-1b")).unwrap();
    let args: Vec<&str> = line.split_whitespace().skip(1).collect();
    let between = |text: &str, from: &str, to: &str| {
        text.split_once(from).and_then(|(_, rest)| rest.split_once(to)).map(|(inner, _)| inner.trim().to_owned())
    };
    let shown = between(readme, "<!-- estimate:begin -->\n```text\n", "```\n<!-- estimate:end -->").unwrap();
    let printed = plimsoll(&args, "").1;
    assert_eq!(shown, printed.trim(), "`{line}` prints:\n{printed}");
}
