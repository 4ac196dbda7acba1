//! Identity, for everybody.

use super::{GrpcService, Reply, reply};
use fleetgate_proto::v1;
use tonic::{Request, async_trait};

#[async_trait]
impl v1::identity_server::Identity for GrpcService {
    async fn hello(&self, request: Request<v1::HelloRequest>) -> Reply<v1::HelloReply> {
        let caller = self.caller(&request)?;
        reply(self.service.hello(&caller))
    }

    async fn begin_invite(&self, request: Request<v1::BeginInviteRequest>) -> Reply<v1::BeginInviteReply> {
        let caller = self.caller(&request)?;
        let secret = zeroize::Zeroizing::new(request.into_inner().secret);
        reply(self.service.begin_invite(&caller, &secret).await)
    }

    async fn accept_invite(&self, request: Request<v1::AcceptInviteRequest>) -> Reply<v1::AcceptInviteReply> {
        let caller = self.caller(&request)?;
        reply(self.service.accept_invite(&caller, request.into_inner()).await)
    }

    async fn challenge(&self, request: Request<v1::ChallengeRequest>) -> Reply<v1::ChallengeReply> {
        let caller = self.caller(&request)?;
        reply(self.service.challenge(&caller))
    }

    async fn login(&self, request: Request<v1::LoginRequest>) -> Reply<v1::Credentials> {
        let caller = self.caller(&request)?;
        reply(self.service.login(&caller, request.into_inner()).await)
    }

    async fn refresh(&self, request: Request<v1::RefreshRequest>) -> Reply<v1::Credentials> {
        let caller = self.caller(&request)?;
        reply(self.service.refresh(&caller, request.into_inner()).await)
    }

    async fn enroll_device(&self, request: Request<v1::EnrollDeviceRequest>) -> Reply<v1::Device> {
        let caller = self.caller(&request)?;
        reply(self.service.enroll_device(&caller, request.into_inner()).await)
    }

    async fn join(&self, request: Request<v1::JoinRequest>) -> Reply<v1::JoinReply> {
        let caller = self.caller(&request)?;
        reply(self.service.join(&caller, request.into_inner()).await)
    }
}
