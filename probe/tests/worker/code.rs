//! The code that `plimsoll code` writes, run on the CPU as it is.

use std::process::Command;

use crate::process::ready_python;

const CONFIG: &str = r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128, "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 64, "use_cache": true}"#;

fn written(folder: &std::path::Path, flags: &[&str]) -> String {
    std::fs::write(folder.join("config.json"), CONFIG).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.current_dir(folder).args(["code", "--hf-config", "config.json", "--batch", "2", "--seq", "16"]).args(flags);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs PyTorch"]
fn the_plain_loop_runs() {
    for flags in [
        &["--accumulation", "3", "--checkpointing", "full"][..],
        &["--precision", "fp32", "--optimizer", "sgd-momentum", "--clip-grad-norm=false", "--attention", "eager"],
        &["--lora-rank", "4", "--base-dtype", "bfloat16", "--checkpointing", "full"],
        &["--precision", "bf16", "--optimizer-impl", "fused", "--zero-grad", "zero"],
        &["--checkpointing", "reentrant", "--activation-offloading", "checkpoint-inputs"],
        &["--optimizer-in-backward", "true", "--optimizer-impl", "for-loop", "--activation-offloading", "save-on-cpu"],
        &["--optimizer", "rmsprop-momentum", "--optimizer-impl", "for-loop", "--zero-grad-at", "after-step"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        // A hundred micro-batches: with three a step the last step has one.
        let code = written(folder.path(), flags).replace("range(100)", "range(7)") + "print(\"steps\", step + 1)\n";
        std::fs::write(folder.path().join("train.py"), code).unwrap();
        let output = ready_python().current_dir(folder.path()).arg("train.py").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
        let steps = if flags.contains(&"--accumulation") { 3 } else { 7 };
        assert!(text.contains(&format!("steps {steps}")), "{flags:?}: {text}");
    }
}

#[test]
#[ignore = "needs PyTorch"]
fn the_trainers_script_is_python_and_its_arguments_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let code = written(
        folder.path(),
        &["--as", "trainer", "--lora-rank", "4", "--quantization", "nf4-double", "--checkpointing", "full"],
    );
    std::fs::write(folder.path().join("train.py"), code).unwrap();
    // The calls are made as they are written; what would load a model or data is not.
    let check = "
import ast, inspect, sys
import peft, transformers
known = {name: getattr(transformers, name, None) or getattr(peft, name, None)
         for name in ('TrainingArguments', 'LoraConfig', 'BitsAndBytesConfig')}
seen = set()
for call in ast.walk(ast.parse(open('train.py').read())):
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in known:
        parameters = inspect.signature(known[call.func.id].__init__).parameters
        for keyword in call.keywords:
            assert keyword.arg in parameters, keyword.arg
        seen.add(call.func.id)
assert seen == set(known), seen
";
    let output = ready_python().current_dir(folder.path()).args(["-c", check]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
