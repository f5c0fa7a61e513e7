//! The health of processors, as a function and over HTTP.

use std::fmt;

use crate::processor::{Processor, State, Status};

/// The health of a group of processors.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// Each processor.
    pub workers: Vec<WorkerHealth>,
}

/// The health of one processor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerHealth {
    /// The name of the processor.
    pub name: String,
    /// Its state and counts.
    pub status: Status,
}

impl Health {
    pub(super) fn of(workers: &[Processor]) -> Self {
        let health = |worker: &Processor| WorkerHealth {
            name: worker.name().to_owned(),
            status: worker.status().borrow().clone(),
        };
        Health { workers: workers.iter().map(health).collect() }
    }

    /// Returns whether no processor has failed. If not, the process should be started again.
    pub fn is_live(&self) -> bool {
        self.workers.iter().all(|worker| worker.status.state != State::Failed)
    }

    /// Returns whether all processors work.
    pub fn is_ready(&self) -> bool {
        self.workers.iter().all(|worker| worker.status.state == State::Running && !worker.status.is_tripped)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, WorkerHealth { name, status }) in self.workers.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            let Status { state, running, target, held, completed, failed, .. } = status;
            write!(
                f,
                "{separator}{name} {state}: {running} of {target} running, {held} held, {completed} completed, {failed} failed"
            )?;
            if let Some(error) = &status.last_error {
                write!(f, ", last error: {error}")?;
            }
        }
        Ok(())
    }
}

#[cfg(feature = "health")]
pub(super) use http::Listener;

#[cfg(feature = "health")]
mod http {
    use std::net::SocketAddr;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;

    use super::Health;
    use crate::processor::Processor;

    /// The longest request that is read. A probe sends less.
    const REQUEST_BYTES_MAX: usize = 2048;
    const TIME_MAX: Duration = Duration::from_secs(5);

    /// Answers probes, one at a time, until it is dropped.
    pub(in super::super) struct Listener(JoinHandle<()>);

    impl Listener {
        pub(in super::super) fn start(address: SocketAddr, workers: Vec<Processor>) -> Self {
            Listener(tokio::spawn(async move {
                let listener = match TcpListener::bind(address).await {
                    Ok(listener) => listener,
                    Err(error) => {
                        return tracing::error!("the health listener cannot listen on {address}: {error}");
                    }
                };
                loop {
                    if let Ok((stream, _)) = listener.accept().await {
                        // A peer that fails or is slow gets no answer.
                        let _ = tokio::time::timeout(TIME_MAX, answer(stream, &Health::of(&workers))).await;
                    }
                }
            }))
        }
    }

    impl Drop for Listener {
        fn drop(&mut self) {
            self.0.abort();
        }
    }

    async fn answer(mut stream: TcpStream, health: &Health) -> std::io::Result<()> {
        let mut request = Vec::with_capacity(REQUEST_BYTES_MAX);
        while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
            if stream.read_buf(&mut request).await? == 0 {
                break;
            }
        }
        stream.write_all(response(&request, health).as_bytes()).await?;
        stream.shutdown().await
    }

    pub(super) fn response(request: &[u8], health: &Health) -> String {
        let line = String::from_utf8_lossy(request);
        let path = line.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
        let is_well = match path {
            Some("/livez" | "/healthz") => health.is_live(),
            Some("/readyz") => health.is_ready(),
            _ => {
                return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned();
            }
        };
        let status = if is_well { "200 OK" } else { "503 Service Unavailable" };
        let body = format!("{health}\n");
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(state: State) -> Health {
        let mut status = Status::default();
        (status.state, status.target) = (state, 4);
        Health { workers: vec![WorkerHealth { name: "orders".to_owned(), status }] }
    }

    #[test]
    fn a_paused_processor_is_live_and_not_ready() {
        let paused = health(State::Paused);
        assert!(paused.is_live() && !paused.is_ready());
        assert!(health(State::Running).is_ready());
        assert!(!health(State::Failed).is_live());
        assert_eq!(paused.to_string(), "orders paused: 0 of 4 running, 0 held, 0 completed, 0 failed");
    }

    #[cfg(feature = "health")]
    #[test]
    fn probes_get_the_health() {
        let answer = |path: &str, state| {
            http::response(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes(), &health(state))
        };
        assert!(answer("/livez", State::Paused).starts_with("HTTP/1.1 200"));
        assert!(answer("/readyz", State::Paused).starts_with("HTTP/1.1 503"));
        assert!(answer("/readyz", State::Running).ends_with("0 failed\n"));
        assert!(answer("/other", State::Running).starts_with("HTTP/1.1 404"));
        assert!(http::response(b"POST /livez", &health(State::Running)).starts_with("HTTP/1.1 404"));
    }
}
