//! What people have in hand is read, and the run is written as what they use.

use anyhow::{Result, ensure};
use plimsoll_core::Scenario;
use plimsoll_core::estimate::estimate;
use plimsoll_core::exchange::{Source, read};
use plimsoll_core::summary::markdown;
use serde_json::json;

use crate::{axe, figures::agreed, journey::journey};

const AXOLOTL: &str = "base_model: Qwen/Qwen3-8B\nload_in_4bit: true\nadapter: qlora\nlora_r: 32\nlora_target_linear: true\nsequence_len: 2048\nmicro_batch_size: 2\nbf16: auto\noptimizer: paged_adamw_8bit\ngradient_checkpointing: true\nactivation_offloading: true\nlayer_offloading: true\nnew_key: 1\n";

#[test]
fn a_configuration_becomes_the_run_and_says_what_it_could_not_take() -> Result<()> {
    journey("exchange", async |journey| {
        let page = journey.planner().await?;
        page.address_with(&["?"]).await?;
        agreed(&page).await?;

        // What is none of any tool is refused, and the run stays.
        page.click_hook("exchange-text").await?;
        page.paste("hello: world").await?;
        page.click_hook("exchange-read").await?;
        let refused = page.reads("exchange-error", "why it is refused", |text| text.contains("no tool")).await?;
        ensure!(refused.contains("Axolotl"), "{refused}");

        page.click_hook("exchange-text").await?;
        page.select_all().await?;
        page.paste(AXOLOTL).await?;
        page.click_hook("exchange-read").await?;
        page.address_with(&[
            "model=qwen3-8b",
            "batch=2",
            "seq=2048",
            "quantization=nf4",
            "lora=32",
            "paged-adamw-8bit",
        ])
        .await?;
        agreed(&page).await?;
        let report = page.reads("exchange-report", "what came of the keys", |text| text.contains("taken")).await?;
        for words in [
            "Axolotl",
            "activation_offloading = true",
            "not estimated",
            "layer_offloading = true",
            "not known",
            "new_key",
        ] {
            ensure!(report.contains(words), "{words:?} in {report}");
        }
        ensure!(page.glance("exchange-error").await?.unwrap_or_default().is_empty(), "an old refusal stands");
        axe::is_clean(&page, "a configuration that was read").await?;

        // It can be taken back like any change.
        page.click_hook("undo").await?;
        page.address_with(&["model=gpt2"]).await.map(drop)
    })
}

#[test]
fn the_run_is_written_as_what_people_use() -> Result<()> {
    journey("written", async |journey| {
        let page = journey.browser().await?;
        page.open("?model=qwen3-8b&precision=bf16-amp&quantization=nf4-double&lora=16&checkpointing=full&batch=3")
            .await?;
        agreed(&page).await?;
        for (form, words) in
            [("pytorch", "load_in_4bit=True"), ("trainer", "LoraConfig("), ("llama-factory", "quantization_bit: 4")]
        {
            page.eval(&format!(
                "const select = document.querySelector('[data-testid=exchange-form]'); select.value = '{form}'; \
                 select.dispatchEvent(new Event('change', {{ bubbles: true }})); return true"
            ))
            .await?;
            let code = page.reads("exchange-code", "the run, written", |text| text.contains(words)).await?;
            ensure!(code.contains("Qwen/Qwen3-8B"), "{code}");
            let whole = page.eval("return document.querySelector('[data-testid=exchange-code]').textContent").await?;
            let name = if form == "llama-factory" { "a.yaml" } else { "a.py" };
            let source = Source { name: name.to_owned(), text: whole.as_str().unwrap_or_default().to_owned() };
            let back = read(&[source], None)?.scenario;
            ensure!(back["input"]["batch"] == 3, "{form}: {back:?}");
        }
        axe::is_clean(&page, "a run that was written").await?;
        // What a form cannot say, it says.
        page.eval(
            "const select = document.querySelector('[data-testid=exchange-form]'); select.value = 'torchtune'; \
             select.dispatchEvent(new Event('change', { bubbles: true })); return true",
        )
        .await?;
        page.reads("exchange-refused", "why it is refused", |text| text.contains("training.")).await.map(drop)
    })
}

/// The note and both pictures, caught where the browser would put them into the clipboard or a file.
const CAUGHT: &str = "window.caught = {}; \
    Clipboard.prototype.writeText = async text => { window.caught.note = text }; \
    HTMLAnchorElement.prototype.click = function () { window.caught[this.download] = this.href }; return true";

#[test]
fn the_answer_is_taken_along_as_a_note_and_as_a_picture() -> Result<()> {
    journey("answer", async |journey| {
        let page = journey.browser().await?;
        page.open("?model=qwen3-8b&gpu=rtx-5070-ti&batch=2").await?;
        agreed(&page).await?;
        page.eval(CAUGHT).await?;
        for form in ["answer-markdown", "answer-svg", "answer-png"] {
            page.click_hook(form).await?;
        }
        let held = |caught: &serde_json::Value, name: &str| caught[name].as_str().unwrap_or_default().to_owned();
        let caught = page
            .until("note and pictures", async || {
                let caught = page.eval("return window.caught").await?;
                let all = ["note", "plimsoll.svg", "plimsoll.png"].iter().all(|name| !held(&caught, name).is_empty());
                let names = caught.as_object().map(|caught| caught.keys().cloned().collect::<Vec<_>>().join(", "));
                Ok(if all { Ok(caught) } else { Err(names.unwrap_or_default()) })
            })
            .await?;
        let scenario = Scenario::from_value(&json!({
            "model": { "catalog": "qwen3-8b" }, "device": { "gpu": "rtx-5070-ti" }, "input": { "batch": 2 }
        }))?;
        let note = held(&caught, "note");
        ensure!(note == markdown(&scenario, &estimate(&scenario)?), "{note}");
        ensure!(held(&caught, "plimsoll.svg").contains("Does%20not%20fit"), "the picture has another verdict");
        // The picture is painted: wide, and not all of one colour.
        let painted = page
            .eval_with(
                "const image = new Image(); image.src = arguments[0]; return image.decode().then(() => { \
                 const canvas = document.createElement('canvas'); canvas.width = image.width; canvas.height = image.height; \
                 const brush = canvas.getContext('2d'); brush.drawImage(image, 0, 0); \
                 const dots = new Uint32Array(brush.getImageData(0, 0, image.width, image.height).data.buffer); \
                 return [image.width, new Set(dots).size > 20] })",
                vec![caught["plimsoll.png"].clone()],
            )
            .await?;
        ensure!(painted == json!([1520, true]), "{painted}");
        axe::is_clean(&page, "an answer that was taken along").await
    })
}
