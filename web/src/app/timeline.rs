//! Memory over the steps.

use leptos::html::Div;
use leptos::prelude::*;
use plimsoll_core::scenario::Mode;
use plimsoll_core::summary::Kind;
use plimsoll_web::cursor::{Move, moved};
use plimsoll_web::timeline::Layout;
use plimsoll_web::window::Stretch;
use plimsoll_web::{number, wording};

use super::alive::Alive;
use super::browser;
use super::phases::PhasesTable;
use super::planner::Planner;

/// Height of the drawing in px, wide and narrow.
const HEIGHT: (f64, f64) = (330.0, 260.0);

#[component]
pub fn TimelineSection() -> impl IntoView {
    let planner = Planner::get();
    view! {
        <section class="section" aria-labelledby="timeline-title" class:is-pending=move || planner.pending.get()>
            <header class="section-head">
                <h2 id="timeline-title">"Over the steps"</h2>
                <p>
                    {move || {
                        let infers = planner.below.scenario.with(|s| s.training.mode == Mode::Inference);
                        if infers {
                            "Two generations, or two forwards where nothing is generated, because the second finds other free memory; of a very long answer one. "
                        } else {
                            "Two optimizer steps, because the first and the steady state peak at different places. "
                        }
                    }}
                    "Move along it with the pointer or the arrow keys; sweep over a part to look at it closely, down to single allocations."
                </p>
            </header>
            <Plot/>
            <Status/>
            <Alive/>
            <PhasesTable/>
        </section>
    }
}

/// What the cursor stands on, in words.
#[component]
fn Status() -> impl IntoView {
    let planner = Planner::get();
    let text = move || {
        let window = planner.window.get();
        planner
            .shown(|reading, points, _, index| {
                let point = points.get(index)?;
                let of_all = reading.points.get(reading.peak).is_some_and(|peak| peak.event == point.event);
                let head = if of_all { "The peak. " } else { "" };
                let change = window.as_ref().and_then(|window| window.change(index));
                let change = change.map(|change| format!(" Here {}.", number::signed(change))).unwrap_or_default();
                let op = match (point.op.as_str(), point.module.as_str()) {
                    ("", _) => String::new(),
                    (op, "") => format!(" Latest allocation: {}.", wording::op(op)),
                    (op, module) => format!(" Latest allocation: {} of {module}.", wording::op(op)),
                };
                Some(format!("{head}{}{change}{op}", wording::sentence(&wording::point(reading, point))))
            })
            .flatten()
    };
    let at_peak = move || planner.shown(|_, _, peak, cursor| peak == cursor).unwrap_or(true);
    view! {
        <div class="status-line">
            <p class="status-text" role="status" data-testid="timeline-status">{text}</p>
            <div class="timeline-tools">
                <Closer/>
                <button
                    type="button"
                    class="take"
                    data-testid="to-peak"
                    disabled=at_peak
                    on:click=move |_| {
                        if let Some(peak) = untrack(|| planner.shown(|_, _, peak, _| peak)) {
                            planner.look_at(peak);
                        }
                    }
                >
                    "to the peak"
                </button>
            </div>
        </div>
    }
}

/// Closer, further, all of it: what wheel and keys do, to be pressed.
#[component]
fn Closer() -> impl IntoView {
    let planner = Planner::get();
    let part = move || {
        let window = planner.window.get()?;
        let last = planner.stretch()?.1;
        let of = |n: u32| number::grouped(n.into());
        Some(format!("events {} to {} of {}", of(window.stretch.from + 1), of(window.stretch.to), of(last)))
    };
    let whole = move || planner.window.with(Option::is_none);
    view! {
        {move || part().map(|part| view! { <span class="timeline-part" data-testid="timeline-part">{part}</span> })}
        <button
            type="button"
            class="take"
            data-testid="timeline-closer"
            aria-label="Closer"
            on:click=move |_| zoom_at_cursor(planner, CLOSER)
        >
            "+"
        </button>
        // Never disabled: a button that is loses the focus of who has just pressed it.
        <button
            type="button"
            class="take"
            data-testid="timeline-further"
            aria-label="Further"
            aria-disabled=move || whole().to_string()
            on:click=move |_| zoom_at_cursor(planner, 1.0 / CLOSER)
        >
            "\u{2212}"
        </button>
        <button
            type="button"
            class="take"
            data-testid="timeline-whole"
            aria-disabled=move || whole().to_string()
            on:click=move |_| show_all(planner)
        >
            "all"
        </button>
    }
}

