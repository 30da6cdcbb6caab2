//! A page as a person meets it: things to read, to click, to type into.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use fantoccini::{
    Client, Locator,
    actions::{InputSource as _, KeyAction, KeyActions},
    error::{CmdError, ErrorStatus},
    key::Key,
};
use serde_json::{Value, json};
use url::Url;

use crate::{command::devtools, surroundings};

/// How long anything on the page may take: far longer than a person would wait, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often a wait looks again.
const GLANCE: Duration = Duration::from_millis(25);

/// One tab of one browser.
#[derive(Clone, Debug)]
pub struct Page {
    client: Client,
    home: Url,
    /// Whether it is worked without a pointer: every click is Tab until there, and the key that presses it.
    keyboard: bool,
}

impl Page {
    /// The tab of `client`; the planner is at `home`.
    pub fn new(client: Client, home: Url) -> Self {
        Self { client, home, keyboard: surroundings::by_keyboard() }
    }

    /// The same tab, worked by the keyboard alone.
    pub fn by_keyboard(&self) -> Self {
        Self { keyboard: true, ..self.clone() }
    }

    /// The way to the browser.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Opens a link to the planner, in full or such as `?batch=4`, and waits until the planner has taken over.
    pub async fn open(&self, link: &str) -> Result<()> {
        // Where only the fragment differs, the browser would stay on the page it has.
        self.client.goto("about:blank").await?;
        self.client.goto(self.home.join(link)?.as_str()).await?;
        self.ready().await
    }

    /// Loads the page again.
    pub async fn reload(&self) -> Result<()> {
        self.client.refresh().await?;
        self.ready().await
    }

    async fn ready(&self) -> Result<()> {
        self.until("the planner to take over", async || {
            let state = self.eval("return document.documentElement.dataset.state ?? 'loading'").await?;
            Ok(check(state == "ready", state))
        })
        .await
    }

    /// The address bar.
    pub async fn address(&self) -> Result<Url> {
        Ok(self.client.current_url().await?)
    }

    /// Waits until the address bar holds all of these.
    pub async fn address_with(&self, parts: &[&str]) -> Result<Url> {
        self.until(&format!("{parts:?} in the address bar"), async || {
            let address = self.address().await?;
            let has_all = parts.iter().all(|part| address.as_str().contains(part));
            Ok(if has_all { Ok(address) } else { Err(address.to_string()) })
        })
        .await
    }

    /// Runs JavaScript in the page.
    pub async fn eval(&self, script: &str) -> Result<Value> {
        self.eval_with(script, Vec::new()).await
    }

    /// Runs JavaScript with `arguments`.
    pub async fn eval_with(&self, script: &str, arguments: Vec<Value>) -> Result<Value> {
        self.client.execute(script, arguments).await.with_context(|| format!("the page could not run {script:.200}"))
    }

    /// Looks until `glance` finds what it wants; the error says what it saw last.
    pub async fn until<T, S: std::fmt::Display>(
        &self,
        what: &str,
        glance: impl AsyncFn() -> Result<Result<T, S>>,
    ) -> Result<T> {
        let start = Instant::now();
        loop {
            match glance().await? {
                Ok(found) => return Ok(found),
                Err(seen) if start.elapsed() > PATIENCE => {
                    bail!("waited {} s for {what}; last seen: {seen}", PATIENCE.as_secs())
                }
                Err(_) => tokio::time::sleep(GLANCE).await,
            }
        }
    }

    /// What stands in the visible element with this `data-testid`; `None` while there is none.
    pub async fn glance(&self, hook: &str) -> Result<Option<String>> {
        let script = "const element = document.querySelector(`[data-testid='${arguments[0]}']`);
            return element?.checkVisibility() ? element.innerText.replace(/\\s+/g, ' ').trim() : null";
        Ok(self.eval_with(script, vec![json!(hook)]).await?.as_str().map(str::to_owned))
    }

    /// Waits until the element is there and what stands in it is as wanted.
    pub async fn reads(&self, hook: &str, what: &str, wanted: impl Fn(&str) -> bool) -> Result<String> {
        self.until(&format!("{hook} to read {what}"), async || {
            let text = self.glance(hook).await?;
            Ok(match text {
                Some(text) if wanted(&text) => Ok(text),
                other => Err(format!("{other:?}")),
            })
        })
        .await
    }

    /// As [`Page::reads`], for what is said but not shown.
    pub async fn reads_unseen(&self, hook: &str, wanted: impl Fn(&str) -> bool) -> Result<String> {
        self.until(&format!("{hook} to say it"), async || {
            let script = "return document.querySelector(`[data-testid='${arguments[0]}']`)?.textContent ?? ''";
            let text = self.eval_with(script, vec![json!(hook)]).await?.as_str().unwrap_or_default().to_owned();
            Ok(if wanted(&text) { Ok(text) } else { Err(text) })
        })
        .await
    }

    /// Waits until there is no such element.
    pub async fn is_gone(&self, hook: &str) -> Result<()> {
        self.until(&format!("{hook} to go"), async || Ok(self.glance(hook).await?.map_or(Ok(()), Err))).await
    }

