//! Admin, for administrators.

use super::{Answers, GrpcService, Reply, answers, reply};
use crate::caller::Caller;
use fleetgate_proto::v1;
use tonic::{Request, Status, async_trait};

const DONE: v1::Empty = v1::Empty {};

impl GrpcService {
    /// Who asks, if it is an administrator.
    fn admin<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        let caller = self.caller(request)?;
        self.service.administrator(&caller)?;
        Ok(caller)
    }
}

#[async_trait]
impl v1::admin_server::Admin for GrpcService {
    type EventsStream = Answers<v1::Event>;

    async fn add_user(&self, request: Request<v1::AddUserRequest>) -> Reply<v1::Invite> {
        let caller = self.admin(&request)?;
        reply(self.service.add_user(&caller, request.into_inner()).await)
    }

    async fn reset_user(&self, request: Request<v1::UserName>) -> Reply<v1::Invite> {
        let caller = self.admin(&request)?;
        reply(self.service.reset_user(&caller, &request.get_ref().name).await)
    }

    async fn change_user(&self, request: Request<v1::ChangeUserRequest>) -> Reply<v1::User> {
        let caller = self.admin(&request)?;
        reply(self.service.change_user(&caller, request.into_inner()).await)
    }

    async fn remove_user(&self, request: Request<v1::UserName>) -> Reply<v1::Empty> {
        let caller = self.admin(&request)?;
        reply(
            self.service
                .remove_user(&caller, &request.get_ref().name)
                .await
                .map(|()| DONE),
        )
    }

    async fn users(&self, request: Request<v1::Empty>) -> Reply<v1::UsersReply> {
        self.admin(&request)?;
        reply(Ok(self.service.users()))
    }

    async fn apply_role(&self, request: Request<v1::ApplyRoleRequest>) -> Reply<v1::ApplyRoleReply> {
        let caller = self.admin(&request)?;
        reply(self.service.apply_role(&caller, request.into_inner()).await)
    }

    async fn remove_role(&self, request: Request<v1::RoleName>) -> Reply<v1::Empty> {
        let caller = self.admin(&request)?;
        reply(
            self.service
                .remove_role(&caller, &request.get_ref().name)
                .await
                .map(|()| DONE),
        )
    }

    async fn roles(&self, request: Request<v1::Empty>) -> Reply<v1::RolesReply> {
        self.admin(&request)?;
        reply(Ok(self.service.roles()))
    }

    async fn test_role(&self, request: Request<v1::TestRoleRequest>) -> Reply<v1::TestRoleReply> {
        self.admin(&request)?;
        reply(self.service.test_role(request.get_ref()))
    }

    async fn add_token(&self, request: Request<v1::AddTokenRequest>) -> Reply<v1::JoinToken> {
        let caller = self.admin(&request)?;
        reply(self.service.add_token(&caller, request.into_inner()).await)
    }

    async fn remove_token(&self, request: Request<v1::TokenId>) -> Reply<v1::Empty> {
        let caller = self.admin(&request)?;
        reply(
            self.service
                .remove_token(&caller, &request.get_ref().id)
                .await
                .map(|()| DONE),
        )
    }

    async fn tokens(&self, request: Request<v1::Empty>) -> Reply<v1::TokensReply> {
        self.admin(&request)?;
        reply(Ok(self.service.tokens()))
    }

    async fn add_lock(&self, request: Request<v1::AddLockRequest>) -> Reply<v1::Lock> {
        let caller = self.admin(&request)?;
        reply(self.service.add_lock(&caller, request.into_inner()).await)
    }

    async fn remove_lock(&self, request: Request<v1::LockId>) -> Reply<v1::Empty> {
        let caller = self.admin(&request)?;
        reply(
            self.service
                .remove_lock(&caller, &request.get_ref().id)
                .await
                .map(|()| DONE),
        )
    }

    async fn locks(&self, request: Request<v1::Empty>) -> Reply<v1::LocksReply> {
        self.admin(&request)?;
        reply(Ok(self.service.locks()))
    }

    async fn nodes(&self, request: Request<v1::NodesRequest>) -> Reply<v1::NodesReply> {
        self.admin(&request)?;
        reply(self.service.nodes(request.get_ref()))
    }

    async fn remove_node(&self, request: Request<v1::NodeName>) -> Reply<v1::Empty> {
        let caller = self.admin(&request)?;
        let request = request.get_ref();
        let removed = self.service.remove_node(&caller, &request.name, request.force);
        reply(removed.await.map(|()| DONE))
    }

    async fn register_node(&self, request: Request<v1::RegisterNodeRequest>) -> Reply<v1::Node> {
        let caller = self.admin(&request)?;
        reply(self.service.register_node(&caller, request.into_inner()).await)
    }

    async fn devices(&self, request: Request<v1::Empty>) -> Reply<v1::DevicesReply> {
        self.admin(&request)?;
        reply(Ok(self.service.devices()))
    }

    async fn approve_device(&self, request: Request<v1::DeviceId>) -> Reply<v1::Device> {
        let caller = self.admin(&request)?;
        reply(self.service.approve_device(&caller, &request.get_ref().id).await)
    }

    async fn remove_device(&self, request: Request<v1::DeviceId>) -> Reply<v1::Empty> {
        let caller = self.admin(&request)?;
        reply(
            self.service
                .remove_device(&caller, &request.get_ref().id)
                .await
                .map(|()| DONE),
        )
    }

    async fn authorities(&self, request: Request<v1::Empty>) -> Reply<v1::AuthoritiesReply> {
        self.admin(&request)?;
        reply(Ok(self.service.authorities()))
    }

    async fn rotate_authorities(&self, request: Request<v1::RotateRequest>) -> Reply<v1::AuthoritiesReply> {
        let caller = self.admin(&request)?;
        reply(self.service.rotate(&caller, request.into_inner()).await)
    }

    async fn events(&self, request: Request<v1::EventsRequest>) -> Reply<Answers<v1::Event>> {
        self.admin(&request)?;
        let mut reading = self.service.events(request.into_inner()).await?;
        let service = self.service.clone();
        answers(move |to| async move {
            loop {
                let found = match service.read_on(&mut reading).await {
                    Ok(found) if found.is_empty() => return,
                    Ok(found) => found,
                    Err(refused) => {
                        let _ = to.send(Err(refused.into())).await;
                        return;
                    }
                };
                for (event, mark) in found {
                    let mark = mark.to_string();
                    let event = v1::Event {
                        line: event.line,
                        mark,
                    };
                    if to.send(Ok(event)).await.is_err() {
                        return;
                    }
                }
            }
        })
    }

    async fn backed_up(&self, request: Request<v1::BackedUpRequest>) -> Reply<v1::Empty> {
        let caller = self.admin(&request)?;
        let told = self.service.backed_up(&caller, request.get_ref()).await;
        reply(told.map(|()| DONE))
    }
}
