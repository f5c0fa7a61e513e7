//! The broker's own certificate authority: one certificate that clients trust once, and certificates for the broker's names that it signs.
//!
//! Only the authority is on the disk. Certificates for names are made at each start and again while the broker runs, so names can be added at
//! any time, and no certificate is old.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

/// The file that clients trust.
const CERTIFICATE_FILE: &str = "certificate.pem";
const KEY_FILE: &str = "authority-key.pem";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const AUTHORITY_DAYS: u32 = 3650;
/// Some systems accept at most 398 days.
const SIGNED_DAYS: u32 = 397;
/// Clocks of clients may be behind.
const CLOCK_DIFFERENCE: Duration = DAY;

pub(super) struct Authority {
    certificate: PathBuf,
    key_file: PathBuf,
    chain: CertificateDer<'static>,
    key: KeyPair,
}

impl Authority {
    /// Opens the authority in a folder, or makes one.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let (certificate, key_file) = (folder.join(CERTIFICATE_FILE), folder.join(KEY_FILE));
        if !(certificate.exists() && key_file.exists()) {
            make(folder, &certificate, &key_file)?;
        }
        let chain = CertificateDer::from_pem_file(&certificate)
            .with_context(|| format!("cannot read the certificate {}", certificate.display()))?;
        let key = fs::read_to_string(&key_file)
            .with_context(|| format!("cannot read the private key {}", key_file.display()))?;
        let key = KeyPair::from_pem(&key).with_context(|| {
            format!("{} holds no private key; remove it to get a new authority", key_file.display())
        })?;
        Ok(Authority { certificate, key_file, chain, key })
    }

    /// Returns the file that clients trust.
    pub(super) fn certificate(&self) -> &Path {
        &self.certificate
    }

    pub(super) fn key_file(&self) -> &Path {
        &self.key_file
    }

    /// Makes a key with a certificate for these host names and addresses.
    pub(super) fn sign(&self, names: &[String], provider: &CryptoProvider) -> Result<CertifiedKey> {
        let mut params = CertificateParams::new(names)
            .with_context(|| format!("no certificate can have the names {}", names.join(", ")))?;
        params.distinguished_name = named("Peeklock");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, SIGNED_DAYS);
        let key = KeyPair::generate().context("cannot make a key")?;
        let issuer = Issuer::new(params_of_authority(), &self.key);
        let signed = params.signed_by(&key, &issuer).context("cannot sign a certificate")?;
        let chain = vec![signed.der().clone(), self.chain.clone()];
        let secret = PrivatePkcs8KeyDer::from(key.serialize_der());
        CertifiedKey::from_der(chain, secret.into(), provider).context("the new certificate cannot be used")
    }
}

fn make(folder: &Path, certificate: &Path, key_file: &Path) -> Result<()> {
    let key = KeyPair::generate().context("cannot make a key")?;
    let made = params_of_authority().self_signed(&key).context("cannot make a certificate")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // The certificate is replaced last: if the process stops in between, the next start makes both again.
    match fs::remove_file(certificate) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", certificate.display()));
        }
        _ => {}
    }
    write(key_file, &key.serialize_pem(), 0o600)?;
    write(certificate, &made.pem(), 0o644)
}

fn params_of_authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("Peeklock local authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, AUTHORITY_DAYS);
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names.push(DnType::OrganizationName, "Peeklock");
    names
}

fn set_validity(params: &mut CertificateParams, days: u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(CLOCK_DIFFERENCE);
    params.not_after = epoch + now + DAY * days;
}

fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(mode);
    let mut file = options.open(path).with_context(|| format!("cannot create {}", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}