    /// The attribute of the element with this `data-testid`.
    pub async fn attribute(&self, hook: &str, name: &str) -> Result<Option<String>> {
        let script = "return document.querySelector(`[data-testid='${arguments[0]}']`)?.getAttribute(arguments[1])";
        Ok(self.eval_with(script, vec![json!(hook), json!(name)]).await?.as_str().map(str::to_owned))
    }

    /// Waits until the attribute is this.
    pub async fn attribute_is(&self, hook: &str, name: &str, wanted: &str) -> Result<()> {
        self.until(&format!("{name} of {hook} to be {wanted:?}"), async || {
            let value = self.attribute(hook, name).await?;
            Ok(check(value.as_deref() == Some(wanted), format!("{value:?}")))
        })
        .await
    }

    /// What is typed into a field.
    pub async fn value(&self, hook: &str) -> Result<String> {
        let script = "return document.querySelector(`[data-testid='${arguments[0]}']`)?.value";
        let value = self.eval_with(script, vec![json!(hook)]).await?;
        value.as_str().map(str::to_owned).with_context(|| format!("there is no field {hook}"))
    }

    /// Clicks the first element that fits, as soon as it is there and can be clicked.
    pub async fn click(&self, css: &str) -> Result<()> {
        self.click_at(Locator::Css(css)).await
    }

