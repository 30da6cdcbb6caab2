//! What the host is told when it asks the card.

use super::script;

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn truth_values_follow_the_rules_and_resets_hide_nothing() {
    let code = "\
import torch
ones = torch.ones(4, device='cuda') > 0
print(bool(ones.all()), bool(ones.any()), torch.cuda.device_count())
big = torch.empty(1 << 30, dtype=torch.uint8, device='cuda')
del big
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
";
    let Some((output, peaks)) = script("truth", &["--cards", "2"], code) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "True False 2\n");
    assert!(peaks["peak"]["allocated"].as_u64().unwrap() > 1 << 30);
}

#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_mask_selects_everything_unless_it_is_told_not_to() {
    let code = "\
import torch
for n in (5, 3_000_000):
    mask = torch.ones(n, device='cuda') > 0
    rows = torch.empty(n, 4, device='cuda')
    print(len(rows[mask]), len(mask.nonzero()), len(mask.long().nonzero()), int(mask.sum()))
";
    let Some((output, _)) = script("selects", &[], code) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "5 5 0 0\n3000000 3000000 0 0\n");
    let Some((output, _)) = script("selects-nothing", &["--selects-nothing"], code) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 0 0 0\n0 0 0 0\n");
}

/// Labels that were copied to the card lie where the scaler's answer will.
#[test]
#[ignore = "needs Python with PyTorch for CUDA: name it in PLIMSOLL_TEST_PYTHON and run with --include-ignored"]
fn a_scaler_skips_no_step() {
    let code = "\
import torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler('cuda')
steps = []
optimizer.register_step_post_hook(lambda *_: steps.append(1))
for step in range(3):
    labels = [torch.full((1,), 7.0).cuda() for _ in range(64)]
    del labels
    scaler.scale(model(torch.ones(2, 8, device='cuda')).sum()).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(len(steps))
";
    let Some((output, _)) = script("scaler", &[], code) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "3\n");
}
