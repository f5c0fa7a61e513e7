//! The certificate of new connections, and where it comes from. It is replaced while the broker runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use super::authority::Authority;
use super::files;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The age at which a certificate of the own authority is replaced, far before its end.
const SIGN_EVERY: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The certificate that new connections get.
#[derive(Debug)]
pub(super) struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[cfg(test)]
impl Current {
    pub(super) fn chain(&self) -> Vec<rustls::pki_types::CertificateDer<'static>> {
        self.0.read().unwrap().cert.clone()
    }
}

/// Where certificates come from.
pub(super) enum Origin {
    Files { certificate: PathBuf, key: PathBuf },
    Authority { authority: Box<Authority>, names: Vec<String> },
}

/// Replaces the certificate when its files have changed or when it is old.
pub(crate) struct Source {
    origin: Origin,
    provider: Arc<CryptoProvider>,
    current: Arc<Current>,
    last: Mutex<Last>,
}

/// The last attempt to load or to sign. A failed attempt is not repeated before something changes.
struct Last {
    at: Instant,
    changed_at: [Option<SystemTime>; 2],
}

impl Source {
    pub(super) fn open(origin: Origin, provider: Arc<CryptoProvider>) -> Result<Self> {
        let last = Last { at: Instant::now(), changed_at: origin.changed_at() };
        let current = Arc::new(Current(RwLock::new(Arc::new(origin.load(&provider)?))));
        Ok(Source { origin, provider, current, last: Mutex::new(last) })
    }

    pub(super) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current)
    }

    /// Returns the file that clients trust.
    pub(crate) fn certificate(&self) -> &Path {
        match &self.origin {
            Origin::Files { certificate, .. } => certificate,
            Origin::Authority { authority, .. } => authority.certificate(),
        }
    }

    pub(crate) fn key_file(&self) -> &Path {
        match &self.origin {
            Origin::Files { key, .. } => key,
            Origin::Authority { authority, .. } => authority.key_file(),
        }
    }

    /// Loads the certificate again. If this fails, the old one stays.
    pub(crate) fn reload(&self) -> Result<()> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Last { at: Instant::now(), changed_at: self.origin.changed_at() };
        let loaded = Arc::new(self.origin.load(&self.provider)?);
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(())
    }

    fn is_due(&self) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.origin {
            Origin::Files { .. } => self.origin.changed_at() != last.changed_at,
            Origin::Authority { .. } => last.at.elapsed() >= SIGN_EVERY,
        }
    }

    /// Replaces the certificate when it is due, until the broker stops.
    pub(crate) async fn watch(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                _ = stopping.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            if !self.is_due() {
                continue;
            }
            let certificate = self.certificate().display();
            match self.reload() {
                Ok(()) => tracing::info!(%certificate, "the certificate was loaded again"),
                Err(error) => {
                    tracing::warn!(
                        "the certificate could not be loaded again, and the old one stays: {error:#}"
                    );
                }
            }
        }
    }
}

impl Origin {
    fn load(&self, provider: &CryptoProvider) -> Result<CertifiedKey> {
        match self {
            Origin::Files { certificate, key } => files::load(certificate, key, provider),
            Origin::Authority { authority, names } => authority.sign(names, provider),
        }
    }

    /// Returns when the files were changed.
    fn changed_at(&self) -> [Option<SystemTime>; 2] {
        match self {
            Origin::Files { certificate, key } => [certificate, key]
                .map(|path| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()),
            Origin::Authority { .. } => [None, None],
        }
    }
}
