//! The main gauge: the Plimsoll mark, the hull's stack against it, and the ladder.

use leptos::html::Div;
use leptos::prelude::*;
use plimsoll_core::Bytes;
use plimsoll_web::gauge::{Gauge, INSET, Mark, NARROW, Segment, Wish, Words};
use plimsoll_web::path::swell;
use plimsoll_web::{number, wording};

use super::browser;
use super::ladder::Ladder;
use super::planner::{NeighbourPeak, Planner};

/// Height of the drawing in px: wide, narrow, and on a telephone.
const HEIGHT: (f64, f64, f64) = (584.0, 540.0, 440.0);

/// Below this width in px it is a telephone's.
const TELEPHONE: f64 = 400.0;

/// Radius of the bilge, where the hull's sides turn into her bottom.
const BILGE: f64 = 30.0;

#[component]
pub fn GaugeFigure() -> impl IntoView {
    let planner = Planner::get();
    let frame = NodeRef::<Div>::new();
    let width = RwSignal::new(browser::window_width().min(640.0));
    Effect::new(move || {
        if let Some(frame) = frame.get() {
            browser::watch_width(&frame, move |w| width.set(w.round().max(200.0)));
        }
    });
    let gauge = Memo::new(move |_| {
        let reading = planner.reading.get()?;
        let rungs = planner.rungs.get();
        let known = rungs.iter().map(|r| Wish {
            label: r.neighbour.label,
            short: r.neighbour.short,
            peak: r.peak.as_ref().and_then(|p| p.as_ref().ok()).map(|p| p.process),
        });
        let own = Wish { label: "this run", short: "this run", peak: Some(reading.process) };
        let wishes: Vec<Wish> = std::iter::once(own).chain(known).collect();
        let width = width.get();
        let height = if width < TELEPHONE {
            HEIGHT.2
        } else if width < NARROW {
            HEIGHT.1
        } else {
            HEIGHT.0
        };
        Some((Gauge::new(&reading, &wishes, width, height), rungs))
    });
    view! {
        <figure class="gauge">
            <div class="chart" node_ref=frame>
                {move || {
                    let (gauge, rungs) = gauge.get()?;
                    let reading = planner.reading.get()?;
                    Some(
                        view! {
                            <Drawing
                                gauge
                                rungs
                                line=reading.load_line
                                capacity=reading.capacity
                            />
                        },
                    )
                }}
            </div>
            <figcaption class="unseen">
                {move || planner.reading.with(|r| r.as_ref().map(|r| wording::verdict(r)))}
            </figcaption>
        </figure>
    }
}

#[component]
fn Drawing(gauge: Gauge, rungs: Vec<NeighbourPeak>, line: Bytes, capacity: Bytes) -> impl IntoView {
    let Gauge { width, height, scale, mark, staff, .. } = gauge;
    let (hull_x, hull_w) = gauge.hull;
    let bottom = scale.bottom;
    let deep = gauge.waterline < mark.y;
    let drowned = (mark.y - gauge.waterline).max(0.0);
    let narrow = width < NARROW;
    let keel = height - INSET;
    view! {
        <svg width=width height=height viewBox=format!("0 0 {width} {height}") role="group" aria-label="Load-line gauge">
            <defs>
                <clipPath id="hull-shape">
                    <path d=hull_fill((hull_x, hull_w, bottom), BILGE)/>
                </clipPath>
            </defs>
            <g aria-hidden="true">
                // The graticule.
                {gauge
                    .ticks
                    .iter()
                    .map(|t| view! { <line class="graticule" x1=hull_x - 10.0 x2=staff y1=t.y y2=t.y/> })
                    .collect_view()}
                // The sea, up to where the run sits, and what of it stands over the load line.
                <rect class="sea" x=INSET width=staff - INSET y=gauge.waterline height=(keel - gauge.waterline).max(0.0)/>
                {deep
                    .then(|| {
                        view! {
                            <rect class="sea-deep" x=INSET width=staff - INSET y=gauge.waterline height=drowned/>
                            <rect class="too-deep" x=hull_x + hull_w width=staff - hull_x - hull_w y=gauge.waterline height=drowned/>
                        }
                    })}
                <Ripples left=hull_x + hull_w right=staff surface=gauge.waterline keel/>
                <DraughtScale gauge=gauge.clone()/>
                // The hull and what fills it.
                <path class="hull-inside" d=hull_fill((hull_x, hull_w, bottom), BILGE)/>
                <g clip-path="url(#hull-shape)">
                    {gauge
                        .segments
                        .iter()
                        .map(|s| {
                            view! { <rect class=format!("segment {}", s.kind.class()) x=hull_x width=hull_w y=s.y height=s.height/> }
                        })
                        .collect_view()}
                </g>
                <path class="hull" d=hull_path((hull_x, hull_w, bottom), gauge.capacity, BILGE)/>
                {deep
                    .then(|| {
                        view! {
                            <path
                                class="hull-deep"
                                d=format!(
                                    "M{hull_x} {top}V{line}M{right} {top}V{line}",
                                    top = gauge.waterline,
                                    line = mark.y,
                                    right = hull_x + hull_w,
                                )
                            />
                        }
                    })}
                {gauge.segments.iter().map(|s| view! { <SegmentWords segment=s.clone() x=hull_x width=hull_w/> }).collect_view()}
                // The surface, and the deck: what the card can give at most.
                <path class="surface" class:surface-deep=deep d=swell(gauge.shore, staff, gauge.waterline, 22.0, 4.0)/>
                <line class="deck" x1=hull_x - 12.0 x2=hull_x + hull_w + 12.0 y1=gauge.capacity y2=gauge.capacity/>
                <LoadMark mark=mark height left=hull_x - 10.0 right=staff narrow=narrow line capacity/>
            </g>
            <Ladder gauge=gauge.clone() rungs deep/>
            <rect class="neatline" x="1" y="1" width=width - 2.0 height=height - 2.0/>
            <rect class="neatline-inner" x="6.5" y="6.5" width=width - 13.0 height=height - 13.0/>
        </svg>
    }
}

