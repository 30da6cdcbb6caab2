//! How long people wait in a browser: what the journeys of `tests/tests/e2e/latency.rs` say, as a part of the page.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use plimsoll_core::grouped;

use crate::crates::Crate;
use crate::size::Size;
use crate::{machine, page};

/// What a line with a figure begins with.
const MARK: &str = "plimsoll-browser ";

/// Crates listed by name; what is less stands together.
const LISTED: usize = 22;

/// One wait, in ms.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// From what to what.
    pub name: String,
    /// Samples.
    pub runs: usize,
    /// The middle one, the 95th percentile and the slowest.
    pub ms: [f64; 3],
}

/// The figures among whatever else was printed.
///
/// # Errors
/// There are none, or one cannot be read.
pub fn waits(said: &str) -> Result<Vec<Wait>> {
    // The test harness may have written the name of its test before it.
    let lines = said.lines().filter_map(|line| Some(line.split_once(MARK)?.1));
    let waits: Result<Vec<Wait>> =
        lines.map(|line| wait(line).with_context(|| format!("{line:?} is no figure"))).collect();
    let waits = waits?;
    ensure!(!waits.is_empty(), "the journeys said no figure");
    Ok(waits)
}

fn wait(line: &str) -> Option<Wait> {
    let (name, figures) = line.split_once(": ")?;
    let mut words = figures.split_whitespace();
    let runs = words.next()?.parse().ok()?;
    let mut next = || words.next()?.parse().ok();
    Some(Wait { name: name.to_owned(), runs, ms: [next()?, next()?, next()?] })
}

/// The part of the page.
///
/// # Errors
/// None: what is written goes into a text.
pub fn part(waits: &[Wait], crates: &[Crate], sizes: &[Size], tools: &str) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "### In a browser\n")?;
    writeln!(
        text,
        "Measured by `cargo xtask bench browser` on {}; {}; {tools}. The planner as it is given away, from `plimsoll serve` on\n\
         the same machine. A key changes the batch; its answer counts as painted when the frame after the changed figure has\n\
         begun. The page is opened by a browser that has nothing of it. It is served with the engine's verdict on the opening\n\
         scenario, which is the first that is painted; who opens a link is shown the link's own as soon as the engine has run it,\n\
         before the planner is made.\n",
        machine::date(),
        machine::describe(),
    )?;
    writeln!(text, "| from, to | samples | median | 95 % | slowest |\n| --- | ---: | ---: | ---: | ---: |")?;
    for Wait { name, runs, ms: [median, late, slowest] } in waits {
        let name = match name.split_once(' ') {
            Some(("key", model)) => format!("a key, the painted answer: {model}"),
            _ => name.clone(),
        };
        writeln!(text, "| {name} | {runs} | {median:.1} ms | {late:.1} ms | {slowest:.1} ms |")?;
    }
    let brotli = |is: fn(&str) -> bool| sizes.iter().filter(|size| is(&size.name)).map(|size| size.brotli).sum::<u64>();
    let (sent, rest) = (brotli(|name| !later(name)), brotli(follows));
    let first = brotli(|name| STARTS.iter().any(|ending| name.ends_with(ending)) && !later(name) && !follows(name));
    writeln!(text, "\n### What it is made of\n")?;
    writeln!(
        text,
        "A first visit is sent {} bytes: {} are what stands before the planner does (page, styles, script, and the WebAssembly that\n\
         starts), {} the functions that nobody calls while the page opens, which follow, and the others fonts and lists. Of the\n\
         WebAssembly in one, before wasm-opt and before it is compressed, by the crate a function is of; what is generic counts\n\
         where it is written, not where it is used:\n",
        grouped(sent),
        grouped(first),
        grouped(rest)
    )?;
    writeln!(text, "| crate | functions | bytes |\n| --- | ---: | ---: |")?;
    let (listed, rest) = crates.split_at(crates.len().min(LISTED));
    for one in listed {
        writeln!(text, "| `{}` | {} | {} |", one.name, grouped(one.functions), grouped(one.bytes))?;
    }
    let sum = |of: fn(&Crate) -> u64, crates: &[Crate]| crates.iter().map(of).sum::<u64>();
    let line = |crates: &[Crate]| (grouped(sum(|c| c.functions, crates)), grouped(sum(|c| c.bytes, crates)));
    let ((functions, bytes), (all_functions, all_bytes)) = (line(rest), line(crates));
    writeln!(text, "| {} others | {functions} | {bytes} |", rest.len())?;
    writeln!(text, "| **code** | {all_functions} | {all_bytes} |")?;
    Ok(text)
}

/// What the planner is made of before it stands; `worker.js` among it, which is half a kilobyte.
const STARTS: [&str; 4] = [".html", ".css", ".js", ".wasm"];

/// The half of the planner that follows the one that starts.
fn follows(name: &str) -> bool {
    name.starts_with("rest-")
}

/// What is only fetched when somebody asks for it.
fn later(name: &str) -> bool {
    let name = page::unhashed(name);
    let one_of_many =
        (name.starts_with("hulls/") || name.starts_with("measurements/")) && !name.ends_with("index.json");
    // The service worker and what it fetches come after the page; other sites fetch the picture, and lawyers the licence.
    one_of_many || ["social.png", "fonts/OFL.txt", "offline.js"].contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_among_others() {
        let said = "running 2 tests\ntest latency::keys ... plimsoll-browser key gpt2: 60 21.5 30.25 41\n\
            plimsoll-browser opening, processor throttled: 9 700 800.5 900.0\nok\n";
        let waits = waits(said).unwrap();
        assert_eq!(waits[0], Wait { name: "key gpt2".into(), runs: 60, ms: [21.5, 30.25, 41.0] });
        assert_eq!(waits[1].name, "opening, processor throttled");
        assert!(super::waits("ok").is_err() && super::waits("plimsoll-browser key: fast").is_err());
    }

    #[test]
    fn the_part_has_every_wait_and_crate() {
        let waits = waits("plimsoll-browser key gpt2: 60 21.5 30.25 41").unwrap();
        let crates: Vec<Crate> =
            (0..30).map(|i| Crate { name: format!("crate{i}"), functions: 10, bytes: 1000 - i }).collect();
        let sizes = ["index.html", "hulls/a.hull", "rest-0.wasm", "fonts/a.woff2"].map(|name| Size {
            name: name.into(),
            raw: 9,
            gzip: 8,
            brotli: 7,
        });
        let text = part(&waits, &crates, &sizes, "wasm-opt 132").unwrap();
        for expected in [
            "| a key, the painted answer: gpt2 | 60 | 21.5 ms | 30.2 ms | 41.0 ms |",
            "is sent 21 bytes: 7 are what stands",
            "starts), 7 the functions",
            "| `crate0` | 10 | 1,000 |",
            "| 8 others | 80 |",
            "| **code** | 300 |",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
    }
}
