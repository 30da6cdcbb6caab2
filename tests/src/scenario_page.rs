//! `docs/scenario.md`: every key of a scenario, from the table of levers and the rows of the families.

use std::fmt::{Error, Write as _};

use plimsoll_core::catalog::families::{FamilyKey, FamilyKeyKind, OWN};
use plimsoll_core::scenario::{Entry, Kind, Lever, Mode, SECTIONS, Scenario, Table};
use serde_json::Value;

const HEAD: &str = "\
<!-- Written by `cargo xtask reference` from the table of levers. -->
# The scenario

A scenario says what is run. It is one format everywhere: a file in TOML (JSON has the same shape), the flags of `plimsoll`, a
share link, the controls of the planner, the `scenario` of a measurement. Everything but the model has a default. A key that is not
known is refused with the nearest one that is, and so is what a model does not take.

```toml
";

const FOOT: &str = "\
```

Below, *flag* is what `plimsoll estimate` and `plimsoll probe` call a key, *link* its name in a share link. Those marked † say nothing
in inference, those marked ‡ nothing in training.
";

/// The page.
///
/// # Errors
/// None that writing to a text could have.
pub fn page() -> Result<String, Error> {
    let mut page = HEAD.to_owned();
    writeln!(page, "{}", Scenario::default().to_toml().trim_end())?;
    page.push_str(FOOT);
    for section in SECTIONS {
        table(&mut page, section, 2)?;
    }
    families(&mut page)?;
    Ok(page)
}

fn table(page: &mut String, table: &'static Table, depth: usize) -> Result<(), Error> {
    writeln!(page, "\n{} [{}]\n\n{}\n", "#".repeat(depth), table.path, table.about)?;
    page.push_str("| key | what it is | takes | default | flag | link |\n| --- | --- | --- | --- | --- | --- |\n");
    let levers = || {
        table.entries.iter().filter_map(|entry| match entry {
            Entry::Lever(lever) => Some(*lever),
            Entry::Table(_) => None,
        })
    };
    for lever in levers() {
        let mark = match lever.row.only {
            Some(Mode::Train) => " †",
            Some(Mode::Inference) => " ‡",
            None => "",
        };
        writeln!(
            page,
            "| `{}`{mark} | {} | {} | {} | `--{}` | `{}` |",
            lever.name(),
            lever.about,
            lever.row.kind.in_words(),
            default(lever),
            flag(lever),
            lever.row.link,
        )?;
    }
    for lever in levers() {
        if let Kind::Words(words) = lever.row.kind {
            writeln!(page, "\n`{}`:\n", lever.name())?;
            for word in words {
                writeln!(page, "- `{}`: {}", word.key, word.about)?;
            }
        }
    }
    for entry in table.entries {
        if let Entry::Table(within) = entry {
            self::table(page, within, depth + 1)?;
        }
    }
    Ok(())
}

/// What holds when nothing is said.
fn default(lever: &Lever) -> String {
    match lever.constant() {
        _ if !lever.row.otherwise.is_empty() => lever.row.otherwise.to_owned(),
        Some(Value::String(word)) => format!("`{word}`"),
        other => format!("`{}`", other.unwrap_or_default()),
    }
}

fn flag(lever: &Lever) -> String {
    if lever.row.link == "model" { "model".to_owned() } else { lever.id("-") }
}

/// The keys beside `family`.
fn families(page: &mut String) -> Result<(), Error> {
    page.push_str(
        "\n## Families of our own\n\nTheir keys stand in `[model]` beside `family`; `--set KEY=VALUE` gives one.\n",
    );
    for family in OWN {
        writeln!(page, "\n### {}\n\nIt is {}.\n", family.name, family.about())?;
        page.push_str("| key | what it is | takes | default |\n| --- | --- | --- | --- |\n");
        for key in family.keys() {
            let default = match key.kind.default() {
                Value::String(word) => word,
                other => other.to_string(),
            };
            writeln!(page, "| `{}` | {} | {} | `{default}` |", key.name, key.about, takes(key))?;
        }
    }
    Ok(())
}

fn takes(key: &FamilyKey) -> String {
    match key.kind {
        FamilyKeyKind::Count { most, .. } => Kind::Count { most }.in_words(),
        FamilyKeyKind::Fraction { .. } => Kind::Fraction.in_words(),
        FamilyKeyKind::Flag { .. } => Kind::Flag.in_words(),
        FamilyKeyKind::Word { words, .. } => {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
    }
}
