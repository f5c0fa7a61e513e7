//! Moves the broker's clock for interop tests. Only builds with the feature `test-clock` contain it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::http::StatusCode;
use axum::routing::put;
use peeklock_broker::test_clock;
use tokio::net::TcpListener;

/// Serves `PUT /clock` at a loopback address and returns that address. The body is the number of milliseconds by which the clock is to be
/// ahead of the real time. Call it before the server starts.
pub async fn listen() -> Result<SocketAddr> {
    test_clock::allow();
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("the test clock cannot listen")?;
    let address = listener.local_addr()?;
    let routes = axum::Router::new().route("/clock", put(set));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(address)
}

async fn set(ahead_ms: String) -> StatusCode {
    match ahead_ms.trim().parse() {
        Ok(ahead_ms) => {
            test_clock::set(Duration::from_millis(ahead_ms));
            StatusCode::NO_CONTENT
        }
        Err(_) => StatusCode::BAD_REQUEST,
    }
}
