//! From a scenario to the command that asks the same in a terminal.

use plimsoll_catalog::families;

use super::encode::{encode, said, text};
use crate::{Device, ModelSource, Scenario};

pub(super) fn command(scenario: &Scenario) -> String {
    asked_of("plimsoll estimate", scenario)
}

/// The probe on a card that is not there.
pub(super) fn rehearsal(scenario: &Scenario) -> String {
    let Device { gpu, memory, .. } = &scenario.device;
    let memory = memory.map(|bytes| format!(" --memory {}", bytes.get())).unwrap_or_default();
    asked_of(&format!("plimsoll rehearse --gpu {}{memory} -- plimsoll probe run", quoted(gpu)), scenario)
}

fn asked_of(program: &str, scenario: &Scenario) -> String {
    let mut words = vec![program.to_owned()];
    match &scenario.model.source {
        ModelSource::Catalog(id) => words.push(format!("--model {}", quoted(id))),
        ModelSource::Family { name, keys } => {
            words.push(format!("--family {}", quoted(name)));
            for key in families::own(name).map_or(&[][..], |f| f.keys()) {
                if let Some(value) = keys.get(key.name).filter(|v| **v != key.kind.default()) {
                    words.push(format!("--set {}", quoted(&format!("{}={}", key.name, text(value)))));
                }
            }
        }
        ModelSource::Hull(hull) => {
            words.push(hull.recorded().map_or("--hull FILE".to_owned(), |row| format!("--model {}", row.id)));
            for (name, value) in hull.axes() {
                words.push(format!("--set {}", quoted(&format!("{name}={}", text(value)))));
            }
        }
        // A config is a file; a link carries it. Links escape apostrophes, so the quotes hold.
        ModelSource::HuggingFace(_) => return format!("{program} '{}'", encode(scenario)),
    }
    for lever in said(scenario) {
        if let Some(value) = lever.get(scenario) {
            words.push(format!("--{} {}", lever.id("-"), quoted(&text(&value))));
        }
    }
    words.join(" ")
}

/// One word to a shell.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{Lever, levers, samples};

    #[test]
    fn what_is_asked_is_said_in_flags() {
        let scenario = Scenario::from_value(&json!({
            "model": {"catalog": "qwen3-8b"},
            "training": {"lora": {"rank": 16}, "quantization": "nf4-double", "checkpointing": "full"},
            "device": {"gpu": "rtx-5070-ti", "memory": "11.6 GiB"},
        }));
        let command = command(&scenario.unwrap());
        for part in [
            "plimsoll estimate --model qwen3-8b --",
            " --lora-rank 16",
            " --quantization nf4-double",
            " --checkpointing full",
            " --gpu rtx-5070-ti",
            " --memory 11.6GiB",
        ] {
            assert!(command.contains(part), "{command}");
        }
    }

    #[test]
    fn a_rehearsal_is_on_the_scenarios_own_card() {
        let scenario = Scenario::from_value(&json!({
            "model": {"catalog": "gpt2"}, "training": {"compile": true}, "device": {"gpu": "rtx-4090", "memory": "20 GiB"},
        }));
        let command = rehearsal(&scenario.unwrap());
        let begins = "plimsoll rehearse --gpu rtx-4090 --memory 21474836480 -- plimsoll probe run --model gpt2 --";
        assert!(command.starts_with(begins) && command.contains(" --compile true"), "{command}");
    }

    #[test]
    fn a_word_stays_one_word() {
        assert_eq!(quoted("q_proj,v_proj"), "q_proj,v_proj");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("$(rm)"), "'$(rm)'");
    }

    proptest! {
        /// Each flag is a lever's, and its text is read back as the value.
        #[test]
        fn flags_say_what_the_scenario_says(scenario in samples::scenario()) {
            let command = command(&scenario);
            let flag = |lever: &Lever| command.contains(&format!(" --{} ", lever.id("-")));
            for lever in said(&scenario) {
                let value = lever.get(&scenario).unwrap();
                prop_assert!(matches!(scenario.model.source, ModelSource::HuggingFace(_)) || flag(lever), "{}", command);
                prop_assert_eq!(lever.row.kind.value(&text(&value)).to_string().replace(' ', ""), value.to_string().replace(' ', ""));
            }
            prop_assert!(levers().count() > 0 && !command.contains('\n'));
        }
    }
}
