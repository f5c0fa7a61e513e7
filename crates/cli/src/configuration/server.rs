//! Converts the configuration to the types of the server.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use peeklock_server::{
    Addresses, AmqpLimits, Entities, FilterCost, HttpLimits, JwtOptions, ListenLimits, NamespaceOptions,
    Options, StorageListen, StorageOptions, TlsOptions, WebPages,
};
use peeklock_spec::NamespaceSpec;
use peeklock_types::Tier;

use super::{Configuration, policies, secret_file};
use crate::options::{FilePath, Jwt, Limits, Listen, Time};

impl Configuration {
    pub(crate) fn into_options(self) -> Result<Options> {
        let storage = self.storage()?;
        let Configuration { options, keys, default, namespaces, .. } = self;
        let address = |listen: Option<Listen>| listen.and_then(|listen| listen.0);
        let file = |path: Option<FilePath>| path.map(|path| path.0);
        let namespaces = namespaces.into_iter().map(namespace).collect::<Result<Vec<_>>>()?;
        Ok(Options {
            data: file(options.data).context("there is no data directory; give one with --data")?,
            listen: Addresses {
                amqp: address(options.listen),
                amqp_tls: address(options.listen_tls),
                http: address(options.http),
                https: address(options.https),
            },
            storage,
            tls: TlsOptions {
                files: file(options.tls_cert).zip(file(options.tls_key)),
                names: options.tls_name.map_or_else(Vec::new, |names| names.0),
            },
            web_pages: WebPages {
                hosts: options.allow_host.map_or_else(Vec::new, |hosts| hosts.0),
                origins: options.allow_origin.map_or_else(Vec::new, |origins| origins.0),
            },
            limits: listen_limits(&options.limits)?,
            amqp_limits: amqp_limits(&options.limits)?,
            http_limits: http_limits(&options.limits)?,
            filter_cost: filter_cost(&options.limits)?,
            tier: options.tier.map_or_else(Tier::default, |tier| tier.0),
            strict_emulator_quotas: options.limits.strict_emulator_quotas == Some(true),
            jwt: jwt(options.jwt),
            keys,
            hosts: default.hosts.clone(),
            entities: entities(default),
            namespaces,
        })
    }
}

impl Configuration {
    fn storage(&self) -> Result<StorageOptions> {
        let storage = &self.options.storage;
        let listen = |listen: Option<Listen>, flag: &str| {
            let address = listen.and_then(|listen| listen.0)?;
            Some(StorageListen { address, is_usual: self.is_default(flag) })
        };
        let key = match (&storage.key, &storage.key_file) {
            (Some(key), _) => Some(key.0.clone()),
            (None, Some(file)) => Some(secret_file::storage_key(&file.0)?),
            (None, None) => None,
        };
        Ok(StorageOptions {
            blobs: listen(storage.blob_port, "blob-port"),
            queues: listen(storage.queue_port, "queue-port"),
            account: storage.account.clone(),
            key,
        })
    }
}

fn namespace((name, space): (String, NamespaceSpec)) -> Result<NamespaceOptions> {
    let keys = policies(&space)?;
    let (hosts, tier) = (space.hosts.clone(), space.tier);
    Ok(NamespaceOptions { name, hosts, tier, keys, entities: entities(space) })
}

fn entities(space: NamespaceSpec) -> Entities {
    Entities { queues: space.queues.0, topics: space.topics.0, hubs: space.hubs.0, groups: space.groups.0 }
}

fn jwt(jwt: Jwt) -> Option<JwtOptions> {
    let keys: PathBuf = jwt.keys?.0;
    Some(JwtOptions { keys, issuer: jwt.issuer?, audience: jwt.audience? })
}

fn listen_limits(limits: &Limits) -> Result<ListenLimits> {
    let usual = ListenLimits::default();
    Ok(ListenLimits {
        connections_max: count(limits.max_connections, "max-connections", usual.connections_max)?,
        first_bytes_time_max: time(limits.first_bytes_time, usual.first_bytes_time_max),
        tls_handshake_time_max: time(limits.tls_handshake_time, usual.tls_handshake_time_max),
        http_head_time_max: time(limits.http_head_time, usual.http_head_time_max),
        http_head_bytes_max: size(
            limits.max_http_head_size.map(|size| size.0),
            "max-http-head-size",
            HTTP_HEAD_BYTES_MIN,
            usual.http_head_bytes_max,
        )?,
        http_headers_max: count(limits.max_http_headers, "max-http-headers", usual.http_headers_max)?,
        http_request_time_max: time(limits.http_request_time, usual.http_request_time_max),
        websocket_message_bytes_max: size(
            limits.max_websocket_message_size.map(|size| size.0),
            "max-websocket-message-size",
            FRAME_BYTES_MIN,
            usual.websocket_message_bytes_max,
        )?,
    })
}

/// The smallest frame size of AMQP.
const FRAME_BYTES_MIN: u64 = 512;
/// The smallest size that the HTTP library accepts.
const HTTP_HEAD_BYTES_MIN: u64 = 8192;

