//! An estimate as a picture: an SVG of its own, with its colours for light and dark.

use std::fmt::Write as _;

use plimsoll_estimate::{Estimate, Verdict};
use plimsoll_ground::Bytes;
use plimsoll_scenario::Scenario;

use crate::kind::Colours;
use crate::{Kind, Part, card_name, fit, model_name, parts, place, recipe, verdict, wrapped};

/// Width of the picture, px.
const WIDTH: f64 = 760.0;
/// Free at both sides, px.
const MARGIN: f64 = 28.0;
/// Top and height of the bar, px.
const BAR: (f64, f64) = (150.0, 46.0);
/// Letters of a line of small text that fit between the margins.
const LETTERS: usize = 104;

/// The picture: the question, the verdict, the peak as one bar against the load line, and what it is stacked of.
pub fn picture(scenario: &Scenario, estimate: &Estimate) -> String {
    let parts: Vec<Part> = parts(estimate).into_iter().filter(|part| !part.bytes.is_zero()).collect();
    let rows = parts.len().div_ceil(2);
    let height = BAR.0 + BAR.1 + 74.0 + rows as f64 * 22.0 + 34.0;
    let title = format!("{} on {}", model_name(scenario), card_name(scenario));
    let spoken = format!("{title}: {}, {}", estimate.verdict.label(), verdict(estimate));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         aria-label=\"{}\">\n<style>{}</style>\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n",
        escaped(&spoken),
        style(),
    );
    text(&mut svg, "title", MARGIN, 42.0, &fit(&title, 62));
    for (index, line) in wrapped(&recipe(scenario), LETTERS).iter().take(2).enumerate() {
        text(&mut svg, "quiet", MARGIN, 64.0 + 17.0 * index as f64, line);
    }
    let deep = if estimate.verdict == Verdict::Fits { "verdict" } else { "verdict deep" };
    text(&mut svg, deep, MARGIN, 124.0, &capital(estimate.verdict.label()));
    let beside =
        format!("peak {}, load line {}: {}", estimate.peak.process, estimate.device.load_line, verdict(estimate));
    // The word's width: its letters at two thirds of their height, which is more than any of them takes.
    text(&mut svg, "beside", MARGIN + 24.0 + estimate.verdict.label().len() as f64 * 17.0, 124.0, &fit(&beside, 72));
    bar(&mut svg, estimate, &parts);
    legend(&mut svg, &parts);
    text(
        &mut svg,
        "quiet",
        MARGIN,
        height - 18.0,
        &fit(&format!("At the peak: {}. Plimsoll", place(estimate)), LETTERS),
    );
    svg.push_str("</svg>\n");
    svg
}

/// The bar: the card's capacity wide, or the peak where that is more.
fn bar(svg: &mut String, estimate: &Estimate, parts: &[Part]) {
    let (top, height) = BAR;
    let whole = estimate.device.capacity.max(estimate.peak.process).get().max(1) as f64;
    let x = |bytes: Bytes| MARGIN + bytes.get() as f64 / whole * (WIDTH - 2.0 * MARGIN);
    let _ = writeln!(
        svg,
        "<rect class=\"sea\" x=\"{MARGIN}\" y=\"{top}\" width=\"{:.1}\" height=\"{height}\"/>",
        x(estimate.device.capacity) - MARGIN
    );
    let mut below = Bytes::ZERO;
    for part in parts {
        let from = x(below);
        below = below.checked_add(part.bytes).unwrap_or(below);
        let width = x(below) - from;
        let class = part.kind.class();
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{height}\"/>"
        );
    }
    let line = x(estimate.device.load_line);
    let _ = writeln!(
        svg,
        "<path class=\"edge\" d=\"M{line:.1} {top}v{height}\"/><path class=\"mark\" d=\"M{line:.1} {:.1}V{:.1}\"/><circle class=\"mark\" cx=\"{line:.1}\" cy=\"{:.1}\" r=\"5\"/>",
        top - 6.0,
        top + height + 8.0,
        top + height + 13.0
    );
    // The label stands on the side of its mark where there is room.
    let (anchor, at) = if line > WIDTH / 2.0 { ("end", line - 12.0) } else { ("start", line + 12.0) };
    let _ = writeln!(
        svg,
        "<text class=\"quiet\" text-anchor=\"{anchor}\" x=\"{at:.1}\" y=\"{:.1}\">load line {} of {}</text>",
        top + height + 18.0,
        estimate.device.load_line,
        estimate.device.capacity
    );
}

