//! The byte stream to a broker: TCP, with TLS if the target requires it, or a stream of the program's own.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::Options;
use crate::{ConnectError, Target};

/// The time limit for the TCP connection, and again for the TLS handshake.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// A stream of bytes in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// The pending result of [`Connector::connect`].
pub type Connecting<'a> =
    Pin<Box<dyn Future<Output = Result<Box<dyn ByteStream>, ConnectError>> + Send + 'a>>;

/// Opens byte streams to a broker, such as tunnels or in-memory pipes.
pub trait Connector: Send + Sync + 'static {
    /// Opens a stream.
    fn connect(&self) -> Connecting<'_>;
}

/// Connects over TCP.
pub(crate) struct Tcp {
    pub(crate) target: Target,
    pub(crate) options: Options,
}

impl Connector for Tcp {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let stream = connect(&self.target, self.options.certificates.as_deref()).await?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }
}

pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

pub(crate) async fn connect(target: &Target, certificates: Option<&Path>) -> Result<Stream, ConnectError> {
    // A bad certificate file is reported before the connection is opened.
    let tls = if target.tls { Some(tls_config(certificates)?) } else { None };
    let tcp = dial(target).await?;
    match tls {
        None => Ok(Stream::Plain(tcp)),
        Some(config) => handshake(target, config, tcp).await,
    }
}

async fn dial(target: &Target) -> Result<TcpStream, ConnectError> {
    let address = target.address();
    let dialled = timeout(CONNECT_TIME_MAX, TcpStream::connect((target.host.as_str(), target.port))).await;
    let tcp = match dialled {
        Ok(Ok(tcp)) => tcp,
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            return Err(ConnectError::Refused { address });
        }
        Ok(Err(source)) => return Err(ConnectError::Unreachable { address, source }),
        Err(_) => return Err(ConnectError::NoAnswer { address, after: CONNECT_TIME_MAX }),
    };
    // The driver writes frames in batches, so delaying small packets would not save any.
    tcp.set_nodelay(true).map_err(|source| ConnectError::Unreachable { address, source })?;
    Ok(tcp)
}

async fn handshake(target: &Target, config: ClientConfig, tcp: TcpStream) -> Result<Stream, ConnectError> {
    let address = target.address();
    let name = ServerName::try_from(target.host.clone())
        .map_err(|error| ConnectError::Tls { address: address.clone(), reason: error.to_string() })?;
    let connector = TlsConnector::from(Arc::new(config));
    match timeout(CONNECT_TIME_MAX, connector.connect(name, tcp)).await {
        Ok(Ok(tls)) => Ok(Stream::Tls(Box::new(tls))),
        Ok(Err(error)) if is_tls(&error) => Err(ConnectError::Tls { address, reason: error.to_string() }),
        // The peer went away during the handshake.
        Ok(Err(source)) => Err(ConnectError::Unreachable { address, source }),
        Err(_) => Err(ConnectError::NoAnswer { address, after: CONNECT_TIME_MAX }),
    }
}

/// Returns whether an error is of TLS itself, such as an unknown certificate, and not of the connection below.
fn is_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

/// Returns a configuration that trusts the certificates of the machine and those of the file.
fn tls_config(certificates: Option<&Path>) -> Result<ClientConfig, ConnectError> {
    let mut roots = RootCertStore::empty();
    // A machine without a certificate store is accepted; the handshake fails if no certificate fits.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = certificates {
        add_file(&mut roots, path)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), ConnectError> {
    let bad = |reason: String| ConnectError::Certificates { path: path.to_owned(), reason };
    let mut count = 0;
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))? {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        roots.add(certificate).map_err(|error| bad(error.to_string()))?;
        count += 1;
    }
    if count == 0 { Err(bad("it holds no certificate in PEM form".to_owned())) } else { Ok(()) }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(cx, into),
            Stream::Tls(tls) => Pin::new(tls).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Stream::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
