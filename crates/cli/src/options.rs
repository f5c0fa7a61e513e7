//! The options of `serve`, each declared once: its flag, its environment variable, its key in `peeklock.toml`, its default and its help.

mod values;

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use peeklock_spec::{
    HubSpec, MessageSize, Named, NamespaceSpec, PolicySpec, QueueGroupSpec, QueueSpec, Size, TopicSpec,
};
use peeklock_types::EntityName;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

pub(crate) use values::{
    FilePath, Hosts, Listen, NamespaceName, Origins, StorageKey, TierName, Time, TlsNames,
};

/// An option with its names and its value in one source.
pub(crate) struct OptionValue {
    /// The key in `peeklock.toml`, with the name of its table.
    pub(crate) key: String,
    pub(crate) flag: &'static str,
    pub(crate) env: &'static str,
    #[cfg(test)]
    default: Option<&'static str>,
    pub(crate) value: Option<String>,
}

/// Declares the options of one table of `peeklock.toml`. An option that is not set is `None`.
macro_rules! options {
    (
        $(#[$meta:meta])*
        struct $name:ident, in $table:literal {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $type:ty, $flag:literal, $env:literal, $placeholder:literal $(= $default:literal)? $(, alone $alone:literal)?;
            )*
        }
        also { $( $(#[$also_meta:meta])* $also:ident: $also_type:ty, )* }
    ) => {
        #[derive(Clone, Debug, Default, clap::Args, Deserialize)]
        $(#[$meta])*
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        pub(crate) struct $name {
            $(
                #[arg(
                    id = $flag,
                    long = $flag,
                    env = $env,
                    // The value of one variable is a secret, and the help needs no values.
                    hide_env_values = true,
                    value_name = $placeholder,
                    $( num_args = 0..=1, require_equals = true, default_missing_value = $alone, )?
                    help = concat!($($help,)+ $(" [default: ", $default, "]")?).trim_start()
                )]
                #[serde(deserialize_with = "from_text")]
                pub(crate) $field: Option<$type>,
            )*
            $( $(#[$also_meta])* pub(crate) $also: $also_type, )*
        }

        impl $name {
            /// Sets the options that are not set here to those of `below`.
            fn over_options(&mut self, below: &Self) {
                $( self.$field = self.$field.take().or_else(|| below.$field.clone()); )*
            }

            /// Returns the defaults.
            fn usual() -> Self {
                let mut usual = $name::default();
                $( usual.$field = default_of(&[$($default)?]); )*
                usual
            }

            fn own_entries(&self) -> Vec<OptionValue> {
                vec![$( OptionValue {
                    key: format!("{}{}", $table, stringify!($field).replace('_', "-")),
                    flag: $flag,
                    env: $env,
                    #[cfg(test)]
                    default: [$($default)?].first().copied(),
                    value: self.$field.as_ref().map(ToString::to_string),
                }, )*]
            }
        }
    };
}

options! {
    /// The options of one source: the flags with the environment, or a file.
    struct Options, in "" {
        /// Where messages are kept; created if it is not there
        data: FilePath, "data", "PEEKLOCK_DATA", "DIR" = "./peeklock-data";
        /// Address for plain AMQP, or 'off'; port 0 takes any that is free. Every address serves AMQP, HTTP and AMQP over WebSocket
        listen: Listen, "listen", "PEEKLOCK_LISTEN", "ADDRESS" = "127.0.0.1:5672";
        /// Address for AMQP over TLS, or 'off'
        listen_tls: Listen, "listen-tls", "PEEKLOCK_LISTEN_TLS", "ADDRESS" = "127.0.0.1:5671";
        /// Address for management and health over HTTP, or 'off'
        http: Listen, "http", "PEEKLOCK_HTTP", "ADDRESS" = "127.0.0.1:5300";
        /// Address for HTTPS, or 'off'; Azure's administration clients look for it at port 443
        https: Listen, "https", "PEEKLOCK_HTTPS", "ADDRESS" = "off";
        /// Certificate chain in PEM form; without it an authority in the data directory makes one
        tls_cert: FilePath, "tls-cert", "PEEKLOCK_TLS_CERT", "FILE";
        /// Private key of the certificate in PEM form
        tls_key: FilePath, "tls-key", "PEEKLOCK_TLS_KEY", "FILE";
        /// Host names and addresses of the certificate that the broker makes, beside localhost, the addresses of listeners and the hosts of
        /// namespaces; several are separated by commas
        tls_name: TlsNames, "tls-name", "PEEKLOCK_TLS_NAME", "NAME";
        /// Origins of web pages that may use the broker from a browser, such as https://shop.example; several are separated by commas.
        /// Pages of other origins are refused
        allow_origin: Origins, "allow-origin", "PEEKLOCK_ALLOW_ORIGIN", "ORIGIN";
        /// Host names that HTTP requests to addresses on this machine may contain, beside localhost and the hosts of namespaces; several
        /// are separated by commas
        allow_host: Hosts, "allow-host", "PEEKLOCK_ALLOW_HOST", "NAME";
        /// What namespaces offer: premium, or standard with messages of up to 256 KiB
        tier: TierName, "tier", "PEEKLOCK_TIER", "TIER" = "premium";
    }
    also {
        #[command(flatten)]
        limits: Limits,
        #[command(flatten)]
        jwt: Jwt,
        #[command(flatten)]
        storage: Storage,
        #[arg(skip)]
        hosts: Vec<String>,
        #[arg(skip)]
        keys: Named<String, PolicySpec>,
        #[arg(skip)]
        queues: Named<EntityName, QueueSpec>,
        #[arg(skip)]
        topics: Named<EntityName, TopicSpec>,
        #[arg(skip)]
        groups: Named<EntityName, QueueGroupSpec>,
        #[arg(skip)]
        hubs: Named<EntityName, HubSpec>,
        #[arg(skip)]
        namespaces: Named<NamespaceName, NamespaceSpec>,
    }
}

options! {
    #[command(next_help_heading = "Limits")]
    struct Limits, in "limits." {
        /// Connections at the same time, of all addresses together
        max_connections: u32, "max-connections", "PEEKLOCK_MAX_CONNECTIONS", "COUNT" = "16384";
        /// How long a connection may take to show what it speaks
        first_bytes_time: Time, "first-bytes-time", "PEEKLOCK_FIRST_BYTES_TIME", "TIME" = "20s";
        /// How long a TLS handshake may take
        tls_handshake_time: Time, "tls-handshake-time", "PEEKLOCK_TLS_HANDSHAKE_TIME", "TIME" = "20s";
        /// How long a connection may be without a valid token or key
        unauthenticated_time: Time, "unauthenticated-time", "PEEKLOCK_UNAUTHENTICATED_TIME", "TIME" = "20s";
        /// How much a connection may send in that time
        unauthenticated_bytes: Size, "unauthenticated-bytes", "PEEKLOCK_UNAUTHENTICATED_BYTES", "SIZE" = "256KiB";
        /// AMQP sessions of one connection
        max_sessions: u16, "max-sessions", "PEEKLOCK_MAX_SESSIONS", "COUNT" = "5000";
        /// Links of one connection
        max_links: u32, "max-links", "PEEKLOCK_MAX_LINKS", "COUNT" = "8192";
        /// Tokens that one connection may hold
        max_tokens: u32, "max-tokens", "PEEKLOCK_MAX_TOKENS", "COUNT" = "4096";
        /// Largest AMQP frame
        max_frame_size: MessageSize, "max-frame-size", "PEEKLOCK_MAX_FRAME_SIZE", "SIZE" = "64KiB";
        /// Largest message, whatever a queue or topic allows
        max_message_size: MessageSize, "max-message-size", "PEEKLOCK_MAX_MESSAGE_SIZE", "SIZE" = "100MiB";
        /// Steps that a rule of a subscription may take for one message; a step is about a comparison of two characters
        max_rule_steps: u32, "max-rule-steps", "PEEKLOCK_MAX_RULE_STEPS", "COUNT" = "1000000";
        /// Steps that all rules of a topic may take together for one message
        max_topic_steps: u32, "max-topic-steps", "PEEKLOCK_MAX_TOPIC_STEPS", "COUNT" = "20000000";
        /// Largest message of a WebSocket
        max_websocket_message_size: Size, "max-websocket-message-size", "PEEKLOCK_MAX_WEBSOCKET_MESSAGE_SIZE", "SIZE" = "1MiB";
        /// Largest head of an HTTP request
        max_http_head_size: Size, "max-http-head-size", "PEEKLOCK_MAX_HTTP_HEAD_SIZE", "SIZE" = "64KiB";
        /// Header lines of an HTTP request
        max_http_headers: u32, "max-http-headers", "PEEKLOCK_MAX_HTTP_HEADERS", "COUNT" = "100";
        /// How long the head of an HTTP request may take, and the pause before it
        http_head_time: Time, "http-head-time", "PEEKLOCK_HTTP_HEAD_TIME", "TIME" = "30s";
        /// Largest body of a request for management
        max_http_body_size: Size, "max-http-body-size", "PEEKLOCK_MAX_HTTP_BODY_SIZE", "SIZE" = "1MiB";
        /// How long the body of an HTTP request may take
        http_body_time: Time, "http-body-time", "PEEKLOCK_HTTP_BODY_TIME", "TIME" = "30s";
        /// Entities, rules or messages in one answer over HTTP
        max_page_count: u32, "max-page-count", "PEEKLOCK_MAX_PAGE_COUNT", "COUNT" = "1000";
        /// How long an HTTP request may take
        http_request_time: Time, "http-request-time", "PEEKLOCK_HTTP_REQUEST_TIME", "TIME" = "1m";
        /// Hold the quotas of the official emulators: numbers of entities, their settings, sizes and times
        strict_emulator_quotas: bool, "strict-emulator-quotas", "PEEKLOCK_STRICT_EMULATOR_QUOTAS", "BOOL" = "false", alone "true";
    }
    also {}
}

options! {
    #[command(next_help_heading = "Bearer tokens (JWT), off unless all three are given")]
    struct Jwt, in "jwt." {
        /// Key set of the issuer (JSON) or one public key (PEM)
        keys: FilePath, "jwt-keys", "PEEKLOCK_JWT_KEYS", "FILE";
        /// Who must have issued a token
        issuer: String, "jwt-issuer", "PEEKLOCK_JWT_ISSUER", "TEXT";
        /// Whom a token must be for
        audience: String, "jwt-audience", "PEEKLOCK_JWT_AUDIENCE", "TEXT";
    }
    also {}
}

options! {
    #[command(next_help_heading = "Blob and Queue Storage")]
    struct Storage, in "storage." {
        /// Address or port for the Blob calls of checkpoint stores, or 'off'
        blob_port: Listen, "blob-port", "PEEKLOCK_BLOB_PORT", "ADDRESS" = "127.0.0.1:10000";
        /// Address or port for Queue Storage, over the same queues, or 'off'
        queue_port: Listen, "queue-port", "PEEKLOCK_QUEUE_PORT", "ADDRESS" = "127.0.0.1:10001";
        /// Name of the storage account
        account: String, "storage-account", "PEEKLOCK_STORAGE_ACCOUNT", "NAME" = "devstoreaccount1";
        /// Key of the storage account, in base64, in place of the well-known one
        key: StorageKey, "storage-key", "PEEKLOCK_STORAGE_KEY", "KEY";
        /// File with the key of the storage account, so that it is not in the list of processes
        key_file: FilePath, "storage-key-file", "PEEKLOCK_STORAGE_KEY_FILE", "FILE";
    }
    also {}
}

impl Options {
    pub(crate) fn defaults() -> Self {
        let (limits, jwt, storage) = (Limits::usual(), Jwt::usual(), Storage::usual());
        Options { limits, jwt, storage, ..Options::usual() }
    }

    /// Sets the options that are not set here to those of `below`. Entities are not copied.
    pub(crate) fn over(&mut self, below: &Options) {
        self.over_options(below);
        self.limits.over_options(&below.limits);
        self.jwt.over_options(&below.jwt);
        self.storage.over_options(&below.storage);
    }

    pub(crate) fn entries(&self) -> Vec<OptionValue> {
        let mut entries = self.own_entries();
        entries.extend(self.limits.own_entries());
        entries.extend(self.jwt.own_entries());
        entries.extend(self.storage.own_entries());
        entries
    }

    /// Takes the default namespace, which is declared outside of the named ones.
    pub(crate) fn take_default_namespace(&mut self) -> NamespaceSpec {
        NamespaceSpec {
            hosts: std::mem::take(&mut self.hosts),
            tier: None,
            keys: std::mem::take(&mut self.keys),
            queues: std::mem::take(&mut self.queues),
            topics: std::mem::take(&mut self.topics),
            groups: std::mem::take(&mut self.groups),
            hubs: std::mem::take(&mut self.hubs),
        }
    }
}

/// Parses a default. A test checks that every default can be parsed.
fn default_of<T: FromStr>(default: &[&str]) -> Option<T> {
    default.first().and_then(|text| text.parse().ok())
}

/// For `serde`: reads text, a number or a boolean as the value of the flag.
fn from_text<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    deserializer.deserialize_any(AsFlag(PhantomData)).map(Some)
}

struct AsFlag<T>(PhantomData<T>);

impl<T: FromStr> Visitor<'_> for AsFlag<T>
where
    T::Err: fmt::Display,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or a number")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(|error| E::custom(format!("'{text}': {error}")))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_bool<E: de::Error>(self, truth: bool) -> Result<T, E> {
        self.visit_str(&truth.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_can_be_parsed() {
        let defaults = Options::defaults();
        for entry in defaults.entries() {
            assert_eq!(entry.value.as_deref(), entry.default, "--{}", entry.flag);
        }
    }

    #[test]
    fn the_names_of_an_option_are_consistent() {
        let entries = Options::default().entries();
        for entry in &entries {
            let env = format!("PEEKLOCK_{}", entry.flag.to_uppercase().replace('-', "_"));
            assert_eq!(entry.env, env);
            assert!(entry.key.replace('.', "-").ends_with(entry.flag), "{} {}", entry.key, entry.flag);
        }
        assert!(entries.len() > 20);
    }
}