fn amqp_limits(limits: &Limits) -> Result<AmqpLimits> {
    let usual = AmqpLimits::default();
    let sessions = limits.max_sessions.unwrap_or(usual.sessions_per_connection_max);
    if sessions == 0 {
        bail!("max-sessions is 0, which lets nobody in; give at least 1");
    }
    let frame_size = limits.max_frame_size.map_or(usual.frame_size_bytes_max, |size| size.0);
    if u64::from(frame_size) < FRAME_BYTES_MIN {
        bail!("max-frame-size is {frame_size}; AMQP needs at least {FRAME_BYTES_MIN}");
    }
    let message_size = limits.max_message_size.map_or(usual.message_size_bytes_max, |size| size.0);
    if message_size == 0 {
        bail!("max-message-size is 0, which lets no message in; give at least 1");
    }
    Ok(AmqpLimits {
        sessions_per_connection_max: sessions,
        links_per_connection_max: count(limits.max_links, "max-links", usual.links_per_connection_max)?,
        link_numbers_per_connection_max: usual.link_numbers_per_connection_max,
        frame_size_bytes_max: frame_size,
        message_size_bytes_max: message_size,
        tokens_per_connection_max: count(limits.max_tokens, "max-tokens", usual.tokens_per_connection_max)?,
        unauthenticated_time_max: time(limits.unauthenticated_time, usual.unauthenticated_time_max),
        unauthenticated_bytes_max: size(
            limits.unauthenticated_bytes.map(|size| size.0),
            "unauthenticated-bytes",
            FRAME_BYTES_MIN,
            usual.unauthenticated_bytes_max,
        )?,
    })
}

fn http_limits(limits: &Limits) -> Result<HttpLimits> {
    let usual = HttpLimits::default();
    Ok(HttpLimits {
        body_size_bytes_max: size(
            limits.max_http_body_size.map(|size| size.0),
            "max-http-body-size",
            1,
            usual.body_size_bytes_max,
        )?,
        body_time_max: time(limits.http_body_time, usual.body_time_max),
        page_count_max: count(limits.max_page_count, "max-page-count", usual.page_count_max)?,
    })
}

fn filter_cost(limits: &Limits) -> Result<FilterCost> {
    let usual = FilterCost::default();
    let steps = |given: Option<u32>, name: &str, usual: u64| match given {
        Some(0) => bail!("{name} is 0, which lets no rule run; give at least 1"),
        Some(count) => Ok(count.into()),
        None => Ok(usual),
    };
    Ok(FilterCost {
        rule_steps_max: steps(limits.max_rule_steps, "max-rule-steps", usual.rule_steps_max)?,
        message_steps_max: steps(limits.max_topic_steps, "max-topic-steps", usual.message_steps_max)?,
    })
}

fn time(given: Option<Time>, usual: Duration) -> Duration {
    given.map_or(usual, |time| time.0)
}

fn count(given: Option<u32>, name: &str, usual: usize) -> Result<usize> {
    match given {
        Some(0) => bail!("{name} is 0, which lets nobody in; give at least 1"),
        Some(count) => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
        None => Ok(usual),
    }
}

fn size(given: Option<u64>, name: &str, min: u64, usual: usize) -> Result<usize> {
    match given {
        Some(size) if size < min => bail!("{name} is {size}; give at least {min} bytes"),
        Some(size) => Ok(usize::try_from(size).unwrap_or(usize::MAX)),
        None => Ok(usual),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    #[test]
    fn the_defaults_in_the_help_are_those_of_the_crates() {
        let limits = options::Options::defaults().limits;
        assert_eq!(listen_limits(&limits).unwrap(), ListenLimits::default());
        assert_eq!(http_limits(&limits).unwrap(), HttpLimits::default());
        // The limit of queues is the same, so both are equal.
        let message_size_bytes_max = peeklock_types::limits::LARGE_MESSAGE_SIZE_BYTES_MAX.try_into().unwrap();
        let usual = AmqpLimits { message_size_bytes_max, ..AmqpLimits::default() };
        assert_eq!(amqp_limits(&limits).unwrap(), usual);
    }

    #[test]
    fn limits_that_reject_every_client_are_rejected() {
        let refused = |limits: Limits| {
            let all = listen_limits(&limits).is_err()
                || amqp_limits(&limits).is_err()
                || http_limits(&limits).is_err();
            assert!(all, "{limits:?}");
        };
        refused(Limits { max_connections: Some(0), ..Limits::default() });
        refused(Limits { max_sessions: Some(0), ..Limits::default() });
        refused(Limits { max_frame_size: "100".parse().ok(), ..Limits::default() });
        refused(Limits { max_http_head_size: "1".parse().ok(), ..Limits::default() });
        refused(Limits { max_http_body_size: "0".parse().ok(), ..Limits::default() });
        refused(Limits { max_message_size: "0".parse().ok(), ..Limits::default() });
    }
}
