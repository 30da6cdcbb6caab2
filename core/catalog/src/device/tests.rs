//! The rules against what was read on real cards.

use plimsoll_ground::Bytes;

use super::*;
use crate::Gpu;
use crate::Vendor;
use crate::software::Version;

const MIB: u64 = 1 << 20;

/// An NVIDIA card by what the rules look at.
fn nvidia(architecture: &'static str, capability: (u8, u8), form: &'static str, mib: u64, fp32: f64) -> Gpu {
    Gpu {
        id: "card",
        name: "Card",
        vendor: Vendor::Nvidia,
        architecture,
        compute_capability: Some(capability),
        form,
        memory: Bytes::from_mib(mib),
        memory_assumed: false,
        bandwidth_gb_s: 1.0,
        multiprocessors: None,
        tflops_fp32: fp32,
        tflops_fp16: 1.0,
        tflops_bf16: None,
        source: "test",
    }
}

fn other(vendor: Vendor, architecture: &'static str, form: &'static str, mib: u64) -> Gpu {
    Gpu { vendor, compute_capability: None, ..nvidia(architecture, (0, 0), form, mib, 10.0) }
}

fn rtx_4050_laptop() -> Gpu {
    nvidia("ada", (8, 9), "laptop", 6141, 12.1)
}

fn t4() -> Gpu {
    nvidia("turing", (7, 5), "server", 15360, 8.1)
}

fn rtx_2080_ti() -> Gpu {
    nvidia("turing", (7, 5), "desktop", 11264, 13.4)
}

fn rtx_3060() -> Gpu {
    nvidia("ampere", (8, 6), "desktop", 12288, 12.7)
}

fn rtx_3070() -> Gpu {
    nvidia("ampere", (8, 6), "desktop", 8192, 20.3)
}

fn rtx_3090() -> Gpu {
    nvidia("ampere", (8, 6), "desktop", 24576, 35.6)
}

fn rtx_a4000() -> Gpu {
    nvidia("ampere", (8, 6), "workstation", 16376, 19.2)
}

fn a10() -> Gpu {
    nvidia("ampere", (8, 6), "server", 23028, 31.2)
}

fn a10g() -> Gpu {
    nvidia("ampere", (8, 6), "server", 23028, 35.0)
}

fn a100(mib: u64) -> Gpu {
    nvidia("ampere", (8, 0), "server", mib, 19.5)
}

fn rtx_4060() -> Gpu {
    nvidia("ada", (8, 9), "desktop", 8188, 15.1)
}

fn rtx_4070_ti() -> Gpu {
    nvidia("ada", (8, 9), "desktop", 12282, 40.1)
}

fn rtx_4090() -> Gpu {
    nvidia("ada", (8, 9), "desktop", 24564, 82.6)
}

fn rtx_6000_ada() -> Gpu {
    nvidia("ada", (8, 9), "workstation", 49140, 91.1)
}

fn l40s() -> Gpu {
    nvidia("ada", (8, 9), "server", 46068, 91.6)
}

fn h100() -> Gpu {
    nvidia("hopper", (9, 0), "server", 81559, 66.9)
}

fn v100() -> Gpu {
    nvidia("volta", (7, 0), "server", 16384, 15.7)
}

fn rtx_5070_ti_laptop() -> Gpu {
    nvidia("blackwell", (12, 0), "laptop", 12227, 26.1)
}

fn rtx_5090() -> Gpu {
    nvidia("blackwell", (12, 0), "desktop", 32607, 104.8)
}

fn b200() -> Gpu {
    nvidia("blackwell", (10, 0), "server", 183_359, 75.0)
}

