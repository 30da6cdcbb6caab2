//! The ladder of marks: how deep the same run would sit with each lever.

use leptos::prelude::*;
use plimsoll_core::Bytes;
use plimsoll_web::gauge::Gauge;
use plimsoll_web::neighbours::Neighbour;
use plimsoll_web::number;

use super::browser;
use super::gauge::NARROW;
use super::planner::{NeighbourPeak, Planner};

#[component]
pub fn Ladder(gauge: Gauge, rungs: Vec<NeighbourPeak>, own: Bytes, line: Bytes) -> impl IntoView {
    let width = gauge.width;
    let narrow = width < NARROW;
    let staff = gauge.staff;
    let foot = gauge.scale.bottom;
    let head = gauge.rungs.iter().map(|r| r.y).fold(foot, f64::min).min(gauge.mark.y);
    let label_x = staff + if narrow { 22.0 } else { 44.0 };
    let value_x = width - if narrow { 14.0 } else { 16.0 };

    let this_run = gauge.rungs.first().map(|r| {
        let class = if own > line { "rung rung-own is-below" } else { "rung rung-own" };
        view! {
            <g class=class aria-hidden="true">
                <path class="rung-mark" d=format!("M{staff} {y}h{tick}", y = r.y, tick = if narrow { 12.0 } else { 24.0 })/>
                <path class="rung-lead" d=lead(staff, r.y, label_x, r.label, narrow)/>
                <text class="rung-label" x=label_x y=r.label + 4.5>"this run"</text>
                {(!narrow).then(|| view! { <text class="rung-value figure-end" x=value_x y=r.label + 4.5>{number::gib(own)}</text> })}
            </g>
        }
    });
    let marks = rungs
        .into_iter()
        .zip(gauge.rungs.iter().skip(1).copied())
        .filter_map(|(NeighbourPeak { neighbour, peak }, place)| {
            let peak = peak?.ok()?.process;
            Some(view! {
                <RungMark neighbour peak place_y=place.y label_y=place.label beyond=place.beyond deep=place.deep staff label_x value_x narrow/>
            })
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
#[allow(clippy::too_many_arguments, reason = "a mark's place on the drawing")]
fn RungMark(
    neighbour: &'static Neighbour,
    peak: Bytes,
    place_y: f64,
    label_y: f64,
    beyond: bool,
    deep: bool,
    staff: f64,
    label_x: f64,
    value_x: f64,
    narrow: bool,
) -> impl IntoView {
    let planner = Planner::get();
    let name = if narrow { neighbour.short } else { neighbour.label };
    let side = if deep { "too much" } else { "fits" };
    let about = format!("{name}: {}, {side}. Apply.", number::bytes(peak));
    let value = format!("{}{}", number::gib(peak), if beyond { " ↑" } else { "" });
    let tick = if narrow { 12.0 } else { 24.0 };
    view! {
        <g class="rung" class:is-below=deep>
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
                <rect class="rung-target" x=label_x - 6.0 y=label_y - 12.5 width=value_x - label_x + 12.0 height="25" rx="2"/>
                <path class="rung-mark" d=format!("M{staff} {place_y}h{tick}")/>
                <path class="rung-lead" d=lead(staff, place_y, label_x, label_y, narrow)/>
                <text class="rung-label" x=label_x y=label_y + 4.5>{name}</text>
            </g>
            {(!narrow)
                .then(|| {
                    view! {
                        <text class="rung-value figure-end" x=value_x y=label_y + 4.5 aria-hidden="true">
                            {value}
                        </text>
                    }
                })}
        </g>
    }
}

/// From the mark to its label.
fn lead(staff: f64, y: f64, label_x: f64, label_y: f64, narrow: bool) -> String {
    let start = staff + if narrow { 12.0 } else { 24.0 };
    format!("M{start} {y}L{} {label_y}H{}", label_x - 9.0, label_x - 4.0)
}
