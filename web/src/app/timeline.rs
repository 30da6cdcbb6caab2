//! Memory over the steps.

use leptos::html::Div;
use leptos::prelude::*;
use plimsoll_core::scenario::Mode;
use plimsoll_core::summary::Kind;
use plimsoll_web::cursor::{Move, moved};
use plimsoll_web::timeline::Layout;
use plimsoll_web::{number, wording};
use wasm_bindgen::JsCast;

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
                        let infers = planner.scenario.with(|s| s.training.mode == Mode::Inference);
                        if infers {
                            "One generation, or one forward where nothing is generated. "
                        } else {
                            "Two optimizer steps, because the first and the steady state peak at different places. "
                        }
                    }}
                    "Move along it with the pointer or the arrow keys."
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
    view! {
        <div class="status-line">
            <p class="status-text" role="status" data-testid="timeline-status">
                {move || {
                    let reading = planner.reading.get()?;
                    let index = planner.cursor.get().unwrap_or(reading.peak);
                    let point = reading.points.get(index)?;
                    let head = if index == reading.peak { "The peak. " } else { "" };
                    let op = match (point.op.as_str(), point.module.as_str()) {
                        ("", _) => String::new(),
                        (op, "") => format!(" Latest allocation: {}.", wording::op(op)),
                        (op, module) => format!(" Latest allocation: {} of {module}.", wording::op(op)),
                    };
                    Some(format!("{head}{}{op}", wording::sentence(&wording::point(&reading, point))))
                }}
            </p>
            <button
                type="button"
                class="take"
                disabled=move || planner.cursor.with(Option::is_none)
                on:click=move |_| {
                    if let Some(reading) = planner.reading.get_untracked() {
                        planner.look_at(reading.peak);
                    }
                }
            >
                "to the peak"
            </button>
        </div>
    }
}

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
        planner.reading.with(|r| r.as_ref().map(|r| Layout::new(r, width, height)))
    });
    let cursor = move || planner.cursor.get().or_else(|| planner.reading.with(|r| r.as_ref().map(|r| r.peak)));

    let follow = move |event: web_sys::PointerEvent| {
        let Some(frame) = event.current_target().and_then(|t| t.dyn_into::<web_sys::Element>().ok()) else {
            return;
        };
        let x = f64::from(event.client_x()) - frame.get_bounding_client_rect().left();
        if let Some(point) = layout.with_untracked(|l| l.as_ref().map(|l| l.at(x))) {
            planner.look_at(point);
        }
    };
    let step = move |event: web_sys::KeyboardEvent| {
        let Some(by) = Move::of_key(&event.key()) else {
            return;
        };
        if event.ctrl_key() || event.meta_key() || event.alt_key() {
            return;
        }
        event.prevent_default();
        if let Some(reading) = planner.reading.get_untracked() {
            let from = planner.cursor.get_untracked().unwrap_or(reading.peak);
            planner.look_at(moved(&reading.points, reading.peak, from, by));
        }
    };
    let last = move || planner.reading.with(|r| r.as_ref().map_or(0, |r| r.points.len().saturating_sub(1)));
    let text = move || {
        let reading = planner.reading.get()?;
        let point = reading.points.get(cursor()?)?;
        let phase = reading.phases.get(point.phase as usize).map(wording::phase)?;
        Some(format!("{phase}, {}", number::bytes(point.total())))
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
            on:pointermove=follow
            on:pointerdown=follow
            on:keydown=step
        >
            {move || layout.get().map(|layout| view! { <Drawing layout/> })}
            <svg class="plot-cursor" width="100%" height="100%" aria-hidden="true">
                {move || {
                    let layout = layout.get()?;
                    let reading = planner.reading.get()?;
                    let index = cursor()?;
                    let x = *layout.xs.get(index)?;
                    let point = reading.points.get(index)?;
                    let context = reading.part(Kind::Context);
                    let y = layout.scale.y(context.checked_add(point.total()).unwrap_or(context));
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
            "Arrow keys move by one change, Page Up and Page Down by phase, Home and End to the ends, P to the peak."
        </p>
    }
}

#[component]
fn Drawing(layout: Layout) -> impl IntoView {
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
            {(layout.capacity > 20.0 && layout.capacity < layout.load_line - 14.0)
                .then(|| {
                    view! {
                        <line class="deck-line" x1=left x2=right y1=layout.capacity y2=layout.capacity/>
                    }
                })}
            <line class="load-line" x1=left x2=right y1=layout.load_line y2=layout.load_line/>
            <g class="load-tag">
                <circle class="load-tag-disc" cx=right - 14.0 cy=layout.load_line r="7"/>
                <line class="load-line" x1=right - 26.0 x2=right - 2.0 y1=layout.load_line y2=layout.load_line/>
                <text class="load-text figure-end" x=right - 32.0 y=layout.load_line - 6.0>"load line"</text>
            </g>
            <line class="process-line" x1=left x2=right y1=layout.process y2=layout.process/>
            <text class="process-text figure-end" x=right y=layout.process - 5.0>
                {if wide { "process peak: with what the allocator keeps in reserve" } else { "process peak" }}
            </text>
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
