//! Finds the process that occupies a port, if the system shows it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The state of a listening socket in the tables below.
const LISTENING: &str = "0A";

pub(super) struct Occupant {
    pub(super) pid: u32,
    pub(super) name: String,
}

/// Returns the process that listens on this address, or `None` if the system does not show it.
pub(super) fn occupant(address: SocketAddr) -> Option<Occupant> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<String> = tables
        .iter()
        .flat_map(|table| table.lines().skip(1))
        .filter_map(|line| listening_socket(line, address))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    if sockets.is_empty() {
        return None;
    }
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.into_iter().find(|pid| has_socket(*pid, &sockets))?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(Occupant { pid, name: name.trim().to_owned() })
}

/// Returns the inode of a socket that listens on the wanted address.
fn listening_socket(line: &str, wanted: SocketAddr) -> Option<&str> {
    let mut fields = line.split_whitespace();
    let (local, state) = (fields.nth(1)?, fields.nth(1)?);
    let (host, port) = local.split_once(':')?;
    let same_port = u16::from_str_radix(port, 16).ok()? == wanted.port();
    if state != LISTENING || !same_port || !overlaps(host, wanted.ip()) {
        return None;
    }
    fields.nth(5)
}

/// Returns whether a bound address excludes the wanted one. A bound address of IPv6 may cover both versions.
fn overlaps(host: &str, wanted: IpAddr) -> bool {
    let Some(bits) = (host.len() == 8).then(|| u32::from_str_radix(host, 16).ok()).flatten() else {
        return true;
    };
    // The kernel prints the number in native byte order.
    let taken = Ipv4Addr::from(bits.to_ne_bytes());
    taken.is_unspecified() || wanted.is_unspecified() || IpAddr::V4(taken) == wanted
}

fn has_socket(pid: u32, sockets: &[String]) -> bool {
    let Ok(handles) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut targets = handles.flatten().filter_map(|handle| fs::read_link(handle.path()).ok());
    targets.any(|target| target.to_str().is_some_and(|target| sockets.iter().any(|socket| socket == target)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn an_own_listener_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let found = occupant(listener.local_addr().unwrap()).unwrap();
        assert_eq!(found.pid, std::process::id());
        assert!(!found.name.is_empty());
    }

    #[test]
    fn only_a_listener_on_the_same_address_counts() {
        let line = |local: &str, state: &str| {
            format!(
                "  0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 4711 1 0"
            )
        };
        let wanted: SocketAddr = "127.0.0.1:5672".parse().unwrap();
        let found = |local, state| listening_socket(&line(local, state), wanted).map(str::to_owned);
        assert_eq!(found("00000000:1628", "0A").as_deref(), Some("4711"));
        assert_eq!(found("0100007F:1628", "0A").as_deref(), Some("4711"));
        assert_eq!(found("0100007F:1628", "01"), None);
        assert_eq!(found("0100007F:1629", "0A"), None);
        assert_eq!(found("0200007F:1628", "0A"), None);
        assert_eq!(listening_socket("", wanted), None);
    }
}
