//! What brings SSH's bytes to the far side: a stream of a proxy, or a TCP connection of our own.

use super::SshError;
use crate::timings::Timings;
use crate::transport::{DialOptions, DialStream, Proxy, ReportHandle};
use std::future::Future;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// What brings SSH bytes to the far side.
pub trait Carrier {
    /// The way, once it is open.
    type Stream: AsyncRead + AsyncWrite + Unpin;

    /// Opens a way. The first flight of SSH goes with whatever opens it, or as the first bytes.
    fn open(
        &mut self,
        first_flight: Vec<u8>,
        timings: &mut Timings,
    ) -> impl Future<Output = Result<Self::Stream, SshError>>;
}

/// A TCP connection of our own.
#[derive(Clone, Debug)]
pub struct TcpCarrier {
    /// A name or address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How long it may take; none: as long as the kernel tries.
    pub time: Option<Duration>,
}

impl Carrier for TcpCarrier {
    type Stream = TcpStream;

    async fn open(&mut self, first_flight: Vec<u8>, timings: &mut Timings) -> Result<TcpStream, SshError> {
        timings.begin("tcp", "client-node");
        timings.request("connect");
        timings.round_trip();
        let failed = |why: String| SshError::Connect(format!("{}:{}: {why}", self.host, self.port));
        let connect = TcpStream::connect((self.host.as_str(), self.port));
        let connected = match self.time {
            Some(time) => tokio::time::timeout(time, connect).await,
            None => Ok(connect.await),
        };
        let mut stream = match connected {
            Ok(connected) => connected.map_err(|e| failed(e.to_string()))?,
            Err(_) => return Err(failed("it did not answer in time".into())),
        };
        let _ = stream.set_nodelay(true);
        stream
            .write_all(&first_flight)
            .await
            .map_err(|e| failed(e.to_string()))?;
        Ok(stream)
    }
}

/// A node through a proxy, as SSH's carrier.
pub struct ProxyCarrier {
    /// The proxy.
    pub proxy: Proxy,
    /// The node.
    pub node: String,
    /// The account.
    pub login: String,
    /// What is said with the dial.
    pub options: DialOptions,
    /// What was said beside the last dial.
    pub report: ReportHandle,
}

impl Carrier for ProxyCarrier {
    type Stream = DialStream;

    async fn open(&mut self, first_flight: Vec<u8>, _: &mut Timings) -> Result<DialStream, SshError> {
        let stream = self
            .proxy
            .dial(&self.node, &self.login, first_flight.into(), &self.options);
        self.report = stream.report();
        Ok(stream)
    }
}