/// What the colours are, two columns from the keel up.
fn legend(svg: &mut String, parts: &[Part]) {
    let top = BAR.0 + BAR.1 + 54.0;
    let rows = parts.len().div_ceil(2);
    for (index, part) in parts.iter().enumerate() {
        let (column, row) = (index / rows.max(1), index % rows.max(1));
        let (x, y) = (MARGIN + column as f64 * (WIDTH / 2.0 - 8.0), top + row as f64 * 22.0);
        let _ = writeln!(
            svg,
            "<rect class=\"{}\" x=\"{x}\" y=\"{}\" width=\"14\" height=\"14\"/>",
            part.kind.class(),
            y - 11.0
        );
        text(svg, "name", x + 22.0, y + 1.0, part.kind.label());
        let _ = writeln!(
            svg,
            "<text class=\"figure\" text-anchor=\"end\" x=\"{}\" y=\"{}\">{}</text>",
            x + 320.0,
            y + 1.0,
            part.bytes
        );
    }
}

/// The colours of light and of dark.
fn style() -> String {
    let mut style = String::from(
        "text{font-family:system-ui,sans-serif}.title{font-size:22px;font-weight:700}.quiet{font-size:13px}.verdict{font-size:30px;font-weight:800}\
         .beside{font-size:15px}.name,.figure{font-size:14px}.figure{font-variant-numeric:tabular-nums}",
    );
    let theme = |colours: &Colours, of: fn(&Kind) -> &'static str| {
        let kinds: String = Kind::ALL.iter().map(|kind| format!(".{}{{fill:{}}}", kind.class(), of(kind))).collect();
        let Colours { paper, ink, quiet, sea, signal } = colours;
        format!(
            ".paper{{fill:{paper}}}text{{fill:{ink}}}.quiet{{fill:{quiet}}}.sea{{fill:{sea}}}.deep{{fill:{signal}}}\
             .mark{{fill:{ink};stroke:{ink};stroke-width:3}}.edge{{stroke:{paper};stroke-width:7}}{kinds}"
        )
    };
    style.push_str(&theme(&Colours::LIGHT, |kind| kind.colours()[0]));
    let dark = theme(&Colours::DARK, |kind| kind.colours()[1]);
    style.push_str(&format!("@media(prefers-color-scheme:dark){{{dark}}}"));
    style
}

fn text(svg: &mut String, class: &str, x: f64, y: f64, content: &str) {
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(content));
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Text within XML: names come from files and links of strangers. What no XML may hold is left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markdown::tests::estimated;

    #[test]
    fn the_picture_shows_question_verdict_and_every_part() {
        let (scenario, estimate) = estimated();
        let svg = picture(&scenario, &estimate);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("me/&lt;b&gt;ship&lt;/b&gt; on GeForce RTX 4090") && !svg.contains("<b>"), "{svg}");
        assert!(svg.contains(">Fits</text>"));
        for part in parts(&estimate).iter().filter(|part| !part.bytes.is_zero()) {
            assert!(svg.contains(&format!("<rect class=\"{}\"", part.kind.class())), "{:?}", part.kind);
            assert!(svg.contains(&format!(">{}</text>", part.bytes)));
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn long_names_stay_within_the_picture() {
        assert_eq!(fit(&"x".repeat(100), 62).chars().count(), 62);
        assert!(wrapped(&"word ".repeat(60), LETTERS).iter().all(|line| line.chars().count() <= LETTERS));
        assert_eq!(escaped("a\u{0}<&\"\u{1b}"), "a &lt;&amp;&quot; ");
    }
}
