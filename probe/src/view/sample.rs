//! An estimate made by hand: round numbers, only there to look at the layout.

use plimsoll_core::estimate::{
    Category, DeviceLimits, Holding, Parameters, Peak, PeakBreakdown, Phase, PhaseName, PhaseWork, StepWork, Verdict,
};
use plimsoll_core::{Bytes, Estimate, Scenario};
use serde_json::json;

const GIB: u64 = 1 << 30;

/// 1.2 G parameters trained on a 12 GB card: does not fit.
pub fn too_deep() -> (Scenario, Estimate, Vec<Holding>) {
    let scenario = Scenario::from_value(&json!({
        "model": { "catalog": "llama-3.2-1b" },
        "input": { "batch": 4 },
        "training": { "accumulation": 8, "lora": { "rank": 16 } },
    }))
    .unwrap();
    let at_peak = PeakBreakdown {
        kv_cache: Bytes::ZERO,
        weights: Bytes::new(4_943_263_744),
        optimizer_states: Bytes::new(9_886_527_488),
        gradients: Bytes::new(4_943_263_744),
        autocast_copies: Bytes::ZERO,
        saved_activations: Bytes::new(1_234_567_168),
        temporaries: Bytes::new(4_943_263_744),
        inputs: Bytes::new(65_536),
        workspace: Bytes::new(8_519_680),
    };
    let requested = at_peak.total();
    let estimate = Estimate {
        schema: 1,
        scenario: scenario.to_value(),
        parameters: Parameters { total: 1_235_814_400, trainable: 11_272_192 },
        peak: Peak {
            allocated: requested + Bytes::from_mib(1),
            requested,
            reserved: requested + Bytes::from_mib(700),
            process: requested + Bytes::from_mib(1200),
            phase: PhaseName::Optimizer,
            step: 1,
            op: "_foreach_sqrt".to_owned(),
            module: String::new(),
        },
        at_peak,
        phases: phases(requested),
        device: DeviceLimits {
            gpu: "rtx-5070-ti-laptop".to_owned(),
            capacity: Bytes::new(11 * GIB + GIB / 2),
            load_line: Bytes::new(10 * GIB + GIB / 2),
        },
        verdict: Verdict::DoesNotFit,
        headroom: -15_949_000_000,
        max_batch: Some(0),
        work: work(),
        roles: Vec::new(),
        communicators: Vec::new(),
        host: None,
        lag: None,
        falling: None,
        convolutions: None,
        compiled: None,
        cudnn: None,
        warnings: vec![
            "the card holds its desktop too; what that takes is not known and was taken as 600 MiB, which a second \
             screen may exceed"
                .to_owned(),
        ],
    };
    (scenario, estimate, held())
}

/// The same run on a card of 80 GiB.
pub fn fitting() -> (Scenario, Estimate, Vec<Holding>) {
    let (scenario, mut estimate, holdings) = too_deep();
    estimate.device.capacity = Bytes::from_gib(80);
    estimate.device.load_line = Bytes::from_gib(74);
    estimate.verdict = Verdict::Fits;
    estimate.headroom = i64::try_from(74 * GIB - estimate.peak.process.get()).unwrap();
    estimate.max_batch = Some(1203);
    estimate.warnings.clear();
    (scenario, estimate, holdings)
}

fn phases(peak: Bytes) -> Vec<Phase> {
    let phase = |name, step, micro_batch, high: u64, end: u64| Phase {
        name,
        step,
        micro_batch,
        peak_requested: Bytes::new(high),
        end_requested: Bytes::new(end),
        end_allocated: Bytes::new(end),
        end_reserved: Bytes::new(end),
        peak_allocated: Bytes::new(high),
        peak_reserved: Bytes::new(high),
    };
    let mut phases = vec![phase(PhaseName::Load, None, None, 5 * GIB, 5 * GIB)];
    for step in [Some(1), Some(2)] {
        for micro_batch in [Some(1), Some(2)] {
            phases.push(phase(PhaseName::Input, step, micro_batch, 5 * GIB, 5 * GIB));
            phases.push(phase(PhaseName::Forward, step, micro_batch, 14 * GIB, 12 * GIB));
            phases.push(phase(PhaseName::Backward, step, micro_batch, 18 * GIB, 10 * GIB));
        }
        phases.push(phase(PhaseName::Clip, step, None, 10 * GIB, 10 * GIB));
        phases.push(phase(PhaseName::Optimizer, step, None, peak.get(), 19 * GIB));
        phases.push(phase(PhaseName::ZeroGrad, step, None, 19 * GIB, 14 * GIB));
    }
    phases
}

fn work() -> StepWork {
    let phase = |flops, gib| PhaseWork {
        flops: [("bf16", flops)].into(),
        read: Bytes::from_gib(gib),
        written: Bytes::from_gib(gib / 2),
    };
    StepWork {
        forward: phase(86_400_000_000_000, 900),
        backward: phase(172_800_000_000_000, 2000),
        optimizer: PhaseWork { flops: Default::default(), ..phase(0, 40) },
        ..StepWork::default()
    }
}

fn held() -> Vec<Holding> {
    let mut holdings = vec![
        Holding {
            category: Category::OptimizerStates,
            module: "model.layers.*.mlp".to_owned(),
            op: "zeros_like".to_owned(),
            shape: vec![8192, 2048],
            dtype: "float32".to_owned(),
            count: 96,
            bytes: Bytes::from_gib(6),
        },
        Holding {
            category: Category::SavedActivations,
            module: "model.layers.*.self_attn.some_long_module_name.q_proj".to_owned(),
            op: "linear".to_owned(),
            shape: vec![1_048_576, 1_048_576, 1_048_576],
            dtype: "bfloat16".to_owned(),
            count: 1_234_567,
            bytes: Bytes::from_gib(1),
        },
        Holding {
            category: Category::Temporaries,
            module: String::new(),
            op: "_foreach_sqrt".to_owned(),
            shape: vec![],
            dtype: "float32".to_owned(),
            count: 1,
            bytes: Bytes::new(512),
        },
    ];
    let small = holdings[2].clone();
    holdings.extend(std::iter::repeat_n(small, 9));
    holdings
}
