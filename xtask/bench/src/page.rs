//! docs/performance.md.

use std::fmt;

use plimsoll_bench::{CASES, Case, Question};
use plimsoll_core::grouped;

use crate::measure::{StartUp, Timing};
use crate::size::Size;

/// What the page says.
#[derive(Debug)]
pub struct Page {
    /// What was measured on.
    pub machine: String,
    /// What else ran on it, if anything did.
    pub busy: Option<String>,
    /// With what.
    pub versions: String,
    /// When.
    pub date: String,
    /// In the order of the cases.
    pub native: Vec<Timing>,
    /// In the order of the cases.
    pub wasm: Vec<Timing>,
    /// The planner's files, and how soon the server is there; not where the engine alone was measured.
    pub product: Option<(Vec<Size>, StartUp)>,
    /// The server under load, as the page before had it.
    pub load: String,
    /// The planner in a browser, as the page before had it.
    pub browser: String,
}

/// A part of the page that is measured apart, by what stands around it.
#[derive(Clone, Copy, Debug)]
pub struct Part(&'static str, &'static str);

/// The server under load.
pub const LOAD: Part = Part("<!-- load:begin -->\n", "<!-- load:end -->\n");

/// The planner in a browser.
pub const BROWSER: Part = Part("<!-- browser:begin -->\n", "<!-- browser:end -->\n");

impl Part {
    /// What a page says there; nothing when it has no such part.
    pub fn of(self, page: &str) -> &str {
        page.split_once(self.0).and_then(|(_, rest)| rest.split_once(self.1)).map_or("", |(text, _)| text)
    }

    /// A page that says something else there; `None` when it has no such part.
    pub fn put(self, page: &str, text: &str) -> Option<String> {
        let (before, rest) = page.split_once(self.0)?;
        let (_, after) = rest.split_once(self.1)?;
        Some(format!("{before}{}{text}{}{after}", self.0, self.1))
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Performance\n")?;
        writeln!(f, "Measured by `cargo xtask bench` on {} and written by it; do not edit.\n", self.date)?;
        writeln!(f, "- Machine: {}", self.machine)?;
        if let Some(busy) = &self.busy {
            writeln!(f, "- The machine was {busy}")?;
        }
        writeln!(f, "- Versions: {}\n", self.versions)?;
        self.estimates(f)?;
        if let Some((sizes, start)) = &self.product {
            planner(f, sizes)?;
            server(f, *start)?;
        }
        writeln!(f, "{}{}{}", BROWSER.0, self.browser, BROWSER.1)?;
        write!(f, "{}{}{}", LOAD.0, self.load, LOAD.1)
    }
}

