//! The main gauge: the Plimsoll mark, the hull's stack against it, and the ladder.

use leptos::html::Div;
use leptos::prelude::*;
use plimsoll_core::Bytes;
use plimsoll_core::summary::Kind;
use plimsoll_web::gauge::{Gauge, INSET, Mark, NARROW, Segment, Wish, Words};
use plimsoll_web::path::swell;
use plimsoll_web::scale::Tick;
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
        Some(Drawn {
            gauge: Gauge::new(&reading, &wishes, width, height),
            rungs,
            line: reading.load_line,
            capacity: reading.capacity,
        })
    });
    let is_there = Memo::new(move |_| gauge.with(Option::is_some));
    view! {
        <figure class="gauge">
            <div class="chart" node_ref=frame>
                {move || is_there.get().then(|| view! { <Drawing gauge/> })}
            </div>
            <figcaption class="unseen">
                {move || planner.reading.with(|r| r.as_ref().map(|r| wording::verdict(r)))}
            </figcaption>
        </figure>
    }
}

/// Everything the gauge is drawn of.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    pub gauge: Gauge,
    /// The neighbours, in the order of the gauge's rungs behind its first.
    pub rungs: Vec<NeighbourPeak>,
    line: Bytes,
    capacity: Bytes,
}

/// A part of the drawing, that is drawn anew only when it is another one: a rebuilt view sets all its attributes again, and the
/// whole gauge would be laid out anew with every key.
pub fn part<T>(gauge: Memo<Option<Drawn>>, of: impl Fn(&Drawn) -> T + Send + Sync + 'static) -> Memo<Option<T>>
where
    T: PartialEq + Send + Sync + 'static,
{
    Memo::new(move |_| gauge.with(|drawn| drawn.as_ref().map(&of)))
}

/// What stays where it is as long as the scale does.
#[derive(Clone, Debug, PartialEq)]
struct Ground {
    width: f64,
    height: f64,
    /// The hull's left edge, width and bottom.
    hull: (f64, f64, f64),
    /// y of the hull's deck.
    deck: f64,
    staff: f64,
    ticks: Vec<Tick>,
    mark: Mark,
    line: Bytes,
    capacity: Bytes,
}

impl Ground {
    fn of(drawn: &Drawn) -> Self {
        let Gauge { width, height, ref scale, ref ticks, hull, mark, capacity, staff, .. } = drawn.gauge;
        Self {
            width,
            height,
            hull: (hull.0, hull.1, scale.bottom),
            deck: capacity,
            staff,
            ticks: ticks.clone(),
            mark,
            line: drawn.line,
            capacity: drawn.capacity,
        }
    }
}

/// The sea, up to where the run sits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sea {
    surface: f64,
    /// y of the load line.
    line: f64,
    keel: f64,
    /// Where the surface begins, and the hull's two edges.
    shore: f64,
    hull: (f64, f64),
    staff: f64,
}

impl Sea {
    fn of(drawn: &Drawn) -> Self {
        let gauge = &drawn.gauge;
        Self {
            surface: gauge.waterline,
            line: gauge.mark.y,
            keel: gauge.height - INSET,
            shore: gauge.shore,
            hull: (gauge.hull.0, gauge.hull.0 + gauge.hull.1),
            staff: gauge.staff,
        }
    }

    /// What of it stands over the load line, if the run sits that deep.
    fn deep(self) -> Option<f64> {
        (self.surface < self.line).then_some(self.line - self.surface)
    }
}

