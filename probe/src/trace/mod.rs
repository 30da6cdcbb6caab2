//! `plimsoll trace`: a person's own model, recorded once without a card, as a file that is estimated like any other model.

mod attempt;
mod input;
mod points;
mod recorder;

use std::fs;
use std::path::PathBuf;

use plimsoll_core::Error;
use plimsoll_core::catalog::search;
use plimsoll_core::ledger::hull::{Asked, Axis, Hull, MASK, Variant};
use plimsoll_core::scenario::{Training, no_such_gpu, variant_in_words};

use crate::exit::{self, Failure};
use crate::scripts::RECORDER;
use crate::worker::{Quarters, find};

use attempt::Attempt;
use input::Given;
use recorder::{Job, Recorder};

const EXAMPLES: &str = "\
Examples:
  plimsoll trace mymodel:Net --input 'x=float32[B,3,S,S]' --input 'y=int64[B]' \\
      --loss 'F.cross_entropy(model(x), y)' -o net.hull
  plimsoll trace train.py:make_model --input 'ids=int64[B,S]' --axis S=512 \\
      --loss 'model(ids)' -o mine.hull
  plimsoll trace 'torchvision.models:mobilenet_v3_large()' \\
      --input 'x=float32[B,3,S,S]' --input 'y=int64[B]' -o mobilenet.hull
  plimsoll trace train.py -o mine.hull -- --data small.json
  plimsoll trace 'timm:create_model(\"convnext_tiny\")' \\
      --input 'x=float32[B,3,224,224]' --input 'y=int64[B]' -o convnext.hull
  plimsoll trace 'transformers:GPT2LMHeadModel(GPT2Config())' --also lora=16 \
      --input 'ids=int64[B,S]' --loss 'model(ids, labels=ids).loss' -o gpt2.hull
  plimsoll estimate --hull net.hull --batch 8 --set S=224 --gpu rtx-4090

Your own PyTorch runs the model's forward and backward on tensors that have no
contents: no card is needed, and nothing is computed or sent anywhere. Letters in
an input's shape are axes; the first is the micro-batch. The module is imported
from the current folder as well.

A script runs as it is, on the host, until the line that you mark in it:
  import plimsoll
  with plimsoll.trace(\"mine\", input_ids=\"B,S\", labels=\"B,S\"):
      loss = model(**batch).loss
What follows it does not run. Inputs without names of axes have the batch alone.";

/// Precisions that are recorded when none is named.
const PRECISIONS: &str = "fp32,bf16-amp";
/// Compute capabilities that choose attention kernels differently from one another.
const CARDS: [(u8, u8); 6] = [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)];