/// Multiprocessors as NVIDIA lists them.
#[test]
fn multiprocessors_follow_from_the_float32_rate() {
    let listed = [
        (rtx_4050_laptop(), 20),
        (t4(), 40),
        (rtx_2080_ti(), 68),
        (v100(), 80),
        (rtx_3060(), 28),
        (rtx_3070(), 46),
        (rtx_a4000(), 48),
        (a10(), 72),
        (a10g(), 80),
        (rtx_3090(), 82),
        (a100(40960), 108),
        (rtx_4060(), 24),
        (rtx_4070_ti(), 60),
        (rtx_4090(), 128),
        (l40s(), 142),
        (h100(), 132),
        (rtx_5070_ti_laptop(), 46),
        (rtx_5090(), 170),
        (b200(), 148),
    ];
    for (gpu, count) in listed {
        let found = multiprocessors(&gpu);
        assert_eq!(multiprocessors(&Gpu { multiprocessors: Some(count), ..gpu.clone() }), count, "as listed");
        assert!(
            found.abs_diff(count) * 100 <= count * 15,
            "{} {}: {found}, listed {count}",
            gpu.architecture,
            gpu.memory
        );
    }
}

/// Readings in MiB: "this process has" less "allocated" and "reserved but unallocated" of an out of memory message in a
/// GitHub issue. The two digits of its GiB are good to 15 MiB.
#[test]
fn contexts_are_what_full_processes_had() {
    let readings = [
        (rtx_4050_laptop(), 120), // facebookresearch/seamless_communication 341: 5.48 GiB, 5.34 GiB, 22.94 MiB
        (t4(), 141),              // FoundationVision/GenerateU 10: 14.52 GiB, 14.06 GiB, 330.42 MiB
        (t4(), 137),              // Farzad-R/Finetune-LLAVA-NEXT 2: 14.74 GiB, 14.04 GiB, 580.33 MiB
        (rtx_2080_ti(), 197),     // lllyasviel/FramePack 369: 6.68 GiB, 6.10 GiB, 396.58 MiB
        (rtx_3070(), 179),        // meta-llama/codellama 82: 7.39 GiB, 7.21 GiB, 5.22 MiB
        (rtx_a4000(), 210),       // DengKaiCQ/VGGT-Long 6: 15.51 GiB, 15.01 GiB, 301.92 MiB
        (a10(), 224),             // zai-org/CogVLM 236: 21.91 GiB, 21.69 GiB, 1.55 MiB
        (a10g(), 282),            // meta-pytorch/torchtune 229: 22.09 GiB, 21.81 GiB, 5.10 MiB
        (rtx_3090(), 304),        // bytedance/X-Portrait 7: 20.50 GiB, 20.02 GiB, 187.61 MiB
        (rtx_3090(), 259),        // Tencent-Hunyuan/HY-Motion-1.0 3: 22.86 GiB, 22.56 GiB, 48.63 MiB
        (a100(40960), 501),       // TianheWu/CoSeR 10: 14.25 GiB, 12.87 GiB, 912.01 MiB
        (rtx_4090(), 416),        // eosphoros-ai/DB-GPT-Hub 248: 23.28 GiB, 22.74 GiB, 136.85 MiB
        (l40s(), 514),            // huggingface/sentence-transformers 3214: 44.47 GiB, 43.89 GiB, 79.61 MiB
        (rtx_5090(), 619),        // TrajectoryCrafter/TrajectoryCrafter 20: 26.89 GiB, 25.95 GiB, 343.86 MiB
        (rtx_5090(), 595),        // Wan-Video/Wan2.1 465: 31.34 GiB, 30.74 GiB, 19.41 MiB
    ];
    for (gpu, mib) in readings {
        let found = context(&gpu);
        let apart = found.bytes.get().abs_diff(mib * MIB);
        assert!(apart <= 65 * MIB, "{} {}: {} for {mib} MiB", gpu.architecture, gpu.memory, found.bytes);
        assert!(!found.assumed && !found.source.is_empty());
    }
}

/// `nvidia-smi` after the context was made and before any kernel was loaded: less than a full process.
#[test]
fn contexts_are_more_than_bare_ones() {
    let readings = [
        (rtx_6000_ada(), 426), // unslothai/unsloth-zoo 1053: torch 2.10.0+cu130
        (b200(), 612),         // unslothai/unsloth 8669
    ];
    for (gpu, mib) in readings {
        let more = context(&gpu).bytes.get().checked_sub(mib * MIB);
        assert!(more.is_some_and(|more| more <= 100 * MIB), "{}: {}", gpu.memory, context(&gpu).bytes);
    }
}

