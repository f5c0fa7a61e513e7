//! Hubs and their partitions: lists, descriptions, changes.

use peeklock_hubs::{Error as HubError, Hubs};
use peeklock_journal::Log;
use peeklock_types::Timestamp;

use crate::batch::PeerId;
use crate::hub::{Partition, PartitionInfo};
use crate::reply::Error;
use crate::request::hubs::{
    Claim, CreateConsumerGroup, CreateHub, DeleteConsumerGroup, DeleteHub, DeleteStreams, EndConsumerGroup,
    HubRequest, ListCheckpoints, ListHubs, ListOwnerships, ListPartitions, OpenStreams, SetCheckpoint,
    ShowHub, ShowPartition, ShowPartitions, ShowProducer, UpdateConsumerGroup, UpdateHub,
};
use crate::shard::Shard;

impl<L: Log> Shard<L> {
    pub(super) fn execute_hub(&mut self, now: Timestamp, peer: PeerId, request: HubRequest) {
        match request {
            HubRequest::CreateHub(asked) => self.answer(peer, asked, |shard, request| {
                let CreateHub { name, id, settings, groups } = request;
                if shard.state.engine.find(&name).is_some() {
                    return Err(Error::NameTaken { name, is_hub: false });
                }
                let (hubs, out) = (&mut shard.state.hubs, &mut shard.hub_output);
                Ok(hubs.create_hub(now, name, id, *settings, &groups, out)?)
            }),
            HubRequest::UpdateHub(asked) => {
                self.answer(peer, asked, |shard, UpdateHub { name, settings, expected }| {
                    let (hubs, out) = (&mut shard.state.hubs, &mut shard.hub_output);
                    Ok(hubs.update_hub(now, &name, *settings, expected, out)?)
                });
            }
            HubRequest::DeleteHub(asked) => {
                self.answer(peer, asked, |shard, DeleteHub { name, expected }| {
                    Ok(shard.state.hubs.delete_hub(&name, expected, &mut shard.hub_output)?)
                })
            }
            HubRequest::ShowHub(asked) => {
                self.answer(peer, asked, |shard, ShowHub { name }| Ok(shard.state.hubs.hub(&name)?))
            }
            HubRequest::ListHubs(asked) => self.answer(peer, asked, |shard, ListHubs { after, top }| {
                Ok(shard.state.hubs.hubs_after(after.as_ref()).take(top).collect())
            }),
            HubRequest::CreateConsumerGroup(asked) => self.answer(peer, asked, |shard, request| {
                let CreateConsumerGroup { name, group, user_metadata } = request;
                let (hubs, out) = (&mut shard.state.hubs, &mut shard.hub_output);
                Ok(hubs.create_group(now, &name, group, user_metadata, out)?)
            }),
            HubRequest::UpdateConsumerGroup(asked) => self.answer(peer, asked, |shard, request| {
                let UpdateConsumerGroup { name, group, user_metadata } = request;
                let (hubs, out) = (&mut shard.state.hubs, &mut shard.hub_output);
                Ok(hubs.update_group(now, &name, group, user_metadata, out)?)
            }),
            HubRequest::DeleteConsumerGroup(asked) => {
                self.answer(peer, asked, |shard, DeleteConsumerGroup { name, group }| {
                    Ok(shard.state.hubs.delete_group(&name, &group, &mut shard.hub_output)?)
                });
            }
            HubRequest::Claim(asked) => self.answer(peer, asked, |shard, request| {
                let Claim { name, group, partition, owner, expected } = request;
                let (hubs, out) = (&mut shard.state.hubs, &mut shard.hub_output);
                Ok(hubs.claim(now, &name, &group, partition, &owner, expected, out)?)
            }),
            HubRequest::ListOwnerships(asked) => {
                self.answer(peer, asked, |shard, ListOwnerships { name, group }| {
                    Ok(shard.state.hubs.ownerships(&name, &group)?)
                });
            }
            HubRequest::SetCheckpoint(asked) => self.answer(peer, asked, |shard, request| {
                let SetCheckpoint { name, group, partition, sequence, by } = request;
                let (hubs, out) = (&mut shard.state.hubs, &mut shard.hub_output);
                Ok(hubs.checkpoint(now, &name, &group, partition, sequence, &by, out)?)
            }),
            HubRequest::ListCheckpoints(asked) => {
                self.answer(peer, asked, |shard, ListCheckpoints { name, group }| {
                    Ok(shard.state.hubs.checkpoints(&name, &group)?)
                });
            }
            HubRequest::OpenStreams(asked) => self.answer(peer, asked, |shard, OpenStreams { specs }| {
                for spec in specs {
                    shard.state.hubs.open_stream(spec, &mut shard.hub_output);
                }
                Ok(())
            }),
            HubRequest::DeleteStreams(asked) => {
                self.answer(peer, asked, |shard, DeleteStreams { partitions }| {
                    for Partition { hub, number } in partitions {
                        shard.state.hubs.delete_stream(hub, number, &mut shard.hub_output);
                    }
                    Ok(())
                });
            }
            HubRequest::ShowPartition(asked) => {
                self.answer(peer, asked, |shard, ShowPartition { partition, after }| {
                    Ok(show(&shard.state.hubs, partition, after)?)
                });
            }
            HubRequest::ShowPartitions(asked) => {
                self.answer(peer, asked, |shard, ShowPartitions { partitions }| {
                    let hubs = &shard.state.hubs;
                    let shown = partitions.into_iter().map(|(partition, after)| show(hubs, partition, after));
                    Ok(shown.collect::<Result<_, _>>()?)
                });
            }
            HubRequest::ListPartitions(asked) => self.answer(peer, asked, |shard, ListPartitions {}| {
                let found = shard.state.hubs.streams().map(|(_, spec)| {
                    (Partition { hub: spec.hub, number: spec.partition }, spec.name.clone())
                });
                Ok(found.collect())
            }),
            HubRequest::ShowProducer(asked) => {
                self.answer(peer, asked, |shard, ShowProducer { partition, id }| {
                    let hubs = &shard.state.hubs;
                    let stream = hubs.find_stream(partition.hub, partition.number)?;
                    Ok(hubs.producer(stream, id))
                });
            }
            HubRequest::EndConsumerGroup(asked) => {
                self.answer(peer, asked, |shard, EndConsumerGroup { hub, group, revision }| {
                    shard.state.hubs.end_group(hub, &group, revision, &mut shard.hub_output);
                    Ok(())
                });
            }
        }
    }
}

fn show(hubs: &Hubs, partition: Partition, after: Option<u64>) -> Result<PartitionInfo, HubError> {
    let Partition { hub, number } = partition;
    let stream = hubs.find_stream(hub, number)?;
    let view = hubs.stream(stream).ok_or(HubError::NoSuchStream { hub, partition: number })?;
    let next = after.map(|after| after.saturating_add(1));
    let enqueued_after = next.and_then(|next| hubs.enqueued_at(stream, next));
    Ok(PartitionInfo { view, enqueued_after, traffic: hubs.traffic(stream) })
}