/// Record your own model, without a card, for `plimsoll estimate --hull`
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where the model comes from: a module or a file, and what makes the model
    /// in it; or a script with a marked line
    #[arg(value_name = "MODULE:CALLABLE | SCRIPT.py", required_unless_present = "print_recorder")]
    model: Option<String>,

    /// What a script is given, after --
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,

    /// An input: name, type and shape, `x=float32[B,3,S,S]`; may be repeated.
    /// float32 becomes the precision's own type where weights are in 16 bits
    #[arg(long, value_name = "NAME=TYPE[SHAPE]")]
    input: Vec<String>,

    /// How the loss is computed: an expression of model, the inputs by name, batch
    /// (all of them in a dict), torch, nn and F
    #[arg(long, value_name = "EXPR", default_value = "F.cross_entropy(model(x), y)")]
    loss: String,

    /// A usual value of an axis, S=512; S=512/32 says that only multiples of 32
    /// are asked for [default: 256 for sides of images, else 64]
    #[arg(long, value_name = "AXIS=VALUE")]
    axis: Vec<String>,

    /// Precisions to record, by commas: fp32, fp16-amp, bf16-amp, fp16, bf16
    /// [default: fp32,bf16-amp; of a script, what it trains in]
    #[arg(long, value_name = "LIST")]
    precision: Option<String>,

    /// What is recorded as well, into the same file: adapters of peft, lora=16 on
    /// every linear layer, lora=8:q_proj,v_proj+dropout=0.1+base_dtype=bfloat16
    /// on those, lora=16+quantization=nf4 on bitsandbytes' layers;
    /// attention=eager of a transformers model; compile, what
    /// torch.compile makes of it; may be repeated
    #[arg(long, value_name = "WHAT")]
    also: Vec<String>,

    /// What the model is told when it asks the card for a number, by the
    /// function that asks: Router.forward=false; where it asks how many elements
    /// a mask selects, which part: Tagger.forward=0.15; may be repeated
    #[arg(long, value_name = "FUNCTION=VALUE")]
    answer: Vec<String>,

    /// Record for cards like this one only [default: every kind of card whose
    /// attention takes other kernels, from compute capability 8.0 on]
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,

    /// The loop keeps loss.detach() until the next one, not the loss itself
    #[arg(long)]
    detach_loss: bool,

    /// A folder to import from; may be repeated [default: the current one]
    #[arg(long, value_name = "FOLDER")]
    path: Vec<PathBuf>,

    /// The Python whose PyTorch runs the model [default: as `plimsoll probe run`
    /// finds it]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,

    /// Where the recording is written
    #[arg(short, long, value_name = "FILE", default_value = "model.hull")]
    out: PathBuf,

    /// Print the recorder, one Python file, and end
    #[arg(long)]
    print_recorder: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    if args.print_recorder {
        return crate::estimate::print(RECORDER, exit::OK);
    }
    let (job, given) = job(args)?;
    let cards = cards(args.gpu.as_deref())?;
    let python = find(args.python.as_deref())?;
    let quarters = Quarters::new()?;
    let mut recorders = Recorder::start_all(&quarters, &python, RECORDER, &job)?;
    let hello = recorders.first_mut().map(|first| std::mem::take(&mut first.hello)).unwrap_or_default();
    let given = match given {
        Some(given) => given,
        None => {
            let axes: Vec<String> = hello.axes.iter().chain(&args.axis).cloned().collect();
            Given::read(&hello.inputs, &axes)?
        }
    };
    let usual = if job.callable.is_some() { PRECISIONS } else { hello.precision.as_str() };
    let named = args.precision.clone().unwrap_or_else(|| usual.to_owned());
    let precisions = precisions(&named)?;
    let own = [
        ("plimsoll".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("torch".to_owned(), hello.torch.clone()),
        ("python".to_owned(), hello.python.clone()),
    ];
    let mut asked = Asked {
        made: own.into_iter().chain(hello.packages.iter().cloned()).collect(),
        model: args.model.clone().unwrap_or_default(),
        loss: if job.callable.is_some() { args.loss.clone() } else { hello.lines.clone() },
        inputs: given.described.clone(),
        axes: Vec::new(),
    };
    let mut refused = None;
    for steps in given.attempts() {
        asked.axes = given.axes(&steps);
        match Attempt::new(&mut recorders, &asked, &given).run(&job.variants, &precisions, &cards) {
            Ok(hull) => return finish(args, &hull),
            // Another size may be one that the model takes, or does the same at.
            Err(failure @ Failure::Scenario { .. }) if given.may_step() => {
                eprintln!("{failure}\nTrying multiples only");
                recorders = Recorder::start_all(&quarters, &python, RECORDER, &job)?;
                refused = refused.or(Some(failure));
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(refused.unwrap_or_else(|| Error::new("trace", "nothing was recorded", "name an axis").into()))
}

/// What the recorder is to do, and the inputs; those of a script are known when it has come to its marked lines.
fn job(args: &Args) -> Result<(Job, Option<Given>), Failure> {
    let model = args.model.as_deref().unwrap_or_default();
    let (module, callable) = match model.split_once(':') {
        Some((module, callable)) => (module, Some(callable.to_owned())),
        None if model.ends_with(".py") => (model, None),
        None => {
            let hint = "write a module, a colon and what makes the model, mymodel:Net, or a script with a marked line, train.py";
            return Err(Error::new("trace", "it is not said what makes the model", hint).into());
        }
    };
    let given = match callable {
        Some(_) => Some(Given::read(&args.input, &args.axis)?),
        None if args.input.is_empty() => None,
        None => {
            let hint = "name them in the script: with plimsoll.trace(\"mine\", x=\"B,3,S,S\"):";
            return Err(Error::new("--input", "a script has its inputs itself", hint).into());
        }
    };
    let here = std::env::current_dir().map_err(|error| Failure::Environment {
        problem: format!("the current folder cannot be found: {error}"),
        hint: "change to another folder".to_owned(),
    })?;
    let mut path: Vec<PathBuf> = args.path.iter().map(|folder| here.join(folder)).collect();
    path.push(here.clone());
    let file = module.ends_with(".py");
    if file && !here.join(module).is_file() {
        let problem = format!("there is no file {module}");
        return Err(Error::new("trace", problem, "name it as it is called from the current folder").into());
    }
    let variants = variants(args, callable.is_none())?;
    let job = Job {
        variants,
        module: if file { here.join(module).to_string_lossy().into_owned() } else { module.to_owned() },
        callable,
        arguments: args.arguments.clone(),
        inputs: given.as_ref().map(|given| given.inputs.clone()).unwrap_or_default(),
        loss: args.loss.clone(),
        answers: input::answers(&args.answer)?,
        detach_loss: args.detach_loss,
        path,
    };
    Ok((job, given))
}

/// The kinds of cards that are recorded for.
fn cards(gpu: Option<&str>) -> Result<Vec<(u8, u8)>, Failure> {
    let Some(name) = gpu else { return Ok(CARDS.to_vec()) };
    let (_, card) = search::gpu_called(name).ok_or_else(|| {
        let Error { problem, hint, .. } = no_such_gpu(search::count(name).1);
        Error::new("--gpu", problem, hint)
    })?;
    let hint = "see `plimsoll gpus`; cards of compute capability 8.0 and above are recorded for";
    // Others choose as the nearest before them does.
    let class = card.compute_capability.and_then(|c| CARDS.into_iter().rev().find(|known| *known <= c));
    Ok(vec![class.ok_or_else(|| Error::new("--gpu", format!("{} is too old", card.name), hint))?])
}

/// What is recorded beside the model as it is.
fn variants(args: &Args, script: bool) -> Result<Vec<Variant>, Failure> {
    let mut variants: Vec<Variant> = Vec::new();
    for said in &args.also {
        if script {
            let hint = "write it into the script, and trace that into a file of its own";
            return Err(Error::new("--also", "a script's models are recorded as the script made them", hint).into());
        }
        let variant = Variant::parse(said)?;
        if !variants.contains(&variant) {
            variants.push(variant);
        }
    }
    Ok(variants)
}

fn precisions(list: &str) -> Result<Vec<&str>, Failure> {
    const KNOWN: [&str; 5] = ["fp32", "fp16-amp", "bf16-amp", "fp16", "bf16"];
    let named: Vec<&str> = list.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    match named.iter().find(|word| !KNOWN.contains(word)) {
        Some(word) => {
            Err(Error::new("--precision", format!("{word:?} is none"), format!("use {}", KNOWN.join(", "))).into())
        }
        None if named.is_empty() => Err(Error::new("--precision", "it is empty", "name one").into()),
        None => Ok(named),
    }
}

/// The flag without which an estimate would take a precision that is not recorded.
fn precision(hull: &Hull) -> String {
    let usual = Training::default().precision.as_str();
    let first = hull.tapes.first().filter(|_| hull.tapes.iter().all(|tape| tape.precision != usual));
    first.map_or_else(String::new, |tape| format!(" --precision {}", tape.precision))
}

/// Writes the file and says what is in it.
fn finish(args: &Args, hull: &Hull) -> Result<u8, Failure> {
    let bytes = hull.to_bytes()?;
    // As whoever opens it will.
    let hull = Hull::from_bytes(&bytes)?;
    fs::write(&args.out, &bytes).map_err(|error| Failure::Environment {
        problem: format!("cannot write {}: {error}", args.out.display()),
        hint: "name a file in a folder that can be written to".to_owned(),
    })?;
    let mut asked: Vec<String> = hull
        .tapes
        .iter()
        .flat_map(|tape| &tape.asked)
        .map(|(who, dtype, told)| match &**dtype {
            MASK => format!("{who} asked how many elements a mask selects, which data decides, and was told {told}"),
            _ => format!("{who} asked the card for a number ({dtype}) and was told {told}"),
        })
        .collect();
    asked.sort();
    asked.dedup();
    for line in asked {
        eprintln!("{line}; --answer changes it");
    }
    let axes = |axis: &Axis| {
        let step = if axis.step > 1 { format!(", multiples of {}", axis.step) } else { String::new() };
        format!("{} (from {}{step})", axis.name, axis.least)
    };
    let also: String =
        hull.variants().into_iter().map(|variant| format!("As well: {}\n", variant_in_words(variant))).collect();
    let text = format!(
        "{}: {} bytes, {} tapes, {} expressions, {} witnesses came out; axes {}\n{also}plimsoll estimate --hull {} --batch 8{}\n",
        args.out.display(),
        bytes.len(),
        hull.tapes.len(),
        hull.exprs.len(),
        hull.tapes.iter().map(|tape| tape.witnesses.len()).sum::<usize>(),
        hull.axes.iter().map(axes).collect::<Vec<_>>().join(", "),
        args.out.display(),
        precision(&hull),
    );
    crate::estimate::print(&text, exit::OK)
}
