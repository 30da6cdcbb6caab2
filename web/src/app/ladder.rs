//! The ladder of marks: how deep the same run would sit with each lever.

use leptos::prelude::*;
use plimsoll_core::Bytes;
use plimsoll_web::gauge::{Gauge, NARROW, Rung};
use plimsoll_web::neighbours::Neighbour;
use plimsoll_web::number;

use super::browser;
use super::planner::{NeighbourPeak, Planner};

/// Where the ladder stands on the drawing.
#[derive(Clone, Copy)]
struct Frame {
    staff: f64,
    names: f64,
    figures: f64,
    /// Length of a mark.
    tick: f64,
}

/// `deep`: whether the run itself sits deeper than its load line.
#[component]
pub fn Ladder(gauge: Gauge, rungs: Vec<NeighbourPeak>, deep: bool) -> impl IntoView {
    let narrow = gauge.width < NARROW;
    let foot = gauge.scale.bottom;
    let head = gauge.rungs.iter().map(|r| r.y).fold(foot, f64::min).min(gauge.mark.y);
    let staff = gauge.staff;
    let frame =
        Frame { staff, names: gauge.columns.0, figures: gauge.columns.1, tick: if narrow { 12.0 } else { 24.0 } };
    let this_run = gauge.rungs.first().map(|r| {
        let class = if deep { "rung rung-own is-below" } else { "rung rung-own" };
        view! {
            <g class=class aria-hidden="true">
                <path class="rung-mark" d=format!("M{staff} {}h{}", r.y, frame.tick)/>
                <path class="rung-lead" d=lead(frame, r)/>
                <text class="rung-label" x=frame.names y=r.label + 4.5>{r.name}</text>
                <text class="rung-value figure-end" x=frame.figures y=r.label + 4.5>{r.figure.clone()}</text>
            </g>
        }
    });
    let marks = rungs
        .into_iter()
        .zip(gauge.rungs.iter().skip(1).cloned())
        .filter_map(|(NeighbourPeak { neighbour, peak }, rung)| {
            let peak = peak?.ok()?.process;
            Some(view! { <RungMark neighbour peak rung frame/> })
        })
        .collect_view();
    view! {
        <g class="ladder" class:is-narrow=narrow>
            <line class="staff" x1=staff x2=staff y1=head - 6.0 y2=foot aria-hidden="true"/>
            {marks}
            {this_run}
        </g>
    }
}

#[component]
fn RungMark(neighbour: &'static Neighbour, peak: Bytes, rung: Rung, frame: Frame) -> impl IntoView {
    let planner = Planner::get();
    let side = if rung.deep { "too much" } else { "fits" };
    // What is written stands first in what is said: who speaks to the page says what they read.
    let about = format!("{}: {}, {side}. Apply {}.", rung.name, number::bytes(peak), neighbour.label);
    let Frame { staff, names, figures, tick } = frame;
    let label = rung.label;
    view! {
        <g class="rung" class:is-below=rung.deep>
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
                <rect class="rung-target" x=names - 6.0 y=label - 12.5 width=figures - names + 12.0 height="25" rx="2"/>
                <path class="rung-mark" d=format!("M{staff} {}h{tick}", rung.y)/>
                <path class="rung-lead" d=lead(frame, &rung)/>
                <text class="rung-label" x=names y=label + 4.5>{rung.name}</text>
            </g>
            <text class="rung-value figure-end" x=figures y=label + 4.5 aria-hidden="true">{rung.figure}</text>
        </g>
    }
}

/// From the mark to its label.
fn lead(frame: Frame, rung: &Rung) -> String {
    format!("M{} {}L{} {}H{}", frame.staff + frame.tick, rung.y, frame.names - 9.0, rung.label, frame.names - 4.0)
}
