//! The binary as people and scripts meet it: exit codes and messages, above all for what is wrong.
#![allow(clippy::unwrap_used, reason = "the helpers of a test may fail it as its own lines may")]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A run of `plimsoll` with what is written to its standard input.
fn plimsoll(args: &[&str], stdin: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(args)
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let input = stdin.to_vec();
    // The program may stop reading early: a broken pipe is no failure of the test.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// A file of the test's own.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cli");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join(name);
    fs::write(&path, content).unwrap();
    path
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Asserts that a run ends with `code`, prints nothing but a message with all of `parts`, and does not panic.
fn refuses(args: &[&str], stdin: &[u8], code: i32, parts: &[&str]) {
    let output = plimsoll(args, stdin);
    let message = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
    assert!(!message.contains("panicked"), "{args:?}: {message}");
    assert!(output.stdout.is_empty(), "{args:?}: {}", stdout(&output));
    for part in parts {
        assert!(message.contains(part), "{args:?}: no {part:?} in {message}");
    }
}

/// The same for a scenario on standard input, whose errors are always code 2 and carry a hint.
fn refuses_scenario(scenario: &str, parts: &[&str]) {
    refuses(&["estimate", "-"], scenario.as_bytes(), 2, parts);
    refuses(&["estimate", "-"], scenario.as_bytes(), 2, &["error", "hint: "]);
}

#[test]
fn an_empty_file() {
    refuses_scenario("", &["the file is empty", "write at least which model"]);
    let path = file("empty.toml", b"");
    refuses(&["estimate", path.to_str().unwrap()], b"", 2, &["error in ", "empty.toml", "the file is empty"]);
    let path = file("empty.json", b" \n");
    refuses(&["estimate", path.to_str().unwrap()], b"", 2, &["the file is empty"]);
}

#[test]
fn ten_megabytes() {
    let big = vec![b' '; 10 << 20];
    for name in ["big.json", "big.toml", "big"] {
        let path = file(name, &big);
        refuses(&["estimate", path.to_str().unwrap()], b"", 2, &["longer than 1 MiB", "right file"]);
        refuses(&["estimate", "--hf-config", path.to_str().unwrap()], b"", 2, &["longer than 1 MiB"]);
    }
    refuses(&["estimate", "-"], &big, 2, &["longer than 1 MiB"]);
}

#[test]
fn broken_text() {
    refuses_scenario("{\"model\": {\"catalog\": \"gp", &["not valid JSON", "line 1 column", "cut off"]);
    refuses_scenario("[model]\ncatalog = \"gpt2", &["not valid TOML in line 2"]);
    refuses_scenario(&"{\"model\":".repeat(50_000), &["recursion limit"]);
    refuses_scenario(&format!("a = {}", "[".repeat(50_000)), &["not valid TOML"]);
    refuses(&["estimate", "-"], &[0xff, 0xfe, 0x00], 2, &["not UTF-8"]);
    let path = file("binary.toml", &[0u8, 159, 146, 150]);
    refuses(&["estimate", path.to_str().unwrap()], b"", 2, &["not UTF-8"]);
}

#[test]
fn wrong_types_and_unknown_keys() {
    refuses_scenario("[]", &["expected"]);
    refuses_scenario("{\"model\": \"gpt2\"}", &["model: expected a table, found the text \"gpt2\""]);
    let with = |training: &str| format!("{{\"model\": {{\"catalog\": \"gpt2\"}}, \"training\": {training}}}");
    refuses_scenario(&with("{\"precision\": 16}"), &["training.precision: expected text, found the number 16"]);
    refuses_scenario(
        &with("{\"precison\": \"fp32\"}"),
        &["training.precison: unknown key", "did you mean \"precision\""],
    );
    refuses_scenario(&with("{\"batch\": 4}"), &["training.batch: unknown key", "it belongs in [input]"]);
    refuses_scenario(
        &with("{\"optimizer\": \"shampoo\"}"),
        &["\"shampoo\" is not one of its values", "sgd, sgd-momentum"],
    );
    refuses_scenario(
        &with("{\"mode\": \"inference\", \"accumulation\": 4}"),
        &["training.accumulation: says nothing in inference", "leave it out"],
    );
    refuses_scenario(
        "[model]\ncatalog = \"gpt2\"\n[input]\nbatch = 2026-11-05",
        &["input.batch: 2026-11-05 is a date"],
    );
    refuses_scenario("{\"model_type\": \"llama\"}", &["is a Hugging Face config.json", "--hf-config"]);
    refuses_scenario("{}", &["no model is named", "catalog = \"llama-3.2-1b\""]);
}

#[test]
fn numbers_out_of_range() {
    for (batch, problem) in [
        ("0", "0 is too small"),
        ("-4", "-4 is negative"),
        ("1.5", "1.5 is not a whole number"),
        ("1e300", "is too large"),
        ("18446744073709551616", "is too large"),
        ("999999999999", "999999999999 is too large"),
        ("\"four\"", "expected a whole number, found the text \"four\""),
    ] {
        let scenario = format!("{{\"model\": {{\"catalog\": \"gpt2\"}}, \"input\": {{\"batch\": {batch}}}}}");
        refuses_scenario(&scenario, &["input.batch: ", problem, "from 1 to 16777216"]);
        let flag = batch.trim_matches('"');
        refuses(&["estimate", "--model", "gpt2", "--batch", flag], b"", 2, &["input.batch: ", problem]);
    }
    refuses_scenario("[model]\ncatalog = \"gpt2\"\n[input]\nbatch = nan", &["input.batch: NaN is not a number"]);
    refuses(&["estimate", "--model", "gpt2", "--batch", "NaN"], b"", 2, &["found the text \"NaN\""]);
    refuses(&["estimate", "--model", "gpt2", "--memory", "12"], b"", 2, &["device.memory: 12 B is too little"]);
    refuses(&["estimate", "--model", "gpt2", "--memory=-1 GiB"], b"", 2, &["\"-1 GiB\" is not a size"]);
    refuses(&["estimate", "--model", "gpt2", "--seq", "1025"], b"", 2, &["more than the 1024 positions"]);
}

#[test]
fn what_is_in_no_catalog_or_not_supported() {
    refuses(
        &["estimate", "--model", "gpt2", "--gpu", "rtx-5070-ti-laptp"],
        b"",
        2,
        &["device.gpu: no GPU \"rtx-5070-ti-laptp\" in the catalog", "rtx-5070-ti-laptop"],
    );
    refuses(&["estimate", "--model", "llana-3.2-1b"], b"", 2, &["model.catalog: ", "llama-3.2-1b"]);
    refuses(
        &["estimate", "--family", "alexnet"],
        b"",
        2,
        &["family \"alexnet\" is not supported", "mlp, nanogpt, nbeats"],
    );
    let rwkv = file("rwkv.json", br#"{"model_type": "rwkv", "hidden_size": 768}"#);
    refuses(
        &["estimate", "--hf-config", rwkv.to_str().unwrap()],
        b"",
        2,
        &["model_type \"rwkv\" is not supported yet", "plimsoll trace"],
    );
    let no_type = file("no_type.json", br#"{"hidden_size": 768}"#);
    refuses(&["estimate", "--hf-config", no_type.to_str().unwrap()], b"", 2, &["model_type: it is missing"]);
    let list = file("list.json", b"[1]");
    refuses(&["estimate", "--hf-config", list.to_str().unwrap()], b"", 2, &["error in ", "is not a config.json"]);
}

#[test]
fn sizes_that_contradict_one_another() {
    let config = br#"{"model_type": "llama", "hidden_size": 100, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 3, "vocab_size": 128}"#;
    let path = file("heads.json", config);
    refuses(&["estimate", "--hf-config", path.to_str().unwrap()], b"", 2, &["error", "num_attention_heads", "hint: "]);
    refuses(&["estimate", "--family", "nanogpt", "--set", "n_head=5"], b"", 2, &["n_head", "hint: "]);
}

#[test]
fn links() {
    refuses(&["estimate", "?model=gpt2&bacth=4"], b"", 2, &["in the link", "bacth: unknown parameter", "batch"]);
    refuses(&["estimate", "?%%%&&=x#m=@@"], b"", 2, &["percent-encoding"]);
    refuses(&["estimate", "https://example.org/#m=AAAA"], b"", 2, &["cannot be unpacked"]);
    refuses(&["estimate", "https://example.org/"], b"", 2, &["there is no scenario in it"]);
    refuses(&["estimate", "?v=2&model=gpt2&sail=full"], b"", 2, &["made by a newer Plimsoll", "update Plimsoll"]);
    refuses(&["estimate", "?model=gpt2&batch=0"], b"", 2, &["input.batch: 0 is too small"]);
    refuses_scenario("{\"schema\": 2}", &["made by a newer Plimsoll"]);
}

#[test]
fn the_message_says_where_it_was_wrong() {
    let path = file("where.toml", b"[model]\ncatalog = \"gpt2\"\n[input]\nbatch = 0\n");
    let path = path.to_str().unwrap();
    refuses(&["estimate", path], b"", 2, &["where.toml: input.batch: 0 is too small"]);
    refuses(&["estimate", path, "--batch", "-1"], b"", 2, &["error: input.batch: -1 is negative"]);
}

#[test]
fn the_world_outside() {
    refuses(&["estimate", "no/such/run.toml"], b"", 3, &["cannot read no/such/run.toml", "check the path"]);
    refuses(&["estimate", "--hf-config", "no/such/config.json"], b"", 3, &["cannot read no/such/config.json"]);
    refuses(&["estimate", "--jsonl", "no/such/lines"], b"", 3, &["cannot read no/such/lines"]);
    refuses(&["estimate", env!("CARGO_MANIFEST_DIR")], b"", 3, &["cannot read"]);
}

#[test]
fn wrong_usage() {
    refuses(&["estimate"], b"", 2, &["there is no scenario", "--model llama-3.2-1b"]);
    refuses(&["estimate", "--model", "gpt2", "--family", "mlp"], b"", 2, &["cannot be used with"]);
    refuses(&["estimate", "--precision", "fp8"], b"", 2, &["invalid value 'fp8'", "bf16-amp"]);
    refuses(&["estimate", "--family", "mlp", "--set", "hidden"], b"", 2, &["is not KEY=VALUE"]);
    refuses(&["estimate", "--family", "mlp", "--set", "hiden=4"], b"", 2, &["model.hiden: unknown key", "hidden"]);
    refuses(&["estimate", "--bacth", "4"], b"", 2, &["--batch"]);
    refuses(&["sail"], b"", 2, &["unrecognized subcommand"]);
}

#[test]
fn bad_lines_are_answered_in_place() {
    let lines = b"{\"model\": {\"family\": \"mlp\"}, \"input\": {\"batch\": 0}}\n{\"mod\n\n{\"model\": {\"family\": \"alexnet\"}}\n";
    let output = plimsoll(&["estimate", "--jsonl"], lines);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stderr.is_empty());
    let text = stdout(&output);
    let answers: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 3);
    assert_eq!(
        answers[0],
        serde_json::json!({ "error": {
            "line": 1, "key": "input.batch", "problem": "0 is too small",
            "hint": "give a whole number from 1 to 16777216",
        } })
    );
    assert_eq!(answers[1]["error"]["line"], 2);
    assert_eq!(answers[2]["error"]["line"], 4);
    assert_eq!(answers[2]["error"]["key"], "model.family");
}

#[test]
fn help_shows_examples() {
    for args in [&["--help"][..], &["estimate", "--help"], &["models", "--help"], &["gpus", "--help"]] {
        let output = plimsoll(args, b"");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        let text = stdout(&output);
        assert!(text.contains("Usage: plimsoll"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{args:?}: {line}");
        }
    }
    assert!(
        stdout(&plimsoll(&["estimate", "--help"], b"")).contains("Examples:\n  plimsoll estimate --model llama-3.2-1b")
    );
}

#[test]
fn listings() {
    let models = stdout(&plimsoll(&["models", "llama-3.2"], b""));
    assert!(models.contains("llama-3.2-1b") && !models.contains("gpt2"), "{models}");
    let gpus = stdout(&plimsoll(&["gpus", "5070"], b""));
    assert!(gpus.contains("rtx-5070-ti-laptop") && !gpus.contains("h200"), "{gpus}");
    let (all, every) = (stdout(&plimsoll(&["gpus"], b"")), stdout(&plimsoll(&["models"], b"")));
    assert!(every.contains("--family nbeats") && all.lines().count() > 60);
    assert!(all.lines().chain(every.lines()).all(|line| line.chars().count() <= 80), "{all}{every}");
    let json = stdout(&plimsoll(&["gpus", "h200", "--format", "json"], b""));
    let row: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(row["id"], "h200");
    assert!(stdout(&plimsoll(&["gpus", "abacus"], b"")).contains("No GPU like that"));
}

#[test]
fn no_colour_in_a_pipe() {
    let output = plimsoll(&["estimate"], b"");
    assert!(!String::from_utf8(output.stderr).unwrap().contains('\u{1b}'));
    let forced = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["gpus", "h200"])
        .env("CLICOLOR_FORCE", "1")
        .env_remove("NO_COLOR")
        .output()
        .unwrap();
    assert!(stdout(&forced).contains('\u{1b}'));
}

/// `plimsoll ... | head -1`: the reader closes the pipe before all is written.
#[cfg(unix)]
#[test]
fn a_closed_pipe_is_no_panic() {
    for args in [&["models"][..], &["gpus"], &["estimate", "--help"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(message, "", "{args:?}");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
    }
}

#[test]
fn a_hull_is_inspected() {
    let hull = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/hulls/sd-1.5-unet-lora.hull");
    let output = plimsoll(&["inspect", hull], b"");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["diffusers 0.42.1", "bf16-amp", "direct recordings come out"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let output = plimsoll(&["inspect", hull, "--format", "json"], b"");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["precisions"], "bf16-amp", "{value}");
    refuses(&["inspect", hull, "--card", "0"], b"", 2, &["are for snapshots"]);
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.hull");
    fs::write(&cut, &fs::read(hull).unwrap()[..900]).unwrap();
    refuses(&["inspect", &cut.display().to_string()], b"", 2, &["cut.hull", "cannot be unpacked"]);
}

#[test]
fn a_snapshot_is_inspected_and_laid_beside_an_estimate() {
    let snapshot = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/snapshot/tests/made/llama.pickle");
    let scenario = br#"{"model": {"hf": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000, "use_cache": false}},
        "input": {"batch": 2, "seq": 64}, "training": {"precision": "bf16-amp", "clip_grad_norm": false}}"#;
    let scenario = file("snapped.json", scenario).to_str().unwrap().to_owned();
    let output = plimsoll(&["inspect", snapshot, "--with", &scenario], b"");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in
        ["2 steps of an optimizer", "Who holds the peak", "llama.py:", "Free between tensors", "are equal to the byte"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let output = plimsoll(&["inspect", snapshot, "--with", &scenario, "--format", "json"], b"");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["against"]["allocated"]["estimate"], value["peak"]);

    refuses(&["inspect", snapshot, "--card", "3"], b"", 2, &["llama.pickle", "it has no card 3", "take one of 0"]);
    refuses(&["inspect", snapshot, "--with", "/nowhere"], b"", 3, &["/nowhere"]);
    let hostile = b"\x80\x02cposix\nsystem\nU\x02idtR.";
    let hostile = file("hostile.pickle", hostile).to_str().unwrap().to_owned();
    refuses(&["inspect", &hostile], b"", 2, &["hostile.pickle", "names code to be run", "nothing was run"]);
    let ledger = file("ledger.json", b"{}").to_str().unwrap().to_owned();
    refuses(&["inspect", &ledger, "--card", "0"], b"", 2, &["are for snapshots"]);
}

#[test]
fn what_is_no_ledger() {
    let path = |name: &str, content: &[u8]| file(name, content).to_str().unwrap().to_owned();
    refuses(
        &["inspect", &path("empty.json", b"")],
        b"",
        2,
        &["empty.json", "ledger: it is no ledger", "--ledger FILE"],
    );
    let other = path("other.json", br#"{"format":"a picture"}"#);
    refuses(&["inspect", &other], b"", 2, &["other.json", "it is no ledger", "missing field"]);
    refuses(&["inspect", &path("cut.gz", &[0x1f, 0x8b, 8])], b"", 2, &["cut.gz", "it is no text"]);
    refuses(&["inspect", "/nowhere/at/all"], b"", 3, &["cannot be read"]);
    refuses(&["estimate", "--model", "gpt2", "--ledger", "/nowhere/at/all"], b"", 3, &["cannot be written"]);
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn what_cannot_be_rehearsed_is_refused_in_words() {
    let rehearse = |options: &[&str], code: i32, part: &str| {
        let args = [&["rehearse"], options, &["--", "python3", "x.py"]].concat();
        refuses(&args, b"", code, &[part]);
    };
    refuses(&["rehearse"], b"", 2, &["COMMAND"]);
    rehearse(&["--gpu", "abacus"], 2, "no GPU \"abacus\" in the catalog");
    rehearse(&["--gpu", "rtx 507"], 2, "\"rtx 507\" is more than one card");
    rehearse(&["--gpu", "17x4090"], 2, "17 cards are more");
    rehearse(&["--gpu", "mi300x"], 2, "is no CUDA card");
    rehearse(&["--memory", "much"], 2, "--memory");
    rehearse(&["--compute-capability", "9"], 2, "8.9");
    rehearse(&["--python", "/nonexistent/python"], 3, "cannot run /nonexistent/python");
    rehearse(&["--python", "/bin/true"], 3, "has no PyTorch");
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn a_pytorch_without_cuda_cannot_be_rehearsed() {
    use std::os::unix::fs::PermissionsExt as _;
    let said = file("version.py", b"__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n");
    let python = file("python", format!("#!/bin/sh\nprintf %s '{}'\n", said.parent().unwrap().display()).as_bytes());
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let args = ["rehearse", "--python", python.to_str().unwrap(), "--", "python3", "x.py"];
    refuses(&args, b"", 3, &["2.11.0+cpu", "pip install torch"]);
}

#[cfg(unix)]
#[test]
fn a_mistyped_flag_beside_what_is_no_text() {
    use std::os::unix::ffi::OsStrExt as _;

    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("estimate")
        .args([std::ffi::OsStr::from_bytes(b"\xff"), "--modle".as_ref()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("'--model'") && !said.contains("panicked"), "{said}");
    // Before any subcommand nothing is one, and nothing is guessed.
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args([std::ffi::OsStr::from_bytes(b"--\xff"), "estimate".as_ref()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A Python that says of every convolution that it takes a MiB, or what is in `says` in place of its first line.
#[cfg(unix)]
fn python_with_cudnn(name: &str, says: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let script = format!(
        "#!/bin/sh\nread -r card\nprintf '%s\\n' '{says}'\nwhile read -r line; do\n  \
         printf %s \"$line\" | grep -oE '\"(forward|input|weight)\"' | sed 's/.*/1048576/' | paste -sd, | sed 's/.*/[&]/'\ndone\n"
    );
    let path = file(name, script.as_bytes());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[cfg(unix)]
#[test]
fn cudnn_is_asked_for_each_convolution() {
    let python = python_with_cudnn("python-cudnn", r#"{"version": "9.19.0"}"#);
    let net = ["estimate", "--family", "resnet", "--set", "variant=resnet18", "--gpu", "rtx-4060", "--format", "json"];
    let asked = [&net[..], &["--ask-cudnn", "--python", python.to_str().unwrap()]].concat();
    let json = |args: &[&str]| -> serde_json::Value {
        let output = plimsoll(args, b"");
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
    };
    let (plain, asked) = (json(&net), json(&asked));
    assert!(plain["cudnn"].is_null() && plain["convolutions"].is_object());
    // Eleven different convolutions of ResNet-18, with their gradients; images want none.
    let cudnn = serde_json::json!({ "version": "9.19.0", "answered": 32, "unanswered": 0 });
    assert_eq!((&asked["cudnn"], asked["convolutions"].is_null()), (&cudnn, true), "{asked}");
    let said = asked["warnings"].to_string();
    assert!(said.contains("as cuDNN 9.19.0 plans it for such a card, 32 different products"), "{said}");
    assert!(asked["max_batch"].as_u64() > Some(0), "{asked}");
    let took = |of: &serde_json::Value| of["peak"]["reserved"].as_u64().unwrap();
    assert!(took(&asked) >= took(&plain));
}

#[cfg(unix)]
#[test]
fn a_cudnn_that_cannot_be_asked_says_why() {
    let ask = |gpu: &str, python: &str, code: i32, parts: &[&str]| {
        let net = ["estimate", "--family", "resnet", "--gpu", gpu, "--ask-cudnn", "--python", python];
        refuses(&net, b"", code, parts);
    };
    let refusing = python_with_cudnn("python-none", r#"{"problem": "no cuDNN 9 was found", "hint": "name another"}"#);
    ask("rtx-4060", refusing.to_str().unwrap(), 3, &["no cuDNN 9 was found", "name another"]);
    let babbling = python_with_cudnn("python-babble", "hello");
    ask("rtx-4060", babbling.to_str().unwrap(), 3, &["asking cuDNN failed: it said something else"]);
    ask("rtx-4060", "/bin/true", 3, &["asking cuDNN failed: it ended"]);
    ask("rtx-4060", "/nonexistent/python", 3, &["cannot start /nonexistent/python"]);
    ask("mi300x", refusing.to_str().unwrap(), 2, &["MI300X has no cuDNN", "leave --ask-cudnn out"]);
    refuses(&["estimate", "--model", "gpt2", "--python", "python3"], b"", 2, &["--ask-cudnn"]);
    // Nothing of a language model is a convolution: nobody is asked.
    let text = plimsoll(&["estimate", "--model", "gpt2", "--ask-cudnn", "--python", "/nonexistent/python"], b"");
    assert!(stdout(&text).contains("cuDNN was not asked"), "{}", stdout(&text));
}
