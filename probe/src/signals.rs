//! The signals that ask a process to end.

use std::io;
use std::thread;

use tokio::runtime::Builder;

/// Calls `told`, in a thread of its own, whenever this process is asked to end: Ctrl-C, a wish to terminate, a terminal that
/// is closed. What it was started to ignore it goes on ignoring: hang-ups under `nohup`, Ctrl-C behind a shell script's `&`.
///
/// # Errors
/// Where the system has no thread or no handler left.
pub fn listen(mut told: impl FnMut() + Send + 'static) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        system::Signals::new()?
    };
    let wait = move || {
        runtime.block_on(async {
            loop {
                signals.next().await;
                told();
            }
        });
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(())
}

#[cfg(unix)]
mod system {
    use std::future::poll_fn;
    use std::io;
    use std::task::Poll;

    use tokio::signal::unix::{Signal, SignalKind, signal};

    /// Those that are listened for.
    #[derive(Debug)]
    pub struct Signals(Vec<Signal>);

    impl Signals {
        pub fn new() -> io::Result<Self> {
            let ignored = ignored();
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let wanted = kinds.into_iter().filter(|kind| ignored & (1 << (kind.as_raw_value() - 1)) == 0);
            wanted.map(signal).collect::<io::Result<_>>().map(Self)
        }

        /// Until one of them comes.
        pub async fn next(&mut self) {
            poll_fn(|context| {
                let mut come = false;
                for signal in &mut self.0 {
                    come |= matches!(signal.poll_recv(context), Poll::Ready(Some(())));
                }
                if come { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }

    /// Signals that are ignored, one bit each from the first on.
    #[cfg(target_os = "linux")]
    fn ignored() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
    }

    /// Elsewhere nobody tells; hang-ups are left alone there, lest `nohup` be for nothing.
    #[cfg(not(target_os = "linux"))]
    fn ignored() -> u64 {
        1 << (SignalKind::hangup().as_raw_value() - 1)
    }
}

#[cfg(windows)]
mod system {
    use std::io;

    use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, ctrl_break, ctrl_c, ctrl_close};

    /// Those that are listened for.
    #[derive(Debug)]
    pub struct Signals(CtrlC, CtrlBreak, CtrlClose);

    impl Signals {
        pub fn new() -> io::Result<Self> {
            Ok(Self(ctrl_c()?, ctrl_break()?, ctrl_close()?))
        }

        /// Until one of them comes.
        pub async fn next(&mut self) {
            tokio::select! {
                _ = self.0.recv() => {}
                _ = self.1.recv() => {}
                _ = self.2.recv() => {}
            }
        }
    }
}
