//! The verdict as HTML, before the planner is there. That on the opening scenario stands in the page that is given away, and is
//! read while the planner that will take its place is still being compiled; who opens a link gets the link's own in its place
//! as soon as the engine has run it, which is long before all else of the planner is made.

use plimsoll_core::{Bytes, Result, Scenario, summary};

use crate::gauge::{Gauge, INSET, Wish};
use crate::reading::Reading;
use crate::{engine, number, wording};

/// The drawing's size, in px, that its shares are of: the width of one beside the verdict, and its height there.
const DRAWING: (f64, f64) = (640.0, 584.0);

/// What is served of the opening scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The link to it: at any other address the verdict is another one's.
    pub link: String,
    /// The verdict, with the classes that the planner's has.
    pub html: String,
}

/// Asks the engine.
///
/// # Errors
/// As [`engine::read`].
pub fn opening() -> Result<Served> {
    let scenario = engine::opening();
    let (reading, _) = engine::read(&scenario)?;
    Ok(Served { link: engine::encode(&scenario), html: verdict(&scenario, &reading) })
}

/// The verdict on a scenario, by its reading.
pub fn verdict(scenario: &Scenario, reading: &Reading) -> String {
    let figure = |bytes| {
        let (number, unit) = number::parts(bytes);
        format!("<span class=\"number\">{number}</span> <span class=\"unit\">{unit}</span>")
    };
    let deep = if reading.standing.below() { " is-deep" } else { "" };
    format!(
        "<main class=\"sheet served\">\n\
         <section class=\"hero{deep}\" aria-label=\"Verdict\">\n\
         <div class=\"verdict-panel\">\n\
         <p class=\"verdict-subject\"><strong>{model}</strong> <span>{load}</span> <span>on {card}</span></p>\n\
         <p class=\"verdict\" data-served=\"verdict\">{verdict}</p>\n\
         <dl class=\"figures\">\n\
         <div class=\"figure figure-peak\"><dt><span class=\"term\">Process peak</span></dt>\
         <dd data-served=\"peak-process\">{peak}</dd></div>\n\
         <div class=\"figure figure-headroom\"><dt><span class=\"term\">{side}</span></dt>\
         <dd data-served=\"headroom\">{headroom}</dd></div>\n\
         <div class=\"figure figure-largest\"><dt><span class=\"term\">Largest batch</span></dt>\
         <dd><span class=\"number\">–</span></dd></div>\n\
         </dl>\n\
         <p class=\"where\">{place}</p>\n\
         </div>\n\
         <div class=\"gauge\" aria-hidden=\"true\"><div class=\"chart\">{drawing}</div></div>\n\
         </section>\n\
         </main>",
        model = escaped(&summary::model_name(scenario)),
        load = escaped(&wording::load(scenario)),
        card = escaped(&summary::card_name(scenario)),
        verdict = reading.standing.label(),
        peak = figure(reading.process),
        side = wording::side(reading.headroom),
        headroom = figure(Bytes::new(reading.headroom.unsigned_abs())),
        place = escaped(&wording::peak(reading)),
        drawing = drawing(reading),
    )
}

/// The hull's stack, the sea and the load line. Nobody knows yet how wide it will be: everything is a share of the drawing.
fn drawing(reading: &Reading) -> String {
    let own = Wish { label: "this run", short: "this run", peak: Some(reading.process) };
    let (width, height) = DRAWING;
    let gauge = Gauge::new(reading, &[own], width, height);
    let (across, down) = (|x: f64| share(x, width), |y: f64| share(y, height));
    let (hull, hull_width) = (across(gauge.hull.0), across(gauge.hull.1));
    let rect = |class: &str, [x, y, width, height]: &[String; 4]| {
        format!("<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>")
    };
    let line = |class: &str, y: f64| {
        let (from, to, y) = (across(gauge.hull.0 - 10.0), across(gauge.staff), down(y));
        format!("<line class=\"{class}\" x1=\"{from}\" x2=\"{to}\" y1=\"{y}\" y2=\"{y}\"/>")
    };
    let (surface, keel) = (down(gauge.waterline), height - INSET);
    let sea = [across(INSET), surface, across(gauge.staff - INSET), down(keel - gauge.waterline)];
    let mut text = format!("<svg class=\"served-gauge\" width=\"100%\">{}", rect("sea", &sea));
    let within = |y: f64, height: f64| [hull.clone(), down(y), hull_width.clone(), down(height)];
    let inside = within(gauge.capacity, gauge.scale.bottom - gauge.capacity);
    text.push_str(&rect("hull-inside", &inside));
    for segment in &gauge.segments {
        text.push_str(&rect(&format!("segment {}", segment.kind.class()), &within(segment.y, segment.height)));
    }
    text.push_str(&rect("hull", &inside));
    text.push_str(&line("surface", gauge.waterline));
    text.push_str(&line("line-through", gauge.mark.y));
    text.push_str(&rect("neatline", &["0", "0", "100%", "100%"].map(str::to_owned)));
    text.push_str("</svg>");
    text
}

/// A length as a share of another one.
fn share(length: f64, of: f64) -> String {
    format!("{:.2}%", length / of * 100.0)
}

/// Text as HTML has it, in an element and in an attribute.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{escaped, opening};
    use crate::{engine, number, wording};

    #[test]
    fn it_says_what_the_engine_says() {
        let served = opening().unwrap();
        let (reading, _) = engine::read(&engine::opening()).unwrap();
        let (peak, unit) = number::parts(reading.process);
        for expected in [
            format!("<span class=\"number\">{peak}</span> <span class=\"unit\">{unit}</span>"),
            escaped(&wording::load(&engine::opening())),
            escaped(&wording::peak(&reading)),
            format!(">{}</p>", reading.standing.label()),
        ] {
            assert!(served.html.contains(&expected), "{expected} is not in\n{}", served.html);
        }
        assert_eq!(served.link, engine::encode(&engine::opening()));
        assert_eq!(
            served.html.matches("class=\"segment ").count(),
            reading.parts.iter().filter(|p| p.bytes.get() > 0).count()
        );
    }

    #[test]
    fn the_servers_policy_allows_it() {
        let html = opening().unwrap().html;
        assert!(!html.contains(" style=") && !html.contains("<style") && !html.contains("<script"), "{html}");
    }

    #[test]
    fn text_stays_text() {
        assert_eq!(escaped("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
    }
}
