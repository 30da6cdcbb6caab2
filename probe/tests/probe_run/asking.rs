//! What is asked on the command line, before anything is started.

use super::stub::Stub;

#[test]
fn wrong_usage() {
    for (args, part) in [
        (&["--limit", "much"][..], "is not a size"),
        (&["--steps", "0"], "0 is not in 1..="),
        (&["--target-utilization", "101"], "101 is not in 1..=100"),
        (&["--device", "tpu"], "invalid value 'tpu'"),
        (&["--precision", "fp8"], "invalid value 'fp8'"),
        (&["--batch", "0"], "0 is too small"),
    ] {
        let ran = Stub::new("fine").with(args).json();
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{args:?}: {}", ran.stderr);
    }
    let ran = Stub::new("fine").out("no/such/folder/record.json").json();
    assert_eq!(ran.code, Some(3), "before anything is measured: {}", ran.stderr);
    assert!(!ran.stderr.contains("importing"), "{}", ran.stderr);
}

#[test]
fn no_python_there() {
    let ran = Stub::new("fine").python("/no/such/python").json();
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("cannot start /no/such/python"), "{}", ran.stderr);
    let ran = Stub::new("fine").python("/dev/null").json();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
}

#[test]
fn the_script_can_be_printed() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["probe", "--print-worker"]).output();
    let output = output.unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("import"));
}