    /// What is still being found out is drawn anew when it comes, and moves what is below it: a click that was on its way
    /// would meet something else.
    async fn click_at(&self, place: Locator<'_>) -> Result<()> {
        if self.keyboard {
            return self.press_at(place).await;
        }
        let pending = "return [...document.querySelectorAll('.is-pending')].filter(e => e.checkVisibility()).length";
        self.until(&format!("{place:?} to be clicked"), async || {
            if self.eval(pending).await? != 0 {
                return Ok(Err("something on the page is still being found out".to_owned()));
            }
            let clicked = async { self.client.find(place).await?.click().await };
            match clicked.await {
                Ok(()) => Ok(Ok(())),
                Err(error) if is_not_yet(&error) => Ok(Err(error.to_string())),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    /// Clicks the element with this `data-testid`.
    pub async fn click_hook(&self, hook: &str) -> Result<()> {
        self.click(&by_hook(hook)).await
    }

    /// Chooses a word by the name of its lever: from a strip of radio buttons, or from a list.
    pub async fn choose(&self, group: &str, value: &str) -> Result<()> {
        let group = by_hook(group);
        let listed =
            self.eval_with("return !!document.querySelector(`${arguments[0]} select`)", vec![json!(group)]).await?;
        if listed == true {
            return self.choose_from_list(&format!("{group} select"), value).await;
        }
        if !self.keyboard {
            // What a person clicks is the label; the button itself is drawn over.
            return self.click(&format!("{group} label:has(input[value='{value}'])")).await;
        }
        // Tab leads into the group, arrows along it.
        self.press_at(Locator::Css(&format!("{group} input[type=radio]:checked"))).await?;
        self.until_pressed(Key::Right, &format!("{group} input[value='{value}']:checked")).await
    }

    async fn choose_from_list(&self, css: &str, value: &str) -> Result<()> {
        if !self.keyboard {
            return Ok(self.client.find(Locator::Css(css)).await?.select_by_value(value).await?);
        }
        self.press_at(Locator::Css(css)).await?;
        self.press(Key::Home).await?;
        let script = "return document.querySelector(arguments[0]).value";
        for _ in 0..60 {
            if self.eval_with(script, vec![json!(css)]).await? == value {
                return Ok(());
            }
            self.press(Key::Down).await?;
        }
        bail!("the arrow keys do not lead to {value} in {css}")
    }

    /// Presses a key until something matches.
    async fn until_pressed(&self, key: Key, css: &str) -> Result<()> {
        for _ in 0..30 {
            if self.eval_with("return !!document.querySelector(arguments[0])", vec![json!(css)]).await? == true {
                return Ok(());
            }
            self.press(key).await?;
        }
        bail!("the key does not lead to {css}")
    }

    /// Goes to the first element that fits with Tab, or with the arrow keys where Tab leads to the grid it is in, and
    /// presses it as its kind is pressed. What is typed into only takes the focus.
    async fn press_at(&self, place: Locator<'_>) -> Result<()> {
        const MOST: usize = 500;
        let (by, text) = match place {
            Locator::Css(css) => ("css", css),
            Locator::XPath(path) => ("xpath", path),
            other => bail!("{other:?} is not looked for by keyboard"),
        };
        let find = "const [by, text] = arguments;
            const wanted = by === 'css' ? document.querySelector(text)
                : document.evaluate(text, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE, null).singleNodeValue;
            const pending = [...document.querySelectorAll('.is-pending')].filter(e => e.checkVisibility()).length;
            if (!wanted?.checkVisibility() || pending) return 'not yet';
            const here = document.activeElement;
            if (here === wanted) return wanted.matches(':focus-visible') ? 'there' : 'there, unseen';
            const grid = wanted.closest('[role=grid]');
            if (!grid || !grid.contains(here)) return 'elsewhere';
            const place = cell => [cell.closest('tr').rowIndex, cell.closest('td,th').cellIndex];
            const [from, to] = [place(here), place(wanted)];
            return to[0] > from[0] ? 'down' : to[0] < from[0] ? 'up' : to[1] > from[1] ? 'right' : 'left'";
        let mut presses = 0;
        self.until(&format!("{text} to be reached by keyboard"), async || {
            let state = self.eval_with(find, vec![json!(by), json!(text)]).await?;
            Ok(if state == "not yet" { Err("it is not there, or something is still being found out") } else { Ok(()) })
        })
        .await?;
        loop {
            let state = self.eval_with(find, vec![json!(by), json!(text)]).await?;
            let key = match state.as_str().unwrap_or_default() {
                "there" => break,
                "there, unseen" => bail!("{text} has the focus and one cannot see it"),
                "down" => Key::Down,
                "up" => Key::Up,
                "right" => Key::Right,
                "left" => Key::Left,
                "elsewhere" => Key::Tab,
                _ => {
                    tokio::time::sleep(GLANCE).await;
                    continue;
                }
            };
            presses += 1;
            ensure!(presses < MOST, "{MOST} presses do not lead to {text}");
            self.press(key).await?;
        }
        let pressed_by = "const e = document.activeElement;
            return e.matches('[role=combobox][aria-expanded=false]') ? 'down'
                : e.matches('input:not([type=checkbox],[type=radio],[type=file]),textarea,select,[role=slider]') ? ''
                : e.matches('input,[role=switch]') ? 'space' : 'enter'";
        match self.eval(pressed_by).await?.as_str().unwrap_or_default() {
            "space" if self.eval("return document.activeElement.type === 'radio'").await? == true => Ok(()),
            "space" => self.type_text(" ").await,
            "enter" => self.press(Key::Enter).await,
            "down" => self.press(Key::Down).await,
            _ => Ok(()),
        }
    }

    /// Opens a fold by the words on it.
    pub async fn unfold(&self, words: &str) -> Result<()> {
        let path = format!("//summary[normalize-space()='{words}']");
        self.click_at(Locator::XPath(&path)).await
    }

    /// Replaces what stands in a field by typing.
    pub async fn retype(&self, hook: &str, text: &str) -> Result<()> {
        self.click_hook(hook).await?;
        self.select_all().await?;
        self.type_text(text).await
    }

    /// Control and A.
    pub async fn select_all(&self) -> Result<()> {
        let control = char::from(Key::Control);
        let keys = [
            KeyAction::Down { value: control },
            KeyAction::Down { value: 'a' },
            KeyAction::Up { value: 'a' },
            KeyAction::Up { value: control },
        ];
        self.perform(keys).await
    }

    /// Puts a text where the cursor is, in one go, as a paste does.
    pub async fn paste(&self, text: &str) -> Result<()> {
        devtools(&self.client, "Input.insertText", json!({ "text": text })).await?;
        Ok(())
    }

    /// Types into what has the focus.
    pub async fn type_text(&self, text: &str) -> Result<()> {
        self.perform(text.chars().flat_map(stroke)).await
    }

    /// Presses one key.
    pub async fn press(&self, key: Key) -> Result<()> {
        self.perform(stroke(key.into())).await
    }

    /// Presses Tab until the element has the focus, and sees to it that one can see that it has.
    pub async fn tab_to(&self, hook: &str) -> Result<()> {
        const MOST: usize = 120;
        let here = "return document.activeElement?.matches(`[data-testid='${arguments[0]}']:focus-visible`) ?? false";
        for _ in 0..MOST {
            self.press(Key::Tab).await?;
            if self.eval_with(here, vec![json!(hook)]).await? == true {
                return Ok(());
            }
        }
        bail!("{MOST} presses of Tab do not lead to {hook}")
    }

    async fn perform(&self, keys: impl IntoIterator<Item = KeyAction>) -> Result<()> {
        let actions = keys.into_iter().fold(KeyActions::new("keyboard".to_owned()), KeyActions::then);
        Ok(self.client.perform_actions(actions).await?)
    }
}

/// `Ok` when it holds, otherwise what was seen.
pub fn check<S>(holds: bool, seen: S) -> Result<(), S> {
    if holds { Ok(()) } else { Err(seen) }
}

/// Whether the element is not there, was taken away a moment ago, or something lies over it.
fn is_not_yet(error: &CmdError) -> bool {
    error.is_no_such_element()
        || error.is_stale_element_reference()
        || error.is_element_not_interactable()
        || matches!(error, CmdError::Standard(told) if told.error == ErrorStatus::ElementClickIntercepted)
}

fn by_hook(hook: &str) -> String {
    format!("[data-testid='{hook}']")
}

fn stroke(value: char) -> [KeyAction; 2] {
    [KeyAction::Down { value }, KeyAction::Up { value }]
}
