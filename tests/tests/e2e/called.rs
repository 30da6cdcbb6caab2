//! Which functions the page calls while it opens: what is sent first. All others follow, by `web/bundle/later.txt`, which
//! `cargo xtask bench browser` has this write.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fantoccini::key::Key;

use crate::{figures::agreed, journey::journey};

/// What somebody opens, or was sent: what these call is sent first. A link to another family calls for the rest.
pub const OPENED: [&str; 3] = ["", "?model=llama-3.1-8b&gpu=rtx-5070-ti", "?model=llama-3.1-8b&gpu=b200&lora=16"];

/// How long what follows the first answer is waited for.
const REST: Duration = Duration::from_secs(4);

/// What the list says of itself.
const HEAD: &str = "\
# Functions that nobody calls while the page opens: they follow what is sent first. Written by `cargo xtask bench browser`
# from the build that is given away; each line is the mark of a function's name (web/bundle/src/later.rs).
";

#[test]
#[ignore = "writes web/bundle/later.txt: cargo xtask bench browser"]
fn the_list_of_what_waits_is_written() -> Result<()> {
    let file = |variable: &str| std::env::var_os(variable).with_context(|| format!("{variable} names no file"));
    let marks = fs::read_to_string(file("MARKS")?)?;
    let marks: Vec<&str> = marks.lines().collect();
    journey("called", async |journey| {
        let mut called: BTreeSet<&str> = BTreeSet::new();
        for link in OPENED {
            let page = journey.browser().await?;
            page.open(link).await?;
            agreed(&page).await?;
            tokio::time::sleep(REST).await;
            page.retype("batch", "1").await?;
            page.press(Key::Up).await?;
            tokio::time::sleep(REST).await;
            let numbers = page.eval("return called").await?;
            let numbers = numbers.as_array().context("the planner notes no calls")?.iter().filter_map(|n| n.as_u64());
            called.extend(numbers.filter_map(|number| marks.get(usize::try_from(number).ok()?).copied()));
        }
        // What has no name has no mark.
        let waits: BTreeSet<&&str> =
            marks.iter().filter(|mark| **mark != "00000000" && !called.contains(*mark)).collect();
        ensure!(called.len() > 1000 && waits.len() > 1000, "{} are called, {} are not", called.len(), waits.len());
        let lines: String = waits.iter().map(|mark| format!("{mark}\n")).collect();
        fs::write(file("LATER")?, format!("{HEAD}{lines}"))?;
        println!("{} functions are called while the page opens, {} are not", called.len(), waits.len());
        Ok(())
    })
}