/// An H100 80GB HBM3 and an H200, by the driver's figure of each process: `tests/corpus/card.jsonl`.
#[test]
fn hopper_takes_more_for_its_libraries_and_less_without_a_backward() {
    let found = context(&h100());
    assert!(!found.assumed);
    let apart = |bytes: Bytes, mib: u64| bytes.get().abs_diff(mib * MIB);
    assert!(apart(found.bytes, 742) <= MIB, "{}", found.bytes);
    let inference = found.bytes - without_backward(&h100());
    assert!(apart(inference, 678) <= MIB && without_backward(&v100()) == Bytes::ZERO, "{inference}");
    assert!(apart(inference + library(&h100(), Library::Cudnn, false), 686) <= MIB);
    let most = found.bytes + library(&h100(), Library::Cudnn, true) + library(&h100(), Library::EightBits, true);
    assert!(apart(most, 822) <= MIB && library(&v100(), Library::EightBits, true).is_zero(), "{most}");
}

#[test]
fn contexts_without_a_reading_are_marked() {
    for gpu in [v100(), other(Vendor::Amd, "cdna3", "server", 196_592), other(Vendor::Amd, "rdna4", "desktop", 16368)] {
        let found = context(&gpu);
        assert!(found.assumed && found.bytes > Bytes::from_mib(200) && found.bytes < Bytes::from_gib(1), "{found:?}");
    }
    assert_eq!(context(&other(Vendor::Apple, "m4", "unified", 24576)).bytes, Bytes::ZERO);
}

/// torch's `total_memory` in MiB.
#[test]
fn capacities_are_what_torch_sees() {
    let readings = [
        (rtx_4060(), 7933),      // Stone-ResearchLife/xMem: 8,318,222,336 B
        (rtx_3060(), 12037),     // the same: 12,622,168,064 B
        (a100(40960), 40507),    // the same: 42,474,471,424 B
        (rtx_4070_ti(), 12012),  // OpenLMLab/LOMO 17: 11.73 GiB
        (rtx_4070_ti(), 11981),  // Kwai-Kolors/Kolors 11: 11.70 GiB
        (rtx_3090(), 24259),     // whlzy/FiT 9: 23.69 GiB
        (rtx_4090(), 24207),     // eosphoros-ai/DB-GPT-Hub 248: 23.64 GiB
        (rtx_5090(), 32117),     // aikitoria/open-gpu-kernel-modules 1: 33,677,180,928 B
        (rtx_6000_ada(), 48509), // unslothai/unsloth-zoo 1053: 50,865,307,648 B
        (l40s(), 45588),         // huggingface/sentence-transformers 3214: 44.52 GiB
        (t4(), 15104),           // FoundationVision/GenerateU 10: 14.75 GiB
        (a100(81920), 81152),    // wbfwonderful/Vad-R1 11: 79.25 GiB
        (h100(), 80998),         // stas00/ml-engineering: 79.10 GiB
        (b200(), 182_633),       // unslothai/unsloth 8669
    ];
    for (gpu, mib) in readings {
        let total = gpu.memory - driver_reserve(&gpu).bytes;
        let apart = total.get().abs_diff(mib * MIB);
        assert!(apart * 1000 <= gpu.memory.get() * 4, "{} {}: {total} for {mib} MiB", gpu.architecture, gpu.memory);
    }
}

#[test]
fn a_desktop_takes_its_share_and_a_server_has_none() {
    assert_eq!(limits(&rtx_3060(), None, None).capacity, Bytes::new(12_292_582_278));
    assert_eq!(limits(&h100(), None, None).capacity, Bytes::from_mib(81559 - 768));
    let mac = other(Vendor::Apple, "m4", "unified", 10922);
    assert_eq!(limits(&mac, None, None).capacity, mac.memory);
    let instinct = other(Vendor::Amd, "cdna3", "server", 196_592);
    assert_eq!(limits(&instinct, None, None).capacity, instinct.memory);
}

