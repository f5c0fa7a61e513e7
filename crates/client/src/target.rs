//! The address of a broker and the credentials for it, parsed from a connection string or an `amqp://` URL.

use std::fmt;

use percent_encoding::percent_decode_str;

/// The address of a broker with the credentials for it.
///
/// ```
/// use peeklock_client::Target;
///
/// let target = Target::parse("Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=s;UseDevelopmentEmulator=true")?;
/// assert_eq!(target.address(), "localhost:5672");
/// assert!(!target.uses_tls());
/// # Ok::<(), peeklock_client::TargetError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    pub(crate) credentials: Credentials,
}

/// The credentials of a connection. They have no `Debug` form, so that a secret cannot be logged.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// No credentials.
    Anonymous,
    /// SASL PLAIN, for the whole connection.
    Plain { user: String, secret: String },
    /// A shared access key that signs a token for each entity.
    Key { name: String, secret: String, audience: Audience },
    /// A token that was signed elsewhere.
    Token { token: String, audience: Audience },
}

/// The prefix of every name that a token is for: `sb://host`, with the port if the connection string has one.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Audience(String);

impl Audience {
    pub(crate) fn of_address(address: &str) -> Self {
        Audience(format!("sb://{address}"))
    }

    /// Returns the name of an entity, or with `""` that of the whole namespace.
    pub(crate) fn of(&self, entity: &str) -> String {
        format!("{}/{entity}", self.0)
    }
}

/// The reason why a target could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The text is neither a connection string nor a URL.
    #[error(
        "the connection target starts with neither 'Endpoint=' nor 'amqp://' nor 'amqps://'; give a connection string such as \
         Endpoint=sb://localhost;SharedAccessKeyName=NAME;SharedAccessKey=SECRET;UseDevelopmentEmulator=true, or amqp://NAME:SECRET@HOST:PORT"
    )]
    Form,
    /// The connection string lacks a required part.
    #[error("the connection string has no '{0}' part")]
    Missing(&'static str),
    /// A part of the connection string is not of the form `Key=Value`.
    #[error("'{0}' in the connection string is not of the form Key=Value")]
    Part(String),
    /// The host, or host and port, are not valid.
    #[error("'{0}' is not a host, or a host and a port")]
    Authority(String),
    /// The port is not a number from 1 to 65535.
    #[error("'{0}' is not a port number between 1 and 65535")]
    Port(String),
    /// The URL has a user without a secret.
    #[error("the URL names the user '{0}' but no secret; write {0}:SECRET@")]
    Secret(String),
}

const PLAIN_PORT: u16 = 5672;
const TLS_PORT: u16 = 5671;

impl Target {
    /// Parses a Service Bus connection string or an `amqp://` or `amqps://` URL.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let text = text.trim();
        if let Some(rest) = strip_prefix_ignore_case(text, "amqp://") {
            return from_url(rest, false);
        }
        if let Some(rest) = strip_prefix_ignore_case(text, "amqps://") {
            return from_url(rest, true);
        }
        if text.split(';').any(|part| strip_prefix_ignore_case(part.trim_start(), "Endpoint=").is_some()) {
            return from_connection_string(text);
        }
        Err(TargetError::Form)
    }

    /// Parses a target with one or several hosts, separated by commas: `amqp://NAME:SECRET@h1:5672,h2:5672`, or
    /// `Endpoint=sb://h1:5672,h2:5672;…`. The brokers are equal, and the same credentials apply to all of them.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, TargetError> {
        let (start, end) = authorities(text);
        let hosts = text.get(start..end).unwrap_or_default();
        let with = |host: &str| {
            let (before, after) =
                (text.get(..start).unwrap_or_default(), text.get(end..).unwrap_or_default());
            Self::parse(&format!("{before}{}{after}", host.trim()))
        };
        hosts.split(',').map(with).collect()
    }

    /// Returns a target with a user and a secret, for connections over streams of the program's own. `host` appears in messages.
    pub fn with_secret(host: &str, user: &str, secret: &str) -> Self {
        let credentials = Credentials::Plain { user: user.to_owned(), secret: secret.to_owned() };
        Target { host: host.to_owned(), port: PLAIN_PORT, tls: false, credentials }
    }

    /// Returns the host and port to connect to.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns a connection string for the same broker with another key.
    pub fn connection_string(&self, key_name: &str, secret: &str) -> String {
        let emulator = if self.tls { "" } else { "UseDevelopmentEmulator=true;" };
        let address = self.address();
        format!("Endpoint=sb://{address};SharedAccessKeyName={key_name};SharedAccessKey={secret};{emulator}")
    }

    /// Returns whether connections use TLS.
    pub fn uses_tls(&self) -> bool {
        self.tls
    }
}

