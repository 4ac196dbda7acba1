//! Cluster, for proxies.

use super::{Answers, GrpcService, Reply, answers, reply};
use crate::inventory::Change;
use crate::service::Service;
use crate::state::Published;
use fleetgate_policy::cluster::Selector;
use fleetgate_proto::v1;
use std::sync::Arc;
use tokio::sync::{broadcast, mpsc, watch};
use tonic::{Request, Status, async_trait};

type To<T> = mpsc::Sender<Result<T, Status>>;

#[async_trait]
impl v1::cluster_server::Cluster for GrpcService {
    type WatchStream = Answers<v1::WatchReply>;
    type WatchNodesStream = Answers<v1::NodeChange>;
    type RecordingsStream = Answers<v1::RecordingKept>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Reply<Answers<v1::WatchReply>> {
        let caller = self.caller(&request)?;
        let place = self.service.watches(&caller)?;
        let service = self.service.clone();
        let (known, published) = (request.into_inner().serial, service.published.clone());
        answers(move |to| async move {
            service.until_stopped(watch(to, published, known)).await;
            drop(place);
        })
    }

    async fn watch_nodes(&self, request: Request<v1::WatchRequest>) -> Reply<Answers<v1::NodeChange>> {
        let caller = self.caller(&request)?;
        let place = self.service.watches(&caller)?;
        let service = self.service.clone();
        answers(move |to| async move {
            service.until_stopped(watch_nodes(to, service.clone())).await;
            drop(place);
        })
    }

    async fn report(&self, request: Request<v1::NodeReport>) -> Reply<v1::Empty> {
        let caller = self.caller(&request)?;
        reply(
            self.service
                .report(&caller, request.into_inner())
                .map(|()| v1::Empty {}),
        )
    }

    async fn report_reach(&self, request: Request<v1::ReachReport>) -> Reply<v1::Empty> {
        let caller = self.caller(&request)?;
        let reported = self.service.report_reach(&caller, &request.into_inner());
        reply(reported.map(|()| v1::Empty {}))
    }

    async fn renew(&self, request: Request<v1::RenewFor>) -> Reply<v1::Renewed> {
        let caller = self.caller(&request)?;
        reply(self.service.renew(&caller, request.into_inner()).await)
    }

    async fn audit(&self, request: Request<v1::AuditFrom>) -> Reply<v1::AuditPosition> {
        let caller = self.caller(&request)?;
        reply(self.service.audit(&caller, request.into_inner()).await)
    }

    async fn recordings(
        &self,
        request: Request<tonic::Streaming<v1::RecordingFrom>>,
    ) -> Reply<Answers<v1::RecordingKept>> {
        let caller = self.caller(&request)?;
        caller.proxy(&self.service)?;
        let service = self.service.clone();
        answers(move |to| async move {
            let taking = service
                .clone()
                .take_recordings(caller, request.into_inner(), to.clone());
            let ended = async move {
                if let Err(refused) = taking.await {
                    let _ = to.send(Err(refused.into())).await;
                }
            };
            service.until_stopped(ended).await;
        })
    }

    async fn sign_login(&self, request: Request<v1::SignLoginRequest>) -> Reply<v1::SignLoginReply> {
        let caller = self.caller(&request)?;
        reply(self.service.sign_login(&caller, request.into_inner()).await)
    }

    async fn sign_host(&self, request: Request<v1::SignHostRequest>) -> Reply<v1::SignHostReply> {
        let caller = self.caller(&request)?;
        reply(self.service.sign_host(&caller, request.into_inner()).await)
    }
}

/// The state, whenever it is another than the caller has, and freshness whenever it was signed.
async fn watch(to: To<v1::WatchReply>, mut published: watch::Receiver<Published>, mut known: u64) {
    loop {
        let Published { state, signed, fresh } = published.borrow_and_update().clone();
        let changed = (state.serial != known).then_some(signed);
        known = state.serial;
        let reply = v1::WatchReply {
            state: changed,
            fresh: Some(fresh),
        };
        if to.send(Ok(reply)).await.is_err() || published.changed().await.is_err() {
            return;
        }
    }
}

/// The whole inventory, then what changes; whole again when the caller fell behind.
async fn watch_nodes(to: To<v1::NodeChange>, service: Arc<Service>) {
    loop {
        // Before the inventory is read: what changes meanwhile is told twice rather than not at all.
        let mut changes = service.inventory.changes();
        let nodes = service
            .inventory
            .all(&service.cache(), &Selector::all(), service.now());
        let begin = v1::NodeChange {
            begin: true,
            ..v1::NodeChange::default()
        };
        let complete = v1::NodeChange {
            complete: true,
            ..v1::NodeChange::default()
        };
        let each = nodes.into_iter().map(|node| v1::NodeChange {
            node: Some(node),
            ..v1::NodeChange::default()
        });
        for change in [begin].into_iter().chain(each).chain([complete]) {
            if to.send(Ok(change)).await.is_err() {
                return;
            }
        }
        loop {
            let change = match changes.recv().await {
                Ok(Change::Node(node)) => v1::NodeChange {
                    node: Some(*node),
                    ..v1::NodeChange::default()
                },
                Ok(Change::Removed(removed)) => v1::NodeChange {
                    removed,
                    ..v1::NodeChange::default()
                },
                Err(broadcast::error::RecvError::Lagged(_)) => break,
                Err(broadcast::error::RecvError::Closed) => return,
            };
            if to.send(Ok(change)).await.is_err() {
                return;
            }
        }
    }
}
