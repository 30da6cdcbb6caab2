//! A recording that was made up by hand, the way the recorder writes it: one weight, a batch, a loss, a gradient.

use super::recording::Raw;
use super::{
    Asked, Axis, Chosen, Holds, Hull, MAGIC, Operand, Recording, Trial, fit, fit_whole, names_match, phases,
    same_program, values,
};

/// Who holds what is saved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Handles: a tape.
    Tape,
    /// Autograd itself.
    Direct,
    /// PyTorch's checkpointing, which computes it once more.
    Checkpointed,
}

/// What the recorder would write of `loss = (x @ w).square().sum()` at `[batch, side]`, the product a stretch of its own.
fn recording(at: &[u64], mode: Mode) -> Recording {
    let (batch, side) = (at[0], at[1]);
    let out_size = (batch * 8 * 4, vec![batch, 8], "made");
    let mut storages = vec![(side * 8 * 4, vec![side, 8], "parameter")];
    let mut code = vec![r#"["p","load"]"#.to_owned(), r#"["a",0]"#.to_owned()];
    let (mut losses, mut gradients) = (Vec::new(), Vec::new());
    let mut before: Option<[u32; 2]> = None;
    let mut made: Vec<u32> = Vec::new();
    let tape = mode == Mode::Tape;
    for (index, letter) in ["A", "B", "C", "D"].into_iter().enumerate() {
        let mut say = |text: String| code.push(text);
        if index > 1 {
            say(r#"["p","zero"]"#.into());
            made.drain(..).for_each(|gradient| say(format!(r#"["d",{gradient}]"#)));
        }
        let x = storages.len() as u32;
        let (out, loss, seed) = (x + 1, x + 2, x + 3);
        let [h, k] = [2 * index, 2 * index + 1];
        say(r#"["p","input"]"#.into());
        say(format!(r#"["a",{x}]"#));
        if let Some([last, _]) = before {
            say(format!(r#"["d",{last}]"#));
        }
        say(r#"["p","forward"]"#.into());
        if tape {
            say(r#"["c"]"#.into());
            say(format!(r#"["g",{x}]"#));
        }
        say(r#"["b",0]"#.into());
        if tape {
            say(format!(r#"["s",{h},{x}]"#));
        }
        say(format!(r#"["a",{out}]"#));
        if tape {
            say(format!(r#"["s",{k},{out}]"#));
            say(r#"["f"]"#.into());
        }
        say(format!(r#"["a",{loss}]"#));
        if mode != Mode::Direct {
            say(format!(r#"["d",{out}]"#));
        }
        if let Some([_, last]) = before {
            say(format!(r#"["d",{last}]"#));
        }
        say(r#"["p","backward"]"#.into());
        say(format!(r#"["a",{seed}]"#));
        storages.extend([(batch * side * 4, vec![batch, side], "made"), out_size.clone(), (4, vec![], "made")]);
        storages.push((4, vec![], "ones_like"));
        let mut saved = out;
        if mode == Mode::Checkpointed {
            saved = storages.len() as u32;
            say(format!(r#"["a",{saved}]"#));
            storages.push(out_size.clone());
        }
        if tape {
            say(format!(r#"["u",{h},{k}]"#));
        }
        // The gradient of what was made, then that of the weight.
        let (inner, gradient) = (storages.len() as u32, storages.len() as u32 + 1);
        say(format!(r#"["a",{inner}]"#));
        storages.push(out_size.clone());
        if tape {
            say(format!(r#"["x",{h}]"#));
            say(format!(r#"["r",{k}]"#));
            say(format!(r#"["u",{k},{h}]"#));
        } else {
            say(format!(r#"["d",{saved}]"#));
        }
        say(format!(r#"["a",{gradient}]"#));
        storages.push((side * 8 * 4, vec![side, 8], "mm"));
        if tape {
            say(format!(r#"["x",{k}]"#));
            say(format!(r#"["r",{h}]"#));
        }
        say(format!(r#"["d",{inner}]"#));
        say(format!(r#"["d",{seed}]"#));
        if index == 1 {
            // It was added to the one that was there.
            say(format!(r#"["d",{gradient}]"#));
            gradients.push(format!(r#""{letter}":[{}]"#, made[0]));
        } else {
            made.push(gradient);
            gradients.push(format!(r#""{letter}":[{gradient}]"#));
        }
        losses.push(format!(r#""{letter}":[{loss},"float32"]"#));
        before = Some([x, loss]);
    }
    code.push(r#"["p","end"]"#.into());
    let storages: Vec<String> =
        storages.iter().map(|(bytes, shape, op)| format!(r#"[{bytes},{shape:?},"float32","{op}",0,""]"#)).collect();
    let text = format!(
        r#"{{"same":[[8,0],[9,0]],"code":[{}],"storages":[{}],"modules":[""],"loaded":1,
            "parameters":[["w",[{side},8],"float32",true,0]],"gradients":{{{}}},"losses":{{{}}},"asked":{{}}}}"#,
        code.join(","),
        storages.join(","),
        gradients.join(","),
        losses.join(",")
    );
    serde_json::from_str(&text).unwrap()
}

fn trial(at: [u64; 2], mode: Mode) -> Trial {
    Trial { at: at.to_vec(), recording: recording(&at, mode) }
}

fn empty() -> Hull {
    let axis = |name: &str| Axis { name: name.to_owned(), usual: 64, least: 1, step: 1 };
    Hull::new(Asked { model: "by:hand".to_owned(), axes: vec![axis("B"), axis("S")], ..Asked::default() })
}

fn hull() -> Hull {
    let mut hull = empty();
    let trials: Vec<Trial> =
        [[2, 64], [3, 64], [2, 65], [5, 63], [3, 49], [4, 57], [2, 83]].map(|at| trial(at, Mode::Tape)).into();
    trials.iter().skip(1).for_each(|other| same_program(&hull, &trials[0], other).unwrap());
    assert_eq!(fit(&mut hull, "fp32", Holds { cards: &[(8, 0)], ..Holds::default() }, &trials).unwrap(), 0);
    hull.witness(0, &trial([6, 52], Mode::Direct), false).unwrap();
    let alone: Vec<Trial> = [[1, 64], [1, 65], [1, 63], [1, 49]].map(|at| trial(at, Mode::Tape)).into();
    assert_eq!(
        fit(&mut hull, "fp32", Holds { batch: Some(1), cards: &[(8, 0)], ..Holds::default() }, &alone).unwrap(),
        0
    );
    hull
}

#[test]
fn a_recording_becomes_a_hull_that_holds_at_other_sizes() {
    let hull = hull();
    let tape = hull.tape("fp32", (8, 0), 100).unwrap();
    assert!(hull.tape("fp32", (7, 5), 2).is_none() && hull.tape("bf16", (8, 0), 2).is_none());
    assert_eq!(hull.tape("fp32", (8, 0), 1).map(|tape| tape.batch), Some(Some(1)));
    let at = phases(&hull, tape, &[100, 1000]).unwrap();
    let [weight, batch, out] = [1000 * 8 * 4u64, 100 * 1000 * 4, 100 * 8 * 4].map(|bytes| bytes.next_multiple_of(512));
    assert_eq!(at[0].end, weight + batch);
    assert_eq!(at[1].peak, weight + batch + out + 512);
    assert_eq!(at[2].end, weight + batch + 512 + weight, "the gradient stays");
    assert_eq!(at[3].peak, 2 * weight + 2 * batch + 512, "the batch before goes when the new one is there");
}

#[test]
fn a_file_is_the_hull_it_was_written_from() {
    let hull = hull();
    let bytes = hull.to_bytes().unwrap();
    assert!(bytes.len() < 2000, "{}", bytes.len());
    assert_eq!(Hull::from_bytes(&bytes).unwrap(), hull);
}

#[test]
fn a_hull_that_is_not_what_its_witnesses_say_is_refused() {
    let mut hull = hull();
    hull.tapes[0].witnesses[0].phases[4].peak += 512;
    let error = Hull::from_bytes(&hull.to_bytes().unwrap()).unwrap_err();
    assert!(error.problem.contains("does not come out"), "{error}");
}

#[test]
fn what_is_no_hull_is_refused_in_words() {
    let good = hull().to_bytes().unwrap();
    let newer = [MAGIC, b"3\nxyz"].concat();
    for (bytes, word) in [
        (Vec::new(), "no hull"),
        (b"PK\x03\x04".to_vec(), "no hull"),
        (newer, "another version"),
        (MAGIC.to_vec(), "another version"),
        ([MAGIC, b"1\n"].concat(), "cannot be unpacked"),
        ([MAGIC, b"2\n"].concat(), "cannot be unpacked"),
        (good[..good.len() / 2].to_vec(), "cannot be unpacked"),
    ] {
        let error = Hull::from_bytes(&bytes).unwrap_err();
        assert!(error.problem.contains(word), "{error}");
    }
}

#[test]
fn what_points_nowhere_is_refused() {
    let broken: [fn(&mut Hull); 9] = [
        |hull| hull.tapes[0].storages[3].bytes = 10_000,
        |hull| hull.tapes[0].parameters[0].storage = 1,
        |hull| hull.tapes[0].segments[1].leaves.clear(),
        |hull| hull.tapes[0].segments[0].begins = [9, 2],
        |hull| hull.axes[1].step = 0,
        |hull| hull.axes.clear(),
        |hull| hull.tapes.clear(),
        |hull| hull.tapes[0].segments[0].gradients.clear(),
        |hull| hull.tapes[0].segments[0].root = Some(hull.tapes[0].segments[0].first + 3),
    ];
    for (index, change) in broken.iter().enumerate() {
        let mut hull = hull();
        change(&mut hull);
        assert!(Hull::from_bytes(&hull.to_bytes().unwrap()).is_err(), "{index}");
    }
}

#[test]
fn programs_that_differ_are_not_fitted() {
    let hull = hull();
    let mut other = trial([3, 64], Mode::Tape);
    other.recording.storages[2].3 = "another".to_owned();
    let error = same_program(&hull, &trial([2, 64], Mode::Tape), &other).unwrap_err();
    assert!(error.problem.contains("another") && error.problem.contains("B = 2 and 3"), "{error}");
}

#[test]
fn checkpointing_is_worked_out_as_pytorch_does_it() {
    let mut hull = hull();
    hull.witness(0, &trial([7, 300], Mode::Checkpointed), true).unwrap();
    assert!(hull.witness(0, &trial([7, 300], Mode::Direct), true).is_err());
    let (tape, regions) = hull.tapes[0].checkpointed(&hull, Chosen::Marked).unwrap();
    assert_eq!(regions, 1);
    let at = |tape| phases(&hull, tape, &[100, 9]).unwrap();
    let out = (100 * 8 * 4u64).next_multiple_of(512);
    let (plain, again) = (at(&hull.tapes[0]), at(&tape));
    assert_eq!(plain[1].end, again[1].end + out, "what the stretch made is not there between forward and backward");
    assert_eq!(plain[2].end, again[2].end);
    assert_eq!(Hull::from_bytes(&hull.to_bytes().unwrap()).unwrap(), hull);
    // A module that is called by no name.
    let (same, none) = hull.tapes[0].checkpointed(&hull, Chosen::Named(&["layers.*".to_owned()])).unwrap();
    assert_eq!((at(&same), none), (plain, 0));
}

#[test]
fn names_are_matched_part_for_part() {
    for (pattern, name, matches) in [
        ("layers.*", "layers.0", true),
        ("layers.*", "layers", false),
        ("layers.*", "layers.0.mlp", false),
        ("*.mlp", "layers.0.mlp", false),
        ("layers.*.mlp", "layers.11.mlp", true),
        ("layer?.0", "layer1.0", false),
        ("layer*.0", "layer1.0", true),
        ("l*y*r.0", "layer.0", true),
        ("l*z*r.0", "layer.0", false),
        ("head", "head", true),
        ("head", "heads", false),
        ("*", "", true),
    ] {
        assert_eq!(names_match(pattern, name), matches, "{pattern} {name}");
    }
}

/// What the recorder would write of layers of a list, `model.layers`, whose outputs stay until backward; `odd`: a layer that makes
/// twice as much from a length of 70 on.
fn stacked(at: [u64; 2], layers: &[u64], odd: Option<u64>) -> Trial {
    of_batches(&["A", "B", "C", "D"], at, layers, odd)
}

/// The same, recorded directly.
fn stacked_directly(at: [u64; 2], layers: &[u64], odd: Option<u64>) -> Trial {
    of_batches(&["A", "B", "C"], at, layers, odd)
}

fn of_batches(letters: &[&str], at: [u64; 2], layers: &[u64], odd: Option<u64>) -> Trial {
    let [batch, side] = at;
    let mut storages: Vec<String> = Vec::new();
    let mut come = |bytes: u64, shape: &[u64], op: &str, module: usize| {
        storages.push(format!(r#"[{bytes},{shape:?},"float32","{op}",{module},""]"#));
        storages.len() - 1
    };
    let mut code = vec![r#"["p","load"]"#.to_owned()];
    let weights: Vec<usize> = (0..layers.len()).map(|layer| come(side * 4, &[side], "parameter", layer + 1)).collect();
    code.extend(weights.iter().map(|weight| format!(r#"["a",{weight}]"#)));
    let (mut losses, mut gradients, mut left) = (Vec::new(), Vec::new(), Vec::<usize>::new());
    for letter in letters {
        if matches!(*letter, "C" | "D") {
            code.push(r#"["p","zero"]"#.to_owned());
        }
        let input = come(batch * side * 4, &[batch, side], "made", 0);
        let phase = |code: &mut Vec<String>, name: &str| code.push(format!(r#"["p","{name}"]"#));
        phase(&mut code, "input");
        code.push(format!(r#"["a",{input}]"#));
        code.extend(left.drain(..).map(|old| format!(r#"["d",{old}]"#)));
        phase(&mut code, "forward");
        let mut outs = Vec::new();
        for (place, layer) in layers.iter().enumerate() {
            let times = if odd == Some(*layer) && side >= 70 { 2 } else { 1 };
            outs.push(come(batch * side * 4 * times, &[batch, side * times], "mul", place + 1));
            code.push(format!(r#"["a",{}]"#, outs[place]));
        }
        let loss = come(4, &[], "sum", 0);
        code.push(format!(r#"["a",{loss}]"#));
        phase(&mut code, "backward");
        code.extend(outs.iter().rev().map(|out| format!(r#"["d",{out}]"#)));
        left.extend([input, loss]);
        losses.push(format!(r#""{letter}":[{loss},"float32"]"#));
        gradients.push(format!(r#""{letter}":[]"#));
    }
    code.push(r#"["p","end"]"#.to_owned());
    let names: Vec<String> = (0..layers.len()).map(|place| format!(r#""model.layers.{place}""#)).collect();
    let text = format!(
        r#"{{"same":[[8,0]],"repeats":[["model.layers",6,[0,1,5]]],"code":[{}],"storages":[{}],"modules":["",{}],"loaded":{},
            "parameters":[],"gradients":{{{}}},"losses":{{{}}},"asked":{{}}}}"#,
        code.join(","),
        storages.join(","),
        names.join(","),
        layers.len(),
        gradients.join(","),
        losses.join(",")
    );
    Trial { at: at.to_vec(), recording: serde_json::from_str(&text).unwrap() }
}

#[test]
fn what_repeats_is_learnt_from_a_shorter_model_and_no_further_than_it_holds() {
    let axis = |name: &str| Axis { name: name.to_owned(), usual: 64, least: 1, step: 1 };
    let points = [[2, 64], [3, 64], [2, 65], [5, 63], [3, 49], [4, 57], [2, 83]];
    let (six, three): (Vec<u64>, [u64; 3]) = ((0..6).collect(), [0, 1, 5]);
    let empty = || Hull::new(Asked { axes: vec![axis("B"), axis("S")], ..Asked::default() });
    let learnt = |odd: Option<u64>, whole: &[[u64; 2]]| {
        let mut hull = empty();
        let short: Vec<Trial> = points.iter().map(|at| stacked(*at, &three, odd)).collect();
        let others = whole[1..].iter().map(|at| stacked_directly(*at, &six, odd));
        let whole: Vec<Trial> = [stacked(whole[0], &six, odd)].into_iter().chain(others).collect();
        fit_whole(&mut hull, "fp32", Holds::default(), &whole, &short).unwrap().map(|_| hull)
    };
    let learnt_of = learnt(None, &[[2, 64], [2, 83]]).unwrap();
    let mut recorded = empty();
    let whole: Vec<Trial> = points.iter().map(|at| stacked(*at, &six, None)).collect();
    fit(&mut recorded, "fp32", Holds::default(), &whole).unwrap();
    assert_eq!(learnt_of, recorded, "the file is the one that all recordings of the whole make");
    // A layer that goes another way at some sizes, and was left out: the whole at those sizes tells.
    assert!(learnt(Some(3), &[[2, 64]]).is_some());
    assert!(learnt(Some(3), &[[2, 64], [2, 83]]).is_none());
    // All as large as it should be, and one of them there for longer.
    let short: Vec<Trial> = points.iter().map(|at| stacked(*at, &three, None)).collect();
    let mut whole = vec![stacked([2, 64], &six, None), stacked_directly([2, 83], &six, None)];
    let first = whole[1].recording.code.iter().position(|raw| matches!(raw, Raw::One('d', _))).unwrap();
    whole[1].recording.code.remove(first);
    assert_eq!(fit_whole(&mut empty(), "fp32", Holds::default(), &whole, &short).unwrap(), None);
    // One that is unlike any at the first point.
    let (short, odd) = (vec![stacked([2, 80], &three, Some(3))], [stacked([2, 80], &six, Some(3))]);
    assert_eq!(fit_whole(&mut empty(), "fp32", Holds::default(), &odd, &short).unwrap(), None);
}

/// A recording whose third storage a kernel makes that was given a tensor of `[B, S]`, beside one that is the same everywhere.
fn told_of(at: [u64; 2], numbers: &[u32]) -> Trial {
    let mut trial = trial(at, Mode::Tape);
    let given = |sizes: [u64; 2]| (sizes.to_vec(), vec![sizes[1], 1], "float32".to_owned());
    let run = ("sum.dim_IntList".to_owned(), vec![given(at), given([8, 3])], numbers.to_vec());
    trial.recording.kernels.insert(2, run);
    trial
}

#[test]
fn what_a_kernel_was_given_is_said_by_expressions() {
    let mut hull = empty();
    let points = [[2, 64], [3, 64], [2, 65], [5, 63], [3, 49], [4, 57], [2, 83]];
    let trials: Vec<Trial> = points.map(|at| told_of(at, &[1])).into();
    fit(&mut hull, "fp32", Holds { cards: &[(8, 0)], ..Holds::default() }, &trials).unwrap();
    let kernel = hull.tapes[0].storages[2].kernel;
    assert_eq!(hull.tapes[0].storages.iter().filter(|born| born.kernel != 0).count(), 1);
    let kernel = &hull.kernels[kernel as usize - 1];
    assert_eq!((hull.ops[kernel.op as usize].as_str(), &kernel.numbers[..]), ("sum.dim_IntList", &[1][..]));
    let values = values(&hull.exprs, &[100, 1000]);
    let of =
        |shape: u32| -> Vec<u64> { hull.shapes[shape as usize].iter().map(|e| values[*e as usize].unwrap()).collect() };
    let sizes: Vec<[Vec<u64>; 2]> = kernel.operands.iter().map(|Operand(a, b, _)| [of(*a), of(*b)]).collect();
    assert_eq!(sizes, [[vec![100, 1000], vec![1000, 1]], [vec![8, 3], vec![3, 1]]]);
    assert_eq!(Hull::from_bytes(&hull.to_bytes().unwrap()).unwrap(), hull);
    let wrong = |change: fn(&mut Hull)| {
        let mut other = hull.clone();
        change(&mut other);
        Hull::from_bytes(&other.to_bytes().unwrap()).unwrap_err().to_string()
    };
    assert!(wrong(|hull| hull.kernels[0].op = 99).contains("what is not there"));
    assert!(wrong(|hull| hull.kernels[0].operands[0].1 = 9999).contains("what is not there"));
    assert!(wrong(|hull| hull.tapes[0].storages[2].kernel = 2).contains("refers to something"));
}

#[test]
fn a_kernel_that_is_another_at_another_size_is_not_told_of() {
    let mut hull = empty();
    let points = [[2, 64], [3, 64], [2, 65], [5, 63], [3, 49], [4, 57], [2, 83]];
    let trials: Vec<Trial> = points.map(|at| told_of(at, &[u32::from(at[1] > 64)])).into();
    fit(&mut hull, "fp32", Holds { cards: &[(8, 0)], ..Holds::default() }, &trials).unwrap();
    assert!(hull.kernels.is_empty() && hull.tapes[0].storages.iter().all(|born| born.kernel == 0));
}
