//! The main gauge: the Plimsoll mark, the hull's stack against it, and the ladder.

use leptos::html::Div;
use leptos::prelude::*;
use plimsoll_core::Bytes;
use plimsoll_web::gauge::{Gauge, Mark};
use plimsoll_web::path::swell;
use plimsoll_web::reading::Reading;
use plimsoll_web::{number, wording};

use super::browser;
use super::ladder::Ladder;
use super::planner::Planner;

/// Height of the drawing in px, wide and narrow.
const HEIGHT: (f64, f64) = (584.0, 440.0);

/// Radius of the bilge, where the hull's sides turn into her bottom.
const BILGE: f64 = 30.0;

#[component]
pub fn GaugeFigure() -> impl IntoView {
    let planner = Planner::get();
    let frame = NodeRef::<Div>::new();
    let width = RwSignal::new(640.0);
    Effect::new(move || {
        if let Some(frame) = frame.get() {
            browser::watch_width(&frame, move |w| width.set(w.round().max(200.0)));
        }
    });
    let gauge = Memo::new(move |_| {
        let reading = planner.reading.get()?;
        let peaks: Vec<Option<Bytes>> = std::iter::once(Some(reading.process))
            .chain(planner.rungs.with(|rungs| {
                rungs.iter().map(|r| r.peak.as_ref().and_then(|p| p.as_ref().ok().copied())).collect::<Vec<_>>()
            }))
            .collect();
        let width = width.get();
        let height = if width < 520.0 { HEIGHT.1 } else { HEIGHT.0 };
        Some(Gauge::new(&reading, &peaks, width, height))
    });
    view! {
        <figure class="gauge">
            <div class="chart" node_ref=frame>
            {move || {
                gauge
                    .get()
                    .zip(planner.reading.get())
                    .map(|(gauge, reading)| view! { <Drawing gauge reading=reading.as_ref().clone()/> })
            }}
            </div>
            <figcaption class="unseen">
                {move || planner.reading.with(|r| r.as_ref().map(|r| wording::verdict(r)))}
            </figcaption>
        </figure>
    }
}

#[component]
fn Drawing(gauge: Gauge, reading: Reading) -> impl IntoView {
    let Gauge { width, height, scale, .. } = gauge;
    let (hull_x, hull_w) = gauge.hull;
    let bottom = scale.bottom;
    let mark = gauge.mark;
    let deep = reading.headroom < 0;
    let narrow = width < 520.0;
    let keel = bottom + 14.0;
    let sea_height = (keel - gauge.waterline).max(0.0);
    let hull = hull_path(hull_x, hull_w, gauge.capacity, bottom);
    let load_text = format!("load line {}", number::bytes(reading.load_line));
    let capacity_text = format!("capacity {}", number::bytes(reading.capacity));
    view! {
        <svg width=width height=height viewBox=format!("0 0 {width} {height}") role="group" aria-label="Load-line gauge">
            <defs>
                <clipPath id="hull-shape">
                    <path d=hull_fill(hull_x, hull_w, bottom)/>
                </clipPath>
            </defs>
            <g aria-hidden="true">
                // The graticule.
                {gauge
                    .ticks
                    .iter()
                    .map(|t| view! { <line class="graticule" x1=hull_x - 10.0 x2=width - 8.0 y1=t.y y2=t.y/> })
                    .collect_view()}
                // The sea, up to where the run sits.
                <rect class="sea" x="7" width=width - 14.0 y=gauge.waterline height=sea_height/>
                {deep
                    .then(|| {
                        view! {
                            <rect class="sea-deep" x="7" width=width - 14.0 y=gauge.waterline height=(mark.y - gauge.waterline).max(0.0)/>
                        }
                    })}
                {(1..4u8)
                    .map(|i| {
                        let y = gauge.waterline + f64::from(i) * f64::from(i) * 5.0 + 4.0;
                        (y < keel - 6.0)
                            .then(|| {
                                let inset = f64::from(i) * 14.0;
                                view! { <path class=format!("ripple ripple-{i}") d=swell(7.0 + inset, width - 7.0 - inset, y, 16.0, 3.0)/> }
                            })
                    })
                    .collect_view()}
                <DraughtScale gauge=gauge.clone()/>
                // The hull and what fills it.
                <path class="hull-inside" d=hull_fill(hull_x, hull_w, bottom)/>
                <g clip-path="url(#hull-shape)">
                    {gauge
                        .segments
                        .iter()
                        .map(|s| {
                            view! { <rect class=format!("segment {}", s.kind.class()) x=hull_x width=hull_w y=s.y height=s.height/> }
                        })
                        .collect_view()}
                    {deep
                        .then(|| {
                            view! {
                                <rect
                                    class="too-deep"
                                    x=hull_x
                                    width=hull_w
                                    y=gauge.waterline
                                    height=(mark.y - gauge.waterline).max(0.0)
                                />
                            }
                        })}
                </g>
                <path class="hull" d=hull/>
                {gauge
                    .segments
                    .iter()
                    .filter(|s| s.named)
                    .map(|s| {
                        let y = s.y + s.height / 2.0 + 4.2;
                        let class = format!("segment-text {}-text", s.kind.class());
                        view! {
                            <text class=class.clone() x=hull_x + 9.0 y=y>{s.kind.label()}</text>
                            <text class=format!("{class} figure-end") x=hull_x + hull_w - 9.0 y=y>{number::gib(s.bytes)}</text>
                        }
                    })
                    .collect_view()}
                // The surface.
                <path
                    class="surface"
                    class:surface-deep=deep
                    d=swell(7.0, width - 7.0, gauge.waterline, 22.0, 4.0)
                />
                // What the card can give at most: the deck.
                <line class="deck" x1=hull_x - 12.0 x2=hull_x + hull_w + 12.0 y1=gauge.capacity y2=gauge.capacity/>
                <text class="mark-text" x=hull_x + hull_w + 16.0 y=gauge.capacity + 4.0>
                    {(!narrow).then_some(capacity_text)}
                </text>
                <LoadMark mark=mark left=hull_x - 10.0 right=gauge.staff narrow=narrow text=load_text/>
            </g>
            <Ladder gauge=gauge.clone() line=reading.load_line/>
            <rect class="neatline" x="1" y="1" width=width - 2.0 height=height - 2.0/>
            <rect class="neatline-inner" x="6.5" y="6.5" width=width - 13.0 height=height - 13.0/>
        </svg>
    }
}

