use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::*;

fn listen() -> Addresses {
    let tls = Some("192.0.2.7:5671".parse().unwrap());
    Addresses { amqp_tls: tls, ..Addresses::default() }
}

fn open(data: &Path, names: &[&str]) -> Tls {
    let names = names.iter().map(ToString::to_string).collect();
    let options = TlsOptions { files: None, names };
    let hosts = std::iter::once("east.example".to_owned());
    load_if_needed(options, data, listen(), hosts).unwrap().unwrap()
}

/// Returns whether a client that trusts the authority accepts the current certificate for a name.
fn is_trusted(tls: &Tls, name: &str, in_days: u64) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(tls.source.certificate()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let chain = tls.source.current().chain();
    let (leaf, rest) = chain.split_first().unwrap();
    let now = UnixTime::since_unix_epoch(
        UnixTime::now().as_secs().checked_add(in_days * 86_400).map(std::time::Duration::from_secs).unwrap(),
    );
    verifier.verify_server_cert(leaf, rest, &ServerName::try_from(name.to_owned()).unwrap(), &[], now).is_ok()
}

#[test]
fn one_trusted_file_is_enough_for_all_names_and_stays_the_same() {
    let data = tempfile::tempdir().unwrap();
    let first = open(data.path(), &[]);
    for name in ["localhost", "127.0.0.1", "::1", "192.0.2.7", "east.example"] {
        assert!(is_trusted(&first, name, 0), "{name}");
    }
    assert!(!is_trusted(&first, "shop.servicebus.windows.net", 0));
    let trusted = fs::read(first.source.certificate()).unwrap();
    let second = open(data.path(), &["shop.servicebus.windows.net"]);
    assert_eq!(fs::read(second.source.certificate()).unwrap(), trusted);
    assert!(is_trusted(&second, "shop.servicebus.windows.net", 0));
}

#[test]
fn a_signed_certificate_lasts_for_a_year_and_is_replaced_by_a_reload() {
    let data = tempfile::tempdir().unwrap();
    let tls = open(data.path(), &[]);
    assert!(is_trusted(&tls, "localhost", 396));
    assert!(!is_trusted(&tls, "localhost", 398));
    let before = tls.source.current().chain();
    tls.source.reload().unwrap();
    assert_ne!(tls.source.current().chain()[0], before[0]);
    assert!(is_trusted(&tls, "localhost", 0));
}

#[test]
fn the_key_of_the_authority_is_for_its_owner_only() {
    let data = tempfile::tempdir().unwrap();
    let tls = open(data.path(), &[]);
    let mode = fs::metadata(tls.source.key_file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_certificate_of_an_earlier_version_is_replaced_by_an_authority() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().join(FOLDER);
    fs::create_dir(&folder).unwrap();
    let old = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(folder.join("certificate.pem"), old.cert.pem()).unwrap();
    fs::write(folder.join("key.pem"), old.signing_key.serialize_pem()).unwrap();
    assert!(is_trusted(&open(data.path(), &[]), "localhost", 0));
}

#[test]
fn changed_files_are_loaded_and_unusable_ones_leave_the_old_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
    let write = || {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(&certificate, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        made.cert.der().clone()
    };
    let first = write();
    let files = Some((certificate.clone(), key.clone()));
    let options = TlsOptions { files, names: Vec::new() };
    let tls = load_if_needed(options, folder.path(), listen(), std::iter::empty()).unwrap().unwrap();
    let current = || tls.source.current().chain()[0].clone();
    assert_eq!(current(), first);
    fs::write(&certificate, "nothing").unwrap();
    let error = tls.source.reload().unwrap_err().to_string();
    assert!(error.contains("c.pem"), "{error}");
    assert_eq!(current(), first);
    let second = write();
    tls.source.reload().unwrap();
    assert_eq!(current(), second);
}