/// What a layer of the stack is, as far as there is room to say it.
#[component]
fn SegmentWords(segment: Segment, x: f64, width: f64) -> impl IntoView {
    let class = format!("segment-text {}-text", segment.kind.class());
    let end = format!("{class} figure-end");
    let y = segment.middle + 4.2;
    let (left, right) = (x + 10.0, x + width - 10.0);
    let figure = number::gib(segment.bytes);
    let (name, up, figure) = match segment.words {
        Words::Beside(name) => (Some(name), 0.0, Some((figure, right, 0.0, end))),
        Words::Below(name) => (Some(name), 7.5, Some((figure, left, 7.5, class.clone()))),
        Words::Alone(name) => (Some(name), 0.0, None),
        Words::Figure => (None, 0.0, Some((figure, right, 0.0, end))),
        Words::None => (None, 0.0, None),
    };
    view! {
        {name.map(|name| view! { <text class=class x=left y=y - up>{name}</text> })}
        {figure.map(|(figure, x, down, class)| view! { <text class=class x=x y=y + down>{figure}</text> })}
    }
}

/// An engraver's lines under the surface, shorter the deeper.
#[component]
fn Ripples(left: f64, right: f64, surface: f64, keel: f64) -> impl IntoView {
    (1..=3u8)
        .filter_map(|i| {
            let depth = f64::from(i);
            let y = surface + depth * depth * 5.0 + 4.0;
            let inset = depth * (right - left) * 0.07;
            (y < keel - 6.0).then(|| {
                view! { <path class=format!("ripple ripple-{i}") d=swell(left + inset, right - inset, y, 16.0, 3.0)/> }
            })
        })
        .collect_view()
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
        <text class="draught" x=INSET + 4.0 y="22">"GiB"</text>
    }
}

/// What the words at the mark take from their first line down, in px.
const LABELS: f64 = 46.0;

/// The mark itself: a disc crossed by a bar on the load line.
#[component]
fn LoadMark(
    mark: Mark,
    height: f64,
    left: f64,
    right: f64,
    narrow: bool,
    line: Bytes,
    capacity: Bytes,
) -> impl IntoView {
    let Mark { x, y, radius, reach, stroke } = mark;
    // Under the disc, or over it where the line is so low that it would leave the frame.
    let (under, over) = (y + radius + 20.0, y - radius - LABELS);
    let foot = if under + LABELS > height - INSET { over } else { under };
    let letter = (radius + reach) / 2.0;
    view! {
        <line class="line-through" x1=left x2=right y1=y y2=y/>
        <circle class="disc" cx=x cy=y r=radius - stroke / 2.0 stroke-width=stroke/>
        <rect class="bar" x=x - reach width=reach * 2.0 y=y - stroke / 2.0 height=stroke/>
        {(reach - radius > 20.0)
            .then(|| {
                view! {
                    <text class="letter" x=x - letter y=y - stroke / 2.0 - 7.0>"P"</text>
                    <text class="letter" x=x + letter y=y - stroke / 2.0 - 7.0>"L"</text>
                }
            })}
        <text class="mark-text middle" x=x y=foot>"load line"</text>
        <text class="mark-figure middle" x=x y=foot + 20.0>{number::gib(line)}</text>
        {(!narrow)
            .then(|| {
                view! { <text class="mark-note middle" x=x y=foot + 38.0>{format!("of {} GiB", number::gib(capacity))}</text> }
            })}
    }
}

/// What lies inside the hull, and above the deck as far as the load reaches.
pub fn hull_fill((x, width, bottom): (f64, f64, f64), bilge: f64) -> String {
    let right = x + width;
    let (inner_left, inner_right, turn) = (x + bilge, right - bilge, bottom - bilge);
    format!("M{x} 0V{turn}Q{x} {bottom} {inner_left} {bottom}H{inner_right}Q{right} {bottom} {right} {turn}V0Z")
}

/// The hull's outline, from deck to deck.
pub fn hull_path((x, width, bottom): (f64, f64, f64), deck: f64, bilge: f64) -> String {
    let right = x + width;
    let (inner_left, inner_right, turn) = (x + bilge, right - bilge, bottom - bilge);
    let deck = deck.min(turn);
    format!(
        "M{x} {deck}V{turn}Q{x} {bottom} {inner_left} {bottom}H{inner_right}Q{right} {bottom} {right} {turn}V{deck}"
    )
}
