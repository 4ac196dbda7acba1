//! How messages become bytes: prost's way, with buffers that grow with what is sent. tonic's own set 8 KB aside for each
//! direction of each stream, which is most of what a tunnel that waits would cost.

use prost::Message;
use std::marker::PhantomData;
use tonic::codec::BufferSettings;
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// What a stream sets aside before it has anything to send or to read.
const FIRST: usize = 64;
/// From how much on what is ready is sent before more is encoded.
const ENOUGH: usize = 32 * 1024;

/// Sends `T` and reads `U`.
#[derive(Debug, Clone)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Codec(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> ProstEncoder<T> {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(FIRST, ENOUGH))
    }

    fn decoder(&mut self) -> ProstDecoder<U> {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(FIRST, ENOUGH))
    }
}
