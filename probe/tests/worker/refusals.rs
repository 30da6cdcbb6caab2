//! What the worker cannot do, told as an error with a hint that helps.

use serde_json::{Value, json};

use super::{job, process, report::Report, several};

/// A worker that finds this text as the module `name`.
fn with_module(name: &str, text: &str, scenario: &plimsoll_core::Scenario) -> Report {
    let modules = process::directory(&format!("module-{name}-{}", text.len()), &[(&format!("{name}.py"), text)]);
    process::Worker::start(Some(&modules), &json!(job::job(scenario)).to_string()).report()
}

fn missing(name: &str) -> String {
    format!("raise ModuleNotFoundError(\"No module named '{name}'\", name=\"{name}\")")
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn torch_that_is_missing_old_or_broken() {
    let scenario = job::mlp(json!({ "batch": 4 }), json!({}));
    let report = with_module("torch", &missing("torch"), &scenario);
    assert_eq!(report.refused("missing-torch"), ("this Python has no PyTorch", "python -m pip install torch"));
    assert!(report.all("hello").is_empty());

    let report = with_module("torch", "__version__ = '2.1.2+cu118'", &scenario);
    let (message, hint) = report.refused("old-torch");
    assert!(message.contains("2.1.2+cu118 is too old") && hint.contains("pip install --upgrade \"torch>=2.2\""));

    let text = "raise ImportError('/home/somebody/lib/libcudnn.so.9: cannot open shared object file')";
    let report = with_module("torch", text, &scenario);
    let (message, _) = report.refused("missing-torch");
    assert_eq!(message, "torch is installed but cannot be imported: <path>: cannot open shared object file");
    assert!(report.one("error")["traceback"].as_str().unwrap().contains("somebody"), "the traceback is not cleaned");

    let report = with_module("torch", "import a_module_that_nobody_has", &scenario);
    assert!(report.refused("missing-torch").0.contains("a_module_that_nobody_has"));
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn packages_that_are_missing_or_old() {
    let text = json!({ "batch": 2, "seq": 16 });
    let llama = job::llama(text.clone(), json!({}));
    let report = with_module("transformers", &missing("transformers"), &llama);
    let (message, hint) = report.refused("missing-package");
    assert!(message.contains("no transformers, which a Hugging Face model needs"), "{message}");
    assert_eq!(hint, "python -m pip install transformers");
    let report = with_module("transformers", "__version__ = '4.30.2'", &llama);
    assert!(report.refused("missing-package").1.contains("transformers>=4.36"));

    let lora = job::llama(text, json!({ "lora": { "rank": 2 } }));
    assert_eq!(with_module("peft", &missing("peft"), &lora).refused("missing-package").1, "python -m pip install peft");
    let quantized =
        job::llama(json!({ "batch": 2, "seq": 16 }), json!({ "lora": { "rank": 2 }, "quantization": "nf4" }));
    let report = with_module("bitsandbytes", &missing("bitsandbytes"), &quantized);
    let (message, hint) = report.refused("missing-package");
    assert!(message.contains("no bitsandbytes, which quantization = \"nf4\" needs"), "{message}");
    assert_eq!(hint, "python -m pip install bitsandbytes");
    let report = with_module("bitsandbytes", "__version__ = '0.44.1'", &quantized);
    assert!(report.refused("missing-package").1.contains("bitsandbytes>=0.45"));
    let resnet = job::parts(json!({ "family": "resnet" }), json!({ "batch": 1 }), json!({}));
    let report = with_module("torchvision", &missing("torchvision"), &resnet);
    assert!(report.refused("missing-package").0.contains("which the family resnet needs"));
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn jobs_and_commands_it_cannot_read() {
    let scenario = job::mlp(json!({ "batch": 4 }), json!({}));
    let job = job::job(&scenario);
    let with = |key: &str, value: Value| {
        let mut job = job.clone();
        job[key] = value;
        several::run(&job, &[])
    };
    assert!(with("protocol", 2.into()).refused("protocol").0.contains("protocol 2"));
    assert!(with("scenario", json!({})).refused("bad-job").0.contains("training"));
    assert!(with("device", "tpu".into()).refused("bad-job").0.contains("device"));
    assert_eq!(process::Worker::start(None, "[1]").report().refused("bad-job").1, REPORT_IT);
    assert_eq!(process::Worker::start(None, "{").report().refused("bad-job").1, REPORT_IT);
    for command in [json!({ "command": "sing" }), json!({ "command": "attempt", "batch": 0 }), json!([])] {
        several::run(&job, &[command]).refused("protocol");
    }
    // A device that no machine has.
    let mut job = job.clone();
    job["device"] = "cuda".into();
    job["index"] = 99.into();
    let report = several::run(&job, &[]);
    report.refused("no-device");
    assert!(report.all("hello").is_empty());
}

const REPORT_IT: &str = "this is a bug of plimsoll: report it";

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn models_it_cannot_build() {
    let unsupported = |model: Value, training: Value, part: &str| {
        let input = json!({ "batch": 1, "seq": 16 });
        let report = several::refuse(&job::parts(model.clone(), input, training));
        let (message, hint) = report.refused("unsupported");
        assert!(message.contains(part) && !hint.is_empty(), "{model}: {message}");
    };
    let none = json!({});
    unsupported(json!({ "hf": { "model_type": "no-such-model" } }), none.clone(), "does not take this config");
    unsupported(json!({ "hf": { "model_type": "bert" }, "task": "seq2seq-lm" }), none.clone(), "does not build");
    unsupported(json!({ "hf": { "model_type": "gpt2" }, "task": "node-classification" }), none, "cannot be run for");
    let checkpointing = json!({ "checkpointing": "full" });
    unsupported(json!({ "family": "resnet" }), checkpointing, "the family resnet has no gradient checkpointing");
    let lora = json!({ "lora": { "rank": 2, "targets": ["no_such_layer"] } });
    unsupported(json!({ "hf": { "model_type": "gpt2", "n_layer": 1, "n_embd": 24 } }), lora, "does not add these");
    let quantized = json!({ "model_type": "llama", "quantization_config": { "quant_method": "gptq" } });
    unsupported(json!({ "hf": quantized }), json!({}), "quantised weights");
}

#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn messages_name_no_paths() {
    let scenario = job::parts(json!({ "family": "resnet" }), json!({ "batch": 1 }), json!({}));
    for path in ["/home/somebody/weights.pt", "C:\\Users\\somebody\\weights.pt", "~/somebody"] {
        let mut job = job::job(&scenario);
        job["scenario"]["model"]["variant"] = path.replace('~', &std::env::var("HOME").unwrap()).into();
        let report = several::run(&job, &[]);
        let (message, _) = report.refused("unsupported");
        assert!(message.contains("<path>") && !message.contains("somebody"), "{message}");
    }
}

/// The oldest Python it is written for, as far as a newer one can tell.
#[test]
#[ignore = "needs a Python with torch: cargo xtask test"]
fn it_is_written_in_the_syntax_of_python_3_9() {
    let parse = "import ast, sys; ast.parse(open(sys.argv[1]).read(), feature_version=(3, 9))";
    let parses = |path: std::path::PathBuf| process::python().args(["-c", parse]).arg(path).output().unwrap();
    let output = parses(process::script().to_owned());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let newer = process::directory("syntax", &[("newer.py", "match 1:\n    case 1: pass\n")]);
    assert!(!parses(newer.join("newer.py")).status.success(), "it finds nothing");
}
