#include "launch/push_messages.h"

#include "base/error.h"
#include "base/wire.h"

namespace dslaunch {
namespace {

constexpr const char* kWhat = "a message about a pushed file";

template <typename Message>
Message finished(const WireReader& wire, Message message) {
    if (!wire.done()) fail(ExitCode::kInternal, "{}: bytes are left over", kWhat);
    return message;
}

}  // namespace

int64_t push_chunk_count(int64_t file_bytes) {
    return (file_bytes + kPushChunkBytes - 1) / kPushChunkBytes;
}

std::string encode(const PushOffer& message) {
    WireWriter wire;
    wire.i64(message.id).string(message.path).string(message.source_path).i64(message.bytes);
    wire.i64(message.mode).i64(message.modified_ns).string(message.hash);
    return wire.bytes();
}

PushOffer decode_push_offer(std::string_view bytes) {
    WireReader wire(bytes, kWhat);
    PushOffer message;
    message.id = wire.i64();
    message.path = wire.string();
    message.source_path = wire.string();
    message.bytes = wire.i64();
    message.mode = wire.i64();
    message.modified_ns = wire.i64();
    message.hash = wire.string();
    return finished(wire, std::move(message));
}

std::string encode(const PushChunks& message) {
    WireWriter wire;
    wire.i64(message.id).string(message.hashes);
    return wire.bytes();
}

PushChunks decode_push_chunks(std::string_view bytes) {
    WireReader wire(bytes, kWhat);
    PushChunks message;
    message.id = wire.i64();
    message.hashes = wire.string();
    return finished(wire, std::move(message));
}

std::string encode(const PushPiece& message) {
    WireWriter wire;
    wire.i64(message.id).i64(message.offset).string(message.bytes);
    return wire.bytes();
}

PushPiece decode_push_piece(std::string_view bytes) {
    WireReader wire(bytes, kWhat);
    PushPiece message;
    message.id = wire.i64();
    message.offset = wire.i64();
    message.bytes = wire.string();
    return finished(wire, std::move(message));
}

std::string encode(const PushAnswer& message) {
    WireWriter wire;
    wire.i64(message.id).u8(static_cast<uint8_t>(message.state));
    wire.u32(static_cast<uint32_t>(message.missing.size()));
    for (const uint32_t chunk : message.missing) wire.u32(chunk);
    wire.i64(message.offset).string(message.error);
    return wire.bytes();
}

PushAnswer decode_push_answer(std::string_view bytes) {
    WireReader wire(bytes, kWhat);
    PushAnswer message;
    message.id = wire.i64();
    message.state = static_cast<PushState>(wire.u8());
    if (message.state < PushState::kEqual || message.state > PushState::kFailed) {
        fail(ExitCode::kInternal, "{}: an unknown state", kWhat);
    }
    // One by one: a count that lies runs out of bytes before it runs out of memory.
    for (uint32_t left = wire.u32(); left > 0; --left) message.missing.push_back(wire.u32());
    message.offset = wire.i64();
    message.error = wire.string();
    return finished(wire, std::move(message));
}

}  // namespace dslaunch
