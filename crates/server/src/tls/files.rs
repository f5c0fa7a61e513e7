//! A certificate chain and its private key in PEM files.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

pub(super) fn load(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey> {
    let (chain, secret) = (read_chain(certificate)?, read_key(key)?);
    CertifiedKey::from_der(chain, secret, provider).map_err(|error| unusable(certificate, key, error))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let chain = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.with_context(|| format!("cannot read the certificate {}", path.display()))?;
    if chain.is_empty() {
        bail!(
            "{} holds no certificate; it must be in PEM form, with a line -----BEGIN CERTIFICATE----- (--tls-cert)",
            path.display()
        );
    }
    Ok(chain)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    match PrivateKeyDer::from_pem_file(path) {
        Err(pem::Error::NoItemsFound) => bail!(
            "{} holds no private key; it must be in PEM form, with a line such as -----BEGIN PRIVATE KEY----- (--tls-key)",
            path.display()
        ),
        read => read.with_context(|| format!("cannot read the private key {}", path.display())),
    }
}

fn unusable(certificate: &Path, key: &Path, error: rustls::Error) -> anyhow::Error {
    let (certificate, key) = (certificate.display(), key.display());
    match error {
        rustls::Error::InconsistentKeys(_) => {
            anyhow!(
                "{key} is not the private key of the certificate {certificate}; give the pair that belongs together"
            )
        }
        other => {
            anyhow!(other).context(format!("the certificate {certificate} with the key {key} cannot be used"))
        }
    }
}