#[test]
fn the_load_line_of_every_12_gib_card_is_11_gib() {
    for gpu in [rtx_3060(), rtx_4070_ti(), rtx_5070_ti_laptop()] {
        assert_eq!(limits(&gpu, None, None).load_line, Bytes::from_gib(11));
    }
    assert_eq!(limits(&rtx_5070_ti_laptop(), Some(Bytes::from_gib(12)), None).load_line, Bytes::from_gib(11));
}

/// Every figure says where it comes from; what was read and what is assumed are told apart.
#[test]
fn every_figure_of_every_card_has_a_source() {
    for gpu in crate::gpus() {
        let parts = footprint(gpu);
        assert_eq!(parts.map(|part| part.key), ["memory", "driver", "desktop", "context"]);
        for part in parts {
            assert!(part.figure.source.len() > 10, "{}: {part:?}", gpu.id);
            // A size that was inferred from others is nobody's reading.
            let read = part.key != "memory" || part.figure.source == gpu.source;
            assert!(part.figure.assumed || read, "{}: {part:?}", gpu.id);
        }
        assert_eq!(parts[0].figure.assumed, gpu.memory_assumed, "{}", gpu.id);
        assert_eq!(parts[3].figure, context(gpu), "{}", gpu.id);
    }
    let mac = Gpu { memory_assumed: true, ..other(Vendor::Apple, "m4", "unified", 10922) };
    assert!(footprint(&mac)[0].figure.source.starts_with("Metal's recommended working set"));
}

#[test]
fn every_card_of_the_catalog_has_sensible_limits() {
    assert!(!crate::gpus().is_empty());
    for gpu in crate::gpus() {
        let found = limits(gpu, None, None);
        assert!(found.load_line < found.capacity && found.capacity <= gpu.memory, "{found:?}");
        assert!(context(gpu).bytes < Bytes::from_gib(1), "{}: {:?}", gpu.id, context(gpu));
        // Apple's memory is the working set, two thirds of what is soldered in.
        let nominal = gpu.memory.round_up_to(Bytes::from_gib(1));
        if nominal == Bytes::from_gib(12) && gpu.vendor != Vendor::Apple {
            assert_eq!(found.load_line, Bytes::from_gib(11), "{}", gpu.id);
        }
    }
}

#[test]
fn load_lines_are_92_percent_at_the_nearest_quarter() {
    let line = |gpu| limits(&gpu, None, None).load_line;
    assert_eq!(line(rtx_4090()), Bytes::from_gib(22));
    assert_eq!(line(h100()), Bytes::from_gib(73) + Bytes::from_mib(256));
    assert_eq!(line(rtx_4060()), Bytes::from_gib(7) + Bytes::from_mib(256));
}

#[test]
fn a_line_leaves_room_on_every_card() {
    for mib in (0..200_000).step_by(37) {
        let gpu = Gpu { memory: Bytes::from_mib(mib), ..rtx_3060() };
        for found in [limits(&gpu, None, None), limits(&gpu, Some(Bytes::from_mib(mib)), None)] {
            assert!(found.load_line.get() <= found.capacity.get() / 100 * 97 + 97, "{mib} MiB: {found:?}");
            assert!(found.load_line.get() >= found.capacity.get() / 100 * 88, "{mib} MiB: {found:?}");
        }
    }
}

#[test]
fn the_scenario_overrides_both() {
    let (memory, line) = (Bytes::new(12_455_405_158), Bytes::from_gib(11));
    let found = limits(&rtx_5070_ti_laptop(), Some(memory), Some(line));
    assert_eq!((found.gpu.as_str(), found.capacity, found.load_line), ("card", memory, line));
    assert_eq!(limits(&rtx_5070_ti_laptop(), None, Some(Bytes::from_gib(10))).load_line, Bytes::from_gib(10));
    // A line above the capacity would never be reached.
    assert_eq!(limits(&rtx_3060(), Some(Bytes::from_gib(8)), Some(line)).load_line, Bytes::from_gib(8));
    // Nor does an absurd size overflow.
    let endless = limits(&rtx_3060(), Some(Bytes::new(u64::MAX)), None);
    assert!(endless.load_line < endless.capacity);
}

