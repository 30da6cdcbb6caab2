//! Cards that do different things, side by side.

use leptos::prelude::*;
use plimsoll_web::fleet::{Berth, Fleet, HEIGHT, HULL, WIDTH};
use plimsoll_web::{number, wording};

use super::gauge::{hull_fill, hull_path};
use super::planner::Planner;

/// Radius of the bilge of a hull that is drawn small.
const BILGE: f64 = 14.0;

#[component]
pub fn FleetFigure() -> impl IntoView {
    let planner = Planner::get();
    move || {
        let fleet = planner.below.reading.with(|reading| Fleet::new(reading.as_deref()?))?;
        let Fleet { berths, line, deck } = fleet;
        let berths = berths.into_iter().enumerate();
        Some(view! {
            <ul class="fleet" aria-label="Cards side by side" data-testid="fleet">
                {berths.map(|(index, berth)| view! { <Ship index berth line deck/> }).collect_view()}
            </ul>
        })
    }
}

#[component]
fn Ship(index: usize, berth: Berth, line: f64, deck: f64) -> impl IntoView {
    let (x, width, _) = HULL;
    let Berth { cards, process, headroom, layers, waterline } = berth;
    let shape = format!("fleet-hull-{index}");
    let deep = waterline < line;
    view! {
        <li class="ship" class:is-deep=deep>
            <svg width=WIDTH height=HEIGHT viewBox=format!("0 0 {WIDTH} {HEIGHT}") aria-hidden="true">
                <defs>
                    <clipPath id=shape.clone()>
                        <path d=hull_fill(HULL, BILGE)/>
                    </clipPath>
                </defs>
                <path class="hull-inside" d=hull_path(HULL, deck, BILGE)/>
                <g clip-path=format!("url(#{shape})")>
                    {layers
                        .into_iter()
                        .map(|(kind, y, height)| {
                            view! { <rect class=format!("segment {}", kind.class()) x=x width=width y=y height=height/> }
                        })
                        .collect_view()}
                </g>
                <path class="hull" d=hull_path(HULL, deck, BILGE)/>
                <line class="surface" class:surface-deep=deep x1="0" x2=WIDTH y1=waterline y2=waterline/>
                <line class="line-through" x1="4" x2=WIDTH - 4.0 y1=line y2=line/>
                <line class="deck" x1=x - 8.0 x2=x + width + 8.0 y1=deck y2=deck/>
            </svg>
            <p>
                <span>{cards}</span>
                <strong>{number::bytes(process)}</strong>
                <span class="ship-headroom">{wording::distance(headroom)}</span>
            </p>
        </li>
    }
}
