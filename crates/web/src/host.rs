//! The host in an authority.

/// Returns the host of an authority, without its port.
pub fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        // An IPv6 address contains colons itself and is written in brackets.
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_removed() {
        assert_eq!(host_of("a.b:5300"), "a.b");
        assert_eq!(host_of("a.b"), "a.b");
        assert_eq!(host_of("[::1]:80"), "[::1]");
        assert_eq!(host_of("[::1]"), "[::1]");
    }
}
