//! Where a network of convolutions may end up, as an interval: which algorithm cuDNN picks is not known without the card, and where what it
//! takes was measured, the rule for it is not always right.

use std::collections::BTreeSet;

use plimsoll_catalog::{Gpu, Vendor};
use plimsoll_ground::Bytes;
use plimsoll_ledger::{Ledger, Storage};
use plimsoll_scenario::{Mode, ModelSource, Scenario, Trainer};
use plimsoll_torch::Op;
use plimsoll_torch::ops::Answers;
use serde::Serialize;

use super::share::thousandths;

/// Convolutions that cut an image or a sound into patches, as transformers have: nobody saw those differ.
const STEM: usize = 4;

/// Sizes of what a convolution of images makes: samples, channels, height and width.
const IMAGES: usize = 4;

/// How far runs may lie from what PyTorch's own code reserves when cuDNN asks for nothing. Others measured 82 training runs of eleven of
/// torchvision's networks in float32 (VGG, MobileNet, MNASNet, RegNet, ResNet, ConvNeXt; Stone-ResearchLife/xMem, RTX 3060 and 4060,
/// PyTorch 2.6), each of which stands beside the same loop on a hollow card: reserved was at most 11.92 % more than what was measured (a
/// workspace that was given back serves a tensor), and at most 16.31 % less. Thousandths of what is reserved.
const LESS: u64 = 107;
/// The other end: 400 such networks, drawn by lot with batch, size, precision, optimizer and one of nine cards (seed 2811281), reserve at most
/// 6.6 % less and, but for seven VGGs, at most 30.6 % more with what cuDNN 9.19 plans for them; the seven up to 50.3 % more.
const MORE: u64 = 306;

/// The same where what cuDNN takes is counted: of 114 training runs of such networks on an H100 80GB HBM3 and an H200 (PyTorch 2.11.0+cu130, cuDNN
/// 9.19, 2026-11-26 and -27; 47 by their recordings) reserved was at most 18.09 % more than what was measured, and of all but two at most 24.21 % less;
/// the two, Inception v3 in a batch of 3, had a workspace of 213 MB for one gradient, and took 80 and 56 % more. The test `card` counts them.
const LESS_COUNTED: u64 = 154;
/// The other end: 1 / (1 - 0.2421).
const MORE_COUNTED: u64 = 320;

/// Where the process of a network of convolutions ends up: between what was measured of such networks, and what cuDNN plans for others. It
/// is an interval of experience, not a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Convolutions {
    /// The process at the lower end.
    pub process_low: Bytes,
    /// The process at the upper end.
    pub process_high: Bytes,
    /// How much cuDNN may take, of what is not counted, before the run is over its load line; 0 where it is over it without.
    pub room: Bytes,
    /// Whether what it takes is counted.
    #[serde(skip)]
    counted: bool,
    /// Whether an algorithm is searched for, of which cuDNN's plans say nothing.
    #[serde(skip)]
    searched: bool,
}

/// Whether the run has cuDNN's workspaces in it: `inside/convolution.rs` says of which card they were measured. A recording must have
/// told how filters move, and what a search for the fastest algorithm picks was not measured.
pub fn is_counted(gpu: &Gpu, scenario: &Scenario) -> bool {
    gpu.compute_capability == Some((9, 0))
        && scenario.device.workspaces
        && scenario.training.trainer != Trainer::Torchvision
        && match &scenario.model.source {
            ModelSource::Hull(model) => model.file().is_ok_and(|hull| hull.says_how_filters_move()),
            _ => true,
        }
}

/// Whether there are more convolutions of images than a stem has.
pub fn is_network(ledger: &Ledger) -> bool {
    if !ledger.ran.has(Op::Convolution.id()) {
        return false;
    }
    let of_images = |storage: &&Storage| ledger.sizes(storage).len() == IMAGES;
    let made = ledger.storages.iter().filter(|storage| storage.op == Op::Convolution.id()).filter(of_images);
    made.map(|storage| storage.module).collect::<BTreeSet<_>>().len() > STEM
}

