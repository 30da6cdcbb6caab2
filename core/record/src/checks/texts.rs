//! Texts: short, printable, and nothing in them that identifies a person or a machine.

use plimsoll_ground::is_hidden;
use serde_json::Value;

use super::super::identity::identifying;
use super::super::problems::Problems;
use super::super::{MESSAGE, Measurement};

/// Longest name of a device or setting of the allocator, in characters.
const NAME: usize = 256;

/// Longest version, in characters.
const VERSION: usize = 64;

/// Most texts of one record that are told of: one leak often repeats.
const TOLD: usize = 20;

pub fn check(record: &Measurement, problems: &mut Problems) {
    day(&record.taken, problems);
    versions(record, problems);
    text(problems, "device.name", &record.device.name, NAME);
    for (index, rank) in record.ranks.iter().enumerate() {
        if let Some(name) = &rank.device {
            text(problems, &format!("ranks[{index}].device"), name, NAME);
        }
    }
    // A variable that is set to nothing is no setting.
    if let Some(conf) = record.allocator.conf.as_ref().filter(|conf| !conf.is_empty()) {
        text(problems, "allocator.conf", conf, NAME);
    }
    for (index, event) in record.events.iter().enumerate() {
        text(problems, &format!("events[{index}].message"), &event.message, MESSAGE);
    }
    // The scenario is checked for what it may hold elsewhere; only a pasted config can hold anything.
    let mut told = 0;
    inside(problems, "scenario", &record.scenario, &mut told);
    if let Some(estimate) = &record.estimate {
        inside(problems, "estimate", estimate, &mut told);
    }
}

fn text(problems: &mut Problems, key: &str, text: &str, most: usize) {
    let length = text.chars().count();
    if text.is_empty() || length > most {
        problems.add(key, format!("{length} characters where 1 to {most} are expected"), "shorten it");
    }
    hidden(problems, key, text);
    identity(problems, key, text);
}

fn hidden(problems: &mut Problems, key: &str, text: &str) {
    if text.chars().any(is_hidden) {
        let hint = "write it on one line, in characters that can be seen";
        problems.add(key, "there are control characters or others that nobody sees in it", hint);
    }
}

fn identity(problems: &mut Problems, key: &str, text: &str) {
    if let Some(what) = identifying(text) {
        problems.add(key, format!("{what} is in it"), "take it out: a record holds nothing that identifies anyone");
    }
}

/// All texts inside a free value, keys too.
fn inside(problems: &mut Problems, path: &str, value: &Value, told: &mut usize) {
    match value {
        Value::String(text) if *told < TOLD && (identifying(text).is_some() || text.chars().any(is_hidden)) => {
            *told += 1;
            hidden(problems, path, text);
            identity(problems, path, text);
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                inside(problems, &format!("{path}[{index}]"), item, told);
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                if key.chars().any(is_hidden) {
                    hidden(problems, path, key);
                } else if identifying(key).is_some() {
                    // Not repeated in the message's key: it would be shown to others.
                    identity(problems, path, key);
                } else {
                    inside(problems, &format!("{path}.{key}"), item, told);
                }
            }
        }
        _ => {}
    }
}

fn versions(record: &Measurement, problems: &mut Problems) {
    let software = &record.software;
    let needed = [
        ("plimsoll", Some(&record.plimsoll)),
        ("software.torch", Some(&software.torch)),
        ("software.python", Some(&software.python)),
        ("software.transformers", software.transformers.as_ref()),
        ("software.peft", software.peft.as_ref()),
        ("software.torchvision", software.torchvision.as_ref()),
        ("software.bitsandbytes", software.bitsandbytes.as_ref()),
        ("software.cuda", software.cuda.as_ref()),
        ("software.hip", software.hip.as_ref()),
        ("device.driver", record.device.driver.as_ref()),
        ("device.capability", record.device.capability.as_ref()),
    ];
    for (key, version) in needed {
        let Some(version) = version else { continue };
        let letters = |c: char| c.is_ascii_alphanumeric() || "._+~-".contains(c);
        let good = version.len() <= VERSION
            && version.starts_with(|c: char| c.is_ascii_alphanumeric())
            && version.contains(|c: char| c.is_ascii_digit())
            && version.chars().all(letters);
        problems.unless(
            good,
            key,
            || "it is not a version".to_owned(),
            "give it as the package prints it, as 2.11.0+cu128",
        );
    }
    problems.unless(
        ["linux", "windows", "macos"].contains(&software.os.as_str()),
        "software.os",
        || "it is no system that is known".to_owned(),
        "use one of linux, windows, macos",
    );
}

/// `2026-11-20`, a day that exists.
fn day(text: &str, problems: &mut Problems) {
    let parts: Vec<&str> = text.split('-').collect();
    let number = |text: &str, length: usize| -> Option<u32> {
        (text.len() == length && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
    };
    let good = match parts.as_slice() {
        [year, month, day] => match (number(year, 4), number(month, 2), number(day, 2)) {
            (Some(year), Some(month @ 1..=12), Some(day)) => {
                let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
                let days = match month {
                    2 if leap => 29,
                    2 => 28,
                    4 | 6 | 9 | 11 => 30,
                    _ => 31,
                };
                // No probe is older than 2026; a clock that is a century off is no clock.
                (2026..2126).contains(&year) && (1..=days).contains(&day)
            }
            _ => false,
        },
        _ => false,
    };
    let hint = "write the day it was taken as 2026-11-20; check the machine's clock";
    problems.unless(good, "taken", || "it is not the day of a measurement".to_owned(), hint);
}