/// The debug form leaves the credentials out.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "amqps" } else { "amqp" }, self.address())
    }
}

/// Returns the place of the hosts in a target: after the credentials, up to the path.
fn authorities(text: &str) -> (usize, usize) {
    let scheme = "://";
    let start = text.find(scheme).map_or(0, |at| at + scheme.len());
    let rest = text.get(start..).unwrap_or_default();
    let end = rest.find(['/', '?', '#', ';']).unwrap_or(rest.len());
    let credentials = rest.get(..end).and_then(|part| part.rfind('@')).map_or(0, |at| at + 1);
    (start + credentials, start + end)
}

fn from_url(rest: &str, tls: bool) -> Result<Target, TargetError> {
    let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (user, authority) = match rest.rsplit_once('@') {
        Some((user, authority)) => (Some(user), authority),
        None => (None, rest),
    };
    let (host, port) = parse_authority(authority)?;
    let credentials = match user.map(|user| user.split_once(':').ok_or(user)) {
        None => Credentials::Anonymous,
        Some(Ok((user, secret))) => Credentials::Plain { user: decode(user), secret: decode(secret) },
        Some(Err(user)) => return Err(TargetError::Secret(user.to_owned())),
    };
    let port = port.unwrap_or(if tls { TLS_PORT } else { PLAIN_PORT });
    Ok(Target { host, port, tls, credentials })
}

fn from_connection_string(text: &str) -> Result<Target, TargetError> {
    let parts = Parts::parse(text)?;
    let endpoint = parts.get("Endpoint").ok_or(TargetError::Missing("Endpoint"))?;
    let authority = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest).trim_end_matches('/');
    let (host, port) = parse_authority(authority)?;
    let tls = !parts.get("UseDevelopmentEmulator").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let audience = Audience::of_address(authority);
    let credentials = match parts.get("SharedAccessSignature") {
        Some(token) => Credentials::Token { token: token.to_owned(), audience },
        None => {
            let part = |name| parts.get(name).map(str::to_owned).ok_or(TargetError::Missing(name));
            Credentials::Key {
                name: part("SharedAccessKeyName")?,
                secret: part("SharedAccessKey")?,
                audience,
            }
        }
    };
    let port = port.unwrap_or(if tls { TLS_PORT } else { PLAIN_PORT });
    Ok(Target { host, port, tls, credentials })
}

/// The `Key=Value` parts of a connection string. Values may contain `=`, because keys are often base64.
struct Parts<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Parts<'a> {
    fn parse(text: &'a str) -> Result<Self, TargetError> {
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        let pairs = parts.map(|part| {
            // The error contains only the start of the part, because the part could be a secret.
            part.split_once('=').ok_or_else(|| TargetError::Part(part.chars().take(24).collect()))
        });
        pairs.collect::<Result<_, _>>().map(Parts)
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(key, _)| key.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// Parses `host`, `host:port`, `[v6]` or `[v6]:port`.
fn parse_authority(text: &str) -> Result<(String, Option<u16>), TargetError> {
    let bad = || TargetError::Authority(text.to_owned());
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or_else(bad)?;
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err(bad()),
            }
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() || host.chars().any(char::is_whitespace) {
        return Err(bad());
    }
    Ok((host.to_owned(), port.map(parse_port).transpose()?))
}