/// `CUBLAS_WORKSPACE_CONFIG` limits cuBLASLt's too, while one is kept.
#[test]
fn a_kept_workspace_is_no_larger_than_the_one_beside_it() {
    let small = Bytes::new(131_072);
    assert_eq!(cublaslt_workspace(&h100(), Version::new(2, 11)).beside(small).bytes, small);
    assert_eq!(cublaslt_workspace(&h100(), Version::new(2, 11)).beside(Bytes::from_mib(32)).bytes, Bytes::from_mib(1));
    assert_eq!(cublaslt_workspace(&h100(), Version::new(2, 8)).beside(small).bytes, Bytes::from_mib(1));
}

#[test]
fn cublas_workspaces_by_card_and_version() {
    let before_hopper = Bytes::new(8_519_680);
    for gpu in [t4(), v100(), rtx_3060(), a100(40960), rtx_4090()] {
        assert_eq!(cublas_workspace(&gpu, Version::new(2, 11)).bytes, before_hopper);
        assert_eq!(cublas_workspace(&gpu, Version::new(2, 12)).bytes, before_hopper);
    }
    assert_eq!(cublas_workspace(&h100(), Version::new(2, 1)).bytes, Bytes::from_mib(32));
    assert_eq!(cublas_workspace(&h100(), Version::new(1, 13)).bytes, Bytes::ZERO, "cuBLAS' own");
    for gpu in [rtx_5070_ti_laptop(), b200()] {
        assert_eq!(cublas_workspace(&gpu, Version::new(2, 11)).bytes, before_hopper);
        assert_eq!(cublas_workspace(&gpu, Version::new(2, 12)).bytes, Bytes::from_mib(32));
    }
    // Each product's own.
    for (torch, kept) in [((2, 14), true), ((2, 15), false), ((3, 0), false)] {
        let expected = Workspace { bytes: Bytes::from_mib(32), kept };
        assert_eq!(cublas_workspace(&h100(), Version::new(torch.0, torch.1)), expected);
    }
    for (torch, size, kept) in
        [((2, 8), 1, false), ((2, 9), 1, true), ((2, 11), 1, true), ((2, 12), 0, true), ((2, 15), 1, false)]
    {
        let torch = Version::new(torch.0, torch.1);
        let expected = Workspace { bytes: Bytes::from_mib(size), kept };
        assert_eq!(cublaslt_workspace(&h100(), torch), expected, "{torch}");
        assert_eq!(cublaslt_workspace(&rtx_3060(), torch), expected, "{torch}");
        assert_eq!(cublaslt_workspace(&other(Vendor::Amd, "cdna3", "server", 65_520), torch).bytes, Bytes::ZERO);
    }
}

#[test]
fn rocm_and_metal_workspaces() {
    let radeon = other(Vendor::Amd, "rdna3", "desktop", 24560);
    let instinct = other(Vendor::Amd, "cdna3", "server", 196_592);
    assert_eq!(cublas_workspace(&radeon, Version::new(2, 11)).bytes, Bytes::from_mib(32));
    assert_eq!(cublas_workspace(&instinct, Version::new(2, 15)).bytes, Bytes::from_mib(128));
    assert_eq!(
        cublas_workspace(&other(Vendor::Amd, "cdna2", "server", 65_520), Version::new(2, 11)).bytes,
        Bytes::from_mib(32)
    );
    assert_eq!(cublas_workspace(&radeon, Version::new(2, 5)).bytes, Bytes::ZERO);
    assert_eq!(cublas_workspace(&other(Vendor::Apple, "m2", "unified", 10922), Version::new(2, 11)).bytes, Bytes::ZERO);
}