#[component]
fn Drawing(gauge: Memo<Option<Drawn>>) -> impl IntoView {
    let ground = part(gauge, Ground::of);
    let sea = part(gauge, Sea::of);
    let hull = part(gauge, |d| d.gauge.hull);
    let segments = part(gauge, |d| d.gauge.segments.clone());
    let size = part(gauge, |d| (d.gauge.width, d.gauge.height));
    let (width, height) = (move || size.get().map(|s| s.0), move || size.get().map(|s| s.1));
    let kinds =
        Memo::new(move |_| segments.with(|all| all.iter().flatten().map(|segment| segment.kind).collect::<Vec<_>>()));
    view! {
        <svg
            width=width
            height=height
            viewBox=move || size.get().map(|(width, height)| format!("0 0 {width} {height}"))
            role="group"
            aria-label="Load-line gauge"
        >
            <defs>
                <clipPath id="hull-shape">
                    {move || ground.get().map(|ground| view! { <path d=hull_fill(ground.hull, BILGE)/> })}
                </clipPath>
            </defs>
            <g aria-hidden="true">
                {move || ground.get().map(|ground| view! { <Graticule ground/> })}
                <Water sea/>
                {move || ground.get().map(|ground| view! { <DraughtScale ground/> })}
                <g clip-path="url(#hull-shape)">
                    <For each=move || kinds.get() key=|kind| *kind children=move |kind| view! { <Layer segments hull kind/> }/>
                </g>
                {move || ground.get().map(|g| view! { <path class="hull" d=hull_path(g.hull, g.deck, BILGE)/> })}
                <Wet sea/>
                <For each=move || kinds.get() key=|kind| *kind children=move |kind| view! { <LayerWords segments hull kind/> }/>
                <path
                    class="surface"
                    class:surface-deep=move || sea.get().is_some_and(|sea| sea.deep().is_some())
                    d=move || sea.get().map(|sea| swell(sea.shore, sea.staff, sea.surface, 22.0, 4.0))
                />
                {move || ground.get().map(|ground| view! { <LoadMark ground/> })}
            </g>
            <Ladder gauge/>
            {move || {
                size.get()
                    .map(|(width, height)| {
                        view! {
                            <rect class="neatline" x="1" y="1" width=width - 2.0 height=height - 2.0/>
                            <rect class="neatline-inner" x="6.5" y="6.5" width=width - 13.0 height=height - 13.0/>
                        }
                    })
            }}
        </svg>
    }
}

#[component]
fn Graticule(ground: Ground) -> impl IntoView {
    let (from, to) = (ground.hull.0 - 10.0, ground.staff);
    ground.ticks.iter().map(|t| view! { <line class="graticule" x1=from x2=to y1=t.y y2=t.y/> }).collect_view()
}

/// The sea under its surface, with an engraver's lines that are shorter the deeper they lie.
#[component]
fn Water(sea: Memo<Option<Sea>>) -> impl IntoView {
    let at = move |of: fn(Sea) -> f64| move || sea.get().map(of);
    let ripple = move |i: u8| {
        let line = move |Sea { surface, keel, hull: (_, left), staff: right, .. }: Sea| {
            let depth = f64::from(i);
            let y = surface + depth * depth * 5.0 + 4.0;
            let inset = depth * (right - left) * 0.07;
            (y < keel - 6.0).then(|| swell(left + inset, right - inset, y, 16.0, 3.0))
        };
        view! { <path class=format!("ripple ripple-{i}") d=move || sea.get().and_then(line)/> }
    };
    let deep = Memo::new(move |_| sea.get().is_some_and(|sea| sea.deep().is_some()));
    let drowned = move || sea.get().and_then(Sea::deep);
    view! {
        <rect
            class="sea"
            x=INSET
            width=at(|sea| sea.staff - INSET)
            y=at(|sea| sea.surface)
            height=at(|sea| (sea.keel - sea.surface).max(0.0))
        />
        {move || {
            deep.get()
                .then(|| {
                    view! {
                        <rect class="sea-deep" x=INSET width=at(|sea| sea.staff - INSET) y=at(|sea| sea.surface) height=drowned/>
                        <rect
                            class="too-deep"
                            x=at(|sea| sea.hull.1)
                            width=at(|sea| sea.staff - sea.hull.1)
                            y=at(|sea| sea.surface)
                            height=drowned
                        />
                    }
                })
        }}
        {(1..=3).map(ripple).collect_view()}
    }
}

/// The hull's sides where they are deeper than they should be.
#[component]
fn Wet(sea: Memo<Option<Sea>>) -> impl IntoView {
    let sides = |sea: Sea| {
        let Sea { surface, line, hull: (left, right), .. } = sea;
        sea.deep().map(|_| format!("M{left} {surface}V{line}M{right} {surface}V{line}"))
    };
    view! { <path class="hull-deep" d=move || sea.get().and_then(sides)/> }
}