/// How much of what is shown is left by one step closer.
const CLOSER: f64 = 0.5;

/// Looks closer around the cursor, or from further away.
fn zoom_at_cursor(planner: Planner, factor: f64) {
    let Some((stretch, last)) = planner.stretch() else { return };
    let event = untrack(|| planner.shown(|_, points, _, cursor| points.get(cursor).map(|point| point.event))).flatten();
    let inside = f64::from(event.unwrap_or(stretch.from).saturating_sub(stretch.from));
    planner.look_closely(stretch.zoomed(inside / f64::from(stretch.events().max(1)), factor, last));
}

fn show_all(planner: Planner) {
    if let Some((_, last)) = planner.stretch() {
        planner.look_closely(Stretch { from: 0, to: last });
    }
}

/// Fingers on the plot: which, and where.
type Fingers = Vec<(i32, f64)>;

/// A pointer that moved less than this, in px, has pointed and not swept.
const SWEEP: f64 = 6.0;

/// Turns of a wheel, in px, that bring half of what is shown.
const TURN: f64 = 220.0;

#[component]
fn Plot() -> impl IntoView {
    let planner = Planner::get();
    let frame = NodeRef::<Div>::new();
    let width = RwSignal::new(browser::window_width().min(900.0));
    Effect::new(move || {
        if let Some(frame) = frame.get() {
            browser::watch_width(&frame, move |w| width.set(w.round().max(200.0)));
        }
    });
    let layout = Memo::new(move |_| {
        let width = width.get();
        let height = if width < 520.0 { HEIGHT.1 } else { HEIGHT.0 };
        let window = planner.window.get();
        planner.below.reading.with(|reading| {
            let reading = reading.as_ref()?;
            Some(match &window {
                Some(window) => Layout::closely(reading, window, width, height),
                None => Layout::new(reading, width, height),
            })
        })
    });
    let cursor = move || planner.shown(|_, _, _, cursor| cursor);
    // From where to where is being swept, in px; and what fingers are down.
    let swept = RwSignal::new(None::<(f64, f64)>);
    let fingers = StoredValue::new(Fingers::new());

    let x_of = move |x: i32| {
        let left = frame.get_untracked().map_or(0.0, |frame| frame.get_bounding_client_rect().left());
        f64::from(x) - left
    };
    let share = move |x: f64| layout.with_untracked(|l| l.as_ref().map(|l| l.share(x)));
    // Of the whole a share of the width is no share of the events: phases are drawn as wide as can be seen.
    let event_share = move |x: f64| {
        if planner.window.with_untracked(Option::is_some) {
            return share(x);
        }
        let point = layout.with_untracked(|l| l.as_ref().map(|l| l.at(x)))?;
        let (_, last) = planner.stretch()?;
        planner.reading.with_untracked(|r| {
            let event = r.as_ref()?.points.get(point)?.event;
            Some(f64::from(event) / f64::from(last.max(1)))
        })
    };
    let point_at = move |x: f64| {
        if let Some(point) = layout.with_untracked(|l| l.as_ref().map(|l| l.at(x))) {
            planner.look_at(point);
        }
    };
    let zoom_at = move |x: f64, factor: f64| {
        if let (Some((stretch, last)), Some(at)) = (planner.stretch(), event_share(x)) {
            planner.look_closely(stretch.zoomed(at, factor, last));
        }
    };

    let down = move |event: web_sys::PointerEvent| {
        let x = x_of(event.client_x());
        point_at(x);
        if event.pointer_type() == "touch" {
            fingers.update_value(|fingers| fingers.push((event.pointer_id(), x)));
        } else if event.button() == 0 {
            swept.set(Some((x, x)));
            if let Some(frame) = frame.get_untracked() {
                // Without it a sweep would end at the edge of the plot.
                let _ = frame.set_pointer_capture(event.pointer_id());
            }
        }
    };
    let moved_to = move |event: web_sys::PointerEvent| {
        let x = x_of(event.client_x());
        let apart = |fingers: &Fingers| match fingers.as_slice() {
            [(_, one), (_, other)] => Some(((one - other).abs().max(1.0), f64::midpoint(*one, *other))),
            _ => None,
        };
        let before = fingers.with_value(apart);
        fingers.update_value(|fingers| {
            if let Some(finger) = fingers.iter_mut().find(|finger| finger.0 == event.pointer_id()) {
                finger.1 = x;
            }
        });
        match (before, fingers.with_value(apart)) {
            (Some((before, _)), Some((now, middle))) => zoom_at(middle, before / now),
            _ => point_at(x),
        }
        swept.update(|swept| {
            if let Some((_, to)) = swept {
                *to = x;
            }
        });
    };
    let up = move |event: web_sys::PointerEvent| {
        fingers.update_value(|fingers| fingers.retain(|finger| finger.0 != event.pointer_id()));
        let Some((from, to)) = swept.get_untracked() else { return };
        swept.set(None);
        if (to - from).abs() >= SWEEP
            && let (Some((stretch, last)), Some(one), Some(other)) =
                (planner.stretch(), event_share(from), event_share(to))
        {
            planner.look_closely(stretch.part(one, other, last));
        }
    };
    let gone = move |event: web_sys::PointerEvent| {
        fingers.update_value(|fingers| fingers.retain(|finger| finger.0 != event.pointer_id()));
        swept.set(None);
    };
    let turned = move |event: web_sys::WheelEvent| {
        // A wheel over the plot goes on scrolling the page until somebody looks closely, or asks for it: a pinch on a
        // touchpad comes as a wheel with Control.
        let asked = event.ctrl_key() || event.meta_key();
        if !asked && planner.window.with_untracked(Option::is_none) {
            return;
        }
        event.prevent_default();
        let (across, along) = (event.delta_x(), event.delta_y());
        if across.abs() > along.abs() || event.shift_key() {
            if let Some((stretch, last)) = planner.stretch() {
                let by = if across == 0.0 { along } else { across };
                planner.look_closely(stretch.moved(by / width.get_untracked().max(1.0), last));
            }
        } else {
            zoom_at(x_of(event.client_x()), (along / TURN).clamp(-2.0, 2.0).exp2());
        }
    };
    let step = move |event: web_sys::KeyboardEvent| {
        if event.ctrl_key() || event.meta_key() || event.alt_key() {
            return;
        }
        match event.key().as_str() {
            "+" | "=" => zoom_at_cursor(planner, CLOSER),
            "-" => zoom_at_cursor(planner, 1.0 / CLOSER),
            "0" | "Escape" => show_all(planner),
            key => {
                let Some(by) = Move::of_key(key) else { return };
                let next = untrack(|| {
                    planner.shown(|_, points, peak, from| {
                        let to = moved(points, peak, from, by);
                        // At the edge of a part the part moves on.
                        (to, (to == from).then_some(by))
                    })
                });
                match next {
                    Some((_, Some(by @ (Move::Back | Move::On)))) if planner.window.with_untracked(Option::is_some) => {
                        if let Some((stretch, last)) = planner.stretch() {
                            planner.look_closely(stretch.moved(if by == Move::On { 0.5 } else { -0.5 }, last));
                        }
                    }
                    Some((to, _)) => planner.look_at(to),
                    None => {}
                }
            }
        }
        event.prevent_default();
    };
    let last = move || planner.shown(|_, points, _, _| points.len().saturating_sub(1)).unwrap_or(0);
    let text = move || {
        planner
            .shown(|reading, points, _, cursor| {
                let point = points.get(cursor)?;
                let phase = reading.phases.get(point.phase as usize).map(wording::phase)?;
                Some(format!("{phase}, {}", number::bytes(point.total())))
            })
            .flatten()
    };

    view! {
        <div
            class="plot"
            node_ref=frame
            role="slider"
            tabindex="0"
            data-testid="timeline"
            aria-label="Memory over the steps"
            aria-describedby="timeline-keys"
            aria-valuemin="0"
            aria-valuemax=move || last().to_string()
            aria-valuenow=move || cursor().unwrap_or(0).to_string()
            aria-valuetext=text
            on:pointermove=moved_to
            on:pointerdown=down
            on:pointerup=up
            on:pointercancel=gone
            on:wheel=turned
            on:keydown=step
        >
            {move || layout.get().map(|layout| view! { <Drawing layout/> })}
            <svg class="plot-cursor" width="100%" height="100%" aria-hidden="true">
                {move || {
                    let layout = layout.get()?;
                    let (from, to) = swept.get().filter(|(from, to)| (to - from).abs() >= SWEEP)?;
                    let (left, right) = (from.min(to).max(layout.left), from.max(to).min(layout.right));
                    Some(
                        view! {
                            <rect class="swept" x=left width=(right - left).max(0.0) y="8" height=layout.scale.bottom - 8.0/>
                        },
                    )
                }}
                {move || {
                    let layout = layout.get()?;
                    let (total, index) = planner
                        .shown(|reading, points, _, cursor| {
                            let context = reading.part(Kind::Context);
                            let total = points.get(cursor)?.total();
                            Some((context.checked_add(total).unwrap_or(context), cursor))
                        })
                        .flatten()?;
                    let x = *layout.xs.get(index)?;
                    let y = layout.scale.y(total);
                    Some(
                        view! {
                            <line class="cursor" x1=x x2=x y1="8" y2=layout.scale.bottom/>
                            <circle class="cursor-dot" cx=x cy=y r="4.5"/>
                        },
                    )
                }}
            </svg>
        </div>
        <p id="timeline-keys" class="unseen">
            "Arrow keys move by one change, Page Up and Page Down by phase, Home and End to the ends, P to the peak. Plus and minus look closer and from further away, 0 shows all."
        </p>
    }
}

