//! The certificate: configured, or created at the first start and kept in the data directory.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::Addresses;

pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) certificate: PathBuf,
}

/// Loads a certificate if an address requires TLS. A configured certificate serves all addresses.
pub(crate) fn load_if_needed(
    given: Option<(PathBuf, PathBuf)>,
    data: &Path,
    listen: Addresses,
) -> Result<Option<Tls>> {
    let address = listen.https.or(listen.amqp_tls);
    if address.is_none() && given.is_none() {
        return Ok(None);
    }
    let ip = address.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip());
    load(given, data, ip).map(Some)
}

fn load(given: Option<(PathBuf, PathBuf)>, data: &Path, address: IpAddr) -> Result<Tls> {
    let (certificate, key) = match given {
        Some(pair) => pair,
        None => self_signed(&data.join("tls"), address)?,
    };
    let (chain, secret) = (read_chain(&certificate)?, read_key(&key)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| unusable(&certificate, &key, error))?;
    Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), certificate })
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

fn self_signed(folder: &Path, address: IpAddr) -> Result<(PathBuf, PathBuf)> {
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    if certificate.exists() && key.exists() {
        return Ok((certificate, key));
    }
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if !address.is_unspecified() && !names.contains(&address.to_string()) {
        names.push(address.to_string());
    }
    let made = rcgen::generate_simple_self_signed(names).context("cannot make a certificate")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // The certificate is written last: if the process stops in between, the next start creates both again.
    write(&key, &made.signing_key.serialize_pem(), 0o600)?;
    write(&certificate, &made.cert.pem(), 0o644)?;
    Ok((certificate, key))
}

fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(mode);
    let mut file = options.open(path).with_context(|| format!("cannot create {}", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}
