//! Collects everything that the broker logs in this process, at the finest level.

use std::io;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use tracing_subscriber::EnvFilter;

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static START: Once = Once::new();

struct Writer;

fn log() -> MutexGuard<'static, Vec<u8>> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        log().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn start() {
    START.call_once(|| {
        let filter = EnvFilter::new("trace,mio=info,hyper=debug,rustls=debug");
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(|| Writer).init();
    });
}

/// Asserts that no test so far has logged a secret.
pub(crate) fn assert_clean() {
    let text = String::from_utf8_lossy(&log()).into_owned();
    for secret in [crate::support::ROOT_SECRET, "sig=", "SharedAccessSignature "] {
        let line = text.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "the log has a secret: {line:?}");
    }
}

/// Returns the lines that contain a text.
pub(crate) fn lines(text: &str) -> Vec<String> {
    let log = String::from_utf8_lossy(&log()).into_owned();
    log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}