impl Convolutions {
    /// Of a run that reserves `reserved` of a process of `process`; `None` where there are no more convolutions of images than a stem
    /// has, or where nobody measured any: those measured were all networks of images.
    pub fn of(gpu: &Gpu, scenario: &Scenario, ledger: &Ledger, [reserved, process, line]: [Bytes; 3]) -> Option<Self> {
        let seen = scenario.device.workspaces && gpu.vendor == Vendor::Nvidia && scenario.training.mode == Mode::Train;
        if !seen || !is_network(ledger) {
            return None;
        }
        let counted = is_counted(gpu, scenario);
        let (less, more) = if counted { (LESS_COUNTED, MORE_COUNTED) } else { (LESS, MORE) };
        Some(Self {
            counted,
            searched: scenario.training.trainer == Trainer::Torchvision,
            process_low: process.saturating_sub(thousandths(reserved, less)),
            process_high: process + thousandths(reserved, more),
            room: line.saturating_sub(process),
        })
    }

    /// In words.
    pub fn note(&self) -> String {
        let Self { process_low, process_high, room, counted, searched } = self;
        let (takes, whose) = if *counted {
            ("it needs", "they were measured")
        } else {
            ("that is", "others measured them or cuDNN 9.19 plans them")
        };
        let more = if *counted { " more" } else { "" };
        let ask = if *searched { "" } else { "; plimsoll estimate --ask-cudnn asks a cuDNN that is installed" };
        let condition =
            if *room > Bytes::ZERO { format!("it fits if {takes} no more than {room}{more}; ") } else { String::new() };
        format!(
            "{}; {condition}such networks, as {whose}, would put the process between {process_low} and {process_high}{ask}",
            said(*counted)
        )
    }
}

/// What cuDNN itself said of a run's convolutions, which is counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AskedCudnn {
    /// The version of the library that was asked, as `9.19.0`; empty where none was.
    pub version: String,
    /// Different convolutions that it was asked for, one for each product: the output, the input's gradient, the weight's.
    pub answered: usize,
    /// Of how many more it has no answer: what is measured of them is counted, if anything is.
    pub unanswered: usize,
}

impl AskedCudnn {
    /// Of the answers that were given.
    pub fn of(answers: &Answers) -> Self {
        let [answered, unanswered] = answers.counts();
        Self { version: answers.version(), answered, unanswered }
    }

    /// Whether there was anything to ask.
    pub fn was_asked(&self) -> bool {
        self.answered + self.unanswered > 0
    }

    /// In words.
    pub fn note(&self) -> String {
        let Self { version, answered, unanswered } = self;
        if !self.was_asked() {
            return "cuDNN was not asked: it plans no convolution of this run by its heuristics".to_owned();
        }
        let rest = if *unanswered == 0 {
            String::new()
        } else {
            format!(", and of {unanswered} more it has no plan without the card")
        };
        format!(
            "what cuDNN takes while a convolution runs is counted as cuDNN {version} plans it for such a card, {answered} different \
             products of convolutions{rest}; with torch.backends.cudnn.benchmark on it may take something else"
        )
    }
}