#[component]
fn Drawing(layout: Layout) -> impl IntoView {
    let (shows_line, shows_process) = (layout.shows(layout.load_line), layout.shows(layout.process));
    let aside = layout.labels_meet();
    let Layout { width, height, left, right, scale, .. } = layout;
    let foot = scale.bottom;
    let wide = width >= 520.0;
    view! {
        <svg width=width height=height viewBox=format!("0 0 {width} {height}") aria-hidden="true">
            {layout
                .ticks
                .iter()
                .map(|t| {
                    view! {
                        <line class="graticule" x1=left x2=right y1=t.y y2=t.y/>
                        <text class="draught figure-end" x=left - 7.0 y=t.y + 4.0>{t.text.clone()}</text>
                    }
                })
                .collect_view()}
            <text class="draught figure-end" x=left - 7.0 y="16">"GiB"</text>
            {layout
                .areas
                .iter()
                .map(|(kind, path)| view! { <path class=format!("segment area {}", kind.class()) d=path.clone()/> })
                .collect_view()}
            {(shows_line && layout.capacity > 20.0 && layout.capacity < layout.load_line - 14.0)
                .then(|| {
                    view! {
                        <line class="deck-line" x1=left x2=right y1=layout.capacity y2=layout.capacity/>
                    }
                })}
            {shows_line
                .then(|| {
                    view! {
                        <line class="load-line" x1=left x2=right y1=layout.load_line y2=layout.load_line/>
                        <g class="load-tag">
                            <circle class="load-tag-disc" cx=right - 14.0 cy=layout.load_line r="7"/>
                            <line class="load-line" x1=right - 26.0 x2=right - 2.0 y1=layout.load_line y2=layout.load_line/>
                            <text class="load-text figure-end" x=right - 32.0 y=layout.load_line - 6.0>"load line"</text>
                        </g>
                    }
                })}
            {shows_process
                .then(|| {
                    view! {
                        <line class="process-line" x1=left x2=right y1=layout.process y2=layout.process/>
                        <text
                            class=if aside { "process-text" } else { "process-text figure-end" }
                            x=if aside { left + 4.0 } else { right }
                            y=layout.process - 5.0
                        >
                            {if wide { "process peak: with what the allocator keeps in reserve" } else { "process peak" }}
                        </text>
                    }
                })}
            {layout
                .spans
                .iter()
                .enumerate()
                .map(|(i, span)| {
                    view! {
                        <rect
                            class=if i % 2 == 0 { "zebra zebra-on" } else { "zebra" }
                            x=span.x
                            width=span.width
                            y=foot + 4.0
                            height="6"
                        />
                        <line class="phase-edge" x1=span.x x2=span.x y1="22" y2=foot/>
                        <text class="phase-name" x=span.x + span.width / 2.0 y=foot + 25.0>{span.label}</text>
                    }
                })
                .collect_view()}
            {layout
                .steps
                .iter()
                .filter(|s| !s.label.is_empty())
                .map(|s| {
                    view! {
                        <path
                            class="step-brace"
                            d=format!("M{} {y}v5H{}v-5", s.x + 2.0, s.x + s.width - 2.0, y = foot + 31.0)
                        />
                        <text class="step-name" x=s.x + s.width / 2.0 y=foot + 49.0>{s.label.clone()}</text>
                    }
                })
                .collect_view()}
        </svg>
    }
}
