//! What a session's viewers have to do with its pump and its connection: they get what it shows, what they type goes to its terminal,
//! and a view of another session is a session of its own here. Who they are and what waits for them is in `views`.

use super::Context;
use super::channel::Channel;
use super::connection::FrontConnection;
use super::key::Key;
use super::pump::{CHUNK, PourStop, Pump, Which};
use super::tap::Tap;
use super::views::{News, Served, View, Views, micros};
use crate::start::WorkerEnd;
use fleetgate_record::live::Start;
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelId, Stream};
use fleetgate_sys::{Fd, file};
use fleetgate_wire::node::front::{FromFront, Ticket};
use std::ffi::CStr;
use std::time::Duration;

/// A terminal holds less than this that was written and not read.
const MAX_LAST: u64 = 64 << 10;
/// So soon it is tried again where the terminal or the rate let nothing more in.
const AGAIN: Duration = Duration::from_millis(50);

impl Pump {
    /// Gives viewers what they are to have, and types what they typed. `size` is the terminal's.
    pub(super) fn serve_views(&mut self, size: (u16, u16), now: Duration) -> Served {
        let mut served = Served::default();
        let Some(mut views) = self.views.take() else {
            return served;
        };
        // Who comes sees everything once: what was shown before is with the recorder, and what comes goes to him. A mark in the
        // recording says where that is: its times are not fine enough.
        let all_is_recorded = |tap: Option<&mut Tap>| {
            tap.is_none_or(|tap| {
                tap.flush();
                tap.has_room()
            })
        };
        if !views.coming.is_empty() && all_is_recorded(self.tap()) {
            let since = micros().saturating_sub(views.since);
            if let Some(tap) = self.tap() {
                tap.mark(size.0, size.1);
            }
            for view in std::mem::take(&mut views.coming) {
                let does = match view.types {
                    true => "has joined this session and can type",
                    false => "watches this session",
                };
                views.notice(&format!("{} {does}", view.who), view.types);
                served.news.push(News::Viewed(view.number, since));
                views.all.push(view);
            }
            views.resized(size.0, size.1);
            views.tell_who_is_there();
        }
        for view in &mut views.all {
            loop {
                if view.read(now)
                    && let Some(tap) = self.tap()
                {
                    // Before it is typed: a program that hides it may show what follows.
                    tap.typed(&view.typed);
                }
                if view.typed.is_empty() {
                    // With credit left there was nothing to read.
                    served.again |= view.types && view.credit == 0;
                    break;
                }
                let done = self.type_in(&view.typed);
                view.typed.drain(..done);
                if !view.typed.is_empty() {
                    served.again = true;
                    break;
                }
            }
        }
        views.flush();
        for view in &mut views.all {
            if view.is_slow(now) && !view.is_gone {
                view.is_gone = true;
                served.news.push(News::Slow(view.number));
            }
        }
        // That they left is told when the monitor says so.
        served.stays = !(views.all.is_empty() && views.coming.is_empty() && views.notices.is_empty());
        if served.stays {
            self.views = Some(views);
        }
        served
    }

    /// So many bytes of this file go to the client before anything else.
    pub(super) fn first(&mut self, file: Fd, len: u64) {
        self.first = Some((file, len));
    }

    /// Sends of the file that goes before everything else; none: it is sent.
    pub(super) fn pour_first(
        &mut self,
        core: &mut Connection,
        channel: ChannelId,
        share: usize,
        poured: &mut usize,
    ) -> Option<PourStop> {
        while let Some((file, left)) = &mut self.first {
            if *poured >= share {
                return Some(PourStop::Share);
            }
            if core.writable(channel) == 0 {
                return Some(PourStop::Starved);
            }
            let chunk = usize::try_from(*left).map_or(CHUNK, |left| left.min(CHUNK));
            match core.write_parts(channel, Stream::Main, chunk, |places| {
                file::read_parts(file.raw(), places)
            }) {
                Ok(n @ 1..) => {
                    *poured += n;
                    self.sent += n as u64;
                    *left = left.saturating_sub(n as u64);
                    if *left == 0 {
                        self.first = None;
                    }
                }
                // It is shorter than it was said to be: the client could not tell what follows from what is missing.
                _ => {
                    self.first = None;
                    self.end_output();
                }
            }
        }
        None
    }

    /// Types what a viewer typed, as far as the terminal takes it now; how many bytes that were.
    pub(super) fn type_in(&mut self, bytes: &[u8]) -> usize {
        match &mut self.sink {
            None => bytes.len(),
            Some(sink) if !sink.kept.is_empty() => 0,
            Some(sink) => sink.write(bytes).unwrap_or(bytes.len()),
        }
    }

