//! The page of metrics and health of a service that has a runtime: on loopback alone, one request on each connection. A
//! port that another program has is told once, and tried again until it is free: without the page a service serves all the
//! same. What the page says is its owner's business.

use crate::http1;
use http::Response;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// Readers at once; the next one waits.
pub const READERS: usize = 16;
/// A port that could not be had is tried again after so long.
const AGAIN: Duration = Duration::from_secs(1);

/// A page in the making.
pub type Making = Pin<Box<dyn Future<Output = Response<String>> + Send>>;
/// The page at a path.
pub type Page = Arc<dyn Fn(String) -> Making + Send + Sync>;

/// Serves it, until this is dropped. Readers that are being answered then get their answer.
pub async fn serve(address: SocketAddr, page: Page) {
    let readers = Arc::new(Semaphore::new(READERS));
    let listener = listen(address).await;
    tracing::info!(%address, "metrics are served");
    loop {
        let Ok(permit) = readers.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((reader, _)) => {
                let page = page.clone();
                tokio::spawn(async move {
                    http1::serve_when_ready(reader, |path| page(path)).await;
                    drop(permit);
                });
            }
            // No descriptors, say.
            Err(_) => sleep(AGAIN).await,
        }
    }
}

async fn listen(address: SocketAddr) -> TcpListener {
    let mut complained = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(e) => {
                if !std::mem::replace(&mut complained, true) {
                    tracing::error!(
                        "metrics are not served: listening on {address} for metrics: {e}; it is tried again until the port is free"
                    );
                }
                sleep(AGAIN).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn get(address: SocketAddr) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_waited_for_and_readers_that_stall_hold_up_few() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let page: Page = Arc::new(|path| Box::pin(async move { Response::new(format!("at {path}")) }));
        let serving = tokio::spawn(serve(address, page));
        tokio::task::yield_now().await;
        drop(taken);
        let mut stalled = Vec::new();
        while stalled.len() < READERS - 1 {
            match TcpStream::connect(address).await {
                Ok(stream) => stalled.push(stream),
                Err(_) => tokio::task::yield_now().await,
            }
        }
        let answer = get(address).await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("at /x"),
            "{answer}"
        );
        serving.abort();
        let _ = serving.await;
        assert!(
            TcpListener::bind(address).await.is_ok(),
            "the port is free at once"
        );
    }
}