/// The zebra-edged scale a chart has along its border, with the draught's figures.
#[component]
fn DraughtScale(gauge: Gauge) -> impl IntoView {
    let x = gauge.hull.0 - 14.0;
    let bands = gauge
        .ticks
        .windows(2)
        .enumerate()
        .filter_map(|(i, pair)| {
            let (low, high) = (pair.first()?.y, pair.get(1)?.y);
            Some(view! {
                <rect class=if i % 2 == 0 { "zebra zebra-on" } else { "zebra" } x=x width="5" y=high height=low - high/>
            })
        })
        .collect_view();
    view! {
        {bands}
        {gauge
            .ticks
            .iter()
            .map(|t| view! { <text class="draught figure-end" x=x - 5.0 y=t.y + 4.0>{t.text.clone()}</text> })
            .collect_view()}
        <text class="draught figure-end" x=x - 5.0 y="21">"GiB"</text>
    }
}

/// The mark itself: a disc crossed by a bar on the load line.
#[component]
fn LoadMark(mark: Mark, left: f64, right: f64, narrow: bool, text: String) -> impl IntoView {
    let Mark { x, y, radius, reach, stroke } = mark;
    view! {
        <line class="line-through" x1=left x2=right y1=y y2=y/>
        <circle class="disc" cx=x cy=y r=radius - stroke / 2.0 stroke-width=stroke/>
        <rect class="bar" x=x - reach width=reach * 2.0 y=y - stroke / 2.0 height=stroke/>
        {(!narrow)
            .then(|| {
                view! {
                    <text class="letter" x=x - radius - 24.0 y=y - stroke / 2.0 - 7.0>"P"</text>
                    <text class="letter" x=x + radius + 24.0 y=y - stroke / 2.0 - 7.0>"L"</text>
                }
            })}
        <text class="mark-text middle" x=x y=y + radius + 18.0>{text}</text>
    }
}

/// What lies inside the hull, and above the deck as far as the load reaches.
fn hull_fill(x: f64, width: f64, bottom: f64) -> String {
    let right = x + width;
    let (inner_left, inner_right, turn) = (x + BILGE, right - BILGE, bottom - BILGE);
    format!("M{x} 0V{turn}Q{x} {bottom} {inner_left} {bottom}H{inner_right}Q{right} {bottom} {right} {turn}V0Z")
}

/// The hull's outline, from deck to deck.
fn hull_path(x: f64, width: f64, deck: f64, bottom: f64) -> String {
    let right = x + width;
    let (inner_left, inner_right, turn) = (x + BILGE, right - BILGE, bottom - BILGE);
    let deck = deck.min(turn);
    format!(
        "M{x} {deck}V{turn}Q{x} {bottom} {inner_left} {bottom}H{inner_right}Q{right} {bottom} {right} {turn}V{deck}"
    )
}
