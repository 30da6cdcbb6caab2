//! What fits: every cell of the heat map leads to the run it speaks of, with the mouse and with the keyboard.

use anyhow::{Context as _, Result, ensure};
use fantoccini::key::Key;
use plimsoll_core::scenario::Link;
use serde_json::{Value, json};

use crate::{
    figures::{Figures, agreed, expected},
    journey::journey,
    page::{Page, check},
};

/// A model, a card and a sheet on which some cells fit and some do not.
const LINK: &str = "?model=gpt2&gpu=rtx-5070-ti-laptop&batch=4&seq=512";

#[test]
fn a_cell_leads_to_the_run_it_speaks_of() -> Result<()> {
    journey("heatmap", async |journey| {
        let page = journey.planner().await?;
        page.open(LINK).await?;
        let before = agreed(&page).await?;
        let cells = known(&page).await?;
        ensure!(cells.iter().any(Cell::fits) && !cells.iter().all(Cell::fits), "nothing to see: {cells:?}");
        // One cell in every seven: all rows and columns have their turn.
        for cell in cells.iter().step_by(7) {
            let figures = engine(&page, cell).await?;
            ensure!(cell.says_of(&figures), "{cell:?}, where the engine says {figures:?}");
        }
        // The first that does not fit, then the last that does.
        let over = cells.iter().find(|cell| !cell.fits()).context("all fit")?;
        let after = take(&page, over).await?;
        ensure!(after != before && over.says_of(&after) && after.over, "{over:?} led to {after:?}");
        let under = cells.iter().rfind(|cell| cell.fits()).context("none fits")?;
        let after = take(&page, under).await?;
        ensure!(under.says_of(&after) && !after.over, "{under:?} led to {after:?}");
        Ok(())
    })
}

#[test]
fn the_heat_map_is_walked_with_the_keyboard() -> Result<()> {
    journey("heatmap keyboard", async |journey| {
        let page = journey.planner().await?;
        page.open(LINK).await?;
        agreed(&page).await?;
        let cells = known(&page).await?;
        // The Tab key stops once, at the run's own cell.
        let own = cells.iter().find(|cell| (cell.batch, cell.seq) == (4, 512)).context("no cell for the run itself")?;
        let stops = page.eval("return [...document.querySelectorAll('.heat button[tabindex=\"0\"]')].length").await?;
        ensure!(stops == 1, "{stops} stops for the Tab key");
        let focus = "const stop = document.querySelector('.heat button[tabindex=\"0\"]'); stop.focus();
            return stop.getAttribute('aria-label')";
        ensure!(page.eval(focus).await? == own.label, "the stop is another cell than {own:?}");
        let steps = [
            (Key::Right, cells.iter().find(|cell| cell.batch == own.batch && cell.seq > own.seq)),
            (Key::Down, cells.iter().find(|cell| cell.batch > own.batch && cell.seq > own.seq)),
        ];
        let mut at = own;
        for (key, next) in steps {
            page.press(key).await?;
            at = next.context("the run is at the edge of its map")?;
            page.until("the focus to move", async || {
                let here = page.eval("return document.activeElement?.getAttribute('aria-label')").await?;
                Ok(check(here == at.label, here))
            })
            .await?;
        }
        page.press(Key::Enter).await?;
        let after = taken(&page, at).await?;
        ensure!(at.says_of(&after), "{at:?} led to {after:?}");
        Ok(())
    })
}

/// A cell as it is read.
#[derive(Clone, Debug)]
struct Cell {
    batch: u64,
    seq: u64,
    /// `20.3`.
    text: String,
    /// All that is said of it.
    label: String,
}

impl Cell {
    fn fits(&self) -> bool {
        self.label.contains("to spare")
    }

    /// Whether it says what these figures say.
    fn says_of(&self, figures: &Figures) -> bool {
        let gib = format!("{:.1}", figures.process as f64 / f64::from(1 << 30));
        self.text == gib && self.label.contains(&figures.verdict)
    }
}

/// The map, once it is there and no longer being found out.
async fn known(page: &Page) -> Result<Vec<Cell>> {
    let script = "const map = document.querySelector('.heat');
        if (!map?.checkVisibility() || map.closest('section').classList.contains('is-pending')) return null;
        const number = text => Number(text.replace(/[^0-9]/g, ''));
        const seqs = [...map.tHead.rows[0].cells].slice(1).map(cell => number(cell.innerText));
        return [...map.tBodies[0].rows].flatMap(row => [...row.querySelectorAll('button')].map((button, column) => [
            number(row.cells[0].innerText), seqs[column], button.innerText, button.getAttribute('aria-label')]))";
    let cells: Vec<Cell> = page
        .until("the heat map", async || {
            let rows = page.eval(script).await?;
            let cell = |row: &Value| {
                let text = |i: usize| row.get(i)?.as_str().map(str::to_owned);
                Some(Cell { batch: row.get(0)?.as_u64()?, seq: row.get(1)?.as_u64()?, text: text(2)?, label: text(3)? })
            };
            let cells: Option<Vec<Cell>> = rows.as_array().into_iter().flatten().map(cell).collect();
            Ok(cells.filter(|cells| !cells.is_empty()).ok_or(rows))
        })
        .await?;
    ensure!(cells.len() >= 40, "only {} cells: {cells:?}", cells.len());
    Ok(cells)
}

/// Clicks a cell and waits for its run.
async fn take(page: &Page, cell: &Cell) -> Result<Figures> {
    let script = "const wanted = [...document.querySelectorAll('.heat button')]
            .find(button => button.getAttribute('aria-label') === arguments[0]);
        wanted?.scrollIntoView({ block: 'center' });
        wanted?.click();
        return Boolean(wanted)";
    page.until("the cell to be clicked", async || {
        let clicked = page.eval_with(script, vec![json!(cell.label)]).await?;
        Ok(check(clicked == true, clicked))
    })
    .await?;
    taken(page, cell).await
}

/// The run of a cell, once the page shows it. What is as usual is not in the address, so that is read as a scenario.
async fn taken(page: &Page, cell: &Cell) -> Result<Figures> {
    page.until("the sizes of the cell in the address bar", async || {
        let address = page.address().await?;
        let sizes = Link::decode_strict(address.as_str()).map(|s| (s.input.batch, s.input.seq));
        Ok(check(sizes.is_ok_and(|sizes| sizes == (cell.batch, Some(cell.seq))), address))
    })
    .await?;
    agreed(page).await
}

/// What the engine says of the run a cell stands for.
async fn engine(page: &Page, cell: &Cell) -> Result<Figures> {
    let mut scenario = Link::decode_strict(page.address().await?.as_str())?;
    (scenario.input.batch, scenario.input.seq) = (cell.batch, Some(cell.seq));
    expected(&scenario)
}