    /// The program has ended, and so does seeing it: with what it wrote last, whoever else writes to its terminal.
    pub(super) fn end_views_with_program(&mut self) {
        let is_read = !self.is_readable();
        let until = self.views.as_ref().and_then(|views| views.until);
        if until.is_some_and(|until| is_read || self.sent >= until) {
            self.end_views();
        }
    }

    /// Viewers' last look.
    pub(super) fn end_views(&mut self) {
        if let Some(mut views) = self.views.take() {
            views.flush();
        }
    }
}

impl FrontConnection {
    /// The session of `ticket` shows another one: from this socket, behind the beginning of its recording.
    pub(super) fn viewing(
        &mut self,
        ticket: Ticket,
        start: Start,
        mut fds: Vec<Fd>,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        let file = match start.recorded {
            0 => None,
            _ => fds.pop(),
        };
        self.started(ticket, (true, None, None), fds, context)?;
        let Some(channel) = self.channel_of(ticket) else {
            return Ok(());
        };
        self.core.write(ChannelId(channel), Stream::Main, &start.encode());
        if let Some(Channel::Session(session)) = self.channels.get_mut(&channel) {
            if let Some(file) = file {
                session.pump.first(file, start.recorded);
            }
            // The monitor says how it ended, and its words come before the end of the output.
            session.is_ending = true;
        }
        self.queue(channel);
        Ok(())
    }

    /// Somebody is to see the session of `ticket`.
    pub(super) fn view(
        &mut self,
        ticket: Ticket,
        (number, who, types): (u32, &CStr, bool),
        fds: Vec<Fd>,
        context: &mut Context<'_>,
    ) {
        let Some(channel) = self.channel_of(ticket) else {
            return;
        };
        let (Some(Channel::Session(session)), Some(socket)) =
            (self.channels.get_mut(&channel), fds.into_iter().next())
        else {
            return;
        };
        let key = Key::Channel(self.place, Which::Views, channel);
        if session.pump.master().is_none() || context.epoll.add_edges(&socket, key.to_number()).is_err() {
            return;
        }
        let since = session.pump.tap().map(|tap| tap.since());
        let views = session
            .pump
            .views
            .get_or_insert_with(|| Box::new(Views::new(since)));
        views.come(View::new(
            number,
            &who.to_string_lossy(),
            types,
            socket,
            context.now,
        ));
        if !self.viewed.contains(&channel) {
            self.viewed.push(channel);
        }
    }

    /// Somebody sees it no more. Of a session that has ended he sees what its program wrote last, too.
    pub(super) fn end_view(&mut self, ticket: Ticket, viewer: u32) {
        let Some(channel) = self.channel_of(ticket) else {
            return;
        };
        if let Some(Channel::Session(session)) = self.channels.get_mut(&channel) {
            let last = session.pump.sent + MAX_LAST;
            let Some(views) = &mut session.pump.views else {
                return;
            };
            if !session.exited {
                return views.leave(viewer);
            }
            views.until.get_or_insert(last);
            self.settle(channel);
        }
    }

    fn channel_of(&self, ticket: Ticket) -> Option<u32> {
        let is = |ch: &Channel| matches!(ch, Channel::Session(s) if s.ticket() == Some(ticket));
        self.channels.iter().find(|(_, ch)| is(ch)).map(|(n, _)| *n)
    }

    /// Looks at the viewers of all sessions that have some.
    pub(super) fn serve_views(&mut self, context: &mut Context<'_>) -> Result<(), WorkerEnd> {
        self.views_due = None;
        let mut viewed = std::mem::take(&mut self.viewed);
        let mut said = Vec::new();
        viewed.retain(|channel| {
            let Some(Channel::Session(session)) = self.channels.get_mut(channel) else {
                return false;
            };
            let least = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
            let size = session
                .pty
                .as_ref()
                .map_or((0, 0), |pty| (least(pty.size.columns), least(pty.size.rows)));
            let served = session.pump.serve_views(size, context.now);
            if let Some(ticket) = session.ticket() {
                said.extend(served.news.into_iter().map(|news| (ticket, news)));
            }
            if served.again {
                self.views_due = Some(context.now + AGAIN);
            }
            // Not in the middle of what the program writes.
            if !session.pump.is_readable()
                && let Some(views) = &mut session.pump.views
            {
                let channel = ChannelId(*channel);
                while let Some(line) = views.notices.first()
                    && self.core.writable(channel) >= line.len()
                {
                    self.core.write(channel, Stream::Main, line);
                    views.notices.remove(0);
                }
            }
            served.stays
        });
        self.viewed = viewed;
        let connection = self.number;
        for (ticket, news) in said {
            context.control.say(&match news {
                News::Viewed(viewer, at) => FromFront::Viewed {
                    connection,
                    ticket,
                    viewer,
                    at,
                },
                News::Slow(viewer) => FromFront::ViewerSlow {
                    connection,
                    ticket,
                    viewer,
                },
            })?;
        }
        Ok(())
    }
}
