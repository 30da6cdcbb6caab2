//! The question, on a terminal.

use std::io::{Read as _, Write as _};
use std::sync::mpsc;
use std::time::Duration;

use portable_pty::{CommandBuilder, PtySize, native_pty_system};

use crate::CREATED;
use crate::home::Home;
use crate::port::{Port, Reply};

/// Answers the question on a terminal; the exit code, and what stood on the screen.
fn answer(home: &Home, words: &[&str], answer: &str) -> (u32, String) {
    let pair = native_pty_system().openpty(PtySize { rows: 40, cols: 120, ..PtySize::default() }).unwrap();
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("upload");
    command.args(words);
    command.env("PLIMSOLL_DATA", home.data());
    let mut child = pair.slave.spawn_command(command).unwrap();
    drop(pair.slave);
    let (mut reader, mut writer) = (pair.master.try_clone_reader().unwrap(), pair.master.take_writer().unwrap());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            if sender.send(String::from_utf8_lossy(&buffer[..count]).into_owned()).is_err() {
                return;
            }
        }
    });
    let mut screen = String::new();
    while !screen.contains("[y/N, v views all] ") {
        screen += &receiver.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| panic!("no question in {screen}"));
    }
    writer.write_all(answer.as_bytes()).unwrap();
    let code = child.wait().unwrap().exit_code();
    while let Ok(more) = receiver.recv_timeout(Duration::from_millis(300)) {
        screen += &more;
    }
    (code, screen)
}

#[test]
fn a_yes_sends_and_anything_else_does_not() {
    for (typed, code, count) in [("y\n", 0, 1), ("YES\n", 0, 1), ("n\n", 1, 0), ("\n", 1, 0), ("yesterday\n", 1, 0)] {
        let (home, port) = (Home::new(), Port::new([Reply::says(CREATED)]));
        let record = home.record("a.json", 1);
        let (ended, screen) = answer(&home, &[&record, "--to", &port.address], typed);
        assert_eq!((ended, port.count()), (code, count), "{typed:?}: {screen}");
        assert!(screen.contains("gpt2, batch 2 x 1"), "{screen}");
        assert!(screen.contains("Send this record ("), "{screen}");
        assert_eq!(screen.contains("Nothing was sent."), count == 0, "{screen}");
    }
}

/// Nobody reads a thousand lines, and the question is below what says what is sent.
#[test]
fn of_a_long_record_the_beginning_is_shown_and_all_of_it_where_that_is_asked() {
    let (home, port) = (Home::new(), Port::new([Reply::says(CREATED)]));
    let record = home.record("a.json", 1);
    let whole = std::fs::read_to_string(&record).unwrap();
    let (first, last) = (whole.lines().nth(1).unwrap(), whole.lines().nth_back(1).unwrap());
    let (ended, screen) = answer(&home, &[&record, "--to", &port.address], "n\n");
    assert_eq!((ended, port.count()), (1, 0), "{screen}");
    assert!(screen.contains(first) && screen.contains("lines more: v shows them"), "{screen}");
    assert!(!screen.contains(last), "{screen}");
    let (ended, screen) = answer(&home, &[&record, "--to", &port.address], "v\nyes\n");
    assert_eq!((ended, port.count()), (0, 1), "{screen}");
    assert!(screen.contains(last), "{screen}");
    assert_eq!(screen.matches("Send this record (").count(), 2, "{screen}");
}
