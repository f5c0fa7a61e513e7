//! The signals of the operating system.

/// A signal to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Stop,
    #[cfg_attr(not(unix), expect(dead_code, reason = "other systems have no such signal"))]
    Quiet,
    #[cfg_attr(not(unix), expect(dead_code, reason = "other systems have no such signal"))]
    Resume,
    #[cfg_attr(not(unix), expect(dead_code, reason = "other systems have no such signal"))]
    Dump,
}

/// Returns at the first SIGTERM or SIGINT (Ctrl-C).
pub async fn shutdown_signal() {
    let mut signals = Signals::listen();
    while signals.next().await != Signal::Stop {}
}

#[cfg(unix)]
pub(super) use unix::Signals;

#[cfg(unix)]
mod unix {
    use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

    use super::Signal;

    /// The number of SIGTSTP on systems where it differs from Linux.
    #[cfg(any(target_os = "macos", target_os = "freebsd", target_os = "netbsd", target_os = "openbsd"))]
    const TSTP: i32 = 18;
    #[cfg(any(target_os = "macos", target_os = "freebsd", target_os = "netbsd", target_os = "openbsd"))]
    const CONT: i32 = 19;
    #[cfg(not(any(
        target_os = "macos",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd"
    )))]
    const TSTP: i32 = 20;
    #[cfg(not(any(
        target_os = "macos",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd"
    )))]
    const CONT: i32 = 18;

    /// Listens to the signals. A signal that cannot be listened to keeps its usual effect.
    pub(in super::super) struct Signals {
        term: Option<Stream>,
        int: Option<Stream>,
        tstp: Option<Stream>,
        cont: Option<Stream>,
        usr1: Option<Stream>,
    }

    impl Signals {
        pub(in super::super) fn listen() -> Self {
            let listen = |kind| signal(kind).ok();
            Signals {
                term: listen(SignalKind::terminate()),
                int: listen(SignalKind::interrupt()),
                tstp: listen(SignalKind::from_raw(TSTP)),
                cont: listen(SignalKind::from_raw(CONT)),
                usr1: listen(SignalKind::user_defined1()),
            }
        }

        pub(in super::super) async fn next(&mut self) -> Signal {
            tokio::select! {
                () = recv(&mut self.term) => Signal::Stop,
                () = recv(&mut self.int) => Signal::Stop,
                () = recv(&mut self.tstp) => Signal::Quiet,
                () = recv(&mut self.cont) => Signal::Resume,
                () = recv(&mut self.usr1) => Signal::Dump,
            }
        }
    }

    async fn recv(stream: &mut Option<Stream>) {
        let received = match stream {
            Some(stream) => stream.recv().await,
            None => None,
        };
        if received.is_none() {
            std::future::pending().await
        }
    }
}

#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(super) fn listen() -> Self {
        Signals
    }

    pub(super) async fn next(&mut self) -> Signal {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Signal::Stop,
            Err(_) => std::future::pending().await,
        }
    }
}
