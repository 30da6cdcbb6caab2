//! A stream that is patient, but not for ever: writing fails when the other side takes nothing for too long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::places::State;

/// Fails writes that make no headway, which hyper itself never does (hyperium/hyper#3852), and notes all that does.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    patience: Duration,
    state: Arc<State>,
    /// Runs while a write waits.
    late: Pin<Box<Sleep>>,
    waits: bool,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, patience: Duration, state: Arc<State>) -> Self {
        Self { stream, patience, state, late: Box::pin(sleep(patience)), waits: false }
    }

    /// What became of a write: one that waits for longer than is allowed has failed.
    fn judge(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            self.waits = false;
            self.state.went(written.as_ref().map_or(0, |bytes| *bytes));
            return Poll::Ready(written);
        }
        if !self.waits {
            self.waits = true;
            self.late.as_mut().reset(Instant::now() + self.patience);
        }
        ready!(self.late.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.state.came(buffer.filled().len().saturating_sub(before));
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::places::{Limits, Places};

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_drips_is_waited_for_and_one_that_stops_is_not() {
        let places = Places::new(Limits { all: 1, each: 1 }, true);
        let place = places.take(IpAddr::from([192, 0, 2, 1])).await.unwrap();
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut ours = Patient::new(ours, Duration::from_secs(30), Arc::clone(place.state()));
        let writes = tokio::spawn(async move {
            let start = Instant::now();
            let error = ours.write_all(&[0; 160]).await.unwrap_err();
            (error.kind(), start.elapsed())
        });
        for _ in 0..4 {
            sleep(Duration::from_secs(20)).await;
            theirs.read_exact(&mut [0; 16]).await.unwrap();
        }
        let (kind, after) = writes.await.unwrap();
        assert_eq!(kind, io::ErrorKind::TimedOut);
        assert_eq!(after.as_secs(), 80 + 30);
    }
}