/// The layer of a kind in the stack.
fn layer_of(segments: Memo<Option<Vec<Segment>>>, kind: Kind) -> Memo<Option<Segment>> {
    Memo::new(move |_| segments.with(|all| all.iter().flatten().find(|segment| segment.kind == kind).cloned()))
}

#[component]
fn Layer(segments: Memo<Option<Vec<Segment>>>, hull: Memo<Option<(f64, f64)>>, kind: Kind) -> impl IntoView {
    let layer = layer_of(segments, kind);
    let at = move |of: fn(&Segment) -> f64| move || layer.with(|layer| layer.as_ref().map(of));
    view! {
        <rect
            class=format!("segment {}", kind.class())
            x=move || hull.get().map(|hull| hull.0)
            width=move || hull.get().map(|hull| hull.1)
            y=at(|layer| layer.y)
            height=at(|layer| layer.height)
        />
    }
}

/// What a layer of the stack is, as far as there is room to say it.
#[component]
fn LayerWords(segments: Memo<Option<Vec<Segment>>>, hull: Memo<Option<(f64, f64)>>, kind: Kind) -> impl IntoView {
    let layer = layer_of(segments, kind);
    let words = Memo::new(move |_| layer.with(|layer| layer.as_ref().map_or(Words::None, |layer| layer.words)));
    let class = format!("segment-text {}-text", kind.class());
    let left = move || hull.get().map(|(x, _)| x + 10.0);
    // A name and a figure on two lines, or on one: then the figure ends where the layer does.
    let apart = move || if matches!(words.get(), Words::Below(_)) { 7.5 } else { 0.0 };
    let line = move || layer.with(|layer| layer.as_ref().map(|layer| layer.middle + 4.2));
    let ends = move || matches!(words.get(), Words::Beside(_) | Words::Figure);
    let name = move || match words.get() {
        Words::Beside(name) | Words::Below(name) | Words::Alone(name) => Some(name),
        Words::Figure | Words::None => None,
    };
    let figure = move || match words.get() {
        Words::Beside(_) | Words::Below(_) | Words::Figure => {
            layer.with(|layer| layer.as_ref().map(|layer| number::gib(layer.bytes)))
        }
        Words::Alone(_) | Words::None => None,
    };
    view! {
        <text class=class.clone() x=left y=move || line().map(|y| y - apart())>{name}</text>
        <text
            class=class
            class:figure-end=ends
            x=move || if ends() { hull.get().map(|(x, width)| x + width - 10.0) } else { left() }
            y=move || line().map(|y| y + apart())
        >
            {figure}
        </text>
    }
}

/// The zebra-edged scale a chart has along its border, with the draught's figures; and the hull, empty.
#[component]
fn DraughtScale(ground: Ground) -> impl IntoView {
    let Ground { hull, ticks, .. } = ground;
    let x = hull.0 - 14.0;
    let bands = ticks
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
        {ticks
            .iter()
            .map(|t| view! { <text class="draught figure-end" x=x - 5.0 y=t.y + 4.0>{t.text.clone()}</text> })
            .collect_view()}
        <text class="draught" x=INSET + 4.0 y="22">"GiB"</text>
        <path class="hull-inside" d=hull_fill(hull, BILGE)/>
    }
}

/// What the words at the mark take from their first line down, in px.
const LABELS: f64 = 46.0;

/// The deck, what the card can give at most; and the mark itself, a disc crossed by a bar on the load line.
#[component]
fn LoadMark(ground: Ground) -> impl IntoView {
    let Ground { width, height, hull, deck, staff, mark: Mark { x, y, radius, reach, stroke }, line, capacity, .. } =
        ground;
    // Under the disc, or over it where the line is so low that it would leave the frame.
    let (under, over) = (y + radius + 20.0, y - radius - LABELS);
    let foot = if under + LABELS > height - INSET { over } else { under };
    let letter = (radius + reach) / 2.0;
    view! {
        <line class="deck" x1=hull.0 - 12.0 x2=hull.0 + hull.1 + 12.0 y1=deck y2=deck/>
        <line class="line-through" x1=hull.0 - 10.0 x2=staff y1=y y2=y/>
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
        {(width >= NARROW)
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