impl Page {
    fn estimates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## One estimate\n")?;
        writeln!(
            f,
            "Batch 1, 2048 tokens, bf16 autocast, AdamW: both optimizer steps and the replay through the allocator.\n\
             Native is a release build; wasm is the planner's build profile, before wasm-opt, in Node. Memory is that of\n\
             the whole process (native, one process per model) or the linear memory after this and the models above it\n\
             (wasm). Of several cards, one estimate is of all roles; beside it stands how often its model's estimate on one card\n\
             would have been done in that time, and beside a hull the same of its model's own code.\n"
        )?;
        writeln!(
            f,
            "| model | target | median | fastest | runs | memory | estimated peak | of the fastest beside it |"
        )?;
        writeln!(f, "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")?;
        self.rows(f, |case| case.question == Question::Estimate, true)?;
        writeln!(f, "\n## Many at once\n")?;
        writeln!(
            f,
            "The same model in pure bf16 on an H200. The largest batch is confirmed by exact runs there and one above. The\n\
             grid has 64 batches by 32 sequences of 256 to 8192 tokens: live memory exact in all 2,048 cells, and up to\n\
             {} events replayed through the allocator, where the verdict is open; the answer is how many cells fit. Plans are\n\
             of a step of 4,194,304 tokens on eight machines of eight; the answer is how many combinations were run.\n",
            grouped(plimsoll_bench::EFFORT)
        )?;
        writeln!(f, "| question | target | median | fastest | runs | memory | answer |")?;
        writeln!(f, "| --- | --- | ---: | ---: | ---: | ---: | ---: |")?;
        self.rows(f, |case| case.question != Question::Estimate, false)?;
        writeln!(f)
    }

    /// The rows of the cases that `is_here` picks, each with its time beside that of another one where that is wanted.
    fn rows(&self, f: &mut fmt::Formatter<'_>, is_here: impl Fn(&Case) -> bool, beside: bool) -> fmt::Result {
        for (index, case) in CASES.iter().enumerate().filter(|(_, case)| is_here(case)) {
            for (target, timings) in [("native", &self.native), ("wasm", &self.wasm)] {
                let Some(timing) = timings.get(index) else { continue };
                write!(
                    f,
                    "| {} | {target} | {:.2} ms | {:.2} ms | {} | {} | {} |",
                    case.title,
                    timing.median,
                    timing.fastest,
                    timing.runs,
                    mebibytes(timing.memory),
                    grouped(timing.answer),
                )?;
                if beside {
                    let other = timings.iter().find(|other| Some(other.id.as_str()) == case.beside);
                    let ratio = other.map(|other| format!("{:.2} x", timing.fastest / other.fastest));
                    write!(f, " {} |", ratio.unwrap_or_default())?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

fn planner(f: &mut fmt::Formatter<'_>, sizes: &[Size]) -> fmt::Result {
    writeln!(f, "## The planner\n")?;
    writeln!(f, "What a first visit downloads, in bytes, as stored and as sent.\n")?;
    writeln!(f, "| file | raw | gzip | brotli |")?;
    writeln!(f, "| --- | ---: | ---: | ---: |")?;
    let mut total = (0, 0, 0);
    for size in sizes {
        let Size { name, raw, gzip, brotli } = size;
        writeln!(f, "| `{}` | {} | {} | {} |", unhashed(name), grouped(*raw), grouped(*gzip), grouped(*brotli))?;
        total = (total.0 + raw, total.1 + gzip, total.2 + brotli);
    }
    writeln!(f, "| **total** | {} | {} | {} |\n", grouped(total.0), grouped(total.1), grouped(total.2))
}

fn server(f: &mut fmt::Formatter<'_>, StartUp { runs, median, slowest }: StartUp) -> fmt::Result {
    writeln!(f, "## The server\n")?;
    writeln!(
        f,
        "From starting `plimsoll serve` to the last byte of the first answer: median {median:.1} ms, slowest\n\
         {slowest:.1} ms of {runs} starts.\n"
    )
}

fn mebibytes(n: u64) -> String {
    if n == 0 { "not known".to_owned() } else { format!("{:.1} MiB", n as f64 / 1_048_576.0) }
}

/// A file's name without the hash of its content, which changes with every build.
pub fn unhashed(name: &str) -> String {
    let is_hash = |part: &str| part.len() == 16 && part.bytes().all(|b| b.is_ascii_hexdigit());
    let mut parts = Vec::new();
    for part in name.split('-') {
        let end = part.find('.').unwrap_or(part.len());
        let (head, tail) = part.split_at(end);
        parts.push(if is_hash(head) { format!("*{tail}") } else { part.to_owned() });
    }
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_where_it_is_known() {
        assert_eq!(mebibytes(3 << 20), "3.0 MiB");
        assert_eq!(mebibytes(0), "not known");
    }

    #[test]
    fn hashes_leave_the_names() {
        assert_eq!(unhashed("planner-21ff04b3bd8e7f04.wasm"), "planner-*.wasm");
        assert_eq!(unhashed("style-21ff04b3bd8e7f04.css"), "style-*.css");
        assert_eq!(unhashed("inter-latin.woff2"), "inter-latin.woff2");
    }

    #[test]
    fn the_page_holds_every_measurement() {
        let timing =
            |id: &str, median| Timing { id: id.into(), runs: 31, median, fastest: 1.0, answer: 5000, memory: 0 };
        let all = |median| CASES.iter().map(|case| timing(case.id, median)).collect::<Vec<_>>();
        let page = Page {
            machine: "2 cores".into(),
            busy: Some("not idle".into()),
            versions: "rustc".into(),
            date: "2026-11-20".into(),
            native: all(1.5),
            wasm: all(4.25),
            product: Some((
                vec![Size { name: "index.html".into(), raw: 2000, gzip: 900, brotli: 800 }],
                StartUp { runs: 21, median: 12.34, slowest: 20.0 },
            )),
            load: "64 clients\n".into(),
            browser: "keys\n".into(),
        };
        let text = page.to_string();
        assert_eq!((LOAD.of(&text), BROWSER.of(&text)), ("64 clients\n", "keys\n"));
        let other = LOAD.put(&text, "65 clients\n").unwrap();
        assert_eq!((LOAD.of(&other), BROWSER.of(&other)), ("65 clients\n", "keys\n"));
        assert_eq!(LOAD.put("# Performance", ""), None);
        for expected in [
            "| Llama-2-7B | native | 1.50 ms |",
            "| Llama-2-7B | wasm | 4.25 ms |",
            "| **total** | 2,000 | 900 | 800 |",
            "median 12.3 ms",
            "| GPT-2 from a hull | native | 1.50 ms | 1.00 ms | 31 | not known | 5 000 | 1.00 x |",
            "- The machine was not idle",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
    }
}