/// What is said of cuDNN's workspaces, counted or not.
pub fn said(counted: bool) -> &'static str {
    if counted {
        "what cuDNN takes while a convolution runs is counted by a rule that was read off an H100; the algorithm it picks may need \
         more or less"
    } else {
        "what cuDNN takes while a convolution runs is not counted: it depends on the algorithm it picks, and on \
         torch.backends.cudnn.benchmark"
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use plimsoll_ground::Bytes;
    use plimsoll_scenario::Scenario;
    use plimsoll_torch::ops::Answers;
    use serde_json::{Value, json};

    use crate::{Estimate, Run};

    fn estimate(model: Value, extra: Value) -> Estimate {
        let mut value = json!({ "model": model, "input": { "batch": 2 }, "device": { "gpu": "rtx-3060" } });
        if let (Some(value), Some(extra)) = (value.as_object_mut(), extra.as_object()) {
            value.extend(extra.clone());
        }
        Run::new(&Scenario::from_value(&value).unwrap()).unwrap().into_estimate()
    }

    #[test]
    fn a_network_of_convolutions_has_an_interval() {
        let net = estimate(json!({ "family": "mnasnet" }), json!({}));
        let interval = net.convolutions.unwrap();
        assert!(interval.process_low < net.peak.process && net.peak.process < interval.process_high);
        assert_eq!(interval.room.get() as i64, net.headroom);
        assert!(net.warnings.iter().any(|w| w.contains("it fits if that is no more than")), "{:?}", net.warnings);
        // What does not fit without it does not fit with it.
        let tight =
            estimate(json!({ "family": "mnasnet" }), json!({ "device": { "gpu": "rtx-3060", "memory": "250 MiB" } }));
        assert_eq!(tight.convolutions.unwrap().room, Bytes::ZERO);
    }

    /// On Hopper the run has cuDNN's workspaces in it, but where algorithms are searched for.
    #[test]
    fn on_hopper_it_is_counted_and_the_interval_says_so() {
        let hopper = json!({ "gpu": "h100-sxm" });
        let counted = |estimate: &Estimate| estimate.warnings.iter().any(|w| w.contains("read off an H100"));
        let net = json!({ "family": "resnet", "variant": "resnet18" });
        let with = estimate(net.clone(), json!({ "device": hopper, "input": { "batch": 64 } }));
        let interval = with.convolutions.unwrap();
        assert!(interval.process_low < with.peak.process && with.peak.process < interval.process_high);
        assert!(counted(&with), "{:?}", with.warnings);
        let searched = json!({ "device": hopper, "input": { "batch": 64 }, "training": { "trainer": "torchvision", "keep_outputs": true, "zero_grad_at": "before-backward" } });
        let searching = estimate(net.clone(), searched);
        assert!(!counted(&searching));
        // Of what is searched for cuDNN's plans say nothing, and nobody is sent to ask.
        let asks = |estimate: &Estimate| estimate.warnings.iter().any(|w| w.contains("--ask-cudnn"));
        assert!(asks(&with) && !asks(&searching), "{:?}", searching.warnings);
        let scenario = json!({ "model": net, "input": { "batch": 64 }, "device": hopper });
        let hollow = Run::on_hollow_card(&Scenario::from_value(&scenario).unwrap()).unwrap().into_estimate();
        assert!(hollow.peak.reserved < with.peak.reserved);
    }

    /// What cuDNN answers is counted in place of the interval; what it has no answer for is not.
    #[test]
    fn what_cudnn_answers_is_counted() {
        let value = json!({ "model": { "family": "resnet", "variant": "resnet18" }, "input": { "batch": 2 },
            "device": { "gpu": "rtx-4060" } });
        let scenario = Scenario::from_value(&value).unwrap();
        let answers = Rc::new(Answers::default());
        let plain = Run::asking(&scenario, &answers).unwrap().into_estimate();
        assert!(plain.convolutions.is_some() && !plain.cudnn.unwrap().was_asked());
        let open = answers.take_open();
        answers.name("9.19.0".to_owned());
        for (i, &question) in open.iter().enumerate() {
            answers.tell(question, (i > 0).then_some(1 << 30));
        }
        let asked = Run::asking(&scenario, &answers).unwrap().into_estimate();
        assert!(answers.take_open().is_empty() && asked.convolutions.is_none());
        assert!(asked.peak.allocated >= Bytes::new(1 << 30) && asked.peak.reserved > plain.peak.reserved);
        let said = asked.warnings.join("; ");
        assert!(said.contains("as cuDNN 9.19.0 plans it for such a card") && said.contains("of 1 more"), "{said}");
        let cudnn = asked.cudnn.unwrap();
        assert_eq!((cudnn.answered, cudnn.unanswered), (open.len() - 1, 1));
        // A language model has nothing to ask.
        let scenario = json!({ "model": { "family": "nanogpt" }, "device": { "gpu": "rtx-4060" } });
        let other = Run::asking(&Scenario::from_value(&scenario).unwrap(), &Rc::default()).unwrap().into_estimate();
        assert!(other.warnings.iter().any(|warning| warning.contains("cuDNN was not asked")), "{:?}", other.warnings);
    }

    #[test]
    fn a_stem_has_none_nor_has_what_counts_tensors_alone() {
        assert!(estimate(json!({ "catalog": "vit-base-patch16-224" }), json!({})).convolutions.is_none());
        assert!(estimate(json!({ "family": "nanogpt" }), json!({})).convolutions.is_none());
        // A layer's convolution over tokens is one of those that nobody measured.
        let next = json!({ "hf": { "model_type": "qwen3_next", "hidden_size": 64, "num_hidden_layers": 8, "vocab_size": 64,
            "num_experts": 4, "num_experts_per_tok": 2 } });
        assert!(estimate(next, json!({ "input": { "batch": 1, "seq": 64 } })).convolutions.is_none());
        let device = json!({ "device": { "gpu": "rtx-3060", "workspaces": false } });
        assert!(estimate(json!({ "family": "mnasnet" }), device).convolutions.is_none());
        let inference = json!({ "training": { "mode": "inference" } });
        assert!(estimate(json!({ "family": "mnasnet" }), inference).convolutions.is_none());
    }
}
