//! The ladder of marks: how deep the same run would sit with each lever.

use leptos::prelude::*;
use plimsoll_web::gauge::{Gauge, NARROW, Rung};
use plimsoll_web::neighbours::Neighbour;
use plimsoll_web::number;

use super::browser;
use super::gauge::{Drawn, part};
use super::planner::Planner;

/// Where the ladder stands on the drawing.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Frame {
    staff: f64,
    names: f64,
    figures: f64,
    /// Length of a mark.
    tick: f64,
}

impl Frame {
    fn of(gauge: &Gauge) -> Self {
        let tick = if gauge.width < NARROW { 12.0 } else { 24.0 };
        Self { staff: gauge.staff, names: gauge.columns.0, figures: gauge.columns.1, tick }
    }
}

#[component]
pub fn Ladder(gauge: Memo<Option<Drawn>>) -> impl IntoView {
    let staff = part(gauge, |Drawn { gauge, .. }| {
        let foot = gauge.scale.bottom;
        let head = gauge.rungs.iter().map(|r| r.y).fold(foot, f64::min).min(gauge.mark.y);
        (gauge.staff, head - 6.0, foot)
    });
    let own = part(gauge, |Drawn { gauge, .. }| {
        Some((gauge.rungs.first()?.clone(), Frame::of(gauge), gauge.waterline < gauge.mark.y))
    });
    let this_run = Memo::new(move |_| own.get().flatten().map(|(rung, frame, _)| (rung, frame)));
    let neighbours = part(gauge, |drawn| drawn.rungs.iter().map(|r| r.neighbour).collect::<Vec<_>>());
    let is_narrow = part(gauge, |Drawn { gauge, .. }| gauge.width < NARROW);
    view! {
        <g class="ladder" class:is-narrow=move || is_narrow.get() == Some(true)>
            {move || {
                staff
                    .get()
                    .map(|(x, head, foot)| view! { <line class="staff" x1=x x2=x y1=head y2=foot aria-hidden="true"/> })
            }}
            <For
                each=move || neighbours.get().unwrap_or_default()
                key=|neighbour| neighbour.label
                children=move |neighbour| view! { <RungMark gauge neighbour/> }
            />
            <g class="rung rung-own" class:is-below=move || own.get().flatten().is_some_and(|own| own.2) aria-hidden="true">
                <Strokes mark=this_run/>
                <RungFigure mark=this_run/>
            </g>
        </g>
    }
}

/// The mark of one neighbour, once it is known where it stands.
#[component]
fn RungMark(gauge: Memo<Option<Drawn>>, neighbour: &'static Neighbour) -> impl IntoView {
    let planner = Planner::get();
    let known = part(gauge, move |Drawn { gauge, rungs, .. }| {
        let place = rungs.iter().position(|r| r.neighbour == neighbour)?;
        let peak = rungs.get(place)?.peak.as_ref()?.as_ref().ok()?.process;
        // The first of the gauge's is the run itself.
        Some((gauge.rungs.get(place + 1)?.clone(), Frame::of(gauge), peak))
    });
    let mark = Memo::new(move |_| known.get().flatten().map(|(rung, frame, _)| (rung, frame)));
    let is_known = Memo::new(move |_| mark.with(Option::is_some));
    // What is written stands first in what is said: who speaks to the page says what they read.
    let about = move || {
        let (rung, _, peak) = known.get().flatten()?;
        let side = if rung.deep { "too much" } else { "fits" };
        Some(format!("{}: {}, {side}. Apply {}.", rung.name, number::bytes(peak), neighbour.label))
    };
    move || {
        is_known.get().then(|| {
            view! {
                <g class="rung" class:is-below=move || mark.with(|m| m.as_ref().is_some_and(|(rung, _)| rung.deep))>
                    <g
                        class="rung-button"
                        role="button"
                        tabindex="0"
                        aria-label=about
                        data-lever=neighbour.label
                        on:click=move |_| planner.climb(neighbour)
                        on:keydown=move |event| {
                            if matches!(event.key().as_str(), "Enter" | " ") {
                                event.prevent_default();
                                planner.climb(neighbour);
                                browser::focus("verdict");
                            }
                        }
                    >
                        <title>{neighbour.cost}</title>
                        <rect
                            class="rung-target"
                            x=of(mark, |_, frame| frame.names - 6.0)
                            y=of(mark, |rung, _| rung.label - 12.5)
                            width=of(mark, |_, frame| frame.figures - frame.names + 12.0)
                            height="25"
                            rx="2"
                        />
                        <Strokes mark/>
                    </g>
                    <RungFigure mark/>
                </g>
            }
        })
    }
}

/// What of a rung is drawn.
fn of<T>(mark: Memo<Option<(Rung, Frame)>>, what: impl Fn(&Rung, Frame) -> T) -> impl Fn() -> Option<T> {
    move || mark.with(|mark| mark.as_ref().map(|(rung, frame)| what(rung, *frame)))
}

/// A mark on the staff, its label, and the line between them.
#[component]
fn Strokes(mark: Memo<Option<(Rung, Frame)>>) -> impl IntoView {
    view! {
        <path class="rung-mark" d=of(mark, |rung, frame| format!("M{} {}h{}", frame.staff, rung.y, frame.tick))/>
        <path class="rung-lead" d=of(mark, |rung, frame| lead(frame, rung))/>
        <text class="rung-label" x=of(mark, |_, frame| frame.names) y=of(mark, |rung, _| rung.label + 4.5)>
            {of(mark, |rung, _| rung.name)}
        </text>
    }
}

/// The figure at a rung: no part of its button, whose name would have to say it as it is written.
#[component]
fn RungFigure(mark: Memo<Option<(Rung, Frame)>>) -> impl IntoView {
    view! {
        <text
            class="rung-value figure-end"
            x=of(mark, |_, frame| frame.figures)
            y=of(mark, |rung, _| rung.label + 4.5)
            aria-hidden="true"
        >
            {of(mark, |rung, _| rung.figure.clone())}
        </text>
    }
}

/// From the mark to its label.
fn lead(frame: Frame, rung: &Rung) -> String {
    format!("M{} {}L{} {}H{}", frame.staff + frame.tick, rung.y, frame.names - 9.0, rung.label, frame.names - 4.0)
}
