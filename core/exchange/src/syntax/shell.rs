//! Command lines: `torchrun --nproc_per_node 8 train.py --bf16 True`. Each becomes a group: the program's name is what was called,
//! its options the keys.

use plimsoll_ground::Result;
use serde_json::Value;

use super::{Group, MOST_KEYS, Said, scalar};

/// Programs whose options are read.
const PROGRAMS: [&str; 14] = [
    "python",
    "python3",
    "torchrun",
    "accelerate",
    "deepspeed",
    "swift",
    "megatron",
    "trl",
    "llamafactory-cli",
    "axolotl",
    "tune",
    "lightning",
    "uv",
    "srun",
];

/// The commands of a script.
pub fn read(text: &str) -> Result<Vec<Group>> {
    // A backslash at the end of a line goes on with the next.
    let text = text.replace("\\\r\n", " ").replace("\\\n", " ");
    let mut groups = Vec::new();
    for line in text.lines() {
        let words = words(line.trim().trim_start_matches(['$', '!', '%']));
        // Variables that stand before the program: CUDA_VISIBLE_DEVICES=0,1.
        let mut start = 0;
        let mut set = Vec::new();
        while let Some((name, value)) = words.get(start).and_then(|word| word.split_once('=')) {
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit()) {
                break;
            }
            set.push(Said { key: format!("env.{name}"), value: Value::String(value.to_owned()) });
            start += 1;
        }
        let words = &words[start..];
        let Some(program) = words.first() else { continue };
        let name = program.rsplit('/').next().unwrap_or(program);
        if !PROGRAMS.contains(&name) && !name.starts_with("--") {
            continue;
        }
        groups.extend(command(words, set));
    }
    Ok(groups)
}

/// One command: what was called in words, then its options.
fn command(words: &[String], set: Vec<Said>) -> Option<Group> {
    let mut group = Group { said: set, command: true, ..Group::default() };
    let mut called: Vec<&str> = Vec::new();
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        if group.said.len() > MOST_KEYS {
            break;
        }
        let Some(option) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).filter(|o| !o.is_empty()) else {
            // `key=value` is how torchtune and hydra take theirs.
            match word.split_once('=') {
                Some((key, value)) if !key.is_empty() => {
                    group.said.push(Said { key: key.to_owned(), value: scalar(value) });
                }
                _ => called.push(word),
            }
            continue;
        };
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, scalar(value)),
            None => {
                let mut values = Vec::new();
                // What follows an option are its values, until the next one; negative numbers are values.
                while let Some(next) = rest.peek() {
                    let number = next.strip_prefix('-').is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()));
                    let script = [".py", ".yaml", ".yml", ".json"].iter().any(|ending| next.ends_with(ending));
                    // Of what follows a number only another number belongs to it: then comes the script that is run.
                    if next.starts_with('-') && !number
                        || script && !values.is_empty()
                        || script && next.ends_with(".py")
                    {
                        break;
                    }
                    values.extend(rest.next().map(|word| scalar(word)));
                }
                match values.len() {
                    0 => (option, Value::Bool(true)),
                    1 => (option, values.remove(0)),
                    _ => (option, Value::Array(values)),
                }
            }
        };
        group.said.push(Said { key: key.replace('-', "_"), value });
    }
    group.called = called.join(" ");
    (!group.said.is_empty()).then_some(group)
}

/// A line's words, as a shell parts them.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut within: Option<char> = None;
    let mut begun = false;
    for c in line.chars() {
        match within {
            Some(quote) if c == quote => within = None,
            Some(_) => word.push(c),
            None if c == '\'' || c == '"' => {
                within = Some(c);
                begun = true;
            }
            None if c == '#' && !begun => break,
            None if c.is_whitespace() || c == ';' => {
                if begun {
                    words.push(std::mem::take(&mut word));
                    begun = false;
                }
            }
            None => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_are_keys() {
        let text = "CUDA_VISIBLE_DEVICES=0,1 \\\nswift sft \\\n  --model Qwen/Qwen3-8B --train_type lora \\\n  --target_modules q_proj v_proj --learning_rate 1e-4 --bf16 --lora-rank=8 # note\n";
        let groups = read(text).unwrap();
        assert_eq!(groups.len(), 1);
        let group = &groups[0];
        assert_eq!(group.called, "swift sft");
        assert_eq!(group.get("env.CUDA_VISIBLE_DEVICES"), Some(&json!("0,1")));
        assert_eq!(group.get("target_modules"), Some(&json!(["q_proj", "v_proj"])));
        assert_eq!(group.get("learning_rate"), Some(&json!(1e-4)));
        assert_eq!(group.get("bf16"), Some(&json!(true)));
        assert_eq!(group.get("lora_rank"), Some(&json!(8)));
    }

    #[test]
    fn the_script_is_no_value() {
        let group = read("torchrun --nproc_per_node 8 train.py --deepspeed ds.json --x -1").unwrap().remove(0);
        assert_eq!(group.called, "torchrun train.py");
        assert_eq!(group.get("nproc_per_node"), Some(&json!(8)));
        assert_eq!(group.get("deepspeed"), Some(&json!("ds.json")));
        assert_eq!(group.get("x"), Some(&json!(-1)));
    }

    #[test]
    fn other_lines_are_let_be() {
        assert!(read("echo hello\ncd /tmp\nbatch: 4\n").unwrap().is_empty());
    }
}
