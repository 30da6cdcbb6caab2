//! What inference changes in `[input]`: tokens that are generated, and where a sequence begins.

use plimsoll_ground::{Error, Result};

use super::model::Traits;
use super::table::Table;
use super::{Input, Inputs, Mode, Model, ModelSource, Task, Training, limits};

/// Tokens generated when nothing is said, as far as the model has positions for them.
const DEFAULT_NEW_TOKENS: u64 = 256;

/// Refuses what only training has. `default` is what a recipe that says nothing has.
///
/// # Errors
/// The first key of `table`, which is `[training]`, that asks for something in inference that only training does.
pub fn check(training: &Training, default: &Training, table: &Table<'_>) -> Result<()> {
    if training.mode == Mode::Train {
        return Ok(());
    }
    let only_in_training = [
        ("optimizer", training.optimizer != Training::default().optimizer),
        ("optimizer_impl", training.optimizer_impl != default.optimizer_impl),
        ("accumulation", training.accumulation != default.accumulation),
        ("checkpointing", training.checkpointing != default.checkpointing),
        ("clip_grad_norm", training.clip_grad_norm != default.clip_grad_norm),
        ("zero_grad", training.zero_grad != default.zero_grad),
        ("zero_grad_at", training.zero_grad_at != default.zero_grad_at),
        ("keep_outputs", training.keep_outputs != default.keep_outputs),
        ("prepare_kbit", training.prepare_kbit != default.prepare_kbit),
        ("loss_impl", training.loss_impl != default.loss_impl),
        ("label_smoothing", training.label_smoothing > 0.0),
        ("ema", training.ema),
    ];
    if let Some((key, _)) = only_in_training.iter().find(|(_, asked)| *asked) {
        return Err(Error::new(table.at(key), "says nothing in inference", "leave it out"));
    }
    Ok(())
}

/// Whether inference of this model makes text: then it is `generate`, else one forward.
pub fn generates(model: &Model) -> bool {
    let makes_text = matches!(model.task, Task::CausalLm | Task::Seq2SeqLm | Task::SpeechSeq2Seq);
    makes_text && !matches!(model.source, ModelSource::Family { .. })
}

/// The input of a scenario in this mode that was read without looking at the mode; `table` is `[input]`.
///
/// # Errors
/// `max_new_tokens` where nothing is generated, or more tokens than the model has positions for; `target_seq` where the
/// decoder's tokens are what is generated.
pub fn read(input: Input, table: &Table<'_>, model: &Model, traits: Traits, mode: Mode) -> Result<Input> {
    let given = table.count("max_new_tokens", limits::SEQ)?;
    let foreign = |key: &str, problem: &str, hint: &str| Err(Error::new(table.at(key), problem, hint));
    if mode == Mode::Train {
        return match given {
            None => Ok(input),
            Some(_) => foreign(
                "max_new_tokens",
                "nothing is generated while a model is trained",
                "leave it out, or set training.mode = \"inference\"",
            ),
        };
    }
    if !generates(model) {
        return match given {
            None => Ok(input),
            Some(_) => foreign("max_new_tokens", "this model makes no text: inference is one forward", "leave it out"),
        };
    }
    if table.optional("target_seq").is_some() {
        return foreign(
            "target_seq",
            "the decoder begins with one token, and what follows is generated",
            "leave it out, and set input.max_new_tokens",
        );
    }
    let filled = with_new_tokens(input, model, traits, given, table.optional("seq").is_some());
    let (tokens, begin) = (filled.max_new_tokens.unwrap_or(0), begin(&filled, traits));
    let longest = begin.saturating_add(tokens);
    if let Some(positions) = model.source.positions().filter(|p| traits.learned_positions() && longest > *p) {
        let hint = match traits.inputs() {
            Inputs::Tokens => format!("let input.seq and input.max_new_tokens be at most {positions} together"),
            _ => format!("use at most {}", positions.saturating_sub(begin)),
        };
        return Err(Error::new(
            table.at("max_new_tokens"),
            format!(
                "{begin} {} and {tokens} new ones are more than the {positions} positions this model has parameters for",
                if begin == 1 { "token" } else { "tokens" }
            ),
            hint,
        ));
    }
    if filled.batch.saturating_mul(longest) > limits::TOKENS {
        let problem = format!("{} samples of {longest} tokens are more than {} tokens", filled.batch, limits::TOKENS);
        return Err(Error::new(table.at("batch"), problem, "give a smaller batch"));
    }
    Ok(filled)
}

/// Tokens the decoder has seen before the first new one.
fn begin(input: &Input, traits: Traits) -> u64 {
    match traits.inputs() {
        Inputs::EncoderDecoder | Inputs::Speech => 1,
        _ => input.seq.unwrap_or(1),
    }
}

/// `input` of training with what a generation has instead; `seq_given`: whether the sequence is the user's own.
pub fn with_new_tokens(input: Input, model: &Model, traits: Traits, given: Option<u64>, seq_given: bool) -> Input {
    let mut input = input;
    input.target_seq = None;
    if traits.inputs() == Inputs::Speech {
        // Labels: there are none.
        input.seq = None;
    }
    let positions = model.source.positions().filter(|_| traits.learned_positions());
    let tokens = given.unwrap_or_else(|| {
        let left = positions.map(|p| if seq_given { p.saturating_sub(begin(&input, traits)) } else { p / 2 });
        DEFAULT_NEW_TOKENS.min(left.unwrap_or(DEFAULT_NEW_TOKENS)).max(1)
    });
    if !seq_given && traits.inputs() == Inputs::Tokens {
        let room = positions.map(|p| p.saturating_sub(tokens).max(1));
        input.seq = input.seq.map(|seq| seq.min(room.unwrap_or(seq)));
    }
    input.max_new_tokens = Some(tokens);
    input
}