fn parse_port(text: &str) -> Result<u16, TargetError> {
    text.parse().ok().filter(|port| *port > 0).ok_or_else(|| TargetError::Port(text.to_owned()))
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn strip_prefix_ignore_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Target {
        Target::parse(text).unwrap()
    }

    fn place(text: &str) -> (String, bool) {
        let target = parse(text);
        (target.address(), target.uses_tls())
    }

    #[test]
    fn the_emulator_flag_chooses_plain_tcp_and_its_port() {
        let keys = "SharedAccessKeyName=k;SharedAccessKey=s";
        let with = |endpoint: &str, flag: &str| place(&format!("Endpoint={endpoint};{keys}{flag}"));
        let flag = ";UseDevelopmentEmulator=true;";
        assert_eq!(with("sb://localhost", flag), ("localhost:5672".into(), false));
        assert_eq!(with("sb://127.0.0.1:15672/", flag), ("127.0.0.1:15672".into(), false));
        assert_eq!(with("sb://ns.example.net/", ""), ("ns.example.net:5671".into(), true));
        assert_eq!(with("sb://ns.example.net:15671/", ""), ("ns.example.net:15671".into(), true));
        assert_eq!(with("sb://[::1]:7/", flag), ("[::1]:7".into(), false));
    }

    #[test]
    fn a_key_keeps_its_equal_signs() {
        let target = parse("Endpoint=sb://h:1/;SharedAccessKeyName=root;SharedAccessKey=a+b/c==");
        let Credentials::Key { name, secret, audience } = target.credentials else { panic!("no key") };
        assert_eq!((name.as_str(), secret.as_str()), ("root", "a+b/c=="));
        assert_eq!(audience.of("orders"), "sb://h:1/orders");
        assert_eq!(audience.of(""), "sb://h:1/");
    }

    #[test]
    fn a_signature_made_elsewhere_is_used_as_it_is() {
        let target =
            parse("Endpoint=sb://h;SharedAccessSignature=SharedAccessSignature sr=x&sig=y&se=1&skn=k");
        let Credentials::Token { token, .. } = target.credentials else { panic!("no token") };
        assert_eq!(token, "SharedAccessSignature sr=x&sig=y&se=1&skn=k");
    }

    #[test]
    fn a_url_contains_user_and_secret() {
        let target = parse("amqp://Root:p%40ss%3a@127.0.0.1:5672");
        assert!(target.credentials == Credentials::Plain { user: "Root".into(), secret: "p@ss:".into() });
        assert_eq!(place("amqps://host"), ("host:5671".into(), true));
        assert_eq!(place("amqp://host/"), ("host:5672".into(), false));
        assert!(parse("amqp://host").credentials == Credentials::Anonymous);
    }

    #[test]
    fn a_connection_string_for_another_key_has_the_same_address() {
        for text in ["amqp://u:s@h:7", "amqps://u:s@[::1]"] {
            let target = parse(text);
            let other = parse(&target.connection_string("k", "a=b"));
            assert_eq!((other.address(), other.uses_tls()), (target.address(), target.uses_tls()));
            let Credentials::Key { name, secret, .. } = other.credentials else { panic!("no key") };
            assert_eq!((name.as_str(), secret.as_str()), ("k", "a=b"));
        }
    }

    #[test]
    fn several_hosts_share_the_credentials() {
        let addresses =
            |text: &str| -> Vec<_> { Target::parse_all(text).unwrap().iter().map(Target::address).collect() };
        assert_eq!(addresses("amqp://u:s@h1:7,h2,[::1]:9"), ["h1:7", "h2:5672", "[::1]:9"]);
        assert_eq!(addresses("amqp://h1/"), ["h1:5672"]);
        let text = "Endpoint=sb://h1:7,h2:8/;SharedAccessKeyName=k;SharedAccessKey=a,b==";
        assert_eq!(addresses(text), ["h1:7", "h2:8"]);
        assert!(Target::parse_all(text).unwrap().iter().all(|target| matches!(
            &target.credentials,
            Credentials::Key { secret, .. } if secret == "a,b=="
        )));
        assert_eq!(Target::parse_all("amqp://u:s@h1,,h2"), Err(TargetError::Authority(String::new())));
        assert_eq!(Target::parse_all("h1,h2"), Err(TargetError::Form));
    }

    #[test]
    fn errors_name_the_mistake() {
        let error = |text: &str| Target::parse(text).unwrap_err();
        assert_eq!(error("localhost:5672"), TargetError::Form);
        assert_eq!(error("Endpoint=sb://h;SharedAccessKey=s"), TargetError::Missing("SharedAccessKeyName"));
        assert_eq!(error("Endpoint=sb://h;SharedAccessKeyName=s"), TargetError::Missing("SharedAccessKey"));
        assert_eq!(error("Endpoint=sb://h;oops"), TargetError::Part("oops".into()));
        assert_eq!(error("amqp://u:s@:5672"), TargetError::Authority(":5672".into()));
        assert_eq!(error("amqp://u:s@h:99999"), TargetError::Port("99999".into()));
        assert_eq!(error("amqp://u:s@h:0"), TargetError::Port("0".into()));
        assert_eq!(error("amqp://u@h"), TargetError::Secret("u".into()));
    }

    #[test]
    fn the_debug_form_has_no_secret() {
        assert_eq!(format!("{:?}", parse("amqp://u:hidden@h:1")), "amqp://h:1");
    }
}
