//! TLS: the certificate of the configuration, or one of an authority in the data directory.

mod authority;
mod files;
mod source;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

use crate::Addresses;
use authority::Authority;
use source::Origin;
pub(crate) use source::Source;

/// The folder in the data directory with the broker's own authority.
const FOLDER: &str = "tls";
/// The names that every certificate of the own authority has.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Where the certificate comes from.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// The files of the certificate chain and of the private key, both in PEM form. With `None`, an authority in the data directory signs a
    /// certificate at each start.
    pub files: Option<(PathBuf, PathBuf)>,
    /// Host names and addresses of the signed certificate, beside `localhost`, the listening addresses and the hosts of namespaces.
    pub names: Vec<String>,
}

pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) source: Arc<Source>,
}

/// Loads a certificate if an address requires TLS. A configured certificate serves all addresses.
pub(crate) fn load_if_needed(
    options: TlsOptions,
    data: &Path,
    listen: Addresses,
    hosts: impl Iterator<Item = String>,
) -> Result<Option<Tls>> {
    let origin = match options.files {
        Some((certificate, key)) => Origin::Files { certificate, key },
        None if listen.https.or(listen.amqp_tls).is_none() => return Ok(None),
        None => {
            let authority = Box::new(Authority::open(&data.join(FOLDER))?);
            Origin::Authority { authority, names: names(listen, options.names.into_iter().chain(hosts)) }
        }
    };
    load(origin).map(Some)
}

fn load(origin: Origin) -> Result<Tls> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let source = Arc::new(Source::open(origin, Arc::clone(&provider))?);
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(source.current());
    Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), source })
}

/// Returns the names of the signed certificate, each once.
fn names(listen: Addresses, others: impl Iterator<Item = String>) -> Vec<String> {
    let addresses = listen.iter().map(|address| address.ip()).filter(|ip| !ip.is_unspecified());
    let all =
        LOCAL_NAMES.map(str::to_owned).into_iter().chain(addresses.map(|ip| ip.to_string())).chain(others);
    let mut names = Vec::new();
    for name in all {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests;
