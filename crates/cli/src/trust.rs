//! `peeklock trust`: how programs come to trust the broker's own certificate authority.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

/// Print how to trust the certificate authority in a data directory.
///
/// The broker makes an authority of its own on its first start with a TLS address. Programs that trust this one file accept the broker under
/// all its names, also those that `serve --tls-name` adds later.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Only for this system, language or program
    whom: Option<Whom>,
    /// The data directory of the broker
    #[arg(long, value_name = "DIR", env = "PEEKLOCK_DATA", default_value = "./peeklock-data")]
    data: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  peeklock trust                  every way
  peeklock trust java             for Java only
  eval \"$(peeklock trust node)\"    lets Node programs of this shell trust the broker";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Whom {
    Linux,
    Macos,
    Windows,
    Python,
    Node,
    Java,
    Dotnet,
    Go,
    Peeklock,
}

/// Each with its heading and its lines; FILE stands for the certificate.
const WAYS: [(Whom, &str, &str); 9] = [
    (
        Whom::Linux,
        "Linux, for all users",
        "# Debian, Ubuntu
sudo cp FILE /usr/local/share/ca-certificates/peeklock.crt && sudo update-ca-certificates
# Fedora, RHEL, Arch
sudo trust anchor FILE",
    ),
    (
        Whom::Macos,
        "macOS, for all users",
        "sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain FILE",
    ),
    (Whom::Windows, "Windows, in a prompt of an administrator", "certutil -addstore -f Root FILE"),
    (
        Whom::Python,
        "Python: the option connection_verify of the Azure clients, or for HTTPS and WebSockets",
        "export SSL_CERT_FILE=FILE REQUESTS_CA_BUNDLE=FILE",
    ),
    (Whom::Node, "Node", "export NODE_EXTRA_CA_CERTS=FILE"),
    (
        Whom::Java,
        "Java",
        "keytool -importcert -noprompt -alias peeklock -file FILE -keystore trust.p12 -storetype PKCS12 -storepass changeit
java -Djavax.net.ssl.trustStore=trust.p12 -Djavax.net.ssl.trustStorePassword=changeit …",
    ),
    (
        Whom::Dotnet,
        ".NET trusts what the system trusts; on Linux also",
        "export SSL_CERT_FILE=FILE",
    ),
    (Whom::Go, "Go trusts what the system trusts; on Linux also", "export SSL_CERT_FILE=FILE"),
    (Whom::Peeklock, "peeklock", "export PEEKLOCK_CA=FILE"),
];

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let file = certificate(&arguments.data)?;
    io::stdout().lock().write_all(text(&file.display().to_string(), arguments.whom).as_bytes())?;
    Ok(())
}

fn certificate(data: &Path) -> Result<PathBuf> {
    let file = data.join("tls").join("certificate.pem");
    if !file.exists() {
        bail!(
            "{} does not exist. Start the broker once with a TLS address (--listen-tls), or name its data directory with --data",
            file.display()
        );
    }
    file.canonicalize().with_context(|| format!("cannot find {}", file.display()))
}

/// Returns the lines for one, or for all with headings.
fn text(file: &str, whom: Option<Whom>) -> String {
    let quoted = quote(file);
    let ways = WAYS.iter().filter(|(for_whom, ..)| whom.is_none_or(|whom| whom == *for_whom));
    let all: Vec<String> = ways
        .map(|(_, heading, lines)| format!("# {heading}\n{}\n", lines.replace("FILE", &quoted)))
        .collect();
    let head = if whom.is_none() { format!("# Trust this file: {file}\n\n") } else { String::new() };
    head + &all.join("\n")
}

/// Returns the path as one word of a shell.
fn quote(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if path.chars().all(is_plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_names_the_file() {
        let all = text("/data/tls/certificate.pem", None);
        for (_, heading, _) in WAYS {
            assert!(all.contains(heading), "{heading}");
        }
        assert!(!all.contains("FILE"), "{all}");
        let node = text("/my data/it's.pem", Some(Whom::Node));
        assert_eq!(node, "# Node\nexport NODE_EXTRA_CA_CERTS='/my data/it'\\''s.pem'\n");
    }

    #[test]
    fn every_one_of_the_choices_has_a_way() {
        for whom in Whom::value_variants() {
            assert_eq!(WAYS.iter().filter(|(known, ..)| known == whom).count(), 1, "{whom:?}");
        }
    }
}
