//! The services as gRPC has them: who asks is taken from the connection, the request goes to the service, a refusal
//! becomes a status. Nothing is decided here.

mod admin;
mod cluster;
mod identity;
mod recordings;

use crate::caller::{Caller, CallerProof};
use crate::service::Service;
use fleetgate_net::h2;
use fleetgate_proto::v1::admin_server::AdminServer;
use fleetgate_proto::v1::cluster_server::ClusterServer;
use fleetgate_proto::v1::identity_server::IdentityServer;
use fleetgate_proto::v1::recordings_server::RecordingsServer;
use std::sync::Arc;
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// The largest request of somebody who may have no certificate.
pub const IDENTITY_MESSAGE: usize = 64 * 1024;
/// The largest request of a proxy: a batch of audit records.
pub const CLUSTER_MESSAGE: usize = 1 << 20;
/// The largest request of somebody who looks at recordings.
pub const RECORDINGS_MESSAGE: usize = 16 * 1024;
/// The largest request of an administrator: a role file.
pub const ADMIN_MESSAGE: usize = 2 << 20;

/// The service, as one connection has it.
#[derive(Clone)]
pub(crate) struct GrpcService {
    service: Arc<Service>,
    /// Whose process is at the other end of a unix socket.
    local: Option<u32>,
}

/// What a call that answers with many messages gives.
pub(crate) type Answers<T> = ReceiverStream<Result<T, Status>>;

/// Answers that wait for a caller who does not read.
const MAX_ANSWERS: usize = 16;

type Reply<T> = Result<Response<T>, Status>;

impl GrpcService {
    /// For a connection: by the unix socket of a user, or by TLS.
    pub(crate) fn routes(service: Arc<Service>, local: Option<u32>) -> h2::Routes {
        let grpc = GrpcService { service, local };
        h2::Routes::new()
            .with(IdentityServer::new(grpc.clone()).max_decoding_message_size(IDENTITY_MESSAGE))
            .with(ClusterServer::new(grpc.clone()).max_decoding_message_size(CLUSTER_MESSAGE))
            .with(RecordingsServer::new(grpc.clone()).max_decoding_message_size(RECORDINGS_MESSAGE))
            .with(AdminServer::new(grpc).max_decoding_message_size(ADMIN_MESSAGE))
    }

    fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        Ok(caller(self.local, h2::Caller::of(request)?))
    }
}

/// Who is at the other end of a connection: by a unix socket a process of this user, otherwise what TLS proved.
pub(crate) fn caller(local: Option<u32>, known: &h2::Caller) -> Caller {
    let shown = known.peer.as_ref().and_then(|peer| {
        let certificate = peer.certificate.clone()?;
        Some((peer.identity.clone()?, certificate))
    });
    let who = match (local, shown) {
        (Some(uid), _) => CallerProof::Local(uid),
        (None, Some((identity, certificate))) => {
            CallerProof::Certificate(Arc::new(identity), Arc::new(certificate))
        }
        (None, None) => CallerProof::Nobody,
    };
    Caller {
        who,
        address: known.address,
    }
}

fn reply<T>(done: crate::error::Result<T>) -> Reply<T> {
    done.map(Response::new).map_err(Status::from)
}

/// Answers made by a task of their own, which ends when nobody reads them any more.
fn answers<T, Work>(make: impl FnOnce(mpsc::Sender<Result<T, Status>>) -> Work) -> Reply<Answers<T>>
where
    T: Send + 'static,
    Work: Future<Output = ()> + Send + 'static,
{
    let (to, from) = mpsc::channel(MAX_ANSWERS);
    let gone = to.clone();
    let work = make(to);
    tokio::spawn(async move {
        tokio::select! {
            () = work => {}
            () = gone.closed() => {}
        }
    });
    Ok(Response::new(ReceiverStream::new(from)))
}
