//! Put Block, Put Block List and Get Block List, with which SDKs upload a stream.

use std::mem::take;

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderName, StatusCode};
use peeklock_broker::blob::limits::BLOCK_COUNT_MAX;
use peeklock_broker::blob::{Block, BlockId, BlockSource, NewBlob, check_read};
use peeklock_web::shown;
use peeklock_web::xml::{Writer, read as read_xml};

use super::headers::{condition, lease_id, metadata, of_content, put_state};
use super::object::{ENCRYPTED, may_replace, needs, refused_put};
use super::refusal::{of_lease, refused};
use super::{Place, sum, upload};
use crate::answer::{empty, put_header, xml};
use crate::auth::Permit;
use crate::call::Call;
use crate::problem::Problem;

/// The maximum size of a list: every id with its element.
const LIST_BYTES_MAX: usize = BLOCK_COUNT_MAX * 160;

pub(super) async fn put(
    call: &Call<'_>,
    permit: &Permit,
    (container, blob): Place,
    body: &mut Body,
) -> Result<Response, Problem> {
    permit.check(needs("cw"))?;
    let text = call.query("blockid").ok_or_else(|| Problem::query("blockid", "is missing; give one"))?;
    let id = block_id(text).ok_or_else(|| Problem::query("blockid", "is not base64 of at most 64 bytes"))?;
    let lease_id = lease_id(call, "x-ms-lease-id")?;
    let upload = upload::read(call, take(body)).await?;
    if upload.content.is_empty() {
        return Err(Problem::header("Content-Length", "is 0; a block has at least one byte"));
    }
    let sum = sum::checked(call, &upload.content).await?;
    let put = call.account.broker.put_block(container, blob, id, upload.content.clone(), lease_id).await;
    put.map_err(refused)?;
    let mut response = empty(StatusCode::CREATED);
    put_header(&mut response, &sum::CONTENT_MD5, &sum);
    put_header(&mut response, &ENCRYPTED, "false");
    Ok(response)
}

fn block_id(text: &str) -> Option<BlockId> {
    let is_base64 = BASE64.decode(text).is_ok_and(|bytes| (1..=64).contains(&bytes.len()));
    BlockId::parse(text).ok().filter(|_| is_base64)
}

pub(super) async fn put_list(
    call: &Call<'_>,
    permit: &Permit,
    (container, blob): Place,
    body: &mut Body,
) -> Result<Response, Problem> {
    permit.check(needs("cw"))?;
    let mut condition = condition(call)?;
    let may_replace = may_replace(permit, &mut condition);
    let mut headers = of_content(call);
    // The HTTP header Content-Type describes the list, not the blob.
    headers.content_type = call.header("x-ms-blob-content-type").map(|text| text.trim().to_owned());
    let metadata = metadata(call)?;
    let body = call.read_body(take(body), LIST_BYTES_MAX).await?;
    sum::checked(call, &body).await?;
    let new = NewBlob { metadata, headers, ..NewBlob::default() };
    let put = call.account.broker.put_block_list(container, blob, parse(&body)?, new, condition).await;
    let (etag, at) = put.map_err(|error| refused_put(error, may_replace))?;
    let mut response = empty(StatusCode::CREATED);
    put_state(&mut response, etag, at);
    put_header(&mut response, &ENCRYPTED, "false");
    Ok(response)
}

fn parse(body: &[u8]) -> Result<Vec<(BlockSource, BlockId)>, Problem> {
    let invalid = |text: String| Problem::bad("InvalidXmlDocument", text);
    let document = read_xml(body)?;
    if document.name != "BlockList" {
        return Err(invalid(format!("the body is a '{}'; send a BlockList", shown(&document.name))));
    }
    let block = |child: &peeklock_web::xml::Element| {
        let source = match child.name.as_str() {
            "Committed" => BlockSource::Committed,
            "Uncommitted" => BlockSource::Uncommitted,
            "Latest" => BlockSource::Latest,
            other => return Err(invalid(format!("the list of blocks has a '{}'", shown(other)))),
        };
        let wrong = || Problem::bad("InvalidBlockId", "a block's id is not base64 of at most 64 bytes");
        Ok((source, block_id(child.trimmed()).ok_or_else(wrong)?))
    };
    document.children.iter().map(block).collect()
}

pub(super) async fn list(
    call: &Call<'_>,
    permit: &Permit,
    (container, blob): Place,
) -> Result<Response, Problem> {
    permit.check(needs("r"))?;
    let kind = call.query("blocklisttype").unwrap_or("committed").to_ascii_lowercase();
    let (with_committed, with_uncommitted) = match kind.as_str() {
        "committed" => (true, false),
        "uncommitted" => (false, true),
        "all" => (true, true),
        _ => return Err(Problem::query("blocklisttype", "is none of committed, uncommitted and all")),
    };
    let broker = &call.account.broker;
    let (committed, uncommitted) = broker.blocks(container.clone(), blob.clone()).await.map_err(refused)?;
    let mut response = empty(StatusCode::OK);
    // A blob with only uncommitted blocks has no state yet.
    if let Ok(found) = broker.blob(container, blob).await {
        let lease_id = lease_id(call, "x-ms-lease-id")?;
        check_read(found.lease.as_ref(), call.now(), lease_id).map_err(of_lease)?;
        put_state(&mut response, found.etag, found.modified_at);
        let size = HeaderName::from_static("x-ms-blob-content-length");
        put_header(&mut response, &size, &found.content.len().to_string());
    }
    let mut writer = Writer::document();
    writer.begin("BlockList", &[]);
    if with_committed {
        put_blocks(&mut writer, "CommittedBlocks", &committed);
    }
    if with_uncommitted {
        put_blocks(&mut writer, "UncommittedBlocks", &uncommitted);
    }
    writer.end();
    let mut document = xml(StatusCode::OK, writer);
    document.headers_mut().extend(std::mem::take(response.headers_mut()));
    Ok(document)
}

fn put_blocks(writer: &mut Writer, name: &'static str, blocks: &[Block]) {
    writer.begin(name, &[]);
    for block in blocks {
        writer.begin("Block", &[]);
        writer.text("Name", block.id.as_str());
        writer.number("Size", block.size_bytes);
        writer.end();
    }
    writer.end();
}
